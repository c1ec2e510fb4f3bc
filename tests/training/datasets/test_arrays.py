"""Datasets that are made from a user's own arrays."""

import numpy as np
import pytest

from levelbench.errors import DataError, DefinitionError
from levelbench.training import Task, Top1, datasets

RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.normal(size=(60, 4))
LABELS = np.repeat(["ant", "bee", "cat"], 20)


def load(*given, **settings):
    return datasets.from_arrays("mine", lambda: given if len(given) > 1 else given[0], **settings).load()


def test_one_pair_is_split_by_class_and_loses_no_row():
    data = load(INPUTS, LABELS)
    assert data.sizes() == {"train": 36, "validation": 12, "test": 12}
    assert all(np.bincount(split.labels).tolist() == [len(split) // 3] * 3 for split in data.splits().values())
    rows = np.concatenate([split.inputs for split in data.splits().values()])
    assert sorted(map(tuple, rows)) == sorted(map(tuple, INPUTS.astype(np.float32)))


def test_the_split_depends_on_the_rows_and_not_on_their_order():
    order = RANDOM.permutation(60)
    first, second = load(INPUTS, LABELS), load(INPUTS[order], LABELS[order])
    assert {each.tobytes() for each in first.test.inputs} == {each.tobytes() for each in second.test.inputs}


def test_labels_become_numbers_in_sorted_order():
    data = load(INPUTS, LABELS)
    by_row = {row.tobytes(): label for row, label in zip(INPUTS.astype(np.float32), LABELS, strict=True)}
    assert all(by_row[row.tobytes()] == ["ant", "bee", "cat"][at] for row, at in zip(*data.train.columns, strict=True))
    assert data.classes == 3


def test_three_pairs_stay_as_they_are_given():
    parts = [(INPUTS[:40], LABELS[:40]), (INPUTS[40:50], LABELS[40:50]), (INPUTS[50:], LABELS[50:])]
    data = load(*parts)
    assert data.sizes() == {"train": 40, "validation": 10, "test": 10}
    assert np.array_equal(data.validation.inputs, INPUTS[40:50].astype(np.float32))


def test_a_record_gets_checksums_that_change_with_any_value():
    changed = INPUTS.copy()
    changed[7, 3] += 1
    first, second = load(INPUTS, LABELS).checksums, load(changed, LABELS).checksums
    assert first["all/labels"] == second["all/labels"]
    assert first["all/inputs"] != second["all/inputs"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((INPUTS, LABELS[:59]), r"inputs of shape \(60, 4\) in float64 and labels of shape \(59,\)"),
        ((INPUTS, INPUTS[:, 0]), "labels that are fractions"),
        ((np.full((60, 4), np.nan), LABELS), "not finite"),
        ((INPUTS.astype(str), LABELS), "inputs of shape"),
        ((INPUTS[::20], LABELS[::20]), "3 rows in 3 classes, too few"),
        (((INPUTS, LABELS),) * 4, "4 parts"),
        ((INPUTS, LABELS, INPUTS), "no pair of arrays|labels of shape"),
    ],
)
def test_arrays_that_are_no_dataset_are_refused(given, message):
    with pytest.raises(DataError, match=message):
        load(*given)


@pytest.mark.parametrize("share", [0, 0.5, -1])
def test_a_share_that_leaves_nothing_to_train_on_is_refused(share):
    with pytest.raises(DefinitionError, match="held out twice"):
        datasets.from_arrays("mine", lambda: (INPUTS, LABELS), held_out=share)


def test_a_task_says_what_a_class_of_data_lacks():
    class Mine(datasets.DatasetSource):
        name = "mine"
        licence = "mine"

        def load(self, folder=None):
            raise NotImplementedError

        def lacks(self, folder=None):
            return None

    with pytest.raises(DefinitionError, match="lacks attribution"):
        Task("mine", data=Mine(), quality=Top1(target=0.9))
    with pytest.raises(DefinitionError, match="type dict, which is not derived"):
        Task("mine", data={}, quality=Top1(target=0.9))


def test_assembling_a_dataset_needs_the_rule_of_its_split():
    class Mine(datasets.DatasetSource):
        name = licence = attribution = "mine"

        def load(self, folder=None):
            return self.assembled([], 2, {}, "memory")

        def lacks(self, folder=None):
            return None

    with pytest.raises(DefinitionError, match="Mine has no split_rule"):
        Mine().load()
