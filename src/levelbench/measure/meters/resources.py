"""What a run uses of its machine: processors, memory and network."""

from __future__ import annotations

import os
import resource
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import final

from levelbench.measure.clocks import HOST, Clock
from levelbench.measure.meters.base import CounterMeter, Meter, NoReading, NullMeter, Reading

PROC = Path("/proc")

LEAST_TICKS = 8
"""Below this many ticks, one tick of rounding at an end is more than an eighth of the value."""
_NS = 1e-9


@dataclass(frozen=True)
class CpuTicks:
    """Cumulative ticks of all processors since boot: busy, idle, and taken by the hypervisor."""

    busy: int
    idle: int
    steal: int

    @property
    def total(self) -> int:
        """All ticks: cores times time."""
        return self.busy + self.idle + self.steal


def cpu_ticks(proc: Path = PROC) -> CpuTicks:
    """The first line of ``/proc/stat`` (proc(5)); guest time is already inside user time. Raises ``NoReading``."""
    try:
        with (proc / "stat").open() as lines:
            name, *numbers = lines.readline().split()
        user, nice, system, idle, iowait, irq, softirq, steal = (int(each) for each in numbers[:8])
    except OSError as error:
        raise NoReading(f"/proc/stat cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise NoReading("/proc/stat has an unknown format") from error
    if name != "cpu":
        raise NoReading("/proc/stat does not begin with the sum of all processors")
    return CpuTicks(user + nice + system + irq + softirq, idle + iowait, steal)


def own_cpu_s() -> float:
    """CPU seconds of this process, of the children that it has waited for, and of those still alive and their children.

    Data-loading workers may outlive the training that they serve.
    """
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime + children_cpu_s()


def waited_ns(process: int | str = "self") -> int:
    """How long the process's first thread was ready to run and had no core; 0 where Linux does not count that."""
    try:
        return int(Path("/proc", str(process), "schedstat").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError):
        return 0


def children_cpu_s() -> float:
    """The same of the children alone; to the tick of those that still live."""
    waited_for = resource.getrusage(resource.RUSAGE_CHILDREN)
    ticks, todo = 0, children_of("self")
    while todo:
        pid = todo.pop()
        with suppress(OSError):
            ticks += sum(map(int, (PROC / pid / "stat").read_text(errors="replace").rpartition(")")[2].split()[11:15]))
        todo += children_of(pid)
    return waited_for.ru_utime + waited_for.ru_stime + ticks / os.sysconf("SC_CLK_TCK")


def children_of(pid: str) -> list[str]:
    """The ids of the living children of a process, if the kernel lists them."""
    found: list[str] = []
    with suppress(OSError):
        for task in (PROC / pid / "task").iterdir():
            found += (task / "children").read_text().split()
    return found


def available_cores() -> int:
    """The processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _ticks_between(before: CpuTicks, after: CpuTicks) -> CpuTicks:
    passed = CpuTicks(after.busy - before.busy, after.idle - before.idle, after.steal - before.steal)
    if passed.total < LEAST_TICKS:
        raise NoReading(f"{max(passed.total, 0)} ticks of /proc/stat passed; a share needs at least {LEAST_TICKS}")
    return passed


def others_cores(busy_s: float, own_s: float, passed_s: float) -> float:
    """The cores that everything but this process kept busy in ``passed_s`` seconds; rounding never makes it negative.

    ``busy_s`` are the seconds of all processors together, ``own_s`` those of this process and its children.
    """
    return max(0.0, busy_s - own_s) / passed_s


@final
class ProcessUtilisationMeter(CounterMeter[tuple[int, float]]):
    """CPU seconds of this process and its children over wall seconds times the cores it may use."""

    name = "cpu_utilisation"
    unit = "share"
    method = "getrusage and proc-stat of living children"

    def __init__(self, clock: Clock = HOST, cores: int | None = None) -> None:
        super().__init__()
        self._now_ns = clock.now_ns
        self._cores = cores or available_cores()

    def _read(self) -> tuple[int, float]:
        return self._now_ns(), own_cpu_s()

    def _between(self, before: tuple[int, float], after: tuple[int, float]) -> float:
        wall_s = (after[0] - before[0]) * _NS
        if wall_s <= 0:
            raise NoReading("no time passed between start and stop")
        return (after[1] - before[1]) / (wall_s * self._cores)


@final
class MachineShareMeter(CounterMeter[CpuTicks]):
    """The share of all processors' time in one kind of tick: ``busy`` (without steal) or ``steal``."""

    unit = "share"
    method = "proc-stat"

    def __init__(self, kind: str, proc: Path = PROC) -> None:
        super().__init__()
        self.name = f"machine_{kind}"
        self._kind = kind
        self._proc = proc

    def _read(self) -> CpuTicks:
        return cpu_ticks(self._proc)

    def _between(self, before: CpuTicks, after: CpuTicks) -> float:
        passed = _ticks_between(before, after)
        return float(getattr(passed, self._kind)) / passed.total


@final
class OtherLoadMeter(CounterMeter[tuple[int, CpuTicks, float]]):
    """Cores kept busy, on average, by everything but this process and its children.

    Unlike steal time, this shows other programs on the same machine.
    """

    name = "other_load"
    unit = "cores"
    method = "proc-stat minus getrusage"

    def __init__(self, clock: Clock = HOST, proc: Path = PROC) -> None:
        super().__init__()
        self._now_ns = clock.now_ns
        self._proc = proc

    def _read(self) -> tuple[int, CpuTicks, float]:
        return self._now_ns(), cpu_ticks(self._proc), own_cpu_s()

    def _between(self, before: tuple[int, CpuTicks, float], after: tuple[int, CpuTicks, float]) -> float:
        wall_s = (after[0] - before[0]) * _NS
        busy = _ticks_between(before[1], after[1]).busy
        if wall_s <= 0:
            raise NoReading("no time passed between start and stop")
        busy_s = busy / os.sysconf("SC_CLK_TCK")
        return others_cores(busy_s, after[2] - before[2], wall_s)


def utilisation_meter(clock: Clock = HOST) -> Meter:
    """The share of its cores' time that this process used."""
    return ProcessUtilisationMeter(clock)


def _if_ticks(meter: CounterMeter[CpuTicks] | OtherLoadMeter, proc: Path) -> Meter:
    try:
        cpu_ticks(proc)
    except NoReading as reason:
        return NullMeter(meter.name, meter.unit, str(reason))
    return meter


def busy_meter(proc: Path = PROC) -> Meter:
    """The share of the whole machine's processor time that anything used."""
    return _if_ticks(MachineShareMeter("busy", proc), proc)


def steal_meter(proc: Path = PROC) -> Meter:
    """The share of the virtual machine's processor time that the hypervisor gave to others."""
    return _if_ticks(MachineShareMeter("steal", proc), proc)


def other_load_meter(clock: Clock = HOST, proc: Path = PROC) -> Meter:
    """The cores that other programs kept busy."""
    return _if_ticks(OtherLoadMeter(clock, proc), proc)


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
    """``VmHWM``, reset at ``start``. These meters do not nest: an inner ``start`` lowers the outer mark."""

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
            return Reading(NAME, UNIT, None, None, "the kernel does not report VmHWM")
        return Reading(NAME, UNIT, float(peak), "vmhwm-reset")


@final
class LifetimePeakMemoryMeter(Meter):
    """``ru_maxrss``: the peak since the process began, which may be before ``start``."""

    name = NAME
    unit = UNIT

    def start(self) -> None:
        """Nothing to reset."""

    def stop(self) -> Reading:
        """The highest resident set of the process's life, in bytes (getrusage counts KiB, on macOS bytes)."""
        scale = 1 if sys.platform == "darwin" else 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
        if peak <= 0:
            return Reading(NAME, UNIT, None, None, "getrusage does not report a peak on this system")
        return Reading(NAME, UNIT, float(peak), "ru_maxrss")


def memory_meter(proc: Path = SELF) -> Meter:
    """The best peak-memory meter here: with a reset if the kernel allows one (checked by doing it once)."""
    try:
        if _high_water_bytes(proc / "status") is None:
            return LifetimePeakMemoryMeter()
        (proc / "clear_refs").write_text(_RESET_PEAK)
    except OSError:
        return LifetimePeakMemoryMeter()
    return PeakMemoryMeter(proc)


SYS = Path("/sys")

_LOOPBACK = "lo"
# In /proc/net/dev, after the colon: eight columns for received, then eight for sent; bytes come first in each.
_RECEIVED, _SENT, _COLUMNS = 0, 8, 16


def interface_bytes(proc: Path = PROC) -> dict[str, int]:
    """Bytes received plus sent, by interface, since each came up (``/proc/net/dev``). Raises ``NoReading``."""
    try:
        lines = (proc / "net" / "dev").read_text().splitlines()
    except OSError as error:
        raise NoReading(f"/proc/net/dev cannot be read: {error.strerror}") from error
    counters = {}
    for line in lines[2:]:
        name, _, rest = line.partition(":")
        numbers = rest.split()
        if len(numbers) < _COLUMNS or not (numbers[_RECEIVED] + numbers[_SENT]).isdigit():
            raise NoReading("/proc/net/dev has an unknown format")
        counters[name.strip()] = int(numbers[_RECEIVED]) + int(numbers[_SENT])
    return counters


@final
class NetworkMeter(CounterMeter[dict[str, int]]):
    """The total bytes that the named interfaces received and sent."""

    unit = "B"

    def __init__(self, name: str, interfaces: tuple[str, ...], proc: Path = PROC) -> None:
        super().__init__()
        self.name = name
        self.method = f"proc-net-dev ({', '.join(interfaces)})"
        self._interfaces = interfaces
        self._proc = proc

    def _read(self) -> dict[str, int]:
        counters = interface_bytes(self._proc)
        for name in self._interfaces:
            if name not in counters:
                raise NoReading(f"interface {name} is gone")
        return counters

    def _between(self, before: dict[str, int], after: dict[str, int]) -> float:
        moved = {name: after[name] - before[name] for name in self._interfaces}
        for name, count in moved.items():
            if count < 0:
                raise NoReading(f"the counter of interface {name} went back (it was reset, or wrapped around)")
        return float(sum(moved.values()))


def network_meter(proc: Path = PROC, sys: Path = SYS) -> Meter:
    """Bytes to and from other machines: interfaces with a device behind them, or all but loopback if none has."""
    name = "network"
    try:
        outward = sorted(set(interface_bytes(proc)) - {_LOOPBACK})
    except NoReading as reason:
        return NullMeter(name, "B", str(reason))
    if not outward:
        return NullMeter(name, "B", "no network interface except loopback")
    real = [each for each in outward if (sys / "class" / "net" / each / "device").exists()]
    return NetworkMeter(name, tuple(real or outward), proc)


@final
class ReadMeter(CounterMeter[tuple[int, int]]):
    """Bytes that this process, and children that it waited for, read: ``disk`` from storage, ``cache`` the rest.

    ``/proc/self/io`` (proc(5)): ``read_bytes`` was fetched from storage, also for mapped files; ``rchar`` was returned
    by read calls, from anywhere. The difference is what the page cache gave, with pipes and sockets.
    """

    unit = "B"

    def __init__(self, source: str, proc: Path = SELF) -> None:
        super().__init__()
        self.name = f"read_from_{source}"
        self.method = "proc-io read_bytes" if source == "disk" else "proc-io rchar - read_bytes"
        self._source, self._proc = source, proc

    def _read(self) -> tuple[int, int]:
        return read_counters(self._proc)

    def _between(self, before: tuple[int, int], after: tuple[int, int]) -> float:
        called, fetched = (last - first for first, last in zip(before, after, strict=True))
        return float(fetched if self._source == "disk" else max(0, called - fetched))


def read_counters(proc: Path = SELF) -> tuple[int, int]:
    """``rchar`` and ``read_bytes`` of ``/proc/self/io``. Raises ``NoReading``."""
    try:
        lines = (proc / "io").read_text().splitlines()
        found = {name: int(count) for name, _, count in (line.partition(":") for line in lines)}
        return found["rchar"], found["read_bytes"]
    except OSError as error:
        raise NoReading(f"/proc/self/io cannot be read: {error.strerror}") from error
    except (KeyError, ValueError) as error:
        raise NoReading("/proc/self/io has an unknown format") from error


def read_meter(source: str, proc: Path = SELF) -> Meter:
    """Bytes read from ``disk``, or from the page ``cache``."""
    meter = ReadMeter(source, proc)
    try:
        read_counters(proc)
    except NoReading as reason:
        return NullMeter(meter.name, meter.unit, str(reason))
    return meter


def loopback_meter(proc: Path = PROC) -> Meter:
    """Bytes between processes of this machine over TCP; each byte is counted as sent and as received."""
    name = "loopback"
    try:
        if _LOOPBACK not in interface_bytes(proc):
            return NullMeter(name, "B", "no loopback interface")
    except NoReading as reason:
        return NullMeter(name, "B", str(reason))
    return NetworkMeter(name, (_LOOPBACK,), proc)
