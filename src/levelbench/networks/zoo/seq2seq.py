"""Translation with LSTMs and attention, teacher-forced: Luong et al. 2015, and GNMT as MLPerf's benchmark has it.

The one idea: in both, attention does not feed the recurrence of the layer that asks, so each layer of the decoder is
one LSTM over the whole target. Sentences of a batch have one length each side: there is no mask of padding.
"""

from __future__ import annotations

import math

from levelbench.networks.builder import GraphBuilder
from levelbench.networks.network import Draw, Network
from levelbench.networks.zoo.blocks import (
    ZEROS,
    dropout,
    embedding,
    linear,
    lstm,
    rows,
    sequences,
    shape_of,
    uniform,
)
from levelbench.networks.zoo.entry import Entry, Published, register

__all__ = ["NAMES", "gnmt", "seq2seq"]

NAMES = ("seq2seq", "gnmt")
PAPER_LUONG = (
    "Luong, Pham, Manning 2015: Effective approaches to attention-based neural machine translation, arXiv:1508.04025"
)
PAPER_GNMT = "Wu et al. 2016: Google's neural machine translation system, arXiv:1609.08144"
_DRAW = uniform(0.1)


def _ids(g: GraphBuilder, side: str, vocabulary: int) -> tuple[str, str]:
    """The token ids of a side, (batch, side), and the same with time in front."""
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

    Stacked LSTMs, the decoder's started with the encoder's last states, and global attention with the score "dot"
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
                y, *last = lstm(g, f"lstm{layer}", x, width, width, _DRAW, bias=_DRAW, biases=1, initial=states[layer])
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

    MLPerf's version of GNMT: ``layers`` each side, the first of the encoder in both directions, residual connections
    from the third on, one embedding for both sides, normalised Bahdanau attention whose context goes to every layer of
    the decoder but the first. LSTMs have two biases, as cuDNN's have. Weights are uniform in (-0.1, 0.1).
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
        y = lstm(self._g, f"lstm{at}", x, inputs, self._width, _DRAW, bias=_DRAW)[0]
        return str(self._g.node("Squeeze", y, self._g.constant([1])))

    def encode(self, x: str, layers: int) -> str:
        """The encoder's last layer."""
        g, width = self._g, self._width
        y = lstm(g, "lstm0", dropout(g, x, self._ratio), width, width, _DRAW, bias=_DRAW, directions=2)[0]
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
        """(batch, length, width) of a linear layer without bias."""
        g = self._g
        y = linear(g, name, rows(g, x, self._width), self._width, self._width, _DRAW, None)
        return _batch_first(g, sequences(g, y, shape_of(g, x, 0, 2), self._width))


register(
    Entry(
        "seq2seq",
        seq2seq,
        PAPER_LUONG,
        Published(
            200_000_000,
            None,
            "See, Luong, Manning 2016, arXiv:1606.09274, of the same system: over 200 million",
            "216,032,000 to the scalar: 8 % above a figure that was only given as a lower bound",
        ),
        "translation",
        "4 + 4 LSTM layers of 1000 with global attention",
    )
)
register(
    Entry(
        "gnmt",
        gnmt,
        PAPER_GNMT,
        Published(
            160_671_297,
            None,
            "MLPerf training v0.6, rnn_translator in PyTorch: the count in the tests of LAMB in NVIDIA's apex (the "
            "paper's own model has 8 layers each side)",
        ),
        "translation",
        "4 + 4 LSTM layers of 1024 with normalised Bahdanau attention",
    )
)
