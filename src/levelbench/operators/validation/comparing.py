"""Says whether an output is the expected one: type, shape, values, with where, how much, and against which tolerance.

The one idea: before an operator is accused, the reference is asked how sensitive it is there. Its inputs are known to a
rounding only, so what a rounding of the inputs does to the exact result, no implementation can be held to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from levelbench.operators.validation.metrics import difference, ulp_distance
from levelbench.operators.validation.subject import Host
from levelbench.operators.validation.tolerances import Tolerance, is_float, unit_roundoff

__all__ = ["compare", "compare_values", "number", "sensitivity"]

Slack = Callable[[], Any]


def number(value: Any) -> str:
    """A value of any dtype as text."""
    plain = np.asarray(value)
    if plain.dtype.kind in "biu":
        return str(plain.item())
    if plain.dtype.kind == "c":
        return f"{complex(plain.item()):.9g}"
    return f"{float(plain):.9g}"


def compare(
    what: str,
    actual: Any,
    expected: Host | None,
    tolerance: Tolerance,
    *,
    dtypes: Sequence[np.dtype[Any]] = (),
    slack: Slack | None = None,
) -> str | None:
    """``None`` if right, else what is wrong. ``dtypes``: those the output may have, by default the expected one's."""
    if expected is None or actual is None:
        if (expected is None) == (actual is None):
            return None
        return f"{what} is {'there' if expected is None else 'missing'}, and should {'not ' * (expected is None)}be"
    allowed = tuple(dtypes) or (expected.dtype,)
    if actual.dtype not in allowed:
        return f"{what} has the dtype {actual.dtype}, {' or '.join(str(each) for each in allowed)} expected"
    if actual.shape != expected.shape:
        return f"{what} has the shape {actual.shape}, {expected.shape} expected"
    return compare_values(what, actual, expected, tolerance, slack)


def compare_values(
    what: str, actual: Host, expected: Host, tolerance: Tolerance, slack: Slack | None = None
) -> str | None:
    """As :func:`compare`, for arrays of one shape; ``expected`` may be of a wider dtype than ``actual``."""
    if not actual.size:
        return None
    if actual.dtype.kind not in "biufc" and not is_float(actual.dtype):
        bad = np.asarray(actual != expected)
        if not bad.any():
            return None
        where = _first(bad)
        return f"{what} is wrong at {where}: {actual[where]!r}, {expected[where]!r} expected"
    apart = difference(actual, expected)
    with np.errstate(all="ignore"):
        apart = np.where(_overflows(actual, expected), 0.0, apart)
        allowed = tolerance.allowed(expected)
        bad = apart > allowed
    note = ""
    if bad.any() and slack is not None:
        extra = slack()
        if extra is not None and extra.shape == bad.shape:
            bad &= ~(apart <= allowed + extra)
            note = " (also beyond what a rounding of the inputs explains)"
    return _say(what, actual, expected, apart, allowed, bad, tolerance, note) if bad.any() else None


def _first(bad: Any) -> tuple[int, ...]:
    return tuple(int(each) for each in np.unravel_index(int(np.argmax(bad)), bad.shape))


def _overflows(actual: Host, expected: Host) -> Any:
    """Where an expected value lies at or beyond the largest number of the output's dtype and infinity is found."""
    if not is_float(actual.dtype) or actual.dtype == np.float64:
        return np.zeros(actual.shape, bool)
    import ml_dtypes

    largest = float(ml_dtypes.finfo(actual.dtype).max)
    wide, found = expected.astype(np.float64), actual.astype(np.float64)
    return np.isinf(found) & (np.abs(wide) > 0.99 * largest) & (np.sign(wide) == np.sign(found))


def _say(
    what: str, actual: Host, expected: Host, apart: Any, allowed: Any, bad: Any, tolerance: Tolerance, note: str
) -> str:
    over = np.where(bad, apart / np.maximum(allowed, np.finfo(np.float64).tiny), -1.0)
    where = _first(over == over.max())
    found, wanted = actual[where], expected[where]
    distance = ulp_distance(found, wanted)
    ulp = "" if distance is None or not np.isfinite(distance) else f" ({float(distance):.0f} ULP of {actual.dtype})"
    count = f"{int(bad.sum())} of {bad.size} values" if bad.size > 1 else "its one value"
    if not np.isfinite(apart[where]):
        off = "where only one of the two is finite or NaN"
    else:
        off = f"off by {apart[where]:.3g}{ulp} where {allowed[where]:.2g} is allowed{note} [{tolerance}]"
    return (
        f"{what} is wrong in {count}, the worst at {where or 'its scalar'}: "
        f"{number(found)}, {number(wanted)} expected, {off}"
    )


def sensitivity(
    evaluate: Callable[[Sequence[Host | None]], Sequence[Host | None] | None],
    inputs: Sequence[Host | None],
    base: Host,
    at: int,
    dtype: Any,
    length: int,
    fixed: frozenset[int] = frozenset(),
    seed: int = 0,
) -> Any:
    """By element of output ``at``: what roundings of the inputs do to it, times 4 sqrt(length) for those on the way.

    ``evaluate`` is the reference, in the dtype of ``inputs``; ``dtype`` is the operator's, by whose roundoff they move.
    """
    random = np.random.default_rng(seed)
    roundoff = unit_roundoff(dtype) or unit_roundoff(np.float32)
    most = np.zeros(base.shape, np.float64)
    for _ in range(6):
        moved = [
            value
            if value is None or at_input in fixed or not is_float(value.dtype)
            else (value * (1 + roundoff * random.choice([-1.0, 1.0], value.shape))).astype(value.dtype)
            for at_input, value in enumerate(inputs)
        ]
        found = evaluate(moved)
        if found is None or found[at] is None:
            return None
        other = np.asarray(found[at])
        if other.shape != base.shape:
            return None
        most = np.maximum(most, difference(other, base))
    return 4 * np.sqrt(max(1, length)) * np.where(np.isfinite(most), most, np.inf)
