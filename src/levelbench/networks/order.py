"""Puts the nodes of a graph in an order in which each comes after those whose outputs it reads.

The one idea: nodes that are in order already stay as they are; others move no further than they must.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any

import onnx

from levelbench.errors import DefinitionError

__all__ = ["outer_reads", "refuse", "sort_nodes"]


def refuse(asked: str, found: str, do: str) -> DefinitionError:
    """The error of a model that cannot be used as it is written."""
    return DefinitionError(asked, found, do)


def outer_reads(node: onnx.NodeProto) -> Iterator[str]:
    """The values around a node that it reads: its inputs, and what its subgraphs read and do not make themselves."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
            own = {each.name for each in (*graph.input, *graph.initializer)}
            own |= {each.values.name for each in graph.sparse_initializer}
            own |= {name for inner in graph.node for name in inner.output}
            for inner in graph.node:
                yield from (name for name in outer_reads(inner) if name not in own)
            yield from (each.name for each in graph.output if each.name and each.name not in own)


def sort_nodes(
    nodes: Any, given: Sequence[str], wanted: Sequence[str], asked: str, around: set[str] | frozenset[str] = frozenset()
) -> None:
    """Sort a repeated field of nodes in place.

    Raises ``DefinitionError`` for a value that is made twice or by nothing, and for nodes in a cycle.
    """
    maker: dict[str, int] = {}
    own = set(given)
    for at, node in enumerate(nodes):
        for name in node.output:
            if name and (name in maker or name in own):
                raise refuse(asked, f"the value {name!r} is made twice", "rename one of them")
            if name:
                maker[name] = at
    known = own | around
    needs = [{name for name in outer_reads(node) if name not in own} for node in nodes]
    for node, names in zip(nodes, needs, strict=True):
        for name in names:
            if name not in maker and name not in known:
                raise refuse(asked, f"{node.op_type} reads {name!r}, which nothing makes", "complete the model")
    for name in wanted:
        if name and name not in maker and name not in known:
            raise refuse(asked, f"its output {name!r} is made by nothing", "complete the model")
    before = [{maker[name] for name in names if name in maker} for names in needs]
    if all(not earlier or max(earlier) < at for at, earlier in enumerate(before)):
        return
    order = _order(before, nodes, asked)
    moved = [onnx.NodeProto() for _ in order]
    for copy, at in zip(moved, order, strict=True):
        copy.CopyFrom(nodes[at])
    del nodes[:]
    nodes.extend(moved)


def _order(before: Sequence[set[int]], nodes: Sequence[onnx.NodeProto], asked: str) -> list[int]:
    """Kahn's algorithm (1962); of the nodes that are ready, the one that came first in the file."""
    missing = [len(each) for each in before]
    readers: list[list[int]] = [[] for _ in before]
    for at, earlier in enumerate(before):
        for each in earlier:
            readers[each].append(at)
    ready = [at for at, count in enumerate(missing) if not count]
    order: list[int] = []
    while ready:
        at = heapq.heappop(ready)
        order.append(at)
        for reader in readers[at]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, reader)
    if len(order) < len(before):
        node = nodes[next(at for at, count in enumerate(missing) if count)]
        raise refuse(asked, f"it has a cycle through {node.op_type} {(node.name or node.output[0])!r}", "take it out")
    return order
