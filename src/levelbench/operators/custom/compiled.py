"""An operator written in C++, as a class like one written in Python.

The one idea: what is known from specs alone (shapes of outputs, C structures, workspace) is worked out once for given
specs, so that a call is two allocations, a few addresses and one C function.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import ml_dtypes  # noqa: F401  # it teaches NumPy the name bfloat16
import numpy as np
from numpy.typing import NDArray

from levelbench.errors import UnknownNameError, UnsupportedError, UsageError
from levelbench.operators.custom import abi
from levelbench.operators.custom.binary import Library
from levelbench.operators.custom.definition import (
    Attribute,
    Cost,
    CustomOperator,
    Spec,
    as_array,
    count_inputs,
    infer_outputs,
    spec_of,
)
from levelbench.operators.custom.plans import Device, Plan, Pool, check, expect

__all__ = ["CompiledOperator"]

_ROOM: Final = 256
"""Dimensions that all outputs of an operator may have together."""


class CompiledOperator(CustomOperator):
    """The base of classes made from a library: NumPy arrays in, NumPy arrays out."""

    # Classes made of a library name their own.
    inputs: ClassVar[tuple[str, ...]] = ("input",)
    library: ClassVar[Library]
    index: ClassVar[int]
    source: ClassVar[Path]
    types: ClassVar[tuple[str, ...]]
    typed_by: ClassVar[int]
    example_shapes: ClassVar[tuple[tuple[tuple[int, ...], ...], ...]]
    runs_on_cuda: ClassVar[bool]
    defaults: ClassVar[Mapping[str, Attribute]]
    kinds: ClassVar[Mapping[str, str]]
    """The kind of each attribute, as C++ asks for it: ``i``, ``f`` or ``s``, in upper case for a list."""
    poison: bool = False
    """Fill outputs with 0xFF bytes (NaN, -1) before a forward, so that one that is not written shows."""

    def __init__(self, **attributes: Any) -> None:
        given = {name: _like(self.name, name, value, self.kinds) for name, value in attributes.items()}
        self.attributes = {**self.defaults, **given}
        self.handle = _create(self.library, self.index, self.name, self.attributes, self.kinds)
        self._inferred: dict[tuple[Spec, ...], tuple[Spec, ...]] = {}
        self.pool = Pool(self._plan)

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """What the C++ says; ``ValueError`` with its words where it throws."""
        if inputs in self._inferred:
            return self._inferred[inputs]
        count_inputs(self, len(inputs))
        if len(self._inferred) > 4096:
            self._inferred.clear()
        self._inferred[inputs] = found = self._infer(inputs)
        return found

    def _infer(self, inputs: tuple[Spec, ...]) -> tuple[Spec, ...]:
        count = len(self.outputs)
        typed = inputs[self.typed_by].dtype
        if typed.name not in self.types:
            known = f"it is written for {', '.join(self.types)}"
            do = "add the type to LEVELBENCH_OPERATOR, or convert the inputs"
            raise UnsupportedError(f"{self.name} of {typed}", known, do)
        plan = Plan(self.name, inputs, ())
        plan.call.output_count = count
        ranks, shapes, dtypes = (ctypes.c_int32 * count)(), (ctypes.c_int64 * _ROOM)(), (abi.DataType * count)()
        status = self.library.infer(self.handle, ctypes.addressof(plan.call), ranks, shapes, _ROOM, dtypes)
        if status:
            raise ValueError(plan.call.message.decode(errors="replace"))
        found, at = [], 0
        for rank, dtype in zip(ranks, dtypes, strict=True):
            found.append(Spec(tuple(shapes[at : at + rank]), abi.dtype_of(dtype)))
            at += rank
        return tuple(found)

    def _plan(self, specs: tuple[Spec, ...], device: Device) -> Plan:
        plan = Plan(self.name, specs, infer_outputs(self, specs), device)
        sizes = []
        for backward in (0, 1):
            size = ctypes.c_int64()
            status = self.library.workspace(self.handle, ctypes.addressof(plan.call), backward, ctypes.addressof(size))
            check(status, plan.call, f"the workspace of {self.name}")
            sizes.append(size.value)
        plan.workspace_bytes, plan.backward_workspace_bytes = sizes
        return plan

    def forward(self, *inputs: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        """New arrays. Inputs that are not contiguous are copied first."""
        arrays = [_contiguous(self, each) for each in inputs]
        specs = tuple([spec_of(each) for each in arrays])
        plan = self.pool.take(specs)
        try:
            outputs = tuple([np.empty(shape, dtype) for shape, dtype in plan.outputs])
            if self.poison:
                for each in outputs:
                    each.reshape(-1).view(np.uint8)[:] = 0xFF
            plan.forward(self.library.forward, self.handle, _addresses(arrays), _addresses(outputs))
        finally:
            self.pool.give(specs, plan)
        return outputs

    def backward(self, gradients: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """New arrays, ``None`` for inputs that are not floating-point.

        Raises ``UsageError`` for ``outputs``, and ``gradients`` of them, of other shapes or dtypes than ``infer`` says.
        """
        given = [_contiguous(self, each) for each in inputs]
        found = [_contiguous(self, each) for each in outputs]
        slopes = [None if each is None else _contiguous(self, each) for each in gradients]
        specs = tuple([spec_of(each) for each in given])
        plan = self.pool.take(specs)
        try:
            expect(f"the outputs of {self.name}", [spec_of(each) for each in found], plan.outputs)
            plan.expect_gradients([None if each is None else spec_of(each) for each in slopes])
            pairs = zip(slopes, plan.outputs, plan.graded, strict=True)
            slopes = [(np.zeros(*spec) if each is None else each) if graded else None for each, spec, graded in pairs]
            answers = [np.zeros(*spec) if wanted else None for spec, wanted in zip(specs, plan.wanted, strict=True)]
            plan.backward(
                self.library.backward,
                self.handle,
                _addresses(slopes),
                _addresses(given),
                _addresses(found),
                _addresses(answers),
            )
        finally:
            self.pool.give(specs, plan)
        return tuple(answers)

    def examples(self, random: np.random.Generator) -> Iterator[tuple[NDArray[Any], ...]]:
        """Normally distributed inputs of the shapes that the file names, in each floating type that it has."""
        for name in self.types:
            if "float" in name:
                for shapes in self.example_shapes:
                    yield tuple(random.standard_normal(shape).astype(name) for shape in shapes)

    def cost(self, *inputs: Spec) -> Cost | None:
        """What the C++ says."""
        count_inputs(self, len(inputs))
        plan = Plan(self.name, inputs, ())
        flops, size, said = ctypes.c_double(), ctypes.c_double(), ctypes.c_int32()
        places = (ctypes.addressof(each) for each in (flops, size, said))
        status = self.library.cost(self.handle, ctypes.addressof(plan.call), *places)
        check(status, plan.call, f"the cost of {self.name}")
        return Cost(flops.value, size.value) if said.value else None


def _contiguous(operator: CustomOperator, value: Any) -> NDArray[Any]:
    array = as_array(operator, value)
    native = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    return native if native.flags.c_contiguous else np.array(native, order="C")


def _addresses(arrays: Sequence[NDArray[Any] | None]) -> list[Any]:
    return [None if each is None else each.ctypes.data for each in arrays]


_KINDS: Final = {"i": "int of 64 bits", "f": "float", "s": "str"}


def _like(operator: str, name: str, value: Any, kinds: Mapping[str, str]) -> Attribute:
    """The value with the type that C++ asks for."""
    if name not in kinds:
        raise UnknownNameError(f"attribute of {operator}", name, kinds)
    kind = kinds[name]
    if kind.isupper():
        items = list(value) if isinstance(value, list | tuple) else [value]
        return [_scalar(operator, name, each, kind.lower()) for each in items]
    return _scalar(operator, name, value, kind)


def _scalar(operator: str, name: str, value: Any, kind: str) -> Any:
    if kind == "f" and isinstance(value, int | float | np.integer | np.floating):
        return float(value)
    if kind == "i" and isinstance(value, int | np.integer) and -(2**63) <= value < 2**63:
        return int(value)
    # C's text ends at a zero byte.
    if kind == "s" and isinstance(value, str) and "\0" not in value:
        return value
    found = f"{value!r} is no {_KINDS[kind]}, as its default is"
    raise UsageError(f"attribute {name} of {operator}", found, "give a value of that type")


_INSTANCES: dict[tuple[Path, int, str], int] = {}


def _create(
    library: Library, index: int, name: str, attributes: Mapping[str, Attribute], kinds: Mapping[str, str]
) -> int:
    """The address of the C++ object with these attributes: one a process, as compiled programs may hold on to it."""
    key = (library.path, index, repr(sorted(attributes.items())))
    if key in _INSTANCES:
        return _INSTANCES[key]
    raw = (abi.RawAttribute * max(len(attributes), 1))()
    kept: list[Any] = []
    for at, (each, value) in enumerate(attributes.items()):
        raw[at] = _raw(each, value, kinds[each], kept)
    message = ctypes.create_string_buffer(2048)
    made = library.create(index, raw, len(attributes), message, len(message))
    if not made:
        raise UsageError(f"operator {name}", message.value.decode(errors="replace"), "give other attributes")
    _INSTANCES[key] = made
    return int(made)


def _raw(name: str, value: Attribute, code: str, kept: list[Any]) -> abi.RawAttribute:
    items: list[Any] = value if isinstance(value, list) else [value]
    kind = code.lower()
    ints = (ctypes.c_int64 * max(len(items), 1))(*(items if kind == "i" else ()))
    floats = (ctypes.c_double * max(len(items), 1))(*(items if kind == "f" else ()))
    texts = (ctypes.c_char_p * max(len(items), 1))(*([each.encode() for each in items] if kind == "s" else ()))
    kept.extend((ints, floats, texts))
    return abi.RawAttribute(name.encode(), ord(code), len(items), ints, floats, texts)
