"""A network as one straight-line function: shapes on the host, values freed, subgraphs and functions called."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

from levelbench.errors import DefinitionError, UnsupportedError
from levelbench.measure.clocks import FakeClock
from levelbench.networks import Draw, GraphBuilder, Network
from levelbench.networks.codegen import Lowered
from levelbench.operators.frameworks import open_framework

BACKEND = open_framework("numpy")
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def network_of(text):
    return Network(parser.parse_model('<ir_version: 10, opset_import: ["" : 21]>\n' + text))


def run(text, *inputs, outputs=None):
    return Lowered(network_of(text), BACKEND, outputs=outputs).function(*inputs)


FLATTEN = """
g (float[n, m] x) => (float[k] y) {
    shape = Shape(x)
    zero = Constant<value_ints = [0]>()
    size = ReduceProd<keepdims = 1>(shape)
    y = Reshape(x, size)
}
"""


def test_values_that_determine_a_shape_are_computed_in_numpy():
    lowered = Lowered(network_of(FLATTEN), BACKEND)
    assert {step.node.op_type: step.on_host for step in lowered.steps} == {
        "Shape": True,
        "ReduceProd": True,
        "Reshape": False,
    }
    assert lowered.function(X)[0].shape == (12,)


def test_a_shape_without_structural_readers_is_not_computed_on_the_host():
    text = "g (float[n] x) => (int64[1] y) { s = Shape(x)\n one = Constant<value_ints=[1]>()\n y = Add(s, one) }"
    lowered = Lowered(network_of(text), BACKEND)
    assert not any(step.on_host for step in lowered.steps)
    assert lowered.function(X[0])[0].tolist() == [5]


def test_an_output_computed_on_the_host_is_a_native_array():
    torch = pytest.importorskip("torch")
    lowered = Lowered(network_of(FLATTEN), open_framework("torch"), outputs=["y", "size"])
    y, size = lowered.function(torch.tensor(X))
    assert isinstance(size, torch.Tensor)
    assert (y.shape, size.tolist()) == ((12,), [12])


def test_only_what_the_outputs_need_runs_and_must_be_given():
    text = "g (float[n] x, float[n] z) => (float[n] y, float[n] w) { y = Relu(x)\n w = Neg(z) }"
    lowered = Lowered(network_of(text), BACKEND, outputs=["w"])
    assert lowered.inputs == ("z",)
    assert [step.node.op_type for step in lowered.steps] == ["Neg"]


def test_any_value_can_be_an_output_even_an_input():
    text = "g (float[n] x) => (float[n] y) { h = Neg(x)\n y = Relu(h) }"
    y, h, x = run(text, X[0], outputs=["y", "h", "x"])
    assert (y.tolist(), h.tolist(), x.tolist()) == ([0] * 4, (-X[0]).tolist(), X[0].tolist())


def test_an_output_that_no_node_makes_is_refused_by_name():
    with pytest.raises(DefinitionError, match="nowhere"):
        run("g (float[n] x) => (float[n] y) { y = Relu(x) }", X[0], outputs=["nowhere"])


def test_only_named_outputs_of_a_node_are_stored():
    text = "g (float[n,m] x) => (float[a,b] y, int64[a,b] i) { k = Constant<value_ints=[2]>()\n y, i = TopK(x, k) }"
    values, places = run(text, X)
    assert values.tolist() == [[3, 2], [7, 6], [11, 10]]
    assert places.tolist() == [[3, 2]] * 3


def test_a_skipped_output_and_a_skipped_input_are_left_out():
    text = 'g (float[n,m] x) => (int64[a,b] i) { k = Constant<value_ints=[1]>()\n "", i = TopK(x, k) }'
    model = network_of(text.replace('"", i', "unused, i")).copied()
    model.graph.node[1].output[0] = ""
    assert Lowered(Network(model), BACKEND).function(X)[0].tolist() == [[3]] * 3


def test_a_skipped_input_is_left_out():
    clipped = network_of("g (float[n] x) => (float[n] y) { y = Clip(x, x, x) }").copied()
    clipped.graph.node[0].input[:] = ["x", "", "top"]
    clipped.graph.initializer.append(numpy_helper.from_array(np.float32(1.5), "top"))
    assert Lowered(Network(clipped), BACKEND).function(X[0])[0].tolist() == [0, 1, 1.5, 1.5]


def test_a_branch_sees_the_values_around_it():
    text = """
    g (float[n] x, bool c) => (float[n] y) {
        twice = Add(x, x)
        y = If <then_branch = a () => (float[n] p) { p = Neg(twice) },
                else_branch = b () => (float[n] q) { q = Add(twice, x) }> (c)
    }
    """
    assert run(text, X[0], np.array(True))[0].tolist() == (-2 * X[0]).tolist()
    assert run(text, X[0], np.array(False))[0].tolist() == (3 * X[0]).tolist()


def test_a_loop_carries_its_state():
    text = """
    g (float[n] x) => (float[n] y) {
        trips = Constant<value_int = 5>()
        yes = Constant<value = bool {1}>()
        y = Loop <body = step (int64 i, bool go, float[n] s) => (bool more, float[n] t) {
            more = Identity(go)
            t = Add(s, x)
        }> (trips, yes, x)
    }
    """
    assert run(text, X[0])[0].tolist() == (6 * X[0]).tolist()


def test_a_function_of_the_model_is_called():
    text = """
    <ir_version: 10, opset_import: ["" : 21, "mine" : 1]>
    g (float[n] x) => (float[n] y) { y = mine.Twice(x) }
    <opset_import: ["" : 21], domain: "mine">
    Twice (a) => (b) { b = Add(a, a) }
    """
    assert Lowered(Network(parser.parse_model(text)), BACKEND).function(X[0])[0].tolist() == (2 * X[0]).tolist()


def test_overloads_of_a_function_are_distinguished():
    text = """
    <ir_version: 10, opset_import: ["" : 21, "mine" : 1]>
    g (float[n] x) => (float[n] y, float[n] z) { y = mine.F:a(x)
     z = mine.F:b(x) }
    <opset_import: ["" : 21], domain: "mine", overload: "a">
    F (p) => (q) { q = Neg(p) }
    <opset_import: ["" : 21], domain: "mine", overload: "b">
    F (p) => (q) { q = Abs(p) }
    """
    y, z = Lowered(Network(parser.parse_model(text)), BACKEND).function(X[0])
    assert (y.tolist(), z.tolist()) == ((-X[0]).tolist(), X[0].tolist())


def test_a_loop_carried_value_is_not_mistaken_for_a_constant_of_the_same_name():
    text = """
    g (float[4] x) => (float[a, b] y) <int64[1] s = {4}> {
        trips = Constant<value_int = 1>()
        yes = Constant<value = bool {1}>()
        shape = Constant<value_ints = [2, 2]>()
        last, y = Loop <body = step (int64 i, bool go, int64[2] s) => (bool more, int64[2] t, float[c, d] z) {
            more = Identity(go)
            t = Identity(s)
            z = Reshape(x, s)
        }> (trips, yes, shape)
    }
    """
    assert run(text, X[0])[0].shape == (1, 2, 2)


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax", "tensorflow"])
def test_a_sequence_is_split_by_sizes_that_are_constants(framework):
    pytest.importorskip(framework)
    backend = open_framework(framework)
    text = """g (float[n, m] x) => (float[k, m] y) {
        sizes = Constant<value_ints = [1, 2]>()
        one = Constant<value_int = 1>()
        parts = SplitToSequence<axis = 0>(x, sizes)
        y = SequenceAt(parts, one)
    }"""
    (y,) = Lowered(network_of(text), backend).function(backend.array(X))
    assert backend.host(y).tolist() == X[1:].tolist()


def test_a_shape_that_depends_on_values_is_read_once_computed():
    text = "g (float[n] x, int64[k] shape) => (float[a, b] y) { y = Reshape(x, shape) }"
    assert run(text, X[0], np.array([2, 2]))[0].shape == (2, 2)


def test_parameters_are_arguments_in_the_networks_order():
    graph = GraphBuilder("two")
    b = graph.parameter("b", (4,), Draw("constant", 1.0))
    a = graph.parameter("a", (4,), Draw("constant", 2.0))
    x = graph.input("x", ("batch", 4))
    graph.output(graph.node("Mul", graph.node("Add", x, a), b))
    lowered = Lowered(graph.build(), BACKEND)
    assert lowered.arrays == ("b", "a")
    assert lowered.function(X, np.float32(10), np.float32(1))[0].tolist() == (10 * (X + 1)).tolist()


def test_a_value_is_freed_after_its_last_use():
    alive = []

    class Counted:
        def __init__(self):
            alive.append(self)

        def __del__(self):
            alive_now[0] -= 1

    alive_now = [0]
    most = [0]

    def chooser(node):
        def call(_):
            alive_now[0] += 1
            most[0] = max(most[0], alive_now[0])
            made = Counted()
            alive.clear()
            return made

        return call

    lines = "\n".join(f"v{at + 1} = Relu(v{at})" for at in range(20))
    lowered = Lowered(network_of(f"g (float[n] v0) => (float[n] v20) {{ {lines} }}"), BACKEND, call=chooser)
    lowered.function(X[0])
    assert most[0] == 2


def test_names_of_a_model_are_never_executed():
    text = "g (float[n] x) => (float[n] y) { y = Relu(x) }"
    model = network_of(text).copied()
    wicked = "); import os; os._exit(3); ("
    model.graph.node[0].input[0] = model.graph.input[0].name = wicked
    assert Lowered(Network(model), BACKEND).function(X[0])[0].tolist() == X[0].tolist()


def test_each_step_is_timed_and_finished_before_the_next():
    text = "g (float[n] x) => (float[n] y) { h = Neg(x)\n y = Relu(h) }"
    clock, finished = FakeClock(), []

    def finish(arrays):
        finished.append([each.tolist() for each in arrays])
        clock.advance(1000 * len(finished))

    times = Lowered(network_of(text), BACKEND).run_timed([X[0]], [], clock, finish)
    assert [index for index, _ in times] == [0, 1]
    assert [ns for _, ns in times] == [1000, 2000]
    assert finished == [[(-X[0]).tolist()], [[0.0] * 4]]


def test_an_operator_that_the_framework_lacks_is_refused_by_name():
    model = network_of("g (float[n] x) => (float[n] y) { y = Relu(x) }").copied()
    model.graph.node[0].op_type = "Relv"
    with pytest.raises(UnsupportedError, match="Relv"):
        Lowered(Network(model), BACKEND)


def test_an_operator_without_a_kernel_runs_by_its_onnx_definition():
    class Poorer(type(BACKEND)):
        def operator(self, node):
            if node.op_type == "Gelu":
                raise UnsupportedError("Gelu here", "there is none", "none")
            return super().operator(node)

    network = network_of("g (float[n] x) => (float[n] y) { y = Gelu(x) }")
    expected = Lowered(network, BACKEND).function(X[0])[0]
    np.testing.assert_allclose(Lowered(network, Poorer()).function(X[0])[0], expected, rtol=1e-6)


@pytest.mark.slow
def test_a_deep_network_needs_no_deep_stack():
    nodes = [helper.make_node("Neg", [f"v{at}"], [f"v{at + 1}"]) for at in range(5000)]
    info = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n"]) for name in ("v0", "v5000")]
    model = helper.make_model(helper.make_graph(nodes, "deep", info[:1], info[1:]), ir_version=10)
    model.opset_import[0].version = 21
    assert Lowered(Network(model), BACKEND).function(X[0])[0].tolist() == X[0].tolist()
