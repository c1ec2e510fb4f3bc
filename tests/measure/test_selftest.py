import json

import numpy as np
import pytest

from levelbench.measure import selftest
from levelbench.measure.ceilings import Ceilings
from levelbench.measure.clocks import FakeClock
from levelbench.measure.selftest import ClockFacts, clock_facts, measure_noise, numpy_workload, run_doctor
from levelbench.measure.statistics import Estimate, runs_needed_t, wilson

MS = 1_000_000


def noisy(clock, cv, mean_ns=20 * MS, seed=0):
    """A workload whose durations scatter about ``mean_ns`` with coefficient of variation ``cv``."""
    random = np.random.default_rng(seed)
    return lambda: clock.advance(int(mean_ns * np.exp(cv * random.standard_normal())))


def test_the_resolution_is_the_smallest_step_and_a_switch_costs_one_reading():
    assert clock_facts(FakeClock(tick_ns=40)) == ClockFacts(40, 40.0, pytest.approx(40.0, rel=1e-3))


def test_a_coarse_clock_has_coarse_steps_and_cheap_readings():
    class Coarse:
        readings = 0

        def now_ns(self):
            self.readings += 1
            return self.readings * 10 // 1000 * 1000

    facts = clock_facts(Coarse())
    assert facts.resolution_ns == 1000
    assert facts.reading_ns == pytest.approx(10.0, rel=0.1)


def test_a_clock_that_stands_still_has_no_resolution():
    assert clock_facts(FakeClock()) == ClockFacts(0, 0.0, 0.0)


def test_without_noise_every_verdict_is_same():
    clock = FakeClock()
    noise = measure_noise(lambda: clock.advance(20 * MS), seconds=4.0, clock=clock)
    assert (noise.rounds, noise.alarms) == (20, 0)
    assert noise.cv == pytest.approx(0.0, abs=1e-12)
    assert noise.verdicts == {"FASTER": 0, "SLOWER": 0, "SAME": 20, "UNCLEAR": 0}
    assert noise.runs_for[0.03] == 2


def test_false_alarms_are_counted_with_wilsons_interval():
    clock = FakeClock()
    noise = measure_noise(noisy(clock, 0.05), seconds=1e9, clock=clock)
    assert noise.rounds == 200
    assert noise.alarms == noise.verdicts["FASTER"] + noise.verdicts["SLOWER"]
    assert noise.alarm_share == wilson(noise.alarms, 200)
    # Binomial, 200 comparisons at 5 %: above 20 once in 800.
    assert noise.alarms <= 20


def test_a_workload_that_favours_one_arm_gives_alarms():
    clock = FakeClock()
    noise = measure_noise(noisy(clock, 0.001), seconds=1.0, clock=clock)
    assert noise.alarms == 0

    turn = iter(range(10**9))

    def drifting():
        # After the ten calls that find out how many fill a value: A B B A, and B takes 10 % longer.
        index = next(turn) - 10
        clock.advance((22 if index >= 0 and (index % 10 + 1) // 2 % 2 else 20) * MS + index % 3)

    biased = measure_noise(drifting, seconds=1.0, clock=clock)
    assert biased.verdicts["SLOWER"] == biased.alarms == biased.rounds


def test_a_slow_drift_hits_both_arms_alike():
    clock = FakeClock()
    step = iter(range(10**9))
    noise = measure_noise(lambda: clock.advance(20 * MS + 2_000 * next(step)), seconds=5.0, clock=clock, per_arm=6)
    assert noise.alarms == 0


def test_the_scatter_says_how_many_runs_a_difference_needs():
    clock = FakeClock()
    noise = measure_noise(noisy(clock, 0.03), seconds=40.0, clock=clock)
    assert noise.cv == pytest.approx(0.03, rel=0.15)
    assert noise.runs_for == {effect: runs_needed_t(noise.cv, effect) for effect in (0.01, 0.03, 0.10)}


@pytest.mark.parametrize(("call_ns", "calls"), [(MS, 20), (3 * MS, 7), (50 * MS, 1), (0, 100_000)])
def test_a_value_is_as_many_calls_as_fill_twenty_milliseconds(call_ns, calls):
    clock = FakeClock()
    assert selftest._calls(lambda: clock.advance(call_ns), clock) == calls


def test_values_are_per_call_and_interleaved():
    clock = FakeClock()
    durations = iter([10, 1, 2, 20] * 2)
    arms = selftest._interleaved(lambda: clock.advance(next(durations) * MS), clock, 4, 1)
    assert arms[0] == pytest.approx([0.010, 0.020, 0.010, 0.020])
    assert arms[1] == pytest.approx([0.001, 0.002, 0.001, 0.002])


def test_the_fixed_workload_does_the_same_every_time():
    assert numpy_workload(32)() == numpy_workload(32)()


@pytest.fixture
def diagnosis(monkeypatch):
    limits = Ceilings({"float32": Estimate(1e9, None, 1, "median")}, {"copy": Estimate(1e9, None, 1, "median")})
    asked = []

    def ceilings(seconds, clock, gemms):
        asked.append((seconds, gemms))
        return limits

    monkeypatch.setattr(selftest, "measure_ceilings", ceilings)
    monkeypatch.setattr(selftest, "capture", lambda: {"machine": {"governor": "powersave"}})
    monkeypatch.setattr(selftest, "capture_after", dict)
    clock = FakeClock(tick_ns=50)
    found = run_doctor(8.0, clock, (("bfloat16", numpy_gemm_stub),), workload=noisy(clock, 0.03))
    return found, asked


def numpy_gemm_stub(n):
    return (lambda: None), float(n)


def test_half_of_the_time_goes_to_the_ceilings_with_the_precisions_given(diagnosis):
    assert diagnosis[1] == [(4.0, (("bfloat16", numpy_gemm_stub),))]


def test_a_diagnosis_says_what_it_found_in_words(diagnosis):
    clock, alarms, noise = diagnosis[0].sentences()
    assert clock == "clock: steps of 50 ns, 50 ns a reading, 50 ns a switch of phase"
    assert "false alarms in 20 comparisons of a workload with itself" in alarms
    assert "to find a difference of 1% takes" in noise


def test_a_diagnosis_carries_the_doubts_and_the_environment(diagnosis):
    found = diagnosis[0]
    assert found.doubts[0].startswith("the frequency governor is powersave")
    assert found.environment == {"machine": {"governor": "powersave"}}


def test_a_diagnosis_is_json(diagnosis):
    read = json.loads(json.dumps(diagnosis[0].to_dict()))
    assert set(read) == {"clock", "noise", "ceilings", "doubts", "fit", "against", "environment"}
    assert set(read["noise"]["runs_for"]) == {"0.01", "0.03", "0.1"}


@pytest.mark.slow
def test_this_machine_can_be_examined():
    found = run_doctor(0.4)
    assert found.noise.rounds >= 2
    assert found.clock.reading_ns > 0
    assert found.ceilings.share(1.0, "float32") > 0
