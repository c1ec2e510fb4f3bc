"""Networks defined by their sizes, for the tasks: small ones, and ones designed for time to accuracy.

For time to accuracy, multiply-adds times epochs matter. Pooling comes before normalisation and ReLU, which then see a
quarter of the pixels, and logits are scaled down, so that the first steps can be large.
"""

from __future__ import annotations

from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DefinitionError
from levelbench.networks.builder import Builder
from levelbench.networks.network import Network
from levelbench.networks.values import Draw
from levelbench.networks.zoo.blocks import ImageBuilder, he, survivals, torch_default


def mlp(inputs: int, hidden: int, classes: int) -> Network:
    """One hidden layer with ReLU: ``inputs`` to ``hidden`` to ``classes``."""
    return Builder("mlp", (inputs,)).gemm(hidden).relu().gemm(classes, gain=1.0).build()


def cnn(input_shape: tuple[int, int, int], channels: int, hidden: int, classes: int) -> Network:
    """Two 3x3 convolutions (``channels``, then twice as many) with ReLU and 2x2 max pooling, and two linear layers.

    With ``channels=32, hidden=128`` on 28x28 this is the usual small convolutional network of MNIST tutorials.
    """
    return (
        Builder("cnn", input_shape)
        .conv(channels, 3, padding=1)
        .relu()
        .max_pool(2)
        .conv(2 * channels, 3, padding=1)
        .relu()
        .max_pool(2)
        .flatten()
        .gemm(hidden)
        .relu()
        .gemm(classes, gain=1.0)
        .build()
    )


def resnet9(
    *,
    classes: int = 10,
    size: int = 32,
    channels: int = 3,
    width: int = 64,
    scale: float = 0.125,
    survival: float = 1.0,
) -> Network:
    """(batch, channels, size, size) to logits (batch, classes); 6,573,120 parameters at its defaults.

    D. Page 2018, "How to train your ResNet", which won DAWNBench's CIFAR-10: a convolution of ``width``, three that
    double it and halve the image, and a residual block of two after the first and the third of these. ``survival`` is
    the probability of the second block under stochastic depth, of which the first has the mean with 1.
    """
    chances = iter(survivals(2, survival))
    g = ImageBuilder("resnet9")
    x = _normalised(g, g.image(channels, size), width, "prep")
    for at in (1, 2, 3):
        with g.scope(f"layer{at}"):
            x = g.max_pool(_normalised(g, x, width * 2**at, "conv"), 2, 2)
            if at != 2:
                with g.scope("residual"):
                    y = _normalised(g, _normalised(g, x, width * 2**at, "res1"), width * 2**at, "res2")
                x = g.add(x, g.survive(y, next(chances)))
    return _classified(g, g.max_pool(x, size // 8, size // 8), classes, scale)


def _normalised(g: ImageBuilder, x: str, channels: int, name: str, draw: Draw | None = None) -> str:
    with g.scope(name):
        return g.relu(g.batch_norm(g.conv(x, channels, 3, name="conv", padding=1, draw=draw), name="norm"))


def quick(
    *,
    classes: int = 10,
    size: int = 28,
    channels: int = 1,
    widths: tuple[int, ...] = (8, 24, 48),
    residuals: tuple[int, ...] = (),
    cosines: bool = False,
    gain: float = 1.0,
    scale: float = 0.25,
    survival: float = 1.0,
) -> Network:
    """(batch, channels, size, size) to logits (batch, classes); 16,648 parameters at its defaults.

    A 3x3 convolution to each of ``widths``, each followed by max pooling that halves the image, and a linear layer.
    ``residuals`` is the number of 3x3 convolutions in the residual branch added at each width; 0 is none. With
    ``cosines``, the first convolution has the fixed kernels of ``cosine_kernels`` (for images of one channel): then the
    following layers get edges to learn from at the first step, and no gradient goes back through the largest images.
    Kernels are drawn ``gain`` times as large as by ``he``: normalisation cancels the factor, and the smaller a kernel,
    the further a step turns it. ``survival`` is the probability of the last residual branch under stochastic depth
    (``ImageBuilder.survive``), to which the others fall linearly from 1.
    """
    if residuals and len(residuals) != len(widths):
        found = f"{len(residuals)} residuals for {len(widths)} widths"
        raise DefinitionError("network 'quick'", found, "give one for each width")
    if not gain > 0:
        raise DefinitionError("network 'quick'", f"kernels of gain {gain} learn nothing", "give a gain above 0")
    chances = iter(survivals(sum(map(bool, residuals)), survival))
    g = ImageBuilder("quick")
    x = g.image(channels, size)
    for at, (width, depth) in enumerate(zip_longest(widths, residuals, fillvalue=0)):
        with g.scope(f"layer{at}"):
            kernels = cosine_kernels(width) if cosines and not at else None
            draw = Draw("normal", gain * he(9 * width).scale)
            x = g.max_pool(g.conv(x, width, 3, name="conv", padding=1, draw=draw, fixed=kernels), 2, 2)
            x = g.relu(g.batch_norm(x, name="norm"))
            if depth:
                x = g.add(x, g.survive(_branch(g, x, width, depth, draw), next(chances)))
    return _classified(g, x, classes, scale)


def cosine_kernels(count: int, size: int = 3) -> NDArray[np.float32]:
    """(count, 1, size, size): the lowest frequencies of the two-dimensional cosine transform, each with both signs.

    DCT-II (Ahmed, Natarajan and Rao 1974, equation 1), which is close to the principal components of small patches of
    images; each has Euclidean length 1. With both signs, max pooling gives the maximum and the minimum of a window.
    """
    if count % 2 or not 0 < count <= 2 * size * size:
        raise DefinitionError(
            f"{count} kernels of {size}x{size}",
            f"there are {size * size} cosines, each with two signs",
            f"use an even number of at most {2 * size * size}, or learned kernels (cosines=False)",
        )
    places = np.arange(size) + 0.5
    waves = np.cos(np.pi * np.outer(np.arange(size), places) / size)
    waves /= np.linalg.norm(waves, axis=1, keepdims=True)
    order = sorted(np.ndindex(size, size), key=lambda each: (each[0] ** 2 + each[1] ** 2, each))
    chosen = np.stack([np.outer(waves[u], waves[v]) for u, v in order[: count // 2]])
    return np.concatenate([chosen, -chosen])[:, None].astype(np.float32)


def _branch(g: ImageBuilder, x: str, channels: int, depth: int, draw: Draw) -> str:
    for at in range(depth):
        x = _normalised(g, x, channels, f"residual{at}", draw)
    return x


def _classified(g: ImageBuilder, x: str, classes: int, scale: float) -> Network:
    """A linear layer without bias on the whole image, and logits times ``scale``."""
    x = g.flatten(x)
    (features,) = g.shape(x)
    with g.scope("classifier"):
        weight = g.parameter("weight", (classes, features), torch_default(features))
        logits = g.node("Gemm", x, weight, transB=1)
    g.output(g.node("Mul", logits, g.constant(scale)), "logits")
    return g.build()
