"""Collectives that move arrays and add nothing: broadcast, scatter, gather, all-gather, all-to-all, and the barrier."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from levelbench.distributed.algorithms.link import Flat, Link, Steps, cut, every, space

__all__ = [
    "ALL_GATHER",
    "BARRIER",
    "BROADCAST",
    "GATHER",
    "SCATTER",
    "all_to_all",
    "broadcast_binomial",
    "exchange",
]


def _subtree(place: int, size: int) -> int:
    """How many ranks hang on a place of the binomial tree, itself included. The root's place is 0."""
    return min(place & -place, size - place) if place else size


def _parent(place: int) -> int:
    return place - (place & -place)


def _distances(place: int, size: int) -> list[int]:
    """How far away those are that hang directly on a place, ascending: 1, 2, 4, ..."""
    return [1 << level for level in range((_subtree(place, size) - 1).bit_length())]


def broadcast_binomial(link: Link, flat: Flat, root: int) -> Steps[None]:
    """Down a binomial tree, the largest subtree first."""
    place = (link.rank - root) % link.size
    if place:
        yield link.receive(flat, (_parent(place) + root) % link.size)
    going = [link.send(flat, (link.rank + each) % link.size) for each in reversed(_distances(place, link.size))]
    yield from every(going)


def broadcast_direct(link: Link, flat: Flat, root: int) -> Steps[None]:
    """From the root to each."""
    if link.rank != root:
        yield link.receive(flat, root)
        return
    going = [link.send(flat, rank) for rank in range(link.size) if rank != root]
    yield from every(going)


def broadcast_scatter_gather(link: Link, flat: Flat, root: int) -> Steps[None]:
    """Pieces down a binomial tree, then around a ring (Chan et al. 2007): for long arrays."""
    size, place = link.size, (link.rank - root) % link.size
    parts = cut(flat, size)
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + len(part))

    def block(first: int) -> Flat:
        return flat[ends[first] : ends[first + _subtree(first, size)]]

    if place:
        yield link.receive(block(place), (_parent(place) + root) % size)
    going = [link.send(block(place + each), (link.rank + each) % size) for each in reversed(_distances(place, size))]
    yield from every(going)
    right, left = (link.rank + 1) % size, (link.rank - 1) % size
    for step in range(size - 1):
        yield from link.swap(parts[(place - step) % size], right, parts[(place - step - 1) % size], left)


def gather_direct(link: Link, flat: Flat, root: int) -> Steps[list[Flat]]:
    """From each to the root. Answers there with the arrays by rank, elsewhere with none."""
    if link.rank != root:
        yield link.send(flat, root)
        return []
    arrived = [flat if rank == root else space(flat, len(flat)) for rank in range(link.size)]
    coming = [link.receive(each, rank) for rank, each in enumerate(arrived) if rank != root]
    yield from every(coming)
    return arrived


def gather_binomial(link: Link, flat: Flat, root: int) -> Steps[list[Flat]]:
    """Up a binomial tree, each rank with all that hang on it in one message."""
    size, length, place = link.size, len(flat), (link.rank - root) % link.size
    held = space(flat, _subtree(place, size) * length)
    held[:length] = flat
    for each in _distances(place, size):
        below = _subtree(place + each, size)
        yield link.receive(held[each * length : (each + below) * length], (link.rank + each) % size)
    if place:
        yield link.send(held, (_parent(place) + root) % size)
        return []
    return _turned(cut(held, size), root)


def _turned(parts: list[Flat], by: int) -> list[Flat]:
    """Parts by place as parts by rank, where the rank of place 0 is ``by``."""
    return [parts[(rank - by) % len(parts)] for rank in range(len(parts))]


def scatter_direct(link: Link, flats: Sequence[Flat], own: Flat, root: int) -> Steps[None]:
    """From the root to each, into ``own``; ``flats`` are read on the root."""
    if link.rank != root:
        yield link.receive(own, root)
        return
    own[:] = flats[root]
    going = [link.send(each, rank) for rank, each in enumerate(flats) if rank != root]
    yield from every(going)


def scatter_binomial(link: Link, flats: Sequence[Flat], own: Flat, root: int) -> Steps[None]:
    """Down a binomial tree, each rank's array with those of all that hang on it. All of one length."""
    size, length, place = link.size, len(own), (link.rank - root) % link.size
    held = space(own, _subtree(place, size) * length)
    if place:
        yield link.receive(held, (_parent(place) + root) % size)
    else:
        for at, part in enumerate(cut(held, size)):
            part[:] = flats[(at + root) % size]
    going = [
        link.send(held[each * length : (each + _subtree(place + each, size)) * length], (link.rank + each) % size)
        for each in reversed(_distances(place, size))
    ]
    own[:] = held[:length]
    yield from every(going)


def gather_ring(link: Link, flat: Flat) -> Steps[list[Flat]]:
    """Around a ring: each passes on what came last."""
    size = link.size
    parts = [flat if rank == link.rank else space(flat, len(flat)) for rank in range(size)]
    right, left = (link.rank + 1) % size, (link.rank - 1) % size
    for step in range(size - 1):
        yield from link.swap(parts[(link.rank - step) % size], right, parts[(link.rank - step - 1) % size], left)
    return parts


def gather_bruck(link: Link, flat: Flat) -> Steps[list[Flat]]:
    """All that one holds to the rank at distance 1, 2, 4, ... before (Bruck et al. 1997)."""
    size, length = link.size, len(flat)
    held = space(flat, size * length)
    held[:length] = flat
    have = 1
    while have < size:
        count = min(have, size - have) * length
        coming = held[have * length : have * length + count]
        yield from link.swap(held[:count], (link.rank - have) % size, coming, (link.rank + have) % size)
        have *= 2
    return _turned(cut(held, size), link.rank)


def gather_everywhere(link: Link, flat: Flat) -> Steps[list[Flat]]:
    """From each to each."""
    arrived = [flat if rank == link.rank else space(flat, len(flat)) for rank in range(link.size)]
    coming = [link.receive(each, rank) for rank, each in enumerate(arrived) if rank != link.rank]
    going = [link.send(flat, rank) for rank in range(link.size) if rank != link.rank]
    yield from every(coming)
    yield from every(going)
    return arrived


def all_to_all(link: Link, flats: Sequence[Flat]) -> Steps[list[Flat]]:
    """Pairwise: in step s to the rank s after, and from the rank s before. All of one length."""
    size, own = link.size, flats[link.rank]
    arrived = [own if rank == link.rank else space(own, len(own)) for rank in range(size)]
    for step in range(1, size):
        to, source = (link.rank + step) % size, (link.rank - step) % size
        yield from link.swap(flats[to], to, arrived[source], source)
    return arrived


def exchange(link: Link, flat: Flat, neighbours: Sequence[int]) -> Steps[list[Flat]]:
    """With each neighbour at the same time."""
    arrived = [space(flat, len(flat)) for _ in neighbours]
    coming = [link.receive(each, rank) for each, rank in zip(arrived, neighbours, strict=True)]
    going = [link.send(flat, rank) for rank in neighbours]
    yield from every(coming)
    yield from every(going)
    return arrived


def barrier_dissemination(link: Link) -> Steps[None]:
    """In step k hear from the rank 2^k before: then from everybody (Hensgen, Finkel & Manber 1988)."""
    token, heard, distance = np.zeros(1, np.uint8), np.zeros(1, np.uint8), 1
    while distance < link.size:
        yield from link.swap(token, (link.rank + distance) % link.size, heard, (link.rank - distance) % link.size)
        distance *= 2


def barrier_direct(link: Link) -> Steps[None]:
    """All to rank 0, and back."""
    token = np.zeros(1, np.uint8)
    if link.rank:
        yield link.send(token, 0)
        yield link.receive(token, 0)
        return
    for rank in range(1, link.size):
        yield link.receive(token, rank)
    going = [link.send(token, rank) for rank in range(1, link.size)]
    yield from every(going)


BROADCAST: dict[str, Callable[[Link, Flat, int], Steps[None]]] = {
    "binomial": broadcast_binomial,
    "scatter-gather": broadcast_scatter_gather,
    "direct": broadcast_direct,
}
GATHER: dict[str, Callable[[Link, Flat, int], Steps[list[Flat]]]] = {
    "direct": gather_direct,
    "binomial": gather_binomial,
}
SCATTER: dict[str, Callable[[Link, Sequence[Flat], Flat, int], Steps[None]]] = {
    "direct": scatter_direct,
    "binomial": scatter_binomial,
}
ALL_GATHER: dict[str, Callable[[Link, Flat], Steps[list[Flat]]]] = {
    "ring": gather_ring,
    "bruck": gather_bruck,
    "direct": gather_everywhere,
}
BARRIER: dict[str, Callable[[Link], Steps[None]]] = {
    "dissemination": barrier_dissemination,
    "direct": barrier_direct,
}
