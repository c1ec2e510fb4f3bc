import ml_dtypes
import numpy as np
import pytest
from tests.frameworks.numpy.arrays import normal

torch = pytest.importorskip("torch")
F = torch.nn.functional

X = np.array([-40.0, -8.0, -3.5, -2.9, -1.1, -0.3, -1e-7, 1e-7, 0.2, 0.6, 1.3, 2.9, 3.2, 7.0, 40.0])

ACTIVATIONS = {
    "Relu": (torch.relu, {}),
    "LeakyRelu": (lambda x: F.leaky_relu(x, 0.1), {"alpha": 0.1}),
    "LeakyRelu of a slope above 1": (lambda x: F.leaky_relu(x, 3.0), {"alpha": 3.0}),
    "LeakyRelu of no slope": (lambda x: F.leaky_relu(x, 0.0), {"alpha": 0.0}),
    "LeakyRelu of a negative slope": (lambda x: torch.where(x > 0, x, -2 * x), {"alpha": -2.0}),
    "Elu": (lambda x: F.elu(x, 1.7), {"alpha": 1.7}),
    "Celu": (lambda x: F.celu(x, 2.0), {"alpha": 2.0}),
    "Selu": (lambda x: 1.5 * F.elu(x, 2.0), {"alpha": 2.0, "gamma": 1.5}),
    "Gelu": (F.gelu, {}),
    "Gelu by tanh": (lambda x: F.gelu(x, approximate="tanh"), {"approximate": "tanh"}),
    "Sigmoid": (torch.sigmoid, {}),
    "HardSigmoid": (lambda x: torch.clamp(0.25 * x + 0.4, 0, 1), {"alpha": 0.25, "beta": 0.4}),
    "HardSwish": (F.hardswish, {}),
    "Swish": (F.silu, {}),
    "Swish of a scaled x": (lambda x: x * torch.sigmoid(1.5 * x), {"alpha": 1.5}),
    "Mish": (F.mish, {}),
    "Softplus": (lambda x: F.softplus(x, threshold=1000), {}),
    "Softsign": (F.softsign, {}),
    "ThresholdedRelu": (lambda x: F.threshold(x, 0.5, 0.0), {"alpha": 0.5}),
    "Shrink": (lambda x: F.softshrink(x, 0.5), {"lambd": 0.5, "bias": 0.5}),
    "Shrink without a bias": (lambda x: F.hardshrink(x, 0.5), {"lambd": 0.5}),
}


@pytest.mark.parametrize("title", ACTIVATIONS)
def test_an_activation_and_its_gradient_match_torch(title, same_as_torch):
    reference, attributes = ACTIVATIONS[title]
    same_as_torch(reference, title.split()[0], X, **attributes)
    same_as_torch(reference, title.split()[0], X.reshape(3, 5).T, **attributes)
    same_as_torch(reference, title.split()[0], X[9:10].reshape(()), **attributes)


@pytest.mark.parametrize(
    ("name", "reference", "kinks"),
    [
        ("Relu", torch.relu, [0.0]),
        ("LeakyRelu", lambda x: F.leaky_relu(x, 0.01), [0.0]),
        ("Elu", F.elu, [0.0]),
        ("Celu", F.celu, [0.0]),
        ("HardSwish", F.hardswish, [-3.0, 3.0]),
        ("HardSigmoid", lambda x: F.hardsigmoid(x * 1.2), [-2.5, 2.5]),
        ("ThresholdedRelu", lambda x: F.threshold(x, 1.0, 0.0), [1.0]),
        ("Shrink", lambda x: F.hardshrink(x, 0.5), [-0.5, 0.5]),
    ],
)
def test_the_gradient_at_a_kink_matches_torch(name, reference, kinks, same_as_torch):
    same_as_torch(reference, name, np.array(kinks))


@pytest.mark.parametrize("title", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_a_narrow_type_is_computed_in_float32_and_rounded_once(title, dtype, run, pull):
    name, attributes = title.split()[0], ACTIVATIONS[title][1]
    x = X.astype(dtype)
    found = run(name, x, **attributes)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, run(name, x.astype(np.float32), **attributes).astype(dtype))
    assert pull(name, x, gradient=found, **attributes)[0].dtype == dtype


@pytest.mark.parametrize("title", ACTIVATIONS)
def test_float32_is_as_close_to_float64_as_its_rounding(title, run):
    name, attributes = title.split()[0], ACTIVATIONS[title][1]
    x = np.linspace(-12, 12, 20_001, dtype=np.float32)
    found, exact = run(name, x, **attributes), run(name, x.astype(np.float64), **attributes)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, exact, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("title", ACTIVATIONS)
def test_nan_stays_nan_and_large_numbers_do_not_overflow(title, run):
    name, attributes = title.split()[0], ACTIVATIONS[title][1]
    found = run(name, np.array([np.nan, 1e30, -1e30], np.float32), **attributes)
    assert np.isfinite(found[1:]).all()
    # Operators that compare with a threshold treat NaN as below it.
    assert np.isnan(found[0]) or name in {"Shrink", "ThresholdedRelu"}


@pytest.mark.parametrize("shape", [(4,), (1,), (3, 1), (2, 3, 4), (2, 1, 1)])
def test_prelu_sums_the_gradient_of_its_slope(shape, same_as_torch):
    generator = np.random.default_rng(3)
    x, slope = generator.normal(size=(2, 3, 4)), generator.normal(size=shape)
    x[0, 0, 0] = 0
    same_as_torch(lambda x, slope: torch.where(x > 0, x, slope * x), "PRelu", x, slope)


def test_integers_rectify_and_have_no_gradient(run, pull):
    x = np.array([-3, 0, 5], np.int8)
    np.testing.assert_array_equal(run("Relu", x), [0, 0, 5])
    assert run("Relu", x).dtype == np.int8
    assert pull("Relu", x, gradient=x) == (None,)
    np.testing.assert_array_equal(run("PRelu", x, np.array([2], np.int8)), [-6, 0, 5])
    np.testing.assert_array_equal(run("Shrink", x, lambd=1.5, bias=1.0), [-2, 0, 4])


def test_swiglu_is_a_swish_times_a_gate(same_as_torch):
    a, b = np.random.default_rng(0).normal(size=(2, 5, 3))
    same_as_torch(lambda a, b: F.silu(a) * b, "SwiGLU", a, b)
    same_as_torch(lambda a, b: a * torch.sigmoid(2 * a) * b, "SwiGLU", a, b, alpha=2.0)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2])
@pytest.mark.parametrize(("name", "reference"), [("Softmax", torch.softmax), ("LogSoftmax", torch.log_softmax)])
def test_softmax_along_any_axis_and_its_gradient_match_torch(name, reference, axis, same_as_torch):
    x = normal(3, 4, 5)
    same_as_torch(lambda x: reference(x, axis), name, x, axis=axis)
    same_as_torch(lambda x: reference(x, axis), name, x.transpose(2, 0, 1), axis=axis)


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("shape", [(1,), (7,), (300, 400), (1, 1, 9), (0, 3), (3, 0)], ids=str)
def test_softmax_of_any_shape_matches_torch(name, shape, same_as_torch):
    reference = torch.softmax if name == "Softmax" else torch.log_softmax
    same_as_torch(lambda x: reference(x, -1), name, normal(*shape))


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
def test_large_scores_do_not_overflow(name, run):
    found = run(name, np.array([[1e30, 0, -1e30], [-np.inf, 3, 3]], np.float32))
    value = found if name == "Softmax" else np.exp(found)
    np.testing.assert_allclose(value, [[1, 0, 0], [0, 0.5, 0.5]])


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_a_narrow_softmax_is_computed_in_float32_and_rounded_once(name, dtype, run, pull):
    x = normal(5, 6).astype(dtype)
    found = run(name, x)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, run(name, x.astype(np.float32)).astype(dtype))
    assert pull(name, x, gradient=found)[0].dtype == dtype


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_hardmax_is_one_at_the_first_largest(axis, run, pull):
    x = np.array([[1, 3, 3], [2, 3, 1]], np.float32)
    found = run("Hardmax", x, axis=axis)
    chosen = x.argmax(axis)
    np.testing.assert_array_equal(found.argmax(axis), chosen)
    np.testing.assert_array_equal(found.sum(axis), np.ones(chosen.shape))
    np.testing.assert_array_equal(pull("Hardmax", x, gradient=x, axis=axis)[0], np.zeros_like(x))
