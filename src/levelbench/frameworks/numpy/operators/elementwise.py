"""Element-wise operators: functions of one array, arithmetic, comparisons, logic, bits and casts.

A function is a NumPy ufunc, and its derivative an expression of (gradient, x, y). At a kink or step the gradient is
PyTorch's: sign(0) = 0 for Abs, zero for Floor, Ceil, Round and Sign, the full gradient at both bounds of Clip.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np
from onnx import helper

from levelbench.errors import UnsupportedError
from levelbench.frameworks.numpy.operators.activations import erf, erf_slope
from levelbench.frameworks.numpy.operators.kernel import (
    Array,
    Arrays,
    Inputs,
    Kernel,
    Maker,
    blockwise,
    cast_like,
    is_narrow,
    is_real,
    lift,
    lower,
    masked,
    quiet,
    register,
    selective,
    single_output,
    unbroadcast,
    working,
)
from levelbench.frameworks.shared.operators import POINTWISE, is_inf, with_attributes
from levelbench.operators.contract import DType
from levelbench.operators.node import OperatorNode

Derivative = Callable[[Array, Array, Array], Array]
"""(gradient of y, x, y) -> gradient of x, element by element."""

# NumPy vectorises Tan, Asin to Atanh, Sinh and Cosh only with AVX-512; elsewhere it calls the C library for each
# element, which is up to 16 times slower than PyTorch but exact to the last place.
_DERIVATIVES: dict[str, Derivative] = {
    "Abs": lambda g, x, y: g * np.sign(x),
    "Acos": lambda g, x, y: -g / np.sqrt((1 - x) * (1 + x)),
    "Acosh": lambda g, x, y: g / (np.sqrt(x - 1) * np.sqrt(x + 1)),
    "Asin": lambda g, x, y: g / np.sqrt((1 - x) * (1 + x)),
    "Asinh": lambda g, x, y: g / np.sqrt(x * x + 1),
    "Atan": lambda g, x, y: g / (x * x + 1),
    "Atanh": lambda g, x, y: g / ((1 - x) * (1 + x)),
    "Ceil": lambda g, x, y: np.zeros_like(g),
    "Cos": lambda g, x, y: -g * np.sin(x),
    "Cosh": lambda g, x, y: g * np.sinh(x),
    "Exp": lambda g, x, y: g * y,
    "Floor": lambda g, x, y: np.zeros_like(g),
    "Log": lambda g, x, y: g / x,
    "Neg": lambda g, x, y: -g,
    "Reciprocal": lambda g, x, y: -g * y * y,
    "Round": lambda g, x, y: np.zeros_like(g),
    "Sign": lambda g, x, y: np.zeros_like(g),
    "Sin": lambda g, x, y: g * np.cos(x),
    "Sinh": lambda g, x, y: g * np.cosh(x),
    "Sqrt": lambda g, x, y: g / (2 * y),
    "Tan": lambda g, x, y: g * (y * y + 1),
    "Tanh": lambda g, x, y: g * (1 - y * y),
}


def _pull(derivative: Derivative) -> Callable[..., Arrays]:
    def fill(out: Array, gradient: Array, x: Array, y: Array) -> None:
        out[...] = derivative(gradient, x, y)

    def backward(gradient: Array, inputs: Inputs, output: Array) -> tuple[Array, ...]:
        return (blockwise(fill, gradient, inputs[0], output),)

    return single_output(backward)


def _maker(function: np.ufunc, derivative: Derivative) -> Maker:
    def fill(out: Array, x: Array) -> None:
        function(x, out=out)

    def forward(x: Array) -> Array:
        if is_narrow(x.dtype):
            return blockwise(fill, x)
        with quiet():
            return lower(function(x), x.dtype)

    kernel = Kernel(forward, _pull(derivative))
    return lambda node: kernel


for _name, _derivative in _DERIVATIVES.items():
    # ONNX rounds halves to even, as rint does.
    register(_name)(_maker(np.rint if _name == "Round" else getattr(np, POINTWISE[_name]), _derivative))


@register("Erf")
def _erf(node: OperatorNode) -> Kernel:
    """2/sqrt(pi) times the integral of exp(-t²) from 0 to x; for integers the result is truncated."""

    def forward(x: Array) -> Array:
        return blockwise(erf, x) if is_real(x) else lower(blockwise(erf, x.astype(np.float64)), x.dtype)

    # 24 passes over each block: about three times the time of PyTorch's vectorised kernel.
    return Kernel(forward, _pull(lambda g, x, y: g * erf_slope(x)))


@register("Identity")
def _identity(node: OperatorNode) -> Kernel:
    return Kernel(lambda x: x, single_output(lambda gradient, inputs, output: (gradient,)))


@register("IsNaN")
def _is_nan(node: OperatorNode) -> Kernel:
    return Kernel(lambda x: np.asarray(np.isnan(x)), no_gradient)


@register("IsInf")
def _is_inf(node: OperatorNode) -> Kernel:
    return Kernel(with_attributes(is_inf, node, {"xp": np}), no_gradient)


@register("Clip")
def _clip(node: OperatorNode) -> Kernel:
    """min(max(x, low), high): ``high`` wins if low > high; NaN stays NaN."""

    def forward(x: Array, low: Array | None = None, high: Array | None = None) -> Array:
        y = x if low is None else np.maximum(x, low)
        return x if high is None and low is None else np.asarray(y if high is None else np.minimum(y, high))

    def backward(gradient: Array, inputs: Inputs, output: Array) -> tuple[Array | None, ...]:
        x, low, high = (*inputs, None, None)[:3]
        inside = np.ones(x.shape, bool)
        if low is not None:
            inside &= x >= low
        if high is not None:
            inside &= x <= high
        taken = masked(np.ascontiguousarray(lift(gradient)).reshape(x.shape), inside)
        found: list[Array | None] = [cast_like(taken, x)]
        if len(inputs) > 1:
            below = None if low is None else (x < low if high is None else (x < low) & (low < high))
            found.append(_bound(gradient, below, low))
        if len(inputs) > 2:
            above = None if high is None else (x > high if low is None else (x > high) | (low > high))
            found.append(_bound(gradient, above, high))
        return tuple(found)

    return Kernel(forward, single_output(backward))


def _bound(gradient: Array, taken: Array | None, bound: Array | None) -> Array | None:
    """The gradient of a bound: the sum over the elements that were clipped to it."""
    if taken is None or bound is None:
        return None
    return cast_like(unbroadcast(np.where(taken, lift(gradient), 0), bound.shape), bound)


# Arithmetic of two or more arrays with broadcasting: Add to Pow, Max, Min, Sum, Mean, Where.
# A broadcast input gets the sum of the gradients of its copies. Ties in Max and Min share the gradient evenly, as in
# PyTorch.


Partial = Callable[[Array, Array, Array, Array], Array]
"""(gradient, a, b, output) -> the gradient of a or b, not yet summed over broadcast axes."""


def _backward(first: Partial, second: Partial) -> Callable[..., Arrays]:
    def backward(gradient: Array, inputs: Inputs, output: Array) -> tuple[Array | None, ...]:
        values = (lift(gradient), lift(inputs[0]), lift(inputs[1]), lift(output))
        return tuple(
            cast_like(unbroadcast(partial(*values), each.shape), each) if is_real(each) else None
            for partial, each in zip((first, second), inputs, strict=True)
        )

    return single_output(backward)


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
    # ONNX truncates towards zero; floor_divide rounds down.
    return quotient + ((remainder != 0) & ((a < 0) != (b < 0))).astype(a.dtype) if a.dtype.kind == "i" else quotient


register("Add")(_binary(np.add, lambda g, a, b, y: g, lambda g, a, b, y: g))
register("Sub")(_binary(np.subtract, lambda g, a, b, y: g, lambda g, a, b, y: -g))
register("Mul")(_binary(np.multiply, lambda g, a, b, y: g * b, lambda g, a, b, y: g * a))
register("Div")(_binary(_divide, lambda g, a, b, y: g / b, lambda g, a, b, y: -g * a / (b * b)))


@register("Mod")
def _mod(node: OperatorNode) -> Kernel:
    """The remainder, with the sign of the divisor or, with ``fmod``, of the dividend.

    NumPy computes float remainders exactly, with the C library's fmod for each element: up to 18 times PyTorch's time,
    which subtracts a rounded product.
    """
    function, whole = (np.fmod, np.trunc) if node["fmod"] else (np.mod, np.floor)
    return _binary(function, lambda g, a, b, y: g, lambda g, a, b, y: -g * whole(a / b))(node)


@register("Pow")
def _pow(node: OperatorNode) -> Kernel:
    """X to the power of ``exponent``, in the dtype of x; the derivative of 0^0 by x is 0, not NaN."""

    def forward(x: Array, exponent: Array) -> Array:
        with quiet():
            return lower(_power(lift(x), _alike(exponent, x)), x.dtype)

    def backward(gradient: Array, inputs: Inputs, wanted: Sequence[bool]) -> list[Array | None]:
        x, exponent, g = lift(inputs[0]), _alike(inputs[1], inputs[0]), lift(gradient)
        found: list[Array | None] = [None, None]
        if wanted[0]:
            by_x = g * (exponent * _power(x, exponent - 1))
            if not np.all(exponent):
                by_x = np.where(exponent == 0, 0, by_x)
            found[0] = cast_like(unbroadcast(by_x, x.shape), inputs[0])
        if wanted[1]:
            slope = np.where((x == 0) & (exponent >= 0), 0, _power(x, exponent) * np.log(x))
            found[1] = cast_like(unbroadcast(g * slope, exponent.shape), inputs[1])
        return found

    return Kernel(forward, selective(backward), selective=True)


_EXACT_IN_FLOAT32 = 1 << 24


def _alike(exponent: Array, x: Array) -> Array:
    """The exponent in the working dtype of a real x if it fits exactly; NumPy would otherwise compute in float64."""
    exponent = lift(exponent)
    if not is_real(x) or exponent.dtype.kind == "f":
        return exponent
    small = exponent.size == 0 or bool(np.all((exponent < _EXACT_IN_FLOAT32) & (exponent > -_EXACT_IN_FLOAT32)))
    return exponent.astype(working(x.dtype)) if small else exponent


def _power(x: Array, exponent: Array) -> Any:
    if exponent.size == 1 and x.dtype.kind == "f" and x.ndim >= exponent.ndim:
        # np.power takes ten times as long for these.
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

    def backward(gradient: Array, inputs: Inputs, output: Array) -> tuple[Array | None, ...]:
        ties = [each == output for each in inputs]
        share = lift(gradient) / sum((each.astype(np.int8) for each in ties[1:]), ties[0].astype(np.int8))
        share = share.astype(working(gradient.dtype), copy=False)
        return tuple(
            cast_like(unbroadcast(np.where(tie, share, 0), each.shape), each)
            for tie, each in zip(ties, inputs, strict=True)
        )

    kernel = Kernel(forward, single_output(backward))
    return lambda node: kernel


register("Max")(_extremum(np.maximum))
register("Min")(_extremum(np.minimum))


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

    def backward(gradient: Array, inputs: Inputs, output: Array) -> tuple[Array | None, ...]:
        wide = lift(gradient)
        share = wide / wide.dtype.type(len(inputs)) if mean else wide
        return tuple(cast_like(unbroadcast(share, each.shape), each) for each in inputs)

    kernel = Kernel(forward, single_output(backward))
    return lambda node: kernel


def _add_to(total: Any, each: Array) -> Any:
    """In place if the sum already has the final shape: nothing else uses it."""
    if isinstance(total, np.ndarray) and np.broadcast_shapes(total.shape, each.shape) == total.shape:
        return np.add(total, each, out=total)
    return np.add(total, each)


register("Sum")(_accumulate(mean=False))
register("Mean")(_accumulate(mean=True))


@register("Where")
def _where(node: OperatorNode) -> Kernel:
    """``x`` where the condition holds, else ``y``; all three broadcast."""

    def backward(gradient: Array, inputs: Inputs, output: Array) -> tuple[Array | None, ...]:
        condition, x, y = inputs
        g = lift(gradient)
        zero = np.zeros((), g.dtype)
        by_x, by_y = np.where(condition, g, zero), np.where(condition, zero, g)
        return None, cast_like(unbroadcast(by_x, x.shape), x), cast_like(unbroadcast(by_y, y.shape), y)

    return Kernel(np.where, single_output(backward))


# Comparisons, logic and bits: operators without a gradient.


def no_gradient(gradients: Inputs, inputs: Inputs, outputs: Inputs) -> tuple[None, ...]:
    """The backward of an operator that is not differentiable: ``None`` for each input."""
    return (None,) * len(inputs)


def _logical(function: Callable[..., Any]) -> Maker:
    def forward(*inputs: Array) -> Array:
        with quiet():
            return np.asarray(function(*inputs))

    kernel = Kernel(forward, no_gradient)
    return lambda node: kernel


for _name in (
    *("And", "Not", "Or", "Xor", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor"),
    *("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
):
    register(_name)(_logical(getattr(np, POINTWISE[_name])))


@register("BitShift")
def _bit_shift(node: OperatorNode) -> Kernel:
    """Shifts bits; by the width or more, or by a negative amount, only the sign extension is left: 0 or -1.

    A left shift uses the unsigned type of the same width, so that bits are shifted out through the sign.
    """
    left = node["direction"] == "LEFT"

    def forward(x: Array, amount: Array) -> Array:
        width = x.dtype.itemsize * 8
        outside = (amount < 0) | (amount >= width)
        if left:
            unsigned = np.dtype(f"u{x.dtype.itemsize}")
            moved = np.left_shift(x.view(unsigned), np.where(outside, 0, amount).astype(unsigned))
            return np.where(outside, np.zeros((), x.dtype), np.asarray(moved).view(x.dtype))
        # Shifting a signed type by all bits but one leaves only the sign; an unsigned type is cleared below.
        moved = np.right_shift(x, np.where(outside, width - 1, amount).astype(x.dtype))
        return np.asarray(moved if x.dtype.kind == "i" else np.where(outside, np.zeros((), x.dtype), moved))

    return Kernel(forward, no_gradient)


# Cast and CastLike between types that NumPy converts as ONNX specifies; the others are left to ONNX's reference.
# Strings and types of eight bits and fewer have special rules (saturation, rounding modes, text) and are not worth
# optimising, so they raise ``UnsupportedError``, which selects the reference. NumPy converts float16 one element at a
# time, which takes up to 20 times PyTorch's time.


_PLAIN = frozenset(np.dtype(each) for each in (*"?bBhHiIqQefd", ml_dtypes.bfloat16))


def _convert(node: OperatorNode, dtype: Callable[..., DType]) -> Kernel:
    def forward(x: Array, *like: Array) -> Array:
        target = dtype(*like)
        if target not in _PLAIN or x.dtype not in _PLAIN:
            asked = f"{node.op_type} from {x.dtype} to {target}"
            raise UnsupportedError(asked, "the NumPy kernel casts plain numbers only", "use onnx.reference")
        with quiet():
            return x if x.dtype == target else np.asarray(x.astype(target))

    def backward(gradients: Inputs, inputs: Inputs, outputs: Inputs) -> Arrays:
        rest = (None,) * (len(inputs) - 1)
        if gradients[0] is None or not (is_real(inputs[0]) and is_real(outputs[0])):
            return None, *rest
        return lower(gradients[0], inputs[0].dtype), *rest

    return Kernel(forward, backward)


@register("Cast")
def _cast(node: OperatorNode) -> Kernel:
    target = np.dtype(helper.tensor_dtype_to_np_dtype(node["to"]))
    if target not in _PLAIN:
        raise UnsupportedError(f"Cast to {target}", "the NumPy kernel casts plain numbers only", "use onnx.reference")
    return _convert(node, lambda: target)


@register("CastLike")
def _cast_like(node: OperatorNode) -> Kernel:
    return _convert(node, lambda like: like.dtype)
