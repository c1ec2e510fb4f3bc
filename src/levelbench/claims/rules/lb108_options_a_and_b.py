"""LB108: the speed is from one set of options, the quality from another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import claimed, guilty, not_stated, pairs, sides
from levelbench.claims.view import Claim, Setup, Side
from levelbench.report.numbers import plural

_DO = "take the time and the quality from the same runs, and give that pair; a second set of options is a second pair"
_SPEED = ("target", "run", "epoch", "step", "throughput", "latency", "operations")


def _check(claim: Claim) -> Iterator[Diagnostic]:
    asked = {side.name for _, side in claimed(claim)}
    for field, side in sides(claim):
        yield from _runs(field, side)
        if side.quality.value is not None and _has_speed(claim, side):
            found = _setups(field, side)
            yield from (each for each in found if each.severity != "not-stated" or side.name in asked)
    yield from _split_between_sides(claim)


def _has_speed(claim: Claim, side: Side) -> bool:
    if side.time_s is not None or side.throughput is not None or side.operations.flops is not None:
        return True
    return any(point.side == side.name for point in claim.scaling)


def _setups(field: str, side: Side) -> Iterator[Diagnostic]:
    speed, accuracy = side.performance, side.accuracy
    if speed == Setup() or accuracy == Setup():
        # What a whole run takes, and what it reaches, is of the same run.
        if side.time_of not in ("target", "run"):
            what = f"whether the speed and the quality of '{side.name}' were measured with the same options"
            yield not_stated(f"{field}.accuracy", what, _DO, side.where)
        return
    yield from _options(f"{field}.accuracy", side)
    yield from _commits(f"{field}.accuracy", side)
    if speed.environment and accuracy.environment and speed.environment != accuracy.environment:
        found = f"'{side.name}' was timed in environment {speed.environment} and judged in {accuracy.environment}"
        yield guilty(f"{field}.accuracy.environment", found, _DO, side.where, "warning")
    if speed.seeds and accuracy.seeds and not set(accuracy.seeds) & set(speed.seeds):
        found = f"'{side.name}' was timed with seeds {_list(speed.seeds)} and judged with {_list(accuracy.seeds)}"
        yield guilty(f"{field}.accuracy.seeds", found, _DO, side.where, "warning")


def _options(field: str, side: Side) -> Iterator[Diagnostic]:
    """Named options say more than their digest, so they are reported instead of it if they differ."""
    speed, accuracy = side.performance, side.accuracy
    both = [name for name in speed.options if name in accuracy.options]
    unlike = [name for name in both if speed.options[name] != accuracy.options[name]]
    if unlike:
        named = "; ".join(
            f"{name} {_value(speed.options[name])} and {_value(accuracy.options[name])}" for name in unlike
        )
        found = f"'{side.name}' was timed and judged with different options ({named})"
        yield guilty(f"{field}.options", found, _DO, side.where)
    elif speed.specification and accuracy.specification and speed.specification != accuracy.specification:
        found = f"the speed of '{side.name}' is from specification {_short(speed.specification)}"
        found += f", its quality from {_short(accuracy.specification)}"
        yield guilty(f"{field}.specification", found, _DO, side.where)
    elif not (speed.specification and accuracy.specification) and set(speed.options) ^ set(accuracy.options):
        only = ", ".join(sorted(set(speed.options) ^ set(accuracy.options)))
        what = f"the same options for the speed and the quality of '{side.name}' (given only once: {only})"
        yield not_stated(f"{field}.options", what, "give every option for both", side.where)


def _commits(field: str, side: Side) -> Iterator[Diagnostic]:
    speed, accuracy = side.performance, side.accuracy
    if not speed.commit or not accuracy.commit:
        return
    shorter = min(len(speed.commit), len(accuracy.commit))
    if speed.commit[:shorter] != accuracy.commit[:shorter]:
        found = f"'{side.name}' was timed at commit {speed.commit} and judged at {accuracy.commit}"
        yield guilty(f"{field}.commit", found, _DO, side.where, "warning")
    elif speed.dirty is not None and accuracy.dirty is not None and speed.dirty != accuracy.dirty:
        one, other = ("speed", "quality") if speed.dirty else ("quality", "speed")
        found = f"the {one} of '{side.name}' is from commit {speed.commit} with changes, its {other} from it without"
        yield guilty(f"{field}.dirty", found, _DO, side.where, "warning")


def _list(seeds: list[int]) -> str:
    return ", ".join(map(str, seeds[:8])) + (f" and {len(seeds) - 8} more" if len(seeds) > 8 else "")


def _value(value: float | str | bool) -> str:
    return value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else f"{value:g}"


def _short(digest: str) -> str:
    return digest if len(digest) <= 24 else f"{digest[:20]}..."


def _runs(field: str, side: Side) -> Iterator[Diagnostic]:
    """Runs with only a time and runs with only a quality, whose specifications have nothing in common."""
    known = [run for run in side.runs if run.specification and not run.failed]
    timed = [run for run in known if run.time_s is not None and run.quality is None and run.curve is None]
    judged = [run for run in known if run.quality is not None and run.time_s is None]
    if not timed or not judged or {run.specification for run in timed} & {run.specification for run in judged}:
        return
    if any(run.time_s is not None and (run.quality is not None or run.curve is not None) for run in known):
        return
    found = f"the times of '{side.name}' are from {plural(len(timed), 'run')} ({_short(timed[0].specification or '')})"
    found += f", its qualities from {plural(len(judged), 'other run')} ({_short(judged[0].specification or '')})"
    yield guilty(f"{field}.runs", found, _DO, side.where)


def _split_between_sides(claim: Claim) -> Iterator[Diagnostic]:
    """One variant is compared in speed alone and another in quality alone, both with the same baseline."""
    rows = list(pairs(claim))
    judged = [pair for pair in rows if pair.comparison.of == "quality"]
    for pair in rows:
        quality = pair.new.quality
        if pair.comparison.of not in _SPEED or quality.value is not None or quality.target is not None:
            continue
        mine = {pair.new.name, pair.base.name}
        if pair.comparison.quality_compared or any(each.new.name in mine for each in judged):
            continue
        other = next((each for each in judged if each.base.name == pair.base.name), None)
        if other is None or other.new.time_s is not None or other.new.throughput is not None:
            continue
        found = f"against '{pair.base.name}', the speed is of '{pair.new.name}' and the quality of '{other.new.name}'"
        found += "; neither has both figures"
        yield guilty(f"{pair.field}.new", found, _DO, pair.where)


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
