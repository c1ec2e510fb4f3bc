"""Bytes over the network between start and stop, by the kernel's interface counters.

These count everything in this network namespace, not this process alone, and a bridge or a container's
pair sees the same byte again; so only interfaces with hardware behind them are summed, where there are any, and the
method names those that were. Loopback is a meter of its own: ranks on one machine talk through it.
"""

from __future__ import annotations

from pathlib import Path
from typing import final

from levelbench.measure.meters.base import CounterMeter, Meter, NoReading, NullMeter

PROC = Path("/proc")
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
            raise NoReading("/proc/net/dev is not in a form that is known")
        counters[name.strip()] = int(numbers[_RECEIVED]) + int(numbers[_SENT])
    return counters


@final
class NetworkMeter(CounterMeter[dict[str, int]]):
    """The bytes that the named interfaces received and sent, in sum."""

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
        return NullMeter(name, "B", "no network interface but loopback")
    real = [each for each in outward if (sys / "class" / "net" / each / "device").exists()]
    return NetworkMeter(name, tuple(real or outward), proc)


def loopback_meter(proc: Path = PROC) -> Meter:
    """Bytes between processes of this machine over TCP; each byte is counted as sent and as received."""
    name = "loopback"
    try:
        if _LOOPBACK not in interface_bytes(proc):
            return NullMeter(name, "B", "no loopback interface")
    except NoReading as reason:
        return NullMeter(name, "B", str(reason))
    return NetworkMeter(name, (_LOOPBACK,), proc)
