"""Custom operators on JAX, under ``jit``, ``vmap`` and ``grad``, with their own derivative rule.

An operator is traced, called back in Python, or runs as C++ on XLA's own buffers. Each way is a pair of traceable
functions, forward and backward, so one derivative rule covers all of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from levelbench.errors import CheckFailedError, DefinitionError, MissingError, UnsupportedError
from levelbench.operators.contract import Function, Operator, as_tuple
from levelbench.operators.custom import host
from levelbench.operators.custom.compile import compile_source
from levelbench.operators.custom.compiled import CompiledCall, CompiledOperator, address_of, expect, failure_of
from levelbench.operators.custom.definition import CustomOperator, Spec, create, differentiable, infer_outputs
from levelbench.operators.node import OperatorNode

_RAISED: deque[Exception] = deque(maxlen=4)
_STATUS = {"INVALID_ARGUMENT": 1, "UNIMPLEMENTED": 2, "FAILED_PRECONDITION": 3}
_SAID = re.compile(r"(?P<code>[A-Z_]+): (?P<what>(?:forward|backward) of (?P<name>\w+)): (?P<said>.*)", re.DOTALL)


def kept(function: Function) -> Function:
    """The function as a callback for JAX; exceptions are stored for :func:`translated`."""

    def call(*arguments: Array) -> Array:
        try:
            return function(*arguments)
        except Exception as error:
            _RAISED.append(error)
            raise

    return call


@contextlib.contextmanager
def translated(operator: CustomOperator) -> Iterator[None]:
    """Inside, JAX's error about this operator is raised as the operator's own error.

    An error of a program that JAX runs later, or that was compiled around the operator, is not raised in here: it
    remains JAX's, with the operator's name in its text.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if (own := _own(str(error), operator)) is None:
            raise
        raise own from error


def _own(text: str, operator: CustomOperator) -> Exception | None:
    for each in list(_RAISED):
        if type(each).__name__ in text and str(each) in text:
            _RAISED.clear()
            return each
    found = _SAID.match(text)
    if found and found["name"] == operator.name and found["code"] in _STATUS:
        return failure_of(_STATUS[found["code"]], found["what"], found["said"])
    return None


_TARGET = "levelbench_call"
_MASK_BITS = 62


class Ways(NamedTuple):
    """``forward(*inputs)`` and ``backward(gradients, inputs, outputs)``; both return tuples.

    Gradients of values that are not floating-point are ``None``.
    """

    forward: Callable[..., tuple[Any, ...]]
    backward: Callable[..., tuple[Any, ...]]


def spec_of(array: Array) -> Spec:
    """Shape and NumPy's dtype of an array or a tracer."""
    return Spec(tuple(array.shape), np.dtype(array.dtype))


def ways_of(operator: CustomOperator) -> Ways:
    """The fastest way to run this operator."""
    if operator.array_api:
        return _traced(operator)
    derived = any(
        getattr(type(operator), each) is not getattr(CompiledOperator, each, None) for each in ("forward", "backward")
    )
    if isinstance(operator, CompiledOperator) and not derived and _handler():
        return _foreign(operator)
    return _called_back(operator)


def _structures(specs: Sequence[Spec], operator: CustomOperator) -> tuple[Array, ...]:
    """JAX's descriptions of the results; ``UnsupportedError`` for 64 bits if JAX is set to 32."""
    for each in specs:
        if each.dtype.itemsize == 8 and each.dtype.kind in "iuf" and not jax.config.jax_enable_x64:
            found = f"its result is {each.dtype}, and JAX is set to 32 bits"
            do = 'jax.config.update("jax_enable_x64", True)'
            raise UnsupportedError(f"{operator.name} on jax", found, do)
    return tuple(jax.ShapeDtypeStruct(*each) for each in specs)


# Traced: operators written for the Array API standard.


def _traced(operator: CustomOperator) -> Ways:
    def forward(*inputs: Array) -> tuple[Array, ...]:
        specs = infer_outputs(operator, [spec_of(each) for each in inputs])
        _structures(specs, operator)
        found = as_tuple(operator.forward(*inputs))
        if len(found) != len(specs):
            what = f"it returned {len(found)} arrays for the outputs {', '.join(operator.outputs)}"
            raise CheckFailedError(f"forward of {operator.name}", what, "return one per output")
        named = zip(operator.outputs, found, specs, strict=True)
        return tuple(_held(each, spec, f"output {name} of {operator.name}") for name, each, spec in named)

    def backward(gradients: Array, inputs: Array, outputs: Array) -> tuple[Array, ...]:
        found = as_tuple(operator.backward(tuple(gradients), tuple(inputs), tuple(outputs)))
        if len(found) != len(inputs):
            what = f"it returned {len(found)} gradients for the inputs {', '.join(operator.inputs)}"
            raise CheckFailedError(f"backward of {operator.name}", what, "return one per input, None if it has none")
        return tuple(
            _held(slope, spec_of(each), f"gradient of {name} of {operator.name}")
            if slope is not None and differentiable(spec_of(each))
            else None
            for name, slope, each in zip(operator.inputs, found, inputs, strict=True)
        )

    return Ways(forward, backward)


def _held(found: Any, spec: Spec, what: str) -> Array:
    """The array; ``CheckFailedError`` if it is not as inferred."""
    array = jnp.asarray(found)
    if spec_of(array) != spec:
        said = f"it is {array.dtype}{list(array.shape)}, and {spec.dtype}{list(spec.shape)} was expected"
        raise CheckFailedError(f"the {what}", said, "correct infer, or what is returned")
    return array


# Called back: operators written for NumPy.


def _called_back(operator: CustomOperator) -> Ways:
    def ahead(*inputs: Array) -> tuple[Array, ...]:
        return host.forward(operator, [np.asarray(each) for each in inputs])

    def forward(*inputs: Array) -> tuple[Array, ...]:
        specs = infer_outputs(operator, [spec_of(each) for each in inputs])
        found = jax.pure_callback(kept(ahead), _structures(specs, operator), *inputs, vmap_method="sequential")
        return tuple(found)

    def backward(gradients: Array, inputs: Array, outputs: Array) -> tuple[Array, ...]:
        wanted = [differentiable(spec_of(each)) for each in inputs]

        def back(slopes: Array, given: Array, made: Array) -> tuple[Array, ...]:
            arrays = [[None if each is None else np.asarray(each) for each in group] for group in (slopes, given, made)]
            found = host.backward(operator, *arrays)  # type: ignore[arg-type]  # only gradients may be None
            zeros = (np.zeros(each.shape, each.dtype) for each in arrays[1] if each is not None)
            pairs = zip(found, zeros, wanted, strict=True)
            return tuple(zero if slope is None else slope for slope, zero, want in pairs if want)

        asked = _structures([spec_of(each) for each, want in zip(inputs, wanted, strict=True) if want], operator)
        found = iter(jax.pure_callback(kept(back), asked, gradients, inputs, outputs, vmap_method="sequential"))
        return tuple(next(found) if want else None for want in wanted)

    return Ways(forward, backward)


# Foreign function interface: operators in C++.


@cache
def _handler() -> bool:
    """Whether XLA can call C++ operators: compiles our handler against JAX's headers and registers it."""
    source = Path(__file__).parent / "custom_ffi.cpp"
    try:
        library = compile_source(source, flags=("-O1", "-w", f"-I{jax.ffi.include_dir()}"))
        loaded = ctypes.CDLL(str(library))
    except (DefinitionError, MissingError, OSError) as error:
        # The headers are missing or belong to another version of JAX.
        said = "C++ operators are called back through Python on JAX, which is slower: XLA's handler cannot be compiled"
        warnings.warn(f"{said}: {error}", RuntimeWarning, stacklevel=2)
        return False
    jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(loaded.levelbench_xla), platform="cpu")
    return True


def _foreign(operator: CompiledOperator) -> Ways:
    def forward(*inputs: Array) -> tuple[Array, ...]:
        specs = infer_outputs(operator, [spec_of(each) for each in inputs])
        call = _call(_structures(specs, operator))
        size = _plan(operator, tuple(spec_of(each) for each in inputs)).workspace_bytes
        return tuple(call(*inputs, **_attributes(operator, "forward", len(specs), 0, 0, size)))

    def backward(gradients: Array, inputs: Array, outputs: Array) -> tuple[Array, ...]:
        given = tuple(spec_of(each) for each in inputs)
        plan = _plan(operator, given)
        expect(f"the outputs of {operator.name}", [spec_of(each) for each in outputs], plan.outputs)
        plan.expect_gradients([None if each is None else spec_of(each) for each in gradients])
        wanted, graded = _mask(plan.wanted, operator), _mask(plan.graded, operator)
        asked = [each for each, want in zip(given, plan.wanted, strict=True) if want]
        slopes = [each for each, has in zip(gradients, plan.graded, strict=True) if has]
        attributes = _attributes(operator, "backward", len(outputs), wanted, graded, plan.backward_workspace_bytes)
        found = iter(_call(_structures(asked, operator))(*inputs, *outputs, *slopes, **attributes))
        return tuple(next(found) if want else None for want in plan.wanted)

    return Ways(forward, backward)


def _plan(operator: CompiledOperator, specs: tuple[Spec, ...]) -> CompiledCall:
    """The plan of calls with these specs; it is only read here, so it can be returned to the pool at once."""
    plan = operator.pool.take(specs)
    operator.pool.give(specs, plan)
    return plan


def _call(results: tuple[Array, ...]) -> Array:
    return jax.ffi.ffi_call(_TARGET, results, vmap_method="sequential")


def _attributes(
    operator: CompiledOperator, name: str, outputs: int, wanted: int, graded: int, scratch: int
) -> dict[str, Any]:
    """The handler's attributes. The addresses are valid in this process, for as long as the operator lives."""
    return {
        "function": np.int64(address_of(getattr(operator.library, name))),
        "title": f"{name} of {operator.name}",
        "instance": np.int64(operator.handle),
        "backward": np.int64(name == "backward"),
        "inputs": np.int64(len(operator.inputs)),
        "outputs": np.int64(outputs),
        "wanted": np.int64(wanted),
        "graded": np.int64(graded),
        "scratch": np.int64(scratch),
    }


def _mask(flags: Sequence[bool], operator: CustomOperator) -> int:
    if len(flags) > _MASK_BITS:
        found = f"it has {len(flags)} inputs or outputs, and the maximum is {_MASK_BITS}"
        raise UnsupportedError(f"{operator.name} on jax", found, "join some of them")
    return sum(1 << at for at, flag in enumerate(flags) if flag)


def function(operator: CustomOperator | type[CustomOperator]) -> Function:
    """The operator as a function of arrays that returns one array or a tuple; ``backward`` gives its gradients.

    It is compiled for each set of shapes. C++ operators run on the CPU, on XLA's own buffers; those written for NumPy
    are called back through Python, on any device; those with ``array_api`` are traced like JAX's own.
    """
    made = operator if isinstance(operator, CustomOperator) else operator()
    forward = jax.jit(_differentiable(made, ways_of(made)))
    single = len(made.outputs) == 1

    def call(*inputs: Array) -> Array:
        host.count_inputs(made, len(inputs))
        with translated(made):
            found = forward(*(jnp.asarray(each) for each in inputs))
        return found[0] if single else found

    call.__name__ = call.__qualname__ = made.name
    return call


def custom_operator(node: OperatorNode) -> Operator:
    """The operator of a node of the domain ``levelbench.custom``."""
    return JaxCustom(node)


class JaxCustom(Operator):
    """A custom operator on JAX, compiled for each set of shapes."""

    def __init__(self, node: OperatorNode) -> None:
        self.node = node
        self._operator = create(node)
        ways = ways_of(self._operator)
        self._forward = jax.jit(_differentiable(self._operator, ways))
        self._backward = jax.jit(ways.backward)

    def forward(self, *inputs: Array) -> tuple[Array, ...]:
        host.count_inputs(self._operator, len(inputs))
        with translated(self._operator):
            found: tuple[Array, ...] = self._forward(*inputs)
        return found

    def backward(
        self, gradients: Sequence[Array | None], inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> tuple[Array | None, ...]:
        host.need_backward(self._operator)
        host.count_inputs(self._operator, len(inputs))
        host.need_outputs(self._operator, gradients, outputs)
        with translated(self._operator):
            found: tuple[Array | None, ...] = self._backward(_filled(gradients, outputs), tuple(inputs), tuple(outputs))
        return found


def _differentiable(operator: CustomOperator, ways: Ways) -> Array:
    """The forward, returning a tuple, with the operator's backward as its derivative rule."""

    @jax.custom_vjp
    def call(*inputs: Array) -> tuple[Array, ...]:
        return ways.forward(*inputs)

    def ahead(*inputs: Array) -> tuple[Array, Array]:
        outputs = ways.forward(*inputs)
        return outputs, (inputs, outputs)

    def back(kept: Array, gradients: Array) -> tuple[Array, ...]:
        host.need_backward(operator)
        inputs, outputs = kept
        with translated(operator):
            return ways.backward(_filled(gradients, outputs), inputs, outputs)

    call.defvjp(ahead, back)
    return call


def _filled(gradients: Sequence[Array], outputs: Sequence[Array]) -> tuple[Array, ...]:
    """The gradients with zeros for missing ones, and ``None`` for outputs that are not floating-point."""
    return tuple(
        (jnp.zeros_like(output) if slope is None else slope) if differentiable(spec_of(output)) else None
        for slope, output in zip(gradients, outputs, strict=True)
    )
