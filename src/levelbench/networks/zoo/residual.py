"""Residual networks: for ImageNet in version 1, version 1.5 and with pre-activation, and for CIFAR, wide ones too.

``resnet50`` is version 1.5, which is what is measured under that name: its bottleneck shrinks the image in its 3x3
convolution; the paper's shrinks it in the first 1x1 (``resnet50-v1``), cheaper and less accurate.
"""

from __future__ import annotations

from typing import Literal

from levelbench.errors import DefinitionError
from levelbench.networks.network import Network
from levelbench.networks.zoo.blocks import ImageBuilder, torch_default

_DEPTHS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
Version = Literal["1", "1.5"]


def resnet(depth: int, version: Version = "1.5", *, classes: int = 1000, size: int = 224, width: int = 64) -> Network:
    """``depth`` 18, 34, 50, 101 or 152, ``width`` channels first; (batch, 3, size, size) to logits (batch, classes).

    The versions differ from depth 50 on. Drawn as in torchvision, convolutions normal with variance 2 / fan-out, scales
    of normalisations 1.
    """
    g = ImageBuilder(f"resnet{depth}" if version == "1.5" or depth < 50 else f"resnet{depth}-v1")
    x = g.relu(g.batch_norm(g.conv(g.image(3, size), width, 7, name="conv1", stride=2, padding=3), name="bn1"))
    x = resnet_stages(g, g.max_pool(x, 3, 2, padding=1), depth, version)
    g.output(g.linear(g.global_average_pool(x), classes, name="fc", bias=torch_default(g.shape(x)[0])), "logits")
    return g.build()


def resnet_stages(g: ImageBuilder, x: str, depth: int, version: Version = "1.5") -> str:
    """The four stages; all but the first halve the image, and double the channels inside a block."""
    width = g.shape(x)[0]
    for stage, blocks in enumerate(_DEPTHS[depth]):
        for at in range(blocks):
            with g.scope(f"layer{stage + 1}"), g.scope(str(at)):
                stride = 2 if stage and not at else 1
                x = _block(g, x, width * 2**stage, stride, depth >= 50, version)
    return x


def _block(g: ImageBuilder, x: str, channels: int, stride: int, bottleneck: bool, version: Version) -> str:
    made = 4 * channels if bottleneck else channels
    shortcut = x
    if stride > 1 or g.shape(x)[0] != made:
        with g.scope("downsample"):
            shortcut = g.batch_norm(g.conv(x, made, 1, name="0", stride=stride), name="1")
    if bottleneck:
        first, second = (stride, 1) if version == "1" else (1, stride)
        y = g.relu(g.batch_norm(g.conv(x, channels, 1, name="conv1", stride=first), name="bn1"))
        y = g.relu(g.batch_norm(g.conv(y, channels, 3, name="conv2", stride=second, padding=1), name="bn2"))
        y = g.batch_norm(g.conv(y, made, 1, name="conv3"), name="bn3")
    else:
        y = g.relu(g.batch_norm(g.conv(x, channels, 3, name="conv1", stride=stride, padding=1), name="bn1"))
        y = g.batch_norm(g.conv(y, made, 3, name="conv2", padding=1), name="bn2")
    return g.relu(g.add(y, shortcut))


def preactivation(depth: int, *, classes: int = 1000, size: int = 224, width: int = 64) -> Network:
    """The same with normalisation and ReLU before each convolution: ``depth`` and ``width`` as in :func:`resnet`.

    As the paper's appendix says: the first block's activation is that of the first convolution, before the paths part,
    and one more follows the last addition. Where the shape changes, the shortcut sees the activated image. A bottleneck
    shrinks the image in its 3x3 convolution.
    """
    g = ImageBuilder(f"preresnet{depth}")
    x = g.conv(g.image(3, size), width, 7, name="conv1", stride=2, padding=3)
    x = g.max_pool(g.relu(g.batch_norm(x, name="bn1")), 3, 2, padding=1)
    for stage, blocks in enumerate(_DEPTHS[depth]):
        for at in range(blocks):
            with g.scope(f"layer{stage + 1}"), g.scope(str(at)):
                stride = 2 if stage and not at else 1
                x = _preactivated(g, x, width * 2**stage, stride, depth >= 50, activated=not stage and not at)
    x = g.relu(g.batch_norm(x, name="norm"))
    g.output(g.linear(g.global_average_pool(x), classes, name="fc", bias=torch_default(g.shape(x)[0])), "logits")
    return g.build()


def _preactivated(g: ImageBuilder, x: str, channels: int, stride: int, bottleneck: bool, *, activated: bool) -> str:
    made = 4 * channels if bottleneck else channels
    y = x if activated else g.relu(g.batch_norm(x, name="bn1"))
    changes = stride > 1 or g.shape(x)[0] != made
    shortcut = g.conv(y, made, 1, name="shortcut", stride=stride) if changes else x
    if bottleneck:
        y = g.relu(g.batch_norm(g.conv(y, channels, 1, name="conv1"), name="bn2"))
        y = g.conv(y, channels, 3, name="conv2", stride=stride, padding=1)
        y = g.conv(g.relu(g.batch_norm(y, name="bn3")), made, 1, name="conv3")
    else:
        y = g.relu(g.batch_norm(g.conv(y, channels, 3, name="conv1", stride=stride, padding=1), name="bn2"))
        y = g.conv(y, made, 3, name="conv2", padding=1)
    return g.add(y, shortcut)


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
