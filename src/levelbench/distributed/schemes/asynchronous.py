"""The asynchronous parameter server: each gradient is applied when it arrives, and no worker waits for another.

The one idea: the servers count versions, so they know of each gradient how many updates it has missed: its staleness.
How soon a worker gets its answer is the one thing in which the stale-synchronous scheme differs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from levelbench.distributed.packing import Packed
from levelbench.distributed.scheme import Scheme, SchemeStepper, Traffic, Worker
from levelbench.distributed.schemes.base import begin_as_rank_zero, number, numbers, those_under, under
from levelbench.distributed.schemes.parameter_server import (
    Shard,
    require_separable,
    served_traffic,
    shards,
    trainers,
)
from levelbench.distributed.schemes.step_counts import StepCounts
from levelbench.measure.timeline import Phase
from levelbench.networks.executor import Array
from levelbench.training.optimizers import checks
from levelbench.training.optimizers.arrays import norm

__all__ = ["AsynchronousParameterServer", "ServedScheme"]

_STALENESS, _LAG = 0, 1
"""Rows of what a server keeps of each push."""


@dataclass(frozen=True)
class ServedScheme(Scheme):
    """Workers push gradients to servers, which apply them as they arrive, and get the parameters back.

    The last ``servers`` ranks serve; whole parameters are dealt out among them by size. Each push is an update of its
    own, number 1, 2, ... of that server, at 1 / workers of the learning rate: the workers' updates of one step move as
    far as the one update of a single process. With ``staleness_aware`` a gradient of staleness τ moves at 1 / max(1, τ)
    of that (Zhang et al. 2016). Gradients are weighted by share · workers.
    """

    servers: int = 1
    staleness_aware: bool = False

    consistent: ClassVar[bool] = False
    replicated: ClassVar[bool] = False
    lockstep: ClassVar[bool] = False

    def __post_init__(self) -> None:
        checks.at_least(self, 1, "servers")

    @property
    @abstractmethod
    def bound(self) -> int | None:
        """By how many steps a worker may be ahead of the slowest; ``None``: by any number."""

    def workers(self, size: int) -> int:
        """All but the servers."""
        return trainers(self.name, self.servers, size)

    def start(self, worker: Worker) -> SchemeStepper:
        """Go to work; ``UnsupportedError`` for several servers with an optimizer that is not separable."""
        workers = self.workers(worker.communicator.size)
        if self.servers > 1:
            require_separable(worker.optimizer, f"{self.name} with {self.servers} servers")
        begin_as_rank_zero(worker)
        parameters, rank = worker.executor.parameters, worker.communicator.rank
        dealt = shards({name: each.nbytes for name, each in parameters.items()}, self.servers)
        parts = {workers + at: Shard(parameters, names) for at, names in enumerate(dealt) if names}
        if rank < workers:
            return _WorkerStepper(worker, parts, workers)
        return _ServerStepper(worker, parts, workers, self)

    def traffic(self, parameters: Mapping[str, tuple[int, ...]], itemsize: int, size: int, rank: int) -> Traffic:
        """A worker sends all gradients, one message a server; a server its shard to every worker."""
        sizes = {name: prod(shape) * itemsize for name, shape in parameters.items()}
        return served_traffic(shards(sizes, self.servers), sizes, self.workers(size), rank)


class _Stepper(SchemeStepper):
    """What workers and servers do together when they meet: the current parameters, and what became of each push."""

    def __init__(self, worker: Worker, parts: Mapping[int, Shard], workers: int) -> None:
        self.executor, self.worker, self.communicator = worker.executor, worker, worker.communicator
        self.parts, self.workers = parts, workers
        self.packed = {server: Packed(worker.backend, shard) for server, shard in parts.items()}
        # All ranks ask a stepper that is not used: a server without a part has none, and must come to the same calls.
        self.averages = worker.optimizer.start(worker.backend, self.executor.parameters).averaged() is not None
        """Whether the optimizer has weights of its own to evaluate with."""
        self.steps = 0
        """Since the last time all met."""

    def told(self, server: int, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """A server's arrays of its shard, on all ranks. ``arrays`` is read there, and shows shapes elsewhere."""
        # A packer of its own, as what is told must outlast the next step's messages.
        packed = Packed(self.worker.backend, self.parts[server])
        return packed.unpack([self.communicator.broadcast(flat, server) for flat in packed.pack(arrays)])

    def pushes(self, server: int, kept: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Staleness and lag of each worker's pushes since the last meeting, shape (2, workers, steps)."""
        shape = (2, self.workers, self.steps)
        return np.asarray(self.communicator.broadcast(np.zeros(shape, np.int64) if kept is None else kept, server))


@final
class _WorkerStepper(_Stepper):
    """Sends gradients, receives parameters."""

    kept = True

    def __init__(self, worker: Worker, parts: Mapping[int, Shard], workers: int) -> None:
        super().__init__(worker, parts, workers)
        self._room = {server: [each.empty() for each in packed.packers] for server, packed in self.packed.items()}
        self._evaluated: dict[str, Array] | None = None

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        self.worker.switch(Phase.COMMUNICATE)
        self.steps += 1
        self._evaluated = None
        start_send, start_receive = self.communicator.start_send, self.communicator.start_receive
        weight = self.share * self.workers
        coming = {
            server: [start_receive(like, server, at) for at, like in enumerate(room)]
            for server, room in self._room.items()
        }
        sent = [
            start_send(flat, server, at)
            for server, packed in self.packed.items()
            for at, flat in enumerate(packed.pack(gradients, weight))
        ]
        came = {server: [handle.wait() for handle in handles] for server, handles in coming.items()}
        for handle in sent:
            handle.wait()
        self.worker.switch(Phase.UPDATE)
        for server, flats in came.items():
            self.packed[server].write(flats, self.parts[server])

    def meet(self) -> None:
        """Note what became of this worker's pushes, and by how much its parameters differ from the servers' now."""
        self.worker.switch(Phase.COMMUNICATE)
        note, parameters = self.worker.ledger.note, self.worker.executor.parameters
        current: dict[str, Array] = {}
        averages: dict[str, Array] = {}
        for server, shard in self.parts.items():
            if self.steps:
                pushes = self.pushes(server)[:, self.communicator.rank]
                for staleness, lag in zip(*pushes.tolist(), strict=True):
                    note("staleness", staleness, "updates")
                    note("lag", lag, "steps")
            current |= self.told(server, shard)
            if self.averages:
                averages |= self.told(server, shard)
        self.steps = 0
        apart = sum(float(norm(parameters[name] - each)) ** 2 for name, each in current.items())
        whole = sum(float(norm(each)) ** 2 for each in current.values())
        note("divergence", (apart / whole) ** 0.5 if whole else 0.0, "1")
        self._evaluated = averages or current

    def state(self) -> dict[str, NDArray[Any]]:
        """The steps since the last meeting. Nothing is under way: the last push has its answer."""
        return numbers(steps=self.steps)

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Those steps."""
        self.steps = number("steps", state)

    def averaged(self) -> Mapping[str, Array] | None:
        """The servers' parameters, or the averages of the optimizer there, as of the last meeting."""
        return self._evaluated


@final
class _ServerStepper(_Stepper):
    """Receives gradients from anybody, updates its shard, answers."""

    kept = True

    def __init__(self, worker: Worker, parts: Mapping[int, Shard], workers: int, scheme: ServedScheme) -> None:
        super().__init__(worker, parts, workers)
        rank = worker.communicator.rank
        self._shard: Mapping[str, Array] = parts.get(rank, {})
        if rank in parts:
            self._inner = worker.optimizer.start(worker.backend, parts[rank])
            self._room = [each.empty() for each in self.packed[rank].packers]
        self._bound, self._aware = scheme.bound, scheme.staleness_aware
        self._version = 0
        # By worker: the version that it has read, how far ahead it was then, its steps, and what was kept of each.
        self._reads, self._lags, self._steps = [0] * workers, [0] * workers, StepCounts([0] * workers)
        self._kept: list[list[tuple[int, int]]] = [[] for _ in range(workers)]
        self._waiting: list[int] = []

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        """Servers do not train."""
        raise NotImplementedError("a server has no batch of its own: it calls serve")

    def serve(self, first: int, last: int, factor: Callable[[int], float]) -> None:
        """Until all workers have made step ``last``. A push of a later one is taken as it comes, for next time."""
        self.steps += last - first + 1
        while self._shard and self._steps.slowest < last:
            self.worker.switch(Phase.COMMUNICATE)
            gradients, source = self._received()
            self.worker.switch(Phase.UPDATE)
            self._apply(gradients, source, factor(self._steps.count(source)))
            self.worker.switch(Phase.COMMUNICATE)
            self._waiting.append(source)
            self._answer()

    def _received(self) -> tuple[dict[str, Array], int]:
        rank, room = self.communicator.rank, self._room
        flat, source = self.communicator.receive_any(room[0], 0)
        others = [self.communicator.receive(like, source, at) for at, like in enumerate(room) if at]
        return self.packed[rank].unpack([flat, *others]), source

    def _apply(self, gradients: Mapping[str, Array], source: int, factor: float) -> None:
        staleness = self._version - self._reads[source]
        self._kept[source].append((staleness, self._lags[source]))
        self._version += 1
        slower = max(1, staleness) if self._aware else 1
        self._inner.step(gradients, self._version, factor / (self.workers * slower))

    def _answer(self) -> None:
        """The current parameters, to those waiting workers whom the slowest one is near enough to."""
        made, slowest, bound = self._steps.made, self._steps.slowest, self._bound
        answered = [each for each in self._waiting if bound is None or made[each] - slowest <= bound]
        if not answered:
            return
        self._waiting = [each for each in self._waiting if each not in answered]
        flats = self.packed[self.communicator.rank].pack(self._shard)
        handles = [self.communicator.start_send(flat, to, at) for to in answered for at, flat in enumerate(flats)]
        for handle in handles:
            handle.wait()
        for each in answered:
            self._reads[each], self._lags[each] = self._version, made[each] - slowest

    def meet(self) -> None:
        """Tell all ranks the parameters as they are now, and what became of the pushes."""
        self.worker.switch(Phase.COMMUNICATE)
        for server, shard in self.parts.items():
            own = server == self.communicator.rank
            if self.steps:
                self.pushes(server, self._table() if own else None)
            self.told(server, shard)
            if self.averages:
                self.told(server, {**shard, **(self._inner.averaged() or {})} if own else shard)
        self.steps = 0
        self._kept = [[] for _ in self._kept]

    def state(self) -> dict[str, NDArray[Any]]:
        """The optimizer's, and what is known of each worker; nobody waits where all have made the same steps."""
        assert not self._waiting
        counts = numbers(
            steps=self.steps, version=self._version, made=self._steps.made, reads=self._reads, lags=self._lags
        )
        pushes = np.array(self._kept, np.int64)
        return counts | {"pushes": pushes} | under("optimizer", self._inner.state() if self._shard else {})

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """All of that."""
        self.steps, self._version = number("steps", state), number("version", state)
        self._reads, self._lags = state["reads"].tolist(), state["lags"].tolist()
        self._steps = StepCounts(state["made"].tolist())
        self._kept = [[(staleness, lag) for staleness, lag in each] for each in state["pushes"].tolist()]
        if self._shard:
            self._inner.restore(those_under("optimizer", state))

    def _table(self) -> NDArray[np.int64]:
        """What :meth:`pushes` answers with."""
        return np.ascontiguousarray(np.moveaxis(np.array(self._kept, np.int64), 2, 0))


@final
@dataclass(frozen=True)
class AsynchronousParameterServer(ServedScheme):
    """Downpour SGD: as it arrives, w := optimizer(w, g(w as that worker read it)), and w goes back to that worker.

    Evaluated are the servers' parameters. Each worker notes for each of its pushes, once a server: ``staleness``, the
    updates between what its gradient was computed on and its own, and ``lag``, the steps by which it was ahead of the
    slowest worker when it read; at each meeting ``divergence``, by how much its parameters differ from the servers'.
    """

    name: ClassVar[str] = "async-parameter-server"
    aliases: ClassVar[tuple[str, ...]] = ("asgd", "downpour")
    source: ClassVar[str] = "Dean et al. 2012, Large Scale Distributed Deep Networks"

    @property
    def bound(self) -> None:
        """None: workers go as fast as they can."""
        return None
