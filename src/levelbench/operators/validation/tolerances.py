"""How far a result may lie from the exact one: from its dtype and the length of its longest sum, with the reason.

The one idea: a tolerance is derived, not chosen. With unit roundoff u a sum of n terms is off by at most
gamma_n = n u / (1 - n u) of the sum of magnitudes (Higham, "Accuracy and Stability of Numerical Algorithms", 2002,
section 3.1), and with rounding errors that are independent and of mean zero by about the square root of that:
exp(lambda sqrt(n) u + n u^2 / (1 - u)) - 1, but for a share 2 n exp(-lambda^2 (1 - u)^2 / 2) of results (Higham and
Mary, "A New Approach to Probabilistic Rounding Error Analysis", SIAM J. Sci. Comput. 41, 2019, theorem 2.4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["ROUNDINGS", "Tolerance", "accumulated_in", "growth", "is_float", "tolerance_for", "unit_roundoff"]

ROUNDINGS = 8
"""Roundings that a result may have met beside those of its sum: of inputs to functions, of intermediate results."""

_RISK = 1e-9
_HALF = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


@dataclass(frozen=True)
class Tolerance:
    """``|actual - expected| <= atol + rtol |expected|``, and why it is that."""

    rtol: float
    atol: float
    reason: str

    def allowed(self, expected: NDArray[Any]) -> NDArray[np.float64]:
        """The largest deviation that passes, by element; ``atol`` where the expected value is not finite."""
        size = np.abs(np.asarray(expected).astype(np.complex128 if np.iscomplexobj(expected) else np.float64))
        return np.asarray(self.atol + self.rtol * np.where(np.isfinite(size), size, 0.0), np.float64)

    def __str__(self) -> str:
        return f"rtol {self.rtol:.2g}, atol {self.atol:.2g}: {self.reason}"


def is_float(dtype: DTypeLike) -> bool:
    """Whether values of ``dtype`` are real floating-point numbers, ``ml_dtypes``' among them."""
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
    """The dtype in which a right implementation adds up: float32 for the half precisions, else ``dtype`` itself."""
    found = np.dtype(dtype)
    return np.dtype(np.float32) if is_float(found) and found.itemsize < 4 else found


def growth(length: int, roundoff: float, results: int = 1, risk: float = _RISK) -> float:
    """The smaller of Higham's deterministic and probabilistic bound on the relative error of a sum of ``length`` terms.

    The probabilistic one is exceeded by any of ``results`` sums with a probability of at most ``risk``.
    """
    if length <= 1 or roundoff == 0:
        return 0.0
    certain = length * roundoff / (1 - length * roundoff) if length * roundoff < 1 else math.inf
    spread = math.sqrt(2 * math.log(2 * length * max(1, results) / risk)) / (1 - roundoff)
    likely = math.expm1(spread * math.sqrt(length) * roundoff + length * roundoff**2 / (1 - roundoff))
    return min(certain, likely)


def tolerance_for(dtype: DTypeLike, *, length: int = 1, scale: float = 0.0, results: int = 1) -> Tolerance:
    """The tolerance of a result of ``dtype`` whose longest sum has ``length`` terms.

    ``scale`` is the size of what was added up, usually the largest expected magnitude: sums that cancel are off by a
    share of it and not of themselves. ``results`` is how many values are judged at once.
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
