"""Residual networks for CIFAR: He et al.'s of 6n + 2 layers, and the wide one of Zagoruyko and Komodakis."""

from __future__ import annotations

from functools import partial

from levelbench.errors import DefinitionError
from levelbench.networks.network import Network
from levelbench.networks.zoo.entry import Entry, Published, register
from levelbench.networks.zoo.layers import ImageBuilder, torch_default
from levelbench.networks.zoo.resnet import PAPER

__all__ = ["NAMES", "cifar_resnet", "wide_resnet"]

NAMES = (*(f"resnet{depth}" for depth in (20, 32, 44, 56, 110)), "wideresnet28-10")
WIDE_PAPER = "Zagoruyko, Komodakis 2016: Wide residual networks, arXiv:1605.07146"


def cifar_resnet(depth: int, *, classes: int = 10, size: int = 32) -> Network:
    """``depth`` 6n + 2; (batch, 3, size, size) to logits (batch, classes). 16, 32 and 64 channels.

    Shortcuts have no parameters (option A): where channels double, every second pixel, and zeros for the new channels.
    """
    if depth % 6 != 2 or depth < 8:
        raise DefinitionError(f"a CIFAR ResNet of {depth} layers", "there are only those of 6n + 2", "as in 20 or 56")
    g = ImageBuilder(f"resnet{depth}")
    x = g.relu(g.batch_norm(g.conv(g.image(3, size), 16, 3, name="conv1", padding=1), name="bn1"))
    for stage, channels in enumerate((16, 32, 64)):
        for at in range((depth - 2) // 6):
            with g.scope(f"layer{stage + 1}"), g.scope(str(at)):
                stride = 2 if stage and not at else 1
                y = g.relu(g.batch_norm(g.conv(x, channels, 3, name="conv1", stride=stride, padding=1), name="bn1"))
                y = g.batch_norm(g.conv(y, channels, 3, name="conv2", padding=1), name="bn2")
                x = g.relu(g.add(y, _halved(g, x) if stride > 1 else x))
    g.output(g.linear(g.global_average_pool(x), classes, name="fc", bias=torch_default(64)), "logits")
    return g.build()


def _halved(g: ImageBuilder, x: str) -> str:
    channels, height, width = g.shape(x)
    x = g.slice(x, (0, 0), (height, width), (2, 3), (2, 2))
    padded = g.node("Pad", x, g.constant([0, 0, 0, 0, 0, channels, 0, 0]))
    return g.shaped(padded, (2 * channels, *g.shape(x)[1:]))


def wide_resnet(
    depth: int = 28, widening: int = 10, *, classes: int = 10, size: int = 32, dropout: float = 0.0
) -> Network:
    """``depth`` 6n + 4; (batch, 3, size, size) to logits (batch, classes). Normalisation and ReLU come first.

    ``dropout`` is that between the two convolutions of a block, 0.3 in the paper where it is used.
    """
    if depth % 6 != 4 or depth < 10:
        raise DefinitionError(f"a wide ResNet of {depth} layers", "there are only those of 6n + 4", "as in 16 or 28")
    g = ImageBuilder(f"wideresnet{depth}-{widening}")
    x = g.conv(g.image(3, size), 16, 3, name="conv1", padding=1)
    for stage, channels in enumerate((16 * widening, 32 * widening, 64 * widening)):
        for at in range((depth - 4) // 6):
            with g.scope(f"layer{stage + 1}"), g.scope(str(at)):
                stride = 2 if stage and not at else 1
                y = g.relu(g.batch_norm(x, name="bn1"))
                shortcut = x if g.shape(x)[0] == channels else g.conv(y, channels, 1, name="shortcut", stride=stride)
                y = g.conv(y, channels, 3, name="conv1", stride=stride, padding=1)
                y = g.dropout(g.relu(g.batch_norm(y, name="bn2")), dropout)
                x = g.add(g.conv(y, channels, 3, name="conv2", padding=1), shortcut)
    x = g.relu(g.batch_norm(x, name="norm"))
    g.output(g.linear(g.global_average_pool(x), classes, name="fc", bias=torch_default(64 * widening)), "logits")
    return g.build()


_PRINTED = {20: 270_000, 32: 460_000, 44: 660_000, 56: 850_000, 110: 1_700_000}
_COUNTS = {20: "269,722", 32: "464,154", 44: "658,586", 56: "853,018", 110: "1,727,962"}
for _depth, _count in _PRINTED.items():
    register(
        Entry(
            f"resnet{_depth}",
            partial(cifar_resnet, _depth),
            PAPER,
            Published(_count, None, "table 6 of the paper", f"{_COUNTS[_depth]}: the paper prints two digits"),
            "vision",
            f"{_depth} layers for CIFAR-10, shortcuts without parameters",
        )
    )
register(
    Entry(
        "wideresnet28-10",
        wide_resnet,
        WIDE_PAPER,
        Published(36_500_000, None, "table 4 of the paper: 36.5 million", "36,479,194: the paper prints three digits"),
        "vision",
        "28 layers, ten times as wide, for CIFAR-10",
    )
)
