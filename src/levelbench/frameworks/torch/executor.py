"""Executes a network on PyTorch's eager mode, with autograd's gradients and tensors that never leave the device.

The one idea: the network is turned once into a list of closures over live leaf tensors, so a step is the same calls
that a hand-written module makes, without the module's bookkeeping.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from levelbench.errors import DefinitionError
from levelbench.frameworks.torch.operators import find
from levelbench.networks.executor import Executor
from levelbench.networks.network import Network, Node
from levelbench.operators.node import CUSTOM_DOMAIN, OperatorNode

__all__ = ["TorchExecutor"]


def _closure(node: Node, leaves: Mapping[str, Tensor], device: torch.device) -> Callable[[Tensor], Tensor]:
    """The node's operator as a function of its first input; its parameters are bound."""
    function = _function(OperatorNode(node.operator, node.inputs, (node.output,), node.attributes, node.domain), device)
    parameters = [leaves[name] for name in node.inputs[1:]]
    match parameters:
        case []:
            return function
        case [one]:
            return lambda x: function(x, one)
        case [one, other]:
            # Written out, for a call that spreads a list costs more.
            return lambda x: function(x, one, other)
    return lambda x: function(x, *parameters)


def _function(node: OperatorNode, device: torch.device) -> Callable[..., Tensor]:
    if node.domain != CUSTOM_DOMAIN:
        found: Callable[..., Tensor] = find(node).make(node, device)
        return found
    from levelbench.frameworks.torch.custom import custom_operator

    forward = custom_operator(node).forward
    return lambda *inputs: forward(*inputs)[0]


class TorchExecutor(Executor):
    """A chain of nodes over leaf tensors; ``parameters`` are the same storage, detached, to be updated in place."""

    def __init__(self, network: Network, parameters: Mapping[str, NDArray[Any]], device: torch.device) -> None:
        value = network.input
        for node in network.nodes:
            if node.inputs[0] != value:
                raise DefinitionError(f"network {network.name!r} on torch", "it is no chain of nodes", "use numpy")
            value = node.output
        # The copy keeps the caller's array out of reach of in-place updates.
        leaves = {name: torch.tensor(array, device=device).requires_grad_() for name, array in parameters.items()}
        self._names = list(leaves)
        self._leaves = list(leaves.values())
        self._chain = [_closure(node, leaves, device) for node in network.nodes]
        self._loss: Tensor | None = None
        self.parameters = _Live({name: leaf.detach() for name, leaf in leaves.items()})

    def infer(self, inputs: Tensor) -> Tensor:
        """Logits of shape (batch, classes)."""
        with torch.no_grad():
            return self._run(inputs)

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """The mean loss, detached; the graph is kept for :meth:`backward`."""
        self._loss = functional.cross_entropy(self._run(inputs), labels)
        return self._loss.detach()

    def backward(self) -> Mapping[str, Tensor]:
        """Autograd's gradients of the last forward."""
        loss, self._loss = self._loss, None
        return dict(zip(self._names, torch.autograd.grad(loss, self._leaves), strict=True))

    def _run(self, x: Tensor) -> Tensor:
        for function in self._chain:
            x = function(x)
        return x


class _Live(dict[str, Any]):
    """Tensors that share the leaves' storage; putting another one in a place copies its values there."""

    def __setitem__(self, name: str, value: Tensor) -> None:
        live = self[name]
        if value is not live:
            live.copy_(value)
