"""A recipe on little data, for probes: a part of each split, small batches, a few steps.

Probes use the recipe's own parts and the same calls as the trainer; only the number of examples is smaller, so that a
check takes seconds. A figure over part of a split, divided by the size of the whole, is still on its scale; so only the
counted rows show whether a quality uses all examples.
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
from levelbench.training.task import Recipe
from levelbench.training.trainer import experience_of

# Numbers of training examples, of examples in each other split, and in a batch, by the operations per example: a step
# takes a second or so.
_SIZES = ((5e7, (2048, 512, 32)), (5e8, (1024, 128, 16)), (4e9, (256, 32, 8)), (math.inf, (64, 8, 4)))
_GRID = 1001


@final
class _ReferenceSubset(Sequence[Any]):
    """Some of a split's references, with all other methods of the whole, such as decoding tokens."""

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
    """At most ``most`` of its examples, evenly spaced, so that a split sorted by class keeps all classes."""
    if len(split) <= most:
        return split
    return reordered(split, np.linspace(0, len(split) - 1, most).astype(np.int64))


def reordered(split: Split, rows: NDArray[np.int64]) -> Split:
    """These examples in this order, as copies; rows that are made on demand stay so."""
    columns = tuple(
        column[rows] if isinstance(column, np.ndarray) else SomeRows(column, rows) for column in split.columns
    )
    reference = None if split.reference is None else _ReferenceSubset(split.reference, rows)
    return Split(columns, split.targets, reference)


def small(dataset: Dataset, training: int, held: int) -> Dataset:
    """The dataset with at most ``training`` training examples and ``held`` in each other split."""
    return replace(
        dataset,
        train=part_of(dataset.train, training),
        validation=part_of(dataset.validation, held),
        test=part_of(dataset.test, held),
    )


@final
class Bench:
    """A recipe, a backend and little data: the more an example costs, the less data.

    ``recipe`` has batches of at most 32, takes one batch per step, and computes in float32 and the default layout,
    because half precision may be slow where recipes are checked; it is compared with float32 once. ``also`` are the
    task's further qualities; ``flops`` the operations per example, 0 if they cannot be counted.
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
        """Without augmentation or mixing: labels are classes, and equal rows stay equal."""
        if self.flops:
            # Inference takes a third of a step's operations.
            held = min(held, _sizes(max(self.flops, self.flops * self._inferences_per_example() / 3))[1])
            self.dataset = small(self.dataset, training, held)

    def _inferences_per_example(self) -> float:
        """How often a quality infers an example, at most; 1 if one raises, which its own probe reports."""
        held = self.held(part_of(self.dataset.validation, 4))
        try:
            return max(
                inferences_per_example(each, self.executor(self.plain, 0), held) for each in (self.quality, *self.also)
            )
        except Exception:  # noqa: BLE001  # user code may raise anything
            return 1.0

    @cached_property
    def peak(self) -> float:
        """The largest factor of the schedule."""
        return max(self.recipe.schedule.factor(at / (_GRID - 1)) for at in range(_GRID))

    def start_training(self, seed: int, *, plain: bool = False) -> ShortTraining:
        """The recipe, started from a seed."""
        return ShortTraining(self, self.plain if plain else self.recipe, seed)

    def held(self, split: Split) -> Held:
        """A split on the backend."""
        return Held(self.backend, self.dataset, split)

    def rows(self, count: int) -> tuple[Array, ...]:
        """At most ``count`` training examples as one batch of native columns, normalised but not augmented."""
        count = min(count, self._most)
        return next(iter(self.held(part_of(self.dataset.train, count)).batches(count)))

    def executor(self, recipe: Recipe, seed: int) -> Executor:
        """The network to train, built as by the trainer."""
        return recipe.build(self.backend, self.backend.initialise(recipe.network, seed))

    def loader(self, recipe: Recipe, seed: int, workers: int = 0, executor: Executor | None = None) -> Loader:
        """The batches of the training split, or of what ``executor`` does if the recipe trains on that."""
        if recipe.experience is not None and executor is not None:
            return experience_of(recipe, self.backend, self.dataset, executor, seed)
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
    """Sizes of the training split, the other splits and a batch, given the operations per example."""
    return next(sizes for most, sizes in _SIZES if flops <= most)


def _flops(recipe: Recipe, dataset: Dataset) -> float:
    """Operations per example; dimensions that the network leaves open are those of the data."""
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
    """A recipe being trained: its results depend on its seed and the calls alone."""

    def __init__(self, bench: Bench, recipe: Recipe, seed: int) -> None:
        self._bench, self._recipe, self._seed = bench, recipe, seed
        bench.backend.seed(seed)
        self.executor = bench.executor(recipe, seed)
        self.stepper: Stepper = recipe.optimizer.start(bench.backend, self.executor.parameters)
        self.done = 0
        self._batches = self._forever()

    def train(self, steps: int, factor: float) -> list[float]:
        """Take steps on the loader's batches; returns the losses."""
        return [self.step(next(self._batches), factor) for _ in range(steps)]

    def step(self, columns: tuple[Array, ...], factor: float) -> float:
        """Take one step; returns the loss before it."""
        loss = self.executor.forward(*columns)
        gradients = self.executor.backward()
        self.done += 1
        self.stepper.step(gradients, self.done, factor)
        return float(self._bench.host(loss))

    def gradients(self) -> dict[str, Host]:
        """Those of the next batch, copied to the host."""
        self.executor.forward(*next(self._batches))
        return {name: self._bench.host(each).copy() for name, each in self.executor.backward().items()}

    def state(self) -> dict[str, Host]:
        """Parameters and buffers, copied to the host."""
        host, executor = self._bench.host, self.executor
        return {
            **{name: host(value).copy() for name, value in executor.parameters.items()},
            **{f"buffer {name}": host(value).copy() for name, value in executor.buffers.items()},
        }

    def _forever(self) -> Iterator[tuple[Array, ...]]:
        loader = self._bench.loader(self._recipe, self._seed, executor=self.executor)
        epoch = 0
        try:
            while loader.steps:
                yield from loader.batches(epoch)
                epoch += 1
        finally:
            loader.close()


def first_difference(left: dict[str, Host], right: dict[str, Host]) -> str:
    """The first name whose arrays are not bitwise equal, or an empty string."""
    for name in sorted(left.keys() | right.keys()):
        a, b = left.get(name), right.get(name)
        if a is None or b is None or a.dtype != b.dtype or a.shape != b.shape or a.tobytes() != b.tobytes():
            return name
    return ""


_LEAST_GIVEN, _MOST_GIVEN = 256, 65536
"""Arrays of so many values are looked at, and that many of their values."""


def same_numbers(value: Host, again: Host) -> bool:
    """Whether weights drawn from two seeds are equal, and no pattern.

    A pattern, such as zeros, an identity or a Hadamard matrix, has few values; what was drawn or learnt has many.
    """
    if value.size < _LEAST_GIVEN or value.dtype.kind != "f" or not np.array_equal(value, again):
        return False
    some = value.reshape(-1)[:_MOST_GIVEN]
    return len(np.unique(some)) > some.size / 2


def chance_loss(dataset: Dataset) -> float | None:
    """The cross-entropy of always predicting the shares of the classes in training; ``None`` without classes."""
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
    """Counts the rows read from a split, in at least four batches, as a quality may stop after the first."""

    def __init__(self, held: Held) -> None:
        self.backend, self.split = held.backend, held.split
        self.drawn = 0
        self._held = held

    def batches(self, size: int = 1000) -> Iterator[tuple[Array, ...]]:
        seen = 0
        for columns in self._held.batches(min(size, max(1, len(self) // _BATCHES))):
            seen += len(columns[-1])
            # Not the sum: a quality may read the first rows repeatedly.
            self.drawn = max(self.drawn, seen)
            yield columns

    def __len__(self) -> int:
        return len(self._held)


def inferences_per_example(quality: Quality, executor: Executor, held: Held) -> float:
    """How often a quality infers an example: once per token, if it translates token by token."""
    with _counted(executor) as inferred:
        quality.measure(executor, held)
    return inferred[0] / len(held)


@contextmanager
def _counted(executor: Executor) -> Iterator[list[int]]:
    """Counts the rows that the network infers in this block, as the only item of a list."""
    infer, inferred = executor.infer, [0]

    def counted(*inputs: Array) -> tuple[Array, ...]:
        inferred[0] += len(inputs[0])
        return infer(*inputs)

    # Set on the executor itself, as a quality may use features of this framework's executors.
    cast(Any, executor).infer = counted
    try:
        yield inferred
    finally:
        cast(Any, executor).infer = infer


def measure_coverage(quality: Quality, executor: Executor, held: Held) -> tuple[float, Finding]:
    """The quality of a network, and whether all rows of ``held`` were used."""
    counting = _Counting(held)
    with _counted(executor) as inferred:
        value = quality.measure(executor, cast(Held, counting))
    rows = len(held)
    do = "measure all batches of held.batches(), and all rows of each"
    if counting.drawn < rows:
        found = f"{quality.metric} reads {counting.drawn} of the {rows} examples of the split"
        return value, failed(found, do, probe="examples")
    if inferred[0] < rows:
        found = f"{quality.metric} infers {inferred[0]} of the {rows} examples of the split"
        return value, failed(found, do, probe="examples")
    return value, passed(f"{quality.metric} uses all {rows} examples of the split", probe="examples")
