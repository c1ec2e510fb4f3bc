"""Entries made from inference records: all processes, and a task that the ruleset has."""

from __future__ import annotations

import hashlib
from datetime import date

import msgspec
import numpy as np
import pytest
from tests.records.inference_records import MODEL, SERVER, latencies_ns, specification, write
from tests.records.stores import edit

from levelbench.competition.entries import Author, SystemPrice, file_digest
from levelbench.competition.leaderboard import check
from levelbench.competition.making import Terms, entries_of, make_inference, submitted
from levelbench.competition.rulesets import ruleset
from levelbench.competition.scoring import score
from levelbench.errors import IncomparableError, RecordError, UsageError
from levelbench.records import Store
from levelbench.records.inference import Audit, Generation, InferenceRecord


@pytest.fixture
def terms():
    price = SystemPrice(3.06, "https://example.org/prices", "2026-11-30", True)
    url = "https://example.org/a/tree/0a1b2c3d"
    return Terms(Author("Ada", "a@b.org"), "2026-12-01", ruleset("levelbench-1.0"), price, "open", url, "2 cores")


@pytest.fixture
def records(tmp_path):
    return [write(tmp_path, specification(), seed, slow=slow, n=800) for seed, slow in enumerate([1.0, 3.0, 2.0])]


def test_the_entry_has_every_process_with_what_its_record_says(records, terms):
    entry = make_inference([records[2], records[0], records[1]], terms)
    assert [each.record_digest for each in entry.inference] == [file_digest(each.path) for each in records]
    assert {(each.quality, each.queries) for each in entry.inference} == {(0.95, 800)}
    assert (entry.mode, entry.task, entry.model, entry.framework) == ("inference", "digits", "mlp", "numpy")
    assert entry.settings["trained_by"] == "run00001"
    assert entry.notes == ""


def test_a_check_finds_only_that_it_was_short_and_not_as_good(records, terms):
    entry = make_inference(records, terms)
    found = check(entry, today=date(2026, 12, 1))
    assert [(each.code, each.field) for each in found if each.severity == "error"] == [
        *((("B201"), f"inference[{at}].duration_s") for at in range(3)),
        *((("B204"), f"inference[{at}].quality") for at in range(3)),
    ]


def test_generated_tokens_are_refused_as_no_ruleset_ranks_them(tmp_path, terms):
    record = write(tmp_path, specification(generation=Generation(4, 8)), n=800)
    with pytest.raises(UsageError, match="does not rank"):
        make_inference([record], terms)


def test_some_of_several_processes_are_refused_without_a_reason(records, terms, tmp_path):
    store = Store(tmp_path)
    words = [str(record.path) for record in records]
    ((file, _),) = entries_of(words, store, terms)
    assert file.startswith("digits/inference/Ada_mlp_2-cores_numpy-single-stream-")
    with pytest.raises(UsageError, match="2 processes of the same measurement are left out"):
        entries_of(words[:1], store, terms)
    because = msgspec.structs.replace(terms, only_these="one is enough")
    ((_, entry),) = entries_of(words[:1], store, because)
    assert entry.notes == "Only some runs were submitted: one is enough"


def test_what_audits_found_is_in_the_entry(terms, tmp_path):
    audits = [Audit("caching", False, "cached"), Audit("same", None, "too few"), Audit("kept", True, "all")]
    entry = make_inference([write(tmp_path, specification(audit=True), n=800, audits=audits)], terms)
    assert entry.inference[0].audits == {"caching": False, "same": None, "kept": True}
    assert "B214" in {each.code for each in check(entry, today=date(2026, 12, 1))}


def test_the_same_under_other_seeds_is_counted_in_the_notes(records, terms, tmp_path):
    write(tmp_path, specification("torch"), n=8)
    assert "seed" not in make_inference(records, terms, tmp_path).notes
    for seed, process in ((1, 0), (1, 1), (2, 0)):
        write(tmp_path, specification(seed=seed), process, n=8)
    words = [str(record.path) for record in records]
    ((_, entry),) = entries_of(words, Store(tmp_path), terms)
    assert "The store has 3 more processes of the same measurement, with 2 other seeds" in entry.notes


def test_a_process_that_failed_after_its_queries_has_no_measurement(records, terms, tmp_path):
    failed = write(tmp_path, specification(), 3, n=800)
    edit(failed.path, '"status":"measured"', '"status":"failed"')
    entry = make_inference([*records, InferenceRecord.read(failed.path)], terms)
    assert len(entry.inference) == len(records)
    assert "3 of 4 processes" in entry.notes


@pytest.mark.parametrize(("n", "flag"), [(1, "single-run"), (2, "few-processes"), (3, None)])
def test_few_processes_are_flagged_and_so_is_preprocessing_on_the_clock(records, terms, n, flag):
    entry = make_inference(records[:n], terms)
    for includes in (["transfer"], ["preprocessing", "transfer"]):
        made = [msgspec.structs.replace(each, includes=includes, duration_s=10.0) for each in entry.inference]
        entry = msgspec.structs.replace(entry, inference=made)
        found = score(entry, terms.ruleset, threshold=0.9)
        assert set(found.flags) & {"single-run", "few-processes"} == ({flag} if flag else set())
        assert ("preprocessing-on-clock" in found.flags) == ("preprocessing" in includes)
        assert found.reached == n


def test_records_of_two_specifications_are_not_one_entry(records, terms, tmp_path):
    other = write(tmp_path, specification("torch"), n=800)
    with pytest.raises(IncomparableError):
        make_inference([*records, other], terms)


@pytest.mark.parametrize("task", ["", "translation-en-es"])
def test_a_network_that_the_ruleset_has_no_rules_for_is_refused(terms, tmp_path, task):
    model = msgspec.structs.replace(MODEL, task=task)
    record = write(tmp_path, specification(model=model), n=800)
    with pytest.raises(UsageError, match="has for inference"):
        make_inference([record], terms)


def test_what_is_submitted_is_one_process_in_the_middle_with_its_digest(tmp_path):
    spec = specification()
    records = [write(tmp_path, spec, seed, slow=slow) for seed, slow in enumerate([1.2, 1.0, 3.0])]
    found = submitted(records)
    assert found.record_id == "id0"
    assert found.record_digest == hashlib.sha256(records[0].path.read_bytes()).hexdigest()
    assert found.quantiles_s["0.9"] == pytest.approx(np.sort(latencies_ns(0, 1.2))[3600] * 1e-9)
    assert (found.scenario, found.valid, found.quality, found.quality_samples) == ("single-stream", True, 0.95, 359)
    assert found.estimate_s > found.quantiles_s["0.9"]


def test_a_server_submits_its_rate_and_bound_and_no_estimate(tmp_path):
    spec = specification(scenario=SERVER)
    found = submitted([write(tmp_path, spec, target_per_s=200.0)])
    assert (found.target_per_s, found.latency_bound_s, found.estimate_s) == (200.0, 0.015, None)


def test_nothing_that_did_not_come_to_its_end_is_submitted(tmp_path):
    with pytest.raises(RecordError, match="none of 1"):
        submitted([write(tmp_path, specification(), end=False)])
