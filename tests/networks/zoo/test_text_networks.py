"""Networks that read text, compared with independent implementations, and what padding must not change."""

import numpy as np
import pytest

from levelbench.errors import DefinitionError
from levelbench.networks.losses import with_span_loss, with_token_loss
from levelbench.networks.zoo import build
from levelbench.networks.zoo.language import word_bag
from levelbench.networks.zoo.reading import bidaf, small_qanet

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

SIZES = {"words": 30, "word_width": 5, "characters": 20, "character_width": 3, "filters": 6, "letters": 7}
READERS = {
    "bidaf": bidaf(hidden=4, dropout_ratio=0.0, **SIZES),
    "qanet": small_qanet(width=8, heads=2, blocks=1, context=9, question=5, dropout_ratio=0.0, **SIZES),
}


@pytest.fixture(scope="module")
def backend():
    from levelbench.frameworks.torch import framework

    return framework.open("cpu")


def inferred(backend, network, inputs, parameters=None):
    executor = backend.executor(network, parameters or network.initialise(0), trains=False)
    return [backend.host(each) for each in executor.infer(*(backend.array(each) for each in inputs.values()))]


def texts(seed=0):
    """Inputs of a reader: two paragraphs of 9 and 6 words, two questions of 3 and 5."""
    rng = np.random.default_rng(seed)
    given = {}
    for name, width, lengths in (("context", 9, (9, 6)), ("question", 5, (3, 5))):
        given[f"{name}_ids"] = rng.integers(1, 30, (2, width))
        given[f"{name}_characters"] = rng.integers(0, 20, (2, width, 7))
        given[f"{name}_mask"] = (np.arange(width) < np.array(lengths)[:, None]).astype(np.int64)
    return given


@pytest.mark.parametrize("reader", READERS)
def test_the_contents_of_padding_do_not_matter(backend, reader):
    given = texts()
    other = {name: each.copy() for name, each in given.items()}
    for name in ("context", "question"):
        padding = given[f"{name}_mask"] == 0
        other[f"{name}_ids"][padding] = 7
        other[f"{name}_characters"][padding] = 3
    for ours, theirs in zip(*(inferred(backend, READERS[reader], each) for each in (given, other)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("reader", READERS)
def test_padding_is_never_the_answer(backend, reader):
    for logits in inferred(backend, READERS[reader], texts()):
        assert logits.shape == (2, 9)
        assert logits[1, 6:].max() < logits[1, :6].min() - 1000


@pytest.mark.parametrize("reader", READERS)
def test_question_and_characters_change_the_answer(backend, reader):
    given = texts()
    before = inferred(backend, READERS[reader], given)
    for name in ("question_ids", "question_characters", "context_characters"):
        after = inferred(backend, READERS[reader], {**given, name: (given[name] + 1) % 20})
        assert all(np.abs(left - right).max() > 1e-4 for left, right in zip(before, after, strict=True))


def test_bidaf_equals_a_twin_in_pytorch(backend):
    """Seo et al. 2017, section 2, written from the paper without sharing code with ours."""
    network = READERS["bidaf"]
    drawn = network.initialise(1)
    given = {name: torch.from_numpy(each) for name, each in texts(1).items()}
    p = {name: torch.from_numpy(np.asarray(each)) for name, each in drawn.items()}

    def words(name):
        ids, spelled = given[f"{name}_ids"], given[f"{name}_characters"]
        letters = p["characters.weight"][spelled].flatten(0, 1).transpose(1, 2)  # (n, 3, 7)
        filters = p["characters.filter.weight"][:, 0].transpose(1, 2)  # (6, 3, 5)
        spelling = torch.nn.functional.conv1d(letters, filters, p["characters.filter.bias"])
        spelling = torch.relu(spelling).amax(2).reshape(*ids.shape, 6)
        return torch.cat([spelling, p["words.weight"][ids]], 2) * given[f"{name}_mask"][..., None]

    def lstm(name, x):
        cell = torch.nn.LSTM(x.shape[2], 4, batch_first=True, bidirectional=True)
        order = [0, 2, 3, 1]  # ours: input, output, forget, cell; PyTorch's: input, forget, cell, output
        with torch.no_grad():
            for at, suffix in enumerate(("", "_reverse")):
                for theirs, ours in (("weight_ih", "weight"), ("weight_hh", "recurrent"), ("bias_ih", "bias")):
                    gates = p[f"{name}.{ours}"][at].reshape(4, 4, -1)[order]
                    getattr(cell, f"{theirs}_l0{suffix}").copy_(
                        gates.reshape(getattr(cell, f"{theirs}_l0{suffix}").shape)
                    )
                getattr(cell, f"bias_hh_l0{suffix}").zero_()
            return cell(x)[0]

    def encoded(name):
        x = words(name)
        for layer in range(2):
            gate = torch.sigmoid(x @ p[f"highway{layer}.gate.weight"].T + p[f"highway{layer}.gate.bias"])
            made = torch.relu(x @ p[f"highway{layer}.transform.weight"].T + p[f"highway{layer}.transform.bias"])
            x = gate * made + (1 - gate) * x
        return lstm("contextual", x * given[f"{name}_mask"][..., None])

    h, u = encoded("context"), encoded("question")
    weight = torch.cat([p["similarity.context"][:, 0], p["similarity.question"][:, 0], p["similarity.both"]])
    left, right = torch.broadcast_tensors(h[:, :, None], u[:, None])
    scores = torch.cat([left, right, left * right], 3) @ weight
    scores = scores.masked_fill(given["question_mask"][:, None] == 0, -1e4)
    to_question = scores.softmax(2) @ u
    hidden = given["context_mask"] == 0
    to_context = (scores.amax(2).masked_fill(hidden, -1e4).softmax(1)[:, None] @ h).expand_as(h)
    merged = torch.cat([h, to_question, h * to_question, h * to_context], 2)
    model = lstm("modelling1", lstm("modelling0", merged))
    starts = (torch.cat([merged, model], 2) @ p["start.weight"].T)[..., 0].masked_fill(hidden, -1e4)
    guess = (starts.softmax(1)[:, None] @ model).expand_as(model)
    last = lstm("modelling2", torch.cat([merged, model, guess, model * guess], 2))
    ends = (torch.cat([merged, last], 2) @ p["end.weight"].T)[..., 0].masked_fill(hidden, -1e4)
    kept = ~hidden.numpy()
    for ours, theirs in zip(inferred(backend, network, texts(1), drawn), (starts, ends), strict=True):
        np.testing.assert_allclose(ours[kept], theirs.detach().numpy()[kept], rtol=1e-4, atol=1e-5)


def test_a_bag_is_the_mean_of_its_words(backend):
    network = word_bag(words=12, width=4, hidden=0, classes=3)
    drawn = network.initialise(0)
    ids = np.array([[3, 5, 0, 0], [1, 1, 2, 9], [0, 0, 0, 0]])
    (logits,) = inferred(backend, network, {"word_ids": ids, "word_mask": (ids != 0).astype(np.int64)}, drawn)
    table = drawn["embedding.weight"]
    means = [table[[3, 5]].mean(0), table[[1, 1, 2, 9]].mean(0), np.zeros(4)]
    expected = means @ drawn["classifier.weight"].T + drawn["classifier.bias"]
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-6)


def test_the_loss_of_tokens_ignores_padding(backend):
    network = with_token_loss(build("gpt2-tiny", layers=1, width=8, vocabulary=11, dropout_ratio=0.0))
    ids = np.random.default_rng(0).integers(0, 11, (2, 6))
    labels = np.array([[3, 4, 5, 0, 0, 0], [1, 2, 3, 4, 5, 0]])
    executor = backend.executor(network, network.initialise(0))
    loss = float(executor.forward(backend.array(ids), backend.array(labels)))
    (logits,) = executor.infer(backend.array(ids))
    expected = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), torch.from_numpy(labels).flatten(), ignore_index=0
    )
    assert loss == pytest.approx(float(expected), rel=1e-5)


def test_the_loss_of_a_span_is_that_of_its_two_ends(backend):
    network = with_span_loss(READERS["bidaf"])
    given = {**texts(), "starts": np.array([2, 0]), "ends": np.array([4, 5])}
    executor = backend.executor(network, network.initialise(0))
    loss = float(executor.forward(*(backend.array(each) for each in given.values())))
    logits = executor.infer(*(backend.array(each) for each in list(given.values())[:6]))
    expected = sum(
        torch.nn.functional.cross_entropy(each, torch.from_numpy(given[name]))
        for each, name in zip(logits, ("starts", "ends"), strict=True)
    )
    assert loss == pytest.approx(float(expected), rel=1e-5)


def test_a_second_loss_and_an_output_without_a_sequence_are_errors():
    network = with_token_loss(build("gpt2-tiny", layers=1, width=8, vocabulary=11))
    with pytest.raises(DefinitionError, match="it has one"):
        with_token_loss(network)
    with pytest.raises(DefinitionError, match="Give it 3 axes"):
        with_token_loss(word_bag(words=12))
