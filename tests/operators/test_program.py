"""A whole model with a backend's operators."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

from levelbench.errors import UnsupportedError
from levelbench.operators.program import Program


def program(text, backend):
    return Program(parser.parse_model(text), backend)


HEAD = '<ir_version: 10, opset_import: ["" : 21]>'


def test_nodes_run_in_order_and_constants_are_filled_in(backend):
    run = program(
        HEAD + "g (float[n] x) => (float[n] y) <float[1] one = {1.0}> { a = Add(x, one) y = Mul(a, a) }", backend
    )
    assert run([np.array([1.0, 2.0], np.float32)])[0].tolist() == [4.0, 9.0]


def test_a_program_accepts_several_shapes(backend):
    run = program(HEAD + "g (float[n] x) => (float[n] y) { y = Relu(x) }", backend)
    assert [run([np.ones(n, np.float32)])[0].shape for n in (1, 5, 0)] == [(1,), (5,), (0,)]


def test_an_input_of_a_graph_may_be_its_output(backend):
    run = program(HEAD + "g (float[n] x) => (float[n] x, float[n] y) { y = Relu(x) }", backend)
    assert len(run([np.ones(2, np.float32)])) == 2


class Device:
    """An array that is not a NumPy array."""

    def __init__(self, value):
        self.value = value


@pytest.fixture
def foreign(refusing):
    class Foreign(refusing):
        def array(self, host):
            return Device(host)

        def host(self, array):
            self.read = [*getattr(self, "read", []), array.value]
            return array.value

        def operator(self, node):
            inner = super().operator(node)
            seen = self.seen = getattr(self, "seen", [])

            class Wrapped:
                def forward(self, *inputs):
                    seen.append([type(each) for each in inputs])
                    plain = [each.value if isinstance(each, Device) else each for each in inputs]
                    return tuple(Device(each) for each in inner.forward(*plain))

            return Wrapped()

    return Foreign()


def test_a_structural_constant_reaches_the_operator_as_a_numpy_array_and_nothing_is_read_from_the_device(foreign):
    text = HEAD + "g (float[n] x) => (float[a,b] y) <int64[2] shape = {2, -1}> { y = Reshape(x, shape) }"
    (y,) = program(text, foreign)([Device(np.arange(6, dtype=np.float32))])
    assert y.value.shape == (2, 3)
    assert foreign.seen == [[Device, np.ndarray]]
    assert not hasattr(foreign, "read")


def test_a_computed_structural_value_is_copied_to_the_host(foreign):
    text = HEAD + "g (float[n] x, float[a,b] like) => (float[a,b] y) { shape = Shape(like) y = Reshape(x, shape) }"
    (y,) = program(text, foreign)([Device(np.arange(6, dtype=np.float32)), Device(np.zeros((3, 2), np.float32))])
    assert y.value.shape == (3, 2)
    assert [each.tolist() for each in foreign.read] == [[3, 2]]


def test_an_operator_that_the_backend_refuses_is_expanded_into_onnxs_definition(refusing):
    backend = refusing(refused=["Gelu"])
    run = program(HEAD + "g (float[n] x) => (float[n] y) { y = Gelu(x) }", backend)
    assert run([np.array([0.0, 1.0], np.float32)])[0] == pytest.approx([0.0, 0.8413447])
    assert "Erf" in backend.made


def test_the_definition_takes_the_nodes_attributes(refusing):
    run = program(
        HEAD + "g (float[n] x) => (float[n] y) { y = HardSwish(x) }",
        refusing(refused=["HardSwish"]),
    )
    assert run([np.array([-4.0, 1.0, 4.0], np.float32)])[0] == pytest.approx([0.0, 2 / 3, 4.0])
    run = program(
        HEAD.replace("21", "22") + "g (float[n] x) => (float[n] y) { y = ThresholdedRelu<alpha=2.0>(x) }",
        refusing(refused=["ThresholdedRelu"]),
    )
    assert run([np.array([1.5, 2.5], np.float32)])[0].tolist() == [0.0, 2.5]


def test_an_operator_without_a_definition_is_refused(refusing):
    with pytest.raises(UnsupportedError, match="refused in this test"):
        program(HEAD + "g (float[n] x) => (float[n] y) { y = Sin(x) }", refusing(refused=["Sin"]))


def test_a_function_of_the_model_is_called(backend):
    text = (
        '<ir_version: 10, opset_import: ["" : 21, "mine" : 1]> g (float[n] x) => (float[n] y) { y = mine.twice(x) } '
        '<domain: "mine", opset_import: ["" : 21]> twice (a) => (b) { b = Add(a, a) }'
    )
    assert program(text, backend)([np.array([3.0], np.float32)])[0].tolist() == [6.0]


def test_an_operator_that_changed_since_an_older_opset_is_refused_with_the_range(backend):
    text = '<ir_version: 7, opset_import: ["" : 11]> g (float[n] x) => (float[n] y) { y = Softmax(x) }'
    with pytest.raises(UnsupportedError, match="opsets 13 to 28"):
        program(text, backend)


def test_an_unimported_domain_is_refused(backend):
    model = parser.parse_model(HEAD + "g (float[n] x) => (float[n] y) { y = Relu(x) }")
    model.graph.node[0].domain = "elsewhere"
    with pytest.raises(UnsupportedError, match="elsewhere"):
        Program(model, backend)


def test_an_if_takes_one_branch_and_sees_the_values_around_it(backend):
    text = (
        HEAD + "g (bool c, float[n] x) => (float[n] y) { h = Add(x, x) y = If (c) <"
        "then_branch = t () => (float[n] a) { a = Neg(h) }, else_branch = e () => (float[n] b) { b = Identity(x) }> }"
    )
    run = program(text, backend)
    x = np.array([1.0], np.float32)
    assert run([np.array(True), x])[0].tolist() == [-2.0]
    assert run([np.array(False), x])[0].tolist() == [1.0]


LOOP = (
    HEAD + "g (int64 m, float[1] x) => (float[1] last, float[k,1] all) { last, all = Loop (m, , x) <"
    "body = b (int64 i, bool c, float[1] s) => (bool go, float[1] t, float[1] o) "
    "{ t = Add(s, s) o = Identity(t) go = Identity(c) }> }"
)


def test_a_loop_carries_its_state_and_collects_its_scans(backend):
    last, every = program(LOOP, backend)([np.array(3), np.array([1.0], np.float32)])
    assert last.tolist() == [8.0]
    assert every.tolist() == [[2.0], [4.0], [8.0]]


def test_a_loop_without_a_trip_returns_its_state_and_an_empty_scan(backend):
    last, every = program(LOOP, backend)([np.array(0), np.array([1.0], np.float32)])
    assert last.tolist() == [1.0]
    assert every.shape == (0, 1)


def test_a_value_is_dropped_after_its_last_use(backend):
    held = []
    text = HEAD + "g (float[n] x) => (float[n] y) { a = Neg(x) b = Abs(a) y = Sqrt(b) }"
    run = program(text, backend)
    values = {"x": np.ones(1, np.float32)}
    for step, forget in zip(run._graph._steps, run._graph._forget, strict=True):
        step(values)
        for name in forget:
            values.pop(name)
        held.append(sorted(values))
    assert held == [["a", "x"], ["b", "x"], ["x", "y"]]


def test_sequences_are_lists(backend):
    text = (
        HEAD + "g (float[n] x, float[n] z) => (float[k] y, int64 n) "
        "{ s = SequenceConstruct(x, z) t = SequenceInsert(s, x) n = SequenceLength(t) "
        "y = ConcatFromSequence<axis=0>(t) }"
    )
    y, n = program(text, backend)([np.array([1.0], np.float32), np.array([2.0], np.float32)])
    assert (y.tolist(), int(n)) == ([1.0, 2.0, 1.0], 3)


def test_an_initialiser_that_is_also_an_input_need_not_be_given(backend):
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "w")],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
        [onnx.numpy_helper.from_array(np.array([5.0], np.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    assert Program(model, backend)([np.array([1.0], np.float32)])[0].tolist() == [6.0]


def test_a_definition_without_unrequested_outputs_still_runs(refusing):
    text = (
        HEAD.replace("21", "23") + "g (float[1,2,3,4] q, float[1,2,3,4] k, float[1,2,3,4] v) => (float[1,2,3,4] y) "
        "{ y = Attention(q, k, v) }"
    )
    x = np.random.default_rng(0).standard_normal((1, 2, 3, 4)).astype(np.float32)
    expected = program(text, refusing())([x, x, x])[0]
    assert program(text, refusing(refused=["Attention"]))([x, x, x])[0] == pytest.approx(expected, rel=1e-5)
