"""ONNX Runtime trains: by the graph of gradients that the package onnxruntime-training makes of a network.

That package takes the place of ``onnxruntime``, under the same name. Arrays are NumPy's, so optimizers and everything
beside the network are those of framework ``numpy``; loss, gradients and outputs are those of two sessions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from levelbench.errors import DefinitionError, UnsupportedError
from levelbench.frameworks import no_forward
from levelbench.frameworks.numpy.backend import NumpyBackend
from levelbench.frameworks.onnxruntime.sessions import (
    FATAL,
    RANDOM_OPERATORS,
    REFUSALS,
    Session,
    SessionDevice,
    lowered,
    nodes_of,
    refusal,
)
from levelbench.networks.executor import Executor, LiveArrays, require_inputs
from levelbench.networks.inspect import captured, needed_nodes, random_values
from levelbench.networks.network import Network
from levelbench.networks.shapes import infer_shapes
from levelbench.networks.values import Value
from levelbench.operators.contract import Operator
from levelbench.operators.node import OperatorNode

Host = NDArray[Any]
_READ = {"LayerNormalization": 3, "SoftmaxCrossEntropyLoss": 2}
"""How many outputs the gradient of an operator needs."""
# fmt: off
_RIGHT = frozenset({
    "Abs", "Add", "BatchNormalization", "Cast", "Clip", "Concat", "Conv", "Cos", "Div", "Erf", "Exp", "Expand",
    "Flatten", "Gather", "GatherElements", "GatherND", "Gelu", "Gemm", "GlobalAveragePool", "Identity",
    "LayerNormalization", "LeakyRelu", "Log", "LogSoftmax", "MatMul", "Max", "MaxPool", "Min", "Mul", "Neg", "Pad",
    "Pow", "Reciprocal", "ReduceL2", "ReduceLogSumExp", "ReduceMean", "ReduceSum", "Relu", "Reshape",
    "ScatterElements", "ScatterND", "Sigmoid", "Sin", "Slice", "Softmax", "SoftmaxCrossEntropyLoss", "Split",
    "Sqrt", "Squeeze", "Sub", "Tanh", "Tile", "TopK", "Transpose", "Trilu", "Unsqueeze", "Where",
})
# fmt: on
"""Operators whose gradients were found equal to the reference's, but for what :func:`_wrong` says.

Of others some gradients are wrong without a word: AveragePool's where the batch is open (it may also end the process).
"""
# fmt: off
_FLAT = frozenset({
    "And", "ArgMax", "ArgMin", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual",
    "NonZero", "Not", "Or", "Shape", "Size", "Xor",
})
# fmt: on
"""Operators through which nothing is differentiated."""
_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE, onnx.TensorProto.BFLOAT16)


class TrainingBackend(NumpyBackend):
    """NumPy's arrays, and networks in sessions of ONNX Runtime with all of its optimisations of graphs."""

    modes = ("optimised",)

    def executor_of(self, network: Network, parameters: Mapping[str, Host], mode: str, trains: bool) -> Executor:
        return TrainingExecutor(network, parameters, mode=mode)

    def operator(self, node: OperatorNode) -> Operator:
        """Refused: framework ``onnxruntime`` has the same kernels."""
        raise UnsupportedError(f"{node.title} on onnxruntime-training", "it executes whole networks", "use onnxruntime")

    def describe(self) -> dict[str, Any]:
        """The version of ONNX Runtime."""
        return {"name": "onnxruntime-training", "version": onnxruntime.__version__, "device": "cpu"}


class TrainingExecutor(Executor):
    """A network in two sessions, which are made at the first call of each: one of outputs, one of loss and gradients.

    Parameters are inputs of both, so that a step need not make a session.
    """

    network: Network
    parameters: LiveArrays
    buffers: LiveArrays

    def __init__(self, network: Network, parameters: Mapping[str, Host], *, mode: str) -> None:
        self.network, self.mode = network, mode
        trained = {each.name for each in network.parameters if each.trainable}
        copies = {name: np.array(array) for name, array in parameters.items()}
        self.parameters = LiveArrays({name: array for name, array in copies.items() if name in trained})
        self.buffers = LiveArrays({name: array for name, array in copies.items() if name not in trained})
        self._outputs: _Run | None = None
        self._step: _Run | None = None
        self._gradients: dict[str, Host] | None = None

    def infer(self, *inputs: Host) -> tuple[Host, ...]:
        if self._outputs is None:
            proto = self.network.for_inference.to_proto()
            self._outputs = _Run(self.network, proto, [each.name for each in self.network.for_inference.outputs])
        return tuple(self._outputs(self, inputs))

    def forward(self, *inputs: Host) -> Host:
        """The loss; the gradients are computed in the same call. Raises ``UnsupportedError`` as the session's maker."""
        if self._step is None:
            self._step = self._differentiated()
        loss, *found = self._step(self, inputs)
        news, gradients = found[: len(self.network.updates)], found[len(self.network.updates) :]
        for buffer, value in zip(self.network.updates, news, strict=True):
            self.buffers.arrays[buffer] = value
        held = dict(zip(self._step.outputs[1 + len(news) :], gradients, strict=True))
        arrays = self.parameters.arrays
        self._gradients = {name: held.get(f"{name}_grad", np.zeros_like(arrays[name])) for name in arrays}
        return loss

    def backward(self) -> Mapping[str, Host]:
        """The gradients of the last forward pass; zero for a parameter that the loss does not depend on."""
        gradients, self._gradients = self._gradients, None
        if gradients is None:
            raise no_forward()
        return gradients

    def _differentiated(self) -> _Run:
        network = self.network
        if not network.loss:
            raise DefinitionError(f"training {network.name}", "it has no loss", "add one with network.with_loss()")
        proto, shapes = network.to_proto(), infer_shapes(network)
        drawing = random_values(proto.graph)
        _simplify(proto.graph, shapes, drawing)
        if drawing:
            drawn = sorted({each.op_type for each in nodes_of(proto)} & RANDOM_OPERATORS)
            raise _refused(network, f"{drawn[0]} would draw from a generator of its own")
        if (kind := shapes[network.loss].dtype) not in ("float32", ""):
            raise _refused(network, f"its loss is {kind}, and gradients begin in float32")
        trained = _trained(network, proto.graph, list(self.parameters), shapes)
        _name_once(proto.graph, {each.name for each in network.parameters})
        for node in proto.graph.node:
            # Gradients read these outputs, although ONNX lets a model leave them out.
            for at in range(len(node.output), _READ.get(node.op_type, 0)):
                node.output.append(f"{node.output[0]}.{at}")
        graph = _with_gradients(network, proto, trained) if trained else proto
        gradients = [f"{name}_grad" for name in trained]
        return _Run(network, graph, [network.loss, *network.updates.values(), *gradients])


class _Run:
    """A session whose inputs are a network's inputs, parameters and buffers."""

    def __init__(self, network: Network, proto: onnx.ModelProto, outputs: Sequence[str]) -> None:
        self.outputs = list(outputs)
        proto, _ = lowered(proto, _RIGHT | _FLAT)
        graph, held = proto.graph, {each.name for each in network.parameters}
        # Without what nobody asks for: labels of an inference, sums of gradients over several calls.
        needed, read = needed_nodes(graph, self.outputs)
        nodes = [graph.node[at] for at in sorted(needed)]
        del graph.node[:]
        graph.node.extend(nodes)
        for each in [each for each in graph.input if each.name not in read]:
            graph.input.remove(each)
        declared = {each.name: each for each in (*graph.input, *graph.output, *graph.value_info)}
        _feed(graph, held)
        del graph.output[:]
        graph.output.extend(declared.get(name, onnx.ValueInfoProto(name=name)) for name in self.outputs)
        self._asked = f"training {network.name}"
        self._session = Session(proto, SessionDevice("cpu"), self._asked).session
        names = [each.name for each in self._session.get_inputs()]
        self._held = [name for name in names if name in held]
        self._given = [each.name for each in network.inputs if each.name in names]

    def __call__(self, executor: TrainingExecutor, inputs: Sequence[Host]) -> list[Any]:
        require_inputs(self._given, len(inputs))
        parameters, buffers = executor.parameters.arrays, executor.buffers.arrays
        feeds = dict(zip(self._given, inputs, strict=True))
        feeds |= {name: parameters[name] if name in parameters else buffers[name] for name in self._held}
        try:
            found: list[Any] = self._session.run(self.outputs, feeds)
        except REFUSALS as error:
            raise refusal(self._asked, error) from error
        return found


def _feed(graph: onnx.GraphProto, names: set[str]) -> None:
    """Make these initialisers inputs."""
    given = {each.name for each in graph.input}
    for each in [each for each in graph.initializer if each.name in names]:
        graph.initializer.remove(each)
        if each.name not in given:
            graph.input.append(onnx.helper.make_tensor_value_info(each.name, each.data_type, list(each.dims)))


def _trained(
    network: Network, graph: onnx.GraphProto, parameters: Sequence[str], shapes: Mapping[str, Value]
) -> list[str]:
    """The parameters that the loss depends on; ``UnsupportedError`` where a gradient on the way would be wrong."""
    needed, _ = needed_nodes(graph, [network.loss])
    moving, path = set(parameters), list[tuple[onnx.NodeProto, list[int]]]()
    for at in needed:
        node = graph.node[at]
        places = [place for place, name in enumerate(node.input) if name in moving]
        if node.op_type == "BatchNormalization" and _attribute(node, "training_mode", 0):
            places = [place for place in places if place < 3]  # the statistics are those of the batch
        inside = moving.intersection(captured(node))
        if not (places or inside) or node.op_type in _FLAT or _attribute(node, "to", _FLOATS[0]) not in _FLOATS:
            continue
        if inside or node.domain not in ("", "ai.onnx") or node.op_type not in _RIGHT:
            raise _refused(network, f"its gradient of {node.op_type} is missing, or not known to be right")
        # Of these two the second is of indices.
        moving.update(node.output[:1] if node.op_type in ("MaxPool", "TopK") else node.output)
        moving.discard("")
        path.append((node, places))
    reaching = {network.loss}
    for node, places in reversed(path):
        if reaching.isdisjoint(node.output):
            continue
        reaching.update(node.input[place] for place in places)
        if node.op_type == "Split" and not reaching.issuperset(node.output):
            found = "an output that the loss does not depend on"
        elif node.op_type != "Split" and not reaching.isdisjoint(node.output[1:]):
            found = "more outputs than its first"
        else:
            found = _wrong(node, places, shapes, parameters)
        if found:
            raise _refused(network, f"its gradient of {node.op_type} would be wrong or missing with {found}")
    return [name for name in parameters if name in reaching]


def _wrong(node: onnx.NodeProto, places: Sequence[int], shapes: Mapping[str, Value], parameters: Sequence[str]) -> str:
    """What makes the gradients to the inputs at these places wrong or impossible, or nothing."""
    kind, unknown = node.op_type, Value("", "", None)
    values = [shapes.get(name, unknown) for name in node.input]
    made = shapes.get(node.output[0], unknown).shape
    if kind in ("Clip", "Pad", "Pow", "SoftmaxCrossEntropyLoss") and places != [0]:
        return "another trained input than its first"
    if kind in ("Pow", "Where") and (made is None or any(values[place].shape != made for place in places)):
        return "an input that is broadcast"
    if kind == "Pow" and values[1].dtype != values[0].dtype:
        return "an exponent of another type"
    if kind.startswith("Reduce"):
        empty = len(node.input) < 2 or values[1].shape == (0,)
        if empty and _attribute(node, "noop_with_empty_axes", 0):
            return "noop_with_empty_axes"
        if made == () and kind in ("ReduceL2", "ReduceLogSumExp"):
            return "a result without axes"
    return _wrong_layer(node, places, values, parameters)


def _wrong_layer(
    node: onnx.NodeProto, places: Sequence[int], values: Sequence[Value], parameters: Sequence[str]
) -> str:
    """The same for products, windows and normalisation."""
    kind, shapes = node.op_type, [each.shape for each in values]
    if kind == "MatMul" and () in [(each or (0, 0))[1:] for each in shapes] and len(shapes[1] or ()) != 2:
        return "a vector"
    if kind == "Gemm":
        if 2 in places and not shapes[2]:
            return "a bias without axes"
        factors = [_attribute(node, "alpha", 1.0), _attribute(node, "beta", 1.0) if 2 in places else 1.0]
        if 0.0 in factors:
            return "a factor of 0"
    if kind == "Conv" and _attribute(node, "auto_pad", b"NOTSET") in (b"SAME_UPPER", b"SAME_LOWER"):
        return "auto_pad"
    if kind == "Pad":
        if (mode := _attribute(node, "mode", b"constant")) != b"constant":
            return f"mode {mode.decode()!r}"
        if len(node.input) > 3 and node.input[3]:
            return "axes"
    if kind.startswith("Scatter") and _attribute(node, "reduction", b"none") != b"none":
        return "a reduction"
    if kind == "LeakyRelu" and _attribute(node, "alpha", 0.01) < 0:
        return "a negative alpha"
    if kind == "BatchNormalization" and not _attribute(node, "training_mode", 0):
        return "fixed statistics: it takes the batch's"
    if kind == "LayerNormalization" and len(node.input) < 3:
        return "no bias"
    if kind == "MaxPool" and _attribute(node, "storage_order", 0):
        return "storage_order 1"
    if kind == "MaxPool" and node.input[0] in parameters:
        return "a parameter as its input: it ends the process"
    return ""


def _attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    return next((onnx.helper.get_attribute_value(each) for each in node.attribute if each.name == name), default)


def _simplify(graph: onnx.GraphProto, shapes: Mapping[str, Value], drawing: set[str]) -> None:
    """Write the graph as the package can differentiate it."""
    for node in graph.node:
        if node.op_type == "Dropout" and node.output[0] not in drawing and not any(node.output[1:]):
            node.op_type = "Identity"
            del node.attribute[:], node.input[1:], node.output[1:]
        elif node.op_type == "Transpose" and not node.attribute:
            shape = shapes[node.input[0]].shape
            if shape is not None:
                # The axes in reverse, which it does not find by itself.
                perm = list(range(len(shape)))[::-1]
                node.attribute.append(onnx.helper.make_attribute("perm", perm, None, onnx.AttributeProto.INTS))
        elif node.op_type == "LayerNormalization" and not any(node.input[2:]):
            scale = shapes[node.input[1]]
            if scale.shape is not None and scale.sizes is not None:
                # Its gradient without a bias would be wrong.
                del node.input[2:]
                zeros = onnx.numpy_helper.from_array(np.zeros(scale.sizes, scale.dtype), f"{node.output[0]}.bias")
                graph.initializer.append(zeros)
                node.input.append(zeros.name)
    _expand_gelu(graph)


def _name_once(graph: onnx.GraphProto, parameters: set[str]) -> None:
    """Give a node that reads a value twice a second name of it: each input has a gradient, named after the input."""
    constants = {each.name: each for each in graph.initializer}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for at, name in enumerate(node.input):
            new = f"{node.output[0]}.input{at}"
            if name and name in node.input[:at]:
                nodes.append(onnx.helper.make_node("Identity", [name], [new]))
                node.input[at] = new
            elif node.op_type == "LayerNormalization" and name in constants and name not in parameters:
                # Its scale and bias have gradients that nobody asks for, and may be those of other nodes, too.
                graph.initializer.add().CopyFrom(constants[name])
                graph.initializer[-1].name = node.input[at] = new
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


def _expand_gelu(graph: onnx.GraphProto) -> None:
    """Put Gelu's approximation by tanh in simpler operators: the gradient would be that without the approximation."""
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        if node.op_type != "Gelu" or node.domain or _attribute(node, "approximate", b"none") != b"tanh":
            nodes.append(node)
            continue
        (x,), (y,) = node.input, node.output
        half, cubic, root, one = (
            _constant(graph, f"{y}.{name}", value)
            for name, value in (("half", 0.5), ("cubic", 0.044715), ("root", np.sqrt(2 / np.pi)), ("one", 1.0))
        )
        steps = [
            ("Mul", x, x, "square"),
            ("Mul", f"{y}.square", cubic, "scaled"),
            ("Add", f"{y}.scaled", one, "factor"),
            ("Mul", x, f"{y}.factor", "cube"),
            ("Mul", f"{y}.cube", root, "angle"),
        ]
        nodes += [onnx.helper.make_node(kind, [a, b], [f"{y}.{made}"]) for kind, a, b, made in steps]
        nodes.append(onnx.helper.make_node("Tanh", [f"{y}.angle"], [f"{y}.tanh"]))
        steps = [("Add", f"{y}.tanh", one, "more"), ("Mul", f"{y}.more", half, "share")]
        nodes += [onnx.helper.make_node(kind, [a, b], [f"{y}.{made}"]) for kind, a, b, made in steps]
        nodes.append(onnx.helper.make_node("Mul", [x, f"{y}.share"], [y]))
    del graph.node[:]
    graph.node.extend(nodes)


def _constant(graph: onnx.GraphProto, name: str, value: float) -> str:
    graph.initializer.append(onnx.numpy_helper.from_array(np.array(value, np.float32), name))
    return name


def _with_gradients(network: Network, proto: onnx.ModelProto, trained: Sequence[str]) -> onnx.ModelProto:
    """The network's graph with the gradient of its loss for each of these parameters, under ``NAME_grad``."""
    # Its module onnxruntime.training would need PyTorch.
    from onnxruntime.capi._pybind_state import GradientGraphBuilder, get_optimized_model

    proto, _ = lowered(proto, _RIGHT | _FLAT)
    _feed(proto.graph, {each.name for each in network.parameters})
    options = onnxruntime.SessionOptions()
    options.log_severity_level = FATAL
    try:
        optimised = get_optimized_model(proto.SerializeToString(), set(trained), options)
        builder = GradientGraphBuilder(optimised, {network.loss}, set(trained), network.loss, options)
        builder.build()
        return onnx.load_from_string(builder.get_model())
    except (*REFUSALS, IndexError) as error:
        raise refusal(f"training {network.name}", error) from error


def _refused(network: Network, found: str) -> UnsupportedError:
    return UnsupportedError(f"{network.name} on onnxruntime-training", found, "use numpy, torch or jax")
