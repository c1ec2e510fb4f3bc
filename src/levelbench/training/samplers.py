"""Samplers: in which order an epoch visits the training set, and in which batches.

An epoch is a function of the split, the seed and its number alone. So every framework, process and number of workers
sees the same batches, and training can resume in the middle of an epoch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, final

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from levelbench.errors import DefinitionError
from levelbench.training.datasets.base import SomeRows, Split, rows_of

Indices = NDArray[np.int64]


@final
@dataclass(frozen=True, eq=False)
class Epoch:
    """The batches of an epoch: batch i is ``order[bounds[i] : bounds[i + 1]]``.

    ``order`` holds indices of examples, shape (visits,); ``bounds`` ascends from 0 to visits, shape (steps + 1,).
    """

    order: Indices
    bounds: Indices

    def batch(self, step: int) -> Indices:
        """The examples of one step."""
        return self.order[self.bounds[step] : self.bounds[step + 1]]

    @property
    def sizes(self) -> Indices:
        """Examples by step, shape (steps,)."""
        return np.diff(self.bounds)


@dataclass(frozen=True)
class Sampler(ABC):
    """Batches of ``batch`` examples; the last of an epoch may be smaller."""

    batch: int
    exact: ClassVar[bool] = True
    """Whether an epoch visits every example exactly once."""
    random_order: ClassVar[bool] = True
    """Whether every example is equally likely to come early or late in an epoch."""

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise DefinitionError(f"{type(self).__name__} with batch={self.batch}", "it is empty", "choose batch >= 1")

    @abstractmethod
    def epoch(self, split: Split, seed: int, epoch: int) -> Epoch:
        """The batches of epoch number ``epoch`` (from 0)."""

    def steps(self, split: Split) -> int:
        """Batches per epoch, the same in every epoch."""
        return -(-len(split) // self.batch)

    def expected_shares(self, split: Split) -> NDArray[np.float64] | None:
        """Each example's expected share of the visits, shape (n,); ``None`` if it is unknown."""
        return np.full(len(split), 1.0 / len(split))

    def batched(self, order: Indices) -> Epoch:
        """An order cut into batches, the last of which may be smaller."""
        return Epoch(order, np.append(np.arange(0, len(order), self.batch, dtype=np.int64), len(order)))


_BLOCK = 4096


def some_of(split: Split, chosen: NDArray[np.int64]) -> Split:
    """A split of these examples alone: labels as an array, all other columns as views."""
    columns = [
        column[chosen] if isinstance(column, np.ndarray) and column.ndim == 1 else SomeRows(column, chosen)
        for column in split.columns
    ]
    reference = None if split.reference is None else [split.reference[at] for at in chosen.tolist()]
    return Split(tuple(columns), split.targets, reference)


def labels_of(split: Split, asked: str) -> NDArray[np.int64]:
    """The class of each example, shape (n,); ``DefinitionError`` if the last column does not hold classes."""
    labels = split.labels
    if len(labels.shape) != 1 or np.dtype(labels.dtype).kind not in "iu":
        raise DefinitionError(
            asked, f"the labels are {labels.dtype} of shape {tuple(labels.shape)}", "it needs one integer per example"
        )
    found = rows_of(labels, np.arange(len(split), dtype=np.int64)).astype(np.int64, copy=False)
    if len(found) and found.min() < 0:
        raise DefinitionError(asked, f"a label is {found.min()}", "it needs classes from 0 on")
    return found


def lengths_of(split: Split, column: int, padding: int) -> NDArray[np.int64]:
    """The length of each row of a column, up to the last value that is not ``padding``, shape (n,)."""
    if not -len(split.columns) <= column < len(split.columns) or len(split.columns[column].shape) < 2:
        raise DefinitionError(
            f"the lengths of column {column}", "it does not exist, or has one dimension", "name a column of tokens"
        )
    source = split.columns[column]
    lengths = np.empty(len(split), np.int64)
    for start in range(0, len(split), _BLOCK):
        rows = rows_of(source, np.arange(start, min(start + _BLOCK, len(split)), dtype=np.int64))
        used = (rows != padding).reshape(len(rows), rows.shape[1], -1).any(axis=2)
        lengths[start : start + len(rows)] = np.where(used.any(axis=1), used.shape[1] - used[:, ::-1].argmax(axis=1), 0)
    return lengths


@dataclass(frozen=True)
class EvenSampler(Sampler, ABC):
    """Batches of ``batch`` examples; the rest of an epoch is a smaller batch, or is left out with ``drop_last``."""

    drop_last: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.drop_last:
            # Otherwise constant for the class; if examples are left out, no epoch is complete.
            object.__setattr__(self, "exact", False)

    def visits(self, split: Split) -> int:
        """Examples drawn in an epoch, before an incomplete batch is left out."""
        return len(split)

    def steps(self, split: Split) -> int:
        """Batches per epoch. ``DefinitionError`` if leaving out the last one leaves none."""
        visits = self.visits(split)
        steps = visits // self.batch if self.drop_last else -(-visits // self.batch)
        if not steps:
            raise DefinitionError(f"{self!r} of {visits} examples", "an epoch has no batch", "choose a smaller batch")
        return steps

    def batched(self, order: NDArray[np.int64]) -> Epoch:
        return super().batched(order[: len(order) // self.batch * self.batch] if self.drop_last else order)


@dataclass(frozen=True)
class Sequential(EvenSampler):
    """In the order of the data, the same in every epoch."""

    random_order: ClassVar[bool] = False

    def epoch(self, split: Split, seed: int, epoch: int) -> Epoch:
        return self.batched(np.arange(len(split), dtype=np.int64))


def generator_of(seed: int, epoch: int) -> Generator:
    """An epoch's random generator, which depends on these two numbers alone."""
    return Generator(PCG64([seed, epoch, 0x5AFE]))


@dataclass(frozen=True)
class Shuffled(EvenSampler):
    """A new uniform permutation each epoch; with ``drop_last`` different examples are left out each time."""

    def epoch(self, split: Split, seed: int, epoch: int) -> Epoch:
        return self.batched(generator_of(seed, epoch).permutation(len(split)).astype(np.int64, copy=False))


_RADIX = 2**16


@dataclass(frozen=True)
class Stratified(EvenSampler):
    """Every example once per epoch in random order, with the classes' shares in each batch.

    After any number of visits, the count of a class is within (1 + C s) / 2 of its share s of them, for C classes. If
    classes have one size and batches are a multiple of C, every batch has each class equally often.
    """

    def epoch(self, split: Split, seed: int, epoch: int) -> Epoch:
        """Each class in its own random order, the classes interleaved."""
        generator = generator_of(seed, epoch)
        labels = labels_of(split, f"Stratified of {len(split)} examples")
        shuffled = generator.permutation(len(split))
        counts = np.bincount(labels)
        # Sorted by class, in random order within each; up to 16 bits the sort is a radix sort.
        few = len(counts) <= _RADIX
        keys = labels[shuffled].astype(np.uint16) if few else labels[shuffled]
        grouped = shuffled[np.argsort(keys, kind="stable")]
        starts = np.cumsum(counts) - counts
        mine = labels[grouped]
        places = (np.arange(len(split)) - starts[mine] + 0.5) / counts[mine]
        # The sort is stable, so ties between examples of one place are broken at random.
        mixed = generator.permutation(len(split))
        return self.batched(grouped[mixed[np.argsort(places[mixed], kind="stable")]].astype(np.int64))


@dataclass(frozen=True)
class Weighted(EvenSampler):
    """Draws in proportion to ``weights``.

    There is a weight for each class, or for each example with ``by="example"``; ``None`` makes all classes equally
    likely, whatever their sizes. An epoch has ``draws`` visits (default: the number of examples). Without
    ``replacement``, examples are drawn as from an urn (Efraimidis & Spirakis 2006).
    """

    weights: tuple[float, ...] | None = None
    by: str = "class"
    replacement: bool = True
    draws: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.by not in ("class", "example") or (self.weights is None and self.by == "example"):
            raise DefinitionError(
                f"Weighted by {self.by!r}", "this is not supported, or weights are missing", 'by="class" or "example"'
            )
        if self.weights is not None:
            given = np.asarray(self.weights, np.float64)
            least = 0.0 if self.replacement else np.nextafter(0.0, 1.0)
            if given.ndim != 1 or not (np.isfinite(given) & (given >= least)).all() or not given.sum() > 0:
                raise DefinitionError(
                    "the weights of Weighted",
                    "one is negative or not finite, all are zero, or one is zero without replacement",
                    "give finite weights, above zero without replacement",
                )
        if self.draws is not None and self.draws < 1:
            raise DefinitionError(f"Weighted with draws={self.draws}", "an epoch is empty", "choose draws >= 1")
        if self.replacement or self.draws is not None:
            object.__setattr__(self, "exact", False)
        object.__setattr__(self, "random_order", self.replacement)

    def probabilities(self, split: Split) -> NDArray[np.float64]:
        """The probability of each example at the first draw, shape (n,), summing to 1."""
        asked = f"Weighted by {self.by} of {len(split)} examples"
        if self.by == "example":
            weights = np.asarray(self.weights, np.float64)
            if len(weights) != len(split):
                raise DefinitionError(asked, f"there are {len(weights)} weights", "give one for each example")
            return np.asarray(weights / weights.sum())
        labels = labels_of(split, asked)
        counts = np.bincount(labels)
        if self.weights is None:
            by_class = 1.0 / np.maximum(counts, 1)
        elif len(self.weights) < len(counts):
            raise DefinitionError(
                asked, f"there are {len(self.weights)} weights for {len(counts)} classes", "give one for each class"
            )
        else:
            by_class = np.asarray(self.weights, np.float64)
        weights = by_class[labels]
        if not weights.sum() > 0:
            raise DefinitionError(asked, "no example has a weight above zero", "give weight to a class that occurs")
        return np.asarray(weights / weights.sum())

    def expected_shares(self, split: Split) -> NDArray[np.float64] | None:
        """``None`` if only part of an urn is drawn."""
        if self.replacement:
            return self.probabilities(split)
        return super().expected_shares(split) if self.visits(split) == len(split) else None

    def visits(self, split: Split) -> int:
        """Draws per epoch. ``DefinitionError`` if there are more than examples without replacement."""
        draws = len(split) if self.draws is None else self.draws
        if not self.replacement and draws > len(split):
            raise DefinitionError(
                f"{draws} draws without replacement", f"there are {len(split)} examples", "draw fewer, or replace"
            )
        return draws

    def epoch(self, split: Split, seed: int, epoch: int) -> Epoch:
        """The draws in order, cut into batches."""
        generator, shares, visits = generator_of(seed, epoch), self.probabilities(split), self.visits(split)
        if self.replacement:
            cumulative = np.cumsum(shares)
            # Rounding may make the sum differ from 1, and an example without weight must never be drawn.
            places = generator.random(visits) * cumulative[-1]
            last = int(np.flatnonzero(shares)[-1])
            return self.batched(np.minimum(np.searchsorted(cumulative, places, side="right"), last).astype(np.int64))
        # Independent exponential clocks with these rates ring in urn order.
        clocks = generator.standard_exponential(len(split)) / shares
        return self.batched(np.argsort(clocks, kind="stable")[:visits].astype(np.int64))


@dataclass(frozen=True)
class Bucketed(Sampler):
    """Every example once per epoch, in batches of similar lengths, the batches shuffled.

    ``length`` is a function from the split to the lengths (n,); by default a length counts the values in column
    ``column`` up to the last that is not ``padding``. The data is shuffled and then sorted by length in pools of
    ``pool`` batches (0: all of it): small pools mix more, large ones pad less. With ``tokens``, a batch ends before its
    examples times the longest of them exceed that number. Everything is then sorted at once, so that each epoch has the
    same number of batches, and an example that is too long by itself is a batch.
    """

    column: int = 0
    padding: int = 0
    length: Callable[[Split], NDArray[np.int64]] | None = None
    pool: int = 64
    tokens: int | None = None
    random_order: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pool < 0 or (self.tokens is not None and self.tokens < 1):
            raise DefinitionError(
                f"Bucketed with pool={self.pool}, tokens={self.tokens}",
                "the pool is negative, or a batch has no tokens",
                "choose pool >= 0 and tokens >= 1",
            )

    def lengths(self, split: Split) -> Indices:
        """The length of each example, shape (n,)."""
        if self.length is None:
            return lengths_of(split, self.column, self.padding)
        found = np.asarray(self.length(split))
        if found.shape != (len(split),) or found.dtype.kind not in "iu" or (len(found) and found.min() < 0):
            raise DefinitionError(
                "the lengths of Bucketed",
                f"its function gave {found.dtype} of shape {found.shape} for {len(split)} examples",
                "give an integer >= 0 for each example",
            )
        return found.astype(np.int64, copy=False)

    def steps(self, split: Split) -> int:
        if self.tokens is None:
            return super().steps(split)
        return len(self._by_tokens(np.sort(self.lengths(split)))) - 1

    def epoch(self, split: Split, seed: int, epoch: int) -> Epoch:
        """The examples sorted by length within their pools, the batches in random order."""
        generator, lengths = generator_of(seed, epoch), self.lengths(split)
        shuffled = generator.permutation(len(split)).astype(np.int64)
        pooled = self.pool and self.tokens is None
        pools = np.arange(len(split)) // (self.pool * self.batch) if pooled else np.zeros(len(split), np.int64)
        # lexsort is stable, so equal lengths stay shuffled.
        order = shuffled[np.lexsort((lengths[shuffled], pools))]
        bounds = self.batched(order).bounds if self.tokens is None else self._by_tokens(lengths[order])
        steps = generator.permutation(len(bounds) - 1)
        return _pick_batches(order, bounds[:-1][steps], np.diff(bounds)[steps])

    def _by_tokens(self, ascending: Indices) -> Indices:
        """Where batches begin, and the end: each is as large as ``tokens`` and ``batch`` allow."""
        assert self.tokens is not None
        bounds, start = [0], 0
        while start < len(ascending):
            # Lengths ascend, so the last is the longest, and a batch of k costs k times it.
            window = ascending[start : start + self.batch]
            costs = np.arange(1, len(window) + 1) * window
            start += max(1, int(np.searchsorted(costs, self.tokens, side="right")))
            bounds.append(start)
        return np.array(bounds, np.int64)


def _pick_batches(order: Indices, starts: Indices, sizes: Indices) -> Epoch:
    """Batches with these starts and sizes in an order, without a Python loop."""
    ends = np.cumsum(sizes)
    places = np.repeat(starts - (ends - sizes), sizes) + np.arange(int(sizes.sum()))
    return Epoch(order[places], np.concatenate([np.zeros(1, np.int64), ends.astype(np.int64)]))


@dataclass(frozen=True)
class _Wrapper(Sampler):
    """A sampler around another one; ``exact`` says whether it keeps that one's promise."""

    batch: int = field(init=False)
    sampler: Sampler

    def _set_promises(self, batch: int, exact: bool) -> None:
        # The dataclass is frozen, and callers do not set these.
        object.__setattr__(self, "batch", batch)
        object.__setattr__(self, "exact", exact and self.sampler.exact)
        object.__setattr__(self, "random_order", self.sampler.random_order)
        super().__post_init__()

    def expected_shares(self, split: Split) -> NDArray[np.float64] | None:
        return self.sampler.expected_shares(split)


@dataclass(frozen=True)
class Partitioned(_Wrapper):
    """The part of each batch of ``sampler`` for rank ``rank`` of ``ranks``; together the ranks have exactly that batch.

    Of m examples each rank has m // ranks or one more, in order, for any number of ranks. All ranks take the same
    number of steps; a rank may have no examples of a small last batch.
    """

    rank: int = 0
    ranks: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.ranks:
            raise DefinitionError(
                f"rank {self.rank} of {self.ranks}", "there is no such rank", "count ranks from 0 to ranks - 1"
            )
        self._set_promises(-(-self.sampler.batch // self.ranks), exact=self.ranks == 1)

    def steps(self, split: Split) -> int:
        return self.sampler.steps(split)

    def epoch(self, split: Split, seed: int, epoch: int) -> Epoch:
        whole = self.sampler.epoch(split, seed, epoch)
        sizes = whole.sizes
        first, last = (sizes * at // self.ranks for at in (self.rank, self.rank + 1))
        return _pick_batches(whole.order, whole.bounds[:-1] + first, last - first)


@dataclass(frozen=True)
class Subset(_Wrapper):
    """``sampler`` on a random choice of ``examples`` examples, which is the same in every run and epoch."""

    examples: int = 1
    choice: int = 0

    def __post_init__(self) -> None:
        if self.examples < 1:
            raise DefinitionError(f"a subset of {self.examples} examples", "it is empty", "choose examples >= 1")
        self._set_promises(self.sampler.batch, exact=False)

    def chosen(self, split: Split) -> NDArray[np.int64]:
        """The chosen examples, ascending, shape (examples,)."""
        if self.examples > len(split):
            raise DefinitionError(f"a subset of {self.examples} examples", f"there are {len(split)}", "choose fewer")
        generator = Generator(PCG64([self.choice, 0x50B5E7]))
        return np.sort(generator.permutation(len(split))[: self.examples]).astype(np.int64)

    def expected_shares(self, split: Split) -> NDArray[np.float64] | None:
        chosen, shares = self.chosen(split), np.zeros(len(split))
        inner = self.sampler.expected_shares(some_of(split, chosen))
        if inner is None:
            return None
        shares[chosen] = inner
        return shares

    def steps(self, split: Split) -> int:
        return self.sampler.steps(some_of(split, self.chosen(split)))

    def epoch(self, split: Split, seed: int, epoch: int) -> Epoch:
        chosen = self.chosen(split)
        inner = self.sampler.epoch(some_of(split, chosen), seed, epoch)
        return Epoch(chosen[inner.order], inner.bounds)


@dataclass(frozen=True)
class Repeated(_Wrapper):
    """``times`` epochs of ``sampler`` in a row as one."""

    times: int = 1

    def __post_init__(self) -> None:
        if self.times < 1:
            raise DefinitionError(f"an epoch {self.times} times", "it is empty", "choose times >= 1")
        self._set_promises(self.sampler.batch, exact=self.times == 1)

    def steps(self, split: Split) -> int:
        return self.times * self.sampler.steps(split)

    def epoch(self, split: Split, seed: int, epoch: int) -> Epoch:
        parts = [self.sampler.epoch(split, seed, epoch * self.times + at) for at in range(self.times)]
        starts = np.cumsum([0, *(len(each.order) for each in parts[:-1])])
        bounds = [each.bounds[:-1] + start for each, start in zip(parts, starts, strict=True)]
        order = np.concatenate([each.order for each in parts])
        return Epoch(order, np.append(np.concatenate(bounds), len(order)).astype(np.int64))
