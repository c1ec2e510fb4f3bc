"""Schedule-free SGD and AdamW: an average takes the place of a schedule that falls.

The one idea: gradients are taken at y, between the iterate z of the plain rule and the average x of all z. What is
trained is y; what is evaluated is x, which follows from y and z.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from levelbench.networks.executor import Array
from levelbench.training.optimizers import checks
from levelbench.training.optimizers.arrays import add_scaled, copy, maximum, mix, sqrt, where, zeros_like
from levelbench.training.optimizers.averaging import AveragingRule
from levelbench.training.optimizers.base import State
from levelbench.training.optimizers.moments import squared

__all__ = ["ScheduleFreeAdamW", "ScheduleFreeSGD"]


@dataclass(frozen=True)
class _ScheduleFree(AveragingRule):
    """z := z - lr d, x := (1 - c) x + c z, y := (1 - beta1) z + beta1 x, with d the direction of a plain rule at y.

    c is the share of this step's weight in that of all, the weight being the highest rate so far to ``weight_power``.
    """

    beta1: float = 0.9

    def average(self, parameter: Array, state: State) -> Array:
        """X, from y and z."""
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


def _quotient(upper: Any, lower: Any) -> Any:
    """The ratio upper / lower; 0 where both are, as before the first step of a warm-up that starts at zero."""
    if isinstance(lower, int | float):
        return upper / lower if lower else 0.0
    return where(lower == 0, 0.0, upper / where(lower == 0, 1.0, lower))


@dataclass(frozen=True)
class ScheduleFreeSGD(_ScheduleFree):
    """Schedule-free SGD (Defazio et al. 2024). ``weight_decay`` is added to the gradient, at y."""

    weight_decay: float = 0.0
    weight_power: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.share(self, "beta1", above_zero=True)
        checks.not_negative(self, "weight_decay", "weight_power")

    def init(self, parameter: Array) -> State:
        """Z, the sum of all weights, and the highest rate."""
        return copy(parameter), 0.0, 0.0

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        """One step."""
        if self.weight_decay:
            gradient = add_scaled(gradient, parameter, self.weight_decay)
        return self._moved(parameter, gradient, state, lr, self.weight_power)


@dataclass(frozen=True)
class ScheduleFreeAdamW(_ScheduleFree):
    """Schedule-free AdamW (Defazio et al. 2024): Adam without first moment, and decay at y."""

    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    weight_power: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.share(self, "beta1", above_zero=True)
        checks.share(self, "beta2")
        checks.not_negative(self, "epsilon", "weight_decay", "weight_power")

    def init(self, parameter: Array) -> State:
        """Z, the sum of all weights, the highest rate, and the second moment, zero."""
        return copy(parameter), 0.0, 0.0, zeros_like(parameter)

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        """One step."""
        *averaging, second = state
        second = squared(second, gradient, self.beta2)
        denominator = sqrt(second)
        denominator /= (1 - self.beta2**step) ** 0.5
        denominator += self.epsilon
        gradient /= denominator
        if self.weight_decay:
            gradient = add_scaled(gradient, parameter, self.weight_decay)
        parameter, averaging = self._moved(parameter, gradient, averaging, lr, self.weight_power)
        return parameter, (*averaging, second)
