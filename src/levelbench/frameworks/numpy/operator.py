"""An ONNX node on NumPy: our vectorised operator where there is one, ONNX's reference where there is none.

The one idea: an operator of ours that meets a mode or a dtype it does not cover says so, and ONNX's is asked instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from levelbench.errors import UnsupportedError
from levelbench.frameworks.numpy.fallback import Fallback
from levelbench.frameworks.numpy.operators import OPERATORS, Kernel
from levelbench.frameworks.numpy.operators.kernel import Wanted, as_outputs
from levelbench.frameworks.numpy.versions import modern
from levelbench.operators.contract import Array, Operator, Pullback
from levelbench.operators.node import OperatorNode

__all__ = ["NumpyOperator"]


class NumpyOperator(Operator):
    """Arrays in, arrays out. No input is written to; an output may share the memory of an input."""

    def __init__(self, node: OperatorNode) -> None:
        """Raises ``UnsupportedError`` for an operator that neither we nor ONNX's reference implement."""
        self._count = len(node.outputs)
        self._gaps = "" in node.outputs
        self._fallback: Fallback | None = None
        self._kernel: Kernel | None = None
        try:
            self.node = modern(node)
            self._kernel = _kernel(self.node)
        except UnsupportedError:
            self.node, self._fallback = node, Fallback(node)
            if not self._fallback.is_exact:
                raise
        if self._kernel is None and self._fallback is None:
            self._fallback = Fallback(self.node)

    def forward(self, *inputs: Array) -> tuple[Array, ...]:
        """The outputs."""
        if self._kernel is None:
            return self._reference(None, inputs)
        try:
            found = as_outputs(self._kernel.forward(*inputs))[: self._count]
            return self._named(found) if self._gaps else found
        except UnsupportedError as refusal:
            return self._reference(refusal, inputs)

    def backward(
        self, gradients: Sequence[Array | None], inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> tuple[Array | None, ...]:
        """The gradients of inputs; ``UnsupportedError`` where only ONNX's reference computes the forward."""
        kernel = self._differentiable()
        if kernel.backward is not None:
            return kernel.backward(gradients, inputs, outputs)
        return kernel.differentiate(inputs)[1](*gradients)

    def vjp(self, *inputs: Array, wanted: Wanted = None) -> tuple[tuple[Array, ...], Pullback]:
        """The outputs and what takes their gradients to those of the inputs, or of those inputs that are ``wanted``."""
        outputs, pullback = self._differentiable().differentiate(inputs, wanted)
        found = outputs[: self._count]
        return self._named(found) if self._gaps else found, pullback

    def _named(self, outputs: tuple[Array, ...]) -> tuple[Array, ...]:
        return tuple(each if name else None for each, name in zip(outputs, self.node.outputs, strict=False))

    def _differentiable(self) -> Kernel:
        if self._kernel is None or (self._kernel.backward is None and self._kernel.vjp is None):
            reason = "only its forward is implemented"
            raise UnsupportedError(f"the gradient of {self.node.title} on numpy", reason, "use another framework")
        return self._kernel

    def _reference(self, refusal: UnsupportedError | None, inputs: Sequence[Any]) -> tuple[Array, ...]:
        if self._fallback is None:
            try:
                self._fallback = Fallback(self.node)
            except UnsupportedError as error:
                raise refusal or error from error
        return self._fallback.forward(*inputs)


def _kernel(node: OperatorNode) -> Kernel | None:
    """Ours, if it covers the node."""
    if node.domain or node.op_type not in OPERATORS:
        return None
    try:
        return OPERATORS[node.op_type](node)
    except UnsupportedError:
        return None
