"""What a network is made of besides nodes: its values, and parameters that a seed initialises.

The one idea: a drawn parameter follows from the seed and its name alone, so every framework starts from the same bits,
and adding a layer does not change the weights of the others.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx
from numpy.random import PCG64, Generator
from numpy.typing import NDArray
from onnx import helper

from levelbench.errors import DefinitionError

__all__ = ["Draw", "Parameter", "Value", "dtype_of", "element_type", "value_info", "value_of"]

Shape = tuple[int | str | None, ...]


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
    """How a parameter is drawn: ``scale`` is a standard deviation, a half width, or the constant itself."""

    kind: Literal["normal", "uniform", "constant"]
    scale: float
    mean: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in ("normal", "uniform", "constant"):
            raise DefinitionError(f"a draw of kind {self.kind!r}", "there is none", "normal, uniform or constant")


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
        """The initial value: a function of the seed and the name alone. ``DefinitionError`` for a stored one."""
        draw = self.draw
        if draw is None:
            raise DefinitionError(f"drawing parameter {self.name!r}", "its values are stored", "read them instead")
        if draw.kind == "constant":
            return np.full(self.shape, draw.scale, dtype_of(self.dtype))
        generator = Generator(PCG64([seed, zlib.crc32(self.name.encode())]))
        if draw.kind == "normal":
            values = generator.standard_normal(self.shape) * draw.scale
        else:
            values = generator.uniform(-draw.scale, draw.scale, self.shape)
        return np.asarray(values + draw.mean if draw.mean else values).astype(dtype_of(self.dtype))


def dtype_of(name: str) -> np.dtype[Any]:
    """NumPy's dtype of that name, those of ``ml_dtypes`` included: ``bfloat16``, ``int4``, ``float8_e4m3fn``."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        found: Any = getattr(ml_dtypes, name, None)
        if found is None:
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
