"""The error function, which NumPy has not: rational approximations, accurate to a few units in the last place.

The one idea: float32 takes one rational function of x² over the whole range, because selecting elements costs more than
computing them; float64 takes one of three by the size of x: up to 1 that of Cephes (S. L. Moshier, Methods and Programs
for Mathematical Functions, 1989), then Cody's (W. J. Cody, Rational Chebyshev approximations for the error function,
Mathematics of Computation 23, 1969) of its complement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.frameworks.numpy.operators.numeric import Array

__all__ = ["erf", "erf_slope"]

# erf(x) = x P(x²) / Q(x²) for |x| <= 3.92, and 1 in float32 at the limit: minimax in the relative error, 2.9e-8.
# The rounding of its steps adds up to 6 units in the last place, near 1.
_P = (1.1283791, 0.1903055, 0.052734725, 0.0037605721, 0.00028461782, 2.0491518e-06)
_Q = (1.0, 0.50198674, 0.11406643, 0.014960049, 0.0011609852, 3.8067577e-05)
_LIMIT = 3.94

# Constant term first.
_NEAR_P = (
    5.55923013010394962768e4,
    7.00332514112805075473e3,
    2.23200534594684319226e3,
    9.00260197203842689217e1,
    9.60497373987051638749e0,
)
_NEAR_Q = (
    4.92673942608635921086e4,
    2.26290000613890934246e4,
    4.59432382970980127987e3,
    5.21357949780152679795e2,
    3.35617141647503099647e1,
    1.0,
)
_MIDDLE_P = (
    1.23033935479799725e03,
    2.05107837782607147e03,
    1.71204761263407058e03,
    8.81952221241769090e02,
    2.98635138197400131e02,
    6.61191906371416295e01,
    8.88314979438837594e00,
    5.64188496988670089e-1,
    2.15311535474403846e-8,
)
_MIDDLE_Q = (
    1.23033935480374942e03,
    3.43936767414372164e03,
    4.36261909014324716e03,
    3.29079923573345963e03,
    1.62138957456669019e03,
    5.37181101862009858e02,
    1.17693950891312499e02,
    1.57449261107098347e01,
    1.0,
)
_FAR_P = (
    6.58749161529837803e-4,
    1.60837851487422766e-2,
    1.25781726111229246e-1,
    3.60344899949804439e-1,
    3.05326634961232344e-1,
    1.63153871373020978e-2,
)
_FAR_Q = (
    2.33520497626869185e-3,
    6.05183413124413191e-2,
    5.27905102951428412e-1,
    1.87295284992346725e00,
    2.56852019228982242e00,
    1.0,
)
_NEAR, _MIDDLE, _FAR = 1.0, 4.0, 6.0
_INVERSE_ROOT_PI = 0.5641895835477563


def erf(out: Array, x: Array) -> None:
    """Fill ``out`` with 2/sqrt(pi) times the integral of exp(-t²) from 0 to x; float32 or float64, flat."""
    if x.dtype == np.float32:
        _erf_float32(out, x)
    else:
        out[...] = _erf_float64(x)


def erf_slope(x: Array) -> Array:
    """The derivative of erf, 2/sqrt(pi) exp(-x²)."""
    slope: Array = np.multiply(x, x)
    np.negative(slope, out=slope)
    np.exp(slope, out=slope)
    slope *= x.dtype.type(2 * _INVERSE_ROOT_PI)
    return slope


def _horner(coefficients: Sequence[float], x: NDArray[np.float64]) -> NDArray[Any]:
    result = x * coefficients[-1]
    for each in coefficients[-2:0:-1]:
        result += each
        result *= x
    result += coefficients[0]
    return result


def _estrin(coefficients: Sequence[float], x: Array, square: Array) -> Array:
    """A polynomial of degree 5 by pairs of powers: fewer roundings follow each other than in Horner's scheme."""
    c0, c1, c2, c3, c4, c5 = (np.float32(each) for each in coefficients)
    result: Array = x * c5
    result += c4
    result *= square
    pair = x * c3
    pair += c2
    result += pair
    result *= square
    np.multiply(x, c1, out=pair)
    pair += c0
    result += pair
    return result


def _erf_float32(out: Array, x: Array) -> None:
    limited = np.clip(x, np.float32(-_LIMIT), np.float32(_LIMIT))
    square = limited * limited
    fourth = square * square
    np.multiply(limited, _estrin(_P, square, fourth), out=out)
    out /= _estrin(_Q, square, fourth)
    np.clip(out, np.float32(-1), np.float32(1), out=out)


def _erf_float64(x: NDArray[np.float64]) -> NDArray[Any]:
    size = np.abs(x)
    # All elements first take the formula of small ones: it leaves NaN as it is.
    result = np.minimum(size, _NEAR)
    result = np.copysign(result, x)
    square = result * result
    result *= _horner(_NEAR_P, square) / _horner(_NEAR_Q, square)
    result[size > _MIDDLE] = 1.0
    middle = np.flatnonzero((size > _NEAR) & (size <= _MIDDLE))
    if middle.size:
        y = size[middle]
        result[middle] = 1.0 - _gaussian(y) * (_horner(_MIDDLE_P, y) / _horner(_MIDDLE_Q, y))
    far = np.flatnonzero((size > _MIDDLE) & (size < _FAR))
    if far.size:
        y = size[far]
        square = 1.0 / (y * y)
        ratio = square * _horner(_FAR_P, square) / _horner(_FAR_Q, square)
        result[far] = 1.0 - _gaussian(y) * (_INVERSE_ROOT_PI - ratio) / y
    return np.copysign(result, x)


def _gaussian(y: NDArray[np.float64]) -> NDArray[Any]:
    """exp(-y²), with y² split so that its rounding is not magnified: y = h + (y - h), h a multiple of 1/16."""
    coarse = np.floor(y * 16.0) / 16.0
    return np.exp(-coarse * coarse) * np.exp(-(y - coarse) * (y + coarse))
