"""Which versions ONNX Runtime takes, and the lawful change of a model's opset to one of them.

The one idea: an opset is a set of operator versions. A model means the same under two opsets if each of its operators
has the same version in both, so its import may be lowered to the newest that ONNX Runtime takes; if one of them
differs, it may not. The newest are found by asking ONNX Runtime, once, and not written down here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import onnx
from onnx import defs, helper

from levelbench.errors import UnsupportedError
from levelbench.frameworks.onnxruntime.sessions import Device, Session
from levelbench.operators.node import IR_VERSION

__all__ = ["lowered", "newest_ir", "newest_opset", "nodes_of"]

_PROBE_OPSET = 13
_LOWERED = ("", "ai.onnx.ml")


@cache
def newest_ir() -> int:
    """The newest version of ONNX's file format that ONNX Runtime takes."""
    tried = range(onnx.IR_VERSION, IR_VERSION, -1)
    return next((each for each in tried if _takes(each, {"": _PROBE_OPSET})), IR_VERSION)


@cache
def newest_opset(domain: str = "") -> int:
    """The newest opset that ONNX Runtime takes of ONNX's own domain, or of ``ai.onnx.ml``."""
    known = defs.onnx_ml_opset_version() if domain else defs.onnx_opset_version()
    return next((each for each in range(known, 0, -1) if _takes(IR_VERSION, {"": _PROBE_OPSET, domain: each})), 0)


def lowered(model: onnx.ModelProto) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """The model with versions that ONNX Runtime takes, and what was changed, in words; the model itself if nothing was.

    Raises ``UnsupportedError`` where an operator of the model has another version in the newest opset it takes.
    """
    changes: list[str] = []
    found = model
    if model.ir_version > newest_ir():
        found = _copy(model)
        found.ir_version = newest_ir()
        changes.append(f"IR version {model.ir_version} lowered to {newest_ir()}")
    too_new = {each.domain: each.version for each in _imports(model) if _is_too_new(each)}
    if not too_new:
        return found, tuple(changes)
    _refuse_changed(model, too_new)
    found = _copy(model) if found is model else found
    for each in _imports(found):
        each.version = min(each.version, newest_opset(_plain(each.domain))) if _is_too_new(each) else each.version
    for domain, version in too_new.items():
        newest = newest_opset(_plain(domain))
        changes.append(f"opset {version} lowered to {newest}, in which each of its operators has the same version")
    return found, tuple(changes)


def _takes(ir: int, imports: dict[str, int]) -> bool:
    value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "probe", [value], [result])
    opsets = [helper.make_opsetid(domain, version) for domain, version in imports.items()]
    try:
        Session(helper.make_model(graph, opset_imports=opsets, ir_version=ir), Device("cpu"), "a probe")
    except UnsupportedError:
        return False
    return True


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def _imports(model: onnx.ModelProto) -> Iterator[onnx.OperatorSetIdProto]:
    yield from model.opset_import
    for function in model.functions:
        yield from function.opset_import


def _plain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _is_too_new(each: onnx.OperatorSetIdProto) -> bool:
    domain = _plain(each.domain)
    return domain in _LOWERED and each.version > newest_opset(domain)


def _refuse_changed(model: onnx.ModelProto, too_new: dict[str, int]) -> None:
    """``UnsupportedError`` if one of the model's operators is not the same in the newest opset that is taken."""
    own = {(each.domain, each.name) for each in model.functions}
    for node in nodes_of(model):
        if node.domain not in too_new or (node.domain, node.op_type) in own:
            continue
        asked, newest = too_new[node.domain], newest_opset(_plain(node.domain))
        since = _since(node, asked)
        if since is None or since != _since(node, newest):
            change = f"{node.op_type} changed in opset {since}" if since else f"{node.op_type} is not known there"
            raise UnsupportedError(
                f"opset {asked} on ONNX Runtime",
                f"it takes up to {newest}, and {change}",
                "use another framework, or an older opset",
            )


def nodes_of(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a model, those of its subgraphs and functions included."""
    yield from _nodes(model.graph.node)
    for function in model.functions:
        yield from _nodes(function.node)


def _nodes(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes and those of their subgraphs."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _nodes(graph.node)


def _since(node: onnx.NodeProto, opset: int) -> int | None:
    """The version of the operator in force at ``opset``; ``None`` where there is none, or the opset is unknown."""
    domain = _plain(node.domain)
    if opset > (defs.onnx_ml_opset_version() if domain else defs.onnx_opset_version()):
        return None
    try:
        return int(defs.get_schema(node.op_type, opset, domain).since_version)
    except defs.SchemaError:
        return None
