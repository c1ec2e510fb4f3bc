"""Energy of NVIDIA boards, from the driver's own counter.

The board counts millijoules since the driver was loaded (NVML ``nvmlDeviceGetTotalEnergyConsumption``,
Volta and later), so two readings give the energy of the whole board, all its processes together; sampled power, which
misses most of what happens between samples, is never used.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from types import ModuleType
from typing import final

from levelbench.measure.clocks import HOST, Clock
from levelbench.measure.meters.base import CounterMeter, Meter, NoReading, NullMeter

NAME = "energy"
UNIT = "J"

# The counter is updated every 20 to 100 ms, by board; ten updates keep the error of the two ends under a tenth.
_SHORTEST_S = 1.0
_NS = 1e-9
_MILLI = 1e-3


def visible_devices(nvml: ModuleType, environment: Mapping[str, str]) -> list[object]:
    """Handles of the boards that CUDA programs see, after ``nvmlInit``; raises ``NoReading``.

    ``CUDA_VISIBLE_DEVICES`` counts in CUDA's order and NVML in PCI order; they agree if ``CUDA_DEVICE_ORDER`` says so
    or all boards are of one model. Otherwise there is no telling which board an index means, and no reading.
    """
    wanted = environment.get("CUDA_VISIBLE_DEVICES")
    every = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    if wanted is None:
        return every
    chosen = []
    for entry in (part.strip() for part in wanted.split(",")):
        if entry.startswith("MIG-"):
            raise NoReading("the driver counts energy by board, and this process sees a part of one (MIG)")
        if entry.startswith("GPU-"):
            chosen += [each for each in every if _text(nvml.nvmlDeviceGetUUID(each)).startswith(entry)]
        elif entry.isdigit() and int(entry) < len(every):
            _check_order(nvml, every, environment)
            chosen.append(every[int(entry)])
        else:  # CUDA ignores an invalid entry and all that follow
            break
    return chosen


def _check_order(nvml: ModuleType, every: list[object], environment: Mapping[str, str]) -> None:
    models = {_text(nvml.nvmlDeviceGetName(each)) for each in every}
    if len(models) > 1 and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        raise NoReading(
            "CUDA_VISIBLE_DEVICES selects among boards of different models by index; "
            "set CUDA_DEVICE_ORDER=PCI_BUS_ID so that the board is known"
        )


def _text(value: str | bytes) -> str:
    # Older bindings return bytes.
    return value.decode() if isinstance(value, bytes) else value


@final
class NvmlMeter(CounterMeter[tuple[int, tuple[int, ...]]]):
    """Joules that the given boards used."""

    name = NAME
    unit = UNIT
    method = "nvml-counter"

    def __init__(self, nvml: ModuleType, handles: list[object], clock: Clock = HOST) -> None:
        super().__init__()
        self._nvml = nvml
        self._handles = handles
        self._now_ns = clock.now_ns

    def _read(self) -> tuple[int, tuple[int, ...]]:
        try:
            counts = tuple(int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(each)) for each in self._handles)
        except self._nvml.NVMLError as error:
            raise NoReading(f"the NVML energy counter cannot be read: {error}") from error
        return self._now_ns(), counts

    def _between(self, before: tuple[int, tuple[int, ...]], after: tuple[int, tuple[int, ...]]) -> float:
        passed_s = (after[0] - before[0]) * _NS
        if passed_s < _SHORTEST_S:
            raise NoReading(
                f"{passed_s:.3g} s are too short for the NVML energy counter: "
                f"it is updated every 20 to 100 ms, and {_SHORTEST_S:.0f} s is needed"
            )
        used = [last - first for first, last in zip(before[1], after[1], strict=True)]
        if min(used) < 0:
            raise NoReading("the NVML energy counter went back: the driver was loaded again")
        if sum(used) == 0:
            raise NoReading(f"the NVML energy counter did not move in {passed_s:.3g} s")
        return sum(used) * _MILLI


def nvml_meter(
    clock: Clock = HOST, nvml: ModuleType | None = None, environment: Mapping[str, str] = os.environ
) -> Meter:
    """The board meter, or its null twin. ``nvml`` stands in for the ``pynvml`` module, which is otherwise imported."""
    if nvml is None:
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:
            return NullMeter(NAME, UNIT, "no NVML binding (install levelbench[energy])")
    try:
        nvml.nvmlInit()
        handles = visible_devices(nvml, environment)
        if not handles:
            return NullMeter(NAME, UNIT, "no NVIDIA device is visible")
        for each in handles:
            nvml.nvmlDeviceGetTotalEnergyConsumption(each)
    except nvml.NVMLError as error:
        return NullMeter(NAME, UNIT, f"NVML gives no energy counter: {error}")
    except NoReading as reason:
        return NullMeter(NAME, UNIT, str(reason))
    return NvmlMeter(nvml, handles, clock)
