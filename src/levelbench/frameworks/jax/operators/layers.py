"""Dropout and random tensors: an operator takes a random key first, which gives the same draw, compiled or not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from levelbench.frameworks.jax.arrays import numpy_dtype
from levelbench.frameworks.jax.operators.registry import operator
from levelbench.frameworks.shared.functional import dropout_gradient, dropout_rates
from levelbench.operators.contract import DType, Function
from levelbench.operators.node import OperatorNode


def _dropout_gradient(node: OperatorNode) -> Function:
    return partial(dropout_gradient, jnp, node)


@operator("Dropout", random=True, backward=_dropout_gradient)
def _dropout(key: Array, x: Array, ratio: Array | None = None, training: Array | None = None) -> tuple[Array, ...]:
    share, drops = dropout_rates(ratio, training)
    if not drops:
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
