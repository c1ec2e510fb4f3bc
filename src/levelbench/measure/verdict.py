"""The verdict of a comparison: FASTER, SLOWER, SAME or UNCLEAR, with the ratio, its interval, and what would settle it.

The one idea: SAME is a finding, not the absence of one. It means that the whole interval of the ratio lies inside the
margin; an interval that neither does so nor excludes 1 is UNCLEAR, and says how many more runs would end that.

Runs that never reached the target are ``None``. They are never filled in and never dropped: first the shares
that reached it are compared (Fisher's exact test), then, if it is known when the others were given up, the times by a
rank test. A run that could never have arrived was given up at infinity, however early it ended.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from levelbench.measure.statistics.accelerated import Arm, time_ratio
from levelbench.measure.statistics.compare import paired_log_ratio, welch_log_ratio
from levelbench.measure.statistics.distributions import normal_quantile
from levelbench.measure.statistics.means import geometric_mean
from levelbench.measure.statistics.planning import more_runs, settling_error
from levelbench.measure.statistics.proportions import fisher_exact
from levelbench.measure.statistics.values import Interval, check_share, positive, watched

__all__ = ["Verdict", "VerdictKind", "format_verdict", "verdict"]


class VerdictKind(StrEnum):
    """What a comparison ends in, said of the second against the first."""

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    UNCLEAR = "UNCLEAR"


@dataclass(frozen=True)
class Verdict:
    """The outcome of comparing times of ``b`` with times of ``a``.

    ``ratio`` is b / a (below 1 means that b is faster), ``low`` and ``high`` its interval at ``level``; ``None`` where
    there is no such number or bound. ``n_a`` and ``n_b`` count all runs, also those that never reached the target.
    ``runs_to_settle`` are the *more* runs an arm that would settle it at 80 % power if the estimate were true, only for
    UNCLEAR. ``reason`` is one plain sentence where the numbers do not speak for themselves, else empty.
    """

    kind: VerdictKind
    ratio: float | None
    low: float | None
    high: float | None
    n_a: int
    n_b: int
    margin: float
    level: float
    runs_to_settle: int | None
    reason: str


def verdict(
    a: Sequence[float | None],
    b: Sequence[float | None],
    *,
    margin: float = 0.02,
    level: float = 0.95,
    paired: bool = False,
    censored_at_a: Sequence[float] | None = None,
    censored_at_b: Sequence[float] | None = None,
) -> Verdict:
    """Compare two samples of times (one value a run, any unit, lower is better; ``None`` never reached the target).

    SAME if the whole interval of b / a lies inside [1 / (1 + margin), 1 + margin], tested first; FASTER or SLOWER if it
    excludes 1; else UNCLEAR. The interval is Welch's on logarithms, or, if the runs of equal index are ``paired`` (they
    share a seed), Student's on the logarithms of their ratios: decide which before looking at the times. With ``None``
    among the runs it inverts a log-rank test and needs ``censored_at_a`` and ``censored_at_b``, when each ``None`` run
    was given up (``math.inf`` for one that could never have arrived: it diverged). With fewer than two runs in an arm
    there is a ratio and no verdict.

    Raises ``ValueError`` for times that are not positive and finite, for an empty arm, for a number of give-up times
    other than that of the ``None`` runs, and for a margin below zero.
    """
    check_share("the level", level)
    if not (math.isfinite(margin) and margin >= 0.0):
        raise ValueError(f"the margin must be finite and not below zero, not {margin}")
    case = _Case(_arm(a, censored_at_a), _arm(b, censored_at_b), len(a), len(b), margin, level)
    known = case.a.n == len(a) and case.b.n == len(b)
    if min(len(a), len(b)) < 2:
        return _too_few(case)
    if len(case.a.reached) == len(a) and len(case.b.reached) == len(b):
        return _complete(case, paired)
    return _censored(case, known)


@dataclass(frozen=True)
class _Case:
    """The two arms and the terms of the comparison; ``n_a`` and ``n_b`` count runs with unknown give-up times too."""

    a: Arm
    b: Arm
    n_a: int
    n_b: int
    margin: float
    level: float

    def says(
        self,
        kind: VerdictKind,
        ratio: float | None = None,
        interval: Interval | None = None,
        more: int | None = None,
        reason: str = "",
    ) -> Verdict:
        ratio = None if ratio is None or math.isinf(ratio) else ratio
        low = None if interval is None or interval.low == 0.0 else interval.low
        high = None if interval is None or math.isinf(interval.high) else interval.high
        return Verdict(kind, ratio, low, high, self.n_a, self.n_b, self.margin, self.level, more, reason)

    def kind(self, interval: Interval) -> VerdictKind:
        if interval.low >= 1.0 / (1.0 + self.margin) and interval.high <= 1.0 + self.margin:
            return VerdictKind.SAME
        if interval.high < 1.0:
            return VerdictKind.FASTER
        return VerdictKind.SLOWER if interval.low > 1.0 else VerdictKind.UNCLEAR

    @property
    def reached(self) -> str:
        return f"{len(self.a.reached)}/{self.n_a} and {len(self.b.reached)}/{self.n_b} runs reached the target"


def _arm(times: Sequence[float | None], censored_at: Sequence[float] | None) -> Arm:
    if len(times) == 0:
        raise ValueError("an arm without runs cannot be compared")
    reached = [time for time in times if time is not None]
    missing = len(times) - len(reached)
    if censored_at is not None and len(censored_at) != missing:
        raise ValueError(f"{len(censored_at)} give-up times for {missing} runs that never reached the target")
    return Arm(
        tuple(map(float, positive(reached, 0))),
        tuple(map(float, watched(() if censored_at is None else censored_at))),
    )


def _too_few(case: _Case) -> Verdict:
    if len(case.a.reached) < case.n_a or len(case.b.reached) < case.n_b:
        return case.says(VerdictKind.UNCLEAR, reason=f"{case.reached}; a verdict needs two runs or more of each")
    ratio = geometric_mean(case.b.reached) / geometric_mean(case.a.reached)
    return case.says(VerdictKind.UNCLEAR, ratio, reason="a verdict needs two runs or more of each")


def _complete(case: _Case, paired: bool) -> Verdict:
    test = paired_log_ratio if paired else welch_log_ratio
    found = test(case.a.reached, case.b.reached, case.level)
    kind = case.kind(found.interval)
    more = None
    if kind is VerdictKind.UNCLEAR:
        error = settling_error(math.log(found.ratio), math.log1p(case.margin), case.level)
        more = more_runs(found.deviation_a, case.n_a, found.deviation_b, case.n_b, error, case.level)
    return case.says(kind, found.ratio, found.interval, more, "paired by seed" if paired else "")


def _censored(case: _Case, known: bool) -> Verdict:
    k_a, k_b = len(case.a.reached), len(case.b.reached)
    p_value = fisher_exact(k_a, case.n_a, k_b, case.n_b)
    found = time_ratio(case.a, case.b, case.level) if known else None
    bounded = found is not None and found.interval.low > 0.0 and math.isfinite(found.interval.high)
    ratio = found.ratio if found is not None and bounded else None
    interval = None if found is None else found.interval
    if p_value <= 1.0 - case.level:
        kind = VerdictKind.FASTER if k_b * case.n_a > k_a * case.n_b else VerdictKind.SLOWER
        # An interval of times that speaks against the shares would only confuse: the shares decide here.
        agrees = interval is not None and case.kind(interval) is kind
        reason = f"{case.reached}: the shares differ (Fisher's exact test, p = {p_value:.2g})"
        return case.says(kind, ratio if agrees else None, interval if agrees else None, reason=reason)
    if interval is None:
        why = "when the others were given up is not known" if not known else "there is no time to compare"
        return case.says(VerdictKind.UNCLEAR, reason=f"{case.reached}; {why}")
    kind = case.kind(interval)
    reason = case.reached
    if kind is VerdictKind.UNCLEAR and not bounded:
        reason += "; too few of them to bound the ratio of the times"
    more = _more_censored(case, ratio, interval) if kind is VerdictKind.UNCLEAR else None
    return case.says(kind, ratio, interval, more, reason)


def _more_censored(case: _Case, ratio: float | None, interval: Interval) -> int | None:
    """More runs an arm, from the width of the interval alone: its standard error shrinks with the root of the runs."""
    if ratio is None or interval.low == interval.high:
        return None
    spread = math.log(interval.high / interval.low) / (2.0 * normal_quantile(0.5 + 0.5 * case.level))
    deviation = spread / math.sqrt(1.0 / case.n_a + 1.0 / case.n_b)
    error = settling_error(math.log(ratio), math.log1p(case.margin), case.level)
    return more_runs(deviation, case.n_a, deviation, case.n_b, error, case.level)


def format_verdict(v: Verdict, name_a: str, name_b: str) -> str:
    """One line for a reader, ``name_b`` against ``name_a``.

    ``FASTER  torch/numpy = 0.81 [0.78, 0.84]  n = 5 + 5``; decimals follow from the interval's width.
    """
    parts = [str(v.kind), _format_ratio(v, f"{name_b}/{name_a}"), f"n = {v.n_a} + {v.n_b}"]
    if v.reason:
        parts.append(v.reason)
    if v.runs_to_settle is not None:
        parts.append(f"about {v.runs_to_settle} more run{'s' * (v.runs_to_settle != 1)} each to settle it")
    return "  ".join(parts)


def _format_ratio(v: Verdict, name: str) -> str:
    if v.low is not None and v.high is not None and v.ratio is not None:
        digits = _decimals(v)
        return f"{name} = {v.ratio:.{digits}f} [{v.low:.{digits}f}, {v.high:.{digits}f}]"
    if v.low is not None:
        return f"{name} above {v.low:.3g}"
    if v.high is not None:
        return f"{name} below {v.high:.3g}"
    return name if v.ratio is None else f"{name} = {v.ratio:.3g}"


def _decimals(v: Verdict) -> int:
    """Decimals that show half the width to two digits if they are below 25, else to one; three for a point.

    More where rounding a bound to 1.00 would contradict the verdict, or to 0 would be no ratio; at most 6.
    """
    low, high, ratio = v.low or 0.0, v.high or 0.0, v.ratio or 0.0
    half, digits = (high - low) / 2.0, 3
    if half > 1e-9 * ratio:
        exponent = math.floor(math.log10(half))
        digits = max(0, (1 if half / 10.0**exponent < 2.5 else 0) - exponent)
    while digits < 6 and any(
        (round(bound, digits) == at) != (bound == at) for bound in (low, high) for at in (0.0, 1.0)
    ):
        digits += 1
    return min(digits, 6)
