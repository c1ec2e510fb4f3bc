"""The networks of the Wasserstein GAN (Arjovsky et al. 2017) on images of 64 x 64: DCGAN's generator and its critic."""

from __future__ import annotations

from itertools import pairwise

from levelbench.networks.builder import GraphBuilder
from levelbench.networks.network import Draw, Network
from levelbench.networks.zoo.blocks import batch_norm, conv, normal
from levelbench.networks.zoo.entry import Entry, Published, register

__all__ = ["NAMES", "critic", "generator"]

NAMES = ("wgan-generator", "wgan-critic")
PAPER = "Arjovsky, Chintala, Bottou 2017: Wasserstein GAN, arXiv:1701.07875"
_DRAW = normal(0.02)
_SCALE = Draw("normal", 0.02, 1.0)
_SOURCE = (
    "torchsummary of DCGAN's networks in PyTorch's examples (Radford et al. 2016, arXiv:1511.06434); none in the paper"
)


def generator(*, name: str = "wgan-generator", latent: int = 100, features: int = 64, channels: int = 3) -> Network:
    """``noise`` (batch, latent, 1, 1), standard normal, to ``image`` (batch, channels, 64, 64) in (-1, 1)."""
    g = GraphBuilder(name)
    x = g.input("noise", ("batch", latent, 1, 1))
    widths = [latent, 8 * features, 4 * features, 2 * features, features, channels]
    for at, (before, after) in enumerate(pairwise(widths)):
        with g.scope(f"layer{at}"):
            weight = g.parameter("weight", (before, after, 4, 4), _DRAW)
            stride, padding = (1, 0) if at == 0 else (2, 1)
            x = g.node("ConvTranspose", x, weight, kernel_shape=[4, 4], strides=[stride] * 2, pads=[padding] * 4)
            if at < len(widths) - 2:
                x = g.node("Relu", batch_norm(g, "norm", x, after, _SCALE))
    g.output(g.node("Tanh", x), "image")
    return g.build()


def critic(*, name: str = "wgan-critic", features: int = 64, channels: int = 3) -> Network:
    """``image`` (batch, channels, 64, 64) to ``score`` (batch, 1, 1, 1), which is no probability: nothing bounds it."""
    g = GraphBuilder(name)
    x = g.input("image", ("batch", channels, 64, 64))
    widths = [channels, features, 2 * features, 4 * features, 8 * features]
    for at, size in enumerate(pairwise(widths)):
        x = conv(g, f"layer{at}", x, size, (4, 4), _DRAW, strides=(2, 2), padding=1, bias=None)
        if at:
            with g.scope(f"layer{at}"):
                x = batch_norm(g, "norm", x, size[1], _SCALE)
        x = g.node("LeakyRelu", x, alpha=0.2)
    g.output(conv(g, "score", x, (widths[-1], 1), (4, 4), _DRAW, bias=None), "score")
    return g.build()


register(
    Entry(
        "wgan-generator",
        generator,
        PAPER,
        Published(3_576_704, None, _SOURCE),
        "generative",
        "five transposed convolutions from noise to 64 x 64",
    )
)
register(
    Entry(
        "wgan-critic",
        critic,
        PAPER,
        Published(2_765_568, None, _SOURCE),
        "generative",
        "five convolutions from 64 x 64 to a score",
    )
)
