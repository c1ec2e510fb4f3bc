"""Checks a foreign model before anything is computed with it, and sorts its nodes.

Whatever a file claims (sizes, names, nesting, functions that call each other) is compared with its actual contents, so
that no false claim can make later code allocate, recurse or loop. Sorted nodes are left alone; others move no further
than necessary.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

import onnx
from onnx import TensorProto

from levelbench.errors import DefinitionError


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs in a node's attributes: the branches of If, the body of Loop or Scan."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def is_standard(node: onnx.NodeProto, *op_types: str) -> bool:
    """Whether a node is one of these operators of ONNX's own domain."""
    return node.domain in ("", "ai.onnx") and node.op_type in op_types


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """These nodes and the nodes of all their subgraphs."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from all_nodes(graph.node)


def names_in(graph: onnx.GraphProto) -> set[str]:
    """All names of values in a graph and the subgraphs of its nodes, none of which may be used again."""
    names = {each.name for each in (*graph.input, *graph.output, *graph.initializer)}
    for node in graph.node:
        names.update(node.input, node.output, *(names_in(inner) for inner in subgraphs(node)))
    return names


def captured(node: onnx.NodeProto) -> Iterator[str]:
    """The values around a node that its subgraphs read but do not make themselves."""
    for graph in subgraphs(node):
        own = {each.name for each in (*graph.input, *graph.initializer)}
        own |= {each.values.name for each in graph.sparse_initializer}
        own |= {name for inner in graph.node for name in inner.output}
        for inner in graph.node:
            yield from (name for name in outer_reads(inner) if name not in own)
        yield from (each.name for each in graph.output if each.name and each.name not in own)


def outer_reads(node: onnx.NodeProto) -> Iterator[str]:
    """The values around a node that it reads: its inputs, and what its subgraphs capture."""
    yield from (name for name in node.input if name)
    yield from captured(node)


def needed_nodes(
    graph: onnx.GraphProto, outputs: Iterable[str], given: Container[str] = frozenset()
) -> tuple[list[int], set[str]]:
    """The indices of the nodes that ``outputs`` depend on, in order, and the names of all values they depend on.

    Values in ``given`` need no node, even if one makes them.
    """
    made = {name: at for at, node in enumerate(graph.node) for name in node.output if name}
    found: set[int] = set()
    read: set[str] = set()
    wanted = list(outputs)
    while wanted:
        name = wanted.pop()
        if not name or name in read:
            continue
        read.add(name)
        at = made.get(name)
        if at is not None and at not in found and name not in given:
            found.add(at)
            wanted.extend(outer_reads(graph.node[at]))
    return sorted(found), read


RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)


def random_values(graph: onnx.GraphProto) -> set[str]:
    """Names of values that depend on random numbers, which differ between frameworks."""
    found: set[str] = set()
    false = {each.name for each in graph.initializer if _is_false(each)}
    for node in all_nodes(graph.node):
        if is_standard(node, "Constant") and any(_is_false(each.t) for each in node.attribute):
            false.add(node.output[0])

    def is_random(node: onnx.NodeProto) -> bool:
        drops = node.op_type == "Dropout" and len(node.input) > 2 and node.input[2] and node.input[2] not in false
        return node.op_type in RANDOM or bool(drops)

    for node in graph.node:
        if any(is_random(each) for each in all_nodes([node])) or any(name in found for name in outer_reads(node)):
            found.update(name for name in node.output if name)
    return found


def _is_false(tensor: TensorProto) -> bool:
    return tensor.data_type == TensorProto.BOOL and not any(tensor.raw_data) and not any(tensor.int32_data)


def sort_nodes(
    nodes: Any, given: Sequence[str], wanted: Sequence[str], asked: str, around: set[str] | frozenset[str] = frozenset()
) -> None:
    """Sort a repeated field of nodes in place.

    Raises ``DefinitionError`` for a value that is made twice or not at all, and for nodes in a cycle.
    """
    maker: dict[str, int] = {}
    own = set(given)
    for at, node in enumerate(nodes):
        for name in node.output:
            if name and (name in maker or name in own):
                raise DefinitionError(asked, f"the value {name!r} is made twice", "rename one of them")
            if name:
                maker[name] = at
    known = own | around
    needs = [{name for name in outer_reads(node) if name not in own} for node in nodes]
    for node, names in zip(nodes, needs, strict=True):
        for name in names:
            if name not in maker and name not in known:
                raise DefinitionError(
                    asked, f"{node.op_type} reads {name!r}, which no node makes", "complete the model"
                )
    for name in wanted:
        if name and name not in maker and name not in known:
            raise DefinitionError(asked, f"no node makes its output {name!r}", "complete the model")
    before = [{maker[name] for name in names if name in maker} for names in needs]
    if all(not earlier or max(earlier) < at for at, earlier in enumerate(before)):
        return
    order = _order(before, nodes, asked)
    moved = [onnx.NodeProto() for _ in order]
    for copy, at in zip(moved, order, strict=True):
        copy.CopyFrom(nodes[at])
    del nodes[:]
    nodes.extend(moved)


def _order(before: Sequence[set[int]], nodes: Sequence[onnx.NodeProto], asked: str) -> list[int]:
    """Kahn's algorithm (1962), taking the first ready node in the order of the file."""
    missing = [len(each) for each in before]
    readers: list[list[int]] = [[] for _ in before]
    for at, earlier in enumerate(before):
        for each in earlier:
            readers[each].append(at)
    ready = [at for at, count in enumerate(missing) if not count]
    order: list[int] = []
    while ready:
        at = heapq.heappop(ready)
        order.append(at)
        for reader in readers[at]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, reader)
    if len(order) < len(before):
        node = nodes[next(at for at, count in enumerate(missing) if count)]
        found = f"it has a cycle through {node.op_type} {(node.name or node.output[0])!r}"
        raise DefinitionError(asked, found, "remove the cycle")
    return order


_MOST_ELEMENTS = 2**40
_DEEPEST = 32
MOST_NODES = 20_000
"""The largest networks that people export have some 10,000 nodes; much larger ones take minutes to prepare."""
_MOST_EXPANDED = 2**20
_SMALL_BYTES = 1024
_REPAIR = "export the model again"

_BITS = {
    **dict.fromkeys((TensorProto.INT2, TensorProto.UINT2), 2),
    **dict.fromkeys((TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT4E2M1), 4),
    **dict.fromkeys((TensorProto.BOOL, TensorProto.INT8, TensorProto.UINT8, TensorProto.FLOAT8E8M0), 8),
    **dict.fromkeys((TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ), 8),
    **dict.fromkeys((TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ), 8),
    **dict.fromkeys((TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT16, TensorProto.UINT16), 16),
    **dict.fromkeys((TensorProto.FLOAT, TensorProto.INT32, TensorProto.UINT32), 32),
    **dict.fromkeys((TensorProto.DOUBLE, TensorProto.INT64, TensorProto.UINT64, TensorProto.COMPLEX64), 64),
    TensorProto.COMPLEX128: 128,
}
# The field that holds a type's values if they are not raw bytes, and how many entries of it an element takes.
_FIELDS: dict[int, tuple[str, float]] = {
    **{each: ("int32_data", min(1.0, bits / 8)) for each, bits in _BITS.items() if bits <= 16},
    TensorProto.INT32: ("int32_data", 1),
    TensorProto.FLOAT: ("float_data", 1),
    TensorProto.COMPLEX64: ("float_data", 2),
    TensorProto.DOUBLE: ("double_data", 1),
    TensorProto.COMPLEX128: ("double_data", 2),
    TensorProto.INT64: ("int64_data", 1),
    TensorProto.UINT32: ("uint64_data", 1),
    TensorProto.UINT64: ("uint64_data", 1),
    TensorProto.STRING: ("string_data", 1),
}


def inspect(model: onnx.ModelProto, asked: str) -> None:
    """Check the whole model, and sort its nodes in place if their order cannot be executed.

    Raises ``DefinitionError`` for ``asked``. Operators that ONNX does not know are allowed in domains that the model
    imports. All tensors must already be in the model (:mod:`levelbench.networks.files`).
    """
    _check_count(model, asked)
    for tensor in tensors_of(model, asked):
        _check_tensor(tensor, asked)
    for graph in _graphs(model, asked):
        _check_types(graph, asked)
        for sparse in graph.sparse_initializer:
            # A few bytes may claim any shape, and only ONNX Runtime supports sparse tensors.
            found = f"its initialiser {sparse.values.name!r} is a sparse tensor, which is not supported"
            raise DefinitionError(asked, found, "store it as a dense one")
    expanded_nodes(model, asked)
    for function in model.functions:
        sort_nodes(function.node, list(function.input), function.output, f"{asked}, function {function.name!r}")
    sort_graph(model.graph, set(), asked)
    try:
        # Without large arrays it is also faster.
        light = without_values(model, _is_small)
        for graph in _graphs(light, asked):
            _give_ranks(graph)
        onnx.checker.check_model(light)
    except onnx.checker.ValidationError as error:
        raise DefinitionError(asked, _first_line(error), _REPAIR) from None


def tensors_of(model: onnx.ModelProto, asked: str) -> Iterator[TensorProto]:
    """All tensors of the model: initialisers and attributes, in graphs, subgraphs and functions."""
    for graph in _graphs(model, asked):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from _dense_parts(sparse, asked)
        yield from _tensors_of_attributes(_attributes(graph.node), asked)
    for function in model.functions:
        yield from _tensors_of_attributes([*_attributes(function.node), *function.attribute_proto], asked)


def byte_size(tensor: TensorProto, asked: str) -> int:
    """The tensor's bytes as raw data; ``DefinitionError`` for strings, unknown types and absurd shapes."""
    if tensor.data_type not in _BITS:
        raise DefinitionError(asked, f"tensor {tensor.name!r} has no elements of a fixed size", _REPAIR)
    return math.ceil(_elements(tensor.dims, f"tensor {tensor.name!r}", asked) * _BITS[tensor.data_type] / 8)


def sort_graph(graph: onnx.GraphProto, around: set[str], asked: str) -> None:
    """Sort the nodes of a graph and its subgraphs; ``around`` are the values of the graphs that contain it."""
    given = [each.name for each in graph.input]
    stored = [each.name for each in graph.initializer] + [each.values.name for each in graph.sparse_initializer]
    for names, what in ((given, "input"), (stored, "initialiser")):
        if len(set(names)) < len(names):
            twice = next(name for at, name in enumerate(names) if name in names[:at])
            raise DefinitionError(
                asked, f"the graph {graph.name!r} has two {what}s called {twice!r}", "rename one of them"
            )
    known = list(dict.fromkeys([*given, *stored]))
    sort_nodes(graph.node, known, [each.name for each in graph.output], asked, around)
    inside = around | set(known) | {name for node in graph.node for name in node.output if name}
    for node in graph.node:
        for each in subgraphs(node):
            sort_graph(each, inside, asked)


def _graphs(model: onnx.ModelProto, asked: str) -> Iterator[onnx.GraphProto]:
    """The graph and all subgraphs, also of functions, without recursion, as their depth is still unchecked."""
    waiting = [(model.graph, 0)]
    waiting += [(each, 1) for function in model.functions for node in function.node for each in subgraphs(node)]
    while waiting:
        graph, depth = waiting.pop()
        if depth > _DEEPEST:
            raise DefinitionError(
                asked, f"its graphs are nested more than {_DEEPEST} levels deep", "simplify the model"
            )
        yield graph
        waiting += [(each, depth + 1) for node in graph.node for each in subgraphs(node)]


def _attributes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.AttributeProto]:
    return (attribute for node in nodes for attribute in node.attribute)


def _tensors_of_attributes(attributes: Iterable[onnx.AttributeProto], asked: str) -> Iterator[TensorProto]:
    for attribute in attributes:
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
        if attribute.HasField("sparse_tensor"):
            yield from _dense_parts(attribute.sparse_tensor, asked)
        for sparse in attribute.sparse_tensors:
            yield from _dense_parts(sparse, asked)


def _dense_parts(sparse: onnx.SparseTensorProto, asked: str) -> Iterator[TensorProto]:
    _elements(sparse.dims, f"sparse tensor {sparse.values.name!r}", asked)
    yield sparse.values
    yield sparse.indices


def _elements(dims: Sequence[int], what: str, asked: str) -> int:
    """The number of elements; a shape that is absurd apart from its zeros is refused too, because NumPy refuses it."""
    if any(size < 0 for size in dims):
        raise DefinitionError(asked, f"{what} claims the shape {tuple(dims)}", "use sizes of 0 or more")
    if math.prod(size for size in dims if size) > _MOST_ELEMENTS:
        raise DefinitionError(asked, f"{what} claims the shape {tuple(dims)}", "use at most 2**40 elements")
    return math.prod(dims)


def _check_tensor(tensor: TensorProto, asked: str) -> None:
    what = f"tensor {tensor.name!r}"
    if tensor.data_type not in _FIELDS:
        raise DefinitionError(asked, f"{what} has elements of unknown type {tensor.data_type}", _REPAIR)
    if tensor.HasField("segment"):
        raise DefinitionError(asked, f"{what} is one segment of a larger one", "store it as one tensor")
    count = _elements(tensor.dims, what, asked)
    field, each = _FIELDS[tensor.data_type]
    if tensor.HasField("raw_data") and tensor.data_type != TensorProto.STRING:
        held, expected, unit = len(tensor.raw_data), byte_size(tensor, asked), "bytes"
    else:
        held, expected, unit = len(getattr(tensor, field)), math.ceil(count * each), f"entries of {field}"
    if held != expected:
        found = f"{what} claims the shape {tuple(tensor.dims)}, {expected} {unit}, but holds {held}"
        raise DefinitionError(asked, found, _REPAIR)


def _check_types(graph: onnx.GraphProto, asked: str) -> None:
    """Check the declared types; a size of -1, which some exporters write for an unknown one, becomes unknown."""
    for info in (*graph.input, *graph.output, *graph.value_info):
        kind, depth = info.type, 0
        while (outer := kind.WhichOneof("value")) in ("sequence_type", "optional_type", "map_type"):
            inner = getattr(kind, outer)
            kind, depth = inner.value_type if outer == "map_type" else inner.elem_type, depth + 1
            if depth > _DEEPEST:
                raise DefinitionError(asked, f"the type of {info.name!r} is nested too deeply", _REPAIR)
        if outer not in ("tensor_type", "sparse_tensor_type"):
            continue
        tensor = getattr(kind, outer)
        if tensor.elem_type and tensor.elem_type not in _FIELDS:
            raise DefinitionError(asked, f"{info.name!r} has elements of unknown type {tensor.elem_type}", _REPAIR)
        for size in tensor.shape.dim:
            if size.HasField("dim_value") and size.dim_value == -1:
                size.ClearField("dim_value")
        _elements([each.dim_value for each in tensor.shape.dim], repr(info.name), asked)


def _check_count(model: onnx.ModelProto, asked: str) -> None:
    count = sum(len(graph.node) for graph in _graphs(model, asked))
    if count > MOST_NODES:
        found = f"it has {count:,} nodes, and at most {MOST_NODES:,} are supported"
        raise DefinitionError(asked, found, "repeat layers with Loop or Scan, or split the model")


def _give_ranks(graph: onnx.GraphProto) -> None:
    """Declare values of unknown rank as scalars: ONNX's checker wants a shape for each, but does not look at it."""
    for info in (*graph.input, *graph.output, *graph.value_info):
        if info.type.HasField("tensor_type") and not info.type.tensor_type.HasField("shape"):
            info.type.tensor_type.shape.SetInParent()


def expanded_nodes(model: onnx.ModelProto, asked: str) -> int:
    """The number of nodes with functions in place of their calls; refuses cyclic functions, and too many nodes."""
    bodies: dict[Any, Sequence[onnx.NodeProto]] = {
        (each.domain, each.name, each.overload): each.node for each in model.functions
    }
    if len(bodies) < len(model.functions):
        raise DefinitionError(asked, "two of its functions have the same name", "rename one of them")
    bodies[None] = model.graph.node
    calls: dict[Any, list[Any]] = {}
    sizes: dict[Any, int] = {}
    for key, body in bodies.items():
        nodes = list(all_nodes(body))
        calls[key] = [each for node in nodes if (each := (node.domain, node.op_type, node.overload)) in bodies]
        sizes[key] = len(nodes)
    try:
        order = list(TopologicalSorter(calls).static_order())
    except CycleError as error:
        names = " -> ".join(each[1] for each in error.args[1])
        raise DefinitionError(
            asked, f"its functions call each other in a cycle ({names})", "remove the cycle"
        ) from None
    for key in order:
        sizes[key] += sum(sizes[each] for each in calls[key])
    if sizes[None] > _MOST_EXPANDED:
        raise DefinitionError(asked, f"its functions expand to {sizes[None]} nodes", f"use at most {_MOST_EXPANDED}")
    return sizes[None]


def _is_small(tensor: TensorProto) -> bool:
    return len(tensor.raw_data) <= _SMALL_BYTES and not tensor.float_data


def without_values(model: onnx.ModelProto, is_small: Callable[[TensorProto], bool]) -> onnx.ModelProto:
    """A copy with large initialisers as inputs without values, because ONNX's C++ code cannot take more than 2 GiB."""
    light = onnx.ModelProto(ir_version=model.ir_version, producer_name=model.producer_name)
    light.opset_import.extend(model.opset_import)
    light.functions.extend(model.functions)
    light.graph.name = model.graph.name or "unnamed"
    for field in ("node", "input", "output", "value_info", "sparse_initializer"):
        getattr(light.graph, field).extend(getattr(model.graph, field))
    given = {each.name for each in light.graph.input}
    for each in model.graph.initializer:
        if is_small(each):
            light.graph.initializer.append(each)
        elif each.name not in given:
            light.graph.input.append(onnx.helper.make_tensor_value_info(each.name, each.data_type, each.dims))
    return light


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
