"""The rules of the linter: those in this folder, and those of other packages.

A rule is a module ``lbNNN_its_name.py`` with ``rule = read_rule(...)`` and a page ``lbNNN_its_name.md``; to add a rule,
add these two files. Another package lists its rules in the entry point group ``levelbench.rules``.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib import import_module

from levelbench import plugins
from levelbench.claims.rule import SEVERITIES, Diagnostic, Rule
from levelbench.claims.view import Claim
from levelbench.errors import DefinitionError

__all__ = ["all_rules", "shipped_rules"]

_FILE = re.compile(r"lb\d{3}_[a-z0-9_]+")


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, ours and those of installed packages, sorted by code.

    ``DefinitionError`` for one that does not load, is not a rule, or has the code of another.
    """
    found = {rule.code: rule for rule in shipped_rules()}
    for name in plugins.names("rule"):
        rule = plugins.load("rule", name)
        if not isinstance(rule, Rule):
            what = f"its entry point is a {type(rule).__name__}, not a rule"
            raise DefinitionError(f"rule {name!r}", what, "let it name what levelbench.claims.rule.read_rule returns")
        if rule.code in found:
            what = f"its code {rule.code} is that of the rule {found[rule.code].name}"
            raise DefinitionError(f"rule {name!r}", what, "give it a code of its own, such as ACME101")
        found[rule.code] = replace(rule, check=_watched(rule))
    return tuple(sorted(found.values(), key=lambda rule: rule.code))


def _watched(rule: Rule) -> Callable[[Claim], list[Diagnostic]]:
    """The check of another package's rule; ``DefinitionError`` names the rule if it fails, or finds what is none."""

    def check(claim: Claim) -> list[Diagnostic]:
        do = "tell its authors; --select with the codes of other rules leaves it out"
        try:
            found = list(rule.check(claim))
        except Exception as error:
            what = f"its check fails on {claim.title!r}: {type(error).__name__}: {error}"
            raise DefinitionError(f"rule {rule.code}", what, do) from error
        for each in found:
            if each.code != rule.code or each.severity not in SEVERITIES:
                what = f"its check finds {each.code} of severity {each.severity!r}"
                do = f"let it find {rule.code}, as one of {', '.join(SEVERITIES)}"
                raise DefinitionError(f"rule {rule.code}", what, do)
        return found

    return check


@cache
def shipped_rules() -> tuple[Rule, ...]:
    """The rules in this folder, sorted by code: those in our documentation."""
    names = [each.name for each in pkgutil.iter_modules(__path__) if _FILE.fullmatch(each.name)]
    found: list[Rule] = [import_module(f"{__name__}.{name}").rule for name in names]
    return tuple(sorted(found, key=lambda rule: rule.code))
