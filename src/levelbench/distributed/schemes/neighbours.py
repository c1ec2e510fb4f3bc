"""Decentralised training: each worker mixes its model with those of its neighbours on a graph, without a centre.

A graph is queried for one rank and one step at a time, so a thousand ranks need no matrix. How fast ranks agree follows
from the graph's contraction: the largest remaining share of the distance to the mean after one period of the graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt
from typing import ClassVar, final

from numpy.random import PCG64, Generator

from levelbench.distributed.communicator import Handle
from levelbench.distributed.packing import HostArray
from levelbench.distributed.scheme import Scheme, SchemeStepper, Traffic, Worker
from levelbench.distributed.schemes.base import OwnModelStepper, elements, number, numbers
from levelbench.errors import UnknownNameError, UsageError
from levelbench.measure.timeline import Phase
from levelbench.networks.executor import Array
from levelbench.training.optimizers import checks
from levelbench.training.optimizers.arrays import namespace


@dataclass(frozen=True)
class MixingGraph(ABC):
    """A graph over ``size`` ranks that repeats every :attr:`rounds` steps.

    The matrix W of each step is doubly stochastic: rows and columns sum to 1, so mixing preserves the mean of all
    models.
    """

    size: int

    @property
    def rounds(self) -> int:
        """The graph's period in steps."""
        return 1

    @abstractmethod
    def sources(self, rank: int, step: int = 0) -> dict[int, float]:
        """The weights W[rank, j] of the ranks j that ``rank`` receives from in a step, except its own."""

    @abstractmethod
    def targets(self, rank: int, step: int = 0) -> tuple[int, ...]:
        """The ranks that ``rank`` sends to in a step."""

    def own(self, rank: int, step: int = 0) -> float:
        """The weight W[rank, rank], the rest to 1."""
        return 1.0 - sum(self.sources(rank, step).values())


@dataclass(frozen=True)
class Undirected(MixingGraph):
    """A fixed, undirected graph with Metropolis-Hastings weights.

    W[i, j] = 1 / (1 + max(degree i, degree j)) (Xiao, Boyd & Kim 2007). ``edges[i]`` are the neighbours of rank i.
    """

    edges: tuple[tuple[int, ...], ...]

    def sources(self, rank: int, step: int = 0) -> dict[int, float]:
        degree = len(self.edges[rank])
        return {each: 1.0 / (1 + max(degree, len(self.edges[each]))) for each in self.edges[rank]}

    def targets(self, rank: int, step: int = 0) -> tuple[int, ...]:
        return self.edges[rank]


@dataclass(frozen=True)
class Circulant(MixingGraph):
    """Rank i sends to those ``hops`` further on (modulo p) with equal weights; ``hops`` by round, cyclically."""

    hops: tuple[tuple[int, ...], ...]

    @property
    def rounds(self) -> int:
        return len(self.hops)

    def sources(self, rank: int, step: int = 0) -> dict[int, float]:
        hops = self.hops[step % self.rounds]
        return {(rank - hop) % self.size: 1.0 / (1 + len(hops)) for hop in hops}

    def targets(self, rank: int, step: int = 0) -> tuple[int, ...]:
        return tuple((rank + hop) % self.size for hop in self.hops[step % self.rounds])


def _exponential(size: int, degree: int, seed: int) -> MixingGraph:
    """To i + 1, i + 2, i + 4, ... (Ying et al. 2021). For even p the contraction is 1 - 2 / (1 + ceil(log2 p))."""
    return Circulant(size, (_powers(size),))


def _one_peer(size: int, degree: int, seed: int) -> MixingGraph:
    """The exponential graph one edge at a time: in step t to i + 2^(t mod ceil(log2 p)).

    If p is a power of two, all ranks hold the exact mean after log2 p steps (Assran et al. 2019; Ying et al. 2021).
    """
    return Circulant(size, tuple((hop,) for hop in _powers(size)) or ((),))


def _powers(size: int) -> tuple[int, ...]:
    """The powers of two below ``size``."""
    return tuple(1 << bit for bit in range((size - 1).bit_length()))


def _undirected(neighbours: list[set[int]]) -> Undirected:
    edges = tuple(tuple(sorted(each - {rank})) for rank, each in enumerate(neighbours))
    return Undirected(len(edges), edges)


def _torus(size: int, degree: int, seed: int) -> MixingGraph:
    rows = next(each for each in range(isqrt(size), 0, -1) if size % each == 0)
    columns = size // rows
    neighbours = []
    for rank in range(size):
        row, column = divmod(rank, columns)
        above = {(row + by) % rows * columns + column for by in (-1, 1)}
        neighbours.append(above | {row * columns + (column + by) % columns for by in (-1, 1)})
    return _undirected(neighbours)


def _complete(size: int, degree: int, seed: int) -> MixingGraph:
    return _undirected([set(range(size)) for _ in range(size)])


def _random(size: int, degree: int, seed: int) -> MixingGraph:
    """A connected graph with ``degree`` neighbours per rank, drawn by switching edges of a circulant graph.

    Many times, two edges a-b and c-d become a-d and c-b, which preserves all degrees; the limit of this chain is the
    uniform distribution over such graphs (Cooper, Dyer & Greenhill 2007).
    """
    if degree >= size - 1:
        return _complete(size, degree, seed)
    if degree < 3 or size * degree % 2:
        raise UsageError(
            f"a random graph of {size} ranks with {degree} neighbours each",
            "with two it is a ring at best" if degree < 3 else "an odd number of ranks needs an even degree",
            "choose degree=4" if degree < 3 else f"choose degree={degree + 1}",
        )
    generator = Generator(PCG64([seed, 0x6EA9B5]))
    # Join each rank to the nearest ones on a ring, and to the opposite one if the degree is odd.
    hops = [*range(1, degree // 2 + 1), *([size // 2] if degree % 2 else [])]
    while True:
        circulant = [{(rank + sign * hop) % size for hop in hops for sign in (-1, 1)} for rank in range(size)]
        neighbours = _switched(circulant, size * degree * 5, generator)
        if _connected(neighbours):
            return _undirected(neighbours)


def _switched(neighbours: list[set[int]], times: int, generator: Generator) -> list[set[int]]:
    edges = [(rank, each) for rank, some in enumerate(neighbours) for each in some if rank < each]
    turns = generator.integers(0, 2, times)
    for (first, second), turn in zip(generator.integers(0, len(edges), (times, 2)), turns, strict=True):
        (a, b), (c, d) = edges[first], edges[second] if turn else edges[second][::-1]
        if len({a, b, c, d}) < 4 or d in neighbours[a] or b in neighbours[c]:
            continue
        for one, old, new in ((a, b, d), (b, a, c), (c, d, b), (d, c, a)):
            neighbours[one].remove(old)
            neighbours[one].add(new)
        edges[first], edges[second] = (a, d), (c, b)
    return neighbours


def _connected(neighbours: list[set[int]]) -> bool:
    seen, edge = {0}, [0]
    while edge:
        edge = [each for rank in edge for each in neighbours[rank] if each not in seen]
        seen.update(edge)
    return len(seen) == len(neighbours)


_MADE = {
    "ring": lambda size, degree, seed: _undirected([{(at - 1) % size, (at + 1) % size} for at in range(size)]),
    "torus": _torus,
    "exponential": _exponential,
    "one-peer": _one_peer,
    "random": _random,
    "complete": _complete,
}
GRAPHS: tuple[str, ...] = tuple(_MADE)
"""The names of all graphs."""


# Ranks that are simulated in one process all request the same graph.
@lru_cache(maxsize=8)
def make_graph(name: str, size: int, *, degree: int = 4, seed: int = 0) -> MixingGraph:
    """The graph with this name over ``size`` ranks; ``degree`` and ``seed`` apply to ``random``.

    A torus is as square as possible: 12 ranks are 3 by 4, and a prime number of ranks is a ring. ``UnknownNameError``
    for an unknown name; ``UsageError`` if no graph has this degree.
    """
    if name not in _MADE:
        raise UnknownNameError("graph", name, GRAPHS)
    return _MADE[name](size, degree, seed)


@final
class _NeighboursStepper(OwnModelStepper):
    """Messages of the next step may be in flight between two steps, equally on all workers."""

    kept = True

    def __init__(self, worker: Worker, scheme: Neighbours) -> None:
        super().__init__(worker)
        self._after = scheme.mix == "after"
        self._ahead = scheme.overlap and not self._after
        self._graph = make_graph(scheme.graph, self.communicator.size, degree=scheme.degree, seed=worker.seed)
        self._packed = self.packed()
        self._flats: list[Array] = []
        self._sent: list[Handle] = []
        self._coming: list[tuple[int, float, Handle]] = []
        self._buffers: dict[tuple[int, int], Array] = {}
        self._began_ns = self._inside_ns = 0
        self._step = 0
        if self._ahead:
            self._begin(1)

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        self._step = step
        if self._after:
            self.own_step(gradients, step, factor)
            self._begin(step)
            self._mix(step)
            self.worker.switch(Phase.UPDATE)
            return
        if not self._ahead:
            self._begin(step)
        self._mix(step)
        self.own_step(gradients, step, factor)
        if self._ahead:
            self._begin(step + 1)
            self.worker.switch(Phase.UPDATE)

    def state(self) -> dict[str, HostArray]:
        return super().state() | numbers(step=self._step)

    def restore(self, state: Mapping[str, HostArray]) -> None:
        super().restore(state)
        self._step = number("step", state)
        if self._ahead:
            self._wait()
            self._begin(self._step + 1)

    def close(self) -> None:
        self._wait()

    def _begin(self, step: int) -> None:
        """Start to exchange the current models; receives come first, so that no send waits for one."""
        self.worker.switch(Phase.COMMUNICATE)
        communicator, graph = self.communicator, self._graph
        self._flats = self._packed.pack(self.parameters)
        self._began_ns = self.worker.clock.now_ns()
        for source, weight in graph.sources(communicator.rank, step - 1).items():
            for at, flat in enumerate(self._flats):
                if (source, at) not in self._buffers:
                    self._buffers[source, at] = namespace(flat).empty_like(flat)
                handle = communicator.start_receive(self._buffers[source, at], source, at)
                self._coming.append((at, weight, handle))
        self._sent = [
            communicator.start_send(flat, target, at)
            for target in graph.targets(communicator.rank, step - 1)
            for at, flat in enumerate(self._flats)
        ]
        self._inside_ns = self.worker.clock.now_ns() - self._began_ns

    def _wait(self) -> list[tuple[int, float, Array]]:
        arrived = [(at, weight, handle.wait()) for at, weight, handle in self._coming]
        for handle in self._sent:
            handle.wait()
        self._coming, self._sent = [], []
        return arrived

    def _mix(self, step: int) -> None:
        """Take the weighted mean of the neighbours' models and this one, as they were when sent."""
        self.worker.switch(Phase.COMMUNICATE)
        waits_ns = self.worker.clock.now_ns()
        arrived = self._wait()
        ended_ns = self.worker.clock.now_ns()
        # The first messages were sent before training began.
        if self._ahead and step > 1 and arrived:
            inside_ns = self._inside_ns + ended_ns - waits_ns
            self.worker.ledger.note("overlap", 1 - inside_ns / max(1, ended_ns - self._began_ns))
        self.worker.switch(Phase.UPDATE)
        own, flats = self._graph.own(self.communicator.rank, step - 1), self._flats
        for at in range(len(flats)):
            flats[at] *= own
        for at, weight, array in arrived:
            array *= weight
            flats[at] += array
        self._packed.write(flats, self.parameters)


@final
@dataclass(frozen=True)
class Neighbours(Scheme):
    """x_i := Σ_j W_ij x_j - update_i(g_i(x_i)): D-PSGD, with any optimizer in place of lr g.

    ``graph`` is ring, torus, exponential, one-peer, random or complete; ``degree`` applies to random.

    - ``mix="before"``: mix models as they were before the update, so messages travel while gradients are computed
      (``overlap``: sent as soon as a step is over). This is the paper's order.
    - ``mix="after"``: x_i := Σ_j W_ij (x_j - update_j(g_j)), adapt-then-combine (Ying et al. 2021); on the complete
      graph this is model averaging.

    The mean of all workers' models is evaluated. With ``overlap`` it notes ``overlap`` per step: 1 - (time inside the
    communicator's calls) / (time from the first send to the last arrival).
    """

    graph: str = "ring"
    degree: int = 4
    mix: str = "before"
    overlap: bool = True

    name: ClassVar[str] = "neighbours"
    aliases: ClassVar[tuple[str, ...]] = ("dpsgd",)
    source: ClassVar[str] = "Lian et al. 2017, Can Decentralized Algorithms Outperform Centralized Algorithms?"
    consistent: ClassVar[bool] = False
    replicated: ClassVar[bool] = False
    messages: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.graph not in GRAPHS:
            raise UnknownNameError("graph", self.graph, GRAPHS)
        checks.one_of(self, ("before", "after"), "mix")
        checks.at_least(self, 1, "degree")

    def start(self, worker: Worker) -> SchemeStepper:
        return _NeighboursStepper(worker, self)

    def traffic(self, parameters: Mapping[str, tuple[int, ...]], itemsize: int, size: int, rank: int) -> Traffic:
        """The model to each neighbour in each step; with ``overlap`` once more at the start, for the first step."""
        # A random graph has the same number of neighbours whatever its seed.
        targets = len(make_graph(self.graph, size, degree=self.degree).targets(rank))
        return Traffic(float(targets * elements(parameters) * itemsize), float(targets))
