"""Layers of language, speech and recommendation networks: linear, norms, attention, LSTM and GRU, as ONNX nodes.

The one idea: tokens are kept as rows, (batch * length, width), and only attention and recurrence see the sequence. So a
linear layer is one Gemm that adds its bias as it goes, which is what a careful implementation by hand would call.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from levelbench.networks.builder import GraphBuilder
from levelbench.networks.network import Draw

__all__ = [
    "ONES",
    "ZEROS",
    "Attention",
    "attend",
    "batch_norm",
    "causal_mask",
    "conv",
    "dropout",
    "embedding",
    "gru",
    "layer_norm",
    "linear",
    "lstm",
    "normal",
    "padding_mask",
    "rows",
    "sequences",
    "shape_of",
    "uniform",
    "xavier",
]

ZEROS = Draw("constant", 0.0)
ONES = Draw("constant", 1.0)


def normal(std: float) -> Draw:
    """A normal distribution of mean 0."""
    return Draw("normal", std)


def uniform(half_width: float) -> Draw:
    """A uniform distribution in (-half_width, half_width)."""
    return Draw("uniform", half_width)


def xavier(inputs: int, outputs: int) -> Draw:
    """Uniform with variance 2 / (inputs + outputs) (Glorot & Bengio 2010, equation 16)."""
    return uniform(math.sqrt(6.0 / (inputs + outputs)))


def linear(g: GraphBuilder, name: str, x: str, inputs: int, outputs: int, draw: Draw, bias: Draw | None = ZEROS) -> str:
    """``x @ weight.T + bias`` of rows: (n, inputs) to (n, outputs). ``weight`` is (outputs, inputs)."""
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
    """Batch normalisation over axis 1 (Ioffe & Szegedy 2015) with running statistics, a tenth of each batch in them."""
    with g.scope(name):
        weight, bias = g.parameter("weight", (channels,), scale), g.parameter("bias", (channels,), ZEROS)
        mean = g.parameter("running_mean", (channels,), ZEROS, trainable=False)
        variance = g.parameter("running_var", (channels,), ONES, trainable=False)
        return str(g.node("BatchNormalization", x, weight, bias, mean, variance, epsilon=1e-5, momentum=0.9))


def embedding(g: GraphBuilder, name: str, ids: str, count: int, width: int, draw: Draw) -> tuple[str, str]:
    """The table, (count, width), and its rows at ``ids``: the shape of ``ids`` with ``width`` behind it."""
    with g.scope(name):
        table = g.parameter("weight", (count, width), draw)
        return table, str(g.node("Gather", table, ids))


def dropout(g: GraphBuilder, x: str, ratio: float) -> str:
    """Dropout, which does nothing before :meth:`Network.training`; no node at all for a ratio of 0."""
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
    """Sizes ``start`` up to ``end`` of ``x``, a value of int64 on the host."""
    return str(g.node("Shape", x, start=start, end=end))


def sequences(g: GraphBuilder, x: str, sizes: str, *behind: int) -> str:
    """Rows as sequences: ``sizes`` are the leading sizes (batch and length), ``behind`` those that follow."""
    return str(g.node("Reshape", x, g.node("Concat", sizes, g.constant(list(behind)), axis=0)))


def causal_mask(g: GraphBuilder, length: str) -> str:
    """(length, length): 0 where a position may look (itself and earlier ones), minus infinity where not."""
    square = g.node("Concat", length, length, axis=0)
    return str(g.node("Trilu", g.node("Expand", g.constant(-math.inf), square), g.constant(1), upper=1))


def padding_mask(g: GraphBuilder, kept: str) -> str:
    """(batch, 1, 1, length) to add to scores: 0 where ``kept``, (batch, length), is 1, and -10000 where it is 0.

    Not minus infinity: the softmax of a sequence that is all padding would not be a number (as in BERT's own code).
    """
    away = g.node("Mul", g.node("Sub", g.constant(1.0), g.node("Cast", kept, to=1)), g.constant(-10000.0))
    return str(g.node("Unsqueeze", away, g.constant([1, 2])))


@dataclass(frozen=True)
class Attention:
    """Sizes of a multi-head attention, how its weights are drawn, and whether its linear layers have a bias."""

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
    ``mask`` broadcasts to (batch, heads, queries, keys). Puts out rows of ``how.width``.
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


def lstm(
    g: GraphBuilder,
    name: str,
    x: str,
    inputs: int,
    hidden: int,
    draw: Draw,
    *,
    bias: Draw = ZEROS,
    biases: int = 2,
    directions: int = 1,
    initial: tuple[str, str] | None = None,
) -> tuple[str, str, str]:
    """ONNX's LSTM: Y (length, directions, batch, hidden), and the last Y_h and Y_c (directions, batch, hidden).

    ``x`` is (length, batch, inputs); gates are in ONNX's order, input, output, forget, cell. ``biases=1`` is the LSTM
    of papers; 2 is that of cuDNN and PyTorch, with another one on the recurrent side.
    """
    y, hidden_last, cell_last = _recurrent(
        g, name, "LSTM", 4, x, (inputs, hidden), draw, bias, biases, directions, initial
    )
    return y, hidden_last, cell_last


def gru(
    g: GraphBuilder,
    name: str,
    x: str,
    inputs: int,
    hidden: int,
    draw: Draw,
    *,
    bias: Draw = ZEROS,
    directions: int = 1,
) -> str:
    """ONNX's GRU with two biases: Y (length, directions, batch, hidden) of ``x`` (length, batch, inputs).

    Gates are in ONNX's order, update, reset, hidden; the reset gate acts behind the recurrent product, as in cuDNN.
    """
    made = _recurrent(g, name, "GRU", 3, x, (inputs, hidden), draw, bias, 2, directions, None, linear_before_reset=1)
    return made[0]


def _recurrent(
    g: GraphBuilder,
    name: str,
    op_type: str,
    gates: int,
    x: str,
    sizes: tuple[int, int],
    draw: Draw,
    bias: Draw,
    biases: int,
    directions: int,
    initial: tuple[str, ...] | None,
    **attributes: Any,
) -> tuple[str, ...]:
    inputs, hidden = sizes
    with g.scope(name):
        weight = g.parameter("weight", (directions, gates * hidden, inputs), draw)
        recurrent = g.parameter("recurrent", (directions, gates * hidden, hidden), draw)
        both = g.parameter("bias", (directions, biases * gates * hidden), bias)
        if biases == 1:
            both = g.node("Concat", both, g.constant(np.zeros((directions, gates * hidden), np.float32)), axis=1)
        direction = "bidirectional" if directions == 2 else "forward"
        states = (None, *initial) if initial else ()
        made = g.node(
            op_type,
            x,
            weight,
            recurrent,
            both,
            *states,
            outputs=2 if op_type == "GRU" else 3,
            hidden_size=hidden,
            direction=direction,
            **attributes,
        )
        return tuple(made)
