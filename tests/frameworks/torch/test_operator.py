"""An operator on PyTorch: its outputs, what is refused, and types."""

import ml_dtypes
import numpy as np
import pytest
import torch

from levelbench.errors import UnsupportedError
from levelbench.frameworks.torch.profiling import _named
from levelbench.operators.node import OperatorNode, operator_node

WIDE = ["uint16", "uint32", "uint64"]


@pytest.fixture
def call(torch_backend):
    """Calls an operator with NumPy arrays; structural inputs remain NumPy arrays."""

    def of(node, *inputs, structural=()):
        native = [
            each if at in structural or each is None else torch_backend.array(each) for at, each in enumerate(inputs)
        ]
        return [torch_backend.host(each) for each in torch_backend.operator(node).forward(*native)]

    return of


def test_there_are_as_many_outputs_as_the_node_names(call):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for names in (["y"], ["y", "mean"], ["y", "mean", "deviation"]):
        node = operator_node("LayerNormalization", ["x", "scale"], names)
        assert len(call(node, x, np.ones(3, np.float32))) == len(names)


def test_an_operator_that_does_not_exist_is_refused_when_it_is_made(torch_backend):
    with pytest.raises(UnsupportedError, match="StringConcat on torch"):
        torch_backend.operator(OperatorNode("StringConcat", ("x", "y"), ("z",)))


def test_a_type_without_a_kernel_is_refused_when_it_is_called(call):
    x = np.ones(2, ml_dtypes.float8_e4m3fn)
    with pytest.raises(UnsupportedError, match=r"Sin of float8_e4m3fn on torch.*not implemented"):
        call(operator_node("Sin"), x)


def test_inputs_that_do_not_fit_are_pytorchs_own_error(call):
    with pytest.raises(RuntimeError, match="must match"):
        call(operator_node("Add"), np.ones(2, np.float32), np.ones(3, np.float32))


def test_an_input_that_is_not_contiguous_gives_the_same_result(torch_backend):
    operator = torch_backend.operator(operator_node("Conv", pads=[1, 0, 0, 1]))
    generator = np.random.default_rng(0)
    x, w = (torch_backend.array(generator.standard_normal((3, 3, 3, 3)).astype(np.float32)) for _ in range(2))
    turned = operator.forward(x.transpose(2, 3), w.transpose(0, 1))[0]
    plain = operator.forward(x.transpose(2, 3).contiguous(), w.transpose(0, 1).contiguous())[0]
    np.testing.assert_allclose(torch_backend.host(turned), torch_backend.host(plain), rtol=1e-5, atol=1e-6)


def test_a_forward_of_native_arrays_records_nothing(torch_backend):
    x = torch_backend.array(np.ones(3, np.float32))
    assert torch_backend.operator(operator_node("Exp")).forward(x)[0].grad_fn is None


@pytest.mark.parametrize("shape", [(), (1,), (5,), (1, 5), (3, 1), (3, 5)])
@pytest.mark.parametrize("turned", [0, 1])
def test_a_bias_of_each_shape_is_added_to_a_product(call, shape, turned):
    generator = np.random.default_rng(0)
    a, b, c = (generator.standard_normal(each).astype(np.float32) for each in ((3, 4), (4, 5), shape))
    (found,) = call(operator_node("Gemm", ["a", "b", "c"], transB=turned), a, b.T if turned else b, c)
    np.testing.assert_allclose(found, a @ b + c, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Add", np.add),
        ("Sub", np.subtract),
        ("Mul", np.multiply),
        ("Div", np.floor_divide),
        ("Mod", np.remainder),
        ("Max", np.maximum),
        ("Min", np.minimum),
        ("Less", np.less),
        ("GreaterOrEqual", np.greater_equal),
        ("BitwiseXor", np.bitwise_xor),
    ],
)
def test_wide_unsigned_integers_are_computed_without_a_sign(call, dtype, name, expected):
    largest = np.iinfo(dtype).max
    a = np.array([0, 7, largest, largest, largest // 2 + 1, 5, largest - 1], dtype)
    b = np.array([3, 2, 1, largest, 3, largest, 2], dtype)
    node = operator_node(name, ["a", "b"])
    (found,) = call(node, a, b)
    np.testing.assert_array_equal(found, expected(a, b))
    assert found.dtype == expected(a, b).dtype


@pytest.mark.parametrize("dtype", ["uint8", *WIDE, "int8", "int64"])
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shifts_by_the_width_and_more_leave_what_the_sign_leaves(call, dtype, direction):
    limits = np.iinfo(dtype)
    x = np.array([limits.max, limits.min, 1, 3], dtype)
    for bits in (0, 1, limits.bits - 1, limits.bits):
        (found,) = call(operator_node("BitShift", ["x", "y"], direction=direction), x, np.full(4, bits, dtype))
        exact = [int(each) << bits if direction == "LEFT" else int(each) >> bits for each in x]
        wrapped = [(each - limits.min) % 2**limits.bits + limits.min for each in exact]
        assert found.tolist() == wrapped


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_indices_from_the_end_gather_as_those_from_the_beginning(call, axis):
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    indices = np.array([[-1, 0], [1, -2]])
    (found,) = call(operator_node("Gather", axis=axis), x, indices)
    np.testing.assert_array_equal(found, np.take(x, indices, axis))


def test_slices_go_backwards_and_beyond_the_ends_as_numpys(call):
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    names = ["x", "starts", "ends", "axes", "steps"]
    cases = [((-1,), (-(2**63),), (1,), (-2,)), ((100, 1), (-100, 3), (0, 1), (-1, 1)), ((3,), (1,), (0,), (1,))]
    for starts, ends, axes, steps in cases:
        parameters = [np.array(each, np.int64) for each in (starts, ends, axes, steps)]
        (found,) = call(operator_node("Slice", names), x, *parameters, structural=(1, 2, 3, 4))
        bounds = [slice(None)] * 2
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            bounds[axis] = slice(start, None if step < 0 and end < -50 else end, step)
        np.testing.assert_array_equal(found, x[tuple(bounds)])


def test_of_equal_values_the_k_largest_are_those_with_lower_indices(call):
    x = np.zeros((1, 50), np.float32)
    _, indices = call(operator_node("TopK", ["x", "k"], ["v", "i"]), x, np.array([5]), structural=(1,))
    np.testing.assert_array_equal(indices, [[0, 1, 2, 3, 4]])


def test_a_seed_of_the_node_makes_the_same_draws_each_time_it_is_made(torch_backend):
    node = operator_node("RandomNormal", [], ["y"], shape=[4], seed=0.5)
    draws = [torch_backend.host(torch_backend.operator(node).forward()[0]) for _ in range(2)]
    np.testing.assert_array_equal(*draws)
    other = operator_node("RandomNormal", [], ["y"], shape=[4], seed=0.75)
    assert (torch_backend.host(torch_backend.operator(other).forward()[0]) != draws[0]).any()


def test_dropout_in_training_keeps_and_scales_what_its_mask_says(call, torch_backend):
    torch_backend.seed(0)
    node = operator_node("Dropout", ["x", "ratio", "training"], ["y", "mask"])
    x = np.ones(1000, np.float32)
    y, mask = call(node, x, np.array(0.25, np.float32), np.array(True), structural=(1, 2))
    np.testing.assert_allclose(y, mask / np.float32(0.75), rtol=1e-6)
    assert 650 < mask.sum() < 850


@pytest.mark.parametrize("nodes", [("ReduceMax", -np.inf), ("ReduceMin", np.inf), ("ReduceSum", 0), ("ReduceProd", 1)])
def test_a_reduction_of_nothing_is_its_neutral_element(call, nodes):
    name, neutral = nodes
    node = operator_node(name, ["x", "axes"], opset=21, keepdims=0)
    (found,) = call(node, np.zeros((2, 0), np.float32), np.array([1]), structural=(1,))
    np.testing.assert_array_equal(found, [neutral, neutral])


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this PyTorch has no oneDNN")
def test_the_implementation_that_onednn_chooses_is_told_and_nothing_is_printed(torch_backend, capfd):
    operator = torch_backend.operator(operator_node("Conv"))
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(shape).astype(np.float32) for shape in ((2, 16, 14, 14), (16, 16, 3, 3)))
    algorithms = []
    for place in (torch_backend.array, lambda each: torch_backend.channels_last(torch_backend.array(each))):
        images, kernels = place(x), place(w)
        found, reason = torch_backend.algorithm(operator, lambda i=images, k=kernels: operator.forward(i, k))
        assert reason == ""
        algorithms.append(found)
    assert all("convolution " in each for each in algorithms)
    assert "from acdb" in algorithms[1]
    operator.forward(torch_backend.array(x), torch_backend.array(w))
    assert capfd.readouterr().out == ""


def test_a_call_of_pytorchs_own_kernels_has_no_algorithm(torch_backend):
    operator = torch_backend.operator(operator_node("Relu"))
    found, reason = torch_backend.algorithm(operator, lambda: operator.forward(torch.ones(4)))
    assert (found, "used neither oneDNN nor MKL" in reason) == (None, True)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            "onednn_verbose,v1,primitive,exec,cpu,convolution,brgconv:avx512_core,forward_training,"
            "src:f32::blocked:acdb::f0 wei:f32:ap:blocked:Acdb24a::f0,attr-scratchpad:user,alg:x,mb8,91.8",
            "convolution brgconv:avx512_core from acdb",
        ),
        (
            "onednn_verbose,exec,cpu,convolution,jit:avx2,backward_data,src_f32::blocked:aBcd8b:f0,,alg:x,mb8,1.5",
            "convolution jit:avx2 backward_data",
        ),
        ("onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,src:f32::blocked:ab::f0,,,8x64,1", "reorder"),
        ("onednn_verbose,v1,info,cpu,isa:Intel AVX2", ""),
        ("onednn_verbose,v1,primitive,exec", ""),
        ("MKL_VERBOSE SGEMM(N,N,64,64,64,0x7f,0x56,64) 79.98ms CNR:OFF", "SGEMM of MKL"),
        ("MKL_VERBOSE oneMKL 2024.0 Update 2 Product", ""),
        ("something that an operator prints", ""),
    ],
)
def test_lines_of_onednn_and_mkl_name_what_computes(line, says):
    assert _named(line) == says


def test_a_real_signal_may_lack_its_last_axis(call):
    signal, window = np.sin(np.arange(32, dtype=np.float32))[None], np.hanning(8).astype(np.float32)
    node = operator_node("STFT", ["signal", "step", "window"], onesided=1, opset=17)
    short, long = (call(node, each, np.array(4), window, structural=(1,))[0] for each in (signal, signal[..., None]))
    assert np.array_equal(short, long)
