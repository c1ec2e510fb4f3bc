"""The end-to-end memory network of Sukhbaatar et al. 2015: a question answered from sentences in several hops."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from levelbench.networks.builder import GraphBuilder
from levelbench.networks.network import Network
from levelbench.networks.zoo.blocks import normal, shape_of
from levelbench.networks.zoo.entry import Entry, Published, register

__all__ = ["NAMES", "memory_network", "position_encoding"]

NAMES = ("memnet",)
PAPER = "Sukhbaatar, Szlam, Weston, Fergus 2015: End-to-end memory networks, arXiv:1503.08895"


def position_encoding(words: int, width: int) -> NDArray[np.float32]:
    """(words, width): the weight of word j in a sentence, (1 - j/J) - (k/d)(1 - 2j/J) from 1 (section 4.1)."""
    j, k = np.arange(1, words + 1)[:, None] / words, np.arange(1, width + 1) / width
    return np.asarray((1 - j) - k * (1 - 2 * j)).astype(np.float32)


def memory_network(
    *, name: str = "memnet", vocabulary: int = 177, width: int = 20, hops: int = 3, sentences: int = 50, words: int = 11
) -> Network:
    """``story`` (batch, sentences, words) and ``question`` (batch, words) to logits of the answer (batch, vocabulary).

    Word 0 is padding and counts for nothing; up to ``sentences`` are kept, the latest first. Tables are tied between
    hops in the paper's first way (adjacent: a hop reads with the table that the one before wrote with), with position
    and temporal encoding. Weights are normal with 0.1 (section 4.2). Vocabulary and sentences of the twenty bAbI tasks.
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
    """1 at words and 0 at padding, with an axis for the embedding behind."""
    padding = g.node("Equal", ids, g.constant(0))
    return str(g.node("Unsqueeze", g.node("Cast", g.node("Not", padding), to=1), g.constant([-1])))


def _sentence(g: GraphBuilder, table: str, ids: str, kept: str, encoding: str) -> str:
    """The sum of the embeddings of words, each weighted by its position."""
    weighted = g.node("Mul", g.node("Mul", g.node("Gather", table, ids), kept), encoding)
    return str(g.node("ReduceSum", weighted, g.constant([-2]), keepdims=0))


register(
    Entry(
        "memnet",
        memory_network,
        PAPER,
        Published(None, None, PAPER, "the paper prints no count"),
        "question answering",
        "three hops over 50 sentences of bAbI",
    )
)
