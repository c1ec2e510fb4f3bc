"""ONNX Runtime's executor: results, operator times, and refusals."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser
from tests.frameworks.onnxruntime.networks import MODES, build, close, data, wanted

from levelbench.errors import UnknownNameError, UnsupportedError, UsageError
from levelbench.frameworks.numpy import framework as numpy_framework
from levelbench.frameworks.onnxruntime import framework
from levelbench.networks import Draw, GraphBuilder, Network

pytest.importorskip("onnxruntime")


@MODES
@pytest.mark.parametrize("batch", [1, 4])
def test_outputs_are_those_of_the_reference(backend, mode, batch):
    network = build()
    found = backend.executor(network, mode=mode).infer(backend.array(data(network, batch)))
    close(backend.host(found[0]), wanted(network, batch=batch))


@MODES
def test_a_network_with_a_loss_is_inferred_without_its_labels(backend, mode):
    network = build()
    executor = backend.executor(network.with_loss().training(), mode=mode)
    (found,) = executor.infer(backend.array(data(network)))
    close(backend.host(found), wanted(network))


@MODES
def test_intermediate_values_can_be_requested(backend, mode):
    network = build()
    names = [each.outputs[0] for each in network.nodes if each.op_type in ("Conv", "Gemm")]
    found = backend.executor(network.with_outputs(names), mode=mode).infer(backend.array(data(network)))
    reference = numpy_framework.open("cpu").executor(network.with_outputs(names)).infer(data(network))
    for ours, theirs in zip(found, reference, strict=True):
        close(backend.host(ours), theirs)


@MODES
def test_a_parameter_that_is_replaced_takes_effect_at_the_next_call(backend, mode):
    network = build()
    executor, x = backend.executor(network, mode=mode), backend.array(data(network))
    executor.infer(x)
    values = network.initialise() | {"w1": np.full((300, 3), 0.25, np.float32), "mean": np.ones(4, np.float32)}
    executor.parameters["w1"] = values["w1"]
    executor.buffers["mean"] = backend.array(values["mean"])
    close(backend.host(executor.infer(x)[0]), wanted(network, values))
    assert np.array_equal(backend.host(executor.parameters["w1"]), values["w1"])


def test_the_session_is_recreated_only_when_a_parameter_that_it_reads_was_replaced(backend):
    network = build()
    executor, x = backend.executor(network), backend.array(data(network))
    session = executor.session
    executor.infer(x)
    executor.parameters["unread"] = np.zeros(3, np.float32)
    executor.infer(x)
    assert executor.session is session
    executor.parameters["w1"] = np.zeros((300, 3), np.float32)
    assert executor.session is not session


def test_what_the_caller_goes_on_to_change_changes_nothing(backend):
    network = build()
    values = network.initialise()
    executor, x = backend.executor(network, values), backend.array(data(network))
    weight = np.zeros((300, 3), np.float32)
    before = backend.host(executor.infer(x)[0])
    for each in values.values():
        each[...] = 7
    executor.parameters["unread"] = np.ones(3, np.float32)
    assert np.array_equal(backend.host(executor.infer(x)[0]), before)
    executor.parameters["w1"] = weight
    weight[...] = 7
    assert not np.any(backend.host(executor.infer(x)[0]))


def test_outputs_are_not_overwritten_by_the_next_call(backend):
    network = build()
    executor, x = backend.executor(network), backend.array(data(network))
    first = executor.infer(x)[0]
    before = backend.host(first)
    executor.infer(backend.array(-data(network)))
    assert np.array_equal(backend.host(first), before)


def test_parameters_are_constants_to_the_optimiser(backend):
    """Only constants let it fold the normalisation into the convolution."""
    network = build()
    times = backend.executor(network).operator_times(backend.array(data(network)))
    assert not any(each.title == "BatchNormalization" for each in times)


@pytest.mark.parametrize("bits", [16, 8])
def test_parameters_of_small_types_reach_the_session(backend, bits):
    g = GraphBuilder("typed")
    dtype = {16: "bfloat16", 8: "int8"}[bits]
    held = g.parameter("w", [2, 600], Draw("constant", 3.0), dtype=dtype, trainable=False)
    g.output(g.node("Mul", g.node("Cast", held, to=onnx.TensorProto.FLOAT), g.input("x", [1])), "y")
    found = backend.executor(g.build()).infer(backend.array(np.array([2], np.float32)))
    assert np.array_equal(backend.host(found[0]), np.full((2, 600), 6, np.float32))


def test_large_constants_and_empty_ones_are_handed_over(backend):
    g = GraphBuilder("constants")
    table = g.constant(np.arange(1000, dtype=np.float32))
    empty = g.constant(np.empty((0,), np.float32))
    g.output(g.node("Concat", g.node("Add", g.input("x", [1000]), table), empty, axis=0), "y")
    found = backend.executor(g.build()).infer(backend.array(np.ones(1000, np.float32)))
    assert np.array_equal(backend.host(found[0]), np.arange(1, 1001))


def test_an_input_that_has_an_initialiser_is_a_constant(backend):
    node = helper.make_node("Mul", ["x", "w"], ["y"])
    value = numpy_helper.from_array(np.array([3], np.float32), "w")
    infos = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xwy"]
    graph = helper.make_graph([node], "old", infos[:2], infos[2:], [value])
    network = Network(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=3))
    executor = backend.executor(network)
    assert backend.host(executor.infer(backend.array(np.array([2], np.float32)))[0]).tolist() == [6]
    assert [each.name for each in executor.session.get_inputs()] == ["x"]


def test_sequences_are_lists(backend):
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]> g (seq(float[N]) s, float[N] x) =>
        (seq(float[N]) t, float[N] y) { t = SequenceInsert(s, x) y = Relu(x) }""")
    executor = backend.executor(Network(model))
    x = backend.array(np.array([-1, 2], np.float32))
    joined, y = executor.infer([x], x)
    assert [backend.host(each).tolist() for each in joined] == [[-1, 2], [-1, 2]]
    assert backend.host(y).tolist() == [0, 2]


def test_control_flow_and_functions_of_the_model_run(backend):
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
        g (float[N] x, bool c) => (float[N] y) { y = If (c) <then_branch = t () => (float[N] a) { a = local.twice(x) },
        else_branch = e () => (float[N] b) { b = Neg(x) }> }
        <domain: "local", opset_import: ["" : 21]> twice (v) => (r) { r = Add(v, v) }""")
    executor, x = backend.executor(Network(model)), backend.array(np.array([1, 2], np.float32))
    found = [backend.host(executor.infer(x, backend.array(np.array(each)))[0]).tolist() for each in (True, False)]
    assert found == [[2, 4], [-1, -2]]


def test_random_draws_follow_the_seed(backend):
    g = GraphBuilder("noise")
    g.output(g.node("Add", g.node("RandomNormalLike", g.input("x", [8])), g.constant(1.0)), "y")
    executor, x = backend.executor(g.build()), backend.array(np.zeros(8, np.float32))
    draws = []
    for seed in (5, 5, 6):
        backend.seed(seed)
        draws.append(backend.host(executor.infer(x)[0]).tolist())
    assert draws[0] == draws[1] != draws[2]


def test_rows_are_taken_and_scalars_averaged(backend):
    table = backend.array(np.arange(6, dtype=np.float32).reshape(3, 2))
    rows = backend.take(table, backend.array(np.array([2, 0])))
    assert backend.host(rows).tolist() == [[4, 5], [0, 1]]
    scalars = [backend.array(np.array(each, np.float32)) for each in (1e8, 1, 1)]
    assert backend.mean(scalars) == (1e8 + 2) / 3


def test_sessions_of_networks_have_the_threads_of_those_of_operators(backend, monkeypatch):
    from levelbench.frameworks.onnxruntime import sessions

    asked = []
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    network = build()
    executor = backend.executor(network)
    executor.session_with(lambda options: asked.append(options.intra_op_num_threads))
    assert asked == [sessions.threads()] == [1]


def test_without_optimisation_each_node_has_its_own_time(backend):
    network = build()
    times = backend.executor(network, mode="unoptimised").operator_times(backend.array(data(network)), repeats=3)
    found = {each.index: each for each in times}
    assert len(found) == len(times)
    timed = {"Conv", "BatchNormalization", "Relu", "GlobalAveragePool", "Reshape", "Gemm", "Dropout"}
    for index, node in enumerate(network.nodes):
        if node.op_type in timed:
            assert (found[index].title, found[index].output) == (node.op_type, node.outputs[0])
    assert all(len(each.times_s) == 3 and 0 <= min(each.times_s) < 1 for each in times)


def test_what_was_fused_says_of_what(backend):
    network = build()
    times = backend.executor(network).operator_times(backend.array(data(network)))
    titles = {each.title: each.index for each in times}
    assert any(each.endswith("= Conv + BatchNormalization + Relu") for each in titles)
    assert titles["FusedGemm = Gemm + Relu"] == -1
    gemm = next(each for each in times if each.title == "Gemm")
    assert network.nodes[gemm.index].outputs == ("logits",)
    assert all((each.index == -1) == (network.nodes[each.index].op_type != each.title) for each in times)


def test_the_times_of_a_branch_are_those_of_the_node_that_has_it(backend):
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]> g (float[N] x, bool c) => (float[N] y)
        { z = Neg(x) y = If (c) <then_branch = t () => (float[N] a) { a = Exp(z) },
        else_branch = e () => (float[N] b) { b = Abs(z) }> }""")
    executor = backend.executor(Network(model), mode="unoptimised")
    given = backend.array(np.ones(5, np.float32)), backend.array(np.array(True))
    assert [(each.index, each.title) for each in executor.operator_times(*given)] == [(0, "Neg"), (1, "If")]


def test_timing_leaves_no_file_and_prints_nothing(backend, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    network = build()
    backend.executor(network).operator_times(backend.array(data(network)))
    assert not list(tmp_path.iterdir())
    assert capfd.readouterr() == ("", "")


def test_training_is_refused(backend):
    network = build().with_loss()
    executor = backend.executor(network)
    given = [backend.array(each) for each in network.make_inputs(2).values()]
    for call in (lambda: executor.forward(*given), executor.backward, lambda: executor.infer_and_backprop(*given)):
        with pytest.raises(UnsupportedError, match="supports inference only"):
            call()
    assert framework.trains is False


def test_an_operator_that_is_not_supported_is_refused_and_nothing_is_printed(backend, capfd):
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21, "elsewhere" : 1]>
        g (float[N] x) => (float[N] y) { y = elsewhere.Frobnicate(x) }""")
    with pytest.raises(UnsupportedError, match="Frobnicate"):
        backend.executor(Network(model))
    assert capfd.readouterr() == ("", "")


LEFT_OUT = {
    "Split": "{ y, z = Split<num_outputs = 2>(x) }",
    "TopK": "{ y, z = TopK(x, one) }",
    "DynamicQuantizeLinear": "{ q, z, z = DynamicQuantizeLinear(x)  y = Cast<to = 1>(q) }",
    "first of Split": "{ z, y = Split<num_outputs = 2>(x) }",
    "optional outputs of Unique": "{ y, z, z, z = Unique(x) }",
    "in a branch": """{ c = Equal(one, one)  d = Squeeze(c)
        y = If (d) <then_branch = yes () => (float[M] a) { a, z = Split<num_outputs = 2>(x) },
                    else_branch = no () => (float[M] b) { b, z = Split<num_outputs = 2>(x) }> }""",
    "in a function": """{ y = local.half(x) }
        <domain: "local", opset_import: ["" : 21]> half (v) => (a) { a, z = Split<num_outputs = 2>(v) }""",
    "a name that is taken": "{ u, z = Split<num_outputs = 2>(x)  y = Neg(u) }",
}


def without_name(model, old="z"):
    """Removes the names of outputs called ``old``, in subgraphs and functions too."""
    waiting = [*model.graph.node, *(node for each in model.functions for node in each.node)]
    while waiting:
        node = waiting.pop()
        names = ["" if name == old else "levelbench.unread.0" if name == "u" else name for name in node.output]
        node.output[:] = names
        node.input[:] = ["levelbench.unread.0" if name == "u" else name for name in node.input]
        waiting += [inner for each in node.attribute for inner in each.g.node]
    return model


@MODES
@pytest.mark.parametrize("what", LEFT_OUT)
def test_an_output_that_nothing_reads_may_have_no_name(backend, mode, what):
    text = f"""<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
        g (float[4] x) => (float[M] y) <int64[1] one = {{1}}> {LEFT_OUT[what]}"""
    network = Network(without_name(parser.parse_model(text)))
    before = network.model.SerializeToString(deterministic=True)
    (found,) = backend.executor(network, mode=mode).infer(backend.array(data(network)))
    close(backend.host(found), wanted(network))
    assert network.model.SerializeToString(deterministic=True) == before


def test_a_parameter_of_another_shape_or_type_is_refused(backend):
    parameters = backend.executor(build()).parameters
    with pytest.raises(UsageError, match=r"its shape is \[300, 3\], not \[3\]"):
        parameters["w1"] = np.zeros(3, np.float32)
    with pytest.raises(UsageError, match="its element type is 1, not 11"):
        parameters["w1"] = np.zeros((300, 3))
    with pytest.raises(UnknownNameError, match="close: w1"):
        parameters["w2"] = np.zeros(3, np.float32)
    with pytest.raises(UsageError, match="the network needs it"):
        del parameters["w1"]


def test_an_unknown_mode_lists_the_known_ones(backend):
    with pytest.raises(UnknownNameError, match="optimised, unoptimised"):
        backend.executor(build(), mode="eager")


@MODES
@pytest.mark.parametrize("count", [0, 2])
def test_a_call_with_too_few_or_too_many_inputs_reports_the_expected_ones(backend, mode, count):
    network = build()
    with pytest.raises(UsageError, match=rf"there are 1 \(x\), and {count} were given"):
        backend.executor(network, mode=mode).infer(*[backend.array(data(network))] * count)
