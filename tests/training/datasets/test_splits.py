from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelbench.errors import DataError
from levelbench.training.datasets import Split
from levelbench.training.datasets.splits import standardise, stratified_split


@settings(max_examples=100, deadline=None)
@given(labels=st.lists(st.integers(0, 4), min_size=1, max_size=60), seed=st.integers(0, 9))
def test_the_parts_are_disjoint_cover_everything_and_hold_what_was_asked(labels, seed):
    labels = np.array(labels)
    rows = np.random.default_rng(seed).integers(0, 3, (len(labels), 2), dtype=np.uint8)
    parts = stratified_split(rows, labels, lambda count: (count // 3, count // 4))
    assert sorted(np.concatenate(parts)) == list(range(len(labels)))
    for label in set(labels.tolist()):
        count = int((labels == label).sum())
        held = [int((labels[part] == label).sum()) for part in parts[1:]]
        assert held == [count // 3, count // 4]


def test_a_row_is_held_out_for_its_bytes_and_not_for_its_place():
    rows = np.random.default_rng(0).integers(0, 256, (200, 64), dtype=np.uint8)
    labels = rows[:, 0] % 3
    shuffled = np.random.default_rng(1).permutation(200)
    kept = stratified_split(rows, labels, lambda count: (count // 5,))
    moved = stratified_split(rows[shuffled], labels[shuffled], lambda count: (count // 5,))
    for before, after in zip(kept, moved, strict=True):
        assert set(before) == set(shuffled[after])


def test_of_equal_rows_the_first_are_held_out():
    rest, held = stratified_split(np.zeros((500, 8), np.uint8), np.zeros(500, int), lambda count: (100,))
    assert held.tolist() == list(range(100))
    assert rest.tolist() == list(range(100, 500))


def test_file_order_is_kept_within_a_part():
    rows = np.arange(100, dtype=np.uint8)[:, None]
    for part in stratified_split(rows, np.zeros(100, int), lambda count: (30, 20)):
        assert (np.diff(part) > 0).all()


def test_the_order_is_that_of_sha_256():
    # SHA-256 of the single bytes 0x00, 0x01, 0x02 begins 6e34, 4bf5, dbc1 (sha256sum).
    rows = np.array([[0], [1], [2]], dtype=np.uint8)
    rest, first, second = stratified_split(rows, np.zeros(3, int), lambda count: (1, 1))
    assert (rest.tolist(), first.tolist(), second.tolist()) == ([2], [1], [0])


def test_standardising_is_the_formula():
    rows = np.arange(256, dtype=np.uint8).reshape(4, 64)
    inputs = standardise(rows, 255, 0.3, 0.4)
    assert inputs.dtype == np.float32
    np.testing.assert_allclose(inputs, (rows / 255 - 0.3) / 0.4, rtol=1e-5, atol=1e-6)


def test_a_split_has_one_label_for_each_input():
    assert len(Split.of(np.zeros((3, 2), np.float32), np.zeros(3, np.int64))) == 3
    with pytest.raises(DataError, match="columns of one length"):
        Split.of(np.zeros((3, 2), np.float32), np.zeros(2, np.int64))
