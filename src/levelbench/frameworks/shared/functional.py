"""Operators as pure functions over an array namespace, for frameworks that trace them: JAX and TensorFlow.

At a kink the gradient is PyTorch's, so that frameworks can be compared there: the full gradient at both bounds of Clip,
zero at 0 for Abs. Keyword-only parameters are attributes, or fields of :class:`Natives` and its library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from levelbench.errors import UnsupportedError
from levelbench.frameworks.shared.operators import (
    ArrayLibrary,
    Host,
    class_loss,
    constant_of,
    reduction_axes,
    with_attributes,
)
from levelbench.frameworks.shared.quantisation import QUANTISED, Cast, is_integer
from levelbench.frameworks.shared.sequences import activation_functions, recurrent
from levelbench.operators.contract import Array, Function
from levelbench.operators.node import OperatorNode

Widths = list[tuple[int, int]]
Reduce = Callable[[Array, tuple[int, ...], bool], Array]


class Natives(NamedTuple):
    """A framework's own functions where the Array API has none, or where its own are faster or have a gradient."""

    library: ArrayLibrary
    cast: Cast
    """(x, dtype, saturate, round_mode) by ONNX's rules."""
    absolute: Function
    """With a gradient of zero at 0."""
    relu: Function
    sigmoid: Function
    softplus: Function
    softsign: Function
    log_softmax: Callable[[Array, int], Array]
    log_sum_exp: Reduce
    amax: Reduce
    """The maximum over axes: NaN where there is one, the lowest value of the type over nothing."""
    amin: Reduce
    moments: Callable[[Array, Sequence[int]], tuple[Array, Array]]
    """Mean and variance over axes, which they lose."""
    product: Callable[[Array, Array, bool, bool], Array]
    """(a, b, transpose a, transpose b) -> the product of two matrices."""
    split: Callable[[Array, Sequence[int], int], Sequence[Array]]
    """(x, sizes, axis)"""
    pad: Callable[[Array, Widths, str, Array | None], Array]
    """(x, widths, mode, value) -> ``x`` with elements added, or cut off where a width is negative."""
    refuse: Callable[..., UnsupportedError]


FunctionalMaker = Callable[[OperatorNode, Natives], Function]
FUNCTIONAL: dict[str, FunctionalMaker] = {}
"""The makers by name."""


def functional_maker(*names: str) -> Callable[[FunctionalMaker], FunctionalMaker]:
    """Register a maker: it returns the function of a node on a framework's arrays."""

    def register(make: FunctionalMaker) -> FunctionalMaker:
        FUNCTIONAL.update(dict.fromkeys(names, make))
        return make

    return register


def bound(function: Function) -> FunctionalMaker:
    """A maker that binds the function's keyword-only parameters."""
    return lambda node, natives: with_attributes(function, node, {**natives.library._asdict(), **natives._asdict()})


def functional(*names: str) -> Callable[[Function], Function]:
    """Register a function of arrays."""

    def register(function: Function) -> Function:
        functional_maker(*names)(bound(function))
        return function

    return register


def wide(xp: ModuleType, x: Array) -> Array:
    """Half precisions as float32, in which they are summed."""
    return xp.astype(x, xp.float32) if x.dtype.itemsize < 4 and _is_floating(x) else x


def by_channel(value: Array, rank: int) -> Array:
    """A vector of channels along the second of ``rank`` axes."""
    return value.reshape((1, -1, *[1] * (rank - 2)))


def root(xp: ModuleType, x: Array, power: float = 0.5) -> Array:
    """A root of what is not negative; it has no derivative at zero, and gets one of zero."""
    nothing = x == 0
    ready = xp.where(nothing, xp.ones_like(x), x)
    return xp.where(nothing, xp.zeros_like(x), xp.sqrt(ready) if power == 0.5 else ready**power)


def _is_floating(x: Array) -> bool:
    return x.dtype.kind != "b" and not is_integer(x.dtype)


# Arithmetic and activations.


def ramp(xp: ModuleType, x: Array) -> Array:
    """Clipped to [0, 1], with a gradient of zero at both bounds."""
    return xp.where(x <= 0, xp.zeros_like(x), xp.where(x >= 1, xp.ones_like(x), x))


def _elu(xp: ModuleType, x: Array, alpha: float, scale: float = 1.0) -> Array:
    negative = xp.where(x > 0, xp.zeros_like(x), x)
    return xp.where(x > 0, x, alpha * xp.expm1(negative if scale == 1 else negative / scale))


@functional("Clip")
def _clip(x: Array, low: Array | None = None, high: Array | None = None, *, xp: ModuleType) -> Array:
    # If the bounds cross, ONNX returns the upper one; a bound that is NaN makes NaN.
    raised = x if low is None else xp.where((x < low) | (low != low), low, x)
    return raised if high is None else xp.where((raised > high) | (high != high), high, raised)


@functional("Pow")
def _power(base: Array, exponent: Array, *, xp: ModuleType) -> Array:
    """The result has the base's type, whatever the exponent's."""
    if _is_floating(base):
        power = xp.astype(exponent, base.dtype)
        # The slope of 0 to the power of 0 would be NaN.
        return xp.pow(xp.where((base == 0) & (power == 0), xp.ones_like(base), base), power)
    if _is_floating(exponent):
        # In 64 bits: a narrow exponent type cannot represent every base.
        return xp.astype(xp.pow(xp.astype(base, xp.float64), xp.astype(exponent, xp.float64)), base.dtype)
    whole, power = xp.astype(base, xp.int64), xp.astype(exponent, xp.int64)
    found = xp.pow(whole, xp.abs(power))
    # A negative exponent makes a fraction, which is cut to zero, of all bases but 1 and -1.
    return xp.astype(xp.where((power < 0) & (xp.abs(whole) != 1), xp.zeros_like(found), found), base.dtype)


@functional("PRelu")
def _prelu(x: Array, slope: Array, *, xp: ModuleType) -> Array:
    return x if x.dtype.kind == "u" else xp.where(x > 0, x, slope * x)


@functional("Hardmax")
def _hardmax(x: Array, *, axis: int, array: Function, xp: ModuleType) -> Array:
    at = axis % x.ndim
    places = array(np.arange(x.shape[at]).reshape([-1 if each == at else 1 for each in range(x.ndim)]))
    return xp.astype(xp.expand_dims(xp.argmax(x, axis=at), axis=at) == places, x.dtype)


_TABLE: dict[str, Function] = {
    "Celu": lambda x, *, alpha, xp: _elu(xp, x, alpha, alpha),
    "Elu": lambda x, *, alpha, xp: _elu(xp, x, alpha),
    "HardSigmoid": lambda x, *, alpha, beta, xp: ramp(xp, alpha * x + beta),
    "HardSwish": lambda x, *, xp: x * ramp(xp, (x + 3) / 6),
    "Identity": lambda x: x,
    "LeakyRelu": lambda x, *, alpha, xp: xp.where(x > 0, x, alpha * x),
    "Mean": lambda *inputs: reduce(add, inputs) / len(inputs),
    "Mish": lambda x, *, softplus, xp: x * xp.tanh(softplus(x)),
    "Selu": lambda x, *, alpha, gamma, xp: gamma * _elu(xp, x, alpha),
    "Sum": lambda *inputs: reduce(add, inputs),
    "SwiGLU": lambda gate, x, *, sigmoid, alpha=1.0: gate * sigmoid(alpha * gate) * x,
    "Swish": lambda x, *, alpha, sigmoid: x * sigmoid(alpha * x),
    "ThresholdedRelu": lambda x, *, alpha, xp: xp.where(x > alpha, x, xp.zeros_like(x)),
    # Shapes.
    "Concat": lambda *inputs, axis, xp: xp.concat(inputs, axis=axis),
    "Squeeze": lambda x, axes=None, *, xp: xp.squeeze(x, axis=None if axes is None else _listed(axes)),
    "Tile": lambda x, repeats, *, xp: xp.tile(x, _listed(repeats)),
    "Transpose": lambda x, *, xp, perm=None: xp.permute_dims(x, tuple(range(x.ndim))[::-1] if perm is None else perm),
    "Unsqueeze": lambda x, axes, *, xp: xp.expand_dims(x, axis=_listed(axes)),
    # Products and means.
    "Einsum": lambda *inputs, equation, einsum: einsum(equation.replace(" ", ""), *inputs),
    "GlobalAveragePool": lambda x, *, xp: xp.astype(xp.mean(wide(xp, x), axis=spatial(x), keepdims=True), x.dtype),
    "GlobalMaxPool": lambda x, *, amax: amax(x, spatial(x), True),
    "MatMul": lambda a, b, *, matmul: matmul(a, b),
    **QUANTISED,
}
for _name, _function in _TABLE.items():
    functional(_name)(_function)


@functional_maker("Relu", "Sigmoid", "Softplus", "Softsign")
def _own(node: OperatorNode, natives: Natives) -> Function:
    found: Function = getattr(natives, node.op_type.lower())
    return found


@functional_maker("Cast", "CastLike")
def _cast(node: OperatorNode, natives: Natives) -> Function:
    cast, how = natives.cast, (bool(node.get("saturate", 1)), str(node.get("round_mode", "up")))
    if node.op_type == "CastLike":
        return lambda x, like: cast(x, like.dtype, *how)
    dtype = natives.library.dtype_of(node["to"])
    return lambda x: cast(x, dtype, *how)


# Reductions.


def _real(xp: ModuleType, x: Array) -> Array:
    """Squares of small integers do not fit into their type, nor do logarithms."""
    return x if _is_floating(x) else xp.astype(x, xp.float64)


_REDUCTIONS: dict[str, Callable[[Natives, ModuleType, Array, tuple[int, ...], bool], Array]] = {
    "ReduceL1": lambda own, xp, x, axis, keep: xp.sum(own.absolute(x), axis=axis, keepdims=keep),
    "ReduceL2": lambda own, xp, x, axis, keep: root(xp, xp.sum(_real(xp, x) ** 2, axis=axis, keepdims=keep)),
    "ReduceLogSum": lambda own, xp, x, axis, keep: xp.log(_real(xp, xp.sum(x, axis=axis, keepdims=keep))),
    "ReduceLogSumExp": lambda own, xp, x, axis, keep: own.log_sum_exp(_real(xp, x), axis, keep),
    "ReduceMax": lambda own, xp, x, axis, keep: own.amax(x, axis, keep),
    "ReduceMean": lambda own, xp, x, axis, keep: xp.mean(x, axis=axis, keepdims=keep),
    "ReduceMin": lambda own, xp, x, axis, keep: own.amin(x, axis, keep),
    "ReduceProd": lambda own, xp, x, axis, keep: xp.prod(x, axis=axis, keepdims=keep),
    "ReduceSum": lambda own, xp, x, axis, keep: xp.sum(x, axis=axis, keepdims=keep),
    "ReduceSumSquare": lambda own, xp, x, axis, keep: xp.sum(x * x, axis=axis, keepdims=keep),
}
# ONNX applies the element-wise part even if no axis is reduced.
_ALONE: dict[str, Callable[[Natives, ModuleType, Array], Array]] = {
    "ReduceL1": lambda own, _, x: own.absolute(x),
    "ReduceL2": lambda own, _, x: own.absolute(x),
    "ReduceLogSum": lambda _, xp, x: xp.log(_real(xp, x)),
    "ReduceSumSquare": lambda _, __, x: x * x,
}


@functional_maker(*_REDUCTIONS)
def _reduction(node: OperatorNode, natives: Natives) -> Function:
    function, keep, xp = _REDUCTIONS[node.op_type], bool(node["keepdims"]), natives.library.xp
    given, nothing = node.get("axes"), bool(node.get("noop_with_empty_axes", 0))
    alone = _ALONE.get(node.op_type)

    def reduction(x: Array, axes: Host | None = None) -> Array:
        chosen = reduction_axes(given if axes is None else axes.tolist(), x.ndim, nothing)
        if not chosen:
            return xp.astype(alone(natives, xp, x), x.dtype) if alone else x
        return xp.astype(function(natives, xp, wide(xp, x), chosen, keep), x.dtype)

    return reduction


@functional("ArgMax", "ArgMin")
def _arg(x: Array, *, node: OperatorNode, axis: int, keepdims: int, select_last_index: int, xp: ModuleType) -> Array:
    function, at = xp.argmax if node.op_type == "ArgMax" else xp.argmin, axis % x.ndim
    found = function(xp.flip(x, axis=at) if select_last_index else x, axis=at, keepdims=bool(keepdims))
    return xp.astype(x.shape[at] - 1 - found if select_last_index else found, xp.int64)


@functional("TopK")
def _top_k(x: Array, k: Host, *, axis: int, largest: int, array: Function, take: Function, xp: ModuleType) -> Any:
    """Equal values are in the order of their positions, as ONNX requires; NaN counts as larger than any number."""
    at = axis % x.ndim
    order = xp.argsort(x, axis=at, descending=bool(largest), stable=True)
    indices = xp.astype(take(order, array(np.arange(k.item())), at), xp.int64)
    return xp.take_along_axis(x, indices, axis=at), indices


@functional_maker("Gemm")
def _gemm(node: OperatorNode, natives: Natives) -> Function:
    alpha, beta = float(node["alpha"]), float(node["beta"])
    turns, xp = (bool(node["transA"]), bool(node["transB"])), natives.library.xp

    def gemm(a: Array, b: Array, c: Array | None = None) -> Array:
        product = natives.product(a, b, *turns)
        product = product if alpha == 1 else xp.astype(alpha * product, product.dtype)
        return product if c is None else product + (c if beta == 1 else xp.astype(beta * c, c.dtype))

    return gemm


# NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss, with class weights and an index to ignore.


@functional("NegativeLogLikelihoodLoss")
def _negative_log_likelihood(
    x: Array, target: Array, weight: Array | None = None, *, node: OperatorNode, xp: ModuleType
) -> Array:
    return class_loss(xp, node, x, target, weight)


@functional("SoftmaxCrossEntropyLoss")
def _softmax_cross_entropy(
    scores: Array,
    labels: Array,
    weight: Array | None = None,
    *,
    node: OperatorNode,
    log_softmax: Callable[[Array, int], Array],
    xp: ModuleType,
) -> tuple[Array, ...]:
    log_probability = log_softmax(scores, 1)
    return class_loss(xp, node, log_probability, labels, weight), log_probability


# Normalisations. Half precisions are averaged in float32.


@functional_maker("BatchNormalization")
def _batch_normalization(node: OperatorNode, natives: Natives) -> Function:
    epsilon, momentum, xp = float(node["epsilon"]), float(node["momentum"]), natives.library.xp
    training = bool(node.get("training_mode", 0))
    if not training and sum(bool(name) for name in node.outputs) > 1:
        raise natives.refuse(node, "several outputs mean the training mode of opsets before 14", "use opset 15")

    def batch_normalization(x: Array, scale: Array, bias: Array, mean: Array, variance: Array) -> tuple[Array, ...]:
        values, rank = wide(xp, x), x.ndim
        running: tuple[Array, ...] = ()
        if training:
            found, spread = natives.moments(values, [0, *range(2, rank)])
            running = tuple(
                xp.astype(xp.astype(old, values.dtype) * momentum + new * (1 - momentum), old.dtype)
                for old, new in ((mean, found), (variance, spread))
            )
            mean, variance = found, spread
        factor = xp.astype(scale, values.dtype) / xp.sqrt(xp.astype(variance, values.dtype) + epsilon)
        centred = values - by_channel(xp.astype(mean, values.dtype), rank)
        y = centred * by_channel(factor, rank) + by_channel(xp.astype(bias, values.dtype), rank)
        return xp.astype(y, x.dtype), *running

    return batch_normalization


def _standardised(xp: ModuleType, x: Array, axes: Sequence[int], epsilon: float) -> tuple[Array, Array, Array]:
    """The values, their mean, and the inverse of their deviation."""
    mean = xp.mean(x, axis=tuple(axes), keepdims=True)
    centred = x - mean
    inverse = 1 / xp.sqrt(xp.mean(centred * centred, axis=tuple(axes), keepdims=True) + epsilon)
    return centred * inverse, mean, inverse


@functional("InstanceNormalization")
def _instance_normalization(x: Array, scale: Array, bias: Array, *, epsilon: float, xp: ModuleType) -> Array:
    y = _standardised(xp, wide(xp, x), spatial(x), epsilon)[0]
    return xp.astype(y * by_channel(scale, x.ndim) + by_channel(bias, x.ndim), x.dtype)


@functional("GroupNormalization")
def _group_normalization(
    x: Array, scale: Array, bias: Array, *, node: OperatorNode, num_groups: int, epsilon: float, xp: ModuleType
) -> Array:
    """Scale and bias are per channel; before opset 21 they are per group."""
    y = _standardised(xp, wide(xp, x).reshape((x.shape[0], num_groups, -1)), (2,), epsilon)[0]
    if node.opset < 21:
        return xp.astype((y * scale[:, None] + bias[:, None]).reshape(x.shape), x.dtype)
    return xp.astype(y.reshape(x.shape) * by_channel(scale, x.ndim) + by_channel(bias, x.ndim), x.dtype)


def _at_least(xp: ModuleType, x: Array, dtype: Any) -> Array:
    return xp.astype(x, dtype) if x.dtype.itemsize < dtype.itemsize else x


@functional("LayerNormalization")
def _layer_normalization(
    x: Array,
    scale: Array,
    bias: Array | None = None,
    *,
    axis: int,
    epsilon: float,
    stash_type: int,
    dtype_of: Function,
    xp: ModuleType,
) -> tuple[Array, ...]:
    """The statistics are computed in at least ``stash_type``, scale and bias applied in the input's type."""
    stash = dtype_of(stash_type)
    found, mean, inverse = _standardised(xp, _at_least(xp, x, stash), range(axis % x.ndim, x.ndim), epsilon)
    y = xp.astype(found, x.dtype) * scale
    return y if bias is None else y + bias, xp.astype(mean, stash), xp.astype(inverse, stash)


@functional("RMSNormalization")
def _rms_normalization(
    x: Array, scale: Array, *, axis: int, epsilon: float, stash_type: int, dtype_of: Function, xp: ModuleType
) -> Array:
    values = _at_least(xp, x, dtype_of(stash_type))
    mean = xp.mean(values * values, axis=tuple(range(axis % x.ndim, x.ndim)), keepdims=True)
    return xp.astype(values / xp.sqrt(mean + epsilon), scale.dtype) * scale


@functional("LRN")
def _lrn(x: Array, *, alpha: float, beta: float, bias: float, size: int, pad: Function, xp: ModuleType) -> Array:
    values, before = wide(xp, x), (size - 1) // 2
    widths = [(0, 0), (before, size - 1 - before), *[(0, 0)] * (x.ndim - 2)]
    squares = pad(values * values, widths, "constant", None)
    total = reduce(add, [squares[:, at : at + x.shape[1]] for at in range(size)])
    return xp.astype(values / (bias + alpha / size * total) ** beta, x.dtype)


@functional("LpNormalization")
def _lp_normalization(x: Array, *, axis: int, p: int, absolute: Function, xp: ModuleType) -> Array:
    """Zero where the norm is zero."""
    total = xp.sum(absolute(x) if p == 1 else x * x, axis=axis, keepdims=True)
    norm = total if p == 1 else root(xp, total)
    nothing = norm == 0
    return xp.where(nothing, xp.zeros_like(x), x / xp.where(nothing, xp.ones_like(norm), norm))


# Recurrent layers and Dropout.


@functional_maker("RNN", "GRU", "LSTM")
def _recurrent(node: OperatorNode, natives: Natives) -> Function:
    xp = natives.library.xp
    known: dict[str, Function] = {
        "affine": lambda x, alpha, beta: alpha * x + beta,
        "elu": lambda x, alpha, _: _elu(xp, x, alpha),
        "hardsigmoid": lambda x, alpha, beta: xp.clip(alpha * x + beta, 0, 1),
        "leakyrelu": lambda x, alpha, _: xp.where(x > 0, x, alpha * x),
        "relu": lambda x, _, __: natives.relu(x),
        "scaledtanh": lambda x, alpha, beta: alpha * xp.tanh(beta * x),
        "sigmoid": lambda x, _, __: natives.sigmoid(x),
        "softplus": lambda x, _, __: natives.softplus(x),
        "softsign": lambda x, _, __: natives.softsign(x),
        "tanh": lambda x, _, __: xp.tanh(x),
        "thresholdedrelu": lambda x, alpha, _: xp.where(x > alpha, x, xp.zeros_like(x)),
    }
    return recurrent(node, natives.library, activation_functions(node, natives.library, known, natives.refuse))


def dropout_rates(ratio: Array | None, training: Array | None) -> tuple[float, bool]:
    """The share to drop and whether anything is dropped, from Dropout's second and third inputs."""
    share = 0.5 if ratio is None else float(np.asarray(ratio))
    return share, training is not None and bool(np.asarray(training)) and share != 0


def dropout_gradient(
    xp: ModuleType,
    node: OperatorNode,
    gradients: Sequence[Array | None],
    inputs: Sequence[Array | None],
    outputs: Sequence[Array | None],
) -> tuple[Array | None, ...]:
    """From the mask among the outputs, unless nothing was dropped."""
    share, drops = dropout_rates(*(*inputs, None, None)[1:3])
    nothing, gradient = (None,) * (len(inputs) - 1), gradients[0]
    if gradient is None:
        return xp.zeros_like(inputs[0]), *nothing
    if not drops:
        return gradient, *nothing
    if len(outputs) < 2 or outputs[1] is None:
        raise UnsupportedError(f"the gradient of {node.title}", "its mask is not an output", "name it, or use vjp")
    return xp.where(outputs[1], gradient / (1 - share), xp.zeros_like(gradient)), *nothing


# Shapes and constants.


def _listed(axes: Host) -> tuple[int, ...]:
    return tuple(int(each) for each in np.atleast_1d(axes))


def spatial(x: Array) -> tuple[int, ...]:
    """The axes after samples and channels."""
    return tuple(range(2, x.ndim))


@functional("Split")
def _split(x: Array, sizes: Host | None = None, *, node: OperatorNode, axis: int, split: Function) -> tuple[Array, ...]:
    count, length = len(node.outputs), x.shape[axis]
    # Parts are equal except for the last one.
    ends = np.minimum(-(-length // count) * np.arange(count + 1), length)
    return tuple(split(x, (np.diff(ends) if sizes is None else sizes).tolist(), axis))


@functional("Slice")
def _slice(x: Array, starts: Host, ends: Host, axes: Host | None = None, steps: Host | None = None) -> Array:
    listed = range(starts.size) if axes is None else axes.tolist()
    strides = [1] * starts.size if steps is None else steps.tolist()
    where = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts.tolist(), ends.tolist(), listed, strides, strict=True):
        where[axis] = _range(start, end, step, x.shape[axis])
    return x[tuple(where)]


def _range(start: int, end: int, step: int, length: int) -> slice:
    """The elements between ONNX's bounds, as a slice that leaves nothing to clip."""
    if step < 0:
        start = max(start, -length)
        found = range(length)[slice(start, None if end < -length else end, step)]
    else:
        found = range(length)[slice(start, end, step)]
    stop = found.stop if found.stop >= 0 else None
    return slice(found.start, stop, step) if len(found) else slice(0, 0)


@functional_maker("Pad")
def _pad(node: OperatorNode, natives: Natives) -> Function:
    """Negative pads crop."""
    mode = node["mode"]
    if mode not in {"constant", "reflect", "edge", "wrap"}:
        raise natives.refuse(node, f"unknown mode {mode!r}")

    def pad(x: Array, pads: Host, value: Array | None = None, axes: Host | None = None) -> Array:
        places = [int(each) % x.ndim for each in (range(x.ndim) if axes is None else axes)]
        widths = [(0, 0)] * x.ndim
        for at, axis in enumerate(places):
            widths[axis] = (int(pads[at]), int(pads[at + len(places)]))
        return natives.pad(x, widths, mode, value)

    return pad


@functional("CenterCropPad")
def _center_crop_pad(x: Array, shape: Host, *, pad: Function, axes: Sequence[int] | None = None) -> Array:
    widths = [(0, 0)] * x.ndim
    for axis, size in zip(range(x.ndim) if axes is None else axes, shape, strict=True):
        more = int(size) - x.shape[axis]
        before = more // 2 if more > 0 else -(-more // 2)
        widths[axis] = (before, more - before)
    return pad(x, widths, "constant", None)


@functional_maker("Constant")
def _constant(node: OperatorNode, natives: Natives) -> Function:
    value = constant_of(node)
    if value is None or value.dtype.kind in "OSUT":
        raise natives.refuse(node, "strings and sparse tensors are not supported")
    return lambda: natives.library.array(value)


@functional("ConstantOfShape")
def _constant_of_shape(shape: Host, *, xp: ModuleType, value: Host | None = None) -> Array:
    fill = np.zeros(1, np.float32) if value is None else value.reshape(-1)
    return xp.full(tuple(shape.tolist()), fill[0], dtype=fill.dtype)
