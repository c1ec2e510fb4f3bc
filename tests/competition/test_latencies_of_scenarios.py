"""The scenarios in which inference entries are ranked, and the figures that rank them."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.competition.scored import OURS, submission

from levelbench.competition.entries import Inference, SystemPrice
from levelbench.competition.figures import MOST_SCENARIOS, RankedScenario, by_scenario, is_apart, scenario_of
from levelbench.competition.rulesets import InferenceRules, task_rules
from levelbench.competition.scoring import score

RULES = InferenceRules(["single-stream", "multi-stream", "server", "offline", "dawnbench"])


def measured(scenario, **parts):
    """A measurement that keeps our rules: a hundred answers a second for 20 s."""
    fields = {"queries": 2000, "samples": 2000, "duration_s": 20.0, "throughput_per_s": 100.0, "quality": 0.999}
    return Inference(scenario, **{**fields, "valid": True, **parts})


def server(**parts):
    return measured("server", **{"target_per_s": 101.0, "latency_bound_s": 0.015, **parts})


def scored(*inference, **parts):
    entry = submission(mode="inference", inference=list(inference), **parts)
    return score(msgspec.structs.replace(entry, task="digits", target=task_rules(OURS, "digits").target), OURS)


@pytest.mark.parametrize(
    ("found", "ranked", "slug"),
    [
        (measured("single-stream"), RankedScenario("single-stream"), "single-stream"),
        (measured("multi-stream", samples=16_000), RankedScenario("multi-stream", samples=8), "multi-stream-8"),
        (server(), RankedScenario("server", 0.015), "server-15ms"),
        (server(latency_bound_s=0.0150000001), RankedScenario("server", 0.015), "server-15ms"),
        (server(latency_bound_s=0.0125), RankedScenario("server", 0.0125), "server-12.5ms"),
        (server(latency_bound_s=2.0), RankedScenario("server", 2.0), "server-2000ms"),
        (server(latency_bound_s=1e-9), RankedScenario("server", 1e-9), "server-1ns"),
        (server(latency_bound_s=1e300), RankedScenario("server", 1e300), "server-1e300s"),
        (measured("offline", batch=32), RankedScenario("offline"), "offline"),
    ],
)
def test_a_bound_and_the_samples_in_a_query_belong_to_what_is_compared(found, ranked, slug):
    assert scenario_of(found, RULES) == ranked
    assert ranked.slug == slug


def test_the_bound_of_the_rules_holds_where_they_have_one():
    rules = InferenceRules(["server", "offline"], latency_bound_s=0.1)
    assert scenario_of(server(), rules) == RankedScenario("server", 0.1)
    assert [is_apart(scenario_of(each, rules), rules) for each in (server(), measured("offline"))] == [False, True]


def test_an_entry_is_ranked_in_each_scenario_that_it_measured_by_that_ones_measurements_alone():
    several = [measured("offline"), server(latency_bound_s=0.1), server(target_per_s=99.0), server()]
    within = [RankedScenario("server", bound_s) for bound_s in (0.1, 0.015)]
    assert by_scenario(several, RULES) == {
        within[0]: [several[1]],
        within[1]: several[2:],
        RankedScenario("offline"): [several[0]],
    }
    found = scored(*several).in_scenarios()
    assert [(each.scenario, each.n, each.throughput.value) for each in found] == [
        (within[0], 1, 101.0),
        (within[1], 2, 100.0),
        (RankedScenario("offline"), 1, 100.0),
    ]
    assert [("single-run" in each.flags, "further-scenarios" in each.flags) for each in found] == [
        (True, False),
        (False, False),
        (True, False),
    ]


def test_each_scenario_is_checked_separately():
    first, second = scored(measured("single-stream", quality=0.9, quantiles_s={"0.9": 0.01}), server()).in_scenarios()
    assert (first.latency.value, first.reached, "quality-too-low" in first.flags) == (None, 0, True)
    assert (second.throughput.value, second.reached, "quality-too-low" in second.flags) == (101.0, 1, False)


def test_at_another_threshold_each_scenario_keeps_or_misses_it():
    task = task_rules(OURS, "digits")
    entry = submission(mode="inference", inference=[measured("offline", quality=0.97), server(quality=0.99)])
    entry = msgspec.structs.replace(entry, task="digits", target=task.target)
    found = score(entry, OURS, threshold=0.98).in_scenarios()
    assert [(each.scenario.name, each.reached) for each in found] == [("server", 1), ("offline", 0)]


def test_a_scenario_that_the_rules_do_not_name_is_shown_with_the_ranked_ones():
    rules = InferenceRules(["server"])
    assert list(by_scenario([measured("offline"), server()], rules)) == [RankedScenario("server", 0.015)]
    tasks = [msgspec.structs.replace(each, inference=rules) for each in OURS.tasks]
    entry = submission(mode="inference", inference=[measured("offline"), server()])
    (found,) = score(entry, msgspec.structs.replace(OURS, tasks=tasks)).in_scenarios()
    assert "further-scenarios" in found.flags


def test_an_entry_is_ranked_in_so_many_scenarios_at_most():
    many = [server(latency_bound_s=0.001 * (at + 1)) for at in range(MOST_SCENARIOS + 1)]
    found = scored(*many).in_scenarios()
    assert [each.scenario.bound_s for each in found] == pytest.approx([each.latency_bound_s for each in many[:-1]])
    assert all("further-scenarios" in each.flags for each in found)


@pytest.mark.parametrize(
    ("measurement", "value", "how"),
    [
        (measured("offline", queries=1), 100.0, "offline: samples a second, one measurement"),
        (server(), 101.0, "server within 15 ms: queries a second, one measurement"),
        (
            measured("multi-stream", samples=16_000, quantiles_s={"0.99": 0.02}, estimate_s=0.02),
            0.02,
            "multi-stream, 8 samples a query: 99th percentile, one measurement",
        ),
        (measured("dawnbench", queries=359, duration_s=3.6, mean_latency_s=0.01), 0.01, "dawnbench: mean, one"),
    ],
)
def test_each_scenario_has_its_own_figure(measurement, value, how):
    found = scored(measurement)
    figure = found.figure(found.scenario.column)
    assert figure.value == value
    assert figure.how.startswith(how)
    other = found.latency if found.scenario.column == "throughput" else found.throughput
    assert other.value is None


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"quantiles_s": {"0.99": 0.016}}, "99 % within 0.016 s, where the bound is 0.015 s"),
        ({"valid": None}, "it is not stated that 99 % were within 0.015 s"),
        ({"target_per_s": None}, "the rate is not stated"),
        ({"latency_bound_s": None}, "the latency bound is not stated"),
        ({"target_per_s": 120.0}, "100 answers a second, target 120"),
        ({"target_per_s": 120.0, "throughput_per_s": None}, "100 answers a second, target 120"),
    ],
)
def test_a_server_that_did_not_keep_its_rate_within_the_bound_has_no_figure(parts, reason):
    assert scored(server(**parts)).throughput.how == reason


def test_a_measured_quantile_is_proof_enough_of_the_bound():
    assert scored(server(valid=None, quantiles_s={"0.99": 0.015})).throughput.value == 101.0


def test_a_rate_that_several_processes_were_asked_and_kept_has_no_interval_of_width_zero():
    same, others = scored(server(), server(), server()), scored(server(), server(target_per_s=103.0))
    assert (same.throughput.low, same.throughput.how) == (
        None,
        "server within 15 ms: queries a second, target rate, kept by each of 3 measurements",
    )
    assert (others.throughput.low, others.throughput.high) == (101.0, 103.0)


def test_samples_count_offline_where_others_count_queries():
    few = scored(measured("offline", queries=1, samples=661))
    assert few.throughput.how == "661 samples, where the rules require 662"


def test_a_million_answers_cost_the_time_that_they_take_at_the_measured_throughput():
    found = scored(server(throughput_per_s=100.0), price=SystemPrice(0.36, "a list", "2026-01-01", True))
    assert found.inference_cost.value == pytest.approx(1.0)


@given(st.floats(min_value=0.0, exclude_min=True, allow_infinity=False, allow_nan=False))
def test_whatever_bound_is_stated_its_boards_name_is_plain_and_short(bound_s):
    scenario = scenario_of(server(latency_bound_s=bound_s), RULES)
    assert re.fullmatch(r"server-[a-z0-9.-]{1,20}", scenario.slug)
