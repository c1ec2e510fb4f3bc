"""Detection by default boxes, as in SSD (Liu et al. 2016, arXiv:1512.02325): where they are, decoding, and the loss.

A network predicts for each default box how far an object's box is from it, and a score a class. Which object a default
box is for is decided in the graph, so that every framework trains on the same matches.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from levelbench.errors import DefinitionError
from levelbench.networks.builder import GraphBuilder
from levelbench.networks.losses import LossNodes, LossSplice, huber
from levelbench.networks.network import Network
from levelbench.networks.values import Value

VARIANCES = (0.1, 0.2)
"""What offsets of centres and of sizes are divided by, as in SSD's own code."""
Boxes = NDArray[np.float32]

# From left, top, right, bottom to the centre, and to width and height.
_CENTRES = np.array([[0.5, 0], [0, 0.5], [0.5, 0], [0, 0.5]], np.float32)
_SIZES = np.array([[-1, 0], [0, -1], [1, 0], [0, 1]], np.float32)


def default_boxes(side: int, maps: Sequence[tuple[int, Sequence[tuple[float, float]]]]) -> Boxes:
    """(n, 4): left, top, right, bottom in pixels of an image of ``side``.

    ``maps`` are the cells along a side of each feature map and its shapes, (width, height) in pixels. Boxes are centred
    on cells: map by map, row by row, and shape by shape within a cell.
    """
    found = []
    for cells, shapes in maps:
        at = (np.arange(cells) + 0.5) * side / cells
        centres = np.stack([*np.meshgrid(at, at)], axis=-1)[:, :, None]
        half = np.array(shapes) / 2
        found.append(np.concatenate([centres - half, centres + half], axis=-1).reshape(-1, 4))
    return np.concatenate(found).astype(np.float32)


def decoded(g: GraphBuilder, offsets: str, defaults: Boxes) -> str:
    """The boxes (batch, n, 4) that ``offsets`` (batch, n, 4) from ``defaults`` (n, 4) stand for."""
    sizes = defaults @ _SIZES
    shift, stretch = g.node("Split", offsets, g.constant([2, 2]), outputs=2, axis=2)
    centre = g.node("Add", g.node("Mul", shift, g.constant(VARIANCES[0] * sizes)), g.constant(defaults @ _CENTRES))
    half = g.node(
        "Mul", g.node("Exp", g.node("Mul", stretch, g.constant(np.float32(VARIANCES[1])))), g.constant(sizes / 2)
    )
    return str(g.node("Concat", g.node("Sub", centre, half), g.node("Add", centre, half), axis=2))


def with_detection_loss(
    network: Network,
    defaults: Boxes,
    *,
    most: int,
    offsets: str = "offsets",
    scores: str = "scores",
    overlap: float = 0.5,
    negatives: int = 64,
    least: int = 3,
) -> Network:
    """The network with the inputs ``true_boxes`` (batch, most, 4) and ``true_classes`` (batch, most), and SSD's loss.

    Boxes are left, top, right, bottom in the unit of ``defaults`` (n, 4); a class of 0 fills up a row, and its box is
    zeros. A default box is for the object that it shares most with, if their intersection over union is at least
    ``overlap``, or if no other default box shares more with that object. The loss (section 2.2) is the smooth L1 of the
    offsets of matched boxes, plus the cross-entropy of their class and that of the background on three times as many
    unmatched ones, the worst of their image, all divided by the number of matches in the batch. At least ``least`` and
    at most ``negatives`` unmatched ones count in an image, so that empty images count too.

    ``offsets`` (batch, n, 4) and ``scores`` (batch, n, classes), before softmax, are values of the network.
    """
    shapes = {each.name: each.shape or () for each in network.outputs}
    count = shapes.get(scores, ())[-1:]
    if not count or not isinstance(count[0], int) or shapes[scores][1] != len(defaults):
        found = f"{scores!r} has the shape {shapes.get(scores)}, for {len(defaults)} default boxes"
        raise DefinitionError(f"a detection loss for {network.name}", found, "give scores (batch, boxes, classes)")
    graph = LossSplice(network)
    boxes = graph.input("true_boxes", "float32", ("batch", most, 4))
    classes = graph.input("true_classes", "int64", ("batch", most), count[0])
    node = LossNodes(graph)
    matched, chosen = _matches(node, boxes, defaults, most, overlap)
    kinds = node("Unsqueeze", node("Cast", classes, to=TensorProto.FLOAT), _AXIS)
    # A box of zeros overlaps nothing, so all that is matched has a class.
    kind = node("Mul", node("Squeeze", node("MatMul", chosen, kinds), _AXIS), matched)
    wanted = _offsets(node, node("MatMul", chosen, boxes), defaults)
    apart = huber(graph, Value(offsets, "float32", ("batch", len(defaults), 4)), wanted, 1.0)
    apart = node("Mul", node("ReduceSum", apart, _AXIS, keepdims=0), matched)
    turned, labels = node("Transpose", scores, perm=[0, 2, 1]), node("Cast", kind, to=TensorProto.INT64)
    wrong = node("SoftmaxCrossEntropyLoss", turned, labels, reduction="none")
    objects = node("Add", apart, node("Mul", wrong, matched))
    background = _worst(node, wrong, matched, min(negatives, len(defaults)), least)
    total = node("Add", *(node("ReduceSum", each, keepdims=0) for each in (objects, background)))
    matches = node("Max", node("ReduceSum", matched, keepdims=0), np.float32(1))
    graph.node("Div", [total, matches], graph.loss)
    return graph.network()


_AXIS = np.array([2])


def _matches(node: LossNodes, boxes: str, defaults: Boxes, most: int, overlap: float) -> tuple[str, str]:
    """Which default boxes are for an object, (batch, n) of 0.0 and 1.0, and for which, (batch, n, most)."""
    turned, sides, spans = node("Transpose", boxes, perm=[0, 2, 1]), [], []
    for axis in (0, 1):
        # (batch, 1, most) of the objects, (n, 1) of the default boxes.
        low, high = (node("Gather", turned, np.array([at]), axis=1) for at in (axis, axis + 2))
        first, last = defaults[:, [axis]], defaults[:, [axis + 2]]
        sides.append(node("Relu", node("Sub", node("Min", high, last), node("Max", low, first))))
        spans.append(node("Relu", node("Sub", high, low)))
    inside = node("Mul", *sides)
    own = (defaults @ _SIZES).prod(axis=1, keepdims=True)
    share = node("Div", inside, node("Sub", node("Add", node("Mul", *spans), own), inside))
    best = node("Max", node("ReduceMax", share, np.array([1]), keepdims=1), np.float32(1e-6))
    rank = node("Add", share, node("Cast", node("GreaterOrEqual", share, best), to=TensorProto.FLOAT))
    enough = node("GreaterOrEqual", node("ReduceMax", rank, _AXIS, keepdims=0), np.float32(overlap))
    which = node("ArgMax", rank, axis=2, keepdims=0)
    chosen = node("OneHot", which, np.array(most), np.array([0, 1], np.float32), axis=2)
    return node("Cast", enough, to=TensorProto.FLOAT), chosen


def _offsets(node: LossNodes, boxes: str, defaults: Boxes) -> str:
    """How far ``boxes`` (batch, n, 4) are from ``defaults`` (n, 4), as a network predicts it (equation 2)."""
    sizes = defaults @ _SIZES
    shift = node("Div", node("Sub", node("MatMul", boxes, _CENTRES), defaults @ _CENTRES), VARIANCES[0] * sizes)
    # What fills up has no size, whose logarithm is not finite.
    broad = node("Max", node("MatMul", boxes, _SIZES), np.float32(1e-3))
    return node("Concat", shift, node("Div", node("Log", node("Div", broad, sizes)), np.float32(VARIANCES[1])), axis=2)


def _worst(node: LossNodes, wrong: str, matched: str, most: int, least: int) -> str:
    """The highest of ``wrong`` (batch, n) that are not ``matched``, (batch, most), 0.0 where there are too many."""
    highest = node("TopK", node("Mul", wrong, node("Sub", np.float32(1), matched)), np.array([most]), axis=1)
    count = node("Mul", node("ReduceSum", matched, np.array([1]), keepdims=1), np.float32(3))
    within = node("Less", np.arange(most, dtype=np.float32), node("Max", count, np.float32(least)))
    return node("Mul", highest, node("Cast", within, to=TensorProto.FLOAT))
