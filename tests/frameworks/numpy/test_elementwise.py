import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import mutually_broadcastable_shapes
from tests.frameworks.numpy.arrays import normal

torch = pytest.importorskip("torch")
bfloat16 = ml_dtypes.bfloat16


INSIDE = np.array([-0.99, -0.5, -1e-3, 0.2, 0.7, 0.999])
ABOVE = np.array([1e-6, 0.3, 1.0, 2.5, 40.0])
ANY = np.array([-30.0, -3.0, -0.7, -1e-8, 1e-8, 0.4, 1.6, 2.5, 30.0])

FUNCTIONS = {
    "Abs": (torch.abs, ANY),
    "Acos": (torch.acos, INSIDE),
    "Acosh": (torch.acosh, ABOVE + 1),
    "Asin": (torch.asin, INSIDE),
    "Asinh": (torch.asinh, ANY),
    "Atan": (torch.atan, ANY),
    "Atanh": (torch.atanh, INSIDE),
    "Ceil": (torch.ceil, ANY),
    "Cos": (torch.cos, ANY),
    "Cosh": (torch.cosh, ANY),
    "Erf": (torch.erf, ANY),
    "Exp": (torch.exp, ANY),
    "Floor": (torch.floor, ANY),
    "Identity": (lambda x: x * 1, ANY),
    "Log": (torch.log, ABOVE),
    "Neg": (torch.neg, ANY),
    "Reciprocal": (torch.reciprocal, ANY),
    "Round": (torch.round, ANY),
    "Sign": (torch.sign, ANY),
    "Sin": (torch.sin, ANY),
    "Sinh": (torch.sinh, ANY),
    "Sqrt": (torch.sqrt, ABOVE),
    "Tan": (torch.tan, INSIDE),
    "Tanh": (torch.tanh, ANY),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_and_its_gradient_match_torch(name, same_as_torch):
    reference, x = FUNCTIONS[name]
    same_as_torch(reference, name, x)
    same_as_torch(reference, name, np.resize(x, (3, 2, 5)).transpose(2, 0, 1))
    same_as_torch(reference, name, x[2:3].reshape(()))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [np.float16, bfloat16])
def test_a_narrow_type_is_computed_in_float32_and_rounded_once(name, dtype, run):
    x = np.where(np.isin(name, ["Log", "Sqrt", "Acosh"]), 1.5, 0.375) * np.linspace(0.9, 1.5, 50)
    x = x.astype(dtype)
    found = run(name, x)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, run(name, x.astype(np.float32)).astype(dtype))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_empty_array_stays_empty(name, run, pull):
    x = np.zeros((0, 3), np.float32)
    assert run(name, x).shape == (0, 3)
    assert pull(name, x, gradient=x)[0].shape == (0, 3)


def test_more_elements_than_a_block_are_computed_as_one(run):
    x = np.linspace(-5, 5, 100_003, dtype=np.float32)
    np.testing.assert_array_equal(run("Erf", x)[70_000:], run("Erf", x[70_000:].copy()))


BINARY = {
    "Add": torch.add,
    "Div": torch.div,
    "Max": torch.maximum,
    "Min": torch.minimum,
    "Mul": torch.mul,
    "Sub": torch.sub,
    "Pow": torch.pow,
    "Sum": lambda a, b: a + b,
    "Mean": lambda a, b: (a + b) / 2,
}
SHAPES = [((3, 4), (3, 4)), ((2, 3, 4), (4,)), ((1,), (5, 1, 2)), ((), (2, 3)), ((4, 1), (1, 3)), ((0, 3), (1, 3))]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_a_gradient_is_summed_over_broadcast_axes(name, shapes, same_as_torch):
    a, b = (np.abs(normal(*shape, seed=at)) + 0.1 for at, shape in enumerate(shapes))
    same_as_torch(BINARY[name], name, a, b)


@given(mutually_broadcastable_shapes(num_shapes=3, max_dims=4, max_side=3))
def test_three_arrays_of_any_shapes_broadcast(shapes):
    from levelbench.frameworks.numpy.operator import NumpyOperator
    from levelbench.operators.node import operator_node

    arrays = [normal(*shape, seed=at) for at, shape in enumerate(shapes.input_shapes)]
    operator = NumpyOperator(operator_node("Sum", ["a", "b", "c"]))
    (found,) = operator.forward(*arrays)
    np.testing.assert_allclose(found, arrays[0] + arrays[1] + arrays[2])
    gradients = operator.backward((np.ones(found.shape),), arrays, (found,))
    for array, gradient in zip(arrays, gradients, strict=True):
        np.testing.assert_array_equal(gradient, np.full(array.shape, found.size / array.size if array.size else 0))


@pytest.mark.parametrize("name", ["Max", "Min"])
def test_ties_share_the_gradient_evenly_as_torchs_do(name, same_as_torch):
    same_as_torch(BINARY[name], name, np.array([1.0, 2.0, 3.0]), np.array([1.0, 0.0, 3.0]))


def test_ties_of_three_share_it_in_thirds(pull):
    x = np.array([1.0, 5.0])
    found = pull("Max", x, x, x, gradient=np.array([3.0, 6.0]))
    np.testing.assert_array_equal(found, [[1, 2]] * 3)


def test_max_keeps_nan(run):
    found = run("Max", np.array([np.nan, 1.0], np.float32), np.array([0.0, np.nan], np.float32))
    assert np.isnan(found).all()


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0, 3.0, -1.0, -2.0, 2.5])
def test_a_power_with_one_exponent_matches_torch(exponent, same_as_torch):
    x = np.array([0.2, 1.0, 1.7, 9.0])
    same_as_torch(torch.pow, "Pow", x, np.array(exponent))
    same_as_torch(torch.pow, "Pow", x, np.array([exponent]))


def test_powers_of_zero_have_torchs_gradients(same_as_torch):
    same_as_torch(torch.pow, "Pow", np.array([0.0, 0.0, 0.0]), np.array([0.0, 1.0, 2.0]))


@pytest.mark.parametrize("exponent", [np.int32, np.int64, np.float64, np.float16, np.uint8])
def test_a_power_has_the_dtype_of_its_base(exponent, run):
    found = run("Pow", np.array([2.0, 3.0], np.float32), np.array([2, 3], exponent))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [4, 27])


def test_an_integer_to_a_negative_power_is_truncated(run):
    found = run("Pow", np.array([2, 1, -1, 4], np.int32), np.array([-1, -3, -3, 2], np.int64))
    np.testing.assert_array_equal(found, [0, 1, -1, 16])
    assert found.dtype == np.int32


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_integer_division_rounds_towards_zero(dtype, run):
    a, b = np.array([7, -7, 7, -7, 6, 0], dtype), np.array([2, 2, -2, -2, 3, 5], dtype)
    found = run("Div", a, b)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, [3, -3, -3, 3, 2, 0])


def test_a_division_by_zero_is_infinite_and_does_not_warn(run, pull):
    x, zero = np.array([1.0, -1.0, 0.0], np.float32), np.zeros(3, np.float32)
    np.testing.assert_array_equal(run("Div", x, zero), [np.inf, -np.inf, np.nan])
    pull("Div", x, zero, gradient=x)


@pytest.mark.parametrize(("fmod", "reference"), [(0, torch.remainder), (1, torch.fmod)])
def test_the_remainder_has_the_sign_that_is_requested(fmod, reference, same_as_torch):
    same_as_torch(reference, "Mod", np.array([5.3, -5.3, 5.3, -5.3]), np.array([3.0, 3.0, -3.0, -3.0]), fmod=fmod)


def test_where_passes_the_gradient_to_what_it_took(same_as_torch):
    condition = normal(4, 1, 3) > 0
    same_as_torch(torch.where, "Where", condition, normal(2, 3, seed=1), normal(4, 2, 1, seed=2))


@pytest.mark.parametrize(("low", "high"), [(-0.5, 0.5), (-0.5, None), (None, 0.5), (None, None), (0.5, -0.5)])
def test_clip_and_the_gradients_of_its_bounds_match_torch(low, high, same_as_torch):
    bounds = [None if each is None else np.array(each) for each in (low, high)]
    x = np.array([-2.0, -0.5, 0.1, 0.5, 3.0])
    reference = (lambda x, a, b: x * 1) if low is high is None else torch.clamp
    same_as_torch(reference, "Clip", x, *bounds)


def test_clip_keeps_nan_and_the_dtype(run):
    found = run("Clip", np.array([np.nan, 5], np.float16), np.array(0, np.float16), np.array(1, np.float16))
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, [np.nan, 1])


@pytest.mark.parametrize("name", ["Add", "Sub", "Mul", "Max", "Min", "Mod", "Div"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint64])
def test_integers_keep_their_type_and_have_no_gradient(name, dtype, run, pull):
    x = np.array([1, 2, 100], dtype)
    assert run(name, x, x).dtype == dtype
    assert pull(name, x, x, gradient=x) == (None, None)


@pytest.mark.parametrize("name", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("dtype", [np.float16, bfloat16])
def test_narrow_arithmetic_is_rounded_once(name, dtype, run, pull):
    a, b = normal(40).astype(dtype), normal(40, seed=1).astype(dtype)
    found = run(name, a, b)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, run(name, a.astype(np.float64), b.astype(np.float64)).astype(dtype))
    assert all(each.dtype == dtype for each in pull(name, a, b, gradient=found))


def test_a_narrow_gradient_is_summed_in_float32(pull):
    ones = np.ones((4096, 1), bfloat16)
    found = pull("Add", ones, np.ones((1, 1), bfloat16), gradient=ones)[1]
    assert found.item() == 4096


@pytest.mark.parametrize("name", ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"])
def test_a_comparison_answers_with_booleans_and_has_no_gradient(name, run, pull):
    a, b = np.array([1.0, 2.0, np.nan]), np.array([2.0, 2.0, np.nan])
    reference = {"Equal": "eq", "Greater": "gt", "GreaterOrEqual": "ge", "Less": "lt", "LessOrEqual": "le"}[name]
    found = run(name, a, b)
    assert found.dtype == bool
    np.testing.assert_array_equal(found, getattr(torch, reference)(torch.from_numpy(a), torch.from_numpy(b)))
    assert pull(name, a, b, gradient=a) == (None, None)


def test_strings_compare(run):
    words = np.array(["a", "b"], object)
    np.testing.assert_array_equal(run("Equal", words, np.array(["a", "c"], object)), [True, False])


@pytest.mark.parametrize(("name", "expected"), [("And", [0, 0, 0, 1]), ("Or", [0, 1, 1, 1]), ("Xor", [0, 1, 1, 0])])
def test_logic_has_its_truth_table(name, expected, run):
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    np.testing.assert_array_equal(run(name, a, b), np.array(expected, bool))
    np.testing.assert_array_equal(run("Not", a), ~a)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint64, np.int64])
def test_a_shift_past_the_width_leaves_the_sign(dtype, run):
    bits = np.dtype(dtype).itemsize * 8
    lowest = np.iinfo(dtype).min
    x, by = np.array([1, 3, lowest, lowest], dtype), np.array([1, bits - 1, bits, 1], dtype)
    right = run("BitShift", x, by, direction="RIGHT")
    left = run("BitShift", x, by, direction="LEFT")
    signed = lowest < 0
    np.testing.assert_array_equal(right, np.array([0, 0, -1 if signed else 0, lowest // 2], dtype))
    top = lowest if signed else 1 << (bits - 1)
    np.testing.assert_array_equal(left, np.array([2, top, 0, 0], dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, bfloat16])
def test_infinities_are_distinguished_by_sign(dtype, run):
    x = np.array([np.inf, -np.inf, np.nan, 1], dtype)
    np.testing.assert_array_equal(run("IsInf", x), [True, True, False, False])
    np.testing.assert_array_equal(run("IsInf", x, detect_negative=0), [True, False, False, False])
    np.testing.assert_array_equal(run("IsInf", x, detect_positive=0), [False, True, False, False])
    np.testing.assert_array_equal(run("IsInf", x, detect_positive=0, detect_negative=0), [False] * 4)
    np.testing.assert_array_equal(run("IsNaN", x), [False, False, True, False])
