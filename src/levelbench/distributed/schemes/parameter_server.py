"""The consistent parameter server: servers add up all workers' gradients, update, and send the parameters back.

The one idea: only a server holds the optimizer's state, and it sums in the order of ranks, so the result is that of one
process whatever order the gradients arrive in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, final

from numpy.typing import NDArray

from levelbench.distributed.scheme import Scheme, SchemeStepper, Traffic, Worker
from levelbench.distributed.schemes.base_stepper import begin_as_rank_zero
from levelbench.distributed.schemes.packing import Packed
from levelbench.errors import DefinitionError, UnsupportedError, UsageError
from levelbench.measure.timeline import Phase
from levelbench.networks.executor import Array, LiveMapping
from levelbench.training.optimizers.base import Optimizer, UpdateRule
from levelbench.training.optimizers.wrappers import EMA, ClipValue, Decay, Native

__all__ = ["ParameterServer", "Shard", "require_separable", "served_traffic", "shards", "trainers"]

_GRADIENTS, _PARAMETERS, _AVERAGES = 1, 2, 3
"""Tags."""


def shards(sizes: Mapping[str, int], servers: int) -> list[list[str]]:
    """The names that each server holds: the largest first, each to the server that has least (Graham 1969).

    Of equal ones the first in the mapping goes first, and to the server of the lowest number. Names of a shard are in
    the mapping's order. A server may have none where there are fewer names than servers.
    """
    held = [0] * servers
    where: dict[str, int] = {}
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        least = held.index(min(held))
        held[least] += sizes[name]
        where[name] = least
    return [[name for name in sizes if where[name] == at] for at in range(servers)]


def trainers(name: str, servers: int, size: int) -> int:
    """How many of ``size`` ranks train beside the servers; ``UsageError`` where none does."""
    if size <= servers:
        raise UsageError(
            f"{size} ranks with the scheme {name!r}",
            f"{servers} of them serve, so that none is left to train",
            f"start {servers + 1} ranks or more",
        )
    return size - servers


def served_traffic(dealt: Sequence[Sequence[str]], sizes: Mapping[str, int], workers: int, rank: int) -> Traffic:
    """What a rank sends in a step: a worker all gradients, one message a server; a server its shard to each worker.

    ``dealt`` are the names that each server holds, ``sizes`` bytes by name.
    """
    sent = [Traffic(float(sum(sizes[name] for name in names)), 1.0 if names else 0.0) for names in dealt]
    return sum(sent, Traffic(0.0, 0.0)) if rank < workers else sent[rank - workers] * workers


def require_separable(optimizer: Optimizer, asked: str) -> None:
    """Raise ``UnsupportedError`` unless each parameter follows from its own gradient and state alone.

    Known to be so: every update rule, a framework's own optimizers, and decay, clipping by value and averaging around
    these. Not so: clipping by the norm of all gradients. ``Groups`` want to see all names.
    """
    inside = optimizer
    while isinstance(inside, Decay | ClipValue | EMA):
        inside = inside.optimizer
    if not isinstance(inside, UpdateRule | Native):
        raise UnsupportedError(
            asked,
            f"{type(inside).__name__} looks at all parameters together, or does not say that it does not",
            "use one server, or the scheme all-reduce",
        )


@final
class Shard(LiveMapping):
    """Some of the live parameters: what is put here is put there."""

    def __init__(self, parameters: MutableMapping[str, Array], names: Sequence[str]) -> None:
        self._parameters, self._names = parameters, dict.fromkeys(names)

    def __getitem__(self, name: str) -> Array:
        if name not in self._names:
            raise KeyError(name)
        return self._parameters[name]

    def __setitem__(self, name: str, array: Array) -> None:
        self._parameters[name] = array

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@final
@dataclass(frozen=True)
class ParameterServer(Scheme):
    """Worker r sends share_r g_r; server s: w_s := optimizer(w_s, Σ_r share_r g_r), then sends w_s (Li et al. 2014).

    The last ``servers`` ranks serve, the others train. Whole parameters are dealt out by size (:func:`shards`), and all
    wait for all: each step is that of one process. Notes nothing.
    """

    servers: int = 1

    name: ClassVar[str] = "parameter-server"
    aliases: ClassVar[tuple[str, ...]] = ("pssgd",)
    source: ClassVar[str] = "Li et al. 2014, Scaling Distributed Machine Learning with the Parameter Server"
    consistent: ClassVar[bool] = True
    replicated: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.servers < 1:
            raise DefinitionError(f"parameter-server with servers={self.servers}", "nobody serves", "choose 1 or more")

    def workers(self, size: int) -> int:
        """All but the servers."""
        return trainers(self.name, self.servers, size)

    def start(self, worker: Worker) -> SchemeStepper:
        """Go to work; ``UnsupportedError`` for several servers with an optimizer that is not separable."""
        if self.servers > 1:
            require_separable(worker.optimizer, f"{self.name} with {self.servers} servers")
        workers = self.workers(worker.communicator.size)
        parameters = worker.executor.parameters
        dealt = shards({name: each.nbytes for name, each in parameters.items()}, self.servers)
        begin_as_rank_zero(worker)
        rank = worker.communicator.rank
        if rank < workers:
            return _WorkerStepper(worker, [Shard(parameters, names) for names in dealt])
        return _ServerStepper(worker, Shard(parameters, dealt[rank - workers]), workers)

    def traffic(self, parameters: Mapping[str, tuple[int, ...]], itemsize: int, size: int, rank: int) -> Traffic:
        """A worker sends all gradients, one message a server; a server its shard to every worker."""
        sizes = {name: prod(shape) * itemsize for name, shape in parameters.items()}
        return served_traffic(shards(sizes, self.servers), sizes, self.workers(size), rank)


@final
class _WorkerStepper(SchemeStepper):
    """Sends gradients, receives parameters."""

    kept = True

    def __init__(self, worker: Worker, dealt: Sequence[Shard]) -> None:
        self.executor = worker.executor
        self._worker, self._communicator = worker, worker.communicator
        first = worker.communicator.size - len(dealt)
        # A rank, its part of the parameters, how they are packed, and where they are received.
        self._servers = [
            (first + at, shard, packed, [each.empty() for each in packed.packers])
            for at, shard in enumerate(dealt)
            for packed in [Packed(worker.backend, shard)]
        ]
        # A stepper of its own tells whether there will be averages to evaluate; only servers keep one.
        self._averages = worker.optimizer.start(worker.backend, worker.executor.parameters).averaged() is not None
        self._averaged: dict[str, Array] | None = None

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        self._worker.switch(Phase.COMMUNICATE)
        start_send, start_receive = self._communicator.start_send, self._communicator.start_receive
        sends, arriving = [], []
        for rank, _, packed, room in self._servers:
            sends += [start_send(flat, rank, _GRADIENTS) for flat in packed.pack(gradients, self.share)]
            arriving.append([start_receive(like, rank, _PARAMETERS) for like in room])
        for each in sends:
            each.wait()
        arrived = [[each.wait() for each in handles] for handles in arriving]
        self._worker.switch(Phase.UPDATE)
        for (_, shard, packed, _), flats in zip(self._servers, arrived, strict=True):
            packed.write(flats, shard)

    def meet(self) -> None:
        """Receive the averaged weights, where the optimizer has any."""
        if not self._averages:
            return
        self._averaged = {}
        for rank, _, packed, _ in self._servers:
            room = [each.empty() for each in packed.packers]
            flats = [self._communicator.receive(like, rank, _AVERAGES) for like in room]
            self._averaged.update(packed.unpack(flats))

    def state(self) -> dict[str, NDArray[Any]]:
        """Nothing beside the parameters."""
        return {}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Nothing."""

    def averaged(self) -> Mapping[str, Array] | None:
        """The servers' averages of the last :meth:`meet`."""
        return self._averaged


@final
class _ServerStepper(SchemeStepper):
    """Receives gradients, updates its shard, sends it."""

    kept = True

    def __init__(self, worker: Worker, shard: Shard, workers: int) -> None:
        self.executor = worker.executor
        self._worker, self._communicator = worker, worker.communicator
        self._shard, self._workers = shard, range(workers)
        # Not every optimizer goes to work on nothing.
        self._inner = worker.optimizer.start(worker.backend, shard) if shard else None
        self._packed = Packed(worker.backend, shard)
        self._room = [[each.empty() for each in self._packed.packers] for _ in self._workers]

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        """Servers do not train."""
        raise NotImplementedError("a server has no batch of its own: it calls serve")

    def serve(self, first: int, last: int, factor: Callable[[int], float]) -> None:
        """A step each: gradients of all workers, update, parameters to all workers."""
        if self._inner is None:
            return
        for step in range(first, last + 1):
            self._worker.switch(Phase.COMMUNICATE)
            gradients = self._packed.unpack(self._sum())
            self._worker.switch(Phase.UPDATE)
            self._inner.step(gradients, step, factor(step))
            self._worker.switch(Phase.COMMUNICATE)
            self._send(self._shard, _PARAMETERS)

    def state(self) -> dict[str, NDArray[Any]]:
        """The optimizer's."""
        return {} if self._inner is None else self._inner.state()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """The optimizer's."""
        if self._inner is not None:
            self._inner.restore(state)

    def _sum(self) -> list[Array]:
        """All workers' gradients, added in the order of ranks."""
        handles = [
            [self._communicator.start_receive(like, rank, _GRADIENTS) for like in room]
            for rank, room in zip(self._workers, self._room, strict=True)
        ]
        total = [each.wait() for each in handles[0]]
        for others in handles[1:]:
            for at, each in enumerate(others):
                total[at] += each.wait()
        return total

    def _send(self, arrays: Mapping[str, Array], tag: int) -> None:
        flats = self._packed.pack(arrays)
        handles = [self._communicator.start_send(flat, rank, tag) for rank in self._workers for flat in flats]
        for each in handles:
            each.wait()

    def meet(self) -> None:
        """Send the averaged weights, where the optimizer has any."""
        averaged = self._inner.averaged() if self._inner is not None else None
        if averaged is not None:
            self._send({**self._shard, **averaged}, _AVERAGES)
