"""The peak memory of a call: how far it rose above what the process held before the executor was made.

On the CPU the kernel counts what is resident, whatever allocator a framework brings, and its high-water
mark can be lowered before the call; so the difference holds parameters, inputs, activations and workspaces, and neither
the libraries nor the compiler's own peak. Freed memory that an allocator keeps for later counts, as nobody else can use
it; what the C library's keeps is given back first. On an accelerator the framework's own count is read.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable

from levelbench.measure.meters.base import Meter, NullMeter, Reading
from levelbench.measure.meters.memory import LifetimePeakMemoryMeter, memory_meter
from levelbench.networks.executor import Backend
from levelbench.records.schema import Measurement

PEAK = "peak_memory"


def meter_of(backend: Backend, device: str) -> Meter:
    """The meter whose mark ``start`` lowers to what is held now: the kernel's on the CPU, else the framework's.

    Where there is none, a twin says why.
    """
    if device == "cpu":
        found = memory_meter()
        if isinstance(found, LifetimePeakMemoryMeter):
            return NullMeter(PEAK, "B", "this system cannot reset the peak of a process")
        return found
    return backend.memory_meter()


class Footprint:
    """Measures the peak of calls above what was held when this was made: make it before the executor."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._before = self._now()

    def of(self, work: Callable[[], object]) -> Measurement:
        """The peak during one call of ``work`` above the start, in bytes."""
        _give_back()
        self._meter.start()
        work()
        peak = self._meter.stop()
        if peak.value is None or self._before.value is None:
            reason = peak.reason or self._before.reason
            return Measurement(PEAK, "B", None, None, reason)
        return Measurement(PEAK, "B", max(0.0, peak.value - self._before.value), f"{peak.method}, above the start")

    def _now(self) -> Reading:
        """What is held now: a peak over nothing."""
        _give_back()
        self._meter.start()
        return self._meter.stop()


def _give_back() -> None:
    """Let go of what is garbage, and let the C library return what it keeps (glibc; others have no such call)."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
