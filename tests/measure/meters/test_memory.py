import mmap
import resource
from pathlib import Path

import psutil
import pytest

from levelbench.measure.meters.resources import LifetimePeakMemoryMeter, PeakMemoryMeter, memory_meter

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
    assert meter.stop().reason == "the kernel gives no VmHWM"
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
