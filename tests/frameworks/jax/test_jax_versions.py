"""Older operator versions and settings without a node test in ONNX, compared with ONNX's reference."""

import numpy as np
import pytest
from onnx import IR_VERSION, helper
from onnx.reference import ReferenceEvaluator

from levelbench.errors import UnsupportedError
from levelbench.operators.node import OperatorNode, operator_node, structural

RNG = np.random.default_rng(3)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def reference(node, inputs):
    """The outputs of ``onnx.reference`` for one node."""
    values = {name: each for name, each in zip(node.inputs, inputs, strict=True) if name}
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for name, each in values.items()
    ]
    wanted = [helper.make_empty_tensor_value_info(name) for name in node.outputs if name]
    graph = helper.make_graph([node.to_proto()], "one", given, wanted)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid(node.domain, node.opset)], ir_version=min(IR_VERSION, 10)
    )
    return ReferenceEvaluator(model).run(None, values)


IMAGE = normal(2, 4, 6, 7)
ROIS = np.array([[0, 0, 3, 4], [1, 1, 5.5, 5]], np.float32), np.array([0, 1])
SCALES = np.array([1, 1, 1.7, 0.6], np.float32)
LONG = np.array([5, 3], np.int32)

CASES = {
    "reduce mean of opset 13": ("ReduceMean", 13, [IMAGE], {"axes": [1, 3], "keepdims": 0}),
    "reduce sum of opset 13": ("ReduceSum", 13, [IMAGE, np.array([2])], {}),
    "group normalization of opset 18": ("GroupNormalization", 18, [IMAGE, normal(2), normal(2)], {"num_groups": 2}),
    "grid sample with reflection": (
        "GridSample",
        20,
        [IMAGE, RNG.uniform(-1.4, 1.4, (2, 5, 3, 2)).astype(np.float32)],
        {"mode": "linear", "padding_mode": "reflection"},
    ),
    "cubic grid sample held to the border": (
        "GridSample",
        20,
        [IMAGE, RNG.uniform(-1.4, 1.4, (2, 5, 3, 2)).astype(np.float32)],
        {"mode": "cubic", "padding_mode": "border"},
    ),
    "grid sample in three dimensions": (
        "GridSample",
        20,
        [normal(1, 2, 3, 4, 5), RNG.uniform(-1.2, 1.2, (1, 2, 3, 2, 3)).astype(np.float32)],
        {"mode": "linear", "padding_mode": "border", "align_corners": 1},
    ),
    "roi align of opset 16 with as many samples as needed": (
        "RoiAlign",
        16,
        [IMAGE, *ROIS],
        {"output_height": 2, "output_width": 3, "sampling_ratio": 0},
    ),
    "resize of opset 13": ("Resize", 13, [IMAGE, None, SCALES], {"mode": "linear"}),
    "cubic resize without the outside": (
        "Resize",
        19,
        [IMAGE, None, SCALES],
        {"mode": "cubic", "exclude_outside": 1, "coordinate_transformation_mode": "asymmetric"},
    ),
    "resize of integers": (
        "Resize",
        19,
        [RNG.integers(0, 255, (1, 1, 4, 4)).astype(np.uint8), None, SCALES],
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    ),
    "nearest resize that rounds up": (
        "Resize",
        18,
        [IMAGE, None, None, np.array([2, 4, 9, 4])],
        {"mode": "nearest", "nearest_mode": "ceil", "coordinate_transformation_mode": "half_pixel"},
    ),
    "softmax of opset 13": ("Softmax", 13, [IMAGE], {"axis": 1}),
    "pad of opset 13": ("Pad", 13, [IMAGE, np.array([0, 0, 1, 2, 0, 1, 0, 1])], {"mode": "edge"}),
    "quantization by axis of opset 13": (
        "QuantizeLinear",
        13,
        [IMAGE, np.array([0.1, 0.2, 0.3, 0.4], np.float32), np.array([3, 0, 100, 255], np.uint8)],
        {"axis": 1},
    ),
    "dft of opset 17": ("DFT", 17, [normal(2, 8, 3, 1), np.array(6)], {"axis": 1, "onesided": 1}),
    "mean pool with a remainder": (
        "AveragePool",
        19,
        [IMAGE],
        {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1, "pads": [1, 0, 1, 1], "count_include_pad": 1},
    ),
    "convolution padded on one side": (
        "Conv",
        11,
        [IMAGE, normal(6, 2, 3, 3), normal(6)],
        {"group": 2, "pads": [2, 0, 0, 1], "strides": [2, 1], "dilations": [1, 2]},
    ),
    "lstm in reverse, batch first": (
        "LSTM",
        14,
        [normal(2, 5, 3), normal(1, 16, 3), normal(1, 16, 4), normal(1, 32)],
        {"hidden_size": 4, "direction": "reverse", "layout": 1},
    ),
    "gru in both directions": (
        "GRU",
        14,
        [normal(5, 2, 3), normal(2, 12, 3), normal(2, 12, 4), normal(2, 24)],
        {"hidden_size": 4, "direction": "bidirectional", "linear_before_reset": 1},
    ),
    "matrix product of vectors": ("MatMul", 13, [normal(4), normal(3, 4, 2)], {}),
    "layer normalization of two axes": ("LayerNormalization", 17, [IMAGE, normal(6, 7), normal(6, 7)], {"axis": -2}),
    "smallest k along the first axis": ("TopK", 11, [normal(5, 3), np.array([2])], {"axis": 0, "largest": 0}),
    "scatter with a largest": (
        "ScatterElements",
        18,
        [normal(3, 4), np.array([[0, -1], [2, 2]]), normal(2, 2)],
        {"axis": 1, "reduction": "max"},
    ),
    "unique rows in order of appearance": (
        "Unique",
        11,
        [np.array([[3, 1], [0, 2], [3, 1]], np.float32)],
        {"axis": 0, "sorted": 0},
    ),
}
OUTPUTS = {"TopK": 2, "LSTM": 3, "GRU": 2, "Unique": 4}


@pytest.mark.parametrize("name", CASES)
def test_it_answers_as_the_reference_does(backend, name):
    op_type, opset, inputs, attributes = CASES[name]
    names = [f"x{at}" if each is not None else "" for at, each in enumerate(inputs)]
    outputs = [f"y{at}" for at in range(OUTPUTS.get(op_type, 1))]
    node = operator_node(op_type, names, outputs, opset=opset, **attributes)
    known = structural(node)
    native = [each if each is None or at in known else backend.array(each) for at, each in enumerate(inputs)]
    found = [backend.host(each) for each in backend.operator(node).forward(*native)]
    for one, other in zip(found, reference(node, inputs), strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_labels_that_are_numbers_are_looked_up(backend):
    attributes = {"keys_floats": [1.5, float("nan"), -2.0], "values_int64s": [7, 8, 9], "default_int64": -1}
    encoder = backend.operator(operator_node("LabelEncoder", domain="ai.onnx.ml", opset=4, **attributes))
    (found,) = encoder.forward(backend.array(np.array([[-2, 0], [np.nan, 1.5]], np.float32)))
    np.testing.assert_array_equal(backend.host(found), [[9, -1], [8, 7]])


RENAMED = {
    # ONNX's reference lacks the older mode names, and trains where opset 13 says it does not.
    "GridSample": (16, {"mode": "bilinear"}, 20, {"mode": "linear"}, [IMAGE, np.tanh(normal(2, 3, 2, 2))]),
    "BatchNormalization": (13, {}, 15, {}, [IMAGE, normal(4), normal(4), normal(4), np.ones(4, np.float32)]),
}


@pytest.mark.parametrize("op_type", RENAMED)
def test_an_older_version_answers_as_the_newer_one(backend, op_type):
    opset, attributes, newer, others, inputs = RENAMED[op_type]
    native = [backend.array(each) for each in inputs]
    old, new = (
        backend.host(backend.operator(operator_node(op_type, opset=at, **each)).forward(*native)[0])
        for at, each in ((opset, attributes), (newer, others))
    )
    np.testing.assert_array_equal(old, new)


def test_the_training_mode_of_opset_13_is_refused(backend):
    inputs, outputs = tuple("xsbmv"), ("y", "mean", "variance")
    with pytest.raises(UnsupportedError, match="BatchNormalization"):
        backend.operator(OperatorNode("BatchNormalization", inputs, outputs, opset=13))


@pytest.mark.parametrize("op_type", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_a_short_sequence_is_computed_as_if_it_were_alone(backend, op_type, direction):
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op_type]
    attributes = {"hidden_size": 4, "direction": direction}
    x, w, r = normal(5, 2, 3), normal(1, 4 * gates, 3), normal(1, 4 * gates, 4)
    bound = OperatorNode(op_type, ("x", "w", "r", "", "n"), ("y", "h"), attributes)
    alone = OperatorNode(op_type, ("x", "w", "r"), ("y", "h"), attributes)
    weights = [backend.array(each) for each in (w, r)]
    y, h = backend.operator(bound).forward(backend.array(x), *weights, None, backend.array(LONG))
    short, last = backend.operator(alone).forward(backend.array(x[:3, 1:]), *weights)
    np.testing.assert_allclose(backend.host(y)[:3, :, 1:], backend.host(short), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(backend.host(h)[:, 1:], backend.host(last), rtol=1e-5, atol=1e-6)
    assert not backend.host(y)[3:, :, 1].any()
