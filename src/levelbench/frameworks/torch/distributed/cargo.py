"""Native arrays as the flat tensors that a library moves, and the way back.

The one idea: what can be shared is shared. A tensor of the library's device and a writable NumPy array are moved where
they lie; anything else is copied on the way in, and on the way out into the array that was given where it can be.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from levelbench.frameworks.torch.arrays import from_numpy, to_numpy
from levelbench.networks.executor import Array
from levelbench.training.optimizers.arrays import namespace

__all__ = ["Cargo", "result_like"]

_COMMON = frozenset("fdil")
"""Codes of NumPy's float32, float64, int32 and int64."""


@final
class Cargo:
    """A native array as a flat, dense tensor on ``device``; ``reads``: the library will read it, and not only write."""

    def __init__(self, array: Array, device: torch.device, *, reads: bool = True) -> None:
        self._array = array
        if isinstance(array, Tensor):
            tensor = array.detach()
            self._shape: tuple[int, ...] = tensor.shape
            self._shared: bool = tensor.device == device and tensor.is_contiguous()
            if self._shared:
                self.flat = tensor.view(-1)
            elif reads:
                self.flat = tensor.to(device).reshape(-1)
                if self.flat.data_ptr() == tensor.data_ptr():
                    self.flat = self.flat.clone()
            else:
                self.flat = torch.empty(tensor.numel(), dtype=tensor.dtype, device=device)
            return
        self._shared = _lends(array) and device.type == "cpu"
        if self._shared and array.dtype.char in _COMMON:
            # What most messages are, without a search for names of types.
            self._shape, self.flat = array.shape, torch.from_numpy(array).view(-1)
            return
        host = array if isinstance(array, np.ndarray) else np.asarray(array)
        self._shape = host.shape
        self.flat = from_numpy(host if self._shared else host.copy(), device).reshape(-1)

    @property
    def shares(self) -> bool:
        """Whether what is written to :attr:`flat` is in the array at once."""
        return self._shared

    def result(self) -> Array:
        """What is in :attr:`flat`, in the array that was given wherever that can be written to, else in one like it."""
        array = self._array
        if self._shared:
            return array
        if isinstance(array, Tensor):
            with torch.no_grad():
                array.copy_(self.flat.view(self._shape))
            return array
        if isinstance(array, np.ndarray) and array.flags.writeable:
            array[...] = to_numpy(self.flat.view(self._shape))
            return array
        return result_like(array, self.flat, self._shape)


def result_like(array: Array, flat: Tensor, shape: tuple[int, ...]) -> Array:
    """The elements of a flat tensor as a new array of the kind and on the device of ``array``, of shape ``shape``."""
    if isinstance(array, Tensor):
        return flat.view(shape).to(array.device)
    host = to_numpy(flat.view(shape))
    if isinstance(array, np.ndarray | np.generic):
        return host
    return namespace(array).asarray(host, device=array.device)


def _lends(array: Any) -> bool:
    """Whether PyTorch can write into the memory of a NumPy array."""
    return isinstance(array, np.ndarray) and array.flags.c_contiguous and array.flags.writeable and array.dtype.isnative
