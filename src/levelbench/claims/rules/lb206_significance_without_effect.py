"""LB206: a difference is called significant, but its size is not given or negligible."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import exp, log
from pathlib import Path

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import ComparedPair, guilty, not_stated, number, pairs
from levelbench.claims.view import Claim
from levelbench.measure.statistics.distributions import normal_quantile

_LEVEL = 0.05
_NEGLIGIBLE = 1.02
"""Ratios within 2 % count as the same, as in a verdict."""
_SMALL_EFFECT = 0.2
"""Below Cohen's "small" (1988), in standard deviations."""
_SIGNIFICANT = re.compile(
    r"(?<!no )(?<!not )(?<!any )(?<!without )(?<!without a )\b(?:statistically |highly )?significant(?:ly)? "
    r"(?:faster|slower|better|worse|higher|lower|shorter|smaller|larger|fewer|more|less|different|differences?|gains?|"
    r"improve\w*|speed-?ups?|reduc\w+|outperform\w*|at (?:a|the) level)\b|"
    r"\b(?:difference|gain|speed-?up|improvement) (?:is|was) (?:statistically |highly )?significant\b|"
    r"\b(?:outperform|beat|improve|reduce)\w* (?:\S+ ){1,4}significantly\b",
    re.IGNORECASE,
)
_SIZE = re.compile(
    r"\d ?(?:(?:%|per ?cent)(?! (?:confidence|intervals?|level|CI\b))|x\b|times|-?fold|points?|s\b|ms\b)"
)
"""A size in the title, which a claim file may leave out of its fields."""
_DO = "give the ratio (or difference) with its interval, and say from which size on it matters"


def _check(claim: Claim) -> Iterator[Diagnostic]:
    compared = list(pairs(claim))
    for pair in compared:
        if pair.comparison.p_value is not None:
            yield from _judged(pair, pair.comparison.p_value)
    said = _SIGNIFICANT.search(claim.title)
    silent = all(pair.comparison.p_value is None and not _has_size(pair) for pair in compared)
    if said and compared and silent and not _SIZE.search(claim.title):
        found = f"the claim says '{said[0]}', and nothing says how much the sides differ"
        yield guilty(f"{compared[0].field}.effect", found, _DO, compared[0].where, "warning")


def _judged(pair: ComparedPair, p_value: float) -> Iterator[Diagnostic]:
    comparison = pair.comparison
    p = f"p = {number(p_value)}"
    if not _has_size(pair):
        found = f"'{pair.new.name}' and '{pair.base.name}' are compared by {p}, but nothing says how much they differ"
        if p_value < _LEVEL:
            yield guilty(f"{pair.field}.effect", found, _DO, pair.where, "warning")
        else:
            what = f"how much '{pair.new.name}' and '{pair.base.name}' differ, which {p} does not say"
            yield not_stated(f"{pair.field}.effect", what, _DO, pair.where)
    elif p_value < _LEVEL:
        if comparison.interval is not None and _is_negligible(comparison.interval):
            low, high = comparison.interval
            found = f"{p}, but the ratio's whole interval [{number(low, 4)}, {number(high, 4)}] is within 2 % of 1"
            yield guilty(f"{pair.field}.interval", f"{found}: significant but negligible", _DO, pair.where, "warning")
        elif comparison.interval is None and (bounds := _implied(pair, p_value)) and _is_negligible(bounds):
            low, high = bounds
            found = f"{p} and a ratio of {number(comparison.ratio or 1.0, 4)} put the ratio between {number(low, 4)}"
            found += f" and {number(high, 4)}, within 2 % of 1: significant but negligible"
            yield guilty(f"{pair.field}.interval", found, _DO, pair.where, "warning")
        elif comparison.effect is not None and abs(comparison.effect) < _SMALL_EFFECT:
            found = f"{p}, but the effect is {number(comparison.effect)} standard deviations: less than a small one"
            yield guilty(f"{pair.field}.effect", found, _DO, pair.where, "warning")
    if comparison.test is None:
        what = f"which test {p} of '{pair.new.name}' and '{pair.base.name}' comes from"
        yield not_stated(f"{pair.field}.test", what, "name the test, its n and what a replicate was", pair.where)


def _has_size(pair: ComparedPair) -> bool:
    """Whether the size of the difference is stated, or both figures behind it."""
    comparison = pair.comparison
    if comparison.effect is not None or comparison.ratio is not None or comparison.interval is not None:
        return True
    if comparison.of == "quality":
        return pair.new.quality.value is not None and pair.base.quality.value is not None
    if comparison.of == "cost":
        return pair.new.cost_usd is not None and pair.base.cost_usd is not None
    return pair.new.time_s is not None and (pair.base.time_s is not None or comparison.base_time_s is not None)


def _implied(pair: ComparedPair, p_value: float) -> tuple[float, float] | None:
    """The 95 % interval that a ratio of times has if its test gives this p-value: normal on logarithms, two-sided."""
    ratio = pair.comparison.ratio
    if ratio is None or ratio <= 0 or pair.comparison.of in {"quality", "cost", "operations"} or not 0 < p_value < 1:
        return None
    reach = abs(log(ratio)) * normal_quantile(0.975) / normal_quantile(1 - p_value / 2)
    return ratio * exp(-reach), ratio * exp(reach)


def _is_negligible(interval: tuple[float, float]) -> bool:
    return min(interval) >= 1.0 / _NEGLIGIBLE and max(interval) <= _NEGLIGIBLE


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
