"""LB106: the samples were free: loading them is not on the clock, or was done before it started."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import (
    claimed,
    compared,
    guilty,
    is_training,
    is_training_rate,
    not_stated,
    percent,
    sides,
)
from levelbench.claims.view import Claim, Side

_INPUT = re.compile(
    r"\b(input|(pre-?)?(load|fetch|read|decod|cach)(s|e[drs]?|ing)?|data ?(loader|pipeline))\b", re.IGNORECASE
)
_DO = "start the clock at the first touch of the data and leave loading and preparing on it"


def _check(claim: Claim) -> Iterator[Diagnostic]:
    about_input = any(_INPUT.search(text) for text in (claim.title, *(side.name for side in claim.sides)))
    ratios = compared(claim)
    asked = {side.name for _, side in claimed(claim) if about_input or _is_own_figure(side, ratios)}
    for field, side in sides(claim):
        timed = is_training(side) and side.time_s is not None
        if (timed or is_training_rate(claim, side)) and side.data.synthetic is not True:
            found = [*_clock(field, side), *(_before(field, side, about_input))]
            yield from (each for each in found if each.severity != "not-stated" or side.name in asked)


def _is_own_figure(side: Side, ratios: frozenset[str]) -> bool:
    """Whether input could be missing from what is claimed.

    A ratio of two programs has it on both sides, a run is whole by its name, and a ruleset says what its clock covers.
    """
    return side.time_of != "run" and side.clock.policy is None and side.name not in ratios


def _clock(field: str, side: Side) -> Iterator[Diagnostic]:
    stall = side.data.stall_share
    if side.clock.data is False:
        hidden = "" if not stall else f", and {percent(stall)} of the whole time waits for it"
        found = f"the input is not on the clock of '{side.name}'{hidden}"
        yield guilty(f"{field}.clock.data", found, _DO, side.where)
    elif side.clock.data is None:
        what = f"whether loading the samples is on the clock of '{side.name}'"
        yield not_stated(f"{field}.clock.data", what, _DO, side.where)


def _before(field: str, side: Side, about_input: bool) -> Iterator[Diagnostic]:
    """What was ready before the clock started is off the clock, even if the clock includes input."""
    data = side.data
    if data.in_memory is True:
        found = f"the data of '{side.name}' was in memory, prepared, before the clock started"
        do = f"{_DO}; or state the preparation time with the claim"
        yield guilty(f"{field}.data.in_memory", found, do, side.where, "warning")
    elif data.in_memory is None and about_input:
        what = f"whether the data of '{side.name}' was in memory before the clock started"
        yield not_stated(f"{field}.data.in_memory", what, _DO, side.where)
    if about_input and data.cold is not True and data.stall_share is None and side.clock.data is not False:
        caches = "whether caches were cold" if data.cold is None else "what a start with cold caches costs"
        what = f"{caches} at the start of '{side.name}', and which share of its time waits for input"
        do = "drop the caches before one run, or give the share of the time that waits for input"
        yield not_stated(f"{field}.data.stall_share", what, do, side.where)


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
