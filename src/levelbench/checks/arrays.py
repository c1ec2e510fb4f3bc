"""Compares an array with the expected one: type, shape and values; says where, by how much and with which tolerance.

Tolerances are derived, not chosen. With unit roundoff u, a sum of n terms is off by at most gamma_n = n u / (1 - n u)
times the sum of magnitudes (Higham, "Accuracy and Stability of Numerical Algorithms", 2002, section 3.1). If rounding
errors are independent with mean zero, it is off by about the square root of that: exp(lambda sqrt(n) u + n u^2 / (1 -
u)) - 1, except for a share 2 n exp(-lambda^2 (1 - u)^2 / 2) of results (Higham and Mary, "A New Approach to
Probabilistic Rounding Error Analysis", SIAM J. Sci. Comput. 41, 2019, theorem 2.4). No implementation can be blamed for
what rounding the inputs does to the exact result: :func:`sensitivity` measures that on the reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from levelbench.errors import UsageError

Host = NDArray[Any]
"""An array on the host, of any dtype."""

Slack = Callable[[], Host | None]

ROUNDINGS = 8
"""Roundings allowed besides those of the sum: of function inputs and of intermediate results."""

_RISK = 1e-9


@dataclass(frozen=True)
class Tolerance:
    """``|actual - expected| <= atol + rtol |expected|``, and the reason for these values."""

    rtol: float
    atol: float
    reason: str

    def allowed(self, expected: Host) -> NDArray[np.float64]:
        """The largest allowed deviation, by element; ``atol`` where the expected value is not finite."""
        size = np.abs(np.asarray(expected).astype(np.complex128 if np.iscomplexobj(expected) else np.float64))
        return np.asarray(self.atol + self.rtol * np.where(np.isfinite(size), size, 0.0), np.float64)

    def __str__(self) -> str:
        return f"rtol {self.rtol:.2g}, atol {self.atol:.2g}: {self.reason}"


def is_float(dtype: DTypeLike) -> bool:
    """Whether values of ``dtype`` are real floating-point numbers, including those of ``ml_dtypes``."""
    found = np.dtype(dtype)
    return found.kind == "f" or (found.kind == "V" and found.names is None and _has_finfo(found))


def _has_finfo(dtype: np.dtype[Any]) -> bool:
    try:
        ml_dtypes.finfo(dtype)
    except (ValueError, TypeError, KeyError):
        return False
    return True


def unit_roundoff(dtype: DTypeLike) -> float:
    """Half the distance from 1 to the next number of ``dtype``: 2^-24 for float32; 0 for integers."""
    found = np.dtype(dtype)
    if found.kind == "c":
        return float(np.finfo(found).eps) / 2
    return float(ml_dtypes.finfo(found).eps) / 2 if is_float(found) else 0.0


def accumulated_in(dtype: DTypeLike) -> np.dtype[Any]:
    """The dtype in which a correct implementation accumulates: float32 for half precisions, else ``dtype`` itself."""
    found = np.dtype(dtype)
    return np.dtype(np.float32) if is_float(found) and found.itemsize < 4 else found


def growth(length: int, roundoff: float, results: int = 1, risk: float = _RISK) -> float:
    """The smaller of the deterministic and the probabilistic bound on the relative error of a sum of ``length`` terms.

    The probability that any of ``results`` sums exceeds the probabilistic bound is at most ``risk``.
    """
    if length <= 1 or roundoff == 0:
        return 0.0
    certain = length * roundoff / (1 - length * roundoff) if length * roundoff < 1 else math.inf
    spread = math.sqrt(2 * math.log(2 * length * max(1, results) / risk)) / (1 - roundoff)
    likely = math.expm1(spread * math.sqrt(length) * roundoff + length * roundoff**2 / (1 - roundoff))
    return min(certain, likely)


def tolerance_for(dtype: DTypeLike, *, length: int = 1, scale: float = 0.0, results: int = 1) -> Tolerance:
    """The tolerance of a result of ``dtype`` whose longest sum has ``length`` terms.

    ``scale`` is the size of the terms, usually the largest expected magnitude: if terms cancel, the error is relative
    to ``scale``, not to the sum. ``results`` is how many values are compared at once.
    """
    found = np.dtype(dtype)
    roundoff = unit_roundoff(found)
    if roundoff == 0:
        return Tolerance(0.0, 0.0, f"{found} is exact")
    inner = accumulated_in(found)
    grown = growth(length, unit_roundoff(inner), results)
    smallest = float(np.finfo(found).tiny if found.kind in "fc" else ml_dtypes.finfo(found).tiny)
    reason = f"{ROUNDINGS} roundings of {found} (u = {roundoff:.2g})"
    if length > 1:
        reason += f" and a sum of {length} terms in {inner} (Higham and Mary 2019: {grown:.2g})"
    if scale:
        reason += f", of values up to {scale:.3g}"
    rtol = ROUNDINGS * roundoff + grown
    return Tolerance(rtol, rtol * scale + smallest, reason)


@dataclass(frozen=True)
class Correctness:
    """The result of a comparison: ``wrong`` is empty if nothing is wrong; ``errors`` holds the largest of each kind."""

    wrong: str = ""
    checked: str = ""
    errors: dict[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Errors:
    """``d`` is actual minus expected.

    ``l1`` = sum |d|, ``l2`` = sqrt(sum d²), ``linf`` = max |d|; ``relative`` = l2 / sqrt(sum expected²); ``ulp`` = the
    largest distance of a pair in representable numbers, ``None`` if not floating-point; ``cosine`` = 1 - cos(actual,
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
        """The errors as JSON types."""
        return asdict(self)


def _wide(values: Host) -> Host:
    return values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)


def difference(actual: ArrayLike, expected: ArrayLike) -> NDArray[np.float64]:
    """|actual - expected| by element: 0 if both are NaN or the same infinity, infinite if only one is."""
    first, second = np.asarray(actual), np.asarray(expected)
    if first.shape != second.shape:
        found = f"they have shapes {first.shape} and {second.shape}"
        raise UsageError("the difference of two arrays", found, "compare arrays of the same shape")
    if first.dtype.kind in "iu" and second.dtype.kind in "iu":
        # Exact even beyond 2^53, where float64 is not.
        gap = np.where(first > second, first - second, second - first)
        return np.where(first == second, 0.0, np.maximum(gap.astype(np.float64), 1.0))
    a, b = _wide(first), _wide(second)
    with np.errstate(all="ignore"):
        apart = np.abs(a - b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.asarray(np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart)), np.float64)


def errors(actual: ArrayLike, expected: ArrayLike) -> Errors:
    """All errors of ``actual``, of any rank; zero for empty arrays. Raises ``UsageError`` if the shapes differ."""
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


def _norm(values: Host) -> float:
    """The Euclidean norm, without intermediate overflow."""
    largest = float(values.max(initial=0.0))
    if largest == 0 or not np.isfinite(largest):
        return largest
    return largest * float(np.sqrt(np.square(values / largest).sum()))


def _cosine(actual: Host, expected: Host, apart: NDArray[np.float64]) -> float:
    """1 - cos of the angle, where both are finite; computed from unit vectors, so that even 1e-20 is resolved."""
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


def _ordered(values: Host) -> NDArray[np.uint64]:
    """The rank of each number among all numbers of its dtype; both zeros have the same rank."""
    bits = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}").astype(np.uint64).reshape(values.shape)
    sign = np.uint64(1) << np.uint64(8 * values.dtype.itemsize - 1)
    magnitude = bits & (sign - np.uint64(1))
    return np.where(bits & sign, sign - magnitude, sign + magnitude)


def largest(value: Host) -> float:
    """The largest finite magnitude; 0 for empty arrays, booleans and non-numeric dtypes."""
    if not (is_float(value.dtype) or value.dtype.kind in "ciu") or not value.size:
        return 0.0
    size = np.abs(_wide(value))
    return float(np.where(np.isfinite(size), size, 0.0).max(initial=0.0))


def ulp_distance(actual: ArrayLike, expected: ArrayLike) -> NDArray[np.float64] | None:
    """The distance of each pair in representable numbers of the narrower dtype; ``None`` if not floating-point.

    Infinite if only one of a pair is NaN. The wider one is rounded first.
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


def number(value: Any) -> str:
    """Format a value of any dtype."""
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
    """``None`` if correct, else what is wrong. ``dtypes``: those that ``actual`` may have (default: ``expected``'s)."""
    if expected is None or actual is None:
        if (expected is None) == (actual is None):
            return None
        return f"{what} should be absent" if expected is None else f"{what} is missing"
    allowed = tuple(dtypes) or (expected.dtype,)
    if actual.dtype not in allowed:
        return f"{what} has dtype {actual.dtype}, expected {' or '.join(str(each) for each in allowed)}"
    if actual.shape != expected.shape:
        return f"{what} has shape {actual.shape}, expected {expected.shape}"
    return compare_values(what, actual, expected, tolerance, slack)


def compare_values(
    what: str, actual: Host, expected: Host, tolerance: Tolerance, slack: Slack | None = None
) -> str | None:
    """Like :func:`compare`, for arrays of the same shape; ``expected`` may have a wider dtype than ``actual``."""
    if not actual.size:
        return None
    if actual.dtype.kind not in "biufc" and not is_float(actual.dtype):
        bad = np.asarray(actual != expected)
        if not bad.any():
            return None
        where = _first(bad)
        return f"{what} is wrong at {where}: {actual[where]!r}, expected {expected[where]!r}"
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
            note = " (more than rounding the inputs explains)"
    return _describe(what, actual, expected, apart, allowed, bad, tolerance, note) if bad.any() else None


def _first(bad: Host) -> tuple[int, ...]:
    return tuple(int(each) for each in np.unravel_index(int(np.argmax(bad)), bad.shape))


def _overflows(actual: Host, expected: Host) -> Host:
    """Where the output is infinite and the expected value is at or beyond the largest number of the output's dtype."""
    if not is_float(actual.dtype) or actual.dtype == np.float64:
        return np.zeros(actual.shape, bool)
    largest = float(ml_dtypes.finfo(actual.dtype).max)
    wide, found = expected.astype(np.float64), actual.astype(np.float64)
    return np.asarray(np.isinf(found) & (np.abs(wide) > 0.99 * largest) & (np.sign(wide) == np.sign(found)))


def _describe(
    what: str, actual: Host, expected: Host, apart: Host, allowed: Host, bad: Host, tolerance: Tolerance, note: str
) -> str:
    over = np.where(bad, apart / np.maximum(allowed, np.finfo(np.float64).tiny), -1.0)
    where = _first(over == over.max())
    found, wanted = actual[where], expected[where]
    distance = ulp_distance(found, wanted)
    ulp = "" if distance is None or not np.isfinite(distance) else f" ({float(distance):.0f} ULP of {actual.dtype})"
    count = f"{int(bad.sum())} of {bad.size} values" if bad.size > 1 else "its only value"
    if not np.isfinite(apart[where]):
        off = "only one of the two is finite or NaN"
    else:
        off = f"off by {apart[where]:.3g}{ulp} where {allowed[where]:.2g} is allowed{note} [{tolerance}]"
    place = f", worst at {where}" if where else ""
    return f"{what} is wrong in {count}{place}: {number(found)}, expected {number(wanted)}, {off}"


def sensitivity(
    evaluate: Callable[[Sequence[Host | None]], Sequence[Host | None] | None],
    inputs: Sequence[Host | None],
    base: Host,
    at: int,
    dtype: DTypeLike,
    length: int,
    fixed: frozenset[int] = frozenset(),
    seed: int = 0,
) -> Host | None:
    """By how much rounding the inputs moves each element of output ``at``, times 4 sqrt(length) for roundings inside.

    ``evaluate`` is the reference, in the dtype of ``inputs``. The inputs are moved by the unit roundoff of ``dtype``,
    the operator's dtype.
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
    return np.asarray(4 * np.sqrt(max(1, length)) * np.where(np.isfinite(most), most, np.inf))
