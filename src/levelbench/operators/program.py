"""Runs a whole ONNX model through a backend's operators, node by node; arrays stay the framework's own.

The one idea: what is not arithmetic (control flow, sequences, optionals, functions) is the same for every framework, so
it is written here once, and an operator that a backend has not is expanded into the body that ONNX defines it by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from levelbench.errors import UnsupportedError
from levelbench.operators import containers, control, functions
from levelbench.operators.contract import OperatorBackend
from levelbench.operators.node import OPSETS, OperatorNode, in_range
from levelbench.operators.structure import structural

__all__ = ["Call", "Graph", "Primitive", "Program", "Scope", "constants_of", "functions_of", "imports_of"]
__all__ += ["resolve"]

Values = dict[str, Any]
Call = Callable[..., Sequence[Any]]


@dataclass(frozen=True)
class Scope:
    """What the nodes of a graph share: the backend, the opset of each domain, the functions of the model."""

    backend: OperatorBackend
    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str, str], onnx.FunctionProto] = field(default_factory=dict)

    def node(self, proto: onnx.NodeProto) -> OperatorNode:
        """The node under the scope's opsets.

        ``UnsupportedError`` for a domain that the model does not import, and for an opset that no adapter implements.
        """
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        if domain and domain not in self.opsets:
            raise UnsupportedError(f"a node of domain {domain!r}", "the model imports none", "add it to opset_import")
        # Definitions that ONNX writes in another domain do not always say which opset of its own they use.
        opset = self.opsets.get(domain, OPSETS[-1])
        node = replace(OperatorNode.from_proto(proto, opset), domain=domain)
        if not self.backend.any_opset and not in_range(node):
            raise UnsupportedError(
                f"{node.title} of opset {opset}",
                f"opsets {OPSETS[0]} to {OPSETS[-1]} are implemented",
                "convert the model with onnx.version_converter",
            )
        return node

    def within(self, function: onnx.FunctionProto) -> Scope:
        """The scope inside a function: its own imports."""
        return replace(self, opsets=imports_of(function.opset_import))


class Program:
    """A model as a function of native arrays: one value an input of its graph, one an output."""

    def __init__(self, model: onnx.ModelProto, backend: OperatorBackend) -> None:
        opsets = imports_of(model.opset_import)
        self._graph = Graph(model.graph, Scope(backend, opsets, functions_of(model)))
        self._inputs = [each.name for each in model.graph.input if each.name not in self._graph.constants]

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of the graph."""
        return self._graph(dict(zip(self._inputs, inputs, strict=False)))


class Graph:
    """The nodes of a graph as calls, in order; a value is forgotten after its last use."""

    def __init__(self, graph: onnx.GraphProto, scope: Scope, given: Mapping[str, Any] | None = None) -> None:
        self.inputs = [each.name for each in graph.input]
        self.outputs = [each.name for each in graph.output]
        own = {*self.inputs, *(name for node in graph.node for name in node.output)}
        around = {name: value for name, value in (given or {}).items() if name not in own}
        self.constants: Values = {**around, **constants_of(graph)}
        self._native = {name: scope.backend.array(value) for name, value in constants_of(graph).items()}
        nodes = [each for each in graph.node if each.op_type != "Constant" or each.output[0] not in self.constants]
        self._steps = [Step(each, scope, self.constants) for each in nodes]
        self._forget = _last_uses(nodes, {*self.outputs, *self.inputs, *self._native})

    def __call__(self, values: Values) -> list[Any]:
        """The outputs, given the inputs and, for a subgraph, the values around it."""
        values = {**self._native, **values}
        for step, forget in zip(self._steps, self._forget, strict=True):
            step(values)
            for name in forget:
                values.pop(name, None)
        return [values[name] if name else None for name in self.outputs]


class Step:
    """One node: gathers its inputs by name, calls, and files its outputs by name."""

    def __init__(self, proto: onnx.NodeProto, scope: Scope, constants: Mapping[str, Any]) -> None:
        self.inputs, self.outputs = list(proto.input), list(proto.output)
        node = scope.node(proto)
        self._subgraphs = control.takes_values(node)
        self._call = resolve(node, proto, scope, constants)

    def __call__(self, values: Values) -> None:
        arguments = [values[name] if name else None for name in self.inputs]
        found = self._call(values, *arguments) if self._subgraphs else self._call(*arguments)
        # An operator may answer with more outputs than the node names, or leave out the last optional ones.
        for name, value in zip(self.outputs, found, strict=False):
            if name:
                values[name] = value


def resolve(node: OperatorNode, proto: onnx.NodeProto, scope: Scope, constants: Mapping[str, Any]) -> Call:
    """A node as a call of its inputs; one with subgraphs takes the values around it first."""
    local = scope.functions.get((node.domain, node.op_type, proto.overload))
    if local is not None:
        return _function(local, node, scope)
    if control.takes_values(node):
        return control.make(node, scope.backend, lambda graph: Graph(graph, scope, constants))
    if (container := containers.make(node, scope.backend)) is not None:
        return container
    return Primitive(node, proto, scope, constants)


class Primitive:
    """An operator of the backend or, where it refuses, the body by which ONNX defines it."""

    def __init__(self, node: OperatorNode, proto: onnx.NodeProto, scope: Scope, constants: Mapping[str, Any]) -> None:
        self._node, self._scope = node, scope
        positions = [at for at in structural(node) if at < len(node.inputs)]
        self._bound = {at: constants[node.inputs[at]] for at in positions if node.inputs[at] in constants}
        self._read = [at for at in positions if at not in self._bound]
        self._expanded: dict[Any, Call] = {}
        self._forward: Call | None = None
        try:
            self._forward = scope.backend.operator(node).forward
        except UnsupportedError as error:
            if not functions.has_body(node):
                raise
            self._refusal = error

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        """The outputs; structural inputs that are not on the host are read from the device."""
        if self._forward is None:
            return self._body(inputs, self._refusal)
        arguments = list(inputs)
        for at, value in self._bound.items():
            arguments[at] = value
        for at in self._read:
            if arguments[at] is not None and not isinstance(arguments[at], np.ndarray):
                arguments[at] = self._scope.backend.host(arguments[at])
        try:
            return self._forward(*arguments)
        except UnsupportedError as error:
            if not functions.has_body(self._node):
                raise
            return self._body(inputs, error)

    def _body(self, inputs: Sequence[Any], refusal: UnsupportedError) -> Sequence[Any]:
        """The outputs by ONNX's own definition, made once for the types at hand."""
        types = functions.types_of(inputs, self._scope.backend)
        key = tuple(each.SerializeToString() if each is not None else b"" for each in types)
        if key not in self._expanded:
            body = functions.body(self._node, types)
            if body is None:
                raise refusal
            self._expanded[key] = _function(body, self._node, self._scope)
        return self._expanded[key](*inputs)


def _function(function: onnx.FunctionProto, node: OperatorNode, scope: Scope) -> Call:
    """A function of ONNX as a call: its nodes with the attributes of ``node`` put in."""
    graph = functions.instantiate(function, node)
    program = Graph(graph, scope.within(function))
    # ONNX writes a definition without the nodes whose outputs were not asked for.
    made = {name for each in graph.node for name in each.output} | set(function.input)
    program.outputs = [name if name in made else "" for name in function.output]

    def call(*inputs: Any) -> Sequence[Any]:
        padded = [*inputs, *[None] * (len(function.input) - len(inputs))]
        return program(dict(zip(function.input, padded, strict=True)))

    return call


def functions_of(model: onnx.ModelProto) -> dict[tuple[str, str, str], onnx.FunctionProto]:
    """The model's own functions by domain, name and overload."""
    return {(each.domain, each.name, each.overload): each for each in model.functions}


def imports_of(imports: Any) -> dict[str, int]:
    """The opset of each domain that is imported; ONNX's own is the empty name."""
    return {"" if each.domain == "ai.onnx" else each.domain: each.version for each in imports}


def constants_of(graph: onnx.GraphProto) -> dict[str, np.ndarray[Any, Any]]:
    """What is known before the graph is run: its initialisers, and the tensors of its Constant nodes."""
    found = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and not node.domain and (value := _constant(node)) is not None:
            found[node.output[0]] = value
    return found


def _constant(node: onnx.NodeProto) -> np.ndarray[Any, Any] | None:
    """The value of a Constant; ``None`` for strings and sparse tensors, and where a function's attribute is missing."""
    (attribute,) = node.attribute or (onnx.AttributeProto(),)
    value = onnx.helper.get_attribute_value(attribute) if attribute.type else None
    match attribute.name:
        case "value":
            return numpy_helper.to_array(value)
        case "value_int" | "value_ints":
            return np.asarray(value, np.int64)
        case "value_float" | "value_floats":
            return np.asarray(value, np.float32)
    return None


def _last_uses(nodes: Sequence[onnx.NodeProto], kept: set[str]) -> list[list[str]]:
    """For each node, the values that no later one reads, those read in subgraphs included."""
    last = {name: at for at, node in enumerate(nodes) for name in (*control.reads(node), *node.output)}
    forget: list[list[str]] = [[] for _ in nodes]
    for name, at in last.items():
        if name and name not in kept:
            forget[at].append(name)
    return forget
