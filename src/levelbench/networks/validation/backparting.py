"""Finds the operator whose gradient is wrong, in a network whose outputs are right.

The one idea: each operator is differentiated alone, at the reference's inputs and against random directions, from the
loss backwards: a wrong gradient shows without the others', and the first one found is where the frameworks part.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from levelbench.errors import LevelbenchError
from levelbench.networks.network import Network
from levelbench.networks.validation.agreement import Parting
from levelbench.networks.validation.alone import node_alone, reads_of
from levelbench.networks.validation.conditioning import Conditioning
from levelbench.networks.validation.judging import judge, noise
from levelbench.networks.validation.limits import limit_for
from levelbench.networks.validation.parting import Setting, node_values
from levelbench.networks.validation.probing import with_probe
from levelbench.networks.validation.running import needed_nodes
from levelbench.operators.node import OperatorNode, structural
from levelbench.operators.validation.tolerances import is_float

__all__ = ["first_wrong_gradient"]


def first_wrong_gradient(setting: Setting) -> Parting:
    """The operator nearest to the loss whose gradient is wrong; ``setting.network`` has a loss."""
    network = setting.network
    needed, _ = needed_nodes(network.model.graph, [network.loss])
    moving = _depend_on_parameters(network)
    read = {name for at in needed for name in network.model.graph.node[at].input}
    for index in reversed(needed):
        node = network.nodes[index]
        inputs = [name for name in _differentiable(node) if name in moving]
        outputs = [name for name in node.outputs if name in read or name == network.loss]
        if inputs and outputs and (fault := _fault(setting, index, list(dict.fromkeys(inputs)), outputs)):
            return Parting("backward", "operator", index, node.title, node.outputs[0], fault)
    detail = "each operator's gradient is right alone: differences on the way back have grown, or are added up wrongly"
    return Parting("backward", "whole", detail=detail)


def _depend_on_parameters(network: Network) -> set[str]:
    """Names of values that depend on a trainable parameter, these included."""
    found = {each.name for each in network.parameters if each.trainable}
    for at, node in enumerate(network.model.graph.node):
        if any(name in found for name in reads_of(network, at)):
            found.update(name for name in node.output if name)
    return found


def _differentiable(node: OperatorNode) -> list[str]:
    """Inputs that ONNX does not call non-differentiable, and that decide no shape."""
    fixed, schema = structural(node), node.schema
    names = []
    for at, name in enumerate(node.inputs):
        if not name or at in fixed:
            continue
        if schema is not None:
            category = schema.inputs[min(at, len(schema.inputs) - 1)].differentiation_category
            if category == type(category).NonDifferentiable:
                continue
        names.append(name)
    return names


def _fault(setting: Setting, index: int, inputs: Sequence[str], outputs: Sequence[str]) -> str:
    """What is wrong with the gradient of the node's ``inputs``; empty if nothing, or nothing can be told."""
    try:
        values = node_values(setting, index)
        inputs = [name for name in inputs if is_float(values[name].dtype)]
        alone = node_alone(setting.network, index, values, outputs=outputs, differentiated=inputs)
        made = setting.reference.outputs(alone.network, alone.parameters, alone.inputs)
        probed, directions = with_probe(alone.network, made)
        if not probed.loss or not inputs:
            return ""
        given = {**alone.inputs, **directions}
        _, ours = setting.reference.gradients(probed, alone.parameters, given)
        _, theirs = setting.other.gradients(probed, alone.parameters, given)
    except LevelbenchError:
        return ""
    for name in inputs:
        base = ours[name]
        shaken = Conditioning(probed, alone.parameters, given, setting.reference, base.dtype)
        limit = setting.scale * limit_for("gradient", base.dtype)
        slack = partial(shaken.of_gradient, name, base)
        tensor = judge(name, "gradient", theirs[name], base, limit, slack=slack, floor=noise(base, ours.values()))
        if tensor.status == "wrong":
            return f"the gradient of its input {tensor.detail}"
    return ""
