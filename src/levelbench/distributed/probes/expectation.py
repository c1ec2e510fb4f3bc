"""Formulas for schemes that do not claim to be consistent: what must hold on average, and with equal gradients."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from levelbench.checks.findings import EndProbe, Finding, failed, not_tried, passed
from levelbench.distributed.probes.doubles import RATE, SHAPES, Scripted, scripted_gradient
from levelbench.distributed.probes.runs import (
    Floats,
    RanksOutcome,
    Rehearsal,
    SchemeTrial,
    apart,
    evaluated,
    place,
)
from levelbench.training.optimizers.base import Optimizer
from levelbench.training.optimizers.rules import SGD, Adam, Momentum

DRAWS = 320
"""Steps over which random compression is averaged."""
_WARM_UP, _BLOCK = 80, 20
_MOVES, _ELEMENTS = 3, 10
_BIAS, _ALIKE, _STAYS = 0.004, 0.5, 0.7
_OFTEN, _AGREE = 20, 8
_ERRORS, _MOST = 6.0, 1.5
_LONGER, _SUSPECT, _CERTAIN = 3, 3.5, 5.0
"""A parameter whose total is suspect, in standard errors, is looked at again: with another seed, in a longer run."""
_DO = "let the expectation of what is sent be the gradient, or keep all that is left out and send it later"


def right_on_average(subject: SchemeTrial) -> Finding:
    """With constant gradients the mean update is the mean gradient, once what is held back has built up.

    Errors of unbiased random compression differ between two stretches of steps, and error feedback takes them back; a
    bias is the same in both. Elements that hardly move yet are left out.
    """
    if not subject.scheme.lockstep:
        return not_tried("ranks are not in lockstep (lockstep = False)")
    if subject.scheme.most_weight() != 1:
        return not_tried("its updates are no sums of gradients that weigh alike (most_weight)")
    ranks, parts = subject.ranks[0], subject.scheme.workers(subject.ranks[0])
    case = Rehearsal(ranks, DRAWS, sizes=(2 * parts,), decays=False, constant=True)
    outcome = subject.finished(case)
    path = _path(outcome)
    if not np.isfinite(path).all():
        return failed(f"{place(ranks)}: after {DRAWS} steps weights are not finite", _DO)
    middle = (_WARM_UP + DRAWS) // 2
    windows = (path[_WARM_UP : middle + 1], path[middle:])
    moves = np.stack([(np.diff(each, axis=0) != 0).sum(0) for each in windows])
    if name := _never(moves.sum(0), subject.seed, parts):
        found = f"one element never moves, although others with smaller gradients move {_OFTEN} times and more"
        return failed(f"{place(ranks, None, None, name)}: {found}", _DO)
    if not subject.scheme.replicated and parts > 1 and (name := _kept_apart(outcome, subject.seed)):
        found = f"workers never agree on one element, although on smaller ones {_AGREE} times and more"
        return failed(f"{place(ranks, None, None, name)}: {found}", "bring all parameters together in turn")
    active = (moves >= _MOVES).all(0)
    if active.sum() < _ELEMENTS:
        return not_tried(f"after {DRAWS} steps most is still held back")
    columns = np.stack([_flat(scripted_gradient(subject.seed, rank, 1))[active] for rank in range(parts)], 1)
    mean = columns.mean(1)
    one, other = (_off(each[:, active], columns) for each in windows)
    size, common = float(np.linalg.norm(mean)), float(one @ other)
    lengths = float(np.linalg.norm(one)), float(np.linalg.norm(other))
    stays = common > _ALIKE * lengths[0] * lengths[1] and lengths[1] > _STAYS * lengths[0]
    if common > (_BIAS * size) ** 2 and stays:
        off = f"by {common**0.5 / size:.2g} of the mean gradient"
        found = f"the mean update is off {off}, in the same elements all the time"
        return failed(f"{place(ranks)}: {found}", _DO)
    total, error = _total(path[_WARM_UP:, active], columns)
    # A scheme with momentum of its own, as between rounds of local steps, has a larger total.
    judged = total < _MOST
    if judged and abs(total - 1) > _BIAS + _ERRORS * error:
        return failed(f"{place(ranks)}: the mean update is {total:.4g} ± {error:.1g} times the mean gradient", _DO)
    if judged and (found := _biased_parameter(subject, path, case)):
        return failed(f"{place(ranks)}, {found}", _DO)
    return passed(f"over {DRAWS} steps with equal gradients the mean update is {total:.3g} times their mean")


def _biased_parameter(subject: SchemeTrial, path: Floats, case: Rehearsal) -> str:
    """A parameter whose own total is wrong in two runs, and by how much; empty if there is none.

    Right schemes are accused less than once in 10^6 checks: by each run alone, with seven parameters, once in 10^2 and
    in 10^5.
    """
    first = _suspects(path, subject.seed, case, _SUSPECT)
    if not first:
        return ""
    other = SchemeTrial(subject.scheme, subject.framework, subject.seed + 1, subject.seconds, subject.steps)
    longer = replace(case, steps=_WARM_UP + _LONGER * (case.steps - _WARM_UP))
    second = _suspects(_path(other.finished(longer)), other.seed, longer, _CERTAIN)
    for name, (total, error) in second.items():
        if name in first and (first[name][0] > 1) == (total > 1):
            return f"{name!r}: its mean update is {total:.4g} ± {error:.1g} times its mean gradient"
    return ""


def _suspects(path: Floats, seed: int, case: Rehearsal, errors: float) -> dict[str, tuple[float, float]]:
    """The totals and standard errors of parameters that are more than so many of them away from 1.

    Parameters of which an element hardly moves are left out. What is held back may be off by a move at either end.
    """
    parts, steps = case.sizes[0] // 2, case.steps - _WARM_UP
    drawn = [scripted_gradient(seed, rank, 1) for rank in range(parts)]
    found: dict[str, tuple[float, float]] = {}
    begun = 0
    for name in SHAPES:
        mean = np.mean([each[name] for each in drawn], 0).reshape(-1)
        own = path[_WARM_UP:, begun : begun + mean.size]
        begun += mean.size
        moved = np.diff(own, axis=0)
        halves = np.array_split(moved != 0, 2)
        if min(int(each.sum(0).min()) for each in halves) < _MOVES:
            continue
        along = moved @ mean / (mean @ mean)
        blocks = along.reshape(-1, _BLOCK // 2).mean(1)
        total, error = float(blocks.mean()), float(blocks.std(ddof=1) / len(blocks) ** 0.5)
        if abs(total - 1) > _BIAS + errors * error + float(np.abs(along).max()) / steps:
            found[name] = total, error
    return found


def _never(moves: Floats, seed: int, parts: int) -> str:
    """The parameter of an element that never moved, if one with a smaller gradient often did; else empty.

    What is held back because it is small, or not drawn yet, is no such element: it has the smaller gradient, or others
    are not drawn often.
    """
    drawn = [scripted_gradient(seed, rank, 1) for rank in range(parts)]
    begun = 0
    for name in SHAPES:
        sizes = np.max([np.abs(each[name]).reshape(-1) for each in drawn], 0)
        counts = moves[begun : begun + sizes.size]
        begun += sizes.size
        often = sizes[counts >= _OFTEN]
        if often.size and (sizes[counts == 0] > often.min()).any():
            return name
    return ""


def _kept_apart(outcome: RanksOutcome, seed: int) -> str:
    """The parameter of an element that workers never agree on, if they often do on one that differs less; else empty.

    Workers that bring parts together in turn, or what differs most, agree on each element at some time.
    """
    first, *others = (np.stack([_flat(each) for each in trace.after]) for trace in outcome.workers)
    counts = np.all([first == each for each in others], 0).sum(0)
    differs = np.ptp([_flat(scripted_gradient(seed, trace.rank, 1)) for trace in outcome.workers], 0)
    often = differs[counts >= _AGREE]
    apart = (counts == 0) & (differs > often.min()) if often.size else np.zeros(len(differs), bool)
    names = np.repeat(list(SHAPES), [prod(shape) for shape in SHAPES.values()])
    return str(names[apart][0]) if apart.any() else ""


def _flat(arrays: object) -> Floats:
    named: dict[str, Floats] = dict(arrays)  # type: ignore[call-overload]
    return np.concatenate([np.asarray(named[name], np.float64).reshape(-1) for name in SHAPES])


def _path(outcome: RanksOutcome) -> Floats:
    """How far the mean of all workers' weights has gone after 0, 1, ... steps, in units of the learning rate."""
    weights = np.mean([[_flat(each) for each in (trace.start, *trace.after)] for trace in outcome.workers], 0)
    return np.asarray((weights[0] - weights) / RATE)


def _off(window: Floats, columns: Floats) -> Floats:
    """The part of the mean update over a window that is no combination of the workers' gradients."""
    moved = (window[-1] - window[0]) / (len(window) - 1)
    return np.asarray(moved - columns @ np.linalg.lstsq(columns, moved, rcond=None)[0])


def _total(path: Floats, columns: Floats) -> tuple[float, float]:
    """The sum of the workers' weights in the mean update, and its standard error from blocks of steps."""
    moved = np.diff(path[::_BLOCK], axis=0) / _BLOCK
    totals = np.linalg.lstsq(columns, moved.T, rcond=None)[0].sum(0)
    return float(totals.mean()), float(totals.std(ddof=1) / len(totals) ** 0.5)


_FEW, _CLOSE = 24, 1e-9
_WITH: tuple[tuple[str, Optimizer, bool], ...] = (
    ("a learning rate that changes", SGD(RATE), True),
    ("momentum", Momentum(RATE / 2), False),
    ("both", Momentum(RATE / 2), True),
    # Its step depends on the step's number.
    ("Adam", Adam(RATE / 10), False),
)


def equal_gradients(subject: SchemeTrial) -> Finding:
    """If all ranks have the same gradients, a scheme that then is one process is so with any schedule and optimizer.

    Whether it is follows from plain gradient descent at a constant rate; one that is not, is not judged.
    """
    if not subject.scheme.lockstep:
        return not_tried("ranks are not in lockstep (lockstep = False)")
    if _distance(subject, SGD(RATE), False)[0] > _CLOSE:
        return not_tried("even with the same gradients on all ranks it is not one process")
    for how, optimizer, decays in _WITH:
        distance, name = _distance(subject, optimizer, decays)
        if not distance <= _CLOSE:
            do = "pass on each step's number and factor, and let the optimizer keep its state when models are averaged"
            found = f"with {how} and the same gradients on all ranks it is {distance:.1e} away from one process"
            return failed(f"{place(subject.most, 0, None, name)}: {found}; without, it is not", do)
    return passed("with the same gradients on all ranks it is one process, with a schedule, momentum and Adam")


def _distance(subject: SchemeTrial, optimizer: Optimizer, decays: bool) -> tuple[float, str]:
    parts = subject.scheme.workers(subject.most)
    case = Rehearsal(
        subject.most, _FEW, optimizer=optimizer, decays=decays, alike=True, sizes=(2 * parts,), keeps=False
    )
    outcome = subject.finished(case)
    model = subject.model(case, 0)
    if not isinstance(model, Scripted):
        raise EndProbe(not_tried("its gradients are not scripted"))
    stepper = optimizer.start(subject.backend, model.parameters)
    for step in range(1, _FEW + 1):
        model.step = step
        model.forward()
        stepper.step(dict(model.backward()), step, case.factor(step))
    return apart(evaluated(outcome.workers[0]), model.held())


EXPECTATION = (right_on_average, equal_gradients)
