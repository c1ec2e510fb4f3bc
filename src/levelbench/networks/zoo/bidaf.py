"""BiDAF (Seo et al. 2017): attention in both directions between a paragraph and a question, to point at an answer.

The one idea: nothing is summed up before it must be. Each word of the paragraph keeps its own vector, with what the
question says to it and what it says to the question, up to the last layer.
"""

from __future__ import annotations

from typing import final

import numpy as np

from levelbench.networks.builder import GraphBuilder
from levelbench.networks.network import Network
from levelbench.networks.zoo.blocks import ZEROS, dropout, linear, rows, sequences, xavier
from levelbench.networks.zoo.entry import Entry, Published, register
from levelbench.networks.zoo.reading import Text, Words, attend_both, highway

__all__ = ["NAMES", "bidaf"]

NAMES = ("bidaf",)
PAPER = (
    "Seo, Kembhavi, Farhadi, Hajishirzi 2017: Bidirectional attention flow for machine comprehension, arXiv:1611.01603"
)


def bidaf(
    *,
    name: str = "bidaf",
    words: int = 30000,
    word_width: int = 100,
    characters: int = 128,
    character_width: int = 8,
    filters: int = 100,
    hidden: int = 100,
    letters: int = 16,
    context: int = 400,
    question: int = 50,
    dropout_ratio: float = 0.2,
) -> Network:
    """Two texts to ``start_logits`` and ``end_logits``, (batch, context).

    The inputs are ``context_ids``, ``context_characters``, ``context_mask``, ``question_ids``, ``question_characters``
    and ``question_mask``: ids of words (batch, length), of their characters (batch, length, letters), and 1 at words, 0
    at padding. The layer of the end reads what it reads in the released code, which the paper's count includes. LSTMs
    have no sequence lengths: their inputs are zeros at padding, which the backward direction reads first. Weights are
    Glorot's, embeddings uniform in (-0.1, 0.1); the paper's word vectors are GloVe's and fixed, these are learned.
    """
    g = GraphBuilder(name)
    g.size("context", context)
    g.size("question", question)
    texts = Words(
        g,
        words=words,
        word_width=word_width,
        characters=characters,
        character_width=character_width,
        filters=filters,
        letters=letters,
        dropout_ratio=dropout_ratio,
    )
    parts = _Bidaf(g, hidden, dropout_ratio)
    passage, question_text = texts.read("context"), texts.read("question")
    h, u = parts.contextual([passage, question_text], texts.width)
    width = 2 * hidden
    both = attend_both(g, h, u, passage, question_text, width)
    model = parts.recurrent("modelling1", parts.recurrent("modelling0", both, 4 * width), width)
    starts = parts.pointer("start", g.node("Concat", both, model, axis=2), 5 * width, passage)
    shares = g.node("Unsqueeze", g.node("Softmax", starts, axis=-1), g.constant([1]))
    guess = g.node("Expand", g.node("MatMul", shares, model), g.node("Shape", model))
    known = g.node("Concat", both, model, guess, g.node("Mul", model, guess), axis=2)
    last = parts.recurrent("modelling2", known, 7 * width)
    ends = parts.pointer("end", g.node("Concat", both, last, axis=2), 5 * width, passage)
    g.output(starts, "start_logits")
    g.output(ends, "end_logits")
    return g.build()


@final
class _Bidaf:
    """The layers behind the words; values are (batch, length, width)."""

    def __init__(self, g: GraphBuilder, hidden: int, ratio: float) -> None:
        self._g, self._hidden, self._ratio = g, hidden, ratio

    def contextual(self, texts: list[Text], width: int) -> list[str]:
        """Two highway layers and an LSTM in both directions, the same for all texts."""
        g = self._g
        counts = g.node("Concat", *(g.node("Shape", each.x, start=0, end=1) for each in texts), axis=0)
        x = g.node("Concat", *(each.x for each in texts), axis=0)
        for layer in range(2):
            x = highway(g, f"highway{layer}", x, width)
        weights = self._weights("contextual", width)
        found = []
        for text, part in zip(texts, g.node("Split", x, counts, outputs=len(texts), axis=0), strict=True):
            kept = g.node("Mul", part, rows(g, text.kept, 1))
            found.append(self._run(sequences(g, kept, text.sizes, width), weights))
        return found

    def recurrent(self, name: str, x: str, inputs: int) -> str:
        """An LSTM in both directions: (batch, length, 2 * hidden)."""
        return self._run(x, self._weights(name, inputs))

    def pointer(self, name: str, x: str, width: int, passage: Text) -> str:
        """A logit for each word of the paragraph; padding is out of reach."""
        g = self._g
        flat = linear(g, name, dropout(g, rows(g, x, width), self._ratio), width, 1, xavier(width, 1), None)
        return str(g.node("Add", g.node("Reshape", flat, passage.sizes), passage.away))

    def _weights(self, name: str, inputs: int) -> tuple[str, str, str]:
        g, hidden = self._g, self._hidden
        with g.scope(name):
            weight = g.parameter("weight", (2, 4 * hidden, inputs), xavier(inputs, hidden))
            recurrent = g.parameter("recurrent", (2, 4 * hidden, hidden), xavier(hidden, hidden))
            bias = g.parameter("bias", (2, 4 * hidden), ZEROS)
        second = g.constant(np.zeros((2, 4 * hidden), np.float32))
        return weight, recurrent, g.node("Concat", bias, second, axis=1)

    def _run(self, x: str, weights: tuple[str, str, str]) -> str:
        g, hidden = self._g, self._hidden
        turned = dropout(g, g.node("Transpose", x, perm=[1, 0, 2]), self._ratio)
        y, *_ = g.node("LSTM", turned, *weights, outputs=3, hidden_size=hidden, direction="bidirectional")
        return str(g.node("Reshape", g.node("Transpose", y, perm=[2, 0, 1, 3]), g.constant([0, 0, 2 * hidden])))


register(
    Entry(
        "bidaf",
        bidaf,
        PAPER,
        Published(2_600_000, None, "section 4 of the paper: about 2.6 million, without the fixed word vectors"),
        "language",
        "BiDAF: LSTMs with attention in both directions, to point at an answer",
    )
)
