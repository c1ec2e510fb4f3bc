"""Qualities of classifiers against scikit-learn, and what they do at ties, at NaN and without a class."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from levelbench.errors import DefinitionError, UnsupportedError, UsageError
from levelbench.frameworks.numpy import framework
from levelbench.training.datasets.base import Dataset, Split
from levelbench.training.input import Held
from levelbench.training.quality import AUROC, BalancedAccuracy, Top1, Top5, TopK, area_under_roc

NUMPY = framework.open()


class Answers:
    """An executor whose outputs are its inputs."""

    def infer(self, *inputs):
        return inputs[:1]


def held_of(scores, labels, backend=NUMPY):
    split = Split.of(np.asarray(scores, np.float32), np.asarray(labels, np.int64))
    data = Dataset("toy", split, split, split, int(np.max(labels)) + 1, {}, "none", "none", "made here", True)
    return Held(backend, data, split)


def measured(quality, scores, labels, backend=NUMPY):
    return quality.measure(Answers(), held_of(scores, labels, backend))


@pytest.fixture(scope="module")
def sample():
    random = np.random.default_rng(3)
    labels = random.choice(8, 1500, p=[0.3, 0.2, 0.15, 0.1, 0.1, 0.05, 0.05, 0.05])
    return random.standard_normal((1500, 8)) + 1.5 * np.eye(8)[labels], labels


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8, 20])
def test_top_k_is_scikit_learns(sample, k):
    scores, labels = sample
    expected = 1.0 if k >= 8 else metrics.top_k_accuracy_score(labels, scores.astype(np.float32), k=k)
    assert measured(TopK(0.5, k), scores, labels) == pytest.approx(expected, abs=1e-12)


def test_top_1_is_the_accuracy_and_top_k_of_one(sample):
    scores, labels = sample
    expected = metrics.accuracy_score(labels, scores.astype(np.float32).argmax(1))
    assert measured(Top1(0.5), scores, labels) == measured(TopK(0.5, 1), scores, labels) == expected


def test_top_5_names_itself_and_counts_five(sample):
    assert (Top5(0.93).metric, Top5(0.93).k, TopK(0.9, 3).metric) == ("top5", 5, "top3")
    assert Top5(0.93).as_target().metric == "top5"
    assert measured(Top5(0.93), *sample) == measured(TopK(0.93, 5), *sample)


def test_of_equal_logits_the_lower_class_comes_first():
    scores = [[1.0, 1.0, 1.0]] * 3
    assert measured(TopK(0.5, 1), scores, [0, 1, 2]) == pytest.approx(1 / 3)
    assert measured(TopK(0.5, 2), scores, [0, 1, 2]) == pytest.approx(2 / 3)


def test_an_infinite_logit_of_another_class_spoils_nothing():
    assert measured(TopK(0.5, 2), [[math.inf, 1.0, 0.0], [-math.inf, 1.0, 2.0]], [1, 0]) == 0.5


def test_a_label_whose_logit_is_nan_is_never_right():
    assert measured(TopK(0.5, 3), [[math.nan, 1.0, 0.0]], [0]) == 0.0


def test_top_0_counts_nothing_and_is_refused():
    with pytest.raises(DefinitionError, match="k >= 1"):
        TopK(0.5, 0)


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_frameworks_count_alike(sample, name):
    pytest.importorskip(name)
    from levelbench.operators.frameworks import open_framework

    scores, labels = sample
    other = open_framework(name)
    for quality in (Top1(0.5), TopK(0.5, 3), BalancedAccuracy(0.5)):
        assert measured(quality, scores, labels, other) == measured(quality, scores, labels)


def test_balanced_accuracy_is_scikit_learns(sample):
    scores, labels = sample
    expected = metrics.balanced_accuracy_score(labels, scores.astype(np.float32).argmax(1))
    assert measured(BalancedAccuracy(0.5), scores, labels) == pytest.approx(expected, abs=1e-12)


def test_classes_without_an_example_are_left_out_of_balanced_accuracy():
    scores, labels = np.eye(4)[[0, 3, 3, 1]], [0, 3, 0, 3]
    assert measured(BalancedAccuracy(0.5), scores, labels) == pytest.approx(0.5)


def test_always_the_frequent_class_is_no_better_than_chance_when_classes_count_alike():
    scores, labels = np.tile([1.0, 0.0], (100, 1)), [0] * 90 + [1] * 10
    assert measured(Top1(0.5), scores, labels) == 0.9
    assert measured(BalancedAccuracy(0.5), scores, labels) == 0.5


def test_the_area_under_the_roc_is_scikit_learns(sample):
    scores, labels = sample[0][:, :2], np.minimum(sample[1], 1)
    given = scores.astype(np.float32).astype(np.float64)
    expected = metrics.roc_auc_score(labels, given[:, 1] - given[:, 0])
    assert measured(AUROC(0.9), scores, labels) == pytest.approx(expected, abs=1e-12)


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=40))
def test_the_area_counts_pairs_and_half_of_the_ties(pairs):
    scores = np.array([score for score, _ in pairs], np.float64)
    labels = np.array([label for _, label in pairs])
    ones, zeros = scores[labels], scores[~labels]
    if not (len(ones) and len(zeros)):
        assert math.isnan(area_under_roc(scores, labels))
        return
    apart = ones[:, None] - zeros[None]
    assert area_under_roc(scores, labels) == pytest.approx((apart > 0).mean() + 0.5 * (apart == 0).mean())


def test_one_output_is_a_score_itself():
    assert measured(AUROC(0.9), [[0.1], [0.9], [0.8]], [0, 1, 0]) == 1.0


def test_the_area_of_three_classes_is_refused():
    with pytest.raises(UnsupportedError, match="3 classes"):
        measured(AUROC(0.9), np.eye(3), [0, 1, 2])


@pytest.mark.parametrize("quality", [Top5, BalancedAccuracy, AUROC])
def test_a_target_in_percent_is_answered_with_the_fraction(quality):
    with pytest.raises(UsageError, match=r"did you mean 0\.93\?"):
        quality(target=0.9).as_target(93)


@pytest.mark.parametrize("nan", [[0], [1], [2], [0, 1, 2]])
def test_top_1_and_top_k_of_one_agree_that_a_sample_with_a_nan_is_wrong(nan):
    scores = np.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    scores[0, nan] = math.nan
    for quality in (Top1(0.5), TopK(0.5, 1)):
        assert measured(quality, scores, [0, 0]) == 0.5


def test_a_nan_is_no_prediction_of_class_0():
    assert measured(BalancedAccuracy(0.5), [[math.nan] * 2, [0.0, 1.0]], [0, 1]) == 0.5


@pytest.mark.parametrize("label", [-1, 3, 7])
@pytest.mark.parametrize("quality", [Top1(0.5), TopK(0.5, 2), Top5(0.5)])
def test_a_label_that_is_no_class_is_never_right(quality, label):
    assert measured(quality, [[-1.0, -2.0, -3.0], [1.0, 0.0, 0.0]], [label, 0]) == 0.5
