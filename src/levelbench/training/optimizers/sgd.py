"""Gradient descent, plain and with momentum."""

from __future__ import annotations

from dataclasses import dataclass

from levelbench.networks.executor import Array
from levelbench.training.optimizers import checks
from levelbench.training.optimizers.arrays import add_scaled, zeros_like
from levelbench.training.optimizers.base import State, UpdateRule

__all__ = ["SGD", "Momentum"]


@dataclass(frozen=True)
class SGD(UpdateRule):
    """w := w - lr (g + weight_decay w) (Robbins & Monro 1951)."""

    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.not_negative(self, "weight_decay")

    def init(self, parameter: Array) -> State:
        """No state."""
        return None

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        """One step."""
        if self.weight_decay:
            gradient = add_scaled(gradient, parameter, self.weight_decay)
        return add_scaled(parameter, gradient, -lr), state


@dataclass(frozen=True)
class Momentum(UpdateRule):
    """v := momentum v + g; w := w - lr v (Polyak 1964), or with ``nesterov`` w := w - lr (g + momentum v).

    The form of Sutskever et al. 2013 with the learning rate outside of the velocity, as PyTorch has it. The gradient g
    is that of the loss plus ``weight_decay`` w.
    """

    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.share(self, "momentum")
        checks.not_negative(self, "weight_decay")

    def init(self, parameter: Array) -> State:
        """The velocity, zero."""
        return zeros_like(parameter)

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        """One step."""
        velocity = state
        if self.weight_decay:
            gradient = add_scaled(gradient, parameter, self.weight_decay)
        velocity *= self.momentum
        velocity += gradient
        if self.nesterov:
            gradient = add_scaled(gradient, velocity, self.momentum)
            return add_scaled(parameter, gradient, -lr), velocity
        return add_scaled(parameter, velocity, -lr), velocity
