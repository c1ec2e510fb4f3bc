"""LB302: the implementation compared with does not reach its known quality, or that was not checked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import (
    ComparedPair,
    Level,
    beyond,
    far_worse,
    guilty,
    level_of,
    not_stated,
    number,
    of_another,
    pairs,
    sides,
)
from levelbench.claims.view import Claim, QualityView, Side

_DO = "first show that the reference reaches what its source reports: same metric and split, with an interval"


def _check(claim: Claim) -> Iterator[Diagnostic]:
    bases = {pair.base.name: pair for pair in pairs(claim) if pair.comparison.of != "kernel"}
    for field, side in sides(claim):
        if side.name not in bases and not side.reference:
            continue
        short = _short(side)
        if short:
            role = "is called a verified reference" if side.reference else "is the baseline"
            do = f"{_DO}; a bug that costs quality may be what makes it fast or slow"
            yield guilty(f"{field}.quality.value", f"'{side.name}' {role}, but {short}", do, side.where)
        elif side.name in bases and side.reference is False:
            found = f"'{side.name}', which '{bases[side.name].new.name}' is compared with, is not a verified reference"
            yield guilty(f"{field}.reference", found, _DO, side.where, "warning")
        elif below := _below(side):
            what = f"the interval of a quality below the usual one ('{side.name}': {below})"
            yield not_stated(f"{field}.quality.value", what, "give its interval over several seeds", side.where)
        elif side.name in bases and side.reference is None and not _shown(side) and _in_doubt(bases[side.name]):
            what = f"whether the baseline '{side.name}' reaches what its source reports"
            yield not_stated(f"{field}.reference", what, _DO, side.where)


def _in_doubt(pair: ComparedPair) -> bool:
    """Whether the base has a quality to reach, and was run by whoever compares: figures of its source need no proof."""
    if pair.base.quality.standard is not None:
        return True
    return of_another(pair) and pair.comparison.of in {"target", "quality"} and pair.base.source is None


def _short(side: Side) -> str:
    """How the side surely falls short of the usual solution, in words; empty if it does not, or this is unknown."""
    usual, level = _usual(side.quality), level_of(side.quality)
    # As to one value without an interval, a small gap is what seeds differ by.
    if usual and level and (beyond(usual, level) or (not level.has_interval and far_worse(usual, level))):
        return _below(side)
    if side.runs_reached == 0 and side.runs_made and side.quality.target is not None:
        return f"0 of its {side.runs_made} runs reached the target of {number(side.quality.target, 4)}"
    return ""


def _below(side: Side) -> str:
    """A quality below the usual one, with both in words; empty if it is not, or this is unknown."""
    usual, level = _usual(side.quality), level_of(side.quality)
    if usual is None or level is None or _shown(side):
        return ""
    return f"its {side.quality.metric or 'quality'} is {level.text}, where {usual.text} is usual"


def _usual(quality: QualityView) -> Level | None:
    """The usual quality, which has no interval."""
    return level_of(msgspec.structs.replace(quality, value=quality.standard, low=None, high=None))


def _shown(side: Side) -> bool:
    """Whether the figures show it without a statement: a quality not below the usual one."""
    usual, level = _usual(side.quality), level_of(side.quality)
    return usual is not None and level is not None and level.high >= usual.value


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
