"""LB102: the quality was measured on data that training, stopping or tuning had seen too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import guilty, is_training, not_stated, sides
from levelbench.claims.view import Claim, Side
from levelbench.report.numbers import plural

_ON_TRAINING = re.compile(r"(?<![a-z])train(ing)?(?![a-z])")
_DO = "evaluate the final network once on data that was used for no decision, and report that figure with its split"


def _check(claim: Claim) -> Iterator[Diagnostic]:
    for field, side in sides(claim):
        if _has_quality(side):
            yield from _judged(f"{field}.quality", side)
        elif is_training(side):
            what = f"the quality that '{side.name}' reached; its speed means nothing without it"
            yield not_stated(f"{field}.quality.value", what, _DO, side.where)


def _has_quality(side: Side) -> bool:
    return side.quality.value is not None or any(run.quality is not None for run in side.runs)


def _judged(field: str, side: Side) -> Iterator[Diagnostic]:
    quality = side.quality
    metric = quality.metric or "quality"
    if quality.split == "train" or (quality.split is None and _ON_TRAINING.search(metric.lower())):
        found = f"the {metric} of '{side.name}' was measured on the training data"
        yield guilty(f"{field}.split", found, _DO, side.where)
    elif quality.split is None:
        what = f"on which data the {metric} of '{side.name}' was measured"
        yield not_stated(f"{field}.split", what, _DO, side.where)
    elif quality.split == "validation" and side.time_of != "target":
        yield from _selected(field, side, metric)


def _selected(field: str, side: Side, metric: str) -> Iterator[Diagnostic]:
    """A time to a target is defined on the data that it stops on; any other figure must not use that data."""
    uses = {"stopping_split": "when to stop", "tuning_split": "on the settings"}
    deciding = [what for name, what in uses.items() if getattr(side.quality, name) == side.quality.split]
    if deciding:
        looks = max((len(run.curve.quality) for run in side.runs if run.curve is not None), default=0)
        often = f", looking {plural(looks, 'time')} in a run" if looks > 1 else ""
        found = f"the {metric} of '{side.name}' is from the split that decided {' and '.join(deciding)}{often}"
        yield guilty(f"{field}.split", found, _DO, side.where, "warning")
    elif side.quality.stopping_split is None:
        what = f"whether the split of the {metric} of '{side.name}' also decided when to stop"
        yield not_stated(f"{field}.stopping_split", what, _DO, side.where)


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
