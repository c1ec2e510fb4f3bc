"""The peak of a device's memory as JAX's allocator counts it."""

from __future__ import annotations

from typing import Any

from levelbench.measure.meters.base import Meter, Reading

__all__ = ["DeviceMemoryMeter"]


class DeviceMemoryMeter(Meter):
    """``device.memory_stats()``: the peak since the process began, for JAX offers no way to lower the mark.

    What compilation tried out is in it. A CPU keeps no such count.
    """

    name = "peak_memory"
    unit = "B"

    def __init__(self, device: Any) -> None:
        self._device = device

    def start(self) -> None:
        """Nothing to reset."""

    def stop(self) -> Reading:
        """The peak so far, in bytes."""
        found = self._device.memory_stats() or {}
        if "peak_bytes_in_use" not in found:
            return Reading(self.name, self.unit, None, None, f"JAX counts no memory of {self._device.platform}")
        return Reading(self.name, self.unit, float(found["peak_bytes_in_use"]), "memory_stats, never reset")
