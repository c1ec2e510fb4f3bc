"""LB106: the samples came for nothing: their loading is not on the clock, or was done before it began."""

from __future__ import annotations

from collections.abc import Iterator

from levelbench.claims.rule import Finding, Rule
from levelbench.claims.rules._common import guilty, is_training, not_stated, percent, sides
from levelbench.claims.view import Claim, Side

__all__ = ["rule"]

_CODE = "LB106"
_DO = "start the clock at the first touch of the data and leave loading and preparing on it"


def _check(claim: Claim) -> Iterator[Finding]:
    for field, side in sides(claim):
        if is_training(side) and side.time_s is not None and side.data.synthetic is not True:
            yield from _clock(field, side)
            yield from _before(field, side)


def _clock(field: str, side: Side) -> Iterator[Finding]:
    stall = side.data.stall_share
    if side.clock.data is False:
        hidden = "" if not stall else f", and {percent(stall)} of the whole time waits for it"
        found = f"the input is not on the clock of '{side.name}'{hidden}"
        yield guilty(_CODE, f"{field}.clock.data", found, _DO, side.where)
    elif side.clock.data is None:
        what = f"whether loading the samples is on the clock of '{side.name}'"
        yield not_stated(_CODE, f"{field}.clock.data", what, _DO, side.where)


def _before(field: str, side: Side) -> Iterator[Finding]:
    """What was ready before the clock began is off the clock, even where the clock counts the input."""
    data = side.data
    if data.in_memory is True:
        found = f"the data of '{side.name}' lay in memory, prepared, before the clock began"
        do = f"{_DO}; or give the time of preparing beside the claim"
        yield guilty(_CODE, f"{field}.data.in_memory", found, do, side.where, "warning")
    elif data.in_memory is None:
        what = f"whether the data of '{side.name}' lay in memory before the clock began"
        yield not_stated(_CODE, f"{field}.data.in_memory", what, _DO, side.where)
    if data.cold is not True and data.stall_share is None and side.clock.data is not False:
        caches = "whether caches were cold" if data.cold is None else "what a start with cold caches costs"
        what = f"{caches} at the start of '{side.name}', and which share of its time waits for input"
        do = "drop the caches before one run, or give the share of the time that waits for input"
        yield not_stated(_CODE, f"{field}.data.stall_share", what, do, side.where)


rule = Rule(
    code=_CODE,
    name="no-input",
    way=6,
    why="A network that computes faster than its samples arrive is as fast as the samples.",
    point=(
        "Training reads its data many times over, and on a large machine everybody reads at once. Take the reading, "
        "decoding and copying off the clock, or do it all before the clock starts, and only computing is left: "
        "which is the part that scales."
    ),
    practice=(
        "Keep input on the clock from the first touch of the data. Report the share of the time that waits for it, "
        "and whether the first epoch read from a disk or from a warm cache."
    ),
    bad="4,900 images/s (batches lay in GPU memory already; the file system delivers 2,100).",
    good="30 s from the first byte read, 2 % of it waiting for input; page cache dropped before each run.",
    source="Hoefler, Twelve ways (2018), 6; DAWNBench's answers on what is timed (entries, issues 32 and 53)",
    reads=(
        "sides[].clock.data",
        "sides[].data.in_memory",
        "sides[].data.cold",
        "sides[].data.stall_share",
    ),
    blind=(
        "Work that was done days before and stored (resized images, cached features) looks like the data itself. "
        "Data that was not the task's is LB126."
    ),
    check=_check,
)
