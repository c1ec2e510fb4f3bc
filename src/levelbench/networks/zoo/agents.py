"""Networks for games and recommendation: DQN and A3C, AlphaGo Zero, NCF (as in MLPerf), DLRM."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from levelbench.networks.builder import GraphBuilder
from levelbench.networks.network import Network
from levelbench.networks.zoo.blocks import ImageBuilder, embedding, he, linear, normal, torch_default, uniform, xavier


def _frames(g: ImageBuilder, *layers: tuple[int, int, int]) -> str:
    """Frames (batch, 4, 84, 84) through convolutions (channels, kernel, stride) with ReLU, flattened.

    Drawn with the defaults of Torch, which the authors used.
    """
    x = g.image(4, 84)
    for at, (channels, kernel, stride) in enumerate(layers):
        draw = torch_default(g.shape(x)[0] * kernel * kernel)
        x = g.relu(g.conv(x, channels, kernel, name=f"conv{at}", stride=stride, draw=draw, bias=draw))
    return g.flatten(x)


def _dense(g: ImageBuilder, x: str, outputs: int, name: str) -> str:
    return g.linear(x, outputs, name=name, bias=torch_default(g.shape(x)[0]))


def dqn(*, name: str = "dqn", actions: int = 4) -> Network:
    """Frames (batch, 4, 84, 84), scaled to [0, 1] by the caller, to the value of each action (batch, actions)."""
    g = ImageBuilder(name)
    x = g.relu(_dense(g, _frames(g, (32, 8, 4), (64, 4, 2), (64, 3, 1)), 512, "hidden"))
    g.output(_dense(g, x, actions, "values"), "values")
    return g.build()


def a3c(*, name: str = "a3c", actions: int = 4) -> Network:
    """Frames (batch, 4, 84, 84) to logits of the policy (batch, actions) and the value of the state (batch, 1).

    The feed-forward agent of section 5.1; the recurrent one has an LSTM of 256 cells after the hidden layer.
    """
    g = ImageBuilder(name)
    x = g.relu(_dense(g, _frames(g, (16, 8, 4), (32, 4, 2)), 256, "hidden"))
    g.output(_dense(g, x, actions, "policy"), "logits")
    g.output(_dense(g, x, 1, "value"), "value")
    return g.build()


def alphago_zero(
    *, name: str = "alphago-zero", board: int = 19, planes: int = 17, filters: int = 256, blocks: int = 19
) -> Network:
    """Planes of stones (batch, planes, board, board) to ``logits`` of moves (batch, board ** 2 + 1) and ``value``.

    ``value`` (batch, 1) is the expected outcome in (-1, 1). One convolutional and ``blocks`` residual blocks ("Neural
    network architecture" in the paper's methods; 19 is its smaller network). Weights are drawn as in He et al. 2015.
    """
    g = ImageBuilder(name)
    x = g.relu(_conv_norm(g, g.image(planes, board), filters, 3, "stem"))
    for at in range(blocks):
        with g.scope(f"block{at}"):
            y = g.relu(_conv_norm(g, x, filters, 3, "first"))
            x = g.relu(g.add(_conv_norm(g, y, filters, 3, "second"), x))
    with g.scope("policy"):
        y = g.flatten(g.relu(_conv_norm(g, x, 2, 1, "reduce")))
        logits = g.linear(y, board * board + 1, name="moves", draw=he(2 * board * board))
    with g.scope("value"):
        y = g.flatten(g.relu(_conv_norm(g, x, 1, 1, "reduce")))
        y = g.relu(g.linear(y, 256, name="hidden", draw=he(board * board)))
        value = g.node("Tanh", g.linear(y, 1, name="outcome", draw=he(256)))
    g.output(logits, "logits")
    g.output(value, "value")
    return g.build()


def _conv_norm(g: ImageBuilder, x: str, channels: int, kernel: int, name: str) -> str:
    """A convolution without bias that keeps the size of the board, and batch normalisation."""
    with g.scope(name):
        draw = he(g.shape(x)[0] * kernel * kernel)
        return g.batch_norm(g.conv(x, channels, kernel, name="conv", padding=kernel // 2, draw=draw), name="norm")


def ncf(
    *,
    name: str = "ncf",
    users: int = 138493,
    items: int = 26744,
    factors: int = 64,
    layers: Sequence[int] = (256, 256, 128, 64),
    rows: bool = False,
) -> Network:
    """``user`` and ``item`` (batch,) to the logit that this user likes this item (batch, 1).

    Users and items default to those of MovieLens 20M. A product of ``factors`` (generalised matrix factorisation) in
    parallel with a perceptron of ``layers``, whose first width is split between user and item (equation 12); without
    layers it is the product alone (equation 9). With ``rows``, ``item`` and the logits are (batch, items): the items
    that each user chooses among.
    """
    g = GraphBuilder(name)
    shape = ("batch", "items") if rows else ("batch",)
    if rows:
        g.size("items", 5)
    ids = {
        "user": g.input("user", ("batch",), "int64", high=users),
        "item": g.input("item", shape, "int64", high=items),
    }
    counts = {"user": users, "item": items}
    if rows:
        each, flat = g.node("Shape", ids["item"]), g.constant([-1])
        repeated = g.node("Expand", g.node("Unsqueeze", ids["user"], g.constant([1])), each)
        ids = {"user": g.node("Reshape", repeated, flat), "item": g.node("Reshape", ids["item"], flat)}

    def embedded(kind: str, width: int) -> list[str]:
        with g.scope(kind):
            return [embedding(g, each, ids[each], counts[each], width, normal(0.01))[1] for each in ids]

    x, width = g.node("Mul", *embedded("factors", factors)), factors
    if layers:
        product, x = x, g.node("Concat", *embedded("perceptron", layers[0] // 2), axis=1)
        for at, (inputs, outputs) in enumerate(pairwise(layers)):
            x = g.node("Relu", linear(g, f"layer{at}", x, inputs, outputs, xavier(inputs, outputs)))
        x, width = g.node("Concat", product, x, axis=1), factors + layers[-1]
    if rows:
        g.output(g.node("Reshape", linear(g, "score", x, width, 1, xavier(width, 1)), each), "logits")
    else:
        g.output(linear(g, "score", x, width, 1, xavier(width, 1)), "logit")
    return g.build()


CRITEO_KAGGLE = (
    *(1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194),
    *(27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572),
)
"""Rows of the 26 tables: categories of the Criteo Display Advertising Challenge (Kaggle), as counted by DLRM's code."""


def dlrm(
    *,
    name: str = "dlrm",
    tables: Sequence[int] = CRITEO_KAGGLE,
    width: int = 16,
    dense: int = 13,
    bottom: Sequence[int] = (512, 256, 64),
    top: Sequence[int] = (512, 256),
) -> Network:
    """``dense`` (batch, dense) and one ``category`` (batch,) per table to the logit of a click (batch, 1).

    The bottom layers map the dense features to ``width``. The result and the dot products of all pairs of it and the
    rows of the tables go through the top layers. There is one category per table; the paper may sum several. Draws are
    those of the authors' code.
    """
    g = GraphBuilder(name)
    x = _perceptron(g, "bottom", g.input("dense", ("batch", dense)), (dense, *bottom, width), last="Relu")
    vectors = [x]
    for at, count in enumerate(tables):
        ids = g.input(f"category{at}", ("batch",), "int64", high=count)
        vectors.append(embedding(g, f"table{at}", ids, count, width, uniform(1 / math.sqrt(count)))[1])
    number = len(vectors)
    stacked = g.node("Concat", *(g.node("Unsqueeze", each, g.constant([1])) for each in vectors), axis=1)
    products = g.node("MatMul", stacked, g.node("Transpose", stacked, perm=[0, 2, 1]))
    # Each pair once: the entries below the diagonal, row by row.
    rows, columns = np.tril_indices(number, -1)
    flat = g.node("Reshape", products, g.constant([0, number * number]))
    pairs = g.node("Gather", flat, g.constant(rows * number + columns), axis=1)
    both = g.node("Concat", x, pairs, axis=1)
    g.output(_perceptron(g, "top", both, (width + len(rows), *top, 1), last=None), "logit")
    return g.build()


def _perceptron(g: GraphBuilder, name: str, x: str, widths: Sequence[int], last: str | None) -> str:
    """Linear layers with ReLU between them, and ``last`` after the last one."""
    with g.scope(name):
        for at, (inputs, outputs) in enumerate(pairwise(widths)):
            draw, bias = normal(math.sqrt(2 / (inputs + outputs))), normal(math.sqrt(1 / outputs))
            x = linear(g, f"layer{at}", x, inputs, outputs, draw, bias)
            activation = last if at == len(widths) - 2 else "Relu"
            x = g.node(activation, x) if activation else x
    return x
