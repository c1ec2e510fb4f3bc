"""How ranks sum compressed gradients so that all hold the same bits.

An exchange takes each rank's flat array and returns the total, which is the same on all ranks, and the part of this
rank's array that is not in it: the arrays of all ranks sum to the total plus everything left. Error feedback adds what
is left to the next gradient, so nothing is lost, whatever the compressor.
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
    """A way to sum compressed arrays."""

    compressor: Compressor
    traffic_within: ClassVar[float] = 1.0
    """The factor by which the mean sent may differ from :meth:`traffic`: 1 if that is exact."""

    @abstractmethod
    def __call__(self, communicator: Communicator, corrected: Array, key: Key) -> tuple[Array, Array]:
        """The total, and what is left of ``corrected``, which may be overwritten; both have shape (n,). Collective."""

    @abstractmethod
    def traffic(self, size: int, itemsize: int, ranks: int, rank: int) -> Traffic:
        """What ``rank`` sends for ``size`` elements of ``itemsize`` bytes, to within ``traffic_within``."""

    def payload_bytes(self, size: int, itemsize: int) -> int | None:
        """The bytes that represent a rank's ``size * itemsize``; ``None`` if that varies."""
        return self.compressor.nbytes(size, itemsize)


@dataclass(frozen=True)
class Gathered(Exchange):
    """All ranks get all payloads and add them in rank order, which makes the sums bitwise identical."""

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
    """The sign of the sum of the payloads: the majority vote (Bernstein et al. 2018), 0 for a tie."""

    def __call__(self, communicator: Communicator, corrected: Array, key: Key) -> tuple[Array, Array]:
        """One all-gather of bytes. Nothing is left, since a vote is not part of a sum."""
        total, left = super().__call__(communicator, corrected, key)
        # PyTorch's sign of NaN is 0.
        return namespace(total).where(total == total, sign(total), total), zeros_like(left)


@dataclass(frozen=True)
class GatheredAnyLength(Exchange):
    """Like :class:`Gathered`, for payloads of values and places whose number differs between ranks.

    Counts are exchanged first; then each rank sends as much as the fullest one, padded. How much that is depends on the
    gradients: :meth:`traffic` expects the share ``expected`` of all elements.
    """

    # The share is the user's guess, and the fullest rank has more than the mean one.
    traffic_within: ClassVar[float] = 2.0
    compressor: SparseCompressor
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
        """Return ``None``: it varies."""


@dataclass(frozen=True)
class Reduced(Exchange):
    """For payloads whose first array can be summed directly, while the others are the same on all ranks."""

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
    """An all-reduce of compressed pieces: each rank sums one piece and sends the sum, compressed again.

    Unlike with gathered payloads, the bytes do not grow with the number of ranks, and sums are computed in the
    gradient's own type. What the second compression leaves out goes to the residual of the rank that made it, so
    nothing is lost (Seide et al. 2014, section 3.2; Tang et al. 2019). All pieces have the same length, the last ones
    padded with zeros.
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
        """That of an all-to-all of all pieces and an all-gather of one."""
        nbytes = self.compressor.nbytes(-(-size // ranks), itemsize)
        return traffic.all_to_all(nbytes, 1, ranks, rank) + traffic.all_gather(nbytes, 1, ranks, rank)


_TAG = 17
_HEADER_BYTES = 8
_WIDTHS = {"int32": 4, "int64": 8}


@dataclass(frozen=True)
class SparseStream:
    """A flat array: (values, places) with distinct places, or all values if ``places`` is ``None``."""

    values: Array
    places: Array = None

    def dense(self, like: Array) -> Array:
        """All values, in the shape of ``like``."""
        return self.values if self.places is None else add_at(zeros_like(like), self.places, self.values)


def merged(first: SparseStream, second: SparseStream, like: Array) -> SparseStream:
    """The sum: dense if that takes no more bytes (Renggli et al. 2019, section 5.1). Overwrites dense arguments."""
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
    """Streams are merged in log2 p rounds; ranks beyond a power of two hand theirs to a neighbour and get the sum back.

    An 8-byte message before each message gives its number of values. That depends on how often ranks choose the same
    place, so :meth:`traffic` is an expectation, as if each chose its places at random.
    """

    # Magnitudes are not uniform, so ranks coincide a little more often than at random.
    traffic_within: ClassVar[float] = 1.05
    compressor: SparseCompressor

    def __call__(self, communicator: Communicator, corrected: Array, key: Key) -> tuple[Array, Array]:
        """Two messages each way per round."""
        values, places = self.compressor.compress(corrected, key)
        left = self.compressor.add(corrected, (values, places), -1.0)
        rank, like = communicator.rank, left
        # Dense streams are added to in place, and these values may belong to the compressor.
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
            sends = [communicator.start_send(message, partner, _TAG) for message in _messages(stream, like)]
            theirs = _receive(communicator, partner, like)
            for each in sends:
                each.wait()
            stream = merged(stream, theirs, like) if rank < partner else merged(theirs, stream, like)
        if folded.paired:
            _send(communicator, stream, folded.other, like)
        return stream.dense(like), left

    def traffic(self, size: int, itemsize: int, ranks: int, rank: int) -> Traffic:
        """If m ranks choose k of n places at random, n (1 - (1 - k / n)^m) are chosen; messages are exact."""
        unnamed = 1 - self.compressor.parts(size)[0].elements / size if size else 1.0

        def message(holders: int) -> Traffic:
            sparse = size * (1 - unnamed**holders) * (itemsize + _WIDTHS[index_type(size)])
            return Traffic(min(sparse, size * itemsize) + _HEADER_BYTES, 2)

        folded = traffic.FoldedRank(rank, ranks)
        if folded.aside:
            return message(1)
        total = message(ranks) if folded.paired else Traffic(0, 0)
        for level in range(folded.levels):
            # The ranks whose arrays are in what a rank sends in this round.
            first = folded.number >> level << level
            total += message(sum(2 if each < folded.extra else 1 for each in range(first, first + (1 << level))))
        return total

    def payload_bytes(self, size: int, itemsize: int) -> int:
        """The bytes of a rank's own stream."""
        return min(self.compressor.nbytes(size, itemsize), size * itemsize)


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


@final
class ErrorFeedback:
    """e := e + g; the exchange of e; e := what it left (Seide et al. 2014; Stich et al. 2018; Karimireddy et al. 2019).

    ``enabled=False`` discards what is left.
    """

    def __init__(self, enabled: bool = True) -> None:
        self._enabled = enabled
        self.residual: Array = None
        """What is left on this rank, shape (n,); ``None`` before the first exchange, or if it is discarded."""

    def total(self, communicator: Communicator, exchange: Exchange, flat: Array, key: Key) -> Array:
        """What all ranks are to apply, bitwise identical; ``flat`` is not changed. Collective."""
        if self.residual is None:
            corrected = copy(flat)
        else:
            corrected = self.residual
            corrected += flat
        total, left = exchange(communicator, corrected, key)
        self.residual = left if self._enabled else None
        return total
