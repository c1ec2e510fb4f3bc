"""Tensors by name that stay where they are: putting another one in the place of one copies its values there."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from levelbench.frameworks.torch.arrays import from_numpy
from levelbench.networks import executor

__all__ = ["Live"]


class Live(executor.CheckedArrays):
    """Detached tensors that share the storage of a network's own; arrays of the host may be put in their places."""

    def replaced(self, name: str, held: Tensor, value: Any) -> Tensor:
        """``held``, with the values of ``value`` in its own dtype."""
        if not isinstance(value, Tensor):
            value = from_numpy(np.asarray(value), held.device)
        # copy_ alone would stretch a smaller tensor.
        executor.require_shape(name, held.shape, value.shape)
        with torch.no_grad():
            held.copy_(value)
        return held
