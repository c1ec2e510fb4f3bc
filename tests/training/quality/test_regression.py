"""Qualities of regressions against scikit-learn."""

import math

import numpy as np
import pytest
from sklearn import metrics

from levelbench.errors import DataError, UsageError
from levelbench.frameworks.numpy import framework
from levelbench.training.datasets.base import Dataset, Split
from levelbench.training.input import Held
from levelbench.training.quality import MAE, RMSE


class Answers:
    def infer(self, *inputs):
        return inputs[:1]


def measured(quality, outputs, targets):
    split = Split((np.asarray(outputs, np.float32), np.asarray(targets, np.float32)))
    data = Dataset("toy", split, split, split, 0, {}, "none", "none", "made here", True)
    return quality.measure(Answers(), Held(framework.open(), data, split))


@pytest.fixture(scope="module")
def sample():
    random = np.random.default_rng(5)
    return random.standard_normal((2300, 3)).astype(np.float32), random.standard_normal((2300, 3)).astype(np.float32)


def test_rmse_and_mae_are_scikit_learns(sample):
    outputs, targets = (each.astype(np.float64).ravel() for each in sample)
    assert measured(RMSE(1.0), *sample) == pytest.approx(metrics.root_mean_squared_error(targets, outputs), rel=1e-12)
    assert measured(MAE(1.0), *sample) == pytest.approx(metrics.mean_absolute_error(targets, outputs), rel=1e-12)


def test_a_small_error_on_large_values_is_not_lost():
    assert measured(RMSE(1.0), np.full((3000, 1), 8193.0), np.full((3000, 1), 8192.0)) == 1.0


def test_a_column_of_one_is_compared_with_a_flat_one_and_not_broadcast():
    assert measured(MAE(1.0), [[1.0], [2.0], [3.0]], [1.0, 2.0, 4.0]) == pytest.approx(1 / 3)


def test_outputs_of_another_shape_are_refused():
    with pytest.raises(DataError, match=r"shape \(2, 3\)"):
        measured(RMSE(1.0), np.zeros((2, 3)), np.zeros((2, 4)))


@pytest.mark.parametrize("quality", [RMSE, MAE])
def test_lower_is_better_from_zero_without_an_end(quality):
    target = quality(target=120.0).as_target()
    assert (target.direction, target.low, target.high, quality.high) == ("lower", 0.0, None, math.inf)
    with pytest.raises(UsageError, match="scale goes from 0 to inf"):
        quality(target=1.0).as_target(-0.1)
