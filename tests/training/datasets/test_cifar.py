from __future__ import annotations

import contextlib
import dataclasses
import gzip
import hashlib
import io
import pickle
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelbench.errors import DataError, MissingError, UsageError
from levelbench.training import datasets
from levelbench.training.datasets import cifar
from levelbench.training.datasets.cifar import (
    CIFAR10,
    CIFAR100,
    PIXELS,
    Cifar,
    digest_of_rows,
    images_and_labels,
    rows_of_binary,
    rows_of_pickle,
)
from levelbench.training.datasets.places import cache_folder

PATH = Path("test_batch")
FEW = 4
PIXEL_ROWS = np.random.default_rng(0).integers(0, 256, (FEW, PIXELS), dtype=np.uint8)
FINE, COARSE = [0, 9, 99, 50], [0, 19, 5, 5]
BINARY_10 = b"".join(bytes([label]) + row.tobytes() for label, row in zip([0, 9, 3, 3], PIXEL_ROWS, strict=True))
BINARY_100 = b"".join(
    bytes([coarse, fine]) + row.tobytes() for coarse, fine, row in zip(COARSE, FINE, PIXEL_ROWS, strict=True)
)


def python_2(held: dict[str, object]) -> bytes:
    """The pickle that Python 2's cPickle writes with protocol 2, like the published files."""

    def short(word: bytes) -> bytes:
        return b"U" + bytes([len(word)]) + word

    def value(of: object) -> bytes:
        if isinstance(of, np.ndarray):
            content = of.tobytes()
            dtype = b"cnumpy\ndtype\n" + short(b"u1") + b"K\x00K\x01\x87Rq\x07(K\x03" + short(b"|")
            dtype += b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
            shape = b"M" + struct.pack("<H", of.shape[0]) + b"M" + struct.pack("<H", of.shape[1]) + b"\x86"
            made = b"cnumpy.core.multiarray\n_reconstruct\nq\x04cnumpy\nndarray\nq\x05K\x00\x85" + short(b"b")
            return (
                made
                + b"\x87Rq\x06(K\x01"
                + shape
                + dtype
                + b"\x89T"
                + struct.pack("<I", len(content))
                + content
                + b"tb"
            )
        if isinstance(of, list):
            items = b"".join(b"K" + bytes([each]) if isinstance(each, int) else short(each) for each in of)
            return b"]q\x02(" + items + b"e"
        return short(of)

    items = b"".join(short(key.encode()) + value(of) for key, of in held.items())
    return b"\x80\x02}q\x01(" + items + b"u."


def of_cifar_10(**changes):
    held = {
        "batch_label": b"testing batch 1 of 1",
        "labels": [0, 9, 3, 3],
        "data": PIXEL_ROWS,
        "filenames": [b"a.png"] * FEW,
    }
    return {**held, **changes}


def test_the_binary_version_is_label_red_green_blue():
    rows = rows_of_binary(BINARY_10, 10, FEW, PATH)
    images, labels = images_and_labels([rows], 10)
    assert labels.tolist() == [0, 9, 3, 3]
    assert (images.shape, images.dtype, labels.dtype) == ((FEW, 3, 32, 32), np.uint8, np.int64)
    assert images[2, 1, 5, 7] == PIXEL_ROWS[2, 1024 + 5 * 32 + 7]
    assert digest_of_rows(rows) == hashlib.sha256(BINARY_10).hexdigest()


def test_cifar_100_has_the_fine_label_second():
    images, labels = images_and_labels([rows_of_binary(BINARY_100, 100, FEW, PATH)], 100)
    assert labels.tolist() == FINE
    np.testing.assert_array_equal(images.reshape(FEW, -1), PIXEL_ROWS)


def test_the_python_version_gives_the_same_rows_as_the_binary_one():
    assert rows_of_pickle(python_2(of_cifar_10()), 10, FEW, PATH).tobytes() == BINARY_10
    held = {"data": PIXEL_ROWS, "fine_labels": FINE, "coarse_labels": COARSE}
    assert rows_of_pickle(python_2(held), 100, FEW, PATH).tobytes() == BINARY_100


def test_a_pickle_that_python_3_saved_again_is_read_too():
    assert rows_of_pickle(pickle.dumps(of_cifar_10(), 4), 10, FEW, PATH).tobytes() == BINARY_10


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (BINARY_10[:-1], "12,291 bytes, and 4 images have 12,292"),
        (BINARY_10 + b"x", "12,293 bytes"),
        (b"", "0 bytes"),
        (b"\x0a" + BINARY_10[1:], "label 10 among its labels, outside 0 to 9"),
    ],
)
def test_a_binary_file_of_another_size_or_with_labels_out_of_range_is_refused(content, found):
    with pytest.raises(DataError, match=found):
        rows_of_binary(content, 10, FEW, PATH)


@pytest.mark.parametrize(("at", "key"), [(0, "coarse_labels, outside 0 to 19"), (1, "fine_labels, outside 0 to 99")])
def test_both_labels_of_cifar_100_are_checked(at, key):
    content = bytearray(BINARY_100)
    content[at] = 100
    with pytest.raises(DataError, match=f"label 100 among its {key}"):
        rows_of_binary(bytes(content), 100, FEW, PATH)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"labels": [0, 9, 3]}, "no 4 labels"),
        ({"labels": [0, 9, 3, 10]}, "not all in 0 to 9"),
        ({"labels": b"0933"}, "no 4 labels"),
        ({"labels": [b"0", b"1", b"2", b"3"]}, "no 4 labels"),
        ({"data": PIXEL_ROWS[:3]}, "no data of shape"),
        ({"data": b"pixels"}, "no data of shape"),
    ],
)
def test_a_pickle_with_other_content_is_refused(changes, found):
    with pytest.raises(DataError, match=found):
        rows_of_pickle(python_2(of_cifar_10(**changes)), 10, FEW, PATH)


def test_a_pickle_of_something_else_is_refused():
    with pytest.raises(DataError, match="not hold a dictionary"):
        rows_of_pickle(pickle.dumps([1, 2], 2), 10, FEW, PATH)


@settings(max_examples=60, deadline=None)
@given(content=st.binary(max_size=80), count=st.integers(0, 1), classes=st.sampled_from([10, 100]))
def test_no_bytes_cause_an_unexpected_error(content, count, classes):
    for read in (rows_of_binary, rows_of_pickle):
        with contextlib.suppress(DataError):
            read(content, classes, count, PATH)


def test_a_key_that_is_not_unicode_is_a_different_key():
    content = pickle.dumps({"\ud800": 1}, 4)
    with pytest.raises(DataError, match="no data of shape"):
        rows_of_pickle(content, 10, FEW, PATH)


COUNT = 20


class Small:
    """A miniature of CIFAR-10 in both versions: six files of 20 images."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.pixels = [rng.integers(0, 256, (COUNT, PIXELS), dtype=np.uint8) for _ in range(6)]
        self.labels = [rng.permutation(COUNT) % 10 for _ in range(6)]
        pairs = list(zip(self.labels, self.pixels, strict=True))
        binary = [np.column_stack([labels.astype(np.uint8), pixels]).tobytes() for labels, pixels in pairs]
        python = [pickle.dumps({"labels": labels.tolist(), "data": pixels}, 2) for labels, pixels in pairs]
        self.contents = (binary, python)
        self.archives = tuple(
            self._archive(version, each) for version, each in zip(CIFAR10.versions, self.contents, strict=True)
        )
        self.edition = dataclasses.replace(CIFAR10, versions=tuple(self._version(at) for at in range(2)))

    def _version(self, at):
        version = CIFAR10.versions[at]
        digest = (hashlib.sha256, hashlib.md5)[at]
        files = tuple(
            dataclasses.replace(file, images=COUNT, digest=digest(content).hexdigest())
            for file, content in zip(version.files, self.contents[at], strict=True)
        )
        sha256 = hashlib.sha256(self.archives[at]).hexdigest()
        return dataclasses.replace(version, files=files, archive_sha256=sha256)

    @staticmethod
    def _archive(version, contents):
        stored = io.BytesIO()
        with tarfile.open(fileobj=stored, mode="w") as tar:
            for name, content in [
                ("readme.html", b"<p>"),
                *zip([f.name for f in version.files], contents, strict=True),
            ]:
                info = tarfile.TarInfo(f"{version.folder}/{name}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        return gzip.compress(stored.getvalue(), mtime=0)

    def put(self, folder, at, packed=False):
        version = self.edition.versions[at]
        folder.mkdir(parents=True, exist_ok=True)
        if packed:
            (folder / version.archive).write_bytes(self.archives[at])
        else:
            for file, content in zip(version.files, self.contents[at], strict=True):
                (folder / file.name).write_bytes(content)
        return folder


@pytest.fixture(scope="module")
def small():
    return Small()


@pytest.fixture
def source(small):
    return Cifar(small.edition)


@pytest.fixture
def official(small, server, monkeypatch):
    server.files = {f"/{small.edition.versions[0].archive}": small.archives[0]}
    monkeypatch.setattr(cifar, "OFFICIAL_URL", server.url)
    return server


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("at", [0, 1], ids=["binary", "python"])
@pytest.mark.parametrize("below", ["", "cifar-10"])
def test_every_version_gives_the_same_data_and_checksums(small, source, tmp_path, at, packed, below):
    small.put(tmp_path / below, at, packed)
    data = source.load(tmp_path)
    assert data.sizes() == {"train": 90, "validation": 10, "test": 20}
    assert data.test.inputs.shape == (20, 3, 32, 32)
    np.testing.assert_array_equal(data.test.inputs.reshape(20, -1), small.pixels[5])
    np.testing.assert_array_equal(data.test.labels, small.labels[5])
    assert data.checksums == {file.name: file.digest for file in small.edition.versions[0].files}
    assert data.normalisation == CIFAR10.normalisation
    assert data.source.startswith("--data; ")


def test_the_validation_split_is_a_tenth_of_each_class_and_no_row_is_lost(small, source, tmp_path):
    data = source.load(small.put(tmp_path, 0))
    assert np.bincount(data.validation.labels).tolist() == [1] * 10
    together = np.concatenate([data.train.inputs, data.validation.inputs]).reshape(100, -1)
    assert sorted(map(bytes, together)) == sorted(map(bytes, np.concatenate(small.pixels[:5])))


def test_dawnbench_s_split_trains_on_everything_and_validates_on_the_test_set(small, tmp_path):
    data = Cifar(small.edition, validation="test").load(small.put(tmp_path, 0))
    assert data.sizes() == {"train": 100, "validation": 20, "test": 20}
    assert data.validation is data.test
    assert "both validation and test" in data.split_rule
    with pytest.raises(UsageError, match="held-out or test"):
        Cifar(small.edition, validation="some")


def test_a_download_leaves_the_checked_files_and_not_the_archive(small, source, official):
    assert source.load().source.startswith("downloaded; ")
    folder = cache_folder() / "cifar10"
    assert sorted(path.name for path in folder.iterdir() if path.suffix != ".lock") == ["cifar-10-batches-bin"]
    assert source.load().source.startswith("the cache; ")
    assert len(official.ranges) == 1


def test_an_interrupted_download_resumes(small, source, official, behave):
    official.script = [behave.truncates]
    source.fetch()
    assert [bool(each) for each in official.ranges] == [False, True]
    assert source.found().label == "the cache"


def test_another_archive_than_the_published_one_is_refused(source, official, small):
    official.files = {f"/{small.edition.versions[0].archive}": small.archives[1]}
    with pytest.raises(DataError, match="SHA-256 is not the expected"):
        source.load()
    assert source.found() is None


def test_offline_says_what_to_do(source, monkeypatch, official):
    monkeypatch.setenv("LEVELBENCH_OFFLINE", "1")
    assert "LEVELBENCH_OFFLINE" in source.lacks()
    with pytest.raises(MissingError, match=r"put cifar-10-binary.tar.gz or cifar-10-python.tar.gz"):
        source.load()
    assert official.ranges == []


@pytest.mark.parametrize(("at", "kind"), [(0, "SHA-256"), (1, "MD5")])
def test_a_damaged_file_is_named(small, source, tmp_path, at, kind):
    path = small.put(tmp_path, at) / small.edition.versions[at].files[2].name
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(DataError, match=f"its content has {kind}") as caught:
        source.load(tmp_path)
    assert str(path) in str(caught.value)


def test_a_damaged_archive_is_refused_before_reading_it(small, source, tmp_path):
    path = small.put(tmp_path, 1, packed=True) / small.edition.versions[1].archive
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(DataError, match="its content has SHA-256"):
        source.load(tmp_path)


def test_an_archive_without_a_file_is_refused(small, tmp_path):
    stored = io.BytesIO()
    tarfile.open(fileobj=stored, mode="w").close()
    (tmp_path / small.edition.versions[0].archive).write_bytes(stored.getvalue())
    version = dataclasses.replace(
        small.edition.versions[0], archive_sha256=hashlib.sha256(stored.getvalue()).hexdigest()
    )
    with pytest.raises(DataError, match=r"it lacks data_batch_1\.bin"):
        Cifar(dataclasses.replace(small.edition, versions=(version,))).load(tmp_path)


def test_a_folder_with_some_of_the_files_counts_as_empty(small, source, tmp_path, monkeypatch):
    monkeypatch.setenv("LEVELBENCH_OFFLINE", "1")
    (small.put(tmp_path, 0) / "test_batch.bin").unlink()
    assert source.found(tmp_path) is None


def test_the_published_sizes_are_those_of_the_datasets():
    for edition, classes in ((CIFAR10, 10), (CIFAR100, 100)):
        for version in edition.versions:
            *train, test = version.files
            assert (sum(file.images for file in train), test.images, edition.classes) == (50_000, 10_000, classes)
            assert len(version.archive_sha256) == 64
            assert {len(file.digest) for file in version.files} == ({32} if version.pickled else {64})


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_the_constants_are_those_of_the_official_training_images(name):
    source = datasets.source(name)
    if source.found() is None:
        pytest.skip(f"{name} is not on this machine")
    data = source.load()
    images = np.concatenate([data.train.inputs, data.validation.inputs]) / 255
    np.testing.assert_allclose(images.mean(axis=(0, 2, 3)), data.normalisation.mean, atol=1e-4)
    np.testing.assert_allclose(images.std(axis=(0, 2, 3)), data.normalisation.std, atol=1e-4)


def test_an_archive_unpacked_by_another_process_is_searched_again(small, source, tmp_path, monkeypatch):
    archive = small.put(tmp_path, 0, packed=True) / small.edition.versions[0].archive
    located = source.located

    def unpacked_after(folder):
        found = located(folder)
        if archive.exists():
            small.put(tmp_path, 0)
            archive.unlink()
        return found

    monkeypatch.setattr(source, "located", unpacked_after)
    assert source.load(tmp_path).sizes() == {"train": 90, "validation": 10, "test": 20}


def test_an_archive_that_is_gone_for_good_is_missing(small, source, tmp_path, monkeypatch):
    found = source.located(small.put(tmp_path, 0, packed=True))
    found.held.path.unlink()
    monkeypatch.setattr(source, "located", lambda folder: found)
    with pytest.raises(MissingError, match="removed in the meantime"):
        source.load(tmp_path)
