from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from levelbench.errors import DataError, MissingError, UsageError
from levelbench.training import datasets
from levelbench.training.datasets import idx
from levelbench.training.datasets.base import stratified_split
from levelbench.training.datasets.idx import (
    DIGITS_HIGHEST,
    DIGITS_IMAGES,
    DIGITS_LABELS,
    DIGITS_MEAN,
    DIGITS_STD,
    Digits,
    read_checked,
)

BUNDLE = Path(idx.__file__).parent / "data"


def indices():
    images, labels = read_checked(BUNDLE, DIGITS_IMAGES), read_checked(BUNDLE, DIGITS_LABELS)
    return images.reshape(1797, 64), labels, stratified_split(images.reshape(1797, 64), labels, idx._fifths)


def test_the_splits_are_standardised_float32_rows_with_int64_labels():
    data = datasets.digits.load()
    assert data.sizes() == {"train": 1079, "validation": 359, "test": 359}
    assert (data.name, data.classes, data.synthetic) == ("digits", 10, False)
    for split in (data.train, data.validation, data.test):
        assert split.inputs.shape == (len(split), 64)
        assert (split.inputs.dtype, split.labels.dtype) == (np.float32, np.int64)
        assert split.inputs.flags.c_contiguous
        assert split.inputs.flags.writeable
        assert set(split.labels) == set(range(10))


def test_the_bundle_is_what_scikit_learn_ships():
    source = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed").load_digits()
    np.testing.assert_array_equal(read_checked(BUNDLE, DIGITS_IMAGES), source.images)
    np.testing.assert_array_equal(read_checked(BUNDLE, DIGITS_LABELS), source.target)


def test_every_digit_is_in_exactly_one_split():
    rows, _, parts = indices()
    assert sorted(np.concatenate(parts)) == list(range(1797))
    assert len(np.unique(rows, axis=0)) == 1797


def test_the_splits_are_stratified_within_one_a_class():
    _, labels, (_, test, validation) = indices()
    for part in (test, validation):
        assert (abs(np.bincount(labels[part]) - np.bincount(labels) / 5) < 1).all()


def test_the_splits_are_these_and_no_others():
    _, _, parts = indices()
    digests = [hashlib.sha256(part.astype("<i8").tobytes()).hexdigest()[:16] for part in parts]
    assert digests == ["0086411308d006c6", "0949e5b2944e2598", "6e1f098818f7b4e8"]


def test_validation_and_test_are_not_swapped():
    rows, labels, (_, test, validation) = indices()
    data = datasets.digits.load()
    for split, part in ((data.test, test), (data.validation, validation)):
        np.testing.assert_array_equal(split.labels, labels[part])
        np.testing.assert_allclose(split.inputs * DIGITS_STD + DIGITS_MEAN, rows[part] / DIGITS_HIGHEST, atol=1e-6)


def test_the_constants_are_those_of_the_training_split():
    rows, _, (train, *_) = indices()
    assert (rows[train] / DIGITS_HIGHEST).mean() == pytest.approx(DIGITS_MEAN, abs=5e-5)
    assert (rows[train] / DIGITS_HIGHEST).std() == pytest.approx(DIGITS_STD, abs=5e-5)


def test_checksums_licence_and_attribution_are_told():
    data = datasets.digits.load()
    assert data.checksums == {file.name: file.content_sha256 for file in (DIGITS_IMAGES, DIGITS_LABELS)}
    assert data.licence == "CC BY 4.0"
    assert "10.24432/C50P49" in data.source
    assert "Kaynak" in datasets.digits.attribution


@pytest.mark.parametrize("source", [datasets.digits, datasets.synthetic])
def test_a_folder_that_was_named_is_refused_for_nobody_looks_into_it(source, tmp_path):
    for ask in (source.load, source.fetch, source.checked):
        with pytest.raises(UsageError, match="no folder is looked into"):
            ask(tmp_path)


def test_a_folder_for_all_datasets_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("LEVELBENCH_DATA", str(tmp_path))
    assert datasets.digits.load(tmp_path).checksums == datasets.digits.load().checksums
    assert datasets.digits.lacks(tmp_path) is None


def test_a_damaged_bundle_is_an_error_and_not_other_data(tmp_path):
    shutil.copytree(BUNDLE, tmp_path, dirs_exist_ok=True)
    path = tmp_path / f"{DIGITS_IMAGES.name}.gz"
    path.write_bytes(path.read_bytes()[:20000])
    with pytest.raises(DataError, match="cannot be read to its end"):
        Digits(tmp_path).load()
    shutil.copy(BUNDLE / f"{DIGITS_LABELS.name}.gz", path)
    with pytest.raises(DataError, match="is expected"):
        Digits(tmp_path).load()


def test_an_installation_without_the_bundle_says_so(tmp_path):
    assert "install levelbench again" in Digits(tmp_path).lacks()
    with pytest.raises(MissingError):
        Digits(tmp_path).load()


def test_importing_the_datasets_brings_neither_frameworks_nor_the_network():
    program = (
        "import sys, levelbench.training.datasets\n"
        "print(*{'torch', 'scipy', 'sklearn', 'http.client', 'ssl'} & set(sys.modules))"
    )
    environment = {"PYTHONPATH": str(Path(idx.__file__).parents[3])}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""
