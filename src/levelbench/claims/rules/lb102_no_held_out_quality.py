"""LB102: the quality was measured on data that training, stopping or tuning had seen too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import claimed, compared, guilty, not_stated, quality_is_claimed, sides
from levelbench.claims.view import Claim, QualityView, Side
from levelbench.report.numbers import plural

_ON_TRAINING = re.compile(r"(?<![a-z])train(ing)?(?![a-z])")
_TRAINS = re.compile(r"\b(?:pre|re)?-?train|\bfine-?tun|\bepochs?\b|\bconverge", re.IGNORECASE)
_SAYS_SPLIT = re.compile(r"(?<![a-z])(val(idation)?|test|dev|held[- ]out)(?![a-z])")
_OF_EITHER = re.compile(r"loss|perplexity|entropy|bits per")
"""Metrics that are as often given of the training data; the split of a public task's accuracy is known."""
_DO = "evaluate the final network once on data that was used for no decision, and report that figure with its split"


def _check(claim: Claim) -> Iterator[Diagnostic]:
    asked, ratios = {side.name for _, side in claimed(claim)}, compared(claim)
    for field, side in sides(claim):
        if _has_quality(side):
            found = _judged(f"{field}.quality", side, claim)
            yield from (each for each in found if each.severity != "not-stated" or side.name in asked)
        elif side.quality.target is not None and _of_training(side.quality):
            target = f"the target of '{side.name}' is a {side.quality.metric or 'quality'} of the training data"
            yield guilty(f"{field}.quality.split", target, _DO, side.where, "warning")
        elif _needs_quality(side) and side.name not in ratios and _trains(side, claim):
            what = f"the quality that '{side.name}' reached; its speed means nothing without it"
            yield not_stated(f"{field}.quality.value", what, _DO, side.where)


def _of_training(quality: QualityView) -> bool:
    """Whether it is said, or its metric says, that it was measured on the training data."""
    return quality.split == "train" or (
        quality.split is None and bool(_ON_TRAINING.search((quality.metric or "").lower()))
    )


def _has_quality(side: Side) -> bool:
    return side.quality.value is not None or any(run.quality is not None for run in side.runs)


def _needs_quality(side: Side) -> bool:
    """Whether its time is of a whole training: the speed of a step is one, whatever the network has learnt."""
    return side.time_of in ("run", "target") and side.quality.target is None


def _trains(side: Side, claim: Claim) -> bool:
    """Whether something says that it is a training: a run may be of any program."""
    named = claim.task or side.data.name or side.quality.metric
    return side.time_of == "target" or bool(named) or _TRAINS.search(claim.title) is not None


def _judged(field: str, side: Side, claim: Claim) -> Iterator[Diagnostic]:
    quality = side.quality
    metric = quality.metric or "quality"
    if _of_training(quality):
        found = f"the {metric} of '{side.name}' was measured on the training data"
        yield guilty(f"{field}.split", found, _DO, side.where)
    elif quality.split is None:
        if not _is_open(metric.lower(), side, claim):
            return
        what = f"on which data the {metric} of '{side.name}' was measured"
        yield not_stated(f"{field}.split", what, _DO, side.where)
    elif quality.split == "validation" and side.time_of != "target":
        yield from _selected(field, side, metric, claim)


def _is_open(metric: str, side: Side, claim: Claim) -> bool:
    """Whether the split would be news: the metric does not name it, and the task's custom does not settle it."""
    if side.time_of == "target" or _SAYS_SPLIT.search(metric):
        return False
    return _OF_EITHER.search(metric) is not None or not (side.data.name or claim.task)


def _selected(field: str, side: Side, metric: str, claim: Claim) -> Iterator[Diagnostic]:
    """A time to a target is defined on the data that it stops on; any other figure must not use that data."""
    uses = {"stopping_split": "when to stop", "tuning_split": "on the settings"}
    deciding = [what for name, what in uses.items() if getattr(side.quality, name) == side.quality.split]
    if deciding:
        looks = max((len(run.curve.quality) for run in side.runs if run.curve is not None), default=0)
        often = f", looking {plural(looks, 'time')} in a run" if looks > 1 else ""
        found = f"the {metric} of '{side.name}' is from the split that decided {' and '.join(deciding)}{often}"
        yield guilty(f"{field}.split", found, _DO, side.where, "warning")
    elif side.quality.stopping_split is None and quality_is_claimed(claim, side):
        what = f"whether the split of the {metric} of '{side.name}' also decided when to stop"
        yield not_stated(f"{field}.stopping_split", what, _DO, side.where)


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
