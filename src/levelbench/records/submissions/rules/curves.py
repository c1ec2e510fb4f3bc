"""Rules about curves: whole, going forward, on their scale, and those that were submitted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import le, lt

from levelbench.records.submissions.digests import curve_digest
from levelbench.records.submissions.rules.entry import Entry, shown
from levelbench.records.submissions.rules.findings import Finding
from levelbench.records.submissions.schema import Curve, SubmittedRun

__all__ = ["curves"]

_DRIFT = 0.05
"""By how much the samples of an epoch may vary over a curve before they contradict each other."""


def curves(entry: Entry) -> Iterator[Finding]:
    """Every curve, by every rule about one curve."""
    for at, run in enumerate(entry.submission.runs):
        yield from _columns(entry, run, f"runs[{at}].curve")
        yield from _digest(entry, run, f"runs[{at}].curve_digest")


def _columns(entry: Entry, run: SubmittedRun, at: str) -> Iterator[Finding]:
    curve = run.curve
    if _is_plain(curve):
        yield from _forward(entry, curve, at)
        yield from _scale(entry, curve, at)
        return
    columns: dict[str, Sequence[float] | None] = {
        "time_s": curve.time_s,
        "quality": curve.quality,
        "epoch": curve.epoch,
        "samples": curve.samples,
        **{f"others.{shown(name, 40)[1:-1]}": values for name, values in curve.others.items()},
    }
    stated = {name: values for name, values in columns.items() if values is not None}
    lengths = {name: len(values) for name, values in stated.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name} {length}" for name, length in lengths.items())
        yield entry.error("B130", at, f"values: {found}", "give every column one value an evaluation")
        return
    if not curve.time_s:
        if run.status == "done":
            yield entry.error("B134", at, "a run that is done without an evaluation", "submit its curve")
        return
    infinite = [name for name, values in stated.items() if not _finite(values)]
    for name in infinite:
        yield entry.error("B137", f"{at}.{name}", "a value is not finite", "end the curve before it")
    if not infinite:
        yield from _forward(entry, curve, at)
        yield from _scale(entry, curve, at)


def _is_plain(curve: Curve) -> bool:
    """Whether it has two columns, of one length and of finite numbers, as nearly all have: no closer look is needed."""
    alone = curve.epoch is None and curve.samples is None and not curve.others
    whole = alone and len(curve.time_s) == len(curve.quality) > 0
    return whole and math.isfinite(sum(curve.time_s)) and math.isfinite(sum(curve.quality))


def _finite(values: Sequence[float]) -> bool:
    # A sum is finite if all are, but that it may overflow: only then is each looked at.
    return math.isfinite(sum(values)) or all(map(math.isfinite, values))


def _forward(entry: Entry, curve: Curve, at: str) -> Iterator[Finding]:
    time_s = curve.time_s
    if not all(map(lt, time_s, time_s[1:])):
        number, (before, after) = next((i, pair) for i, pair in enumerate(pairwise(time_s), 1) if pair[1] <= pair[0])
        found = f"{before:.10g} s, then {after:.10g} s"
        yield entry.error("B131", f"{at}.time_s[{number}]", found, "give the seconds since the start, in order")
    if time_s[0] < 0:
        yield entry.error("B131", f"{at}.time_s[0]", f"{time_s[0]:.10g} s", "give the seconds since the start")
    back = False
    for name, values in (("epoch", curve.epoch), ("samples", curve.samples)):
        if values is None or (all(map(le, values, values[1:])) and values[0] >= 0):
            continue
        back = True
        number = next((i for i, (a, b) in enumerate(pairwise(values), 1) if b < a), 0)
        yield entry.error("B132", f"{at}.{name}[{number}]", f"{name} {values[number]:.10g}", "give them in order")
    if not back and curve.epoch is not None and curve.samples is not None:
        yield from _samples(entry, curve.epoch, curve.samples, at)


def _samples(entry: Entry, epochs: Sequence[float], samples: Sequence[int], at: str) -> Iterator[Finding]:
    sizes = [count / epoch for epoch, count in zip(epochs, samples, strict=True) if epoch >= 1]
    if sizes and max(sizes) > (1 + _DRIFT) * min(sizes):
        found = f"an epoch has between {min(sizes):.6g} and {max(sizes):.6g} samples"
        yield entry.warning("B139", f"{at}.samples", found, "correct epochs or samples, or say in the notes why")


def _scale(entry: Entry, curve: Curve, at: str) -> Iterator[Finding]:
    target = entry.submission.target
    high = math.inf if target.high is None else target.high
    least, most = min(curve.quality), max(curve.quality)
    if target.low <= least and most <= high:
        return
    outside = most if most > high else least
    number = curve.quality.index(outside)
    percent = high == 1 and 2 < most <= 100 and least >= 0
    do = "divide by 100: the scale ends at 1" if percent else f"give {target.metric} on the scale of the target"
    found = f"{outside:.10g}, on a scale from {target.low:g} to {high:g}"
    yield entry.error("B133", f"{at}.quality[{number}]", found, do)


def _digest(entry: Entry, run: SubmittedRun, at: str) -> Iterator[Finding]:
    if run.curve_digest is None:
        if run.curve.time_s and not entry.imported:
            do = entry.advice("make the entry with levelbench board submit", "import its file again")
            yield entry.warning("B136", at, "it is not stated", do)
    elif run.curve_digest != curve_digest(run.curve):
        ours = "submit the curve as it was recorded, with levelbench board submit"
        do = entry.advice(ours, "import its file again")
        yield entry.error("B135", at, "the curve has another digest", do)
