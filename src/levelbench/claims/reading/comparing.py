"""Two groups of runs held against each other: the ratio of their times as the verdict has it.

The one idea: a ratio is claimed where every run of both arrived; where one did not, there is no ratio, and what the
claim shows is how many reached.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from levelbench.claims.reading.run_sides import ranks_of, times_of
from levelbench.claims.view import Comparison, Side
from levelbench.measure.statistics import LogRatio, welch_log_ratio
from levelbench.records import RunGroup

__all__ = ["comparison_of", "interleaved"]


def comparison_of(base: RunGroup, base_side: Side, new: RunGroup, new_side: Side) -> Comparison:
    """``new`` against ``base``: time to the target, with Welch's t on the logarithms where both have two times."""
    before, after = times_of(base), times_of(new)
    all_arrived = base.reached == base.n and new.reached == new.n
    found = None
    if all_arrived and min(len(before), len(after)) >= 2 and min(*before, *after) > 0:
        found = welch_log_ratio(after, before)
    ratio = found.ratio if found else None
    if ratio is None and all_arrived and base_side.time_s and new_side.time_s:
        ratio = base_side.time_s / new_side.time_s
    same_scale = ranks_of(base) == ranks_of(new)
    return Comparison(
        new=new_side.name,
        base=base_side.name,
        of="target",
        ratio=ratio,
        interval=(found.interval.low, found.interval.high) if found and math.isfinite(found.interval.high) else None,
        base_time_s=base_side.time_s,
        base_kind="same-scale" if same_scale else "one-process" if ranks_of(base) == 1 else None,
        p_value=found.p_value if found else None,
        effect=_effect(found) if found else None,
        test="Welch's t on the logarithms of the times" if found else None,
        quality_compared=True,
        performance_compared=True,
        where=new_side.where,
    )


def _effect(found: LogRatio) -> float | None:
    """The difference of the logarithms in their own standard deviations (Cohen 1988, d); ``None`` without a spread."""
    deviation = math.sqrt((found.deviation_a**2 + found.deviation_b**2) / 2.0)
    return math.log(found.ratio) / deviation if deviation > 0.0 and found.ratio > 0.0 else None


def interleaved(groups: Sequence[RunGroup]) -> bool:
    """Whether some run of one group began between two of another: so a drift of the machine hits them all."""
    order = sorted((run.started, at) for at, group in enumerate(groups) for run in group.runs)
    turns = sum(one[1] != other[1] for one, other in pairwise(order))
    return turns >= len(groups)
