from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from levelbench.errors import UsageError
from levelbench.training.datasets.generated import Synthetic, bayes_error, distance_for

SMALL = {"shape": (1, 8, 8), "classes": 4, "sizes": (400, 4, 4000)}


def test_it_says_that_it_is_synthetic():
    data = Synthetic(**SMALL).load()
    assert data.synthetic
    assert data.source.startswith("synthetic, Bayes error 0.05, seed 0")


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others():
    assert Synthetic(**SMALL).load().checksums == Synthetic(**SMALL).load().checksums
    assert Synthetic(**SMALL, seed=1).load().checksums != Synthetic(**SMALL).load().checksums


def test_shapes_sizes_and_classes_are_as_requested():
    data = Synthetic((3, 5, 4), 6, (13, 7, 6)).load()
    assert data.sizes() == {"train": 13, "validation": 7, "test": 6}
    assert (data.train.inputs.shape, data.train.inputs.dtype, data.train.labels.dtype) == (
        (13, 3, 5, 4),
        np.uint8,
        np.int64,
    )
    assert sorted(data.test.labels) == list(range(6))


def test_the_bayes_error_of_two_classes_is_that_of_the_normal_distribution():
    """Two orthogonal means are sqrt(2) distances apart: the error is Φ(-distance / sqrt 2)."""
    for distance in (0.5, 2.0, 4.0):
        assert bayes_error(distance, 2) == pytest.approx(stats.norm.cdf(-distance / np.sqrt(2)), rel=1e-6)
    assert bayes_error(0.0, 10) == pytest.approx(0.9, rel=1e-9)
    assert bayes_error(distance_for(0.07, 10), 10) == pytest.approx(0.07, rel=1e-9)


@pytest.mark.parametrize("error", [0.05, 0.3])
def test_the_best_classifier_has_the_bayes_error_and_no_less(error):
    source = Synthetic(**SMALL, error=error)
    test = source.load().test
    projections = (test.inputs.reshape(len(test), -1) - 128.0) @ source._means().T
    wrong = int((projections.argmax(axis=1) != test.labels).sum())
    assert stats.binomtest(wrong, len(test), error).pvalue > 1e-3


def test_raw_values_are_normalised_to_the_noise():
    data = Synthetic(**SMALL).load()
    constants = data.normalisation
    values = (data.test.inputs / constants.highest - constants.mean[0]) / constants.std[0]
    assert abs(values.mean()) < 0.05
    assert 0.95 < values.std() < 1.15


@pytest.mark.parametrize(
    "wrong", [{"classes": 1}, {"classes": 64}, {"error": 0.0}, {"error": 0.75}, {"sizes": (400, 3, 4)}]
)
def test_impossible_data_is_refused(wrong):
    with pytest.raises(UsageError, match="impossible data"):
        Synthetic(**{**SMALL, **wrong})
