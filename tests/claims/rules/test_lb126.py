"""LB126: samples that were made up."""

from pathlib import Path

import pytest
from tests.claims.clean import changes, clean_claim, found, other_findings
from tests.claims.run_store import write_runs

from levelbench.claims.rules.lb126_synthetic_data import rule

DATA = "sides[0].data"
SYNTHETIC = {f"{DATA}.synthetic": True}
STEP = {"sides[0].time_of": "step", "sides[0].quality.value": None, "comparisons[0].of": "step"}
RATE = {
    **{f"sides[0].{name}": None for name in ("time_s", "time_of", "quality.value", "quality.target")},
    "sides[0].throughput": 2900.0,
    "comparisons": [],
    "sides[1].baseline": None,
    "title": "2,900 images/s in training",
}

GUILTY = {
    "the rate of a training": (
        {**RATE, **SYNTHETIC, "sides[1].data.synthetic": None},
        ("warning", f"{DATA}.synthetic"),
    ),
    "a time to a target": (SYNTHETIC, ("error", f"{DATA}.synthetic")),
    "a rate beside that of another program with real data": (
        {**RATE, **SYNTHETIC},
        ("warning", f"{DATA}.synthetic"),
    ),
    "the time of a step": ({**SYNTHETIC, **STEP}, ("warning", f"{DATA}.synthetic")),
    "the time of a step, made a time to the target by a comparison": (
        {**SYNTHETIC, **STEP, "comparisons[0].of": "target"},
        ("error", f"{DATA}.synthetic"),
    ),
    "inference whose quality is claimed": (
        {**SYNTHETIC, "sides[0].time_of": "call"},
        ("error", f"{DATA}.synthetic"),
    ),
    "only its name says so": (
        {f"{DATA}.synthetic": None, f"{DATA}.name": "ImageNet (synthetic)"},
        ("warning", f"{DATA}.name"),
    ),
}
INNOCENT = {
    "the latency of a call, without a quality": {
        **SYNTHETIC,
        "sides[0].time_of": "call",
        "sides[0].quality.value": None,
    },
    "data of the task whose name sounds made up": {f"{DATA}.name": "random digits in nature"},
    "real data": {},
    "the upper bound next to the rate with real data": {
        **RATE,
        **SYNTHETIC,
        "title": "2,610 images/s in training, 2,900 with a fixed batch",
    },
    "the rate of what is called computation alone": {
        **RATE,
        **SYNTHETIC,
        "title": "Training at 2,900 images/s, computation alone",
    },
    "the rate of prompts that were made up": {
        **RATE,
        **SYNTHETIC,
        "title": "2,900 tokens/s",
        "sides[1].data.synthetic": None,
    },
}


PLANTED = "the data was made up", {"sides[0].data.synthetic": True}


def planted_in(store: Path) -> str:
    write_runs(store, synthetic=True)
    return "digits"


IN_RECORDS = "the data is marked synthetic", planted_in


@pytest.mark.parametrize("name", ["ImageNet", "photosynthetic leaves", "Randomised trials"])
def test_a_name_alone_that_does_not_say_it_is_not_guilt(name):
    assert found(rule, changes(clean_claim(), {f"{DATA}.synthetic": None, f"{DATA}.name": name})) == []


UNNAMED = {f"{DATA}.synthetic": None, f"{DATA}.name": None, "comparisons": [], "sides[1].baseline": None}


def test_a_step_on_data_without_a_name_is_asked_whether_it_was_the_tasks():
    step = {**UNNAMED, **{f"sides[0].quality.{name}": None for name in ("value", "target")}, "sides[0].time_of": "step"}
    assert found(rule, changes(clean_claim(), step)) == [("not-stated", f"{DATA}.synthetic")]


def test_what_has_learnt_is_not_asked_for_real_data():
    assert found(rule, changes(clean_claim(), UNNAMED)) == []


def test_the_fault_alone_is_found_by_no_other_rule():
    both = {f"sides[{at}].data.synthetic": True for at in range(2)}
    assert other_findings(rule, changes(clean_claim(), both)) == []
