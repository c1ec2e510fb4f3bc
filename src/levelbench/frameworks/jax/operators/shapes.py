"""Shapes, indices and constants: Reshape to Transpose, joining and splitting, gathering and scattering, arrays made.

Every shape, axis and size is structural, so it is known when the function is traced, and XLA turns most of these into
nothing. Two answers, NonZero's and Unique's, have a size that only their values tell; they run outside compiled code.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from levelbench.frameworks.jax.arrays import numpy_dtype
from levelbench.frameworks.jax.operators.registry import Function, maker, refuse
from levelbench.operators.node import OperatorNode


@maker("Shape", eager=True)
def _shape(node: OperatorNode) -> Function:
    start, end = int(node.get("start", 0)), node.get("end")
    return lambda x: jnp.asarray(np.array(x.shape[start:end], np.int64))


@maker("Size", eager=True)
def _size(_: OperatorNode) -> Function:
    return lambda x: jnp.asarray(np.array(x.size, np.int64))


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


# Gathering and scattering by index, Compress, NonZero, Unique. Negative indices count from the end.


@maker("Gather")
def _gather(node: OperatorNode) -> Function:
    axis = int(node["axis"])
    return lambda x, indices: jnp.take(x, indices, axis)


@maker("GatherElements")
def _gather_elements(node: OperatorNode) -> Function:
    axis = int(node["axis"])

    def gather_elements(x: Any, indices: Any) -> Any:
        # The other axes of the indices may be shorter.
        cut = [slice(each) for each in indices.shape]
        cut[axis] = slice(None)
        return jnp.take_along_axis(x[tuple(cut)], indices, axis)

    return gather_elements


def _write(node: OperatorNode, place: Any, updates: Any) -> Any:
    """Updates put at a place, or joined with what is there."""
    match node.get("reduction", "none"):
        case "none":
            return place.set(updates)
        case "add":
            return place.add(updates)
        case "mul":
            return place.multiply(updates)
        case "max":
            return place.max(updates)
        case "min":
            return place.min(updates)
    raise refuse(node, f"there is no reduction {node['reduction']!r}")


@maker("Scatter", "ScatterElements")
def _scatter_elements(node: OperatorNode) -> Function:
    axis = int(node["axis"])

    def scatter_elements(x: Any, indices: Any, updates: Any) -> Any:
        where: list[Any] = list(np.ogrid[tuple(slice(each) for each in indices.shape)])
        where[axis] = indices
        return _write(node, x.at[tuple(where)], updates)

    return scatter_elements


@maker("ScatterND")
def _scatter_nd(node: OperatorNode) -> Function:
    def scatter_nd(x: Any, indices: Any, updates: Any) -> Any:
        return _write(node, x.at[tuple(jnp.moveaxis(indices, -1, 0))], updates)

    return scatter_nd


@maker("TensorScatter")
def _tensor_scatter(node: OperatorNode) -> Function:
    """Writes a stretch along ``axis`` of each batch element's cache, from an index of its own on."""
    axis, circular = int(node["axis"]), node["mode"] == "circular"

    def tensor_scatter(cache: Any, update: Any, start: Any = None) -> Any:
        moved, written = jnp.moveaxis(cache, axis, 1), jnp.moveaxis(update, axis, 1)
        first = jnp.zeros(cache.shape[0], jnp.int64) if start is None else start.astype(jnp.int64)
        place = first[:, None] + jnp.arange(written.shape[1])
        place = place % moved.shape[1] if circular else place
        return jnp.moveaxis(moved.at[jnp.arange(cache.shape[0])[:, None], place].set(written), 1, axis)

    return tensor_scatter


@maker("Compress")
def _compress(node: OperatorNode) -> Function:
    axis = node.get("axis")

    def compress(x: Any, condition: Any) -> Any:
        chosen = np.flatnonzero(condition)
        return jnp.take(x.reshape(-1), chosen, 0) if axis is None else jnp.take(x, chosen, int(axis))

    return compress


@maker("NonZero", eager=True)
def _non_zero(_: OperatorNode) -> Function:
    def non_zero(x: Any) -> Any:
        if x.ndim == 0:
            return jnp.zeros((0, int(bool(x))), jnp.int64)
        return jnp.stack(jnp.nonzero(x)).astype(jnp.int64)

    return non_zero


@maker("Unique", eager=True)
def _unique(node: OperatorNode) -> Function:
    axis, in_order = node.get("axis"), bool(node["sorted"])

    def unique(x: Any) -> Any:
        values, first, inverse, counts = jnp.unique(
            x, return_index=True, return_inverse=True, return_counts=True, axis=axis
        )
        inverse = inverse.reshape(-1)
        if not in_order:
            order = jnp.argsort(first)
            values, first, counts = jnp.take(values, order, axis or 0), first[order], counts[order]
            inverse = jnp.argsort(order)[inverse]
        return values, *(each.astype(jnp.int64) for each in (first, inverse, counts))

    return unique


# Arrays out of nothing but their shape: Constant, ConstantOfShape, EyeLike, Range, OneHot, windows, mel filters.


@maker("Constant")
def _constant(node: OperatorNode) -> Function:
    kinds = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}
    for name, dtype in kinds.items():
        if name in node.attributes:
            array = np.asarray(node[name], dtype)
            return lambda: jnp.asarray(array)
    if "value" not in node.attributes:
        raise refuse(node, "strings and sparse tensors are not there")
    value = np.asarray(node["value"])
    if value.dtype.kind in "OSUT":
        raise refuse(node, "JAX has no strings")
    return lambda: jnp.asarray(value)


@maker("ConstantOfShape")
def _constant_of_shape(node: OperatorNode) -> Function:
    value = np.asarray(node.get("value", np.zeros(1, np.float32))).reshape(-1)[0]
    return lambda shape: jnp.full(tuple(int(each) for each in shape), value, value.dtype)


@maker("EyeLike")
def _eye_like(node: OperatorNode) -> Function:
    k, code = int(node["k"]), node.get("dtype")

    def eye_like(x: Any) -> Any:
        rows, columns = x.shape
        return jnp.eye(rows, columns, k=k, dtype=x.dtype if code is None else numpy_dtype(code))

    return eye_like


@maker("Range")
def _arange(_: OperatorNode) -> Function:
    def stretch(start: Any, limit: Any, delta: Any) -> Any:
        kind = np.int64 if start.dtype.kind in "iu" else np.float64
        first, end, step = (each.astype(kind).item() for each in (start, limit, delta))
        count = max(int(np.ceil((end - first) / step)), 0)
        return jnp.asarray((first + step * np.arange(count, dtype=kind)).astype(start.dtype))

    return stretch
