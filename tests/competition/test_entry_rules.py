"""Rules about one entry that need several planted changes: its place, its records, its origin."""

from __future__ import annotations

import math

import pytest
from tests.competition.planting import GONE, faster, stopped

from levelbench.competition.checks import MachineLimits
from levelbench.competition.checks.identity import skeleton


def times(*values):
    """A change of a column's values, by place."""
    return lambda column: [
        old if new is None else new for old, new in zip(column, [*values, *[None] * 9], strict=False)
    ]


def with_removals(clean, changes):
    return {name: clean.remove if value is GONE else value for name, value in changes.items()}


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("cifar10/training/a.json", "B114"),
        ("digits/inference/a.json", "B114"),
        ("a.json", "B114"),
        ("digits/training/deep/a.json", "B114"),
        ("digits/training/a b.json", "B116"),
        ("digits/training/\u00e9.json", "B116"),
    ],
)
def test_a_file_lies_where_its_task_and_mode_say(clean, file, code):
    assert clean.codes(clean.make(), file) == {code}


def test_a_folder_may_have_the_tasks_other_name(clean):
    assert clean.codes(clean.make("dawnbench"), "CIFAR10/training/a.json") == set()


def test_a_curve_without_a_digest_is_a_warning(clean):
    assert clean.codes(clean.make(digests=False)) == {"B136"}


def test_numbers_that_json_cannot_say_are_found_in_what_was_made_in_memory(clean):
    assert clean.codes(clean.make("training", {"runs[4].curve.quality": times(math.nan)}, digests=False)) >= {"B137"}
    assert "B164" in clean.codes(clean.make("training", {"price.usd_per_hour": math.inf}))


def test_records_at_hand_must_be_those_of_the_entry(clean):
    submission = clean.make()
    found = clean.find(submission, records={})
    assert {each.code for each in found} == {"B179"}
    assert [each.field for each in found] == [f"runs[{at}].record_digest" for at in range(5)]


def test_what_another_system_cannot_say_is_not_asked_of_its_entries(clean):
    gone = {"code.commit": GONE, "provenance": {}, "tuning": {}, "clock": GONE, "runs[0].record_digest": GONE}
    plain = clean.make("dawnbench", with_removals(clean, gone), digests=False)
    assert clean.codes(plain) == {"B124", "B136", "B175", "B178", "B180", "B181", "B185"}
    imported = with_removals(clean, {**gone, "origin": {"format": "dawnbench", "file": "a.json"}})
    (told,) = clean.find(clean.make("dawnbench", imported, digests=False))
    assert (told.code, told.severity) == ("B127", "note")


def test_an_origin_of_the_authors_own_excuses_nothing(clean):
    gone = {"provenance": {}, "tuning": {}, "runs[0].record_digest": GONE}
    changes = with_removals(clean, {**gone, "origin": {"format": "dawnbench", "file": "a.json"}})
    found = clean.find(clean.make("training", changes))
    assert {each.code for each in found} == {"B127", "B175", "B178", "B180", "B181", "B185"}
    assert found[0].severity == "error"
    other = {"origin": {"format": "levelbench", "file": "a.json"}}
    assert clean.codes(clean.make("training", other)) == {"B127"}
    loadgen = {"origin": {"format": "loadgen", "file": "a.txt"}}
    assert [each.severity for each in clean.find(clean.make("inference", loadgen))] == ["warning"]


def test_a_schedule_of_fixed_length_is_judged_at_its_end(clean):
    at_the_end = {f"runs[{at}].time_to_target_s": GONE for at in range(5)}
    submission = clean.make("training", with_removals(clean, {"crossing": "final", **at_the_end}))
    assert [(each.code, each.severity) for each in clean.find(submission)] == [("B145", "warning")]
    known = MachineLimits(certain=True, fixed_length=True)
    assert not clean.find(submission, limits=lambda entry: known)
    late = {"crossing": "final", **at_the_end, "runs[0].curve.quality": times(*[None] * 5, 0.9)}
    assert clean.codes(clean.make("training", with_removals(clean, late))) == {"B141", "B145"}


def test_runs_that_are_judged_at_their_end_end_at_one_place(clean):
    column = ("time_s", "quality", "epoch", "samples")
    shorter = {f"runs[1].curve.{name}": lambda values: values[:5] for name in column}
    parts = {"crossing": "final", "runs[1].phases_s": lambda phases: {"forward": 5.065 - 0.0}}
    gone = {f"runs[{at}].time_to_target_s": GONE for at in range(5)}
    entry = clean.make("training", with_removals(clean, {**parts, **shorter, **gone}))
    found = {each.code: each for each in clean.find(entry)}
    assert found["B146"].found == "2 different ends, from epoch 5 to 6"
    assert found["B146"].severity == "error"


def test_neither_ruleset_nor_crossing_need_be_known(clean):
    assert clean.codes(clean.make("training", {"ruleset": "a", "crossing": "b"})) == {"B110"}


HONEST = {
    "as it is": {},
    "seeds from 100 on": {f"runs[{at}].seed": 100 + at for at in range(5)},
    "seeds in another order": {f"runs[{at}].seed": 4 - at for at in range(5)},
    "another learning rate": {"settings.lr": 0.02},
    "a larger batch": {"settings.batch": 256},
    "twice as fast": {f"runs[{at}]": faster(0.5) for at in range(5)},
    "ten times as slow": {
        **{f"runs[{at}]": faster(10.0) for at in range(5)},
        **{f"runs[{at}].started": f"2026-11-29T0{at}:00:00Z" for at in range(5)},
    },
    "one slow run": {"runs[2]": faster(3.0)},
    "one quick run": {"runs[2]": faster(0.4)},
    "a run that missed": {"runs[1]": stopped(6)},
    "a run that missed in less time": {"runs[1]": lambda run: stopped(6)(faster(0.8)(run))},
    "a failed run": {"runs[4].status": "failed", "runs[4].reached": False, "runs[4].time_to_target_s": GONE},
    "without energy": {f"runs[{at}].{name}": GONE for at in range(5) for name in ("energy_j", "energy_method")},
    "without a price": {"price": GONE},
    "without a ceiling": {"provenance.environment": {"machine.cpu": "a processor", "machine.cores_allowed": "2"}},
    "without the cost of a sample": {"settings": {"lr": 0.05}},
    "more cores": {
        **{"hardware.cores": 64, "hardware.description": "64 cores of a processor"},
        "provenance.environment": {"machine.cpu": "a processor", "machine.cores_allowed": "64"},
    },
    "an accelerator": {"hardware": {"description": "1 A100", "accelerators": 1, "accelerator": "A100"}},
    "another framework": {"framework": "torch"},
    "another author": {"author.name": "Grace Hopper"},
    "a team": {"author.name": "Team 2"},
    "a name of one word": {"author.name": "Plato"},
    "a name with an initial": {"author.name": "A. M. Turing"},
    "the closed division": {"division": "closed", "settings.recipe": "mlp"},
    "many trials before": {"tuning.trials": 500},
    "notes": {"notes": "The machine was idle."},
}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_entry_has_neither_an_error_nor_a_warning(clean, name):
    entry = clean.make("training", with_removals(clean, HONEST[name]))
    limits = MachineLimits(flop_s=5e10, machine="2 cores", flops_per_sample=1e5, network="the recipe mlp", certain=True)
    findings = clean.find(entry, limits=lambda each: limits)
    assert [each for each in findings if each.severity != "note"] == []


@pytest.mark.parametrize(("one", "other"), [
    ("Ada Lovelace", "Ada Lovelass"), ("Team 1", "Team 2"), ("Ada Lovelace", "Bob Lovelace"), ("A. Smith", "B. Smith"),
    ("Lab 10", "Lab 01x"), ("Kim Lee", "Kim Leek"), ("(a)", "(b)"), ("***", "+++"),
    ("Ada Lovelace and Alan Turing", "Ada Lovelace"), ("\u674e\u660e", "\u738b\u660e"),
])  # fmt: skip
def test_names_that_a_reader_tells_apart_do_not_look_alike(one, other):
    assert skeleton(one) != skeleton(other)


@pytest.mark.parametrize(
    "titled",
    [
        *(
            "Dr. Ada Lovelace",
            "Prof. Dr. Ada Lovelace",
            "Ada Lovelace, PhD",
            "Ada Lovelace, MSc",
            "Ada Lovelace (Zurich)",
        ),
        *(
            "Ada Lovelace [ETH]",
            "Ada Lovelace - ETH Zurich",
            "Ada Lovelace @ ETH",
            "Ada Lovelace et al.",
            "Ada Lovelace & Co",
        ),
    ],
)
def test_a_title_or_a_place_does_not_make_another_name(titled):
    assert skeleton(titled) == skeleton("Ada Lovelace")
