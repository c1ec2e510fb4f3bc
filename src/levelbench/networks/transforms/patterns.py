"""Patterns that :class:`levelbench.networks.transforms.fuse.Fuse` replaces by one operator.

The one idea: each looks at the node that makes the last value, follows it back, and answers with all nodes it is made
of; whether anything else reads a value in between is asked in one place, by who applies it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx

from levelbench.networks.transforms.matching import Match, View, close

__all__ = ["PATTERNS", "Pattern"]

Finder = Callable[[View, onnx.NodeProto], Match | None]


@dataclass(frozen=True)
class Pattern:
    """A pattern: the operator that it becomes, the opset that has it, and what finds it from its last node."""

    operator: str
    opset: int
    find: Finder


def _gemm(view: View, last: onnx.NodeProto) -> Match | None:
    """MatMul of matrices, and Add."""
    if last.op_type != "Add":
        return None
    for product, bias in (tuple(last.input), tuple(last.input)[::-1]):
        node = view.maker(product, "MatMul")
        if node is None or not view.is_inner(product) or any(view.rank(each) != 2 for each in node.input):
            continue
        if view.same_shape(product, last.output[0]) and 0 <= view.rank(bias) <= 2:
            return Match([node, last], [view.graph.make("Gemm", [*node.input, bias], last.output[0])])
    return None


def _gelu(view: View, last: onnx.NodeProto) -> Match | None:
    """0.5 x (1 + erf(x / sqrt 2)), or 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
    if last.op_type not in ("Mul", "Div"):
        return None
    whole = view.product(last.output[0])
    if not close(whole.number, 0.5) or whole.down or len(whole.up) != 2:
        return None
    for x, other in (whole.up, whole.up[::-1]):
        one = view.sum(other)
        if not close(one.number, 1.0) or len(one.values) != 1 or not view.same_shape(x, last.output[0]):
            continue
        for kind, inside in (("Erf", _erf_argument), ("Tanh", _tanh_argument)):
            function = view.maker(one.values[0], kind)
            nodes = None if function is None else inside(view, function.input[0], x)
            if function is not None and nodes is not None:
                settings = {"approximate": "tanh"} if kind == "Tanh" else {}
                new = view.graph.make("Gelu", [x], last.output[0], **settings)
                return Match([*nodes, function, *one.nodes, *_but(whole.nodes, last), last], [new])
    return None


def _erf_argument(view: View, name: str, x: str) -> list[onnx.NodeProto] | None:
    found = view.power(name, x, 1)
    return found[1] if found is not None and close(found[0], math.sqrt(0.5)) else None


def _tanh_argument(view: View, name: str, x: str) -> list[onnx.NodeProto] | None:
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


def _swish(view: View, last: onnx.NodeProto) -> Match | None:
    """X sigmoid(alpha x)."""
    whole = view.product(last.output[0]) if last.op_type == "Mul" else None
    if whole is None or not close(whole.number, 1.0) or whole.down or len(whole.up) != 2:
        return None
    for x, other in (whole.up, whole.up[::-1]):
        gate = view.maker(other, "Sigmoid")
        power = None if gate is None else view.power(gate.input[0], x, 1)
        if gate is not None and power is not None and view.same_shape(x, last.output[0]):
            new = view.graph.make("Swish", [x], last.output[0], alpha=power[0])
            return Match([*power[1], gate, *_but(whole.nodes, last), last], [new])
    return None


def _hard_swish(view: View, last: onnx.NodeProto) -> Match | None:
    """X hardsigmoid(x) with slope 1/6, or x clip(x + 3, 0, 6) / 6."""
    if last.op_type not in ("Mul", "Div"):
        return None
    whole = view.product(last.output[0])
    if whole.down or len(whole.up) != 2:
        return None
    for x, other in (whole.up, whole.up[::-1]):
        gate = view.maker(other, "HardSigmoid", "Clip")
        if gate is None or not view.same_shape(x, last.output[0]):
            continue
        nodes: list[onnx.NodeProto] | None = None
        if gate.op_type == "HardSigmoid" and gate.input[0] == x and close(whole.number, 1.0):
            operator = view.graph.operator(gate)
            nodes = [] if close(operator["alpha"], 1 / 6) and close(operator["beta"], 0.5) else None
        elif gate.op_type == "Clip" and close(whole.number, 1 / 6) and len(gate.input) == 3:
            shifted = view.sum(gate.input[0])
            bounds = [view.number(each) for each in gate.input[1:]]
            fits = shifted.values == [x] and close(shifted.number, 3.0) and bounds == [0.0, 6.0]
            nodes = shifted.nodes if fits else None
        if nodes is not None:
            new = view.graph.make("HardSwish", [x], last.output[0])
            return Match([*nodes, gate, *_but(whole.nodes, last), last], [new])
    return None


def _layer_norm(view: View, last: onnx.NodeProto) -> Match | None:
    """(x - mean) / sqrt(variance + epsilon) times scale, plus shift: over all axes from one on."""
    shift, scaled = "", last.output[0]
    if last.op_type == "Add":
        for first, second in (tuple(last.input), tuple(last.input)[::-1]):
            if view.is_inner(first) and view.maker(first, "Mul", "Div"):
                found = _normalised(view, first, last, second)
                if found is not None:
                    return found
        return None
    return _normalised(view, scaled, last, shift) if last.op_type in ("Mul", "Div") else None


def _normalised(view: View, name: str, last: onnx.NodeProto, shift: str) -> Match | None:
    whole = view.product(name)
    if len(whole.down) != 1 or not close(whole.number, 1.0) or not 1 <= len(whole.up) <= 2:
        return None
    for centred in whole.up:
        scales = [each for each in whole.up if each != centred]
        difference = view.maker(centred, "Sub")
        spread = None if difference is None else _root_of_mean_square(view, whole.down[0], centred)
        if difference is None or spread is None:
            continue
        x, mean = difference.input[0], view.maker(difference.input[1], "ReduceMean")
        epsilon, axis, nodes = spread
        if mean is None or mean.input[0] != x or view.last_axes(mean) != axis:
            continue
        if not _fits(view, x, axis, [*scales, *filter(None, [shift])]) or not view.same_shape(x, last.output[0]):
            continue
        inputs = [x, *(scales or [_ones(view, x, axis)]), *filter(None, [shift])]
        new = view.graph.make("LayerNormalization", inputs, last.output[0], axis=axis, epsilon=epsilon)
        return Match([mean, difference, *nodes, *_but(whole.nodes, last), last], [new])
    return None


def _rms_norm(view: View, last: onnx.NodeProto) -> Match | None:
    """X / sqrt(mean of x^2 + epsilon) times scale."""
    if last.op_type not in ("Mul", "Div"):
        return None
    whole = view.product(last.output[0])
    if len(whole.down) != 1 or not close(whole.number, 1.0) or not 1 <= len(whole.up) <= 2:
        return None
    for x in whole.up:
        scales = [each for each in whole.up if each != x]
        spread = _root_of_mean_square(view, whole.down[0], x)
        if spread is None or not view.same_shape(x, last.output[0]):
            continue
        epsilon, axis, nodes = spread
        if not _fits(view, x, axis, scales):
            continue
        inputs = [x, *(scales or [_ones(view, x, axis)])]
        new = view.graph.make("RMSNormalization", inputs, last.output[0], axis=axis, epsilon=epsilon)
        return Match([*nodes, *_but(whole.nodes, last), last], [new])
    return None


def _root_of_mean_square(view: View, name: str, x: str) -> tuple[float, int, list[onnx.NodeProto]] | None:
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


def _fits(view: View, x: str, axis: int, arrays: list[str]) -> bool:
    """Whether scale and shift have the shape of what is normalised over."""
    shape = view.shape(x) or ()
    return all(view.shape(each) == shape[axis:] for each in arrays) and all(isinstance(n, int) for n in shape[axis:])


def _ones(view: View, x: str, axis: int) -> str:
    shape = [int(each) for each in (view.shape(x) or ())[axis:] if isinstance(each, int)]
    return view.graph.store(np.ones(shape, np.float32), f"{x}.scale")


def _attention(view: View, last: onnx.NodeProto) -> Match | None:
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
        new = [*transpose, _attention_node(view, last, [query.up[0], key_name, last.input[1], *masks], number)]
        found = [*query.nodes, *key_nodes, product, *scaled.nodes, *masked.nodes, *nodes[::-1], last]
        return Match(found, new)
    return None


def _attention_node(view: View, last: onnx.NodeProto, inputs: list[str], number: float) -> onnx.NodeProto:
    made: onnx.NodeProto = view.graph.make("Attention", inputs, last.output[0], scale=number)
    return made


def _key(view: View, name: str) -> tuple[str, list[onnx.NodeProto], list[onnx.NodeProto]] | None:
    """The key that was transposed, the nodes that go, and a node that transposes it as Attention wants it."""
    node = view.maker(name, "Transpose")
    if node is None or view.rank(name) != 4:
        return None
    order = list(view.graph.operator(node).get("perm") or [3, 2, 1, 0])
    order[2], order[3] = order[3], order[2]
    if order == [0, 1, 2, 3]:
        return node.input[0], [node], []
    output = view.graph.free(f"{name}.key")
    return output, [node], [view.graph.make("Transpose", [node.input[0]], output, perm=order)]


def _but(nodes: list[onnx.NodeProto], last: onnx.NodeProto) -> list[onnx.NodeProto]:
    return [each for each in nodes if each is not last]


PATTERNS: dict[str, Pattern] = {
    "layer-norm": Pattern("LayerNormalization", 17, _layer_norm),
    "rms-norm": Pattern("RMSNormalization", 23, _rms_norm),
    "gelu": Pattern("Gelu", 20, _gelu),
    "swish": Pattern("Swish", 24, _swish),
    "hard-swish": Pattern("HardSwish", 14, _hard_swish),
    "attention": Pattern("Attention", 23, _attention),
    "gemm": Pattern("Gemm", 13, _gemm),
}
