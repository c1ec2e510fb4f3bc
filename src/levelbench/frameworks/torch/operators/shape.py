"""Operators that arrange elements: reshapes, transpositions, concatenation, slices, tiles, and shapes as values."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from levelbench.frameworks.torch.operators.registry import Function, device_maker, maker
from levelbench.operators.node import OperatorNode

__all__: list[str] = []

Host = NDArray[Any]


@maker("Reshape")
def _reshape(node: OperatorNode) -> Function:
    zero_is_zero = bool(node.get("allowzero", 0))

    def reshape(x: Tensor, shape: Host) -> Tensor:
        sizes = shape.tolist()
        if 0 in sizes and not zero_is_zero:
            sizes = [size or x.shape[axis] for axis, size in enumerate(sizes)]
        return x.reshape(sizes)

    return reshape


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


@maker("ReverseSequence")
def _reverse_sequence(node: OperatorNode) -> Function:
    batch_axis, time_axis = node["batch_axis"], node["time_axis"]

    def reverse(x: Tensor, lengths: Tensor) -> Tensor:
        steps = torch.arange(x.shape[time_axis], device=x.device)
        lengths = lengths.unsqueeze(1)
        # (batch, time): where the element that comes to stand at each time is taken from.
        source = torch.where(steps < lengths, lengths - 1 - steps, steps)
        if time_axis < batch_axis:
            source = source.t()
        shape = [1] * x.dim()
        shape[batch_axis], shape[time_axis] = x.shape[batch_axis], x.shape[time_axis]
        return torch.gather(x, time_axis, source.reshape(shape).expand(x.shape))

    return reverse


@maker("Trilu")
def _trilu(node: OperatorNode) -> Function:
    part = torch.triu if node["upper"] else torch.tril

    def trilu(x: Tensor, diagonal: Host | None = None) -> Tensor:
        return part(x, 0 if diagonal is None else int(np.asarray(diagonal).item()))

    return trilu
