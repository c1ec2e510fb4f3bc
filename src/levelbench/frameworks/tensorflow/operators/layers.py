"""Normalisations, recurrent layers, Dropout and random tensors. An operator that draws takes a seed first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from levelbench.frameworks.shared.sequences import activation_functions, recurrent
from levelbench.frameworks.tensorflow.arrays import Raw, numpy_dtype, wide, xp
from levelbench.frameworks.tensorflow.operators.registry import (
    LIBRARY,
    by_channel,
    maker,
    on_arrays,
    operator,
    refuse,
    sizes_of,
)
from levelbench.operators.contract import Array, Function
from levelbench.operators.node import OperatorNode


@maker("BatchNormalization")
def _batch_normalization(node: OperatorNode) -> Function:
    epsilon, momentum = float(node["epsilon"]), float(node["momentum"])
    training = bool(node.get("training_mode", 0))
    if not training and sum(bool(name) for name in node.outputs) > 1:
        raise refuse(node, "several outputs mean the training mode of opsets before 14", "use opset 15")

    def batch_normalization(x: Raw, scale: Raw, bias: Raw, mean: Raw, variance: Raw) -> tuple[Raw, ...]:
        values, rank = wide(x), len(x.shape)
        running: tuple[Any, ...] = ()
        if training:
            found, spread = tf.nn.moments(values, [0, *range(2, rank)])
            running = tuple(
                tf.cast(tf.cast(old, values.dtype) * momentum + new * (1 - momentum), old.dtype)
                for old, new in ((mean, found), (variance, spread))
            )
            mean, variance = found, spread
        factor = tf.cast(scale, values.dtype) * tf.math.rsqrt(tf.cast(variance, values.dtype) + epsilon)
        centred = values - by_channel(tf.cast(mean, values.dtype), rank)
        y = centred * by_channel(factor, rank) + by_channel(tf.cast(bias, values.dtype), rank)
        return tf.cast(y, x.dtype), *running

    return batch_normalization


def _standardised(x: Raw, axes: Sequence[int], epsilon: float) -> Raw:
    centred = x - tf.reduce_mean(x, axes, True)
    return centred * tf.math.rsqrt(tf.reduce_mean(centred * centred, axes, True) + epsilon)


@operator("InstanceNormalization")
def _instance_normalization(x: Raw, scale: Raw, bias: Raw, *, epsilon: float) -> Raw:
    rank = len(x.shape)
    y = _standardised(wide(x), list(range(2, rank)), epsilon)
    y = y * tf.cast(by_channel(scale, rank), y.dtype) + tf.cast(by_channel(bias, rank), y.dtype)
    return tf.cast(y, x.dtype)


@operator("LayerNormalization")
def _layer_normalization(
    x: Raw, scale: Raw, bias: Raw = None, *, axis: int, epsilon: float, stash_type: int
) -> tuple[Raw, ...]:
    """The statistics are computed in at least ``stash_type``, scale and bias applied in the input's type."""
    stash = tf.as_dtype(numpy_dtype(stash_type))
    rank = len(x.shape)
    axes = list(range(axis % rank, rank))
    values = x if x.dtype == tf.float64 else tf.cast(x, stash)
    mean = tf.reduce_mean(values, axes, True)
    centred = values - mean
    inverse = tf.math.rsqrt(tf.reduce_mean(centred * centred, axes, True) + epsilon)
    y = tf.cast(centred * inverse, x.dtype) * scale
    return y if bias is None else y + bias, tf.cast(mean, stash), tf.cast(inverse, stash)


@operator("RMSNormalization")
def _rms_normalization(x: Raw, scale: Raw, *, axis: int, epsilon: float, stash_type: int) -> Raw:
    rank = len(x.shape)
    values = x if x.dtype == tf.float64 else tf.cast(x, tf.as_dtype(numpy_dtype(stash_type)))
    mean = tf.reduce_mean(values * values, list(range(axis % rank, rank)), True)
    return tf.cast(values * tf.math.rsqrt(mean + epsilon), scale.dtype) * scale


@operator("GroupNormalization")
def _group_normalization(x: Raw, scale: Raw, bias: Raw, *, node: OperatorNode, num_groups: int, epsilon: float) -> Raw:
    """Scale and bias are per channel; before opset 21 they are per group."""
    shape, kind = sizes_of(x), wide(x).dtype
    y = _standardised(tf.reshape(wide(x), [shape[0], num_groups, -1]), [2], epsilon)
    scale, bias = tf.cast(scale, kind), tf.cast(bias, kind)
    if node.opset < 21:
        return tf.cast(tf.reshape(y * scale[:, None] + bias[:, None], shape), x.dtype)
    return tf.cast(tf.reshape(y, shape) * by_channel(scale, len(shape)) + by_channel(bias, len(shape)), x.dtype)


@operator("LRN")
def _lrn(x: Raw, *, alpha: float, beta: float, bias: float, size: int) -> Raw:
    values, before = wide(x), (size - 1) // 2
    channels = sizes_of(x)[1]
    pads = [(0, 0), (before, size - 1 - before), *[(0, 0)] * (len(x.shape) - 2)]
    squares = tf.pad(values * values, pads)
    total = tf.add_n([squares[:, at : at + channels] for at in range(size)])
    return tf.cast(values / (bias + alpha / size * total) ** beta, x.dtype)


@operator("LpNormalization")
def _lp_normalization(x: Raw, *, axis: int, p: int) -> Raw:
    """Zero where the norm is zero."""
    if p == 1:
        norm = tf.reduce_sum(tf.abs(x), axis, True)
    else:
        squares = tf.reduce_sum(x * x, axis, True)
        # The square root has no derivative at zero.
        nothing = squares == 0
        norm = tf.where(nothing, tf.zeros_like(squares), tf.sqrt(tf.where(nothing, tf.ones_like(squares), squares)))
    nothing = norm == 0
    return tf.where(nothing, tf.zeros_like(x), x / tf.where(nothing, tf.ones_like(norm), norm))


_ACTIVATIONS: dict[str, Function] = {
    "affine": lambda x, alpha, beta: alpha * x + beta,
    "elu": lambda x, alpha, _: xp.where(x > 0, x, alpha * xp.expm1(xp.minimum(x, 0))),
    "hardsigmoid": lambda x, alpha, beta: xp.clip(alpha * x + beta, 0, 1),
    "leakyrelu": lambda x, alpha, _: xp.where(x > 0, x, alpha * x),
    "relu": lambda x, _, __: xp.asarray(tf.nn.relu(x.tensor)),
    "scaledtanh": lambda x, alpha, beta: alpha * xp.tanh(beta * x),
    "sigmoid": lambda x, _, __: xp.asarray(tf.sigmoid(x.tensor)),
    "softplus": lambda x, _, __: xp.asarray(tf.math.softplus(x.tensor)),
    "softsign": lambda x, _, __: xp.asarray(tf.nn.softsign(x.tensor)),
    "tanh": lambda x, _, __: xp.tanh(x),
    "thresholdedrelu": lambda x, alpha, _: xp.where(x > alpha, x, 0),
}


def _recurrent(node: OperatorNode) -> Function:
    return recurrent(node, LIBRARY, activation_functions(node, LIBRARY, _ACTIVATIONS, refuse))


for _name in ("RNN", "GRU", "LSTM"):
    on_arrays(_name, _recurrent)


# Random draws. A seed is two integers; the same one gives the same draw.


def dropout_rates(ratio: Raw, training: Raw) -> tuple[float, bool]:
    """The share to drop and whether anything is dropped, from Dropout's second and third inputs."""
    share = 0.5 if ratio is None else float(np.asarray(ratio))
    return share, training is not None and bool(np.asarray(training)) and share != 0


@operator("Dropout", random=True)
def _dropout(seed: Raw, x: Raw, ratio: Array = None, training: Array = None) -> tuple[Raw, ...]:
    share, drops = dropout_rates(ratio, training)
    if not drops:
        return x, tf.ones_like(x, tf.bool)
    mask = tf.random.stateless_uniform(tf.shape(x), seed) >= share
    return tf.where(mask, x / (1 - share), tf.zeros_like(x)), mask


@operator("Bernoulli", random=True)
def _bernoulli(seed: Raw, probability: Raw, *, dtype: int | None = None) -> Raw:
    drawn = tf.random.stateless_uniform(tf.shape(probability), seed) < tf.cast(probability, tf.float32)
    return tf.cast(drawn, probability.dtype if dtype is None else tf.as_dtype(numpy_dtype(dtype)))


def _draw(node: OperatorNode, seed: Raw, shape: Any, kind: Any) -> Raw:
    compute = tf.float64 if kind == tf.float64 else tf.float32
    if node.op_type.startswith("RandomNormal"):
        drawn = tf.random.stateless_normal(shape, seed, node["mean"], node["scale"], compute)
    else:
        drawn = tf.random.stateless_uniform(shape, seed, node["low"], node["high"], compute)
    return tf.cast(drawn, kind)


@operator("RandomNormal", "RandomUniform", random=True)
def _random(seed: Raw, *, node: OperatorNode, shape: Sequence[int], dtype: int) -> Raw:
    return _draw(node, seed, list(shape), tf.as_dtype(numpy_dtype(dtype)))


@operator("RandomNormalLike", "RandomUniformLike", random=True)
def _random_like(seed: Raw, x: Raw, *, node: OperatorNode, dtype: int | None = None) -> Raw:
    return _draw(node, seed, tf.shape(x), x.dtype if dtype is None else tf.as_dtype(numpy_dtype(dtype)))


@operator("Multinomial", random=True)
def _multinomial(seed: Raw, logits: Raw, *, sample_size: int, dtype: int) -> Raw:
    """Classes drawn with replacement from unnormalised log-probabilities, (batch, classes)."""
    return tf.cast(tf.random.stateless_categorical(logits, sample_size, seed), tf.as_dtype(numpy_dtype(dtype)))
