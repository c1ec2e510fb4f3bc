"""Reasons to doubt a time, from the environment before and after it was measured, each with what to do about it.

An average over the past minute blames a run for the run before it; what everything else did *during* the
measurement is known from the counters at its two ends, and that is what these sentences rest on where they can.
"""

from __future__ import annotations

from collections.abc import Iterator

from levelbench.measure.environment.files import Facts
from levelbench.measure.environment.state import others_cores, steal_share

_MOST_OTHERS_PER_CORE = 0.05
_MOST_LOAD_PER_CORE = 0.5
_MOST_STEAL = 0.01
_MOST_SWAP_BYTES = 64 * 2**20
_LEAST_FREE = 0.05


def doubts(before: Facts, after: Facts) -> list[str]:
    """Sentences without a final full stop, the gravest first; ``after`` may be empty. Empty if there is no doubt."""
    return [
        *_busy(before, after),
        *_slowed(before, after),
        *_threads(before),
        *_settings(before),
        *_memory(before, after),
    ]


def _cores(environment: Facts) -> float:
    machine = environment.get("machine", {})
    known = [machine.get(key) for key in ("cores_allowed", "cgroup_cores")]
    return min((each for each in known if each), default=machine.get("cores_logical") or 1)


def _counters(environment: Facts) -> Facts:
    return environment.get("load", {}).get("counters") or {}


def _busy(before: Facts, after: Facts) -> Iterator[str]:
    logical = before.get("machine", {}).get("cores_logical") or 1
    load = before.get("load", {})
    others = others_cores(_counters(before), _counters(after))
    if others is not None:
        if others > _MOST_OTHERS_PER_CORE * logical:
            yield (
                f"other programs kept {others:.1f} of {logical} cores busy during the measurement: "
                "stop them and measure again, or use fewer threads than cores"
            )
    elif (load.get("others_cores") or 0.0) > _MOST_OTHERS_PER_CORE * logical:
        yield (
            f"other programs kept {load['others_cores']:.1f} of {logical} cores busy just before: "
            "stop them and measure again"
        )
    elif load.get("others_cores") is None and (load.get("one_minute") or 0.0) > _MOST_LOAD_PER_CORE * logical:
        yield f"the load was {load['one_minute']:.1f} on {logical} cores before: wait until it falls, and measure again"
    steal = steal_share(_counters(before), _counters(after))
    if steal is not None and steal > _MOST_STEAL:
        yield (
            f"the hypervisor gave {steal:.1%} of the processor time to others: "
            "use a machine with cores of its own, and interleave what is compared"
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


def _threads(before: Facts) -> Iterator[str]:
    cores = _cores(before)
    threads = before.get("threads", {})
    counts = {name: each.get("threads") for name, each in threads.get("loaded", {}).items()}
    counts["torch"] = threads.get("torch", {}).get("threads")
    for name, count in sorted(counts.items()):
        if count is not None and count > cores:
            yield f"{name} uses {count} threads on {cores:g} cores: set OMP_NUM_THREADS={max(1, int(cores))}"


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
