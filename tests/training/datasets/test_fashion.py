from __future__ import annotations

import gzip
import hashlib
import shutil

import numpy as np
import pytest

from levelbench.errors import DataError, MissingError
from levelbench.operators.frameworks import open_framework
from levelbench.training import datasets
from levelbench.training.datasets import idx
from levelbench.training.datasets.base import standardise, stratified_split
from levelbench.training.datasets.idx import (
    DEBIAN,
    FASHION_HIGHEST,
    FASHION_MEAN,
    FASHION_STD,
    FILES,
    FashionImages,
    FashionMnist,
    encode_idx,
    read_checked,
)
from levelbench.training.datasets.places import DataFile, cache_folder
from levelbench.training.input import Held

needs_debian = pytest.mark.skipif(
    any(file.within(DEBIAN) is None for file in FILES), reason=f"the package dataset-fashion-mnist is not in {DEBIAN}"
)


class Small:
    """A miniature in the same four files: 60 training and 10 test images."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        arrays = [
            rng.integers(0, 256, (60, 28, 28), dtype=np.uint8),
            np.arange(60, dtype=np.uint8) % 10,
            rng.integers(0, 256, (10, 28, 28), dtype=np.uint8),
            np.arange(10, dtype=np.uint8),
        ]
        self.contents = [encode_idx(array) for array in arrays]
        self.packed = [gzip.compress(content, mtime=0) for content in self.contents]
        self.files = tuple(
            DataFile(file.name, hashlib.sha256(content).hexdigest(), hashlib.sha256(packed).hexdigest())
            for file, content, packed in zip(FILES, self.contents, self.packed, strict=True)
        )

    def put(self, folder, packed=True):
        folder.mkdir(parents=True, exist_ok=True)
        for file, plain, gz in zip(self.files, self.contents, self.packed, strict=True):
            (folder / (f"{file.name}.gz" if packed else file.name)).write_bytes(gz if packed else plain)
        return folder


@pytest.fixture(scope="module")
def small():
    return Small()


@pytest.fixture
def source(small, tmp_path):
    return FashionMnist(small.files, packaged=tmp_path / "packaged")


@pytest.fixture
def official(small, server, monkeypatch):
    """The official address, answered by the local server."""
    server.files = {f"/{file.name}.gz": packed for file, packed in zip(small.files, small.packed, strict=True)}
    monkeypatch.setattr(idx, "OFFICIAL_URL", server.url)
    return server


def place(data):
    return data.source.split(";")[0]


@needs_debian
def test_the_real_data_has_the_official_sizes_and_a_stratified_validation_split():
    data = FashionMnist().load(DEBIAN)
    assert data.sizes() == {"train": 50_000, "validation": 10_000, "test": 10_000}
    for split, a_class in ((data.train, 5000), (data.validation, 1000), (data.test, 1000)):
        assert split.inputs.shape == (len(split), 1, 28, 28)
        assert (split.inputs.dtype, split.labels.dtype) == (np.uint8, np.int64)
        assert split.inputs.flags.c_contiguous
        assert np.bincount(split.labels).tolist() == [a_class] * 10
    constants = data.normalisation
    assert (constants.mean, constants.std, constants.highest) == ((FASHION_MEAN,), (FASHION_STD,), 255.0)


@needs_debian
def test_the_real_splits_and_constants_are_fixed():
    images, labels = (read_checked(DEBIAN, file) for file in FILES[:2])
    parts = stratified_split(images, labels, lambda count: (count // 6,))
    assert sorted(np.concatenate(parts)) == list(range(60_000))
    digests = [hashlib.sha256(part.astype("<i8").tobytes()).hexdigest()[:16] for part in parts]
    assert digests == ["afc1975f14d90b9c", "c6fad94f07ed3d43"]
    train = images[parts[0]]
    assert train.mean() / FASHION_HIGHEST == pytest.approx(FASHION_MEAN, abs=5e-5)
    assert train.std() / FASHION_HIGHEST == pytest.approx(FASHION_STD, abs=5e-5)


def test_a_held_split_has_the_standardised_values(small, source, tmp_path):
    data = source.load(small.put(tmp_path))
    (batch,) = Held(open_framework("numpy"), data, data.test).batches()
    np.testing.assert_allclose(
        batch[0], standardise(data.test.inputs, FASHION_HIGHEST, FASHION_MEAN, FASHION_STD), atol=1e-6
    )


@pytest.mark.parametrize("below", ["", "fashion-mnist", "FashionMNIST/raw"])
@pytest.mark.parametrize("packed", [True, False])
def test_a_folder_or_its_parent_gives_the_data_gzipped_or_plain(small, source, tmp_path, below, packed):
    small.put(tmp_path / "mine" / below, packed)
    data = source.load(tmp_path / "mine")
    assert data.sizes() == {"train": 50, "validation": 10, "test": 10}
    assert np.bincount(data.validation.labels).tolist() == [1] * 10
    assert data.checksums == {file.name: file.content_sha256 for file in small.files}
    assert place(data) == "--data"


def test_another_dataset_with_the_same_file_names_is_not_confused_with_it(small, source, tmp_path):
    small.put(tmp_path / "mine" / "fashion-mnist")
    shutil.copytree(tmp_path / "mine" / "fashion-mnist", tmp_path / "mine" / "emnist")
    for path in (tmp_path / "mine" / "emnist").iterdir():
        path.write_bytes(b"other digits")
    assert place(source.load(tmp_path / "mine")) == "--data"


def test_the_places_are_searched_in_order(small, source, tmp_path, monkeypatch, official):
    monkeypatch.setenv("LEVELBENCH_DATA", str(tmp_path / "said"))
    cached = cache_folder() / "fashion-mnist"
    folders = {
        "LEVELBENCH_DATA": tmp_path / "said",
        "the cache": cached,
        "the package dataset-fashion-mnist": tmp_path / "packaged",
    }
    for folder in folders.values():
        small.put(folder)
    seen = []
    for folder in folders.values():
        seen.append(place(source.load()))
        shutil.rmtree(folder)
    assert seen == list(folders)
    assert official.ranges == []
    assert place(source.load()) == "downloaded"


@pytest.mark.parametrize(("make", "found"), [(False, "no such file or folder"), (True, "its files are not there")])
def test_a_named_folder_is_the_only_place(small, source, tmp_path, official, make, found):
    small.put(tmp_path / "packaged")
    folder = tmp_path / "mine"
    if make:
        folder.mkdir()
    assert found in source.lacks(folder)
    assert source.awaits(folder) is source.where(folder) is None
    for ask in (source.load, source.fetch, source.checked):
        with pytest.raises(MissingError, match=rf"--data {folder}.*{found}.*leave --data out"):
            ask(folder)
    assert official.ranges == []


@pytest.mark.parametrize("relative", [True, False])
def test_the_variables_folder_is_one_of_several_places_even_via_an_option(
    small, source, tmp_path, monkeypatch, relative
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEVELBENCH_DATA", "said" if relative else str(tmp_path / "said"))
    small.put(tmp_path / "packaged")
    assert place(source.load(tmp_path / "said")) == "the package dataset-fashion-mnist"
    assert source.where().endswith("said) does not have its files")
    small.put(tmp_path / "said")
    assert place(source.load(tmp_path / "said")) == "LEVELBENCH_DATA"
    assert source.where().endswith("said (LEVELBENCH_DATA)")


def test_the_pending_download_is_reported_until_it_is_done(source, official, monkeypatch):
    assert source.awaits() == "4 files, 31 MB"
    source.fetch()
    assert source.awaits() is None


def test_a_download_is_kept_and_used_the_next_time(source, official, monkeypatch):
    first = source.load()
    assert place(first) == "downloaded"
    assert len(official.ranges) == 4
    monkeypatch.setenv("LEVELBENCH_OFFLINE", "1")
    again = source.load()
    assert place(again) == "the cache"
    np.testing.assert_array_equal(first.train.inputs, again.train.inputs)


def test_files_can_be_fetched_before_the_clock_starts(source, official, monkeypatch):
    seen = []
    source.fetch(progress=lambda done, total: seen.append(done))
    assert seen
    assert len(official.ranges) == 4
    assert place(source.load()) == "the cache"


def test_an_interrupted_download_continues_with_the_missing_files(source, official, behave):
    official.script = [behave.whole, behave.answers(404)]
    with pytest.raises(MissingError, match="answered 404"):
        source.load()
    assert place(source.load()) == "downloaded"
    assert len(official.ranges) == 2 + 3


def test_the_official_address_must_send_the_official_bytes(small, source, official):
    name = f"/{small.files[0].name}.gz"
    official.files[name] = gzip.compress(small.contents[0], 1, mtime=7)
    with pytest.raises(DataError, match="SHA-256 is not the expected"):
        source.load()


def test_a_mirror_may_compress_the_same_content_differently(small, source, server, monkeypatch):
    monkeypatch.setenv("LEVELBENCH_FASHION_MNIST_URL", f"{server.url}/mirror/")
    server.files = {
        f"/mirror/{file.name}.gz": gzip.compress(content, 1, mtime=7)
        for file, content in zip(small.files, small.contents, strict=True)
    }
    assert place(source.load()) == "downloaded"


def test_a_mirror_with_other_content_is_refused_and_not_kept(small, source, server, monkeypatch):
    monkeypatch.setenv("LEVELBENCH_FASHION_MNIST_URL", server.url)
    other = gzip.compress(encode_idx(np.zeros((60, 28, 28), np.uint8)))
    server.files = {f"/{file.name}.gz": other for file in small.files}
    with pytest.raises(DataError, match="SHA-256 is not the expected"):
        source.load()
    assert [path.name for path in (cache_folder() / "fashion-mnist").iterdir() if path.suffix != ".lock"] == []


@needs_debian
def test_a_mirror_of_debians_files_gives_the_real_data(server, monkeypatch, tmp_path):
    monkeypatch.setenv("LEVELBENCH_FASHION_MNIST_URL", server.url)
    server.files = {f"/{file.name}.gz": file.within(DEBIAN).read_bytes() for file in FILES}
    FashionMnist(packaged=tmp_path).fetch()
    for file in FILES:
        read_checked(cache_folder() / "fashion-mnist", file)


def test_a_missing_dataset_error_names_the_three_ways(source, monkeypatch, tmp_path, server):
    monkeypatch.setenv("LEVELBENCH_OFFLINE", "1")
    monkeypatch.setattr(idx, "OFFICIAL_URL", server.url)
    with pytest.raises(MissingError, match="LEVELBENCH_OFFLINE forbids") as caught:
        source.load()
    assert caught.value.exit_code == 3
    for way in ("dataset-fashion-mnist", "--data or LEVELBENCH_DATA", "allow the download"):
        assert way in caught.value.do
    assert str(tmp_path / "packaged") in caught.value.found
    assert server.ranges == []


def test_a_failed_download_names_the_three_ways_too(source, official, behave):
    official.script = [behave.answers(404)]
    with pytest.raises(MissingError, match=r"the download failed.*answered 404.*three ways"):
        source.load()


def test_missing_files_are_reported_without_reading_or_network(small, source, tmp_path, monkeypatch, official):
    assert source.lacks() is None
    monkeypatch.setenv("LEVELBENCH_OFFLINE", "1")
    assert "LEVELBENCH_OFFLINE" in source.lacks()
    assert "\n" not in source.lacks()
    assert source.lacks(small.put(tmp_path / "mine")) is None
    assert official.ranges == []


def test_an_unreadable_folder_is_skipped(small, source, tmp_path, monkeypatch):
    small.put(tmp_path / "packaged")
    monkeypatch.setenv("LEVELBENCH_DATA", str(tmp_path / ("x" * 300)))
    assert place(source.load()) == "the package dataset-fashion-mnist"


def test_three_of_four_files_are_not_the_data(small, source, tmp_path, monkeypatch):
    monkeypatch.setenv("LEVELBENCH_OFFLINE", "1")
    folder = small.put(tmp_path / "mine")
    small.files[2].within(folder).unlink()
    assert source.lacks(folder) is not None
    with pytest.raises(MissingError):
        source.load(folder)


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lambda content: content[: len(content) // 2], "cannot be read to its end"),
        (lambda content: b"", "does not start like an IDX file"),
        (lambda content: gzip.compress(encode_idx(np.zeros((60, 28, 28), np.uint8))), "is expected"),
        (lambda content: gzip.compress(gzip.decompress(content) + b"!"), "bytes follow"),
    ],
)
def test_a_damaged_file_is_an_error_and_no_other_place_is_searched(small, source, tmp_path, damage, found, official):
    folder = small.put(tmp_path / "mine")
    path = small.files[0].within(folder)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=found) as caught:
        source.load(folder)
    assert str(path) in str(caught.value)
    assert official.ranges == []


def test_the_names_are_those_of_the_package():
    assert isinstance(datasets.fashion_mnist, FashionMnist)
    assert datasets.fashion_mnist.name == "fashion-mnist"
    assert datasets.fashion_mnist.licence == "MIT"


def test_images_without_labels_need_and_read_only_the_images(small, tmp_path):
    images = (small.files[0], small.files[2])
    folder = small.put(tmp_path / "fashion")
    for labels in (small.files[1], small.files[3]):
        (folder / f"{labels.name}.gz").unlink()
    data = FashionImages(images, packaged=folder).load()
    assert data.sizes() == {"train": 50, "validation": 10, "test": 10}
    assert data.checksums == {file.name: file.content_sha256 for file in images}
    assert all(each.labels is each.inputs for each in data.splits().values())


@needs_debian
def test_the_images_split_does_not_change():
    digests = datasets.source("fashion-mnist-images").load().input_digests()
    assert [each[:16] for each in digests.values()] == ["2b005eaf34a69559", "8e943dd71cb94f13", "3c6838960259bddc"]
