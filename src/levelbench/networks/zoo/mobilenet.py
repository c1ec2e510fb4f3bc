"""MobileNetV2 (Sandler et al. 2018): depthwise convolutions between narrow images."""

from __future__ import annotations

from levelbench.networks.network import Network
from levelbench.networks.values import Draw
from levelbench.networks.zoo.entry import Entry, Published, register
from levelbench.networks.zoo.layers import ImageBuilder

__all__ = ["NAMES", "inverted_residual", "mobilenetv2"]

NAMES = ("mobilenetv2",)
PAPER = "Sandler, Howard, Zhu, Zhmoginov, Chen 2018: MobileNetV2, inverted residuals, arXiv:1801.04381"
# Table 2: expansion, channels, repetitions, stride of the first.
_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def mobilenetv2(*, classes: int = 1000, size: int = 224, dropout: float = 0.2) -> Network:
    """Width 1: (batch, 3, size, size) to logits (batch, classes). Drawn as in torchvision."""
    g = ImageBuilder("mobilenetv2")
    x = _normed(g, g.conv(g.image(3, size), 32, 3, name="conv0", stride=2, padding=1), "norm0")
    at = 0
    for expansion, channels, repetitions, stride in _STAGES:
        for again in range(repetitions):
            at += 1
            with g.scope(f"block{at}"):
                x = inverted_residual(g, x, channels, expansion, 1 if again else stride)
    x = _normed(g, g.conv(x, 1280, 1, name="conv1"), "norm1")
    x = g.dropout(g.global_average_pool(x), dropout)
    g.output(g.linear(x, classes, name="classifier", draw=Draw("normal", 0.01)), "logits")
    return g.build()


def inverted_residual(g: ImageBuilder, x: str, channels: int, expansion: int, stride: int) -> str:
    """Expand, convolve each channel, project; nothing non-linear behind the projection (table 1)."""
    y, inputs = x, g.shape(x)[0]
    if expansion > 1:
        y = _normed(g, g.conv(y, inputs * expansion, 1, name="expand"), "expand_norm")
    wide = g.shape(y)[0]
    y = _normed(g, g.conv(y, wide, 3, name="depthwise", stride=stride, padding=1, groups=wide), "depthwise_norm")
    y = g.batch_norm(g.conv(y, channels, 1, name="project"), name="project_norm")
    return g.add(x, y) if stride == 1 and inputs == channels else y


def _normed(g: ImageBuilder, x: str, name: str) -> str:
    return g.relu6(g.batch_norm(x, name=name))


register(
    Entry(
        "mobilenetv2",
        mobilenetv2,
        PAPER,
        Published(
            3_504_872,
            0.301e9,
            "torchvision's documentation of mobilenet_v2; table 4 of the paper: 3.4 million and 300 M",
        ),
        "vision",
        "width 1, 224 pixels",
    )
)
