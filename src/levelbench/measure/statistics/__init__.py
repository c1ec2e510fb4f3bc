"""Statistics of few, noisy, sometimes censored measurements: estimates, intervals, tests, planning.

Every function states its assumptions and the smallest sample it works for, and its claims (coverage, error rates) are
checked by simulation in the tests.
"""

from __future__ import annotations

from levelbench.measure.statistics.compare import (
    LogRatio,
    MeanTest,
    mean_difference,
    paired_log_ratio,
    reaches_on_average,
    resolution_of,
    welch_log_ratio,
)
from levelbench.measure.statistics.distributions import (
    binomial_cdf,
    normal_cdf,
    normal_quantile,
    t_quantile,
    t_survival,
)
from levelbench.measure.statistics.intervals import (
    deviation_interval,
    estimate,
    estimate_median,
    estimate_signed,
    fisher_exact,
    log_mean_interval,
    mean_interval,
    median_interval,
    median_interval_ranks,
    variation,
    wilson,
)
from levelbench.measure.statistics.planning import (
    best_of,
    holm,
    more_runs,
    normal_minimum,
    runs_needed,
    runs_needed_t,
    settling_error,
)
from levelbench.measure.statistics.survival import (
    CensoredTimes,
    KaplanMeier,
    TimeRatio,
    expected_time_with_restarts,
    kaplan_meier,
    log_rank_p,
    restarts_interval,
    time_ratio,
)
from levelbench.measure.statistics.values import (
    RANGE,
    Estimate,
    Interval,
    amdahl_bound,
    arithmetic_mean,
    coefficient_of_variation,
    geometric_mean,
    harmonic_mean,
    olympic_mean,
    p_text,
)

__all__ = [
    "RANGE",
    "CensoredTimes",
    "Estimate",
    "Interval",
    "KaplanMeier",
    "LogRatio",
    "MeanTest",
    "TimeRatio",
    "amdahl_bound",
    "arithmetic_mean",
    "best_of",
    "binomial_cdf",
    "coefficient_of_variation",
    "deviation_interval",
    "estimate",
    "estimate_median",
    "estimate_signed",
    "expected_time_with_restarts",
    "fisher_exact",
    "geometric_mean",
    "harmonic_mean",
    "holm",
    "kaplan_meier",
    "log_mean_interval",
    "log_rank_p",
    "mean_difference",
    "mean_interval",
    "median_interval",
    "median_interval_ranks",
    "more_runs",
    "normal_cdf",
    "normal_minimum",
    "normal_quantile",
    "olympic_mean",
    "p_text",
    "paired_log_ratio",
    "reaches_on_average",
    "resolution_of",
    "restarts_interval",
    "runs_needed",
    "runs_needed_t",
    "settling_error",
    "t_quantile",
    "t_survival",
    "time_ratio",
    "variation",
    "welch_log_ratio",
    "wilson",
]
