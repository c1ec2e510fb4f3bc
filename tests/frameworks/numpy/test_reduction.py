import ml_dtypes
import numpy as np
import pytest
from tests.frameworks.numpy.arrays import normal

torch = pytest.importorskip("torch")


def product(x, axes, keep):
    for axis in sorted(axes, reverse=True):
        x = torch.prod(x, axis, keepdim=keep)
    return x


REDUCTIONS = {
    "ReduceL1": lambda x, axes, keep: x.abs().sum(axes, keepdim=keep),
    "ReduceL2": lambda x, axes, keep: torch.linalg.vector_norm(x, 2, axes, keepdim=keep),
    "ReduceLogSum": lambda x, axes, keep: x.sum(axes, keepdim=keep).log(),
    "ReduceLogSumExp": lambda x, axes, keep: x.logsumexp(axes, keepdim=keep),
    "ReduceMax": lambda x, axes, keep: x.amax(axes, keepdim=keep),
    "ReduceMean": lambda x, axes, keep: x.mean(axes, keepdim=keep),
    "ReduceMin": lambda x, axes, keep: x.amin(axes, keepdim=keep),
    "ReduceProd": product,
    "ReduceSum": lambda x, axes, keep: x.sum(axes, keepdim=keep),
    "ReduceSumSquare": lambda x, axes, keep: x.square().sum(axes, keepdim=keep),
}


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("axes", [(0,), (-1,), (1, 3), (0, 2, 3), (-2, 0), (0, 1, 2, 3)], ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_and_its_gradient_match_torch(name, axes, keep, same_as_torch):
    x = np.abs(normal(3, 4, 2, 5)) + 0.1
    positive = tuple(axis % 4 for axis in axes)
    same_as_torch(
        lambda x, _: REDUCTIONS[name](x, positive, bool(keep)), name, x, np.array(axes, np.int64), keepdims=keep
    )


@pytest.mark.parametrize("name", REDUCTIONS)
def test_older_opsets_have_axes_as_an_attribute(name, run):
    x = np.abs(normal(3, 4)) + 0.1
    newer = run(name, x, np.array([1], np.int64))
    older = run(name, x, np.array([1], np.int64), opset=13) if name == "ReduceSum" else run(name, x, opset=13, axes=[1])
    np.testing.assert_array_equal(older, newer)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_without_axes_all_are_reduced_or_none(name, run):
    x = np.abs(normal(3, 4)) + 0.1
    assert run(name, x, keepdims=0).shape == ()
    np.testing.assert_allclose(run(name, x), run(name, x, np.array([0, 1])))
    step = {"ReduceLogSum": np.log, "ReduceSumSquare": np.square}.get(name, lambda x: x)
    np.testing.assert_allclose(run(name, x, noop_with_empty_axes=1), step(x))
    np.testing.assert_allclose(run(name, x, np.zeros(0, np.int64), noop_with_empty_axes=1), step(x))


EMPTY = {
    "ReduceLogSum": -np.inf,
    "ReduceLogSumExp": -np.inf,
    "ReduceMax": -np.inf,
    "ReduceMin": np.inf,
    "ReduceProd": 1,
}


@pytest.mark.parametrize("name", [name for name in REDUCTIONS if name != "ReduceMean"])
def test_an_empty_set_has_the_value_that_onnx_gives_it(name, run, pull):
    x = np.zeros((2, 0, 3), np.float32)
    axes = np.array([1], np.int64)
    np.testing.assert_array_equal(run(name, x, axes), np.full((2, 1, 3), EMPTY.get(name, 0), np.float32))
    assert pull(name, x, axes, gradient=np.ones((2, 1, 3), np.float32))[0].shape == x.shape


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, bool])
def test_an_empty_set_of_integers_or_booleans_has_the_limits_of_its_type(dtype, run):
    x, axes = np.zeros((2, 0), dtype), np.array([1], np.int64)
    limits = (False, True) if dtype is bool else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    assert (run("ReduceMax", x, axes) == limits[0]).all()
    assert (run("ReduceMin", x, axes) == limits[1]).all()


@pytest.mark.parametrize("name", ["ReduceMax", "ReduceMin"])
def test_ties_share_the_gradient_evenly_as_torchs_do(name, same_as_torch):
    x = np.array([[1.0, 3.0, 3.0, 1.0], [2.0, 2.0, 2.0, 2.0]])
    same_as_torch(lambda x, _: REDUCTIONS[name](x, (1,), True), name, x, np.array([1]))


@pytest.mark.parametrize("zeros", [1, 2, 3])
def test_the_gradient_of_a_product_with_zeros_matches_torch(zeros, same_as_torch):
    x = normal(2, 4, 3)
    x.reshape(-1)[[1, 7, 10][:zeros]] = 0
    for axes in ((1,), (0, 2)):
        same_as_torch(lambda x, _, axes=axes: product(x, axes, True), "ReduceProd", x, np.array(axes))


def test_the_norm_of_zeros_has_a_gradient_of_zero(pull):
    np.testing.assert_array_equal(pull("ReduceL2", np.zeros((2, 3)), gradient=np.ones((1, 1)))[0], np.zeros((2, 3)))


def test_infinities_pass_through_the_logarithm_of_a_sum_of_exponentials(run):
    x = np.array([[np.inf, 1], [-np.inf, -np.inf], [1000, 1000], [-np.inf, 3]], np.float32)
    expected = torch.from_numpy(x).logsumexp(1, keepdim=True)
    np.testing.assert_allclose(run("ReduceLogSumExp", x, np.array([1])), expected)


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_a_narrow_type_is_reduced_in_float32_and_rounded_once(name, dtype, run, pull):
    x = (np.abs(normal(3, 7)) / 4 + 0.5).astype(dtype)
    found = run(name, x, np.array([1]))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, run(name, x.astype(np.float32), np.array([1])).astype(dtype))
    assert pull(name, x, np.array([1]), gradient=found)[0].dtype == dtype


@pytest.mark.parametrize("name", REDUCTIONS)
def test_integers_keep_their_type_and_have_no_gradient(name, run, pull):
    opset = 27
    x = np.array([[1, 2, 4], [3, 3, 3]], np.int32)
    found = run(name, x, np.array([1]), opset=opset)
    assert found.dtype == np.int32
    exact = run(name, x.astype(np.float64), np.array([1]), opset=opset)
    np.testing.assert_array_equal(found, np.trunc(exact))
    assert pull(name, x, np.array([1]), gradient=found, opset=opset) == (None, None)


@pytest.mark.parametrize("shape", [(1_000_003,), (300_007, 3), (3, 300_007)], ids=str)
@pytest.mark.parametrize("axis", [0, -1])
def test_a_sum_of_many_float32_is_as_close_as_pairs_are(shape, axis, run):
    x = np.random.default_rng(0).random(shape, np.float32)
    found = run("ReduceSum", x, np.array([axis]), keepdims=0)
    np.testing.assert_allclose(found, x.astype(np.float64).sum(axis), rtol=1e-6)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("name", ["ArgMax", "ArgMin"])
def test_the_position_is_that_of_the_first_or_last_extreme(name, axis, keep, run, pull):
    x = np.array([[1, 5, 5, 1], [7, 1, 7, 1], [7, 5, 1, 1]], np.float32)
    target = x.max(axis, keepdims=True) if name == "ArgMax" else x.min(axis, keepdims=True)
    places = np.where(x == target, np.arange(x.shape[axis]).reshape((-1, 1) if axis == 0 else (1, -1)), -1)
    last = places.max(axis, keepdims=bool(keep))
    first = np.where(places < 0, 99, places).min(axis, keepdims=bool(keep))
    np.testing.assert_array_equal(run(name, x, axis=axis, keepdims=keep), first)
    found = run(name, x, axis=axis, keepdims=keep, select_last_index=1)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, last)
    assert pull(name, x, gradient=None, axis=axis, keepdims=keep) == (None,)


def shifted(x, axis, first):
    return torch.cat([torch.full_like(x.narrow(axis, 0, 1), first), x.narrow(axis, 0, x.shape[axis] - 1)], axis)


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("name", ["CumSum", "CumProd"])
def test_a_cumulative_operator_and_its_gradient_match_torch(name, axis, reverse, exclusive, same_as_torch):
    function, first = (torch.cumsum, 0) if name == "CumSum" else (torch.cumprod, 1)

    def reference(x, _):
        turned = x.flip(axis) if reverse else x
        y = shifted(function(turned, axis), axis, first) if exclusive else function(turned, axis)
        return y.flip(axis) if reverse else y

    same_as_torch(reference, name, normal(4, 3, 5), np.array(axis), reverse=reverse, exclusive=exclusive)


@pytest.mark.parametrize("places", [[0], [2], [4], [1, 3], [0, 1, 4]])
def test_the_gradient_of_a_cumulative_product_with_zeros_matches_torch(places, same_as_torch):
    x = normal(2, 5)
    x[0, places] = 0
    same_as_torch(lambda x, _: torch.cumprod(x, 1), "CumProd", x, np.array(1))


def test_a_cumulative_sum_of_integers_keeps_their_type(run):
    found = run("CumSum", np.array([1, 2, 3], np.int32), np.array(0))
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, [1, 3, 6])
