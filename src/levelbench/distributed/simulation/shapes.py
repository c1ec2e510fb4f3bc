"""How far apart hosts of a grid lie, and how many messages meet on a cable of it."""

from __future__ import annotations

__all__ = ["crossed", "torus_path", "torus_spread"]


def crossed(distance: int, within: int, exchange: bool) -> int:
    """How many of a host's ``within`` ranks send out of it where each sends ``distance`` further on."""
    if exchange and within % (2 * distance) == 0:
        return 0
    return min(distance, within)


def torus_path(dimensions: tuple[int, ...], start: int, end: int) -> list[tuple[int, int]]:
    """The cables from one host to another, (host, next host), along one dimension after the other, the shorter way."""
    steps, here, stride = [], start, 1
    for length in dimensions:
        place, wanted = here // stride % length, end // stride % length
        ahead = (wanted - place) % length
        direction, count = (1, ahead) if ahead <= length - ahead else (-1, length - ahead)
        for _ in range(count):
            following = (place + direction) % length
            after = here + (following - place) * stride
            steps.append((here, after))
            here, place = after, following
        stride *= length
    return steps


def torus_spread(dimensions: tuple[int, ...], distance: int) -> tuple[int, float]:
    """Cables beyond the first on the way, and messages on the busiest, where every host sends ``distance`` further on.

    In a dimension of which every host sends k further on, each of its cables carries min(k, length - k) messages.
    """
    hops, load, stride = 0, 1, 1
    for length in dimensions:
        ahead = distance // stride % length
        count = min(ahead, length - ahead)
        hops, load, stride = hops + count, max(load, count), stride * length
    return max(0, hops - 1), float(load)
