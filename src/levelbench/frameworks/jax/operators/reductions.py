"""Matrix products, reductions over axes, cumulative sums, TopK, losses, Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from levelbench.frameworks.jax.operators.registry import PRECISION, maker, operator, table
from levelbench.frameworks.shared.operators import Host, class_loss, reduction_axes
from levelbench.operators.contract import DType, Function
from levelbench.operators.node import OperatorNode

table(
    Det=jnp.linalg.det,
    MatMul=lambda a, b: jnp.matmul(a, b, precision=PRECISION),
)


@operator("Gemm")
def _gemm(a: Array, b: Array, c: Array | None = None, *, alpha: float, beta: float, transA: int, transB: int) -> Array:  # noqa: N803  # ONNX's names
    product = jnp.matmul(a.T if transA else a, b.T if transB else b, precision=PRECISION)
    product = product if alpha == 1 else (alpha * product).astype(product.dtype)
    if c is None:
        return product
    return product + (c if beta == 1 else (beta * c).astype(c.dtype))


@operator("Einsum")
def _einsum(*inputs: Array, equation: str) -> Array:
    equation = equation.replace(" ", "")
    return jnp.einsum(equation, *inputs, precision=PRECISION)


# Reductions over axes, ArgMax and ArgMin, cumulative sums and products, TopK.


Reduce = Callable[[Array, tuple[int, ...], bool], Array]


def _log_sum_exp(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        return jnp.log(jnp.sum(jnp.exp(x.astype(jnp.float64)), axis=axis, keepdims=keepdims))
    return jax.nn.logsumexp(x, axis=axis, keepdims=keepdims)


def extreme(dtype: DType, largest: bool) -> Array:
    """The minimum (``largest``) or maximum of an empty set."""
    if dtype.kind == "b":
        return largest
    if jnp.issubdtype(dtype, jnp.inexact):
        return jnp.inf if largest else -jnp.inf
    return jnp.iinfo(dtype).max if largest else jnp.iinfo(dtype).min


def _euclidean(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    # Squares of small integers do not fit into their type.
    values = x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(jnp.float64)
    squares = jnp.sum(values * values, axis=axis, keepdims=keepdims)
    # The square root has no derivative at zero.
    nothing = squares == 0
    return jnp.where(nothing, jnp.zeros_like(squares), jnp.sqrt(jnp.where(nothing, jnp.ones_like(squares), squares)))


_REDUCTIONS: dict[str, Reduce] = {
    "ReduceL1": lambda x, axis, keepdims: jnp.sum(jnp.abs(x), axis=axis, keepdims=keepdims),
    "ReduceL2": _euclidean,
    "ReduceLogSum": lambda x, axis, keepdims: jnp.log(jnp.sum(x, axis=axis, keepdims=keepdims)),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": lambda x, axis, keepdims: jnp.max(x, axis, keepdims=keepdims, initial=extreme(x.dtype, False)),
    "ReduceMean": lambda x, axis, keepdims: jnp.mean(x, axis=axis, keepdims=keepdims),
    "ReduceMin": lambda x, axis, keepdims: jnp.min(x, axis, keepdims=keepdims, initial=extreme(x.dtype, True)),
    "ReduceProd": lambda x, axis, keepdims: jnp.prod(x, axis=axis, keepdims=keepdims),
    "ReduceSum": lambda x, axis, keepdims: jnp.sum(x, axis=axis, keepdims=keepdims),
    "ReduceSumSquare": lambda x, axis, keepdims: jnp.sum(x * x, axis=axis, keepdims=keepdims),
}


@maker(*_REDUCTIONS)
def _reduction(node: OperatorNode) -> Function:
    function, keep = _REDUCTIONS[node.op_type], bool(node["keepdims"])
    given, nothing = node.get("axes"), bool(node.get("noop_with_empty_axes", 0))
    # ONNX applies the element-wise part even if no axis is reduced.
    alone = {"ReduceL1": jnp.abs, "ReduceL2": jnp.abs, "ReduceLogSum": jnp.log, "ReduceSumSquare": jnp.square}

    def reduction(x: Array, axes: Host | None = None) -> Array:
        chosen = reduction_axes(given if axes is None else axes.tolist(), x.ndim, nothing)
        return (function(x, chosen, keep) if chosen else alone.get(node.op_type, jnp.asarray)(x)).astype(x.dtype)

    return reduction


@operator("ArgMax", "ArgMin")
def _arg(x: Array, *, node: OperatorNode, axis: int, keepdims: int, select_last_index: int) -> Array:
    function = jnp.argmax if node.op_type == "ArgMax" else jnp.argmin
    if not select_last_index:
        return function(x, axis, keepdims=bool(keepdims)).astype(jnp.int64)
    return (x.shape[axis] - 1 - function(jnp.flip(x, axis), axis, keepdims=bool(keepdims))).astype(jnp.int64)


@operator("CumSum", "CumProd")
def _cumulative(x: Array, axis: Host, *, node: OperatorNode, exclusive: int, reverse: int) -> Array:
    function, first = (lax.cumsum, 0) if node.op_type == "CumSum" else (lax.cumprod, 1)
    at = int(axis.item()) % x.ndim
    if exclusive:
        # Shift by one; the first element becomes the neutral one.
        edge = jnp.full_like(lax.slice_in_dim(x, 0, 1, axis=at), first)
        inner = lax.slice_in_dim(x, 1, None, axis=at) if reverse else lax.slice_in_dim(x, 0, -1, axis=at)
        x = jnp.concatenate([inner, edge] if reverse else [edge, inner], at)
    return function(x, axis=at, reverse=bool(reverse))


@operator("TopK")
def _top_k(x: Array, k: Host, *, axis: int, largest: int) -> tuple[Array, ...]:
    """Equal values are in the order of their positions, as ONNX requires."""
    count = int(k.item())
    # Inverted bits reverse the order of integers without overflow.
    keys = x if not largest else -x if jnp.issubdtype(x.dtype, jnp.inexact) else ~x
    order = jnp.argsort(keys, axis=axis, stable=True)
    indices = lax.slice_in_dim(order, 0, count, axis=axis)
    return jnp.take_along_axis(x, indices, axis), indices.astype(jnp.int64)


# NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss, with class weights and an index to ignore.


@operator("NegativeLogLikelihoodLoss")
def _negative_log_likelihood(x: Array, target: Array, weight: Array | None = None, *, node: OperatorNode) -> Array:
    return class_loss(jnp, node, x, target, weight)


@operator("SoftmaxCrossEntropyLoss")
def _softmax_cross_entropy(
    scores: Array, labels: Array, weight: Array | None = None, *, node: OperatorNode
) -> tuple[Array, ...]:
    log_probability = jax.nn.log_softmax(scores, 1)
    return class_loss(jnp, node, log_probability, labels, weight), log_probability


# DFT and STFT. ONNX stores complex numbers as pairs of reals along the last axis.


def _complex(x: Array) -> Array:
    wide = x if x.dtype.itemsize >= 4 else x.astype(jnp.float32)
    return wide[..., 0] if x.shape[-1] == 1 else wide[..., 0] + 1j * wide[..., 1]


def _exact(x: Array) -> Array:
    """ONNX's tests of the forward transform were computed in 64 bits, where absent frequencies are closer to zero."""
    return x.astype(jnp.float64) if x.dtype.itemsize < 8 else x


def _pairs(x: Array, dtype: DType) -> Array:
    return jnp.stack([jnp.real(x), jnp.imag(x)], -1).astype(dtype)


@maker("DFT")
def _dft(node: OperatorNode) -> Function:
    inverse, onesided = bool(node["inverse"]), bool(node["onesided"])
    given = int(node.get("axis", -2))

    def dft(x: Array, length: Host | None = None, axis: Host | None = None) -> Array:
        at = (given if axis is None else int(axis.item())) % x.ndim
        signal = _complex(x if inverse else _exact(x))
        if inverse and onesided:
            count = 2 * (x.shape[at] - 1) if length is None else int(length.item())
            return jnp.fft.irfft(signal, count, at)[..., None].astype(x.dtype)
        count = x.shape[at] if length is None else int(length.item())
        if inverse:
            return _pairs(jnp.fft.ifft(signal, count, at), x.dtype)
        if onesided and not jnp.iscomplexobj(signal):
            return _pairs(jnp.fft.rfft(signal, count, at), x.dtype)
        whole = jnp.fft.fft(signal, count, at)
        return _pairs(jnp.take(whole, np.arange(count // 2 + 1), at) if onesided else whole, x.dtype)

    return dft


@operator("STFT")
def _stft(x: Array, step: Host, window: Array | None = None, length: Host | None = None, *, onesided: int) -> Array:
    signal = _complex(x)
    size = int(length.item()) if length is not None else signal.shape[1] if window is None else window.shape[0]
    hop = int(step.item())
    frames = 1 + (signal.shape[1] - size) // hop
    cut = signal[:, np.arange(frames)[:, None] * hop + np.arange(size)]
    weighted = cut if window is None else cut * window
    if onesided and not jnp.iscomplexobj(weighted):
        return _pairs(jnp.fft.rfft(weighted, size, -1), x.dtype)
    whole = jnp.fft.fft(weighted, size, -1)
    return _pairs(whole[..., : size // 2 + 1] if onesided else whole, x.dtype)
