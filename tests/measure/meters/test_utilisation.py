import os
import subprocess
import sys

import pytest

from levelbench.measure.clocks import FakeClock
from levelbench.measure.meters import NullMeter
from levelbench.measure.meters import resources as u
from levelbench.measure.meters.base import NoReading

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
    assert meter.stop().reason == "5 ticks of /proc/stat passed; a share needs 8"


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
