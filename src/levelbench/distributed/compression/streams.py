"""Sparse arrays added up in pairs: SparCML's recursive doubling, which goes over to dense arrays as they fill up.

The one idea: after round j a rank holds the sum of 2^j ranks, and its partner in round j + 1 that of 2^j others; a sum
of two is the same bits whichever of them is named first, so all ranks end with the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from levelbench.distributed.communicator import Communicator
from levelbench.distributed.compression.arrays import add_at, as_bytes, from_bytes, index_type, typed
from levelbench.distributed.compression.draws import Key
from levelbench.distributed.compression.exchange import Exchange
from levelbench.distributed.compression.sparse import SparseCompressor
from levelbench.distributed.scheme import Traffic
from levelbench.networks.executor import Array
from levelbench.training.optimizers.arrays import namespace, zeros_like

__all__ = ["Doubled", "Stream", "merged"]

_TAG = 17
_HEADER_BYTES = 8
_WIDTHS = {"int32": 4, "int64": 8}


@dataclass(frozen=True)
class Stream:
    """A flat array: (values, places) with each place once, or all values where ``places`` is ``None``."""

    values: Array
    places: Array = None

    def dense(self, like: Array) -> Array:
        """All values, of the shape of ``like``."""
        return self.values if self.places is None else add_at(zeros_like(like), self.places, self.values)


def merged(first: Stream, second: Stream, like: Array) -> Stream:
    """The sum: dense where that takes no more bytes (Renggli et al. 2019, section 5.1). Overwrites what is dense."""
    if first.places is None or second.places is None:
        onto, other = (first, second) if first.places is None else (second, first)
        values = onto.values
        if other.places is not None:
            return Stream(add_at(values, other.places, other.values))
        values += other.values
        return Stream(values)
    xp = namespace(like)
    places, inverse = xp.unique_inverse(xp.concat([first.places, second.places]))
    inverse, cut = inverse.reshape(-1), first.places.shape[0]
    values = xp.zeros(places.shape[0], dtype=like.dtype, device=like.device)
    values = add_at(add_at(values, inverse[:cut], first.values), inverse[cut:], second.values)
    return _lightest(Stream(values, places), like)


def _lightest(stream: Stream, like: Array) -> Stream:
    size, itemsize = like.shape[0], like.dtype.itemsize
    count = stream.values.shape[0]
    return stream if _sparse_bytes(count, size, itemsize) < size * itemsize else Stream(stream.dense(like))


def _sparse_bytes(count: int, size: int, itemsize: int) -> int:
    return count * (itemsize + _WIDTHS[index_type(size)])


@dataclass(frozen=True)
class Doubled(Exchange):
    """Streams merged in log2 p rounds; ranks beyond a power of two hand theirs to a neighbour, and get the sum back.

    Each message has one of 8 bytes before it that says how many values it has. How many there are depends on how often
    ranks name the same place: :meth:`traffic` is an expectation, as if each chose its places at random.
    """

    # Magnitudes are not alike everywhere, so ranks coincide a little more often than at random.
    traffic_within: ClassVar[float] = 1.05
    compressor: SparseCompressor

    def __call__(self, communicator: Communicator, corrected: Array, key: Key) -> tuple[Array, Array]:
        """Two messages each way a round."""
        values, places = self.compressor.compress(corrected, key)
        left = self.compressor.add(corrected, (values, places), -1.0)
        rank, like = communicator.rank, left
        # What is dense is added to in place, and this rank's values may be the compressor's own.
        stream = _lightest(Stream(values, typed(places, "int64")), like)
        helper = _folded_into(rank, communicator.size)
        if helper > rank:
            _send(communicator, stream, helper, like)
            stream = _receive(communicator, helper, like)
            return stream.dense(like), left
        if helper < rank:
            stream = merged(_receive(communicator, helper, like), stream, like)
        for partner in _partners(rank, communicator.size):
            theirs = _swapped(communicator, stream, partner, like)
            stream = merged(stream, theirs, like) if rank < partner else merged(theirs, stream, like)
        if helper < rank:
            _send(communicator, stream, helper, like)
        return stream.dense(like), left

    def traffic(self, size: int, itemsize: int, ranks: int, rank: int) -> Traffic:
        """Of m ranks that name k of n places at random, n (1 - (1 - k / n)^m) are named; messages are exact."""
        unnamed = 1 - self.compressor.parts(size)[0].elements / size if size else 1.0

        def message(holders: int) -> Traffic:
            sparse = size * (1 - unnamed**holders) * (itemsize + _WIDTHS[index_type(size)])
            return Traffic(min(sparse, size * itemsize) + _HEADER_BYTES, 2)

        helper = _folded_into(rank, ranks)
        if helper > rank:
            return message(1)
        total = message(ranks) if helper < rank else Traffic(0, 0)
        for level in range(len(list(_partners(rank, ranks)))):
            total += message(_holders(rank, ranks, level))
        return total

    def payload_bytes(self, size: int, itemsize: int) -> int:
        """A rank's own stream."""
        return min(self.compressor.nbytes(size, itemsize), size * itemsize)


def _beyond(size: int) -> int:
    """How many ranks there are beyond the largest power of two."""
    return size - (1 << (size.bit_length() - 1))


def _folded_into(rank: int, size: int) -> int:
    """The other of a pair, whose even rank stands aside, among the first 2 e ranks; of those after them, itself."""
    return rank ^ 1 if rank < 2 * _beyond(size) else rank


def _number(rank: int, size: int) -> int:
    beyond = _beyond(size)
    return rank // 2 if rank < 2 * beyond else rank - beyond


def _rank_of(number: int, size: int) -> int:
    beyond = _beyond(size)
    return 2 * number + 1 if number < beyond else number + beyond


def _partners(rank: int, size: int) -> Iterator[int]:
    """Whom a rank that does not stand aside exchanges with, round by round."""
    for level in range(size.bit_length() - 1):
        yield _rank_of(_number(rank, size) ^ (1 << level), size)


def _holders(rank: int, size: int, level: int) -> int:
    """How many ranks' arrays are in what a rank sends in round ``level``."""
    first = _number(rank, size) >> level << level
    return sum(2 if number < _beyond(size) else 1 for number in range(first, first + (1 << level)))


def _messages(stream: Stream, like: Array) -> tuple[Array, Array]:
    xp = namespace(like)
    if stream.places is None:
        count, data = -1, as_bytes((stream.values,))
    else:
        count = stream.values.shape[0]
        data = as_bytes((stream.values, typed(stream.places, index_type(like.shape[0]))))
    return xp.asarray(np.array([count], np.int64), device=like.device), data


def _send(communicator: Communicator, stream: Stream, to: int, like: Array) -> None:
    for message in _messages(stream, like):
        communicator.send(message, to, _TAG)


def _receive(communicator: Communicator, source: int, like: Array) -> Stream:
    xp, size, width = namespace(like), like.shape[0], like.dtype.itemsize
    header = xp.empty(1, dtype=xp.int64, device=like.device)
    count = int(communicator.receive(header, source, _TAG)[0])
    nbytes = size * width if count < 0 else _sparse_bytes(count, size, width)
    data = communicator.receive(xp.empty(nbytes, dtype=xp.uint8, device=like.device), source, _TAG)
    if count < 0:
        return Stream(data.view(like.dtype))
    name = index_type(size)
    values, places = from_bytes(data, ((count, like.dtype, width), (count, getattr(xp, name), _WIDTHS[name])))
    return Stream(values, typed(places, "int64"))


def _swapped(communicator: Communicator, stream: Stream, partner: int, like: Array) -> Stream:
    """The partner's stream for this one."""
    sends = [communicator.start_send(message, partner, _TAG) for message in _messages(stream, like)]
    theirs = _receive(communicator, partner, like)
    for each in sends:
        each.wait()
    return theirs
