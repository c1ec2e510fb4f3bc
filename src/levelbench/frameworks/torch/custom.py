"""Custom operators on PyTorch: each becomes a registered operator, ``torch.ops.levelbench.<name>``.

A registered operator with a shape function and a backward is opaque to autograd, fake tensors and ``torch.compile``, so
all of them work with whatever runs inside: C++ or NumPy on the tensors' memory, or the Array API on tensors. On the CPU
a tensor and a NumPy array can share memory, so nothing is copied unless it is not contiguous.
"""

from __future__ import annotations

import hashlib
import keyword
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from levelbench.errors import CheckFailedError, UnsupportedError
from levelbench.operators.contract import Array, Operator, as_tuple
from levelbench.operators.custom import host
from levelbench.operators.custom.compiled import CPU, CUDA, CompiledCall, CompiledOperator, Device, expect
from levelbench.operators.custom.definition import CustomOperator, Spec, create, differentiable, infer_outputs
from levelbench.operators.custom.library import cuda_class
from levelbench.operators.node import OperatorNode

_NAMES = (
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
_TORCH: dict[np.dtype[Any], torch.dtype] = {np.dtype(name): getattr(torch, name) for name in _NAMES}
_TORCH[np.dtype(ml_dtypes.bfloat16)] = torch.bfloat16
_NUMPY: dict[torch.dtype, np.dtype[Any]] = {there: here for here, there in _TORCH.items()}


def torch_type(dtype: np.dtype[Any]) -> torch.dtype:
    """PyTorch's type for NumPy's; ``UnsupportedError`` if it has none."""
    if dtype not in _TORCH:
        raise UnsupportedError(f"an array of {dtype} on torch", "PyTorch has no such type", "use another type")
    return _TORCH[dtype]


def spec_of(tensor: Tensor) -> Spec:
    """Shape (symbolic while a compiler traces) and NumPy dtype."""
    found = _NUMPY.get(tensor.dtype)
    if found is None:
        do = "convert it to a type that NumPy has"
        raise UnsupportedError(f"a custom operator of {tensor.dtype}", "NumPy has no such type", do)
    return Spec(tuple(tensor.shape), found)


def forward(operator: CustomOperator, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """New tensors, one per output, without autograd."""
    if operator.array_api:
        with torch.no_grad():
            return _native_forward(operator, inputs)
    if _is_compiled(operator):
        return _compiled_forward(operator, inputs)
    found = host.forward(operator, [_shared(each, operator) for each in inputs])
    return tuple(_tensor(each) for each in found)


def backward(
    operator: CustomOperator,
    gradients: Sequence[Tensor | None],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
) -> tuple[Tensor | None, ...]:
    """The gradients of inputs, ``None`` for those that have none."""
    host.need_backward(operator)
    if operator.array_api:
        with torch.no_grad():
            return _native_backward(operator, gradients, inputs, outputs)
    if _is_compiled(operator, "backward"):
        return _compiled_backward(operator, gradients, inputs, outputs)
    given = [None if each is None else _shared(each, operator) for each in gradients]
    arrays = ([_shared(each, operator) for each in group] for group in (inputs, outputs))
    return tuple(None if each is None else _tensor(each) for each in host.backward(operator, given, *arrays))


def _is_compiled(operator: CustomOperator, method: str = "forward") -> bool:
    """Whether the method is C++, not an override in a derived class."""
    return isinstance(operator, CompiledOperator) and getattr(type(operator), method) is getattr(
        CompiledOperator, method
    )


# NumPy on CPU tensors.


def _shared(tensor: Tensor, operator: CustomOperator) -> NDArray[Any]:
    """The tensor's memory as a NumPy array."""
    if tensor.device.type != "cpu":
        found = f"it is written for NumPy, and this tensor is on {tensor.device}"
        raise UnsupportedError(
            f"{operator.name} on torch", found, "write it with array_api = True, or in C++ with CUDA"
        )
    tensor = _plain(tensor)
    if tensor.dtype is torch.bfloat16:
        array: NDArray[Any] = tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    else:
        spec_of(tensor)
        array = tensor.numpy()
    return array


def _tensor(array: NDArray[Any]) -> Tensor:
    """The NumPy array's memory as a tensor."""
    array = array if array.flags.c_contiguous else np.array(array, order="C")
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    torch_type(array.dtype)
    return torch.from_numpy(array)


def _plain(tensor: Tensor) -> Tensor:
    """Detached, and with lazy conjugation and negation applied."""
    tensor = tensor.detach()
    return tensor.resolve_conj().resolve_neg() if tensor.is_complex() or tensor.is_neg() else tensor


def _native_forward(operator: CustomOperator, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    host.count_inputs(operator, len(inputs))
    given = [each.detach() for each in inputs]
    specs = infer_outputs(operator, [spec_of(each) for each in given])
    found = as_tuple(operator.forward(*given))
    if len(found) != len(specs):
        what = f"it returned {len(found)} tensors for the outputs {', '.join(operator.outputs)}"
        raise CheckFailedError(f"forward of {operator.name}", what, "return one per output")
    named = zip(operator.outputs, found, specs, strict=True)
    return tuple([_held(each, spec, given, f"output {name} of {operator.name}") for name, each, spec in named])


def _native_backward(
    operator: CustomOperator,
    gradients: Sequence[Tensor | None],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
) -> tuple[Tensor | None, ...]:
    host.count_inputs(operator, len(inputs))
    host.need_outputs(operator, gradients, outputs)
    given = [
        (torch.zeros_like(each) if slope is None else slope.detach()) if each.is_floating_point() else None
        for slope, each in zip(gradients, outputs, strict=True)
    ]
    arguments = [each.detach() for each in inputs]
    kept = [*arguments, *(each.detach() for each in outputs), *(each for each in given if each is not None)]
    found = as_tuple(operator.backward(tuple(given), tuple(arguments), tuple(kept[len(inputs) :][: len(outputs)])))
    if len(found) != len(inputs):
        what = f"it returned {len(found)} gradients for the inputs {', '.join(operator.inputs)}"
        raise CheckFailedError(f"backward of {operator.name}", what, "return one per input, None if it has none")
    return tuple(
        [
            _held(slope, spec_of(each), kept, f"gradient of {name} of {operator.name}")
            if slope is not None and differentiable(spec_of(each))
            else None
            for name, slope, each in zip(operator.inputs, found, arguments, strict=True)
        ]
    )


def _held(found: Any, spec: Spec, kept: list[Tensor], what: str) -> Tensor:
    """The tensor, contiguous and added to ``kept``; a copy if it shares memory with one of them.

    ``kept`` are the inputs and earlier results, which the caller may modify in place. Raises ``CheckFailedError`` if
    the tensor is not as inferred.
    """
    if not isinstance(found, Tensor) or tuple(found.shape) != spec.shape or found.dtype is not torch_type(spec.dtype):
        is_tensor = isinstance(found, Tensor)
        said = f"{found.dtype}{list(found.shape)}" if is_tensor else f"a {type(found).__name__}"
        expected = f"{torch_type(spec.dtype)}{list(spec.shape)}"
        raise CheckFailedError(
            f"the {what}", f"it is {said}, and {expected} was expected", "correct infer, or what is returned"
        )
    storage = found.untyped_storage().data_ptr()
    if any(storage == each.untyped_storage().data_ptr() for each in kept):
        found = found.clone(memory_format=torch.contiguous_format)
    kept.append(found.contiguous())
    return kept[-1]


def _compiled_forward(operator: Any, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    host.count_inputs(operator, len(inputs))
    operator, place, device = _placed(operator, inputs)
    given = [_readable(each) for each in inputs]
    specs = tuple([spec_of(each) for each in given])
    plan = operator.pool.take(specs, device)
    try:
        outputs = tuple([torch.empty(shape, dtype=torch_type(dtype), device=place) for shape, dtype in plan.outputs])
        with _on(place):
            scratch, stream = _cuda_extras(plan.workspace_bytes, place)
            plan.forward(
                operator.library.forward, operator.handle, _addresses(given), _addresses(outputs), scratch, stream
            )
    finally:
        operator.pool.give(specs, plan, device)
    return outputs


def _compiled_backward(
    operator: Any, gradients: Sequence[Tensor | None], inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> tuple[Tensor | None, ...]:
    operator, place, device = _placed(operator, [*inputs, *outputs, *(each for each in gradients if each is not None)])
    given, found = ([_readable(each) for each in group] for group in (inputs, outputs))
    specs = tuple([spec_of(each) for each in given])
    plan = operator.pool.take(specs, device)
    try:
        expect(f"the outputs of {operator.name}", [spec_of(each) for each in found], plan.outputs)
        plan.expect_gradients([None if each is None else spec_of(each) for each in gradients])
        slopes = _slopes(plan, gradients, found)
        answers = [torch.zeros_like(each) if wanted else None for each, wanted in zip(given, plan.wanted, strict=True)]
        with _on(place):
            scratch, stream = _cuda_extras(plan.backward_workspace_bytes, place)
            plan.backward(
                operator.library.backward,
                operator.handle,
                _addresses(slopes),
                _addresses(given),
                _addresses(found),
                _addresses(answers),
                scratch,
                stream,
            )
    finally:
        operator.pool.give(specs, plan, device)
    return tuple(answers)


def _readable(tensor: Tensor) -> Tensor:
    """The tensor as C++ can read it: contiguous, without lazy operations."""
    if tensor.is_complex() or tensor.is_neg() or tensor.requires_grad:
        tensor = _plain(tensor)
    return tensor.contiguous()


def _slopes(plan: CompiledCall, gradients: Sequence[Tensor | None], outputs: Sequence[Tensor]) -> list[Tensor | None]:
    """Gradients of outputs as C++ can read them: contiguous, zero for ``None``."""
    slopes: list[Tensor | None] = []
    for gradient, output, graded in zip(gradients, outputs, plan.graded, strict=True):
        if not graded:
            slopes.append(None)
        elif gradient is None:
            slopes.append(torch.zeros_like(output))
        else:
            slopes.append(_readable(gradient))
    return slopes


def _placed(operator: CompiledOperator, inputs: Sequence[Tensor]) -> tuple[CompiledOperator, torch.device, Device]:
    """The operator compiled for the device of the tensors, which must be the same for all; inputs come first."""
    place = inputs[0].device
    for each in inputs:
        if each.device != place:
            found = f"its tensors are on {place} and {each.device}"
            raise UnsupportedError(f"{operator.name} on torch", found, "move them to one device")
    if place.type == "cpu":
        return operator, place, (CPU, 0)
    if place.type != "cuda":
        raise UnsupportedError(f"{operator.name} on {place}", "C++ operators run on cpu and cuda", "use one of them")
    return _cuda_twin(operator), place, (CUDA, place.index or 0)


@lru_cache(maxsize=256)
def _cuda_twin(operator: CompiledOperator) -> CompiledOperator:
    return cuda_class(type(operator))(**operator.attributes)


def _on(place: torch.device) -> Any:
    return nullcontext() if place.type == "cpu" else torch.cuda.device(place)


def _cuda_extras(size: int, place: torch.device) -> tuple[int | None, int | None]:
    """Addresses of the workspace and the stream; on the CPU the plan has its own workspace."""
    if place.type == "cpu":
        return None, None
    # PyTorch's allocator reuses memory in stream order, so the workspace may be freed before it is used.
    scratch = torch.empty(size, dtype=torch.uint8, device=place)
    return scratch.data_ptr(), torch.cuda.current_stream(place).cuda_stream


def _addresses(tensors: Sequence[Tensor | None]) -> list[Any]:
    return [None if each is None else each.data_ptr() for each in tensors]


_LIBRARY: Any = torch.library.Library("levelbench", "FRAGMENT")
_REGISTERED: dict[tuple[type[CustomOperator], str], Any] = {}
_TAKEN: set[str] = set()


def function(operator: CustomOperator | type[CustomOperator]) -> Callable[..., Any]:
    """The operator as a function of tensors that returns one tensor or a tuple; ``backward`` gives its gradients.

    It works with autograd, under ``torch.compile`` (also with ``fullgraph=True``) and on fake tensors. A second
    derivative raises ``UnsupportedError``.
    """
    made = operator if isinstance(operator, CustomOperator) else operator()
    registered = _register(made)

    def call(*inputs: Tensor) -> Any:
        host.count_inputs(made, len(inputs))
        return registered(*inputs)

    call.__name__ = call.__qualname__ = made.name
    return call


def custom_operator(node: OperatorNode) -> Operator:
    """The operator of a node of the domain ``levelbench.custom``."""
    return TorchCustom(node)


class TorchCustom(Operator):
    """A custom operator on PyTorch. If inputs require a gradient, autograd can differentiate its forward."""

    def __init__(self, node: OperatorNode) -> None:
        self.node = node
        self._operator = create(node)
        self._registered = _register(self._operator)

    def forward(self, *inputs: Array) -> tuple[Array, ...]:
        if torch.compiler.is_compiling() or (
            torch.is_grad_enabled() and any(isinstance(each, Tensor) and each.requires_grad for each in inputs)
        ):
            return as_tuple(self._registered(*inputs))
        return forward(self._operator, inputs)

    def backward(
        self, gradients: Sequence[Array | None], inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> tuple[Array | None, ...]:
        return backward(self._operator, gradients, inputs, outputs)


def _register(operator: CustomOperator) -> Any:
    """PyTorch's operator for this one, registered once per class and attributes."""
    key = (type(operator), repr(sorted(operator.attributes.items())))
    if key not in _REGISTERED:
        name = _free_name(operator, key[1])
        _REGISTERED[key] = _define_forward(operator, name, _define_backward(operator, f"{name}_backward"))
    return _REGISTERED[key]


def _free_name(operator: CustomOperator, attributes: str) -> str:
    """``GeluBias``; with attributes, also their digest; for another class of that name, also a number."""
    digest = hashlib.sha256(attributes.encode()).hexdigest()[:8]
    base = operator.name if not operator.attributes else f"{operator.name}_{digest}"
    # A redefined class is a different operator: compiled programs may still use the first one.
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
    """Register the forward."""
    single = len(operator.outputs) == 1
    usable = all(each.isidentifier() and not keyword.iskeyword(each) for each in operator.inputs)
    names = operator.inputs if usable else [f"input{at}" for at in range(len(operator.inputs))]
    answer = "Tensor" if single else f"({', '.join(['Tensor'] * len(operator.outputs))})"
    schema = f"{name}({', '.join(f'Tensor {each}' for each in names)}) -> {answer}"

    def kernel(*inputs: Tensor) -> Any:
        found = forward(operator, inputs)
        return found[0] if single else found

    def fake(*inputs: Tensor) -> Any:
        specs = infer_outputs(operator, [_known(operator, spec_of(each)) for each in inputs])
        found = [inputs[0].new_empty(shape, dtype=torch_type(dtype)) for shape, dtype in specs]
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
    """The spec with a compiler's symbols replaced by numbers for C++, which fixes the sizes of its program."""
    return Spec(tuple(map(int, spec.shape)), spec.dtype) if isinstance(operator, CompiledOperator) else spec


def _define_backward(operator: CustomOperator, name: str) -> Any:
    """Register the backward as an operator too, so that it is opaque to compilers.

    It takes the gradients of floating-point outputs and returns those of floating-point inputs.
    """

    def kernel(gradients: list[Tensor], inputs: list[Tensor], outputs: list[Tensor]) -> list[Tensor]:
        given = iter(gradients)
        slopes = [next(given) if each.is_floating_point() else None for each in outputs]
        found = backward(operator, slopes, inputs, outputs)
        wanted = [at for at, each in enumerate(inputs) if differentiable(spec_of(each))]
        # PyTorch's operators return tensors, so an input without a gradient gets zeros.
        return [torch.zeros_like(inputs[at]) if (each := found[at]) is None else each for at in wanted]

    def fake(gradients: list[Tensor], inputs: list[Tensor], outputs: list[Tensor]) -> list[Tensor]:
        host.need_backward(operator)
        return [each.new_empty(each.shape) for each in inputs if each.is_floating_point()]

    def remember(ctx: Any, inputs: Any, output: Any) -> None:
        """There is nothing to save."""

    def back(ctx: Any, *gradients: Any) -> Any:
        raise UnsupportedError(
            f"the second derivative of {operator.name}", "it has only the first", "differentiate once"
        )

    schema = f"{name}(Tensor[] gradients, Tensor[] inputs, Tensor[] outputs) -> Tensor[]"
    defined = _define(schema, kernel, fake)
    torch.library.register_autograd(f"levelbench::{name}", back, setup_context=remember, lib=_LIBRARY)
    return defined
