"""LB109: samples or batches are far larger than the task needs, so that there is enough to compute."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import (
    ComparedPair,
    direction_of,
    guilty,
    not_stated,
    number,
    pairs,
    percent,
    seconds,
    sides,
    times,
)
from levelbench.claims.view import Claim, Side

_FAR = 4.0
"""The factor from which on a size is far above the usual: an image of twice the width and height."""
_FAR_BATCH = 8.0
_EXCESSIVE = 1e12
"""Operations per sample from which on Hoefler asks for a good argument."""
_DO = "show what the size gains: the quality and the cost next to those of the usual size on the same data"
_SIZES = {
    "flops_per_sample": "operations per sample",
    "input_size": "elements per sample",
    "global_batch": "samples per batch",
}


class _Usual(NamedTuple):
    """What is usual for the task, with the figures to compare the gain with."""

    name: str
    size: float
    quality: float | None
    cost_usd: float | None
    time_s: float | None


def _check(claim: Claim) -> Iterator[Diagnostic]:
    stated = {name: _of_standards(claim, name) for name in _SIZES}
    bases = {pair.new.name: pair for pair in pairs(claim)}
    for field, side in sides(claim):
        judged = False
        for name, unit in _SIZES.items():
            usual = stated[name] or _of_base(bases.get(side.name), name)
            size = getattr(side.workload, name)
            if size is None or not usual:
                continue
            judged = judged or name != "global_batch"
            # The largest of the known entries: a size that another entry needed is not excessive.
            largest = max(usual, key=lambda one: one.size)
            if size >= (_FAR_BATCH if name == "global_batch" else _FAR) * largest.size:
                yield from _judge(f"{field}.workload.{name}", side, f"{number(size)} {unit}", size, largest)
                break
        if not judged and (side.workload.flops_per_sample or 0.0) >= _EXCESSIVE:
            what = f"why '{side.name}' needs {number(side.workload.flops_per_sample or 0.0)} operations per sample"
            what += ", and what is usual for its task"
            yield not_stated("standards", what, _DO, side.where)


def _of_standards(claim: Claim, name: str) -> list[_Usual]:
    known = [(one, getattr(one, name)) for one in claim.standards]
    return [_Usual(one.name, size, one.quality, one.cost_usd, one.time_s) for one, size in known if size]


def _of_base(pair: ComparedPair | None, name: str) -> list[_Usual]:
    """Without a standard, the baseline is taken as usual; a comparison of times to the target shows the gain itself."""
    size = None if pair is None else getattr(pair.base.workload, name)
    if pair is None or not size:
        return []
    timed = pair.comparison.of is None and pair.new.time_of == pair.base.time_of == "target"
    if timed or pair.comparison.of in {"target", "cost"} or (name == "global_batch" and _shared_out(pair)):
        return []
    same = pair.base.quality.metric == pair.new.quality.metric
    quality = pair.base.quality.value if same else None
    whole = {pair.base.time_of, pair.new.time_of} == {"target"}
    return [_Usual(pair.base.name, size, quality, pair.base.cost_usd, pair.base.time_s if whole else None)]


def _shared_out(pair: ComparedPair) -> bool:
    """Whether the batch of a rank is about the same: a batch that grows with the ranks gains time (LB111, LB101)."""
    new, base = pair.new.workload, pair.base.workload
    if not (new.global_batch and base.global_batch and new.ranks and base.ranks):
        return False
    return new.global_batch / new.ranks < _FAR_BATCH * base.global_batch / base.ranks


def _judge(field: str, side: Side, has: str, size: float, usual: _Usual) -> Iterator[Diagnostic]:
    found = f"'{side.name}' has {has}, {times(size / usual.size)} those of '{usual.name}'"
    gained, cheaper = _gain(side, usual), _cheaper(side, usual)
    if gained is None and not cheaper:
        what = f"what the size gains in quality ({found})"
        yield not_stated(field, what, _DO, side.where)
    elif cheaper is None and not gained and field.endswith("global_batch"):
        # What a batch gains is time, which is not given.
        what = f"what the batch gains in time or cost ({found})"
        yield not_stated(field, what, _DO, side.where)
    elif gained and cheaper is None:
        what = f"what the gain in quality costs ({found})"
        yield not_stated(field, what, _DO, side.where)
    elif not gained and not cheaper:
        paid = _paid(side, usual)
        quality = f"quality {number(side.quality.value or 0.0, 4)} against {number(usual.quality or 0.0, 4)}"
        if cheaper is None:
            yield guilty(field, f"{found}, for no better result ({quality})", _DO, side.where, "warning")
        else:
            yield guilty(field, f"{found}, for no better result ({quality}) and {paid}", _DO, side.where)


def _gain(side: Side, usual: _Usual) -> bool | None:
    """Whether the quality is better by more than its interval; ``None`` if one of them is unknown."""
    sign, quality = direction_of(side.quality), side.quality
    if sign is None or quality.value is None or usual.quality is None:
        return None
    ends = [end for end in (quality.value, quality.low, quality.high) if end is not None]
    return min(sign * end for end in ends) > sign * usual.quality


def _cheaper(side: Side, usual: _Usual) -> bool | None:
    """Whether it costs less, judged by time if no costs are known."""
    if side.cost_usd is not None and usual.cost_usd is not None:
        return side.cost_usd < usual.cost_usd
    if side.time_of == "target" and side.time_s is not None and usual.time_s is not None:
        return side.time_s < usual.time_s
    return None


def _paid(side: Side, usual: _Usual) -> str:
    if side.cost_usd is not None and usual.cost_usd:
        return f"{percent(side.cost_usd / usual.cost_usd)} of the cost"
    return f"{seconds(side.time_s or 0.0)} against {seconds(usual.time_s or 0.0)}"


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
