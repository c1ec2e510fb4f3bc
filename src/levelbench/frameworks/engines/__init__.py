"""Engines that only execute: an ONNX model in, NumPy arrays in and out, no training.

An engine is one file with a subclass of :class:`OnnxEngine`. An operator is a model of one node, a network one model
with its parameters as constants, which is how such engines are deployed. Models are compiled for the shapes and types
of the inputs of their first call, and once more for others: engines optimise for fixed shapes, and some refuse open
ones.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from levelbench.errors import DefinitionError, MissingError, UnsupportedError
from levelbench.frameworks import Float32Backend
from levelbench.networks.executor import Executor, LiveArrays, OperatorTime, require_inputs
from levelbench.networks.inspect import needed_nodes
from levelbench.networks.network import Network
from levelbench.operators.contract import Framework, Operator
from levelbench.operators.node import CUSTOM_DOMAIN, DEFAULT_OPSET, IR_VERSION, OperatorNode, structural

__all__ = ["EngineBackend", "OnnxEngine", "Run", "fixed"]

T = TypeVar("T")

Run = Callable[[Mapping[str, NDArray[Any]]], Sequence[NDArray[Any]]]
"""What an engine makes of a model: a function of its inputs by name, in the graph's order, that returns the outputs."""

_PLACE = re.compile(
    r".*:$|Exception from |Loading input model|Check '.*' failed at |While validating |\[ \w+ \]$|at \S+\.rs:"
    r"|\S+\.\w+:\d+:?$"
)
"""Lines of an error that say where in the engine's source it was found, or only that more follows."""

_MOST_MODELS = 64
"""Compiled models of one operator or network that are kept."""


class OnnxEngine(Framework):
    """What is known of an engine without importing it, and how it compiles a model.

    ``package`` is its module and ``distribution`` what pip installs: one name or several, of which the first has its
    version.
    """

    title: str
    package: str
    distribution: str
    trains = False
    modes = ("compiled",)
    operator_clock = ""
    """What :meth:`operator_times` measures with, in words; empty for an engine that does not have it."""

    @staticmethod
    @abstractmethod
    def load(path: str) -> Run:
        """Compile the model in a file, whose inputs have fixed shapes, for the CPU, in float32 where it is float32.

        It uses the engine, ``os`` and nothing else: reports of the engine's faults quote its text. Whatever it raises
        is reported as what the engine does not support, with the first line of the message. What it returns gives a
        list or tuple with an array for each output, which is checked.
        """

    @staticmethod
    def operator_times(path: str, inputs: Mapping[str, NDArray[Any]], repeats: int) -> Sequence[tuple[str, str, float]]:
        """Optional, with an ``operator_clock``: name, type and mean seconds of each operator that the engine executed.

        ``path`` is as for :meth:`load`; the mean is over ``repeats`` calls after a warm-up. Names are the engine's own.
        """
        raise NotImplementedError

    @property
    def version(self) -> str:
        """Of the engine's package, as it was installed."""
        return importlib.metadata.version(self.distribution.split()[0])

    def lacks(self, device: str = "cpu") -> str | None:
        if importlib.util.find_spec(self.package) is None:
            return f"{self.title} is not installed: pip install {self.distribution}"
        return None if device == "cpu" else f"{self.name} runs on cpu only here, not on {device}"

    def open(self, device: str = "cpu") -> EngineBackend:
        if lacking := self.lacks(device):
            remedy = lacking.partition(": ")[2] or "use --device cpu"
            raise MissingError(f"framework {self.name!r} on device {device!r}", lacking, remedy)
        return EngineBackend(self)

    def compiled(self, model: onnx.ModelProto, what: str) -> Run:
        """:meth:`load`, and ``UnsupportedError`` for what the engine refuses, then or when it runs."""
        run = self.with_file(model, what, self.load)
        count = len(model.graph.output)

        def checked(inputs: Mapping[str, NDArray[Any]]) -> Sequence[NDArray[Any]]:
            try:
                found = run(inputs)
            except Exception as error:
                raise self._refusal(what, error) from error
            if not isinstance(found, list | tuple) or len(found) != count or type(None) in map(type, found):
                raise _malformed(what, self, found, count)
            return found

        return checked

    def with_file(self, model: onnx.ModelProto, what: str, use: Callable[[str], T]) -> T:
        """What ``use`` makes of a file with the model; ``UnsupportedError`` for whatever it raises."""
        with tempfile.TemporaryDirectory(prefix="levelbench-") as folder:
            file = Path(folder) / "model.onnx"
            file.write_bytes(model.SerializeToString())
            # Each engine has exceptions of its own, of which nothing is known here.
            try:
                return use(str(file))
            except Exception as error:
                raise self._refusal(what, error) from error

    def _refusal(self, what: str, error: Exception) -> UnsupportedError:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        said = next((line for line in lines if not _PLACE.match(line)), lines[-1])
        return UnsupportedError(f"{what} on {self.title}", said[:200].rstrip(". "), "use another framework")


class _Compiled:
    """A model as a function; ``make`` gives it for inputs of certain shapes and types."""

    def __init__(
        self, engine: OnnxEngine, what: str, make: Callable[[Mapping[str, NDArray[Any]]], onnx.ModelProto]
    ) -> None:
        self._engine, self._what, self._make = engine, what, make
        self._ready: dict[tuple[Any, ...], Run] = {}

    def __call__(self, inputs: Mapping[str, NDArray[Any]]) -> Sequence[NDArray[Any]]:
        shapes = tuple([(each.shape, each.dtype.num) for each in inputs.values()])
        run = self._ready.get(shapes)
        if run is None:
            while len(self._ready) >= _MOST_MODELS:
                self._ready.pop(next(iter(self._ready)))
            run = self._ready[shapes] = self._engine.compiled(self._make(inputs), self._what)
        return run(inputs)


class _EngineOperator(Operator):
    """A node as a model of its own."""

    def __init__(self, node: OperatorNode, engine: OnnxEngine) -> None:
        self.node, self._engine = node, engine
        self._constant = frozenset(structural(node))
        self._models: dict[tuple[Any, ...], _Compiled] = {}

    def forward(self, *inputs: Any) -> tuple[Any, ...]:
        given = [at for at, each in enumerate(inputs) if each is not None]
        # With constants only, the engine would compute the result when it compiles.
        constants = [at for at in given if at in self._constant] if not self._constant.issuperset(given) else []
        fed = [at for at in given if at not in constants]
        key = (tuple(given), *[(at, inputs[at].shape, inputs[at].tobytes()) for at in constants])
        if key not in self._models:
            if len(self._models) >= _MOST_MODELS:
                self._models.clear()
            held = {at: np.array(inputs[at]) for at in constants}
            self._models[key] = _Compiled(self._engine, self.node.title, lambda fresh: self._model(held, fresh))
        found = iter(self._models[key]({f"x{at}": inputs[at] for at in fed}))
        return tuple([next(found) if name else None for name in self.node.outputs])

    def backward(self, gradients: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> NoReturn:
        """Raises ``UnsupportedError``: the engine only executes."""
        raise _untrainable(f"the gradient of {self.node.title}", self._engine)

    def _model(self, held: Mapping[int, NDArray[Any]], values: Mapping[str, NDArray[Any]]) -> onnx.ModelProto:
        node, proto = self.node, self.node.to_proto()
        known = {*values, *(f"x{at}" for at in held)}
        last = max((int(name[1:]) for name in known), default=-1)
        names = [name if (name := f"x{at}") in known else "" for at in range(last + 1)]
        outputs = [f"y{at}" if name else "" for at, name in enumerate(node.outputs)]
        del proto.input[:], proto.output[:]
        proto.input.extend(names)
        proto.output.extend(outputs)
        graph = helper.make_graph(
            [proto],
            node.op_type,
            [_declared(name, value) for name, value in values.items()],
            [onnx.ValueInfoProto(name=name) for name in outputs if name],
            [numpy_helper.from_array(value, names[at]) for at, value in held.items()],
        )
        imports = [helper.make_opsetid(node.domain, node.opset)]
        if node.domain:
            imports.append(helper.make_opsetid("", DEFAULT_OPSET))
        return helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION)


class _EngineExecutor(Executor):
    """A network with its parameters as constants: assigning one compiles it again at the next call."""

    network: Network

    def __init__(self, network: Network, parameters: Mapping[str, NDArray[Any]], engine: OnnxEngine, mode: str) -> None:
        self.network, self.mode, self._engine = network, mode, engine
        self._inference = network.for_inference
        values = {each.name: np.array(parameters[each.name]) for each in network.parameters}
        trained = {each.name for each in network.parameters if each.trainable}
        self._compiled = _Compiled(engine, f"network {network.name}", self._model)
        kept, others = ({name: values[name] for name in values if (name in trained) is own} for own in (True, False))
        self.parameters: MutableMapping[str, Any] = _Watched(kept, self._again)
        self.buffers: MutableMapping[str, Any] = _Watched(others, self._again)
        graph = self._inference.model.graph
        _, read = needed_nodes(graph, [each.name for each in self._inference.outputs])
        self._inputs = [each.name for each in self._inference.inputs if each.name in read]

    def infer(self, *inputs: Any) -> tuple[Any, ...]:
        if len(inputs) != len(self._inputs):
            require_inputs(self._inputs, len(inputs), ValueError("wrong number of inputs"))
        return tuple(self._compiled(dict(zip(self._inputs, inputs, strict=True))))

    def operator_times(self, *inputs: Any, repeats: int = 1) -> list[OperatorTime]:
        """One value each, by the engine's own clock; its operators are no nodes, since it fuses and splits them."""
        engine = self._engine
        if not engine.operator_clock:
            return super().operator_times(*inputs, repeats=repeats)
        given = dict(zip(self._inputs, inputs, strict=True))
        found = engine.with_file(
            self._model(given),
            f"the time of each operator of {self.network.name}",
            lambda path: engine.operator_times(path, given, repeats),
        )
        # A name that is one of the network's may stand for more than that node, so none passes for the network's.
        return [OperatorTime(-1, kind, f"{name} in {engine.title}", (each,)) for name, kind, each in found]

    def forward(self, *inputs: Any) -> NoReturn:
        """Raises ``UnsupportedError``: the engine only executes."""
        raise _untrainable(f"training {self.network.name}", self._engine)

    def backward(self) -> NoReturn:
        """Raises ``UnsupportedError``: the engine only executes."""
        raise _untrainable(f"training {self.network.name}", self._engine)

    def _again(self) -> None:
        self._compiled = _Compiled(self._engine, f"network {self.network.name}", self._model)

    def _model(self, inputs: Mapping[str, NDArray[Any]]) -> onnx.ModelProto:
        model = self._inference.stored({**self.parameters, **self.buffers}).copied()
        outputs = [each.name for each in self._inference.outputs]
        return fixed(model, inputs, outputs)


class _Watched(LiveArrays):
    """Arrays of a network that tell of each assignment."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]], tell: Callable[[], None]) -> None:
        super().__init__(arrays)
        self._tell = tell

    def replaced(self, name: str, held: Any, value: Any) -> Any:
        self._tell()
        return super().replaced(name, held, value)


def fixed(
    model: onnx.ModelProto, inputs: Mapping[str, NDArray[Any]], outputs: Sequence[str] | None = None
) -> onnx.ModelProto:
    """The part of a model that ``outputs`` need, with the shapes of these ``inputs`` and no other shape declared."""
    graph = model.graph
    wanted = [each.name for each in graph.output] if outputs is None else list(outputs)
    needed, read = needed_nodes(graph, wanted)
    nodes = [graph.node[at] for at in needed]
    held = [each for each in graph.initializer if each.name in read]
    types = {each.name: each.type for each in graph.output}
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for part in (made.graph.node, made.graph.input, made.graph.output, made.graph.initializer, made.graph.value_info):
        del part[:]
    made.graph.node.extend(nodes)
    made.graph.initializer.extend(held)
    made.graph.input.extend(_declared(name, value) for name, value in inputs.items())
    for name in wanted:
        made.graph.output.append(onnx.ValueInfoProto(name=name))
        if types[name].WhichOneof("value") == "tensor_type":
            made.graph.output[-1].type.tensor_type.elem_type = types[name].tensor_type.elem_type
    return made


def _declared(name: str, value: NDArray[Any]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


def _malformed(what: str, engine: OnnxEngine, found: Any, count: int) -> DefinitionError:
    held = (
        f" of {', '.join(type(each).__name__ for each in found) or 'nothing'}" if type(found) in (list, tuple) else ""
    )
    answer = "None" if found is None else f"a {type(found).__name__}{held}"
    do = f"return a list of {count} array{'s' if count > 1 else ''}, one for each output"
    return DefinitionError(f"{what} on {engine.title}", f"the function that load returned gave {answer}", do)


def _untrainable(asked: str, engine: OnnxEngine) -> UnsupportedError:
    return UnsupportedError(f"{asked} on {engine.title}", "it only executes", "use numpy, torch or jax")


class EngineBackend(Float32Backend):
    """An engine on the CPU; its arrays are NumPy's."""

    any_opset = True
    modes = OnnxEngine.modes

    def __init__(self, engine: OnnxEngine) -> None:
        self._engine = engine

    def operator(self, node: OperatorNode) -> Operator:
        if node.domain == CUSTOM_DOMAIN:
            found = f"{self._engine.title} has only operators of its own"
            raise UnsupportedError(f"custom operator {node.op_type}", found, "use numpy, torch or jax")
        return _EngineOperator(node, self._engine)

    def array(self, host: NDArray[Any]) -> Any:
        # Not "isbuiltin == 1": that is 0 of a dtype that came through pickle.
        if host.dtype.kind in "OSUTVc" or host.dtype.isbuiltin == 2:
            found = "only the types of numbers that NumPy has are passed"
            raise UnsupportedError(f"an array of {host.dtype} on {self._engine.title}", found, "use float32")
        return np.array(host, host.dtype.newbyteorder("="), order="C")

    def host(self, array: Any) -> NDArray[Any]:
        return np.array(array)

    def memory(self, array: Any) -> NDArray[Any] | None:
        found: NDArray[Any] = array
        return found

    def executor_of(
        self, network: Network, parameters: Mapping[str, NDArray[Any]], mode: str, trains: bool
    ) -> Executor:
        return _EngineExecutor(network, parameters, self._engine, mode)

    def model(self, model: onnx.ModelProto) -> Callable[[Sequence[Any]], list[Any]]:
        """The whole model, compiled for the inputs of each call; sequences and optional values are refused."""
        held = {each.name for each in model.graph.initializer}
        names = [each.name for each in model.graph.input if each.name not in held]
        kinds = {each.type.WhichOneof("value") for each in (*model.graph.input, *model.graph.output)}
        if kinds - {"tensor_type", None}:
            found = "it has sequences or optional values, and only tensors are passed"
            raise UnsupportedError(f"the model on {self._engine.title}", found, "use another framework")
        compiled = _Compiled(self._engine, "the model", lambda inputs: fixed(model, inputs))
        return lambda inputs: list(compiled(dict(zip(names, inputs, strict=True))))

    def take(self, array: Any, indices: Any) -> Any:
        return array[indices]

    def mean(self, scalars: Sequence[Any]) -> float:
        return float(np.mean([np.asarray(each, np.float64) for each in scalars]))

    def describe(self) -> dict[str, Any]:
        """The engine's version and device."""
        engine = self._engine
        clock = {"operator_clock": engine.operator_clock} if engine.operator_clock else {}
        return {"name": engine.name, "version": engine.version, "device": "cpu", "deterministic": True, **clock}
