"""What networks that read a paragraph and a question share: their six inputs, and words as vectors.

The one idea: a word is its own vector and what its characters say, so one that was never seen still has a spelling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from levelbench.networks.builder import GraphBuilder
from levelbench.networks.zoo.blocks import ZEROS, dropout, linear, rows, shape_of, uniform, xavier

__all__ = ["Text", "Words", "attend_both", "highway"]

_AWAY = -10000.0
_WINDOW = 5


@final
@dataclass(frozen=True)
class Text:
    """A text in a graph: rows of words (batch * length, width), [batch, length], and masks.

    ``kept`` is 1 at words and 0 at padding, (batch, length) of float32; ``away`` is 0 at words and -10000 at padding.
    """

    x: str
    sizes: str
    kept: str
    away: str


@final
class Words:
    """Tables of words and characters; :meth:`read` may be asked for several texts, which then share them."""

    def __init__(
        self,
        g: GraphBuilder,
        *,
        words: int,
        word_width: int,
        characters: int,
        character_width: int,
        filters: int,
        letters: int,
        dropout_ratio: float,
    ) -> None:
        self._g, self._filters, self._letters, self._ratio = g, filters, letters, dropout_ratio
        self._counts, self._character_width, self._word_width = (words, characters), character_width, word_width
        self.width = word_width + filters
        with g.scope("words"):
            self._words = g.parameter("weight", (words, word_width), uniform(0.1))
        with g.scope("characters"):
            self._characters = g.parameter("weight", (characters, character_width), uniform(0.1))
            shape = (filters, 1, _WINDOW, character_width)
            self._filter = g.parameter("filter.weight", shape, xavier(_WINDOW * character_width, filters))
            self._bias = g.parameter("filter.bias", (filters,), ZEROS)

    def read(self, name: str) -> Text:
        """The text of the inputs ``name_ids``, ``name_characters`` and ``name_mask``; padding is zeros."""
        g = self._g
        ids = g.input(f"{name}_ids", ("batch", name), "int64", high=self._counts[0])
        shape = ("batch", name, self._letters)
        spelled = g.input(f"{name}_characters", shape, "int64", high=self._counts[1])
        kept = g.node("Cast", g.input(f"{name}_mask", ("batch", name), "int64", high=2), to=1)
        word = rows(g, g.node("Gather", self._words, ids), self._word_width)
        both = g.node("Concat", self._spelling(spelled), word, axis=1)
        both = g.node("Mul", both, rows(g, kept, 1))
        away = g.node("Mul", g.node("Sub", g.constant(1.0), kept), g.constant(_AWAY))
        return Text(both, shape_of(g, ids, 0, 2), kept, away)

    def _spelling(self, ids: str) -> str:
        """For each word the highest answer of each filter along its characters (Kim 2014, arXiv:1408.5882)."""
        g, shape = self._g, [-1, 1, self._letters, self._character_width]
        x = g.node("Reshape", g.node("Gather", self._characters, ids), g.constant(shape))
        x = dropout(g, x, self._ratio)
        kernel = (_WINDOW, self._character_width)
        x = g.node("Relu", g.node("Conv", x, self._filter, self._bias, kernel_shape=kernel))
        return rows(g, g.node("ReduceMax", x, g.constant([2, 3]), keepdims=0), self._filters)


def highway(g: GraphBuilder, name: str, x: str, width: int) -> str:
    """Rows x as gate * relu(transform) + (1 - gate) * x (Srivastava et al. 2015, arXiv:1505.00387)."""
    with g.scope(name):
        made = g.node("Relu", linear(g, "transform", x, width, width, xavier(width, width)))
        gate = g.node("Sigmoid", linear(g, "gate", x, width, width, xavier(width, width)))
        return str(g.node("Add", x, g.node("Mul", gate, g.node("Sub", made, x))))


def attend_both(g: GraphBuilder, h: str, u: str, passage: Text, question: Text, width: int) -> str:
    """Attention from a paragraph to a question and back (Seo et al. 2017, equations 1 and 2).

    ``h`` is (batch, context, width), ``u`` (batch, question, width); (batch, context, 4 * width) comes out: the
    paragraph, what the question says to each word of it, and both times the paragraph.
    """
    with g.scope("similarity"):
        draw = xavier(3 * width, 1)
        of_h, of_u = g.parameter("context", (width, 1), draw), g.parameter("question", (width, 1), draw)
        of_both = g.parameter("both", (width,), draw)
    scores = g.node("MatMul", g.node("Mul", h, of_both), g.node("Transpose", u, perm=[0, 2, 1]))
    scores = g.node("Add", scores, g.node("MatMul", h, of_h))
    scores = g.node("Add", scores, g.node("Transpose", g.node("MatMul", u, of_u), perm=[0, 2, 1]))
    scores = g.node("Add", scores, g.node("Unsqueeze", question.away, g.constant([1])))
    to_question = g.node("MatMul", g.node("Softmax", scores, axis=-1), u)
    highest = g.node("Add", g.node("ReduceMax", scores, g.constant([2]), keepdims=0), passage.away)
    shares = g.node("Unsqueeze", g.node("Softmax", highest, axis=-1), g.constant([1]))
    to_context = g.node("MatMul", shares, h)
    return str(g.node("Concat", h, to_question, g.node("Mul", h, to_question), g.node("Mul", h, to_context), axis=2))
