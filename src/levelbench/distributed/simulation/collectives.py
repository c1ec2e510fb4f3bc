"""What a collective takes, in closed form: the rounds of its algorithm, one after the other.

The one idea: an algorithm is a list of rounds (distance, bytes), and a round takes what the network says that it takes
when all ranks send at once. So one formula holds for every topology, and 4,096 ranks take as long as two. The rounds
are those of Thakur, Rabenseifner & Gropp 2005 (table 1 and sections 3 and 4), the ring of Patarasuk & Yuan 2009, the
double tree of Sanders, Speck & Träff 2009; the time of adding numbers is left out.

Exact where no rank waits for another within the algorithm; where links differ (several ranks on a host) a rank may run
ahead of its neighbours, and the sum of the rounds is an upper bound.
"""

from __future__ import annotations

from functools import lru_cache

from levelbench.distributed.simulation.networks import Network
from levelbench.errors import UnknownNameError

__all__ = ["ALL_REDUCE", "collective_s"]

ALL_REDUCE = ("auto", "ring", "recursive-doubling", "halving-doubling", "tree", "double-tree", "hierarchical")
"""Algorithms of an all-reduce; ``auto`` is the fastest of them for the size at hand, as a tuned library chooses."""


@lru_cache(maxsize=1 << 14)
def collective_s(network: Network, operation: str, nbytes: float, size: int, algorithm: str = "auto") -> float:
    """Seconds from when the last rank comes until all have their result.

    ``nbytes`` are those of the array that a rank gives: of all-gather and gather its own part, of all-to-all and
    scatter one of its arrays. ``algorithm`` is for all-reduce, one of ``ALL_REDUCE``.
    """
    if size == 1:
        return 0.0
    if operation == "all_reduce":
        return _all_reduce(network, nbytes, size, algorithm)
    seconds: float = _OTHERS[operation](network, nbytes, size)
    return seconds


def _all_reduce(network: Network, nbytes: float, size: int, algorithm: str) -> float:
    if algorithm == "auto":
        return min(_all_reduce(network, nbytes, size, each) for each in ALL_REDUCE[1:])
    if algorithm not in ALL_REDUCE:
        raise UnknownNameError("algorithm of an all-reduce", algorithm, ALL_REDUCE)
    if algorithm == "ring":
        return 2 * (size - 1) * network.round_s(1, nbytes / size, size)
    if algorithm == "tree":
        return 2 * _tree(network, nbytes, size)
    if algorithm == "double-tree":
        # Two pipelined trees, each of half the bytes: every rank sends and receives each byte twice at full speed.
        # All levels are at work at once: where links are shared inside, one of each may meet on a link.
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


def _hierarchical(network: Network, nbytes: float, size: int) -> float:
    """Reduce-scatter within each host, a ring between hosts for each piece, all-gather within; one host: a ring."""
    within = network.per_host
    if within == 1 or size <= within:
        return _all_reduce(network, nbytes, size, "ring")
    piece, hosts = nbytes / within, network.hosts(size)
    inside = 2 * (within - 1) * (network.local_alpha_s + piece / network.local_beta)
    return inside + 2 * (hosts - 1) * network.round_s(within, piece / hosts, size)


def _tree(network: Network, nbytes: float, size: int) -> float:
    """A binomial tree: the ranks that have it send it to those 1, 2, 4, ... further on."""
    distances = [1 << at for at in range((size - 1).bit_length())]
    return sum(network.round_s(each, nbytes, size, exchange=True) for each in distances)


def _halves(network: Network, nbytes: float, size: int) -> float:
    """Gather or scatter by a binomial tree: what is sent doubles with the distance, up to half of all."""
    distances = [1 << at for at in range((size - 1).bit_length())]
    return sum(network.round_s(each, min(each, size - each) * nbytes, size, exchange=True) for each in distances)


def _pairwise(network: Network, nbytes: float, size: int) -> float:
    """All-to-all: to each other rank in turn."""
    return sum(network.round_s(each, nbytes, size) for each in range(1, size))


_OTHERS = {
    "broadcast": _tree,
    "barrier": lambda network, nbytes, size: _tree(network, 0.0, size),
    "reduce_scatter": lambda network, nbytes, size: (size - 1) * network.round_s(1, nbytes / size, size),
    "all_gather": lambda network, nbytes, size: (size - 1) * network.round_s(1, nbytes, size),
    "gather": _halves,
    "scatter": _halves,
    "all_to_all": _pairwise,
}
