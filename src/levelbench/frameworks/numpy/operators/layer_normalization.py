"""LayerNormalization, RMSNormalization and LRN, forward and backward.

The one idea: all three divide by a root mean square; the first two of the trailing axes, the last of nearby channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from levelbench.frameworks.numpy.operators.broadcast import unbroadcast
from levelbench.frameworks.numpy.operators.kernel import Kernel, Registry
from levelbench.frameworks.numpy.operators.numeric import Array, alone, lift, lower, quiet, within
from levelbench.frameworks.numpy.operators.standardise import dots, stage, staged, standardise, standardise_gradient
from levelbench.operators.node import OperatorNode

__all__ = ["OPERATORS"]

OPERATORS = Registry()


def _rows(x: Array, axis: int) -> tuple[Array, tuple[int, ...]]:
    """``x`` as (rows, elements of the axes from ``axis`` on), and the shape of one value a row."""
    axis = axis % x.ndim
    lead = x.shape[:axis]
    return np.ascontiguousarray(x).reshape(prod(lead), prod(x.shape[axis:])), (*lead, *(1,) * (x.ndim - axis))


@OPERATORS.add("LayerNormalization")
def _layer_normalization(node: OperatorNode) -> Kernel:
    """Standardised over the axes from ``axis`` on (Ba, Kiros and Hinton 2016); computed in float32 or wider."""
    axis, epsilon = int(node["axis"]), node["epsilon"]

    def differentiate(*inputs: Any, keep: bool = True) -> Any:
        x, scale, bias = (*inputs, None)[:3]
        rows, column = _rows(staged(x, node), axis)
        with quiet():
            found = standardise(rows, epsilon)
            values = found.values.reshape(x.shape)
            y = np.multiply(values, lift(scale), out=None if keep else values)
            if bias is not None:
                y += lift(bias)

        def pullback(gradient: Any, by_mean: Any = None, by_inverse: Any = None) -> tuple[Any, ...]:
            with quiet():
                g = np.zeros_like(values) if gradient is None else lift(gradient)
                others = [None if each is None else lift(each).reshape(-1, 1) for each in (by_mean, by_inverse)]
                by_x = standardise_gradient((g * lift(scale)).reshape(rows.shape), found, *others).reshape(x.shape)
                by_scale = within(unbroadcast(g * values, scale.shape), scale)
                by_bias = None if bias is None else within(unbroadcast(g, bias.shape), bias)
            return (within(by_x, x), by_scale, by_bias)[: len(inputs)]

        kept = (lower(each.reshape(column), stage(node)) for each in (found.mean, found.inverse))
        return (lower(y, x.dtype), *kept), pullback

    return Kernel(lambda *inputs: differentiate(*inputs, keep=False)[0], vjp=differentiate)


@OPERATORS.add("RMSNormalization")
def _rms_normalization(node: OperatorNode) -> Kernel:
    """Computes x / sqrt(mean of x^2 + epsilon) over the axes from ``axis`` on, scaled (Zhang and Sennrich 2019)."""
    axis, epsilon = int(node["axis"]), node["epsilon"]

    def differentiate(x: Array, scale: Array) -> Any:
        rows, _ = _rows(staged(x, node), axis)
        n = max(rows.shape[1], 1)
        with quiet():
            inverse = 1 / np.sqrt(dots(rows, rows) / n + rows.dtype.type(epsilon))
            values = rows * inverse
            y = values.reshape(x.shape) * lift(scale)

        def pullback(gradient: Any) -> tuple[Any, ...]:
            if gradient is None:
                return None, None
            with quiet():
                g = lift(gradient)
                by_values = (g * lift(scale)).reshape(rows.shape)
                by_x = by_values - values * (dots(by_values, values) / n)
                by_x *= inverse
                by_scale = unbroadcast(g * values.reshape(x.shape), scale.shape)
            return within(by_x.reshape(x.shape), x), within(by_scale, scale)

        return (lower(y, x.dtype),), pullback

    return Kernel(lambda *inputs: differentiate(*inputs)[0], vjp=differentiate)


@OPERATORS.add("LRN")
def _lrn(node: OperatorNode) -> Kernel:
    """Computes x / (bias + alpha / size * sum of x^2 over ``size`` near channels)^beta (Krizhevsky et al. 2012)."""
    alpha, beta, bias, size = node["alpha"], node["beta"], node["bias"], int(node["size"])
    before, after = (size - 1) // 2, size // 2

    def base(x: Array) -> Array:
        found = _over_channels(x * x, before, after)
        found *= x.dtype.type(alpha / size)
        found += x.dtype.type(bias)
        return found

    def forward(x: Array) -> Array:
        wide = lift(x)
        with quiet():
            return lower(wide * base(wide) ** wide.dtype.type(-beta), x.dtype)

    def backward(gradient: Array, inputs: Sequence[Any], y: Array) -> tuple[Array | None, ...]:
        x, g = lift(inputs[0]), lift(gradient)
        root = base(x)
        power = root ** x.dtype.type(-beta)
        # Each channel is in the windows of those around it, with before and after exchanged.
        spread = _over_channels(g * x * power / root, after, before)
        return (lower(g * power - x * spread * x.dtype.type(2 * alpha * beta / size), inputs[0].dtype),)

    return Kernel(forward, alone(backward))


def _over_channels(x: Array, before: int, after: int) -> Array:
    """The sums over each channel, ``before`` channels before it and ``after`` behind it."""
    channels = x.shape[1]
    found = x.copy()
    for shift in range(1, min(before, channels - 1) + 1):
        found[:, shift:] += x[:, :-shift]
    for shift in range(1, min(after, channels - 1) + 1):
        found[:, :-shift] += x[:, shift:]
    return found
