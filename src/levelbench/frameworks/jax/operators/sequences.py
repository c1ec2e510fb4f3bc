"""Sequences: RNN, GRU and LSTM as a scan over time, Attention, RotaryEmbedding and LinearAttention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from levelbench.frameworks.jax.arrays import numpy_dtype
from levelbench.frameworks.jax.operators.reductions import PRECISION
from levelbench.frameworks.jax.operators.registry import Function, maker, refuse
from levelbench.operators.node import OperatorNode

Cell = Callable[[Sequence[Any], Any, Any], tuple[Any, ...]]
"""(state, the input's share of the gates, recurrent weights) -> new state, its first part the output."""

# Defaults of alpha and beta are those of the operators of these names.
_ACTIVATIONS: dict[str, tuple[Callable[[Any, float, float], Any], float, float]] = {
    "affine": (lambda x, alpha, beta: alpha * x + beta, 1.0, 0.0),
    "elu": (lambda x, alpha, _: jax.nn.elu(x, alpha), 1.0, 0.0),
    "hardsigmoid": (lambda x, alpha, beta: jnp.clip(alpha * x + beta, 0, 1), 0.2, 0.5),
    "leakyrelu": (lambda x, alpha, _: jax.nn.leaky_relu(x, alpha), 0.01, 0.0),
    "relu": (lambda x, _, __: jax.nn.relu(x), 0.0, 0.0),
    "scaledtanh": (lambda x, alpha, beta: alpha * jnp.tanh(beta * x), 1.0, 1.0),
    "sigmoid": (lambda x, _, __: jax.nn.sigmoid(x), 0.0, 0.0),
    "softplus": (lambda x, _, __: jax.nn.softplus(x), 0.0, 0.0),
    "softsign": (lambda x, _, __: jax.nn.soft_sign(x), 0.0, 0.0),
    "tanh": (lambda x, _, __: jnp.tanh(x), 0.0, 0.0),
    "thresholdedrelu": (lambda x, alpha, _: jnp.where(x > alpha, x, 0), 1.0, 0.0),
}
_TAKES = {"affine": 2, "hardsigmoid": 2, "scaledtanh": 2, "elu": 1, "leakyrelu": 1, "thresholdedrelu": 1}
"""How many of alpha and beta an activation reads from the node's lists."""


def _activations(node: OperatorNode, default: Sequence[str]) -> list[Callable[[Any], Any]]:
    """One function a gate and direction; the lists of alphas and betas hold those that are needed, in order."""
    directions = 2 if node["direction"] == "bidirectional" else 1
    names = node.get("activations") or list(default) * directions
    alphas, betas = list(node.get("activation_alpha") or []), list(node.get("activation_beta") or [])
    clip = node.get("clip")
    found = []
    for at, name in enumerate(names):
        if name.lower() not in _ACTIVATIONS:
            raise refuse(node, f"there is no activation {name!r}")
        function, alpha, beta = _ACTIVATIONS[name.lower()]
        takes = _TAKES.get(name.lower(), 0)
        alpha = alphas.pop(0) if takes > 0 and alphas else alpha
        beta = betas.pop(0) if takes > 1 and betas else beta
        # As ONNX Runtime does (ONNX's text leaves it open): an LSTM's third, of the cell itself, is not clipped.
        found.append(_clipped(function, alpha, beta, None if node.op_type == "LSTM" and at % 3 == 2 else clip))
    return found


def _clipped(function: Any, alpha: float, beta: float, clip: float | None) -> Callable[[Any], Any]:
    if clip is None:
        return lambda x: function(x, alpha, beta)
    return lambda x: function(jnp.clip(x, -clip, clip), alpha, beta)


def _dot(a: Any, b: Any) -> Any:
    """``a`` times the transpose of ``b``."""
    return jnp.matmul(a, b.T, precision=PRECISION)


def _run(cell: Cell, given: Any, recurrent: Any, state: tuple[Any, ...], lengths: Any, reverse: bool) -> Any:
    """Outputs of shape (time, batch, hidden) and the last state, from the inputs' share (time, batch, gates)."""
    time = jnp.arange(given.shape[0])
    if reverse:
        given = _turned(given, lengths)

    def step(before: tuple[Any, ...], at: tuple[Any, Any]) -> tuple[tuple[Any, ...], Any]:
        moment, share = at
        after = cell(before, share, recurrent)
        if lengths is None:
            return after, after[0]
        going = (moment < lengths)[:, None]
        kept = tuple(jnp.where(going, new, old) for new, old in zip(after, before, strict=True))
        return kept, jnp.where(going, after[0], 0)

    last, outputs = lax.scan(step, state, (time, given))
    return _turned(outputs, lengths) if reverse else outputs, last


def _turned(x: Any, lengths: Any) -> Any:
    """Each sequence backwards, its padding where it was."""
    if lengths is None:
        return jnp.flip(x, 0)
    time = jnp.arange(x.shape[0])[:, None]
    source = jnp.where(time < lengths, lengths - 1 - time, time)
    return jnp.take_along_axis(x, source[..., None], 0)


def _layer(
    node: OperatorNode, x: Any, weight: Any, recurrent: Any, lengths: Any, states: Any, parts: Any
) -> tuple[Any, ...]:
    """All directions: ``parts(direction)`` gives the bias of the inputs' share and the cell."""
    first_batch = bool(node.get("layout", 0))
    x = jnp.swapaxes(x, 0, 1) if first_batch else x
    directions, hidden = weight.shape[0], recurrent.shape[2]
    zeros = jnp.zeros((directions, x.shape[1], hidden), x.dtype)
    states = [zeros if each is None else jnp.swapaxes(each, 0, 1) if first_batch else each for each in states]
    outputs, lasts = [], []
    for at in range(directions):
        bias, cell = parts(at)
        share = _dot(x, weight[at]) + bias
        reverse = at == 1 or node["direction"] == "reverse"
        y, last = _run(cell, share, recurrent[at], tuple(each[at] for each in states), lengths, reverse)
        outputs.append(y)
        lasts.append(last)
    y, ends = jnp.stack(outputs, 1), [jnp.stack(each) for each in zip(*lasts, strict=True)]
    if first_batch:
        return y.transpose(2, 0, 1, 3), *(jnp.swapaxes(each, 0, 1) for each in ends)
    return y, *ends


def _biases(bias: Any, at: int, gates: int, hidden: int, dtype: Any) -> tuple[Any, Any]:
    """Of the inputs and of the state."""
    if bias is None:
        return jnp.zeros(gates * hidden, dtype), jnp.zeros(gates * hidden, dtype)
    return bias[at, : gates * hidden], bias[at, gates * hidden :]


@maker("RNN")
def _rnn(node: OperatorNode) -> Function:
    functions = _activations(node, ["Tanh"])

    def rnn(x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None) -> Any:
        def parts(at: int) -> tuple[Any, Cell]:
            def cell(state: Sequence[Any], share: Any, weight: Any) -> tuple[Any, ...]:
                return (functions[at](share + _dot(state[0], weight)),)

            return sum(_biases(b, at, 1, r.shape[2], x.dtype)), cell

        return _layer(node, x, w, r, lengths, [h], parts)

    return rnn


@maker("GRU")
def _gru(node: OperatorNode) -> Function:
    functions, linear = _activations(node, ["Sigmoid", "Tanh"]), bool(node["linear_before_reset"])

    def gru(x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None) -> Any:
        hidden = r.shape[2]

        def parts(at: int) -> tuple[Any, Cell]:
            gate, candidate = functions[2 * at : 2 * at + 2]
            given, own = _biases(b, at, 3, hidden, x.dtype)
            # The candidate's own bias is added before the reset gate where it comes last.
            early = own.at[2 * hidden :].set(0) if linear else own

            def cell(state: Sequence[Any], share: Any, weight: Any) -> tuple[Any, ...]:
                before = state[0]
                both = gate(share[:, : 2 * hidden] + _dot(before, weight[: 2 * hidden]))
                update, reset = both[:, :hidden], both[:, hidden:]
                if linear:
                    memory = reset * (_dot(before, weight[2 * hidden :]) + own[2 * hidden :])
                else:
                    memory = _dot(reset * before, weight[2 * hidden :])
                return ((1 - update) * candidate(share[:, 2 * hidden :] + memory) + update * before,)

            return given + early, cell

        return _layer(node, x, w, r, lengths, [h], parts)

    return gru


@maker("LSTM")
def _lstm(node: OperatorNode) -> Function:
    functions, coupled = _activations(node, ["Sigmoid", "Tanh", "Tanh"]), bool(node["input_forget"])

    def lstm(
        x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None, c: Any = None, p: Any = None
    ) -> Any:
        hidden = r.shape[2]

        def parts(at: int) -> tuple[Any, Cell]:
            gate, candidate, output = functions[3 * at : 3 * at + 3]
            peep = jnp.zeros((3, hidden), x.dtype) if p is None else p[at].reshape(3, hidden)

            def cell(state: Sequence[Any], share: Any, weight: Any) -> tuple[Any, ...]:
                before, memory = state
                i, o, f, new = jnp.split(share + _dot(before, weight), 4, -1)
                i = gate(i + peep[0] * memory)
                f = 1 - i if coupled else gate(f + peep[2] * memory)
                memory = f * memory + i * candidate(new)
                return gate(o + peep[1] * memory) * output(memory), memory

            return sum(_biases(b, at, 4, hidden, x.dtype)), cell

        return _layer(node, x, w, r, lengths, [h, c], parts)

    return lstm


# Attention with caches, masks, grouped heads and windows; RotaryEmbedding; LinearAttention.
# Whatever a query may not see is minus infinity in one additive bias, and a query that may see nothing answers with
# zeros.


# What qk_matmul_output shows: the scores, with softcap, with the bias too, or their softmax.
_RAW, _CAPPED, _BIASED, _PROBABILITIES = range(4)


class _Heads(NamedTuple):
    """Four-dimensional (batch, heads, length, size) queries, and keys and values with those of the past before them."""

    query: Any
    key: Any
    value: Any
    past: int


def _split(x: Any, heads: int) -> Any:
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def _merge(x: Any) -> Any:
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def _mask_bias(mask: Any, length: int, dtype: Any) -> Any:
    """A mask as a bias, with minus infinity for keys behind its end."""
    missing = length - mask.shape[-1]
    if mask.dtype == bool:
        mask = jnp.where(mask, 0, -jnp.inf).astype(dtype)
    return jnp.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, missing)], constant_values=-jnp.inf)


def _bias(node: OperatorNode, heads: _Heads, mask: Any, lengths: Any) -> Any:
    """What is added to the scores of (batch, heads, queries, keys), broadcast to them; ``None`` for nothing."""
    dtype = heads.query.dtype
    queries, keys = heads.query.shape[2], heads.key.shape[2]
    left, right = int(node.get("left_window_size", -1)), int(node.get("right_window_size", -1))
    parts = [] if mask is None else [_mask_bias(mask, keys, dtype)]
    # A query's position among the keys: behind the past ones, or at the end of those that are no padding.
    offset: Any = heads.past
    if lengths is not None:
        offset = (lengths.astype(jnp.int64) - queries).reshape(-1, 1, 1, 1)
        parts.append(_hidden(jnp.arange(keys) < lengths.reshape(-1, 1, 1, 1), dtype))
    ahead = jnp.arange(keys) - (jnp.arange(queries)[:, None] + offset)
    if node["is_causal"]:
        parts.append(_hidden(ahead <= 0, dtype))
    if left >= 0:
        parts.append(_hidden(-ahead <= left, dtype))
    if right >= 0:
        parts.append(_hidden(ahead <= right, dtype))
    return sum(parts[1:], parts[0]) if parts else None


def _hidden(seen: Any, dtype: Any) -> Any:
    return jnp.where(seen, 0, -jnp.inf).astype(dtype)


def _probabilities(node: OperatorNode, scores: Any, bias: Any) -> Any:
    """The softmax over keys in the precision asked for; zeros for a query that sees none."""
    precision = node.get("softmax_precision")
    wide = scores if not precision else scores.astype(numpy_dtype(int(precision)))
    if bias is None:
        return jax.nn.softmax(wide, -1)
    blind = jnp.max(bias, -1, keepdims=True) == -jnp.inf
    return jnp.where(blind, 0, jax.nn.softmax(jnp.where(blind, 0, wide), -1))


def _repeated(x: Any, heads: int) -> Any:
    """Key or value heads, each as often as queries share it."""
    return x if x.shape[1] == heads else jnp.repeat(x, heads // x.shape[1], 1)


@maker("Attention")
def _attention(node: OperatorNode) -> Function:
    softcap, mode = float(node["softcap"]), int(node["qk_matmul_output_mode"])

    def attention(
        query: Any,
        key: Any,
        value: Any,
        mask: Any = None,
        past_key: Any = None,
        past_value: Any = None,
        lengths: Any = None,
    ) -> Any:
        flat = query.ndim == 3
        if flat:
            query = _split(query, int(node["q_num_heads"]))
            key, value = (_split(each, int(node["kv_num_heads"])) for each in (key, value))
        if past_key is not None:
            key, value = jnp.concatenate([past_key, key], 2), jnp.concatenate([past_value, value], 2)
        heads = _Heads(query, key, value, 0 if past_key is None else past_key.shape[2])
        factor = jnp.asarray(sqrt(float(node.get("scale") or 1 / sqrt(query.shape[3]))), query.dtype)
        keys = _repeated(key, query.shape[1])
        raw = jnp.matmul(query * factor, jnp.swapaxes(keys * factor, 2, 3), precision=PRECISION)
        capped = softcap * jnp.tanh(raw / softcap) if softcap > 0 else raw
        bias = _bias(node, heads, mask, lengths)
        biased = capped if bias is None else capped + bias
        probabilities = _probabilities(node, biased, bias)
        y = jnp.matmul(probabilities.astype(query.dtype), _repeated(value, query.shape[1]), precision=PRECISION)
        shown = {_RAW: raw, _CAPPED: capped, _BIASED: biased, _PROBABILITIES: probabilities}[mode]
        return _merge(y) if flat else y, key, value, shown.astype(query.dtype)

    return attention


@maker("LinearAttention")
def _linear_attention(node: OperatorNode) -> Function:
    """A state of keys by values that each step decays, corrects by the delta rule and adds to, in float32."""
    query_heads, heads, rule = int(node["q_num_heads"]), int(node["kv_num_heads"]), node["update_rule"]
    if rule not in {"linear", "gated", "delta", "gated_delta"}:
        raise refuse(node, f"there is no update rule {rule!r}")

    def linear_attention(
        query: Any, key: Any, value: Any, past: Any = None, decay: Any = None, beta: Any = None
    ) -> Any:
        q, k, v = (
            _split(each, count).astype(jnp.float32)
            for each, count in ((query, query_heads), (key, heads), (value, heads))
        )
        scale = float(node.get("scale") or 1 / sqrt(q.shape[3]))
        state_type = query.dtype if past is None else past.dtype
        first = jnp.zeros((q.shape[0], heads, q.shape[3], v.shape[3]), jnp.float32) if past is None else past
        steps: dict[str, Any] = {"q": q, "k": k, "v": v}
        if decay is not None:
            steps["decay"] = _split(decay, heads).astype(jnp.float32)
        if beta is not None:
            steps["beta"] = _split(beta, beta.shape[2]).astype(jnp.float32)

        def step(state: Any, at: dict[str, Any]) -> tuple[Any, Any]:
            written = at["v"]
            if "decay" in at:
                state = state * jnp.exp(at["decay"])[..., None]
            if "beta" in at:
                known = jnp.einsum("bhkv,bhk->bhv", state, at["k"], precision=PRECISION)
                written = at["beta"] * (written - known)
            state = state + at["k"][..., None] * written[..., None, :]
            read = jnp.einsum("bhk,bhkv->bhv", at["q"], _repeated(state, query_heads), precision=PRECISION)
            return state, scale * read

        along = {name: jnp.moveaxis(each, 2, 0) for name, each in steps.items()}
        last, outputs = lax.scan(step, first.astype(jnp.float32), along)
        return _merge(jnp.moveaxis(outputs, 0, 2)).astype(query.dtype), last.astype(state_type)

    return linear_attention
