"""Finds the first operator at which a framework diverges from the reference, forwards and backwards.

The first operator in topological order whose result is beyond the tolerance has inputs that agree. It is run alone on
the reference's inputs. If it is wrong again, it is the culprit. If it is right, earlier small differences have grown;
then each operator is checked with the tolerance of its own sum, which is far tighter. Backwards, each operator is
differentiated alone, at the reference's inputs and with random directions, starting from the loss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from levelbench.checks.arrays import Host, difference, is_float, largest
from levelbench.errors import LevelbenchError
from levelbench.networks.inspect import needed_nodes, random_values
from levelbench.networks.network import Network
from levelbench.networks.probes.agreement import (
    Conditioning,
    DivergencePoint,
    TensorAgreement,
    judge,
    limit_for,
    noise,
)
from levelbench.networks.probes.running import Arrays, Runner, node_alone, part_of, reads_of, with_probe
from levelbench.operators.node import OperatorNode, structural
from levelbench.operators.probes.forward import Oracle, fault_of
from levelbench.operators.probes.subject import HostOperator
from levelbench.operators.program import constants_of

BUDGET = 256 * 2**20
"""The bytes of values of each framework that are kept at the same time."""
_MOST_ALIKE = 100


@dataclass(frozen=True)
class Pairing:
    """A network with its parameters and inputs, the reference, and the framework that is compared with it."""

    network: Network
    parameters: Arrays
    inputs: Arrays
    reference: Runner
    other: Runner
    scale: float = 1.0
    budget: int = BUDGET


def first_divergence(setting: Pairing) -> DivergencePoint:
    """The first operator in topological order whose result differs, and why; requires that the outputs differ."""
    eager = replace(setting, other=setting.other.eager())
    found = next(_places(eager), None)
    if found is None:
        mode = setting.other.mode or "its default mode"
        detail = f"the fault is in how {setting.other.name} combines operators in {mode}"
        return DivergencePoint("forward", "whole", detail=detail)
    index, output, tensor = found
    node = eager.network.nodes[index]
    about: dict[str, Any] = {"index": index, "operator": node.title, "output": output}
    if fault := _fault_alone(eager, index, output):
        return DivergencePoint("forward", "operator", detail=fault, **about)
    wrong = _audited(eager, index)
    if wrong is None:
        return DivergencePoint("forward", "accumulated", detail=tensor.detail, **about)
    at, fault = wrong
    grown = f"{fault}; it grows beyond the tolerance at node {index}, {node.title} {output!r}"
    if at == index:
        grown = fault
    proto = setting.network.model.graph.node[at]
    output = next(name for name in proto.output if name)
    return DivergencePoint("forward", "operator", at, setting.network.nodes[at].title, output, grown)


def _values(setting: Pairing, runner: Runner, names: Sequence[str]) -> dict[str, Host]:
    """Values by name: computed by running the needed nodes, or as given or stored."""
    graph = setting.network.model.graph
    made = {name for node in graph.node for name in node.output}
    computed = [name for name in names if name in made]
    known = {**constants_of(graph), **setting.inputs, **setting.parameters}
    found = {name: known[name] for name in names if name not in made}
    if computed:
        found.update(runner.outputs(part_of(setting.network, computed), setting.parameters, setting.inputs))
    return found


def _places(setting: Pairing) -> Iterator[tuple[int, str, TensorAgreement]]:
    """The nodes whose results differ beyond the tolerance, in topological order, with the differing output."""
    network = setting.network
    wanted = [each.name for each in network.outputs]
    needed, _ = needed_nodes(network.model.graph, wanted)
    unsteady = random_values(network.model.graph)
    todo = [(at, name) for at in needed for name in network.model.graph.node[at].output if name]
    count = 8
    while todo:
        chunk, todo = todo[:count], todo[count:]
        names = [name for _, name in chunk]
        ours, theirs = (_tensors(setting, runner, names) for runner in (setting.reference, setting.other))
        held = sum(each.nbytes for each in ours.values())
        for at, name in chunk:
            if name not in ours or name not in theirs or name in unsteady:
                continue
            tensor = _judged(name, theirs[name], ours[name], setting.scale)
            if tensor.status == "wrong":
                yield at, name, tensor
        count = max(1, min(4 * count, int(count * setting.budget / max(held, 1))))


def _tensors(setting: Pairing, runner: Runner, names: Sequence[str]) -> dict[str, Host]:
    try:
        return runner.outputs(part_of(setting.network, names), setting.parameters, setting.inputs)
    except LevelbenchError:
        if len(names) == 1:
            return {}
        # One of them is not a tensor, or cannot be read; read the others.
        half = len(names) // 2
        return {**_tensors(setting, runner, names[:half]), **_tensors(setting, runner, names[half:])}


def _judged(name: str, actual: Host, expected: Host, scale: float) -> TensorAgreement:
    return judge(name, "output", actual, expected, scale * limit_for("output", expected.dtype))


def _fault_alone(setting: Pairing, index: int, output: str) -> str:
    """What is wrong with ``output`` of the node if it runs alone on the reference's inputs; empty if nothing."""
    values = _values(setting, setting.reference, reads_of(setting.network, index))
    alone = node_alone(setting.network, index, values)
    ours, theirs = (
        runner.outputs(alone.network, alone.parameters, alone.inputs) for runner in (setting.reference, setting.other)
    )
    tensor = _judged(output, theirs[output], ours[output], setting.scale)
    return tensor.detail if tensor.status == "wrong" else ""


def _audited(setting: Pairing, until: int) -> tuple[int, str] | None:
    """The node up to ``until`` that is furthest off among those wrong by their own tolerance, and what is wrong."""
    name = next(each for each in setting.network.model.graph.node[until].output if each)
    found = max(audit(setting, [name]), key=lambda each: each[1], default=None)
    return None if found is None else (found[0], found[2])


def audit(setting: Pairing, outputs: Sequence[str]) -> Iterator[tuple[int, float, str]]:
    """The nodes that ``outputs`` depend on and that are wrong on their own, by Level 0's tolerances.

    Yields (index, largest deviation over largest value, what is wrong); nodes that cannot run alone are skipped. Of
    nodes that do the same to values of the same shapes, the first ``_MOST_ALIKE`` are run: networks of thousands of
    nodes repeat few.
    """
    network = setting.network
    needed, _ = needed_nodes(network.model.graph, outputs)
    unsteady = random_values(network.model.graph)
    todo = [
        at for at in needed if network.nodes[at].op_type != "Constant" and not unsteady & set(network.nodes[at].outputs)
    ]
    count = 8
    alike: Counter[tuple[Any, ...]] = Counter()
    while todo:
        chunk, todo = todo[:count], todo[count:]
        names = list(dict.fromkeys(name for at in chunk for name in reads_of(network, at)))
        try:
            values = _values(setting, setting.reference, names)
        except LevelbenchError:
            values = {}
        for at in chunk:
            if any(name not in values for name in reads_of(network, at)):
                continue
            alike[key := _likeness(network, at, values)] += 1
            if alike[key] > _MOST_ALIKE:
                continue
            with suppress(LevelbenchError):
                off, fault = _strictly(setting, at, values)
                if fault:
                    yield at, off, fault
        held = sum(each.nbytes for each in values.values())
        count = max(1, min(4 * count, int(count * setting.budget / max(held, 1))))


def _likeness(network: Network, index: int, values: Arrays) -> tuple[Any, ...]:
    """Equal for nodes with the same operator, attributes, and dtypes and shapes of what they read."""
    node, proto = network.nodes[index], network.model.graph.node[index]
    fixed = {node.inputs[at] for at in structural(node) if at < len(node.inputs)}
    reads = [
        (each.dtype.name, each.shape, each.tobytes() if name in fixed else b"")
        for name in reads_of(network, index)
        for each in (np.asarray(values[name]),)
    ]
    attributes = sorted(each.SerializeToString(deterministic=True) for each in proto.attribute)
    return node.domain, node.op_type, tuple(attributes), tuple(reads)


def _strictly(setting: Pairing, index: int, values: Arrays) -> tuple[float, str]:
    """(largest deviation over largest value, what is wrong) for a node run alone, by Level 0's tolerances."""
    alone = node_alone(setting.network, index, values)
    node = setting.network.nodes[index]
    names = [name for name in node.outputs if name]
    order = [name for name in node.inputs if name]
    if set(order) != set(reads_of(setting.network, index)):
        return 0.0, ""

    def call(runner: Runner) -> Callable[..., tuple[Host | None, ...]]:
        def run(*arrays: Host) -> tuple[Host | None, ...]:
            given = {name: value for name, value in zip(node.inputs, arrays, strict=True) if name}
            again = node_alone(setting.network, index, given)
            found = runner.outputs(again.network, again.parameters, again.inputs)
            return tuple(found.get(name) if name else None for name in node.outputs)

        return run

    stored = {**alone.inputs, **constants_of(alone.network.model.graph)}
    inputs = [stored[name] if name else None for name in node.inputs]
    fixed = frozenset(structural(node))
    subject = HostOperator(node.title, call(setting.other), node=node, fixed=fixed, ours=False)
    reference = Oracle(replace(subject, call=call(setting.reference)))
    actual, expected = subject.forward(inputs), reference.outputs(inputs, fixed)
    for at, name in enumerate(node.outputs):
        if name not in names:
            continue
        if fault := fault_of(subject, inputs, actual[at], expected, at, reference):
            found, wanted = actual[at], expected.wide[at]
            if found is None or wanted is None or found.shape != wanted.shape:
                return np.inf, fault
            apart = float(difference(found, wanted).max(initial=0.0))
            return apart / max(largest(wanted), np.finfo(np.float64).tiny), fault
    return 0.0, ""


def first_wrong_gradient(setting: Pairing) -> DivergencePoint:
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
            return DivergencePoint("backward", "operator", index, node.title, node.outputs[0], fault)
    detail = "each operator's gradient is right on its own: earlier differences have grown, or are added up wrongly"
    return DivergencePoint("backward", "whole", detail=detail)


def _depend_on_parameters(network: Network) -> set[str]:
    """Names of trainable parameters and of values that depend on one."""
    found = {each.name for each in network.parameters if each.trainable}
    for at, node in enumerate(network.model.graph.node):
        if any(name in found for name in reads_of(network, at)):
            found.update(name for name in node.output if name)
    return found


def _differentiable(node: OperatorNode) -> list[str]:
    """Inputs that are not structural and not declared non-differentiable by ONNX."""
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


def _fault(setting: Pairing, index: int, inputs: Sequence[str], outputs: Sequence[str]) -> str:
    """What is wrong with the gradient of the node's ``inputs``; empty if nothing, or if it cannot be determined."""
    try:
        values = _values(setting, setting.reference, reads_of(setting.network, index))
        inputs = [name for name in inputs if is_float(values[name].dtype)]
        alone = node_alone(setting.network, index, values, outputs=outputs, differentiated=inputs)
        made = setting.reference.outputs(alone.network, alone.parameters, alone.inputs)
        probed, directions = with_probe(alone.network, made)
        if not probed.loss or not inputs:
            return ""
        given = {**alone.inputs, **directions}
        ours = setting.reference.gradients(probed, alone.parameters, given)
        theirs = setting.other.gradients(probed, alone.parameters, given)
    except LevelbenchError:
        return ""
    for name in inputs:
        base = ours[name]
        perturbed = Conditioning(partial(setting.reference.gradients, probed), alone.parameters, given, base.dtype)
        limit = setting.scale * limit_for("gradient", base.dtype)
        slack = partial(perturbed.of, name, base)
        tensor = judge(name, "gradient", theirs[name], base, limit, slack=slack, floor=noise(base, ours.values()))
        if tensor.status == "wrong":
            return f"the gradient of its input {tensor.detail}"
    return ""
