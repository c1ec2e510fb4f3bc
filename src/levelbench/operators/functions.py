"""ONNX's own definitions: the body of an operator that ONNX defines by simpler ones, for given attributes and types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx import defs, helper

from levelbench.operators.contract import OperatorBackend
from levelbench.operators.node import OperatorNode

__all__ = ["body", "has_body", "instantiate", "types_of"]


def has_body(node: OperatorNode) -> bool:
    """Whether ONNX defines the operator by simpler ones."""
    schema = node.schema
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def types_of(inputs: Sequence[Any], backend: OperatorBackend) -> list[onnx.TypeProto | None]:
    """The types of values at hand; ``None`` for one that is left out."""
    return [None if value is None else _type_of(value, backend) for value in inputs]


def _type_of(value: Any, backend: OperatorBackend) -> onnx.TypeProto:
    if isinstance(value, list):
        element = _type_of(value[0], backend) if value else helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None)
        return helper.make_sequence_type_proto(element)
    host = backend.host(value)
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(host.dtype), host.shape)


def body(node: OperatorNode, types: Sequence[onnx.TypeProto | None]) -> onnx.FunctionProto | None:
    """The definition in force at the node's opset, ``None`` where ONNX has none for these attributes and types."""
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
    """The function's nodes as a graph, with the attributes of ``node``, else the defaults, in place of references."""
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
