"""Vision transformers: ViT-B/16 (Dosovitskiy et al. 2020), and DeiT-Ti (Touvron et al. 2020), the usual tiny one."""

from __future__ import annotations

from functools import partial

from levelbench.networks.network import Network
from levelbench.networks.zoo.blocks import (
    ZEROS,
    Attention,
    dropout,
    layer_norm,
    linear,
    normal,
    rows,
    sequences,
    shape_of,
)
from levelbench.networks.zoo.entry import Entry, Published, register
from levelbench.networks.zoo.layers import ImageBuilder

__all__ = ["NAMES", "vit"]

NAMES = ("vit-b16", "vit-tiny")
PAPER = "Dosovitskiy et al. 2020: An image is worth 16x16 words, arXiv:2010.11929"
TINY_PAPER = (
    "Touvron, Cord, Douze, Massa, Sablayrolles, Jégou 2020: DeiT, data-efficient transformers, arXiv:2012.12877"
)


def vit(
    *,
    name: str = "vit-b16",
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    classes: int = 1000,
    size: int = 224,
    patch: int = 16,
    dropout_ratio: float = 0.0,
) -> Network:
    """(batch, 3, size, size) to logits (batch, classes), from the class token.

    Normalisation comes first, the matrices in between are four times as wide, GELU is exact. All weights are normal of
    0.02, as DeiT's, not cut off at two deviations; the head's too, which the paper sets to 0.
    """
    g = ImageBuilder(name)
    draw, count = normal(0.02), (size // patch) ** 2
    pixels = g.conv(g.image(3, size), width, patch, name="patches", stride=patch, draw=draw, bias=ZEROS)
    tokens = g.node("Transpose", g.node("Reshape", pixels, g.constant([0, 0, count])), perm=[0, 2, 1])
    token = g.parameter("class_token", (1, 1, width), draw)
    first = g.node("Expand", token, g.node("Concat", shape_of(g, tokens, 0, 1), g.constant([1, width]), axis=0))
    positions = g.parameter("positions", (1, count + 1, width), draw)
    x = g.node("Add", g.node("Concat", first, tokens, axis=1), positions)
    sizes = shape_of(g, x, 0, 2)
    x = dropout(g, rows(g, x, width), dropout_ratio)
    attention = Attention(width, heads, draw, dropout=dropout_ratio)
    for layer in range(layers):
        with g.scope(f"layer{layer}"):
            y = layer_norm(g, "norm1", x, width, 1e-6)
            with g.scope("attention"):
                y = attention.build(g, y, sizes, y, sizes, None)
            x = g.node("Add", x, dropout(g, y, dropout_ratio))
            y = linear(g, "mlp1", layer_norm(g, "norm2", x, width, 1e-6), width, 4 * width, draw)
            y = linear(g, "mlp2", g.node("Gelu", y), 4 * width, width, draw)
            x = g.node("Add", x, dropout(g, y, dropout_ratio))
    x = layer_norm(g, "norm", x, width, 1e-6)
    x = g.node("Gather", sequences(g, x, sizes, width), g.constant(0), axis=1)
    g.output(linear(g, "head", x, width, classes, draw), "logits")
    return g.build()


register(
    Entry(
        "vit-b16",
        vit,
        PAPER,
        Published(86_567_656, 17.564e9, "torchvision's documentation of vit_b_16; table 1 of the paper: 86 million"),
        "vision",
        "12 layers of 768, patches of 16 pixels",
    )
)
register(
    Entry(
        "vit-tiny",
        partial(vit, name="vit-tiny", width=192, heads=3),
        TINY_PAPER,
        Published(
            5_700_000,
            1.3e9,
            "Wang et al. 2021: Pyramid vision transformer, arXiv:2102.12122, table 2: 5.7 million and 1.3 G",
            "5,717,416: the table prints two digits. DeiT-Ti without distillation",
        ),
        "vision",
        "12 layers of 192, patches of 16 pixels: DeiT-Ti",
    )
)
