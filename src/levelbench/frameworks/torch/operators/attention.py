"""Attention, by PyTorch's fused kernels wherever only the result is asked for, and rotary position embedding.

The one idea: which keys a query may see (causal order, window, lengths, a boolean mask) is one boolean tensor; a
floating-point mask is added, with minus infinity where that tensor says no. A query that sees no key gets zeros.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from levelbench.frameworks.torch.arrays import torch_dtype
from levelbench.frameworks.torch.operators.registry import Function, maker
from levelbench.operators.node import OperatorNode

__all__: list[str] = []


@maker("Attention")
def _attention(node: OperatorNode) -> Function:
    attention = _Attention(node)
    scale, causal = node.get("scale"), bool(node["is_causal"])
    bare = len(node.outputs) == 1 and node["softcap"] == 0 and node.get("softmax_precision") is None
    bare = bare and node.get("left_window_size", -1) < 0 and node.get("right_window_size", -1) < 0
    if not bare:
        return attention

    def attend(query: Tensor, key: Tensor, value: Tensor, *others: Tensor | None) -> Any:
        if others or query.dim() != 4 or query.shape[1] != key.shape[1] or query.dtype != value.dtype:
            return attention(query, key, value, *others)
        return functional.scaled_dot_product_attention(query, key, value, None, 0.0, causal, scale=scale)

    return attend


class _Attention:
    """Attributes as they are called with."""

    def __init__(self, node: OperatorNode) -> None:
        self._causal, self._scale, self._cap = bool(node["is_causal"]), node.get("scale"), node["softcap"]
        self._heads, self._kv_heads = node.get("q_num_heads"), node.get("kv_num_heads")
        self._left, self._right = node.get("left_window_size", -1), node.get("right_window_size", -1)
        self._mode = node["qk_matmul_output_mode"] if len(node.outputs) > 3 and node.outputs[3] else None
        precision = node.get("softmax_precision")
        self._precision = None if precision is None else torch_dtype(precision)

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        past_key: Tensor | None = None,
        past_value: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> tuple[Tensor | None, ...]:
        flat = query.dim() == 3
        if flat:
            query = _heads(query, self._heads)
            key, value = _heads(key, self._kv_heads), _heads(value, self._kv_heads)
        offset: Any = 0
        if past_key is not None and past_value is not None:
            offset = past_key.shape[2]
            key, value = torch.cat([past_key, key], 2), torch.cat([past_value, value], 2)
        elif lengths is not None:
            offset = (lengths - query.shape[2]).reshape(-1, 1, 1, 1)
        if mask is not None and mask.shape[-1] < key.shape[2]:
            short = key.shape[2] - mask.shape[-1]
            mask = functional.pad(mask, (0, short), value=False if mask.dtype == torch.bool else -math.inf)
        output, products = self._attend(query, key, value, mask, offset, lengths)
        if flat:
            output = output.transpose(1, 2).flatten(2)
        return output, key, value, products

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, offset: Any, lengths: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        windowed = self._left >= 0 or self._right >= 0
        fused = self._mode is None and self._cap == 0 and self._fusible(query, value, mask)
        if fused and mask is None and not windowed and lengths is None and (not self._causal or offset == 0):
            return self._fused(query, key, value, None, self._causal), None
        allowed = self._allowed(query, key, offset, lengths)
        if mask is not None and mask.dtype == torch.bool:
            allowed, mask = mask if allowed is None else allowed & mask, None
        if fused:
            bias = allowed if mask is None else _masked(mask, allowed)
            return self._fused(query, key, value, bias, False), None
        return self._composed(query, key, value, mask, allowed)

    def _fusible(self, query: Tensor, value: Tensor, mask: Tensor | None) -> bool:
        """Whether the types are alike, and the softmax no more precise than the fused one, which is float's or T's."""
        if query.dtype != value.dtype or (mask is not None and mask.dtype not in (torch.bool, query.dtype)):
            return False
        return self._precision in (None, torch.float32, torch.float16, torch.bfloat16, query.dtype)

    def _fused(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        shared = query.shape[1] != key.shape[1]
        return functional.scaled_dot_product_attention(
            query, key, value, mask, 0.0, causal, scale=self._scale, enable_gqa=shared
        )

    def _allowed(self, query: Tensor, key: Tensor, offset: Any, lengths: Tensor | None) -> Tensor | None:
        """Which keys each query may see, (queries, keys) or with a batch in front; ``None`` for all."""
        keys = torch.arange(key.shape[2], device=query.device)
        at = torch.arange(query.shape[2], device=query.device).unsqueeze(1) + offset
        conditions = []
        if self._causal:
            conditions.append(keys <= at)
        if self._left >= 0:
            conditions.append(keys >= at - self._left)
        if self._right >= 0:
            conditions.append(keys <= at + self._right)
        if lengths is not None:
            conditions.append(keys < lengths.reshape(-1, 1, 1, 1))
        allowed = None
        for each in conditions:
            allowed = each if allowed is None else allowed & each
        return allowed

    def _composed(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, allowed: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Step by step: softmax(cap(q k^T scale) + bias) v, with what is asked of the steps in between."""
        repeats = query.shape[1] // key.shape[1]
        if repeats > 1:
            key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
        root = math.sqrt(1 / math.sqrt(query.shape[3]) if self._scale is None else self._scale)
        steps = [torch.matmul(query * root, (key * root).transpose(2, 3))]
        steps.append(self._cap * torch.tanh(steps[0] / self._cap) if self._cap > 0 else steps[0])
        bias = _bias(mask, allowed, query.dtype)
        steps.append(steps[1] if bias is None else steps[1] + bias)
        scores = steps[2] if self._precision is None else steps[2].to(self._precision)
        # Seen from the bias: scores of a query that sees no key may be anything.
        blind = None if bias is None else torch.isneginf(bias).all(-1, keepdim=True)
        # Before the softmax too, whose gradient would be no number there.
        weights = torch.softmax(scores if blind is None else scores.masked_fill(blind, 0), -1)
        if blind is not None:
            weights = weights.masked_fill(blind, 0)
        steps.append(weights.to(query.dtype))
        output = torch.matmul(steps[3].to(value.dtype), value)
        return output, None if self._mode is None else steps[self._mode]


def _heads(x: Tensor, count: int) -> Tensor:
    """(batch, sequence, heads times size) as (batch, heads, sequence, size)."""
    return x.unflatten(2, (count, -1)).transpose(1, 2)


def _masked(mask: Tensor, allowed: Tensor | None) -> Tensor:
    return mask if allowed is None else torch.where(allowed, mask, -math.inf)


def _bias(mask: Tensor | None, allowed: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    if mask is not None:
        return _masked(mask, allowed)
    if allowed is None:
        return None
    return torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill(~allowed, -math.inf)


@maker("RotaryEmbedding")
def _rotary_embedding(node: OperatorNode) -> Function:
    """Rotates pairs of components by the angle of their position (Su et al. 2021, RoFormer)."""
    interleaved, heads = bool(node["interleaved"]), node.get("num_heads")
    part = node.get("rotary_embedding_dim")

    def rotate(x: Tensor, cosines: Tensor, sines: Tensor, positions: Tensor | None = None) -> Tensor:
        flat = x.dim() == 3
        rows = x.unflatten(2, (heads, -1)) if flat else x.transpose(1, 2)
        if positions is not None:
            cosines, sines = cosines[positions], sines[positions]
        # (batch, sequence, 1, half the rotated size), for all heads.
        cosines, sines = cosines.unsqueeze(2), sines.unsqueeze(2)
        turned = rows[..., :part] if part else rows
        if interleaved:
            a, b = turned[..., 0::2], turned[..., 1::2]
        else:
            a, b = turned.chunk(2, -1)
        pair = (a * cosines - b * sines, a * sines + b * cosines)
        found = torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1)
        if part:
            found = torch.cat([found, rows[..., part:]], -1)
        return found.flatten(2) if flat else found.transpose(1, 2)

    return rotate


@maker("LinearAttention")
def _linear_attention(node: OperatorNode) -> Function:
    heads, kv_heads, given = node["q_num_heads"], node["kv_num_heads"], node["scale"]
    rule = node["update_rule"]
    gated, corrected = rule in ("gated", "gated_delta"), rule in ("delta", "gated_delta")

    def attend(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        past: Tensor | None = None,
        decay: Tensor | None = None,
        beta: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The recurrence over tokens in float32, whatever the type, as ONNX computes it."""
        dtype, wide = query.dtype, torch.float32
        query, key, value = (
            _heads(each, count).to(wide) for each, count in ((query, heads), (key, kv_heads), (value, kv_heads))
        )
        scale = given or 1 / math.sqrt(query.shape[3])
        empty = (*key.shape[:2], key.shape[3], value.shape[3])
        state = query.new_zeros(empty) if past is None else past.to(wide)
        fading = _heads(decay, kv_heads).to(wide).exp() if decay is not None and gated else None
        rate = beta.to(wide).transpose(1, 2).unsqueeze(3) if beta is not None else None
        outputs = []
        for step in range(query.shape[2]):
            k, v = key[:, :, step], value[:, :, step]
            if fading is not None:
                state = state * fading[:, :, step].unsqueeze(3)
            if corrected and rate is not None:
                v = rate[:, :, step] * (v - torch.einsum("bhkv,bhk->bhv", state, k))
            state = state + k.unsqueeze(3) * v.unsqueeze(2)
            read = state.repeat_interleave(heads // kv_heads, 1) if heads != kv_heads else state
            outputs.append(torch.einsum("bhk,bhkv->bhv", query[:, :, step], read))
        output = torch.stack(outputs, 1).flatten(2) * scale
        return output.to(dtype), state.to(dtype if past is None else past.dtype)

    return attend
