"""Probes of a recipe's parts: settings, schedule, sampler, augmentations, batches and how they fit together."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from itertools import pairwise
from types import FunctionType

import numpy as np
from numpy.typing import NDArray

from levelbench.checks.arrays import Host
from levelbench.checks.findings import Finding, failed, not_tried, noted, passed
from levelbench.networks.native import NativeNetwork
from levelbench.training.augmentation import Augmentation
from levelbench.training.datasets.base import Dataset, Split
from levelbench.training.optimizers.wrappers import EMA, Native
from levelbench.training.probes.bench import Bench, part_of
from levelbench.training.samplers import Sampler
from levelbench.training.task import Recipe, Setting, Task

_GRID = 1001
_LARGEST_FACTOR = 1.0 + 1e-9
_MOST_SMOOTHED = 0.5
_ENOUGH = 24
_EPOCHS, _SHORT = 12, 100_000
_SPANS = 10.0
_DRAWS, _MIXED_OTHERWISE = 8, 0.1
_ERRORS = 6.0
_JUMP, _HIGH = 5.0, 10.0
_UNEVEN, _MOST_TURNS = 2.0, 100


def settings(task: Task, name: str, given: Mapping[str, Setting]) -> Iterator[Finding]:
    """Settings are typed and described, and give the same recipe each time."""
    function = task.recipe_function(name)
    if not inspect.getdoc(function):
        yield failed(f"recipe {name!r} has no docstring", "describe in one line what it is and how it ends")
    for key, parameter in inspect.signature(function).parameters.items():
        kind = type(parameter.default).__name__
        if parameter.annotation is inspect.Parameter.empty:
            yield noted(f"setting {key!r} has no annotation", f"write {key}: {kind} = {parameter.default!r}")
        elif parameter.annotation not in (kind, type(parameter.default)) and not (
            parameter.annotation in ("float", float) and kind == "int"
        ):
            found = f"setting {key!r} is annotated {parameter.annotation} and its default is of type {kind}"
            yield failed(found, "make the two agree: users' values must have the default's type")
    first, again = task.assemble(name, given), task.assemble(name, given)
    differing = _differing_part(first, again)
    if differing:
        found = f"made twice with the same settings, it has a different {differing}"
        yield failed(found, "let it depend on its settings alone, not on random numbers or a counter")
    elif first.label_smoothing > _MOST_SMOOTHED:
        found = f"label_smoothing={first.label_smoothing:g} spreads most of each label over all classes"
        yield failed(found, "give the share that is taken from a label, usually 0.1, not the one that it keeps")
    else:
        yield passed(f"{len(task.settings(name))} settings; made twice, it is the same recipe")


def _same_class(one: type, other: type) -> bool:
    """Whether two classes are one, or a recipe made both from one text with the same plain values around it."""
    if one is other:
        return True
    if (one.__module__, one.__qualname__, one.__bases__) != (other.__module__, other.__qualname__, other.__bases__):
        return False
    own, others = ({name: _text_of(value) for name, value in vars(each).items()} for each in (one, other))
    return own == others


def _text_of(value: object) -> object:
    """What there is of an attribute of a class when it is made again: a plain value, a function's code and closure."""
    if isinstance(value, classmethod | staticmethod):
        value = value.__func__
    if isinstance(value, FunctionType):
        closure = []
        for each in value.__closure__ or ():
            # One that was not yet set is empty.
            with suppress(ValueError):
                closure.append(_plain(each.cell_contents))
        return value.__code__, tuple(map(_plain, value.__defaults__ or ())), tuple(closure)
    return _plain(value)


def _plain(value: object) -> object:
    return value if isinstance(value, bool | int | float | str | None) else type(value)


def _differing_part(first: Recipe, again: Recipe) -> str:
    """The first part in which two recipes differ."""
    for part in (each.name for each in fields(Recipe) if each.name not in ("network", "loss")):
        a, b = getattr(first, part), getattr(again, part)
        if isinstance(a, Native) and isinstance(b, Native) and a.made is not None and a.framework == "jax":
            # An optax transformation consists of functions, which equal only themselves.
            continue
        # A part that does not define equality is compared by its fields.
        if a != b and not (_same_class(type(a), type(b)) and getattr(a, "__dict__", a) == getattr(b, "__dict__", b)):
            return part
    one, other = first.network, again.network
    if isinstance(one, NativeNetwork) or isinstance(other, NativeNetwork):
        # The network that it builds is checked by "determinism" and "another seed".
        return "" if type(one) is type(other) else "network"
    models = [each.model.SerializeToString(deterministic=True) for each in (one, other)]
    if models[0] != models[1]:
        return "network"
    weights = [each.initialise(0) for each in (one, other)]
    equal = weights[0].keys() == weights[1].keys() and all(
        np.array_equal(value, weights[1][key]) for key, value in weights[0].items()
    )
    return "" if equal else "initial weight"


def schedule(recipe: Recipe) -> Iterator[Finding]:
    """Finite, not negative and not always zero; the base rate is its peak."""
    factor = recipe.schedule.factor
    grid = [at / (_GRID - 1) for at in range(_GRID)]
    values = [factor(progress) for progress in grid]
    wrong = next((at for at, value in enumerate(values) if not math.isfinite(value) or value < 0), None)
    if wrong is not None:
        found = f"its factor is {values[wrong]} at a share of {grid[wrong]:.3g} of training"
        yield failed(found, "return a finite factor >= 0 everywhere from 0 to 1")
        return
    peak = max(values)
    if peak == 0:
        yield failed("its factor is always 0, so nothing is trained", "return a factor above zero")
        return
    if [factor(progress) for progress in grid] != values:
        found = "called again, it returns different factors"
        yield failed(found, "let the factor depend on the progress alone: runs may be resumed")
        return
    if found := _jumps(values):
        yield failed(found, "let it change gradually, or fall in a few steps: write progress as a share from 0 to 1")
        return
    if not recipe.schedule.fixed_length:
        late = [factor(progress) for progress in (1.0001, 1.5, 3.0)]
        if not all(math.isfinite(value) and value >= 0 for value in late):
            found = f"it has no fixed length, and its factor is {late} at 1.0001, 1.5 and 3 times the planned training"
            yield failed(found, "return a finite factor >= 0 there, too, or set fixed_length = True")
            return
    if peak > _LARGEST_FACTOR:
        yield noted(f"its factor rises to {peak:.4g}: the rate exceeds the optimizer's lr")
    at = grid[values.index(peak)]
    yield passed(f"factors from {min(values):.3g} to {peak:.3g}, the largest at a share of {at:.2g}")


def _jumps(values: list[float]) -> str:
    """What no schedule does on purpose: a spike, a factor that goes up and down all the time, or a long standstill."""
    highest, turns, last = values[0], 0, 0
    for at, (before, value) in enumerate(pairwise(values), 1):
        if value > _JUMP * max(highest, before) and value > _HIGH:
            return f"its factor jumps from {before:.3g} to {value:.3g} at a share of {at / (_GRID - 1):.3g} of training"
        highest = max(highest, value)
        way = 1 if value > _UNEVEN * before else -1 if before > _UNEVEN * value else 0
        turns += bool(way and last and way != last)
        last = way or last
    if turns > _MOST_TURNS:
        return f"its factor goes up and down by more than {_UNEVEN:g} times, {turns} times in {_GRID} steps"
    zeros = sum(value == 0 for value in values) / len(values)
    return f"its factor is 0 for {zeros:.0%} of training, in which nothing is learnt" if zeros > 0.5 else ""


def sampler(recipe: Recipe, split: Split, seed: int) -> Iterator[Finding]:
    """A function of split, seed and epoch alone, whose batches are as promised."""
    chosen = recipe.sampler
    first, again = chosen.epoch(split, seed, 0), chosen.epoch(split, seed, 0)
    if not (np.array_equal(first.order, again.order) and np.array_equal(first.bounds, again.bounds)):
        found = "the same epoch of the same seed gives different batches when requested again"
        yield failed(found, "draw from a generator seeded with seed and epoch: Generator(PCG64([seed, epoch, ...]))")
        return
    # Not the first ones alone, as a sampler may change during training.
    spread = np.linspace(0, recipe.epochs - 1, _EPOCHS).astype(int).tolist() if len(split) <= _SHORT else []
    before = None
    for epoch in sorted({0, 1, recipe.epochs - 1, *spread}):
        visited = chosen.epoch(split, seed, epoch)
        wrong = _epoch_fault(chosen, split, visited.order, visited.bounds)
        if not wrong and _repeats(chosen, before, visited.order):
            wrong = "another epoch has the same order, although it claims a random one", "shuffle by seed and epoch"
        if wrong:
            yield failed(f"epoch {epoch}: {wrong[0]}", wrong[1])
            return
        # The second epoch is compared with the first below.
        before = visited.order if epoch else None
    if chosen.steps(split) < 2:
        found = f"an epoch is {chosen.steps(split)} step: the batch of {chosen.batch} covers the training split"
        yield noted(found)
    for what, other in (("epoch", chosen.epoch(split, seed, 1)), ("seed", chosen.epoch(split, seed + 1, 0))):
        if np.array_equal(other.order, first.order):
            found, do = f"another {what} has the same order", "shuffle by seed and epoch"
            if _repeats(chosen, first.order, other.order):
                yield failed(f"{found}, although it claims a random one", f"{do}, or set random_order = False")
                return
            yield noted(found, f"{do}, unless this is intended")
    if _repeats(chosen, chosen.epoch(split, seed, 1).order, chosen.epoch(split, seed + 1, 0).order):
        found = (
            f"epoch 1 of seed {seed} has the order of epoch 0 of seed {seed + 1}, so runs share most of their orders"
        )
        yield noted(found, "seed a generator with both: Generator(PCG64([seed, epoch])), not with their sum")
    if chosen.random_order and (found := _uneven(split, first.order)):
        yield failed(found, "shuffle all examples together, or set random_order = False")
        return
    visits = "every example once per epoch" if chosen.exact else "not every example once per epoch, as declared"
    yield passed(f"{chosen.steps(split)} batches of at most {chosen.batch}; {visits}")


def _repeats(chosen: Sampler, order: NDArray[np.int64] | None, again: NDArray[np.int64]) -> bool:
    """Whether an order that is said to be random is another epoch's."""
    claimed = chosen.random_order and chosen.exact and len(again) >= _ENOUGH
    return claimed and order is not None and np.array_equal(order, again)


def _uneven(split: Split, order: NDArray[np.int64]) -> str:
    """Whether a class, or one half of the data, comes early or late in an epoch, or in long runs."""
    count, places = len(order), np.arange(len(order))
    if count < _ENOUGH:
        return ""
    groups = {"the first half of the data": order < len(split) // 2}
    labels = split.labels
    if isinstance(labels, np.ndarray) and labels.ndim == 1 and labels.dtype.kind in "iu":
        groups |= {f"class {each}": labels[order] == each for each in np.unique(labels)[:32].tolist()}
    for name, chosen in groups.items():
        some = int(chosen.sum())
        if min(some, count - some) < 5:
            continue
        # The mean place of a random choice without replacement.
        error = math.sqrt((count + 1) * (count - some) / (12 * some))
        off = (float(places[chosen].mean()) - (count - 1) / 2) / error
        if abs(off) > _ERRORS:
            when = "late" if off > 0 else "early"
            return (
                f"{name} comes {when} in an epoch, by {abs(off):.0f} standard errors, although it claims a random order"
            )
        # In random order neighbours belong together as often as any two do.
        share = some / count
        together, expected = float((chosen[1:] & chosen[:-1]).mean()), share * share
        if together > expected + _ERRORS * math.sqrt(expected * (1 - expected) / count) * 2:
            return (
                f"examples of {name} follow each other more often than chance has it, although it claims a random order"
            )
    return ""


def _epoch_fault(
    chosen: Sampler, split: Split, order: NDArray[np.int64], bounds: NDArray[np.int64]
) -> tuple[str, str] | None:
    """What is wrong with an epoch, and what to do."""
    sizes = np.diff(bounds)
    if len(bounds) < 2 or bounds[0] != 0 or bounds[-1] != len(order) or (sizes < 1).any():
        return "its bounds do not cut its order into batches", "let bounds ascend from 0 to the number of visits"
    if (sizes > chosen.batch).any():
        return f"a batch has {int(sizes.max())} examples instead of {chosen.batch}", "make smaller batches"
    if order.min() < 0 or order.max() >= len(split):
        return f"it visits example {int(order.max())} of {len(split)}", "give indices >= 0 and below the length"
    if len(sizes) != chosen.steps(split):
        return f"it has {len(sizes)} batches, and steps() says {chosen.steps(split)}", "make the two agree"
    counts = np.bincount(order, minlength=len(split))
    if chosen.exact and not (counts == 1).all():
        missed, twice = int((counts == 0).sum()), int((counts > 1).sum())
        found = f"{missed} examples are not visited and {twice} more than once, although it claims to be exact"
        return found, "visit each once, or set exact = False"
    return None


def averaged(recipe: Recipe, split: Split) -> Iterator[Finding]:
    """At the end an average of the weights has forgotten the initial ones."""
    optimizer: object = recipe.optimizer
    while optimizer is not None and not isinstance(optimizer, EMA):
        optimizer = getattr(optimizer, "optimizer", None)
    if optimizer is None:
        return
    steps = max(1, recipe.epochs * recipe.sampler.steps(split) // recipe.accumulate)
    first = [min(optimizer.decay, (1 + step) / (10 + step)) for step in range(1, min(steps, _WARM) + 1)]
    logs = sum(map(math.log, first)) if optimizer.warm_up and optimizer.decay > 0 else 0.0
    kept = math.exp(logs) * optimizer.decay ** (steps - len(first) if optimizer.warm_up else steps)
    found = f"after all {steps:,} steps {kept:.1%} of the averaged weights are the initial ones"
    if kept > _FORGOTTEN:
        yield failed(found, "lower the decay, to 1 - 10 / steps or so, or give EMA(..., warm_up=True)")
    else:
        yield passed(found)


_WARM, _FORGOTTEN = 100_000, 0.3


def augmentation(recipe: Recipe, dataset: Dataset, seed: int) -> Iterator[Finding]:
    """Each image's change depends on the image and its own seed alone, and the input is not modified."""
    if not recipe.augment:
        return
    column = part_of(dataset.train, 8).columns[0]
    rows = np.arange(len(column))
    seeds = np.random.default_rng(seed).integers(0, 2**63, len(column)).astype(np.uint64)
    images: Host = np.asarray(column[rows] if isinstance(column, np.ndarray) else column.take(rows, seeds))
    for each in recipe.augment:
        name, before = type(each).__name__, images.copy()
        whole = each.apply(images, seeds)
        if not np.array_equal(images, before, equal_nan=images.dtype.kind == "f"):
            yield failed(f"{name} changes its input array", "return a new array")
            images = before
        alone = np.concatenate([each.apply(images[at : at + 1], seeds[at : at + 1]) for at in range(len(images))])
        if whole.shape != alone.shape or whole.tobytes() != alone.tobytes():
            found = f"{name} changes an image in a batch differently from the same image alone, with the same seed"
            yield failed(found, "draw from each example's own seed, not from a shared generator")
            return
        if finding := _changed_badly(each, images, whole, seeds):
            yield failed(*finding)
            return
        others = [each.apply(images, seeds + np.uint64(at)) for at in (1, 12345, 99999)]
        if all(np.array_equal(other, images) for other in (whole, *others)):
            yield noted(f"{name} leaves all of {4 * len(images)} images as they are", "check how it draws from seeds")
        images = whole
    yield passed(f"{len(recipe.augment)} parts; each image depends on its own seed alone")


def _changed_badly(
    each: Augmentation, images: Host, changed: Host, seeds: NDArray[np.uint64]
) -> tuple[str, str] | None:
    """What an augmentation does that evaluation never sees, and what to do instead."""
    name = type(each).__name__
    if changed.dtype != images.dtype:
        return f"{name} makes {changed.dtype} of {images.dtype}", "return the type that was given"
    if len(images) < 2 or changed.dtype.kind not in "fu":
        return None
    if changed.shape == images.shape and not np.array_equal(changed, images):
        again = [each.apply(images, seeds + np.uint64(at)) for at in (1, 12345, 99999)]
        if all(np.array_equal(other, changed) for other in again):
            found = f"{name} changes an image in the same way whatever its seed"
            return found, "draw from the seeds; what is always done belongs in the data, so that evaluation sees it too"
    same = each.apply(np.repeat(images, 2, axis=0), np.repeat(seeds[:1], 2 * len(images)))[::2]
    if len(same) == len(images) and (images != images[:1]).any() and not (same != same[:1]).any():
        return f"{name} makes the same of different images", "keep what tells them apart"
    spans = [float(np.ptp(np.asarray(part, np.float64))) for part in (images, changed)]
    if spans[0] > 0 and not 1 / _SPANS < spans[1] / spans[0] < _SPANS:
        found = f"the values of images span {spans[0]:.3g} before {name} and {spans[1]:.3g} after it"
        return found, "keep the range that evaluation has, or scale the data themselves"
    return None


def mixing(recipe: Recipe, dataset: Dataset, seed: int) -> Iterator[Finding]:
    """A mixture's labels are shares that add up to 1, and those in which its inputs were mixed."""
    train, classes = dataset.train, dataset.classes
    labels = train.labels
    if recipe.mix is None or classes < 2 or len(train.columns) != 2 or not isinstance(labels, np.ndarray):
        return
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= classes:
        return
    name, shape, raw = type(recipe.mix).__name__, train.inputs.shape[1:], train.inputs.dtype == np.uint8
    some = np.random.default_rng(seed).permutation(labels)[:32].astype(np.int64)
    off: list[float] = []
    for draw in range(_DRAWS):
        mixed = list[Host]()
        shares: Host = some
        for each in np.unique(some)[:8].tolist():
            # Where the inputs are 1 for one class and 0 for others, their mean is the share of that class.
            inputs = np.broadcast_to((some == each).reshape(-1, *[1] * len(shape)), (len(some), *shape))
            given = np.ascontiguousarray(inputs * (255 if raw else 1)).astype(np.uint8 if raw else np.float32)
            values, shares = recipe.mix.apply((given, some.copy()), classes, np.random.Generator(np.random.PCG64(draw)))
            mixed.append(np.asarray(values, np.float64).reshape(len(some), -1).mean(axis=1) / (255 if raw else 1))
        if shares.shape != (len(some), classes):
            found = f"{name} gives labels of shape {shares.shape} for {len(some)} examples of {classes} classes"
            yield failed(found, "return the share of each class")
            return
        if (shares < -1e-6).any() or np.abs(shares.sum(axis=1) - 1).max() > 1e-3:
            found = f"the shares in a label of {name} add up to {float(shares.sum(axis=1).max()):.3g}"
            yield failed(found, "let them add up to 1")
            return
        off.append(float(np.abs(np.stack(mixed, axis=1) - shares[:, np.unique(some)[:8]]).max(axis=1).mean()))
    if np.mean(off) > _MIXED_OTHERWISE:
        found = f"{name} mixes labels in other shares than inputs: they are {np.mean(off):.2g} apart"
        yield failed(found, "use the same partner and the same share for both")
        return
    yield passed(f"{name}: labels are mixed as inputs are")


def batches(bench: Bench, seed: int) -> Iterator[Finding]:
    """The same bits whatever the number of workers, also from the middle of an epoch."""
    recipe = bench.recipe
    loader, others = bench.loader(recipe, seed), bench.loader(recipe, seed, workers=2)
    try:
        last = min(4, loader.steps)
        host = [[bench.host(each) for each in batch] for batch in loader.batches(0, 0, last)]
        many = [[bench.host(each) for each in batch] for batch in others.batches(0, 0, last)]
        rest = [[bench.host(each) for each in batch] for batch in loader.batches(0, last // 2, last)]
        sizes = loader.sizes(0)[:last].tolist()
    finally:
        loader.close()
        others.close()
    if not _equal(host, many):
        yield failed("they differ between 2 workers and none", "draw from the example's seed alone")
    elif not _equal(host[last // 2 :], rest):
        found = "started in the middle of an epoch, they differ from those started at its beginning"
        yield failed(found, "let a batch depend on seed, epoch and step alone")
    elif sizes != [len(batch[0]) for batch in host]:
        yield failed(f"sizes() says {sizes}, which is wrong", "correct the loader's sizes")
    elif any(not np.isfinite(each).all() for batch in host for each in batch if each.dtype.kind == "f"):
        yield failed("they contain a NaN or an infinity", "correct the data, or the augmentation")
    else:
        yield passed(f"{last} batches, bitwise equal with 0 and 2 workers, and from the middle")


def _equal(left: list[list[Host]], right: list[list[Host]]) -> bool:
    pairs = zip(left, right, strict=False)
    return len(left) == len(right) and all(
        len(a) == len(b) and all(x.shape == y.shape and x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))
        for a, b in pairs
    )


def fits(bench: Bench, seed: int) -> Iterator[Finding]:
    """The network's inputs match the columns of a batch in number, dtypes and sizes; it has a score for each class."""
    recipe, network = bench.recipe, bench.recipe.trained_network()
    if isinstance(network, NativeNetwork):
        yield _native_fits(bench, seed)
        return
    loader = bench.loader(replace(recipe, workers=0), seed)
    try:
        batch = [bench.host(each) for each in next(iter(loader.batches(0, 0, 1)))]
    finally:
        loader.close()
    if len(batch) != len(network.inputs):
        names = ", ".join(each.name for each in network.inputs)
        found = f"the data has {len(batch)} columns, and the network takes {len(network.inputs)}: {names}"
        yield failed(found, "give the columns in the order of the network's inputs, labels last")
        return
    for at, (array, value) in enumerate(zip(batch, network.inputs, strict=True)):
        if value.dtype and array.dtype.name != value.dtype:
            found = f"column {at} is {array.dtype.name}, and input {value.name!r} is {value.dtype}"
            yield failed(found, "convert the column, give its normalisation, or correct the order of columns")
        sizes = value.shape
        if sizes is not None and (
            len(sizes) != array.ndim
            or any(isinstance(size, int) and size != have for size, have in zip(sizes, array.shape, strict=True))
        ):
            found = f"column {at} has the shape {list(array.shape)}, and input {value.name!r} {list(sizes)}"
            yield failed(found, "build the network for the shape of the data")
    scores = network.outputs[0].shape if network.outputs else None
    classes = bench.dataset.classes
    if not recipe.network.has_loss and scores and isinstance(scores[-1], int) and len(scores) == 2 and classes > 0:
        if scores[-1] < classes:
            found = f"the network has {scores[-1]} outputs for {classes} classes"
            yield failed(found, f"build the network for {classes} classes")
        elif scores[-1] > classes:
            yield noted(f"the network has {scores[-1]} outputs for {classes} classes")
    shapes = ", ".join(f"{array.dtype.name}{list(array.shape)}" for array in batch)
    yield passed(shapes)
    if not network.outputs:
        yield not_tried("the network has none besides its loss", probe="outputs")


def _native_fits(bench: Bench, seed: int) -> Finding:
    """A native network does not state its inputs: running it shows whether it accepts the data."""
    executor, rows = bench.executor(bench.plain, seed), bench.rows(8)
    name = bench.plain.network.name
    try:
        scores = executor.infer(*rows[:-1])[0]
        executor.forward(*rows)
    except Exception as error:  # noqa: BLE001  # user code may raise anything
        shapes = ", ".join(f"{bench.host(each).dtype.name}{list(each.shape)}" for each in rows)
        found = f"given columns {shapes}, the last of them labels, {name} raises {type(error).__name__}: {error}"
        return failed(found, "build the network and its loss for the columns of the data")
    classes = bench.dataset.classes
    if bench.recipe.loss is None and len(scores.shape) == 2 and 0 < int(scores.shape[1]) < classes:
        return failed(f"the network has {int(scores.shape[1])} outputs for {classes} classes", f"give it {classes}")
    return passed(f"{name} accepts them and returns {list(map(int, scores.shape))}")
