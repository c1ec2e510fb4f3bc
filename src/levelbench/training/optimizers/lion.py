"""Lion: only the sign of a mixture of gradient and momentum counts."""

from __future__ import annotations

from dataclasses import dataclass

from levelbench.networks.executor import Array
from levelbench.training.optimizers import checks
from levelbench.training.optimizers.arrays import add_scaled, copy, mix, sign, zeros_like
from levelbench.training.optimizers.base import State, UpdateRule

__all__ = ["Lion"]


@dataclass(frozen=True)
class Lion(UpdateRule):
    """w := w - lr (sign(beta1 m + (1 - beta1) g) + weight_decay w); m := beta2 m + (1 - beta2) g (Chen et al. 2023)."""

    beta1: float = 0.9
    beta2: float = 0.99
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.share(self, "beta1", "beta2")
        checks.not_negative(self, "weight_decay")

    def init(self, parameter: Array) -> State:
        """The momentum, zero."""
        return zeros_like(parameter)

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        """One step."""
        direction = sign(mix(copy(state), gradient, 1 - self.beta1))
        if self.weight_decay:
            parameter *= 1 - lr * self.weight_decay
        return add_scaled(parameter, direction, -lr), mix(state, gradient, 1 - self.beta2)
