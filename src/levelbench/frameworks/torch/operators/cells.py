"""One time step of RNN, GRU and LSTM as ONNX defines it, with any of its activation functions and clipping."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from levelbench.frameworks.torch.operators.registry import Function, refuse
from levelbench.operators.node import OperatorNode

__all__ = ["CELLS", "activations"]


Cell = Callable[..., tuple[Tensor, ...]]

_PLAIN: dict[str, Function] = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "softplus": functional.softplus,
    "softsign": functional.softsign,
    "tanh": torch.tanh,
}
# Default alpha and beta; ``None`` for one that the function does not take.
_DEFAULTS: dict[str, tuple[float | None, float | None]] = {
    "affine": (1.0, 0.0),
    "elu": (1.0, None),
    "hardsigmoid": (0.2, 0.5),
    "leakyrelu": (0.01, None),
    "scaledtanh": (1.0, 1.0),
    "thresholdedrelu": (1.0, None),
}
_SCALED: dict[str, Callable[[Tensor, Any, Any], Tensor]] = {
    "affine": lambda x, alpha, beta: alpha * x + beta,
    "elu": lambda x, alpha, _: functional.elu(x, alpha),
    "hardsigmoid": lambda x, alpha, beta: torch.clamp(alpha * x + beta, 0, 1),
    "leakyrelu": lambda x, alpha, _: functional.leaky_relu(x, alpha),
    "scaledtanh": lambda x, alpha, beta: alpha * torch.tanh(beta * x),
    "thresholdedrelu": lambda x, alpha, _: functional.threshold(x, alpha, 0.0),
}


def activations(node: OperatorNode, names: list[str]) -> list[Function]:
    """The functions by name; alphas and betas go to those that take one, in order. With the node's clipping."""
    alphas, betas = iter(node.get("activation_alpha") or []), iter(node.get("activation_beta") or [])
    clip = node.get("clip")
    found: list[Function] = []
    for at, name in enumerate(names):
        if name not in _PLAIN and name not in _SCALED:
            raise refuse(node, f"there is no activation function {name!r}", "use one that ONNX lists")
        function = _PLAIN.get(name)
        if function is None:
            alpha, beta = _DEFAULTS[name]
            alpha = None if alpha is None else next(alphas, alpha)
            beta = None if beta is None else next(betas, beta)
            function = _scaled(_SCALED[name], alpha, beta)
        # As ONNX Runtime does (ONNX's text leaves it open): an LSTM's third, of the cell itself, is not clipped.
        whole = clip is None or (node.op_type == "LSTM" and at % 3 == 2)
        found.append(function if whole else _clipped(function, clip))
    return found


def _scaled(function: Callable[[Tensor, Any, Any], Tensor], alpha: Any, beta: Any) -> Function:
    return lambda x: function(x, alpha, beta)


def _clipped(function: Function, clip: float) -> Function:
    return lambda x: function(torch.clamp(x, -clip, clip))


def _rnn(_: OperatorNode, functions: list[Function], r: Tensor, b: Tensor | None, __: Tensor | None) -> Cell:
    (f,) = functions
    return lambda products, hidden: (f(products + functional.linear(hidden, r, b)),)


def _gru(node: OperatorNode, functions: list[Function], r: Tensor, b: Tensor | None, _: Tensor | None) -> Cell:
    f, g = functions
    size = r.shape[1]
    after = bool(node["linear_before_reset"])
    gates, last = r[: 2 * size], r[2 * size :]
    gates_bias, last_bias = (None, None) if b is None else (b[: 2 * size], b[2 * size :])

    def step(products: Tensor, hidden: Tensor) -> tuple[Tensor, ...]:
        both = f(products[:, : 2 * size] + functional.linear(hidden, gates, gates_bias))
        update, reset = both.chunk(2, 1)
        if after:
            candidate = reset * functional.linear(hidden, last, last_bias)
        else:
            candidate = functional.linear(reset * hidden, last, last_bias)
        new = g(products[:, 2 * size :] + candidate)
        return ((1 - update) * new + update * hidden,)

    return step


def _lstm(node: OperatorNode, functions: list[Function], r: Tensor, b: Tensor | None, holes: Tensor | None) -> Cell:
    f, g, h = functions
    coupled = bool(node["input_forget"])

    def step(products: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, ...]:
        i, o, forget, c = (products + functional.linear(hidden, r, b)).chunk(4, 1)
        if holes is not None:
            p_i, p_o, p_f = holes.chunk(3)
            i, forget = i + p_i * cell, forget + p_f * cell
        opened = f(i)
        kept = 1 - opened if coupled else f(forget)
        new = kept * cell + opened * g(c)
        if holes is not None:
            o = o + p_o * new
        return f(o) * h(new), new

    return step


CELLS: dict[str, Callable[[OperatorNode, list[Function], Tensor, Tensor | None, Tensor | None], Cell]] = {
    "GRU": _gru,
    "LSTM": _lstm,
    "RNN": _rnn,
}
