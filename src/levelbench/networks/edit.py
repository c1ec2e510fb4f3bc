"""Edits a network one node at a time: add, remove, replace, rename. Each edit returns another network.

After an edit the whole graph is sorted and checked, so an edit either returns an executable network or raises an error
that names what it would have broken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import onnx

from levelbench.errors import DefinitionError, UnknownNameError
from levelbench.networks.inspect import outer_reads, sort_nodes, subgraphs
from levelbench.operators.node import OperatorNode, operator_node

if TYPE_CHECKING:
    from levelbench.networks.network import Network


def readers_of(network: Network, value: str) -> tuple[OperatorNode, ...]:
    """The nodes that read a value, themselves or in subgraphs, in order."""
    protos = network.model.graph.node
    return tuple(node for node, proto in zip(network.nodes, protos, strict=True) if value in set(outer_reads(proto)))


def with_node(
    network: Network,
    op_type: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    *,
    domain: str = "",
    **attributes: Any,
) -> Network:
    """Add a node, after its inputs are computed. Raises ``DefinitionError`` for an output that exists already."""
    model = network.copied()
    model.graph.node.append(_made(network, op_type, inputs, outputs, domain, attributes).to_proto())
    if domain and domain not in network.opsets:
        model.opset_import.append(onnx.helper.make_opsetid(domain, 1))
    return _checked(network, model, f"adding {op_type} to {network.name}")


def without_node(network: Network, output: str, instead: str | None = None) -> Network:
    """Remove the node that makes ``output``; its readers read ``instead`` (default: the node's first input).

    Raises ``DefinitionError`` if it makes an output of the network, or if it is unclear what to read instead.
    """
    model, at = _found(network, output)
    node = model.graph.node[at]
    asked = f"removing the node that makes {output!r} from {network.name}"
    held = {each.name for each in model.graph.output} | set(network.updates.values())
    if kept := [name for name in node.output if name in held]:
        raise DefinitionError(asked, f"{kept[0]!r} is an output", "choose other outputs first: with_outputs(...)")
    others = [name for name in node.output[1:] if name and readers_of(network, name)]
    if others or output != node.output[0]:
        raise DefinitionError(asked, f"its output {(others or [output])[0]!r} is read too", "replace it instead")
    source = instead if instead is not None else next((name for name in node.input if name), None)
    if source is None:
        raise DefinitionError(asked, "it has no input to read instead", "name a value: instead=...")
    del model.graph.node[at]
    _rename(model.graph, {output: source}, reads_only=True)
    return _checked(network, model, asked)


def with_replaced_node(
    network: Network,
    output: str,
    op_type: str,
    inputs: Sequence[str] | None = None,
    *,
    domain: str = "",
    **attributes: Any,
) -> Network:
    """Replace the node that makes ``output`` by another operator with its outputs and, by default, its inputs."""
    model, at = _found(network, output)
    old = model.graph.node[at]
    given = list(old.input) if inputs is None else inputs
    new = _made(network, op_type, given, list(old.output), domain, attributes).to_proto()
    model.graph.node[at].CopyFrom(new)
    return _checked(network, model, f"replacing the node that makes {output!r} in {network.name}")


def renamed(network: Network, names: Mapping[str, str]) -> Network:
    """Rename values, inputs, outputs and parameters. A drawn parameter is drawn by its new name."""
    model = network.copied()
    known = {name for node in model.graph.node for name in (*node.input, *node.output)}
    known |= {each.name for each in (*model.graph.input, *model.graph.output, *model.graph.initializer)}
    for old, new in names.items():
        if old not in known:
            raise UnknownNameError(f"value of {network.name}", old, known)
        if new in known or not new:
            raise DefinitionError(f"renaming {old!r} to {new!r}", "that name is taken or empty", "choose another")
    if len(set(names.values())) < len(names):
        raise DefinitionError(f"renaming in {network.name}", "two values would have the same name", "choose another")
    _rename(model.graph, names)
    for each in (*model.graph.input, *model.graph.output, *model.graph.initializer, *model.graph.value_info):
        each.name = names.get(each.name, each.name)
    parameters = [replace(each, name=names.get(each.name, each.name)) for each in network.parameters]
    changes = {
        "parameters": parameters,
        "fills": {names.get(name, name): high for name, high in network.fills.items()},
        "loss": names.get(network.loss, network.loss),
        "updates": {names.get(k, k): names.get(v, v) for k, v in network.updates.items()},
    }
    return _checked(network, model, f"renaming in {network.name}", **changes)


def _made(
    network: Network,
    op_type: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    domain: str,
    attributes: dict[str, Any],
) -> OperatorNode:
    if domain:
        return OperatorNode(op_type, tuple(inputs), tuple(outputs), attributes, domain, network.opsets.get(domain, 1))
    return operator_node(op_type, inputs, outputs, opset=network.opsets.get("", 1), **attributes)


def _found(network: Network, output: str) -> tuple[onnx.ModelProto, int]:
    model = network.copied()
    for at, node in enumerate(model.graph.node):
        if output and output in node.output:
            return model, at
    made = [name for node in model.graph.node for name in node.output if name]
    raise UnknownNameError(f"value that a node of {network.name} makes", output, made)


def _rename(graph: onnx.GraphProto, names: Mapping[str, str], *, reads_only: bool = False) -> None:
    """Rename the inputs of nodes and, unless ``reads_only``, their outputs; subgraphs' own values keep their names."""
    for node in graph.node:
        for field in (node.input,) if reads_only else (node.input, node.output):
            for at, name in enumerate(field):
                field[at] = names.get(name, name)
        for inner in subgraphs(node):
            own = {each.name for each in (*inner.input, *inner.initializer)}
            own |= {name for each in inner.node for name in each.output}
            around = {old: new for old, new in names.items() if old not in own}
            _rename(inner, around, reads_only=True)
            for each in inner.output:
                each.name = around.get(each.name, each.name)


def sort_and_check(model: onnx.ModelProto, asked: str, do: str) -> None:
    """Sort the nodes of an edited model, remove outdated types, and let ONNX check it; ``do`` is an error's advice."""
    graph = model.graph
    given = dict.fromkeys([*(each.name for each in graph.input), *(each.name for each in graph.initializer)])
    sort_nodes(graph.node, list(given), [each.name for each in graph.output], asked)
    # What was inferred before may no longer hold.
    del graph.value_info[:]
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        raise DefinitionError(asked, str(error).strip().splitlines()[0], do) from None


def _checked(network: Network, model: onnx.ModelProto, asked: str, **changes: Any) -> Network:
    """The edited network: with its nodes sorted, outdated types removed, and everything checked."""
    sort_and_check(model, asked, "edit it differently")
    edited = network.replace(model=model, **changes)
    from levelbench.networks.shapes import infer_shapes

    infer_shapes(edited)
    return edited
