"""The reverse of broadcasting: sums of a gradient over what was repeated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["unbroadcast"]


def unbroadcast(gradient: NDArray[Any], shape: Sequence[int]) -> NDArray[Any]:
    """``gradient`` of a value that was broadcast from ``shape``, in that shape; itself where they are the same."""
    if gradient.shape == tuple(shape):
        return gradient
    lead = gradient.ndim - len(shape)
    if gradient.shape[lead:] == tuple(shape):
        # The usual case, a bias: worth three microseconds.
        found: NDArray[Any] = np.add.reduce(gradient, axis=tuple(range(lead)), dtype=gradient.dtype)
        return found
    axes = tuple(range(lead)) + tuple(
        lead + at for at, size in enumerate(shape) if size == 1 and gradient.shape[lead + at] != 1
    )
    summed: NDArray[Any] = gradient.sum(axis=axes, keepdims=True, dtype=gradient.dtype) if axes else gradient
    return summed.reshape(shape)
