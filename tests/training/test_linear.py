"""The last layer of transfer: against scikit-learn on the same features, and a closed form."""

import numpy as np
import pytest

from levelbench.errors import DataError
from levelbench.training import datasets
from levelbench.training.linear import fit_linear


@pytest.fixture(scope="module")
def features():
    """Random features of digits, and their labels: training and test."""
    data = datasets.digits.load()
    mixing = np.random.default_rng(0).normal(size=(64, 40)).astype(np.float32)
    return [(np.maximum(split.inputs @ mixing, 0), split.labels) for split in (data.train, data.test)]


@pytest.mark.parametrize("penalty", [1e-4, 1e-2, 1.0])
def test_it_is_the_optimum_that_scikit_learn_finds(features, penalty):
    linear_model = pytest.importorskip("sklearn.linear_model")
    (x, y), (x_test, y_test) = features
    found = fit_linear(x, y, 10, penalty)
    scaled = (x - found.mean) / found.deviation
    theirs = linear_model.LogisticRegression(C=1 / (len(x) * penalty), max_iter=2000, tol=1e-8).fit(scaled, y)
    # It stops at a gradient of 1e-5, and the objective curves by the penalty at least.
    assert np.abs(found.weights.T - theirs.coef_).max() < 2e-5 / penalty + 1e-4
    ours = np.mean(found.predict(x_test) == y_test)
    assert ours == pytest.approx(theirs.score((x_test - found.mean) / found.deviation, y_test), abs=0.006)


def test_without_features_the_classes_are_as_frequent_as_in_training():
    labels = np.array([0] * 60 + [1] * 30 + [2] * 10)
    found = fit_linear(np.ones((100, 4), np.float32), labels, 3, 0.01)
    shares = np.exp(found.biases) / np.exp(found.biases).sum()
    assert shares == pytest.approx([0.6, 0.3, 0.1], abs=1e-4)
    assert found.predict(np.ones((2, 4))).tolist() == [0, 0]


def test_the_scale_of_a_feature_changes_nothing(features):
    (x, y), (x_test, _) = features
    plain, scaled = fit_linear(x, y, 10, 0.01), fit_linear(1000 * x + 5, y, 10, 0.01)
    assert np.mean(plain.predict(x_test) == scaled.predict(1000 * x_test + 5)) > 0.995


def test_features_that_are_not_finite_are_refused():
    with pytest.raises(DataError, match="not finite"):
        fit_linear(np.array([[np.nan], [1.0]]), np.array([0, 1]), 2, 0.1)
