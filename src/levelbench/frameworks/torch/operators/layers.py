"""Normalisations, recurrent layers, attention and random tensors, by PyTorch's kernels where they agree with ONNX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from levelbench.frameworks.shared.operators import Host
from levelbench.frameworks.shared.sequences import (
    DEFAULT_ACTIVATIONS,
    activation_functions,
    activations_of,
    attention,
    recurrent,
)
from levelbench.frameworks.torch.arrays import torch_dtype
from levelbench.frameworks.torch.operators.registry import device_maker, library, maker, operator, refuse
from levelbench.operators.contract import Function
from levelbench.operators.node import OperatorNode


@maker("BatchNormalization")
def _batch_normalization(node: OperatorNode) -> Function:
    epsilon, momentum = node["epsilon"], node["momentum"]
    if node.opset < 14 and sum(map(bool, node.outputs)) > 1:
        raise refuse(node, "before opset 14 its further outputs are for training only", "use opset 14 or newer")
    if not node.get("training_mode", 0):

        def infer(x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
            if mean.requires_grad or variance.requires_grad:
                # The kernel has no gradient for given moments.
                shape = (-1, *[1] * (x.dim() - 2))
                factor = scale * torch.rsqrt(variance + epsilon)
                return x * factor.reshape(shape) + (bias - mean * factor).reshape(shape)
            return torch.batch_norm(x, scale, bias, mean, variance, False, 0.0, epsilon, True)

        return infer

    def train(x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = torch.batch_norm(x, scale, bias, None, None, True, 0.0, epsilon, True)
        # ONNX uses the population variance, PyTorch divides by n - 1.
        axes = [axis for axis in range(x.dim()) if axis != 1]
        here, there = torch.var_mean(x.to(mean.dtype), axes, correction=0)
        kept = 1 - momentum
        return y, mean * momentum + there * kept, variance * momentum + here * kept

    return train


@maker("LayerNormalization")
def _layer_normalization(node: OperatorNode) -> Function:
    axis, epsilon = node["axis"], node["epsilon"]
    stash = torch_dtype(node["stash_type"])
    count = len(node.outputs)

    def normalise(x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
        shape = x.shape[axis:]
        if scale.shape == shape and (bias is None or bias.shape == shape):
            return functional.layer_norm(x, shape, scale, bias, epsilon)
        found = functional.layer_norm(x, shape, None, None, epsilon) * scale
        return found if bias is None else found + bias

    if count == 1:
        return normalise

    def with_moments(x: Tensor, scale: Tensor, bias: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        axes = list(range(axis % x.dim(), x.dim()))
        variance, mean = torch.var_mean(x.to(stash), axes, correction=0, keepdim=True)
        return normalise(x, scale, bias), mean, torch.rsqrt(variance + epsilon)

    return with_moments


@operator("RMSNormalization")
def _rms_normalization(x: Tensor, scale: Tensor, *, axis: int, epsilon: float) -> Tensor:
    shape = x.shape[axis:]
    if scale.shape == shape and scale.dtype == x.dtype:
        return functional.rms_norm(x, shape, scale, epsilon)
    return (functional.rms_norm(x, shape, None, epsilon) * scale).to(scale.dtype)


@operator("GroupNormalization")
def _group_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, *, node: OperatorNode, num_groups: int, epsilon: float
) -> Tensor:
    by_group = node.opset < 21
    if by_group:
        # Before opset 21 scale and bias were per group.
        each = x.shape[1] // num_groups
        scale, bias = scale.repeat_interleave(each), bias.repeat_interleave(each)
    return functional.group_norm(x, num_groups, scale, bias, epsilon)


@operator("InstanceNormalization")
def _instance_normalization(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float) -> Tensor:
    return torch.instance_norm(x, scale, bias, None, None, True, 0.0, epsilon, True)


@operator("LpNormalization")
def _lp_normalization(x: Tensor, *, axis: int, p: int) -> Tensor:
    norm = torch.linalg.vector_norm(x, p, axis, True)
    # Zero divided by zero is zero here.
    return x / torch.where(norm == 0, 1, norm)


@operator("LRN")
def _lrn(x: Tensor, *, alpha: float, beta: float, bias: float, size: int) -> Tensor:
    """X / (bias + alpha / size * sum of squares of neighbouring channels) ^ beta (ONNX LRN)."""
    before = (size - 1) // 2
    behind = size - 1 - (size - 1) // 2
    squares = (x * x).reshape(x.shape[0], 1, x.shape[1], -1)
    padded = functional.pad(squares, (0, 0, before, behind))
    means = functional.avg_pool2d(padded, (size, 1), 1).reshape(x.shape)
    return x / torch.pow(bias + alpha * means, beta)


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


# RNN, GRU and LSTM: PyTorch's own kernels where they apply, otherwise a loop over the time steps.
# Without sequence lengths, clipping, peepholes and uncommon activations, a layer of ONNX is one of PyTorch's with its
# gates in another order, so the weights are reordered for the kernel.


class _Layer(NamedTuple):
    """The inputs of a recurrent layer, time first."""

    x: Tensor
    weights: Tensor
    recurrent: Tensor
    bias: Tensor | None
    hidden: Tensor
    cell: Tensor | None


def _swap(order: tuple[tuple[int, int], ...]) -> Callable[[Tensor, int], Tensor]:
    """Reorders gates of ``size`` rows each; the order is given as ranges of gates."""
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
    default = DEFAULT_ACTIVATIONS[kind]
    usual = names in (default, default * 2) or (kind == "RNN" and set(names) == {"relu"})
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


class _Kernel:
    """PyTorch's kernel; weights that need no gradient are reordered once and reused until they change."""

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
        # The tensors are kept alive, so that no other tensor can take their identity.
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


def _generator(node: OperatorNode, device: torch.device) -> torch.Generator | None:
    """A separate generator for a node with a seed, else PyTorch's, which the backend seeds."""
    seed = node.get("seed")
    if seed is None:
        return None
    # The seed is a float; its bits are used, because its integer part is often the same.
    return torch.Generator(device).manual_seed(int(np.float32(seed).view(np.uint32)))


def _type(node: OperatorNode) -> torch.dtype | None:
    code = node.get("dtype")
    return None if code is None else torch_dtype(code)


@device_maker("RandomNormal", "RandomNormalLike")
def _random_normal(node: OperatorNode, device: torch.device) -> Function:
    mean, scale = node["mean"], node["scale"]
    return _random(node, device, lambda x, generator: x.normal_(mean, scale, generator=generator))


@device_maker("RandomUniform", "RandomUniformLike")
def _random_uniform(node: OperatorNode, device: torch.device) -> Function:
    low, high = node["low"], node["high"]
    return _random(node, device, lambda x, generator: x.uniform_(low, high, generator=generator))


def _random(node: OperatorNode, device: torch.device, fill: Function) -> Function:
    generator, dtype = _generator(node, device), _type(node)
    shape = node.get("shape")

    def like(x: Tensor) -> Tensor:
        return fill(torch.empty(x.shape, dtype=dtype or x.dtype, device=device), generator)

    return like if shape is None else lambda: fill(torch.empty(shape, dtype=dtype, device=device), generator)


@device_maker("Bernoulli")
def _bernoulli(node: OperatorNode, device: torch.device) -> Function:
    generator, dtype = _generator(node, device), _type(node)
    return lambda x: torch.bernoulli(x, generator=generator).to(dtype or x.dtype)


@device_maker("Multinomial")
def _multinomial(node: OperatorNode, device: torch.device) -> Function:
    generator, dtype, count = _generator(node, device), _type(node) or torch.int32, node["sample_size"]

    def multinomial(x: Tensor) -> Tensor:
        # The input has unnormalised log-probabilities.
        return torch.multinomial(torch.softmax(x, -1), count, replacement=True, generator=generator).to(dtype)

    return multinomial


@device_maker("Dropout")
def _dropout(node: OperatorNode, device: torch.device) -> Function:
    generator, with_mask = _generator(node, device), len(node.outputs) > 1
    old_mask = node.opset < 10

    def dropout(x: Tensor, ratio: Host | None = None, training: Host | None = None) -> Tensor | tuple[Tensor, Tensor]:
        share = 0.5 if ratio is None else float(np.asarray(ratio).item())
        if training is None or not np.asarray(training).item() or share == 0.0:
            return (x, torch.ones_like(x, dtype=x.dtype if old_mask else torch.bool)) if with_mask else x
        if generator is None:
            return torch.native_dropout(x, share, True) if with_mask else torch.dropout(x, share, True)
        mask = torch.rand(x.shape, generator=generator, device=x.device) >= share
        return torch.where(mask, x / (1 - share), 0), mask

    return dropout
