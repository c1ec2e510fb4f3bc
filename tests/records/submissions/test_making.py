"""Entries made of records: all runs of a group, on the ruleset's clock, with everything that the records say."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from dataclasses import replace
from datetime import date

import msgspec
import pytest

from levelbench.errors import IncomparableError, UsageError
from levelbench.records import Store, Target, read_record
from levelbench.records.inference.trained import runs_for_inference
from levelbench.records.rulesets.registry import ruleset
from levelbench.records.rulesets.schema import Aggregation
from levelbench.records.schema import End
from levelbench.records.submissions.digests import curve_digest, encode
from levelbench.records.submissions.entries import entries_of
from levelbench.records.submissions.making import file_of, make
from levelbench.records.submissions.reading import parse_submission
from levelbench.records.submissions.rules import check
from levelbench.records.submissions.schema import Author, Price, Tuning
from levelbench.records.submissions.terms import Terms, hardware_of

TARGET = Target("top1", 0.96)
ENVIRONMENT = {
    "machine": {"id": "m1", "cpu": "a processor", "cores_allowed": 2, "memory_bytes": 2**30, "caches": [{"level": 1}]},
    "accelerators": {"names": ["V100", "V100"]},
    "libraries": {"numpy": "2.4", "python": {"version": "3.11"}},
    "git": {"commit": "0a1b2c3d4e", "dirty": False},
    "load": {"one_minute": 3.0},
}


@pytest.fixture
def terms():
    price = Price(3.06, "https://example.org/prices", "2026-11-30", True)
    rules = ruleset("levelbench-1.0")
    url = "https://example.org/a/tree/0a1b2c3d"
    return Terms(Author("Ada", "ada@example.org"), "2026-12-01", rules, price, code_url=url)


@pytest.fixture
def put(tmp_path, make_header, make_events, make_run):
    """Put a run of digits into the store: ``put(seed, qualities, environment=..., end=..., **specification)``."""

    def add(seed, qualities=None, *, environment=ENVIRONMENT, end=None, epoch_s=1.0, **parts):
        head = make_header(seed=seed, **{"target": TARGET, **parts})
        head = msgspec.structs.replace(head, environment=environment)
        qualities = qualities or (0.90 + 0.001 * seed, 0.961, 0.97)
        return make_run(tmp_path / "store", head, make_events(qualities, epoch_s + 0.01 * seed, **(end or {})))

    return add


def records(*paths):
    return [read_record(path) for path in paths]


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
    entry = make(records(*[put(seed) for seed in range(5)]), msgspec.structs.replace(terms, tuning=Tuning(0)))
    assert parse_submission(encode(entry)) == entry
    found = check(entry, file_of(entry, ["abcd" * 4]), today=date(2026, 12, 1))
    assert found == []


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


def test_runs_of_two_kinds_or_machines_are_no_entry(put, terms):
    other = {**ENVIRONMENT, "machine": {**ENVIRONMENT["machine"], "id": "m2"}}
    with pytest.raises(IncomparableError, match="2 kinds"):
        make(records(put(0), put(1, settings={"lr": 0.2})), terms)
    with pytest.raises(IncomparableError, match="2 machines"):
        make(records(put(0), put(1, environment=other)), terms)
    with pytest.raises(UsageError, match="no run"):
        make([], terms)


def test_runs_at_several_commits_are_told(put, terms):
    later = {**ENVIRONMENT, "git": {"commit": "ffff000", "dirty": True}}
    entry = make(records(put(0), put(1, environment=later)), terms)
    assert (entry.code.commit, entry.code.dirty) == ("ffff000", True)
    assert entry.notes == "The runs were made at 2 commits: 0a1b2c3d4e, ffff000."


def test_the_hardware_of_an_accelerated_run_is_its_accelerators():
    assert hardware_of(ENVIRONMENT, "cuda:0", None).description == "2 x V100"
    assert hardware_of(ENVIRONMENT, "cuda", "p3.2xlarge").description == "p3.2xlarge"
    with pytest.raises(UsageError, match="--hardware"):
        hardware_of({}, "cpu", None)


def test_every_group_that_is_selected_makes_an_entry(put, terms, tmp_path):
    for seed in range(2):
        put(seed)
        put(seed, settings={"lr": 0.2})
    made = entries_of(["digits"], Store(tmp_path / "store"), terms)
    assert [len(entry.runs) for _, entry in made] == [2, 2]
    files = [file for file, _ in made]
    assert len(set(files)) == 2
    assert all(file.startswith("digits/training/Ada_mlp_2-cores-of-a-processor_numpy-") for file in files)


def test_trials_are_counted_in_the_store_where_they_are_not_stated(put, terms, tmp_path):
    put(0)
    for lr in (0.2, 0.3):
        put(0, settings={"lr": lr})
        put(1, settings={"lr": lr})
    store = Store(tmp_path / "store")
    ((_, entry),) = entries_of(["digits[lr=0.1]"], store, terms)
    assert entry.tuning.trials == 2
    assert entry.tuning.hours == pytest.approx(2 * (3.0 + 3.03) / 3600)
    assert "2 other specifications of digits[recipe=mlp], 4 runs" in entry.tuning.notes
    stated = msgspec.structs.replace(terms, tuning=Tuning(7))
    assert entries_of(["digits[lr=0.1]"], store, stated, count_trials=False)[0][1].tuning == Tuning(7)


def name_beside_a_model(store, *ids):
    (store / "models").mkdir(exist_ok=True)
    text = json.dumps({"run": ids[0], "earlier": ids[1:], "quality": {"test": 0.9}})
    (store / "models" / "0-s0.json").write_text(text)


def test_a_run_that_was_made_to_infer_with_is_no_entry_of_its_own_and_no_trial(put, terms, tmp_path):
    path = tmp_path / "store"
    put(0)
    ids = [read_record(put(seed, settings={"lr": 0.3})).header.id for seed in (0, 1)]
    name_beside_a_model(path, *ids)
    ((_, entry),) = entries_of(["digits"], Store(path), terms)
    assert entry.settings["lr"] != 0.3
    assert entry.tuning.trials == 0
    ((_, asked),) = entries_of(["digits[lr=0.3]"], Store(path), terms)
    assert len(asked.runs) == 2


def test_a_run_that_was_made_to_infer_with_counts_where_it_took_a_seeds_place(put, terms, tmp_path):
    path = tmp_path / "store"
    name_beside_a_model(path, read_record(put(0)).header.id)
    put(1)
    ((_, entry),) = entries_of(["digits"], Store(path), terms)
    assert [run.seed for run in entry.runs] == [0, 1]
    put(0)
    ((_, entry),) = entries_of(["digits"], Store(path), terms)
    assert [run.seed for run in entry.runs] == [0, 1]


def test_a_run_whose_network_was_kept_beside_is_an_ordinary_one(tmp_path):
    name_beside_a_model(tmp_path, "one", "two")
    (tmp_path / "models" / "kept.json").write_text('{"run": "three", "for_inference": false, "earlier": ["four"]}')
    assert runs_for_inference(tmp_path) == {"one", "two", "four"}


def test_what_lies_beside_a_model_and_is_damaged_names_no_run(tmp_path):
    name_beside_a_model(tmp_path, "one", "two")
    (tmp_path / "models" / "broken.json").write_text('{"run": ')
    assert runs_for_inference(tmp_path) == {"one", "two"}


def test_a_selection_of_some_seeds_is_refused_without_a_reason(put, terms, tmp_path):
    for seed in range(3):
        put(seed)
    store = Store(tmp_path / "store")
    with pytest.raises(UsageError, match="2 runs of the same group are left out") as caught:
        entries_of(["digits[seed=1]"], store, terms)
    assert "--only-these --because" in caught.value.do
    because = msgspec.structs.replace(terms, only_these="the rules\nwant one")
    ((_, entry),) = entries_of(["digits[seed=1]"], store, because)
    assert entry.notes == "Only some runs were submitted: the rules want one"
    assert [run.seed for run in entry.runs] == [1]


def test_runs_of_another_machine_are_another_group(put, terms, tmp_path):
    other = {**ENVIRONMENT, "machine": {**ENVIRONMENT["machine"], "id": "m2"}}
    put(0)
    put(1, environment=other)
    made = entries_of(["digits"], Store(tmp_path / "store"), terms)
    assert [len(entry.runs) for _, entry in made] == [1, 1]


def test_an_interrupted_run_is_finished_first(put, terms, tmp_path):
    put(0)
    path = put(1)
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")
    assert not any(isinstance(each, End) for each in records(path))
    with pytest.raises(UsageError, match="interrupted") as caught:
        entries_of(["digits"], Store(tmp_path / "store"), terms)
    assert "finish what was interrupted" in caught.value.do


def test_a_copy_of_a_folder_is_the_same_runs(put, terms, tmp_path):
    for seed in range(2):
        put(seed)
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    ((_, entry),) = entries_of([str(tmp_path / "copy")], Store(tmp_path / "store"), terms)
    assert len(entry.runs) == 2


def judged(entry, paths):
    digests = {hashlib.sha256(path.read_bytes()).hexdigest(): str(path) for path in paths}
    found = check(entry, today=date(2026, 12, 1), records=digests)
    return [(each.code, each.field) for each in found if each.code.startswith(("B17", "B18"))]


def test_an_entry_is_held_against_its_records(put, terms):
    paths = [put(seed) for seed in range(5)]
    entry = make(records(*paths), msgspec.structs.replace(terms, tuning=Tuning(0)))
    assert judged(entry, paths) == []
    first = entry.runs[0]
    curve = msgspec.structs.replace(first.curve, time_s=[each / 20 for each in first.curve.time_s])
    forged = msgspec.structs.replace(
        first, curve=curve, phases_s={}, seed=9, curve_digest=curve_digest(curve), time_to_target_s=None
    )
    changed = msgspec.structs.replace(entry, runs=[forged, *entry.runs[1:]])
    assert judged(changed, paths) == [("B183", f"runs[0].{name}") for name in ("curve", "phases_s", "seed")]


def test_labels_are_held_against_the_records(put, terms):
    paths = [put(seed) for seed in range(5)]
    entry = make(records(*paths), msgspec.structs.replace(terms, tuning=Tuning(0)))
    more = msgspec.structs.replace(entry, settings={**entry.settings, "flops_per_sample": 1.0})
    assert judged(more, paths) == []
    other = msgspec.structs.replace(entry, framework="another", settings={**entry.settings, "lr": 0.7})
    assert judged(other, paths) == [("B183", "framework"), ("B183", "settings.lr")]


def test_records_of_the_group_that_an_entry_leaves_out_are_told(put, terms):
    paths = [put(seed) for seed in range(6)]
    elsewhere = {**ENVIRONMENT, "machine": {"id": "m2"}}
    others = [put(7, recipe="cnn"), put(8, environment=elsewhere)]
    entry = make(records(*paths[:5]), msgspec.structs.replace(terms, tuning=Tuning(0)))
    assert judged(entry, [*paths, *others]) == [("B184", "runs")]
    assert judged(entry, [*paths[:5], *others]) == []
