"""An executor whose training passes go through a module that PyTorch's data parallelism has wrapped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

# The first module that is wrapped would import it, on the clock of whoever wraps it.
import torch._dynamo
from torch import Tensor

from levelbench.errors import UnsupportedError, UsageError
from levelbench.frameworks.torch.distributed.losing import raise_lost
from levelbench.networks.executor import Executor, OperatorTime

__all__ = ["WrappedExecutor", "leaves_of", "loss_of"]

_FORWARD, _BACKWARD = (f"a {name} pass through PyTorch's data parallelism" for name in ("forward", "backward"))


def leaves_of(executor: Executor, scheme: str) -> dict[str, Tensor]:
    """The tensors that autograd gives gradients, by parameter: those that the loss may depend on."""
    leaves: dict[str, Tensor] | None = getattr(executor, "_leaves", None)
    if leaves is None:
        raise UnsupportedError(
            f"scheme {scheme!r} on a {type(executor).__name__}",
            "it has no tensors of autograd's",
            "use framework torch",
        )
    read = getattr(executor, "_trained_names", leaves)
    return {name: leaves[name] for name in read}


def loss_of(executor: Any) -> Tensor:
    """The loss of the forward pass that just was, with its graph, which is taken from the executor."""
    loss, executor._loss = executor._loss, None
    found: Tensor = loss
    return found


class WrappedExecutor(Executor):
    """``executor`` whose training passes go through ``module``, which answers with the loss and its graph.

    ``weight`` is asked for at each forward pass: by how much the loss counts in the mean over ranks. ``local`` makes of
    a leaf, or of its gradient, what the optimizer works on.
    """

    def __init__(
        self,
        executor: Executor,
        module: Any,
        leaves: Mapping[str, Any],
        weight: Callable[[], float],
        local: Callable[[Any], Tensor] = Tensor.detach,
    ) -> None:
        self._executor, self._module, self._leaves = executor, module, leaves
        self._weight, self._local = weight, local
        self.network, self.mode = executor.network, executor.mode
        self.parameters, self.buffers = executor.parameters, executor.buffers
        self._loss: Tensor | None = None

    def infer(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The executor's own."""
        found: tuple[Tensor, ...] = self._executor.infer(*inputs)
        return found

    def forward(self, *inputs: Tensor) -> Tensor:
        """The loss of this rank's part."""
        try:
            loss = self._module(*inputs)
        except RuntimeError as error:
            raise_lost(_FORWARD, error)
            raise
        weight = self._weight()
        self._loss = loss if weight == 1.0 else loss * weight
        detached: Tensor = loss.detach()
        return detached

    def backward(self) -> Mapping[str, Tensor]:
        """The gradients that the library leaves: of the whole batch. They are its own until the next backward pass."""
        loss, self._loss = self._loss, None
        if loss is None:
            raise UsageError("the gradients of a loss", "no forward came before", "call forward first, once for each")
        for leaf in self._leaves.values():
            leaf.grad = None
        try:
            loss.backward()
        except RuntimeError as error:
            raise_lost(_BACKWARD, error)
            raise
        local = self._local
        return {
            name: torch.zeros_like(local(leaf)) if leaf.grad is None else local(leaf.grad)
            for name, leaf in self._leaves.items()
        }

    def operator_times(self, *inputs: Tensor, repeats: int = 1) -> list[OperatorTime]:
        """The executor's own."""
        return self._executor.operator_times(*inputs, repeats=repeats)
