"""LB111: the batch grows with the machine, which changes the training, but it is presented as strong scaling."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from levelbench.claims.rule import Diagnostic, Severity, read_rule
from levelbench.claims.rules._common import ComparedPair, guilty, not_stated, number, pairs, times
from levelbench.claims.view import Claim, ScalingPoint, Side

_SAY = "say which stays the same, the global batch or the batch per rank, and give both at every point"
_ITERATIONS = "give the iterations until the target was reached at every batch, or the time until it was"
_RATE = "give the learning rate at every point, or the rule by which it follows the batch"
_Indexed = tuple[int, ScalingPoint]


def _check(claim: Claim) -> Iterator[Diagnostic]:
    for name in dict.fromkeys(point.side for point in claim.scaling):
        points = [(at, point) for at, point in enumerate(claim.scaling) if point.side == name]
        points.sort(key=lambda each: each[1].ranks)
        if points[0][1].ranks < points[-1][1].ranks:
            yield from _study(name, points, claim)
    if not claim.scaling:
        for pair in pairs(claim):
            yield from _two_points(pair, claim.scaling_mode)


def _study(name: str, points: list[_Indexed], claim: Claim) -> Iterator[Diagnostic]:
    unknown = [(at, point) for at, point in points if point.global_batch is None]
    growth = _growth(points)
    if growth is None:
        if unknown and claim.scaling_mode != "weak":
            at, point = unknown[0]
            what = f"the global batch of '{name}' on {_ranks(unknown)} ranks"
            yield not_stated(f"scaling[{at}].global_batch", what, _SAY, point.where)
        return
    small, large = growth
    batches = f"the global batch of '{name}' grows from {small[1].global_batch:,} on {small[1].ranks} "
    batches += f"to {large[1].global_batch:,} on {large[1].ranks} ranks"
    field = f"scaling[{large[0]}].global_batch"
    if claim.scaling_mode == "strong":
        found = f"{batches}, but the scaling is called strong"
        yield guilty(field, found, "call it weak scaling; or keep the global batch", large[1].where)
    elif claim.scaling_mode is None and not all(_to_target(each, claim.side(name)) for _, each in points):
        # Times to the target have what the larger batch costs in them, whatever the scaling is called.
        found = f"{batches}, but nothing says that this is weak scaling"
        yield guilty(field, found, _SAY, large[1].where, "warning")
    yield from _statistics(name, small, large, points, claim.side(name))
    yield from _rates(name, points, claim.side(name))


def _growth(points: list[_Indexed]) -> tuple[_Indexed, _Indexed] | None:
    """The smallest and the largest number of ranks with a known batch, where the batch grows between them."""
    known = [each for each in points if each[1].global_batch is not None]
    if len(known) < 2:
        return None
    small, large = known[0], known[-1]
    grows = (large[1].global_batch or 0) > (small[1].global_batch or 0) and large[1].ranks > small[1].ranks
    return (small, large) if grows else None


def _ranks(points: list[_Indexed]) -> str:
    return ", ".join(str(point.ranks) for _, point in points)


def _to_target(point: ScalingPoint, side: Side | None) -> bool:
    """Whether the point's time includes convergence."""
    whole = side is not None and side.time_of in {"target", "run"}
    return whole and point.time_s is not None and point.reached is True


def _statistics(
    name: str, small: _Indexed, large: _Indexed, points: list[_Indexed], side: Side | None
) -> Iterator[Diagnostic]:
    open_ = [(at, each) for at, each in points if each.iterations_to_target is None and not _to_target(each, side)]
    if open_:
        at, point = open_[0]
        what = f"how many iterations '{name}' needs to its target on {_ranks(open_)} ranks, with the larger batch"
        yield not_stated(f"scaling[{at}].iterations_to_target", what, _ITERATIONS, point.where)
        return
    (_, few), (at, many) = small, large
    if _to_target(many, side) or not few.iterations_to_target or not many.iterations_to_target:
        return
    more = many.iterations_to_target * (many.global_batch or 1) / (few.iterations_to_target * (few.global_batch or 1))
    if more <= 1.1 or not few.throughput or not many.throughput:
        return
    faster = many.throughput / few.throughput
    found = f"from {few.ranks} to {many.ranks} ranks the rate of '{name}' grows {number(faster)} times, and the target"
    found += f" takes {times(more)} the samples: it comes {number(faster / more)} times as soon"
    field = f"scaling[{at}].iterations_to_target"
    yield guilty(field, found, "claim the time to the target at every point", many.where, "warning")


def _rates(name: str, points: list[_Indexed], side: Side | None) -> Iterator[Diagnostic]:
    if side is not None and side.workload.learning_rate_rule:
        return
    silent = [(at, point) for at, point in points if point.learning_rate is None]
    if silent:
        at, point = silent[0]
        what = f"how the learning rate of '{name}' changed as its batch grew ({_ranks(silent)} ranks)"
        yield not_stated(f"scaling[{at}].learning_rate", what, _RATE, point.where)


def _two_points(pair: ComparedPair, mode: str | None) -> Iterator[Diagnostic]:
    """A comparison of two machine sizes by their rates is a scaling study with two points."""
    new, base, comparison = pair.new.workload, pair.base.workload, pair.comparison
    if comparison.of not in {"throughput", "epoch", "step", "operations"} or mode == "weak":
        return
    if new.ranks is None or base.ranks is None or new.ranks <= base.ranks:
        return
    if new.global_batch is None or base.global_batch is None:
        what = f"the global batch of '{pair.new.name}' and '{pair.base.name}'"
        yield not_stated(f"{pair.new_field}.workload.global_batch", what, _SAY, pair.where)
    elif new.global_batch > base.global_batch:
        found = f"from {base.ranks} to {new.ranks} ranks the global batch grows from {base.global_batch:,}"
        found += f" to {new.global_batch:,}, and the {comparison.of} is compared"
        found += ", as strong scaling" if mode == "strong" else ""
        severity: Severity = "error" if mode == "strong" else "warning"
        field = f"{pair.new_field}.workload.global_batch"
        yield guilty(field, found, _ITERATIONS, pair.where, severity)


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
