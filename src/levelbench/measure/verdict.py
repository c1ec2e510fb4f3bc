"""The verdict of a comparison: FASTER, SLOWER, SAME or UNCLEAR, with the ratio, its interval, and what would settle it.

SAME is a finding, not the absence of one. It means that the whole interval of the ratio lies inside the margin. If an
interval neither does so nor excludes 1, the verdict is UNCLEAR and says how many more runs would settle it.

Runs that never reached the target are ``None``. They are neither imputed nor dropped: the ratio of the times is the one
under which a log-rank test cannot distinguish the arms, with every run observed only as long as both arms were. A run
that could never have reached the target counts as given up at infinity, however early it ended.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from levelbench.measure.design import Between, Sessions, Span, order_bias, schedule_of, session_means
from levelbench.measure.statistics.compare import RARE, LogRatio, paired_log_ratio, resolution_of, welch_log_ratio
from levelbench.measure.statistics.distributions import binomial_cdf, normal_quantile, t_quantile
from levelbench.measure.statistics.intervals import fisher_exact
from levelbench.measure.statistics.planning import more_runs, settling_error
from levelbench.measure.statistics.survival import (
    CensoredTimes,
    expected_time_with_restarts,
    log_rank_p,
    log_rank_sign,
    time_ratio,
)
from levelbench.measure.statistics.values import (
    Interval,
    check_share,
    exponential,
    geometric_mean,
    p_text,
    positive,
    watched,
)

__all__ = ["CLOCK_STEP_S", "LEAST_RUNS", "NOT_INTERLEAVED", "Verdict", "VerdictKind", "format_verdict"]
__all__ += ["format_verdicts", "ratio_sentence", "ratio_text", "slower_p", "verdict"]

LEAST_RUNS, _FARTHEST = 3, 1e300
"""Distinct runs of each arm below which there is a ratio but no verdict."""

CLOCK_STEP_S = 1e-9
"""The resolution of times measured by our own timelines."""

NOT_INTERLEAVED = "not interleaved: run them together, with --fresh"
"""How the reason ends if there is no verdict because the arms did not take turns."""

_DRIFTED = "widened by the drift, as on average one ran before the other"
_LEAST_SESSIONS = 3
_UNEQUAL, _HALF_SURE = 1.5, 0.2
_MOST, _HALF = 0.7, 0.5
"""Spreads of two arms are unequal from this ratio on; if they are not, the p value that a second test must reach."""
_MARGIN, _LEVEL = 0.02, 0.95


class VerdictKind(StrEnum):
    """The outcome of a comparison: how the second arm compares with the first."""

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    UNCLEAR = "UNCLEAR"


@dataclass(frozen=True)
class Verdict:
    """The outcome of comparing times of ``b`` with times of ``a``.

    ``ratio`` is b / a (below 1 means that b is faster), ``low`` and ``high`` its interval at ``level``; ``None`` if
    there is no such number or bound. ``n_a`` and ``n_b`` count all runs, including those that never reached the target.
    ``runs_to_settle``, only for UNCLEAR, are the *additional* runs an arm that would settle it at 80 % power if the
    estimate were true. ``reason`` is one plain sentence if the numbers do not speak for themselves, else empty.
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
    spent_a: Sequence[float] | None = None,
    spent_b: Sequence[float] | None = None,
    spans_a: Sequence[Span] | None = None,
    spans_b: Sequence[Span] | None = None,
    between: Between | None = None,
    resolution: float | None = None,
    paired_by: str = "seed",
) -> Verdict:
    """Compare two samples of times (one value a run, any unit, lower is better; ``None`` never reached the target).

    SAME if the whole interval of b / a lies inside [1 / (1 + margin), 1 + margin], which is tested first; FASTER or
    SLOWER if it excludes 1; else UNCLEAR. The interval is Welch's on logarithms or, if the runs of equal index are
    ``paired`` (they share a seed), Student's on the logarithms of their ratios: decide which before looking at the
    times. From six runs on, outliers are trimmed. ``resolution`` is the clock's; by default it is inferred from the
    times. ``paired_by`` is what the reason says that they share.

    With ``None`` among the runs the interval inverts a log-rank test and needs ``censored_at_a`` and ``censored_at_b``,
    the times at which each ``None`` run was given up (``math.inf`` if it could never have arrived, because it
    diverged). The cost of these runs, ``spent_a`` and ``spent_b``, gives the expected time with restarts, which must
    not contradict the verdict.

    ``spans_a`` and ``spans_b`` are when each run started and ended. If they show that the arms did not take turns,
    neighbouring stretches of the two are compared instead of runs. With fewer than three pairs of stretches the
    interval is widened by ``between``, how much sessions vary on this machine; if that is unknown, the answer is
    UNCLEAR.

    With fewer than three runs in an arm there is a ratio but no verdict. Raises ``ValueError`` for times that are not
    positive and finite or that differ by a factor above 10^300, for an empty arm, if the number of give-up times is not
    that of the ``None`` runs or the number of spans not that of the runs, and for a margin or resolution below zero.
    """
    check_share("the level", level)
    if not (math.isfinite(margin) and margin >= 0.0):
        raise ValueError(f"the margin must be finite and not below zero, not {margin}")
    if resolution is not None and not (math.isfinite(resolution) and resolution >= 0.0):
        raise ValueError(f"the resolution must be finite and not below zero, not {resolution}")
    for spans, arm in ((spans_a, a), (spans_b, b)):
        if spans is not None and len(spans) != len(arm):
            raise ValueError(f"{len(spans)} spans for {len(arm)} runs")
    case = _Case(_arm(a, censored_at_a), _arm(b, censored_at_b), len(a), len(b), margin, level)
    known = case.a.n == len(a) and case.b.n == len(b)
    times = (*case.a.reached, *case.b.reached)
    if times and max(times) > _FARTHEST * min(times):
        raise ValueError(f"times of {min(times):g} and {max(times):g} are too far apart to have the same unit")
    if min(len(a), len(b)) < LEAST_RUNS:
        return _too_few(case)
    complete = len(case.a.reached) == len(a) and len(case.b.reached) == len(b)
    sessions = None
    if spans_a is not None and spans_b is not None:
        sessions = schedule_of(spans_a, spans_b, paired=paired)
    if complete:
        step = resolution_of(case.a.reached, case.b.reached) if resolution is None else resolution
        bias = 0.0
        if spans_a is not None and spans_b is not None:
            bias = order_bias(case.a.reached, case.b.reached, spans_a, spans_b, sessions)
        if sessions is None:
            return _complete(case, paired_by if paired else "", step, bias)
        return _one_after_the_other(case, sessions, between, step, bias)
    if sessions is not None:
        return case.says(VerdictKind.UNCLEAR, reason=f"{case.reached}; {NOT_INTERLEAVED}")
    return _censored(case, known, spent_a, spent_b)


def slower_p(a: Sequence[float | None], b: Sequence[float | None]) -> float:
    """The p value of the verdict's own test if ``b`` is slower than ``a``, for a correction over many comparisons.

    1 if ``b`` is not the slower one, or if the p value is at most 5 % but the verdict is not SLOWER: the arms are the
    SAME within the margin, or outliers decide. ``None`` is a run that could never have reached the target, however long
    it tried. Raises ``ValueError`` as :func:`verdict` does, and for fewer than three runs in an arm.
    """
    if min(len(a), len(b)) < LEAST_RUNS:
        raise ValueError(f"{len(a)} and {len(b)} runs cannot be tested: {LEAST_RUNS} or more of each are needed")
    never = [[math.inf] * sum(time is None for time in arm) for arm in (a, b)]
    if any(never):
        arms = _arm(a, never[0]), _arm(b, never[1])
        p_value, slower = log_rank_p(*arms), log_rank_sign(*arms) < 0
    else:
        found = welch_log_ratio([time for time in a if time is not None], [time for time in b if time is not None])
        p_value, slower = found.p_value, found.ratio > 1.0
    if not slower:
        return 1.0
    if p_value > 1.0 - _LEVEL:
        return p_value
    said = verdict(a, b, censored_at_a=never[0] or None, censored_at_b=never[1] or None)
    return p_value if said.kind is VerdictKind.SLOWER else 1.0


@dataclass(frozen=True)
class _Case:
    """The two arms and the terms of the comparison; ``n_a`` and ``n_b`` count runs with unknown give-up times too."""

    a: CensoredTimes
    b: CensoredTimes
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
    def hopeless(self) -> bool:
        """Whether some run could never have reached the target."""
        return any(map(math.isinf, (*self.a.given_up, *self.b.given_up)))

    @property
    def reached(self) -> str:
        # In the order in which a verdict names them: b against a.
        return f"{len(self.b.reached)}/{self.n_b} and {len(self.a.reached)}/{self.n_a} runs reached the target"


def _arm(times: Sequence[float | None], censored_at: Sequence[float] | None) -> CensoredTimes:
    if len(times) == 0:
        raise ValueError("an arm without runs cannot be compared")
    try:
        reached = [float(time) for time in times if time is not None]
    except OverflowError:
        raise ValueError("a time is larger than any number of 64 bits") from None
    missing = len(times) - len(reached)
    if censored_at is not None and len(censored_at) != missing:
        raise ValueError(f"{len(censored_at)} give-up times for {missing} runs that never reached the target")
    return CensoredTimes(
        tuple(map(float, positive(reached, 0))),
        tuple(map(float, watched(() if censored_at is None else censored_at))),
    )


def _too_few(case: _Case) -> Verdict:
    why = f"too few runs: a verdict needs {LEAST_RUNS} or more of each"
    if len(case.a.reached) < case.n_a or len(case.b.reached) < case.n_b:
        return case.says(VerdictKind.UNCLEAR, reason=f"{case.reached}; {why}")
    ratio = geometric_mean(case.b.reached) / geometric_mean(case.a.reached)
    return case.says(VerdictKind.UNCLEAR, ratio, reason=why)


def _complete(case: _Case, paired: str, resolution: float, bias: float) -> Verdict:
    """``paired`` is by what, or empty; ``bias`` what a drift may have added because one arm mostly went first."""
    test = paired_log_ratio if paired else welch_log_ratio
    found = test(case.a.reached, case.b.reached, case.level, resolution=resolution)
    interval = found.interval
    interval = _wider(interval, bias)
    kind = case.kind(interval)
    decide = _outliers_decide(found, kind, case)
    if decide:
        kind = VerdictKind.UNCLEAR
    more = None
    if kind is VerdictKind.UNCLEAR and not decide:
        error = settling_error(math.log(found.ratio), math.log1p(case.margin), case.level)
        more = more_runs(found.deviation_a, case.n_a, found.deviation_b, case.n_b, error, case.level)
    said = [f"paired by {paired}"] if paired else []
    if bias:
        said.append(_DRIFTED)
    if found.trimmed or found.accidents:
        how = f"{found.trimmed} at each end" if found.trimmed else f"{found.accidents} in all"
        said.append(f"outliers trimmed, {how} (with them the ratio is {found.untrimmed:.3g})")
    if not decide and kind in (VerdictKind.FASTER, VerdictKind.SLOWER) and _hides(found):
        said.append("false if the faster arm has slow runs of its own: more runs tell")
    if decide and found.without is not None:
        said.append(f"without its accidents the ratio is {found.without:.3g}")
    if decide:
        said.append("which decide: look at what they have in common, and make more runs")
    return case.says(kind, found.ratio, interval, more, ", ".join(said))


def _outliers_decide(found: LogRatio, kind: VerdictKind, case: _Case) -> bool:
    """Whether the verdict would be different with the trimmed runs included.

    Arms that differ, or may differ, with all runs included are not called SAME unless all runs say so too. Accidents
    would hide most differences, but if the outliers may belong to the recipe (such as a long tail of one arm, which is
    trimmed at one end), all runs have to show most of the difference.
    """
    if kind is VerdictKind.UNCLEAR:
        return False
    if found.without is not None and kind is not VerdictKind.SAME:
        return math.log(found.without) / math.log(found.ratio) < 0.5
    if not (found.trimmed or found.accidents):
        return False
    seen, all_runs = math.log(found.ratio), math.log(found.untrimmed)
    if kind is VerdictKind.SAME:
        if found.untrimmed_interval is not None and case.kind(found.untrimmed_interval) is VerdictKind.SAME:
            return False
        return found.moderate or abs(all_runs) > math.log1p(case.margin)
    # If mostly the faster arm has slow runs, they may be its own; all runs together then show less of the difference.
    excess = _slower_by(found)
    mostly_own = excess > 0 and excess >= RARE * min(case.n_a, case.n_b)
    return ((found.moderate or found.fast or mostly_own) and all_runs / seen < _MOST) or (excess > 1 and _hides(found))


def _slower_by(found: LogRatio) -> int:
    """How many more slow runs the faster arm has than the other."""
    return found.slow_b - found.slow_a if found.ratio < 1.0 else found.slow_a - found.slow_b


def _hides(found: LogRatio) -> bool:
    """Whether the slow runs that are left out, more of them in the faster arm, would remove half of the difference."""
    left_out = bool(found.trimmed or found.accidents) and _slower_by(found) > 0
    return left_out and math.log(found.untrimmed) / math.log(found.ratio) < _HALF


def _wider(interval: Interval, bias: float) -> Interval:
    """The interval, widened on both sides by what a drift may have added to the logarithm of the ratio."""
    return replace(interval, low=interval.low / math.exp(bias), high=interval.high * math.exp(bias))


def _one_after_the_other(
    case: _Case, sessions: Sessions, between: Between | None, resolution: float, bias: float
) -> Verdict:
    """Compare neighbouring stretches instead of runs if there are enough pairs; else widen by ``between``."""
    means = session_means(case.a.reached, sessions.a), session_means(case.b.reached, sessions.b)
    if len(sessions.pairs) >= _LEAST_SESSIONS:
        first, second = (
            [arm[at] for at in side] for arm, side in zip(means, zip(*sessions.pairs, strict=True), strict=True)
        )
        found = paired_log_ratio(first, second, case.level, resolution=resolution)
        wide = _wider(found.interval, bias)
        said = [f"not run by run: {len(sessions.pairs)} pairs of neighbouring stretches are compared"]
        said += [_DRIFTED] * bool(bias)
        all_runs = geometric_mean(case.b.reached) / geometric_mean(case.a.reached)
        # Stretches count alike, however many runs they have: what all runs say may not be excluded by them.
        wide = replace(wide, low=min(wide.low, all_runs), high=max(wide.high, all_runs))
        if f"{all_runs:.3g}" != f"{found.ratio:.3g}":
            said.append(f"the ratio of all runs is {all_runs:.3g}")
        return case.says(case.kind(wide), found.ratio, wide, reason=", ".join(said))
    found = welch_log_ratio(case.a.reached, case.b.reached, case.level, resolution=resolution)
    if between is None:
        return case.says(VerdictKind.UNCLEAR, found.ratio, reason=NOT_INTERLEAVED)
    wide = _widened(found, between, case)
    reason = f"not interleaved: widened by how much {between.dof + 1} earlier sessions of this machine varied"
    return case.says(case.kind(wide), found.ratio, wide, reason=reason)


def _widened(found: LogRatio, between: Between, case: _Case) -> Interval:
    own = found.deviation_a**2 / case.n_a + found.deviation_b**2 / case.n_b
    # Twice, however many sessions an arm has: sessions that follow each other without the other arm share the drift.
    variance = own + 2.0 * between.variance
    # The variance between sessions is the larger and less certain part, so its degrees of freedom are used for the sum.
    reach = t_quantile(0.5 + 0.5 * case.level, between.dof) * math.sqrt(variance)
    centre = math.log(found.ratio)
    return Interval(exponential(centre - reach), exponential(centre + reach), case.level, "widened by sessions")


def _censored(case: _Case, known: bool, spent_a: Sequence[float] | None, spent_b: Sequence[float] | None) -> Verdict:
    """By the log-rank test alone, which sees shares and times at once, over the time that both arms were observed."""
    if not known:
        return case.says(VerdictKind.UNCLEAR, reason=f"{case.reached}; when the others were given up is not known")
    found = time_ratio(case.a, case.b, case.level)
    horizon = min(case.a.horizon, case.b.horizon)
    reason = case.reached
    watched = [sum(time <= horizon for time in arm.reached) for arm in (case.a, case.b)]
    if math.isfinite(horizon) and max((*case.a.reached, *case.b.reached), default=0.0) > horizon:
        reason += f", {watched[1]} and {watched[0]} in the {horizon:.3g} s for which all were watched"
    if why := _spreads_may_tell(case, watched):
        return case.says(
            VerdictKind.UNCLEAR, reason=f"{reason}; fewer than half arrive while all are watched, and {why}"
        )
    if found is None:
        return replace(_doubly_sure(case, _of_shares(case)), reason=reason)
    bounded = found.interval.low > 0.0 and math.isfinite(found.interval.high)
    ratio = found.ratio if bounded else None
    kind = case.kind(found.interval)
    p_value = log_rank_p(case.a, case.b)
    if kind is VerdictKind.UNCLEAR and not bounded:
        reason += "; "
        reason += "runs that could never arrive leave no ratio" if case.hopeless else "too few to bound the ratio"
        reason += " of the times"
    if kind is VerdictKind.UNCLEAR and p_value <= 1.0 - case.level:
        # No ratio of times makes the arms alike, because too many runs of one could never have reached the target.
        kind, ratio, found = (
            _of_shares(case).kind,
            None,
            replace(found, interval=Interval(0.0, math.inf, case.level, "")),
        )
        reason = f"{case.reached}: fewer arrive (log-rank test, {p_text(p_value)})"
    sure = _doubly_sure(case, case.says(kind)).kind
    if ratio is not None and _spreads_differ(case):
        # The ratio at which the ranks are alike is then that of the slower runs, so use the mean logarithms as well.
        means = _watched_ratio(case).interval
        low, high = min(found.interval.low, means.low), max(found.interval.high, means.high)
        found = replace(found, interval=Interval(low, high, case.level, "log-rank test and means of logarithms"))
        sure = sure if case.kind(found.interval) is sure else VerdictKind.UNCLEAR
    if sure is not kind:
        reason += "; the ranks differ, and the times over which both were watched do not: their spreads differ"
        kind = sure
    costs = _restarts(case, spent_a, spent_b)
    if costs is not None and kind is (VerdictKind.FASTER if costs[1] > costs[0] else VerdictKind.SLOWER):
        reason += f"; the expected times with restarts, {costs[0]:.3g} and {costs[1]:.3g} s, say the opposite"
        # The ratio counts a run that was given up as one that would arrive later; a hopeless one costs a restart.
        if case.hopeless:
            return case.says(VerdictKind.UNCLEAR, ratio, found.interval, reason=reason)
    more = _more_censored(case, ratio, found.interval) if kind is VerdictKind.UNCLEAR else None
    return case.says(kind, ratio, found.interval, more, reason)


def _doubly_sure(case: _Case, found: Verdict) -> Verdict:
    """``found``, or UNCLEAR if the times up to the common horizon do not support what the ranks say.

    The log-rank test assumes that the arms are equally spread. If they are not, it says which one has the slower last
    runs. The mean logarithm of the times up to the common horizon needs no such assumption; it has a little less power,
    so it must be significant only if the spreads visibly differ.
    """
    if found.kind not in (VerdictKind.FASTER, VerdictKind.SLOWER):
        return found
    if case.hopeless:
        # If what differs is the share of runs that could never have arrived, the spread does not matter.
        counts = len(case.a.reached), len(case.b.reached)
        if fisher_exact(counts[0], case.n_a, counts[1], case.n_b) <= 1.0 - case.level or min(counts) < LEAST_RUNS:
            return found
    means = _watched_ratio(case)
    agrees = means.ratio < 1.0 if found.kind is VerdictKind.FASTER else means.ratio > 1.0
    alpha = 1.0 - case.level
    sure = agrees and means.p_value <= (alpha if _spreads_differ(case) else max(_HALF_SURE, alpha))
    return found if sure else replace(found, kind=VerdictKind.UNCLEAR)


def _spreads_may_tell(case: _Case, arrived: Sequence[int]) -> str:
    """Why the shares that arrive may come from spreads alone; empty if they cannot.

    Of two arms with the same typical time, the one that varies more has more early runs. Where too few runs of one
    arrive to know its spread, the typical times differ only if clearly more than half of one arm arrive, and clearly
    fewer than half of the other (sign tests).
    """
    alpha = 1.0 - case.level
    possible = [n - sum(map(math.isinf, arm.given_up)) for arm, n in ((case.a, case.n_a), (case.b, case.n_b))]
    if case.hopeless and fisher_exact(possible[0], case.n_a, possible[1], case.n_b) <= alpha:
        return ""
    (slow, of_slow), (fast, of_fast) = sorted(
        zip(arrived, possible, strict=True), key=lambda each: each[0] / max(1, each[1])
    )
    if not of_slow or slow / of_slow >= 0.5:
        return ""
    if _spreads_differ(case):
        return "spreads differ"
    if min(len(case.a.reached), len(case.b.reached)) >= LEAST_RUNS:
        return ""
    clear = max(binomial_cdf(of_fast - fast, of_fast, 0.5), binomial_cdf(slow, of_slow, 0.5)) <= alpha
    return "" if clear else "too few of one to know how much its times vary"


def _spreads_differ(case: _Case) -> bool:
    """Whether the spreads of the times of the runs that arrived visibly differ."""
    if min(len(case.a.reached), len(case.b.reached)) < LEAST_RUNS:
        return False
    low, high = sorted(float(np.std(np.log(arm.reached), ddof=1)) for arm in (case.a, case.b))
    return low > 0.0 and high > _UNEQUAL * low


def _watched_ratio(case: _Case) -> LogRatio:
    """The ratio of the times up to the common horizon; only of runs that arrived if some never could have."""
    horizon = min(case.a.horizon, case.b.horizon)
    first, second = (
        [*(min(time, horizon) for time in arm.reached), *(horizon for _ in arm.given_up if not case.hopeless)]
        for arm in (case.a, case.b)
    )
    return welch_log_ratio(first, second, case.level, resolution=CLOCK_STEP_S)


def _of_shares(case: _Case) -> Verdict:
    """For arms without a ratio of times: which one arrives sooner or more often, by the log-rank test at ratio 1."""
    if log_rank_p(case.a, case.b) > 1.0 - case.level:
        return case.says(VerdictKind.UNCLEAR)
    return case.says(VerdictKind.FASTER if log_rank_sign(case.a, case.b) > 0 else VerdictKind.SLOWER)


def _restarts(
    case: _Case, spent_a: Sequence[float] | None, spent_b: Sequence[float] | None
) -> tuple[float, float] | None:
    """The expected time with restarts of both arms; ``None`` if the costs of the runs that missed are unknown."""
    costs = []
    for arm, n, spent in ((case.a, case.n_a, spent_a), (case.b, case.n_b, spent_b)):
        given = arm.given_up if spent is None else spent
        if len(given) != n - len(arm.reached) or not all(map(math.isfinite, given)):
            return None
        costs.append(expected_time_with_restarts(arm.reached, given))
    return costs[0], costs[1]


def _more_censored(case: _Case, ratio: float | None, interval: Interval) -> int | None:
    """More runs an arm from the width of the interval alone: the standard error shrinks with the root of the runs."""
    if ratio is None or interval.low == interval.high:
        return None
    spread = math.log(interval.high / interval.low) / (2.0 * normal_quantile(0.5 + 0.5 * case.level))
    deviation = spread / math.sqrt(1.0 / case.n_a + 1.0 / case.n_b)
    error = settling_error(math.log(ratio), math.log1p(case.margin), case.level)
    return more_runs(deviation, case.n_a, deviation, case.n_b, error, case.level)


def format_verdict(v: Verdict, name_a: str, name_b: str) -> str:
    """One sentence comparing ``name_b`` with ``name_a``; its decimals follow from the width of the interval.

    ``FASTER: torch takes 0.81 [0.78, 0.84] times as long as numpy (n = 5 + 5); paired by seed``
    """
    parts = [f"{v.kind}: {ratio_sentence(v, name_a, name_b)} ({_terms(v)})"]
    if v.reason:
        parts.append(v.reason)
    if v.runs_to_settle is not None:
        parts.append(f"about {v.runs_to_settle:,} more run{'s' * (v.runs_to_settle != 1)} each to settle it")
    return "; ".join(parts)


def _terms(v: Verdict) -> str:
    terms = [f"n = {v.n_b} + {v.n_a}"]
    if v.margin != _MARGIN:
        terms.append(f"SAME within {v.margin:.3g}")
    if v.level < _LEVEL:
        terms.append(f"at a level of {v.level:.3g}")
    return ", ".join(terms)


def format_verdicts(base: str, found: Sequence[tuple[str, Verdict]], *, terse: bool = False) -> tuple[str, list[str]]:
    """Verdicts on several sides against ``base``: what they have in common, and the rest of each in a short sentence.

    ``compared with numpy (n = 5 + 5, paired by seed)``, and ``FASTER: torch takes 0.81 [0.78, 0.84] times as long``,
    or if ``terse``: ``FASTER: torch x0.81 [0.78, 0.84]``
    """
    terms = [(_terms(v), v.reason) for _, v in found]
    common = [column[0] for column in zip(*terms, strict=True) if len(set(column)) == 1]
    shared = ", ".join(filter(None, common))
    lines = []
    for (name, v), own in zip(found, terms, strict=True):
        sentence = ratio_sentence(v, base, name).removesuffix(f" as {base}").removesuffix(f" against {base}")
        if terse:
            ratio = sentence.removeprefix(f"{name} takes ").removesuffix(" times as long")
            sentence = name if ratio == name else f"{name} {'x' * ratio[0].isdigit()}{ratio}"
        parts = [f"{v.kind}: {sentence}", *(term for term in own if term and term not in common)]
        if v.runs_to_settle is not None:
            parts.append(f"about {v.runs_to_settle:,} more run{'s' * (v.runs_to_settle != 1)} each")
        lines.append("; ".join(parts))
    return f"compared with {base}{shared and f' ({shared})'}", lines


def ratio_text(v: Verdict) -> str:
    """``0.81 [0.78, 0.84]`` for a verdict with a ratio and an interval; rounding never makes a bound contradict it."""
    digits, found, low, high = _decimals(v), v.ratio or 0.0, v.low or 0.0, v.high or 0.0
    if high - low <= 20.0:
        return f"{found:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
    # A lower bound near 0 needs decimals that say nothing about the ratio, or about an upper bound in the hundreds.
    ratio = f"{found:.{min(digits, _decimals_of_three(found))}f}"
    low_text, high_text, ratio = (
        f"{float(f'{each:.3g}'):,.0f}" if each >= 10.0 else text
        for each, text in ((low, f"{low:.{digits}f}"), (high, f"{high:.{digits}f}"), (found, ratio))
    )
    return f"{ratio} [{low_text}, {high_text}]"


def _decimals_of_three(value: float) -> int:
    """Decimals that show three significant digits."""
    return max(0, 2 - math.floor(math.log10(value))) if value > 0.0 else 3


def ratio_sentence(v: Verdict, name_a: str, name_b: str, verb: str = "takes", as_what: str = "as long as") -> str:
    """``torch takes 0.81 [0.78, 0.84] times as long as numpy``; with one bound, ``more than`` or ``less than`` it."""
    if v.low is not None and v.high is not None and v.ratio is not None:
        ratio = ratio_text(v)
    elif v.low is not None:
        ratio = f"more than {v.low:.3g}"
    elif v.high is not None:
        ratio = f"less than {v.high:.3g}"
    elif v.ratio is not None:
        ratio = f"{v.ratio:.3g}"
    else:
        return f"{name_b} against {name_a}"
    return f"{name_b} {verb} {ratio} times {as_what} {name_a}"


def _decimals(v: Verdict) -> int:
    """Decimals that show half the width to two digits if these are below 25, else to one; three for a point.

    More if rounding a bound to 1.00 would contradict the verdict, or rounding it to 0 would not be a ratio; at most 6.
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
