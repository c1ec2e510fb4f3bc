"""The loss that networks are trained with: the mean cross-entropy of the softmax, and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["softmax_cross_entropy", "softmax_cross_entropy_gradient"]

FloatArray = NDArray[np.floating[Any]]


def softmax_cross_entropy(logits: FloatArray, labels: NDArray[np.int64]) -> tuple[FloatArray, Any]:
    """The mean over the batch of -log softmax(logits)[label]; logits (batch, classes), labels (batch,)."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    exponentials = np.exp(shifted)
    sums = exponentials.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = (np.log(sums[:, 0]) - shifted[rows, labels]).mean()
    return loss, (exponentials, sums, rows, labels)


def softmax_cross_entropy_gradient(saved: Any) -> FloatArray:
    """(softmax - one-hot) / batch, of shape (batch, classes)."""
    exponentials, sums, rows, labels = saved
    gradient: FloatArray = exponentials / sums
    gradient[rows, labels] -= 1
    gradient /= len(labels)
    return gradient
