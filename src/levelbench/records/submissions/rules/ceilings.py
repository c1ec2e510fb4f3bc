"""The rule about figures that no machine could have made: more operations a second than its ceiling.

The one idea: an entry may state what its machine can do (``provenance.environment["ceiling.flop_s"]``, as measured
there) and what a sample costs (``settings["flops_per_sample"]``, three times the forward pass for training). What it
does not state, or states too low, whoever checks may know (``Limits``). Where both are there, its times are held
against them; where one is not, nothing is concluded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import islice

from msgspec import Struct

from levelbench.records.submissions.latencies import ONE_BY_ONE
from levelbench.records.submissions.possible import LATENCY_S, is_within
from levelbench.records.submissions.rules.entry import Entry
from levelbench.records.submissions.rules.findings import Finding
from levelbench.records.submissions.schema import Curve, Inference, Setting, Submission

__all__ = ["CEILING", "CEILING_OF", "FLOPS", "STEP", "Limits", "ceiling"]

CEILING = "ceiling.flop_s"
"""Measured floating-point operations a second of the whole system, in its fastest precision."""
CEILING_OF = "ceiling.record"
"""Which record of which precision that is from."""
FLOPS = "flops_per_sample"
"""Floating-point operations a sample, counting 2 a multiply-add: of a training step, or of an answer."""
STEP = 3.0
"""A training step in forward passes: one forward, and one each for the derivatives by activations and by weights."""
_SLACK = 0.1
"""A ceiling that was measured is not the last word: by this much it may be passed."""
_FAST = 4.0
"""So many times fewer multiplications than counted a fast convolution needs, F(4x4, 3x3) of Lavin & Gray 2016."""


class Limits(Struct, frozen=True):
    """What is known of an entry beside what it states; ``None`` is unknown.

    ``flop_s`` are the operations a second that ``machine`` does at most. ``flops_per_sample`` is of ``network``, which
    the entry's model is taken for, and ``samples_per_epoch`` of the task's training data. ``recipe`` holds the settings
    of the task's own recipe that the entry names, as ``version`` of levelbench has it; empty: it has none of that name.
    """

    flop_s: float | None = None
    machine: str = ""
    flops_per_sample: float | None = None
    network: str = ""
    samples_per_epoch: int | None = None
    recipe: Mapping[str, Setting] | None = None
    version: str = ""


def ceiling(entry: Entry) -> Iterator[Finding]:
    """No run and no measurement needs more operations a second than the machine's ceiling."""
    submission = entry.submission
    known = entry.aside or Limits()
    limit, works = _lowest(submission, known), _works(submission, known)
    if limit is None or not works:
        return
    rates = {
        f"runs[{at}].curve.time_s": _samples_a_second(run.curve, known.samples_per_epoch)
        for at, run in enumerate(submission.runs)
    }
    for at, each in enumerate(submission.inference):
        rates |= _of_answers(each, f"inference[{at}]")
    for field, samples_s in rates.items():
        found = (_over(entry, field, flops * samples_s, limit, network) for flops, network in works)
        yield from islice(filter(None, found), 1)


def _works(submission: Submission, known: Limits) -> list[tuple[float, str]]:
    """FLOPs of a sample with the network that they are taken for: as stated (no name), and as known where that is more.

    Whoever states less than the network is known to cost is held to both, to the known figure with a warning at most.
    """
    stated = _number(submission.settings.get(FLOPS))
    works = [] if stated is None else [(stated, "")]
    if known.flops_per_sample is not None and (stated is None or known.flops_per_sample > stated):
        works.append((known.flops_per_sample, known.network))
    return works


def _over(entry: Entry, field: str, rate: float, limit: tuple[float, str], network: str) -> Finding | None:
    flop_s, machine = limit
    if rate <= flop_s * (1 + _SLACK):
        return None
    of = f" of {network}" if network else ""
    found = f"{rate:.3g} operations a second{of}; {machine} is {flop_s:.3g}"
    if rate <= flop_s * _FAST * (1 + _SLACK):
        return entry.warning("B190", field, found, "see whether a fast convolution explains it")
    if network:
        return entry.warning("B190", field, found, f"see whether its network is {network}, or correct the times")
    return entry.error("B190", field, found, f"correct the times, the samples, or {FLOPS}")


def _lowest(submission: Submission, known: Limits) -> tuple[float, str] | None:
    """The lower of what the entry states and what is known, for nobody is faster than either."""
    stated = _number(submission.provenance.environment.get(CEILING))
    found = [] if stated is None else [(stated, "the machine's ceiling")]
    found += [] if known.flop_s is None else [(known.flop_s, f"the peak of {known.machine}")]
    return min(found, default=None)


def _of_answers(each: Inference, at: str) -> dict[str, float]:
    """Samples a second over the whole time, and in the fastest query where one query has the whole system."""
    rates = {f"{at}.duration_s": each.samples / each.duration_s} if each.duration_s > 0 else {}
    stated = {
        "quantiles_s": min(each.quantiles_s.values(), default=None),
        "estimate_s": each.estimate_s,
        "mean_latency_s": each.mean_latency_s,
    }
    if each.scenario in ONE_BY_ONE:
        # A query has one sample at least, whatever is said of their number.
        samples = max(1.0, each.samples / each.queries) if each.queries else 1.0
        rates |= {
            f"{at}.{name}": samples / time_s
            for name, time_s in stated.items()
            if time_s and is_within(time_s, LATENCY_S)
        }
    return rates


def _samples_a_second(curve: Curve, per_epoch: int | None) -> float:
    """The highest mean rate from the beginning to any of the evaluations; 0 where it is not known."""
    samples: list[int] | list[float] = curve.samples or []
    if not samples and per_epoch is not None:
        samples = [epoch * per_epoch for epoch in curve.epoch or ()]
    if len(samples) != len(curve.time_s):
        return 0.0
    rates = (count / time_s for count, time_s in zip(samples, curve.time_s, strict=True) if time_s > 0)
    return max((rate for rate in rates if not math.isnan(rate)), default=0.0)


def _number(value: object) -> float | None:
    """A positive, finite number, also written as text; ``None`` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if number > 0 and math.isfinite(number) else None
