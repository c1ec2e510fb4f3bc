"""Trees of results as submissions: one per benchmark and system, with doubts."""

import pytest

from levelbench.competition.entries import encode
from levelbench.competition.exchange.mlperf import read_results
from levelbench.competition.leaderboard import check
from levelbench.competition.rulesets import ruleset
from levelbench.competition.rulesets.scores import olympic_score
from levelbench.competition.scoring import score as scored
from levelbench.errors import RecordError

BENCH = "someone/results/box/resnet"


def the_only(path):
    (submission,), problems = read_results(path)
    assert problems == []
    return submission


def test_the_runs_of_a_benchmark_on_a_system_are_one_submission(tree):
    found = the_only(tree())
    assert (found.task, found.mode, found.division, found.clock, found.crossing) == (
        "resnet",
        "training",
        "open",
        "mlperf",
        "first",
    )
    assert [run.time_to_target_s for run in found.runs] == [30.0, 31.0, 32.0, 33.0, 34.0]
    assert [run.seed for run in found.runs] == [0, 1, 2, 3, 4]
    assert found.submitted == "2023-11-14"
    assert found.origin.doubts == []
    assert found.settings["global_batch_size"] == 64


def test_the_system_is_described_by_its_own_file(tree):
    found = the_only(tree())
    assert (found.author.name, found.framework) == ("Someone Ltd", "PyTorch 1.13")
    hardware = found.hardware
    assert (hardware.description, hardware.nodes, hardware.accelerators, hardware.cores) == ("2 boxes", 2, 16, 256)
    assert hardware.memory_bytes == 3 * 10**12


def test_the_target_is_the_benchmarks(tree):
    target = the_only(tree()).target
    assert (target.metric, target.threshold, target.direction) == ("top1", 0.759, "higher")


def test_a_run_holds_its_curve_and_what_the_clock_left_out(tree):
    run = the_only(tree()).runs[0]
    assert run.curve.time_s == [14.998, 30.0]
    assert run.curve.quality == [0.5, 0.76]
    assert run.curve.epoch == [1.0, 2.0]
    assert run.curve.samples == [1024, 2048]
    assert run.excluded_s == {"prepare": pytest.approx(60.008)}
    assert (run.reached, run.status, run.started) == (True, "done", "2023-11-14T22:14:20.010+00:00")
    assert len(run.record_digest or "") == 64


def test_a_curve_crosses_when_the_run_stops_and_no_rule_of_ours_objects(tree):
    found = the_only(tree())
    assert [run.curve.time_s[-1] for run in found.runs] == [run.time_to_target_s for run in found.runs]
    score = scored(found, ruleset("mlperf-training-like-1.0"))
    assert score.time.value == olympic_score([run.time_to_target_s for run in found.runs]).score_s
    assert [str(finding) for finding in check(found) if finding.severity == "error"] == []


def test_a_log_can_be_encoded_as_json(tree):
    assert b'"resnet"' in encode(the_only(tree()))


@pytest.mark.parametrize(
    ("number", "doubt"),
    [
        (0, "2 runs, but the benchmark requires 5"),
        (1, "seed-repeated: seed 0 was also used by result_0.txt"),
        (2, "the runs disagree about batch_size: 32, 64"),
        (3, "the runs disagree about opt_base_learning_rate"),
        (4, "the runs disagree about platform: box, other"),
    ],
)
def test_what_the_runs_do_not_agree_about_is_a_doubt(tree, make_lines, text_of, number, doubt):
    lines = make_lines(benchmark="resnet", seed=9, values=(0.5, 0.76))
    changes = {
        1: ("seed", 0),
        2: ("global_batch_size", 32),
        3: ("opt_base_learning_rate", 1),
        4: ("submission_platform", "other"),
    }
    lines = [
        {**line, "value": changes[number][1]} if number and line["key"] == changes[number][0] else line
        for line in lines
    ]
    found = the_only(tree({f"{BENCH}/result_1.txt": text_of(lines)}, runs=2))
    assert doubt in found.origin.doubts


def test_a_success_that_the_curve_does_not_show_is_suspect(tree, make_lines, text_of):
    lines = make_lines(benchmark="resnet", seed=7, values=(0.5, 0.7))
    found = the_only(tree({f"{BENCH}/result_0.txt": text_of(lines)}))
    assert found.runs[0].suspect == ["run_stop reports success, but the curve never reaches 0.759"]


def test_doubts_about_runs_are_listed_with_the_submission(tree, make_lines, text_of):
    lines = {number: make_lines(benchmark="resnet", seed=number, values=(0.5, 0.7)) for number in range(5)}
    found = the_only(tree({f"{BENCH}/result_{number}.txt": text_of(each) for number, each in lines.items()}))
    assert "run_stop reports success, but the curve never reaches 0.759 (5 of 5 logs)" in found.origin.doubts


def test_a_doubt_about_several_lines_of_a_log_counts_that_log_once(tree, make_lines, text_of):
    logs = {f"{BENCH}/result_{n}.txt": make_lines(benchmark="resnet", seed=n, values=(0.5, 0.7)) for n in range(5)}
    for lines in logs.values():
        for line in lines:
            if line["key"] == "eval_accuracy":
                line["metadata"] = {}
    found = the_only(tree({name: text_of(lines) for name, lines in logs.items()}))
    (doubt,) = [each for each in found.origin.doubts if "eval_accuracy" in each]
    assert doubt.endswith("(5 of 5 logs)")


@pytest.mark.parametrize(("last", "status"), [(0.76, "failed"), (0.75, "done")])
def test_a_run_that_was_aborted_after_its_target_has_failed_and_keeps_no_other_run_out(
    tree, make_lines, text_of, last, status
):
    lines = make_lines(benchmark="resnet", seed=0, values=(0.5, last))
    lines[-1]["metadata"]["status"] = "aborted"
    found = the_only(tree({f"{BENCH}/result_0.txt": text_of(lines)}))
    assert (found.runs[0].status, found.runs[0].reached) == (status, False)
    assert [str(each) for each in check(found) if each.severity == "error"] == []


@pytest.mark.parametrize(("cut", "status", "reached"), [(1, "failed", False), (0, "done", True)])
def test_a_log_without_run_stop_is_a_failed_run(tree, make_lines, text_of, cut, status, reached):
    lines = make_lines(benchmark="resnet", seed=7, values=(0.5, 0.76))
    run = the_only(tree({f"{BENCH}/result_0.txt": text_of(lines[: len(lines) - cut])})).runs[0]
    assert (run.status, run.reached) == (status, reached)


def test_an_evaluation_that_is_not_a_number_is_left_out_of_the_curve_and_reported(tree, make_lines, text_of):
    lines = make_lines(benchmark="resnet", seed=7, values=(float("nan"), 0.76))
    run = the_only(tree({f"{BENCH}/result_0.txt": text_of(lines)})).runs[0]
    assert run.curve.quality == [0.76]
    assert run.suspect == ["1 evaluations are not finite and are not in the curve"]


def test_a_second_metric_is_a_further_column(tree, make_lines, text_of):
    lines = make_lines(benchmark="maskrcnn", values=(0.1, 0.2))
    for line in lines:
        if line["key"] == "eval_accuracy":
            line["value"] = {"BBOX": line["value"] + 0.2, "SEGM": line["value"] + 0.15}
    curve = the_only(tree({"someone/results/box/maskrcnn/result_0.txt": text_of(lines)}, runs=0)).runs[0].curve
    assert curve.quality == pytest.approx([0.3, 0.4])
    assert curve.others == {"mask_map": pytest.approx([0.25, 0.35])}


def test_a_metric_by_another_name_is_suspect(tree, make_lines, text_of):
    lines = make_lines(benchmark="maskrcnn", values=(0.3, 0.4))
    run = the_only(tree({"someone/results/box/maskrcnn/result_0.txt": text_of(lines)}, runs=0)).runs[0]
    assert run.curve.quality == [0.3, 0.4]
    assert run.suspect == ["BBOX is not logged by that name: the curve shows the metric without a name"]


def test_a_log_that_cannot_be_read_is_a_problem_and_a_doubt(tree):
    (found,), problems = read_results(tree({f"{BENCH}/result_2.txt": ":::MLLOG {\n"}))
    assert len(found.runs) == 4
    assert "line 1 is broken" in problems[0]
    assert found.origin.doubts[0].startswith("result_2.txt cannot be read")


@pytest.mark.parametrize("name", ["gnmt", "transformer", "minigo", "mask", "deepseek_v3", "gpt-oss", "mine"])
def test_an_unknown_benchmark_is_read_with_a_doubt_and_is_not_ranked(tmp_path, make_lines, text_of, name):
    for run in range(5):
        lines = make_lines(benchmark=name, seed=run, values=(0.5, 0.6 + run / 100))
        lines[-1]["time_ms"] += 1000 * run
        (tmp_path / f"result_{run}.txt").write_text(text_of(lines))
    found = the_only(tmp_path)
    assert found.origin.doubts[0] == f"unknown benchmark '{name}': its target is not known, and it is not ranked"
    assert [run.time_to_target_s for run in found.runs] == [30.0, 31.0, 32.0, 33.0, 34.0]
    assert {(each.code, each.severity) for each in check(found) if each.severity != "note"} >= {("B111", "warning")}
    assert not [each for each in check(found) if each.severity == "error"]
    assert scored(found, ruleset("mlperf-training-like-1.0")).time.value is None


def test_an_unknown_benchmark_may_have_any_number_of_runs(tmp_path, make_lines, text_of):
    for run in range(10):
        lines = make_lines(benchmark="gnmt", seed=run, values=(0.5, 0.6 + run / 100))
        (tmp_path / f"result_{run}.txt").write_text(text_of(lines))
    assert not [each for each in check(the_only(tmp_path)) if each.severity == "error"]


def test_a_log_without_a_benchmark_is_a_problem(tree, make_lines, text_of):
    lines = [each for each in make_lines(benchmark="mine") if each["key"] != "submission_benchmark"]
    _, problems = read_results(tree({"o/results/s/b/result_0.txt": text_of(lines)}))
    assert "it names no benchmark, and states no target" in problems[0]


def test_the_first_rounds_target_is_the_one_in_the_log(log_of, tmp_path):
    text = (
        ":::MLPv0.5.0 resnet 1541635531.5 (a.py:3) eval_target: 0.749\n:::MLPv0.5.0 resnet 1541635532 (a:4) run_start\n"
    )
    (tmp_path / "result_0.txt").write_text(text)
    assert the_only(tmp_path / "result_0.txt").target.threshold == 0.749


@pytest.mark.parametrize("value", ["9" * 400, "1e999", '"0.749"', "null", "NaN"])
def test_a_target_in_the_log_that_is_not_a_number_is_not_used(tmp_path, value):
    (tmp_path / "result_0.txt").write_text(f":::MLPv0.5.0 resnet 1541635531.5 (a.py:3) eval_target: {value}\n")
    assert the_only(tmp_path).target.threshold == 0.759


@pytest.mark.parametrize("change", [{"threshold": float("nan")}, {"high": 10**400}, {"metric": 3}, {"direction": "up"}])
def test_an_invalid_target_of_ours_is_a_problem(tmp_path, make_lines, make_event, text_of, change):
    target = {"metric": "loss", "threshold": 0.5, "direction": "lower", **change}
    (tmp_path / "result_0.txt").write_text(text_of([*make_lines(), make_event(0, "levelbench_target", target)]))
    _, (problem,) = read_results(tmp_path)
    assert "levelbench_target" in problem


@pytest.mark.parametrize("value", [10**400, float("inf"), "x" * 5000, [1], None])
def test_a_hyperparameter_that_a_submission_cannot_hold_is_left_out(tree, make_lines, text_of, value):
    lines = [
        {**line, "value": value} if line["key"] == "opt_base_learning_rate" else line
        for line in make_lines(benchmark="resnet")
    ]
    settings = the_only(tree({f"{BENCH}/result_0.txt": text_of(lines)}, runs=1)).settings
    assert set(settings) == {"global_batch_size", "gradient_accumulation_steps"}


def test_the_scaling_factor_is_kept(tree):
    found = the_only(tree({f"{BENCH}/scaling.json": '{"scaling_factor": 1.02}'}))
    assert found.origin.fields == {"scaling_factor": 1.02}


def test_a_factor_below_one_is_a_problem(tree):
    found, problems = read_results(tree({f"{BENCH}/scaling.json": '{"scaling_factor": 0.5}'}))
    assert found == []
    assert "its scaling factor is 0.5" in problems[0]


def test_links_are_not_followed(tree, tmp_path):
    root = tree()
    (tmp_path / "secret.txt").write_text((root / BENCH / "result_0.txt").read_text())
    (root / BENCH / "result_5.txt").symlink_to(tmp_path / "secret.txt")
    (root / "loop").symlink_to(root)
    assert len(the_only(root).runs) == 5


@pytest.mark.parametrize("found", ["nothing", "a folder without logs"])
def test_a_path_without_logs_is_an_error(tmp_path, found):
    path = tmp_path if found != "nothing" else tmp_path / "nothing"
    with pytest.raises(RecordError, match=r"no result_<i>\.txt|no such file"):
        read_results(path)


def test_the_round_of_2019_is_scored_as_it_was_published(shared):
    """Five runs of ResNet-50 on 1024 chips of a TPU v3 Pod: 1.28 minutes."""
    archive = shared / "mlperf-training-v0.6.tar.gz"
    if not archive.exists():
        pytest.skip(f"there is no {archive.name} in {shared}")
    found = the_only(archive)
    times = [run.time_to_target_s for run in found.runs]
    assert times == [76.97, 77.167, 81.351, 76.703, 76.536]
    score = olympic_score(times)
    assert score.score_s == pytest.approx(76.94666667)
    assert sorted(score.kept) == [0, 1, 3]
    assert round((score.score_s or 0.0) / 60, 2) == 1.28
    assert [run.curve.epoch[-1] for run in found.runs] == [72, 72, 76, 72, 72]
    assert (found.author.name, found.hardware.description, found.submitted) == ("google", "tpu-v3-2048", "2019-05-23")
    assert "seed-missing: no seed is logged (5 of 5 logs)" in found.origin.doubts


@pytest.mark.parametrize(("added", "found"), [
    ([("eval_accuracy", 60_400, 0.8)], "the evaluation in line 26 is 29.610 s before an earlier line"),
    ([("run_start", 90_100, None), ("eval_accuracy", 90_200, 0.8), ("run_stop", 90_300, None)], "a second run starts"),
])  # fmt: skip
def test_a_log_to_which_lines_were_added_is_not_read(tree, make_lines, make_event, text_of, added, found):
    place = {"epoch_num": 1, "samples_count": 1}
    ends = {"run_stop": {"status": "success"}, "eval_accuracy": place}
    more = [make_event(ms, key, value, **ends.get(key, {})) for key, ms, value in added]
    forged = text_of([*make_lines(benchmark="resnet", seed=0, values=(0.5, 0.76)), *more])
    (entry,), problems = read_results(tree({"someone/results/box/resnet/result_0.txt": forged}))
    assert (len(entry.runs), len(problems)) == (4, 1)
    assert found in problems[0]


def test_a_run_stop_before_evaluations_that_were_logged_earlier_is_not_read(tree, make_lines, make_event, text_of):
    lines = [each for each in make_lines(benchmark="resnet", values=(0.5, 0.76)) if each["key"] != "run_stop"]
    stop = make_event(75_100, "run_stop", kind="INTERVAL_END", status="success")
    (entry,), (problem,) = read_results(tree({"someone/results/box/resnet/result_0.txt": text_of([*lines, stop])}))
    assert len(entry.runs) == 4
    assert "run_stop in line 25 is before evaluations" in problem


def test_joined_logs_of_ranks_that_repeat_each_other_are_read(tree, make_lines, text_of):
    lines = make_lines(benchmark="resnet", seed=0, values=(0.5, 0.76))
    other = [{**each, "time_ms": each["time_ms"] + 3} for each in lines]
    joined = text_of([*lines, *other])
    (entry,), problems = read_results(tree({"someone/results/box/resnet/result_0.txt": joined}))
    assert (len(entry.runs), problems) == (5, [])
    assert entry.runs[0].time_to_target_s == pytest.approx(30.003)


def test_a_benchmark_that_is_evaluated_after_its_run_is_read(tmp_path, make_lines, make_event, text_of):
    # As minigo of v0.6: run_stop is followed by the evaluations of all models, in order.
    lines = [each for each in make_lines(benchmark="minigo") if each["key"] != "eval_accuracy"]
    later = [make_event(200_000 + 1000 * at, "eval_accuracy", 0.4 + at / 10, epoch_num=at) for at in range(3)]
    (tmp_path / "result_0.txt").write_text(text_of([*lines, *later]))
    (run,) = the_only(tmp_path).runs
    assert (run.time_to_target_s, run.curve.time_s) == (30.0, [])
