"""Checks of a communicator, run by all its ranks at the same time: whether each operation keeps its contract.

Ranks send small integers that follow from the rank, the position and a number unique to each call. So every sum is
exact in any order, and any mistake (a missing rank, two swapped ones, the result of the previous call) gives another
number. All ranks make the same calls whatever they find, so one mistake does not hide others.
"""

from __future__ import annotations

import platform
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from math import prod
from pathlib import Path
from time import sleep
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike

from levelbench.checks.arrays import Host
from levelbench.checks.findings import Finding, failed, not_tried, passed
from levelbench.distributed.communicator import REDUCTIONS, Communicator, Handle, Reduction
from levelbench.distributed.packing import pieces
from levelbench.distributed.sweep import operands, reduced
from levelbench.errors import UnsupportedError, UsageError
from levelbench.measure.clocks import HOST
from levelbench.networks.executor import Array
from levelbench.operators.contract import OperatorBackend
from levelbench.operators.frameworks import open_framework

DTYPES = ("float32", "float64", "int64")
SHAPES: tuple[tuple[int, ...], ...] = ((), (0,), (1,), (5,), (3, 4), (37,))
LARGE, CALLS = 1 << 20, 150
"""The elements of large arrays, and how many calls are many."""
_MOST = 3
_REDUCED = 1031
"""Elements of a reduction, in which nearly every number of a byte occurs."""
_WIDE = (1 << 25) + 1
"""What integers of eight bytes are multiplied by: more digits than single precision has."""


@final
class RankProbe:
    """One check on one rank; ``salt`` is the number of the check."""

    def __init__(
        self,
        communicator: Communicator,
        salt: int,
        backend: OperatorBackend | None = None,
        large: int = LARGE,
        calls: int = CALLS,
    ) -> None:
        self.communicator = communicator
        self.rank, self.size = communicator.rank, communicator.size
        self.case = ""
        """A description of the current case."""
        self.large, self.calls = large, calls
        """The elements of a large array, of which some have three times as many, and how many calls are many."""
        self._backend = backend
        self._salt = salt * 1000
        self._cases = 0
        self._faults: list[tuple[str, str]] = []

    def next_case(self, words: str) -> None:
        """Begin another case, with different numbers than the one before."""
        self.case = words
        self._salt += 1

    def values(self, rank: int, shape: Sequence[int] = (5,), dtype: DTypeLike = "float32", at: int = 0) -> Host:
        """What ``rank`` passes in this case; ``at`` distinguishes several arrays. Integers, and every sum is exact.

        They lie below 2^15 in single precision; wider types get such as single precision cannot hold.
        """
        return self._spread(self._pattern(rank, at), shape, dtype)

    def _pattern(self, rank: int, at: int) -> Host:
        return np.arange(11) * 100 + rank * 7 + self._salt % 89 + at * 1301 + 1

    @staticmethod
    def _spread(pattern: Host, shape: Sequence[int], dtype: DTypeLike) -> Host:
        length, wide = prod(shape), np.dtype(dtype)
        if wide.itemsize > 4 and wide.kind in "fi":
            pattern = pattern * _WIDE
        return np.tile(pattern.astype(dtype), -(-length // len(pattern)))[:length].reshape(tuple(shape))

    def own(self, shape: Sequence[int] = (5,), dtype: DTypeLike = "float32", at: int = 0) -> Array:
        """What this rank passes, as an array of the framework."""
        return self.native(self.values(self.rank, shape, dtype, at))

    def native(self, host: Host) -> Array:
        """A new array of the framework with these values."""
        return host.copy() if self._backend is None else self._backend.array(host)

    def total(self, shape: Sequence[int] = (5,), dtype: DTypeLike = "float32", at: int = 0) -> Host:
        """The sum of what all ranks pass."""
        patterns = [self._pattern(rank, at) for rank in range(self.size)]
        return self._spread(np.sum(patterns, axis=0), shape, dtype)

    def host(self, array: Array) -> Host:
        """The values of an array, on the host."""
        return np.asarray(array) if self._backend is None else self._backend.host(array)

    def expect(self, what: str, found: Any, expected: Host, tolerance: float = 0.0, room: Host | float = 0.0) -> None:
        """Expect ``found`` to have this shape, dtype and content, to a relative tolerance or, in all, to ``room``."""
        self._cases += 1
        if found is None or not hasattr(found, "shape"):
            self._fault(f"{what} is {found!r} instead of an array")
            return
        host = self.host(found)
        if host.shape != expected.shape or host.dtype != expected.dtype:
            self._fault(f"{what} is {_kind(host)} instead of {_kind(expected)}")
            return
        if np.array_equal(host, expected):
            return
        off = np.asarray(host != expected)
        if host.dtype.kind in "fc":
            # Of infinities that are equal, and of NaN, the difference is none; a NaN where a number is due is wrong.
            near = (
                np.abs(host.astype(np.result_type(host, np.float64)) - expected) <= tolerance * np.abs(expected) + room
            )
            off &= ~near & ~(np.isnan(host) & np.isnan(expected))
        if off.any():
            place = tuple(int(each[0]) for each in np.nonzero(np.atleast_1d(off)))
            got, wanted = (np.atleast_1d(each)[place] for each in (host, expected))
            digits = "g" if f"{got:g}" != f"{wanted:g}" else ".17g" if host.dtype.kind in "fc" else ""
            said = f"{what} has {got:{digits}} at {list(place)}, and {wanted:{digits}} was expected"
            self._fault(f"{said}; {off.sum()} of {off.size} differ")

    def require(self, holds: bool, what: str) -> None:
        """Report a fault unless the condition holds."""
        self._cases += 1
        if not holds:
            self._fault(what)

    def raises(self, kind: type[Exception], what: str, call: Callable[[], object]) -> None:
        """Expect ``call`` to raise an error of this kind on this rank, and to send nothing."""
        self._cases += 1
        try:
            call()
        except kind:
            return
        except Exception as error:  # noqa: BLE001  # user code
            self._fault(f"{what} raises {type(error).__name__} instead of {kind.__name__}")
            return
        self._fault(f"{what} raises nothing instead of {kind.__name__}")

    def findings(self, check: str) -> list[Finding]:
        """The first few faults, or a pass if there are none."""
        found = [failed(f"rank {self.rank}: {what}", case=case, probe=check) for case, what in self._faults[:_MOST]]
        return found or [passed(f"{self._cases} cases", probe=check)]

    def _fault(self, what: str) -> None:
        self._faults.append((self.case, what))


def _kind(array: Host) -> str:
    return f"{array.dtype.name} of shape {array.shape}"


_EPSILON = {"float32": 1e-6, "float64": 1e-14}
_MOVED = [*product((*DTYPES, "uint8"), ((5,), (0,))), ("float32", ())]
_LATE_S = 0.005
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def place(probe: RankProbe) -> None:
    """Ranks are 0 to size - 1, each once, in this order."""
    probe.next_case("rank and size")
    own = probe.native(np.array([probe.rank, probe.size], np.int64))
    for rank, each in enumerate(probe.communicator.all_gather(own)):
        probe.expect(f"what rank {rank} sends as its rank and size", each, np.array([rank, probe.size], np.int64))


def all_reduce(probe: RankProbe) -> None:
    """Sum and mean, in the given array."""
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


def reductions(probe: RankProbe) -> None:
    """Each reduction of each type, of numbers with all of their digits: whole ones wrap, and all may be negative."""
    talk, size, rank = probe.communicator, probe.size, probe.rank
    for dtype, op in product(("float32", "float64", "int8", "uint8", "int32", "int64"), REDUCTIONS):
        kind = np.dtype(dtype)
        if op == "mean" and kind.kind != "f":
            continue
        n = _REDUCED
        (total, room), (start, stop) = reduced(op, kind, size, n), pieces(n, size)[rank : rank + 2]
        calls: dict[str, Callable[[Array], Array]] = {
            "all_reduce": partial(talk.all_reduce, op=op),
            "start_all_reduce": partial(_begun, talk, op=op),
            "reduce_scatter": partial(talk.reduce_scatter, op=op),
        }
        for name, call in calls.items():
            probe.next_case(f"{name}: {op} of {dtype} ({n},)")
            part = slice(start, stop) if name == "reduce_scatter" else slice(n)
            try:
                found = call(probe.native(operands(op, kind, size, rank, n)))
            except UnsupportedError:
                continue
            # One more rounding than those of the reduction: that of what is right.
            allowed = room if isinstance(room, float) else 2 * room[part]
            probe.expect("the result", found, total[part].astype(kind), room=allowed)


def _begun(talk: Communicator, array: Array, op: Reduction) -> Array:
    return talk.start_all_reduce(array, op).wait()


def same_bits(probe: RankProbe) -> None:
    """Inexact sums are rounded equally on all ranks."""
    for dtype, length in product(("float32", "float64"), (1, 33, 1000)):
        probe.next_case(f"sum of {dtype} ({length},)")
        own = np.random.default_rng([probe.rank, length]).standard_normal(length).astype(dtype)
        found = probe.host(probe.communicator.all_reduce(probe.native(own)))
        bits = np.ascontiguousarray(found).view(np.uint8).astype(np.int64)
        for rank, each in enumerate(probe.communicator.all_gather(probe.native(bits))):
            same = bool((probe.host(each) == bits).all())
            probe.require(same, f"the result has other bits than that of rank {rank}")


def broadcast(probe: RankProbe) -> None:
    """From each root."""
    for root, (dtype, shape) in product(range(probe.size), _MOVED):
        probe.next_case(f"{dtype} {shape} from root {root}")
        given = probe.own(shape, dtype)
        found = probe.communicator.broadcast(given, root)
        probe.expect("the result", found, probe.values(root, shape, dtype))
        probe.expect("the array that was given", given, probe.values(root, shape, dtype))


def reduce_scatter(probe: RankProbe) -> None:
    """Pieces of any length, also empty ones."""
    size = probe.size
    ops: tuple[Reduction, ...] = ("sum", "mean")
    for dtype, length, op in product(("float32", "float64"), sorted({0, 1, size - 1, size, 3 * size + 2}), ops):
        probe.next_case(f"{op} of {dtype} ({length},)")
        bounds = pieces(length, size)
        found = probe.communicator.reduce_scatter(probe.own((length,), dtype), op)
        total = probe.total((length,), dtype)[bounds[probe.rank] : bounds[probe.rank + 1]]
        expected = (total / size).astype(dtype) if op == "mean" else total
        probe.expect("the piece", found, expected, _EPSILON[dtype] if op == "mean" else 0.0)


def all_gather(probe: RankProbe) -> None:
    """In rank order."""
    for dtype, shape in product((*DTYPES, "uint8"), SHAPES):
        probe.next_case(f"{dtype} {shape}")
        _by_rank(probe, probe.communicator.all_gather(probe.own(shape, dtype)), shape, dtype)


def gather(probe: RankProbe) -> None:
    """In rank order on the root, nothing elsewhere."""
    for root, shape in product(range(probe.size), SHAPES):
        probe.next_case(f"{shape} to root {root}")
        found = probe.communicator.gather(probe.own(shape), root)
        if probe.rank == root:
            _by_rank(probe, found, shape, "float32")
        else:
            probe.require(found is None, f"rank {probe.rank}, which is not the root, gets {type(found).__name__}")


def _by_rank(probe: RankProbe, found: tuple[Array, ...] | None, shape: tuple[int, ...], dtype: str) -> None:
    probe.require(found is not None and len(found) == probe.size, "there is not one array for each rank")
    for rank, each in enumerate(found or ()):
        probe.expect(f"the array of rank {rank}", each, probe.values(rank, shape, dtype))


def alike(probe: RankProbe) -> None:
    """Two calls in a row whose arrays differ by two elements in the middle, in exchanged places."""
    talk, size, rank, root = probe.communicator, probe.size, probe.rank, probe.size - 1
    probe.next_case("(37,), and the same with two elements exchanged")
    places = np.arange(37)
    for order in (places, np.r_[places[:16], places[20], places[17:20], places[16], places[21:]]):
        of = [probe.values(each, (37,))[order] for each in range(size)]
        total = probe.total((37,))[order]

        def own(of: list[Host] = of) -> Array:
            return probe.native(of[rank])

        start, stop = pieces(37, size)[rank : rank + 2]
        probe.expect("the sum", talk.all_reduce(own()), total)
        probe.expect("the piece", talk.reduce_scatter(own()), total[start:stop])
        probe.expect("what the root sends", talk.broadcast(own(), root), of[root])
        several = {
            "all_gather": talk.all_gather(own()),
            "gather": talk.gather(own(), root) or (),
            "all_to_all": talk.all_to_all([own() for _ in range(size)]),
        }
        for name, found in several.items():
            for each, array in enumerate(found):
                probe.expect(f"{name}: the array of rank {each}", array, of[each])


def scatter(probe: RankProbe) -> None:
    """Each rank gets its own; only the root passes arrays."""
    for root, shape in product(range(probe.size), SHAPES):
        probe.next_case(f"{shape} from root {root}")
        arrays = [probe.own(shape, at=rank) for rank in range(probe.size)] if probe.rank == root else None
        found = probe.communicator.scatter(arrays, probe.native(np.zeros(shape, np.float32)), root)
        probe.expect("the result", found, probe.values(root, shape, at=probe.rank))


def all_to_all(probe: RankProbe) -> None:
    """From every rank to every rank."""
    for shape in SHAPES:
        probe.next_case(f"{shape}")
        found = probe.communicator.all_to_all([probe.own(shape, at=rank) for rank in range(probe.size)])
        probe.require(len(found) == probe.size, f"there are {len(found)} arrays instead of {probe.size}")
        for rank, each in enumerate(found):
            probe.expect(f"the array from rank {rank}", each, probe.values(rank, shape, at=probe.rank))


def barrier(probe: RankProbe) -> None:
    """No rank leaves before the last has arrived; checked only if all ranks share a machine, and so a clock."""
    machine = zlib.crc32((_BOOT.read_text() if _BOOT.exists() else platform.node()).encode())
    for late in sorted({0, probe.size - 1}):
        probe.next_case(f"rank {late} is late")
        probe.communicator.all_reduce(probe.own())
        if probe.rank == late:
            sleep(_LATE_S)
        came = HOST.now_ns()
        probe.communicator.barrier()
        left = HOST.now_ns()
        gathered = probe.communicator.all_gather(probe.native(np.array([machine, came, left], np.int64)))
        machines, all_came, _ = (np.array(each) for each in zip(*map(probe.host, gathered), strict=True))
        if (machines == machine).all():
            early = f"it left {(all_came.max() - left) / 1e6:.3g} ms before rank {all_came.argmax()} arrived"
            probe.require(left >= all_came.max(), early)


def ownership(probe: RankProbe) -> None:
    """Changing a result on one rank changes no other rank's, and the next call changes none."""
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
    probe.next_case("a result after the next call")
    kept = {
        "all_reduce": talk.all_reduce(probe.own()),
        "all_gather": talk.all_gather(probe.own())[root],
        "reduce_scatter": talk.reduce_scatter(probe.own((probe.size,)))[:1],
        "all_to_all": talk.all_to_all([probe.own(at=to) for to in range(probe.size)])[root],
    }
    expected = {
        "all_reduce": probe.total(),
        "all_gather": probe.values(root),
        "reduce_scatter": probe.total((probe.size,))[probe.rank : probe.rank + 1],
        "all_to_all": probe.values(root, at=probe.rank),
    }
    talk.all_reduce(probe.own(at=3))
    talk.all_gather(probe.own(at=3))
    talk.reduce_scatter(probe.own((probe.size,), at=3))
    talk.all_to_all([probe.own(at=3 + to) for to in range(probe.size)])
    for operation, each in kept.items():
        probe.expect(f"the result of {operation}", each, expected[operation])


def layouts(probe: RankProbe) -> None:
    """Non-contiguous and read-only arrays."""
    talk, root = probe.communicator, probe.size - 1
    probe.next_case("every second element")
    base = np.zeros(10, np.float32)
    base[::2] = probe.values(probe.rank)
    found = talk.all_reduce(base[::2])
    probe.expect("the sum", found, probe.total())
    probe.expect("the array that was given", base[::2], probe.total())
    probe.expect("the elements in between", base[1::2], np.zeros(5, np.float32))
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


_POLLS, _POLL_S = 20_000, 0.0005


def messages(probe: RankProbe) -> None:
    """Around rings of every stride; sent arrays may be overwritten after waiting."""
    size, rank, talk = probe.size, probe.rank, probe.communicator
    for stride, (dtype, shape) in product(range(1, size), _MOVED):
        probe.next_case(f"{dtype} {shape} to the rank {stride} after")
        like = probe.native(np.zeros(shape, dtype))
        source = (rank - stride) % size
        coming = talk.start_receive(like, source)
        given = probe.own(shape, dtype)
        talk.start_send(given, (rank + stride) % size).wait()
        given *= 0
        probe.expect(f"what rank {source} sent", coming.wait(), probe.values(source, shape, dtype))
        probe.expect("the array to receive into", like, probe.values(source, shape, dtype))


def order(probe: RankProbe) -> None:
    """Messages of one tag arrive in order, and receives get them in the order in which they were started."""
    for stride in range(1, probe.size):
        probe.next_case(f"six messages to the rank {stride} after")
        to, source = (probe.rank + stride) % probe.size, (probe.rank - stride) % probe.size
        going = [probe.communicator.start_send(probe.own(at=at), to, 3) for at in range(6)]
        coming = [probe.communicator.start_receive(probe.native(np.zeros(5, np.float32)), source, 3) for _ in range(6)]
        for at in (2, 0, 1, 5, 4, 3):
            probe.expect(f"message {at} of rank {source}", coming[at].wait(), probe.values(source, at=at))
        for each in reversed(going):
            each.wait()


def tags(probe: RankProbe) -> None:
    """Messages of different tags are kept apart, whatever the order of receives."""
    for stride in range(1, probe.size):
        probe.next_case(f"tags 5, 0 and 9 to the rank {stride} after")
        to, source = (probe.rank + stride) % probe.size, (probe.rank - stride) % probe.size
        going = [probe.communicator.start_send(probe.own(at=tag), to, tag) for tag in (5, 0, 9)]
        for tag in (9, 5, 0):
            found = probe.communicator.receive(probe.native(np.zeros(5, np.float32)), source, tag)
            probe.expect(f"tag {tag} of rank {source}", found, probe.values(source, at=tag))
        for each in going:
            each.wait()


def from_any(probe: RankProbe) -> None:
    """Each message arrives once, with its source."""
    for root in sorted({0, probe.size - 1}):
        probe.next_case(f"two messages of each rank to rank {root}")
        if probe.rank != root:
            for at in range(2):
                probe.communicator.send(probe.own(at=at), root, 7)
            continue
        seen = [0] * probe.size
        for _ in range(2 * (probe.size - 1)):
            found, source = probe.communicator.receive_any(probe.native(np.zeros(5, np.float32)), 7)
            known = 0 <= source < probe.size and source != root and seen[source] < 2
            probe.require(known, f"a message has source {source}, which has sent no more")
            if known:
                probe.expect(f"message {seen[source]} of rank {source}", found, probe.values(source, at=seen[source]))
                seen[source] += 1


def exchange(probe: RankProbe) -> None:
    """On a ring, and between all ranks, in any order of neighbours."""
    size, rank = probe.size, probe.rank
    ring = sorted({(rank - 1) % size, (rank + 1) % size} - {rank})
    others = [each for each in reversed(range(size)) if each != rank]
    for words, neighbours in (("on a ring", ring), ("with all others", others), ("on a ring, again", ring)):
        probe.next_case(words)
        found = probe.communicator.exchange(probe.own((4, 2)), neighbours)
        probe.require(len(found) == len(neighbours), f"there are {len(found)} arrays for {len(neighbours)} neighbours")
        for neighbour, each in zip(neighbours, found, strict=False):
            probe.expect(f"the array of rank {neighbour}", each, probe.values(neighbour, (4, 2)))


def handles(probe: RankProbe) -> None:
    """Several operations in progress, waited for in another order; ``done`` becomes true."""
    talk, size, rank = probe.communicator, probe.size, probe.rank
    probe.next_case("four sums, waited for backwards")
    shapes = ((300,), (1,), (7, 5), (2,))
    under_way = [talk.start_all_reduce(probe.own(shape, at=at)) for at, shape in enumerate(shapes)]
    for at in reversed(range(len(shapes))):
        probe.expect(f"sum {at}", under_way[at].wait(), probe.total(shapes[at], at=at))
    probe.next_case("sums, broadcasts and messages at once")
    first = talk.start_all_reduce(probe.own((20,), at=1))
    coming = talk.start_receive(probe.native(np.zeros(5, np.float32)), (rank - 1) % size, 2) if size > 1 else None
    second = talk.start_broadcast(probe.own(at=2), size - 1)
    going = talk.start_send(probe.own(at=3), (rank + 1) % size, 2) if size > 1 else None
    third = talk.start_all_reduce(probe.own((3,), at=4), "mean")
    probe.require(_becomes_true(third), "done() did not become true")
    mean = (probe.total((3,), at=4) / size).astype(np.float32)
    probe.expect("the mean", third.wait(), mean, 1e-6)
    probe.expect("the broadcast", second.wait(), probe.values(size - 1, at=2))
    if coming is not None and going is not None:
        probe.require(_becomes_true(coming), "done() of a receive did not become true")
        probe.expect("the message", coming.wait(), probe.values((rank - 1) % size, at=3))
        going.wait()
    probe.expect("the sum", first.wait(), probe.total((20,), at=1))
    if size > 1:
        probe.next_case("a message that is not sent yet")
        coming = talk.start_receive(probe.native(np.zeros(5, np.float32)), (rank - 1) % size, 3)
        early = coming.done()
        talk.barrier()
        probe.require(not early, "done() of a receive is true before the message is sent")
        going = talk.start_send(probe.own(), (rank + 1) % size, 3)
        probe.expect("the message", coming.wait(), probe.values((rank - 1) % size))
        going.wait()


def _becomes_true(handle: Handle) -> bool:
    for _ in range(_POLLS):
        if handle.done():
            return True
        sleep(_POLL_S)
    return False


def large(probe: RankProbe) -> None:
    """4 MiB in both directions: no rank waits for another to receive first. Other calls take 12 MiB."""
    talk, size, rank = probe.communicator, probe.size, probe.rank
    shape = (probe.large,)
    # More elements than are often sent in one piece, a number that no power of two divides.
    more = (3 * probe.large + 5,)
    probe.next_case("a sum")
    probe.expect("the sum", talk.all_reduce(probe.own(more)), probe.total(more))
    probe.next_case("other collectives")
    probe.expect("the root's array", talk.broadcast(probe.own(more), size - 1), probe.values(size - 1, more))
    piece = pieces(more[0], size)[rank : rank + 2]
    expected = probe.total(more, at=1)[slice(*piece)]
    probe.expect("the own piece", talk.reduce_scatter(probe.own(more, at=1)), expected)
    if size == 1:
        return
    probe.next_case("a message each way around the ring")
    for step in (1, size - 1):
        going = talk.start_send(probe.own(shape, at=step), (rank + step) % size)
        source = (rank - step) % size
        found = talk.receive(probe.native(np.zeros(shape, np.float32)), source)
        probe.expect(f"the message of rank {source}", found, probe.values(source, shape, at=step))
        going.wait()
    neighbour = rank ^ 1
    if neighbour < size:
        probe.next_case("a message there and back")
        like = probe.native(np.zeros(more, np.float32))
        # One of the two receives first: a send may wait for its receiver.
        if rank < neighbour:
            talk.send(probe.own(more), neighbour)
        found = talk.receive(like, neighbour)
        if rank > neighbour:
            talk.send(probe.own(more), neighbour)
        probe.expect(f"the message of rank {neighbour}", found, probe.values(neighbour, more))
    probe.next_case("an exchange")
    if neighbour < size:
        (found,) = talk.exchange(probe.own(shape), [neighbour])
        probe.expect(f"the array of rank {neighbour}", found, probe.values(neighbour, shape))


def many_calls(probe: RankProbe) -> None:
    """Each of 150 sums, broadcasts and messages is right, not only the first ones."""
    talk, size, rank = probe.communicator, probe.size, probe.rank
    probe.next_case(f"{probe.calls} of each in a row")
    before, after = (rank - 1) % size, (rank + 1) % size
    for call in range(probe.calls):
        at, root = call % 10, call % size
        probe.expect(f"sum {call + 1}", talk.all_reduce(probe.own(at=at)), probe.total(at=at))
        probe.expect(f"broadcast {call + 1}", talk.broadcast(probe.own(at=at), root), probe.values(root, at=at))
        if size > 1:
            going = talk.start_send(probe.own(at=at), after)
            found = talk.receive(probe.native(np.zeros(5, np.float32)), before)
            probe.expect(f"message {call + 1} of rank {before}", found, probe.values(before, at=at))
            going.wait()


def unusual_values(probe: RankProbe) -> None:
    """Tiny, fractional and huge numbers keep all their digits; NaN and infinities of one rank are in the sum of all."""
    talk, size, rank = probe.communicator, probe.size, probe.rank
    for dtype in ("float32", "float64"):
        probe.next_case(f"tiny, fractional and huge numbers in {dtype}")
        # Powers of two, so that every sum is exact.
        scale = np.ldexp(np.ones(4), (-100, -30, -3, 100)).astype(dtype)
        found = talk.all_reduce(probe.native(scale * (rank + 1)))
        probe.expect("the sum", found, scale * (size * (size + 1) // 2))
        probe.next_case(f"NaN and infinities in {dtype}")
        special, ones = np.array([np.nan, np.inf, -np.inf, 1], dtype), np.ones(4, dtype)
        summed = probe.host(talk.all_reduce(probe.native(special if rank == size - 1 else ones)))
        kept = np.array_equal(summed, special + ones * (size - 1), equal_nan=True)
        probe.require(kept, f"the sum of NaN, inf, -inf and 1 on one rank and of 1 on the others is {summed}")


def strangers(probe: RankProbe) -> None:
    """``UsageError`` on the calling rank, and nothing is sent."""
    talk, size = probe.communicator, probe.size
    for rank in (-1, size):
        probe.next_case(f"rank {rank} of {size}")
        own, arrays = probe.own(), [probe.own() for _ in range(size)]
        calls: dict[str, tuple[Callable[..., object], tuple[object, ...]]] = {
            "send": (talk.send, (own, rank)),
            "receive": (talk.receive, (own, rank)),
            "broadcast": (talk.broadcast, (own, rank)),
            "gather": (talk.gather, (own, rank)),
            "scatter": (talk.scatter, (arrays, own, rank)),
            "exchange": (talk.exchange, (own, [rank])),
        }
        for operation, (call, arguments) in calls.items():
            probe.raises(UsageError, operation, partial(call, *arguments))
    probe.next_case("a sum afterwards")
    probe.expect("the sum", talk.all_reduce(probe.own()), probe.total())


def native(probe: RankProbe) -> None:
    """A framework's arrays come back with the same type and device."""
    talk, size, rank = probe.communicator, probe.size, probe.rank
    probe.next_case("float32 (3, 4)")
    shape, root = (3, 4), size - 1
    zeros = probe.native(np.zeros(shape, np.float32))
    own = probe.own(shape)
    kind, device = type(own), getattr(own, "device", None)
    results = {
        "all_reduce": (talk.all_reduce(probe.own(shape)), probe.total(shape)),
        "broadcast": (talk.broadcast(probe.own(shape), root), probe.values(root, shape)),
        "reduce_scatter": (talk.reduce_scatter(probe.own((size,))), probe.total((size,))[rank : rank + 1]),
        "scatter": (
            talk.scatter([probe.own(shape, at=each) for each in range(size)] if rank == root else None, zeros, root),
            probe.values(root, shape, at=rank),
        ),
    }
    for each, found in enumerate(talk.all_gather(probe.own(shape))):
        results[f"all_gather of rank {each}"] = (found, probe.values(each, shape))
    for each, found in enumerate(talk.gather(probe.own(shape), root) or ()):
        results[f"gather of rank {each}"] = (found, probe.values(each, shape))
    for each, found in enumerate(talk.all_to_all([probe.own(shape, at=to) for to in range(size)])):
        results[f"all_to_all of rank {each}"] = (found, probe.values(each, shape, at=rank))
    if size > 1:
        going = talk.start_send(probe.own(shape), (rank + 1) % size)
        before = (rank - 1) % size
        results["receive"] = (
            talk.receive(probe.native(np.zeros(shape, np.float32)), before),
            probe.values(before, shape),
        )
        going.wait()
    for what, (found, expected) in results.items():
        right = type(found) is kind and getattr(found, "device", None) == device
        probe.require(right, f"{what} returns a {type(found).__name__} for a {kind.__name__}")
        probe.expect(f"the result of {what}", found, expected)


_CHECKS = {
    "place": place,
    "all-reduce": all_reduce,
    "reductions": reductions,
    "all-reduce is the same on all ranks": same_bits,
    "broadcast": broadcast,
    "reduce-scatter": reduce_scatter,
    "all-gather": all_gather,
    "gather": gather,
    "scatter": scatter,
    "all-to-all": all_to_all,
    "send and receive": messages,
    "order of messages": order,
    "tags": tags,
    "receive from any": from_any,
    "exchange": exchange,
    "handles": handles,
    "large messages both ways": large,
    "many calls": many_calls,
    "calls that look alike": alike,
    "unusual values": unusual_values,
    "barrier": barrier,
    "results are one's own": ownership,
    "layouts": layouts,
    "ranks that are not there": strangers,
}


def check_communicator(
    communicator: Communicator, frameworks: Sequence[str] = ("numpy",), *, large: int = LARGE, calls: int = CALLS
) -> list[Finding]:
    """Check a communicator; returns this rank's findings, at least one per check. Collective, with equal arguments.

    A rank that meets an error calls ``abort``, and the remaining checks are ``not tried``. Arrays of each of
    ``frameworks`` are sent, and must come back as the same kind; ``MissingError`` for one that is not installed.
    Large arrays have ``large`` elements, or three times as many; ``calls`` calls are made in a row.
    """
    findings: list[Finding] = []
    backends = {name: open_framework(name) for name in frameworks}
    lost = ""
    todo = [(name, check, None) for name, check in _CHECKS.items()]
    arrays = [(f"arrays of {name}", native, backend) for name, backend in backends.items()]
    for salt, (name, check, backend) in enumerate([*todo, *arrays]):
        if lost:
            findings.append(not_tried(lost, probe=name))
            continue
        probe = RankProbe(communicator, salt, backend, large, calls)
        try:
            check(probe)
        except UnsupportedError as error:
            findings.append(not_tried(str(error), probe=name))
            continue
        except Exception as error:  # noqa: BLE001  # user code
            findings.append(failed(f"rank {probe.rank}: {type(error).__name__}: {error}", case=probe.case, probe=name))
            lost = f"rank {probe.rank} stopped at the check {name!r}"
            communicator.abort()
            continue
        findings += probe.findings(name)
    return findings
