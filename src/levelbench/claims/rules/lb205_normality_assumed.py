"""LB205: an interval or test that needs normal values was used on values that are unchecked or not normal."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import guilty, not_stated, number, pairs
from levelbench.claims.rules._runs import FEWEST, Normality, normality, sample_of, side_qualities, side_times
from levelbench.claims.view import Claim, Side

_DO = "use order statistics (or a rank test), or logarithms, or show a normality test and a Q-Q plot of the values"
_PARAMETRIC = re.compile(
    r"(?<![a-z])(t|z|student|students|welch|welchs|anova|gauss|gaussian|normal|standard[ -]error|1\.96)(?![a-z])"
)
_FREE = re.compile(
    r"bootstrap|permutation|rank|order[ -]statistic|mann|wilcoxon|kruskal|binomial|wilson|sign test|trimmed|yuen"
)
_LOG = re.compile(r"(?<![a-z])(log|logs|logarithms?|lognormal|log-normal)(?![a-z])")


def _check(claim: Claim) -> Iterator[Diagnostic]:
    for at, summary in enumerate(claim.summaries):
        if summary.interval_by and _assumes(summary.interval_by):
            sample = sample_of(claim, summary)
            tests = [(f"the '{summary.what}'", sample)] if sample is not None else []
            field, what = f"summaries[{at}].normality_checked", f"the interval of the '{summary.what}'"
            where = summary.where or claim.where
            yield from _judged((field, what, where), summary.interval_by, summary.normality_checked, tests)
    for pair in pairs(claim):
        comparison = pair.comparison
        if comparison.test and _assumes(comparison.test):
            values = side_qualities if comparison.of == "quality" else side_times
            tests = [(f"'{side.name}'", values(side)) for side in (pair.new, pair.base)]
            if "paired" in comparison.test.lower() and (ratios := _ratios(pair.new, pair.base)):
                # The runs of a seed share what makes them long, so it is the ratios that have to be normal.
                tests = [("the ratios of the pairs", ratios)]
            field, what = f"{pair.field}.normality_checked", f"the test of '{pair.new.name}' and '{pair.base.name}'"
            yield from _judged((field, what, pair.where), comparison.test, comparison.normality_checked, tests)


def _ratios(new: Side, base: Side) -> list[float]:
    """The ratios of the times of runs with the same seed; none if seeds are not stated."""
    times = [
        {run.seed: run.time_s for run in side.runs if run.seed is not None and run.time_s and not run.failed}
        for side in (new, base)
    ]
    return [times[0][seed] / times[1][seed] for seed in times[0] if seed in times[1]]


def _assumes(method: str) -> bool:
    words = method.lower().replace("'", "").replace("\N{RIGHT SINGLE QUOTATION MARK}", "")
    return _PARAMETRIC.search(words) is not None and _FREE.search(words) is None


def _tested(method: str, values: Sequence[float]) -> Normality | None:
    """The check on the scale of the method."""
    if _LOG.search(method.lower()):
        return normality([math.log(value) for value in values]) if values and min(values) > 0.0 else None
    return normality(values)


def _judged(
    place: tuple[str, str, str], method: str, checked: bool | None, samples: list[tuple[str, Sequence[float]]]
) -> Iterator[Diagnostic]:
    field, what, where = place
    results = [(name, _tested(method, values)) for name, values in samples]
    for name, result in results:
        if result is not None and result.rejected:
            said = "is said to be checked, but" if checked else "assumes normal values, but"
            found = (
                f"{what} ({method}) {said} the {result.n} values of {name} have skewness {number(result.skewness)} and "
                f"kurtosis {number(result.kurtosis)}: not normal at the 1 % level"
            )
            yield guilty(field, found, _DO, where, "warning" if checked else "error")
            return
    if checked or (results and all(result is not None for _, result in results)):
        return
    if checked is False:
        found = f"{what} ({method}) assumes normal values, but that was not checked{_few(samples)}"
        yield guilty(field, found, _DO, where, "warning")
    else:
        yield not_stated(field, f"whether the values behind {what} ({method}) are normal", _DO, where)


def _few(samples: list[tuple[str, Sequence[float]]]) -> str:
    fewest = min((len(values) for _, values in samples), default=0)
    return f"; {fewest} values are too few for a test" if 0 < fewest < FEWEST else ""


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
