"""Rules about what a machine can do, and what a recipe of the closed division may change."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from msgspec import Struct

from levelbench.competition.checks import CheckedEntry, EntryFinding, shown
from levelbench.competition.entries import Inference, Setting, Submission, SubmittedCurve
from levelbench.competition.figures import LATENCY_S, is_within
from levelbench.competition.scoring import ONE_BY_ONE

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


class MachineLimits(Struct, frozen=True):
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


def ceiling(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """No run and no measurement needs more operations a second than the machine's ceiling."""
    submission = entry.submission
    known = entry.aside or MachineLimits()
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


def _works(submission: Submission, known: MachineLimits) -> list[tuple[float, str]]:
    """FLOPs of a sample with the network that they are taken for: as stated (no name), and as known where that is more.

    Whoever states less than the network is known to cost is held to both, to the known figure with a warning at most.
    """
    stated = _number(submission.settings.get(FLOPS))
    works = [] if stated is None else [(stated, "")]
    if known.flops_per_sample is not None and (stated is None or known.flops_per_sample > stated):
        works.append((known.flops_per_sample, known.network))
    return works


def _over(entry: CheckedEntry, field: str, rate: float, limit: tuple[float, str], network: str) -> EntryFinding | None:
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


def _lowest(submission: Submission, known: MachineLimits) -> tuple[float, str] | None:
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


def _samples_a_second(curve: SubmittedCurve, per_epoch: int | None) -> float:
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


BESIDE = frozenset(
    {
        *("budget_s", "budget_samples", "budget_j", "plateau"),
        *("ranks", "scheme", "communicator", "scaling", "lr_scale", "engine", "engine.options"),
    }
)
"""Settings of an entry that are none of a recipe's: what ended its runs early, and how several processes trained."""
_SCHEME = "scheme."
"""How the names of a scheme's own settings begin."""


def closed(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """No setting of a closed entry differs from the task's own recipe, but those that its division may change."""
    rules, submission = entry.rules, entry.submission
    division = next((each for each in rules.divisions if each.name == submission.division), None) if rules else None
    if division is None or not division.may_change or entry.aside is None or entry.aside.recipe is None:
        return
    other = entry.aside.version != submission.provenance.version
    differs = entry.warning if other else entry.error
    if not entry.aside.recipe:
        yield from _no_recipe(entry, differs)
        return
    yield from _settings(entry, frozenset(division.may_change), differs)


_DO = "submit to the open division, or as the task has it"
_Tell = Callable[[str, str, str, str], EntryFinding]


def _no_recipe(entry: CheckedEntry, differs: _Tell) -> Iterator[EntryFinding]:
    """Another system's file names no recipe of ours; under its own rules none is asked for."""
    stated, origin = entry.submission.settings.get("recipe"), entry.submission.origin
    if stated is not None:
        yield differs("B169", "settings.recipe", f"{shown(str(stated))} is not one of the task's own recipes", _DO)
    elif origin is None:
        yield differs("B169", "settings.recipe", "it is not stated", "state the task's recipe that ran")
    elif not entry.imported:
        yield entry.warning("B169", "settings.recipe", "it is not stated", "see whether the task's own recipe ran")


def _settings(entry: CheckedEntry, may_change: frozenset[str], differs: _Tell) -> Iterator[EntryFinding]:
    assert entry.aside is not None
    assert entry.aside.recipe is not None
    own, wanted = entry.submission.settings, entry.aside.recipe
    for name, value in wanted.items():
        if name in may_change or (name in own and own[name] == value):
            continue
        field, has = f"settings.{name}", f"the task's recipe has {shown(str(value))}"
        if name in own:
            yield differs("B169", field, f"it is {shown(str(own[name]))}, and {has}", _DO)
        else:
            yield entry.warning("B169", field, f"it is not stated, and {has}", "state all settings of the recipe")
    for name, value in own.items():
        beside = name in BESIDE or name.startswith(_SCHEME)
        if beside and not {name, name.partition(".")[0]} & {*wanted, *may_change} and (name, value) != ("ranks", 1):
            found = f"it is {shown(str(value))}, and the task's recipe has none"
            yield differs("B169", f"settings.{shown(name)[1:-1]}", found, _DO)
