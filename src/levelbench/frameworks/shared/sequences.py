"""RNN, GRU, LSTM and LinearAttention as a scan over time, for the frameworks that differentiate by themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import sqrt
from typing import NamedTuple

import numpy as np

from levelbench.errors import UnsupportedError
from levelbench.frameworks.shared.operators import ArrayLibrary
from levelbench.frameworks.shared.registry import Function
from levelbench.operators.contract import Array
from levelbench.operators.node import OperatorNode

__all__ = ["USUAL", "Activation", "activation_functions", "activations_of", "linear_attention", "recurrent"]

USUAL = {"RNN": ("tanh",), "GRU": ("sigmoid", "tanh"), "LSTM": ("sigmoid", "tanh", "tanh")}
"""The activations of a direction where the node names none."""

# Default alpha and beta; ``None`` for one that the function does not take.
_DEFAULTS: dict[str, tuple[float | None, float | None]] = {
    "affine": (1.0, 0.0),
    "elu": (1.0, None),
    "hardsigmoid": (0.2, 0.5),
    "leakyrelu": (0.01, None),
    "scaledtanh": (1.0, 1.0),
    "thresholdedrelu": (1.0, None),
}


class Activation(NamedTuple):
    """The name of a function, in lower case, and its alpha and beta, where it takes them."""

    name: str
    alpha: float | None
    beta: float | None


def activations_of(node: OperatorNode) -> list[Activation]:
    """Those of all directions; alphas and betas go, in order, to the functions that take one."""
    usual, directions = USUAL[node.op_type], 2 if node["direction"] == "bidirectional" else 1
    names = [name.lower() for name in node.attributes.get("activations") or usual * directions]
    alphas, betas = iter(node.get("activation_alpha") or ()), iter(node.get("activation_beta") or ())
    found = []
    for name in names[: len(usual) * directions]:
        alpha, beta = _DEFAULTS.get(name, (None, None))
        alpha = None if alpha is None else float(next(alphas, alpha))
        beta = None if beta is None else float(next(betas, beta))
        found.append(Activation(name, alpha, beta))
    return found


def activation_functions(
    node: OperatorNode,
    library: ArrayLibrary,
    known: Mapping[str, Function],
    refuse: Callable[[OperatorNode, str, str], UnsupportedError],
) -> list[Function]:
    """The functions of x by ``known``, which has them of (x, alpha, beta), with the node's clipping."""
    clip = node.get("clip")
    found = []
    for at, (name, alpha, beta) in enumerate(activations_of(node)):
        if name not in known:
            raise refuse(node, f"there is no activation function {name!r}", "use one that ONNX lists")
        # As ONNX Runtime does (ONNX's text leaves it open): an LSTM's third, of the cell itself, is not clipped.
        bound = None if node.op_type == "LSTM" and at % 3 == 2 else clip
        found.append(_activation(library, known[name], alpha, beta, bound))
    return found


def _activation(
    library: ArrayLibrary, function: Function, alpha: float | None, beta: float | None, clip: float | None
) -> Function:
    if clip is None:
        return lambda x: function(x, alpha, beta)
    return lambda x: function(library.xp.clip(x, -clip, clip), alpha, beta)


Cell = Callable[..., tuple[Array, ...]]
"""(the inputs' products with the weights, states) -> the new states, the output first."""


def _rnn(node: OperatorNode, library: ArrayLibrary, functions: list[Function], r: Array, b: Array, _: Array) -> Cell:
    (f,) = functions
    return lambda products, hidden: (f(products + library.linear(hidden, r, b)),)


def _gru(node: OperatorNode, library: ArrayLibrary, functions: list[Function], r: Array, b: Array, _: Array) -> Cell:
    (f, g), linear, size = functions, library.linear, r.shape[1]
    after = bool(node["linear_before_reset"])
    gates, last = r[: 2 * size], r[2 * size :]
    gates_bias, last_bias = (None, None) if b is None else (b[: 2 * size], b[2 * size :])

    def step(products: Array, hidden: Array) -> tuple[Array, ...]:
        both = f(products[:, : 2 * size] + linear(hidden, gates, gates_bias))
        update, reset = both[:, :size], both[:, size:]
        candidate = reset * linear(hidden, last, last_bias) if after else linear(reset * hidden, last, last_bias)
        return ((1 - update) * g(products[:, 2 * size :] + candidate) + update * hidden,)

    return step


def _lstm(
    node: OperatorNode, library: ArrayLibrary, functions: list[Function], r: Array, b: Array, peepholes: Array
) -> Cell:
    (f, g, h), size, coupled = functions, r.shape[1], bool(node["input_forget"])

    def step(products: Array, hidden: Array, cell: Array) -> tuple[Array, ...]:
        gates = products + library.linear(hidden, r, b)
        i, o, forget, c = (gates[:, at * size : (at + 1) * size] for at in range(4))
        if peepholes is not None:
            i, forget = i + peepholes[:size] * cell, forget + peepholes[2 * size :] * cell
        opened = f(i)
        kept = 1 - opened if coupled else f(forget)
        new = kept * cell + opened * g(c)
        if peepholes is not None:
            o = o + peepholes[size : 2 * size] * new
        return f(o) * h(new), new

    return step


_CELLS = {"GRU": _gru, "LSTM": _lstm, "RNN": _rnn}


def recurrent(node: OperatorNode, library: ArrayLibrary, functions: list[Function]) -> Function:
    """One time step after the other; the products with the input are taken for all of them at once."""
    xp = library.xp
    reverse = {"forward": [False], "reverse": [True]}.get(node["direction"], [False, True])
    each, batch_first = len(functions) // len(reverse), bool(node.get("layout", 0))

    def direction(
        at: int, x: Array, w: Array, r: Array, b: Array, lengths: Array, states: tuple[Array, ...], peepholes: Array
    ) -> tuple[tuple[Array, ...], Array]:
        rows = w.shape[1]
        products = library.linear(x, w[at], None if b is None else b[at, :rows])
        chosen = functions[at * each : (at + 1) * each]
        holes = None if peepholes is None else peepholes[at]
        cell = _CELLS[node.op_type](node, library, chosen, r[at], None if b is None else b[at, rows:], holes)
        times = np.arange(x.shape[0])
        if reverse[at]:
            products, times = xp.flip(products, axis=0), times[::-1].copy()

        def step(before: tuple[Array, ...], given: tuple[Array, ...]) -> tuple[tuple[Array, ...], Array]:
            after = cell(given[0], *before)
            if lengths is None:
                return after, after[0]
            # Behind the end of a sequence its state stands still and its output is zero.
            running = (given[1] < lengths)[:, None]
            kept = tuple(xp.where(running, new, old) for new, old in zip(after, before, strict=True))
            return kept, xp.where(running, after[0], 0)

        along = (products,) if lengths is None else (products, library.array(times))
        last, outputs = library.scan(step, tuple(state[at] for state in states), along)
        return last, xp.flip(outputs, axis=0) if reverse[at] else outputs

    def layer(
        x: Array,
        w: Array,
        r: Array,
        b: Array | None = None,
        lengths: Array | None = None,
        hidden: Array | None = None,
        cell: Array | None = None,
        peepholes: Array | None = None,
    ) -> tuple[Array, ...]:
        if batch_first:
            x = xp.moveaxis(x, 0, 1)
            hidden, cell = (None if state is None else xp.moveaxis(state, 0, 1) for state in (hidden, cell))
        nothing = library.array(np.zeros((w.shape[0], x.shape[1], r.shape[2]), np.float32))
        given = (hidden, cell) if node.op_type == "LSTM" else (hidden,)
        states = tuple(xp.astype(nothing, x.dtype) if state is None else state for state in given)
        found = [direction(at, x, w, r, b, lengths, states, peepholes) for at in range(len(reverse))]
        lasts = [xp.stack(last) for last in zip(*(last for last, _ in found), strict=True)]
        y = xp.stack([outputs for _, outputs in found], axis=1)
        if not batch_first:
            return y, *lasts
        return xp.permute_dims(y, (2, 0, 1, 3)), *(xp.moveaxis(last, 0, 1) for last in lasts)

    return layer


def linear_attention(node: OperatorNode, library: ArrayLibrary) -> Function:
    """A state of keys by values that each token decays, corrects by the delta rule and adds to, in float32."""
    heads, kv_heads, rule = node["q_num_heads"], node["kv_num_heads"], node["update_rule"]
    gated, corrected = rule in ("gated", "gated_delta"), rule in ("delta", "gated_delta")
    if rule != "linear" and not (gated or corrected):
        raise UnsupportedError(node.title, f"there is no update rule {rule!r}", "use one that ONNX lists")
    xp, einsum = library.xp, library.einsum

    def tokens(x: Array, count: int) -> Array:
        """(batch, tokens, heads times size) as (tokens, batch, heads, size)."""
        return xp.astype(xp.moveaxis(x.reshape((*x.shape[:2], count, -1)), 1, 0), xp.float32)

    def attend(
        query: Array,
        key: Array,
        value: Array,
        past: Array | None = None,
        decay: Array | None = None,
        beta: Array | None = None,
    ) -> tuple[Array, Array]:
        along = {"q": tokens(query, heads), "k": tokens(key, kv_heads), "v": tokens(value, kv_heads)}
        if decay is not None and gated:
            along["decay"] = xp.exp(tokens(decay, kv_heads))
        if beta is not None and corrected:
            along["beta"] = tokens(beta, beta.shape[2])
        scale = node["scale"] or 1 / sqrt(along["q"].shape[3])
        size = (query.shape[0], kv_heads, along["k"].shape[3], along["v"].shape[3])
        first = library.array(np.zeros(size, np.float32)) if past is None else xp.astype(past, xp.float32)

        def step(state: Array, given: tuple[Array, ...]) -> tuple[Array, Array]:
            at = dict(zip(along, given, strict=True))
            written = at["v"]
            if "decay" in at:
                state = state * at["decay"][..., None]
            if "beta" in at:
                written = at["beta"] * (written - einsum("bhkv,bhk->bhv", state, at["k"]))
            state = state + at["k"][..., None] * written[..., None, :]
            read = state if heads == kv_heads else xp.repeat(state, heads // kv_heads, axis=1)
            return state, einsum("bhk,bhkv->bhv", at["q"], read)

        last, outputs = library.scan(step, first, tuple(along.values()))
        output = xp.moveaxis(outputs, 0, 1).reshape((*query.shape[:2], -1)) * scale
        return xp.astype(output, query.dtype), xp.astype(last, query.dtype if past is None else past.dtype)

    return attend
