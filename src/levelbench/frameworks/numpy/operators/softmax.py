"""Softmax, LogSoftmax and Hardmax along one axis, forward and backward.

The one idea: the largest element is subtracted first, so that no exponential overflows; the passes that follow are done
in place over blocks that stay in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from levelbench.frameworks.numpy.operators.kernel import Kernel, Maker, Registry
from levelbench.frameworks.numpy.operators.numeric import Array, alone, is_narrow, lift, lower, quiet
from levelbench.operators.node import OperatorNode

__all__ = ["OPERATORS", "log_softmax", "rows", "softmax"]

OPERATORS = Registry()

_BLOCK = 1 << 16
_SHORT = 64


def rows(function: Callable[..., None], axis: int, *arrays: Array) -> Array:
    """``function(out, *blocks)`` over blocks of shape (outer, axis, inner); ``out`` may be none of the others."""
    first = arrays[0]
    if first.ndim == 0 or first.size == 0:
        shape: tuple[int, ...] = (1, 1, 1) if first.ndim == 0 else (0, 1, 1)
    else:
        axis %= first.ndim
        outer = int(np.prod(first.shape[:axis], dtype=np.int64))
        shape = (outer, first.shape[axis], first.size // (outer * first.shape[axis]))
    flat = [each.reshape(shape) for each in arrays]
    result = np.empty(first.shape, first.dtype)
    target = result.reshape(shape)
    step = max(1, _BLOCK // max(1, shape[1] * shape[2]))
    if shape[2] == 1 and shape[1] < _SHORT:
        _short_rows(function, target[..., 0], [each[..., 0] for each in flat], step)
        return result
    with quiet():
        for start in range(0, shape[0], step):
            blocks = [lift(each[start : start + step]) for each in flat]
            if not is_narrow(first.dtype):
                function(target[start : start + step], *blocks)
                continue
            scratch = np.empty(blocks[0].shape, np.float32)
            function(scratch, *blocks)
            target[start : start + step] = lower(scratch, first.dtype)
    return result


def _short_rows(function: Callable[..., None], target: Array, flat: Sequence[Array], step: int) -> None:
    """The same with the short axis in front: NumPy reduces long runs side by side, but starts anew for each row."""
    with quiet():
        for start in range(0, len(target), step):
            blocks = [np.array(lift(each[start : start + step]).T, order="C")[None] for each in flat]
            scratch = np.empty_like(blocks[0])
            function(scratch, *blocks)
            target[start : start + step] = lower(scratch[0].T, target.dtype)


def softmax(out: Array, x: Array) -> None:
    """Fill ``out`` with exp(x) over its sum along axis 1; both (outer, axis, inner)."""
    np.subtract(x, x.max(axis=1, keepdims=True), out=out)
    np.exp(out, out=out)
    out /= out.sum(axis=1, keepdims=True)


def log_softmax(out: Array, x: Array) -> None:
    """Fill ``out`` with x minus the logarithm of the sum of exp(x) along axis 1; both (outer, axis, inner)."""
    np.subtract(x, x.max(axis=1, keepdims=True), out=out)
    out -= np.log(np.exp(out).sum(axis=1, keepdims=True))


def _softmax_gradient(out: Array, gradient: Array, y: Array) -> None:
    np.multiply(gradient, y, out=out)
    out -= y * out.sum(axis=1, keepdims=True)


def _log_softmax_gradient(out: Array, gradient: Array, y: Array) -> None:
    np.exp(y, out=out)
    out *= gradient.sum(axis=1, keepdims=True)
    np.subtract(gradient, out, out=out)


def _maker(fill: Callable[..., None], pull: Callable[..., None]) -> Maker:
    def maker(node: OperatorNode) -> Kernel:
        axis = node["axis"]

        def backward(gradient: Array, inputs: Sequence[Any], output: Array) -> tuple[Array, ...]:
            return (rows(pull, axis, gradient, output),)

        return Kernel(lambda x: rows(fill, axis, x), alone(backward))

    return maker


OPERATORS.add("Softmax")(_maker(softmax, _softmax_gradient))
OPERATORS.add("LogSoftmax")(_maker(log_softmax, _log_softmax_gradient))


@OPERATORS.add("Hardmax")
def _hardmax(node: OperatorNode) -> Kernel:
    """1 at the first of the largest elements along the axis, else 0; its gradient is zero."""

    def forward(x: Array) -> Array:
        result = np.zeros_like(x)
        if x.size:
            chosen = np.expand_dims(np.argmax(lift(x), axis=node["axis"]), node["axis"])
            np.put_along_axis(result, chosen, np.ones((), x.dtype), axis=node["axis"])
        return result

    return Kernel(forward, alone(lambda gradient, inputs, output: (np.zeros_like(inputs[0]),)))
