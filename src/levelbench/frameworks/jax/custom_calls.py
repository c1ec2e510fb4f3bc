"""How a custom operator runs in a JAX program: traced, called back in Python, or C++ on XLA's own buffers.

The one idea: each way is a pair of functions that JAX can trace, forward and backward, so one derivative rule serves
all of them.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from levelbench.errors import CheckFailedError, DefinitionError, MissingError, UnsupportedError
from levelbench.frameworks.jax.custom_errors import kept
from levelbench.operators.custom import host
from levelbench.operators.custom.binary import address_of
from levelbench.operators.custom.compile import compile_source
from levelbench.operators.custom.compiled import CompiledOperator
from levelbench.operators.custom.definition import CustomOperator, Spec, differentiable, infer_outputs
from levelbench.operators.custom.plans import Plan, expect

__all__ = ["Ways", "spec_of", "ways_of"]

_TARGET = "levelbench_call"
_MASK_BITS = 62


class Ways(NamedTuple):
    """``forward(*inputs)`` and ``backward(gradients, inputs, outputs)``; each answers with a tuple.

    Gradients are ``None`` for what is not floating-point.
    """

    forward: Callable[..., tuple[Any, ...]]
    backward: Callable[..., tuple[Any, ...]]


def spec_of(array: Any) -> Spec:
    """Shape and NumPy's dtype of an array or a tracer."""
    return Spec(tuple(array.shape), np.dtype(array.dtype))


def ways_of(operator: CustomOperator) -> Ways:
    """The best way there is for this operator."""
    if operator.array_api:
        return _traced(operator)
    derived = any(
        getattr(type(operator), each) is not getattr(CompiledOperator, each, None) for each in ("forward", "backward")
    )
    if isinstance(operator, CompiledOperator) and not derived and _handler():
        return _foreign(operator)
    return _called_back(operator)


def _structures(specs: Sequence[Spec], operator: CustomOperator) -> tuple[Any, ...]:
    """JAX's descriptions of the results; ``UnsupportedError`` for 64 bits where JAX is set to 32."""
    for each in specs:
        if each.dtype.itemsize == 8 and each.dtype.kind in "iuf" and not jax.config.jax_enable_x64:
            found = f"its result is {each.dtype}, and JAX is set to 32 bits"
            do = 'jax.config.update("jax_enable_x64", True)'
            raise UnsupportedError(f"{operator.name} on jax", found, do)
    return tuple(jax.ShapeDtypeStruct(*each) for each in specs)


# Traced, for operators that keep to the Array API standard.


def _traced(operator: CustomOperator) -> Ways:
    def forward(*inputs: Any) -> tuple[Any, ...]:
        specs = infer_outputs(operator, [spec_of(each) for each in inputs])
        _structures(specs, operator)
        found = host.as_tuple(operator.forward(*inputs))
        if len(found) != len(specs):
            what = f"it returned {len(found)} arrays for the outputs {', '.join(operator.outputs)}"
            raise CheckFailedError(f"forward of {operator.name}", what, "return one an output")
        named = zip(operator.outputs, found, specs, strict=True)
        return tuple(_held(each, spec, f"output {name} of {operator.name}") for name, each, spec in named)

    def backward(gradients: Any, inputs: Any, outputs: Any) -> tuple[Any, ...]:
        found = host.as_tuple(operator.backward(tuple(gradients), tuple(inputs), tuple(outputs)))
        if len(found) != len(inputs):
            what = f"it returned {len(found)} gradients for the inputs {', '.join(operator.inputs)}"
            raise CheckFailedError(f"backward of {operator.name}", what, "return one an input, None where it has none")
        return tuple(
            _held(slope, spec_of(each), f"gradient of {name} of {operator.name}")
            if slope is not None and differentiable(spec_of(each))
            else None
            for name, slope, each in zip(operator.inputs, found, inputs, strict=True)
        )

    return Ways(forward, backward)


def _held(found: Any, spec: Spec, what: str) -> Any:
    """The array, if it is as inferred."""
    array = jnp.asarray(found)
    if spec_of(array) != spec:
        said = f"it is {array.dtype}{list(array.shape)}, and {spec.dtype}{list(spec.shape)} was to be expected"
        raise CheckFailedError(f"the {what}", said, "correct infer, or what is returned")
    return array


# Called back, for operators that are written for NumPy.


def _called_back(operator: CustomOperator) -> Ways:
    def ahead(*inputs: Any) -> tuple[Any, ...]:
        return host.forward(operator, [np.asarray(each) for each in inputs])

    def forward(*inputs: Any) -> tuple[Any, ...]:
        specs = infer_outputs(operator, [spec_of(each) for each in inputs])
        found = jax.pure_callback(kept(ahead), _structures(specs, operator), *inputs, vmap_method="sequential")
        return tuple(found)

    def backward(gradients: Any, inputs: Any, outputs: Any) -> tuple[Any, ...]:
        wanted = [differentiable(spec_of(each)) for each in inputs]

        def back(slopes: Any, given: Any, made: Any) -> tuple[Any, ...]:
            arrays = [[None if each is None else np.asarray(each) for each in group] for group in (slopes, given, made)]
            found = host.backward(operator, *arrays)  # type: ignore[arg-type]  # only gradients may be None
            zeros = (np.zeros(each.shape, each.dtype) for each in arrays[1] if each is not None)
            pairs = zip(found, zeros, wanted, strict=True)
            return tuple(zero if slope is None else slope for slope, zero, want in pairs if want)

        asked = _structures([spec_of(each) for each, want in zip(inputs, wanted, strict=True) if want], operator)
        found = iter(jax.pure_callback(kept(back), asked, gradients, inputs, outputs, vmap_method="sequential"))
        return tuple(next(found) if want else None for want in wanted)

    return Ways(forward, backward)


# Foreign, for operators in C++.


@cache
def _handler() -> bool:
    """Whether XLA can call C++ operators: our handler was compiled against this JAX's headers, and is registered."""
    source = Path(__file__).parent / "custom_ffi.cpp"
    try:
        library = compile_source(source, flags=("-O1", "-w", f"-I{jax.ffi.include_dir()}"))
        loaded = ctypes.CDLL(str(library))
    except (DefinitionError, MissingError, OSError) as error:
        # Another JAX's headers, or none.
        said = "operators in C++ are called back through Python on JAX, which is slower: XLA's handler cannot be made"
        warnings.warn(f"{said}: {error}", RuntimeWarning, stacklevel=2)
        return False
    jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(loaded.levelbench_xla), platform="cpu")
    return True


def _foreign(operator: CompiledOperator) -> Ways:
    def forward(*inputs: Any) -> tuple[Any, ...]:
        specs = infer_outputs(operator, [spec_of(each) for each in inputs])
        call = _call(_structures(specs, operator))
        size = _plan(operator, tuple(spec_of(each) for each in inputs)).workspace_bytes
        return tuple(call(*inputs, **_attributes(operator, "forward", len(specs), 0, 0, size)))

    def backward(gradients: Any, inputs: Any, outputs: Any) -> tuple[Any, ...]:
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


def _plan(operator: CompiledOperator, specs: tuple[Spec, ...]) -> Plan:
    """What is known of calls with these specs; only read here, so it need not be kept from others."""
    plan = operator.pool.take(specs)
    operator.pool.give(specs, plan)
    return plan


def _call(results: tuple[Any, ...]) -> Any:
    return jax.ffi.ffi_call(_TARGET, results, vmap_method="sequential")


def _attributes(
    operator: CompiledOperator, name: str, outputs: int, wanted: int, graded: int, scratch: int
) -> dict[str, Any]:
    """What the handler is told. The addresses are this process's: the operator lives as long as it."""
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
        found = f"it has {len(flags)} inputs or outputs, and {_MASK_BITS} is the most"
        raise UnsupportedError(f"{operator.name} on jax", found, "join some of them")
    return sum(1 << at for at, flag in enumerate(flags) if flag)
