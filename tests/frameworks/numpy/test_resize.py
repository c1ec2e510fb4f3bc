import numpy as np
import pytest

torch = pytest.importorskip("torch")
interpolate = torch.nn.functional.interpolate


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def sizes(*spatial, batch=2, channels=3):
    return None, None, np.array([batch, channels, *spatial], np.int64)


@pytest.mark.parametrize("out", [(10, 6), (4, 3), (7, 9), (5, 1)], ids=str)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("corners", [False, True])
def test_linear_and_cubic_and_their_gradients_are_torchs(out, mode, corners, same_as_torch):
    names = {"linear": "bilinear", "cubic": "bicubic"}
    coordinates = "align_corners" if corners else "half_pixel"

    def reference(x, *_):
        return interpolate(x, out, mode=names[mode], align_corners=corners)

    same_as_torch(
        reference, "Resize", normal(2, 3, 5, 6), *sizes(*out), mode=mode, coordinate_transformation_mode=coordinates
    )


@pytest.mark.parametrize("out", [(4, 3), (2, 6)], ids=str)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialiasing_and_its_gradient_are_torchs(out, mode, same_as_torch):
    names = {"linear": "bilinear", "cubic": "bicubic"}

    def reference(x, *_):
        return interpolate(x, out, mode=names[mode], antialias=True)

    # PyTorch's cubic has another coefficient where it is antialiased.
    options = {"mode": mode, "antialias": 1, "cubic_coeff_a": -0.5, "exclude_outside": 1}
    same_as_torch(reference, "Resize", normal(2, 3, 9, 10), *sizes(*out), **options)


@pytest.mark.parametrize(
    ("shape", "out"), [((5,), (10,)), ((5, 6), (10, 12)), ((5, 6), (7, 3)), ((2, 3, 4), (4, 5, 6))]
)
def test_nearest_and_its_gradient_are_torchs(shape, out, same_as_torch):
    def reference(x, *_):
        return interpolate(x, out, mode="nearest")

    options = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    same_as_torch(reference, "Resize", normal(2, 3, *shape), *sizes(*out), **options)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("floor", [0, 0, 1]), ("ceil", [0, 1, 2]), ("round_prefer_floor", [0, 0, 1]), ("round_prefer_ceil", [0, 1, 2])],
)
def test_halves_are_rounded_as_the_mode_says(mode, expected, run):
    # At twice the size the outputs lie at 0, 0.5, 1, 1.5, 2, 2.5.
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
