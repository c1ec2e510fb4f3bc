"""GPT-2 (Radford et al. 2019): a causal decoder with pre-normalisation, its output tied to the embedding."""

from __future__ import annotations

import math
from functools import partial

from levelbench.networks.builder import GraphBuilder
from levelbench.networks.network import Network
from levelbench.networks.zoo.blocks import (
    Attention,
    attend,
    causal_mask,
    dropout,
    embedding,
    layer_norm,
    linear,
    normal,
    rows,
    sequences,
    shape_of,
)
from levelbench.networks.zoo.entry import Entry, Published, register

__all__ = ["NAMES", "gpt2"]

NAMES = ("gpt2-small", "gpt2-tiny")
PAPER = "Radford, Wu, Child, Luan, Amodei, Sutskever 2019: Language models are unsupervised multitask learners"
_EPSILON = 1e-5
_DRAW = normal(0.02)


def gpt2(
    *,
    name: str = "gpt2",
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    vocabulary: int = 50257,
    positions: int = 1024,
    dropout_ratio: float = 0.1,
) -> Network:
    """Token ids (batch, length), length up to ``positions``, to logits (batch, length, vocabulary).

    Weights are normal with 0.02 (positions 0.01, as in the released code), those that write to the residual stream
    smaller by the root of their number (section 2.3).
    """
    g = GraphBuilder(name)
    g.size("length", min(128, positions))
    ids = g.input("input_ids", ("batch", "length"), "int64", high=vocabulary)
    sizes, length = shape_of(g, ids, 0, 2), shape_of(g, ids, 1, 2)
    table, x = embedding(g, "token", ids, vocabulary, width, _DRAW)
    with g.scope("position"):
        places = g.parameter("weight", (positions, width), normal(0.01))
    x = g.node("Add", x, g.node("Slice", places, g.constant([0]), length, g.constant([0])))
    x = dropout(g, rows(g, x, width), dropout_ratio)
    mask = causal_mask(g, length)
    attention = Attention(width, heads, normal(0.02 / math.sqrt(2 * layers)), dropout=dropout_ratio)
    for layer in range(layers):
        with g.scope(f"block{layer}"):
            x = _block(g, x, sizes, mask, attention)
    x = layer_norm(g, "norm", x, width, _EPSILON)
    g.output(sequences(g, g.node("Gemm", x, table, transB=1), sizes, vocabulary), "logits")
    return g.build()


def _block(g: GraphBuilder, x: str, sizes: str, mask: str, how: Attention) -> str:
    """One block; ``how.draw`` is for the two layers that write to the residual stream."""
    with g.scope("attention"):
        y = linear(g, "input", layer_norm(g, "norm", x, how.width, _EPSILON), how.width, 3 * how.width, _DRAW)
        query, key, value = g.node("Split", y, outputs=3, axis=-1, num_outputs=3)
        y = attend(g, (query, key, value), (sizes, sizes), how, mask)
        y = dropout(g, linear(g, "output", y, how.width, how.width, how.draw), how.dropout)
        x = g.node("Add", x, y)
    with g.scope("mlp"):
        y = linear(g, "input", layer_norm(g, "norm", x, how.width, _EPSILON), how.width, 4 * how.width, _DRAW)
        y = linear(g, "output", g.node("Gelu", y, approximate="tanh"), 4 * how.width, how.width, how.draw)
        return str(g.node("Add", x, dropout(g, y, how.dropout)))


register(
    Entry(
        "gpt2-small",
        partial(gpt2, name="gpt2-small"),
        PAPER,
        Published(
            124_439_808,
            None,
            "the released model of 124M, counted in transformers' GPT2LMHeadModel of gpt2 (the paper prints 117M)",
        ),
        "language",
        "causal decoder of 12 layers, width 768, 12 heads",
    )
)
register(
    Entry(
        "gpt2-tiny",
        partial(gpt2, name="gpt2-tiny", layers=2, width=64, heads=2, vocabulary=1000, positions=128),
        PAPER,
        Published(None, None, PAPER, "ours, for tests: the paper has no model of this size"),
        "language",
        "causal decoder of 2 layers, width 64, 2 heads, for tests",
    )
)
