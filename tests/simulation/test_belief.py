"""A part of the table of benchmarks/belief.py, with fewer trials: verdicts are rarely false, and they answer."""

import importlib.util
import sys
from pathlib import Path

import pytest
from scipy import stats

PATH = Path(__file__).parents[2] / "benchmarks" / "belief.py"


@pytest.fixture(scope="module")
def belief():
    specification = importlib.util.spec_from_file_location("belief", PATH)
    module = importlib.util.module_from_spec(specification)
    sys.modules["belief"] = module
    specification.loader.exec_module(module)
    yield module
    del sys.modules["belief"]


TRIALS = 250
SCREENED = (
    {"n": 3, "ratio": 1.0},
    {"n": 10, "ratio": 1.0, "noise": "student"},
    {"n": 10, "ratio": 1.0, "noise": "bimodal"},
    {"n": 10, "ratio": 1.0, "noise": "quantised"},
    {"n": 100, "ratio": 1.0, "noise": "gamma"},
    {"n": 24, "ratio": 1.05, "noise": "outliers"},
    {"n": 10, "ratio": 1.05, "rho": 0.98},
    {"n": 30, "ratio": 1.0, "rho": 0.98, "order": "blocked"},
    {"n": 30, "ratio": 1.0, "rho": 0.9, "order": "sessions"},
    {"n": 10, "ratio": 0.95, "budgets": "unequal"},
    {"n": 3, "ratio": 1.05, "copies": 6},
    {"n": 12, "ratio": 1.0, "noise": "small", "late": 0.15},
)


@pytest.mark.slow
@pytest.mark.parametrize("words", SCREENED, ids=lambda words: " ".join(f"{k}={v}" for k, v in words.items()))
def test_a_row_is_false_in_five_percent_at_most_and_answers_like_the_better_standard_test(belief, words):
    found = belief.simulate(belief.Row(**words), TRIALS)
    assert found.false <= stats.binom.ppf(0.999, TRIALS, 0.05)
    assert found.answers


@pytest.mark.slow
def test_until_clear_keeps_its_error_and_takes_fewer_runs_than_a_fixed_design_of_equal_power(belief):
    equal = belief.simulate(belief.Row(1.0, 40, until_clear=True), TRIALS)
    assert equal.false <= stats.binom.ppf(0.999, TRIALS, 0.05)
    found = belief.simulate(belief.Row(1.1025, 100, until_clear=True), 60)
    assert found.right > 0.95
    assert found.runs <= 0.5 * belief.fixed_runs(0.05, 0.99)


def test_a_verdict_that_is_wrong_of_the_row_is_called_false(belief):
    from levelbench.measure.verdict import VerdictKind

    assert belief.is_false(belief.Row(1.0, 5), VerdictKind.FASTER)
    assert belief.is_false(belief.Row(1.2, 5), VerdictKind.FASTER)
    assert belief.is_false(belief.Row(1.03, 5), VerdictKind.SAME)
    assert not belief.is_false(belief.Row(0.95, 5), VerdictKind.FASTER)
    assert not belief.is_false(belief.Row(1.0, 5), VerdictKind.SAME)
