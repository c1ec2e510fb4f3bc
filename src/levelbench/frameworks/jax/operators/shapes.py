"""Shapes: Reshape to Transpose, joining and splitting, Slice, Pad, Tile, blocks of space and depth.

The one idea: every shape, axis and size is structural, so it is known when the function is traced, and XLA turns most
of these into nothing.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from levelbench.frameworks.jax.operators.registry import Function, maker, refuse
from levelbench.operators.node import OperatorNode

__all__: list[str] = []


@maker("Shape", eager=True)
def _shape(node: OperatorNode) -> Function:
    start, end = int(node.get("start", 0)), node.get("end")
    return lambda x: jnp.asarray(np.array(x.shape[start:end], np.int64))


@maker("Size", eager=True)
def _size(_: OperatorNode) -> Function:
    return lambda x: jnp.asarray(np.array(x.size, np.int64))


@maker("Reshape")
def _reshape(node: OperatorNode) -> Function:
    zero_is_zero = bool(node.get("allowzero", 0))

    def reshape(x: Any, shape: Any) -> Any:
        sizes = [int(each) for each in shape]
        if not zero_is_zero:
            sizes = [x.shape[at] if each == 0 else each for at, each in enumerate(sizes)]
        return x.reshape(sizes)

    return reshape


@maker("Flatten")
def _flatten(node: OperatorNode) -> Function:
    axis = int(node["axis"])

    def flatten(x: Any) -> Any:
        at = axis + x.ndim if axis < 0 else axis
        return x.reshape(int(np.prod(x.shape[:at])), int(np.prod(x.shape[at:])))

    return flatten


@maker("Squeeze")
def _squeeze(_: OperatorNode) -> Function:
    def squeeze(x: Any, axes: Any = None) -> Any:
        return jnp.squeeze(x, None if axes is None else tuple(int(each) for each in axes))

    return squeeze


@maker("Unsqueeze")
def _unsqueeze(_: OperatorNode) -> Function:
    return lambda x, axes: jnp.expand_dims(x, tuple(int(each) for each in np.atleast_1d(axes)))


@maker("Transpose")
def _transpose(node: OperatorNode) -> Function:
    order = node.get("perm")
    return lambda x: jnp.transpose(x, order)


@maker("Expand")
def _expand(_: OperatorNode) -> Function:
    def expand(x: Any, shape: Any) -> Any:
        return jnp.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(int(each) for each in shape)))

    return expand


@maker("Concat")
def _concat(node: OperatorNode) -> Function:
    axis = int(node["axis"])
    return lambda *inputs: jnp.concatenate(inputs, axis)


@maker("Split")
def _split(node: OperatorNode) -> Function:
    axis, count = int(node["axis"]), len(node.outputs)

    def split(x: Any, sizes: Any = None) -> Any:
        length = x.shape[axis]
        # Parts are equal but for the last one.
        equal = np.minimum(-(-length // count) * np.arange(1, count + 1), length)
        ends = equal if sizes is None else np.cumsum(sizes)
        starts = [0, *ends[:-1]]
        return tuple(
            lax.slice_in_dim(x, int(start), int(end), axis=axis) for start, end in zip(starts, ends, strict=True)
        )

    return split


@maker("Slice")
def _slice(_: OperatorNode) -> Function:
    def cut(x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
        axes = range(len(starts)) if axes is None else axes
        steps = [1] * len(starts) if steps is None else steps
        where = [slice(None)] * x.ndim
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            where[int(axis)] = _range(int(start), int(end), int(step), x.shape[int(axis)])
        return x[tuple(where)]

    return cut


def _range(start: int, end: int, step: int, length: int) -> slice:
    """Python's slice with ONNX's bounds: going down, what lies below the first element begins or ends at it."""
    if step < 0:
        return slice(max(start, -length), None if end < -length else end, step)
    return slice(start, end, step)


@maker("Tile")
def _tile(_: OperatorNode) -> Function:
    return lambda x, repeats: jnp.tile(x, tuple(int(each) for each in repeats))


@maker("Pad")
def _pad(node: OperatorNode) -> Function:
    """A negative pad cuts off."""
    mode = node["mode"]
    if mode not in {"constant", "reflect", "edge", "wrap"}:
        raise refuse(node, f"there is no mode {mode!r}")

    def pad(x: Any, pads: Any, value: Any = None, axes: Any = None) -> Any:
        places = [int(each) % x.ndim for each in (range(x.ndim) if axes is None else axes)]
        width = [(0, 0)] * x.ndim
        for at, axis in enumerate(places):
            width[axis] = (int(pads[at]), int(pads[at + len(places)]))
        if mode == "constant":
            fill = jnp.zeros((), x.dtype) if value is None else jnp.asarray(value).reshape(()).astype(x.dtype)
            return lax.pad(x, fill, [(before, after, 0) for before, after in width])
        inner = tuple(slice(max(-before, 0), min(after, 0) or None) for before, after in width)
        return jnp.pad(x[inner], [(max(before, 0), max(after, 0)) for before, after in width], mode=mode)

    return pad


@maker("CenterCropPad")
def _center_crop_pad(node: OperatorNode) -> Function:
    given = node.get("axes")

    def center_crop_pad(x: Any, shape: Any) -> Any:
        width = [(0, 0, 0)] * x.ndim
        for axis, size in zip(range(x.ndim) if given is None else given, shape, strict=True):
            more = int(size) - x.shape[axis]
            before = more // 2 if more > 0 else -(-more // 2)
            width[axis] = (before, more - before, 0)
        return lax.pad(x, jnp.zeros((), x.dtype), width)

    return center_crop_pad


@maker("DepthToSpace")
def _depth_to_space(node: OperatorNode) -> Function:
    block, column_first = int(node["blocksize"]), node["mode"] == "CRD"

    def depth_to_space(x: Any) -> Any:
        n, c, h, w = x.shape
        depth = c // block**2
        if column_first:
            parts = x.reshape(n, depth, block, block, h, w).transpose(0, 1, 4, 2, 5, 3)
        else:
            parts = x.reshape(n, block, block, depth, h, w).transpose(0, 3, 4, 1, 5, 2)
        return parts.reshape(n, depth, h * block, w * block)

    return depth_to_space


@maker("SpaceToDepth")
def _space_to_depth(node: OperatorNode) -> Function:
    block, column_first = int(node["blocksize"]), node.get("mode", "DCR") == "CRD"

    def space_to_depth(x: Any) -> Any:
        n, c, h, w = x.shape
        parts = x.reshape(n, c, h // block, block, w // block, block)
        order = (0, 1, 3, 5, 2, 4) if column_first else (0, 3, 5, 1, 2, 4)
        return parts.transpose(order).reshape(n, c * block**2, h // block, w // block)

    return space_to_depth


@maker("Trilu")
def _trilu(node: OperatorNode) -> Function:
    function = jnp.triu if node["upper"] else jnp.tril
    return lambda x, k=None: function(x, 0 if k is None else int(k.item()))


@maker("ReverseSequence")
def _reverse_sequence(node: OperatorNode) -> Function:
    time, batch = int(node["time_axis"]), int(node["batch_axis"])

    def reverse_sequence(x: Any, lengths: Any) -> Any:
        moved = jnp.moveaxis(x, (batch, time), (0, 1))
        step = jnp.arange(moved.shape[1])
        length = lengths[:, None]
        source = jnp.where(step < length, length - 1 - step, step)
        source = source.reshape(*source.shape, *[1] * (moved.ndim - 2))
        return jnp.moveaxis(jnp.take_along_axis(moved, source, 1), (0, 1), (batch, time))

    return reverse_sequence
