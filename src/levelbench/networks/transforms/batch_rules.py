"""Which axis of a value carries the batch, and how each of ONNX's operators treats it.

A rule returns a result only if it can prove it; for anything unusual (an axis that is not constant, a broadcast over
the batch, a second output) it returns ``None``, which means that the node must not be split. Reshape keeps samples
separate if the number of elements before the batch does not change, because then each sample remains the same block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from levelbench.operators.node import OperatorNode


@dataclass(frozen=True)
class Carried:
    """The batch is on ``axis``, with ``multiple`` rows per sample."""

    axis: int
    multiple: int = 1


FIXED: Final = "fixed"
"""A value that does not depend on any sample."""
MIXED: Final = "mixed"
"""A value that depends on the batch as a whole, or in an unknown way."""
Carry = Carried | Literal["fixed", "mixed"]
Needs = tuple[Carried | None, ...]


@dataclass(frozen=True)
class Independence:
    """How a node is computed for one block of samples.

    ``needs``: the block to take from each input, or ``None`` for all of it (even a fixed input may have to be cut: a
    mask with one row per sample). ``outputs``: where the outputs carry the batch. ``baked``: (input, entry, multiple)
    of numbers of rows in constant inputs, which must be changed to that of the block.
    """

    needs: Needs
    outputs: tuple[Carried, ...]
    baked: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True)
class BatchMixing:
    """A node that needs the whole batch, but for whose outputs it is known where they carry it."""

    outputs: tuple[Carry, ...]


@dataclass(frozen=True)
class NodeContext:
    """A node with everything that a rule may use. Shapes are those at ``batch``; ``None`` if unknown."""

    node: OperatorNode
    carries: tuple[Carry | None, ...]
    shapes: tuple[tuple[int, ...] | None, ...]
    outputs: tuple[tuple[int, ...] | None, ...]
    constant: Callable[[str], NDArray[Any] | None]
    batch: int

    def carried(self, at: int = 0) -> Carried | None:
        """Where input ``at`` carries the batch, if it does."""
        found = self.carries[at] if at < len(self.carries) else None
        return found if isinstance(found, Carried) else None

    def shape(self, at: int = 0) -> tuple[int, ...] | None:
        """The shape of input ``at``."""
        return self.shapes[at] if at < len(self.shapes) else None

    def value(self, at: int) -> NDArray[Any] | None:
        """The value of input ``at`` if it is a constant."""
        return self.constant(self.node.inputs[at]) if self.given(at) else None

    def given(self, at: int) -> bool:
        """Whether input ``at`` is present."""
        return at < len(self.node.inputs) and bool(self.node.inputs[at])

    def axis(self, rank: int) -> int:
        """The attribute ``axis`` as a number from 0 to ``rank`` - 1."""
        return int(self.node["axis"]) % rank

    def only_first(self, output: Carried, *more: Carried) -> Independence | None:
        """Independence with the first input cut, if no other input carries the batch."""
        first = self.carried()
        if first is None or any(isinstance(each, Carried) for each in self.carries[1:]):
            return None
        outputs = (output, *more)
        wanted = len(self.node.outputs)
        if len(outputs) < wanted:
            return None
        return Independence((first, *(None for _ in self.carries[1:])), outputs[:wanted])


Rule = Callable[[NodeContext], Independence | BatchMixing | None]
Shape = tuple[int, ...]
RuleOfFirst = Callable[[NodeContext, Carried, Shape], Independence | BatchMixing | None]
MixedAxes = Callable[[NodeContext, int], Iterable[int] | None]
RULES: dict[str, Rule] = {}


def _rule(op_types: str) -> Callable[[Rule], Rule]:
    """Register a rule for these operators."""

    def decorate(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(op_types.split(), rule))
        return rule

    return decorate


def _of_first(op_types: str) -> Callable[[RuleOfFirst], Rule]:
    """Register a rule that applies if the first input carries the batch, and gets how and the input's shape."""

    def decorate(rule: RuleOfFirst) -> Rule:
        def found(context: NodeContext) -> Independence | BatchMixing | None:
            first, shape = context.carried(), context.shape()
            return None if first is None or shape is None else rule(context, first, shape)

        return _rule(op_types)(found)

    return decorate


def _keeps_axes(op_types: str) -> Callable[[MixedAxes], Rule]:
    """Register a rule for operators whose outputs have the axes of the first input, if the batch axis is not mixed.

    The function returns the mixed axes, given the number of axes; ``None`` if unknown.
    """

    def decorate(mixed: MixedAxes) -> Rule:
        @_of_first(op_types)
        def rule(context: NodeContext, first: Carried, shape: Shape) -> Independence | None:
            axes = mixed(context, len(shape))
            if axes is None or first.axis in axes:
                return None
            return context.only_first(first, *[first] * (len(context.node.outputs) - 1))

        return rule

    return decorate


_ELEMENTWISE = (
    "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast Ceil Celu "
    "Clip Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish Identity IsInf IsNaN "
    "LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu Shrink "
    "Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor"
)
_SAMPLES_FIRST = (
    "AveragePool Conv ConvTranspose DepthToSpace GlobalAveragePool GlobalLpPool GlobalMaxPool GroupNormalization "
    "InstanceNormalization LRN LpPool MaxPool SpaceToDepth"
)

_REDUCTIONS = (
    "ArgMax ArgMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
    "ReduceSumSquare"
)


@dataclass(frozen=True)
class Tracked:
    """The result of tracking: ``values`` by name, and each node: ``"fixed"``, ``"mixed"`` or how it is split."""

    values: Mapping[str, Carry]
    nodes: tuple[Independence | Literal["fixed", "mixed"], ...]


def track(
    nodes: Sequence[OperatorNode],
    reads: Sequence[Sequence[str]],
    inputs: Mapping[str, Carry],
    shapes: Mapping[str, tuple[int, ...] | None],
    constant: Callable[[str], NDArray[Any] | None],
    batch: int,
) -> Tracked:
    """Follow the batch from ``inputs`` through the nodes; all other values are fixed.

    ``reads`` are all values that each node reads, including those read by its subgraphs.
    """
    values: dict[str, Carry] = dict(inputs)
    found: list[Independence | Literal["fixed", "mixed"]] = []
    for node, read in zip(nodes, reads, strict=True):
        carries = [values.get(name, FIXED) for name in read if name]
        if all(each == FIXED for each in carries):
            found.append(FIXED)
            continue
        rule = None if node.domain else RULES.get(node.op_type)
        split: Independence | BatchMixing | None = None
        if rule is not None and MIXED not in carries and all(shapes.get(name) is not None for name in read if name):
            each_input = tuple(values.get(name, FIXED) if name else None for name in node.inputs)
            input_shapes = tuple(shapes.get(name) if name else None for name in node.inputs)
            output_shapes = tuple(shapes.get(name) if name else None for name in node.outputs)
            split = rule(NodeContext(node, each_input, input_shapes, output_shapes, constant, batch))
        if isinstance(split, Independence) and not _fits(node, split, shapes, batch):
            split = None
        carried: Sequence[Carry] = split.outputs if split is not None else [MIXED] * len(node.outputs)
        values.update((name, carry) for name, carry in zip(node.outputs, carried, strict=False) if name)
        found.append(split if isinstance(split, Independence) else MIXED)
    return Tracked(values, tuple(found))


def _fits(node: OperatorNode, split: Independence, shapes: Mapping[str, tuple[int, ...] | None], batch: int) -> bool:
    """Whether every axis to be cut has as many rows as the rule says; this catches errors of any rule."""
    wanted = [*zip(node.inputs, split.needs, strict=True), *zip(node.outputs, split.outputs, strict=False)]
    for name, carry in wanted:
        shape = shapes.get(name)
        if not name or carry is None:
            continue
        if shape is None or not 0 <= carry.axis < len(shape) or shape[carry.axis] != batch * carry.multiple:
            return False
    return True


def constant_axes(context: NodeContext, at: int) -> list[int] | None:
    """The axes from the attribute or the constant input ``at``, counted from 0; ``None`` if unknown."""
    shape = context.shape()
    if shape is None:
        return None
    attribute = context.node.get("axes")
    if attribute is not None:
        return [int(each) % len(shape) for each in attribute]
    value = context.value(at)
    return None if value is None else [int(each) % len(shape) for each in value.reshape(-1)]


@_of_first("Reshape")
def _reshape(context: NodeContext, first: Carried, shape: Shape) -> Independence | None:
    new, target = context.outputs[0], context.value(1)
    if new is None or target is None:
        return None
    before = math.prod(shape[: first.axis])
    places = [at for at, size in enumerate(new) if math.prod(new[:at]) == before and size % context.batch == 0]
    if not places:
        return None
    place = first.axis if first.axis in places else places[0]
    copied = not context.node.get("allowzero", 0)
    if copied and place != first.axis < len(target) and int(target[first.axis]) == 0:
        return None
    carried = Carried(place, new[place] // context.batch)
    entry = int(target[place])
    if entry == 0 and copied:
        # 0 copies the size of that axis of the input.
        return context.only_first(carried) if carried == first else None
    baked = () if entry == -1 else ((1, place, carried.multiple),)
    return Independence((first, None), (carried,), baked)


@_of_first("Flatten")
def _flatten(context: NodeContext, first: Carried, shape: Shape) -> Independence | None:
    cut = int(context.node["axis"])
    cut = cut + len(shape) if cut < 0 else cut
    start, end, axis = (0, cut, 0) if first.axis < cut else (cut, len(shape), 1)
    if math.prod(shape[start : first.axis]) != 1:
        return None
    rows = first.multiple * math.prod(shape[first.axis + 1 : end])
    return context.only_first(Carried(axis, rows))


@_of_first("Expand")
def _expand(context: NodeContext, first: Carried, shape: Shape) -> Independence | None:
    new, target = context.outputs[0], context.value(1)
    if new is None or target is None:
        return None
    carried = Carried(first.axis + len(new) - len(shape), first.multiple)
    entry = carried.axis - (len(new) - len(target))
    baked = ((1, entry, first.multiple),) if entry >= 0 and int(target[entry]) != 1 else ()
    return Independence((first, None), (carried,), baked)


@_of_first("Transpose")
def _transpose(context: NodeContext, first: Carried, shape: Shape) -> Independence | None:
    order = context.node.get("perm") or list(range(len(shape)))[::-1]
    return context.only_first(Carried(list(order).index(first.axis), first.multiple))


@_of_first("Squeeze")
def _squeeze(context: NodeContext, first: Carried, shape: Shape) -> Independence | None:
    axes = constant_axes(context, 1)
    if axes is None or first.axis in axes:
        return None
    return context.only_first(Carried(first.axis - sum(each < first.axis for each in axes), first.multiple))


@_of_first("Unsqueeze")
def _unsqueeze(context: NodeContext, first: Carried, shape: Shape) -> Independence | None:
    new, given = context.outputs[0], context.value(1)
    entries = context.node.get("axes", None if given is None else given.reshape(-1))
    if new is None or entries is None:
        return None
    axes = {int(each) % len(new) for each in entries}
    kept = [at for at in range(len(new)) if at not in axes]
    return context.only_first(Carried(kept[first.axis], first.multiple))


@_rule("Concat")
def _concat(context: NodeContext) -> Independence | None:
    new = context.outputs[0]
    targets = {each for each in (context.carried(at) for at in range(len(context.carries))) if each is not None}
    if new is None or len(targets) != 1:
        return None
    (target,) = targets
    if context.axis(len(new)) == target.axis:
        return None
    return Independence(tuple(target for _ in context.carries), (target,))


@_keeps_axes("Slice")
def _slice(context: NodeContext, rank: int) -> Iterable[int] | None:
    starts = context.value(1)
    if starts is None or context.given(3):
        return None if starts is None else constant_axes(context, 3)
    return range(starts.size)


@_rule("Gather")
def _gather(context: NodeContext) -> Independence | None:
    data, indices = context.shape(0), context.shape(1)
    if data is None or indices is None:
        return None
    axis = context.axis(len(data))
    first, second = context.carried(0), context.carried(1)
    if first is not None and second is None and first.axis != axis:
        moved = first.axis if first.axis < axis else first.axis - 1 + len(indices)
        return Independence((first, None), (Carried(moved, first.multiple),))
    if first is None and second is not None:
        return Independence((None, second), (Carried(axis + second.axis, second.multiple),))
    return None


@_of_first("GatherElements")
def _gather_elements(context: NodeContext, first: Carried, shape: Shape) -> Independence | None:
    if context.carried(1) != first or context.axis(len(shape)) == first.axis:
        return None
    return Independence((first, first), (first,))


@_of_first(_REDUCTIONS)
def _reduce(context: NodeContext, first: Carried, shape: Shape) -> Independence | None:
    picks = context.node.op_type in ("ArgMax", "ArgMin")
    axes = [context.axis(len(shape))] if picks else constant_axes(context, 1)
    # No axes stands for all or none of them; both cases are not split.
    if not axes or first.axis in axes:
        return None
    moved = 0 if context.node["keepdims"] else sum(each < first.axis for each in axes)
    return context.only_first(Carried(first.axis - moved, first.multiple))


@_keeps_axes("Pad")
def _pad(context: NodeContext, rank: int) -> Iterable[int] | None:
    pads = context.node.get("pads", context.value(1))
    axes = constant_axes(context, 3) if context.given(3) else range(rank)
    if axes is None or pads is None:
        return None
    begins, ends = np.reshape(pads, (2, -1))
    return [axis for axis, begin, end in zip(axes, begins, ends, strict=False) if begin or end]


@_keeps_axes("Tile")
def _tile(context: NodeContext, rank: int) -> Iterable[int] | None:
    repeats = context.value(1)
    return None if repeats is None else np.flatnonzero(repeats != 1)


@_of_first("OneHot")
def _one_hot(context: NodeContext, first: Carried, shape: Shape) -> Independence | None:
    new = context.outputs[0]
    if new is None:
        return None
    return context.only_first(Carried(first.axis + (context.axis(len(new)) <= first.axis), first.multiple))


@_rule("Einsum")
def _einsum(context: NodeContext) -> Independence | None:
    """The batch must have one letter, which occurs in the result and in every operand that carries it."""
    equation = str(context.node["equation"]).replace(" ", "")
    if "->" not in equation or "." in equation:
        return None
    terms, result = equation.split("->")
    operands = terms.split(",")
    carried = [context.carried(at) for at in range(len(operands))]
    found = {(term[each.axis], each.multiple) for term, each in zip(operands, carried, strict=True) if each is not None}
    if len(found) != 1:
        return None
    ((letter, multiple),) = found
    if any(term.count(letter) > 1 for term in (*operands, result)) or letter not in result:
        return None
    needs = tuple(Carried(term.index(letter), multiple) if letter in term else None for term in operands)
    if any(each not in (None, need) for each, need in zip(carried, needs, strict=True)):
        return None
    return Independence(needs, (Carried(result.index(letter), multiple),))


@_rule(_ELEMENTWISE)
def _elementwise(context: NodeContext) -> Independence | None:
    """Broadcasting: inputs must carry the batch on the same output axis; fixed inputs may have one row per sample."""
    out = context.outputs[0]
    if out is None or len(context.node.outputs) != 1:
        return None
    target: Carried | None = None
    for at in range(len(context.carries)):
        each, shape = context.carried(at), context.shape(at)
        if each is None or shape is None:
            continue
        aligned = Carried(each.axis + len(out) - len(shape), each.multiple)
        if target not in (None, aligned):
            return None
        target = aligned
    needs = None if target is None else _needs(context, range(len(context.carries)), target, len(out))
    return None if target is None or needs is None else Independence(needs, (target,))


def _needs(context: NodeContext, places: Iterable[int], target: Carried, rank: int) -> Needs | None:
    """The blocks of these inputs that belong to ``target`` of an output with ``rank`` axes; ``None`` if impossible."""
    needs: list[Carried | None] = []
    for at in places:
        carried, shape = context.carried(at), context.shape(at)
        if shape is None and context.given(at):
            return None
        axis = target.axis - (rank - len(shape or ()))
        if carried is not None or shape is None or axis < 0 or shape[axis] == 1:
            needs.append(carried)
        elif shape[axis] == context.batch * target.multiple:
            needs.append(Carried(axis, target.multiple))
        else:
            return None
    return tuple(needs)


@_keeps_axes(_SAMPLES_FIRST)
def _first_axis(context: NodeContext, rank: int) -> Iterable[int] | None:
    """Samples on axis 0, one output, everything else shared."""
    return range(1, rank) if sum(map(bool, context.node.outputs)) == 1 else None


@_of_first("BatchNormalization")
def _batch_normalization(context: NodeContext, first: Carried, shape: Shape) -> Independence | BatchMixing | None:
    if context.node.get("training_mode", 0) or len(context.node.outputs) > 1:
        others: list[Carry] = [MIXED for _ in context.node.outputs[1:]]
        return BatchMixing((first, *others))
    return _first_axis(context)


@_of_first("Dropout")
def _dropout(context: NodeContext, first: Carried, shape: Shape) -> Independence | BatchMixing | None:
    training = context.value(2)
    off = not context.given(2) or (training is not None and not bool(training.reshape(-1)[0]))
    return context.only_first(first, first) if off else BatchMixing(tuple(first for _ in context.node.outputs))


@_keeps_axes("LayerNormalization RMSNormalization")
def _from_axis(context: NodeContext, rank: int) -> Iterable[int]:
    """Mixes ``axis`` and all axes after it."""
    return range(context.axis(rank), rank)


@_keeps_axes("Split LpNormalization TopK")
def _one_axis(context: NodeContext, rank: int) -> Iterable[int]:
    return [context.axis(rank)]


@_rule("Hardmax LogSoftmax Softmax")
def _softmax(context: NodeContext) -> Independence | BatchMixing | None:
    """Before opset 13 all axes from ``axis`` on are normalised together."""
    return _one_axis(context) if context.node.opset >= 13 else _from_axis(context)


@_keeps_axes("CumSum")
def _cumulative_sum(context: NodeContext, rank: int) -> Iterable[int] | None:
    axis = context.value(1)
    return None if axis is None else [int(axis.reshape(-1)[0]) % rank]


@_of_first("Gemm")
def _gemm(context: NodeContext, first: Carried, shape: Shape) -> Independence | None:
    out = context.outputs[0]
    if out is None or first.axis != 0 or context.node["transA"] or context.carried(1) is not None:
        return None
    third, bias = context.carried(2), context.shape(2)
    # A bias that carries the batch must be a matrix with the batch on its rows.
    if third is not None and (third != first or bias is None or len(bias) != 2):
        return None
    needs = _needs(context, range(2, len(context.carries)), first, len(out))
    return None if needs is None else Independence((first, None, *needs), (first,))


@_rule("MatMul")
def _matmul(context: NodeContext) -> Independence | None:
    a, b, out = context.shape(0), context.shape(1), context.outputs[0]
    if a is None or b is None or out is None or min(len(a), len(b)) < 2:
        return None
    left, right = context.carried(0), context.carried(1)
    rank = len(out)
    if left is not None and left.axis == len(a) - 2:
        return None if right is not None else Independence((left, None), (Carried(rank - 2, left.multiple),))
    if left is None and right is not None and right.axis == len(b) - 1:
        return Independence((None, right), (Carried(rank - 1, right.multiple),))
    targets = set()
    for each, shape in ((left, a), (right, b)):
        if each is not None and each.axis >= len(shape) - 2:
            return None
        if each is not None:
            targets.add(Carried(each.axis + rank - len(shape), each.multiple))
    if len(targets) != 1:
        return None
    (target,) = targets
    needs = _needs(context, (0, 1), target, rank)
    return None if needs is None else Independence(needs, (target,))


@_of_first("GRU LSTM RNN")
def _recurrent(context: NodeContext, first: Carried, shape: Shape) -> Independence | None:
    """LSTM, GRU, RNN: X (length, batch, size), initial states (directions, batch, hidden); layout 1: batch first."""
    layout = int(context.node.get("layout", 0))
    x_axis, y_axis, state_axis = (0, 0, 0) if layout else (1, 2, 1)
    if first.axis != x_axis:
        return None
    needs: list[Carried | None] = [first]
    for at in range(1, len(context.carries)):
        # 4: the lengths of the sequences, one number per sample; 5 and 6: states; the others are weights.
        axis = {4: 0, 5: state_axis, 6: state_axis}.get(at)
        if axis is None or not context.given(at):
            if context.carried(at) is not None:
                return None
            needs.append(None)
            continue
        needs.append(Carried(axis, first.multiple))
        if context.carried(at) not in (None, needs[-1]):
            return None
    outputs = (Carried(y_axis, first.multiple), *[Carried(state_axis, first.multiple)] * 2)
    return Independence(tuple(needs), outputs[: len(context.node.outputs)])


@_of_first("Attention")
def _attention(context: NodeContext, first: Carried, shape: Shape) -> Independence | None:
    """Attention of opset 23 with the batch first in query, key and value, and a mask that can be broadcast."""
    if len(context.node.outputs) != 1 or len(context.carries) > 4 or first.axis != 0:
        return None
    if any(context.carried(at) != first for at in (1, 2)) or not context.given(2):
        return None
    # The mask is broadcast to (batch, heads, query, key).
    needs = _needs(context, range(3, len(context.carries)), first, 4)
    mask = context.shape(3)
    if needs is None or any(each not in (None, Carried(len(mask or ()) - 4, first.multiple)) for each in needs):
        return None
    return Independence((first, first, first, *needs), (first,))


@_keeps_axes("QuantizeLinear DequantizeLinear")
def _scaled(context: NodeContext, rank: int) -> Iterable[int] | None:
    """QuantizeLinear and DequantizeLinear with one scale, or one per index of an axis."""
    scale = context.shape(1)
    if scale is None or len(scale) > 1:
        return None
    return () if scale in ((), (1,)) else [int(context.node.get("axis", 1)) % rank]


@_of_first("DynamicQuantizeLinear")
def _dynamic_quantize(context: NodeContext, first: Carried, shape: Shape) -> BatchMixing:
    return BatchMixing((first, MIXED, MIXED))


@_keeps_axes("Resize")
def _resize(context: NodeContext, rank: int) -> Iterable[int] | None:
    scales = context.value(2)
    if scales is None or scales.size != rank or context.given(3) or context.node.get("axes") or context.given(1):
        return None
    return np.flatnonzero(scales != 1)


@_keeps_axes("Trilu")
def _trilu(context: NodeContext, rank: int) -> Iterable[int]:
    return range(rank - 2, rank)
