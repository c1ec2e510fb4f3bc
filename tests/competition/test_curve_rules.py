"""Rules about curves: a fault that only one of them finds, and a value just inside the rule."""

from __future__ import annotations

import pytest
from tests.competition.planting import DIGEST, GONE, codes, times

EMPTY = {"curve": {"time_s": [], "quality": []}, "seed": 4, "record_digest": DIGEST, "started": "2026-11-29T03:00Z"}
# code, kind, the planted fault, a similar but valid value
CUT_SHORT = {"settings.budget_s": 5.2}
for at in range(5):
    # A budget that ends where the target is confirmed.
    CUT_SHORT |= {f"runs[{at}].curve.{name}": lambda c: c[:5] for name in ("time_s", "quality", "epoch", "samples")}
    CUT_SHORT[f"runs[{at}].phases_s"] = {"forward": 5 * (1 + 0.013 * at)}
ROUNDED = {f"runs[0].curve.{name}": lambda c: c[:5] for name in ("time_s", "quality")}
ROUNDED |= {"runs[0].curve.samples": [1079, 2158, 3237, 4316, 4823]}
ROUNDED |= {"runs[0].curve.epoch": [1.0, 2.0, 3.0, 4.0, 76 / 17], "runs[0].curve.steps": [17, 34, 51, 68, 76]}
ROUNDED |= {"runs[0].phases_s": {"forward": 5.0}, "settings.evaluate_every": "1 epoch"}
CASES = {
    "columns": ("B130", "training", {"runs[0].curve.epoch": [1.0]}, {"runs[0].curve.epoch": GONE}),
    "time stands": ("B131", "training", {"runs[0].curve.time_s": times(None, 1.0)}, {"notes": "1.0"}),
    "time goes back": (
        "B131",
        "training",
        {"runs[0].curve.time_s": times(None, None, 1.5)},
        {"runs[0].curve.time_s": times(None, None, 2.5)},
    ),
    "time below 0": ("B131", "training", {"runs[0].curve.time_s": times(-0.5)}, {"runs[0].curve.time_s": times(0.0)}),
    "epochs": ("B132", "training", {"runs[0].curve.epoch": times(None, 0.5)}, {"runs[0].curve.epoch": times(0.5)}),
    "samples": (
        "B132",
        "training",
        {"runs[0].curve.samples": times(None, 1000)},
        {"runs[0].curve.samples": times(None, 2158)},
    ),
    "percent": ("B133", "training", {"runs[0].curve.quality": times(81.0)}, {"runs[0].curve.quality": times(0.0)}),
    "above 1": (
        "B133",
        "training",
        {"runs[0].curve.quality": times(*[None] * 5, 1.0001)},
        {"runs[0].curve.quality": times(*[None] * 5, 1.0)},
    ),
    "below 0": ("B133", "training", {"runs[0].curve.quality": times(-0.01)}, {"runs[0].curve.quality": times(0.01)}),
    "no share of the examples": (
        "B133",
        "training",
        {"provenance.split_sizes": {"validation": 10_000}, "runs[0].curve.quality": times(0.812345)},
        {"provenance.split_sizes": {"validation": 10_000}, "runs[0].curve.quality": times(0.812)},
    ),
    "empty": (
        "B134",
        "training",
        {"runs[4]": EMPTY},
        {"runs[4]": {**EMPTY, "status": "failed"}},
    ),
    "digest": ("B135", "training", {"runs[0].curve_digest": DIGEST}, {"runs[0].curve.others": {"top5": [1.0] * 6}}),
    "fell back": (
        "B138",
        "dawnbench",
        {"runs[0].curve.quality": times(*[None] * 4, 0.93)},
        {"runs[0].curve.quality": times(*[None] * 4, 0.94)},
    ),
    "epoch sizes": (
        "B139",
        "training",
        {"runs[0].curve.samples": times(*[None] * 4, 6474, 6474)},
        {"runs[0].curve.samples": times(*[None] * 4, 5400, 6474)},
    ),
    "confirmed by the same network": (
        "B139",
        "training",
        {"runs[0].curve.samples": times(*[None] * 4, 4316), "runs[0].curve.epoch": times(*[None] * 4, 4.0)},
        {"runs[0].curve.samples": times(*[None] * 4, 4400), "runs[0].curve.epoch": times(*[None] * 4, 4.0)},
    ),
    "confirmed before its time": (
        "B139",
        "training",
        {"settings.evaluate_every": "2 epochs"},
        {"settings.evaluate_every": "2 epochs", **CUT_SHORT},
    ),
    "confirmed before its time, and not where a budget of epochs ends in whole steps": (
        "B139",
        "training",
        {**ROUNDED, "settings.budget_epochs": 5.0},
        {**ROUNDED, "settings.budget_epochs": 4.5},
    ),
    "epochs of known data": (
        "B139",
        "training",
        {"runs[0].curve.epoch": times(*[0.0] * 6)},
        {"runs[0].curve.epoch": times(*[0.0] * 4)},
    ),
    "nothing was trained": (
        "B139",
        "training",
        {"runs[0].curve.samples": times(*[0] * 6), "runs[0].curve.epoch": times(*[0.0] * 6)},
        {"runs[0].curve.samples": times(0), "runs[0].curve.epoch": times(0.0)},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_found_by_its_rule_alone(clean, name):
    code, kind, guilty, _ = CASES[name]
    assert codes(clean, kind, guilty) == {code}


@pytest.mark.parametrize("name", CASES)
def test_a_value_just_inside_the_rules_has_no_finding(clean, name):
    _, kind, _, innocent = CASES[name]
    assert codes(clean, kind, innocent) == set()


def test_a_program_that_prints_no_epochs_is_not_said_to_have_trained_nothing(clean):
    unknown = {"provenance.split_sizes": GONE, "provenance.checksums": GONE}
    changes = {f"runs[{at}].curve.epoch": times(*[0.0] * 6) for at in range(5)}
    assert codes(clean, "training", {**changes, **unknown}) == {"B175"}
