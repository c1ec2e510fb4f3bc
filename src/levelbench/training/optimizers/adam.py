"""Adam and its relatives: steps in units of the gradient's own size."""

from __future__ import annotations

from dataclasses import dataclass

from levelbench.networks.executor import Array
from levelbench.training.optimizers import checks
from levelbench.training.optimizers.arrays import add_quotient, add_scaled, maximum, mix, zeros_like
from levelbench.training.optimizers.base import State, UpdateRule
from levelbench.training.optimizers.moments import root, squared

__all__ = ["Adam", "AdamW", "NAdam"]


@dataclass(frozen=True)
class Adam(UpdateRule):
    """Adam with bias correction (Kingma & Ba 2015, algorithm 1).

    ``weight_decay`` times the parameter is added to the gradient. With ``amsgrad`` the second moment never falls (Reddi
    et al. 2018), before the bias correction as in PyTorch.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    amsgrad: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.share(self, "beta1", "beta2")
        checks.not_negative(self, "epsilon", "weight_decay")

    def init(self, parameter: Array) -> State:
        """The first and second moments, zero; with ``amsgrad`` the highest second moment, too."""
        return tuple(zeros_like(parameter) for _ in range(3 if self.amsgrad else 2))

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        """One step."""
        if self.weight_decay:
            gradient = add_scaled(gradient, parameter, self.weight_decay)
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
        """One step."""
        parameter *= 1 - lr * self.weight_decay
        return self._adapted(parameter, gradient, state, step, lr)


@dataclass(frozen=True)
class NAdam(UpdateRule):
    """Adam with Nesterov's momentum (Dozat 2016), with the warm-up of the momentum that its paper and PyTorch have.

    The momentum of step t is beta1 (1 - 0.5 · 0.96^(t · momentum_decay)).
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    momentum_decay: float = 0.004

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.share(self, "beta1", "beta2")
        checks.not_negative(self, "epsilon", "weight_decay", "momentum_decay")

    def init(self, parameter: Array) -> State:
        """The first and second moments, zero, and the product of all momenta so far."""
        return zeros_like(parameter), zeros_like(parameter), 1.0

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        """One step."""
        first, second, product = state
        if self.weight_decay:
            gradient = add_scaled(gradient, parameter, self.weight_decay)
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
