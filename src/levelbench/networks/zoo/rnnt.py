"""The recurrent neural network transducer (Graves 2012) as MLPerf's speech benchmark has it since round v1.0."""

from __future__ import annotations

import math
from functools import partial

from levelbench.networks.builder import GraphBuilder
from levelbench.networks.network import Network
from levelbench.networks.zoo.blocks import dropout, embedding, linear, lstm, normal, rows, sequences, shape_of, uniform
from levelbench.networks.zoo.entry import Entry, Published, register

__all__ = ["NAMES", "rnnt"]

NAMES = ("rnnt", "rnnt-tiny")
PAPER = "Graves 2012: Sequence transduction with recurrent neural networks, arXiv:1211.3711"
_FRAMES, _TOKENS = 200, 31


def rnnt(
    *,
    name: str = "rnnt",
    features: int = 240,
    encoder: int = 1024,
    before: int = 2,
    behind: int = 3,
    prediction: int = 512,
    joint: int = 512,
    classes: int = 1024,
    dropout_ratio: float = 0.1,
) -> Network:
    """``input`` (batch, frames, features), frames even, and ``target_ids`` (batch, tokens) to ``logits``.

    Logits are (batch, lattice, classes): the place of step t and state u is t * (tokens + 1) + u, for frames / 2 steps
    and a state before and behind each token; the last class is the blank. ``before`` LSTM layers, pairs of steps
    joined, ``behind`` more; two LSTM layers over the tokens, begun with zeros; a joint layer. LSTMs have two biases.
    Trained with the transducer's loss, for which ONNX has no operator. Who gives other frames and tokens and a loss
    says the size of the lattice, too.
    """
    g = GraphBuilder(name)
    for size, value in (("frames", _FRAMES), ("tokens", _TOKENS), ("lattice", _FRAMES // 2 * (_TOKENS + 1))):
        g.size(size, value)
    x = g.node("Transpose", g.input("input", ("batch", "frames", features)), perm=[1, 0, 2])
    ids = g.input("target_ids", ("batch", "tokens"), "int64", high=classes - 1)
    with g.scope("encoder"):
        x = _stack(g, "before", x, features, encoder, before, dropout_ratio)
        # (frames, batch, encoder) to (frames / 2, batch, 2 * encoder): two steps that follow each other become one.
        x = g.node("Reshape", g.node("Transpose", x, perm=[1, 0, 2]), g.constant([0, -1, 2 * encoder]))
        x = _stack(g, "behind", g.node("Transpose", x, perm=[1, 0, 2]), 2 * encoder, encoder, behind, dropout_ratio)
    with g.scope("prediction"):
        _, y = embedding(g, "embedding", g.node("Transpose", ids, perm=[1, 0]), classes - 1, prediction, normal(1.0))
        y = g.node("Pad", y, g.constant([1, 0, 0, 0, 0, 0]))
        y = _stack(g, "lstm", y, prediction, prediction, 2, dropout_ratio)
    with g.scope("joint"):
        heard = g.node("Unsqueeze", _projected(g, "encoder", x, encoder, joint), g.constant([2]))
        said = g.node("Unsqueeze", _projected(g, "prediction", y, prediction, joint), g.constant([1]))
        both = dropout(g, g.node("Relu", g.node("Add", heard, said)), dropout_ratio)
        logits = _linear(g, "classes", rows(g, both, joint), joint, classes)
    sizes = g.node("Concat", shape_of(g, ids, 0, 1), g.constant([-1, classes]), axis=0)
    # ONNX infers no name for the product of two sizes.
    lattice = g.node("Reshape", logits, sizes, shape=("batch", "lattice", classes))
    g.output(lattice, "logits")
    return g.build()


def _stack(g: GraphBuilder, name: str, x: str, inputs: int, hidden: int, layers: int, ratio: float) -> str:
    """LSTM layers in one direction with dropout behind each: (length, batch, inputs) to (length, batch, hidden)."""
    draw = uniform(1.0 / math.sqrt(hidden))
    for at in range(layers):
        y = lstm(g, f"{name}{at}", x, hidden if at else inputs, hidden, draw, bias=draw)[0]
        x = dropout(g, g.node("Squeeze", y, g.constant([1])), ratio)
    return x


def _linear(g: GraphBuilder, name: str, x: str, inputs: int, outputs: int) -> str:
    draw = uniform(1.0 / math.sqrt(inputs))
    return linear(g, name, x, inputs, outputs, draw, draw)


def _projected(g: GraphBuilder, name: str, x: str, inputs: int, outputs: int) -> str:
    """A linear layer of (length, batch, inputs), with the batch in front: (batch, length, outputs)."""
    x = g.node("Transpose", x, perm=[1, 0, 2])
    return sequences(g, _linear(g, name, rows(g, x, inputs), inputs, outputs), shape_of(g, x, 0, 2), outputs)


register(
    Entry(
        "rnnt",
        rnnt,
        PAPER,
        Published(
            None,
            None,
            "MLPerf training v1.0, rnn_speech_recognition: configuration baseline_v3-1023sp",
            "the sizes are the reference code's; it prints no count",
        ),
        "speech",
        "encoder of 2 + 3 LSTM layers of 1024, two over the tokens, a joint layer",
    )
)
register(
    Entry(
        "rnnt-tiny",
        partial(
            rnnt, name="rnnt-tiny", features=24, encoder=16, before=1, behind=1, prediction=12, joint=10, classes=9
        ),
        PAPER,
        Published(None, None, PAPER, "ours, for tests: the benchmark has no model of this size"),
        "speech",
        "a transducer of four LSTM layers of 12 and 16, for tests",
    )
)
