"""Rates that adapt to each parameter's past gradients: AdaGrad, RMSProp, Adadelta."""

from __future__ import annotations

from dataclasses import dataclass

from levelbench.networks.executor import Array
from levelbench.training.optimizers import checks
from levelbench.training.optimizers.arrays import (
    add_product,
    add_quotient,
    add_scaled,
    copy,
    maximum,
    mix,
    sqrt,
    zeros_like,
)
from levelbench.training.optimizers.base import State, UpdateRule

__all__ = ["AdaGrad", "Adadelta", "RMSProp"]


@dataclass(frozen=True)
class AdaGrad(UpdateRule):
    """s := s + g²; w := w - lr g / (√s + epsilon) (Duchi et al. 2011), with the ε of PyTorch.

    ``initial`` is s before the first step; ``lr_decay`` divides the rate by 1 + (step - 1) · lr_decay.
    """

    epsilon: float = 1e-10
    initial: float = 0.0
    lr_decay: float = 0.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.not_negative(self, "epsilon", "initial", "lr_decay", "weight_decay")

    def init(self, parameter: Array) -> State:
        """The sum of squares."""
        squares = zeros_like(parameter)
        squares += self.initial
        return squares

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        """One step."""
        if self.weight_decay:
            gradient = add_scaled(gradient, parameter, self.weight_decay)
        squares = add_product(state, gradient, gradient)
        denominator = sqrt(squares)
        denominator += self.epsilon
        rate = lr / (1 + (step - 1) * self.lr_decay)
        return add_quotient(parameter, gradient, denominator, -rate), squares


@dataclass(frozen=True)
class RMSProp(UpdateRule):
    """s := alpha s + (1 - alpha) g²; w := w - lr g / (√s + epsilon) (Hinton's lecture 6e, 2012), as PyTorch has it.

    ``centered`` takes the square of the mean gradient off s (Graves 2013). With ``momentum`` the quotients are added up
    as v := momentum v + g / (√s + epsilon), and w := w - lr v.
    """

    alpha: float = 0.99
    epsilon: float = 1e-8
    momentum: float = 0.0
    centered: bool = False
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.share(self, "alpha", "momentum")
        checks.not_negative(self, "epsilon", "weight_decay")

    def init(self, parameter: Array) -> State:
        """The mean square; then the mean gradient if ``centered``, and the velocity if there is momentum."""
        return tuple(zeros_like(parameter) for _ in range(1 + self.centered + bool(self.momentum)))

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        """One step."""
        if self.weight_decay:
            gradient = add_scaled(gradient, parameter, self.weight_decay)
        squares, *others = state
        squares *= self.alpha
        squares = add_product(squares, gradient, gradient, 1 - self.alpha)
        variance = squares
        if self.centered:
            others[0] = mean = mix(others[0], gradient, 1 - self.alpha)
            # Of gradients that are all alike it is zero, and by rounding may be less.
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
class Adadelta(UpdateRule):
    """d := g √(u + epsilon) / √(s + epsilon), w := w - lr d, with s and u the mean squares of g and d (Zeiler 2012).

    The paper has no rate: ``lr = 1``.
    """

    rho: float = 0.9
    epsilon: float = 1e-6
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.share(self, "rho")
        checks.positive(self, "epsilon")
        checks.not_negative(self, "weight_decay")

    def init(self, parameter: Array) -> State:
        """The mean squares of gradients and of steps, zero."""
        return zeros_like(parameter), zeros_like(parameter)

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        """One step."""
        squares, steps = state
        if self.weight_decay:
            gradient = add_scaled(gradient, parameter, self.weight_decay)
        squares *= self.rho
        squares = add_product(squares, gradient, gradient, 1 - self.rho)
        change = sqrt(steps + self.epsilon)
        change /= sqrt(squares + self.epsilon)
        change *= gradient
        steps *= self.rho
        steps = add_product(steps, change, change, 1 - self.rho)
        return add_scaled(parameter, change, -lr), (squares, steps)
