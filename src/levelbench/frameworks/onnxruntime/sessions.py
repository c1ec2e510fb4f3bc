"""ONNX Runtime's sessions and values: created, run without copies, and converted from and to NumPy arrays.

``run_with_ortvaluevector`` takes and returns native values on any device. So does ``run_with_ort_values``, but its
Python wrapper iterates over a C++ vector, which costs 40 microseconds per call.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import defs, helper, numpy_helper
from onnxruntime import OrtValue
from onnxruntime.capi import onnxruntime_pybind11_state as native

from levelbench.errors import UnsupportedError, UsageError
from levelbench.networks.inspect import RANDOM, all_nodes
from levelbench.operators.node import DEFAULT_OPSET, IR_VERSION

REFUSALS = (
    native.EPFail,
    native.Fail,
    native.InvalidArgument,
    native.InvalidGraph,
    native.InvalidProtobuf,
    native.NotImplemented,
    native.RuntimeException,
    RuntimeError,
)
"""What ONNX Runtime raises for a model that it rejects; these have no class in common."""
WrongInputError = native.InvalidArgument
"""Raised by a session for values of the wrong type, and by kernels for values that they do not support."""
Preparation = Callable[[onnxruntime.SessionOptions], None]
FATAL = 4
_CODE = re.compile(r"\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ")
_KERNEL = re.compile(r"Non-zero status code returned while running (\w+) node\. Name:'[^']*' Status Message: ")
_PLACE = re.compile(r"/\S+\.\w+:\d+ [^(]*\([^)]*\)(?: const)? (?:.*? was false\. (?=\S))?")


@dataclass(frozen=True)
class SessionDevice:
    """The device of values and sessions."""

    kind: str
    index: int = 0

    @classmethod
    def parse(cls, text: str) -> SessionDevice:
        """``cpu``, ``cuda`` or ``cuda:N``; ``UsageError`` for anything else."""
        kind, _, index = text.partition(":")
        if kind not in ("cpu", "cuda") or (index and not (kind == "cuda" and index.isdecimal())):
            raise UsageError(f"device {text!r}", "it is not cpu, cuda or cuda:N", "give one of these")
        return cls(kind, int(index or 0))

    @property
    def providers(self) -> list[str | tuple[str, dict[str, int]]]:
        """The execution providers of a session."""
        cpu = "CPUExecutionProvider"
        return [cpu] if self.kind == "cpu" else [("CUDAExecutionProvider", {"device_id": self.index}), cpu]

    def native(self) -> native.OrtDevice:
        """ONNX Runtime's own description of the device."""
        return onnxruntime.OrtDevice.make(self.kind, self.index)._get_c_device()


def threads() -> int:
    """Threads per operator: ``OMP_NUM_THREADS``, else the number of cores that this process may use."""
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return len({_siblings(cpu) for cpu in usable})


def spins() -> bool:
    """Whether idle threads keep spinning after a call: ONNX Runtime's default, unless ``OMP_WAIT_POLICY=passive``.

    Spinning occupies a core for 20 milliseconds or more after a call; without it, a call that is shared among threads
    takes about 25 microseconds longer, until they have woken up.
    """
    return os.environ.get("OMP_WAIT_POLICY", "").strip().lower() != "passive"


def _siblings(cpu: int) -> str:
    """The hardware threads that share a core with ``cpu``: ONNX Runtime, too, starts one thread per core."""
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
    except OSError:
        return str(cpu)


RANDOM_OPERATORS = RANDOM | {"Dropout"}
"""Operators that draw random numbers: ONNX Runtime seeds them when it creates a session."""


class Seed:
    """How often the backend was seeded; sessions with random operators are recreated when the count has grown."""

    def __init__(self) -> None:
        self.count = 0


class Session:
    """A session of a model: native values in and out, in the order of ``inputs`` and ``outputs``."""

    def __init__(
        self,
        model: onnx.ModelProto,
        device: SessionDevice,
        asked: str,
        *,
        only_device: bool = False,
        prepare: Preparation | None = None,
    ) -> None:
        """Raises ``UnsupportedError`` with ONNX Runtime's own message if it rejects the model.

        ``only_device`` rejects a model that would run partly on the CPU instead of ``device``; ``prepare`` completes
        the options: the optimisation level, external arrays, profiling.
        """
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads()
        options.log_severity_level = FATAL
        if not spins():
            options.add_session_config_entry("session.force_spinning_stop", "1")
        if only_device and device.kind != "cpu":
            options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        if prepare is not None:
            prepare(options)
        text = model.SerializeToString()
        try:
            # A fallback to another provider would silently change what is measured.
            self.session = onnxruntime.InferenceSession(text, options, device.providers, enable_fallback=0)
        except REFUSALS as error:
            raise refusal(asked, error) from error
        self.inputs = [each.name for each in self.session.get_inputs()]
        self.outputs = [each.name for each in self.session.get_outputs()]
        self._asked = asked
        self._options = onnxruntime.RunOptions()
        self._options.log_severity_level = FATAL
        self._devices = [device.native()] * len(self.outputs)
        self._run = self.session.run_with_ortvaluevector
        self._rest = range(1, len(self.outputs))

    def run(self, values: Sequence[OrtValue], names: Sequence[str] | None = None) -> tuple[OrtValue, ...]:
        """The outputs, given values of the inputs ``names`` (``None``: all inputs); optional ones may be left out.

        Raises ONNX Runtime's own exceptions if it fails, ``UnsupportedError`` if it reports a missing kernel.
        """
        feeds, found = native.OrtValueVector(), native.OrtValueVector()
        feed = feeds.push_back
        for value in values:
            feed(value._ortvalue)
        names = self.inputs if names is None else names
        try:
            self._run(self._options, names, feeds, self.outputs, found, self._devices)
        except native.NotImplemented as error:
            raise refusal(self._asked, error) from error
        # Iterating over the vector would cost 40 microseconds: it ends with a C++ exception.
        first = OrtValue(found[0])
        return (first, *[OrtValue(found[at]) for at in self._rest]) if self._rest else (first,)


def refusal(asked: str, error: Exception) -> UnsupportedError:
    """The error for what ONNX Runtime rejects, with its own message."""
    return UnsupportedError(f"{asked} on ONNX Runtime", _first_line(error), "use another framework")


def _first_line(error: Exception) -> str:
    """The first line of the message, without the error code and the place in the C++ source."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    words = _PLACE.sub("", _KERNEL.sub(r"\1: ", _CODE.split(lines[0])[-1]))
    return words.rpartition("&) ")[2].rstrip(". ")


# Conversion between NumPy arrays and ONNX Runtime values, including strings and the types of ``ml_dtypes``.
# On the CPU a value uses the array's own memory. Types of four and two bits are the exception: ``ml_dtypes`` stores one
# per byte, ONNX Runtime two or four, the first in the lowest bits.


_BITS = {
    onnx.TensorProto.INT4: 4,
    onnx.TensorProto.UINT4: 4,
    onnx.TensorProto.FLOAT4E2M1: 4,
    onnx.TensorProto.INT2: 2,
    onnx.TensorProto.UINT2: 2,
}
_HOST = SessionDevice("cpu")


def from_numpy(array: NDArray[Any], device: SessionDevice) -> OrtValue:
    """A value on ``device``; on the CPU it shares the memory of a contiguous array and keeps it alive.

    Raises ``UnsupportedError`` for a type that ONNX Runtime does not have.
    """
    if array.dtype.kind in "OSUT":
        return _strings(array)
    array = np.asarray(array, order="C")
    element = _element_type(array.dtype)
    if _is_numpys_own(array.dtype):
        return OrtValue.ortvalue_from_numpy(array, device.kind, device.index)
    packed = _pack(array, _BITS[element]) if element in _BITS else array
    value = OrtValue.ortvalue_from_numpy_with_onnx_type(packed, element)
    return value if device == _HOST else _moved(value, device)


def view_of(value: OrtValue) -> NDArray[Any] | None:
    """The memory of a value on the CPU; ``None`` elsewhere, for strings and for types below a byte."""
    element = value.element_type()
    if value.device_name() != "cpu" or element == onnx.TensorProto.STRING or element in _BITS:
        return None
    dtype, shape, size = helper.tensor_dtype_to_np_dtype(element), tuple(value.shape()), value.tensor_size_in_bytes()
    if not size:
        return None
    raw = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(value.data_ptr()))
    return raw.view(dtype).reshape(shape)


def to_numpy(value: OrtValue) -> NDArray[Any]:
    """A copy on the host with the same type (of ``ml_dtypes`` where NumPy has none)."""
    element = value.element_type()
    dtype = helper.tensor_dtype_to_np_dtype(element)
    if element == onnx.TensorProto.STRING or (_is_numpys_own(dtype) and value.device_name() != "cpu"):
        return np.array(value.numpy())
    value = value if value.device_name() == "cpu" else _moved(value, _HOST)
    shape, size = tuple(value.shape()), value.tensor_size_in_bytes()
    if not size:
        return np.empty(shape, dtype)
    raw = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(value.data_ptr()))
    if element in _BITS:
        return _unpack(raw, _BITS[element], dtype, shape)
    return raw.view(dtype).reshape(shape).copy()


def _is_numpys_own(dtype: np.dtype[Any]) -> bool:
    """Whether NumPy itself defines the type; ``isbuiltin`` is 2 for ``ml_dtypes`` and may be 0 after unpickling."""
    return dtype.isbuiltin != 2


def _element_type(dtype: np.dtype[Any]) -> int:
    try:
        element = helper.np_dtype_to_tensor_dtype(dtype)
    except (KeyError, ValueError):
        element = None
    if element is None or dtype.kind == "c":
        raise UnsupportedError(f"an array of {dtype} on ONNX Runtime", "it has no such type", "use another type")
    return int(element)


def _strings(array: NDArray[Any]) -> OrtValue:
    """Strings come from a session that has them as a constant: the package cannot create them directly."""
    texts = np.array([_text(each) for each in array.ravel()], object).reshape(array.shape)
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "strings",
        [],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(texts, "x")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7)
    return Session(model, _HOST, "an array of strings").run(())[0]


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _moved(value: OrtValue, device: SessionDevice) -> OrtValue:
    moved = OrtValue.ortvalue_from_shape_and_type(value.shape(), value.element_type(), device.kind, device.index)
    onnxruntime.copy_tensors([value], [moved])
    return moved


def _pack(array: NDArray[Any], bits: int) -> NDArray[np.uint8]:
    """The elements, ``bits`` each, packed at the start of an array with one byte per element.

    The remaining bytes are unused; the shape is the array's, because the value must have it.
    """
    share = 8 // bits
    lowest = array.ravel().view(np.uint8) & np.uint8((1 << bits) - 1)
    padded = np.zeros(-(-lowest.size // share) * share, np.uint8)
    padded[: lowest.size] = lowest
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    packed = np.zeros(array.size, np.uint8)
    packed[: padded.size // share] = np.bitwise_or.reduce(padded.reshape(-1, share) << shifts, axis=1)
    return packed.reshape(array.shape)


def _unpack(raw: NDArray[np.uint8], bits: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """The inverse of :func:`_pack`; as in ``ml_dtypes``, the upper bits are zero, even for negative numbers."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (raw[:, None] >> shifts) & np.uint8((1 << bits) - 1)
    flat = parts.ravel()[: int(np.prod(shape))]
    return flat.view(dtype).reshape(shape)


# The versions that ONNX Runtime supports, and lowering a model's opset to one of them.
# An opset is a set of operator versions. A model means the same under two opsets if each of its operators has the same
# version in both; then its import may be lowered to the newest supported opset. The newest versions are found by trying
# them once.


_PROBE_OPSET = 13
_LOWERED = ("", "ai.onnx.ml")


@cache
def newest_ir() -> int:
    """The newest version of ONNX's file format that ONNX Runtime supports."""
    tried = range(onnx.IR_VERSION, IR_VERSION, -1)
    return next((each for each in tried if _takes(each, {"": _PROBE_OPSET})), IR_VERSION)


@cache
def newest_opset(domain: str = "") -> int:
    """The newest opset that ONNX Runtime supports of ONNX's own domain, or of ``ai.onnx.ml``."""
    known = defs.onnx_ml_opset_version() if domain else defs.onnx_opset_version()
    return next((each for each in range(known, 0, -1) if _takes(IR_VERSION, {"": _PROBE_OPSET, domain: each})), 0)


def lowered(model: onnx.ModelProto, gaining: frozenset[str] = frozenset()) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """The model with versions that ONNX Runtime supports, and a description of each change; unchanged if possible.

    The operators ``gaining`` only gained types and attributes in opsets that are too new. Raises ``UnsupportedError``
    if another operator of the model has another version in the newest supported opset.
    """
    changes: list[str] = []
    found = model
    if model.ir_version > newest_ir():
        found = _copy(model)
        found.ir_version = newest_ir()
        changes.append(f"IR version {model.ir_version} lowered to {newest_ir()}")
    too_new = {each.domain: each.version for each in _imports(model) if _is_too_new(each)}
    if not too_new:
        return found, tuple(changes)
    _refuse_changed(model, too_new, gaining)
    found = _copy(model) if found is model else found
    for each in _imports(found):
        each.version = min(each.version, newest_opset(_plain(each.domain))) if _is_too_new(each) else each.version
    for domain, version in too_new.items():
        newest = newest_opset(_plain(domain))
        changes.append(f"opset {version} lowered to {newest}, in which each of its operators has the same version")
    return found, tuple(changes)


def _takes(ir: int, imports: dict[str, int]) -> bool:
    value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "probe", [value], [result])
    opsets = [helper.make_opsetid(domain, version) for domain, version in imports.items()]
    try:
        Session(helper.make_model(graph, opset_imports=opsets, ir_version=ir), SessionDevice("cpu"), "a probe")
    except UnsupportedError:
        return False
    return True


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def _imports(model: onnx.ModelProto) -> Iterator[onnx.OperatorSetIdProto]:
    yield from model.opset_import
    for function in model.functions:
        yield from function.opset_import


def _plain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _is_too_new(each: onnx.OperatorSetIdProto) -> bool:
    domain = _plain(each.domain)
    return domain in _LOWERED and each.version > newest_opset(domain)


def _refuse_changed(model: onnx.ModelProto, too_new: dict[str, int], gaining: frozenset[str]) -> None:
    """Raise ``UnsupportedError`` if one of the model's operators differs in the newest supported opset."""
    own = {(each.domain, each.name) for each in model.functions}
    for node in nodes_of(model):
        if node.domain not in too_new or (node.domain, node.op_type) in own:
            continue
        asked, newest = too_new[node.domain], newest_opset(_plain(node.domain))
        since = _since(node, asked)
        if since is None or (
            since != _since(node, newest) and not (node.op_type in gaining and _is_known(node, asked, newest))
        ):
            change = f"{node.op_type} changed in opset {since}" if since else f"{node.op_type} is unknown there"
            raise UnsupportedError(
                f"opset {asked} on ONNX Runtime",
                f"it supports up to {newest}, and {change}",
                "use another framework, or an older opset",
            )


def _is_known(node: onnx.NodeProto, asked: int, newest: int) -> bool:
    """Whether an operator has the same inputs and outputs in both opsets, and the node no attribute that is new."""
    domain = _plain(node.domain)
    try:
        new, old = (defs.get_schema(node.op_type, each, domain) for each in (asked, newest))
    except defs.SchemaError:
        return False
    names = [[[each.name for each in some] for some in (schema.inputs, schema.outputs)] for schema in (new, old)]
    return names[0] == names[1] and all(each.name in old.attributes for each in node.attribute)


def nodes_of(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a model, including those of its subgraphs and functions."""
    yield from all_nodes(model.graph.node)
    for function in model.functions:
        yield from all_nodes(function.node)


def _since(node: onnx.NodeProto, opset: int) -> int | None:
    """The operator's version in ``opset``; ``None`` if it has none, or the opset is unknown."""
    domain = _plain(node.domain)
    if opset > (defs.onnx_ml_opset_version() if domain else defs.onnx_opset_version()):
        return None
    try:
        return int(defs.get_schema(node.op_type, opset, domain).since_version)
    except defs.SchemaError:
        return None


# Sequences as lists of values: ONNX Runtime's own operators pack and unpack them, so they stay on the device.


def pack(values: Sequence[OrtValue], element: int, device: SessionDevice) -> OrtValue:
    """The sequence of ``values``, whose elements have ONNX's type ``element``."""
    if not values:
        return _session("SequenceEmpty", (), element, device).run(())[0]
    return _session("SequenceConstruct", ("tensor",) * len(values), element, device).run(values)[0]


def unpack(sequence: OrtValue, device: SessionDevice) -> list[OrtValue]:
    """The elements of a sequence."""
    element = sequence.element_type()
    length = int(to_numpy(_session("SequenceLength", ("sequence",), element, device).run([sequence])[0]))
    at = _session("SequenceAt", ("sequence", "position"), element, device)
    positions = [from_numpy(np.array(each, np.int64), device) for each in range(length)]
    return [at.run([sequence, each])[0] for each in positions]


@cache
def _session(op_type: str, inputs: tuple[str, ...], element: int, device: SessionDevice) -> Session:
    names = [f"x{at}" for at in range(len(inputs))]
    tensor = helper.make_tensor_type_proto(element, None)
    types = {
        "tensor": tensor,
        "sequence": helper.make_sequence_type_proto(tensor),
        "position": helper.make_tensor_type_proto(onnx.TensorProto.INT64, []),
    }
    attributes: dict[str, Any] = {"dtype": element} if op_type == "SequenceEmpty" else {}
    graph = helper.make_graph(
        [helper.make_node(op_type, names, ["y"], **attributes)],
        op_type,
        [helper.make_value_info(name, types[kind]) for name, kind in zip(names, inputs, strict=True)],
        [onnx.ValueInfoProto(name="y")],
    )
    opset = helper.make_opsetid("", DEFAULT_OPSET)
    return Session(helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION), device, op_type)
