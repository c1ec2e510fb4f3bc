"""Peak memory: what a call adds to what was held before, by the kernel's mark; without one, the reason."""

import numpy as np
import pytest

from levelbench.frameworks.numpy.backend import NumpyBackend
from levelbench.measure.meters.base import NullMeter, Reading
from levelbench.measure.meters.memory import PeakMemoryMeter, memory_meter
from levelbench.networks.benchmark.measuring import Footprint, meter_of

MIB = 2**20


class Meter:
    """Reads scripted bytes, one at each stop."""

    def __init__(self, *values):
        self._values = iter(values)

    def start(self):
        pass

    def stop(self):
        return Reading("peak_memory", "B", next(self._values), "scripted")


def test_the_peak_is_above_what_was_held_before():
    found = Footprint(Meter(100.0, 350.0)).of(lambda: None)
    assert (found.name, found.value, found.unit) == ("peak_memory", 250.0, "B")
    assert found.method == "scripted, above the start"


def test_a_peak_below_the_start_is_nothing():
    assert Footprint(Meter(100.0, 90.0)).of(lambda: None).value == 0.0


def test_without_a_meter_the_reason_is_recorded():
    found = Footprint(NullMeter("peak_memory", "B", "no way")).of(lambda: None)
    assert (found.value, found.method, found.reason) == (None, None, "no way")


def test_an_accelerator_without_a_meter_says_so():
    assert "NumpyBackend does not read the memory" in meter_of(NumpyBackend(), "cuda").stop().reason


def test_an_accelerators_meter_is_the_frameworks_own():
    meter = Meter(1.0)
    backend = type("Backend", (), {"memory_meter": lambda self: meter})()
    assert meter_of(backend, "cuda:0") is meter


@pytest.mark.skipif(not isinstance(memory_meter(), PeakMemoryMeter), reason="this kernel cannot reset the peak")
def test_an_array_that_is_made_and_dropped_during_the_call_is_in_the_peak():
    found = Footprint(memory_meter()).of(lambda: np.ones(64 * MIB // 8))
    assert 60 * MIB < found.value < 100 * MIB


@pytest.mark.skipif(not isinstance(memory_meter(), PeakMemoryMeter), reason="this kernel cannot reset the peak")
def test_what_was_held_before_is_not_in_the_peak():
    held = np.ones(64 * MIB // 8)
    assert Footprint(memory_meter()).of(held.sum).value < 20 * MIB
