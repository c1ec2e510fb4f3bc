"""The parts of a network besides nodes: its values, parameters initialised from a seed, and random inputs.

A drawn parameter depends only on the seed and its name, so every framework starts from the same bits, and adding a
layer does not change the weights of others. An input's declaration (dtype, shape, bound of integers) is enough to run
the network, so one command measures any model; only open sizes must be given.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any, Literal

import numpy as np
import onnx
from numpy.random import PCG64, Generator
from numpy.typing import NDArray
from onnx import helper

from levelbench.errors import DefinitionError, UsageError
from levelbench.measure.environment.machine import memory_left_bytes
from levelbench.operators.node import OperatorNode, structural

Shape = tuple[int | str | None, ...]
# How many numbers are drawn at a time: NumPy draws in float64, and converting them makes copies.
_CHUNK = 2**20
_SMALL_BYTES = 2**20
_MOST_BYTES = 2**40
# Keeps drawn values finite in float64, even if doubled or shifted.
_LARGEST = 1e300


@dataclass(frozen=True)
class Value:
    """A tensor of a network: the NumPy name of its dtype, and its shape, with names for open sizes.

    ``None`` stands for an unknown size or shape. A value that is not a tensor has the dtype ``""``.
    """

    name: str
    dtype: str
    shape: Shape | None

    @property
    def sizes(self) -> tuple[int, ...] | None:
        """The shape, if all of it is known."""
        sizes = tuple(each for each in self.shape or () if isinstance(each, int))
        return sizes if self.shape is not None and len(sizes) == len(self.shape) else None


@dataclass(frozen=True)
class Draw:
    """How a parameter is drawn: ``scale`` is a standard deviation, a half-width, or the constant itself.

    Raises ``DefinitionError`` for a number that is not finite and for a width below 0.
    """

    kind: Literal["normal", "uniform", "constant"]
    scale: float
    mean: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in ("normal", "uniform", "constant"):
            do = "use normal, uniform or constant"
            raise DefinitionError(f"a draw of kind {self.kind!r}", "there is no such kind", do)
        for what, value in (("scale", self.scale), ("mean", self.mean)):
            # Written as "not <=", because comparisons with NaN are false.
            if not abs(value) <= _LARGEST:
                raise DefinitionError(f"a draw of {what} {value}", f"it is not finite, or above {_LARGEST}", "lower it")
        if self.kind != "constant" and self.scale < 0:
            raise DefinitionError(f"a {self.kind} draw of scale {self.scale}", "negative width", "give 0 or more")


@dataclass(frozen=True)
class Parameter:
    """An array that belongs to a network: trainable, or a buffer such as a running mean.

    ``draw`` says how its values are drawn from the seed; ``None`` means that they are stored in the model.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    draw: Draw | None = None
    trainable: bool = True

    @property
    def size(self) -> int:
        """The number of scalars."""
        return math.prod(self.shape)

    def initialise(self, seed: int) -> NDArray[Any]:
        """The initial value: a function of only the seed and the name.

        ``DefinitionError`` for a stored parameter and a non-numeric dtype, ``UsageError`` if the available memory
        cannot hold it.
        """
        draw, asked = self.draw, f"drawing parameter {self.name!r}"
        if draw is None:
            raise DefinitionError(asked, "its values are stored", "read them instead")
        dtype = dtype_of(self.dtype)
        if not is_number(dtype):
            raise DefinitionError(asked, f"its dtype {self.dtype!r} is not numeric", "use one such as float32")
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
    """Raise ``UsageError`` if the available memory is smaller."""
    if size_bytes <= _SMALL_BYTES:
        return
    left = memory_left_bytes()
    most = _MOST_BYTES if left is None else min(left, _MOST_BYTES)
    if size_bytes > most:
        found = f"it takes {size_bytes:,} bytes, but {most:,} are left"
        raise UsageError(asked, found, "use less, or a larger machine")


def drawn(
    shape: tuple[int, ...], dtype: np.dtype[np.generic], values: Callable[[int], NDArray[Any]], asked: str
) -> NDArray[Any]:
    """An array filled by calls of ``values(count)``, so that little more memory than the array is needed.

    For a complex dtype all real parts come first. ``UsageError`` if the system does not grant the memory.
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


def is_number(dtype: np.dtype[np.generic]) -> bool:
    """Whether the dtype is a floating-point or integer one, including those of ``ml_dtypes``."""
    return dtype.kind in "fiu" or dtype.type.__module__ == "ml_dtypes"


def dtype_of(name: str) -> np.dtype[np.generic]:
    """The NumPy dtype of that name, including those of ``ml_dtypes``: ``bfloat16``, ``int4``, ``float8_e4m3fn``."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        found: Any = getattr(ml_dtypes, name, None)
        if not (isinstance(found, type) and issubclass(found, np.generic)):
            found_in = "neither NumPy nor ml_dtypes has it"
            raise DefinitionError(f"dtype {name!r}", found_in, "use one such as float32") from None
        dtype: np.dtype[Any] = np.dtype(found)
        return dtype


def element_type(dtype: str) -> int:
    """ONNX's number for a dtype."""
    return int(helper.np_dtype_to_tensor_dtype(dtype_of(dtype)))


def free_name(name: str, taken: set[str], at: int = 1) -> str:
    """``name``, or the first unused of ``name_1``, ``name_2``, ... (from ``at`` on); marks it as used."""
    found = name
    while found in taken:
        found, at = f"{name}_{at}", at + 1
    taken.add(found)
    return found


def value_info(value: Value) -> onnx.ValueInfoProto:
    """The ONNX message that declares a tensor."""
    return helper.make_tensor_value_info(value.name, element_type(value.dtype), value.shape)


def value_of(info: onnx.ValueInfoProto) -> Value:
    """The value that an ONNX message declares."""
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
    # Some exporters write -1 for an open size.
    if dimension.HasField("dim_value") and dimension.dim_value >= 0:
        return int(dimension.dim_value)
    return dimension.dim_param or None


_LARGEST_SIZE = 2**40
_HIGHEST = 2**63 - 1


def make_inputs(
    inputs: Sequence[Value], batch: int, seed: int, sizes: Mapping[str, int], fills: Mapping[str, int]
) -> dict[str, NDArray[Any]]:
    """Random arrays by name: normal floats, uniform integers in [0, ``fills[name]``) (default 2), fair booleans.

    ``UsageError`` for a batch below 1, a missing size, a dtype that cannot be drawn (strings), an integer bound below
    1, and more than the available memory.
    """
    if batch < 1:
        raise UsageError(f"a batch of {batch}", "it has no samples", "give 1 or more")
    shapes = [bound_shape(each, batch, sizes) for each in inputs]
    dtypes = [_dtype(each) for each in inputs]
    total = sum(math.prod(shape) * dtype.itemsize for shape, dtype in zip(shapes, dtypes, strict=True))
    check_memory(total, f"random inputs of a batch of {batch}")
    drawing = zip(inputs, shapes, dtypes, strict=True)
    return {each.name: _draw(each.name, shape, dtype, seed, fills.get(each.name, 2)) for each, shape, dtype in drawing}


def batch_axis(value: Value, sizes: Mapping[str, int]) -> int | None:
    """The batch axis of an input: the one called ``batch``, else a first axis of unknown size; or ``None``."""
    shape = value.shape or ()
    if "batch" in shape:
        return shape.index("batch")
    return 0 if shape and not isinstance(shape[0], int) and shape[0] not in sizes else None


def bound_shape(value: Value, batch: int, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape with its open sizes filled in from ``sizes``, or from ``batch`` for a first axis missing there.

    ``UsageError`` for a missing size, and one that is below 0 or above 2**40.
    """
    if not value.dtype:
        found = "it is a sequence, a map or an optional value, and no option gives one"
        raise UsageError(f"input {value.name!r}", found, "make it inside the model, from inputs that are tensors")
    if value.shape is None:
        raise UsageError(
            f"input {value.name!r}", "the model does not declare its shape", f"give --shape {value.name}=1x3x8"
        )
    shape = []
    for axis, size in enumerate(value.shape):
        if isinstance(size, int):
            shape.append(size)
        elif size is not None and size in sizes and (axis or size != "batch"):
            shape.append(sizes[size])
        elif axis == 0 or size == "batch":
            shape.append(batch)
        else:
            what = f"size {size!r}" if size else f"axis {axis}"
            do = f"give --size {quote(f'{size}=16')}" if size else f"give --shape {value.name}=..."
            raise UsageError(f"{what} of input {value.name!r}", "its size is unknown", do)
        if not 0 <= shape[-1] <= _LARGEST_SIZE:
            raise UsageError(f"axis {axis} of input {value.name!r}", f"its size is {shape[-1]}", "give 0 to 2**40")
    return tuple(shape)


def _dtype(value: Value) -> np.dtype[np.generic]:
    if value.dtype in ("", "str", "object"):
        found = f"it holds {value.dtype or 'no tensor'}"
        raise UsageError(f"random values for input {value.name!r}", found, "give its values: --inputs VALUES.npz")
    return dtype_of(value.dtype)


def _draw(name: str, shape: tuple[int, ...], dtype: np.dtype[np.generic], seed: int, high: int) -> NDArray[Any]:
    generator = Generator(PCG64([seed, zlib.crc32(name.encode())]))
    asked = f"random values for input {name!r}"
    if dtype.kind == "b":
        return drawn(shape, dtype, lambda count: generator.random(count) < 0.5, asked)
    if dtype.kind in "iu":
        if not 1 <= high <= _HIGHEST:
            raise UsageError(asked, f"impossible bound {high}", "give a bound of 1 to 2**63 - 1")
        return drawn(shape, dtype, lambda count: generator.integers(0, high, count), asked)
    return drawn(shape, dtype, generator.standard_normal, asked)


_FLOATING = {
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.DOUBLE,
    onnx.TensorProto.FLOAT16,
    onnx.TensorProto.BFLOAT16,
}
_STATISTICS = {"BatchNormalization": (3, 4)}


def default_parameters(graph: onnx.GraphProto) -> tuple[Parameter, ...]:
    """Floating-point initialisers of rank 1 or more that no node reads as a structural input.

    Those read only as mean or variance of BatchNormalization are buffers.
    """
    structure: set[str] = set()
    statistics: set[str] = set()
    numbers: set[str] = set()
    for proto in graph.node:
        node = OperatorNode(proto.op_type, (), (), {}, "" if proto.domain == "ai.onnx" else proto.domain)
        sizes, buffers = structural(node), _STATISTICS.get(proto.op_type, ())
        for at, name in enumerate(proto.input):
            (structure if at in sizes else statistics if at in buffers else numbers).add(name)
    return tuple(
        Parameter(
            each.name,
            tuple(each.dims),
            helper.tensor_dtype_to_np_dtype(each.data_type).name,
            trainable=each.name not in statistics - numbers,
        )
        for each in graph.initializer
        if each.data_type in _FLOATING and each.dims and each.name not in structure
    )
