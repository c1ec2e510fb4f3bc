"""LB130: the target counts as reached, but the curve touches it only once, loses it again, or never reaches it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from levelbench.claims.rule import Diagnostic, Severity, read_rule
from levelbench.claims.rules._common import guilty, not_stated, number, seconds, sides
from levelbench.claims.rules._runs import Seen, curves_of
from levelbench.claims.view import Claim, Side
from levelbench.report.numbers import plural

_DO = "count the target as reached at the second evaluation in a row that reaches it, and give the curve beyond it"
_KEPT = {"confirmed": "confirmed", "sustained": "kept to the end", "final": "there at the end"}


def _check(claim: Claim) -> Iterator[Diagnostic]:
    for field, side in sides(claim):
        if side.time_of in {"target", "run"}:
            seen = [each for each in curves_of(side) if each.claimed is not False]
            yield from _never(field, side, seen)
            yield from _once(field, side, seen)
            yield from _lost(field, side, seen)
            yield from _early(field, side, seen)
            if side.time_of == "target" and not any(run.curve is not None for run in side.runs):
                yield from _no_curves(field, side)


def _of(side: Side, chosen: list[Seen], seen: list[Seen]) -> str:
    return f"{len(chosen)} of {plural(len(seen), 'curve')} of '{side.name}'"


def _row(side: Side, at: int, index: int) -> str:
    curve = side.runs[at].curve
    assert curve is not None
    return f"{number(curve.quality[index], 5)} at {seconds(curve.time_s[index])}"


def _where(side: Side, seen: Seen) -> str:
    return side.runs[seen.at].where or side.where


def _field(field: str, seen: Seen) -> str:
    return f"{field}.runs[{seen.at}].curve"


def _target(side: Side) -> str:
    return f"the target of {number(side.quality.target or 0.0, 5)}"


def _never(field: str, side: Side, seen: list[Seen]) -> Iterator[Diagnostic]:
    never = [each for each in seen if each.first is None and each.claimed]
    if never:
        found = f"{_of(side, never, seen)} never {'reaches' if len(never) == 1 else 'reach'} {_target(side)}"
        found += f" (last: {_row(side, never[0].at, -1)}), but the runs are counted as having reached it"
        do = "count them as not reached, or give the evaluation that reached it"
        yield guilty(_field(field, never[0]), found, do, _where(side, never[0]))


def _once(field: str, side: Side, seen: list[Seen]) -> Iterator[Diagnostic]:
    """Touched but not confirmed. LB110 reports a curve that ends there, unless it is said to be confirmed."""
    rule_ = side.clock.crossing
    once = [each for each in seen if each.first is not None and each.confirmed is None]
    once = [each for each in once if rule_ == "confirmed" or not each.ends_at_its_first_touch]
    # If only the last evaluation counts, it is enough that it reaches the target.
    once = [each for each in once if rule_ != "final" or each.kept is None]
    if not once:
        return
    at, first = once[0].at, once[0].first or 0
    found = f"{_of(side, once, seen)} never {'reaches' if len(once) == 1 else 'reach'} {_target(side)} twice in a row:"
    after = "the curve ends" if once[0].ends_at_its_first_touch else _row(side, at, first + 1)
    yield _finding(field, side, once[0], f"{found} {_row(side, at, first)}, then {after}")


def _lost(field: str, side: Side, seen: list[Seen]) -> Iterator[Diagnostic]:
    lost = [each for each in seen if each.confirmed is not None and each.kept is None]
    if lost:
        found = f"{_of(side, lost, seen)} {'loses' if len(lost) == 1 else 'lose'} {_target(side)} again:"
        found += f" {_row(side, lost[0].at, lost[0].confirmed or 0)}, at the end {_row(side, lost[0].at, -1)}"
        yield _finding(field, side, lost[0], found, confirmed=True)


def _finding(field: str, side: Side, seen: Seen, found: str, confirmed: bool = False) -> Diagnostic:
    """An error if the stated rule says otherwise, else a weakness of the claim."""
    rule_ = side.clock.crossing
    broken = rule_ in _KEPT and not (confirmed and rule_ == "confirmed")
    if broken:
        found += f"; it is said to be {_KEPT[str(rule_)]}"
    return guilty(_field(field, seen), found, _DO, _where(side, seen), "error" if broken else "warning")


def _early(field: str, side: Side, seen: list[Seen]) -> Iterator[Diagnostic]:
    """The time of a run is before the evaluations that count; a run's time and its curve use the same clock."""
    if side.time_of != "target":
        return
    for each in seen:
        run = side.runs[each.at]
        begins = _begins(each, final=side.clock.crossing == "final")
        if run.curve is None or run.time_s is None or not begins:
            continue
        if run.time_s < _latest(run.curve.time_s, begins):
            found = f"a run of '{side.name}' is said to reach {_target(side)} at {seconds(run.time_s)},"
            found += f" but has {_row(side, each.at, begins - 1)}"
            # By the rule of the first crossing the time is as stated, but still only a touch.
            severity: Severity = "warning" if side.clock.crossing in {"first", "interpolated"} else "error"
            yield guilty(f"{field}.runs[{each.at}].time_s", found, _DO, _where(side, each), severity)
            return


def _begins(seen: Seen, final: bool) -> int | None:
    """The first of the evaluations that count."""
    if final:
        return seen.kept
    return seen.first if seen.confirmed is None else seen.confirmed - 1


def _latest(time_s: list[float], begins: int) -> float:
    """A time between the two evaluations before those that count: rounding does not explain that much."""
    before = time_s[begins - 1]
    return 0.99 * before if begins < 2 else (time_s[begins - 2] + before) / 2


def _no_curves(field: str, side: Side) -> Iterator[Diagnostic]:
    if side.clock.crossing == "first":
        found = (
            f"the target of '{side.name}' counts from the first evaluation that reaches it, and no curve shows the next"
        )
        yield guilty(f"{field}.clock.crossing", found, _DO, side.where, "warning")
    elif side.clock.crossing is None and side.clock.policy != "mlperf":  # whose rule is known
        what = f"by which rule the target of '{side.name}' counts as reached; there are no curves"
        yield not_stated(f"{field}.clock.crossing", what, _DO, side.where)


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
