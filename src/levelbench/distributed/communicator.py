"""What a communicator is: how ranks, the processes of one training, pass arrays to each other.

Arrays stay the framework's own. A result comes back in the array that was given wherever that one can be written to
(NumPy, PyTorch), else as a new one of its kind (JAX): use what is returned, not what was given.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Literal, final

from levelbench.distributed.packing import dtype_name, is_floating
from levelbench.errors import UnsupportedError, UsageError
from levelbench.networks.executor import Array

Reduction = Literal["sum", "mean"]


class Handle(ABC):
    """An operation that is under way."""

    @abstractmethod
    def wait(self) -> Array:
        """The result, once it is there; of a send the array that was sent. To be called once."""

    @abstractmethod
    def done(self) -> bool:
        """Whether :meth:`wait` would return at once. Drives the operation on, where something has to."""


@final
class Done(Handle):
    """An operation that was over when it was asked for."""

    def __init__(self, result: Array) -> None:
        self._result = result

    def wait(self) -> Array:
        return self._result

    def done(self) -> bool:
        return True


@final
class FunctionHandle(Handle):
    """An operation under way whose two methods are these functions."""

    def __init__(self, wait: Callable[[], Array], done: Callable[[], bool]) -> None:
        self._wait, self._done = wait, done

    def wait(self) -> Array:
        return self._wait()

    def done(self) -> bool:
        return self._done()


class Communicator(ABC):
    """Rank ``rank`` of ``size``. All ranks make the same collective calls in the same order.

    Arrays are of any shape (also of no dimension) and of one dtype and shape on all ranks of a collective, unless said
    otherwise. Between two ranks messages of one tag arrive in the order in which they were sent. Every method raises
    ``CommunicationError`` when a rank was lost or took longer than the communicator's timeout, ``UsageError`` for a
    rank that does not exist, ``UnsupportedError`` for a dtype that the library does not move.
    """

    name: str
    """``gloo``, ``nccl``, ``mpi``, ``threads``, ``simulated``."""
    rank: int
    size: int

    def all_reduce(self, array: Array, op: Reduction = "sum") -> Array:
        """The elementwise sum or mean over all ranks, the same bits on each."""
        return self.start_all_reduce(array, op).wait()

    def broadcast(self, array: Array, root: int = 0) -> Array:
        """The root's array on all ranks."""
        return self.start_broadcast(array, root).wait()

    def send(self, array: Array, to: int, tag: int = 0) -> None:
        """Send; returns when ``array`` may be written to again, which need not mean that it was received."""
        self.start_send(array, to, tag).wait()

    def receive(self, like: Array, source: int, tag: int = 0) -> Array:
        """What ``source`` sends, of the shape and dtype of ``like``, into which it goes where that can be."""
        return self.start_receive(like, source, tag).wait()

    @abstractmethod
    def start_all_reduce(self, array: Array, op: Reduction = "sum") -> Handle:
        """:meth:`all_reduce`, without waiting."""

    @abstractmethod
    def start_broadcast(self, array: Array, root: int = 0) -> Handle:
        """:meth:`broadcast`, without waiting."""

    @abstractmethod
    def start_send(self, array: Array, to: int, tag: int = 0) -> Handle:
        """:meth:`send`, without waiting. The array must not be written to until then."""

    @abstractmethod
    def start_receive(self, like: Array, source: int, tag: int = 0) -> Handle:
        """:meth:`receive`, without waiting."""

    @abstractmethod
    def receive_any(self, like: Array, tag: int = 0) -> tuple[Array, int]:
        """What arrives first of that tag from any rank, and from which."""

    @abstractmethod
    def reduce_scatter(self, array: Array, op: Reduction = "sum") -> Array:
        """The rank's own piece of the sum or mean over all ranks of a flat array, shape (n,).

        The piece of rank r is ``array[bounds[r] : bounds[r + 1]]`` with the bounds of :func:`pieces`: sizes differ by
        one at most, the larger ones first.
        """

    @abstractmethod
    def all_gather(self, array: Array) -> tuple[Array, ...]:
        """The arrays of all ranks, by rank."""

    @abstractmethod
    def gather(self, array: Array, root: int = 0) -> tuple[Array, ...] | None:
        """The arrays of all ranks, by rank, on the root; ``None`` elsewhere."""

    @abstractmethod
    def scatter(self, arrays: Sequence[Array] | None, like: Array, root: int = 0) -> Array:
        """The root's array number ``rank``, all of the shape and dtype of ``like``; ``arrays`` is read on the root."""

    @abstractmethod
    def all_to_all(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """Array number r of this rank goes to rank r; answers with what came from each rank, by rank. One shape."""

    @abstractmethod
    def exchange(self, array: Array, neighbours: Sequence[int]) -> tuple[Array, ...]:
        """An array to each neighbour and theirs to this rank, in their order.

        The relation must be symmetric. Not collective: those who have no neighbour need not call it.
        """

    @abstractmethod
    def barrier(self) -> None:
        """Return once all ranks have come here."""

    @abstractmethod
    def close(self) -> None:
        """Leave, together with the others; afterwards the communicator cannot be used."""

    def abort(self) -> None:  # noqa: B027  # most libraries notice by themselves
        """Leave without the others, who get an error as soon as the library notices."""


def checked_rank(operation: str, rank: int, size: int) -> None:
    """``UsageError`` for a rank that does not exist."""
    if not 0 <= rank < size:
        raise UsageError(
            f"{operation} with rank {rank}", f"there are ranks 0 to {size - 1}", "name a rank of this communicator"
        )


def checked_tag(operation: str, tag: int, below: int | None = None) -> None:
    """``UsageError`` for a tag that is negative or, where some are kept, not below them."""
    if tag < 0 or (below is not None and tag >= below):
        allowed = "0 and up" if below is None else f"0 to {below - 1}"
        raise UsageError(f"{operation} with tag {tag}", f"tags are {allowed}", "choose another tag")


def checked_op(operation: str, op: str, array: Array) -> None:
    """``UsageError`` for an unknown reduction, ``UnsupportedError`` for a mean of integers."""
    if op not in ("sum", "mean"):
        raise UsageError(f"{operation} with op {op!r}", "a reduction is 'sum' or 'mean'", "choose one of them")
    if op == "mean" and not is_floating(array):
        raise UnsupportedError(
            f"{operation} of the mean of {dtype_name(array)}",
            "the mean is not representable in that dtype",
            "take the sum",
        )


def checked_count(operation: str, arrays: Sequence[Array] | None, size: int) -> Sequence[Array]:
    """The arrays; ``UsageError`` where they are not one for each rank."""
    if arrays is None or len(arrays) != size:
        found = "there are none" if arrays is None else f"there are {len(arrays)}"
        raise UsageError(f"{operation} of arrays to {size} ranks", found, "give one array for each rank")
    return arrays
