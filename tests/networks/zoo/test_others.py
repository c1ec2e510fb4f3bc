"""Networks beyond vision classification: sizes as published, mathematics as in the papers, equal on every framework."""

import re
from pathlib import Path

import numpy as np
import pytest

from levelbench.errors import DefinitionError
from levelbench.networks import zoo
from levelbench.networks.cost import network_cost
from levelbench.networks.zoo import (
    alphago_zero,
    autoencoder,
    bert,
    deepspeech,
    dlrm,
    dqn,
    gan,
    gpt2,
    lstm_lm,
    memory_network,
    ncf,
    rnnt,
    seq2seq,
    transformer,
)
from levelbench.operators.frameworks import load_framework, open_framework

MODULES = (
    *(alphago_zero, autoencoder, bert, deepspeech, dlrm, dqn, gan),
    *(gpt2, lstm_lm, memory_network, ncf, rnnt, seq2seq, transformer),
)
NAMES = [name for module in MODULES for name in module.NAMES]

# Counted by hand from the papers' sizes, where nobody published an exact one.
COUNTS = {
    "lstm-lm-small": 2 * 10000 * 200 + 10000 + 2 * 4 * (200 * 400 + 200),
    "lstm-lm-medium": 2 * 10000 * 650 + 10000 + 2 * 4 * (650 * 1300 + 650),
    "lstm-lm-large": 2 * 10000 * 1500 + 10000 + 2 * 4 * (1500 * 3000 + 1500),
    "transformer-base": 37000 * 512
    + 6 * (4 * 512**2 + 2 * 512 * 2048 + 2560 + 4 * 512)
    + 6 * (8 * 512**2 + 2 * 512 * 2048 + 2560 + 6 * 512),
    "seq2seq": 3 * 50000 * 1000 + 8 * 4 * (2000 * 1000 + 1000) + 2000 * 1000,
    "deepspeech2": (41 * 11 + 3) * 32
    + (32 * 21 * 11 + 3) * 32
    + 2 * 3 * 800 * (672 + 800 + 2)
    + 4 * (2 * 3 * 800 * (800 + 800 + 2) + 2 * 800)
    + 2 * 800
    + 800 * 29,
    "alphago-zero": (9 * 17 + 2) * 256
    + 19 * 2 * (9 * 256 + 2) * 256
    + (256 + 2) * 2
    + (2 * 361 + 1) * 362
    + (256 + 2)
    + (361 + 1) * 256
    + 257,
    "dlrm": 33_762_577 * 16
    + 14 * 512
    + 513 * 256
    + 257 * 64
    + 65 * 16
    + (16 + 27 * 26 // 2 + 1) * 512
    + 513 * 256
    + 257,
    "transformer-big": 37000 * 1024
    + 6 * (4 * 1024**2 + 2 * 1024 * 4096 + 5120 + 4 * 1024)
    + 6 * (8 * 1024**2 + 2 * 1024 * 4096 + 5120 + 6 * 1024),
    "rnnt": 4096 * (240 + 1024 + 2)
    + 3 * 4096 * (2048 + 2)
    + 4096 * (3072 + 2)
    + 1023 * 512
    + 2 * 2048 * (1024 + 2)
    + (1024 + 1 + 512 + 1) * 512
    + 513 * 1024,
    "a3c": (4 * 64 + 1) * 16 + (16 * 16 + 1) * 32 + (32 * 81 + 1) * 256 + 257 * 5,
    "vae": 785 * 500 + 2 * 501 * 20 + 21 * 500 + 501 * 784,
    "memnet": 4 * (177 + 50) * 20,
}


def shaken(network, seed=0, scale=0.2):
    """Parameters away from where training starts, where biases of zero and scales of one would hide a mistake."""
    generator = np.random.default_rng(seed)
    return {
        name: (np.abs(noisy) + 0.1 if name.endswith("running_var") else noisy).astype(array.dtype)
        for name, array in network.initialise(seed).items()
        for noisy in [array + scale * generator.standard_normal(array.shape)]
    }


def run(network, parameters, *inputs, **options):
    return open_framework("numpy").executor(network, parameters, **options).infer(*inputs)


# Sizes


@pytest.mark.parametrize("name", NAMES)
def test_the_count_of_parameters_is_the_published_one_or_the_entry_says_by_how_much_not(name):
    published, count = zoo.entry(name).published, zoo.build(name).parameter_count()
    assert published.source
    if count != published.parameters:
        assert published.note
        assert published.parameters is None or f"{count:,}" in published.note


@pytest.mark.parametrize("name", COUNTS)
def test_a_count_that_nobody_published_to_the_scalar_is_that_of_the_papers_sizes(name):
    assert zoo.build(name).parameter_count() == COUNTS[name]


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"head": "masked-lm"}, 109_514_298),
        ({"head": "question-answering"}, 109_482_240 - 768 * 769 + 2 * 769),
        ({"head": "classification"}, 109_482_240 + 2 * 769),
    ],
)
def test_bert_with_a_head_has_the_published_count(options, count):
    assert zoo.build("bert-base", **options).parameter_count() == count


# Of one sample of the usual sizes: 35 tokens, 128 tokens, a frame.
MULTIPLY_ADDS = {
    "lstm-lm-medium": 35 * (2 * 4 * 650 * 1300 + 650 * 10000),
    "gpt2-small": 128 * (12 * 12 * 768**2 + 768 * 50257) + 12 * 2 * 128**2 * 768,
    "bert-base": 128 * 12 * 12 * 768**2 + 12 * 2 * 128**2 * 768 + 768**2,
    "transformer-base": 64 * (6 * (12 + 16) * 512**2 + 512 * 37000) + 18 * 2 * 64**2 * 512,
    "dqn": 20**2 * 32 * 4 * 64 + 9**2 * 64 * 32 * 16 + 7**2 * 64 * 64 * 9 + 3136 * 512 + 512 * 4,
    "autoencoder": 2 * (784 * 1000 + 1000 * 500 + 500 * 250 + 250 * 30),
}


@pytest.mark.parametrize("name", MULTIPLY_ADDS)
def test_multiply_adds_are_those_of_the_papers_sizes(name):
    assert network_cost(zoo.build(name)).multiply_adds == MULTIPLY_ADDS[name]


def test_berts_multiply_adds_are_the_published_ones_within_1_percent():
    ours = network_cost(zoo.build("bert-base"), sizes={"length": 128}).multiply_adds
    assert ours == pytest.approx(zoo.entry("bert-base").published.multiply_adds, rel=0.01)


def test_the_page_of_coverage_names_entries_that_exist():
    page = (Path(zoo.__file__).parents[4] / "docs" / "zoo-coverage.md").read_text()
    rows = [line.split("|")[2] for line in page.splitlines() if line.startswith("|")]
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert len(named) > 20
    assert named <= set(zoo.names())


@pytest.mark.parametrize(
    ("name", "parameter", "std"),
    [
        ("lstm-lm-small", "lstm0.recurrent", 0.1 / 3**0.5),
        ("lstm-lm-medium", "softmax.bias", 0.05 / 3**0.5),
        ("bert-tiny", "encoder.layer1.intermediate.weight", 0.02),
        ("gpt2-tiny", "token.weight", 0.02),
        ("gpt2-tiny", "position.weight", 0.01),
        ("transformer-tiny", "embedding.weight", 32**-0.5),
        ("transformer-tiny", "encoder0.feed_forward.input.weight", (2 / (32 + 64)) ** 0.5),
        ("memnet", "table2.weight", 0.1),
        ("dqn", "hidden.weight", 3136**-0.5 / 3**0.5),
        ("wgan-critic", "layer2.weight", 0.02),
        ("alphago-zero-tiny", "block1.first.conv.weight", (2 / (16 * 9)) ** 0.5),
    ],
)
def test_weights_are_drawn_as_the_paper_or_its_code_says(name, parameter, std):
    (found,) = (each for each in zoo.build(name).parameters if each.name == parameter)
    weights = found.initialise(0)
    assert weights.std() == pytest.approx(std, rel=0.05)
    assert abs(weights.mean()) < 4 * std / weights.size**0.5


def test_a_head_that_bert_has_not_is_an_error_that_names_those_it_has():
    with pytest.raises(DefinitionError, match="masked-lm"):
        zoo.build("bert-tiny", head="translation")


def test_names_of_entries_are_those_of_their_modules():
    assert set(NAMES) <= set(zoo.names())
    assert all(zoo.entry(name).paper and zoo.entry(name).summary for name in NAMES)
    assert all(zoo.build(name).name == name for name in NAMES)


# Mathematics


torch = pytest.importorskip("torch")
F = torch.nn.functional


def assert_close(ours, theirs, relative, floor=0.0):
    theirs = theirs.detach().numpy()
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= max(relative * np.abs(theirs).max(), floor)


def assert_twins(network, twin, trained=None, twin_loss=None, *, sizes=None, batch=3, exceptions=()):
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
    # Not the variances: ONNX keeps that of the batch, PyTorch an estimate that is larger by n / (n - 1).
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


def test_padding_of_a_sentence_counts_for_nothing_in_the_memory_network():
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


# Agreement

SMALL = {
    "lstm-lm-small": {"vocabulary": 23, "width": 8},
    "seq2seq": {"layers": 2, "width": 8, "source_vocabulary": 17, "target_vocabulary": 19},
    "gnmt": {"width": 8, "vocabulary": 17, "layers": 3},
    "bert-tiny": {"vocabulary": 31, "width": 16, "layers": 1},
    "gpt2-tiny": {"vocabulary": 29, "width": 16, "layers": 1},
    "transformer-tiny": {"vocabulary": 29, "width": 16, "inner": 24, "layers": 1},
    "deepspeech2-tiny": {"hidden": 6, "channels": 2},
    "memnet": {"hops": 2},
    "dqn": {},
    "a3c": {},
    "autoencoder": {"widths": (12, 7, 3)},
    "vae": {"pixels": 9, "hidden": 7, "latent": 3},
    "ncf": {"users": 11, "items": 13, "factors": 4, "layers": (16, 8, 4)},
    "rnnt-tiny": {"features": 7, "encoder": 6, "prediction": 5, "joint": 4, "classes": 9},
    "dlrm": {"tables": (5, 7, 11), "width": 4, "bottom": (8, 7), "top": (9,)},
    "alphago-zero-tiny": {"filters": 4, "board": 5},
    "wgan-generator": {"features": 2},
    "wgan-critic": {"features": 2},
}
SIZES = {"length": 7, "source": 6, "target": 5, "frames": 52, "steps": 11, "sentences": 9, "tokens": 3}


TRAINED = ("bert-tiny", "deepspeech2-tiny", "gpt2-tiny", "lstm-lm-small", "memnet")
"""Those whose gradients are compared, and with them what they compute."""


# XLA takes long to compile: it computes only what it is not asked the gradients of.
@pytest.mark.parametrize(
    ("framework", "name"),
    [
        (framework, name)
        for framework in ("torch", "jax", "onnxruntime")
        for name in SMALL
        if framework != "jax" or name not in TRAINED
    ],
)
def test_a_framework_computes_what_the_reference_computes(framework, name):
    if missing := load_framework(framework).lacks():
        pytest.skip(missing)
    backend, network = open_framework(framework), zoo.build(name, **SMALL[name])
    parameters, inputs = shaken(network), network.make_inputs(2, sizes=SIZES)
    found = backend.executor(network, parameters, trains=False).infer(*map(backend.array, inputs.values()))
    for mine, reference in zip(found, run(network, parameters, *inputs.values()), strict=True):
        assert_close(backend.host(mine), torch.tensor(reference), 1e-4)


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_framework_finds_the_gradients_that_the_reference_finds(name, framework):
    if missing := load_framework(framework).lacks():
        pytest.skip(missing)
    network = zoo.build(name, **SMALL[name])
    network = network.with_loss("cross-entropy" if network.outputs[0].name == "logits" else "mse")
    parameters, inputs = shaken(network), network.make_inputs(2, sizes=SIZES)
    loss, wanted = open_framework("numpy").executor(network, parameters).infer_and_backprop(*inputs.values())
    backend = open_framework(framework)
    executor = backend.executor(network, parameters)
    found, gradients = executor.infer_and_backprop(*map(backend.array, inputs.values()))
    assert float(backend.host(found)) == pytest.approx(float(loss), rel=1e-4)
    floor = 1e-6 * max(float(np.abs(each).max()) for each in wanted.values())
    assert set(gradients) == set(wanted)
    for parameter, gradient in wanted.items():
        assert_close(backend.host(gradients[parameter]), torch.tensor(gradient), 1e-3, floor)
