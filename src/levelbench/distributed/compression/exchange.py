"""How ranks add up what compressors made of their gradients, so that all hold the same bits.

The one idea: an exchange takes each rank's flat array and answers with the total, which is the same on all ranks, and
with what of this rank's array is not in it: the arrays of all ranks add up to the total and all that is left.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from levelbench.distributed import traffic
from levelbench.distributed.communicator import Communicator
from levelbench.distributed.compression.arrays import add_at, as_bytes, from_bytes, padded
from levelbench.distributed.compression.base import Compressor
from levelbench.distributed.compression.draws import Key
from levelbench.distributed.compression.sparse import ThresholdCompressor
from levelbench.distributed.scheme import Traffic
from levelbench.networks.executor import Array
from levelbench.training.optimizers.arrays import namespace, sign, zeros_like

__all__ = ["Exchange", "Gathered", "GatheredAnyLength", "InPieces", "Reduced", "Voted"]


class Exchange(ABC):
    """A way to add up compressed arrays."""

    traffic_within: ClassVar[float] = 1.0
    """By what factor the mean of what is sent may differ from :meth:`traffic`: 1 where that is exact."""

    @abstractmethod
    def __call__(self, communicator: Communicator, corrected: Array, key: Key) -> tuple[Array, Array]:
        """The total, and what is left of ``corrected``, which may be overwritten; both of shape (n,). Collective."""

    @abstractmethod
    def traffic(self, size: int, itemsize: int, ranks: int, rank: int) -> Traffic:
        """What ``rank`` sends for ``size`` elements of ``itemsize`` bytes, to within ``traffic_within``."""

    @abstractmethod
    def payload_bytes(self, size: int, itemsize: int) -> int | None:
        """Bytes that stand for a rank's ``size * itemsize``; ``None`` where that varies."""


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
        for data in communicator.all_gather(compressor.joined(payload)):
            total = compressor.add(total, compressor.parted(data, total))
        return total, left

    def traffic(self, size: int, itemsize: int, ranks: int, rank: int) -> Traffic:
        """That of an all-gather of the payload."""
        return traffic.all_gather(self.compressor.nbytes(size, itemsize), 1, ranks, rank)

    def payload_bytes(self, size: int, itemsize: int) -> int:
        """The compressor's."""
        return self.compressor.nbytes(size, itemsize)


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
        """An expectation."""
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
        """That of an all-reduce of the payload's elements."""
        (part,) = self.compressor.parts(size)
        return traffic.all_reduce(part.elements, part.nbytes(itemsize) // max(1, part.elements), ranks, rank)

    def payload_bytes(self, size: int, itemsize: int) -> int:
        """The compressor's."""
        return self.compressor.nbytes(size, itemsize)


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
        for data in communicator.all_to_all([compressor.joined(each) for each in payloads]):
            mine = compressor.add(mine, compressor.parted(data, mine))
        again = compressor.compress(mine, key.at(ranks))
        left = add_at(left, communicator.rank, compressor.add(mine, again, -1.0))
        parts = communicator.all_gather(compressor.joined(again))
        total = xp.concat([compressor.decompress(compressor.parted(data, mine), mine) for data in parts])
        return total[:size], left.reshape(-1)[:size]

    def traffic(self, size: int, itemsize: int, ranks: int, rank: int) -> Traffic:
        """That of an all-to-all of all pieces and of an all-gather of one."""
        nbytes = self.compressor.nbytes(-(-size // ranks), itemsize)
        return traffic.all_to_all(nbytes, 1, ranks, rank) + traffic.all_gather(nbytes, 1, ranks, rank)

    def payload_bytes(self, size: int, itemsize: int) -> int:
        """The compressor's."""
        return self.compressor.nbytes(size, itemsize)
