"""Optimizers with one planted fault each, and right ones: what `check` must find, and whom it must not accuse.

They were written before the probes of shapes, rates, late steps and values that are not finite, by someone who had not
read the other probes either. Each names the reference that it is compared with, and whether its fault also shows
without one: a different formula does not.
"""

from __future__ import annotations

import math
import random
import re
import sys
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from levelbench.checks.self_test import Planted
from levelbench.training.optimizers import EMA, AdamW, AveragingRule, Clip, Momentum, Native, UpdateRule
from levelbench.training.optimizers.arrays import copy, maximum, minimum, namespace, norm, sign, sqrt, where, zeros_like
from levelbench.training.optimizers.base import Optimizer, RuleStepper, Stepper

# Rules that are correct until a subclass changes one line.


@dataclass(frozen=True)
class Velocity(UpdateRule):
    """Momentum as a textbook has it."""

    lr: float = 0.01
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0

    def init(self, parameter):
        return zeros_like(parameter)

    def velocity(self, state, gradient):
        return self.momentum * state + gradient

    def direction(self, gradient, new, old):
        return gradient + self.momentum * new if self.nesterov else new

    def update(self, parameter, gradient, state, step, lr):
        if self.weight_decay:
            gradient = gradient + self.weight_decay * parameter
        new = self.velocity(state, gradient)
        return parameter - lr * self.direction(gradient, new, state), new


@dataclass(frozen=True)
class ByLoop(Velocity):
    """The same, one array after another."""

    elementwise: ClassVar[bool] = False


@dataclass(frozen=True)
class Textbook(UpdateRule):
    """Adam as its paper has it."""

    lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    def init(self, parameter):
        return zeros_like(parameter), zeros_like(parameter)

    def count(self, step):
        return step

    def denominator(self, second, step):
        return sqrt(second / (1 - self.beta2**step)) + self.epsilon

    def square(self, gradient):
        return gradient * gradient

    def decayed(self, parameter, lr):
        return parameter * (1 - lr * self.weight_decay) if self.weight_decay else parameter

    def update(self, parameter, gradient, state, step, lr):
        step = self.count(step)
        first = self.beta1 * state[0] + (1 - self.beta1) * gradient
        second = self.beta2 * state[1] + (1 - self.beta2) * self.square(gradient)
        change = first / (1 - self.beta1**step) / self.denominator(second, step)
        return self.decayed(parameter, lr) - lr * change, (first, second)


@dataclass(frozen=True)
class TextbookByLoop(Textbook):
    """The same, one array after another."""

    elementwise: ClassVar[bool] = False


# Faults in the formula.


class BiasLate(Textbook):
    """The bias correction is off by one after 1,000 steps."""

    def count(self, step):
        return step if step <= 1000 else step - 1


class BiasGone(Textbook):
    """No step after the 5,000th."""

    def update(self, parameter, gradient, state, step, lr):
        return super().update(parameter, gradient, state, step, lr if step <= 5000 else 0.0)


class BiasFromZero(Textbook):
    """The correction of the second moment uses the number of the next step."""

    def denominator(self, second, step):
        return sqrt(second / (1 - self.beta2 ** (step + 1))) + self.epsilon


class EpsilonInside(Textbook):
    """Epsilon is inside the root."""

    def denominator(self, second, step):
        return sqrt(second / (1 - self.beta2**step) + self.epsilon)


class EpsilonUncorrected(Textbook):
    """Epsilon is added before the bias correction."""

    def denominator(self, second, step):
        return (sqrt(second) + self.epsilon) / math.sqrt(1 - self.beta2**step)


class FirstPower(Textbook):
    """The magnitude of the gradient in place of its square."""

    def square(self, gradient):
        return abs(gradient)


class HalfMoment(TextbookByLoop):
    """The second moment passes through half precision."""

    def square(self, gradient):
        xp = namespace(gradient)
        return xp.astype(xp.astype(gradient * gradient, xp.float16), gradient.dtype)


@dataclass(frozen=True)
class DecayCoupled(Textbook):
    """AdamW whose decay is added to the gradient."""

    weight_decay: float = 0.01

    def update(self, parameter, gradient, state, step, lr):
        gradient = gradient + self.weight_decay * parameter
        return super().update(parameter, gradient, state, step, lr)

    def decayed(self, parameter, lr):
        return parameter


@dataclass(frozen=True)
class DecayUnscheduled(Textbook):
    """AdamW whose decay ignores the schedule."""

    weight_decay: float = 0.01

    def decayed(self, parameter, lr):
        return parameter * (1 - self.lr * self.weight_decay)


@dataclass(frozen=True)
class DecayAfter(Textbook):
    """AdamW that decays the weights after its step."""

    weight_decay: float = 0.01

    def update(self, parameter, gradient, state, step, lr):
        parameter, state = super().update(parameter, gradient, state, step, lr)
        return parameter * (1 - lr * self.weight_decay), state

    def decayed(self, parameter, lr):
        return parameter


@dataclass(frozen=True)
class NesterovOld(Velocity):
    """Nesterov's step with the velocity of before."""

    nesterov: bool = True

    def direction(self, gradient, new, old):
        return gradient + self.momentum * old


@dataclass(frozen=True)
class NesterovWhole(Velocity):
    """Nesterov's step without the factor of the velocity."""

    nesterov: bool = True

    def direction(self, gradient, new, old):
        return gradient + new


class RateInside(Velocity):
    """The velocity holds the rate, so that a schedule acts late."""

    def update(self, parameter, gradient, state, step, lr):
        new = self.momentum * state + lr * gradient
        return parameter - new, new


class Dampened(Velocity):
    """The gradient enters with 1 - momentum, except for the first."""

    def update(self, parameter, gradient, state, step, lr):
        new = gradient + 0 * state if step == 1 else self.momentum * state + (1 - self.momentum) * gradient
        return parameter - lr * new, new


class Forgets(Velocity):
    """The velocity starts anew every 128 steps."""

    def update(self, parameter, gradient, state, step, lr):
        return super().update(parameter, gradient, 0 * state if step % 128 == 0 else state, step, lr)


@dataclass(frozen=True)
class LionSwapped(UpdateRule):
    """Lion whose two rates of averaging are swapped."""

    lr: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.99

    def init(self, parameter):
        return zeros_like(parameter)

    def update(self, parameter, gradient, state, step, lr):
        direction = sign(self.beta2 * state + (1 - self.beta2) * gradient)
        return parameter - lr * direction, self.beta1 * state + (1 - self.beta1) * gradient


@dataclass(frozen=True)
class SignOfZero(UpdateRule):
    """Sign descent that takes 0 as negative."""

    elementwise: ClassVar[bool] = False
    lr: float = 0.001

    def init(self, parameter):
        return None

    def update(self, parameter, gradient, state, step, lr):
        return parameter - lr * where(gradient > 0, zeros_like(gradient) + 1, -1.0), None


@dataclass(frozen=True)
class AdaGradNoEpsilon(UpdateRule):
    """AdaGrad that divides 0 by 0 before its first gradient."""

    lr: float = 0.01

    def init(self, parameter):
        return zeros_like(parameter)

    def update(self, parameter, gradient, state, step, lr):
        total = state + gradient * gradient
        return parameter - lr * gradient / sqrt(total), total


@dataclass(frozen=True)
class DecayLate(UpdateRule):
    """AdaGrad whose falling rate counts steps from 1."""

    lr: float = 0.01
    lr_decay: float = 0.01
    epsilon: float = 1e-10

    def init(self, parameter):
        return zeros_like(parameter)

    def update(self, parameter, gradient, state, step, lr):
        total = state + gradient * gradient
        return parameter - lr / (1 + step * self.lr_decay) * gradient / (sqrt(total) + self.epsilon), total


@dataclass(frozen=True)
class WrongAverage(AveragingRule):
    """Schedule-free SGD that evaluates the weights at which it takes gradients."""

    lr: float = 0.01
    beta1: float = 0.9

    def init(self, parameter):
        return copy(parameter), copy(parameter), 0.0, 0.0

    def update(self, parameter, gradient, state, step, lr):
        iterate, mean, total, highest = state
        iterate = iterate - lr * gradient
        highest = max(highest, lr)
        total = total + highest * highest
        share = highest * highest / total if total else 0.0
        mean = (1 - share) * mean + share * iterate
        return (1 - self.beta1) * iterate + self.beta1 * mean, (iterate, mean, total, highest)

    def average(self, parameter, state):
        return copy(parameter)


class RightAverage(WrongAverage):
    """The same with the right average."""

    def average(self, parameter, state):
        return copy(state[1])


# Faults by shape and size.


class NoScalars(ByLoop):
    """Arrays without dimensions are never updated."""

    def update(self, parameter, gradient, state, step, lr):
        return (parameter, state) if parameter.ndim == 0 else super().update(parameter, gradient, state, step, lr)


class ScalarsForget(TextbookByLoop):
    """Arrays without dimensions lose their first moment."""

    def update(self, parameter, gradient, state, step, lr):
        parameter, (first, second) = super().update(parameter, gradient, state, step, lr)
        return parameter, (first * 0 if parameter.ndim == 0 else first, second)


class NoFifthAxis(ByLoop):
    """Arrays of five axes are updated at half the rate."""

    def update(self, parameter, gradient, state, step, lr):
        return super().update(parameter, gradient, state, step, lr / 2 if parameter.ndim == 5 else lr)


class KernelMean(TextbookByLoop):
    """The squares of a kernel of three or more axes are averaged."""

    def square(self, gradient):
        squares = gradient * gradient
        return squares * 0 + squares.mean() if gradient.ndim > 2 else squares


class TailLost(ByLoop):
    """Above 4,096 elements the tail that does not fill a block of 1,024 is left alone."""

    def update(self, parameter, gradient, state, step, lr):
        xp, size = namespace(parameter), math.prod(parameter.shape)
        updated, state = super().update(parameter, gradient, state, step, lr)
        if size > 4096 and size % 1024:
            kept = size - size % 1024
            flat = xp.concat([xp.reshape(updated, (-1,))[:kept], xp.reshape(parameter, (-1,))[kept:]])
            updated = xp.reshape(flat, parameter.shape)
        return updated, state


class LargeForget(ByLoop):
    """Above 100,000 elements there is no momentum."""

    def velocity(self, state, gradient):
        return gradient + 0 * state if math.prod(gradient.shape) > 100_000 else super().velocity(state, gradient)


class WriteLost(ByLoop):
    """The result is written through a flat view, which is a copy if the parameter is not contiguous."""

    def update(self, parameter, gradient, state, step, lr):
        new = self.velocity(state, gradient)
        flat = parameter.reshape(-1)
        flat -= lr * new.reshape(-1)
        return parameter, new


class EmptyCrash(ByLoop):
    """The largest gradient of an empty array."""

    def update(self, parameter, gradient, state, step, lr):
        if gradient.max() == math.inf:
            return parameter, state
        return super().update(parameter, gradient, state, step, lr)


class Normalised(ByLoop):
    """Claims to be elementwise, and divides by the largest gradient of the array."""

    elementwise: ClassVar[bool] = True

    def update(self, parameter, gradient, state, step, lr):
        if hasattr(gradient, "max") and math.prod(gradient.shape):
            gradient = gradient / maximum(abs(gradient).max(), 1.0)
        return super().update(parameter, gradient, state, step, lr)


# Faults by value.


class RateLimited(Velocity):
    """Rates above 0.05 are ignored."""

    def update(self, parameter, gradient, state, step, lr):
        return super().update(parameter, gradient, state, step, min(lr, 0.05))


class FactorLimited(Velocity):
    """Factors above 1 are ignored."""

    def update(self, parameter, gradient, state, step, lr):
        return super().update(parameter, gradient, state, step, min(lr, self.lr))


class NanSwallowed(TextbookByLoop):
    """NaN in a gradient counts as 0."""

    def update(self, parameter, gradient, state, step, lr):
        return super().update(parameter, where(gradient == gradient, gradient, 0.0), state, step, lr)


class InfinityCut(Velocity):
    """Gradients above a million are cut off, infinite ones too."""

    def velocity(self, state, gradient):
        return super().velocity(state, maximum(minimum(gradient, 1e6), -1e6))


class WeightsCut(Velocity):
    """Weights are kept between -10 and 10."""

    def update(self, parameter, gradient, state, step, lr):
        parameter, state = super().update(parameter, gradient, state, step, lr)
        return maximum(minimum(parameter, 10.0), -10.0), state


# Faults of state.


class Hidden(ByLoop):
    """The velocity is on the rule, where no checkpoint sees it."""

    def init(self, parameter):
        return None

    def update(self, parameter, gradient, state, step, lr):
        held = self.__dict__.setdefault("held", {})
        key = (parameter.shape, str(parameter.dtype))
        held[key] = gradient + 0 if step == 1 else self.momentum * held.get(key, 0.0) + gradient
        return parameter - lr * held[key], None


class SharedState(ByLoop):
    """Two parameters of one shape get the same array as their velocity, which is updated in place."""

    def init(self, parameter):
        cache = self.__dict__.setdefault("cache", {})
        return cache.setdefault((tuple(parameter.shape), str(parameter.dtype)), zeros_like(parameter))

    def update(self, parameter, gradient, state, step, lr):
        state *= self.momentum
        state += gradient
        return parameter - lr * state, state


class StaleGradient(Velocity):
    """The first velocity is the gradient's own array."""

    elementwise: ClassVar[bool] = False

    def velocity(self, state, gradient):
        state = state * self.momentum if bool((state != 0).any()) else state
        return state + gradient if bool((state != 0).any()) else gradient


class CountsCalls(TextbookByLoop):
    """Steps are counted by calls, which there are as many of as parameters."""

    def count(self, step):
        self.__dict__["calls"] = 1 + self.__dict__.get("calls", 0)
        return self.__dict__["calls"]


class Noisy(Velocity):
    """Draws from the global generator."""

    def update(self, parameter, gradient, state, step, lr):
        return super().update(parameter, gradient, state, step, lr * (1 + 1e-9 * random.random()))


class Wide(ByLoop):
    """A rate in float64 makes NumPy's parameters float64."""

    def update(self, parameter, gradient, state, step, lr):
        return super().update(parameter, gradient, state, step, np.float64(lr))


def without_gradients() -> AbstractContextManager[Any]:
    """PyTorch's, if the parameters can be its tensors."""
    torch: Any = sys.modules.get("torch")
    return nullcontext() if torch is None else torch.no_grad()


class _HeavyStepper(Stepper):
    """Momentum over all parameters, with the faults of a stepper as switches."""

    def __init__(self, fault: str, lr: float, backend: Any, parameters: MutableMapping[str, Any]) -> None:
        self.fault, self.lr, self.backend, self.parameters = fault, lr, backend, parameters
        self.velocity: dict[str, Any] = {}
        self.mean = {name: copy(each) for name, each in parameters.items()}

    def step(self, gradients: Mapping[str, Any], step: int, factor: float) -> None:
        for name, gradient in gradients.items():
            held = self.velocity.get(name)
            if held is None:
                held = zeros_like(gradient)
            held *= 0.9
            held += gradient
            self.velocity[name] = held
            if self.fault == "average before":
                self.mean[name] = 0.9 * self.mean[name] + 0.1 * self.parameters[name]
            with without_gradients():
                parameter = self.parameters[name]
                parameter -= self.lr * factor * held
                self.parameters[name] = parameter
            if self.fault != "average before":
                self.mean[name] = 0.9 * self.mean[name] + 0.1 * self.parameters[name]

    def state(self):
        host = self.backend.host
        result = {f"v:{name}": np.array(host(each)) for name, each in self.velocity.items()}
        if self.fault == "state alive":
            result = {f"v:{name}": np.asarray(host(each)) for name, each in self.velocity.items()}
        return result | {f"m:{name}": np.array(host(each)) for name, each in self.mean.items()}

    def restore(self, state):
        take = np.asarray if self.fault == "restore alive" else np.array
        if self.fault == "restore adds" and self.velocity:
            return
        self.velocity = {name[2:]: self.backend.array(take(each)) for name, each in state.items() if name[:2] == "v:"}
        if self.fault != "average lost":
            self.mean = {name[2:]: self.backend.array(take(each)) for name, each in state.items() if name[:2] == "m:"}

    def averaged(self):
        return dict(self.mean)


@dataclass(frozen=True)
class Heavy(Optimizer):
    """Momentum 0.9 with an average of decay 0.9, written as a stepper of its own."""

    fault: str = ""
    lr: float = 0.01

    def start(self, backend, parameters):
        return _HeavyStepper(self.fault, self.lr, backend, parameters)


# Right ones.
class InPlace(Textbook):
    """Adam that overwrites what it may."""

    def update(self, parameter, gradient, state, step, lr):
        first, second = state
        first *= self.beta1
        first += (1 - self.beta1) * gradient
        gradient *= gradient
        second *= self.beta2
        second += (1 - self.beta2) * gradient
        change = sqrt(second)
        change /= math.sqrt(1 - self.beta2**step)
        change += self.epsilon
        parameter -= lr / (1 - self.beta1**step) * first / change
        return parameter, (first, second)


@dataclass(frozen=True)
class Decoupled(Textbook):
    """AdamW."""

    weight_decay: float = 0.01


@dataclass(frozen=True)
class Nesterov(Velocity):
    """Nesterov's momentum."""

    nesterov: bool = True
    weight_decay: float = 0.001


@dataclass(frozen=True)
class Rms(UpdateRule):
    """RMSProp with momentum."""

    lr: float = 0.01
    alpha: float = 0.99
    epsilon: float = 1e-8
    momentum: float = 0.9

    def init(self, parameter):
        return zeros_like(parameter), zeros_like(parameter)

    def update(self, parameter, gradient, state, step, lr):
        squares = self.alpha * state[0] + (1 - self.alpha) * gradient * gradient
        velocity = self.momentum * state[1] + gradient / (sqrt(squares) + self.epsilon)
        return parameter - lr * velocity, (squares, velocity)


class Lion(LionSwapped):
    """Lion."""

    def update(self, parameter, gradient, state, step, lr):
        direction = sign(self.beta1 * state + (1 - self.beta1) * gradient)
        return parameter - lr * direction, self.beta2 * state + (1 - self.beta2) * gradient


@dataclass(frozen=True)
class Adamax(UpdateRule):
    """Adamax (Kingma & Ba 2015, algorithm 2), with epsilon as in PyTorch."""

    lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def init(self, parameter):
        return zeros_like(parameter), zeros_like(parameter)

    def update(self, parameter, gradient, state, step, lr):
        first = self.beta1 * state[0] + (1 - self.beta1) * gradient
        largest = maximum(self.beta2 * state[1], abs(gradient) + self.epsilon)
        return parameter - lr / (1 - self.beta1**step) * first / largest, (first, largest)


@dataclass(frozen=True)
class Rectified(UpdateRule):
    """RAdam (Liu et al. 2020), with epsilon as in PyTorch: its form changes at the sixth step."""

    lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def init(self, parameter):
        return zeros_like(parameter), zeros_like(parameter)

    def update(self, parameter, gradient, state, step, lr):
        first = self.beta1 * state[0] + (1 - self.beta1) * gradient
        second = self.beta2 * state[1] + (1 - self.beta2) * gradient * gradient
        longest = 2 / (1 - self.beta2) - 1
        length = longest - 2 * step * self.beta2**step / (1 - self.beta2**step)
        change = first / (1 - self.beta1**step)
        if length > 5:
            rectification = math.sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length))
            change = change * rectification * math.sqrt(1 - self.beta2**step) / (sqrt(second) + self.epsilon)
        return parameter - lr * change, (first, second)


@dataclass(frozen=True)
class Believing(Textbook):
    """AdaBelief (Zhuang et al. 2020), without a reference: its epsilons differ everywhere."""

    epsilon: float = 1e-8

    def update(self, parameter, gradient, state, step, lr):
        first = self.beta1 * state[0] + (1 - self.beta1) * gradient
        off = gradient - first
        second = self.beta2 * state[1] + (1 - self.beta2) * off * off + self.epsilon
        denominator = sqrt(second / (1 - self.beta2**step)) + self.epsilon
        return parameter - lr / (1 - self.beta1**step) * first / denominator, (first, second)


@dataclass(frozen=True)
class Yogi(Textbook):
    """Yogi (Zaheer et al. 2018)."""

    epsilon: float = 1e-3

    def update(self, parameter, gradient, state, step, lr):
        first = self.beta1 * state[0] + (1 - self.beta1) * gradient
        squares = gradient * gradient
        second = state[1] - (1 - self.beta2) * sign(state[1] - squares) * squares
        denominator = sqrt(second / (1 - self.beta2**step)) + self.epsilon
        return parameter - lr / (1 - self.beta1**step) * first / denominator, (first, second)


@dataclass(frozen=True)
class Adan(UpdateRule):
    """Adan (Xie et al. 2022), which remembers the gradient before."""

    lr: float = 0.001
    beta1: float = 0.98
    beta2: float = 0.92
    beta3: float = 0.99
    epsilon: float = 1e-8
    weight_decay: float = 0.02

    def init(self, parameter):
        return tuple(zeros_like(parameter) for _ in range(4))

    def update(self, parameter, gradient, state, step, lr):
        first, change, second, before = state
        off = gradient - before if step > 1 else gradient - gradient
        ahead = gradient + self.beta2 * off
        first = self.beta1 * first + (1 - self.beta1) * gradient
        change = self.beta2 * change + (1 - self.beta2) * off
        second = self.beta3 * second + (1 - self.beta3) * ahead * ahead
        root = sqrt(second / (1 - self.beta3**step)) + self.epsilon
        moved = first / (1 - self.beta1**step) + self.beta2 * change / (1 - self.beta2**step)
        parameter = (parameter - lr * moved / root) / (1 + lr * self.weight_decay)
        return parameter, (first, change, second, copy(gradient))


@dataclass(frozen=True)
class QuasiHyperbolic(Velocity):
    """QHM (Ma & Yarats 2019)."""

    share: float = 0.7
    momentum: float = 0.999

    def update(self, parameter, gradient, state, step, lr):
        mean = self.momentum * state + (1 - self.momentum) * gradient
        return parameter - lr * ((1 - self.share) * gradient + self.share * mean), mean


@dataclass(frozen=True)
class Madgrad(UpdateRule):
    """MADGRAD (Defazio & Jelassi 2021): cube roots and a dual average of rates that grow with √step."""

    lr: float = 0.01
    momentum: float = 0.9
    epsilon: float = 1e-6

    def init(self, parameter):
        return zeros_like(parameter), zeros_like(parameter), copy(parameter)

    def update(self, parameter, gradient, state, step, lr):
        weight = lr * math.sqrt(step)
        total, squares = state[0] + weight * gradient, state[1] + weight * gradient * gradient
        point = state[2] - total / (squares ** (1 / 3) + self.epsilon)
        return self.momentum * parameter + (1 - self.momentum) * point, (total, squares, state[2])


@dataclass(frozen=True)
class PowerSign(UpdateRule):
    """PowerSign (Bello et al. 2017)."""

    lr: float = 0.01
    beta1: float = 0.9

    def init(self, parameter):
        return zeros_like(parameter)

    def update(self, parameter, gradient, state, step, lr):
        state = self.beta1 * state + (1 - self.beta1) * gradient
        return parameter - lr * math.e ** (sign(gradient) * sign(state)) * gradient, state


@dataclass(frozen=True)
class WarmsUp(Velocity):
    """Momentum with ten steps of warm-up of its own, and a restart every 50 steps."""

    def update(self, parameter, gradient, state, step, lr):
        state = 0 * state if step % 50 == 0 else state
        return super().update(parameter, gradient, state, step, lr * min(1.0, step / 10))


@dataclass(frozen=True)
class SoftThreshold(UpdateRule):
    """Proximal gradient descent for an L1 penalty (ISTA)."""

    lr: float = 0.01
    penalty: float = 0.001

    def init(self, parameter):
        return None

    def update(self, parameter, gradient, state, step, lr):
        point = parameter - lr * gradient
        return sign(point) * maximum(abs(point) - lr * self.penalty, 0.0), None


@dataclass(frozen=True)
class Implicit(Velocity):
    """Decay by division, the implicit step of an L2 penalty."""

    weight_decay: float = 0.01

    def update(self, parameter, gradient, state, step, lr):
        new = self.velocity(state, gradient)
        return (parameter - lr * new) / (1 + lr * self.weight_decay), new


@dataclass(frozen=True)
class Compensated(UpdateRule):
    """SGD that keeps what rounding loses (Kahan 1965)."""

    lr: float = 0.01

    def init(self, parameter):
        return zeros_like(parameter)

    def update(self, parameter, gradient, state, step, lr):
        change = -lr * gradient - state
        new = parameter + change
        return new, (new - parameter) - change


class Careful(TextbookByLoop):
    """Adam that leaves out the step of a parameter whose gradient is not finite."""

    def update(self, parameter, gradient, state, step, lr):
        if not bool(namespace(gradient).all(namespace(gradient).isfinite(gradient))):
            return parameter, state
        return super().update(parameter, gradient, state, step, lr)


class Centralised(ByLoop):
    """Gradient centralisation (Yong et al. 2020): matrices and kernels lose the mean of each row."""

    def update(self, parameter, gradient, state, step, lr):
        if gradient.ndim > 1 and math.prod(gradient.shape):
            xp = namespace(gradient)
            gradient = gradient - xp.mean(gradient, axis=tuple(range(1, gradient.ndim)), keepdims=True)
        return super().update(parameter, gradient, state, step, lr)


@dataclass(frozen=True)
class Trusting(ByLoop):
    """LARS without a threshold for vectors."""

    trust: float = 0.02

    def update(self, parameter, gradient, state, step, lr):
        size, length = norm(parameter), norm(gradient)
        usable = (size > 0) & (length > 0)
        ratio = where(usable, self.trust * size / where(usable, length, 1.0), 1.0)
        state = self.momentum * state + lr * ratio * gradient
        return parameter - state, state


@dataclass(frozen=True)
class RowColumn(TextbookByLoop):
    """Adafactor's way for matrices with both sides from 32 on, and Adam's second moment for the others."""

    def _factored(self, parameter):
        return parameter.ndim == 2 and min(parameter.shape) >= 32

    def init(self, parameter):
        if self._factored(parameter):
            return zeros_like(parameter[:, :1]), zeros_like(parameter[:1, :])
        return zeros_like(parameter)

    def update(self, parameter, gradient, state, step, lr):
        xp, keep = namespace(parameter), self.beta2
        squares = gradient * gradient + 1e-30
        if self._factored(parameter):
            rows = keep * state[0] + (1 - keep) * xp.mean(squares, axis=1, keepdims=True)
            columns = keep * state[1] + (1 - keep) * xp.mean(squares, axis=0, keepdims=True)
            second, state = rows * columns / xp.mean(rows), (rows, columns)
        else:
            second = state = keep * state + (1 - keep) * squares
        return parameter - lr * gradient / self.denominator(second, step), state


@dataclass(frozen=True)
class MatricesOnly(ByLoop):
    """A spectral step: U Vᵀ for a matrix; vectors take the plain step, as does a matrix that is not finite.

    (OpenBLAS's decomposition never ends for some that are not.)
    """

    lr: float = 0.01

    def update(self, parameter, gradient, state, step, lr):
        new = self.velocity(state, gradient)
        direction = new
        xp = namespace(new)
        if new.ndim == 2 and min(new.shape) and bool(xp.all(xp.isfinite(new))):
            left, values, right = xp.linalg.svd(new, full_matrices=False)
            direction = (left * xp.astype(values > 1e-12 * maximum(values.max(), 1e-30), new.dtype)) @ right
        return parameter - lr * direction, new


class _Lookahead(RuleStepper):
    """Every fifth step the weights go back half of the way to those of five steps before."""

    def __init__(self, rule, backend, parameters):
        super().__init__(rule, backend, parameters)
        self._slow = {name: copy(each) for name, each in parameters.items()}

    def step(self, gradients, step, factor):
        with without_gradients():
            super().step(gradients, step, factor)
            if step % 5 == 0:
                for name, slow in self._slow.items():
                    self._slow[name] = slow + 0.5 * (self._parameters[name] - slow)
                    self._parameters[name] = copy(self._slow[name])

    def state(self):
        return super().state() | {f"slow:{name}": np.array(self._backend.host(x)) for name, x in self._slow.items()}

    def restore(self, state):
        super().restore({name: each for name, each in state.items() if not name.startswith("slow:")})
        self._slow = {name: self._backend.array(np.array(state[f"slow:{name}"])) for name in self._slow}


@dataclass(frozen=True)
class Lookahead(Optimizer):
    """Lookahead (Zhang et al. 2019) around momentum."""

    lr: float = 0.01

    def start(self, backend, parameters):
        return _Lookahead(ByLoop(self.lr), backend, parameters)


class _NormStepper(Stepper):
    """Steps of a given length over all parameters."""

    def __init__(self, lr, parameters):
        self._lr, self._parameters = lr, parameters

    def step(self, gradients, step, factor):
        total = sum(float(norm(each)) ** 2 for each in gradients.values())
        with without_gradients():
            for name, gradient in gradients.items():
                self._parameters[name] = self._parameters[name] - self._lr * factor / (total**0.5 + 1e-12) * gradient

    def state(self):
        return {}

    def restore(self, state):
        pass


@dataclass(frozen=True)
class NormalisedDescent(Optimizer):
    """Normalised gradient descent: the norm is that of all parameters."""

    lr: float = 0.01

    def start(self, backend, parameters):
        return _NormStepper(self.lr, parameters)


class Case(NamedTuple):
    """An optimizer to check, made anew each time, and its reference."""

    make: Callable[[], object]
    reference: object = None
    alone: bool = False
    """Whether the fault shows without a reference."""
    frameworks: tuple[str, ...] = ("numpy", "torch")


def native(name: str, **settings: Any) -> Native:
    """A framework's own optimizer."""
    return Native(name, **settings)


TORCH = ("torch",)
AVERAGED = EMA(Momentum(0.01), 0.9)

FAULTY: dict[str, Case] = {
    "bias off by one after 1,000 steps": Case(BiasLate, "torch.optim.Adam"),
    "no steps after 5,000": Case(BiasGone, "adam", True),
    "bias of the next step": Case(BiasFromZero, "adam"),
    "epsilon inside the root": Case(EpsilonInside, "optax.adam"),
    "epsilon before the correction": Case(EpsilonUncorrected, "torch.optim.Adam"),
    "magnitudes for squares": Case(FirstPower, "adam"),
    "half precision inside": Case(HalfMoment, "adam"),
    "decay coupled": Case(DecayCoupled, "torch.optim.AdamW"),
    "decay without the schedule": Case(DecayUnscheduled, "adamw", True),
    "decay after the step": Case(DecayAfter, "adamw"),
    "Nesterov with the old velocity": Case(NesterovOld, "torch.optim.SGD"),
    "Nesterov without its factor": Case(NesterovWhole, "momentum"),
    "rate inside the velocity": Case(RateInside, "momentum"),
    "dampened": Case(Dampened, "torch.optim.SGD"),
    "velocity forgotten every 128 steps": Case(Forgets, "momentum"),
    "Lion's rates swapped": Case(LionSwapped, "optax.lion"),
    "sign of zero": Case(SignOfZero, None, True),
    "zero by zero": Case(AdaGradNoEpsilon, "adagrad", True),
    "falling rate from 1": Case(DecayLate, "torch.optim.Adagrad"),
    "wrong average": Case(WrongAverage, "schedulefreesgd"),
    "0-d not updated": Case(NoScalars, "momentum", True),
    "0-d without a first moment": Case(ScalarsForget, "adam", True),
    "5-d at half the rate": Case(NoFifthAxis, "momentum", True),
    "squares of a kernel averaged": Case(KernelMean, "adam"),
    "tail of a block": Case(TailLost, "momentum", True),
    "no momentum if large": Case(LargeForget, "momentum"),
    "write lost": Case(WriteLost, "momentum", True),
    "crash on empty": Case(EmptyCrash, "momentum", True),
    "not elementwise": Case(Normalised, "momentum", True),
    "rate limited": Case(RateLimited, "momentum", True),
    "factor limited": Case(FactorLimited, "momentum", True),
    "NaN swallowed": Case(NanSwallowed, "adam", True),
    "infinity cut": Case(InfinityCut, "momentum", True),
    "weights cut": Case(WeightsCut, "momentum"),
    "state hidden": Case(Hidden, "momentum", True),
    "state shared": Case(SharedState, "momentum", True),
    "gradient kept": Case(StaleGradient, "momentum", True),
    "calls counted": Case(CountsCalls, "adam", True),
    "noise": Case(Noisy, "momentum", True),
    "float64": Case(Wide, "momentum", True),
    "restored only into a new one": Case(lambda: Heavy("restore adds"), AVERAGED, True),
    "average not resumed": Case(lambda: Heavy("average lost"), AVERAGED, True),
    "average before the step": Case(lambda: Heavy("average before"), AVERAGED),
}

RIGHT: dict[str, Case] = {
    "Adam": Case(Textbook, "torch.optim.Adam"),
    "Adam beside optax": Case(Textbook, "optax.adam"),
    "Adam, other settings": Case(lambda: Textbook(0.05, 0.8, 0.95, 1e-3), "torch.optim.Adam"),
    "Adam in place": Case(InPlace, "adam"),
    "Adam one by one": Case(TextbookByLoop, "optax.adam"),
    "AdamW": Case(Decoupled, "torch.optim.AdamW"),
    "momentum": Case(Velocity, "torch.optim.SGD"),
    "momentum one by one": Case(ByLoop, "momentum"),
    "Nesterov": Case(Nesterov, "torch.optim.SGD"),
    "RMSProp with momentum": Case(Rms, "torch.optim.RMSprop"),
    "Lion": Case(Lion, "optax.lion"),
    "Adamax": Case(Adamax, "torch.optim.Adamax"),
    "RAdam": Case(Rectified, "torch.optim.RAdam"),
    "AdaBelief": Case(Believing),
    "Yogi": Case(Yogi),
    "Adan": Case(Adan),
    "QHM": Case(QuasiHyperbolic),
    "MADGRAD": Case(Madgrad),
    "PowerSign": Case(PowerSign),
    "warm-up and restarts": Case(WarmsUp),
    "soft threshold": Case(SoftThreshold),
    "implicit decay": Case(Implicit),
    "Kahan's SGD": Case(Compensated, "torch.optim.SGD"),
    "skips what is not finite": Case(Careful, "adam"),
    "centralised gradients": Case(Centralised),
    "layer-wise trust": Case(Trusting),
    "factored if large": Case(RowColumn),
    "spectral": Case(MatricesOnly),
    "schedule-free": Case(RightAverage, "schedulefreesgd"),
    "Lookahead": Case(Lookahead),
    "normalised descent": Case(NormalisedDescent),
    "stepper": Case(Heavy, AVERAGED),
    "state that lives on": Case(lambda: Heavy("state alive"), AVERAGED),
    "restored state that lives on": Case(lambda: Heavy("restore alive"), AVERAGED),
    "EMA of a clipped AdamW": Case(lambda: EMA(Clip(AdamW(0.01), 1.0), 0.99)),
    "torch's AdamW": Case(lambda: native("torch.optim.AdamW", lr=0.01), "adamw", frameworks=TORCH),
    "torch's Muon": Case(lambda: native("torch.optim.Muon", lr=0.02), "muon", frameworks=TORCH),
    "torch's Adafactor": Case(lambda: native("torch.optim.Adafactor", lr=0.01), "adafactor", frameworks=TORCH),
    "optax's AdamW": Case(lambda: native("optax.adamw", lr=0.01), "adamw", frameworks=("jax",)),
}

BY: dict[str, str] = {
    "bias off by one after 1,000 steps": "reference: step 1,001",
    "no steps after 5,000": "late steps",
    "bias of the next step": "first step",
    "epsilon inside the root": "reference: small gradients",
    "epsilon before the correction": "reference: small gradients",
    "magnitudes for squares": "first step",
    "half precision inside": "first step",
    "decay coupled": "first step",
    "decay without the schedule": "rate zero",
    "decay after the step": "first step",
    "Nesterov with the old velocity": "first step",
    "Nesterov without its factor": "first step",
    "rate inside the velocity": "reference: schedule",
    "dampened": "reference: quadratic",
    "velocity forgotten every 128 steps": "reference: long",
    "Lion's rates swapped": "reference: quadratic",
    "sign of zero": "zero gradients",
    "zero by zero": "zero gradients",
    "falling rate from 1": "first step",
    "wrong average": "reference: averaged",
    "0-d not updated": "descent",
    "0-d without a first moment": "ranks",
    "5-d at half the rate": "ranks",
    "squares of a kernel averaged": "first step",
    "tail of a block": "large arrays",
    "no momentum if large": "reference: large arrays",
    "write lost": "memory layout",
    "crash on empty": "shapes",
    "not elementwise": "elementwise",
    "rate limited": "high rates",
    "factor limited": "high rates",
    "NaN swallowed": "not finite",
    "infinity cut": "not finite",
    "weights cut": "reference: large weights",
    "state hidden": "state",
    "state shared": "each parameter for itself",
    "gradient kept": "gradients",
    "calls counted": "each parameter for itself",
    "noise": "determinism",
    "float64": "dtype and shape",
    "restored only into a new one": "state",
    "average not resumed": "state",
    "average before the step": "reference: averaged",
}
"""The probe that is to find each fault: without a reference if it shows without one."""


def name_of(title: str) -> str:
    """An identifier from a title, and no name of a reference: those of a file come first."""
    return re.sub(r"\W+", "_", f"case {title}").strip("_").lower()


CASES: dict[str, Planted] = {}
for _title, _case in (FAULTY | RIGHT).items():
    _reference = "averaged" if _case.reference is AVERAGED else _case.reference or ""
    CASES[name_of(_title)] = Planted(
        _title if _title in FAULTY else None, (BY[_title],) if _title in FAULTY else (), _reference
    )
    globals()[name_of(_title)] = _case.make()
averaged = AVERAGED
