"""Probes of a recipe at work: equal runs, evaluation, gradients, one batch learnt by heart, phases.

The one idea: each asks for something that must hold for any right recipe, whatever it trains, so nothing has to be
known of the task.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from levelbench.measure.clocks import HOST
from levelbench.measure.crossing import sign_of
from levelbench.measure.timeline import Phase, Timeline
from levelbench.training.quality import Quality
from levelbench.training.stopping import Evaluate, Stopping
from levelbench.training.trainer import Trainer
from levelbench.training.validation.bench import Bench, chance_loss, same
from levelbench.training.validation.coverage import covered
from levelbench.training.validation.probes import Finding, failed, noted, passed

__all__ = ["checkpoint", "determinism", "evaluation", "learning", "one_batch", "phases", "start", "updates"]

_STEPS = 3
_GENTLE = 0.1
_EXAMPLES = 16
_FACTORS = (1.0, 0.3, 3.0, 0.1, 10.0)
_MOST_STEPS = 150
_LEARNT = 0.1
_FALLING = 0.95
_FEW_STEPS = 20


def determinism(bench: Bench, seed: int) -> Iterator[Finding]:
    """Two runs of a seed are equal bit for bit, and one of another seed is not."""
    title, factor = "determinism", _GENTLE * bench.peak
    ends = []
    for each in (seed, seed, seed + 1):
        machine = bench.machine(each)
        losses = machine.train(_STEPS, factor)
        ends.append((losses, machine.state()))
    (first, state), (again, repeated), (other, _) = ends
    differing = same(state, repeated)
    if differing or not np.array_equal(first, again, equal_nan=True):
        found = f"two runs of seed {seed} part within {_STEPS} steps{f', at {differing}' if differing else ''}"
        do = "look for a draw that does not come from the seed: in the sampler, the augmentation, the optimizer"
        yield failed(title, found, do)
    else:
        yield passed(title, f"two runs of {_STEPS} steps are equal bit for bit")
    if np.array_equal(first, other, equal_nan=True):
        found = f"seeds {seed} and {seed + 1} give the same losses: five runs would be one run, five times"
        yield failed("another seed", found, "let weights and the order of examples depend on the seed")
    else:
        yield passed("another seed", "it gives another run")


def start(bench: Bench, seed: int) -> Iterator[Finding]:
    """An untrained network does not reach the target; the quality is on its scale, and of all examples."""
    title, quality = "untrained", bench.quality
    sign = sign_of(quality.direction)
    value, looked = covered(quality, bench.machine(seed).executor, bench.held(bench.dataset.validation))
    yield looked
    yield from _beside(bench, seed)
    values = [value]
    for each in (seed + 1, seed + 2):
        values.append(quality.measure(bench.machine(each).executor, bench.held(bench.dataset.validation)))
    shown = ", ".join(f"{value:.4g}" for value in values)
    yield _on_scale(quality, values)
    if any(sign * value >= sign * quality.target for value in values):
        found = f"without a step of training {quality.metric} is {shown}, and the target is {quality.target:g}"
        yield failed(title, found, "choose a target that has to be trained for, or look whether weights are trained")
    else:
        yield passed(title, f"{quality.metric} is {shown}, the target {quality.target:g}")


def _beside(bench: Bench, seed: int) -> Iterator[Finding]:
    """The figures beside the quality: of all examples, and on their scales."""
    for each in bench.also:
        value, looked = covered(each, bench.machine(seed).executor, bench.held(bench.dataset.validation))
        yield looked
        yield _on_scale(each, [value])


def _on_scale(quality: Quality, values: list[float]) -> Finding:
    off = [value for value in values if not quality.low <= value <= quality.high]
    if off:
        found = f"{quality.metric} measures {off[0]:.4g}, and its scale goes from {quality.low:g} to {quality.high:g}"
        return failed("scale", found, "correct the quality's measure, or its scale")
    return passed("scale", f"{quality.metric} is between {quality.low:g} and {quality.high:g}")


def evaluation(bench: Bench, seed: int) -> Iterator[Finding]:
    """Each figure answers alike twice, and leaves parameters, buffers and random draws as they were."""
    title, wrong = "evaluation", False
    for each in (bench.quality, *bench.also):
        found = _evaluated(bench, seed, each)
        if found:
            wrong = True
            yield failed(title, f"{each.metric}: {found[0]}", found[1])
    if not wrong:
        yield passed(title, "parameters, buffers and the draws of training are as they were")


def _evaluated(bench: Bench, seed: int, quality: Quality) -> tuple[str, str] | None:
    """What is wrong with measuring one figure, and what to do."""
    factor, looked = _GENTLE * bench.peak, bench.machine(seed)
    looked.train(1, factor)
    before = looked.state()
    held = bench.held(bench.dataset.validation)
    first = quality.measure(looked.executor, held)
    changed = same(before, looked.state())
    if changed:
        return f"it changes {changed}", "infer only in measure(): no forward(), no update, no training mode"
    again = quality.measure(looked.executor, held)
    if first != again and not (math.isnan(first) and math.isnan(again)):
        found = f"twice on the same weights it says {first!r} and {again!r}"
        return found, "measure all examples of the split, without random numbers"
    # Both machines draw from one generator, so each goes its whole way alone.
    bench.backend.seed(seed)
    looked = bench.machine(seed)
    losses = looked.train(1, factor)
    quality.measure(looked.executor, held)
    losses += looked.train(2, factor)
    straight = bench.machine(seed)
    if not np.array_equal(losses, straight.train(3, factor), equal_nan=True) or same(looked.state(), straight.state()):
        found = "training goes another way after an evaluation: it moves a generator, or something else that is kept"
        return found, "draw nothing in measure()"
    return None


def updates(bench: Bench, seed: int) -> Iterator[Finding]:
    """Every trainable parameter moves, and losses are finite."""
    title, machine = "updates", bench.machine(seed)
    before = machine.state()
    losses = machine.train(_STEPS, _GENTLE * bench.peak)
    after = machine.state()
    if not all(map(math.isfinite, losses)):
        shown = ", ".join(f"{loss:.4g}" for loss in losses)
        yield failed(title, f"the losses of the first steps are {shown}", "look at the data, the loss and the rate")
        return
    names = list(machine.executor.parameters)
    still = [name for name in names if np.array_equal(before[name], after[name])]
    if len(still) == len(names):
        yield failed(title, "no parameter moves", "look whether the optimizer writes to the parameters it is given")
    elif still:
        shown = ", ".join(still[:3]) + (", ..." if len(still) > 3 else "")
        found = f"{len(still)} of {len(names)} parameters do not move in {_STEPS} steps: {shown}"
        yield failed(title, found, "connect them to the loss, or make them no parameters (trainable=False)")
    else:
        yield passed(title, f"all {len(names)} parameters move")


def checkpoint(bench: Bench, seed: int) -> Iterator[Finding]:
    """An optimizer that goes on from its saved state takes the step that it would have taken."""
    title, factor = "optimizer state", _GENTLE * bench.peak
    machine = bench.machine(seed, plain=True)
    batch = bench.rows(_EXAMPLES)
    for _ in range(2):
        machine.step(batch, factor)
    kept, state = machine.state(), machine.stepper.state()
    host, array = bench.host, bench.backend.array
    gradients = {}
    machine.executor.forward(*batch)
    gradients = {name: host(value).copy() for name, value in machine.executor.backward().items()}
    other = bench.machine(seed, plain=True)
    other.executor.parameters.update({name: array(kept[name].copy()) for name in machine.executor.parameters})
    other.stepper.restore(state)
    for each in (machine, other):
        each.stepper.step({name: array(value.copy()) for name, value in gradients.items()}, 3, factor)
    ends = [{name: host(value).copy() for name, value in each.executor.parameters.items()} for each in (machine, other)]
    differing = same(*ends)
    if differing:
        found = f"after restore(state()) the next step of {differing} is another"
        yield failed(title, found, "keep all that the next step depends on in state(), and put it back in restore()")
    else:
        yield passed(title, f"{len(state)} arrays; the step after restoring them is equal bit for bit")


def one_batch(bench: Bench, seed: int, budget_s: float) -> Iterator[Finding]:
    """One batch can be learnt by heart: the loss falls to a tenth of where it began, above what it can fall to."""
    title, batch = "one batch", bench.rows(_EXAMPLES)
    floor, until = _floor(bench), HOST.now_ns() + round(budget_s * 1e9)
    best, first, spent = math.inf, math.nan, 0
    for factor in _FACTORS:
        machine = bench.machine(seed, plain=True)
        for step in range(_MOST_STEPS):
            loss = machine.step(batch, factor * bench.peak)
            first = loss if math.isnan(first) else first
            best, spent = min(best, loss), spent + 1
            if loss - floor <= _LEARNT * (first - floor):
                found = f"the loss of {len(batch[0])} examples falls from {first:.3g} to {loss:.3g} in {step} steps"
                yield passed(title, f"{found}, at {factor:g} times the rate")
                return
            if not math.isfinite(loss) or HOST.now_ns() > until:
                break
        if HOST.now_ns() > until:
            break
    share = (best - floor) / (first - floor) if first > floor else math.inf
    found = f"the loss of {len(batch[0])} examples falls from {first:.3g} to {best:.3g} at best, in {spent} steps"
    if HOST.now_ns() > until and (share < _FALLING or spent < _FEW_STEPS):
        # A slow or busy machine is no fault of the recipe's: only a loss that stays where it is accuses it.
        yield noted(title, f"{found}; there was no time for more", "give --seconds")
    elif share < 0.5:
        yield noted(title, found, "look whether the network is too small for the task, or regularised too much")
    else:
        do = "look at the loss, the sign and the rate of the optimizer's step, and whether labels are the right column"
        yield failed(title, found, do)


def _floor(bench: Bench) -> float:
    """What cross-entropy with smoothed labels falls to: the entropy of a label; else 0."""
    smoothing, classes = bench.plain.label_smoothing, bench.dataset.classes
    if not smoothing or classes < 2:
        return 0.0
    own, other = 1 - smoothing + smoothing / classes, smoothing / classes
    return -own * math.log(own) - (classes - 1) * other * math.log(other)


def learning(bench: Bench, seed: int, budget_s: float) -> Iterator[Finding]:
    """What is learnt in a short training helps on validation examples: inputs, labels and splits go together."""
    title, machine = "learning", bench.machine(seed, plain=True)
    held = bench.held(bench.dataset.validation)
    columns = next(iter(held.batches(256)))
    before = _loss(bench, machine.executor, columns)
    bar = before
    chance = chance_loss(bench.dataset)
    if chance is not None and not bench.recipe.network.loss and not bench.recipe.label_smoothing:
        bar = min(bar, chance)
    until, losses = HOST.now_ns() + round(budget_s * 1e9), list[float]()
    lowest = math.inf
    while len(losses) < 6 * _MOST_STEPS and HOST.now_ns() < until and (not losses or math.isfinite(losses[-1])):
        losses += machine.train(1, 0.3 * bench.peak)
        if len(losses) % 25 and HOST.now_ns() < until:
            continue
        lowest = min(lowest, _loss(bench, machine.executor, columns))
        if lowest < 0.9 * bar:
            found = f"in {len(losses)} steps the loss on validation examples falls from {before:.3g} to {lowest:.3g}"
            yield passed(title, found)
            return
    recent = float(np.mean(losses[-25:]))
    found = (
        f"in {len(losses)} steps the loss falls from {losses[0]:.3g} to {recent:.3g} on training examples, and on "
        f"validation examples from {before:.3g} to {lowest:.3g} at best, where {bar:.3g} needs nothing learnt"
    )
    if recent < 0.7 * min(losses[0], bar) and lowest > 0.97 * bar:
        do = "look whether each label stands beside its own input, and both splits are made alike"
        yield failed(title, found, do)
    else:
        yield noted(title, found, "it may need more steps than a check takes: give --seconds, or train it")


def _loss(bench: Bench, executor: Any, columns: tuple[Any, ...]) -> float:
    """The training loss of a batch. It moves running statistics, as a step does; nothing else."""
    return float(bench.host(executor.forward(*columns)))


def phases(bench: Bench, seed: int) -> Iterator[Finding]:
    """A short run of the trainer: its phases are closed, and sum to the time that has passed."""
    title, quality = "phases", bench.quality
    timeline = Timeline(bench.backend.clock())
    per_epoch = bench.recipe.sampler.steps(bench.dataset.train)
    stopping = Stopping(quality.as_target(), "sustained", Evaluate(2, "step"), min(1.0, 4 / per_epoch))
    trainer = Trainer(bench.backend, bench.dataset, bench.recipe, quality, stopping, seed=seed, timeline=timeline)
    outcome = trainer.run()
    # The clock goes on while it is read, and on a busy machine by more than any tolerance.
    before_ns, totals, after_ns = timeline.elapsed_ns(), timeline.totals_ns(), timeline.elapsed_ns()
    uneven = [each for each in outcome.evaluations if sum(each.phases_ns.values()) != each.t_ns]
    if uneven:
        yield failed(title, f"at step {uneven[0].step} they do not sum up", "leave the timeline to the trainer")
    elif timeline.current is not Phase.OTHER:
        found = f"the run ends in phase {timeline.current.label}"
        yield failed(title, found, "leave the timeline to the trainer")
    elif not 0.99 * before_ns - 1_000_000 <= sum(totals.values()) <= 1.01 * after_ns + 1_000_000:
        yield failed(title, "they do not sum to the time that has passed", "leave the timeline to the trainer")
    else:
        shown = ", ".join(name for name, ns in totals.items() if ns)
        yield passed(title, f"closed and summing up, over {outcome.evaluations[-1].step} steps: {shown}")
