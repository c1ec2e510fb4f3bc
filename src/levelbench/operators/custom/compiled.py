"""Operators written in C++, as classes like those written in Python; the C structures of ``levelbench.h``.

Everything that depends only on specs (shapes of outputs, C structures, workspace) is computed once per specs, so that a
call consists of two allocations, a few addresses and one C function.
"""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from levelbench.errors import (
    CheckFailedError,
    DefinitionError,
    LevelbenchError,
    UnknownNameError,
    UnsupportedError,
    UsageError,
)
from levelbench.operators.contract import Array, DType, Function
from levelbench.operators.custom.definition import (
    Attribute,
    Cost,
    CustomOperator,
    Spec,
    as_array,
    count_inputs,
    differentiable,
    infer_outputs,
    spec_of,
)

ABI: Final = 1
"""The version of the functions that ``levelbench.h`` defines."""


class DataType(ctypes.Structure):
    """``DLDataType``."""

    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class NativeTensor(ctypes.Structure):
    """``DLTensor``, with its device inlined."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class NativeCall(ctypes.Structure):
    """``levelbench::RawCall``."""

    _fields_ = (
        ("inputs", ctypes.POINTER(NativeTensor)),
        ("outputs", ctypes.POINTER(NativeTensor)),
        ("gradients", ctypes.POINTER(NativeTensor)),
        ("input_gradients", ctypes.POINTER(NativeTensor)),
        ("input_count", ctypes.c_int32),
        ("output_count", ctypes.c_int32),
        ("workspace", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_int64),
        ("stream", ctypes.c_void_p),
        ("message", ctypes.c_char_p),
        ("message_size", ctypes.c_int64),
    )


class RawAttribute(ctypes.Structure):
    """``levelbench::RawAttribute``."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("kind", ctypes.c_int32),
        ("length", ctypes.c_int64),
        ("ints", ctypes.POINTER(ctypes.c_int64)),
        ("floats", ctypes.POINTER(ctypes.c_double)),
        ("texts", ctypes.POINTER(ctypes.c_char_p)),
    )


_CODES: Final[dict[np.dtype[Any], tuple[int, int]]] = {
    **{np.dtype(f"int{bits}"): (0, bits) for bits in (8, 16, 32, 64)},
    **{np.dtype(f"uint{bits}"): (1, bits) for bits in (8, 16, 32, 64)},
    **{np.dtype(f"float{bits}"): (2, bits) for bits in (16, 32, 64)},
    np.dtype(ml_dtypes.bfloat16): (4, 16),
    np.dtype("complex64"): (5, 64),
    np.dtype("complex128"): (5, 128),
    np.dtype(bool): (6, 8),
}
_DTYPES: Final = {code: dtype for dtype, code in _CODES.items()}


def data_type(dtype: DType) -> DataType:
    """DLPack's code of a dtype; ``UnsupportedError`` if it has none."""
    if dtype not in _CODES:
        raise UnsupportedError(f"an array of {dtype} in C++", "C++ operators do not support it", "convert it")
    code, bits = _CODES[dtype]
    return DataType(code, bits, 1)


def dtype_of(found: DataType) -> DType:
    """The dtype of a DLPack code; ``UnsupportedError`` if NumPy has none."""
    dtype = _DTYPES.get((found.code, found.bits)) if found.lanes == 1 else None
    if dtype is None:
        what = f"NumPy has no dtype for DLPack's code {found.code}, {found.bits} bits, {found.lanes} lanes"
        raise UnsupportedError("an output of a C++ operator", what, "choose another type in infer")
    return dtype


# The C functions of a compiled operator file.


class Library:
    """The C functions of one compiled file. Loading runs code from the file, which can crash the process."""

    def __init__(self, path: Path, source: Path) -> None:
        self.path, self.source = path, source
        try:
            self._loaded = ctypes.CDLL(str(path))
            found = self._loaded.levelbench_abi()
        except (OSError, AttributeError) as error:
            raise DefinitionError(f"the operator file {source}", str(error), "include levelbench.h") from None
        if found != ABI:
            what = f"its header has ABI {found}, expected {ABI}"
            raise DefinitionError(f"the operator file {source}", what, "use the header that levelbench ships")
        pointer, integer = ctypes.c_void_p, ctypes.c_int32
        self.forward = self._function("forward", integer, pointer, pointer)
        self.backward = self._function("backward", integer, pointer, pointer)
        self.create = self._function("create", pointer, integer, pointer, integer, pointer, ctypes.c_int64)
        self.infer = self._function("infer", integer, *[pointer] * 4, ctypes.c_int64, pointer)
        self.workspace = self._function("workspace", integer, pointer, pointer, integer, pointer)
        self.cost = self._function("cost", integer, *[pointer] * 5)
        self.descriptions = self._descriptions()

    def _function(self, name: str, answers: type, *takes: type) -> Function:
        found = getattr(self._loaded, f"levelbench_{name}")
        found.restype, found.argtypes = answers, takes
        return found

    def _descriptions(self) -> list[dict[str, Any]]:
        describe = self._function("describe", ctypes.c_char_p, ctypes.c_int32)
        found = [json.loads(describe(at)) for at in range(self._loaded.levelbench_count())]
        if not found:
            do = "write LEVELBENCH_OPERATOR(Name, float, double) after the struct"
            raise DefinitionError(f"the operator file {self.source}", "it defines no operator", do)
        for each in found:
            if each["wrong"]:
                what = f"{each['name']} refuses its own defaults: {each['wrong']}"
                raise DefinitionError(f"the operator file {self.source}", what, "choose valid defaults")
        return found


def address_of(function: Any) -> int:
    """The address of one of a library's functions, for callers other than Python."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


# Calls of a compiled operator: C structures for arrays of given specs, in which a call changes only the addresses.
# A plan that one thread is using is not in the pool, so a second thread makes its own.


CPU: Final = 1
CUDA: Final = 2
_MESSAGE_BYTES: Final = 2048
_ALIGNMENT: Final = 64
_MOST_KEYS: Final = 512

Device = tuple[int, int]
"""DLPack's device: its type and its number."""


def check(status: int, call: NativeCall, what: str) -> None:
    """Raise the operator's error from :func:`failure_of`, if the status is one."""
    if status:
        raise failure_of(status, what, call.message.decode(errors="replace"))


def failure_of(status: int, what: str, message: str) -> LevelbenchError:
    """The error for a status of ``levelbench.h``.

    ``UnsupportedError`` for a type or device that it is not written for, ``UsageError`` for inputs whose dtypes do not
    match, ``CheckFailedError`` for an exception.
    """
    if status == 3:
        return UsageError(what, message, "give inputs of matching types")
    if status == 2:
        return UnsupportedError(what, message, "add the type to LEVELBENCH_OPERATOR, or convert the inputs")
    return CheckFailedError(what, f"it threw: {message}", "correct the operator or its inputs")


def expect(what: str, given: Sequence[Spec | None], wanted: Sequence[Spec]) -> None:
    """Raise ``UsageError`` for arrays other than wanted, where C++ would read or write out of bounds.

    ``None`` is accepted; the caller fills it in.
    """
    if len(given) != len(wanted):
        raise UsageError(what, f"there are {len(given)}, expected {len(wanted)}", "give one per output")
    for at, (each, spec) in enumerate(zip(given, wanted, strict=True)):
        if each is not None and each != spec:
            found = f"number {at} is {each.dtype}{list(each.shape)}, expected {spec.dtype}{list(spec.shape)}"
            raise UsageError(what, found, "give them the outputs' shapes and dtypes")


_SCRATCH = threading.local()


def _scratch(size: int) -> int:
    """The aligned address of this thread's workspace, which grows to the largest requested size."""
    if getattr(_SCRATCH, "size", 0) < size:
        # Release the old one first: there may not be room for both.
        _SCRATCH.size, _SCRATCH.buffer = 0, None
        _SCRATCH.buffer = buffer = np.empty(size + _ALIGNMENT, np.uint8)
        start = buffer.__array_interface__["data"][0]
        _SCRATCH.address, _SCRATCH.size = start + -start % _ALIGNMENT, size
    return int(_SCRATCH.address)


class CompiledCall:
    """The structures of a forward and its backward. Addresses are plain integers, or ``None`` if there is no array.

    ``workspace_bytes`` and ``backward_workspace_bytes`` are what the operator requests; a caller may set them. On the
    CPU each thread has one block of memory for both; on a GPU the caller allocates them and passes their address.
    """

    def __init__(self, title: str, inputs: Sequence[Spec], outputs: Sequence[Spec], device: Device = (CPU, 0)) -> None:
        self._title, self._device = title, device
        self.outputs = tuple(outputs)
        self.wanted = tuple(differentiable(each) for each in inputs)
        self.graded = tuple(differentiable(each) for each in outputs)
        self.workspace_bytes = self.backward_workspace_bytes = 0
        self._kept: list[Any] = []
        self._message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        self.call = NativeCall(input_count=len(inputs), output_count=len(outputs), message_size=_MESSAGE_BYTES)
        self.call.message = ctypes.cast(self._message, ctypes.c_char_p)
        self._inputs = self._tensors("inputs", inputs)
        self._outputs = self._tensors("outputs", outputs)
        self._gradients = self._tensors("gradients", outputs, self.graded)
        self._input_gradients = self._tensors("input_gradients", inputs, self.wanted)
        self._address = ctypes.addressof(self.call)

    def _tensors(self, field: str, specs: Sequence[Spec], present: Sequence[bool] | None = None) -> list[NativeTensor]:
        """The structures, with data addresses to be filled in later; absent ones have rank -1."""
        array = (NativeTensor * max(len(specs), 1))()
        for at, spec in enumerate(specs):
            shape = (ctypes.c_int64 * max(len(spec.shape), 1))(*spec.shape)
            rank = len(spec.shape) if present is None or present[at] else -1
            dtype = data_type(spec.dtype)
            array[at] = NativeTensor(None, *self._device, rank, dtype, shape, None, 0)
            self._kept.append(shape)
        self._kept.append(array)
        setattr(self.call, field, array)
        return [array[at] for at in range(len(specs))]

    def expect_gradients(self, given: Sequence[Spec | None]) -> None:
        """Raise ``UsageError`` for gradients that do not have the shapes and dtypes of the outputs."""
        graded = [each if has else None for each, has in zip(given, self.graded, strict=False)]
        expect(f"the gradients of outputs of {self._title}", [*graded, *given[len(graded) :]], self.outputs)

    def forward(
        self,
        function: Callable[[int, int], int],
        handle: int,
        inputs: Sequence[int],
        outputs: Sequence[int],
        workspace: int | None = None,
        stream: int | None = None,
    ) -> None:
        """Run the operator on arrays at these addresses."""
        for tensor, address in zip(self._inputs, inputs, strict=True):
            tensor.data = address
        for tensor, address in zip(self._outputs, outputs, strict=True):
            tensor.data = address
        self._lend(workspace, self.workspace_bytes, stream)
        if status := function(handle, self._address):
            check(status, self.call, f"forward of {self._title}")

    def backward(
        self,
        function: Callable[[int, int], int],
        handle: int,
        gradients: Sequence[int | None],
        inputs: Sequence[int],
        outputs: Sequence[int],
        input_gradients: Sequence[int | None],
        workspace: int | None = None,
        stream: int | None = None,
    ) -> None:
        """Run its backward on arrays at these addresses; the gradients of inputs must hold zeros."""
        groups = ((self._gradients, gradients), (self._inputs, inputs), (self._outputs, outputs))
        for tensors, addresses in (*groups, (self._input_gradients, input_gradients)):
            for tensor, address in zip(tensors, addresses, strict=True):
                tensor.data = address
        self._lend(workspace, self.backward_workspace_bytes, stream)
        if status := function(handle, self._address):
            check(status, self.call, f"backward of {self._title}")

    def _lend(self, workspace: int | None, size: int, stream: int | None) -> None:
        # Set it even without a workspace: forward and backward share a plan, but have workspaces of different sizes.
        self.call.workspace = _scratch(size) if size and workspace is None else workspace
        self.call.workspace_bytes = size
        if stream is not None:
            self.call.stream = stream


class Pool:
    """Unused plans, by specs and device."""

    def __init__(self, make: Callable[[tuple[Spec, ...], Device], CompiledCall]) -> None:
        self._make = make
        self._free: dict[tuple[tuple[Spec, ...], Device], list[CompiledCall]] = {}

    def take(self, specs: tuple[Spec, ...], device: Device = (CPU, 0)) -> CompiledCall:
        """A plan, to be given back after the call."""
        try:
            # The pop is atomic, so no two threads get the same plan.
            return self._free[specs, device].pop()
        except (KeyError, IndexError):
            return self._make(specs, device)

    def give(self, specs: tuple[Spec, ...], plan: CompiledCall, device: Device = (CPU, 0)) -> None:
        """Give a plan back."""
        if len(self._free) > _MOST_KEYS:
            self._free.clear()
        self._free.setdefault((specs, device), []).append(plan)


_ROOM: Final = 256
"""The largest total number of dimensions of an operator's outputs."""


class CompiledOperator(CustomOperator):
    """The base of classes made from a library, which take and return NumPy arrays."""

    # Overridden in classes made from a library.
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
    """The kind of each attribute in C++: ``i``, ``f`` or ``s``, in upper case for a list."""
    poison: bool = False
    """Fill outputs with 0xFF bytes (NaN, -1) before a forward, so that unwritten elements show."""

    def __init__(self, **attributes: Any) -> None:
        given = {name: _typed(self.name, name, value, self.kinds) for name, value in attributes.items()}
        self.attributes = {**self.defaults, **given}
        self.handle = _create(self.library, self.index, self.name, self.attributes, self.kinds)
        self._inferred: dict[tuple[Spec, ...], tuple[Spec, ...]] = {}
        self.pool = Pool(self._plan)

    def infer(self, *inputs: Spec) -> tuple[Spec, ...]:
        """The result of the C++ ``infer``; ``ValueError`` with its message if it throws."""
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
        plan = CompiledCall(self.name, inputs, ())
        plan.call.output_count = count
        ranks, shapes, dtypes = (ctypes.c_int32 * count)(), (ctypes.c_int64 * _ROOM)(), (DataType * count)()
        status = self.library.infer(self.handle, ctypes.addressof(plan.call), ranks, shapes, _ROOM, dtypes)
        if status:
            raise ValueError(plan.call.message.decode(errors="replace"))
        found, at = [], 0
        for rank, dtype in zip(ranks, dtypes, strict=True):
            found.append(Spec(tuple(shapes[at : at + rank]), dtype_of(dtype)))
            at += rank
        return tuple(found)

    def _plan(self, specs: tuple[Spec, ...], device: Device) -> CompiledCall:
        plan = CompiledCall(self.name, specs, infer_outputs(self, specs), device)
        sizes = []
        for backward in (0, 1):
            size = ctypes.c_int64()
            status = self.library.workspace(self.handle, ctypes.addressof(plan.call), backward, ctypes.addressof(size))
            check(status, plan.call, f"the workspace of {self.name}")
            sizes.append(size.value)
        plan.workspace_bytes, plan.backward_workspace_bytes = sizes
        return plan

    def forward(self, *inputs: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        """New arrays. Non-contiguous inputs are copied first."""
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

    def backward(
        self, gradients: Sequence[Array], inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> tuple[Array | None, ...]:
        """New arrays, ``None`` for inputs that are not floating-point.

        Raises ``UsageError`` if shapes or dtypes of ``outputs`` or their ``gradients`` differ from ``infer``.
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
        """Normally distributed inputs of the shapes in the file, in each of its floating-point types."""
        for name in self.types:
            if "float" in name:
                for shapes in self.example_shapes:
                    yield tuple(random.standard_normal(shape).astype(name) for shape in shapes)

    def cost(self, *inputs: Spec) -> Cost | None:
        """The cost from the C++ file, if it defines one."""
        count_inputs(self, len(inputs))
        plan = CompiledCall(self.name, inputs, ())
        flops, size, known = ctypes.c_double(), ctypes.c_double(), ctypes.c_int32()
        places = (ctypes.addressof(each) for each in (flops, size, known))
        status = self.library.cost(self.handle, ctypes.addressof(plan.call), *places)
        check(status, plan.call, f"the cost of {self.name}")
        return Cost(flops.value, size.value) if known.value else None


def _contiguous(operator: CustomOperator, value: Array) -> NDArray[Any]:
    array = as_array(operator, value)
    native = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    return native if native.flags.c_contiguous else np.array(native, order="C")


def _addresses(arrays: Sequence[NDArray[Any] | None]) -> list[Any]:
    return [None if each is None else each.ctypes.data for each in arrays]


_KINDS: Final = {"i": "64-bit int", "f": "float", "s": "str without a zero byte"}


def _typed(operator: str, name: str, value: Attribute, kinds: Mapping[str, str]) -> Attribute:
    """The value with the type that C++ expects."""
    if name not in kinds:
        raise UnknownNameError(f"attribute of {operator}", name, kinds)
    kind = kinds[name]
    if kind.isupper():
        items = list(value) if isinstance(value, list | tuple) else [value]
        typed: list[Any] = [_scalar(operator, name, each, kind.lower()) for each in items]
        return typed
    return _scalar(operator, name, value, kind)


def _scalar(operator: str, name: str, value: object, kind: str) -> float | str:
    if kind == "f" and isinstance(value, int | float | np.integer | np.floating):
        return float(value)
    if kind == "i" and isinstance(value, int | np.integer) and -(2**63) <= value < 2**63:
        return int(value)
    # A C string ends at a zero byte.
    if kind == "s" and isinstance(value, str) and "\0" not in value:
        return value
    found = f"{value!r} is not of the default's type, {_KINDS[kind]}"
    raise UsageError(f"attribute {name} of {operator}", found, "give a value of that type")


_INSTANCES: dict[tuple[Path, int, str], int] = {}


def _create(
    library: Library, index: int, name: str, attributes: Mapping[str, Attribute], kinds: Mapping[str, str]
) -> int:
    """The address of the C++ object with these attributes: one per process, as compiled programs may keep using it."""
    key = (library.path, index, repr(sorted(attributes.items())))
    if key in _INSTANCES:
        return _INSTANCES[key]
    raw = (RawAttribute * max(len(attributes), 1))()
    kept: list[Any] = []
    for at, (each, value) in enumerate(attributes.items()):
        raw[at] = _raw(each, value, kinds[each], kept)
    message = ctypes.create_string_buffer(2048)
    made = library.create(index, raw, len(attributes), message, len(message))
    if not made:
        raise UsageError(f"operator {name}", message.value.decode(errors="replace"), "give other attributes")
    _INSTANCES[key] = made
    return int(made)


def _raw(name: str, value: Attribute, code: str, kept: list[object]) -> RawAttribute:
    items: list[Any] = value if isinstance(value, list) else [value]
    kind = code.lower()
    ints = (ctypes.c_int64 * max(len(items), 1))(*(items if kind == "i" else ()))
    floats = (ctypes.c_double * max(len(items), 1))(*(items if kind == "f" else ()))
    texts = (ctypes.c_char_p * max(len(items), 1))(*([each.encode() for each in items] if kind == "s" else ()))
    kept.extend((ints, floats, texts))
    return RawAttribute(name.encode(), ord(code), len(items), ints, floats, texts)
