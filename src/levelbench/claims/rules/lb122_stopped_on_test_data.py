"""LB122: the test data decided when to stop or which settings to use, or was looked at repeatedly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import claimed, guilty, not_stated, quality_is_claimed, sides
from levelbench.claims.view import Claim, Side
from levelbench.report.numbers import plural

_DO = "decide on a validation split that was cut from the training data, and open the test data once, at the end"


def _check(claim: Claim) -> Iterator[Diagnostic]:
    asked = {side.name for _, side in claimed(claim) if side.time_of == "target" or quality_is_claimed(claim, side)}
    for field, side in sides(claim):
        yield from _guilt(f"{field}.quality", side)
        if side.quality.split == "test" and side.name in asked:
            yield from _unsaid(f"{field}.quality", side)


def _looks(side: Side) -> int | None:
    """How often a run looked at the test data: as stated, or the number of evaluations of the longest curve."""
    if side.quality.test_looks is not None:
        return side.quality.test_looks
    curves = [len(run.curve.quality) for run in side.runs if run.curve is not None]
    return max(curves, default=None) if side.quality.stopping_split == "test" else None


def _guilt(field: str, side: Side) -> Iterator[Diagnostic]:
    quality, looks = side.quality, _looks(side)
    often = f", looked at {plural(looks, 'time')} in a run" if looks is not None and looks > 1 else ""
    if quality.stopping_split == "test":
        # Some rulesets define a time to a target on test data; that is still a look at the test data.
        defined = side.time_of == "target"
        note = "; its time is to a target on that data" if defined else ""
        found = f"the test data decided when '{side.name}' stopped{often}{note}"
        yield guilty(f"{field}.stopping_split", found, _DO, side.where, severity="warning" if defined else "error")
    if quality.tuning_split == "test":
        trials = side.tuning.trials
        by = f", over {plural(trials, 'trial')}" if trials else ""
        found = f"the settings of '{side.name}' were chosen on the test data{by}"
        yield guilty(f"{field}.tuning_split", found, _DO, side.where)
    if often and quality.stopping_split != "test":
        found = f"a run of '{side.name}' evaluated the test data {looks} times: each look is a chance to choose"
        yield guilty(f"{field}.test_looks", found, _DO, side.where, "warning")


def _unsaid(field: str, side: Side) -> Iterator[Diagnostic]:
    quality = side.quality
    if quality.stopping_split is None:
        what = f"which data decided when '{side.name}' stopped"
        yield not_stated(f"{field}.stopping_split", what, "name the split", side.where)
    elif quality.stopping_split != "test" and quality.test_looks is None:
        what = f"how often a run of '{side.name}' looked at the test data"
        yield not_stated(f"{field}.test_looks", what, "give the number, 1 for only the final network", side.where)
    if quality.tuning_split is None and side.tuning.trials:
        what = f"on which data the {plural(side.tuning.trials, 'trial')} behind '{side.name}' were judged"
        yield not_stated(f"{field}.tuning_split", what, "name the split", side.where)


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
