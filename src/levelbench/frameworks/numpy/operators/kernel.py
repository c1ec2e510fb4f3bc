"""Building blocks of the NumPy operators: kernels and their registry, working dtypes, evaluation in blocks.

A maker reads the node's attributes once and returns plain functions of arrays, so a call looks nothing up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from levelbench.errors import UnsupportedError
from levelbench.operators.contract import DType, Pullback
from levelbench.operators.node import OperatorNode

Array = NDArray[Any]
Inputs = Sequence[Any]
"""One array per input of a node, ``None`` for an optional one that is left out."""
Arrays = tuple[Any, ...]
"""Outputs or gradients of inputs by position, ``None`` where there is none."""

Wanted = Sequence[bool] | None
"""Which inputs need a gradient; ``None``: all."""


Differentiated = tuple[Arrays, Pullback]
"""Outputs and their pullback."""


@dataclass(frozen=True)
class Kernel:
    """The functions of a node. They raise ``UnsupportedError`` for inputs that they do not cover.

    ``forward(*inputs)`` returns an array or a tuple of the outputs. ``backward(gradients, inputs, outputs)`` returns
    one gradient per input, ``None`` where there is none. ``vjp(*inputs)`` saves work where both are needed: it returns
    (tuple of outputs, pullback), and ``pullback(*gradients)`` returns what backward would. If the kernel is
    ``selective``, its backward and vjp also take the keyword ``wanted``, one bool per input (``None``: all), and skip
    the other gradients.
    """

    forward: Callable[..., Any]
    backward: Callable[..., tuple[Any, ...]] | None = None
    vjp: Callable[..., Differentiated] | None = None
    selective: bool = False

    def differentiate(self, inputs: Inputs, wanted: Wanted = None) -> Differentiated:
        """The outputs and their pullback; ``UnsupportedError`` if the operator has no gradient."""
        choice = {"wanted": wanted} if self.selective else {}
        if self.vjp is not None:
            return self.vjp(*inputs, **choice)
        backward = self.backward
        if backward is None:
            raise UnsupportedError("a gradient on numpy", "the operator has none on numpy", "use another framework")
        outputs = as_outputs(self.forward(*inputs))
        return outputs, lambda *gradients: backward(gradients, inputs, outputs, **choice)


def as_outputs(found: Array | Arrays) -> Arrays:
    """The result of a forward as a tuple."""
    return found if isinstance(found, tuple) else (found,)


Maker = Callable[[OperatorNode], Kernel]
"""Makes the kernel of a node; ``UnsupportedError`` for a node that it does not cover: then ONNX's reference is used."""


OPERATORS: dict[str, Maker] = {}
"""The makers of all operators that we implement, by name."""


def register(*names: str) -> Callable[[Maker], Maker]:
    """Register a maker under ONNX's ``names``; ``ValueError`` for a name that is taken."""

    def add(maker: Maker) -> Maker:
        for name in names:
            if name in OPERATORS:
                raise ValueError(f"operator {name} has two makers in NumPy")
            OPERATORS[name] = maker
        return maker

    return add


# Working dtypes, and evaluation in blocks that stay in the cache: a formula that passes ten times over a whole array
# is bound by memory.


OneOutput = Callable[[Array, Sequence[Any], Array], tuple[Array | None, ...]]
"""(gradient of the output, inputs, output) -> gradients of the inputs."""

_FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
_NARROW = frozenset(
    np.dtype(each) for each in (np.float16, ml_dtypes.bfloat16, *(getattr(ml_dtypes, n) for n in _FLOAT8))
)

_BITS: dict[int, np.dtype[Any]] = {4: np.dtype(np.int32), 8: np.dtype(np.int64)}

_BLOCK = 1 << 15
"""Elements per block: three float32 blocks fit a second-level cache, and Python's overhead stays below a tenth."""


def is_narrow(dtype: DType) -> bool:
    """Whether it is a floating-point type narrower than float32; those are computed in float32 and rounded once."""
    return dtype in _NARROW


def is_real(array: Array | None) -> bool:
    """Whether a value can have a gradient: it is present and floating-point."""
    return array is not None and (array.dtype.kind == "f" or array.dtype in _NARROW)


def working(dtype: DType) -> DType:
    """The dtype to compute in: float32 for a narrow one, otherwise the dtype itself."""
    return np.dtype(np.float32) if dtype in _NARROW else dtype


def lift(array: Array) -> Array:
    """The array in its working dtype."""
    # Most arrays are wide, and checking the item size is faster than a set lookup.
    return array.astype(np.float32) if array.dtype.itemsize < 4 and array.dtype in _NARROW else array


def lower(array: Any, dtype: DType) -> Array:
    """A result as an array of this dtype, also where NumPy returns a scalar."""
    return np.asarray(array) if array.dtype == dtype else np.asarray(array).astype(dtype)


class _Nothing:
    """A context that does nothing; NumPy takes ten times as long to change its error state."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


_NOTHING = _Nothing()


def quiet() -> AbstractContextManager[None]:
    """Suppresses NumPy's warnings: infinities and NaN are valid results here."""
    return _NOTHING if QuietPass.open else np.errstate(all="ignore")


class QuietPass:
    """Suppresses NumPy's warnings once for many operators: inside, :func:`quiet` costs almost nothing."""

    open = 0

    def __enter__(self) -> None:
        self._state = np.errstate(all="ignore")
        self._state.__enter__()
        QuietPass.open += 1

    def __exit__(self, *error: Any) -> None:
        QuietPass.open -= 1
        self._state.__exit__(*error)


def single_output(function: OneOutput) -> Callable[..., Arrays]:
    """The backward of an operator with one output; skipped if no input can have a gradient."""

    def backward(gradients: Inputs, inputs: Inputs, outputs: Inputs) -> Arrays:
        if gradients[0] is None or not any(is_real(each) for each in inputs):
            return (None,) * len(inputs)
        with quiet():
            return function(gradients[0], inputs, outputs[0])

    return backward


def selective(function: Callable[[Array, Inputs, Sequence[bool]], Inputs]) -> Callable[..., Arrays]:
    """The same for ``function(gradient, inputs, wanted)`` of a selective kernel; ``wanted`` has one bool per input."""

    def backward(gradients: Inputs, inputs: Inputs, outputs: Inputs, wanted: Wanted = None) -> Arrays:
        chosen = [is_real(each) and (wanted is None or wanted[at]) for at, each in enumerate(inputs)]
        if gradients[0] is None or not any(chosen):
            return (None,) * len(inputs)
        with quiet():
            return tuple(function(gradients[0], inputs, chosen))

    return backward


def cast_like(array: Array, like: Array) -> Array:
    """A gradient as an array with the dtype of its value."""
    return lower(np.asarray(array), like.dtype)


def masked(values: Array, mask: Array, out: Array | None = None) -> Array:
    """``values`` where ``mask`` is true, else 0, even for infinity and NaN; float32 or float64, all of one shape.

    Uses bit masks, in three passes; ``where`` branches per element and takes ten times as long on random masks.
    """
    bits = _BITS[values.dtype.itemsize]
    chosen = mask.astype(bits)
    np.negative(chosen, out=chosen)
    found = np.bitwise_and(values.view(bits), chosen, out=chosen if out is None else out.view(bits))
    return found.view(values.dtype)


def blockwise(function: Callable[..., None], *arrays: Array) -> Array:
    """``function(out, *blocks)`` over blocks of the flattened ``arrays``; the result has the dtype of the first.

    The arrays have one shape. ``function`` fills ``out`` element-wise; it gets working dtypes and may modify only
    ``out``.
    """
    first = arrays[0]
    order, dtype, size = _order(arrays), first.dtype, first.size
    flat = [each.reshape(-1, order=order) for each in arrays]
    result = np.empty(first.shape, dtype, order=order)
    target = result.reshape(-1, order=order)
    narrow = dtype in _NARROW
    with quiet():
        for start in range(0, size, _BLOCK):
            part = slice(start, min(start + _BLOCK, size))
            blocks = [lift(each[part]) for each in flat]
            if not narrow:
                function(target[part], *blocks)
                continue
            scratch = np.empty(part.stop - start, np.float32)
            function(scratch, *blocks)
            target[part] = scratch.astype(dtype)
    return result


def _order(arrays: Sequence[Array]) -> Any:
    """Fortran order if all arrays have it, which saves copies; otherwise C order."""
    if all(each.flags.c_contiguous for each in arrays):
        return "C"
    return "F" if all(each.flags.f_contiguous for each in arrays) else "C"


# Activation functions: a function that fills a block, and its derivative.


Fill = Callable[[Array, Array], None]
"""(out, x): writes f(x) into out."""
Slope = Callable[[Array, Array], Array]
"""(x, y) -> f'(x)."""


def activation(fill: Fill, slope: Slope) -> Kernel:
    """The kernel of an element-wise function; integers, where ONNX allows them, are computed in float64."""

    def forward(x: Array) -> Array:
        return blockwise(fill, x) if is_real(x) else lower(blockwise(fill, x.astype(np.float64)), x.dtype)

    def pull(out: Array, gradient: Array, x: Array, y: Array) -> None:
        np.multiply(gradient, slope(x, y), out=out)

    def backward(gradient: Array, inputs: Inputs, output: Array) -> tuple[Array, ...]:
        return (blockwise(pull, gradient, inputs[0], output),)

    return Kernel(forward, single_output(backward))


def negative_expm1(x: Array) -> Array:
    """exp(min(x, 0)) - 1 without cancellation: 2t / (1 - t) with t = tanh(x/2). NumPy vectorises tanh but not expm1."""
    half = np.minimum(x, x.dtype.type(0))
    half *= x.dtype.type(0.5)
    np.tanh(half, out=half)
    result: Array = half / (1 - half)
    result += result
    return result


def logistic(out: Array, x: Array) -> None:
    """Fill ``out`` with 1 / (1 + exp(-x))."""
    np.negative(x, out=out)
    np.exp(out, out=out)
    out += 1
    np.reciprocal(out, out=out)


# The reverse of broadcasting: sums of a gradient over the repeated axes.


def unbroadcast(gradient: Array, shape: Sequence[int]) -> Array:
    """``gradient`` of a value that was broadcast from ``shape``, summed to that shape; unchanged if it has it."""
    if gradient.shape == tuple(shape):
        return gradient
    lead = gradient.ndim - len(shape)
    if gradient.shape[lead:] == tuple(shape):
        # The usual case, a bias: this saves three microseconds.
        found: NDArray[Any] = np.add.reduce(gradient, axis=tuple(range(lead)), dtype=gradient.dtype)
        return found
    axes = tuple(range(lead)) + tuple(
        lead + at for at, size in enumerate(shape) if size == 1 and gradient.shape[lead + at] != 1
    )
    summed: NDArray[Any] = gradient.sum(axis=axes, keepdims=True, dtype=gradient.dtype) if axes else gradient
    return summed.reshape(shape)
