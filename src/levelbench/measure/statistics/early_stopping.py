"""How many queries a latency percentile needs, and what a run that stopped early may claim (MLPerf Inference).

With n queries, t of them late, the share of late queries is under 1 - p with confidence c as soon as
P(Bin(n, 1 - p) <= t) <= 1 - c. So a run can report the latency that remains after discarding the t - 1 largest, for the
largest such t, or prove a bound that was set in advance. The number of queries need not be planned; it is only tested
at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from levelbench.measure.statistics.distributions import binomial_cdf
from levelbench.measure.statistics.intervals import largest
from levelbench.measure.statistics.values import check_share

CONFIDENCE: Final = 0.99
_MOST_QUERIES: Final = 2**53

Latencies = NDArray[np.int64] | NDArray[np.float64] | Sequence[int] | Sequence[float]


@dataclass(frozen=True)
class StreamEstimate:
    """What single-stream and multi-stream report: an upper limit of the ``quantile``, at ``confidence``.

    ``discarded`` is the number of largest latencies that were left out; ``value`` is the largest that remains, in the
    unit of the latencies, or ``None`` if there were fewer than ``needed`` queries.
    """

    quantile: float
    confidence: float
    queries: int
    needed: int
    discarded: int
    value: float | None

    @property
    def passed(self) -> bool:
        """Whether there were enough queries to claim anything."""
        return self.value is not None


@dataclass(frozen=True)
class BoundTest:
    """What the server scenario tests: whether at most a share 1 - ``quantile`` is late, at ``confidence``.

    ``more`` is the number of further queries, none of them late, after which the answer would be yes; 0 if it is yes.
    """

    quantile: float
    confidence: float
    queries: int
    late: int
    more: int

    @property
    def passed(self) -> bool:
        """Whether the bound is proved."""
        return self.more == 0


@lru_cache(maxsize=4096)
def queries_needed(late: int, quantile: float, confidence: float = CONFIDENCE, tolerance: float = 0.0) -> int:
    """The least n with P(Bin(n, 1 - quantile + tolerance) <= late) <= 1 - confidence: LoadGen's h(t) + t.

    ``late`` is the number t of queries over the bound. For the 90th percentile 44 with none late, 64 with one; for the
    99th 459 and 662. MLPerf Inference rules, appendix "Early stopping"; LoadGen's ``MinPassingQueriesFinder``.
    """
    share = _late_share(quantile, confidence, tolerance)
    if late < 0:
        raise ValueError(f"the number of late queries cannot be below zero, as {late} is")
    low = high = late + 1
    while not _proved(high, late, share, confidence):
        low, high = high + 1, 2 * high
        if high > _MOST_QUERIES:
            raise ValueError(f"no number of queries proves the quantile {quantile} with {late} of them late")
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _proved(middle, late, share, confidence) else (middle + 1, high)
    return low


def least_queries(quantile: float, confidence: float = CONFIDENCE) -> int:
    """The least number of queries for a :func:`stream_estimate`: 64, 662 and 6636 for 0.9, 0.99 and 0.999."""
    return queries_needed(1, quantile, confidence)


@lru_cache(maxsize=1024)
def allowed_late(queries: int, quantile: float, confidence: float = CONFIDENCE, tolerance: float = 0.0) -> int | None:
    """The largest number of late queries among ``queries`` with which the quantile is proved, ``None`` if not even 0.

    One bisection over at most ``queries`` values: milliseconds for ten million.
    """
    share = _late_share(quantile, confidence, tolerance)
    if queries < 1 or not _proved(queries, 0, share, confidence):
        return None
    return largest(lambda late: _proved(queries, late, share, confidence), queries - 1)


def stream_estimate(latencies: Latencies, quantile: float, confidence: float = CONFIDENCE) -> StreamEstimate:
    """The early-stopping estimate of a latency quantile, as LoadGen reports it for single- and multi-stream.

    With t the largest number of late queries that ``n`` allow (t >= 1), the value is ``sorted[n - t]``: it would be
    proved as a bound even if all t largest exceeded it. The confidence holds for independent queries.
    """
    ordered = np.sort(np.asarray(latencies).reshape(-1))
    queries, needed = len(ordered), least_queries(quantile, confidence)
    if queries < needed:
        return StreamEstimate(quantile, confidence, queries, needed, 0, None)
    late = allowed_late(queries, quantile, confidence) or 1
    return StreamEstimate(quantile, confidence, queries, needed, late - 1, float(ordered[queries - late]))


def bound_test(
    latencies: Latencies, bound: float, quantile: float, confidence: float = CONFIDENCE, tolerance: float = 0.0
) -> BoundTest:
    """Whether ``latencies`` prove that their ``quantile`` is at most ``bound`` (same unit), as for LoadGen's server."""
    values = np.asarray(latencies).reshape(-1)
    late = int(np.count_nonzero(values > bound))
    needed = queries_needed(late, quantile, confidence, tolerance)
    return BoundTest(quantile, confidence, len(values), late, max(0, needed - len(values)))


def nearest_rank(ordered: Latencies, quantile: float) -> float:
    """LoadGen's percentile: ``ordered[floor(n * quantile)]`` of ascending values, without interpolation."""
    check_share("the quantile", quantile)
    if len(ordered) == 0:
        raise ValueError("a percentile needs one or more values, but there are none")
    return float(ordered[int(len(ordered) * quantile)])


def _proved(queries: int, late: int, share: float, confidence: float) -> bool:
    return binomial_cdf(late, queries, share) <= 1.0 - confidence


def _late_share(quantile: float, confidence: float, tolerance: float) -> float:
    check_share("the confidence", confidence)
    return check_share("the share of late queries", 1.0 - check_share("the quantile", quantile) + tolerance)
