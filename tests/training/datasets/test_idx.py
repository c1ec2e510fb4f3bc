from __future__ import annotations

import contextlib
import gzip
import hashlib
import shutil
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

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
    content_digest,
    encode_idx,
    read_checked,
    read_idx,
    write_idx,
)

ARRAY = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def header(*shape: int, code: int = 0x08) -> bytes:
    return struct.pack(f">HBB{len(shape)}I", 0, code, len(shape), *shape)


@pytest.fixture
def file(tmp_path):
    def write(content: bytes):
        path = tmp_path / "file"
        path.write_bytes(content)
        return path

    return write


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    array=st_numpy.arrays(
        st.sampled_from(sorted(CODES)), st_numpy.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=5)
    ),
    name=st.sampled_from(["a-idx", "a-idx.gz"]),
)
def test_what_is_written_is_read_back(tmp_path, array, name):
    write_idx(tmp_path / name, array)
    back = read_idx(tmp_path / name).array
    assert back.dtype == array.dtype
    assert back.dtype.isnative
    np.testing.assert_array_equal(back, array)


def test_the_bytes_are_those_of_the_format(file):
    content = b"\0\0\x0b\x02" + b"\0\0\0\1" + b"\0\0\0\2" + b"\1\2\xff\xff"
    assert read_idx(file(content)).array.tolist() == [[258, -1]]
    assert encode_idx(np.array([[258, -1]], dtype=np.int16)) == content


def test_gzip_is_known_by_content_and_the_digest_is_of_what_is_inside(tmp_path):
    content = encode_idx(ARRAY)
    for name, stored in (("plain.gz", content), ("zipped", gzip.compress(content, 1)), ("z9", gzip.compress(content))):
        (tmp_path / name).write_bytes(stored)
        assert content_digest(tmp_path / name) == hashlib.sha256(content).hexdigest()


def test_writing_twice_gives_the_same_bytes(tmp_path):
    write_idx(tmp_path / "a.gz", ARRAY)
    write_idx(tmp_path / "b.gz", ARRAY)
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "does not start like an IDX file"),
        (b"\0\0\x08", "does not start like an IDX file"),
        (b"PK\3\4" + bytes(50), "does not start like an IDX file"),
        (header(2, code=0x0A) + bytes(2), "type code 0x0a"),
        (header(), "0 dimensions"),
        (b"\0\0\x08\xff" + bytes(4 * 255), "255 dimensions"),
        (header(2, 3)[:-1], "inside its header"),
        (header(0), "is empty"),
        (header(0, 2**32 - 1, 2**32 - 1), "is empty"),
        (header(3) + bytes(2), "truncated: 2 bytes"),
        (header(20) + bytes(19), "truncated: 19 bytes of values where its header claims 20"),
        (header(3) + bytes(4), "bytes follow"),
        (header(2**30) + bytes(9), "more than the file can hold"),
        (header(*[2**32 - 1] * 32), "is the limit"),
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gz"])
def test_anything_but_exactly_one_array_is_refused(file, content, found, pack):
    with pytest.raises(DataError, match=found) as caught:
        read_idx(file(pack(content)))
    assert "Remove the file and fetch it again" in str(caught.value)


@pytest.mark.parametrize("keep", [3, 12, 30, -9, -1])
def test_a_truncated_gzip_file_is_refused(file, keep):
    noise = np.random.default_rng(0).integers(0, 256, (10, 28, 28), dtype=np.uint8)
    with pytest.raises(DataError):
        read_idx(file(gzip.compress(encode_idx(noise))[:keep]))


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_flipped_bit_is_detected_or_harmless(tmp_path, place, bit):
    content = encode_idx(ARRAY)
    stored = bytearray(gzip.compress(content, mtime=0))
    stored[place % len(stored)] ^= 1 << bit
    path = tmp_path / "file"
    path.write_bytes(stored)
    try:
        read = read_idx(path)
    except DataError:
        return
    # Some bits of a gzip header carry no content: the time, the operating system.
    assert read.sha256 == hashlib.sha256(content).hexdigest()
    np.testing.assert_array_equal(read.array, ARRAY)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(content=st.binary(max_size=60), zipped=st.booleans(), prefix=st.sampled_from([b"", b"\0\0\x08\1", b"\x1f\x8b"]))
def test_no_file_causes_an_unexpected_error(tmp_path, content, zipped, prefix):
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(prefix + content) if zipped else prefix + content)
    with contextlib.suppress(DataError):
        read_idx(path)


def test_bytes_after_the_gzip_stream_are_refused(file):
    with pytest.raises(DataError):
        read_idx(file(gzip.compress(encode_idx(ARRAY)) + b"garbage"))


def test_a_lying_header_allocates_nothing(file):
    path = file(gzip.compress(header(2**31) + bytes(100)))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="more than the file can hold"):
            read_idx(path, most_bytes=2**40)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_a_gzip_bomb_is_not_unpacked(file):
    path = file(gzip.compress(header(10) + bytes(50_000_000), 9))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="bytes follow"):
            read_idx(path)
        assert tracemalloc.get_traced_memory()[1] < 2**21
    finally:
        tracemalloc.stop()


def test_the_byte_limit_is_respected(file):
    path = file(encode_idx(ARRAY))
    assert read_idx(path, most_bytes=24).array.shape == (2, 3, 4)
    with pytest.raises(DataError, match="24 bytes of values, and 23 is the limit"):
        read_idx(path, most_bytes=23)


def test_a_nonexistent_file_is_missing(tmp_path):
    with pytest.raises(MissingError, match="no such file"):
        read_idx(tmp_path / "none")


def test_a_folder_is_not_data(tmp_path):
    with pytest.raises(DataError):
        read_idx(tmp_path)


@pytest.mark.parametrize(
    "array", [np.zeros(2, complex), np.zeros(2, np.uint16), np.array(1, np.uint8), np.zeros(0, "u1")]
)
def test_an_array_that_the_format_cannot_represent_is_refused(array):
    with pytest.raises(DataError, match="cannot represent"):
        encode_idx(array)


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


def test_the_bundle_equals_scikit_learns():
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


def test_the_splits_are_fixed():
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


def test_checksums_licence_and_attribution_are_stated():
    data = datasets.digits.load()
    assert data.checksums == {file.name: file.content_sha256 for file in (DIGITS_IMAGES, DIGITS_LABELS)}
    assert data.licence == "CC BY 4.0"
    assert "10.24432/C50P49" in data.source
    assert "Kaynak" in datasets.digits.attribution


@pytest.mark.parametrize("source", [datasets.digits, datasets.synthetic])
def test_a_named_folder_is_refused_as_it_would_be_ignored(source, tmp_path):
    for ask in (source.load, source.fetch, source.checked):
        with pytest.raises(UsageError, match="the folder would be ignored"):
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
    assert "reinstall levelbench" in Digits(tmp_path).lacks()
    with pytest.raises(MissingError):
        Digits(tmp_path).load()


def test_importing_datasets_imports_neither_frameworks_nor_networking():
    program = (
        "import sys, levelbench.training.datasets\n"
        "print(*{'torch', 'scipy', 'sklearn', 'http.client', 'ssl'} & set(sys.modules))"
    )
    environment = {"PYTHONPATH": str(Path(idx.__file__).parents[3])}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""
