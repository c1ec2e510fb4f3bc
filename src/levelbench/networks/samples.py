"""Random inputs of a network, from a seed.

The one idea: what an input says of itself (dtype, shape, the bound of its integers) is enough to run the network, so
one command measures any model; what it leaves open has to be said.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from levelbench.errors import UsageError
from levelbench.networks.values import Value, dtype_of

__all__ = ["bound_shape", "make_inputs"]


def make_inputs(
    inputs: Sequence[Value], batch: int, seed: int, sizes: Mapping[str, int], fills: Mapping[str, int]
) -> dict[str, NDArray[Any]]:
    """Arrays by name: floating ones normal, integers uniform in [0, ``fills[name]``) (default 2), booleans even odds.

    ``UsageError`` for a batch below 1, a size that nobody says, and a dtype with no such draw (strings).
    """
    if batch < 1:
        raise UsageError(f"a batch of {batch}", "that is no sample at all", "give 1 or more")
    return {each.name: _draw(each, bound_shape(each, batch, sizes), seed, fills) for each in inputs}


def bound_shape(value: Value, batch: int, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape with its open sizes filled in: from ``sizes``, and the first axis with ``batch`` where they lack it."""
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
    return tuple(shape)


def _draw(value: Value, shape: tuple[int, ...], seed: int, fills: Mapping[str, int]) -> NDArray[Any]:
    generator = Generator(PCG64([seed, zlib.crc32(value.name.encode())]))
    if value.dtype in ("", "str", "object"):
        raise UsageError(f"random values for input {value.name!r}", f"it holds {value.dtype or 'no tensor'}", "give it")
    dtype = dtype_of(value.dtype)
    if dtype.kind == "b":
        return generator.random(shape) < 0.5
    if dtype.kind in "iu":
        return generator.integers(0, fills.get(value.name, 2), shape).astype(dtype)
    if dtype.kind == "c":
        return np.asarray(generator.standard_normal(shape) + 1j * generator.standard_normal(shape)).astype(dtype)
    return np.asarray(generator.standard_normal(shape)).astype(dtype)
