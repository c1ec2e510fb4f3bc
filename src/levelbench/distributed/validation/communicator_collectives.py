"""The checks of collective operations; each is a function that all ranks call at the same time."""

from __future__ import annotations

import platform
import zlib
from itertools import product
from pathlib import Path
from time import sleep

import numpy as np

from levelbench.distributed.communicator import Reduction
from levelbench.distributed.packing import pieces
from levelbench.distributed.validation.communicator_probe import DTYPES, SHAPES, Probe
from levelbench.measure.clocks import HOST
from levelbench.networks.executor import Array

__all__ = [
    "all_gather",
    "all_reduce",
    "all_to_all",
    "barrier",
    "broadcast",
    "gather",
    "layouts",
    "ownership",
    "place",
    "reduce_scatter",
    "same_bits",
    "scatter",
]

_EPSILON = {"float32": 1e-6, "float64": 1e-14}
_MOVED = [*product((*DTYPES, "uint8"), ((5,), (0,))), ("float32", ())]
_LATE_S = 0.005
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def place(probe: Probe) -> None:
    """Ranks are 0 to size - 1, each once, in that order."""
    probe.next_case("rank and size")
    own = probe.native(np.array([probe.rank, probe.size], np.int64))
    for rank, each in enumerate(probe.communicator.all_gather(own)):
        probe.expect(f"what rank {rank} says of itself", each, np.array([rank, probe.size], np.int64))


def all_reduce(probe: Probe) -> None:
    """Sum and mean, in the array that was given."""
    for dtype, shape, op in product(DTYPES, SHAPES, ("sum", "mean")):
        if op == "mean" and dtype == "int64":
            continue
        probe.next_case(f"{op} of {dtype} {shape}")
        given = probe.own(shape, dtype)
        found = probe.communicator.all_reduce(given, "mean" if op == "mean" else "sum")
        total = probe.total(shape, dtype)
        expected = (total / probe.size).astype(dtype) if op == "mean" else total
        tolerance = _EPSILON.get(dtype, 0.0) if op == "mean" else 0.0
        probe.expect("the result", found, expected, tolerance)
        probe.expect("the array that was given", given, expected, tolerance)


def same_bits(probe: Probe) -> None:
    """Sums that are not exact are rounded alike everywhere."""
    for dtype, length in product(("float32", "float64"), (1, 33, 1000)):
        probe.next_case(f"sum of {dtype} ({length},)")
        own = np.random.default_rng([probe.rank, length]).standard_normal(length).astype(dtype)
        found = probe.host(probe.communicator.all_reduce(probe.native(own)))
        bits = np.ascontiguousarray(found).view(np.uint8).astype(np.int64)
        for rank, each in enumerate(probe.communicator.all_gather(probe.native(bits))):
            same = bool((probe.host(each) == bits).all())
            probe.require(same, f"the result has other bits than that of rank {rank}")


def broadcast(probe: Probe) -> None:
    """From each root."""
    for root, (dtype, shape) in product(range(probe.size), _MOVED):
        probe.next_case(f"{dtype} {shape} from root {root}")
        given = probe.own(shape, dtype)
        found = probe.communicator.broadcast(given, root)
        probe.expect("the result", found, probe.values(root, shape, dtype))
        probe.expect("the array that was given", given, probe.values(root, shape, dtype))


def reduce_scatter(probe: Probe) -> None:
    """Pieces of any length, also of none."""
    size = probe.size
    ops: tuple[Reduction, ...] = ("sum", "mean")
    for dtype, length, op in product(("float32", "float64"), sorted({0, 1, size - 1, size, 3 * size + 2}), ops):
        probe.next_case(f"{op} of {dtype} ({length},)")
        bounds = pieces(length, size)
        found = probe.communicator.reduce_scatter(probe.own((length,), dtype), op)
        total = probe.total((length,), dtype)[bounds[probe.rank] : bounds[probe.rank + 1]]
        expected = (total / size).astype(dtype) if op == "mean" else total
        probe.expect("the piece", found, expected, _EPSILON[dtype] if op == "mean" else 0.0)


def all_gather(probe: Probe) -> None:
    """By rank."""
    for dtype, shape in product((*DTYPES, "uint8"), SHAPES):
        probe.next_case(f"{dtype} {shape}")
        _by_rank(probe, probe.communicator.all_gather(probe.own(shape, dtype)), shape, dtype)


def gather(probe: Probe) -> None:
    """On the root by rank, and nothing elsewhere."""
    for root, shape in product(range(probe.size), SHAPES):
        probe.next_case(f"{shape} to root {root}")
        found = probe.communicator.gather(probe.own(shape), root)
        if probe.rank == root:
            _by_rank(probe, found, shape, "float32")
        else:
            probe.require(found is None, f"rank {probe.rank}, which is not the root, gets {type(found).__name__}")


def _by_rank(probe: Probe, found: tuple[Array, ...] | None, shape: tuple[int, ...], dtype: str) -> None:
    probe.require(found is not None and len(found) == probe.size, "there is not one array for each rank")
    for rank, each in enumerate(found or ()):
        probe.expect(f"the array of rank {rank}", each, probe.values(rank, shape, dtype))


def scatter(probe: Probe) -> None:
    """To each rank its own; other ranks than the root give none."""
    for root, shape in product(range(probe.size), SHAPES):
        probe.next_case(f"{shape} from root {root}")
        arrays = [probe.own(shape, at=rank) for rank in range(probe.size)] if probe.rank == root else None
        found = probe.communicator.scatter(arrays, probe.native(np.zeros(shape, np.float32)), root)
        probe.expect("the result", found, probe.values(root, shape, at=probe.rank))


def all_to_all(probe: Probe) -> None:
    """From each to each."""
    for shape in SHAPES:
        probe.next_case(f"{shape}")
        found = probe.communicator.all_to_all([probe.own(shape, at=rank) for rank in range(probe.size)])
        probe.require(len(found) == probe.size, f"there are {len(found)} arrays, and {probe.size} were expected")
        for rank, each in enumerate(found):
            probe.expect(f"the array from rank {rank}", each, probe.values(rank, shape, at=probe.rank))


def barrier(probe: Probe) -> None:
    """Nobody leaves before the last has come; looked at where all ranks are on one machine, and so on one clock."""
    machine = zlib.crc32((_BOOT.read_text() if _BOOT.exists() else platform.node()).encode())
    for late in sorted({0, probe.size - 1}):
        probe.next_case(f"rank {late} comes late")
        probe.communicator.all_reduce(probe.own())
        if probe.rank == late:
            sleep(_LATE_S)
        came = HOST.now_ns()
        probe.communicator.barrier()
        left = HOST.now_ns()
        told = probe.communicator.all_gather(probe.native(np.array([machine, came, left], np.int64)))
        machines, all_came, _ = (np.array(each) for each in zip(*map(probe.host, told), strict=True))
        if (machines == machine).all():
            early = f"it left {(all_came.max() - left) / 1e6:.3g} ms before rank {all_came.argmax()} had come"
            probe.require(left >= all_came.max(), early)


def ownership(probe: Probe) -> None:
    """What a rank does to its result changes nobody else's."""
    talk, root = probe.communicator, probe.size - 1
    probe.next_case("a result that its rank changes")
    given = probe.own()
    shared = talk.broadcast(given, root)
    gathered = talk.all_gather(probe.own(at=1))
    summed = talk.all_reduce(probe.own(at=2))
    for each in (shared, *gathered, summed):
        each += probe.rank + 1
    talk.barrier()
    more = np.float32(probe.rank + 1)
    probe.expect("the result of broadcast", shared, probe.values(root) + more)
    probe.expect("the result of all_reduce", summed, probe.total(at=2) + more)
    for rank, each in enumerate(gathered):
        probe.expect(f"the array of rank {rank} in all_gather", each, probe.values(rank, at=1) + more)
    talk.barrier()


def layouts(probe: Probe) -> None:
    """Arrays whose elements do not lie behind one another, or may not be written to."""
    talk, root = probe.communicator, probe.size - 1
    probe.next_case("every second element")
    base = np.zeros(10, np.float32)
    base[::2] = probe.values(probe.rank)
    found = talk.all_reduce(base[::2])
    probe.expect("the sum", found, probe.total())
    probe.expect("the array that was given", base[::2], probe.total())
    probe.expect("what lies between", base[1::2], np.zeros(5, np.float32))
    probe.next_case("transposed")
    base = probe.values(probe.rank, (3, 4)).T
    probe.expect("the root's", talk.broadcast(base, root), probe.values(root, (3, 4)).T)
    probe.expect("the array that was given", base, probe.values(root, (3, 4)).T)
    probe.next_case("read-only")
    fixed = probe.values(probe.rank)
    fixed.flags.writeable = False
    probe.expect("the sum", talk.all_reduce(fixed), probe.total())
    probe.expect("the root's", talk.broadcast(fixed, root), probe.values(root))
    probe.expect("the array that was given", fixed, probe.values(probe.rank))
    for rank, each in enumerate(talk.all_gather(fixed)):
        probe.expect(f"the array of rank {rank}", each, probe.values(rank))
