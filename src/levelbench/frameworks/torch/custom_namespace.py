"""The Array API standard on PyTorch's tensors, for custom operators that keep to it.

The one idea: PyTorch takes ``axis`` and ``keepdims`` by itself nearly everywhere, so what is here is only what it names
otherwise or answers otherwise; every other name is PyTorch's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["NAMESPACE", "TorchNamespace"]

_KINDS = {
    "bool": {torch.bool},
    "signed integer": {torch.int8, torch.int16, torch.int32, torch.int64},
    "unsigned integer": {torch.uint8, torch.uint16, torch.uint32, torch.uint64},
    "real floating": {torch.float16, torch.bfloat16, torch.float32, torch.float64},
    "complex floating": {torch.complex64, torch.complex128},
}
_KINDS["integral"] = _KINDS["signed integer"] | _KINDS["unsigned integer"]
_KINDS["numeric"] = _KINDS["integral"] | _KINDS["real floating"] | _KINDS["complex floating"]

Axis = int | Sequence[int] | None


class TorchNamespace:
    """``NAMESPACE.max(x, axis=-1, keepdims=True)``: the standard's functions (version 2024.12) on tensors."""

    pi, e, inf, nan, newaxis = math.pi, math.e, math.inf, math.nan, None

    def __getattr__(self, name: str) -> Any:
        """PyTorch's own function, where it is the standard's."""
        return getattr(torch, name)

    @staticmethod
    def astype(x: Tensor, dtype: torch.dtype, /, *, copy: bool = True) -> Tensor:
        """Values in another type."""
        return x.to(dtype, copy=copy)

    @staticmethod
    def isdtype(dtype: torch.dtype, kind: Any) -> bool:
        """Whether a type is of a kind, or of one of several."""
        if isinstance(kind, tuple):
            return any(TorchNamespace.isdtype(dtype, each) for each in kind)
        return dtype in _KINDS[kind] if isinstance(kind, str) else bool(dtype == kind)

    @staticmethod
    def permute_dims(x: Tensor, axes: Sequence[int]) -> Tensor:
        """Axes in another order."""
        return x.permute(tuple(axes))

    @staticmethod
    def matrix_transpose(x: Tensor) -> Tensor:
        """The last two axes exchanged."""
        return x.mT

    @staticmethod
    def expand_dims(x: Tensor, axis: int = 0) -> Tensor:
        """A new axis of length one."""
        return x.unsqueeze(axis)

    @staticmethod
    def max(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """The largest value."""
        return torch.amax(x, _axes(x, axis), keepdims)

    @staticmethod
    def min(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """The smallest value."""
        return torch.amin(x, _axes(x, axis), keepdims)

    @staticmethod
    def prod(x: Tensor, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
        """The product."""
        for each in sorted((at % x.ndim for at in _axes(x, axis)), reverse=True):
            x = torch.prod(x, each, keepdim=keepdims, dtype=dtype)
        return x

    @staticmethod
    def any(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """Whether one is true."""
        return torch.any(x, _axes(x, axis), keepdims) if x.ndim else x.bool()

    @staticmethod
    def all(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """Whether each is true."""
        return torch.all(x, _axes(x, axis), keepdims) if x.ndim else x.bool()

    @staticmethod
    def maximum(a: Any, b: Any) -> Tensor:
        """The larger of two; one may be a number."""
        return torch.maximum(*_pair(a, b))

    @staticmethod
    def minimum(a: Any, b: Any) -> Tensor:
        """The smaller of two; one may be a number."""
        return torch.minimum(*_pair(a, b))

    @staticmethod
    def take(x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
        """Slices at ``indices``, of one axis."""
        return torch.index_select(x, axis, indices)

    @staticmethod
    def take_along_axis(x: Tensor, indices: Tensor, axis: int = -1) -> Tensor:
        """Elements at ``indices`` along an axis."""
        return torch.take_along_dim(x, indices, axis)

    @staticmethod
    def broadcast_arrays(*arrays: Tensor) -> Any:
        """Views of one shape."""
        return torch.broadcast_tensors(*arrays)

    @staticmethod
    def cumulative_sum(x: Tensor, axis: int = 0) -> Tensor:
        """The sums up to each place."""
        return torch.cumsum(x, axis)

    @staticmethod
    def flip(x: Tensor, axis: Axis = None) -> Tensor:
        """The other way round."""
        return torch.flip(x, _axes(x, axis))

    @staticmethod
    def sort(x: Tensor, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
        """Values in order."""
        return torch.sort(x, dim=axis, descending=descending, stable=stable).values

    @staticmethod
    def argsort(x: Tensor, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
        """The indices that put values in order; equal ones stay as they come, unless that is not asked for."""
        return torch.argsort(x, dim=axis, descending=descending, stable=stable)

    @staticmethod
    def bitwise_invert(x: Tensor) -> Tensor:
        """Each bit the other."""
        return torch.bitwise_not(x)

    @staticmethod
    def vecdot(a: Tensor, b: Tensor, axis: int = -1) -> Tensor:
        """Products summed along an axis."""
        return torch.linalg.vecdot(a, b, dim=axis)

    @staticmethod
    def tensordot(a: Tensor, b: Tensor, axes: Any = 2) -> Tensor:
        """Products summed along several axes."""
        return torch.tensordot(a, b, dims=axes)


def _axes(x: Tensor, axis: Axis) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(x.ndim))
    return (axis,) if isinstance(axis, int) else tuple(axis)


def _pair(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    if not isinstance(a, Tensor):
        a = torch.as_tensor(a, dtype=b.dtype, device=b.device)
    if not isinstance(b, Tensor):
        b = torch.as_tensor(b, dtype=a.dtype, device=a.device)
    return a, b


NAMESPACE = TorchNamespace()
