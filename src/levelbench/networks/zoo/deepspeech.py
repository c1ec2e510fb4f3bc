"""Deep Speech 2 (Amodei et al. 2015) as MLPerf's first speech benchmark had it: convolutions and bidirectional GRUs."""

from __future__ import annotations

import math
from functools import partial

from levelbench.networks.builder import GraphBuilder
from levelbench.networks.network import Network
from levelbench.networks.zoo.blocks import batch_norm, conv, gru, linear, rows, sequences, shape_of, uniform
from levelbench.networks.zoo.entry import Entry, Published, register

__all__ = ["NAMES", "deepspeech"]

NAMES = ("deepspeech2", "deepspeech2-tiny")
PAPER = "Amodei et al. 2015: Deep Speech 2, end-to-end speech recognition in English and Mandarin, arXiv:1512.02595"


def deepspeech(
    *,
    name: str = "deepspeech2",
    bands: int = 161,
    channels: int = 32,
    hidden: int = 800,
    layers: int = 5,
    labels: int = 29,
) -> Network:
    """A spectrogram (batch, 1, bands, frames) to logits of characters (batch, steps, labels).

    There are (frames - 11) // 2 - 9 steps: who gives another number of frames and a loss says the steps, too.

    The two directions of a GRU are added, and all but the first see their input normalised by batch and time. Weights
    and biases are drawn as PyTorch does by default, in which the reference code is written. Trained with CTC, for which
    ONNX has no operator: a cross-entropy a step takes its place here, and costs less.
    """
    g = GraphBuilder(name)
    g.size("frames", 201)
    g.size("steps", 86)
    x = g.input("input", ("batch", 1, bands, "frames"))
    height = bands
    for at, (before, kernel, strides) in enumerate(((1, 41, (2, 2)), (channels, 21, (2, 1)))):
        draw = uniform(1.0 / math.sqrt(before * kernel * 11))
        x = conv(g, f"conv{at}", x, (before, channels), (kernel, 11), draw, strides=strides, bias=draw)
        x = g.node("Clip", batch_norm(g, f"norm{at}", x, channels), g.constant(0.0), g.constant(20.0))
        height = (height - kernel) // 2 + 1
    width = channels * height
    # (batch, channels, height, steps) to (steps, batch, channels * height): bands and channels are one axis.
    x = g.node("Reshape", g.node("Transpose", x, perm=[3, 0, 1, 2]), g.constant([0, 0, width]))
    draw = uniform(1.0 / math.sqrt(hidden))
    for layer in range(layers):
        with g.scope(f"gru{layer}"):
            if layer:
                sizes = shape_of(g, x, 0, 2)
                x = sequences(g, batch_norm(g, "norm", rows(g, x, hidden), hidden), sizes, hidden)
            y = gru(g, "cell", x, width if layer == 0 else hidden, hidden, draw, bias=draw, directions=2)
            x = g.node("ReduceSum", y, g.constant([1]), keepdims=0)
    # ONNX infers no name for the size that the convolutions leave of the frames.
    x = g.node("Transpose", x, perm=[1, 0, 2], shape=("batch", "steps", hidden))
    flat = batch_norm(g, "norm", rows(g, x, hidden), hidden)
    logits = linear(g, "labels", flat, hidden, labels, draw, None)
    g.output(sequences(g, logits, shape_of(g, x, 0, 2), labels), "logits")
    return g.build()


register(
    Entry(
        "deepspeech2",
        deepspeech,
        PAPER,
        Published(
            38_000_000,
            None,
            "tables 1 and 2 of the paper: 38 million",
            "38,115,968, 0.3 % more: the paper rounds; layers and sizes are those of MLPerf's reference code",
        ),
        "speech",
        "two convolutions and five bidirectional GRU layers of 800",
    )
)
register(
    Entry(
        "deepspeech2-tiny",
        partial(deepspeech, name="deepspeech2-tiny", channels=4, hidden=24, layers=2),
        PAPER,
        Published(None, None, PAPER, "ours, for tests: the paper has no model of this size"),
        "speech",
        "two convolutions and two bidirectional GRU layers of 24, for tests",
    )
)
