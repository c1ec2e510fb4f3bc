"""ONNX Runtime's own operators compute the same where they are expanded into ONNX's as in ONNX Runtime itself."""

import numpy as np
import onnx
import pytest
from onnx import helper

from levelbench.errors import UnsupportedError
from levelbench.networks.network import Network
from levelbench.networks.probes.running import Runner
from levelbench.operators import contrib
from levelbench.operators.frameworks import load_framework
from levelbench.operators.node import CONTRIB_DOMAIN

random = np.random.default_rng(0)
# Zero points off the middle, and scales whose products are no round numbers, so that no sum is a tie.
BYTES = (np.float32(0.0371), np.uint8(117))
SIGNED = (np.float32(0.0213), np.int8(-3))
TOTAL = (np.float32(0.0933), np.uint8(121))


def floats(*shape):
    return random.standard_normal(shape).astype(np.float32)


def unsigned(*shape):
    return random.integers(0, 256, shape).astype(np.uint8)


def signed(*shape):
    # Of 7 bits: where a processor has no VNNI, ONNX Runtime adds products of unsigned and signed bytes in 16 bits.
    return random.integers(-64, 64, shape).astype(np.int8)


MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
LENGTHS = np.array([3, 5], np.int32)
IDS = random.integers(0, 7, (2, 5)).astype(np.int32)
PLACES = np.array([[0, 1, 2, 3, 4], [2, 3, 4, 5, 6]], np.int64)
SELF = [floats(2, 5, 8), floats(8, 24), floats(24)]
CROSS = [floats(2, 5, 8), floats(2, 6, 8), floats(2, 6, 8)]
CONVOLUTION = [floats(2, 3, 6, 6), floats(4, 3, 3, 3), floats(4)]
ACTIVATIONS = {"Relu": None, "LeakyRelu": [0.2], "Clip": [-0.1, 0.5], "HardSigmoid": [0.2, 0.4], "Tanh": None}

CASES = {
    "transposed": ("FusedMatMul", [floats(2, 4, 3), floats(2, 5, 4)], {"transA": 1, "transB": 1, "alpha": 0.5}),
    "batch transposed": ("FusedMatMul", [floats(4, 2, 3), floats(2, 3, 5)], {"transBatchA": 1}),
    "batch and matrix transposed": (
        "FusedMatMul",
        [floats(3, 2, 4), floats(5, 2, 3)],
        {"transBatchA": 1, "transA": 1, "transBatchB": 1, "transB": 1},
    ),
    "of a vector": ("FusedMatMul", [floats(4), floats(4, 5)], {"transA": 1}),
    "gemm": ("FusedGemm", [floats(3, 4), floats(5, 4), floats(5)], {"transB": 1, "activation": "Relu"}),
    **{
        f"conv, {name}": ("FusedConv", CONVOLUTION, {"activation": name} | ({"activation_params": p} if p else {}))
        for name, p in ACTIVATIONS.items()
    },
    "conv, a sum": ("FusedConv", [*CONVOLUTION, floats(2, 4, 4, 4)], {"activation": "Relu"}),
    "triangle": ("Trilu", [floats(3, 4)], {"upper": 0}),
    "gelu": ("Gelu", [4 * floats(3, 4)], {}),
    "bias, gelu": ("BiasGelu", [4 * floats(3, 4), floats(4)], {}),
    "fast gelu": ("FastGelu", [4 * floats(3, 4), floats(4)], {}),
    "quick gelu": ("QuickGelu", [4 * floats(3, 4)], {"alpha": 1.3}),
    "skip, norm": ("SkipLayerNormalization", [floats(2, 3, 8), floats(3, 8), *(floats(8) for _ in range(3))], {}),
    "skip, rms norm": ("SkipSimplifiedLayerNormalization", [floats(2, 3, 8), floats(2, 3, 8), floats(8)], {}),
    "embedding": (
        "EmbedLayerNormalization",
        [IDS, IDS % 2, floats(7, 8), floats(9, 8), floats(2, 8), floats(8), floats(8), MASK],
        {},
    ),
    "add": ("QLinearAdd", [unsigned(3, 4), *BYTES, unsigned(4), *BYTES, *TOTAL], {}),
    "mul": ("QLinearMul", [signed(3, 4), *SIGNED, signed(3, 4), *SIGNED, np.float32(0.07), np.int8(5)], {}),
    "sigmoid": ("QLinearSigmoid", [unsigned(3, 9), *BYTES, np.float32(1 / 256), np.uint8(0)], {}),
    "leaky relu": ("QLinearLeakyRelu", [unsigned(3, 9), *BYTES, *TOTAL], {"alpha": 0.31}),
    "softmax": (
        "QLinearSoftmax",
        [unsigned(3, 9), *BYTES, np.float32(0.00392157), np.uint8(0)],
        {"axis": -1, "opset": 13},
    ),
    "global pool": ("QLinearGlobalAveragePool", [unsigned(2, 3, 4, 5), *BYTES, *TOTAL], {}),
    "global pool, channels last": (
        "QLinearGlobalAveragePool",
        [unsigned(2, 4, 5, 3), *BYTES, *TOTAL],
        {"channels_last": 1},
    ),
    "concat": ("QLinearConcat", [*TOTAL, unsigned(2, 3), *BYTES, unsigned(2, 2), *TOTAL], {"axis": 1}),
    "gemm of bytes": (
        "QGemm",
        [unsigned(3, 4), *BYTES, signed(5, 4), *SIGNED, np.arange(5, dtype=np.int32), *TOTAL],
        {"transB": 1},
    ),
    "to floats": ("MatMulIntegerToFloat", [unsigned(3, 4), signed(4, 5), BYTES[0], SIGNED[0], BYTES[1]], {}),
    "dynamic": ("DynamicQuantizeMatMul", [floats(3, 4), signed(4, 5), *SIGNED, floats(5)], {}),
    "four bits": (
        "MatMulNBits",
        [floats(2, 3, 40), unsigned(6, 3, 8), floats(6, 3), unsigned(6, 2)],
        {"K": 40, "N": 6, "bits": 4, "block_size": 16},
    ),
    "attention": ("Attention", SELF, {"num_heads": 2}),
    "attention, causal": ("Attention", SELF, {"num_heads": 2, "unidirectional": 1}),
    "attention, a mask": ("Attention", [*SELF, MASK], {"num_heads": 2}),
    "attention, lengths": ("Attention", [*SELF, LENGTHS], {"num_heads": 2}),
    "attention, a past": ("Attention", [*SELF, None, floats(2, 2, 2, 3, 4)], {"num_heads": 2, "unidirectional": 1}),
    "attention of bytes": (
        "QAttention",
        [
            unsigned(2, 5, 8),
            signed(8, 24),
            floats(24),
            np.float32(0.02),
            np.float32(0.01),
            MASK,
            *BYTES[1:],
            np.int8(0),
        ],
        {"num_heads": 2},
    ),
    "heads": ("MultiHeadAttention", [*CROSS, floats(24)], {"num_heads": 2}),
    "heads, split": ("MultiHeadAttention", [CROSS[0], floats(2, 2, 6, 4), floats(2, 2, 6, 4)], {"num_heads": 2}),
    "rotary": ("RotaryEmbedding", [floats(2, 2, 5, 4), PLACES, floats(9, 2), floats(9, 2)], {}),
    "rotary, neighbours": (
        "RotaryEmbedding",
        [floats(2, 5, 8), PLACES, floats(9, 2), floats(9, 2)],
        {"interleaved": 1},
    ),
}
OUTPUTS = {"embedding": 2, "attention, a past": 2}


def network_of(op_type, inputs, attributes, outputs=1):
    """A network of one node, and its inputs by name."""
    names = [f"x{at}" if value is not None else "" for at, value in enumerate(inputs)]
    given = {name: np.asarray(value) for name, value in zip(names, inputs, strict=True) if name}
    made = [f"y{at}" for at in range(outputs)]
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in given.items()
    ]
    node = helper.make_node(op_type, names, made, domain=CONTRIB_DOMAIN, **attributes)
    graph = helper.make_graph([node], "one", infos, [onnx.ValueInfoProto(name=name) for name in made])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(CONTRIB_DOMAIN, 1)]
    return Network.from_proto(helper.make_model(graph, opset_imports=imports, ir_version=10)), given


def opened(name):
    framework = load_framework(name)
    if lacking := framework.lacks():
        pytest.skip(lacking)
    return Runner(name, framework.open())


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("case", CASES)
def test_an_operator_agrees_with_onnxruntime(case, framework):
    op_type, inputs, attributes = CASES[case]
    network, given = network_of(op_type, inputs, attributes, OUTPUTS.get(case, 1))
    expected = opened("onnxruntime").outputs(network, {}, given)
    actual = opened(framework).outputs(network, {}, given)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert actual[name].dtype == value.dtype
        if value.dtype.kind == "f":
            np.testing.assert_allclose(actual[name], value, rtol=1e-4, atol=1e-5)
        else:
            # A sum that is nearly halfway between two steps may be rounded to either.
            assert np.abs(actual[name].astype(int) - value).max() <= 1


def test_a_gradient_passes_through_an_expanded_operator():
    torch = pytest.importorskip("torch")
    from levelbench.operators.program import Program

    network, given = network_of("FastGelu", [floats(3, 4), floats(4)], {})
    x, bias = (torch.tensor(each, requires_grad=True) for each in given.values())
    (y,) = Program(network.model, opened("torch").backend)([x, bias])
    y.sum().backward()
    expected = torch.nn.functional.gelu(x.detach() + bias.detach(), approximate="tanh").sum()
    torch.testing.assert_close(y.sum().detach(), expected)
    assert torch.isfinite(x.grad).all()
    assert x.grad.abs().sum() > 0


def test_a_variant_that_is_not_covered_is_refused():
    network, given = network_of("Attention", SELF, {"num_heads": 2, "do_rotary": 1})
    with pytest.raises(UnsupportedError, match="Attention"):
        opened("numpy").outputs(network, {}, given)


def test_an_operator_without_a_definition_is_refused():
    assert not contrib.defines("BeamSearch")
    network, given = network_of("BeamSearch", [floats(2, 2)], {})
    with pytest.raises(UnsupportedError, match="BeamSearch"):
        opened("numpy").outputs(network, {}, given)


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_nan_and_infinity_are_quantised_as_by_onnxruntime(framework):
    inputs = [np.array([np.nan, np.inf, -np.inf, 1], np.float32), np.float32(0.1), np.int8(7)]
    network, given = network_of("QuantizeLinear", inputs, {})
    network.model.graph.node[0].domain = ""
    expected, actual = (opened(name).outputs(network, {}, given)["y0"] for name in ("onnxruntime", framework))
    assert actual.tolist() == expected.tolist()
