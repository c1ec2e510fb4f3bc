"""What a rank sends in each collective, by algorithm: closed forms, exact for every length, number of ranks and rank.

They count non-empty messages to other ranks. So the sum over ranks is what crosses the network, and equals what a
counting communicator over :mod:`levelbench.distributed.communicators.collectives` counts, to the byte.

Sources: Thakur, Rabenseifner & Gropp (2005), "Optimization of collective communication operations in MPICH", for
binomial trees, recursive doubling and halving, Bruck's all-gather and the folding of ranks beyond a power of two;
Patarasuk & Yuan (2009), "Bandwidth optimal all-reduce algorithms for clusters of workstations", for the ring; Chan et
al. (2007), "Collective communication: theory, practice, and experience", for broadcast as scatter and all-gather;
Hensgen, Finkel & Manber (1988), "Two algorithms for barrier synchronization", for the dissemination barrier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from levelbench.distributed.scheme import Traffic
from levelbench.errors import UnknownNameError, UsageError

ALGORITHMS = {
    "all_reduce": ("ring", "recursive-doubling", "halving-doubling", "tree", "direct"),
    "broadcast": ("binomial", "scatter-gather", "direct"),
    "reduce_scatter": ("ring", "direct"),
    "all_gather": ("ring", "bruck", "direct"),
    "gather": ("direct", "binomial"),
    "scatter": ("direct", "binomial"),
    "all_to_all": ("pairwise",),
    "barrier": ("dissemination", "direct"),
}
"""The algorithms that have a closed form, by operation; the first is the default."""


@dataclass(frozen=True)
class Algorithms:
    """The algorithm that a communicator uses for each operation; ``UnknownNameError`` for one without a closed form.

    A communicator declares them in its attribute ``algorithms``; without it, the defaults apply.
    """

    all_reduce: str = "ring"
    broadcast: str = "binomial"
    reduce_scatter: str = "ring"
    all_gather: str = "ring"
    gather: str = "direct"
    scatter: str = "direct"
    all_to_all: str = "pairwise"
    barrier: str = "dissemination"

    def __post_init__(self) -> None:
        for operation in ALGORITHMS:
            _require_known(operation, getattr(self, operation))


@final
class FoldedRank:
    """A rank of a team that is folded to the largest power of two, 2 ** ``levels``, with the new number ``number``.

    With e ranks beyond that power, each even one of the first 2 e ranks hands its array to the odd one after it and
    stands ``aside`` until it gets the result.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.levels = size.bit_length() - 1
        self.size = 1 << self.levels
        self.extra = size - self.size
        self.paired = rank < 2 * self.extra
        """Whether this rank or its neighbour stands aside."""
        self.aside = self.paired and rank % 2 == 0
        self.other = rank ^ 1 if self.paired else rank
        self.number = rank // 2 if self.paired else rank - self.extra

    def rank_of(self, number: int) -> int:
        """The rank with this number in the folded team."""
        return 2 * number + 1 if number < self.extra else number + self.extra


_NOTHING = Traffic(0, 0)


def all_reduce(elements: int, itemsize: int, size: int, rank: int, algorithm: str = "ring") -> Traffic:
    """All-reduce of ``elements``. The ring sends 2 (p - 1) / p of them if p divides their number."""
    _require_known("all_reduce", algorithm)
    if size == 1 or not elements:
        return _NOTHING
    if algorithm == "ring":
        return reduce_scatter(elements, itemsize, size, rank) + _ring_of_pieces(elements, itemsize, size, rank)
    whole = Traffic(elements * itemsize, 1)
    if algorithm == "direct":
        return whole * (size - 1 if rank == 0 else 1)
    if algorithm == "tree":
        return whole * ((1 if rank else 0) + _children(rank, size))
    folded = FoldedRank(rank, size)
    if folded.aside:
        return whole
    back = whole if folded.paired else _NOTHING
    if algorithm == "recursive-doubling":
        return whole * folded.levels + back
    return _halving_doubling(elements, itemsize, folded) + back


def reduce_scatter(elements: int, itemsize: int, size: int, rank: int, algorithm: str = "ring") -> Traffic:
    """Reduce-scatter of ``elements``: each rank sends all pieces but the one it keeps, whatever the algorithm."""
    _require_known("reduce_scatter", algorithm)
    return _NOTHING if size == 1 else _all_pieces_but(rank, elements, itemsize, size)


def all_gather(elements: int, itemsize: int, size: int, rank: int, algorithm: str = "ring") -> Traffic:
    """All-gather of ``elements`` from each rank."""
    _require_known("all_gather", algorithm)
    if not elements:
        return _NOTHING
    messages = (size - 1).bit_length() if algorithm == "bruck" else size - 1
    return Traffic((size - 1) * elements * itemsize, messages)


def broadcast(
    elements: int, itemsize: int, size: int, rank: int, root: int = 0, algorithm: str = "binomial"
) -> Traffic:
    """Broadcast of ``elements``."""
    _require_known("broadcast", algorithm)
    if size == 1 or not elements:
        return _NOTHING
    place = (rank - root) % size
    if algorithm == "direct":
        return Traffic(elements * itemsize, 1) * (0 if place else size - 1)
    if algorithm == "binomial":
        return Traffic(elements * itemsize, 1) * _children(place, size)
    # The pieces of a subtree are contiguous, and those beyond the last element are empty.
    below = _bound(elements, size, place + subtree(place, size)) - _bound(elements, size, place + 1)
    handed_on = Traffic(below * itemsize, _children(place, min(elements, size)) if place < elements else 0)
    return handed_on + _ring_of_pieces(elements, itemsize, size, place)


def gather(elements: int, itemsize: int, size: int, rank: int, root: int = 0, algorithm: str = "direct") -> Traffic:
    """Gather of ``elements`` from each rank."""
    _require_known("gather", algorithm)
    if rank == root or not elements:
        return _NOTHING
    carried = subtree((rank - root) % size, size) if algorithm == "binomial" else 1
    return Traffic(carried * elements * itemsize, 1)


def scatter(
    elements: int | Sequence[int], itemsize: int, size: int, rank: int, root: int = 0, algorithm: str = "direct"
) -> Traffic:
    """Scatter of ``elements`` to each rank, or with ``direct`` of different numbers, listed by rank."""
    _require_known("scatter", algorithm)
    if algorithm == "binomial":
        if not isinstance(elements, int):
            raise UsageError(
                "a binomial scatter of different sizes", "only the root knows them", "scatter with algorithm 'direct'"
            )
        place = (rank - root) % size
        passed_on = (subtree(place, size) - 1) * elements
        return Traffic(passed_on * itemsize, _children(place, size)) if elements else _NOTHING
    return _to_others(elements, itemsize, size, rank) if rank == root else _NOTHING


def all_to_all(
    elements: int | Sequence[int], itemsize: int, size: int, rank: int, algorithm: str = "pairwise"
) -> Traffic:
    """All-to-all of ``elements`` between all ranks, or of different numbers, listed by receiver."""
    _require_known("all_to_all", algorithm)
    return _to_others(elements, itemsize, size, rank)


def barrier(size: int, rank: int, algorithm: str = "dissemination") -> Traffic:
    """Barrier, with messages of one byte."""
    _require_known("barrier", algorithm)
    if algorithm == "dissemination":
        return Traffic(1, 1) * (size - 1).bit_length()
    return Traffic(1, 1) * (size - 1 if rank == 0 else 1)


def exchange(elements: int, itemsize: int, neighbours: int) -> Traffic:
    """Exchange of ``elements`` with each of ``neighbours`` other ranks."""
    return send(elements, itemsize) * neighbours if elements else _NOTHING


def send(elements: int, itemsize: int) -> Traffic:
    """One message, which may be empty: its arrival is information too."""
    return Traffic(elements * itemsize, 1)


def _require_known(operation: str, algorithm: str) -> None:
    if algorithm not in ALGORITHMS[operation]:
        raise UnknownNameError(f"algorithm of {operation}", algorithm, ALGORITHMS[operation])


def _to_others(elements: int | Sequence[int], itemsize: int, size: int, rank: int) -> Traffic:
    """Messages to each other rank; ``elements`` is one number for all, or a list by rank."""
    if isinstance(elements, int):
        return Traffic((size - 1) * elements * itemsize, size - 1) if elements else _NOTHING
    others = [each for to, each in enumerate(elements) if to != rank and each]
    return Traffic(sum(others) * itemsize, len(others))


def _bound(elements: int, size: int, at: int) -> int:
    """Element ``at`` of ``pieces(elements, size)``."""
    length, rest = divmod(elements, size)
    return at * length + min(at, rest)


def _all_pieces_but(piece: int, elements: int, itemsize: int, size: int) -> Traffic:
    kept = _bound(elements, size, piece + 1) - _bound(elements, size, piece)
    return Traffic((elements - kept) * itemsize, min(elements, size) - (1 if kept else 0))


def _ring_of_pieces(elements: int, itemsize: int, size: int, rank: int) -> Traffic:
    """All-gather of one array's pieces around a ring, which passes on all but the right neighbour's own."""
    return _all_pieces_but((rank + 1) % size, elements, itemsize, size)


def subtree(place: int, size: int) -> int:
    """The number of ranks in the subtree at a place of the binomial tree, itself included; the root's place is 0."""
    return min(place & -place, size - place) if place else size


def _children(place: int, size: int) -> int:
    """The number of children of a place of the binomial tree: place + 1, place + 2, place + 4, ..."""
    return (subtree(place, size) - 1).bit_length()


def _halving_doubling(elements: int, itemsize: int, folded: FoldedRank) -> Traffic:
    """Rabenseifner's algorithm: all pieces but the own on the way down, the own block of 1, 2, 4, ... pieces up.

    On the way down at distance d, the rank sends the block of d pieces that contains its partner's piece.
    """
    total = _NOTHING
    for level in range(folded.levels):
        for block in ((folded.number >> level) ^ 1, folded.number >> level):
            first, last = (_bound(elements, folded.size, at << level) for at in (block, block + 1))
            if last > first:
                total += Traffic((last - first) * itemsize, 1)
    return total
