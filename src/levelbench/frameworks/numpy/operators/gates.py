"""The activation functions that RNN, GRU and LSTM may name for their gates, with their derivatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from levelbench.errors import UnsupportedError
from levelbench.frameworks.numpy.operators.numeric import Array
from levelbench.frameworks.numpy.operators.pointwise import logistic
from levelbench.operators.node import OperatorNode

__all__ = ["Gate", "gates_of"]


class Gate(NamedTuple):
    """``apply(x)`` is the activation; ``slope(x, y)`` its derivative at x, where it is y."""

    apply: Callable[[Array], Array]
    slope: Callable[[Array, Array], Array]


def _sigmoid(x: Array) -> Array:
    result = np.empty_like(x)
    logistic(result, x)
    return result


def _softplus(x: Array) -> Array:
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


# Each makes a gate of (alpha, beta).
_MAKERS: dict[str, Callable[[Any, Any], Gate]] = {
    "affine": lambda a, b: Gate(lambda x: a * x + b, lambda x, y: np.full_like(x, a)),
    "elu": lambda a, b: Gate(
        lambda x: np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0))), lambda x, y: np.where(x >= 0, 1, y + a)
    ),
    "hardsigmoid": lambda a, b: Gate(
        lambda x: np.clip(a * x + b, 0, 1), lambda x, y: np.where((y > 0) & (y < 1), a, 0).astype(x.dtype)
    ),
    "leakyrelu": lambda a, b: Gate(
        lambda x: np.where(x >= 0, x, a * x), lambda x, y: np.where(x >= 0, 1, a).astype(x.dtype)
    ),
    "relu": lambda a, b: Gate(lambda x: np.maximum(x, 0), lambda x, y: (x > 0).astype(x.dtype)),
    "scaledtanh": lambda a, b: Gate(lambda x: a * np.tanh(b * x), lambda x, y: b * (a - y * y / a)),
    "sigmoid": lambda a, b: Gate(_sigmoid, lambda x, y: y * (1 - y)),
    "softplus": lambda a, b: Gate(_softplus, lambda x, y: _sigmoid(x)),
    "softsign": lambda a, b: Gate(lambda x: x / (1 + np.abs(x)), lambda x, y: (1 - np.abs(y)) ** 2),
    "tanh": lambda a, b: Gate(np.tanh, lambda x, y: 1 - y * y),
    "thresholdedrelu": lambda a, b: Gate(
        lambda x: np.where(x >= a, x, 0).astype(x.dtype), lambda x, y: (x >= a).astype(x.dtype)
    ),
}

# What alpha and beta are where the node gives none; a function that is not here takes neither.
_DEFAULTS: dict[str, tuple[float | None, float | None]] = {
    "affine": (1.0, 0.0),
    "elu": (1.0, None),
    "hardsigmoid": (0.2, 0.5),
    "leakyrelu": (0.01, None),
    "scaledtanh": (1.0, 1.0),
    "thresholdedrelu": (1.0, None),
}


def gates_of(node: OperatorNode, defaults: Sequence[str], directions: int) -> list[list[Gate]]:
    """The gates of each direction; alphas and betas go, in order, to the functions that take them.

    ``UnsupportedError`` for a function that ONNX does not list.
    """
    names = list(node.attributes.get("activations") or list(defaults) * directions)
    alphas, betas = (iter(node.get(each) or ()) for each in ("activation_alpha", "activation_beta"))
    gates = [_gate(name, alphas, betas) for name in names[: len(defaults) * directions]]
    return [gates[at : at + len(defaults)] for at in range(0, len(gates), len(defaults))]


def _gate(name: str, alphas: Iterator[float], betas: Iterator[float]) -> Gate:
    key = name.lower()
    if key not in _MAKERS:
        known = ", ".join(_MAKERS)
        raise UnsupportedError(f"the activation {name!r} on numpy", f"ONNX names {known}", "use one of these")
    alpha, beta = _DEFAULTS.get(key, (None, None))
    return _MAKERS[key](
        alpha if alpha is None else float(next(alphas, alpha)), beta if beta is None else float(next(betas, beta))
    )
