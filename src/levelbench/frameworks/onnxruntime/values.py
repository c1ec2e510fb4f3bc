"""NumPy's arrays as ONNX Runtime's values and back, with types that NumPy has not, and strings.

The one idea: on the CPU a value is made on top of the array's own memory. Four and two bits an element are the
exception: ``ml_dtypes`` keeps one in a byte, ONNX Runtime two or four of them, the first in the lowest bits.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnxruntime import OrtValue

from levelbench.errors import UnsupportedError
from levelbench.frameworks.onnxruntime.sessions import Device, Session

__all__ = ["from_numpy", "to_numpy"]


_BITS = {
    onnx.TensorProto.INT4: 4,
    onnx.TensorProto.UINT4: 4,
    onnx.TensorProto.FLOAT4E2M1: 4,
    onnx.TensorProto.INT2: 2,
    onnx.TensorProto.UINT2: 2,
}
_HOST = Device("cpu")


def from_numpy(array: NDArray[Any], device: Device) -> OrtValue:
    """A value on ``device``; on the CPU it shares the memory of a contiguous array and keeps it alive.

    Raises ``UnsupportedError`` for a type that ONNX Runtime has not.
    """
    if array.dtype.kind in "OSUT":
        return _strings(array)
    array = np.asarray(array, order="C")
    element = _element_type(array.dtype)
    if _is_numpys_own(array.dtype):
        return OrtValue.ortvalue_from_numpy(array, device.kind, device.index)
    packed = _pack(array, _BITS[element]) if element in _BITS else array
    value = OrtValue.ortvalue_from_numpy_with_onnx_type(packed, element)
    return value if device == _HOST else _moved(value, device)


def to_numpy(value: OrtValue) -> NDArray[Any]:
    """A copy on the host, with the same type (``ml_dtypes`` where NumPy has none)."""
    element = value.element_type()
    dtype = helper.tensor_dtype_to_np_dtype(element)
    if element == onnx.TensorProto.STRING or (_is_numpys_own(dtype) and value.device_name() != "cpu"):
        return np.array(value.numpy())
    value = value if value.device_name() == "cpu" else _moved(value, _HOST)
    shape, size = tuple(value.shape()), value.tensor_size_in_bytes()
    if not size:
        return np.empty(shape, dtype)
    raw = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(value.data_ptr()))
    if element in _BITS:
        return _unpack(raw, _BITS[element], dtype, shape)
    return raw.view(dtype).reshape(shape).copy()


def _is_numpys_own(dtype: np.dtype[Any]) -> bool:
    """Whether NumPy defines the type: those of ``ml_dtypes`` are registered with it, and have a 2 here."""
    return dtype.isbuiltin == 1


def _element_type(dtype: np.dtype[Any]) -> int:
    try:
        element = helper.np_dtype_to_tensor_dtype(dtype)
    except (KeyError, ValueError):
        element = None
    if element is None or dtype.kind == "c":
        raise UnsupportedError(f"an array of {dtype} on ONNX Runtime", "it has no such tensors", "use another type")
    return int(element)


def _strings(array: NDArray[Any]) -> OrtValue:
    """Strings are made by a session that holds them: the package makes no value of them directly."""
    texts = np.array([_text(each) for each in array.ravel()], object).reshape(array.shape)
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "strings",
        [],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(texts, "x")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7)
    return Session(model, _HOST, "an array of strings").run(())[0]


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _moved(value: OrtValue, device: Device) -> OrtValue:
    moved = OrtValue.ortvalue_from_shape_and_type(value.shape(), value.element_type(), device.kind, device.index)
    onnxruntime.copy_tensors([value], [moved])
    return moved


def _pack(array: NDArray[Any], bits: int) -> NDArray[np.uint8]:
    """The elements, ``bits`` of each, side by side at the front of an array with as many bytes as there are elements.

    The bytes behind them belong to no element; the shape is the array's, as the value is to have.
    """
    share = 8 // bits
    lowest = array.ravel().view(np.uint8) & np.uint8((1 << bits) - 1)
    padded = np.zeros(-(-lowest.size // share) * share, np.uint8)
    padded[: lowest.size] = lowest
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    packed = np.zeros(array.size, np.uint8)
    packed[: padded.size // share] = np.bitwise_or.reduce(padded.reshape(-1, share) << shifts, axis=1)
    return packed.reshape(array.shape)


def _unpack(raw: NDArray[np.uint8], bits: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """The inverse of :func:`_pack`; as in ``ml_dtypes``, the upper bits of a byte are zero, of negative numbers too."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (raw[:, None] >> shifts) & np.uint8((1 << bits) - 1)
    flat = parts.ravel()[: int(np.prod(shape))]
    return flat.view(dtype).reshape(shape)
