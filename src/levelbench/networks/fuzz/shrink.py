"""Makes a case that fails smaller while it still fails, a node at a time.

The one idea: what comes before the fault is not needed if its values are. A node is cut off by giving the reference's
values of its outputs as inputs, or passed by where an input of it has its output's shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from levelbench.errors import LevelbenchError
from levelbench.networks.fuzz.generate import Case
from levelbench.networks.network import Network
from levelbench.networks.validation.running import Runner, part_of
from levelbench.networks.values import element_type

__all__ = ["shrunk"]


def shrunk(case: Case, fails: Callable[[Case], bool], reference: Runner) -> Case:
    """The smallest case that is found by leaving out outputs and nodes, and for which ``fails`` still holds."""
    found = True
    while found:
        found = False
        for smaller in _smaller(case, reference):
            if fails(smaller):
                case, found = smaller, True
                break
    return case


def _smaller(case: Case, reference: Runner) -> Iterator[Case]:
    network = case.network
    outputs = [each.name for each in network.outputs]
    if len(outputs) > 1:
        yield from (_of(part_of(network, [name]), case) for name in outputs)
    values = _values(case, reference)
    # Late cuts first: they leave least.
    for at in reversed(range(len(network.nodes))):
        names = [name for name in network.nodes[at].outputs if name]
        if all(name in values and name not in outputs for name in names):
            yield _cut(case, names, values)
    for at, node in enumerate(network.nodes):
        alike = [name for name in node.inputs if name and _alike(name, node.outputs[0], case, values)]
        if alike and len(node.outputs) == 1 and node.outputs[0] not in outputs:
            yield _passed_by(case, at, alike[0])


def _values(case: Case, reference: Runner) -> dict[str, Any]:
    names = [name for node in case.network.nodes for name in node.outputs if name]
    try:
        return reference.outputs(part_of(case.network, names), case.parameters, case.inputs)
    except LevelbenchError:
        return {}


def _alike(name: str, other: str, case: Case, values: dict[str, Any]) -> bool:
    one = values.get(name, case.inputs.get(name, case.parameters.get(name)))
    two = values.get(other)
    return one is not None and two is not None and (one.shape, one.dtype) == (two.shape, two.dtype)


def _of(network: Network, case: Case, more: dict[str, Any] | None = None) -> Case:
    """The case of what is left of its network."""
    given = {**case.inputs, **(more or {})}
    inputs = {each.name: np.asarray(given[each.name]) for each in network.inputs}
    parameters = {each.name: case.parameters[each.name] for each in network.parameters}
    return Case(network, parameters, inputs)


def _cut(case: Case, names: Sequence[str], values: dict[str, Any]) -> Case:
    model = onnx.ModelProto()
    model.CopyFrom(case.network.model)
    kept = [each for each in model.graph.node if not set(each.output) & set(names)]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    for name in names:
        value = values[name]
        model.graph.input.append(helper.make_tensor_value_info(name, element_type(value.dtype.name), value.shape))
    outputs = [each.name for each in case.network.outputs]
    return _of(part_of(case.network.replace(model=model), outputs), case, {name: values[name] for name in names})


def _passed_by(case: Case, index: int, name: str) -> Case:
    model = onnx.ModelProto()
    model.CopyFrom(case.network.model)
    (old,) = model.graph.node[index].output
    del model.graph.node[index]
    for node in model.graph.node:
        for at, each in enumerate(node.input):
            if each == old:
                node.input[at] = name
    outputs = [each.name for each in case.network.outputs]
    return _of(part_of(case.network.replace(model=model), outputs), case)
