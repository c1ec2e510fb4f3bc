"""DLRM (Naumov et al. 2019): a recommendation from dense features and embedded categories, and their dot products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from levelbench.networks.builder import GraphBuilder
from levelbench.networks.network import Network
from levelbench.networks.zoo.blocks import embedding, linear, normal, uniform
from levelbench.networks.zoo.entry import Entry, Published, register

__all__ = ["CRITEO_KAGGLE", "NAMES", "dlrm"]

NAMES = ("dlrm",)
PAPER = "Naumov et al. 2019: Deep learning recommendation model for personalization, arXiv:1906.00091"

CRITEO_KAGGLE = (
    *(1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194),
    *(27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572),
)
"""Rows of the 26 tables: the categories of the Criteo Display Advertising Challenge (Kaggle), as DLRM's code counts."""


def dlrm(
    *,
    name: str = "dlrm",
    tables: Sequence[int] = CRITEO_KAGGLE,
    width: int = 16,
    dense: int = 13,
    bottom: Sequence[int] = (512, 256, 64),
    top: Sequence[int] = (512, 256),
) -> Network:
    """``dense`` (batch, dense) and one ``category`` (batch,) a table to the logit of a click (batch, 1).

    The dense features go through the bottom layers to ``width``; their dot products with the rows of the tables, and
    of those with each other, go with them through the top layers. One category a table, where the paper also sums
    several. Draws are those of the authors' code.
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
    # Each pair once: the places below the diagonal, row by row.
    rows, columns = np.tril_indices(number, -1)
    flat = g.node("Reshape", products, g.constant([0, number * number]))
    pairs = g.node("Gather", flat, g.constant(rows * number + columns), axis=1)
    both = g.node("Concat", x, pairs, axis=1)
    g.output(_perceptron(g, "top", both, (width + len(rows), *top, 1), last=None), "logit")
    return g.build()


def _perceptron(g: GraphBuilder, name: str, x: str, widths: Sequence[int], last: str | None) -> str:
    """Linear layers with ReLU between them, and ``last`` behind the last one."""
    with g.scope(name):
        for at, (inputs, outputs) in enumerate(pairwise(widths)):
            draw, bias = normal(math.sqrt(2 / (inputs + outputs))), normal(math.sqrt(1 / outputs))
            x = linear(g, f"layer{at}", x, inputs, outputs, draw, bias)
            behind = last if at == len(widths) - 2 else "Relu"
            x = g.node(behind, x) if behind else x
    return x


register(
    Entry(
        "dlrm",
        dlrm,
        PAPER,
        Published(
            540_000_000,
            None,
            "section 5 of the paper: about 540 million on the Criteo Kaggle data",
            "540,677,217 to the scalar: the paper rounds; MLPerf's own takes the terabyte data and needs 100 GB",
        ),
        "recommendation",
        "26 tables of width 16, their dot products, and two perceptrons",
    )
)
