"""Adafactor: Adam's second moment kept as one row and one column instead of a matrix."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from levelbench.networks.executor import Array
from levelbench.training.optimizers import checks
from levelbench.training.optimizers.arrays import add_scaled, maximum, minimum, mix, namespace, norm, sqrt
from levelbench.training.optimizers.base import State, UpdateRule

__all__ = ["Adafactor"]


@dataclass(frozen=True)
class Adafactor(UpdateRule):
    """Adaptive rates with sublinear memory (Shazeer & Stern 2018, algorithm 4), in PyTorch's form.

    The mean squares of an array of two or more axes are kept by row and by column of its last two, R and C, and their
    product R C / mean(R) stands for the second moment V; an array of fewer axes keeps V itself. The decay of step t is
    1 - t^beta2_decay. The update U = g / √V is scaled down to a root mean square of at most ``clip``, and multiplied by
    max(scale, RMS(w)) min(lr, 1/√t). ``epsilon`` bounds √V from below (0: the unit of rounding of the array's dtype);
    the paper adds it to g² instead. The decay of the weights, lr weight_decay w, is decoupled.
    """

    elementwise: ClassVar[bool] = False
    lr: float = 0.01
    beta2_decay: float = -0.8
    epsilon: float = 0.0
    scale: float = 1e-3
    clip: float = 1.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.below_zero(self, "beta2_decay")
        checks.not_negative(self, "epsilon", "scale", "weight_decay")
        checks.positive(self, "clip")

    def init(self, parameter: Array) -> State:
        """Mean squares by row (..., n, 1) and by column (..., 1, m), zero; or those of all elements."""
        xp = namespace(parameter)
        if parameter.ndim < 2:
            return xp.zeros_like(parameter)
        return xp.zeros_like(parameter[..., :, :1]), xp.zeros_like(parameter[..., :1, :])

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        """One step."""
        xp = namespace(parameter)
        new = step**self.beta2_decay
        epsilon = self.epsilon or float(xp.finfo(parameter.dtype).eps)
        rate = minimum(lr, step**-0.5) * maximum(_rms(parameter), self.scale)
        if self.weight_decay:
            parameter *= 1 - lr * self.weight_decay
        squares = gradient * gradient
        if parameter.ndim < 2:
            state = mix(state, squares, new)
            second = state
        else:
            rows = mix(state[0], _mean(squares, -1), new)
            columns = mix(state[1], _mean(squares, -2), new)
            second = rows / maximum(_mean(rows, -2), epsilon) * columns
            state = (rows, columns)
        change = gradient / sqrt(maximum(second, epsilon * epsilon))
        return add_scaled(parameter, change, -rate / maximum(_rms(change) / self.clip, 1.0)), state


def _mean(array: Array, axis: int) -> Array:
    """The mean along an axis, which stays with length 1; 0 of none."""
    return namespace(array).sum(array, axis=axis, keepdims=True) / max(1, array.shape[axis])


def _rms(array: Array) -> Array:
    """The root mean square of all elements; 0 of none."""
    return norm(array) / max(1, math.prod(array.shape)) ** 0.5
