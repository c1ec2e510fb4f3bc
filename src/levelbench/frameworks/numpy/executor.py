"""Executes a network on NumPy: nodes in order, gradients by walking them back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DefinitionError
from levelbench.frameworks.numpy.cross_entropy import softmax_cross_entropy, softmax_cross_entropy_gradient
from levelbench.frameworks.numpy.operator import NumpyOperator
from levelbench.frameworks.numpy.operators import OPERATORS
from levelbench.networks.executor import Executor
from levelbench.networks.network import Network, Node
from levelbench.operators.contract import Operator, Pullback
from levelbench.operators.node import CUSTOM_DOMAIN, OperatorNode

__all__ = ["NumpyExecutor", "make_operator"]


class NumpyExecutor(Executor):
    """The reference executor. Works in the dtype of the parameters: float64 ones make a float64 oracle."""

    def __init__(self, network: Network, parameters: Mapping[str, NDArray[Any]]) -> None:
        """``DefinitionError`` for a network with an operator that has no gradient here."""
        unknown = {node.operator for node in network.nodes if not node.domain and node.operator not in OPERATORS}
        if unknown:
            raise DefinitionError(
                f"network {network.name!r} on numpy",
                f"no operator {', '.join(sorted(unknown))} that can be trained through",
                "use another framework",
            )
        self._network = network
        self._steps = [_Step(node, network.input) for node in network.nodes]
        self._tape: list[tuple[_Step, Pullback]] = []
        self._loss_saved: Any = None
        self.parameters = {name: array.copy() for name, array in parameters.items()}

    def infer(self, inputs: NDArray[Any]) -> NDArray[Any]:
        """Logits of shape (batch, classes)."""
        values = {self._network.input: inputs, **self.parameters}
        for step in self._steps:
            values[step.output] = step.operator.forward(*[values[name] for name in step.inputs])[0]
        logits: NDArray[Any] = values[self._network.output]
        return logits

    def forward(self, inputs: NDArray[Any], labels: NDArray[np.int64]) -> Any:
        """The mean loss; each node leaves on the tape what its backward needs."""
        values = {self._network.input: inputs, **self.parameters}
        self._tape = []
        for step in self._steps:
            (values[step.output], *_), pullback = step.differentiate([values[name] for name in step.inputs])
            self._tape.append((step, pullback))
        loss, self._loss_saved = softmax_cross_entropy(values[self._network.output], labels)
        return loss

    def backward(self) -> Mapping[str, NDArray[Any]]:
        """Gradients of the last forward; a value read by several nodes gets the sum of theirs."""
        gradients: dict[str, NDArray[Any]] = {
            self._network.output: softmax_cross_entropy_gradient(self._loss_saved),
        }
        for step, pullback in reversed(self._tape):
            parts = pullback(gradients.pop(step.output))
            for name, part, want in zip(step.inputs, parts, step.wanted, strict=True):
                if want and part is not None:
                    gradients[name] = gradients[name] + part if name in gradients else part
        self._tape, self._loss_saved = [], None
        return gradients


class _Step:
    """A node with its operator. The gradient of the network's input is the one that nobody wants."""

    def __init__(self, node: Node, network_input: str) -> None:
        self.inputs, self.output = node.inputs, node.output
        self.wanted = tuple(name != network_input for name in node.inputs)
        described = OperatorNode(node.operator, node.inputs, (node.output,), node.attributes, node.domain)
        self.operator = make_operator(described)

    def differentiate(self, inputs: list[NDArray[Any]]) -> tuple[tuple[Any, ...], Pullback]:
        """The outputs, and their pullback."""
        if isinstance(self.operator, NumpyOperator):
            return self.operator.vjp(*inputs, wanted=self.wanted)
        return self.operator.vjp(*inputs)


def make_operator(node: OperatorNode) -> Operator:
    """The operator of a node, a custom one included."""
    if node.domain == CUSTOM_DOMAIN:
        from levelbench.frameworks.numpy.custom import custom_operator

        return custom_operator(node)
    return NumpyOperator(node)
