"""Entries of leaderboards, DAWNBench's files, MLPerf's logs and folders of them as claims."""

import json

import pytest
from tests.claims.run_store import specification, write_runs

from levelbench.claims.lint import findings_of
from levelbench.claims.reading import read, read_folder
from levelbench.competition.claims import read_mlperf, read_submission_file
from levelbench.competition.entries import Author, SystemPrice, TuningEffort, encode
from levelbench.competition.making import Terms, make
from levelbench.competition.rulesets import ruleset
from levelbench.errors import RecordError, UsageError
from levelbench.records import Store, Target

QUALITIES = (0.60, 0.80, 0.90, 0.94, 0.955, 0.963, 0.967)
DAWN = {
    "version": "v1.0",
    "author": "A. Author",
    "authorEmail": "a@example.org",
    "framework": "PyTorch 1.0",
    "codeURL": "https://example.org/code/tree/" + "a" * 40,
    "model": "ResNet 9",
    "hardware": "1 V100 (AWS p3.2xlarge)",
    "timestamp": "2019-04-14",
    "costPerHour": 3.06,
    "misc": {"optimizer": {"batchSize": 512}},
}
CURVE = "epoch\thours\ttop1Accuracy\n1\t0.01\t90.5\n2\t0.02\t94.0\n3\t0.03\t94.09\n"
LOST = "epoch\thours\ttop1Accuracy\n1\t0.01\t94.5\n2\t0.02\t94.1\n3\t0.03\t93.2\n"


@pytest.fixture
def entry(tmp_path):
    """A file with the entry that five clean runs make, under the rules of our own tasks."""
    spec = specification(target=Target("top1", 0.96))
    store = write_runs(tmp_path / "store", spec=spec, qualities=QUALITIES)
    terms = Terms(
        author=Author("Ada"),
        submitted="2026-11-21",
        ruleset=ruleset("levelbench-1.0"),
        price=SystemPrice(0.38, "https://example.org/prices", "2026-11-21", True),
        tuning=TuningEffort(trials=3, hours=0.2),
        code_url="https://example.org/code",
    )
    path = tmp_path / "board" / "digits" / "training" / "ada.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(encode(make(Store(store).records("digits"), terms)))
    return path


def dawn(folder, name="a_resnet9_1v100_pytorch", curve=CURVE, **more):
    path = folder / "CIFAR10" / "train" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**DAWN, **more}))
    path.with_suffix(".tsv").write_text(curve)
    return path


def log(path, values=(0.5, 0.7, 0.76), seed=1):
    path.parent.mkdir(parents=True, exist_ok=True)
    events = [("submission_benchmark", "resnet", {}), ("submission_org", "someone", {}), ("seed", seed, {})]
    events += [("submission_platform", "8 x V100", {}), ("global_batch_size", 1024, {}), ("run_start", None, {})]
    events += [("eval_accuracy", value, {"epoch_num": at}) for at, value in enumerate(values, 1)]
    events.append(("run_stop", None, {"status": "success"}))
    lines = []
    for at, (key, value, more) in enumerate(events):
        line = {"namespace": "", "time_ms": 1_700_000_000_000 + 10_000 * at, "event_type": "POINT_IN_TIME", "key": key}
        lines.append(f":::MLLOG {json.dumps({**line, 'value': value, 'metadata': {'lineno': 1, **more}})}")
    path.write_text("\n".join(lines) + "\n")
    return path


def shown(claim):
    return [(each.code, each.severity) for each in findings_of(claim) if each.severity != "not-stated"]


def test_an_entry_of_clean_runs_has_no_error_and_no_warning(entry):
    (claim,) = read_submission_file(entry)
    assert shown(claim) == []


def test_an_entry_has_the_figure_that_the_leaderboard_computes(entry):
    side = read_submission_file(entry)[0].sides[0]
    assert (side.reported, side.runs_made, side.runs_reached) == ("median", 5, 5)
    assert side.time_s == pytest.approx(14.5, rel=0.02)
    assert side.cost_usd == pytest.approx(side.time_s / 3600 * 0.38)
    assert (side.tuning.trials, side.tuning.hours, side.quality.test_looks) == (3, 0.2, 1)
    assert side.performance == side.accuracy
    assert side.hardware.price_source == "https://example.org/prices"


def test_what_an_entry_claims_of_a_run_is_held_against_its_curve(entry):
    raw = json.loads(entry.read_text())
    raw["runs"][0]["curve"]["quality"] = [0.5] * 7
    entry.write_text(json.dumps(raw))
    side = read_submission_file(entry)[0].sides[0]
    assert (side.runs_reached, side.runs[0].reached, side.runs[0].time_s) == (4, False, None)


def test_an_entry_under_rules_that_nobody_has_is_read_without_a_figure(entry):
    raw = json.loads(entry.read_text()) | {"ruleset": "someone-1.0"}
    entry.write_text(json.dumps(raw))
    side = read_submission_file(entry)[0].sides[0]
    assert (side.time_s, side.reported, len(side.runs)) == (None, None, 5)


def test_an_entry_of_dawnbench_is_one_run_on_its_clock_judged_on_test_data(tmp_path):
    (claim,) = read_submission_file(dawn(tmp_path))
    side = claim.sides[0]
    assert claim.read_from == "dawnbench"
    assert (side.time_s, side.reported, side.runs_made) == (pytest.approx(72.0), "single", None)
    assert (side.clock.policy, side.clock.evaluation, side.clock.data) == ("dawnbench", False, True)
    assert (side.quality.split, side.quality.stopping_split, side.quality.target) == ("test", "test", 0.94)
    assert (side.workload.global_batch, side.year) == (512, 2019)
    assert side.cost_usd == pytest.approx(72 / 3600 * 3.06)
    assert ("LB122", "warning") in shown(claim)


def test_an_entry_of_dawnbench_that_loses_its_target_is_told_so(tmp_path):
    assert ("LB130", "warning") in shown(read_submission_file(dawn(tmp_path, curve=LOST))[0])


def test_an_entry_of_inference_has_a_side_for_each_measurement(tmp_path):
    path = tmp_path / "CIFAR10" / "inference" / "a.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({**DAWN, "latency": 28.688, "cost": 7.172e-6, "top1Accuracy": 94.97}))
    (claim,) = read_submission_file(path)
    side = claim.sides[0]
    assert (side.time_of, side.time_s, side.quality.value) == ("call", pytest.approx(0.028688), pytest.approx(0.9497))
    assert shown(claim) == []


def test_one_log_of_mlperf_is_one_run_of_an_unstated_number(tmp_path):
    (claim,) = read_mlperf(log(tmp_path / "result_0.txt"))
    side = claim.sides[0]
    assert claim.read_from == "mlperf"
    assert (side.runs_made, len(side.runs), side.runs[0].reached) == (None, 1, True)
    assert (side.clock.initialisation, side.clock.data, side.clock.evaluation) == (False, True, True)


def test_five_logs_of_mlperf_are_one_claim_with_the_olympic_mean(tmp_path):
    for at in range(5):
        log(tmp_path / f"result_{at}.txt", values=(0.5, 0.7, 0.75, 0.76) if at % 2 else (0.5, 0.7, 0.76), seed=at)
    (claim,) = read_mlperf(tmp_path)
    side = claim.sides[0]
    assert (side.reported, len(side.runs), side.workload.global_batch) == ("olympic", 5, 1024)
    assert side.time_s == pytest.approx((40 + 40 + 50) / 3)
    assert claim.summaries[0].by == "olympic"
    assert side.runs[3].where == str(tmp_path / "result_3.txt")


def test_a_folder_is_all_claims_in_it_whatever_they_are(entry, tmp_path):
    dawn(tmp_path / "board")
    log(tmp_path / "board" / "logs" / "result_0.txt")
    (tmp_path / "board" / "claim.toml").write_text('title = "t"\n[[sides]]\nname = "a"\ntime_s = 9.0\n')
    found = read_folder(tmp_path / "board")
    assert sorted(each.read_from for each in found) == ["claim", "dawnbench", "mlperf", "submission"]
    assert len(read(tmp_path / "board")) == 4


def test_files_of_another_kind_are_passed_over(entry, tmp_path):
    board = tmp_path / "board"
    (board / "board.toml").write_text('title = "Ours"\n')
    (board / "package.json").write_text('{"name": "site"}')
    (board / "notes.txt").write_text("no claim")
    assert len(read_folder(board)) == 1


def test_a_file_that_cannot_be_read_is_said_and_hides_no_other(entry, tmp_path):
    (entry.parent / "broken.json").write_text("{")
    with pytest.raises(RecordError):
        read_folder(tmp_path / "board")
    problems = []
    assert len(read_folder(tmp_path / "board", problems)) == 1
    assert [str(each) for each in problems] == [str(problems[0])]
    assert "broken.json" in str(problems[0])


def test_a_folder_without_a_claim_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="has no claims"):
        read_folder(tmp_path)


@pytest.mark.parametrize("name", ["events.out.tfevents.1.host.2.0", "run-1.wandb", "meta.yaml", "mlflow.db"])
def test_a_folder_of_another_tools_logs_is_to_be_imported_first(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(UsageError, match=r"(?s)logs of TensorBoard, MLflow or W&B.*levelbench import"):
        read_folder(tmp_path)
    (tmp_path / name).write_bytes(b"SQLite format 3\0")
    with pytest.raises(UsageError, match=r"(?s)logs of TensorBoard, MLflow or W&B.*levelbench import"):
        read(tmp_path / name)


def test_a_leaderboard_has_its_own_rulesets(entry, tmp_path):
    rules = tmp_path / "board" / "rulesets"
    rules.mkdir()
    text = (
        'id = "own-1.0"\nname = "own"\nversion = "1.0"\ndate = "2026-01-01"\nsource = "x"\nclock = "wall"\n'
        'crossing = "first"\nnotes = ""\n[aggregation]\nrule = "median"\nruns = 5\n[cost]\non_demand_only = true\n'
        'source_required = true\nrounding = "significant"\n[[tasks]]\ntask = "digits"\nunit = "top-1"\n'
        '[tasks.target]\nmetric = "top1"\nthreshold = 0.96\nsplit = "validation"\n'
    )
    (rules / "own.toml").write_text(text)
    entry.write_text(json.dumps(json.loads(entry.read_text()) | {"ruleset": "own-1.0", "crossing": "first"}))
    side = read_folder(tmp_path / "board")[0].sides[0]
    assert side.time_s == pytest.approx(12.5, rel=0.02)
