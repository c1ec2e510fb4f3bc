"""Faults planted in what a task fixes: its data, splits, quality, target and texts; each is found by its probe."""

import hashlib
import sys
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest

from levelbench.networks import zoo
from levelbench.training import Momentum, Recipe, Shuffled, Task, Top1
from levelbench.training.datasets.base import Dataset, DatasetSource, Split
from levelbench.training.probes.task import check_task
from levelbench.training.quality import RMSE

CLASSES = 4


def split(count, seed, classes=CLASSES):
    random = np.random.default_rng(seed)
    labels = np.arange(count) % classes
    return Split.of(random.standard_normal((count, 9)).astype(np.float32), labels.astype(np.int64))


def dataset(**changes):
    made = Dataset(
        "toy",
        split(200, 0),
        split(100, 1),
        split(100, 2),
        CLASSES,
        {"toy.bin": hashlib.sha256(b"toy").hexdigest()},
        "rows in order",
        "CC0",
        "here",
    )
    return replace(made, **changes)


class Source(DatasetSource):
    name, licence, attribution = "toy", "CC0", "nobody"

    def load(self, folder=None):
        return dataset()

    def lacks(self, folder=None):
        return None


def task(quality=None, description="four classes of noise", **more):
    made = Task("toy", data=Source(), quality=quality or Top1(0.9), description=description, **more)

    @made.recipe
    def small(lr: float = 0.1) -> Recipe:
        """A small one."""
        return Recipe(zoo.mlp(9, 8, CLASSES), Shuffled(32), Momentum(lr), epochs=2)

    return made


def found(data=None, of=None):
    """The probes that fail, and their findings."""
    report = check_task(of or task(), data or dataset())
    return {each.probe: f"{each.found}. {each.do}" for each in report.failed}


def test_a_correct_task_passes():
    report = check_task(task(), dataset())
    assert report.failed == ()
    assert {"splits", "labels", "target", "quality"} <= {each.probe for each in report.findings}


def test_the_docstring_is_that_of_the_file_that_has_the_task(monkeypatch):
    made = task()
    helper, file = (ModuleType(name, text) for name, text in (("helper", None), ("file", "It reaches 90 %.")))
    file.task = made
    monkeypatch.setitem(sys.modules, "file", file)
    monkeypatch.setitem(sys.modules, "helper", helper)
    monkeypatch.setattr(made.recipe_function("small"), "__module__", "helper")
    assert check_task(made, dataset()).of("description")[0].found == "It reaches 90 %."


def test_data_that_loads_the_same_each_time_passes():
    report = check_task(task(), dataset(), again=dataset)
    assert [each.status for each in report.of("loading")] == ["passed"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"test": split(100, 7)}, "column 0 of the test split differs"),
        ({"train": split(199, 0)}, "the train split has 200 and 199 examples"),
        (
            {"validation": Split((*dataset().validation.columns, dataset().validation.labels))},
            "the validation split has 2 and 3 columns",
        ),
    ],
)
def test_data_that_loads_differently_is_found(changes, says):
    (found,) = check_task(task(), dataset(), again=lambda: dataset(**changes)).of("loading")
    assert found.status == "failed"
    assert says in found.found


def test_the_order_of_examples_is_a_part_of_the_data():
    labels = dataset().train.labels
    other = dataset(train=Split.of(dataset().train.inputs[::-1], labels))
    (found,) = check_task(task(), dataset(), again=lambda: other).of("loading")
    assert "column 0 of the train split" in found.found


def test_test_examples_in_training_are_a_leak():
    leak = split(200, 0)
    columns = (np.concatenate([leak.inputs, dataset().test.inputs[:50]]), np.arange(250) % CLASSES)
    assert (
        "50 of 100 examples of the test split are also in the training split"
        in found(dataset(train=Split(columns)))["splits"]
    )


def test_validation_examples_in_the_test_split_are_a_leak():
    assert "in the validation split" in found(dataset(test=split(100, 1)))["splits"]


def test_a_leak_is_found_whatever_its_labels():
    other = Split.of(dataset().validation.inputs, (dataset().validation.labels + 1) % CLASSES)
    assert "splits" in found(dataset(test=other))


def test_one_duplicate_among_many_is_noted():
    inputs = dataset().test.inputs.copy()
    inputs[7] = dataset().train.inputs[3]
    report = check_task(task(), dataset(test=Split.of(inputs, dataset().test.labels)))
    assert report.failed == ()
    assert any("1 of 100 examples" in each.found for each in report.of("splits") if each.status == "noted")


@pytest.mark.parametrize(("wrong", "says"), [(CLASSES, "go from 0 to 4"), (-1, "go from -1 to 3")])
def test_a_label_outside_the_classes_is_found(wrong, says):
    labels = dataset().train.labels.copy()
    labels[5] = wrong
    assert says in found(dataset(train=Split.of(dataset().train.inputs, labels)))["labels"]


@pytest.mark.parametrize(("count", "status"), [(100, "failed"), (20, "noted")])
def test_a_class_that_a_held_out_split_lacks_is_found_unless_the_split_is_small(count, status):
    labels = check_task(task(), dataset(validation=split(count, 1, classes=3))).of("labels")
    lacks = [each for each in labels if "the validation split has no example of 1 classes" in each.found]
    assert [each.status for each in lacks] == [status]


def test_a_class_without_a_training_example_is_found():
    assert "no training example is of class 3" in found(dataset(train=split(200, 0, classes=3)))["labels"]


def test_labels_that_are_not_integers_are_found():
    labels = dataset().train.labels.astype(np.float32)
    assert "are float32" in found(dataset(train=Split.of(dataset().train.inputs, labels)))["labels"]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_input_that_is_not_finite_is_found(value):
    inputs = dataset().validation.inputs.copy()
    inputs[3, 2] = value
    data = dataset(validation=Split.of(inputs, dataset().validation.labels))
    assert "column 0 of the validation split has 1 values" in found(data)["values"]


def test_an_empty_split_is_found():
    empty = Split.of(np.zeros((0, 9), np.float32), np.zeros(0, np.int64))
    assert "the test split is empty" in found(dataset(test=empty))["splits"]


def test_real_data_needs_checksums_and_generated_data_does_not():
    assert "no checksums" in found(dataset(checksums={}))["provenance"]
    assert found(dataset(checksums={}, synthetic=True)) == {}


def test_an_invalid_checksum_is_found():
    assert "SHA-256 of toy.bin" in found(dataset(checksums={"toy.bin": "abc"}))["provenance"]


@pytest.mark.parametrize("what", ["licence", "split_rule", "source"])
def test_undescribed_data_is_found(what):
    assert f"no {what.replace('_', ' ')}" in found(dataset(**{what: ""}))["provenance"]


def test_a_target_off_the_qualitys_scale_is_found():
    assert "the target 90 is off the scale of top1, 0 to 1" in found(of=task(Top1(90)))["quality"]


def test_a_scale_that_does_not_ascend_is_found():
    class Upside(Top1):
        low, high = 1.0, 0.0

    assert "goes from 1.0 to 0.0" in found(of=task(Upside(0.5)))["quality"]


def test_an_unknown_direction_is_found():
    class Sideways(Top1):
        direction = "sideways"

    assert "'sideways'" in found(of=task(Sideways(0.5)))["quality"]


def test_two_metrics_with_the_same_name_are_found():
    assert "two metrics have the same name" in found(of=task(also=(Top1(0.5),)))["quality"]


def test_a_target_that_the_most_frequent_class_reaches_is_found():
    labels = np.where(np.arange(100) < 95, 0, np.arange(100) % CLASSES)
    data = dataset(validation=Split.of(dataset().validation.inputs, labels))
    assert "always predicting the most frequent class" in found(data)["target"]


def test_a_target_that_the_mean_reaches_is_found():
    splits = dataset().splits()
    numbers = {name: Split((each.inputs, each.labels[:, None].astype(np.float32))) for name, each in splits.items()}
    spread = float(numbers["validation"].labels.std())
    report = check_task(task(RMSE(1.01 * spread)), dataset(**numbers, classes=0))
    (failed,) = [each.found for each in report.of("target") if each.status == "failed"]
    assert failed.startswith(f"always answering the mean gives {spread:.4g}, and the target is ")


def test_a_target_that_depends_on_single_examples_is_noted():
    report = check_task(task(Top1(0.99)), dataset())
    assert any("one of the 100 validation examples is worth 1.00%" in each.found for each in report.of("target"))


def test_a_regression_has_no_classes_to_check():
    random = np.random.default_rng(0)
    splits = [
        Split((random.standard_normal((n, 9)).astype(np.float32), random.standard_normal((n, 1)).astype(np.float32)))
        for n in (50, 20, 20)
    ]
    report = check_task(task(RMSE(0.5)), dataset(train=splits[0], validation=splits[1], test=splits[2], classes=0))
    assert report.failed == ()
    assert report.of("labels")[0].status == "not tried"


def test_a_task_without_a_description_is_found():
    assert "the task has none" in found(of=task(description=""))["description"]


def test_a_custom_measure_under_a_standard_name_is_noted():
    class Weighted(Top1):
        def measure(self, executor, held):
            return 0.12345

    notes = [each.do for each in check_task(task(Weighted(0.9)), dataset()).of("quality") if each.status == "noted"]
    assert notes == ["rename a metric that counts differently, or its runs are refused"]
    assert [each.status for each in check_task(task(), dataset()).of("quality")] == ["passed"]


def test_loading_again_must_not_change_what_was_loaded():
    rows = np.random.default_rng(0).standard_normal((400, 9)).astype(np.float32)

    def load():
        np.multiply(rows, 2, out=rows)
        parts = (rows[:200], rows[200:300], rows[300:])
        train, validation, test = (Split.of(each, np.arange(len(each)) % CLASSES) for each in parts)
        return dataset(train=train, validation=validation, test=test)

    report = check_task(task(), load(), again=load)
    assert "changes the examples that were loaded before" in report.of("loading")[0].found


def windows(step, channels=1, count=600, length=24):
    """Windows of a series, moved by ``step`` places and split at random; further channels are noise of each window."""
    random = np.random.default_rng(0)
    series = np.cumsum(random.standard_normal(count * step + length)).astype(np.float32)
    rows = np.stack([series[at * step : at * step + length] for at in range(count)])
    if channels > 1:
        rows = np.stack([rows, random.standard_normal(rows.shape).astype(np.float32)], 1)
    order, labels = random.permutation(count), np.arange(count) % CLASSES
    parts = [Split.of(rows[each], labels[each]) for each in np.split(order, [400, 500])]
    return dataset(train=parts[0], validation=parts[1], test=parts[2])


@pytest.mark.parametrize(("step", "channels"), [(1, 1), (4, 1), (5, 1), (12, 1), (4, 2)])
def test_held_out_windows_that_overlap_with_training_windows_are_found(step, channels):
    assert f"moved by {step if step > 1 else 'one'} place" in found(windows(step, channels))["overlaps"]


def test_windows_side_by_side_pass():
    assert "overlaps" not in found(windows(24))


@pytest.mark.parametrize(
    ("turn", "says"),
    [
        (lambda images: images[..., ::-1, ::-1], "turned by a half"),
        (lambda images: np.rot90(images, 1, (2, 3)), "turned right"),
    ],
)
def test_held_out_images_that_are_turned_training_images_are_found(turn, says):
    images = np.random.default_rng(0).random((300, 1, 8, 8)).astype(np.float32)
    labels = np.arange(300) % CLASSES
    held = Split.of(np.ascontiguousarray(turn(images[:50])), labels[:50])
    of_images = dataset(
        train=Split.of(images[:200], labels[:200]), validation=held, test=Split.of(images[200:], labels[200:])
    )
    assert says in found(of_images)["near copies"]
    flat = {name: Split.of(each.inputs.reshape(-1, 64), each.labels) for name, each in of_images.splits().items()}
    assert says in found(replace(of_images, **flat))["near copies"]


def series(walk, times=1.0):
    """A regression on the last 8 values of a series, in the order of time; validation targets ``times`` as large."""
    rows = np.stack([walk[at : at + 8] for at in range(len(walk) - 8)]).astype(np.float32)
    targets = walk[8:, None].astype(np.float32)
    parts = [Split((rows[a:b], targets[a:b])) for a, b in ((0, 600), (620, 780), (800, 960))]
    parts[1] = Split((parts[1].inputs, parts[1].labels * np.float32(times)))
    return dataset(train=parts[0], validation=parts[1], test=parts[2], classes=0)


def test_targets_in_another_unit_are_found():
    noise = np.random.default_rng(0).standard_normal(970)
    of = task(quality=RMSE(0.1))
    assert "target 0 varies" in found(series(noise, times=100.0), of)["splits alike"]
    assert "splits alike" not in found(series(noise), of)


def test_a_series_that_drifts_is_not_accused_of_other_units():
    drifting = np.arange(970) / 100 + np.random.default_rng(0).standard_normal(970)
    assert "splits alike" not in found(series(drifting), task(quality=RMSE(0.1)))


def test_a_value_that_stands_for_a_class_is_found():
    made = dataset()
    rows = made.train.inputs.copy()
    rows[made.train.labels == 2, 3] = -9
    report = found(replace(made, train=Split.of(rows, made.train.labels)))
    assert "input 3 is -9 in all examples of class 2" in report["label among inputs"]


def test_an_input_that_is_on_for_one_class_alone_is_noted():
    made = dataset()
    rows = made.train.inputs.copy()
    rows[:, 3] = made.train.labels == 2
    report = check_task(task(), replace(made, train=Split.of(rows, made.train.labels)))
    (finding,) = report.of("label among inputs")
    assert (finding.status, "input 3 is on" in finding.found) == ("noted", True)


def test_a_mean_of_each_class_for_missing_values_is_found():
    made = dataset()
    rows = made.train.inputs.copy()
    missing = np.random.default_rng(0).random(len(rows)) < 0.5
    for each in range(CLASSES):
        rows[missing & (made.train.labels == each), 5] = 0.1 * each - 0.2
    report = found(replace(made, train=Split.of(rows, made.train.labels)))
    assert "input 5 has one value many times in examples of one class alone" in report["label among inputs"]
    rows[missing, 5] = 0.1
    assert "label among inputs" not in found(replace(made, train=Split.of(rows, made.train.labels)))


def test_a_number_of_each_row_in_the_order_of_classes_is_found():
    made = dataset()
    rows = made.train.inputs.copy()
    rows[np.argsort(made.train.labels, kind="stable"), 3] = np.arange(len(rows))
    report = found(replace(made, train=Split.of(rows, made.train.labels)))
    assert "input 3 is a number for each example, in the order of classes" in report["label among inputs"]


def clusters(count, seed, order=None):
    """Examples around a point for each class, in the order of classes or in another one."""
    random = np.random.default_rng(seed)
    labels = np.sort(np.arange(count) % CLASSES) if order is None else np.arange(count) % CLASSES
    middles = 3 * np.random.default_rng(9).standard_normal((CLASSES, 9))
    return Split.of((middles[labels] + random.standard_normal((count, 9))).astype(np.float32), labels.astype(np.int64))


def of_clusters(order="mixed", **changes):
    return dataset(train=clusters(200, 0, order), validation=clusters(100, 1, "mixed"), test=clusters(100, 2, "mixed"),
                   **changes)  # fmt: skip


def scaled(data, each_by_itself, by):
    """All splits scaled by training's constants, or each by its own."""

    def change(split):
        rows = (split if each_by_itself else data.train).inputs.astype(np.float64)
        if by == "deviation":
            return Split.of(((split.inputs - rows.mean(0)) / rows.std(0)).astype(np.float32), split.labels)
        low, high = rows.min(axis=0), rows.max(axis=0)
        return Split.of(((split.inputs - low) / (high - low)).astype(np.float32), split.labels)

    return replace(data, **{name: change(each) for name, each in data.splits().items()})


@pytest.mark.parametrize(
    ("by", "says"), [("deviation", "mean 0 and deviation 1"), ("range", "minimum 0 and maximum 1")]
)
def test_a_split_that_is_scaled_by_itself_is_found(by, says):
    assert f"each input of the validation split has {says}" in found(scaled(of_clusters(), True, by))["splits alike"]
    assert "splits alike" not in found(scaled(of_clusters(), False, by))


def test_scaling_by_all_splits_together_is_noted():
    made = of_clusters()
    rows = np.concatenate([each.inputs for each in made.splits().values()]).astype(np.float64)
    parts = {
        name: Split.of(((each.inputs - rows.mean(0)) / rows.std(0)).astype(np.float32), each.labels)
        for name, each in made.splits().items()
    }
    (finding,) = check_task(task(), replace(made, **parts)).of("splits alike")
    assert (finding.status, "in all splits together" in finding.found) == ("noted", True)


def test_shuffled_labels_of_training_are_found():
    made = of_clusters()
    assert "splits alike" not in found(made)
    labels = np.random.default_rng(0).permutation(made.train.labels)
    shuffled = replace(made, train=Split.of(made.train.inputs, labels))
    assert "these do not go with their inputs" in found(shuffled)["splits alike"]


@pytest.mark.parametrize(("by", "where"), [(1, "previous"), (-1, "next")])
@pytest.mark.parametrize("numbers", [False, True])
def test_labels_that_are_moved_by_a_row_are_found(by, where, numbers):
    def mixed(split):
        order = np.random.default_rng(0).permutation(len(split))
        labels = split.inputs[:, :3].sum(axis=1) if numbers else split.labels
        return Split.of(split.inputs[order], labels[order])

    made = replace(of_clusters(), **{name: mixed(each) for name, each in of_clusters().splits().items()})
    assert "splits alike" not in found(made)
    moved = replace(made, train=Split.of(made.train.inputs, np.roll(made.train.labels, by)))
    assert f"labels of the train split are those of the {where} row" in found(moved)["splits alike"]


def test_a_series_that_has_its_last_label_among_the_inputs_is_not_accused():
    returns = np.random.default_rng(0).standard_normal(1003).astype(np.float32)
    rows, labels = np.stack([returns[2:-1], returns[1:-2], returns[:-3]], 1), (returns[3:] > 0).astype(np.int64)
    at = {"train": slice(0, 600), "validation": slice(600, 800), "test": slice(800, 1000)}
    made = replace(of_clusters(), **{name: Split.of(rows[each], labels[each]) for name, each in at.items()})
    assert "failed" not in [each.status for each in check_task(task(), made).of("splits alike")]


def test_training_examples_in_the_order_of_classes_are_not_accused_of_wrong_labels():
    assert "splits alike" not in found(of_clusters(order=None))


def test_classes_under_other_numbers_in_a_held_out_split_are_found():
    made = of_clusters()
    other = Split.of(made.validation.inputs, (made.validation.labels + 1) % CLASSES)
    report = found(replace(made, validation=other))
    assert "what is class 0 in training is class 1 in the validation split" in report["splits alike"]


def test_a_target_that_is_rounded_among_the_inputs_is_found():
    made = series(np.random.default_rng(0).standard_normal(970))
    rows = made.train.inputs.copy()
    rows[:, 2] = np.round(4 * made.train.labels[:, 0])
    report = found(replace(made, train=Split((rows, made.train.labels))), task(quality=RMSE(0.1)))
    assert "input 2 rises and falls with target 0" in report["label among inputs"]


def test_inputs_that_are_the_targets_of_an_autoencoder_are_not_accused():
    made = series(np.random.default_rng(0).standard_normal(970))
    parts = {name: Split((each.inputs, each.inputs.copy())) for name, each in made.splits().items()}
    assert "label among inputs" not in found(replace(made, **parts), task(quality=RMSE(0.1)))


def test_targets_that_a_split_lacks_are_found():
    made = series(np.random.default_rng(0).standard_normal(970))
    blank = replace(made, test=Split((made.test.inputs, np.zeros_like(made.test.labels))))
    assert "target 0 is 0 in all examples of the test split" in found(blank, task(quality=RMSE(0.1)))["splits alike"]


@pytest.mark.parametrize("seed", range(8))
def test_a_series_that_wanders_is_not_accused_of_other_units(seed):
    noise, walk = np.random.default_rng(seed).standard_normal(970), np.zeros(970)
    for at in range(1, 970):
        walk[at] = 0.98 * walk[at - 1] + 0.2 * noise[at]
    assert "splits alike" not in found(series(walk), task(quality=RMSE(0.1)))
