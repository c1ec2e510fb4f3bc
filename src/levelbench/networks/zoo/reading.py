"""Networks that answer a question from a text: BiDAF, a small QANet, and the end-to-end memory network.

A word is represented by its own vector and its characters, so that unseen words still have a spelling. In BiDAF (Seo et
al. 2017) each word of the paragraph keeps its own vector up to the last layer. The QANet (Yu et al. 2018,
arXiv:1804.09541) is smaller and simpler than the paper's: its blocks do not share weights, the attention between the
two texts is BiDAF's, and word vectors are learned; no paper states its number of parameters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from levelbench.networks.builder import GraphBuilder
from levelbench.networks.network import Network
from levelbench.networks.zoo.blocks import (
    ZEROS,
    Attention,
    dropout,
    layer_norm,
    linear,
    normal,
    rows,
    sequences,
    shape_of,
    uniform,
    xavier,
)
from levelbench.networks.zoo.language import sinusoids

_AWAY = -10000.0
_WINDOW = 5


@final
@dataclass(frozen=True)
class EncodedText:
    """A text in a graph: rows of words (batch * length, width), [batch, length], and masks.

    ``kept`` is 1 at words and 0 at padding, (batch, length) of float32; ``away`` is 0 at words and -10000 at padding.
    """

    x: str
    sizes: str
    kept: str
    away: str


@final
class Words:
    """Tables of words and characters, shared by all texts that are passed to :meth:`read`."""

    def __init__(
        self,
        g: GraphBuilder,
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

    def read(self, name: str) -> EncodedText:
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
        return EncodedText(both, shape_of(g, ids, 0, 2), kept, away)

    def _spelling(self, ids: str) -> str:
        """For each word the maximum of each filter over its characters (Kim 2014, arXiv:1408.5882)."""
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


def attend_both(g: GraphBuilder, h: str, u: str, passage: EncodedText, question: EncodedText, width: int) -> str:
    """Attention from a paragraph to a question and back (Seo et al. 2017, equations 1 and 2).

    ``h`` is (batch, context, width), ``u`` (batch, question, width). Returns (batch, context, 4 * width): the
    paragraph, the attended question for each of its words, and the paragraph times either attention.
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
    at padding. The inputs of the end layer are those of the released code, which the paper's count includes. LSTMs have
    no sequence lengths: their inputs are zeros at padding, which the backward direction reads first. Weights are
    Glorot's, embeddings uniform in (-0.1, 0.1); word vectors are learned, whereas the paper's are GloVe's and fixed.
    """
    g = GraphBuilder(name)
    g.size("context", context)
    g.size("question", question)
    texts = Words(g, words, word_width, characters, character_width, filters, letters, dropout_ratio)
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
    """The layers after the words; values are (batch, length, width)."""

    def __init__(self, g: GraphBuilder, hidden: int, ratio: float) -> None:
        self._g, self._hidden, self._ratio = g, hidden, ratio

    def contextual(self, texts: list[EncodedText], width: int) -> list[str]:
        """Two highway layers and a bidirectional LSTM, the same for all texts."""
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
        """A bidirectional LSTM: (batch, length, 2 * hidden)."""
        return self._run(x, self._weights(name, inputs))

    def pointer(self, name: str, x: str, width: int, passage: EncodedText) -> str:
        """A logit for each word of the paragraph; padding gets a very low one."""
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


_EPSILON = 1e-6


def small_qanet(
    *,
    name: str = "small-qanet",
    width: int = 96,
    heads: int = 4,
    blocks: int = 2,
    words: int = 30000,
    word_width: int = 100,
    characters: int = 128,
    character_width: int = 8,
    filters: int = 100,
    letters: int = 16,
    context: int = 400,
    question: int = 50,
    dropout_ratio: float = 0.1,
) -> Network:
    """Two texts to ``start_logits`` and ``end_logits``, (batch, context); the inputs are those of ``bidaf``.

    ``blocks`` is the number of blocks in each of the three stacks after the attention; weights are Glorot's.
    """
    g = GraphBuilder(name)
    g.size("context", context)
    g.size("question", question)
    texts = Words(g, words, word_width, characters, character_width, filters, letters, dropout_ratio)
    parts = _Encoder(g, Attention(width, heads, xavier(width, width), dropout=dropout_ratio))
    read = []
    for label, length in (("context", context), ("question", question)):
        text = texts.read(label)
        with g.scope(label):
            x = highway(g, "highway", text.x, texts.width)
            x = linear(g, "input", x, texts.width, width, xavier(texts.width, width))
            read.append((text, parts.block("block", x, text, convolutions=3, kernel=7, positions=length)))
    (passage, h), (asked, u) = read
    h, u = sequences(g, h, passage.sizes, width), sequences(g, u, asked.sizes, width)
    both = rows(g, attend_both(g, h, u, passage, asked, width), 4 * width)
    x = linear(g, "merge", both, 4 * width, width, xavier(4 * width, width))
    stacks = []
    for stack in range(3):
        for block in range(blocks):
            x = parts.block(f"stack{stack}.block{block}", x, passage, convolutions=2, kernel=5, positions=context)
        stacks.append(x)
    for label, other in (("start", stacks[1]), ("end", stacks[2])):
        pair = g.node("Concat", stacks[0], other, axis=1)
        logits = linear(g, label, pair, 2 * width, 1, xavier(2 * width, 1), None)
        g.output(g.node("Add", g.node("Reshape", logits, passage.sizes), passage.away), f"{label}_logits")
    return g.build()


@final
@dataclass(frozen=True)
class _Encoder:
    """Blocks of convolutions, self-attention and two linear layers; values are rows (batch * length, width)."""

    g: GraphBuilder
    how: Attention

    def block(self, name: str, x: str, text: EncodedText, *, convolutions: int, kernel: int, positions: int) -> str:
        """Each part has a normalisation before it and a residual connection; positions are added at the start."""
        g, width = self.g, self.how.width
        with g.scope(name):
            length = g.node("Slice", text.sizes, g.constant([1]), g.constant([2]))
            places = g.node("Slice", g.constant(sinusoids(positions, width)), g.constant([0]), length, g.constant([0]))
            placed = g.node("Add", sequences(g, x, text.sizes, width), places)
            x = rows(g, placed, width)
            for at in range(convolutions):
                with g.scope(f"convolution{at}"):
                    x = self._add(x, self._convolved(layer_norm(g, "norm", x, width, _EPSILON), text, kernel))
            with g.scope("attention"):
                y = layer_norm(g, "norm", x, width, _EPSILON)
                mask = g.node("Unsqueeze", text.away, g.constant([1, 2]))
                x = self._add(x, self.how.build(g, y, text.sizes, y, text.sizes, mask))
            with g.scope("feed_forward"):
                y = layer_norm(g, "norm", x, width, _EPSILON)
                y = g.node("Relu", linear(g, "input", y, width, width, xavier(width, width)))
                return self._add(x, linear(g, "output", y, width, width, xavier(width, width)))

    def _convolved(self, x: str, text: EncodedText, kernel: int) -> str:
        """A convolution of each channel, then one across channels (Chollet 2017, arXiv:1610.02357)."""
        g, width = self.g, self.how.width
        kept = g.node("Mul", x, rows(g, text.kept, 1))
        turned = g.node("Transpose", sequences(g, kept, text.sizes, width), perm=[0, 2, 1])
        weight = g.parameter("depthwise.weight", (width, 1, kernel), uniform(math.sqrt(3.0 / kernel)))
        bias = g.parameter("depthwise.bias", (width,), ZEROS)
        made = g.node("Conv", turned, weight, bias, kernel_shape=[kernel], pads=[kernel // 2] * 2, group=width)
        flat = rows(g, g.node("Transpose", made, perm=[0, 2, 1]), width)
        return str(g.node("Relu", linear(g, "pointwise", flat, width, width, xavier(width, width))))

    def _add(self, x: str, y: str) -> str:
        return str(self.g.node("Add", x, dropout(self.g, y, self.how.dropout)))


def position_encoding(words: int, width: int) -> NDArray[np.float32]:
    """(words, width): the weight of word j in a sentence, (1 - j/J) - (k/d)(1 - 2j/J), from 1 (section 4.1)."""
    j, k = np.arange(1, words + 1)[:, None] / words, np.arange(1, width + 1) / width
    return np.asarray((1 - j) - k * (1 - 2 * j)).astype(np.float32)


def memory_network(
    *, name: str = "memnet", vocabulary: int = 177, width: int = 20, hops: int = 3, sentences: int = 50, words: int = 11
) -> Network:
    """``story`` (batch, sentences, words) and ``question`` (batch, words) to logits of the answer (batch, vocabulary).

    Word 0 is padding and ignored; up to ``sentences`` are kept, the latest first. Tables are tied between hops in the
    paper's first way (adjacent: the input table of a hop is the output table of the previous one), with position and
    temporal encoding. Weights are normal with 0.1 (section 4.2). Defaults are those of the twenty bAbI tasks.
    """
    g, draw = GraphBuilder(name), normal(0.1)
    g.size("sentences", sentences)
    story = g.input("story", ("batch", "sentences", words), "int64", high=vocabulary)
    question = g.input("question", ("batch", words), "int64", high=vocabulary)
    encoding = g.constant(position_encoding(words, width))
    kept = {each: _words(g, each) for each in (story, question)}
    count = shape_of(g, story, 1, 2)
    tables, memories = [], []
    for at in range(hops + 1):
        with g.scope(f"table{at}"):
            tables.append(g.parameter("weight", (vocabulary, width), draw))
            times = g.parameter("time", (sentences, width), draw)
        there = g.node("Slice", times, g.constant([0]), count, g.constant([0]))
        memories.append(g.node("Add", _sentence(g, tables[at], story, kept[story], encoding), there))
    state = _sentence(g, tables[0], question, kept[question], encoding)
    for hop in range(hops):
        column = g.node("Unsqueeze", state, g.constant([2]))
        shares = g.node("Softmax", g.node("MatMul", memories[hop], column), axis=1)
        read = g.node("ReduceSum", g.node("Mul", shares, memories[hop + 1]), g.constant([1]), keepdims=0)
        state = g.node("Add", state, read)
    g.output(g.node("Gemm", state, tables[-1], transB=1), "logits")
    return g.build()


def _words(g: GraphBuilder, ids: str) -> str:
    """1 at words and 0 at padding, with a trailing axis for the embedding."""
    padding = g.node("Equal", ids, g.constant(0))
    return str(g.node("Unsqueeze", g.node("Cast", g.node("Not", padding), to=1), g.constant([-1])))


def _sentence(g: GraphBuilder, table: str, ids: str, kept: str, encoding: str) -> str:
    """The sum of the embeddings of words, each weighted by its position."""
    weighted = g.node("Mul", g.node("Mul", g.node("Gather", table, ids), kept), encoding)
    return str(g.node("ReduceSum", weighted, g.constant([-2]), keepdims=0))
