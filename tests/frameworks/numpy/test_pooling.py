import ml_dtypes
import numpy as np
import pytest
from tests.frameworks.numpy.arrays import normal

torch = pytest.importorskip("torch")
functional = torch.nn.functional
MAXIMA = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}
MEANS = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}


# spatial sizes, kernel, strides, padding, dilations
POOLS = [
    ((9,), (3,), (2,), (1,), (1,)),
    ((8, 8), (2, 2), (2, 2), (0, 0), (1, 1)),
    ((9, 7), (2, 2), (2, 2), (0, 0), (1, 1)),
    ((9, 8), (3, 3), (2, 2), (1, 1), (1, 1)),
    ((9, 8), (3, 2), (1, 3), (1, 0), (2, 3)),
    ((5, 6, 7), (2, 3, 2), (2, 1, 3), (1, 1, 0), (1, 2, 1)),
]


@pytest.mark.parametrize("case", POOLS, ids=str)
@pytest.mark.parametrize("ceil", [0, 1])
def test_a_maximum_its_index_and_its_gradient_match_torch(case, ceil, same_as_torch):
    spatial, kernel, strides, padding, dilations = case

    def reference(x):
        pool = MAXIMA[len(spatial)]
        y, index = pool(x, kernel, strides, padding, dilations, ceil_mode=bool(ceil), return_indices=True)
        # PyTorch counts from the start of each channel, ONNX from the start of the whole array.
        start = torch.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * len(spatial))
        return y, index + start * int(np.prod(spatial))

    options = {"kernel_shape": kernel, "strides": strides, "pads": (*padding, *padding), "dilations": dilations}
    x = normal(2, 3, *spatial)
    same_as_torch(reference, "MaxPool", x, outputs=("y", "index"), ceil_mode=ceil, **options)
    same_as_torch(reference, "MaxPool", np.round(x), outputs=("y", "index"), ceil_mode=ceil, **options)


def test_a_tie_sends_the_gradient_to_the_first_maximum(pull):
    (gradient,) = pull("MaxPool", np.ones((1, 1, 2, 2)), gradient=np.full((1, 1, 1, 1), 5.0), kernel_shape=(2, 2))
    assert gradient.ravel().tolist() == [5, 0, 0, 0]


def test_nan_is_the_maximum_and_takes_the_gradient(run, pull):
    x = np.array([[[1.0, np.nan, 0.0, 2.0]]])
    np.testing.assert_array_equal(run("MaxPool", x, kernel_shape=(2,), strides=(2,)), [[[np.nan, 2.0]]])
    (gradient,) = pull("MaxPool", x, gradient=np.ones((1, 1, 2)), kernel_shape=(2,), strides=(2,))
    assert gradient.ravel().tolist() == [0, 1, 0, 1]


def test_integers_have_a_maximum_in_the_border_too(run):
    x = np.array([[[-7, -3]]], np.int8)
    found = run("MaxPool", x, kernel_shape=(3,), pads=(1, 1))
    assert found.dtype == np.int8
    assert found.ravel().tolist() == [-3, -3]


def test_column_major_indices_count_down_the_columns(run):
    x = np.arange(6.0).reshape(1, 1, 2, 3)
    _, index = run("MaxPool", x, kernel_shape=(2, 2), outputs=("y", "index"), storage_order=1)
    assert index.ravel().tolist() == [3, 5]


@pytest.mark.parametrize("case", [each for each in POOLS if max(each[-1]) == 1], ids=str)
@pytest.mark.parametrize("ceil", [0, 1])
@pytest.mark.parametrize("border", [0, 1])
def test_an_average_and_its_gradient_match_torch(case, ceil, border, same_as_torch):
    spatial, kernel, strides, padding, _ = case

    def reference(x):
        return MEANS[len(spatial)](x, kernel, strides, padding, bool(ceil), bool(border))

    options = {"kernel_shape": kernel, "strides": strides, "pads": (*padding, *padding)}
    same_as_torch(reference, "AveragePool", normal(2, 3, *spatial), ceil_mode=ceil, count_include_pad=border, **options)


def test_a_dilated_average_is_that_of_the_elements_it_sees(same_as_torch):
    def reference(x):
        return (x[..., :-4] + x[..., 2:-2] + x[..., 4:]) / 3

    same_as_torch(reference, "AveragePool", normal(2, 1, 9), kernel_shape=(3,), dilations=(2,))


@pytest.mark.parametrize("p", [1, 2, 3])
def test_a_norm_over_windows_and_its_gradient_match_torch(p, same_as_torch):
    def reference(x):
        return functional.lp_pool2d(x.abs(), p, (3, 2), 2)

    same_as_torch(reference, "LpPool", normal(2, 3, 7, 8), kernel_shape=(3, 2), strides=(2, 2), p=p)


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3, 4, 5), (2, 3, 2, 3, 2)])
def test_global_pools_and_their_gradients_match_torch(shape, same_as_torch):
    axes = tuple(range(2, len(shape)))
    same_as_torch(lambda x: x.mean(axes, keepdim=True), "GlobalAveragePool", normal(*shape))
    same_as_torch(lambda x: x.amax(axes, keepdim=True), "GlobalMaxPool", normal(*shape))
    same_as_torch(lambda x: x.square().sum(axes, keepdim=True).sqrt(), "GlobalLpPool", normal(*shape))


@pytest.mark.parametrize("name", ["AveragePool", "LpPool", "MaxPool"])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_a_narrow_pool_is_computed_in_float32_and_rounded_once(name, dtype, run):
    x = normal(2, 3, 7, 7).astype(dtype)
    wide = run(name, x.astype(np.float32), kernel_shape=(3, 3))
    np.testing.assert_array_equal(run(name, x, kernel_shape=(3, 3)), wide.astype(dtype))


interpolate = functional.interpolate


def sizes(*spatial, batch=2, channels=3):
    return None, None, np.array([batch, channels, *spatial], np.int64)


@pytest.mark.parametrize("out", [(10, 6), (4, 3), (7, 9), (5, 1)], ids=str)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("corners", [False, True])
def test_linear_and_cubic_and_their_gradients_match_torch(out, mode, corners, same_as_torch):
    names = {"linear": "bilinear", "cubic": "bicubic"}
    coordinates = "align_corners" if corners else "half_pixel"

    def reference(x, *_):
        return interpolate(x, out, mode=names[mode], align_corners=corners)

    same_as_torch(
        reference, "Resize", normal(2, 3, 5, 6), *sizes(*out), mode=mode, coordinate_transformation_mode=coordinates
    )


@pytest.mark.parametrize("out", [(4, 3), (2, 6)], ids=str)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialiasing_and_its_gradient_match_torch(out, mode, same_as_torch):
    names = {"linear": "bilinear", "cubic": "bicubic"}

    def reference(x, *_):
        return interpolate(x, out, mode=names[mode], antialias=True)

    # With antialiasing PyTorch's cubic has another coefficient.
    options = {"mode": mode, "antialias": 1, "cubic_coeff_a": -0.5, "exclude_outside": 1}
    same_as_torch(reference, "Resize", normal(2, 3, 9, 10), *sizes(*out), **options)


@pytest.mark.parametrize(
    ("shape", "out"), [((5,), (10,)), ((5, 6), (10, 12)), ((5, 6), (7, 3)), ((2, 3, 4), (4, 5, 6))]
)
def test_nearest_and_its_gradient_match_torch(shape, out, same_as_torch):
    def reference(x, *_):
        return interpolate(x, out, mode="nearest")

    options = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    same_as_torch(reference, "Resize", normal(2, 3, *shape), *sizes(*out), **options)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("floor", [0, 0, 1]), ("ceil", [0, 1, 2]), ("round_prefer_floor", [0, 0, 1]), ("round_prefer_ceil", [0, 1, 2])],
)
def test_halves_are_rounded_as_the_mode_says(mode, expected, run):
    # At scale 2 the outputs are at 0, 0.5, 1, 1.5, 2, 2.5.
    options = {"nearest_mode": mode, "coordinate_transformation_mode": "asymmetric"}
    found = run("Resize", np.arange(3), None, np.array([2.0], np.float32), **options)
    assert found.dtype == np.int64
    assert found[[0, 1, 3]].tolist() == expected


def test_a_crop_reaches_outside_and_takes_the_extrapolation_value_there(run, pull):
    x = np.arange(4.0)
    roi, scales = np.array([0.0, 2.0]), np.array([1.0], np.float32)
    options = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}
    assert run("Resize", x, roi, scales, **options).tolist() == [0, 2, 9, 9]
    (gradient, *_) = pull("Resize", x, roi, scales, gradient=np.ones(4), **options)
    assert gradient.tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize(("policy", "shape"), [("not_larger", (4, 6)), ("not_smaller", (6, 9))])
def test_an_aspect_ratio_is_kept(policy, shape, run):
    x = normal(2, 4, 6)
    found = run("Resize", x, None, None, np.array([6, 6]), axes=[1, 2], keep_aspect_ratio_policy=policy)
    assert found.shape == (2, *shape)


def test_an_axis_that_keeps_its_size_is_left_alone(run):
    x = normal(2, 3, 4)
    np.testing.assert_array_equal(run("Resize", x, None, np.ones(3, np.float32), mode="cubic"), x)


def test_a_narrow_type_is_interpolated_in_float32_and_rounded_once(run):
    x = normal(2, 3, 5, 6).astype(np.float16)
    wide = run("Resize", x.astype(np.float32), *sizes(9, 9), mode="linear")
    np.testing.assert_array_equal(run("Resize", x, *sizes(9, 9), mode="linear"), wide.astype(np.float16))
