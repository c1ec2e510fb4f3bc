"""Shampoo: a preconditioner for each axis of a parameter array."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from levelbench.networks.executor import Array
from levelbench.training.optimizers import checks
from levelbench.training.optimizers.arrays import add_scaled, maximum, mix, namespace, zeros_like
from levelbench.training.optimizers.base import State, UpdateRule

__all__ = ["Shampoo"]


@dataclass(frozen=True)
class Shampoo(UpdateRule):
    """For a matrix L := L + g gᵀ, R := R + gᵀ g, w := w - lr L^(-1/4) g R^(-1/4) (Gupta, Koren & Singer 2018).

    Algorithm 2 for an array of k axes: the statistic of an axis is the sum of g gᵀ with g unfolded along that axis,
    from ``epsilon`` times the identity, and is applied to the power -1/(2k). An axis longer than ``largest`` keeps the
    diagonal of its statistic alone. With ``momentum`` the moving average of the gradients is preconditioned in place of
    the gradient. ``every`` is how many steps the roots are kept for: they are most of the cost.
    """

    elementwise: ClassVar[bool] = False
    epsilon: float = 1e-4
    momentum: float = 0.0
    weight_decay: float = 0.0
    every: int = 1
    largest: int = 1200

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive(self, "epsilon")
        checks.share(self, "momentum")
        checks.not_negative(self, "weight_decay")
        checks.at_least(self, 1, "every", "largest")

    def init(self, parameter: Array) -> State:
        """The statistics by axis, their roots if they are kept, and the average gradient if there is momentum."""
        xp = namespace(parameter)
        sizes = tuple(parameter.shape) or (1,)
        statistics = tuple(self._identity(xp, parameter, size) * self.epsilon for size in sizes)
        roots = tuple(self._identity(xp, parameter, size) for size in sizes) if self.every > 1 else None
        return statistics, roots, zeros_like(parameter) if self.momentum else None

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        """One step."""
        xp = namespace(parameter)
        statistics, roots, average = state
        if self.weight_decay:
            gradient = add_scaled(gradient, parameter, self.weight_decay)
        # A parameter of no axis is a vector of one element.
        change = xp.reshape(gradient, tuple(gradient.shape) or (1,))
        statistics = tuple(_gathered(xp, each, change, axis) for axis, each in enumerate(statistics))
        if self.every == 1:
            used = self._roots(xp, statistics)
        else:
            used = roots = self._roots(xp, statistics) if (step - 1) % self.every == 0 else roots
        if self.momentum:
            average = mix(average, gradient, 1 - self.momentum)
            change = xp.reshape(average, change.shape)
        for axis, root in enumerate(used):
            change = _applied(xp, root, change, axis)
        return add_scaled(parameter, xp.reshape(change, parameter.shape), -lr), (statistics, roots, average)

    def _identity(self, xp: Any, parameter: Array, size: int) -> Array:
        # From the parameter itself, as what is made anew would have to be told its device.
        zero = xp.zeros_like(xp.sum(parameter))
        ones = xp.zeros_like(xp.broadcast_to(zero, (size,))) + 1
        if size > self.largest:
            return ones
        positions = xp.cumulative_sum(ones)
        return xp.where(positions[:, None] == positions[None, :], zero + 1, zero)

    def _roots(self, xp: Any, statistics: tuple[Array, ...]) -> tuple[Array, ...]:
        power = -1 / (2 * len(statistics))
        return tuple(self._root(xp, each, power) for each in statistics)

    def _root(self, xp: Any, statistic: Array, power: float) -> Array:
        if len(statistic.shape) == 1:
            return statistic**power
        values, vectors = xp.linalg.eigh(statistic)
        # No eigenvalue is below epsilon, but for rounding.
        return (vectors * maximum(values, self.epsilon) ** power) @ vectors.T


def _gathered(xp: Any, statistic: Array, gradient: Array, axis: int) -> Array:
    """The statistic of an axis with this gradient added."""
    unfolded = _unfolded(xp, gradient, axis)
    if len(statistic.shape) == 1:
        statistic += xp.sum(unfolded * unfolded, axis=1)
    else:
        statistic += unfolded @ unfolded.T
    return statistic


def _applied(xp: Any, root: Array, array: Array, axis: int) -> Array:
    """The array multiplied by a root along an axis."""
    flat = _unfolded(xp, array, axis)
    product = root[:, None] * flat if len(root.shape) == 1 else root @ flat
    others = array.shape[:axis] + array.shape[axis + 1 :]
    return xp.moveaxis(xp.reshape(product, (array.shape[axis], *others)), 0, axis)


def _unfolded(xp: Any, array: Array, axis: int) -> Array:
    """A matrix whose rows are those of an axis, with the other axes in their order."""
    rows = array.shape[axis]
    others = array.shape[:axis] + array.shape[axis + 1 :]
    return xp.reshape(xp.moveaxis(array, axis, 0), (rows, math.prod(others)))
