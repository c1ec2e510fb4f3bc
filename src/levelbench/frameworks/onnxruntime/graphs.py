"""A network as the model that a session is made of: only what its outputs need, and its arrays handed over in memory.

The one idea: arrays are no part of the text that ONNX Runtime parses, so there is no limit of 2 GiB, and they are
constants to its optimiser all the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import onnx
from onnx import TensorProto, numpy_helper
from onnxruntime import OrtValue

from levelbench.frameworks.onnxruntime.sessions import Device
from levelbench.frameworks.onnxruntime.values import from_numpy
from levelbench.networks.inspect import outer_reads
from levelbench.networks.network import Network

__all__ = ["Model", "model_of", "node_name"]

_WORTH_SHARING = 1024
_HOST = Device("cpu")


class Model(NamedTuple):
    """What a session is made of. ``inputs`` are those that the outputs depend on, in the network's order."""

    proto: onnx.ModelProto
    inputs: tuple[str, ...]
    arrays: Mapping[str, OrtValue]
    """Initialisers that are not in ``proto`` but beside it."""
    parameters: frozenset[str]
    """The parameters and buffers that the outputs depend on."""


def node_name(index: int) -> str:
    """The name of the node that is at ``index`` in ``network.nodes``; ONNX Runtime's profiler tells times by name."""
    return f"levelbench.{index}"


def model_of(network: Network, values: Mapping[str, OrtValue]) -> Model:
    """The model of ``network`` whose parameters have these ``values``."""
    source = network.model.graph
    needed, read = _needed(network)
    inputs = tuple(each.name for each in network.inputs if each.name in read)
    proto = onnx.ModelProto(ir_version=network.model.ir_version)
    proto.opset_import.extend(network.model.opset_import)
    proto.functions.extend(network.model.functions)
    graph = proto.graph
    graph.name = network.name or "network"
    for index in needed:
        graph.node.add().CopyFrom(source.node[index])
        graph.node[-1].name = node_name(index)
    # An input that has an initialiser is none here: it would keep its value from the optimiser.
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
    return Model(proto, inputs, arrays, parameters)


def _give(graph: onnx.GraphProto, arrays: dict[str, OrtValue], name: str, value: OrtValue) -> None:
    """An initialiser whose values are beside the model; one of no elements has nothing to be put there."""
    size = value.tensor_size_in_bytes()
    tensor = graph.initializer.add(name=name, data_type=value.element_type(), dims=value.shape())
    if not size:
        tensor.raw_data = b""
        return
    tensor.data_location = TensorProto.EXTERNAL
    # ONNX Runtime replaces it before it looks for such a file.
    tensor.external_data.add(key="location", value="memory")
    tensor.external_data.add(key="length", value=str(size))
    arrays[name] = value


def _name_outputs(proto: onnx.ModelProto) -> None:
    """Name the outputs that are left out where the operator's schema does not say that they may be.

    ONNX Runtime refuses such a model or, for a Split, ends the process.
    """
    opsets = {each.domain: each.version for each in proto.opset_import}
    nodes = [(node, opsets) for node in _nodes(proto.graph.node)]
    for function in proto.functions:
        own = {each.domain: each.version for each in function.opset_import}
        nodes += [(node, {**opsets, **own}) for node in _nodes(function.node)]
    nameless = [(node, at) for node, known in nodes for at in _left_out(node, known)]
    if not nameless:
        return
    taken = {each.name for each in proto.graph.input} | {each.name for each in proto.graph.initializer}
    for node, _ in nodes:
        taken.update((*node.input, *node.output))
        for graph in _subgraphs(node):
            taken.update(each.name for each in (*graph.input, *graph.output, *graph.initializer))
    for function in proto.functions:
        taken.update((*function.input, *function.output))
    free = (name for at in itertools.count() if (name := f"levelbench.unread.{at}") not in taken)
    for (node, at), name in zip(nameless, free, strict=False):
        node.output[at] = name


def _left_out(node: onnx.NodeProto, opsets: Mapping[str, int]) -> list[int]:
    """The places of outputs without a name that the schema does not call optional; none where there is no schema."""
    places = [at for at, name in enumerate(node.output) if not name]
    domain = "" if node.domain == "ai.onnx" else node.domain
    version = opsets.get(domain, opsets.get("ai.onnx", 0) if not domain else 0)
    if not places or not onnx.defs.has(node.op_type, version, domain):
        return []
    outputs = onnx.defs.get_schema(node.op_type, version, domain).outputs
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    return [at for at in places if outputs and outputs[min(at, len(outputs) - 1)].option != optional]


def _nodes(nodes: Any) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for graph in _subgraphs(node):
            yield from _nodes(graph.node)


def _subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _needed(network: Network) -> tuple[list[int], set[str]]:
    """The places of the nodes that the outputs depend on, in order, and all values that are read on the way."""
    nodes: list[Any] = list(network.model.graph.node)
    read = {each.name for each in network.outputs}
    needed = []
    for index in range(len(nodes) - 1, -1, -1):
        if read.intersection(nodes[index].output):
            needed.append(index)
            read.update(outer_reads(nodes[index]))
    return needed[::-1], read
