"""Random draws of a compiled network: arguments of its program, for a draw inside it would be the same at each call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import onnx

from levelbench.errors import UnsupportedError
from levelbench.frameworks.jax.operators import find
from levelbench.networks.network import Network
from levelbench.operators.node import OperatorNode

if TYPE_CHECKING:
    from levelbench.frameworks.jax.backend import JaxBackend

__all__ = ["Drawn", "is_random"]


class Drawn:
    """A compiled function that takes a draw of the backend first."""

    def __init__(self, function: Any, backend: JaxBackend) -> None:
        self._function, self._backend = function, backend

    def __call__(self, *arguments: Any) -> Any:
        """One call, with a draw of its own."""
        return self._function(self._backend.draw(), *arguments)

    def lower(self, *arguments: Any) -> Any:
        """JAX's own lowering."""
        return self._function.lower(self._backend.draw(), *arguments)


def is_random(network: Network) -> bool:
    """Whether any node of the network, of its subgraphs or functions, draws random numbers."""
    model = network.model
    return _draws(model.graph.node) or any(_draws(each.node) for each in model.functions)


def _draws(nodes: Iterable[onnx.NodeProto]) -> bool:
    for node in nodes:
        # Dropout draws in training mode alone, which is its third input.
        if node.op_type != "Dropout" or len(node.input) > 2:
            try:
                if find(OperatorNode(node.op_type, (), (), domain=node.domain)).random:
                    return True
            except UnsupportedError:
                pass
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH and _draws(attribute.g.node):
                return True
    return False
