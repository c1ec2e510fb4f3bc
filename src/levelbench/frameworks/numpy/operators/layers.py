"""Normalisations, Dropout and random tensors, forward and backward.

A node with a seed draws from its own generator, made with the kernel, so that the same calls give the same numbers.
The others share one generator, which :func:`seed_generator` restarts.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto, helper

from levelbench.errors import DataError, UnsupportedError
from levelbench.frameworks.numpy.operators.elementwise import no_gradient
from levelbench.frameworks.numpy.operators.kernel import (
    Array,
    Arrays,
    Differentiated,
    Inputs,
    Kernel,
    cast_like,
    is_real,
    lift,
    lower,
    quiet,
    register,
    single_output,
    unbroadcast,
)
from levelbench.operators.contract import DType
from levelbench.operators.node import OperatorNode

_LONG = 4096


def stage(node: OperatorNode) -> DType:
    """The type that ``stash_type`` requests for the statistics; float32 by default."""
    return np.dtype(helper.tensor_dtype_to_np_dtype(node.get("stash_type", TensorProto.FLOAT)))


def staged(x: Array, node: OperatorNode) -> Array:
    """``x`` in its working dtype or, if the node requests it, in a wider one."""
    wide = lift(x)
    return wide.astype(np.float64) if stage(node) == np.float64 else wide


class Standardised(NamedTuple):
    """``values`` (rows, n), and per row, as columns (rows, 1), the mean and 1 / sqrt(variance + epsilon)."""

    values: Array
    mean: Array
    inverse: Array


def dots(a: Array, b: Array) -> Array:
    """The dot product of each pair of rows, as a column."""
    found: Array = np.einsum("ij,ij->i", a, b)[:, None]
    return found


def standardise(rows: Array, epsilon: float) -> Standardised:
    """``rows`` (rows, n) standardised with the population variance."""
    mean = _mean(rows)
    values = rows - mean
    inverse = 1 / np.sqrt(dots(values, values) / rows.shape[1] + rows.dtype.type(epsilon))
    values *= inverse
    return Standardised(values, mean, inverse)


def _mean(rows: Array) -> Array:
    """The mean per row, as a column: short rows by a matrix product, long ones pairwise, which is more accurate."""
    n = rows.shape[1]
    if n > _LONG or not n:
        return rows.mean(axis=1, keepdims=True)
    found: Array = rows @ np.ones((n, 1), rows.dtype)
    found /= n
    return found


def standardise_gradient(
    g: Array, found: Standardised, by_mean: Array | None = None, by_inverse: Array | None = None
) -> Array:
    """The gradient of the rows, given those of the values and, as columns, of the mean and the inverse."""
    n = g.shape[1]
    along = dots(g, found.values) / n
    if by_inverse is not None:
        # The derivative of the inverse with respect to x is -inverse^2 values / n.
        along = along + by_inverse * (found.inverse / n)
    result: Array = found.values * -along
    result += g
    result -= _mean(g)
    result *= found.inverse
    if by_mean is not None:
        result += by_mean / n
    return result


# BatchNormalization, InstanceNormalization and GroupNormalization.
# x - mean is computed before any product: that costs a pass over the array, but scale * x - scale * mean would lose
# digits.


@register("BatchNormalization")
def _batch_normalization(node: OperatorNode) -> Kernel:
    """Per channel, with the given statistics or, in training mode, those of the batch (Ioffe and Szegedy 2015)."""
    epsilon, momentum = node["epsilon"], node["momentum"]
    training = bool(node.get("training_mode", 0))
    if len(node.outputs) > 1 and not training:
        found = "it returns statistics in training mode only"
        raise UnsupportedError("BatchNormalization on numpy", found, "set training_mode")
    vjp = _train if training else _infer

    def differentiate(x: Array, scale: Array, bias: Array, mean: Array, variance: Array) -> Differentiated:
        given = (x, scale, bias, mean, variance)
        with quiet():
            return vjp(given, epsilon, momentum)

    return Kernel(lambda *inputs: differentiate(*inputs)[0], vjp=differentiate)


def _planes(x: Array) -> Array:
    """(batch, channels, elements)."""
    return x.reshape(len(x), x.shape[1] if x.ndim > 1 else 1, prod(x.shape[2:]))


def _column(vector: Array, dtype: DType) -> Array:
    return lift(vector).astype(dtype, copy=False)[:, None]


def _infer(given: tuple[Array, ...], epsilon: float, _: float) -> Differentiated:
    x = given[0]
    planes = _planes(lift(x))
    kind = planes.dtype
    scale, bias, mean, variance = (_column(each, kind) for each in given[1:])
    inverse = 1 / np.sqrt(variance + kind.type(epsilon))
    y = planes - mean
    y *= scale * inverse
    y += bias

    def pullback(gradient: Array | None) -> Arrays:
        if gradient is None:
            return (None,) * 5
        with quiet():
            g = _planes(lift(gradient))
            total = g.sum(axis=(0, 2))[:, None]
            along = np.einsum("ncp,ncp->c", g, planes)[:, None] - total * mean
            by_scale, by_mean = along * inverse, -total * scale * inverse
            by_variance = along * scale * inverse**3 * kind.type(-0.5)
            found = [(g * (scale * inverse)).reshape(x.shape), by_scale, total, by_mean, by_variance]
            return tuple(cast_like(each.reshape(like.shape), like) for each, like in zip(found, given, strict=True))

    return (lower(y.reshape(x.shape), x.dtype),), pullback


def _train(given: tuple[Array, ...], epsilon: float, momentum: float) -> Differentiated:
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

    def pullback(gradient: Array | None, by_mean: Array | None = None, by_variance: Array | None = None) -> Arrays:
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
                np.zeros_like(like) if each is None else cast_like(each.reshape(like.shape), like)
                for each, like in zip(found, given, strict=True)
            )

    return (lower(y.reshape(x.shape), x.dtype), *running), pullback


@register("InstanceNormalization", "GroupNormalization")
def _instance_and_group_normalization(node: OperatorNode) -> Kernel:
    """Standardises each channel, or each group of channels (Wu and He 2018), of each image, then scales and shifts."""

    def differentiate(*inputs: Array, keep: bool = True) -> Differentiated:
        return _by_channel(inputs, int(node.get("num_groups") or inputs[0].shape[1]), node, keep)

    return Kernel(lambda *inputs: differentiate(*inputs, keep=False)[0], vjp=differentiate)


def _by_channel(given: tuple[Array, ...], groups: int, node: OperatorNode, keep: bool) -> Differentiated:
    """Standardises each group of an image; scale and bias are per channel or, before opset 21, per group."""
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

    def pullback(gradient: Array | None) -> Arrays:
        if gradient is None:
            return None, None, None
        with quiet():
            g = np.ascontiguousarray(lift(gradient)).reshape(values.shape)
            rows = (g * _column(scale, kind)).reshape(found.values.shape)
            by_x = standardise_gradient(rows, found).reshape(x.shape)
            by_scale, by_bias = np.einsum("ncp,ncp->c", g, values), g.sum(axis=(0, 2))
        return cast_like(by_x, x), cast_like(by_scale, scale), cast_like(by_bias, bias)

    return (lower(y.reshape(x.shape), x.dtype),), pullback


# LayerNormalization, RMSNormalization and LRN divide by a root mean square of the trailing axes or of nearby channels.


def _rows(x: Array, axis: int) -> tuple[Array, tuple[int, ...]]:
    """``x`` as (rows, elements of the axes from ``axis`` on), and the shape of one value per row."""
    axis = axis % x.ndim
    lead = x.shape[:axis]
    return np.ascontiguousarray(x).reshape(prod(lead), prod(x.shape[axis:])), (*lead, *(1,) * (x.ndim - axis))


@register("LayerNormalization")
def _layer_normalization(node: OperatorNode) -> Kernel:
    """Standardises over the axes from ``axis`` on (Ba, Kiros and Hinton 2016), in float32 or wider."""
    axis, epsilon = int(node["axis"]), node["epsilon"]

    def differentiate(*inputs: Array, keep: bool = True) -> Differentiated:
        (x, scale), bias = inputs[:2], inputs[2] if len(inputs) > 2 else None
        rows, column = _rows(staged(x, node), axis)
        with quiet():
            found = standardise(rows, epsilon)
            values = found.values.reshape(x.shape)
            y = np.multiply(values, lift(scale), out=None if keep else values)
            if bias is not None:
                y += lift(bias)

        def pullback(gradient: Array | None, by_mean: Array | None = None, by_inverse: Array | None = None) -> Arrays:
            with quiet():
                g = np.zeros_like(values) if gradient is None else lift(gradient)
                others = [None if each is None else lift(each).reshape(-1, 1) for each in (by_mean, by_inverse)]
                by_x = standardise_gradient((g * lift(scale)).reshape(rows.shape), found, *others).reshape(x.shape)
                by_scale = cast_like(unbroadcast(g * values, scale.shape), scale)
                by_bias = None if bias is None else cast_like(unbroadcast(g, bias.shape), bias)
            return (cast_like(by_x, x), by_scale, by_bias)[: len(inputs)]

        kept = (lower(each.reshape(column), stage(node)) for each in (found.mean, found.inverse))
        return (lower(y, x.dtype), *kept), pullback

    return Kernel(lambda *inputs: differentiate(*inputs, keep=False)[0], vjp=differentiate)


@register("RMSNormalization")
def _rms_normalization(node: OperatorNode) -> Kernel:
    """Scaled x / sqrt(mean of x^2 + epsilon) over the axes from ``axis`` on (Zhang and Sennrich 2019)."""
    axis, epsilon = int(node["axis"]), node["epsilon"]

    def differentiate(x: Array, scale: Array) -> Differentiated:
        rows, _ = _rows(staged(x, node), axis)
        n = max(rows.shape[1], 1)
        with quiet():
            inverse = 1 / np.sqrt(dots(rows, rows) / n + rows.dtype.type(epsilon))
            values = rows * inverse
            y = values.reshape(x.shape) * lift(scale)

        def pullback(gradient: Array | None) -> Arrays:
            if gradient is None:
                return None, None
            with quiet():
                g = lift(gradient)
                by_values = (g * lift(scale)).reshape(rows.shape)
                by_x = by_values - values * (dots(by_values, values) / n)
                by_x *= inverse
                by_scale = unbroadcast(g * values.reshape(x.shape), scale.shape)
            return cast_like(by_x.reshape(x.shape), x), cast_like(by_scale, scale)

        return (lower(y, x.dtype),), pullback

    return Kernel(lambda *inputs: differentiate(*inputs)[0], vjp=differentiate)


@register("LRN")
def _lrn(node: OperatorNode) -> Kernel:
    """X / (bias + alpha / size * sum of x^2 over ``size`` nearby channels)^beta (Krizhevsky et al. 2012)."""
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

    def backward(gradient: Array, inputs: Inputs, y: Array) -> tuple[Array | None, ...]:
        x, g = lift(inputs[0]), lift(gradient)
        root = base(x)
        power = root ** x.dtype.type(-beta)
        # Each channel is in the windows of its neighbours, with before and after swapped.
        spread = _over_channels(g * x * power / root, after, before)
        return (lower(g * power - x * spread * x.dtype.type(2 * alpha * beta / size), inputs[0].dtype),)

    return Kernel(forward, single_output(backward))


def _over_channels(x: Array, before: int, after: int) -> Array:
    """The sum over each channel, ``before`` channels before it and ``after`` channels after it."""
    channels = x.shape[1]
    found = x.copy()
    for shift in range(1, min(before, channels - 1) + 1):
        found[:, shift:] += x[:, :-shift]
    for shift in range(1, min(after, channels - 1) + 1):
        found[:, :-shift] += x[:, shift:]
    return found


# LpNormalization and MeanVarianceNormalization.


_EPSILON = 1e-9
"""Added to the standard deviation in ONNX's definition of MeanVarianceNormalization."""


@register("LpNormalization")
def _lp_normalization(node: OperatorNode) -> Kernel:
    """X divided by its L1 or L2 norm along an axis; zero where the norm is zero."""
    axis, p = node["axis"], node["p"]

    def norm(x: Array) -> Array:
        if p == 1:
            return np.asarray(np.abs(x).sum(axis=axis, keepdims=True))
        return np.asarray(np.sqrt(np.square(x).sum(axis=axis, keepdims=True)))

    def forward(x: Array) -> Array:
        wide = lift(x)
        with quiet():
            size = norm(wide)
            return lower(np.where(size == 0, wide.dtype.type(0), wide / size), x.dtype)

    def backward(gradient: Array, inputs: Inputs, output: Array) -> tuple[Array, ...]:
        x, y, g = lift(inputs[0]), lift(output), lift(gradient)
        size = norm(x)
        slope = np.sign(x) if p == 1 else y
        by_x = (g - slope * (g * y).sum(axis=axis, keepdims=True)) / size
        return (cast_like(np.where(size == 0, x.dtype.type(0), by_x), inputs[0]),)

    return Kernel(forward, single_output(backward))


@register("MeanVarianceNormalization")
def _mean_variance_normalization(node: OperatorNode) -> Kernel:
    """(x - mean) / (standard deviation + 1e-9) over ``axes``."""
    axes = tuple(node.get("axes") or (0, 2, 3))

    def parts(x: Array) -> tuple[Array, Array]:
        centred = x - x.mean(axis=axes, keepdims=True)
        return centred, np.sqrt(np.square(centred).mean(axis=axes, keepdims=True))

    def forward(x: Array) -> Array:
        with quiet():
            centred, deviation = parts(lift(x))
            return lower(centred / (deviation + deviation.dtype.type(_EPSILON)), x.dtype)

    def backward(gradient: Array, inputs: Inputs, output: Array) -> tuple[Array, ...]:
        g = lift(gradient)
        centred, deviation = parts(lift(inputs[0]))
        size = deviation + deviation.dtype.type(_EPSILON)
        share = (g * centred).mean(axis=axes, keepdims=True) / (size * size * deviation)
        by_centred = g / size - centred * np.where(deviation == 0, deviation.dtype.type(0), share)
        return (cast_like(by_centred - by_centred.mean(axis=axes, keepdims=True), inputs[0]),)

    return Kernel(forward, single_output(backward))


_generators = [np.random.default_rng(0)]


def seed_generator(value: int) -> None:
    """Restart the generator that nodes without a seed draw from."""
    _generators[0] = np.random.default_rng(value)


def generator_state() -> Array:
    """The state of that generator, as bytes."""
    return np.frombuffer(json.dumps(_generators[0].bit_generator.state).encode(), np.uint8)


def restore_generator(kept: Array) -> None:
    """Continue from a :func:`generator_state`; ``DataError`` if it is invalid."""
    generator = np.random.default_rng(0)
    try:
        generator.bit_generator.state = json.loads(kept.tobytes())
    except (ValueError, TypeError, KeyError) as error:
        raise DataError("the state of NumPy's generator", f"it is invalid ({error})", "start the run again") from error
    _generators[0] = generator


def _generator(node: OperatorNode) -> Callable[[], np.random.Generator]:
    given = node.get("seed")
    if given is None:
        return lambda: _generators[0]
    # ONNX's seeds are floats (Dropout's is an integer); NumPy gets their bits as an integer.
    own = np.random.default_rng(given if isinstance(given, int) else struct.unpack("<I", struct.pack("<f", given))[0])
    return lambda: own


@register("Dropout")
def _dropout(node: OperatorNode) -> Kernel:
    """In training, zero with probability ``ratio``, else x / (1 - ratio); the mask says which elements were kept."""
    generator, masked = _generator(node), len(node.outputs) > 1
    if masked and node.opset < 10:
        raise UnsupportedError(f"Dropout of opset {node.opset}", "its mask is not boolean yet", "use onnx.reference")

    def draw(
        x: Array, ratio: Array | None = None, training: Array | None = None
    ) -> tuple[tuple[Array, ...], Array | None, float]:
        """The outputs, the mask (``None`` if nothing is dropped) and the probability of keeping an element."""
        kept = _kept(ratio, training)
        mask = None if kept == 1 else generator().random(x.shape, np.float32) < kept
        y = x if mask is None else _scaled(x, mask, kept)
        return ((y, np.ones(x.shape, bool) if mask is None else mask) if masked else (y,)), mask, kept

    def backward(gradients: Inputs, inputs: Inputs, outputs: Inputs) -> Arrays:
        kept, rest = _kept(*(*inputs, None, None)[1:3]), (None,) * (len(inputs) - 1)
        if gradients[0] is None or kept == 1:
            return gradients[0], *rest
        if len(outputs) > 1 and outputs[1] is not None:
            return _scaled(gradients[0], outputs[1], kept), *rest
        mask = outputs[0] != 0
        if not np.all(mask | (inputs[0] != 0)):
            found = "the input has zeros, so the output does not show which elements were dropped"
            raise UnsupportedError("the gradient of Dropout without its mask", found, "name the mask, or use vjp")
        return _scaled(gradients[0], mask, kept), *rest

    def vjp(*inputs: Array) -> Differentiated:
        outputs, mask, kept = draw(*inputs)
        rest = (None,) * (len(inputs) - 1)

        def pullback(*gradients: Array | None) -> Arrays:
            if gradients[0] is None or mask is None:
                return gradients[0], *rest
            return _scaled(gradients[0], mask, kept), *rest

        return outputs, pullback

    return Kernel(lambda *inputs: draw(*inputs)[0], backward, vjp)


def _kept(ratio: Array | None, training: Array | None) -> float:
    """The probability of keeping an element: 1 outside training."""
    if training is None or not np.asarray(training).item():
        return 1.0
    return 1 - (0.5 if ratio is None else float(np.asarray(ratio).reshape(())))


def _scaled(x: Array, mask: Array, kept: float) -> Array:
    """The kept elements divided by the probability of keeping them; 0 elsewhere."""
    wide = lift(x)
    return lower(wide * (mask * wide.dtype.type(1 / kept if kept else 0)), x.dtype)


def _dtype(node: OperatorNode, like: Array | None = None) -> DType:
    """The requested dtype, else the input's, else float32."""
    given = node.get("dtype")
    if given is None:
        return np.dtype(np.float32) if like is None else like.dtype
    return np.dtype(helper.tensor_dtype_to_np_dtype(given))


def _drawn(node: OperatorNode) -> Callable[[Sequence[int], DType], Array]:
    generator, uniform = _generator(node), node.op_type.startswith("RandomUniform")
    first, second = (node["low"], node["high"]) if uniform else (node["mean"], node["scale"])

    def draw(shape: Sequence[int], dtype: DType) -> Array:
        wide = np.float64 if dtype == np.float64 else np.float32
        source = generator()
        values: Array = np.asarray(source.random(shape, wide) if uniform else source.standard_normal(shape, wide))
        values *= wide(second - first if uniform else second)
        values += wide(first)
        return lower(values, dtype)

    return draw


@register("RandomNormal", "RandomUniform")
def _random(node: OperatorNode) -> Kernel:
    draw, shape = _drawn(node), list(node["shape"])
    return Kernel(lambda: draw(shape, _dtype(node)), no_gradient)


@register("RandomNormalLike", "RandomUniformLike")
def _random_like(node: OperatorNode) -> Kernel:
    """The input only gives the shape, so its gradient is zero."""
    draw = _drawn(node)
    return Kernel(lambda x: draw(x.shape, _dtype(node, x)), _zero)


@register("Bernoulli")
def _bernoulli(node: OperatorNode) -> Kernel:
    """1 with the probability given by the input, else 0; its gradient is zero, as in PyTorch."""
    generator = _generator(node)

    def forward(x: Array) -> Array:
        wide = np.float64 if x.dtype == np.float64 else np.float32
        return lower(generator().random(x.shape, wide) < lift(x), _dtype(node, x))

    return Kernel(forward, _zero)


def _zero(gradients: Inputs, inputs: Inputs, outputs: Inputs) -> Arrays:
    return tuple(np.zeros_like(each) if is_real(each) else None for each in inputs)
