"""Inception v1, GoogLeNet (Szegedy et al. 2014), without batch normalisation, as in the paper."""

from __future__ import annotations

from levelbench.networks.network import Network
from levelbench.networks.values import Draw
from levelbench.networks.zoo.entry import Entry, Published, register
from levelbench.networks.zoo.layers import ImageBuilder, xavier_fan_in

__all__ = ["NAMES", "inception_v1"]

NAMES = ("inceptionv1",)
PAPER = "Szegedy et al. 2014: Going deeper with convolutions, arXiv:1409.4842"
# Table 1: 1x1, 3x3 reduced, 3x3, 5x5 reduced, 5x5, projection of the pool; an empty row is max pooling.
_MODULES: dict[str, tuple[int, ...]] = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "pool3": (),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "pool4": (),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}


def inception_v1(*, classes: int = 1000, size: int = 224, dropout: float = 0.4) -> Network:
    """(batch, 3, size, size) to logits (batch, classes), without the two classifiers that only training has.

    Normalisation and draws are those of Caffe's bvlc_googlenet, whose authors reproduced the paper: Xavier, biases 0.2.
    """
    g = ImageBuilder("inceptionv1")
    x = g.max_pool(_conv(g, g.image(3, size), 64, 7, "conv1", stride=2), 3, 2, ceil=True)
    x = _conv(g, g.local_response_norm(x, alpha=1e-4, beta=0.75, bias=1.0), 64, 1, "conv2_reduce")
    x = g.local_response_norm(_conv(g, x, 192, 3, "conv2"), alpha=1e-4, beta=0.75, bias=1.0)
    x = g.max_pool(x, 3, 2, ceil=True)
    for name, widths in _MODULES.items():
        with g.scope(name):
            x = _module(g, x, widths) if widths else g.max_pool(x, 3, 2, ceil=True)
    x = g.dropout(g.global_average_pool(x), dropout)
    g.output(g.linear(x, classes, name="classifier", draw=xavier_fan_in(g.shape(x)[0])), "logits")
    return g.build()


def _module(g: ImageBuilder, x: str, widths: tuple[int, ...]) -> str:
    one, three_reduced, three, five_reduced, five, projected = widths
    return g.concat(
        _conv(g, x, one, 1, "1x1"),
        _conv(g, _conv(g, x, three_reduced, 1, "3x3_reduce"), three, 3, "3x3"),
        _conv(g, _conv(g, x, five_reduced, 1, "5x5_reduce"), five, 5, "5x5"),
        _conv(g, g.max_pool(x, 3, 1, padding=1), projected, 1, "pool_proj"),
    )


def _conv(g: ImageBuilder, x: str, channels: int, kernel: int, name: str, *, stride: int = 1) -> str:
    draw, bias = xavier_fan_in(g.shape(x)[0] * kernel * kernel), Draw("constant", 0.2)
    return g.relu(g.conv(x, channels, kernel, name=name, stride=stride, padding=kernel // 2, draw=draw, bias=bias))


register(
    Entry(
        "inceptionv1",
        inception_v1,
        PAPER,
        Published(
            6_797_700,
            1.5e9,
            "table 1 of the paper, added up: 6,797.7 K and 1.5 G",
            "6,998,552, as Caffe's bvlc_googlenet: the table counts in 1024s (which makes 6.96 million), rounds, leaves"
            " biases out, and prints 2.7 K for the first convolution, which has 9,472. 1.583 G: the sum of its layers",
        ),
        "vision",
        "GoogLeNet without its two auxiliary classifiers",
    )
)
