"""Pools of any number of spatial axes: the largest, the mean, the p-norm, over windows or the whole, and MaxUnpool.

The one idea: XLA's ``reduce_window`` is the pool; how many elements a mean divides by is known from the shape alone.
"""

from __future__ import annotations

from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from levelbench.frameworks.jax.operators.registry import Function, maker, plain
from levelbench.frameworks.jax.operators.windows import Windows, windows_of
from levelbench.operators.node import OperatorNode

__all__: list[str] = []


def _spatial(x: Any) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


def _wide(x: Any) -> Any:
    """Half precisions are summed in float32."""
    return x.astype(jnp.float32) if x.dtype.itemsize < 4 else x


def _reduce(x: Any, start: Any, function: Any, windows: Windows) -> Any:
    return lax.reduce_window(
        x,
        start,
        function,
        (1, 1, *windows.kernel),
        (1, 1, *windows.strides),
        ((0, 0), (0, 0), *windows.pads),
        window_dilation=(1, 1, *windows.dilations),
    )


def _lowest(dtype: Any) -> Any:
    value = -np.inf if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo(dtype).min
    return np.array(value, dtype)


def _elements(x: Any, windows: Windows, fill: Any) -> Any:
    """(N, C, outputs..., kernel elements): the windows laid out, for what ``reduce_window`` cannot derive."""
    padded = lax.pad(x, jnp.asarray(fill), [(0, 0, 0), (0, 0, 0), *((*each, 0) for each in windows.pads)])
    count = x.ndim - 2
    where = []
    for axis in range(count):
        shape = [1] * (2 * count)
        shape[axis], shape[count + axis] = windows.outputs[axis], windows.kernel[axis]
        where.append((windows.places(axis) + windows.pads[axis][0]).reshape(shape))
    found = padded[(slice(None), slice(None), *where)]
    return found.reshape(*found.shape[: 2 + count], -1)


def _positions(shape: tuple[int, ...], windows: Windows, column_major: bool) -> Any:
    """(outputs..., kernel elements): where in its channel an element lies, along rows or along columns."""
    count = len(windows.kernel)
    steps = [1] * count
    for axis in range(1, count) if column_major else range(count - 2, -1, -1):
        steps[axis] = steps[axis - 1] * shape[axis - 1] if column_major else steps[axis + 1] * shape[axis + 1]
    total: Any = 0
    for axis in range(count):
        spread = [1] * (2 * count)
        spread[axis], spread[count + axis] = windows.outputs[axis], windows.kernel[axis]
        total = total + (windows.places(axis) * steps[axis]).reshape(spread)
    return total.reshape(*windows.outputs, -1)


@maker("MaxPool")
def _max_pool(node: OperatorNode) -> Function:
    column_major = bool(node.get("storage_order", 0))
    indexed = len(node.outputs) > 1 and bool(node.outputs[1])

    def max_pool(x: Any) -> Any:
        windows = windows_of(node, x.shape[2:])
        lowest = _lowest(x.dtype)
        if not indexed and set(windows.dilations) == {1}:
            return _reduce(x, lowest, lax.max, windows)
        elements = _elements(x, windows, lowest)
        if not indexed:
            return jnp.max(elements, -1)
        chosen = jnp.argmax(elements, -1, keepdims=True)
        positions = jnp.broadcast_to(_positions(x.shape[2:], windows, column_major), elements.shape)
        inside = jnp.take_along_axis(positions, chosen, -1)[..., 0]
        channel = jnp.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * (x.ndim - 2))
        values = jnp.take_along_axis(elements, chosen, -1)[..., 0]
        return values, (channel * prod(x.shape[2:]) + inside).astype(jnp.int64)

    return max_pool


@maker("AveragePool")
def _average_pool(node: OperatorNode) -> Function:
    with_pads = bool(node["count_include_pad"])

    def average_pool(x: Any) -> Any:
        windows = windows_of(node, x.shape[2:])
        total = _reduce(_wide(x), np.array(0, _wide(x).dtype), lax.add, windows)
        divisor: Any = 1
        for axis, length in enumerate(x.shape[2:]):
            before, behind = windows.declared[axis] if with_pads else (0, 0)
            places = windows.places(axis)
            number = ((places >= -before) & (places < length + behind)).sum(1)
            divisor = divisor * number.reshape([-1 if at == axis else 1 for at in range(x.ndim - 2)])
        return (total / jnp.asarray(divisor, total.dtype)).astype(x.dtype)

    return average_pool


@maker("LpPool")
def _lp_pool(node: OperatorNode) -> Function:
    p = int(node["p"])

    def lp_pool(x: Any) -> Any:
        powers = jnp.abs(_wide(x)) ** p
        total = _reduce(powers, np.array(0, powers.dtype), lax.add, windows_of(node, x.shape[2:]))
        return (total ** (1 / p)).astype(x.dtype)

    return lp_pool


plain(
    {
        "GlobalAveragePool": lambda x: jnp.mean(x, _spatial(x), keepdims=True),
        "GlobalMaxPool": lambda x: jnp.max(x, _spatial(x), keepdims=True),
    }
)


@maker("GlobalLpPool")
def _global_lp_pool(node: OperatorNode) -> Function:
    p = int(node["p"])

    def global_lp_pool(x: Any) -> Any:
        return (jnp.sum(jnp.abs(_wide(x)) ** p, _spatial(x), keepdims=True) ** (1 / p)).astype(x.dtype)

    return global_lp_pool


@maker("MaxUnpool")
def _max_unpool(node: OperatorNode) -> Function:
    """Values put back to their positions in the pool's input; a larger shape that is asked for has zeros behind."""
    kernel = node["kernel_shape"]
    strides, pads = node.get("strides") or [1] * len(kernel), node.get("pads") or [0] * (2 * len(kernel))

    def max_unpool(x: Any, indices: Any, shape: Any = None) -> Any:
        count = len(kernel)
        inner = [(x.shape[2 + at] - 1) * strides[at] - pads[at] - pads[at + count] + kernel[at] for at in range(count)]
        size = prod(x.shape[:2]) * prod(inner)
        flat = jnp.zeros(size, x.dtype).at[indices.reshape(-1)].set(x.reshape(-1))
        full = flat.reshape(*x.shape[:2], *inner)
        if shape is None:
            return full
        wanted = [int(each) for each in shape]
        zero = jnp.zeros((), x.dtype)
        return lax.pad(full, zero, [(0, want - have, 0) for want, have in zip(wanted, full.shape, strict=True)])

    return max_unpool
