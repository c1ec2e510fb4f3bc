"""Normalisations, recurrent layers, attention, Dropout and random tensors.

An operator that draws takes a random key first; the same key gives the same draw, compiled or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from levelbench.errors import UnsupportedError
from levelbench.frameworks.jax.arrays import numpy_dtype
from levelbench.frameworks.jax.operators.registry import LIBRARY, maker, operator, refuse
from levelbench.frameworks.shared.sequences import activation_functions, recurrent
from levelbench.operators.contract import DType, Function
from levelbench.operators.node import OperatorNode


def _by_channel(value: Array, rank: int) -> Array:
    return value.reshape(1, -1, *[1] * (rank - 2))


def _wide(x: Array) -> Array:
    return x.astype(jnp.float32) if x.dtype.itemsize < 4 else x


@maker("BatchNormalization")
def _batch_normalization(node: OperatorNode) -> Function:
    epsilon, momentum = float(node["epsilon"]), float(node["momentum"])
    training = bool(node.get("training_mode", 0))
    if not training and sum(bool(name) for name in node.outputs) > 1:
        raise refuse(node, "several outputs mean the training mode of opsets before 14", "use opset 15")

    def batch_normalization(x: Array, scale: Array, bias: Array, mean: Array, variance: Array) -> tuple[Array, ...]:
        wide, rank = _wide(x), x.ndim
        running: tuple[Any, ...] = ()
        if training:
            axes = (0, *range(2, rank))
            found, spread = jnp.mean(wide, axes), jnp.var(wide, axes)
            running = (
                (mean * momentum + found * (1 - momentum)).astype(mean.dtype),
                (variance * momentum + spread * (1 - momentum)).astype(variance.dtype),
            )
            mean, variance = found, spread
        factor = scale.astype(wide.dtype) * lax.rsqrt(variance.astype(wide.dtype) + epsilon)
        centred = wide - _by_channel(mean.astype(wide.dtype), rank)
        y = centred * _by_channel(factor, rank) + _by_channel(bias.astype(wide.dtype), rank)
        return y.astype(x.dtype), *running

    return batch_normalization


@operator("InstanceNormalization")
def _instance_normalization(x: Array, scale: Array, bias: Array, *, epsilon: float) -> Array:
    y = _standardised(_wide(x), tuple(range(2, x.ndim)), epsilon)
    return (y * _by_channel(scale, x.ndim) + _by_channel(bias, x.ndim)).astype(x.dtype)


def _standardised(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    centred = x - jnp.mean(x, axes, keepdims=True)
    return centred * lax.rsqrt(jnp.mean(centred * centred, axes, keepdims=True) + epsilon)


@operator("GroupNormalization")
def _group_normalization(
    x: Array, scale: Array, bias: Array, *, node: OperatorNode, num_groups: int, epsilon: float
) -> Array:
    """Scale and bias are per channel; before opset 21 they are per group."""
    by_group = node.opset < 21
    grouped = _wide(x).reshape(x.shape[0], num_groups, -1)
    y = _standardised(grouped, (2,), epsilon)
    if by_group:
        return (y * scale[:, None] + bias[:, None]).reshape(x.shape).astype(x.dtype)
    y = y.reshape(x.shape)
    return (y * _by_channel(scale, x.ndim) + _by_channel(bias, x.ndim)).astype(x.dtype)


@operator("LayerNormalization")
def _layer_normalization(
    x: Array, scale: Array, bias: Array | None = None, *, axis: int, epsilon: float, stash_type: int
) -> tuple[Array, ...]:
    """The statistics are computed in at least ``stash_type``, scale and bias applied in the input's type."""
    stash = numpy_dtype(stash_type)
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = x.astype(jnp.promote_types(x.dtype, stash))
    mean = jnp.mean(wide, axes, keepdims=True)
    centred = wide - mean
    inverse = lax.rsqrt(jnp.mean(centred * centred, axes, keepdims=True) + epsilon)
    y = (centred * inverse).astype(x.dtype) * scale
    return y if bias is None else y + bias, mean.astype(stash), inverse.astype(stash)


@operator("RMSNormalization")
def _rms_normalization(x: Array, scale: Array, *, axis: int, epsilon: float, stash_type: int) -> Array:
    stash = numpy_dtype(stash_type)
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = x.astype(jnp.promote_types(x.dtype, stash))
    y = wide * lax.rsqrt(jnp.mean(wide * wide, axes, keepdims=True) + epsilon)
    return (y.astype(scale.dtype) * scale).astype(scale.dtype)


@operator("LRN")
def _lrn(x: Array, *, alpha: float, beta: float, bias: float, size: int) -> Array:
    wide = _wide(x)
    ones = (1,) * (x.ndim - 2)
    pads = [(0, 0), ((size - 1) // 2, size - 1 - (size - 1) // 2), *[(0, 0)] * (x.ndim - 2)]
    squares = lax.reduce_window(wide * wide, np.array(0, wide.dtype), lax.add, (1, size, *ones), (1, 1, *ones), pads)
    return (wide / (bias + alpha / size * squares) ** beta).astype(x.dtype)


@operator("LpNormalization")
def _lp_normalization(x: Array, *, axis: int, p: int) -> Array:
    """Zero where the norm is zero."""
    if p == 1:
        norm = jnp.sum(jnp.abs(x), axis, keepdims=True)
    else:
        squares = jnp.sum(x * x, axis, keepdims=True)
        # The square root has no derivative at zero.
        norm = jnp.where(squares == 0, 0, jnp.sqrt(jnp.where(squares == 0, 1, squares)))
    return jnp.where(norm == 0, 0, x / jnp.where(norm == 0, 1, norm)).astype(x.dtype)


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


def _trains(training: Array) -> bool:
    return training is not None and bool(training)


def _ratio(ratio: Array) -> float:
    return 0.5 if ratio is None else float(ratio)


def _dropout_gradient(node: OperatorNode) -> Function:
    """From the mask among the outputs, unless nothing was dropped."""

    def backward(gradients: Array, inputs: Array, outputs: Array) -> tuple[Array, ...]:
        ratio, training = ((*inputs, None, None))[1:3]
        gradient = gradients[0]
        nothing = (None,) * (len(inputs) - 1)
        if gradient is None:
            return jnp.zeros_like(inputs[0]), *nothing
        if not _trains(training):
            return gradient, *nothing
        if len(outputs) < 2 or outputs[1] is None:
            raise UnsupportedError(f"the gradient of {node.title}", "its mask is not an output", "name it, or use vjp")
        return jnp.where(outputs[1], gradient / (1 - _ratio(ratio)), 0).astype(gradient.dtype), *nothing

    return backward


@operator("Dropout", random=True, backward=_dropout_gradient)
def _dropout(key: Array, x: Array, ratio: Array | None = None, training: Array | None = None) -> tuple[Array, ...]:
    share = _ratio(ratio)
    if not _trains(training) or share == 0:
        return x, jnp.ones(x.shape, bool)
    mask = jax.random.bernoulli(key, jnp.float32(1 - share), x.shape)
    return jnp.where(mask, x / (1 - share), 0).astype(x.dtype), mask


@operator("Bernoulli", random=True)
def _bernoulli(key: Array, probability: Array, *, dtype: int | None = None) -> Array:
    drawn = jax.random.uniform(key, probability.shape, _drawable(probability.dtype)) < probability
    return drawn.astype(probability.dtype if dtype is None else numpy_dtype(dtype))


def _drawable(dtype: DType) -> DType:
    """Half-precision uniform numbers are too coarse to compare with a probability."""
    return dtype if dtype.itemsize >= 4 else jnp.float32


def _draw(node: OperatorNode, key: Array, shape: tuple[int, ...], dtype: DType) -> Array:
    wide = _drawable(dtype)
    if node.op_type.startswith("RandomNormal"):
        return (node["mean"] + node["scale"] * jax.random.normal(key, shape, wide)).astype(dtype)
    return jax.random.uniform(key, shape, wide, node["low"], node["high"]).astype(dtype)


@operator("RandomNormal", "RandomUniform", random=True)
def _random(key: Array, *, node: OperatorNode, shape: Sequence[int], dtype: int) -> Array:
    return _draw(node, key, tuple(shape), numpy_dtype(dtype))


@operator("RandomNormalLike", "RandomUniformLike", random=True)
def _random_like(key: Array, x: Array, *, node: OperatorNode, dtype: int | None = None) -> Array:
    return _draw(node, key, x.shape, x.dtype if dtype is None else numpy_dtype(dtype))


@operator("Multinomial", random=True)
def _multinomial(key: Array, logits: Array, *, sample_size: int, dtype: int) -> Array:
    """Classes drawn with replacement from unnormalised log-probabilities, (batch, classes)."""
    drawn = jax.random.categorical(key, logits[:, None], axis=-1, shape=(logits.shape[0], sample_size))
    return drawn.astype(numpy_dtype(dtype))
