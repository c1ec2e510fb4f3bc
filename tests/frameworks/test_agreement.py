"""The frameworks agree, and follow ONNX's text, on points that ONNX's node tests do not cover."""

import ml_dtypes
import numpy as np
import pytest

from levelbench.operators.frameworks import load_framework
from levelbench.operators.node import operator_node

FRAMEWORKS = ("numpy", "torch", "jax", "tensorflow")


@pytest.fixture(scope="module", params=FRAMEWORKS)
def backend(request):
    framework = load_framework(request.param)
    if lacking := framework.lacks():
        pytest.skip(lacking)
    return framework.open()


def call(backend, node, *inputs):
    from levelbench.operators.node import structural

    fixed = structural(node)
    given = [
        None if each is None else each if at in fixed else backend.array(np.asarray(each))
        for at, each in enumerate(inputs)
    ]
    return [None if each is None else backend.host(each) for each in backend.operator(node).forward(*given)]


def f32(*values):
    return np.array(values, np.float32)


def test_the_odd_pad_of_a_transposed_convolution_goes_to_the_start(backend):
    node = operator_node("ConvTranspose", output_shape=[2])
    assert call(backend, node, f32([[0, 1]]), f32([[1, 1]]))[0].tolist() == [[[1, 1]]]


def test_the_odd_pad_of_a_transposed_convolution_goes_to_the_end_for_same_upper(backend):
    node = operator_node("ConvTranspose", output_shape=[2], auto_pad="SAME_UPPER")
    assert call(backend, node, f32([[0, 1]]), f32([[1, 1]]))[0].tolist() == [[[0, 1]]]


def test_a_transposed_convolution_of_the_same_size_may_be_longer_than_its_windows(backend):
    node = operator_node("ConvTranspose", strides=[3], auto_pad="SAME_LOWER")
    assert call(backend, node, f32([[1, 2]]), f32([[1]]))[0].tolist() == [[[0, 1, 0, 0, 2, 0]]]


@pytest.mark.parametrize(("p", "expected"), [(1, [-0.75, 0.25]), (2, [-3 / 10**0.5, 1 / 10**0.5])])
def test_a_norm_is_of_magnitudes(backend, p, expected):
    assert call(backend, operator_node("LpNormalization", p=p), f32(-3, 1))[0] == pytest.approx(expected)


def test_a_norm_of_zeros_makes_zeros(backend):
    assert call(backend, operator_node("LpNormalization"), f32(0, 0))[0].tolist() == [0, 0]


def test_a_slice_that_goes_down_from_below_the_first_element_starts_there(backend):
    node = operator_node("Slice", ["x", "starts", "ends", "axes", "steps"])
    bounds = [np.array([each]) for each in (-5, np.iinfo(np.int64).min, 0, -1)]
    assert call(backend, node, f32(0, 1, 2), *bounds)[0].tolist() == [0]


def test_the_clip_of_an_lstm_leaves_the_cell_alone(backend):
    random = np.random.default_rng(0)
    x, w, r = (random.standard_normal(size).astype(np.float32) for size in ((2, 1, 3), (1, 8, 3), (1, 8, 2)))
    cell = np.full((1, 1, 2), 3.0, np.float32)
    names = ["X", "W", "R", "", "", "", "initial_c"]
    node = operator_node("LSTM", names, ["Y"], hidden_size=2, clip=0.4)
    found = call(backend, node, x, w, r, None, None, None, cell)[0]
    reference = load_framework("numpy").open()
    assert found == pytest.approx(call(reference, node, x, w, r, None, None, None, cell)[0], rel=1e-5)
    # More than a clipped cell could give: sigmoid(0.4) tanh(0.4) is 0.23.
    assert np.abs(found).max() > 0.3


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_what_does_not_vary_is_normalised_to_zero(backend, dtype):
    x = np.ones((1, 1, 2, 2), dtype)
    found = call(backend, operator_node("MeanVarianceNormalization"), x)[0]
    assert found.dtype == dtype
    assert not found.any()


def test_the_indices_of_a_scalar_have_no_axis(backend):
    assert call(backend, operator_node("NonZero"), np.asarray(3))[0].shape == (0, 1)


def test_a_reduction_over_nothing_keeps_the_type(backend):
    node = operator_node("ReduceLogSum", ["data"], noop_with_empty_axes=1)
    found = call(backend, node, np.array([8, 2, 4]))[0]
    assert (found.dtype, found.tolist()) == (np.int64, [2, 0, 1])


def test_the_log_of_the_sum_of_exponentials_of_one_integer_is_itself(backend):
    assert call(backend, operator_node("ReduceLogSumExp", ["data"]), np.asarray(3, np.int32))[0] == 3


def test_an_integer_base_survives_a_narrow_exponent(backend):
    node = operator_node("Pow")
    assert call(backend, node, np.array([257], np.int32), np.array([1], ml_dtypes.bfloat16))[0].tolist() == [257]


def test_a_negative_power_of_an_integer_is_cut_to_zero(backend):
    bases, exponents = np.array([1, 2, -1, -1, 3]), np.array([-1, -1, -3, -2, 2])
    assert call(backend, operator_node("Pow"), bases, exponents)[0].tolist() == [1, 0, -1, 1, 9]


def test_the_norm_of_small_integers_is_of_squares_that_do_not_fit_into_their_type(backend):
    assert call(backend, operator_node("ReduceL2", ["data"]), np.full(16, 20, np.int8))[0].tolist() == [80]


def test_the_norm_of_zeros_has_a_gradient_of_zeros(backend):
    made = backend.operator(operator_node("ReduceL2", ["data"], keepdims=0))
    _, pullback = made.vjp(backend.array(np.zeros(3)))
    assert backend.host(pullback(backend.array(np.ones(())))[0]).tolist() == [0, 0, 0]


def test_the_error_function_of_float64_is_one_at_infinity(backend):
    assert call(backend, operator_node("Erf"), np.array([np.inf, -np.inf, 0]))[0].tolist() == [1, -1, 0]


@pytest.mark.parametrize("group", [1, 2, 4])
def test_a_convolution_of_no_samples_has_the_shape_of_its_output(backend, group):
    x, weight = np.zeros((0, 4, 5, 5), np.float32), np.zeros((8, 4 // group, 3, 1), np.float32)
    assert call(backend, operator_node("Conv", group=group), x, weight)[0].shape == (0, 8, 3, 5)


def test_a_window_longer_than_its_axis_makes_nothing(backend):
    if backend.describe()["name"] == "torch":
        pytest.skip("PyTorch's kernels raise an error of their own")
    x, weight = np.ones((1, 1, 2, 4), np.float32), np.ones((1, 1, 3, 3), np.float32)
    assert call(backend, operator_node("Conv"), x, weight)[0].shape == (1, 1, 0, 2)
    for operator in ("MaxPool", "AveragePool", "LpPool"):
        assert call(backend, operator_node(operator, kernel_shape=[3, 3]), x)[0].shape == (1, 1, 0, 2)


def test_an_output_without_a_name_is_none(backend):
    node = operator_node("LayerNormalization", ["x", "scale"], ["y", "", "s"])
    found = call(backend, node, f32([1, 2], [3, 5]), f32(1, 1))
    assert found[1] is None
    assert found[2] is not None


@pytest.mark.parametrize(("mode", "expected"), [("wrap", [2, 1, 2]), ("reflect", [2, 1, 2]), ("edge", [1, 1, 2])])
def test_what_a_negative_pad_cuts_off_is_not_repeated_at_the_other_end(backend, mode, expected):
    assert call(backend, operator_node("Pad", mode=mode), f32(1, 2, 3, 4), np.array([1, -2]))[0].tolist() == expected


def test_a_query_that_sees_no_key_has_no_gradient(backend):
    q, k = np.ones((1, 1, 1, 2)), np.ones((1, 1, 2, 2))
    node = operator_node("Attention", ["Q", "K", "V", "mask"], opset=23, softcap=2.0)
    given = [backend.array(each) for each in (q, k, k, np.zeros((1, 2), bool))]
    _, pullback = backend.operator(node).vjp(*given)
    for each in pullback(backend.array(np.ones((1, 1, 1, 2))))[:3]:
        assert not backend.host(each).any()


@pytest.mark.parametrize("operator", ["LpNormalization", "MeanVarianceNormalization"])
@pytest.mark.parametrize("p", [1, 2])
def test_gradients_of_norms_agree_with_central_differences(backend, operator, p):
    attributes = {"p": p} if operator == "LpNormalization" else {}
    random = np.random.default_rng(p)
    x, g = random.standard_normal((2, 3, 4, 5)), random.standard_normal((2, 3, 4, 5))
    node = operator_node(operator, **attributes)
    made = backend.operator(node)
    _, pullback = made.vjp(backend.array(x))
    gradient = backend.host(pullback(backend.array(g))[0])
    direction, step = random.standard_normal(x.shape), 1e-6
    sides = [backend.host(made.forward(backend.array(x + sign * step * direction))[0]) for sign in (1, -1)]
    assert (gradient * direction).sum() == pytest.approx((g * (sides[0] - sides[1])).sum() / (2 * step), rel=1e-6)
