"""Summaries of network benchmarks: one value per process, intervals over processes, and the breakdown of time."""

import math

import pytest
from tests.records.network_records import arm, entry, specification, write

from levelbench.records import Measurement
from levelbench.records.network_summary import summarise_networks
from levelbench.records.networks import NetworkCase, NetworkFacts, NetworkOutcome, OperatorSamples


def operator(title, time_s, index=0, flops=None, moved=None, times=3):
    return OperatorSamples(index, title, f"{title}{index}", [time_s] * times, flops, moved)


def peak(value=None, reason=None):
    return Measurement("peak_memory", "B", value, None if value is None else "vmhwm-reset", reason)


def test_a_process_gives_one_value_its_median(tmp_path):
    found = entry(arm(tmp_path, "torch", [1.0, 2.0, 3.0]))
    assert found.times_s == {0: 1.0, 1: 2.0, 2: 3.0}
    assert found.latency[0].estimate.n == 3


def test_a_high_quantile_of_few_values_has_no_estimate(tmp_path):
    p50, p90, p99 = entry(arm(tmp_path, "torch", [1.0, 2.0])).latency
    assert p50.estimate is not None
    assert p90.estimate is None
    assert p99.reason == "not enough samples: 6 in a process, 368 are needed"


def test_a_quantile_over_processes_is_estimated_from_that_of_each(tmp_path):
    spec = specification()
    values = [[seed + at / 1000 for at in range(1, 501)] for seed in range(3)]
    p99 = entry([write(tmp_path, spec, seed, each) for seed, each in enumerate(values)]).latency[2].estimate
    assert p99.n == 3
    assert p99.value == pytest.approx(math.prod(seed + 0.495 for seed in range(3)) ** (1 / 3))


def test_a_single_process_has_the_interval_of_its_own_values(tmp_path):
    p50, _, p99 = entry([write(tmp_path, specification(), 0, [at / 1000 for at in range(1, 501)])]).latency
    assert (p99.estimate.n, p99.estimate.interval.method) == (500, "exact order statistics")
    assert p50.estimate.n == 500


def test_a_single_process_of_few_values_has_a_median_without_an_interval(tmp_path):
    p50 = entry([write(tmp_path, specification(), 0, [1.0, 2.0, 3.0])]).latency[0].estimate
    assert (p50.value, p50.interval) == (2.0, None)


def test_throughput_is_the_batch_divided_by_the_mean_latency(tmp_path):
    spec = specification(batch=8)
    found = entry([write(tmp_path, spec, 0, [1.0, 1.0, 4.0])]).throughput
    assert found.unit == "samples/s"
    assert found.estimate.value == pytest.approx(8 / 2.0)


def test_the_ends_of_the_throughputs_interval_are_in_order(tmp_path):
    found = entry(arm(tmp_path, "torch", [1.0, 1.1, 1.2])).throughput.estimate
    assert found.interval.low < found.value < found.interval.high


def test_compilation_is_the_first_call_minus_a_warm_one_and_cold_start_the_sum_of_the_phases(tmp_path):
    phases = [("open", 1.0), ("build", 0.5), ("prepare", 0.25), ("first", 2.0)]
    found = entry(arm(tmp_path, "torch", [0.5, 0.5], phases=phases)).phases
    assert found["compile"].estimate.value == pytest.approx(1.5)
    assert found["cold_start"].estimate.value == pytest.approx(3.75)
    assert found["open"].estimate.value == pytest.approx(1.0)


def test_a_missing_phase_leaves_no_cold_start(tmp_path):
    found = entry(arm(tmp_path, "torch", [0.5], phases=[("open", 1.0)])).phases
    assert found["cold_start"].estimate is None
    assert found["cold_start"].reason == "a phase is missing"


def test_memory_without_a_meter_keeps_the_reason(tmp_path):
    found = entry(arm(tmp_path, "torch", [1.0], memory=peak(None, "no way to read it"))).memory
    assert (found.estimate, found.reason) == (None, "no way to read it")


def test_memory_is_estimated_over_the_processes(tmp_path):
    spec = specification()
    records = [write(tmp_path, spec, seed, memory=peak(value)) for seed, value in enumerate([90.0, 100.0, 110.0])]
    found = entry(records).memory
    assert found.estimate.interval is not None
    assert found.values == {0: 90.0, 1: 100.0, 2: 110.0}
    assert found.method == "vmhwm-reset"


def test_overhead_is_the_whole_minus_the_sum_of_the_operators_and_may_be_negative(tmp_path):
    parts = [operator("Conv", 0.7), operator("Relu", 0.2, 1)]
    above = entry(arm(tmp_path, "torch", [1.0, 1.0], operators=parts))
    below = entry(arm(tmp_path / "b", "torch", [0.6, 0.6], operators=parts))
    assert above.overhead.estimate.value == pytest.approx(0.1)
    assert above.overhead_share.estimate.value == pytest.approx(0.1)
    assert below.overhead.estimate.value == pytest.approx(-0.3)


def test_without_times_of_operators_there_is_a_reason(tmp_path):
    outcome = NetworkOutcome("measured", operators_reason="the compiler fuses them")
    found = entry(arm(tmp_path, "torch", [1.0], outcome=outcome))
    assert (found.operators, found.types) == ((), ())
    assert found.operators_reason == found.overhead.reason == "the compiler fuses them"


def test_shares_of_operators_add_up_to_one_and_the_slowest_comes_first(tmp_path):
    parts = [operator("Relu", 0.1), operator("Conv", 0.5, 1), operator("Relu", 0.15, 2)]
    found = entry(arm(tmp_path, "torch", [1.0, 1.0], operators=parts))
    assert [row.output for row in found.operators] == ["Conv1", "Relu2", "Relu0"]
    assert sum(row.share for row in found.operators) == pytest.approx(1.0)
    assert [(row.type, row.calls, round(row.share, 3)) for row in found.types] == [
        ("Conv", 1, 0.667),
        ("Relu", 2, 0.333),
    ]
    assert [row.time.n for row in found.types] == [2, 2]


def test_an_operators_rate_and_ceiling_follow_from_its_cost(tmp_path):
    parts = [operator("Conv", 0.5, 0, flops=1e8, moved=1e6), operator("Relu", 0.5, 1)]
    conv, relu = entry(arm(tmp_path, "torch", [1.0], operators=parts)).operators
    assert conv.flop_s == pytest.approx(2e8)
    assert (conv.ceiling.bound, conv.ceiling.value) == ("compute", pytest.approx(0.2))
    assert (relu.flop_s, relu.ceiling) == (None, None)


def test_a_type_with_an_operator_of_unknown_cost_has_no_rate(tmp_path):
    parts = [operator("Conv", 0.5, 0, flops=1e8, moved=1e6), operator("Conv", 0.5, 1)]
    assert entry(arm(tmp_path, "torch", [1.0], operators=parts)).types[0].flop_s is None


def test_shares_more_than_ten_points_from_the_profilers_are_doubted(tmp_path):
    parts = [operator("Conv", 0.8), operator("Relu", 0.2, 1)]
    agrees = summarise_networks(
        [[arm(tmp_path / "a", "torch", [1.0], operators=parts, profile={"Conv": 0.75, "Relu": 0.25})]]
    )
    differs = summarise_networks(
        [[arm(tmp_path / "b", "torch", [1.0], operators=parts, profile={"Conv": 0.5, "Relu": 0.5})]]
    )
    assert not agrees.suspect
    assert "Conv takes 80% by our clock and 50% by a profiler" in differs.suspect[0]


def test_without_measurements_there_are_no_figures(tmp_path):
    record = write(tmp_path, specification(), 0, None, outcome=NetworkOutcome("unsupported", "it has no Foo"))
    found = entry([record])
    assert (found.status, found.reason) == ("unsupported", "it has no Foo")
    assert found.latency[0].reason == found.throughput.reason == "no latency was taken"
    assert found.flop_s is None
    assert found.share is None


def test_the_whole_has_a_rate_and_a_share_of_the_nearer_ceiling(tmp_path):
    found = entry(arm(tmp_path, "torch", [2e-3] * 2))
    assert found.flop_s == pytest.approx(5e8)
    assert (found.share.bound, found.share.value) == ("compute", pytest.approx(0.5))


def test_exceeding_a_ceiling_is_a_doubt(tmp_path):
    summary = summarise_networks([[arm(tmp_path, "torch", [1e-4])]])
    assert "above the measured ceiling, by up to 10.0 times" in summary.suspect[0]


def own(tmp_path, time_s, **parts):
    """The summary of a framework's own model of which only the operations are known."""
    spec = specification(case=NetworkCase("mine", "native", path="mine.py:build"))
    facts = NetworkFacts(mode="eager", flops=1e6)
    record = write(tmp_path, spec, 0, [time_s] * 3, facts=facts, outcome=NetworkOutcome("measured", **parts))
    return summarise_networks([[[record]]])


def test_an_own_model_far_above_the_ceiling_is_refused(tmp_path):
    (fast,), (slow,) = (own(tmp_path / str(each), each).rows[0][1] for each in (1e-4, 2e-3))
    assert (fast.status, fast.times_s, fast.share) == ("refused", {}, None)
    assert "lies above the measured ceiling, by 10 times" in fast.reason
    assert (slow.status, slow.share.value) == ("measured", pytest.approx(0.5))


def test_an_own_model_whose_timed_results_were_not_compared_is_doubted(tmp_path):
    (doubt,) = own(tmp_path / "a", 2e-3, checked="not checked: its results are random").suspect
    assert doubt == "torch: its timed results were not checked: its results are random: they may be remembered ones"
    assert not own(tmp_path / "b", 2e-3, checked="against a second model").suspect
