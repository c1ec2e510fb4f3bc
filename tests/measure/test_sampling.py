"""Sampling: values, warm-up, calibration and the end of it, on a clock that moves by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from levelbench.errors import MissingError, UnknownNameError, UsageError
from levelbench.measure.caches import FlushProof
from levelbench.measure.clocks import DeviceClock, FakeClock, FakeDevice, Timer, calibrate, measure_timer, time_ns
from levelbench.measure.sampling import Sample, sample, sample_interleaved
from levelbench.measure.stopping import Budget, FixedCount, Plateau, Precision

MS = 1_000_000
PROVED = FlushProof(1.0, 9.0)


class Work:
    """Takes the scripted milliseconds on a fake clock, the last of them for ever."""

    def __init__(self, clock, *script_ms, name="", log=None):
        self.clock = clock
        self.script = itertools.chain(script_ms, itertools.repeat(script_ms[-1]))
        self.calls = 0
        self.name = name
        self.log = [] if log is None else log

    def __call__(self):
        self.calls += 1
        self.log.append(self.name)
        self.clock.advance(round(next(self.script) * MS))


def test_values_are_seconds_a_call():
    clock = FakeClock()
    found = sample(Work(clock, 200), FixedCount(8), clock=clock)
    assert found.values.tolist() == pytest.approx([0.2] * 8)
    assert (found.unit, found.inner, found.cache, len(found)) == ("s", 1, "hot", 8)


def test_slow_work_is_called_no_more_often_than_it_is_counted():
    clock = FakeClock()
    work = Work(clock, 200)
    sample(work, FixedCount(8), clock=clock)
    assert work.calls == 8


def test_what_ended_the_sampling_is_in_the_sample():
    clock = FakeClock()
    assert sample(Work(clock, 1), FixedCount(8), clock=clock).stopped_by == "8 of 8 values"


def test_one_slow_first_call_is_kept_apart():
    clock = FakeClock()
    found = sample(Work(clock, 900, 200), FixedCount(10), clock=clock)
    assert found.warmup.tolist() == pytest.approx([0.9])
    assert found.values.tolist() == pytest.approx([0.2] * 10)
    assert found.warmup_reason.startswith("the first 1 of 11 values")


def test_a_decay_is_kept_apart_and_does_not_bias_the_estimate():
    clock = FakeClock()
    decay = [100 * (1 + 3 * np.exp(-k / 10)) for k in range(300)]
    found = sample(Work(clock, *decay), FixedCount(200), clock=clock)
    assert len(found.warmup) > 20
    assert found.estimate().value == pytest.approx(0.1, rel=0.005)


def test_a_chosen_warmup_is_cut_and_found_ones_are_not():
    clock = FakeClock()
    found = sample(Work(clock, 900, 200), FixedCount(4), clock=clock, warmup=3)
    assert found.warmup.tolist() == pytest.approx([0.9, 0.2, 0.2])
    assert sample(Work(clock, 900, 200), FixedCount(4), clock=clock, warmup=0).values[0] == pytest.approx(0.9)


def test_every_call_is_either_warmup_or_a_value():
    clock = FakeClock()
    rng = np.random.default_rng(5)
    work = Work(clock, *(100 * rng.lognormal(0, 0.2, 200)))
    found = sample(work, FixedCount(60), clock=clock)
    assert work.calls == len(found.warmup) + len(found.values)


def test_slow_work_on_a_small_budget_still_gets_an_interval():
    clock = FakeClock()
    found = sample(Work(clock, 200), Precision(1e-9, least_s=100) | Budget(0.5), clock=clock)
    assert len(found) == 6
    assert found.estimate().interval is not None
    assert found.stopped_by.startswith("budget of 0.5 s spent; unmet:")


def test_work_that_the_budget_cannot_afford_ends_soon():
    clock = FakeClock()
    work = Work(clock, 60_000)
    sample(work, Budget(1), clock=clock)
    assert work.calls == 2


def test_a_budget_is_not_overrun_by_more_than_a_value_once_the_pace_is_known():
    clock = FakeClock()
    found = sample(Work(clock, 10), Budget(1), clock=clock)
    assert 1.0 <= found.wall_s <= 1.02


def test_a_rule_without_an_end_gets_one():
    clock = FakeClock()
    script = [100, 200] * 500
    found = sample(Work(clock, *script), Precision(1e-6), clock=clock)
    assert found.stopped_by.startswith("budget of 10 s spent; unmet: interval")


def test_drift_ends_on_the_plateau_and_says_so():
    clock = FakeClock()
    found = sample(Work(clock, *np.linspace(1, 50, 3000)), Precision(1e-3) | Plateau(), clock=clock)
    assert "the interval stays" in found.stopped_by
    assert "drift" in found.warmup_reason


def test_a_sample_is_a_sequence_of_its_values_and_cannot_be_written_to():
    clock = FakeClock()
    found = sample(Work(clock, 100, 200, 300), FixedCount(3), clock=clock, warmup=0)
    assert list(found) == found[:] == pytest.approx([0.1, 0.2, 0.3])
    assert found[-1] == pytest.approx(0.3)
    with pytest.raises(ValueError, match="read-only"):
        found.values[0] = 1.0


def test_work_on_a_device_is_waited_for():
    host = FakeClock()
    device = FakeDevice(host)
    found = sample(lambda: device.launch(5 * MS), FixedCount(6), clock=DeviceClock(device, host))
    assert found.values.tolist() == pytest.approx([0.005] * 6)


def test_interleaving_takes_turns_a_b_b_a():
    clock, log = FakeClock(), []
    a, b = Work(clock, 100, name="a", log=log), Work(clock, 100, name="b", log=log)
    sample_interleaved(a, b, FixedCount(8), clock=clock)
    assert "".join(log) == "aabb" + "abba" * 4


def test_what_calibration_took_is_no_value_of_interleaved_samples():
    clock = FakeClock()
    arms = sample_interleaved(Work(clock, 700, 700, 100), Work(clock, 900, 900, 200), FixedCount(8), clock=clock)
    for found, value, first in zip(arms, (0.1, 0.2), (0.7, 0.9), strict=True):
        assert found.values.tolist() == pytest.approx([value] * 8)
        assert found.warmup.tolist() == pytest.approx([first] * 2)
        assert found.warmup_reason.startswith("none found")


@pytest.mark.parametrize("asked", [0, 1, 20])
def test_a_chosen_warmup_is_cut_whole_before_any_rule_is_asked(asked):
    clock = FakeClock()
    found = sample(Work(clock, 200), Budget(0.1), clock=clock, warmup=asked)
    assert (len(found.warmup), len(found.warmup_reason) > 0) == (asked, True)
    assert found.warmup_reason == f"{asked} value{'s' * (asked != 1)} cut as asked"
    a, b = sample_interleaved(Work(clock, 200), Work(clock, 200), Budget(0.1), clock=clock, warmup=asked)
    # Two calls each were calibration.
    assert len(a.warmup) == len(b.warmup) == asked + 2


def test_linear_drift_hits_both_arms_alike():
    clock = FakeClock()

    def drifting():
        clock.advance(100 * MS + clock.now_ns() // 1000)

    a, b = sample_interleaved(drifting, drifting, FixedCount(40), clock=clock, warmup=2)
    assert np.mean(a.values) == pytest.approx(np.mean(b.values), rel=1e-4)
    assert np.mean(a.values[20:]) > 1.01 * np.mean(a.values[:20])


def test_the_same_warmup_is_cut_from_both_arms():
    clock = FakeClock()
    a, b = sample_interleaved(Work(clock, 100, 100, 900, 100), Work(clock, 100), FixedCount(8), clock=clock)
    # Two calls each were calibration, then comes the slow one of a.
    assert a.warmup.tolist() == pytest.approx([0.1, 0.1, 0.9])
    assert len(b.warmup) == 3
    assert len(a) == len(b)


def test_interleaving_goes_on_until_both_are_precise():
    clock = FakeClock()
    noisy = 100 * np.random.default_rng(2).lognormal(0, 0.05, 500)
    a, b = sample_interleaved(Work(clock, 100), Work(clock, *noisy), Precision(0.02) | Budget(100), clock=clock)
    assert len(a) == len(b) > 6
    assert "wanted +-2.00%" in b.stopped_by
    assert (a.name, b.name) == ("a", "b")


def test_fast_work_is_repeated_until_the_clock_is_under_a_percent():
    clock = FakeClock(tick_ns=60)
    found = sample(lambda: clock.advance(100), FixedCount(8), clock=clock)
    assert found.inner >= 60
    assert found.timer.overhead_ns == 60


def test_the_timer_is_not_subtracted():
    clock = FakeClock(tick_ns=60)
    found = sample(lambda: clock.advance(10 * MS), FixedCount(8), clock=clock)
    assert found.values.tolist() == pytest.approx([(10 * MS + 60) * 1e-9] * 8)


def test_one_slow_first_call_does_not_pass_for_slow_work():
    clock = FakeClock(tick_ns=60)
    work = Work(clock, 50, 0.0001)
    found = sample(work, FixedCount(8), clock=clock)
    assert found.inner > 100
    assert found.warmup[0] == pytest.approx(0.05, rel=1e-3)


def test_calibration_ends_on_work_that_takes_no_time():
    clock = FakeClock()
    assert calibrate(lambda: None, clock).inner == 1
    assert calibrate(lambda: None, FakeClock(tick_ns=1), most_inner=1000).inner == 1000


def test_the_timer_is_measured_on_the_clock_it_is_given():
    assert measure_timer(FakeClock(tick_ns=40)) == Timer(40.0, 40, 40 / 500)
    assert measure_timer(FakeClock()) == Timer(0.0, 0, 0.0)


def test_a_value_is_its_calls_in_a_row():
    clock = FakeClock()
    work = Work(clock, 1)
    assert time_ns(work, clock, 7) == 7 * MS
    assert work.calls == 7


class CacheModel:
    """A work of 1 ms whose next call takes 5 ms after a flush."""

    def __init__(self, clock):
        self.clock, self.cold = clock, True

    def __call__(self):
        self.clock.advance((5 if self.cold else 1) * MS)
        self.cold = False

    def flush(self):
        self.cold = True


def test_cold_is_refused_where_the_flush_does_not_show():
    clock = FakeClock()
    model = CacheModel(clock)
    with pytest.raises(MissingError, match="cold caches"):
        sample(model, FixedCount(8), clock=clock, cache="cold", flusher=model)


def test_hot_and_cold_are_two_different_samples(monkeypatch):
    clock = FakeClock()
    model = CacheModel(clock)
    monkeypatch.setattr("levelbench.measure.sampling.prove_flush", lambda flusher, clock: PROVED)
    cold = sample(model, FixedCount(8), clock=clock, cache="cold", flusher=model)
    hot = sample(model, FixedCount(8), clock=clock)
    assert cold.values.tolist() == pytest.approx([0.005] * 8)
    assert hot.values.tolist() == pytest.approx([0.001] * 8)
    assert (cold.cache, cold.flush, hot.flush) == ("cold", PROVED, None)


def test_cold_caches_of_a_device_need_a_flusher_that_reaches_them(monkeypatch):
    host = FakeClock()
    clock = DeviceClock(FakeDevice(host), host)
    model = CacheModel(host)
    with pytest.raises(MissingError, match="flushes the host's caches"):
        sample(model, FixedCount(8), clock=clock, cache="cold")
    with pytest.raises(MissingError, match="flushes the host's caches"):
        sample_interleaved(model, model, FixedCount(8), clock=clock, cache="cold")
    monkeypatch.setattr("levelbench.measure.sampling.prove_flush", lambda flusher, clock: PROVED)
    assert len(sample(model, FixedCount(8), clock=clock, cache="cold", flusher=model)) == 8


def test_an_unknown_cache_state_is_answered_with_those_there_are():
    with pytest.raises(UnknownNameError, match="close: cold"):
        sample(lambda: None, FixedCount(1), cache="colt")


def test_an_unusable_warmup_is_refused():
    with pytest.raises(UsageError):
        sample(lambda: None, FixedCount(1), warmup=-1)


def test_real_work_on_the_host_clock_gives_an_interval():
    found = sample(lambda: sum(range(1000)), FixedCount(30), name="sum")
    estimate = found.estimate()
    assert isinstance(found, Sample)
    assert estimate.interval.low <= estimate.value <= estimate.interval.high
