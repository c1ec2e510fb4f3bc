"""What a run uses of its machine: processors, memory and network; and meters that wrap a counter."""

import mmap
import os
import resource
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from levelbench.measure.clocks import FakeClock
from levelbench.measure.meters import NullMeter, Reading, meters
from levelbench.measure.meters import resources as u
from levelbench.measure.meters.base import CounterMeter, NoReading
from levelbench.measure.meters.resources import (
    LifetimePeakMemoryMeter,
    PeakMemoryMeter,
    interface_bytes,
    loopback_meter,
    memory_meter,
    network_meter,
    read_meter,
)


class Scripted(CounterMeter[int]):
    name, unit, method = "scripted", "1", "script"

    def __init__(self, *states: int | NoReading) -> None:
        super().__init__()
        self.states = list(states)

    def _read(self) -> int:
        state = self.states.pop(0)
        if isinstance(state, NoReading):
            raise state
        return state

    def _between(self, before: int, after: int) -> float:
        return float(after - before)


def test_a_reading_has_a_value_with_its_method_or_a_reason():
    assert Reading("energy", "J", 3.0, "rapl").reason is None
    assert Reading("energy", "J", None, None, "no counter").value is None


@pytest.mark.parametrize(
    ("value", "method", "reason"),
    [(3.0, None, None), (None, "rapl", "why"), (None, None, None), (3.0, "rapl", "why")],
)
def test_a_reading_that_is_neither_is_refused(value, method, reason):
    with pytest.raises(ValueError, match="energy"):
        Reading("energy", "J", value, method, reason)


def test_a_null_meter_says_why_it_is_null():
    meter = NullMeter("energy", "J", "no counter here")
    meter.start()
    assert meter.stop() == Reading("energy", "J", None, None, "no counter here")


def test_a_counter_meter_reads_the_difference_of_its_two_ends():
    meter = Scripted(5, 12)
    meter.start()
    assert meter.stop() == Reading("scripted", "1", 7.0, "script")


def test_a_counter_meter_can_be_used_again():
    meter = Scripted(5, 12, 20, 21)
    meter.start()
    meter.stop()
    meter.start()
    assert meter.stop().value == 1.0


def test_a_meter_that_was_not_started_says_so():
    assert Scripted(5).stop().reason == "the meter was not started"


@pytest.mark.parametrize("states", [(NoReading("gone"), 12), (5, NoReading("gone"))])
def test_a_counter_that_cannot_be_read_at_either_end_is_a_reason(states):
    meter = Scripted(*states)
    meter.start()
    assert meter.stop() == Reading("scripted", "1", None, None, "gone")


def test_every_meter_of_this_machine_gives_a_reading_of_its_own_name():
    every = meters()
    for meter in every:
        meter.start()
    readings = [meter.stop() for meter in every]
    assert [each.name for each in readings] == [each.name for each in every]
    assert len({each.name for each in readings}) == len(readings)
    assert all(each.value is None or each.value >= 0 for each in readings)


MIB = 2**20


def fake_process(folder: Path, high_water_kb: int) -> Path:
    (folder / "status").write_text(f"Name:\tx\nVmHWM:\t  {high_water_kb} kB\nVmRSS:\t 1 kB\n")
    (folder / "clear_refs").write_text("")
    return folder


def test_start_asks_the_kernel_to_reset_the_peak(tmp_path):
    meter = memory_meter(fake_process(tmp_path, 100))
    (tmp_path / "clear_refs").write_text("")
    meter.start()
    assert (tmp_path / "clear_refs").read_text() == "5"


def test_the_peak_is_the_high_water_mark_in_bytes(tmp_path):
    meter = memory_meter(fake_process(tmp_path, 100))
    meter.start()
    fake_process(tmp_path, 2048)
    reading = meter.stop()
    assert (reading.value, reading.method, reading.unit) == (2 * MIB, "vmhwm-reset", "B")


def test_a_peak_that_cannot_be_reset_is_that_of_the_whole_life(tmp_path):
    fake_process(tmp_path, 100)
    (tmp_path / "clear_refs").unlink()
    (tmp_path / "clear_refs").mkdir()
    meter = memory_meter(tmp_path)
    assert isinstance(meter, LifetimePeakMemoryMeter)
    meter.start()
    assert meter.stop().method == "ru_maxrss"


@pytest.mark.parametrize("status", [None, "Name:\tx\n"])
def test_without_a_high_water_mark_getrusage_answers(tmp_path, status):
    if status is not None:
        (tmp_path / "status").write_text(status)
    assert isinstance(memory_meter(tmp_path), LifetimePeakMemoryMeter)


def test_a_reset_that_fails_later_is_a_reason(tmp_path):
    meter = PeakMemoryMeter(tmp_path / "gone")
    assert meter.stop().reason == "the meter was not started"
    meter.start()
    assert "could not be reset" in meter.stop().reason


def test_a_mark_that_vanishes_is_a_reason(tmp_path):
    meter = PeakMemoryMeter(fake_process(tmp_path, 100))
    meter.start()
    (tmp_path / "status").write_text("Name:\tx\n")
    assert meter.stop().reason == "the kernel does not report VmHWM"
    (tmp_path / "status").unlink()
    assert "could not be read" in meter.stop().reason


def test_the_lifetime_peak_is_getrusages_in_bytes():
    value = LifetimePeakMemoryMeter().stop().value
    assert value == pytest.approx(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, rel=0.01)


def touch(size):
    """Pages of our own for a moment: an array could lie in what the heap has kept."""
    with mmap.mmap(-1, size) as memory:
        for at in range(0, size, mmap.PAGESIZE):
            memory[at] = 1


@pytest.mark.skipif(not isinstance(memory_meter(), PeakMemoryMeter), reason="this kernel does not reset the peak")
def test_memory_that_came_and_went_is_in_the_peak_and_what_went_before_is_not():
    touch(96 * MIB)
    meter = memory_meter()
    resident = psutil.Process().memory_info().rss
    meter.start()
    touch(48 * MIB)
    peak = meter.stop().value
    assert peak is not None
    assert 40 * MIB < peak - resident < 72 * MIB


HEAD = "Inter-|   Receive    |  Transmit\n face |bytes packets ...\n"


def machine(root, **counters):
    (root / "net").mkdir(exist_ok=True)
    lines = [f"{name}: {got} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0\n" for name, (got, sent) in counters.items()]
    (root / "net" / "dev").write_text(HEAD + "".join(lines))
    return root


def hardware(root, *names):
    for name in names:
        (root / "class" / "net" / name / "device").mkdir(parents=True)
    return root


def test_bytes_are_received_plus_sent_by_interface(tmp_path):
    assert interface_bytes(machine(tmp_path, lo=(1, 2), eth0=(10, 20))) == {"lo": 3, "eth0": 30}


def test_a_counter_next_to_the_colon_is_read(tmp_path):
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "dev").write_text(HEAD + "eth0:75739979 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n")
    assert interface_bytes(tmp_path) == {"eth0": 75739984}


def test_loopback_is_apart(tmp_path):
    out, within = (
        factory(machine(tmp_path, lo=(0, 0), eth0=(0, 0)), *sys)
        for factory, sys in ((network_meter, (tmp_path,)), (loopback_meter, ()))
    )
    out.start()
    within.start()
    machine(tmp_path, lo=(7, 7), eth0=(100, 50))
    assert (out.stop().value, within.stop().value) == (150.0, 14.0)


def test_a_bridge_is_not_counted_beside_the_hardware_that_carries_it(tmp_path):
    machine(tmp_path, lo=(0, 0), eth0=(0, 0), docker0=(0, 0), eth1=(0, 0))
    meter = network_meter(tmp_path, hardware(tmp_path / "sys", "eth0", "eth1"))
    meter.start()
    machine(tmp_path, lo=(0, 0), eth0=(10, 0), docker0=(10, 0), eth1=(0, 1))
    reading = meter.stop()
    assert (reading.value, reading.method) == (11.0, "proc-net-dev (eth0, eth1)")


def test_where_no_interface_has_hardware_all_but_loopback_count(tmp_path):
    assert network_meter(machine(tmp_path, lo=(0, 0), veth0=(0, 0)), tmp_path).method == "proc-net-dev (veth0)"


def test_a_machine_with_loopback_only_says_so(tmp_path):
    meter = network_meter(machine(tmp_path, lo=(0, 0)), tmp_path)
    assert isinstance(meter, NullMeter)
    assert meter.stop().reason == "no network interface except loopback"
    assert loopback_meter(machine(tmp_path, eth0=(0, 0))).stop().reason == "no loopback interface"


def test_an_interface_that_goes_or_whose_counter_goes_back_is_a_reason(tmp_path):
    meter = network_meter(machine(tmp_path, eth0=(10, 10)), tmp_path)
    meter.start()
    machine(tmp_path, eth0=(1, 1))
    assert "went back" in meter.stop().reason
    machine(tmp_path, eth1=(1, 1))
    assert meter.stop().reason == "interface eth0 is gone"


@pytest.mark.parametrize("factory", [lambda proc: network_meter(proc, proc), loopback_meter])
def test_a_file_that_is_missing_or_strange_is_a_reason(tmp_path, factory):
    assert "cannot be read" in factory(tmp_path).stop().reason
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "dev").write_text(HEAD + "eth0: many\n")
    assert "unknown format" in factory(tmp_path).stop().reason


SECOND = 1_000_000_000
A_SECOND = os.sysconf("SC_CLK_TCK")


def stat(folder, user=0, system=0, idle=0, iowait=0, steal=0, guest=0):
    (folder / "stat").write_text(f"cpu  {user} 0 {system} {idle} {iowait} 0 0 {steal} {guest} 0\ncpu0 1 2 3 4\n")


def test_guest_time_is_not_counted_twice_and_waiting_is_idle(tmp_path):
    stat(tmp_path, user=60, system=10, idle=20, iowait=5, steal=5, guest=50)
    assert u.cpu_ticks(tmp_path) == u.CpuTicks(busy=70, idle=25, steal=5)


@pytest.mark.parametrize("text", ["", "cpu 1 2 3\n", "cpu a b c d e f g h\n", "cpu0 1 2 3 4 5 6 7 8\n"])
def test_a_file_in_an_unknown_form_is_a_reason(tmp_path, text):
    (tmp_path / "stat").write_text(text)
    with pytest.raises(NoReading, match="/proc/stat"):
        u.cpu_ticks(tmp_path)


@pytest.mark.parametrize(("factory", "expected"), [(u.busy_meter, 0.5), (u.steal_meter, 0.2)])
def test_shares_are_of_all_processors_time(tmp_path, factory, expected):
    stat(tmp_path, user=100, idle=100, steal=100)
    meter = factory(tmp_path)
    meter.start()
    stat(tmp_path, user=150, idle=130, steal=120)
    assert meter.stop().value == pytest.approx(expected)


def test_a_stretch_of_few_ticks_has_no_share(tmp_path):
    stat(tmp_path, user=100)
    meter = u.busy_meter(tmp_path)
    meter.start()
    stat(tmp_path, user=105)
    assert meter.stop().reason == "5 ticks of /proc/stat passed; a share needs at least 8"


@pytest.mark.parametrize("factory", [u.busy_meter, u.steal_meter, lambda proc: u.other_load_meter(proc=proc)])
def test_a_machine_without_the_file_gives_the_null_twin(tmp_path, factory):
    meter = factory(tmp_path)
    assert isinstance(meter, NullMeter)
    assert "cannot be read" in meter.stop().reason


def test_utilisation_is_cpu_seconds_over_wall_seconds_and_cores(monkeypatch):
    clock, used = FakeClock(), iter([10.0, 13.0])
    monkeypatch.setattr(u, "own_cpu_s", lambda: next(used))
    meter = u.ProcessUtilisationMeter(clock, cores=4)
    meter.start()
    clock.advance(SECOND)
    assert meter.stop().value == pytest.approx(0.75)


def test_no_time_at_all_has_no_utilisation():
    meter = u.utilisation_meter(FakeClock())
    meter.start()
    assert meter.stop().reason == "no time passed between start and stop"


def test_a_childs_time_counts_once_it_is_waited_for():
    before = u.own_cpu_s()
    burn = "import time\nwhile time.process_time() < 0.1: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    assert u.own_cpu_s() - before >= 0.05


def test_the_load_of_others_is_the_machines_less_our_own(tmp_path, monkeypatch):
    clock, used = FakeClock(), iter([1.0, 2.5])
    monkeypatch.setattr(u, "own_cpu_s", lambda: next(used))
    stat(tmp_path)
    meter = u.other_load_meter(clock, tmp_path)
    meter.start()
    clock.advance(2 * SECOND)
    stat(tmp_path, user=4 * A_SECOND)
    reading = meter.stop()
    assert (reading.value, reading.unit) == (pytest.approx(1.25), "cores")


def test_the_load_of_others_is_never_below_zero(tmp_path, monkeypatch):
    clock, used = FakeClock(), iter([1.0, 9.0])
    monkeypatch.setattr(u, "own_cpu_s", lambda: next(used))
    stat(tmp_path)
    meter = u.other_load_meter(clock, tmp_path)
    meter.start()
    clock.advance(SECOND)
    stat(tmp_path, user=A_SECOND)
    assert meter.stop().value == 0.0


def test_a_child_that_still_lives_counts_with_its_children():
    burn = "import time\nwhile time.process_time() < 0.3: pass\n"
    inner = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}])\nprint(flush=True)\ninput()"
    before_s = u.own_cpu_s()
    with subprocess.Popen([sys.executable, "-c", inner], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        living_s = u.own_cpu_s() - before_s
        child.communicate(b"\n")
    assert living_s > 0.25
    assert u.own_cpu_s() - before_s >= living_s - 0.05


def io_of(folder, rchar, read_bytes):
    (folder / "io").write_text(f"rchar: {rchar}\nwchar: 5\nsyscr: 1\nread_bytes: {read_bytes}\n")
    return folder


@pytest.mark.parametrize(("source", "bytes_"), [("disk", 4096.0), ("cache", 6000.0 - 4096)])
def test_bytes_from_disk_and_from_the_page_cache_are_told_apart(tmp_path, source, bytes_):
    meter = read_meter(source, io_of(tmp_path, 1000, 0))
    meter.start()
    io_of(tmp_path, 7000, 4096)
    assert (meter.stop().value, meter.name) == (bytes_, f"read_from_{source}")


def test_mapped_files_are_read_from_disk_without_a_call(tmp_path):
    meter = read_meter("cache", io_of(tmp_path, 0, 0))
    meter.start()
    io_of(tmp_path, 10, 4096)
    assert meter.stop().value == 0.0


def test_what_is_read_here_is_counted(tmp_path):
    meter = read_meter("cache")
    if isinstance(meter, NullMeter):
        pytest.skip("no /proc/self/io here")
    file = tmp_path / "file"
    file.write_bytes(bytes(3 * MIB))
    meter.start()
    file.read_bytes()
    assert meter.stop().value >= 3 * MIB


@pytest.mark.parametrize("text", [None, "nothing", "rchar: many\nread_bytes: 0\n"])
def test_without_counters_of_reads_a_null_meter_says_why(tmp_path, text):
    if text is not None:
        (tmp_path / "io").write_text(text)
    meter = read_meter("disk", tmp_path)
    assert isinstance(meter, NullMeter)
    assert "/proc/self/io" in meter.stop().reason
