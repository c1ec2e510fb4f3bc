import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.frameworks.numpy.arrays import normal

torch = pytest.importorskip("torch")


def integers(low, high, *shape):
    return np.random.default_rng([high, *shape]).integers(low, high, shape)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("shape", [(), (7,), (2, 3), (0,)], ids=str)
def test_a_gather_and_its_gradient_match_torch(axis, shape, same_as_torch):
    x = normal(4, 3, 5)
    indices = integers(-x.shape[axis], x.shape[axis], *shape)

    def reference(x, indices):
        parts = [slice(None)] * (axis % 3)
        return x[(*parts, indices % x.shape[axis])]

    same_as_torch(reference, "Gather", x, indices, axis=axis)


@pytest.mark.parametrize("width", [1, 8])
def test_an_embedding_adds_up_the_gradients_of_a_row(width, same_as_torch):
    table, words = normal(11, width), integers(0, 11, 6, 20)
    same_as_torch(lambda table, words: torch.nn.functional.embedding(words, table), "Gather", table, words)


def test_strings_are_gathered(run):
    np.testing.assert_array_equal(run("Gather", np.array(["a", "b"], object), np.array([1, 0])), ["b", "a"])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gathered_elements_and_their_gradient_match_torch(axis, same_as_torch):
    x = normal(4, 3, 5)
    shape = [4, 3, 5]
    shape[axis] = 6
    indices = integers(-x.shape[axis], x.shape[axis], *shape)
    same_as_torch(lambda x, i: x.gather(axis, i % x.shape[axis]), "GatherElements", x, indices, axis=axis)


def test_gathered_elements_may_be_fewer_along_other_axes(same_as_torch):
    same_as_torch(lambda x, i: x.gather(1, i), "GatherElements", normal(4, 3), integers(0, 3, 2, 5), axis=1)


@pytest.mark.parametrize(("batch", "depth"), [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (2, 1)])
def test_a_gather_of_any_depth_matches_torch(batch, depth, same_as_torch):
    x = normal(2, 3, 4)
    indices = integers(-2, 2, *x.shape[:batch], 5, depth)

    def reference(x, indices):
        grids = torch.meshgrid(*(torch.arange(size) for size in indices.shape[:-1]), indexing="ij")[:batch]
        parts = [indices[..., at] % x.shape[batch + at] for at in range(depth)]
        return x[(*grids, *parts)]

    same_as_torch(reference, "GatherND", x, indices, batch_dims=batch)


REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("axis", [0, 1])
def test_scattered_elements_with_a_reduction_match_torch(reduction, axis, same_as_torch):
    x, updates, indices = normal(4, 3), normal(3, 3, seed=1), integers(-3, 3, 3, 3)
    same_as_torch(
        lambda x, i, u: x.scatter_reduce(axis, i % x.shape[axis], u, REDUCTIONS[reduction]),
        "ScatterElements",
        x,
        indices,
        updates,
        axis=axis,
        reduction=reduction,
    )


@pytest.mark.parametrize("reduction", ["mul", "max", "min"])
def test_ties_and_zeros_of_a_scatter_have_torchs_gradients(reduction, same_as_torch):
    x, indices = np.array([0.0, 2.0, 3.0, 1.0]), np.array([0, 0, 1, 1, 2, 2])
    updates = np.array([0.0, 5.0, 2.0, 2.0, 0.0, 0.0])
    same_as_torch(
        lambda x, i, u: x.scatter_reduce(0, i, u, REDUCTIONS[reduction]),
        "ScatterElements",
        x,
        indices,
        updates,
        reduction=reduction,
    )


@pytest.mark.parametrize("opset", [13, 16, 18, 28])
def test_scattered_elements_replace_what_was_there(opset, same_as_torch):
    x, updates, indices = normal(3, 4), normal(3, 2, seed=1), np.array([[0, 3], [1, -1], [2, 0]])
    same_as_torch(lambda x, i, u: x.scatter(1, i % 4, u), "ScatterElements", x, indices, updates, axis=1, opset=opset)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scattered_slices_are_what_a_loop_over_them_gives(reduction, run):
    x, updates = normal(4, 3, 2), normal(5, 2, seed=1)
    indices = np.array([[0, 1], [3, 2], [-1, 0], [1, 1], [2, 2]])
    if reduction != "none":
        indices[1] = indices[0]
    step = {"none": lambda a, b: b, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduction]
    expected = x.copy()
    for at, update in zip(indices, updates, strict=True):
        expected[tuple(at)] = step(expected[tuple(at)], update)
    found = run("ScatterND", x, indices, updates, reduction=reduction)
    np.testing.assert_allclose(found, expected)


def test_the_gradients_of_scattered_slices_match_torch(same_as_torch):
    x, updates, indices = normal(4, 3), normal(3, 3, seed=1), np.array([[1], [3], [1]])
    same_as_torch(lambda x, i, u: x.index_add(0, i[:, 0], u), "ScatterND", x, indices, updates, reduction="add")
    alone = np.array([[1], [3], [0]])
    same_as_torch(lambda x, i, u: x.index_copy(0, i[:, 0], u), "ScatterND", x, alone, updates)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.float32])
def test_one_hot_wraps_negative_indices_and_leaves_out_far_ones(axis, dtype, run, pull):
    signed = np.dtype(dtype).kind != "u"
    indices = np.array([0, 2, -1 if signed else 3, -5 if signed else 9, 4]).astype(dtype)
    values = np.array([2.0, 5.0])
    found = run("OneHot", indices, np.array(4), values, axis=axis)
    expected = np.full((5, 4), 2.0)
    for row, column in ((0, 0), (1, 2), (2, 3)):
        expected[row, column] = 5
    np.testing.assert_array_equal(found, expected.T if axis == 0 else expected)
    gradients = pull("OneHot", indices, np.array(4), values, gradient=np.ones(found.shape), axis=axis)
    assert gradients[:2] == (None, None)
    np.testing.assert_array_equal(gradients[2], [17, 3])


def test_reversed_sequences_keep_what_follows_their_end(run, pull):
    x, lengths = normal(4, 3, 2), np.array([4, 2, 0])
    found = run("ReverseSequence", x, lengths)
    np.testing.assert_array_equal(found[:, 0], x[::-1, 0])
    np.testing.assert_array_equal(found[:, 1], x[[1, 0, 2, 3], 1])
    np.testing.assert_array_equal(found[:, 2], x[:, 2])
    np.testing.assert_array_equal(pull("ReverseSequence", x, lengths, gradient=found)[0], x)
    turned = run("ReverseSequence", x.swapaxes(0, 1), lengths, time_axis=1, batch_axis=0)
    np.testing.assert_array_equal(turned, found.swapaxes(0, 1))


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("k", [0, 1, 3, 9, 40])
def test_the_k_largest_and_their_gradient_match_torch(k, axis, largest, same_as_torch):
    x = normal(40, 40)
    same_as_torch(
        lambda x, _: x.topk(k, axis, bool(largest)),
        "TopK",
        x,
        np.array([k]),
        outputs=["values", "indices"],
        axis=axis,
        largest=largest,
    )


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.data(), st.sampled_from([0, 1]))
def test_equals_are_taken_by_the_lower_index(numbers, data, largest):
    from levelbench.frameworks.numpy.operator import NumpyOperator
    from levelbench.operators.node import operator_node

    k = data.draw(st.integers(0, len(numbers)))
    operator = NumpyOperator(operator_node("TopK", ["x", "k"], ["values", "indices"], largest=largest))
    values, indices = operator.forward(np.array(numbers, np.uint8), np.array([k]))
    expected = sorted(range(len(numbers)), key=lambda at: (-numbers[at] if largest else numbers[at], at))[:k]
    assert indices.tolist() == expected
    assert values.tolist() == [numbers[at] for at in expected]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.int64])
def test_the_largest_of_any_type_keep_it(dtype, run):
    x = np.array([3, 1, 2, 5, 4, 0, 7, 6, 9, 8]).astype(dtype)
    values, indices = run("TopK", x, np.array([2]), outputs=["values", "indices"])
    assert values.dtype == dtype
    np.testing.assert_array_equal(indices, [8, 9])


def test_nan_is_the_largest(run):
    x = np.array([1.0, np.nan, 3.0, 2.0, 0.0, -1.0, -2.0, -3.0, -4.0])
    assert run("TopK", x, np.array([2]), outputs=["values", "indices"])[1].tolist() == [1, 2]


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_compress_takes_what_the_condition_says(axis, run, pull):
    x, condition = normal(2, 3), np.array([False, True])
    attributes = {} if axis is None else {"axis": axis}
    found = run("Compress", x, condition, **attributes)
    np.testing.assert_array_equal(found, {None: x.reshape(-1)[1:2], 0: x[1:2], -1: x[:, 1:2]}[axis])
    gradient, rest = pull("Compress", x, condition, gradient=np.ones(found.shape), **attributes)
    assert rest is None
    np.testing.assert_array_equal(gradient, np.isin(x, found))


def test_non_zero_lists_indices_by_row(run):
    found = run("NonZero", np.array([[1, 0], [1, 1]], bool))
    np.testing.assert_array_equal(found, [[0, 1, 1], [0, 0, 1]])
    assert found.dtype == np.int64
    assert run("NonZero", np.array(5)).shape == (0, 1)


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [None, 0, 2, -1, 9, -9])
def test_a_triangle_and_its_gradient_match_torch(upper, k, same_as_torch):
    function = torch.triu if upper else torch.tril
    diagonal = None if k is None else np.array(k)
    same_as_torch(lambda x, _: function(x, k or 0), "Trilu", normal(2, 3, 4), diagonal, upper=upper)
