"""Schemes with one fault each, as they occur in practice, and right ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from time import sleep
from typing import ClassVar

import numpy as np

from levelbench.checks.self_test import Planted
from levelbench.distributed import traffic
from levelbench.distributed.scheme import Scheme, SchemeStepper, Traffic
from levelbench.distributed.schemes.base import BaseStepper, arrays_of, kept_arrays, number, numbers
from levelbench.errors import CommunicationError
from levelbench.measure.timeline import Phase
from levelbench.training.optimizers.arrays import copy, zeros_like


class PlainStepper(SchemeStepper):
    def __init__(self, worker):
        self.worker, self.executor, self.communicator = worker, worker.executor, worker.communicator
        self.rank, self.size = self.communicator.rank, self.communicator.size
        self.begin()
        self.inner = worker.optimizer.start(worker.backend, worker.executor.parameters)

    def begin(self):
        self.worker.switch(Phase.COMMUNICATE)
        self.share_out(self.executor.parameters)
        self.share_out(self.executor.buffers)

    def share_out(self, live):
        for name in live:
            live[name] = self.communicator.broadcast(live[name])

    def step(self, gradients, step, factor):
        self.worker.switch(Phase.COMMUNICATE)
        total = {name: self.reduced(name, gradients[name], step) for name in self.order(gradients)}
        self.worker.switch(Phase.UPDATE)
        self.update(total, step, factor)

    def order(self, gradients):
        return list(gradients)

    def reduced(self, name, gradient, step):
        return self.communicator.all_reduce(gradient * self.share)

    def update(self, total, step, factor):
        self.inner.step(total, step, factor)


@dataclass(frozen=True)
class Plain(Scheme):
    """One all-reduce per parameter."""

    name: ClassVar[str] = "plain"
    source: ClassVar[str] = "Li et al. 2020"
    consistent: ClassVar[bool] = True
    replicated: ClassVar[bool] = True
    stepper: ClassVar[type[SchemeStepper]] = PlainStepper

    def start(self, worker):
        return self.stepper(worker)

    def traffic(self, parameters: Mapping[str, tuple[int, ...]], itemsize, size, rank):
        return sum(
            (traffic.all_reduce(prod(shape), itemsize, size, rank) for shape in parameters.values()), Traffic(0, 0)
        )


def scheme_of(kind, **claims):
    """A scheme with this stepper."""
    return dataclass(frozen=True)(type(kind.__name__, (Plain,), {"stepper": kind, **claims}))()


# Faults of schemes that claim to equal one process.


class NoBroadcast(PlainStepper):
    def begin(self):
        pass


class NoBroadcastOfBuffers(PlainStepper):
    def begin(self):
        self.share_out(self.executor.parameters)


class ZeroesBuffers(PlainStepper):
    def step(self, gradients, step, factor):
        self.executor.buffers.update({name: each * 0.0 for name, each in self.executor.buffers.items()})
        super().step(gradients, step, factor)


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


@dataclass(frozen=True)
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


class IgnoresNaN(PlainStepper):
    """Infinities still show."""

    def reduced(self, name, gradient, step):
        cleaned = gradient.copy()
        cleaned[cleaned != cleaned] = 0
        return self.communicator.all_reduce(cleaned * self.share)


class ClipsGradients(PlainStepper):
    """Right as long as no gradient is large."""

    def reduced(self, name, gradient, step):
        return self.communicator.all_reduce(gradient.clip(-1e4, 1e4) * self.share)


class RefusesNaN(PlainStepper):
    """An error is a way to say it."""

    def reduced(self, name, gradient, step):
        total = self.communicator.all_reduce(gradient * self.share)
        if not np.isfinite(total).all():
            raise CommunicationError("a step", "a gradient is not finite", "lower the learning rate")
        return total


# Schemes that do not claim to equal one process, with one fault each.


class Lopsided(PlainStepper):
    """Neighbours on a line instead of a ring: rank 0 and the last one mix with a single neighbour."""

    def step(self, gradients, step, factor):
        self.worker.switch(Phase.UPDATE)
        self.inner.step(gradients, step, factor)
        self.worker.switch(Phase.COMMUNICATE)
        others = [each for each in (self.rank - 1, self.rank + 1) if 0 <= each < self.size]
        live = self.executor.parameters
        for name in live:
            received = self.communicator.exchange(live[name], others)
            live[name] = (live[name] + sum(received)) / (1 + len(others))
        self.worker.switch(Phase.UPDATE)

    def averaged(self):
        live = self.executor.parameters
        return {name: self.communicator.all_reduce(live[name] / self.size) for name in live}


class EvaluatesItsOwn(Lopsided):
    def averaged(self):
        return None


class AveragesAlike(PlainStepper):
    def reduced(self, name, gradient, step):
        return self.communicator.all_reduce(gradient, "mean")


class LosesARank(PlainStepper):
    """Sends only large elements, keeps the rest for later, and leaves out what rank 1 sends."""

    def __init__(self, worker):
        super().__init__(worker)
        self.rest = {}

    def reduced(self, name, gradient, step):
        whole = gradient * self.share + self.rest.get(name, gradient * 0.0)
        sent = whole * (abs(whole) > 0.5)
        self.rest[name] = whole - sent
        return self.communicator.all_reduce(sent * (self.rank != 1))


class Climbs(Lopsided):
    def step(self, gradients, step, factor):
        super().step({name: -each for name, each in gradients.items()}, step, factor)


class OffByOneNeighbour(Lopsided):
    """Mixes with the next two ranks instead of the previous and next one, which do not expect it."""

    def step(self, gradients, step, factor):
        self.worker.switch(Phase.UPDATE)
        self.inner.step(gradients, step, factor)
        self.worker.switch(Phase.COMMUNICATE)
        others = [(self.rank + 1) % self.size, (self.rank + 2) % self.size]
        live = self.executor.parameters
        for name in live:
            live[name] = (live[name] + sum(self.communicator.exchange(live[name], others))) / 3
        self.worker.switch(Phase.UPDATE)


# Steppers that resume from a checkpoint, and some that forget something.


class Feeds(BaseStepper):
    """Sends three quarters of the gradient and keeps the rest for the next step."""

    kept = True

    def __init__(self, worker):
        super().__init__(worker)
        self.left = {name: zeros_like(each) for name, each in self.parameters.items()}

    def step(self, gradients, step, factor):
        whole = {name: each * self.share + self.left[name] for name, each in gradients.items()}
        self.left = {name: each * 0.25 for name, each in whole.items()}
        self.update({name: self.communicator.all_reduce(each * 0.75) for name, each in whole.items()}, step, factor)

    def state(self):
        return super().state() | kept_arrays("left", self.worker.backend, self.left)

    def restore(self, state):
        super().restore(state)
        self.left = arrays_of("left", self.worker.backend, state)


class ForgetsItsFeedback(Feeds):
    def state(self):
        return BaseStepper.state(self)

    def restore(self, state):
        BaseStepper.restore(self, state)


class RestoresNothing(Feeds):
    def restore(self, state):
        pass


class ForgetsTheOptimizer(Feeds):
    def state(self):
        return kept_arrays("left", self.worker.backend, self.left)

    def restore(self, state):
        self.left = arrays_of("left", self.worker.backend, state)


class OnlyTheFirstKeepsIt(Feeds):
    def restore(self, state):
        super().restore(state)
        if self.communicator.rank:
            self.left = {name: zeros_like(each) for name, each in self.left.items()}


class GoesOnFromAnothersState(Feeds):
    """Resumes from the state of the next rank."""

    def restore(self, state):
        every = {name: self.communicator.all_gather(np.atleast_1d(each)) for name, each in state.items()}
        other = (self.communicator.rank + 1) % self.communicator.size
        super().restore({name: every[name][other].reshape(each.shape) for name, each in state.items()})


class ForgetsHowFarTheRoundIs(BaseStepper):
    """Averages the models at every third step, counted from its start."""

    kept = True

    def __init__(self, worker):
        super().__init__(worker)
        self.made = 0

    def step(self, gradients, step, factor):
        self.update(gradients, step, factor)
        self.made += 1
        if self.made % 3 == 0:
            self.parameters.update(self.mean_of_ranks())

    def averaged(self):
        return self.mean_of_ranks()


class KnowsHowFarTheRoundIs(ForgetsHowFarTheRoundIs):
    def state(self):
        return super().state() | numbers(made=self.made)

    def restore(self, state):
        super().restore(state)
        self.made = number("made", state)


class CountsRounds(BaseStepper):
    """Averages the models at every third step; its optimizer gets the number of the round, not of the step."""

    def step(self, gradients, step, factor):
        self.update(gradients, (step + 2) // 3, factor)
        if step % 3 == 0:
            self.parameters.update(self.mean_of_ranks())

    def averaged(self):
        return self.mean_of_ranks()


class IsChangedByKeeping(Feeds):
    def state(self):
        self.left = {name: each * 0 for name, each in self.left.items()}
        return super().state()


class KeepsText(Feeds):
    def state(self):
        return super().state() | numbers(name="gather")


class HasNoState(PlainStepper):
    kept = True


class TakesInWhatIsUnderWay(Feeds):
    """Delays an update to the next step; state() applies it to the parameters, which are saved afterwards."""

    kept = True

    def __init__(self, worker):
        super().__init__(worker)
        self.held = None

    def step(self, gradients, step, factor):
        self.settle()
        summed = {name: copy(self.communicator.all_reduce(each * self.share)) for name, each in gradients.items()}
        self.held = summed, step, factor

    def settle(self):
        if self.held is not None:
            self.update(*self.held)
        self.held = None

    def meet(self):
        self.settle()

    def state(self):
        self.settle()
        return super().state()


def planted(kind, fault, *aspects, **claims):
    """Register a scheme with this stepper."""
    made = Misdeclared() if kind is Misdeclared else scheme_of(kind, **claims)
    globals()[kind.__name__.lower()] = made
    CASES[kind.__name__.lower()] = Planted(fault, aspects)


CASES = {}
INCONSISTENT = {"consistent": False, "replicated": False}

planted(NoBroadcast, "ranks start with their own parameters", "initial broadcast")
planted(NoBroadcastOfBuffers, "ranks start with their own buffers", "initial broadcast")
planted(BroadcastFromTheLast, "the last rank's parameters are taken", "initial broadcast")
planted(ZeroesBuffers, "each step zeroes the buffers", "initial broadcast")
planted(RootDropped, "rank 0 does not count", "gradients")
planted(SumForMean, "a sum for a mean", "gradients")
planted(MeanOfRanks, "a mean of ranks, whatever their parts", "gradients")
planted(MeanTwice, "divided by the number of ranks twice", "gradients")
planted(OneHopTooFew, "a ring of one hop too few", "gradients")
planted(StaleBuffer, "the gradients of the step before", "gradients")
planted(AppliedTwice, "the optimizer steps twice", "gradients", "optimizer")
planted(UpdatesBeforeTheEnd, "it does not wait for the others' gradients", "gradients")
planted(LeavesOneOut, "one parameter is never updated", "gradients", "optimizer")
planted(FactorOfTheStepBefore, "the rate of the step before", "gradients", "optimizer")
planted(StepsFromZero, "steps counted from 0", "optimizer")
planted(SkipsEverySeventh, "a rank leaves out every seventh step", "goes through", "gradients")
planted(OrderByRank, "ranks call in another order", "goes through")
planted(AveragesModels, "it averages models and claims to be consistent", "one process")
planted(OwnOrderOfSums, "each rank sums in its own order", "ranks agree")
planted(KeepsTheGradient, "it keeps a gradient's memory", "own memory")
planted(SendsBeforeItReceives, "a ring that needs buffered sends", "unbuffered sends", "ranks agree")
planted(TriesAgain, "it tries again forever when a rank is lost", "lost rank")
planted(GoesOnAlone, "it goes on alone when a rank is lost", "lost rank")
planted(IgnoresNaN, "NaN becomes 0", "not finite")
planted(ClipsGradients, "large gradients are cut", "not finite")
planted(OwnRandomNumbers, "noise that differs from run to run", "determinism")
planted(TalksInTheWrongPhase, "it communicates in the update phase", "phases")
planted(MeetingMovesWeights, "an evaluation changes weights", "pauses")
planted(NeverEnds, "a rank never ends", "goes through")
planted(AsksForEver, "a rank polls forever", "goes through")
planted(Raises, "a rank raises", "goes through")
planted(Misdeclared, "it declares too few messages", "traffic")
planted(Lopsided, "a line in place of a ring", "every worker counts", **INCONSISTENT)
planted(LosesARank, "a rank does not count", "every worker counts", **INCONSISTENT)
planted(AveragesAlike, "a mean of ranks, whatever their parts", "every worker counts", **INCONSISTENT)
planted(EvaluatesItsOwn, "each rank evaluates its own weights", "evaluated weights", **INCONSISTENT)
planted(Climbs, "the wrong sign", "learns", "every worker counts", **INCONSISTENT)
planted(OffByOneNeighbour, "neighbours that do not expect each other", "goes through", **INCONSISTENT)
planted(ForgetsItsFeedback, "the feedback is not saved", "checkpoints", **INCONSISTENT)
planted(RestoresNothing, "restore does nothing", "checkpoints", **INCONSISTENT)
planted(ForgetsTheOptimizer, "the optimizer's state is not saved", "checkpoints", **INCONSISTENT)
planted(OnlyTheFirstKeepsIt, "only rank 0 restores its feedback", "checkpoints", **INCONSISTENT)
planted(GoesOnFromAnothersState, "the state of the next rank", "checkpoints", **INCONSISTENT)
planted(ForgetsHowFarTheRoundIs, "the place in the round is not saved", "checkpoints", **INCONSISTENT)
planted(CountsRounds, "the number of the round for that of the step", "equal gradients", **INCONSISTENT)
planted(IsChangedByKeeping, "saving changes the state", "checkpoints", **INCONSISTENT)
planted(TakesInWhatIsUnderWay, "saving applies what is under way", "checkpoints", **INCONSISTENT)
planted(KeepsText, "text in the state", "checkpoints", **INCONSISTENT)
planted(HasNoState, "it declares a state and has none", "checkpoints", **INCONSISTENT)
planted(PlainStepper, None)
planted(RefusesNaN, None)
