"""Parameter servers: some ranks hold the parameters and the optimizer's state, the others send them gradients.

The consistent server sums all workers' gradients in rank order, updates and answers, so the result is that of one
process, whatever the order of arrival. The others apply each gradient when it arrives. They count versions, so they
know how many updates each gradient has missed (its staleness). How soon a worker gets its answer is a single setting:
at once, or when the slowest worker is close enough.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from levelbench.distributed.packing import HostArray, Packed
from levelbench.distributed.scheme import Preset, Scheme, SchemeStepper, Traffic, Worker
from levelbench.distributed.schemes.base import begin_as_rank_zero, note_divergence, number, numbers, those_under, under
from levelbench.errors import UnsupportedError, UsageError
from levelbench.measure.timeline import Phase
from levelbench.networks.executor import Array
from levelbench.training.optimizers import checks
from levelbench.training.optimizers.base import Optimizer, UpdateRule
from levelbench.training.optimizers.wrappers import EMA, ClipValue, Decay, Native, Shard


def shards(sizes: Mapping[str, int], servers: int) -> list[list[str]]:
    """The names that each server holds: the largest first, each to the server with the least (Graham 1969).

    Ties are resolved by the mapping's order and the lowest server number. The names of a shard are in the mapping's
    order. A server has none if there are fewer names than servers.
    """
    held = [0] * servers
    where: dict[str, int] = {}
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        least = held.index(min(held))
        held[least] += sizes[name]
        where[name] = least
    return [[name for name in sizes if where[name] == at] for at in range(servers)]


def trainers(name: str, servers: int, size: int) -> int:
    """How many of ``size`` ranks train, next to the servers; ``UsageError`` if none is left."""
    if size <= servers:
        raise UsageError(
            f"{size} ranks with the scheme {name!r}",
            f"{servers} of them serve, which leaves none to train",
            f"start {servers + 1} ranks or more",
        )
    return size - servers


def require_separable(optimizer: Optimizer, asked: str) -> None:
    """Raise ``UnsupportedError`` unless each parameter follows from its own gradient and state alone.

    This is known of every update rule, a framework's own optimizers, and decay, clipping by value and averaging around
    them. It does not hold for clipping by the norm of all gradients, nor for ``Groups``, which need all names.
    """
    inside = optimizer
    while isinstance(inside, Decay | ClipValue | EMA):
        inside = inside.optimizer
    if not isinstance(inside, UpdateRule | Native):
        raise UnsupportedError(
            asked,
            f"{type(inside).__name__} combines all parameters, or does not declare that it does not",
            "use one server, or the scheme all-reduce",
        )


@final
class StepCounts:
    """The steps that each worker has ``made``, and those of the ``slowest``.

    The minimum is only recomputed when the last of the slowest workers has advanced: a search among thousands of
    workers would take longer than a push.
    """

    def __init__(self, made: Iterable[int]) -> None:
        self.made = list(made)
        self._find_slowest()

    def count(self, worker: int) -> int:
        """Count a step of a worker; returns its total."""
        before = self.made[worker]
        self.made[worker] = before + 1
        if before == self.slowest:
            self._behind -= 1
            if not self._behind:
                self._find_slowest()
        return before + 1

    def _find_slowest(self) -> None:
        self.slowest = min(self.made)
        self._behind = self.made.count(self.slowest)


@dataclass(frozen=True)
class _Served(Scheme):
    """The last ``servers`` ranks serve, the others train; parameters are assigned by size (:func:`shards`)."""

    servers: int = 1

    messages: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.at_least(self, 1, "servers")

    def workers(self, size: int) -> int:
        return trainers(self.name, self.servers, size)

    def start(self, worker: Worker) -> SchemeStepper:
        if self.servers > 1:
            require_separable(worker.optimizer, f"{self.name} with {self.servers} servers")
        workers = self.workers(worker.communicator.size)
        begin_as_rank_zero(worker)
        parameters = worker.executor.parameters
        dealt = shards({name: each.nbytes for name, each in parameters.items()}, self.servers)
        parts = {workers + at: Shard(parameters, names) for at, names in enumerate(dealt) if names}
        return self._stepper(worker, parts, workers)

    @abstractmethod
    def _stepper(self, worker: Worker, parts: Mapping[int, Shard], workers: int) -> SchemeStepper:
        """The stepper of this rank; ``parts`` are the servers' shards of the parameters, by rank."""

    def traffic(self, parameters: Mapping[str, tuple[int, ...]], itemsize: int, size: int, rank: int) -> Traffic:
        sizes, workers = {name: prod(shape) * itemsize for name, shape in parameters.items()}, self.workers(size)
        dealt = shards(sizes, self.servers)
        sent = [Traffic(float(sum(sizes[name] for name in names)), 1.0 if names else 0.0) for names in dealt]
        return sum(sent, Traffic(0.0, 0.0)) if rank < workers else sent[rank - workers] * workers


class _Stepper(SchemeStepper):
    """What workers and servers share. A message's tag is the number of its flat array within its shard."""

    kept = True

    def __init__(self, worker: Worker, parts: Mapping[int, Shard], workers: int) -> None:
        self.executor, self.worker, self.communicator = worker.executor, worker, worker.communicator
        self.parts, self.workers = parts, workers
        self.packed = {server: Packed(worker.backend, shard) for server, shard in parts.items()}
        # All ranks must make the same calls, so they find out from an unused stepper: some servers have no shard.
        self.averages = worker.optimizer.start(worker.backend, self.executor.parameters).averaged() is not None
        """Whether the optimizer has its own weights to evaluate."""

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        raise NotImplementedError("a server has no batch of its own: it calls serve")


class _WorkerStepper(_Stepper):
    """Sends gradients, receives parameters."""

    kept = True
    even: ClassVar[bool]
    """Whether servers take the mean of the workers' gradients instead of the sum."""

    def __init__(self, worker: Worker, parts: Mapping[int, Shard], workers: int) -> None:
        super().__init__(worker, parts, workers)
        self._buffers = {server: [each.empty() for each in packed.packers] for server, packed in self.packed.items()}
        self.evaluated: dict[str, Array] | None = None

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        self.worker.switch(Phase.COMMUNICATE)
        start_send, start_receive = self.communicator.start_send, self.communicator.start_receive
        weight = self.share * self.workers if self.even else self.share
        coming = {
            server: [start_receive(like, server, at) for at, like in enumerate(buffers)]
            for server, buffers in self._buffers.items()
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

    def averaged(self) -> Mapping[str, Array] | None:
        return self.evaluated


@final
@dataclass(frozen=True)
class ParameterServer(_Served):
    """Worker r sends share_r g_r; server s: w_s := optimizer(w_s, Σ_r share_r g_r), then sends w_s (Li et al. 2014).

    All wait for all: each step is that of one process.
    """

    name: ClassVar[str] = "parameter-server"
    aliases: ClassVar[tuple[str, ...]] = ("pssgd",)
    source: ClassVar[str] = "Li et al. 2014, Scaling Distributed Machine Learning with the Parameter Server"
    consistent: ClassVar[bool] = True
    replicated: ClassVar[bool] = True

    def _stepper(self, worker: Worker, parts: Mapping[int, Shard], workers: int) -> SchemeStepper:
        trains = worker.communicator.rank < workers
        return (_SummingWorker if trains else _SummingServer)(worker, parts, workers)


@final
class _SummingWorker(_WorkerStepper):
    even = False

    def meet(self) -> None:
        if not self.averages:
            return
        self.evaluated = {}
        for server, packed in self.packed.items():
            buffers = [each.empty() for each in packed.packers]
            flats = [self.communicator.receive(like, server, at) for at, like in enumerate(buffers)]
            self.evaluated.update(packed.unpack(flats))

    def state(self) -> dict[str, HostArray]:
        return {}

    def restore(self, state: Mapping[str, HostArray]) -> None:
        """Do nothing."""


@final
class _SummingServer(_Stepper):
    """Sums the gradients of all workers, updates its shard and sends it. Does nothing without a shard."""

    def __init__(self, worker: Worker, parts: Mapping[int, Shard], workers: int) -> None:
        super().__init__(worker, parts, workers)
        self._shard = parts.get(worker.communicator.rank)
        if self._shard is not None:
            # Not every optimizer starts on an empty mapping.
            self._inner = worker.optimizer.start(worker.backend, self._shard)
            self._packed = self.packed[worker.communicator.rank]
            self._buffers = [[each.empty() for each in self._packed.packers] for _ in range(workers)]

    def serve(self, first: int, last: int, factor: Callable[[int], float]) -> None:
        if self._shard is None:
            return
        for step in range(first, last + 1):
            self.worker.switch(Phase.COMMUNICATE)
            gradients = self._packed.unpack(self._sum())
            self.worker.switch(Phase.UPDATE)
            self._inner.step(gradients, step, factor(step))
            self.worker.switch(Phase.COMMUNICATE)
            self._send(self._shard)

    def state(self) -> dict[str, HostArray]:
        return {} if self._shard is None else self._inner.state()

    def restore(self, state: Mapping[str, HostArray]) -> None:
        if self._shard is not None:
            self._inner.restore(state)

    def meet(self) -> None:
        averaged = None if self._shard is None else self._inner.averaged()
        if self._shard is not None and averaged is not None:
            self._send({**self._shard, **averaged})

    def _sum(self) -> list[Array]:
        """The gradients of all workers, summed in rank order."""
        start_receive = self.communicator.start_receive
        handles = [
            [start_receive(like, rank, at) for at, like in enumerate(buffers)]
            for rank, buffers in enumerate(self._buffers)
        ]
        total = [each.wait() for each in handles[0]]
        for others in handles[1:]:
            for at, each in enumerate(others):
                total[at] += each.wait()
        return total

    def _send(self, arrays: Mapping[str, Array]) -> None:
        flats = list(enumerate(self._packed.pack(arrays)))
        handles = [self.communicator.start_send(flat, rank, at) for rank in range(self.workers) for at, flat in flats]
        for each in handles:
            each.wait()


@final
@dataclass(frozen=True)
class StaleSynchronous(_Served):
    """Workers push gradients to servers, which apply them as they arrive, and get the parameters back.

    Each push is a separate update, number 1, 2, ... of that server, at 1 / workers of the learning rate: the workers'
    updates of one step move as far as one update of a single process. With ``staleness_aware``, a gradient of staleness
    τ moves at 1 / max(1, τ) of that (Zhang et al. 2016). Gradients are weighted by share · workers.

    A worker that has made c steps is answered once all have made c - ``stale``, so it trains on parameters that contain
    all workers' updates of their first c - ``stale`` steps; ``lag`` never exceeds ``stale``, and ``staleness`` never
    (workers - 1)(2 stale + 1). With ``stale=0`` all are in lockstep, and plain SGD is that of one process to rounding.
    With ``stale=-1`` there is no bound, and each worker is answered at once (``async-parameter-server``).

    The servers' parameters are evaluated. For each push, a worker notes, per server, ``staleness``, the number of
    updates between the parameters that its gradient was computed on and its own, and ``lag``, the steps by which it was
    ahead of the slowest worker when it read; and at each meeting ``divergence``, its parameters' distance from the
    servers'.
    """

    staleness_aware: bool = False
    stale: int = 3

    name: ClassVar[str] = "stale-synchronous"
    aliases: ClassVar[tuple[str, ...]] = ("ssp",)
    source: ClassVar[str] = "Ho et al. 2013, More Effective Distributed ML via a Stale Synchronous Parallel Server"
    consistent: ClassVar[bool] = False
    replicated: ClassVar[bool] = False
    lockstep: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.at_least(self, -1, "stale")

    def _stepper(self, worker: Worker, parts: Mapping[int, Shard], workers: int) -> SchemeStepper:
        if worker.communicator.rank < workers:
            return _PushingWorker(worker, parts, workers)
        return _VersionedServer(worker, parts, workers, self)


@final
@dataclass(frozen=True)
class AsynchronousParameterServer(Preset):
    """Downpour SGD: on arrival, w := optimizer(w, g(w as that worker read it)), and w goes back to that worker.

    This is :class:`StaleSynchronous` without a bound.
    """

    servers: int = 1
    staleness_aware: bool = False

    name: ClassVar[str] = "async-parameter-server"
    aliases: ClassVar[tuple[str, ...]] = ("asgd", "downpour")
    source: ClassVar[str] = "Dean et al. 2012, Large Scale Distributed Deep Networks"
    lockstep: ClassVar[bool] = False
    messages: ClassVar[bool] = True

    @property
    def meant(self) -> StaleSynchronous:
        return StaleSynchronous(self.servers, self.staleness_aware, stale=-1)

    def workers(self, size: int) -> int:
        return trainers(self.name, self.servers, size)


class _Versioned(_Stepper):
    """What workers and servers do when they meet: broadcast the current parameters and the log of pushes."""

    steps = 0
    """Steps since the last meeting."""

    def announced(self, server: int, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """A server's arrays of its shard, on all ranks. Elsewhere ``arrays`` only gives the shapes."""
        # A separate packer, since the result must survive the next step's messages.
        packed = Packed(self.worker.backend, self.parts[server])
        return packed.unpack([self.communicator.broadcast(flat, server) for flat in packed.pack(arrays)])

    def pushes(self, server: int, kept: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Staleness and lag of each worker's pushes since the last meeting, shape (2, workers, steps)."""
        shape = (2, self.workers, self.steps)
        return np.asarray(self.communicator.broadcast(np.zeros(shape, np.int64) if kept is None else kept, server))


@final
class _PushingWorker(_WorkerStepper, _Versioned):
    kept = True
    even = True

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        self.steps += 1
        self.evaluated = None
        super().step(gradients, step, factor)

    def meet(self) -> None:
        self.worker.switch(Phase.COMMUNICATE)
        note = self.worker.ledger.note
        current: dict[str, Array] = {}
        averages: dict[str, Array] = {}
        for server, shard in self.parts.items():
            if self.steps:
                pushes = self.pushes(server)[:, self.communicator.rank]
                for staleness, lag in zip(*pushes.tolist(), strict=True):
                    note("staleness", staleness, "updates")
                    note("lag", lag, "steps")
            current |= self.announced(server, shard)
            if self.averages:
                averages |= self.announced(server, shard)
        self.steps = 0
        note_divergence(self.worker, current)
        self.evaluated = averages or current

    def state(self) -> dict[str, HostArray]:
        return numbers(steps=self.steps)

    def restore(self, state: Mapping[str, HostArray]) -> None:
        self.steps = number("steps", state)


@final
class _VersionedServer(_Versioned):
    """Receives gradients from any worker, updates its shard, answers."""

    def __init__(self, worker: Worker, parts: Mapping[int, Shard], workers: int, scheme: StaleSynchronous) -> None:
        super().__init__(worker, parts, workers)
        rank = worker.communicator.rank
        self._shard: Mapping[str, Array] = parts.get(rank, {})
        if rank in parts:
            self._inner = worker.optimizer.start(worker.backend, parts[rank])
            self._buffers = [each.empty() for each in self.packed[rank].packers]
        self._bound, self._aware = scheme.stale, scheme.staleness_aware
        self._version = 0
        # By worker: the version it has read, its lag then, its steps, and the log of its pushes.
        self._reads, self._lags, self._steps = [0] * workers, [0] * workers, StepCounts([0] * workers)
        self._kept: list[list[tuple[int, int]]] = [[] for _ in range(workers)]
        self._waiting: list[int] = []

    def serve(self, first: int, last: int, factor: Callable[[int], float]) -> None:
        self.steps += last - first + 1
        receive_any, receive = self.communicator.receive_any, self.communicator.receive
        buffers = self._buffers if self._shard else []
        while self._shard and self._steps.slowest < last:
            self.worker.switch(Phase.COMMUNICATE)
            flat, source = receive_any(buffers[0], 0)
            others = [receive(like, source, at) for at, like in enumerate(buffers) if at]
            gradients = self.packed[self.communicator.rank].unpack([flat, *others])
            self.worker.switch(Phase.UPDATE)
            self._apply(gradients, source, factor(self._steps.count(source)))
            self.worker.switch(Phase.COMMUNICATE)
            self._waiting.append(source)
            self._answer()

    def _apply(self, gradients: Mapping[str, Array], source: int, factor: float) -> None:
        staleness = self._version - self._reads[source]
        self._kept[source].append((staleness, self._lags[source]))
        self._version += 1
        slower = max(1, staleness) if self._aware else 1
        self._inner.step(gradients, self._version, factor / (self.workers * slower))

    def _answer(self) -> None:
        """Send the current parameters to the waiting workers that are close enough to the slowest one."""
        made, slowest, bound = self._steps.made, self._steps.slowest, self._bound
        answered = [each for each in self._waiting if bound < 0 or made[each] - slowest <= bound]
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
        self.worker.switch(Phase.COMMUNICATE)
        for server, shard in self.parts.items():
            own = server == self.communicator.rank
            if self.steps:
                table = np.ascontiguousarray(np.moveaxis(np.array(self._kept, np.int64), 2, 0)) if own else None
                self.pushes(server, table)
            self.announced(server, shard)
            if self.averages:
                self.announced(server, {**shard, **(self._inner.averaged() or {})} if own else shard)
        self.steps = 0
        self._kept = [[] for _ in self._kept]

    def state(self) -> dict[str, HostArray]:
        assert not self._waiting
        counts = numbers(
            steps=self.steps, version=self._version, made=self._steps.made, reads=self._reads, lags=self._lags
        )
        pushes = np.array(self._kept, np.int64)
        return counts | {"pushes": pushes} | under("optimizer", self._inner.state() if self._shard else {})

    def restore(self, state: Mapping[str, HostArray]) -> None:
        self.steps, self._version = number("steps", state), number("version", state)
        self._reads, self._lags = state["reads"].tolist(), state["lags"].tolist()
        self._steps = StepCounts(state["made"].tolist())
        self._kept = [[(staleness, lag) for staleness, lag in each] for each in state["pushes"].tolist()]
        if self._shard:
            self._inner.restore(those_under("optimizer", state))
