"""Variance components: published examples, the textbook's balanced designs, and what cannot be told apart."""

import math

import numpy as np
import pytest
from scipy import stats

from levelbench.measure.statistics.components import variance_parts

# Davies & Goldsmith 1972, table 6.3: yields of six batches of dyestuff, five samples of each.
YIELDS = {
    "A": [1545, 1440, 1440, 1520, 1580],
    "B": [1540, 1555, 1490, 1560, 1495],
    "C": [1595, 1550, 1605, 1510, 1560],
    "D": [1445, 1440, 1595, 1465, 1545],
    "E": [1595, 1630, 1515, 1635, 1625],
    "F": [1520, 1455, 1450, 1480, 1445],
}
BATCHES = [batch for batch, values in YIELDS.items() for _ in values]
DYESTUFF = [value for values in YIELDS.values() for value in values]


def test_the_dyestuff_of_davies_and_goldsmith():
    found = variance_parts(DYESTUFF, {"batch": BATCHES})
    (batch,) = found.factors
    assert (batch.levels, found.dof) == (6, 24)
    assert found.rest == pytest.approx(2451.25)
    assert batch.variance == pytest.approx(1764.05, abs=0.01)
    assert batch.p_value == pytest.approx(stats.f_oneway(*YIELDS.values()).pvalue, rel=1e-9)


def test_a_balanced_factor_has_the_interval_of_the_textbook():
    (batch,) = variance_parts(DYESTUFF, {"batch": BATCHES}).factors
    f = stats.f_oneway(*YIELDS.values()).statistic
    low, high = (max(0.0, (f / stats.f.ppf(p, 5, 24) - 1) / 5) for p in (0.975, 0.025))
    assert (batch.ratio.low, batch.ratio.high) == pytest.approx((low, high), rel=1e-8)


def crossed(seeds=4, sessions=3):
    """A balanced two-way table as (values, levels of seeds, levels of sessions)."""
    table = np.random.default_rng(3).standard_normal((seeds, sessions)) + 2 * np.arange(seeds)[:, None]
    rows, columns = np.indices(table.shape)
    return table, rows.ravel().tolist(), columns.ravel().tolist()


def test_two_crossed_factors_have_the_mean_squares_of_an_analysis_of_variance():
    table, rows, columns = crossed()
    found = variance_parts(table.ravel().tolist(), {"seed": rows, "session": columns})
    a, b = table.shape
    left = table - table.mean(1, keepdims=True) - table.mean(0, keepdims=True) + table.mean()
    rest = (left**2).sum() / ((a - 1) * (b - 1))
    seed = (b * table.mean(1).var(ddof=1) - rest) / b
    session = max(0.0, (a * table.mean(0).var(ddof=1) - rest) / a)
    assert found.rest == pytest.approx(rest)
    assert [each.variance for each in found.factors] == pytest.approx([seed, session])


def test_the_order_of_the_values_does_not_matter():
    table, rows, columns = crossed()
    values = table.ravel().tolist()
    shuffled = np.random.default_rng(0).permutation(len(values)).tolist()
    one, other = (
        variance_parts(
            [values[at] for at in order], {"s": [rows[at] for at in order], "t": [columns[at] for at in order]}
        )
        for order in (range(len(values)), shuffled)
    )
    assert one.rest == pytest.approx(other.rest)
    for a, b in zip(one.factors, other.factors, strict=True):
        assert a.variance == pytest.approx(b.variance)
        assert (a.ratio.low, a.ratio.high) == pytest.approx((b.ratio.low, b.ratio.high))


def test_a_slope_is_that_of_a_linear_regression():
    x, y = [0.0, 1, 2, 3, 4, 5], [1.0, 1.2, 1.1, 1.5, 1.4, 1.7]
    found, theirs = variance_parts(y, {}, {"order": x}).slopes["order"], stats.linregress(x, y)
    assert found.value == pytest.approx(theirs.slope)
    assert found.interval.high - found.value == pytest.approx(stats.t.ppf(0.975, 4) * theirs.stderr)


@pytest.mark.parametrize(
    ("levels", "reason"),
    [([1, 1, 1, 1], "one level"), ([1, 2, 3, 4], "no level has two values")],
)
def test_a_factor_that_never_varies_or_is_never_repeated_has_a_reason_instead(levels, reason):
    (found,) = variance_parts([1.0, 2.0, 4.0, 3.0], {"seed": levels}).factors
    assert found.variance is None
    assert reason in found.reason


def test_a_factor_that_another_one_determines_has_a_reason_instead():
    values = [1.0, 2.0, 4.0, 3.0, 5.0, 4.0]
    found = variance_parts(values, {"seed": [1, 1, 2, 2, 3, 3], "day": [1, 1, 2, 2, 3, 3]})
    assert [each.variance for each in found.factors] == [None, None]
    assert {each.reason for each in found.factors} == {"the other factors determine it"}


def test_values_without_a_spread_have_no_components():
    found = variance_parts([2.0] * 6, {"seed": [1, 1, 2, 2, 3, 3]})
    assert found.rest == 0.0
    assert found.factors[0].reason == "the rest has no spread"


def test_a_design_too_small_for_its_factors_says_so():
    found = variance_parts([1.0, 2.0, 4.0], {"seed": [1, 1, 2], "day": [1, 2, 2]})
    assert found.rest is None
    assert all("too few" in each.reason for each in found.factors)


def simulated(rng, seeds, sessions, of_seed, of_session, missing):
    """Values of a crossed design with holes, and whether the interval of each ratio holds the truth."""
    rows, columns = (each.ravel() for each in np.indices((seeds, sessions)))
    kept = rng.random(len(rows)) >= missing
    rows, columns = rows[kept], columns[kept]
    values = rng.normal(0, of_seed, seeds)[rows] + rng.normal(0, of_session, sessions)[columns]
    values += rng.standard_normal(len(rows))
    found = variance_parts(values.tolist(), {"seed": rows.tolist(), "session": columns.tolist()}).factors
    truths = (of_seed**2, of_session**2)
    return [each.ratio is not None and truth in each.ratio for each, truth in zip(found, truths, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "design", [(5, 3, 1.0, 1.0, 0.0), (5, 3, 0.0, 0.0, 0.0), (10, 3, 1.0, 0.5, 0.3)], ids=["balanced", "none", "holes"]
)
def test_intervals_hold_the_true_ratio_as_often_as_they_say(design):
    rng, repeats = np.random.default_rng([7, design[0], round(10 * design[3])]), 1000
    hits = np.sum([simulated(rng, *design) for _ in range(repeats)], axis=0) / repeats
    # A ratio of 0 is held by 97.5 %, since the lower end is the only one that can miss it.
    assert (hits >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / repeats)).all(), hits


def test_a_hundred_intervals_hold_the_true_ratio_mostly():
    rng = np.random.default_rng(11)
    hits = np.sum([simulated(rng, 6, 3, 1.0, 0.5, 0.2) for _ in range(100)], axis=0)
    assert (hits >= stats.binom.ppf(0.001, 100, 0.95)).all(), hits
