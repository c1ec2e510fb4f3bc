"""Small networks that are defined by their sizes, as the tasks use them: no paper publishes a count for them."""

from __future__ import annotations

from levelbench.networks.layers import Builder
from levelbench.networks.network import Network

__all__ = ["cnn", "mlp"]


def mlp(inputs: int, hidden: int, classes: int) -> Network:
    """One hidden layer with ReLU: ``inputs`` to ``hidden`` to ``classes``."""
    return Builder("mlp", (inputs,)).gemm(hidden).relu().gemm(classes, gain=1.0).build()


def cnn(input_shape: tuple[int, int, int], channels: int, hidden: int, classes: int) -> Network:
    """Two 3x3 convolutions (``channels``, then twice as many), each with ReLU and 2x2 max pooling, and two layers.

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
