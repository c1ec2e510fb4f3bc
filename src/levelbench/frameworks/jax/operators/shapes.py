"""Shapes, indices and constants: Reshape to Transpose, joining and splitting, gathering and scattering, arrays made.

Every shape, axis and size is structural, so it is known when the function is traced, and XLA turns most of these into
nothing. Two answers, NonZero's and Unique's, have a size that only their values tell; they run outside compiled code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from levelbench.frameworks.jax.operators.registry import Function, maker, operator, refuse, table
from levelbench.frameworks.shared.operators import Host, constant_of
from levelbench.operators.node import OperatorNode


@operator("Squeeze")
def _squeeze(x: Array, axes: Host | None = None) -> Array:
    return jnp.squeeze(x, None if axes is None else tuple(int(each) for each in axes))


table(
    {
        "Unsqueeze": lambda x, axes: jnp.expand_dims(x, tuple(int(each) for each in np.atleast_1d(axes))),
        "Transpose": lambda x, *, perm=None: jnp.transpose(x, perm),
    }
)


@operator("Concat")
def _concat(*inputs: Array, axis: int) -> Array:
    return jnp.concatenate(inputs, axis)


@operator("Split")
def _split(x: Array, sizes: Host | None = None, *, node: OperatorNode, axis: int) -> tuple[Array, ...]:
    count = len(node.outputs)
    length = x.shape[axis]
    # Parts are equal but for the last one.
    equal = np.minimum(-(-length // count) * np.arange(1, count + 1), length)
    ends = equal if sizes is None else np.cumsum(sizes)
    starts = [0, *ends[:-1]]
    return tuple(lax.slice_in_dim(x, int(start), int(end), axis=axis) for start, end in zip(starts, ends, strict=True))


@operator("Slice")
def _slice(x: Array, starts: Host, ends: Host, axes: Host | None = None, steps: Host | None = None) -> Array:
    listed = range(starts.size) if axes is None else axes.tolist()
    strides = [1] * starts.size if steps is None else steps.tolist()
    where = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts.tolist(), ends.tolist(), listed, strides, strict=True):
        where[axis] = _range(start, end, step, x.shape[axis])
    return x[tuple(where)]


def _range(start: int, end: int, step: int, length: int) -> slice:
    """Python's slice with ONNX's bounds: going down, what lies below the first element begins or ends at it."""
    if step < 0:
        return slice(max(start, -length), None if end < -length else end, step)
    return slice(start, end, step)


@operator("Tile")
def _tile(x: Array, repeats: Array) -> Array:
    return jnp.tile(x, tuple(int(each) for each in repeats))


@maker("Pad")
def _pad(node: OperatorNode) -> Function:
    """A negative pad cuts off."""
    mode = node["mode"]
    if mode not in {"constant", "reflect", "edge", "wrap"}:
        raise refuse(node, f"there is no mode {mode!r}")

    def pad(x: Array, pads: Host, value: Array | None = None, axes: Host | None = None) -> Array:
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


@operator("CenterCropPad")
def _center_crop_pad(x: Array, shape: Host, *, axes: Sequence[int] | None = None) -> Array:
    width = [(0, 0, 0)] * x.ndim
    for axis, size in zip(range(x.ndim) if axes is None else axes, shape, strict=True):
        more = int(size) - x.shape[axis]
        before = more // 2 if more > 0 else -(-more // 2)
        width[axis] = (before, more - before, 0)
    return lax.pad(x, jnp.zeros((), x.dtype), width)


# Gathering and scattering by index, Compress, NonZero, Unique. Negative indices count from the end.


@operator("Gather")
def _gather(x: Array, indices: Array, *, axis: int) -> Array:
    return jnp.take(x, indices, axis)


@operator("GatherElements")
def _gather_elements(x: Array, indices: Array, *, axis: int) -> Array:
    # The other axes of the indices may be shorter.
    cut = [slice(each) for each in indices.shape]
    cut[axis] = slice(None)
    return jnp.take_along_axis(x[tuple(cut)], indices, axis)


def _write(node: OperatorNode, place: Array, updates: Array) -> Array:
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


@operator("Scatter", "ScatterElements")
def _scatter_elements(x: Array, indices: Array, updates: Array, *, node: OperatorNode, axis: int) -> Array:
    where: list[Any] = list(np.ogrid[tuple(slice(each) for each in indices.shape)])
    where[axis] = indices
    return _write(node, x.at[tuple(where)], updates)


@operator("ScatterND")
def _scatter_nd(x: Array, indices: Array, updates: Array, *, node: OperatorNode) -> Array:
    return _write(node, x.at[tuple(jnp.moveaxis(indices, -1, 0))], updates)


@operator("TensorScatter")
def _tensor_scatter(cache: Array, update: Array, start: Array | None = None, *, axis: int, mode: str) -> Array:
    """Writes a stretch along ``axis`` of each batch element's cache, from an index of its own on."""
    circular = mode == "circular"
    moved, written = jnp.moveaxis(cache, axis, 1), jnp.moveaxis(update, axis, 1)
    first = jnp.zeros(cache.shape[0], jnp.int64) if start is None else start.astype(jnp.int64)
    place = first[:, None] + jnp.arange(written.shape[1])
    place = place % moved.shape[1] if circular else place
    return jnp.moveaxis(moved.at[jnp.arange(cache.shape[0])[:, None], place].set(written), 1, axis)


@operator("NonZero", eager=True)
def _non_zero(x: Array) -> Array:
    if x.ndim == 0:
        return jnp.zeros((0, int(bool(x))), jnp.int64)
    return jnp.stack(jnp.nonzero(x)).astype(jnp.int64)


@operator("Unique", eager=True)
def _unique(x: Array, *, axis: int | None = None, sorted: int) -> tuple[Array, ...]:
    values, first, inverse, counts = jnp.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = jnp.argsort(first)
        values, first, counts = jnp.take(values, order, axis or 0), first[order], counts[order]
        inverse = jnp.argsort(order)[inverse]
    return values, *(each.astype(jnp.int64) for each in (first, inverse, counts))


# Arrays out of nothing but their shape: Constant, ConstantOfShape, EyeLike, Range, OneHot, windows, mel filters.


@maker("Constant")
def _constant(node: OperatorNode) -> Function:
    value = constant_of(node)
    if value is None:
        raise refuse(node, "strings and sparse tensors are not there")
    if value.dtype.kind in "OSUT":
        raise refuse(node, "JAX has no strings")
    return lambda: jnp.asarray(value)


@operator("ConstantOfShape")
def _constant_of_shape(shape: Host, *, value: Host | None = None) -> Array:
    fill = np.zeros(1, np.float32) if value is None else value.reshape(-1)
    return jnp.full(tuple(shape.tolist()), fill[0], fill.dtype)
