"""Sequences: RNN, GRU, LSTM, Attention, RotaryEmbedding and LinearAttention, by PyTorch's kernels where they agree."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from levelbench.frameworks.shared.sequences import (
    USUAL,
    activation_functions,
    activations_of,
    linear_attention,
    recurrent,
)
from levelbench.frameworks.torch.arrays import torch_dtype
from levelbench.frameworks.torch.operators.registry import Function, device_maker, library, maker, refuse
from levelbench.operators.node import OperatorNode

_ACTIVATIONS: dict[str, Function] = {
    "affine": lambda x, alpha, beta: alpha * x + beta,
    "elu": lambda x, alpha, _: functional.elu(x, alpha),
    "hardsigmoid": lambda x, alpha, beta: torch.clamp(alpha * x + beta, 0, 1),
    "leakyrelu": lambda x, alpha, _: functional.leaky_relu(x, alpha),
    "relu": lambda x, _, __: torch.relu(x),
    "scaledtanh": lambda x, alpha, beta: alpha * torch.tanh(beta * x),
    "sigmoid": lambda x, _, __: torch.sigmoid(x),
    "softplus": lambda x, _, __: functional.softplus(x),
    "softsign": lambda x, _, __: functional.softsign(x),
    "tanh": lambda x, _, __: torch.tanh(x),
    "thresholdedrelu": lambda x, alpha, _: functional.threshold(x, alpha, 0.0),
}


# RNN, GRU and LSTM: PyTorch's own kernels for what they compute, a loop over the time steps for the rest.
# Without sequence lengths, clipping, peepholes and uncommon activations a layer of ONNX is one of PyTorch's with its
# gates in another order, so the weights are put in that order and the kernel does the rest.


class _Layer(NamedTuple):
    """What the inputs have in common, with the time first."""

    x: Tensor
    weights: Tensor
    recurrent: Tensor
    bias: Tensor | None
    hidden: Tensor
    cell: Tensor | None


def _swap(order: tuple[tuple[int, int], ...]) -> Callable[[Tensor, int], Tensor]:
    """Puts gates, each of ``size`` rows, in another order, given as ranges of gates."""
    return lambda w, size: torch.cat([w[start * size : stop * size] for start, stop in order])


_ORDER = {
    "RNN": lambda w, _: w,
    # ONNX has update, reset, hidden; PyTorch reset, update, new.
    "GRU": _swap(((1, 2), (0, 1), (2, 3))),
    # ONNX has input, output, forget, cell; PyTorch input, forget, cell, output.
    "LSTM": _swap(((0, 1), (2, 4), (1, 2))),
}


@device_maker("RNN", "GRU", "LSTM")
def _recurrent(node: OperatorNode, device: torch.device) -> Function:
    kind, lent = node.op_type, library(device)
    loop = recurrent(node, lent, activation_functions(node, lent, _ACTIVATIONS, refuse))
    names = tuple(each.name for each in activations_of(node))
    usual = names in (USUAL[kind], USUAL[kind] * 2) or (kind == "RNN" and set(names) == {"relu"})
    usual = usual and node.get("clip") is None and not node.get("input_forget", 0)
    if not usual or (kind == "GRU" and not node["linear_before_reset"]):
        return loop
    plain = torch.rnn_relu if names[0] == "relu" else torch.rnn_tanh
    native = {"GRU": torch.gru, "LSTM": torch.lstm, "RNN": plain}[kind]
    kernel = _Kernel(native, _ORDER[kind], backwards=node["direction"] == "reverse")
    batch_first = bool(node.get("layout", 0))

    def layer(
        x: Tensor,
        w: Tensor,
        r: Tensor,
        b: Tensor | None = None,
        lengths: Tensor | None = None,
        hidden: Tensor | None = None,
        cell: Tensor | None = None,
        peepholes: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        if lengths is not None or peepholes is not None:
            return loop(x, w, r, b, lengths, hidden, cell, peepholes)
        if batch_first:
            x = x.transpose(0, 1)
            hidden, cell = (None if each is None else each.transpose(0, 1) for each in (hidden, cell))
        if hidden is None:
            hidden = x.new_zeros((w.shape[0], x.shape[1], r.shape[2]))
        if cell is None and kind == "LSTM":
            cell = torch.zeros_like(hidden)
        found = kernel(_Layer(x, w, r, b, hidden, cell))
        if not batch_first:
            return found
        return found[0].permute(2, 0, 1, 3), *(each.transpose(0, 1) for each in found[1:])

    return layer


@device_maker("LinearAttention")
def _linear_attention(node: OperatorNode, device: torch.device) -> Function:
    return linear_attention(node, library(device))


class _Kernel:
    """PyTorch's kernel; weights that need no gradient are put in its order once, until they change."""

    def __init__(self, native: Function, order: Callable[[Tensor, int], Tensor], backwards: bool) -> None:
        self._native, self._order, self._backwards = native, order, backwards
        self._known: tuple[Any, list[Tensor]] | None = None

    def __call__(self, layer: _Layer) -> tuple[Tensor, ...]:
        """Y of shape (time, directions, batch, size), and the last states."""
        directions, size = layer.weights.shape[0], layer.recurrent.shape[2]
        x = layer.x.flip(0) if self._backwards else layer.x
        hidden = layer.hidden.contiguous()
        states: Any = hidden if layer.cell is None else (hidden, layer.cell.contiguous())
        parameters, biased = self._parameters(layer), layer.bias is not None
        y, *last = self._native(x, states, parameters, biased, 1, 0.0, False, directions == 2, False)
        y = y.unflatten(2, (directions, size)).transpose(1, 2)
        return (y.flip(0) if self._backwards else y, *last)

    def _parameters(self, layer: _Layer) -> list[Tensor]:
        sources = (layer.weights, layer.recurrent, layer.bias)
        if any(each is not None and (each.requires_grad or each.is_inference()) for each in sources):
            return self._ordered(layer)
        # Tensors are kept, so that none can take the place of another one in memory.
        state = [(each, None if each is None else each._version) for each in sources]
        if self._known is not None and all(
            old is new and before == now for (old, before), (new, now) in zip(self._known[0], state, strict=True)
        ):
            return self._known[1]
        parameters = self._ordered(layer)
        self._known = (state, parameters)
        return parameters

    def _ordered(self, layer: _Layer) -> list[Tensor]:
        directions, rows, _ = layer.weights.shape
        size, order = layer.recurrent.shape[2], self._order
        parameters = []
        for at in range(directions):
            parameters += [order(layer.weights[at], size), order(layer.recurrent[at], size)]
            if layer.bias is not None:
                parameters += [order(layer.bias[at, :rows], size), order(layer.bias[at, rows:], size)]
        return parameters


# Attention, by PyTorch's fused kernels wherever only the result is asked for, and rotary position embedding.
# Which keys a query may see (causal order, window, lengths, a boolean mask) is one boolean tensor; a floating-point
# mask is added, with minus infinity where that tensor says no. A query that sees no key gets zeros.


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
