"""Steppers that resume from a checkpoint, and some that forget something."""

import numpy as np
from tests.distributed.probes.plain import PlainStepper

from levelbench.distributed.schemes.base import BaseStepper, arrays_of, kept_arrays, number, numbers
from levelbench.training.optimizers.arrays import copy, zeros_like


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
