"""LB105: only a part was made faster or timed, but the whole is said to have gained as much."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import (
    ComparedPair,
    claimed,
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
from levelbench.measure.statistics.values import amdahl_bound

_MARGIN = 1.01
"""A ratio may exceed the bound by rounding: 1 %."""


def _check(claim: Claim) -> Iterator[Diagnostic]:
    for pair in pairs(claim):
        yield from _compared(pair)
    asked = {side.name for _, side in claimed(claim) if side.time_of == "step"}
    for field, side in sides(claim):
        if is_training(side) and side.time_s is not None:
            yield from _timed(f"{field}.clock", side, _ranks(claim, side), side.name in asked)


def _ranks(claim: Claim, side: Side) -> int:
    return max([side.workload.ranks or 1, *(point.ranks for point in claim.scaling if point.side == side.name)])


def _bound(share: float, ratio: float | None) -> str:
    """What the whole gains at most if a part with ``share`` of its time becomes ``ratio`` times faster."""
    limit = "without limit" if share >= 1.0 else f"never more than {times(amdahl_bound(math.inf, 1.0 - share))}"
    if ratio is None or not ratio >= 1.0:
        return f"the part takes {percent(share)} of the time, so by Amdahl's law the whole gains {limit}"
    most = times(amdahl_bound(ratio, 1.0 - share))
    return f"the part takes {percent(share)} of the time, so by Amdahl's law the whole gains {most}, and {limit}"


def _share(stated: float | None) -> float | None:
    """The share if it is a possible one, else ``None``."""
    return stated if stated is not None and 0.0 <= stated <= 1.0 else None


def _compared(pair: ComparedPair) -> Iterator[Diagnostic]:
    comparison, share = pair.comparison, _share(pair.comparison.part_share)
    of_part = comparison.of == "kernel"
    if comparison.claimed_for == "part" or not (of_part or (share is not None and share < 1.0)) or _allowed(pair):
        return
    ratio = "a ratio" if comparison.ratio is None else f"a ratio of {number(comparison.ratio)}"
    bound = "" if share is None else f": {_bound(share, comparison.ratio)}"
    if comparison.claimed_for == "whole":
        made = "of a part is claimed for the whole" if of_part else "of the whole is claimed for a change of a part"
        do = "time whole runs to the target on both sides, and claim that ratio"
        yield guilty(f"{pair.field}.claimed_for", f"{ratio} {made}{bound}", do, pair.where)
    elif of_part:
        what = f"whether {ratio} of a part is claimed for the part or for the whole{bound}"
        yield not_stated(f"{pair.field}.claimed_for", what, "say that it is the part's alone", pair.where)
    if share is None:
        what = f"which share of the whole time is taken by the part that '{comparison.new}' makes faster"
        do = "measure the part's share of a whole step, and give it"
        yield not_stated(f"{pair.field}.part_share", what, do, pair.where)


def _allowed(pair: ComparedPair) -> bool:
    """Whether Amdahl's bound allows the ratio for the whole: for a part's ratio, the part must be nearly all."""
    share, ratio = _share(pair.comparison.part_share), pair.comparison.ratio
    if ratio is not None and ratio < 1.0:
        return True
    if share is None or ratio is None or math.isnan(ratio):
        return pair.comparison.of != "kernel"
    factor = ratio if pair.comparison.of == "kernel" else math.inf
    return share == 1.0 or ratio <= _MARGIN * amdahl_bound(factor, 1.0 - share)


def _timed(field: str, side: Side, ranks: int, asked: bool) -> Iterator[Diagnostic]:
    """``asked``: its name does not say that the whole is timed, as that of a run, an epoch or a time to a target."""
    clock = side.clock
    do = "put the whole step on the clock, with input, communication and update"
    if clock.whole is False:
        share = _share(clock.part_share)
        bound = "" if share is None else f"; {_bound(share, None)}"
        found = f"the {seconds(side.time_s or 0.0)} of '{side.name}' covers only parts of the {side.time_of}{bound}"
        yield guilty(f"{field}.whole", found, do, side.where, "warning")
    elif clock.whole is None and clock.policy is None and asked:
        what = f"whether the time of '{side.name}' covers the whole {side.time_of} or only parts"
        yield not_stated(f"{field}.whole", what, do, side.where)
    if clock.communication is False and ranks > 1:
        found = f"communication is not on the clock of '{side.name}', which has up to {ranks:,} ranks"
        yield guilty(f"{field}.communication", found, do, side.where)


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
