"""Custom operators on JAX, under ``jit``, ``vmap`` and ``grad``, with the derivative rule that they bring along."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from levelbench.frameworks.jax.custom_calls import Ways, spec_of, ways_of
from levelbench.frameworks.jax.custom_errors import translated
from levelbench.operators.contract import Array, Operator
from levelbench.operators.custom import host
from levelbench.operators.custom.definition import CustomOperator, differentiable
from levelbench.operators.custom.registry import create
from levelbench.operators.node import OperatorNode

__all__ = ["JaxCustom", "custom_operator", "function"]


def function(operator: CustomOperator | type[CustomOperator]) -> Callable[..., Any]:
    """The operator as a function of arrays, one array or a tuple out; its gradients are those of its ``backward``.

    It is compiled for each set of shapes. Operators in C++ run on the CPU, on XLA's own buffers; those written for
    NumPy are called back through Python, on whichever device; those with ``array_api`` are traced like JAX's own.
    """
    made = operator if isinstance(operator, CustomOperator) else operator()
    forward = jax.jit(_differentiable(made, ways_of(made)))
    single = len(made.outputs) == 1

    def call(*inputs: Array) -> Any:
        host.count_inputs(made, len(inputs))
        with translated(made):
            found = forward(*(jnp.asarray(each) for each in inputs))
        return found[0] if single else found

    call.__name__ = call.__qualname__ = made.name
    return call


def custom_operator(node: OperatorNode) -> Operator:
    """The operator that a node of the domain ``levelbench.custom`` describes."""
    return JaxCustom(node)


class JaxCustom(Operator):
    """A node on JAX; compiled for each set of shapes."""

    def __init__(self, node: OperatorNode) -> None:
        self.node = node
        self._operator = create(node)
        ways = ways_of(self._operator)
        self._forward = jax.jit(_differentiable(self._operator, ways))
        self._backward = jax.jit(ways.backward)

    def forward(self, *inputs: Array) -> tuple[Array, ...]:
        """The outputs."""
        host.count_inputs(self._operator, len(inputs))
        with translated(self._operator):
            found: tuple[Array, ...] = self._forward(*inputs)
        return found

    def backward(
        self, gradients: Sequence[Array | None], inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> tuple[Array | None, ...]:
        """The operator's own backward."""
        host.need_backward(self._operator)
        host.count_inputs(self._operator, len(inputs))
        host.need_outputs(self._operator, gradients, outputs)
        with translated(self._operator):
            found: tuple[Array | None, ...] = self._backward(_filled(gradients, outputs), tuple(inputs), tuple(outputs))
        return found


def _differentiable(operator: CustomOperator, ways: Ways) -> Any:
    """The forward with the operator's backward as its derivative rule; arrays in, a tuple out."""

    @jax.custom_vjp
    def call(*inputs: Any) -> tuple[Any, ...]:
        return ways.forward(*inputs)

    def ahead(*inputs: Any) -> tuple[Any, Any]:
        outputs = ways.forward(*inputs)
        return outputs, (inputs, outputs)

    def back(kept: Any, gradients: Any) -> tuple[Any, ...]:
        host.need_backward(operator)
        inputs, outputs = kept
        with translated(operator):
            return ways.backward(_filled(gradients, outputs), inputs, outputs)

    call.defvjp(ahead, back)
    return call


def _filled(gradients: Sequence[Any], outputs: Sequence[Any]) -> tuple[Any, ...]:
    """Zero for a gradient that is left out, ``None`` for that of an output that is not floating-point."""
    return tuple(
        (jnp.zeros_like(output) if slope is None else slope) if differentiable(spec_of(output)) else None
        for slope, output in zip(gradients, outputs, strict=True)
    )
