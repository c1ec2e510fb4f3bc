"""Brings a model to an opset that all adapters implement, and ONNX Runtime's early operators to ONNX's own.

ONNX's converter does most of it. What it gets wrong or does not know is repaired here, before or after it. What ONNX
no longer has or only ONNX Runtime implements is replaced: GroupNormalization before opset 21, sparse initialisers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import onnx
from onnx import helper, inliner, numpy_helper, version_converter

from levelbench.errors import DefinitionError
from levelbench.networks.inspect import (
    MOST_NODES,
    all_nodes,
    expanded_nodes,
    is_standard,
    names_in,
    sort_graph,
    subgraphs,
    without_values,
)
from levelbench.operators.node import DEFAULT_OPSET, IR_VERSION, OPSETS

SMALL_TENSOR = 2**16
"""The converter gets the values of initialisers up to this size: shapes, axes, scales."""
_APART = "levelbench.early"
"""The domain that holds early operators while the model is checked and converted, which both leave alone."""
_EARLY = {"LayerNormalization": ("LayerNormalization", 17), "SimplifiedLayerNormalization": ("RMSNormalization", 23)}
"""Operators that ONNX Runtime had in ONNX's domain before ONNX had them: ONNX's name, and its first opset with it."""
_HARDMAX_OF_ONE_AXIS = 13
_GROUPS_BY_CHANNEL = 21
_OPTIONAL_OF_TENSOR = 18
_MOST_DENSE = 2**28
"""Elements of a sparse initialiser, which may claim any shape in a few bytes."""
_INITIALISERS_APART = 4
"""The first version of ONNX's format in which an initialiser need not be an input."""
_RESIZE_BY_CENTRES = 11
_SCAN_WITHOUT_BATCH = 9


def supported(model: onnx.ModelProto, asked: str) -> None:
    """Replace, in place, what ONNX has withdrawn or only ONNX Runtime implements.

    Raises ``DefinitionError`` for a sparse initialiser that is malformed or too large.
    """
    _name_one_domain(model)
    if model.ir_version < _INITIALISERS_APART:
        # Many exporters wrote such files before ONNX allowed them.
        declared = {each.name for each in model.graph.input}
        if any(each.name not in declared for each in model.graph.initializer):
            model.ir_version = _INITIALISERS_APART
    _make_dense(model.graph, asked)
    for each in model.graph.input:
        if _opset(model) >= _OPTIONAL_OF_TENSOR and each.type.optional_type.elem_type.HasField("tensor_type"):
            # The operators for optional values take tensors, too, and a tensor is what can be given.
            each.type.tensor_type.CopyFrom(
                onnx.TypeProto.FromString(each.type.optional_type.elem_type.SerializeToString()).tensor_type
            )
    if _opset(model) < _GROUPS_BY_CHANNEL:
        _replace(model.graph, "GroupNormalization", _groups_as_instances, names_in(model.graph))


def _name_one_domain(model: onnx.ModelProto) -> None:
    """Write ONNX's own domain as the empty name; ``ai.onnx`` means the same, but ONNX's checker does not know it."""
    for node in all_nodes([*model.graph.node, *(each for function in model.functions for each in function.node)]):
        if node.domain == "ai.onnx":
            node.domain = ""
    for holder in (model, *model.functions):
        newest = max((each.version for each in holder.opset_import if each.domain in ("", "ai.onnx")), default=0)
        if any(each.domain == "ai.onnx" for each in holder.opset_import):
            kept = [each for each in holder.opset_import if each.domain not in ("", "ai.onnx")]
            del holder.opset_import[:]
            holder.opset_import.extend([helper.make_opsetid("", newest), *kept])


def apart(model: onnx.ModelProto) -> int:
    """Move ONNX Runtime's early operators to a domain of their own, where ONNX's checker and converter let them be.

    Returns the opset from which ONNX has all of them; 0 if there are none. :func:`modernised` brings them back.
    """
    opset, least = _opset(model), 0
    for node in all_nodes(model.graph.node):
        name, since = _EARLY.get(node.op_type, ("", 0))
        if not is_standard(node, node.op_type) or (name == node.op_type and opset >= since) or not name:
            continue
        if len([each for each in node.output if each]) > 1 and name != node.op_type:
            # RMSNormalization does not return the factors.
            continue
        node.domain = _APART
        least = max(least, since)
    if least:
        model.opset_import.append(helper.make_opsetid(_APART, 1))
    return least


def modernised(model: onnx.ModelProto, asked: str, early: int = 0) -> onnx.ModelProto:
    """The model at ``DEFAULT_OPSET`` if its own opset is older than all of ``OPSETS``; else the model itself.

    ``early`` is what :func:`apart` returned: such a model is brought to that opset at least.
    ONNX's converter does it, without the values of large initialisers, which it does not need. A model that it cannot
    convert stays as it is: NumPy and ONNX Runtime take every opset, and other adapters refuse what changed since. So
    does one with a Scan of opset 8, whose batch axis the converter drops in silence.
    """
    opset = _opset(model)
    if opset >= max(OPSETS[0], early):
        return _together(model) if early else model
    scans = opset < _SCAN_WITHOUT_BATCH and any(is_standard(node, "Scan") for node in all_nodes(model.graph.node))
    converted = None if scans else _converted(model, asked, max(DEFAULT_OPSET, early))
    if converted is None and early:
        found = (
            f"ONNX has its normalisation from opset {early} on, and its converter cannot bring it from {opset} to that"
        )
        raise DefinitionError(asked, found, f"export it at opset {early} or later")
    if converted is None:
        return model
    return _together(converted) if early else converted


def _converted(model: onnx.ModelProto, asked: str, target: int) -> onnx.ModelProto | None:
    opset = _opset(model)
    light = without_values(model, lambda each: abs(math.prod(each.dims)) <= SMALL_TENSOR)
    # From this version on an initialiser need not be an input, and the converter adds some.
    light.ir_version = max(model.ir_version, IR_VERSION)
    try:
        if model.functions:
            if expanded_nodes(light, asked) > MOST_NODES:
                return None
            # The converter leaves the bodies of functions as they are.
            light = inliner.inline_local_functions(light)
        if opset < _HARDMAX_OF_ONE_AXIS:
            _replace(light.graph, "Hardmax", _hardmax_of_a_matrix, names_in(light.graph))
        converted = version_converter.convert_version(light, target)
        if opset < _RESIZE_BY_CENTRES:
            _resize_from_corners(converted.graph)
        # It has dropped the makers of outputs before.
        sort_graph(converted.graph, set(), asked)
    except (RuntimeError, ValueError, onnx.checker.ValidationError, DefinitionError):
        return None
    return _with_values(converted, model)


def _opset(model: onnx.ModelProto) -> int:
    return max((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), default=OPSETS[0])


def _together(model: onnx.ModelProto) -> onnx.ModelProto:
    """Give early operators ONNX's name and domain, which they have by now."""
    for node in all_nodes(model.graph.node):
        if node.domain == _APART:
            node.op_type, node.domain = _EARLY[node.op_type][0], ""
    kept = [each for each in model.opset_import if each.domain != _APART]
    del model.opset_import[:]
    model.opset_import.extend(kept)
    return model


_Expansion = Callable[[onnx.NodeProto, set[str]], Iterator[onnx.NodeProto]]


def _replace(graph: onnx.GraphProto, op_type: str, expansion: _Expansion, taken: set[str]) -> None:
    """Replace ONNX's operator of this name by the nodes of ``expansion``, in subgraphs too."""
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for inner in subgraphs(node):
            _replace(inner, op_type, expansion, taken)
        same = onnx.NodeProto.FromString(node.SerializeToString())
        nodes.extend(expansion(same, taken) if is_standard(node, op_type) else [same])
    del graph.node[:]
    graph.node.extend(nodes)


def _hardmax_of_a_matrix(node: onnx.NodeProto, taken: set[str]) -> Iterator[onnx.NodeProto]:
    """Let Hardmax see a matrix, as before opset 13 (all axes from its own on were one); the converter forgets it."""
    axis = next((each.i for each in node.attribute if each.name == "axis"), 1)
    shape, flat, found = (_free(f"{node.output[0]}_{word}", taken) for word in ("shape", "flat", "matrix"))
    yield helper.make_node("Shape", [node.input[0]], [shape])
    yield helper.make_node("Flatten", [node.input[0]], [flat], axis=axis)
    yield helper.make_node("Hardmax", [flat], [found], axis=1)
    yield helper.make_node("Reshape", [found, shape], [node.output[0]])


def _groups_as_instances(node: onnx.NodeProto, taken: set[str]) -> Iterator[onnx.NodeProto]:
    """GroupNormalization with a scale for each group, which ONNX has withdrawn, as that of instances."""
    given = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    words = ("shape", "grouping", "groups", "normal")
    shape, grouping, groups, normal = (_free(f"{node.output[0]}_{word}", taken) for word in words)
    yield helper.make_node("Shape", [node.input[0]], [shape])
    yield helper.make_node("Constant", [], [grouping], value_ints=[0, given["num_groups"], -1])
    yield helper.make_node("Reshape", [node.input[0], grouping], [groups])
    epsilon = given.get("epsilon", 1e-5)
    yield helper.make_node("InstanceNormalization", [groups, *node.input[1:]], [normal], epsilon=epsilon)
    yield helper.make_node("Reshape", [normal, shape], [node.output[0]])


def _make_dense(graph: onnx.GraphProto, asked: str) -> None:
    graph.initializer.extend(_dense(each, asked) for each in graph.sparse_initializer)
    del graph.sparse_initializer[:]
    for node in graph.node:
        for inner in subgraphs(node):
            _make_dense(inner, asked)
        for each in node.attribute:
            if is_standard(node, "Constant") and each.name == "sparse_value":
                each.CopyFrom(helper.make_attribute("value", _dense(each.sparse_tensor, asked)))


def _dense(sparse: onnx.SparseTensorProto, asked: str) -> onnx.TensorProto:
    name, count = sparse.values.name, math.prod(sparse.dims)
    if count > _MOST_DENSE:
        found = f"its sparse tensor {name!r} claims the shape {tuple(sparse.dims)}"
        raise DefinitionError(asked, found, f"use at most {_MOST_DENSE:,} elements")
    try:
        onnx.checker.check_sparse_tensor(sparse)
    except onnx.checker.ValidationError as error:
        found = (str(error).strip().splitlines() or ["a sparse tensor is malformed"])[0].rstrip(".")
        raise DefinitionError(asked, found, "export the model again") from None
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    dense[tuple(indices.T) if indices.ndim == 2 else np.unravel_index(indices, dense.shape)] = values
    return numpy_helper.from_array(dense, name)


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _resize_from_corners(graph: onnx.GraphProto) -> None:
    """Let resizing measure from the corner of the first pixel, as before opset 11; the converter forgets to say so.

    The nearest pixel was then the one before or, along axes that shrink, the one after.
    """
    held = {each.name: each for each in graph.initializer}
    held |= {each.output[0]: each.attribute[0].t for each in graph.node if is_standard(each, "Constant")}

    def by_direction(node: onnx.NodeProto, taken: set[str]) -> Iterator[onnx.NodeProto]:
        scales = numpy_helper.to_array(held[node.input[2]]) if node.input[2] in held else np.ones(1, np.float32)
        _set_missing(node, "coordinate_transformation_mode", "asymmetric")
        if scales.min(initial=1) >= 1:
            _set_missing(node, "nearest_mode", "floor")
            yield node
            return
        grown, up, down = (_free(f"{node.output[0]}_{word}", taken) for word in ("grown", "up", "down"))
        second = onnx.NodeProto.FromString(node.SerializeToString())
        yield helper.make_node("Constant", [], [up], value_floats=np.maximum(scales, 1).tolist())
        yield helper.make_node("Constant", [], [down], value_floats=np.minimum(scales, 1).tolist())
        for each, mode, names in ((node, "floor", (up, "", grown)), (second, "ceil", (down, grown, ""))):
            _set_missing(each, "nearest_mode", mode)
            each.input[2] = names[0]
            each.input[0] = names[1] or each.input[0]
            each.output[0] = names[2] or each.output[0]
            yield each

    _replace(graph, "Resize", by_direction, names_in(graph))


def _set_missing(node: onnx.NodeProto, name: str, value: str) -> None:
    if all(each.name != name for each in node.attribute):
        node.attribute.append(helper.make_attribute(name, value))


def _with_values(converted: onnx.ModelProto, model: onnx.ModelProto) -> onnx.ModelProto:
    """The converted model with the inputs and all initialisers of the original, and its metadata."""
    graph = converted.graph
    held = {each.name for each in graph.initializer}
    graph.initializer.extend(each for each in model.graph.initializer if each.name not in held)
    stored = {each.name for each in graph.initializer}
    declared = [each for each in model.graph.input if each.name not in stored]
    del graph.input[:]
    graph.input.extend(declared)
    del graph.value_info[:]
    del converted.metadata_props[:]
    converted.metadata_props.extend(model.metadata_props)
    converted.producer_name, converted.producer_version = model.producer_name, model.producer_version
    graph.name = model.graph.name
    return converted
