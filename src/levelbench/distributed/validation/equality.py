"""Whether ranks compute what one process does on the same global batches.

The one idea: first with gradients that are known, so that what is wrong has a name; then with those of a network, for
every optimizer with another kind of state, so that what is wrong in a way nobody thought of is seen too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from levelbench.distributed.validation.counting import first_misfit
from levelbench.distributed.validation.models import SHAPES
from levelbench.distributed.validation.rules import SHORT
from levelbench.distributed.validation.runs import EVEN, Case, Outcome
from levelbench.distributed.validation.subject import Floats, Subject, apart, place, stopped
from levelbench.training.optimizers.base import Optimizer
from levelbench.training.optimizers.rules import SGD, Adam, Momentum
from levelbench.training.validation.probes import Finding, failed, not_tried, passed

__all__ = ["CONSISTENT"]

_OPTIMIZERS: dict[str, Optimizer] = {"sgd": SGD(0.1), "momentum": Momentum(0.05), "adam": Adam(0.01)}
_TOLERANCE = {"float64": 1e-12, "float32": 1e-6}
_DO = "send the weighted gradients, share times gradient, sum them over all workers, and then update once"


def gradients(subject: Subject) -> Iterator[Finding]:
    """Each gradient counts with its share, at every step, in every parameter, also where parts are uneven or empty."""
    for ranks in subject.ranks:
        for case in (Case(ranks, sizes=EVEN), Case(ranks)):
            outcome = subject.run(case)
            if outcome.error is not None:
                yield stopped("gradients", outcome, "with uneven parts " if case.sizes != EVEN else "")
                return
            if misfit := first_misfit(outcome, subject.bench.seed):
                yield failed("gradients", f"{misfit.where}: {misfit.found}", _DO)
                return
    yield passed("gradients", f"{SHORT} steps on {_listed(subject.ranks)} ranks, even, uneven and empty parts")


def optimizer(subject: Subject) -> Iterator[Finding]:
    """The optimizer hears of each parameter once a step, with the step's number and the factor of its learning rate."""
    for ranks in subject.ranks:
        case = Case(ranks)
        outcome = subject.run(case)
        told = [(trace.rank, note) for trace in outcome.traces for note in trace.told]
        if not told:
            yield not_tried("optimizer", "the scheme does not use the optimizer's own stepper")
            return
        wrong = _wrongly_told(case, outcome)
        if wrong:
            yield failed(
                "optimizer", f"{place(ranks)}: {wrong}", "pass on the step and the factor that step() was given"
            )
            return
    yield passed("optimizer", "told of each step and factor, and once of each parameter")


def _wrongly_told(case: Case, outcome: Outcome) -> str:
    for trace in outcome.traces:
        counted: dict[tuple[int, str], int] = {}
        for step, factor, names in trace.told:
            if not 1 <= step <= case.steps:
                return f"rank {trace.rank}'s optimizer is told of step {step}, of {case.steps}"
            if abs(factor - case.factor(step)) > 1e-12:
                expected = f"{case.factor(step):.4g} was given"
                return (
                    f"rank {trace.rank}'s optimizer is told of the factor {factor:.4g} at step {step}, and {expected}"
                )
            for name in names:
                counted[step, name] = counted.get((step, name), 0) + 1
        twice = next(((key, count) for key, count in counted.items() if count > 1), None)
        if twice:
            (step, name), count = twice
            return f"rank {trace.rank}'s optimizer is told of {name!r} {count} times at step {step}"
    seen = {(step, name) for trace in outcome.traces for step, _, names in trace.told for name in names}
    missing = [(step, name) for step in range(1, case.steps + 1) for name in SHAPES if (step, name) not in seen]
    return f"no optimizer is told of {missing[0][1]!r} at step {missing[0][0]}" if missing else ""


def one_process(subject: Subject) -> Iterator[Finding]:
    """After every step the parameters are those of one process, in float64 to rounding, in float32 to 1e-6."""
    worst = 0.0
    for ranks in subject.ranks:
        for name, each in _OPTIMIZERS.items():
            case = Case(ranks, subject.steps, learns=True, optimizer=each)
            distance, finding = _beside(subject, case, f"with {name}")
            worst = max(worst, distance)
            if finding is not None:
                yield finding
                return
    case = Case(subject.most, subject.steps, learns=True, optimizer=_OPTIMIZERS["momentum"], dtype="float32")
    distance, finding = _beside(subject, case, "with momentum in float32")
    if finding is not None:
        yield finding
        return
    listed = ", ".join(_OPTIMIZERS)
    yield passed(
        "one process",
        f"{subject.steps} steps of {listed} on {_listed(subject.ranks)} ranks: {worst:.0e} away in float64, "
        f"{distance:.0e} in float32",
    )


def early_gradients(subject: Subject) -> Iterator[Finding]:
    """With gradients that are told as they become final, the same."""
    outcome = subject.run(Case(subject.most, early=True))
    if outcome.error is not None:
        yield stopped("early gradients", outcome)
    elif not any(trace.asked_early for trace in outcome.workers):
        yield not_tried("early gradients", "it does not ask for them")
    elif misfit := first_misfit(outcome, subject.bench.seed):
        yield failed("early gradients", f"{misfit.where}: {misfit.found}", "wait for all that was begun in backward")
    else:
        yield passed("early gradients", "told one by one, last parameter first")


def accumulation(subject: Subject) -> Iterator[Finding]:
    """Two batches an update are one batch of both."""
    case = Case(subject.most, max(2, subject.steps // 2), learns=True, optimizer=_OPTIMIZERS["momentum"], accumulate=2)
    distance, finding = _beside(subject, case, "with two batches an update", "accumulation")
    yield finding or passed(
        "accumulation", f"{case.steps} updates of two batches: {distance:.0e} away from one of both"
    )


def _beside(subject: Subject, case: Case, how: str, probe: str = "one process") -> tuple[float, Finding | None]:
    """How far ranks get away from one process, and what there is to say against it."""
    outcome = subject.run(case)
    if outcome.error is not None:
        return float("inf"), stopped(probe, outcome, f"{how} ")
    reference = subject.bench.alone(replace(case, ranks=1))
    worst = 0.0
    for step, expected in enumerate(reference, 1):
        for trace in outcome.workers:
            found = trace.after[step - 1]
            distance, name = apart(found, expected) if case.dtype == "float64" else (_distance(found, expected), "")
            worst = max(worst, distance)
            if not distance <= _TOLERANCE[case.dtype]:
                where = place(case.ranks, trace.rank, step, name)
                said = f"{how}, {distance:.1e} away from one process, and {_TOLERANCE[case.dtype]:.0e} is rounding"
                return distance, failed(probe, f"{where}: {said}", _DO)
    return worst, None


def _distance(one: dict[str, Floats], other: dict[str, Floats]) -> float:
    """The distance of all parameters together, relative to their norm."""
    away = sum(float(((one[name].astype(np.float64) - each) ** 2).sum()) for name, each in other.items())
    whole = sum(float((each.astype(np.float64) ** 2).sum()) for each in other.values())
    return float((away / whole) ** 0.5)


def _listed(ranks: Sequence[int]) -> str:
    *first, last = map(str, ranks)
    return f"{', '.join(first)} and {last}" if first else last


CONSISTENT = (gradients, optimizer, one_process, early_gradients, accumulation)
"""The probes of a scheme that claims to be consistent."""
