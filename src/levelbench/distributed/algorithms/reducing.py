"""Sums over all ranks, by five algorithms, each with the same bits on every rank.

The one idea: they may differ between algorithms and numbers of ranks, as floating-point addition is not associative,
but never between ranks, for one of two reasons. Either each element is summed up on one rank and copied to the others
(ring, halving-doubling, tree, direct). Or two ranks that hold the same bits within their groups swap and add: one forms
x + y and the other y + x, which are the same bits in IEEE 754 (recursive doubling; which of two NaNs survives is open).
"""

from __future__ import annotations

from collections.abc import Callable

from levelbench.distributed.algorithms.link import Flat, Link, Steps, cut, divide, every, space
from levelbench.distributed.algorithms.spreading import broadcast_binomial
from levelbench.distributed.pieces import pieces

__all__ = ["ALL_REDUCE", "REDUCE_SCATTER"]


def ring(link: Link, flat: Flat, divisor: int | None) -> Steps[None]:
    """Reduce-scatter, then all-gather, both around a ring (Patarasuk & Yuan 2009)."""
    parts = cut(flat, link.size)
    yield from _reduce_around(link, parts)
    divide(parts[link.rank], divisor)
    right, left = (link.rank + 1) % link.size, (link.rank - 1) % link.size
    for step in range(link.size - 1):
        outgoing, coming = parts[(link.rank - step) % link.size], parts[(link.rank - step - 1) % link.size]
        yield from link.swap(outgoing, right, coming, left)


def _reduce_around(link: Link, parts: list[Flat]) -> Steps[None]:
    """Piece j sets out from rank j + 1 and comes to rank j with everybody's part in it."""
    scratch = space(parts[0], len(parts[0]))
    right, left = (link.rank + 1) % link.size, (link.rank - 1) % link.size
    for step in range(link.size - 1):
        outgoing, own = parts[(link.rank - step - 1) % link.size], parts[(link.rank - step - 2) % link.size]
        coming = scratch[: len(own)]
        yield from link.swap(outgoing, right, coming, left)
        own += coming


def recursive_doubling(link: Link, flat: Flat, divisor: int | None) -> Steps[None]:
    """Swap everything with the rank at distance 1, 2, 4, ... (Thakur et al. 2005)."""
    scratch = space(flat, len(flat))
    folded = _Folded(link)
    if (yield from folded.stand_aside(flat, scratch)):
        return
    distance = 1
    while distance < folded.size:
        partner = folded.rank_of(folded.number ^ distance)
        yield from link.swap(flat, partner, scratch, partner)
        flat += scratch
        distance *= 2
    divide(flat, divisor)
    yield from folded.hand_back(flat)


def halving_doubling(link: Link, flat: Flat, divisor: int | None) -> Steps[None]:
    """Reduce-scatter by recursive halving, then all-gather by recursive doubling (Rabenseifner 2004)."""
    scratch = space(flat, len(flat))
    folded = _Folded(link)
    if (yield from folded.stand_aside(flat, scratch)):
        return
    number, distance = folded.number, folded.size // 2
    while distance:
        partner = number ^ distance
        own, other = (_block(flat, folded.size, each, distance) for each in (number, partner))
        coming = scratch[: len(own)]
        yield from link.swap(other, folded.rank_of(partner), coming, folded.rank_of(partner))
        own += coming
        distance //= 2
    divide(_block(flat, folded.size, number, 1), divisor)
    distance = 1
    while distance < folded.size:
        partner = number ^ distance
        own, other = (_block(flat, folded.size, each, distance) for each in (number, partner))
        yield from link.swap(own, folded.rank_of(partner), other, folded.rank_of(partner))
        distance *= 2
    yield from folded.hand_back(flat)


def _block(flat: Flat, count: int, number: int, length: int) -> Flat:
    """Of ``count`` pieces the aligned block of ``length`` pieces in which piece ``number`` lies."""
    bounds, first = pieces(len(flat), count), number // length * length
    return flat[bounds[first] : bounds[first + length]]


class _Folded:
    """The ranks folded to a power of two: of the first pairs each even rank hands its array to the odd one."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.size = 1 << (link.size.bit_length() - 1)
        self._extra = link.size - self.size
        self._paired = link.rank < 2 * self._extra
        self.number = link.rank // 2 if self._paired else link.rank - self._extra

    def rank_of(self, number: int) -> int:
        """The rank that has this number among those that go on."""
        return 2 * number + 1 if number < self._extra else number + self._extra

    def stand_aside(self, flat: Flat, scratch: Flat) -> Steps[bool]:
        """Before: whether this rank is one that hands its array over, in which case all is done when this returns."""
        link = self._link
        if not self._paired:
            return False
        if link.rank % 2:
            yield link.receive(scratch, link.rank - 1)
            flat += scratch
            return False
        yield link.send(flat, link.rank + 1)
        yield link.receive(flat, link.rank + 1)
        return True

    def hand_back(self, flat: Flat) -> Steps[None]:
        """After: the result to the one that stood aside."""
        if self._paired:
            yield self._link.send(flat, self._link.rank - 1)


def tree(link: Link, flat: Flat, divisor: int | None) -> Steps[None]:
    """Up a binomial tree to rank 0, then down."""
    scratch = space(flat, len(flat))
    distance = 1
    while distance < link.size:
        if link.rank & distance:
            yield link.send(flat, link.rank - distance)
            break
        if link.rank + distance < link.size:
            yield link.receive(scratch, link.rank + distance)
            flat += scratch
        distance *= 2
    if link.rank == 0:
        divide(flat, divisor)
    yield from broadcast_binomial(link, flat, 0)


def direct(link: Link, flat: Flat, divisor: int | None) -> Steps[None]:
    """All to rank 0, which adds in the order of ranks, and back: what an unsharded parameter server does."""
    if link.rank:
        yield link.send(flat, 0)
        yield link.receive(flat, 0)
        return
    scratch = space(flat, len(flat))
    for rank in range(1, link.size):
        yield link.receive(scratch, rank)
        flat += scratch
    divide(flat, divisor)
    going = [link.send(flat, rank) for rank in range(1, link.size)]
    yield from every(going)


def scatter_ring(link: Link, flat: Flat, divisor: int | None) -> Steps[Flat]:
    """Around a ring. ``flat`` is overwritten; answers with a view of this rank's piece."""
    parts = cut(flat, link.size)
    yield from _reduce_around(link, parts)
    divide(parts[link.rank], divisor)
    return parts[link.rank]


def scatter_direct(link: Link, flat: Flat, divisor: int | None) -> Steps[Flat]:
    """Each piece from everybody to its rank, which adds in the order of ranks."""
    parts = cut(flat, link.size)
    own = parts[link.rank]
    going = [link.send(part, rank) for rank, part in enumerate(parts) if rank != link.rank]
    arrived = [own if rank == link.rank else space(own, len(own)) for rank in range(link.size)]
    for rank, each in enumerate(arrived):
        if rank != link.rank:
            yield link.receive(each, rank)
    yield from every(going)
    total = arrived[0] if link.rank else space(own, len(own))
    if not link.rank:
        total[:] = own
    for each in arrived[1:]:
        total += each
    divide(total, divisor)
    return total


ALL_REDUCE: dict[str, Callable[[Link, Flat, int | None], Steps[None]]] = {
    "ring": ring,
    "recursive-doubling": recursive_doubling,
    "halving-doubling": halving_doubling,
    "tree": tree,
    "direct": direct,
}
REDUCE_SCATTER: dict[str, Callable[[Link, Flat, int | None], Steps[Flat]]] = {
    "ring": scatter_ring,
    "direct": scatter_direct,
}
