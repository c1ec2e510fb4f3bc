"""Whether what somebody recorded comes out again when it is run again.

A time to a target is samples to the target times time per sample, and each is judged by itself: the first varies with
the seed and not with the machine, the second hardly varies at all on one machine, and is judged on one only. Sessions
on one machine differ too: other neighbours, another frequency, another layout of memory. So a re-run may need up to
``TOLERANCE`` times as much, and its whole interval has to lie beyond that before it is called inconsistent. It is
called consistent once its interval excludes ``FORGED``; in between more runs are needed.

Code that repeats its runs to the last digit has no luck of its own: what it needs with the claimed seeds is known, not
estimated.

Nobody is accused where something else explains the difference: other code, other threads or versions, a busy machine.
And nobody is trusted with times that could not be judged: on another machine only the samples are called consistent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Literal

from levelbench.errors import UsageError
from levelbench.measure.statistics import fisher_exact, t_quantile
from levelbench.measure.verdict import verdict

__all__ = ["FORGED", "LEVEL", "TOLERANCE", "ClaimedRun", "Ratio", "Reproduction", "SameSeed"]
__all__ += ["of_claimed_seeds", "repeated", "reproduction", "same_seeds"]

TOLERANCE, FORGED, LEVEL = 1.25, 1.5, 0.99
Kind = Literal["consistent", "inconsistent", "samples consistent", "cannot tell"]
Reached = tuple[float, bool]
"""A value, and whether the run had reached the target with it; else it had been given up."""
_FEW = 3
_ONE_SAMPLE = 1.0
"""Samples are counted and not read from a clock: that all are multiples of an epoch is no rounding."""


@dataclass(frozen=True)
class ClaimedRun:
    """What one run claims, or what its re-run did.

    ``time_s`` and ``samples`` are those of the target or, if it was not ``reached``, those when it was given up.
    ``digests`` identify its losses and qualities; empty if unknown. ``doubted`` is whether its time is open to doubt.
    """

    seed: int
    reached: bool
    time_s: float
    samples: float
    quality: float | None = None
    digests: tuple[str, ...] = ()
    doubted: bool = False


@dataclass(frozen=True)
class Ratio:
    """The re-runs' value over the claimed one, a ratio of geometric means with its interval at ``LEVEL``."""

    kind: Kind
    ratio: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class SameSeed:
    """A seed that was run again: whether losses and qualities agree to the last digit (``None``: unknown)."""

    seed: int
    bits: bool | None
    claimed: ClaimedRun
    again: ClaimedRun


@dataclass(frozen=True)
class Reproduction:
    """The answer, the ratios that it rests on (``pace`` is ``None`` across machines), and ``reason`` in one sentence.

    ``reached`` are the runs that reached the target, claimed and again, of ``runs``.
    """

    kind: Kind
    reason: str
    samples: Ratio
    pace: Ratio | None
    reached: tuple[int, int]
    runs: tuple[int, int]


def reproduction(
    claimed: Sequence[ClaimedRun],
    again: Sequence[ClaimedRun],
    *,
    same_machine: bool,
    other_code: bool = False,
    conditions: str = "",
) -> Reproduction:
    """Judge re-runs; ``UsageError`` if one of the sides has no runs.

    With ``other_code`` no difference is held against the claim, and none in times under other ``conditions`` (threads,
    versions: a clause that says which).
    """
    if not claimed or not again:
        raise UsageError("a reproduction", "one of the sides has no runs", "run it again")
    # Runs of one seed have the same luck, so what is left is the machine.
    paired = _seeds(claimed) == _seeds(again)
    sides = [sorted(each, key=lambda run: run.seed) for each in (claimed, again)]
    reached = [sum(each.reached for each in side) for side in sides]
    own = of_claimed_seeds(*sides)
    counted = ([(each.samples, each.reached) for each in side] for side in (sides[0], own))
    samples = _ratio(*counted, paired=_seeds(own) == _seeds(sides[0]), resolution=_ONE_SAMPLE)
    pace = _ratio(*([(each.time_s / each.samples, True) for each in side] for side in sides), paired=paired)
    rarer = fisher_exact(reached[0], len(claimed), reached[1], len(again))
    fewer = reached[1] * len(claimed) < reached[0] * len(again) and rarer < 1 - LEVEL
    judged = {"samples to the target": samples, **({"time per sample": pace} if same_machine else {})}
    kind, reason = _answer(judged, fewer)
    if kind == "inconsistent":
        only_times = not fewer and samples.kind != "inconsistent"
        excuse = "the code is not what was recorded" if other_code else ""
        if only_times and not excuse:
            excuse = conditions or _disturbed(sides[0], sides[1])
        if excuse:
            kind, reason = "cannot tell", f"{reason}, but {excuse}"
    if not same_machine:
        kind = "samples consistent" if kind == "consistent" else kind
        reason += "; times are not judged, since the machines differ or are not known"
    counts = (reached[0], reached[1]), (len(claimed), len(again))
    return Reproduction(kind, reason, samples, pace if same_machine else None, *counts)


def of_claimed_seeds(claimed: Sequence[ClaimedRun], again: Sequence[ClaimedRun]) -> list[ClaimedRun]:
    """The re-runs whose samples are compared: those of the claimed seeds if all are there, or else every one.

    Runs of further seeds, made for the sake of times, have other luck.
    """
    seeds = _seeds(claimed)
    own = [each for each in again if each.seed in seeds]
    return own if len(own) >= _FEW and _seeds(own) == seeds else list(again)


def repeated(
    found: Reproduction, claimed: Sequence[ClaimedRun], again: Sequence[ClaimedRun], once_more: Sequence[ClaimedRun]
) -> Reproduction:
    """The answer, where the claimed seeds were run twice under the conditions of the claim.

    If each seed came out alike to the last digit, its samples are those that this seed needs, and the ratio to the
    claimed ones has no interval. Runs that were claimed to have missed the target are not compared.
    """
    twice = {each.seed: each.again for each in same_seeds(again, once_more) if each.bits}
    pairs = [(each, twice[each.seed]) for each in claimed if each.reached and each.seed in twice]
    if not pairs or any(each.seed not in twice for each in claimed):
        return found
    ratio = math.exp(fmean(math.log(new.samples / old.samples) for old, new in pairs))
    if ratio <= TOLERANCE:
        return found
    reason = f"each of the claimed seeds came out alike twice, and they need {ratio:.2f} times the samples claimed"
    return replace(found, kind="inconsistent", reason=reason, samples=Ratio("inconsistent", ratio, ratio, ratio))


def _seeds(runs: Sequence[ClaimedRun]) -> list[int]:
    return sorted(each.seed for each in runs)


def _disturbed(claimed: Sequence[ClaimedRun], again: Sequence[ClaimedRun]) -> str:
    """Why slow re-runs prove nothing: those whose time is not in doubt are too few, or not as slow."""
    calm = [each for each in again if not each.doubted]
    if len(calm) == len(again):
        return ""
    sides = [[(each.time_s / each.samples, True) for each in side] for side in (claimed, calm)]
    if len(calm) >= _FEW and _ratio(*sides, paired=False).kind == "inconsistent":
        return ""
    return f"the times of {len(again) - len(calm)} of {len(again)} re-runs are in doubt"


def _answer(judged: Mapping[str, Ratio], fewer: bool) -> tuple[Kind, str]:
    if fewer:
        return "inconsistent", "fewer re-runs reach the target than was claimed"
    more = [name for name, each in judged.items() if each.kind == "inconsistent"]
    if more:
        return "inconsistent", f"re-runs need more than {TOLERANCE:g} times as much: {' and '.join(more)}"
    open_still = [name for name, each in judged.items() if each.kind == "cannot tell"]
    if open_still:
        return "cannot tell", f"{' and '.join(open_still)} may still be {FORGED:g} times what was claimed"
    return "consistent", f"re-runs need less than {FORGED:g} times as much: {' and '.join(judged)}"


def _ratio(
    claimed: Sequence[Reached], again: Sequence[Reached], *, paired: bool, resolution: float | None = None
) -> Ratio:
    sides = [[value if arrived else None for value, arrived in side] for side in (claimed, again)]
    given_up = [[value for value, arrived in side if not arrived] for side in (claimed, again)]
    ratio: float | None
    low: float | None
    high: float | None
    if len(claimed) < _FEW <= len(again) and not any(given_up):
        ratio, low, high = _of_few(*([math.log(each) for each in side if each] for side in sides))
    else:
        found = verdict(
            sides[0],
            sides[1],
            level=LEVEL,
            paired=paired,
            censored_at_a=given_up[0],
            censored_at_b=given_up[1],
            resolution=resolution,
        )
        ratio, low, high = found.ratio, found.low, found.high
    if low is not None and low > TOLERANCE:
        return Ratio("inconsistent", ratio, low, high)
    return Ratio("consistent" if high is not None and high < FORGED else "cannot tell", ratio, low, high)


def _of_few(claimed: Sequence[float], again: Sequence[float]) -> tuple[float, float, float]:
    """The ratio and its interval where the claimed are too few to tell their spread: that of the re-runs is taken.

    Of logarithms.
    """
    centre = fmean(again) - fmean(claimed)
    error = stdev(again) * math.sqrt(1 / len(again) + 1 / len(claimed))
    half = t_quantile((1 + LEVEL) / 2, len(again) - 1) * error
    return math.exp(centre), math.exp(centre - half), math.exp(centre + half)


def same_seeds(claimed: Sequence[ClaimedRun], again: Sequence[ClaimedRun]) -> tuple[SameSeed, ...]:
    """The seeds that both sides have, in order."""
    new = {each.seed: each for each in again}
    return tuple(
        SameSeed(each.seed, each.digests == new[each.seed].digests if each.digests else None, each, new[each.seed])
        for each in sorted(claimed, key=lambda each: each.seed)
        if each.seed in new
    )
