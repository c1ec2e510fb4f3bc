import numpy as np
import onnx
import pytest

from levelbench.errors import CheckFailedError, UnknownNameError, UsageError
from levelbench.networks import Draw, GraphBuilder, transforms, zoo
from levelbench.networks.transforms import Allowance, check_transform
from levelbench.networks.transforms.precision import quantise_weight
from levelbench.operators.frameworks import open_framework

W = Draw("normal", 0.5)


def dtypes(network):
    return {each.dtype for each in network.parameters}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
def test_inputs_and_outputs_stay_float32_and_the_error_is_stated(dtype, residual, backend):
    done, report = check_transform(transforms.make("precision", dtype=dtype), residual, backend)
    onnx.checker.check_model(done.network.model)
    assert not done.exact
    assert [each.dtype for each in (*done.network.inputs, *done.network.outputs)] == ["float32"] * 2
    assert 0 < report.worst.relative < done.tolerance.outputs


def test_float16_weights_are_drawn_as_float16(residual):
    done = transforms.make("precision", dtype="float16").apply(residual)
    assert dtypes(done.network) == {"float16"}
    assert all(each.draw is not None for each in done.network.parameters)
    weights = done.network.initialise(3)
    for name, value in residual.initialise(3).items():
        assert np.array_equal(weights[name], value.astype(np.float16))


def test_given_values_are_rounded(residual):
    values = transforms.random_parameters(residual)
    done = transforms.make("precision", dtype="bfloat16").apply(residual, values)
    name = "weight"
    assert done.parameters[name].dtype.name == "bfloat16"
    assert np.array_equal(done.parameters[name], values[name].astype(done.parameters[name].dtype))


def test_sensitive_operators_stay_float32_by_default(backend):
    network = zoo.build("bert-tiny")
    kept = transforms.make("precision", dtype="float16").apply(network)
    assert any("Softmax" in each for each in kept.changed)
    everything = transforms.make("precision", dtype="float16", keep=()).apply(network)
    assert not any("Softmax" in each for each in everything.changed)


def test_operators_not_defined_in_bfloat16_stay_float32(residual):
    done = transforms.make("precision", dtype="bfloat16").apply(residual)
    assert any("still in float32" in each and "Conv" in each for each in done.changed)


def test_constants_beyond_the_range_of_float16_do_not_become_infinite(backend):
    g = GraphBuilder("masked")
    x = g.node("Add", g.input("x", ("batch", 3)), g.constant([0.0, -1e9, 0.0]))
    g.output(g.node("Softmax", x), "y")
    done, _ = check_transform(transforms.make("precision", dtype="float16"), g.build(), backend)
    assert "clipped 1 stored values to the range" in done.changed[-1]


def test_a_value_read_in_both_precisions_exists_in_both(backend):
    g = GraphBuilder("both")
    x = g.input("x", ("batch", 4))
    y = g.node("MatMul", x, g.parameter("w", (4, 4), W))
    g.output(g.node("Add", g.node("Softmax", y), y), "sum")
    g.output(y, "product")
    done, _ = check_transform(transforms.make("precision", dtype="float16"), g.build(), backend)
    assert [each.op_type for each in done.network.nodes].count("Softmax") == 1


def test_integers_are_not_changed(backend):
    done, _ = check_transform(
        transforms.make("precision", dtype="float16"), zoo.build("gpt2-tiny"), backend, sizes={"length": 5}
    )
    assert done.network.inputs[0].dtype == "int64"


def test_int8_weights_are_within_half_a_step():
    weight = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
    for axis in (0, 1):
        steps, scale = quantise_weight(weight, axis)
        step = scale[:, None] if axis == 0 else scale
        assert steps.dtype == np.int8
        assert np.abs(steps * step - weight).max() <= 0.5001 * scale.max()
        assert np.abs(steps.astype(int)).max() == 127


def test_int8_on_onnxruntime_is_that_of_the_reference(backend):
    """With weights of 8 bits they differ on a processor that saturates sums of two products."""
    pytest.importorskip("onnxruntime")
    network = zoo.mlp(64, 128, 10)
    done = transforms.make("precision", dtype="int8").apply(network)
    x = network.make_inputs(5)["input"]
    expected = backend.executor(done.network, None, trains=False).infer(x)[0]
    other = open_framework("onnxruntime")
    found = other.host(other.executor(done.network, None, trains=False).infer(other.array(x))[0])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_weights_have_the_requested_number_of_bits():
    weight = np.linspace(-1, 1, 11, dtype=np.float32)[None]
    assert [int(np.abs(quantise_weight(weight, 0, bits)[0]).max()) for bits in (7, 8)] == [63, 127]
    with pytest.raises(UsageError, match="7 or 8"):
        transforms.make("precision", dtype="int8", weight_bits=4)


def test_a_channel_of_zeros_is_quantised_to_zeros():
    steps, scale = quantise_weight(np.zeros((2, 3), np.float32), 0)
    assert not steps.any()
    assert np.isfinite(scale).all()


def test_int8_takes_a_quarter_of_the_weights(residual):
    done = transforms.make("precision", dtype="int8").apply(residual)
    types = [each.op_type for each in done.network.nodes]
    assert types.count("ConvInteger") == 3
    assert types.count("MatMulInteger") == 1
    assert "3 Conv, 1 Gemm compute in int8, with weights of 7 bits" in done.changed[0]


def test_a_product_of_two_computed_values_is_left_with_the_reason(backend):
    g = GraphBuilder("scores")
    x = g.input("x", ("batch", 4, 4))
    g.output(g.node("MatMul", x, g.node("Transpose", x, perm=[0, 2, 1])), "y")
    done, _ = check_transform(transforms.make("precision", dtype="int8"), g.build(), backend)
    assert "is computed" in done.changed[0]


@pytest.mark.parametrize("settings", [{"transB": 1}, {"alpha": 0.5, "beta": 2.0}, {"bias": False}])
def test_a_gemm_with_any_settings_is_quantised(settings, backend):
    settings = dict(settings)
    bias = settings.pop("bias", True)
    g = GraphBuilder("gemm")
    w = g.parameter("w", (5, 8) if settings.get("transB") else (8, 5), W)
    more = [g.parameter("b", (5,), W)] if bias else []
    g.output(g.node("Gemm", g.input("x", ("batch", 8)), w, *more, **settings), "y")
    _, report = check_transform(transforms.make("precision", dtype="int8"), g.build(), backend)
    assert report.worst.relative < 0.05


def test_too_large_an_error_is_caught(residual, backend):
    with pytest.raises(CheckFailedError, match="8 bits are not enough"):
        check_transform(
            transforms.make("precision", dtype="int8"),
            residual,
            backend,
            tolerance=Allowance(1e-6, None, "8 bits are not enough"),
        )


def test_training_mode_is_refused(residual):
    with pytest.raises(UsageError, match="training mode"):
        transforms.make("precision", dtype="float16").apply(residual.with_loss("mse").training())


def test_an_unknown_precision_is_refused_with_similar_names():
    with pytest.raises(UnknownNameError, match="float16"):
        transforms.make("precision", dtype="float61")
