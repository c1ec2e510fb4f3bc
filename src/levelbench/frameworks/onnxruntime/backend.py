"""ONNX Runtime on one device: single operators, whole models and networks, on its own values.

An operator is a model of one node, with a session for each combination of input types. The model has no shapes, so a
session works for all of them. Structural inputs become constants of the model, as in networks, until so many have been
seen that they seem to vary.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnxruntime import InferenceSession, OrtValue

from levelbench.errors import UnsupportedError, UsageError
from levelbench.frameworks import Float32Backend
from levelbench.frameworks.onnxruntime import OnnxRuntimeFramework
from levelbench.frameworks.onnxruntime.executor import OnnxRuntimeExecutor, OnnxRuntimeModel
from levelbench.frameworks.onnxruntime.sessions import (
    RANDOM_OPERATORS,
    Seed,
    Session,
    SessionDevice,
    WrongInputError,
    from_numpy,
    lowered,
    newest_ir,
    newest_opset,
    spins,
    threads,
    to_numpy,
    view_of,
)
from levelbench.measure.clocks import HOST
from levelbench.networks.codegen import Lowered
from levelbench.networks.executor import Executor
from levelbench.networks.network import Network
from levelbench.operators.contract import Array, Operator, OperatorBackend, known_upstream
from levelbench.operators.node import CUSTOM_DOMAIN, DEFAULT_OPSET, IR_VERSION, OperatorNode, structural

_MOST_CONSTANTS = 16


class _Ready(NamedTuple):
    session: Session
    fed: tuple[int, ...]
    """Positions of the inputs that are passed at each call."""


class OnnxRuntimeOperator(Operator):
    """An ONNX node on ONNX Runtime's own values, which stay on its device."""

    def __init__(self, node: OperatorNode, device: SessionDevice, seed: Seed) -> None:
        self.node = node
        self._device, self._seed, self._seeded = device, seed, seed.count
        self._random = node.op_type in RANDOM_OPERATORS
        self._ready: dict[tuple[Any, ...], _Ready] = {}
        self._last: Session | None = None
        self._model: onnx.ModelProto | None = None
        self._with_constants = 0
        self._structural = frozenset(structural(node))
        self._skips = "" in node.outputs

    def forward(self, *inputs: Array) -> tuple[Array, ...]:
        """The outputs; ``UnsupportedError`` if ONNX Runtime has no kernel for these types."""
        last = self._last
        if last is not None and len(inputs) == len(last.inputs):
            try:
                return last.run(inputs)
            except (AttributeError, WrongInputError):
                # Not a value, or of another type than last time: ONNX Runtime checks types, so we need not.
                pass
        return self._forward(inputs)

    def session(self, *inputs: Array) -> InferenceSession:
        """ONNX Runtime's own session for inputs of these types, to be called directly."""
        key = tuple([_signature(each) for each in inputs])
        return (self._ready.get(key) or self._prepare(key, inputs)).session.session

    def _forward(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        """:meth:`forward` with a lookup of the session by the inputs' types."""
        if self._random and self._seeded != self._seed.count:
            self._ready.clear()
            self._seeded = self._seed.count
        key = tuple([_signature(each) for each in inputs])
        ready = self._ready.get(key) or self._prepare(key, inputs)
        values = inputs if len(ready.fed) == len(inputs) else [inputs[at] for at in ready.fed]
        if self._structural:
            values = [from_numpy(each, self._device) if isinstance(each, np.ndarray) else each for each in values]
        elif not (self._random or self._skips) and len(ready.fed) == len(inputs):
            self._last = ready.session
        outputs = ready.session.run(values)
        return self._with_gaps(outputs) if self._skips else outputs

    def executed(self) -> list[str]:
        """The nodes that ONNX Runtime made of this one when it optimised the newest session, which is made again."""
        if self._model is None:
            return []
        with tempfile.TemporaryDirectory(prefix="levelbench-") as folder:
            path = f"{folder}/optimised.onnx"

            def prepare(options: onnxruntime.SessionOptions) -> None:
                options.optimized_model_filepath = path

            Session(self._model, self._device, self.node.title, only_device=True, prepare=prepare)
            nodes = onnx.load(path, load_external_data=False).graph.node
        return [f"{each.domain}.{each.op_type}" if each.domain else each.op_type for each in nodes]

    def backward(
        self, gradients: Sequence[Array | None], inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> tuple[Array | None, ...]:
        """Raises ``UnsupportedError``: ONNX Runtime's Python package supports inference only."""
        raise UnsupportedError(
            f"the gradient of {self.node.title} on ONNX Runtime",
            "its Python package supports inference only",
            "use numpy, torch or jax",
        )

    def _with_gaps(self, outputs: Sequence[OrtValue]) -> tuple[OrtValue | None, ...]:
        found = iter(outputs)
        return tuple([next(found) if name else None for name in self.node.outputs])

    def _prepare(self, key: tuple[Any, ...], inputs: Sequence[Array]) -> _Ready:
        """A session for inputs of these types, with structural ones as constants if they do not seem to vary."""
        given = [at for at, each in enumerate(inputs) if each is not None]
        constants = [at for at in given if isinstance(inputs[at], np.ndarray)]
        # With constants only, the result would be computed when the session is made and only copied at each call.
        if constants and len(constants) < len(given) and self._with_constants < _MOST_CONSTANTS:
            self._with_constants += 1
            fed = tuple(at for at in given if at not in constants)
            self._ready[key] = _Ready(self._session(inputs, {at: inputs[at] for at in constants}), fed)
            return self._ready[key]
        types = tuple([_element(each) for each in inputs])
        if types not in self._ready:
            self._ready[types] = _Ready(self._session(inputs, {}), tuple(given))
        return self._ready[types]

    def _session(self, inputs: Sequence[Array], constants: dict[int, NDArray[Any]]) -> Session:
        node = self.node
        proto = node.to_proto()
        names = ["" if each is None else f"x{at}" for at, each in enumerate(inputs)]
        outputs = [f"y{at}" if name else "" for at, name in enumerate(node.outputs)]
        del proto.input[:], proto.output[:]
        proto.input.extend(names)
        proto.output.extend(outputs)
        graph = helper.make_graph(
            [proto],
            node.op_type,
            [_declared(name, _element(each)) for name, each in zip(names, inputs, strict=True) if name],
            [onnx.ValueInfoProto(name=name) for name in outputs if name],
            [numpy_helper.from_array(value, names[at]) for at, value in constants.items()],
        )
        for at in constants:
            graph.input.remove(next(each for each in graph.input if each.name == names[at]))
        imports = [helper.make_opsetid(node.domain, node.opset)]
        if node.domain:
            imports.append(helper.make_opsetid("", DEFAULT_OPSET))
        self._model, _ = lowered(helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION))
        return Session(self._model, self._device, node.title, only_device=True)


def _signature(value: Array) -> Any:
    """The lookup key of an input: the type of a value, or the type, shape and content of a constant."""
    if value.__class__ is OrtValue:
        return value._ortvalue.element_type()
    if isinstance(value, np.ndarray):
        return value.dtype.num, value.shape, value.tobytes()
    return _element(value)


def _element(value: Array) -> int:
    """ONNX's number of the element type; 0 for an input that is left out."""
    if value is None:
        return 0
    if isinstance(value, np.ndarray):
        return int(helper.np_dtype_to_tensor_dtype(value.dtype))
    if isinstance(value, list):
        raise UnsupportedError("a sequence as an operator's input", "only tensors are supported", "run a whole model")
    return int(value.element_type())


def _declared(name: str, element: int) -> onnx.ValueInfoProto:
    """An input with a type but no shape."""
    return helper.make_tensor_value_info(name, element, None)


SEEN = ("1.31.1", "1.32.0")
"""The versions of ONNX Runtime in which all of these faults were seen."""
_ROUNDING = "float32's rounding, below 1e-6 of the largest value, where the test allows 1e-7 near zero"
_LOWEST = "a masked score is the lowest float32 instead of -inf"
_ROUNDED_LENGTH = "aligns corners by the rounded output length, ONNX by scale times length"

_FAULTS = {
    **{
        f"test_{name}{version}": _ROUNDING
        for name in ("dft", "dft_axis", "dft_inverse", "dft_irfft", "dft_rfft")
        for version in ("", "_opset19")
    },
    **dict.fromkeys(("test_stft", "test_stft_with_window"), _ROUNDING),
    "test_attention_4d_diff_heads_mask4d_padded_kv": "rejects a mask shorter than the keys, which opset 24 pads",
    "test_attention_4d_with_past_and_present_qk_matmul_bias_3d_mask_causal": _LOWEST,
    "test_attention_4d_with_past_and_present_qk_matmul_bias_4d_mask_causal": _LOWEST,
    "test_convinteger_with_padding": "accepts one zero point of the weight, not one per channel",
    "test_maxunpool_export_with_output_shape": "reads indices as positions in output_shape, not in the inferred shape",
    "test_reduce_max_empty_set_bool": "rejects the maximum of no booleans, which is false",
    "test_resize_downsample_scales_cubic_align_corners": _ROUNDED_LENGTH,
    "test_resize_downsample_scales_linear_align_corners": _ROUNDED_LENGTH,
}


def faults(version: str) -> Mapping[str, str]:
    """Reasons by the test's name, with the versions in which they were seen."""
    return known_upstream(_FAULTS, SEEN, version)


# An independent check of ONNX Runtime's profiler, from which the operators' times come: our own clock.
# Each node runs in its own session, one after the other, with a clock around it. This uses neither the graph's session
# nor its profiler, so if both agree on the shares, both are right. A session call costs about ten microseconds, which
# is visible in small operators.


def profile(
    backend: OperatorBackend, executor: Executor, inputs: Sequence[Any], repeats: int
) -> tuple[str, dict[str, float]]:
    """The method, and the seconds per operator type in an inference: the median of ``repeats``.

    Raises ``UnsupportedError`` for an optimised session, whose fused operators are not the network's.
    """
    network = executor.network
    if network is None or executor.mode != "unoptimised":
        raise UnsupportedError(
            f"sessions of single operators in mode {executor.mode!r}",
            "its fused operators are not those of the network",
            "use mode unoptimised",
        )
    lowered = Lowered(network, backend)
    titles = {step.index: step.node.title for step in lowered.steps}
    live = {**executor.parameters, **executor.buffers}
    arrays = [live[name] for name in lowered.arrays]
    turns: list[dict[str, float]] = []
    for _ in range(repeats + 1):
        turns.append(defaultdict(float))
        for index, nanoseconds in lowered.run_timed(list(inputs), arrays, backend.clock(HOST), backend.finish):
            turns[-1][titles[index]] += nanoseconds * 1e-9
    # The first turn creates the sessions.
    found = {name: median(turn[name] for turn in turns[1:]) for name in turns[0]}
    return "sessions of single operators", found


class OnnxRuntimeBackend(Float32Backend):
    """Arrays are ``onnxruntime.OrtValue``. Calls are synchronous, so the host's clock is right. It does not train.

    Mode ``optimised`` applies all of ONNX Runtime's graph optimisations, ``unoptimised`` none.
    """

    any_opset = True
    modes = OnnxRuntimeFramework.modes

    def __init__(self, device: str = "cpu") -> None:
        self._device = SessionDevice.parse(device)
        self._seed = Seed()
        self._gather = OnnxRuntimeOperator(OperatorNode("Gather", ("x", "i"), ("y",)), self._device, self._seed)
        self.known_faults: Mapping[str, str] = faults(onnxruntime.__version__)

    def executor_of(
        self, network: Network, parameters: Mapping[str, NDArray[Any]], mode: str, trains: bool
    ) -> Executor:
        """An executor for inference; its ``forward`` raises ``UnsupportedError``, whatever ``trains`` is."""
        return OnnxRuntimeExecutor(network, parameters, self._device, self._seed, mode=mode)

    def profile(self, executor: Executor, inputs: Sequence[OrtValue], repeats: int) -> tuple[str, dict[str, float]]:
        """Our clock around sessions of single operators: the executor's operator times are already the profiler's."""
        return profile(self, executor, inputs, repeats)

    def take(self, array: OrtValue, indices: OrtValue) -> OrtValue:
        """Rows at ``indices``, by ONNX Runtime's own Gather."""
        found: OrtValue = self._gather.forward(array, indices)[0]
        return found

    def mean(self, scalars: Sequence[OrtValue]) -> float:
        """The mean, accumulated in float64 on the host."""
        return float(np.mean([np.asarray(to_numpy(each), np.float64) for each in scalars]))

    def operator(self, node: OperatorNode) -> Operator:
        """The operator; missing kernels for a type show at the first call. Custom ones are called by a session."""
        if node.domain == CUSTOM_DOMAIN:
            from levelbench.frameworks.onnxruntime.custom import OnnxRuntimeCustom

            return OnnxRuntimeCustom(node, self._device)
        return OnnxRuntimeOperator(node, self._device, self._seed)

    def algorithm(self, operator: Operator, call: Callable[[], object]) -> tuple[str | None, str]:
        """The nodes of its optimised graph, if they are not the node alone; their kernels have no names."""
        nodes = operator.executed() if isinstance(operator, OnnxRuntimeOperator) else []
        if nodes and nodes != [operator.node.op_type]:
            return f"nodes {', '.join(nodes)}", ""
        return None, "ONNX Runtime tells the nodes that it executes, here this one alone, and not their kernels"

    def array(self, host: NDArray[Any]) -> OrtValue:
        """A value on the device; on the CPU it shares the array's memory."""
        return from_numpy(host, self._device)

    def host(self, array: OrtValue) -> NDArray[Any]:
        """A copy on the host; ``UnsupportedError`` for a map or a sequence, which operators on trees return."""
        if not array.is_tensor():
            raise UnsupportedError("a value of ONNX Runtime", f"it is a {array.data_type()}", "use tensors")
        return to_numpy(array)

    def memory(self, array: OrtValue) -> NDArray[Any] | None:
        return view_of(array)

    def model(self, model: onnx.ModelProto) -> Callable[[Sequence[Any]], list[Any]]:
        """The whole model as one session, with ONNX Runtime's graph optimisations."""
        return OnnxRuntimeModel(model, self._device, self._seed)

    def seed(self, seed: int) -> None:
        """Seed random operators; existing sessions that use them are recreated."""
        onnxruntime.set_seed(seed)
        self._seed.count += 1

    def describe(self) -> dict[str, Any]:
        """Version, device, threads, the newest ONNX versions it supports, and whether idle threads spin."""
        return {
            "name": "onnxruntime",
            "version": str(onnxruntime.__version__),
            "device": self._device.kind if self._device.kind == "cpu" else f"cuda:{self._device.index}",
            "threads": threads(),
            "deterministic": self._device.kind == "cpu",
            "newest_opset": newest_opset(),
            "newest_ir": newest_ir(),
            "spins": spins(),
        }


def lacking_device(device: str) -> str | None:
    """``None`` if this build of ONNX Runtime can use ``device``, else the reason."""
    try:
        wanted = SessionDevice.parse(device)
    except UsageError:
        return f"this adapter runs on cpu and cuda, not on {device}"
    if wanted.kind == "cpu" or "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        return None
    return "this build of ONNX Runtime has no CUDAExecutionProvider: pip install onnxruntime-gpu"
