"""BERT (Devlin et al. 2019): a bidirectional encoder with post-normalisation, and the heads that tasks put on it."""

from __future__ import annotations

from functools import partial

from levelbench.errors import DefinitionError
from levelbench.networks.builder import GraphBuilder
from levelbench.networks.network import Network
from levelbench.networks.zoo.blocks import (
    ZEROS,
    Attention,
    dropout,
    embedding,
    layer_norm,
    linear,
    normal,
    padding_mask,
    rows,
    sequences,
    shape_of,
)
from levelbench.networks.zoo.entry import Entry, Published, register

__all__ = ["HEADS", "NAMES", "bert"]

NAMES = ("bert-base", "bert-large", "bert-tiny")
HEADS = ("none", "masked-lm", "question-answering", "classification")
PAPER = "Devlin, Chang, Lee, Toutanova 2019: BERT, pre-training of deep bidirectional transformers, arXiv:1810.04805"
_EPSILON = 1e-12
_DRAW = normal(0.02)


def bert(
    *,
    name: str = "bert",
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    vocabulary: int = 30522,
    positions: int = 512,
    head: str = "none",
    classes: int = 2,
    dropout_ratio: float = 0.1,
) -> Network:
    """Inputs ``input_ids``, ``token_type_ids`` and ``attention_mask`` (1: a token, 0: padding), all (batch, length).

    Outputs by ``head``: ``none`` gives ``last_hidden_state`` (batch, length, width) and ``pooled`` (batch, width);
    ``masked-lm`` (without the pooler) ``logits`` (batch, length, vocabulary), tied to the embedding;
    ``question-answering`` (without the pooler) ``start_logits`` and ``end_logits`` (batch, length); ``classification``
    ``logits`` (batch, classes). Weights are normal with 0.02; the reference code cuts the distribution at two standard
    deviations, ours does not.
    """
    if head not in HEADS:
        raise DefinitionError(f"a BERT with head {head!r}", "there is none", f"give one of {', '.join(HEADS)}")
    g = GraphBuilder(name)
    g.size("length", 128)
    shape = ("batch", "length")
    ids = g.input("input_ids", shape, "int64", high=vocabulary)
    types = g.input("token_type_ids", shape, "int64", high=2)
    mask = padding_mask(g, g.input("attention_mask", shape, "int64", high=2))
    sizes = shape_of(g, ids, 0, 2)
    with g.scope("embeddings"):
        table, x = _embed(g, ids, types, (vocabulary, positions, width), dropout_ratio)
    attention = Attention(width, heads, _DRAW, dropout=dropout_ratio)
    for layer in range(layers):
        with g.scope(f"encoder.layer{layer}"):
            x = _layer(g, x, sizes, mask, attention)
    _finish(g, head, x, sizes, table, (vocabulary, width, classes), dropout_ratio)
    return g.build()


def _embed(g: GraphBuilder, ids: str, types: str, sizes: tuple[int, int, int], ratio: float) -> tuple[str, str]:
    vocabulary, positions, width = sizes
    table, x = embedding(g, "word", ids, vocabulary, width, _DRAW)
    with g.scope("position"):
        places = g.parameter("weight", (positions, width), _DRAW)
    length = shape_of(g, ids, 1, 2)
    x = g.node("Add", x, g.node("Slice", places, g.constant([0]), length, g.constant([0])))
    x = g.node("Add", x, embedding(g, "token_type", types, 2, width, _DRAW)[1])
    return table, dropout(g, layer_norm(g, "norm", rows(g, x, width), width, _EPSILON), ratio)


def _layer(g: GraphBuilder, x: str, sizes: str, mask: str, how: Attention) -> str:
    with g.scope("attention"):
        y = dropout(g, how.build(g, x, sizes, x, sizes, mask), how.dropout)
        x = layer_norm(g, "norm", g.node("Add", x, y), how.width, _EPSILON)
    y = g.node("Gelu", linear(g, "intermediate", x, how.width, 4 * how.width, _DRAW))
    y = dropout(g, linear(g, "output", y, 4 * how.width, how.width, _DRAW), how.dropout)
    return layer_norm(g, "norm", g.node("Add", x, y), how.width, _EPSILON)


def _finish(
    g: GraphBuilder, head: str, x: str, sizes: str, table: str, widths: tuple[int, int, int], ratio: float
) -> None:
    vocabulary, width, classes = widths
    if head == "masked-lm":
        with g.scope("predictions"):
            x = layer_norm(g, "norm", g.node("Gelu", linear(g, "transform", x, width, width, _DRAW)), width, _EPSILON)
            logits = g.node("Gemm", x, table, g.parameter("bias", (vocabulary,), ZEROS), transB=1)
        g.output(sequences(g, logits, sizes, vocabulary), "logits")
        return
    if head == "question-answering":
        both = sequences(g, linear(g, "spans", x, width, 2, _DRAW), sizes, 2)
        for at, called in enumerate(("start_logits", "end_logits")):
            g.output(g.node("Gather", both, g.constant(at), axis=2), called)
        return
    hidden = sequences(g, x, sizes, width)
    first = g.node("Gather", hidden, g.constant(0), axis=1)
    pooled = g.node("Tanh", linear(g, "pooler", first, width, width, _DRAW))
    if head == "classification":
        g.output(linear(g, "classifier", dropout(g, pooled, ratio), width, classes, _DRAW), "logits")
        return
    g.output(hidden, "last_hidden_state")
    g.output(pooled, "pooled")


_SIZES = {
    "bert-base": (
        (12, 768, 12),
        Published(
            109_482_240,
            11.25e9,
            "parameters: transformers' BertModel of bert-base-uncased (the paper prints 110M); multiply-adds: half of "
            "the 22.5 GFLOP for 128 tokens in Sun et al. 2020 (MobileBERT), arXiv:2004.02984, table 4",
            "multiply-adds 0.7 % less than half of those FLOP, which count additions and activations as well",
        ),
    ),
    "bert-large": (
        (24, 1024, 16),
        Published(335_141_888, None, "transformers' BertModel of bert-large-uncased (the paper prints 340M)"),
    ),
    "bert-tiny": (
        (2, 128, 2),
        Published(
            4_385_920,
            None,
            "transformers' BertModel of google/bert_uncased_L-2_H-128_A-2 (Turc et al. 2019, arXiv:1908.08962: 4.4M)",
        ),
    ),
}

for _name, ((_layers, _width, _heads), _published) in _SIZES.items():
    register(
        Entry(
            _name,
            partial(bert, name=_name, layers=_layers, width=_width, heads=_heads),
            PAPER,
            _published,
            "language",
            f"encoder of {_layers} layers, width {_width}, {_heads} heads",
        )
    )
