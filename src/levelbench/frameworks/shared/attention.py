"""Attention: what each query may see, for every framework, and the rest for those that differentiate by themselves."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import inf, sqrt
from operator import and_

from onnx import TensorProto

from levelbench.frameworks.shared.operators import ArrayLibrary
from levelbench.frameworks.shared.registry import Function
from levelbench.operators.contract import Array
from levelbench.operators.node import OperatorNode

__all__ = ["Allowed", "Fused", "allowed_by", "attention"]

Allowed = Callable[[int, int, int | None, Array | None], Array | None]
"""(queries, keys, cached keys, valid keys of each sample) -> which keys each query may see, broadcastable to (batch,
heads, queries, keys); ``None`` for all. The numbers of cached and of valid keys are ``None`` without a cache and
without nonpad_kv_seqlen."""
Fused = Callable[[Array, Array, Array, Array | None, bool], Array]
"""(query, key, value, mask, causal) -> the result, by a kernel that does all steps at once."""

_AS_FUSED = (None, TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
"""Precisions of the softmax that a fused kernel, which has float's or the inputs', does not fall short of."""


def allowed_by(node: OperatorNode, arange: Callable[[int], Array]) -> Allowed:
    """By causal order, window and lengths; ``arange`` makes the numbers from 0 on."""
    causal = bool(node["is_causal"])
    left, right = node.get("left_window_size", -1), node.get("right_window_size", -1)
    ordered = causal or left >= 0 or right >= 0

    def allowed(queries: int, keys: int, past: int | None, lengths: Array | None) -> Array | None:
        conditions = []
        at = arange(keys) if ordered or lengths is not None else None
        valid = None if lengths is None else lengths.reshape((-1, 1, 1, 1))
        if ordered:
            # A query stands behind the cached keys or, without a cache, at the end of the valid ones.
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


def attention(node: OperatorNode, library: ArrayLibrary, fused: Fused | None = None) -> Function:
    """softmax(cap(q k^T scale) + bias) v; by ``fused``, if it is given, wherever only the result is asked for.

    What a query may not see is minus infinity in the bias, and a query that sees no key gets zeros.
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
        """Step by step, with what is asked of the steps in between."""
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
            # Seen from the bias: scores of a query that sees no key may be anything.
            blind = xp.all(bias == -inf, axis=-1, keepdims=True)
            # Before the softmax too, whose gradient would be no number there.
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
                # The keys behind the end of a short mask are hidden.
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
