"""Runs a custom operator on NumPy arrays and verifies the number, shapes and dtypes of what it returns.

An operator that returns a shape other than the one it inferred would corrupt a compiled program. So this is detected
here, with the operator's name, before any framework sees the array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import CheckFailedError, UnsupportedError, UsageError
from levelbench.operators.contract import Array, Operator, Pullback, as_tuple
from levelbench.operators.custom.compiled import CompiledOperator
from levelbench.operators.custom.definition import (
    CustomOperator,
    Spec,
    as_array,
    create,
    differentiable,
    has_other_reference,
    infer_outputs,
    spec_of,
)
from levelbench.operators.custom.definition import count_inputs as count_inputs
from levelbench.operators.node import OperatorNode


class _Reference(Operator):
    """The reference that a custom operator defines, without a gradient."""

    def __init__(self, node: OperatorNode) -> None:
        self.node, self._operator = node, create(node)
        if not self._operator.has_reference:
            raise UnsupportedError(f"the reference of {node.title}", "the operator defines none", "write one")

    def forward(self, *inputs: Array) -> tuple[Array, ...]:
        return as_tuple(independent(self._operator)(*inputs))

    def vjp(self, *inputs: Array) -> tuple[tuple[Array, ...], Pullback]:
        """A reference has no gradient."""
        found = "that of an operator of your own has no gradient: levelbench check compares gradients with differences"
        raise UnsupportedError(f"the gradient of the reference of {self.node.title}", found, "measure forward")


def independent(operator: CustomOperator) -> Callable[..., Any]:
    """The operator's reference, which raises ``UnsupportedError`` if it asks the operator itself."""
    cls = type(operator)
    if has_other_reference(cls):
        raise UnsupportedError(f"the reference of {cls.name}", "it was replaced after loading", "leave it as it is")

    def refuse(*_: object) -> NoReturn:
        raise UnsupportedError(f"the reference of {cls.name}", "it calls the operator itself", "compute it another way")

    def reference(*inputs: Array) -> Any:
        forward = cls.__dict__.get("forward")
        type.__setattr__(cls, "forward", refuse)
        try:
            return operator.reference(*inputs)
        finally:
            if forward is None:
                type.__delattr__(cls, "forward")
            else:
                type.__setattr__(cls, "forward", forward)

    return reference


def plain_reference(node: OperatorNode) -> Operator:
    """The reference of a custom operator's node, on NumPy arrays; ``UnsupportedError`` if it has none."""
    return _Reference(node)


def need_backward(operator: CustomOperator) -> None:
    """Raise ``UnsupportedError`` for an operator without a backward."""
    if not operator.has_backward:
        raise UnsupportedError(f"the gradient of {operator.name}", "it has no backward", "write one")


def need_outputs(operator: CustomOperator, gradients: Sequence[Array], outputs: Sequence[Array]) -> None:
    """Raise ``UsageError`` unless there are as many gradients and outputs as the operator has outputs."""
    for kind, given in (("gradients", gradients), ("outputs", outputs)):
        if len(given) != len(operator.outputs):
            found = f"it has {len(operator.outputs)} outputs: {', '.join(operator.outputs)}"
            raise UsageError(f"the backward of {operator.name} with {len(given)} {kind}", found, "give one per output")


def forward(operator: CustomOperator, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
    """New arrays, one per output, of the inferred shapes and dtypes.

    Raises ``UsageError`` for inputs that do not fit and ``CheckFailedError`` for outputs that differ from ``infer``.
    """
    count_inputs(operator, len(inputs))
    if isinstance(operator, CompiledOperator) and type(operator).forward is CompiledOperator.forward:
        # It allocates its outputs as inferred, so there is nothing to verify.
        return operator.forward(*inputs)
    inputs = [as_array(operator, each) for each in inputs]
    specs = infer_outputs(operator, [spec_of(each) for each in inputs])
    found = as_tuple(operator.forward(*inputs))
    if len(found) != len(specs):
        what = f"it returned {len(found)} arrays for the outputs {', '.join(operator.outputs)}"
        raise CheckFailedError(f"forward of {operator.name}", what, "return one per output")
    kept = list(inputs)
    named = zip(operator.outputs, found, specs, strict=True)
    return tuple([_verified(each, spec, kept, f"output {name} of {operator.name}") for name, each, spec in named])


def backward(
    operator: CustomOperator,
    gradients: Sequence[NDArray[Any] | None],
    inputs: Sequence[NDArray[Any]],
    outputs: Sequence[NDArray[Any]],
) -> tuple[NDArray[Any] | None, ...]:
    """Gradients of inputs, ``None`` for those that have none. ``None`` as an output's gradient means zero.

    Raises ``UnsupportedError`` without a backward and ``CheckFailedError`` for gradients whose shape or dtype is not
    that of the input.
    """
    need_backward(operator)
    count_inputs(operator, len(inputs))
    need_outputs(operator, gradients, outputs)
    inputs, outputs = ([as_array(operator, each) for each in group] for group in (inputs, outputs))
    given = [
        (np.zeros(each.shape, each.dtype) if slope is None else slope) if differentiable(spec_of(each)) else None
        for slope, each in zip(gradients, outputs, strict=True)
    ]
    found = as_tuple(operator.backward(tuple(given), tuple(inputs), tuple(outputs)))
    if len(found) != len(inputs):
        what = f"it returned {len(found)} gradients for the inputs {', '.join(operator.inputs)}"
        raise CheckFailedError(f"backward of {operator.name}", what, "return one per input, None if it has none")
    kept = [*inputs, *outputs, *(each for each in given if each is not None)]
    return tuple(
        [
            _verified(slope, spec_of(each), kept, f"gradient of {name} of {operator.name}")
            if slope is not None and differentiable(spec_of(each))
            else None
            for name, slope, each in zip(operator.inputs, found, inputs, strict=True)
        ]
    )


def _verified(found: Array, spec: Spec, kept: list[NDArray[Any]], what: str) -> NDArray[Any]:
    """The array if it is as inferred, copied if it shares memory with one of ``kept``; it is added to ``kept``.

    ``kept`` holds arrays of the caller, which may change them in place: the inputs and previous results.
    """
    array: NDArray[Any] = np.asarray(found)
    if array.shape != spec.shape or array.dtype != spec.dtype:
        wrong = f"it is {array.dtype}{list(array.shape)}, expected {spec.dtype}{list(spec.shape)}"
        raise CheckFailedError(f"the {what}", wrong, "correct infer or the returned array")
    if not array.flags.writeable or any(np.may_share_memory(array, each) for each in kept):
        array = array.copy()
    kept.append(array)
    return array
