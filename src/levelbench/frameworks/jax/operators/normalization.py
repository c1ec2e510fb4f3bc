"""Normalisations: batch, layer, group, instance, root mean square, local response, p-norm, mean and variance."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from levelbench.frameworks.jax.arrays import numpy_dtype
from levelbench.frameworks.jax.operators.registry import Function, maker, operator, refuse
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
        raise refuse(node, "more than one output asks for the training mode of opsets before 14", "use opset 15")

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
    """Scale and bias by channel, before opset 21 by group."""
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
    """Mean and deviation in at least ``stash_type``, scale and bias in the input's type."""
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
    """Where the norm is zero, so is the answer."""
    if p == 1:
        norm = jnp.sum(jnp.abs(x), axis, keepdims=True)
    else:
        squares = jnp.sum(x * x, axis, keepdims=True)
        # The root has no derivative at zero.
        norm = jnp.where(squares == 0, 0, jnp.sqrt(jnp.where(squares == 0, 1, squares)))
    return jnp.where(norm == 0, 0, x / jnp.where(norm == 0, 1, norm)).astype(x.dtype)
