"""Entries made from records: all runs of a group, on the ruleset's clock, with the facts of the records."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from datetime import date

import msgspec
import pytest
from tests.competition.made import ENVIRONMENT, TARGET, records

from levelbench.competition.entries import TuningEffort, curve_digest, encode, parse_submission
from levelbench.competition.leaderboard import check
from levelbench.competition.making import file_of, hardware_of, make
from levelbench.competition.rulesets import Aggregation, ruleset
from levelbench.competition.scoring import score
from levelbench.errors import IncomparableError, UsageError
from levelbench.importing.runs import Point, RunLog, import_run
from levelbench.records import Target


def test_under_rules_that_score_windows_the_runs_are_in_the_order_of_their_start(put, terms):
    aggregation = Aggregation("olympic", 3, 1, windows="upper")
    rules = msgspec.structs.replace(terms.ruleset, aggregation=aggregation)
    found = []
    for seed, hour in ((0, 5), (1, 3), (2, 4), (3, 6)):
        (record,) = records(put(seed))
        started = f"2026-11-29T0{hour}:00:00.000+00:00"
        found.append(replace(record, header=msgspec.structs.replace(record.header, started=started)))
    entry = make(found, msgspec.structs.replace(terms, ruleset=rules))
    assert [run.seed for run in entry.runs] == [1, 2, 0, 3]


def test_an_entry_says_what_the_records_say(put, terms):
    paths = [put(seed) for seed in (4, 2, 0, 1, 3)]
    entry = make(records(*paths), terms)
    assert [run.seed for run in entry.runs] == [0, 1, 2, 3, 4]
    first = entry.runs[2]
    assert first.curve.time_s == pytest.approx([1.02, 2.04, 3.06])
    assert first.curve.quality == [0.902, 0.961, 0.97]
    assert first.curve.samples == [640, 1280, 1920]
    assert (first.reached, first.status, first.error) == (True, "done", None)
    assert first.time_to_target_s == pytest.approx(3.06)
    assert sum(first.phases_s.values()) == pytest.approx(3.06)
    assert first.record_digest == hashlib.sha256(paths[1].read_bytes()).hexdigest()
    assert first.curve_digest == curve_digest(first.curve)
    assert first.test_quality == {"test": 0.89}
    assert entry.model == "mlp"
    assert entry.settings["lr"] == 0.1
    assert entry.hardware.description == "2 cores of a processor"
    assert entry.provenance.software == {"numpy": "2.4", "python": "3.11"}
    assert entry.provenance.environment["machine.caches.0.level"] == "1"
    assert not any("load" in name for name in entry.provenance.environment)
    assert entry.provenance.checksums == {"x": "0" * 64}
    assert (entry.code.commit, entry.code.dirty) == ("0a1b2c3d4e", False)


def test_an_entry_that_was_made_is_read_back_and_has_no_error(put, terms):
    entry = make(records(*[put(seed) for seed in range(5)]), msgspec.structs.replace(terms, tuning=TuningEffort(0)))
    assert parse_submission(encode(entry)) == entry
    found = check(entry, file_of(entry, ["abcd" * 4]), today=date(2026, 12, 1))
    # The fixture's records have no witness, and all begin at the same instant, which are doubts.
    assert {each.code for each in found if "no other clock" not in str(each)} == {"B129"}


def test_times_are_on_the_rulesets_clock(put, terms):
    dawnbench = msgspec.structs.replace(terms.ruleset, clock="dawnbench")
    entry = make(records(put(0)), msgspec.structs.replace(terms, ruleset=dawnbench))
    assert entry.runs[0].curve.time_s == pytest.approx([0.75, 1.5, 2.25])
    assert entry.runs[0].excluded_s == pytest.approx({"evaluate": 0.75})


def test_the_rulesets_target_is_a_view_of_runs_with_another(put, terms):
    entry = make(records(put(0, (0.9, 0.961, 0.962, 0.99, 0.99), target=Target("top1", 0.98))), terms)
    assert entry.target == TARGET
    assert entry.runs[0].time_to_target_s == pytest.approx(3.0)


def test_runs_that_measured_another_quality_are_refused(put, terms):
    with pytest.raises(UsageError, match="the runs measured accuracy on the validation split"):
        make(records(put(0, target=Target("accuracy", 0.96))), terms)


def test_a_task_that_the_ruleset_does_not_have_is_refused(put, terms):
    with pytest.raises(UsageError, match="it has cifar10, imagenet, squad"):
        make(records(put(0)), msgspec.structs.replace(terms, ruleset=ruleset("dawnbench-1.0")))


def test_runs_that_failed_or_never_arrived_are_in_the_entry(put, terms):
    paths = [put(0), put(1, (0.5, 0.6, 0.7)), put(2, end={"status": "failed", "error": "out of memory"})]
    runs = make(records(*paths), terms).runs
    assert [(run.status, run.reached) for run in runs] == [("done", True), ("done", False), ("failed", False)]
    assert [run.time_to_target_s is None for run in runs] == [False, True, True]
    assert runs[2].error == "out of memory"


def test_a_run_that_diverged_ends_where_it_did(put, terms):
    (run,) = make(records(put(0, (0.5, math.nan, math.nan))), terms).runs
    assert run.curve.quality == [0.5]
    assert run.reached is False


def test_a_schedule_that_a_budget_cut_short_did_not_arrive(put, terms):
    (run,) = make(records(put(0, crossing="final", end={"stopped_by": "budget of 3 s"})), terms).runs
    assert (run.status, run.reached) == ("failed", False)
    assert "before the end of its schedule" in run.error


def test_runs_of_two_kinds_or_machines_are_not_one_entry(put, terms):
    other = {**ENVIRONMENT, "machine": {**ENVIRONMENT["machine"], "id": "m2"}}
    with pytest.raises(IncomparableError, match="2 different kinds"):
        make(records(put(0), put(1, settings={"lr": 0.2})), terms)
    with pytest.raises(IncomparableError, match="2 machines"):
        make(records(put(0), put(1, environment=other)), terms)
    with pytest.raises(UsageError, match="no run"):
        make([], terms)


def test_runs_at_several_commits_are_reported(put, terms):
    later = {**ENVIRONMENT, "git": {"commit": "ffff000", "dirty": True}}
    entry = make(records(put(0), put(1, environment=later)), terms)
    assert (entry.code.commit, entry.code.dirty) == ("ffff000", True)
    assert entry.notes == "The runs were made at 2 commits: 0a1b2c3d4e, ffff000."


def test_the_hardware_of_an_accelerated_run_is_its_accelerators():
    assert hardware_of(ENVIRONMENT, "cuda:0", None).description == "2 x V100"
    assert hardware_of(ENVIRONMENT, "cuda", "p3.2xlarge").description == "p3.2xlarge"
    with pytest.raises(UsageError, match="--hardware"):
        hardware_of({}, "cpu", None)


@pytest.mark.parametrize("low", [0.0, None])
def test_a_metric_that_only_the_rules_name_is_judged_like_any_other(put, terms, clean, low):
    target = Target("val_loss", 0.1, "lower", 0.0, None)
    stated = msgspec.structs.replace(target, low=low)
    paths = [put(seed, (0.3, 0.09, 0.08 - 0.001 * seed), target=stated) for seed in range(5)]
    digits = msgspec.structs.replace(terms.ruleset.tasks[0], target=target, inference=None)
    rules = msgspec.structs.replace(terms.ruleset, id="own-1.0", name="own", tasks=[digits])
    entry = make(records(*paths), msgspec.structs.replace(terms, ruleset=rules))
    assert not [each for each in clean.find(entry, known={rules.id: rules}) if each.severity == "error"]
    assert score(entry, rules).reached == 5


@pytest.mark.parametrize(("settings", "epochs"), [({}, {}), ({"seed": 0}, {"epoch": 1.0})])
def test_what_another_tools_log_does_not_count_is_not_stated(terms, tmp_path, settings, epochs):
    logged = [(1.0, 0.9), (2.1, 0.961), (3.3, 0.97)]

    def log_of(run):
        points = [Point(1e9 + at_s + 0.01 * run, at, each) for at, (at_s, each) in enumerate(logged)]
        metrics = {"acc": points, **{name: [Point(1e9, 0, value)] for name, value in epochs.items()}}
        own = {name: value + run for name, value in settings.items()}
        return RunLog("MLflow", f"run {run}", str(run), 1e9, 1e9 + 4, own, metrics)

    stated = msgspec.structs.replace(TARGET, low=0.0, high=1.0)
    named = {"metric": "acc", "task": "digits", "recipe": "theirs"}
    found = [import_run(log_of(run), stated, tmp_path, **named)[0] for run in range(5)]
    entry = make(records(*found), msgspec.structs.replace(terms, hardware="8 x A100"))
    # Steps of 0 and seeds that only tell the runs apart are nothing that the log says.
    assert [run.seed for run in entry.runs] == (list(range(5)) if settings else [None] * 5)
    assert [run.curve.epoch for run in entry.runs] == [[1.0] * 3 if epochs else None] * 5
    assert {(run.curve.steps, run.curve.samples) for run in entry.runs} == {(None, None)}
