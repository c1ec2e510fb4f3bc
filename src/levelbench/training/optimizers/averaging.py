"""Rules whose result is an average of what they step through: schedule-free SGD and AdamW, AcceleGrad.

In schedule-free training gradients are taken at y, between the iterate z of the plain rule and the average x of all z.
What is trained is y; what is evaluated is x, which follows from y and z.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import ClassVar

from levelbench.networks.executor import Array, Backend
from levelbench.training.optimizers import checks
from levelbench.training.optimizers.arrays import add_scaled, copy, maximum, mix, norm, sqrt, where, zeros_like
from levelbench.training.optimizers.base import RuleStepper, State, Stepper, UpdateRule
from levelbench.training.optimizers.rules import squared


@dataclass(frozen=True)
class AveragingRule(UpdateRule):
    """A rule that is evaluated at other weights than those that gradients are taken at."""

    @abstractmethod
    def average(self, parameter: Array, state: State) -> Array:
        """The weights to evaluate with, in an array of their own."""

    def one_by_one(self, backend: Backend, parameters: MutableMapping[str, Array]) -> Stepper:
        return AveragingStepper(self, backend, parameters)


class AveragingStepper(RuleStepper):
    """A rule that averages, one parameter after another."""

    def __init__(self, rule: AveragingRule, backend: Backend, parameters: MutableMapping[str, Array]) -> None:
        super().__init__(rule, backend, parameters)
        self._average = rule.average

    def averaged(self) -> Mapping[str, Array]:
        """The averages of all parameters that were updated, and the others as they are."""
        states = self._states
        return {
            name: self._average(parameter, states[name]) if name in states else parameter
            for name, parameter in self._parameters.items()
        }


@dataclass(frozen=True)
class _ScheduleFree(AveragingRule):
    """z := z - lr d, x := (1 - c) x + c z, y := (1 - beta1) z + beta1 x, with d the direction of a plain rule at y.

    c is the share of this step's weight in that of all, the weight being the highest rate so far to ``weight_power``.
    """

    beta1: float = 0.9

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


@dataclass(frozen=True)
class AcceleGrad(AveragingRule):
    """AcceleGrad (Levy, Yurtsever & Cevher 2018, algorithm 2), unconstrained.

    With the weight α of a step 1 for the first three and (step of 0) + 1 over 4 from then on, S := S + α² ‖g‖²,
    η = lr · 2 diameter / √(bound² + S), z := z - α η g, y := w - η g, and the next gradient is taken at
    w := z / α' + (1 - 1 / α') y, with the α' of the next step. What is evaluated is the mean of all y, weighted by α.

    ``diameter`` is that of a ball that holds the start and a minimum, ``bound`` that of a gradient's norm. Each array
    of parameters has its own S, as in the Deep500 paper's implementation; the paper's analysis is of one vector.
    """

    elementwise: ClassVar[bool] = False
    lr: float = 1.0
    diameter: float = 1.0
    bound: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive(self, "diameter", "bound")

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
