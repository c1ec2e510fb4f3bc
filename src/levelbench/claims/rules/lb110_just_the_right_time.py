"""LB110: the time to stop was chosen so that what comes after it, or does not come, stays hidden."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import direction_of, guilty, not_stated, number, pairs, seconds, sides
from levelbench.claims.rules._runs import Seen, curves_of
from levelbench.claims.view import Claim, ScalingPoint, Side
from levelbench.report.numbers import plural

_TO_TARGET = "train to the target and compare the times until it was reached"
_GO_ON = "continue for some evaluations after the target, or fix the length in advance and judge the last evaluation"
_BY_SAMPLES = "also draw quality over samples (or epochs, or operations), for all sides, to the end of every run"
_SAME = 0.01
_CUT = 0.8
_SEVERAL = 3
"""The runs that an Olympic mean needs, which drops the fastest and the slowest."""
_FALLEN = 0.25
"""Share of the whole improvement that a curve may lose before it counts as diverging."""


def _check(claim: Claim) -> Iterator[Diagnostic]:
    for field, side in sides(claim):
        yield from _fixed_time(field, side, claim)
        yield from _curves(field, side)
    yield from _equal_times(claim)
    for name in dict.fromkeys(point.side for point in claim.scaling):
        yield from _scaling([(at, point) for at, point in enumerate(claim.scaling) if point.side == name])
    yield from _figures(claim)


def _fixed_time(field: str, side: Side, claim: Claim) -> Iterator[Diagnostic]:
    """A time limit is sound if runs reach their target before it, or if the other runs are shown."""
    limit = side.clock.fixed_time_s
    # To repeat a step or a call for a minute is how its time is measured.
    if limit is None or side.time_of in {"epoch", "step", "call"}:
        return
    if side.runs_reached is not None or any(run.reached is not None for run in side.runs):
        return
    named = [each for each in claim.comparisons if side.name in {each.new, each.base}]
    if named and all(each.of == "quality" for each in named):
        return
    at_limit = side.time_s is not None and abs(side.time_s / limit - 1.0) <= _SAME if limit else False
    found = f"every run of '{side.name}' was ended after {seconds(limit)}, whatever it had reached"
    if side.time_of == "target" and at_limit:
        yield guilty(f"{field}.clock.fixed_time_s", found, _TO_TARGET, side.where)
    elif side.time_of == "target":
        what = f"how many runs of '{side.name}' reached the target before they were ended after {seconds(limit)}"
        yield not_stated(f"{field}.runs_reached", what, "give the runs made and the runs that reached it")
    else:
        yield guilty(f"{field}.clock.fixed_time_s", found, _TO_TARGET, side.where, "warning")


def _equal_times(claim: Claim) -> Iterator[Diagnostic]:
    """Two whole runs of equal duration, compared by how much they did in it."""
    for pair in pairs(claim):
        new, base, of = pair.new, pair.base, pair.comparison.of
        if of not in {"throughput", "operations"} or pair.comparison.quality_compared:
            continue
        if not new.time_s or not base.time_s or (new.time_of, base.time_of) != ("run", "run"):
            continue
        fixed = new.clock.fixed_time_s is not None or base.clock.fixed_time_s is not None
        if fixed or abs(new.time_s / base.time_s - 1.0) > _SAME or (new.runs_reached and base.runs_reached):
            continue
        found = f"'{new.name}' and '{base.name}' both ran for {seconds(new.time_s)} and are compared by {of}"
        yield guilty(f"{pair.field}.of", found, _TO_TARGET, pair.where, "warning")


def _scaling(points: list[tuple[int, ScalingPoint]]) -> Iterator[Diagnostic]:
    fixed = [(at, point) for at, point in points if point.fixed_time]
    if fixed:
        at, point = fixed[0]
        ranks = ", ".join(str(each.ranks) for _, each in fixed)
        length = "" if point.time_s is None else f" of {seconds(point.time_s)}"
        found = f"'{point.side}' on {ranks} ranks ran for a fixed wall time{length}: more ranks do more work in it"
        yield guilty(f"scaling[{at}].fixed_time", found, _TO_TARGET, point.where)
        return
    open_ = [(at, each) for at, each in points if each.time_s and each.fixed_time is None and not each.reached]
    lengths = [each.time_s or 0.0 for _, each in open_]
    rates = [each.throughput for _, each in open_ if each.throughput is not None]
    if len({each.ranks for _, each in open_}) < 3 or len(rates) < len(open_) or max(lengths) < 60:
        return
    if max(lengths) <= (1 + _SAME) * min(lengths) and max(rates) > 1.5 * min(rates) > 0:
        at, point = open_[0]
        found = f"the {len(open_)} points of '{point.side}' all ran for {seconds(lengths[0])} while the rate grew"
        found += f" {number(max(rates) / min(rates))} times, and none is said to have reached the target"
        yield guilty(f"scaling[{at}].time_s", found, _TO_TARGET, point.where, "warning")


def _curves(field: str, side: Side) -> Iterator[Diagnostic]:
    seen = curves_of(side)
    ends = [each for each in seen if each.ends_at_its_first_touch and each.claimed is not False]
    # If it is said to be confirmed, LB130 says that it is not.
    if ends and side.clock.crossing not in {"confirmed", "none"} and not _planned(side, seen):
        found = f"{len(ends)} of {plural(len(seen), 'curve')} of '{side.name}'"
        found += f" {'ends' if len(ends) == 1 else 'end'} with the first evaluation at the target"
        at, place = f"{field}.runs[{ends[0].at}].curve", _place(side, ends[0])
        if _by_rule(side, seen, ends):
            yield not_stated(at, f"whether the target is kept: {found}, as their rule asks", _GO_ON, place)
        else:
            yield guilty(at, found, _GO_ON, place, "warning")
    yield from _truncated(field, side)
    yield from _diverged(field, side)
    with_curve = [(at, run.curve) for at, run in enumerate(side.runs) if run.curve is not None]
    if with_curve and all(curve.epoch is None and curve.samples is None for _, curve in with_curve):
        what = f"the epochs or samples of the evaluations of '{side.name}': its curves have only time"
        yield not_stated(f"{field}.runs[{with_curve[0][0]}].curve.samples", what, _BY_SAMPLES, side.where)


def _by_rule(side: Side, seen: list[Seen], ends: list[Seen]) -> bool:
    """Whether the end was not chosen: a rule ends every run at its first touch, and the luckiest does not count."""
    ruled = side.clock.crossing == "first" and side.reported == "olympic"
    return ruled and len(ends) == len(seen) >= _SEVERAL


def _planned(side: Side, seen: list[Seen]) -> bool:
    """Whether the length was fixed in advance: the rule is the final evaluation, and all runs have equally many."""
    return side.clock.crossing == "final" and len({each.evaluations for each in seen}) == 1


def _place(side: Side, seen: Seen) -> str:
    return side.runs[seen.at].where or side.where


def _truncated(field: str, side: Side) -> Iterator[Diagnostic]:
    """Curves that end well before their run does."""
    short = []
    for at, run in enumerate(side.runs):
        if run.curve is not None and run.curve.time_s and run.time_s and run.curve.time_s[-1] < _CUT * run.time_s:
            short.append((at, run.curve.time_s[-1], run.time_s))
    if short:
        at, end, whole = short[0]
        found = f"{len(short)} of {plural(len(side.runs), 'run')} of '{side.name}' went on after the curve ends:"
        found += f" {seconds(whole)} and {seconds(end)}"
        yield guilty(f"{field}.runs[{at}].curve", found, _BY_SAMPLES, side.runs[at].where, "warning")


def _diverged(field: str, side: Side) -> Iterator[Diagnostic]:
    """Curves that end far below their best. A run that is stated to have missed its target hides nothing."""
    sign = direction_of(side.quality)
    target = side.quality.target
    if sign is None:
        return
    for at, run in enumerate(side.runs):
        if run.curve is None or run.reached is False or run.failed or len(run.curve.quality) < 3:
            continue
        # LB130 reports a target that was reached and lost again.
        if target is not None and sign * (max if sign > 0 else min)(run.curve.quality) >= sign * target:
            continue
        turned = [sign * quality for quality in run.curve.quality if quality == quality]
        if not turned or (target is not None and max(turned) >= sign * target):
            continue
        best, first, last = max(turned), turned[0], turned[-1]
        if best > first and best - last > _FALLEN * (best - first):
            found = f"a curve of '{side.name}' ends at {number(sign * last, 4)} after {number(sign * best, 4)}"
            do = "say that the run diverged, count it, and show the curve to its end"
            yield guilty(f"{field}.runs[{at}].curve", found, do, run.where or side.where, "warning")
            return


def _figures(claim: Claim) -> Iterator[Diagnostic]:
    plots = [(at, each) for at, each in enumerate(claim.figures) if each.y in {"quality", "loss"}]
    for at, each in plots:
        if each.curves_cut:
            found = f"curves of the figure '{each.what}' are cut before their runs end"
            yield guilty(f"figures[{at}].curves_cut", found, _BY_SAMPLES, each.where, "warning")
    known = [each.x for _, each in plots if each.x is not None]
    if not plots or any(x in {"epochs", "samples", "operations"} for x in known):
        return
    at, each = plots[0]
    if len(known) < len(plots):
        what = f"the x axis of the figure '{each.what}'"
        yield not_stated(f"figures[{at}].x", what, _BY_SAMPLES, each.where)
        return
    if any(x != "time" for x in known):
        return
    unknown = [(place, other) for place, other in enumerate(claim.figures) if other.y is None]
    if unknown:
        what = f"what the figure '{unknown[0][1].what}' shows, besides convergence over time"
        yield not_stated(f"figures[{unknown[0][0]}].y", what, _BY_SAMPLES, unknown[0][1].where)
    else:
        found = f"convergence is drawn over time alone ('{each.what}'): faster steps cannot be told from fewer steps"
        yield guilty(f"figures[{at}].x", found, _BY_SAMPLES, each.where, "warning")


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
