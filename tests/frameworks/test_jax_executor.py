import numpy as np
import pytest

from levelbench.errors import DefinitionError, UnknownNameError, UnsupportedError, UsageError
from levelbench.networks import Draw, GraphBuilder
from levelbench.networks.native import NativeModel
from levelbench.networks.values import Value

jax = pytest.importorskip("jax")

from levelbench.frameworks.jax import framework  # noqa: E402
from levelbench.frameworks.numpy import framework as numpy_framework  # noqa: E402

MODES = pytest.mark.parametrize("mode", ["jit", "eager"])
HE = Draw("normal", 0.3)


@pytest.fixture(scope="module")
def backend():
    return framework.open("cpu")


def tiny(dropout=False):
    """Two products, and one parameter that nothing reads."""
    g = GraphBuilder("tiny")
    g.parameter("unread", [3], HE)
    y = g.node("Relu", g.node("Gemm", g.input("x", ["batch", 6]), g.parameter("w0", [6, 36], HE)))
    if dropout:
        y = g.node("Dropout", y, g.constant(0.5))
    g.output(g.node("Gemm", y, g.parameter("weight", [36, 3], HE)), "logits")
    return g.build().with_loss()


def build():
    """Convolution, normalisation, shape arithmetic, and one parameter that nothing reads."""
    g = GraphBuilder("small")
    x = g.input("x", ["batch", 2, 6, 6])
    g.parameter("unread", [3], HE)
    y = g.node("Conv", x, g.parameter("conv", [4, 2, 3, 3], HE), pads=[1, 1, 1, 1])
    ones, zeros = Draw("constant", 1.0), Draw("constant", 0.0)
    scale, bias = g.parameter("scale", [4], ones), g.parameter("bias", [4], zeros)
    mean = g.parameter("mean", [4], zeros, trainable=False)
    variance = g.parameter("variance", [4], ones, trainable=False)
    y = g.node("BatchNormalization", y, scale, bias, mean, variance)
    y = g.node("MaxPool", g.node("Relu", y), kernel_shape=[2, 2], strides=[2, 2])
    rows = g.node("Slice", g.node("Shape", y), *(g.constant([each]) for each in (0, 1)))
    y = g.node("Reshape", y, g.node("Concat", rows, g.constant([-1]), axis=0))
    g.output(g.node("Gemm", y, g.parameter("weight", [36, 3], HE)), "logits")
    return g.build().with_loss()


def given(backend, network, batch=4):
    return [backend.array(each) for each in network.make_inputs(batch, seed=1).values()]


def close(found, wanted, relative=1e-4):
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max(initial=0) <= relative * max(np.abs(wanted).max(initial=0), 1e-3)


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
def test_a_parameter_that_is_replaced_counts_from_the_next_call_on(backend, mode):
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
def test_random_numbers_inside_a_function_of_the_model_are_drawn_anew_at_each_call(backend, mode):
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


def test_fused_operators_are_not_timed_and_the_error_says_which_mode_can(backend):
    network = tiny()
    with pytest.raises(UnsupportedError, match=r"XLA fuses them\. Use mode eager"):
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


def test_an_unknown_mode_lists_those_there_are(backend):
    with pytest.raises(UnknownNameError, match="eager, jit"):
        backend.executor(tiny(), mode="compiled")


def test_what_cannot_be_meant_is_refused(backend):
    network = tiny()
    executor, inputs = backend.executor(network), given(backend, network)
    with pytest.raises(UsageError, match="no forward came before"):
        executor.backward()
    with pytest.raises(UsageError, match="only infers"):
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


def test_rows_are_taken_and_scalars_averaged(backend):
    table = backend.array(np.arange(6, dtype=np.float32).reshape(3, 2))
    rows = backend.take(table, backend.array(np.array([2, 0])))
    assert np.asarray(rows).tolist() == [[4, 5], [0, 1]]
    scalars = [backend.array(np.array(each, np.float32)) for each in (1e8, 1, 1)]
    assert backend.mean(scalars) == (1e8 + 2) / 3


# Native functions


def native(**changes):
    def function(parameters, x):
        hidden = x @ parameters["layers"][0]["w"] + jax.numpy.ones(3)
        return {"logits": hidden * parameters["scale"], "hidden": hidden}

    parameters = {"layers": [{"w": np.full((4, 3), 0.5, np.float32)}], "scale": np.ones(3, np.float32), "step": 7}
    parameters["step"] = np.array(7, np.int32)
    inputs = (Value("x", "float32", ("batch", 4)),)
    return NativeModel(
        **{"name": "f", "framework": "jax", "model": function, "inputs": inputs, "parameters": parameters} | changes
    )


@MODES
def test_a_function_of_the_user_runs_as_it_is(backend, mode):
    executor = backend.native(native(), mode)
    hidden, logits = executor.infer(backend.array(np.ones((2, 4), np.float32)))
    assert np.asarray(hidden).tolist() == np.asarray(logits).tolist() == [[3.0] * 3] * 2
    assert (list(executor.parameters), list(executor.buffers)) == (["layers.0.w", "scale"], ["step"])


@MODES
def test_a_function_of_the_user_is_trained_with_its_own_loss_or_cross_entropy(backend, mode):
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    labels = np.array([0, 1, 2, 0, 1])
    arrays = backend.array(x), backend.array(labels)
    loss, gradients = backend.native(native(), mode).infer_and_backprop(*arrays)
    # In the order of the keys, "hidden" is the first output.
    hidden = x @ np.full((4, 3), 0.5) + 1
    share = np.exp(hidden) / np.exp(hidden).sum(1, keepdims=True)
    close(loss, -np.log(share[range(5), labels]).mean())
    close(gradients["layers.0.w"], x.T @ (share - np.eye(3)[labels]) / 5)
    assert not np.any(np.asarray(gradients["scale"]))
    own = native(loss=lambda found, labels: (found["logits"] ** 2).mean())
    loss, gradients = backend.native(own, mode).infer_and_backprop(*arrays)
    close(loss, (hidden**2).mean())
    close(gradients["scale"], 2 * (hidden**2).sum(0) / hidden.size)


@MODES
def test_a_function_of_the_user_computes_in_32_bits_as_jax_does_by_itself(backend, mode):
    model = native(model=lambda parameters, ids: (jax.numpy.arange(3) + ids, jax.numpy.ones(3) * parameters["scale"]))
    found = backend.native(model, mode).infer(backend.array(np.array([1, 2, 3])))
    assert [str(each.dtype) for each in found] == ["int32", "float32"]


@MODES
def test_a_function_whose_parameters_have_64_bits_computes_in_64(backend, mode):
    model = native(model=lambda parameters, x: x * parameters * jax.numpy.ones(3), parameters=np.ones(3))
    executor = backend.native(model, mode)
    assert executor.infer(backend.array(np.ones(3)))[0].dtype == np.float64
    assert list(executor.parameters) == ["parameters"]


@MODES
def test_a_parameter_of_a_function_that_is_replaced_counts_at_once(backend, mode):
    executor, x = backend.native(native(), mode), backend.array(np.ones((2, 4), np.float32))
    executor.parameters["scale"] = np.zeros(3)
    assert not np.any(np.asarray(executor.infer(x)[1]))


@MODES
def test_a_function_without_parameters_takes_its_inputs_alone(backend, mode):
    executor = backend.native(native(model=lambda x: x * 2, parameters=None), mode)
    assert np.asarray(executor.infer(backend.array(np.ones(2, np.float32)))[0]).tolist() == [2, 2]


def test_a_function_that_branches_on_a_value_runs_eagerly_and_is_refused_when_compiled(backend):
    model = native(model=lambda x: x if x.sum() > 0 else -x, parameters=None)
    x = backend.array(-np.ones(2, np.float32))
    assert np.asarray(backend.native(model, "eager").infer(x)[0]).tolist() == [1, 1]
    with pytest.raises(UnsupportedError, match=r"needs the value of an array.*Use mode eager"):
        backend.native(model).infer(x)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model": 3}, "it is a int. Return a function"),
        ({"parameters": {"w": "text"}}, "w is no array"),
    ],
)
def test_what_is_no_function_of_arrays_is_refused(backend, changes, says):
    with pytest.raises(DefinitionError, match=says):
        backend.native(native(**changes))


def test_an_answer_without_an_array_and_a_loss_that_is_no_scalar_are_refused(backend):
    x = backend.array(np.ones((2, 4), np.float32))
    with pytest.raises(DefinitionError, match="no array in a str"):
        backend.native(native(model=lambda *_: "nothing")).infer(x)
    with pytest.raises(DefinitionError, match="it is no scalar array"):
        backend.native(native(loss=lambda found, _: found["logits"])).forward(x, x)


@MODES
def test_a_call_with_too_few_or_too_many_inputs_is_told_which_there_are(backend, mode):
    network = tiny()
    executor, (x, labels) = backend.executor(network, mode=mode), given(backend, network)
    for inputs in [(), (x, labels)]:
        with pytest.raises(UsageError, match=rf"there are 1 \(x\), and {len(inputs)} were given"):
            executor.infer(*inputs)
    for inputs in [(x,), (x, labels, labels)]:
        with pytest.raises(UsageError, match=rf"there are 2 \(x, labels\), and {len(inputs)} were given"):
            executor.forward(*inputs)


def test_an_inference_timed_with_too_few_inputs_is_told_which_there_are(backend):
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
