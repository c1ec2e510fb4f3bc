"""Summary means, and what each may be used for.

The mean follows from the unit. Costs (seconds, joules) are added, so their mean is arithmetic; rates
(flop/s, samples/s) share a fixed amount of work, so theirs is harmonic; ratios have no sum, so theirs, if there must
be one, is geometric (Hoefler & Belli, SC15, rules 3 and 4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from levelbench.measure.statistics.values import finite, positive


def arithmetic_mean(costs: Sequence[float]) -> float:
    """The mean of costs: seconds, joules, bytes. Not for rates or ratios."""
    vector = finite(costs)
    return math.fsum(vector) / len(vector)


def harmonic_mean(rates: Sequence[float]) -> float:
    """The mean of rates over equal amounts of work: the total work by the total time. All rates must be above zero."""
    vector = positive(rates)
    return len(vector) / math.fsum(1.0 / vector)


def geometric_mean(ratios: Sequence[float]) -> float:
    """The mean of ratios, and of nothing else: average the costs behind them wherever they are known."""
    vector = positive(ratios)
    return math.exp(math.fsum(math.log(ratio) for ratio in vector) / len(vector))


def coefficient_of_variation(values: Sequence[float], ddof: int = 1) -> float:
    """Standard deviation by mean, with ``n - ddof`` in the variance. The mean must not be zero."""
    vector = finite(values, ddof + 1)
    mean = arithmetic_mean(values)
    if mean == 0.0:
        raise ValueError("the coefficient of variation of a mean of zero is not defined")
    return float(vector.std(ddof=ddof)) / abs(mean)


def amdahl_bound(p: float, serial_share: float) -> float:
    """The greatest speed-up on ``p`` processors when ``serial_share`` of the work cannot be shared (Amdahl 1967)."""
    if p < 1 or not 0.0 <= serial_share <= 1.0:
        raise ValueError(f"{p} processors with a serial share of {serial_share}")
    return 1.0 / (serial_share + (1.0 - serial_share) / p)


def olympic_mean(times: Sequence[float | None], drop: int = 1) -> float | None:
    """MLPerf Training's score: drop the ``drop`` fastest and slowest runs, average the others.

    ``None`` is a run that did not converge: it counts as slower than any other. More than ``drop`` of them, or no run
    left after dropping, make the result invalid: ``None``.
    """
    if drop < 0:
        raise ValueError(f"{drop} runs cannot be dropped")
    done = sorted(float(time) for time in finite([time for time in times if time is not None], 0))
    failed = len(times) - len(done)
    kept = done[drop : len(times) - drop]
    if failed > drop or not kept:
        return None
    return math.fsum(kept) / len(kept)
