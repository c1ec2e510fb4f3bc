"""What records of networks say: one value a process, intervals over the processes, and where the time goes."""

import math

import pytest
from msgspec.structs import replace

from levelbench.measure.verdict import VerdictKind
from levelbench.records import Measurement, Samples
from levelbench.records.network_summary import summarise_networks
from levelbench.records.networks import (
    NETWORK_SCHEMA,
    NetworkArm,
    NetworkCase,
    NetworkEnd,
    NetworkFacts,
    NetworkHeader,
    NetworkOutcome,
    NetworkSpecification,
    NetworkWriter,
    OperatorSamples,
    ProfileShares,
    network_key,
    read_network_record,
)


def limit(value):
    return {"value": value, "interval": None, "n": 1, "statistic": "single value"}


CEILINGS = {"flop_s": {"float32": limit(1e9)}, "bandwidth_b_s": {"triad": limit(1e9)}}


def specification(framework="torch", batch=1, mode="", transforms=(), **parts):
    case = NetworkCase("lenet", batch=batch)
    return replace(NetworkSpecification("lenet", case, NetworkArm(framework, mode, "cpu", tuple(transforms))), **parts)


def header(spec, seed=0, identity="abcd", environment=None, version="0.1.0", started=None, ceilings=CEILINGS):
    started = started or f"2026-01-02T03:04:{seed:02d}.000+00:00"
    key = network_key(spec)
    known = {} if environment is None else environment
    return NetworkHeader(NETWORK_SCHEMA, identity, key, seed, started, spec, known, ceilings, version)


def operator(title, time_s, index=0, flops=None, moved=None, times=3):
    return OperatorSamples(index, title, f"{title}{index}", [time_s] * times, flops, moved)


def write(
    store,
    spec,
    seed=0,
    latencies=(1.0, 1.0, 1.0),
    *,
    facts=None,
    phases=(),
    memory=None,
    operators=(),
    profile=None,
    outcome=None,
    end=True,
    suspect=(),
    **more,
):
    """One process: raw latencies in seconds, phases as (name, seconds), peak memory in bytes."""
    with NetworkWriter.begin(store, header(spec, seed, f"id{seed}", **more)) as writer:
        writer.add(facts or NetworkFacts({"threads": 1}, "eager", "float32", 10, 40, 2, 1e6, 5e5, 1e3))
        for name, seconds in phases:
            writer.add(Measurement(f"phase/{name}", "s", seconds, "host clock"))
        if memory is not None:
            writer.add(memory)
        if latencies is not None:
            writer.add(Samples("latency", "s", list(latencies)))
        for each in operators:
            writer.add(each)
        if profile:
            writer.add(ProfileShares("a profiler", profile))
        writer.add(outcome or NetworkOutcome("measured", "", {"output": 1e-7}, "against numpy"))
        if end:
            writer.add(NetworkEnd(list(suspect)))
    return read_network_record(writer.path)


def arm(store, framework, times_s, batch=1, **more):
    """One record a process, each with six equal latencies."""
    spec = specification(framework, batch)
    return [write(store, spec, seed, [each] * 6, **more) for seed, each in enumerate(times_s)]


def peak(value=None, reason=None):
    return Measurement("peak_memory", "B", value, None if value is None else "vmhwm-reset", reason)


def entry(records, **more):
    """The one entry of one case on one arm."""
    return summarise_networks([[records]], **more).rows[0][1][0]


def noisy(value, process):
    return value * (1 + 0.004 * ((process * 7) % 5 - 2))


def test_a_process_is_one_value_its_median(tmp_path):
    found = entry(arm(tmp_path, "torch", [1.0, 2.0, 3.0]))
    assert found.times_s == {0: 1.0, 1: 2.0, 2: 3.0}
    assert found.latency[0].estimate.n == 3


def test_a_high_quantile_of_few_values_is_not_made_up(tmp_path):
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


def test_throughput_is_the_batch_by_the_mean_latency(tmp_path):
    spec = specification(batch=8)
    found = entry([write(tmp_path, spec, 0, [1.0, 1.0, 4.0])]).throughput
    assert found.unit == "samples/s"
    assert found.estimate.value == pytest.approx(8 / 2.0)


def test_the_ends_of_the_throughputs_interval_are_in_order(tmp_path):
    found = entry(arm(tmp_path, "torch", [1.0, 1.1, 1.2])).throughput.estimate
    assert found.interval.low < found.value < found.interval.high


def test_compilation_is_the_first_call_less_a_warm_one_and_cold_start_the_sum_of_the_phases(tmp_path):
    phases = [("open", 1.0), ("build", 0.5), ("prepare", 0.25), ("first", 2.0)]
    found = entry(arm(tmp_path, "torch", [0.5, 0.5], phases=phases)).phases
    assert found["compile"].estimate.value == pytest.approx(1.5)
    assert found["cold_start"].estimate.value == pytest.approx(3.75)
    assert found["open"].estimate.value == pytest.approx(1.0)


def test_a_phase_that_is_missing_leaves_no_cold_start(tmp_path):
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


def test_overhead_is_the_whole_less_the_sum_of_the_operators_and_may_be_below_zero(tmp_path):
    parts = [operator("Conv", 0.7), operator("Relu", 0.2, 1)]
    above = entry(arm(tmp_path, "torch", [1.0, 1.0], operators=parts))
    below = entry(arm(tmp_path / "b", "torch", [0.6, 0.6], operators=parts))
    assert above.overhead.estimate.value == pytest.approx(0.1)
    assert above.overhead_share.estimate.value == pytest.approx(0.1)
    assert below.overhead.estimate.value == pytest.approx(-0.3)


def test_without_times_of_operators_the_reason_stands_in_their_place(tmp_path):
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


def test_shares_beside_the_profilers_are_doubted_when_they_are_more_than_ten_points_apart(tmp_path):
    parts = [operator("Conv", 0.8), operator("Relu", 0.2, 1)]
    agrees = summarise_networks(
        [[arm(tmp_path / "a", "torch", [1.0], operators=parts, profile={"Conv": 0.75, "Relu": 0.25})]]
    )
    differs = summarise_networks(
        [[arm(tmp_path / "b", "torch", [1.0], operators=parts, profile={"Conv": 0.5, "Relu": 0.5})]]
    )
    assert not agrees.suspect
    assert "Conv takes 80% by our clock and 50% by a profiler" in differs.suspect[0]


def test_each_arm_is_judged_against_the_first(tmp_path):
    a = arm(tmp_path, "torch", [noisy(1.0, at) for at in range(5)])
    b = arm(tmp_path, "jax", [noisy(0.5, at + 1) for at in range(5)])
    summary = summarise_networks([[a, b]])
    first, second = summary.rows[0][1]
    assert first.verdict is None
    assert second.verdict.kind == VerdictKind.FASTER
    assert second.verdict.reason == "paired by seed"
    assert summary.totals[1].verdict.kind == VerdictKind.FASTER


def test_over_many_cases_a_verdict_must_survive_holms_correction(tmp_path):
    """Alone 1.4 % slower at p of about 0.02; among fifty cases without a difference that is to be expected."""
    noise = [[1 + 0.004 * math.sin(1 + 7 * at + 13 * process) for at in range(50)] for process in range(6)]
    grid = []
    for at in range(50):
        shift = 1.014 if at == 0 else 1.0
        times = [noise[p][at] for p in range(3)], [shift * noise[p + 3][at] for p in range(3)]
        grid.append([arm(tmp_path, name, each, at + 1) for name, each in zip(("torch", "jax"), times, strict=True)])
    many = summarise_networks(grid, margin=0.001).rows[0][1][1].verdict
    alone = summarise_networks(grid[:1], margin=0.001).rows[0][1][1].verdict
    assert alone.kind == VerdictKind.SLOWER
    assert many.kind == VerdictKind.UNCLEAR
    assert "not among 50 cases (Holm)" in many.reason


def test_a_wrong_result_is_not_compared(tmp_path):
    a = arm(tmp_path, "torch", [1.0] * 3)
    b = arm(tmp_path, "jax", [0.5] * 3, outcome=NetworkOutcome("wrong", "output 0 is off by 0.1"))
    summary = summarise_networks([[a, b]])
    assert summary.rows[0][1][1].verdict is None
    assert summary.rows[0][1][1].reason == "output 0 is off by 0.1"
    assert summary.totals[1].compared == 0


def test_what_crashed_in_one_process_failed_and_the_times_of_the_others_are_kept(tmp_path):
    spec = specification()
    crashed = write(tmp_path, spec, 0, None, outcome=NetworkOutcome("failed", "its process was killed by signal 11"))
    found = entry([crashed, write(tmp_path, spec, 1)])
    assert (found.status, found.reason) == ("failed", "its process was killed by signal 11")
    assert list(found.times_s) == [1]


def test_what_did_not_fit_once_counts_the_others_and_says_so(tmp_path):
    spec = specification()
    skipped = write(tmp_path, spec, 0, None, outcome=NetworkOutcome("skipped", "it ran out of memory"))
    found = entry([skipped, write(tmp_path, spec, 1)])
    assert found.status == "measured"
    assert found.reason == "skipped in 1 of 2 processes: it ran out of memory"


def test_nothing_measured_leaves_no_number(tmp_path):
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


def test_a_ceiling_that_was_exceeded_is_doubted(tmp_path):
    summary = summarise_networks([[arm(tmp_path, "torch", [1e-4])]])
    assert "above the measured ceiling, by up to 10.0 times" in summary.suspect[0]


def test_arms_with_unlike_threads_are_doubted(tmp_path):
    a, b = (
        arm(tmp_path, name, [1.0] * 2, facts=NetworkFacts({"threads": n}, "m"))
        for name, n in (("torch", 2), ("jax", 1))
    )
    assert "different numbers of threads (torch 2, jax 1)" in summarise_networks([[a, b]]).suspect[0]


def test_arms_that_were_measured_one_after_the_other_are_doubted(tmp_path):
    a = [write(tmp_path, specification(), seed) for seed in range(2)]
    late = "2026-01-03T03:04:05.000+00:00"
    b = [write(tmp_path, specification("jax"), seed, started=late) for seed in range(2)]
    assert any("not measured side by side" in each for each in summarise_networks([[a, b]]).suspect)


def test_doubts_of_the_processes_are_told_once_with_their_number(tmp_path):
    summary = summarise_networks([[arm(tmp_path, "torch", [1.0] * 2, suspect=("others kept a core busy",))]])
    assert summary.suspect == ("torch, 2 of 2 processes: others kept a core busy",)


def test_a_transformed_network_is_an_arm_of_its_own(tmp_path):
    spec = specification(transforms=("precision:bfloat16",))
    a, b = arm(tmp_path, "torch", [1.0] * 2), [write(tmp_path, spec, seed, [0.9] * 6) for seed in range(2)]
    summary = summarise_networks([[a, b]])
    assert [each.title for each in summary.arms] == ["torch", "torch + precision:bfloat16"]
    assert summary.rows[0][1][1].verdict.ratio == pytest.approx(0.9)
