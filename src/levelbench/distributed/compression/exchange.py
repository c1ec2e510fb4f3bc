"""How ranks add up what compressors made of their gradients, so that all hold the same bits.

An exchange takes each rank's flat array and answers with the total, the same on all ranks, and with what of this rank's
array is not in it: the arrays of all ranks add up to the total and all that is left. Error feedback adds what is left
to the next gradient, so nothing is lost whatever the compressor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from levelbench.distributed import traffic
from levelbench.distributed.communicator import Communicator
from levelbench.distributed.compression.compressors import (
    Compressor,
    Key,
    SparseCompressor,
    ThresholdCompressor,
    add_at,
    as_bytes,
    from_bytes,
    index_type,
    padded,
    typed,
)
from levelbench.distributed.scheme import Traffic
from levelbench.networks.executor import Array
from levelbench.training.optimizers.arrays import copy, namespace, sign, zeros_like


class Exchange(ABC):
    """A way to add up compressed arrays."""

    compressor: Compressor
    traffic_within: ClassVar[float] = 1.0
    """By what factor the mean of what is sent may differ from :meth:`traffic`: 1 where that is exact."""

    @abstractmethod
    def __call__(self, communicator: Communicator, corrected: Array, key: Key) -> tuple[Array, Array]:
        """The total, and what is left of ``corrected``, which may be overwritten; both of shape (n,). Collective."""

    @abstractmethod
    def traffic(self, size: int, itemsize: int, ranks: int, rank: int) -> Traffic:
        """What ``rank`` sends for ``size`` elements of ``itemsize`` bytes, to within ``traffic_within``."""

    def payload_bytes(self, size: int, itemsize: int) -> int | None:
        """Bytes that stand for a rank's ``size * itemsize``; ``None`` where that varies."""
        return self.compressor.nbytes(size, itemsize)


@dataclass(frozen=True)
class Gathered(Exchange):
    """All ranks get all payloads, and add them up in the order of ranks, which makes their sums the same bits."""

    compressor: Compressor

    def __call__(self, communicator: Communicator, corrected: Array, key: Key) -> tuple[Array, Array]:
        """One all-gather of bytes."""
        compressor = self.compressor
        payload = compressor.compress(corrected, key)
        left = compressor.add(corrected, payload, -1.0)
        total = zeros_like(left)
        for data in communicator.all_gather(as_bytes(payload)):
            total = compressor.add(total, compressor.parted(data, total))
        return total, left

    def traffic(self, size: int, itemsize: int, ranks: int, rank: int) -> Traffic:
        return traffic.all_gather(self.compressor.nbytes(size, itemsize), 1, ranks, rank)


@dataclass(frozen=True)
class Voted(Gathered):
    """The sign of the sum of the payloads: the majority's (Bernstein et al. 2018), 0 where votes are tied."""

    def __call__(self, communicator: Communicator, corrected: Array, key: Key) -> tuple[Array, Array]:
        """One all-gather of bytes. Nothing is left: a vote is no part of a sum."""
        total, left = super().__call__(communicator, corrected, key)
        return sign(total), zeros_like(left)


@dataclass(frozen=True)
class GatheredAnyLength(Exchange):
    """As :class:`Gathered` for payloads of values and places whose number differs between ranks.

    Counts are exchanged first; then each sends as much as the fullest rank, filled up with nothing. How much that is
    depends on the gradients: :meth:`traffic` expects the share ``expected`` of all elements.
    """

    # The share is the user's guess, and the fullest rank has more than the mean one.
    traffic_within: ClassVar[float] = 2.0
    compressor: ThresholdCompressor
    expected: float

    def __call__(self, communicator: Communicator, corrected: Array, key: Key) -> tuple[Array, Array]:
        """An all-gather of counts, and one of bytes unless all counts are zero."""
        compressor, xp = self.compressor, namespace(corrected)
        values, places = compressor.compress(corrected, key)
        count = xp.asarray(np.array([values.shape[0]], np.int64), device=corrected.device)
        counts = [int(each[0]) for each in communicator.all_gather(count)]
        total = zeros_like(corrected)
        most = max(counts)
        if most:
            kinds = [(most, each.dtype, each.dtype.itemsize) for each in (corrected, places)]
            sent = as_bytes((padded(values, most), padded(places, most)))
            for data, here in zip(communicator.all_gather(sent), counts, strict=True):
                found = from_bytes(data, kinds)
                total = compressor.add(total, (found[0][:here], found[1][:here]))
        return total, compressor.add(corrected, (values, places), -1.0)

    def traffic(self, size: int, itemsize: int, ranks: int, rank: int) -> Traffic:
        counts = traffic.all_gather(1, 8, ranks, rank)
        payload = round(self.expected * self.compressor.nbytes(size, itemsize))
        return counts + traffic.all_gather(payload, 1, ranks, rank)

    def payload_bytes(self, size: int, itemsize: int) -> None:
        """It varies."""


@dataclass(frozen=True)
class Reduced(Exchange):
    """For payloads whose first array can be added up as it is, while the others are the same on all ranks."""

    compressor: Compressor
    rescale: bool = False

    def __call__(self, communicator: Communicator, corrected: Array, key: Key) -> tuple[Array, Array]:
        """One all-reduce; with ``rescale`` the total is n / k times what k of n elements give."""
        compressor, size = self.compressor.summable(communicator.size), corrected.shape[0]
        payload = compressor.compress(corrected, key)
        left = compressor.add(corrected, payload, -1.0)
        factor = size / payload[0].shape[0] if self.rescale and size else 1.0
        summed = communicator.all_reduce(payload[0])
        return compressor.add(zeros_like(left), (summed, *payload[1:]), factor), left

    def traffic(self, size: int, itemsize: int, ranks: int, rank: int) -> Traffic:
        (part,) = self.compressor.parts(size)
        return traffic.all_reduce(part.elements, part.nbytes(itemsize) // max(1, part.elements), ranks, rank)


@dataclass(frozen=True)
class InPieces(Exchange):
    """An all-reduce of compressed pieces: each rank adds up one piece of all, and sends the sum compressed again.

    The bytes do not grow with the number of ranks, as they do where all payloads are gathered, and sums are taken in
    the gradient's own type. What the second compression leaves out goes to the residual of the rank that made it, with
    which nothing is lost (Seide et al. 2014, section 3.2; Tang et al. 2019). Pieces are of one length, the last ones
    filled up with zeros.
    """

    compressor: Compressor

    def __call__(self, communicator: Communicator, corrected: Array, key: Key) -> tuple[Array, Array]:
        """One all-to-all and one all-gather of bytes."""
        compressor, ranks, size = self.compressor, communicator.size, corrected.shape[0]
        xp = namespace(corrected)
        length = -(-size // ranks)
        pieces = padded(corrected, ranks * length).reshape((ranks, length))
        mine = zeros_like(pieces[0, :])
        payloads = [compressor.compress(pieces[at, :], key.at(at)) for at in range(ranks)]
        left = pieces - xp.stack([compressor.decompress(each, mine) for each in payloads])
        for data in communicator.all_to_all([as_bytes(each) for each in payloads]):
            mine = compressor.add(mine, compressor.parted(data, mine))
        again = compressor.compress(mine, key.at(ranks))
        left = add_at(left, communicator.rank, compressor.add(mine, again, -1.0))
        parts = communicator.all_gather(as_bytes(again))
        total = xp.concat([compressor.decompress(compressor.parted(data, mine), mine) for data in parts])
        return total[:size], left.reshape(-1)[:size]

    def traffic(self, size: int, itemsize: int, ranks: int, rank: int) -> Traffic:
        """That of an all-to-all of all pieces and of an all-gather of one."""
        nbytes = self.compressor.nbytes(-(-size // ranks), itemsize)
        return traffic.all_to_all(nbytes, 1, ranks, rank) + traffic.all_gather(nbytes, 1, ranks, rank)


_TAG = 17
_HEADER_BYTES = 8
_WIDTHS = {"int32": 4, "int64": 8}


@dataclass(frozen=True)
class SparseStream:
    """A flat array: (values, places) with each place once, or all values where ``places`` is ``None``."""

    values: Array
    places: Array = None

    def dense(self, like: Array) -> Array:
        """All values, of the shape of ``like``."""
        return self.values if self.places is None else add_at(zeros_like(like), self.places, self.values)


def merged(first: SparseStream, second: SparseStream, like: Array) -> SparseStream:
    """The sum: dense where that takes no more bytes (Renggli et al. 2019, section 5.1). Overwrites what is dense."""
    if first.places is None or second.places is None:
        onto, other = (first, second) if first.places is None else (second, first)
        values = onto.values
        if other.places is not None:
            return SparseStream(add_at(values, other.places, other.values))
        values += other.values
        return SparseStream(values)
    xp = namespace(like)
    places, inverse = xp.unique_inverse(xp.concat([first.places, second.places]))
    inverse, cut = inverse.reshape(-1), first.places.shape[0]
    values = xp.zeros(places.shape[0], dtype=like.dtype, device=like.device)
    values = add_at(add_at(values, inverse[:cut], first.values), inverse[cut:], second.values)
    return _lightest(SparseStream(values, places), like)


def _lightest(stream: SparseStream, like: Array) -> SparseStream:
    size, itemsize = like.shape[0], like.dtype.itemsize
    count = stream.values.shape[0]
    return stream if _sparse_bytes(count, size, itemsize) < size * itemsize else SparseStream(stream.dense(like))


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
        stream = _lightest(SparseStream(values, typed(places, "int64")), like)
        folded = traffic.FoldedRank(rank, communicator.size)
        if folded.aside:
            _send(communicator, stream, folded.other, like)
            stream = _receive(communicator, folded.other, like)
            return stream.dense(like), left
        if folded.paired:
            stream = merged(_receive(communicator, folded.other, like), stream, like)
        for level in range(folded.levels):
            partner = folded.rank_of(folded.number ^ (1 << level))
            theirs = _swapped(communicator, stream, partner, like)
            stream = merged(stream, theirs, like) if rank < partner else merged(theirs, stream, like)
        if folded.paired:
            _send(communicator, stream, folded.other, like)
        return stream.dense(like), left

    def traffic(self, size: int, itemsize: int, ranks: int, rank: int) -> Traffic:
        """Of m ranks that name k of n places at random, n (1 - (1 - k / n)^m) are named; messages are exact."""
        unnamed = 1 - self.compressor.parts(size)[0].elements / size if size else 1.0

        def message(holders: int) -> Traffic:
            sparse = size * (1 - unnamed**holders) * (itemsize + _WIDTHS[index_type(size)])
            return Traffic(min(sparse, size * itemsize) + _HEADER_BYTES, 2)

        folded = traffic.FoldedRank(rank, ranks)
        if folded.aside:
            return message(1)
        total = message(ranks) if folded.paired else Traffic(0, 0)
        for level in range(folded.levels):
            total += message(_holders(folded, level))
        return total

    def payload_bytes(self, size: int, itemsize: int) -> int:
        """A rank's own stream."""
        return min(self.compressor.nbytes(size, itemsize), size * itemsize)


def _holders(folded: traffic.FoldedRank, level: int) -> int:
    """How many ranks' arrays are in what a rank sends in round ``level``."""
    first = folded.number >> level << level
    return sum(2 if number < folded.extra else 1 for number in range(first, first + (1 << level)))


def _messages(stream: SparseStream, like: Array) -> tuple[Array, Array]:
    xp = namespace(like)
    if stream.places is None:
        count, data = -1, as_bytes((stream.values,))
    else:
        count = stream.values.shape[0]
        data = as_bytes((stream.values, typed(stream.places, index_type(like.shape[0]))))
    return xp.asarray(np.array([count], np.int64), device=like.device), data


def _send(communicator: Communicator, stream: SparseStream, to: int, like: Array) -> None:
    for message in _messages(stream, like):
        communicator.send(message, to, _TAG)


def _receive(communicator: Communicator, source: int, like: Array) -> SparseStream:
    xp, size, width = namespace(like), like.shape[0], like.dtype.itemsize
    header = xp.empty(1, dtype=xp.int64, device=like.device)
    count = int(communicator.receive(header, source, _TAG)[0])
    nbytes = size * width if count < 0 else _sparse_bytes(count, size, width)
    data = communicator.receive(xp.empty(nbytes, dtype=xp.uint8, device=like.device), source, _TAG)
    if count < 0:
        return SparseStream(data.view(like.dtype))
    name = index_type(size)
    values, places = from_bytes(data, ((count, like.dtype, width), (count, getattr(xp, name), _WIDTHS[name])))
    return SparseStream(values, typed(places, "int64"))


def _swapped(communicator: Communicator, stream: SparseStream, partner: int, like: Array) -> SparseStream:
    """The partner's stream for this one."""
    sends = [communicator.start_send(message, partner, _TAG) for message in _messages(stream, like)]
    theirs = _receive(communicator, partner, like)
    for each in sends:
        each.wait()
    return theirs


@final
class ErrorFeedback:
    """e := e + g; the exchange of e; e := what it left (Seide et al. 2014; Stich et al. 2018; Karimireddy et al. 2019).

    ``enabled=False`` forgets what is left.
    """

    def __init__(self, enabled: bool = True) -> None:
        self._enabled = enabled
        self.residual: Array = None
        """What is left of this rank's, shape (n,); ``None`` before the first exchange, and where it is forgotten."""

    def total(self, communicator: Communicator, exchange: Exchange, flat: Array, key: Key) -> Array:
        """What all ranks are to apply, the same bits on each; ``flat`` is left as it is. Collective."""
        if self.residual is None:
            corrected = copy(flat)
        else:
            corrected = self.residual
            corrected += flat
        total, left = exchange(communicator, corrected, key)
        self.residual = left if self._enabled else None
        return total
