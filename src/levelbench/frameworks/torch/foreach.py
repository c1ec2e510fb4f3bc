"""Many tensors as one array, so that an update rule runs through all of them in a few calls.

An operator on the list is one call of a ``torch._foreach`` function, which loops in C++ on the CPU and needs one kernel
for many tensors on a GPU; the rule is the one that serves a single array. A list of one is called by PyTorch's plain
functions, which cost a tenth of that to call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self, TypeAlias

import torch
from torch import Tensor

from levelbench.operators.contract import Function

__all__ = ["OneTensor", "TensorList", "Tensors", "together"]

Table = dict[str, Function]
Operand: TypeAlias = "Tensors | Tensor | float"


class Tensors:
    """Tensors that answer to the operators and functions of :mod:`levelbench.training.optimizers.arrays` together."""

    __slots__ = ("value",)
    table: ClassVar[Table]
    """How to add, multiply, ... what ``value`` is."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def _new(self, name: str, other: Operand) -> Self:
        return type(self)(self.table[name](self.value, other.value if isinstance(other, Tensors) else other))

    def _in_place(self, name: str, other: Operand) -> Self:
        self.table[name](self.value, other.value if isinstance(other, Tensors) else other)
        return self

    def __add__(self, other: Operand) -> Self:
        return self._new("add", other)

    __radd__ = __add__

    def __sub__(self, other: Operand) -> Self:
        return self._new("sub", other)

    def __rsub__(self, other: Operand) -> Self:
        return (-self)._in_place("iadd", other)

    def __mul__(self, other: Operand) -> Self:
        return self._new("mul", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Operand) -> Self:
        return self._new("div", other)

    def __rtruediv__(self, other: Operand) -> Self:
        return self._new("rdiv", other)

    def __pow__(self, other: Operand) -> Self:
        return self._new("pow", other)

    def __rpow__(self, other: float) -> Self:
        return self._new("rpow", other)

    def __iadd__(self, other: Operand) -> Self:
        return self._in_place("iadd", other)

    def __isub__(self, other: Operand) -> Self:
        return self._in_place("isub", other)

    def __imul__(self, other: Operand) -> Self:
        return self._in_place("imul", other)

    def __itruediv__(self, other: Operand) -> Self:
        return self._in_place("idiv", other)

    def __neg__(self) -> Self:
        return type(self)(self.table["neg"](self.value))

    def __abs__(self) -> Self:
        return type(self)(self.table["abs"](self.value))

    def __levelbench_function__(self, name: str, *others: Any) -> Self:
        """A function of :mod:`levelbench.training.optimizers.arrays` on all tensors."""
        if name not in _THREE:
            given = (each.value if isinstance(each, Tensors) else each for each in others)
            return type(self)(self.table[name](self.value, *given))
        *arrays, factor = others
        if isinstance(factor, int | float):
            self.table[name](self.value, *(each.value for each in arrays), factor)
            return self
        return self._in_place("iadd", _THREE[name](self, *arrays) * factor)

    def clone(self) -> Self:
        """Tensors of their own with the same values."""
        return type(self)(self.table["copy"](self.value))

    def copy_(self, other: Tensors) -> None:
        """Take over the values of others."""
        self.table["copy_"](self.value, other.value)


_THREE: Table = {
    "add_product": lambda target, left, right: left * right,
    "add_quotient": lambda target, upper, lower: upper / lower,
    "add_scaled": lambda target, array: array,
    "mix": lambda target, array: array - target,
}
"""What is added to the target, times a factor that is an array."""


def _root(value: Tensor) -> Tensor:
    """The square root, to a unit or two in the last place on the CPU; 0 of 0.

    ``torch.sqrt`` is MKL's there, which takes up to ten times as long for zeros and forty times for subnormal numbers,
    and a moment is full of those where a gradient is always zero, as in the padding of a convolution.
    """
    return torch.sqrt(value) if value.device.type != "cpu" else torch.rsqrt(value).reciprocal_()


def _roots(value: list[Tensor]) -> list[Tensor]:
    if any(each.device.type != "cpu" for each in value):
        return list(torch._foreach_sqrt(value))
    found = list(torch._foreach_rsqrt(value))
    torch._foreach_reciprocal_(found)
    return found


class TensorList(Tensors):
    """A list of tensors."""

    __slots__ = ()
    table: ClassVar[Table] = {
        "abs": torch._foreach_abs,
        "add": torch._foreach_add,
        "add_product": lambda target, left, right, factor: torch._foreach_addcmul_(target, left, right, value=factor),
        "add_quotient": lambda target, upper, lower, factor: torch._foreach_addcdiv_(
            target, upper, lower, value=factor
        ),
        "add_scaled": lambda target, array, factor: torch._foreach_add_(target, array, alpha=factor),
        "copy": lambda value: [each.clone() for each in value],
        "copy_": torch._foreach_copy_,
        "div": torch._foreach_div,
        "iadd": torch._foreach_add_,
        "idiv": torch._foreach_div_,
        "imul": torch._foreach_mul_,
        "isub": torch._foreach_sub_,
        "maximum": torch._foreach_maximum,
        "minimum": torch._foreach_minimum,
        "mix": torch._foreach_lerp_,
        "mul": torch._foreach_mul,
        "neg": torch._foreach_neg,
        "pow": torch._foreach_pow,
        "rdiv": lambda value, other: [other / each for each in value],
        "rpow": lambda value, other: torch._foreach_pow(other, value),
        "sign": torch._foreach_sign,
        "sqrt": _roots,
        "sub": torch._foreach_sub,
        "zeros_like": lambda value: [torch.zeros_like(each) for each in value],
    }


def _extremum(function: Callable[[Tensor, Tensor], Tensor], limit: str) -> Callable[[Tensor, Tensor | float], Tensor]:
    def call(value: Tensor, other: Tensor | float) -> Tensor:
        if isinstance(other, Tensor):
            return function(value, other)
        return torch.clamp(value, **{limit: other})

    return call


class OneTensor(Tensors):
    """A list of one tensor."""

    __slots__ = ()
    table: ClassVar[Table] = {
        "abs": torch.abs,
        "add": torch.add,
        "add_product": lambda target, left, right, factor: target.addcmul_(left, right, value=factor),
        "add_quotient": lambda target, upper, lower, factor: target.addcdiv_(upper, lower, value=factor),
        "add_scaled": lambda target, array, factor: target.add_(array, alpha=factor),
        "copy": torch.clone,
        "copy_": Tensor.copy_,
        "div": torch.div,
        "iadd": Tensor.add_,
        "idiv": Tensor.div_,
        "imul": Tensor.mul_,
        "isub": Tensor.sub_,
        "maximum": _extremum(torch.maximum, "min"),
        "minimum": _extremum(torch.minimum, "max"),
        "mix": Tensor.lerp_,
        "mul": torch.mul,
        "neg": torch.neg,
        "pow": torch.pow,
        "rdiv": lambda value, other: other / value,
        "rpow": lambda value, other: other**value,
        "sign": torch.sign,
        "sqrt": _root,
        "sub": torch.sub,
        "zeros_like": torch.zeros_like,
    }


def together(tensors: Sequence[Tensor]) -> Tensors:
    """At least one tensor, as one array."""
    return OneTensor(tensors[0]) if len(tensors) == 1 else TensorList(list(tensors))
