"""Language models: the Transformer, BERT with heads for its tasks, GPT-2, LLaMA, Mixtral, an LSTM, a bag of words."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DefinitionError
from levelbench.networks.builder import GraphBuilder
from levelbench.networks.network import Network
from levelbench.networks.values import Draw
from levelbench.networks.zoo.blocks import (
    ONES,
    ZEROS,
    Attention,
    attend,
    causal_mask,
    dropout,
    embedding,
    layer_norm,
    linear,
    normal,
    padding_mask,
    recurrent,
    rows,
    sequences,
    shape_of,
    uniform,
    xavier,
)

_TRANSFORMER_EPSILON = 1e-6


def sinusoids(positions: int, width: int) -> NDArray[np.float32]:
    """(positions, width): sines at even and cosines at odd indices (section 3.5)."""
    angles = np.arange(positions)[:, None] / 10000.0 ** (np.arange(0, width, 2) / width)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(positions, width).astype(np.float32)


def transformer(
    *,
    name: str = "transformer",
    layers: int = 6,
    width: int = 512,
    heads: int = 8,
    inner: int = 2048,
    vocabulary: int = 37000,
    positions: int = 1024,
    dropout_ratio: float = 0.1,
) -> Network:
    """``source_ids``, ``source_mask`` (batch, source) and ``target_ids`` (batch, target) to logits.

    Logits are (batch, target, vocabulary). The mask is 1 at tokens and 0 at padding. ``target_ids`` is the target
    shifted right (teacher forcing). Linear layers of the attention have no bias, as in the paper's equations.
    Embeddings are normal with width ** -0.5 and shared with the output; the other weights are Glorot's.
    """
    g = GraphBuilder(name)
    for each in ("source", "target"):
        g.size(each, 64)
    source = g.input("source_ids", ("batch", "source"), "int64", high=vocabulary)
    padding = padding_mask(g, g.input("source_mask", ("batch", "source"), "int64", high=2))
    target = g.input("target_ids", ("batch", "target"), "int64", high=vocabulary)
    with g.scope("embedding"):
        table = g.parameter("weight", (vocabulary, width), normal(width**-0.5))
    places = g.constant(sinusoids(positions, width))
    how = Attention(width, heads, xavier(width, width), bias=False)
    coder = _Coder(g, how, inner, dropout_ratio)
    x, sizes = coder.embed(source, table, places), shape_of(g, source, 0, 2)
    y, target_sizes = coder.embed(target, table, places), shape_of(g, target, 0, 2)
    for layer in range(layers):
        with g.scope(f"encoder{layer}"):
            x = coder.attention("attention", x, sizes, x, sizes, padding)
            x = coder.feed_forward(x)
    causal = causal_mask(g, shape_of(g, target, 1, 2))
    for layer in range(layers):
        with g.scope(f"decoder{layer}"):
            y = coder.attention("attention", y, target_sizes, y, target_sizes, causal)
            y = coder.attention("cross", y, target_sizes, x, sizes, padding)
            y = coder.feed_forward(y)
    g.output(sequences(g, g.node("Gemm", y, table, transB=1), target_sizes, vocabulary), "logits")
    return g.build()


class _Coder:
    """The sub-layers that encoder and decoder share, each followed by its residual connection and normalisation."""

    def __init__(self, g: GraphBuilder, how: Attention, inner: int, ratio: float) -> None:
        self._g, self._how, self._inner, self._ratio = g, how, inner, ratio

    def embed(self, ids: str, table: str, places: str) -> str:
        """Rows of embeddings, scaled by the square root of the width, plus their positions."""
        g, width = self._g, self._how.width
        x = g.node("Mul", g.node("Gather", table, ids), g.constant(math.sqrt(width)))
        there = g.node("Slice", places, g.constant([0]), shape_of(g, ids, 1, 2), g.constant([0]))
        return dropout(g, rows(g, g.node("Add", x, there), width), self._ratio)

    def attention(self, name: str, x: str, sizes: str, memory: str, memory_sizes: str, mask: str) -> str:
        """Multi-head attention from ``x`` to ``memory``."""
        with self._g.scope(name):
            return self._add("norm", x, self._how.build(self._g, x, sizes, memory, memory_sizes, mask))

    def feed_forward(self, x: str) -> str:
        """Two linear layers with ReLU between (equation 2)."""
        g, width = self._g, self._how.width
        with g.scope("feed_forward"):
            y = g.node("Relu", linear(g, "input", x, width, self._inner, xavier(width, self._inner)))
            return self._add("norm", x, linear(g, "output", y, self._inner, width, xavier(self._inner, width)))

    def _add(self, name: str, x: str, y: str) -> str:
        both = self._g.node("Add", x, dropout(self._g, y, self._ratio))
        return layer_norm(self._g, name, both, self._how.width, _TRANSFORMER_EPSILON)


HEADS = ("none", "masked-lm", "question-answering", "classification")
_BERT_EPSILON = 1e-12
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
    ``logits`` (batch, classes). Weights are normal with 0.02, but unlike in the reference code not truncated at two
    standard deviations.
    """
    if head not in HEADS:
        raise DefinitionError(f"a BERT with head {head!r}", "there is no such head", f"give one of {', '.join(HEADS)}")
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
    return table, dropout(g, layer_norm(g, "norm", rows(g, x, width), width, _BERT_EPSILON), ratio)


def _layer(g: GraphBuilder, x: str, sizes: str, mask: str, how: Attention) -> str:
    with g.scope("attention"):
        y = dropout(g, how.build(g, x, sizes, x, sizes, mask), how.dropout)
        x = layer_norm(g, "norm", g.node("Add", x, y), how.width, _BERT_EPSILON)
    y = g.node("Gelu", linear(g, "intermediate", x, how.width, 4 * how.width, _DRAW))
    y = dropout(g, linear(g, "output", y, 4 * how.width, how.width, _DRAW), how.dropout)
    return layer_norm(g, "norm", g.node("Add", x, y), how.width, _BERT_EPSILON)


def _finish(
    g: GraphBuilder, head: str, x: str, sizes: str, table: str, widths: tuple[int, int, int], ratio: float
) -> None:
    vocabulary, width, classes = widths
    if head == "masked-lm":
        with g.scope("predictions"):
            x = layer_norm(
                g, "norm", g.node("Gelu", linear(g, "transform", x, width, width, _DRAW)), width, _BERT_EPSILON
            )
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


_GPT2_EPSILON = 1e-5


def gpt2(
    *,
    name: str = "gpt2",
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    vocabulary: int = 50257,
    positions: int = 1024,
    dropout_ratio: float = 0.1,
) -> Network:
    """Token ids (batch, length), length up to ``positions``, to logits (batch, length, vocabulary).

    Weights are normal with 0.02 (positions 0.01, as in the released code); those that write to the residual stream are
    divided by the square root of their number (section 2.3).
    """
    g = GraphBuilder(name)
    g.size("length", min(128, positions))
    ids = g.input("input_ids", ("batch", "length"), "int64", high=vocabulary)
    sizes, length = shape_of(g, ids, 0, 2), shape_of(g, ids, 1, 2)
    table, x = embedding(g, "token", ids, vocabulary, width, _DRAW)
    with g.scope("position"):
        places = g.parameter("weight", (positions, width), normal(0.01))
    x = g.node("Add", x, g.node("Slice", places, g.constant([0]), length, g.constant([0])))
    x = dropout(g, rows(g, x, width), dropout_ratio)
    mask = causal_mask(g, length)
    attention = Attention(width, heads, normal(0.02 / math.sqrt(2 * layers)), dropout=dropout_ratio)
    for layer in range(layers):
        with g.scope(f"block{layer}"):
            x = _block(g, x, sizes, mask, attention)
    x = layer_norm(g, "norm", x, width, _GPT2_EPSILON)
    g.output(sequences(g, g.node("Gemm", x, table, transB=1), sizes, vocabulary), "logits")
    return g.build()


def _block(g: GraphBuilder, x: str, sizes: str, mask: str, how: Attention) -> str:
    """One block; ``how.draw`` applies to the two layers that write to the residual stream."""
    with g.scope("attention"):
        y = linear(g, "input", layer_norm(g, "norm", x, how.width, _GPT2_EPSILON), how.width, 3 * how.width, _DRAW)
        query, key, value = g.node("Split", y, outputs=3, axis=-1, num_outputs=3)
        y = attend(g, (query, key, value), (sizes, sizes), how, mask)
        y = dropout(g, linear(g, "output", y, how.width, how.width, how.draw), how.dropout)
        x = g.node("Add", x, y)
    with g.scope("mlp"):
        y = linear(g, "input", layer_norm(g, "norm", x, how.width, _GPT2_EPSILON), how.width, 4 * how.width, _DRAW)
        y = linear(g, "output", g.node("Gelu", y, approximate="tanh"), 4 * how.width, how.width, how.draw)
        return str(g.node("Add", x, dropout(g, y, how.dropout)))


def llama(
    *,
    name: str = "llama",
    layers: int = 30,
    width: int = 576,
    heads: int = 9,
    groups: int = 3,
    inner: int = 1536,
    vocabulary: int = 49152,
    positions: int = 2048,
    base: float = 10000.0,
    tied: bool = True,
    experts: int = 0,
    chosen: int = 2,
) -> Network:
    """Token ids (batch, length), length up to ``positions``, to logits (batch, length, vocabulary).

    RMSNorm before each part, rotary positions (on halves of a head, as in transformers), SwiGLU, and keys and values
    shared by ``heads / groups`` heads (Ainslie et al. 2023, arXiv:2305.13245). If ``tied``, the embedding is also the
    output layer; no layer has a bias. Weights are normal with 0.02; those that write to the residual stream are divided
    by the square root of their number, as in GPT-2. With ``experts`` each SwiGLU is a mixture of so many, of which a
    token has ``chosen`` (Mixtral: Jiang et al. 2024, arXiv:2401.04088).
    """
    if heads % groups or width % heads or width // heads % 2:
        found = f"width {width}, {heads} heads and {groups} groups"
        raise DefinitionError(f"the network {name}", found, "give equal groups of heads, each of an even width")
    if experts and not 1 <= chosen <= experts:
        found = f"{chosen} of {experts} experts"
        raise DefinitionError(f"the network {name}", found, "choose at least 1 and at most all")
    g = GraphBuilder(name)
    g.size("length", min(128, positions))
    ids = g.input("input_ids", ("batch", "length"), "int64", high=vocabulary)
    table, x = embedding(g, "token", ids, vocabulary, width, _DRAW)
    x, length = rows(g, x, width), shape_of(g, ids, 1, 2)
    half = width // heads // 2
    angles = np.arange(positions)[:, None] / base ** (np.arange(half) / half)
    turns = [
        g.node("Slice", g.constant(each.astype(np.float32)), g.constant([0]), length, g.constant([0]))
        for each in (np.cos(angles), np.sin(angles))
    ]
    decoder = _Llama(g, width, heads, groups, normal(0.02 / math.sqrt(2 * layers)))
    sizes, mask = shape_of(g, ids, 0, 2), causal_mask(g, length)
    for layer in range(layers):
        with g.scope(f"block{layer}"):
            x = g.node("Add", x, decoder.attention(decoder.norm("attention.norm", x), sizes, turns, mask))
            y = decoder.norm("mlp.norm", x)
            y = decoder.mixture(y, inner, experts, chosen) if experts else decoder.feed_forward(y, inner)
            x = g.node("Add", x, y)
    x = decoder.norm("norm", x)
    logits = g.node("Gemm", x, table, transB=1) if tied else linear(g, "head", x, width, vocabulary, _DRAW, None)
    g.output(sequences(g, logits, sizes, vocabulary), "logits")
    return g.build()


class _Llama:
    """The parts of a block; values are rows (batch * length, width)."""

    def __init__(self, g: GraphBuilder, width: int, heads: int, groups: int, draw: Draw) -> None:
        self._g, self._width, self._heads, self._groups, self._draw = g, width, heads, groups, draw

    def norm(self, name: str, x: str) -> str:
        """Each row over the root of its mean square, scaled (Zhang, Sennrich 2019, arXiv:1910.07467)."""
        g = self._g
        scale = g.parameter(f"{name}.scale", (self._width,), ONES)
        mean = g.node("ReduceMean", g.node("Mul", x, x), g.constant([-1]), keepdims=1)
        root = g.node("Sqrt", g.node("Add", mean, g.constant(1e-5)))
        return str(g.node("Mul", g.node("Div", x, root), scale))

    def attention(self, x: str, sizes: str, turns: list[str], mask: str) -> str:
        """Causal attention, in which the heads of a group have the same keys and values."""
        g, heads, groups = self._g, self._heads, self._groups
        each = self._width // heads
        with g.scope("attention"):
            query = self._turned(self._by_head("query", x, sizes, heads), turns)
            key = self._turned(self._by_head("key", x, sizes, groups), turns)
            value = self._by_head("value", x, sizes, groups)
            # (batch, groups, heads of a group, length, width of a head)
            query = g.node("Reshape", query, g.constant([0, groups, heads // groups, -1, each]))
            key = g.node("Unsqueeze", g.node("Transpose", key, perm=[0, 1, 3, 2]), g.constant([2]))
            scores = g.node("MatMul", g.node("Mul", query, g.constant(each**-0.5)), key)
            shares = g.node("Softmax", g.node("Add", scores, mask), axis=-1)
            mixed = g.node("MatMul", shares, g.node("Unsqueeze", value, g.constant([2])))
            mixed = g.node("Reshape", mixed, g.constant([0, heads, -1, each]))
            mixed = rows(g, g.node("Transpose", mixed, perm=[0, 2, 1, 3]), self._width)
            return self._linear("output", mixed, self._width, self._width, self._draw)

    def feed_forward(self, x: str, inner: int) -> str:
        """SwiGLU: output(silu(gate) * up) (Shazeer 2020, arXiv:2002.05202)."""
        g = self._g
        with g.scope("mlp"):
            gate, up = (self._linear(name, x, self._width, inner) for name in ("gate", "up"))
            y = g.node("Mul", g.node("Mul", gate, g.node("Sigmoid", gate)), up)
            return self._linear("output", y, inner, self._width, self._draw)

    def mixture(self, x: str, inner: int, experts: int, chosen: int) -> str:
        """The ``chosen`` likeliest of several SwiGLUs for each row, weighted by the router's shares among them.

        Every expert computes every row, and the weights of those that are not chosen are 0. The outputs and gradients
        are those of computing the chosen ones alone, which takes arrays whose sizes depend on their values. A single
        chosen expert has its share among all as its weight, without which its router would have no gradient (Switch
        Transformer: Fedus et al. 2021, arXiv:2101.03961).
        """
        g = self._g
        with g.scope("mlp"):
            # The values "shares" and "chosen" are what levelbench.networks.losses.with_balance is of.
            shares = g.node("Softmax", self._linear("router", x, self._width, experts), axis=-1, name="router.shares")
            _, places = g.node("TopK", shares, g.constant([chosen]), outputs=2, axis=-1)
            hot = g.node("OneHot", places, g.constant(experts), g.constant([0.0, 1.0]), axis=-1)
            picked = g.node("ReduceSum", hot, g.constant([1]), keepdims=0, name="router.chosen")
            weights = g.node("Mul", shares, picked)
            if chosen > 1:
                weights = g.node("Div", weights, g.node("ReduceSum", weights, g.constant([-1]), keepdims=1))
            # (experts, batch * length, inner), and then (experts, batch * length, width).
            gate, up = (
                g.node("MatMul", x, g.parameter(f"{each}.weight", (experts, self._width, inner), _DRAW))
                for each in ("gate", "up")
            )
            y = g.node("Mul", g.node("Mul", gate, g.node("Sigmoid", gate)), up)
            y = g.node("MatMul", y, g.parameter("output.weight", (experts, inner, self._width), self._draw))
            weights = g.node("Unsqueeze", g.node("Transpose", weights, perm=[1, 0]), g.constant([2]))
            return str(g.node("ReduceSum", g.node("Mul", y, weights), g.constant([0]), keepdims=0))

    def _linear(self, name: str, x: str, inputs: int, outputs: int, draw: Draw = _DRAW) -> str:
        return linear(self._g, name, x, inputs, outputs, draw, None)

    def _by_head(self, name: str, x: str, sizes: str, count: int) -> str:
        """A linear layer's rows as (batch, count, length, width of a head)."""
        g, each = self._g, self._width // self._heads
        made = self._linear(name, x, self._width, count * each)
        return str(g.node("Transpose", sequences(g, made, sizes, count, each), perm=[0, 2, 1, 3]))

    def _turned(self, x: str, turns: list[str]) -> str:
        """Each pair of a head's first and second half turned by its position's angle (Su et al., arXiv:2104.09864)."""
        g, (cosine, sine) = self._g, turns
        first, second = g.node("Split", x, outputs=2, axis=-1, num_outputs=2)
        left = g.node("Sub", g.node("Mul", first, cosine), g.node("Mul", second, sine))
        right = g.node("Add", g.node("Mul", second, cosine), g.node("Mul", first, sine))
        return str(g.node("Concat", left, right, axis=-1))


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

    Dropout is applied to the inputs and outputs of layers, never between the steps of one, as the paper proposes. With
    ``carries_state`` the states (1, batch, width) of each layer are also inputs and outputs, for truncated
    backpropagation through time; without it they start at zero.
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
        y, *after = recurrent(g, f"lstm{layer}", "LSTM", x, width, width, draw, biases=1, initial=states)
        last += zip(after, (f"hidden.{layer}.last", f"cell.{layer}.last"), strict=True)
        x = y if layer == layers - 1 else g.node("Squeeze", y, g.constant([1]))
    # Move the batch to the front before the logits are computed, which are 15 to 50 times wider than the states.
    states_by_row = rows(g, dropout(g, g.node("Transpose", x, perm=[2, 0, 1, 3]), dropout_ratio), width)
    logits = linear(g, "softmax", states_by_row, width, vocabulary, draw, draw)
    g.output(sequences(g, logits, shape_of(g, ids, 0, 2), vocabulary), "logits")
    if carries_state:
        for value, called in last:
            g.output(value, called)
    return g.build()


def word_bag(
    *, name: str = "word-bag", words: int = 16384, width: int = 32, hidden: int = 0, classes: int = 2, length: int = 256
) -> Network:
    """``word_ids`` and ``word_mask``, (batch, length), to ``logits`` (batch, classes).

    The mask is 1 at words and 0 at padding; the mean is over words only, and 0 for a text without words. ``hidden``
    adds a layer with ReLU in between. Embeddings are uniform in (-1 / width, 1 / width) as in fastText's code, layers
    in ±1 / sqrt(inputs).
    """
    g = GraphBuilder(name)
    g.size("length", length)
    ids = g.input("word_ids", ("batch", "length"), "int64", high=words)
    kept = g.node("Cast", g.input("word_mask", ("batch", "length"), "int64", high=2), to=1)
    _, x = embedding(g, "embedding", ids, words, width, uniform(1.0 / width))
    # (batch, 1, length) @ (batch, length, width) sums the words' rows without copying all of them.
    total = g.node("Squeeze", g.node("MatMul", g.node("Unsqueeze", kept, g.constant([1])), x), g.constant([1]))
    count = g.node("Max", g.node("ReduceSum", kept, g.constant([1]), keepdims=1), g.constant(1.0))
    x, inputs = g.node("Div", total, count), width
    if hidden:
        x, inputs = g.node("Relu", linear(g, "hidden", x, width, hidden, uniform(width**-0.5))), hidden
    g.output(linear(g, "classifier", x, inputs, classes, uniform(inputs**-0.5)), "logits")
    return g.build()
