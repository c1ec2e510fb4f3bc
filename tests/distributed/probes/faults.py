"""Schemes with one fault each, as they occur in practice."""

from time import sleep

from tests.distributed.probes.plain import Plain, PlainStepper

from levelbench.distributed.scheme import Traffic
from levelbench.errors import CommunicationError
from levelbench.measure.timeline import Phase
from levelbench.training.optimizers.arrays import copy


class NoBroadcast(PlainStepper):
    def begin(self):
        pass


class NoBroadcastOfBuffers(PlainStepper):
    def begin(self):
        self.share_out(self.executor.parameters)


class BroadcastFromTheLast(PlainStepper):
    def share_out(self, live):
        for name in live:
            live[name] = self.communicator.broadcast(live[name], self.size - 1)


class RootDropped(PlainStepper):
    """Like the parameter server of Deep500."""

    def reduced(self, name, gradient, step):
        share = 0.0 if self.rank == 0 else self.share
        return self.communicator.all_reduce(gradient * share)


class SumForMean(PlainStepper):
    def reduced(self, name, gradient, step):
        return self.communicator.all_reduce(gradient)


class MeanOfRanks(PlainStepper):
    """Correct as long as all parts have the same size."""

    def reduced(self, name, gradient, step):
        return self.communicator.all_reduce(gradient, "mean")


class MeanTwice(PlainStepper):
    def reduced(self, name, gradient, step):
        return self.communicator.all_reduce(gradient * self.share) / self.size


class OneHopTooFew(PlainStepper):
    """A ring that passes gradients on p - 2 times instead of p - 1."""

    hops = -2

    def reduced(self, name, gradient, step):
        passing = gradient * self.share
        total = copy(passing)
        for _ in range(self.size + self.hops):
            sent = self.communicator.start_send(copy(passing), (self.rank + 1) % self.size)
            passing = self.communicator.receive(passing, (self.rank - 1) % self.size)
            sent.wait()
            total = total + passing
        return total


class SendsBeforeItReceives(OneHopTooFew):
    """A ring that hangs if sends are not buffered; it also adds in another order on each rank."""

    hops = -1

    def reduced(self, name, gradient, step):
        passing = gradient * self.share
        total = copy(passing)
        for _ in range(self.size + self.hops):
            self.communicator.send(passing, (self.rank + 1) % self.size)
            passing = self.communicator.receive(passing, (self.rank - 1) % self.size)
            total = total + passing
        return total


class StaleBuffer(PlainStepper):
    def __init__(self, worker):
        super().__init__(worker)
        self.held = {}

    def reduced(self, name, gradient, step):
        last = self.held.get(name, gradient * 0.0)
        self.held[name] = self.communicator.all_reduce(gradient * self.share)
        return copy(last)


class KeepsTheGradient(PlainStepper):
    """Reads a gradient long after its step."""

    def __init__(self, worker):
        super().__init__(worker)
        self.held = {}

    def reduced(self, name, gradient, step):
        before, self.held[name] = self.held.get(name, gradient), gradient
        return self.communicator.all_reduce((gradient + 1e-3 * before) * self.share)


class AppliedTwice(PlainStepper):
    def update(self, total, step, factor):
        self.inner.step({name: copy(each) for name, each in total.items()}, step, factor)
        self.inner.step(total, step, factor)


class UpdatesBeforeTheEnd(PlainStepper):
    def reduced(self, name, gradient, step):
        gradient = gradient * self.share
        self.handles = [*getattr(self, "handles", []), self.communicator.start_all_reduce(copy(gradient))]
        return gradient

    def update(self, total, step, factor):
        super().update(total, step, factor)
        self.worker.switch(Phase.COMMUNICATE)
        for each in self.handles:
            each.wait()
        self.handles = []
        self.worker.switch(Phase.UPDATE)


class LeavesOneOut(PlainStepper):
    def order(self, gradients):
        return [name for name in gradients if name != "output.bias"]


class FactorOfTheStepBefore(PlainStepper):
    factor = 1.0

    def update(self, total, step, factor):
        self.inner.step(total, step, self.factor)
        self.factor = factor


class StepsFromZero(PlainStepper):
    def update(self, total, step, factor):
        self.inner.step(total, step - 1, factor)


class SkipsEverySeventh(PlainStepper):
    def reduced(self, name, gradient, step):
        if step % 7 == 0 and self.rank == 1:
            return gradient * self.share
        return super().reduced(name, gradient, step)


class OrderByRank(PlainStepper):
    def order(self, gradients):
        return list(gradients)[:: -1 if self.rank else 1]


class AveragesModels(PlainStepper):
    """Equal to one process only with plain gradient descent and even parts."""

    def step(self, gradients, step, factor):
        self.worker.switch(Phase.UPDATE)
        self.inner.step(gradients, step, factor)
        self.worker.switch(Phase.COMMUNICATE)
        live = self.executor.parameters
        for name in live:
            live[name] = self.communicator.all_reduce(live[name] * self.share)
        self.worker.switch(Phase.UPDATE)


class OwnOrderOfSums(PlainStepper):
    """Equal to rounding, but not bit by bit."""

    def reduced(self, name, gradient, step):
        parts = self.communicator.all_gather(gradient * self.share)
        total = parts[self.rank]
        for at in range(1, self.size):
            total = total + parts[(self.rank + at) % self.size]
        return total


class TriesAgain(PlainStepper):
    def reduced(self, name, gradient, step):
        while True:
            try:
                return super().reduced(name, gradient, step)
            except CommunicationError:
                continue


class GoesOnAlone(PlainStepper):
    def step(self, gradients, step, factor):
        try:
            super().step(gradients, step, factor)
        except CommunicationError:
            self.worker.switch(Phase.UPDATE)
            self.update(gradients, step, factor)


class OwnRandomNumbers(PlainStepper):
    made = 0

    def __init__(self, worker):
        super().__init__(worker)
        OwnRandomNumbers.made += 1
        self.noise = 1e-15 * (OwnRandomNumbers.made // self.size)

    def reduced(self, name, gradient, step):
        return self.communicator.all_reduce(gradient * (self.share + self.noise))


class TalksInTheWrongPhase(PlainStepper):
    def step(self, gradients, step, factor):
        self.worker.switch(Phase.UPDATE)
        self.update({name: self.reduced(name, each, step) for name, each in gradients.items()}, step, factor)


class MeetingMovesWeights(PlainStepper):
    def meet(self):
        for name in self.executor.parameters:
            self.executor.parameters[name] = self.executor.parameters[name] * 0.5


class Misdeclared(Plain):
    def traffic(self, parameters, itemsize, size, rank):
        one = super().traffic(parameters, itemsize, size, rank)
        return Traffic(one.sent_bytes, one.messages - 1)


class NeverEnds(PlainStepper):
    def reduced(self, name, gradient, step):
        while self.rank == 1 and step == 3:
            sleep(0.05)
        return super().reduced(name, gradient, step)


class AsksForEver(PlainStepper):
    """Rank 1 polls for a message that is never sent."""

    def reduced(self, name, gradient, step):
        if self.rank == 1 and step == 3:
            handle = self.communicator.start_receive(copy(gradient), 0, tag=5)
            while not handle.done():
                pass
        return super().reduced(name, gradient, step)


class Raises(PlainStepper):
    def reduced(self, name, gradient, step):
        if self.rank == 1 and step == 3:
            raise ZeroDivisionError("of the scheme")
        return super().reduced(name, gradient, step)
