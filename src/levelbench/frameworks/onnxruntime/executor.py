"""A network or a whole ONNX model as one session of ONNX Runtime, optimised or not; inference only.

Parameters are constants of the session, because only then does ONNX Runtime fold, fuse and pack them as in a deployed
model. So replacing a parameter recreates the session at the next call.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import msgspec
import numpy as np
import onnx
import onnxruntime
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper
from onnxruntime import OrtValue
from onnxruntime.capi import onnxruntime_pybind11_state as native

from levelbench.errors import UnknownNameError, UnsupportedError, UsageError
from levelbench.frameworks.onnxruntime.sessions import (
    RANDOM_OPERATORS,
    Preparation,
    Seed,
    Session,
    SessionDevice,
    from_numpy,
    lowered,
    nodes_of,
    pack,
    to_numpy,
    unpack,
)
from levelbench.networks.executor import Executor, LiveMapping, OperatorTime, require_inputs
from levelbench.networks.inspect import all_nodes, names_in, needed_nodes, outer_reads, subgraphs
from levelbench.networks.network import Network

_WORTH_SHARING = 1024
_HOST = SessionDevice("cpu")


class SessionModel(NamedTuple):
    """The parts of a session's model. ``inputs`` are those that the outputs depend on, in the network's order."""

    proto: onnx.ModelProto
    inputs: tuple[str, ...]
    arrays: Mapping[str, OrtValue]
    """Initialisers that are stored outside ``proto``."""
    parameters: frozenset[str]
    """The parameters and buffers that the outputs depend on."""


def node_name(index: int) -> str:
    """The name of the node at ``index`` in ``network.nodes``; ONNX Runtime's profiler reports times by name."""
    return f"levelbench.{index}"


def model_of(network: Network, values: Mapping[str, OrtValue]) -> SessionModel:
    """The model of ``network`` with these parameter values."""
    source = network.model.graph
    needed, read = needed_nodes(source, [each.name for each in network.outputs])
    inputs = tuple(each.name for each in network.inputs if each.name in read)
    proto = onnx.ModelProto(ir_version=network.model.ir_version)
    proto.opset_import.extend(network.model.opset_import)
    proto.functions.extend(network.model.functions)
    graph = proto.graph
    graph.name = network.name or "network"
    for index in needed:
        graph.node.add().CopyFrom(source.node[index])
        graph.node[-1].name = node_name(index)
    # An initialiser must not be a graph input as well: that would hide its value from the optimiser.
    graph.input.extend(each for each in source.input if each.name in inputs)
    outputs = {each.name for each in network.outputs}
    graph.output.extend(each for each in source.output if each.name in outputs)
    graph.sparse_initializer.extend(each for each in source.sparse_initializer if each.values.name in read)
    arrays: dict[str, OrtValue] = {}
    for name in (each.name for each in network.parameters if each.name in read):
        _give(graph, arrays, name, values[name])
    for each in source.initializer:
        if each.name not in read or each.name in values:
            continue
        if each.data_type == TensorProto.STRING or len(each.raw_data) < _WORTH_SHARING:
            graph.initializer.append(each)
        else:
            _give(graph, arrays, each.name, from_numpy(numpy_helper.to_array(each), _HOST))
    _name_outputs(proto)
    parameters = frozenset(each.name for each in network.parameters if each.name in read)
    return SessionModel(proto, inputs, arrays, parameters)


def _give(graph: onnx.GraphProto, arrays: dict[str, OrtValue], name: str, value: OrtValue) -> None:
    """Add an initialiser whose values are stored outside the model, unless it is empty."""
    size = value.tensor_size_in_bytes()
    tensor = graph.initializer.add(name=name, data_type=value.element_type(), dims=value.shape())
    if not size:
        tensor.raw_data = b""
        return
    tensor.data_location = TensorProto.EXTERNAL
    # ONNX Runtime replaces this before it looks for such a file.
    tensor.external_data.add(key="location", value="memory")
    tensor.external_data.add(key="length", value=str(size))
    arrays[name] = value


def _name_outputs(proto: onnx.ModelProto) -> None:
    """Name omitted outputs that are not optional in the operator's schema.

    ONNX Runtime rejects such a model or, for a Split, crashes the process.
    """
    opsets = {each.domain: each.version for each in proto.opset_import}
    nodes = [(node, opsets) for node in all_nodes(proto.graph.node)]
    for function in proto.functions:
        own = {each.domain: each.version for each in function.opset_import}
        nodes += [(node, {**opsets, **own}) for node in all_nodes(function.node)]
    nameless = [(node, at) for node, known in nodes for at in _left_out(node, known)]
    if not nameless:
        return
    taken = names_in(proto.graph)
    for function in proto.functions:
        taken.update((*function.input, *function.output))
        for node in all_nodes(function.node):
            taken.update(node.input, node.output, *(names_in(inner) for inner in subgraphs(node)))
    free = (name for at in itertools.count() if (name := f"levelbench.unread.{at}") not in taken)
    for (node, at), name in zip(nameless, free, strict=False):
        node.output[at] = name


def _left_out(node: onnx.NodeProto, opsets: Mapping[str, int]) -> list[int]:
    """The positions of unnamed outputs that are not optional in the schema; empty without a schema."""
    places = [at for at, name in enumerate(node.output) if not name]
    domain = "" if node.domain == "ai.onnx" else node.domain
    version = opsets.get(domain, opsets.get("ai.onnx", 0) if not domain else 0)
    if not places or not onnx.defs.has(node.op_type, version, domain):
        return []
    outputs = onnx.defs.get_schema(node.op_type, version, domain).outputs
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    return [at for at in places if outputs and outputs[min(at, len(outputs) - 1)].option != optional]


def _draws(model: onnx.ModelProto) -> bool:
    return any(each.op_type in RANDOM_OPERATORS for each in nodes_of(model))


class OnnxRuntimeModel:
    """A whole model as a function of one native value per graph input; sequences are lists, empty optionals ``None``.

    ``changes`` says which versions of the model were lowered. Raises ``UnsupportedError`` if ONNX Runtime rejects the
    model, ``UsageError`` if ONNX itself finds it invalid.
    """

    def __init__(self, model: onnx.ModelProto, device: SessionDevice, seed: Seed) -> None:
        self._device, self._seed, self._seeded = device, seed, seed.count
        self._model, self.changes = lowered(model)
        self._random = _draws(model)
        self._session = self._ready()
        given = {each.name for each in model.graph.initializer}
        self._inputs = [(each.name, _element(each.type)) for each in model.graph.input if each.name not in given]
        self._tensors_only = all(
            each.type.WhichOneof("value") == "tensor_type" for each in (*model.graph.input, *model.graph.output)
        )

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of the graph."""
        if self._random and self._seeded != self._seed.count:
            self._session, self._seeded = self._ready(), self._seed.count
        if self._tensors_only:
            return list(self._session.run(inputs))
        return _run_any(self._session, self._inputs, inputs, self._device)

    def _ready(self) -> Session:
        try:
            return Session(self._model, self._device, "the model")
        except UnsupportedError:
            try:
                onnx.checker.check_model(self._model)
            except onnx.checker.ValidationError as error:
                said = str(error).strip().splitlines()[0]
                raise UsageError("the model", f"ONNX finds it invalid: {said}", "correct it") from error
            raise


def _run_any(
    session: Session, declared: Sequence[tuple[str, int]], inputs: Sequence[Any], device: SessionDevice
) -> list[Any]:
    """Run with sequences as lists and optional values that may be absent; ``declared`` has names and element types."""
    names, values = [], []
    for (name, element), value in zip(declared, inputs, strict=True):
        # ONNX Runtime treats an optional input that is not fed as one without a value.
        if value is not None:
            names.append(name)
            values.append(pack(value, element, device) if isinstance(value, list) else value)
    return [_native(each, device) for each in session.run(values, names)]


def _native(value: OrtValue, device: SessionDevice) -> Any:
    if not value.has_value():
        return None
    return unpack(value, device) if value.is_tensor_sequence() else value


def _element(kind: onnx.TypeProto) -> int:
    """ONNX's element type of a tensor, a sequence of tensors, or an optional of these."""
    match kind.WhichOneof("value"):
        case "optional_type":
            return _element(kind.optional_type.elem_type)
        case "sequence_type":
            return _element(kind.sequence_type.elem_type)
    return int(kind.tensor_type.elem_type)


_LEVELS = {
    "optimised": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
    "unoptimised": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
}


class OnnxRuntimeExecutor(Executor):
    """A network in a session. Arrays are ``onnxruntime.OrtValue``; outputs stay on the device.

    ``parameters[name] = value`` (an OrtValue or a NumPy array) takes effect at the next call, which recreates the
    session and so takes as long as the first one. The session has copies: changing an OrtValue in place has no effect.
    """

    network: Network

    def __init__(
        self, network: Network, parameters: Mapping[str, NDArray[Any]], device: SessionDevice, seed: Seed, *, mode: str
    ) -> None:
        """Raises ``UnsupportedError`` with ONNX Runtime's own message if it rejects the network."""
        self.network, self.mode = network, mode
        self._inference, self._device, self._seed = network.for_inference, device, seed
        self._session: Session | None = None
        values = {each.name: from_numpy(np.array(parameters[each.name]), _HOST) for each in network.parameters}
        trained = [each.name for each in network.parameters if each.trainable]
        others = [name for name in values if name not in trained]
        self._values = values
        self.parameters: MutableMapping[str, Any] = _Live(values, trained, self._changed)
        self.buffers: MutableMapping[str, Any] = _Live(values, others, self._changed)
        self._random = _draws(self._inference.model)
        graph = self._inference.model.graph
        kinds = {each.name: each.type for each in (*graph.input, *graph.output)}
        self._make()
        named = [*self._inputs, *(each.name for each in self._inference.outputs)]
        self._tensors_only = all(kinds[name].WhichOneof("value") in ("tensor_type", None) for name in named)
        self._declared = [(name, _element(kinds[name])) for name in self._inputs]

    def infer(self, *inputs: Any) -> tuple[Any, ...]:
        """The network's outputs; the call is synchronous."""
        session = self._session
        if session is None or (self._random and self._seeded != self._seed.count):
            session = self._make()
        try:
            return self._run(session, inputs)
        except (native.InvalidArgument, ValueError) as error:
            require_inputs(self._inputs, len(inputs), error)
            raise

    def forward(self, *inputs: Any) -> NoReturn:
        """Raises ``UnsupportedError``: ONNX Runtime's Python package supports inference only."""
        raise self._untrainable()

    def backward(self) -> NoReturn:
        """Raises ``UnsupportedError``: ONNX Runtime's Python package supports inference only."""
        raise self._untrainable()

    def operator_times(self, *inputs: Any, repeats: int = 1) -> list[OperatorTime]:
        """From ONNX Runtime's own profiler, in whole microseconds, in a separate session.

        A fused operator has index -1 and a title that lists its parts. Raises ``UnsupportedError`` on a GPU, where the
        profiler measures launches.
        """
        if self._device.kind != "cpu":
            found = "its profiler measures launches, not the work"
            raise UnsupportedError(
                f"the time of each operator of ONNX Runtime on {self._device.kind}", found, "use cpu"
            )
        return profiled_times(self._inference, self.session_with, lambda session: self._run(session, inputs), repeats)

    def session_with(self, prepare: Preparation) -> Session:
        """Another session of the network in its current state, with further options."""
        return self._made(self._model(), prepare)

    @property
    def session(self) -> onnxruntime.InferenceSession:
        """ONNX Runtime's own session, to be called directly; it is replaced once a parameter changes."""
        return (self._session or self._make()).session

    def _run(self, session: Session, inputs: Sequence[Any]) -> tuple[Any, ...]:
        if self._tensors_only:
            return session.run(inputs, self._inputs)
        return tuple(_run_any(session, self._declared, inputs, self._device))

    def _model(self) -> SessionModel:
        return model_of(self._inference, self._values)

    def _make(self) -> Session:
        model = self._model()
        self._inputs, self._read = list(model.inputs), model.parameters
        self._seeded = self._seed.count
        self._session = self._made(model, lambda _: None)
        return self._session

    def _made(self, model: SessionModel, prepare: Preparation) -> Session:
        def options(found: onnxruntime.SessionOptions) -> None:
            found.graph_optimization_level = _LEVELS[self.mode]
            if model.arrays:
                found.add_external_initializers(list(model.arrays), list(model.arrays.values()))
            prepare(found)

        proto, _ = lowered(model.proto)
        return Session(proto, self._device, f"network {self.network.name}", prepare=options)

    def _changed(self, name: str) -> None:
        if name in self._read:
            self._session = None

    def _untrainable(self) -> UnsupportedError:
        return UnsupportedError(
            f"training {self.network.name} on ONNX Runtime",
            "its Python package supports inference only",
            "use numpy, torch or jax",
        )


class _Live(LiveMapping):
    """Some of the values, by name; an assignment notifies the executor."""

    def __init__(self, values: dict[str, OrtValue], names: Sequence[str], changed: Callable[[str], None]) -> None:
        self._values, self._names, self._tell = values, dict.fromkeys(names), changed

    def __getitem__(self, name: str) -> OrtValue:
        if name not in self._names:
            raise KeyError(name)
        return self._values[name]

    def __setitem__(self, name: str, value: OrtValue | NDArray[Any]) -> None:
        """Raises ``UnknownNameError`` for an unknown name, ``UsageError`` for another shape or type."""
        if name not in self._names:
            raise UnknownNameError("parameter", name, self._names)
        # A copy: if the caller later modifies the array, only the next session would change.
        given = from_numpy(to_numpy(value) if isinstance(value, OrtValue) else np.array(value), _HOST)
        held = self._values[name]
        for what, old, new in (
            ("shape", held.shape(), given.shape()),
            ("element type", held.element_type(), given.element_type()),
        ):
            if old != new:
                raise UsageError(
                    f"assigning to parameter {name!r}", f"its {what} is {old}, not {new}", "give the same one"
                )
        self._values[name] = given
        self._tell(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


_KERNEL = "_kernel_time"
_BLOCKED = "_nchwc"


class _Event(msgspec.Struct):
    """An entry of the profile; ``dur`` is in microseconds."""

    name: str
    cat: str = ""
    dur: int = 0
    args: dict[str, Any] = {}


class _Meaning(NamedTuple):
    """What a node of the optimised graph represents in the network."""

    place: int
    title: str
    output: str


def profiled_times(
    network: Network, make: Callable[[Preparation], Session], run: Callable[[Session], object], repeats: int
) -> list[OperatorTime]:
    """The times of ``repeats`` runs, after a warm-up run, in a session that ``make`` creates."""
    with tempfile.TemporaryDirectory(prefix="levelbench-") as folder:
        graph_file = Path(folder, "optimised.onnx")

        def prepare(options: onnxruntime.SessionOptions) -> None:
            options.enable_profiling = True
            options.profile_file_prefix = str(Path(folder, "profile"))
            options.optimized_model_filepath = str(graph_file)
            options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "arrays")

        session = make(prepare)
        for _ in range(repeats + 1):
            run(session)
        profile = session.session.end_profiling()
        runs = list(_runs(msgspec.json.decode(Path(profile).read_bytes(), type=list[_Event])))[-repeats:]
        meanings = _meanings(network, _graph(graph_file))
    times: dict[tuple[str, str], list[float]] = {}
    for events in runs:
        for event in events:
            times.setdefault((_node_of(event), event.args.get("op_name", "")), []).append(event.dur * 1e-6)
    found = []
    for (name, op_type), each in times.items():
        meaning = meanings.get(name)
        # A node inside a subgraph is part of the time of the outer node.
        if meaning is not None and len(each) == len(runs):
            found.append(OperatorTime(meaning.place, meaning.title or op_type, meaning.output, tuple(each)))
    return found


def _runs(events: Sequence[_Event]) -> Iterator[list[_Event]]:
    """The kernels of each run, in order."""
    kernels: list[_Event] = []
    for event in events:
        if event.cat == "Node" and event.name.endswith(_KERNEL):
            kernels.append(event)
        elif event.name == "model_run":
            yield kernels
            kernels = []


def _node_of(event: _Event) -> str:
    return event.name.removesuffix(_KERNEL)


def _graph(path: Path) -> onnx.GraphProto:
    try:
        return onnx.load_model(str(path), load_external_data=False).graph
    except (OSError, DecodeError):
        # A graph with compiled kernels cannot be saved; then the node names are used.
        return onnx.GraphProto()


def _meanings(network: Network, optimised: onnx.GraphProto) -> dict[str, _Meaning]:
    """What the optimised graph's nodes represent, by name."""
    nodes = network.model.graph.node
    maker = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    inputs = {each.name for each in network.inputs}
    varies = _varying(nodes, inputs)
    found: dict[str, _Meaning] = {}
    if not optimised.node:
        for at, node in enumerate(nodes):
            found[node_name(at)] = _Meaning(at, node.op_type, _first(node.output))
        return found
    covered: set[int] = set()
    for each in optimised.node:
        names = [name for name in each.output if name in maker]
        if not names and each.name.endswith(_BLOCKED):
            # A node on blocked channels has another output; its name contains the original one.
            names = [name for name in (each.name.removesuffix(_BLOCKED),) if name in maker]
        mine = _leading_to(names, nodes, maker, covered, varies)
        covered |= mine
        found[each.name] = _meaning(each, sorted(mine), nodes, names)
    return found


def _meaning(
    each: onnx.NodeProto, mine: Sequence[int], nodes: Sequence[onnx.NodeProto], names: Sequence[str]
) -> _Meaning:
    output = names[0] if names else _first(each.output)
    for at in mine:
        same = nodes[at].op_type == each.op_type and list(nodes[at].output) == list(each.output)
        # Its other predecessors were removed, like Dropout, or are computed by an equal node.
        if (same and each.name == node_name(at)) or (len(mine) == 1 and nodes[at].op_type == each.op_type):
            return _Meaning(at, each.op_type, output)
    parts = " + ".join(nodes[at].op_type for at in mine)
    return _Meaning(-1, f"{each.op_type} = {parts}" if mine else each.op_type, output)


def _leading_to(
    names: Sequence[str],
    nodes: Sequence[onnx.NodeProto],
    maker: dict[str, int],
    covered: set[int],
    varies: set[int],
) -> set[int]:
    """The nodes that compute ``names`` from what is already covered; nodes on constants only have been folded."""
    found: set[int] = set()
    waiting = list(names)
    while waiting:
        at = maker.get(waiting.pop(), -1)
        if at >= 0 and at not in covered and at not in found and at in varies:
            found.add(at)
            waiting.extend(outer_reads(nodes[at]))
    return found


def _varying(nodes: Sequence[onnx.NodeProto], inputs: set[str]) -> set[int]:
    """The nodes that depend on an input."""
    values = set(inputs)
    found = set()
    for at, node in enumerate(nodes):
        if values.intersection(outer_reads(node)):
            found.add(at)
            values.update(node.output)
    return found


def _first(names: Sequence[str]) -> str:
    return next((name for name in names if name), "")
