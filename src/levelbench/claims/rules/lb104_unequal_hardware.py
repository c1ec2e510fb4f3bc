"""LB104: one side runs on the better machine, and the method gets the credit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import ComparedPair, guilty, not_stated, number, of_another, pairs, times
from levelbench.claims.rules._machines import ACCELERATOR, ResolvedHardware, machine_of, precision_of
from levelbench.claims.view import Claim, HardwareView
from levelbench.report.numbers import plural

_SKIPPED = {"quality", "operations", "cost"}
"""A quality or a count of operations does not depend on the hardware, and a cost includes its price."""
_OWN_SCALING = {"serial", "one-process"}
_WIDEST = ("float32", "tf32", "bfloat16", "float16", "float8", "float64")
"""Precisions to compare by default: the usual one for training first, then narrower ones."""
_BITS = {"float64": 64, "float32": 32, "tf32": 19, "float16": 16, "bfloat16": 16, "float8": 8, "int8": 8, "int4": 4}
_PRECISION = re.compile(
    r"precision|quanti[sz]|\b(?:half|amp|mixed|autocast)\b|bits?\b|(?<![a-z])[iu]?(?:int|fp|bf|tf|float|bfloat)[- ]?\d",
    re.IGNORECASE,
)
"""Words of a claim, or of a side's name, that more than the method differs."""
_MUCH = 1.5
_COUNT = re.compile(r"^\d+ ?(?:x ?)?")
_DIGITS, _PLURAL = re.compile(r"\d+"), re.compile(r"s\b")
_WORD = re.compile(r"[^\W_]+")
_ANY_MACHINE = {"nvidia", "amd", "intel", "tesla", "google", "gpu", "gpus", "x"}
_MACHINES = re.compile(r"\b(?:cards?|chips?|machines?|accelerators?|hardware|generations?)\b", re.IGNORECASE)
_YEARS = 3
_COUNTED = ("accelerators", "nodes", "cores")
_THREADS = re.compile(r"\b(?:threads?|threaded|cores?|serial|sequential|parallel\w*|scal(?:es|ing))\b", re.IGNORECASE)
"""Words of a claim that more threads are faster than fewer."""
_DO = "measure both sides on the same machine, or claim a difference between systems, not methods"


def _check(claim: Claim) -> Iterator[Diagnostic]:
    for pair in pairs(claim):
        stated = pair.new.hardware
        if pair.comparison.of in _SKIPPED:
            continue
        if stated == pair.base.hardware:
            yield from _narrower(pair, claim)
            if stated != HardwareView():
                continue
        new, base = machine_of(pair.new.hardware), machine_of(pair.base.hardware)
        yield from _unsaid(pair, new, base)
        yield from _single_core(pair, new, base)
        if not _are_machines(pair, new, base, claim):
            yield from _older(pair, new, base)
            yield from _weaker(pair, new, base)
            yield from _fewer(pair, new, base)
        yield from _idle_cores(pair, new, base, claim)


def _narrower(pair: ComparedPair, claim: Claim) -> Iterator[Diagnostic]:
    """A method on the same machine in a narrower precision, of which neither the claim nor a name says anything."""
    ours, theirs = precision_of(pair.new), precision_of(pair.base)
    narrow, wide = _BITS.get(ours or ""), _BITS.get(theirs or "")
    said = " ".join((claim.title, pair.new.name, pair.base.name))
    if narrow is None or wide is None or narrow >= wide or _PRECISION.search(said):
        return
    found = f"'{pair.new.name}' computes in {ours}, and '{pair.base.name}' in {theirs}"
    do = "give both sides the same precision, or claim what the narrower one gains"
    yield guilty(f"{pair.new_field}.operations.precisions", found, do, pair.where, "warning")


def _are_machines(pair: ComparedPair, new: ResolvedHardware, base: ResolvedHardware, claim: Claim) -> bool:
    """Whether both sides are called by their hardware alone: machines are compared, and not what runs on them.

    So must the claim say, unless it is a table, whose title says nothing of what is claimed.
    """
    names = _words(pair.new.name) | _words(pair.base.name)
    said = claim.read_from == "page" or _MACHINES.search(claim.title) or names <= _words(claim.title)
    if of_another(pair) or not said:
        return False
    both = ((pair.new, new), (pair.base, base))
    return all(set() < _words(side.name) <= _words(machine.name) for side, machine in both)


def _words(name: str) -> set[str]:
    """The words of a machine's name, without those that every machine's name may have."""
    return {word for word in map(str.lower, _WORD.findall(_COUNT.sub("", name.strip()))) if word not in _ANY_MACHINE}


def _unsaid(pair: ComparedPair, new: ResolvedHardware, base: ResolvedHardware) -> Iterator[Diagnostic]:
    if new.part and new[:2] == base[:2]:
        return
    if pair.new.hardware == pair.base.hardware and not of_another(pair):
        # One program in two settings: its author has timed both, and had no reason to do so on two machines.
        return
    for side, field, machine in ((pair.new, pair.new_field, new), (pair.base, pair.base_field, base)):
        other = base if machine is new else new
        if not machine.known or (other.accelerated and machine.only_cores and machine.cores_used != 1):
            what = f"the release year and the peak of '{machine.name}' (side '{side.name}'): not in the table either"
            if side.hardware == HardwareView():
                what = f"on which hardware '{side.name}' was measured"
            do = "name the hardware; where the table has no entry, state year, peak FLOP/s by precision and bandwidth"
            yield not_stated(f"{field}.hardware.description", what, do, side.where)
        elif not machine.counted:
            what = f"how many of '{machine.name}' the side '{side.name}' used"
            yield not_stated(f"{field}.hardware.accelerators", what, "give their number", side.where)


def _single_core(pair: ComparedPair, new: ResolvedHardware, base: ResolvedHardware) -> Iterator[Diagnostic]:
    """A processor with only a few cores in use, compared with an accelerator."""
    used, cores = base.cores_used, base.cores
    accelerated = new.accelerated or (new.accelerated is None and ACCELERATOR.search(pair.new.name.lower()))
    if (
        not accelerated
        or base.accelerated is not False
        or used is None
        or (used > 1 and (cores is None or used >= cores))
    ):
        return
    of = f" of {cores:,}" if cores is not None and cores > used else ""
    found = f"the base uses {plural(used, 'core')}{of} of '{base.name}', and the new side '{new.name}'"
    do = "use all cores and the processor's own vector library for the base, or compare with an accelerator"
    field = f"{pair.base_field}.hardware.threads_used"
    yield guilty(field, found, do, pair.where, "error" if used == 1 else "warning")


def _older(pair: ComparedPair, new: ResolvedHardware, base: ResolvedHardware) -> Iterator[Diagnostic]:
    if new.year is None or base.year is None or new.year - base.year < _YEARS:
        return
    found = f"'{base.name}' of the base is from {base.year}, '{new.name}' from {new.year}: {new.year - base.year} years"
    do = "compare with the hardware that could be bought when the new one could"
    yield guilty(f"{pair.base_field}.hardware.release_year", found, do, pair.where, "warning")


def _peaks(pair: ComparedPair, new: ResolvedHardware, base: ResolvedHardware) -> dict[str, float]:
    """The ratio of the peaks in the precisions used; if these are not stated, in the widest that both have.

    A peak in a precision that is not stated to have been used explains nothing.
    """
    ours, theirs = precision_of(pair.new), precision_of(pair.base)
    if not new.peaks.get(ours or "") or not base.peaks.get(theirs or ""):
        wanted = [each for each in (ours, theirs) if each is not None]
        common = [each for each in (*wanted, *_WIDEST) if new.peaks.get(each) and base.peaks.get(each)]
        ours = theirs = common[0] if common else None
    if ours is None or theirs is None:
        return {}
    name = f"{ours} peak" if ours == theirs else f"peak as used ({ours} against {theirs})"
    return {name: new.peaks[ours] / base.peaks[theirs]}


def _ratios(pair: ComparedPair, new: ResolvedHardware, base: ResolvedHardware) -> dict[str, float]:
    """The ratios of the new side's machine to the base's, for every figure known of both."""
    ratios = _peaks(pair, new, base)
    for name in ("bandwidth", "power_w", "price_per_hour"):
        ours, theirs = getattr(new, name), getattr(base, name)
        if ours is not None and theirs:
            ratios[_NAMES[name]] = ours / theirs
    return ratios


_NAMES = {"bandwidth": "memory bandwidth", "power_w": "power", "price_per_hour": "price"}


def _weaker(pair: ComparedPair, new: ResolvedHardware, base: ResolvedHardware) -> Iterator[Diagnostic]:
    """The machines' peaks decide; price and power count only if no peak or bandwidth is known for both."""
    same_part = bool(new.part) and new.part == base.part
    if same_part and (pair.comparison.base_kind in _OWN_SCALING or _scales(pair)):
        return
    ratios = _ratios(pair, new, base)
    deciding = {name: ratio for name, ratio in ratios.items() if name not in {"power", "price"}} or ratios
    if not deciding or max(deciding.values()) < _MUCH:
        return
    listed = ", ".join(f"{name} {times(ratio)}" for name, ratio in sorted(ratios.items(), key=lambda each: -each[1]))
    found = f"'{new.name}' has more than '{base.name}' of the base: {listed}{_credit(pair, max(deciding.values()))}"
    taken = [f"'{each.name}' is assumed to be {each.matched}" for each in (new, base) if each.matched]
    found += f" ({'; '.join(dict.fromkeys(taken))})" if taken else ""
    yield guilty(f"{pair.new_field}.hardware", found, _DO, pair.where, "warning")


def _fewer(pair: ComparedPair, new: ResolvedHardware, base: ResolvedHardware) -> Iterator[Diagnostic]:
    """More devices or nodes of a kind that neither side names: 64 GPUs against 8."""
    counts = {name: (getattr(pair.new.hardware, name), getattr(pair.base.hardware, name)) for name in _COUNTED}
    field, (ours, theirs) = next(((name, both) for name, both in counts.items() if all(both)), ("", (None, None)))
    kinds = {_COUNT.sub("", machine.name.lower()) for machine in (new, base)}
    figures = any(machine.known and not machine.only_cores for machine in (new, base))
    if not ours or not theirs or figures or len(kinds) > 1 or ours < _MUCH * theirs:
        return
    if pair.comparison.base_kind in _OWN_SCALING or _scales(pair):
        return
    found = f"'{pair.new.name}' has {ours:,} {field}, and '{pair.base.name}' {theirs:,}{_credit(pair, ours / theirs)}"
    yield guilty(f"{pair.new_field}.hardware.{field}", found, _DO, pair.where, "warning")


def _idle_cores(
    pair: ComparedPair, new: ResolvedHardware, base: ResolvedHardware, claim: Claim
) -> Iterator[Diagnostic]:
    """A base that leaves cores of the same processor idle which the new side uses, where threads are not the claim."""
    ours, theirs = pair.new.hardware.threads_used, pair.base.hardware.threads_used
    if new.accelerated or base.accelerated or new.part != base.part or not ours or not theirs or ours < _MUCH * theirs:
        return
    said = " ".join((claim.title, pair.new.name, pair.base.name))
    if pair.comparison.base_kind in _OWN_SCALING or (not of_another(pair) and _THREADS.search(said)):
        return
    found = f"'{pair.base.name}' uses {plural(theirs, 'thread')} of '{base.name}', and '{pair.new.name}' {ours:,}"
    do = "give the base as many threads, or claim what one thread of each does"
    found += _credit(pair, ours / theirs)
    yield guilty(f"{pair.base_field}.hardware.threads_used", found, do, pair.where, "warning")


def _scales(pair: ComparedPair) -> bool:
    """Whether more ranks are what is claimed, so that more of the same hardware is no advantage but the subject.

    Against another system it is one: its ranks are more, and the method is another.
    """
    if pair.comparison.base_kind == "other-system":
        return False
    new, base = pair.new.workload.ranks, pair.base.workload.ranks
    return (new is not None and base is not None and new > base) or _counted_in_names(pair)


def _counted_in_names(pair: ComparedPair) -> bool:
    """Whether the names differ in the number of devices alone: ``8 GPUs`` and ``1 GPU``."""
    both = (pair.new, pair.base)
    apart = [_PLURAL.sub("", _DIGITS.sub("#", side.name.lower())) for side in both]
    counts = [side.hardware.accelerators or side.hardware.nodes for side in both]
    said = all(str(count) in _DIGITS.findall(side.name) for count, side in zip(counts, both, strict=True))
    return apart[0] == apart[1] and counts[0] != counts[1] and said


def _credit(pair: ComparedPair, most: float) -> str:
    ratio = pair.comparison.ratio
    if ratio is None or ratio <= 1.0:
        return ""
    if ratio <= most:
        return f"; the hardware alone can explain the claimed {number(ratio)}"
    unsaid = precision_of(pair.new) is None or precision_of(pair.base) is None
    more = ", more where a narrower precision was used" if unsaid else ""
    return f"; of the claimed ratio of {number(ratio)}, the hardware can explain up to {number(most)}{more}"


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
