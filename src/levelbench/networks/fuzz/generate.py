"""Generates a network of 2 to 12 operators, with parameters and inputs, that is well conditioned by construction.

The one idea: operators are put on values that exist, so every graph is valid; what would make it ill-conditioned is
guarded where it is put, so a disagreement of frameworks is a fault and not rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from levelbench.networks.builder import GraphBuilder
from levelbench.networks.fuzz.elementwise import ELEMENTWISE
from levelbench.networks.fuzz.items import Draws, Graph, SeededDraws
from levelbench.networks.fuzz.layers import LAYERS
from levelbench.networks.fuzz.moving import MOVING
from levelbench.networks.network import Network

__all__ = ["Case", "generate", "generate_seeded"]

FEWEST, MOST_NODES = 2, 12
_SHAPES = ((2, 3), (2, 3, 4), (1, 2, 4, 4), (4,), (2, 4, 3, 3), (3, 1, 5), (2, 2, 5, 4))


@dataclass(frozen=True)
class Case:
    """A network with the parameters and inputs it is to be run on."""

    network: Network
    parameters: Mapping[str, NDArray[Any]]
    inputs: Mapping[str, NDArray[Any]]


def generate_seeded(seed: int) -> Case:
    """The case of that seed."""
    return generate(SeededDraws(seed), f"fuzz-{seed}")


def generate(draws: Draws, name: str = "fuzz") -> Case:
    """A case by ``draws``: one to three inputs, 2 to 12 nodes, and as outputs what nothing reads, or most of it."""
    graph = Graph(GraphBuilder(name), draws, draws.integer(0, 2**16))
    for _ in range(draws.integer(1, 3)):
        graph.input(draws.pick(_SHAPES))
    if draws.integer(0, 3) == 3:
        graph.input(draws.pick([(3,), (2, 2)]), "int64")
    given = len(graph.items)
    # With a parameter added to it, a gradient comes all the way back.
    first = graph.items[0]
    shift = graph.parameter(first.shape, first.dtype)
    graph.items.append(first.like(graph.node("Add", first.name, shift.name), bound=1.5, least=-1.5))
    wanted = draws.integer(FEWEST, MOST_NODES)
    groups = (ELEMENTWISE, MOVING, LAYERS)
    for _ in range(4 * MOST_NODES):
        if graph.nodes >= wanted:
            break
        if (made := draws.pick(draws.pick(groups))(graph)) is not None:
            graph.items.append(made)
    return _finished(graph, given)


def _finished(graph: Graph, given: int) -> Case:
    """With outputs: what nothing reads, but now and then one of several, which leaves dead ends."""
    made = [each for each in graph.items[given:] if each.dtype != "bool"]
    ends = [each for each in made if each.name not in graph.read] or made[-1:]
    if len(ends) > 1 and graph.draws.integer(0, 3) == 3:
        ends = ends[1:]
    # A value in the middle may be an output too.
    inner = [each for each in made if each.name in graph.read]
    if inner and graph.draws.integer(0, 3) == 3:
        ends.append(graph.draws.pick(inner))
    if not any(each.name in graph.trained for each in ends):
        ends.append(graph.items[given])
    for each in ends:
        graph.builder.output(each.name)
    network = graph.builder.build()
    inputs = {each.name: graph.inputs[each.name] for each in network.inputs}
    return Case(network, network.initialise(0), inputs)
