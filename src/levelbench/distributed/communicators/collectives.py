"""Collective operations built from messages: the same algorithms over threads, sockets, MPI and simulated links.

An algorithm is a generator that yields each message it needs and is sent what arrived. Its driver decides whether to
wait or to do something else in between, so one implementation serves as both the blocking and the non-blocking form.

Sums may differ between algorithms and rank counts, since floating-point addition is not associative, but never
between ranks. Either each element is reduced on one rank and copied to the others (ring, halving-doubling, tree,
direct), or two ranks whose groups hold the same bits swap, and join them in the same order (recursive doubling).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar, final

import numpy as np

from levelbench.distributed.communicator import REDUCTIONS, Communicator, Done, Handle, Reduction
from levelbench.distributed.packing import new, pieces, put, view
from levelbench.distributed.traffic import FoldedRank, subtree
from levelbench.errors import UnsupportedError
from levelbench.networks.executor import Array
from levelbench.training.optimizers.arrays import namespace

T = TypeVar("T")

Steps = Generator[Handle, Array, T]
"""A running algorithm that returns a ``T``."""

Flat = Any
"""A contiguous, writable, one-dimensional array whose slices are views: NumPy's, or PyTorch's on a device."""


@final
class TrafficTally:
    """What has been sent so far."""

    def __init__(self) -> None:
        self.sent_bytes = 0
        self.messages = 0

    def note(self, nbytes: int) -> None:
        """Count a message."""
        self.sent_bytes += nbytes
        self.messages += 1


@final
class Channel:
    """Sends and receives this rank's messages of one collective, under its own tag."""

    def __init__(self, communicator: Communicator, tag: int, tally: TrafficTally) -> None:
        self._communicator, self._tag, self._tally = communicator, tag, tally
        self.rank, self.size = communicator.rank, communicator.size

    def send(self, flat: Flat, to: int) -> Handle:
        """Start to send. An empty array sends no message, as the receiver knows its length too."""
        if not len(flat):
            return Done(flat)
        self._tally.note(flat.nbytes)
        return self._communicator.start_send(flat, to, self._tag)

    def receive(self, into: Flat, source: int) -> Handle:
        """Start to receive into an array."""
        return self._communicator.start_receive(into, source, self._tag) if len(into) else Done(into)

    def swap(self, outgoing: Flat, to: int, into: Flat, source: int) -> Steps[None]:
        """Send and receive at the same time."""
        coming = self.receive(into, source)
        going = self.send(outgoing, to)
        yield coming
        yield going


def wait_all(handles: Iterable[Handle]) -> Steps[None]:
    """Wait for each handle."""
    for handle in handles:
        # Not ``yield from handles``: a list has no send().
        _ = yield handle


def cut(flat: Flat, count: int) -> list[Flat]:
    """Views of ``count`` pieces of the array."""
    return [flat[start:stop] for start, stop in pairwise(pieces(len(flat), count))]


def space(like: Flat, length: int) -> Flat:
    """A new array of this length with the dtype and device of ``like``."""
    if isinstance(like, np.ndarray):
        return np.empty(length, like.dtype)
    return namespace(like).empty(length, dtype=like.dtype, device=like.device)


@final
@dataclass(frozen=True)
class ReduceOp:
    """Reduces arrays of ``size`` ranks by ``op``."""

    op: Reduction
    size: int

    def join(self, flat: Flat, other: Flat, *, after: bool = True) -> None:
        """Join another array to ``flat``, in place; ``after``: as the second operand."""
        join = getattr(np if isinstance(flat, np.ndarray) else namespace(flat), REDUCTIONS[self.op])
        join(*((flat, other) if after else (other, flat)), out=flat)

    def finish(self, flat: Flat) -> None:
        """Divide the finished sum in place, for a mean."""
        if self.op == "mean":
            flat /= flat.dtype.type(self.size) if isinstance(flat, np.ndarray) else self.size


def to_flat(array: Array, *, change: bool = False) -> Flat:
    """The elements as one flat array.

    With ``change``, it is writable, and shares the array's memory if possible. Without, do not write to it. An array on
    a device stays there.
    """
    try:
        seen = view(array)
    except UnsupportedError:
        return (array.detach() if hasattr(array, "detach") else array).reshape(-1)
    flat = seen.reshape(-1)
    return flat.copy() if change and not flat.flags.writeable else flat


def from_flat(flat: Flat, like: Array, *, shape: tuple[int, ...] | None = None, change: bool = False) -> Array:
    """Convert back to an array like ``like``: into ``like`` itself with ``change`` if possible, else a new array."""
    shape = tuple(like.shape) if shape is None else shape
    if isinstance(flat, np.ndarray):
        shaped = flat.reshape(shape)
        if not change:
            return new(shaped, like)
        same = not isinstance(like, np.generic) and np.may_share_memory(flat, view(like))
        return like if same else put(shaped, like)
    shaped = flat.reshape(shape)
    if change and flat.data_ptr() != like.data_ptr():
        like.detach().copy_(shaped)
    return like if change else shaped


def _parent(place: int) -> int:
    return place - (place & -place)


def _distances(place: int, size: int) -> list[int]:
    """The distances from a place to its direct children, ascending: 1, 2, 4, ..."""
    return [1 << level for level in range((subtree(place, size) - 1).bit_length())]


def _down(link: Channel, root: int, block: Callable[[int], Flat]) -> Steps[None]:
    """Down a binomial tree, largest subtree first; ``block(place)`` is what the subtree at ``place`` gets."""
    size, place = link.size, (link.rank - root) % link.size
    if place:
        yield link.receive(block(place), (_parent(place) + root) % size)
    going = [link.send(block(place + each), (link.rank + each) % size) for each in reversed(_distances(place, size))]
    yield from wait_all(going)


def _around(link: Channel, parts: Sequence[Flat], place: int) -> Steps[None]:
    """Pass parts around a ring, starting here with part ``place``: each rank forwards what it received last."""
    size = link.size
    right, left = (link.rank + 1) % size, (link.rank - 1) % size
    for step in range(size - 1):
        yield from link.swap(parts[(place - step) % size], right, parts[(place - step - 1) % size], left)


def broadcast_binomial(link: Channel, flat: Flat, root: int) -> Steps[None]:
    """Down a binomial tree."""
    yield from _down(link, root, lambda place: flat)


def broadcast_direct(link: Channel, flat: Flat, root: int) -> Steps[None]:
    """From the root to every rank."""
    if link.rank != root:
        yield link.receive(flat, root)
        return
    going = [link.send(flat, rank) for rank in range(link.size) if rank != root]
    yield from wait_all(going)


def broadcast_scatter_gather(link: Channel, flat: Flat, root: int) -> Steps[None]:
    """Pieces down a binomial tree, then around a ring (Chan et al. 2007); for long arrays."""
    size = link.size
    bounds = pieces(len(flat), size)
    yield from _down(link, root, lambda place: flat[bounds[place] : bounds[place + subtree(place, size)]])
    yield from _around(link, cut(flat, size), (link.rank - root) % size)


def gather_direct(link: Channel, flat: Flat, root: int) -> Steps[list[Flat]]:
    """From every rank to the root, which returns the arrays in rank order; the others return an empty list."""
    if link.rank != root:
        yield link.send(flat, root)
        return []
    arrived = [flat if rank == root else space(flat, len(flat)) for rank in range(link.size)]
    coming = [link.receive(each, rank) for rank, each in enumerate(arrived) if rank != root]
    yield from wait_all(coming)
    return arrived


def gather_binomial(link: Channel, flat: Flat, root: int) -> Steps[list[Flat]]:
    """Up a binomial tree; each rank sends its whole subtree in one message."""
    size, length, place = link.size, len(flat), (link.rank - root) % link.size
    held = space(flat, subtree(place, size) * length)
    held[:length] = flat
    for each in _distances(place, size):
        below = subtree(place + each, size)
        yield link.receive(held[each * length : (each + below) * length], (link.rank + each) % size)
    if place:
        yield link.send(held, (_parent(place) + root) % size)
        return []
    return _by_rank(cut(held, size), root)


def _by_rank(parts: list[Flat], by: int) -> list[Flat]:
    """Reorder parts from places to ranks, where rank ``by`` has place 0."""
    return [parts[(rank - by) % len(parts)] for rank in range(len(parts))]


def scatter_direct(link: Channel, flats: Sequence[Flat], own: Flat, root: int) -> Steps[None]:
    """From the root to every rank, into ``own``; ``flats`` is read only on the root."""
    if link.rank != root:
        yield link.receive(own, root)
        return
    own[:] = flats[root]
    going = [link.send(each, rank) for rank, each in enumerate(flats) if rank != root]
    yield from wait_all(going)


def scatter_binomial(link: Channel, flats: Sequence[Flat], own: Flat, root: int) -> Steps[None]:
    """Down a binomial tree; each message holds the arrays of a whole subtree. All have the same length."""
    size, length, place = link.size, len(own), (link.rank - root) % link.size
    held = space(own, subtree(place, size) * length)
    if not place:
        for at, part in enumerate(cut(held, size)):
            part[:] = flats[(at + root) % size]
    yield from _down(
        link, root, lambda each: held[(each - place) * length : (each - place + subtree(each, size)) * length]
    )
    own[:] = held[:length]


def gather_ring(link: Channel, flat: Flat) -> Steps[list[Flat]]:
    """Around a ring."""
    parts = [flat if rank == link.rank else space(flat, len(flat)) for rank in range(link.size)]
    yield from _around(link, parts, link.rank)
    return parts


def gather_bruck(link: Channel, flat: Flat) -> Steps[list[Flat]]:
    """Send everything held so far to the rank at distance 1, 2, 4, ... before (Bruck et al. 1997)."""
    size, length = link.size, len(flat)
    held = space(flat, size * length)
    held[:length] = flat
    have = 1
    while have < size:
        count = min(have, size - have) * length
        coming = held[have * length : have * length + count]
        yield from link.swap(held[:count], (link.rank - have) % size, coming, (link.rank + have) % size)
        have *= 2
    return _by_rank(cut(held, size), link.rank)


def gather_everywhere(link: Channel, flat: Flat) -> Steps[list[Flat]]:
    """From every rank to every other."""
    arrived = [flat if rank == link.rank else space(flat, len(flat)) for rank in range(link.size)]
    coming = [link.receive(each, rank) for rank, each in enumerate(arrived) if rank != link.rank]
    going = [link.send(flat, rank) for rank in range(link.size) if rank != link.rank]
    yield from wait_all(coming)
    yield from wait_all(going)
    return arrived


def all_to_all(link: Channel, flats: Sequence[Flat]) -> Steps[list[Flat]]:
    """Pairwise: in step s, send to the rank s after and receive from the rank s before. All have the same length."""
    size, own = link.size, flats[link.rank]
    arrived = [own if rank == link.rank else space(own, len(own)) for rank in range(size)]
    for step in range(1, size):
        to, source = (link.rank + step) % size, (link.rank - step) % size
        yield from link.swap(flats[to], to, arrived[source], source)
    return arrived


def exchange(link: Channel, flat: Flat, neighbours: Sequence[int]) -> Steps[list[Flat]]:
    """With all neighbours at the same time."""
    arrived = [space(flat, len(flat)) for _ in neighbours]
    coming = [link.receive(each, rank) for each, rank in zip(arrived, neighbours, strict=True)]
    going = [link.send(flat, rank) for rank in neighbours]
    yield from wait_all(coming)
    yield from wait_all(going)
    return arrived


def barrier_dissemination(link: Channel) -> Steps[None]:
    """In step k, hear from the rank 2^k before; in the end from all ranks (Hensgen, Finkel & Manber 1988)."""
    token, heard, distance = np.zeros(1, np.uint8), np.zeros(1, np.uint8), 1
    while distance < link.size:
        yield from link.swap(token, (link.rank + distance) % link.size, heard, (link.rank - distance) % link.size)
        distance *= 2


def barrier_direct(link: Channel) -> Steps[None]:
    """From all ranks to rank 0, and back."""
    yield from direct(link, np.zeros(1, np.uint8), ReduceOp("sum", link.size))


def ring(link: Channel, flat: Flat, by: ReduceOp) -> Steps[None]:
    """Reduce-scatter, then all-gather, both around a ring (Patarasuk & Yuan 2009)."""
    yield from reduce_scatter_ring(link, flat, by)
    yield from _around(link, cut(flat, link.size), link.rank)


def _folded(
    link: Channel, flat: Flat, by: ReduceOp, core: Callable[[Channel, FoldedRank, Flat, Flat], Steps[None]]
) -> Steps[None]:
    """``core`` on a power of two of ranks: each rank beyond hands its array to a neighbour and gets the result."""
    scratch = space(flat, len(flat))
    folded = FoldedRank(link.rank, link.size)
    if folded.aside:
        yield link.send(flat, folded.other)
        yield link.receive(flat, folded.other)
        return
    if folded.paired:
        yield link.receive(scratch, folded.other)
        by.join(flat, scratch)
    yield from core(link, folded, flat, scratch)
    if folded.paired:
        yield link.send(flat, folded.other)


def recursive_doubling(link: Channel, flat: Flat, by: ReduceOp) -> Steps[None]:
    """Swap everything with the rank at distance 1, 2, 4, ... (Thakur et al. 2005)."""

    def core(link: Channel, folded: FoldedRank, flat: Flat, scratch: Flat) -> Steps[None]:
        for level in range(folded.levels):
            other = folded.number ^ (1 << level)
            partner = folded.rank_of(other)
            yield from link.swap(flat, partner, scratch, partner)
            # In one order on both ranks: of two NaNs, or of 0 and -0, a library keeps the first or the second.
            by.join(flat, scratch, after=folded.number < other)
        by.finish(flat)

    yield from _folded(link, flat, by, core)


def halving_doubling(link: Channel, flat: Flat, by: ReduceOp) -> Steps[None]:
    """Reduce-scatter by recursive halving, then all-gather by recursive doubling (Rabenseifner 2004)."""

    def core(link: Channel, folded: FoldedRank, flat: Flat, scratch: Flat) -> Steps[None]:
        number, distances = folded.number, [1 << level for level in range(folded.levels)]
        for distance in reversed(distances):
            partner = number ^ distance
            own, other = (_block(flat, folded.size, each, distance) for each in (number, partner))
            coming = scratch[: len(own)]
            yield from link.swap(other, folded.rank_of(partner), coming, folded.rank_of(partner))
            by.join(own, coming)
        by.finish(_block(flat, folded.size, number, 1))
        for distance in distances:
            partner = number ^ distance
            own, other = (_block(flat, folded.size, each, distance) for each in (number, partner))
            yield from link.swap(own, folded.rank_of(partner), other, folded.rank_of(partner))

    yield from _folded(link, flat, by, core)


def _block(flat: Flat, count: int, number: int, length: int) -> Flat:
    """Split into ``count`` pieces and return the aligned block of ``length`` pieces that contains piece ``number``."""
    bounds, first = pieces(len(flat), count), number // length * length
    return flat[bounds[first] : bounds[first + length]]


def tree(link: Channel, flat: Flat, by: ReduceOp) -> Steps[None]:
    """Up a binomial tree to rank 0, then down."""
    scratch = space(flat, len(flat))
    distance = 1
    while distance < link.size:
        if link.rank & distance:
            yield link.send(flat, link.rank - distance)
            break
        if link.rank + distance < link.size:
            yield link.receive(scratch, link.rank + distance)
            by.join(flat, scratch)
        distance *= 2
    if link.rank == 0:
        by.finish(flat)
    yield from broadcast_binomial(link, flat, 0)


def direct(link: Channel, flat: Flat, by: ReduceOp) -> Steps[None]:
    """All to rank 0, which adds in rank order, and back: what an unsharded parameter server does."""
    if link.rank:
        yield link.send(flat, 0)
    else:
        scratch = space(flat, len(flat))
        for rank in range(1, link.size):
            yield link.receive(scratch, rank)
            by.join(flat, scratch)
        by.finish(flat)
    yield from broadcast_direct(link, flat, 0)


def reduce_scatter_ring(link: Channel, flat: Flat, by: ReduceOp) -> Steps[Flat]:
    """Around a ring; overwrites ``flat`` and returns a view of this rank's piece.

    Piece j starts at rank j + 1 and arrives at rank j as the sum over all ranks.
    """
    parts, size = cut(flat, link.size), link.size
    scratch = space(flat, len(parts[0]))
    for step in range(size - 1):
        outgoing, own = parts[(link.rank - step - 1) % size], parts[(link.rank - step - 2) % size]
        coming = scratch[: len(own)]
        yield from link.swap(outgoing, (link.rank + 1) % size, coming, (link.rank - 1) % size)
        by.join(own, coming)
    by.finish(parts[link.rank])
    return parts[link.rank]


def reduce_scatter_direct(link: Channel, flat: Flat, by: ReduceOp) -> Steps[Flat]:
    """Each piece from all ranks to its owner, which adds in rank order."""
    parts = cut(flat, link.size)
    own = parts[link.rank]
    going = [link.send(part, rank) for rank, part in enumerate(parts) if rank != link.rank]
    arrived = [own if rank == link.rank else space(own, len(own)) for rank in range(link.size)]
    for rank, each in enumerate(arrived):
        if rank != link.rank:
            yield link.receive(each, rank)
    yield from wait_all(going)
    total = arrived[0] if link.rank else space(own, len(own))
    if not link.rank:
        total[:] = own
    for each in arrived[1:]:
        by.join(total, each)
    by.finish(total)
    return total


STEPS: dict[str, dict[str, Callable[..., Steps[Any]]]] = {
    "all_reduce": {
        "ring": ring,
        "recursive-doubling": recursive_doubling,
        "halving-doubling": halving_doubling,
        "tree": tree,
        "direct": direct,
    },
    "broadcast": {
        "binomial": broadcast_binomial,
        "scatter-gather": broadcast_scatter_gather,
        "direct": broadcast_direct,
    },
    "reduce_scatter": {"ring": reduce_scatter_ring, "direct": reduce_scatter_direct},
    "all_gather": {"ring": gather_ring, "bruck": gather_bruck, "direct": gather_everywhere},
    "gather": {"direct": gather_direct, "binomial": gather_binomial},
    "scatter": {"direct": scatter_direct, "binomial": scatter_binomial},
    "all_to_all": {"pairwise": all_to_all},
    "barrier": {"dissemination": barrier_dissemination, "direct": barrier_direct},
}
"""The algorithms by operation and name. Each is called with a channel and the operation's arguments."""
