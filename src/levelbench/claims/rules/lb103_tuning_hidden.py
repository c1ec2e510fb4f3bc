"""LB103: the runs that found the settings are not counted, or their number is not stated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import claimed, guilty, not_stated, number, seconds
from levelbench.claims.view import Claim, Side, Uncounted
from levelbench.report.numbers import plural


def _check(claim: Claim) -> Iterator[Diagnostic]:
    yield from _left_out(claim)
    yield from _other_settings(claim)
    for field, side in claimed(claim):
        if side.tuning.trials is not None or _gains_by_tuning(claim, side):
            yield from _unsaid(f"{field}.tuning", side)


def _gains_by_tuning(claim: Claim, side: Side) -> bool:
    """Whether its figure is one that a search improves: a quality, or what it takes to get there.

    The time of a call, a step or an epoch is that of the program, whatever the rate that was chosen, and
    the rules of MLPerf and AlgoPerf say what may be tuned, and how.
    """
    if side.time_of in ("call", "step", "epoch") or side.clock.policy in ("mlperf", "algoperf"):
        return False
    by = {each.of for each in claim.comparisons if each.new == side.name}
    if by & {"target", "quality", "cost"} or (side.time_of == "target" and side.time_s is not None):
        return True
    # A whole training with what it reached is a time to that quality, too.
    return not by and (side.cost_usd is not None or side.quality.value is not None)


def _shown_h(claim: Claim) -> float:
    return sum(run.time_s or 0.0 for side in claim.sides for run in side.runs) / 3600.0


def _amount(claim: Claim, runs: int, hours: list[float]) -> str:
    """``"7 runs (12.0 h, besides the 0.1 h of those that are shown)"``."""
    if not hours:
        return plural(runs, "run")
    shown = _shown_h(claim)
    besides = f", besides the {seconds(3600 * shown)} of those that are shown" if shown else ""
    return f"{plural(runs, 'run')} ({seconds(3600 * sum(hours))}{besides})"


def _hours(group: list[Uncounted]) -> list[float]:
    return [each.hours for each in group if each.hours is not None]


def _left_out(claim: Claim) -> Iterator[Diagnostic]:
    """Uncounted runs of the same specification: what is claimed is a selection of what was measured."""
    for at, each in enumerate(claim.uncounted):
        if each.same_specification and each.runs:
            amount = _amount(claim, each.runs, _hours([each]))
            found = f"{amount} of the same specification exist and are not counted: {each.what}"
            do = "count every run of the specification, failed ones as not reached, or say why one is not valid"
            yield guilty(f"uncounted[{at}]", found, do, each.where)


def _other_settings(claim: Claim) -> Iterator[Diagnostic]:
    """Runs of the task with other settings are tuning, unless as many trials are stated.

    A store does not say whether its other runs were a search, a comparison or a first try. The author has to.
    """
    others = [(at, each) for at, each in enumerate(claim.uncounted) if not each.same_specification and each.runs]
    runs = sum(each.runs for _, each in others)
    trials = sum(side.tuning.trials or 0 for side in claim.sides)
    # What was read from records are the runs besides the trials that it states.
    if runs <= (0 if claim.read_from == "records" else trials):
        return
    at, first = others[0]
    if claim.read_from == "records" and all(side.tuning.trials is None for side in claim.sides):
        what = f"whether {plural(runs, 'run')} of the task with other settings chose these ({first.what})"
        do = "state how many trials chose the settings and what they cost; 0 where these runs were for something else"
        yield not_stated(f"uncounted[{at}]", what, do, first.where)
        return
    amount = _amount(claim, runs, _hours([each for _, each in others]))
    tuning = f"{plural(trials, 'trial')} of tuning"
    stated = f"but the claim states {f'only {tuning}' if trials else 'no tuning'}"
    if trials and claim.read_from == "records":
        stated = f"besides the {tuning} that the claim states"
    found = f"{amount} of the task with other settings exist, {stated}: {first.what}"
    do = "state how many trials chose the settings and what they cost, or say what those runs were for"
    yield guilty(f"uncounted[{at}]", found, do, first.where, "warning")


def _unsaid(field: str, side: Side) -> Iterator[Diagnostic]:
    tuning = side.tuning
    if tuning.trials is None:
        what = f"how many trials chose the settings of '{side.name}'"
        do = "give the number of trials, and their hours or cost; 0 where the settings were taken from elsewhere"
        yield not_stated(f"{field}.trials", what, do, side.where)
    elif tuning.trials > 0 and tuning.hours is None and tuning.usd is None:
        what = f"the cost of the {number(tuning.trials)} trials behind '{side.name}'"
        yield not_stated(f"{field}.hours", what, "give their hours or their price", side.where)


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
