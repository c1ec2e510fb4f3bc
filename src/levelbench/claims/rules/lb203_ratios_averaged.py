"""LB203: ratios were averaged, but a mean of ratios is not a ratio of anything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import guilty, not_stated, number
from levelbench.claims.rules._runs import matches
from levelbench.claims.view import Claim, Summarised
from levelbench.measure.statistics.values import arithmetic_mean, geometric_mean, harmonic_mean
from levelbench.report.numbers import plural

_DO = "average the times (or costs) behind the ratios and divide the means; the geometric mean only if those are lost"
_WRONG = ("arithmetic", "harmonic", "olympic")


def _check(claim: Claim) -> Iterator[Diagnostic]:
    for at, summary in enumerate(claim.summaries):
        if summary.of == "ratios" and summary.n != 1:
            yield from _judged(claim, summary, f"summaries[{at}]")


def _judged(claim: Claim, summary: Summarised, field: str) -> Iterator[Diagnostic]:
    where = summary.where or claim.where
    ratios = [each.ratio for each in claim.comparisons if each.ratio is not None and each.ratio > 0.0]
    again = _again(summary, ratios)
    if again is not None and summary.by not in ("geometric", "median", "minimum", "maximum"):
        found = (
            f"{number(again, 4)}, the '{summary.what}', is the {summary.by or 'arithmetic'} mean of the "
            f"{len(ratios)} compared ratios (geometric: {number(geometric_mean(ratios), 4)}); "
            f"of their inverses it would be {number(1.0 / _inverse(summary, ratios), 4)}"
        )
        yield guilty(f"{field}.by", found, _DO, where)
    elif summary.by in _WRONG:
        of = "ratios" if summary.n is None else plural(summary.n, "ratio")
        found = f"the '{summary.what}' is the {summary.by} mean of {of}: exchanging new and base gives another answer"
        yield guilty(f"{field}.by", found, _DO, where)
    elif summary.by is None:
        yield not_stated(f"{field}.by", f"by which mean the ratios of '{summary.what}' were summarised", _DO, where)


def _again(summary: Summarised, ratios: list[float]) -> float | None:
    """The claim's own ratios whose mean is ``summary``, unless it is also their geometric mean."""
    if len(ratios) < 2 or summary.value is None or summary.n not in (None, len(ratios)):
        return None
    mean = harmonic_mean(ratios) if summary.by == "harmonic" else arithmetic_mean(ratios)
    return mean if matches(summary.value, mean, geometric_mean(ratios)) else None


def _inverse(summary: Summarised, ratios: list[float]) -> float:
    inverses = [1.0 / ratio for ratio in ratios]
    return harmonic_mean(inverses) if summary.by == "harmonic" else arithmetic_mean(inverses)


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
