import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2])
@pytest.mark.parametrize(("name", "reference"), [("Softmax", torch.softmax), ("LogSoftmax", torch.log_softmax)])
def test_softmax_along_any_axis_and_its_gradient_are_torchs(name, reference, axis, same_as_torch):
    x = normal(3, 4, 5)
    same_as_torch(lambda x: reference(x, axis), name, x, axis=axis)
    same_as_torch(lambda x: reference(x, axis), name, x.transpose(2, 0, 1), axis=axis)


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("shape", [(1,), (7,), (300, 400), (1, 1, 9), (0, 3), (3, 0)], ids=str)
def test_softmax_of_any_shape_is_torchs(name, shape, same_as_torch):
    reference = torch.softmax if name == "Softmax" else torch.log_softmax
    same_as_torch(lambda x: reference(x, -1), name, normal(*shape))


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
def test_large_scores_do_not_overflow(name, run):
    found = run(name, np.array([[1e30, 0, -1e30], [-np.inf, 3, 3]], np.float32))
    value = found if name == "Softmax" else np.exp(found)
    np.testing.assert_allclose(value, [[1, 0, 0], [0, 0.5, 0.5]])


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_a_narrow_type_is_computed_in_float32_and_rounded_once(name, dtype, run, pull):
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
