from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from levelbench.errors import DataError
from levelbench.training import datasets
from levelbench.training.datasets import Dataset, Normalisation, Split
from levelbench.training.datasets.contents import class_counts, duplicates, evenness, faults, moments


def dataset(**changes):
    rng = np.random.default_rng(0)

    def split(count):
        return Split.of(rng.standard_normal((count, 3, 2, 2)).astype(np.float32), np.arange(count) % 2)

    made = Dataset("made", split(8), split(4), split(4), 2, {}, "rule", "licence", "source", synthetic=True)
    return dataclasses.replace(made, **changes)


def with_labels(*labels):
    return dataset(train=Split.of(np.zeros((len(labels), 3, 2, 2), np.float32), np.array(labels, np.int64)))


class Undecodable:
    """A column whose fourth row is damaged."""

    shape = (8, 3, 2, 2)
    dtype = np.dtype(np.float32)

    def __len__(self):
        return 8

    def take(self, indices, seeds):
        if 3 in indices:
            raise DataError("decoding image 3", "it is damaged", "Replace it")
        return np.zeros((len(indices), 3, 2, 2), np.float32)


def test_right_content_has_no_faults():
    assert faults(dataset()) == []
    assert faults(datasets.digits.load()) == []


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ((0, 1, 2, 1), "the train split has labels outside 0 to 1: 1"),
        ((0, 1, -1, 1), "the train split has labels outside 0 to 1: 1"),
        ((0, 0, 0, 0), "the train split has no example of class 1"),
    ],
)
def test_labels_out_of_range_and_empty_classes_are_faults(labels, found):
    assert faults(with_labels(*labels)) == [found]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_faults(value):
    wrong = dataset()
    wrong.test.inputs[2, 1, 0, 1] = value
    assert faults(wrong) == ["the test split's column 0 has values that are not finite, first in row 2"]


def test_a_row_that_cannot_be_made_is_a_fault():
    (found,) = faults(dataset(train=Split.of(Undecodable(), np.arange(8) % 2)))
    assert found == "the train split's column 0 cannot be read: decoding image 3: it is damaged"


def test_mixed_sizes_and_constants_of_other_channels_are_faults():
    other = Split.of(np.zeros((2, 3, 4, 4), np.float32), np.arange(2))
    assert faults(dataset(test=other)) == ["the splits have columns of different shapes or types"]
    assert "2 means" in faults(dataset(normalisation=Normalisation((0.1, 0.2), (1.0, 1.0))))[0]


def test_labels_that_are_not_classes_are_not_counted():
    assert class_counts(Split.of(np.zeros((2, 3)), np.zeros((2, 5), np.int64)), 10) is None


def test_balance_is_tested_against_equal_classes():
    assert evenness(np.array([50, 50])).p_value == 1
    assert evenness(np.array([90, 10])).p_value < 1e-6


def test_moments_are_by_channel():
    found = moments(dataset().train)
    inputs = dataset().train.inputs.astype(np.float64)
    np.testing.assert_allclose(found.mean, inputs.mean(axis=(0, 2, 3)))
    np.testing.assert_allclose(found.std, inputs.std(axis=(0, 2, 3)))
    assert len(moments(datasets.digits.load().train).mean) == 1


def test_equal_inputs_are_found_within_and_across_splits():
    made = dataset()
    made.train.inputs[3] = made.train.inputs[0]
    made.test.inputs[1] = made.train.inputs[5]
    found = duplicates(made)
    assert found.within == {"train": 1, "validation": 0, "test": 0}
    assert found.across == {"train and validation": 0, "train and test": 1, "validation and test": 0}


def test_lazy_columns_are_not_searched_for_duplicates():
    assert duplicates(dataset(train=Split.of(Undecodable(), np.arange(8) % 2))) is None


def test_a_label_far_out_of_range_takes_no_memory():
    assert faults(with_labels(0, 1, 2, 10**12)) == ["the train split has labels outside 0 to 1: 2"]
    assert class_counts(with_labels(0, 1, 1, 10**12).train, 2).tolist() == [1, 2]


@pytest.mark.parametrize("value", [-1, 5, 2**40])
def test_labels_of_several_targets_and_of_tokens_are_in_range_too(value):
    inputs, right = np.zeros((4, 3, 2, 2), np.float32), np.zeros(4, np.int64)
    wrong, tokens = np.array([0, 1, value, 1]), np.array([[0, 1], [1, 0], [1, value], [0, 0]])
    for split, column in ((Split((inputs, wrong, right), 2), 1), (Split.of(inputs, tokens), 1)):
        found = faults(dataset(train=split, validation=split, test=split))
        assert found[0] == f"the train split's column {column} has labels outside 0 to 1, first in row 2"


@pytest.mark.parametrize(
    ("mean", "std", "found"),
    [
        ((0.1, 0.2, 0.3), (1.0, 1.0), "3 means and 2 deviations"),
        ((0.1, math.nan, 0.3), (1.0,) * 3, "a mean that is not finite"),
        ((0.1,) * 3, (1.0, math.nan, 1.0), "not finite and above 0"),
        ((0.1,) * 3, (1.0, math.inf, 1.0), "not finite and above 0"),
        ((0.1,) * 3, (1.0, 0.0, 1.0), "not finite and above 0"),
    ],
)
def test_constants_that_cannot_normalise_are_faults(mean, std, found):
    (fault,) = faults(dataset(normalisation=Normalisation(mean, std)))
    assert found in fault


def test_a_split_without_examples_has_no_moments():
    assert moments(Split.of(np.zeros((0, 3, 2, 2), np.float32), np.zeros(0, np.int64))) is None
