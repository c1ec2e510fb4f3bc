"""The state that changes while a machine runs (load, memory, frequency, throttling), and the doubts that it raises.

The kernel's counters are recorded unchanged, so that two snapshots (before and after a run) say exactly what everything
else on the machine did in between, without a monitor. An average over the past minute would blame a run for the run
before it, so doubts are based on these counters where possible. Each doubt says what to do about it.
"""

from __future__ import annotations

import os
import signal
import statistics
import threading
from collections.abc import Iterator

from levelbench.measure.clocks import HOST, Clock, uptime_ns
from levelbench.measure.environment.machine import HERE, Facts, Roots, fields, integer, text
from levelbench.measure.meters import resources
from levelbench.measure.meters.base import NoReading
from levelbench.measure.meters.resources import cpu_ticks, own_cpu_s

Counters = dict[str, float] | None

_NS = 1e-9


def load(roots: Roots = HERE, clock: Clock = HOST) -> Facts:
    """Load averages, running processes, memory and swap (bytes), and the cumulative counters for a difference."""
    one, five, fifteen, running, *_ = [*(text(roots.proc / "loadavg") or "").split(), *[""] * 4]
    memory = fields(roots.proc / "meminfo")
    paging = fields(roots.proc / "vmstat", None)
    return {
        "one_minute": _number(one),
        "five_minutes": _number(five),
        "fifteen_minutes": _number(fifteen),
        # This process itself is running.
        "others_running": max(0, int(running.split("/")[0]) - 1) if running.split("/")[0].isdigit() else None,
        "pressure_10_s_percent": _pressure(text(roots.proc / "pressure" / "cpu")),
        "memory_available_bytes": _bytes(memory.get("MemAvailable")),
        "swap_used_bytes": _difference(_bytes(memory.get("SwapTotal")), _bytes(memory.get("SwapFree"))),
        "swapped_pages": _sum(paging.get("pswpin"), paging.get("pswpout")),
        "counters": _counters(roots, clock),
    }


def frequency(roots: Roots = HERE) -> Facts:
    """The processors' frequency now, in MHz: median, lowest and highest; ``None`` if unknown."""
    cpu = roots.sys / "devices" / "system" / "cpu"
    mhz = [khz / 1000 for each in cpu.glob("cpu[0-9]*/cpufreq/scaling_cur_freq") if (khz := integer(each)) is not None]
    if not mhz:
        return {"median_mhz": None, "lowest_mhz": None, "highest_mhz": None}
    return {"median_mhz": statistics.median(mhz), "lowest_mhz": min(mhz), "highest_mhz": max(mhz)}


def throttling(roots: Roots = HERE) -> Facts:
    """How often so far heat has slowed the processors, and the quota this container."""
    cpu = roots.sys / "devices" / "system" / "cpu"
    heat = [integer(each) for each in cpu.glob("cpu[0-9]*/thermal_throttle/core_throttle_count")]
    group = roots.sys / "fs" / "cgroup"
    quota = fields(group / "cpu.stat", None).get("nr_throttled") or fields(group / "cpu/cpu.stat", None).get(
        "nr_throttled"
    )
    return {
        "heat_events": sum(each for each in heat if each is not None) if heat else None,
        "quota_events": int(quota) if quota and quota.isdigit() else None,
    }


def others_cores(before: Counters, after: Counters) -> float | None:
    """Cores that everything but this process kept busy, on average, between two ``counters``; ``None`` if too short."""
    passed_s = _passed(before, after)
    if not before or not after or passed_s is None:
        return None
    busy_s, own_s = (after[key] - before[key] for key in ("busy_s", "own_s"))
    return resources.others_cores(busy_s, own_s, passed_s)


def steal_share(before: Counters, after: Counters) -> float | None:
    """The share of processor time that the hypervisor took between two ``counters``; ``None`` if too short."""
    if not before or not after or _passed(before, after) is None:
        return None
    spent = {key: after[key] - before[key] for key in ("busy_s", "idle_s", "steal_s")}
    return spent["steal_s"] / sum(spent.values())


def _counters(roots: Roots, clock: Clock) -> Counters:
    try:
        ticks = cpu_ticks(roots.proc)
    except NoReading:
        return None
    a_second, before = os.sysconf("SC_CLK_TCK"), uptime_ns() if clock is HOST else None
    found = {
        "at_s": clock.now_ns() * _NS,
        "own_s": own_cpu_s(),
        "busy_s": ticks.busy / a_second,
        "idle_s": ticks.idle / a_second,
        "steal_s": ticks.steal / a_second,
    }
    if before is not None and (after := uptime_ns()) is not None:
        found |= {"uptime_from_s": before[0] * _NS, "uptime_to_s": after[1] * _NS}
    return found


def _passed(before: Counters, after: Counters) -> float | None:
    if not before or not after:
        return None
    seconds = sum(after[key] - before[key] for key in ("busy_s", "idle_s", "steal_s"))
    passed = after["at_s"] - before["at_s"]
    return passed if passed > 0 and seconds * os.sysconf("SC_CLK_TCK") >= resources.LEAST_TICKS else None


def _pressure(found: str | None) -> float | None:
    return _number(found.partition("avg10=")[2].split(" ")[0]) if found else None


def _number(found: str) -> float | None:
    try:
        return float(found)
    except ValueError:
        return None


def _bytes(kilobytes: str | None) -> int | None:
    digits = (kilobytes or "").split(" ")[0]
    return int(digits) * 1024 if digits.isdigit() else None


def _difference(whole: int | None, part: int | None) -> int | None:
    return None if whole is None or part is None else whole - part


def _sum(*counts: str | None) -> int | None:
    known = [int(each) for each in counts if each is not None and each.isdigit()]
    return sum(known) if known else None


_stops: list[None] = []


def stops() -> int:
    """How often this process was stopped and went on (Ctrl-Z and ``fg``) since this was first asked."""
    here = threading.current_thread() is threading.main_thread()
    if here and signal.getsignal(signal.SIGCONT) == signal.SIG_DFL:
        signal.signal(signal.SIGCONT, lambda *_: _stops.append(None))
    return len(_stops)


_MOST_OTHERS_PER_CORE = 0.05
_MOST_LOAD_PER_CORE = 0.5
_MOST_STEAL = 0.01
_MOST_SWAP_BYTES = 64 * 2**20
_LEAST_FREE = 0.05


def doubts(before: Facts, after: Facts) -> list[str]:
    """Sentences without a final full stop, most serious first; ``after`` may be empty. Empty if there is no doubt."""
    return [
        *_stopped(before, after),
        *_busy(before, after),
        *_slowed(before, after),
        *_threads(before, after),
        *_settings(before),
        *_memory(before, after),
    ]


def _cores(environment: Facts) -> float:
    machine = environment.get("machine", {})
    known = [machine.get(key) for key in ("cores_allowed", "cgroup_cores")]
    return min((each for each in known if each), default=machine.get("cores_logical") or 1)


def _recorded_counters(environment: Facts) -> Facts:
    return environment.get("load", {}).get("counters") or {}


def _stopped(before: Facts, after: Facts) -> Iterator[str]:
    if isinstance(count := after.get("stops"), int) and count > (before.get("stops") or 0):
        yield "it was stopped during the measurement (as by Ctrl-Z), and that time counts: measure it again"


def _busy(before: Facts, after: Facts) -> Iterator[str]:
    logical = before.get("machine", {}).get("cores_logical") or 1
    load = before.get("load", {})
    others = others_cores(_recorded_counters(before), _recorded_counters(after))
    if others is not None:
        if others > _MOST_OTHERS_PER_CORE * logical:
            free = max(1, int(logical - others))
            used = max(_thread_counts(before).values(), default=logical)
            fewer = f", or set OMP_NUM_THREADS={free} for everything that is compared" if used > free else ""
            yield (
                f"other programs kept {others:.1f} of {logical} cores busy during the measurement: "
                f"stop them and measure again{fewer}"
            )
    elif (load.get("others_cores") or 0.0) > _MOST_OTHERS_PER_CORE * logical:
        yield (
            f"other programs kept {load['others_cores']:.1f} of {logical} cores busy just before: "
            "stop them and measure again"
        )
    elif load.get("others_cores") is None and (load.get("one_minute") or 0.0) > _MOST_LOAD_PER_CORE * logical:
        yield f"the load was {load['one_minute']:.1f} on {logical} cores before: wait until it falls, and measure again"
    steal = steal_share(_recorded_counters(before), _recorded_counters(after))
    if steal is not None and steal > _MOST_STEAL:
        yield (
            f"the hypervisor gave {steal:.1%} of the processor time to others: "
            "use a machine with dedicated cores, and interleave what is compared"
        )


def _slowed(before: Facts, after: Facts) -> Iterator[str]:
    causes = (
        ("heat_events", "heat slowed the processor {count} times: cool it, or lower its highest frequency"),
        ("quota_events", "the container ran out of its processor quota {count} times: raise it, or use fewer threads"),
    )
    for key, sentence in causes:
        first, last = (each.get("throttling", {}).get(key) for each in (before, after))
        if first is not None and last is not None and last > first:
            yield sentence.format(count=last - first)


def _threads(before: Facts, after: Facts) -> Iterator[str]:
    cores = _cores(before)
    counts, later = _thread_counts(before), _thread_counts(after)
    for name, count in counts.items():
        if count > cores:
            yield f"{name} uses {count} threads on {cores:g} cores: set OMP_NUM_THREADS={max(1, int(cores))}"
    changed = [f"{name} {count} to {later[name]}" for name, count in counts.items() if later.get(name, count) != count]
    if changed:
        yield (
            f"the number of threads was changed during the measurement ({', '.join(changed)}): set it beforehand, for "
            "everything that is compared, for example with OMP_NUM_THREADS=1"
        )
    cores_then, cores_now = before.get("machine", {}).get("cores_allowed"), after.get("cores_allowed")
    if cores_then and cores_now and cores_then != cores_now:
        yield f"it went from {cores_then} to {cores_now} cores during the measurement: choose them before (taskset)"
    if "threads" in after:
        nice_then, nice_now = (each.get("threads", {}).get("niceness", 0) for each in (before, after))
        if nice_then != nice_now:
            yield f"its niceness went from {nice_then} to {nice_now} during the measurement: set it before, for all"


def _thread_counts(facts: Facts) -> dict[str, int]:
    threads = facts.get("threads", {})
    reported = {**threads.get("loaded", {}), "torch": threads.get("torch", {})}
    return {name: each["threads"] for name, each in sorted(reported.items()) if each.get("threads") is not None}


def _settings(before: Facts) -> Iterator[str]:
    governor = before.get("machine", {}).get("governor") or ""
    if "powersave" in governor:
        yield (
            "the frequency governor is powersave, so the processor may run below its speed: "
            "choose performance (cpupower frequency-set -g performance)"
        )
    python = before.get("libraries", {}).get("python", {})
    if python.get("debug_build"):
        yield "this is a debug build of Python: measure with a release build"
    if python.get("traced"):
        yield "a debugger, profiler or coverage tool traces this process: measure without it"


def _memory(before: Facts, after: Facts) -> Iterator[str]:
    load, later = before.get("load", {}), after.get("load", {})
    swapped = (later.get("swapped_pages") or 0) - (load.get("swapped_pages") or 0)
    if later.get("swapped_pages") is not None and swapped > 0:
        yield f"{swapped} pages were swapped during the measurement: free memory, or use less"
    elif (load.get("swap_used_bytes") or 0) > _MOST_SWAP_BYTES:
        yield f"{load['swap_used_bytes'] / 2**20:.0f} MiB of swap are in use: free memory before measuring"
    free, whole = load.get("memory_available_bytes"), before.get("machine", {}).get("memory_bytes")
    if free is not None and whole and free < _LEAST_FREE * whole:
        yield f"only {free / 2**20:.0f} MiB of memory are free: close other programs before measuring"
