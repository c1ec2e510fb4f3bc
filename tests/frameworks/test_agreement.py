"""The frameworks agree, and follow ONNX's text, on points that ONNX's node tests do not cover."""

import ml_dtypes
import numpy as np
import pytest

from levelbench.operators.frameworks import load_framework
from levelbench.operators.node import operator_node, structural

pytestmark = pytest.mark.sampled(3)

FRAMEWORKS = ("numpy", "torch", "jax", "tensorflow")


@pytest.fixture(scope="module", params=FRAMEWORKS)
def backend(request):
    framework = load_framework(request.param)
    if lacking := framework.lacks():
        pytest.skip(lacking)
    return framework.open()


def call(backend, node, *inputs):
    fixed = structural(node)
    given = [
        None if each is None else each if at in fixed else backend.array(np.asarray(each))
        for at, each in enumerate(inputs)
    ]
    return [None if each is None else backend.host(each) for each in backend.operator(node).forward(*given)]


def f32(*values):
    return np.array(values, np.float32)


def test_a_neighbour_outside_of_an_image_adds_nothing_where_the_edge_is_infinite(backend):
    image, grid = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4), f32([[[-1.0, 0.0], [1.0, 1.0], [-1.0, -1.0]]])
    image[0, 0, 0, 0], image[0, 0, 3, 3] = np.nan, np.inf
    (found,) = call(backend, operator_node("GridSample"), image, grid)
    np.testing.assert_array_equal(found.ravel(), f32(3.0, np.inf, np.nan))


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


NAN = float("nan")
BESIDE_NAN = f32(*np.zeros(20), NAN, *np.ones(16))


@pytest.mark.parametrize("operator", ["Max", "Min"])
def test_the_larger_and_the_smaller_of_a_number_and_nan_is_nan(backend, operator):
    node, zeros = operator_node(operator, ["a", "b"]), np.zeros_like(BESIDE_NAN)
    for pair in ((BESIDE_NAN, zeros), (zeros, BESIDE_NAN)):
        assert np.flatnonzero(np.isnan(call(backend, node, *pair)[0])).tolist() == [20]


@pytest.mark.parametrize("operator", ["ReduceMax", "ReduceMin", "GlobalMaxPool", "Softmax"])
@pytest.mark.parametrize("at", [0, 20, 36])
def test_one_nan_spoils_what_is_made_of_all(backend, operator, at):
    x = np.arange(37, dtype=np.float32)[None, None]
    x[..., at] = NAN
    assert np.isnan(call(backend, operator_node(operator, ["x"]), x)[0]).all()


@pytest.mark.parametrize(("attributes", "expected"), [({}, [0, 1]), ({"dilations": [2]}, [1]), ({"strides": [2]}, [0])])
def test_the_maximum_of_a_window_with_nan_is_nan(backend, attributes, expected):
    x = f32(0, NAN, 1, 2, 3, 4, 5)[None, None]
    found = call(backend, operator_node("MaxPool", kernel_shape=[2], **attributes), x)[0][0, 0]
    assert np.flatnonzero(np.isnan(found)).tolist() == expected


def test_the_maximum_of_a_window_of_minus_infinity_is_minus_infinity(backend):
    found = call(backend, operator_node("MaxPool", kernel_shape=[2]), f32(-np.inf, -np.inf, 1)[None, None])[0]
    assert found.tolist() == [[[-np.inf, 1]]]


@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
def test_the_position_of_an_extreme_is_that_of_the_first_nan(backend, operator):
    x = f32(3, 9, NAN, 1, NAN, 5)
    assert call(backend, operator_node(operator, keepdims=0), x)[0] == 2
    assert call(backend, operator_node(operator, keepdims=0, select_last_index=1), x)[0] == 4


@pytest.mark.parametrize(("largest", "expected"), [(1, [1, 3]), (0, [4, 0])])
def test_nan_is_larger_than_any_number_in_a_ranking(backend, largest, expected):
    x = f32(2, NAN, 3, np.inf, -0.0)
    node = operator_node("TopK", ["x", "k"], ["values", "places"], largest=largest)
    assert call(backend, node, x, np.array([2]))[1].tolist() == expected


@pytest.mark.parametrize("reduction", ["max", "min"])
def test_nan_that_is_scattered_is_kept(backend, reduction):
    node = operator_node("ScatterElements", ["x", "places", "updates"], reduction=reduction)
    found = call(backend, node, f32(1, NAN, 3), np.array([0, 1, 2]), f32(NAN, 5, 3))[0]
    assert np.isnan(found).tolist() == [True, True, False]


@pytest.mark.parametrize("bounds", [(NAN, 1.0), (-1.0, NAN)])
def test_a_bound_that_is_nan_makes_nan(backend, bounds):
    low, high = (np.array(each, np.float32) for each in bounds)
    assert np.isnan(call(backend, operator_node("Clip", ["x", "low", "high"]), f32(0, 2), low, high)[0]).all()


def slopes(backend, node, *inputs):
    fixed = structural(node)
    given = [each if at in fixed else backend.array(np.asarray(each)) for at, each in enumerate(inputs)]
    outputs, pullback = backend.operator(node).vjp(*given)
    found = pullback(*(backend.array(np.ones(each.shape)) for each in outputs))
    return [None if each is None else backend.host(each).tolist() for each in found]


@pytest.mark.parametrize("operator", ["Max", "Min"])
def test_equal_values_share_the_gradient_of_their_extreme(backend, operator):
    node = operator_node(operator, ["a", "b"])
    assert slopes(backend, node, np.array([2.0, 2.0]), np.array([2.0])) == [[0.5, 0.5], [1.0]]


@pytest.mark.parametrize("dilation", [1, 2])
def test_the_first_of_equal_values_has_the_gradient_of_a_window(backend, dilation):
    node = operator_node("MaxPool", kernel_shape=[2], dilations=[dilation])
    assert slopes(backend, node, np.ones((1, 1, 4))) == [[[[1.0] * (4 - dilation) + [0.0] * dilation]]]


def test_a_maximum_of_minus_infinities_has_a_gradient_that_sums_to_one(backend):
    assert slopes(backend, operator_node("ReduceMax", ["x"], keepdims=0), np.full(2, -np.inf)) == [[0.5, 0.5]]


def test_cumulative_products_have_a_gradient_at_and_after_zeros(backend):
    node = operator_node("CumProd", ["x", "axis"], opset=26)
    assert slopes(backend, node, np.array([2.0, 0, 3, 0, 1]), np.array(0))[0] == [1, 8, 0, 0, 0]


def test_zero_to_the_power_of_zero_has_no_slope(backend):
    assert slopes(backend, operator_node("Pow"), np.array([0.0]), np.array([0.0])) == [[0.0], [0.0]]


def test_a_sum_of_magnitudes_has_no_slope_at_zero(backend):
    assert slopes(backend, operator_node("ReduceL1", ["x"], keepdims=0), np.array([0.0, -2.0])) == [[0.0, -1.0]]


@pytest.mark.parametrize(("operator", "attributes"), [("LpPool", {"kernel_shape": [2]}), ("GlobalLpPool", {})])
def test_a_norm_of_zeros_in_a_window_has_no_slope(backend, operator, attributes):
    assert slopes(backend, operator_node(operator, **attributes), np.zeros((1, 1, 2))) == [[[[0.0, 0.0]]]]
