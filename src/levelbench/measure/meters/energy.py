"""Energy from whatever counters this machine has: processor packages, NVIDIA boards, both, or none with the reasons.

A figure is a counter's or it is absent. The method says what is inside it (``rapl``: processor packages;
``nvml-counter``: boards; ``rapl+nvml-counter``: both), and if one of two parts has no value the sum has none.
``docs/energy.md`` says what none of them contains.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import final

from levelbench.measure.clocks import HOST, Clock
from levelbench.measure.meters.base import Meter, NullMeter, Reading
from levelbench.measure.meters.nvml import nvml_meter
from levelbench.measure.meters.rapl import POWERCAP, rapl_meter

_NAME = "energy"
_UNIT = "J"


@final
class SummedEnergyMeter(Meter):
    """The sum of energy meters whose domains do not overlap; no value if any of them has none."""

    name = _NAME
    unit = _UNIT

    def __init__(self, parts: tuple[Meter, ...]) -> None:
        self._parts = parts

    def start(self) -> None:
        """Start every part."""
        for part in self._parts:
            part.start()

    def catch_up(self) -> None:
        """Let every part catch up."""
        for part in self._parts:
            part.catch_up()

    def stop(self) -> Reading:
        """Stop every part, and add."""
        readings = [part.stop() for part in self._parts]
        reasons = [each.reason for each in readings if each.reason is not None]
        if reasons:
            return Reading(_NAME, _UNIT, None, None, "; ".join(reasons))
        method = "+".join(each.method for each in readings if each.method)
        return Reading(_NAME, _UNIT, sum(each.value for each in readings if each.value is not None), method)


def energy_meter(
    clock: Clock = HOST,
    powercap: Path = POWERCAP,
    nvml: ModuleType | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Meter:
    """The energy meter of this machine: what can be counted, by the method of the reading; never an estimate.

    ``powercap`` and ``nvml`` stand in for the kernel's folder and the ``pynvml`` module.
    """
    parts = (rapl_meter(powercap, clock), nvml_meter(clock, nvml, environment))
    counted = tuple(part for part in parts if not isinstance(part, NullMeter))
    if len(counted) == 1:
        return counted[0]
    if counted:
        return SummedEnergyMeter(counted)
    return NullMeter(_NAME, _UNIT, "; ".join(part.reason for part in parts if isinstance(part, NullMeter)))
