"""Sequences: RNN, GRU, LSTM, Attention and LinearAttention with JAX's functions."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from levelbench.frameworks.jax.operators.registry import LIBRARY, Function, maker, refuse
from levelbench.frameworks.shared.sequences import activation_functions, attention, linear_attention, recurrent
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


@maker("Attention")
def _attention(node: OperatorNode) -> Function:
    return attention(node, LIBRARY)
