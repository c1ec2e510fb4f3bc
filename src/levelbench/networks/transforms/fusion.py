"""Fusion by pattern: several nodes become the one operator that ONNX has for what they compute.

A pattern starts at the node that makes the last value, follows it back, and returns all nodes of the match. They are
replaced only if nothing else reads a value inside, so that nothing is computed twice and no output disappears.
Exporters order and bracket products and sums in many ways. So a product is normalised to a number times values to the
power of 1 or -1, and a sum to a number plus values.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx

from levelbench.errors import UnknownNameError
from levelbench.networks.inspect import is_standard
from levelbench.networks.network import Network
from levelbench.networks.transforms.folding import lifted
from levelbench.networks.transforms.graph import EditableGraph, known_values, raised
from levelbench.networks.transforms.transform import Arrays, Transform, Transformed, whole_number, words
from levelbench.networks.values import Shape, Value


def close(found: float | None, wanted: float) -> bool:
    """Whether a constant is this number, up to float32 or six digits."""
    return found is not None and math.isclose(found, wanted, rel_tol=1e-5)


@dataclass(frozen=True)
class PatternMatch:
    """The nodes found, in any order, and those that replace them."""

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


class GraphView:
    """A graph in which to search for patterns."""

    def __init__(self, graph: EditableGraph, values: Mapping[str, Value] | None = None) -> None:
        self.graph = graph
        self.values = known_values(graph.network) if values is None else values
        self._makers, self._readers, self._kept = graph.makers(), graph.readers(), graph.kept()

    def shape(self, name: str) -> Shape | None:
        """The shape of a value."""
        found = self.values.get(name)
        return None if found is None else found.shape

    def rank(self, name: str) -> int:
        """The number of axes; -1 if unknown."""
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
        """The value of a constant with one element that is not a parameter."""
        value = self.graph.constant(name)
        return float(value.reshape(-1)[0]) if value is not None and value.size == 1 else None

    def is_inner(self, name: str) -> bool:
        """Whether exactly one node reads a value, and it is not an output."""
        return len(self._readers.get(name, [])) == 1 and name not in self._kept

    def closed(self, nodes: Sequence[onnx.NodeProto], last: onnx.NodeProto) -> bool:
        """Whether only these nodes read what they make, except for the first output of ``last``."""
        own = {id(each) for each in nodes}
        made = {name for node in nodes for name in node.output if name} - {last.output[0]}
        return not made & self._kept and all(id(each) in own for name in made for each in self._readers.get(name, []))

    def product(self, name: str, *, outermost: bool = True) -> Product:
        """A value as a product. A factor that is also read elsewhere is not decomposed."""
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

    def sum(self, name: str) -> Sum:
        """A value as a sum. A term that is also read elsewhere is not decomposed."""
        found = Sum()
        self._terms(name, found, True)
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
        """If the value is a number times ``base`` to this power, the number and the nodes."""
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
        """The first axis of a reduction with ``keepdims``, if it reduces all axes from there on."""
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


Finder = Callable[[GraphView, onnx.NodeProto], PatternMatch | None]


@dataclass(frozen=True)
class Pattern:
    """A pattern: the operator that replaces it, the opset that has it, and the function that finds it."""

    operator: str
    opset: int
    find: Finder


def _gemm(view: GraphView, last: onnx.NodeProto) -> PatternMatch | None:
    """MatMul of matrices followed by Add."""
    if last.op_type != "Add":
        return None
    for product, bias in (tuple(last.input), tuple(last.input)[::-1]):
        node = view.maker(product, "MatMul")
        if node is None or not view.is_inner(product) or any(view.rank(each) != 2 for each in node.input):
            continue
        if view.same_shape(product, last.output[0]) and 0 <= view.rank(bias) <= 2:
            return PatternMatch([node, last], [view.graph.make("Gemm", [*node.input, bias], last.output[0])])
    return None


def _two_factors(view: GraphView, last: onnx.NodeProto, *op_types: str) -> Iterator[tuple[Product, str, str]]:
    """If the value is a product of two values: the product, a factor of the same shape, and the other factor."""
    whole = view.product(last.output[0]) if last.op_type in op_types else Product()
    if len(whole.up) == 2 and not whole.down:
        for x, other in (whole.up, whole.up[::-1]):
            if view.same_shape(x, last.output[0]):
                yield whole, x, other


def _gelu(view: GraphView, last: onnx.NodeProto) -> PatternMatch | None:
    """0.5 x (1 + erf(x / sqrt 2)), or 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
    for whole, x, other in _two_factors(view, last, "Mul", "Div"):
        one = view.sum(other)
        if not close(whole.number, 0.5) or not close(one.number, 1.0) or len(one.values) != 1:
            continue
        for kind, inside in (("Erf", _erf_argument), ("Tanh", _tanh_argument)):
            function = view.maker(one.values[0], kind)
            nodes = None if function is None else inside(view, function.input[0], x)
            if function is not None and nodes is not None:
                settings = {"approximate": "tanh"} if kind == "Tanh" else {}
                new = view.graph.make("Gelu", [x], last.output[0], **settings)
                return PatternMatch([*nodes, function, *one.nodes, *whole.nodes], [new])
    return None


def _erf_argument(view: GraphView, name: str, x: str) -> list[onnx.NodeProto] | None:
    found = view.power(name, x, 1)
    return found[1] if found is not None and close(found[0], math.sqrt(0.5)) else None


def _tanh_argument(view: GraphView, name: str, x: str) -> list[onnx.NodeProto] | None:
    """The nodes of sqrt(2 / pi) (x + 0.044715 x^3), or of sqrt(2 / pi) x (1 + 0.044715 x^2)."""
    whole = view.product(name)
    if not close(whole.number, math.sqrt(2 / math.pi)) or whole.down:
        return None
    factored = len(whole.up) == 2 and x in whole.up
    others = [each for each in whole.up if not (factored and each == x)]
    if len(others) != 1:
        return None
    inner = view.sum(others[0])
    values = [each for each in inner.values if factored or each != x]
    if len(values) != 1 or not (close(inner.number, 1.0) if factored else inner.number == 0):
        return None
    if not factored and len(inner.values) != 2:
        return None
    power = view.power(values[0], x, 2 if factored else 3)
    if power is None or not close(power[0], 0.044715):
        return None
    return [*power[1], *inner.nodes, *whole.nodes]


def _swish(view: GraphView, last: onnx.NodeProto) -> PatternMatch | None:
    """X sigmoid(alpha x)."""
    for whole, x, other in _two_factors(view, last, "Mul"):
        gate = view.maker(other, "Sigmoid")
        power = None if gate is None else view.power(gate.input[0], x, 1)
        if gate is not None and power is not None and close(whole.number, 1.0):
            new = view.graph.make("Swish", [x], last.output[0], alpha=power[0])
            return PatternMatch([*power[1], gate, *whole.nodes], [new])
    return None


def _hard_swish(view: GraphView, last: onnx.NodeProto) -> PatternMatch | None:
    """X hardsigmoid(x) with slope 1/6, or x clip(x + 3, 0, 6) / 6."""
    for whole, x, other in _two_factors(view, last, "Mul", "Div"):
        gate = view.maker(other, "HardSigmoid", "Clip")
        nodes: list[onnx.NodeProto] | None = None
        if gate is None:
            continue
        if gate.op_type == "HardSigmoid" and gate.input[0] == x and close(whole.number, 1.0):
            operator = view.graph.operator(gate)
            nodes = [] if close(operator["alpha"], 1 / 6) and close(operator["beta"], 0.5) else None
        elif gate.op_type == "Clip" and close(whole.number, 1 / 6) and len(gate.input) == 3:
            shifted = view.sum(gate.input[0])
            bounds = [view.number(each) for each in gate.input[1:]]
            fits = shifted.values == [x] and close(shifted.number, 3.0) and bounds == [0.0, 6.0]
            nodes = shifted.nodes if fits else None
        if nodes is not None:
            return PatternMatch([*nodes, gate, *whole.nodes], [view.graph.make("HardSwish", [x], last.output[0])])
    return None


def _layer_norm(view: GraphView, last: onnx.NodeProto) -> PatternMatch | None:
    """(x - mean) / sqrt(variance + epsilon) times scale, plus shift: over all axes from some axis on."""
    if last.op_type == "Add":
        for first, second in (last.input, last.input[::-1]):
            found = _normalised(view, first, last, "LayerNormalization", second) if view.is_inner(first) else None
            if found is not None:
                return found
        return None
    return _normalised(view, last.output[0], last, "LayerNormalization") if last.op_type in ("Mul", "Div") else None


def _rms_norm(view: GraphView, last: onnx.NodeProto) -> PatternMatch | None:
    """X / sqrt(mean of x^2 + epsilon) times scale."""
    return _normalised(view, last.output[0], last, "RMSNormalization") if last.op_type in ("Mul", "Div") else None


def _normalised(view: GraphView, name: str, last: onnx.NodeProto, operator: str, *shift: str) -> PatternMatch | None:
    whole = view.product(name)
    if len(whole.down) != 1 or not close(whole.number, 1.0) or not 1 <= len(whole.up) <= 2:
        return None
    for centred in whole.up:
        scales = [each for each in whole.up if each != centred]
        spread = _root_of_mean_square(view, whole.down[0], centred)
        if spread is None:
            continue
        epsilon, axis, nodes = spread
        x = centred
        if operator == "LayerNormalization":
            difference = view.maker(centred, "Sub")
            mean = None if difference is None else view.maker(difference.input[1], "ReduceMean")
            if difference is None or mean is None or mean.input[0] != difference.input[0]:
                continue
            if view.last_axes(mean) != axis:
                continue
            x = difference.input[0]
            nodes = [mean, difference, *nodes]
        if not _fits(view, x, axis, [*scales, *shift]) or not view.same_shape(x, last.output[0]):
            continue
        inputs = [x, *(scales or [_ones(view, x, axis)]), *shift]
        new = view.graph.make(operator, inputs, last.output[0], axis=axis, epsilon=epsilon)
        return PatternMatch([*nodes, *whole.nodes, last], [new])
    return None


def _root_of_mean_square(view: GraphView, name: str, x: str) -> tuple[float, int, list[onnx.NodeProto]] | None:
    """Epsilon, axis and nodes of sqrt(mean of x^2 + epsilon)."""
    root = view.maker(name, "Sqrt")
    under = None if root is None else view.sum(root.input[0])
    if root is None or under is None or len(under.values) != 1:
        return None
    mean = view.maker(under.values[0], "ReduceMean")
    axis = None if mean is None else view.last_axes(mean)
    square = None if mean is None else view.power(mean.input[0], x, 2)
    if mean is None or axis is None or square is None or not close(square[0], 1.0):
        return None
    return under.number, axis, [*square[1], mean, *under.nodes, root]


def _fits(view: GraphView, x: str, axis: int, arrays: list[str]) -> bool:
    """Whether scale and shift have the shape of the normalised axes."""
    shape = view.shape(x) or ()
    return all(view.shape(each) == shape[axis:] for each in arrays) and all(isinstance(n, int) for n in shape[axis:])


def _ones(view: GraphView, x: str, axis: int) -> str:
    shape = [int(each) for each in (view.shape(x) or ())[axis:] if isinstance(each, int)]
    return view.graph.store(np.ones(shape, np.float32), f"{x}.scale")


def _attention(view: GraphView, last: onnx.NodeProto) -> PatternMatch | None:
    """softmax(number times Q K^T + mask) V, with (batch, heads, length, size) each."""
    if last.op_type != "MatMul" or view.rank(last.output[0]) != 4:
        return None
    nodes: list[onnx.NodeProto] = []
    weights = last.input[0]
    dropped = view.maker(weights, "Dropout")
    if dropped is not None and len(dropped.input) < 3:
        nodes.append(dropped)
        weights = dropped.input[0]
    softmax = view.maker(weights, "Softmax")
    if softmax is None or view.graph.operator(softmax)["axis"] not in (-1, 3):
        return None
    nodes.append(softmax)
    masked = view.sum(softmax.input[0])
    for scores in masked.values:
        masks = [each for each in masked.values if each != scores]
        scaled = view.product(scores)
        product = view.maker(scaled.up[0], "MatMul") if len(scaled.up) == 1 and not scaled.down else None
        if product is None or masked.number or len(masks) > 1:
            continue
        query, key = view.product(product.input[0], outermost=False), _key(view, product.input[1])
        if key is None or len(query.up) != 1 or query.down or view.rank(query.up[0]) != 4:
            continue
        number = scaled.number * query.number
        if number <= 0 or any(view.rank(each) < 2 for each in masks):
            continue
        key_name, key_nodes, transpose = key
        inputs = [query.up[0], key_name, last.input[1], *masks]
        new = view.graph.make("Attention", inputs, last.output[0], scale=number)
        found = [*query.nodes, *key_nodes, product, *scaled.nodes, *masked.nodes, *nodes, last]
        return PatternMatch(found, [*transpose, new])
    return None


def _key(view: GraphView, name: str) -> tuple[str, list[onnx.NodeProto], list[onnx.NodeProto]] | None:
    """The untransposed key, the nodes to remove, and a node that transposes it as Attention requires, if needed."""
    node = view.maker(name, "Transpose")
    if node is None or view.rank(name) != 4:
        return None
    order = list(view.graph.operator(node).get("perm") or [3, 2, 1, 0])
    order[2], order[3] = order[3], order[2]
    if order == [0, 1, 2, 3]:
        return node.input[0], [node], []
    output = view.graph.free(f"{name}.key")
    return output, [node], [view.graph.make("Transpose", [node.input[0]], output, perm=order)]


PATTERNS: dict[str, Pattern] = {
    "layer-norm": Pattern("LayerNormalization", 17, _layer_norm),
    "rms-norm": Pattern("RMSNormalization", 23, _rms_norm),
    "gelu": Pattern("Gelu", 20, _gelu),
    "swish": Pattern("Swish", 24, _swish),
    "hard-swish": Pattern("HardSwish", 14, _hard_swish),
    "attention": Pattern("Attention", 23, _attention),
    "gemm": Pattern("Gemm", 13, _gemm),
}


class Fuse(Transform):
    """Fuses ``patterns`` (default: all): layer-norm, rms-norm, gelu, swish, hard-swish, attention, gemm.

    An operator that the network's opset lacks is not used, unless ``opset`` raises the opset.
    """

    name = "fuse"
    summary = "replaces patterns of nodes by one operator: Gemm, LayerNormalization, Gelu, Attention, ..."

    def __init__(self, *, patterns: str | Sequence[str] = tuple(PATTERNS), opset: str | int | None = None) -> None:
        for each in words(patterns):
            if each not in PATTERNS:
                raise UnknownNameError("pattern", each, PATTERNS)
        self._patterns = words(patterns)
        self._opset = None if opset is None else whole_number("opset", opset)

    def apply(self, network: Network, parameters: Arrays | None = None) -> Transformed:
        """The network with fused operators."""
        if self._opset is not None:
            network = raised(network, self._opset)
        graph = EditableGraph(lifted(network), parameters)
        view = GraphView(graph)
        fused: Counter[str] = Counter()
        left: Counter[str] = Counter()
        before = len(graph.nodes)
        for name in self._patterns:
            pattern = PATTERNS[name]
            if graph.opset < pattern.opset:
                left[name] = _count(graph, view, pattern)
                continue
            while _apply(graph, view, pattern):
                view = GraphView(graph, view.values)
                fused[pattern.operator] += 1
        changed = []
        if fused:
            made = ", ".join(f"{count} {operator}" for operator, count in fused.items())
            changed.append(f"{before} nodes became {len(graph.nodes)}: made {made}")
        for name, count in left.items():
            if count:
                need, has = PATTERNS[name].opset, graph.opset
                changed.append(
                    f"left {count} x {name}: {PATTERNS[name].operator} needs opset {need}, but the network has {has}"
                )
        graph.drop_unread()
        new, values = graph.finish()
        return Transformed(new, values, self.name, tuple(changed))


def _apply(graph: EditableGraph, view: GraphView, pattern: Pattern) -> bool:
    """Replace the last match, so that longer ones come first; returns whether there was one."""
    for node in reversed(graph.nodes):
        if node.domain not in ("", "ai.onnx"):
            continue
        match = pattern.find(view, node)
        if match is not None and view.closed(match.found, node):
            graph.swap(match.found, match.new)
            return True
    return False


def _count(graph: EditableGraph, view: GraphView, pattern: Pattern) -> int:
    nodes = [node for node in graph.nodes if node.domain in ("", "ai.onnx")]
    found = [(pattern.find(view, node), node) for node in nodes]
    return sum(each is not None and view.closed(each.found, node) for each, node in found)
