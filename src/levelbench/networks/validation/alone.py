"""One node of a network as a network of its own, fed with given values.

The one idea: whether an operator is wrong, or was given inputs that were off already, is told by running it alone on
the reference's inputs, by the same executor as the whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from levelbench.networks.network import Network
from levelbench.networks.values import Parameter, element_type
from levelbench.operators.node import OperatorNode, structural
from levelbench.operators.program import reads

__all__ = ["Alone", "node_alone", "reads_of"]

Host = NDArray[Any]


@dataclass(frozen=True)
class Alone:
    """A network of one node, with values for its inputs and parameters."""

    network: Network
    inputs: Mapping[str, Host]
    parameters: Mapping[str, Host]


def reads_of(network: Network, index: int) -> list[str]:
    """Names of the values of the top graph that a node reads, those that its subgraphs read included."""
    graph = network.model.graph
    made = {name for node in graph.node for name in node.output}
    made |= {each.name for each in (*graph.input, *graph.initializer)}
    return [name for name in dict.fromkeys(reads(graph.node[index])) if name and name in made]


def node_alone(
    network: Network,
    index: int,
    values: Mapping[str, Host],
    *,
    outputs: Sequence[str] = (),
    differentiated: Sequence[str] = (),
) -> Alone:
    """The node at ``index`` with all that it reads from ``values``.

    What it reads at structural positions is stored, so that every framework knows it beforehand; those of
    ``differentiated`` are trainable parameters; the rest are inputs. ``outputs``: default all that it names.
    """
    proto = network.model.graph.node[index]
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    fixed = structural(OperatorNode(proto.op_type, (), (), {}, domain))
    stored = {name for at, name in enumerate(proto.input) if at in fixed}
    graph = onnx.GraphProto(name=f"{network.name}, node {index}")
    graph.node.append(proto)
    inputs: dict[str, Host] = {}
    parameters: dict[str, Host] = {}
    for name in reads_of(network, index):
        value = np.asarray(values[name])
        if name in stored:
            graph.initializer.append(_tensor(value, name))
        elif name in differentiated:
            parameters[name] = value
            graph.initializer.append(_tensor(value, name))
        else:
            inputs[name] = value
            graph.input.append(helper.make_tensor_value_info(name, element_type(value.dtype.name), value.shape))
    wanted = outputs or [name for name in proto.output if name]
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted)
    model = onnx.ModelProto(ir_version=network.model.ir_version, graph=graph)
    model.opset_import.extend(network.model.opset_import)
    model.functions.extend(network.model.functions)
    roles = [Parameter(name, value.shape, value.dtype.name) for name, value in parameters.items()]
    return Alone(Network(model, roles), inputs, parameters)


def _tensor(value: Host, name: str) -> onnx.TensorProto:
    return numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), name)
