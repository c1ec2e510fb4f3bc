"""A dataset's facts about its splits: digests of labels, and whether held-out examples were trained on."""

from dataclasses import replace

import numpy as np
import pytest

from levelbench.training import datasets
from levelbench.training.datasets.base import Split


@pytest.fixture(scope="module")
def digits():
    return datasets.digits.load()


def test_the_digest_of_labels_does_not_depend_on_their_width(digits):
    inputs, labels = digits.validation.columns
    narrow = replace(digits, validation=Split.of(inputs, labels.astype(np.int16)))
    assert narrow.label_digests() == digits.label_digests()
    assert len(set(digits.label_digests().values())) == 3


def test_scoring_on_as_many_training_examples_changes_the_digest(digits):
    count = len(digits.validation)
    same_size = replace(digits, validation=Split(tuple(column[:count] for column in digits.train.columns)))
    assert same_size.sizes() == digits.sizes()
    assert same_size.label_digests()["validation"] != digits.label_digests()["validation"]


def test_held_out_examples_are_not_among_those_of_training(digits):
    assert digits.share_trained_on() == 0.0


def test_training_examples_that_are_scored_are_found(digits):
    assert replace(digits, validation=digits.train).share_trained_on() == 1.0


class Made:
    """Rows made on demand."""

    def __init__(self, rows):
        self.rows, self.shape, self.dtype = rows, rows.shape, rows.dtype

    def __len__(self):
        return len(self.rows)

    def take(self, indices, seeds):
        return self.rows[indices]


def test_lazy_rows_are_not_searched_but_their_labels_have_a_digest(digits):
    made = Split((Made(digits.validation.inputs), Made(digits.validation.labels)))
    changed = Split((Made(digits.validation.inputs), Made(digits.validation.labels[::-1])))
    assert replace(digits, validation=made).share_trained_on() is None
    digests = {replace(digits, validation=each).label_digests()["validation"] for each in (made, changed)}
    assert len(digests) == 2
