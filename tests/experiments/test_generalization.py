"""Kept models on other data: scores recomputed in NumPy, refusals of data that is not new, transfer by scikit-learn."""

import dataclasses
import hashlib
import re
import shutil

import msgspec
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from levelbench.errors import DataError, LevelbenchError, MissingError, UnsupportedError, UsageError
from levelbench.experiments.child import execute
from levelbench.experiments.generalization import (
    evaluation_sets,
    feature_value,
    images_of,
    models_of,
    open_models,
    transfer_task,
)
from levelbench.experiments.inference.making import LastWeights, keep_network
from levelbench.experiments.jobs import Job
from levelbench.experiments.request import Options, resolve
from levelbench.networks import zoo
from levelbench.records import Store, group_runs, new_id
from levelbench.training import datasets
from levelbench.training.corruptions import CORRUPTIONS, corrupted
from levelbench.training.datasets.base import Dataset, Normalisation, Split
from levelbench.training.input import Held


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The groups and the store of two models of digits, trained for an epoch."""
    folder = tmp_path_factory.mktemp("kept")
    arm = resolve("digits", {"hidden": 16}, Options(framework="numpy", budget_epochs=1))
    for seed in (0, 1):
        weights = LastWeights()
        job = Job("digits", arm.specification, key=arm.key, seed=seed, id=new_id(), store=str(folder))
        keep_network(job, execute(job, lambda told: None, also=(weights,)), weights, for_inference=False)
    return group_runs(Store(folder).summaries()), folder


@pytest.fixture
def models(kept):
    return models_of(*kept)


def logits_of(path, rows):
    """The outputs of a network of two layers, by NumPy, and its hidden layer."""
    shaped = {array.shape: array for array in map(numpy_helper.to_array, onnx.load(path).graph.initializer)}
    hidden = np.maximum(rows @ shaped[16, 64].T + shaped[16,], 0)
    return hidden @ shaped[10, 16].T + shaped[10,], hidden


def test_scores_are_those_of_numpy_on_the_same_arrays(models):
    backend, (opened,) = open_models(models, "numpy", "cpu")
    for each in evaluation_sets(models, ["noise[severity=5]", "shift"], seed=3):
        for model, (_, executor) in zip(models.models[0], opened, strict=True):
            logits, _ = logits_of(model.path, each.split.inputs)
            wanted = np.mean(logits.argmax(1) == each.split.labels)
            assert each.score(models.task, backend, executor) == pytest.approx(wanted, abs=1e-9)


def test_the_test_split_comes_first_and_scores_what_the_runs_recorded(models):
    backend, (opened,) = open_models(models, "numpy", "cpu")
    test = next(evaluation_sets(models, []))
    recorded = [each.facts.quality["test"] for each in models.models[0]]
    assert (test.kind, len(test.split)) == ("test", 359)
    assert [test.score(models.task, backend, executor) for _, executor in opened] == pytest.approx(recorded, abs=1e-9)


def test_corruptions_are_made_of_the_test_images_between_black_and_white(models):
    made = list(evaluation_sets(models, ["corruptions[severity=2]"]))[1:]
    assert [each.corruption for each in made] == list(CORRUPTIONS)
    assert all(each.what.startswith("made: ") for each in made)
    data = models.dataset
    low, high = float(data.train.inputs.min()), float(data.train.inputs.max())
    images = np.clip((data.test.inputs.reshape(-1, 1, 8, 8) - low) / (high - low), 0, 1)
    blurred = next(each for each in made if each.corruption == "blur")
    wanted = corrupted(images.astype(np.float32), "blur", 2).reshape(-1, 64) * (high - low) + low
    assert blurred.split.inputs == pytest.approx(wanted, abs=1e-4)
    assert np.array_equal(blurred.split.labels, data.test.labels)


def test_a_word_that_comes_twice_is_scored_once(models):
    names = [each.name for each in evaluation_sets(models, ["noise", "noise[severity=3]", "test"])]
    assert names == ["test", *(f"noise[severity={at}]" for at in range(1, 6))]


def bytes_dataset():
    rng = np.random.default_rng(0)
    splits = [Split.of(rng.integers(0, 256, (40, 3, 8, 8), np.uint8), np.arange(40) % 10) for _ in range(3)]
    normalisation = Normalisation((0.5, 0.4, 0.3), (0.2, 0.2, 0.2))
    return Dataset("bytes", *splits, 10, {"a": "1"}, "", "", "", normalisation=normalisation)


def test_images_of_bytes_are_divided_by_255():
    data = bytes_dataset()
    assert images_of(data, data.test) == pytest.approx(data.test.inputs / 255)


def test_corrupted_bytes_are_bytes_that_the_device_normalises(models):
    from levelbench.operators.frameworks import open_framework

    data = bytes_dataset()
    found = dataclasses.replace(models, dataset=data)
    (_, made) = evaluation_sets(found, ["contrast[severity=2]"])
    assert made.split.inputs.dtype == np.uint8
    wanted = np.rint(corrupted(data.test.inputs.astype(np.float32) / 255, "contrast", 2) * 255)
    assert np.array_equal(made.split.inputs, wanted)
    (batch, _) = next(Held(open_framework("numpy"), made.dataset, made.split).batches())
    mean = np.array([0.5, 0.4, 0.3]).reshape(1, 3, 1, 1)
    assert batch == pytest.approx((wanted / 255 - mean) / 0.2, abs=1e-4)


@pytest.mark.parametrize("word", ["train", "validation", "digits"])
def test_the_tasks_own_data_is_refused(models, word):
    with pytest.raises(UsageError, match="trained and tuned on it"):
        list(evaluation_sets(models, [word]))


def test_a_pair_of_files_is_a_set_of_the_same_classes(models, tmp_path):
    data = models.dataset
    rng = np.random.default_rng(0)
    rows = (data.test.inputs[:100] + 0.01 * rng.standard_normal((100, 64))).astype(np.float32)
    np.save(tmp_path / "x.npy", rows)
    np.save(tmp_path / "y.npy", data.test.labels[:100])
    backend, (opened,) = open_models(models, "numpy", "cpu")
    (_, fresh) = evaluation_sets(models, [f"{tmp_path}/x.npy,{tmp_path}/y.npy"])
    logits, _ = logits_of(models.models[0][0].path, rows)
    assert (fresh.kind, len(fresh.split)) == ("set", 100)
    assert fresh.score(models.task, backend, opened[0][1]) == np.mean(logits.argmax(1) == data.test.labels[:100])


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (lambda data, noise: data.train.inputs[:50] + noise[:50], "of the rows of .* a little changed"),
        (lambda data, noise: data.validation.inputs[:50] + noise[:50], "of the rows of .* a little changed"),
        (lambda data, noise: data.test.inputs[:50], "50 of the 50 rows of .* are in the test split"),
        (lambda data, noise: data.test.inputs[:50] + noise[:50], "^$"),
        (lambda data, noise: 100 * noise, "^$"),
    ],
)
def test_a_set_that_is_not_new_is_doubted(models, tmp_path, rows, words):
    noise = 0.01 * np.random.default_rng(0).standard_normal((200, 64))
    np.save(tmp_path / "x.npy", rows(models.dataset, noise).astype(np.float32))
    np.save(tmp_path / "y.npy", np.arange(len(np.load(tmp_path / "x.npy"))) % 10)
    (_, found) = evaluation_sets(models, [f"{tmp_path}/x.npy,{tmp_path}/y.npy"])
    assert re.search(words, "; ".join(found.doubts))


@pytest.mark.parametrize(
    ("rows", "doubted"),
    [
        (lambda data: images_of(data, data.test).reshape(-1, 64), True),
        (lambda data: 1000 * data.test.inputs, True),
        (lambda data: data.test.inputs + np.float32(5), True),
        (lambda data: np.rint(16 * images_of(data, data.test)).astype(np.uint8).reshape(-1, 64), True),
        (lambda data: 2 * images_of(data, data.test).reshape(-1, 64) - 1, True),
        (lambda data: data.test.inputs, False),
        (lambda data: np.clip(data.test.inputs + np.float32(0.4), None, data.test.inputs.max()), False),
        (lambda data: np.rint(255 * images_of(data, data.test)).astype(np.uint8).reshape(-1, 64), False),
    ],
)
def test_arrays_on_another_scale_than_the_tasks_rows_are_doubted(models, tmp_path, rows, doubted):
    np.save(tmp_path / "x.npy", rows(models.dataset))
    np.save(tmp_path / "y.npy", models.dataset.test.labels)
    (_, found) = evaluation_sets(models, [f"{tmp_path}/x.npy,{tmp_path}/y.npy"])
    said = [each for each in found.doubts if "task's scale?" in each]
    assert len(said) == doubted
    assert all(
        re.match(r"doubt: values of x\.npy have mean .* those of the test split 0\.00206 and 1:", s) for s in said
    )


def test_corruptions_of_the_tasks_own_rows_are_on_its_scale(models, tmp_path):
    np.save(tmp_path / "y.npy", models.dataset.test.labels)
    for made in list(evaluation_sets(models, ["corruptions"]))[1:]:
        np.save(tmp_path / "x.npy", made.split.inputs)
        (_, found) = evaluation_sets(models, [f"{tmp_path}/x.npy,{tmp_path}/y.npy"])
        assert not [each for each in found.doubts if "scale" in each], made.name


@pytest.mark.parametrize(
    ("rows", "labels", "words"),
    [
        (
            lambda data: data.train.inputs[:30],
            lambda data: data.train.labels[:30],
            "30 of its 30 rows are in the training",
        ),
        (lambda data: data.validation.inputs[:5], lambda data: data.validation.labels[:5], "validation split"),
        (lambda data: np.zeros((9, 28, 28), np.float32), lambda data: np.zeros(9, np.int64), "shape"),
        (lambda data: np.zeros((9, 64), np.float32), lambda data: np.full(9, 10), "11 classes"),
        (lambda data: np.zeros((9, 64), np.float32), lambda data: np.zeros(8, np.int64), "labels of shape"),
        (lambda data: np.zeros((9, 64), np.float32), lambda data: np.zeros(9), "float64"),
        (lambda data: np.full((9, 64), np.nan, np.float32), lambda data: np.zeros(9, np.int64), "finite"),
    ],
)
def test_arrays_that_are_not_new_or_do_not_fit_are_refused(models, tmp_path, rows, labels, words):
    np.save(tmp_path / "x.npy", rows(models.dataset))
    np.save(tmp_path / "y.npy", labels(models.dataset))
    with pytest.raises(UsageError, match=words):
        list(evaluation_sets(models, [f"{tmp_path}/x.npy,{tmp_path}/y.npy"]))


def test_files_that_are_missing_or_damaged_are_named(models, tmp_path):
    with pytest.raises(MissingError, match=r"no file .*x\.npy"):
        list(evaluation_sets(models, [f"{tmp_path}/x.npy,{tmp_path}/y.npy"]))
    for name in ("x.npy", "y.npy"):
        (tmp_path / name).write_bytes(b"no array")
    with pytest.raises(DataError, match="cannot be read"):
        list(evaluation_sets(models, [f"{tmp_path}/x.npy,{tmp_path}/y.npy"]))
    with pytest.raises(UsageError, match="names 1 files"):
        list(evaluation_sets(models, ["x.npy"]))


@pytest.mark.parametrize("word", ["nose", "x.npy,y.npy"])
def test_words_that_name_no_data_are_refused_before_anything_is_scored(models, word):
    with pytest.raises(LevelbenchError, match=r"close: noise|no file x\.npy"):
        next(evaluation_sets(models, [word]))


@pytest.mark.slow
def test_another_shape_is_referred_to_transfer(models):
    with pytest.raises(UsageError, match="--transfer"):
        list(evaluation_sets(models, ["synthetic"]))


@pytest.mark.parametrize("word", ["noise[severity=6]", "noise[strength=1]", "corruptions[severity=0]"])
def test_a_severity_that_does_not_exist_is_refused_before_anything_is_scored(models, word):
    with pytest.raises(UsageError, match="from 1 to 5"):
        next(evaluation_sets(models, [word]))


def test_models_that_were_not_kept_say_how_to_keep_them(kept, tmp_path):
    _, folder = kept
    shutil.copytree(folder / "digits", tmp_path / "digits")
    with pytest.raises(MissingError, match=r"seed 0 \(none was kept\)") as caught:
        models_of(group_runs(Store(tmp_path).summaries()), tmp_path)
    assert "--keep-model --fresh" in caught.value.do


def test_models_are_found_beside_the_records_of_another_store(kept, tmp_path):
    groups, _ = kept
    (found,) = models_of(groups, tmp_path).models
    assert [each.facts.run for each in found] == [run.id for run in sorted(groups[0].runs, key=lambda run: run.seed)]


def test_the_model_of_another_run_of_the_same_seed_does_not_count(kept, tmp_path):
    _, folder = kept
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (path,) = (tmp_path / "models").glob("*-s1.json")
    facts = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode(facts | {"run": "0" * 16}))
    models = models_of(group_runs(Store(tmp_path).summaries()), folder)
    # The store that is asked for has the right one.
    assert len(models.models[0]) == 2
    models = models_of(group_runs(Store(tmp_path).summaries()), tmp_path)
    assert [each.facts.seed for each in models.models[0]] == [0]
    assert any("seed 1 (the one that was kept is of another run, 00000000)" in each for each in models.caveats)


def test_a_model_of_another_text_of_the_task_does_not_count(kept):
    groups, folder = kept
    other = dataclasses.replace(groups[0], source_digest=hashlib.sha256(b"edited").hexdigest())
    with pytest.raises(MissingError, match="text has changed"):
        models_of([other], folder)


def test_mixed_tasks_are_refused(kept):
    groups, folder = kept
    specification = msgspec.structs.replace(groups[0].specification, task="spam")
    other = dataclasses.replace(groups[0], specification=specification)
    with pytest.raises(UsageError, match="2 tasks: digits, spam"):
        models_of([groups[0], other], folder)


class _Pictures:
    """A second task for transfer: digits of twice the size in colour, with five classes."""

    @staticmethod
    def load(folder=None):
        data = datasets.digits.load()
        low, high = data.train.inputs.min(), data.train.inputs.max()
        splits = []
        for split in (data.train, data.validation, data.test):
            bytes_ = np.rint(255 * (split.inputs.reshape(-1, 1, 8, 8) - low) / (high - low)).astype(np.uint8)
            large = np.repeat(np.repeat(np.repeat(bytes_, 2, 2), 2, 3), 3, 1)
            splits.append(Split.of(large, split.labels // 2))
        return Dataset("pictures", *splits, 5, {"other": "2"}, "", "", "")


def test_transfer_scores_what_scikit_learn_scores_on_the_same_features(models, monkeypatch):
    from levelbench.experiments import generalization

    linear_model = pytest.importorskip("sklearn.linear_model")
    monkeypatch.setattr(generalization, "_dataset", lambda word, folder: _Pictures.load())
    other = transfer_task(models, "pictures")
    assert other.what.endswith("made (1, 8, 8) of (3, 16, 16)")
    backend, (opened,) = open_models(models, "numpy", "cpu")
    for model, (network, _) in zip(models.models[0], opened, strict=True):
        train, validation, test = (logits_of(model.path, rows)[1] for rows, _ in other.splits)
        mean, deviation = train.mean(0), train.std(0) + 1e-9
        best = None
        for penalty in generalization.PENALTIES:
            fitted = linear_model.LogisticRegression(C=1 / (len(train) * penalty), max_iter=500)
            fitted.fit((train - mean) / deviation, other.splits[0][1])
            scores = [
                fitted.score((x - mean) / deviation, other.splits[at][1]) for at, x in ((1, validation), (2, test))
            ]
            best = max(best or (-1, 0), tuple(scores), key=lambda each: each[0])
        assert other.score(backend, network) == pytest.approx(best[1], abs=0.012)


def test_transfer_to_the_models_own_data_is_refused(models):
    with pytest.raises(UsageError, match="the same data"):
        transfer_task(models, "digits")


@pytest.mark.parametrize(
    "network", [zoo.mlp(64, 16, 10), zoo.cnn((1, 28, 28), 4, 8, 10), zoo.build("resnet18", classes=10)]
)
def test_features_enter_the_last_linear_layer(network):
    feature = feature_value(network)
    cut = network.with_outputs([feature])
    assert len(cut.outputs) == 1
    assert feature != network.outputs[0].name
    last = [node for node in network.nodes if node.op_type in ("Gemm", "MatMul")][-1]
    assert feature in last.inputs


def test_a_network_without_a_linear_layer_has_no_features():
    from levelbench.networks.builder import Builder

    with pytest.raises(UnsupportedError, match="no linear layer"):
        feature_value(Builder("none", (4,)).relu().build())
