"""How a scheme has counted each rank's gradient, read off from what became of the parameters.

The one idea: with plain gradient descent and gradients that are known, an update is a sum of known arrays, so the
factor of each follows by least squares, and the factors say what is wrong: a sum for a mean, a rank that was dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from levelbench.distributed.validation.loop import part_of
from levelbench.distributed.validation.models import SHAPES, Scripted
from levelbench.distributed.validation.rules import RATE
from levelbench.distributed.validation.runs import Case, Outcome, Trace
from levelbench.distributed.validation.subject import place

__all__ = ["Misfit", "contributions", "first_misfit", "long_run", "shares"]

Floats = NDArray[Any]
_EXACT, _EXPLAINED = 1e-9, 1e-7


def shares(case: Case, step: int, workers: int) -> list[float]:
    """Each worker's share of the examples of a step."""
    whole = case.examples(step)
    parts = [[part_of(each, rank, workers) for each in whole] for rank in range(workers)]
    return [sum(each.stop - each.start for each in part) / sum(whole) for part in parts]


@final
@dataclass(frozen=True)
class Misfit:
    """The first update that is not what it should be."""

    where: str
    found: str


def first_misfit(outcome: Outcome, seed: int) -> Misfit | None:
    """The first rank and step at which the update is not the mean gradient of the global batch.

    Of a run that came to no end, the steps before are looked at.
    """
    case, workers = outcome.case, len(outcome.workers)
    for step in range(1, case.steps + 1):
        weights = shares(case, step, workers)
        scripted = [Scripted.gradient(seed, rank, step) for rank in range(workers)]
        for trace in outcome.workers:
            if len(trace.after) < step:
                continue
            moved = _moved(trace, step, case)
            wrong = [name for name in SHAPES if not _is_sum(moved[name], scripted, weights, name)]
            if wrong:
                where = place(case.ranks, trace.rank, step, wrong[0] if len(wrong) < len(SHAPES) else "")
                return Misfit(where, _described(moved, wrong, step, weights, seed, outcome, trace.rank))
    return None


def _moved(trace: Trace, step: int, case: Case) -> dict[str, Floats]:
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
    outcome: Outcome,
    rank: int,
) -> str:
    if all(not moved[name].any() for name in wrong):
        return f"{', '.join(map(repr, wrong))} does not move" if len(wrong) < len(SHAPES) else "no parameter moves"
    workers = len(weights)
    earlier = shares(outcome.case, step - 1, workers) if step > 1 else [0.0] * workers
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
    guess = _guess(now, before, weights, earlier, outcome.case, step, rank)
    return f"{text}: {guess}" if guess else text


def _fitted(
    moved: Mapping[str, Floats], names: Sequence[str], terms: Sequence[tuple[int, int]], seed: int
) -> tuple[dict[tuple[int, int], float], float]:
    """The factor of each (rank, step), and what they leave unexplained, relative."""
    target = np.concatenate([moved[name].reshape(-1) for name in names])
    columns = []
    for rank, step in terms:
        gradient = Scripted.gradient(seed, rank, step)
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
    case: Case,
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


def _of_multiple(times: float, workers: int, case: Case, step: int) -> str:
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


def contributions(outcome: Outcome, weights: Mapping[str, Floats], seed: int) -> Floats | None:
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


def long_run(outcome: Outcome, weights: Mapping[str, Floats], seed: int) -> list[float]:
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


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{0.0 if abs(each) < 1e-9 else each:.4g}" for each in values)
