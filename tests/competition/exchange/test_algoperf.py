"""AlgoPerf's logs as submissions: its clock, its targets, one run per trial."""

import json
import math

import pytest

from levelbench.competition.exchange.algoperf import RULES, common_times, read_results, target_times
from levelbench.competition.leaderboard import check
from levelbench.competition.rulesets import ruleset, task_rules
from levelbench.competition.scoring import score
from levelbench.errors import RecordError

META = {
    "workload.target_metric_name": "accuracy",
    "workload.validation_target_value": 0.97,
    "workload.max_allowed_runtime_sec": 60,
    "rng_seed": 7,
    "gpu_model_name": "Tesla V100-SXM2-16GB",
    "gpu_count": 8,
    "git_commit_hash": "c" * 40,
}
OGBG = {"workload.target_metric_name": "mean_average_precision", "workload.validation_target_value": 0.28098}
HEAD = "accumulated_eval_time,accumulated_logging_time,accumulated_submission_time,global_step,"


def log(folder, rows, metric="accuracy", meta=META, **hyper):
    """One trial: rows of (seconds, value); an evaluation every ten steps."""
    folder.mkdir(parents=True)
    lines = [f"{HEAD}test/{metric},validation/{metric},total_duration"]
    lines += [f"{at}.5,0.25,{time_s},{10 * at},0.5,{value},99" for at, (time_s, value) in enumerate(rows, 1)]
    (folder / "eval_measurements.csv").write_text("\n".join(lines) + "\n")
    if meta:
        (folder / "meta_data_0.json").write_text(json.dumps(meta))
    if hyper:
        (folder / "hparams.json").write_text(json.dumps(hyper))
    return folder


def test_a_trial_is_a_run_on_the_clock_of_the_submission(tmp_path):
    log(tmp_path / "adamw" / "study_0" / "mnist_jax" / "trial_1", [(10.5, 0.9), (20.5, 0.98)], learning_rate=0.01)
    (entry,), problems = read_results(tmp_path)
    (run,) = entry.runs
    assert problems == []
    assert (entry.task, entry.model, entry.framework, entry.clock) == ("algoperf-mnist", "adamw", "jax", "algoperf")
    assert (run.curve.time_s, run.curve.quality, run.seed) == ([10.5, 20.5], [0.9, 0.98], 7)
    assert run.curve.others == {"global_step": [10.0, 20.0], "test/accuracy": [0.5, 0.5]}
    assert run.excluded_s == {"evaluate": 2.5, "other": 0.25}
    assert entry.origin.fields["study_0/trial_1.learning_rate"] == 0.01


def test_the_meta_data_say_target_budget_machine_and_commit(tmp_path):
    log(tmp_path / "adamw" / "study_0" / "mnist_jax" / "trial_1", [(1.0, 0.9)])
    (entry,), _ = read_results(tmp_path)
    assert (entry.target.metric, entry.target.threshold, entry.target.direction) == ("accuracy", 0.97, "higher")
    assert entry.settings == {"budget_s": 60.0}
    assert (entry.hardware.description, entry.hardware.accelerators) == ("8 Tesla V100-SXM2-16GB", 8)
    assert entry.code.commit == "c" * 40


def test_without_meta_data_the_table_says_the_target(tmp_path):
    log(tmp_path / "a" / "study_0" / "ogbg_pytorch" / "trial_1", [(1.0, 0.3)], "mean_average_precision", meta=None)
    (entry,), _ = read_results(tmp_path)
    assert entry.target == task_rules(ruleset(RULES), "algoperf-ogbg").target
    assert entry.target.threshold == 0.28098


def test_an_unknown_workload_without_meta_data_is_a_sentence(tmp_path):
    log(tmp_path / "a" / "study_0" / "mnist_jax" / "trial_1", [(1.0, 0.9)], meta=None)
    entries, problems = read_results(tmp_path)
    assert entries == []
    assert "neither its meta data nor" in problems[0]


def test_an_import_is_of_rules_that_ship(tmp_path):
    for study in range(3):
        for trial in range(5):
            rows = [(10.0 + study + 10 * trial, 0.2), (20.0 + study + 10 * trial, 0.3)]
            place = tmp_path / "a" / f"study_{study}" / "ogbg_jax" / f"trial_{trial}"
            log(place, rows, "mean_average_precision", meta={**OGBG, "rng_seed": 10 * study + trial})
    (entry,), problems = read_results(tmp_path)
    assert (problems, entry.ruleset) == ([], "algoperf-0.6")
    assert [each for each in check(entry) if each.severity == "error"] == []
    # The fastest of the studies' trials arrive at 20, 21 and 22 s.
    assert score(entry, ruleset(entry.ruleset)).time.value == 21.0


def test_without_trials_it_is_of_the_rules_for_self_tuning(tmp_path):
    for study in range(3):
        place = tmp_path / "a" / f"study_{study}" / "ogbg_jax" / "trial_0"
        log(place, [(10.0 + study, 0.3)], "mean_average_precision", meta={**OGBG, "rng_seed": study})
    (entry,), _ = read_results(tmp_path)
    assert entry.ruleset == "algoperf-self-tuning-0.6"
    assert score(entry, ruleset(entry.ruleset)).time.value == 11.0


def test_evaluations_without_a_number_are_left_out_and_reported(tmp_path):
    log(tmp_path / "a" / "study_0" / "mnist_jax" / "trial_1", [(1.0, 0.9), (2.0, "nan"), (3.0, ""), (4.0, 0.98)])
    (entry,), _ = read_results(tmp_path)
    assert entry.runs[0].curve.time_s == [1.0, 4.0]
    assert any("2 evaluations of study_0/trial_1" in each for each in entry.origin.doubts)


def test_a_trial_that_never_gave_a_number_is_a_failed_run(tmp_path):
    log(tmp_path / "a" / "study_0" / "mnist_jax" / "trial_1", [(1.0, "nan")])
    (entry,), _ = read_results(tmp_path)
    assert (entry.runs[0].status, entry.runs[0].curve.time_s) == ("failed", [])


def test_a_broken_trial_is_a_sentence_and_the_others_are_read(tmp_path):
    study = tmp_path / "a" / "study_0" / "mnist_jax"
    log(study / "trial_1", [(1.0, 0.9)])
    (log(study / "trial_2", [(1.0, 0.9)]) / "eval_measurements.csv").write_text("a,b\n1\n")
    (entry,), problems = read_results(tmp_path)
    assert len(entry.runs) == 1
    assert "a/study_0/mnist_jax/trial_2/eval_measurements.csv: line 2 has 1 cells" in problems[0]


def test_studies_whose_other_trials_are_broken_are_not_self_tuning(tmp_path):
    for study in ("study_0", "study_1"):
        place = tmp_path / "a" / study / "mnist_jax"
        log(place / "trial_1", [(1.0, 0.9)])
        (log(place / "trial_2", [(1.0, 0.9)]) / "eval_measurements.csv").write_text("a,b\n1\n")
    (entry,), _ = read_results(tmp_path)
    assert (len(entry.runs), entry.ruleset) == (2, "algoperf-0.6")


@pytest.mark.parametrize("level", ["", "a", "a/study_0", "a/study_0/mnist_jax", "a/study_0/mnist_jax/trial_1"])
def test_any_level_of_the_layout_may_be_given(tmp_path, level):
    log(tmp_path / "a" / "study_0" / "mnist_jax" / "trial_1", [(1.0, 0.9)])
    (entry,), problems = read_results(tmp_path / level)
    assert (entry.model, entry.task, problems) == ("a", "algoperf-mnist", [])


def test_the_level_of_studies_may_be_missing(tmp_path):
    log(tmp_path / "a" / "mnist_jax" / "trial_1", [(1.0, 0.9)])
    (entry,), _ = read_results(tmp_path)
    assert (entry.model, entry.runs[0].record_id) == ("a", "study_0/trial_1")


def test_a_folder_without_logs_is_an_error(tmp_path):
    with pytest.raises(RecordError, match=r"eval_measurements\.csv"):
        read_results(tmp_path)


def test_a_time_is_the_median_over_studies_of_the_best_trial(tmp_path):
    for study, trials in enumerate([[30, 20], [50, 90], [None, None]]):
        for at, time_s in enumerate(trials):
            rows = [(5.0, 0.5), (time_s or 99.0, 0.98 if time_s else 0.6)]
            log(tmp_path / "a" / f"study_{study}" / "mnist_jax" / f"trial_{at}", rows)
    assert target_times(read_results(tmp_path)[0]) == {"a": {"algoperf-mnist": 50.0}}


def test_the_published_choice_of_a_trial_is_the_earliest_evaluation_and_another_time(tmp_path):
    study = tmp_path / "a" / "study_0" / "mnist_jax"
    log(study / "trial_0", [(40.0, 0.98)])
    log(study / "trial_1", [(5.0, 0.5), (30.0, 0.98)])
    entries, _ = read_results(tmp_path)
    assert target_times(entries)["a"]["algoperf-mnist"] == 30.0
    assert target_times(entries, best="evaluation")["a"]["algoperf-mnist"] == 40.0


def test_only_workloads_of_all_algorithms_are_compared_and_a_miss_is_infinite(tmp_path):
    log(tmp_path / "a" / "study_0" / "mnist_jax" / "trial_0", [(40.0, 0.98)])
    log(tmp_path / "b" / "study_0" / "mnist_jax" / "trial_0", [(40.0, 0.9)])
    log(tmp_path / "b" / "study_0" / "ogbg_jax" / "trial_0", [(1.0, 0.3)], "mean_average_precision", meta=None)
    assert common_times(read_results(tmp_path)[0]) == {
        "a": {"algoperf-mnist": 40.0},
        "b": {"algoperf-mnist": math.inf},
    }
