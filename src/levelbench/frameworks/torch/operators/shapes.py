"""Shapes, indices and constants: reshapes, slices, padding, gathering and scattering, tensors made of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from levelbench.frameworks.torch.arrays import from_numpy, torch_dtype
from levelbench.frameworks.torch.operators.registry import Function, device_maker, maker, plain, refuse
from levelbench.operators.node import OperatorNode

__all__ = ["risen"]


Host = NDArray[Any]


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


@maker("Squeeze")
def _squeeze(_: OperatorNode) -> Function:
    def squeeze(x: Tensor, axes: Host | None = None) -> Tensor:
        return x.squeeze() if axes is None else x.squeeze(axes.tolist())

    return squeeze


@maker("Unsqueeze")
def _unsqueeze(_: OperatorNode) -> Function:
    def unsqueeze(x: Tensor, axes: Host) -> Tensor:
        if axes.size == 1:
            return x.unsqueeze(axes.item())
        rank = x.dim() + axes.size
        for axis in sorted(axis % rank for axis in axes.tolist()):
            x = x.unsqueeze(axis)
        return x

    return unsqueeze


@maker("Concat")
def _concat(node: OperatorNode) -> Function:
    axis = node["axis"]
    return lambda *inputs: torch.cat(inputs, axis)


@maker("Split")
def _split(node: OperatorNode) -> Function:
    axis, count = node["axis"], len(node.outputs)

    def split(x: Tensor, sizes: Host | None = None) -> tuple[Tensor, ...]:
        if sizes is not None:
            return torch.split(x, sizes.tolist(), axis)
        # Equal parts, but the last, which takes what is left.
        length = x.shape[axis]
        part = -(-length // count)
        return torch.split(x, [min(part, max(0, length - part * at)) for at in range(count)], axis)

    return split


@maker("Slice")
def _slice(_: OperatorNode) -> Function:
    def slice_(x: Tensor, starts: Host, ends: Host, axes: Host | None = None, steps: Host | None = None) -> Tensor:
        listed = range(starts.size) if axes is None else axes.tolist()
        strides = [1] * starts.size if steps is None else steps.tolist()
        bounds = [slice(None)] * x.dim()
        turned = []
        for axis, start, end, step in zip(listed, starts.tolist(), ends.tolist(), strides, strict=True):
            if step > 0:
                bounds[axis] = slice(start, end, step)
                continue
            # PyTorch has no negative strides: take the same elements in rising order, then turn them.
            length = x.shape[axis]
            taken = range(*slice(max(start, -length), _end(end), step).indices(length))[::-1]
            bounds[axis] = slice(taken.start, taken.stop, taken.step) if taken else slice(0, 0)
            turned.append(axis)
        found = x[tuple(bounds)]
        return found.flip(turned) if turned else found

    return slice_


def _end(end: int) -> int | None:
    """Far below zero means before the first element, which Python writes as ``None``."""
    return None if end <= -(2**31) else end


@maker("Expand")
def _expand(_: OperatorNode) -> Function:
    # The shorter of the two shapes is filled with ones, on either side.
    return lambda x, shape: x.expand(torch.broadcast_shapes(x.shape, tuple(shape.tolist())))


@maker("Tile")
def _tile(_: OperatorNode) -> Function:
    return lambda x, repeats: x.repeat(repeats.tolist())


@device_maker("Shape")
def _shape(node: OperatorNode, device: torch.device) -> Function:
    start, end = node.get("start", 0), node.get("end")

    def shape(x: Tensor) -> Tensor:
        return torch.tensor(x.shape[start:end], dtype=torch.int64, device=device)

    return shape


@device_maker("Size")
def _size(_: OperatorNode, device: torch.device) -> Function:
    return lambda x: torch.tensor(x.numel(), dtype=torch.int64, device=device)


@maker("DepthToSpace")
def _depth_to_space(node: OperatorNode) -> Function:
    block = node["blocksize"]
    if node["mode"] == "CRD":
        return lambda x: torch.pixel_shuffle(x, block)

    def depth_to_space(x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        parts = x.reshape(batch, block, block, channels // block**2, height, width)
        return parts.permute(0, 3, 4, 1, 5, 2).reshape(batch, channels // block**2, height * block, width * block)

    return depth_to_space


@maker("SpaceToDepth")
def _space_to_depth(node: OperatorNode) -> Function:
    block = node["blocksize"]
    if node.get("mode", "DCR") == "CRD":
        return lambda x: torch.pixel_unshuffle(x, block)

    def space_to_depth(x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        parts = x.reshape(batch, channels, height // block, block, width // block, block)
        return parts.permute(0, 3, 5, 1, 2, 4).reshape(batch, channels * block**2, height // block, width // block)

    return space_to_depth


@maker("CenterCropPad")
def _center_crop_pad(node: OperatorNode) -> Function:
    chosen = node.get("axes")

    def center_crop_pad(x: Tensor, shape: Host) -> Tensor:
        axes = range(x.dim()) if chosen is None else chosen
        ends = [0] * (2 * x.dim())
        for axis, size in zip(axes, shape.tolist(), strict=True):
            axis %= x.dim()
            change = size - x.shape[axis]
            # What is odd goes to the end, whether it is cut off or put on.
            before = change // 2 if change > 0 else -(-change // 2)
            at = 2 * (x.dim() - 1 - axis)
            ends[at : at + 2] = [before, change - before]
        return torch.nn.functional.pad(x, ends)

    return center_crop_pad


@maker("Trilu")
def _trilu(node: OperatorNode) -> Function:
    part = torch.triu if node["upper"] else torch.tril

    def trilu(x: Tensor, diagonal: Host | None = None) -> Tensor:
        return part(x, 0 if diagonal is None else int(np.asarray(diagonal).item()))

    return trilu


# Pad: constants, edges, reflections and wraps, on any axes, with negative numbers that cut off.


@maker("Pad")
def _pad(node: OperatorNode) -> Function:
    mode = node["mode"]

    def pad(x: Tensor, pads: NDArray[Any], constant: Tensor | None = None, axes: NDArray[Any] | None = None) -> Tensor:
        count = pads.size // 2
        chosen = range(count) if axes is None else axes.tolist()
        begins, ends = [0] * x.dim(), [0] * x.dim()
        for axis, begin, end in zip(chosen, pads[:count].tolist(), pads[count:].tolist(), strict=True):
            begins[axis], ends[axis] = begin, end
        if mode == "constant":
            return _with_constant(x, begins, ends, constant)
        for axis, (begin, end) in enumerate(zip(begins, ends, strict=True)):
            # What is cut off is not reflected or repeated.
            if begin < 0 or end < 0:
                x = x.narrow(axis, max(-begin, 0), x.shape[axis] + min(begin, 0) + min(end, 0))
            if begin > 0 or end > 0:
                x = x.index_select(axis, _source(x.shape[axis], max(begin, 0), max(end, 0), mode, x.device))
        return x

    return pad


def _with_constant(x: Tensor, begins: Sequence[int], ends: Sequence[int], constant: Tensor | None) -> Tensor:
    flat = [each for pair in zip(reversed(begins), reversed(ends), strict=True) for each in pair]
    if constant is None:
        return functional.pad(x, flat)
    if constant.device.type == "cpu" and not constant.requires_grad:
        return functional.pad(x, flat, value=constant.item())
    # The value stays where it is: reading it would wait for the device, and lose its gradient.
    inside = functional.pad(torch.ones_like(x, dtype=torch.bool), flat)
    return torch.where(inside, functional.pad(x, flat), constant.reshape(()))


def _source(length: int, begin: int, end: int, mode: str, device: torch.device) -> Tensor:
    """Where the elements along an axis are taken from."""
    at = torch.arange(-begin, length + end, device=device)
    if mode == "edge":
        return at.clamp(0, length - 1)
    if mode == "wrap":
        return at % length
    # Reflections repeat after a way to the last element and back, which are not doubled.
    period = max(1, 2 * (length - 1))
    at = at % period
    return torch.minimum(at, period - at)


# Reading elements by index: gathers, one-hot vectors, and what is found by a condition.


def risen(indices: Tensor, length: int) -> Tensor:
    """Indices of int64 in which those that count from the end are counted from the beginning."""
    return torch.where(indices < 0, indices + length, indices).long()


@device_maker("Gather")
def _gather(node: OperatorNode, device: torch.device) -> Function:
    axis, checked = node["axis"], device.type == "cpu"

    def take(x: Tensor, indices: Tensor) -> Tensor:
        """Rows, whose indices count from the beginning."""
        if axis == 0 and x.dim() == 2 and x.is_floating_point():
            return torch.embedding(x, indices)
        if indices.dim() == 1:
            return x.index_select(axis, indices)
        at = axis % x.dim()
        found = x.index_select(at, indices.reshape(-1))
        return found.reshape(x.shape[:at] + indices.shape + x.shape[at + 1 :])

    def gather(x: Tensor, indices: Tensor) -> Tensor:
        if checked:
            # On the CPU an index out of range is an error, so only then need it be looked at for negative ones.
            try:
                return take(x, indices)
            except (IndexError, RuntimeError) as error:
                if "out of" not in str(error):
                    raise
        return take(x, risen(indices, x.shape[axis]))

    return gather


@maker("GatherElements")
def _gather_elements(node: OperatorNode) -> Function:
    axis = node["axis"]
    return lambda x, indices: torch.gather(x, axis, risen(indices, x.shape[axis]))


@maker("Compress")
def _compress(node: OperatorNode) -> Function:
    axis = node.get("axis")

    def compress(x: Tensor, condition: NDArray[Any]) -> Tensor:
        chosen = torch.from_numpy(np.flatnonzero(condition)).to(x.device)
        return x.reshape(-1).index_select(0, chosen) if axis is None else x.index_select(axis, chosen)

    return compress


def _non_zero(x: Tensor) -> Tensor:
    """Indices of shape (rank, count): none, but a count, for a scalar."""
    return torch.nonzero(x).t()


plain({"NonZero": _non_zero})


@maker("Unique")
def _unique(node: OperatorNode) -> Function:
    axis, in_order = node.get("axis"), bool(node["sorted"])

    def unique(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        at = 0 if axis is None else axis
        source = x.reshape(-1) if axis is None else x
        # PyTorch has no gradient for it: the values are taken from the source, by where they come first.
        _, inverse, counts = torch.unique(source.detach(), return_inverse=True, return_counts=True, dim=at)
        places = torch.arange(source.shape[at], device=x.device)
        first = torch.full_like(counts, source.shape[at]).scatter_reduce(0, inverse, places, "amin")
        if not in_order:
            order = torch.argsort(first)
            rank = torch.empty_like(order).scatter(0, order, torch.arange(len(order), device=x.device))
            first, counts, inverse = first[order], counts[order], rank[inverse]
        return source.index_select(at, first), first, inverse, counts

    return unique


@maker("Binarizer", domain="ai.onnx.ml")
def _binarizer(node: OperatorNode) -> Function:
    threshold = node["threshold"]
    return lambda x: (x > threshold).to(x.dtype)


# Writing elements by index, with or without a reduction of what meets at one place.


_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@maker("Scatter", "ScatterElements")
def _scatter_elements(node: OperatorNode) -> Function:
    axis, reduction = node["axis"], _REDUCTIONS.get(node.get("reduction", "none"))

    def scatter(x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
        places = risen(indices, x.shape[axis])
        if reduction is None:
            return x.scatter(axis, places, updates)
        return x.scatter_reduce(axis, places, updates, reduction)

    return scatter


@maker("ScatterND")
def _scatter_nd(node: OperatorNode) -> Function:
    kind = node.get("reduction", "none")
    reduction = _REDUCTIONS.get(kind)

    def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
        if kind in ("none", "add"):
            return x.index_put(indices.long().unbind(-1), updates, accumulate=kind == "add")
        depth = indices.shape[-1]
        rows = torch.zeros(indices.shape[:-1], dtype=torch.int64, device=x.device)
        for axis in range(depth):
            rows = rows * x.shape[axis] + risen(indices[..., axis], x.shape[axis])
        width = math.prod(x.shape[depth:])
        # Each index names a row of elements, which are written side by side.
        places = rows.reshape(-1, 1).expand(-1, width)
        table = x.reshape(-1, width).scatter_reduce(0, places, updates.reshape(-1, width), reduction)
        return table.reshape(x.shape)

    return scatter_nd


@maker("TensorScatter")
def _tensor_scatter(node: OperatorNode) -> Function:
    axis, circular = node["axis"], node["mode"] == "circular"

    def tensor_scatter(cache: Tensor, update: Tensor, starts: Tensor | None = None) -> Tensor:
        at = axis % cache.dim()
        steps = torch.arange(update.shape[at], device=cache.device)
        places = steps.unsqueeze(0) if starts is None else starts.unsqueeze(1) + steps
        if circular:
            places = places % cache.shape[at]
        shape = [1] * cache.dim()
        shape[0], shape[at] = places.shape
        return cache.scatter(at, places.reshape(shape).expand(update.shape), update)

    return tensor_scatter


# Operators that make tensors of shapes and numbers: constants, ranges, unit matrices.


@device_maker("Constant")
def _constant(node: OperatorNode, device: torch.device) -> Function:
    for name, dtype in (("value_float", np.float32), ("value_floats", np.float32)):
        if name in node:
            value: NDArray[Any] = np.asarray(node[name], dtype)
            break
    else:
        name = next((each for each in ("value_int", "value_ints", "value") if each in node), "")
        if not name:
            raise refuse(node, "it is neither a dense tensor nor a number")
        value = np.asarray(node[name])
    tensor = from_numpy(value.copy(), device)
    return lambda: tensor


@device_maker("ConstantOfShape")
def _constant_of_shape(node: OperatorNode, device: torch.device) -> Function:
    given = node.get("value")
    value = from_numpy(np.zeros(1, np.float32) if given is None else given.copy(), device).reshape(())

    def constant_of_shape(shape: NDArray[Any]) -> Tensor:
        return value.expand(shape.tolist()).clone()

    return constant_of_shape


@device_maker("Range")
def _range(node: OperatorNode, device: torch.device) -> Function:
    def arange(start: NDArray[Any], limit: NDArray[Any], delta: NDArray[Any]) -> Tensor:
        first, last, step = start.item(), limit.item(), delta.item()
        count = max(0, math.ceil((last - first) / step))
        dtype = from_numpy(np.asarray(start), torch.device("cpu")).dtype
        steps = torch.arange(count, device=device)
        return (steps.to(torch.float64) * step + first if dtype.is_floating_point else steps * step + first).to(dtype)

    return arange


@maker("EyeLike")
def _eye_like(node: OperatorNode) -> Function:
    diagonal, code = node["k"], node.get("dtype")
    dtype = None if code is None else torch_dtype(code)

    def eye_like(x: Tensor) -> Tensor:
        rows, columns = (torch.arange(size, device=x.device) for size in x.shape)
        return (rows.unsqueeze(1) + diagonal == columns).to(x.dtype if dtype is None else dtype)

    return eye_like
