"""LB126: the samples were made up, so nothing had to be read, and nothing could be learnt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import (
    compared,
    guilty,
    is_training,
    is_training_rate,
    not_stated,
    sides,
)
from levelbench.claims.view import Claim, Side

_MADE_UP = re.compile(r"(?<![a-z])(synthetic|dummy|fake|random|generated)(?![a-z])")
_BOUND = re.compile(r"\b(?:bound|limit|ceiling|synthetic|dummy|fixed batch|input costs|cost of input)\b", re.IGNORECASE)
_ALONE = re.compile(
    r"\b(?:comput(?:e|ing|ation)|kernels?)(?: alone|[- ]only)\b|"
    r"\bwithout (?:any )?(?:input|reading|decoding|(?:data[- ])?loading|i/?o)\b",
    re.IGNORECASE,
)
_DO = "measure with the task's own data, read from where a user would have it"


def _check(claim: Claim) -> Iterator[Diagnostic]:
    ratios = compared(claim)
    for field, side in sides(claim):
        learns = side.time_of == "call" and side.quality.value is not None
        if is_training(side) or is_training_rate(claim, side) or learns:
            yield from _judged(f"{field}.data", side, claim, ratios)


def _judged(field: str, side: Side, claim: Claim, ratios: frozenset[str]) -> Iterator[Diagnostic]:
    data = side.data
    if data.synthetic is True:
        if side.time_of in {"target", "run"} or side.quality.value is not None or _for_the_whole(claim, side):
            found = f"'{side.name}' ran on synthetic data, but a result on the task is claimed"
            yield guilty(f"{field}.synthetic", found, _DO, side.where)
        elif not (_is_alone(claim, side) or _bounds_another(claim, side)):
            figure = "rate" if side.time_s is None else f"time of a {side.time_of}"
            found = f"the {figure} of '{side.name}' used synthetic data: nothing was read or decoded"
            do = f"{_DO}, or call it the speed of computation alone"
            yield guilty(f"{field}.synthetic", found, do, side.where, "warning")
    elif data.synthetic is None:
        if data.name and _MADE_UP.search(data.name.lower()):
            found = f"the data of '{side.name}' is called '{data.name}'"
            do = f"{_DO}, or state that it is the task's own"
            yield guilty(f"{field}.name", found, do, side.where, "warning")
        elif _could_be_made_up(side, ratios):
            what = f"whether the data of '{side.name}' is the task's own"
            yield not_stated(f"{field}.synthetic", what, "name the data and its checksums", side.where)


def _could_be_made_up(side: Side, ratios: frozenset[str]) -> bool:
    """Whether made-up samples would give its figure: the own time of a step or an epoch on data that has no name.

    Nothing that has a quality can be learnt from them, and a ratio has the same data on both sides.
    """
    learns = side.quality.value is not None or side.quality.target is not None
    return side.time_of in ("step", "epoch") and not (learns or side.data.name or side.name in ratios)


def _is_alone(claim: Claim, side: Side) -> bool:
    """Whether it is called the speed of computation alone."""
    return any(_ALONE.search(text) for text in (claim.title, side.name))


def _bounds_another(claim: Claim, side: Side) -> bool:
    """Whether it is called the bound of a figure with the task's data, and is not what is claimed to be better."""
    if not any(_BOUND.search(text) for text in (claim.title, side.name)):
        return False
    real = any(each.data.synthetic is False and (each.time_s or each.throughput) for each in claim.sides)
    return real and all(each.new != side.name for each in claim.comparisons)


def _for_the_whole(claim: Claim, side: Side) -> bool:
    """Whether a comparison presents it as a time to the target."""
    return any(each.of == "target" and side.name in {each.new, each.base} for each in claim.comparisons)


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
