"""Whether each rank's gradient has the right weight, compared with one process on the same global batches.

With plain gradient descent and known gradients, an update is a sum of known arrays. So the weight of each follows by
least squares, and the weights tell what is wrong: a sum instead of a mean, a dropped rank. Then gradients of a network
are used, with optimizers with different kinds of state, to detect other faults too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from levelbench.checks.findings import EndProbe, Finding, failed, not_tried, noted, passed
from levelbench.distributed.probes.doubles import RATE, SHAPES, SHORT, beginning, loss_and_gradients, scripted_gradient
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
    """Where and how an update first differs from the mean gradient of the global batch; empty if none does.

    If a run did not complete, the steps before are checked.
    """
    case, workers = outcome.case, len(outcome.workers)
    for step in range(1, case.steps + 1):
        weights = shares(case, step, workers)
        scripted = [scripted_gradient(seed, rank, step, case.large) for rank in range(workers)]
        for trace in outcome.workers:
            if len(trace.after) < step:
                continue
            moved, wrong = _moved(trace, step, case), []
            for name in case.shapes:
                expected = sum(weight * each[name] for weight, each in zip(weights, scripted, strict=True))
                if not np.abs(moved[name] - expected).max() <= _EXACT * (1 + np.abs(expected).max()):
                    wrong.append(name)
            if wrong:
                where = place(case.ranks, trace.rank, step, wrong[0] if len(wrong) < len(case.shapes) else "")
                return f"{where}: {_described(moved, wrong, step, weights, seed, case, trace.rank)}"
    return ""


def _moved(trace: RankTrace, step: int, case: Rehearsal) -> dict[str, Floats]:
    """What was subtracted in a step, divided by the learning rate."""
    before = trace.after[step - 2] if step > 1 else trace.start
    rate = RATE * case.factor(step)
    return {name: (before[name] - trace.after[step - 1][name]) / rate for name in case.shapes}


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
        return f"{', '.join(map(repr, wrong))} does not move" if len(wrong) < len(case.shapes) else "no parameter moves"
    workers = len(weights)
    earlier = shares(case, step - 1, workers) if step > 1 else [0.0] * workers
    terms = [(each, step) for each in range(workers) if weights[each]]
    terms += [(each, step - 1) for each in range(workers) if earlier[each]]
    names = wrong if sum(moved[name].size for name in wrong) > 2 * len(terms) else list(case.shapes)
    factors, left = _fitted(moved, names, terms, seed, case.large)
    if left > _EXPLAINED:
        return "the update is not a sum of the ranks' gradients of this step or the last"
    now = [factors.get((each, step), 0.0) for each in range(workers)]
    before = [factors.get((each, step - 1), 0.0) for each in range(workers)]
    text = f"the gradients of the {workers} workers have weights {_listed(now)}; their shares are {_listed(weights)}"
    if any(abs(each) > 1e-6 for each in before):
        text += f"; and those of the step before {_listed(before)}"
    guess = _guess(now, before, weights, earlier, case, step, rank)
    return f"{text}: {guess}" if guess else text


def _fitted(
    moved: Mapping[str, Floats], names: Sequence[str], terms: Sequence[tuple[int, int]], seed: int, large: bool = False
) -> tuple[dict[tuple[int, int], float], float]:
    """The weight of each (rank, step), and the relative residual."""
    target = np.concatenate([moved[name].reshape(-1) for name in names])
    columns = []
    for rank, step in terms:
        gradient = scripted_gradient(seed, rank, step, large)
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
    """The usual cause of such weights; empty if none is known."""
    if _close(before, earlier) and not any(abs(each) > 1e-6 for each in now):
        return "a buffer is read before the new gradients are in it"
    active = [at for at, weight in enumerate(weights) if weight]
    times = [now[at] / weights[at] for at in active]
    if _close(times, [times[0]] * len(times)):
        return _of_multiple(times[0], len(weights), case, step)
    if len(active) > 1 and _close([now[at] for at in active], [now[active[0]]] * len(active)):
        return "each rank has the same weight, whatever its part of the batch"
    dropped = [at for at in active if abs(now[at]) < 1e-6]
    if rank in active and dropped == [at for at in active if at != rank]:
        return "the rank only has its own gradient: it did not wait for the others"
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
        return "a sum instead of a mean"
    if abs(times * workers - 1) < 1e-6:
        return "the mean is divided by the number of ranks again"
    return "they are applied twice" if abs(times - 2) < 1e-6 else f"all are multiplied by {times:.4g}"


def solvable(workers: int) -> int:
    """The most steps, up to ``SHORT``, of which the elements of an update give the weights of all gradients."""
    return min(SHORT, sum(prod(shape) for shape in SHAPES.values()) * 9 // 10 // workers)


def contributions(outcome: RanksOutcome, weights: Mapping[str, Floats], seed: int) -> Floats | None:
    """The weight of each gradient in ``weights``, shape (workers, steps); ``None`` if they are not such a sum.

    For a run with a constant learning rate.
    """
    case, workers = outcome.case, len(outcome.workers)
    start = outcome.workers[0].start
    moved = {name: (start[name] - weights[name]) / RATE for name in case.shapes}
    terms = [(rank, step) for rank in range(workers) for step in range(1, case.steps + 1)]
    factors, left = _fitted(moved, list(case.shapes), terms, seed, case.large)
    if left > _EXPLAINED:
        return None
    return np.array([factors[each] for each in terms]).reshape(workers, case.steps)


def long_run(outcome: RanksOutcome, weights: Mapping[str, Floats], seed: int) -> tuple[list[float], float]:
    """The mean weight of each worker's gradient over steps with constant gradients, and the relative residual.

    Least squares over all parameters, so what is held back for later steps, or random, averages out.
    """
    case, workers = outcome.case, len(outcome.workers)
    start = outcome.workers[0].start
    moved = {name: (start[name] - weights[name]) / (RATE * case.steps) for name in SHAPES}
    factors, left = _fitted(moved, list(SHAPES), [(rank, 1) for rank in range(workers)], seed)
    return [factors.get((rank, 1), float("nan")) for rank in range(workers)], left


def _close(one: Sequence[float], other: Sequence[float]) -> bool:
    return bool(np.allclose(one, other, rtol=1e-6, atol=1e-6))


def _listed(values: Iterable[float]) -> str:
    return ", ".join(f"{0.0 if abs(each) < 1e-6 else each:.4g}" for each in values)


_OPTIMIZERS: dict[str, Optimizer] = {"sgd": SGD(0.1), "momentum": Momentum(0.05), "adam": Adam(0.01)}
_TOLERANCE = {"float64": 1e-12, "float32": 1e-6}
_DO = "send the weighted gradients, share times gradient, sum them over all workers, and then update once"


def gradients(subject: SchemeTrial) -> Finding:
    """Each gradient has its share as weight, in every step and parameter, also with uneven or empty parts."""
    for ranks in subject.ranks:
        for case in (Rehearsal(ranks, sizes=EVEN), Rehearsal(ranks)):
            outcome = subject.finished(case, "with uneven parts " if case.sizes != EVEN else "")
            if misfit := first_misfit(outcome, subject.seed):
                return failed(misfit, _DO)
    return passed(f"{SHORT} steps on {_ranks_listed(subject.ranks)} ranks, even, uneven and empty parts")


def optimizer(subject: SchemeTrial) -> Finding:
    """The optimizer gets each parameter once per step, with the step's number and learning rate factor."""
    for ranks in subject.ranks:
        case = Rehearsal(ranks)
        outcome = subject.run(case)
        if not any(trace.given for trace in outcome.traces):
            return not_tried("the scheme does not use the optimizer's own stepper")
        wrong = _wrongly_given(case, outcome)
        if wrong:
            return failed(f"{place(ranks)}: {wrong}", "pass on the step and the factor that step() got")
    return passed("gets each step and factor, and each parameter once")


def _wrongly_given(case: Rehearsal, outcome: RanksOutcome) -> str:
    for trace in outcome.traces:
        counted: dict[tuple[int, str], int] = {}
        for step, factor, names in trace.given:
            if not 1 <= step <= case.steps:
                return f"rank {trace.rank}'s optimizer gets step {step} of {case.steps}"
            if abs(factor - case.factor(step)) > 1e-12:
                got, expected = f"{factor:.4g}", f"{case.factor(step):.4g}"
                return f"rank {trace.rank}'s optimizer gets the factor {got} instead of {expected} at step {step}"
            for name in names:
                counted[step, name] = counted.get((step, name), 0) + 1
        twice = next(((key, count) for key, count in counted.items() if count > 1), None)
        if twice:
            (step, name), count = twice
            return f"rank {trace.rank}'s optimizer gets {name!r} {count} times at step {step}"
    if any(set(names) - set(SHAPES) for trace in outcome.traces for _, _, names in trace.given):
        # Shards with names of their own (ZeRO): that all elements are updated is seen in the weights.
        return ""
    seen = {(step, name) for trace in outcome.traces for step, _, names in trace.given for name in names}
    missing = [(step, name) for step in range(1, case.steps + 1) for name in SHAPES if (step, name) not in seen]
    return f"no optimizer gets {missing[0][1]!r} at step {missing[0][0]}" if missing else ""


def one_process(subject: SchemeTrial) -> Finding:
    """After every step, the parameters are those of one process: to rounding in float64, to 1e-6 in float32."""
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
    """The same with gradients that are passed on as they become final."""
    outcome = subject.finished(Rehearsal(subject.most, early=True))
    if not any(trace.asked_early for trace in outcome.workers):
        return not_tried("it does not request them")
    if misfit := first_misfit(outcome, subject.seed):
        return failed(misfit, "wait for everything that was started in backward")
    return passed("passed on one by one, last parameter first")


def accumulation(subject: SchemeTrial) -> Finding:
    """Two batches per update are equivalent to one batch of both."""
    case = Rehearsal(
        subject.most, max(2, subject.steps // 2), learns=True, optimizer=_OPTIMIZERS["momentum"], accumulate=2
    )
    distance = _distance_from_one_process(subject, case, "with two batches per update")
    return passed(f"{case.steps} updates of two batches: {distance:.0e} away from one of both")


def _distance_from_one_process(subject: SchemeTrial, case: Rehearsal, how: str) -> float:
    """The distance of the ranks from one process; beyond rounding the probe ends."""
    outcome = subject.finished(case, f"{how} ")
    worst = 0.0
    for step, expected in enumerate(subject.alone(replace(case, ranks=1)), 1):
        for trace in outcome.workers:
            found = trace.after[step - 1]
            distance, name = apart(found, expected) if case.dtype == "float64" else (_distance(found, expected), "")
            worst = max(worst, distance)
            if not distance <= _TOLERANCE[case.dtype]:
                where = place(case.ranks, trace.rank, step, name)
                summary = f"{how}, {distance:.1e} away from one process; rounding allows {_TOLERANCE[case.dtype]:.0e}"
                raise EndProbe(failed(f"{where}: {summary}", _DO))
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
"""The probes of schemes that claim to be consistent."""


SHARE = 0.5
"""The share of one process's decrease in loss that a scheme must reach in as many steps."""
_SAME, _ROUGH, _LEAST, _MOST = 1e-6, 0.07, 0.5, 1.5
LONG = 300
"""Steps with constant gradients, if parts of them are held back."""
_HELD, _BEGUN = 0.2, 0.8
"""Too much is held back to tell the workers' weights: the least relative residual, and the most of what has arrived if
all have begun."""
_DO_SHARES = (
    "weight each gradient by its rank's share, and let mixing weights add up to 1 over senders and over receivers"
)
# Compression that sends little needs a small rate, because delayed gradients act like a larger one.
ATTEMPTS: tuple[tuple[float, int], ...] = ((RATE, 200), (0.2 * RATE, 400))
"""Learning rates, and steps at each; one success is enough."""
_JUDGED, _EXAMPLES = 1_000_003, 512
"""The number of the batch for the loss, which no rank trains on, and its size."""


def every_worker_counts(subject: SchemeTrial) -> Finding:
    """The evaluated weights contain the gradients of every worker, in lockstep in proportion to their shares.

    Without lockstep the weights depend on the order of arrival, so it is only checked that they are not zero.
    """
    summary = ""
    for ranks in subject.ranks:
        parts = subject.scheme.workers(ranks)
        case = Rehearsal(ranks, solvable(parts), sizes=(2 * parts - 1,), decays=False)
        outcome = subject.finished(case)
        factors = contributions(outcome, evaluated(outcome.workers[0]), subject.seed)
        if factors is None or sampled(factors) or drawn_later(subject, case, factors):
            return _in_the_long_run(subject)
        if wrong := misweighted(subject, outcome, factors):
            return failed(wrong, _DO_SHARES)
        summary = f"on {ranks} ranks {_weights(case, factors)}"
    return passed(summary)


def sampled(factors: Floats) -> bool:
    """Whether some workers take part in some steps only, so that only the mean of many steps has their shares."""
    weighs = np.abs(factors) > _SAME * np.abs(factors).max(initial=0.0)
    return bool((weighs.any(1) & ~weighs.all(1)).any())


def drawn_later(subject: SchemeTrial, case: Rehearsal, factors: Floats) -> bool:
    """Whether workers without any weight in a short run, shape (workers, steps), have some in the long run.

    So it is where some workers are drawn for each round of several steps.
    """
    absent = ~(np.abs(factors) > _SAME * np.abs(factors).max(initial=0.0)).any(1)
    if not absent.any() or absent.all() or not subject.scheme.lockstep:
        return False
    outcome = subject.finished(replace(case, steps=LONG, constant=True, keeps=False))
    weights, _ = long_run(outcome, evaluated(outcome.workers[0]), subject.seed)
    return bool((np.array(weights) > _ROUGH / len(weights)).all())


def misweighted(subject: SchemeTrial, outcome: RanksOutcome, factors: Floats) -> str:
    """What is wrong with the weights, shape (workers, steps), of gradients of which each step has the same shares."""
    by_rank, expected = factors.mean(1), np.array(shares(outcome.case, 1, len(factors)))
    total = float(by_rank.sum())
    uneven = subject.scheme.lockstep and np.abs(by_rank - total * expected).max() > _SAME * abs(total)
    if uneven or not total > 0 or (by_rank < _SAME * total).any():
        return f"{place(outcome.case.ranks)}: {_weights(outcome.case, factors)}"
    return ""


def _weights(case: Rehearsal, factors: Floats) -> str:
    expected = shares(case, 1, len(factors))
    return f"the gradients of the workers have weights {_listed(factors.mean(1))}; their shares are {_listed(expected)}"


def _in_the_long_run(subject: SchemeTrial) -> Finding:
    """The same for a scheme that delays or samples gradients, over many steps with a constant gradient per worker."""
    ranks, parts = subject.most, subject.scheme.workers(subject.most)
    case = Rehearsal(ranks, LONG, sizes=(2 * parts - 1,), decays=False, constant=True, keeps=False)
    outcome = subject.finished(case)
    weights, left = long_run(outcome, evaluated(outcome.workers[0]), subject.seed)
    factors = np.array(weights)
    total, expected = float(factors.sum()), np.array(shares(case, 1, parts))
    words = f"after {LONG} steps the gradients of the workers have mean weights {_listed(np.round(factors, 2))}"
    summary = f"{place(ranks)}: {words}; their shares are {_listed(expected)}"
    if not np.isfinite(total) or total > _MOST * subject.scheme.most_weight():
        do = "apply in total what the gradients add up to, once; most_weight() declares a momentum of the scheme's own"
        return failed(summary, do)
    # What is held back is none of the workers' gradients; whether it arrives is judged by what moves often.
    begun = total < _BEGUN and bool((factors > _ROUGH / 10).all())
    uneven = np.abs(factors / total - expected).max() > _ROUGH
    if total < _LEAST or left > _HELD or (uneven and begun):
        return noted(f"{summary}; much is still held back, so it is not judged")
    if uneven:
        return failed(summary, _DO_SHARES)
    return passed(summary)


def learns(subject: SchemeTrial) -> Finding:
    """A small network's loss falls by at least half as much as in one process."""
    ranks, seed = subject.most, subject.seed
    before = _loss(beginning(seed)[0], seed)
    missed = ""
    for rate, steps in ATTEMPTS:
        case = Rehearsal(ranks, steps, learns=True, optimizer=SGD(rate), sizes=(24,), decays=False, keeps=False)
        outcome = subject.finished(case)
        alone = subject.alone(replace(case, ranks=1))
        reached, possible = _loss(evaluated(outcome.workers[0]), seed), _loss(alone[-1], seed)
        summary = f"from {before:.3g} to {reached:.3g} in {steps} steps at a rate of {rate:g}, alone to {possible:.3g}"
        if before - reached >= SHARE * (before - possible):
            return passed(f"on {ranks} ranks the loss falls {summary}{missed}")
        missed += f"; not {summary}"
    do = "compare its update with that of its paper, and its settings with the problem"
    return failed(f"{ranks} ranks: the loss does not fall as it should:{missed[1:]}", do)


def _loss(weights: dict[str, Floats], seed: int) -> float:
    examples, targets = batch(seed, _JUDGED, _EXAMPLES)
    wide = {name: each.astype(np.float64) for name, each in weights.items()}
    with np.errstate(all="ignore"):
        return loss_and_gradients(wide, examples, targets)[0]


INCONSISTENT = (every_worker_counts, learns)
"""The probes of schemes that do not claim to be consistent."""
