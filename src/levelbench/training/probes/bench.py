"""A recipe put to work on little data, for probes: a part of each split, small batches, a few steps.

What is probed is made of the recipe's own parts, by the calls that the trainer makes; only the number of examples is
less, so that a check takes seconds. A figure over a part of a split that is divided by the whole is still on its scale,
so whether a quality looks at all examples shows only in the rows counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any, cast, final

import numpy as np
from numpy.typing import NDArray

from levelbench.checks.arrays import Host
from levelbench.checks.findings import Finding, failed, passed
from levelbench.errors import LevelbenchError
from levelbench.networks.executor import Array, Backend, Executor
from levelbench.networks.native import NativeNetwork
from levelbench.training.datasets.base import Dataset, SomeRows, Split
from levelbench.training.input import Held, Loader, make_loader
from levelbench.training.optimizers.base import Stepper
from levelbench.training.quality import Quality
from levelbench.training.recipe import Recipe

# Examples of training and of a held split, and a batch, by the operations of one example: a step takes a second or so.
_SIZES = ((5e7, (2048, 512, 32)), (5e8, (1024, 128, 16)), (4e9, (256, 32, 8)), (math.inf, (64, 8, 4)))
_GRID = 1001


@final
class _SomeReferences(Sequence[Any]):
    """Some of a split's references, with whatever else the whole of them can do: decode tokens, for one."""

    def __init__(self, whole: Sequence[Any], rows: NDArray[np.int64]) -> None:
        self._whole, self._rows = whole, rows.tolist()

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return [self._whole[row] for row in self._rows[at]]
        return self._whole[self._rows[at]]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)


def part_of(split: Split, most: int) -> Split:
    """At most so many of its examples, evenly spaced, so that a split that is sorted by class keeps all classes."""
    if len(split) <= most:
        return split
    rows = np.linspace(0, len(split) - 1, most).astype(np.int64)
    columns = tuple(
        column[rows] if isinstance(column, np.ndarray) else SomeRows(column, rows) for column in split.columns
    )
    reference = None if split.reference is None else _SomeReferences(split.reference, rows)
    return Split(columns, split.targets, reference)


def small(dataset: Dataset, training: int, held: int) -> Dataset:
    """The dataset with at most so many examples in training, and in each of the other splits."""
    return replace(
        dataset,
        train=part_of(dataset.train, training),
        validation=part_of(dataset.validation, held),
        test=part_of(dataset.test, held),
    )


@final
class Bench:
    """A recipe, a backend and little data: the less, the more an example costs.

    ``recipe`` has batches of at most 32, takes one batch a step, and computes in float32 and the usual layout: half
    precisions may be slow where recipes are checked, and are compared with float32 once. ``also`` are the figures that
    the task has besides its quality; ``flops`` the operations of one example, 0 where they cannot be counted.
    """

    def __init__(
        self, recipe: Recipe, dataset: Dataset, backend: Backend, quality: Quality, also: tuple[Quality, ...] = ()
    ) -> None:
        self.whole, self.backend, self.quality, self.also = recipe, backend, quality, also
        self.flops = _flops(recipe, dataset)
        training, held, batch = _sizes(self.flops)
        self.dataset = small(dataset, training, held)
        self._most, sampler = batch, recipe.sampler
        if sampler.batch > batch:
            sampler = replace(sampler, batch=batch)
        self.recipe = replace(
            recipe, sampler=sampler, accumulate=1, workers=0, precision="float32", channels_last=False, mode=None
        )
        self.plain = replace(self.recipe, augment=(), mix=None)
        """Without augmentation or mixture: labels are classes, and equal rows are equal."""
        if self.flops:
            # Of the operations of a step an inference takes a third.
            held = min(held, _sizes(max(self.flops, self.flops * self._rounds() / 3))[1])
            self.dataset = small(self.dataset, training, held)

    def _rounds(self) -> float:
        """How often a quality infers an example, the most of all; 1 where one raises: its probe says what."""
        held = self.held(part_of(self.dataset.validation, 4))
        try:
            return max(rounds(each, self.executor(self.plain, 0), held) for each in (self.quality, *self.also))
        except Exception:  # noqa: BLE001  # the boundary to a user's parts, which may raise anything
            return 1.0

    @cached_property
    def peak(self) -> float:
        """The largest factor of the schedule."""
        return max(self.recipe.schedule.factor(at / (_GRID - 1)) for at in range(_GRID))

    def machine(self, seed: int, *, plain: bool = False) -> ShortTraining:
        """The recipe, started from a seed."""
        return ShortTraining(self, self.plain if plain else self.recipe, seed)

    def held(self, split: Split) -> Held:
        """A split, to be looked at on the backend."""
        return Held(self.backend, self.dataset, split)

    def rows(self, count: int) -> tuple[Array, ...]:
        """At most so many training examples as one batch of native columns, normalised and not augmented."""
        count = min(count, self._most)
        return next(iter(self.held(part_of(self.dataset.train, count)).batches(count)))

    def executor(self, recipe: Recipe, seed: int) -> Executor:
        """The network to train, as the trainer makes it."""
        return self.backend.build(
            recipe.trained_network(),
            self.backend.initialise(recipe.network, seed),
            mode=recipe.mode,
            precision=recipe.precision,
            channels_last=recipe.channels_last,
        )

    def loader(self, recipe: Recipe, seed: int, workers: int = 0) -> Loader:
        """The batches of the training split."""
        loader: Loader = make_loader(
            self.backend,
            self.dataset,
            self.dataset.train,
            recipe.sampler,
            seed=seed,
            augment=recipe.augment,
            mix=recipe.mix,
            workers=workers,
        )
        return loader

    def host(self, array: Array) -> Host:
        """A copy on the host."""
        return np.asarray(self.backend.host(array))


def _sizes(flops: float) -> tuple[int, int, int]:
    """Examples of training and of a held split, and a batch, where one example takes so many operations."""
    return next(sizes for most, sizes in _SIZES if flops <= most)


def _flops(recipe: Recipe, dataset: Dataset) -> float:
    """Operations of one example; lengths that the network leaves open are those of the data."""
    from levelbench.networks.cost import network_cost

    if isinstance(recipe.network, NativeNetwork):
        return 0.0
    sizes: dict[str, int] = {}
    for value, column in zip(recipe.network.inputs, dataset.train.columns, strict=False):
        open_sizes = zip((value.shape or ())[1:], column.shape[1:], strict=False)
        sizes |= {name: size for name, size in open_sizes if isinstance(name, str)}
    try:
        return network_cost(recipe.network, sizes=sizes).flops
    except LevelbenchError:
        return 0.0


@final
class ShortTraining:
    """A recipe at work: what it computes depends on its seed and the calls alone."""

    def __init__(self, bench: Bench, recipe: Recipe, seed: int) -> None:
        self._bench, self._recipe, self._seed = bench, recipe, seed
        bench.backend.seed(seed)
        self.executor = bench.executor(recipe, seed)
        self.stepper: Stepper = recipe.optimizer.start(bench.backend, self.executor.parameters)
        self.done = 0
        self._batches = self._forever()

    def train(self, steps: int, factor: float) -> list[float]:
        """Steps on the loader's batches; the losses."""
        return [self.step(next(self._batches), factor) for _ in range(steps)]

    def step(self, columns: tuple[Array, ...], factor: float) -> float:
        """One update; the loss before it."""
        loss = self.executor.forward(*columns)
        gradients = self.executor.backward()
        self.done += 1
        self.stepper.step(gradients, self.done, factor)
        return float(self._bench.host(loss))

    def state(self) -> dict[str, Host]:
        """Parameters and buffers, copied to the host."""
        host, executor = self._bench.host, self.executor
        return {
            **{name: host(value).copy() for name, value in executor.parameters.items()},
            **{f"buffer {name}": host(value).copy() for name, value in executor.buffers.items()},
        }

    def _forever(self) -> Iterator[tuple[Array, ...]]:
        loader = self._bench.loader(self._recipe, self._seed)
        epoch = 0
        try:
            while loader.steps:
                yield from loader.batches(epoch)
                epoch += 1
        finally:
            loader.close()


def same(left: dict[str, Host], right: dict[str, Host]) -> str:
    """The first name whose arrays differ in a bit, or an empty string."""
    for name in sorted(left.keys() | right.keys()):
        a, b = left.get(name), right.get(name)
        if a is None or b is None or a.dtype != b.dtype or a.shape != b.shape or a.tobytes() != b.tobytes():
            return name
    return ""


def chance_loss(dataset: Dataset) -> float | None:
    """The cross-entropy of always answering with the shares of the classes in training; ``None`` without classes."""
    labels = dataset.train.labels
    if not isinstance(labels, np.ndarray) or labels.ndim != 1 or labels.dtype.kind not in "iu":
        return None
    if not len(labels) or labels.min() < 0:
        return None
    shares = np.bincount(labels) / len(labels)
    shares = shares[shares > 0]
    return float(-(shares * np.log(shares)).sum())


_BATCHES = 4


@final
class _Counting:
    """A held split that counts what is drawn of it, in four batches or more: a quality may stop after the first."""

    def __init__(self, held: Held) -> None:
        self.backend, self.split = held.backend, held.split
        self.drawn = 0
        self._held = held

    def batches(self, size: int = 1000) -> Iterator[tuple[Array, ...]]:
        seen = 0
        for columns in self._held.batches(min(size, max(1, len(self) // _BATCHES))):
            seen += len(columns[-1])
            # Not the sum: the first rows may be looked at many times.
            self.drawn = max(self.drawn, seen)
            yield columns

    def __len__(self) -> int:
        return len(self._held)


def rounds(quality: Quality, executor: Executor, held: Held) -> float:
    """How often a quality has the network infer an example: once a token, where it translates token by token."""
    with _counted(executor) as inferred:
        quality.measure(executor, held)
    return inferred[0] / len(held)


@contextmanager
def _counted(executor: Executor) -> Iterator[list[int]]:
    """The number of rows that the network infers in here, as the one item of a list."""
    infer, inferred = executor.infer, [0]

    def counted(*inputs: Array) -> tuple[Array, ...]:
        inferred[0] += len(inputs[0])
        return infer(*inputs)

    # Put on the executor itself: a quality may ask for what only this framework's executors have.
    cast(Any, executor).infer = counted
    try:
        yield inferred
    finally:
        cast(Any, executor).infer = infer


def covered(quality: Quality, executor: Executor, held: Held) -> tuple[float, Finding]:
    """The quality of a network that is measured no more, and whether all rows of ``held`` went into it."""
    counting = _Counting(held)
    with _counted(executor) as inferred:
        value = quality.measure(executor, cast(Held, counting))
    rows = len(held)
    do = "measure all batches of held.batches(), and all rows of each"
    if counting.drawn < rows:
        found = f"{quality.metric} draws {counting.drawn} of the {rows} examples of the split"
        return value, failed(found, do, probe="examples")
    if inferred[0] < rows:
        found = f"{quality.metric} has the network infer {inferred[0]} of the {rows} examples of the split"
        return value, failed(found, do, probe="examples")
    return value, passed(f"{quality.metric} looks at all {rows} of the split", probe="examples")
