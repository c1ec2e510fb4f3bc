"""Shapes, indices and constants: reshapes, slices, padding, gathering and scattering, constants."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from levelbench.frameworks.shared.operators import Host, constant_of
from levelbench.frameworks.torch.arrays import from_numpy
from levelbench.frameworks.torch.operators.registry import device_maker, maker, operator, refuse, table
from levelbench.operators.contract import Function
from levelbench.operators.node import OperatorNode


@maker("Flatten")
def _flatten(node: OperatorNode) -> Function:
    axis = node["axis"]
    if axis == 1:
        return lambda x: x.flatten(1) if x.dim() > 1 else x.reshape(-1, 1)

    def flatten(x: Tensor) -> Tensor:
        at = axis + x.dim() if axis < 0 else axis
        rows = x.shape[:at].numel()
        return x.reshape(rows, x.numel() // rows if rows else x.shape[at:].numel())

    return flatten


@maker("Transpose")
def _transpose(node: OperatorNode) -> Function:
    order = node.get("perm")
    if order is None:
        return lambda x: x.permute(*reversed(range(x.dim())))
    order = tuple(order)
    return lambda x: x.permute(order)


@operator("Unsqueeze")
def _unsqueeze(x: Tensor, axes: Host) -> Tensor:
    if axes.size == 1:
        return x.unsqueeze(axes.item())
    rank = x.dim() + axes.size
    for axis in sorted(axis % rank for axis in axes.tolist()):
        x = x.unsqueeze(axis)
    return x


table(
    Concat=lambda *inputs, axis: torch.cat(inputs, axis),
    GatherElements=lambda x, indices, *, axis: torch.gather(x, axis, non_negative(indices, x.shape[axis])),
    NonZero=lambda x: torch.nonzero(x).t(),
    Squeeze=lambda x, axes=None: x.squeeze() if axes is None else x.squeeze(axes.tolist()),
    Tile=lambda x, repeats: x.repeat(repeats.tolist()),
)


@operator("Split")
def _split(x: Tensor, sizes: Host | None = None, *, node: OperatorNode, axis: int) -> tuple[Tensor, ...]:
    count = len(node.outputs)
    if sizes is not None:
        return torch.split(x, sizes.tolist(), axis)
    # Equal parts, except that the last one takes the rest.
    length = x.shape[axis]
    part = -(-length // count)
    return torch.split(x, [min(part, max(0, length - part * at)) for at in range(count)], axis)


@operator("Slice")
def _slice(x: Tensor, starts: Host, ends: Host, axes: Host | None = None, steps: Host | None = None) -> Tensor:
    listed = range(starts.size) if axes is None else axes.tolist()
    strides = [1] * starts.size if steps is None else steps.tolist()
    bounds = [slice(None)] * x.dim()
    turned = []
    for axis, start, end, step in zip(listed, starts.tolist(), ends.tolist(), strides, strict=True):
        if step > 0:
            bounds[axis] = slice(start, end, step)
            continue
        # PyTorch has no negative strides: take the same elements in ascending order, then flip them.
        length = x.shape[axis]
        taken = range(*slice(max(start, -length), _end(end), step).indices(length))[::-1]
        bounds[axis] = slice(taken.start, taken.stop, taken.step) if taken else slice(0, 0)
        turned.append(axis)
    found = x[tuple(bounds)]
    return found.flip(turned) if turned else found


def _end(end: int) -> int | None:
    """A very negative end means before the first element, which Python writes as ``None``."""
    return None if end <= -(2**31) else end


@maker("CenterCropPad")
def _center_crop_pad(node: OperatorNode) -> Function:
    chosen = node.get("axes")

    def center_crop_pad(x: Tensor, shape: Host) -> Tensor:
        axes = range(x.dim()) if chosen is None else chosen
        ends = [0] * (2 * x.dim())
        for axis, size in zip(axes, shape.tolist(), strict=True):
            axis %= x.dim()
            change = size - x.shape[axis]
            # An odd element is added or removed at the end.
            before = change // 2 if change > 0 else -(-change // 2)
            at = 2 * (x.dim() - 1 - axis)
            ends[at : at + 2] = [before, change - before]
        return torch.nn.functional.pad(x, ends)

    return center_crop_pad


# Pad: constant, edge, reflect and wrap, on any axes; negative pads crop.


@operator("Pad")
def _pad(x: Tensor, pads: Host, constant: Tensor | None = None, axes: Host | None = None, *, mode: str) -> Tensor:
    count = pads.size // 2
    chosen = range(count) if axes is None else axes.tolist()
    begins, ends = [0] * x.dim(), [0] * x.dim()
    for axis, begin, end in zip(chosen, pads[:count].tolist(), pads[count:].tolist(), strict=True):
        begins[axis], ends[axis] = begin, end
    if mode == "constant":
        return _with_constant(x, begins, ends, constant)
    for axis, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        # Crop first: cropped elements are not reflected or repeated.
        if begin < 0 or end < 0:
            x = x.narrow(axis, max(-begin, 0), x.shape[axis] + min(begin, 0) + min(end, 0))
        if begin > 0 or end > 0:
            x = x.index_select(axis, _source(x.shape[axis], max(begin, 0), max(end, 0), mode, x.device))
    return x


def _with_constant(x: Tensor, begins: Sequence[int], ends: Sequence[int], constant: Tensor | None) -> Tensor:
    flat = [each for pair in zip(reversed(begins), reversed(ends), strict=True) for each in pair]
    if constant is None:
        return functional.pad(x, flat)
    if constant.device.type == "cpu" and not constant.requires_grad:
        return functional.pad(x, flat, value=constant.item())
    # The value stays on its device: reading it would synchronise, and lose its gradient.
    inside = functional.pad(torch.ones_like(x, dtype=torch.bool), flat)
    return torch.where(inside, functional.pad(x, flat), constant.reshape(()))


def _source(length: int, begin: int, end: int, mode: str, device: torch.device) -> Tensor:
    """The source index of each element along a padded axis."""
    at = torch.arange(-begin, length + end, device=device)
    if mode == "edge":
        return at.clamp(0, length - 1)
    if mode == "wrap":
        return at % length
    # Reflections are periodic: to the last element and back, without repeating either end.
    period = max(1, 2 * (length - 1))
    at = at % period
    return torch.minimum(at, period - at)


# Reading elements by index: gathers, NonZero, Unique.


def non_negative(indices: Tensor, length: int) -> Tensor:
    """The indices as int64 with negative ones made positive."""
    return torch.where(indices < 0, indices + length, indices).long()


@device_maker("Gather")
def _gather(node: OperatorNode, device: torch.device) -> Function:
    axis, checked = node["axis"], device.type == "cpu"

    def take(x: Tensor, indices: Tensor) -> Tensor:
        """Rows at non-negative indices."""
        if axis == 0 and x.dim() == 2 and x.is_floating_point():
            return torch.embedding(x, indices)
        if indices.dim() == 1:
            return x.index_select(axis, indices)
        at = axis % x.dim()
        found = x.index_select(at, indices.reshape(-1))
        return found.reshape(x.shape[:at] + indices.shape + x.shape[at + 1 :])

    def gather(x: Tensor, indices: Tensor) -> Tensor:
        if checked:
            # On the CPU an index out of range is an error, so negative indices are handled only after one.
            try:
                return take(x, indices)
            except (IndexError, RuntimeError) as error:
                if "out of" not in str(error):
                    raise
        return take(x, non_negative(indices, x.shape[axis]))

    return gather


@operator("Unique")
def _unique(x: Tensor, *, axis: int | None = None, sorted: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    at = 0 if axis is None else axis
    source = x.reshape(-1) if axis is None else x
    # torch.unique has no gradient, so the values are taken from the source at their first positions.
    _, inverse, counts = torch.unique(source.detach(), return_inverse=True, return_counts=True, dim=at)
    places = torch.arange(source.shape[at], device=x.device)
    first = torch.full_like(counts, source.shape[at]).scatter_reduce(0, inverse, places, "amin")
    if not sorted:
        order = torch.argsort(first)
        rank = torch.empty_like(order).scatter(0, order, torch.arange(len(order), device=x.device))
        first, counts, inverse = first[order], counts[order], rank[inverse]
    return source.index_select(at, first), first, inverse, counts


# Writing elements by index, with an optional reduction of updates to the same position.


_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@operator("Scatter", "ScatterElements")
def _scatter_elements(x: Tensor, indices: Tensor, updates: Tensor, *, axis: int, reduction: str = "none") -> Tensor:
    places = non_negative(indices, x.shape[axis])
    if reduction in _REDUCTIONS:
        return x.scatter_reduce(axis, places, updates, _REDUCTIONS[reduction])
    return x.scatter(axis, places, updates)


@operator("ScatterND")
def _scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    if reduction in ("none", "add"):
        return x.index_put(indices.long().unbind(-1), updates, accumulate=reduction == "add")
    depth = indices.shape[-1]
    rows = torch.zeros(indices.shape[:-1], dtype=torch.int64, device=x.device)
    for axis in range(depth):
        rows = rows * x.shape[axis] + non_negative(indices[..., axis], x.shape[axis])
    width = math.prod(x.shape[depth:])
    # Each index names a row of elements.
    places = rows.reshape(-1, 1).expand(-1, width)
    found = x.reshape(-1, width).scatter_reduce(0, places, updates.reshape(-1, width), _REDUCTIONS[reduction])
    return found.reshape(x.shape)


@operator("TensorScatter")
def _tensor_scatter(cache: Tensor, update: Tensor, starts: Tensor | None = None, *, axis: int, mode: str) -> Tensor:
    circular = mode == "circular"
    at = axis % cache.dim()
    steps = torch.arange(update.shape[at], device=cache.device)
    places = steps.unsqueeze(0) if starts is None else starts.unsqueeze(1) + steps
    if circular:
        places = places % cache.shape[at]
    shape = [1] * cache.dim()
    shape[0], shape[at] = places.shape
    return cache.scatter(at, places.reshape(shape).expand(update.shape), update)


# Constants.


@device_maker("Constant")
def _constant(node: OperatorNode, device: torch.device) -> Function:
    value = constant_of(node)
    if value is None:
        raise refuse(node, "it is neither a dense tensor nor a number")
    tensor = from_numpy(value.copy(), device)
    return lambda: tensor


@device_maker("ConstantOfShape")
def _constant_of_shape(node: OperatorNode, device: torch.device) -> Function:
    given = node.get("value")
    value = from_numpy(np.zeros(1, np.float32) if given is None else given.copy(), device).reshape(())

    def constant_of_shape(shape: Host) -> Tensor:
        return value.expand(shape.tolist()).clone()

    return constant_of_shape
