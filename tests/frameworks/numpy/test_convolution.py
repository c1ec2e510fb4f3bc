import ml_dtypes
import numpy as np
import pytest
from tests.frameworks.numpy.arrays import normal

from levelbench.frameworks.numpy.operators import convolution

torch = pytest.importorskip("torch")
functional = torch.nn.functional
CONVS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
TRANSPOSED = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}


# spatial sizes, channels in and out, kernel, strides, padding, dilations, group
CONVOLUTIONS = [
    ((9,), 3, 4, (3,), (1,), (1,), (1,), 1),
    ((12,), 4, 6, (5,), (3,), (2,), (2,), 2),
    ((7, 6), 3, 5, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((7, 6), 3, 5, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    ((7, 6), 4, 6, (1, 1), (1, 1), (0, 0), (1, 1), 2),
    ((9, 8), 4, 6, (3, 2), (2, 3), (1, 0), (1, 1), 2),
    ((9, 8), 4, 4, (3, 3), (1, 1), (1, 1), (1, 1), 4),
    ((9, 8), 3, 6, (3, 3), (2, 2), (2, 1), (2, 1), 3),
    ((5, 5), 2, 3, (2, 2), (1, 1), (3, 3), (1, 1), 1),
    ((5, 6, 4), 2, 4, (3, 2, 2), (2, 1, 1), (1, 1, 0), (1, 1, 2), 1),
    ((4, 5, 6), 4, 4, (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), 2),
]


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("with_bias", [True, False])
def test_a_convolution_and_its_gradients_match_torch(case, with_bias, same_as_torch):
    spatial, channels, outputs, kernel, strides, padding, dilations, group = case
    arrays = [normal(3, channels, *spatial), normal(outputs, channels // group, *kernel, seed=1)]
    arrays += [normal(outputs, seed=2)] if with_bias else []

    def reference(x, weight, bias=None):
        return CONVS[len(spatial)](x, weight, bias, strides, padding, dilations, group)

    same_as_torch(
        reference, "Conv", *arrays, strides=strides, pads=(*padding, *padding), dilations=dilations, group=group
    )


def test_blocks_of_images_and_rows_add_up(monkeypatch, same_as_torch):
    monkeypatch.setattr(convolution, "_BLOCK", 700)
    x, weight = normal(5, 3, 8, 8), normal(4, 3, 3, 3, seed=1)
    same_as_torch(lambda x, w: functional.conv2d(x, w, None, 1, 1), "Conv", x, weight, pads=(1, 1, 1, 1))
    same_as_torch(lambda x, w: functional.conv2d(x, w, None, 2), "Conv", x, weight, strides=(2, 2))
    monkeypatch.setattr(convolution, "_BLOCK", 1)
    same_as_torch(lambda x, w: functional.conv2d(x, w, None, 2), "Conv", x, weight, strides=(2, 2))


def test_uneven_padding_is_that_of_a_padded_array(same_as_torch):
    def reference(x, weight):
        return functional.conv2d(functional.pad(x, (2, 1, 0, 3)), weight, None, (1, 2))

    same_as_torch(reference, "Conv", normal(2, 2, 6, 7), normal(3, 2, 3, 2, seed=1), pads=(0, 2, 3, 1), strides=(1, 2))


@pytest.mark.parametrize(("mode", "ends"), [("SAME_UPPER", (0, 1)), ("SAME_LOWER", (1, 0)), ("VALID", (0, 0))])
def test_auto_pad_puts_the_odd_element_where_it_says(mode, ends, same_as_torch):
    def reference(x, weight):
        return functional.conv1d(functional.pad(x, ends), weight)

    same_as_torch(reference, "Conv", normal(2, 2, 7), normal(3, 2, 2, seed=1), auto_pad=mode)


# spatial sizes, channels in and out, kernel, strides, padding, output padding, dilations, group
TRANSPOSITIONS = [
    ((5,), 3, 4, (3,), (2,), (1,), (1,), (1,), 1),
    ((5, 4), 3, 4, (3, 3), (1, 1), (1, 1), (0, 0), (1, 1), 1),
    ((5, 4), 4, 6, (3, 2), (3, 2), (0, 1), (2, 1), (1, 1), 2),
    ((5, 4), 4, 4, (2, 3), (1, 2), (0, 0), (0, 0), (2, 1), 4),
    ((3, 4), 2, 3, (1, 1), (1, 1), (0, 0), (0, 0), (1, 1), 1),
    ((3, 4), 2, 3, (1, 1), (2, 2), (0, 0), (1, 1), (1, 1), 1),
    ((3, 4, 3), 2, 3, (2, 2, 3), (2, 1, 1), (1, 0, 1), (1, 0, 0), (1, 1, 1), 1),
]


@pytest.mark.parametrize("case", TRANSPOSITIONS, ids=str)
def test_a_transposed_convolution_and_its_gradients_match_torch(case, same_as_torch):
    spatial, channels, outputs, kernel, strides, padding, extra, dilations, group = case
    arrays = normal(2, channels, *spatial), normal(channels, outputs // group, *kernel, seed=1), normal(outputs, seed=2)

    def reference(x, weight, bias):
        return TRANSPOSED[len(spatial)](x, weight, bias, strides, padding, extra, group, dilations)

    options = {"strides": strides, "pads": (*padding, *padding), "output_padding": extra, "dilations": dilations}
    same_as_torch(reference, "ConvTranspose", *arrays, group=group, **options)


def test_an_output_shape_decides_the_padding(same_as_torch):
    x, weight = normal(1, 2, 4, 4), normal(2, 3, 3, 3, seed=1)

    def reference(x, weight):
        return functional.conv_transpose2d(x, weight, stride=2)[:, :, 1:9, 1:9]

    same_as_torch(reference, "ConvTranspose", x, weight, strides=(2, 2), output_shape=(8, 8))


def test_an_empty_batch_gives_an_empty_result(run, pull):
    x, weight = np.zeros((0, 2, 5, 5)), normal(3, 2, 3, 3)
    assert run("Conv", x, weight).shape == (0, 3, 3, 3)
    by_x, by_weight = pull("Conv", x, weight, gradient=np.zeros((0, 3, 3, 3)))
    assert by_x.shape == x.shape
    assert not by_weight.any()


def test_a_view_that_is_not_contiguous_is_read_as_it_is(run):
    x, weight = normal(5, 4, 3, 2).transpose(3, 2, 1, 0), normal(3, 3, 3, 3, seed=1)
    np.testing.assert_array_equal(run("Conv", x, weight), run("Conv", x.copy(), weight))
    np.testing.assert_array_equal(run("Conv", x, weight[:, :, :1, :1]), run("Conv", x.copy(), weight[:, :, :1, :1]))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_a_narrow_convolution_is_computed_in_float32_and_rounded_once(dtype, run):
    x, weight = normal(2, 3, 6, 6).astype(dtype), normal(4, 3, 3, 3, seed=1).astype(dtype)
    wide = run("Conv", x.astype(np.float32), weight.astype(np.float32))
    np.testing.assert_array_equal(run("Conv", x, weight), wide.astype(dtype))


def test_a_gradient_that_is_not_wanted_is_left_out():
    from levelbench.frameworks.numpy.operator import NumpyOperator
    from levelbench.operators.node import operator_node

    operator = NumpyOperator(operator_node("Conv", ["x", "w"]))
    outputs, pullback = operator.vjp(normal(1, 2, 4, 4), normal(2, 2, 3, 3), wanted=(False, True))
    by_x, by_weight = pullback(np.ones_like(outputs[0]))
    assert by_x is None
    assert by_weight.shape == (2, 2, 3, 3)
