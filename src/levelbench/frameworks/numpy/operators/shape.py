"""Operators that rearrange elements or make them from a shape: Reshape to SpaceToDepth, Shape, Range, Constant.

The one idea: what only rearranges answers with a view where NumPy can, and its gradient is the way back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from levelbench.errors import UnsupportedError
from levelbench.frameworks.numpy.operators.broadcast import unbroadcast
from levelbench.frameworks.numpy.operators.kernel import Kernel, Maker, Registry
from levelbench.frameworks.numpy.operators.logic import no_gradient
from levelbench.frameworks.numpy.operators.numeric import Array, alone, is_narrow, lift, within
from levelbench.operators.node import OperatorNode

__all__ = ["OPERATORS"]

OPERATORS = Registry()


def _reshaped(gradient: Array, inputs: Sequence[Any], output: Array) -> tuple[Array | None, ...]:
    return gradient.reshape(inputs[0].shape), *(None,) * (len(inputs) - 1)


def _integers(given: Any) -> list[int]:
    return [int(each) for each in np.asarray(given).reshape(-1)]


@OPERATORS.add("Reshape")
def _reshape(node: OperatorNode) -> Kernel:
    allow_zero = node.get("allowzero", 0)

    def forward(x: Array, shape: Array) -> Array:
        sizes = _integers(shape)
        if not allow_zero:
            sizes = [size if size else x.shape[at] for at, size in enumerate(sizes)]
        return x.reshape(sizes)

    return Kernel(forward, alone(_reshaped))


@OPERATORS.add("Flatten")
def _flatten(node: OperatorNode) -> Kernel:
    axis = node["axis"]

    def forward(x: Array) -> Array:
        at = axis + x.ndim if axis < 0 else axis
        return x.reshape(prod(x.shape[:at]), prod(x.shape[at:]))

    return Kernel(forward, alone(_reshaped))


@OPERATORS.add("Squeeze")
def _squeeze(node: OperatorNode) -> Kernel:
    def forward(x: Array, axes: Array | None = None) -> Array:
        return np.squeeze(x) if axes is None else np.squeeze(x, tuple(_integers(axes)))

    return Kernel(forward, alone(_reshaped))


@OPERATORS.add("Unsqueeze")
def _unsqueeze(node: OperatorNode) -> Kernel:
    return Kernel(lambda x, axes: np.expand_dims(x, tuple(_integers(axes))), alone(_reshaped))


@OPERATORS.add("Transpose")
def _transpose(node: OperatorNode) -> Kernel:
    order = node.get("perm")

    def backward(gradient: Array, inputs: Sequence[Any], output: Array) -> tuple[Array, ...]:
        return (gradient.transpose(None if order is None else np.argsort(order)),)

    return Kernel(lambda x: x.transpose(order), alone(backward))


@OPERATORS.add("Expand")
def _expand(node: OperatorNode) -> Kernel:
    """Broadcasting in both directions: a size of 1 in the shape keeps that of x. The answer is a read-only view."""

    def forward(x: Array, shape: Array) -> Array:
        return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(_integers(shape))))

    def backward(gradient: Array, inputs: Sequence[Any], output: Array) -> tuple[Array | None, ...]:
        return within(unbroadcast(lift(gradient), inputs[0].shape), inputs[0]), None

    return Kernel(forward, alone(backward))


@OPERATORS.add("Tile")
def _tile(node: OperatorNode) -> Kernel:
    def backward(gradient: Array, inputs: Sequence[Any], output: Array) -> tuple[Array | None, ...]:
        x, repeats = inputs
        pairs = [size for pair in zip(_integers(repeats), x.shape, strict=True) for size in pair]
        summed = lift(gradient).reshape(pairs).sum(axis=tuple(range(0, 2 * x.ndim, 2)))
        return within(summed, x), None

    return Kernel(lambda x, repeats: np.tile(x, _integers(repeats)), alone(backward))


def _blocks(to_space: bool) -> Maker:
    """DepthToSpace, or the reverse: (batch, channels block², height, width) and (batch, channels, height block, ...).

    The depth is (block, block, channels) with mode DCR, (channels, block, block) with CRD.
    """

    def maker(node: OperatorNode) -> Kernel:
        size, column_first = node["blocksize"], node.get("mode", "DCR") == "CRD"

        def widen(x: Array) -> Array:
            batch, depth, height, width = x.shape
            channels = depth // (size * size)
            if column_first:
                parts = x.reshape(batch, channels, size, size, height, width).transpose(0, 1, 4, 2, 5, 3)
            else:
                parts = x.reshape(batch, size, size, channels, height, width).transpose(0, 3, 4, 1, 5, 2)
            return parts.reshape(batch, channels, height * size, width * size)

        def deepen(x: Array) -> Array:
            batch, channels, height, width = x.shape
            parts = x.reshape(batch, channels, height // size, size, width // size, size)
            parts = parts.transpose(0, 1, 3, 5, 2, 4) if column_first else parts.transpose(0, 3, 5, 1, 2, 4)
            return parts.reshape(batch, channels * size * size, height // size, width // size)

        there, back = (widen, deepen) if to_space else (deepen, widen)
        return Kernel(there, alone(lambda gradient, inputs, output: (back(gradient),)))

    return maker


OPERATORS.add("DepthToSpace")(_blocks(to_space=True))
OPERATORS.add("SpaceToDepth")(_blocks(to_space=False))


def _made(forward: Callable[..., Any]) -> Kernel:
    return Kernel(forward, no_gradient)


@OPERATORS.add("Shape")
def _shape(node: OperatorNode) -> Kernel:
    part = slice(node.get("start", 0), node.get("end"))
    return _made(lambda x: np.array(x.shape[part], np.int64))


@OPERATORS.add("Size")
def _size(node: OperatorNode) -> Kernel:
    return _made(lambda x: np.array(x.size, np.int64))


@OPERATORS.add("Range")
def _range(node: OperatorNode) -> Kernel:
    """Numbers from start up to limit by delta; narrow floating-point types in that of ``stash_type``."""
    wide = np.float64 if node.get("stash_type", 1) == 11 else np.float32

    def forward(start: Array, limit: Array, delta: Array) -> Array:
        dtype = start.dtype
        if is_narrow(dtype):
            bounds = [float(np.asarray(each).reshape(())) for each in (start, limit, delta)]
            return np.arange(*bounds, dtype=wide).astype(dtype)
        return np.arange(start.item(), limit.item(), delta.item()).astype(dtype)

    return _made(forward)


@OPERATORS.add("ConstantOfShape")
def _constant_of_shape(node: OperatorNode) -> Kernel:
    given = node.get("value")
    value = np.zeros(1, np.float32) if given is None else np.asarray(given).reshape(-1)
    return _made(lambda shape: np.full(_integers(shape), value[0], value.dtype))


@OPERATORS.add("Constant")
def _constant(node: OperatorNode) -> Kernel:
    (name,) = node.attributes
    value = node.attributes[name]
    match name:
        case "value":
            array = np.asarray(value)
        case "value_int" | "value_ints":
            array = np.asarray(value, np.int64)
        case "value_float" | "value_floats":
            array = np.asarray(value, np.float32)
        case "value_string" | "value_strings":
            array = np.asarray(value, object)
        case _:
            raise UnsupportedError(f"Constant with {name}", "numpy has no sparse tensors", "use a dense one")
    return _made(lambda: array)
