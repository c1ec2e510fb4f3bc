"""Convolutional classifiers, from LeNet-5 to residual networks.

LeNet-5 exists as in the paper, with its sparse third layer, and as usually built; AlexNet as in the paper of 2012 (two
groups), and as the single tower of 2014 as in torchvision; Inception without batch normalisation. ``resnet50`` is
version 1.5, which is commonly measured under that name: its bottleneck shrinks the image in its 3x3 convolution. The
paper's shrinks it in the first 1x1 convolution (``resnet50-v1``), which is cheaper and less accurate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

from levelbench.errors import DefinitionError
from levelbench.networks.network import Network
from levelbench.networks.values import Draw
from levelbench.networks.zoo.blocks import ONES, ZEROS, ImageBuilder, he, survivals, torch_default, xavier_fan_in


def lenet5(*, classes: int = 10) -> Network:
    """The paper's network: (batch, 1, 32, 32) to logits (batch, classes).

    Subsampling has a coefficient and a bias per map, the third layer connects only the maps of table I, and units are
    1.7159 tanh(2/3 x) (appendix A). Weights are drawn uniformly in ±2.4 / fan-in. The paper's output, a distance to a
    fixed picture of each class, is a linear layer here.
    """
    g = ImageBuilder("lenet5")
    x = g.image(1, 32)
    x = _squash(g, g.conv(x, 6, 5, name="c1", draw=_draw(25), bias=_draw(25)))
    x = _squash(g, _subsample(g, x, "s2"))
    x = _squash(g, _third(g, x))
    x = _squash(g, _subsample(g, x, "s4"))
    x = g.flatten(_squash(g, g.conv(x, 120, 5, name="c5", draw=_draw(400), bias=_draw(400))))
    x = _squash(g, g.linear(x, 84, name="f6", draw=_draw(120), bias=_draw(120)))
    g.output(g.linear(x, classes, name="output", draw=_draw(84), bias=_draw(84)), "logits")
    return g.build()


def dense_lenet5(*, classes: int = 10) -> Network:
    """All maps connected, plain averages, tanh: (batch, 1, 32, 32) to logits (batch, classes)."""
    g = ImageBuilder("lenet5-dense")
    x = g.image(1, 32)
    for at, (channels, fan) in enumerate(((6, 25), (16, 150)), start=1):
        x = _tanh(g, g.conv(x, channels, 5, name=f"conv{at}", draw=torch_default(fan), bias=torch_default(fan)))
        x = g.average_pool(x, 2, 2)
    x = g.flatten(x)
    for at, width in enumerate((120, 84), start=1):
        x = _tanh(g, g.linear(x, width, name=f"fc{at}", bias=torch_default(g.shape(x)[0])))
    g.output(g.linear(x, classes, name="fc3", bias=torch_default(84)), "logits")
    return g.build()


def _draw(fan: int) -> Draw:
    return Draw("uniform", 2.4 / fan)


def _tanh(g: ImageBuilder, x: str) -> str:
    return g.shaped(g.node("Tanh", x), g.shape(x))


def _squash(g: ImageBuilder, x: str) -> str:
    inner = _tanh(g, g.shaped(g.node("Mul", x, g.constant(2.0 / 3.0)), g.shape(x)))
    return g.shaped(g.node("Mul", inner, g.constant(1.7159)), g.shape(x))


def _subsample(g: ImageBuilder, x: str, name: str) -> str:
    """A coefficient times the sum of each 2x2 window, plus a bias; the sum is computed as four times the mean."""
    pooled = g.average_pool(x, 2, 2)
    shape = g.shape(pooled)
    with g.scope(name):
        weight = g.parameter("weight", (shape[0], 1, 1), Draw("uniform", 2.4 / 4))
        bias = g.parameter("bias", (shape[0], 1, 1), Draw("uniform", 2.4 / 4))
        total = g.node("Mul", pooled, g.constant(4.0))
        return g.shaped(g.node("Add", g.node("Mul", total, weight), bias), shape)


def _third(g: ImageBuilder, x: str) -> str:
    """Layer C3 by table I: six maps of three neighbours, six of four, three of four non-neighbours, one of all."""
    triples = [(at + step) % 6 for at in range(6) for step in range(3)]
    quadruples = [(at + step) % 6 for at in range(6) for step in range(4)]
    apart = [(at + step) % 6 for at in range(3) for step in (0, 1, 3, 4)]
    parts = []
    with g.scope("c3"):
        for at, (chosen, groups) in enumerate(((triples, 6), (quadruples, 6), (apart, 3), (None, 1))):
            image = x
            if chosen is not None:
                image = g.shaped(g.node("Gather", x, g.constant(chosen), axis=1), (len(chosen), *g.shape(x)[1:]))
            fan = 25 * g.shape(image)[0] // groups
            parts.append(g.conv(image, groups, 5, name=str(at), groups=groups, draw=_draw(fan), bias=_draw(fan)))
    return g.concat(*parts)


def alexnet(*, classes: int = 1000, size: int = 227, width: int = 4096, dropout: float = 0.5) -> Network:
    """(batch, 3, size, size) to logits (batch, classes); ``width`` is that of the two hidden layers.

    The groups of convolutions 2, 4 and 5 see half of the channels each (the paper's two GPUs). The normalisation's
    alpha of 1e-4 in the paper is for a sum, so it is 5e-4 for ONNX's mean of five. Weights are normal with 0.01; biases
    are 1 where the paper says so. The paper says 224 pixels, into which its 55 windows do not fit.
    """
    g = ImageBuilder("alexnet")
    x, draw = g.image(3, size), Draw("normal", 0.01)
    x = g.relu(g.conv(x, 96, 11, name="conv1", stride=4, draw=draw, bias=ZEROS))
    x = g.max_pool(g.local_response_norm(x, alpha=5e-4, beta=0.75, bias=2.0), 3, 2)
    x = g.relu(g.conv(x, 256, 5, name="conv2", padding=2, groups=2, draw=draw, bias=ONES))
    x = g.max_pool(g.local_response_norm(x, alpha=5e-4, beta=0.75, bias=2.0), 3, 2)
    x = g.relu(g.conv(x, 384, 3, name="conv3", padding=1, draw=draw, bias=ZEROS))
    x = g.relu(g.conv(x, 384, 3, name="conv4", padding=1, groups=2, draw=draw, bias=ONES))
    x = g.relu(g.conv(x, 256, 3, name="conv5", padding=1, groups=2, draw=draw, bias=ONES))
    x = g.flatten(g.max_pool(x, 3, 2))
    x = g.dropout(g.relu(g.linear(x, width, name="fc6", draw=draw, bias=ONES)), dropout)
    x = g.dropout(g.relu(g.linear(x, width, name="fc7", draw=draw, bias=ONES)), dropout)
    g.output(g.linear(x, classes, name="fc8", draw=draw), "logits")
    return g.build()


def one_tower(*, classes: int = 1000, size: int = 224, width: int = 4096, dropout: float = 0.5) -> Network:
    """(batch, 3, size, size) to logits (batch, classes), without groups and normalisation; PyTorch's default draws."""
    g = ImageBuilder("alexnet-owt")
    x = g.image(3, size)
    layers = ((64, 11, 4, 2, True), (192, 5, 1, 2, True), (384, 3, 1, 1, False), (256, 3, 1, 1, False))
    for at, (channels, kernel, stride, padding, pools) in enumerate((*layers, (256, 3, 1, 1, True)), start=1):
        draw = torch_default(g.shape(x)[0] * kernel * kernel)
        x = g.conv(x, channels, kernel, name=f"conv{at}", stride=stride, padding=padding, draw=draw, bias=draw)
        x = g.max_pool(g.relu(x), 3, 2) if pools else g.relu(x)
    x = g.flatten(x)
    for at in (1, 2):
        x = g.dropout(x, dropout)
        x = g.relu(g.linear(x, width, name=f"fc{at}", bias=torch_default(g.shape(x)[0])))
    g.output(g.linear(x, classes, name="fc3", bias=torch_default(width)), "logits")
    return g.build()


_CHANNELS = (64, 128, 256, 512, 512)
_DEPTHS = {16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


def vgg(depth: int, *, classes: int = 1000, size: int = 224, width: int = 4096, dropout: float = 0.5) -> Network:
    """``depth`` 16 or 19, ``width`` of the two hidden layers; (batch, 3, size, size) to logits (batch, classes).

    Convolutions are drawn as in He et al. (fan-out), linear layers normal with 0.01, as in torchvision. The paper
    started from a shallower network that was trained before.
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


# Channels of the squeeze and of each of the two expansions, by table 1; 0: max pooling.
_FIRES = ((16, 64), (16, 64), (32, 128), (0, 0), (32, 128), (48, 192), (48, 192), (64, 256), (0, 0), (64, 256))


def squeezenet(*, classes: int = 1000, size: int = 224, dropout: float = 0.5) -> Network:
    """(batch, 3, size, size) to logits (batch, classes).

    Drawn as in torchvision: He et al.'s uniform, and normal with 0.01 for the last convolution.
    """
    g = ImageBuilder("squeezenet")
    x = g.max_pool(_fire_conv(g, g.image(3, size), 96, 7, "conv1", stride=2), 3, 2, ceil=True)
    at = 1
    for squeezed, expanded in _FIRES:
        if not squeezed:
            x = g.max_pool(x, 3, 2, ceil=True)
            continue
        at += 1
        with g.scope(f"fire{at}"):
            x = _fire_conv(g, x, squeezed, 1, "squeeze")
            x = g.concat(
                _fire_conv(g, x, expanded, 1, "expand1x1"),
                _fire_conv(g, x, expanded, 3, "expand3x3", padding=1),
            )
    x = g.dropout(x, dropout)
    x = g.relu(g.conv(x, classes, 1, name="conv10", draw=Draw("normal", 0.01), bias=ZEROS))
    g.output(g.global_average_pool(x), "logits")
    return g.build()


def _fire_conv(
    g: ImageBuilder, x: str, channels: int, kernel: int, name: str, *, stride: int = 1, padding: int = 0
) -> str:
    draw = Draw("uniform", math.sqrt(6.0 / (g.shape(x)[0] * kernel * kernel)))
    return g.relu(g.conv(x, channels, kernel, name=name, stride=stride, padding=padding, draw=draw, bias=ZEROS))


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
    """(batch, 3, size, size) to logits (batch, classes), without the two auxiliary classifiers for training.

    Normalisation and draws are those of Caffe's bvlc_googlenet, which reproduced the paper: Xavier, biases 0.2.
    """
    g = ImageBuilder("inceptionv1")
    x = g.max_pool(_inception_conv(g, g.image(3, size), 64, 7, "conv1", stride=2), 3, 2, ceil=True)
    x = _inception_conv(g, g.local_response_norm(x, alpha=1e-4, beta=0.75, bias=1.0), 64, 1, "conv2_reduce")
    x = g.local_response_norm(_inception_conv(g, x, 192, 3, "conv2"), alpha=1e-4, beta=0.75, bias=1.0)
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
        _inception_conv(g, x, one, 1, "1x1"),
        _inception_conv(g, _inception_conv(g, x, three_reduced, 1, "3x3_reduce"), three, 3, "3x3"),
        _inception_conv(g, _inception_conv(g, x, five_reduced, 1, "5x5_reduce"), five, 5, "5x5"),
        _inception_conv(g, g.max_pool(x, 3, 1, padding=1), projected, 1, "pool_proj"),
    )


def _inception_conv(g: ImageBuilder, x: str, channels: int, kernel: int, name: str, *, stride: int = 1) -> str:
    draw, bias = xavier_fan_in(g.shape(x)[0] * kernel * kernel), Draw("constant", 0.2)
    return g.relu(g.conv(x, channels, kernel, name=name, stride=stride, padding=kernel // 2, draw=draw, bias=bias))


# Table 2: expansion, channels, repetitions, stride of the first block.
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
    """Expand, convolve each channel, project; no non-linearity after the projection (table 1)."""
    y, inputs = x, g.shape(x)[0]
    if expansion > 1:
        y = _normed(g, g.conv(y, inputs * expansion, 1, name="expand"), "expand_norm")
    wide = g.shape(y)[0]
    y = _normed(g, g.conv(y, wide, 3, name="depthwise", stride=stride, padding=1, groups=wide), "depthwise_norm")
    y = g.batch_norm(g.conv(y, channels, 1, name="project"), name="project_norm")
    return g.add(x, y) if stride == 1 and inputs == channels else y


def _normed(g: ImageBuilder, x: str, name: str) -> str:
    return g.relu6(g.batch_norm(x, name=name))


def densenet(
    *, blocks: tuple[int, ...] = (6, 12, 24, 16), growth: int = 32, classes: int = 1000, size: int = 224
) -> Network:
    """DenseNet-BC: (batch, 3, size, size) to logits (batch, classes); drawn as in He et al. (fan-in)."""
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


_RESIDUAL_DEPTHS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
Version = Literal["1", "1.5"]


def resnet(depth: int, version: Version = "1.5", *, classes: int = 1000, size: int = 224, width: int = 64) -> Network:
    """(batch, 3, size, size) to logits (batch, classes); ``depth`` is 18, 34, 50, 101 or 152.

    ``width`` is the number of channels of the first convolution. The versions differ from depth 50 on. Drawn as in
    torchvision: convolutions normal with variance 2 / fan-out, scales of normalisations 1.
    """
    g = ImageBuilder(f"resnet{depth}" if version == "1.5" or depth < 50 else f"resnet{depth}-v1")
    x = g.relu(g.batch_norm(g.conv(g.image(3, size), width, 7, name="conv1", stride=2, padding=3), name="bn1"))
    x = resnet_stages(g, g.max_pool(x, 3, 2, padding=1), depth, version)
    g.output(g.linear(g.global_average_pool(x), classes, name="fc", bias=torch_default(g.shape(x)[0])), "logits")
    return g.build()


def resnet_stages(g: ImageBuilder, x: str, depth: int, version: Version = "1.5") -> str:
    """The four stages; all except the first halve the image and double the channels inside a block."""
    width = g.shape(x)[0]
    for stage, _, stride in _blocks(g, _RESIDUAL_DEPTHS[depth]):
        x = _block(g, x, width * 2**stage, stride, depth >= 50, version)
    return x


def _blocks(g: ImageBuilder, counts: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Stage, number and stride of each block, with its scope active; stages after the first begin with stride 2."""
    for stage, count in enumerate(counts):
        for at in range(count):
            with g.scope(f"layer{stage + 1}"), g.scope(str(at)):
                yield stage, at, 2 if stage and not at else 1


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
    """A ResNet with normalisation and ReLU before each convolution: ``depth`` and ``width`` as in :func:`resnet`.

    Following the paper's appendix, the first block uses the activation of the first convolution, before its paths
    split, and another activation follows the last addition. If the shape changes, the shortcut sees the activated
    image. A bottleneck shrinks the image in its 3x3 convolution.
    """
    g = ImageBuilder(f"preresnet{depth}")
    x = g.conv(g.image(3, size), width, 7, name="conv1", stride=2, padding=3)
    x = g.max_pool(g.relu(g.batch_norm(x, name="bn1")), 3, 2, padding=1)
    for stage, at, stride in _blocks(g, _RESIDUAL_DEPTHS[depth]):
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


def cifar_resnet(depth: int, *, classes: int = 10, size: int = 32, survival: float = 1.0) -> Network:
    """``depth`` 6n + 2; (batch, 3, size, size) to logits (batch, classes). 16, 32 and 64 channels.

    ``survival`` is the probability of the last residual branch under stochastic depth (``ImageBuilder.survive``), to
    which the others fall linearly from 1.

    Shortcuts have no parameters (option A): if channels double, they take every second pixel and pad new channels with
    zeros.
    """
    if depth % 6 != 2 or depth < 8:
        raise DefinitionError(f"a CIFAR ResNet of {depth} layers", "only 6n + 2 are possible", "use 20 or 56, say")
    g = ImageBuilder(f"resnet{depth}")
    x = g.relu(g.batch_norm(g.conv(g.image(3, size), 16, 3, name="conv1", padding=1), name="bn1"))
    count = (depth - 2) // 6
    chances = iter(survivals(3 * count, survival))
    for stage, _, stride in _blocks(g, [count] * 3):
        channels = 16 * 2**stage
        y = g.relu(g.batch_norm(g.conv(x, channels, 3, name="conv1", stride=stride, padding=1), name="bn1"))
        y = g.batch_norm(g.conv(y, channels, 3, name="conv2", padding=1), name="bn2")
        x = g.relu(g.add(g.survive(y, next(chances)), _halved(g, x) if stride > 1 else x))
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

    ``dropout`` is between the two convolutions of a block; the paper uses 0.3, if any.
    """
    if depth % 6 != 4 or depth < 10:
        raise DefinitionError(f"a wide ResNet of {depth} layers", "only 6n + 4 are possible", "use 16 or 28, say")
    g = ImageBuilder(f"wideresnet{depth}-{widening}")
    x = g.conv(g.image(3, size), 16, 3, name="conv1", padding=1)
    for stage, _, stride in _blocks(g, [(depth - 4) // 6] * 3):
        channels = 16 * widening * 2**stage
        y = g.relu(g.batch_norm(x, name="bn1"))
        shortcut = x if g.shape(x)[0] == channels else g.conv(y, channels, 1, name="shortcut", stride=stride)
        y = g.conv(y, channels, 3, name="conv1", stride=stride, padding=1)
        y = g.dropout(g.relu(g.batch_norm(y, name="bn2")), dropout)
        x = g.add(g.conv(y, channels, 3, name="conv2", padding=1), shortcut)
    x = g.relu(g.batch_norm(x, name="norm"))
    g.output(g.linear(g.global_average_pool(x), classes, name="fc", bias=torch_default(64 * widening)), "logits")
    return g.build()
