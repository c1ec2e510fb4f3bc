"""How long messages and collectives take on a network: latency, bandwidth, and shared links.

A message of n bytes takes alpha + n / beta (Hockney 1994), and several on one link share its bandwidth. A collective is
a list of rounds in which every rank sends to the one ``distance`` further on, so one formula covers every topology.
Sources: Thakur, Rabenseifner & Gropp 2005 (table 1 and sections 3 and 4), Patarasuk & Yuan 2009 for the ring, Sanders,
Speck & Träff 2009 for the double tree. The time to add numbers is left out.

Links inside the topology are shared exactly for individual messages, and in a round to first order, by the number of
messages on the busiest link; if several ranks share a host, the sum of the rounds is an upper bound. Not modelled:
packets, packet loss, congestion control, adaptive routing, per-message processor time, other jobs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, log, prod
from typing import Any, NamedTuple, final

import numpy as np

from levelbench.errors import UnknownNameError, UsageError


class Wire(NamedTuple):
    """A link that carries one message at a time."""

    name: tuple[str | int, ...]
    beta: float
    """Bytes a second."""


class Route(NamedTuple):
    """The route of a message: its latency and the links it crosses in order, ending with the receiver's own."""

    latency_s: float
    links: tuple[Wire, ...]


@final
@dataclass(frozen=True)
class Interconnect:
    """A network of hosts. In its methods, ``size`` is the number of ranks, ``per_host`` of which share a host.

    - ``flat``: any two hosts are one non-blocking switch apart.
    - ``ring``: hosts in a ring; messages take the shorter way.
    - ``tree``: switches with ``radix`` children, each with one uplink of bandwidth ``beta``.
    - ``fat-tree``: the same with as much bandwidth upwards as downwards, divided by ``taper`` at each level.
    - ``torus``: a grid of ``dimensions`` that wraps around in each; messages are routed dimension by dimension.

    ``alpha_s`` is the latency of a message between neighbours, ``hop_s`` that of each further switch or host on the
    route, ``beta`` the bandwidth of a host's link in bytes per second and direction; ``local_*`` are those within a
    host, for each rank separately. ``measured`` has, by operation, how many times as long as this model says a
    library's collectives take, at messages of some sizes in bytes: it is interpolated between them.
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
    measured: tuple[tuple[str, tuple[tuple[float, float], ...]], ...] = ()

    def blocks(self, size: int) -> bool:
        """Whether messages between different pairs of hosts can share a link."""
        if self.topology in ("ring", "torus"):
            return True
        narrow = self.topology == "tree" or (self.topology == "fat-tree" and self.taper > 1)
        return narrow and self.hosts(size) > self.radix

    def hosts(self, size: int) -> int:
        """The number of hosts for ``size`` ranks."""
        return ceil(size / self.per_host)

    def route(self, source: int, target: int, size: int) -> Route:
        """The route from one rank to another."""
        start, end = source // self.per_host, target // self.per_host
        if start == end:
            links = (
                Wire(("local out", source), self.local_beta),
                Wire(("local in", target), self.local_beta),
            )
            return Route(self.local_alpha_s, links)
        hops, inner = _way(self, start, end, self.hosts(size))
        out, into = Wire(("out", start), self.beta), Wire(("in", end), self.beta)
        return Route(self.alpha_s + hops * self.hop_s, (out, *inner, into))

    def round_s(self, distance: int, nbytes: float, size: int, *, exchange: bool = False) -> float:
        """Seconds until every rank has sent ``nbytes`` to the rank ``distance`` further on, all at the same time.

        With ``exchange``, ranks whose numbers differ in the bit of ``distance`` send to each other instead.
        """
        latency, inverse, local_latency, local_inverse = _round(self, distance, size, exchange)
        return max(latency + nbytes * inverse, local_latency + nbytes * local_inverse)


def _levels(network: Interconnect, start: int, end: int) -> int:
    """How many levels of switches a message climbs in a tree."""
    levels = 1
    while start // network.radix != end // network.radix:
        start, end, levels = start // network.radix, end // network.radix, levels + 1
    return levels


def _uplink(network: Interconnect, level: int) -> float:
    """The bandwidth from a switch of ``level`` (from 1) upwards."""
    if network.topology == "tree":
        return network.beta
    return network.beta * float(network.radix / network.taper) ** level


@lru_cache(maxsize=1 << 16)
def _way(network: Interconnect, start: int, end: int, hosts: int) -> tuple[int, tuple[Wire, ...]]:
    """Switches or hosts on the route beyond the first, and the links between them."""
    if network.topology in ("ring", "torus"):
        steps = torus_path(checked_dimensions(network, hosts), start, end)
    elif network.topology in ("tree", "fat-tree"):
        levels = _levels(network, start, end)
        if network.topology == "fat-tree" and network.taper == 1:
            # Full bisection bandwidth: no message waits inside.
            return 2 * (levels - 1), ()
        up = [Wire(("up", at, start // network.radix**at), _uplink(network, at)) for at in range(1, levels)]
        down = [Wire(("down", at, end // network.radix**at), _uplink(network, at)) for at in range(1, levels)]
        return 2 * (levels - 1), (*up, *reversed(down))
    else:
        return 0, ()
    return len(steps) - 1, tuple(Wire(("cable", *step), network.beta) for step in steps)


@lru_cache(maxsize=1 << 14)
def _round(network: Interconnect, distance: int, size: int, exchange: bool) -> tuple[float, float, float, float]:
    """Latency and seconds per byte of a round, between hosts and within one."""
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


def _spread(network: Interconnect, distance: int, hosts: int, exchange: bool) -> tuple[int, float]:
    """Further switches on the longest route, and messages on the busiest link, when every host sends one."""
    if network.topology in ("ring", "torus"):
        return torus_spread(checked_dimensions(network, hosts), distance)
    if network.topology in ("tree", "fat-tree"):
        # In a shift, some pair is always on either side of the root; in an exchange of bits, none need be.
        levels = _levels(network, 0, min(distance, hosts - 1) if exchange else hosts - 1)
        leaving = [crossed(distance, network.radix**at, exchange) for at in range(1, levels)]
        loads = [count * network.beta / _uplink(network, at) for at, count in enumerate(leaving, 1)]
        return 2 * (levels - 1), max([1.0, *loads])
    return 0, 1.0


def checked_dimensions(network: Interconnect, hosts: int) -> tuple[int, ...]:
    """The dimensions of a ring or torus (default: nearly square); ``UsageError`` unless they hold the hosts."""
    if network.topology == "ring":
        return (hosts,)
    if network.dimensions:
        if prod(network.dimensions) != hosts:
            asked = "x".join(map(str, network.dimensions))
            raise UsageError(
                f"a torus of {asked} hosts", f"there are {hosts} hosts", "give dimensions with that product"
            )
        return network.dimensions
    side = next(at for at in range(int(hosts**0.5), 0, -1) if hosts % at == 0)
    return (side, hosts // side)


ALL_REDUCE = ("auto", "ring", "recursive-doubling", "halving-doubling", "tree", "double-tree", "hierarchical")
"""Algorithms of all-reduce; ``auto`` is the fastest of them for the given size, as a tuned library chooses."""


@lru_cache(maxsize=1 << 14)
def collective_s(network: Interconnect, operation: str, nbytes: float, size: int, algorithm: str = "auto") -> float:
    """Seconds from the arrival of the last rank until all have their result.

    ``nbytes`` is the size of the array that a rank passes: for all-gather and gather its own part, for all-to-all and
    scatter one of its arrays. ``algorithm`` applies to all-reduce and is one of ``ALL_REDUCE``.
    """
    if size == 1:
        return 0.0
    factor = measured_factor(network, operation, message_bytes(operation, nbytes, size))
    if operation == "all_reduce":
        return factor * _all_reduce(network, nbytes, size, algorithm)
    return factor * _OTHERS[operation](network, nbytes, size)


def message_bytes(operation: str, nbytes: float, size: int) -> float:
    """The bytes of one message of a ring, or of pairs."""
    return nbytes / size if operation in ("all_reduce", "reduce_scatter") else nbytes


def measured_factor(network: Interconnect, operation: str, nbytes: float) -> float:
    """How many times as long as modelled it takes with such messages, on lines over the logarithms of sizes."""
    points = dict(network.measured).get(operation)
    if not points:
        return 1.0
    sizes, factors = zip(*points, strict=True)
    return float(np.interp(log(max(nbytes, 1.0)), [log(each) for each in sizes], factors))


def _all_reduce(network: Interconnect, nbytes: float, size: int, algorithm: str) -> float:
    if algorithm == "auto":
        return min(_all_reduce(network, nbytes, size, each) for each in ALL_REDUCE[1:])
    if algorithm not in ALL_REDUCE:
        raise UnknownNameError("algorithm of an all-reduce", algorithm, ALL_REDUCE)
    if algorithm == "ring":
        return 2 * (size - 1) * network.round_s(1, nbytes / size, size)
    if algorithm == "tree":
        return 2 * _tree(network, nbytes, size)
    if algorithm == "double-tree":
        # Two pipelined trees, each with half of the bytes: every rank sends and receives each byte twice at full speed.
        # All levels work at once, so where inner links are shared, one message per level may meet on a link.
        meeting = (size - 1).bit_length() if network.blocks(size) else 1
        sent_s = network.round_s(1, nbytes, size) - network.round_s(1, 0.0, size)
        return 2 * _tree(network, 0.0, size) + 2 * meeting * sent_s
    if algorithm == "hierarchical":
        return _hierarchical(network, nbytes, size)
    core = 1 << (size.bit_length() - 1)
    folded = 2 * network.round_s(1, nbytes, size) if core < size else 0.0
    distances = [1 << at for at in range(core.bit_length() - 1)]
    if algorithm == "recursive-doubling":
        return folded + sum(network.round_s(each, nbytes, core, exchange=True) for each in distances)
    halving = sum(network.round_s(each, nbytes * each / core, core, exchange=True) for each in distances)
    return folded + 2 * halving


def _hierarchical(network: Interconnect, nbytes: float, size: int) -> float:
    """Reduce-scatter within each host, a ring between hosts for each piece, all-gather within; a ring on one host."""
    within = network.per_host
    if within == 1 or size <= within:
        return _all_reduce(network, nbytes, size, "ring")
    piece, hosts = nbytes / within, network.hosts(size)
    inside = 2 * (within - 1) * (network.local_alpha_s + piece / network.local_beta)
    return inside + 2 * (hosts - 1) * network.round_s(within, piece / hosts, size)


def _tree(network: Interconnect, nbytes: float, size: int) -> float:
    """A binomial tree: ranks that have the data send it to those 1, 2, 4, ... further on."""
    distances = [1 << at for at in range((size - 1).bit_length())]
    return sum(network.round_s(each, nbytes, size, exchange=True) for each in distances)


def _halves(network: Interconnect, nbytes: float, size: int) -> float:
    """Gather or scatter by a binomial tree: messages double with the distance, up to half of everything."""
    distances = [1 << at for at in range((size - 1).bit_length())]
    return sum(network.round_s(each, min(each, size - each) * nbytes, size, exchange=True) for each in distances)


_OTHERS: dict[str, Callable[[Interconnect, float, int], float]] = {
    "broadcast": _tree,
    "barrier": lambda network, nbytes, size: _tree(network, 0.0, size),
    "reduce_scatter": lambda network, nbytes, size: (size - 1) * network.round_s(1, nbytes / size, size),
    "all_gather": lambda network, nbytes, size: (size - 1) * network.round_s(1, nbytes, size),
    "gather": _halves,
    "scatter": _halves,
    # To each other rank in turn.
    "all_to_all": lambda network, nbytes, size: sum(network.round_s(each, nbytes, size) for each in range(1, size)),
}


_NUMBER = re.compile(r"\s*(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)\s*([A-Za-z/]*)\s*")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}
_BYTES = {f"{prefix}B/s": factor for prefix, factor in _PREFIXES.items()}
_BITS = {f"{prefix}{bit}": factor / 8 for prefix, factor in _PREFIXES.items() for bit in ("bit/s", "bit", "bps", "b/s")}


def duration_s(text: str, asked: str) -> float:
    """Seconds from ``2us`` or ``0.5 ms``: an unsigned decimal number. ``UsageError`` names ``asked``."""
    return _read(text, asked, _SECONDS, "a time with a unit, such as 2us (ns, us, ms, s)")


def bandwidth(text: str, asked: str) -> float:
    """Bytes per second from ``25GB/s`` or ``100Gbit/s``; k, M, G are decimal, Ki, Mi, Gi binary; b is bits."""
    value = _read(text, asked, _BYTES | _BITS, "a bandwidth with a unit, such as 25GB/s or 100Gbit/s")
    if value <= 0:
        raise UsageError(f"{asked}={text}", "nothing would ever arrive", "give a bandwidth above zero")
    return value


def _read(text: str, asked: str, units: dict[str, float], wanted: str) -> float:
    found = _NUMBER.fullmatch(text)
    if found is None or found[2] not in units:
        raise UsageError(f"{asked}={text}", f"{text!r} is not {wanted}", f"write {wanted}")
    return float(found[1]) * units[found[2]]


TOPOLOGIES = ("flat", "ring", "tree", "fat-tree", "torus", "hosts")


def _count(text: str, asked: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,8}", text):
        raise UsageError(f"{asked}={text}", f"{text!r} is not a whole number above zero", "give one")
    return int(text)


def _radix(text: str, asked: str) -> int:
    if (value := _count(text, asked)) < 2:
        raise UsageError(f"{asked}={text}", "a switch of a tree has at least two children", "give 2 or more")
    return value


def _taper(text: str, asked: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", text) or float(text) < 1:
        raise UsageError(
            f"{asked}={text}", "it is not a number of at least 1", "give the factor by which each level is narrower"
        )
    return float(text)


def _topology(text: str, asked: str) -> str:
    if text not in TOPOLOGIES:
        raise UnknownNameError(asked, text, TOPOLOGIES)
    return text


_READ: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "alpha": ("alpha_s", duration_s),
    "beta": ("beta", bandwidth),
    "topology": ("topology", _topology),
    "hop": ("hop_s", duration_s),
    "radix": ("radix", _radix),
    "taper": ("taper", _taper),
    "dimensions": ("dimensions", lambda text, asked: tuple(_count(each, asked) for each in text.split("x"))),
    "per-host": ("per_host", _count),
    "local-alpha": ("local_alpha_s", duration_s),
    "local-beta": ("local_beta", bandwidth),
}
_BELONG = {"radix": ("tree", "fat-tree"), "taper": ("fat-tree",), "dimensions": ("torus",)}


def parse(text: str) -> Interconnect:
    """A network from comma-separated ``key=value`` pairs; ``alpha`` and ``beta`` are required.

    Keys: ``alpha``, ``hop``, ``local-alpha`` (times: ns us ms s), ``beta``, ``local-beta`` (GB/s, Gbit/s, ...),
    ``topology``, ``radix`` (tree, fat-tree), ``taper`` (fat-tree), ``dimensions`` (torus: 8x8), ``per-host``.
    ``topology=hosts`` is ``flat`` and requires ``per-host``. ``UsageError`` for contradictions.
    """
    asked = f"the network {text!r}"
    given: dict[str, str] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        key, equals, value = (each.strip() for each in part.partition("="))
        if not equals or not value:
            raise UsageError(asked, f"{part!r} is not of the form key=value", "write for example alpha=2us,beta=25GB/s")
        if key not in _READ:
            raise UnknownNameError("setting of a network", key, _READ)
        if key in given:
            raise UsageError(asked, f"{key} is given twice", "give it once")
        given[key] = value
    for key, unit in (("alpha", "2us"), ("beta", "25GB/s")):
        if key not in given:
            raise UsageError(asked, f"it has no {key}", f"add {key}={unit}, or the value of your network")
    _check_pairs(asked, given)
    settings = {_READ[key][0]: _READ[key][1](value, key) for key, value in given.items()}
    if settings.get("topology") == "hosts":
        settings["topology"] = "flat"
    return Interconnect(**settings)


def _check_pairs(asked: str, given: dict[str, str]) -> None:
    """Refuse settings that would have no effect or lack their counterpart."""
    topology = given.get("topology", "flat")
    for key, topologies in _BELONG.items():
        if key in given and topology not in topologies:
            raise UsageError(asked, f"{key} has no meaning for topology={topology}", f"use it with {topologies[0]}")
    if topology == "hosts" and "per-host" not in given:
        raise UsageError(asked, "it does not say how many ranks a host has", "add per-host=8")
    local = {"local-alpha", "local-beta"} & set(given)
    several = given.get("per-host", "1") != "1"
    if several and len(local) < 2:
        raise UsageError(
            asked,
            "several ranks share a host, but the cost of a message within it is not given",
            "add local-alpha and local-beta",
        )
    if local and not several:
        raise UsageError(asked, "one rank on a host sends nothing within it", "add per-host=8, or leave local-* out")


def crossed(distance: int, within: int, exchange: bool) -> int:
    """How many of a host's ``within`` ranks send to another host if each sends ``distance`` further on."""
    if exchange and within % (2 * distance) == 0:
        return 0
    return min(distance, within)


def torus_path(dimensions: tuple[int, ...], start: int, end: int) -> list[tuple[int, int]]:
    """The cables from one host to another, (host, next host), dimension by dimension, the shorter way."""
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
    """Cables on the route beyond the first, and messages on the busiest, if every host sends ``distance`` further on.

    In a dimension in which every host sends k further on, each cable carries min(k, length - k) messages.
    """
    hops, load, stride = 0, 1, 1
    for length in dimensions:
        ahead = distance // stride % length
        count = min(ahead, length - ahead)
        hops, load, stride = hops + count, max(load, count), stride * length
    return max(0, hops - 1), float(load)
