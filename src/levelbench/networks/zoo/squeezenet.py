"""SqueezeNet 1.0 (Iandola et al. 2016): fire modules, and no large matrix."""

from __future__ import annotations

import math

from levelbench.networks.network import Network
from levelbench.networks.values import Draw
from levelbench.networks.zoo.entry import Entry, Published, register
from levelbench.networks.zoo.layers import ZEROS, ImageBuilder

__all__ = ["NAMES", "squeezenet"]

NAMES = ("squeezenet",)
PAPER = "Iandola, Han, Moskewicz, Ashraf, Dally, Keutzer 2016: SqueezeNet, arXiv:1602.07360"
# Channels squeezed to and of each of the two expansions, by table 1; 0: max pooling.
_FIRES = ((16, 64), (16, 64), (32, 128), (0, 0), (32, 128), (48, 192), (48, 192), (64, 256), (0, 0), (64, 256))


def squeezenet(*, classes: int = 1000, size: int = 224, dropout: float = 0.5) -> Network:
    """(batch, 3, size, size) to logits (batch, classes).

    Drawn as in torchvision: He et al.'s uniform, and normal of 0.01 for the last convolution.
    """
    g = ImageBuilder("squeezenet")
    x = g.max_pool(_conv(g, g.image(3, size), 96, 7, "conv1", stride=2), 3, 2, ceil=True)
    at = 1
    for squeezed, expanded in _FIRES:
        if not squeezed:
            x = g.max_pool(x, 3, 2, ceil=True)
            continue
        at += 1
        with g.scope(f"fire{at}"):
            x = _conv(g, x, squeezed, 1, "squeeze")
            x = g.concat(_conv(g, x, expanded, 1, "expand1x1"), _conv(g, x, expanded, 3, "expand3x3", padding=1))
    x = g.dropout(x, dropout)
    x = g.relu(g.conv(x, classes, 1, name="conv10", draw=Draw("normal", 0.01), bias=ZEROS))
    g.output(g.global_average_pool(x), "logits")
    return g.build()


def _conv(g: ImageBuilder, x: str, channels: int, kernel: int, name: str, *, stride: int = 1, padding: int = 0) -> str:
    draw = Draw("uniform", math.sqrt(6.0 / (g.shape(x)[0] * kernel * kernel)))
    return g.relu(g.conv(x, channels, kernel, name=name, stride=stride, padding=padding, draw=draw, bias=ZEROS))


register(
    Entry(
        "squeezenet",
        squeezenet,
        PAPER,
        Published(
            1_248_424,
            0.819e9,
            "table 1 of the paper and torchvision's documentation of squeezenet1_0: 1,248,424; torchvision: 0.82 G",
        ),
        "vision",
        "version 1.0",
    )
)
