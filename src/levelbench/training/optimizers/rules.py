"""Rules that work element by element: SGD, momentum, Adam and its relatives, AdaGrad, RMSProp, Adadelta, Lion.

Also rules whose result is an average over their steps. Schedule-free training takes gradients at y, between the iterate
z of the plain rule and the average x of all z. The trained weights are y; the evaluated weights are x.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import ClassVar

from levelbench.networks.executor import Array, Backend
from levelbench.training.optimizers import checks
from levelbench.training.optimizers.arrays import (
    add_product,
    add_quotient,
    add_scaled,
    copy,
    decayed,
    maximum,
    mix,
    norm,
    sign,
    sqrt,
    where,
    zeros_like,
)
from levelbench.training.optimizers.base import RuleStepper, State, Stepper, UpdateRule


@dataclass(frozen=True)
class CheckedRule(UpdateRule):
    """A rule whose settings are checked by their names: see :func:`.checks.by_name`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.by_name(self)


@dataclass(frozen=True)
class SGD(CheckedRule):
    """w := w - lr (g + weight_decay w) (Robbins & Monro 1951)."""

    weight_decay: float = 0.0

    def init(self, parameter: Array) -> State:
        return None

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        gradient = decayed(gradient, parameter, self.weight_decay)
        return add_scaled(parameter, gradient, -lr), state


@dataclass(frozen=True)
class Momentum(CheckedRule):
    """v := momentum v + g; w := w - lr v (Polyak 1964), or with ``nesterov`` w := w - lr (g + momentum v).

    The form of Sutskever et al. 2013 with the learning rate outside the velocity, as in PyTorch. The gradient g is that
    of the loss plus ``weight_decay`` w.
    """

    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0

    def init(self, parameter: Array) -> State:
        return zeros_like(parameter)

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        velocity = state
        gradient = decayed(gradient, parameter, self.weight_decay)
        velocity *= self.momentum
        velocity += gradient
        if self.nesterov:
            gradient = add_scaled(gradient, velocity, self.momentum)
            return add_scaled(parameter, gradient, -lr), velocity
        return add_scaled(parameter, velocity, -lr), velocity


def squared(second: Array, gradient: Array, beta2: float) -> Array:
    """The second moment after another gradient: beta2 v + (1 - beta2) g². It is updated in place if possible."""
    second *= beta2
    return add_product(second, gradient, gradient, 1 - beta2)


def root(second: Array, beta2: float, step: int, epsilon: float) -> tuple[Array, float]:
    """The pair (√v + c ε, c), where c = √(1 - beta2^step) corrects the bias of the second moment.

    c m / (√v + c ε) equals m / (√v / c + ε), the quotient of the papers, without a pass over all elements to divide by
    c.
    """
    correction = (1 - beta2**step) ** 0.5
    denominator = sqrt(second)
    denominator += epsilon * correction
    return denominator, correction


@dataclass(frozen=True)
class Adam(CheckedRule):
    """Adam with bias correction (Kingma & Ba 2015, algorithm 1).

    ``weight_decay`` times the parameter is added to the gradient. With ``amsgrad`` the second moment never decreases
    (Reddi et al. 2018), before the bias correction as in PyTorch.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    amsgrad: bool = False

    def init(self, parameter: Array) -> State:
        """The first and second moments, zero; with ``amsgrad`` also the highest second moment."""
        return tuple(zeros_like(parameter) for _ in range(3 if self.amsgrad else 2))

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        gradient = decayed(gradient, parameter, self.weight_decay)
        return self._adapted(parameter, gradient, state, step, lr)

    def _adapted(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        first, second, *highest = state
        first = mix(first, gradient, 1 - self.beta1)
        second = squared(second, gradient, self.beta2)
        if self.amsgrad:
            highest = [maximum(highest[0], second)]
        denominator, correction = root(highest[0] if self.amsgrad else second, self.beta2, step, self.epsilon)
        parameter = add_quotient(parameter, first, denominator, -lr * correction / (1 - self.beta1**step))
        return parameter, (first, second, *highest)


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay, w := (1 - lr weight_decay) w before its step (Loshchilov & Hutter 2019)."""

    weight_decay: float = 0.01

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        parameter *= 1 - lr * self.weight_decay
        return self._adapted(parameter, gradient, state, step, lr)


@dataclass(frozen=True)
class NAdam(CheckedRule):
    """Adam with Nesterov's momentum (Dozat 2016), with the momentum warm-up of its paper and of PyTorch.

    The momentum of step t is beta1 (1 - 0.5 · 0.96^(t · momentum_decay)).
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    momentum_decay: float = 0.004

    def init(self, parameter: Array) -> State:
        """The first and second moments, zero, and the product of all momenta so far."""
        return zeros_like(parameter), zeros_like(parameter), 1.0

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        first, second, product = state
        gradient = decayed(gradient, parameter, self.weight_decay)
        momentum, following = self._momentum(step), self._momentum(step + 1)
        product = product * momentum
        first = mix(first, gradient, 1 - self.beta1)
        second = squared(second, gradient, self.beta2)
        denominator, correction = root(second, self.beta2, step, self.epsilon)
        rate = -lr * correction
        parameter = add_quotient(parameter, gradient, denominator, rate * (1 - momentum) / (1 - product))
        parameter = add_quotient(parameter, first, denominator, rate * following / (1 - product * following))
        return parameter, (first, second, product)

    def _momentum(self, step: int) -> float:
        decay: float = 0.96 ** (step * self.momentum_decay)
        return self.beta1 * (1 - 0.5 * decay)


@dataclass(frozen=True)
class AdaGrad(CheckedRule):
    """s := s + g²; w := w - lr g / (√s + epsilon) (Duchi et al. 2011), with ε as in PyTorch.

    ``initial`` is s before the first step; ``lr_decay`` divides the rate by 1 + (step - 1) · lr_decay.
    """

    epsilon: float = 1e-10
    initial: float = 0.0
    lr_decay: float = 0.0
    weight_decay: float = 0.0

    def init(self, parameter: Array) -> State:
        """The sum of squares."""
        squares = zeros_like(parameter)
        squares += self.initial
        return squares

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        gradient = decayed(gradient, parameter, self.weight_decay)
        squares = add_product(state, gradient, gradient)
        denominator = sqrt(squares)
        denominator += self.epsilon
        rate = lr / (1 + (step - 1) * self.lr_decay)
        return add_quotient(parameter, gradient, denominator, -rate), squares


@dataclass(frozen=True)
class RMSProp(CheckedRule):
    """s := alpha s + (1 - alpha) g²; w := w - lr g / (√s + epsilon) (Hinton's lecture 6e, 2012), as in PyTorch.

    ``centered`` subtracts the square of the mean gradient from s (Graves 2013). With ``momentum`` the quotients are
    accumulated as v := momentum v + g / (√s + epsilon), and w := w - lr v.
    """

    alpha: float = 0.99
    epsilon: float = 1e-8
    momentum: float = 0.0
    centered: bool = False
    weight_decay: float = 0.0

    def init(self, parameter: Array) -> State:
        """The mean square; then the mean gradient if ``centered``, and the velocity if there is momentum."""
        return tuple(zeros_like(parameter) for _ in range(1 + self.centered + bool(self.momentum)))

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        gradient = decayed(gradient, parameter, self.weight_decay)
        squares, *others = state
        squares *= self.alpha
        squares = add_product(squares, gradient, gradient, 1 - self.alpha)
        variance = squares
        if self.centered:
            others[0] = mean = mix(others[0], gradient, 1 - self.alpha)
            # It is zero for constant gradients, and rounding may make it negative.
            variance = maximum(add_product(copy(squares), mean, mean, -1.0), 0.0)
        denominator = sqrt(variance)
        denominator += self.epsilon
        if self.momentum:
            velocity = others[-1]
            velocity *= self.momentum
            others[-1] = velocity = add_quotient(velocity, gradient, denominator)
            parameter = add_scaled(parameter, velocity, -lr)
        else:
            parameter = add_quotient(parameter, gradient, denominator, -lr)
        return parameter, (squares, *others)


@dataclass(frozen=True)
class Adadelta(CheckedRule):
    """d := g √(u + epsilon) / √(s + epsilon), w := w - lr d, with s and u the mean squares of g and d (Zeiler 2012).

    The paper has no rate: ``lr = 1``.
    """

    rho: float = 0.9
    epsilon: float = 1e-6
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive(self, "epsilon")

    def init(self, parameter: Array) -> State:
        """The mean squares of gradients and of steps, zero."""
        return zeros_like(parameter), zeros_like(parameter)

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        squares, steps = state
        gradient = decayed(gradient, parameter, self.weight_decay)
        squares *= self.rho
        squares = add_product(squares, gradient, gradient, 1 - self.rho)
        change = sqrt(steps + self.epsilon)
        change /= sqrt(squares + self.epsilon)
        change *= gradient
        steps *= self.rho
        steps = add_product(steps, change, change, 1 - self.rho)
        return add_scaled(parameter, change, -lr), (squares, steps)


@dataclass(frozen=True)
class Lion(CheckedRule):
    """w := w - lr (sign(beta1 m + (1 - beta1) g) + weight_decay w); m := beta2 m + (1 - beta2) g (Chen et al. 2023)."""

    beta1: float = 0.9
    beta2: float = 0.99
    weight_decay: float = 0.0

    def init(self, parameter: Array) -> State:
        return zeros_like(parameter)

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        direction = sign(mix(copy(state), gradient, 1 - self.beta1))
        if self.weight_decay:
            parameter *= 1 - lr * self.weight_decay
        return add_scaled(parameter, direction, -lr), mix(state, gradient, 1 - self.beta2)


@dataclass(frozen=True)
class AveragingRule(UpdateRule):
    """A rule whose evaluated weights differ from those at which it takes gradients."""

    @abstractmethod
    def average(self, parameter: Array, state: State) -> Array:
        """The weights to evaluate with, as a new array."""

    def one_by_one(self, backend: Backend, parameters: MutableMapping[str, Array]) -> Stepper:
        return AveragingStepper(self, backend, parameters)


class AveragingStepper(RuleStepper):
    """Applies an averaging rule to one parameter after another."""

    def __init__(self, rule: AveragingRule, backend: Backend, parameters: MutableMapping[str, Array]) -> None:
        super().__init__(rule, backend, parameters)
        self._average = rule.average

    def averaged(self) -> Mapping[str, Array]:
        """The averages of all parameters that were updated, and the others unchanged."""
        states = self._states
        return {
            name: self._average(parameter, states[name]) if name in states else parameter
            for name, parameter in self._parameters.items()
        }


@dataclass(frozen=True)
class _ScheduleFree(AveragingRule, CheckedRule):
    """z := z - lr d, x := (1 - c) x + c z, y := (1 - beta1) z + beta1 x, with d the direction of a plain rule at y.

    c is this step's share of the sum of all weights, a step's weight being the highest rate so far to ``weight_power``.
    """

    beta1: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.share(self, "beta1", above_zero=True)

    def average(self, parameter: Array, state: State) -> Array:
        mean = add_scaled(copy(parameter), state[0], self.beta1 - 1)
        mean /= self.beta1
        return mean

    def _moved(
        self, parameter: Array, direction: Array, averaging: State, lr: float, power: float
    ) -> tuple[Array, State]:
        """Y and (z, the sum of all weights, the highest rate)."""
        iterate, total, highest = averaging
        highest = maximum(highest, lr)
        weight = highest**power
        total = total + weight
        share = _quotient(weight, total)
        parameter = mix(parameter, iterate, share)
        parameter = add_scaled(parameter, direction, lr * (self.beta1 * (1 - share) - 1))
        return parameter, (add_scaled(iterate, direction, -lr), total, highest)


def _quotient(upper: Array | float, lower: Array | float) -> Array:
    """The ratio upper / lower; 0 if both are 0, as before the first step of a warm-up that starts at zero."""
    if isinstance(lower, int | float):
        return upper / lower if lower else 0.0
    return where(lower == 0, 0.0, upper / where(lower == 0, 1.0, lower))


@dataclass(frozen=True)
class ScheduleFreeSGD(_ScheduleFree):
    """Schedule-free SGD (Defazio et al. 2024). ``weight_decay`` is added to the gradient, at y."""

    weight_decay: float = 0.0
    weight_power: float = 2.0

    def init(self, parameter: Array) -> State:
        """Z, the sum of all weights, and the highest rate."""
        return copy(parameter), 0.0, 0.0

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        gradient = decayed(gradient, parameter, self.weight_decay)
        return self._moved(parameter, gradient, state, lr, self.weight_power)


@dataclass(frozen=True)
class ScheduleFreeAdamW(_ScheduleFree):
    """Schedule-free AdamW (Defazio et al. 2024): Adam without a first moment, and decay at y."""

    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    weight_power: float = 2.0

    def init(self, parameter: Array) -> State:
        """Z, the sum of all weights, the highest rate, and the second moment, zero."""
        return copy(parameter), 0.0, 0.0, zeros_like(parameter)

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        *averaging, second = state
        second = squared(second, gradient, self.beta2)
        denominator = sqrt(second)
        denominator /= (1 - self.beta2**step) ** 0.5
        denominator += self.epsilon
        gradient /= denominator
        gradient = decayed(gradient, parameter, self.weight_decay)
        parameter, averaging = self._moved(parameter, gradient, averaging, lr, self.weight_power)
        return parameter, (*averaging, second)


@dataclass(frozen=True)
class AcceleGrad(AveragingRule, CheckedRule):
    """AcceleGrad (Levy, Yurtsever & Cevher 2018, algorithm 2), unconstrained.

    The weight α of a step is 1 for the first three and ((step from 0) + 1) / 4 from then on. S := S + α² ‖g‖², η = lr ·
    2 diameter / √(bound² + S), z := z - α η g, y := w - η g, and the next gradient is taken at w := z / α' + (1 - 1 /
    α') y, with α' of the next step. The evaluated weights are the mean of all y, weighted by α.

    ``diameter`` is that of a ball that contains the start and a minimum, ``bound`` that of a gradient's norm. Each
    parameter array has its own S, as in the Deep500 paper's implementation; the paper analyses a single vector.
    """

    elementwise: ClassVar[bool] = False
    lr: float = 1.0
    diameter: float = 1.0
    bound: float = 1.0

    def init(self, parameter: Array) -> State:
        """Z, the mean of all y, S, and the sum of all α."""
        return copy(parameter), copy(parameter), 0 * norm(parameter), 0.0

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        iterate, mean, squares, total = state
        weight, following = maximum(1.0, step / 4), maximum(1.0, (step + 1) / 4)
        squares = squares + (weight * norm(gradient)) ** 2
        gradient *= 2 * self.diameter * lr / (self.bound * self.bound + squares) ** 0.5
        iterate = add_scaled(iterate, gradient, -weight)
        parameter -= gradient
        total = total + weight
        mean = mix(mean, parameter, weight / total)
        return mix(parameter, iterate, 1 / following), (iterate, mean, squares, total)

    def average(self, parameter: Array, state: State) -> Array:
        return copy(state[1])
