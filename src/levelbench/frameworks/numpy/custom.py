"""Custom operators on NumPy: written for NumPy, for the Array API standard, or in C++ on the arrays' own memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from levelbench.operators.contract import Array, Operator
from levelbench.operators.custom import host
from levelbench.operators.custom.definition import CustomOperator, create, node_of
from levelbench.operators.node import OperatorNode


def function(operator: CustomOperator | type[CustomOperator]) -> Callable[..., Any]:
    """The operator as a function of arrays that returns one array or a tuple, checked against its ``infer``.

    NumPy does not differentiate: for gradients, use ``NumpyCustom(operator).vjp(*inputs)``.
    """
    made = operator if isinstance(operator, CustomOperator) else operator()

    def call(*inputs: Array) -> Any:
        found = host.forward(made, inputs)
        return found[0] if len(found) == 1 else found

    call.__name__ = call.__qualname__ = made.name
    return call


def custom_operator(node: OperatorNode) -> Operator:
    """The operator of a node of the domain ``levelbench.custom``."""
    return NumpyCustom(create(node), node)


class NumpyCustom(Operator):
    """A custom operator as a Level 0 operator."""

    def __init__(self, operator: CustomOperator | type[CustomOperator], node: OperatorNode | None = None) -> None:
        self._operator = operator if isinstance(operator, CustomOperator) else operator()
        self.node = node or node_of(self._operator)

    def forward(self, *inputs: Array) -> tuple[Array, ...]:
        return host.forward(self._operator, inputs)

    def backward(
        self, gradients: Sequence[Array | None], inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> tuple[Array | None, ...]:
        return host.backward(self._operator, gradients, inputs, outputs)
