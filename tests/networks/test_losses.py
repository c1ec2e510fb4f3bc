"""Losses added to a network, and training mode, each compared with its formula."""

import itertools

import numpy as np
import onnx
import pytest

from levelbench.errors import DefinitionError, UsageError
from levelbench.networks import Draw, GraphBuilder, Network, zoo
from levelbench.networks.losses import with_balance, with_ctc_loss
from levelbench.operators.frameworks import open_framework

BACKEND = open_framework("numpy")
RANDOM = np.random.default_rng(0)


def identity(shape, opset=21):
    graph = GraphBuilder("identity", opset=opset)
    x = graph.input("x", shape)
    graph.output(graph.node("Mul", x, graph.parameter("one", (1,), Draw("constant", 1.0))), "y")
    return graph.build()


def loss_of(network, *inputs):
    onnx.checker.check_model(network.model, full_check=True)
    return float(BACKEND.executor(network).forward(*inputs))


def cross_entropy(logits, labels):
    """The mean of -log softmax, classes on the last axis."""
    logits = logits.astype(np.float64)
    chosen = np.take_along_axis(logits, labels[..., None], -1)[..., 0]
    return (np.log(np.exp(logits).sum(-1)) - chosen).mean()


def test_cross_entropy_is_the_mean_of_minus_the_log_of_the_softmax():
    logits, labels = RANDOM.standard_normal((5, 7), np.float32), RANDOM.integers(0, 7, 5)
    network = identity(("batch", 7)).with_loss()
    assert loss_of(network, logits, labels) == pytest.approx(cross_entropy(logits, labels), rel=1e-6)


def test_the_classes_of_a_sequence_are_the_last_axis():
    logits, labels = RANDOM.standard_normal((2, 3, 7), np.float32), RANDOM.integers(0, 7, (2, 3))
    network = identity(("batch", "length", 7)).with_loss()
    assert network.inputs[1].shape == ("batch", "length")
    assert loss_of(network, logits, labels) == pytest.approx(cross_entropy(logits, labels), rel=1e-6)


def test_the_classes_of_images_are_axis_1():
    logits, labels = RANDOM.standard_normal((2, 7, 3, 4), np.float32), RANDOM.integers(0, 7, (2, 3, 4))
    network = identity(("batch", 7, 3, 4)).with_loss()
    expected = cross_entropy(np.moveaxis(logits, 1, -1), labels)
    assert loss_of(network, logits, labels) == pytest.approx(expected, rel=1e-6)


def smooth_cross_entropy(logits, labels, smoothing, axis=-1):
    """-sum(q log softmax) with q as in Szegedy et al. 2016, the mean over rows; labels are shares of classes."""
    logits, labels = np.moveaxis(logits, axis, -1).astype(np.float64), np.moveaxis(labels, axis, -1)
    log_softmax = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -(((1 - smoothing) * labels + smoothing / logits.shape[-1]) * log_softmax).sum(-1).mean()


SHAPES = [((5, 7), -1), ((2, 3, 7), -1), ((2, 7, 3, 4), 1)]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_smoothing_spreads_its_share_of_the_label_over_all_classes(shape, axis, smoothing):
    logits = RANDOM.standard_normal(shape, np.float32)
    labels = RANDOM.integers(0, 7, np.delete(shape, axis))
    shares = np.moveaxis(np.eye(7)[labels], -1, axis)
    network = identity(("batch", *shape[1:])).with_loss(smoothing=smoothing)
    expected = smooth_cross_entropy(logits, shares, smoothing, axis)
    assert loss_of(network, logits, labels) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_soft_labels_are_the_share_of_each_class(shape, axis, smoothing):
    logits = RANDOM.standard_normal(shape, np.float32)
    shares = np.moveaxis(RANDOM.dirichlet(np.ones(7), np.delete(shape, axis)).astype(np.float32), -1, axis)
    network = identity(("batch", *shape[1:])).with_loss("soft-cross-entropy", smoothing=smoothing)
    assert network.inputs[1].shape == network.outputs[0].shape
    expected = smooth_cross_entropy(logits, shares, smoothing, axis)
    assert loss_of(network, logits, shares) == pytest.approx(expected, rel=1e-5)


def test_one_hot_soft_labels_give_the_loss_of_the_class():
    logits, labels = RANDOM.standard_normal((5, 7), np.float32), RANDOM.integers(0, 7, 5)
    soft = loss_of(identity(("batch", 7)).with_loss("soft-cross-entropy"), logits, np.eye(7, dtype=np.float32)[labels])
    assert soft == pytest.approx(loss_of(identity(("batch", 7)).with_loss(), logits, labels), rel=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_soft_labels_of_rows_of_any_length_cost_what_they_cost_at_that_length(smoothing):
    draws = np.random.default_rng(3)
    logits, labels = (draws.random((6, 4)).astype(np.float32) for _ in range(2))
    of_any, of_four = (
        loss_of(identity(("batch", each)).with_loss("soft-cross-entropy", smoothing=smoothing), logits, labels)
        for each in ("items", 4)
    )
    assert of_any == pytest.approx(of_four, rel=1e-6)


def test_soft_labels_of_one_item_and_another_are_bpr():
    scores = np.random.default_rng(4).standard_normal((9, 2)).astype(np.float32)
    network = identity(("batch", "items")).with_loss("soft-cross-entropy")
    expected = np.log1p(np.exp(scores[:, 1] - scores[:, 0])).mean()
    assert loss_of(network, scores, np.eye(2, dtype=np.float32)[[0] * 9]) == pytest.approx(expected, rel=1e-6)


def test_the_gradient_of_a_smoothed_loss_pulls_towards_the_smoothed_label():
    logits = np.zeros((1, 4), np.float32)
    network = identity(("batch", 4)).with_loss(smoothing=0.2)
    executor = BACKEND.executor(network)
    executor.forward(logits, np.array([0]))
    # The gradient of the only parameter, a factor of zero logits, vanishes; that of the logits is softmax - q.
    assert float(executor.backward()["one"][0]) == pytest.approx(0.0, abs=1e-7)
    executor.forward(np.float32([[1, 0, 0, 0]]), np.array([0]))
    softmax = np.exp(1) / (np.exp(1) + 3)
    assert float(executor.backward()["one"][0]) == pytest.approx(softmax - 0.85, rel=1e-5)


@pytest.mark.parametrize("framework", ["torch", "jax", "tensorflow"])
@pytest.mark.parametrize("kind", ["cross-entropy", "soft-cross-entropy"])
def test_every_framework_smooths_equally(framework, kind):
    pytest.importorskip(framework)
    backend = open_framework(framework)
    logits = RANDOM.standard_normal((5, 7), np.float32)
    labels = np.arange(5) if kind == "cross-entropy" else np.eye(7, dtype=np.float32)[:5]
    network = identity(("batch", 7)).with_loss(kind, smoothing=0.1)
    found = backend.executor(network).forward(backend.array(logits), backend.array(labels))
    assert float(backend.host(found)) == pytest.approx(loss_of(network, logits, labels), rel=1e-5)


def test_the_axis_of_the_classes_can_be_given():
    logits, labels = RANDOM.standard_normal((2, 7, 3), np.float32), RANDOM.integers(0, 7, (2, 3))
    network = identity(("batch", 7, 3)).with_loss(axis=1)
    assert loss_of(network, logits, labels) == pytest.approx(
        cross_entropy(np.moveaxis(logits, 1, -1), labels), rel=1e-6
    )


def test_mse_is_the_mean_of_the_squares():
    found, targets = RANDOM.standard_normal((2, 5, 4), np.float32)
    network = identity(("batch", 4)).with_loss("mse")
    assert loss_of(network, found, targets) == pytest.approx(((found - targets) ** 2).mean(), rel=1e-6)


def test_targets_of_bytes_are_cast_to_the_outputs_type():
    found, targets = RANDOM.standard_normal((5, 4), np.float32), RANDOM.integers(0, 256, (5, 4), np.uint8)
    network = identity(("batch", 4)).with_loss("mse", targets="uint8")
    assert network.inputs[-1].dtype == "uint8"
    expected = ((found - targets.astype(np.float32)) ** 2).mean()
    assert loss_of(network, found, targets) == pytest.approx(expected, rel=1e-6)


def huber(x, t, delta):
    size = np.abs(x - t)
    return np.where(size <= delta, size**2 / 2, delta * (size - delta / 2))


def binary(x, t, _):
    p = 1 / (1 + np.exp(-x))
    return -t * np.log(p) - (1 - t) * np.log(1 - p)


def focal(x, t, gamma):
    p = 1 / (1 + np.exp(-x))
    q = np.where(t == 1, p, 1 - p)
    return -((1 - q) ** gamma) * np.log(q)


FORMULAS = {
    "huber": (huber, {"delta": 0.7}, 0.7),
    "binary-cross-entropy": (binary, {}, 0.0),
    "focal": (focal, {"gamma": 1.5}, 1.5),
}


@pytest.mark.parametrize("kind", FORMULAS)
def test_a_loss_of_numbers_and_its_gradient_are_those_of_its_formula(kind):
    formula, options, parameter = FORMULAS[kind]
    x, t = RANDOM.standard_normal((6, 4)).astype(np.float32) * 2, RANDOM.integers(0, 2, (6, 4)).astype(np.float32)
    network = identity(("batch", 4)).with_loss(kind, **options)
    assert loss_of(network, x, t) == pytest.approx(formula(x.astype(float), t, parameter).mean(), rel=1e-5)
    executor = BACKEND.executor(network)
    executor.forward(x, t)
    # The only parameter multiplies the outputs.
    by_one = [formula((1 + step) * x.astype(float), t, parameter).mean() for step in (1e-5, -1e-5)]
    assert float(executor.backward()["one"][0]) == pytest.approx((by_one[0] - by_one[1]) / 2e-5, rel=1e-3)


@pytest.mark.parametrize("kind", ["binary-cross-entropy", "focal"])
def test_losses_of_logits_stay_finite_at_any_size(kind):
    x, t = np.float32([[-1e4, 1e4, -1e4, 1e4]]), np.float32([[0, 1, 1, 0]])
    network = identity(("batch", 4)).with_loss(kind)
    assert loss_of(network, x, t) == pytest.approx(5000, rel=1e-5)


@pytest.mark.parametrize("framework", ["torch", "jax", "onnxruntime"])
@pytest.mark.parametrize("kind", FORMULAS)
def test_every_framework_computes_the_same_loss_of_numbers(framework, kind):
    pytest.importorskip(framework, reason=f"{framework} is not installed")
    backend = open_framework(framework)
    x, t = RANDOM.standard_normal((2, 5, 4)).astype(np.float32)
    t = (t > 0).astype(np.float32)
    network = identity(("batch", 4)).with_loss(kind, **FORMULAS[kind][1])
    expected = loss_of(network, x, t)
    if framework == "onnxruntime":
        whole = network.with_outputs([network.loss]).replace(loss=None)
        (found,) = backend.executor(whole).infer(backend.array(x), backend.array(t))
    else:
        found = backend.executor(network).forward(backend.array(x), backend.array(t))
    assert float(backend.host(found)) == pytest.approx(expected, rel=1e-5)


def test_huber_and_binary_cross_entropy_are_pytorchs():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    functional = torch.nn.functional
    x, t = RANDOM.standard_normal((2, 5, 4)).astype(np.float32)
    given, share = torch.from_numpy(x), torch.sigmoid(torch.from_numpy(t))
    found = loss_of(identity(("batch", 4)).with_loss("huber", delta=0.5), x, t)
    assert found == pytest.approx(float(functional.huber_loss(given, torch.from_numpy(t), delta=0.5)), rel=1e-5)
    found = loss_of(identity(("batch", 4)).with_loss("binary-cross-entropy"), x, share.numpy())
    assert found == pytest.approx(float(functional.binary_cross_entropy_with_logits(given, share)), rel=1e-5)


@pytest.mark.parametrize("options", [{"delta": 0.0}, {"gamma": 0.5}])
def test_an_impossible_shape_of_a_loss_is_refused(options):
    with pytest.raises(UsageError, match="Give a delta above 0 and a gamma of 1 or more"):
        identity(("batch", 3)).with_loss("huber", **options)


def test_random_labels_are_classes():
    labels = identity(("batch", 3)).with_loss().make_inputs(200)["labels"]
    assert set(labels.tolist()) == {0, 1, 2}


def test_names_in_use_are_not_changed():
    graph = GraphBuilder("taken")
    x = graph.input("labels", ("batch", 3))
    graph.output(graph.node("Relu", x), "loss")
    network = graph.build().with_loss()
    assert (network.inputs[1].name, network.loss) == ("labels_1", "loss_1")
    assert [each.name for each in network.outputs] == ["loss"]


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: identity(("batch", 3)).with_loss("hinge"), UsageError, "cross-entropy, mse, huber"),
        (lambda: identity(("batch", 3)).with_loss(output="z"), UsageError, "Give y"),
        (lambda: identity(("batch", 3)).with_loss().with_loss(), DefinitionError, "it has one"),
        (lambda: identity(("batch",)).with_loss(), DefinitionError, "batch, classes"),
        (lambda: identity(("batch", 3)).with_loss(axis=7), UsageError, "axis 7"),
        (lambda: identity(("batch", 3)).with_loss(smoothing=1.0), UsageError, "smoothing=1"),
        (lambda: identity(("batch", 3)).with_loss("mse", smoothing=0.1), UsageError, "not classes"),
        (lambda: identity(("batch", "k"), 12).with_loss("soft-cross-entropy"), DefinitionError, "number of classes"),
        (
            lambda: identity(("batch", 3, 2, 2), opset=12).with_loss("soft-cross-entropy"),
            DefinitionError,
            "opset 12",
        ),
    ],
)
def test_an_impossible_loss_is_refused_with_the_reason(make, error, says):
    with pytest.raises(error, match=says):
        make()


def test_dropout_drops_only_in_training():
    graph = GraphBuilder("drops")
    x = graph.input("x", ("batch", 1000))
    graph.output(graph.node("Dropout", x, graph.constant(np.float32(0.5))))
    network = graph.build().with_loss().training()
    executor = BACKEND.executor(network.replace(in_training=False))
    ones = np.ones((1, 1000), np.float32)
    (dropped,) = executor.infer(ones)
    assert 350 < (dropped == 0).sum() < 650
    assert BACKEND.executor(network).infer(ones)[0].tolist() == ones.tolist()


def test_a_network_without_such_operators_does_not_change_in_training():
    network = zoo.mlp(4, 3, 2)
    assert network.training().model == network.model


def normalised():
    graph = GraphBuilder("normalised")
    x = graph.input("x", ("batch", 2))
    start = {"scale": 1.0, "bias": 0.0, "mean": 0.0, "var": 1.0}
    given = [
        graph.parameter(name, (2,), Draw("constant", value), trainable=name in ("scale", "bias"))
        for name, value in start.items()
    ]
    y = graph.node("BatchNormalization", x, *given)
    graph.output(graph.node("Dropout", y), "y")
    return graph.build()


EDITS = {
    "loss, then training": lambda n: n.with_loss("mse").training(),
    "training, then loss": lambda n: n.training().with_loss("mse"),
    "twice": lambda n: n.with_loss("mse").training().training(),
    "stored": lambda n: n.with_loss("mse").training().stored(n.initialise()),
    "other outputs": lambda n: n.with_loss("mse").training().with_outputs(["y"]),
    "written and read": lambda n: Network.from_proto(n.with_loss("mse").training().to_proto()),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_network_in_training_mode_still_infers_with_running_statistics(edit):
    network = EDITS[edit](normalised())
    onnx.checker.check_model(network.model, full_check=True)
    x = np.float32([[1, 2], [3, 8]])
    executor = BACKEND.executor(network)
    np.testing.assert_allclose(executor.infer(x)[0], x / np.sqrt(1 + 1e-5), rtol=1e-6)
    executor.forward(x, x)
    assert executor.buffers["mean"].tolist() == pytest.approx([0.2, 0.5])


def test_a_loss_that_is_not_a_scalar_is_refused():
    graph = GraphBuilder("rows")
    x = graph.input("x", ("batch", 2))
    graph.output(graph.node("Mul", x, graph.parameter("w", (2,), Draw("normal", 1.0))), "rows")
    with pytest.raises(DefinitionError, match="scalar"):
        BACKEND.executor(graph.build().replace(loss="rows")).forward(np.ones((3, 2), np.float32))


@pytest.mark.parametrize(("operator", "opset"), [("BatchNormalization", 13), ("Dropout", 11)])
def test_an_operator_without_a_training_mode_at_its_opset_is_named(operator, opset):
    inputs = ["x", "s", "b", "m", "v"] if operator == "BatchNormalization" else ["x"]
    info = [onnx.helper.make_tensor_value_info(name, 1, ["n", 2]) for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node(operator, inputs, ["y"])], "old", info[:1], info[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    with pytest.raises(DefinitionError, match=operator):
        Network(model).training()


def test_an_opset_without_a_training_mode_is_refused():
    graph = GraphBuilder("old", opset=13)
    x = graph.input("x", ("batch", 3))
    given = [graph.parameter(name, (3,), Draw("constant", 1.0)) for name in ("s", "b", "m", "v")]
    graph.output(graph.node("BatchNormalization", x, *given))
    with pytest.raises(DefinitionError, match="opset 13"):
        graph.build().training()


def actor_critic():
    """The logits are the first three numbers of a row, the value is the last."""
    graph = GraphBuilder("actor-critic")
    x = graph.node("Mul", graph.input("x", ("batch", 4)), graph.parameter("one", (1,), Draw("constant", 1.0)))
    logits, value = graph.node("Split", x, graph.constant([3, 1]), outputs=2, axis=1)
    graph.output(logits, "logits")
    graph.output(graph.node("Reshape", value, graph.constant([-1])), "value")
    return graph.build()


def policy_inputs(rows=64):
    """Rows, and what was taken there by a policy that is not quite theirs."""
    x, actions = RANDOM.standard_normal((rows, 4), np.float32), RANDOM.integers(0, 3, rows)
    likely, gains, returns = RANDOM.standard_normal((3, rows), np.float32)
    chances = x[:, :3] - np.log(np.exp(x[:, :3].astype(np.float64)).sum(1, keepdims=True))
    taken = chances[np.arange(rows), actions]
    return x, (taken + 0.4 * likely).astype(np.float32), gains, returns, actions, chances, taken


def test_the_policy_loss_is_that_of_ppo():
    *inputs, chances, taken = policy_inputs()
    x, likely, gains, returns, _ = inputs
    ratio = np.exp(taken - likely)
    assert (np.abs(ratio - 1) > 0.3).any()
    assert (np.abs(ratio - 1) < 0.3).any()
    expected = -np.minimum(ratio * gains, np.clip(ratio, 0.7, 1.3) * gains).mean()
    expected += 0.25 * ((x[:, 3] - returns) ** 2).mean() + 0.1 * (np.exp(chances) * chances).sum(1).mean()
    network = actor_critic().with_policy_loss(clip=0.3, value_weight=0.25, entropy_weight=0.1)
    assert loss_of(network, *inputs) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
def test_right_after_acting_the_policy_loss_has_the_gradient_of_a2c(framework):
    pytest.importorskip(framework, reason=f"{framework} is not installed")
    x, _, gains, returns, actions, chances, taken = policy_inputs()
    network = actor_critic().with_policy_loss(entropy_weight=0.0)
    backend = open_framework(framework)
    inputs = x, taken.astype(np.float32), gains, returns, actions
    _, gradients = backend.executor(network).infer_and_backprop(*(backend.array(each) for each in inputs))
    # d(-A log p)/d(logits) = -A (one-hot - p), d(v - R)^2 / 2 = v - R, and all numbers are those of x times one.
    rows = -gains[:, None] * (np.eye(3)[actions] - np.exp(chances))
    expected = ((rows * x[:, :3]).sum(1) + (x[:, 3] - returns) * x[:, 3]).mean()
    assert float(backend.host(gradients["one"])[0]) == pytest.approx(expected, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [({"clip": 0.0}, UsageError, "clip above 0"), ({"entropy_weight": -1.0}, UsageError, "weights of 0 or more")],
)
def test_an_impossible_policy_loss_is_refused(settings, error, says):
    with pytest.raises(error, match=says):
        actor_critic().with_policy_loss(**settings)


def test_a_policy_loss_needs_a_value_of_one_number_a_row():
    with pytest.raises(DefinitionError, match=r"the value \(batch,\)"):
        identity(("batch", 7)).with_policy_loss()


def _mixture(weight=0.5, **options):
    sizes = {"vocabulary": 11, "width": 8, "inner": 6, "heads": 2, "groups": 1, "positions": 6}
    plain = zoo.build("moe-tiny", **sizes | options).with_loss()
    return plain, with_balance(plain, weight)


@pytest.mark.parametrize("chosen", [1, 2, 3])
def test_balance_adds_the_number_of_experts_times_the_sum_of_fractions_times_probabilities(chosen):
    plain, balanced = _mixture(chosen=chosen, layers=2)
    parameters = {
        name: array + np.float32(0.3) * np.random.default_rng(0).standard_normal(array.shape, np.float32)
        for name, array in plain.initialise(0).items()
    }
    given = plain.make_inputs(3, sizes={"length": 6})
    watched = plain.with_outputs([f"block{at}.mlp.router.shares" for at in (0, 1)])
    wanted = 0.0
    for shares in open_framework("numpy").executor(watched, parameters).infer(*list(given.values())[:1]):
        picks = np.argsort(-shares, axis=1)[:, :chosen]
        fractions = np.bincount(picks.ravel(), minlength=4) / picks.size
        wanted += 0.5 * 4 * (fractions * shares.mean(axis=0)).sum()
    losses = [
        float(open_framework("numpy").executor(each, parameters).infer_and_backprop(*given.values())[0])
        for each in (plain, balanced)
    ]
    assert losses[1] - losses[0] == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_every_framework_finds_the_gradients_of_balanced_experts(framework):
    pytest.importorskip(framework, reason=f"{framework} is not installed")
    _, balanced = _mixture(layers=1)
    values, given = balanced.initialise(0), balanced.make_inputs(3, sizes={"length": 6})
    loss, wanted = open_framework("numpy").executor(balanced, values).infer_and_backprop(*given.values())
    backend = open_framework(framework)
    found, gradients = backend.executor(balanced, values).infer_and_backprop(*map(backend.array, given.values()))
    assert float(backend.host(found)) == pytest.approx(float(loss), rel=1e-5)
    assert np.any(wanted["block0.mlp.router.weight"])
    for name, gradient in wanted.items():
        np.testing.assert_allclose(backend.host(gradients[name]), gradient, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_training_on_the_balance_evens_out_how_often_experts_are_chosen():
    _, balanced = _mixture(weight=1.0, layers=1, chosen=1)
    values, given = balanced.initialise(0), balanced.make_inputs(16, sizes={"length": 6})
    router = "block0.mlp.router.weight"
    values[router] = values[router] * np.float32(20)
    watched = balanced.with_outputs(["block0.mlp.router.chosen"])

    def most():
        (picked,) = open_framework("numpy").executor(watched, values).infer(given["input_ids"])
        return picked.mean(axis=0).max()

    before = most()
    for _ in range(100):
        _, gradients = open_framework("numpy").executor(balanced, values).infer_and_backprop(*given.values())
        values[router] = values[router] - np.float32(0.3) * gradients[router]
    assert most() < before


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: with_balance(zoo.build("moe-tiny")), DefinitionError, "it has no loss"),
        (lambda: with_balance(zoo.build("llama-tiny").with_loss()), DefinitionError, "no mixture of experts"),
        (lambda: with_balance(zoo.build("moe-tiny").with_loss(), -1.0), UsageError, "weight=-1"),
    ],
)
def test_an_impossible_balance_is_refused_with_the_reason(make, error, says):
    with pytest.raises(error, match=says):
        make()


def every_way(logits, labels):
    """-log of the sum over all sequences of symbols that read as the labels, of the product of their probabilities."""
    chances = np.exp(logits.astype(np.float64))
    chances /= chances.sum(1, keepdims=True)
    total = 0.0
    for way in itertools.product(range(chances.shape[1]), repeat=len(chances)):
        read = [symbol for symbol, _ in itertools.groupby(way) if symbol]
        if read == [each for each in labels if each]:
            total += np.prod(chances[range(len(way)), way])
    return -np.log(total)


@pytest.mark.parametrize("labels", [[1, 2, 0], [0, 0, 0], [1, 1, 0], [2, 2, 2], [2, 1, 2], [1, 0, 0]])
def test_ctc_is_minus_the_log_of_the_sum_over_all_ways_to_say_the_labels(labels):
    logits = 2 * RANDOM.standard_normal((1, 6, 3), np.float32)
    found = loss_of(with_ctc_loss(identity(("batch", 6, 3)), 3), logits, np.array([labels]))
    assert found == pytest.approx(every_way(logits[0], labels), rel=1e-6)


@pytest.mark.parametrize(("dtype", "error"), [("float64", 1e-12), ("float16", 2e-3)])
def test_ctc_has_the_type_of_the_logits_and_its_precision(dtype, error):
    graph = GraphBuilder("identity")
    one = graph.parameter("one", (1,), Draw("constant", 1.0), dtype=dtype)
    graph.output(graph.node("Mul", graph.input("x", ("batch", 6, 3), dtype), one), "y")
    network, logits = with_ctc_loss(graph.build(), 3), 2 * RANDOM.standard_normal((1, 6, 3)).astype(dtype)
    loss = BACKEND.executor(network).forward(logits, np.array([[1, 1, 2]]))
    assert loss.dtype == dtype
    assert float(loss) == pytest.approx(every_way(logits[0], [1, 1, 2]), rel=error)


def test_ctc_is_a_mean_over_examples():
    logits, labels = RANDOM.standard_normal((2, 5, 3), np.float32), np.array([[1, 2], [2, 0]])
    found = loss_of(with_ctc_loss(identity(("batch", 5, 3)), 2), logits, labels)
    assert found == pytest.approx(np.mean([every_way(*each) for each in zip(logits, labels, strict=True)]), rel=1e-6)


@pytest.mark.parametrize(("frames", "symbols", "most", "scale"), [(9, 3, 5, 100.0), (63, 11, 4, 3.0)])
def test_ctc_and_its_gradient_are_pytorchs(frames, symbols, most, scale):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    random = np.random.default_rng(1)
    logits = scale * random.standard_normal((8, frames, symbols), np.float32)
    labels = random.integers(1, symbols, (8, most)) * (np.arange(most) < random.integers(0, most + 1, (8, 1)))
    given = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    theirs = torch.nn.functional.ctc_loss(
        given.log_softmax(2).transpose(0, 1),
        torch.tensor(labels),
        torch.full((8,), frames),
        torch.tensor((labels > 0).sum(1)),
        reduction="none",
    ).mean()
    theirs.backward()
    network = with_ctc_loss(identity(("batch", frames, symbols)), most)
    loss, gradients = BACKEND.executor(network).infer_and_backprop(logits, labels)
    assert float(loss) == pytest.approx(theirs.item(), rel=1e-6)
    expected = (given.grad.numpy() * logits).sum()
    assert gradients["one"].item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("shape", "most", "found"),
    [
        (("batch", 3), 1, "has the shape"),
        (("batch", "frames", 3), 1, "has the shape"),
        (("batch", 4, 3), 3, "4 frames"),
    ],
)
def test_ctc_without_room_for_the_labels_is_refused(shape, most, found):
    with pytest.raises(DefinitionError, match=found):
        with_ctc_loss(identity(shape), most)
