"""LB206: a difference is called significant, but its size is not given or negligible."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import ComparedPair, guilty, not_stated, number, pairs
from levelbench.claims.view import Claim

_LEVEL = 0.05
_NEGLIGIBLE = 1.02
"""Ratios within 2 % count as the same, as in a verdict."""
_SMALL_EFFECT = 0.2
"""Below Cohen's "small" (1988), in standard deviations."""
_DO = "give the ratio (or difference) with its interval, and say from which size on it matters"


def _check(claim: Claim) -> Iterator[Diagnostic]:
    for pair in pairs(claim):
        if pair.comparison.p_value is not None:
            yield from _judged(pair, pair.comparison.p_value)


def _judged(pair: ComparedPair, p_value: float) -> Iterator[Diagnostic]:
    comparison = pair.comparison
    p = f"p = {number(p_value)}"
    if not _has_size(pair):
        found = f"'{pair.new.name}' and '{pair.base.name}' are compared by {p}, but nothing says how much they differ"
        yield guilty(f"{pair.field}.effect", found, _DO, pair.where, "warning")
    elif p_value < _LEVEL:
        if comparison.interval is not None and _is_negligible(comparison.interval):
            low, high = comparison.interval
            found = f"{p}, but the ratio's whole interval [{number(low, 4)}, {number(high, 4)}] is within 2 % of 1"
            yield guilty(f"{pair.field}.interval", f"{found}: significant but negligible", _DO, pair.where, "warning")
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


def _is_negligible(interval: tuple[float, float]) -> bool:
    return min(interval) >= 1.0 / _NEGLIGIBLE and max(interval) <= _NEGLIGIBLE


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
