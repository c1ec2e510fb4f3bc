"""LB105: a part was made faster or timed alone, and the whole is said to have gained as much."""

from __future__ import annotations

import math
from collections.abc import Iterator

from levelbench.claims.rule import Finding, Rule
from levelbench.claims.rules._common import (
    Pair,
    guilty,
    is_training,
    not_stated,
    number,
    pairs,
    percent,
    seconds,
    sides,
    times,
)
from levelbench.claims.view import Claim, Side
from levelbench.measure.statistics.means import amdahl_bound

__all__ = ["rule"]

_CODE = "LB105"
_MARGIN = 1.01
"""A ratio may be over the bound by its rounding: 1 %."""


def _check(claim: Claim) -> Iterator[Finding]:
    for pair in pairs(claim):
        yield from _compared(pair)
    for field, side in sides(claim):
        if is_training(side) and side.time_s is not None:
            yield from _timed(f"{field}.clock", side, _ranks(claim, side))


def _ranks(claim: Claim, side: Side) -> int:
    return max([side.workload.ranks or 1, *(point.ranks for point in claim.scaling if point.side == side.name)])


def _bound(share: float, ratio: float | None) -> str:
    """What the whole can gain when a part of ``share`` of its time becomes ``ratio`` times faster."""
    limit = "without limit" if share >= 1.0 else f"never more than {times(amdahl_bound(math.inf, 1.0 - share))}"
    if ratio is None or not ratio >= 1.0:
        return f"the part has {percent(share)} of the time, so by Amdahl's law the whole gains {limit}"
    most = times(amdahl_bound(ratio, 1.0 - share))
    return f"the part has {percent(share)} of the time, so by Amdahl's law the whole gains {most}, and {limit}"


def _share(stated: float | None) -> float | None:
    """A share that can be one."""
    return stated if stated is not None and 0.0 <= stated <= 1.0 else None


def _compared(pair: Pair) -> Iterator[Finding]:
    comparison, share = pair.comparison, _share(pair.comparison.part_share)
    of_part = comparison.of == "kernel"
    if comparison.claimed_for == "part" or not (of_part or (share is not None and share < 1.0)) or _allowed(pair):
        return
    ratio = "a ratio" if comparison.ratio is None else f"a ratio of {number(comparison.ratio)}"
    bound = "" if share is None else f": {_bound(share, comparison.ratio)}"
    if comparison.claimed_for == "whole":
        made = "of a part is claimed for the whole" if of_part else "of the whole is claimed for a change of a part"
        do = "time whole runs to the target on both sides, and claim that ratio"
        yield guilty(_CODE, f"{pair.field}.claimed_for", f"{ratio} {made}{bound}", do, pair.where)
    elif of_part:
        what = f"whether {ratio} of a part is claimed for the part or for the whole{bound}"
        yield not_stated(_CODE, f"{pair.field}.claimed_for", what, "say that it is the part's alone", pair.where)
    if share is None:
        what = f"which share of the whole time the part has that '{comparison.new}' makes faster"
        do = "measure which share of a whole step the part has, and give it"
        yield not_stated(_CODE, f"{pair.field}.part_share", what, do, pair.where)


def _allowed(pair: Pair) -> bool:
    """Whether Amdahl's bound allows the ratio for the whole: a part's own only where the part is nearly everything."""
    share, ratio = _share(pair.comparison.part_share), pair.comparison.ratio
    if ratio is not None and ratio < 1.0:
        return True
    if share is None or ratio is None or math.isnan(ratio):
        return pair.comparison.of != "kernel"
    factor = ratio if pair.comparison.of == "kernel" else math.inf
    return share == 1.0 or ratio <= _MARGIN * amdahl_bound(factor, 1.0 - share)


def _timed(field: str, side: Side, ranks: int) -> Iterator[Finding]:
    clock = side.clock
    do = "put the whole step on the clock: input, communication, update and all"
    if clock.whole is False:
        share = _share(clock.part_share)
        bound = "" if share is None else f"; {_bound(share, None)}"
        found = f"the {seconds(side.time_s or 0.0)} of '{side.name}' is of parts of the {side.time_of} only{bound}"
        yield guilty(_CODE, f"{field}.whole", found, do, side.where, "warning")
    elif clock.whole is None and clock.policy is None:
        what = f"whether the time of '{side.name}' is of the whole {side.time_of} or of parts"
        yield not_stated(_CODE, f"{field}.whole", what, do, side.where)
    if clock.communication is False and ranks > 1:
        found = f"communication is not on the clock of '{side.name}', which has up to {ranks:,} ranks"
        yield guilty(_CODE, f"{field}.communication", found, do, side.where)


rule = Rule(
    code=_CODE,
    name="kernels-only",
    way=5,
    why="A part that becomes faster makes the whole faster by no more than the part's share of it.",
    point=(
        "Layers, all-reduces and updates look their best alone: nothing waits for them, nothing is in their way, and "
        "no one can ask for the accuracy of a convolution. Ten times faster there sounds like ten times faster."
    ),
    practice=(
        "Measure the part's share of a whole step and print the bound that it sets: with a share f made r times "
        "faster, the whole gains 1 / ((1 - f) + f / r) (Amdahl 1967), never more than 1 / (1 - f). Then time the "
        "whole, and claim that."
    ),
    bad="Our all-reduce is 5 times faster, so training is 5 times faster.",
    good="The all-reduce has 30 % of a step and is 5 times faster; bound 1.32 times, measured 1.27 [1.25, 1.29] times.",
    source="Hoefler, Twelve ways (2018), 5; Amdahl 1967; Hoefler & Belli, SC15, rule 2",
    reads=(
        "comparisons[].of",
        "comparisons[].claimed_for",
        "comparisons[].part_share",
        "comparisons[].ratio",
        "sides[].clock.whole",
        "sides[].clock.part_share",
        "sides[].clock.communication",
        "sides[].workload.ranks",
    ),
    blind=(
        "The share is the author's. A part that makes another part slower (a faster layer that needs another memory "
        "layout) is seen only when the whole is timed."
    ),
    check=_check,
)
