"""Matrix products, reductions over axes, cumulative sums, TopK, losses, Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from levelbench.frameworks.shared.operators import Host, class_loss, reduction_axes
from levelbench.frameworks.tensorflow.arrays import Raw, TensorArray, einsum, matmul, wide, xp
from levelbench.frameworks.tensorflow.operators.registry import maker, on_arrays, operator, sizes_of, table
from levelbench.operators.contract import Array, Function
from levelbench.operators.node import OperatorNode

table(Det=tf.linalg.det)
on_arrays("MatMul", lambda node: matmul)


@operator("Gemm")
def _gemm(a: Raw, b: Raw, c: Raw = None, *, alpha: float, beta: float, transA: int, transB: int) -> Raw:  # noqa: N803  # ONNX's names
    if a.dtype.is_integer:
        left, right = (xp.asarray(tf.transpose(each) if turn else each) for each, turn in ((a, transA), (b, transB)))
        product = matmul(left, right).tensor
    else:
        product = tf.matmul(a, b, transpose_a=bool(transA), transpose_b=bool(transB))
    product = product if alpha == 1 else _scaled(product, alpha)
    return product if c is None else product + (c if beta == 1 else _scaled(c, beta))


def _scaled(x: Raw, factor: float) -> Raw:
    return tf.cast(tf.cast(x, tf.float64) * factor, x.dtype) if x.dtype.is_integer else x * factor


def _einsum(node: OperatorNode) -> Function:
    equation = str(node["equation"]).replace(" ", "")
    return lambda *inputs: einsum(equation, *inputs)


on_arrays("Einsum", _einsum)


# Reductions. Half precisions are summed in float32.

Reduce = Callable[[Raw, tuple[int, ...], bool], Raw]


def _log_sum_exp(x: Raw, axis: tuple[int, ...], keepdims: bool) -> Raw:
    return tf.reduce_logsumexp(x if x.dtype.is_floating else tf.cast(x, tf.float64), axis, keepdims)


def _euclidean(x: Raw, axis: tuple[int, ...], keepdims: bool) -> Raw:
    # Squares of small integers do not fit into their type.
    values = x if x.dtype.is_floating else tf.cast(x, tf.float64)
    squares = tf.reduce_sum(values * values, axis, keepdims)
    # The square root has no derivative at zero.
    nothing = squares == 0
    return tf.where(nothing, tf.zeros_like(squares), tf.sqrt(tf.where(nothing, tf.ones_like(squares), squares)))


def _log(x: Raw) -> Raw:
    return tf.math.log(x if x.dtype.is_floating else tf.cast(x, tf.float64))


_REDUCTIONS: dict[str, Reduce] = {
    "ReduceL1": lambda x, axis, keepdims: tf.reduce_sum(xp.abs(x).tensor, axis, keepdims),
    "ReduceL2": _euclidean,
    "ReduceLogSum": lambda x, axis, keepdims: _log(tf.reduce_sum(x, axis, keepdims)),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": tf.reduce_max,
    "ReduceMean": lambda x, axis, keepdims: xp.mean(xp.asarray(x), axis, keepdims).tensor,
    "ReduceMin": tf.reduce_min,
    "ReduceProd": tf.reduce_prod,
    "ReduceSum": tf.reduce_sum,
    "ReduceSumSquare": lambda x, axis, keepdims: tf.reduce_sum(x * x, axis, keepdims),
}
_ALONE: dict[str, Function] = {
    "ReduceL1": lambda x: xp.abs(x).tensor,
    "ReduceL2": lambda x: xp.abs(x).tensor,
    "ReduceLogSum": _log,
    "ReduceSumSquare": tf.square,
}
"""ONNX applies the element-wise part even if no axis is reduced."""


@maker(*_REDUCTIONS)
def _reduction(node: OperatorNode) -> Function:
    function, keep = _REDUCTIONS[node.op_type], bool(node["keepdims"])
    given, nothing = node.get("axes"), bool(node.get("noop_with_empty_axes", 0))
    boolean = {"ReduceMax": tf.reduce_any, "ReduceMin": tf.reduce_all}.get(node.op_type)

    def reduction(x: Raw, axes: Host | None = None) -> Raw:
        chosen = reduction_axes(given if axes is None else axes.tolist(), len(x.shape), nothing)
        if not chosen:
            return tf.cast(_ALONE.get(node.op_type, tf.identity)(x), x.dtype)
        if x.dtype == tf.bool and boolean is not None:
            return boolean(x, chosen, keep)
        return tf.cast(function(wide(x), chosen, keep), x.dtype)

    return reduction


@operator("ArgMax", "ArgMin")
def _arg(x: Raw, *, node: OperatorNode, axis: int, keepdims: int, select_last_index: int) -> Raw:
    function: Function = tf.argmax if node.op_type == "ArgMax" else tf.argmin
    at = axis % len(x.shape)
    found = function(tf.reverse(x, [at]) if select_last_index else x, at, output_type=tf.int64)
    found = sizes_of(x)[at] - 1 - found if select_last_index else found
    return tf.expand_dims(found, at) if keepdims else found


@operator("CumSum", "CumProd")
def _cumulative(x: Raw, axis: Host, *, node: OperatorNode, exclusive: int, reverse: int) -> Raw:
    function: Function = tf.cumsum if node.op_type == "CumSum" else tf.math.cumprod
    return function(x, int(axis.item()), bool(exclusive), bool(reverse))


@operator("TopK")
def _top_k(x: Raw, k: Host, *, axis: int, largest: int) -> tuple[Raw, ...]:
    """Equal values are in the order of their positions, as ONNX requires."""
    count, at = int(k.item()), axis % len(x.shape)
    # Inverted bits reverse the order of integers without overflow.
    keys = x if not largest else tf.bitwise.invert(x) if x.dtype.is_integer else -x
    order = tf.argsort(keys, at, stable=True)
    indices = tf.gather(order, np.arange(count), axis=at)
    return tf.experimental.numpy.take_along_axis(x, indices, at), tf.cast(indices, tf.int64)


# NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss, with class weights and an index to ignore.


def _negative_log_likelihood(node: OperatorNode, x: Array, target: Array, weight: Array | None = None) -> Array:
    return class_loss(xp, node, x, target, weight)


def _softmax_cross_entropy(node: OperatorNode) -> Function:
    def loss(scores: Array, labels: Array, weight: Array | None = None) -> tuple[Array, ...]:
        log_probability = TensorArray(tf.nn.log_softmax(scores.tensor, 1))
        return class_loss(xp, node, log_probability, labels, weight), log_probability

    return loss


on_arrays("NegativeLogLikelihoodLoss", lambda node: partial(_negative_log_likelihood, node))
on_arrays("SoftmaxCrossEntropyLoss", _softmax_cross_entropy)


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
    signal = _complex(x)
    size = int(length.item()) if length is not None else signal.shape[1] if window is None else window.shape[0]
    hop = int(step.item())
    frames = 1 + (signal.shape[1] - size) // hop
    cut = tf.gather(signal, np.arange(frames)[:, None] * hop + np.arange(size), axis=1)
    whole = tf.signal.fft(cut if window is None else cut * tf.cast(window, cut.dtype))
    return _pairs(whole[..., : size // 2 + 1] if onesided else whole, x.dtype)
