"""The network of AlphaGo Zero (Silver et al. 2017), as MLPerf's Minigo trains it: a residual tower with two heads."""

from __future__ import annotations

import math
from functools import partial

from levelbench.networks.builder import GraphBuilder
from levelbench.networks.network import Network
from levelbench.networks.zoo.blocks import batch_norm, conv, linear, normal
from levelbench.networks.zoo.entry import Entry, Published, register

__all__ = ["NAMES", "alphago_zero"]

NAMES = ("alphago-zero", "alphago-zero-tiny")
PAPER = "Silver et al. 2017: Mastering the game of Go without human knowledge, Nature 550, 354-359"


def alphago_zero(
    *, name: str = "alphago-zero", board: int = 19, planes: int = 17, filters: int = 256, blocks: int = 19
) -> Network:
    """Planes of stones (batch, planes, board, board) to ``logits`` of moves (batch, board ** 2 + 1) and ``value``.

    ``value`` (batch, 1) is the expected outcome in (-1, 1). A convolutional block and ``blocks`` residual ones ("Neural
    network architecture" in the paper's methods; 19 is its smaller network). Weights are He et al. 2015's.
    """
    g = GraphBuilder(name)
    x = g.input("input", ("batch", planes, board, board))
    x = g.node("Relu", _conv_norm(g, "stem", x, (planes, filters), 3))
    for at in range(blocks):
        with g.scope(f"block{at}"):
            y = g.node("Relu", _conv_norm(g, "first", x, (filters, filters), 3))
            x = g.node("Relu", g.node("Add", _conv_norm(g, "second", y, (filters, filters), 3), x))
    with g.scope("policy"):
        y = g.node("Flatten", g.node("Relu", _conv_norm(g, "reduce", x, (filters, 2), 1)), axis=1)
        logits = _dense(g, "moves", y, 2 * board * board, board * board + 1)
    with g.scope("value"):
        y = g.node("Flatten", g.node("Relu", _conv_norm(g, "reduce", x, (filters, 1), 1)), axis=1)
        y = g.node("Relu", _dense(g, "hidden", y, board * board, 256))
        value = g.node("Tanh", _dense(g, "outcome", y, 256, 1))
    g.output(logits, "logits")
    g.output(value, "value")
    return g.build()


def _dense(g: GraphBuilder, name: str, x: str, inputs: int, outputs: int) -> str:
    return linear(g, name, x, inputs, outputs, normal(math.sqrt(2 / inputs)))


def _conv_norm(g: GraphBuilder, name: str, x: str, channels: tuple[int, int], kernel: int) -> str:
    """A convolution that keeps the size of the board, without bias, and batch normalisation."""
    with g.scope(name):
        draw = normal(math.sqrt(2 / (channels[0] * kernel * kernel)))
        x = conv(g, "conv", x, channels, (kernel, kernel), draw, padding=kernel // 2, bias=None)
        return batch_norm(g, "norm", x, channels[1])


register(
    Entry(
        "alphago-zero",
        alphago_zero,
        PAPER,
        Published(None, None, PAPER, "the paper prints no count"),
        "reinforcement learning",
        "19 residual blocks of 256 filters, a policy and a value, for a board of 19 x 19",
    )
)
register(
    Entry(
        "alphago-zero-tiny",
        partial(alphago_zero, name="alphago-zero-tiny", board=9, filters=16, blocks=2),
        PAPER,
        Published(None, None, PAPER, "ours, for tests: the paper has no model of this size"),
        "reinforcement learning",
        "2 residual blocks of 16 filters for a board of 9 x 9, for tests",
    )
)
