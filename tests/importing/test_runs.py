"""Runs that other tools have logged, as records."""

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.importing.conftest import BEGAN_S, curve

from levelbench.errors import DataError, UsageError
from levelbench.importing.runs import Point, RunLog, import_run, read_runs
from levelbench.records import read_record, summarise
from levelbench.records.integrity import contradictions
from levelbench.records.schema import Target

TARGET = Target("accuracy", 0.9)


@pytest.fixture
def imported(tmp_path):
    def write(run, **given):
        path, new = import_run(
            run, TARGET, tmp_path / "store", **{"metric": "val/acc", "task": "mine", "recipe": "r", **given}
        )
        return read_record(path), new

    return write


def test_a_run_of_each_tool_is_read_with_its_start_settings_and_curve(
    mlflow_folder, mlflow_database, event_files, wandb_file
):
    points = curve(2.0)
    places = {
        "MLflow": (mlflow_folder("a", points, {"lr": 0.1, "nesterov": "True"}), {"lr": 0.1, "nesterov": True}),
        "TensorBoard": (event_files("events", points), {}),
        "W&B": (wandb_file(points, {"lr": 0.1, "layers": [1, 2]}), {"lr": 0.1}),
    }
    for tool, (place, settings) in places.items():
        (run,) = read_runs(place)
        assert (run.tool, run.started_s, dict(run.settings)) == (tool, BEGAN_S, settings)
        assert [each.step for each in run.metrics["val/acc"]] == [step for _, step, _ in points]
        for found, (at_s, _, value) in zip(run.metrics["val/acc"], points, strict=True):
            assert found.at_s - BEGAN_S == pytest.approx(at_s, abs=1e-3)
            assert found.value == pytest.approx(value, abs=1e-6)
    (run,) = read_runs(mlflow_database("b", points, {"lr": 0.1}))
    assert (run.tool, dict(run.settings), len(run.metrics["val/acc"])) == ("MLflow", {"lr": 0.1}, 10)


def test_a_long_run_of_wandb_is_read_across_its_blocks(wandb_file):
    (run,) = read_runs(wandb_file(curve(2.0, count=2000)))
    assert len(run.metrics["val/acc"]) == 2000


def test_a_log_that_is_cut_at_its_end_is_of_an_interrupted_run(wandb_file, event_files, imported):
    (events,) = event_files("events", curve(2.0)).iterdir()
    for path in (wandb_file(curve(2.0), exit_code=None), events):
        path.write_bytes(path.read_bytes()[:-5])
        (run,) = read_runs(path)
        assert len(run.metrics["val/acc"]) == 9
        record, _ = imported(run)
        assert (record.status, contradictions(record)) == ("interrupted", [])


@pytest.mark.parametrize("at", [0.2, 0.5, 0.9])
def test_a_log_with_a_damaged_byte_is_refused(wandb_file, event_files, at):
    (events,) = event_files("events", curve(2.0)).iterdir()
    for path in (wandb_file(curve(2.0)), events):
        data = bytearray(path.read_bytes())
        data[int(at * len(data))] ^= 0xFF
        path.write_bytes(data)
        with pytest.raises(DataError, match="is damaged"):
            read_runs(path)


def test_a_damaged_length_of_an_event_is_not_taken_for_the_end_of_the_file(event_files):
    (path,) = event_files("events", curve(2.0)).iterdir()
    data = bytearray(path.read_bytes())
    first_bytes = int.from_bytes(data[:8], "little")
    data[first_bytes + 16 + 3] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(DataError, match="is damaged from its event 2 on"):
        read_runs(path)


def test_of_several_logs_a_damaged_or_empty_one_is_a_fault_of_its_own(event_files, imported, tmp_path):
    event_files("good", curve(2.0))
    (damaged,) = event_files("damaged", curve(3.0)).iterdir()
    (empty,) = event_files("empty", curve(4.0)).iterdir()
    damaged.write_bytes(damaged.read_bytes().replace(b"val/acc", b"val/abc"))
    empty.write_bytes(b"")
    runs = {each.name: each for each in read_runs(tmp_path)}
    assert "is damaged from its event 3 on" in runs["damaged"].fault
    assert "there are no events" in runs["empty"].fault
    assert imported(runs["good"])[1]
    with pytest.raises(UsageError, match="there are no events"):
        imported(runs["empty"])


def renamed(path, process):
    """An event file as another process would have named it."""
    parts = path.name.split(".")
    path.rename(path.with_name(".".join([*parts[:-2], str(process), parts[-1]])))


def test_a_run_that_another_process_resumed_after_a_pause_is_refused(event_files, imported):
    folder = event_files("a", curve(2.0)[:5])
    renamed(next(folder.iterdir()), 1)
    event_files("a", curve(2.0)[5:], began_s=BEGAN_S + 5400)
    (run,) = read_runs(folder)
    with pytest.raises(UsageError) as refused:
        imported(run)
    assert "it was resumed 5.4e+03 s after its last event, and no clock ran in between" in refused.value.found


def test_a_second_file_of_one_process_after_a_pause_is_refused(event_files, imported):
    event_files("a", curve(2.0)[:5])
    (run,) = read_runs(event_files("a", curve(2.0)[5:], began_s=BEGAN_S + 5400))
    with pytest.raises(UsageError, match="it was resumed"):
        imported(run)


def test_two_files_of_one_process_and_two_processes_at_once_are_no_resumption(event_files, imported):
    event_files("a", curve(2.0)[:5])
    (one,) = read_runs(event_files("a", curve(2.0)[5:], began_s=BEGAN_S + 5.5))
    renamed(next(event_files("b", curve(2.0)).iterdir()), 1)
    (two,) = read_runs(event_files("b", []).parent / "b")
    assert all(imported(run)[1] for run in (one, two))


def test_a_process_that_logged_no_value_before_another_is_not_the_start_of_its_run(event_files):
    renamed(next(event_files("a", [], began_s=BEGAN_S - 5400).iterdir()), 1)
    (run,) = read_runs(event_files("a", curve(2.0)))
    assert (run.started_s, run.fault) == (BEGAN_S, "")


def test_a_run_of_wandb_that_says_it_was_resumed_is_refused(wandb_file, imported):
    (run,) = read_runs(wandb_file(curve(2.0), resumed=True))
    with pytest.raises(UsageError, match="it was resumed"):
        imported(run)


def test_the_folder_of_settings_that_torch_makes_is_no_run(event_files, tmp_path):
    event_files("a", curve(2.0))
    event_files("a/1795772643.0306275", [(1.0, 0, 0.9)], tags=("_hparams_/session_start_info", "hp/acc"))
    assert [run.name for run in read_runs(tmp_path)] == ["a"]


@pytest.mark.parametrize("folder", ["a", "a/1795772643.0306275"])
def test_hyperparameters_of_tensorboard_are_the_settings_of_their_run(event_files, tmp_path, folder):
    given = {"lr": 0.1, "batch": 64, "nesterov": True, "schedule": "cosine"}
    event_files("a", curve(2.0))
    event_files(folder, [(1.0, 0, 0.9)] if folder != "a" else [], tags=("hp/acc",), settings=given)
    (run,) = read_runs(tmp_path)
    assert run.settings == given


@pytest.mark.parametrize(("status", "ended"), [(1, "interrupted"), (3, "done"), (4, "failed"), (5, "interrupted")])
def test_a_run_of_mlflow_ends_as_its_status_says(mlflow_folder, mlflow_database, imported, status, ended):
    names = {1: "RUNNING", 3: "FINISHED", 4: "FAILED", 5: "KILLED"}
    for place in (
        mlflow_folder("a", curve(2.0), status=status),
        mlflow_database("b", curve(2.0), status=names[status]),
    ):
        record, _ = imported(read_runs(place)[0])
        assert (record.status, contradictions(record)) == (ended, [])
        assert len(record.evaluations) == 10


@pytest.mark.parametrize(("exit_code", "ended"), [(0, "done"), (1, "failed"), (None, "interrupted")])
def test_a_run_of_wandb_ends_as_its_exit_says(wandb_file, imported, exit_code, ended):
    (run,) = read_runs(wandb_file(curve(2.0), exit_code=exit_code))
    assert imported(run)[0].status == ended


def test_a_run_that_went_on_is_imported_again(mlflow_database, imported):
    place = mlflow_database("a", curve(2.0, count=3), {"seed": 1}, status="RUNNING")
    (run,) = read_runs(place)
    assert [imported(run)[1] for _ in range(2)] == [True, False]
    (later,) = (replace(each, metrics={"val/acc": points(4)}) for each in (run,))
    record, new = imported(later)
    assert (record.status, len(record.evaluations), new) == ("interrupted", 4, True)
    record, new = imported(replace(later, status="done"))
    assert (record.status, new) == ("done", True)
    assert len(list(record.path.parent.iterdir())) == 1
    assert imported(run)[1] is False


def test_the_record_has_the_curve_and_agrees_with_itself(mlflow_folder, imported):
    (run,) = read_runs(mlflow_folder("a", curve(2.0), {"lr": 0.1, "seed": 7}))
    record, new = imported(run)
    assert new
    assert contradictions(record) == []
    assert (record.header.seed, record.header.specification.settings) == (7, {"lr": 0.1})
    found = summarise(record)
    assert found.time_to_accuracy_s == pytest.approx(6.0)
    assert (found.reached, found.samples_to_target) == (True, None)
    assert any(each.startswith("it was imported") for each in found.suspect)


def test_settings_of_names_that_selections_use_get_another(mlflow_folder, imported):
    (run,) = read_runs(mlflow_folder("a", curve(2.0), {"device": "cuda", "framework": "torch"}))
    assert imported(run)[0].header.specification.settings == {"_device": "cuda", "_framework": "torch"}


def test_importing_once_more_writes_nothing(mlflow_folder, imported):
    (run,) = read_runs(mlflow_folder("a", curve(2.0)))
    (first, new), (again, anew) = imported(run), imported(run)
    assert (new, anew, first.path) == (True, False, again.path)


def test_runs_without_a_seed_get_numbers_that_pair_with_nothing(mlflow_folder, imported):
    for name in "ab":
        place = mlflow_folder(name, curve(2.0))
    seeds = {imported(each)[0].header.seed for each in read_runs(place)}
    assert len(seeds) == 2


def test_the_time_after_the_last_evaluation_is_in_the_record(mlflow_folder, imported):
    (run,) = read_runs(mlflow_folder("a", curve(2.0), ended_s=BEGAN_S + 60))
    assert imported(run)[0].end.t_ns == pytest.approx(60e9)


def test_an_epoch_that_is_logged_is_that_of_the_record(event_files, imported):
    (run,) = read_runs(event_files("events", curve(2.0, count=4)))
    epochs = [each._replace(value=2.0 + at) for at, each in enumerate(run.metrics["val/acc"])]
    record, _ = imported(type(run)(**{**vars(run), "metrics": {**run.metrics, "epoch": epochs}}))
    assert [each.epoch for each in record.evaluations] == [2, 3, 4, 5]


def test_a_quality_that_is_no_number_reaches_nothing(mlflow_database, imported):
    (run,) = read_runs(mlflow_database("a", [(1.0, 1, math.nan), (2.0, 2, 0.5)]))
    assert not summarise(imported(run)[0]).reached


def test_a_deleted_run_is_left_out(mlflow_database):
    mlflow_database("a", curve(2.0), stage="deleted")
    place = mlflow_database("b", curve(2.0))
    assert [each.name for each in read_runs(place)] == ["b"]


def test_a_folder_of_a_deleted_run_is_left_out(mlflow_folder):
    for name in "ab":
        place = mlflow_folder(name, curve(2.0))
    with (place / "0" / "id-a" / "meta.yaml").open("a") as meta:
        meta.write("lifecycle_stage: deleted\n")
    assert [each.name for each in read_runs(place)] == ["b"]


def test_the_two_folders_of_a_run_of_keras_are_one_run(event_files, tmp_path):
    event_files("keras/train", curve(0.5))
    event_files("keras/validation", curve(2.0))
    event_files("alone/train", curve(2.0))
    keras, alone = sorted(read_runs(tmp_path), key=lambda run: -len(run.metrics))
    assert keras.name.endswith("keras")
    assert keras.metrics["train/val/acc"][0].value > keras.metrics["val/acc"][0].value
    assert alone.name.endswith("alone/train")


def test_runs_that_differ_in_their_values_alone_are_two(event_files, imported, tmp_path):
    for name, tau in (("a", 2.0), ("b", 3.0)):
        event_files(name, curve(tau))
    assert len({imported(run)[0].header.id for run in read_runs(tmp_path)}) == 2


def test_a_curve_of_training_and_a_long_gap_are_doubts(mlflow_folder, imported):
    def suspect(name, points):
        place = mlflow_folder(name, points)
        return imported(next(run for run in read_runs(place) if run.name == name))[0].end.suspect

    assert suspect("plain", curve(2.0)) == []
    assert ["suggest training data" in each for each in suspect("acc_train", curve(2.0))] == [True]
    resumed = [*curve(2.0), *((at_s + 36_000, step + 1000, 0.99) for at_s, step, _ in curve(2.0))]
    assert ["nothing was logged for" in each for each in suspect("resumed", resumed)] == [True]


def test_epochs_that_are_not_logged_are_not_made_up(mlflow_folder, imported):
    (run,) = read_runs(mlflow_folder("a", curve(2.0)))
    assert summarise(imported(run)[0]).epochs_to_target is None


def test_a_target_that_is_met_in_single_precision_is_reached(mlflow_folder, imported):
    (run,) = read_runs(mlflow_folder("a", [(1.0, 1, 0.5), (2.0, 2, float(np.float32(0.9))), (3.0, 3, 0.9)]))
    assert summarise(imported(run)[0]).reached


def test_a_secret_among_the_settings_is_not_in_the_record(mlflow_folder, imported):
    place = mlflow_folder("a", curve(2.0), {"url": "https://me:hunter22@example.org/data"})
    record, _ = imported(read_runs(place)[0])
    assert "hunter22" not in record.path.read_text()


@pytest.mark.parametrize(
    ("points", "found"),
    [
        ([(1.0, 100, 0.5), (2.0, 50, 0.6)], "its steps go back"),
        ([(2.0, 100, 0.5), (1.0, 200, 0.6)], "its times go back"),
        ([(-5.0, 100, 0.5)], "its times go back"),
    ],
)
def test_a_log_that_cannot_be_a_run_in_one_go_is_refused(mlflow_folder, imported, points, found):
    (run,) = read_runs(mlflow_folder("a", points, ended_s=BEGAN_S + 9))
    with pytest.raises(UsageError, match="importing a from MLflow") as refused:
        imported(run)
    assert found in refused.value.found


def points(count, every_s=1.0, first_s=1.0):
    return [Point(BEGAN_S + first_s + at * every_s, at, 0.1 * at) for at in range(count)]


def run_of(*logged):
    return RunLog("tool", "a", "a", BEGAN_S, BEGAN_S + 60, {}, {"val/acc": list(logged)})


@pytest.mark.parametrize("count", [1, 3])
def test_a_run_without_a_time_before_its_first_evaluation_is_refused(imported, count):
    with pytest.raises(UsageError) as refused:
        imported(run_of(*points(count, first_s=0.0)))
    assert "was logged 0 s after its start" in refused.value.found


@pytest.mark.parametrize("every_s", [0.0, 1e-4, 0.012])
def test_a_curve_that_was_logged_after_training_is_refused(imported, every_s):
    with pytest.raises(UsageError) as refused:
        imported(run_of(*points(5, every_s)))
    assert "its 5 values of val/acc were logged within" in refused.value.found
    assert "as by a loop after training" in refused.value.found


@pytest.mark.parametrize(
    "logged", [points(5, 0.05), points(5, 0.2, first_s=30.0), [*points(5), points(6)[5], points(6)[5]]]
)
def test_evaluations_that_may_have_been_logged_together_are_a_doubt(imported, logged):
    (doubt,) = imported(run_of(*logged))[0].end.suspect
    assert doubt.startswith("its values were logged")


@pytest.mark.parametrize(
    ("value", "do"),
    [
        *((each, "give the target in per cent: --target accuracy=90") for each in (1.5, 95.0)),
        *((each, "say its scale: --scale LOWEST,HIGHEST") for each in (-0.5, 250.0, math.inf)),
    ],
)
def test_a_quality_off_the_scale_is_refused(imported, value, do):
    given = points(4)
    with pytest.raises(UsageError) as refused:
        imported(run_of(given[0]._replace(value=math.nan), *given[1:3], given[3]._replace(value=value)))
    assert "the scale of the target goes from 0 to 1" in refused.value.found
    assert refused.value.do == do


def test_a_metric_without_an_end_of_its_scale_may_have_any_value(tmp_path):
    logged = [each._replace(value=value) for each, value in zip(points(3), [-20.0, 30.0, 300.0], strict=True)]
    given = {"metric": "val/acc", "task": "mine", "recipe": "r"}
    path, _ = import_run(run_of(*logged), Target("reward", 200.0, "higher", None, None), tmp_path, **given)
    assert [each.quality["validation"] for each in read_record(path).evaluations] == [-20.0, 30.0, 300.0]


def test_a_log_without_the_metric_says_what_it_has(mlflow_folder, imported):
    (run,) = read_runs(mlflow_folder("a", curve(2.0)))
    with pytest.raises(UsageError) as refused:
        imported(run, metric="accuracy")
    assert (refused.value.found, "--metric" in refused.value.do) == ("it logs val/acc", True)


@pytest.mark.parametrize("name", ["metrics.csv", "trainer_state.json"])
def test_what_holds_no_times_is_refused_in_words(tmp_path, name):
    (tmp_path / name).write_text("{}")
    with pytest.raises(UsageError, match="importing") as refused:
        read_runs(tmp_path / name)
    assert "has no times" in refused.value.found


def test_what_is_no_log_or_damaged_is_refused(tmp_path, mlflow_folder):
    with pytest.raises(UsageError, match="importing"):
        read_runs(tmp_path / "nothing")
    (tmp_path / "x.db").write_text("no database")
    with pytest.raises(DataError, match="importing"):
        read_runs(tmp_path / "x.db")
    place = mlflow_folder("a", curve(2.0))
    next(place.rglob("acc")).write_text("1700000000000 0.5 1\nno number at all\n")
    with pytest.raises(DataError, match=r"line 2 of .*acc is not a time, a value and a step: 'no number at all'"):
        read_runs(place)
