"""The environment of a run: the machine and its software, how two environments differ, and when to doubt a time.

It is captured once before the run, and the few facts that change are captured again after it; all of it is plain data
that travels with the record. It contains no host name, user name or home folder, and only variables that affect speed.
"""

from __future__ import annotations

from pathlib import Path

from levelbench.measure.clocks import utc_now
from levelbench.measure.environment.compare import (
    Difference,
    difference,
    differences,
    machine_of,
    same_machine,
    states_machine,
    system_of,
)
from levelbench.measure.environment.machine import Facts, accelerators, cores_allowed, machine
from levelbench.measure.environment.software import commit_order, git, is_shallow, libraries, malloc, threads
from levelbench.measure.environment.state import doubts, frequency, load, others_cores, stops, throttling

__all__ = [
    "Difference",
    "capture",
    "capture_after",
    "commit_order",
    "difference",
    "differences",
    "doubts",
    "is_shallow",
    "machine_of",
    "same_machine",
    "states_machine",
    "system_of",
]


def capture(folder: Path | None = None, apart: Path | None = None) -> Facts:
    """The environment now, as JSON-serialisable data; ``folder`` is where the source is (default: the current folder).

    ``apart`` is the folder of the records, which are no change of the source.
    Takes some tens of milliseconds: call it off the clock, in the process that will be measured.
    """
    first = load()
    facts = {
        "machine": machine(),
        "accelerators": accelerators(),
        "libraries": libraries(),
        "threads": threads(),
        "malloc": malloc(),
        "git": git(folder or Path.cwd(), apart=apart),
    }
    now = load()
    # What others did during this capture: the only view of the present that needs no waiting.
    now["others_cores"] = others_cores(first["counters"], now["counters"])
    return {**facts, "load": now, **_changing()}


def capture_after() -> Facts:
    """The facts that change, captured again: pass them to ``doubts`` with what ``capture`` returned before."""
    return {"load": load(), "threads": threads(), "cores_allowed": cores_allowed(), **_changing()}


def _changing() -> Facts:
    return {
        "frequency": frequency(),
        "throttling": throttling(),
        "stops": stops(),
        "time": utc_now().isoformat(timespec="seconds"),
    }
