"""Operators that rearrange elements: reshapes, transpositions, joining and splitting, slices, padding, tiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from levelbench.errors import UnsupportedError
from levelbench.frameworks.numpy.operators.elementwise import no_gradient
from levelbench.frameworks.numpy.operators.kernel import (
    Array,
    Arrays,
    Inputs,
    Kernel,
    cast_like,
    is_narrow,
    is_real,
    lift,
    register,
    single_output,
    unbroadcast,
)
from levelbench.frameworks.shared.operators import (
    constant_of,
    depth_to_space,
    expand,
    flatten,
    reshape,
    shape,
    size,
    space_to_depth,
    with_attributes,
)
from levelbench.operators.contract import Function
from levelbench.operators.node import OperatorNode


def _reshaped(gradient: Array, inputs: Inputs, output: Array) -> tuple[Array | None, ...]:
    return gradient.reshape(inputs[0].shape), *(None,) * (len(inputs) - 1)


def _integers(given: Array) -> list[int]:
    return [int(each) for each in np.asarray(given).reshape(-1)]


def _shared(function: Function, node: OperatorNode) -> Function:
    """A shared operator on NumPy's namespace."""
    return with_attributes(function, node, {"xp": np, "array": np.asarray})


@register("Reshape", "Flatten")
def _reshape(node: OperatorNode) -> Kernel:
    return Kernel(_shared(reshape if node.op_type == "Reshape" else flatten, node), single_output(_reshaped))


@register("Squeeze")
def _squeeze(node: OperatorNode) -> Kernel:
    def forward(x: Array, axes: Array | None = None) -> Array:
        return np.squeeze(x) if axes is None else np.squeeze(x, tuple(_integers(axes)))

    return Kernel(forward, single_output(_reshaped))


@register("Unsqueeze")
def _unsqueeze(node: OperatorNode) -> Kernel:
    return Kernel(lambda x, axes: np.expand_dims(x, tuple(_integers(axes))), single_output(_reshaped))


@register("Transpose")
def _transpose(node: OperatorNode) -> Kernel:
    order = node.get("perm")

    def backward(gradient: Array, inputs: Inputs, output: Array) -> tuple[Array, ...]:
        return (gradient.transpose(None if order is None else np.argsort(order)),)

    return Kernel(lambda x: x.transpose(order), single_output(backward))


@register("Expand")
def _expand(node: OperatorNode) -> Kernel:
    """The output is a read-only view."""

    def backward(gradient: Array, inputs: Inputs, output: Array) -> tuple[Array | None, ...]:
        return cast_like(unbroadcast(lift(gradient), inputs[0].shape), inputs[0]), None

    return Kernel(_shared(expand, node), single_output(backward))


@register("Tile")
def _tile(node: OperatorNode) -> Kernel:
    def backward(gradient: Array, inputs: Inputs, output: Array) -> tuple[Array | None, ...]:
        x, repeats = inputs
        pairs = [size for pair in zip(_integers(repeats), x.shape, strict=True) for size in pair]
        summed = lift(gradient).reshape(pairs).sum(axis=tuple(range(0, 2 * x.ndim, 2)))
        return cast_like(summed, x), None

    return Kernel(lambda x, repeats: np.tile(x, _integers(repeats)), single_output(backward))


@register("DepthToSpace", "SpaceToDepth")
def _blocks(node: OperatorNode) -> Kernel:
    both = {"DepthToSpace": _shared(depth_to_space, node), "SpaceToDepth": _shared(space_to_depth, node)}
    forward = both.pop(node.op_type)
    (back,) = both.values()
    return Kernel(forward, single_output(lambda gradient, inputs, output: (back(gradient),)))


@register("Shape", "Size")
def _shape(node: OperatorNode) -> Kernel:
    return Kernel(_shared(shape if node.op_type == "Shape" else size, node), no_gradient)


@register("Range")
def _range(node: OperatorNode) -> Kernel:
    """Numbers from start up to limit by delta; narrow floating-point types are computed in ``stash_type``."""
    wide = np.float64 if node.get("stash_type", 1) == 11 else np.float32

    def forward(start: Array, limit: Array, delta: Array) -> Array:
        dtype = start.dtype
        if is_narrow(dtype):
            bounds = [float(np.asarray(each).reshape(())) for each in (start, limit, delta)]
            return np.arange(*bounds, dtype=wide).astype(dtype)
        return np.arange(start.item(), limit.item(), delta.item()).astype(dtype)

    return Kernel(forward, no_gradient)


@register("ConstantOfShape")
def _constant_of_shape(node: OperatorNode) -> Kernel:
    given = node.get("value")
    value = np.zeros(1, np.float32) if given is None else np.asarray(given).reshape(-1)
    return Kernel(lambda shape: np.full(_integers(shape), value[0], value.dtype), no_gradient)


@register("Constant")
def _constant(node: OperatorNode) -> Kernel:
    array = constant_of(node)
    if array is None:
        (name,) = node.attributes
        if name not in ("value_string", "value_strings"):
            raise UnsupportedError(f"Constant with {name}", "numpy has no sparse tensors", "use a dense one")
        array = np.asarray(node[name], object)
    return Kernel(lambda: array, no_gradient)


# Concat, Split, Slice and Pad. Each copies whole blocks, so the gradient of a block is the block of the gradient; only
# padding that repeats elements adds gradients up.


def _along(axis: int, rank: int, part: slice) -> tuple[slice, ...]:
    return tuple(part if at == axis % rank else slice(None) for at in range(rank))


@register("Concat")
def _concat(node: OperatorNode) -> Kernel:
    axis = node["axis"]

    def backward(gradient: Array, inputs: Inputs, output: Array) -> tuple[Array, ...]:
        ends = np.cumsum([each.shape[axis] for each in inputs])[:-1]
        return tuple(np.split(gradient, ends, axis))

    return Kernel(lambda *inputs: np.concatenate(inputs, axis), single_output(backward))


@register("Split")
def _split(node: OperatorNode) -> Kernel:
    """Views of x; without ``split`` they are equal, except that the last may be smaller."""
    axis, count = node["axis"], node.get("num_outputs") or len(node.outputs)

    def forward(x: Array, split: Array | None = None) -> tuple[Array, ...]:
        size = x.shape[axis]
        if split is None:
            share = -(-size // count)
            ends = [min(share * at, size) for at in range(1, count)]
        else:
            ends = np.cumsum(_integers(split))[:-1].tolist()
        return tuple(np.split(x, ends, axis))

    def backward(gradients: Inputs, inputs: Inputs, outputs: Inputs) -> Arrays:
        x, rest = inputs[0], (None,) * (len(inputs) - 1)
        if not is_real(x) or all(each is None for each in gradients):
            return None, *rest
        parts = zip(gradients, forward(*inputs), strict=True)
        return np.concatenate([np.zeros_like(y) if g is None else g for g, y in parts], axis), *rest

    return Kernel(forward, backward)


@register("Slice")
def _slice(node: OperatorNode) -> Kernel:
    """A view of x; negative steps go backwards, positions outside are clamped to the edge."""

    def parts(
        x: Array, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None
    ) -> tuple[slice, ...]:
        first, last = _integers(starts), _integers(ends)
        where = range(len(first)) if axes is None else _integers(axes)
        strides = [1] * len(first) if steps is None else _integers(steps)
        found = [slice(None)] * x.ndim
        for axis, start, end, step in zip(where, first, last, strides, strict=True):
            found[axis] = _part(x.shape[axis], start, end, step)
        return tuple(found)

    def backward(gradient: Array, inputs: Inputs, output: Array) -> tuple[Array | None, ...]:
        result = np.zeros_like(inputs[0])
        result[parts(*inputs)] = gradient
        return result, *(None,) * (len(inputs) - 1)

    return Kernel(lambda x, *where: x[parts(x, *where)], single_output(backward))


def _part(size: int, start: int, end: int, step: int) -> slice:
    """ONNX's slice: unlike in Python, a start before the first element is clamped to it for negative steps, too."""
    first, last = (each + size if each < 0 else each for each in (start, end))
    if step > 0 or not size:
        return slice(max(first, 0), max(last, 0), step)
    first, last = min(max(first, 0), size - 1), max(last, -1)
    return slice(first, None if last < 0 else last, step)


@register("Pad")
def _pad(node: OperatorNode) -> Kernel:
    """Pads with a constant, the edge, a reflection or by wrapping; negative pads crop."""
    mode = node["mode"]

    def widths(x: Array, pads: Array, axes: Array | None = None) -> list[tuple[int, int]]:
        where = range(x.ndim) if axes is None else [axis % x.ndim for axis in _integers(axes)]
        values, found = _integers(pads), [(0, 0)] * x.ndim
        for at, axis in enumerate(where):
            found[axis] = (values[at], values[at + len(where)])
        return found

    def forward(x: Array, pads: Array, value: Array | None = None, axes: Array | None = None) -> Array:
        pairs = widths(x, pads, axes)
        kept = x[_kept(x.shape, pairs)]
        grown = [(max(before, 0), max(after, 0)) for before, after in pairs]
        if mode == "constant":
            nothing = "" if x.dtype.kind in "OSU" else 0
            return _framed(kept, grown, nothing if value is None else np.asarray(value).reshape(()))
        result = _framed(kept, grown, None)
        for axis, pair in enumerate(grown):
            _fill(result, axis, pair, mode)
        return result

    def backward(gradient: Array, inputs: Inputs, output: Array) -> tuple[Array | None, ...]:
        x, pads, value, axes = (*inputs, None, None)[:4]
        pairs = widths(x, pads, axes)
        inner = tuple(slice(max(b, 0), size - max(a, 0)) for (b, a), size in zip(pairs, gradient.shape, strict=True))
        kept = _kept(x.shape, pairs)
        result = np.zeros_like(x)
        wide = lift(gradient)
        if mode == "constant":
            result[kept] = gradient[inner]
        else:
            for axis, (before, after) in enumerate(pairs):
                wide = _folded(wide, axis, (max(before, 0), max(after, 0)), mode)
            result[kept] = wide
        by_value = None
        if mode == "constant" and is_real(value):
            by_value = cast_like((wide.sum() - wide[inner].sum()).reshape(value.shape), value)
        return (result, None, by_value, None)[: len(inputs)]

    return Kernel(forward, single_output(backward))


def _kept(shape: Sequence[int], pairs: Sequence[tuple[int, int]]) -> tuple[slice, ...]:
    """The part that negative pads leave."""
    return tuple(slice(max(-b, 0), size - max(-a, 0)) for (b, a), size in zip(pairs, shape, strict=True))


def _framed(x: Array, pairs: Sequence[tuple[int, int]], value: Any) -> Array:
    result = np.empty([size + b + a for (b, a), size in zip(pairs, x.shape, strict=True)], x.dtype)
    if value is not None and any(b or a for b, a in pairs):
        result[...] = value
    result[tuple(slice(b, b + size) for (b, _), size in zip(pairs, x.shape, strict=True))] = x
    return result


def _fill(result: Array, axis: int, pair: tuple[int, int], mode: str) -> None:
    """Fill the padding of an axis from its inner part, including padding of other axes that is already filled."""
    before, after = pair
    size, rank = result.shape[axis] - before - after, result.ndim
    sources = _sources(size, pair, mode) + before
    for start, stop in ((0, before), (before + size, before + size + after)):
        if start < stop:
            result[_along(axis, rank, slice(start, stop))] = result.take(sources[start:stop], axis=axis)


def _sources(size: int, pair: tuple[int, int], mode: str) -> Array:
    """For each element of the padded axis, the index of the element that it repeats."""
    return np.pad(np.arange(size), pair, mode=mode)  # type: ignore[call-overload]


def _folded(gradient: Array, axis: int, pair: tuple[int, int], mode: str) -> Array:
    """The gradient before an axis was padded: the padding's gradient is added to the elements that it repeats."""
    before, after = pair
    if not (before or after):
        return gradient
    size = gradient.shape[axis] - before - after
    sources, rank = _sources(size, pair, mode).tolist(), gradient.ndim
    result = gradient[_along(axis, rank, slice(before, before + size))].copy()
    # One step per row of padding; there are few, and each step adds a whole row.
    for at in (*range(before), *range(before + size, before + size + after)):
        to = sources[at]
        result[_along(axis, rank, slice(to, to + 1))] += gradient[_along(axis, rank, slice(at, at + 1))]
    return result
