"""Operators that draw: Dropout, Bernoulli, RandomNormal, RandomUniform and the like, Multinomial.

Each takes a key of its own draw first; the same key draws the same, compiled or not.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array

from levelbench.errors import UnsupportedError
from levelbench.frameworks.jax.arrays import DType, numpy_dtype
from levelbench.frameworks.jax.operators.registry import Function, operator
from levelbench.operators.node import OperatorNode


def _trains(training: Array) -> bool:
    return training is not None and bool(training)


def _ratio(ratio: Array) -> float:
    return 0.5 if ratio is None else float(ratio)


def _dropout_gradient(node: OperatorNode) -> Function:
    """The mask of the draw stands among its outputs, or nothing was dropped."""

    def backward(gradients: Array, inputs: Array, outputs: Array) -> tuple[Array, ...]:
        ratio, training = ((*inputs, None, None))[1:3]
        gradient = gradients[0]
        nothing = (None,) * (len(inputs) - 1)
        if gradient is None:
            return jnp.zeros_like(inputs[0]), *nothing
        if not _trains(training):
            return gradient, *nothing
        if len(outputs) < 2 or outputs[1] is None:
            raise UnsupportedError(f"the gradient of {node.title}", "its mask is no output", "name it, or use vjp")
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
    """Uniform numbers of a half precision are too coarse to compare a probability with."""
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
    """Classes drawn with replacement from unnormalised logarithms of probabilities, (batch, classes)."""
    drawn = jax.random.categorical(key, logits[:, None], axis=-1, shape=(logits.shape[0], sample_size))
    return drawn.astype(numpy_dtype(dtype))
