"""Communicators with one fault each, based on a correct one, and right ones."""

import re
from typing import ClassVar

import numpy as np

from levelbench.checks.self_test import Planted
from levelbench.distributed.communicator import Done, Handle
from levelbench.distributed.communicators.wrapping import WrappingCommunicator
from levelbench.distributed.packing import pieces

CASES = {}


def plant(*probes):
    """Register a faulty communicator, named after its fault, and the probes of which at least one must find it."""

    def keep(kind):
        CASES[kind.__name__] = Planted(re.sub("(?=[A-Z])", " ", kind.__name__).strip().lower(), probes)
        return kind

    return keep


class Now(WrappingCommunicator):
    """Non-blocking operations call the blocking ones, so that a fault in one is a fault in both."""

    def start_all_reduce(self, array, op="sum"):
        return Done(self.all_reduce(array, op))

    def start_broadcast(self, array, root=0):
        return Done(self.broadcast(array, root))


@plant("all-reduce")
class SumsWronglyOnOneRank(Now):
    def all_reduce(self, array, op="sum"):
        found = super().all_reduce(array, op)
        if self.rank == 1:
            found += 1
        return found


@plant("all-reduce")
class MeanForSum(Now):
    def all_reduce(self, array, op="sum"):
        return super().all_reduce(array, op if array.dtype == np.int64 else "mean")


@plant("all-reduce")
class SumForMean(Now):
    def all_reduce(self, array, op="sum"):
        return super().all_reduce(array, "sum")


@plant("all-reduce")
class DropsTheContributionOfRankZero(Now):
    def all_reduce(self, array, op="sum"):
        if self.rank == 0:
            array *= 0
        return super().all_reduce(array, op)


@plant("all-reduce")
class ReturnsTheResultOfTheLastCall(Now):
    kept = None

    def all_reduce(self, array, op="sum"):
        found = super().all_reduce(array, op)
        stale, self.kept = self.kept, found.copy()
        if stale is not None and stale.shape == found.shape and stale.dtype == found.dtype:
            found[...] = stale
        return found


@plant("all-reduce")
class LeavesTheArrayThatWasGivenAsItWas(Now):
    def all_reduce(self, array, op="sum"):
        return super().all_reduce(array.copy(), op)


@plant("all-reduce")
class AnswersInAnotherDtype(Now):
    def all_reduce(self, array, op="sum"):
        return super().all_reduce(array, op).astype(np.float64)


@plant("all-reduce is the same on all ranks")
class AddsInAnOrderOfItsOwnOnEachRank(Now):
    def all_reduce(self, array, op="sum"):
        parts = self.inner.all_gather(array)
        total = sum(parts[self.rank :] + parts[: self.rank])
        total = (total / self.size if op == "mean" else total).astype(array.dtype)
        if not array.flags.writeable:
            return total
        array[...] = total
        return array


@plant("layouts")
class WritesOverWhatLiesBetween(Now):
    def all_reduce(self, array, op="sum"):
        found = super().all_reduce(array, op)
        if array.base is not None and array.ndim == 1 and not array.flags.c_contiguous:
            array.base[...] = array.base[0]
        return found


@plant("broadcast")
class TakesTheRankAfterTheRoot(Now):
    def broadcast(self, array, root=0):
        return super().broadcast(array, (root + 1) % self.size)


@plant("results are one's own")
class SharesTheMemoryOfTheRoot(Now):
    shelf: ClassVar = {}

    def broadcast(self, array, root=0):
        if self.rank == root:
            self.shelf[0] = array
        found = super().broadcast(array, root)
        self.inner.barrier()
        found = self.shelf[0] if found.flags.writeable and self.shelf[0].shape == found.shape else found
        self.inner.barrier()
        return found


@plant("all-gather", "place")
class SwapsTwoRanksInAllGather(Now):
    def all_gather(self, array):
        found = super().all_gather(array)
        return (found[1], found[0], *found[2:])


@plant("all-gather")
class AnswersWithItsOwnArrayForAll(Now):
    def all_gather(self, array):
        return (array.copy(),) * self.size


@plant("gather")
class GathersEverywhere(Now):
    def gather(self, array, root=0):
        return self.inner.all_gather(array)


@plant("gather")
class GathersAtRankZeroWhateverTheRoot(Now):
    def gather(self, array, root=0):
        return super().gather(array, 0)


@plant("scatter")
class ScattersTheFirstArrayToAll(Now):
    def scatter(self, arrays, like, root=0):
        return super().scatter(arrays and [arrays[0]] * self.size, like, root)


@plant("all-to-all")
class KeepsWhatItShouldSend(Now):
    def all_to_all(self, arrays):
        return tuple(each.copy() for each in arrays)


@plant("reduce-scatter")
class PutsTheLargerPiecesLast(Now):
    def reduce_scatter(self, array, op="sum"):
        total = self.inner.all_reduce(array.copy(), op)
        ends = [len(array) - each for each in reversed(pieces(len(array), self.size))]
        return total[ends[self.rank] : ends[self.rank + 1]]


@plant("reduce-scatter")
class NeverDividesAPiece(Now):
    def reduce_scatter(self, array, op="sum"):
        return super().reduce_scatter(array, "sum")


@plant("send and receive", "order of messages")
class LosesEverySeventhMessage(Now):
    sent = 0

    def start_send(self, array, to, tag=0):
        self.sent += 1
        return Done(array) if self.sent % 7 == 0 else super().start_send(array, to, tag)


@plant("send and receive")
class SendsWhatIsThereLater(Now):
    def start_send(self, array, to, tag=0):
        return Done(super().start_send(array, to, tag).wait() if array.ndim == 0 else self._late(array, to, tag))

    def _late(self, array, to, tag):
        zeros = array * 0
        self.inner.send(zeros, to, tag)
        return array


@plant("order of messages")
class DeliversTheLastMessageFirst(Now):
    held = None

    def start_send(self, array, to, tag=0):
        if tag != 3:
            return super().start_send(array, to, tag)
        if self.held is None:
            self.held = array
            return Done(array)
        for each in (array, self.held):
            self.inner.send(each, to, tag)
        self.held = None
        return Done(array)


@plant("tags")
class IgnoresTags(Now):
    def start_send(self, array, to, tag=0):
        return super().start_send(array, to, 0)

    def start_receive(self, like, source, tag=0):
        return super().start_receive(like, source, 0)

    def receive(self, like, source, tag=0):
        return super().receive(like, source, 0)

    def send(self, array, to, tag=0):
        super().send(array, to, 0)

    def receive_any(self, like, tag=0):
        return super().receive_any(like, 0)


@plant("receive from any")
class TakesTheWrongRankForTheSender(Now):
    def receive_any(self, like, tag=0):
        found, source = super().receive_any(like, tag)
        return found, (source + 1) % self.size


@plant("exchange")
class AnswersInTheOrderOfRanks(Now):
    def exchange(self, array, neighbours):
        return super().exchange(array, sorted(neighbours))


@plant("exchange")
class IsOffByOneNeighbour(Now):
    def exchange(self, array, neighbours):
        found = super().exchange(array, neighbours)
        return (*found[1:], *found[:1])


@plant("barrier")
class DoesNotWaitAtABarrier(Now):
    def barrier(self):
        return None


class Never(Handle):
    def __init__(self, inner):
        self._inner = inner

    def wait(self):
        return self._inner.wait()

    def done(self):
        return False


@plant("handles")
class IsNeverDone(WrappingCommunicator):
    def start_all_reduce(self, array, op="sum"):
        return Never(super().start_all_reduce(array, op))


@plant("handles")
class MixesUpTheResultsOfTwoHandles(WrappingCommunicator):
    last = None

    def start_broadcast(self, array, root=0):
        self.last = array
        return super().start_broadcast(array, root)

    def start_send(self, array, to, tag=0):
        # One buffer for everything in progress.
        if self.last is not None and self.last.shape == array.shape and tag == 2:
            self.last[...] = array
            array = self.last
        return super().start_send(array, to, tag)


@plant("ranks that are not there")
class TakesRanksModuloTheirNumber(Now):
    def gather(self, array, root=0):
        return super().gather(array, root % self.size)


@plant("place")
class CountsRanksFromOne(Now):
    def __init__(self, inner):
        super().__init__(inner)
        self.rank = inner.rank + 1


class Forwards(WrappingCommunicator):
    """Does as the communicator that it wraps."""


CASES |= {"Forwards": Planted(None), "Now": Planted(None)}
