"""Planned runs have the power that was planned, and crossing rules find what they should in simulation."""

import math

import numpy as np
import pytest

from levelbench.measure.crossing import find_crossing
from levelbench.measure.statistics import more_runs, runs_needed, runs_needed_t, settling_error
from levelbench.measure.verdict import VerdictKind, verdict


def settled(n, spread, log_ratio, repeats, seed, margin=0.02):
    """The share of each verdict over simulated comparisons of ``n`` runs an arm."""
    random = np.random.default_rng(seed)
    a, b = np.exp(spread * random.standard_normal((2, repeats, n)))
    kinds = [
        verdict(x, y, margin=margin).kind for x, y in zip(a.tolist(), (b * math.exp(log_ratio)).tolist(), strict=True)
    ]
    return {kind: kinds.count(kind) / repeats for kind in VerdictKind}


@pytest.mark.slow
@pytest.mark.parametrize(("cv", "effect"), [(0.02, 0.02), (0.05, 0.05), (0.05, 0.03)])
def test_runs_needed_find_the_effect_in_four_of_five_comparisons(cv, effect):
    found = settled(runs_needed(cv, effect), cv, effect, 1000, 43, margin=0.0)
    assert found[VerdictKind.SLOWER] == pytest.approx(0.8, abs=0.05)


@pytest.mark.slow
def test_the_t_version_keeps_the_power_at_few_runs():
    found = settled(runs_needed_t(0.05, 0.1), 0.05, 0.1, 1000, 47, margin=0.0)
    assert found[VerdictKind.SLOWER] >= 0.78


@pytest.mark.slow
@pytest.mark.parametrize("log_ratio", [0.0, 0.004, -0.008, 0.012, 0.05])
def test_the_runs_to_settle_settle_four_of_five_comparisons(log_ratio):
    spread, n = 0.02, 3
    error = settling_error(log_ratio, math.log1p(0.02))
    n += more_runs(spread, n, spread, n, error)
    found = settled(n, spread, log_ratio, 800, 53)
    assert found[VerdictKind.UNCLEAR] <= 0.24
    wrong = VerdictKind.FASTER if log_ratio > 0 else VerdictKind.SLOWER
    assert found[wrong] <= 0.05


RUNS = 4000


def share_that_reaches(rule, evaluations):
    """Of runs whose quality is 0.1 points below the target with 0.1 points of normal jitter."""
    curves = np.random.default_rng(0).normal(0.939, 0.001, (RUNS, evaluations))
    return np.mean([find_crossing(curve, 0.940, rule=rule) is not None for curve in curves])


@pytest.mark.parametrize(
    ("rule", "evaluations", "share"),
    [("first", 10, 0.82), ("first", 20, 0.97), ("confirmed", 10, 0.18), ("confirmed", 20, 0.35)],
)
def test_a_model_just_below_its_target_reaches_it_by_luck_as_often_as_theory_says(rule, evaluations, share):
    tolerance = 3.5 * np.sqrt(share * (1 - share) / RUNS) + 0.005
    assert share_that_reaches(rule, evaluations) == pytest.approx(share, abs=tolerance)
