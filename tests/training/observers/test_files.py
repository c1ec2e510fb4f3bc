"""Observers that write files."""

import csv
import io
from types import SimpleNamespace

import numpy as np
import pytest

from levelbench.errors import StoreError, UnsupportedError, UsageError
from levelbench.frameworks.numpy import framework
from levelbench.measure.timeline import Phase
from levelbench.training.datasets.base import Dataset, Split
from levelbench.training.input import Held
from levelbench.training.observers import Observer
from levelbench.training.observers.files import (
    GradientNoise,
    Mistakes,
    Statistics,
    Tables,
    as_pictures,
    png,
    sheet,
    wrong_examples,
)


def rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_evaluations_are_rows_with_quality_loss_and_phases(trained, tmp_path):
    trained(Tables(tmp_path / "new", "run"))
    found = rows(tmp_path / "new" / "run-evaluations.csv")
    assert [row["step"] for row in found] == ["3", "6", "9"]
    assert [row["samples"] for row in found] == ["96", "192", "288"]
    assert all(0 <= float(row["validation"]) <= 1 and float(row["loss"]) > 0 for row in found)
    phases = [key for key in found[0] if key.endswith("_s") and key != "time_s"]
    assert len(phases) == len(Phase)
    for row in found:
        assert sum(float(row[key]) for key in phases) == pytest.approx(float(row["time_s"]))


def test_each_step_is_a_row_with_its_time(trained, tmp_path):
    trained(Tables(tmp_path, "run"))
    found = rows(tmp_path / "run-steps.csv")
    assert [int(row["step"]) for row in found] == list(range(1, 10))
    assert all(float(row["time_s"]) > 0 for row in found)
    assert [row["epoch"] for row in found] == ["1.0"] * 3 + ["2.0"] * 3 + ["3.0"] * 3


def test_an_interrupted_run_leaves_complete_evaluations_and_a_draft_of_its_steps(trained, tmp_path):
    class Stops(Tables):
        def on_end(self, progress):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(Stops(tmp_path, "run"))
    assert sorted(each.name for each in tmp_path.iterdir()) == [".run-steps.csv.part", "run-evaluations.csv"]
    assert len(rows(tmp_path / "run-evaluations.csv")) == 3
    assert len(rows(tmp_path / ".run-steps.csv.part")) == 9


def test_a_folder_that_cannot_be_created_is_an_error_before_the_first_step(trained, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"an observer.s file"):
        trained(Tables(tmp_path / "file", "run"))


def test_a_row_for_each_parameter_at_each_evaluation_and_one_for_all(trained, tmp_path):
    trainer = trained(Statistics(tmp_path, "run"))
    found = rows(tmp_path / "run-statistics.csv")
    names = [*trainer.executor.parameters, "*"]
    assert [row["parameter"] for row in found] == names * 3
    last = {row["parameter"]: row for row in found[-len(names) :]}
    for name, value in trainer.executor.parameters.items():
        assert float(last[name]["weight_norm"]) == pytest.approx(float(np.linalg.norm(value)))
        assert float(last[name]["weight_std"]) == pytest.approx(float(value.std()), rel=1e-5)
    norms = [float(last[name]["weight_norm"]) ** 2 for name in trainer.executor.parameters]
    assert float(last["*"]["weight_norm"]) == pytest.approx(sum(norms) ** 0.5)


def test_gradient_norms_are_measured_before_the_optimizer(trained, tmp_path):
    class Witness(Observer):
        squares: list[dict[str, float]] = []  # noqa: RUF012

        def on_prepared(self, context):
            backward = context.executor.backward

            def watched():
                gradients = backward()
                self.squares.append({name: float((each * each).sum()) for name, each in gradients.items()})
                return gradients

            context.executor.backward = watched

    witness = Witness()
    trained(witness, Statistics(tmp_path, "run", every=1))
    found = [row for row in rows(tmp_path / "run-statistics.csv") if row["parameter"] != "*"][-4:]
    for row in found:
        expected = np.sqrt(np.mean([each[row["parameter"]] for each in witness.squares[-3:]]))
        assert float(row["gradient_norm"]) == pytest.approx(expected, rel=1e-5)


def test_observing_does_not_change_training(trained, tmp_path):
    watched, alone = trained(Statistics(tmp_path, "run")), trained()
    for name, value in alone.executor.parameters.items():
        assert np.array_equal(value, watched.executor.parameters[name])


def test_the_executor_is_restored_afterwards(trained, tmp_path):
    assert "backward" not in vars(trained(Statistics(tmp_path, "run")).executor)


def test_an_interval_of_no_steps_is_refused(tmp_path):
    with pytest.raises(UsageError, match="not an interval"):
        Statistics(tmp_path, "run", every=0)


class Answers:
    def infer(self, *inputs):
        return inputs[:1]


def held_of(scores, labels, reference=None):
    split = Split((np.asarray(scores, np.float32), np.asarray(labels)), reference=reference)
    data = Dataset("toy", split, split, split, 3, {}, "none", "none", "made here", True)
    return Held(framework.open(), data, split)


def test_all_mistakes_are_found_the_most_confident_first():
    scores = [[0, 1, 0], [9, 0, 0], [0, 0, 2], [0, 3, 0]]
    wrong = wrong_examples(Answers(), held_of(scores, [0, 1, 2, 2]))
    assert wrong.index.tolist() == [1, 3, 0]
    assert wrong.label.tolist() == [1, 2, 0]
    assert wrong.predicted.tolist() == [0, 1, 1]
    assert wrong.confidence[0] == pytest.approx(np.exp(9) / (np.exp(9) + 2))
    assert wrong.of_label[0] == pytest.approx(1 / (np.exp(9) + 2))
    assert wrong.examples == 4


def test_anything_but_classification_is_refused():
    with pytest.raises(UnsupportedError, match="labels of shape"):
        wrong_examples(Answers(), held_of(np.zeros((4, 3)), np.zeros((4, 3), np.float32)))


@pytest.mark.parametrize("labels", [np.zeros((4, 3), np.int64), np.zeros(4, np.float32)], ids=["tokens", "numbers"])
def test_labels_that_are_not_classes_are_refused_before_the_first_step(labels, tmp_path):

    context = SimpleNamespace(executor=Answers(), validation=held_of(np.zeros((4, 3)), labels))
    with pytest.raises(UnsupportedError, match=r"labels of shape \(4"):
        Mistakes(tmp_path, "run").on_prepared(context)


def test_a_run_leaves_arrays_a_picture_and_a_page(trained, tmp_path):
    trainer = trained(Mistakes(tmp_path, "run", most=5))
    with np.load(tmp_path / "run-mistakes.npz", allow_pickle=False) as found:
        index, label, predicted = found["index"], found["label"], found["predicted"]
    validation = trainer._validation.split
    (logits,) = trainer.executor.infer(validation.inputs)
    assert sorted(index.tolist()) == np.flatnonzero(logits.argmax(1) != validation.labels).tolist()
    assert (validation.labels[index] == label).all()
    assert (predicted != label).all()
    page = (tmp_path / "run-mistakes.html").read_text()
    assert page.count("<img") == min(5, len(index))
    assert f"{len(index)} of 60 validation examples are wrong" in page
    assert (tmp_path / "run-mistakes.png").read_bytes().startswith(b"\x89PNG")


def test_text_of_an_example_cannot_become_markup(tmp_path, dataset):

    held = held_of([[0, 1, 0]], [0], reference=["<script>alert('x')</script>"])
    watcher = Mistakes(tmp_path, "a<b")
    watcher.on_prepared(SimpleNamespace(executor=Answers(), validation=held))
    watcher.on_end(None)
    (page,) = [each.read_text() for each in tmp_path.glob("*.html")]
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "<b:" not in page


def test_no_mistakes_are_an_empty_page_and_no_picture(tmp_path):

    watcher = Mistakes(tmp_path, "run")
    watcher.on_prepared(SimpleNamespace(executor=Answers(), validation=held_of([[1, 0, 0]], [0])))
    watcher.on_end(None)
    assert "0 of 1 validation examples are wrong" in (tmp_path / "run-mistakes.html").read_text()
    assert not (tmp_path / "run-mistakes.png").exists()


@pytest.mark.parametrize("channels", [1, 3])
def test_a_png_is_read_back(channels):
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (9, 7, channels)).astype(np.uint8)
    read = np.asarray(image.open(io.BytesIO(png(pixels))))
    assert np.array_equal(read.reshape(pixels.shape), pixels)


def test_a_sheet_has_all_pictures_row_by_row():
    pictures = np.arange(3, dtype=np.uint8)[:, None, None, None] * np.ones((1, 48, 48, 1), np.uint8)
    image = sheet(pictures, 2)
    assert image.shape == (102, 102, 1)
    assert [image[2 + 50 * row, 2 + 50 * column, 0] for row, column in ((0, 0), (0, 1), (1, 0), (1, 1))] == [
        0,
        1,
        2,
        128,
    ]


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [
        ((2, 64), np.float32, (2, 8, 8, 1)),
        ((2, 3, 5, 6), np.uint8, (2, 5, 6, 3)),
        ((2, 5, 6), np.float32, (2, 5, 6, 1)),
        ((2, 63), np.float32, None),
        ((2, 4, 5, 6), np.float32, None),
        ((2, 16), np.int64, None),
    ],
)
def test_data_shaped_like_pictures_is_shown_as_pictures(shape, dtype, expected):
    found = as_pictures(np.zeros(shape, dtype))
    assert (None if found is None else found.shape) == expected


def written(tmp_path, held):

    watcher = Mistakes(tmp_path, "run")
    watcher.on_prepared(SimpleNamespace(executor=Answers(), validation=held))
    watcher.on_end(None)
    return (tmp_path / "run-mistakes.html").read_text()


@pytest.mark.parametrize("label", [-1, 3])
def test_a_label_outside_the_classes_is_a_mistake_without_a_share(tmp_path, label):
    held = held_of([[0, 1, 0], [1, 0, 0]], [label, 0])
    wrong = wrong_examples(Answers(), held)
    assert (wrong.index.tolist(), wrong.label.tolist()) == ([0], [label])
    assert np.isnan(wrong.of_label[0])
    assert "no such class" in written(tmp_path, held)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_outputs_that_are_not_finite_are_marked_and_come_last(tmp_path, value):
    held = held_of([[value, 1, 2], [0, 1, 0]], [1, 0])
    wrong = wrong_examples(Answers(), held)
    assert wrong.index.tolist() == [1, 0]
    assert np.isnan(wrong.confidence).tolist() == [False, True]
    assert written(tmp_path, held).count("not finite") == 2


def test_an_example_with_a_nan_is_wrong_as_in_the_accuracy():
    assert len(wrong_examples(Answers(), held_of([[np.nan] * 3], [0]))) == 1


def test_invalid_unicode_is_written_as_escapes(tmp_path):
    assert r"\ud800" in written(tmp_path, held_of([[0, 1, 0]], [0], reference=["\ud800"]))


def test_anything_but_classification_is_detected_at_the_first_batch():
    held = held_of(np.zeros((3000, 3)), np.zeros((3000, 3), np.float32))
    looked = []

    class Counts(Answers):
        def infer(self, *inputs):
            looked.append(len(inputs[0]))
            return inputs[:1]

    with pytest.raises(UnsupportedError):
        wrong_examples(Counts(), held)
    assert looked == [1000]


def test_several_columns_of_labels_are_refused_before_the_run(tmp_path):

    labels = np.zeros(2, np.int64)
    split = Split((np.zeros((2, 3), np.float32), labels, labels), targets=2)
    held = SimpleNamespace(split=split)
    with pytest.raises(UnsupportedError, match="2 columns of labels"):
        Mistakes(tmp_path, "run").on_prepared(SimpleNamespace(validation=held))


class OneByOne(Observer):
    """The trace of the covariance of all examples' gradients and the square of their mean, at each evaluation."""

    def on_prepared(self, context):
        self.context, self.found = context, []

    def on_evaluation(self, progress, evaluation, step_times_ns):
        executor, split = self.context.executor, self.context.dataset.train
        each = []
        for at in range(len(split)):
            executor.forward(*(column[at : at + 1] for column in split.columns))
            each.append(np.concatenate([np.ravel(one).astype(float) for one in executor.backward().values()]))
        self.found.append((np.var(each, axis=0, ddof=1).sum(), (np.mean(each, axis=0) ** 2).sum()))


def test_noise_of_single_examples_is_their_covariance_and_gradient(trained, tmp_path):
    truth = OneByOne()
    trained(truth, GradientNoise(tmp_path, "run", examples=1, most=96))
    found = rows(tmp_path / "run-noise.csv")
    assert [row["samples"] for row in found] == ["96", "192", "288"]
    for row, (trace, square) in zip(found, truth.found, strict=True):
        assert float(row["covariance_trace"]) == pytest.approx(trace, rel=1e-4)
        assert float(row["gradient_square"]) == pytest.approx(square, rel=1e-4)


def test_noise_from_few_batches_is_right_on_average(trained, tmp_path, monkeypatch):
    from levelbench.training.observers import files

    truth, found = OneByOne(), []
    trained(truth)
    for seed in range(60):
        monkeypatch.setattr(files, "_NOISE_SEED", seed)
        trained(GradientNoise(tmp_path, "run", examples=8, most=4))
        found.append([[float(row[name]) for name in files._NOISE[2:]] for row in rows(tmp_path / "run-noise.csv")])
    error = np.std(found, axis=0, ddof=1) / np.sqrt(len(found))
    assert (np.abs(np.mean(found, axis=0) - truth.found) < 4 * error).all()


def test_noise_needs_two_batches(trained, tmp_path):
    with pytest.raises(UnsupportedError, match="96 examples"):
        trained(GradientNoise(tmp_path, "run", examples=64))


def test_noise_is_refused_where_passes_wait_for_ranks_that_do_not_observe(tmp_path):
    dataset, executor = SimpleNamespace(train=range(96)), SimpleNamespace(collective=True)
    context = SimpleNamespace(dataset=dataset, executor=executor, recipe=SimpleNamespace(experience=None))
    with pytest.raises(UnsupportedError, match="all-reduce"):
        GradientNoise(tmp_path, "run").on_prepared(context)
