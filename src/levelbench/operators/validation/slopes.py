"""How fast each output moves along a direction, by central differences, and which outputs have a kink there.

The one idea: every output is judged by itself. Halving a step quarters the disagreement of differences where a function
is smooth; where it has a kink, the slopes to the left and to the right go on disagreeing, and that output is left out
of the comparison instead of the whole point. Differences at h and h / 2 are extrapolated (Richardson 1911), so a step
may be large enough to keep rounding out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.operators.validation.tolerances import unit_roundoff

__all__ = ["Evaluate", "Line", "best_line", "line", "noise", "precision_of"]

Flat = NDArray[np.float64]
Evaluate = Callable[[NDArray[Any]], Flat]
"""All floating-point outputs as one float64 vector, for one input that is moved."""

_NOISE_POINTS = 10
# Of fourth differences of independent noise: its variance is (2k)! / (k!)² times that of the noise, k = 4 (Moré and
# Wild, "Estimating Computational Noise", SIAM J. Sci. Comput. 33, 2011, section 3).
_FOURTH = 70.0
_ROUNDINGS = 4


@dataclass(frozen=True)
class Precision:
    """Steps (shares of the input's size) to try, and shares of a slope, for a dtype of inputs."""

    steps: tuple[float, ...]
    kink: float
    rtol: float


def precision_of(dtype: Any) -> Precision:
    """float64 sees one part in 10^6, float32 one in 500, the half precisions one in 15."""
    bits = np.dtype(dtype).itemsize
    if bits >= 8:
        return Precision((1e-4, 1e-6, 1e-3), 1e-8, 1e-6)
    if bits == 4:
        return Precision((2e-2, 3e-3, 6e-2), 1e-3, 2e-3)
    return Precision((0.12, 0.25), 3e-2, 6e-2)


@dataclass(frozen=True)
class Line:
    """What was found along ``direction`` at ``base``: the slope of each output, and which of them can be used.

    ``kinked`` outputs have a slope to the ``left`` and another to the ``right``; ``edge`` ones are defined at the base
    and not at both sides of it. ``error`` is what differences at two steps disagree by, ``rounding`` what rounding may
    have moved a slope by.
    """

    base: NDArray[Any]
    direction: Flat
    slopes: Flat
    usable: NDArray[np.bool_]
    kinked: NDArray[np.bool_]
    edge: NDArray[np.bool_]
    left: Flat
    right: Flat
    error: Flat
    rounding: Flat
    step: float

    @property
    def share(self) -> float:
        """The share of outputs defined at the base that can be used."""
        defined = int(np.isfinite(self.rounding).sum())
        return float(self.usable.sum()) / defined if defined else 0.0


def _grid(x: NDArray[Any], move: Flat) -> tuple[NDArray[Any], Flat]:
    """Base and move such that base + k move is a number of the dtype for k = -4 ... 4: what is rounded is no slope."""
    if x.dtype.itemsize >= 8:
        return x, move
    roundoff = 2 * unit_roundoff(x.dtype)
    wide = x.astype(np.float64)
    largest = np.abs(wide) + 4 * np.abs(move)
    exponent = np.floor(np.log2(np.where(largest > 0, largest, 1.0)))
    unit = roundoff * 2.0 ** (exponent + 1)
    base = (np.round(wide / unit) * unit).astype(x.dtype)
    return base, np.round(move / unit) * unit


def _rms(values: Flat) -> float:
    """The root of the mean square of the finite ones, without overflow on the way."""
    finite = values[np.isfinite(values)]
    largest = float(finite.max(initial=0.0))
    return largest * float(np.sqrt(np.mean(np.square(finite / largest)))) if largest > 0 else 0.0


def line(evaluate: Evaluate, x: NDArray[Any], direction: Flat, step: float) -> Line:
    """The outputs' slopes along ``direction`` at ``x``, by steps h, h / 2 and h / 4 with h = ``step``."""
    limits = precision_of(x.dtype)
    base, move = _grid(x, direction * (step / 4))
    wide = base.astype(np.float64)
    values = {k: evaluate((wide + k * move).astype(x.dtype)) for k in (-4, -2, -1, 0, 1, 2, 4)}
    middle = values[0]
    defined = np.isfinite(middle)
    size = np.abs(np.where(defined, middle, 0.0))
    # Where all outputs are zero (a product with zero factors), their size is seen a whole step away.
    typical = _rms(size) or _rms(np.abs(evaluate((wide + direction).astype(x.dtype))))
    noise_level = _ROUNDINGS * unit_roundoff(x.dtype) * (size + typical) + 1e-300
    h = step
    with np.errstate(all="ignore"):
        central = {k: (values[k] - values[-k]) / (2 * h * k / 4) for k in (4, 2, 1)}
        bend = {k: np.abs(values[k] - 2 * middle + values[-k]) / (h * k / 4) for k in (4, 1)}
        finite = defined & np.isfinite(central[4]) & np.isfinite(central[2]) & np.isfinite(central[1])
        first, second = (4 * central[2] - central[4]) / 3, (4 * central[1] - central[2]) / 3
        slopes = np.where(finite, second, 0.0)
        steep = np.abs(np.where(finite, central[2], 0.0))
        common = float(np.sqrt(np.mean(np.square(steep)))) if steep.size else 0.0
        rounding = np.where(defined, noise_level / h, np.inf)
        threshold = limits.kink * np.maximum(common, steep) + 16 * rounding
        far, near = np.abs(central[4] - central[2]), np.abs(central[2] - central[1])
        rough = (bend[1] > threshold) & (bend[1] > 0.4 * bend[4])
        rough |= (near > threshold) & (near > 0.5 * far) | (np.abs(first - second) > threshold)
        kinked = finite & rough & (np.abs(bend[1] - bend[4]) < 0.2 * bend[4])
        left, right = (middle - values[-1]) / (h / 4), (values[1] - middle) / (h / 4)
    return Line(
        base,
        move * (4 / step),
        slopes,
        finite & ~rough,
        kinked,
        defined & ~finite,
        left,
        right,
        np.where(finite, np.abs(first - second), 0.0),
        rounding,
        step,
    )


def best_line(evaluate: Evaluate, x: NDArray[Any], direction: Flat) -> Line:
    """The line at the first step that leaves nothing out, else that which leaves out least."""
    found: list[Line] = []
    for step in precision_of(x.dtype).steps[:2]:
        found.append(line(evaluate, x, direction, step))
        if found[-1].share >= 1:
            break
    return max(found, key=lambda each: each.share)


def noise(evaluate: Callable[[NDArray[Any]], float], x: NDArray[Any], direction: Flat, spacing: float) -> float:
    """The standard deviation of a scalar function's computational noise along ``direction``, by fourth differences."""
    wide = x.astype(np.float64)
    values = np.array([evaluate((wide + k * spacing * direction).astype(x.dtype)) for k in range(_NOISE_POINTS)])
    return float(np.sqrt(np.mean(np.square(np.diff(values, 4))) / _FOURTH))
