"""How ONNX's operators treat a batch, operator by operator (see :mod:`levelbench.networks.transforms.carried`).

The one idea: a rule answers only where it can prove it; anything unusual (an axis that is not constant, a broadcast
over the batch, a second output) gets ``None``, which means: not to be split.
"""

from __future__ import annotations

from levelbench.networks.transforms import rules_moving as moving
from levelbench.networks.transforms.carried import MIXED, Carried, Carry, Context, Independence, Mixing, Rule

__all__ = ["RULES"]

Shape = tuple[int, ...]


def _elementwise(context: Context) -> Independence | None:
    """Broadcasting: all that carry the batch do so on the same axis of the output; fixed ones may have a row each."""
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
    if target is None:
        return None
    needs: list[Carried | None] = []
    for at, carry in enumerate(context.carries):
        ok, need = _need(context, at, carry, target, len(out))
        if not ok:
            return None
        needs.append(need)
    return Independence(tuple(needs), (target,))


def _need(context: Context, at: int, carry: object, target: Carried, rank: int) -> tuple[bool, Carried | None]:
    """The block of input ``at`` that goes with ``target`` of an output of ``rank`` axes, and whether there is one."""
    if isinstance(carry, Carried):
        return True, carry
    shape = context.shape(at)
    if shape is None:
        return not context.given(at), None
    axis = target.axis - (rank - len(shape))
    if axis < 0 or shape[axis] == 1:
        return True, None
    return shape[axis] == context.batch * target.multiple, Carried(axis, target.multiple)


def _first_axis(context: Context) -> Independence | None:
    """Samples on axis 0, one output, everything else shared."""
    first = context.carried()
    if first is None or first.axis != 0 or len([name for name in context.node.outputs if name]) != 1:
        return None
    return context.only_first(first, *[first] * (len(context.node.outputs) - 1))


def _batch_normalization(context: Context) -> Independence | Mixing | None:
    first = context.carried()
    if first is None:
        return None
    if context.node.get("training_mode", 0) or len(context.node.outputs) > 1:
        others: list[Carry] = [MIXED for _ in context.node.outputs[1:]]
        return Mixing((first, *others))
    return _first_axis(context)


def _dropout(context: Context) -> Independence | Mixing | None:
    first = context.carried()
    training = context.value(2)
    off = not context.given(2) or (training is not None and not bool(training.reshape(-1)[0]))
    if first is None:
        return None
    return context.only_first(first, first) if off else Mixing(tuple(first for _ in context.node.outputs))


def _softmax(context: Context) -> Independence | None:
    first, shape = context.carried(), context.shape()
    if first is None or shape is None:
        return None
    axis = int(context.node["axis"]) % len(shape)
    # Before opset 13 all axes from this one on are normalised together.
    over = [axis] if context.node.opset >= 13 else range(axis, len(shape))
    return None if first.axis in over else context.only_first(first)


def _normalised_from_axis(context: Context) -> Independence | None:
    """LayerNormalization, RMSNormalization: over ``axis`` and all axes after it."""
    first, shape = context.carried(), context.shape()
    if first is None or shape is None or first.axis >= int(context.node["axis"]) % len(shape):
        return None
    return context.only_first(first, first, first)


def _one_axis(context: Context) -> Independence | None:
    """An operator along one axis, which must not be that of the batch."""
    first, shape = context.carried(), context.shape()
    if first is None or shape is None or first.axis == int(context.node["axis"]) % len(shape):
        return None
    return context.only_first(first, *[first] * (len(context.node.outputs) - 1))


def _cumulative_sum(context: Context) -> Independence | None:
    first, shape, axis = context.carried(), context.shape(), context.value(1)
    if first is None or shape is None or axis is None or int(axis.reshape(-1)[0]) % len(shape) == first.axis:
        return None
    return context.only_first(first)


def _gemm(context: Context) -> Independence | None:
    first, out = context.carried(), context.outputs[0]
    if first is None or out is None or first.axis != 0 or context.node["transA"] or context.carried(1) is not None:
        return None
    needs: list[Carried | None] = [first, None]
    if len(context.carries) > 2:
        ok, need = _need(context, 2, context.carries[2], first, len(out))
        if not ok or (need is not None and isinstance(context.carries[2], Carried) and need != _at(first, context)):
            return None
        needs.append(need)
    return Independence(tuple(needs), (first,))


def _at(target: Carried, context: Context) -> Carried | None:
    """Where the third input of Gemm would have to carry the batch: on the rows of a matrix."""
    shape = context.shape(2)
    return target if shape is not None and len(shape) == 2 else None


def _matmul(context: Context) -> Independence | None:
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
    answers = [_need(context, at, context.carries[at], target, rank) for at in (0, 1)]
    if not all(ok for ok, _ in answers):
        return None
    return Independence(tuple(need for _, need in answers), (target,))


def _recurrent(context: Context) -> Independence | None:
    """LSTM, GRU, RNN: X (length, batch, size), initial states (directions, batch, hidden); layout 1: batch first."""
    first = context.carried()
    layout = int(context.node.get("layout", 0))
    x_axis, y_axis, state_axis = (0, 0, 0) if layout else (1, 2, 1)
    if first is None or first.axis != x_axis:
        return None
    needs: list[Carried | None] = [first]
    for at in range(1, len(context.carries)):
        # 4: the lengths of the sequences, a number a sample; 5 and 6: states; the others are weights.
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


def _attention(context: Context) -> Independence | None:
    """Attention of opset 23 on query, key and value with the batch first, and a mask that broadcasts."""
    first = context.carried()
    if len(context.node.outputs) != 1 or len(context.carries) > 4 or first is None or first.axis != 0:
        return None
    if any(context.carried(at) != first for at in (1, 2)) or not context.given(2):
        return None
    needs: list[Carried | None] = [first, first, first]
    if len(context.carries) == 4:
        shape = context.shape(3)
        # The mask is broadcast to (batch, heads, query, key).
        ok, need = _need(context, 3, context.carries[3], first, 4)
        if not ok or shape is None or need not in (None, Carried(len(shape) - 4, first.multiple)):
            return None
        needs.append(need)
    return Independence(tuple(needs), (first,))


def _scaled(context: Context) -> Independence | None:
    """QuantizeLinear, DequantizeLinear with a scale for all, or one for each place on another axis than the batch's."""
    first, shape, scale = context.carried(), context.shape(), context.shape(1)
    if first is None or shape is None or scale is None or len(scale) > 1:
        return None
    per_axis = len(scale) == 1 and scale != (1,)
    if per_axis and int(context.node.get("axis", 1)) % len(shape) == first.axis:
        return None
    return context.only_first(first)


def _dynamic_quantize(context: Context) -> Mixing | None:
    first = context.carried()
    return None if first is None else Mixing((first, MIXED, MIXED))


def _resize(context: Context) -> Independence | None:
    first, shape = context.carried(), context.shape()
    scales = context.value(2)
    if first is None or shape is None or scales is None or scales.size != len(shape) or context.given(3):
        return None
    if context.node.get("axes") or context.given(1) or scales[first.axis] != 1:
        return None
    return context.only_first(first)


def _trilu(context: Context) -> Independence | None:
    first, shape = context.carried(), context.shape()
    if first is None or shape is None or first.axis >= len(shape) - 2:
        return None
    return context.only_first(first)


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

RULES: dict[str, Rule] = {
    **dict.fromkeys(_ELEMENTWISE.split(), _elementwise),
    **dict.fromkeys(_SAMPLES_FIRST.split(), _first_axis),
    **moving.RULES,
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent),
    **dict.fromkeys(("Hardmax", "LogSoftmax", "Softmax"), _softmax),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _normalised_from_axis),
    **dict.fromkeys(("LpNormalization", "TopK"), _one_axis),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _scaled),
    "Attention": _attention,
    "BatchNormalization": _batch_normalization,
    "CumSum": _cumulative_sum,
    "Dropout": _dropout,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Resize": _resize,
    "Trilu": _trilu,
}
