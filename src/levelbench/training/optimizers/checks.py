"""Checks of hyper-parameters; each error names the rule, the value and a valid choice."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from levelbench.errors import DefinitionError


def _require(rule: object, names: Iterable[str], holds: Callable[[Any], bool], found: str, choose: str) -> None:
    """Refuse the first setting that fails; ``{}`` in the advice stands for its name."""
    for name in names:
        value = getattr(rule, name)
        if not holds(value):
            raise DefinitionError(f"{type(rule).__name__} with {name}={value}", found, f"choose {choose.format(name)}")


def positive(rule: object, *names: str) -> None:
    """Each is a finite number above 0."""
    _require(rule, names, lambda value: math.isfinite(value) and value > 0, "it is not positive", "{} > 0")


def not_negative(rule: object, *names: str) -> None:
    """Each is a finite number, 0 or above."""
    _require(rule, names, lambda value: math.isfinite(value) and value >= 0, "it is not >= 0", "{} >= 0")


def below_zero(rule: object, *names: str) -> None:
    """Each is a finite number below 0."""
    _require(rule, names, lambda value: math.isfinite(value) and value < 0, "it is not below 0", "{} < 0")


def share(rule: object, *names: str, above_zero: bool = False) -> None:
    """Each lies in [0, 1), or in (0, 1): the share of past values that is kept."""
    choose = "0 < {} < 1" if above_zero else "0 <= {} < 1"
    found = "it is not a share"
    _require(rule, names, lambda value: 0 <= value < 1 and not (above_zero and value == 0), found, choose)


def at_least(rule: object, least: int, *names: str) -> None:
    """Each is an integer, at least ``least``."""
    found = f"it is not an integer >= {least}"
    _require(rule, names, lambda value: isinstance(value, int) and value >= least, found, f"{{}} >= {least}")


def one_of(rule: object, choices: tuple[str, ...], *names: str) -> None:
    """Each is one of these choices."""
    listed = ", ".join(choices)
    _require(rule, names, lambda value: value in choices, "unknown choice", f"one of {listed}")


_BY_NAME: tuple[tuple[Callable[..., None], tuple[str, ...]], ...] = (
    (share, ("momentum", "beta1", "beta2", "rho", "alpha", "decay")),
    (positive, ("trust", "clip", "diameter", "bound", "norm", "value")),
    (not_negative, ("epsilon", "weight_decay", "initial", "lr_decay", "momentum_decay", "weight_power")),
    (below_zero, ("beta2_decay",)),
    (lambda rule, *names: at_least(rule, 1, *names), ("every", "largest", "iterations")),
)


def by_name(rule: object) -> None:
    """Check the settings whose names mean the same in all our optimizers; others are left to the optimizer."""
    has = vars(rule)
    for check, names in _BY_NAME:
        check(rule, *(name for name in names if name in has))
