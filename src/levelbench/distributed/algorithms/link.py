"""What an algorithm sees of the world: flat arrays, and messages that it waits for by yielding them.

The one idea: an algorithm is a generator. It yields each message that it needs and is sent what arrived, so whoever
drives it decides whether to wait there or to go on with something else; one text is both the blocking and the
non-blocking operation.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from itertools import pairwise
from typing import Any, TypeVar, final

import numpy as np

from levelbench.distributed.buffers import new, put, view
from levelbench.distributed.communicator import Communicator, Done, Handle
from levelbench.distributed.pieces import pieces
from levelbench.errors import UnsupportedError
from levelbench.networks.executor import Array
from levelbench.training.optimizers.arrays import namespace

__all__ = ["Flat", "Link", "Steps", "Tally", "closed", "cut", "divide", "every", "opened", "space"]

T = TypeVar("T")

Steps = Generator[Handle, Array, T]
"""An algorithm under way, which answers with a ``T``."""

Flat = Any
"""A contiguous, writable array of one dimension whose slices are views: NumPy's, or PyTorch's on a device."""


@final
class Tally:
    """What was sent so far."""

    def __init__(self) -> None:
        self.sent_bytes = 0
        self.messages = 0

    def note(self, nbytes: int) -> None:
        """One more message."""
        self.sent_bytes += nbytes
        self.messages += 1


@final
class Link:
    """The way of this rank to the others, for the messages of one collective, which have a tag of their own."""

    def __init__(self, communicator: Communicator, tag: int, tally: Tally) -> None:
        self._communicator, self._tag, self._tally = communicator, tag, tally
        self.rank, self.size = communicator.rank, communicator.size

    def send(self, flat: Flat, to: int) -> Handle:
        """Under way when it returns. Nothing is no message: the receiver knows its length as well."""
        if not len(flat):
            return Done(flat)
        self._tally.note(flat.nbytes)
        return self._communicator.start_send(flat, to, self._tag)

    def receive(self, into: Flat, source: int) -> Handle:
        """Into this array."""
        return self._communicator.start_receive(into, source, self._tag) if len(into) else Done(into)

    def swap(self, outgoing: Flat, to: int, into: Flat, source: int) -> Steps[None]:
        """Send and receive at the same time."""
        coming = self.receive(into, source)
        going = self.send(outgoing, to)
        yield coming
        yield going


def every(handles: Iterable[Handle]) -> Steps[None]:
    """Wait for each."""
    for handle in handles:
        # Not ``yield from handles``: a list cannot be sent what arrived.
        _ = yield handle


def cut(flat: Flat, count: int) -> list[Flat]:
    """Views of its pieces."""
    return [flat[start:stop] for start, stop in pairwise(pieces(len(flat), count))]


def space(like: Flat, length: int) -> Flat:
    """A new array of that length, of the dtype and device of ``like``."""
    if isinstance(like, np.ndarray):
        return np.empty(length, like.dtype)
    return namespace(like).empty(length, dtype=like.dtype, device=like.device)


def divide(flat: Flat, divisor: int | None) -> None:
    """In place; ``None`` divides by nothing."""
    if divisor is not None:
        flat /= flat.dtype.type(divisor) if isinstance(flat, np.ndarray) else divisor


def opened(array: Array, *, change: bool = False) -> Flat:
    """Its elements as one flat array: with ``change`` its own memory where possible, which may be written to.

    Without, it must not be written to. An array on a device stays there.
    """
    try:
        seen = view(array)
    except UnsupportedError:
        return (array.detach() if hasattr(array, "detach") else array).reshape(-1)
    flat = seen.reshape(-1)
    return flat.copy() if change and not flat.flags.writeable else flat


def closed(flat: Flat, like: Array, *, shape: tuple[int, ...] | None = None, change: bool = False) -> Array:
    """The flat array as a native one like ``like``: with ``change`` in it where it can be, else new, of this shape."""
    shape = tuple(like.shape) if shape is None else shape
    if isinstance(flat, np.ndarray):
        shaped = flat.reshape(shape)
        if not change:
            return new(shaped, like)
        return like if _same(flat, like) else put(shaped, like)
    shaped = flat.reshape(shape)
    if change and flat.data_ptr() != like.data_ptr():
        like.detach().copy_(shaped)
    return like if change else shaped


def _same(flat: Flat, like: Array) -> bool:
    return not isinstance(like, np.generic) and np.may_share_memory(flat, view(like))
