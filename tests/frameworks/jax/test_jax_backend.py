"""JAX's backend: found by name, described; arrays, casts, and refusals."""

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, numpy_helper
from tests.frameworks.jax.networks import MODES, given, tiny

from levelbench.errors import MissingError, UnknownNameError, UnsupportedError, UsageError
from levelbench.frameworks.jax import framework
from levelbench.networks import Draw, GraphBuilder
from levelbench.operators.contract import Framework
from levelbench.operators.frameworks import load_framework
from levelbench.operators.node import OperatorNode, operator_node


def test_it_is_found_by_name():
    found = load_framework("jax")
    assert isinstance(found, Framework)
    assert (found.name, found.trains) == ("jax", True)


def test_looking_for_it_does_not_import_it():
    code = "from levelbench.frameworks.jax import framework; framework.lacks(); import sys; print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_where_it_is_not_installed_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install" in (framework.lacks() or "")


@pytest.mark.parametrize("device", ["cuda:99", "tpu", "cuda:x"])
def test_a_device_that_does_not_exist_cannot_be_opened(device):
    pytest.importorskip("jax")
    with pytest.raises(MissingError, match="jax"):
        framework.open(device)


def test_it_describes_itself(backend):
    said = backend.describe()
    assert said["name"] == "jax"
    assert said["device"] == "cpu"
    assert said["deterministic"] is True
    assert said["threads"] >= 1


def test_its_clock_and_finish_wait_for_what_was_dispatched(backend):
    import numpy as np

    x = backend.array(np.ones((300, 300), np.float32))
    product = backend.operator(OperatorNode("MatMul", ("a", "b"), ("y",)))
    (y,) = product.forward(x, x)
    before = backend.clock().now_ns()
    assert y.is_ready()
    (y,) = product.forward(x, x)
    backend.finish([y])
    assert y.is_ready()
    assert backend.clock().now_ns() >= before


def test_its_gemm_is_a_product_of_square_matrices():
    pytest.importorskip("jax")
    ((name, make),) = framework.gemms()
    work, operations = make(8)
    assert name == "float32"
    assert operations == 2 * 8**3
    assert work().shape == (8, 8)


@pytest.mark.parametrize("operator", ["StringConcat", "RegexFullMatch", "ImageDecoder", "NoSuchOperator"])
def test_an_operator_that_is_not_supported_is_refused_when_it_is_made(backend, operator):
    with pytest.raises(UnsupportedError, match=operator):
        backend.operator(OperatorNode(operator, ("x",), ("y",)))


NUMPY = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64", "complex64", "complex128"]
SMALL = ["bfloat16", "int4", "uint4", "int2", "uint2", "float4_e2m1fn"]
FLOAT8 = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]


@pytest.mark.parametrize("name", [*NUMPY, *FLOATS, *SMALL, *FLOAT8])
def test_an_array_comes_back_with_its_type_and_values(backend, name):
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    host = np.array([[0, 1, 1], [1, 0, 1]], np.float32).astype(dtype)
    found = backend.host(backend.array(host))
    assert found.dtype == dtype
    assert found.shape == host.shape
    np.testing.assert_array_equal(found.astype(np.complex128), host.astype(np.complex128))


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_scalars_and_empty_arrays_keep_their_shape(backend, shape):
    assert backend.host(backend.array(np.zeros(shape, np.float32))).shape == shape


def test_an_array_that_is_not_contiguous_keeps_its_values(backend):
    host = np.arange(12.0).reshape(3, 4).T[::2]
    np.testing.assert_array_equal(backend.host(backend.array(host)), host)


def test_an_array_has_memory_of_its_own(backend):
    host = np.zeros(1024, np.float32)
    array = backend.array(host)
    host[:] = 1
    assert backend.host(array).max() == 0


def test_what_comes_to_the_host_is_a_copy_that_can_be_written(backend):
    array = backend.array(np.zeros(3, np.float32))
    copy = backend.host(array)
    copy[:] = 1
    assert backend.host(array).max() == 0


@pytest.mark.parametrize("host", [np.array(["a"]), np.array(["a"], object), np.array([b"a"])])
def test_strings_are_refused(backend, host):
    with pytest.raises(UnsupportedError, match="on jax"):
        backend.array(host)


FLOAT8_CODES = {
    "float8_e4m3fn": TensorProto.FLOAT8E4M3FN,
    "float8_e4m3fnuz": TensorProto.FLOAT8E4M3FNUZ,
    "float8_e5m2": TensorProto.FLOAT8E5M2,
    "float8_e5m2fnuz": TensorProto.FLOAT8E5M2FNUZ,
}


def bits(array):
    return np.where(np.isnan(array.astype(np.float32)), 0x100, array.view(np.uint8).astype(int))


@pytest.fixture(scope="module")
def values():
    return np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)


@pytest.mark.parametrize("name", FLOAT8_CODES)
@pytest.mark.parametrize("saturate", [0, 1])
def test_every_value_of_float16_rounds_as_onnx_says(backend, values, name, saturate):
    dtype = np.dtype(getattr(ml_dtypes, name))
    operator = backend.operator(operator_node("Cast", to=FLOAT8_CODES[name], saturate=saturate, opset=19))
    found = backend.host(operator.forward(backend.array(values))[0])
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = numpy_helper.saturate_cast(values, dtype) if saturate else values.astype(dtype)
    np.testing.assert_array_equal(bits(found), bits(wanted))


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
@pytest.mark.parametrize("saturate", [0, 1])
def test_powers_of_two_are_rounded_as_requested(backend, mode, saturate):
    some = np.exp2(np.linspace(-130, 127.99, 4001)).astype(np.float32)
    node = operator_node("Cast", to=TensorProto.FLOAT8E8M0, round_mode=mode, saturate=saturate, opset=24)
    found = backend.host(backend.operator(node).forward(backend.array(some))[0])
    wanted = numpy_helper.to_float8e8m0(some, bool(saturate), mode)
    np.testing.assert_array_equal(found.view(np.uint8), wanted.view(np.uint8))


def test_an_integer_that_does_not_fit_keeps_its_lowest_bits(backend):
    operator = backend.operator(operator_node("Cast", to=TensorProto.INT8))
    found = backend.host(operator.forward(backend.array(np.array([200, -129, 5], np.int16)))[0])
    np.testing.assert_array_equal(found, np.array([-56, 127, 5], np.int8))


def test_fused_operators_are_not_timed_and_the_error_says_which_mode_can(backend):
    network = tiny()
    with pytest.raises(UnsupportedError, match=r"compiled to one program\. Use mode eager"):
        backend.executor(network).operator_times(given(backend, network)[0])


def values_in_shapes():
    g = GraphBuilder("values")
    found = g.node("NonZero", g.input("x", ["n"]))
    g.output(found, "y")
    return g.build()


def test_a_shape_that_depends_on_values_runs_eagerly_and_is_refused_when_compiled(backend):
    x = backend.array(np.array([0, 1, 0, 2], np.float32))
    assert np.asarray(backend.executor(values_in_shapes(), mode="eager").infer(x)[0]).tolist() == [[1, 3]]
    with pytest.raises(UnsupportedError, match=r"depends on values.*Use mode eager"):
        backend.executor(values_in_shapes(), mode="jit").infer(x)


def test_an_unknown_mode_lists_the_known_ones(backend):
    with pytest.raises(UnknownNameError, match="eager, jit"):
        backend.executor(tiny(), mode="compiled")


def test_what_is_invalid_is_refused(backend):
    network = tiny()
    executor, inputs = backend.executor(network), given(backend, network)
    with pytest.raises(UsageError, match="no forward pass"):
        executor.backward()
    with pytest.raises(UsageError, match="for inference"):
        backend.executor(network, trains=False).forward(*inputs)
    with pytest.raises(UsageError, match=r"it is \(36, 3\), and the new array \(2,\)"):
        executor.parameters["weight"] = np.zeros(2, np.float32)
    with pytest.raises(UnknownNameError, match=r"parameter 'wieght'.*close: weight"):
        executor.parameters["wieght"] = np.zeros(2, np.float32)
    with pytest.raises(UsageError, match="the network needs it"):
        del executor.parameters["weight"]


def test_training_without_a_loss_is_refused(backend):
    with pytest.raises(UsageError, match="it has no loss"):
        backend.executor(values_in_shapes()).forward(backend.array(np.zeros(2, np.float32)))


@MODES
def test_a_call_with_too_few_or_too_many_inputs_reports_the_expected_ones(backend, mode):
    network = tiny()
    executor, (x, labels) = backend.executor(network, mode=mode), given(backend, network)
    for inputs in [(), (x, labels)]:
        with pytest.raises(UsageError, match=rf"there are 1 \(x\), and {len(inputs)} were given"):
            executor.infer(*inputs)
    for inputs in [(x,), (x, labels, labels)]:
        with pytest.raises(UsageError, match=rf"there are 2 \(x, labels\), and {len(inputs)} were given"):
            executor.forward(*inputs)


def test_an_inference_timed_with_too_few_inputs_reports_the_expected_ones(backend):
    with pytest.raises(UsageError, match=r"there are 1 \(x\), and 0 were given"):
        backend.executor(tiny(), mode="eager").operator_times()


def test_a_shape_that_depends_on_a_trained_value_is_refused_without_advice_to_use_the_mode_in_use(backend):
    g = GraphBuilder("counted")
    weight = g.parameter("w", [], Draw("constant", 3.0))
    counted = g.node("Range", g.constant(np.float32(0)), weight, g.constant(np.float32(1)))
    g.output(g.node("Mul", g.input("x", ["batch", 1]), counted), "y")
    network = g.build().with_loss("mse")
    x, targets = (backend.array(np.ones((2, size), np.float32)) for size in (1, 3))
    with pytest.raises(UnsupportedError, match=r"in mode 'eager': .*Use numpy or torch") as refused:
        backend.executor(network, mode="eager").forward(x, targets)
    assert "compiled" not in str(refused.value)
    with pytest.raises(UnsupportedError, match=r"compiled as a whole.*Use mode eager"):
        backend.executor(network, mode="jit").forward(x, targets)


def test_parameters_can_be_replaced_by_or_but_not_removed(backend):
    parameters = backend.executor(tiny()).parameters
    parameters |= {"weight": np.zeros((36, 3))}
    assert not np.any(np.asarray(parameters["weight"]))
    with pytest.raises(UsageError, match="the network needs it"):
        parameters.pop("weight")
