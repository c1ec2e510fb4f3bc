"""LB202: rates over equal work were averaged arithmetically, which overstates the rate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import guilty, not_stated, number, percent, sides
from levelbench.claims.rules._runs import fixed_time, matches, side_rates
from levelbench.claims.view import Claim, Summarised
from levelbench.measure.statistics.values import arithmetic_mean, harmonic_mean
from levelbench.report.numbers import plural

_DO = "divide all the work by all the time: the harmonic mean of the rates"
_MUCH = 0.01
"""An overstatement of 1 % or more is an error."""


def _check(claim: Claim) -> Iterator[Diagnostic]:
    if fixed_time(claim):
        return
    for at, summary in enumerate(claim.summaries):
        if summary.of == "rates" and summary.n != 1:
            yield from _judged(claim, summary, f"summaries[{at}]")


def _judged(claim: Claim, summary: Summarised, field: str) -> Iterator[Diagnostic]:
    where = summary.where or claim.where
    again = _again(claim, summary)
    if again is not None:
        arithmetic, harmonic, n = again
        said = "" if summary.by in ("arithmetic", None) else f" but is called {summary.by}"
        found = (
            f"{number(arithmetic, 5)}, the '{summary.what}', is the arithmetic mean of {n} rates{said}; "
            f"their harmonic mean is {number(harmonic, 5)}, so it is {percent(arithmetic / harmonic - 1.0)} too high"
        )
        severe = arithmetic >= (1.0 + _MUCH) * harmonic or bool(said)
        yield guilty(f"{field}.by", found, _DO, where, "error" if severe else "warning")
    elif summary.by == "arithmetic":
        of = "rates" if summary.n is None else plural(summary.n, "rate")
        found = f"the '{summary.what}' is the arithmetic mean of {of}, which is at least their true mean"
        yield guilty(f"{field}.by", found, _DO, where, "warning")
    elif summary.by is None:
        yield not_stated(f"{field}.by", f"by which mean the '{summary.what}' was summarised", _DO, where)


def _again(claim: Claim, summary: Summarised) -> tuple[float, float, int] | None:
    """Arithmetic and harmonic mean of the runs whose arithmetic mean is ``summary``, and their number."""
    for _, side in sides(claim):
        rates = side_rates(side)
        if len(rates) < 2 or summary.value is None or summary.n not in (None, len(rates)):
            continue
        arithmetic, harmonic = arithmetic_mean(rates), harmonic_mean(rates)
        if matches(summary.value, arithmetic, harmonic):
            return arithmetic, harmonic, len(rates)
    return None


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
