"""Autograd's gradients of an operator against central differences of its forward, in float64."""

import numpy as np
import pytest

from levelbench.operators.node import operator_node

STEP = 1e-6
RANDOM = np.random.default_rng(7)


def draw(*shape):
    return RANDOM.standard_normal(shape)


# A node, its inputs (arrays of float64 are differentiated), and the positions of structural inputs.
CASES = {
    "Add, broadcast": (operator_node("Add"), (draw(2, 3), draw(3)), ()),
    "Div": (operator_node("Div"), (draw(2, 3), 2 + draw(1, 3) ** 2), ()),
    "Pow": (operator_node("Pow"), (1 + draw(4) ** 2, draw(4)), ()),
    "Gelu": (operator_node("Gelu"), (draw(5),), ()),
    "Softplus": (operator_node("Softplus"), (draw(5) * 10,), ()),
    "PRelu": (operator_node("PRelu"), (draw(2, 3, 4), draw(3, 1)), ()),
    "Softmax": (operator_node("Softmax", axis=0), (draw(3, 4),), ()),
    "Gemm": (
        operator_node("Gemm", ["a", "b", "c"], alpha=0.5, beta=2.0, transA=1),
        (draw(3, 2), draw(3, 4), draw(4)),
        (),
    ),
    "MatMul, broadcast": (operator_node("MatMul"), (draw(2, 1, 3, 4), draw(5, 4, 2)), ()),
    "Einsum": (operator_node("Einsum", ["a", "b"], equation="bij,bjk->bik"), (draw(2, 3, 4), draw(2, 4, 2)), ()),
    "Conv, uneven": (
        operator_node("Conv", ["x", "w", "b"], pads=[1, 0, 2, 1], strides=[2, 1], dilations=[1, 2], group=2),
        (draw(2, 4, 6, 6), draw(6, 2, 3, 2), draw(6)),
        (),
    ),
    "Conv, SAME_LOWER": (
        operator_node("Conv", auto_pad="SAME_LOWER", strides=[2], kernel_shape=[3]),
        (draw(1, 2, 8), draw(3, 2, 3)),
        (),
    ),
    "ConvTranspose, output_shape": (
        operator_node("ConvTranspose", ["x", "w", "b"], strides=[3, 2], output_shape=[10, 8], kernel_shape=[3, 3]),
        (draw(1, 1, 3, 3), draw(1, 2, 3, 3), draw(2)),
        (),
    ),
    "MaxPool, uneven": (
        operator_node("MaxPool", kernel_shape=[3, 3], pads=[2, 0, 0, 1], strides=[2, 2]),
        (draw(1, 2, 6, 6),),
        (),
    ),
    "AveragePool, dilated": (
        operator_node("AveragePool", kernel_shape=[2, 2], dilations=[2, 2], pads=[1, 0, 0, 1]),
        (draw(1, 2, 5, 5),),
        (),
    ),
    "LpPool": (operator_node("LpPool", kernel_shape=[2], p=3), (draw(1, 1, 6),), ()),
    "BatchNormalization, training": (
        operator_node("BatchNormalization", None, ["y", "m", "v"], training_mode=1),
        (draw(4, 2, 3), draw(2), draw(2), draw(2), draw(2) ** 2),
        (),
    ),
    "BatchNormalization": (
        operator_node("BatchNormalization"),
        (draw(4, 2, 3), draw(2), draw(2), draw(2), 1 + draw(2) ** 2),
        (),
    ),
    "LayerNormalization": (
        operator_node("LayerNormalization", ["x", "s", "b"], axis=1),
        (draw(2, 3, 2), draw(3, 2), draw(3, 2)),
        (),
    ),
    "RMSNormalization": (operator_node("RMSNormalization", opset=23), (draw(2, 4), draw(4)), ()),
    "GroupNormalization": (
        operator_node("GroupNormalization", num_groups=2),
        (draw(2, 4, 3), draw(4), draw(4)),
        (),
    ),
    "InstanceNormalization": (operator_node("InstanceNormalization"), (draw(2, 3, 4), draw(3), draw(3)), ()),
    "LRN": (operator_node("LRN", size=4, alpha=0.5), (draw(1, 5, 2, 2),), ()),
    "RNN": (
        operator_node("RNN", ["x", "w", "r"], ["y", "h"], hidden_size=2, direction="reverse"),
        (draw(3, 2, 4), draw(1, 2, 4), draw(1, 2, 2)),
        (),
    ),
    "GRU": (
        operator_node("GRU", ["x", "w", "r", "b"], ["y", "h"], hidden_size=2, linear_before_reset=1),
        (draw(3, 2, 4), draw(1, 6, 4), draw(1, 6, 2), draw(1, 12)),
        (),
    ),
    "GRU, by steps": (
        operator_node("GRU", ["x", "w", "r", "b"], ["y", "h"], hidden_size=2, direction="bidirectional"),
        (draw(3, 2, 4), draw(2, 6, 4), draw(2, 6, 2), draw(2, 12)),
        (),
    ),
    "LSTM": (
        operator_node("LSTM", ["x", "w", "r", "b"], ["y", "h", "c"], hidden_size=2, direction="bidirectional"),
        (draw(3, 2, 4), draw(2, 8, 4), draw(2, 8, 2), draw(2, 16)),
        (),
    ),
    "LSTM, peepholes and lengths": (
        operator_node("LSTM", ["x", "w", "r", "b", "l", "h", "c", "p"], ["y", "h", "c"], hidden_size=2),
        (draw(3, 2, 4), draw(1, 8, 4), draw(1, 8, 2), draw(1, 16), np.array([3, 1], np.int32), None, None, draw(1, 6)),
        (),
    ),
    "Attention, causal": (
        operator_node("Attention", ["q", "k", "v"], opset=23, is_causal=1),
        (draw(1, 4, 3, 2), draw(1, 2, 3, 2), draw(1, 2, 3, 2)),
        (),
    ),
    "Attention, capped": (
        operator_node("Attention", ["q", "k", "v", "m"], opset=23, softcap=2.0),
        (draw(1, 2, 3, 2), draw(1, 2, 4, 2), draw(1, 2, 4, 3), draw(3, 4)),
        (),
    ),
    "Gather": (operator_node("Gather", axis=1), (draw(2, 3), np.array([[0, -1], [1, 1]])), ()),
    "ScatterElements": (
        operator_node("ScatterElements", axis=0, reduction="add"),
        (draw(3, 2), np.array([[0, 2], [0, 1]]), draw(2, 2)),
        (),
    ),
    "ScatterND": (operator_node("ScatterND"), (draw(3, 2), np.array([[1], [-1]]), draw(2, 2)), ()),
    "Slice, backwards": (
        operator_node("Slice", ["x", "s", "e", "a", "t"]),
        (draw(5), *(np.array([each]) for each in (4, 0, 0, -2))),
        (1, 2, 3, 4),
    ),
    "Unique": (operator_node("Unique"), (draw(4),), ()),
    "Pad, constant": (
        operator_node("Pad", ["x", "p", "c"]),
        (draw(2, 3), np.array([0, 1, 2, -1]), draw()),
        (1,),
    ),
    "Pad, reflect": (operator_node("Pad", mode="reflect"), (draw(4), np.array([2, 1])), (1,)),
    "Resize, cubic": (
        operator_node("Resize", ["x", "", "", "s"], mode="cubic", coordinate_transformation_mode="asymmetric"),
        (draw(1, 1, 4, 4), None, None, np.array([1, 1, 6, 7])),
        (1, 2, 3),
    ),
    "GridSample": (operator_node("GridSample"), (draw(1, 2, 4, 4), RANDOM.uniform(-0.9, 0.9, (1, 2, 3, 2))), ()),
    "DeformConv": (
        operator_node("DeformConv", ["x", "w", "o", "b", "m"], kernel_shape=[2, 2], pads=[0, 0, 0, 0]),
        (draw(1, 2, 4, 4), draw(3, 2, 2, 2), 0.2 + 0.1 * draw(1, 8, 3, 3), draw(3), draw(1, 4, 3, 3)),
        (),
    ),
    "RoiAlign": (
        operator_node("RoiAlign", output_height=2, output_width=2, sampling_ratio=2),
        (draw(1, 2, 6, 6), np.array([[0.3, 0.4, 4.1, 4.2]]), np.array([0])),
        (),
    ),
    "ReduceLogSumExp": (operator_node("ReduceLogSumExp", ["x", "a"]), (draw(2, 3), np.array([1])), (1,)),
    "ReduceProd": (operator_node("ReduceProd"), (draw(2, 3),), ()),
    "CumSum": (operator_node("CumSum", exclusive=1, reverse=1), (draw(2, 3), np.array(1)), (1,)),
    "SoftmaxCrossEntropyLoss": (
        operator_node("SoftmaxCrossEntropyLoss", ["x", "y", "w"], ["l", "p"], ignore_index=1),
        (draw(4, 3), np.array([0, 1, 2, 2]), RANDOM.uniform(0.5, 1, 3)),
        (),
    ),
    "STFT": (
        operator_node("STFT", ["x", "s", "w"]),
        (draw(1, 12, 1), np.array(3), draw(4)),
        (1,),
    ),
}  # fmt: skip


def is_float(value):
    return isinstance(value, np.ndarray) and value.dtype == np.float64


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_central_differences(torch_backend, name):
    node, inputs, structural = CASES[name]
    operator = torch_backend.operator(node)
    generator = np.random.default_rng(0)

    def native(values):
        return [
            each if at in structural or each is None else torch_backend.array(each) for at, each in enumerate(values)
        ]

    def forward(values):
        return [torch_backend.host(each) for each in operator.forward(*native(values))]

    outputs, pullback = operator.vjp(*native(inputs))
    weights = [generator.standard_normal(tuple(each.shape)) for each in outputs]
    found = pullback(*(torch_backend.array(np.asarray(each)) for each in weights))
    assert len(found) == len(inputs)
    for at, value in enumerate(inputs):
        if at in structural or not is_float(value):
            assert found[at] is None
            continue
        direction = generator.standard_normal(value.shape)
        ends = [[*inputs[:at], value + sign * STEP * direction, *inputs[at + 1 :]] for sign in (1, -1)]
        up, down = (sum((w * y).sum() for w, y in zip(weights, forward(each), strict=True)) for each in ends)
        slope = (torch_backend.host(found[at]) * direction).sum()
        assert slope == pytest.approx((up - down) / (2 * STEP), rel=1e-5, abs=1e-6), f"input {at}"


def test_a_pullback_may_be_called_twice_and_no_gradient_counts_as_zero(torch_backend):
    operator = torch_backend.operator(operator_node("Split", ["x"], ["a", "b"], axis=0, num_outputs=2))
    x = torch_backend.array(np.arange(4.0))
    _, pullback = operator.vjp(x)
    one = torch_backend.array(np.ones(2))
    np.testing.assert_array_equal(torch_backend.host(pullback(one, None)[0]), [1, 1, 0, 0])
    np.testing.assert_array_equal(torch_backend.host(pullback(None, one)[0]), [0, 0, 1, 1])


def test_an_input_that_no_output_depends_on_has_a_gradient_of_zero(torch_backend):
    operator = torch_backend.operator(operator_node("Where"))
    x, y = (torch_backend.array(np.ones(2)) for _ in range(2))
    condition = torch_backend.array(np.array([True, True]))
    none, first, second = operator.backward([torch_backend.array(np.ones(2))], [condition, x, y], [x])
    assert none is None
    np.testing.assert_array_equal(torch_backend.host(first), [1, 1])
    np.testing.assert_array_equal(torch_backend.host(second), [0, 0])


def test_an_output_without_a_gradient_gives_none(torch_backend):
    operator = torch_backend.operator(operator_node("Less"))
    a, b = (torch_backend.array(np.ones(2)) for _ in range(2))
    outputs, pullback = operator.vjp(a, b)
    assert pullback(outputs[0]) == (None, None)


def test_outputs_of_a_vjp_carry_no_graph(torch_backend):
    outputs, _ = torch_backend.operator(operator_node("Exp")).vjp(torch_backend.array(np.ones(2)))
    assert not outputs[0].requires_grad
