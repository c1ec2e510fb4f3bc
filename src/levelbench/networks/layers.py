"""Builds a feed-forward network a layer at a time, keeping track of the shape of one sample.

The one idea: weights are initialised as He et al. 2015 (equation 10, fan-in) say for layers that a ReLU follows, and
with variance 1/fan-in for the last one; biases are zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from levelbench.errors import DefinitionError
from levelbench.networks.builder import GraphBuilder
from levelbench.networks.network import Network
from levelbench.networks.values import Draw

__all__ = ["Builder"]


class Builder:
    """A chain of layers from ``input`` of shape (batch, ...) to ``output``."""

    def __init__(self, name: str, input_shape: tuple[int, ...]) -> None:
        self._name = name
        self._shape = tuple(input_shape)
        self._graph = GraphBuilder(name)
        self._value = self._graph.input("input", ("batch", *self._shape))
        self._layers = self._added = 0

    def gemm(self, width: int, *, gain: float = 2.0) -> Builder:
        """A fully connected layer of ``width`` outputs; ``gain`` over fan-in is the variance of its weights."""
        self._need_width(width)
        if len(self._shape) != 1:
            raise self._error("a fully connected layer", f"samples of shape {self._shape}", "call flatten() before it")
        (fan_in,) = self._shape
        weight, bias = self._weights((width, fan_in), math.sqrt(gain / fan_in))
        self._add("Gemm", weight, bias, transB=1)
        self._shape = (width,)
        return self

    def conv(self, channels: int, kernel: int, *, padding: int = 0, stride: int = 1, gain: float = 2.0) -> Builder:
        """A square two-dimensional convolution with bias; samples are of shape (channels, height, width)."""
        self._need_width(channels)
        self._need_image("a convolution")
        fan_in = self._shape[0] * kernel * kernel
        sizes = tuple(self._window(size + 2 * padding, kernel, stride) for size in self._shape[1:])
        weight, bias = self._weights((channels, self._shape[0], kernel, kernel), math.sqrt(gain / fan_in))
        self._add("Conv", weight, bias, kernel_shape=[kernel] * 2, pads=[padding] * 4, strides=[stride] * 2)
        self._shape = (channels, *sizes)
        return self

    def max_pool(self, kernel: int) -> Builder:
        """The maximum of disjoint ``kernel`` by ``kernel`` windows; a rest at the border is dropped."""
        self._need_image("a pooling")
        sizes = tuple(self._window(size, kernel, kernel) for size in self._shape[1:])
        self._add("MaxPool", kernel_shape=[kernel] * 2, strides=[kernel] * 2)
        self._shape = (self._shape[0], *sizes)
        return self

    def relu(self) -> Builder:
        """max(x, 0)."""
        self._add("Relu")
        return self

    def flatten(self) -> Builder:
        """All axes but the batch into one."""
        self._add("Flatten", axis=1)
        self._shape = (math.prod(self._shape),)
        return self

    def operator(
        self,
        operator: str,
        weights: Sequence[tuple[tuple[int, ...], float]] = (),
        *,
        shape: tuple[int, ...] | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> Builder:
        """Any operator of one input, ``weights`` as (shape, standard deviation), and one output.

        ``shape`` is that of a sample it puts out (default: the one it takes). A custom operator is one of ``domain``
        ``levelbench.custom``.
        """
        layer = f"{operator.lower()}{self._added}"
        names = [
            self._graph.parameter(f"{layer}.{at}", size, Draw("normal", std)) for at, (size, std) in enumerate(weights)
        ]
        self._shape = self._shape if shape is None else tuple(shape)
        declared = ("batch", *self._shape) if domain else None
        self._add(operator, *names, domain=domain, shape=declared, **attributes)
        return self

    def build(self) -> Network:
        """The network so far."""
        if not self._added:
            raise self._error("a network", "no layer", "add at least one")
        self._graph.output(self._value)
        return self._graph.build()

    def _add(self, operator: str, *parameters: str, **attributes: Any) -> None:
        name = f"{operator.lower()}{self._added}"
        self._value = self._graph.node(operator, self._value, *parameters, name=name, **attributes)
        self._added += 1

    def _weights(self, shape: tuple[int, ...], std: float) -> tuple[str, str]:
        with self._graph.scope(f"layer{self._layers}"):
            weight = self._graph.parameter("weight", shape, Draw("normal", std))
            bias = self._graph.parameter("bias", shape[:1], Draw("constant", 0.0))
        self._layers += 1
        return weight, bias

    def _window(self, size: int, kernel: int, stride: int) -> int:
        if min(kernel, stride) < 1 or size < kernel:
            raise self._error(f"a window of {kernel} with stride {stride}", f"only {size} to slide over", "shrink it")
        return (size - kernel) // stride + 1

    def _need_width(self, width: int) -> None:
        if width < 1:
            raise self._error(f"a layer of width {width}", "that is no layer", "give one of 1 or more")

    def _need_image(self, what: str) -> None:
        if len(self._shape) != 3:
            raise self._error(what, f"samples of shape {self._shape}", "give samples as (channels, height, width)")

    def _error(self, asked: str, found: str, do: str) -> DefinitionError:
        return DefinitionError(f"{asked} in network {self._name!r}", found, do)
