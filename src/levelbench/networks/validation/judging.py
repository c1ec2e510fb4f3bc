"""Judges one tensor of a network against the reference's: dtype, shape, NaN and infinities, then values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.networks.validation.agreement import TensorAgreement
from levelbench.networks.validation.limits import Kind
from levelbench.operators.validation.comparing import number
from levelbench.operators.validation.metrics import difference, errors, ulp_distance
from levelbench.operators.validation.tolerances import is_float, unit_roundoff

__all__ = ["Moved", "judge", "largest", "noise"]

Host = NDArray[Any]


@dataclass(frozen=True)
class Moved:
    """What roundings do to a tensor: ``by`` the largest deviation seen, ``flips`` where it changes without measure.

    A flip is an integer that changes, or a value that becomes or ceases to be NaN or infinite.
    """

    by: float
    flips: NDArray[np.bool_]


def largest(value: Host) -> float:
    """The largest finite magnitude; 0 for an empty array and for what is no number."""
    if not (is_float(value.dtype) or value.dtype.kind in "ciu") or not value.size:
        return 0.0
    size = np.abs(value.astype(np.complex128 if value.dtype.kind == "c" else np.float64))
    return float(np.where(np.isfinite(size), size, 0.0).max(initial=0.0))


def noise(value: Host, others: Iterable[Host]) -> float:
    """What sums that cancel leave of a gradient: 8 roundings of the largest of all, as of a bias before a norm."""
    return 8 * unit_roundoff(value.dtype) * max((largest(each) for each in others), default=0.0)


def judge(
    name: str,
    kind: Kind,
    actual: Host,
    expected: Host,
    limit: float,
    *,
    slack: Callable[[], Moved | None] = lambda: None,
    floor: float = 0.0,
) -> TensorAgreement:
    """How ``actual`` agrees with ``expected``, which may be off by ``limit`` times its largest magnitude.

    ``floor`` is an absolute deviation that passes as rounding. ``slack`` is asked only where that is exceeded.
    """
    about: dict[str, Any] = {"name": name, "kind": kind, "dtype": str(actual.dtype), "shape": actual.shape}
    if actual.dtype != expected.dtype:
        detail = f"{name!r} has the dtype {actual.dtype}, {expected.dtype} expected"
        return TensorAgreement(status="wrong", limit=limit, relative=np.inf, detail=detail, **about)
    if actual.shape != expected.shape:
        detail = f"{name!r} has the shape {actual.shape}, {expected.shape} expected"
        return TensorAgreement(status="wrong", limit=limit, relative=np.inf, detail=detail, **about)
    if expected.dtype.kind in "OUSTV" and not is_float(expected.dtype):
        same = bool(np.array_equal(actual, expected))
        detail = "" if same else f"{name!r} holds other text"
        return TensorAgreement(status="agrees" if same else "wrong", detail=detail, **about)
    apart, size = difference(actual, expected), largest(expected)
    relative = float(apart.max(initial=0.0)) / size if size else float(apart.max(initial=0.0))
    found = {**about, "relative": relative, "limit": limit, "errors": errors(actual, expected)}
    # Values that lie between zero and the smallest normal number are flushed to zero by some processors' settings.
    allowed = max(limit * size, _tiny(expected.dtype))
    bad = apart > allowed
    if not bad.any():
        return TensorAgreement(status="agrees", **found)
    if not (apart > floor).any():
        detail = f"{name!r} is what sums that cancel leave: it is below 8 roundings of the largest tensor of its kind"
        return TensorAgreement(status="rounding", detail=detail, **found)
    moved = slack()
    if moved is not None:
        left = bad & ~moved.flips & ~(apart <= allowed + moved.by)
        if not left.any():
            detail = f"{name!r} is off by {relative:.2g} of its largest value; roundings of the inputs do as much"
            return TensorAgreement(status="rounding", detail=detail, **found)
        bad = left
    return TensorAgreement(status="wrong", detail=_said(name, actual, expected, apart, bad, limit, size), **found)


def _tiny(dtype: np.dtype[Any]) -> float:
    if not is_float(dtype):
        return 0.0
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).tiny) if unit_roundoff(dtype) else 0.0


def _said(name: str, actual: Host, expected: Host, apart: Any, bad: Any, limit: float, size: float) -> str:
    over = np.where(bad, apart, -1.0)
    where = tuple(int(each) for each in np.unravel_index(int(np.argmax(over)), over.shape))
    found, wanted = actual[where], expected[where]
    count = f"{int(bad.sum())} of {bad.size} values" if bad.size > 1 else "its one value"
    start = f"{name!r} is wrong in {count}, the worst at {where}: {number(found)}, {number(wanted)} expected"
    if not np.isfinite(apart[where]):
        return f"{start}, where only one of the two is finite"
    if not limit:
        return f"{start}, and {expected.dtype} is exact"
    distance = ulp_distance(found, wanted)
    ulp = "" if distance is None else f", {float(distance):.0f} ULP"
    share = f"{apart[where] / size:.2g} of the tensor's largest value" if size else f"{apart[where]:.2g}"
    return f"{start}, off by {share}{ulp}, where {limit:.2g} is allowed"
