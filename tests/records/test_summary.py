from __future__ import annotations

import math
from hashlib import sha256

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelbench.errors import UnknownNameError, UsageError
from levelbench.records import (
    DatasetFacts,
    End,
    Evaluation,
    Record,
    RecordWriter,
    Samples,
    Target,
    read_record,
    summarise,
)
from levelbench.records.schema import Measurement
from levelbench.records.witness import UNTRAINED

RISING = (0.5, 0.91, 0.89, 0.92, 0.93)


@pytest.fixture
def make_record(tmp_path, make_header, make_events, make_run):
    def make(qualities=RISING, events=None, **parts) -> Record:
        events = make_events(qualities) if events is None else events
        return read_record(make_run(tmp_path, make_header(**parts), events))

    return make


def test_time_to_accuracy_is_the_time_of_the_second_of_two_confirming_evaluations(make_record):
    run = summarise(make_record())
    assert run.reached
    assert run.time_to_accuracy_s == pytest.approx(5.0)
    assert (run.epochs_to_target, run.steps_to_target, run.samples_to_target) == (5.0, 50, 3200)
    assert run.earlier_s == pytest.approx([4.0, 3.0])
    assert run.given_up_s is None
    assert run.wall_s == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("rule", "between"),
    [
        ("confirmed", [1920, 2560]),
        ("first", [640, 1280]),
        ("interpolated", [640, 1280]),
        ("sustained", [1920, 2560]),
    ],
)
def test_the_target_was_reached_between_the_last_evaluation_below_it_and_the_next_one(make_record, rule, between):
    assert summarise(make_record(), crossing=rule).samples_between == between


def test_a_target_reached_at_the_first_evaluation_was_reached_after_none(make_record):
    assert summarise(make_record((0.95, 0.96))).samples_between == [0, 640]


def test_a_run_that_missed_had_not_reached_it_at_its_last_evaluation_below(make_record):
    assert summarise(make_record((0.5, 0.6, 0.91))).samples_between == [1280]


@pytest.mark.parametrize(
    ("rule", "seconds"), [("first", 2.0), ("sustained", 4.0), ("final", 5.0), ("interpolated", 1 + 40 / 41)]
)
def test_another_crossing_rule_is_a_view_of_the_same_record(make_record, rule, seconds):
    run = summarise(make_record(), crossing=rule)
    assert run.crossing == rule
    assert run.time_to_accuracy_s == pytest.approx(seconds)
    assert run.epochs_to_target == pytest.approx(seconds)
    assert sum(run.phases_s.values()) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("view", "counted"),
    [
        ({}, 5),
        ({"crossing": "first"}, 2),
        ({"crossing": "sustained"}, 4),
        ({"threshold": 0.8}, 3),
        ({"threshold": 0.99}, 5),
    ],
)
def test_the_evaluations_of_a_run_are_those_up_to_the_one_that_counts_in_this_view(make_record, view, counted):
    assert summarise(make_record(), **view).evaluations == counted


def test_another_threshold_is_a_view_and_changes_neither_record_nor_key(make_record):
    record = make_record()
    run = summarise(record, threshold=0.8)
    assert run.time_to_accuracy_s == pytest.approx(3.0)
    assert run.target.threshold == 0.8
    assert run.specification.target.threshold == 0.8
    assert record.header.specification.target.threshold == 0.9
    assert run.key == record.header.key
    assert summarise(record, threshold=0.99).time_to_accuracy_s is None


def test_another_clock_leaves_out_its_phases_and_says_how_much(make_record):
    run = summarise(make_record(), clock="dawnbench")
    assert run.time_to_accuracy_s == pytest.approx(3.75)
    assert run.excluded_s == {"evaluate": pytest.approx(1.25)}
    assert sum(run.phases_s.values()) == pytest.approx(5.0)


def test_a_clock_or_rule_that_does_not_exist_is_an_error(make_record):
    with pytest.raises(UnknownNameError, match="clock"):
        summarise(make_record(), clock="wal")
    with pytest.raises(UnknownNameError, match="crossing rule"):
        summarise(make_record(), crossing="confirm")


def test_a_run_that_never_reaches_its_target_has_no_time_and_says_how_long_it_tried(make_record):
    run = summarise(make_record((0.5, 0.6, 0.91, 0.7)))
    assert not run.reached
    assert run.time_to_accuracy_s is None
    assert run.given_up_s == pytest.approx(4.0)
    assert run.epochs_to_target is None


def test_a_failed_run_did_not_reach_its_target_even_if_its_curve_crossed_it(make_record, make_events):
    events = make_events(RISING, status="failed", error="ValueError: no")
    run = summarise(make_record(events=events))
    assert run.status == "failed"
    assert run.error == "ValueError: no"
    assert not run.reached
    assert run.given_up_s == pytest.approx(5.0)


def test_an_interrupted_or_running_run_did_not_reach_its_target(tmp_path, make_header, make_curve):
    with RecordWriter.create(tmp_path, make_header()) as writer:
        for evaluation in make_curve(RISING):
            writer.append(evaluation)
        running = summarise(read_record(writer.path))
    interrupted = summarise(read_record(writer.path))
    for run, status in ((running, "running"), (interrupted, "interrupted")):
        assert run.status == status
        assert not run.reached
        assert run.given_up_s == run.wall_s == pytest.approx(5.0)


def test_a_record_with_only_a_header_has_a_summary(make_record):
    run = summarise(make_record(events=[]))
    assert run.status == "interrupted"
    assert (run.given_up_s, run.wall_s, run.phases_s, run.quality) == (0.0, 0.0, {}, {})
    assert run.energy_reason == "not measured"


def test_a_loss_is_reached_from_above(make_record):
    target = Target("loss", 0.6, direction="lower")
    run = summarise(make_record((0.9, 0.6, 0.5), target=target))
    assert run.time_to_accuracy_s == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("qualities", "decimals", "times_s"),
    [
        ((0.5, 0.896, 0.9, 0.9012, 0.91), 4, [3.0, 3.0, 3.0, 4.0]),
        ((0.5, 0.84, 0.86), 2, [3.0, math.inf]),
        ((0.5, 1 / 3, 0.901, 0.902), None, [4.0] * 6),
    ],
)
def test_a_program_that_reports_fewer_digits_may_be_at_its_target_sooner(make_record, qualities, decimals, times_s):
    found = summarise(make_record(qualities=qualities, scored_by="program"))
    assert (found.decimals, found.if_rounded_s) == (decimals, times_s)


@pytest.mark.parametrize(
    ("qualities", "shares"),
    [
        ((7 / 360, 8 / 360, 31 / 360), (360, 3)),
        ((100 * 7 / 360, 100 * 8 / 360), (360, 2)),  # per cent
        ((0.5, 0.25, 0.125), (8, 3)),
        ((0.5, 2**-0.5), None),
        ((0.5, 2.3026), None),  # a loss
        ((0.5, -0.5), None),
        ((0.5, math.nan), None),
    ],
)
def test_qualities_of_a_program_that_are_shares_tell_of_how_many_examples(make_record, qualities, shares):
    assert summarise(make_record(qualities=qualities, scored_by="program")).shares_of == shares


@pytest.mark.parametrize(
    ("qualities", "moves"),
    [
        ((0.5, 0.7, 0.6, 0.6, 0.9), (1, 1, 4, pytest.approx(2.0))),  # in tenths
        ((0.5, 0.5), (0, 1, 1, 0.0)),
        ((50.0, 50.0 + math.pi), (0, 0, 1, math.inf)),
        ((0.5, math.nan), None),
    ],
)
def test_how_the_quality_of_a_program_moves_is_counted(make_record, qualities, moves):
    assert summarise(make_record(qualities=qualities, scored_by="program")).moves == moves


def test_a_program_that_reported_nothing_has_no_moves(make_record):
    assert summarise(make_record(events=[], scored_by="program")).moves is None


def test_quality_that_is_not_a_number_never_reaches(make_record):
    assert not summarise(make_record((math.nan, math.nan))).reached


def test_the_time_per_step_is_the_median_of_the_raw_samples(make_record, make_events):
    assert summarise(make_record()).time_per_step_s == pytest.approx(0.075 - 5.5e-9)
    events = [Samples("step_time", "ms", [4.0, math.inf, 2.0]), *make_events()[-1:]]
    assert summarise(make_record(events=events)).time_per_step_s == pytest.approx(0.003)
    events = [Samples("step_time", "furlongs", [1.0]), *make_events()[-1:]]
    assert summarise(make_record(events=events)).time_per_step_s is None


def test_meters_qualities_and_facts_about_the_data_are_in_the_summary(make_record, make_events):
    facts = DatasetFacts("toy", {}, {}, "none", "CC0", synthetic=True)
    run = summarise(make_record(events=make_events(RISING, dataset=facts)))
    assert run.peak_memory_bytes == 2.0e8
    assert (run.energy_j, run.energy_method, run.energy_reason) == (None, None, "no counter")
    assert run.quality == {"validation": 0.93, "test": 0.89}
    assert run.synthetic
    assert not summarise(make_record()).synthetic


def test_doubts_in_the_end_of_a_run_are_in_its_summary(make_record, make_events):
    events = make_events(RISING, suspect=["load from elsewhere"])
    assert summarise(make_record(events=events)).suspect[0] == "load from elsewhere"


def test_a_summary_has_the_specification_of_the_run(make_record):
    record = make_record()
    assert summarise(record).specification == record.header.specification


@settings(max_examples=60, deadline=None)
@given(
    qualities=st.lists(st.floats(0, 1) | st.just(math.nan), min_size=1, max_size=8),
    clock=st.sampled_from(["wall", "dawnbench", "mlperf", "algoperf"]),
    rule=st.sampled_from(["confirmed", "first", "sustained", "final", "interpolated"]),
    threshold=st.floats(0, 1),
    status=st.sampled_from(["done", "failed"]),
)
def test_the_score_and_the_time_left_out_always_sum_to_the_phases(
    make_header, make_curve, qualities, clock, rule, threshold, status
):
    evaluations: list[Evaluation] = make_curve(qualities)
    end = End(status, evaluations[-1].t_ns, evaluations[-1].phases_ns)
    record = Record("memory", make_header(), tuple(evaluations), {}, (), end, status)
    run = summarise(record, clock=clock, crossing=rule, threshold=threshold)
    assert (run.time_to_accuracy_s is None) != (run.given_up_s is None)
    assert run.reached == (run.time_to_accuracy_s is not None)
    assert not run.reached or status == "done"
    score = run.time_to_accuracy_s if run.reached else run.given_up_s
    assert score + sum(run.excluded_s.values()) == pytest.approx(sum(run.phases_s.values()))
    assert sum(run.phases_s.values()) <= run.wall_s * 1.000001


@pytest.mark.parametrize(
    ("why", "qualities", "expected"),
    [
        ("all epochs done", (0.5, 0.6), True),
        ("budget of 3 s spent", (0.5, 0.6), False),
        ("all epochs done", (0.99, 0.99), False),
    ],
)
def test_a_run_that_missed_when_its_epochs_were_done_is_trained_out(make_record, make_events, why, qualities, expected):
    assert summarise(make_record(events=make_events(qualities, stopped_by=why))).trained_out is expected


def test_given_up_time_and_phases_end_at_the_last_evaluation(make_record, make_events):
    events = make_events((0.5, 0.6))
    later = {**events[-1].phases_ns, "other": 9_000_000_000}
    end = msgspec.structs.replace(events[-1], t_ns=sum(later.values()), phases_ns=later)
    run = summarise(make_record(events=[*events[:-1], end]))
    assert run.given_up_s == sum(run.phases_s.values()) == pytest.approx(2.0)
    assert run.wall_s == pytest.approx(11.0)
    assert summarise(make_record(events=[end])).given_up_s == pytest.approx(11.0)


def test_a_threshold_off_the_scale_of_the_metric_is_refused(make_record):
    with pytest.raises(UsageError, match=r"scale goes from 0 to 1 \(did you mean 0\.9\?\)"):
        summarise(make_record(), threshold=90)


@pytest.mark.parametrize(
    ("end", "crossing", "hopeless"),
    [
        ({"status": "failed", "error": "no"}, "confirmed", True),
        ({"error": "diverged: the loss is nan"}, "confirmed", True),
        ({}, "final", True),
        ({"stopped_by": "target reached"}, "final", False),
        ({}, "confirmed", False),
    ],
)
def test_a_run_is_hopeless_if_it_missed_and_could_never_arrive(make_record, make_events, end, crossing, hopeless):
    assert summarise(make_record(events=make_events((0.5, 0.6), **end)), crossing=crossing).hopeless is hopeless


def test_runs_that_reached_or_were_interrupted_are_not_hopeless(make_record, make_events):
    assert not summarise(make_record(crossing="final")).hopeless
    assert not summarise(make_record(events=make_events((0.5,))[:-1], crossing="final")).hopeless


def test_a_summary_identifies_the_source_and_the_data(make_record, make_events):
    run = summarise(make_record())
    assert (run.source_digest, run.checksums) == (sha256("…".encode()).hexdigest(), {"x": "0" * 64})
    assert summarise(make_record(events=make_events(dataset=None))).checksums == {}


MS = 10**6
COMPILED = {0: 2000, 9: 700}
"""Milliseconds that the first step takes beyond the usual ones, and the last of the first epoch."""


def compiling_events(epochs=4, steps=10, evaluation_ms=300, every=10):
    """Steps of 10 ms, those of ``COMPILED`` longer, in forward; evaluations of 50 ms, the first longer."""
    phases, found, times = {"data": 0, "forward": 0, "evaluate": 0}, [], []
    for step in range(epochs * steps):
        times.append((10 + COMPILED.get(step, 0)) * MS)
        phases["data"] += MS
        phases["forward"] += times[-1] - MS
        if (step + 1) % every == 0:
            phases["evaluate"] += (50 + (0 if step >= every else evaluation_ms)) * MS
            done = step + 1
            found.append(Samples("step_time", "ns", times))
            quality = {"validation": 0.5 if done < epochs * steps - every else 0.95}
            total = sum(phases.values())
            found.append(Evaluation(total, done, done / steps, 64 * done, quality, 1 / done, dict(phases)))
            times = []
    return [*found, End("done", sum(phases.values()), dict(phases))]


@pytest.mark.parametrize("every", [10, 5])
def test_the_first_step_and_the_last_of_the_first_epoch_are_compared_with_the_usual_one(make_record, every):
    run = summarise(make_record(events=compiling_events(every=every)))
    assert run.reached
    assert run.warm_up_s == {"forward": pytest.approx(2.7)}
    assert run.warm_up_evaluation_s == pytest.approx(0.3)


def test_steps_that_take_as_long_as_ever_have_no_warm_up(make_record, monkeypatch):
    monkeypatch.setattr("tests.records.test_summary.COMPILED", {})
    run = summarise(make_record(events=compiling_events(evaluation_ms=0)))
    assert (run.warm_up_s, run.warm_up_evaluation_s) == ({}, 0.0)


def test_what_a_first_step_spent_in_another_phase_is_no_warm_up_of_the_step(make_record):
    events = compiling_events(evaluation_ms=0)
    for each in events:
        if isinstance(each, Evaluation | End):
            each.phases_ns["forward"] -= sum(COMPILED.values()) * MS
            each.phases_ns["compile"] = sum(COMPILED.values()) * MS
    assert summarise(make_record(events=events)).warm_up_s == {}


def test_a_long_step_later_on_is_no_warm_up(make_record, monkeypatch):
    monkeypatch.setattr("tests.records.test_summary.COMPILED", {25: 2000})
    assert summarise(make_record(events=compiling_events())).warm_up_s == {}


def test_without_step_times_or_a_second_evaluation_warm_up_is_unknown(make_record):
    events = [each for each in compiling_events() if not isinstance(each, Samples)]
    assert summarise(make_record(events=events)).warm_up_s is None
    first = summarise(make_record(events=compiling_events()), crossing="first", threshold=0.4)
    assert first.warm_up_evaluation_s is None


def test_a_run_begins_with_the_quality_before_training_where_that_was_measured(make_record):
    *events, end = compiling_events()
    assert summarise(make_record(events=[*events, end])).first_quality == 0.5
    untrained = Measurement(UNTRAINED, "top1", 0.1, "64 validation examples, after the run")
    assert summarise(make_record(events=[*events, untrained, end])).first_quality == 0.1
