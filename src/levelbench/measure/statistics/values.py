"""What a statistic returns: an interval, and an estimate that carries one.

A number without its spread, its level and the name of the method is not a result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RANGE = "lowest to highest"
"""The method of an interval that is only the extremes of two to five values."""

_LEAST_P = 0.001

Vector = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True)
class Interval:
    """A confidence interval. An open end is infinite; ``level`` is nominal (0.95), ``method`` says how it was made."""

    low: float
    high: float
    level: float
    method: str

    @property
    def width(self) -> float:
        """``high - low``, in the unit of the values."""
        return self.high - self.low

    @property
    def is_range(self) -> bool:
        """Whether its ends are the lowest and the highest value, of too few for an interval."""
        return self.method == RANGE

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Estimate:
    """A value, its interval (``None`` if the sample allows none), the sample size and the statistic's name."""

    value: float
    interval: Interval | None
    n: int
    statistic: str


def finite(values: Sequence[float], least: int = 1) -> Vector:
    """``values`` as a vector of float64; ``ValueError`` below ``least`` of them or if one is not finite."""
    vector = np.asarray(values, dtype=np.float64).reshape(-1)
    if len(vector) < least:
        raise ValueError(f"{len(vector)} values, but {least} or more are needed")
    if not np.isfinite(vector).all():
        raise ValueError("the values must be finite")
    return vector


def positive(values: Sequence[float], least: int = 1) -> Vector:
    """Like :func:`finite`, and ``ValueError`` if a value is not above zero."""
    vector = finite(values, least)
    if not (vector > 0).all():
        raise ValueError("the values must be above zero")
    return vector


def watched(values: Sequence[float]) -> Vector:
    """Give-up times as a vector: above zero, infinite for a run that could never have arrived; else ``ValueError``."""
    vector = np.asarray(values, dtype=np.float64).reshape(-1)
    # NaN is not above zero either, so it is refused here as well.
    if not (vector > 0).all():
        raise ValueError("the give-up values must be above zero")
    return vector


def exponential(logarithm: float) -> float:
    """The number with this natural ``logarithm``; infinite (an open end) if it is too large for a float."""
    return math.exp(logarithm) if logarithm < 709.0 else math.inf


def check_share(name: str, value: float) -> float:
    """``value`` if it lies strictly between 0 and 1, else ``ValueError``."""
    if not (math.isfinite(value) and 0.0 < value < 1.0):
        raise ValueError(f"{name} must lie between 0 and 1, not {value}")
    return value


def arithmetic_mean(costs: Sequence[float]) -> float:
    """The mean of costs: seconds, joules, bytes. Not for rates or ratios."""
    vector = finite(costs)
    return math.fsum(vector) / len(vector)


def harmonic_mean(rates: Sequence[float]) -> float:
    """The mean of rates over equal amounts of work: total work by total time. All rates must be above zero."""
    vector = positive(rates)
    return len(vector) / math.fsum(1.0 / vector)


def geometric_mean(ratios: Sequence[float]) -> float:
    """The mean of ratios, and of nothing else: if the costs behind them are known, average those."""
    vector = positive(ratios)
    return math.exp(math.fsum(math.log(ratio) for ratio in vector) / len(vector))


def coefficient_of_variation(values: Sequence[float], ddof: int = 1) -> float:
    """Standard deviation by mean, with ``n - ddof`` in the variance. The mean must not be zero."""
    vector = finite(values, ddof + 1)
    mean = arithmetic_mean(values)
    if mean == 0.0:
        raise ValueError("the coefficient of variation of a mean of zero is not defined")
    return float(vector.std(ddof=ddof)) / abs(mean)


def p_text(p_value: float) -> str:
    """``p = 0.012``; below a thousandth ``p < 0.001``, where the number depends on the tail of a distribution."""
    return f"p = {p_value:.2g}" if p_value >= _LEAST_P or math.isnan(p_value) else f"p < {_LEAST_P:g}"


def amdahl_bound(p: float, serial_share: float) -> float:
    """The greatest speed-up on ``p`` processors when ``serial_share`` of the work cannot be shared (Amdahl 1967)."""
    if p < 1 or not 0.0 <= serial_share <= 1.0:
        raise ValueError(f"{p} processors with a serial share of {serial_share}")
    return 1.0 / (serial_share + (1.0 - serial_share) / p)


def olympic_mean(times: Sequence[float | None], drop: int = 1) -> float | None:
    """MLPerf Training's score: drop the ``drop`` fastest and slowest runs, average the others.

    ``None`` is a run that did not converge: it counts as slower than any other. With more than ``drop`` of them, or no
    run left after dropping, the result is invalid: ``None``.
    """
    if drop < 0:
        raise ValueError(f"{drop} runs cannot be dropped")
    done = sorted(float(time) for time in finite([time for time in times if time is not None], 0))
    failed = len(times) - len(done)
    kept = done[drop : len(times) - drop]
    if failed > drop or not kept:
        return None
    return math.fsum(kept) / len(kept)
