"""LB132: the baseline got less care than the new side, is years old, or has no source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import ComparedPair, guilty, not_stated, number, of_another, pairs
from levelbench.claims.view import Claim
from levelbench.report.numbers import plural

_TUNE = "tune the baseline with the same budget, or give what its own authors report as its best"
_NEWER = "add today's best entry, or say why this one still is the best"
_SOURCE = "say where the baseline is from: a paper, a commit, an entry"
_OLD = 3
"""Years between the two sides from which on a baseline is old."""
_EFFORT = 4.0
_OVERHEAD = re.compile(r"\boverhead\b|\badds\b.*\bto the (?:time|run|step)", re.IGNORECASE)
"""Of what a program costs that is added to another, the other is no opponent."""
_NAMED = re.compile(r"(?!\W*(none|unknown|unpublished|internal|private|n/?a|tba|tbd|various)\W*$)\W*\w", re.IGNORECASE)
"""A source is a name that a reader can look up."""


def _check(claim: Claim) -> Iterator[Diagnostic]:
    for pair in pairs(claim):
        # A speed-up over a single process of the same program needs no opponent.
        if pair.comparison.base_kind in {"serial", "one-process"} or _itself(pair):
            continue
        found = [*_tuning(pair), *_age(pair, claim), *_source(pair)]
        added = _OVERHEAD.search(claim.title) is not None
        yield from (each for each in found if not added or each.severity != "not-stated")


def _itself(pair: ComparedPair) -> bool:
    """The same specification on another machine: there is nothing separate to tune or to cite."""
    new, base = pair.new.performance.specification, pair.base.performance.specification
    return new is not None and new == base


def _learns(pair: ComparedPair) -> bool:
    """Whether settings of the baseline decide the comparison: how good it gets, or how soon."""
    return pair.comparison.of in {"target", "quality"} or (pair.comparison.of is None and pair.base.time_of == "target")


def _tuning(pair: ComparedPair) -> Iterator[Diagnostic]:
    new, base = pair.new, pair.base
    field = f"{pair.base_field}.tuned"
    trials, base_trials = new.tuning.trials, base.tuning.trials
    if base.tuned is False and (new.tuned or trials):
        effort = f" ({plural(trials, 'trial')})" if trials else ""
        found = f"'{new.name}' was tuned{effort}, but the baseline '{base.name}' was not"
        yield guilty(field, found, _TUNE, pair.where)
    elif trials is not None and base_trials is not None and trials > _EFFORT * max(1, base_trials):
        if not (new.tuning.budget_equal or base.tuning.budget_equal):
            found = f"'{new.name}' had {plural(trials, 'trial')} of tuning and '{base.name}' {base_trials:,}"
            yield guilty(f"{pair.base_field}.tuning.trials", found, _TUNE, pair.where, "warning")
    elif new.tuning.budget_equal is False or base.tuning.budget_equal is False:
        # More effort for the baseline misleads nobody.
        if not (trials is not None and base_trials is not None and base_trials >= trials):
            at = pair.base_field if base.tuning.budget_equal is False else pair.new_field
            found = f"'{new.name}' and '{base.name}' were tuned with unequal budgets"
            yield guilty(f"{at}.tuning.budget_equal", found, _TUNE, pair.where, "warning")
    elif not (of_another(pair) or _learns(pair)):
        return
    elif base.tuned is False and new.tuned is None and trials is None:
        what = f"whether '{new.name}' was tuned, as its baseline '{base.name}' was not"
        yield not_stated(f"{pair.new_field}.tuned", what, _TUNE, pair.where)
    elif base.tuned is None and not base.reference and base_trials is None:
        what = f"whether the baseline '{base.name}' was tuned, and with which budget"
        yield not_stated(field, what, _TUNE, pair.where)


def _age(pair: ComparedPair, claim: Claim) -> Iterator[Diagnostic]:
    new, base = pair.new, pair.base
    if new.year is None or base.year is None:
        if base.year is None and base.source is not None and not base.runs and of_another(pair):
            what = f"the year of the baseline '{base.name}'"
            yield not_stated(f"{pair.base_field}.year", what, _SOURCE, pair.where)
        return
    rivals = [each.base.year for each in pairs(claim) if each.new.name == new.name and each.base.year is not None]
    rivals += [one.year for one in claim.standards if one.year is not None and one.time_s is not None]
    if new.year - base.year < _OLD or any(new.year - year < _OLD for year in rivals if year <= new.year):
        return
    found = f"the baseline '{base.name}' is from {base.year}, {number(new.year - base.year)} years before '{new.name}'"
    yield guilty(f"{pair.base_field}.year", found, _NEWER, pair.where, "warning")


def _source(pair: ComparedPair) -> Iterator[Diagnostic]:
    base, field = pair.base, f"{pair.base_field}.source"
    if base.source is None:
        if of_another(pair):
            what = f"the source of the baseline '{base.name}'{'' if base.year or base.runs else ', and its year'}"
            yield not_stated(field, what, _SOURCE, pair.where)
    elif not _NAMED.match(base.source):
        found = f"the baseline '{base.name}' has no source: it is stated as '{base.source}'"
        yield guilty(field, found, _SOURCE, pair.where, "warning")


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
