"""Samples the latency of a call: one call a value, until there are enough values for its quantiles.

A mean over several calls has no tail, so here each value is one call, however short, and what reading the
clock costs is kept beside the values. The rest (when warm-up ends, when it is enough) is what Level 0 uses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from levelbench.measure.clocks import HOST, Clock
from levelbench.measure.loops import Timer, Work, measure_timer, time_ns
from levelbench.measure.stopping import Budget, FixedCount, Precision, SampleSoFar, StoppingRule
from levelbench.measure.warmup import find_warmup

_MOST = 50_000
_FEW = 6
_OVERRUN = 3.0


@dataclass(frozen=True, eq=False)
class Latency:
    """Raw latencies in seconds, shape (n,), after warm-up; ``warmup`` holds what came before.

    ``timer`` is what reading the clock costs: it is in each value, and not subtracted.
    """

    values: NDArray[np.float64]
    warmup: NDArray[np.float64]
    warmup_reason: str
    stopped_by: str
    timer: Timer


def enough(samples: int, precision: float, budget_s: float) -> StoppingRule:
    """``samples`` values and a median known to ``precision``, or the budget spent, or 50,000 values.

    Where a call is slow the budget is overrun up to three times for six values, from which a median has an interval.
    """
    return (FixedCount(samples) & Precision(precision)) | FixedCount(_MOST) | Budget(budget_s, _FEW, _OVERRUN)


def sample_latency(work: Work, until: StoppingRule, clock: Clock = HOST) -> Latency:
    """Call ``work``, which ends when its result is there, until ``until`` is met."""
    timer = measure_timer(clock)
    started_ns = clock.now_ns()
    values_ns: list[int] = [time_ns(work, clock)]
    while True:
        values = np.asarray(values_ns, np.float64) * 1e-9
        found = find_warmup(values)
        progress = SampleSoFar(values[found.cut :], (clock.now_ns() - started_ns) * 1e-9)
        check = until.check(progress)
        if check.met:
            return Latency(values[found.cut :], values[: found.cut], found.reason, check.text, timer)
        # At most a third more before the next look: each look is another chance to stop on a lucky agreement.
        block = min(until.more(progress), max(2, len(values) // 3))
        values_ns += [time_ns(work, clock) for _ in range(block)]
