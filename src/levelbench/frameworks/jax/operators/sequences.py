"""Sequences: RNN, GRU, LSTM and LinearAttention with JAX's functions, and Attention."""

from __future__ import annotations

from math import sqrt
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from levelbench.frameworks.jax.arrays import DType, numpy_dtype
from levelbench.frameworks.jax.operators.registry import LIBRARY, PRECISION, Function, maker, operator, refuse
from levelbench.frameworks.shared.sequences import activation_functions, linear_attention, recurrent
from levelbench.operators.node import OperatorNode

_ACTIVATIONS: dict[str, Function] = {
    "affine": lambda x, alpha, beta: alpha * x + beta,
    "elu": lambda x, alpha, _: jax.nn.elu(x, alpha),
    "hardsigmoid": lambda x, alpha, beta: jnp.clip(alpha * x + beta, 0, 1),
    "leakyrelu": lambda x, alpha, _: jax.nn.leaky_relu(x, alpha),
    "relu": lambda x, _, __: jax.nn.relu(x),
    "scaledtanh": lambda x, alpha, beta: alpha * jnp.tanh(beta * x),
    "sigmoid": lambda x, _, __: jax.nn.sigmoid(x),
    "softplus": lambda x, _, __: jax.nn.softplus(x),
    "softsign": lambda x, _, __: jax.nn.soft_sign(x),
    "tanh": lambda x, _, __: jnp.tanh(x),
    "thresholdedrelu": lambda x, alpha, _: jnp.where(x > alpha, x, 0),
}


@maker("RNN", "GRU", "LSTM")
def _recurrent(node: OperatorNode) -> Function:
    return recurrent(node, LIBRARY, activation_functions(node, LIBRARY, _ACTIVATIONS, refuse))


@maker("LinearAttention")
def _linear_attention(node: OperatorNode) -> Function:
    return linear_attention(node, LIBRARY)


# Attention with caches, masks, grouped heads and windows.
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


def _split(x: Array, heads: int) -> Array:
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def _merge(x: Array) -> Array:
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def _mask_bias(mask: Array, length: int, dtype: DType) -> Array:
    """A mask as a bias, with minus infinity for keys behind its end."""
    missing = length - mask.shape[-1]
    if mask.dtype == bool:
        mask = jnp.where(mask, 0, -jnp.inf).astype(dtype)
    return jnp.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, missing)], constant_values=-jnp.inf)


def _bias(node: OperatorNode, heads: _Heads, mask: Array, lengths: Array) -> Array:
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


def _hidden(seen: Array, dtype: DType) -> Array:
    return jnp.where(seen, 0, -jnp.inf).astype(dtype)


def _probabilities(node: OperatorNode, scores: Array, bias: Array) -> Array:
    """The softmax over keys in the precision asked for; zeros for a query that sees none."""
    precision = node.get("softmax_precision")
    wide = scores if not precision else scores.astype(numpy_dtype(int(precision)))
    if bias is None:
        return jax.nn.softmax(wide, -1)
    blind = jnp.max(bias, -1, keepdims=True) == -jnp.inf
    return jnp.where(blind, 0, jax.nn.softmax(jnp.where(blind, 0, wide), -1))


def _repeated(x: Array, heads: int) -> Array:
    """Key or value heads, each as often as queries share it."""
    return x if x.shape[1] == heads else jnp.repeat(x, heads // x.shape[1], 1)


@operator("Attention")
def _attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    lengths: Array | None = None,
    *,
    node: OperatorNode,
    softcap: float,
    qk_matmul_output_mode: int,
) -> tuple[Array, ...]:
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
    shown = {_RAW: raw, _CAPPED: capped, _BIASED: biased, _PROBABILITIES: probabilities}[qk_matmul_output_mode]
    return _merge(y) if flat else y, key, value, shown.astype(query.dtype)
