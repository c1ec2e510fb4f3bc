"""Fusion by pattern: several nodes become the one operator that ONNX has for what they compute.

The one idea: a pattern is replaced only if nothing else reads a value inside it, so nothing is computed twice and no
output disappears. What was found and left alone is said, with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from levelbench.errors import UnknownNameError
from levelbench.networks.network import Network
from levelbench.networks.transforms.constants import lifted
from levelbench.networks.transforms.graph import Graph
from levelbench.networks.transforms.matching import View
from levelbench.networks.transforms.opset import raised
from levelbench.networks.transforms.patterns import PATTERNS, Pattern
from levelbench.networks.transforms.transform import Arrays, Transform, Transformed, whole_number, words

__all__ = ["Fuse"]


class Fuse(Transform):
    """Fuses ``patterns`` (default: all): layer-norm, rms-norm, gelu, swish, hard-swish, attention, gemm.

    An operator that the network's opset does not have is not made, unless ``opset`` raises it.
    """

    name = "fuse"
    summary = "replaces patterns of nodes by one operator: Gemm, LayerNormalization, Gelu, Attention, ..."

    def __init__(self, *, patterns: str | Sequence[str] = tuple(PATTERNS), opset: str | int | None = None) -> None:
        for each in words(patterns):
            if each not in PATTERNS:
                raise UnknownNameError("pattern", each, PATTERNS)
        self._patterns = words(patterns)
        self._opset = None if opset is None else whole_number("opset", opset)

    def transform(self, network: Network, parameters: Arrays | None) -> Transformed:
        """The network with fused operators."""
        if self._opset is not None:
            network = raised(network, self._opset)
        graph = Graph(lifted(network), parameters)
        view = View(graph)
        fused: Counter[str] = Counter()
        left: Counter[str] = Counter()
        before = len(graph.nodes)
        for name in self._patterns:
            pattern = PATTERNS[name]
            if graph.opset < pattern.opset:
                left[name] = _count(graph, view, pattern)
                continue
            while True:
                found = _apply(graph, view, pattern)
                if found is None:
                    break
                view = View(graph, view.values)
                fused[pattern.operator] += 1
        changed = []
        if fused:
            made = ", ".join(f"{count} {operator}" for operator, count in fused.items())
            changed.append(f"{before} nodes became {len(graph.nodes)}: made {made}")
        for name, count in left.items():
            if count:
                need, has = PATTERNS[name].opset, graph.opset
                changed.append(
                    f"left {count} x {name}: {PATTERNS[name].operator} needs opset {need}, and this is {has}"
                )
        graph.drop_unread()
        new, values = graph.finish()
        return Transformed(new, values, self.name, tuple(changed))


def _apply(graph: Graph, view: View, pattern: Pattern) -> bool | None:
    """Replace the last match, so that the longest comes first; ``None`` where there is none."""
    for node in reversed(graph.nodes):
        if node.domain not in ("", "ai.onnx"):
            continue
        match = pattern.find(view, node)
        if match is not None and view.closed(match.found):
            graph.swap(match.found, match.new)
            return True
    return None


def _count(graph: Graph, view: View, pattern: Pattern) -> int:
    nodes = [node for node in graph.nodes if node.domain in ("", "ai.onnx")]
    found = [pattern.find(view, node) for node in nodes]
    return sum(each is not None and view.closed(each.found) for each in found)
