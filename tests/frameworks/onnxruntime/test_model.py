import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

from levelbench.operators.conformance import collect_cases, try_case

onnxruntime = pytest.importorskip("onnxruntime")
backends = pytest.importorskip("levelbench.frameworks.onnxruntime.backend")

pytestmark = pytest.mark.usefixtures("warm_node_cases")

HEADER = '<ir_version: 10, opset_import: ["" : 21]>'


def program_of(backend, text):
    return backend.model(parser.parse_model(f"{HEADER}\n{text}"))


def test_a_model_is_a_function_of_its_inputs(backend):
    program = program_of(backend, "g (float[N] x, float[N] y) => (float[N] z, float[N] w) {z = Sub(x, y)\n w = Neg(z)}")
    z, w = program([backend.array(np.array(each, np.float32)) for each in ([3, 5], [1, 1])])
    np.testing.assert_array_equal(backend.host(z), [2, 4])
    np.testing.assert_array_equal(backend.host(w), [-2, -4])


def test_initialisers_are_no_inputs(backend):
    program = program_of(backend, "g (float[2] x, float[2] b) => (float[2] y) <float[2] b = {1, 2}> {y = Add(x, b)}")
    (y,) = program([backend.array(np.zeros(2, np.float32))])
    np.testing.assert_array_equal(backend.host(y), [1, 2])


def test_a_sequence_goes_in_and_comes_out_as_a_list(backend):
    program = program_of(backend, "g (seq(float[N]) s, float[N] x) => (seq(float[N]) t) {t = SequenceInsert(s, x)}")
    x = backend.array(np.array([7], np.float32))
    for length in (0, 1, 3):
        (found,) = program([[backend.array(np.array([each], np.float32)) for each in range(length)], x])
        assert [backend.host(each).tolist() for each in found] == [*([each] for each in range(length)), [7]]


def optional_model(op_type, result):
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    graph = helper.make_graph(
        [helper.make_node(op_type, ["o"], ["y"])],
        "g",
        [helper.make_value_info("o", helper.make_optional_type_proto(tensor))],
        [result],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_an_empty_optional_goes_in_as_none(backend):
    program = backend.model(
        optional_model("OptionalHasElement", helper.make_tensor_value_info("y", TensorProto.BOOL, []))
    )
    assert not backend.host(program([None])[0])
    assert backend.host(program([backend.array(np.ones(2, np.float32))])[0])


def test_a_tensor_goes_in_as_a_full_optional(backend):
    program = backend.model(
        optional_model("OptionalGetElement", helper.make_tensor_value_info("y", TensorProto.FLOAT, [2]))
    )
    np.testing.assert_array_equal(backend.host(program([backend.array(np.ones(2, np.float32))])[0]), [1, 1])


def test_a_model_with_random_numbers_is_seeded_although_it_was_made_before(backend):
    program = program_of(backend, "g (float[N] x) => (float[N] y) {y = RandomNormalLike(x)}")
    x = backend.array(np.zeros(40, np.float32))
    draws = []
    for seed in (3, 3, 4):
        backend.seed(seed)
        draws.append(backend.host(program([x])[0]))
    np.testing.assert_array_equal(draws[0], draws[1])
    assert (draws[0] != draws[2]).any()


ORDINARY = ["AveragePool", "BatchNormalization", "Gemm", "LSTM", "MaxPool", "Softmax"]
UNUSUAL = ["Dropout", "Identity", "If", "Loop", "Scan", "SequenceInsert", "StringConcat"]


@pytest.mark.parametrize("operator", ORDINARY + UNUSUAL)
def test_node_tests_are_passed_or_refused_with_a_reason(backend, operator):
    found = [try_case(case, backend) for case in collect_cases([operator])]
    assert found
    assert {each.status for each in found} <= {"passed", "unsupported"}
    assert all(each.detail for each in found if each.status == "unsupported")
    assert any(each.status == "passed" for each in found)


def test_known_faults_are_those_of_existing_node_tests():
    names = {case.name for case in collect_cases()}
    assert backends.faults("1.31.1").keys() <= names or not onnx.__version__.startswith("1.23.")


def test_known_faults_are_faults_still_and_a_newer_version_may_have_repaired_them(backend):
    found = {case.name: try_case(case, backend) for case in collect_cases() if case.name in backend.known_faults}
    allowed = {"upstream"} if onnxruntime.__version__ in backends.SEEN else {"upstream", "passed"}
    assert {each.status for each in found.values()} <= allowed
