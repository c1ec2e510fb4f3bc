"""Reductions over axes, ArgMax and ArgMin, cumulative sums and products, and losses.

Each reduction has a forward that keeps the reduced axes, and a gradient for the kept shapes; the axes and whether they
are dropped are handled once for all of them. Ties in ReduceMax and ReduceMin share the gradient evenly, as in PyTorch's
amax.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from levelbench.frameworks.numpy.operators.activations import log_softmax, rows
from levelbench.frameworks.numpy.operators.elementwise import no_gradient
from levelbench.frameworks.numpy.operators.kernel import (
    Array,
    Arrays,
    Differentiated,
    Inputs,
    Kernel,
    Maker,
    cast_like,
    is_narrow,
    is_real,
    lift,
    lower,
    quiet,
    register,
    single_output,
)
from levelbench.frameworks.shared.operators import reduction_axes
from levelbench.operators.contract import DType, Pullback
from levelbench.operators.node import OperatorNode

Axes = tuple[int, ...]
Forward = Callable[[Array, Axes], Array]
"""(x, axes) -> the result, with reduced axes of size 1."""
Gradient = Callable[[Array, Array, Array, Axes], Array]
"""(gradient, x, result, axes), with reduced axes of size 1 -> a value that broadcasts to the gradient of x."""

_SHORT, _LONG = 64, 1024
_RUN = 256


def _axes(node: OperatorNode, rank: int, given: Array | None) -> Axes:
    """The axes to reduce: an input in newer versions of an operator, an attribute in older ones."""
    axes = node.get("axes") if given is None else np.asarray(given).reshape(-1).tolist()
    return reduction_axes(axes, rank, bool(node.get("noop_with_empty_axes", 0)))


def _reduction(reduce: Forward, pull: Gradient) -> Maker:
    def maker(node: OperatorNode) -> Kernel:
        keep = node["keepdims"]

        def forward(x: Array, given: Array | None = None) -> Array:
            axes = _axes(node, x.ndim, given)
            with quiet():
                y = lower(reduce(lift(x), axes), x.dtype)
            return y if keep else y.reshape([size for at, size in enumerate(x.shape) if at not in axes])

        def backward(gradient: Array, inputs: Inputs, output: Array) -> Arrays:
            x, given = (*inputs, None)[:2]
            axes = _axes(node, x.ndim, given)
            kept = _kept(x, axes)
            found = pull(lift(gradient).reshape(kept), lift(x), lift(output).reshape(kept), axes)
            return cast_like(np.broadcast_to(found, x.shape), x), *(None,) * (len(inputs) - 1)

        return Kernel(forward, single_output(backward))

    return maker


def _count(x: Array, axes: Axes) -> int:
    return prod(x.shape[axis] for axis in axes)


def _kept(x: Array, axes: Axes) -> list[int]:
    return [1 if at in axes else size for at, size in enumerate(x.shape)]


def _trailing(x: Array, axes: Axes) -> int:
    """How many elements are reduced to one if the axes are the last ones and x is not empty; else 0."""
    return _count(x, axes) if x.size and axes == tuple(range(x.ndim - len(axes), x.ndim)) else 0


def _sum(x: Array, axes: Axes) -> Array:
    count = _trailing(x, axes)
    if x.dtype.kind == "f" and 1 < count < _SHORT:
        # NumPy pays an overhead for each row; a product with ones does not.
        return (x.reshape(-1, count) @ np.ones(count, x.dtype)).reshape(_kept(x, axes))
    if x.dtype.kind == "f" and _SHORT <= count <= _LONG and x.flags.c_contiguous:
        # A third of the time of NumPy's own sum. It adds vectors of several chains, whose error is small in such rows.
        return np.einsum("ij->i", x.reshape(-1, count)).reshape(_kept(x, axes))
    rows = _leading(x, axes)
    if x.dtype.kind == "f" and rows > _RUN and x.flags.c_contiguous:
        return _sum_of_rows(x.reshape(rows, x.size // rows)).reshape(_kept(x, axes))
    return np.asarray(np.add.reduce(x, axis=axes, keepdims=True, dtype=x.dtype))


def _leading(x: Array, axes: Axes) -> int:
    """How many rows are added up if the axes are the first ones, but not all; else 0."""
    return _count(x, axes) if x.size and len(axes) < x.ndim and axes == tuple(range(len(axes))) else 0


def _sum_of_rows(rows: Array) -> Array:
    """The sum of rows in runs, then of the sums of runs: NumPy adds rows one by one, so its error grows with them."""
    while len(rows) > _RUN:
        whole = len(rows) // _RUN * _RUN
        sums = np.add.reduce(rows[:whole].reshape(-1, _RUN, rows.shape[1]), axis=1)
        rows = np.concatenate([sums, rows[whole:]])
    return np.asarray(np.add.reduce(rows, axis=0))


def _mean(x: Array, axes: Axes) -> Array:
    if x.dtype.kind == "f":
        return _sum(x, axes) / x.dtype.type(_count(x, axes))
    # Integer means are truncated towards zero.
    return np.trunc(np.add.reduce(x, axis=axes, keepdims=True, dtype=np.float64) / _count(x, axes))


def _real(x: Array) -> Array:
    """Integers as float64: results of square roots and logarithms are truncated to integers at the end."""
    return x if x.dtype.kind == "f" else x.astype(np.float64)


def _log_sum_exp(x: Array, axes: Axes) -> Array:
    x = _real(x)
    top = np.maximum.reduce(x, axis=axes, keepdims=True, initial=-np.inf)
    # An infinite maximum is not subtracted: infinity minus infinity is NaN.
    base = np.where(np.isfinite(top), top, x.dtype.type(0))
    shifted = np.asarray(x - base)
    np.exp(shifted, out=shifted)
    return np.asarray(np.log(_sum(shifted, axes)) + base)


def _log_sum_exp_gradient(g: Array, x: Array, y: Array, axes: Axes) -> Array:
    share = x - np.where(np.isfinite(y), y, y.dtype.type(0))
    np.exp(share, out=share)
    share *= g
    return share


def _extreme(function: np.ufunc, sign: int) -> Maker:
    def reduce(x: Array, axes: Axes) -> Array:
        if _count(x, axes) == 0:
            return np.asarray(function.reduce(x, axis=axes, keepdims=True, initial=_least(x.dtype, sign)))
        count = _trailing(x, axes)
        if 1 < count < _SHORT:
            # NumPy pays an overhead for each row, but reduces transposed rows together.
            columns = np.array(x.reshape(-1, count).T, order="C")
            return np.asarray(function.reduce(columns, axis=0)).reshape(_kept(x, axes))
        return np.asarray(function.reduce(x, axis=axes, keepdims=True))

    def pull(g: Array, x: Array, y: Array, axes: Axes) -> Array:
        ties = x == y
        count = np.add.reduce(ties, axis=axes, keepdims=True, dtype=np.int64)
        return np.where(ties, g / count.astype(g.dtype), g.dtype.type(0))

    return _reduction(reduce, pull)


def _least(dtype: DType, sign: int) -> Any:
    """The maximum (``sign`` -1) or minimum of an empty set."""
    if dtype.kind == "b":
        return sign > 0
    if dtype.kind in "iu":
        return np.iinfo(dtype).max if sign > 0 else np.iinfo(dtype).min
    return sign * np.inf


def _product(x: Array, axes: Axes) -> Array:
    # NumPy multiplies sequentially, where PyTorch has several chains: up to 12 times PyTorch's time.
    return np.asarray(np.multiply.reduce(x, axis=axes, keepdims=True, dtype=x.dtype))


def _product_gradient(g: Array, x: Array, y: Array, axes: Axes) -> Array:
    """The product of all other elements: y / x, or without division if there are zeros."""
    if np.all(x):
        return g * y / x
    rest = [axis for axis in range(x.ndim) if axis not in axes]
    moved = x.transpose(*rest, *axes)
    rows = moved.reshape(*(x.shape[axis] for axis in rest), _count(x, axes))
    before, after = np.ones_like(rows), np.ones_like(rows)
    np.multiply.accumulate(rows[..., :-1], axis=-1, out=before[..., 1:])
    np.multiply.accumulate(rows[..., :0:-1], axis=-1, out=after[..., -2::-1])
    before *= after
    return g * before.reshape(moved.shape).transpose(np.argsort((*rest, *axes)))


for _name, _forward, _gradient in (
    ("L1", lambda x, axes: _sum(np.abs(x), axes), lambda g, x, y, axes: g * np.sign(x)),
    (
        "L2",
        lambda x, axes: np.sqrt(_sum(np.square(_real(x)), axes)),
        lambda g, x, y, axes: x * np.where(y == 0, y, g / y),
    ),
    ("LogSum", lambda x, axes: np.log(_sum(_real(x), axes)), lambda g, x, y, axes: g / _sum(x, axes)),
    ("LogSumExp", _log_sum_exp, _log_sum_exp_gradient),
    ("Mean", _mean, lambda g, x, y, axes: g / g.dtype.type(_count(x, axes))),
    ("Prod", _product, _product_gradient),
    ("Sum", _sum, lambda g, x, y, axes: g),
    ("SumSquare", lambda x, axes: _sum(np.square(x), axes), lambda g, x, y, axes: 2 * g * x),
):
    register(f"Reduce{_name}")(_reduction(_forward, _gradient))

register("ReduceMax")(_extreme(np.maximum, -1))
register("ReduceMin")(_extreme(np.minimum, 1))


def _position(function: Callable[..., Any]) -> Maker:
    def maker(node: OperatorNode) -> Kernel:
        axis, keep, last = node["axis"], bool(node["keepdims"]), node.get("select_last_index", 0)

        def forward(x: Array) -> Array:
            values = lift(x) if is_narrow(x.dtype) else x
            if not last:
                return np.asarray(function(values, axis=axis, keepdims=keep), np.int64)
            found = function(np.flip(values, axis), axis=axis, keepdims=keep)
            return np.asarray(x.shape[axis] - 1 - found, np.int64)

        return Kernel(forward, no_gradient)

    return maker


register("ArgMax")(_position(np.argmax))
register("ArgMin")(_position(np.argmin))


# CumSum and CumProd, forward and backward.
# ``reverse`` flips the axis and ``exclusive`` shifts it by one, so only the plain cumulative sum and product and their
# gradients are computed. NumPy accumulates sequentially: up to 8 times PyTorch's time.


def _sum_gradient(gradient: Array, x: Array) -> Array:
    return np.flip(np.cumsum(np.flip(gradient, -1), axis=-1, dtype=gradient.dtype), -1)


def _running_product_gradient(gradient: Array, x: Array) -> Array:
    """The sum of gradient times product from each element on, divided by the element.

    For the first zero in a row, the products are taken without it; elements after it get no gradient.
    """
    zeros = x == 0
    first = zeros & (np.cumsum(zeros, axis=-1) == 1)
    passed = np.cumsum(first, axis=-1) - first > 0
    without = np.where(first, x.dtype.type(1), x)
    kept = _sum_gradient(gradient * np.cumprod(without, axis=-1, dtype=x.dtype), x)
    plain = _sum_gradient(gradient * np.cumprod(x, axis=-1, dtype=x.dtype), x)
    divided = plain / np.where(zeros, x.dtype.type(1), x)
    return np.where(first, kept, np.where(passed, x.dtype.type(0), divided))


def _shift(x: Array, first: float) -> Array:
    """Shifted by one along the last axis, with ``first`` at the start."""
    result = np.full_like(x, first)
    result[..., 1:] = x[..., :-1]
    return result


def _cumulative(function: Callable[..., Array], start: float, pull: Callable[[Array, Array], Array]) -> Maker:
    def maker(node: OperatorNode) -> Kernel:
        exclusive, reverse = node["exclusive"], node["reverse"]

        def turned(x: Array, axis: Array) -> Array:
            moved = np.moveaxis(lift(x), int(np.asarray(axis).item()), -1)
            return np.flip(moved, -1) if reverse else moved

        def back(y: Array, axis: Array, like: Array) -> Array:
            restored = np.moveaxis(np.flip(y, -1) if reverse else y, -1, int(np.asarray(axis).item()))
            return cast_like(restored, like)

        def forward(x: Array, axis: Array) -> Array:
            rows = turned(x, axis)
            y = function(rows, axis=-1, dtype=rows.dtype)
            return back(_shift(y, start) if exclusive else y, axis, x)

        def backward(gradient: Array, inputs: Inputs, output: Array) -> tuple[Array | None, ...]:
            x, axis = inputs
            rows = turned(gradient, axis)
            if exclusive:
                rows = np.flip(_shift(np.flip(rows, -1), 0), -1)
            with quiet():
                return back(pull(rows, turned(x, axis)), axis, x), None

        return Kernel(forward, single_output(backward))

    return maker


register("CumSum")(_cumulative(np.cumsum, 0, _sum_gradient))
register("CumProd")(_cumulative(np.cumprod, 1, _running_product_gradient))


_WORKING = (np.dtype(np.float32), np.dtype(np.float64))


def is_plain(scores: Array, target: Array) -> bool:
    """Whether these are rows of scores in a working dtype with one label each, as for :func:`mean_cross_entropy`."""
    return scores.ndim == 2 and target.ndim == 1 and scores.size > 0 and scores.dtype in _WORKING


def mean_cross_entropy(scores: Array, target: Array) -> tuple[Array, Pullback]:
    """The mean of -log softmax(scores)[target], and its pullback; scores (batch, classes), target (batch,)."""
    shifted = scores - scores.max(axis=1, keepdims=True)
    rows = np.arange(len(target))
    chosen = shifted[rows, target]
    np.exp(shifted, out=shifted)
    sums = shifted.sum(axis=1, keepdims=True)
    loss = np.asarray((np.log(sums[:, 0]) - chosen).mean(dtype=scores.dtype))

    def pullback(*gradients: Array | None) -> tuple[Array | None, ...]:
        if gradients[0] is None:
            return None, None
        share = scores.dtype.type(gradients[0]) / scores.dtype.type(len(target))
        gradient = shifted * (share / sums)
        gradient[rows, target] -= share
        return gradient, None

    return loss, pullback


# NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss pick and weight one class per position. An ignored target has
# weight 0, and the mean divides by the sum of weights, as in PyTorch.


class _Likelihood:
    """The weighted loss of the targets: ``log_prob`` (N, C, d1, ...), ``target`` (N, d1, ...), ``weight`` (C)."""

    def __init__(self, node: OperatorNode) -> None:
        self._ignored = node.get("ignore_index")
        self._reduction = node["reduction"]

    def _places(self, log_prob: Array, target: Array, weight: Array | None) -> tuple[Array, Array | None]:
        """The class of each position, with a class axis, and its weight (``None``: all 1)."""
        kept = None if self._ignored is None else target != self._ignored
        place = target if kept is None else np.where(kept, target, 0)
        scale = None if weight is None else lift(weight)[place]
        if kept is not None:
            scale = kept.astype(log_prob.dtype) if scale is None else np.where(kept, scale, scale.dtype.type(0))
        return np.expand_dims(place, 1), scale

    def forward(self, log_prob: Array, target: Array, weight: Array | None) -> Array:
        """The loss, in a working dtype."""
        place, scale = self._places(log_prob, target, weight)
        loss = np.take_along_axis(log_prob, place, 1).squeeze(1)
        np.negative(loss, out=loss)
        if scale is not None:
            # Ignored positions count as zero, even where the loss is infinite.
            loss = np.where(scale == 0, scale, loss * scale)
        if self._reduction == "none":
            return loss
        total = np.asarray(loss.sum())
        if self._reduction == "sum":
            return total
        return np.asarray(total / (loss.dtype.type(loss.size) if scale is None else scale.sum()))

    def coefficients(
        self, gradient: Array, log_prob: Array, target: Array, weight: Array | None
    ) -> tuple[Array, Array]:
        """The class of each position and the negative gradient of its log-probability, both with a class axis."""
        place, scale = self._places(log_prob, target, weight)
        if self._reduction == "mean":
            gradient = gradient / (gradient.dtype.type(target.size) if scale is None else scale.sum())
        share = np.broadcast_to(gradient, target.shape) if scale is None else gradient * scale
        return place, np.expand_dims(share, 1)

    def weight_gradient(self, gradient: Array, log_prob: Array, target: Array, weight: Array) -> Array:
        """The gradient of ``weight``: a mean depends on it through its terms and its divisor."""
        place, scale = self._places(log_prob, target, weight)
        terms = -np.take_along_axis(log_prob, place, 1).squeeze(1)
        share: Any = gradient
        if self._reduction == "mean":
            total = scale.sum() if scale is not None else 1
            share = gradient / total
            terms = terms - self.forward(log_prob, target, weight)
        kept = True if self._ignored is None else target != self._ignored
        found = np.where(kept, terms * share, 0).reshape(-1)
        return np.bincount(place.reshape(-1), found, minlength=weight.size).astype(gradient.dtype)


@register("NegativeLogLikelihoodLoss")
def _negative_log_likelihood(node: OperatorNode) -> Kernel:
    loss = _Likelihood(node)

    def forward(log_prob: Array, target: Array, weight: Array | None = None) -> Array:
        with quiet():
            return lower(loss.forward(lift(log_prob), target, weight), log_prob.dtype)

    def backward(gradient: Array, inputs: Inputs, output: Array) -> Arrays:
        log_prob, target, weight = (*inputs, None)[:3]
        wide, g = lift(log_prob), lift(gradient)
        place, share = loss.coefficients(g, wide, target, weight)
        result = np.zeros_like(wide)
        np.put_along_axis(result, place, -share, 1)
        by_weight = cast_like(loss.weight_gradient(g, wide, target, lift(weight)), weight) if is_real(weight) else None
        return (cast_like(result, log_prob), None, by_weight)[: len(inputs)]

    return Kernel(forward, single_output(backward))


@register("SoftmaxCrossEntropyLoss")
def _softmax_cross_entropy(node: OperatorNode) -> Kernel:
    """The loss and, if it is named, the log-probabilities."""
    general = _general(node)
    if len(node.outputs) > 1 or len(node.inputs) > 2 or node["reduction"] != "mean" or "ignore_index" in node:
        return general

    def forward(scores: Array, target: Array) -> tuple[Array, ...]:
        return vjp(scores, target)[0]

    def backward(gradients: Inputs, inputs: Inputs, outputs: Inputs) -> Arrays:
        return vjp(*inputs)[1](*gradients)

    def vjp(scores: Array, target: Array) -> Differentiated:
        if not is_plain(scores, target):
            return general.differentiate((scores, target))
        with quiet():
            value, pullback = mean_cross_entropy(scores, target)
        return (value,), pullback

    return Kernel(forward, backward, vjp)


def _general(node: OperatorNode) -> Kernel:
    loss, both = _Likelihood(node), len(node.outputs) > 1

    def compute(scores: Array, target: Array, weight: Array | None) -> tuple[Array, Array]:
        with quiet():
            log_prob = rows(log_softmax, 1, lift(scores))
            return loss.forward(log_prob, target, weight), log_prob

    def answer(scores: Array, value: Array, log_prob: Array) -> tuple[Array, ...]:
        first = lower(value, scores.dtype)
        return (first, lower(log_prob, scores.dtype)) if both else (first,)

    def pull(gradients: Inputs, inputs: Inputs, log_prob: Array) -> Arrays:
        scores, target, weight = (*inputs, None)[:3]
        by_loss = gradients[0]
        by_log = lift(gradients[1]) if len(gradients) > 1 and gradients[1] is not None else None
        rest: tuple[Any, ...] = (None,) * (len(inputs) - 1)
        if by_loss is None and by_log is None:
            return None, *rest
        with quiet():
            result = np.exp(log_prob)
            total: Any = 0
            if by_loss is not None:
                place, share = loss.coefficients(lift(by_loss), log_prob, target, weight)
                total = share
            if by_log is not None:
                total = total - by_log.sum(axis=1, keepdims=True)
            result *= total
            if by_log is not None:
                result += by_log
            if by_loss is not None:
                np.put_along_axis(result, place, np.take_along_axis(result, place, 1) - share, 1)
            if is_real(weight) and by_loss is not None:
                found = loss.weight_gradient(lift(by_loss), log_prob, target, lift(weight))
                rest = (None, lower(found, weight.dtype))
        return cast_like(result, scores), *rest

    def forward(scores: Array, target: Array, weight: Array | None = None) -> tuple[Array, ...]:
        return answer(scores, *compute(scores, target, weight))

    def backward(gradients: Inputs, inputs: Inputs, outputs: Inputs) -> Arrays:
        # Recomputes the log-probabilities, which takes up to five times PyTorch's backward; vjp keeps them.
        return pull(gradients, inputs, rows(log_softmax, 1, lift(inputs[0])))

    def vjp(*inputs: Any) -> Differentiated:
        value, log_prob = compute(*(*inputs, None)[:3])
        return answer(inputs[0], value, log_prob), lambda *gradients: pull(gradients, inputs, log_prob)

    return Kernel(forward, backward, vjp)
