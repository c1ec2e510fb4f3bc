"""The offline scenario: all samples in one query, samples a second over the last answer."""

from itertools import chain, repeat

import numpy as np
import pytest

from levelbench.measure.clocks import FakeClock
from levelbench.measure.scenarios import Offline, VirtualClock, run_scenario

MS = 10**6


class Answers:
    def __init__(self, clock, ns_a_sample=MS):
        self.clock, self.ns, self.sizes = clock, ns_a_sample, []

    def answer(self, indices):
        self.sizes.append(len(indices))
        self.clock.advance(self.ns * len(indices))


def run(scenario, samples=100, ns_a_sample=MS):
    clock = FakeClock()
    sut = Answers(clock, ns_a_sample)
    return run_scenario(scenario, sut, samples=samples, clock=clock), sut


def test_all_samples_are_one_query():
    result, sut = run(Offline(min_duration_s=1, expected_per_s=1000, warmup_queries=0))
    assert sut.sizes == [1100]
    assert (result.queries, result.samples, result.indices.shape) == (1, 1100, (1, 1100))
    assert result.throughput_per_s == pytest.approx(1000)
    assert result.valid


def test_the_rate_is_found_off_the_clock_where_it_is_not_given():
    result, sut = run(Offline(min_duration_s=1, warmup_queries=0))
    assert result.settings["expected_per_s"] == pytest.approx(1000)
    assert result.samples == sut.sizes[-1] == 1100
    assert result.duration_s == pytest.approx(1.1)


def test_the_set_is_asked_for_at_least_once():
    result, _ = run(Offline(min_duration_s=0, expected_per_s=1), samples=300)
    assert result.samples == 300
    assert sorted(result.indices.ravel().tolist()) == list(range(300))


def test_a_large_set_need_not_be_asked_for_whole():
    result, _ = run(Offline(min_duration_s=0, expected_per_s=1), samples=50_000)
    assert result.samples == 24_576
    assert len(np.unique(result.indices)) == 24_576


def test_a_system_is_called_with_a_batch_at_a_time_and_each_samples_latency_is_kept():
    result, sut = run(Offline(min_duration_s=0, expected_per_s=1, batch=32, warmup_queries=1))
    assert sut.sizes == [32, 32, 32, 32, 32]
    assert result.latencies_ns.tolist() == [each * 32 * MS for each in (1, 2, 3, 4) for _ in range(32)]


class Padded:
    """A call costs the same for any number of samples up to the batch."""

    def __init__(self, clock, costs_ns):
        self.clock, self.costs = clock, costs_ns

    def answer(self, indices):
        self.clock.advance(next(self.costs))


@pytest.mark.parametrize(("batch", "call_ms"), [(32, 50), (32, 500), (256, 120), (256, 500), (256, 2000), (5, 300)])
def test_a_call_that_costs_the_same_for_any_size_has_its_true_throughput(batch, call_ms):
    clock = FakeClock()
    scenario = Offline(batch=batch, min_samples=1, min_duration_s=5)
    result = run_scenario(scenario, Padded(clock, repeat(call_ms * MS)), samples=10_000, clock=clock)
    assert result.valid, result.reasons
    assert result.samples % batch == 0
    assert result.throughput_per_s == pytest.approx(batch / call_ms * 1000, rel=1e-9)
    # Not many times as long as it has to be.
    assert result.duration_s <= max(1.2 * 5, 3.1 * call_ms / 1000)


def test_a_run_that_the_found_rate_made_too_short_is_made_again_at_the_rate_that_it_had():
    clock = FakeClock()
    # Slow while the rate is found, and fast from then on.
    costs = chain(repeat(400 * MS, 2), repeat(100 * MS))
    result = run_scenario(Offline(batch=32, min_duration_s=5), Padded(clock, costs), samples=64, clock=clock)
    assert result.valid, result.reasons
    assert result.duration_s == pytest.approx(5.5, rel=0.05)
    assert result.ended_by.endswith("after 1 that were too short")
    assert result.throughput_per_s == pytest.approx(320)


def test_a_query_that_was_too_small_for_the_duration_is_not_valid():
    result, _ = run(Offline(min_duration_s=10, expected_per_s=100))
    assert result.reasons == ("it lasted 1.1 s, but 10 s are required",)


def test_a_system_may_complete_part_by_part():
    clock = VirtualClock()

    class Parts:
        def issue(self, query):
            for part in range(4):
                clock.at(clock.now_ns() + (part + 1) * MS, lambda: query.complete(25))

    result = run_scenario(
        Offline(min_duration_s=0, expected_per_s=1, warmup_queries=0), Parts(), samples=100, clock=clock
    )
    assert result.latencies_ns.tolist() == [MS] * 25 + [2 * MS] * 25 + [3 * MS] * 25 + [4 * MS] * 25
    assert result.throughput_per_s == pytest.approx(25_000)


def test_there_is_no_early_stopping():
    result, _ = run(Offline(min_duration_s=0, expected_per_s=1))
    assert (result.early, result.estimate_s) == (None, None)
