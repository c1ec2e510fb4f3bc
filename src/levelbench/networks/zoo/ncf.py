"""Neural collaborative filtering (He et al. 2017): NeuMF, as MLPerf's recommendation benchmark has it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from levelbench.networks.builder import GraphBuilder
from levelbench.networks.network import Network
from levelbench.networks.zoo.blocks import embedding, linear, normal, xavier
from levelbench.networks.zoo.entry import Entry, Published, register

__all__ = ["NAMES", "ncf"]

NAMES = ("ncf",)
PAPER = "He, Liao, Zhang, Nie, Hu, Chua 2017: Neural collaborative filtering, arXiv:1708.05031"


def ncf(
    *,
    name: str = "ncf",
    users: int = 138493,
    items: int = 26744,
    factors: int = 64,
    layers: Sequence[int] = (256, 256, 128, 64),
) -> Network:
    """``user`` and ``item`` (batch,) to the logit that this user likes this item (batch, 1).

    Users and items default to those of MovieLens 20M. A product of ``factors`` (generalised matrix factorisation)
    beside a perceptron of ``layers``, whose first width is split between user and item (equation 12).
    """
    g = GraphBuilder(name)
    ids = {
        "user": g.input("user", ("batch",), "int64", high=users),
        "item": g.input("item", ("batch",), "int64", high=items),
    }
    counts = {"user": users, "item": items}

    def embedded(kind: str, width: int) -> list[str]:
        with g.scope(kind):
            return [embedding(g, each, ids[each], counts[each], width, normal(0.01))[1] for each in ids]

    product = g.node("Mul", *embedded("factors", factors))
    x = g.node("Concat", *embedded("perceptron", layers[0] // 2), axis=1)
    for at, (inputs, outputs) in enumerate(pairwise(layers)):
        x = g.node("Relu", linear(g, f"layer{at}", x, inputs, outputs, xavier(inputs, outputs)))
    width = factors + layers[-1]
    both = g.node("Concat", product, x, axis=1)
    g.output(linear(g, "score", both, width, 1, xavier(width, 1)), "logit")
    return g.build()


register(
    Entry(
        "ncf",
        ncf,
        PAPER,
        Published(31_832_577, None, "MLPerf training v0.5, recommendation on MovieLens 20M: NVIDIA's PyTorch code"),
        "recommendation",
        "NeuMF on MovieLens 20M: 64 factors beside a perceptron of four layers",
    )
)
