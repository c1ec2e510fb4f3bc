"""Tests whether schedules of fixed length end at their target, on average over the runs.

The one idea: such a run cannot stop at its target, so a single end at or beyond it is partly luck; what a recipe
promises is its mean, and that is tested.
"""

from __future__ import annotations

import math

from levelbench.measure.statistics import MeanTest, reaches_on_average
from levelbench.records import RunGroup

__all__ = ["final_line", "final_test"]


def final_test(group: RunGroup) -> MeanTest | None:
    """The one-sided test that the mean final quality is at the target; ``None`` for another crossing rule.

    A run that ended in no finite quality (it diverged) has no mean with the others: nothing is shown, with p = 1.
    """
    runs = [run for run in group.runs if run.status == "done" and run.crossing == "final"]
    target = group.specification.target
    qualities = [run.quality[target.split] for run in runs if target.split in run.quality]
    if not qualities:
        return None
    if not all(map(math.isfinite, qualities)):
        return MeanTest(math.nan, 1.0 if len(qualities) > 1 else None, False, len(qualities))
    return reaches_on_average(qualities, target.threshold, target.direction)


def final_line(group: RunGroup) -> str | None:
    """The test in words."""
    found = final_test(group)
    if found is None:
        return None
    target = group.specification.target
    sign = ">=" if target.direction == "higher" else "<="
    if math.isnan(found.mean):
        what = f"{group.label}: {target.split} {target.metric} at the end is no number in one run or more of {found.n}"
        return f"{what}; {sign} {target.threshold:g} is not shown"
    mean = (
        f"{group.label}: {target.split} {target.metric} at the end is {found.mean:.4f} on average over {found.n} runs"
    )
    if found.p_value is None:
        return f"{mean}; whether that is {sign} {target.threshold:g} takes two runs or more to test"
    outcome = "shown" if found.reached else "not shown"
    return f"{mean}; {sign} {target.threshold:g} is {outcome} (one-sided t test, p = {found.p_value:.2g})"
