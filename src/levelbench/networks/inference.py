"""The system under test of an inference run: samples by their numbers in, the network's outputs on the host out.

An answer is there when its outputs can be read on the host, so the way to the device and back is part of it; accuracy,
audits and timed queries go through the same function. A prepared feed has the finished inputs in memory and copies
rows; a raw one has what the data set has and makes inputs of it, on the clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from levelbench.networks.executor import Array, Backend, Executor

Finish = Callable[[Array], Array]
Before = Callable[[NDArray[Any]], NDArray[Any]]
_ROWS = 256


class Rows(Protocol):
    """Rows that are read, decoded or made when they are asked for."""

    def take(self, indices: NDArray[np.int64], seeds: NDArray[np.uint64] | None) -> NDArray[Any]:
        """The rows at ``indices``; without seeds, as they are evaluated."""


Source = NDArray[Any] | Rows


class Feed(ABC):
    """The inputs of the network for samples by their numbers."""

    includes: tuple[str, ...]
    """What it does on the clock, in words for a record."""

    @abstractmethod
    def inputs(self, indices: NDArray[np.int64]) -> list[Array]:
        """Native arrays in the network's order, one row a sample."""

    def load(self, indices: NDArray[np.int64]) -> None:  # noqa: B027  # a feed that prepares nothing has nothing to do
        """Make ready, off the clock, for queries about these samples."""


class RawFeed(Feed):
    """Takes rows as the data set has them and makes inputs of them at each query."""

    includes = ("preprocessing", "transfer")

    def __init__(
        self, backend: Backend, sources: Sequence[Source], finish: Finish | None = None, before: Before | None = None
    ) -> None:
        """``finish`` is applied to the first native array, the normalisation of raw pixels on the device.

        ``before`` is applied to the first rows on the host, for a framework whose arrays know no arithmetic.
        """
        self._backend, self._sources, self._finish, self._before = backend, tuple(sources), finish, before

    def inputs(self, indices: NDArray[np.int64]) -> list[Array]:
        """Read or decode the rows, bring them to the device, normalise them there (or on the host before)."""
        rows = [_rows(each, indices) for each in self._sources]
        if self._before is not None:
            rows[0] = self._before(rows[0])
        native = [self._backend.array(each) for each in rows]
        if self._finish is not None:
            native[0] = self._finish(native[0])
        return native


class PreparedFeed(Feed):
    """Makes all inputs once, before any clock runs, and hands out copies of their rows."""

    includes = ("transfer",)

    def __init__(
        self, backend: Backend, sources: Sequence[Source], finish: Finish | None = None, before: Before | None = None
    ) -> None:
        """As for :class:`RawFeed`."""
        self._backend, self._raw = backend, RawFeed(backend, sources, finish, before)
        # What is an array already, with nothing to be done to it, is taken as it is.
        ready = finish is None and before is None and all(isinstance(each, np.ndarray) for each in sources)
        self._ready: list[NDArray[Any]] | None = [np.asarray(each) for each in sources] if ready else None
        self._place: dict[int, int] | None = None

    def load(self, indices: NDArray[np.int64]) -> None:
        """Preprocess these samples; others are preprocessed when they are asked for."""
        if self._ready is not None and (self._place is None or self._place.keys() >= set(indices.tolist())):
            return
        parts = []
        for start in range(0, len(indices), _ROWS):
            native = self._raw.inputs(indices[start : start + _ROWS])
            parts.append([np.asarray(self._backend.host(each)) for each in native])
        self._ready = [np.concatenate(each) for each in zip(*parts, strict=True)]
        self._place = {int(index): at for at, index in enumerate(indices)}

    def inputs(self, indices: NDArray[np.int64]) -> list[Array]:
        """Copy the finished rows and bring them to the device."""
        if self._ready is None:
            return self._raw.inputs(indices)
        places = indices
        if self._place is not None:
            found = [self._place.get(int(each), -1) for each in indices]
            if -1 in found:
                return self._raw.inputs(indices)
            places = np.array(found, np.int64)
        return [self._backend.array(each[places]) for each in self._ready]


def _rows(source: Source, indices: NDArray[np.int64]) -> NDArray[Any]:
    if isinstance(source, np.ndarray):
        return np.ascontiguousarray(source[indices])
    return source.take(indices, None)


Outputs = tuple[NDArray[Any], ...]


class Answerer:
    """Answers queries on a backend with as many executors as there are workers.

    ``batch`` is how many samples the network gets at once at most; with ``fixed`` it always gets so many, the last ones
    repeated, for networks and compilers that know one shape only. Calls from several threads at once wait for an
    executor that is free.
    """

    def __init__(
        self,
        backend: Backend,
        make_executor: Callable[[], Executor],
        feed: Feed,
        batch: int = 1,
        workers: int = 1,
        *,
        fixed: bool = False,
    ) -> None:
        self.backend, self.feed, self.batch = backend, feed, batch
        self._fixed = fixed
        self._free: SimpleQueue[Executor] = SimpleQueue()
        self._executors = [make_executor() for _ in range(workers)]
        for each in self._executors:
            self._free.put(each)
        self._kept: list[tuple[NDArray[np.int64], Outputs]] | None = None

    def load(self, indices: Sequence[int] | NDArray[np.int64]) -> None:
        """Make ready for queries about these samples, off the clock."""
        self.feed.load(np.asarray(indices, np.int64))

    def warm_up(self, indices: Sequence[int]) -> None:
        """Answer these on each executor, so that nothing is compiled or started on the clock."""
        for _ in self._executors:
            # Taken from the front and put back at the end: each has its turn.
            self.answer(indices)

    def keep_answers(self) -> None:
        """Keep all outputs from now on. On the clock that is one entry of a list a call: they are cut up later."""
        self._kept = []

    def kept_answers(self) -> dict[int, Outputs]:
        """The outputs of each sample since :meth:`keep_answers`, the last ones of each; no more are kept."""
        kept, self._kept = self._kept or [], None
        return {
            index: tuple(each[at] for each in outputs)
            for chunk, outputs in kept
            for at, index in enumerate(chunk.tolist())
        }

    def answer(self, indices: Sequence[int]) -> None:
        """Answer about these samples; returns once all outputs are on the host."""
        kept = self._kept
        for answered in self._answers(indices):
            if kept is not None:
                kept.append(answered)

    def outputs(self, indices: Sequence[int] | NDArray[np.int64]) -> Outputs:
        """The outputs for these samples, one row each, by the same path."""
        parts = [outputs for _, outputs in self._answers(indices)]
        return tuple(np.concatenate(each) for each in zip(*parts, strict=True))

    def _answers(self, indices: Sequence[int] | NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], Outputs]]:
        """The samples of each batch, and their outputs."""
        wanted = np.asarray(indices, np.int64)
        executor = self._free.get()
        try:
            for start in range(0, len(wanted), self.batch):
                chunk = wanted[start : start + self.batch]
                yield chunk, self._outputs(executor, chunk)
        finally:
            self._free.put(executor)

    def _outputs(self, executor: Executor, chunk: NDArray[np.int64]) -> Outputs:
        count = len(chunk)
        if self._fixed and count < self.batch:
            chunk = np.concatenate([chunk, np.repeat(chunk[-1:], self.batch - count)])
        host = self.backend.host
        found = tuple(np.asarray(host(each)) for each in executor.infer(*self.feed.inputs(chunk)))
        return tuple(each[:count] for each in found) if len(chunk) > count else found
