"""The system under test of an inference run: takes sample numbers and returns the network's outputs on the host.

An answer is complete when its outputs can be read on the host, so transfers to the device and back are part of it.
Accuracy, audits and timed queries use the same function. A prepared feed has finished inputs in memory and copies rows;
a raw feed makes inputs from the rows of the data set, on the clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from levelbench.measure.clocks import Clock
from levelbench.networks.executor import Array, Backend, Executor

Finish = Callable[[Array], Array]
Before = Callable[[NDArray[Any]], NDArray[Any]]
_ROWS = 256


class Rows(Protocol):
    """Rows that are read, decoded or made on request."""

    def take(self, indices: NDArray[np.int64], seeds: NDArray[np.uint64] | None) -> NDArray[Any]:
        """The rows at ``indices``; without seeds, as for evaluation."""


Source = NDArray[Any] | Rows


class Feed(ABC):
    """The inputs of the network, by sample number."""

    includes: tuple[str, ...]
    """What it does on the clock, for the record."""

    @abstractmethod
    def inputs(self, indices: NDArray[np.int64]) -> list[Array]:
        """Native arrays in the network's order, one row per sample."""

    def load(self, indices: NDArray[np.int64]) -> None:  # noqa: B027  # a feed that prepares nothing has nothing to do
        """Prepare, off the clock, for queries about these samples."""


class RawFeed(Feed):
    """Makes inputs from the rows of the data set at each query."""

    includes = ("preprocessing", "transfer")

    def __init__(
        self, backend: Backend, sources: Sequence[Source], finish: Finish | None = None, before: Before | None = None
    ) -> None:
        """``finish`` is applied to the first native array: the normalisation of raw pixels on the device.

        ``before`` is applied to the first rows on the host, for frameworks whose arrays have no arithmetic.
        """
        self._backend, self._sources, self._finish, self._before = backend, tuple(sources), finish, before

    def inputs(self, indices: NDArray[np.int64]) -> list[Array]:
        """Read or decode the rows, transfer them to the device, and normalise them there (or on the host before)."""
        rows = [_rows(each, indices) for each in self._sources]
        if self._before is not None:
            rows[0] = self._before(rows[0])
        native = [self._backend.array(each) for each in rows]
        if self._finish is not None:
            native[0] = self._finish(native[0])
        return native


class PreparedFeed(Feed):
    """Makes all inputs once, before any clock runs, and returns copies of their rows."""

    includes = ("transfer",)

    def __init__(
        self, backend: Backend, sources: Sequence[Source], finish: Finish | None = None, before: Before | None = None
    ) -> None:
        """Arguments are those of :class:`RawFeed`."""
        self._backend, self._raw = backend, RawFeed(backend, sources, finish, before)
        # Arrays that need no preprocessing are used directly.
        ready = finish is None and before is None and all(isinstance(each, np.ndarray) for each in sources)
        self._ready: list[NDArray[Any]] | None = [np.asarray(each) for each in sources] if ready else None
        self._place: dict[int, int] | None = None

    def load(self, indices: NDArray[np.int64]) -> None:
        """Preprocess these samples; others are preprocessed on request."""
        if self._ready is not None and (self._place is None or self._place.keys() >= set(indices.tolist())):
            return
        parts = []
        for start in range(0, len(indices), _ROWS):
            native = self._raw.inputs(indices[start : start + _ROWS])
            parts.append([np.asarray(self._backend.host(each)) for each in native])
        self._ready = [np.concatenate(each) for each in zip(*parts, strict=True)]
        self._place = {int(index): at for at, index in enumerate(indices)}

    def inputs(self, indices: NDArray[np.int64]) -> list[Array]:
        """Copy the finished rows and transfer them to the device."""
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


@dataclass(frozen=True)
class Span:
    """How long a continuation took: when it began, and from its first token to its last; of which samples."""

    samples: tuple[int, ...]
    began_ns: int
    decode_ns: int


class Greedy:
    """Continues the first ``prompt`` tokens of a row by the likeliest one, ``tokens`` times.

    The networks keep no keys and values between calls: each token costs a pass over the prompt and the room for all
    tokens. That room has zeros at first, which a causal network does not see. ``spans`` has one span a pass.
    """

    def __init__(self, prompt: int, tokens: int, clock: Clock) -> None:
        self.prompt, self.tokens, self.spans = prompt, tokens, deque[Span]()
        self._clock = clock

    def outputs(self, backend: Backend, executor: Executor, samples: Sequence[int], inputs: Array) -> Outputs:
        """The new tokens, (samples, tokens), int64; ``samples`` are the numbers of the rows of the ``inputs``."""
        began_ns, host, array = self._clock.now_ns(), backend.host, backend.array
        rows = np.array(host(inputs))[:, : self.prompt + self.tokens]
        rows[:, self.prompt :] = 0
        first_ns = last_ns = began_ns
        for at in range(self.prompt, self.prompt + self.tokens):
            rows[:, at] = np.asarray(host(executor.infer(array(rows))[0]))[:, at - 1].argmax(axis=-1)
            last_ns = self._clock.now_ns()
            first_ns = last_ns if at == self.prompt else first_ns
        self.spans.append(Span(tuple(samples), began_ns, last_ns - first_ns))
        return (rows[:, self.prompt :],)


class Answerer:
    """Answers queries on a backend with one executor per worker.

    ``batch`` is the largest number of samples that the network gets at once; with ``fixed`` it always gets that many,
    repeating the last, for networks and compilers that support only one shape. Concurrent calls wait for a free
    executor. With ``greedy`` an answer is a continuation of the sample instead of the network's outputs.
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
        greedy: Greedy | None = None,
    ) -> None:
        self.backend, self.feed, self.batch, self.greedy = backend, feed, batch, greedy
        self._fixed = fixed
        self._free: SimpleQueue[Executor] = SimpleQueue()
        self._executors = [make_executor() for _ in range(workers)]
        for each in self._executors:
            self._free.put(each)
        self._kept: list[tuple[NDArray[np.int64], Outputs]] | None = None

    def without_greedy(self) -> Answerer:
        """The same executors, whose answers are the network's outputs."""
        found = copy(self)
        found.greedy = None
        return found

    def load(self, indices: Sequence[int] | NDArray[np.int64]) -> None:
        """Prepare for queries about these samples, off the clock."""
        self.feed.load(np.asarray(indices, np.int64))

    def warm_up(self, indices: Sequence[int]) -> None:
        """Answer these queries on each executor, so that nothing is compiled or started on the clock."""
        for _ in self._executors:
            # Executors are taken from the front and put back at the end, so each gets its turn.
            self.answer(indices)

    def keep_answers(self) -> None:
        """Keep all outputs from now on. On the clock this appends one list entry per call; they are split later."""
        self._kept = []

    def kept_answers(self) -> dict[int, Outputs]:
        """The latest outputs of each sample since :meth:`keep_answers`; stops keeping outputs."""
        kept, self._kept = self._kept or [], None
        return {
            index: tuple(each[at] for each in outputs)
            for chunk, outputs in kept
            for at, index in enumerate(chunk.tolist())
        }

    def answer(self, indices: Sequence[int]) -> None:
        """Answer a query about these samples; returns once all outputs are on the host."""
        kept = self._kept
        for answered in self._answers(indices):
            if kept is not None:
                kept.append(answered)

    def outputs(self, indices: Sequence[int] | NDArray[np.int64]) -> Outputs:
        """The outputs for these samples, one row each, computed in the same way."""
        parts = [outputs for _, outputs in self._answers(indices)]
        return tuple(np.concatenate(each) for each in zip(*parts, strict=True))

    def scores(self, rows: NDArray[Any]) -> NDArray[Any]:
        """The network's first output for these rows, a full batch, of its single input."""
        executor = self._free.get()
        try:
            return np.asarray(self.backend.host(executor.infer(self.backend.array(rows))[0]))
        finally:
            self._free.put(executor)

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
        host, inputs = self.backend.host, self.feed.inputs(chunk)
        if self.greedy is not None:
            made = self.greedy.outputs(self.backend, executor, chunk[:count].tolist(), inputs[0])
            return tuple(each[:count] for each in made)
        found = tuple(np.asarray(host(each)) for each in executor.infer(*inputs))
        return tuple(each[:count] for each in found) if len(chunk) > count else found
