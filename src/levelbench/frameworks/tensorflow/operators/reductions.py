"""Determinants, cumulative sums and products, Fourier transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from levelbench.frameworks.shared.operators import Host
from levelbench.frameworks.tensorflow.arrays import Raw
from levelbench.frameworks.tensorflow.operators.registry import maker, operator, sizes_of, table
from levelbench.operators.contract import Function
from levelbench.operators.node import OperatorNode

table(Det=tf.linalg.det)


@operator("CumSum", "CumProd")
def _cumulative(x: Raw, axis: Host, *, node: OperatorNode, exclusive: int, reverse: int) -> Raw:
    at = int(axis.item()) % len(x.shape)
    if node.op_type == "CumSum":
        return tf.cumsum(x, at, bool(exclusive), bool(reverse))
    if not x.dtype.is_floating:
        return tf.math.cumprod(x, at, bool(exclusive), bool(reverse))
    x = tf.reverse(x, [at]) if reverse else x
    if exclusive:
        # Shifted by one; the first element becomes one.
        first, rest = tf.split(x, [1, sizes_of(x)[at] - 1], at) if sizes_of(x)[at] else (x, x)
        last = tf.split(x, [sizes_of(x)[at] - 1, 1], at)[0] if sizes_of(x)[at] else rest
        x = tf.concat([tf.ones_like(first), last], at)
    found = _products(x, at)
    return tf.reverse(found, [at]) if reverse else found


def _products(x: Raw, axis: int) -> Raw:
    """Cumulative products. TensorFlow's gradient of its own is wrong after a zero."""

    @tf.custom_gradient
    def products(x: Raw) -> tuple[Raw, Function]:
        def slopes(upstream: Raw) -> Raw:
            before = tf.unstack(tf.math.cumprod(x, axis, exclusive=True), axis=axis)
            factors, given = tf.unstack(x, axis=axis), tf.unstack(upstream, axis=axis)
            # The slope of the products from each place on, over the product before it.
            total, found = tf.zeros_like(given[0]), []
            for at in range(len(given) - 1, -1, -1):
                total = given[at] + (total * factors[at + 1] if at + 1 < len(given) else 0)
                found.append(total * before[at])
            return tf.stack(found[::-1], axis)

        return tf.math.cumprod(x, axis), slopes

    return products(x) if sizes_of(x)[axis] else x


# DFT and STFT. ONNX stores complex numbers as pairs of reals along the last axis.


def _complex(x: Raw, exact: bool = True) -> Raw:
    """In 64 bits, in which ONNX's tests of the forward transform were computed: absent frequencies are closer to 0."""
    wide = tf.cast(x, tf.float64) if exact or x.dtype == tf.float64 else tf.cast(x, tf.float32)
    return tf.complex(wide[..., 0], tf.zeros_like(wide[..., 0]) if x.shape[-1] == 1 else wide[..., 1])


def _pairs(x: Raw, kind: Any) -> Raw:
    return tf.cast(tf.stack([tf.math.real(x), tf.math.imag(x)], -1), kind)


def _resized(x: Raw, axis: int, count: int) -> Raw:
    """Cut or padded with zeros at the end of an axis."""
    have = sizes_of(x)[axis]
    if count <= have:
        return tf.gather(x, np.arange(count), axis=axis)
    return tf.pad(x, [(0, count - have if at == axis else 0) for at in range(len(x.shape))])


def _fourier(x: Raw, axis: int, function: Function) -> Raw:
    order = list(range(len(x.shape)))
    order[axis], order[-1] = order[-1], order[axis]
    return tf.transpose(function(tf.transpose(x, order)), order)


@maker("DFT")
def _dft(node: OperatorNode) -> Function:
    inverse, onesided = bool(node["inverse"]), bool(node["onesided"])
    given = int(node.get("axis", -2))

    def dft(x: Raw, length: Host | None = None, axis: Host | None = None) -> Raw:
        at = (given if axis is None else int(axis.item())) % len(x.shape)
        signal, size = _complex(x, not inverse), sizes_of(x)[at]
        count = int(length.item()) if length is not None else 2 * (size - 1) if inverse and onesided else size
        if inverse and onesided:
            half = _resized(signal, at, count // 2 + 1)
            whole = _fourier(half, at, lambda each: tf.signal.irfft(each, [count]))
            return tf.cast(whole[..., None], x.dtype)
        signal = _resized(signal, at, count)
        whole = _fourier(signal, at, tf.signal.ifft if inverse else tf.signal.fft)
        return _pairs(tf.gather(whole, np.arange(count // 2 + 1), axis=at) if onesided else whole, x.dtype)

    return dft


@operator("STFT")
def _stft(x: Raw, step: Host, window: Raw = None, length: Host | None = None, *, onesided: int) -> Raw:
    # Exporters leave out the last axis of real signals.
    signal = _complex(x[..., None] if len(x.shape) == 2 else x)
    size = int(length.item()) if length is not None else signal.shape[1] if window is None else window.shape[0]
    hop = int(step.item())
    frames = 1 + (signal.shape[1] - size) // hop
    cut = tf.gather(signal, np.arange(frames)[:, None] * hop + np.arange(size), axis=1)
    whole = tf.signal.fft(cut if window is None else cut * tf.cast(window, cut.dtype))
    return _pairs(whole[..., : size // 2 + 1] if onesided else whole, x.dtype)
