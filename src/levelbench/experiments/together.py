"""What the ranks of a run know of themselves, brought together: their machines, cores, threads, memory.

No rank judges from what it sees alone. Each says what it has; whether ranks share cores is judged for
every machine by the cores of all ranks on it, so also where each rank is bound to cores of its own.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from levelbench.distributed.communicator import Communicator
from levelbench.experiments.members import Together
from levelbench.measure.meters import Reading
from levelbench.measure.meters.resources import NAME as PEAK_MEMORY

__all__ = ["Share", "gather_shares", "machine", "own_share", "threads_of", "together"]

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Share(msgspec.Struct, frozen=True):
    """What one rank says: its machine, the cores it may use, the CPU seconds it spent, its threads, its memory.

    ``threads`` are those of its framework, or of each numeric library by name; ``peak_memory`` is what its meter read,
    or why it could not.
    """

    machine: str
    cores: list[int]
    cpu_s: float
    threads: Any = None
    peak_memory: float | None = None
    method: str | None = None
    reason: str | None = None


def machine() -> str:
    """What names this machine among others: the kernel's own name of this boot, else the name of the host."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return socket.gethostname()


def threads_of(environment: Mapping[str, Any]) -> Any:
    """What a framework says of its threads; where it says nothing, those of the numeric libraries that are loaded."""
    own = environment.get("framework", {}).get("threads")
    if own is not None:
        return own
    loaded = environment.get("threads", {}).get("loaded", {})
    return {name: each.get("threads") for name, each in loaded.items()} or None


def own_share(cpu_s: float, threads: Any, readings: Sequence[Reading]) -> Share:
    """That of this process."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [*range(os.cpu_count() or 1)]
    peak = next((each for each in readings if each.name == PEAK_MEMORY), None)
    if peak is None:
        return Share(machine(), cores, cpu_s, threads, reason="no meter read it")
    return Share(machine(), cores, cpu_s, threads, peak.value, peak.method, peak.reason)


def gather_shares(communicator: Communicator, own: Share) -> list[Share]:
    """Those of all ranks, by rank. Collective."""
    text = np.frombuffer(msgspec.json.encode(own), np.uint8)
    lengths = [int(each[0]) for each in communicator.all_gather(np.array([len(text)], np.int64))]
    # A collective takes arrays of one shape.
    padded = np.zeros(max(lengths), np.uint8)
    padded[: len(text)] = text
    texts = communicator.all_gather(padded)
    return [
        msgspec.json.decode(np.asarray(each)[:length].tobytes(), type=Share)
        for each, length in zip(texts, lengths, strict=True)
    ]


def together(shares: Sequence[Share], rank: int, readings: Sequence[Reading]) -> Together:
    """What ``rank`` writes down of ``shares``: facts about the team, and a doubt where ranks outnumber cores.

    The peak memory among ``readings`` becomes the largest of all ranks'.
    """
    machines = list(dict.fromkeys(share.machine for share in shares))
    by_machine = [[share for share in shares if share.machine == name] for name in machines]
    cores = [len({core for share in each for core in share.cores}) for each in by_machine]
    ranks = [len(each) for each in by_machine]
    crowded = [at for at in range(len(machines)) if ranks[at] > cores[at]]
    facts = {
        "hosts": len(machines),
        "ranks_by_host": ranks,
        "cores_by_host": cores,
        "threads_by_rank": [share.threads for share in shares],
        "crowded": bool(crowded),
        "peak_memory_bytes_by_rank": [share.peak_memory for share in shares],
    }
    own = shares[rank]
    beside = sum(share.cpu_s for share in shares if share.machine == own.machine) - own.cpu_s
    taken = tuple(_largest(each, shares) if each.name == PEAK_MEMORY else each for each in readings)
    return Together(taken, tuple(_doubt(ranks[at], cores[at]) for at in crowded[:1]), facts, max(0.0, beside))


def _doubt(ranks: int, cores: int) -> str:
    return f"{ranks} ranks share {cores} core{'s' * (cores > 1)}: its times say nothing about how it scales"


def _largest(reading: Reading, shares: Sequence[Share]) -> Reading:
    """The peak memory of the rank that had most; none where one rank's is not known."""
    known = [share.peak_memory for share in shares if share.peak_memory is not None]
    for rank, share in enumerate(shares):
        if share.peak_memory is None:
            return Reading(reading.name, reading.unit, None, None, f"rank {rank}: {share.reason}")
    methods = ", ".join(sorted({str(share.method) for share in shares}))
    return Reading(reading.name, reading.unit, max(known), f"{methods}, the largest of {len(shares)} ranks")
