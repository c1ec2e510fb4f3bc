"""The text tasks: their parts fit together, and their networks learn, on generated data in the real format."""

import hashlib
import json
from functools import cache

import numpy as np
import pytest

from levelbench.measure.clocks import FakeClock
from levelbench.measure.timeline import Timeline
from levelbench.networks.losses import with_span_loss
from levelbench.networks.zoo.reading import bidaf
from levelbench.tasks import charlm, code_lm, spam, squad, translation
from levelbench.training.datasets.bibles import ENGLISH, SPANISH
from levelbench.training.datasets.places import DataFile
from levelbench.training.datasets.questions import Squad
from levelbench.training.optimizers import EMA, Adam
from levelbench.training.quality import SpanF1
from levelbench.training.samplers import Shuffled
from levelbench.training.stopping import Evaluate, Stopping
from levelbench.training.task import Recipe
from levelbench.training.trainer import Trainer

TASKS = {each.task.name: each.task for each in (charlm, code_lm, spam, squad, translation)}
RECIPES = [(name, recipe) for name, task in TASKS.items() for recipe in task.recipes]

needs_bibles = pytest.mark.skipif(
    ENGLISH.folder(None) is None or SPANISH.folder(None) is None,
    reason="the packages sword-text-web and sword-text-sparv are not installed",
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LEVELBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LEVELBENCH_DATA", raising=False)


@pytest.fixture
def torch_backend():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from levelbench.frameworks.torch import framework

    return framework.open("cpu")


@cache
def assembled(task, recipe):
    return TASKS[task].assemble(recipe, TASKS[task].settings(recipe))


@pytest.mark.parametrize("task", TASKS)
def test_each_task_has_two_or_more_described_recipes(task):
    assert len(TASKS[task].recipes) >= 2
    assert all(TASKS[task].recipe_function(each).__doc__ for each in TASKS[task].recipes)


@pytest.mark.parametrize(
    ("task", "target", "direction"),
    [
        ("squad", 0.75, "higher"),
        ("charlm", 1.82, "lower"),
        ("code-lm", 2.37, "lower"),
        ("spam", 0.979, "higher"),
        ("translation-en-es", 8.0, "higher"),
    ],
)
def test_each_task_has_its_target_and_direction(task, target, direction):
    found = TASKS[task].quality.as_target()
    assert (found.threshold, found.direction) == (target, direction)


def test_squads_older_threshold_can_be_requested():
    assert TASKS["squad"].quality.as_target(0.73).threshold == 0.73


def test_bidaf_has_the_number_of_parameters_in_its_paper():
    recipe = assembled("squad", "bidaf")
    words = 30_000 * 100  # the paper's word vectors are fixed and not counted
    assert recipe.network.parameter_count() - words == pytest.approx(2.6e6, rel=0.02)
    assert (recipe.sampler.batch, recipe.optimizer.optimizer.lr, recipe.epochs) == (60, 0.5, 12)


COLUMNS = {
    "charlm": [(128,), (128,)],
    "code-lm": [(128,), (128,)],
    "spam": [(256,), (256,), ()],
    "squad": [(400,), (400, 16), (400,), (50,), (50, 16), (50,), (), ()],
    "translation-en-es": [(40,)] * 4,
}


@pytest.mark.parametrize(("task", "recipe"), RECIPES)
def test_networks_take_the_columns_of_their_data(task, recipe):
    network = assembled(task, recipe).trained_network()
    sizes = {"length": COLUMNS[task][0][0], "source": 40, "target": 40}
    shapes = [
        tuple(each if isinstance(each, int) else sizes.get(each) or network.sizes[each] for each in value.shape[1:])
        for value in network.inputs
    ]
    assert shapes == COLUMNS[task]
    assert {value.dtype for value in network.inputs} == {"int64"}


@pytest.mark.slow
@needs_bibles
def test_the_vocabulary_covers_the_real_characters():
    data = TASKS["charlm"].data.load()
    assert data.classes <= charlm.VOCABULARY
    assert [column.shape[1:] for column in data.train.columns] == COLUMNS["charlm"]


SMALL = {
    ("charlm", "lstm"): {"width": 32},
    ("charlm", "gpt"): {"width": 32, "heads": 2},
    ("code-lm", "gpt"): {"width": 32, "heads": 2},
    ("code-lm", "llama"): {"width": 32, "inner": 64},
    ("code-lm", "moe"): {"width": 32, "inner": 32},
    ("spam", "bag"): {},
    ("spam", "onecycle"): {},
    ("squad", "bidaf"): {"hidden": 8, "dropout": 0.0},
    ("squad", "qanet"): {"width": 16, "blocks": 1, "heads": 2, "dropout": 0.0},
    ("translation-en-es", "small_transformer"): {"width": 32, "heads": 2, "dropout": 0.0},
    ("translation-en-es", "onecycle"): {"width": 32, "heads": 2, "dropout": 0.0},
}


def test_all_recipes_are_trained_here():
    assert set(SMALL) == set(RECIPES)


@pytest.mark.slow
@pytest.mark.parametrize(("task", "recipe"), RECIPES)
def test_a_recipes_network_learns_a_batch_by_heart(torch_backend, task, recipe):
    made = TASKS[task].assemble(recipe, TASKS[task].settings(recipe, SMALL[task, recipe]))
    network = made.trained_network()
    given = network.make_inputs(2, 0, {"length": 16, "source": 12, "target": 12, "context": 20, "question": 8})
    for name in given:
        if name.endswith("_mask"):
            given[name][:] = 1
    given |= {name: each % 20 for name, each in given.items() if name in ("labels", "starts", "ends")}
    given = {name: np.maximum(each, 1) if name == "labels" and each.ndim == 2 else each for name, each in given.items()}
    executor = torch_backend.executor(network, network.initialise(0))
    stepper = Adam(0.01).start(torch_backend, executor.parameters)
    inputs = [torch_backend.array(each) for each in given.values()]
    losses = []
    for step in range(1, 13 if task == "squad" else 31):
        losses.append(float(executor.forward(*inputs)))
        stepper.step(executor.backward(), step, 1.0)
    assert losses[-1] < 0.7 * losses[0]


# Reading, on made questions in SQuAD's format

COLOURS = ("red", "blue", "green", "black", "white", "brown")
THINGS = ("box", "door", "ship", "house", "hat", "cup")


def made(articles, seed):
    """Paragraphs that give three things their colours; each question asks for one of them."""
    rng = np.random.default_rng(seed)
    data = []
    for article in range(articles):
        facts = list(zip(rng.permutation(THINGS)[:3], rng.choice(COLOURS, 3), strict=True))
        context = " ".join(f"{thing} is {colour}." for thing, colour in facts)
        qas = [
            {
                "id": f"{seed}.{article}.{at}",
                "question": f"{thing}?",
                "answers": [{"text": str(colour), "answer_start": context.index(f"{thing} is") + len(thing) + 4}],
            }
            for at, (thing, colour) in enumerate(facts)
        ]
        data.append({"title": f"{seed}.{article}", "paragraphs": [{"context": context, "qas": qas}]})
    return {"version": "1.1", "data": data}


def made_squad(folder):
    files = []
    for name, content in (("train-v1.1.json", made(400, 1)), ("dev-v1.1.json", made(40, 2))):
        text = json.dumps(content).encode()
        (folder / name).write_bytes(text)
        files.append(DataFile(name, hashlib.sha256(text).hexdigest()))
    return Squad(*files, words=40, context=12, question=4).load(folder)


SIZES = {"words": 40, "word_width": 16, "filters": 8, "context": 12, "question": 4, "dropout_ratio": 0.0}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "optimizer", "epochs"),
    [
        (bidaf(hidden=16, **SIZES), Adam(0.01), 14),
        (bidaf(hidden=16, **SIZES), EMA(Adam(0.01), 0.9), 14),
    ],
    ids=["bidaf", "bidaf-averaged"],
)
def test_bidaf_learns_to_answer_made_questions(torch_backend, tmp_path, network, optimizer, epochs):
    data = made_squad(tmp_path)
    recipe = Recipe(with_span_loss(network), Shuffled(30), optimizer, epochs)
    quality = SpanF1(0.9)
    stopping = Stopping(quality.as_target(), "first", Evaluate.parse("1 epoch"), recipe.epochs)
    timeline = Timeline(FakeClock(tick_ns=1000))
    trainer = Trainer(torch_backend, data, recipe, quality, stopping, seed=0, timeline=timeline)
    assert quality.measure(trainer.executor, trainer._validation) < 0.6
    outcome = trainer.run()
    assert outcome.stopped_by == "target reached"
    assert outcome.quality["test"] > 0.8
