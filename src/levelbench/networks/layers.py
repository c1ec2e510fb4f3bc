"""A network's layers as a person counts them, from whatever describes it: an ONNX graph, a framework's own model.

A layer has a kind, settings in a fixed notation (sizes are tuples, a momentum is the weight of the new value), the
names of its weights and the shape of its output. Views, casts to the same type and computations on shapes are not
layers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

INPUT = -1
"""Stands for the network's input among the inputs of a layer."""


@dataclass(frozen=True)
class Layer:
    """``inputs`` are positions in :attr:`LayerGraph.layers`; ``shape`` is that of one sample.

    ``weights`` maps a role (weight, bias, mean, variance) to the name of an array; ``transposed`` says that the weight
    of a linear layer is stored as (inputs, outputs).
    """

    kind: str
    inputs: tuple[int, ...]
    shape: tuple[int, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, str] = field(default_factory=dict)
    transposed: bool = False

    @property
    def name(self) -> str:
        """What its weights have in common: ``layer1.0.conv1``; empty for a layer without named weights."""
        return next((each.rpartition(".")[0] or each for each in self.weights.values()), "")

    @property
    def multiply_adds(self) -> int:
        """Those of one sample, in convolutions and linear layers."""
        s = self.settings
        if self.kind == "convolution":
            return math.prod(self.shape) * int(s["inputs"]) // int(s["groups"]) * int(math.prod(s["kernel"]))
        return math.prod(self.shape) * int(s["inputs"]) if self.kind == "linear" else 0


@dataclass(frozen=True)
class LayerGraph:
    """Layers in an order in which they can be computed, of which ``output`` is the last one.

    ``sizes`` are the sizes of all trainable arrays, ``frozen`` the names of parameters that are not trained, and
    ``input`` is the shape of one sample.
    """

    layers: tuple[Layer, ...]
    output: int
    input: tuple[int, ...]
    sizes: Mapping[str, int]
    frozen: tuple[str, ...] = ()

    @property
    def parameters(self) -> int:
        """The number of trainable scalars."""
        return sum(self.sizes.values())

    @property
    def multiply_adds(self) -> int:
        """Those of one sample, of all layers that the output depends on."""
        return sum(self.layers[at].multiply_adds for at in self.needed())

    def needed(self) -> list[int]:
        """The positions of the layers that the output depends on, in order."""
        seen, left = set(), [self.output]
        while left:
            at = left.pop()
            if at >= 0 and at not in seen:
                seen.add(at)
                left.extend(self.layers[at].inputs)
        return sorted(seen)


def symmetric(pads: Sequence[int]) -> tuple[int, ...]:
    """Padding (begins, ends) as one number an axis if both ends are equal."""
    half = len(pads) // 2
    return tuple(pads[:half]) if list(pads[:half]) == list(pads[half:]) else tuple(pads)


def clip_name(low: float, high: float) -> str:
    """The activation that limits values to [low, high]."""
    if low == 0:
        return "ReLU" if math.isinf(high) or high > 1e30 else f"ReLU{high:g}"
    return "identity" if low < -1e30 and high > 1e30 else f"clipping to {low:g} ... {high:g}"


def gate(layer: Layer, is_less: bool) -> Layer:
    """A layer that says where its input is positive, or negative; a product with its own input is a ReLU."""
    return replace(layer, kind="is negative" if is_less else "is positive")


def padded(layer: Layer, pads: Sequence[int], mode: str, value: float) -> Layer | None:
    """A layer that pads (begins, ends) of all axes; ``None`` if it is of no common kind."""
    rank = len(pads) // 2
    begins, ends = pads[:rank], pads[rank:]
    if begins[0] or ends[0] or min(pads) < 0:
        return None
    if rank > 2 and not any(begins[2:]) and not any(ends[2:]) and mode == "constant" and value == 0:
        return replace(layer, kind="zero channels", settings={"channels": layer.shape[0]})
    if rank > 2 and not begins[1] and not ends[1]:
        named = "zeros" if mode == "constant" and value == 0 else f"{value:g}" if mode == "constant" else mode
        padding = symmetric([*begins[2:], *ends[2:]])
        return replace(layer, kind="padding", settings={"padding": padding, "mode": named})
    return None


def sliced(layer: Layer, before: tuple[int, ...], parts: Sequence[tuple[int, ...]]) -> Layer | None:
    """A layer that takes (axis, start, end, step) of its input of shape ``before``; ``None`` if of no common kind."""
    steps = [1] * len(before)
    for axis, start, end, step in parts:
        if start != 0 or end < before[axis % len(before)] or step < 1:
            return None
        steps[axis % len(before)] = step
    if steps[0] != 1 or (len(steps) > 1 and steps[1] != 1):
        return None
    return replace(layer, kind="subsampling", settings={"stride": tuple(steps[2:])})


def constant_text(value: Any, sense: int) -> str:
    """A constant in words: its number if it is one."""
    array = np.asarray(value) if value is not None else np.zeros(0)
    if array.size != 1:
        return "a constant array"
    number = float(array.ravel()[0])
    return f"{number if sense == 1 else -number if sense == -1 else 1 / number if number else math.inf:.6g}"
