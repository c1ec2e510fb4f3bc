import ml_dtypes
import numpy as np
import pytest

from levelbench.errors import UnsupportedError
from levelbench.frameworks.numpy.operators import layers

TRUE = np.array(True)
BOTH = ["output", "mask"]


def ratio(value):
    return np.array(value, np.float32)


@pytest.mark.parametrize("dropped", [0.1, 0.5, 0.9])
def test_dropout_drops_as_many_as_its_ratio_says_and_scales_the_rest(dropped, run):
    x = np.full((300, 400), 2, np.float32)
    y, mask = run("Dropout", x, ratio(dropped), TRUE, outputs=BOTH, seed=3)
    assert y.dtype == np.float32
    assert mask.dtype == bool
    # Six standard deviations of a binomial proportion.
    assert abs(mask.mean() - (1 - dropped)) < 6 * np.sqrt(dropped * (1 - dropped) / x.size)
    np.testing.assert_allclose(y, np.where(mask, 2 / (1 - dropped), 0), rtol=1e-6)


def test_dropout_is_the_identity_unless_it_trains(run):
    x = np.arange(6.0)
    for inputs in ((x,), (x, ratio(0.5)), (x, ratio(0.5), np.array(False)), (x, ratio(0.0), TRUE)):
        y, mask = run("Dropout", *inputs, outputs=BOTH)
        np.testing.assert_array_equal(y, x)
        assert mask.all()


def test_dropout_of_everything_is_zero(run):
    np.testing.assert_array_equal(run("Dropout", np.ones(5), ratio(1.0), TRUE), np.zeros(5))


def test_the_gradient_of_dropout_passes_where_it_kept(pull, run):
    x = np.array([0.0, 1.0, 2.0] * 50)
    gradient = np.linspace(1, 2, x.size)
    y, mask = run("Dropout", x, ratio(0.5), TRUE, outputs=BOTH, seed=1)
    from levelbench.frameworks.numpy.operators import OPERATORS
    from levelbench.operators.node import operator_node

    node = operator_node("Dropout", ["x", "ratio", "training"], BOTH, seed=1)
    inputs = (x, ratio(0.5), TRUE)
    found = OPERATORS["Dropout"](node).backward((gradient, None), inputs, (y, mask))
    np.testing.assert_allclose(found[0], gradient * mask * 2)
    assert found[1:] == (None, None)
    outputs, pullback = OPERATORS["Dropout"](node).vjp(*inputs)
    np.testing.assert_array_equal(outputs[0], y)
    np.testing.assert_allclose(pullback(gradient, None)[0], gradient * mask * 2)


def test_a_mask_that_cannot_be_read_is_not_guessed():
    from levelbench.frameworks.numpy.operators import OPERATORS
    from levelbench.operators.node import operator_node

    kernel = OPERATORS["Dropout"](operator_node("Dropout", ["x", "ratio", "training"]))
    x = np.array([1.0, 0.0])
    with pytest.raises(UnsupportedError, match="Name the mask"):
        kernel.backward((x,), (x, ratio(0.5), TRUE), (x * 2,))
    found = kernel.backward((x,), (x + 1, ratio(0.5), TRUE), (np.array([4.0, 0.0]),))
    np.testing.assert_array_equal(found[0], [2, 0])


@pytest.mark.parametrize("name", ["RandomNormal", "RandomUniform"])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_random_tensors_have_the_shape_the_dtype_and_the_moments_that_is_requested(name, dtype, run):
    from onnx import helper

    given = {"mean": 2.0, "scale": 0.5} if name == "RandomNormal" else {"low": 1.0, "high": 3.0}
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    found = run(name, shape=[100, 200], dtype=code, seed=1.0, **given)
    assert found.dtype == dtype
    assert found.shape == (100, 200)
    values = found.astype(np.float64)
    deviation = 0.5 if name == "RandomNormal" else 2 / np.sqrt(12)
    assert abs(values.mean() - 2) < 6 * deviation / np.sqrt(values.size)
    assert abs(values.std() - deviation) < 0.02


@pytest.mark.parametrize("name", ["RandomNormalLike", "RandomUniformLike"])
def test_random_tensors_like_another_take_its_shape_and_dtype(name, run, pull):
    x = np.zeros((3, 4), np.float32)
    assert run(name, x).dtype == np.float32
    assert run(name, x, dtype=11).dtype == np.float64
    assert run(name, x).shape == (3, 4)
    np.testing.assert_array_equal(pull(name, x, gradient=x)[0], x)


def test_bernoulli_draws_ones_as_often_as_its_input_says(run):
    x = np.repeat(np.array([[0.0], [0.25], [1.0]]), 50_000, axis=1)
    found = run("Bernoulli", x, seed=1.0)
    assert found.dtype == np.float64
    assert np.isin(found, [0, 1]).all()
    np.testing.assert_array_equal(found[[0, 2]].mean(axis=1), [0, 1])
    assert abs(found[1].mean() - 0.25) < 6 * np.sqrt(0.25 * 0.75 / 50_000)
    assert run("Bernoulli", x, dtype=6).dtype == np.int32


@pytest.mark.parametrize(("name", "options"), [("RandomNormal", {"shape": [5]}), ("RandomUniform", {"shape": [5]})])
def test_a_seed_of_the_node_gives_the_same_numbers_again(name, options, run):
    first = run(name, seed=4.0, **options)
    np.testing.assert_array_equal(first, run(name, seed=4.0, **options))
    assert (first != run(name, seed=5.0, **options)).any()


def test_the_shared_generator_can_be_restarted(run):
    layers.seed_generator(3)
    first = run("RandomNormal", shape=[5])
    second = run("RandomNormal", shape=[5])
    assert (first != second).any()
    layers.seed_generator(3)
    np.testing.assert_array_equal(first, run("RandomNormal", shape=[5]))
