"""A ``torch.nn.Module`` as an executor: its own parameters, its own forward, autograd's gradients.

Nothing is converted, so what is measured is what the user wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils import _pytree as pytree

from levelbench.errors import DefinitionError, UnsupportedError, UsageError
from levelbench.frameworks.torch.executor import LiveTensors, Numerics
from levelbench.networks.executor import Executor, OperatorTime
from levelbench.networks.native import NativeModel

__all__ = ["TorchModule"]


class TorchModule(Executor):
    """A module on a device. ``infer`` runs it in evaluation mode, ``forward`` in training mode.

    ``parameters`` are those that require a gradient, under the module's own names; frozen ones are among the buffers.
    """

    network = None

    def __init__(
        self, model: NativeModel, device: torch.device, *, mode: str = "eager", numerics: Numerics | None = None
    ) -> None:
        """Moves the module to ``device``; ``DefinitionError`` if the model is no ``torch.nn.Module``."""
        if not isinstance(model.model, torch.nn.Module):
            found = f"it is a {type(model.model).__name__}"
            raise DefinitionError(f"the model {model.name!r} on torch", found, "return a torch.nn.Module")
        self.mode, self._model, self._device = mode, model, device
        self._numerics = numerics or Numerics(None, device, "float32", False)
        self._module = model.model.to(device)
        if self._numerics.channels_last:
            self._module = self._module.to(memory_format=torch.channels_last)
        self._call = self._module if mode == "eager" else _compiled(self._module)
        self._leaves = {name: each for name, each in self._module.named_parameters() if each.requires_grad}
        frozen = {name: each for name, each in self._module.named_parameters() if name not in self._leaves}
        self.parameters = LiveTensors({name: each.detach() for name, each in self._leaves.items()})
        self.buffers = LiveTensors({**frozen, **dict(self._module.named_buffers())})
        self._loss: Tensor | None = None
        self._hooks: list[Any] = []

    def infer(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The tensors that the module answers with, in the order in which they lie in tuples and dictionaries."""
        if self._module.training:
            self._module.eval()
        with torch.no_grad(), self._numerics.around():
            found = self._call(*self._numerics.inputs(inputs))
        return (found,) if isinstance(found, Tensor) else _tensors(found)

    def forward(self, *inputs: Tensor) -> Tensor:
        """The loss, detached. Takes the module's inputs, then what the loss takes besides the module's answer."""
        if not self._module.training:
            self._module.train()
        # A model that draws its own inputs does not say how many there are: all but the labels.
        count = len(self._model.inputs) or len(inputs) - 1
        model, rest = self._model, inputs[count:]
        with self._numerics.around():
            found = self._call(*self._numerics.inputs(inputs[:count]))
            loss = model.loss(found, *rest) if callable(model.loss) else _cross_entropy(found, model.smoothing, *rest)
        if not isinstance(loss, Tensor) or loss.dim():
            raise DefinitionError(f"the loss of {self._model.name!r}", "it is no scalar tensor", "return the mean")
        self._loss = loss
        return loss.detach()

    def backward(self) -> Mapping[str, Tensor]:
        """Autograd's gradients of the last forward; zero for a parameter that the loss does not depend on."""
        loss, self._loss = self._loss, None
        if loss is None:
            raise UsageError("the gradients of a loss", "no forward came before", "call forward first, once for each")
        leaves = list(self._leaves.values())
        found = torch.autograd.grad(loss, leaves, allow_unused=True)
        zipped = zip(self._leaves.items(), found, strict=True)
        return {name: torch.zeros_like(leaf) if each is None else each for (name, leaf), each in zipped}

    def on_gradient(self, callback: Callable[[str, Tensor], None] | None) -> bool:
        """By hooks on the leaves, which autograd runs as it comes to each; a compiled backward comes to all at last."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        if callback is not None:
            self._hooks = [leaf.register_hook(partial(callback, name)) for name, leaf in self._leaves.items()]
        return True

    def operator_times(self, *inputs: Tensor, repeats: int = 1) -> list[OperatorTime]:
        """The times of the innermost modules that run, by their paths; in mode ``eager``."""
        if self.mode != "eager":
            raise UnsupportedError(
                f"the time of each module in mode {self.mode!r}", "the compiler fuses them", "use mode eager"
            )
        from levelbench.frameworks.torch.profiling import module_times

        return module_times(self._module, lambda: self.infer(*inputs), self._device, repeats)


def _compiled(module: torch.nn.Module) -> Any:
    # Imported here: the compiler takes a while, and eager modules do without.
    from levelbench.frameworks.torch.executor import compiled

    return compiled(module)


def _tensors(found: Any) -> tuple[Tensor, ...]:
    """All tensors in an answer: a tuple, a dictionary, a data class of Hugging Face's."""
    tensors = tuple(each for each in pytree.tree_leaves(found) if isinstance(each, Tensor))
    if not tensors:
        raise DefinitionError("a module's answer", f"there is no tensor in a {type(found).__name__}", "return one")
    return tensors


def _cross_entropy(found: Any, smoothing: float, labels: Tensor) -> Tensor:
    """The mean of -log softmax(logits)[label]: classes on the last axis up to rank 3, on axis 1 of images."""
    logits = _tensors(found)[0]
    if logits.dim() == 3:
        shares = labels.dim() == 3
        logits, labels = logits.flatten(0, 1), labels.flatten(0, 1) if shares else labels.flatten()
    return functional.cross_entropy(logits, labels, label_smoothing=smoothing)
