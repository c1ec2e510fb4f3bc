"""Sequences: RNN, GRU, LSTM, Attention, RotaryEmbedding and LinearAttention, by PyTorch's kernels where they agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from levelbench.frameworks.shared.sequences import (
    USUAL,
    activation_functions,
    activations_of,
    attention,
    linear_attention,
    recurrent,
)
from levelbench.frameworks.torch.operators.registry import Function, device_maker, library, refuse
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


@device_maker("Attention")
def _attention(node: OperatorNode, device: torch.device) -> Function:
    scale, causal = node.get("scale"), bool(node["is_causal"])

    def fused(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, ordered: bool) -> Tensor:
        shared = query.shape[1] != key.shape[1]
        return functional.scaled_dot_product_attention(
            query, key, value, mask, 0.0, ordered, scale=scale, enable_gqa=shared
        )

    general = attention(node, library(device), fused)
    bare = len(node.outputs) == 1 and node["softcap"] == 0 and node.get("softmax_precision") is None
    bare = bare and node.get("left_window_size", -1) < 0 and node.get("right_window_size", -1) < 0
    if not bare:
        return general

    def attend(query: Tensor, key: Tensor, value: Tensor, *others: Tensor | None) -> Tensor | tuple[Tensor | None, ...]:
        if others or query.dim() != 4 or query.shape[1] != key.shape[1] or query.dtype != value.dtype:
            return general(query, key, value, *others)
        return functional.scaled_dot_product_attention(query, key, value, None, 0.0, causal, scale=scale)

    return attend
