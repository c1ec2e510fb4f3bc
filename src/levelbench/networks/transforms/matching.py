"""What patterns are made of: products and sums taken apart, whatever the order in which they were written.

The one idea: a product is a number times values to the power of 1 or -1, a sum a number plus values. Exporters bracket
and order them in many ways; taken apart like this they are all the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx

from levelbench.networks.transforms.graph import Graph, is_standard
from levelbench.networks.transforms.shapes import known_values
from levelbench.networks.values import Shape, Value

__all__ = ["Match", "Product", "Sum", "View", "close"]


def close(found: float | None, wanted: float) -> bool:
    """Whether a constant is this number, as written in float32 or with six digits."""
    return found is not None and math.isclose(found, wanted, rel_tol=1e-5)


@dataclass(frozen=True)
class Match:
    """Nodes that are found, and those to put in their place; the last found makes the value that is kept."""

    found: Sequence[onnx.NodeProto]
    new: Sequence[onnx.NodeProto]


@dataclass
class Product:
    """``number`` times the values ``up`` over the values ``down``, and the nodes that make it."""

    number: float = 1.0
    up: list[str] = field(default_factory=list)
    down: list[str] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)


@dataclass
class Sum:
    """``number`` plus the values, and the nodes that make it."""

    number: float = 0.0
    values: list[str] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)


class View:
    """A graph to look for patterns in."""

    def __init__(self, graph: Graph, values: Mapping[str, Value] | None = None) -> None:
        self.graph = graph
        self.values = known_values(graph.network) if values is None else values
        self._makers, self._readers, self._kept = graph.makers(), graph.readers(), graph.kept()

    def shape(self, name: str) -> Shape | None:
        """The shape of a value."""
        found = self.values.get(name)
        return None if found is None else found.shape

    def rank(self, name: str) -> int:
        """The number of axes; -1 where it is not known."""
        shape = self.shape(name)
        return -1 if shape is None else len(shape)

    def same_shape(self, first: str, second: str) -> bool:
        """Whether two values are known to have the same shape."""
        shape = self.shape(first)
        return shape is not None and None not in shape and shape == self.shape(second)

    def maker(self, name: str, *op_types: str) -> onnx.NodeProto | None:
        """The node that makes a value, if it is one of these."""
        node = self._makers.get(name)
        return node if node is not None and is_standard(node, *op_types) else None

    def number(self, name: str) -> float | None:
        """The value of a constant of one element that is no parameter."""
        value = self.graph.constant(name)
        return float(value.reshape(-1)[0]) if value is not None and value.size == 1 else None

    def is_inner(self, name: str) -> bool:
        """Whether one node alone reads a value, and it is no output."""
        return len(self._readers.get(name, [])) == 1 and name not in self._kept

    def closed(self, nodes: Sequence[onnx.NodeProto]) -> bool:
        """Whether nothing but these nodes reads what they make, that of the last one aside."""
        own = {id(each) for each in nodes}
        names = [name for node in nodes[:-1] for name in node.output if name] + list(nodes[-1].output[1:])
        return all(
            name not in self._kept and all(id(each) in own for each in self._readers.get(name, [])) for name in names
        )

    def product(self, name: str, *, outermost: bool = True) -> Product:
        """A value as a product. A factor that is read elsewhere too is not taken apart."""
        found = Product()
        self._factors(name, True, found, outermost)
        return found

    def _factors(self, name: str, up: bool, found: Product, outermost: bool) -> None:
        node = self.maker(name, "Mul", "Div", "Reciprocal")
        number = self.number(name)
        if number is not None and (up or number):
            found.number *= number if up else 1 / number
            return
        if node is None or not (outermost or self.is_inner(name)):
            (found.up if up else found.down).append(name)
            return
        found.nodes.insert(0, node)
        if node.op_type == "Reciprocal":
            self._factors(node.input[0], not up, found, False)
            return
        self._factors(node.input[0], up, found, False)
        self._factors(node.input[1], up if node.op_type == "Mul" else not up, found, False)

    def sum(self, name: str, *, outermost: bool = True) -> Sum:
        """A value as a sum. A term that is read elsewhere too is not taken apart."""
        found = Sum()
        self._terms(name, found, outermost)
        return found

    def _terms(self, name: str, found: Sum, outermost: bool) -> None:
        node = self.maker(name, "Add")
        number = self.number(name)
        if number is not None:
            found.number += number
        elif node is None or not (outermost or self.is_inner(name)):
            found.values.append(name)
        else:
            found.nodes.insert(0, node)
            self._terms(node.input[0], found, False)
            self._terms(node.input[1], found, False)

    def power(self, name: str, base: str, exponent: int) -> tuple[float, list[onnx.NodeProto]] | None:
        """The number that multiplies ``base`` to this power, and the nodes, if the value is such a thing."""
        found = self.product(name)
        left, nodes = exponent, list(found.nodes)
        for each in found.up:
            pow_node = self.maker(each, "Pow")
            if each == base:
                left -= 1
            elif pow_node is not None and pow_node.input[0] == base and self.number(pow_node.input[1]) is not None:
                left -= int(self.number(pow_node.input[1]) or 0)
                nodes.insert(0, pow_node)
            else:
                return None
        return None if left or found.down else (found.number, nodes)

    def last_axes(self, node: onnx.NodeProto) -> int | None:
        """The first axis that a reduction with ``keepdims`` reduces, if it reduces all from there on."""
        operator = self.graph.operator(node)
        rank = self.rank(node.input[0])
        axes = operator.get("axes")
        if axes is None and len(node.input) > 1 and node.input[1]:
            value = self.graph.constant(node.input[1])
            axes = None if value is None else value.reshape(-1).tolist()
        if axes is None or not len(axes) or rank < 1 or not operator["keepdims"]:
            return None
        known = sorted(int(each) % rank for each in axes)
        return known[0] if known == list(range(known[0], rank)) else None
