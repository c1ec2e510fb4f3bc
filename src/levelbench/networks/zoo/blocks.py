"""The layers of the zoo's networks, as ONNX nodes.

:class:`ImageBuilder` tracks the shape of one sample at each value, so that layers specify only their outputs, and a
network reads like the table in its paper. In language networks tokens are rows, (batch * length, width), and only
attention and recurrence see the sequence, so that a linear layer is one Gemm including the bias.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DefinitionError
from levelbench.networks.builder import GraphBuilder
from levelbench.networks.values import Draw

ZEROS = Draw("constant", 0.0)
ONES = Draw("constant", 1.0)
Sample = tuple[int, ...]


def he(fan: int) -> Draw:
    """Normal with variance 2 / fan (He et al. 2015, equations 10 for fan-in and 14 for fan-out)."""
    return Draw("normal", math.sqrt(2.0 / fan))


def xavier_fan_in(fan: int) -> Draw:
    """Uniform with variance 1 / fan-in, called ``xavier`` in Caffe."""
    return Draw("uniform", math.sqrt(3.0 / fan))


def torch_default(fan: int) -> Draw:
    """Uniform in ±1 / sqrt(fan-in): PyTorch's default for weights and biases of layers."""
    return Draw("uniform", 1.0 / math.sqrt(fan))


class ImageBuilder(GraphBuilder):
    """A graph of images, (batch, channels, height, width), and of features, (batch, features)."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._shapes: dict[str, Sample] = {}

    def image(self, channels: int, size: int) -> str:
        """The network's input ``input``, (batch, channels, size, size)."""
        shape = (channels, size, size)
        return self.shaped(self.input("input", ("batch", *shape)), shape)

    def shape(self, x: str) -> Sample:
        """The shape of one sample at ``x``."""
        return self._shapes[x]

    def shaped(self, x: str, shape: Sequence[int]) -> str:
        """Set the shape of one sample at ``x``; returns ``x``."""
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
        """A square convolution, without bias by default; drawn as ``he`` of fan-out by default.

        ``fixed`` kernels (channels, inputs / groups, kernel, kernel) are constants, which are not trained.
        """
        inputs, *sizes = self.shape(x)
        if inputs % groups or channels % groups:
            raise self._refusal(name, f"{inputs} and {channels} channels cannot be divided into {groups} groups")
        reach = dilation * (kernel - 1) + 1
        made = [self._window(name, size + 2 * padding - reach, stride) for size in sizes]
        with self.scope(name):
            shape = (channels, inputs // groups, kernel, kernel)
            if fixed is not None and fixed.shape != shape:
                raise self._refusal(name, f"fixed kernels have shape {fixed.shape}, expected {shape}")
            # PyTorch's fan-out counts all output channels, whatever the groups.
            drawn = he(channels * kernel * kernel) if draw is None else draw
            weight = self.parameter("weight", shape, drawn) if fixed is None else self.constant(fixed)
            added = () if bias is None else (self.parameter("bias", (channels,), bias),)
            square: dict[str, Any] = {"kernel_shape": [kernel] * 2, "pads": [padding] * 4, "strides": [stride] * 2}
            y = self.node("Conv", x, weight, *added, **square, dilations=[dilation] * 2, group=groups)
        return self.shaped(y, (channels, *made))

    def up_conv(self, x: str, channels: int, kernel: int, *, name: str, draw: Draw) -> str:
        """A transposed convolution with bias whose stride is its kernel size: an image ``kernel`` times as large."""
        inputs, height, width = self.shape(x)
        with self.scope(name):
            weight = self.parameter("weight", (inputs, channels, kernel, kernel), draw)
            bias = self.parameter("bias", (channels,), ZEROS)
            y = self.node("ConvTranspose", x, weight, bias, kernel_shape=[kernel] * 2, strides=[kernel] * 2)
        return self.shaped(y, (channels, kernel * height, kernel * width))

    def batch_norm(self, x: str, *, name: str) -> str:
        """Batch normalisation with running statistics."""
        return self.shaped(batch_norm(self, name, x, self.shape(x)[0]), self.shape(x))

    def relu(self, x: str) -> str:
        """max(x, 0)."""
        return self.shaped(self.node("Relu", x), self.shape(x))

    def relu6(self, x: str) -> str:
        """min(max(x, 0), 6)."""
        return self.shaped(self.node("Clip", x, self.constant(0.0), self.constant(6.0)), self.shape(x))

    def local_response_norm(self, x: str, *, alpha: float, beta: float, bias: float, size: int = 5) -> str:
        """X / (bias + alpha * mean of squares of ``size`` neighbouring channels) ** beta, as in ONNX."""
        return self.shaped(self.node("LRN", x, alpha=alpha, beta=beta, bias=bias, size=size), self.shape(x))

    def max_pool(self, x: str, kernel: int, stride: int, *, padding: int = 0, ceil: bool = False) -> str:
        """The maximum of windows; with ``ceil`` including a last window that is only partly inside."""
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
        """The whole image as features."""
        return self.shaped(self.node("Flatten", x, axis=1), (math.prod(self.shape(x)),))

    def linear(self, x: str, outputs: int, *, name: str, draw: Draw | None = None, bias: Draw = ZEROS) -> str:
        """A fully connected layer with bias; drawn as ``torch_default`` by default."""
        (inputs,) = self.shape(x)
        drawn = torch_default(inputs) if draw is None else draw
        return self.shaped(linear(self, name, x, inputs, outputs, drawn, bias), (outputs,))

    def dropout(self, x: str, ratio: float = 0.5) -> str:
        """Dropout, which does nothing before :meth:`Network.training`; adds no node for a ratio of 0."""
        return self.shaped(dropout(self, x, ratio), self.shape(x))

    def survive(self, x: str, survival: float) -> str:
        """A residual branch that survives a training step with this probability: stochastic depth (Huang et al. 2016).

        One draw for the whole batch multiplies the branch by 0 or 1; outside of training it is multiplied by the
        probability (equations 2 and 5). The branch is computed in any case, so that no time is saved. Adds no node for
        a probability of 1.
        """
        if not 0 < survival <= 1:
            raise self._refusal("stochastic depth", f"a branch survives with probability {survival}")
        if survival == 1:
            return x
        drawn = dropout(self, self.constant([[[[1.0]]]], "float32"), 1 - survival)
        # Dropout in training gives 0 or 1 / survival, and else 1.
        return self.shaped(
            self.node("Mul", x, self.node("Mul", drawn, self.constant(survival, "float32"))), self.shape(x)
        )

    def add(self, x: str, y: str) -> str:
        """X + y, of the same shape."""
        if self.shape(x) != self.shape(y):
            raise self._refusal("an addition", f"samples have shapes {self.shape(x)} and {self.shape(y)}")
        return self.shaped(self.node("Add", x, y), self.shape(x))

    def concat(self, *images: str) -> str:
        """The channels of all images."""
        first = self.shape(images[0])
        if any(self.shape(each)[1:] != first[1:] for each in images):
            raise self._refusal("a concatenation", f"samples have shapes {[self.shape(each) for each in images]}")
        channels = sum(self.shape(each)[0] for each in images)
        return self.shaped(self.node("Concat", *images, axis=1), (channels, *first[1:]))

    def slice(
        self, x: str, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int]
    ) -> str:
        """A part of an image, cut along its axes (1: channels, 2: height, 3: width)."""
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


def survivals(count: int, last: float) -> list[float]:
    """The probabilities of ``count`` residual branches, linear down to ``last`` (Huang et al. 2016, equation 4)."""
    return [1 - at / count * (1 - last) for at in range(1, count + 1)]


def normal(std: float) -> Draw:
    """A normal distribution with mean 0."""
    return Draw("normal", std)


def uniform(half_width: float) -> Draw:
    """A uniform distribution in (-half_width, half_width)."""
    return Draw("uniform", half_width)


def xavier(inputs: int, outputs: int) -> Draw:
    """Uniform with variance 2 / (inputs + outputs) (Glorot & Bengio 2010, equation 16)."""
    return uniform(math.sqrt(6.0 / (inputs + outputs)))


def linear(g: GraphBuilder, name: str, x: str, inputs: int, outputs: int, draw: Draw, bias: Draw | None = ZEROS) -> str:
    """``x @ weight.T + bias`` for rows: (n, inputs) to (n, outputs). ``weight`` is (outputs, inputs)."""
    with g.scope(name):
        weight = g.parameter("weight", (outputs, inputs), draw)
        added = () if bias is None else (g.parameter("bias", (outputs,), bias),)
        return str(g.node("Gemm", x, weight, *added, transB=1))


def layer_norm(g: GraphBuilder, name: str, x: str, width: int, epsilon: float) -> str:
    """Layer normalisation over the last axis (Ba et al. 2016), with a learned scale and bias."""
    with g.scope(name):
        scale, bias = g.parameter("weight", (width,), ONES), g.parameter("bias", (width,), ZEROS)
        return str(g.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=epsilon))


def batch_norm(g: GraphBuilder, name: str, x: str, channels: int, scale: Draw = ONES) -> str:
    """Batch normalisation over axis 1 (Ioffe & Szegedy 2015).

    Its running statistics keep 0.9 of their previous values, which PyTorch calls a momentum of 0.1.
    """
    with g.scope(name):
        weight, bias = g.parameter("weight", (channels,), scale), g.parameter("bias", (channels,), ZEROS)
        mean = g.parameter("running_mean", (channels,), ZEROS, trainable=False)
        variance = g.parameter("running_var", (channels,), ONES, trainable=False)
        return str(g.node("BatchNormalization", x, weight, bias, mean, variance, epsilon=1e-5, momentum=0.9))


def embedding(g: GraphBuilder, name: str, ids: str, count: int, width: int, draw: Draw) -> tuple[str, str]:
    """The table, (count, width), and its rows at ``ids``, with the shape of ``ids`` followed by ``width``."""
    with g.scope(name):
        table = g.parameter("weight", (count, width), draw)
        return table, str(g.node("Gather", table, ids))


def dropout(g: GraphBuilder, x: str, ratio: float) -> str:
    """Dropout, which does nothing before :meth:`Network.training`; adds no node for a ratio of 0."""
    return str(g.node("Dropout", x, g.constant(ratio, "float32"))) if ratio else x


def conv(
    g: GraphBuilder,
    name: str,
    x: str,
    channels: tuple[int, int],
    kernel: tuple[int, int],
    draw: Draw,
    *,
    strides: tuple[int, int] = (1, 1),
    padding: int = 0,
    bias: Draw | None = ZEROS,
) -> str:
    """A two-dimensional convolution from ``channels[0]`` to ``channels[1]``; ``padding`` on all four sides."""
    with g.scope(name):
        weight = g.parameter("weight", (channels[1], channels[0], *kernel), draw)
        added = () if bias is None else (g.parameter("bias", (channels[1],), bias),)
        return str(g.node("Conv", x, weight, *added, kernel_shape=kernel, strides=strides, pads=[padding] * 4))


def rows(g: GraphBuilder, x: str, width: int) -> str:
    """(..., width) as (n, width)."""
    return str(g.node("Reshape", x, g.constant([-1, width])))


def shape_of(g: GraphBuilder, x: str, start: int, end: int) -> str:
    """Sizes ``start`` to ``end`` (exclusive) of ``x``, an int64 value on the host."""
    return str(g.node("Shape", x, start=start, end=end))


def sequences(g: GraphBuilder, x: str, sizes: str, *trailing: int) -> str:
    """Rows as sequences: ``sizes`` are the leading sizes (batch and length), followed by ``trailing``."""
    return str(g.node("Reshape", x, g.node("Concat", sizes, g.constant(list(trailing)), axis=0)))


def causal_mask(g: GraphBuilder, length: str) -> str:
    """(length, length): 0 where a position may attend (itself and earlier ones), minus infinity elsewhere."""
    square = g.node("Concat", length, length, axis=0)
    return str(g.node("Trilu", g.node("Expand", g.constant(-math.inf), square), g.constant(1), upper=1))


def padding_mask(g: GraphBuilder, kept: str) -> str:
    """(batch, 1, 1, length) to add to scores: 0 where ``kept``, (batch, length), is 1, and -10000 where it is 0.

    As in BERT's own code, not minus infinity: the softmax of a sequence of only padding would be NaN.
    """
    away = g.node("Mul", g.node("Sub", g.constant(1.0), g.node("Cast", kept, to=1)), g.constant(-10000.0))
    return str(g.node("Unsqueeze", away, g.constant([1, 2])))


@dataclass(frozen=True)
class Attention:
    """The sizes of a multi-head attention, how its weights are drawn, and whether its linear layers have a bias."""

    width: int
    heads: int
    draw: Draw
    bias: bool = True
    dropout: float = 0.0

    def build(self, g: GraphBuilder, x: str, sizes: str, memory: str, memory_sizes: str, mask: str | None) -> str:
        """Queries from rows ``x``, keys and values from rows ``memory``; ``*sizes`` are [batch, length] of each."""
        bias = ZEROS if self.bias else None
        query, key, value = (
            linear(g, name, each, self.width, self.width, self.draw, bias)
            for name, each in (("query", x), ("key", memory), ("value", memory))
        )
        mixed = attend(g, (query, key, value), (sizes, memory_sizes), self, mask)
        return linear(g, "output", mixed, self.width, self.width, self.draw, bias)


def attend(
    g: GraphBuilder, projected: tuple[str, str, str], sizes: tuple[str, str], how: Attention, mask: str | None
) -> str:
    """softmax(query key^T / sqrt(width / heads) + mask) value, by head (Vaswani et al. 2017, equation 1).

    Queries, keys and values are rows of ``how.width``; the first of ``sizes`` is [batch, length] of the queries.
    ``mask`` is broadcast to (batch, heads, queries, keys). Returns rows of ``how.width``.
    """
    each = how.width // how.heads
    query, key, value = (
        g.node("Transpose", sequences(g, x, sizes[at], how.heads, each), perm=order)
        for x, at, order in zip(projected, (0, 1, 1), ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True)
    )
    scores = g.node("MatMul", g.node("Mul", query, g.constant(1.0 / math.sqrt(each))), key)
    if mask is not None:
        scores = g.node("Add", scores, mask)
    shares = dropout(g, g.node("Softmax", scores, axis=-1), how.dropout)
    return rows(g, g.node("Transpose", g.node("MatMul", shares, value), perm=[0, 2, 1, 3]), how.width)


# In ONNX's order: input, output, forget, cell; and update, reset, hidden.
_GATES = {"LSTM": 4, "GRU": 3}


def recurrent(
    g: GraphBuilder,
    name: str,
    op_type: str,
    x: str,
    inputs: int,
    hidden: int,
    draw: Draw,
    *,
    biases: int = 2,
    directions: int = 1,
    initial: tuple[str, str] | None = None,
) -> tuple[str, ...]:
    """ONNX's LSTM or GRU: Y (length, directions, batch, hidden), and the last states (directions, batch, hidden).

    ``x`` is (length, batch, inputs). ``biases=1`` is the LSTM of papers; 2 is that of cuDNN and PyTorch, with a second
    bias on the recurrent side. The reset gate of a GRU is applied after the recurrent product, as in cuDNN.
    """
    size = _GATES[op_type] * hidden
    with g.scope(name):
        weight = g.parameter("weight", (directions, size, inputs), draw)
        recurrent = g.parameter("recurrent", (directions, size, hidden), draw)
        bias = g.parameter("bias", (directions, biases * size), draw)
        if biases == 1:
            bias = g.node("Concat", bias, g.constant(np.zeros((directions, size), np.float32)), axis=1)
        states = (None, *initial) if initial else ()
        attributes: dict[str, Any] = {"direction": "bidirectional" if directions == 2 else "forward"}
        if op_type == "GRU":
            attributes["linear_before_reset"] = 1
        outputs = 2 if op_type == "GRU" else 3
        given = (x, weight, recurrent, bias, *states)
        return tuple(g.node(op_type, *given, outputs=outputs, hidden_size=hidden, **attributes))
