"""Runs a whole ONNX model with a backend's operators, node by node; arrays stay the framework's own.

Control flow, sequences, optionals and functions are the same for every framework, so they are implemented here once. An
operator that a backend lacks is expanded into the body by which ONNX defines it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import defs, helper, numpy_helper

from levelbench.errors import UnsupportedError
from levelbench.operators.contract import OperatorBackend, Value
from levelbench.operators.node import CONTRIB_DOMAIN, OPSETS, OperatorNode, in_range, structural


def has_body(node: OperatorNode) -> bool:
    """Whether the operator is defined by simpler ones: by ONNX, or here for those of ONNX Runtime."""
    if node.domain == CONTRIB_DOMAIN:
        from levelbench.operators import contrib

        return contrib.defines(node.op_type)
    schema = node.schema
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def types_of(inputs: Sequence[Value], backend: OperatorBackend) -> list[onnx.TypeProto | None]:
    """The types of the given values; ``None`` for an omitted one."""
    return [None if value is None else _type_of(value, backend) for value in inputs]


def _type_of(value: Value, backend: OperatorBackend) -> onnx.TypeProto:
    if isinstance(value, list):
        element = _type_of(value[0], backend) if value else helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None)
        return helper.make_sequence_type_proto(element)
    # Only an array whose framework does not name its dtype has to be read.
    dtype = _dtype(str(getattr(value, "dtype", "")))
    dtype = backend.host(value).dtype if dtype is None else dtype
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(dtype), [int(each) for each in value.shape])


@cache
def _dtype(name: str) -> np.dtype[Any] | None:
    """NumPy's dtype for ``float32`` or ``torch.float32``, if it has one of this name."""
    try:
        return np.dtype(name.removeprefix("torch."))
    except TypeError:
        return None


def _shape(kind: onnx.TypeProto) -> tuple[int, ...]:
    return tuple(each.dim_value for each in kind.tensor_type.shape.dim)


def body(node: OperatorNode, types: Sequence[onnx.TypeProto | None]) -> onnx.FunctionProto | None:
    """The definition at the node's opset; ``None`` if there is none for these attributes and types."""
    if node.domain == CONTRIB_DOMAIN:
        from levelbench.operators import contrib

        return contrib.definition(node, [None if each is None else _shape(each) for each in types])
    schema: Any = node.schema
    if schema.has_function:
        versions = [each for each in schema.function_opset_versions if each <= node.opset]
        text = schema.get_function_with_opset_version(max(versions)) if versions else b""
    else:
        versions = [each for each in schema.context_dependent_function_opset_versions if each <= node.opset]
        given = [each.SerializeToString() if each is not None else b"" for each in types]
        wanted = node.to_proto().SerializeToString()
        text = (
            schema.get_context_dependent_function_with_opset_version(max(versions), wanted, given) if versions else b""
        )
    return onnx.FunctionProto.FromString(text) if text else None


def instantiate(function: onnx.FunctionProto, node: OperatorNode) -> onnx.GraphProto:
    """The function's nodes as a graph, with attribute references replaced by those of ``node`` or the defaults."""
    values: dict[str, onnx.AttributeProto] = {each.name: each for each in function.attribute_proto}
    schema: defs.OpSchema | None = node.schema
    if schema is not None:
        known = schema.attributes.items()
        values.update({name: each.default_value for name, each in known if each.default_value.name})
    values.update({each.name: each for each in node.to_proto().attribute})
    graph = onnx.GraphProto()
    graph.name = function.name
    graph.node.extend(_filled(each, values) for each in function.node)
    graph.input.extend(onnx.ValueInfoProto(name=name) for name in function.input)
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in function.output)
    return graph


def _filled(node: onnx.NodeProto, values: Mapping[str, onnx.AttributeProto]) -> onnx.NodeProto:
    filled = onnx.NodeProto()
    filled.CopyFrom(node)
    del filled.attribute[:]
    for attribute in node.attribute:
        found = attribute
        if attribute.ref_attr_name:
            if attribute.ref_attr_name not in values:
                continue
            found = onnx.AttributeProto()
            found.CopyFrom(values[attribute.ref_attr_name])
            found.name = attribute.name
        elif attribute.type == onnx.AttributeProto.GRAPH:
            found = onnx.AttributeProto()
            found.CopyFrom(attribute)
            del found.g.node[:]
            found.g.node.extend(_filled(each, values) for each in attribute.g.node)
        filled.attribute.append(found)
    return filled


# ONNX's sequences and optionals, for every framework: a sequence is a Python list, an empty optional is ``None``.


Call = Callable[..., Sequence[Value]]
Constants = Mapping[str, NDArray[Any]]
"""Values that are known before a graph runs, by name."""


def _known(backend: OperatorBackend, value: Value) -> NDArray[Any]:
    """A structural value, condition or count on the host, where it may be already."""
    return value if isinstance(value, np.ndarray) else backend.host(value)


def _identity(node: OperatorNode, backend: OperatorBackend) -> Call:
    operator = backend.operator(node)
    return lambda value: (value,) if value is None or isinstance(value, list) else operator.forward(value)


def _at(backend: OperatorBackend, position: Value, sequence: list[Value]) -> int:
    return len(sequence) if position is None else int(backend.host(position).item())


def _sequence_at(_: OperatorNode, backend: OperatorBackend) -> Call:
    return lambda sequence, position: (sequence[_at(backend, position, sequence)],)


def _sequence_insert(_: OperatorNode, backend: OperatorBackend) -> Call:
    def call(sequence: list[Value], value: Value, position: Value | None = None) -> Sequence[Value]:
        longer = list(sequence)
        longer.insert(_at(backend, position, sequence), value)
        return (longer,)

    return call


def _sequence_erase(_: OperatorNode, backend: OperatorBackend) -> Call:
    def call(sequence: list[Value], position: Value | None = None) -> Sequence[Value]:
        shorter = list(sequence)
        del shorter[-1 if position is None else _at(backend, position, sequence)]
        return (shorter,)

    return call


def _get_element(node: OperatorNode, _: OperatorBackend) -> Call:
    def call(value: Value) -> Sequence[Value]:
        if value is None:
            raise UnsupportedError(f"{node.title} of an empty optional", "it has no element", "ask OptionalHasElement")
        return (value,)

    return call


def _split_to_sequence(node: OperatorNode, backend: OperatorBackend) -> Call:
    axis, keep = int(node["axis"]), bool(node["keepdims"])
    squeeze = backend.operator(OperatorNode("Squeeze", ("x", "axes"), ("y",)))

    def call(value: Value, split: Value | None = None) -> Sequence[Value]:
        sizes = _sizes(value.shape[axis], None if split is None else _known(backend, split))
        names = tuple(f"y{i}" for i in range(len(sizes)))
        operator = backend.operator(OperatorNode("Split", ("x", "split"), names, {"axis": axis}))
        parts = list(operator.forward(value, np.asarray(sizes, np.int64)))
        if split is None and not keep:
            parts = [squeeze.forward(each, np.array([axis], np.int64))[0] for each in parts]
        return (parts,)

    return call


def _sizes(length: int, split: NDArray[Any] | None) -> list[int]:
    """The sizes of the parts: all 1 by default, the given list, or equal ones plus a remainder for a scalar."""
    if split is None:
        return [1] * length
    if split.ndim:
        return [int(each) for each in split]
    size = int(split)
    return [min(size, length - start) for start in range(0, length, size)]


def _concat_from_sequence(node: OperatorNode, backend: OperatorBackend) -> Call:
    axis, new = int(node["axis"]), bool(node["new_axis"])
    unsqueeze = backend.operator(OperatorNode("Unsqueeze", ("x", "axes"), ("y",)))

    def call(sequence: list[Value]) -> Sequence[Value]:
        names = tuple(f"x{i}" for i in range(len(sequence)))
        parts = [unsqueeze.forward(each, np.array([axis], np.int64))[0] for each in sequence] if new else sequence
        operator = backend.operator(OperatorNode("Concat", names, ("y",), {"axis": axis}))
        found: Sequence[Any] = operator.forward(*parts)
        return found

    return call


_CONTAINERS: dict[str, Callable[[OperatorNode, OperatorBackend], Call]] = {
    "ConcatFromSequence": _concat_from_sequence,
    "Identity": _identity,
    "Optional": lambda _, __: lambda value=None: (value,),
    "OptionalGetElement": _get_element,
    "OptionalHasElement": lambda _, backend: lambda value=None: (backend.array(np.array(value is not None)),),
    "SequenceAt": _sequence_at,
    "SequenceConstruct": lambda _, __: lambda *values: (list(values),),
    "SequenceEmpty": lambda _, __: lambda: ([],),
    "SequenceErase": _sequence_erase,
    "SequenceInsert": _sequence_insert,
    "SequenceLength": lambda _, backend: lambda sequence: (backend.array(np.array(len(sequence), np.int64)),),
    "SplitToSequence": _split_to_sequence,
}


# ONNX's control flow (If, Loop and Scan) for every framework: only conditions and counts are read on the host.
# A subgraph sees the values around it, so only these operators are called with all values.


_SCAN_WITHOUT_BATCH = 9

Compile = Callable[[onnx.GraphProto], "Graph"]


def takes_values(node: OperatorNode) -> bool:
    """Whether the node has subgraphs, and is therefore called with the values around it first."""
    return not node.domain and node.op_type in _CONTROL


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """The names of all values that a node and its subgraphs read (including the subgraphs' own)."""
    yield from node.input
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            for inner in attribute.g.node:
                yield from reads(inner)
            yield from (each.name for each in attribute.g.output)


def _if(node: OperatorNode, backend: OperatorBackend, compile_graph: Compile) -> Call:
    branches = [compile_graph(node["else_branch"]), compile_graph(node["then_branch"])]

    def call(values: Values, condition: Value) -> Sequence[Value]:
        return branches[bool(_known(backend, condition))](dict(values))

    return call


def _loop(node: OperatorNode, backend: OperatorBackend, compile_graph: Compile) -> Call:
    body = compile_graph(node["body"])
    carried = len(body.inputs) - 2
    stack = Stack(backend)

    def call(
        values: Values, trips: Value | None = None, condition: Value | None = None, *state: Value
    ) -> Sequence[Value]:
        most = None if trips is None else int(_known(backend, trips).item())
        going = condition is None or bool(_known(backend, condition))
        collected: list[list[Any]] = [[] for _ in body.outputs[1 + carried :]]
        step = 0
        while going and (most is None or step < most):
            count = backend.array(np.array(step, np.int64))
            flag = backend.array(np.array(True))
            inner = dict(zip(body.inputs, (count, flag, *state), strict=True))
            found = body({**values, **inner})
            going = bool(backend.host(found[0]))
            state = tuple(found[1 : 1 + carried])
            for column, value in zip(collected, found[1 + carried :], strict=True):
                column.append(value)
            step += 1
        scans = [stack(column, 0, node, at) for at, column in enumerate(collected)]
        return [*state, *scans]

    return call


def _scan(node: OperatorNode, backend: OperatorBackend, compile_graph: Compile) -> Call:
    if node.opset < _SCAN_WITHOUT_BATCH:
        raise UnsupportedError("Scan of opset 8", "it scans in batches, which opset 9 removed", "convert the model")
    body, count = compile_graph(node["body"]), node["num_scan_inputs"]
    carried = len(body.inputs) - count
    scanned = len(body.outputs) - carried
    axes, turns = node.get("scan_input_axes") or [0] * count, node.get("scan_input_directions") or [0] * count
    out_axes = node.get("scan_output_axes") or [0] * scanned
    out_turns = node.get("scan_output_directions") or [0] * scanned
    stack = Stack(backend)
    takes = [backend.operator(OperatorNode("Gather", ("x", "i"), ("y",), {"axis": axis})) for axis in axes]

    def call(values: Values, *inputs: Value) -> Sequence[Value]:
        state, sequences = list(inputs[:carried]), inputs[carried:]
        length = sequences[0].shape[axes[0]]
        collected: list[list[Any]] = [[] for _ in range(scanned)]
        for step in range(length):
            at = [backend.array(np.array(length - 1 - step if turn else step, np.int64)) for turn in turns]
            parts = [take.forward(x, i)[0] for take, x, i in zip(takes, sequences, at, strict=True)]
            found = body({**values, **dict(zip(body.inputs, (*state, *parts), strict=True))})
            state = found[:carried]
            for column, value in zip(collected, found[carried:], strict=True):
                column.append(value)
        outputs = list(state)
        for at_output, (column, axis, turn) in enumerate(zip(collected, out_axes, out_turns, strict=True)):
            outputs.append(stack(column[::-1] if turn else column, axis, node, at_output))
        return outputs

    return call


_CONTROL: dict[str, Callable[[OperatorNode, OperatorBackend, Compile], Call]] = {
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
}
"""Makes a call of (the values around the node, its inputs)."""


class Stack:
    """Joins arrays along a new axis with the backend's own operators."""

    def __init__(self, backend: OperatorBackend) -> None:
        self._backend = backend
        self._unsqueeze = backend.operator(OperatorNode("Unsqueeze", ("x", "axes"), ("y",)))
        self._concat: dict[tuple[int, int], Any] = {}

    def __call__(self, arrays: Sequence[Value], axis: int, node: OperatorNode, at: int) -> Value:
        """The arrays along a new ``axis``; no arrays make an empty one, if its shape is declared."""
        if not arrays:
            return self._empty(node, at)
        key = (axis, len(arrays))
        if key not in self._concat:
            names = tuple(f"x{i}" for i in range(len(arrays)))
            self._concat[key] = self._backend.operator(OperatorNode("Concat", names, ("y",), {"axis": axis}))
        axes = np.array([axis], np.int64)
        return self._concat[key].forward(*(self._unsqueeze.forward(each, axes)[0] for each in arrays))[0]

    def _empty(self, node: OperatorNode, at: int) -> Value:
        graph = node["body"]
        first = len(graph.output) - (len(node.outputs) - _carried(node))
        declared = graph.output[first + at].type.tensor_type
        if not declared.HasField("shape") or any(not each.HasField("dim_value") for each in declared.shape.dim):
            raise UnsupportedError(
                f"{node.op_type} with no steps", "its body does not declare the output's shape", "declare it"
            )
        dtype = onnx.helper.tensor_dtype_to_np_dtype(declared.elem_type)
        shape = (0, *(each.dim_value for each in declared.shape.dim))
        return self._backend.array(np.empty(shape, dtype))


def _carried(node: OperatorNode) -> int:
    """The number of loop-carried values: the inputs of the body other than counter, condition and scanned values."""
    return len(node["body"].input) - (2 if node.op_type == "Loop" else int(node["num_scan_inputs"]))


Values = dict[str, Any]


@dataclass(frozen=True)
class Scope:
    """What the nodes of a graph share: the backend, the opset of each domain, and the model's functions."""

    backend: OperatorBackend
    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str, str], onnx.FunctionProto] = field(default_factory=dict)

    def node(self, proto: onnx.NodeProto) -> OperatorNode:
        """The node at the scope's opset for its domain.

        ``UnsupportedError`` for a domain that the model does not import or an opset that no adapter implements.
        """
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        if domain and domain not in self.opsets:
            found = "the model does not import it"
            raise UnsupportedError(f"a node of domain {domain!r}", found, "add it to opset_import")
        # Definitions in other domains do not always declare which opset of ONNX's own domain they use.
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
        """The scope inside a function, with the function's own imports."""
        return replace(self, opsets=imports_of(function.opset_import))


class Program:
    """A model as a function of native arrays: takes one value per input of its graph, returns one per output."""

    def __init__(self, model: onnx.ModelProto, backend: OperatorBackend) -> None:
        opsets = imports_of(model.opset_import)
        self._graph = Graph(model.graph, Scope(backend, opsets, functions_of(model)))
        self._inputs = [each.name for each in model.graph.input if each.name not in self._graph.constants]

    def __call__(self, inputs: Sequence[Value]) -> list[Value]:
        """The outputs of the graph."""
        return self._graph(dict(zip(self._inputs, inputs, strict=False)))


class Graph:
    """The nodes of a graph as calls, in order; a value is dropped after its last use."""

    def __init__(self, graph: onnx.GraphProto, scope: Scope, given: Constants | None = None) -> None:
        self.inputs = [each.name for each in graph.input]
        self.outputs = [each.name for each in graph.output]
        own = {*self.inputs, *(name for node in graph.node for name in node.output)}
        around = {name: value for name, value in (given or {}).items() if name not in own}
        self.constants: Values = {**around, **constants_of(graph)}
        self._native = {name: scope.backend.array(value) for name, value in constants_of(graph).items()}
        nodes = [each for each in graph.node if each.op_type != "Constant" or each.output[0] not in self.constants]
        self._steps = [Instruction(each, scope, self.constants) for each in nodes]
        self._forget = _last_uses(nodes, {*self.outputs, *self.inputs, *self._native})

    def __call__(self, values: Values) -> list[Value]:
        """The outputs for the given inputs and, in a subgraph, the values around it."""
        values = {**self._native, **values}
        for step, forget in zip(self._steps, self._forget, strict=True):
            step(values)
            for name in forget:
                values.pop(name, None)
        return [values[name] if name else None for name in self.outputs]


class Instruction:
    """One node: looks up its inputs by name, calls the operator, and stores its outputs by name."""

    def __init__(self, proto: onnx.NodeProto, scope: Scope, constants: Constants) -> None:
        self.inputs, self.outputs = list(proto.input), list(proto.output)
        node = scope.node(proto)
        self._subgraphs = takes_values(node)
        self._call = resolve(node, proto, scope, constants)

    def __call__(self, values: Values) -> None:
        """Run the node: reads its inputs from ``values`` and writes its outputs there."""
        arguments = [values[name] if name else None for name in self.inputs]
        found = self._call(values, *arguments) if self._subgraphs else self._call(*arguments)
        # An operator may return more outputs than the node names, or omit trailing optional ones.
        for name, value in zip(self.outputs, found, strict=False):
            if name:
                values[name] = value


def resolve(node: OperatorNode, proto: onnx.NodeProto, scope: Scope, constants: Constants) -> Call:
    """A node as a function of its inputs; a node with subgraphs takes the values around it first."""
    local = scope.functions.get((node.domain, node.op_type, proto.overload))
    if local is not None:
        return _function(local, node, scope)
    if takes_values(node):
        return _CONTROL[node.op_type](node, scope.backend, lambda graph: Graph(graph, scope, constants))
    if not node.domain and node.op_type in _CONTAINERS:
        return _CONTAINERS[node.op_type](node, scope.backend)
    return Primitive(node, scope, constants)


class Primitive:
    """An operator of the backend or, if it refuses, the body by which ONNX defines it."""

    def __init__(self, node: OperatorNode, scope: Scope, constants: Constants) -> None:
        self._node, self._scope = node, scope
        positions = [at for at in structural(node) if at < len(node.inputs)]
        self._bound = {at: constants[node.inputs[at]] for at in positions if node.inputs[at] in constants}
        self._read = [at for at in positions if at not in self._bound]
        self._expanded: dict[Any, Call] = {}
        self._forward: Call | None = None
        try:
            self._forward = scope.backend.operator(node).forward
        except UnsupportedError as error:
            if not has_body(node):
                raise
            self._refusal = error

    def __call__(self, *inputs: Value) -> Sequence[Value]:
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
            if not has_body(self._node):
                raise
            return self._body(inputs, error)

    def _body(self, inputs: Sequence[Value], refusal: UnsupportedError) -> Sequence[Value]:
        """The outputs by ONNX's own definition, which is expanded once for each combination of types."""
        types = types_of(inputs, self._scope.backend)
        key = tuple(each.SerializeToString() if each is not None else b"" for each in types)
        if key not in self._expanded:
            expanded = body(self._node, types)
            if expanded is None:
                raise refusal
            self._expanded[key] = _function(expanded, self._node, self._scope)
        return self._expanded[key](*inputs)


def _function(function: onnx.FunctionProto, node: OperatorNode, scope: Scope) -> Call:
    """An ONNX function as a call, with the attributes of ``node`` substituted."""
    graph = instantiate(function, node)
    program = Graph(graph, scope.within(function))
    # ONNX omits nodes from a definition if their outputs were not requested.
    made = {name for each in graph.node for name in each.output} | set(function.input)
    program.outputs = [name if name in made else "" for name in function.output]

    def call(*inputs: Value) -> Sequence[Value]:
        padded = [*inputs, *[None] * (len(function.input) - len(inputs))]
        return program(dict(zip(function.input, padded, strict=True)))

    return call


def functions_of(model: onnx.ModelProto) -> dict[tuple[str, str, str], onnx.FunctionProto]:
    """The model's own functions by domain, name and overload."""
    return {(each.domain, each.name, each.overload): each for each in model.functions}


def imports_of(imports: Sequence[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """The opset of each imported domain; ONNX's own is the empty name."""
    return {"" if each.domain == "ai.onnx" else each.domain: each.version for each in imports}


def constants_of(graph: onnx.GraphProto) -> dict[str, NDArray[Any]]:
    """What is known before the graph runs: its initialisers, and the tensors of its Constant nodes."""
    found = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and not node.domain and (value := _constant(node)) is not None:
            found[node.output[0]] = value
    return found


def _constant(node: onnx.NodeProto) -> NDArray[Any] | None:
    """The value of a Constant; ``None`` for strings and sparse tensors, and if a function's attribute is missing."""
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
    """For each node, the values that no later node or subgraph reads."""
    last = {name: at for at, node in enumerate(nodes) for name in (*reads(node), *node.output)}
    forget: list[list[str]] = [[] for _ in nodes]
    for name, at in last.items():
        if name and name not in kept:
            forget[at].append(name)
    return forget
