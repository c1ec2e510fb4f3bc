"""A small QANet (Yu et al. 2018): convolutions and self-attention read a paragraph and a question, without recurrence.

Yu, Dohan, Luong, Zhao, Chen, Norouzi, Le 2018: QANet, combining local convolution with global self-attention for
reading comprehension, arXiv:1804.09541. Ours is smaller and simpler: its blocks do not share weights, the attention
between the two texts is BiDAF's, word vectors are learned. So it is defined by its sizes, and no paper has its count.

The one idea: what stands next to a word is a convolution's business and what is far away is attention's, so neither has
to be learned by the other, which small data would not suffice for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from levelbench.networks.builder import GraphBuilder
from levelbench.networks.network import Network
from levelbench.networks.zoo.blocks import (
    ZEROS,
    Attention,
    dropout,
    layer_norm,
    linear,
    rows,
    sequences,
    uniform,
    xavier,
)
from levelbench.networks.zoo.reading import Text, Words, attend_both, highway
from levelbench.networks.zoo.transformer import sinusoids

__all__ = ["small_qanet"]

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

    ``blocks`` is the number of blocks in each of the three stacks behind the attention; weights are Glorot's.
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

    def block(self, name: str, x: str, text: Text, *, convolutions: int, kernel: int, positions: int) -> str:
        """Each part is normalised ahead of it and added to what it got; positions are added at the block's start."""
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

    def _convolved(self, x: str, text: Text, kernel: int) -> str:
        """A convolution of each channel by itself, then one across channels (Chollet 2017, arXiv:1610.02357)."""
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
