import numpy as np
import pytest

from levelbench.measure.statistics.distributions import chi_squared_survival, chi_squared_test, gamma_survival


@pytest.mark.parametrize("degrees", [1, 2, 3.5, 10, 99, 1000, 60_000])
def test_the_tail_agrees_with_scipy(degrees):
    stats = pytest.importorskip("scipy.stats", reason="SciPy is not installed")
    spread = np.sqrt(2 * degrees)
    for x in (0.01, 0.5 * degrees, degrees, degrees + spread, degrees + 5 * spread, degrees + 12 * spread):
        assert chi_squared_survival(x, degrees) == pytest.approx(stats.chi2.sf(x, degrees), rel=1e-9, abs=1e-300)


def test_two_degrees_of_freedom_are_an_exponential():
    assert chi_squared_survival(3.0, 2) == pytest.approx(np.exp(-1.5), rel=1e-14)


def test_the_ends_of_the_tail():
    assert gamma_survival(2.0, 0.0) == 1.0
    assert gamma_survival(2.0, np.inf) == 0.0
    with pytest.raises(ValueError, match="above zero"):
        gamma_survival(0.0, 1.0)


def test_pearsons_test_agrees_with_scipy():
    stats = pytest.importorskip("scipy.stats", reason="SciPy is not installed")
    observed, expected = [18, 22, 31, 29], [25, 25, 25, 25]
    found, theirs = chi_squared_test(observed, expected), stats.chisquare(observed, expected)
    assert (found.statistic, found.degrees) == (pytest.approx(theirs.statistic), 3)
    assert found.p_value == pytest.approx(theirs.pvalue, rel=1e-12)


def test_a_count_where_nothing_is_expected_cannot_be_by_chance():
    assert chi_squared_test([10, 9, 1], [10, 10, 0]).p_value == 0.0
    assert chi_squared_test([11, 9, 0], [10, 10, 0]).degrees == 1


@pytest.mark.parametrize("observed", [[10, 5], [10], [-1, 21]])
def test_counts_that_do_not_belong_together_are_refused(observed):
    with pytest.raises(ValueError, match="expected"):
        chi_squared_test(observed, [10, 10])
