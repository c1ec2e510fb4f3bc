import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.frameworks.numpy.arrays import normal

torch = pytest.importorskip("torch")
F = torch.nn.functional


def ints(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize("shape", [(6, 4), (-1,), (0, -1), (2, 0, 2, -1), (0, 0, 0), (1, -1, 1, 24)], ids=str)
def test_reshape_copies_a_zero_and_infers_minus_one(shape, same_as_torch):
    x = normal(2, 3, 4)
    sizes = [x.shape[at] if size == 0 else size for at, size in enumerate(shape)]
    same_as_torch(lambda x, _: x.reshape(sizes), "Reshape", x, ints(*shape))


def test_reshape_takes_a_zero_as_one_if_it_is_allowed(run):
    assert run("Reshape", np.zeros((0, 3)), ints(3, 0), allowzero=1).shape == (3, 0)


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1, -3])
def test_flatten_makes_a_matrix(axis, same_as_torch):
    rows = int(np.prod((2, 3, 4)[: axis % 3 if axis < 0 else axis]))
    same_as_torch(lambda x: x.reshape(rows, -1), "Flatten", normal(2, 3, 4), axis=axis)


@pytest.mark.parametrize("order", [None, (2, 0, 1), (0, 2, 1), (1, 0, 2)], ids=str)
def test_transpose_and_its_gradient_match_torch(order, same_as_torch):
    attributes = {} if order is None else {"perm": list(order)}
    same_as_torch(lambda x: x.permute(order or (2, 1, 0)), "Transpose", normal(2, 3, 4), **attributes)


def test_squeeze_and_unsqueeze_are_each_others_reverse(same_as_torch):
    x = normal(2, 1, 3, 1)
    same_as_torch(lambda x: x.squeeze(), "Squeeze", x)
    same_as_torch(lambda x, _: x.squeeze(-3), "Squeeze", x, ints(-3))
    same_as_torch(lambda x, _: x.unsqueeze(0).unsqueeze(-1), "Unsqueeze", x, ints(0, -1))


@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 3, 1), (5, 2, 1, 4), (3, 1)], ids=str)
def test_expand_broadcasts_both_ways(shape, same_as_torch):
    x = normal(2, 3, 1) if len(shape) > 2 else normal(3, 4)
    sizes = np.broadcast_shapes(x.shape, shape)
    same_as_torch(lambda x, _: x.expand(sizes), "Expand", x, ints(*shape))


@pytest.mark.parametrize("repeats", [(1, 1), (2, 3), (0, 2)], ids=str)
def test_tile_sums_the_gradients_of_its_copies(repeats, same_as_torch):
    same_as_torch(lambda x, _: x.tile(repeats), "Tile", normal(2, 3), ints(*repeats))


def test_depth_to_space_matches_torchs_pixel_shuffle(same_as_torch):
    same_as_torch(lambda x: F.pixel_shuffle(x, 2), "DepthToSpace", normal(2, 12, 3, 5), blocksize=2, mode="CRD")
    same_as_torch(lambda x: F.pixel_unshuffle(x, 2), "SpaceToDepth", normal(2, 3, 4, 6), blocksize=2, mode="CRD")


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_space_to_depth_reverses_depth_to_space(mode, run, pull):
    x = normal(2, 18, 2, 5)
    space = run("DepthToSpace", x, blocksize=3, mode=mode)
    assert space.shape == (2, 2, 6, 15)
    np.testing.assert_array_equal(run("SpaceToDepth", space, blocksize=3, mode=mode), x)
    np.testing.assert_array_equal(pull("DepthToSpace", x, gradient=space, blocksize=3, mode=mode)[0], x)


def test_concat_splits_its_gradient(same_as_torch):
    parts = normal(2, 1, 3), normal(2, 4, 3), normal(2, 0, 3)
    same_as_torch(lambda *x: torch.cat(x, 1), "Concat", *parts, axis=1)
    same_as_torch(lambda *x: torch.cat(x, -2), "Concat", *parts, axis=-2)


def test_split_joins_its_gradients(same_as_torch):
    x = normal(2, 7)
    same_as_torch(lambda x, _: x.split([3, 0, 4], 1), "Split", x, ints(3, 0, 4), outputs=["a", "b", "c"], axis=1)
    same_as_torch(lambda x: x.split(3, 1), "Split", x, outputs=["a", "b", "c"], axis=-1, num_outputs=3)


def test_a_part_of_a_split_without_a_gradient_has_zero(pull):
    x = np.arange(6.0)
    found = pull("Split", x, gradient=(None, np.ones(3)), outputs=["a", "b"], num_outputs=2)
    np.testing.assert_array_equal(found[0], [0, 0, 0, 1, 1, 1])


def test_a_split_of_older_opsets_counts_its_outputs(run):
    found = run("Split", np.arange(6.0), opset=13, outputs=["a", "b", "c"])
    np.testing.assert_array_equal(found, [[0, 1], [2, 3], [4, 5]])


def sliced(x, start, end, step):
    """ONNX's definition, element by element."""
    size = len(x)
    start, end = (each + size if each < 0 else each for each in (start, end))
    if step > 0:
        start, end = min(max(start, 0), size), min(max(end, 0), size)
    else:
        start, end = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
    return x[np.array(range(start, end, step), int)]


FAR = 2**31 - 1
POSITIONS = st.one_of(st.integers(-12, 12), st.sampled_from([-FAR - 1, FAR, 2**63 - 1, -(2**63)]))


@given(st.integers(1, 9), POSITIONS, POSITIONS, st.integers(-4, 4).filter(bool))
def test_a_slice_is_onnxs_for_any_positions(size, start, end, step):
    from levelbench.frameworks.numpy.operator import NumpyOperator
    from levelbench.operators.node import operator_node

    x = np.arange(float(size))
    operator = NumpyOperator(operator_node("Slice", ["x", "starts", "ends", "axes", "steps"]))
    inputs = (x, ints(start), ints(end), ints(0), ints(step))
    (found,) = operator.forward(*inputs)
    np.testing.assert_array_equal(found, sliced(x, start, end, step))
    gradient = operator.backward((np.ones(len(found)),), inputs, (found,))[0]
    np.testing.assert_array_equal(gradient, np.isin(x, found))


def test_a_slice_of_some_axes_matches_torch(same_as_torch):
    same_as_torch(lambda x, *_: x[:, 1:3, -2:], "Slice", normal(2, 4, 5), ints(1, -2), ints(3, 9), ints(1, -1))
    same_as_torch(lambda x, *_: x[1:, 1:3], "Slice", normal(2, 4, 5), ints(1, 1), ints(2, 3))


PADS = [(1, 2), (0, 3), (2, 0), (-1, 2), (2, -1), (-1, -1), (0, 0)]


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("pads", PADS, ids=str)
def test_padding_and_its_gradient_match_torch(mode, pads, same_as_torch):
    def reference(x, *_):
        kept = x[..., max(-pads[0], 0) : x.shape[-1] - max(-pads[1], 0)]
        grown = tuple(max(each, 0) for each in pads)
        name = {"edge": "replicate", "wrap": "circular"}.get(mode, mode)
        return F.pad(kept, grown, mode=name)

    x = normal(2, 3, 5)
    same_as_torch(reference, "Pad", x, ints(*pads), None, ints(-1), mode=mode)
    same_as_torch(reference, "Pad", x, ints(0, 0, pads[0], 0, 0, pads[1]), mode=mode)


def test_the_value_of_constant_padding_has_a_gradient(same_as_torch):
    def reference(x, _, value):
        whole = value.reshape(1, 1).expand(5, 6).clone()
        whole[1:3, 2:5] = x
        return whole

    same_as_torch(reference, "Pad", normal(2, 3), ints(1, 2, 2, 1), np.array(0.5))


def test_padding_keeps_integers(run):
    found = run("Pad", np.array([1, 2], np.int8), ints(1, 1), np.array(7, np.int8))
    assert found.dtype == np.int8
    np.testing.assert_array_equal(found, [7, 1, 2, 7])


def test_a_shape_and_a_size_are_int64(run):
    x = np.zeros((2, 3, 4))
    for options, expected in (
        ({}, [2, 3, 4]),
        ({"start": 1}, [3, 4]),
        ({"end": -1}, [2, 3]),
        ({"start": -9}, [2, 3, 4]),
    ):
        found = run("Shape", x, **options)
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, expected)
    assert run("Size", x).dtype == np.int64
    assert run("Size", x) == 24


@pytest.mark.parametrize(
    "dtype", [np.int16, np.int32, np.int64, np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
)
def test_a_range_stops_before_its_limit(dtype, run):
    found = run("Range", *(np.array(each, dtype) for each in (10, 4, -2)))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, np.array([10, 8, 6], dtype))
    assert run("Range", *(np.array(each, dtype) for each in (1, 1, 1))).shape == (0,)


def test_a_range_of_narrow_numbers_is_counted_in_float32(run):
    found = run("Range", *(np.array(each, np.float16) for each in (0, 4096, 1)))
    assert found.shape == (4096,)


def test_constants_have_the_dtype_of_what_they_hold(run):
    assert run("ConstantOfShape", ints(2, 0)).shape == (2, 0)
    assert run("ConstantOfShape", ints(2)).dtype == np.float32
    found = run("ConstantOfShape", ints(2, 2), value=np.array([7], np.int8))
    assert found.dtype == np.int8
    np.testing.assert_array_equal(found, np.full((2, 2), 7))
    assert run("Constant", value_int=3).dtype == np.int64
    assert run("Constant", value_floats=[1.0, 2.0]).dtype == np.float32
    assert run("Constant", value=np.ones((2, 2), np.float16)).dtype == np.float16
    assert run("Constant", value_string="word").item() == "word"


@pytest.mark.parametrize("name", ["Squeeze", "Flatten", "Transpose"])
def test_integers_move_and_have_no_gradient(name, run, pull):
    x = np.arange(3).reshape(1, 3)
    assert run(name, x).dtype == np.int64
    assert pull(name, x, gradient=run(name, x)) == (None,)
