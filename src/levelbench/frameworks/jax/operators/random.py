"""Operators that draw: Dropout, Bernoulli, RandomNormal, RandomUniform and the like, Multinomial.

Each takes a key of its own draw first; the same key draws the same, compiled or not.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from levelbench.errors import UnsupportedError
from levelbench.frameworks.jax.arrays import numpy_dtype
from levelbench.frameworks.jax.operators.registry import Function, maker
from levelbench.operators.node import OperatorNode

__all__: list[str] = []


def _trains(training: Any) -> bool:
    return training is not None and bool(training)


def _ratio(ratio: Any) -> float:
    return 0.5 if ratio is None else float(ratio)


def _dropout_gradient(node: OperatorNode) -> Function:
    """The mask of the draw stands among its outputs, or nothing was dropped."""

    def backward(gradients: Any, inputs: Any, outputs: Any) -> Any:
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


@maker("Dropout", random=True, backward=_dropout_gradient)
def _dropout(_: OperatorNode) -> Function:
    def dropout(key: Any, x: Any, ratio: Any = None, training: Any = None) -> Any:
        share = _ratio(ratio)
        if not _trains(training) or share == 0:
            return x, jnp.ones(x.shape, bool)
        mask = jax.random.bernoulli(key, jnp.float32(1 - share), x.shape)
        return jnp.where(mask, x / (1 - share), 0).astype(x.dtype), mask

    return dropout


@maker("Bernoulli", random=True)
def _bernoulli(node: OperatorNode) -> Function:
    code = node.get("dtype")

    def bernoulli(key: Any, probability: Any) -> Any:
        drawn = jax.random.uniform(key, probability.shape, _drawable(probability.dtype)) < probability
        return drawn.astype(probability.dtype if code is None else numpy_dtype(code))

    return bernoulli


def _drawable(dtype: Any) -> Any:
    """Uniform numbers of a half precision are too coarse to compare a probability with."""
    return dtype if dtype.itemsize >= 4 else jnp.float32


def _draw(node: OperatorNode, key: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    wide = _drawable(dtype)
    if node.op_type.startswith("RandomNormal"):
        return (node["mean"] + node["scale"] * jax.random.normal(key, shape, wide)).astype(dtype)
    return jax.random.uniform(key, shape, wide, node["low"], node["high"]).astype(dtype)


@maker("RandomNormal", "RandomUniform", random=True)
def _random(node: OperatorNode) -> Function:
    shape, dtype = tuple(int(each) for each in node["shape"]), numpy_dtype(int(node["dtype"]))
    return lambda key: _draw(node, key, shape, dtype)


@maker("RandomNormalLike", "RandomUniformLike", random=True)
def _random_like(node: OperatorNode) -> Function:
    code = node.get("dtype")
    return lambda key, x: _draw(node, key, x.shape, x.dtype if code is None else numpy_dtype(code))


@maker("Multinomial", random=True)
def _multinomial(node: OperatorNode) -> Function:
    """Classes drawn with replacement from unnormalised logarithms of probabilities, (batch, classes)."""
    count, dtype = int(node["sample_size"]), numpy_dtype(int(node["dtype"]))

    def multinomial(key: Any, logits: Any) -> Any:
        drawn = jax.random.categorical(key, logits[:, None], axis=-1, shape=(logits.shape[0], count))
        return drawn.astype(dtype)

    return multinomial
