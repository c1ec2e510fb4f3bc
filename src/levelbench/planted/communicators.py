"""Communicators and compressors, right ones and ones with a single planted fault.

A communicator wraps another one, of threads for instance: ``check_communicator(DropsTail(inner))`` on every rank. A
compressor is judged in an exchange, or in a scheme that has it: ``schemed(SignsOnly)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from levelbench.checks.self_test import Planted
from levelbench.distributed.communicator import Communicator, Done, FunctionHandle, Handle, Reduction
from levelbench.distributed.communicators.algorithmic import Algorithmic
from levelbench.distributed.communicators.wrapping import WrappingCommunicator
from levelbench.distributed.compression.compressors import (
    Compressor,
    Key,
    Payload,
    PayloadPart,
    SparseCompressor,
    index_type,
    kept,
    typed,
    uniform,
)
from levelbench.distributed.compression.exchange import Exchange, Gathered
from levelbench.distributed.schemes.compressed import Compressed
from levelbench.networks.executor import Array
from levelbench.planted.case import cases
from levelbench.training.optimizers.arrays import namespace


class PassesOn(WrappingCommunicator):
    """Forwards everything."""


class Rings(Algorithmic):
    """All collectives from messages around rings."""


class Doubling(Algorithmic):
    """All-reduce by recursive doubling."""

    def __init__(self, inner: Communicator) -> None:
        super().__init__(inner, "recursive-doubling")


class Halving(Algorithmic):
    """All-reduce by halving and doubling."""

    def __init__(self, inner: Communicator) -> None:
        super().__init__(inner, "halving-doubling")


class Counts(WrappingCommunicator):
    """Counts the calls."""

    def __init__(self, inner: Communicator) -> None:
        super().__init__(inner)
        self.calls = 0

    def around(
        self, operation: str, call: Callable[[], Any], arrays: Sequence[Array], peer: int = 0, count: int = 0
    ) -> Any:
        self.calls += 1
        return call()


class Waits(WrappingCommunicator):
    """Meets at a barrier before each all-reduce."""

    def all_reduce(self, array: Array, op: Reduction = "sum") -> Array:
        self.inner.barrier()
        return self.inner.all_reduce(array, op)


class Scattered(WrappingCommunicator):
    """A scatter is made of messages from the root."""

    def scatter(self, arrays: Sequence[Array] | None, like: Array, root: int = 0) -> Array:
        if not 0 <= root < self.size or arrays is None or len(arrays) != self.size:
            return self.inner.scatter(arrays, like, root)
        return self.inner.scatter([namespace(each).asarray(each, copy=True) for each in arrays], like, root)


# Faults of communicators.


class SumsMeans(WrappingCommunicator):
    """A mean is a sum."""

    def all_reduce(self, array: Array, op: Reduction = "sum") -> Array:
        return self.inner.all_reduce(array, "sum")

    def start_all_reduce(self, array: Array, op: Reduction = "sum") -> Handle:
        return self.inner.start_all_reduce(array, "sum")


class IgnoresRoot(WrappingCommunicator):
    """Every broadcast comes from rank 0."""

    def broadcast(self, array: Array, root: int = 0) -> Array:
        return self.inner.broadcast(array, 0 if 0 <= root < self.size else root)


class GathersAtZero(WrappingCommunicator):
    """Every gather ends at rank 0."""

    def gather(self, array: Array, root: int = 0) -> tuple[Array, ...] | None:
        return self.inner.gather(array, 0 if 0 <= root < self.size else root)


class HalvesPrecision(WrappingCommunicator):
    """Double precision is sent in single precision."""

    def all_gather(self, array: Array) -> tuple[Array, ...]:
        if isinstance(array, np.ndarray) and array.dtype == np.float64:
            return tuple([each.astype(np.float64) for each in self.inner.all_gather(array.astype(np.float32))])
        return self.inner.all_gather(array)


class CutsIntegers(WrappingCommunicator):
    """Sums of 64-bit integers pass through double precision, which loses digits beyond 2⁵³."""

    def all_reduce(self, array: Array, op: Reduction = "sum") -> Array:
        if op == "sum" and isinstance(array, np.ndarray) and array.dtype == np.int64:
            return np.asarray(self.inner.all_reduce(array.astype(np.float64))).astype(np.int64)
        return self.inner.all_reduce(array, op)


class DropsTail(WrappingCommunicator):
    """The last element of an all-reduce keeps its own value where ranks do not divide the length."""

    def all_reduce(self, array: Array, op: Reduction = "sum") -> Array:
        if not isinstance(array, np.ndarray) or array.size % self.size == 0:
            return self.inner.all_reduce(array, op)
        own = array.reshape(-1)[-1].copy()
        found = np.array(self.inner.all_reduce(array, op))
        found.reshape(-1)[-1] = own
        return found


class SwapsPieces(WrappingCommunicator):
    """Pieces of an all-to-all arrive in reverse order of ranks."""

    def all_to_all(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return self.inner.all_to_all(arrays)[::-1]


class SharesResults(WrappingCommunicator):
    """All-gather returns arrays that the next one overwrites."""

    held: dict[Any, Array]

    def all_gather(self, array: Array) -> tuple[Array, ...]:
        found = self.inner.all_gather(array)
        if not all(isinstance(each, np.ndarray) for each in found):
            return found
        store = self.__dict__.setdefault("held", {})
        held = store.setdefault((found[0].shape, found[0].dtype), [np.empty_like(each) for each in found])
        for at, each in enumerate(found):
            held[at][...] = each
        return tuple(held)


class NoBarrier(WrappingCommunicator):
    """The barrier does not wait."""

    def barrier(self) -> None:
        """Return at once."""


class OneTag(WrappingCommunicator):
    """All messages have the same tag."""

    def send(self, array: Array, to: int, tag: int = 0) -> None:
        self.inner.send(array, to, 0 if tag >= 0 else tag)

    def receive(self, like: Array, source: int, tag: int = 0) -> Array:
        return self.inner.receive(like, source, 0 if tag >= 0 else tag)

    def start_send(self, array: Array, to: int, tag: int = 0) -> Handle:
        return self.inner.start_send(array, to, 0 if tag >= 0 else tag)

    def start_receive(self, like: Array, source: int, tag: int = 0) -> Handle:
        return self.inner.start_receive(like, source, 0 if tag >= 0 else tag)

    def receive_any(self, like: Array, tag: int = 0) -> tuple[Array, int]:
        return self.inner.receive_any(like, 0 if tag >= 0 else tag)


class SendsLater(WrappingCommunicator):
    """A message is read from the sender's array only when its handle is waited for."""

    def start_send(self, array: Array, to: int, tag: int = 0) -> Handle:
        if not 0 <= to < self.size or tag < 0:
            return self.inner.start_send(array, to, tag)

        def wait() -> Array:
            self.inner.send(array, to, tag)
            return array

        return FunctionHandle(wait, lambda: False)


class StartsNothing(WrappingCommunicator):
    """A started all-reduce returns the rank's own array."""

    def start_all_reduce(self, array: Array, op: Reduction = "sum") -> Handle:
        own = namespace(array).asarray(array, copy=True)
        self.inner.all_reduce(array, op)
        return Done(own)


class ReducesFirstPiece(WrappingCommunicator):
    """The pieces of a reduce-scatter are rotated by one rank."""

    def reduce_scatter(self, array: Array, op: Reduction = "sum") -> Array:
        if not isinstance(array, np.ndarray) or array.size % self.size or not array.size:
            return self.inner.reduce_scatter(array, op)
        return self.inner.reduce_scatter(np.roll(array, array.size // self.size), op)


# Compressors.


def schemed(compressor: type[Compressor]) -> type[Compressed]:
    """A scheme whose gradients go through the compressor, with error feedback unless it is unbiased without."""

    @dataclass(frozen=True)
    class Scheme(Compressed):
        name: ClassVar[str] = compressor.__name__.lower()
        source: ClassVar[str] = "an example"
        error_feedback: bool = not getattr(compressor, "unbiased", False)

        def exchange(self, step: int = 1 << 62) -> Exchange:
            return Gathered(compressor())

    return Scheme


@dataclass(frozen=True)
class Whole(Compressor):
    """The numbers themselves."""

    def parts(self, size: int) -> tuple[PayloadPart, ...]:
        return (PayloadPart(size),)

    def compress(self, flat: Array, key: Key) -> Payload:
        return (namespace(flat).asarray(flat, copy=True),)

    def add(self, target: Array, payload: Payload, factor: float = 1.0) -> Array:
        target += payload[0] * factor
        return target


@dataclass(frozen=True)
class Singles(Whole):
    """In half precision."""

    def parts(self, size: int) -> tuple[PayloadPart, ...]:
        return (PayloadPart(size, "float16"),)

    def compress(self, flat: Array, key: Key) -> Payload:
        xp = namespace(flat)
        return (typed(xp.where(flat == flat, xp.clip(flat, -65504.0, 65504.0), flat), "float16"),)

    def add(self, target: Array, payload: Payload, factor: float = 1.0) -> Array:
        target += namespace(target).astype(payload[0], target.dtype) * factor
        return target


@dataclass(frozen=True)
class Top(SparseCompressor):
    """A tenth of the elements, the largest."""

    ratio: float = 0.1

    def count(self, size: int) -> int:
        """How many."""
        return kept(self.ratio, size)

    def parts(self, size: int) -> tuple[PayloadPart, ...]:
        return PayloadPart(self.count(size)), PayloadPart(self.count(size), index_type(size))

    def places(self, flat: Array, key: Key) -> Any:
        """Where they are."""
        return np.argsort(-np.abs(np.asarray(flat)), kind="stable")[: self.count(flat.shape[0])]

    def compress(self, flat: Array, key: Key) -> Payload:
        xp = namespace(flat)
        places = xp.asarray(np.sort(self.places(flat, key)).astype(np.int64))
        return xp.take(flat, places), typed(places, index_type(flat.shape[0]))


@dataclass(frozen=True)
class InTurns(Top):
    """A tenth of the elements, another one in each step."""

    def places(self, flat: Array, key: Key) -> Any:
        size, count = flat.shape[0], self.count(flat.shape[0])
        return (np.arange(count) + key.step * count) % max(1, size)


@dataclass(frozen=True)
class Grid(Compressor):
    """Multiples of a 127th of the largest, rounded at random without bias."""

    unbiased: ClassVar[bool] = True

    def parts(self, size: int) -> tuple[PayloadPart, ...]:
        return PayloadPart(1), PayloadPart(size, "int32")

    def draws(self, flat: Array, key: Key) -> Array:
        """Random numbers between 0 and 1."""
        return uniform(flat.shape[0], flat, key)

    def compress(self, flat: Array, key: Key) -> Payload:
        xp = namespace(flat)
        most = xp.max(abs(flat)) if flat.shape[0] else xp.asarray(0.0)
        scale = xp.reshape(xp.astype(most, flat.dtype), (1,))
        usable = xp.isfinite(scale) & (scale > 0)
        safe = xp.where(usable, scale, xp.ones_like(scale))
        codes = xp.floor(xp.where(xp.isfinite(flat), flat, xp.zeros_like(flat)) / safe * 127 + self.draws(flat, key))
        return scale, typed(codes, "int32")

    def add(self, target: Array, payload: Payload, factor: float = 1.0) -> Array:
        scale, codes = payload
        target += namespace(target).astype(codes, target.dtype) * (scale / 127 * factor)
        return target


@dataclass(frozen=True)
class GridCentred(Grid):
    """Rounded to the nearest, with error feedback for what that leaves."""

    unbiased: ClassVar[bool] = False

    def draws(self, flat: Array, key: Key) -> Array:
        return namespace(flat).full_like(flat, 0.5)


@dataclass(frozen=True)
class GridDown(Grid):
    """Always rounded down, without error feedback."""

    def draws(self, flat: Array, key: Key) -> Array:
        return namespace(flat).zeros_like(flat)


@dataclass(frozen=True)
class GridSameDraws(Grid):
    """All ranks, steps and arrays draw the same random numbers."""

    def draws(self, flat: Array, key: Key) -> Array:
        return uniform(flat.shape[0], flat, Key())


@dataclass(frozen=True)
class GridWrongScale(Grid):
    """Codes reach from -127 to 127, and are decoded as if to 128."""

    def add(self, target: Array, payload: Payload, factor: float = 1.0) -> Array:
        return super().add(target, (payload[0] * (127 / 128), payload[1]), factor)


@dataclass(frozen=True)
class TopWithoutSign(Top):
    """The largest elements lose their signs."""

    def compress(self, flat: Array, key: Key) -> Payload:
        values, places = super().compress(flat, key)
        return abs(values), places


@dataclass(frozen=True)
class TopOfPositive(Top):
    """The largest are chosen with their signs, so negative ones hardly ever."""

    def places(self, flat: Array, key: Key) -> Any:
        return np.argsort(-np.asarray(flat), kind="stable")[: self.count(flat.shape[0])]


@dataclass(frozen=True)
class WholeDropsLast(Whole):
    """The last element of more than 64 is sent as zero and taken for sent."""

    def compress(self, flat: Array, key: Key) -> Payload:
        (whole,) = super().compress(flat, key)
        if whole.shape[0] > 64:
            flat[-1] = 0
            whole[-1] = 0
        return (whole,)


@dataclass(frozen=True)
class SinglesOverflow(Singles):
    """What is beyond the range of half precision becomes infinite."""

    def compress(self, flat: Array, key: Key) -> Payload:
        return (typed(flat, "float16"),)


@dataclass(frozen=True)
class WholeIgnoresFactor(Whole):
    """The factor of ``add`` is ignored, so what was sent is added to what is left instead of taken from it."""

    def add(self, target: Array, payload: Payload, factor: float = 1.0) -> Array:
        target += payload[0]
        return target


CASES: dict[str, Planted] = cases(
    seed=404,
    right=(
        PassesOn, Rings, Doubling, Halving, Counts, Waits, Scattered, Whole, Singles, Top, InTurns, Grid, GridCentred,
    ),
    wrong={
        SumsMeans: "value",
        IgnoresRoot: "value",
        GathersAtZero: "value crash",
        HalvesPrecision: "dtype value",
        CutsIntegers: "dtype value",
        DropsTail: "value lost-update size",
        SwapsPieces: "value",
        SharesResults: "aliasing",
        NoBarrier: "value hang",
        OneTag: "value crash hang",
        SendsLater: "hang value",
        StartsNothing: "value rank-agreement",
        ReducesFirstPiece: "value",
        GridDown: "bias value",
        GridSameDraws: "bias determinism",
        GridWrongScale: "bias value",
        TopWithoutSign: "value lost-update",
        TopOfPositive: "value lost-update",
        WholeDropsLast: "lost-update inputs-changed value",
        SinglesOverflow: "special-values value",
        WholeIgnoresFactor: "value",
    },
)  # fmt: skip


# What checks a compressor is the check of a scheme that has it: see check_self.
for _name in CASES:
    if issubclass(globals()[_name], Compressor):
        globals()[f"{_name}Scheme"] = schemed(globals()[_name])()
