"""diabetes: against scikit-learn's own loader, and files that are damaged or absent."""

import gzip

import numpy as np
import pytest

from levelbench.errors import DataError, MissingError
from levelbench.training import datasets
from levelbench.training.datasets import tables

sklearn_datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed")


@pytest.fixture(autouse=True)
def nowhere_else(tmp_path, monkeypatch):
    monkeypatch.setenv("LEVELBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LEVELBENCH_DATA", raising=False)


def test_the_rows_are_scikit_learns_standardised_by_the_training_split():
    data = datasets.source("diabetes").load()
    rows, targets = sklearn_datasets.load_diabetes(return_X_y=True, scaled=False)
    ours = np.concatenate([np.column_stack([each.labels, each.inputs]) for each in data.splits().values()])
    assert data.sizes() == {"train": 266, "validation": 88, "test": 88}
    np.testing.assert_array_equal(np.sort(ours[:, 0]), np.sort(targets))
    np.testing.assert_allclose(np.corrcoef(ours.T), np.corrcoef(np.column_stack([targets, rows]).T), atol=1e-6)
    np.testing.assert_allclose(data.train.inputs.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(data.train.inputs.std(axis=0), 1, atol=1e-6)


def test_the_split_does_not_change():
    digests = datasets.source("diabetes").load().label_digests()
    assert [each[:16] for each in digests.values()] == ["63a9c568f06f1470", "f4085669ccba3060", "4c667d2ec80f573b"]


def test_other_numbers_are_refused(tmp_path):
    for file in tables.FILES:
        (tmp_path / f"{file.name}.gz").write_bytes(gzip.compress(b"1 2 3\n"))
    with pytest.raises(DataError, match="SHA-256"):
        datasets.source("diabetes").load(tmp_path)


def test_without_scikit_learn_a_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(tables, "find_spec", lambda name: None)
    source = datasets.source("diabetes")
    assert "levelbench data list diabetes" in source.lacks()
    with pytest.raises(MissingError, match="not in the cache") as caught:
        source.load()
    assert "pip install scikit-learn" in caught.value.do
