"""Residual networks for ImageNet: version 1, version 1.5 and pre-activation, told apart by name.

The one idea: ``resnet50`` is what everybody measures under that name, version 1.5, whose bottleneck shrinks the image
in its 3x3 convolution; the paper's shrinks it in the first 1x1 (``resnet50-v1``), cheaper and less accurate.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

from levelbench.networks.network import Network
from levelbench.networks.zoo.entry import Entry, Published, register
from levelbench.networks.zoo.layers import ImageBuilder, torch_default

__all__ = ["NAMES", "preactivation", "resnet", "resnet_stages"]

NAMES = (
    *(f"resnet{depth}" for depth in (18, 34, 50, 101, 152)),
    *(f"resnet{depth}-v1" for depth in (50, 101, 152)),
    "preresnet18",
    "preresnet50",
)
PAPER = "He, Zhang, Ren, Sun 2015: Deep residual learning for image recognition, arXiv:1512.03385"
PREACTIVATION_PAPER = "He, Zhang, Ren, Sun 2016: Identity mappings in deep residual networks, arXiv:1603.05027"
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


_COUNTS = {18: 11_689_512, 34: 21_797_672, 50: 25_557_032, 101: 44_549_160, 152: 60_192_808}
_OPERATIONS = {18: 1.814e9, 34: 3.664e9, 50: 4.089e9, 101: 7.801e9, 152: 11.514e9}
for _depth in _DEPTHS:
    register(
        Entry(
            f"resnet{_depth}",
            partial(resnet, _depth),
            PAPER,
            Published(_COUNTS[_depth], _OPERATIONS[_depth], f"torchvision's documentation of resnet{_depth}"),
            "vision",
            f"{_depth} layers" + (", version 1.5: the 3x3 convolutions have the strides" if _depth >= 50 else ""),
        )
    )
for _depth, _printed, _note in (
    (50, 3.8e9, "3.858 G multiply-adds: the paper prints 3.8, which is cut off and not rounded"),
    (101, 7.6e9, ""),
    (152, 11.3e9, ""),
):
    register(
        Entry(
            f"resnet{_depth}-v1",
            partial(resnet, _depth, "1"),
            PAPER,
            Published(
                _COUNTS[_depth], _printed, f"torchvision's documentation of resnet{_depth}; table 1 of the paper", _note
            ),
            "vision",
            f"{_depth} layers as in the paper: the first 1x1 convolutions have the strides",
        )
    )
for _depth, _count, _ours in ((18, 11_687_848, "11,687,720"), (50, 25_549_480, "25,549,352")):
    register(
        Entry(
            f"preresnet{_depth}",
            partial(preactivation, _depth),
            PREACTIVATION_PAPER,
            Published(
                _count,
                None,
                f"pytorchcv's preresnet{_depth}: the paper has none of this depth",
                f"{_ours}, 128 fewer: pytorchcv normalises the first convolution's output twice, the paper once",
            ),
            "vision",
            f"{_depth} layers, normalisation and ReLU before each convolution",
        )
    )
