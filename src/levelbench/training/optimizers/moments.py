"""What Adam and its relatives share: the mean of squared gradients, and the root of it that a step is divided by.

The one idea: c m / (√v + c ε) is m / (√v / c + ε), the quotient of the papers, without a pass over all elements that
divides them by the number c.
"""

from __future__ import annotations

from levelbench.networks.executor import Array
from levelbench.training.optimizers.arrays import add_product, sqrt

__all__ = ["root", "squared"]


def squared(second: Array, gradient: Array, beta2: float) -> Array:
    """The second moment after another gradient: beta2 v + (1 - beta2) g². It is changed in place where that can be."""
    second *= beta2
    return add_product(second, gradient, gradient, 1 - beta2)


def root(second: Array, beta2: float, step: int, epsilon: float) -> tuple[Array, float]:
    """The pair (√v + c ε, c), with c = √(1 - beta2^step) the correction of the second moment's bias."""
    correction = (1 - beta2**step) ** 0.5
    denominator = sqrt(second)
    denominator += epsilon * correction
    return denominator, correction
