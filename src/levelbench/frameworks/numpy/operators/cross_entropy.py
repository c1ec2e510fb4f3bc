"""The case of SoftmaxCrossEntropyLoss that networks are trained with: a mean over rows, no weights, nothing ignored.

The one idea: the exponentials of the forward are kept, so the backward is a division and a subtraction.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from levelbench.frameworks.numpy.operators.numeric import Array
from levelbench.operators.contract import Pullback

__all__ = ["is_plain", "mean_cross_entropy"]

_WORKING = (np.dtype(np.float32), np.dtype(np.float64))


def is_plain(scores: Array, target: Array) -> bool:
    """Whether these are rows of scores in a working dtype with a label each, as :func:`mean_cross_entropy` takes."""
    return scores.ndim == 2 and target.ndim == 1 and scores.size > 0 and scores.dtype in _WORKING


def mean_cross_entropy(scores: Array, target: Array) -> tuple[Array, Pullback]:
    """The mean of -log softmax(scores)[target], and its pullback; scores (batch, classes), target (batch,)."""
    shifted = scores - scores.max(axis=1, keepdims=True)
    rows = np.arange(len(target))
    chosen = shifted[rows, target]
    np.exp(shifted, out=shifted)
    sums = shifted.sum(axis=1, keepdims=True)
    loss = np.asarray((np.log(sums[:, 0]) - chosen).mean(dtype=scores.dtype))

    def pullback(*gradients: Any) -> tuple[Array | None, ...]:
        if gradients[0] is None:
            return None, None
        share = scores.dtype.type(gradients[0]) / scores.dtype.type(len(target))
        gradient = shifted * (share / sums)
        gradient[rows, target] -= share
        return gradient, None

    return loss, pullback
