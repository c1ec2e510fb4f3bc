"""Activations: Relu to Gelu, the gated ones, and the softmax family.

Each is the formula of ONNX's documentation; where JAX has a function of it, whose gradients stay finite, it is that.
At a kink the gradient is the one that PyTorch takes.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from levelbench.frameworks.jax.operators.registry import Function, maker, plain
from levelbench.operators.node import OperatorNode

__all__: list[str] = []


def _ramp(x: Any) -> Any:
    """Held between 0 and 1, without a slope at these."""
    return jnp.where(x <= 0, 0, jnp.where(x >= 1, 1, x))


plain(
    {
        "HardSwish": lambda x: x * _ramp(x / 6 + 0.5),
        "Mish": lambda x: x * jnp.tanh(jax.nn.softplus(x)),
        "PRelu": lambda x, slope: jnp.where(x > 0, x, slope * x),
        "Relu": jax.nn.relu,
        "Sigmoid": jax.nn.sigmoid,
        "Softplus": jax.nn.softplus,
        "Softsign": jax.nn.soft_sign,
    }
)


@maker("Elu")
def _elu(node: OperatorNode) -> Function:
    alpha = float(node["alpha"])
    return lambda x: jax.nn.elu(x, alpha)


@maker("Celu")
def _celu(node: OperatorNode) -> Function:
    alpha = float(node["alpha"])
    return lambda x: jax.nn.celu(x, alpha)


@maker("Selu")
def _selu(node: OperatorNode) -> Function:
    alpha, gamma = float(node["alpha"]), float(node["gamma"])
    return lambda x: gamma * jax.nn.elu(x, alpha)


@maker("LeakyRelu")
def _leaky_relu(node: OperatorNode) -> Function:
    alpha = float(node["alpha"])
    return lambda x: jnp.where(x > 0, x, alpha * x)


@maker("ThresholdedRelu")
def _thresholded_relu(node: OperatorNode) -> Function:
    alpha = float(node["alpha"])
    return lambda x: jnp.where(x > alpha, x, 0)


@maker("HardSigmoid")
def _hard_sigmoid(node: OperatorNode) -> Function:
    alpha, beta = float(node["alpha"]), float(node["beta"])
    return lambda x: _ramp(alpha * x + beta)


@maker("Gelu")
def _gelu(node: OperatorNode) -> Function:
    tanh = node["approximate"] == "tanh"
    return lambda x: jax.nn.gelu(x, approximate=tanh)


@maker("Shrink")
def _shrink(node: OperatorNode) -> Function:
    bias, lambd = float(node["bias"]), float(node["lambd"])

    def shrink(x: Any) -> Any:
        shrunk = jnp.where(x < -lambd, x + bias, jnp.where(x > lambd, x - bias, 0))
        return shrunk.astype(x.dtype)

    return shrink


@maker("Swish")
def _swish(node: OperatorNode) -> Function:
    alpha = float(node["alpha"])
    return lambda x: x * jax.nn.sigmoid(alpha * x)


@maker("SwiGLU")
def _swiglu(node: OperatorNode) -> Function:
    alpha = float(node.get("alpha", 1.0))
    return lambda gate, x: gate * jax.nn.sigmoid(alpha * gate) * x


@maker("Softmax")
def _softmax(node: OperatorNode) -> Function:
    axis = int(node["axis"])
    return lambda x: jax.nn.softmax(x, axis)


@maker("LogSoftmax")
def _log_softmax(node: OperatorNode) -> Function:
    axis = int(node["axis"])
    return lambda x: jax.nn.log_softmax(x, axis)


@maker("Hardmax")
def _hardmax(node: OperatorNode) -> Function:
    axis = int(node["axis"])

    def hardmax(x: Any) -> Any:
        return jax.nn.one_hot(jnp.argmax(x, axis), x.shape[axis], dtype=x.dtype, axis=axis)

    return hardmax
