"""DenseNet-121 (Huang et al. 2016): every layer sees the images of all layers before it in its block."""

from __future__ import annotations

from levelbench.networks.network import Network
from levelbench.networks.zoo.entry import Entry, Published, register
from levelbench.networks.zoo.layers import ImageBuilder, he

__all__ = ["NAMES", "densenet"]

NAMES = ("densenet121",)
PAPER = "Huang, Liu, van der Maaten, Weinberger 2016: Densely connected convolutional networks, arXiv:1608.06993"


def densenet(
    *, blocks: tuple[int, ...] = (6, 12, 24, 16), growth: int = 32, classes: int = 1000, size: int = 224
) -> Network:
    """DenseNet-BC: (batch, 3, size, size) to logits (batch, classes); drawn as He et al. say (fan-in)."""
    g = ImageBuilder("densenet121" if blocks == (6, 12, 24, 16) and growth == 32 else "densenet")
    x = g.conv(g.image(3, size), 2 * growth, 7, name="conv0", stride=2, padding=3, draw=he(3 * 49))
    x = g.max_pool(g.relu(g.batch_norm(x, name="norm0")), 3, 2, padding=1)
    for block, layers in enumerate(blocks, start=1):
        for layer in range(1, layers + 1):
            with g.scope(f"block{block}"), g.scope(f"layer{layer}"):
                y = _convolved(g, x, 4 * growth, 1, "1")
                x = g.concat(x, _convolved(g, y, growth, 3, "2"))
        if block < len(blocks):
            with g.scope(f"transition{block}"):
                x = g.average_pool(_convolved(g, x, g.shape(x)[0] // 2, 1, ""), 2, 2)
    x = g.global_average_pool(g.relu(g.batch_norm(x, name="norm5")))
    g.output(g.linear(x, classes, name="classifier"), "logits")
    return g.build()


def _convolved(g: ImageBuilder, x: str, channels: int, kernel: int, at: str) -> str:
    """Normalisation, ReLU and convolution."""
    y, fan = g.relu(g.batch_norm(x, name=f"norm{at}")), g.shape(x)[0] * kernel * kernel
    return g.conv(y, channels, kernel, name=f"conv{at}", padding=kernel // 2, draw=he(fan))


register(
    Entry(
        "densenet121",
        densenet,
        PAPER,
        Published(7_978_856, 2.834e9, "torchvision's documentation of densenet121"),
        "vision",
        "121 layers in four dense blocks, growth 32",
    )
)
