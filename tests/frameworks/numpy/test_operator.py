import ml_dtypes
import numpy as np
import pytest
from tests.frameworks.numpy.arrays import normal

from levelbench.errors import UnsupportedError
from levelbench.frameworks.numpy.operator import NumpyOperator
from levelbench.frameworks.numpy.operators import OPERATORS, Kernel
from levelbench.frameworks.numpy.operators.kernel import register
from levelbench.operators.node import OPSETS, OperatorNode, operator_node

IMAGE, CHANNELS, QUERY = (2, 4, 6, 6), (4,), (2, 2, 5, 3)
CASES = {
    "Attention": ((QUERY, QUERY, QUERY), {"opset": 23}),
    "AveragePool": ((IMAGE,), {"kernel_shape": [2, 2]}),
    "BatchNormalization": ((IMAGE, CHANNELS, CHANNELS, CHANNELS, CHANNELS), {}),
    "Conv": ((IMAGE, (4, 4, 3, 3), CHANNELS), {"pads": [1, 1, 1, 1]}),
    "ConvTranspose": ((IMAGE, (4, 4, 3, 3), CHANNELS), {"strides": [2, 2]}),
    "GlobalAveragePool": ((IMAGE,), {}),
    "GroupNormalization": ((IMAGE, CHANNELS, CHANNELS), {"num_groups": 2}),
    "InstanceNormalization": ((IMAGE, CHANNELS, CHANNELS), {}),
    "LRN": ((IMAGE,), {"size": 3}),
    "LSTM": (((5, 2, 3), (1, 16, 3), (1, 16, 4), (1, 32)), {"hidden_size": 4}),
    "LayerNormalization": ((IMAGE, (6,), (6,)), {}),
    "LpPool": ((IMAGE,), {"kernel_shape": [2, 2]}),
    "MaxPool": ((IMAGE,), {"kernel_shape": [3, 3], "strides": [2, 2]}),
    "RMSNormalization": ((IMAGE, (6,)), {"opset": 23}),
}


def case(name):
    """The operator and valid inputs, all positive, so that variances are positive."""
    shapes, attributes = CASES[name]
    names = [f"x{at}" for at in range(len(shapes))]
    return NumpyOperator(operator_node(name, names, **attributes)), [
        np.abs(normal(*shape, seed=at)) + 0.1 for at, shape in enumerate(shapes)
    ]


@pytest.mark.parametrize("name", CASES)
def test_inputs_and_gradients_are_not_written_to(name):
    operator, inputs = case(name)
    before = [each.copy() for each in inputs]
    outputs, pullback = operator.vjp(*inputs)
    gradient = np.ones_like(outputs[0])
    pullback(gradient)
    operator.forward(*inputs)
    assert (gradient == 1).all()
    for old, new in zip(before, inputs, strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("name", CASES)
def test_a_pullback_may_be_called_twice(name):
    operator, inputs = case(name)
    outputs, pullback = operator.vjp(*inputs)
    gradient = normal(*outputs[0].shape)
    for first, second in zip(pullback(gradient), pullback(gradient), strict=True):
        np.testing.assert_array_equal(first, second)


# Before opset 21 the scale of GroupNormalization was per group.
@pytest.mark.parametrize("name", [each for each in CASES if each != "GroupNormalization"])
def test_every_opset_that_has_the_operator_computes_the_same(name):
    operator, inputs = case(name)
    expected = operator.forward(*inputs)[0]
    node = operator.node
    tried = 0
    for opset in OPSETS:
        older = OperatorNode(node.op_type, node.inputs, node.outputs, node.attributes, opset=opset)
        if older.schema is not None:
            np.testing.assert_array_equal(NumpyOperator(older).forward(*inputs)[0], expected)
            tried += 1
    assert tried >= 5


@pytest.mark.parametrize("name", CASES)
def test_a_view_that_is_not_contiguous_gives_what_its_copy_gives(name):
    operator, inputs = case(name)
    views = [np.asfortranarray(each) for each in inputs]
    np.testing.assert_allclose(operator.forward(*views)[0], operator.forward(*inputs)[0], rtol=1e-12)
    gradient = normal(*operator.forward(*inputs)[0].shape)
    found = zip(operator.vjp(*views)[1](np.asfortranarray(gradient)), operator.vjp(*inputs)[1](gradient), strict=True)
    for first, second in found:
        np.testing.assert_allclose(first, second, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_an_empty_batch_gives_an_empty_output_and_zero_gradients(name):
    operator, inputs = case(name)
    batched = range(3) if name == "Attention" else range(1)
    axis = 1 if name == "LSTM" else 0
    whole = operator.forward(*inputs)[0]
    for at in batched:
        inputs[at] = inputs[at].take([], axis=axis)
    outputs, pullback = operator.vjp(*inputs)
    assert outputs[0].size == 0
    assert outputs[0].ndim == whole.ndim
    for gradient, each in zip(pullback(outputs[0]), inputs, strict=True):
        assert gradient.shape == each.shape
        assert not gradient.any()


@pytest.mark.parametrize("name", CASES)
def test_no_gradient_of_the_output_is_none_of_the_inputs_or_zero(name):
    operator, inputs = case(name)
    outputs, pullback = operator.vjp(*inputs)
    for gradient in pullback(*[None] * len(outputs)):
        assert gradient is None or not gradient.any()


def test_an_operator_that_is_not_ours_is_onnx_references():
    operator = NumpyOperator(operator_node("Det"))
    np.testing.assert_allclose(operator.forward(np.diag([2.0, 3.0]))[0], 6.0)
    with pytest.raises(UnsupportedError, match="only its forward"):
        operator.vjp(np.eye(2))


def test_an_old_version_that_means_something_else_is_refused():
    with pytest.raises(UnsupportedError, match="opset 11"):
        NumpyOperator(OperatorNode("Softmax", ("x",), ("y",), {"axis": 1}, opset=11))


def test_an_old_version_that_onnx_reference_has_by_number_is_taken_from_it():
    operator = NumpyOperator(OperatorNode("Unsqueeze", ("x",), ("y",), {"axes": [0]}, opset=11))
    assert operator.forward(np.zeros(3))[0].shape == (1, 3)


def test_an_old_version_that_computes_the_same_is_taken_as_a_new_one():
    operator = NumpyOperator(OperatorNode("Reshape", ("x", "shape"), ("y",), opset=9))
    assert operator.forward(np.zeros((2, 3)), np.array([0, -1]))[0].shape == (2, 3)


def test_a_mode_that_ours_does_not_cover_is_onnx_references():
    x = np.array([0, 10], np.int32)
    operator = NumpyOperator(operator_node("Resize", ["x", "", "scales"], mode="linear"))
    found = operator.forward(x, None, np.array([2.0], np.float32))[0]
    assert found.dtype == np.int32
    assert found[0] == 0
    assert found[-1] == 10


def test_an_operator_that_is_not_implemented_is_refused():
    with pytest.raises(UnsupportedError, match="Unheard"):
        NumpyOperator(OperatorNode("Unheard", ("x",), ("y",)))


def test_two_makers_of_one_operator_are_refused():
    before = OPERATORS["Neg"]
    with pytest.raises(ValueError, match="two makers"):
        register("Neg")(lambda node: Kernel(lambda x: -x))
    assert OPERATORS["Neg"] is before


def test_every_registered_name_is_one_of_onnx():
    from onnx import defs

    assert {each.name for each in defs.get_all_schemas()} >= set(OPERATORS)


@pytest.mark.parametrize("values", [np.array([1, 2], ml_dtypes.bfloat16), np.array(["a", "b"], object), np.array(True)])
def test_arrays_of_any_type_go_in_and_out_as_they_are(values, numpy_backend):
    found = numpy_backend.host(numpy_backend.array(values))
    assert found.dtype == values.dtype
    assert found is not values
    np.testing.assert_array_equal(found, values)


def test_strings_pass_through_onnx_reference(numpy_backend):
    operator = numpy_backend.operator(operator_node("StringConcat", ["a", "b"]))
    (found,) = operator.forward(np.array(["a", "b"], object), np.array(["c"], object))
    assert found.tolist() == ["ac", "bc"]


def test_a_seed_repeats_the_random_numbers(numpy_backend):
    operator = numpy_backend.operator(operator_node("RandomNormal", [], shape=[5]))
    numpy_backend.seed(3)
    first = operator.forward()[0]
    assert not np.array_equal(first, operator.forward()[0])
    numpy_backend.seed(3)
    np.testing.assert_array_equal(first, operator.forward()[0])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_erf_is_within_a_few_units_in_the_last_place(dtype, run):
    special = pytest.importorskip("scipy.special")
    tiny = np.logspace(-300 if dtype is np.float64 else -30, 0, 5000)
    x = np.concatenate([np.linspace(-7, 7, 40001), tiny, -tiny]).astype(dtype)
    exact = special.erf(x.astype(np.float64))
    apart = np.abs(run("Erf", x).astype(np.float64) - exact) / np.spacing(
        np.abs(exact.astype(dtype)) + np.finfo(dtype).tiny
    )
    assert apart.max() < (3 if dtype is np.float64 else 6)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_erf_of_special_values(dtype, run):
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30], dtype)
    found = run("Erf", x)
    np.testing.assert_array_equal(found, np.array([np.nan, 1, -1, 0, 0, 1], dtype))
    assert np.signbit(found[4])


CASTS = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.uint8, np.int32, np.int64, np.uint64, bool]


@pytest.mark.parametrize("to", CASTS)
@pytest.mark.parametrize("source", CASTS)
def test_a_cast_keeps_values_that_both_types_have(source, to, run):
    from onnx import helper

    x = np.array([0, 1, 5, 100]).astype(source)
    expected = x.astype(to)
    found = run("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))
    assert found.dtype == np.dtype(to)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(run("CastLike", x, np.zeros(2, to)), expected)


def test_the_gradient_of_a_cast_has_the_dtype_of_its_input(pull):
    (found,) = pull("Cast", np.ones(3, np.float32), gradient=np.ones(3), to=11)
    assert found.dtype == np.float32
    assert pull("Cast", np.ones(3, np.float32), gradient=np.ones(3), to=7) == (None,)


def test_a_cast_to_eight_bits_is_left_to_onnx(run):
    found = run("Cast", np.array([1.0, 1e9], np.float32), to=17, reference=True)
    np.testing.assert_array_equal(found.astype(np.float32), [1, 448])


@pytest.mark.parametrize(("old", "new"), [("bilinear", "linear"), ("bicubic", "cubic")])
def test_modes_of_sampling_have_older_names(old, new):
    image, grid = normal(1, 2, 4, 5), np.tanh(normal(1, 3, 3, 2, seed=1))
    nodes = (
        operator_node("GridSample", ["x", "grid"], mode=mode, opset=opset) for mode, opset in ((old, 16), (new, 20))
    )
    first, second = (NumpyOperator(each).forward(image, grid)[0] for each in nodes)
    assert np.array_equal(first, second)


@pytest.mark.parametrize("scales", [[0.5], [0.5, 2.0, 4.0]])
def test_what_is_too_large_to_quantise_saturates(scales):
    x = np.array([[np.inf, 1e30, -np.inf], [-1e30, 2.0, np.inf]], np.float32)
    scale = np.array(scales if len(scales) > 1 else scales[0], np.float32)
    node = operator_node("QuantizeLinear", ["x", "scale", "zero"], axis=1, opset=13)
    (found,) = NumpyOperator(node).forward(x, scale, np.full(scale.shape, 3, np.uint8))
    assert found.tolist() == [[255, 255, 0], [0, 4 if len(scales) > 1 else 7, 255]]
