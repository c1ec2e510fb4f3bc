"""RNN, GRU, LSTM, LinearAttention and Attention, for the frameworks that differentiate automatically.

Recurrent layers are a scan over time. NumPy uses the attention masks and the default activations, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from math import inf, sqrt
from operator import and_
from typing import NamedTuple

import numpy as np
from onnx import TensorProto

from levelbench.errors import UnsupportedError
from levelbench.frameworks.shared.operators import ArrayLibrary, shared_maker
from levelbench.operators.contract import Array, Function
from levelbench.operators.node import OperatorNode

DEFAULT_ACTIVATIONS = {"RNN": ("tanh",), "GRU": ("sigmoid", "tanh"), "LSTM": ("sigmoid", "tanh", "tanh")}
"""The default activations of one direction."""

# Default alpha and beta; ``None`` where the function does not take it.
_DEFAULTS: dict[str, tuple[float | None, float | None]] = {
    "affine": (1.0, 0.0),
    "elu": (1.0, None),
    "hardsigmoid": (0.2, 0.5),
    "leakyrelu": (0.01, None),
    "scaledtanh": (1.0, 1.0),
    "thresholdedrelu": (1.0, None),
}


class Activation(NamedTuple):
    """The name of a function, in lower case, and its alpha and beta if it takes them."""

    name: str
    alpha: float | None
    beta: float | None


def activations_of(node: OperatorNode) -> list[Activation]:
    """The activations of all directions; alphas and betas go, in order, to the functions that take them."""
    usual, directions = DEFAULT_ACTIVATIONS[node.op_type], 2 if node["direction"] == "bidirectional" else 1
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
    """Functions of x with the node's clipping; ``known`` maps names to functions of (x, alpha, beta)."""
    clip = node.get("clip")
    found = []
    for at, (name, alpha, beta) in enumerate(activations_of(node)):
        if name not in known:
            raise refuse(node, f"unknown activation function {name!r}", "use one that ONNX lists")
        # Like ONNX Runtime (ONNX leaves it open): the input of an LSTM's third activation, the cell, is not clipped.
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
"""(the inputs times the weights, states) -> the new states, the output first."""


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
    """One time step after the other; the products with the input are computed for all steps at once."""
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
            # After the end of a sequence its state stays the same and its output is zero.
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


@shared_maker("LinearAttention")
def linear_attention(node: OperatorNode, library: ArrayLibrary) -> Function:
    """Each token decays the state (keys by values), corrects it by the delta rule, and adds to it; in float32."""
    heads, kv_heads, rule = node["q_num_heads"], node["kv_num_heads"], node["update_rule"]
    gated, corrected = rule in ("gated", "gated_delta"), rule in ("delta", "gated_delta")
    if rule != "linear" and not (gated or corrected):
        raise UnsupportedError(node.title, f"unknown update rule {rule!r}", "use one that ONNX lists")
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


Allowed = Callable[[int, int, int | None, Array | None], Array | None]
"""(queries, keys, cached keys, valid keys of each sample) -> which keys each query may attend to, broadcastable to
(batch, heads, queries, keys); ``None`` for all. The number of cached keys is ``None`` without a cache, the number of
valid keys without nonpad_kv_seqlen."""
Fused = Callable[[Array, Array, Array, Array | None, bool], Array]
"""(query, key, value, mask, causal) -> the result of a fused kernel."""

_AS_FUSED = (None, TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
"""Softmax precisions that a fused kernel meets: it computes in float32 or in the inputs' type."""


def allowed_by(node: OperatorNode, arange: Callable[[int], Array]) -> Allowed:
    """The mask from causal order, window and lengths; ``arange(n)`` creates the integers from 0 on."""
    causal = bool(node["is_causal"])
    left, right = node.get("left_window_size", -1), node.get("right_window_size", -1)
    ordered = causal or left >= 0 or right >= 0

    def allowed(queries: int, keys: int, past: int | None, lengths: Array | None) -> Array | None:
        conditions = []
        at = arange(keys) if ordered or lengths is not None else None
        valid = None if lengths is None else lengths.reshape((-1, 1, 1, 1))
        if ordered:
            # Queries follow the cached keys or, without a cache, are at the end of the valid ones.
            offset = valid - queries if past is None and valid is not None else past or 0
            here = arange(queries)[:, None] + offset
            if causal:
                conditions.append(at <= here)
            if left >= 0:
                conditions.append(at >= here - left)
            if right >= 0:
                conditions.append(at <= here + right)
        if valid is not None:
            conditions.append(at < valid)
        return reduce(and_, conditions) if conditions else None

    return allowed


@shared_maker("Attention")
def attention(node: OperatorNode, library: ArrayLibrary, fused: Fused | None = None) -> Function:
    """softmax(cap(q k^T scale) + bias) v; by ``fused``, if given, wherever only the result is needed.

    Keys that a query may not attend to are minus infinity in the bias; a query without any key gets zeros.
    """
    xp, scale, cap, precision = library.xp, node.get("scale"), node["softcap"], node.get("softmax_precision")
    heads, kv_heads = node.get("q_num_heads"), node.get("kv_num_heads")
    mode = node["qk_matmul_output_mode"] if len(node.outputs) > 3 and node.outputs[3] else None
    wide = library.dtype_of(precision) if precision else None
    exact, fused = precision in _AS_FUSED, fused if mode is None and cap == 0 else None
    causal, allowed_keys = bool(node["is_causal"]), allowed_by(node, library.arange)
    windowed = node.get("left_window_size", -1) >= 0 or node.get("right_window_size", -1) >= 0

    def split(x: Array, count: int) -> Array:
        """(batch, sequence, heads times size) as (batch, heads, sequence, size)."""
        return x.reshape((*x.shape[:2], count, -1)).swapaxes(1, 2)

    def composed(query: Array, key: Array, value: Array, bias: Array | None) -> tuple[Array, Array | None]:
        """Step by step; also returns the requested intermediate result."""
        repeats = query.shape[1] // key.shape[1]
        if repeats > 1:
            key, value = xp.repeat(key, repeats, axis=1), xp.repeat(value, repeats, axis=1)
        root = sqrt(1 / sqrt(query.shape[3]) if scale is None else scale)
        raw = library.matmul(query * root, (key * root).swapaxes(2, 3))
        capped = cap * xp.tanh(raw / cap) if cap > 0 else raw
        biased = capped if bias is None else capped + bias
        scores = biased if wide is None else xp.astype(biased, wide)
        if bias is None:
            weights = library.softmax(scores)
        else:
            # Found from the bias: the scores of a query without keys may be anything.
            blind = xp.all(bias == -inf, axis=-1, keepdims=True)
            # Masked before the softmax too, whose gradient would be NaN there.
            weights = xp.where(blind, 0, library.softmax(xp.where(blind, 0, scores)))
        weights = xp.astype(weights, query.dtype)
        shown = None if mode is None else xp.astype((raw, capped, biased, weights)[mode], query.dtype)
        return library.matmul(xp.astype(weights, value.dtype), value), shown

    def attend(
        query: Array,
        key: Array,
        value: Array,
        mask: Array | None = None,
        past_key: Array | None = None,
        past_value: Array | None = None,
        lengths: Array | None = None,
    ) -> tuple[Array | None, ...]:
        flat = query.ndim == 3
        if flat:
            query, key, value = split(query, heads), split(key, kv_heads), split(value, kv_heads)
        past = None if past_key is None else past_key.shape[2]
        if past is not None:
            key, value = xp.concat([past_key, key], axis=2), xp.concat([past_value, value], axis=2)
        keys = key.shape[2]
        alike = query.dtype == value.dtype and (mask is None or mask.dtype in (xp.bool, query.dtype))
        kernel = fused if alike and (exact or wide == query.dtype) else None
        shown = None
        if kernel and mask is None and lengths is None and not windowed and not (causal and past):
            output = kernel(query, key, value, None, causal)
        else:
            allowed = allowed_keys(query.shape[2], keys, past, lengths)
            if mask is not None and mask.shape[-1] < keys:
                # Keys after the end of a short mask are hidden.
                end = xp.full_like(mask[..., :1], False if mask.dtype == xp.bool else -inf)
                mask = xp.concat([mask, xp.broadcast_to(end, (*mask.shape[:-1], keys - mask.shape[-1]))], axis=-1)
            if mask is not None and mask.dtype == xp.bool:
                allowed, mask = mask if allowed is None else allowed & mask, None
            if kernel:
                bias = mask if mask is None or allowed is None else xp.where(allowed, mask, -inf)
                output = kernel(query, key, value, allowed if bias is None else bias, False)
            else:
                hidden = None if allowed is None else xp.astype(xp.where(allowed, 0.0, -inf), query.dtype)
                bias = hidden if mask is None else mask if hidden is None else mask + hidden
                output, shown = composed(query, key, value, bias)
        if flat:
            output = output.swapaxes(1, 2).reshape((query.shape[0], query.shape[2], -1))
        return output, key, value, shown

    return attend
