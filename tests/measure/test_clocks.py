"""Clocks: what reads time, and the proof that a device was waited for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.measure.clocks import HOST, DeviceClock, FakeClock, FakeDevice, check_synchronised, utc_now

DURATIONS = st.integers(min_value=0, max_value=10**12)


def test_the_host_clock_never_goes_back():
    readings = [HOST.now_ns() for _ in range(1000)]
    assert readings == sorted(readings)


def test_a_fake_clock_stands_still_until_it_is_told_to_move():
    clock = FakeClock(start_ns=7)
    assert [clock.now_ns(), clock.now_ns()] == [7, 7]
    clock.advance(5)
    assert clock.now_ns() == 12


def test_a_constant_tick_is_added_after_each_reading():
    clock = FakeClock(tick_ns=3)
    assert [clock.now_ns() for _ in range(4)] == [0, 3, 6, 9]


def test_a_scripted_tick_is_followed_and_then_time_stands_still():
    clock = FakeClock(tick_ns=[10, 20])
    assert [clock.now_ns() for _ in range(5)] == [0, 10, 30, 30, 30]


def test_a_fake_clock_refuses_to_go_back():
    with pytest.raises(ValueError, match="cannot go back by 1 ns"):
        FakeClock().advance(-1)


def test_launching_takes_no_time_on_the_host():
    clock = FakeClock()
    FakeDevice(clock).launch(1000)
    assert clock.now_ns() == 0


@given(st.lists(DURATIONS, max_size=20))
def test_a_device_clock_counts_all_work_launched(durations):
    host = FakeClock()
    device = FakeDevice(host)
    clock = DeviceClock(device, host)
    start = clock.now_ns()
    for duration in durations:
        device.launch(duration)
    assert clock.now_ns() - start == sum(durations)


def test_work_launched_on_an_idle_device_starts_when_it_is_launched():
    host = FakeClock()
    device = FakeDevice(host)
    device.launch(10)
    host.advance(100)
    device.launch(10)
    device.synchronise()
    assert host.now_ns() == 110


def test_synchronising_an_idle_device_takes_no_time():
    host = FakeClock()
    device = FakeDevice(host)
    device.launch(10)
    device.synchronise()
    device.synchronise()
    assert host.now_ns() == 10


def test_a_missing_synchronise_is_detected():
    host = FakeClock()
    device = FakeDevice(host)
    assert not check_synchronised(host, lambda: device.launch(1000), device.synchronise)


def test_a_clock_that_waits_passes_the_check():
    host = FakeClock()
    device = FakeDevice(host)
    assert check_synchronised(DeviceClock(device, host), lambda: device.launch(1000), device.synchronise)


def test_work_queued_before_the_check_does_not_count_against_the_clock():
    host = FakeClock()
    device = FakeDevice(host)
    device.launch(10**9)
    assert check_synchronised(DeviceClock(device, host), lambda: device.launch(10), device.synchronise)


@pytest.mark.parametrize(("behind_ns", "passes"), [(99, True), (101, False)])
def test_the_share_of_work_left_behind_decides(behind_ns, passes):
    host = FakeClock()
    device = FakeDevice(host)

    def launch():
        device.launch(1000)
        host.advance(1000 - behind_ns)

    assert check_synchronised(host, launch, device.synchronise, share=0.1) is passes


def test_work_that_runs_on_the_host_needs_no_device():
    host = FakeClock()
    assert check_synchronised(host, lambda: host.advance(1000), lambda: None)


def test_a_date_is_in_utc():
    assert utc_now().utcoffset().total_seconds() == 0
