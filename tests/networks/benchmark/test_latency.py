"""Latencies: one call a value, until there are enough for the quantiles or the budget is spent."""

import numpy as np
import pytest

from levelbench.measure.clocks import FakeClock
from levelbench.networks.benchmark.measuring import enough, sample_latency


class Work:
    """Takes scripted nanoseconds on a fake clock, the last of them for ever."""

    def __init__(self, *durations_ns):
        self.clock, self.calls = FakeClock(), 0
        self._durations_ns = durations_ns

    def __call__(self):
        self.clock.advance(self._durations_ns[min(self.calls, len(self._durations_ns) - 1)])
        self.calls += 1


def sampled(work, samples=500, precision=0.05, budget_s=10.0):
    return sample_latency(work, enough(samples, precision, budget_s), work.clock)


@pytest.mark.parametrize("duration_ns", [100, 1_000_000])
def test_each_value_is_one_call_however_short(duration_ns):
    work = Work(duration_ns)
    found = sampled(work, samples=50)
    assert len(found.values) + len(found.warmup) == work.calls
    assert found.values == pytest.approx(np.full(len(found.values), duration_ns * 1e-9))


def test_a_steady_call_is_sampled_until_there_are_as_many_values_as_asked_for():
    found = sampled(Work(1_000_000))
    assert 500 <= len(found.values) < 700
    assert "500" in found.stopped_by


def test_a_slow_call_ends_with_its_budget():
    work = Work(100_000_000)
    found = sampled(work, budget_s=2.0)
    assert len(found.values) == 20
    assert found.stopped_by.startswith("budget of 2 s spent")


def test_a_call_longer_than_the_budget_still_gives_a_median_an_interval_where_that_is_affordable():
    assert len(sampled(Work(1_000_000_000), budget_s=3.0).values) == 6


def test_a_call_that_takes_forever_gives_what_three_budgets_pay_for():
    assert len(sampled(Work(10_000_000_000), budget_s=1.0).values) == 1


def test_slow_first_calls_are_warm_up_and_are_kept_apart():
    found = sampled(Work(*[50_000_000] * 5, 1_000_000), samples=100)
    assert found.warmup[:5] == pytest.approx([0.05] * 5)
    assert np.median(found.values) == pytest.approx(1e-3)


def test_noise_without_end_stops_at_the_most_values():
    random = np.random.default_rng(0)
    work = Work(*random.exponential(1000, 60_000).astype(int).tolist())
    assert len(sampled(work, precision=1e-6).values) <= 50_000
