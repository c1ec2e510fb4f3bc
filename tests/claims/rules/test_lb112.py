"""LB112: one of speed and quality alone, a better entry left out, unlike things compared."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.claims.clean import changes, clean_claim, found, other_findings
from tests.claims.run_store import specification, write_runs

from levelbench.claims.rules.lb112_chosen_comparison import rule

OF, QUALITY, SPEED = (f"comparisons[0].{name}" for name in ("of", "quality_compared", "performance_compared"))
WORSE = {"sides[0].quality.value": 0.925, "sides[0].quality.low": 0.924, "sides[0].quality.high": 0.926}
FAR = {f"sides[{at}].quality.{name}": None for at in (0, 1) for name in ("low", "high")}
FAR["sides[0].quality.value"] = 0.86
RATE = {OF: "throughput", QUALITY: None}
ACCURACY = {OF: "quality", SPEED: None}
UNTIMED = {"sides[0].time_s": None, "sides[0].cost_usd": None}
FASTER = {"standards[0].time_s": 20.0}
COSTS = {"standards[0].cost_usd": 0.05}
BOTH = {"new": "new", "base": "base", "quality_compared": False}

GUILTY = {
    "the rate is compared and the quality is worse": ({**RATE, **WORSE}, ("warning", QUALITY)),
    "the rate is compared and the quality, which is worse, is said not to be": (
        {OF: "throughput", QUALITY: False, **WORSE},
        ("error", QUALITY),
    ),
    "the rate is compared and nobody knows a quality": (
        {OF: "step", QUALITY: False, "sides[1].quality.value": None},
        ("error", QUALITY),
    ),
    "the rate is compared and the quality is far worse, without an interval": (
        {**RATE, **FAR, "title": "The pruned network is 3.2 times faster"},
        ("warning", QUALITY),
    ),
    "the quality is compared and the cost is higher": ({**ACCURACY, "sides[0].cost_usd": 3.0}, ("warning", SPEED)),
    "the quality is compared and nobody knows a cost": ({OF: "quality", SPEED: False, **UNTIMED}, ("error", SPEED)),
    "the target is easier": ({"sides[0].quality.target": 0.93}, ("error", "sides[0].quality.target")),
    "the metrics differ": ({"sides[0].quality.metric": "top-5 accuracy"}, ("error", "sides[0].quality.metric")),
    "the splits differ": ({"sides[0].quality.split": "validation"}, ("error", "sides[0].quality.split")),
    "the data differ": ({"sides[0].data.name": "CIFAR-100"}, ("error", "sides[0].data.name")),
    "the clocks differ": ({"sides[0].clock.policy": "dawnbench"}, ("warning", "sides[0].clock.policy")),
    "the new side's clock leaves something out": (
        {"sides[0].clock.compilation": False},
        ("warning", "sides[0].clock.compilation"),
    ),
    "the new side counts the first crossing": (
        {"sides[0].clock.crossing": "first"},
        ("warning", "sides[0].clock.crossing"),
    ),
    "a known entry is faster and cheaper": ({**FASTER, **COSTS}, ("error", "sides[0].time_s")),
    "a known entry is faster, at an unknown cost": (
        {**FASTER, "standards[0].cost_usd": None},
        ("warning", "sides[0].time_s"),
    ),
}
INNOCENT = {
    "a quality that is far worse, of which the title speaks": {
        **RATE,
        **FAR,
        "title": "3.2 times faster, 8 points less accurate",
    },
    "the rate is compared and the quality is as good": RATE,
    "a worse quality that is compared too": {OF: "throughput", **WORSE},
    "the quality is compared and the cost is lower": ACCURACY,
    "the quality is compared and the title gives both costs": {
        **ACCURACY,
        "sides[0].cost_usd": 61.0,
        "sides[1].cost_usd": 18.0,
        "title": "448 x 448: 78.9 % for $61; 224 x 224: 76.3 % for 18 USD",
    },
    "the quality is compared here and the speed there": {
        "comparisons[0]": {**BOTH, "of": "quality"},
        "comparisons[1]": {**BOTH, "of": "latency"},
    },
    "the time of a kernel has no quality": {OF: "kernel", QUALITY: False, **WORSE},
    "the target is harder": {"sides[0].quality.target": 0.941},
    "one metric in two spellings": {"sides[0].quality.metric": "Top 1 Accuracy"},
    "a metric that one side does not name": {"sides[1].quality.metric": None},
    "the baseline's clock leaves something out": {"sides[1].clock.compilation": False},
    "the baseline counts the first crossing": {"sides[1].clock.crossing": "first"},
    "a faster entry that is dearer": FASTER,
    "a faster entry that misses the target": {**FASTER, **COSTS, "standards[0].quality": 0.935},
    "a faster entry that came later": {**FASTER, **COSTS, "standards[0].year": 2027},
    "a faster entry that is the one compared with": {**FASTER, **COSTS, "standards[0].name": "base"},
    "no comparison is made": {**FASTER, **COSTS, "comparisons": [], "sides[1].baseline": None},
}


PLANTED = "the new side has the easier target", {"sides[0].quality.target": 0.93}


def planted_in(store: Path) -> str:
    write_runs(store)
    write_runs(store, start=20, spec=specification(framework="torch"), data="digits without the hard ones")
    return "digits"


IN_RECORDS = "the two groups trained on other data", planted_in


UNKNOWN = {"sides[0].quality.value": None, "sides[0].quality.target": None}


def test_exact_code_that_is_faster_is_not_asked_for_its_quality():
    assert found(rule, changes(clean_claim(), {**RATE, "sides[0].quality.value": None})) == []


@pytest.mark.parametrize(
    ("unknown", "field"),
    [
        ({**RATE, "sides[0].quality.value": None, "title": "8 bits are faster"}, QUALITY),
        ({**ACCURACY, **UNTIMED}, SPEED),
        ({f"sides[{at}].quality.target": None for at in (0, 1)}, "sides[0].quality.target"),
        ({"comparisons": [], **UNKNOWN}, "sides[0].quality.value"),
    ],
    ids=["the quality", "the time", "the target", "the quality beside a side that is called the baseline"],
)
def test_what_would_decide_is_asked_for(unknown, field):
    assert found(rule, changes(clean_claim(), unknown)) == [("not-stated", field)]


def test_the_finding_names_the_entry_that_was_left_out():
    (finding,) = rule.check(changes(clean_claim(), {**FASTER, **COSTS}))
    assert "not with 'last year's entry' (2025): 20 s, quality 0.9405, 0.05 USD against 0.137" in finding.found


def test_the_fault_alone_is_found_by_no_other_rule():
    assert other_findings(rule, changes(clean_claim(), {**FASTER, **COSTS})) == []


def test_a_batch_of_answers_is_asked_for_no_quality():
    unsaid = {f"sides[{at}].quality.{name}": None for at in (0, 1) for name in ("value", "low", "high")}
    unsaid |= {**RATE, "sides[0].workload.global_batch": 512, "sides[1].workload.global_batch": 64}
    assert ("not-stated", QUALITY) in found(rule, changes(clean_claim(), {**unsaid, "title": "1.7 times the rate"}))
    serving = {**unsaid, "title": "1.7 times the rate of prompt processing"}
    assert ("not-stated", QUALITY) not in found(rule, changes(clean_claim(), serving))


ALONE = {**FASTER, "comparisons": [], "scaling": []}


@pytest.mark.parametrize(
    ("title", "severities"),
    [
        ("The fastest training of CIFAR-10", ["warning"]),
        ("A new record for CIFAR-10", ["warning"]),
        ("We set a new speed record for CIFAR-10", ["warning"]),
        ("State of the art in training speed on CIFAR-10", ["warning"]),
        ("State-of-the-art accuracy in 30 s", []),
        ("Not the fastest: 94 % of CIFAR-10 in 30 s", []),
        ("We do not claim the fastest training", []),
        ("Not only the fastest, but also the cheapest", ["warning"]),
        ("94 % in 30 s, third after the fastest", []),
        ("The fastest training on one GPU", ["warning"]),
        ("The fastest of ten runs took 28 s", []),
        ("World record: CIFAR-10 in 30 s", ["warning"]),
        ("We train faster than anyone else", ["warning"]),
        ("Our training is the fastest", ["warning"]),
        ("Our fastest recipe: 94 % in 30 s", []),
        ("Twice the time of the fastest, half the speed of the world record", []),
        ("A recipe without state-of-the-art speed", []),
        ("How the fastest train, and our 30 s", []),
        ("94 % in 30 s", []),
        ("94 % in 30 s; the world record is 20 s", []),
        ("The fastest training in Europe; 20 s are the record", []),
        ("The fastest training but for that of 'best entry'", []),
    ],
)
def test_a_side_that_is_called_the_fastest_is_compared_with_the_known_entries(title, severities):
    claim = changes(clean_claim(), {**ALONE, "title": title, "standards[0].name": "best entry"})
    alone = replace(claim, sides=claim.sides[:1])
    assert [severity for severity, _ in found(rule, alone)] == severities


def test_the_fastest_on_one_gpu_is_not_compared_with_an_entry_on_more():
    one = {"title": "The fastest training on one GPU", "sides[0].hardware.accelerators": 1}
    claim = changes(clean_claim(), {**ALONE, **one, "standards[0].name": "64 x NVIDIA V100"})
    assert found(rule, replace(claim, sides=claim.sides[:1])) == []


def test_the_quality_of_a_faster_entry_is_asked_for_beside_the_fastest():
    claim = changes(clean_claim(), {**ALONE, "title": "The fastest training of CIFAR-10", "standards[0].quality": None})
    assert found(rule, replace(claim, sides=claim.sides[:1])) == [("not-stated", "standards[0].quality")]
