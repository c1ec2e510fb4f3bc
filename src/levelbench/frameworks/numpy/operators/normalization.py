"""BatchNormalization, InstanceNormalization and GroupNormalization, forward and backward.

The one idea: x - mean is computed before anything is multiplied, which costs a pass over the array and saves the digits
that scale * x - scale * mean would lose.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from levelbench.errors import UnsupportedError
from levelbench.frameworks.numpy.operators.kernel import Kernel, Registry
from levelbench.frameworks.numpy.operators.numeric import Array, lift, lower, quiet, within
from levelbench.frameworks.numpy.operators.standardise import staged, standardise, standardise_gradient
from levelbench.operators.node import OperatorNode

__all__ = ["OPERATORS"]

OPERATORS = Registry()


@OPERATORS.add("BatchNormalization")
def _batch_normalization(node: OperatorNode) -> Kernel:
    """By channel, with given statistics or, in training mode, those of the batch (Ioffe and Szegedy 2015)."""
    epsilon, momentum = node["epsilon"], node["momentum"]
    training = bool(node.get("training_mode", 0))
    if len(node.outputs) > 1 and not training:
        found = "it puts out statistics in training mode only"
        raise UnsupportedError("BatchNormalization on numpy", found, "set training_mode")
    vjp = _train if training else _infer

    def differentiate(x: Array, scale: Array, bias: Array, mean: Array, variance: Array) -> Any:
        given = (x, scale, bias, mean, variance)
        with quiet():
            return vjp(given, epsilon, momentum)

    return Kernel(lambda *inputs: differentiate(*inputs)[0], vjp=differentiate)


def _planes(x: Array) -> Array:
    """(batch, channels, elements)."""
    return x.reshape(len(x), x.shape[1] if x.ndim > 1 else 1, prod(x.shape[2:]))


def _column(vector: Array, dtype: np.dtype[Any]) -> Array:
    return lift(vector).astype(dtype, copy=False)[:, None]


def _infer(given: tuple[Array, ...], epsilon: float, _: float) -> Any:
    x = given[0]
    planes = _planes(lift(x))
    kind = planes.dtype
    scale, bias, mean, variance = (_column(each, kind) for each in given[1:])
    inverse = 1 / np.sqrt(variance + kind.type(epsilon))
    y = planes - mean
    y *= scale * inverse
    y += bias

    def pullback(gradient: Any) -> tuple[Any, ...]:
        if gradient is None:
            return (None,) * 5
        with quiet():
            g = _planes(lift(gradient))
            total = g.sum(axis=(0, 2))[:, None]
            along = np.einsum("ncp,ncp->c", g, planes)[:, None] - total * mean
            by_scale, by_mean = along * inverse, -total * scale * inverse
            by_variance = along * scale * inverse**3 * kind.type(-0.5)
            found = [(g * (scale * inverse)).reshape(x.shape), by_scale, total, by_mean, by_variance]
            return tuple(within(each.reshape(like.shape), like) for each, like in zip(found, given, strict=True))

    return (lower(y.reshape(x.shape), x.dtype),), pullback


def _train(given: tuple[Array, ...], epsilon: float, momentum: float) -> Any:
    x, (scale, bias, mean, variance) = given[0], given[1:]
    planes = _planes(lift(x))
    kind, count = planes.dtype, max(x.size // max(len(scale), 1), 1)
    batch_mean = planes.mean(axis=(0, 2))[:, None]
    values = planes - batch_mean
    batch_variance = np.einsum("ncp,ncp->c", values, values)[:, None] / kind.type(count)
    inverse = 1 / np.sqrt(batch_variance + kind.type(epsilon))
    values *= inverse
    y = values * _column(scale, kind)
    y += _column(bias, kind)
    keep, take = kind.type(momentum), kind.type(1 - momentum)
    running = [
        lower((_column(old, kind) * keep + new * take)[:, 0], old.dtype)
        for old, new in ((mean, batch_mean), (variance, batch_variance))
    ]

    def pullback(gradient: Any, by_mean: Any = None, by_variance: Any = None) -> tuple[Any, ...]:
        with quiet():
            g = np.zeros_like(values) if gradient is None else _planes(lift(gradient))
            total = g.sum(axis=(0, 2))[:, None]
            along = np.einsum("ncp,ncp->c", g, values)[:, None]
            by_x = g - total / count
            by_x -= values * (along / count)
            by_x *= _column(scale, kind) * inverse
            found: list[Any] = [by_x, along, total, None, None]
            if by_mean is not None:
                by_x += _column(by_mean, kind) * (take / count)
                found[3] = _column(by_mean, kind) * keep
            if by_variance is not None:
                by_x += values * (_column(by_variance, kind) * (2 * take / count) / inverse)
                found[4] = _column(by_variance, kind) * keep
            return tuple(
                np.zeros_like(like) if each is None else within(each.reshape(like.shape), like)
                for each, like in zip(found, given, strict=True)
            )

    return (lower(y.reshape(x.shape), x.dtype), *running), pullback


@OPERATORS.add("InstanceNormalization")
def _instance_normalization(node: OperatorNode) -> Kernel:
    """Each channel of each image standardised by itself, then scaled and shifted by channel."""

    def differentiate(*inputs: Any, keep: bool = True) -> Any:
        return _by_channel(inputs, inputs[0].shape[1], node, keep)

    return Kernel(lambda *inputs: differentiate(*inputs, keep=False)[0], vjp=differentiate)


@OPERATORS.add("GroupNormalization")
def _group_normalization(node: OperatorNode) -> Kernel:
    """Groups of channels of each image standardised (Wu and He 2018); scale and bias by channel, by group before 21."""
    groups = int(node["num_groups"])

    def differentiate(*inputs: Any, keep: bool = True) -> Any:
        return _by_channel(inputs, groups, node, keep)

    return Kernel(lambda *inputs: differentiate(*inputs, keep=False)[0], vjp=differentiate)


def _by_channel(given: tuple[Array, ...], groups: int, node: OperatorNode, keep: bool) -> Any:
    """Standardises each group of an image, then scales and shifts by channel, or by group if there are as many."""
    x, scale, bias = given
    wide = staged(x, node)
    kind = wide.dtype
    outer = (len(x), len(scale), x.size // max(len(x) * len(scale), 1))
    rows = (len(x) * groups, prod(x.shape[1:]) // groups)
    with quiet():
        found = standardise(np.ascontiguousarray(wide).reshape(rows), node["epsilon"])
        values = found.values.reshape(outer)
        y = np.multiply(values, _column(scale, kind), out=None if keep else values)
        y += _column(bias, kind)

    def pullback(gradient: Any) -> tuple[Any, ...]:
        if gradient is None:
            return None, None, None
        with quiet():
            g = np.ascontiguousarray(lift(gradient)).reshape(values.shape)
            rows = (g * _column(scale, kind)).reshape(found.values.shape)
            by_x = standardise_gradient(rows, found).reshape(x.shape)
            by_scale, by_bias = np.einsum("ncp,ncp->c", g, values), g.sum(axis=(0, 2))
        return within(by_x, x), within(by_scale, scale), within(by_bias, bias)

    return (lower(y.reshape(x.shape), x.dtype),), pullback
