"""The functions that a rule needs besides operators, for the arrays of any framework.

A rule says ``sqrt(moment)``, and the type of the first argument decides what that means. Arrays use the Array API
standard (array-api-compat). Other types provide the functions themselves. Among them are *list types*, which hold the
arrays of all parameters and take an elementwise rule through all of them in a few calls of their framework.

A list type must implement:

- the operators ``+ - * / **``, ``abs`` and unary minus, from either side, with numbers, with its own type and, if a
  rule has a state of that kind, with lists of arrays without dimensions; the augmented ``+= -= *= /=`` in place,
- ``__levelbench_function__(name, *args)`` for the names in ``ELEMENTWISE``, with arguments in the order of the
  functions in this module; ``self`` is the first (``self.__levelbench_function__("sqrt")``).

An elementwise rule uses nothing else: no shape, no dtype, no branch on a value. Numbers in its state (Python floats)
are the same for all parameters. Functions whose first argument is called ``target`` modify it if the framework's arrays
can be modified, and return the result either way; the others return a new array.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from levelbench.networks.executor import Array

ELEMENTWISE = (
    "add_product",
    "add_quotient",
    "add_scaled",
    "copy",
    "maximum",
    "minimum",
    "mix",
    "sign",
    "sqrt",
    "zeros_like",
)
"""The functions that a list type implements."""


_NAMESPACES: dict[type, Any] = {}


def namespace(array: Array) -> Any:
    """The Array API namespace of an array (``xp``), cached by type because the lookup takes a while."""
    kind = type(array)
    if kind not in _NAMESPACES:
        from array_api_compat import array_namespace

        _NAMESPACES[kind] = array_namespace(array)
    return _NAMESPACES[kind]


def _answers(array: Array) -> bool:
    return hasattr(type(array), "__levelbench_function__")


def _is_number(value: object) -> bool:
    # NumPy's float64 is a float, too, but an array without dimensions for our purposes.
    return type(value) in (bool, int, float)


def sqrt(array: Array) -> Array:
    """The square root of each element, or of a number."""
    if _is_number(array):
        return math.sqrt(array)
    if _answers(array):
        return array.__levelbench_function__("sqrt")
    return namespace(array).sqrt(array)


def sign(array: Array) -> Array:
    """-1, 0 or 1 for each element."""
    if _answers(array):
        return array.__levelbench_function__("sign")
    return namespace(array).sign(array)


def maximum(array: Array, other: Array | float) -> Array:
    """The larger of each two elements, or of two numbers."""
    return _extremum("maximum", max, array, other)


def minimum(array: Array, other: Array | float) -> Array:
    """The smaller of each two elements, or of two numbers."""
    return _extremum("minimum", min, array, other)


def _extremum(name: str, of_numbers: Callable[[Array, Array], Array], array: Array, other: Array | float) -> Array:
    if _is_number(array):
        if _is_number(other):
            return of_numbers(array, other)
        array, other = other, array
    if _answers(array):
        return array.__levelbench_function__(name, other)
    return getattr(namespace(array), name)(array, other)


def zeros_like(array: Array) -> Array:
    """Zeros of the same shape, dtype and device."""
    if _answers(array):
        return array.__levelbench_function__("zeros_like")
    return namespace(array).zeros_like(array)


def copy(array: Array) -> Array:
    """A copy of an array."""
    if _answers(array):
        return array.__levelbench_function__("copy")
    return namespace(array).asarray(array, copy=True)


def add_scaled(target: Array, array: Array, factor: float) -> Array:
    """The sum target + factor · array."""
    if _answers(target):
        return target.__levelbench_function__("add_scaled", array, factor)
    target += factor * array
    return target


def decayed(target: Array, parameter: Array, weight_decay: float) -> Array:
    """The sum target + weight_decay · parameter; the target itself for a decay of 0."""
    return add_scaled(target, parameter, weight_decay) if weight_decay else target


def add_product(target: Array, left: Array, right: Array, factor: float = 1.0) -> Array:
    """The sum target + factor · left · right."""
    if _answers(target):
        return target.__levelbench_function__("add_product", left, right, factor)
    product = left * right
    product *= factor
    target += product
    return target


def add_quotient(target: Array, upper: Array, lower: Array, factor: float = 1.0) -> Array:
    """The sum target + factor · upper / lower."""
    if _answers(target):
        return target.__levelbench_function__("add_quotient", upper, lower, factor)
    quotient = upper / lower
    quotient *= factor
    target += quotient
    return target


def mix(target: Array, array: Array, weight: float) -> Array:
    """(1 - weight) · target + weight · array: a step of an exponential moving average."""
    if _answers(target):
        return target.__levelbench_function__("mix", array, weight)
    target *= 1 - weight
    target += weight * array
    return target


def norm(array: Array) -> Array:
    """The Euclidean norm of all elements, as an array without dimensions. Not for list types."""
    return namespace(array).linalg.vector_norm(array)


def where(condition: Array, yes: Array | float, no: Array | float) -> Array:
    """``yes`` where the condition holds, else ``no``; one of the two must be an array. Not for list types."""
    like: Array = no if _is_number(yes) else yes
    xp = namespace(like)
    yes, no = (xp.full_like(like, each) if _is_number(each) else each for each in (yes, no))
    return xp.where(condition, yes, no)
