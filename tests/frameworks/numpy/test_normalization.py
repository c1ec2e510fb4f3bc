import ml_dtypes
import numpy as np
import pytest
from tests.frameworks.numpy.arrays import normal

torch = pytest.importorskip("torch")
functional = torch.nn.functional


def statistics(channels):
    return normal(channels, seed=3), np.abs(normal(channels, seed=4)) + 0.5


SHAPES = [(4, 3), (4, 3, 5), (4, 3, 5, 6), (2, 3, 4, 3, 2)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_batch_normalization_and_its_gradients_match_torch(shape, same_as_torch):
    mean, variance = statistics(3)

    def reference(x, scale, bias, mean, variance):
        view = (-1, *[1] * (x.ndim - 2))
        root = torch.sqrt(variance + 1e-3).view(view)
        return (x - mean.view(view)) / root * scale.view(view) + bias.view(view)

    arrays = normal(*shape), normal(3, seed=1), normal(3, seed=2), mean, variance
    same_as_torch(reference, "BatchNormalization", *arrays, epsilon=1e-3)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_in_training_the_batch_gives_the_statistics_and_moves_the_running_ones(shape, same_as_torch):
    mean, variance = statistics(3)

    def reference(x, scale, bias, mean, variance):
        axes = (0, *range(2, x.ndim))
        y = functional.batch_norm(x, None, None, scale, bias, True, 0.0, 1e-5)
        found = x.mean(axes), x.var(axes, correction=0)
        return y, mean * 0.8 + found[0] * 0.2, variance * 0.8 + found[1] * 0.2

    arrays = normal(*shape), normal(3, seed=1), normal(3, seed=2), mean, variance
    options = {"outputs": ("y", "mean", "variance"), "training_mode": 1, "momentum": 0.8}
    same_as_torch(reference, "BatchNormalization", *arrays, **options, rtol=1e-7)


def test_statistics_keep_their_own_type(run):
    x = normal(4, 3, 5).astype(np.float16)
    parameters = [np.ones(3, np.float16), np.zeros(3, np.float16), np.zeros(3, np.float32), np.ones(3, np.float32)]
    y, mean, variance = run("BatchNormalization", x, *parameters, outputs=("y", "m", "v"), training_mode=1)
    assert (y.dtype, mean.dtype, variance.dtype) == (np.float16, np.float32, np.float32)
    np.testing.assert_allclose(mean, 0.1 * x.astype(np.float32).mean(axis=(0, 2)), rtol=1e-5)


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3, 4, 5), (2, 3, 2, 3, 2)], ids=str)
def test_instance_normalization_and_its_gradients_match_torch(shape, same_as_torch):
    def reference(x, scale, bias):
        return functional.instance_norm(x, None, None, scale, bias, eps=1e-4)

    same_as_torch(
        reference, "InstanceNormalization", normal(*shape), normal(3, seed=1), normal(3, seed=2), epsilon=1e-4
    )


@pytest.mark.parametrize("shape", [(2, 6, 5), (2, 6, 4, 5)], ids=str)
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_normalization_and_its_gradients_match_torch(shape, groups, same_as_torch):
    def reference(x, scale, bias):
        return functional.group_norm(x, groups, scale, bias)

    arrays = normal(*shape), normal(6, seed=1), normal(6, seed=2)
    same_as_torch(reference, "GroupNormalization", *arrays, num_groups=groups)


def test_before_opset_21_group_normalization_scales_by_group(same_as_torch):
    def reference(x, scale, bias):
        return functional.group_norm(x, 2, scale.repeat_interleave(3), bias.repeat_interleave(3))

    arrays = normal(2, 6, 4), normal(2, seed=1), normal(2, seed=2)
    same_as_torch(reference, "GroupNormalization", *arrays, num_groups=2, opset=18)


@pytest.mark.parametrize("axis", [-1, 1, 2, -2])
@pytest.mark.parametrize("with_bias", [True, False])
def test_layer_normalization_and_its_gradients_match_torch(axis, with_bias, same_as_torch):
    shape = (3, 4, 5)[axis:]
    arrays = [normal(3, 4, 5), normal(*shape, seed=1), *([normal(*shape, seed=2)] if with_bias else [])]

    def reference(x, scale, bias=None):
        return functional.layer_norm(x, shape, scale, bias)

    same_as_torch(reference, "LayerNormalization", *arrays, axis=axis)


def test_mean_and_deviation_of_a_layer_are_outputs_with_gradients(same_as_torch):
    def reference(x, scale, bias):
        mean, variance = x.mean(-1, keepdim=True), x.var(-1, correction=0, keepdim=True)
        inverse = torch.rsqrt(variance + 1e-5)
        return (x - mean) * inverse * scale + bias, mean, inverse

    arrays = normal(3, 4, 5), normal(5, seed=1), normal(5, seed=2)
    same_as_torch(reference, "LayerNormalization", *arrays, outputs=("y", "mean", "inverse"), stash_type=11)


def test_a_scale_that_is_broadcast_gets_the_sum_of_its_gradients(same_as_torch):
    def reference(x, scale):
        return functional.layer_norm(x, (4, 5)) * scale

    same_as_torch(reference, "LayerNormalization", normal(3, 4, 5), normal(4, 1, seed=1), axis=1)


@pytest.mark.parametrize("axis", [-1, 1])
def test_rms_normalization_and_its_gradients_match_torch(axis, same_as_torch):
    shape = (3, 4, 5)[axis:]

    def reference(x, scale):
        return functional.rms_norm(x, shape, scale, 1e-4)

    same_as_torch(
        reference, "RMSNormalization", normal(3, 4, 5), normal(*shape, seed=1), axis=axis, epsilon=1e-4, opset=23
    )


@pytest.mark.parametrize("size", [1, 3, 4, 5, 20])
def test_local_response_normalization_and_its_gradient_match_torch(size, same_as_torch):
    def reference(x):
        around = functional.pad(x.square().unsqueeze(1), (0, 0, 0, 0, (size - 1) // 2, size // 2))
        total = functional.avg_pool3d(around, (size, 1, 1), 1).squeeze(1)
        return x / (1.5 + 0.3 * total) ** 0.75

    same_as_torch(reference, "LRN", normal(2, 7, 3, 4), size=size, alpha=0.3, beta=0.75, bias=1.5)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_a_narrow_norm_is_computed_in_float32_and_rounded_once(dtype, run):
    x, scale, bias = normal(3, 4, 5).astype(dtype), normal(5, seed=1).astype(dtype), normal(5, seed=2).astype(dtype)
    wide = [each.astype(np.float32) for each in (x, scale, bias)]
    np.testing.assert_array_equal(
        run("LayerNormalization", x, scale, bias), run("LayerNormalization", *wide).astype(dtype)
    )


def test_a_large_mean_does_not_cost_the_digits_of_the_deviation(run):
    x = (1e4 + np.random.default_rng(0).normal(size=(2, 3, 1000))).astype(np.float32)
    y = run("InstanceNormalization", x, np.ones(3, np.float32), np.zeros(3, np.float32))
    exact = x.astype(np.float64)
    exact = (exact - exact.mean(2, keepdims=True)) / np.sqrt(exact.var(2, keepdims=True) + 1e-5)
    np.testing.assert_allclose(y, exact, atol=2e-3)
