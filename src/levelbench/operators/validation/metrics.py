"""How far two arrays lie apart: in the norms, relative, in units of the last place, and in direction.

The one idea: positions where both are NaN, or the same infinity, are equal; where only one is, they are infinitely far
apart. Differences are taken in float64.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from levelbench.errors import UsageError
from levelbench.operators.validation.tolerances import is_float

__all__ = ["Errors", "difference", "errors", "ulp_distance"]


@dataclass(frozen=True)
class Errors:
    """``d`` is actual minus expected.

    ``l1`` = sum |d|, ``l2`` = sqrt(sum d²), ``linf`` = max |d|; ``relative`` = l2 / sqrt(sum expected²); ``ulp`` = the
    most representable numbers that any pair lies apart, ``None`` for what is no float; ``cosine`` = 1 - cos(actual,
    expected); ``where`` = the index of the largest |d|, ``None`` for an empty array.
    """

    l1: float
    l2: float
    linf: float
    relative: float
    ulp: float | None
    cosine: float
    where: tuple[int, ...] | None

    def to_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return asdict(self)


def _wide(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)


def difference(actual: ArrayLike, expected: ArrayLike) -> NDArray[np.float64]:
    """|actual - expected| by element: 0 where both are NaN or the same infinity, infinite where only one is."""
    first, second = np.asarray(actual), np.asarray(expected)
    if first.shape != second.shape:
        found = f"they have the shapes {first.shape} and {second.shape}"
        raise UsageError("the difference of two arrays", found, "compare arrays of one shape")
    if first.dtype.kind in "iu" and second.dtype.kind in "iu":
        # Exact also beyond 2^53, where float64 is not.
        gap = np.where(first > second, first - second, second - first)
        return np.where(first == second, 0.0, np.maximum(gap.astype(np.float64), 1.0))
    a, b = _wide(first), _wide(second)
    with np.errstate(all="ignore"):
        apart = np.abs(a - b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.asarray(np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart)), np.float64)


def errors(actual: ArrayLike, expected: ArrayLike) -> Errors:
    """All errors of ``actual``, of any rank; empty arrays have none. ``UsageError`` for two shapes."""
    first, second = np.asarray(actual), np.asarray(expected)
    apart = difference(first, second)
    if not apart.size:
        return Errors(0.0, 0.0, 0.0, 0.0, 0.0 if is_float(second.dtype) else None, 0.0, None)
    where = tuple(int(each) for each in np.unravel_index(int(np.argmax(apart)), apart.shape))
    linf, l2 = float(apart.max()), _norm(apart)
    known = _wide(second)
    size = _norm(np.abs(known[np.isfinite(known)]))
    relative = 0.0 if l2 == 0 else (l2 / size if size else np.inf)
    distance = ulp_distance(first, second)
    ulp = None if distance is None else float(distance.max())
    return Errors(float(apart.sum()), l2, linf, float(relative), ulp, _cosine(first, second, apart), where)


def _norm(values: NDArray[Any]) -> float:
    """The Euclidean norm, without overflow on the way."""
    largest = float(values.max(initial=0.0))
    if largest == 0 or not np.isfinite(largest):
        return largest
    return largest * float(np.sqrt(np.square(values / largest).sum()))


def _cosine(actual: NDArray[Any], expected: NDArray[Any], apart: NDArray[np.float64]) -> float:
    """1 - cos of the angle, over the positions where both are finite; from unit vectors, so that 1e-20 is seen too."""
    if not apart.any():
        return 0.0
    a, b = _wide(actual).ravel(), _wide(expected).ravel()
    finite = np.isfinite(a) & np.isfinite(b)
    a, b = a[finite], b[finite]
    long, wide = _norm(np.abs(a)), _norm(np.abs(b))
    if long == 0 or wide == 0:
        return 0.0 if long == wide else 1.0
    # |a/|a| - b/|b||² = 2 - 2 cos: no cancellation near 1.
    return float(np.square(np.abs(a / long - b / wide)).sum() / 2)


def _ordered(values: NDArray[Any]) -> NDArray[np.uint64]:
    """The position of each number among all of its dtype, in order; both zeros at the same place."""
    bits = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}").astype(np.uint64).reshape(values.shape)
    sign = np.uint64(1) << np.uint64(8 * values.dtype.itemsize - 1)
    magnitude = bits & (sign - np.uint64(1))
    return np.where(bits & sign, sign - magnitude, sign + magnitude)


def ulp_distance(actual: ArrayLike, expected: ArrayLike) -> NDArray[np.float64] | None:
    """How many representable numbers each pair lies apart, in the narrower of the two dtypes; ``None`` for no floats.

    Infinite where only one of a pair is NaN. The wider one is rounded first.
    """
    first, second = np.asarray(actual), np.asarray(expected)
    if not (is_float(first.dtype) and is_float(second.dtype)):
        return None
    narrow = min(first.dtype, second.dtype, key=lambda each: each.itemsize)
    with np.errstate(all="ignore"):
        first, second = first.astype(narrow), second.astype(narrow)
    a, b = _ordered(first), _ordered(second)
    apart = np.where(a > b, a - b, b - a).astype(np.float64)
    no_a, no_b = np.isnan(first.astype(np.float64)), np.isnan(second.astype(np.float64))
    return np.asarray(np.where(no_a & no_b, 0.0, np.where(no_a ^ no_b, np.inf, apart)), np.float64)
