"""JAX's executor computes the same as the reference, compiled or not, in the types of the network."""

import numpy as np
import pytest
from tests.frameworks.jax.networks import HE, MODES, build, close, given, tiny

from levelbench.networks import GraphBuilder

jax = pytest.importorskip("jax")

from levelbench.frameworks.numpy import framework as numpy_framework  # noqa: E402


@MODES
def test_outputs_are_those_of_the_reference(backend, mode):
    network = build()
    x, _ = network.make_inputs(4, seed=1).values()
    found = backend.executor(network, mode=mode).infer(backend.array(x))
    wanted = numpy_framework.open("cpu").executor(network).infer(x)
    assert len(found) == 1
    close(found[0], wanted[0])


@MODES
@pytest.mark.parametrize("training", [False, True])
def test_loss_gradients_and_buffers_are_those_of_the_reference(backend, mode, training):
    network = build().training() if training else build()
    ours, reference = backend.executor(network, mode=mode), numpy_framework.open("cpu").executor(network)
    host = list(network.make_inputs(4, seed=1).values())
    loss, gradients = ours.infer_and_backprop(*given(backend, network))
    wanted, expected = reference.infer_and_backprop(*host)
    close(loss, wanted)
    assert set(gradients) == set(expected) == {each.name for each in network.parameters if each.trainable}
    for name, each in expected.items():
        close(gradients[name], each, 1e-3)
    assert set(ours.buffers) == {"mean", "variance"}
    for name in ours.buffers:
        close(ours.buffers[name], reference.buffers[name])
    assert np.any(np.asarray(ours.buffers["mean"])) == training


@MODES
def test_a_parameter_that_the_loss_does_not_read_has_a_gradient_of_zeros(backend, mode):
    network = tiny()
    _, gradients = backend.executor(network, mode=mode).infer_and_backprop(*given(backend, network))
    assert not np.any(np.asarray(gradients["unread"]))
    assert gradients["unread"].shape == (3,)


@MODES
def test_a_parameter_that_is_replaced_takes_effect_at_the_next_call(backend, mode):
    network = tiny()
    executor, (x, labels) = backend.executor(network, mode=mode), given(backend, network)
    before, loss = executor.infer(x)[0], executor.forward(x, labels)
    gradients = executor.backward()
    executor.parameters["weight"] -= 0.1 * gradients["weight"]
    assert executor.forward(x, labels) < loss
    assert not np.array_equal(executor.infer(x)[0], before)
    executor.parameters["weight"] = np.zeros((36, 3))
    assert not np.any(np.asarray(executor.infer(x)[0]))
    assert executor.parameters["weight"].dtype == np.float32


@MODES
def test_all_of_the_update_rules_lower_the_loss(backend, mode):
    from levelbench.training.optimizers import SGD, Adam, Momentum

    network = tiny().training()
    for rule in (SGD(0.05), Momentum(0.02, nesterov=True), Adam(0.005)):
        executor, inputs = backend.executor(network, mode=mode), given(backend, network)
        stepper, losses = rule.start(backend, executor.parameters), []
        for step in range(1, 9):
            losses.append(float(executor.forward(*inputs)))
            stepper.step(executor.backward(), step, 1.0)
        assert losses[-1] < losses[0]
        assert {str(each.dtype) for each in executor.parameters.values()} == {"float32"}


@MODES
def test_arrays_that_the_caller_holds_are_not_donated(backend, mode):
    network = tiny().training()
    executor, inputs = backend.executor(network, mode=mode), given(backend, network)
    held = [*executor.parameters.values(), *executor.buffers.values(), *inputs]
    executor.infer(inputs[0])
    executor.infer_and_backprop(*inputs)
    assert not any(each.is_deleted() for each in held)


def test_the_callers_parameters_are_copied(backend):
    network = tiny()
    values = network.initialise()
    executor, (x, _) = backend.executor(network, values), given(backend, network)
    before = np.asarray(executor.infer(x)[0])
    for each in values.values():
        each[...] = 7
    assert np.array_equal(executor.infer(x)[0], before)


@MODES
def test_a_network_of_float32_computes_in_float32_throughout(backend, mode):
    network = tiny(dropout=True).training()
    executor, inputs = backend.executor(network, mode=mode), given(backend, network)
    loss, gradients = executor.infer_and_backprop(*inputs)
    arrays = [loss, *gradients.values(), *executor.buffers.values(), *executor.infer(inputs[0])]
    assert {str(each.dtype) for each in arrays} == {"float32"}
    assert not any(each.weak_type for each in arrays)


def test_no_float64_appears_in_the_compiled_programs_of_a_network_of_float32(backend):
    network = build().training()
    executor, inputs = backend.executor(network), given(backend, network)
    executor.forward(*inputs)
    training = executor._training
    texts = [
        executor._infer.lower(inputs[0], *executor._read()).as_text(),
        training._step.lower(*inputs, *training._read()).as_text(),
    ]
    assert all("xf32>" in text and "xf64>" not in text for text in texts)


@MODES
def test_a_network_of_float64_computes_in_float64(backend, mode):
    g = GraphBuilder("double")
    weight = g.parameter("w", [3, 2], HE, dtype="float64")
    g.output(g.node("MatMul", g.input("x", ["batch", 3], "float64"), weight), "y")
    network = g.build().with_loss("mse")
    executor = backend.executor(network, mode=mode)
    x, targets = network.make_inputs(5).values()
    loss, gradients = executor.infer_and_backprop(backend.array(x), backend.array(targets))
    difference = x @ network.initialise()["w"] - targets
    close(loss, np.mean(difference**2), 1e-12)
    close(gradients["w"], 2 * x.T @ difference / difference.size, 1e-12)


@MODES
def test_dropout_follows_the_seed_and_differs_from_call_to_call(backend, mode):
    network = tiny(dropout=True).training()
    executor, inputs = backend.executor(network, mode=mode), given(backend, network)
    backend.seed(5)
    first = [float(executor.forward(*inputs)) for _ in range(3)]
    backend.seed(5)
    assert [float(executor.forward(*inputs)) for _ in range(3)] == first
    assert len(set(first)) == 3


@MODES
def test_random_numbers_inside_a_function_of_the_model_are_redrawn_at_each_call(backend, mode):
    from onnx import parser

    from levelbench.networks import Network

    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21, "local" : 1]> g (float[N] x) => (float[N] y)
        { y = local.noisy(x) } <domain: "local", opset_import: ["" : 21]> noisy (a) => (b)
        { n = RandomNormalLike(a) b = Add(a, n) }""")
    executor, x = backend.executor(Network(model), mode=mode), backend.array(np.zeros(4, np.float32))
    assert not np.array_equal(executor.infer(x)[0], executor.infer(x)[0])


@MODES
def test_one_executor_takes_any_batch(backend, mode):
    network = build()
    executor = backend.executor(network, mode=mode)
    for batch in (1, 3, 4):
        assert executor.infer(given(backend, network, batch)[0])[0].shape == (batch, 3)


def test_compiling_ahead_leaves_nothing_to_compile(backend):
    network = tiny()
    executor, (x, _) = backend.executor(network), given(backend, network, 5)
    compiled = []
    listener = lambda name, *_, **__: compiled.append(name)  # noqa: E731
    jax.monitoring.register_event_duration_secs_listener(listener)
    try:
        executor.compile(x)
        assert any("backend_compile" in name for name in compiled)
        compiled.clear()
        executor.infer(x)
        assert not any("backend_compile" in name for name in compiled)
    finally:
        jax.monitoring.unregister_event_duration_listener(listener)


def test_the_compiled_network_is_the_program_that_is_written_by_hand(backend):
    g = GraphBuilder("mlp")
    x = g.input("x", ["batch", 8])
    for at in range(2):
        weight, bias = g.parameter(f"w{at}", [8, 8], HE), g.parameter(f"b{at}", [8], HE)
        x = g.node("Relu", g.node("Gemm", x, weight, bias))
    g.output(x, "y")
    network = g.build()
    executor, x = backend.executor(network), backend.array(network.make_inputs(4)["x"])

    def by_hand(x, w0, b0, w1, b1):
        highest = jax.lax.Precision.HIGHEST
        hidden = jax.nn.relu(jax.numpy.matmul(x, w0, precision=highest) + b0)
        return jax.nn.relu(jax.numpy.matmul(hidden, w1, precision=highest) + b1)

    arguments = (x, *executor.parameters.values())
    cost = [
        each.compile().cost_analysis()
        for each in (executor._infer.lower(*arguments), jax.jit(by_hand).lower(*arguments))
    ]
    assert cost[0]["flops"] == cost[1]["flops"]
    assert cost[0]["bytes accessed"] == cost[1]["bytes accessed"]


def test_each_operator_is_timed_in_eager_mode(backend):
    network = build()
    times = backend.executor(network, mode="eager").operator_times(given(backend, network)[0], repeats=3)
    nodes = {each.index: network.nodes[each.index] for each in times}
    assert [nodes[each.index].op_type for each in times] == [each.title for each in times]
    assert all(each.output in nodes[each.index].outputs for each in times)
    assert all(len(each.times_s) == 3 and min(each.times_s) > 0 for each in times)
    assert {"Conv", "BatchNormalization", "Gemm"} <= {each.title for each in times}


def test_rows_are_taken_and_scalars_averaged(backend):
    table = backend.array(np.arange(6, dtype=np.float32).reshape(3, 2))
    rows = backend.take(table, backend.array(np.array([2, 0])))
    assert np.asarray(rows).tolist() == [[4, 5], [0, 1]]
    scalars = [backend.array(np.array(each, np.float32)) for each in (1e8, 1, 1)]
    assert backend.mean(scalars) == (1e8 + 2) / 3
