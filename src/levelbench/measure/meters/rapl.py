"""Energy of the processor packages, from the RAPL counters under ``/sys/class/powercap``.

The domains overlap (cores lie inside their package, the platform contains every package, the same
package appears once by register and once by memory map), so each package is counted once and nothing that lies inside
or around it is added. The counters wrap around; a stretch in which one may have wrapped twice has no value.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

from levelbench.measure.clocks import HOST, Clock
from levelbench.measure.meters.base import CounterMeter, Meter, NoReading, NullMeter

POWERCAP = Path("/sys/class/powercap")
NAME = "energy"
UNIT = "J"

# The package counter is updated about every millisecond (Intel SDM volume 3, "RAPL Interfaces"); ten updates keep the
# error of the two ends under a tenth.
_SHORTEST_S = 0.010
# No package draws this much for seconds on end. It bounds how soon a counter can come round a second time.
_MOST_WATTS = 1000.0
_NS = 1e-9
_MICRO = 1e-6


@dataclass(frozen=True)
class RaplDomain:
    """One counter: its name, its file, and the value after which it begins again, in microjoules."""

    name: str
    counter: Path
    range_uj: int

    def read_uj(self) -> int:
        """Microjoules counted so far; raises ``NoReading``."""
        try:
            return int(self.counter.read_text())
        except PermissionError as error:
            raise NoReading(
                f"the RAPL counter of {self.name} may be read by root only; "
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

    name = NAME
    unit = UNIT

    def __init__(self, domains: tuple[RaplDomain, ...], clock: Clock = HOST) -> None:
        super().__init__()
        self.method = "rapl-psys" if domains[0].name == "psys" else "rapl"
        self.longest_s = min(domain.range_uj for domain in domains) * _MICRO / _MOST_WATTS
        self._domains = domains
        self._now_ns = clock.now_ns
        self._caught_up_s = 0.0
        self._caught_up_j = 0.0

    def start(self) -> None:
        """Forget what an earlier stretch had, and read."""
        self._caught_up_s = self._caught_up_j = 0.0
        super().start()

    def catch_up(self) -> None:
        """Add up the energy so far, and count on from here."""
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
        if passed_s < _SHORTEST_S:
            raise NoReading(
                f"{passed_s * 1e3:.3g} ms are too short for the RAPL counter: "
                f"it is updated about every millisecond, and {_SHORTEST_S * 1e3:.0f} ms are needed"
            )
        joules = self._caught_up_j + self._joules(before, after)
        if joules <= 0:
            raise NoReading(f"the RAPL counter did not move in {passed_s:.3g} s")
        return joules


def rapl_meter(root: Path = POWERCAP, clock: Clock = HOST) -> Meter:
    """The package meter, or its null twin: no counter, or none that may be read."""
    domains = rapl_domains(root)
    if not domains:
        return NullMeter(NAME, UNIT, "no RAPL counter under /sys/class/powercap (virtual machine?)")
    try:
        for domain in domains:
            domain.read_uj()
    except NoReading as reason:
        return NullMeter(NAME, UNIT, str(reason))
    return RaplMeter(domains, clock)
