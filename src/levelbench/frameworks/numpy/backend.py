"""Executes a network on NumPy: nodes in order, gradients by walking them back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DefinitionError
from levelbench.frameworks.numpy.operators import OPERATORS, softmax_cross_entropy, softmax_cross_entropy_gradient
from levelbench.networks.executor import Backend, Executor
from levelbench.networks.network import Network

__all__ = ["NumpyBackend", "NumpyExecutor"]


class NumpyExecutor(Executor):
    """The reference executor. Works in the dtype of the parameters: float64 ones make a float64 oracle."""

    def __init__(self, network: Network, parameters: Mapping[str, NDArray[Any]]) -> None:
        unknown = sorted({node.operator for node in network.nodes} - OPERATORS.keys())
        if unknown:
            raise DefinitionError(
                f"network {network.name!r} on numpy",
                f"no operator {', '.join(unknown)}",
                f"use {', '.join(sorted(OPERATORS))}, or another framework",
            )
        self._network = network
        self._tape: list[tuple[Any, ...]] = []
        self._loss_saved: Any = None
        self.parameters = {name: array.copy() for name, array in parameters.items()}

    def infer(self, inputs: NDArray[Any]) -> NDArray[Any]:
        """Logits of shape (batch, classes)."""
        values = {self._network.input: inputs, **self.parameters}
        for node in self._network.nodes:
            arguments = [values[name] for name in node.inputs]
            values[node.output], _ = OPERATORS[node.operator].forward(node.attributes, *arguments)
        logits: NDArray[Any] = values[self._network.output]
        return logits

    def forward(self, inputs: NDArray[Any], labels: NDArray[np.int64]) -> Any:
        """The mean loss; each node leaves on the tape what its backward needs."""
        values = {self._network.input: inputs, **self.parameters}
        self._tape = []
        for node in self._network.nodes:
            arguments = [values[name] for name in node.inputs]
            operator = OPERATORS[node.operator]
            values[node.output], saved = operator.forward(node.attributes, *arguments)
            self._tape.append((node, operator, saved))
        loss, self._loss_saved = softmax_cross_entropy(values[self._network.output], labels)
        return loss

    def backward(self) -> Mapping[str, NDArray[Any]]:
        """Gradients of the last forward; a value read by several nodes gets the sum of theirs."""
        gradients: dict[str, NDArray[Any]] = {
            self._network.output: softmax_cross_entropy_gradient(self._loss_saved),
        }
        for node, operator, saved in reversed(self._tape):
            wanted = tuple(name != self._network.input for name in node.inputs)
            parts = operator.backward(saved, gradients.pop(node.output), wanted)
            for name, part, want in zip(node.inputs, parts, wanted, strict=True):
                if want and part is not None:
                    gradients[name] = gradients[name] + part if name in gradients else part
        self._tape, self._loss_saved = [], None
        return gradients


class NumpyBackend(Backend):
    """NumPy on the CPU: every call is done when it returns."""

    def executor(self, network: Network, parameters: Mapping[str, NDArray[np.float32]]) -> Executor:
        """A reference executor."""
        return NumpyExecutor(network, parameters)

    def array(self, host: NDArray[Any]) -> NDArray[Any]:
        """The array itself."""
        return host

    def host(self, array: NDArray[Any]) -> NDArray[Any]:
        """A copy."""
        return np.array(array)

    def take(self, array: NDArray[Any], indices: NDArray[np.int64]) -> NDArray[Any]:
        """Rows at ``indices``."""
        return array.take(indices, axis=0)

    def mean(self, scalars: Sequence[Any]) -> float:
        """The mean, accumulated in float64."""
        return float(np.mean(np.array(scalars, np.float64)))

    def seed(self, seed: int) -> None:
        """Nothing to seed: every generator is made from the run's seed where it is used."""

    def describe(self) -> dict[str, Any]:
        """Version; the environment holds the BLAS and its threads."""
        return {"name": "numpy", "version": np.__version__, "device": "cpu", "deterministic": True}
