"""Formulas for schemes that do not claim to be consistent: what must hold on average, and with equal gradients."""

from __future__ import annotations

from dataclasses import replace
from math import inf, prod

import numpy as np

from levelbench.checks.findings import EndProbe, Finding, failed, not_tried, passed
from levelbench.distributed.probes.doubles import RATE, SHAPES, Scripted, scripted_gradient
from levelbench.distributed.probes.gradients import shares
from levelbench.distributed.probes.runs import (
    Floats,
    RanksOutcome,
    Rehearsal,
    SchemeTrial,
    apart,
    evaluated,
    place,
    with_one_worker,
)
from levelbench.training.optimizers.base import Optimizer
from levelbench.training.optimizers.rules import SGD, Adam, Momentum

DRAWS = 320
"""Steps over which random compression is averaged."""
_WARM_UP, _BLOCK = 80, 20
_MOVES, _ELEMENTS = 3, 10
_BIAS, _ALIKE, _STAYS = 0.004, 0.5, 0.7
_OFTEN, _AGREE = 20, 8
_EARLY, _FADED = 10, 0.2
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
    if name := _whole(moves.sum(0), subject.seed, parts):
        found = f"it never moves, although others with smaller gradients move {_OFTEN} times and more"
        return failed(f"{place(ranks, None, None, name)}: {found}", _DO)
    if not subject.scheme.replicated and parts > 1 and (name := _kept_apart(outcome, subject.seed)):
        found = f"workers never agree on one element, although on smaller ones {_AGREE} times and more"
        return failed(f"{place(ranks, None, None, name)}: {found}", "bring all parameters together in turn")
    # What a threshold holds back may come in bursts, so that a longer run has to say the same.
    if _fades(path, subject.seed, parts) and (
        found := _fades(_path(subject.finished(replace(case, steps=_LONGER * DRAWS))), subject.seed, parts)
    ):
        return failed(f"{place(ranks)}: {found}", "take back nothing of what earlier gradients have moved")
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
        found = f"the mean update is {total:.4g} ± {error:.1g} times the mean gradient"
        return failed(f"{place(ranks)}: {found}", f"{_DO}; declare in most_weight() if its updates are to be smaller")
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


def _fades(path: Floats, seed: int, parts: int) -> str:
    """How the update along the mean gradient has become much smaller in the course of the run; empty if it has not."""
    along, late = _along(path, seed, parts), len(path) // 2
    first, last = float(along[_EARLY]) / _EARLY, float(along[-1] - along[-1 - late]) / late
    if not first > _FADED or last >= _FADED * first:
        return ""
    return f"the update per step falls from {first:.2g} to {last:.2g} times the mean gradient"


def _whole(moves: Floats, seed: int, parts: int) -> str:
    """A parameter of which no element ever moved, if most of the others often did; else empty.

    With a larger gradient than the least of an element that did, it is not held back because it is small.
    """
    drawn = [scripted_gradient(seed, rank, 1) for rank in range(parts)]
    sizes = np.max([np.abs(_flat(each)) for each in drawn], 0)
    names = np.repeat(list(SHAPES), [prod(shape) for shape in SHAPES.values()])
    often = moves >= _OFTEN
    for name in SHAPES:
        own = names == name
        if not moves[own].any() and 2 * often[~own].sum() >= (~own).sum() and sizes[own].max() > sizes[often].min():
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


def _along(path: Floats, seed: int, parts: int) -> Floats:
    """How far a path has gone along the workers' mean gradient of the first step, in units of it."""
    mean = np.mean([_flat(scripted_gradient(seed, rank, 1)) for rank in range(parts)], 0)
    return np.asarray(path @ mean / (mean @ mean))


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
    ranks, how = subject.most, "with the same gradients on all ranks"
    if not subject.scheme.lockstep:
        # More workers would update in the order of arrival.
        single = with_one_worker(subject, Rehearsal(2, _FEW))
        if not single:
            return not_tried("ranks are not in lockstep (lockstep = False), and two of them are not one worker")
        ranks, how = single[0], "with a single worker"
    if _distance(subject, ranks, SGD(RATE), False)[0] > _CLOSE:
        return not_tried(f"even {how} it is not one process")
    if _rests(subject, ranks):
        return not_tried("it does not update in every step, so a schedule and momentum mean something else")
    for with_what, optimizer, decays in _WITH:
        distance, name = _distance(subject, ranks, optimizer, decays)
        if not distance <= _CLOSE:
            do = "pass on each step's number and factor, and let the optimizer keep its state when models are averaged"
            found = f"with {with_what} and {how.removeprefix('with ')} it is {distance:.1e} away from one process"
            return failed(f"{place(ranks, 0, None, name)}: {found}; without, it is not", do)
    return passed(f"{how} it is one process, with a schedule, momentum and Adam")


def factor_of_the_rate(subject: SchemeTrial) -> Finding:
    """A factor of a quarter in every step is the same as a quarter of the optimizer's rate: it counts once."""
    if not subject.scheme.lockstep:
        return not_tried("ranks are not in lockstep (lockstep = False)")
    ranks, parts = subject.most, subject.scheme.workers(subject.most)
    case = Rehearsal(ranks, _FEW, sizes=(2 * parts,), decays=False)
    # Powers of two, so that the steps are equal to the last bit.
    ends = [
        subject.finished(replace(case, times=factor, optimizer=SGD(rate)))
        for factor, rate in ((0.25, RATE), (1.0, RATE / 4))
    ]
    if ends[0].workers[0].sent != ends[1].workers[0].sent:
        return not_tried("it sends at other steps at another rate")
    distance, name = apart(*(evaluated(each.workers[0]) for each in ends))
    if not distance <= _CLOSE:
        found = f"with a factor of 0.25 it is {distance:.1e} away from a quarter of the rate"
        do = "multiply by the step's factor once, and divide by it what is a step of before"
        return failed(f"{place(ranks, 0, None, name)}: {found}", do)
    return passed(f"{_FEW} steps with a factor of 0.25 are those at a quarter of the rate")


def _alike(subject: SchemeTrial, ranks: int, optimizer: Optimizer, decays: bool) -> Rehearsal:
    """A run in which all ranks have the same gradients."""
    parts = subject.scheme.workers(ranks)
    return Rehearsal(ranks, _FEW, optimizer=optimizer, decays=decays, alike=True, sizes=(2 * parts,))


def _rests(subject: SchemeTrial, ranks: int) -> bool:
    """Whether no weight of a worker moves in some step, as where gradients are added up over several steps."""
    outcome = subject.finished(_alike(subject, ranks, SGD(RATE), False))
    path = np.stack([_flat(each) for each in (outcome.workers[0].start, *outcome.workers[0].after)])
    return not bool((np.diff(path, axis=0) != 0).any(1).all())


def _distance(subject: SchemeTrial, ranks: int, optimizer: Optimizer, decays: bool) -> tuple[float, str]:
    case = _alike(subject, ranks, optimizer, decays)
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


_STRAY, _JUDGEABLE = 0.1, 0.2


def empty_parts(subject: SchemeTrial) -> Finding:
    """What a rank holds back arrives although it has no examples of every third batch.

    The sum of updates must be no further from that of the gradients than where all ranks always have examples.
    """
    if not subject.scheme.lockstep or subject.scheme.most_weight() != 1:
        return not_tried("not in lockstep, or its updates are no sums of gradients that weigh alike")
    ranks, parts = subject.ranks[0], subject.scheme.workers(subject.ranks[0])
    full = Rehearsal(ranks, DRAWS, sizes=(2 * parts,), decays=False, constant=True)
    usual = _stray(subject, full)
    if usual > _JUDGEABLE:
        return not_tried(f"even with examples on all ranks updates add up to within {usual:.0%} only")
    found = _stray(subject, replace(full, sizes=(2 * parts, 2 * parts, 1)))
    if not found <= _STRAY + 3 * usual:
        words = f"with a part that is empty in every third batch, updates are off by {found:.0%}, else by {usual:.1%}"
        return failed(f"{place(ranks)}: {words}", "keep what is held back where a rank has no examples, and send on")
    return passed(f"with parts that are empty in every third of {DRAWS} batches updates are off by {found:.1%}")


def _stray(subject: SchemeTrial, case: Rehearsal) -> float:
    """How far the sum of updates after the warm-up is from that of the weighted gradients, as a share of it.

    Apart from multiples of the last rank's gradient, which has all of a small batch: its weight may lag behind.
    """
    path, parts = _path(subject.finished(case)), subject.scheme.workers(case.ranks)
    weights = np.sum([shares(case, step, parts) for step in range(_WARM_UP + 1, case.steps + 1)], 0)
    drawn = [_flat(scripted_gradient(subject.seed, rank, 1)) for rank in range(parts)]
    right = np.sum([weight * each for weight, each in zip(weights, drawn, strict=True)], 0)
    away, last = path[-1] - path[_WARM_UP] - right, drawn[-1]
    return float(np.linalg.norm(away - (away @ last) / (last @ last) * last) / np.linalg.norm(right))


_TURNS, _AFTER = 80, 60
_FOLLOWS, _LIVELY = 0.2, 0.2


def slow_changes(subject: SchemeTrial) -> Finding:
    """Updates follow gradients that change a little from step to step, until they are the opposite of the first ones.

    Differences that are too small to be sent one by one add up.
    """
    if not subject.scheme.lockstep:
        return not_tried("ranks are not in lockstep (lockstep = False)")
    ranks, parts = subject.ranks[0], subject.scheme.workers(subject.ranks[0])
    case = Rehearsal(ranks, _TURNS + 2 * _AFTER, sizes=(2 * parts,), decays=False, constant=True, turns=_TURNS)
    path = _path(subject.finished(case))
    if (np.diff(path[-1 - _AFTER :], axis=0) != 0).mean() < _LIVELY:
        return not_tried("most of each step is held back")
    along = _along(path, subject.seed, parts)
    rate = float(along[-1] - along[-1 - _AFTER]) / _AFTER
    if not rate <= -_FOLLOWS:
        found = f"after gradients have slowly become -1 times the first ones, the mean update is {rate:.2g} times these"
        return failed(f"{place(ranks)}: {found}", "compare with what was sent last, and keep what is not sent")
    return passed(f"it follows gradients that become their opposite in {_TURNS} steps")


_CALM = 96


def no_gradients(subject: SchemeTrial) -> Finding:
    """Where all gradients are zero, all weights stay as they are: mixing, averaging and decompressing lose nothing."""
    if subject.scheme.most_weight() == inf:
        return not_tried("its updates are no sums of gradients (most_weight)")
    ranks, parts = subject.most, subject.scheme.workers(subject.most)
    outcome = subject.finished(Rehearsal(ranks, _CALM, sizes=(2 * parts,), decays=False, until=0, keeps=False))
    for trace in outcome.workers:
        for weights in (trace.final, evaluated(trace)):
            distance, name = apart(weights, trace.start)
            if not distance <= _CLOSE:
                found = f"after {_CALM} steps with gradients of zero it is {distance:.1e} away from where it started"
                do = "let mixing weights add up to 1, and send zeros as zeros"
                return failed(f"{place(ranks, trace.rank, None, name)}: {found}", do)
    return passed(f"{_CALM} steps with gradients of zero move nothing")


_STIRRED, _SETTLED = 16, 96
_TOGETHER, _APART = 0.1, 0.5


def comes_together(subject: SchemeTrial) -> Finding:
    """Once gradients are zero, workers' models approach each other, if those of some do: all are connected."""
    ranks, parts = subject.most, subject.scheme.workers(subject.most)
    if subject.scheme.replicated or parts < 3:
        return not_tried("all workers hold the same" if subject.scheme.replicated else f"there are {parts} workers")
    case = Rehearsal(ranks, _SETTLED, sizes=(2 * parts,), decays=False, until=_STIRRED, keeps=False)
    outcome = subject.finished(case)
    alone = [
        sum(_flat(scripted_gradient(subject.seed, rank, step)) for step in range(1, _STIRRED + 1))
        for rank in range(parts)
    ]
    left = {
        (one, other): float(
            np.linalg.norm(_flat(outcome.workers[one].final) - _flat(outcome.workers[other].final))
            / np.linalg.norm(RATE * (alone[one] - alone[other]))
        )
        for other in range(parts)
        for one in range(other)
    }
    near, far = min(left, key=left.__getitem__), max(left, key=left.__getitem__)
    if left[near] <= _TOGETHER and left[far] >= _APART:
        found = (
            f"the models of ranks {far[0]} and {far[1]} stay apart after gradients have become zero, "
            f"although those of ranks {near[0]} and {near[1]} meet"
        )
        return failed(
            f"{place(ranks)}: {found}", "let each rank exchange with others in turn, so that all are connected"
        )
    return passed(
        f"{_SETTLED - _STIRRED} steps after the last gradient models differ by {left[far]:.2g} of their paths"
    )


EXPECTATION = (
    right_on_average,
    equal_gradients,
    factor_of_the_rate,
    empty_parts,
    slow_changes,
    no_gradients,
    comes_together,
)
