"""Scores of inference: published figures, and measurements that do not count."""

import msgspec
import pytest
from tests.competition.scored import DAWNBENCH, OURS, a_run, submission

from levelbench.competition.entries import Inference, SystemPrice
from levelbench.competition.rulesets import InferenceRules
from levelbench.competition.scoring import score


def measured(**parts):
    return Inference("dawnbench", 100, 100, 3.0, quality=0.95, **parts)


def test_latency_and_cost_of_inference_published_by_dawnbench_are_reproduced():
    entry = submission(mode="inference", inference=[measured(mean_latency_s=0.028688)], price=SystemPrice(0.90))
    found = score(entry, DAWNBENCH)
    assert found.latency.value == 0.028688
    assert found.inference_cost.value == pytest.approx(7.172)


def test_a_stated_cost_stands_in_for_a_price_and_says_so():
    found = score(submission(mode="inference", inference=[measured(mean_latency_s=1.0, cost_usd=2e-6)]), DAWNBENCH)
    assert found.inference_cost.value == pytest.approx(2.0)
    assert "cost-stated" in found.flags


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"quality": 0.9}, "a quality of 0.9, where the rules require 0.94"),
        ({"quality": None}, "the quality of the same answers is not stated"),
        ({"valid": False}, "not valid by the scenario's own rules"),
    ],
)
def test_a_measurement_that_does_not_count_says_why(parts, reason):
    found = measured(mean_latency_s=1.0)
    entry = submission(mode="inference", inference=[msgspec.structs.replace(found, **parts)])
    assert score(entry, DAWNBENCH).latency.how == reason


def test_a_scenario_that_the_rules_do_not_name_is_not_ranked():
    stream = Inference("single-stream", 100, 100, 3.0, quality=0.95, mean_latency_s=1.0)
    found = score(submission(mode="inference", inference=[stream]), DAWNBENCH)
    assert found.latency.how == "the rules compare dawnbench; this entry measured single-stream"
    assert (found.scenario, "other-scenario" in found.flags) == (None, True)


def single_stream_rules():
    tasks = [msgspec.structs.replace(each, inference=InferenceRules(["single-stream"])) for each in OURS.tasks]
    return msgspec.structs.replace(OURS, tasks=tasks)


def test_the_early_stopping_estimate_is_the_latency_and_the_quantile_stands_in_for_it():
    stream = Inference("single-stream", 9, 9, 9.0, mean_latency_s=1.0, quantiles_s={"0.9": 2.0})
    plain = score(submission(mode="inference", inference=[stream]), single_stream_rules())
    assert (plain.latency.value, "no-estimate" in plain.flags) == (2.0, True)
    estimated = msgspec.structs.replace(stream, estimate_s=3.0, estimate_quantile=0.9)
    found = score(submission(mode="inference", inference=[estimated]), single_stream_rules())
    assert (found.latency.value, "no-estimate" in found.flags) == (3.0, False)
    assert found.latency.how.startswith("single-stream: 90th percentile")


@pytest.mark.parametrize("parts", [{}, {"estimate_s": 1.0, "estimate_quantile": 0.5}])
def test_a_quantile_does_not_stand_in_for_an_estimate_that_a_measurement_leaves_out(parts):
    whole = Inference("single-stream", 64, 64, 64.0, quantiles_s={"0.5": 1.0, "0.9": 2.0}, estimate_s=3.0)
    lacking = msgspec.structs.replace(whole, **{"estimate_s": None, **parts})
    found = score(submission(mode="inference", inference=[whole, lacking]), single_stream_rules())
    flags = {"no-estimate", "estimate-left-out"} & {*found.flags}
    assert (found.latency.value, flags) == (None, {"estimate-left-out"})


@pytest.mark.parametrize(("usd", "is_possible"), [(1e-300, False), (1e-6, True), (1e7, True), (1e300, False)])
def test_an_impossible_price_gives_no_figure_of_training_or_of_inference(usd, is_possible):
    answers = submission(mode="inference", inference=[measured(mean_latency_s=1.0)], price=SystemPrice(usd))
    trained = submission([a_run(10.0)], price=SystemPrice(usd))
    figures = [score(answers, DAWNBENCH).inference_cost, score(trained, DAWNBENCH).cost]
    assert [figure.value is not None for figure in figures] == [is_possible] * 2
    assert is_possible or {figure.how for figure in figures} == {"impossible price"}


@pytest.mark.parametrize("latency_s", [1e-300, 1e300])
def test_an_impossible_latency_is_not_a_figure(latency_s):
    found = score(submission(mode="inference", inference=[measured(mean_latency_s=latency_s)]), DAWNBENCH)
    assert (found.latency.value, found.latency.how) == (None, "no latency is stated")
