"""A bag of words: the mean of the embeddings of a text's words, and a linear layer (Joulin et al. 2017, fastText).

Joulin, Grave, Bojanowski, Mikolov 2017: Bag of tricks for efficient text classification, arXiv:1607.01759. Defined by
its sizes, as the tasks use it: no paper publishes a count for it.
"""

from __future__ import annotations

from levelbench.networks.builder import GraphBuilder
from levelbench.networks.network import Network
from levelbench.networks.zoo.blocks import embedding, linear, uniform

__all__ = ["word_bag"]


def word_bag(
    *, name: str = "word-bag", words: int = 16384, width: int = 32, hidden: int = 0, classes: int = 2, length: int = 256
) -> Network:
    """``word_ids`` and ``word_mask``, (batch, length), to ``logits`` (batch, classes).

    The mask is 1 at words and 0 at padding; the mean is over the words alone, and 0 of a text without any. With
    ``hidden`` a layer with ReLU stands between. Embeddings are uniform in (-1 / width, 1 / width) as in fastText's
    code, the layers in 1 / sqrt(inputs).
    """
    g = GraphBuilder(name)
    g.size("length", length)
    ids = g.input("word_ids", ("batch", "length"), "int64", high=words)
    kept = g.node("Cast", g.input("word_mask", ("batch", "length"), "int64", high=2), to=1)
    _, x = embedding(g, "embedding", ids, words, width, uniform(1.0 / width))
    # (batch, 1, length) @ (batch, length, width): the sum of the words' rows without a copy of all of them.
    total = g.node("Squeeze", g.node("MatMul", g.node("Unsqueeze", kept, g.constant([1])), x), g.constant([1]))
    count = g.node("Max", g.node("ReduceSum", kept, g.constant([1]), keepdims=1), g.constant(1.0))
    x, inputs = g.node("Div", total, count), width
    if hidden:
        x, inputs = g.node("Relu", linear(g, "hidden", x, width, hidden, uniform(width**-0.5))), hidden
    g.output(linear(g, "classifier", x, inputs, classes, uniform(inputs**-0.5)), "logits")
    return g.build()
