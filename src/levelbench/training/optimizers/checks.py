"""Whether a hyper-parameter can be meant: each refusal names the rule, the value and what would do."""

from __future__ import annotations

import math

from levelbench.errors import DefinitionError


def _refuse_unless(holds: bool, rule: object, name: str, found: str, do: str) -> None:
    if not holds:
        raise DefinitionError(f"{type(rule).__name__} with {name}={getattr(rule, name)}", found, do)


def positive(rule: object, *names: str) -> None:
    """Each is a finite number above 0."""
    for name in names:
        value = getattr(rule, name)
        _refuse_unless(math.isfinite(value) and value > 0, rule, name, "it is not positive", f"choose {name} > 0")


def not_negative(rule: object, *names: str) -> None:
    """Each is a finite number, 0 or above."""
    for name in names:
        value = getattr(rule, name)
        _refuse_unless(math.isfinite(value) and value >= 0, rule, name, "it is not >= 0", f"choose {name} >= 0")


def below_zero(rule: object, *names: str) -> None:
    """Each is a finite number below 0."""
    for name in names:
        value = getattr(rule, name)
        _refuse_unless(math.isfinite(value) and value < 0, rule, name, "it is not below 0", f"choose {name} < 0")


def share(rule: object, *names: str, above_zero: bool = False) -> None:
    """Each lies in [0, 1), or in (0, 1): a share of what was before that is kept."""
    for name in names:
        value = getattr(rule, name)
        holds = 0 < value < 1 if above_zero else 0 <= value < 1
        least = "0 <" if above_zero else "0 <="
        _refuse_unless(holds, rule, name, "what is kept of the past is a share", f"choose {least} {name} < 1")


def at_least(rule: object, least: int, *names: str) -> None:
    """Each is a whole number, ``least`` or above."""
    for name in names:
        value = getattr(rule, name)
        holds = isinstance(value, int) and value >= least
        _refuse_unless(holds, rule, name, f"it is no whole number >= {least}", f"choose {name} >= {least}")


def one_of(rule: object, choices: tuple[str, ...], *names: str) -> None:
    """Each is one of these words."""
    for name in names:
        listed = ", ".join(choices)
        _refuse_unless(getattr(rule, name) in choices, rule, name, f"there are: {listed}", f"choose one of {listed}")


_SHARES = ("momentum", "beta1", "beta2", "rho", "alpha")
_POSITIVE = ("trust", "clip", "diameter", "bound")
_NOT_NEGATIVE = ("epsilon", "weight_decay", "initial", "lr_decay", "momentum_decay", "weight_power")
_COUNTS = ("every", "largest", "iterations")


def by_name(rule: object) -> None:
    """Each setting is what one of its name is in all rules of ours; others are the rule's own to check."""
    has = vars(rule)
    share(rule, *(name for name in _SHARES if name in has))
    positive(rule, *(name for name in _POSITIVE if name in has))
    not_negative(rule, *(name for name in _NOT_NEGATIVE if name in has))
    below_zero(rule, *(name for name in ("beta2_decay",) if name in has))
    at_least(rule, 1, *(name for name in _COUNTS if name in has))
