"""SSD300 (Liu et al. 2016) on VGG-16: boxes and scores of 8,732 default boxes from six images."""

from __future__ import annotations

from levelbench.networks.network import Network
from levelbench.networks.values import Draw
from levelbench.networks.zoo.entry import Entry, Published, register
from levelbench.networks.zoo.layers import ZEROS, ImageBuilder
from levelbench.networks.zoo.vgg import vgg_stage

__all__ = ["NAMES", "ssd300"]

NAMES = ("ssd300",)
PAPER = "Liu, Anguelov, Erhan, Szegedy, Reed, Fu, Berg 2016: SSD, single shot multibox detector, arXiv:1512.02325"
# Squeezed channels, channels, stride and padding of the four stages behind VGG's.
_EXTRAS = ((256, 512, 2, 1), (128, 256, 2, 1), (128, 256, 1, 0), (128, 256, 1, 0))
_BOXES = (4, 6, 6, 6, 4, 4)


def ssd300(*, classes: int = 91, size: int = 300) -> Network:
    """(batch, 3, size, size) to ``boxes`` (batch, n, 4), offsets, and ``scores`` (batch, n, classes), before softmax.

    n is 8,732 for 300 pixels. ``classes`` counts the background; COCO's labels reach 90. Weights behind VGG's are
    Xavier-uniform, as in torchvision. Matching, the loss and non-maximum suppression are not part of it.
    """
    g = ImageBuilder("ssd300")
    x = g.image(3, size)
    for stage, (channels, convolutions) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3)), start=1):
        if stage > 1:
            x = g.max_pool(x, 2, 2, ceil=stage == 4)
        x = vgg_stage(g, x, stage, channels, convolutions)
    images = [_scaled(g, x)]
    x = g.max_pool(vgg_stage(g, g.max_pool(x, 2, 2), 5, 512, 3), 3, 1, padding=1)
    x = _conv(g, x, 1024, 3, "conv6", padding=6, dilation=6)
    images.append(x := _conv(g, x, 1024, 1, "conv7"))
    for at, (squeezed, channels, stride, padding) in enumerate(_EXTRAS, start=8):
        x = _conv(g, x, squeezed, 1, f"conv{at}_1")
        images.append(x := _conv(g, x, channels, 3, f"conv{at}_2", stride=stride, padding=padding))
    for output, width in (("boxes", 4), ("scores", classes)):
        parts = [_predicted(g, each, f"{output}{at}", width, _BOXES[at]) for at, each in enumerate(images)]
        g.output(g.node("Concat", *parts, axis=1), output)
    return g.build()


def _conv(
    g: ImageBuilder,
    x: str,
    channels: int,
    kernel: int,
    name: str,
    *,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
) -> str:
    draw = _xavier(g.shape(x)[0], channels, kernel)
    return g.relu(
        g.conv(x, channels, kernel, name=name, stride=stride, padding=padding, dilation=dilation, draw=draw, bias=ZEROS)
    )


def _xavier(inputs: int, outputs: int, kernel: int) -> Draw:
    return Draw("uniform", (6.0 / ((inputs + outputs) * kernel * kernel)) ** 0.5)


def _scaled(g: ImageBuilder, x: str) -> str:
    """Each pixel's channels divided by their norm, times a learned scale that begins at 20 (section 3.1)."""
    shape = g.shape(x)
    with g.scope("norm4_3"):
        squares = g.node("ReduceSum", g.node("Mul", x, x), g.constant([1]), keepdims=1)
        norm = g.node("Sqrt", g.node("Add", squares, g.constant(1e-10)))
        scale = g.parameter("weight", (shape[0], 1, 1), Draw("constant", 20.0))
        return g.shaped(g.node("Mul", g.node("Div", x, norm), scale), shape)


def _predicted(g: ImageBuilder, x: str, name: str, width: int, boxes: int) -> str:
    """A 3x3 convolution to ``width`` numbers of each box, as (batch, pixels * boxes, width)."""
    channels, height, columns = g.shape(x)
    made = g.conv(x, boxes * width, 3, name=name, padding=1, draw=_xavier(channels, boxes * width, 3), bias=ZEROS)
    last = g.node("Transpose", made, perm=[0, 2, 3, 1])
    return str(g.node("Reshape", last, g.constant([0, height * columns * boxes, width])))


register(
    Entry(
        "ssd300",
        ssd300,
        PAPER,
        Published(35_641_826, 34.858e9, "torchvision's documentation of ssd300_vgg16"),
        "vision",
        "on VGG-16, for COCO",
    )
)
