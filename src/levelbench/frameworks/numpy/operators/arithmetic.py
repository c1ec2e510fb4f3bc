"""Arithmetic of two or more arrays that broadcast: Add to Pow, Max, Min, Sum, Mean, Where.

The one idea: an input that was broadcast has the sum of the gradients of its copies. Ties in Max and Min share the
gradient evenly, as PyTorch's do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from levelbench.frameworks.numpy.operators.broadcast import unbroadcast
from levelbench.frameworks.numpy.operators.kernel import Kernel, Maker, Registry
from levelbench.frameworks.numpy.operators.numeric import (
    Array,
    alone,
    is_real,
    lift,
    lower,
    quiet,
    selective,
    within,
    working,
)
from levelbench.operators.node import OperatorNode

__all__ = ["OPERATORS"]

OPERATORS = Registry()

Partial = Callable[[Array, Array, Array, Array], Array]
"""(gradient, a, b, output) -> the gradient of one of the two, not yet summed over broadcast axes."""


def _backward(first: Partial, second: Partial) -> Callable[..., tuple[Any, ...]]:
    def backward(gradient: Array, inputs: Sequence[Any], output: Array) -> tuple[Array | None, ...]:
        values = (lift(gradient), lift(inputs[0]), lift(inputs[1]), lift(output))
        return tuple(
            within(unbroadcast(partial(*values), each.shape), each) if is_real(each) else None
            for partial, each in zip((first, second), inputs, strict=True)
        )

    return alone(backward)


def _binary(function: Callable[[Array, Array], Any], first: Partial, second: Partial) -> Maker:
    def forward(a: Array, b: Array) -> Array:
        with quiet():
            return lower(function(lift(a), lift(b)), a.dtype)

    kernel = Kernel(forward, _backward(first, second))
    return lambda node: kernel


def _divide(a: Array, b: Array) -> Any:
    if a.dtype.kind not in "iu":
        return np.divide(a, b)
    quotient, remainder = np.floor_divide(a, b), np.remainder(a, b)
    # ONNX rounds towards zero, floor_divide down.
    return quotient + ((remainder != 0) & ((a < 0) != (b < 0))).astype(a.dtype) if a.dtype.kind == "i" else quotient


OPERATORS.add("Add")(_binary(np.add, lambda g, a, b, y: g, lambda g, a, b, y: g))
OPERATORS.add("Sub")(_binary(np.subtract, lambda g, a, b, y: g, lambda g, a, b, y: -g))
OPERATORS.add("Mul")(_binary(np.multiply, lambda g, a, b, y: g * b, lambda g, a, b, y: g * a))
OPERATORS.add("Div")(_binary(_divide, lambda g, a, b, y: g / b, lambda g, a, b, y: -g * a / (b * b)))


@OPERATORS.add("Mod")
def _mod(node: OperatorNode) -> Kernel:
    """The remainder, with the sign of the divisor or, with ``fmod``, of the dividend.

    NumPy computes float remainders exactly, one element at a time with the C library's fmod: up to 18 times the time of
    PyTorch's, which subtracts a rounded product.
    """
    function, whole = (np.fmod, np.trunc) if node["fmod"] else (np.mod, np.floor)
    return _binary(function, lambda g, a, b, y: g, lambda g, a, b, y: -g * whole(a / b))(node)


@OPERATORS.add("Pow")
def _pow(node: OperatorNode) -> Kernel:
    """The power of x by ``exponent``, in the dtype of x; 0 where the derivative of 0^0 by x would be NaN."""

    def forward(x: Array, exponent: Array) -> Array:
        with quiet():
            return lower(_power(lift(x), _alike(exponent, x)), x.dtype)

    def backward(gradient: Array, inputs: Sequence[Any], wanted: Sequence[bool]) -> list[Array | None]:
        x, exponent, g = lift(inputs[0]), _alike(inputs[1], inputs[0]), lift(gradient)
        found: list[Array | None] = [None, None]
        if wanted[0]:
            by_x = g * (exponent * _power(x, exponent - 1))
            if not np.all(exponent):
                by_x = np.where(exponent == 0, 0, by_x)
            found[0] = within(unbroadcast(by_x, x.shape), inputs[0])
        if wanted[1]:
            slope = np.where((x == 0) & (exponent >= 0), 0, _power(x, exponent) * np.log(x))
            found[1] = within(unbroadcast(g * slope, exponent.shape), inputs[1])
        return found

    return Kernel(forward, selective(backward), selective=True)


_EXACT_IN_FLOAT32 = 1 << 24


def _alike(exponent: Array, x: Array) -> Array:
    """The exponent in the working dtype of a real x, where that holds it; NumPy would otherwise compute in float64."""
    exponent = lift(exponent)
    if not is_real(x) or exponent.dtype.kind == "f":
        return exponent
    small = exponent.size == 0 or bool(np.all((exponent < _EXACT_IN_FLOAT32) & (exponent > -_EXACT_IN_FLOAT32)))
    return exponent.astype(working(x.dtype)) if small else exponent


def _power(x: Array, exponent: Array) -> Any:
    if exponent.size == 1 and x.dtype.kind == "f" and x.ndim >= exponent.ndim:
        # What np.power takes ten times as long for.
        match exponent.item():
            case 1:
                return x
            case 2:
                return np.square(x)
            case 3:
                return np.square(x) * x
    if x.dtype.kind in "iu" and exponent.dtype.kind == "i" and bool(np.any(exponent < 0)):
        return np.trunc(np.power(x.astype(np.float64), exponent))
    return np.power(x, exponent)


def _extremum(function: np.ufunc) -> Maker:
    def forward(*inputs: Array) -> Array:
        with quiet():
            return np.asarray(reduce(function, inputs))

    def backward(gradient: Array, inputs: Sequence[Any], output: Array) -> tuple[Array | None, ...]:
        ties = [each == output for each in inputs]
        share = lift(gradient) / sum((each.astype(np.int8) for each in ties[1:]), ties[0].astype(np.int8))
        share = share.astype(working(gradient.dtype), copy=False)
        return tuple(
            within(unbroadcast(np.where(tie, share, 0), each.shape), each)
            for tie, each in zip(ties, inputs, strict=True)
        )

    kernel = Kernel(forward, alone(backward))
    return lambda node: kernel


OPERATORS.add("Max")(_extremum(np.maximum))
OPERATORS.add("Min")(_extremum(np.minimum))


def _accumulate(mean: bool) -> Maker:
    def forward(*inputs: Array) -> Array:
        dtype = inputs[0].dtype
        if len(inputs) == 1:
            return inputs[0]
        with quiet():
            total = np.add(lift(inputs[0]), lift(inputs[1]))
            for each in inputs[2:]:
                total = _add_to(total, lift(each))
            return lower(total / total.dtype.type(len(inputs)) if mean else total, dtype)

    def backward(gradient: Array, inputs: Sequence[Any], output: Array) -> tuple[Array | None, ...]:
        wide = lift(gradient)
        share = wide / wide.dtype.type(len(inputs)) if mean else wide
        return tuple(within(unbroadcast(share, each.shape), each) for each in inputs)

    kernel = Kernel(forward, alone(backward))
    return lambda node: kernel


def _add_to(total: Any, each: Array) -> Any:
    """In place, where the sum has the shape already: it is ours."""
    if isinstance(total, np.ndarray) and np.broadcast_shapes(total.shape, each.shape) == total.shape:
        return np.add(total, each, out=total)
    return np.add(total, each)


OPERATORS.add("Sum")(_accumulate(mean=False))
OPERATORS.add("Mean")(_accumulate(mean=True))


@OPERATORS.add("Where")
def _where(node: OperatorNode) -> Kernel:
    """``x`` where the condition holds, else ``y``; all three broadcast."""

    def backward(gradient: Array, inputs: Sequence[Any], output: Array) -> tuple[Array | None, ...]:
        condition, x, y = inputs
        g = lift(gradient)
        zero = np.zeros((), g.dtype)
        by_x, by_y = np.where(condition, g, zero), np.where(condition, zero, g)
        return None, within(unbroadcast(by_x, x.shape), x), within(unbroadcast(by_y, y.shape), y)

    return Kernel(np.where, alone(backward))
