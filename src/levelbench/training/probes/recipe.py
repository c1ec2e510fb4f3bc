"""Checks whether a recipe is right and well-formed, in seconds, on the framework that it is to run on.

A recipe that trains to a good figure can still be wrong (an evaluation that trains, a sampler that repeats itself, a
gradient that is off by a factor), and a single run shows none of that. Each is tested separately, as a property of any
correct recipe, whatever it trains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from levelbench.checks.arrays import Host
from levelbench.checks.findings import Finding, Probe, Report, failed, merged, not_tried, noted, passed, run_probes
from levelbench.measure.clocks import HOST
from levelbench.measure.crossing import sign_of
from levelbench.measure.timeline import Phase, Timeline
from levelbench.networks.executor import Array, Backend, Executor
from levelbench.networks.native import NativeNetwork
from levelbench.networks.probes import compare_network
from levelbench.training.datasets.base import Dataset
from levelbench.training.probes import loss, recipe_parts
from levelbench.training.probes.bench import Bench, chance_loss, first_difference, measure_coverage, same_numbers
from levelbench.training.probes.quality import qualities
from levelbench.training.quality import Quality
from levelbench.training.stopping import Evaluate, Stopping
from levelbench.training.task import Setting, Task
from levelbench.training.trainer import Accumulating, Trainer

_NOTHING: Mapping[str, Setting] = MappingProxyType({})


def check_recipe(
    task: Task,
    name: str,
    dataset: Dataset,
    backend: Backend,
    *,
    framework: str = "",
    given: Mapping[str, Setting] = _NOTHING,
    reference: Backend | None = None,
    seed: int = 0,
    seconds: float = 10.0,
    tell: Callable[[str], None] = lambda _: None,
) -> Report:
    """Probe recipe ``name`` of a task on a backend; settings in ``given`` replace its defaults.

    ``reference`` is the backend to compare gradients with (``None``: no comparison, as ``framework`` is the reference).
    ``seconds`` limits each of the two training runs that test whether a batch, and the task, can be learnt.
    """
    settings = task.settings(name, given)
    title = f"{task.name}[recipe={name}]"
    head: list[Probe] = [("settings", lambda: recipe_parts.settings(task, name, settings))]
    found = run_probes(title, head, tell)
    if any(each.found.startswith("recipe") and "docstring" not in each.found for each in found.failed):
        return replace(found, framework=framework)
    recipe = task.assemble(name, settings)
    bench = Bench(recipe, dataset, backend, task.quality, task.also)
    parts: list[Probe] = [
        ("schedule", lambda: recipe_parts.schedule(recipe)),
        ("sampler", lambda: recipe_parts.sampler(recipe, dataset.train, seed)),
        ("averaged weights", lambda: recipe_parts.averaged(recipe, dataset.train)),
        ("augmentation", lambda: recipe_parts.augmentation(recipe, dataset, seed)),
        ("mixing", lambda: recipe_parts.mixing(recipe, dataset, seed)),
        ("batches", lambda: recipe_parts.batches(bench, seed)),
        ("inputs", lambda: recipe_parts.fits(bench, seed)),
    ]
    # Parts that do not fit cannot be run.
    fitting = run_probes(title, parts, tell)
    runs: list[Probe] = [
        ("quality", lambda: qualities(bench, seed)),
        ("untrained", lambda: _untrained(bench, seed)),
        ("outputs apart", lambda: loss.outputs(bench, seed)),
        ("running statistics", lambda: loss.statistics(bench, seed)),
        ("loss", lambda: loss.loss(bench, seed)),
        ("gradient", lambda: _gradient(bench, seed)),
        ("reference", lambda: _reference(bench, seed, framework, reference)),
        ("precision", lambda: _precision(bench, seed)),
        ("accumulation", lambda: accumulation(bench, seed)),
        ("updates", lambda: _updates(bench, seed)),
        ("determinism", lambda: _determinism(bench, seed)),
        ("evaluation", lambda: _evaluation(bench, seed)),
        ("optimizer state", lambda: _checkpoint(bench, seed)),
        ("weight decay", lambda: _decay(bench, seed)),
        ("one batch", lambda: one_batch(bench, seed, seconds)),
        ("learning", lambda: _learning(bench, seed, seconds)),
        ("loss and quality", lambda: loss.means_quality(bench, seed, seconds)),
        ("phases", lambda: _phases(bench, seed)),
    ]
    stopped = any(each.probe in ("inputs", "schedule") for each in fitting.failed)
    worked = run_probes(title, [] if stopped else runs, tell)
    return Report(title, merged((*found.findings, *fitting.findings, *worked.findings)), framework)


_STEPS = 3
_GENTLE = 0.1
_EXAMPLES = 16
_MOST_ROWS, _TELLS = 64, 1.25
_FACTORS = (1.0, 0.3, 3.0, 0.1, 10.0)
_MOST_STEPS = 150
_LEARNT = 0.1
_FALLING = 0.95
_FEW_STEPS = 20
_DECAYING, _MOST_DECAY = 10, 0.02


def _determinism(bench: Bench, seed: int) -> Iterator[Finding]:
    """Two runs of a seed are bitwise equal, and a run of another seed is not."""
    factor = _GENTLE * bench.peak
    ends = []
    for each in (seed, seed, seed + 1):
        training = bench.start_training(each)
        began = {name: bench.host(value).copy() for name, value in training.executor.parameters.items()}
        losses = training.train(_STEPS, factor)
        ends.append((losses, training.state(), began))
    (first, state, began), (again, repeated, _), (other, _, otherwise) = ends
    differing = first_difference(state, repeated)
    if differing or not np.array_equal(first, again, equal_nan=True):
        found = f"two runs of seed {seed} differ within {_STEPS} steps{f', in {differing}' if differing else ''}"
        do = "look for random numbers that ignore the seed: in the sampler, the augmentation, the optimizer"
        yield failed(found, do)
    else:
        yield passed(f"two runs of {_STEPS} steps are bitwise equal")
    if np.array_equal(first, other, equal_nan=True):
        found = f"seeds {seed} and {seed + 1} give the same losses: five runs would be the same run five times"
        yield failed(found, "let weights and the order of examples depend on the seed", probe="another seed")
        return
    given = [name for name, value in began.items() if same_numbers(value, otherwise[name])]
    if not given:
        yield passed("it gives a different run", probe="another seed")
        return
    found = f"the initial values of {given[0]} are those of seed {seed}"
    if first_difference(began, otherwise) or _fits_labels(bench, seed):
        yield noted(f"{found}, as if they were trained before", "say so in the description", probe="another seed")
    else:
        do = "draw weights from the run's seed: no manual_seed() in the network's function, which may take seed"
        yield failed(f"all runs start from the same weights: {found}", do, probe="another seed")


def _fits_labels(bench: Bench, seed: int) -> bool:
    """Whether the loss before training tells right labels from others, as it does after it."""
    executor, batch = bench.executor(bench.plain, seed), [bench.host(each) for each in bench.rows(_MOST_ROWS)]
    targets = bench.dataset.train.targets
    labels = [np.roll(each, len(each) // 2, axis=0) for each in batch[-targets:]]
    own, other = (
        _loss(bench, executor, tuple(map(bench.backend.array, each))) for each in (batch, [*batch[:-targets], *labels])
    )
    return other > _TELLS * own


def _untrained(bench: Bench, seed: int) -> Iterator[Finding]:
    """An untrained network does not reach the target; the quality is on its scale and uses all examples."""
    quality = bench.quality
    sign = sign_of(quality.direction)
    value, looked = measure_coverage(quality, bench.start_training(seed).executor, bench.held(bench.dataset.validation))
    yield looked
    for each in bench.also:
        figure, looked = measure_coverage(
            each, bench.start_training(seed).executor, bench.held(bench.dataset.validation)
        )
        yield looked
        yield _on_scale(each, [figure])
    values = [value]
    for other in (seed + 1, seed + 2):
        values.append(quality.measure(bench.start_training(other).executor, bench.held(bench.dataset.validation)))
    shown = ", ".join(f"{value:.4g}" for value in values)
    yield _on_scale(quality, values)
    if any(sign * value >= sign * quality.target for value in values):
        found = f"without a step of training {quality.metric} is {shown}, and the target is {quality.target:g}"
        yield failed(found, "choose a target that needs training, or check whether the weights are already trained")
    else:
        yield passed(f"{quality.metric} is {shown}, the target {quality.target:g}")


def _on_scale(quality: Quality, values: list[float]) -> Finding:
    off = [value for value in values if not quality.low <= value <= quality.high]
    if off:
        found = f"{quality.metric} measures {off[0]:.4g}, outside its scale of {quality.low:g} to {quality.high:g}"
        return failed(found, "correct the quality's measure, or its scale", probe="scale")
    return passed(f"{quality.metric} is between {quality.low:g} and {quality.high:g}", probe="scale")


def _evaluation(bench: Bench, seed: int) -> Iterator[Finding]:
    """Each quality gives the same value twice, and leaves parameters, buffers and random generators unchanged."""
    wrong = False
    for each in (bench.quality, *bench.also):
        found = _evaluation_fault(bench, seed, each)
        if found:
            wrong = True
            yield failed(f"{each.metric}: {found[0]}", found[1])
    if not wrong:
        yield passed("parameters, buffers and random generators are unchanged")


def _evaluation_fault(bench: Bench, seed: int, quality: Quality) -> tuple[str, str] | None:
    """What is wrong with measuring one quality, and what to do."""
    factor, looked = _GENTLE * bench.peak, bench.start_training(seed)
    looked.train(1, factor)
    before = looked.state()
    held = bench.held(bench.dataset.validation)
    first = quality.measure(looked.executor, held)
    changed = first_difference(before, looked.state())
    if changed:
        return f"it changes {changed}", "only infer in measure(): no forward(), no update, no training mode"
    again = quality.measure(looked.executor, held)
    if first != again and not (math.isnan(first) and math.isnan(again)):
        found = f"measured twice on the same weights it is {first!r} and {again!r}"
        return found, "measure all examples of the split, without random numbers"
    # Both share one random generator, so each trains from start to end by itself.
    bench.backend.seed(seed)
    looked = bench.start_training(seed)
    # Before the first step, too: what is set up with the first batch must not come from the validation split.
    quality.measure(looked.executor, held)
    losses = looked.train(1, factor)
    quality.measure(looked.executor, held)
    losses += looked.train(2, factor)
    uninterrupted = bench.start_training(seed)
    if not np.array_equal(losses, uninterrupted.train(3, factor), equal_nan=True) or first_difference(
        looked.state(), uninterrupted.state()
    ):
        found = "training differs after an evaluation: it advances a generator, or changes other state"
        return found, "use no random numbers in measure(), and let the network keep nothing of what it infers"
    return None


_IS_ROUNDING = 1e-6
"""A gradient whose largest element is this small beside that of all parameters."""


def _alike(weights: Host) -> bool:
    """Whether a matrix or kernel has several rows, and all are equal."""
    return weights.ndim > 1 and len(weights) > 1 and bool((weights == weights[:1]).all())


def _updates(bench: Bench, seed: int) -> Iterator[Finding]:
    """Every trainable parameter moves, and losses are finite."""
    training = bench.start_training(seed)
    before = training.state()
    losses = training.train(_STEPS, _GENTLE * bench.peak)
    after = training.state()
    if not all(map(math.isfinite, losses)):
        shown = ", ".join(f"{loss:.4g}" for loss in losses)
        yield failed(f"the losses of the first steps are {shown}", "check the data, the loss and the rate")
        return
    names = list(training.executor.parameters)
    if lost := training.executor.unregistered(*bench.rows(_EXAMPLES)):
        shown = ", ".join("x".join(map(str, shape)) or "one number" for shape in lost[:3])
        found = f"nothing trains {len(lost)} tensors ({shown}) that the loss depends on, as they are no parameters"
        do = "register them (nn.Parameter, nn.ModuleList instead of a list), or freeze them: requires_grad_(False)"
        yield failed(found, do)
        return
    if twins := [name for name in names if _alike(after[name]) and not np.array_equal(before[name], after[name])]:
        found = f"all rows of {twins[0]} are equal, before and after {_STEPS} steps: its units learn the same for ever"
        yield failed(found, "draw initial weights at random, so that units differ")
        return
    still = [name for name in names if np.array_equal(before[name], after[name])]
    other = bench.start_training(seed + 1).state()
    kept = [name for name in after if name not in names and np.array_equal(before[name], after[name])
            and not np.array_equal(after[name], other[name])]  # fmt: skip
    if kept:
        found = f"{kept[0].removeprefix('buffer ')} keeps what was drawn from the seed, as it is not trained"
        yield noted(found, "train it, unless random features are intended")
    gradients = training.gradients() if still else {}
    # A bias before a normalisation has no effect, and its gradient is rounding.
    sizes = {name: float(np.abs(each).max(initial=0.0)) for name, each in gradients.items()}
    least = _IS_ROUNDING * max(sizes.values(), default=0.0)
    tiny = [name for name in still if 0.0 < sizes.get(name, 0.0) < least]
    if len(still) < len(names):
        still = [name for name in still if name not in tiny]
    if tiny and not still:
        shown = ", ".join(tiny[:3]) + (", ..." if len(tiny) > 3 else "")
        found = (
            f"{len(tiny)} of {len(names)} parameters do not move, as their gradients are smaller than rounding: {shown}"
        )
        yield noted(found, "leave out a bias before a normalisation, or raise the rate")
    elif len(still) == len(names):
        yield failed("no parameter moves", "check whether the optimizer writes to the parameters it is given")
    elif still:
        shown = ", ".join(still[:3]) + (", ..." if len(still) > 3 else "")
        found = f"{len(still)} of {len(names)} parameters do not move in {_STEPS} steps: {shown}"
        yield failed(found, "connect them to the loss, or set trainable=False")
    else:
        yield passed(f"all {len(names)} parameters move")


def _decay(bench: Bench, seed: int) -> Iterator[Finding]:
    """At the highest rate, what pulls weights to 0 leaves a gradient some tens of steps to act."""
    training = bench.start_training(seed, plain=True)
    live, host = training.executor.parameters, bench.host
    sizes = []
    for step in range(_DECAYING + 1):
        sizes.append(math.sqrt(sum(float(np.square(host(each).astype(np.float64)).sum()) for each in live.values())))
        zeros = {name: bench.backend.array(np.zeros_like(host(each))) for name, each in live.items()}
        training.stepper.step(zeros, step + 1, bench.peak)
    shrunk = 1 - (sizes[-1] / sizes[0]) ** (1 / _DECAYING) if sizes[0] > 0 else 0.0
    if shrunk > _MOST_DECAY:
        found = f"without gradients a step at the highest rate shrinks the weights by {shrunk:.1%}"
        yield failed(found, "lower the weight decay: the rate times it is usually below 0.1 %")
    elif math.isfinite(shrunk):
        yield passed(f"{max(0.0, shrunk):.2g} of the weights in a step")


def _checkpoint(bench: Bench, seed: int) -> Iterator[Finding]:
    """An optimizer restored from its saved state takes the same step as without the interruption."""
    factor = _GENTLE * bench.peak
    training = bench.start_training(seed, plain=True)
    batch = bench.rows(_EXAMPLES)
    for _ in range(2):
        training.step(batch, factor)
    kept, state = training.state(), training.stepper.state()
    host, array = bench.host, bench.backend.array
    gradients = {}
    training.executor.forward(*batch)
    gradients = {name: host(value).copy() for name, value in training.executor.backward().items()}
    other = bench.start_training(seed, plain=True)
    other.executor.parameters.update({name: array(kept[name].copy()) for name in training.executor.parameters})
    other.stepper.restore(state)
    for each in (training, other):
        each.stepper.step({name: array(value.copy()) for name, value in gradients.items()}, 3, factor)
    ends = [
        {name: host(value).copy() for name, value in each.executor.parameters.items()} for each in (training, other)
    ]
    differing = first_difference(*ends)
    if differing:
        found = f"after restore(state()) the next step of {differing} differs"
        yield failed(
            found, "return everything that the next step depends on from state(), and put it back in restore()"
        )
    else:
        yield passed(f"{len(state)} arrays; the step after restoring them is bitwise equal")


def one_batch(bench: Bench, seed: int, budget_s: float) -> Iterator[Finding]:
    """One batch can be memorised: the loss falls to a tenth of its start, measured from the lowest possible loss."""
    batch = bench.rows(_EXAMPLES)
    floor, until = _lowest_loss(bench), HOST.now_ns() + round(budget_s * 1e9)
    best, first, spent = math.inf, math.nan, 0
    for factor in _FACTORS:
        training = bench.start_training(seed, plain=True)
        for step in range(_MOST_STEPS):
            loss = training.step(batch, factor * bench.peak)
            first = loss if math.isnan(first) else first
            best, spent = min(best, loss), spent + 1
            if loss - floor <= _LEARNT * (first - floor):
                found = f"the loss of {len(batch[0])} examples falls from {first:.3g} to {loss:.3g} in {step} steps"
                yield passed(f"{found}, at {factor:g} times the rate")
                return
            if not math.isfinite(loss) or HOST.now_ns() > until:
                break
        if HOST.now_ns() > until:
            break
    share = (best - floor) / (first - floor) if first > floor else math.inf
    found = f"the loss of {len(batch[0])} examples falls from {first:.3g} to {best:.3g} at best, in {spent} steps"
    if HOST.now_ns() > until and (share < _FALLING or spent < _FEW_STEPS):
        # The machine may be slow or busy: only a loss that does not move counts against the recipe.
        yield noted(f"{found}; there was no time for more", "give --seconds")
    elif share < 0.5:
        yield noted(found, "check whether the network is too small for the task, or regularised too much")
    else:
        do = "check the loss, the sign and rate of the optimizer's step, and whether labels are the right column"
        yield failed(found, do)


def _lowest_loss(bench: Bench) -> float:
    """The lowest cross-entropy with smoothed labels, which is the entropy of a label; else 0."""
    smoothing, classes = bench.plain.label_smoothing, bench.dataset.classes
    if not smoothing or classes < 2:
        return 0.0
    own, other = 1 - smoothing + smoothing / classes, smoothing / classes
    return -own * math.log(own) - (classes - 1) * other * math.log(other)


def _learning(bench: Bench, seed: int, budget_s: float) -> Iterator[Finding]:
    """A short training run helps on validation examples: inputs, labels and splits belong together."""
    training = bench.start_training(seed, plain=True)
    held = bench.held(bench.dataset.validation)
    columns = next(iter(held.batches(256)))
    before = _loss(bench, training.executor, columns)
    bar = before
    chance = chance_loss(bench.dataset)
    if chance is not None and not bench.recipe.network.has_loss and not bench.recipe.label_smoothing:
        bar = min(bar, chance)
    until, losses = HOST.now_ns() + round(budget_s * 1e9), list[float]()
    lowest = math.inf
    while len(losses) < 6 * _MOST_STEPS and HOST.now_ns() < until and (not losses or math.isfinite(losses[-1])):
        losses += training.train(1, 0.3 * bench.peak)
        if len(losses) % 25 and HOST.now_ns() < until:
            continue
        lowest = min(lowest, _loss(bench, training.executor, columns))
        if lowest < 0.9 * bar:
            found = f"in {len(losses)} steps the loss on validation examples falls from {before:.3g} to {lowest:.3g}"
            yield passed(found)
            return
    recent = float(np.mean(losses[-25:]))
    found = (
        f"in {len(losses)} steps the loss falls from {losses[0]:.3g} to {recent:.3g} on training examples, and on "
        f"validation examples from {before:.3g} to {lowest:.3g} at best, where {bar:.3g} needs no learning"
    )
    if recent < 0.7 * min(losses[0], bar) and lowest > 0.97 * bar:
        do = "check whether labels belong to their inputs, and both splits are made the same way"
        yield failed(found, do)
    else:
        yield noted(found, "it may need more steps than a check takes: give --seconds, or train it")


def _loss(bench: Bench, executor: Executor, columns: tuple[Array, ...]) -> float:
    """The training loss of a batch. It updates running statistics, as a step does, but nothing else."""
    return float(bench.host(executor.forward(*columns)))


def _phases(bench: Bench, seed: int) -> Iterator[Finding]:
    """A short run of the trainer: its phases end, and add up to the elapsed time."""
    quality = bench.quality
    timeline = Timeline(bench.backend.clock())
    per_epoch = bench.recipe.sampler.steps(bench.dataset.train)
    stopping = Stopping(quality.as_target(), "sustained", Evaluate(2, "step"), min(1.0, 4 / per_epoch))
    trainer = Trainer(bench.backend, bench.dataset, bench.recipe, quality, stopping, seed=seed, timeline=timeline)
    outcome = trainer.run()
    # The clock runs while it is read; on a busy machine the difference exceeds any tolerance.
    before_ns, totals, after_ns = timeline.elapsed_ns(), timeline.totals_ns(), timeline.elapsed_ns()
    uneven = [each for each in outcome.evaluations if sum(each.phases_ns.values()) != each.t_ns]
    if uneven:
        yield failed(f"at step {uneven[0].step} they do not add up", "leave the timeline to the trainer")
    elif timeline.current is not Phase.OTHER:
        found = f"the run ends in phase {timeline.current.label}"
        yield failed(found, "leave the timeline to the trainer")
    elif not 0.99 * before_ns - 1_000_000 <= sum(totals.values()) <= 1.01 * after_ns + 1_000_000:
        yield failed("they do not add up to the elapsed time", "leave the timeline to the trainer")
    else:
        shown = ", ".join(name for name, ns in totals.items() if ns)
        yield passed(f"ended and adding up, over {outcome.evaluations[-1].step} steps: {shown}")


_COMPARED = 8
_BLOCKS = 8
_CHANGES = (1e-2, 3e-3, 1e-3, 3e-2)
# Finite differences in float32 of a loss with kinks: a wrong factor, a wrong sign or a missing term is far beyond this.
_TOLERANCE = 0.1
_MOST_FLOPS = 5e9
_ROUNDING = 0.05
_ALIGNED = 0.9
_ACCUMULATED = 16
_MOST_BATCHES = 4
_ADDED_UP = 0.01
_APART = ("BatchNormalization", "Dropout")
"""These give something else for several batches than for one, as they should."""


def _gradient(bench: Bench, seed: int) -> Iterator[Finding]:
    """The slope of the loss along each parameter's gradient, the largest first, against the gradient's norm.

    Finite differences in float32 with four step sizes; the best has to agree within 10 %.
    """
    batch = bench.rows(_COMPARED)
    executor = bench.executor(bench.plain, seed)

    def measured() -> float:
        # Dropout must use the same random numbers each time.
        bench.backend.seed(seed)
        return float(bench.host(executor.forward(*batch)))

    _perturb(bench, executor, seed)
    base = measured()
    gradients = {name: bench.host(value).astype(np.float64) for name, value in executor.backward().items()}
    norms = {name: float(np.linalg.norm(value)) for name, value in gradients.items()}
    whole = math.sqrt(sum(norm**2 for norm in norms.values()))
    if not math.isfinite(whole) or not whole > 0:
        yield failed(f"its norm is {whole:.4g}", "check whether the loss is finite and depends on the parameters")
        return
    largest = sorted((name for name in norms if norms[name] > 0.01 * whole), key=lambda name: -norms[name])[:_BLOCKS]
    wrong: list[tuple[float, str]] = []
    for name in largest:
        direction, off = gradients[name] / norms[name], math.inf
        for step in _CHANGES:
            off = min(off, _off(bench, executor, measured, name, direction, step * max(abs(base), 1e-2), norms[name]))
            if off <= _TOLERANCE:
                break
        else:
            wrong.append((off, name))
    if wrong:
        off, name = max(wrong)
        found = f"along the gradient of {name} the slope of the loss differs from the gradient's norm by {off:.0%}"
        yield failed(found, "correct the operator's backward pass; levelbench check MODEL names it")
    else:
        yield passed(f"of {len(largest)} parameters, compared with finite differences of the loss")


def _perturb(bench: Bench, executor: Executor, seed: int) -> None:
    """Move all parameters a little: with biases of exactly zero, whole backgrounds are at the kink of a ReLU."""
    random, parameters = np.random.default_rng(seed), executor.parameters
    for name in list(parameters):
        value = bench.host(parameters[name])
        noise = 0.05 * max(float(np.std(value)), 0.1) * random.standard_normal(value.shape)
        parameters[name] = bench.backend.array((value + noise).astype(value.dtype))


def _off(
    bench: Bench,
    executor: Executor,
    loss: Callable[[], float],
    name: str,
    direction: NDArray[np.float64],
    change: float,
    norm: float,
) -> float:
    """The relative error of the slope, with a step that should change the loss by ``change``.

    At a kink of the loss (many ReLUs at zero at once, as a bias moves), any slope between the left and the right one is
    a valid gradient.
    """
    host, array, parameters = bench.host, bench.backend.array, executor.parameters
    kept = host(parameters[name]).copy()
    step = change / norm
    ends = []
    for times in (-1, 0, 1):
        parameters[name] = array((kept + times * step * direction).astype(kept.dtype))
        ends.append(loss())
    parameters[name] = array(kept)
    left, right = (ends[1] - ends[0]) / step, (ends[2] - ends[1]) / step
    middle = (left + right) / 2
    if not math.isfinite(middle):
        return math.inf
    outside = max(min(left, right) - norm, norm - max(left, right), 0.0)
    return float(min(abs(middle - norm), outside) / norm)


def _reference(bench: Bench, seed: int, name: str, reference: Backend | None) -> Iterator[Finding]:
    """Loss, outputs and gradients compared with the reference framework's, by tensor, on examples of the data."""
    if reference is None:
        yield not_tried(f"{name} is the reference; see 'gradient'")
        return
    network, drawn = bench.plain.trained_network(), bench.plain.network
    if isinstance(network, NativeNetwork) or isinstance(drawn, NativeNetwork):
        yield not_tried(f"{network.name} is native to {name}, so no other framework has it; see 'gradient'")
        return
    flops = _COMPARED * bench.flops
    if flops > _MOST_FLOPS:
        found = f"{flops:.2g} operations are too many for the reference, which is built to be right, not fast"
        yield not_tried(found, "levelbench check MODEL compares networks")
        return
    batch = [bench.host(each) for each in bench.rows(_COMPARED)]
    inputs = {value.name: array for value, array in zip(network.inputs, batch, strict=True)}
    weights = drawn.initialise(seed)
    compared = compare_network(network, {name: bench.backend}, reference, inputs, weights, locate=False)
    (backend,) = compared.backends
    if backend.lacks:
        yield not_tried(backend.lacks)
    elif backend.raised:
        yield failed(f"{name} raises {backend.raised}", "fix the cause of the error")
    elif backend.wrong:
        first = backend.wrong[0]
        more = f"; and {len(backend.wrong) - 1} more tensors" if len(backend.wrong) > 1 else ""
        do = "levelbench check MODEL names the operator where the two diverge"
        yield failed(f"{name} and numpy differ in {first.kind} {first.detail}{more}", do)
    else:
        agree = sum(each.status == "agrees" for each in backend.tensors)
        yield passed(f"{agree} of {len(backend.tensors)} tensors agree with numpy's")
        if rounding := [each.name for each in backend.tensors if each.status == "rounding"]:
            yield noted(f"{', '.join(rounding[:3])} differ by rounding")


def _precision(bench: Bench, seed: int) -> Iterator[Finding]:
    """The recipe's own precision, layout and mode give the loss and gradient of float32 up to rounding."""
    own = bench.whole
    plain = replace(bench.plain, precision=own.precision, channels_last=own.channels_last, mode=own.mode)
    if plain == bench.plain:
        return
    batch, ends = bench.rows(_COMPARED), []
    for recipe in (bench.plain, plain):
        executor = bench.executor(recipe, seed)
        bench.backend.seed(seed)
        loss = float(bench.host(executor.forward(*batch)))
        ends.append((loss, _flat(bench, executor.backward())))
    (exact, slope), (loss, other) = ends
    cosine = float(slope @ other / max(float(np.linalg.norm(slope) * np.linalg.norm(other)), 1e-300))
    layout = " and channels last" if own.channels_last else ""
    found = f"in {own.precision}{layout} the loss is {loss:.4g} where float32 has {exact:.4g}"
    found += f", and the cosine between the gradients is {cosine:.4f}"
    if math.isfinite(loss) and abs(loss - exact) <= _ROUNDING * max(abs(exact), 0.1) and cosine >= _ALIGNED:
        yield passed(found)
    else:
        yield failed(found, "compute in float32 what overflows or cancels, or train in float32")


def _flat(bench: Bench, gradients: Mapping[str, Array]) -> NDArray[np.float64]:
    return np.concatenate([bench.host(gradients[name]).astype(np.float64).ravel() for name in sorted(gradients)])


def accumulation(bench: Bench, seed: int) -> Iterator[Finding]:
    """Several batches, of unequal sizes, give the gradient of one batch of all their examples."""
    recipe = bench.plain
    if bench.whole.accumulate == 1:
        return
    network = recipe.trained_network()
    if isinstance(network, NativeNetwork):
        yield not_tried(f"it is unknown whether {network.name} treats examples independently")
        return
    apart = [each for each in _APART if any(node.op_type == each for node in network.nodes)]
    if apart:
        found = f"not compared with one large batch: {' and '.join(apart)} depends on the batch"
        yield noted(found)
        return
    batch = bench.rows(_ACCUMULATED)
    rows = len(batch[0])
    count = min(bench.whole.accumulate, _MOST_BATCHES, rows)
    if count < 2:
        yield not_tried(f"{rows} example cannot be split into batches")
        return
    # The last is half as large as the others, as at the end of an epoch.
    bounds = [min(rows, round(at * 2 * rows / (2 * count - 1))) for at in range(count + 1)]
    group = [tuple(column[start:stop] for column in batch) for start, stop in pairwise(bounds)]
    ends = []
    for batches in ([batch], group):
        turn = Accumulating(bench.executor(recipe, seed), Timeline(bench.backend.clock()))
        loss = float(bench.host(turn.forward(*batches)))
        ends.append((loss, _flat(bench, turn.backward())))
    (whole, slope), (loss, other) = ends
    off = float(np.linalg.norm(other - slope) / max(float(np.linalg.norm(slope)), 1e-300))
    sizes = ", ".join(str(stop - start) for start, stop in pairwise(bounds))
    found = f"batches of {sizes} give a loss of {loss:.4g}, one of {rows} gives {whole:.4g}; the gradients are"
    found += f" {off:.1e} of their norm apart"
    if off <= _ADDED_UP and abs(loss - whole) <= _ADDED_UP * max(abs(whole), 0.1):
        yield passed(found)
    else:
        do = "make the loss a mean over independent examples, and backward() the gradient of one batch alone"
        yield failed(found, do)
