"""AcceleGrad: an adaptive rate and Nesterov's acceleration, without a guess at the smoothness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from levelbench.networks.executor import Array
from levelbench.training.optimizers import checks
from levelbench.training.optimizers.arrays import add_scaled, copy, maximum, mix, norm
from levelbench.training.optimizers.averaging import AveragingRule
from levelbench.training.optimizers.base import State

__all__ = ["AcceleGrad"]


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
        """One step."""
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
        """The mean of all y."""
        return copy(state[1])
