"""Energy from whatever counters this machine has: processor packages, NVIDIA boards, both, or none with the reasons.

A figure comes from a counter or is absent. The method says what it includes (``rapl``: processor packages;
``nvml-counter``: boards; ``rapl+nvml-counter``: both), and if one of the two parts has no value, the sum has none.
``docs/explanation/energy.md`` says what none of them includes.

RAPL (``/sys/class/powercap``): the domains overlap (cores lie inside their package, the platform contains every
package, and the same package appears once by register and once by memory map), so each package is counted once and
nothing inside or around it is added. The counters wrap around; an interval in which one may have wrapped twice has no
value.

NVML: the board counts millijoules since the driver was loaded (``nvmlDeviceGetTotalEnergyConsumption``, Volta and
later), so two readings give the energy of the whole board for all its processes together. Sampled power, which misses
most of what happens between samples, is never used.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import final

from levelbench.measure.clocks import HOST, Clock
from levelbench.measure.meters.base import CounterMeter, Meter, NoReading, NullMeter, Reading

_NAME = "energy"
_UNIT = "J"
_NS = 1e-9
POWERCAP = Path("/sys/class/powercap")

# The package counter is updated about every millisecond (Intel SDM volume 3, "RAPL Interfaces"); ten updates keep the
# error of the two ends under a tenth.
_SHORTEST_RAPL_S = 0.010
# No package draws this much for seconds on end. It bounds how soon a counter can wrap around a second time.
_MOST_WATTS = 1000.0
_MICRO = 1e-6


@dataclass(frozen=True)
class RaplDomain:
    """One counter: its name, its file, and the value in microjoules at which it wraps around."""

    name: str
    counter: Path
    range_uj: int

    def read_uj(self) -> int:
        """Microjoules counted so far; raises ``NoReading``."""
        try:
            return int(self.counter.read_text())
        except PermissionError as error:
            raise NoReading(
                f"only root may read the RAPL counter of {self.name}; "
                "have an administrator make energy_uj readable to measure energy"
            ) from error
        except OSError as error:
            raise NoReading(f"the RAPL counter of {self.name} cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise NoReading(f"the RAPL counter of {self.name} does not hold a number") from error


def rapl_domains(root: Path = POWERCAP) -> tuple[RaplDomain, ...]:
    """Every package once, sorted by name; the platform domain (``psys``) only where no package is listed."""
    found: dict[str, RaplDomain] = {}
    # A package that is listed by register and by memory map is taken by register.
    for folder in sorted(root.glob("*rapl*"), key=lambda each: ("mmio" in each.name, each.name)):
        try:
            name = (folder / "name").read_text().strip()
            range_uj = int((folder / "max_energy_range_uj").read_text())
        except (OSError, ValueError):
            continue
        found.setdefault(name, RaplDomain(name, folder / "energy_uj", range_uj))
    packages = tuple(found[name] for name in sorted(found) if name.startswith("package"))
    return packages or tuple(domain for name, domain in found.items() if name == "psys")


@final
class RaplMeter(CounterMeter[tuple[int, tuple[int, ...]]]):
    """Joules that the given domains used, all processes together.

    ``catch_up`` at least once in ``longest_s`` (minutes) follows a counter through any number of wraps.
    """

    name = _NAME
    unit = _UNIT

    def __init__(self, domains: tuple[RaplDomain, ...], clock: Clock = HOST) -> None:
        super().__init__()
        self.method = "rapl-psys" if domains[0].name == "psys" else "rapl"
        self.longest_s = min(domain.range_uj for domain in domains) * _MICRO / _MOST_WATTS
        self._domains = domains
        self._now_ns = clock.now_ns
        self._caught_up_s = 0.0
        self._caught_up_j = 0.0

    def start(self) -> None:
        """Forget the previous interval, and read."""
        self._caught_up_s = self._caught_up_j = 0.0
        super().start()

    def catch_up(self) -> None:
        """Add up the energy so far, and continue from here."""
        if isinstance(self._before, NoReading):
            return
        try:
            now = self._read()
            self._caught_up_j += self._joules(self._before, now)
            self._caught_up_s += (now[0] - self._before[0]) * _NS
            self._before = now
        except NoReading as reason:
            self._before = reason

    def _read(self) -> tuple[int, tuple[int, ...]]:
        return self._now_ns(), tuple(domain.read_uj() for domain in self._domains)

    def _joules(self, before: tuple[int, tuple[int, ...]], after: tuple[int, tuple[int, ...]]) -> float:
        passed_s = (after[0] - before[0]) * _NS
        if passed_s > self.longest_s:
            raise NoReading(
                f"a RAPL counter may have wrapped around twice in {passed_s:.0f} s "
                f"(it holds {self.longest_s * _MOST_WATTS:.0f} J)"
            )
        used_uj = 0
        for domain, first, last in zip(self._domains, before[1], after[1], strict=True):
            used_uj += last - first if last >= first else last - first + domain.range_uj
        return used_uj * _MICRO

    def _between(self, before: tuple[int, tuple[int, ...]], after: tuple[int, tuple[int, ...]]) -> float:
        passed_s = self._caught_up_s + (after[0] - before[0]) * _NS
        if passed_s < _SHORTEST_RAPL_S:
            raise NoReading(
                f"{passed_s * 1e3:.3g} ms are too short for the RAPL counter: "
                f"it is updated about every millisecond, and {_SHORTEST_RAPL_S * 1e3:.0f} ms are needed"
            )
        joules = self._caught_up_j + self._joules(before, after)
        if joules <= 0:
            raise NoReading(f"the RAPL counter did not move in {passed_s:.3g} s")
        return joules


def rapl_meter(root: Path = POWERCAP, clock: Clock = HOST) -> Meter:
    """The package meter, or a null meter if there is no counter or it may not be read."""
    domains = rapl_domains(root)
    if not domains:
        return NullMeter(_NAME, _UNIT, "no RAPL counter under /sys/class/powercap (virtual machine?)")
    try:
        for domain in domains:
            domain.read_uj()
    except NoReading as reason:
        return NullMeter(_NAME, _UNIT, str(reason))
    return RaplMeter(domains, clock)


# The counter is updated every 20 to 100 ms, depending on the board; ten updates keep the error of both ends under 10 %.
_SHORTEST_NVML_S = 1.0
_MILLI = 1e-3


def visible_devices(nvml: ModuleType, environment: Mapping[str, str]) -> list[object]:
    """Handles of the boards that CUDA programs see, after ``nvmlInit``; raises ``NoReading``.

    ``CUDA_VISIBLE_DEVICES`` counts in CUDA's order and NVML in PCI order; they agree if ``CUDA_DEVICE_ORDER`` says so
    or all boards are the same model. Otherwise it is unknown which board an index means, and there is no reading.
    """
    wanted = environment.get("CUDA_VISIBLE_DEVICES")
    every = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    if wanted is None:
        return every
    chosen = []
    for entry in (part.strip() for part in wanted.split(",")):
        if entry.startswith("MIG-"):
            raise NoReading("the driver counts energy by board, but this process sees only part of one (MIG)")
        if entry.startswith("GPU-"):
            chosen += [each for each in every if _decoded(nvml.nvmlDeviceGetUUID(each)).startswith(entry)]
        elif entry.isdigit() and int(entry) < len(every):
            _check_order(nvml, every, environment)
            chosen.append(every[int(entry)])
        else:  # CUDA ignores an invalid entry and everything after it
            break
    return chosen


def _check_order(nvml: ModuleType, every: list[object], environment: Mapping[str, str]) -> None:
    models = {_decoded(nvml.nvmlDeviceGetName(each)) for each in every}
    if len(models) > 1 and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        raise NoReading(
            "CUDA_VISIBLE_DEVICES selects among boards of different models by index; "
            "set CUDA_DEVICE_ORDER=PCI_BUS_ID so that the board is known"
        )


def _decoded(value: str | bytes) -> str:
    # Older bindings return bytes.
    return value.decode() if isinstance(value, bytes) else value


@final
class NvmlMeter(CounterMeter[tuple[int, tuple[int, ...]]]):
    """Joules that the given boards used."""

    name = _NAME
    unit = _UNIT
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
        if passed_s < _SHORTEST_NVML_S:
            raise NoReading(
                f"{passed_s:.3g} s are too short for the NVML energy counter: "
                f"it is updated every 20 to 100 ms, and {_SHORTEST_NVML_S:.0f} s is needed"
            )
        used = [last - first for first, last in zip(before[1], after[1], strict=True)]
        if min(used) < 0:
            raise NoReading("the NVML energy counter went back: the driver was reloaded")
        if sum(used) == 0:
            raise NoReading(f"the NVML energy counter did not move in {passed_s:.3g} s")
        return sum(used) * _MILLI


def nvml_meter(
    clock: Clock = HOST, nvml: ModuleType | None = None, environment: Mapping[str, str] = os.environ
) -> Meter:
    """The board meter, or a null meter. ``nvml`` replaces the ``pynvml`` module, which is imported otherwise."""
    if nvml is None:
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:
            return NullMeter(_NAME, _UNIT, "no NVML binding (install levelbench[energy])")
    try:
        nvml.nvmlInit()
        handles = visible_devices(nvml, environment)
        if not handles:
            return NullMeter(_NAME, _UNIT, "no NVIDIA device is visible")
        for each in handles:
            nvml.nvmlDeviceGetTotalEnergyConsumption(each)
    except nvml.NVMLError as error:
        return NullMeter(_NAME, _UNIT, f"NVML has no energy counter: {error}")
    except NoReading as reason:
        return NullMeter(_NAME, _UNIT, str(reason))
    return NvmlMeter(nvml, handles, clock)


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
    """The energy meter of this machine: whatever can be counted (the reading's method says what), never an estimate.

    ``powercap`` and ``nvml`` replace the kernel's folder and the ``pynvml`` module.
    """
    parts = (rapl_meter(powercap, clock), nvml_meter(clock, nvml, environment))
    counted = tuple(part for part in parts if not isinstance(part, NullMeter))
    if len(counted) == 1:
        return counted[0]
    if counted:
        return SummedEnergyMeter(counted)
    return NullMeter(_NAME, _UNIT, "; ".join(part.reason for part in parts if isinstance(part, NullMeter)))
