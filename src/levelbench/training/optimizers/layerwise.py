"""Rates in proportion to the size of each parameter array: LARS and LAMB, for large batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from levelbench.networks.executor import Array
from levelbench.training.optimizers import checks
from levelbench.training.optimizers.arrays import add_scaled, mix, norm, where, zeros_like
from levelbench.training.optimizers.base import State, UpdateRule
from levelbench.training.optimizers.moments import root, squared

__all__ = ["LAMB", "LARS"]


def _trust(parameter: Array, change: Array, coefficient: float = 1.0, epsilon: float = 0.0) -> Array:
    """The ratio coefficient · ‖parameter‖ / (‖change‖ + epsilon), or 1 where one of the two is zero."""
    size, length = norm(parameter), norm(change)
    # The quotient is taken where it is not used as well, and must not divide by zero there.
    either_is_zero = (size == 0) | (length == 0)
    return where(either_is_zero, 1.0, coefficient * size / where(either_is_zero, 1.0, length + epsilon))


@dataclass(frozen=True)
class LARS(UpdateRule):
    """v := momentum v + lr t (g + weight_decay w); w := w - v, with t = trust ‖w‖ / (‖g + weight_decay w‖ + epsilon).

    Layer-wise adaptive rate scaling (You, Gitman & Ginsburg 2017, algorithm 1, with the rate inside of the velocity).
    The norm of the decayed gradient stands below, as in optax; the paper has ‖g‖ + weight_decay ‖w‖.
    """

    elementwise: ClassVar[bool] = False
    momentum: float = 0.9
    trust: float = 0.001
    weight_decay: float = 0.0
    nesterov: bool = False
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.share(self, "momentum")
        checks.positive(self, "trust")
        checks.not_negative(self, "weight_decay", "epsilon")

    def init(self, parameter: Array) -> State:
        """The velocity, zero."""
        return zeros_like(parameter)

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        """One step."""
        velocity = state
        if self.weight_decay:
            gradient = add_scaled(gradient, parameter, self.weight_decay)
        gradient *= lr * _trust(parameter, gradient, self.trust, self.epsilon)
        velocity *= self.momentum
        velocity += gradient
        if self.nesterov:
            parameter -= add_scaled(gradient, velocity, self.momentum)
        else:
            parameter -= velocity
        return parameter, velocity


@dataclass(frozen=True)
class LAMB(UpdateRule):
    """w := w - lr ‖w‖ / ‖r‖ r, with r Adam's step plus weight_decay w (You et al. 2020, algorithm 2, φ(z) = z)."""

    elementwise: ClassVar[bool] = False
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.share(self, "beta1", "beta2")
        checks.not_negative(self, "epsilon", "weight_decay")

    def init(self, parameter: Array) -> State:
        """The first and second moments, zero."""
        return zeros_like(parameter), zeros_like(parameter)

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        """One step."""
        first, second = state
        first = mix(first, gradient, 1 - self.beta1)
        second = squared(second, gradient, self.beta2)
        denominator, correction = root(second, self.beta2, step, self.epsilon)
        change = first / denominator
        change *= correction / (1 - self.beta1**step)
        if self.weight_decay:
            change = add_scaled(change, parameter, self.weight_decay)
        change *= lr * _trust(parameter, change)
        parameter -= change
        return parameter, (first, second)
