"""The state of a machine as the kernel shows it, and the doubts that it raises."""

import os
import signal

import pytest
from tests.measure.environment.trees import with_

from levelbench.measure.clocks import FakeClock
from levelbench.measure.environment import doubts, state
from levelbench.measure.environment.machine import Roots
from levelbench.measure.environment.state import frequency, load, others_cores, steal_share, stops, throttling

A_SECOND = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def roots(tmp_path):
    (tmp_path / "loadavg").write_text("0.44 0.11 0.03 3/95 6668\n")
    (tmp_path / "stat").write_text(f"cpu  {2 * A_SECOND} 0 0 {5 * A_SECOND} 0 0 0 {A_SECOND} 0 0\n")
    (tmp_path / "meminfo").write_text("MemAvailable: 1024 kB\nSwapTotal: 100 kB\nSwapFree: 40 kB\n")
    (tmp_path / "vmstat").write_text("pswpin 3\npswpout 4\n")
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure" / "cpu").write_text("some avg10=1.25 avg60=0.10 avg300=0.11 total=3743730\n")
    return Roots(tmp_path, tmp_path)


def test_the_load_is_what_the_kernel_says(roots, monkeypatch):
    monkeypatch.setattr(state, "own_cpu_s", lambda: 0.5)
    found = load(roots, FakeClock(3_000_000_000))
    assert (found["one_minute"], found["fifteen_minutes"], found["pressure_10_s_percent"]) == (0.44, 0.03, 1.25)
    assert (found["memory_available_bytes"], found["swap_used_bytes"], found["swapped_pages"]) == (2**20, 60 * 1024, 7)
    assert found["counters"] == {"at_s": 3.0, "own_s": 0.5, "busy_s": 2.0, "idle_s": 5.0, "steal_s": 1.0}


def test_this_process_is_not_counted_among_those_that_run(roots):
    assert load(roots)["others_running"] == 2


def test_a_machine_that_tells_nothing_has_nulls(tmp_path):
    found = load(Roots(tmp_path, tmp_path))
    assert set(found.values()) == {None}
    assert frequency(Roots(tmp_path, tmp_path)) == {"median_mhz": None, "lowest_mhz": None, "highest_mhz": None}
    assert throttling(Roots(tmp_path, tmp_path)) == {"heat_events": None, "quota_events": None}


def test_frequencies_and_throttling_are_over_all_processors(tmp_path):
    for index, khz in enumerate((1_000_000, 2_000_000, 3_600_000)):
        cpu = tmp_path / "devices" / "system" / "cpu" / f"cpu{index}"
        (cpu / "cpufreq").mkdir(parents=True)
        (cpu / "thermal_throttle").mkdir()
        (cpu / "cpufreq" / "scaling_cur_freq").write_text(str(khz))
        (cpu / "thermal_throttle" / "core_throttle_count").write_text(str(index))
    (tmp_path / "fs" / "cgroup").mkdir(parents=True)
    (tmp_path / "fs" / "cgroup" / "cpu.stat").write_text("usage_usec 5\nnr_periods 9\nnr_throttled 4\n")
    roots = Roots(tmp_path, tmp_path)
    assert frequency(roots) == {"median_mhz": 2000.0, "lowest_mhz": 1000.0, "highest_mhz": 3600.0}
    assert throttling(roots) == {"heat_events": 3, "quota_events": 4}


def counters(at_s, own_s=0.0, busy_s=0.0, idle_s=0.0, steal_s=0.0):
    return {"at_s": at_s, "own_s": own_s, "busy_s": busy_s, "idle_s": idle_s, "steal_s": steal_s}


def test_two_snapshots_say_what_everything_else_did():
    before, after = counters(10.0), counters(12.0, own_s=1.0, busy_s=2.5, idle_s=1.0, steal_s=0.5)
    assert others_cores(before, after) == pytest.approx(0.75)
    assert steal_share(before, after) == pytest.approx(0.125)


@pytest.mark.parametrize("pair", [(None, counters(1.0)), (counters(1.0), {}), (counters(1.0), counters(1.001))])
def test_snapshots_that_are_missing_or_too_close_say_nothing(pair):
    assert others_cores(*pair) is None
    assert steal_share(*pair) is None


QUIET = {
    "machine": {"cores_logical": 4, "cores_allowed": 4, "cgroup_cores": None, "governor": "performance"},
    "libraries": {"python": {"debug_build": False, "traced": False}},
    "threads": {"settings": {}, "loaded": {"libopenblas": {"threads": 4}}, "torch": {"threads": 4}},
    "load": {
        "one_minute": 0.1,
        "others_cores": 0.0,
        "swap_used_bytes": 0,
        "swapped_pages": 5,
        "memory_available_bytes": 8 * 2**30,
        "counters": {"at_s": 0.0, "own_s": 0.0, "busy_s": 0.0, "idle_s": 0.0, "steal_s": 0.0},
    },
    "throttling": {"heat_events": 3, "quota_events": 0},
}
QUIET["machine"]["memory_bytes"] = 16 * 2**30
QUIET_AFTER = {
    "load": {
        "swapped_pages": 5,
        "counters": {"at_s": 10.0, "own_s": 20.0, "busy_s": 20.5, "idle_s": 19.5, "steal_s": 0.0},
    },
    "throttling": {"heat_events": 3, "quota_events": 0},
    "threads": QUIET["threads"],
}


def test_a_quiet_machine_gives_no_doubt():
    assert doubts(QUIET, QUIET_AFTER) == []


def test_a_quiet_machine_gives_no_doubt_without_a_second_look():
    assert doubts(QUIET, {}) == []


def test_an_empty_environment_gives_no_doubt():
    assert doubts({}, {}) == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"load__others_cores": 1.5}, "other programs kept 1.5 of 4 cores busy just before"),
        ({"load__others_cores": None, "load__one_minute": 3.0}, "the load was 3.0 on 4 cores before"),
        ({"machine__governor": "powersave"}, "the frequency governor is powersave"),
        ({"load__swap_used_bytes": 2**30}, "1024 MiB of swap are in use"),
        ({"load__memory_available_bytes": 2**28}, "only 256 MiB of memory are free"),
        ({"libraries__python__traced": True}, "a debugger, profiler or coverage tool"),
        ({"libraries__python__debug_build": True}, "this is a debug build of Python"),
        ({"threads__loaded__libopenblas__threads": 8}, "libopenblas uses 8 threads on 4 cores: set OMP_NUM_THREADS=4"),
        ({"threads__torch__threads": 5}, "torch uses 5 threads on 4 cores"),
        ({"machine__cgroup_cores": 3.5}, "libopenblas uses 4 threads on 3.5 cores: set OMP_NUM_THREADS=3"),
    ],
)
def test_each_trouble_before_gives_its_sentence_and_a_remedy(change, sentence):
    found = doubts(with_(QUIET, **change), {})
    assert found[0].startswith(sentence)
    assert ": " in found[0]
    assert not found[0].endswith(".")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"load__counters__busy_s": 35.0}, "other programs kept 1.5 of 4 cores busy during the measurement"),
        ({"load__counters__steal_s": 4.0}, "the hypervisor gave 9.1% of the processor time to others"),
        ({"throttling__heat_events": 5}, "heat slowed the processor 2 times"),
        ({"throttling__quota_events": 7}, "the container ran out of its processor quota 7 times"),
        ({"load__swapped_pages": 25}, "20 pages were swapped during the measurement"),
        ({"threads__niceness": 10}, "its niceness went from 0 to 10 during the measurement"),
        ({"stops": 1}, "it was stopped during the measurement"),
        ({"cores_allowed": 1}, "it went from 4 to 1 cores during the measurement"),
        ({"threads__torch__threads": 1}, "the number of threads was changed during the measurement (torch 4 to 1)"),
    ],
)
def test_each_trouble_in_between_gives_its_sentence(change, sentence):
    found = doubts(QUIET, with_(QUIET_AFTER, **change))
    assert len(found) == 1
    assert found[0].startswith(sentence)


def test_the_work_of_an_earlier_run_is_no_doubt_if_the_stretch_itself_was_quiet():
    assert doubts(with_(QUIET, load__one_minute=4.0, load__others_cores=2.0), QUIET_AFTER) == []


def test_what_others_did_comes_before_what_was_set():
    found = doubts(with_(QUIET, machine__governor="powersave"), with_(QUIET_AFTER, load__counters__busy_s=35.0))
    assert [each.split()[0] for each in found] == ["other", "the"]


def test_a_process_that_is_told_to_go_on_was_stopped():
    before = stops()
    os.kill(os.getpid(), signal.SIGCONT)
    assert stops() == before + 1
