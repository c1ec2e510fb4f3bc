"""The rules of the linter, found by listing this folder.

The one idea: a rule is one file ``lbNNN_its_name.py`` with ``rule = Rule(...)``; adding one is adding a file.
"""

from __future__ import annotations

import pkgutil
import re
from functools import cache
from importlib import import_module

from levelbench.claims.rule import Rule

__all__ = ["all_rules"]

_FILE = re.compile(r"lb\d{3}_[a-z0-9_]+")


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, sorted by its code."""
    names = [each.name for each in pkgutil.iter_modules(__path__) if _FILE.fullmatch(each.name)]
    found = [_loaded(name) for name in names]
    return tuple(sorted(found, key=lambda rule: rule.code))


def _loaded(name: str) -> Rule:
    rule: Rule = import_module(f"{__name__}.{name}").rule
    return rule
