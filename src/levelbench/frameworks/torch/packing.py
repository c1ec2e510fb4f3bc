"""Tensors in one buffer, with views of it by name.

The one idea: a view has the strides of its tensor where these are dense, so that a kernel in the layout
``channels_last`` is copied, and later updated, in one run through memory.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from itertools import pairwise

import torch
from torch import Tensor

from levelbench.distributed.packing import Packer

__all__ = ["TorchPacker"]


class TorchPacker(Packer):
    """Writes into its buffer, all tensors in one call where they come together."""

    def __init__(self, arrays: Mapping[str, Tensor]) -> None:
        super().__init__(arrays)
        self._strides = [_strides(each) for each in arrays.values()]
        ends = [0]
        for each in arrays.values():
            ends.append(ends[-1] + each.numel())
        self._bounds = list(pairwise(ends))
        self._flat = self.empty()
        self._views = self._cut(self._flat)
        self._list = list(self._views.values())

    def put(self, name: str, array: Tensor, factor: float = 1.0) -> Tensor:
        """One pass over the tensor."""
        view = self._views[name]
        if factor == 1.0:
            view.copy_(array)
        else:
            torch.mul(array, factor, out=view)
        return view

    def packed(self) -> Tensor:
        """The buffer."""
        return self._flat

    def pack(self, arrays: Mapping[str, Tensor], factor: float = 1.0) -> Tensor:
        """One call copies all of them, another multiplies the buffer. They must not require a gradient."""
        torch._foreach_copy_(self._list, [arrays[name] for name in self._views])
        return self._flat if factor == 1.0 else self._flat.mul_(factor)

    def unpack(self, flat: Tensor) -> dict[str, Tensor]:
        """Views."""
        return dict(self._views) if flat is self._flat else self._cut(flat)

    def _cut(self, flat: Tensor) -> dict[str, Tensor]:
        shaped = zip(self.layout.shapes.items(), self._bounds, self._strides, strict=True)
        return {
            name: flat[start:stop].reshape(shape)
            if strides is None
            else flat.as_strided(shape, strides, flat.storage_offset() + start)
            for (name, shape), (start, stop), strides in shaped
        }

    def empty(self) -> Tensor:
        """On the tensors' own device."""
        return torch.empty(self.size, dtype=self.dtype, device=self._device)

    def write(self, flat: Tensor, targets: MutableMapping[str, Tensor]) -> None:
        """One call copies all of them."""
        parts = self._list if flat is self._flat else list(self.unpack(flat).values())
        with torch.no_grad():
            torch._foreach_copy_([targets[name] for name in self._views], parts)


def _strides(tensor: Tensor) -> tuple[int, ...] | None:
    """Those of a dense tensor in another than the usual order of its elements; ``None`` for all others."""
    if tensor.is_contiguous():
        return None
    layout = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
    return tensor.stride() if layout is not None and tensor.is_contiguous(memory_format=layout) else None
