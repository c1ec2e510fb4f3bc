"""LB208: a time is given without the method, or the clock was read before the work was done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import guilty, not_stated, seconds, sides
from levelbench.claims.rules._machines import machine_of
from levelbench.claims.view import Claim, Side

_BENCHMARKS = ("mlperf", "dawnbench", "algoperf")
_SHORT = ("step", "call", "epoch")
_DO = "state the clock, its start and end, how devices and ranks were synchronised, and what was warm-up"


def _check(claim: Claim) -> Iterator[Diagnostic]:
    for field, side in sides(claim):
        if side.time_s is not None:
            yield from _timed(side, f"{field}.timing")


def _timed(side: Side, field: str) -> Iterator[Diagnostic]:
    timing, time = side.timing, f"the {seconds(side.time_s or 0.0)} of '{side.name}'"
    short = side.time_of in _SHORT
    # The rules of a benchmark say how a whole run is timed, though not how a step is.
    if timing.method is None and (short or side.clock.policy not in _BENCHMARKS):
        yield not_stated(f"{field}.method", f"how {time} were measured", _DO, side.where)
    if short and timing.synchronised is False and _is_asynchronous(side):
        found = f"{time} were read without waiting for the work of {_parts(side)}"
        do = "wait for the device (and for all ranks) before each reading of the clock, or use device events"
        yield guilty(f"{field}.synchronised", found, do, side.where)
    elif short and timing.synchronised is None and _is_asynchronous(side):
        what = f"whether {time} waited for the work of {_parts(side)}"
        yield not_stated(f"{field}.synchronised", what, _DO, side.where)
    if side.time_of in ("step", "call") and timing.warmup is False:
        found = f"{time} include the first measurements, which load, allocate and compile"
        do = "leave out the first measurements and say how many, or report the first and the rest separately"
        yield guilty(f"{field}.warmup", found, do, side.where, "warning")


def _is_asynchronous(side: Side) -> bool:
    """Whether the host continues before the work is done: on an accelerator, or with other ranks."""
    return (side.workload.ranks or 1) > 1 or machine_of(side.hardware).accelerated is True


def _parts(side: Side) -> str:
    ranks = side.workload.ranks or 1
    return f"{ranks:,} ranks" if ranks > 1 else side.hardware.accelerator or "the accelerator"


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
