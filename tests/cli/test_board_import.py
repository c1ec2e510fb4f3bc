"""board import: what is read, ranked, doubted and written; what cannot be read ends in 1 and stops nothing."""

import json

import pytest
from tests.competition.exchange.mlperf.conftest import good_events, written
from tests.competition.exchange.test_speedrun import record as speed_runs

HEAD = "epoch\thours\ttop1Accuracy\n"
CURVE = HEAD + "1\t0.01\t90.5\n2\t0.02\t94.0\n3\t0.03\t93.9\n"
ANSWERED = {"latency": 28.688, "cost": 7.172e-6, "top1Accuracy": 94.97}


def entry(folder, name, curve=CURVE, mode="train", **more):
    place = folder / "CIFAR10" / mode
    place.mkdir(parents=True, exist_ok=True)
    record = {
        "version": "v1.0",
        "author": "A. Author",
        "authorEmail": "a@example.org",
        "framework": "PyTorch 1.0",
        "model": "ResNet 9",
        "hardware": "1 V100",
        "timestamp": "2019-04-14",
        **more,
    }
    (place / f"{name}.json").write_text(json.dumps(record))
    if mode == "train":
        (place / f"{name}.tsv").write_text(curve)


@pytest.fixture
def clone(tmp_path):
    folder = tmp_path / "clone"
    entry(folder, "a_resnet9_1v100_pytorch", costPerHour=3.06)
    entry(folder, "b_resnet9_1v100_pytorch", CURVE.replace("0.02", "0.015"), model="ResNet 8")
    entry(folder, "a_resnet9_1v100_pytorch", mode="inference", hardware="K80", **ANSWERED)
    return folder


def test_the_leaderboard_is_printed_with_its_figures_as_the_site_had_them(call, clone):
    code, out, err = call("board", "import", "dawnbench", clone)
    assert (code, err) == (0, "")
    assert "3 entries of dawnbench" in out
    for figure in ("0:00:54", "0:01:12", "$0.06", "28.69 ms", "$7.17"):
        assert figure in out


def test_what_is_printed_is_what_was_looked_at(call, clone, golden, monkeypatch):
    monkeypatch.chdir(clone.parent)
    _, out, _ = call("board", "import", "dawnbench", clone.name, "-o", "board")
    golden("board_import", out)


def test_top_limits_each_ranking(call, clone):
    _, out, _ = call("board", "import", "dawnbench", clone, "--top", "1")
    assert "0:00:54" in out
    assert "0:01:12" not in out


def test_every_doubt_is_listed_under_its_file_and_one_that_all_share_is_reported_once(call, clone):
    _, out, _ = call("board", "import", "dawnbench", clone)
    assert "doubts in 3 entries: single-run in all, code in all" in out
    assert "  CIFAR10/train/a_resnet9_1v100_pytorch.json\n    flapping: at the target after 72.00 s" in out


def test_without_doubts_only_their_counts_are_printed(call, clone):
    _, out, _ = call("board", "import", "dawnbench", clone, "--no-doubts")
    assert "flapping in 2" in out
    assert "flapping: " not in out


def test_nothing_is_written_without_an_output(call, clone):
    before = sorted(clone.parent.rglob("*"))
    call("board", "import", "dawnbench", clone)
    assert sorted(clone.parent.rglob("*")) == before


def test_entries_are_written_to_their_place_and_pass_the_check(call, clone, tmp_path):
    board = tmp_path / "board"
    code, out, _ = call("board", "import", "dawnbench", clone, "-o", board)
    assert (code, "wrote 3 entries" in out) == (0, True)
    assert sorted(each.relative_to(board).as_posix() for each in board.rglob("*.json")) == [
        "cifar10/inference/a_resnet9_1v100_pytorch.json",
        "cifar10/training/a_resnet9_1v100_pytorch.json",
        "cifar10/training/b_resnet9_1v100_pytorch.json",
    ]
    assert call("board", "check", board)[0] == 0


def test_importing_again_changes_nothing(call, clone, tmp_path):
    board = tmp_path / "board"
    call("board", "import", "dawnbench", clone, "-o", board)
    times = {each: each.stat().st_mtime_ns for each in board.rglob("*.json")}
    code, out, _ = call("board", "import", "dawnbench", clone, "-o", board)
    assert (code, "wrote 0 entries" in out) == (0, True)
    assert {each: each.stat().st_mtime_ns for each in board.rglob("*.json")} == times


def test_an_entry_that_differs_is_not_overwritten_unless_forced(call, clone, tmp_path):
    board = tmp_path / "board"
    call("board", "import", "dawnbench", clone, "-o", board)
    path = board / "cifar10" / "training" / "b_resnet9_1v100_pytorch.json"
    path.write_text("{}")
    code, _, err = call("board", "import", "dawnbench", clone, "-o", board)
    assert (code, path.read_text()) == (2, "{}")
    assert "1 entry exists and differs" in err
    assert call("board", "import", "dawnbench", clone, "-o", board, "--force")[0] == 0
    assert path.read_text() != "{}"


def test_a_broken_file_is_reported_with_its_name_and_ends_in_1_and_the_rest_is_written(call, clone, tmp_path):
    (clone / "CIFAR10" / "train" / "a_resnet9_1v100_pytorch.json").write_text("{")
    code, out, err = call("board", "import", "dawnbench", clone, "-o", tmp_path / "board")
    assert code == 1
    assert "not read: CIFAR10/train/a_resnet9_1v100_pytorch.json: it is not JSON" in err
    assert "wrote 2 entries" in out


def test_what_would_steer_a_terminal_is_shown_as_an_escape(call, clone):
    entry(clone, "c_\x1b[2J_x_y", model="\x1b[31mred", timestamp="2019-6-27")
    _, out, _ = call("board", "import", "dawnbench", clone)
    assert "\x1b" not in out


def test_json_has_entries_rankings_doubts_and_problems(call, clone):
    code, out, _ = call("board", "import", "dawnbench", clone, "--json")
    found = json.loads(out)
    assert code == 0
    assert [len(found[name]) for name in ("entries", "rankings", "problems")] == [3, 4, 0]
    assert found["rankings"][0]["rows"][0]["text"] == "0:00:54"
    assert found["rankings"][0]["rows"][0]["value"] == 54.0
    assert any(each.startswith("flapping") for each in found["entries"][0]["doubts"])


def test_a_folder_without_entries_is_an_error_in_three_parts(call, tmp_path):
    code, _, err = call("board", "import", "dawnbench", tmp_path)
    assert code == 2
    assert "there are no entries" in err


def test_a_format_that_does_not_exist_is_a_usage_error(call, tmp_path):
    assert call("board", "import", "csv", tmp_path)[0] == 2


def test_options_of_one_format_are_refused_for_another(call, clone):
    code, _, err = call("board", "import", "dawnbench", clone, "--task", "cifar10")
    assert code == 2
    assert "--task" in err


def test_algorithms_are_scored_by_their_profile(call, tmp_path):
    meta = {"workload.target_metric_name": "accuracy", "workload.validation_target_value": 0.97}
    for name, time_s in (("adamw", 10), ("sgd", 25)):
        trial = tmp_path / "logs" / name / "study_0" / "mnist_jax" / "trial_1"
        trial.mkdir(parents=True)
        (trial / "meta_data_0.json").write_text(json.dumps(meta))
        lines = ["accumulated_submission_time,validation/accuracy", "1,0.5", f"{time_s},0.98"]
        (trial / "eval_measurements.csv").write_text("\n".join(lines) + "\n")
    _, out, _ = call("board", "import", "algoperf", tmp_path / "logs", "--json")
    scores = {each["submission"]: each["score"] for each in json.loads(out)["scores"]}
    assert scores == {"adamw": 1.0, "sgd": 0.5}


def logged(folder, latency_ms, scenario="SingleStream", verdict="VALID"):
    """LoadGen's logs of one run: its estimate, its mean and its verdict."""
    rule = "=" * 48
    head = "Completed samples per second : 50.5" if scenario == "Server" else ""
    folder.mkdir(parents=True)
    (folder / "mlperf_log_summary.txt").write_text(
        f"{rule}\nMLPerf Results Summary\n{rule}\nSUT name : s\nScenario : {scenario}\nMode : PerformanceOnly\n"
        f"90.0th percentile latency (ns) : {latency_ms * 10**6}\n{head}\nResult is : {verdict}\n"
        "Early Stopping Result:\n * Processed at least 64 queries (120).\n"
        f" * Early stopping 90.0th percentile estimate: {latency_ms * 10**6}\n"
        f"{rule}\nAdditional Stats\n{rule}\nMean latency (ns) : {10**9 // latency_ms}\n"
        f"90.00 percentile latency (ns)   : {latency_ms * 10**6}\n"
        f"{rule}\nTest Parameters Used\n{rule}\nsamples_per_query : 1\n"
    )
    return folder


@pytest.fixture
def logs(tmp_path):
    """Two single streams whose means are ordered the other way round, a server's run, and one that is invalid."""
    for name, latency_ms, more in (
        ("slow", 9, {}),
        ("fast", 4, {}),
        ("busy", 2, {"scenario": "Server"}),
        ("bad", 1, {"verdict": "INVALID"}),
    ):
        logged(tmp_path / "logs" / name, latency_ms, **more)
    return tmp_path / "logs"


def test_each_scenario_of_loadgen_is_ranked_alone_by_its_own_metric(call, logs):
    _, out, _ = call("board", "import", "loadgen", logs, "--task", "digits", "--json")
    rankings = {each["column"]: each for each in json.loads(out)["rankings"]}
    assert set(rankings) == {"single-stream", "server"}
    assert [(row["rank"], row["text"], row["file"]) for row in rankings["single-stream"]["rows"]] == [
        (1, "4 ms", "fast"),
        (2, "9 ms", "slow"),
    ]
    assert [row["text"] for row in rankings["server"]["rows"]] == ["50.5 /s"]


def test_a_run_that_loadgen_calls_invalid_is_left_out_and_named(call, logs):
    _, out, _ = call("board", "import", "loadgen", logs, "--task", "digits")
    assert "left out: bad: LoadGen calls it INVALID" in out


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ((), "levelbench-1.0 has no task 'not stated'"),
        (("--task", "digits"), "--author and --hardware and --framework"),
        (("--task", "digits", "--author", "me", "--framework", "torch"), "lack the values of --hardware"),
    ],
)
def test_what_loadgen_does_not_say_has_to_be_given_before_anything_is_written(call, logs, tmp_path, options, found):
    code, _, err = call("board", "import", "loadgen", logs, *options, "-o", tmp_path / "board")
    assert (code, found in err) == (2, True)
    assert not (tmp_path / "board").exists()


def test_what_is_given_is_in_the_entry_and_the_check_has_no_error_about_where_it_lies(call, logs, tmp_path):
    options = ("--author", "me", "--model", "resnet9", "--hardware", "1 V100", "--framework", "torch")
    board = tmp_path / "board"
    code, out, _ = call("board", "import", "loadgen", logs / "fast", "--task", "digits", *options, "-o", board)
    assert (code, "wrote 1 entry to" in out) == (0, True)
    (path,) = board.rglob("*.json")
    entry = json.loads(path.read_text())
    assert (entry["model"], entry["framework"], entry["hardware"]["description"]) == ("resnet9", "torch", "1 V100")
    found = {each["code"] for each in json.loads(call("board", "check", board, "--json")[1])["findings"]}
    assert not found & {"B110", "B111", "B112", "B114"}


def test_a_ranking_fits_eighty_columns_in_one_table(call, clone, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    entry(clone, "c_long", hardware="8 x an accelerator of a name beyond all bounds", model="a network of a long name")
    _, out, _ = call("board", "import", "dawnbench", clone, "--no-doubts")
    assert out.count("rank  ") == 4
    assert max(len(each) for each in out.splitlines() if each.startswith(("rank", "   1"))) <= 80


def test_a_small_cost_keeps_its_digits_and_says_of_how_many_answers_it_is(call, clone):
    entry(clone, "d_x_y_z", mode="inference", **{**ANSWERED, "cost": 1.2345e-7})
    _, out, _ = call("board", "import", "dawnbench", clone, "--no-doubts")
    assert "$0.123" in out
    assert "inference cost of 1,000,000 answers" in out
    (cost,) = [
        each
        for each in json.loads(call("board", "import", "dawnbench", clone, "--json")[1])["rankings"]
        if each["column"] == "inference cost" and len(each["rows"])
    ]
    assert (cost["rows"][0]["value"], cost["rows"][0]["published"]) == (pytest.approx(0.12345), "$0.0012")


def test_one_is_an_entry_and_not_entries(call, clone):
    for path in list((clone / "CIFAR10" / "train").iterdir()):
        path.unlink()
    _, out, _ = call("board", "import", "dawnbench", clone)
    assert "1 entry of dawnbench" in out
    assert "1 entries" not in out


def test_mlperf_results_have_the_runs_that_missed_and_the_olympic_mean_in_text_and_json(call, tmp_path):
    folder = tmp_path / "someone" / "results" / "box" / "resnet"
    folder.mkdir(parents=True)
    for run in range(5):
        lines = good_events(benchmark="resnet", seed=run, values=(0.5, 0.6 if run == 2 else 0.76))
        lines[-1]["time_ms"] += 1000 * run
        lines[-1]["metadata"]["status"] = "aborted" if run == 2 else "success"
        (folder / f"result_{run}.txt").write_text(written(lines))
    code, out, _ = call("board", "import", "mlperf", tmp_path, "--no-doubts")
    assert (code, "4/5" in out, "32.67" in out) == (0, True, True)
    (entry,) = json.loads(call("board", "import", "mlperf", tmp_path, "--json")[1])["entries"]
    assert (entry["runs"], entry["reached"], entry["failed"]) == (5, 4, 0)
    assert entry["olympic_s"] == pytest.approx(98 / 3)


def test_an_unknown_benchmark_is_read_and_its_mean_says_why_it_is_missing(call, tmp_path):
    (tmp_path / "result_0.txt").write_text(written(good_events(benchmark="gnmt")))
    code, out, _ = call("board", "import", "mlperf", tmp_path)
    assert code == 0
    assert "not ranked: the benchmark is unknown" in out
    assert "unknown benchmark 'gnmt': its target is not known, and it is not ranked" in out


def test_speed_runs_rank_by_their_rules_and_the_rest_is_named(call, tmp_path):
    speed_runs(tmp_path / "in")
    speed_runs(tmp_path / "in", "2025-02-01_Unsure", (3.2789, 3.2812))
    code, out, _ = call("board", "import", "speedrun", tmp_path / "in", "--json")
    (ranking,) = json.loads(out)["rankings"]
    assert code == 0
    # The logs do not say which runs reached the target; their curves do.
    assert {each["model"]: each["reached"] for each in json.loads(out)["entries"]}["2025-02-01_Unsure"] == 1
    assert [(row["rank"], row["model"]) for row in ranking["rows"]] == [(1, "2025-01-16_Sub3Min")]
    assert [each["model"] for each in ranking["left_out"]] == ["2025-02-01_Unsure"]
