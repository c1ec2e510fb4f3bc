"""Networks other than vision classifiers equal twins in PyTorch, in outputs and gradients."""

import numpy as np
import pytest
from tests.networks.zoo.compared import assert_close, run, shaken

from levelbench.errors import DefinitionError
from levelbench.networks import zoo
from levelbench.networks.zoo.agents import ncf
from levelbench.operators.frameworks import open_framework

torch = pytest.importorskip("torch")
F = torch.nn.functional


def assert_twins(network, twin, trained=None, twin_loss=None, *, sizes=None, batch=3):
    """The network equals ``twin(parameters, *inputs)`` in PyTorch, a tuple, and so do the gradients of the loss.

    Without ``trained`` and ``twin_loss`` the loss is the mean of the squares of the first output.
    """
    sizes, parameters = sizes or {}, shaken(network)
    leaves = {name: torch.tensor(array, requires_grad="running" not in name) for name, array in parameters.items()}
    inputs = network.make_inputs(batch, seed=1, sizes=sizes)
    native = [torch.tensor(array) for array in inputs.values()]
    theirs = twin(leaves, *native)
    for mine, other in zip(run(network, parameters, *inputs.values()), theirs, strict=True):
        assert_close(mine, other, 1e-5)
    if trained is None:
        trained = network.with_loss("mse")
        twin_loss = lambda p, *given: F.mse_loss(twin(p, *given[:-1])[0], given[-1])  # noqa: E731
    given = trained.make_inputs(batch, seed=1, sizes=sizes)
    executor = open_framework("numpy").executor(trained, parameters)
    loss, gradients = executor.infer_and_backprop(*given.values())
    wanted = twin_loss(leaves, *[torch.tensor(array) for array in given.values()])
    assert float(loss) == pytest.approx(wanted.item(), rel=1e-5)
    wanted.backward()
    floor = 1e-6 * max(float(leaf.grad.abs().max()) for leaf in leaves.values() if leaf.grad is not None)
    assert set(gradients) == {name for name, leaf in leaves.items() if leaf.requires_grad}
    for name, gradient in gradients.items():
        if leaves[name].grad is not None:
            assert_close(gradient, leaves[name].grad, 1e-4, floor)
        else:
            assert not np.any(gradient)
    return executor


def linear(p, name, x):
    return F.linear(x, p[f"{name}.weight"], p.get(f"{name}.bias"))


def batch_norm(p, name, x, training=False):
    mean, variance = (p[f"{name}.running_{what}"] for what in ("mean", "var"))
    return F.batch_norm(x, mean, variance, p[f"{name}.weight"], p[f"{name}.bias"], training, 0.1, 1e-5)


def bidirectional_gru(p, prefix, x, hidden):
    """PyTorch's own GRU; its gates are reset, update, new, ONNX's update, reset, hidden. The directions are added."""

    def reordered(weight):
        update, reset, new = weight.chunk(3)
        return torch.cat([reset, update, new])

    module = torch.nn.GRU(x.shape[-1], hidden, bidirectional=True)
    weights = {}
    for at, ending in enumerate(("_l0", "_l0_reverse")):
        biases = p[f"{prefix}.bias"][at].chunk(2)
        weights[f"weight_ih{ending}"] = reordered(p[f"{prefix}.weight"][at])
        weights[f"weight_hh{ending}"] = reordered(p[f"{prefix}.recurrent"][at])
        weights[f"bias_ih{ending}"], weights[f"bias_hh{ending}"] = (reordered(bias) for bias in biases)
    y, _ = torch.func.functional_call(module, weights, (x,))
    return y.unflatten(-1, (2, hidden)).sum(2)


def small_deepspeech():
    return zoo.build("deepspeech2-tiny", hidden=6, labels=5, channels=2)


def deepspeech_twin(p, x, training=False):
    for at, stride in enumerate(((2, 2), (2, 1))):
        x = F.conv2d(x, p[f"conv{at}.weight"], p[f"conv{at}.bias"], stride=stride)
        x = F.hardtanh(batch_norm(p, f"norm{at}", x, training), 0.0, 20.0)
    x = x.flatten(1, 2).permute(2, 0, 1)
    for layer in range(2):
        if layer:
            x = batch_norm(p, f"gru{layer}.norm", x.flatten(0, 1), training).view(x.shape)
        x = bidirectional_gru(p, f"gru{layer}.cell", x, 6)
    return (linear(p, "labels", batch_norm(p, "norm", x.flatten(0, 1), training).view(x.shape)).transpose(0, 1),)


SPEECH = {"frames": 51, "steps": 11}


def test_deep_speech_equals_a_twin_with_pytorchs_bidirectional_gru():
    assert_twins(small_deepspeech(), deepspeech_twin, sizes=SPEECH)


def test_deep_speech_in_training_equals_the_twin_and_moves_its_means_as_pytorch_does():
    network = small_deepspeech()
    statistics = {}

    def loss(p, x, targets):
        before = {name: value.clone() if "running" in name else value for name, value in p.items()}
        value = F.mse_loss(deepspeech_twin(before, x, training=True)[0], targets)
        statistics.update({name: value for name, value in before.items() if "running" in name})
        return value

    trained = network.with_loss("mse").training()
    executor = assert_twins(network, deepspeech_twin, trained, loss, sizes=SPEECH)
    assert set(executor.buffers) == set(statistics)
    # Not the variances: ONNX keeps that of the batch, PyTorch an estimate that is n / (n - 1) times as large.
    for name, value in statistics.items():
        if name.endswith("mean"):
            assert_close(executor.buffers[name], value, 1e-4)


def torch_lstm(p, prefix, x):
    """PyTorch's own LSTM; its gates are input, forget, cell, output, ONNX's input, output, forget, cell."""

    def reordered(weight):
        first, last, forget, cell = weight.chunk(4)
        return torch.cat([first, forget, cell, last])

    biases = p[f"{prefix}.bias"][0].chunk(2)
    weights = [p[f"{prefix}.weight"][0], p[f"{prefix}.recurrent"][0], *biases]
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    module = torch.nn.LSTM(x.shape[-1], weights[1].shape[1], batch_first=True)
    weights = {name: reordered(weight) for name, weight in zip(names, weights, strict=True)}
    return torch.func.functional_call(module, weights, (x,))[0]


def test_the_transducer_equals_a_twin_with_pytorchs_lstm():
    def twin(p, x, ids):
        x = torch_lstm(p, "encoder.before0", x)
        x = torch.cat([x[:, 0::2], x[:, 1::2]], -1)
        x = torch_lstm(p, "encoder.behind1", torch_lstm(p, "encoder.behind0", x))
        y = F.pad(p["prediction.embedding.weight"][ids], (0, 0, 1, 0))
        y = torch_lstm(p, "prediction.lstm1", torch_lstm(p, "prediction.lstm0", y))
        heard, said = linear(p, "joint.encoder", x), linear(p, "joint.prediction", y)
        return (linear(p, "joint.classes", F.relu(heard[:, :, None] + said[:, None])).flatten(1, 2),)

    network = zoo.build("rnnt-tiny", features=7, encoder=6, behind=2, prediction=5, joint=4, classes=9)
    assert_twins(network, twin, sizes={"frames": 8, "tokens": 3, "lattice": 16})


def test_dqn_equals_its_twin():
    def twin(p, x):
        for at, stride in enumerate((4, 2, 1)):
            x = F.relu(F.conv2d(x, p[f"conv{at}.weight"], p[f"conv{at}.bias"], stride=stride))
        return (linear(p, "values", F.relu(linear(p, "hidden", x.flatten(1)))),)

    assert_twins(zoo.build("dqn"), twin, batch=2)


def test_a3c_equals_its_twin():
    def twin(p, x):
        for at, stride in enumerate((4, 2)):
            x = F.relu(F.conv2d(x, p[f"conv{at}.weight"], p[f"conv{at}.bias"], stride=stride))
        x = F.relu(linear(p, "hidden", x.flatten(1)))
        return linear(p, "policy", x), linear(p, "value", x)

    assert_twins(zoo.build("a3c"), twin, batch=2)


def test_the_autoencoder_equals_its_twin_and_its_code_is_linear():
    def twin(p, x):
        for at in range(4):
            x = linear(p, f"layer{at}", x)
            x = x if at == 1 else torch.sigmoid(x)
        return (x,)

    assert_twins(zoo.build("autoencoder", widths=(12, 7, 3)), twin)


def vae_twin(p, x, noise):
    h = torch.tanh(linear(p, "encoder", x))
    code = torch.distributions.Normal(linear(p, "mean", h), torch.exp(linear(p, "log_variance", h) / 2))
    logits = linear(p, "pixels", torch.tanh(linear(p, "decoder", code.mean + code.stddev * noise)))
    return code, logits


def test_the_loss_of_the_vae_is_the_evidence_lower_bound():
    network = zoo.build("vae", pixels=9, hidden=7, latent=3)

    def outputs(p, x, noise):
        code, logits = vae_twin(p, x, noise)
        return torch.sigmoid(logits), code.mean, 2 * torch.log(code.stddev)

    def loss(p, x, noise):
        code, logits = vae_twin(p, x, noise)
        prior = torch.distributions.Normal(torch.zeros(3), torch.ones(3))
        likelihood = -F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1)
        return (torch.distributions.kl_divergence(code, prior).sum(1) - likelihood).mean()

    assert_twins(network, outputs, network, loss)


def test_neural_collaborative_filtering_equals_its_twin():
    def twin(p, user, item):
        product = p["factors.user.weight"][user] * p["factors.item.weight"][item]
        x = torch.cat([p["perceptron.user.weight"][user], p["perceptron.item.weight"][item]], 1)
        for at in range(2):
            x = F.relu(linear(p, f"layer{at}", x))
        return (linear(p, "score", torch.cat([product, x], 1)),)

    assert_twins(zoo.build("ncf", users=11, items=13, factors=4, layers=(16, 8, 4)), twin, batch=5)


def test_ncf_ranks_the_items_of_a_row_as_pairs():
    settings = {"users": 11, "items": 13, "factors": 4, "layers": (16, 8, 4)}
    pairs, rows = (ncf(**settings, rows=each) for each in (False, True))
    parameters, draws = shaken(pairs), np.random.default_rng(0)
    users, items = draws.integers(0, 11, 5), draws.integers(0, 13, (5, 3))
    (found,) = run(rows, parameters, users, items)
    (expected,) = run(pairs, parameters, np.repeat(users, 3), items.ravel())
    np.testing.assert_allclose(found, expected.reshape(5, 3), rtol=1e-6)


def test_ncf_without_layers_is_a_product_of_factors():
    def twin(p, user, item):
        return (linear(p, "score", p["factors.user.weight"][user] * p["factors.item.weight"][item]),)

    assert_twins(ncf(users=11, items=13, factors=4, layers=()), twin, batch=5)


def test_dlrm_equals_its_twin():
    def twin(p, dense, *categories):
        for at in range(3):
            dense = F.relu(linear(p, f"bottom.layer{at}", dense))
        vectors = [dense, *(p[f"table{at}.weight"][ids] for at, ids in enumerate(categories))]
        pairs = [(vectors[i] * vectors[j]).sum(1) for i in range(4) for j in range(i)]
        x = torch.cat([dense, torch.stack(pairs, 1)], 1)
        return (linear(p, "top.layer1", F.relu(linear(p, "top.layer0", x))),)

    network = zoo.build("dlrm", tables=(5, 7, 11), width=4, dense=6, bottom=(8, 7), top=(9,))
    assert_twins(network, twin, batch=6)


def test_alphago_zero_equals_its_twin():
    def block(p, name, x, padding=1):
        return batch_norm(p, f"{name}.norm", F.conv2d(x, p[f"{name}.conv.weight"], padding=padding))

    def twin(p, x):
        x = F.relu(block(p, "stem", x))
        for at in range(2):
            x = F.relu(x + block(p, f"block{at}.second", F.relu(block(p, f"block{at}.first", x))))
        policy, value = (F.relu(block(p, f"{head}.reduce", x, 0)).flatten(1) for head in ("policy", "value"))
        value = F.relu(linear(p, "value.hidden", value))
        return linear(p, "policy.moves", policy), torch.tanh(linear(p, "value.outcome", value))

    assert_twins(zoo.build("alphago-zero-tiny", filters=4, board=5), twin)


def test_the_memory_network_equals_its_twin():
    words, width = 4, 6
    encoding = torch.tensor(
        [[1 - j / words - k / width * (1 - 2 * j / words) for k in range(1, width + 1)] for j in range(1, words + 1)]
    )

    def twin(p, story, question):
        tables = [F.pad(p[f"table{at}.weight"][1:], (0, 0, 1, 0)) for at in range(3)]
        times = [p[f"table{at}.time"][: story.shape[1]] for at in range(3)]
        state = (tables[0][question] * encoding).sum(1)
        for hop in range(2):
            memory, written = ((tables[at][story] * encoding).sum(2) + times[at] for at in (hop, hop + 1))
            state = state + torch.einsum("bs,bsw->bw", torch.einsum("bsw,bw->bs", memory, state).softmax(1), written)
        return (state @ p["table2.weight"].T,)

    network = zoo.build("memnet", vocabulary=15, width=width, hops=2, sentences=7, words=words)
    assert_twins(network, twin, sizes={"sentences": 5})


def test_padding_is_ignored_by_the_memory_network():
    network = zoo.build("memnet")
    story, question = network.make_inputs(2).values()
    story[:, :, 6:] = 0
    parameters = shaken(network)
    (before,) = run(network, parameters, story, question)
    for at in range(3):
        parameters[f"table{at}.weight"][0] += 100
    (after,) = run(network, parameters, story, question)
    np.testing.assert_array_equal(before, after)


def test_the_generator_equals_its_twin():
    def twin(p, x):
        for at in range(5):
            stride, padding = (2, 1) if at else (1, 0)
            x = F.conv_transpose2d(x, p[f"layer{at}.weight"], stride=stride, padding=padding)
            x = F.relu(batch_norm(p, f"layer{at}.norm", x)) if at < 4 else torch.tanh(x)
        return (x,)

    assert_twins(zoo.build("wgan-generator", latent=5, features=2), twin, batch=2)


def test_the_critic_equals_its_twin():
    def twin(p, x):
        for at in range(4):
            x = F.conv2d(x, p[f"layer{at}.weight"], stride=2, padding=1)
            x = F.leaky_relu(batch_norm(p, f"layer{at}.norm", x) if at else x, 0.2)
        return (F.conv2d(x, p["score.weight"]),)

    assert_twins(zoo.build("wgan-critic", features=2), twin, batch=2)


def flux_twin(p, *inputs, heads=2, axes=(4, 6, 6), side=4):
    """PyTorch's own attention and norms; places are turned as complex numbers, the text's with the others."""
    image, text, pooled, *times = inputs
    count, length = side * side, text.shape[1]
    places = torch.tensor([(0, 0, 0)] * length + [(0, *divmod(at, side)) for at in range(count)], dtype=torch.float32)
    rates = [torch.tensor([10000.0 ** (-2 * k / each) for k in range(each // 2)]) for each in axes]
    angles = torch.cat([torch.outer(places[:, axis], rate) for axis, rate in enumerate(rates)], dim=1)
    turns = torch.polar(torch.ones_like(angles), angles)

    def layer(name, x):
        return x @ p[f"{name}.weight"] + p[f"{name}.bias"]

    def perceptron(name, x):
        return layer(f"{name}.output", F.silu(layer(f"{name}.input", x)))

    def waves(time):
        angles = 1000 * time[:, None] * torch.tensor([10000.0 ** (-k / 128) for k in range(128)])
        return torch.cat([angles.cos(), angles.sin()], dim=1)

    def norm(x, shift, scale):
        return F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale) + shift

    def modulations(name, parts):
        return layer(f"{name}.modulation", F.silu(state))[:, None].chunk(parts, dim=-1)

    def by_head(name, x):
        query, key, value = (each.unflatten(-1, (heads, -1)).transpose(1, 2) for each in x.chunk(3, dim=-1))
        scales = (p[f"{name}.{each}.norm.scale"] for each in ("query", "key"))
        return *(
            F.rms_norm(each, each.shape[-1:], scale, 1e-6) for each, scale in zip((query, key), scales, strict=True)
        ), value

    def turned(x):
        z = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * turns
        return torch.view_as_real(z).flatten(-2)

    def attention(query, key, value):
        return F.scaled_dot_product_attention(turned(query), turned(key), value).transpose(1, 2).flatten(2)

    state = sum(perceptron(name, waves(each)) for name, each in zip(("time", "guidance"), times, strict=False))
    state = state + perceptron("pooled", pooled)
    x = {"text": layer("text", text), "image": layer("image", image)}
    changes = {name: modulations(f"double0.{name}", 6) for name in x}
    parts = [
        by_head(f"double0.{name}", layer(f"double0.{name}.input", norm(each, *changes[name][:2])))
        for name, each in x.items()
    ]
    mixed = attention(*(torch.cat(pair, dim=2) for pair in zip(*parts, strict=True)))
    for name, found in zip(x, mixed.split([length, count], dim=1), strict=True):
        change, prefix = changes[name], f"double0.{name}"
        y = x[name] + change[2] * layer(f"{prefix}.output", found)
        z = F.gelu(layer(f"{prefix}.mlp.input", norm(y, *change[3:5])), approximate="tanh")
        x[name] = y + change[5] * layer(f"{prefix}.mlp.output", z)
    y = torch.cat([x["text"], x["image"]], dim=1)
    shift, scale, gate = modulations("single0", 3)
    width = y.shape[-1]
    projected, hidden = layer("single0.input", norm(y, shift, scale)).split([3 * width, 4 * width], dim=-1)
    both = torch.cat([attention(*by_head("single0", projected)), F.gelu(hidden, approximate="tanh")], dim=-1)
    y = y + gate * layer("single0.output", both)
    return (layer("final.linear", norm(y[:, length:], *modulations("final", 2))),)


@pytest.mark.parametrize("guided", [False, True])
def test_flux_equals_a_twin_with_pytorchs_attention(guided):
    assert_twins(zoo.build("flux-tiny", guided=guided), flux_twin, sizes={"text": 5})


def test_flux_with_axes_that_do_not_fill_a_head_is_refused():
    with pytest.raises(DefinitionError, match="sum is the width of a head"):
        zoo.build("flux-tiny", axes=[2, 6, 6])
