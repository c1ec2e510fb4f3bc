"""LB107: the result is a rate of operations, without saying which operations or what they achieved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import ComparedPair, guilty, not_stated, number, pairs, percent, sides, times
from levelbench.claims.rules._machines import machine_of, precision_name
from levelbench.claims.view import Claim, Side

_FRACTIONS = "give the share of the operations at each precision"
_SHARE = "give the rate as a share of the peak (or of the roof) for the precision that was used"
_PROGRESS = "compare the time to the target, or the operations until it was reached"

_NEARLY_ALL = 0.9
"""The share of operations from which on a share of the peak may be given for their precision alone."""

_RATE = re.compile(
    r"(?:\b\d[\d.,]* ?)?\b(?:effective )?(?:[kmgtpe]|kilo|mega|giga|tera|peta|exa)[- ]?(?:flops?|ops)\b"
    r"(?:/s| (?:per|a) second)?|\bflop/s",
    re.IGNORECASE,
)
_PRECISION = re.compile(
    r"\b(?:(?:fp|bf|tf|float|bfloat|int|uint)[- ]?\d+|\d+[- ]bits?|(?:single|double|half|mixed)[- ]precision)\b",
    re.IGNORECASE,
)
_NOTIONAL = re.compile(r"\b(?:effective|equivalent)\b(?=.{0,20}op)|\bwhatever is (?:really )?executed", re.IGNORECASE)
_EXECUTED = re.compile(r"(?<!not )\b(?:as|are|were) executed", re.IGNORECASE)
"""Words that say that the operations are those of the machine, and not of another algorithm."""


def _check(claim: Claim) -> Iterator[Diagnostic]:
    for field, side in sides(claim):
        if side.operations.flops is not None:
            yield from _precision(f"{field}.operations", side)
            yield from _share(f"{field}.operations", side)
            if side.operations.counted_as is None:
                what = f"how the operations of '{side.name}' were counted"
                do = "say how many operations a multiply-add is, and whether recomputation counts"
                yield not_stated(f"{field}.operations.counted_as", what, do, side.where)
    yield from _headline(claim)
    for pair in pairs(claim):
        if pair.comparison.of == "operations":
            yield from _unlike(pair)
        yield from _progress(pair)


def _headline(claim: Claim) -> Iterator[Diagnostic]:
    """A rate of operations as the claim itself, of a precision that nothing names, or of operations not executed."""
    rates = [(field, side) for field, side in sides(claim) if side.operations.flops is not None]
    if not rates:
        yield from _untold(claim)
    if not rates or not (said := _RATE.search(claim.title)):
        return
    field, side = rates[0]
    words = " ".join([claim.title, *(each.operations.counted_as or "" for _, each in rates)])
    named = any(
        each.operations.precisions
        or each.operations.mixed
        or (each.operations.share_of_peak and each.hardware.peak_flops)
        for _, each in rates
    )
    if not named and not _PRECISION.search(words):
        found = f"the claim is a rate of operations ('{said[0].strip()}'), and nothing says in which precision"
        yield guilty(f"{field}.operations.precisions", found, _FRACTIONS, side.where, "warning")
    if (notional := _NOTIONAL.search(words)) and not _EXECUTED.search(words):
        found = f"the claim is a rate of operations called '{notional[0]}': counted, and not all executed"
        do = "give the rate of the operations that are executed, or the ratio of the times"
        yield guilty(f"{field}.operations.counted_as", found, do, side.where, "warning")


def _untold(claim: Claim) -> Iterator[Diagnostic]:
    """A rate per second in the title alone: without ``/s`` it may be how many operations a network has."""
    said = _RATE.search(claim.title)
    per_second = said is not None and re.search(r"/s|second", said[0] + claim.title[said.end() :][:3])
    told = _PRECISION.search(claim.title) or any(side.operations.precisions for side in claim.sides)
    if said and per_second and not told:
        yield not_stated("title", f"in which precision the '{said[0].strip()}' are", _FRACTIONS, claim.where)


def _shares(side: Side) -> dict[str, float]:
    """Share of the operations by precision, under normalised names, largest first."""
    found: dict[str, float] = {}
    for name, share in side.operations.precisions.items():
        known = precision_name(name)
        if share > 0:
            found[known] = found.get(known, 0.0) + share
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _whole(shares: dict[str, float]) -> bool:
    return abs(sum(shares.values()) - 1.0) <= 0.01


def _text(shares: dict[str, float]) -> str:
    return ", ".join(f"{name} {percent(share)}" for name, share in shares.items())


def _precision(field: str, side: Side) -> Iterator[Diagnostic]:
    shares, mixed = _shares(side), side.operations.mixed
    rate = f"{number(side.operations.flops or 0.0)} FLOP/s of '{side.name}'"
    if mixed and len(shares) < 2:
        given = f"only {_text(shares)} is given" if shares else "no share of any precision is given"
        found = f"the {rate} are said to use mixed precision, but {given}"
        yield guilty(f"{field}.precisions", found, _FRACTIONS, side.where, "warning")
    elif not shares:
        what = f"the precision of the {rate}"
        yield not_stated(f"{field}.precisions", what, _FRACTIONS, side.where)
    elif not _whole(shares):
        found = f"the shares behind the {rate} ({_text(shares)}) sum to {percent(sum(shares.values()))}, not 100 %"
        yield guilty(f"{field}.precisions", found, _FRACTIONS, side.where, "warning")


def _peak(side: Side) -> float | None:
    """The rate that the hardware allows for this mixture: each share takes its time at the peak of its precision.

    Peaks that are not stated come from the table; ``None`` if one is missing, or the mixture is unknown.
    """
    peaks, shares = _peaks(side), _shares(side)
    if not _whole(shares) or len(peaks) < len(shares):
        return None
    time = sum(share / peaks[name] for name, share in shares.items())
    return 1.0 / time if time > 0 else None


def _peaks(side: Side) -> dict[str, float]:
    """The peak of the hardware in each precision that was used, where it is known."""
    known = {precision_name(name): peak for name, peak in machine_of(side.hardware).peaks.items()}
    return {name: known[name] for name in _shares(side) if known.get(name)}


def _is_share(stated: float, rate: float, peak: float, side: Side) -> bool:
    """Whether it is the share of the mixture's ``peak``, or of that in the precision of nearly all operations."""
    nearly_all = {name for name, share in _shares(side).items() if share >= _NEARLY_ALL}
    peaks = [peak, *(each for name, each in _peaks(side).items() if name in nearly_all)]
    return any(abs(stated * peak - rate) <= 0.1 * rate for peak in peaks)


def _share(field: str, side: Side) -> Iterator[Diagnostic]:
    rate, stated, peak = side.operations.flops or 0.0, side.operations.share_of_peak, _peak(side)
    label = f"the {number(rate)} FLOP/s of '{side.name}'"
    if peak is not None and rate > 1.001 * peak:
        found = f"{label} are {times(rate / peak)} the peak of its hardware in {', '.join(_shares(side))}"
        do = "count each operation once, at the precision it ran in, and divide by the total time"
        yield guilty(f"{field}.flops", found, do, side.where)
    elif stated is not None and stated > 1.0:
        found = f"{label} are said to be {percent(stated)} of the peak"
        yield guilty(f"{field}.share_of_peak", found, _SHARE, side.where)
    elif stated is not None and peak is not None and not _is_share(stated, rate, peak, side):
        found = f"{label} are said to be {percent(stated)} of the peak, and are {percent(rate / peak)}"
        found += f" of the peak in {', '.join(_shares(side))}, {number(peak)} FLOP/s"
        yield guilty(f"{field}.share_of_peak", found, _SHARE, side.where, "warning")
    elif stated is None and peak is None:
        what = f"which share of the peak {label} are"
        yield not_stated(f"{field}.share_of_peak", what, _SHARE, side.where)


def _unlike(pair: ComparedPair) -> Iterator[Diagnostic]:
    """Two rates are comparable if the same things were counted."""
    new, base = _shares(pair.new), _shares(pair.base)
    if new and base and next(iter(new)) != next(iter(base)):
        found = f"operations in {_text(new)} ('{pair.new.name}') are compared with {_text(base)} ('{pair.base.name}')"
        do = "compare rates of one precision, or the time to the same quality"
        yield guilty(f"{pair.field}.of", found, do, pair.where)
    one, other = pair.new.operations.counted_as, pair.base.operations.counted_as
    if one and other and " ".join(one.lower().split()) != " ".join(other.lower().split()):
        found = f"the operations of '{pair.new.name}' are counted as '{one}', those of '{pair.base.name}' as '{other}'"
        do = "count both by one convention"
        yield guilty(f"{pair.field}.of", found, do, pair.where)


def _progress(pair: ComparedPair) -> Iterator[Diagnostic]:
    """A higher rate with more operations to the target. A compared time to the target includes this already."""
    of, new, base = pair.comparison.of, pair.new.operations, pair.base.operations
    timed = of is None and pair.new.time_of == pair.base.time_of == "target"
    if of in {"target", "cost", "quality"} or timed:
        return
    field = f"{pair.new_field}.operations.to_target"
    if new.to_target is None or not base.to_target:
        if of == "operations":
            what = f"how many operations '{pair.new.name}' and '{pair.base.name}' need until the target is reached"
            yield not_stated(field, what, _PROGRESS, pair.where)
        return
    more = new.to_target / base.to_target
    rate = pair.comparison.ratio if of in {"operations", "throughput"} else None
    if rate is None and new.flops is not None and base.flops:
        rate = new.flops / base.flops
    if more <= 1.02 or rate is None or rate <= 1.0:
        return
    found = f"'{pair.new.name}' has {times(rate)} the rate of '{pair.base.name}' and needs {times(more)} the operations"
    found += f" to reach the target: {times(rate / more)} the progress"
    yield guilty(field, found, _PROGRESS, pair.where, "error" if rate < more else "warning")


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
