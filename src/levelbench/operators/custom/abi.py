"""The C structures of ``levelbench.h``, and how dtypes are written in DLPack."""

from __future__ import annotations

import ctypes
from typing import Any, Final

import ml_dtypes
import numpy as np

from levelbench.errors import UnsupportedError

__all__ = ["ABI", "Call", "DataType", "RawAttribute", "Tensor", "data_type", "dtype_of"]

ABI: Final = 1
"""The version of the functions that ``levelbench.h`` defines."""


class DataType(ctypes.Structure):
    """``DLDataType``."""

    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class Tensor(ctypes.Structure):
    """``DLTensor``, its device in line."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Call(ctypes.Structure):
    """``levelbench::RawCall``."""

    _fields_ = (
        ("inputs", ctypes.POINTER(Tensor)),
        ("outputs", ctypes.POINTER(Tensor)),
        ("gradients", ctypes.POINTER(Tensor)),
        ("input_gradients", ctypes.POINTER(Tensor)),
        ("input_count", ctypes.c_int32),
        ("output_count", ctypes.c_int32),
        ("workspace", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_int64),
        ("stream", ctypes.c_void_p),
        ("message", ctypes.c_char_p),
        ("message_size", ctypes.c_int64),
    )


class RawAttribute(ctypes.Structure):
    """``levelbench::RawAttribute``."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("kind", ctypes.c_int32),
        ("length", ctypes.c_int64),
        ("ints", ctypes.POINTER(ctypes.c_int64)),
        ("floats", ctypes.POINTER(ctypes.c_double)),
        ("texts", ctypes.POINTER(ctypes.c_char_p)),
    )


_CODES: Final[dict[np.dtype[Any], tuple[int, int]]] = {
    **{np.dtype(f"int{bits}"): (0, bits) for bits in (8, 16, 32, 64)},
    **{np.dtype(f"uint{bits}"): (1, bits) for bits in (8, 16, 32, 64)},
    **{np.dtype(f"float{bits}"): (2, bits) for bits in (16, 32, 64)},
    np.dtype(ml_dtypes.bfloat16): (4, 16),
    np.dtype("complex64"): (5, 64),
    np.dtype("complex128"): (5, 128),
    np.dtype(bool): (6, 8),
}
_DTYPES: Final = {code: dtype for dtype, code in _CODES.items()}


def data_type(dtype: np.dtype[Any]) -> DataType:
    """DLPack's name of a dtype; ``UnsupportedError`` where it has none."""
    if dtype not in _CODES:
        raise UnsupportedError(f"an array of {dtype} in C++", "no C++ operator can take it", "convert it")
    code, bits = _CODES[dtype]
    return DataType(code, bits, 1)


def dtype_of(found: DataType) -> np.dtype[Any]:
    """The dtype of DLPack's name; ``UnsupportedError`` where NumPy has none."""
    dtype = _DTYPES.get((found.code, found.bits)) if found.lanes == 1 else None
    if dtype is None:
        what = f"NumPy has no type of DLPack's code {found.code}, {found.bits} bits, {found.lanes} lanes"
        raise UnsupportedError("an output of a C++ operator", what, "choose another type in infer")
    return dtype
