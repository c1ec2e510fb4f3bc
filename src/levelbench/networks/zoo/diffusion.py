"""Diffusion transformers: FLUX.1, whose blocks attend over an image's and a text's tokens together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from levelbench.errors import DefinitionError
from levelbench.networks.builder import GraphBuilder
from levelbench.networks.network import Network
from levelbench.networks.zoo.blocks import ONES, ZEROS, normal, shape_of

_DRAW = normal(0.02)
_EPSILON = 1e-6
# The numbers of cosines and sines that stand for a time.
_WAVES = 256


def flux(
    *,
    name: str = "flux-schnell",
    double: int = 19,
    single: int = 38,
    width: int = 3072,
    heads: int = 24,
    ratio: int = 4,
    axes: Sequence[int] = (16, 56, 56),
    channels: int = 64,
    text_width: int = 4096,
    pooled: int = 768,
    side: int = 16,
    guided: bool = False,
) -> Network:
    """An image's velocity on its way from noise, (batch, side ** 2, channels), as FLUX.1 predicts it.

    Inputs are the noisy ``image`` (batch, side ** 2, channels), tokens of 2 by 2 latent pixels with 16 pixels of the
    picture each side, row by row; ``text`` (batch, text, text_width), the tokens of T5; ``pooled`` (batch, pooled), the
    text by CLIP; ``time`` (batch,) from 0 to 1; and if ``guided``, as FLUX.1-dev is, ``guidance`` (batch,).

    Each of the ``double`` blocks has weights of its own for image and text, a ``single`` one the same for both. Queries
    and keys have an RMSNorm and are turned by their place: ``axes`` are the numbers of a head that are for the text,
    the row and the column, of which the text's are never turned, since its tokens are all at place 0. Layers have a
    bias; weights are (inputs, outputs), normal with 0.02, since how the released ones began is not published.
    """
    if width % heads or width // heads != sum(axes) or any(each % 2 for each in axes):
        found = f"width {width}, {heads} heads, axes {tuple(axes)}"
        raise DefinitionError(f"the network {name}", found, "give even axes whose sum is the width of a head")
    g = GraphBuilder(name)
    g.size("text", 256)
    image = g.input("image", ("batch", side * side, channels))
    text = g.input("text", ("batch", "text", text_width))
    summary = g.input("pooled", ("batch", pooled))
    parts = _Flux(g, width, heads, ratio)
    state = g.node(
        "Add", parts.embedded("time", g.input("time", ("batch",))), parts.perceptron("pooled", summary, pooled)
    )
    if guided:
        state = g.node("Add", state, parts.embedded("guidance", g.input("guidance", ("batch",))))
    state = _silu(g, state)
    x, y = parts.linear("image", image, channels, width), parts.linear("text", text, text_width, width)
    turns = _turns(g, axes, side, shape_of(g, text, 1, 2))
    for at in range(double):
        with g.scope(f"double{at}"):
            x, y = parts.double(x, y, state, turns, side * side)
    both = g.node("Concat", y, x, axis=1)
    for at in range(single):
        with g.scope(f"single{at}"):
            both = parts.single(both, state, turns)
    with g.scope("final"):
        shift, scale = parts.modulations("modulation", state, 2)
        # The Reshape changes nothing, but says how many tokens the image has.
        x = g.node("Reshape", _last(g, both, side * side, 1), g.constant([0, side * side, width]))
        x = parts.modulated(x, shift, scale)
        g.output(parts.linear("linear", x, width, channels), "velocity")
    return g.build()


class _Flux:
    """The layers of a block; streams are (batch, tokens, width)."""

    def __init__(self, g: GraphBuilder, width: int, heads: int, ratio: int) -> None:
        self._g, self._width, self._heads, self._inner = g, width, heads, ratio * width
        self._ones = g.constant(np.ones(width, np.float32))

    def linear(self, name: str, x: str, inputs: int, outputs: int) -> str:
        """``x @ weight + bias`` over the last axis."""
        g = self._g
        with g.scope(name):
            weight, bias = g.parameter("weight", (inputs, outputs), _DRAW), g.parameter("bias", (outputs,), ZEROS)
            return str(g.node("Add", g.node("MatMul", x, weight), bias))

    def perceptron(self, name: str, x: str, inputs: int) -> str:
        """Two layers with SiLU between."""
        with self._g.scope(name):
            y = _silu(self._g, self.linear("input", x, inputs, self._width))
            return self.linear("output", y, self._width, self._width)

    def embedded(self, name: str, x: str) -> str:
        """A number from 0 to 1 for each sample, as cosines and sines of a thousand times it, and a perceptron."""
        g, half = self._g, _WAVES // 2
        rates = 10000.0 ** -(np.arange(half) / half)
        # In this order as in FLUX's code: a thousand radians in float32 differ by 1e-4 if rounded otherwise.
        scaled = g.node("Mul", g.node("Unsqueeze", x, g.constant([1])), g.constant(1000.0))
        angles = g.node("Mul", scaled, g.constant(rates.astype(np.float32)))
        waves = g.node("Concat", g.node("Cos", angles), g.node("Sin", angles), axis=1)
        return self.perceptron(name, waves, _WAVES)

    def modulations(self, name: str, state: str, count: int) -> list[str]:
        """Shifts, scales and gates, each (batch, 1, width)."""
        g = self._g
        made = self.linear(name, state, self._width, count * self._width)
        split = g.node("Unsqueeze", made, g.constant([1]))
        return list(g.node("Split", split, outputs=count, axis=-1, num_outputs=count))

    def modulated(self, x: str, shift: str, scale: str) -> str:
        """Adaptive layer normalisation: (1 + scale) norm(x) + shift (Peebles, Xie 2022, arXiv:2212.09748)."""
        g = self._g
        norm = g.node("LayerNormalization", x, self._ones, axis=-1, epsilon=_EPSILON)
        return str(g.node("Add", g.node("Mul", norm, g.node("Add", scale, g.constant(1.0))), shift))

    def double(self, x: str, y: str, state: str, turns: list[str], count: int) -> tuple[str, str]:
        """Image ``x`` of ``count`` tokens and text ``y``, each with its own weights, attend to both."""
        g, width = self._g, self._width
        streams = {"text": y, "image": x}
        changes, projected = {}, []
        for name, each in streams.items():
            with g.scope(name):
                changes[name] = self.modulations("modulation", state, 6)
                normed = self.modulated(each, *changes[name][:2])
                projected.append(self._by_head(self.linear("input", normed, width, 3 * width)))
        joint = [g.node("Concat", *pair, axis=2) for pair in zip(*projected, strict=True)]
        mixed = self._attention(joint, turns)
        made = {"text": _last(g, mixed, count, 1, rest=True), "image": _last(g, mixed, count, 1)}
        for name, each in streams.items():
            _, _, gate, shift, scale, last_gate = changes[name]
            with g.scope(name):
                each = _gated(g, each, gate, self.linear("output", made[name], width, width))
                z = self.linear("mlp.input", self.modulated(each, shift, scale), width, self._inner)
                z = self.linear("mlp.output", g.node("Gelu", z, approximate="tanh"), self._inner, width)
                streams[name] = _gated(g, each, last_gate, z)
        return streams["image"], streams["text"]

    def single(self, x: str, state: str, turns: list[str]) -> str:
        """Attention and perceptron at once, from one layer into one layer (Dehghani et al. 2023, arXiv:2302.05442)."""
        g, width, inner = self._g, self._width, self._inner
        shift, scale, gate = self.modulations("modulation", state, 3)
        made = self.linear("input", self.modulated(x, shift, scale), width, 3 * width + inner)
        sizes = g.constant([3 * width, inner])
        projected, hidden = g.node("Split", made, sizes, outputs=2, axis=-1)
        mixed = self._attention(self._by_head(projected), turns)
        both = g.node("Concat", mixed, g.node("Gelu", hidden, approximate="tanh"), axis=-1)
        return _gated(g, x, gate, self.linear("output", both, width + inner, width))

    def _by_head(self, x: str) -> list[str]:
        """Queries, keys and values, (batch, heads, tokens, width of a head); the first two normalised."""
        g, each = self._g, self._width // self._heads
        found = [
            g.node("Transpose", g.node("Reshape", part, g.constant([0, 0, self._heads, each])), perm=[0, 2, 1, 3])
            for part in g.node("Split", x, outputs=3, axis=-1, num_outputs=3)
        ]
        for at, name in enumerate(("query", "key")):
            scale = g.parameter(f"{name}.norm.scale", (each,), ONES)
            mean = g.node("ReduceMean", g.node("Mul", found[at], found[at]), g.constant([-1]), keepdims=1)
            root = g.node("Sqrt", g.node("Add", mean, g.constant(_EPSILON)))
            found[at] = g.node("Mul", g.node("Div", found[at], root), scale)
        return found

    def _attention(self, projected: list[str], turns: list[str]) -> str:
        """Attention of all tokens to all, (batch, tokens, width)."""
        g, each = self._g, self._width // self._heads
        query, key = (self._turned(x, turns) for x in projected[:2])
        scores = g.node("MatMul", g.node("Mul", query, g.constant(each**-0.5)), _swapped(g, key))
        mixed = g.node("MatMul", g.node("Softmax", scores, axis=-1), projected[2])
        return str(g.node("Reshape", g.node("Transpose", mixed, perm=[0, 2, 1, 3]), g.constant([0, 0, self._width])))

    def _turned(self, x: str, turns: list[str]) -> str:
        """Each pair of neighbours turned by its token's angle (Su et al., arXiv:2104.09864)."""
        g, (cosine, sine) = self._g, turns
        each = self._width // self._heads
        pairs = g.node("Reshape", x, g.constant([0, 0, -1, each // 2, 2]))
        first, second = g.node("Split", pairs, outputs=2, axis=-1, num_outputs=2)
        left = g.node("Sub", g.node("Mul", first, cosine), g.node("Mul", second, sine))
        right = g.node("Add", g.node("Mul", second, cosine), g.node("Mul", first, sine))
        return str(g.node("Reshape", g.node("Concat", left, right, axis=-1), g.constant([0, 0, -1, each])))


def _turns(g: GraphBuilder, axes: Sequence[int], side: int, length: str) -> list[str]:
    """Cosines and sines, (tokens, half a head, 1), of the text's tokens, whose angles are 0, and the image's."""
    row, column = np.divmod(np.arange(side * side), side)
    angles = np.concatenate(
        [
            places[:, None] / 10000.0 ** (np.arange(0, count, 2) / count)
            for places, count in zip((0 * row, row, column), axes, strict=True)
        ],
        axis=1,
    )
    shape = g.node("Concat", length, g.constant([angles.shape[1], 1]), axis=0)
    return [
        g.node(
            "Concat", g.node("Expand", g.constant(still), shape), g.constant(each[..., None].astype(np.float32)), axis=0
        )
        for still, each in ((1.0, np.cos(angles)), (0.0, np.sin(angles)))
    ]


def _silu(g: GraphBuilder, x: str) -> str:
    return str(g.node("Mul", x, g.node("Sigmoid", x)))


def _gated(g: GraphBuilder, x: str, gate: str, y: str) -> str:
    return str(g.node("Add", x, g.node("Mul", gate, y)))


def _swapped(g: GraphBuilder, x: str) -> str:
    return str(g.node("Transpose", x, perm=[0, 1, 3, 2]))


def _last(g: GraphBuilder, x: str, count: int, axis: int, *, rest: bool = False) -> str:
    """The last ``count`` along an axis, or if ``rest`` those before."""
    start, end = (0, -count) if rest else (-count, np.iinfo(np.int64).max)
    return str(g.node("Slice", x, *(g.constant([each]) for each in (start, end, axis))))
