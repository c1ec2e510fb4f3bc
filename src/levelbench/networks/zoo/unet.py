"""U-Net (Ronneberger et al. 2015): down, up, and across; convolutions without padding, as in the paper."""

from __future__ import annotations

from functools import partial

from levelbench.networks.network import Network
from levelbench.networks.zoo.entry import Entry, Published, register
from levelbench.networks.zoo.layers import ZEROS, ImageBuilder, he

__all__ = ["NAMES", "unet"]

NAMES = ("unet", "unet-tiny")
PAPER = "Ronneberger, Fischer, Brox 2015: U-Net, convolutional networks for biomedical segmentation, arXiv:1505.04597"


def unet(
    *,
    name: str = "unet",
    channels: int = 1,
    classes: int = 2,
    width: int = 64,
    levels: int = 5,
    size: int = 572,
    dropout: float = 0.5,
) -> Network:
    """(batch, channels, size, size) to logits (batch, classes, smaller, smaller): 388 for 572.

    ``width`` channels on the first of ``levels``, twice as many on each below. ``size`` must leave an even number of
    pixels before each pooling. Drawn as He et al. say (fan-in). Dropout ends the way down, with the usual half where
    the paper names no ratio.
    """
    g = ImageBuilder(name)
    x = g.image(channels, size)
    across = []
    for level in range(levels):
        x = _twice(g, x, width * 2**level, f"down{level}")
        if level < levels - 1:
            across.append(x)
            x = g.max_pool(x, 2, 2)
    x = g.dropout(x, dropout)
    for level in reversed(range(levels - 1)):
        made = width * 2**level
        # Without overlap each output pixel sees one pixel of all channels.
        x = g.up_conv(x, made, 2, name=f"up{level}.conv", draw=he(g.shape(x)[0]))
        x = _twice(g, g.concat(_cropped(g, across[level], g.shape(x)), x), made, f"up{level}")
    g.output(g.conv(x, classes, 1, name="classifier", draw=he(width), bias=ZEROS), "logits")
    return g.build()


def _twice(g: ImageBuilder, x: str, channels: int, name: str) -> str:
    for at in (1, 2):
        x = g.relu(g.conv(x, channels, 3, name=f"{name}.{at}", draw=he(9 * g.shape(x)[0]), bias=ZEROS))
    return x


def _cropped(g: ImageBuilder, x: str, like: tuple[int, ...]) -> str:
    """The middle of ``x``, as large as ``like``."""
    starts = [(mine - other) // 2 for mine, other in zip(g.shape(x)[1:], like[1:], strict=True)]
    return g.slice(x, starts, [at + size for at, size in zip(starts, like[1:], strict=True)], (2, 3), (1, 1))


register(
    Entry(
        "unet",
        unet,
        PAPER,
        Published(None, None, PAPER, "31,030,658 by the paper's figure 1; the paper gives no count"),
        "vision",
        "five levels from 64 channels, 572 pixels",
    )
)
register(
    Entry(
        "unet-tiny",
        partial(unet, name="unet-tiny", width=4, levels=3, size=44),
        PAPER,
        Published(None, None, PAPER, "ours, for tests: the paper has no network of this size"),
        "vision",
        "three levels from 4 channels, 44 pixels, for tests",
    )
)
