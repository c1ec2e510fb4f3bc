"""Peak memory of this process: the most that was resident at any moment, as the kernel counts it.

The kernel keeps a high-water mark, so nothing needs to watch; where the mark can be reset at ``start``
the value belongs to the measured stretch, and where it cannot it is the peak of the whole life of the process.
Child processes are not in it, nor is memory on an accelerator, which belongs to the framework that allocates it.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import final

from levelbench.measure.meters.base import Meter, Reading

NAME = "peak_memory"
UNIT = "B"
SELF = Path("/proc/self")

# proc(5): writing 5 to clear_refs resets the peak resident set size to its current value (Linux 4.0).
_RESET_PEAK = "5"


def _high_water_bytes(status: Path) -> int | None:
    for line in status.read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None


@final
class PeakMemoryMeter(Meter):
    """``VmHWM``, reset at ``start``. They do not nest: an inner ``start`` lowers the outer mark."""

    name = NAME
    unit = UNIT

    def __init__(self, proc: Path = SELF) -> None:
        self._status = proc / "status"
        self._clear = proc / "clear_refs"
        self._reason: str | None = "the meter was not started"

    def start(self) -> None:
        """Lower the mark to what is resident now."""
        try:
            self._clear.write_text(_RESET_PEAK)
            self._reason = None
        except OSError as error:
            self._reason = f"the peak could not be reset: {error.strerror}"

    def stop(self) -> Reading:
        """The highest resident set since ``start``, in bytes."""
        if self._reason is not None:
            return Reading(NAME, UNIT, None, None, self._reason)
        try:
            peak = _high_water_bytes(self._status)
        except OSError as error:
            return Reading(NAME, UNIT, None, None, f"the peak could not be read: {error.strerror}")
        if peak is None:
            return Reading(NAME, UNIT, None, None, "the kernel gives no VmHWM")
        return Reading(NAME, UNIT, float(peak), "vmhwm-reset")


@final
class LifetimePeakMemoryMeter(Meter):
    """``ru_maxrss``: the peak since the process began, which may lie before ``start``."""

    name = NAME
    unit = UNIT

    def start(self) -> None:
        """Nothing to reset."""

    def stop(self) -> Reading:
        """The highest resident set of the process's life, in bytes (getrusage counts KiB, on macOS bytes)."""
        scale = 1 if sys.platform == "darwin" else 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
        if peak <= 0:
            return Reading(NAME, UNIT, None, None, "getrusage gives no peak on this system")
        return Reading(NAME, UNIT, float(peak), "ru_maxrss")


def memory_meter(proc: Path = SELF) -> Meter:
    """The best peak-memory meter here: with a reset where the kernel allows one (proved by doing it once)."""
    try:
        if _high_water_bytes(proc / "status") is None:
            return LifetimePeakMemoryMeter()
        (proc / "clear_refs").write_text(_RESET_PEAK)
    except OSError:
        return LifetimePeakMemoryMeter()
    return PeakMemoryMeter(proc)
