"""AlexNet, twice: as the paper of 2012 has it (two groups), and the single tower of 2014 that torchvision has."""

from __future__ import annotations

from levelbench.networks.network import Network
from levelbench.networks.values import Draw
from levelbench.networks.zoo.entry import Entry, Published, register
from levelbench.networks.zoo.layers import ONES, ZEROS, ImageBuilder, torch_default

__all__ = ["NAMES", "alexnet", "one_tower"]

NAMES = ("alexnet", "alexnet-owt")
PAPER = "Krizhevsky, Sutskever, Hinton 2012: ImageNet classification with deep convolutional neural networks, NIPS"
OWT_PAPER = "Krizhevsky 2014: One weird trick for parallelizing convolutional neural networks, arXiv:1404.5997"


def alexnet(*, classes: int = 1000, size: int = 227, width: int = 4096, dropout: float = 0.5) -> Network:
    """(batch, 3, size, size) to logits (batch, classes); ``width`` is that of the two hidden matrices.

    Convolutions 2, 4 and 5 see half of the channels each (the paper's two GPUs). The normalisation's alpha is the
    paper's 1e-4 of a sum, so 5e-4 of ONNX's mean of five. Weights are normal of 0.01; biases 1 where the paper says.
    The paper says 224 pixels, of which its 55 windows do not fit.
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


register(
    Entry(
        "alexnet",
        alexnet,
        PAPER,
        Published(
            60_965_224,
            724e6,
            "60,965,224: Caffe's bvlc_alexnet; 724 M: Sze, Chen, Yang, Emer 2017 (arXiv:1703.09039), table II",
            "the paper says 60 million",
        ),
        "vision",
        "the paper's, with two groups and local response normalisation",
    )
)
register(
    Entry(
        "alexnet-owt",
        one_tower,
        OWT_PAPER,
        Published(61_100_840, 0.714e9, "torchvision's documentation of alexnet: 61,100,840 and 0.71 G"),
        "vision",
        "the single tower, as in torchvision",
    )
)
