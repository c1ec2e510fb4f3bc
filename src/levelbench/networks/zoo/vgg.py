"""VGG (Simonyan and Zisserman 2014), configurations D and E: 3x3 convolutions and three large matrices."""

from __future__ import annotations

from functools import partial

from levelbench.networks.network import Network
from levelbench.networks.values import Draw
from levelbench.networks.zoo.entry import Entry, Published, register
from levelbench.networks.zoo.layers import ZEROS, ImageBuilder

__all__ = ["NAMES", "vgg", "vgg_stage"]

NAMES = ("vgg16", "vgg19")
PAPER = "Simonyan, Zisserman 2014: Very deep convolutional networks for large-scale image recognition, arXiv:1409.1556"
_CHANNELS = (64, 128, 256, 512, 512)
_DEPTHS = {16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


def vgg(depth: int, *, classes: int = 1000, size: int = 224, width: int = 4096, dropout: float = 0.5) -> Network:
    """``depth`` 16 or 19, ``width`` of the two hidden matrices; (batch, 3, size, size) to logits (batch, classes).

    Convolutions are drawn as He et al. say (fan-out), matrices normal of 0.01, as in torchvision: the paper began from
    a shallower network that was trained before.
    """
    g = ImageBuilder(f"vgg{depth}")
    x = g.image(3, size)
    for stage, (channels, convolutions) in enumerate(zip(_CHANNELS, _DEPTHS[depth], strict=True), start=1):
        x = g.max_pool(vgg_stage(g, x, stage, channels, convolutions), 2, 2)
    x = g.flatten(x)
    for at in (6, 7):
        x = g.relu(g.linear(x, width, name=f"fc{at}", draw=Draw("normal", 0.01)))
        x = g.dropout(x, dropout)
    g.output(g.linear(x, classes, name="fc8", draw=Draw("normal", 0.01)), "logits")
    return g.build()


def vgg_stage(g: ImageBuilder, x: str, stage: int, channels: int, convolutions: int) -> str:
    """3x3 convolutions of ``channels``, each with a ReLU."""
    for at in range(1, convolutions + 1):
        x = g.relu(g.conv(x, channels, 3, name=f"conv{stage}_{at}", padding=1, bias=ZEROS))
    return x


for _depth, _count, _operations in ((16, 138_357_544, 15.47e9), (19, 143_667_240, 19.632e9)):
    register(
        Entry(
            f"vgg{_depth}",
            partial(vgg, _depth),
            PAPER,
            Published(
                _count, _operations, f"torchvision's documentation of vgg{_depth}; the paper's table 2: millions"
            ),
            "vision",
            f"{_depth} layers with weights",
        )
    )
