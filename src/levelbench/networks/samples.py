"""Random inputs of a network, from a seed.

The one idea: what an input says of itself (dtype, shape, the bound of its integers) is enough to run the network, so
one command measures any model; what it leaves open has to be said.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from levelbench.errors import UsageError
from levelbench.networks.values import Value, check_memory, drawn, dtype_of

__all__ = ["bound_shape", "make_inputs"]

_LARGEST_SIZE = 2**40
_HIGHEST = 2**63 - 1


def make_inputs(
    inputs: Sequence[Value], batch: int, seed: int, sizes: Mapping[str, int], fills: Mapping[str, int]
) -> dict[str, NDArray[Any]]:
    """Arrays by name: floating ones normal, integers uniform in [0, ``fills[name]``) (default 2), booleans even odds.

    ``UsageError`` for a batch below 1, a size that nobody says, a dtype with no such draw (strings), a bound of
    integers below 1, and more than the memory that is left.
    """
    if batch < 1:
        raise UsageError(f"a batch of {batch}", "that is no sample at all", "give 1 or more")
    shapes = [bound_shape(each, batch, sizes) for each in inputs]
    dtypes = [_dtype(each) for each in inputs]
    total = sum(math.prod(shape) * dtype.itemsize for shape, dtype in zip(shapes, dtypes, strict=True))
    check_memory(total, f"random inputs of a batch of {batch}")
    drawing = zip(inputs, shapes, dtypes, strict=True)
    return {each.name: _draw(each.name, shape, dtype, seed, fills.get(each.name, 2)) for each, shape, dtype in drawing}


def bound_shape(value: Value, batch: int, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape with its open sizes filled in: from ``sizes``, and the first axis with ``batch`` where they lack it.

    ``UsageError`` for a size that nobody says, and one that is below 0 or above 2**40.
    """
    if value.shape is None:
        raise UsageError(f"input {value.name!r}", "the model does not say its shape", "give one: --shape NAME=1x3x8")
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
            do = f"say it: --size {size}=16" if size else f"give a shape: --shape {value.name}=..."
            raise UsageError(f"{what} of input {value.name!r}", "nobody says how large it is", do)
        if not 0 <= shape[-1] <= _LARGEST_SIZE:
            raise UsageError(f"axis {axis} of input {value.name!r}", f"its size is {shape[-1]}", "give 0 to 2**40")
    return tuple(shape)


def _dtype(value: Value) -> np.dtype[Any]:
    if value.dtype in ("", "str", "object"):
        raise UsageError(f"random values for input {value.name!r}", f"it holds {value.dtype or 'no tensor'}", "give it")
    return dtype_of(value.dtype)


def _draw(name: str, shape: tuple[int, ...], dtype: np.dtype[Any], seed: int, high: int) -> NDArray[Any]:
    generator = Generator(PCG64([seed, zlib.crc32(name.encode())]))
    asked = f"random values for input {name!r}"
    if dtype.kind == "b":
        return drawn(shape, dtype, lambda count: generator.random(count) < 0.5, asked)
    if dtype.kind in "iu":
        if not 1 <= high <= _HIGHEST:
            raise UsageError(asked, f"they are to be below {high}", "give a bound of 1 to 2**63 - 1")
        return drawn(shape, dtype, lambda count: generator.integers(0, high, count), asked)
    return drawn(shape, dtype, generator.standard_normal, asked)
