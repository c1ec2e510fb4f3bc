"""Rules and optimizers with one planted fault each, and the probe that must find it."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from levelbench.training.optimizers import SGD, Adam, AdamW, Clip, Momentum, UpdateRule
from levelbench.training.optimizers.arrays import sqrt, zeros_like
from levelbench.training.optimizers.base import Optimizer, Stepper


@dataclass(frozen=True)
class MyAdam(UpdateRule):
    """A correct Adam; each fault below changes one line."""

    lr: float = 0.05
    beta1: float = 0.9
    beta2: float = 0.99
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    def init(self, parameter):
        return zeros_like(parameter), zeros_like(parameter)

    def update(self, parameter, gradient, state, step, lr):
        first, second = state
        first = self.beta1 * first + (1 - self.beta1) * gradient
        second = self.beta2 * second + (1 - self.beta2) * gradient * gradient
        return self.moved(parameter, first, second, step, lr), (first, second)

    def moved(self, parameter, first, second, step, lr):
        unbiased = first / (1 - self.beta1**step)
        return parameter - lr * unbiased / (sqrt(second / (1 - self.beta2**step)) + self.epsilon)


class BetasSwapped(MyAdam):
    def update(self, parameter, gradient, state, step, lr):
        first, second = state
        first = self.beta2 * first + (1 - self.beta2) * gradient
        second = self.beta1 * second + (1 - self.beta1) * gradient * gradient
        return self.moved(parameter, first, second, step, lr), (first, second)


class OneBetaForBoth(MyAdam):
    def update(self, parameter, gradient, state, step, lr):
        first, second = state
        first = self.beta1 * first + (1 - self.beta1) * gradient
        second = self.beta1 * second + (1 - self.beta1) * gradient * gradient
        return self.moved(parameter, first, second, step, lr), (first, second)


class EpsilonInsideTheRoot(MyAdam):
    def moved(self, parameter, first, second, step, lr):
        unbiased = first / (1 - self.beta1**step)
        return parameter - lr * unbiased / sqrt(second / (1 - self.beta2**step) + self.epsilon)


class EpsilonBeforeTheCorrection(MyAdam):
    def moved(self, parameter, first, second, step, lr):
        rate = lr * (1 - self.beta2**step) ** 0.5 / (1 - self.beta1**step)
        return parameter - rate * first / (sqrt(second) + self.epsilon)


class NoEpsilon(MyAdam):
    def moved(self, parameter, first, second, step, lr):
        return parameter - lr * first / (1 - self.beta1**step) / sqrt(second / (1 - self.beta2**step))


class FirstMomentNotCorrected(MyAdam):
    def moved(self, parameter, first, second, step, lr):
        return parameter - lr * first / (sqrt(second / (1 - self.beta2**step)) + self.epsilon)


class SecondMomentNotCorrected(MyAdam):
    def moved(self, parameter, first, second, step, lr):
        return parameter - lr * first / (1 - self.beta1**step) / (sqrt(second) + self.epsilon)


class StepCountedFromTwo(MyAdam):
    def moved(self, parameter, first, second, step, lr):
        return super().moved(parameter, first, second, step + 1, lr)


class WrongSign(MyAdam):
    def moved(self, parameter, first, second, step, lr):
        return super().moved(parameter, first, second, step, -lr)


class RateOfItsOwn(MyAdam):
    def moved(self, parameter, first, second, step, lr):
        return super().moved(parameter, first, second, step, self.lr)


class DecayNotScheduled(MyAdam):
    def moved(self, parameter, first, second, step, lr):
        return super().moved(parameter * (1 - self.lr * 0.1), first, second, step, lr)


class StateResetEachStep(MyAdam):
    """As in AcceleGrad's first implementation in the Deep500 paper."""

    def update(self, parameter, gradient, state, step, lr):
        return super().update(parameter, gradient, self.init(parameter), step, lr)


class StateOutside(MyAdam):
    kept: ClassVar[dict[Any, Any]] = {}

    def update(self, parameter, gradient, state, step, lr):
        before = self.kept.get(parameter.shape, state)
        parameter, self.kept[parameter.shape] = super().update(parameter, gradient, before, step, lr)
        return parameter, state


class StateShared(MyAdam):
    largest: ClassVar[list[float]] = [0.0]

    def update(self, parameter, gradient, state, step, lr):
        if step == 1:
            self.largest[0] = 0.0
        self.largest[0] = max(self.largest[0], float(abs(gradient).max(initial=0)))
        return super().update(parameter, gradient / self.largest[0], state, step, lr)


class MomentumLostLate(MyAdam):
    """From step 900 on, as with a schedule of the momentum."""

    def update(self, parameter, gradient, state, step, lr):
        return super().update(parameter, gradient, (state[0] * (step < 900), state[1]), step, lr)


class WiderState(MyAdam):
    def init(self, parameter):
        return np.zeros(parameter.shape), np.zeros(parameter.shape)


class WiderParameter(MyAdam):
    def moved(self, parameter, first, second, step, lr):
        return super().moved(parameter, first, second, step, np.float64(lr))


class ScalarsRefused(MyAdam):
    def moved(self, parameter, first, second, step, lr):
        return super().moved(parameter, first, second, step, lr) + 0 * parameter.shape[0]


class ShapeLost(MyAdam):
    def moved(self, parameter, first, second, step, lr):
        return super().moved(parameter, first, second, step, lr).reshape(-1)


class NotElementwise(MyAdam):
    def update(self, parameter, gradient, state, step, lr):
        return super().update(parameter, gradient / (1 + (gradient * gradient).sum()), state, step, lr)


class NothingMoves(MyAdam):
    def moved(self, parameter, first, second, step, lr):
        super().moved(parameter, first, second, step, lr)
        return parameter


class NotDeterministic(MyAdam):
    random: ClassVar[np.random.Generator] = np.random.default_rng(0)

    def moved(self, parameter, first, second, step, lr):
        return super().moved(parameter, first, second, step, lr * (1 + 1e-3 * self.random.random()))


@dataclass(frozen=True)
class CoupledDecay(AdamW):
    lr: float = 0.05

    def update(self, parameter, gradient, state, step, lr):
        return Adam.update(self, parameter, gradient, state, step, lr)


@dataclass(frozen=True)
class MyMomentum(UpdateRule):
    lr: float = 0.05
    momentum: float = 0.9
    nesterov: bool = False

    def init(self, parameter):
        return zeros_like(parameter)

    def update(self, parameter, gradient, state, step, lr):
        velocity = self.momentum * state + gradient
        return parameter - lr * velocity, velocity


class MomentumOfTheParameter(MyMomentum):
    def update(self, parameter, gradient, state, step, lr):
        velocity = self.momentum * parameter + gradient
        return parameter - lr * velocity, velocity


class MomentumDampened(MyMomentum):
    def update(self, parameter, gradient, state, step, lr):
        velocity = self.momentum * state + (1 - self.momentum) * gradient
        return parameter - lr * velocity, velocity


class GradientKept(MyMomentum):
    """The first velocity is the gradient's own array."""

    def update(self, parameter, gradient, state, step, lr):
        velocity = gradient
        velocity += self.momentum * state
        parameter -= lr * velocity
        return parameter, velocity


@dataclass(frozen=True)
class ClipEach(Optimizer):
    """Clips each gradient by its own norm, not by that of all."""

    optimizer: Optimizer
    lr: float = 0.05

    def start(self, backend, parameters):
        return _ClipEach(self.optimizer.start(backend, parameters))


class _ClipEach(Stepper):
    def __init__(self, inside):
        self.inside = inside

    def step(self, gradients, step, factor):
        norms = {name: float(np.sqrt((each**2).sum())) for name, each in gradients.items()}
        self.inside.step({n: g * min(1.0, 1 / (norms[n] + 1e-6)) for n, g in gradients.items()}, step, factor)

    def state(self):
        return self.inside.state()

    def restore(self, state):
        self.inside.restore(state)


@dataclass(frozen=True)
class NothingRestored(ClipEach):
    def start(self, backend, parameters):
        stepper = super().start(backend, parameters)
        stepper.restore = lambda state: None
        return stepper


MISSED_NESTEROV = MyMomentum(nesterov=True)
FAULTS = [
    (BetasSwapped(), "adam", "reference: quadratic"),
    (OneBetaForBoth(), "adam", "reference: quadratic"),
    (EpsilonInsideTheRoot(), "adam", "reference: small gradients"),
    (EpsilonBeforeTheCorrection(), "adam", "reference: small gradients"),
    (NoEpsilon(), None, "zero gradients"),
    (FirstMomentNotCorrected(), "adam", "first step"),
    (SecondMomentNotCorrected(), "adam", "first step"),
    (StepCountedFromTwo(), "adam", "first step"),
    (WrongSign(), None, "descent"),
    (RateOfItsOwn(), None, "rate zero"),
    (RateOfItsOwn(), None, "rate"),
    (RateOfItsOwn(), "adam", "reference: schedule"),
    (DecayNotScheduled(), None, "rate zero"),
    (StateResetEachStep(), "adam", "reference: quadratic"),
    (StateOutside(), None, "determinism"),
    (StateOutside(), None, "state"),
    (StateShared(), None, "each parameter for itself"),
    (WiderState(), None, "dtype and shape"),
    (WiderParameter(), None, "dtype and shape"),
    (ScalarsRefused(), None, "shapes"),
    (ShapeLost(), None, "dtype and shape"),
    (NotElementwise(), None, "elementwise"),
    (NothingMoves(), None, "descent"),
    (NotDeterministic(), None, "determinism"),
    (CoupledDecay(), AdamW(0.05), "first step"),
    (MISSED_NESTEROV, "momentum", "first step"),
    (MomentumOfTheParameter(), "momentum", "reference: quadratic"),
    (MomentumDampened(), "momentum", "first step"),
    (GradientKept(), None, "gradients"),
    (ClipEach(SGD(0.05)), Clip(SGD(0.05), 1.0), "reference: quadratic"),
    (NothingRestored(Momentum(0.05)), None, "state"),
]
