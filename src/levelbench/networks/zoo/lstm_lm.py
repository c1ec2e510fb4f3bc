"""The LSTM language model of Zaremba et al. 2014: embedding, two LSTM layers, softmax over the vocabulary."""

from __future__ import annotations

from functools import partial

from levelbench.networks.builder import GraphBuilder
from levelbench.networks.network import Network
from levelbench.networks.zoo.blocks import dropout, embedding, linear, lstm, rows, sequences, shape_of, uniform
from levelbench.networks.zoo.entry import Entry, Published, register

__all__ = ["NAMES", "lstm_lm"]

NAMES = ("lstm-lm-small", "lstm-lm-medium", "lstm-lm-large")
PAPER = "Zaremba, Sutskever, Vinyals 2014: Recurrent neural network regularization, arXiv:1409.2329"


def lstm_lm(
    *,
    name: str = "lstm-lm",
    vocabulary: int = 10000,
    width: int = 200,
    layers: int = 2,
    scale: float = 0.1,
    dropout_ratio: float = 0.0,
    carries_state: bool = False,
) -> Network:
    """Token ids (batch, length) to logits (batch, length, vocabulary); weights are uniform in (-scale, scale).

    Dropout acts on what goes into and out of layers, never between the steps of one: the paper's point. With
    ``carries_state`` the states (1, batch, width) of each layer are inputs and outputs too, as truncated
    backpropagation through time needs; without, they start at zero.
    """
    g, draw = GraphBuilder(name), uniform(scale)
    g.size("length", 35)
    ids = g.input("input_ids", ("batch", "length"), "int64", high=vocabulary)
    _, x = embedding(g, "embedding", g.node("Transpose", ids, perm=[1, 0]), vocabulary, width, draw)
    last: list[tuple[str, str]] = []
    for layer in range(layers):
        states = None
        if carries_state:
            hidden, cell = (g.input(f"{what}.{layer}", (1, "batch", width)) for what in ("hidden", "cell"))
            states = hidden, cell
        x = dropout(g, x, dropout_ratio)
        y, *after = lstm(g, f"lstm{layer}", x, width, width, draw, bias=draw, biases=1, initial=states)
        last += zip(after, (f"hidden.{layer}.last", f"cell.{layer}.last"), strict=True)
        x = y if layer == layers - 1 else g.node("Squeeze", y, g.constant([1]))
    # The batch comes to the front before the vocabulary is there: it is 15 to 50 times wider than the states.
    states_by_row = rows(g, dropout(g, g.node("Transpose", x, perm=[2, 0, 1, 3]), dropout_ratio), width)
    logits = linear(g, "softmax", states_by_row, width, vocabulary, draw, draw)
    g.output(sequences(g, logits, shape_of(g, ids, 0, 2), vocabulary), "logits")
    if carries_state:
        for value, called in last:
            g.output(value, called)
    return g.build()


_SIZES = {
    "lstm-lm-small": (200, 0.1, 0.0, Published(None, None, PAPER, "the paper prints no count of its small model")),
    "lstm-lm-medium": (
        650,
        0.05,
        0.5,
        Published(
            20_000_000,
            None,
            "Merity et al. 2017, arXiv:1708.02182, table 1: 20M",
            "19,775,200 to the scalar: the table rounds to millions",
        ),
    ),
    "lstm-lm-large": (
        1500,
        0.04,
        0.65,
        Published(
            66_000_000,
            None,
            "Merity et al. 2017, arXiv:1708.02182, table 1: 66M",
            "66,022,000 to the scalar: the table rounds to millions",
        ),
    ),
}

for _name, (_width, _scale, _ratio, _published) in _SIZES.items():
    register(
        Entry(
            _name,
            partial(lstm_lm, name=_name, width=_width, scale=_scale, dropout_ratio=_ratio),
            PAPER,
            _published,
            "language",
            f"word language model of Penn Treebank: 2 LSTM layers of {_width}",
        )
    )
