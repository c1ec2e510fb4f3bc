"""Suites of problems: DeepBench's sizes as ONNX nodes, and problems from command line words."""

import numpy as np
import pytest

from levelbench.errors import UnknownNameError, UsageError
from levelbench.operators.benchmark.measuring import input_signatures, output_signatures
from levelbench.operators.suites.deepbench import all_reduce_messages, load_suite, subsets_of, suite_names
from levelbench.operators.suites.single import make_inputs, node_of, parse_problem

COUNTS = {
    ("deepbench-gemm", "training"): 160,
    ("deepbench-gemm", "inference-server"): 75,
    ("deepbench-gemm", "inference-device"): 13,
    ("deepbench-conv", "training"): 94,
    ("deepbench-conv", "inference-server"): 107,
    ("deepbench-conv", "inference-device"): 16,
    ("deepbench-rnn", "training"): 53,
    ("deepbench-rnn", "inference-server"): 69,
    ("deepbench-rnn", "inference-device"): 3,
    ("deepbench-sparse", "inference-server"): 24,
    ("deepbench-sparse", "inference-device"): 8,
}


@pytest.mark.parametrize(("suite", "subset"), COUNTS)
def test_a_suite_has_all_of_deepbenchs_problems(suite, subset):
    assert len(load_suite(suite, subset)) == COUNTS[suite, subset]


@pytest.mark.parametrize(("suite", "subset"), COUNTS)
def test_every_problem_is_a_node_whose_shapes_fit(suite, subset):
    for problem in load_suite(suite, subset):
        (output,) = output_signatures(problem)
        assert output is not None
        assert min(output.shape) >= 1, problem.name


def test_the_subsets_are_those_that_deepbench_has():
    assert subsets_of("deepbench-sparse") == ["inference-server", "inference-device"]
    assert load_suite("deepbench-sparse") == load_suite("deepbench-sparse", "inference-server")


def test_a_transposed_product_has_its_operands_transposed():
    problem = next(each for each in load_suite("deepbench-gemm") if each.name == "1760x7133x1760 NT")
    assert [each.shape for each in problem.tensors] == [(1760, 1760), (7133, 1760)]
    assert output_signatures(problem)[0].shape == (1760, 7133)


def test_a_convolution_has_deepbenchs_filter_stride_and_padding():
    problem = load_suite("deepbench-conv")[0]
    node = node_of(problem)
    assert [each.shape for each in problem.tensors] == [(4, 1, 161, 700), (32, 1, 5, 20)]
    assert (node["strides"], node["pads"]) == ([2, 2], [0, 0, 0, 0])
    assert output_signatures(problem)[0].shape == (4, 32, 79, 341)


@pytest.mark.parametrize(("name", "operator", "rows"), [("vanilla", "RNN", 1), ("lstm", "LSTM", 4), ("gru", "GRU", 3)])
def test_a_recurrent_problem_has_the_gates_of_its_cell(name, operator, rows):
    problem = next(each for each in load_suite("deepbench-rnn") if each.name.startswith(name))
    hidden = node_of(problem)["hidden_size"]
    assert problem.operator == operator
    assert problem.tensors[1].shape == (1, rows * hidden, hidden)


def test_a_sparse_problem_has_its_share_of_zeros_and_a_note_on_its_execution():
    from msgspec.structs import replace

    problem = load_suite("deepbench-sparse")[0]
    small = replace(problem, tensors=tuple(replace(each, shape=(256, 256)) for each in problem.tensors))
    left, _ = make_inputs(small, 0)
    assert abs(np.mean(left != 0) - 0.05) < 0.01
    assert "dense" in problem.note


def test_rows_that_look_like_mistakes_are_kept():
    assert sum(each.name.startswith("7860x") for each in load_suite("deepbench-sparse")) == 8


def test_all_reduce_messages_exist_and_are_not_operators():
    assert [each.elements for each in all_reduce_messages()][:2] == [100_000, 3_097_600]
    assert "deepbench-all-reduce" in suite_names()
    with pytest.raises(UsageError, match="not a single operator"):
        load_suite("deepbench-all-reduce")


@pytest.mark.parametrize(("suite", "subset"), [("deepbench-gem", None), ("deepbench-gemm", "trainin")])
def test_an_unknown_name_is_refused_with_similar_names(suite, subset):
    with pytest.raises(UnknownNameError, match=r"deepbench-gemm|training"):
        load_suite(suite, subset)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_inputs_have_the_requested_dtype_and_are_equal_for_equal_seeds(dtype):
    problem = load_suite("deepbench-gemm", "inference-device", dtype)[3]
    first, again, other = (make_inputs(problem, seed) for seed in (1, 1, 2))
    assert all(str(each.dtype) == dtype for each in first)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])


def test_results_are_of_size_one_for_any_size_of_problem():
    a, b = make_inputs(load_suite("deepbench-gemm", "inference-device")[3], 0)
    assert 0.5 < np.std(a @ b) < 2


def test_a_problem_is_parsed_from_words():
    problem = parse_problem("Conv", ["X=2x3x8x8", "W=4x3x3x3"], [], ["pads=1,1,1,1"])
    assert problem.attributes == {"pads": [1, 1, 1, 1]}
    assert [each.shape for each in input_signatures(problem)] == [(2, 3, 8, 8), (4, 3, 3, 3)]
    assert problem.name == "Conv X=2x3x8x8 W=4x3x3x3 pads=1,1,1,1"


def test_values_have_the_dtype_of_the_schema():
    problem = parse_problem("ReduceSum", ["data=3x4"], ["axes=1"])
    data, axes = make_inputs(problem, 0)
    assert (axes.tolist(), axes.dtype, data.dtype) == ([1], np.int64, np.float32)


def test_a_variadic_input_is_given_several_times():
    problem = parse_problem("Concat", ["inputs=3x4", "inputs=3x5"], [], ["axis=1"])
    assert output_signatures(problem)[0].shape == (3, 9)


def test_indices_stay_within_their_axis():
    _, indices = make_inputs(parse_problem("Gather", ["data=9x4", "indices=1000"], [], ["axis=1"]), 0)
    assert set(indices.tolist()) == {0, 1, 2, 3}


def test_an_optional_input_in_the_middle_may_be_omitted():
    problem = parse_problem("Clip", ["input=4"], ["max=0.5"])
    assert problem.inputs == ("input", "", "max")
    assert make_inputs(problem, 0)[1] is None


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("Conv", ["X=1x1x4x4"]), "its inputs are X, W, B (optional)"),
        (("Conv", ["X=1xax4"]), "is not a shape"),
        (("Conv", ["X"]), "no '='"),
        (("Relu", ["X=4", "X=5"]), "already given"),
        (("Softmax", ["input=4"], [], ["axis=one"]), "is not of type int"),
        (("Relu", ["X=4:bool"]), "it takes"),
        (("ReduceSum", ["data=4"], ["axes=a"]), "are not numbers"),
        (("MaxPool", ["X=1x1x4x4"]), "kernel_shape"),
    ],
)
def test_invalid_words_are_refused_with_the_choices(words, says):
    with pytest.raises(UsageError) as refused:
        parse_problem(*words)
    assert says in str(refused.value)


@pytest.mark.parametrize("words", [("Convv", ["X=4"]), ("Relu", ["Y=4"]), ("Softmax", ["input=4"], [], ["axes=1"])])
def test_a_name_unknown_to_onnx_is_refused(words):
    with pytest.raises(UnknownNameError):
        parse_problem(*words)


def test_a_value_has_the_type_of_the_tensor_it_belongs_to():
    problem = parse_problem("Clip", ["input=4x4"], ["min=0.5", "max=0.9"])
    assert [(each.dtype, each.shape, each.values) for each in problem.tensors[1:]] == [
        ("float32", (), (0.5,)),
        ("float32", (), (0.9,)),
    ]


def test_a_list_of_one_number_is_a_list():
    (axes,) = [each for each in parse_problem("ReduceSum", ["data=4x4"], ["axes=1"]).tensors if each.name == "axes"]
    assert (axes.dtype, axes.shape, axes.values) == ("int64", (1,), (1,))


def test_a_fraction_for_an_integer_input_is_refused():
    with pytest.raises(UsageError, match="not fractions"):
        parse_problem("ReduceSum", ["data=4x4"], ["axes=0.5"])


@pytest.mark.parametrize(
    ("words", "outputs"),
    [
        (("Split", ["input=8x64"], [], ["num_outputs=3"]), 3),
        (("Split", ["input=8x64"], ["split=2,2,4"]), 3),
        (("TopK", ["X=8x64"], ["K=5"]), 2),
        (("Relu", ["X=8"]), 1),
    ],
)
def test_a_problem_has_all_the_outputs_that_the_operator_requires(words, outputs):
    assert len(parse_problem(*words).outputs) == outputs
