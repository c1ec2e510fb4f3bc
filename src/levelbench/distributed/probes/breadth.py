"""What only shows beyond a few steps of small arrays on a few ranks: other ranks and seeds, long runs, large arrays."""

from __future__ import annotations

import numpy as np

from levelbench.checks.findings import Finding, failed, not_tried, noted, passed
from levelbench.distributed.probes.conduct import disagreement
from levelbench.distributed.probes.doubles import LARGE, RATE, scripted_gradient
from levelbench.distributed.probes.gradients import (
    contributions,
    drawn_later,
    first_misfit,
    misweighted,
    sampled,
    solvable,
)
from levelbench.distributed.probes.runs import (
    OTHERS,
    Floats,
    RanksOutcome,
    Rehearsal,
    SchemeTrial,
    evaluated,
    place,
    stopped,
    unlike,
)
from levelbench.errors import LevelbenchError, UsageError

MANY = 150
"""The steps of a long run."""
_DO = "let the update depend on shares and steps only, not on how many ranks, steps or elements there are"


def other_ranks(subject: SchemeTrial) -> Finding:
    """The update is right on 2 to 9 ranks, odd and even, each with a seed of its own; refused numbers are left out."""
    tried = []
    for ranks in OTHERS:
        if ranks in subject.ranks:
            continue
        other = SchemeTrial(subject.scheme, subject.framework, subject.seed + ranks, subject.seconds, subject.steps)
        try:
            parts = subject.scheme.workers(ranks)
            case = Rehearsal(ranks)
            if not subject.scheme.consistent:
                case = Rehearsal(ranks, solvable(parts), sizes=(2 * parts - 1,), decays=False)
            outcome = other.run(case)
        except UsageError:
            continue
        if outcome.error is not None:
            return stopped(outcome)
        if found := _wrong(other, outcome):
            return failed(f"{found} (seed {other.seed})", _DO)
        tried.append(ranks)
    listed = ", ".join(map(str, tried))
    return passed(f"right on {listed} ranks, with other seeds") if tried else not_tried("it accepts no others")


def _wrong(subject: SchemeTrial, outcome: RanksOutcome) -> str:
    """The first wrong update of a run; if the scheme is not consistent, in what is evaluated."""
    scheme = subject.scheme
    if scheme.replicated and (found := disagreement(outcome)):
        return found
    if scheme.consistent:
        return first_misfit(outcome, subject.seed)
    first, *others = (evaluated(each) for each in outcome.workers)
    for at, each in enumerate(others, 1):
        if name := unlike(first, each):
            return f"{place(outcome.case.ranks, at, None, name)}: what it evaluates is not what rank 0 does"
    if not all(np.isfinite(each).all() for each in first.values()):
        return f"{place(outcome.case.ranks)}: what is evaluated is not finite"
    factors = contributions(outcome, first, subject.seed)
    if factors is None or sampled(factors) or drawn_later(subject, outcome.case, factors):
        return ""
    return misweighted(subject, outcome, factors)


def many_steps(subject: SchemeTrial) -> Finding:
    """The update is right in every one of 150 steps."""
    if not subject.scheme.consistent:
        return not_tried("it does not claim this (consistent = False)")
    outcome = subject.finished(Rehearsal(subject.most, MANY))
    if found := first_misfit(outcome, subject.seed):
        return failed(found, _DO)
    return passed(f"each of {MANY} steps")


_STEPS, _ALL_STEPS, _PARTS = 2, 12, 16
_HALF, _TENTH = 0.5, 0.1
_EVERY, _MANY_MOVES, _NEARLY_ALL = 97, 20, 10


def large_arrays(subject: SchemeTrial) -> Finding:
    """The same holds for an array of more than a million elements.

    If a scheme sends parts of gradients, no stretch of the array may be left out once half of everything has arrived,
    or while others move again and again.
    """
    ranks, scheme = subject.ranks[0], subject.scheme
    count = max(int(np.prod(shape)) for shape in LARGE.values())
    steps = _STEPS if scheme.consistent else _ALL_STEPS
    # With the same gradients all the time, what is held back arrives soon.
    constant = not scheme.consistent
    case = Rehearsal(
        ranks, steps, large=True, constant=constant, decays=False, sizes=(2 * ranks,), every=_EVERY if constant else 1
    )
    outcome = subject.finished(case, f"with {count:,} elements ")
    wrong = first_misfit(outcome, subject.seed) if scheme.consistent else _left_out(outcome, subject.seed)
    if scheme.replicated and scheme.consistent:
        wrong = wrong or disagreement(outcome)
    subject.forget(case)
    return failed(f"{wrong}, with {count:,} elements", _DO) if wrong else passed(f"{count:,} elements, {steps} steps")


def _left_out(outcome: RanksOutcome, seed: int) -> str:
    """The stretch of the largest array in which much less has arrived than in the others; empty if there is none."""
    workers, name = len(outcome.workers), "table"
    weights: Floats = evaluated(outcome.workers[0])[name]
    if not np.isfinite(weights).all():
        return f"{place(outcome.case.ranks, 0, None, name)}: it is not finite"
    mean = np.mean([scripted_gradient(seed, rank, 1, large=True)[name] for rank in range(workers)], 0)
    moved = (outcome.workers[0].start[name] - weights) / (RATE * outcome.case.steps)
    arrived = [float(one @ other / (other @ other)) for one, other in zip(*_cut(moved, mean), strict=True)]
    whole = float(moved @ mean / (mean @ mean))
    least = int(np.argmin(arrived))
    where = place(outcome.case.ranks, 0, None, name)
    if whole >= _HALF and arrived[least] <= _TENTH * whole:
        first = sum(len(each) for each in np.array_split(mean, _PARTS)[:least])
        words = f"of what belongs to the elements from {first:,} on {arrived[least]:.1%} has arrived"
        return f"{where}: {words}, of all {whole:.0%}"
    moves = _moves(outcome, name)
    still = np.flatnonzero(moves.sum(0) == 0)
    # Elements drawn by chance would be in all stretches, and a few stretches drawn in turn would not be the same ones.
    if still.size and moves.sum() > _MANY_MOVES * _PARTS and ((moves > 0).sum(0) >= _NEARLY_ALL).any():
        first = sum(len(each) for each in np.array_split(mean, _PARTS)[: still[0]])
        words = f"the elements from {first:,} on never move, others in nearly all of {outcome.case.steps} steps"
        return f"{where}: {words}"
    return ""


def _moves(outcome: RanksOutcome, name: str) -> Floats:
    """How many of the recorded elements move on any worker, by step and stretch of the array."""
    moved: Floats = np.zeros((outcome.case.steps, 1), bool)
    for trace in outcome.workers:
        path = np.stack([trace.start[name][:: outcome.case.every], *(each[name] for each in trace.after)])
        moved = moved | (np.diff(path, axis=0) != 0)
    return np.stack([each.sum(1) for each in np.array_split(moved, _PARTS, 1)], 1)


def _cut(*arrays: Floats) -> list[list[Floats]]:
    return [np.array_split(each, _PARTS) for each in arrays]


_VALUE = 1e6
"""More than half precision holds, far less than single precision does."""


def large_values(subject: SchemeTrial) -> Finding:
    """One gradient beyond the range of half precision leaves all weights finite, or ends the run with an error."""
    rank, step = subject.scheme.workers(subject.most) - 1, 4
    outcome = subject.run(Rehearsal(subject.most, dtype="float32", spoilt=(rank, step, _VALUE)))
    where = f"{_VALUE:,.0f} in the gradient of {place(subject.most, rank, step)}"
    if outcome.error is not None:
        ends = any(isinstance(each.error, LevelbenchError) for each in outcome.traces)
        return noted(f"{where} ends the run: {outcome.why()}") if ends else stopped(outcome, f"{where}: ")
    for trace in outcome.workers:
        name = next((name for name, each in evaluated(trace).items() if not np.isfinite(each).all()), "")
        if name:
            found = f"{where} makes {name!r} of rank {trace.rank} infinite or NaN"
            return failed(found, "clip what is sent to the range of its type, and keep the rest")
    return passed(f"{where} leaves all weights finite")


BREADTH = (other_ranks, many_steps, large_arrays, large_values)
