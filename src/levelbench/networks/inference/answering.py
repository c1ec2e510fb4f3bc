"""The system under test: asked about samples by their numbers, it answers with the network's outputs on the host.

The one idea: an answer is there when its outputs can be read on the host, so the way to the device and back is part of
it. Accuracy, audits and the timed queries go through this one function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.networks.executor import Backend, Executor
from levelbench.networks.inference.feeding import Feed

__all__ = ["Answerer"]

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
        wanted = np.asarray(indices, np.int64)
        kept = self._kept
        executor = self._free.get()
        try:
            for start in range(0, len(wanted), self.batch):
                chunk = wanted[start : start + self.batch]
                outputs = self._outputs(executor, chunk)
                if kept is not None:
                    kept.append((chunk, outputs))
        finally:
            self._free.put(executor)

    def outputs(self, indices: Sequence[int] | NDArray[np.int64]) -> Outputs:
        """The outputs for these samples, one row each, by the same path."""
        wanted = np.asarray(indices, np.int64)
        executor = self._free.get()
        try:
            parts = [
                self._outputs(executor, wanted[start : start + self.batch])
                for start in range(0, len(wanted), self.batch)
            ]
        finally:
            self._free.put(executor)
        return tuple(np.concatenate(each) for each in zip(*parts, strict=True))

    def _outputs(self, executor: Executor, chunk: NDArray[np.int64]) -> Outputs:
        count = len(chunk)
        if self._fixed and count < self.batch:
            chunk = np.concatenate([chunk, np.repeat(chunk[-1:], self.batch - count)])
        host = self.backend.host
        found = tuple(np.asarray(host(each)) for each in executor.infer(*self.feed.inputs(chunk)))
        return tuple(each[:count] for each in found) if len(chunk) > count else found
