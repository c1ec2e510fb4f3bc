"""Element-wise functions of one array: Abs to Tanh, rounding, Erf, Not, tests for NaN and infinity, Clip.

The one idea: at a kink the gradient is the one that PyTorch takes, so that frameworks can be compared there: the full
one at both bounds of Clip, none at zero of Abs.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from levelbench.frameworks.jax.operators.registry import Function, maker, plain
from levelbench.operators.node import OperatorNode

__all__: list[str] = []


@jax.custom_jvp
def _absolute(x: Any) -> Any:
    return jnp.abs(x)


@_absolute.defjvp
def _absolute_slope(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    # JAX's own has a slope of one at zero.
    (x,), (tangent,) = primals, tangents
    return jnp.abs(x), jnp.sign(x) * tangent


plain(
    {
        "Abs": _absolute,
        "Acos": jnp.arccos,
        "Acosh": jnp.arccosh,
        "Asin": jnp.arcsin,
        "Asinh": jnp.arcsinh,
        "Atan": jnp.arctan,
        "Atanh": jnp.arctanh,
        "BitwiseNot": jnp.invert,
        "Ceil": jnp.ceil,
        "Cos": jnp.cos,
        "Cosh": jnp.cosh,
        "Erf": lax.erf,
        "Exp": jnp.exp,
        "Floor": jnp.floor,
        "Identity": lambda x: x,
        "IsNaN": jnp.isnan,
        "Log": jnp.log,
        "Neg": jnp.negative,
        "Not": jnp.logical_not,
        "Reciprocal": jnp.reciprocal,
        "Round": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
        "Sign": jnp.sign,
        "Sin": jnp.sin,
        "Sinh": jnp.sinh,
        "Sqrt": jnp.sqrt,
        "Tan": jnp.tan,
        "Tanh": jnp.tanh,
    }
)


@maker("IsInf")
def _is_inf(node: OperatorNode) -> Function:
    negative, positive = bool(node["detect_negative"]), bool(node["detect_positive"])
    if negative and positive:
        return jnp.isinf
    if negative:
        return jnp.isneginf
    return jnp.isposinf if positive else lambda x: jnp.zeros(x.shape, bool)


@maker("Clip")
def _clip(_: OperatorNode) -> Function:
    def clip(x: Any, low: Any = None, high: Any = None) -> Any:
        # Where the bounds cross, ONNX answers with the upper one.
        raised = x if low is None else jnp.where(x < low, low, x)
        return raised if high is None else jnp.where(raised > high, high, raised)

    return clip
