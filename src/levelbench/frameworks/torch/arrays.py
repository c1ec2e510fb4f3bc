"""Conversion between NumPy arrays and PyTorch tensors, including the types of ``ml_dtypes``, and packed tensors.

A type that ``torch.from_numpy`` does not support has the same bits on both sides, so it is transferred as an integer of
the same width. Integers of four and two bits take one byte each, as in ``ml_dtypes`` (PyTorch has names for them, but
no arithmetic).
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper
from torch import Tensor

from levelbench.distributed.packing import Packer
from levelbench.errors import UnsupportedError

FLOAT8 = frozenset({torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz})
"""The float8 types with a sign and a mantissa."""

SMALL = {torch.int4: (4, True), torch.uint4: (4, False), torch.int2: (2, True), torch.uint2: (2, False)}
"""Integers below a byte: number of bits, and whether they are signed."""

POWER_OF_TWO: torch.dtype | None = getattr(torch, "float8_e8m0fnu", None)
"""``float8_e8m0fnu``, new in PyTorch 2.7."""

# NumPy's type -> the integer type that carries its elements (same name in NumPy and PyTorch), and PyTorch's type.
_CARRIED = {
    np.dtype(getattr(ml_dtypes, name)): (carrier, getattr(torch, name))
    for carrier, names in (
        ("int16", ("bfloat16",)),
        ("uint8", ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")),
        ("uint8", ("uint4", "uint2")),
        ("int8", ("int4", "int2")),
    )
    for name in names
    if hasattr(torch, name)
}
_CARRIERS = {dtype: (carrier, name) for name, (carrier, dtype) in _CARRIED.items()}

_NAMES = {code: np.dtype(helper.tensor_dtype_to_np_dtype(code)).name for code in helper.get_all_tensor_dtypes()}
_TORCH: dict[int, torch.dtype] = {
    code: getattr(torch, name) for code, name in _NAMES.items() if isinstance(getattr(torch, name, None), torch.dtype)
}


def torch_dtype(code: int) -> torch.dtype:
    """PyTorch's type for a ``TensorProto.DataType``; ``UnsupportedError`` if it has none."""
    if code not in _TORCH:
        name = TensorProto.DataType.Name(code)
        raise UnsupportedError(f"type {name} on torch", "PyTorch has no such type", "use another framework")
    return _TORCH[code]


def from_numpy(host: NDArray[Any], device: torch.device) -> Tensor:
    """A tensor with the same type and values on ``device``; on the CPU it may share the array's memory.

    Raises ``UnsupportedError`` for strings and other types that PyTorch does not have.
    """
    carrier, dtype = _CARRIED.get(host.dtype, (None, None))
    if carrier is not None:
        host = host.astype(carrier) if dtype in SMALL else np.require(host, requirements=["C"]).view(carrier)
    try:
        if not (host.flags.c_contiguous and host.flags.writeable):
            host = np.require(host, requirements=["C", "W"])
        tensor = torch.from_numpy(host).to(device)
    except (TypeError, ValueError):
        raise UnsupportedError(
            f"an array of {host.dtype} on torch", "PyTorch has no such type", "use another framework"
        ) from None
    return tensor if dtype is None else tensor.view(dtype)


def to_numpy(tensor: Tensor) -> NDArray[Any]:
    """A copy on the host with the same type; waits until it is computed."""
    tensor = tensor.detach()
    carrier, name = _CARRIERS.get(tensor.dtype, (None, None))
    if carrier is None:
        copy: NDArray[Any] = tensor.resolve_conj().resolve_neg().cpu().numpy().copy()
        return copy
    bits = tensor.view(getattr(torch, carrier)).cpu().numpy()
    return bits.astype(name) if tensor.dtype in SMALL else bits.copy().view(name)


def small_to_bytes(tensor: Tensor) -> Tensor:
    """A tensor of four-bit or two-bit integers as bytes; any other unchanged."""
    if tensor.dtype not in SMALL:
        return tensor
    return tensor.view(torch.int8 if SMALL[tensor.dtype][1] else torch.uint8)


LAYOUTS = {4: torch.channels_last, 5: torch.channels_last_3d}
"""PyTorch's memory format with the channels last, by the number of axes."""

# Tensors in one buffer, with views of it by name.
# A view keeps the strides of its tensor if they are dense, so that a convolution weight in the layout ``channels_last``
# is copied and updated in memory order.


def view_of(tensor: Tensor) -> NDArray[Any] | None:
    """The memory of a tensor on the CPU; ``None`` if its values are elsewhere, or NumPy has no such type."""
    if tensor.device.type != "cpu" or tensor.layout != torch.strided or tensor.is_neg() or tensor.is_conj():
        return None
    if tensor.dtype is torch.bfloat16:
        return tensor.detach().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return None if tensor.dtype in _CARRIERS else tensor.detach().numpy()


class TorchPacker(Packer):
    """Writes into one buffer; tensors that are packed together are copied in one call."""

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
        view = self._views[name]
        if factor == 1.0:
            view.copy_(array)
        else:
            torch.mul(array, factor, out=view)
        return view

    def packed(self) -> Tensor:
        return self._flat

    def pack(self, arrays: Mapping[str, Tensor], factor: float = 1.0) -> Tensor:
        """One call copies all tensors, another scales the buffer. They must not require a gradient."""
        torch._foreach_copy_(self._list, [arrays[name] for name in self._views])
        return self._flat if factor == 1.0 else self._flat.mul_(factor)

    def unpack(self, flat: Tensor) -> dict[str, Tensor]:
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
        return torch.empty(self.size, dtype=self.dtype, device=self._device)

    def write(self, flat: Tensor, targets: MutableMapping[str, Tensor]) -> None:
        parts = self._list if flat is self._flat else list(self.unpack(flat).values())
        with torch.no_grad():
            torch._foreach_copy_([targets[name] for name in self._views], parts)


def _strides(tensor: Tensor) -> tuple[int, ...] | None:
    """The strides of a dense tensor that is not in the default order; ``None`` for all others."""
    if tensor.is_contiguous():
        return None
    layout = LAYOUTS.get(tensor.dim())
    return tensor.stride() if layout is not None and tensor.is_contiguous(memory_format=layout) else None
