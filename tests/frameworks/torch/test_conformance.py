"""A selection of ONNX's node tests on PyTorch, in this process: none is wrong, and the listed ones pass."""

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from levelbench.operators.conformance import collect_cases, try_case

pytestmark = pytest.mark.usefixtures("warm_node_cases")

PASSING = [
    "Attention", "AveragePool", "BatchNormalization", "BitShift", "Col2Im", "Conv", "ConvTranspose", "CumSum",
    "DeformConv", "DepthToSpace", "Einsum", "GRU", "GatherND", "Gemm", "GridSample", "LSTM",
    "LayerNormalization", "LinearAttention", "LpPool", "MaxPool", "MaxUnpool", "Mod", "NonMaxSuppression",
    "OneHot", "Pad", "Pow", "QLinearConv", "QLinearMatMul", "RNN", "ReduceMax", "Resize", "RoiAlign",
    "RotaryEmbedding", "STFT", "ScatterElements", "ScatterND", "Slice", "SoftmaxCrossEntropyLoss", "Split",
    "TensorScatter", "TfIdfVectorizer", "TopK", "Trilu", "Unique", "ai.onnx.preview.training::Adam",
    "ai.onnx.preview.training::Momentum",
]  # fmt: skip


@pytest.mark.parametrize("operator", PASSING)
def test_each_node_test_of_the_operator_passes(torch_backend, operator):
    cases = [case for case in collect_cases([operator]) if not case.name.endswith("_expanded")]
    failed = {case.name: result for case in cases if (result := try_case(case, torch_backend)).status != "passed"}
    assert not failed


PARTLY = ["Cast", "CastLike", "QuantizeLinear", "DequantizeLinear", "DFT", "StringConcat", "ImageDecoder"]


# NumPy warns when the check converts a float8 NaN.
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
@pytest.mark.parametrize("operator", PARTLY)
def test_what_does_not_pass_is_refused_and_not_wrong(torch_backend, operator):
    results = [try_case(case, torch_backend) for case in collect_cases([operator])]
    assert not [each for each in results if each.status == "wrong"]
    assert all(each.detail for each in results if each.status == "unsupported")
