"""Our runs as MLPerf logs: how others read them, and what is read back."""

import json
from pathlib import Path

import msgspec
import pytest

from levelbench.competition.entries import Origin, SubmittedCurve
from levelbench.competition.exchange.mlperf import check_log, read_log, read_results, write_log, write_submission
from levelbench.errors import RecordError
from levelbench.records import read_record
from levelbench.records.summary import summarise


@pytest.fixture
def record(tmp_path, make_run, make_header, make_events):
    """A record of ours: three epochs, the target of 0.9 reached at the second; ``parts`` go into its specification."""

    def make(qualities=(0.5, 0.91, 0.92), end=None, **parts):
        settings = {"lr": 0.1, "batch": 64}
        path = make_run(
            tmp_path / "store", make_header(**{"settings": settings, **parts}), make_events(qualities, **(end or {}))
        )
        return read_record(path)

    return make


def logged(record, tmp_path, **options):
    return read_log(write_log(record, tmp_path / "result_0.txt", **options))


def test_a_records_log_keeps_the_rules(record, tmp_path):
    log = logged(record(), tmp_path, organisation="us")
    assert check_log(log) == []
    said = (log.benchmark, log.organisation, log.division, log.batch_size, log.seeds)
    assert said == ("digits", "us", "open", 64, (0,))
    own = {"lr": 0.1, "batch": 64}
    assert log.hyperparameters == {**own, "global_batch_size": 64, "gradient_accumulation_steps": 1} | {
        "opt_base_learning_rate": 0.1
    }


def test_the_time_is_the_score_on_mlperfs_clock(record, tmp_path):
    run = record()
    score = summarise(run, clock="mlperf", crossing="first")
    assert logged(run, tmp_path).time_s == pytest.approx(score.time_to_accuracy_s, abs=1e-3)


def test_initialisation_is_before_the_clock(tmp_path, make_run, make_header, make_events):
    events = make_events((0.5, 0.95))
    for event in events:
        if hasattr(event, "phases_ns"):
            event.phases_ns["compile"] = 250_000_000
            event.phases_ns["forward"] = event.phases_ns["forward"] - 250_000_000
    run = read_record(make_run(tmp_path, make_header(), events))
    log = logged(run, tmp_path)
    assert log.time_s == pytest.approx(summarise(run, clock="mlperf", crossing="first").time_to_accuracy_s, abs=1e-3)
    (start,) = log.all("init_start")
    assert (log.run_start.time_ns - start.time_ns) / 1e9 == 0.25
    assert check_log(log) == []


def test_the_clock_stops_at_the_first_evaluation_at_the_target(record, tmp_path):
    assert [each.value for each in logged(record(), tmp_path).evaluations] == [0.5, 0.91]


@pytest.mark.parametrize(
    ("qualities", "end"), [((0.5, 0.6, 0.7), {}), ((0.5, 0.95, 0.96), {"status": "failed", "error": "out of memory"})]
)
def test_a_run_that_did_not_arrive_is_aborted(record, tmp_path, qualities, end):
    log = logged(record(qualities, end), tmp_path)
    assert log.status == "aborted"
    assert len(log.evaluations) == 3
    assert log.run_stop.metadata.get("error") == end.get("error")
    assert check_log(log) == []


def test_a_diverged_run_keeps_its_nan(record, tmp_path):
    log = logged(record((float("nan"), float("nan"))), tmp_path)
    assert [finding.code for finding in check_log(log)] == ["not-finite", "not-finite"]


def test_nothing_is_claimed_that_is_not_known(record, tmp_path):
    log = logged(record(), tmp_path)
    assert log.value("cache_clear") is False
    assert log.value("train_samples") == 10
    assert log.value("eval_samples") is None


def test_a_run_of_four_processes_has_the_batch_of_all(record, tmp_path):
    from levelbench.records.schema import Distribution

    team = Distribution(4, "all-reduce", {}, "torchrun", "gloo", scaling="weak")
    assert logged(record(distribution=team), tmp_path).batch_size == 256


def test_a_record_without_an_evaluation_cannot_be_written(tmp_path, make_run, make_header):
    run = read_record(make_run(tmp_path, make_header(), []))
    with pytest.raises(RecordError, match="no evaluation"):
        write_log(run, tmp_path / "result_0.txt")
    assert not (tmp_path / "result_0.txt").exists()


def test_lines_have_the_formats_fields_in_its_order(record, tmp_path):
    first = write_log(record(), tmp_path / "result_0.txt").read_text().splitlines()[0]
    token, _, rest = first.partition(" ")
    assert token == ":::MLLOG"
    assert list(json.loads(rest)) == ["namespace", "time_ms", "event_type", "key", "value", "metadata"]
    assert isinstance(json.loads(rest)["time_ms"], int)


# The official checker's result.


def test_the_official_checker_accepts_it_in_the_open_division(record, tmp_path, official):
    assert official(write_log(record(), tmp_path / "result_0.txt", benchmark="llama31_8b"))


def test_the_official_common_rules_accept_it_under_its_own_name(record, tmp_path, official):
    assert official(write_log(record(), tmp_path / "result_0.txt"), config=common_alone(tmp_path))


def common_alone(folder: Path) -> str:
    """The official common rules, without the list of a round's benchmarks that a division's rules bring along."""
    from mlperf_logging.compliance_checker import mlp_compliance

    text = (Path(mlp_compliance.__file__).parent / "training_6.0.0" / "common.yaml").read_text()
    alone = text.replace("enqueue_config('training_6.0.0/{}_common.yaml'.format(v['value'])); ", "")
    assert alone != text
    (folder / "common.yaml").write_text(alone)
    return str(folder / "common.yaml")


@pytest.mark.parametrize("fault", ["no run_stop", "no eval_accuracy", "no init_stop", "run_start first"])
def test_a_fault_that_is_planted_in_it_is_refused_there_and_here(record, tmp_path, official, fault):
    path = write_log(record(), tmp_path / "result_0.txt", benchmark="llama31_8b")
    lines = path.read_text().splitlines(keepends=True)
    if fault == "run_start first":
        (start,) = [line for line in lines if '"run_start"' in line]
        lines = [start, *(line for line in lines if line != start)]
    else:
        lines = [line for line in lines if f'"{fault.removeprefix("no ")}"' not in line]
    path.write_text("".join(lines))
    assert not official(path)
    assert [finding for finding in check_log(read_log(path)) if finding.severity == "error"]


def test_time_that_goes_back_is_refused_here_and_not_there(record, tmp_path, official):
    path = write_log(record(), tmp_path / "result_0.txt", benchmark="llama31_8b")
    lines = path.read_text().splitlines(keepends=True)
    stop = json.loads(lines[-1].partition(" ")[2])
    stop["time_ms"] -= 60_000
    path.write_text("".join([*lines[:-1], f":::MLLOG {json.dumps(stop)}\n"]))
    assert official(path)
    assert {finding.code for finding in check_log(read_log(path))} == {"time-back", "time-negative"}


# The entry that is read back.


def test_a_submission_that_is_written_and_read_is_the_same(record, tmp_path):
    path = write_log(record(), tmp_path / "a" / "result_0.txt", organisation="us")
    (first,), _ = read_results(path)
    logs = write_submission(first, tmp_path / "b")
    assert [str(each.relative_to(tmp_path / "b")) for each in logs] == ["us/results/cpu/digits/result_0.txt"]
    (second,), problems = read_results(tmp_path / "b")
    assert problems == []
    run, again = first.runs[0], second.runs[0]
    assert (again.curve, again.time_to_target_s, again.seed, again.started) == (
        run.curve,
        run.time_to_target_s,
        run.seed,
        run.started,
    )
    for name in ("task", "target", "model", "framework", "settings", "division", "submitted", "author"):
        assert getattr(second, name) == getattr(first, name), name


def test_a_log_of_ours_says_its_own_target(record, tmp_path):
    (found,), _ = read_results(write_log(record(), tmp_path / "result_0.txt"))
    assert (found.target.metric, found.target.threshold) == ("accuracy", 0.9)
    assert (found.model, found.framework, found.task) == ("mlp", "numpy", "digits")


@pytest.mark.parametrize(
    ("change", "crossing", "status", "time_s"),
    [
        ({}, "first", "success", 2.25),
        ({"time_to_target_s": 99.0}, "first", "success", 2.0),
        ({"time_to_target_s": 99.0}, "confirmed", "success", 3.0),
        ({"reached": False}, "first", "aborted", 4.0),
    ],
)
def test_a_stated_time_counts_between_the_crossing_and_the_next_evaluation(
    record, tmp_path, change, crossing, status, time_s
):
    (submission,), _ = read_results(write_log(record(), tmp_path / "a" / "result_0.txt"))
    curve = SubmittedCurve([1.0, 2.0, 3.0, 4.0], [0.5, 0.91, 0.92, 0.93])
    stated = {"curve": curve, "time_to_target_s": 2.25, "reached": True, **change}
    run = msgspec.structs.replace(submission.runs[0], **stated)
    entry = msgspec.structs.replace(submission, runs=[run], crossing=crossing)
    (path,) = write_submission(entry, tmp_path / "b")
    log = read_log(path)
    assert (log.status, log.time_s) == (status, time_s)


@pytest.mark.parametrize(
    ("curve", "found"),
    [({"time_s": [], "quality": []}, "empty"), ({"time_s": [1.0]}, "differ"), ({"time_s": [-1.0, 2.0]}, "below zero")],
)
def test_a_broken_curve_cannot_be_written(record, tmp_path, curve, found):
    (submission,), _ = read_results(write_log(record(), tmp_path / "result_0.txt"))
    run = submission.runs[0]
    changed = msgspec.structs.replace(run, curve=msgspec.structs.replace(run.curve, epoch=None, samples=None, **curve))
    with pytest.raises(RecordError, match=found):
        write_submission(msgspec.structs.replace(submission, runs=[changed]), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_entry_of_inference_has_no_training_log(record, tmp_path):
    (submission,), _ = read_results(write_log(record(), tmp_path / "result_0.txt"))
    with pytest.raises(RecordError, match="entry of inference"):
        write_submission(msgspec.structs.replace(submission, mode="inference"), tmp_path / "out")


def test_names_cannot_lead_out_of_the_folder(record, tmp_path):
    (submission,), _ = read_results(write_log(record(), tmp_path / "result_0.txt"))
    named = msgspec.structs.replace(submission, task="../../task")
    (path,) = write_submission(named, tmp_path / "out")
    assert path.resolve().is_relative_to((tmp_path / "out").resolve())


def test_of_another_systems_run_nothing_is_claimed_about_caches_and_initialisation(record, tmp_path):
    (first,), _ = read_results(write_log(record(), tmp_path / "a" / "result_0.txt", organisation="us"))
    bare = msgspec.structs.replace(first.runs[0], excluded_s={})
    origin = Origin("dawnbench", "CIFAR10/train/a.json", doubts=["single-run: its spread is unknown"])
    entry = msgspec.structs.replace(first, runs=[bare], origin=origin)
    (path,) = write_submission(entry, tmp_path / "b")
    log = read_log(path)
    assert not [key for key in ("cache_clear", "init_start", "init_stop") if log.all(key)]
    (again,), _ = read_results(tmp_path / "b")
    assert again.runs[0].excluded_s == {}
    assert again.origin.doubts[0] == "single-run: its spread is unknown"


def test_initialisation_that_another_system_states_is_kept(record, tmp_path):
    (first,), _ = read_results(write_log(record(), tmp_path / "a" / "result_0.txt", organisation="us"))
    run = msgspec.structs.replace(first.runs[0], excluded_s={"prepare": 2.5})
    write_submission(msgspec.structs.replace(first, runs=[run]), tmp_path / "b")
    (again,), _ = read_results(tmp_path / "b")
    assert again.runs[0].excluded_s == {"prepare": 2.5}
