"""Times the operations of a communicator over sizes, as seen by all ranks together.

The one idea: after a barrier each rank times its own call, and the slowest one's time is the value (Hoefler & Belli,
"Scientific benchmarking of parallel computing systems", SC15, 4.2.1): no clock of one rank is compared with another's.
How far apart ranks leave the barrier is therefore part of a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from levelbench.distributed.communicator import Communicator
from levelbench.distributed.sweep_operations import ITEMSIZE, Operation, operation_named, require_right
from levelbench.errors import UsageError
from levelbench.measure.clocks import HOST, Clock
from levelbench.measure.loops import time_ns
from levelbench.measure.statistics import Estimate, estimate_median
from levelbench.measure.stopping import Budget, Plateau, Precision, Progress, StoppingRule
from levelbench.measure.warmup import find_warmup
from levelbench.networks.executor import Backend

__all__ = ["Point", "parse_sizes", "rule_for", "sweep", "sweep_sizes"]

_FIRST = 6
_MOST_AT_ONCE = 2000
_UNITS = {"": 1, "b": 1, "k": 1000, "kb": 1000, "m": 10**6, "mb": 10**6, "g": 10**9, "gb": 10**9}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30}


@dataclass(frozen=True)
class Point:
    """One operation at one size: times in seconds after warm-up, in order; the slowest rank's of each turn.

    ``nbytes`` is 0 for what has no size. ``warmup`` of the first values were cut, for ``warmup_reason``.
    """

    operation: str
    nbytes: int
    times_s: tuple[float, ...]
    warmup: int
    warmup_reason: str
    stopped_by: str

    def estimate(self, level: float = 0.95) -> Estimate:
        """The median with its exact interval."""
        return estimate_median(list(self.times_s), level)


def sweep(
    communicator: Communicator,
    backend: Backend,
    operations: Sequence[str],
    sizes: Sequence[int],
    until: StoppingRule,
    clock: Clock = HOST,
) -> Iterator[Point]:
    """Each operation at each size (bytes). Collective: all ranks ask for the same, and get the same.

    Arrays are ``backend``'s, of float32 and zero, so that sums stay what they are. Raises ``CheckFailedError`` where an
    operation's result is wrong, ``UnknownNameError`` for one that there is not.
    """
    for operation in [operation_named(name) for name in operations]:
        if communicator.size < 2 and operation.name == "send-receive":
            raise UsageError("send-receive of one rank", "there is nobody to send to", "take two ranks or more")
        require_right(operation, communicator, backend)
        for nbytes in sizes if operation.sized else (0,):
            yield _point(operation, communicator, backend, nbytes, until, clock)


def rule_for(seconds: float, points: int) -> StoppingRule:
    """The rule of each point where all of them may take about so many seconds together."""
    return Precision(0.02) | Plateau() | Budget(seconds / max(1, points))


def parse_sizes(text: str) -> list[int]:
    """Sizes in bytes from ``4B:64MiB`` (doubling), ``1KiB:1MiB:4`` (times four) or ``4B,1KiB,1MB``.

    Raises ``UsageError`` for anything else, and for what is below an element of four bytes.
    """
    if ":" not in text:
        return sorted({_size(each, text) for each in text.split(",")})
    first, last, *more = text.split(":")
    start, end = _size(first, text), _size(last, text)
    factor = more[0].strip() if more else "2"
    if len(more) > 1 or not re.fullmatch(r"[0-9]{1,4}", factor) or int(factor) < 2 or end < start:
        raise _no_sizes(text, "it is no range of sizes that grow")
    return sweep_sizes(start, end, int(factor))


def sweep_sizes(start: int, end: int, factor: int = 2) -> list[int]:
    """``start``, times ``factor`` again and again, up to ``end``."""
    found = [start]
    while found[-1] * factor <= end:
        found.append(found[-1] * factor)
    return found


def _size(text: str, whole: str) -> int:
    match = re.fullmatch(r"([0-9]{1,15})\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS:
        raise _no_sizes(whole, f"{text.strip()!r} is no size")
    found = int(match[1]) * _UNITS[match[2]]
    if found < ITEMSIZE:
        raise _no_sizes(whole, f"{text.strip()!r} is less than an element of {ITEMSIZE} bytes")
    return found


def _no_sizes(text: str, found: str) -> UsageError:
    return UsageError(f"the sizes {text!r}", found, "write 4B:64MiB, 1KiB:1MiB:4 or 4B,1KiB,1MB")


def _point(
    operation: Operation, communicator: Communicator, backend: Backend, nbytes: int, until: StoppingRule, clock: Clock
) -> Point:
    """Turns until rank 0 has enough."""
    work, moved = operation.prepare(communicator, backend, ceil(nbytes / ITEMSIZE), 0.0)
    values: NDArray[np.float64] = np.zeros(0)
    started_ns, turns = clock.now_ns(), _FIRST
    while turns:
        own = []
        for _ in range(turns):
            communicator.barrier()
            own.append(time_ns(work, clock))
        everybody = communicator.all_gather(np.array(own, np.int64))
        values = np.concatenate([values, np.max(everybody, axis=0) * (1e-9 / operation.calls)])
        found = find_warmup(values)
        progress = Progress(values[found.cut :], (clock.now_ns() - started_ns) * 1e-9)
        check = until.check(progress)
        wanted = 0 if check.met else min(until.more(progress), max(2, len(values) // 3), _MOST_AT_ONCE)
        # Ranks spend other times, and must not part.
        turns = int(communicator.broadcast(np.array([wanted], np.int64))[0])
    return Point(
        operation.name,
        moved,
        tuple(values[found.cut :].tolist()),
        found.cut,
        found.reason,
        _said(communicator, check.text),
    )


def _said(communicator: Communicator, text: str) -> str:
    """Rank 0's words."""
    letters = np.frombuffer(text.encode()[:200].ljust(200), np.uint8).copy()
    return bytes(communicator.broadcast(letters)).decode(errors="replace").strip()
