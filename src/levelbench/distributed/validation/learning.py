"""Whether a scheme that is not consistent learns: nobody's gradients are lost, and the loss falls as it should."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from levelbench.distributed.validation.counting import contributions, long_run, shares
from levelbench.distributed.validation.loop import batch
from levelbench.distributed.validation.models import beginning, loss_and_gradients
from levelbench.distributed.validation.rules import RATE
from levelbench.distributed.validation.runs import Case
from levelbench.distributed.validation.subject import Floats, Subject, evaluated, place, stopped
from levelbench.training.optimizers.rules import SGD
from levelbench.training.validation.probes import Finding, failed, noted, passed

__all__ = ["ATTEMPTS", "INCONSISTENT", "LONG", "SHARE"]

SHARE = 0.5
"""Of the fall of one process's loss, what a scheme has to reach in as many steps."""
_EXACT, _ROUGH, _LEAST, _MOST = 1e-6, 0.07, 0.5, 1.5
LONG = 300
"""Steps with the same gradients, where parts of them are held back."""
_DO = "weight each gradient by its rank's share, and let mixing weights add up to 1 over senders and over receivers"
# Compression that keeps little back needs a small rate: what is held back until it is sent acts as a large one.
ATTEMPTS: tuple[tuple[float, int], ...] = ((RATE, 200), (0.2 * RATE, 400))
"""Learning rates, and steps at each; one that succeeds is enough."""
_JUDGED, _EXAMPLES = 1_000_003, 512
"""The number of the batch that the loss is taken of, which nobody trains on, and its size."""


def nobody_is_lost(subject: Subject) -> Iterator[Finding]:
    """In what is evaluated the gradients of every worker count, and in lockstep in proportion to their shares.

    Without lockstep it is for the order of arrival to say how much they count, and only that they do is judged.
    """
    said = ""
    for ranks in subject.ranks:
        parts = subject.scheme.workers(ranks)
        case = Case(ranks, sizes=(2 * parts - 1,), decays=False)
        outcome = subject.run(case)
        if outcome.error is not None:
            yield stopped("nobody is lost", outcome)
            return
        factors = contributions(outcome, evaluated(outcome.workers[0]), subject.bench.seed)
        if factors is None:
            yield _in_the_long_run(subject)
            return
        by_rank, expected = factors.mean(1), np.array(shares(case, 1, parts))
        total = float(by_rank.sum())
        uneven = subject.scheme.lockstep and np.abs(by_rank - total * expected).max() > _EXACT * abs(total)
        words = f"the gradients of the workers count with {_listed(by_rank)}; their shares are {_listed(expected)}"
        if uneven or not total > 0 or (by_rank < _EXACT * total).any():
            yield failed("nobody is lost", f"{place(ranks)}: {words}", _DO)
            return
        said = f"on {ranks} ranks {words}"
    yield passed("nobody is lost", said)


def _in_the_long_run(subject: Subject) -> Finding:
    """The same of a scheme that holds parts of gradients back, or draws them: with one gradient a worker, often."""
    ranks, parts = subject.most, subject.scheme.workers(subject.most)
    case = Case(ranks, LONG, sizes=(2 * parts - 1,), decays=False, constant=True, keeps=False)
    outcome = subject.run(case)
    if outcome.error is not None:
        return stopped("nobody is lost", outcome)
    factors = np.array(long_run(outcome, evaluated(outcome.workers[0]), subject.bench.seed))
    total, expected = float(factors.sum()), np.array(shares(case, 1, parts))
    words = f"after {LONG} steps the gradients of the workers count with {_listed(np.round(factors, 2))} on average"
    said = f"{place(ranks)}: {words}; their shares are {_listed(expected)}"
    if not np.isfinite(total) or total > _MOST:
        return failed("nobody is lost", said, "let what is applied in the end be what the gradients add up to, once")
    if total < _LEAST:
        return noted("nobody is lost", f"{said}; most is still held back, so it is not judged")
    if np.abs(factors / total - expected).max() > _ROUGH:
        return failed("nobody is lost", said, _DO)
    return passed("nobody is lost", said)


def _listed(values: Floats) -> str:
    return ", ".join(f"{0.0 if abs(each) < _EXACT else each:.4g}" for each in values)


def learns(subject: Subject) -> Iterator[Finding]:
    """A small network's loss falls by at least half of what it falls by in one process."""
    ranks, seed = subject.most, subject.bench.seed
    before = _loss(beginning(seed)[0], seed)
    missed = ""
    for rate, steps in ATTEMPTS:
        case = Case(ranks, steps, learns=True, optimizer=SGD(rate), sizes=(24,), decays=False, keeps=False)
        outcome = subject.run(case)
        if outcome.error is not None:
            yield stopped("learns", outcome)
            return
        alone = subject.bench.alone(replace(case, ranks=1))
        reached, possible = _loss(evaluated(outcome.workers[0]), seed), _loss(alone[-1], seed)
        said = f"from {before:.3g} to {reached:.3g} in {steps} steps at a rate of {rate:g}, alone to {possible:.3g}"
        if before - reached >= SHARE * (before - possible):
            yield passed("learns", f"on {ranks} ranks the loss falls {said}{missed}")
            return
        missed += f"; not {said}"
    do = "compare its update with that of its paper, and its settings with the problem"
    yield failed("learns", f"{ranks} ranks: the loss does not fall as it should:{missed[1:]}", do)


def _loss(weights: dict[str, Floats], seed: int) -> float:
    examples, targets = batch(seed, _JUDGED, _EXAMPLES)
    wide = {name: each.astype(np.float64) for name, each in weights.items()}
    with np.errstate(all="ignore"):
        return loss_and_gradients(wide, examples, targets)[0]


INCONSISTENT = (nobody_is_lost, learns)
"""The probes of a scheme that makes no claim to be consistent."""
