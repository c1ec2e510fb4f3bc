"""Entries made of records of inference: the median process, all processes, and a task that the ruleset has."""

from __future__ import annotations

from datetime import date

import msgspec
import pytest
from tests.records.inference.builder import MODEL, specification, write

from levelbench.errors import IncomparableError, UsageError
from levelbench.records import Store
from levelbench.records.rulesets.registry import ruleset
from levelbench.records.submissions.digests import file_digest
from levelbench.records.submissions.entries import entries_of
from levelbench.records.submissions.making_inference import make_inference
from levelbench.records.submissions.rules import check
from levelbench.records.submissions.schema import Author, Price
from levelbench.records.submissions.terms import Terms


@pytest.fixture
def terms():
    price = Price(3.06, "https://example.org/prices", "2026-11-30", True)
    url = "https://example.org/a/tree/0a1b2c3d"
    return Terms(Author("Ada", "a@b.org"), "2026-12-01", ruleset("levelbench-1.0"), price, "open", url, "2 cores")


@pytest.fixture
def records(tmp_path):
    return [write(tmp_path, specification(), seed, slow=slow, n=800) for seed, slow in enumerate([1.0, 3.0, 2.0])]


def test_the_entry_is_the_median_process_with_what_its_record_says(records, terms):
    entry = make_inference(records, terms)
    (measured,) = entry.inference
    assert measured.record_digest == file_digest(records[2].path)
    assert (measured.quality, measured.queries) == (0.95, 800)
    assert (entry.mode, entry.task, entry.model, entry.framework) == ("inference", "digits", "mlp", "numpy")
    assert entry.settings["trained_by"] == "run00001"
    assert entry.notes.startswith("Measured by 3 processes")


def test_a_check_finds_only_that_it_was_short_and_not_as_good(records, terms):
    entry = make_inference(records, terms)
    found = check(entry, today=date(2026, 12, 1))
    assert [(each.code, each.field) for each in found if each.severity == "error"] == [
        ("B201", "inference[0].duration_s"),
        ("B204", "inference[0].quality"),
    ]


def test_some_of_several_processes_are_refused_without_a_reason(records, terms, tmp_path):
    store = Store(tmp_path)
    words = [str(record.path) for record in records]
    ((file, _),) = entries_of(words, store, terms)
    assert file.startswith("digits/inference/Ada_mlp_2-cores_numpy-single-s-")
    with pytest.raises(UsageError, match="2 processes of the same measurement are left out"):
        entries_of(words[:1], store, terms)
    because = msgspec.structs.replace(terms, only_these="one is enough")
    ((_, entry),) = entries_of(words[:1], store, because)
    assert entry.notes == "Only some runs were submitted: one is enough"


def test_records_of_two_specifications_are_no_entry(records, terms, tmp_path):
    other = write(tmp_path, specification("torch"), n=800)
    with pytest.raises(IncomparableError):
        make_inference([*records, other], terms)


@pytest.mark.parametrize("task", ["", "charlm"])
def test_a_network_that_the_ruleset_has_no_rules_for_is_refused(terms, tmp_path, task):
    model = msgspec.structs.replace(MODEL, task=task)
    record = write(tmp_path, specification(model=model), n=800)
    with pytest.raises(UsageError, match="has for inference"):
        make_inference([record], terms)
