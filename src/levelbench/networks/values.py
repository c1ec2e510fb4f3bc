"""What a network is made of besides nodes: its values, and parameters that a seed initialises.

The one idea: a drawn parameter follows from the seed and its name alone, so every framework starts from the same bits,
and adding a layer does not change the weights of the others.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx
from numpy.random import PCG64, Generator
from numpy.typing import NDArray
from onnx import helper

from levelbench.errors import DefinitionError, UsageError
from levelbench.measure.environment.machine import memory_left_bytes

__all__ = [
    "Draw",
    "Parameter",
    "Value",
    "check_memory",
    "drawn",
    "dtype_of",
    "element_type",
    "is_number",
    "value_info",
    "value_of",
]

Shape = tuple[int | str | None, ...]
# Of numbers at a time: NumPy draws in float64 and the steps from there to the dtype make copies.
_CHUNK = 2**20
_SMALL_BYTES = 2**20
_MOST_BYTES = 2**40
# What is drawn, doubled or shifted stays finite in float64.
_LARGEST = 1e300


@dataclass(frozen=True)
class Value:
    """A tensor of a network: NumPy's name of its dtype and its shape, with names for sizes that are left open.

    ``None`` stands for a size, or a whole shape, that is not known. A value that is no tensor has the dtype ``""``.
    """

    name: str
    dtype: str
    shape: Shape | None


@dataclass(frozen=True)
class Draw:
    """How a parameter is drawn: ``scale`` is a standard deviation, a half width, or the constant itself.

    Raises ``DefinitionError`` for a number that is not finite, and for a width below 0.
    """

    kind: Literal["normal", "uniform", "constant"]
    scale: float
    mean: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in ("normal", "uniform", "constant"):
            raise DefinitionError(f"a draw of kind {self.kind!r}", "there is none", "normal, uniform or constant")
        for what, value in (("scale", self.scale), ("mean", self.mean)):
            # Turned round, for no comparison with nan holds.
            if not abs(value) <= _LARGEST:
                raise DefinitionError(f"a draw of {what} {value}", f"it is not finite, or above {_LARGEST}", "lower it")
        if self.kind != "constant" and self.scale < 0:
            raise DefinitionError(f"a {self.kind} draw of scale {self.scale}", "a width is 0 or more", "correct it")


@dataclass(frozen=True)
class Parameter:
    """An array that belongs to a network: trainable, or a buffer such as a running mean.

    ``draw`` says how the seed gives its values; ``None`` that they are stored in the model.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    draw: Draw | None = None
    trainable: bool = True

    @property
    def size(self) -> int:
        """Scalars in it."""
        return math.prod(self.shape)

    def initialise(self, seed: int) -> NDArray[Any]:
        """The initial value: a function of the seed and the name alone.

        ``DefinitionError`` for a stored one and one of a dtype that has no numbers to draw, ``UsageError`` where the
        memory that is left cannot hold it.
        """
        draw, asked = self.draw, f"drawing parameter {self.name!r}"
        if draw is None:
            raise DefinitionError(asked, "its values are stored", "read them instead")
        dtype = dtype_of(self.dtype)
        if not is_number(dtype):
            raise DefinitionError(asked, f"its dtype {self.dtype!r} is none of numbers", "as in float32")
        check_memory(self.size * dtype.itemsize, asked)
        if draw.kind == "constant":
            return np.full(self.shape, draw.scale, dtype)
        generator = Generator(PCG64([seed, zlib.crc32(self.name.encode())]))

        def values(count: int) -> NDArray[Any]:
            if draw.kind == "normal":
                found = generator.standard_normal(count) * draw.scale
            else:
                found = generator.uniform(-draw.scale, draw.scale, count)
            return found + draw.mean if draw.mean else found

        return drawn(self.shape, dtype, values, asked)


def check_memory(size_bytes: int, asked: str) -> None:
    """``UsageError`` where so many bytes are more than the memory that is left."""
    if size_bytes <= _SMALL_BYTES:
        return
    left = memory_left_bytes()
    most = _MOST_BYTES if left is None else min(left, _MOST_BYTES)
    if size_bytes > most:
        raise UsageError(asked, f"it takes {size_bytes:,} bytes, {most:,} are left", "use less, or a larger machine")


def drawn(
    shape: tuple[int, ...], dtype: np.dtype[Any], values: Callable[[int], NDArray[Any]], asked: str
) -> NDArray[Any]:
    """An array of what ``values(count)`` gives call by call, so that little more than the array is held at a time.

    A complex dtype takes all real parts first. ``UsageError`` where the system does not grant the memory.
    """
    try:
        flat = np.empty(math.prod(shape), dtype)
    except MemoryError:
        found = f"the system does not grant the {math.prod(shape) * dtype.itemsize:,} bytes that it takes"
        raise UsageError(asked, found, "use less, or a larger machine") from None
    for part in (flat.real, flat.imag) if dtype.kind == "c" else (flat,):
        for start in range(0, part.size, _CHUNK):
            chunk = part[start : start + _CHUNK]
            chunk[...] = values(chunk.size).astype(chunk.dtype)
    return flat.reshape(shape)


def is_number(dtype: np.dtype[Any]) -> bool:
    """Whether the dtype is a floating or integer one, those of ``ml_dtypes`` included."""
    return dtype.kind in "fiu" or dtype.type.__module__ == "ml_dtypes"


def dtype_of(name: str) -> np.dtype[Any]:
    """NumPy's dtype of that name, those of ``ml_dtypes`` included: ``bfloat16``, ``int4``, ``float8_e4m3fn``."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        found: Any = getattr(ml_dtypes, name, None)
        if not (isinstance(found, type) and issubclass(found, np.generic)):
            raise DefinitionError(f"dtype {name!r}", "neither NumPy nor ml_dtypes has it", "as in float32") from None
        dtype: np.dtype[Any] = np.dtype(found)
        return dtype


def element_type(dtype: str) -> int:
    """ONNX's number of a dtype's name."""
    return int(helper.np_dtype_to_tensor_dtype(dtype_of(dtype)))


def value_info(value: Value) -> onnx.ValueInfoProto:
    """ONNX's message of a tensor."""
    return helper.make_tensor_value_info(value.name, element_type(value.dtype), value.shape)


def value_of(info: onnx.ValueInfoProto) -> Value:
    """The value that ONNX's message declares."""
    if not info.type.HasField("tensor_type"):
        return Value(info.name, "", None)
    tensor = info.type.tensor_type
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type).name if tensor.elem_type else ""
    if tensor.elem_type == onnx.TensorProto.STRING:
        dtype = "str"
    if not tensor.HasField("shape"):
        return Value(info.name, dtype, None)
    return Value(info.name, dtype, tuple(_size(each) for each in tensor.shape.dim))


def _size(dimension: Any) -> int | str | None:
    # Some exporters write -1 for a size that is left open.
    if dimension.HasField("dim_value") and dimension.dim_value >= 0:
        return int(dimension.dim_value)
    return dimension.dim_param or None
