"""ONNX's operator on JAX: a node and the compiled functions that it shares with its equals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from levelbench.frameworks.jax.kernel import Kernel
from levelbench.operators.contract import Operator, Pullback
from levelbench.operators.node import OperatorNode

__all__ = ["JaxOperator"]


class JaxOperator(Operator):
    """Compiled at the first call for each set of shapes and types; calls return before they have computed."""

    def __init__(self, node: OperatorNode, kernel: Kernel) -> None:
        self.node = node
        self._kernel = kernel
        self._call = kernel.call

    def forward(self, *inputs: Any) -> tuple[Any, ...]:
        """The outputs."""
        return self._call(*inputs)

    def backward(self, gradients: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[Any, ...]:
        """The gradients of inputs: the forward is computed again as far as it is needed."""
        return self._kernel.backward(gradients, inputs, outputs)

    def vjp(self, *inputs: Any) -> tuple[tuple[Any, ...], Pullback]:
        """The outputs and the pullback, which keeps what it needs."""
        return self._kernel.vjp(*inputs)
