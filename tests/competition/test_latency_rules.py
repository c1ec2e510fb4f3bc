"""Every rule about inference measurements: a fault that only it finds, and a value just inside the rule."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from levelbench.competition.entries import Submission
from levelbench.competition.figures import MOST_SCENARIOS
from levelbench.competition.rulesets import ruleset, task_rules
from levelbench.competition.scoring import refusal

GONE = object()
SERVER = {
    "scenario": "server",
    "target_per_s": 100.0,
    "latency_bound_s": 0.015,
    "cost_usd": GONE,
    "throughput_per_s": 97.0,
}
OFFLINE = {
    "scenario": "offline",
    "queries": 1,
    "cost_usd": GONE,
    "mean_latency_s": GONE,
    "quantiles_s": {},
    "estimate_s": GONE,
}
STREAMS = {"scenario": "multi-stream", "cost_usd": GONE}
FEW = {"duration_s": 12.0, "throughput_per_s": 55.0}
SLOW = {
    **{"queries": 64, "samples": 64, "duration_s": 16.0, "throughput_per_s": 4.0, "cost_usd": GONE},
    **{"mean_latency_s": 0.24, "quantiles_s": {"0.5": 0.23, "0.9": 0.3, "0.99": 0.35}},
}
SPARSE = {"quantiles_s": {}, "mean_latency_s": GONE, "estimate_s": GONE, "cost_usd": GONE, "throughput_per_s": 3.1}
CASES = {
    "scenario": ("B200", {"task": "translation-en-es"}, {"estimate_s": GONE, "quantiles_s": {}, **STREAMS}),
    "queries": (
        "B201",
        {**SPARSE, "queries": 63, "samples": 63},
        {**SPARSE, "queries": 64, "samples": 64},
    ),
    "queries at p99": (
        "B201",
        {**SPARSE, "scenario": "multi-stream", "queries": 661, "samples": 5288, "throughput_per_s": 259.0},
        {**SPARSE, "scenario": "multi-stream", "queries": 662, "samples": 5296, "throughput_per_s": 259.0},
    ),
    "audit": ("B214", {"audits": {"caching": False, "same": True}}, {"audits": {"caching": True}}),
    "no audit": ("B215", {"audits": {}}, {"audits": {"caching": True}}),
    "audit that cannot tell": ("B215", {"audits": {"caching": None}}, {"audits": {"caching": True}}),
    "samples": ("B201", {**OFFLINE, "samples": 661, "throughput_per_s": 32.0}, {**OFFLINE, "samples": 2000}),
    "estimate below its quantile": ("B213", {"estimate_s": 0.0109}, {"estimate_s": 0.011}),
    "estimate below a quantile that its place among few queries is not below": (
        "B213",
        {**SLOW, "estimate_s": 0.31},
        {**SLOW, "estimate_s": 0.35},
    ),
    "estimate without its quantile": ("B213", {"quantiles_s": {"0.99": 0.013}}, {"quantiles_s": {"0.90": 0.011}}),
    "mean too small for the time": (
        "B207",
        {"mean_latency_s": 0.0001, "cost_usd": GONE, "quantiles_s": {"0.9": 0.0002}},
        {"mean_latency_s": 0.0052, "cost_usd": GONE, "quantiles_s": {"0.9": 0.006}},
    ),
    "throughput too small": ("B208", {"throughput_per_s": 48.0}, {"throughput_per_s": 50.0}),
    "duration": (
        "B201",
        {"queries": 900, "samples": 900, "duration_s": 9.9},
        {"queries": 900, "samples": 900, "duration_s": 10.0, "throughput_per_s": 90.0},
    ),
    "quantiles fall": ("B202", {"quantiles_s": {"0.5": 0.01, "0.9": 0.009}}, {"quantiles_s": {"0.9": 0.01}}),
    "quantile twice": (
        "B202",
        {"quantiles_s": {"0.5": 0.01, "0.50": 0.01}},
        {"quantiles_s": {"0.5": 0.01, "0.51": 0.01}, "estimate_s": GONE},
    ),
    "no quantile": ("B202", {"quantiles_s": {"p99": 0.011}}, {"quantiles_s": {"0.99": 0.011}, "estimate_s": GONE}),
    "percent quantile": ("B202", {"quantiles_s": {"99": 0.011}}, {"quantiles_s": {"1": 0.011}, "estimate_s": GONE}),
    "quality of few": ("B204", {"quality_samples": 358}, {"quality_samples": 359}),
    "far below the mean": (
        "B203",
        {"quantiles_s": {"0.9": 0.001}, "estimate_s": 0.001},
        {"quantiles_s": {"0.9": 0.00102}, "estimate_s": 0.00102},
    ),
    "far below the mean of the whole time": (
        "B203",
        {"quantiles_s": {"0.9": 0.001}, "estimate_s": 0.001, "mean_latency_s": 0.0103, "cost_usd": GONE},
        {"quantiles_s": {"0.9": 0.0011}, "estimate_s": 0.0011, "mean_latency_s": 0.0103, "cost_usd": GONE},
    ),
    "longer than the whole": (
        "B207",
        {"quantiles_s": {"0.9": 0.011, "1": 22}},
        {"quantiles_s": {"0.9": 0.011, "1": 21}},
    ),
    "mean below": (
        "B203",
        {"mean_latency_s": 0.004, "cost_usd": GONE, "duration_s": 15.0},
        {"mean_latency_s": 0.006, "cost_usd": GONE},
    ),
    "mean above": (
        "B203",
        {"quantiles_s": {"1": 0.009}, "estimate_s": GONE},
        {"quantiles_s": {"1": 0.0101}, "estimate_s": GONE},
    ),
    "no quality": ("B204", {"quality": GONE}, {"quality_samples": GONE}),
    "quality": ("B204", {"quality": 0.9503}, {"quality": 0.9504}),
    "percent": ("B204", {"quality": 95.8}, {"quality": 1.0}),
    "latency": ("B205", {"mean_latency_s": 0.0, "cost_usd": GONE}, {"cost_usd": GONE}),
    "latency that nothing shows": ("B207", {"mean_latency_s": GONE}, {"cost_usd": GONE}),
    "estimate": ("B205", {"estimate_s": -1.0}, {"estimate_s": 0.0112}),
    "estimate left out": ("B213", {"estimate_s": GONE, "estimate_quantile": GONE}, {"estimate_quantile": GONE}),
    "estimate of another quantile": ("B213", {"estimate_quantile": 0.5}, {"estimate_quantile": 0.9}),
    "cost of no machine": ("B166", {"price": GONE, "cost_usd": 1e-9}, {"cost_usd": GONE}),
    "cost without a price": ("B161", {"price": GONE, "cost_usd": 1e-7}, {"cost_usd": GONE}),
    "cost": ("B206", {"cost_usd": 2.9e-7}, {"cost_usd": 2.7e-7}),
    "no time": ("B207", {"queries": 2200, "samples": 2200}, {"queries": 2100, "samples": 2100}),
    "throughput": ("B208", {"throughput_per_s": 110.0}, {"throughput_per_s": 105.0}),
    "bound": ("B209", {**SERVER, "latency_bound_s": 0.012}, {**SERVER, "latency_bound_s": 0.013}),
    "no bound": ("B209", {**SERVER, "latency_bound_s": GONE}, SERVER),
    "no rate": ("B209", {**SERVER, "target_per_s": GONE}, SERVER),
    "invalid": ("B210", {"valid": False}, {"valid": GONE}),
    "nothing measured": (
        "B212",
        {"mean_latency_s": GONE, "quantiles_s": {}, "throughput_per_s": GONE, "cost_usd": GONE, "estimate_s": GONE},
        {"mean_latency_s": GONE, "quantiles_s": {}, "cost_usd": GONE, "estimate_s": GONE},
    ),
    "behind the rate": ("B216", {**SERVER, "target_per_s": 120.0}, {**SERVER, "target_per_s": 110.0}),
    "nobody says that it was within the bound": (
        "B216",
        {**SERVER, "quantiles_s": {}, "estimate_s": GONE, "valid": GONE},
        SERVER,
    ),
    "bound that nothing shows": ("B209", {**SERVER, "quantiles_s": {}, "estimate_s": GONE}, SERVER),
    "batch without a rate": (
        "B216",
        {**OFFLINE, "mean_latency_s": 20.4, "throughput_per_s": GONE},
        {**OFFLINE, "mean_latency_s": 20.4},
    ),
    "latency of nothing": (
        "B205",
        {"mean_latency_s": 1e-300, "cost_usd": GONE},
        {"cost_usd": GONE},
    ),
    "endless bound": ("B205", {**SERVER, "latency_bound_s": 1e300}, {**SERVER, "latency_bound_s": 3600.0}),
    "rate of everything": ("B205", {"throughput_per_s": 1e300}, {"throughput_per_s": 98.0}),
    "cost of nothing": ("B206", {"cost_usd": 0.0}, {"cost_usd": GONE}),
    "ceiling": ("B190", {"flops": 1e9}, {"flops": 4e8}),
    "no measurement": ("B113", {"inference": []}, {}),
    "text": ("B220", {"includes": ["pre\u202eprocessing"]}, {"includes": ["preprocessing", "transfer"]}),
}
WHOLE = {"task": "task", "price": "price", "inference": "inference", "flops": "settings.flops_per_sample"}


def entry(clean, changes) -> Submission:
    paths = {WHOLE.get(name, f"inference[0].{name}"): value for name, value in changes.items()}
    if changes.get("task") == "translation-en-es":
        target = {"metric": "bleu", "threshold": 8.0, "direction": "higher", "low": 0.0, "high": 100.0}
        paths["target"] = {**target, "split": "validation"}
    return clean.make("inference", {name: clean.remove if value is GONE else value for name, value in paths.items()})


@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_found_by_its_rule_alone(clean, name):
    code, guilty, _ = CASES[name]
    assert clean.codes(entry(clean, guilty)) == {code}


def test_an_audit_that_failed_keeps_an_entry_off_and_one_that_was_not_made_does_not(clean):
    severities = {
        passed: {each.severity for each in clean.find(entry(clean, {"audits": {"caching": passed}}))}
        for passed in (False, None, True)
    }
    assert severities == {False: {"error"}, None: {"note"}, True: set()}


def test_too_little_says_with_which_option_it_is_enough(clean):
    found = clean.find(entry(clean, {"duration_s": 9.9, "queries": 980, "samples": 980, "throughput_per_s": 99.0}))
    assert [each.do for each in found] == ["measure for longer: levelbench infer ... --duration 10s"]
    found = clean.find(entry(clean, {**SPARSE, "queries": 63, "samples": 63}))
    assert [each.do for each in found] == ["measure more: levelbench infer ... --queries 64"]


@pytest.mark.parametrize("name", CASES)
def test_a_value_just_inside_the_rules_has_no_finding(clean, name):
    assert clean.codes(entry(clean, CASES[name][2])) == set()


DAWNBENCH = {
    "ruleset": "dawnbench-1.0",
    "task": "cifar10",
    "target.threshold": 0.94,
    "target.split": "test",
    "inference[0].scenario": "dawnbench",
    "inference[0].queries": 10000,
    "inference[0].samples": 10000,
    "inference[0].duration_s": 102.0,
    "inference[0].quality_samples": 10000,
}


def test_dawnbench_asks_for_every_image_one_at_a_time(clean):
    assert clean.codes(clean.make("inference", DAWNBENCH)) == set()
    fewer = {"inference[0].queries": 9999, "inference[0].samples": 9999}
    assert clean.codes(clean.make("inference", DAWNBENCH | fewer)) == {"B201"}
    assert clean.codes(clean.make("inference", DAWNBENCH | {"inference[0].batch": 2})) == {"B211"}


@pytest.mark.parametrize("task", [each for each in ruleset("levelbench-1.0").tasks if each.inference])
def test_our_own_rules_ask_a_dawnbench_measurement_for_every_sample_as_well(clean, task):
    assert task.samples is not None
    one = {
        "inference[0].scenario": "dawnbench",
        "inference[0].queries": 1,
        "inference[0].samples": 1,
        "task": task.task,
    }
    found = {(each.code, each.found) for each in clean.find(clean.make("inference", one))}
    assert ("B201", f"1 queries; at least {task.samples}") in found


def test_the_cost_of_one_image_is_the_price_for_its_time(clean):
    # One K80 at 0.90 dollars an hour, 28.688 ms an image: 7.172e-6 dollars, as published.
    published = {
        "price.usd_per_hour": 0.90,
        "inference[0].mean_latency_s": 0.028688,
        "inference[0].quantiles_s": {},
        "inference[0].estimate_s": clean.remove,
        "inference[0].throughput_per_s": clean.remove,
        "inference[0].duration_s": 286.88,
        "inference[0].cost_usd": 7.172e-6,
    }
    assert clean.codes(clean.make("inference", DAWNBENCH | published)) == set()
    (found,) = clean.find(clean.make("inference", DAWNBENCH | published | {"inference[0].cost_usd": 7.172e-3}))
    assert found.found == "0.007172; 0.9 per hour for 0.028688 s is 7.172e-06"


def test_measurements_of_more_scenarios_than_an_entry_is_ranked_in_are_reported(clean):
    def found(count):
        first = entry(clean, SERVER)
        measured = [
            replace(
                first.inference[0], latency_bound_s=0.02 + at / 1000, duration_s=20.4 + at / 1000, record_digest=None
            )
            for at in range(count)
        ]
        told = clean.find(replace(first, inference=measured))
        return [(each.field, each.found) for each in told if each.code == "B216"]

    assert found(MOST_SCENARIOS) == []
    said = f"2 have scenarios, bounds or query sizes beyond the first {MOST_SCENARIOS}; they are not ranked"
    assert found(MOST_SCENARIOS + 2) == [("inference", said)]


def test_a_rate_that_ranking_refuses_is_reported_with_the_reason_that_ranking_gives(clean):
    (found,) = clean.find(entry(clean, {**SERVER, "target_per_s": 120.0}))
    assert (found.severity, found.found) == ("warning", "97 answers a second, target 120; it is not ranked")
    rules = task_rules(ruleset("levelbench-1.0"), "digits")
    measured = entry(clean, {**SERVER, "target_per_s": 120.0}).inference[0]
    assert refusal(measured, rules.inference, rules.target) == "97 answers a second, target 120"
