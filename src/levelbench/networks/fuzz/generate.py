"""Generates networks of 2 to 12 operators, runs them on several frameworks, and shrinks and writes those that diverge.

Operators are applied to existing values, so every graph is valid. Each operator has a guard against ill-conditioning,
so a disagreement of frameworks is a fault and not rounding. To shrink a network, a node is cut off by passing the
reference's values of its outputs as inputs, or bypassed if one of its inputs has the shape of its output. The result is
a model, its inputs and a description, which can be given to ``levelbench check``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from onnx import helper

from levelbench.checks.arrays import Host
from levelbench.errors import LevelbenchError
from levelbench.networks.builder import GraphBuilder
from levelbench.networks.files import save
from levelbench.networks.fuzz.operators import ELEMENTWISE, LAYERS, MOVING
from levelbench.networks.fuzz.sketch import Draws, SeededDraws, Sketch
from levelbench.networks.network import Network
from levelbench.networks.probes import Agreement, compare_network
from levelbench.networks.probes.running import Runner, Specimen, part_of
from levelbench.networks.values import element_type
from levelbench.operators.contract import OperatorBackend

FEWEST, MOST_NODES = 2, 12
_SHAPES = ((2, 3), (2, 3, 4), (1, 2, 4, 4), (4,), (2, 4, 3, 3), (3, 1, 5), (2, 2, 5, 4))


def generate_seeded(seed: int) -> Specimen:
    """The case for that seed."""
    return generate(SeededDraws(seed), f"fuzz-{seed}")


def generate(draws: Draws, name: str = "fuzz") -> Specimen:
    """A case from ``draws``: one to three inputs, 2 to 12 nodes, and all or most unread values as outputs."""
    graph = Sketch(GraphBuilder(name), draws, draws.integer(0, 2**16))
    for _ in range(draws.integer(1, 3)):
        graph.input(draws.pick(_SHAPES))
    if draws.integer(0, 3) == 3:
        graph.input(draws.pick([(3,), (2, 2)]), "int64")
    given = len(graph.items)
    # A parameter is added to the first input, so that gradients flow all the way back.
    first = graph.items[0]
    shift = graph.parameter(first.shape, first.dtype)
    graph.items.append(graph.node("Add", first, shift))
    wanted = draws.integer(FEWEST, MOST_NODES)
    groups = (ELEMENTWISE, MOVING, LAYERS)
    for _ in range(4 * MOST_NODES):
        if graph.nodes >= wanted:
            break
        if (made := draws.pick(draws.pick(groups))(graph)) is not None:
            graph.items.append(made)
    return _finished(graph, given)


def _finished(graph: Sketch, given: int) -> Specimen:
    """Add outputs and build: all unread values, but sometimes without the first, which leaves a dead end."""
    made = graph.items[given:]
    ends = [each for each in made if each.name not in graph.read] or made[-1:]
    if len(ends) > 1 and graph.draws.integer(0, 3) == 3:
        ends = ends[1:]
    # An inner value may also be an output.
    inner = [each for each in made if each.name in graph.read]
    if inner and graph.draws.integer(0, 3) == 3:
        ends.append(graph.draws.pick(inner))
    if not any(each.name in graph.trained for each in ends):
        ends.append(graph.items[given])
    for each in ends:
        graph.builder.output(each.name)
    network = graph.builder.build()
    inputs = {each.name: graph.inputs[each.name] for each in network.inputs}
    return Specimen(network, network.initialise(0), inputs)


def shrunk(case: Specimen, fails: Callable[[Specimen], bool], reference: Runner) -> Specimen:
    """The smallest case found by removing outputs and nodes for which ``fails`` still holds."""
    found = True
    while found:
        found = False
        for smaller in _smaller(case, reference):
            if fails(smaller):
                case, found = smaller, True
                break
    return case


def _smaller(case: Specimen, reference: Runner) -> Iterator[Specimen]:
    network = case.network
    outputs = [each.name for each in network.outputs]
    if len(outputs) > 1:
        yield from (_of(part_of(network, [name]), case) for name in outputs)
    values = _values(case, reference)
    # Cut late nodes first, which leaves the smallest networks.
    for at in reversed(range(len(network.nodes))):
        names = [name for name in network.nodes[at].outputs if name]
        if all(name in values and name not in outputs for name in names):
            yield _removed(case, at, {name: values[name] for name in names}, {})
    for at, node in enumerate(network.nodes):
        alike = [name for name in node.inputs if name and _same_type(name, node.outputs[0], case, values)]
        if alike and len(node.outputs) == 1 and node.outputs[0] not in outputs:
            yield _removed(case, at, {}, {node.outputs[0]: alike[0]})


def _values(case: Specimen, reference: Runner) -> dict[str, Host]:
    names = [name for node in case.network.nodes for name in node.outputs if name]
    try:
        return reference.outputs(part_of(case.network, names), case.parameters, case.inputs)
    except LevelbenchError:
        return {}


def _same_type(name: str, other: str, case: Specimen, values: dict[str, Host]) -> bool:
    one = values.get(name, case.inputs.get(name, case.parameters.get(name)))
    two = values.get(other)
    return one is not None and two is not None and (one.shape, one.dtype) == (two.shape, two.dtype)


def _of(network: Network, case: Specimen, more: dict[str, Host] | None = None) -> Specimen:
    """The case for the remaining network."""
    given = {**case.inputs, **(more or {})}
    inputs = {each.name: np.asarray(given[each.name]) for each in network.inputs}
    parameters = {each.name: case.parameters[each.name] for each in network.parameters}
    return Specimen(network, parameters, inputs)


def _removed(case: Specimen, index: int, given: dict[str, Host], instead: dict[str, str]) -> Specimen:
    """Remove the node at ``index``: its outputs are ``given`` as inputs, or another value is read ``instead``."""
    model = case.network.copied()
    del model.graph.node[index]
    for name, value in given.items():
        model.graph.input.append(helper.make_tensor_value_info(name, element_type(value.dtype.name), value.shape))
    for node in model.graph.node:
        for at, name in enumerate(node.input):
            node.input[at] = instead.get(name, name)
    outputs = [each.name for each in case.network.outputs]
    return _of(part_of(case.network.replace(model=model), outputs), case, given)


@dataclass
class FuzzCounts:
    """How many cases agree, how many each framework could not run, and the failed agreements with their seeds."""

    agree: int = 0
    unsupported: dict[str, int] = field(default_factory=dict)
    failed: list[tuple[int, Agreement]] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)


def agreement_on(
    case: Specimen, backends: Mapping[str, OperatorBackend], reference: OperatorBackend, *, locate: bool = True
) -> Agreement:
    """Compare the case on each of ``backends`` with ``reference``."""
    return compare_network(case.network, backends, reference, case.inputs, case.parameters, locate=locate)


def fuzz(
    count: int,
    seed: int,
    backends: Mapping[str, OperatorBackend],
    reference: OperatorBackend,
    *,
    folder: Path | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> FuzzCounts:
    """Run ``count`` cases from ``seed`` on; each failure is shrunk and written to ``folder``."""
    tally = FuzzCounts()
    for each in range(seed, seed + count):
        case = generate_seeded(each)
        found = agreement_on(case, backends, reference)
        for one in found.backends:
            if one.lacks:
                tally.unsupported[one.backend] = tally.unsupported.get(one.backend, 0) + 1
        if not found.failed:
            tally.agree += 1
            continue
        wrong = {one.backend: backends[one.backend] for one in found.failed}
        small = shrunk(case, partial(_fails, backends=wrong, reference=reference), Runner("", reference))
        found = agreement_on(small, wrong, reference)
        tally.failed.append((each, found))
        if folder is not None:
            tally.files.append(write_case(small, found, folder, f"fuzz-{each}"))
        tell(f"seed {each}: {describe(found)}")
    return tally


def _fails(case: Specimen, backends: Mapping[str, OperatorBackend], reference: OperatorBackend) -> bool:
    try:
        return bool(agreement_on(case, backends, reference, locate=False).failed)
    except LevelbenchError:
        # The remaining part may not be a valid network, and then is not a smaller example.
        return False


def describe(found: Agreement) -> str:
    """What is wrong, in a sentence; empty if nothing is."""
    error = found.error()
    return "" if error is None else f"{error.asked}: {error.found}"


def write_case(case: Specimen, found: Agreement, folder: Path, name: str) -> Path:
    """Write ``name.onnx`` with parameters, ``name.npz`` with inputs and ``name.txt``; returns the model's path."""
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / f"{name}.onnx"
    save(case.network, model, case.parameters)
    np.savez(folder / f"{name}.npz", allow_pickle=False, **dict(case.inputs))
    frameworks = ",".join(each.backend for each in found.backends)
    command = f"levelbench check {name}.onnx --inputs {name}.npz --framework {frameworks}"
    nodes = "\n".join(
        f"  {each.title}({', '.join(each.inputs)}) -> {', '.join(each.outputs)}  {dict(each.attributes) or ''}".rstrip()
        for each in case.network.nodes
    )
    (folder / f"{name}.txt").write_text(f"{describe(found)}\n\n{nodes}\n\n{command}\n", encoding="utf-8")
    return model
