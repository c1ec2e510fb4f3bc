"""Translation and speech with recurrent networks: Luong's LSTMs, GNMT, RNN-T and Deep Speech 2, as in MLPerf.

In the translation networks the attention does not feed back into the layer that queries it, so each layer of the
decoder is one LSTM over the whole target. All sentences of a batch have the same length per side: there is no padding
mask.
"""

from __future__ import annotations

import math

from levelbench.networks.builder import GraphBuilder
from levelbench.networks.network import Network
from levelbench.networks.values import Draw
from levelbench.networks.zoo.blocks import (
    ZEROS,
    batch_norm,
    conv,
    dropout,
    embedding,
    linear,
    normal,
    recurrent,
    rows,
    sequences,
    shape_of,
    torch_default,
    uniform,
)

_DRAW = uniform(0.1)


def _ids(g: GraphBuilder, side: str, vocabulary: int) -> tuple[str, str]:
    """The token ids of a side, (batch, side), and the same with time first."""
    g.size(side, 32)
    ids = g.input(f"{side}_ids", ("batch", side), "int64", high=vocabulary)
    return ids, g.node("Transpose", ids, perm=[1, 0])


def _batch_first(g: GraphBuilder, x: str) -> str:
    """(length, batch, width) to (batch, length, width)."""
    return str(g.node("Transpose", x, perm=[1, 0, 2]))


def seq2seq(
    *,
    name: str = "seq2seq",
    layers: int = 4,
    width: int = 1000,
    source_vocabulary: int = 50000,
    target_vocabulary: int = 50000,
    dropout_ratio: float = 0.2,
) -> Network:
    """``source_ids`` (batch, source) and ``target_ids`` (batch, target) to logits (batch, target, vocabulary).

    Stacked LSTMs, with the decoder starting from the encoder's last states, and global attention with the score "dot"
    (equations 3 to 8) without input feeding. Weights are uniform in (-0.1, 0.1) (section 4.1).
    """
    g = GraphBuilder(name)
    (_, source), (ids, target) = _ids(g, "source", source_vocabulary), _ids(g, "target", target_vocabulary)
    states: list[tuple[str, str] | None] = [None] * layers
    made = {}
    for side, time_major, vocabulary in (
        ("encoder", source, source_vocabulary),
        ("decoder", target, target_vocabulary),
    ):
        with g.scope(side):
            _, x = embedding(g, "embedding", time_major, vocabulary, width, _DRAW)
            for layer in range(layers):
                x = dropout(g, x, dropout_ratio)
                y, *last = recurrent(g, f"lstm{layer}", "LSTM", x, width, width, _DRAW, biases=1, initial=states[layer])
                states[layer] = last[0], last[1]
                x = g.node("Squeeze", y, g.constant([1]))
        made[side] = _batch_first(g, x)
    with g.scope("attention"):
        scores = g.node("MatMul", made["decoder"], g.node("Transpose", made["encoder"], perm=[0, 2, 1]))
        context = g.node("MatMul", g.node("Softmax", scores, axis=-1), made["encoder"])
        both = rows(g, g.node("Concat", context, made["decoder"], axis=2), 2 * width)
        x = g.node("Tanh", linear(g, "combine", both, 2 * width, width, _DRAW, None))
    logits = linear(g, "softmax", x, width, target_vocabulary, _DRAW, None)
    g.output(sequences(g, logits, shape_of(g, ids, 0, 2), target_vocabulary), "logits")
    return g.build()


def gnmt(
    *, name: str = "gnmt", layers: int = 4, width: int = 1024, vocabulary: int = 32320, dropout_ratio: float = 0.2
) -> Network:
    """``source_ids`` (batch, source) and ``target_ids`` (batch, target) to logits (batch, target, vocabulary).

    MLPerf's version of GNMT: ``layers`` per side, the first of the encoder bidirectional, residual connections from the
    third on, one embedding for both sides, normalised Bahdanau attention whose context goes to every layer of the
    decoder except the first. LSTMs have two biases, as in cuDNN. Weights are uniform in (-0.1, 0.1).
    """
    g = GraphBuilder(name)
    (_, source), (ids, target) = _ids(g, "source", vocabulary), _ids(g, "target", vocabulary)
    table, x = embedding(g, "embedding", source, vocabulary, width, _DRAW)
    coder = _Gnmt(g, width, dropout_ratio)
    with g.scope("encoder"):
        memory = coder.encode(x, layers)
    with g.scope("decoder"):
        x = coder.layer(0, g.node("Gather", table, target), width)
        context = coder.attend(x, memory)
        for at in range(1, layers):
            y = coder.layer(at, g.node("Concat", x, context, axis=2), 2 * width)
            x = y if at == 1 else g.node("Add", x, y)
    logits = linear(g, "classifier", rows(g, _batch_first(g, x), width), width, vocabulary, _DRAW, _DRAW)
    g.output(sequences(g, logits, shape_of(g, ids, 0, 2), vocabulary), "logits")
    return g.build()


class _Gnmt:
    """The parts of GNMT; values are (length, batch, width)."""

    def __init__(self, g: GraphBuilder, width: int, ratio: float) -> None:
        self._g, self._width, self._ratio = g, width, ratio

    def layer(self, at: int, x: str, inputs: int) -> str:
        """Dropout and an LSTM in one direction."""
        x = dropout(self._g, x, self._ratio)
        y = recurrent(self._g, f"lstm{at}", "LSTM", x, inputs, self._width, _DRAW)[0]
        return str(self._g.node("Squeeze", y, self._g.constant([1])))

    def encode(self, x: str, layers: int) -> str:
        """The encoder's last layer."""
        g, width = self._g, self._width
        y = recurrent(g, "lstm0", "LSTM", dropout(g, x, self._ratio), width, width, _DRAW, directions=2)[0]
        x = g.node("Reshape", g.node("Transpose", y, perm=[0, 2, 1, 3]), g.constant([0, 0, 2 * width]))
        for at in range(1, layers):
            y = self.layer(at, x, 2 * width if at == 1 else width)
            x = y if at == 1 else g.node("Add", x, y)
        return x

    def attend(self, x: str, memory: str) -> str:
        """The context of each position of ``x`` in ``memory``: Bahdanau's score with a normalised vector."""
        g, width = self._g, self._width
        with g.scope("attention"):
            query = g.node("Unsqueeze", self._projected("query", x), g.constant([2]))
            key = g.node("Unsqueeze", self._projected("key", memory), g.constant([1]))
            vector = g.parameter("vector", (width,), _DRAW)
            scale = g.parameter("scale", (1,), Draw("constant", 1.0 / math.sqrt(width)))
            bias = g.parameter("bias", (width,), ZEROS)
            unit = g.node("Mul", g.node("Div", vector, g.node("ReduceL2", vector, keepdims=1)), scale)
            sums = g.node("Tanh", g.node("Add", g.node("Add", query, key), bias))
            scores = g.node("MatMul", sums, unit)
            context = g.node("MatMul", g.node("Softmax", scores, axis=-1), _batch_first(g, memory))
        return _batch_first(g, context)

    def _projected(self, name: str, x: str) -> str:
        """A linear layer without bias, as (batch, length, width)."""
        g = self._g
        y = linear(g, name, rows(g, x, self._width), self._width, self._width, _DRAW, None)
        return _batch_first(g, sequences(g, y, shape_of(g, x, 0, 2), self._width))


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

    Logits are (batch, lattice, classes): the index of step t and state u is t * (tokens + 1) + u, for frames / 2 steps
    and a state before and after each token; the last class is the blank. ``before`` LSTM layers, pairs of steps joined,
    ``behind`` more; two LSTM layers over the tokens, starting with zeros; a joint layer. LSTMs have two biases. Trained
    with the transducer's loss, for which ONNX has no operator. To use a loss with other numbers of frames and tokens,
    give the size of the lattice too.
    """
    g = GraphBuilder(name)
    for size, value in (("frames", _FRAMES), ("tokens", _TOKENS), ("lattice", _FRAMES // 2 * (_TOKENS + 1))):
        g.size(size, value)
    x = g.node("Transpose", g.input("input", ("batch", "frames", features)), perm=[1, 0, 2])
    ids = g.input("target_ids", ("batch", "tokens"), "int64", high=classes - 1)
    with g.scope("encoder"):
        x = _stack(g, "before", x, features, encoder, before, dropout_ratio)
        # (frames, batch, encoder) to (frames / 2, batch, 2 * encoder): two consecutive steps become one.
        x = g.node("Reshape", g.node("Transpose", x, perm=[1, 0, 2]), g.constant([0, -1, 2 * encoder]))
        x = _stack(g, "behind", g.node("Transpose", x, perm=[1, 0, 2]), 2 * encoder, encoder, behind, dropout_ratio)
    with g.scope("prediction"):
        _, y = embedding(g, "embedding", g.node("Transpose", ids, perm=[1, 0]), classes - 1, prediction, normal(1.0))
        y = g.node("Pad", y, g.constant([1, 0, 0, 0, 0, 0]))
        y = _stack(g, "lstm", y, prediction, prediction, 2, dropout_ratio)
    with g.scope("joint"):
        heard = g.node("Unsqueeze", _projected(g, "encoder", x, encoder, joint), g.constant([2]))
        predicted = g.node("Unsqueeze", _projected(g, "prediction", y, prediction, joint), g.constant([1]))
        both = dropout(g, g.node("Relu", g.node("Add", heard, predicted)), dropout_ratio)
        logits = _linear(g, "classes", rows(g, both, joint), joint, classes)
    sizes = g.node("Concat", shape_of(g, ids, 0, 1), g.constant([-1, classes]), axis=0)
    # ONNX does not infer a name for the product of two sizes.
    lattice = g.node("Reshape", logits, sizes, shape=("batch", "lattice", classes))
    g.output(lattice, "logits")
    return g.build()


def _stack(g: GraphBuilder, name: str, x: str, inputs: int, hidden: int, layers: int, ratio: float) -> str:
    """Unidirectional LSTM layers, each followed by dropout: (length, batch, inputs) to (length, batch, hidden)."""
    draw = torch_default(hidden)
    for at in range(layers):
        y = recurrent(g, f"{name}{at}", "LSTM", x, hidden if at else inputs, hidden, draw)[0]
        x = dropout(g, g.node("Squeeze", y, g.constant([1])), ratio)
    return x


def _linear(g: GraphBuilder, name: str, x: str, inputs: int, outputs: int) -> str:
    return linear(g, name, x, inputs, outputs, torch_default(inputs), torch_default(inputs))


def _projected(g: GraphBuilder, name: str, x: str, inputs: int, outputs: int) -> str:
    """A linear layer from (length, batch, inputs) to (batch, length, outputs)."""
    x = g.node("Transpose", x, perm=[1, 0, 2])
    return sequences(g, _linear(g, name, rows(g, x, inputs), inputs, outputs), shape_of(g, x, 0, 2), outputs)


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

    There are (frames - 11) // 2 - 9 steps: to use a loss with another number of frames, give the steps too.

    The two directions of a GRU are added, and the input of all GRUs except the first is normalised over batch and time.
    Weights and biases are drawn with the defaults of PyTorch, which the reference code uses. Trained with CTC, for
    which ONNX has no operator: here a cross-entropy per step, which costs less, replaces it.
    """
    g = GraphBuilder(name)
    g.size("frames", 201)
    g.size("steps", 86)
    x = g.input("input", ("batch", 1, bands, "frames"))
    height = bands
    for at, (before, kernel, strides) in enumerate(((1, 41, (2, 2)), (channels, 21, (2, 1)))):
        draw = torch_default(before * kernel * 11)
        x = conv(g, f"conv{at}", x, (before, channels), (kernel, 11), draw, strides=strides, bias=draw)
        x = g.node("Clip", batch_norm(g, f"norm{at}", x, channels), g.constant(0.0), g.constant(20.0))
        height = (height - kernel) // 2 + 1
    width = channels * height
    # (batch, channels, height, steps) to (steps, batch, channels * height): bands and channels are one axis.
    x = g.node("Reshape", g.node("Transpose", x, perm=[3, 0, 1, 2]), g.constant([0, 0, width]))
    draw = torch_default(hidden)
    for layer in range(layers):
        with g.scope(f"gru{layer}"):
            if layer:
                sizes = shape_of(g, x, 0, 2)
                x = sequences(g, batch_norm(g, "norm", rows(g, x, hidden), hidden), sizes, hidden)
            y = recurrent(g, "cell", "GRU", x, hidden if layer else width, hidden, draw, directions=2)[0]
            x = g.node("ReduceSum", y, g.constant([1]), keepdims=0)
    # ONNX does not infer a name for the number of frames after the convolutions.
    x = g.node("Transpose", x, perm=[1, 0, 2], shape=("batch", "steps", hidden))
    flat = batch_norm(g, "norm", rows(g, x, hidden), hidden)
    logits = linear(g, "labels", flat, hidden, labels, draw, None)
    g.output(sequences(g, logits, shape_of(g, x, 0, 2), labels), "logits")
    return g.build()
