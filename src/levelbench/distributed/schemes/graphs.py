"""Graphs over which ranks exchange models, and how much each takes of its neighbours' (mixing matrices).

The one idea: a graph answers for one rank and one step at a time, so that a thousand ranks need no matrix; the matrix,
whose spectrum says how fast ranks agree, is made of the same answers where somebody asks for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from levelbench.errors import UnknownNameError, UsageError

__all__ = ["GRAPHS", "Exponential", "Graph", "OnePeer", "Undirected", "make_graph"]


@dataclass(frozen=True)
class Graph(ABC):
    """A graph over ``size`` ranks that repeats itself every :attr:`rounds` steps.

    The matrix W of each step is doubly stochastic: rows and columns sum to 1, so that mixing leaves the mean of all
    models where it is.
    """

    size: int

    @property
    def rounds(self) -> int:
        """After how many steps it repeats itself."""
        return 1

    @abstractmethod
    def sources(self, rank: int, step: int = 0) -> dict[int, float]:
        """The weight W[rank, j] by rank j of those that ``rank`` takes from in a step, itself left out."""

    @abstractmethod
    def targets(self, rank: int, step: int = 0) -> tuple[int, ...]:
        """The ranks that take from ``rank`` in a step."""

    def own(self, rank: int, step: int = 0) -> float:
        """The weight W[rank, rank]: what is left of 1."""
        return 1.0 - sum(self.sources(rank, step).values())

    def matrix(self, step: int = 0) -> NDArray[np.float64]:
        """The mixing matrix W of a step, shape (size, size); row i is what rank i takes."""
        result = np.zeros((self.size, self.size))
        for rank in range(self.size):
            for source, weight in self.sources(rank, step).items():
                result[rank, source] = weight
            result[rank, rank] = self.own(rank, step)
        return result

    @property
    def contraction(self) -> float:
        """What is left at most of the distance to the mean after :attr:`rounds` steps: |W_last ... W_1 - 11'/p|.

        Of a symmetric W it is the second largest absolute value of an eigenvalue.
        """
        product = np.eye(self.size)
        for step in range(self.rounds):
            product = self.matrix(step) @ product
        return float(np.linalg.norm(product - 1.0 / self.size, 2))

    @property
    def spectral_gap(self) -> float:
        """1 - :attr:`contraction`: the larger, the sooner ranks agree; 1 where they agree after one period."""
        return 1.0 - self.contraction


@dataclass(frozen=True)
class Undirected(Graph):
    """A fixed graph whose edges go both ways, with the weights of Metropolis and Hastings.

    W[i, j] = 1 / (1 + max(degree i, degree j)) (Xiao, Boyd & Kim 2007). ``edges[i]`` are the neighbours of rank i.
    """

    edges: tuple[tuple[int, ...], ...]

    def sources(self, rank: int, step: int = 0) -> dict[int, float]:
        """The neighbours."""
        degree = len(self.edges[rank])
        return {each: 1.0 / (1 + max(degree, len(self.edges[each]))) for each in self.edges[rank]}

    def targets(self, rank: int, step: int = 0) -> tuple[int, ...]:
        """The neighbours."""
        return self.edges[rank]


@dataclass(frozen=True)
class Exponential(Graph):
    """Rank i sends to i + 1, i + 2, i + 4, ... (modulo p), all weights alike (Ying et al. 2021).

    For even p the contraction is 1 - 2 / (1 + ceil(log2 p)).
    """

    def sources(self, rank: int, step: int = 0) -> dict[int, float]:
        """Those that lie a power of two below."""
        hops = _hops(self.size)
        return {(rank - hop) % self.size: 1.0 / (1 + len(hops)) for hop in hops}

    def targets(self, rank: int, step: int = 0) -> tuple[int, ...]:
        """Those that lie a power of two above."""
        return tuple((rank + hop) % self.size for hop in _hops(self.size))


@dataclass(frozen=True)
class OnePeer(Graph):
    """The exponential graph one edge at a time: in step t rank i sends to i + 2^(t mod ceil(log2 p)), weight 1/2.

    Where p is a power of two, all ranks hold the exact mean after log2 p steps (Assran et al. 2019; Ying et al. 2021).
    """

    @property
    def rounds(self) -> int:
        """The number of distances."""
        return max(1, len(_hops(self.size)))

    def sources(self, rank: int, step: int = 0) -> dict[int, float]:
        """The one whose turn it is."""
        hops = _hops(self.size)
        return {(rank - hops[step % len(hops)]) % self.size: 0.5} if hops else {}

    def targets(self, rank: int, step: int = 0) -> tuple[int, ...]:
        """The one whose turn it is."""
        hops = _hops(self.size)
        return ((rank + hops[step % len(hops)]) % self.size,) if hops else ()


def _hops(size: int) -> list[int]:
    """The powers of two below ``size``."""
    return [1 << bit for bit in range((size - 1).bit_length())]


def _undirected(neighbours: list[set[int]]) -> Undirected:
    edges = tuple(tuple(sorted(each - {rank})) for rank, each in enumerate(neighbours))
    return Undirected(len(edges), edges)


def _ring(size: int, degree: int, seed: int) -> Graph:
    return _undirected([{(rank - 1) % size, (rank + 1) % size} for rank in range(size)])


def _torus(size: int, degree: int, seed: int) -> Graph:
    rows = next(each for each in range(isqrt(size), 0, -1) if size % each == 0)
    columns = size // rows
    neighbours = []
    for rank in range(size):
        row, column = divmod(rank, columns)
        above = {(row + by) % rows * columns + column for by in (-1, 1)}
        neighbours.append(above | {row * columns + (column + by) % columns for by in (-1, 1)})
    return _undirected(neighbours)


def _complete(size: int, degree: int, seed: int) -> Graph:
    return _undirected([set(range(size)) for _ in range(size)])


def _random(size: int, degree: int, seed: int) -> Graph:
    """A connected graph in which each rank has ``degree`` neighbours, drawn by switching edges of a circulant one.

    Two edges a-b and c-d become a-d and c-b, many times over, which leaves all degrees alone; the chain's limit is the
    uniform distribution over such graphs (Cooper, Dyer & Greenhill 2007).
    """
    if degree >= size - 1:
        return _complete(size, degree, seed)
    if degree < 3 or size * degree % 2:
        raise UsageError(
            f"a random graph of {size} ranks with {degree} neighbours each",
            "two make a ring at best" if degree < 3 else "there is none: an odd number of ranks needs an even one",
            "choose degree=4" if degree < 3 else f"choose degree={degree + 1}",
        )
    generator = Generator(PCG64([seed, 0x6EA9B5]))
    while True:
        neighbours = _switched(_circulant(size, degree), size * degree * 5, generator)
        if _connected(neighbours):
            return _undirected(neighbours)


def _circulant(size: int, degree: int) -> list[set[int]]:
    """Each rank beside the nearest ones on a ring, and beside the opposite one where the degree is odd."""
    hops = [*range(1, degree // 2 + 1), *([size // 2] if degree % 2 else [])]
    return [{(rank + sign * hop) % size for hop in hops for sign in (-1, 1)} for rank in range(size)]


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
    "ring": _ring,
    "torus": _torus,
    "exponential": lambda size, degree, seed: Exponential(size),
    "one-peer": lambda size, degree, seed: OnePeer(size),
    "random": _random,
    "complete": _complete,
}
GRAPHS: tuple[str, ...] = tuple(_MADE)
"""The names there are."""


# Ranks that are simulated in one process all ask for the same one.
@lru_cache(maxsize=8)
def make_graph(name: str, size: int, *, degree: int = 4, seed: int = 0) -> Graph:
    """The graph of a name over ``size`` ranks; ``degree`` and ``seed`` are those of ``random``.

    A torus is as near to a square as ``size`` can be cut: 12 ranks are 3 by 4, and a prime number of them makes a ring.
    ``UnknownNameError`` for another name; ``UsageError`` where no graph has that degree.
    """
    if name not in _MADE:
        raise UnknownNameError("graph", name, GRAPHS)
    return _MADE[name](size, degree, seed)
