"""The remedies in findings are helpful and not repeated."""

from __future__ import annotations

import re

import pytest

from levelbench.competition.entries import UnreadableError, encode, parse_submission, stem_of
from levelbench.competition.leaderboard import checked_folder
from levelbench.competition.making import file_of

ORIGIN = {"format": "dawnbench", "file": "CIFAR10/train/a.json"}
BARE = {"price": None, "code": {}, "tuning": {}, "runs[0].record_digest": None, "runs[0].seed": None}


@pytest.mark.parametrize("ruleset", ["dawnbench-1.0", "levelbench-1.0"])
def test_what_to_do_about_an_imported_entry_names_no_option_or_command_of_levelbench(clean, ruleset):
    kind = "dawnbench" if ruleset == "dawnbench-1.0" else "training"
    entry = clean.make(kind, {**BARE, "origin": dict(ORIGIN), "runs[0].curve_digest": "0" * 64})
    found = clean.find(entry)
    assert {"B160", "B170", "B135"} <= {each.code for each in found}
    assert not [each for each in found if re.search(r"--|board submit|levelbench run", each.do)]


def test_what_to_do_about_an_entry_of_ours_names_the_option(clean):
    found = {each.code: each.do for each in clean.find(clean.make("training", BARE))}
    assert "--price-per-hour" in found["B160"]
    assert "--code-url" in found["B170"]
    assert "--tuning-trials" in found["B181"]


@pytest.mark.parametrize(("most", "percent"), [(1.02, False), (2.0, False), (2.1, True), (94.0, True), (101.0, False)])
def test_only_what_looks_like_per_cent_is_to_be_divided_by_100(clean, most, percent):
    changed = {"runs[0].curve.quality": [0.5, 0.8, 0.9, 0.97, 0.98, most]}
    (found,) = [each for each in clean.find(clean.make("training", changed)) if each.code == "B133"]
    assert ("divide by 100" in found.do) == percent


def test_entries_that_share_several_runs_are_reported_once_and_how_many(clean, tmp_path):
    place = tmp_path / "digits" / "training"
    place.mkdir(parents=True)
    for name, day in (("a", "2026-11-30"), ("b", "2026-12-01")):
        changes = {"submitted": day, "notes": name, "model": name}
        (place / f"{name}.json").write_bytes(encode(clean.make("training", changes)))
    found = [each for each in checked_folder(tmp_path, today=clean.today)[1] if each.code == "B241"]
    assert len({each.file for each in found}) == len(found)
    assert all("and 4 more in the same two entries" in each.found for each in found)


@pytest.mark.parametrize(("raw", "field", "brief"), [
    (b'{"schema": 1}', "ruleset", "a field is missing"),
    (b'{"schema": 1, "ruleset": 5}', "ruleset", "Expected `str`, got `int`"),
])  # fmt: skip
def test_a_field_is_named_once_with_what_is_wrong_with_it(raw, field, brief):
    with pytest.raises(UnreadableError) as raised:
        parse_submission(raw)
    assert (raised.value.field, raised.value.brief) == (field, brief)
    assert raised.value.found == f"it is not a submission: {brief} at {field}"
    assert "docs/reference/submission.md" in raised.value.do


def test_a_files_name_is_cut_between_words():
    stem = stem_of("A", "64 cores of an Extraordinarily Long Processor Name v2")
    assert stem == "A_64-cores-of-an-Extraordinarily-Long"
    assert stem_of("x" * 60) == "x" * 40


def test_the_file_of_an_entry_has_a_name_that_the_check_takes(clean):
    long = "a name of many words " * 9
    changes = {"author.name": long, "model": long, "hardware.description": long, "framework": long}
    entry = clean.make("inference", changes)
    file = file_of(entry, ["single-stream", "0123456789abcdef" * 4])
    assert file.endswith("-single-stream-01234567.json")
    assert len(file.rpartition("/")[2]) <= 105
    assert "B116" not in clean.codes(entry, file)
