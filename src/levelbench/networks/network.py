"""A network as data: nodes with ONNX's operator names and attributes, and parameters that a seed initialises.

The one idea: a network holds no arrays. The initial weights follow from the seed and the parameter's name alone, so
every framework starts from the same bits, and adding a layer does not change the weights of the others.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from levelbench.errors import DefinitionError

__all__ = ["Builder", "Network", "Node", "Parameter"]


@dataclass(frozen=True)
class Node:
    """One operator: ONNX's name, attributes and domain, the names of the values it reads and the one it writes."""

    operator: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""


@dataclass(frozen=True)
class Parameter:
    """A trainable array of float32, drawn from a normal distribution of mean 0 and ``std`` (0: all zeros)."""

    name: str
    shape: tuple[int, ...]
    std: float

    def initialise(self, seed: int) -> NDArray[np.float32]:
        """The initial value: a function of the seed and the name alone. Shape: ``self.shape``."""
        if self.std == 0:
            return np.zeros(self.shape, np.float32)
        generator = Generator(PCG64([seed, zlib.crc32(self.name.encode())]))
        return (generator.standard_normal(self.shape) * self.std).astype(np.float32)


@dataclass(frozen=True)
class Network:
    """Nodes in an order in which they can be executed; ``input_shape`` is that of one sample, without the batch."""

    name: str
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    nodes: tuple[Node, ...]
    parameters: tuple[Parameter, ...]
    input: str = "input"

    @property
    def output(self) -> str:
        """The name of the last node's value: one row of ``output_shape`` a sample."""
        return self.nodes[-1].output

    def initialise(self, seed: int) -> dict[str, NDArray[np.float32]]:
        """All parameters by name."""
        return {parameter.name: parameter.initialise(seed) for parameter in self.parameters}

    def parameter_count(self) -> int:
        """Number of trainable scalars."""
        return sum(math.prod(parameter.shape) for parameter in self.parameters)


class Builder:
    """Builds a feed-forward network a layer at a time, and keeps track of the shape of one sample.

    Weights are initialised as He et al. 2015 (equation 10, fan-in) say for layers that a ReLU follows, and with
    variance 1/fan-in for the last one; biases are zero.
    """

    def __init__(self, name: str, input_shape: tuple[int, ...]) -> None:
        self._name = name
        self._input_shape = self._shape = tuple(input_shape)
        self._nodes: list[Node] = []
        self._parameters: list[Parameter] = []
        self._value = "input"

    def gemm(self, width: int, *, gain: float = 2.0) -> Builder:
        """A fully connected layer of ``width`` outputs; ``gain`` over fan-in is the variance of its weights."""
        self._need_width(width)
        if len(self._shape) != 1:
            raise self._error("a fully connected layer", f"samples of shape {self._shape}", "call flatten() before it")
        (fan_in,) = self._shape
        weight, bias = self._weights((width, fan_in), math.sqrt(gain / fan_in))
        self._add("Gemm", (weight, bias), {"transB": 1})
        self._shape = (width,)
        return self

    def conv(self, channels: int, kernel: int, *, padding: int = 0, stride: int = 1, gain: float = 2.0) -> Builder:
        """A square two-dimensional convolution with bias; samples are of shape (channels, height, width)."""
        self._need_width(channels)
        self._need_image("a convolution")
        fan_in = self._shape[0] * kernel * kernel
        weight, bias = self._weights((channels, self._shape[0], kernel, kernel), math.sqrt(gain / fan_in))
        attributes = {"kernel_shape": (kernel, kernel), "pads": (padding,) * 4, "strides": (stride, stride)}
        self._add("Conv", (weight, bias), attributes)
        self._shape = (channels, *(self._window(size + 2 * padding, kernel, stride) for size in self._shape[1:]))
        return self

    def max_pool(self, kernel: int) -> Builder:
        """The maximum of disjoint ``kernel`` by ``kernel`` windows; a rest at the border is dropped."""
        self._need_image("a pooling")
        self._add("MaxPool", (), {"kernel_shape": (kernel, kernel), "strides": (kernel, kernel)})
        self._shape = (self._shape[0], *(self._window(size, kernel, kernel) for size in self._shape[1:]))
        return self

    def relu(self) -> Builder:
        """max(x, 0)."""
        self._add("Relu", (), {})
        return self

    def flatten(self) -> Builder:
        """All axes but the batch into one."""
        self._add("Flatten", (), {"axis": 1})
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
        layer = f"{operator.lower()}{len(self._nodes)}"
        added = [Parameter(f"{layer}.{at}", tuple(size), std) for at, (size, std) in enumerate(weights)]
        self._parameters += added
        self._add(operator, tuple(each.name for each in added), attributes, domain)
        self._shape = self._shape if shape is None else tuple(shape)
        return self

    def build(self) -> Network:
        """The network so far."""
        if not self._nodes:
            raise self._error("a network", "no layer", "add at least one")
        return Network(self._name, self._input_shape, self._shape, tuple(self._nodes), tuple(self._parameters))

    def _add(self, operator: str, parameters: tuple[str, ...], attributes: dict[str, Any], domain: str = "") -> None:
        output = f"{operator.lower()}{len(self._nodes)}"
        self._nodes.append(Node(operator, (self._value, *parameters), output, attributes, domain))
        self._value = output

    def _weights(self, shape: tuple[int, ...], std: float) -> tuple[str, str]:
        layer = f"layer{len(self._parameters) // 2}"
        self._parameters.append(Parameter(f"{layer}.weight", shape, std))
        self._parameters.append(Parameter(f"{layer}.bias", (shape[0],), 0.0))
        return f"{layer}.weight", f"{layer}.bias"

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
