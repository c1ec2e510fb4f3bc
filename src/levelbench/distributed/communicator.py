"""The communicator interface: how ranks, the processes of one training, pass arrays to each other.

Arrays stay in the framework's own type. Where the given array is writable (NumPy, PyTorch), the result is written into
it; otherwise it is a new array of the same kind (JAX). So use the returned array, not the given one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, final

from levelbench.distributed.packing import dtype_name, is_floating
from levelbench.errors import UnsupportedError, UsageError
from levelbench.networks.executor import Array

Reduction = Literal["sum", "mean", "max", "min", "product"]
REDUCTIONS: Mapping[Reduction, str] = MappingProxyType(
    {"sum": "add", "mean": "add", "max": "maximum", "min": "minimum", "product": "multiply"}
)
"""The reductions, each with the function that joins two arrays, as NumPy and PyTorch both call it.

The mean is divided once, at the end. Whole numbers wrap at the width of their type.
"""


class Handle(ABC):
    """An operation in progress."""

    @abstractmethod
    def wait(self) -> Array:
        """Wait for the result and return it; a send returns the array that was sent. Call it once."""

    @abstractmethod
    def done(self) -> bool:
        """Whether :meth:`wait` would return at once. Also makes progress, where the library needs to be called."""


@final
class Done(Handle):
    """An operation that completed immediately."""

    def __init__(self, result: Array) -> None:
        self._result = result

    def wait(self) -> Array:
        return self._result

    def done(self) -> bool:
        return True


@final
class FunctionHandle(Handle):
    """An operation in progress, with these functions as its methods."""

    def __init__(self, wait: Callable[[], Array], done: Callable[[], bool]) -> None:
        self._wait, self._done = wait, done

    def wait(self) -> Array:
        return self._wait()

    def done(self) -> bool:
        return self._done()


class Communicator(ABC):
    """Rank ``rank`` of ``size``. All ranks make the same collective calls in the same order.

    Arrays may have any shape, even no dimensions, and must have the same dtype and shape on all ranks of a collective,
    unless stated otherwise. Between two ranks, messages with the same tag arrive in the order they were sent. Every
    method raises ``CommunicationError`` when a rank is lost or takes longer than the communicator's timeout,
    ``UsageError`` for a rank that does not exist, and ``UnsupportedError`` for a dtype that it cannot transfer.
    """

    name: str
    """``gloo``, ``nccl``, ``mpi``, ``threads``, ``simulated``."""
    rank: int
    size: int

    def all_reduce(self, array: Array, op: Reduction = "sum") -> Array:
        """The elementwise reduction over all ranks, bitwise identical on each: one of :data:`REDUCTIONS`."""
        return self.start_all_reduce(array, op).wait()

    def broadcast(self, array: Array, root: int = 0) -> Array:
        """The root's array on all ranks."""
        return self.start_broadcast(array, root).wait()

    def send(self, array: Array, to: int, tag: int = 0) -> None:
        """Send; returns when ``array`` may be overwritten, which does not mean that it was received."""
        self.start_send(array, to, tag).wait()

    def receive(self, like: Array, source: int, tag: int = 0) -> Array:
        """Receive an array of the shape and dtype of ``like`` from ``source``, into ``like`` if it is writable."""
        return self.start_receive(like, source, tag).wait()

    @abstractmethod
    def start_all_reduce(self, array: Array, op: Reduction = "sum") -> Handle:
        """:meth:`all_reduce`, without waiting."""

    @abstractmethod
    def start_broadcast(self, array: Array, root: int = 0) -> Handle:
        """:meth:`broadcast`, without waiting."""

    @abstractmethod
    def start_send(self, array: Array, to: int, tag: int = 0) -> Handle:
        """:meth:`send`, without waiting. Do not write to the array before the operation completes."""

    @abstractmethod
    def start_receive(self, like: Array, source: int, tag: int = 0) -> Handle:
        """:meth:`receive`, without waiting."""

    @abstractmethod
    def receive_any(self, like: Array, tag: int = 0) -> tuple[Array, int]:
        """The first message with this tag from any rank, and its source."""

    @abstractmethod
    def reduce_scatter(self, array: Array, op: Reduction = "sum") -> Array:
        """The own piece of the reduction over all ranks of a flat array, shape (n,).

        The piece of rank r is ``array[bounds[r] : bounds[r + 1]]`` with the bounds of :func:`pieces`: sizes differ by
        at most one, the larger ones first.
        """

    @abstractmethod
    def all_gather(self, array: Array) -> tuple[Array, ...]:
        """The arrays of all ranks, in rank order."""

    @abstractmethod
    def gather(self, array: Array, root: int = 0) -> tuple[Array, ...] | None:
        """The arrays of all ranks, in rank order, on the root; ``None`` elsewhere."""

    @abstractmethod
    def scatter(self, arrays: Sequence[Array] | None, like: Array, root: int = 0) -> Array:
        """Entry ``rank`` of the root's arrays, all like ``like``; only the root's ``arrays`` are read."""

    @abstractmethod
    def all_to_all(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """Send entry r to rank r; returns what each rank sent, in rank order. All have the same shape."""

    @abstractmethod
    def exchange(self, array: Array, neighbours: Sequence[int]) -> tuple[Array, ...]:
        """Swap arrays with each neighbour; returns theirs in the order of ``neighbours``.

        The relation must be symmetric. Not collective: ranks without neighbours need not call it.
        """

    @abstractmethod
    def barrier(self) -> None:
        """Return once all ranks have called it."""

    @abstractmethod
    def close(self) -> None:
        """Leave together with the other ranks; the communicator cannot be used afterwards."""

    def abort(self) -> None:  # noqa: B027  # most libraries notice it themselves
        """Leave alone; the other ranks get an error as soon as the library notices."""


def checked_rank(operation: str, rank: int, size: int) -> None:
    """``UsageError`` for a rank that does not exist."""
    if not 0 <= rank < size:
        raise UsageError(
            f"{operation} with rank {rank}", f"there are ranks 0 to {size - 1}", "name a rank of this communicator"
        )


def checked_tag(operation: str, tag: int, below: int | None = None) -> None:
    """``UsageError`` for a tag that is negative or not below the limit, if there is one."""
    if tag < 0 or (below is not None and tag >= below):
        allowed = "0 and up" if below is None else f"0 to {below - 1}"
        raise UsageError(f"{operation} with tag {tag}", f"tags are {allowed}", "choose another tag")


def checked_op(operation: str, op: str, array: Array) -> None:
    """``UsageError`` for an unknown reduction, ``UnsupportedError`` for one that the dtype does not have."""
    if op not in REDUCTIONS:
        known = ", ".join(REDUCTIONS)
        raise UsageError(f"{operation} with op {op!r}", f"a reduction is one of {known}", "choose one of these")
    if op == "mean" and not is_floating(array):
        raise UnsupportedError(
            f"{operation} of the mean of {dtype_name(array)}", "that dtype cannot represent the mean", "take the sum"
        )
    if op in ("max", "min") and "complex" in dtype_name(array):
        raise UnsupportedError(
            f"{operation} of the {op} of {dtype_name(array)}", "complex numbers have no order", "reduce their parts"
        )


def checked_count(operation: str, arrays: Sequence[Array] | None, size: int) -> Sequence[Array]:
    """The arrays; ``UsageError`` unless there is one for each rank."""
    if arrays is None or len(arrays) != size:
        found = f"there are {len(arrays) if arrays else 'none'}"
        raise UsageError(f"{operation} of arrays to {size} ranks", found, "give one array for each rank")
    return arrays
