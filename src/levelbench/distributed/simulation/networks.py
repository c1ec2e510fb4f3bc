"""What a message takes on a network: latency, bandwidth, and who shares a link with whom.

The one idea: a message of n bytes takes alpha + n / beta (Hockney 1994), and where several cross one link at the same
time, its bandwidth is shared. Two questions are answered from one description: which links a single message uses
(:meth:`Network.route`), and what a round takes in which every rank sends to the one ``distance`` further on
(:meth:`Network.round_s`), which collectives are made of.

Modelled: latency a message and a switch, bandwidth, the link of a host shared by its ranks, both directions of a link
at once, and the sharing of links inside the topology: exactly for messages one by one, and in a round to first order,
as the number of messages on its busiest link. Not modelled: packets, lost ones and congestion control, adaptive
routing, the time of the processor for a message, other jobs on the network.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, prod
from typing import NamedTuple, final

from levelbench.distributed.simulation.shapes import crossed, torus_path, torus_spread
from levelbench.errors import UsageError

__all__ = ["Link", "Network", "Route"]


class Link(NamedTuple):
    """Something that one message at a time crosses."""

    name: tuple[str | int, ...]
    beta: float
    """Bytes a second."""


class Route(NamedTuple):
    """The way of a message: its latency, the links that it crosses in order, the receiver's own last."""

    latency_s: float
    links: tuple[Link, ...]


@final
@dataclass(frozen=True)
class Network:
    """A network of hosts. ``size`` in its methods is the number of ranks, ``per_host`` of them on each host.

    - ``flat``: every two hosts are one switch apart, which never blocks.
    - ``ring``: hosts in a ring, messages take the shorter way through those between.
    - ``tree``: switches of ``radix`` children, each with one link of bandwidth ``beta`` upwards.
    - ``fat-tree``: the same with as much bandwidth upwards as downwards, divided by ``taper`` at each level.
    - ``torus``: a grid of ``dimensions``, closed in each; messages go along one dimension after the other.

    ``alpha_s`` is the latency of a message between neighbours, ``hop_s`` that of each further switch or host on its
    way, ``beta`` the bandwidth of a host's link in bytes a second and direction; ``local_*`` are those within a host,
    of each rank for itself.
    """

    alpha_s: float
    beta: float
    topology: str = "flat"
    hop_s: float = 0.0
    radix: int = 32
    taper: float = 1.0
    dimensions: tuple[int, ...] = ()
    per_host: int = 1
    local_alpha_s: float = 0.0
    local_beta: float = 1e12

    def with_link(self, alpha_s: float, beta: float) -> Network:
        """The same network with other figures for a link between hosts."""
        return replace(self, alpha_s=alpha_s, beta=beta)

    def blocks(self, size: int) -> bool:
        """Whether messages between different pairs of hosts can meet on a link."""
        if self.topology in ("ring", "torus"):
            return True
        narrow = self.topology == "tree" or (self.topology == "fat-tree" and self.taper > 1)
        return narrow and self.hosts(size) > self.radix

    def hosts(self, size: int) -> int:
        """How many hosts ``size`` ranks fill."""
        return ceil(size / self.per_host)

    def route(self, source: int, target: int, size: int) -> Route:
        """How a message gets from one rank to another."""
        start, end = source // self.per_host, target // self.per_host
        if start == end:
            links = (Link(("local out", source), self.local_beta), Link(("local in", target), self.local_beta))
            return Route(self.local_alpha_s, links)
        hops, inner = _way(self, start, end, self.hosts(size))
        out, into = Link(("out", start), self.beta), Link(("in", end), self.beta)
        return Route(self.alpha_s + hops * self.hop_s, (out, *inner, into))

    def round_s(self, distance: int, nbytes: float, size: int, *, exchange: bool = False) -> float:
        """Seconds until every rank has sent ``nbytes`` to the one ``distance`` further on, all at the same time.

        ``exchange``: to the one whose number differs by the bit of ``distance`` instead, which sends to it.
        """
        latency, inverse, local_latency, local_inverse = _round(self, distance, size, exchange)
        return max(latency + nbytes * inverse, local_latency + nbytes * local_inverse)


def _levels(network: Network, start: int, end: int) -> int:
    """How many levels of switches a message climbs in a tree."""
    levels = 1
    while start // network.radix != end // network.radix:
        start, end, levels = start // network.radix, end // network.radix, levels + 1
    return levels


def _uplink(network: Network, level: int) -> float:
    """The bandwidth from a switch of ``level`` (from 1) upwards."""
    if network.topology == "tree":
        return network.beta
    return network.beta * float(network.radix / network.taper) ** level


@lru_cache(maxsize=1 << 16)
def _way(network: Network, start: int, end: int, hosts: int) -> tuple[int, tuple[Link, ...]]:
    """Switches or hosts on the way beyond the first, and the links between them."""
    if network.topology == "ring":
        steps = torus_path((hosts,), start, end)
    elif network.topology == "torus":
        steps = torus_path(checked_dimensions(network, hosts), start, end)
    elif network.topology in ("tree", "fat-tree"):
        levels = _levels(network, start, end)
        if network.topology == "fat-tree" and network.taper == 1:
            # As much bandwidth upwards as downwards: nobody waits inside.
            return 2 * (levels - 1), ()
        up = [Link(("up", at, start // network.radix**at), _uplink(network, at)) for at in range(1, levels)]
        down = [Link(("down", at, end // network.radix**at), _uplink(network, at)) for at in range(1, levels)]
        return 2 * (levels - 1), (*up, *reversed(down))
    else:
        return 0, ()
    return len(steps) - 1, tuple(Link(("cable", *step), network.beta) for step in steps)


@lru_cache(maxsize=1 << 14)
def _round(network: Network, distance: int, size: int, exchange: bool) -> tuple[float, float, float, float]:
    """Latency and seconds a byte of a round, between hosts and within one."""
    within, hosts = network.per_host, network.hosts(size)
    local = (network.local_alpha_s, 1 / network.local_beta) if within > 1 else (0.0, 0.0)
    apart = crossed(distance, within, exchange)
    if hosts == 1 or apart == 0:
        return 0.0, 0.0, *local
    if apart == within:
        local = (0.0, 0.0)
    further = max(1, distance // within)
    hops, load = _spread(network, further, hosts, exchange)
    return network.alpha_s + hops * network.hop_s, apart * load / network.beta, *local


def _spread(network: Network, distance: int, hosts: int, exchange: bool) -> tuple[int, float]:
    """Further switches on the longest way, and messages on the busiest link, where every host sends one."""
    if network.topology == "ring":
        return torus_spread((hosts,), distance)
    if network.topology == "torus":
        return torus_spread(checked_dimensions(network, hosts), distance)
    if network.topology in ("tree", "fat-tree"):
        # Sending on by one place, some pair is always on either side of the root; exchanging bits, none need be.
        levels = _levels(network, 0, min(distance, hosts - 1) if exchange else hosts - 1)
        leaving = [crossed(distance, network.radix**at, exchange) for at in range(1, levels)]
        loads = [count * network.beta / _uplink(network, at) for at, count in enumerate(leaving, 1)]
        return 2 * (levels - 1), max([1.0, *loads])
    return 0, 1.0


def checked_dimensions(network: Network, hosts: int) -> tuple[int, ...]:
    """Those of the torus; as square as can be where none were given. ``UsageError`` unless they hold the hosts."""
    if network.dimensions:
        if prod(network.dimensions) != hosts:
            asked = "x".join(map(str, network.dimensions))
            raise UsageError(
                f"a torus of {asked} hosts", f"there are {hosts} hosts", "give dimensions whose product that is"
            )
        return network.dimensions
    side = next(at for at in range(int(hosts**0.5), 0, -1) if hosts % at == 0)
    return (side, hosts // side)
