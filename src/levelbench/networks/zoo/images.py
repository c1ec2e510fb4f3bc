"""Image networks other than convolutional classifiers: vision transformers, U-Net, SSD300, WGAN, autoencoders."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from levelbench.networks.builder import GraphBuilder
from levelbench.networks.detection import decoded, default_boxes
from levelbench.networks.network import Network
from levelbench.networks.values import Draw
from levelbench.networks.zoo.blocks import (
    ZEROS,
    Attention,
    ImageBuilder,
    batch_norm,
    conv,
    dropout,
    he,
    layer_norm,
    linear,
    normal,
    rows,
    sequences,
    shape_of,
    xavier,
)
from levelbench.networks.zoo.convolutional import vgg_stage


def vit(
    *,
    name: str = "vit-b16",
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    classes: int = 1000,
    size: int = 224,
    patch: int = 16,
    dropout_ratio: float = 0.0,
) -> Network:
    """(batch, 3, size, size) to logits (batch, classes), from the class token.

    Normalisation comes first, the hidden layers are four times as wide, GELU is exact. All weights are normal with
    0.02, as in DeiT, but not truncated at two deviations; also those of the head, which the paper sets to 0.
    """
    g = ImageBuilder(name)
    draw, count = normal(0.02), (size // patch) ** 2
    pixels = g.conv(g.image(3, size), width, patch, name="patches", stride=patch, draw=draw, bias=ZEROS)
    tokens = g.node("Transpose", g.node("Reshape", pixels, g.constant([0, 0, count])), perm=[0, 2, 1])
    token = g.parameter("class_token", (1, 1, width), draw)
    first = g.node("Expand", token, g.node("Concat", shape_of(g, tokens, 0, 1), g.constant([1, width]), axis=0))
    positions = g.parameter("positions", (1, count + 1, width), draw)
    x = g.node("Add", g.node("Concat", first, tokens, axis=1), positions)
    sizes = shape_of(g, x, 0, 2)
    x = dropout(g, rows(g, x, width), dropout_ratio)
    attention = Attention(width, heads, draw, dropout=dropout_ratio)
    for layer in range(layers):
        with g.scope(f"layer{layer}"):
            y = layer_norm(g, "norm1", x, width, 1e-6)
            with g.scope("attention"):
                y = attention.build(g, y, sizes, y, sizes, None)
            x = g.node("Add", x, dropout(g, y, dropout_ratio))
            y = linear(g, "mlp1", layer_norm(g, "norm2", x, width, 1e-6), width, 4 * width, draw)
            y = linear(g, "mlp2", g.node("Gelu", y), 4 * width, width, draw)
            x = g.node("Add", x, dropout(g, y, dropout_ratio))
    x = layer_norm(g, "norm", x, width, 1e-6)
    x = g.node("Gather", sequences(g, x, sizes, width), g.constant(0), axis=1)
    g.output(linear(g, "head", x, width, classes, draw), "logits")
    return g.build()


def unet(
    *,
    name: str = "unet",
    channels: int = 1,
    classes: int = 2,
    width: int = 64,
    levels: int = 5,
    size: int = 572,
    dropout: float = 0.5,
    padded: bool = False,
) -> Network:
    """(batch, channels, size, size) to logits (batch, classes, smaller, smaller): 388 for 572.

    ``width`` channels on the first of ``levels``, doubling with each level below. ``size`` must leave an even number of
    pixels before each pooling. Drawn as in He et al. (fan-in). Dropout comes at the end of the contracting path, with
    the usual ratio of 0.5, as the paper names none. ``padded`` convolutions are followed by batch normalisation and
    leave the size as it is, as in most later U-Nets.
    """
    g = ImageBuilder(name)
    x = g.image(channels, size)
    across = []
    for level in range(levels):
        x = _twice(g, x, width * 2**level, f"down{level}", padded)
        if level < levels - 1:
            across.append(x)
            x = g.max_pool(x, 2, 2)
    x = g.dropout(x, dropout) if dropout else x
    for level in reversed(range(levels - 1)):
        made = width * 2**level
        # Without overlap, each output pixel sees one pixel of all channels.
        x = g.up_conv(x, made, 2, name=f"up{level}.conv", draw=he(g.shape(x)[0]))
        beside = across[level] if padded else _cropped(g, across[level], g.shape(x))
        x = _twice(g, g.concat(beside, x), made, f"up{level}", padded)
    g.output(g.conv(x, classes, 1, name="classifier", draw=he(width), bias=ZEROS), "logits")
    return g.build()


def _twice(g: ImageBuilder, x: str, channels: int, name: str, padded: bool) -> str:
    for at in (1, 2):
        draw, bias = he(9 * g.shape(x)[0]), None if padded else ZEROS
        x = g.conv(x, channels, 3, name=f"{name}.{at}", padding=int(padded), draw=draw, bias=bias)
        x = g.relu(g.batch_norm(x, name=f"{name}.{at}.norm") if padded else x)
    return x


def _cropped(g: ImageBuilder, x: str, like: tuple[int, ...]) -> str:
    """The middle of ``x``, as large as ``like``."""
    starts = [(mine - other) // 2 for mine, other in zip(g.shape(x)[1:], like[1:], strict=True)]
    return g.slice(x, starts, [at + size for at, size in zip(starts, like[1:], strict=True)], (2, 3), (1, 1))


# Squeezed channels, channels, stride and padding of the four stages after VGG's.
_EXTRAS = ((256, 512, 2, 1), (128, 256, 2, 1), (128, 256, 1, 0), (128, 256, 1, 0))
_BOXES = (4, 6, 6, 6, 4, 4)


def ssd300(*, classes: int = 91, size: int = 300) -> Network:
    """(batch, 3, size, size) to ``boxes`` (batch, n, 4), offsets, and ``scores`` (batch, n, classes), before softmax.

    n is 8,732 for 300 pixels. ``classes`` includes the background; COCO's labels go up to 90. Weights after VGG's are
    Xavier-uniform, as in torchvision. Matching, the loss and non-maximum suppression are not included.
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


SMALL_SIDE = 64
SMALL_DEFAULTS = default_boxes(SMALL_SIDE, [(16, [(10, 14), (14, 8)]), (8, [(20, 28), (28, 15)])])
"""The default boxes of :func:`small_ssd`, (640, 4): an upright and a lying one at each cell."""


def small_ssd(*, classes: int = 11, width: int = 8, channels: int = 1) -> Network:
    """(batch, channels, 64, 64) to ``boxes`` (batch, 640, 4) in pixels and ``scores`` (batch, 640, classes).

    SSD for small objects on small images: convolutions with batch normalisation, and predictions from the maps of 16 by
    16 and 8 by 8. The value ``offsets`` is what the loss is of
    (:func:`levelbench.networks.detection.with_detection_loss`).
    """
    g = ImageBuilder("small-ssd")
    x, images = g.image(channels, SMALL_SIDE), []
    for stage, (factor, convolutions) in enumerate(((1, 1), (4, 2), (6, 2))):
        x = g.max_pool(x, 2, 2) if stage else x
        for at in range(convolutions):
            name, stride = f"stage{stage}.{at}", 1 if stage else 2
            x = g.conv(x, factor * width, 3, name=name, stride=stride, padding=1, draw=he(9 * g.shape(x)[0]))
            x = g.relu(g.batch_norm(x, name=f"{name}.norm"))
        images.append(x)
    found = {}
    for output, numbers in (("offsets", 4), ("scores", classes)):
        parts = [_predicted(g, each, f"{output}{at}", numbers, 2) for at, each in enumerate(images[1:])]
        found[output] = g.node("Concat", *parts, axis=1, name=output)
    g.output(decoded(g, found["offsets"], SMALL_DEFAULTS), "boxes")
    g.output(found["scores"], "scores")
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
    """Each pixel's channels divided by their norm, times a learned scale that starts at 20 (section 3.1)."""
    shape = g.shape(x)
    with g.scope("norm4_3"):
        squares = g.node("ReduceSum", g.node("Mul", x, x), g.constant([1]), keepdims=1)
        norm = g.node("Sqrt", g.node("Add", squares, g.constant(1e-10)))
        scale = g.parameter("weight", (shape[0], 1, 1), Draw("constant", 20.0))
        return g.shaped(g.node("Mul", g.node("Div", x, norm), scale), shape)


def _predicted(g: ImageBuilder, x: str, name: str, width: int, boxes: int) -> str:
    """A 3x3 convolution to ``width`` numbers per box, as (batch, pixels * boxes, width)."""
    channels, height, columns = g.shape(x)
    made = g.conv(x, boxes * width, 3, name=name, padding=1, draw=_xavier(channels, boxes * width, 3), bias=ZEROS)
    last = g.node("Transpose", made, perm=[0, 2, 3, 1])
    return str(g.node("Reshape", last, g.constant([0, height * columns * boxes, width])))


_DRAW = normal(0.02)
_SCALE = Draw("normal", 0.02, 1.0)


def generator(*, name: str = "wgan-generator", latent: int = 100, features: int = 64, channels: int = 3) -> Network:
    """``noise`` (batch, latent, 1, 1), standard normal, to ``image`` (batch, channels, 64, 64) in (-1, 1)."""
    g = GraphBuilder(name)
    x = g.input("noise", ("batch", latent, 1, 1))
    widths = [latent, 8 * features, 4 * features, 2 * features, features, channels]
    for at, (before, after) in enumerate(pairwise(widths)):
        with g.scope(f"layer{at}"):
            weight = g.parameter("weight", (before, after, 4, 4), _DRAW)
            stride, padding = (1, 0) if at == 0 else (2, 1)
            x = g.node("ConvTranspose", x, weight, kernel_shape=[4, 4], strides=[stride] * 2, pads=[padding] * 4)
            if at < len(widths) - 2:
                x = g.node("Relu", batch_norm(g, "norm", x, after, _SCALE))
    g.output(g.node("Tanh", x), "image")
    return g.build()


def critic(*, name: str = "wgan-critic", features: int = 64, channels: int = 3) -> Network:
    """``image`` (batch, channels, 64, 64) to ``score`` (batch, 1, 1, 1), which is unbounded and not a probability."""
    g = GraphBuilder(name)
    x = g.input("image", ("batch", channels, 64, 64))
    widths = [channels, features, 2 * features, 4 * features, 8 * features]
    for at, size in enumerate(pairwise(widths)):
        x = conv(g, f"layer{at}", x, size, (4, 4), _DRAW, strides=(2, 2), padding=1, bias=None)
        if at:
            with g.scope(f"layer{at}"):
                x = batch_norm(g, "norm", x, size[1], _SCALE)
        x = g.node("LeakyRelu", x, alpha=0.2)
    g.output(conv(g, "score", x, (widths[-1], 1), (4, 4), _DRAW, bias=None), "score")
    return g.build()


def autoencoder(*, name: str = "autoencoder", widths: Sequence[int] = (784, 1000, 500, 250, 30)) -> Network:
    """Pixels (batch, 784) to their reconstruction in (0, 1); ``widths`` go down to the linear code and back up.

    All layers except the code have a logistic activation. Weights are Glorot's; the paper's come from pretraining with
    restricted Boltzmann machines, which Glorot & Bengio 2010 made unnecessary.
    """
    g = GraphBuilder(name)
    x = g.input("input", ("batch", widths[0]))
    there_and_back = [*widths, *reversed(widths[:-1])]
    for at, (inputs, outputs) in enumerate(pairwise(there_and_back)):
        x = linear(g, f"layer{at}", x, inputs, outputs, xavier(inputs, outputs))
        if at != len(widths) - 2:
            x = g.node("Sigmoid", x)
    g.output(x, "reconstruction")
    return g.build()


def vae(*, name: str = "vae", pixels: int = 784, hidden: int = 500, latent: int = 20) -> Network:
    """``input`` (batch, pixels) in [0, 1] and standard normal ``noise`` (batch, latent).

    Outputs are the ``reconstruction``, ``mean`` and ``log_variance`` of the code, and the ``loss``: the negative
    evidence lower bound of a Bernoulli decoder (appendix B and C.1), in nats per sample, averaged over the batch. The
    noise is an input so that every framework computes the same.
    """
    g, draw = GraphBuilder(name), normal(0.01)
    x, noise = g.input("input", ("batch", pixels)), g.input("noise", ("batch", latent))
    h = g.node("Tanh", linear(g, "encoder", x, pixels, hidden, draw))
    mean = linear(g, "mean", h, hidden, latent, draw)
    log_variance = linear(g, "log_variance", h, hidden, latent, draw)
    deviation = g.node("Exp", g.node("Mul", log_variance, g.constant(0.5)))
    code = g.node("Add", mean, g.node("Mul", deviation, noise))
    h = g.node("Tanh", linear(g, "decoder", code, latent, hidden, draw))
    logits = linear(g, "pixels", h, hidden, pixels, draw)
    g.output(g.node("Sigmoid", logits), "reconstruction")
    g.output(mean, "mean")
    g.output(log_variance, "log_variance")
    g.output(_bound(g, x, logits, mean, log_variance), "loss")
    return g.build().replace(loss="loss")


def _bound(g: GraphBuilder, x: str, logits: str, mean: str, log_variance: str) -> str:
    """The negative evidence lower bound: cross-entropy of the pixels plus the divergence from the prior."""
    # softplus(z) - x z is -log of the Bernoulli likelihood, computed from logits to avoid the logarithm of zero.
    pixels = g.node("Sub", g.node("Softplus", logits), g.node("Mul", x, logits))
    spread = g.node("Sub", g.node("Sub", g.node("Exp", log_variance), log_variance), g.constant(1.0))
    divergence = g.node("Mul", g.node("Add", g.node("Mul", mean, mean), spread), g.constant(0.5))
    last = g.constant([1])
    sums = (g.node("ReduceSum", each, last, keepdims=0) for each in (pixels, divergence))
    return str(g.node("ReduceMean", g.node("Add", *sums), keepdims=0))
