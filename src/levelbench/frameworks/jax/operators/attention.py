"""Attention with caches, masks, grouped heads and windows; RotaryEmbedding; LinearAttention.

The one idea: whatever a query may not see is minus infinity in one additive bias, and a query that may see nothing
answers with zeros.
"""

from __future__ import annotations

from math import sqrt
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from levelbench.frameworks.jax.arrays import numpy_dtype
from levelbench.frameworks.jax.operators.linear import PRECISION
from levelbench.frameworks.jax.operators.registry import Function, maker, refuse
from levelbench.operators.node import OperatorNode

__all__: list[str] = []

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


@maker("RotaryEmbedding")
def _rotary_embedding(node: OperatorNode) -> Function:
    interleaved, size = bool(node["interleaved"]), int(node["rotary_embedding_dim"])

    def rotary_embedding(x: Any, cosine: Any, sine: Any, positions: Any = None) -> Any:
        flat = x.ndim == 3
        split = x.reshape(*x.shape[:2], int(node["num_heads"]), -1) if flat else x.transpose(0, 2, 1, 3)
        turning, still = split[..., : size or None], split[..., size or split.shape[-1] :]
        if positions is not None:
            cosine, sine = cosine[positions], sine[positions]
        cosine, sine = cosine[:, :, None], sine[:, :, None]
        if interleaved:
            real, imaginary = turning[..., 0::2], turning[..., 1::2]
        else:
            real, imaginary = jnp.split(turning, 2, -1)
        turned = cosine * real - sine * imaginary, sine * real + cosine * imaginary
        joined = jnp.stack(turned, -1).reshape(turning.shape) if interleaved else jnp.concatenate(turned, -1)
        y = jnp.concatenate([joined, still], -1)
        return y.reshape(x.shape) if flat else y.transpose(0, 2, 1, 3)

    return rotary_embedding


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
