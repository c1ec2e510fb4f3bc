"""From a split to batches on a backend: gathered on the device, or made in blocks by the host, if wanted ahead of time.

What becomes of an example depends on the seed, the epoch and its index alone. Neither the block it is made in, nor the
number of workers, nor where in an epoch one starts changes a bit. Pixels travel as bytes and are normalised at the end:
first a subtraction, then a multiplication, each rounded once, so that all frameworks see the same bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice, pairwise
from math import prod
from typing import Any, TypeGuard, TypeVar, final

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from levelbench.errors import DataError, DefinitionError
from levelbench.networks.executor import Array, Backend
from levelbench.training.augmentation import Augmentation, Flip, InPlace, Mixing, RandomCrop, Translate
from levelbench.training.datasets.base import Column, Dataset, Split, rows_of
from levelbench.training.pixels import Bordered, example_seeds, images_of, mirror, parts, words
from levelbench.training.samplers import Epoch, Sampler


class Loader(ABC):
    """Batches for a network in training: native arrays in the order of its inputs, normalised and augmented."""

    steps: int
    """Batches per epoch."""

    @abstractmethod
    def batches(
        self, epoch: int, first: int = 0, last: int | None = None, progress: float = 0.0
    ) -> Iterator[tuple[Array, ...]]:
        """The batches of steps ``first`` to ``last`` (exclusive; ``None``: the end) of an epoch.

        ``progress`` is the share of training done when the epoch starts.
        """

    @abstractmethod
    def sizes(self, epoch: int) -> NDArray[np.int64]:
        """Examples in each step, shape (steps,)."""

    def state(self) -> dict[str, NDArray[Any]]:
        """What the next batch depends on besides seed, epoch and step; :meth:`restore` takes it."""
        return {}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:  # noqa: B027
        """Continue from a state of :meth:`state`."""

    def close(self) -> None:  # noqa: B027
        """Release threads and files, if there are any."""


def is_resident(column: Column) -> TypeGuard[NDArray[Any]]:
    """Whether a column is an array in memory, neither memory-mapped nor with rows made on demand."""
    return isinstance(column, np.ndarray) and not isinstance(column, np.memmap)


_ELEMENTS = 2**19
_LEAST = 4


def examples_at_once(backend: Backend, shape: Sequence[int], batch: int) -> int:
    """The largest number of examples of shape (n, ...) in a group: two megabytes in float32.

    0 means that each batch is gathered by itself: where the backend cannot slice a group for free, or where so few
    batches of this size fit that the cost of a call is a small part of their work.
    """
    fitting = _ELEMENTS // max(1, prod(shape[1:]))
    return fitting if backend.slices_are_views and fitting >= _LEAST * batch else 0


def groups(bounds: Sequence[int], first: int, last: int, examples: int) -> Iterator[tuple[int, int]]:
    """Steps ``first`` to ``last`` (exclusive) in groups, each given as its first step and its end (exclusive).

    A group has at least one batch, and as many as fit into ``examples``; batch i is ``bounds[i]`` to ``bounds[i + 1]``.
    """
    while first < last:
        stop = min(max(first + 1, bisect_right(bounds, bounds[first] + examples, first) - 1), last)
        yield first, stop
        first = stop


def sizes(bounds: Sequence[int]) -> list[int]:
    """Rows in each batch."""
    return [stop - start for start, stop in pairwise(bounds)]


def in_batches(backend: Backend, columns: Sequence[Array], rows: Sequence[int]) -> Iterator[tuple[Array, ...]]:
    """A group's columns, split into batches of the given numbers of rows."""
    return zip(*(backend.split(column, rows) for column in columns), strict=True)


Normalise = Callable[[Array], Array]
"""Turns the native first column into the network's input."""


def normaliser(backend: Backend, dataset: Dataset, split: Split) -> Normalise | None:
    """(x / highest - mean) / std of the first column by channel, or ``None`` if there is nothing to do.

    Only uint8 is normalised, as a float32 column already is. Raises ``DataError`` if the constants are for another
    number of channels.
    """
    constants, column = dataset.normalisation, split.inputs
    if constants is None or column.dtype != np.uint8:
        return None
    channels, shape = len(constants.mean), tuple(column.shape)
    if channels != len(constants.std) or (channels > 1 and (len(shape) < 2 or shape[1] != channels)):
        raise DataError(
            f"the normalisation of {dataset.name}",
            f"it has {channels} means and {len(constants.std)} standard deviations for rows of shape {shape[1:]}",
            "give one of each per channel (axis 1)",
        )
    by_channel = (1, channels, *(1,) * (len(shape) - 2)) if channels > 1 else (1,) * len(shape)
    mean, std = (np.array(each, np.float64).reshape(by_channel) for each in (constants.mean, constants.std))
    shift = backend.array((mean * constants.highest).astype(np.float32))
    scale = backend.array((1 / (std * constants.highest)).astype(np.float32))
    normalise = backend.normalise
    return lambda array: normalise(array, shift, scale)


@final
class Held:
    """Batches of a split for :class:`levelbench.training.Quality`.

    Arrays are moved to the device at the first use and stay there; columns with rows made on demand make them each
    time.
    """

    def __init__(self, backend: Backend, dataset: Dataset, split: Split) -> None:
        self.backend, self.split = backend, split
        self._normalise = normaliser(backend, dataset, split)
        self._resident: tuple[Array | None, ...] | None = None

    def batches(self, size: int = 1000) -> Iterator[tuple[Array, ...]]:
        """All examples once, as native columns of ``size`` rows (fewer in the last batch), inputs before targets."""
        array, columns = self.backend.array, self.split.columns
        if self._resident is None:
            self._resident = tuple(array(each) if is_resident(each) else None for each in columns)
        for start in range(0, len(self), size):
            stop = min(start + size, len(self))
            batch = []
            for native, column in zip(self._resident, columns, strict=True):
                if native is not None:
                    batch.append(native[start:stop])
                elif isinstance(column, np.ndarray):
                    batch.append(array(np.array(column[start:stop])))
                else:
                    batch.append(array(column.take(np.arange(start, stop, dtype=np.int64), None)))
            if self._normalise is not None:
                batch[0] = self._normalise(batch[0])
            yield tuple(batch)

    def __len__(self) -> int:
        return len(self.split)


_MOST_BYTES = 512 * 2**20
_Moves = tuple[RandomCrop | Translate | Flip, ...]


def make_moved(column: Column, augment: tuple[Augmentation, ...]) -> MovedImages | None:
    """Does as many of the first augmentations as fit into 512 MiB; ``None`` if not even one does."""
    if not is_resident(column) or column.ndim != 4 or column.dtype not in (np.uint8, np.float32):
        return None
    for count in (2, 1):
        first = tuple(each for each in augment[:count] if isinstance(each, RandomCrop | Translate | Flip))
        flips = sum(isinstance(each, Flip) for each in first)
        # A second one of the same kind would work on images that are not the dataset's.
        if len(first) == count and flips <= 1 and count - flips <= 1:
            places, most, reflect = _border(column, first)
            if Bordered.bytes_of(places, column.shape[1:], column.dtype, most, reflect=reflect) <= _MOST_BYTES:
                return MovedImages(column, first)
    return None


@final
class MovedImages:
    """The rows of ``images`` (n, c, h, w) after ``augment``: a move, a flip, or one of each in any order.

    Threads may share it: two that need the same image write the same bytes to the same place.
    """

    def __init__(self, images: NDArray[Any], augment: _Moves) -> None:
        self.augment = augment
        self._images, self._shape = images, images.shape[1:]
        places, most, reflect = _border(images, augment)
        self._store = Bordered(places, self._shape, images.dtype, most, reflect=reflect)
        self._stored = np.zeros(places, np.bool_)

    def take(self, indices: NDArray[np.int64], seeds: NDArray[np.uint64]) -> NDArray[Any]:
        """The images at ``indices``, each changed by its own seed: a new array."""
        places, down, right = indices, np.zeros_like(indices), np.zeros_like(indices)
        for position, each in enumerate(self.augment):
            draws = words(seeds, position)
            if isinstance(each, Flip):
                chosen = each.chosen(draws)
                places = indices + len(self._images) * chosen
                # Moving and then mirroring is the same as mirroring and then moving the other way.
                right = np.where(chosen, -right, right)
            else:
                down, right = each.distances(draws, self._shape)
        missing = places[~self._stored[places]]
        if len(missing):
            self._store_images(missing)
        return self._store.read(places, down, right)

    def _store_images(self, places: NDArray[np.int64]) -> None:
        """Store images in these places; the second half of the places holds mirror images."""
        turned, rows = np.divmod(places, len(self._images))
        images = images_of(self._images.take(rows, axis=0), "a move")
        mirror(images, np.flatnonzero(turned))
        pieces = parts(images)
        room = self._store.alike(pieces[0].stop)
        for some in pieces:
            room.write(images[some])
            self._store.copy(places[some], room)
        self._stored[places] = True


def _border(images: NDArray[Any], augment: _Moves) -> tuple[int, int, bool]:
    """Number of places, largest move in pixels, and whether the border reflects the image."""
    places, most, reflect = len(images), 0, False
    for each in augment:
        if isinstance(each, Flip):
            places *= 2
        else:
            most, reflect = each.most(images.shape[1:]), each.reflects
    return places, most, reflect


T = TypeVar("T")


@final
class Prefetch:
    """``workers`` threads, started at the first job; with 0, each job runs when its result is asked for."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool: ThreadPoolExecutor | None = None

    def ordered(self, jobs: Iterator[Callable[[], T]]) -> Iterator[T]:
        """The jobs' results in order; an error is raised where the job's result would have come.

        At most one result more than there are threads is held.
        """
        if not self._workers:
            for job in jobs:
                yield job()
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="levelbench-input")
        submit = self._pool.submit
        ahead: deque[Future[T]] = deque(submit(job) for job in islice(jobs, self._workers))
        try:
            while ahead:
                result = ahead.popleft().result()
                ahead.extend(submit(job) for job in islice(jobs, 1))
                yield result
                del result
        finally:
            for each in ahead:
                each.cancel()

    def close(self) -> None:
        """Join the threads and drop jobs that have not started."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None


Columns = tuple[NDArray[Any], ...]
Block = list[tuple[Columns, list[int]]]
"""Groups of batches on the host: the columns of each, and the rows in each batch."""

_EXAMPLES = 16384
_BYTES = 16 * 2**20
_MIXING = 0x317


@final
class BlockMaker:
    """Makes any steps of an epoch; threads may share it.

    Raises ``DefinitionError`` for augmentations of examples that are not images, and for mixing labels that are not
    classes.
    """

    def __init__(
        self,
        split: Split,
        classes: int,
        seed: int,
        augment: tuple[Augmentation, ...],
        mix: Mixing | None,
        at_once: int = 0,
    ) -> None:
        shape, labels = split.inputs.shape, split.labels
        if augment and len(shape) != 4:
            raise DefinitionError(
                f"{type(augment[0]).__name__} of examples of shape {tuple(shape[1:])}",
                "augmentations need images, (channels, height, width)",
                "leave it out, or give the dataset that shape",
            )
        if mix is not None and (len(labels.shape) != 1 or labels.dtype.kind not in "iu"):
            raise DefinitionError(
                f"{type(mix).__name__} of labels of shape {tuple(labels.shape)} and type {labels.dtype}",
                "it mixes classes, one integer per example",
                "leave it out",
            )
        self._split, self._classes, self._seed, self._augment, self._mix = split, classes, seed, augment, mix
        self._moved, self._at_once = make_moved(split.inputs, augment), 0 if mix else at_once
        row_bytes = max(1, prod(shape[1:]) * split.inputs.dtype.itemsize)
        self._examples = min(_EXAMPLES, max(1, _BYTES // row_bytes))

    def jobs(self, order: Epoch, epoch: int, first: int, last: int, progress: float) -> Iterator[Callable[[], Block]]:
        """The jobs that make the blocks of steps ``first`` to ``last`` (exclusive), in order."""
        augment = tuple(each.at(progress) for each in self._augment)
        for start, stop in groups(order.bounds.tolist(), first, last, self._examples):
            yield partial(self._make, order, epoch, start, stop, augment)

    def _make(self, order: Epoch, epoch: int, first: int, stop: int, augment: tuple[Augmentation, ...]) -> Block:
        bounds = order.bounds[first : stop + 1].tolist()
        indices = order.order[bounds[0] : bounds[-1]]
        seeds = example_seeds(self._seed, epoch, indices)
        columns = [
            self._inputs(indices, seeds, augment),
            *[rows_of(column, indices, seeds) for column in self._split.columns[1:]],
        ]
        block = []
        for start, end in groups(bounds, 0, stop - first, self._at_once):
            cut = slice(bounds[start] - bounds[0], bounds[end] - bounds[0])
            group = tuple(column[cut] for column in columns)
            if self._mix is not None:
                generator = Generator(PCG64([self._seed, epoch, first + start, _MIXING]))
                group = self._mix.apply(group, self._classes, generator)
            block.append((group, sizes(bounds[start : end + 1])))
        return block

    def _inputs(
        self, indices: NDArray[np.int64], seeds: NDArray[np.uint64], augment: tuple[Augmentation, ...]
    ) -> NDArray[Any]:
        """The first column's rows after each augmentation in turn, changed in place if they are a copy."""
        column, done = self._split.inputs, 0
        # Rows taken from an array are a copy; a lazy column may return its own memory.
        ours = isinstance(column, np.ndarray)
        if self._moved is None:
            images = rows_of(column, indices, seeds)
        else:
            images, done = self._moved.take(indices, seeds), len(self._moved.augment)
        for position in range(done, len(augment)):
            # Each has its own random numbers, so that two of a kind in a row differ.
            each, draws = augment[position], words(seeds, position)
            if ours and isinstance(each, InPlace):
                images = images_of(images, type(each).__name__)
                each.change(images, draws)
            else:
                images = each.apply(images, draws)
            ours = True
        return images


def make_loader(
    backend: Backend,
    dataset: Dataset,
    split: Split,
    sampler: Sampler,
    *,
    seed: int,
    augment: Sequence[Augmentation] = (),
    mix: Mixing | None = None,
    workers: int = 0,
) -> Loader:
    """The batches of ``split`` in the sampler's order; ``workers`` threads work ahead if the host has work to do.

    Batches have the same bits whatever the framework, the number of workers and the step at which one starts.
    """
    normalise = normaliser(backend, dataset, split)
    if not augment and mix is None and all(is_resident(column) for column in split.columns):
        return ResidentLoader(backend, split, sampler, seed, normalise)
    at_once = examples_at_once(backend, split.inputs.shape, sampler.batch)
    maker = BlockMaker(split, dataset.classes, seed, tuple(augment), mix, at_once)
    return HostLoader(backend, split, sampler, seed, normalise, maker, workers)


_LOOKED_AT, _HELD_BACK, _SAME = 64, 4096, 1e-3

_CLOSE, _NEARER, _TIMES_USUAL, _NUMBERS = 0.3, 0.5, 3, 2**25
"""Of a disturbed example: most change, how much nearer it is, how much more often than by chance; numbers compared."""


def share_held_out(
    dataset: Dataset, sampler: Sampler, seed: int, augment: Sequence[Augmentation] = (), mix: Mixing | None = None
) -> float | None:
    """The share of a run's first training batch that are validation examples, to within 0.1 % or a little disturbed.

    Disturbed ones are twice as near to a validation example as to any training example. Of data with few dimensions or
    values, training examples are all that by themselves: three times their share is subtracted. ``None`` if the
    examples are not numbers of one shape. At most 64 examples are compared with 4,096.
    """
    split, held = dataset.train, dataset.validation
    order = sampler.epoch(split, seed, 0)
    maker = BlockMaker(split, dataset.classes, seed, tuple(augment), mix)
    (columns, _), *_ = next(maker.jobs(order, 0, 0, 1, 0.0))()
    given = np.asarray(columns[0][:_LOOKED_AT])
    chosen = np.arange(0, len(held), -(-len(held) // _HELD_BACK), dtype=np.int64)
    kept = rows_of(held.inputs, chosen, example_seeds(seed, 0, chosen))
    if given.dtype.kind not in "buif" or given.shape[1:] != kept.shape[1:] or not len(kept):
        return None
    first = order.batch(0)[:_LOOKED_AT]
    later = np.setdiff1d(np.arange(len(split), dtype=np.int64), first)
    later = later[:: max(1, -(-len(later) // min(_HELD_BACK, max(1, _NUMBERS // max(1, kept[0].size)))))]
    own = (rows_of(split.inputs, at, example_seeds(seed, 0, at)) for at in (first, later if len(later) else first))
    rows, others, before, rest = (each.reshape(len(each), -1).astype(np.float64) for each in (given, kept, *own))
    apart, sizes = _nearest(rows, others), np.linalg.norm(rows, axis=1)
    same = float(np.mean(apart <= _SAME * sizes))
    if before.shape[1] != rows.shape[1]:
        # Images that are cropped to the size of the validation examples.
        return same
    usual = _nearest(before, others)
    same -= _TIMES_USUAL * float(np.mean(usual <= _SAME * np.linalg.norm(before, axis=1)))
    if not len(later):
        return max(0.0, same)
    trained = np.minimum(_nearest(rows, before), _nearest(rows, rest))
    near = float(np.mean((apart <= _CLOSE * sizes) & (apart < _NEARER * trained)))
    near -= _TIMES_USUAL * float(np.mean(usual < _NEARER * _nearest(before, rest)))
    return max(0.0, same, near)


def share_disturbed(given: NDArray[Any], known: Sequence[NDArray[Any]], fresh: NDArray[Any]) -> float:
    """The share of ``given`` that are rows of ``known``, a little disturbed.

    Such a row is twice as near to one of ``known`` as to any of ``fresh``. Three times the share of ``fresh`` that are
    so near themselves, as in data with few dimensions, is subtracted. 64 rows of ``given`` and of ``fresh`` are looked
    at, and compared with all of ``known``.
    """
    looked, half = (each[:: max(1, len(each) // _LOOKED_AT)][:_LOOKED_AT] for each in (given, fresh[::2]))
    rest = fresh[1::2][:: max(1, len(fresh) // 2 // _HELD_BACK)]
    rows, usual, others = (each.reshape(len(each), -1).astype(np.float64) for each in (looked, half, rest))
    if not len(rows) or not len(usual) or not len(others):
        return 0.0
    both, apart = np.concatenate([rows, usual]), np.full(len(rows) + len(usual), np.inf)
    for array in known:
        for start in range(0, len(array), _HELD_BACK):
            some = array[start : start + _HELD_BACK]
            apart = np.minimum(apart, _nearest(both, some.reshape(len(some), -1).astype(np.float64)))
    close = (apart <= _CLOSE * np.linalg.norm(both, axis=1)) & (apart < _NEARER * _nearest(both, others))
    return max(0.0, float(np.mean(close[: len(rows)])) - _TIMES_USUAL * float(np.mean(close[len(rows) :])))


def _nearest(rows: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """The distance of each row from the nearest of ``others``."""
    squares = (rows**2).sum(1)[:, None] + (others**2).sum(1) - 2.0 * rows @ others.T
    return np.asarray(np.sqrt(np.maximum(squares.min(1), 0.0)))


class _Epochs(Loader):
    """A loader that remembers the order of the latest epoch it was asked for."""

    def __init__(
        self, backend: Backend, split: Split, sampler: Sampler, seed: int, normalise: Normalise | None
    ) -> None:
        self.steps = sampler.steps(split)
        self._backend = backend
        self._change = normalise or (lambda array: array)
        self._split, self._sampler, self._seed = split, sampler, seed
        self._number = -1
        self._epoch: Epoch

    def sizes(self, epoch: int) -> NDArray[np.int64]:
        self._load_order(epoch)
        return self._epoch.sizes

    def _load_order(self, epoch: int) -> None:
        if epoch != self._number:
            self._epoch = self._sampler.epoch(self._split, self._seed, epoch)
            self._number = epoch


@final
class ResidentLoader(_Epochs):
    """Gathers rows of arrays that are on the device."""

    def __init__(
        self, backend: Backend, split: Split, sampler: Sampler, seed: int, normalise: Normalise | None
    ) -> None:
        super().__init__(backend, split, sampler, seed, normalise)
        self._columns = tuple(backend.array(column) for column in split.columns if is_resident(column))
        self._at_once = examples_at_once(backend, split.inputs.shape, sampler.batch)

    def batches(
        self, epoch: int, first: int = 0, last: int | None = None, progress: float = 0.0
    ) -> Iterator[tuple[Array, ...]]:
        """One gather per column and group, and normalisation if the first column is raw."""
        self._load_order(epoch)
        backend, take, (inputs, *others) = self._backend, self._backend.take, self._columns
        change = self._change
        order, bounds = self._epoch.order, self._epoch.bounds.tolist()
        steps = list(groups(bounds, first, self.steps if last is None else last, self._at_once))
        if not steps:
            return
        cuts = [bounds[start] for start, _ in steps] + [bounds[steps[-1][1]]]
        for rows, (start, stop) in zip(backend.rows(order, cuts), steps, strict=True):
            # A batch is never given a name, so that its memory is free for the next one as soon as it has been used.
            if stop == start + 1:
                yield change(take(inputs, rows)), *[take(column, rows) for column in others]
            else:
                yield from in_batches(
                    backend,
                    (change(take(inputs, rows)), *[take(column, rows) for column in others]),
                    sizes(bounds[start : stop + 1]),
                )


@final
class HostLoader(_Epochs):
    """Makes blocks of examples on the host, ahead of time if there are workers, and splits them into batches."""

    def __init__(
        self,
        backend: Backend,
        split: Split,
        sampler: Sampler,
        seed: int,
        normalise: Normalise | None,
        maker: BlockMaker,
        workers: int,
    ) -> None:
        super().__init__(backend, split, sampler, seed, normalise)
        self._maker = maker
        self._prefetch = Prefetch(workers)

    def batches(
        self, epoch: int, first: int = 0, last: int | None = None, progress: float = 0.0
    ) -> Iterator[tuple[Array, ...]]:
        """The host's columns on the device, where the first is normalised."""
        self._load_order(epoch)
        backend, array, change = self._backend, self._backend.array, self._change
        jobs = self._maker.jobs(self._epoch, epoch, first, self.steps if last is None else last, progress)
        for block in self._prefetch.ordered(jobs):
            for (inputs, *others), rows in block:
                if len(rows) == 1:
                    yield change(array(inputs)), *[array(each) for each in others]
                else:
                    yield from in_batches(backend, (change(array(inputs)), *[array(each) for each in others]), rows)
            # Freed here so that the next block can reuse the memory.
            del block, inputs, others

    def close(self) -> None:
        self._prefetch.close()
