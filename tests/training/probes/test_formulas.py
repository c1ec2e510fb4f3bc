"""Figures that are recomputed by their names are scikit-learn's."""

from types import SimpleNamespace

import numpy as np
import pytest

from levelbench.training.probes.formulas import values_of

metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")


def named(metric):
    return SimpleNamespace(metric=metric, high=1.0)


def classes(count, seed):
    """Scores and true classes of 60 examples; some scores are equal, and one class may never be guessed."""
    draws = np.random.default_rng(seed)
    return np.round(draws.standard_normal((60, count)), 1), draws.integers(0, count, 60)


def of_two(scores):
    return scores[:, 1] - scores[:, 0]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("metric", "count", "expected"),
    [
        ("accuracy", 4, lambda s, y: metrics.accuracy_score(y, s.argmax(1))),
        ("balanced_accuracy", 4, lambda s, y: metrics.balanced_accuracy_score(y, s.argmax(1))),
        ("f1_macro", 4, lambda s, y: metrics.f1_score(y, s.argmax(1), average="macro")),
        ("f1", 4, lambda s, y: metrics.f1_score(y, s.argmax(1), average="weighted")),
        ("f1", 2, lambda s, y: metrics.f1_score(y, s.argmax(1))),
        ("mcc", 4, lambda s, y: metrics.matthews_corrcoef(y, s.argmax(1))),
        ("cohen_kappa", 4, lambda s, y: metrics.cohen_kappa_score(y, s.argmax(1))),
        ("kappa", 4, lambda s, y: metrics.cohen_kappa_score(y, s.argmax(1), weights="quadratic")),
        ("qwk", 4, lambda s, y: metrics.cohen_kappa_score(y, s.argmax(1), weights="quadratic")),
        ("f2", 2, lambda s, y: metrics.fbeta_score(y, s.argmax(1), beta=2)),
        ("f0.5_macro", 4, lambda s, y: metrics.fbeta_score(y, s.argmax(1), beta=0.5, average="macro")),
        ("macro_precision", 4, lambda s, y: metrics.precision_score(y, s.argmax(1), average="macro")),
        ("precision", 2, lambda s, y: metrics.precision_score(y, s.argmax(1))),
        ("recall_macro", 4, lambda s, y: metrics.recall_score(y, s.argmax(1), average="macro")),
        ("recall", 4, lambda s, y: metrics.recall_score(y, s.argmax(1), average="weighted")),
        ("auroc", 2, lambda s, y: metrics.roc_auc_score(y, of_two(s))),
        ("average_precision", 2, lambda s, y: metrics.average_precision_score(y, of_two(s))),
        ("brier_score", 2, lambda s, y: metrics.brier_score_loss(y, 1 / (1 + np.exp(-of_two(s))))),
        ("perplexity", 4, lambda s, y: np.exp(metrics.log_loss(y, np.exp(s) / np.exp(s).sum(1, keepdims=True)))),
        ("log_loss", 4, lambda s, y: metrics.log_loss(y, np.exp(s) / np.exp(s).sum(1, keepdims=True))),
    ],
)
def test_a_figure_of_classes_is_among_the_definitions(metric, count, expected, seed):
    scores, truth = classes(count, seed)
    found = values_of(named(metric), scores, truth)
    assert min(abs(each - expected(scores, truth)) for each in found) < 1e-12


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("rmse", "root_mean_squared_error"),
        ("mse", "mean_squared_error"),
        ("mae", "mean_absolute_error"),
        ("r2", "r2_score"),
    ],
)
def test_a_figure_of_numbers_is_among_the_definitions(metric, expected):
    draws = np.random.default_rng(0)
    truth = draws.standard_normal((50, 3))
    given = truth + 0.3 * draws.standard_normal((50, 3))
    found = values_of(named(metric), given, truth)
    assert min(abs(each - getattr(metrics, expected)(truth, given)) for each in found) < 1e-12


def test_top_3_is_that_of_scores_without_ties():
    draws = np.random.default_rng(1)
    scores, truth = draws.standard_normal((80, 6)), draws.integers(0, 6, 80)
    expected = metrics.top_k_accuracy_score(truth, scores, k=3, labels=range(6))
    assert values_of(named("top3"), scores, truth) == pytest.approx((expected,))


@pytest.mark.parametrize(("metric", "k"), [("hr3", 3), ("ndcg3", 3), ("hit_rate@5", 5)])
def test_a_figure_of_one_relevant_item_among_others_is_scikit_learns(metric, k):
    draws = np.random.default_rng(2)
    scores, truth = draws.standard_normal((80, 6)), draws.integers(0, 6, 80)
    expected = metrics.top_k_accuracy_score(truth, scores, k=k, labels=range(6))
    if "ndcg" in metric:
        expected = metrics.ndcg_score(np.eye(6)[truth], scores, k=k)
    assert values_of(named(metric), scores, np.eye(6)[truth]) == pytest.approx((expected,))


def test_an_unknown_name_has_no_value():
    assert values_of(named("my_own_figure"), *classes(3, 0)) == ()
