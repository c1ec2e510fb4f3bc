"""Phases sum to the wall time, and clock policies are views over the same totals."""

from __future__ import annotations

import gc
import sys
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.errors import UnknownNameError
from levelbench.measure.clocks import DeviceClock, FakeClock, FakeDevice
from levelbench.measure.policies import POLICIES, policy
from levelbench.measure.timeline import Phase, Timeline

STRETCHES = st.lists(st.tuples(st.sampled_from(Phase), st.integers(min_value=0, max_value=10**12)), max_size=50)


def test_time_counts_for_the_phase_that_was_running():
    clock = FakeClock()
    line = Timeline(clock)
    clock.advance(5)
    line.switch(Phase.FORWARD)
    clock.advance(7)
    line.switch(Phase.BACKWARD)
    clock.advance(11)
    assert line.totals_ns() == {"prepare": 5, "forward": 7, "backward": 11}


def test_returning_to_a_phase_adds_to_it():
    clock = FakeClock()
    line = Timeline(clock, first=Phase.DATA)
    for phase in (Phase.FORWARD, Phase.DATA, Phase.FORWARD):
        clock.advance(10)
        line.switch(phase)
    clock.advance(1)
    assert line.totals_ns() == {"data": 20, "forward": 11}


@given(STRETCHES)
def test_phases_sum_to_the_wall_time_exactly(stretches):
    clock = FakeClock(start_ns=123)
    line = Timeline(clock)
    for phase, duration in stretches:
        line.switch(phase)
        clock.advance(duration)
    assert sum(line.totals_ns().values()) == line.elapsed_ns() == clock.now_ns() - 123


@given(STRETCHES, st.integers(min_value=1, max_value=1000))
def test_no_nanosecond_is_lost_while_the_clock_moves_under_the_readings(stretches, tick_ns):
    clock = FakeClock(tick_ns=tick_ns)
    line = Timeline(clock)
    for phase, duration in stretches:
        line.switch(phase)
        clock.advance(duration)
    assert sum(line.totals_ns().values()) == line.switched_ns - line.started_ns


def test_asking_for_totals_changes_nothing_about_the_run():
    clock = FakeClock()
    line = Timeline(clock)
    line.switch(Phase.UPDATE)
    clock.advance(3)
    line.totals_ns()
    clock.advance(4)
    assert line.totals_ns() == {"update": 7}
    assert line.current is Phase.UPDATE


def test_totals_given_out_are_not_changed_by_what_follows():
    clock = FakeClock()
    line = Timeline(clock)
    clock.advance(3)
    before = line.totals_ns()
    clock.advance(3)
    line.switch(Phase.DATA)
    assert before == {"prepare": 3}


def test_a_phase_that_took_no_time_is_not_listed():
    clock = FakeClock()
    line = Timeline(clock)
    line.switch(Phase.COMPILE)
    clock.advance(1)
    assert line.totals_ns() == {"compile": 1}


def test_switching_costs_one_reading_of_the_clock():
    clock = FakeClock(tick_ns=1)
    line = Timeline(clock)
    for _ in range(10):
        line.switch(Phase.DATA)
    assert clock.now_ns() == 11


def test_on_a_device_clock_launched_work_belongs_to_the_phase_that_launched_it():
    host = FakeClock()
    device = FakeDevice(host)
    line = Timeline(DeviceClock(device, host), first=Phase.FORWARD)
    device.launch(100)
    line.switch(Phase.BACKWARD)
    device.launch(200)
    line.switch(Phase.UPDATE)
    assert line.totals_ns() == {"forward": 100, "backward": 200}


def test_on_a_host_clock_launched_work_falls_to_whichever_phase_waits():
    host = FakeClock()
    device = FakeDevice(host)
    line = Timeline(host, first=Phase.FORWARD)
    device.launch(100)
    line.switch(Phase.EVALUATE)
    device.synchronise()
    assert line.totals_ns() == {"evaluate": 100}


def test_switching_allocates_nothing_that_stays():
    line = Timeline()
    phases = [Phase.FORWARD, Phase.BACKWARD] * 50_000
    for phase in phases[:1000]:
        line.switch(phase)
    gc.collect()
    before = sys.getallocatedblocks()
    for phase in phases:
        line.switch(phase)
    assert sys.getallocatedblocks() - before < 50


def test_switching_holds_no_more_memory_at_its_peak_than_a_few_integers():
    line = Timeline()
    phases = [Phase.DATA, Phase.UPDATE] * 5000
    peaks = []
    # Other threads of the process are traced too, so a single try may count their work.
    for _ in range(5):
        tracemalloc.start()
        try:
            for phase in phases:
                line.switch(phase)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert min(peaks) < 2048


def test_labels_are_those_of_the_design():
    labels = "prepare compile data forward backward communicate update evaluate checkpoint other train environment"
    assert [phase.label for phase in Phase] == labels.split()


class Queue:
    """A device that does what is launched one after the other, while the host's ``clock`` goes on."""

    def __init__(self, clock):
        self.clock, self.free_ns = clock, 0

    def launch(self, ns):
        self.free_ns = max(self.free_ns, self.clock.now_ns()) + ns

    def mark(self):
        self.free_ns = max(self.free_ns, self.clock.now_ns())
        return self.free_ns

    def finish(self):
        self.clock.advance(max(0, self.free_ns - self.clock.now_ns()))

    def seconds(self, start, end):
        return (end - start) * 1e-9


def test_phases_of_a_device_last_as_long_as_its_work_and_not_as_the_launch_of_it():
    clock = FakeClock()
    line, device = Timeline(clock), Queue(clock)
    clock.advance(1000)
    line.follow(device)
    spans = []
    for _ in range(3):
        line.switch(Phase.FORWARD)
        began = line.switched_ns
        device.launch(3_000)
        clock.advance(10)
        line.switch(Phase.BACKWARD)
        device.launch(7_000)
        clock.advance(10)
        line.switch(Phase.EVALUATE)
        spans.append((began, line.switched_ns))
    assert clock.now_ns() == 1060
    assert line.totals_ns() == {"prepare": 1000, "forward": 9_000, "backward": 21_000}
    assert clock.now_ns() == 31_000
    assert line.on_device(spans) == [10_000] * 3
    clock.advance(500)
    assert line.totals_ns()["evaluate"] == 500


def test_a_device_that_waits_for_the_host_idles_in_the_phase_of_the_host():
    clock = FakeClock()
    line, device = Timeline(clock), Queue(clock)
    line.follow(device)
    line.switch(Phase.DATA)
    clock.advance(50_000)
    line.switch(Phase.FORWARD)
    device.launch(3_000)
    clock.advance(10)
    assert line.totals_ns() == {"data": 50_000, "forward": 3_000}


@given(st.lists(st.tuples(st.sampled_from(Phase), st.integers(0, 10**6), st.integers(0, 10**6)), max_size=50))
def test_phases_of_a_device_sum_to_the_wall_time_exactly(stretches):
    clock = FakeClock()
    line, device = Timeline(clock), Queue(clock)
    line.follow(device)
    for phase, launched, host in stretches:
        line.switch(phase)
        device.launch(launched)
        clock.advance(host)
    assert sum(line.totals_ns().values()) == clock.now_ns()


def test_many_switches_are_settled_before_they_fill_the_memory():
    clock = FakeClock()
    line, device = Timeline(clock), Queue(clock)
    line.follow(device)
    for _ in range(20_000):
        line.switch(Phase.FORWARD)
        device.launch(100)
        clock.advance(1)
    assert clock.now_ns() > 1_000_000
    assert len(line._points) < 10_000
    assert line.totals_ns() == {"forward": 2_000_000}


S = 10**9
TOTALS = {
    "prepare": 100 * S,
    "compile": 30 * S,
    "data": 5 * S,
    "forward": 40 * S,
    "backward": 80 * S,
    "update": 10 * S,
    "evaluate": 20 * S,
    "checkpoint": 4 * S,
    "other": 1 * S,
}
ANY_TOTALS = st.dictionaries(st.sampled_from([phase.label for phase in Phase]), st.integers(0, 10**14))


@pytest.mark.parametrize(
    ("name", "seconds", "excluded"),
    [
        ("wall", 290.0, {}),
        ("dawnbench", 266.0, {"evaluate": 20.0, "checkpoint": 4.0}),
        ("mlperf", 160.0, {"prepare": 100.0, "compile": 30.0}),
        ("algoperf", 165.0, {"prepare": 100.0, "evaluate": 20.0, "checkpoint": 4.0, "other": 1.0}),
    ],
)
def test_scores_of_totals_computed_by_hand(name, seconds, excluded):
    score = policy(name).score(TOTALS)
    assert score.seconds == pytest.approx(seconds)
    assert score.excluded_s == pytest.approx(excluded)


def test_mlperf_leaves_out_thirty_minutes_of_initialisation_and_no_more():
    score = policy("mlperf").score({"prepare": 1500 * S, "compile": 500 * S, "forward": 10 * S})
    assert score.excluded_s == pytest.approx({"prepare": 1500.0, "compile": 300.0})
    assert score.seconds == pytest.approx(210.0)


def test_mlperf_counts_compilation_when_preparing_used_up_the_cap():
    score = policy("mlperf").score({"prepare": 2000 * S, "compile": 500 * S})
    assert score.excluded_s == pytest.approx({"prepare": 1800.0})
    assert score.seconds == pytest.approx(700.0)


@pytest.mark.parametrize("name", POLICIES)
@given(totals=ANY_TOTALS)
def test_score_and_what_was_left_out_sum_to_the_wall_time(name, totals):
    score = POLICIES[name].score(totals)
    wall_s = sum(totals.values()) * 1e-9
    assert score.seconds + sum(score.excluded_s.values()) == pytest.approx(wall_s, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("name", POLICIES)
@given(totals=ANY_TOTALS)
def test_no_policy_leaves_out_more_than_a_phase_took(name, totals):
    score = POLICIES[name].score(totals)
    assert score.seconds >= -1e-6
    assert all(0 < seconds <= totals[phase] * 1e-9 for phase, seconds in score.excluded_s.items())


def test_a_name_that_is_no_phase_counts():
    assert policy("dawnbench").score({"forward": S, "warmdown": S}).seconds == pytest.approx(2.0)


def test_nothing_that_took_no_time_is_listed_as_left_out():
    assert policy("dawnbench").score({"forward": S}).excluded_s == {}


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_names_its_source(name):
    assert POLICIES[name].name == name
    assert POLICIES[name].source


def test_an_unknown_policy_is_answered_with_the_nearest():
    with pytest.raises(UnknownNameError, match="close: dawnbench"):
        policy("dawnbech")
