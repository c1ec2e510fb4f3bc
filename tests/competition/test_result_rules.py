"""Rules about an entry's claims about its runs: a fault that only one finds, and a value just inside the rule."""

from __future__ import annotations

import msgspec
import pytest
from tests.competition.planting import DIGEST, GONE, codes, faster, scaled, stopped, times

from levelbench.competition.rulesets import Aggregation, ruleset

# code, kind, the planted fault, a similar but valid value
CASES = {
    "none reached": (
        "B140",
        "dawnbench",
        {"runs[0].curve.quality": scaled(0.98), "runs[0].reached": False, "runs[0].time_to_target_s": GONE},
        {"runs[0].curve.quality": times(*[None] * 4, 0.94, 0.94)},
    ),
    "olympic": (
        "B140",
        "olympic",
        {
            f"runs[{at}].{name}": value
            for at in (0, 1)
            for name, value in (("curve.quality", scaled(0.9)), ("reached", False), ("time_to_target_s", GONE))
        },
        {"runs[0].curve.quality": scaled(0.9), "runs[0].reached": False, "runs[0].time_to_target_s": GONE},
    ),
    "half reached": (
        "B140",
        "training",
        {
            f"runs[{at}].{name}": value
            for at in (0, 1, 2)
            for name, value in (("curve.quality", scaled(0.9)), ("reached", False), ("time_to_target_s", GONE))
        },
        {
            f"runs[{at}].{name}": value
            for at in (0, 1)
            for name, value in (("curve.quality", scaled(0.9)), ("reached", False), ("time_to_target_s", GONE))
        },
    ),
    "reached": (
        "B141",
        "training",
        {"runs[0].curve.quality": scaled(0.99)},
        {"runs[0].curve.quality": scaled(0.99), "runs[0].reached": False, "runs[0].time_to_target_s": GONE},
    ),
    "stated time": (
        "B142",
        "training",
        {"runs[0].time_to_target_s": 4.0},
        {"runs[0].time_to_target_s": 5.0005},
    ),
    "failed": (
        "B143",
        "training",
        {"runs[0].status": "failed"},
        {"runs[0].status": "failed", "runs[0].reached": False, "runs[0].time_to_target_s": GONE},
    ),
    "few runs": ("B150", "training", {"runs[4]": GONE}, {"notes": "four runs"}),
    "many runs": (
        "B151",
        "dawnbench",
        {
            "runs": lambda runs: [
                runs[0],
                {
                    **runs[0],
                    "seed": 0,
                    "started": "2018-01-02T12:00:00+00:00",
                    "record_id": "b",
                    "record_digest": DIGEST,
                    "curve": {
                        **runs[0]["curve"],
                        "time_s": [9.0, 11.0, 12.0, 12.5, 17.0, 18.0],
                        "quality": [0.4, 0.8, 0.9, 0.941, 0.95, 0.95],
                    },
                    "time_to_target_s": 12.5,
                },
            ]
        },
        {"notes": "two runs"},
    ),
    "chosen seeds": ("B186", "training", {"runs[1].seed": 4242}, {"runs[0].seed": 1, "runs[1].seed": 0}),
    "late seeds": (
        "B186",
        "training",
        {f"runs[{at}].seed": 1 + at for at in range(5)},
        {f"runs[{at}].seed": 4 - at for at in range(5)},
    ),
    "seeds": ("B152", "training", {"runs[1].seed": 0}, {"runs[0].seed": 1, "runs[1].seed": 0}),
    "no seed": ("B153", "training", {"runs[1].seed": GONE}, {"runs[1].seed": 0, "runs[0].seed": 1}),
    "same record": (
        "B154",
        "training",
        {"runs[1].record_id": "aaaa0000"},
        {"runs[1].record_id": "aaaa0009"},
    ),
    "same qualities": (
        "B154",
        "training",
        {"runs[1].curve.quality": [0.81, 0.9, 0.94, 0.961, 0.964, 0.9665]},
        {"runs[1].curve.quality": [0.81, 0.9, 0.94, 0.961, 0.964, 0.9664]},
    ),
    "doubtful": ("B155", "training", {"runs[1].suspect": ["load"]}, {"runs[1].suspect": []}),
    "phases": (
        "B156",
        "training",
        {"runs[0].phases_s": {"forward": 5.9}},
        {"runs[0].phases_s": {"forward": 5.96}},
    ),
    "negative phase": (
        "B156",
        "training",
        {"runs[0].phases_s": {"forward": 7.0, "data": -1.0}},
        {"runs[0].phases_s": {"forward": 6.0, "data": 0.0}},
    ),
    "left out": (
        "B157",
        "training",
        {"runs[0].phases_s": {"forward": 6.0, "data": 2.0}, "runs[0].excluded_s": {"data": 2.0}},
        {"runs[0].phases_s": {"forward": 6.0}, "runs[0].excluded_s": {"data": 0.0}},
    ),
    "gave up": (
        "B144",
        "training",
        {"runs[1]": stopped(3)},
        {"runs[1]": stopped(6)},
    ),
    "no time": (
        "B147",
        "training",
        {"runs[0]": faster(1e-8), "settings": {}},
        {"runs[0]": faster(1e-6), "settings": {}},
    ),
    "memory": ("B148", "training", {"runs[0].peak_memory_bytes": 0.0}, {"runs[0].peak_memory_bytes": 1e9}),
    "memory above the machine's": (
        "B148",
        "training",
        {"hardware.memory_bytes": 25 * 10**9, "runs[0].peak_memory_bytes": 5e11},
        {"hardware.memory_bytes": 25 * 10**9, "runs[0].peak_memory_bytes": 2.4e10},
    ),
    "memory of next to nothing": (
        "B148",
        "training",
        {"runs[0].peak_memory_bytes": 999.0},
        {"runs[0].peak_memory_bytes": 1001.0},
    ),
    "quality beside": (
        "B133",
        "training",
        {"runs[0].test_quality": {"test": 96.0}},
        {"runs[0].test_quality": {"test": 0.96, "test.loss": 96.0}},
    ),
    "no phases": ("B159", "training", {"runs[0].phases_s": {}}, {"runs[0].excluded_s": {}}),
    "left out alone": (
        "B156",
        "dawnbench",
        {"runs[0].excluded_s": {"evaluate": -1e300}},
        {"runs[0].excluded_s": {"evaluate": 1.0}},
    ),
    "power station": ("B158", "training", {"runs[0].energy_j": 1e300}, {"runs[0].energy_j": 1e6}),
    "energy of next to nothing": (
        "B158",
        "training",
        {"runs[0].energy_j": 0.55},
        {"runs[0].energy_j": 0.7},
    ),
    "energy": ("B158", "training", {"runs[0].energy_j": -1.0}, {"runs[0].energy_j": GONE}),
    "energy method": ("B158", "training", {"runs[0].energy_method": GONE}, {"runs[0].energy_method": "nvml"}),
    "blank energy method": ("B158", "training", {"runs[0].energy_method": " "}, {"runs[0].energy_method": "nvml"}),
    "ceiling": (
        "B190",
        "training",
        {"settings.flops_per_sample": 1e8},
        {"settings.flops_per_sample": 4e7},
    ),
}


RULES = ruleset("mlperf-training-like-1.0")
WINDOWED = msgspec.structs.replace(RULES, aggregation=Aggregation("olympic", runs=3, drop=1, windows="upper"))


def of_windows(clean, changes):
    """The codes of five runs under rules that want three, and score windows of more."""
    return clean.codes(clean.make("olympic", changes), known={RULES.id: WINDOWED})


def test_more_runs_than_are_asked_for_are_scored_in_the_order_of_their_start(clean):
    assert of_windows(clean, {}) == set()
    assert of_windows(clean, {"runs": lambda runs: runs[::-1]}) == {"B149"}


def test_the_first_of_several_runs_is_the_one_that_started_first(clean):
    first = msgspec.structs.replace(RULES, aggregation=Aggregation("first-run", runs=1))
    found = [
        clean.codes(clean.make("olympic", {"runs": order}), known={RULES.id: first})
        for order in (lambda runs: runs, lambda runs: runs[::-1], lambda runs: runs[-1:])
    ]
    assert found == [set(), {"B149"}, set()]


def test_runs_of_one_start_have_no_order_but_the_authors(clean):
    same = {f"runs[{at}].started": "2026-11-29T03:00:00.000+00:00" for at in (1, 2)}
    assert of_windows(clean, {"runs[0].started": "2026-11-29T02:59:00.000+00:00"} | same) == {"B129", "B149"}


def test_runs_that_state_no_start_have_no_order(clean):
    assert of_windows(clean, {"runs[3].started": clean.remove}) == {"B128", "B149"}


def test_misses_outside_of_the_window_in_the_middle_are_allowed(clean):
    missed = {"curve.quality": scaled(0.9), "reached": False, "time_to_target_s": clean.remove}

    def without(*runs):
        return {f"runs[{at}].{name}": value for at in runs for name, value in missed.items()}

    assert of_windows(clean, without(0, 4)) == set()
    assert of_windows(clean, without(1, 2)) == {"B140"}


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("a/1", "a/2", "b/1", "b/2"), set()),
        (("a/1", "b/1", "a/2", "b/2"), {"B149"}),
        (("a/1", "a/2", "a/3", "b/1"), {"B149"}),
        (("a/1", "a/2", "a/3", "a/4"), {"B149"}),
        (("1", "2", "3", "4"), {"B149"}),
        (("a/1", "a/2", "/3", "/4"), {"B149"}),
        ((None,) * 4, {"B149"}),
    ],
)
def test_trials_of_one_study_stand_together_and_are_named_for_it(clean, names, found):
    studies = msgspec.structs.replace(ruleset("levelbench-1.0"), aggregation=Aggregation("median", runs=4, best_of=2))
    changes = {f"runs[{at}].record_id": name for at, name in enumerate(names)} | {"runs[4]": clean.remove}
    assert clean.codes(clean.make("training", changes), known={studies.id: studies}) == found


@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_found_by_its_rule_alone(clean, name):
    code, kind, guilty, _ = CASES[name]
    assert codes(clean, kind, guilty) == {code}


@pytest.mark.parametrize("name", CASES)
def test_a_value_just_inside_the_rules_has_no_finding(clean, name):
    _, kind, _, innocent = CASES[name]
    assert codes(clean, kind, innocent) == set()


def test_a_run_that_missed_in_less_time_but_saw_as_many_samples_did_not_give_up_early(clean):
    def missed(run):
        return stopped(6)(faster(0.5)(run))

    assert codes(clean, "training", {"runs[1]": missed}) == set()
    without = {"runs[1].curve.samples": GONE, "runs[1].curve.epoch": GONE}
    assert "B144" in codes(clean, "training", {"runs[1]": missed, **without})


@pytest.mark.parametrize(
    ("qualities", "doubted"),
    [
        ([[0.95, 0.97, 0.968]] * 3, True),
        ([[0.95, 0.97, 0.968], [0.94, 0.97, 0.968], [0.95, 0.97, 0.969]], False),
        ([[0.95, 0.97, 0.968]] * 2, False),
        ([[1.0]] * 5, False),
        ([[0.968]] * 5, True),
    ],
)
def test_the_more_runs_have_equal_qualities_the_fewer_of_them_are_no_chance(clean, qualities, doubted):
    changes = {f"runs[{at}].curve": {"time_s": [1.0 + at, 2.0 + at, 3.0 + at][: len(each)], "quality": each}
               for at, each in enumerate(qualities)}  # fmt: skip
    found = [each for each in clean.find(clean.make(changes=changes)) if each.code == "B154"]
    assert bool(found) == doubted
