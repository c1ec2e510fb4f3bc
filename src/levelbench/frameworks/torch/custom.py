"""Custom operators on PyTorch: each becomes a registered operator, ``torch.ops.levelbench.<name>``.

A registered operator with a shape function and a backward of its own is opaque to autograd, fake tensors and
``torch.compile`` alike, so all of them work with whatever runs inside.
"""

from __future__ import annotations

import hashlib
import keyword
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from levelbench.errors import UnsupportedError
from levelbench.frameworks.torch import custom_kernels
from levelbench.operators.contract import Array, Operator, as_tuple
from levelbench.operators.custom import host
from levelbench.operators.custom.compiled import CompiledOperator
from levelbench.operators.custom.definition import CustomOperator, Spec, create, differentiable, infer_outputs
from levelbench.operators.node import OperatorNode

__all__ = ["TorchCustom", "custom_operator", "function"]

_LIBRARY: Any = torch.library.Library("levelbench", "FRAGMENT")
_REGISTERED: dict[tuple[type[CustomOperator], str], Any] = {}
_TAKEN: set[str] = set()


def function(operator: CustomOperator | type[CustomOperator]) -> Callable[..., Any]:
    """The operator as a function of tensors, one tensor or a tuple out; its gradients are those of its ``backward``.

    Works with autograd, under ``torch.compile`` (also with ``fullgraph=True``) and on fake tensors. A second
    derivative is refused with ``UnsupportedError``.
    """
    made = operator if isinstance(operator, CustomOperator) else operator()
    registered = _register(made)

    def call(*inputs: Tensor) -> Any:
        host.count_inputs(made, len(inputs))
        return registered(*inputs)

    call.__name__ = call.__qualname__ = made.name
    return call


def custom_operator(node: OperatorNode) -> Operator:
    """The operator that a node of the domain ``levelbench.custom`` describes."""
    return TorchCustom(node)


class TorchCustom(Operator):
    """A node on PyTorch. A forward of inputs that require a gradient can be trained through by autograd too."""

    def __init__(self, node: OperatorNode) -> None:
        self.node = node
        self._operator = create(node)
        self._registered = _register(self._operator)

    def forward(self, *inputs: Array) -> tuple[Array, ...]:
        """The outputs."""
        if torch.compiler.is_compiling() or (
            torch.is_grad_enabled() and any(isinstance(each, Tensor) and each.requires_grad for each in inputs)
        ):
            return as_tuple(self._registered(*inputs))
        return custom_kernels.forward(self._operator, inputs)

    def backward(
        self, gradients: Sequence[Array | None], inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> tuple[Array | None, ...]:
        """The operator's own backward."""
        return custom_kernels.backward(self._operator, gradients, inputs, outputs)


def _register(operator: CustomOperator) -> Any:
    """PyTorch's operator for this one; registered once for its class and attributes."""
    key = (type(operator), repr(sorted(operator.attributes.items())))
    if key not in _REGISTERED:
        name = _free_name(operator, key[1])
        _REGISTERED[key] = _define_forward(operator, name, _define_backward(operator, f"{name}_backward"))
    return _REGISTERED[key]


def _free_name(operator: CustomOperator, attributes: str) -> str:
    """``GeluBias``; with other attributes than none, their digest; for another class of that name, a number."""
    digest = hashlib.sha256(attributes.encode()).hexdigest()[:8]
    base = operator.name if not operator.attributes else f"{operator.name}_{digest}"
    # A class that was defined anew is another operator: compiled programs may still hold the first one.
    name, number = base, 1
    while not _TAKEN.isdisjoint((name, f"{name}_backward")):
        number += 1
        name = f"{base}_{number}"
    _TAKEN.update((name, f"{name}_backward"))
    return name


def _define(schema: str, kernel: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    name = schema.partition("(")[0]
    _LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    _LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"levelbench::{name}", fake, lib=_LIBRARY)
    return getattr(torch.ops.levelbench, name).default


def _define_forward(operator: CustomOperator, name: str, gradient: Any) -> Any:
    """The operator itself."""
    single = len(operator.outputs) == 1
    usable = all(each.isidentifier() and not keyword.iskeyword(each) for each in operator.inputs)
    names = operator.inputs if usable else [f"input{at}" for at in range(len(operator.inputs))]
    answer = "Tensor" if single else f"({', '.join(['Tensor'] * len(operator.outputs))})"
    schema = f"{name}({', '.join(f'Tensor {each}' for each in names)}) -> {answer}"

    def kernel(*inputs: Tensor) -> Any:
        found = custom_kernels.forward(operator, inputs)
        return found[0] if single else found

    def fake(*inputs: Tensor) -> Any:
        specs = infer_outputs(operator, [_known(operator, custom_kernels.spec_of(each)) for each in inputs])
        found = [inputs[0].new_empty(shape, dtype=custom_kernels.torch_type(dtype)) for shape, dtype in specs]
        return found[0] if single else tuple(found)

    def remember(ctx: Any, inputs: tuple[Tensor, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs, *as_tuple(output))

    def back(ctx: Any, *gradients: Tensor | None) -> Any:
        count = len(operator.inputs)
        inputs, outputs = list(ctx.saved_tensors[:count]), list(ctx.saved_tensors[count:])
        slopes = [
            torch.zeros_like(output) if slope is None else slope
            for slope, output in zip(gradients, outputs, strict=True)
            if output.is_floating_point()
        ]
        found = iter(gradient(slopes, inputs, outputs))
        answers = tuple(next(found) if each.is_floating_point() else None for each in inputs)
        return answers if count > 1 else answers[0]

    defined = _define(schema, kernel, fake)
    torch.library.register_autograd(f"levelbench::{name}", back, setup_context=remember, lib=_LIBRARY)
    return defined


def _known(operator: CustomOperator, spec: Spec) -> Spec:
    """The spec, in numbers for C++, to which a compiler's symbols mean nothing: its program is for these alone."""
    return Spec(tuple(map(int, spec.shape)), spec.dtype) if isinstance(operator, CompiledOperator) else spec


def _define_backward(operator: CustomOperator, name: str) -> Any:
    """Its backward, an operator too, so that compilers need not look inside.

    It takes gradients of floating-point outputs, and answers with those of floating-point inputs.
    """

    def kernel(gradients: list[Tensor], inputs: list[Tensor], outputs: list[Tensor]) -> list[Tensor]:
        given = iter(gradients)
        slopes = [next(given) if each.is_floating_point() else None for each in outputs]
        found = custom_kernels.backward(operator, slopes, inputs, outputs)
        wanted = [at for at, each in enumerate(inputs) if differentiable(custom_kernels.spec_of(each))]
        # PyTorch's operators answer with tensors: an input that the operator has no gradient for gets zeros.
        return [torch.zeros_like(inputs[at]) if (each := found[at]) is None else each for at in wanted]

    def fake(gradients: list[Tensor], inputs: list[Tensor], outputs: list[Tensor]) -> list[Tensor]:
        host.need_backward(operator)
        return [each.new_empty(each.shape) for each in inputs if each.is_floating_point()]

    def remember(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing to save."""

    def back(ctx: Any, *gradients: Any) -> Any:
        raise UnsupportedError(f"the second derivative of {operator.name}", "it has one backward", "differentiate once")

    schema = f"{name}(Tensor[] gradients, Tensor[] inputs, Tensor[] outputs) -> Tensor[]"
    defined = _define(schema, kernel, fake)
    torch.library.register_autograd(f"levelbench::{name}", back, setup_context=remember, lib=_LIBRARY)
    return defined
