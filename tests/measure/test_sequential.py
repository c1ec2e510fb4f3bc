"""Looking again and again keeps its error, and costs fewer runs than a fixed number does."""

import math
from itertools import islice

import numpy as np
import pytest

from levelbench.measure.sequential import FIRST_LOOK, Looks, deviation_of, looks_at
from levelbench.measure.verdict import Verdict, VerdictKind

LOOKS = list(islice(looks_at(), 14))


def test_looks_begin_at_five_runs_and_come_less_often_as_runs_grow():
    assert LOOKS[:8] == [5, 7, 9, 11, 13, 16, 20, 25]


def test_every_look_asks_for_more_than_one_look_would():
    looks = Looks(0.05, deviation=0.07)
    assert all(0.95 < looks.level_at(n) < 1.0 for n in LOOKS)


def test_a_smaller_effect_is_planned_over_more_runs():
    assert Looks(0.05, deviation=0.07).planned < Looks(0.02, deviation=0.07).planned
    assert Looks(0.5, deviation=0.01).planned >= FIRST_LOOK


@pytest.mark.parametrize(("effect", "level"), [(0.0, 0.95), (-1.0, 0.95), (math.nan, 0.95), (0.05, 1.0)])
def test_what_cannot_be_planned_is_refused(effect, level):
    with pytest.raises(ValueError, match=r"effect|level"):
        Looks(effect, level)


def test_the_deviation_is_that_which_the_interval_came_from():
    logs = np.log([1.02, 0.97, 1.10, 1.01, 0.95])
    reach = 2.7764451051977987 * logs.std(ddof=1) / math.sqrt(5)
    low, high = np.exp(logs.mean() - reach), np.exp(logs.mean() + reach)
    found = Verdict(VerdictKind.UNCLEAR, float(np.exp(logs.mean())), low, high, 5, 5, 0.02, 0.95, None, "")
    assert deviation_of(found) == pytest.approx(logs.std(ddof=1))


def brownian(repeats, drift=0.0):
    """Summed log ratios, of deviation 1, at every look: shape (repeats, looks)."""
    steps = np.diff([0, *LOOKS])
    noise = np.random.default_rng(4).standard_normal((repeats, len(LOOKS)))
    return np.cumsum(np.sqrt(steps) * noise + drift * steps, axis=1)


def test_the_chance_of_ever_stopping_is_what_was_meant_to_be_spent():
    from scipy import stats

    looks = Looks(0.05, deviation=0.05)
    levels = np.array([looks.level_at(n) for n in LOOKS])
    bounds = stats.norm.ppf(0.5 + 0.5 * levels) * np.sqrt(LOOKS)
    stopped = (np.abs(brownian(40_000)) > bounds).any(axis=1).mean()
    meant = 0.78 * 0.05 * (1 - 0.1 * looks.planned / LOOKS[-1])
    assert stopped == pytest.approx(meant, abs=4 * math.sqrt(0.04 / 40_000))
