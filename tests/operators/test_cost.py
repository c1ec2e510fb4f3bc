"""FLOPs and bytes: closed forms, PyTorch's own counter, and None if unknown."""

import math

import pytest

from levelbench.operators.cost import Cost, Signature, cost_of
from levelbench.operators.node import operator_node


def arrays(*shapes, itemsize=4):
    return [None if shape is None else Signature(shape, itemsize) for shape in shapes]


def cost(op_type, inputs, output, direction="forward", opset=21, **attributes):
    names = [f"i{at}" if shape is not None else "" for at, shape in enumerate(inputs)]
    node = operator_node(op_type, names, opset=opset, **attributes)
    return cost_of(node, arrays(*inputs), arrays(output), direction)


@pytest.mark.parametrize(
    ("op_type", "inputs", "output", "attributes", "flops"),
    [
        ("Gemm", [(2, 3), (3, 5)], (2, 5), {}, 2 * 2 * 3 * 5),
        ("Gemm", [(3, 2), (5, 3), (5,)], (2, 5), {"transA": 1, "transB": 1}, 2 * 2 * 3 * 5),
        ("MatMul", [(7, 2, 3), (7, 3, 5)], (7, 2, 5), {}, 2 * 7 * 2 * 3 * 5),
        ("MatMul", [(3,), (3,)], (), {}, 6),
        ("Conv", [(2, 4, 8, 8), (6, 2, 3, 3)], (2, 6, 6, 6), {"group": 2}, 2 * 2 * 6 * 36 * 2 * 9),
        ("ConvTranspose", [(1, 2, 3, 3), (2, 4, 2, 2)], (1, 4, 4, 4), {}, 2 * 18 * 16),
        ("RNN", [(5, 2, 3), (1, 4, 3), (1, 4, 4)], (5, 1, 2, 4), {"hidden_size": 4}, 2 * 10 * (12 + 16)),
        ("LSTM", [(5, 2, 3), (2, 16, 3), (2, 16, 4)], (5, 2, 2, 4), {"hidden_size": 4}, 2 * 10 * 2 * (48 + 64)),
        ("MaxPool", [(1, 1, 4, 4)], (1, 1, 3, 3), {"kernel_shape": [2, 2]}, 9 * 4),
        ("Relu", [(3, 4)], (3, 4), {}, 12),
        ("Add", [(3, 4), (4,)], (3, 4), {}, 12),
        ("Sum", [(4,), (4,), (4,)], (4,), {}, 8),
        ("ReduceSum", [(3, 4), (1,)], (3, 1), {}, 12),
        ("Softmax", [(3, 4)], (3, 4), {}, 60),
        ("LayerNormalization", [(3, 4), (4,), (4,)], (3, 4), {}, 84),
        ("Transpose", [(3, 4)], (4, 3), {}, 0),
    ],
)
def test_flops_follow_the_stated_convention(op_type, inputs, output, attributes, flops):
    assert cost(op_type, inputs, output, **attributes).flops == flops


def test_each_input_is_read_once_and_each_output_written_once():
    assert cost("MatMul", [(2, 3), (3, 5)], (2, 5)).bytes == 4 * (6 + 15 + 10)


def test_only_the_selected_part_of_indexed_data_is_read():
    assert cost("Gather", [(1000, 4), (2,)], (2, 4)).bytes == 4 * (8 + 8 + 2)


def test_a_reshape_need_not_move_anything():
    assert cost("Reshape", [(3, 4), (2,)], (4, 3)) == Cost(0.0, None)


@pytest.mark.parametrize(("op_type", "inputs", "output"), [("Det", [(3, 3)], ()), ("TfIdfVectorizer", [(3,)], (4,))])
def test_costs_without_a_convention_are_none(op_type, inputs, output):
    attributes = {"max_gram_length": 1, "max_skip_count": 0, "min_gram_length": 1, "mode": "TF"}
    attributes |= {"ngram_counts": [0], "ngram_indexes": [0]}
    found = cost(op_type, inputs, output, **(attributes if op_type == "TfIdfVectorizer" else {}))
    assert found == Cost(None, None)


def test_an_operator_of_another_domain_has_no_cost():
    from levelbench.operators.node import CUSTOM_DOMAIN, OperatorNode

    node = OperatorNode("Relu", ("X",), ("Y",), {}, CUSTOM_DOMAIN)
    assert cost_of(node, arrays((4,)), arrays((4,))) == Cost(None, None)


def test_the_backward_of_a_product_costs_one_forward_per_operand():
    forward, backward = (cost("Gemm", [(2, 3), (3, 5), (5,)], (2, 5), each) for each in ("forward", "backward"))
    assert backward.flops == 2 * forward.flops
    assert backward.bytes == forward.bytes + 4 * (6 + 15 + 5)


def test_the_backward_of_anything_else_is_unknown():
    assert cost("Relu", [(3, 4)], (3, 4), "backward").flops is None


TORCH = {
    "Gemm": ([(64, 32), (32, 48)], {}),
    "MatMul": ([(3, 16, 32), (3, 32, 8)], {}),
    "Conv": ([(2, 4, 9, 11), (6, 2, 3, 2)], {"group": 2, "strides": [2, 1], "pads": [1, 1, 1, 1]}),
    "ConvTranspose": ([(2, 4, 5, 5), (4, 3, 3, 3)], {}),
    "Attention": ([(2, 3, 7, 8), (2, 3, 5, 8), (2, 3, 5, 8)], {}),
}


@pytest.mark.parametrize("op_type", TORCH)
def test_products_count_what_pytorch_counts(op_type):
    torch = pytest.importorskip("torch")
    from torch.nn import functional
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    shapes, attributes = TORCH[op_type]
    calls = {
        "Gemm": torch.mm,
        "MatMul": torch.bmm,
        "Conv": lambda x, w: functional.conv2d(x, w, stride=(2, 1), padding=1, groups=2),
        "ConvTranspose": functional.conv_transpose2d,
        "Attention": functional.scaled_dot_product_attention,
    }
    counter = FlopCounterMode(display=False)
    # The counter does not know the fused kernel of the CPU, but it knows products.
    with counter, sdpa_kernel(SDPBackend.MATH):
        output = calls[op_type](*(torch.randn(shape) for shape in shapes))
    opset = 23 if op_type == "Attention" else 21
    ours = cost(op_type, shapes, tuple(output.shape), opset=opset, **attributes).flops
    assert math.isclose(ours, counter.get_total_flops())
