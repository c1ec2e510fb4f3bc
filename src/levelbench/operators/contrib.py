"""ONNX Runtime's own operators (domain ``com.microsoft``), defined by ONNX's, for the frameworks that lack them.

ONNX Runtime fuses and quantises networks into these operators, so files that it optimised are full of them. Each is
defined here as the nodes that compute the same, which every framework runs and differentiates like any other node.
Their documentation is ``docs/ContribOperators.md`` of ONNX Runtime. What is not covered (paged caches, rare layouts)
has no definition, and is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from levelbench.operators.node import CONTRIB_DOMAIN, DEFAULT_OPSET, OperatorNode

Name = str
"""The name of a value in a definition, or the empty string for an omitted one."""
Shapes = Sequence[tuple[int, ...] | None]
"""The shape of each input, ``None`` for an omitted one."""


class _Body:
    """The nodes of a definition as they are added. It is for inputs of given shapes, so that no shape is computed."""

    def __init__(self, node: OperatorNode, shapes: Shapes) -> None:
        self.node, self._shapes = node, shapes
        self.inputs = [f"x{at}" for at in range(len(node.inputs))]
        self.protos: list[onnx.NodeProto] = []

    def input(self, at: int) -> Name:
        """The input at a position, or the empty string if it is omitted."""
        given = at < len(self.inputs) and self.node.inputs[at]
        return self.inputs[at] if given else ""

    def shape(self, at: int) -> tuple[int, ...]:
        """The shape of the input at a position; empty if it is omitted."""
        return (self._shapes[at] if at < len(self._shapes) else None) or ()

    def rank(self, at: int) -> int:
        """The rank of the input at a position; 0 if it is omitted."""
        return len(self.shape(at))

    def __call__(self, op_type: str, *inputs: Name, **attributes: Any) -> Name:
        """Add a node with one output, whose name is returned."""
        return self.several(op_type, 1, *inputs, **attributes)[0]

    def several(self, op_type: str, count: int, *inputs: Name, **attributes: Any) -> list[Name]:
        """Add a node with ``count`` outputs."""
        outputs = [f"v{len(self.protos)}_{at}" for at in range(count)]
        given = {name: each for name, each in attributes.items() if each is not None}
        self.protos.append(helper.make_node(op_type, list(inputs), outputs, **given))
        return outputs

    def constant(self, value: Any, dtype: Any = np.int64) -> Name:
        """A constant array."""
        return self("Constant", value=numpy_helper.from_array(np.asarray(value, dtype)))

    def number(self, value: float, like: Name) -> Name:
        """A scalar with the dtype of ``like``."""
        return self("CastLike", self.constant(value, np.float32), like)

    def scaled(self, x: Name, factor: float) -> Name:
        """``x`` times a number."""
        return x if factor == 1 else self("Mul", x, self.number(factor, x))

    def plus(self, x: Name, more: Name) -> Name:
        """``x`` plus a value that may be omitted."""
        return self("Add", x, more) if more else x

    def dequantised(self, at: int, axis: int | None = None) -> Name:
        """The numbers of a quantised input, which its scale and zero point follow."""
        return self("DequantizeLinear", *self._present(at, at + 1, at + 2), axis=axis)

    def quantised(self, x: Name, scale: int, zero: int) -> Name:
        """``x`` quantised with the inputs at these positions; unsigned bytes without a zero point."""
        return self("QuantizeLinear", x, *self._present(scale, zero))

    def _present(self, *positions: int) -> list[Name]:
        names = [self.input(at) for at in positions]
        return names if names[-1] else names[:-1]

    def activated(self, x: Name, word: str, numbers: Sequence[float]) -> Name:
        """``x`` after an activation function with its parameters in ONNX Runtime's order."""
        if not word:
            return x
        if word == "Clip":
            return self("Clip", x, self.number(numbers[0], x), self.number(numbers[1], x))
        names = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Elu": ("alpha",)}.get(word, ())
        return self(word, x, **dict(zip(names, numbers, strict=False)))


Definition = Callable[[_Body], list[Name] | None]
_DEFINITIONS: dict[str, Definition] = {}


def _defines(*names: str) -> Callable[[Definition], Definition]:
    def register(definition: Definition) -> Definition:
        _DEFINITIONS.update(dict.fromkeys(names, definition))
        return definition

    return register


def defines(op_type: str) -> bool:
    """Whether the operator is defined here."""
    return op_type in _DEFINITIONS


def names() -> list[str]:
    """The operators that are defined here."""
    return sorted(_DEFINITIONS)


def definition(node: OperatorNode, shapes: Shapes) -> onnx.FunctionProto | None:
    """The definition of a node for inputs of these shapes; ``None`` for attributes or inputs that are not covered."""
    body = _Body(node, shapes)
    outputs = _DEFINITIONS[node.op_type](body)
    if outputs is None:
        return None
    wanted = [name for name, given in zip(outputs, node.outputs, strict=False) if given and name]
    if any(given and not (at < len(outputs) and outputs[at]) for at, given in enumerate(node.outputs)):
        return None
    if set(wanted) & set(body.inputs):
        # A function's output has to be made by one of its nodes.
        outputs = [body("Identity", each) if each in body.inputs else each for each in outputs]
    results = [each or f"none{at}" for at, each in enumerate(outputs)]
    imports = [helper.make_opsetid("", DEFAULT_OPSET)]
    return helper.make_function(CONTRIB_DOMAIN, node.op_type, body.inputs, results, body.protos, imports)


# Fused products, convolutions and activations.


def _factor(b: _Body, at: int, letter: str) -> Name:
    """A factor of FusedMatMul: the first axis moved behind the batch's, then the last two swapped, if asked for."""
    axes = list(range(b.rank(at)))
    # A vector is not transposed, and a matrix has no batch.
    if len(axes) > 2 and b.node.get(f"transBatch{letter}", 0):
        axes.insert(-1, axes.pop(0))
    if len(axes) > 1 and b.node.get(f"trans{letter}", 0):
        axes[-2:] = reversed(axes[-2:])
    return b.input(at) if axes == sorted(axes) else b("Transpose", b.input(at), perm=axes)


@_defines("FusedMatMul", "TransposeMatMul")
def _fused_matmul(b: _Body) -> list[Name]:
    return [b.scaled(b("MatMul", _factor(b, 0, "A"), _factor(b, 1, "B")), b.node.get("alpha", 1.0))]


@_defines("FusedGemm")
def _fused_gemm(b: _Body) -> list[Name]:
    given = {name: b.node.get(name) for name in ("alpha", "beta", "transA", "transB")}
    bias = [b.input(2)] if b.input(2) else []
    x = b("Gemm", b.input(0), b.input(1), *bias, **given)
    names = {"LeakyRelu": ("alpha",), "Elu": ("alpha",), "HardSigmoid": ("alpha", "beta")}
    word = b.node.get("activation", "")
    given = {name: b.node.get(f"activation_{name}") for name in names.get(word, ())}
    return [b(word, x, **given) if word else x]


_OF_CONVOLUTION = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


@_defines("FusedConv")
def _fused_conv(b: _Body) -> list[Name]:
    given = {name: b.node.get(name) for name in _OF_CONVOLUTION}
    bias = [b.input(2)] if b.input(2) else []
    x = b.plus(b("Conv", b.input(0), b.input(1), *bias, **given), b.input(3))
    return [b.activated(x, b.node.get("activation", ""), b.node.get("activation_params", ()))]


@_defines("Gelu")
def _gelu(b: _Body) -> list[Name]:
    return [b("Gelu", b.input(0))]


@_defines("BiasGelu")
def _bias_gelu(b: _Body) -> list[Name]:
    return [b("Gelu", b.plus(b.input(0), b.input(1)))]


@_defines("FastGelu")
def _fast_gelu(b: _Body) -> list[Name]:
    return [b("Gelu", b.plus(b.input(0), b.input(1)), approximate="tanh")]


@_defines("QuickGelu")
def _quick_gelu(b: _Body) -> list[Name]:
    x = b.input(0)
    return [b("Mul", x, b("Sigmoid", b.scaled(x, b.node.get("alpha", 1.702))))]


@_defines("BiasAdd")
def _bias_add(b: _Body) -> list[Name]:
    return [b("Add", b("Add", b.input(0), b.input(1)), b.input(2))]


@_defines("BiasSoftmax")
def _bias_softmax(b: _Body) -> list[Name] | None:
    # With another axis ONNX Runtime flattens the axes behind it, and with is_inner_broadcast it aligns the bias so.
    if b.node.get("axis", 1) % b.rank(0) != b.rank(0) - 1 or b.node.get("is_inner_broadcast", 0):
        return None
    return [b("Softmax", b("Add", b.input(0), b.input(1)), axis=-1)]


@_defines("ExpandDims")
def _expand_dims(b: _Body) -> list[Name]:
    # ONNX Runtime takes the axis as a value, so it is read at each call.
    return [b("Unsqueeze", b.input(0), b("Reshape", b.input(1), b.constant([1])))]


# Normalisation.


@_defines("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def _skip_layer_normalization(b: _Body) -> list[Name]:
    simple = b.node.op_type == "SkipSimplifiedLayerNormalization"
    x = b("Add", b.input(0), b.input(1))
    x = b.plus(x, b.input(3 if simple else 4))
    epsilon = b.node.get("epsilon", 1e-12)
    if simple:
        square = b("ReduceMean", b("Mul", x, x), b.constant([-1]))
        root = b("Sqrt", b("Add", square, b.number(epsilon, x)))
        return [b("Mul", b("Div", x, root), b.input(2)), "", "", x]
    bias = [b.input(3)] if b.input(3) else []
    found = b.several("LayerNormalization", 3, x, b.input(2), *bias, epsilon=epsilon)
    return [*found, x]


@_defines("EmbedLayerNormalization")
def _embed_layer_normalization(b: _Body) -> list[Name]:
    ids, segments, words, positions, parts, scale, bias, mask, places = (b.input(at) for at in range(9))
    if not places:
        at = b("Slice", positions, b.constant([0]), b.constant([b.shape(0)[1]]), b.constant([0]))
    else:
        at = b("Gather", positions, places)
    x = b("Add", b("Gather", words, ids), at)
    if segments and parts:
        x = b("Add", x, b("Gather", parts, segments))
    y = b("LayerNormalization", x, scale, bias, epsilon=b.node.get("epsilon", 1e-12))
    if mask and not b.node.get("mask_index_type", 0):
        kept = b("ReduceSum", mask, b.constant([1]), keepdims=0)
    else:
        kept = b.constant(np.zeros(b.shape(0)[0]), np.int32)
    return [y, b("Cast", kept, to=onnx.TensorProto.INT32), x]


@_defines("GroupNorm")
def _group_norm(b: _Body) -> list[Name] | None:
    """On (batch, height, width, channels), then possibly x sigmoid(x)."""
    if b.rank(0) != 4:
        return None
    last = b.node.get("channels_last", 1)
    x = b("Transpose", b.input(0), perm=[0, 3, 1, 2]) if last else b.input(0)
    wide = b("Cast", x, to=onnx.TensorProto.FLOAT)
    count, epsilon = b.node.get("groups"), b.node.get("epsilon", 1e-5)
    y = b("GroupNormalization", wide, b.input(1), b.input(2), num_groups=count, epsilon=epsilon)
    y = b("Mul", y, b("Sigmoid", y)) if b.node.get("activation", 0) else y
    y = b("Transpose", y, perm=[0, 2, 3, 1]) if last else y
    return [b("CastLike", y, b.input(0))]


@_defines("Trilu")
def _trilu(b: _Body) -> list[Name]:
    given = [each for each in (b.input(0), b.input(1)) if each]
    return [b("Trilu", *given, upper=b.node.get("upper", 1))]


# Quantised operators: the numbers are dequantised, and the result is quantised.


@_defines("QuantizeLinear")
def _quantize(b: _Body) -> list[Name]:
    given = [each for each in (b.input(0), b.input(1), b.input(2)) if each]
    return [b("QuantizeLinear", *given, axis=b.node.get("axis", 1))]


@_defines("DequantizeLinear")
def _dequantize(b: _Body) -> list[Name]:
    return [b.dequantised(0, b.node.get("axis", 1))]


@_defines("QLinearAdd", "QLinearMul")
def _quantised_arithmetic(b: _Body) -> list[Name]:
    word = b.node.op_type.removeprefix("QLinear")
    return [b.quantised(b(word, b.dequantised(0), b.dequantised(3)), 6, 7)]


@_defines("QLinearSigmoid", "QLinearLeakyRelu")
def _quantised_activation(b: _Body) -> list[Name]:
    word = b.node.op_type.removeprefix("QLinear")
    given = {"alpha": b.node.get("alpha", 0.01)} if word == "LeakyRelu" else {}
    return [b.quantised(b(word, b.dequantised(0), **given), 3, 4)]


@_defines("QLinearSoftmax")
def _quantised_softmax(b: _Body) -> list[Name] | None:
    axis = b.node.get("axis", -1)
    # Before opset 13 all axes from this one on are one.
    if b.node.get("opset", 13) < 13 and axis % b.rank(0) != b.rank(0) - 1:
        return None
    # ONNX Runtime multiplies by 1 / scale without its fraction.
    step = b("Reciprocal", b("Floor", b("Reciprocal", b.input(3))))
    zero = [b.input(4)] if b.input(4) else []
    return [b("QuantizeLinear", b("Softmax", b.dequantised(0), axis=axis), step, *zero)]


@_defines("QLinearGlobalAveragePool")
def _quantised_global_pool(b: _Body) -> list[Name]:
    x = b.dequantised(0)
    if b.node.get("channels_last", 0):
        axes = list(range(1, b.rank(0) - 1))
        return [b.quantised(b("ReduceMean", x, b.constant(axes)), 3, 4)]
    return [b.quantised(b("GlobalAveragePool", x), 3, 4)]


@_defines("QLinearAveragePool")
def _quantised_pool(b: _Body) -> list[Name] | None:
    if b.node.get("channels_last", 0):
        return None
    names = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
    return [b.quantised(b("AveragePool", b.dequantised(0), **{name: b.node.get(name) for name in names}), 3, 4)]


@_defines("QLinearReduceMean")
def _quantised_mean(b: _Body) -> list[Name]:
    axes = b.node.get("axes")
    given = [b.constant(axes)] if axes is not None else []
    return [b.quantised(b("ReduceMean", b.dequantised(0), *given, keepdims=b.node.get("keepdims", 1)), 3, 4)]


@_defines("QLinearConcat")
def _quantised_concat(b: _Body) -> list[Name]:
    parts = [b.dequantised(at) for at in range(2, len(b.inputs), 3)]
    return [b.quantised(b("Concat", *parts, axis=b.node.get("axis")), 0, 1)]


@_defines("QLinearWhere")
def _quantised_where(b: _Body) -> list[Name]:
    return [b.quantised(b("Where", b.input(0), b.dequantised(1), b.dequantised(4)), 7, 8)]


def _integer_product(b: _Body, x: Name, x_zero: Name, y: Name, y_zero: Name, scale: Name) -> Name:
    """The product of two matrices of integers, exact in integers, times a scale."""
    zeros = [x_zero, y_zero] if y_zero else [x_zero] if x_zero else []
    return b("Mul", b("Cast", b("MatMulInteger", x, y, *zeros), to=onnx.TensorProto.FLOAT), scale)


@_defines("QGemm")
def _quantised_gemm(b: _Body) -> list[Name]:
    x, x_scale, x_zero, y, y_scale, y_zero, bias = (b.input(at) for at in range(7))
    x = b("Transpose", x, perm=[1, 0]) if b.node.get("transA", 0) else x
    y = b("Transpose", y, perm=[1, 0]) if b.node.get("transB", 0) else y
    zeros = [x_zero, y_zero] if y_zero else [x_zero] if x_zero else []
    # The bias has the scale of the product.
    total = b.plus(b("MatMulInteger", x, y, *zeros), bias)
    scale = b.scaled(b("Mul", x_scale, y_scale), b.node.get("alpha", 1.0))
    found = b("Mul", b("Cast", total, to=onnx.TensorProto.FLOAT), scale)
    return [b.quantised(found, 7, 8) if b.input(7) else found]


@_defines("MatMulIntegerToFloat")
def _matmul_to_float(b: _Body) -> list[Name]:
    x, y, x_scale, y_scale, x_zero, y_zero, bias = (b.input(at) for at in range(7))
    return [b.plus(_integer_product(b, x, x_zero, y, y_zero, b("Mul", x_scale, y_scale)), bias)]


@_defines("DynamicQuantizeMatMul")
def _dynamic_matmul(b: _Body) -> list[Name]:
    x, x_scale, x_zero = b.several("DynamicQuantizeLinear", 3, b.input(0))
    scale = b("Mul", x_scale, b.input(2))
    return [b.plus(_integer_product(b, x, x_zero, b.input(1), b.input(3), scale), b.input(4))]


@_defines("MatMulNBits")
def _matmul_of_bits(b: _Body) -> list[Name] | None:
    """Multiplies x (..., K) by weights (N, K) of 4 or 8 bits, in blocks along K that share a scale and a zero point."""
    rows, columns = b.node.get("N"), b.node.get("K")
    bits, block = b.node.get("bits", 4), b.node.get("block_size")
    x, packed, scales, zeros, order, bias = (b.input(at) for at in range(6))
    if bits not in (4, 8) or order:
        return None
    blocks = -(-columns // block)
    shape = b.constant([rows, blocks, block])
    weight = _unpacked(b, packed, bits, shape)
    if not zeros:
        offset = b.constant(float(2 ** (bits - 1)), np.float32)
    elif b.rank(3) == b.rank(2) and b.node.get("zero_points_are_floats", 0):
        return None
    else:
        per_row = -(-blocks * bits // 8) * 8 // bits
        offset = _unpacked(b, b("Reshape", zeros, b.constant([rows, -1])), bits, b.constant([rows, per_row]))
        offset = b("Slice", offset, b.constant([0]), b.constant([blocks]), b.constant([1]))
        offset = b("Reshape", offset, b.constant([rows, blocks, 1]))
    scale = b("Reshape", scales, b.constant([rows, blocks, 1]))
    weight = b("Mul", b("CastLike", b("Sub", weight, offset), scale), scale)
    weight = b("Reshape", weight, b.constant([rows, blocks * block]))
    weight = b("Slice", weight, b.constant([0]), b.constant([columns]), b.constant([1]))
    return [b.plus(b("MatMul", x, b("Transpose", weight, perm=[1, 0])), bias)]


def _unpacked(b: _Body, packed: Name, bits: int, shape: Name) -> Name:
    """The numbers that bytes hold, the lower four bits first, as float32 in a shape."""
    if bits == 4:
        low = b("BitwiseAnd", packed, b.constant(15, np.uint8))
        high = b("BitShift", packed, b.constant(4, np.uint8), direction="RIGHT")
        axes = b.constant([-1])
        packed = b("Concat", b("Unsqueeze", low, axes), b("Unsqueeze", high, axes), axis=-1)
    return b("Cast", b("Reshape", packed, shape), to=onnx.TensorProto.FLOAT)


# Attention.


def _heads(b: _Body, x: Name, count: int) -> Name:
    """(batch, length, heads * size) as (batch, heads, length, size)."""
    return b("Transpose", b("Reshape", x, b.constant([0, 0, count, -1])), perm=[0, 2, 1, 3])


def _joined(b: _Body, x: Name) -> Name:
    """(batch, heads, length, size) as (batch, length, heads * size)."""
    return b("Reshape", b("Transpose", x, perm=[0, 2, 1, 3]), b.constant([0, 0, -1]))


def _mask(b: _Body, at: int, like: Name, length: int) -> Name | None:
    """What is added to the scores for a mask of 1 (keep) and 0, or for the number of values to keep in each sample.

    The mask is (batch, length) or (batch, length, length). Empty without one; ``None`` for other masks.
    """
    mask, shape = b.input(at), b.shape(at)
    if not mask:
        return ""
    if len(shape) == 1 and shape[0] == b.shape(0)[0]:
        places = b.constant(np.arange(length), np.int32)
        mask, shape = b("Less", places, b("Unsqueeze", mask, b.constant([1]))), (shape[0], length)
    if len(shape) not in (2, 3):
        return None
    axes = b.constant([1, 2] if len(shape) == 2 else [1])
    gone = b("Sub", b.number(1.0, like), b("CastLike", b("Unsqueeze", mask, axes), like))
    return b.scaled(gone, b.node.get("mask_filter_value", -10000.0))


def _attended(
    b: _Body, parts: Sequence[Name], size: int, lengths: tuple[int, int], mask: Name, bias: Name
) -> list[Name]:
    """softmax(q kᵀ scale + bias + mask) v, (batch, length, width), then k and v, for ``parts`` q, k, v.

    These are (batch, heads, length, ``size``); ``lengths`` are those of q and k.
    """
    query, key, value = parts
    if b.node.get("unidirectional", 0):
        # No position sees a later one.
        later = np.triu(np.ones(lengths, np.float32), 1 + lengths[1] - lengths[0])
        hidden = b.constant(later * np.float32(b.node.get("mask_filter_value", -10000.0)), np.float32)
        mask = b.plus(b("CastLike", hidden, query), mask)
    scale = b.node.get("scale", 0.0) or 1 / math.sqrt(size)
    scores = b.scaled(b("MatMul", query, b("Transpose", key, perm=[0, 1, 3, 2])), scale)
    weights = b("Softmax", b.plus(b.plus(scores, bias), mask), axis=-1)
    return [_joined(b, b("MatMul", weights, value)), key, value]


@_defines("Attention")
def _attention(b: _Body) -> list[Name] | None:
    """Self-attention of (batch, length, width), with the weights of q, k and v side by side."""
    if b.node.get("do_rotary", 0) or b.input(6) or b.node.get("past_present_share_buffer", 0):
        return None
    product = b.plus(b("MatMul", b.input(0), b.input(1)), b.input(2))
    return _of_product(b, product, mask_at=3, past_at=4, bias=b.input(5))


@_defines("QAttention")
def _quantised_attention(b: _Body) -> list[Name] | None:
    if b.node.get("do_rotary", 0):
        return None
    scale = b("Mul", b.input(3), b.input(4))
    product = b.plus(_integer_product(b, b.input(0), b.input(6), b.input(1), b.input(7), scale), b.input(2))
    return _of_product(b, product, mask_at=5, past_at=8, bias="")


def _of_product(b: _Body, product: Name, mask_at: int, past_at: int, bias: Name) -> list[Name] | None:
    count, widths = b.node.get("num_heads"), b.node.get("qkv_hidden_sizes") or [b.shape(1)[-1] // 3] * 3
    heads = [_heads(b, each, count) for each in b.several("Split", 3, product, b.constant(widths), axis=-1)]
    length, past = b.shape(0)[1], b.input(past_at)
    total = length + (b.shape(past_at)[3] if past else 0)
    mask = _mask(b, mask_at, product, total)
    if mask is None:
        return None
    if past:
        before = [b("Gather", past, b.constant(at), axis=0) for at in (0, 1)]
        heads[1:] = [b("Concat", *pair, axis=2) for pair in zip(before, heads[1:], strict=True)]
    found, keys, values = _attended(b, heads, widths[0] // count, (length, total), mask, bias)
    if len(b.node.outputs) < 2:
        return [found]
    axes = b.constant([0])
    return [found, b("Concat", b("Unsqueeze", keys, axes), b("Unsqueeze", values, axes), axis=0)]


@_defines("MultiHeadAttention")
def _multi_head_attention(b: _Body) -> list[Name] | None:
    """q, k and v as (batch, length, width), or k and v with heads already split; or packed into q, or into k."""
    query, key, value, bias = (b.input(at) for at in range(4))
    count, packed = b.node.get("num_heads"), 5 in (b.rank(0), b.rank(1))
    # The bias belongs to q, k and v before they are packed.
    if b.input(8) or b.input(9) or (packed and bias):
        return None
    length, size = b.shape(0)[1], b.shape(0)[-1] // (1 if b.rank(0) == 5 else count)
    if b.rank(0) == 5:
        parts, total = _unpacked_heads(b, query, 3), length
    else:
        shares = b.several("Split", 3, bias, _widths(b, size * count), axis=0) if bias else ["", "", ""]
        if b.rank(1) == 5:
            others, total = _unpacked_heads(b, key, 2), b.shape(1)[1]
        elif b.rank(1) == 4:
            others, total = [key, value], b.shape(1)[2]
        else:
            others = [_heads(b, b.plus(x, each), count) for x, each in zip((key, value), shares[1:], strict=True)]
            total = b.shape(1)[1]
        parts = [_heads(b, b.plus(query, shares[0]), count), *others]
    if b.input(6):
        parts[1:] = [b("Concat", b.input(at), parts[at - 5], axis=2) for at in (6, 7)]
        total += b.shape(6)[2]
    mask = _mask(b, 4, query, total)
    return None if mask is None else _attended(b, parts, size, (length, total), mask, b.input(5))


def _widths(b: _Body, width: int) -> Name:
    """The widths of q, k and v, which only a bias of all of them has to be split by."""
    return b.constant([width, width, b.shape(3)[0] - 2 * width])


def _unpacked_heads(b: _Body, x: Name, count: int) -> list[Name]:
    """(batch, length, heads, count, size) as ``count`` values of (batch, heads, length, size)."""
    return [b("Transpose", b("Gather", x, b.constant(at), axis=3), perm=[0, 2, 1, 3]) for at in range(count)]


@_defines("RotaryEmbedding")
def _rotary_embedding(b: _Body) -> list[Name] | None:
    """Rotates pairs of features by angles of their position: halves, or neighbours if interleaved."""
    half, turned = b.shape(2)[1], b.node.get("rotary_embedding_dim", 0)
    if turned or b.node.get("is_packed_batching", 0) or b.node.get("scale", 1.0) != 1:
        return None
    x, places, shape, flat = b.input(0), b.input(1), b.shape(0), b.rank(0) == 3
    if b.rank(1) == 1:
        # The position of the first value.
        places = b("Add", b("Unsqueeze", places, b.constant([0])), b.constant([np.arange(shape[1 if flat else 2])]))
    cosine, sine = (b("Unsqueeze", b("Gather", each, places), b.constant([1])) for each in (b.input(2), b.input(3)))
    if flat:
        x, shape = _heads(b, x, shape[2] // (2 * half)), (shape[0], shape[2] // (2 * half), shape[1], 2 * half)
    interleaved, last = b.node.get("interleaved", 0), b.constant([-1])
    if interleaved:
        pairs = b("Reshape", x, b.constant([*shape[:3], half, 2]))
        first, second = (b("Gather", pairs, b.constant(at), axis=-1) for at in (0, 1))
    else:
        first, second = b.several("Split", 2, x, axis=-1, num_outputs=2)
    real = b("Sub", b("Mul", first, cosine), b("Mul", second, sine))
    imaginary = b("Add", b("Mul", first, sine), b("Mul", second, cosine))
    if interleaved:
        found = b("Concat", b("Unsqueeze", real, last), b("Unsqueeze", imaginary, last), axis=-1)
        found = b("Reshape", found, b.constant(list(shape)))
    else:
        found = b("Concat", real, imaginary, axis=-1)
    return [_joined(b, found) if flat else found]
