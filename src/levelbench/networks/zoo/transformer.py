"""The Transformer of Vaswani et al. 2017: encoder and decoder with teacher forcing, one vocabulary for both sides."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numpy.typing import NDArray

from levelbench.networks.builder import GraphBuilder
from levelbench.networks.network import Network
from levelbench.networks.zoo.blocks import (
    Attention,
    causal_mask,
    dropout,
    layer_norm,
    linear,
    normal,
    padding_mask,
    rows,
    sequences,
    shape_of,
    xavier,
)
from levelbench.networks.zoo.entry import Entry, Published, register

__all__ = ["NAMES", "sinusoids", "transformer"]

NAMES = ("transformer-base", "transformer-big", "transformer-tiny")
PAPER = "Vaswani et al. 2017: Attention is all you need, arXiv:1706.03762"
_EPSILON = 1e-6


def sinusoids(positions: int, width: int) -> NDArray[np.float32]:
    """(positions, width): sines at even and cosines at odd places (section 3.5)."""
    angles = np.arange(positions)[:, None] / 10000.0 ** (np.arange(0, width, 2) / width)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(positions, width).astype(np.float32)


def transformer(
    *,
    name: str = "transformer",
    layers: int = 6,
    width: int = 512,
    heads: int = 8,
    inner: int = 2048,
    vocabulary: int = 37000,
    positions: int = 1024,
    dropout_ratio: float = 0.1,
) -> Network:
    """``source_ids``, ``source_mask`` (batch, source) and ``target_ids`` (batch, target) to logits.

    Logits are (batch, target, vocabulary). The mask is 1 at tokens and 0 at padding. ``target_ids`` are the target
    shifted right (teacher forcing). Linear layers of the attention have no bias, as in the paper's equations;
    embeddings are normal with width ** -0.5 and shared with the output, the other weights Glorot's.
    """
    g = GraphBuilder(name)
    for each in ("source", "target"):
        g.size(each, 64)
    source = g.input("source_ids", ("batch", "source"), "int64", high=vocabulary)
    padding = padding_mask(g, g.input("source_mask", ("batch", "source"), "int64", high=2))
    target = g.input("target_ids", ("batch", "target"), "int64", high=vocabulary)
    with g.scope("embedding"):
        table = g.parameter("weight", (vocabulary, width), normal(width**-0.5))
    places = g.constant(sinusoids(positions, width))
    how = Attention(width, heads, xavier(width, width), bias=False)
    coder = _Coder(g, how, inner, dropout_ratio)
    x, sizes = coder.embed(source, table, places), shape_of(g, source, 0, 2)
    y, target_sizes = coder.embed(target, table, places), shape_of(g, target, 0, 2)
    for layer in range(layers):
        with g.scope(f"encoder{layer}"):
            x = coder.attention("attention", x, sizes, x, sizes, padding)
            x = coder.feed_forward(x)
    causal = causal_mask(g, shape_of(g, target, 1, 2))
    for layer in range(layers):
        with g.scope(f"decoder{layer}"):
            y = coder.attention("attention", y, target_sizes, y, target_sizes, causal)
            y = coder.attention("cross", y, target_sizes, x, sizes, padding)
            y = coder.feed_forward(y)
    g.output(sequences(g, g.node("Gemm", y, table, transB=1), target_sizes, vocabulary), "logits")
    return g.build()


class _Coder:
    """The sub-layers that encoder and decoder share, each with its residual connection and normalisation behind it."""

    def __init__(self, g: GraphBuilder, how: Attention, inner: int, ratio: float) -> None:
        self._g, self._how, self._inner, self._ratio = g, how, inner, ratio

    def embed(self, ids: str, table: str, places: str) -> str:
        """Rows of embeddings, scaled by the root of the width, with their positions added."""
        g, width = self._g, self._how.width
        x = g.node("Mul", g.node("Gather", table, ids), g.constant(math.sqrt(width)))
        there = g.node("Slice", places, g.constant([0]), shape_of(g, ids, 1, 2), g.constant([0]))
        return dropout(g, rows(g, g.node("Add", x, there), width), self._ratio)

    def attention(self, name: str, x: str, sizes: str, memory: str, memory_sizes: str, mask: str) -> str:
        """Multi-head attention of ``x`` to ``memory``."""
        with self._g.scope(name):
            return self._add("norm", x, self._how.build(self._g, x, sizes, memory, memory_sizes, mask))

    def feed_forward(self, x: str) -> str:
        """Two linear layers with ReLU between (equation 2)."""
        g, width = self._g, self._how.width
        with g.scope("feed_forward"):
            y = g.node("Relu", linear(g, "input", x, width, self._inner, xavier(width, self._inner)))
            return self._add("norm", x, linear(g, "output", y, self._inner, width, xavier(self._inner, width)))

    def _add(self, name: str, x: str, y: str) -> str:
        both = self._g.node("Add", x, dropout(self._g, y, self._ratio))
        return layer_norm(self._g, name, both, self._how.width, _EPSILON)


register(
    Entry(
        "transformer-base",
        partial(transformer, name="transformer-base"),
        PAPER,
        Published(
            65_000_000,
            None,
            "table 3 of the paper: 65 million",
            "63,045,632, 3 % less: the paper says a shared vocabulary of about 37,000 and does not count by parts",
        ),
        "translation",
        "encoder and decoder of 6 layers each, width 512, 8 heads",
    )
)
register(
    Entry(
        "transformer-big",
        partial(transformer, name="transformer-big", width=1024, heads=16, inner=4096, dropout_ratio=0.3),
        PAPER,
        Published(
            213_000_000,
            None,
            "table 3 of the paper: 213 million",
            "214,171,648, 0.6 % more: the paper says a shared vocabulary of about 37,000 and does not count by parts",
        ),
        "translation",
        "encoder and decoder of 6 layers each, width 1024, 16 heads",
    )
)
register(
    Entry(
        "transformer-tiny",
        partial(
            transformer, name="transformer-tiny", layers=2, width=32, heads=2, inner=64, vocabulary=500, positions=128
        ),
        PAPER,
        Published(None, None, PAPER, "ours, for tests: the paper has no model of this size"),
        "translation",
        "encoder and decoder of 2 layers each, width 32, for tests",
    )
)
