"""Whether each rank's gradient counts as it should, against one process on the same global batches.

With plain gradient descent and gradients that are known, an update is a sum of known arrays, so the factor of each
follows by least squares, and the factors say what is wrong: a sum for a mean, a rank that was dropped. Then with the
gradients of a network, for optimizers with several kinds of state, so that unforeseen faults are seen too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from levelbench.checks.findings import EndProbe, Finding, failed, not_tried, noted, passed
from levelbench.distributed.probes.models import RATE, SHAPES, SHORT, beginning, loss_and_gradients, scripted_gradient
from levelbench.distributed.probes.runs import (
    EVEN,
    Floats,
    RanksOutcome,
    RankTrace,
    Rehearsal,
    SchemeTrial,
    apart,
    batch,
    evaluated,
    part_of,
    place,
)
from levelbench.training.optimizers.base import Optimizer
from levelbench.training.optimizers.rules import SGD, Adam, Momentum

_EXACT, _EXPLAINED = 1e-9, 1e-7


def shares(case: Rehearsal, step: int, workers: int) -> list[float]:
    """Each worker's share of the examples of a step."""
    whole = case.examples(step)
    parts = [[part_of(each, rank, workers) for each in whole] for rank in range(workers)]
    return [sum(each.stop - each.start for each in part) / sum(whole) for part in parts]


def first_misfit(outcome: RanksOutcome, seed: int) -> str:
    """Where and how an update first is not the mean gradient of the global batch; empty where all are.

    Of a run that came to no end, the steps before are looked at.
    """
    case, workers = outcome.case, len(outcome.workers)
    for step in range(1, case.steps + 1):
        weights = shares(case, step, workers)
        scripted = [scripted_gradient(seed, rank, step) for rank in range(workers)]
        for trace in outcome.workers:
            if len(trace.after) < step:
                continue
            moved = _moved(trace, step, case)
            wrong = [name for name in SHAPES if not _is_sum(moved[name], scripted, weights, name)]
            if wrong:
                where = place(case.ranks, trace.rank, step, wrong[0] if len(wrong) < len(SHAPES) else "")
                return f"{where}: {_described(moved, wrong, step, weights, seed, case, trace.rank)}"
    return ""


def _moved(trace: RankTrace, step: int, case: Rehearsal) -> dict[str, Floats]:
    """What was subtracted in a step, over the learning rate."""
    before = trace.after[step - 2] if step > 1 else trace.start
    rate = RATE * case.factor(step)
    return {name: (before[name] - trace.after[step - 1][name]) / rate for name in SHAPES}


def _is_sum(moved: Floats, scripted: Sequence[Mapping[str, Floats]], weights: Sequence[float], name: str) -> bool:
    expected = sum(weight * each[name] for weight, each in zip(weights, scripted, strict=True))
    return bool(np.abs(moved - expected).max() <= _EXACT * (1 + np.abs(expected).max()))


def _described(
    moved: dict[str, Floats],
    wrong: Sequence[str],
    step: int,
    weights: Sequence[float],
    seed: int,
    case: Rehearsal,
    rank: int,
) -> str:
    if all(not moved[name].any() for name in wrong):
        return f"{', '.join(map(repr, wrong))} does not move" if len(wrong) < len(SHAPES) else "no parameter moves"
    workers = len(weights)
    earlier = shares(case, step - 1, workers) if step > 1 else [0.0] * workers
    terms = [(each, step) for each in range(workers) if weights[each]]
    terms += [(each, step - 1) for each in range(workers) if earlier[each]]
    names = wrong if sum(moved[name].size for name in wrong) > 2 * len(terms) else list(SHAPES)
    factors, left = _fitted(moved, names, terms, seed)
    if left > _EXPLAINED:
        return "the update is no sum of the ranks' gradients of this step or the last"
    now = [factors.get((each, step), 0.0) for each in range(workers)]
    before = [factors.get((each, step - 1), 0.0) for each in range(workers)]
    text = f"the gradients of the {workers} workers count with {_listed(now)}; their shares are {_listed(weights)}"
    if any(abs(each) > 1e-6 for each in before):
        text += f"; and those of the step before with {_listed(before)}"
    guess = _guess(now, before, weights, earlier, case, step, rank)
    return f"{text}: {guess}" if guess else text


def _fitted(
    moved: Mapping[str, Floats], names: Sequence[str], terms: Sequence[tuple[int, int]], seed: int
) -> tuple[dict[tuple[int, int], float], float]:
    """The factor of each (rank, step), and what they leave unexplained, relative."""
    target = np.concatenate([moved[name].reshape(-1) for name in names])
    columns = []
    for rank, step in terms:
        gradient = scripted_gradient(seed, rank, step)
        columns.append(np.concatenate([gradient[name].reshape(-1) for name in names]))
    matrix = np.stack(columns, 1)
    if not np.isfinite(target).all():
        return {}, float("inf")
    factors = np.linalg.lstsq(matrix, target, rcond=None)[0]
    size = float(np.linalg.norm(target))
    left = float(np.linalg.norm(target - matrix @ factors)) / (size or 1.0)
    return dict(zip(terms, factors.tolist(), strict=True)), left


def _guess(
    now: Sequence[float],
    before: Sequence[float],
    weights: Sequence[float],
    earlier: Sequence[float],
    case: Rehearsal,
    step: int,
    rank: int,
) -> str:
    """What usually makes such factors; empty where nothing is known to."""
    if _close(before, earlier) and not any(abs(each) > 1e-6 for each in now):
        return "a buffer is read before the new gradients are in it"
    active = [at for at, weight in enumerate(weights) if weight]
    times = [now[at] / weights[at] for at in active]
    if _close(times, [times[0]] * len(times)):
        return _of_multiple(times[0], len(weights), case, step)
    if len(active) > 1 and _close([now[at] for at in active], [now[active[0]]] * len(active)):
        return "each rank counts alike, whatever its part of the batch"
    dropped = [at for at in active if abs(now[at]) < 1e-6]
    if rank in active and dropped == [at for at in active if at != rank]:
        return "the rank has its own gradient alone: it did not wait for the others"
    if dropped:
        plural = "s" * (len(dropped) > 1)
        return f"what rank{plural} {', '.join(map(str, dropped))} computed is dropped"
    return ""


def _of_multiple(times: float, workers: int, case: Rehearsal, step: int) -> str:
    for other, words in ((step - 1, "the step before"), (step + 1, "the step after")):
        if other > 0 and abs(times - case.factor(other) / case.factor(step)) < 1e-6 and abs(times - 1) > 1e-6:
            return f"the factor of the learning rate is that of {words}"
    if abs(times * case.factor(step) - 1) < 1e-6:
        return "the factor of the learning rate is left out"
    if workers > 1 and abs(times - workers) < 1e-6:
        return "a sum where a mean was meant"
    if abs(times * workers - 1) < 1e-6:
        return "the mean is divided by the number of ranks once more"
    return "they are applied twice" if abs(times - 2) < 1e-6 else f"all are multiplied by {times:.4g}"


def contributions(outcome: RanksOutcome, weights: Mapping[str, Floats], seed: int) -> Floats | None:
    """With what factor each gradient is in ``weights``, shape (workers, steps); ``None`` where they are no such sum.

    To be asked of a run with a constant learning rate.
    """
    case, workers = outcome.case, len(outcome.workers)
    start = outcome.workers[0].start
    moved = {name: (start[name] - weights[name]) / RATE for name in SHAPES}
    terms = [(rank, step) for rank in range(workers) for step in range(1, case.steps + 1)]
    factors, left = _fitted(moved, list(SHAPES), terms, seed)
    if left > _EXPLAINED:
        return None
    return np.array([factors[each] for each in terms]).reshape(workers, case.steps)


def long_run(outcome: RanksOutcome, weights: Mapping[str, Floats], seed: int) -> list[float]:
    """With what factor each worker's gradient counts on average over steps, of a run with constant gradients.

    Least squares over all parameters: what is held back for later steps, or drawn at random, averages out.
    """
    case, workers = outcome.case, len(outcome.workers)
    start = outcome.workers[0].start
    moved = {name: (start[name] - weights[name]) / (RATE * case.steps) for name in SHAPES}
    factors, _ = _fitted(moved, list(SHAPES), [(rank, 1) for rank in range(workers)], seed)
    return [factors.get((rank, 1), float("nan")) for rank in range(workers)]


def _close(one: Sequence[float], other: Sequence[float]) -> bool:
    return bool(np.allclose(one, other, rtol=1e-6, atol=1e-6))


def _listed(values: Iterable[float]) -> str:
    return ", ".join(f"{0.0 if abs(each) < 1e-6 else each:.4g}" for each in values)


_OPTIMIZERS: dict[str, Optimizer] = {"sgd": SGD(0.1), "momentum": Momentum(0.05), "adam": Adam(0.01)}
_TOLERANCE = {"float64": 1e-12, "float32": 1e-6}
_DO = "send the weighted gradients, share times gradient, sum them over all workers, and then update once"


def gradients(subject: SchemeTrial) -> Finding:
    """Each gradient counts with its share, at every step, in every parameter, also where parts are uneven or empty."""
    for ranks in subject.ranks:
        for case in (Rehearsal(ranks, sizes=EVEN), Rehearsal(ranks)):
            outcome = subject.finished(case, "with uneven parts " if case.sizes != EVEN else "")
            if misfit := first_misfit(outcome, subject.seed):
                return failed(misfit, _DO)
    return passed(f"{SHORT} steps on {_ranks_listed(subject.ranks)} ranks, even, uneven and empty parts")


def optimizer(subject: SchemeTrial) -> Finding:
    """The optimizer is given each parameter once a step, with the step's number and the factor of its learning rate."""
    for ranks in subject.ranks:
        case = Rehearsal(ranks)
        outcome = subject.run(case)
        if not any(trace.given for trace in outcome.traces):
            return not_tried("the scheme does not use the optimizer's own stepper")
        wrong = _wrongly_given(case, outcome)
        if wrong:
            return failed(f"{place(ranks)}: {wrong}", "pass on the step and the factor that step() was given")
    return passed("given each step and factor, and each parameter once")


def _wrongly_given(case: Rehearsal, outcome: RanksOutcome) -> str:
    for trace in outcome.traces:
        counted: dict[tuple[int, str], int] = {}
        for step, factor, names in trace.given:
            if not 1 <= step <= case.steps:
                return f"rank {trace.rank}'s optimizer is given step {step}, of {case.steps}"
            if abs(factor - case.factor(step)) > 1e-12:
                expected = f"{case.factor(step):.4g} was given"
                return f"rank {trace.rank}'s optimizer is given the factor {factor:.4g} at step {step}, and {expected}"
            for name in names:
                counted[step, name] = counted.get((step, name), 0) + 1
        twice = next(((key, count) for key, count in counted.items() if count > 1), None)
        if twice:
            (step, name), count = twice
            return f"rank {trace.rank}'s optimizer is given {name!r} {count} times at step {step}"
    seen = {(step, name) for trace in outcome.traces for step, _, names in trace.given for name in names}
    missing = [(step, name) for step in range(1, case.steps + 1) for name in SHAPES if (step, name) not in seen]
    return f"no optimizer is given {missing[0][1]!r} at step {missing[0][0]}" if missing else ""


def one_process(subject: SchemeTrial) -> Finding:
    """After every step the parameters are those of one process, in float64 to rounding, in float32 to 1e-6."""
    worst = 0.0
    for ranks in subject.ranks:
        for name, each in _OPTIMIZERS.items():
            case = Rehearsal(ranks, subject.steps, learns=True, optimizer=each)
            worst = max(worst, _distance_from_one_process(subject, case, f"with {name}"))
    case = Rehearsal(subject.most, subject.steps, learns=True, optimizer=_OPTIMIZERS["momentum"], dtype="float32")
    distance = _distance_from_one_process(subject, case, "with momentum in float32")
    listed = f"{', '.join(_OPTIMIZERS)} on {_ranks_listed(subject.ranks)} ranks"
    return passed(f"{subject.steps} steps of {listed}: {worst:.0e} away in float64, {distance:.0e} in float32")


def early_gradients(subject: SchemeTrial) -> Finding:
    """With gradients that are handed over as they become final, the same."""
    outcome = subject.finished(Rehearsal(subject.most, early=True))
    if not any(trace.asked_early for trace in outcome.workers):
        return not_tried("it does not ask for them")
    if misfit := first_misfit(outcome, subject.seed):
        return failed(misfit, "wait for all that was begun in backward")
    return passed("handed over one by one, last parameter first")


def accumulation(subject: SchemeTrial) -> Finding:
    """Two batches an update are one batch of both."""
    case = Rehearsal(
        subject.most, max(2, subject.steps // 2), learns=True, optimizer=_OPTIMIZERS["momentum"], accumulate=2
    )
    distance = _distance_from_one_process(subject, case, "with two batches an update")
    return passed(f"{case.steps} updates of two batches: {distance:.0e} away from one of both")


def _distance_from_one_process(subject: SchemeTrial, case: Rehearsal, how: str) -> float:
    """How far ranks get away from one process; beyond rounding the probe ends."""
    outcome = subject.finished(case, f"{how} ")
    worst = 0.0
    for step, expected in enumerate(subject.alone(replace(case, ranks=1)), 1):
        for trace in outcome.workers:
            found = trace.after[step - 1]
            distance, name = apart(found, expected) if case.dtype == "float64" else (_distance(found, expected), "")
            worst = max(worst, distance)
            if not distance <= _TOLERANCE[case.dtype]:
                where = place(case.ranks, trace.rank, step, name)
                said = f"{how}, {distance:.1e} away from one process, and {_TOLERANCE[case.dtype]:.0e} is rounding"
                raise EndProbe(failed(f"{where}: {said}", _DO))
    return worst


def _distance(one: dict[str, Floats], other: dict[str, Floats]) -> float:
    """The distance of all parameters together, relative to their norm."""
    away = sum(float(((one[name].astype(np.float64) - each) ** 2).sum()) for name, each in other.items())
    whole = sum(float((each.astype(np.float64) ** 2).sum()) for each in other.values())
    return float((away / whole) ** 0.5)


def _ranks_listed(ranks: Sequence[int]) -> str:
    *first, last = map(str, ranks)
    return f"{', '.join(first)} and {last}" if first else last


CONSISTENT = (gradients, optimizer, one_process, early_gradients, accumulation)
"""The probes of a scheme that claims to be consistent."""


SHARE = 0.5
"""Of the fall of one process's loss, what a scheme has to reach in as many steps."""
_SAME, _ROUGH, _LEAST, _MOST = 1e-6, 0.07, 0.5, 1.5
LONG = 300
"""Steps with the same gradients, where parts of them are held back."""
_DO_SHARES = (
    "weight each gradient by its rank's share, and let mixing weights add up to 1 over senders and over receivers"
)
# Compression that keeps little back needs a small rate: what is held back until it is sent acts as a large one.
ATTEMPTS: tuple[tuple[float, int], ...] = ((RATE, 200), (0.2 * RATE, 400))
"""Learning rates, and steps at each; one that succeeds is enough."""
_JUDGED, _EXAMPLES = 1_000_003, 512
"""The number of the batch that the loss is taken of, which no rank trains on, and its size."""


def every_worker_counts(subject: SchemeTrial) -> Finding:
    """In what is evaluated the gradients of every worker count, and in lockstep in proportion to their shares.

    Without lockstep it is for the order of arrival to say how much they count, and only that they do is judged.
    """
    said = ""
    for ranks in subject.ranks:
        parts = subject.scheme.workers(ranks)
        case = Rehearsal(ranks, sizes=(2 * parts - 1,), decays=False)
        outcome = subject.finished(case)
        factors = contributions(outcome, evaluated(outcome.workers[0]), subject.seed)
        if factors is None:
            return _in_the_long_run(subject)
        by_rank, expected = factors.mean(1), np.array(shares(case, 1, parts))
        total = float(by_rank.sum())
        uneven = subject.scheme.lockstep and np.abs(by_rank - total * expected).max() > _SAME * abs(total)
        words = f"the gradients of the workers count with {_listed(by_rank)}; their shares are {_listed(expected)}"
        if uneven or not total > 0 or (by_rank < _SAME * total).any():
            return failed(f"{place(ranks)}: {words}", _DO_SHARES)
        said = f"on {ranks} ranks {words}"
    return passed(said)


def _in_the_long_run(subject: SchemeTrial) -> Finding:
    """The same of a scheme that holds parts of gradients back, or draws them: with one gradient a worker, often."""
    ranks, parts = subject.most, subject.scheme.workers(subject.most)
    case = Rehearsal(ranks, LONG, sizes=(2 * parts - 1,), decays=False, constant=True, keeps=False)
    outcome = subject.finished(case)
    factors = np.array(long_run(outcome, evaluated(outcome.workers[0]), subject.seed))
    total, expected = float(factors.sum()), np.array(shares(case, 1, parts))
    words = f"after {LONG} steps the gradients of the workers count with {_listed(np.round(factors, 2))} on average"
    said = f"{place(ranks)}: {words}; their shares are {_listed(expected)}"
    if not np.isfinite(total) or total > _MOST:
        return failed(said, "let what is applied in the end be what the gradients add up to, once")
    if total < _LEAST:
        return noted(f"{said}; most is still held back, so it is not judged")
    if np.abs(factors / total - expected).max() > _ROUGH:
        return failed(said, _DO_SHARES)
    return passed(said)


def learns(subject: SchemeTrial) -> Finding:
    """A small network's loss falls by at least half of what it falls by in one process."""
    ranks, seed = subject.most, subject.seed
    before = _loss(beginning(seed)[0], seed)
    missed = ""
    for rate, steps in ATTEMPTS:
        case = Rehearsal(ranks, steps, learns=True, optimizer=SGD(rate), sizes=(24,), decays=False, keeps=False)
        outcome = subject.finished(case)
        alone = subject.alone(replace(case, ranks=1))
        reached, possible = _loss(evaluated(outcome.workers[0]), seed), _loss(alone[-1], seed)
        said = f"from {before:.3g} to {reached:.3g} in {steps} steps at a rate of {rate:g}, alone to {possible:.3g}"
        if before - reached >= SHARE * (before - possible):
            return passed(f"on {ranks} ranks the loss falls {said}{missed}")
        missed += f"; not {said}"
    do = "compare its update with that of its paper, and its settings with the problem"
    return failed(f"{ranks} ranks: the loss does not fall as it should:{missed[1:]}", do)


def _loss(weights: dict[str, Floats], seed: int) -> float:
    examples, targets = batch(seed, _JUDGED, _EXAMPLES)
    wide = {name: each.astype(np.float64) for name, each in weights.items()}
    with np.errstate(all="ignore"):
        return loss_and_gradients(wide, examples, targets)[0]


INCONSISTENT = (every_worker_counts, learns)
"""The probes of a scheme that makes no claim to be consistent."""
