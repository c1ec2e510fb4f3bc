"""LB102: a quality on data that training, stopping or tuning had seen."""

from pathlib import Path

from tests.claims.clean import changes, clean_claim, other_findings
from tests.claims.run_store import specification, write_runs

from levelbench.claims.rules.lb102_no_held_out_quality import rule
from levelbench.records import Target

Q = "sides[0].quality"
VALIDATION = {f"{Q}.split": "validation"}
NO_QUALITY = {f"{Q}.value": None, **{f"sides[0].runs[{at}].quality": None for at in range(5)}}

GUILTY = {
    "a target on the training data": ({**NO_QUALITY, f"{Q}.split": "train"}, ("warning", f"{Q}.split")),
    "measured on the training data": ({f"{Q}.split": "train"}, ("error", f"{Q}.split")),
    "called a training loss, without a split": (
        {f"{Q}.split": None, f"{Q}.metric": "train_loss", f"{Q}.direction": "lower"},
        ("error", f"{Q}.split"),
    ),
    "the split that decided when to stop": ({**VALIDATION, "sides[0].time_of": "run"}, ("warning", f"{Q}.split")),
    "the split that decided on the settings": (
        {**VALIDATION, "sides[0].time_of": "epoch", f"{Q}.stopping_split": "train"},
        ("warning", f"{Q}.split"),
    ),
}
INNOCENT = {
    "a time to a target on the split that it stops on": VALIDATION,
    "a validation split that decided nothing": {
        **VALIDATION,
        "sides[0].time_of": "run",
        f"{Q}.stopping_split": "train",
        f"{Q}.tuning_split": "train",
    },
    "a metric whose name only looks like training": {
        f"{Q}.split": "test",
        f"{Q}.metric": "accuracy of strained gauges",
    },
    "a training accuracy by name that says it is of the test split": {f"{Q}.metric": "accuracy after training"},
    "a time to a stated target": NO_QUALITY,
    "an accuracy of a public task, whose split is custom": {f"{Q}.split": None, "sides[0].time_of": "run"},
    "inference without a quality": {**NO_QUALITY, "sides[0].time_of": "call"},
}
UNSTATED = {
    "no split, and no task that settles it": (
        {f"{Q}.split": None, "sides[0].data.name": None, "task": None, "sides[0].time_of": "run"},
        f"{Q}.split",
    ),
    "no split of a loss": (
        {f"{Q}.split": None, f"{Q}.metric": "loss", f"{Q}.direction": "lower", "sides[0].time_of": "run"},
        f"{Q}.split",
    ),
    "a validation split, and nobody says what stopped it": (
        {
            **VALIDATION,
            "sides[0].time_of": "run",
            "comparisons[0].of": "quality",
            f"{Q}.stopping_split": None,
            f"{Q}.tuning_split": None,
        },
        f"{Q}.stopping_split",
    ),
    "the time of a run without a quality": (
        {**NO_QUALITY, f"{Q}.target": None, "comparisons": [], "sides[1].baseline": None},
        f"{Q}.value",
    ),
}


PLANTED = (
    "the quality is that of the training data",
    {"sides[0].quality.split": "train", "sides[1].quality.split": "train"},
)


def planted_in(store: Path) -> str:
    target = Target("top1", 0.9, split="train")
    write_runs(store, spec=specification(target=target), split="train")
    return "digits"


IN_RECORDS = "the target is looked for on the training data", planted_in


def test_the_number_of_looks_at_the_stopping_split_is_given():
    (finding,) = rule.check(changes(clean_claim(), {**VALIDATION, "sides[0].time_of": "run"}))
    assert "decided when to stop and on the settings, looking 12 times in a run" in finding.found


def test_the_fault_alone_is_found_by_no_other_rule():
    both = {f"sides[{at}].quality.split": "train" for at in range(2)}
    assert other_findings(rule, changes(clean_claim(), both)) == []


def test_a_run_of_a_program_that_nobody_calls_a_training_needs_no_quality():
    run = {
        **NO_QUALITY,
        "comparisons": [],
        "sides[1].baseline": None,
        "sides[0].time_of": "run",
        f"{Q}.target": None,
        f"{Q}.metric": None,
    }
    claim = changes(clean_claim(), {**run, "task": None, "sides[0].data.name": None, "title": "The loader takes 1 s"})
    asked = [each.field for each in rule.check(claim)]
    assert f"{Q}.value" not in asked
    assert f"{Q}.value" in [each.field for each in rule.check(changes(claim, {"title": "Trains in 1 s"}))]
