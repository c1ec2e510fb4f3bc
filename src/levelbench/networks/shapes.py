"""The dtype and shape of every value of a network, with its sizes left open or bound.

ONNX's own inference decides, in strict mode. What it cannot infer is reported as unknown, and false claims of a model
are refused before anything of that size is computed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from levelbench.errors import DefinitionError, LevelbenchError
from levelbench.networks.codegen import host_nodes
from levelbench.networks.inspect import all_nodes, subgraphs, without_values
from levelbench.networks.network import Network
from levelbench.networks.values import Shape, Value, batch_axis, bound_shape, value_info, value_of
from levelbench.operators.frameworks import open_framework
from levelbench.operators.node import OperatorNode
from levelbench.operators.program import constants_of

MOST_ELEMENTS = 2**40
"""Values that claim more elements are refused."""
SMALL_ELEMENTS = 1024
"""Initialisers with more elements are passed to ONNX's inference without values, as it needs only their shapes."""
_LONG = 2**16
_LONG_FLOATS = 2**20
_GROWING = frozenset({"ConstantOfShape", "Expand", "Pad", "Range", "Tile"})


def infer_shapes(network: Network, sizes: Mapping[str, int] | None = None) -> dict[str, Value]:
    """Every value of the top graph by name: inputs, parameters, initialisers, and the outputs of nodes.

    Without ``sizes``, symbolic sizes stay symbolic. With them (even an empty mapping) all sizes of inputs are bound:
    from ``sizes``, else the network's own, else ``batch`` and a first axis of unknown size to 1; ``UsageError`` names
    a size that is missing. A value that ONNX cannot infer has dtype ``""`` and shape ``None``. Raises
    ``DefinitionError`` for shapes that contradict each other, are negative, or have more than 2**40 elements.
    """
    model = without_values(network.model, lambda each: abs(math.prod(each.dims)) <= SMALL_ELEMENTS)
    names = {} if sizes is None else bind_inputs(model.graph, network, sizes)
    declared = _forget(model, names) if names else {}
    _refuse_absurd(network, {each.name: value_of(each) for each in (*model.graph.input, *model.graph.value_info)})
    inferred = _inferred(model, network.name)
    if sizes is not None:
        while any(each.sizes is None for each in inferred.values()) and _fold(model, inferred):
            inferred = _inferred(model, network.name)
    own = _symbols(network.model)
    found: dict[str, Value] = {}
    for name in (*inferred, *(name for node in model.graph.node for name in node.output if name)):
        value = inferred.get(name, Value(name, "", None))
        if value.shape is None and name in declared:
            value = Value(name, value.dtype or declared[name].dtype, declared[name].shape)
        found[name] = _completed(value, declared.get(name), own if sizes is None else set())
    _refuse_absurd(network, found)
    return found


ABSURD = "claims the shape"
"""What is found about a value that no machine can hold."""
_USUAL_SIZES = (16, 64, 32, 128, 8, 1)
_PICTURE = 64
"""Divisible by the strides of most networks for pictures."""


def other_sizes_or(do: str, network: Network) -> str:
    """What to do where a network does not take drawn inputs: also other sizes, if it leaves some open."""
    sizes = " ".join(f"--size {name}=..." for name in open_sizes(network))
    return f"give other sizes ({sizes}), or {do}" if sizes else do


def open_sizes(network: Network) -> list[str]:
    """The names of the sizes of inputs that have to be given before the network runs: all but those of batches only."""
    inner = [size for each in network.inputs for at, size in enumerate(each.shape or ()) if at != batch_axis(each, {})]
    return [size for size in dict.fromkeys(inner) if isinstance(size, str) and size != "batch"]


def usual_sizes(network: Network, given: Mapping[str, int], batch: int = 1) -> dict[str, int]:
    """Values for the open sizes that neither the network nor ``given`` binds, with which its shapes fit together.

    64 for an axis of pictures and 16 for others or, where that contradicts the shapes inside, another number for all: a
    usual one, or one of those that the file reshapes to: exporters declare an axis as open, and keep the size that
    they traced inside. Empty if none fits: then the sizes have to be given.
    """
    known = {**network.sizes, **given}
    left = [each for each in open_sizes(network) if each not in known]
    if not left:
        return {}
    pictures = {size for each in network.inputs if len(each.shape or ()) >= 4 for size in (each.shape or ())[2:]}
    numbers = [0, *_USUAL_SIZES]
    for usual in numbers:
        chosen = {each: usual or (_PICTURE if each in pictures else _USUAL_SIZES[0]) for each in left}
        try:
            misfit = _wrong_reshape(network, infer_shapes(network, {**known, **chosen, "batch": batch}))
        except LevelbenchError:
            continue
        if not misfit:
            return chosen
        if not usual:
            numbers.extend(each for each in dict.fromkeys(misfit) if each > 1 and each not in _USUAL_SIZES)
    return {}


def _wrong_reshape(network: Network, found: Mapping[str, Value]) -> tuple[int, ...]:
    """The shape to which the first ``Reshape`` cannot bring its input; ONNX does not compare the numbers of elements.

    Empty if there is none.
    """
    for node in network.model.graph.node:
        if node.op_type == "Reshape":
            before, after = (found[each].sizes if each in found else None for each in (node.input[0], node.output[0]))
            if before is not None and after is not None and math.prod(before) != math.prod(after):
                return after
    return ()


def bind_inputs(graph: onnx.GraphProto, network: Network, sizes: Mapping[str, int]) -> dict[str, int]:
    """Write the sizes of all inputs with shapes into ``graph``; returns the value of each name."""
    known = {**network.sizes, **sizes}
    names = {**known, "batch": known.get("batch", 1)}
    bound = {}
    for each in network.inputs:
        if each.dtype and each.shape is not None:
            shape = bound_shape(each, names["batch"], known)
            bound[each.name] = value_info(Value(each.name, each.dtype, shape))
            names.update((name, size) for name, size in zip(each.shape, shape, strict=True) if isinstance(name, str))
    for info in graph.input:
        if info.name in bound:
            info.CopyFrom(bound[info.name])
    return names


def _forget(model: onnx.ModelProto, names: Mapping[str, int]) -> dict[str, Value]:
    """Remove symbolic sizes from the declarations of other values; returns the declarations with sizes filled in.

    After a convolution the same name need not mean the same size, so inference takes precedence.
    """
    declared = {}
    for info in (*model.graph.value_info, *model.graph.output):
        value = value_of(info)
        if not value.dtype or value.shape is None:
            continue
        declared[info.name] = Value(info.name, value.dtype, _named(value.shape, names))
        for dimension in info.type.tensor_type.shape.dim:
            dimension.ClearField("dim_param")
    return declared


def _named(shape: Shape, names: Mapping[str, int]) -> Shape:
    return tuple(names.get(each) if isinstance(each, str) else each for each in shape)


def _inferred(model: onnx.ModelProto, name: str) -> dict[str, Value]:
    """What ONNX infers, following the values of shapes if that is safe.

    ONNX treats every vector, of floats too, as a shape and writes it out element by element, even if it claims to be
    huge.
    """
    found = _inferred_once(model, name, follow=False)
    within, inside = _ranges(model)
    if inside or any(_is_long(each) for each in found.values()):
        return found
    unknown = {at for at in within if found.get(model.graph.node[at].output[0], Value("", "", None)).sizes is None}
    followed = _inferred_once(_without(model, unknown, found) if unknown else model, name, follow=True)
    return {**found, **{key: value for key, value in followed.items() if value.shape is not None}}


def _is_long(value: Value) -> bool:
    sizes = [each for each in value.shape or () if isinstance(each, int)]
    return len(sizes) == len(value.shape or ()) == 1 and sizes[0] > (_LONG if "int" in value.dtype else _LONG_FLOATS)


def _without(model: onnx.ModelProto, nodes: set[int], known: Mapping[str, Value]) -> onnx.ModelProto:
    """A copy in which the outputs of these Range nodes are inputs, because their lengths depend on values."""
    cut = onnx.ModelProto()
    cut.CopyFrom(model)
    del cut.graph.node[:]
    cut.graph.node.extend(each for at, each in enumerate(model.graph.node) if at not in nodes)
    for at in sorted(nodes):
        output = model.graph.node[at].output[0]
        dtype = known[output].dtype if output in known else ""
        cut.graph.input.append(value_info(Value(output, dtype or "int64", (None,))))
    return cut


def _inferred_once(model: onnx.ModelProto, name: str, *, follow: bool) -> dict[str, Value]:
    try:
        graph = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=follow).graph
    except onnx.shape_inference.InferenceError as error:
        reason = (str(error).strip().splitlines() or ["inference failed"])[-1]
        raise DefinitionError(f"the shapes of {name}", reason.rstrip("."), "correct the model") from None
    found = {each.name: value_of(each) for each in (*graph.value_info, *graph.output, *graph.input)}
    for each in graph.initializer:
        found[each.name] = value_of(onnx.helper.make_tensor_value_info(each.name, each.data_type, each.dims))
    return found


def _ranges(model: onnx.ModelProto) -> tuple[set[int], bool]:
    """The indices of Range nodes, and whether there are any in subgraphs or functions."""
    nodes = model.graph.node
    functions = [node for function in model.functions for node in function.node]
    inner = [graph.node for node in nodes for graph in subgraphs(node)]
    inside = any(each.op_type == "Range" for some in (functions, *inner) for each in all_nodes(some))
    return {at for at, each in enumerate(nodes) if each.op_type == "Range"}, inside


def _fold(model: onnx.ModelProto, known: Mapping[str, Value]) -> bool:
    """Replace shape arithmetic by its value where ``known`` determines it; returns whether there was any.

    ONNX follows values of shapes through only a few operators; a slice to a computed length is not one of them.
    """
    graph = model.graph
    nodes = [OperatorNode.from_proto(each, _opset(model)) for each in graph.node]
    constants = constants_of(graph)
    made: dict[int, NDArray[Any]] = {}
    backend = open_framework("numpy", "cpu")
    for at in sorted(host_nodes(nodes, constants)):
        node = nodes[at]
        if len(node.outputs) != 1:
            continue
        if node.op_type in ("Shape", "Size"):
            value = known.get(node.inputs[0])
            if value is None or value.sizes is None:
                continue
            shape = np.array(value.sizes, np.int64)
            chosen = shape[node.get("start", 0) : node.get("end")]
            made[at] = np.asarray(shape.prod()) if node.op_type == "Size" else chosen
        elif _is_small(node, known) and all(name in constants for name in node.inputs if name):
            operands = [constants[name] if name else None for name in node.inputs]
            made[at] = np.asarray(backend.operator(node).forward(*operands)[0])
        if at in made:
            constants[node.outputs[0]] = made[at]
    for at, array in made.items():
        graph.initializer.append(onnx.numpy_helper.from_array(array, nodes[at].outputs[0]))
    for at in sorted(made, reverse=True):
        del graph.node[at]
    return bool(made)


def _is_small(node: OperatorNode, known: Mapping[str, Value]) -> bool:
    """Whether computing it cannot allocate much, even if the model makes false claims."""
    if node.op_type not in _GROWING:
        return True
    value = known.get(node.outputs[0])
    return value is not None and value.sizes is not None and math.prod(value.sizes) <= SMALL_ELEMENTS


def _opset(model: onnx.ModelProto) -> int:
    return max((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), default=1)


def _symbols(model: onnx.ModelProto) -> set[str]:
    """The names of sizes that the model itself uses; ONNX's inference invents others."""
    graph = model.graph
    return {
        dimension.dim_param
        for info in (*graph.input, *graph.value_info, *graph.output)
        for dimension in info.type.tensor_type.shape.dim
        if dimension.dim_param
    }


def _completed(value: Value, declared: Value | None, symbols: set[str]) -> Value:
    """The value without invented names, and with unknown sizes taken from the declaration."""
    if value.shape is None:
        return value
    shape = tuple(each if isinstance(each, int) or each in symbols else None for each in value.shape)
    if declared is not None and declared.shape is not None and len(declared.shape) == len(shape):
        shape = tuple(mine if mine is not None else other for mine, other in zip(shape, declared.shape, strict=True))
    return Value(value.name, value.dtype, shape)


def _refuse_absurd(network: Network, values: Mapping[str, Value]) -> None:
    for value in values.values():
        sizes = [each for each in value.shape or () if isinstance(each, int)]
        if any(size < 0 for size in sizes):
            found = f"{value.name!r} {ABSURD} {value.shape}"
            raise DefinitionError(f"the shapes of {network.name}", found, "use sizes of 0 or more")
        if math.prod(size for size in sizes if size) > MOST_ELEMENTS:
            found = f"{value.name!r} {ABSURD} {value.shape}"
            raise DefinitionError(f"the shapes of {network.name}", found, "use at most 2**40 elements")
