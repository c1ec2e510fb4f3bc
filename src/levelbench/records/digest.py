"""The key of a run: a digest of what it was to be.

Two specifications that are equal have one key, wherever and whenever they were written down, so the key
tells a run that is done from one that is to go.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from levelbench.errors import UsageError

__all__ = ["around_recipes", "key_of"]

_ADDED = frozenset({"budget_samples", "budget_j", "plateau", "distribution"})
"""Fields that came later: left out where they say nothing, so that the keys of earlier runs stay what they were."""


def key_of(spec: Struct) -> str:
    """SHA-256, as 64 hexadecimal digits, of the canonical JSON of ``spec`` (sorted keys, no white space).

    Its clock is left out: a policy is a way to read a run, and another one needs no new run.
    Numbers that are equal are written alike (``1.0`` as ``1``), as in RFC 8785. The seed, the machine and the path
    are no part of a specification and so no part of its key. Raises ``UsageError`` for a number that is not finite.
    """
    canonical = {
        name: _canonical(value)
        for name, value in msgspec.to_builtins(spec).items()
        if name != "clock" and not (value is None and name in _ADDED)
    }
    text = json.dumps(canonical, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _canonical(each) for key, each in value.items()}
    if isinstance(value, float):
        if not math.isfinite(value):
            do = "give every setting, threshold and budget a finite value"
            raise UsageError("the key of a specification", f"a value in it is {value}", do)
        return int(value) if value.is_integer() else value
    return value


class _WithoutRecipes(ast.NodeTransformer):
    """Takes out of a module the functions that are decorated as recipes, and texts that nothing reads."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:  # the name is given
        calls = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
        if any(isinstance(each, ast.Attribute) and each.attr == "recipe" for each in calls):
            return None
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)


@lru_cache(maxsize=256)
def around_recipes(text: str) -> str:
    """SHA-256 of what a task's source says outside of its recipe functions; comments and docstrings do not count."""
    try:
        rest = ast.dump(_WithoutRecipes().visit(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        rest = text
    return hashlib.sha256(rest.encode("utf-8", "backslashreplace")).hexdigest()
