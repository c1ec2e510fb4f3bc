"""Layers of vision networks as ONNX nodes: a builder that knows the shape of one sample at each value.

The one idea: a layer says what it makes and never what it takes, so a network reads like its paper's table, and a size
that does not fit is an error where it is written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DefinitionError
from levelbench.networks.builder import GraphBuilder
from levelbench.networks.values import Draw

__all__ = ["ONES", "ZEROS", "ImageBuilder", "he", "torch_default", "xavier_fan_in"]

ZEROS = Draw("constant", 0.0)
ONES = Draw("constant", 1.0)
Sample = tuple[int, ...]


def he(fan: int) -> Draw:
    """Normal with variance 2 / fan (He et al. 2015, equations 10 for fan-in and 14 for fan-out)."""
    return Draw("normal", math.sqrt(2.0 / fan))


def xavier_fan_in(fan: int) -> Draw:
    """Uniform with variance 1 / fan-in, which is what Caffe calls ``xavier``."""
    return Draw("uniform", math.sqrt(3.0 / fan))


def torch_default(fan: int) -> Draw:
    """Uniform in 1 / sqrt(fan-in) on both sides: weights and biases of PyTorch's layers as they are made."""
    return Draw("uniform", 1.0 / math.sqrt(fan))


class ImageBuilder(GraphBuilder):
    """A graph of images, (batch, channels, height, width), and of features, (batch, features)."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._shapes: dict[str, Sample] = {}

    def image(self, channels: int, height: int, width: int | None = None) -> str:
        """The network's input ``input``, (batch, channels, height, width); square without a width."""
        shape = (channels, height, height if width is None else width)
        return self.shaped(self.input("input", ("batch", *shape)), shape)

    def shape(self, x: str) -> Sample:
        """The shape of one sample at ``x``."""
        return self._shapes[x]

    def shaped(self, x: str, shape: Sequence[int]) -> str:
        """``x``, of which is said that one sample has this shape."""
        self._shapes[x] = tuple(shape)
        return x

    def conv(
        self,
        x: str,
        channels: int,
        kernel: int,
        *,
        name: str,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        draw: Draw | None = None,
        bias: Draw | None = None,
        fixed: NDArray[np.float32] | None = None,
    ) -> str:
        """A square convolution without bias, unless one is given; drawn as ``he`` of fan-out where nobody says.

        ``fixed`` kernels (channels, inputs / groups, kernel, kernel) are constants of the network: nothing trains them.
        """
        inputs, *sizes = self.shape(x)
        if inputs % groups or channels % groups:
            raise self._refusal(name, f"{inputs} and {channels} channels are not in {groups} groups")
        reach = dilation * (kernel - 1) + 1
        made = [self._window(name, size + 2 * padding - reach, stride) for size in sizes]
        with self.scope(name):
            shape = (channels, inputs // groups, kernel, kernel)
            if fixed is not None and fixed.shape != shape:
                raise self._refusal(name, f"fixed kernels of shape {fixed.shape}, where {shape} are needed")
            drawn = he(channels * kernel * kernel // groups) if draw is None else draw
            weight = self.parameter("weight", shape, drawn) if fixed is None else self.constant(fixed)
            added = () if bias is None else (self.parameter("bias", (channels,), bias),)
            square: dict[str, Any] = {"kernel_shape": [kernel] * 2, "pads": [padding] * 4, "strides": [stride] * 2}
            y = self.node("Conv", x, weight, *added, **square, dilations=[dilation] * 2, group=groups)
        return self.shaped(y, (channels, *made))

    def up_conv(self, x: str, channels: int, kernel: int, *, name: str, draw: Draw) -> str:
        """A transposed convolution whose stride is its kernel, with bias: an image ``kernel`` times as large."""
        inputs, height, width = self.shape(x)
        with self.scope(name):
            weight = self.parameter("weight", (inputs, channels, kernel, kernel), draw)
            bias = self.parameter("bias", (channels,), ZEROS)
            y = self.node("ConvTranspose", x, weight, bias, kernel_shape=[kernel] * 2, strides=[kernel] * 2)
        return self.shaped(y, (channels, kernel * height, kernel * width))

    def batch_norm(self, x: str, *, name: str, epsilon: float = 1e-5) -> str:
        """Batch normalisation; its running statistics keep 0.9 of what they were (0.1 in PyTorch's words)."""
        channels = self.shape(x)[:1]
        with self.scope(name):
            scale, bias = self.parameter("weight", channels, ONES), self.parameter("bias", channels, ZEROS)
            mean = self.parameter("running_mean", channels, ZEROS, trainable=False)
            variance = self.parameter("running_var", channels, ONES, trainable=False)
            y = self.node("BatchNormalization", x, scale, bias, mean, variance, epsilon=epsilon, momentum=0.9)
        return self.shaped(y, self.shape(x))

    def relu(self, x: str) -> str:
        """max(x, 0)."""
        return self.shaped(self.node("Relu", x), self.shape(x))

    def relu6(self, x: str) -> str:
        """min(max(x, 0), 6)."""
        return self.shaped(self.node("Clip", x, self.constant(0.0), self.constant(6.0)), self.shape(x))

    def local_response_norm(self, x: str, *, alpha: float, beta: float, bias: float, size: int = 5) -> str:
        """X / (bias + alpha * mean of squares of ``size`` neighbouring channels) ** beta, as ONNX has it."""
        return self.shaped(self.node("LRN", x, alpha=alpha, beta=beta, bias=bias, size=size), self.shape(x))

    def max_pool(self, x: str, kernel: int, stride: int, *, padding: int = 0, ceil: bool = False) -> str:
        """The maximum of windows; with ``ceil`` one more where the last is only partly inside."""
        return self._pool("MaxPool", x, kernel, stride, padding, ceil)

    def average_pool(self, x: str, kernel: int, stride: int) -> str:
        """The mean of windows."""
        return self._pool("AveragePool", x, kernel, stride, 0, False)

    def _pool(self, op_type: str, x: str, kernel: int, stride: int, padding: int, ceil: bool) -> str:
        channels, *sizes = self.shape(x)
        spare = [size + 2 * padding - kernel + (stride - 1 if ceil else 0) for size in sizes]
        made = [self._window(op_type, each, stride) for each in spare]
        square: dict[str, Any] = {"kernel_shape": [kernel] * 2, "pads": [padding] * 4, "strides": [stride] * 2}
        return self.shaped(self.node(op_type, x, **square, ceil_mode=int(ceil)), (channels, *made))

    def global_average_pool(self, x: str) -> str:
        """The mean of each channel, as features."""
        pooled = self.node("GlobalAveragePool", x)
        return self.shaped(self.node("Flatten", pooled, axis=1), self.shape(x)[:1])

    def flatten(self, x: str) -> str:
        """All of an image as features."""
        return self.shaped(self.node("Flatten", x, axis=1), (math.prod(self.shape(x)),))

    def linear(self, x: str, outputs: int, *, name: str, draw: Draw | None = None, bias: Draw = ZEROS) -> str:
        """A fully connected layer with bias; drawn as ``torch_default`` where nobody says."""
        (inputs,) = self.shape(x)
        with self.scope(name):
            weight = self.parameter("weight", (outputs, inputs), torch_default(inputs) if draw is None else draw)
            y = self.node("Gemm", x, weight, self.parameter("bias", (outputs,), bias), transB=1)
        return self.shaped(y, (outputs,))

    def dropout(self, x: str, ratio: float = 0.5) -> str:
        """Dropout, which does nothing before :meth:`Network.training`; no node at all for a ratio of 0."""
        return self.shaped(self.node("Dropout", x, self.constant(ratio)), self.shape(x)) if ratio else x

    def add(self, x: str, y: str) -> str:
        """X + y, of the same shape."""
        if self.shape(x) != self.shape(y):
            raise self._refusal("an addition", f"samples are of shapes {self.shape(x)} and {self.shape(y)}")
        return self.shaped(self.node("Add", x, y), self.shape(x))

    def concat(self, *images: str) -> str:
        """The channels of all images."""
        first = self.shape(images[0])
        if any(self.shape(each)[1:] != first[1:] for each in images):
            raise self._refusal("a concatenation", f"samples are of shapes {[self.shape(each) for each in images]}")
        channels = sum(self.shape(each)[0] for each in images)
        return self.shaped(self.node("Concat", *images, axis=1), (channels, *first[1:]))

    def slice(
        self, x: str, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int]
    ) -> str:
        """Parts of an image along axes of it (1: channels, 2: height, 3: width)."""
        shape = list(self.shape(x))
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            shape[axis - 1] = len(range(start, min(end, shape[axis - 1]), step))
        given = [self.constant(np.array(each, np.int64)) for each in (starts, ends, axes, steps)]
        return self.shaped(self.node("Slice", x, *given), shape)

    def _window(self, what: str, spare: int, stride: int) -> int:
        if spare < 0:
            raise self._refusal(what, "the image is smaller than the window")
        return spare // stride + 1

    def _refusal(self, what: str, found: str) -> DefinitionError:
        return DefinitionError(f"{what} in network {self._name!r}", found, "choose other sizes")
