"""Element-wise functions of two and more arrays, with broadcasting: arithmetic, comparisons, logic, bits, Where."""

from __future__ import annotations

from functools import reduce
from typing import Any

import jax.numpy as jnp
from jax import lax

from levelbench.frameworks.jax.operators.registry import Function, maker, plain
from levelbench.operators.node import OperatorNode

__all__: list[str] = []


def _divide(a: Any, b: Any) -> Any:
    """ONNX's integer division truncates, as C's and XLA's do."""
    if jnp.issubdtype(a.dtype, jnp.inexact):
        return jnp.divide(a, b)
    return lax.div(*jnp.broadcast_arrays(a, b))


def _power(base: Any, exponent: Any) -> Any:
    """Of the base's type, whatever the exponent's."""
    if jnp.issubdtype(base.dtype, jnp.inexact) or not jnp.issubdtype(exponent.dtype, jnp.inexact):
        return jnp.power(base, exponent.astype(base.dtype))
    # In 64 bits: a narrower exponent's type does not hold every base.
    return jnp.power(base.astype(jnp.float64), exponent.astype(jnp.float64)).astype(base.dtype)


def _mean(*inputs: Any) -> Any:
    return reduce(jnp.add, inputs) / len(inputs)


plain(
    {
        "Add": jnp.add,
        "And": jnp.logical_and,
        "BitwiseAnd": jnp.bitwise_and,
        "BitwiseOr": jnp.bitwise_or,
        "BitwiseXor": jnp.bitwise_xor,
        "Div": _divide,
        "Equal": jnp.equal,
        "Greater": jnp.greater,
        "GreaterOrEqual": jnp.greater_equal,
        "Less": jnp.less,
        "LessOrEqual": jnp.less_equal,
        "Max": lambda *inputs: reduce(jnp.maximum, inputs),
        "Mean": _mean,
        "Min": lambda *inputs: reduce(jnp.minimum, inputs),
        "Mul": jnp.multiply,
        "Or": jnp.logical_or,
        "Pow": _power,
        "Sub": jnp.subtract,
        "Sum": lambda *inputs: reduce(jnp.add, inputs),
        "Where": jnp.where,
        "Xor": jnp.logical_xor,
    }
)


@maker("Mod")
def _mod(node: OperatorNode) -> Function:
    """The sign of the divisor, or with ``fmod`` that of the dividend."""
    return jnp.fmod if node["fmod"] else jnp.mod


@maker("BitShift")
def _bit_shift(node: OperatorNode) -> Function:
    return jnp.left_shift if node["direction"] == "LEFT" else jnp.right_shift
