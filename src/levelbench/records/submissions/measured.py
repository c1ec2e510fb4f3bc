"""Finds in a store what a machine can do at most: the ceilings that records of Level 0 and 1 begin with.

The one idea: a ceiling is looked for and never guessed. It counts where machine, device, the cores that may be used and
the settings of threads are the run's own; of several the highest is taken, since somebody reached it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from levelbench.errors import LevelbenchError
from levelbench.records.benchmarks import FOLDER as OPERATORS
from levelbench.records.networks import FOLDER as NETWORKS
from levelbench.records.reader import open_record, read_line
from levelbench.records.submissions.terms import machine_of

__all__ = ["MeasuredCeiling", "measured_ceiling"]

_NEWEST = 200
"""So many records are looked at, the newest: one measurement has a record for each process."""


_HALF = {"bfloat16", "float16"}


class MeasuredCeiling(Struct, frozen=True):
    """Operations a second, in which precision, and the id of the record that says so."""

    flop_s: float
    precision: str
    record: str


class _Arm(Struct, frozen=True):
    device: str = ""


class _Specification(Struct, frozen=True):
    device: str = ""
    arm: _Arm = _Arm()


class _Rate(Struct, frozen=True):
    value: float


class _Ceilings(Struct, frozen=True):
    flop_s: dict[str, _Rate] = {}


class _Head(Struct, frozen=True):
    id: str
    specification: _Specification
    environment: dict[str, Any]
    ceilings: _Ceilings = _Ceilings()


_DECODER = msgspec.json.Decoder(_Head)


def measured_ceiling(
    store: Path, environment: Mapping[str, Any], device: str, precision: str = "float32"
) -> MeasuredCeiling | None:
    """The highest that records in ``store`` have of this machine and device, in any precision.

    ``None`` unless the fastest that may have run is among them: ``precision`` on a processor, elsewhere one of 16 bits,
    since an accelerator may take it without being asked. What cannot be read is passed over.
    """
    wanted = _place(environment)
    found = [
        MeasuredCeiling(rate.value, precision, head.id)
        for head in _heads(store)
        if (head.specification.device or head.specification.arm.device) == device and _place(head.environment) == wanted
        for precision, rate in head.ceilings.flop_s.items()
        if math.isfinite(rate.value) and rate.value > 0
    ]
    fastest = {precision} if device == "cpu" else _HALF
    if fastest.isdisjoint(each.precision for each in found):
        return None
    return max(found, key=lambda each: each.flop_s)


def _place(environment: Mapping[str, Any]) -> tuple[str, object, object]:
    """The machine, how many of its cores may be used (a container or ``taskset`` says), and the settings of threads.

    Of threads what was set, not what was loaded: that differs with the framework.
    """
    machine, threads = environment.get("machine"), environment.get("threads")
    cores = machine.get("cores_allowed") if isinstance(machine, Mapping) else None
    settings = threads.get("settings") if isinstance(threads, Mapping) else None
    return machine_of(environment), cores, settings or {}


def _heads(store: Path) -> Iterator[_Head]:
    paths = [path for folder in (NETWORKS, OPERATORS) for path in (store / folder).glob("*/*/*.jsonlines")]
    dated = []
    for path in paths:
        with suppress(OSError):
            dated.append((os.lstat(path).st_mtime_ns, path))
    for _, path in sorted(dated, reverse=True)[:_NEWEST]:
        with suppress(LevelbenchError, msgspec.MsgspecError, UnicodeDecodeError), open_record(path, str(path)) as file:
            yield _DECODER.decode(read_line(file, 1, str(path)))
