"""Two groups of runs held against each other: the ratio of their times as the verdict has it.

The one idea: a ratio is claimed where every run of both arrived; where one did not, there is no ratio, and what the
claim shows is how many reached.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from levelbench.claims.reading.run_sides import ranks_of
from levelbench.claims.view import Comparison, Side
from levelbench.measure.statistics import LogRatio, paired_log_ratio, welch_log_ratio
from levelbench.records import Comparability, RunGroup

__all__ = ["comparison_of", "interleaved"]

_PAIRED = "Student's t on the logarithms of the ratios of the times, paired by seed"
_WELCH = "Welch's t on the logarithms of the times"


def comparison_of(gate: Comparability, base_side: Side, new_side: Side) -> Comparison:
    """The second of the gate's sides against the first: time to the target, where both have two times.

    The test is the one that the verdict uses.
    """
    base, new = gate.sides.a, gate.sides.b
    before, after = (
        [run.time_to_accuracy_s for run in runs if run.time_to_accuracy_s is not None]
        for runs in (gate.sides.runs_a, gate.sides.runs_b)
    )
    # What the gate refuses has no ratio; the rules say why it should not have been compared.
    all_arrived = base.reached == base.n and new.reached == new.n and not gate.refusals
    paired = gate.sides.paired
    found = None
    if all_arrived and min(len(before), len(after)) >= 2 and min(*before, *after) > 0:
        found = (paired_log_ratio if paired else welch_log_ratio)(after, before)
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
        effect=_effect(found, paired) if found else None,
        test=(_PAIRED if paired else _WELCH) if found else None,
        quality_compared=True,
        performance_compared=True,
        where=new_side.where,
    )


def _effect(found: LogRatio, paired: bool) -> float | None:
    """The difference of the logarithms in their own standard deviations (Cohen 1988, d); ``None`` without a spread.

    Of pairs it is in the standard deviations of their differences.
    """
    deviation = found.deviation_a if paired else math.sqrt((found.deviation_a**2 + found.deviation_b**2) / 2.0)
    return math.log(found.ratio) / deviation if deviation > 0.0 and found.ratio > 0.0 else None


def interleaved(groups: Sequence[RunGroup]) -> bool:
    """Whether some run of one group began between two of another: so a drift of the machine hits them all."""
    order = sorted((run.started, at) for at, group in enumerate(groups) for run in group.runs)
    turns = sum(one[1] != other[1] for one, other in pairwise(order))
    return turns >= len(groups)
