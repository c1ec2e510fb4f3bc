"""Every interval covers the truth as often as its level says: seeded simulations, at most a point below nominal."""

import math

import numpy as np
import pytest
from scipy import stats

from levelbench.measure.clocks import FakeClock
from levelbench.measure.processes import Answer, Launcher, Running, sample_replicates
from levelbench.measure.statistics import (
    CensoredTimes,
    estimate,
    kaplan_meier,
    log_mean_interval,
    log_rank_p,
    mean_interval,
    median_interval,
    time_ratio,
    welch_log_ratio,
    wilson,
)
from levelbench.measure.stopping import Budget, Precision

LEVEL = 0.95


def covers(hits, repeats, slack=0.01):
    """At least nominal less a point, allowing for three standard errors of the simulation beyond the slack."""
    return hits / repeats >= LEVEL - slack - 3 * math.sqrt(LEVEL * (1 - LEVEL) / repeats)


@pytest.mark.parametrize("n", [6, 9, 20, 51])
@pytest.mark.parametrize("draw", ["standard_normal", "standard_exponential", "standard_cauchy"])
def test_the_exact_interval_covers_the_median_of_any_distribution(n, draw):
    repeats = 3000
    values = getattr(np.random.default_rng([1, n]), draw)((repeats, n))
    truth = math.log(2) if draw == "standard_exponential" else 0.0
    assert covers(sum(truth in median_interval(row) for row in values), repeats)


@pytest.mark.parametrize("n", [2, 3, 5, 30])
def test_the_t_interval_covers_the_mean_of_a_normal(n):
    repeats = 3000
    values = np.random.default_rng([2, n]).standard_normal((repeats, n))
    assert covers(sum(0.0 in mean_interval(row) for row in values), repeats)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_the_t_interval_on_logarithms_covers_the_median_of_a_log_normal(n):
    repeats = 3000
    values = np.exp(0.5 * np.random.default_rng([3, n]).standard_normal((repeats, n)))
    assert covers(sum(1.0 in log_mean_interval(row) for row in values), repeats)


@pytest.mark.parametrize("n", [6, 12])
def test_an_estimate_covers_the_median_of_a_log_normal(n):
    repeats = 3000
    values = np.exp(0.1 * np.random.default_rng([4, n]).standard_normal((repeats, n)))
    assert covers(sum(1.0 in estimate(row).interval for row in values), repeats)


@pytest.mark.slow
@pytest.mark.parametrize(("n_a", "n_b"), [(2, 2), (3, 3), (5, 5), (3, 10), (10, 3)])
@pytest.mark.parametrize("spread_b", [0.03, 0.15])
def test_the_interval_of_a_ratio_covers_it_under_unequal_noise(n_a, n_b, spread_b):
    repeats = 3000
    random = np.random.default_rng([5, n_a, n_b])
    a = np.exp(0.03 * random.standard_normal((repeats, n_a)))
    b = 1.3 * np.exp(spread_b * random.standard_normal((repeats, n_b)))
    # Below six values nothing is trimmed, so that among arms of equal size an interval is scipy's, and holds what
    # scipy's test does not reject. That is seen on the first, and most of the time spared.
    rejected = stats.ttest_ind(np.log(b / 1.3), np.log(a), axis=1, equal_var=False).pvalue <= 1 - LEVEL
    hits = 0
    for at, (x, y) in enumerate(zip(a, b, strict=True)):
        if n_a != n_b or rejected[at] or at < 300:
            covered = 1.3 in welch_log_ratio(x, y).interval
            assert n_a != n_b or covered == (not rejected[at])
            hits += covered
        else:
            hits += 1
    # Welch's degrees of freedom are an approximation: at 3 + 10 runs of very unequal noise they cost a point more.
    assert covers(hits, repeats, slack=0.02)


@pytest.mark.parametrize("n", [5, 10, 20, 50, 200])
def test_wilsons_interval_covers_on_average_over_all_shares(n):
    shares = np.linspace(0.005, 0.995, 199)
    intervals = [wilson(k, n) for k in range(n + 1)]
    inside = np.array([[share in interval for interval in intervals] for share in shares])
    coverage = (inside * stats.binom.pmf(np.arange(n + 1), n, shares[:, None])).sum(axis=1)
    assert coverage.mean() >= LEVEL - 0.01


@pytest.mark.slow
@pytest.mark.parametrize("n", [20, 50])
def test_kaplan_meiers_intervals_cover_survival_and_median_under_censoring(n):
    repeats = 1200
    random = np.random.default_rng([6, n])
    events = random.standard_exponential((repeats, n))
    given_up = random.uniform(0.5, 3.0, (repeats, n))
    share = median = 0
    for event, stop in zip(events, given_up, strict=True):
        curve = kaplan_meier(np.minimum(event, stop), event <= stop)
        share += math.exp(-0.5) in curve.interval_at(0.5)
        median += math.log(2) in curve.median().interval
    assert covers(share, repeats)
    assert covers(median, repeats)


@pytest.mark.slow
@pytest.mark.parametrize("n", [5, 6, 12])
def test_the_ratio_of_censored_times_is_covered(n):
    repeats = 300
    random = np.random.default_rng([7, n])
    a, b = np.exp(0.2 * random.standard_normal((2, repeats, n)))
    hits = 0
    for at, (x, y) in enumerate(zip(a, 1.25 * b, strict=True)):
        arms = [CensoredTimes(tuple(t[t < 1.4]), (1.4,) * int((t >= 1.4).sum())) for t in (x, y)]
        at_truth = CensoredTimes(tuple(t / 1.25 for t in arms[1].reached), tuple(t / 1.25 for t in arms[1].given_up))
        # What the test does not reject is in the interval; that is seen on the first, and most of the time spared.
        kept = log_rank_p(arms[0], at_truth) > 1 - LEVEL
        if not kept or at < 30:
            found = time_ratio(*arms)
            covered = found is None or 1.25 in found.interval
            assert covered or not kept
            hits += covered
        else:
            hits += 1
    assert covers(hits, repeats)


class Drawn(Launcher, Running):
    """A process whose median is drawn at random, and takes a tenth of a second on a fake clock."""

    def __init__(self, draw):
        self.draw, self.clock = draw, FakeClock()

    def start(self):
        return self

    def wait_ready(self):
        pass

    def measure(self):
        self.clock.advance(100_000_000)
        return Answer((self.draw() * 1e9,))

    def __exit__(self, *_):
        pass


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draw", "truth"),
    [
        (lambda rng: math.exp(rng.normal(0, 0.04)), 1.0),
        (lambda rng: 1 + rng.exponential(0.03), 1 + 0.03 * math.log(2)),
    ],
    ids=["log-normal", "exponential tail"],
)
def test_sampling_processes_until_they_agree_costs_little_of_the_coverage(draw, truth):
    rng, repeats, hits = np.random.default_rng(3), 900, 0
    for _ in range(repeats):
        drawn = Drawn(lambda: draw(rng))
        found = sample_replicates(drawn, Precision(0.02) | Budget(3.0), clock=drawn.clock)
        hits += truth in median_interval(found.values.tolist())
    assert hits / repeats >= 0.93
