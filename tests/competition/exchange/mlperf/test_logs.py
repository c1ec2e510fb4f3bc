"""The facts about a run in a training log."""

import math

import pytest

from levelbench.competition.exchange.mlperf import read_log
from levelbench.errors import RecordError


def test_the_result_is_the_time_from_run_start_to_run_stop(log_of, make_lines):
    log = log_of(make_lines())
    assert log.time_s == 30.0
    assert log.status == "success"


def test_what_a_log_says_about_itself(log_of, make_lines):
    log = log_of(make_lines(seed=42))
    said = (log.dialect, log.benchmark, log.division, log.organisation, log.platform, log.batch_size, log.seeds)
    assert said == ("mllog", "llama31_8b", "open", "someone", "box", 64, (42,))
    assert log.hyperparameters == {
        "global_batch_size": 64,
        "gradient_accumulation_steps": 1,
        "opt_base_learning_rate": 0.1,
    }


def test_evaluations_count_from_run_start(log_of, make_lines):
    found = log_of(make_lines(values=(0.9, 0.7, 0.5))).evaluations
    assert [(each.time_s, each.value, each.epoch, each.samples) for each in found] == [
        (9.998, 0.9, 1.0, 1024),
        (19.998, 0.7, 2.0, 2048),
        (29.998, 0.5, 3.0, 3072),
    ]


def test_of_several_ranks_the_first_start_and_the_last_stop_count(log_of, make_lines, make_event):
    lines = make_lines()
    lines.insert(13, make_event(60_005, "run_start", kind="INTERVAL_START"))
    lines.append(make_event(90_020, "run_stop", kind="INTERVAL_END", status="success"))
    assert log_of(lines).time_s == 30.015


def test_a_value_that_ranks_repeat_is_one_evaluation(log_of, make_lines, make_event):
    lines = make_lines()
    place = {"epoch_num": 1, "samples_count": 1024}
    lines.insert(18, make_event(75_010, "eval_accuracy", 0.9, **place))
    assert [each.value for each in log_of(lines).evaluations] == [0.9, 0.5]


def test_evaluations_without_a_place_are_each_their_own(log_of, make_event):
    lines = [make_event(0, "run_start"), *(make_event(i, "eval_accuracy", 0.5) for i in (1, 2))]
    assert len(log_of(lines).evaluations) == 2


@pytest.mark.parametrize("statuses", [("aborted",), ("success", "aborted"), ("",)])
def test_a_run_that_does_not_say_success_on_every_rank_did_not_arrive(log_of, make_lines, make_event, statuses):
    stops = [make_event(90_010 + i, "run_stop", status=status) for i, status in enumerate(statuses)]
    log = log_of([*make_lines()[:-1], *stops])
    assert log.status == "aborted"
    assert log.to_converge is None


def test_a_log_that_is_cut_off_has_no_time(log_of, make_lines):
    log = log_of(make_lines()[:-1])
    assert (log.status, log.time_s, len(log.evaluations)) == ("unfinished", None, 2)


def test_what_comes_after_run_stop_is_not_of_the_run(log_of, make_lines, make_event):
    late = make_event(99_000, "eval_accuracy", 0.1, epoch_num=3)
    assert len(log_of([*make_lines(), late]).evaluations) == 2


@pytest.mark.parametrize(("name", "needed"), [("llama31_8b", 2048), ("resnet", 2.0), ("digits", 2048)])
def test_convergence_is_counted_in_what_the_benchmark_counts_in(log_of, make_lines, name, needed):
    assert log_of(make_lines(benchmark=name)).to_converge == needed


def test_epochs_to_converge_have_three_digits(log_of, make_event):
    lines = [make_event(0, "run_start"), make_event(1, "eval_accuracy", 0.9, epoch_num=3.00049)]
    log = log_of([*lines, make_event(2, "run_stop", status="success")])
    assert log.to_converge == 3.0


def test_several_metrics_in_one_value(log_of, make_event):
    value = {"BBOX": 0.38, "SEGM": 0.34, "note": "x"}
    lines = [make_event(0, "run_start"), make_event(1, "eval_accuracy", value, epoch_num=13)]
    assert [(each.metric, each.value) for each in log_of(lines).evaluations] == [("BBOX", 0.38), ("SEGM", 0.34)]


def test_a_value_that_is_not_a_number_stays_one(log_of, make_event):
    lines = [make_event(0, "run_start"), make_event(1, "eval_error", float("nan"), epoch_num=1)]
    (found,) = log_of(lines).evaluations
    assert math.isnan(found.value)
    assert found.key == "eval_error"


V05 = """\
:::MLPv0.5.0 resnet 1541635531.5 (a.py:1) input_batch_size: 208
:::MLPv0.5.0 resnet 1541635531.5 (a.py:2) run_set_random_seed: 1234
:::MLPv0.5.0 resnet 1541635531.5 (a.py:3) eval_target: 0.749
:::MLPv0.5.0 resnet 1541635532.25 (a.py:4) run_start
I1107 00:05:40 :::MLPv0.5.0 resnet 1541635540.25 (a.py:5) eval_accuracy: {"epoch": 0, "value": 0.25}
:::MLPv0.5.0 resnet 1541635592.25 (a.py:5) eval_accuracy: {"epoch": 4, "value": 0.75}
:::MLPv0.5.0 resnet 1541635592.50 (a.py:6) run_stop: {"success": true}
:::MLPv0.5.0 resnet 1541635592.50 (a.py:7) run_final
"""


def test_a_log_of_the_first_round(log_of):
    log = log_of(V05)
    assert (log.dialect, log.benchmark, log.status, log.time_s) == ("v0.5", "resnet", "success", 60.25)
    assert (log.batch_size, log.seeds, log.to_converge) == (208, (1234,), 4.0)
    assert [each.epoch for each in log.evaluations] == [0.0, 4.0]


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(RecordError, match="no such file"):
        read_log(tmp_path / "result_0.txt")
