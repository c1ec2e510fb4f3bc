"""An ONNX node on PyTorch: one call of the function that its maker chose, and autograd's gradients of it.

The good path is that call and nothing else. What PyTorch has no kernel for is told apart by its own error, after it
happened: tried again in a wider type for unsigned integers, refused for the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from levelbench.errors import UnsupportedError
from levelbench.frameworks.torch.operators import find
from levelbench.operators.contract import Array, Operator, Pullback
from levelbench.operators.node import OperatorNode

__all__ = ["TorchOperator"]

_NO_KERNEL = (
    "not implemented for",
    "not supported for",
    "not yet supported",
    "No operator found",
    "Expected dtype",
    "is not implemented",
    "Boolean inputs not supported",
    "does not support",
    "is unsupported",
    "Unsupported dtype",
    "expected a floating point",
    "mat1 and mat2 to have the same dtype",
    "Promotion for Float8",
    "not supported with",
)


class TorchOperator(Operator):
    """Tensors in and out, on the device they are on.

    :meth:`forward` leaves no trace as long as no input requires a gradient, as those of ``TorchBackend.array`` do not.
    """

    def __init__(self, node: OperatorNode, device: torch.device) -> None:
        """Raises ``UnsupportedError`` for an operator or an attribute that is not there."""
        self.node = node
        entry = find(node)
        self._function = entry.make(node, device)
        self._unsigned = entry.unsigned
        self._count = len(node.outputs)
        self._gaps = "" in node.outputs

    def forward(self, *inputs: Array) -> tuple[Array, ...]:
        """The outputs; ``UnsupportedError`` where PyTorch has no kernel for these types."""
        try:
            found = self._function(*inputs)
        except (RuntimeError, TypeError, ValueError) as error:
            found = self._again(error, inputs)
        if type(found) is not tuple:
            return (found,)
        return self._named(found) if self._gaps else found[: self._count]

    def vjp(self, *inputs: Array) -> tuple[tuple[Array, ...], Pullback]:
        """The outputs, and autograd's vector-Jacobian product, which may be asked for more than once."""
        with torch.enable_grad():
            arguments = [_leaf(each) if _differentiable(each) else each for each in inputs]
            outputs = self.forward(*arguments)
        leaves = [each for each in arguments if _differentiable(each)]

        def pullback(*gradients: Array | None) -> tuple[Array | None, ...]:
            pairs = [
                (output, gradient)
                for output, gradient in zip(outputs, gradients, strict=False)
                if gradient is not None and isinstance(output, Tensor) and output.requires_grad
            ]
            found = iter(_gradients(pairs, leaves))
            return tuple(next(found) if _differentiable(each) else None for each in arguments)

        return tuple(each.detach() if isinstance(each, Tensor) else each for each in outputs), pullback

    def backward(
        self, gradients: Sequence[Array | None], inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> tuple[Array | None, ...]:
        """The gradients of inputs; the forward is computed once more, for autograd saves what it needs there only."""
        return self.vjp(*inputs)[1](*gradients)

    def _named(self, outputs: tuple[Array, ...]) -> tuple[Array, ...]:
        return tuple(each if name else None for each, name in zip(outputs, self.node.outputs, strict=False))

    def _again(self, error: Exception, inputs: tuple[Array, ...]) -> Any:
        text = str(error)
        if not any(each in text for each in _NO_KERNEL):
            raise error
        if self._unsigned is not None and any(isinstance(each, Tensor) and each.dtype in _WIDE for each in inputs):
            return self._unsigned(self._function, inputs)
        types = sorted({str(each.dtype).removeprefix("torch.") for each in inputs if isinstance(each, Tensor)})
        raise UnsupportedError(
            f"{self.node.title} of {', '.join(types)} on torch", text.splitlines()[0], "use another type or framework"
        ) from error


_WIDE = {torch.uint16, torch.uint32, torch.uint64}


def _differentiable(value: Any) -> bool:
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def _leaf(value: Tensor) -> Tensor:
    return value.detach().requires_grad_()


def _gradients(pairs: list[tuple[Tensor, Tensor]], leaves: list[Tensor]) -> list[Tensor | None]:
    """By leaf: zero where no output depends on it, none at all where no output has a gradient."""
    if not pairs:
        return [None] * len(leaves)
    outputs, gradients = zip(*pairs, strict=True)
    found: Any = torch.autograd.grad(outputs, leaves, gradients, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(leaf) if each is None else each for each, leaf in zip(found, leaves, strict=True)]
