"""Dropout and random tensors: an operator takes a seed of two integers first; the same one gives the same draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from levelbench.frameworks.shared.functional import dropout_rates
from levelbench.frameworks.tensorflow.arrays import Raw, numpy_dtype
from levelbench.frameworks.tensorflow.operators.registry import operator
from levelbench.operators.contract import Array
from levelbench.operators.node import OperatorNode


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
