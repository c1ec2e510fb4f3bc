from __future__ import annotations

import contextlib
import hashlib
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelbench.errors import DataError
from levelbench.training.datasets.cifar import (
    PIXELS,
    digest_of_rows,
    images_and_labels,
    rows_of_binary,
    rows_of_pickle,
)

PATH = Path("test_batch")
COUNT = 4
PIXEL_ROWS = np.random.default_rng(0).integers(0, 256, (COUNT, PIXELS), dtype=np.uint8)
FINE, COARSE = [0, 9, 99, 50], [0, 19, 5, 5]
BINARY_10 = b"".join(bytes([label]) + row.tobytes() for label, row in zip([0, 9, 3, 3], PIXEL_ROWS, strict=True))
BINARY_100 = b"".join(
    bytes([coarse, fine]) + row.tobytes() for coarse, fine, row in zip(COARSE, FINE, PIXEL_ROWS, strict=True)
)


def python_2(held: dict[str, object]) -> bytes:
    """The pickle that Python 2's cPickle wrote at protocol 2, as the published files are."""

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
        "filenames": [b"a.png"] * COUNT,
    }
    return {**held, **changes}


def test_the_binary_version_is_label_red_green_blue():
    rows = rows_of_binary(BINARY_10, 10, COUNT, PATH)
    images, labels = images_and_labels([rows], 10)
    assert labels.tolist() == [0, 9, 3, 3]
    assert (images.shape, images.dtype, labels.dtype) == ((COUNT, 3, 32, 32), np.uint8, np.int64)
    assert images[2, 1, 5, 7] == PIXEL_ROWS[2, 1024 + 5 * 32 + 7]
    assert digest_of_rows(rows) == hashlib.sha256(BINARY_10).hexdigest()


def test_cifar_100_has_the_fine_label_second():
    images, labels = images_and_labels([rows_of_binary(BINARY_100, 100, COUNT, PATH)], 100)
    assert labels.tolist() == FINE
    np.testing.assert_array_equal(images.reshape(COUNT, -1), PIXEL_ROWS)


def test_the_python_version_gives_the_same_rows_as_the_binary_one():
    assert rows_of_pickle(python_2(of_cifar_10()), 10, COUNT, PATH).tobytes() == BINARY_10
    held = {"data": PIXEL_ROWS, "fine_labels": FINE, "coarse_labels": COARSE}
    assert rows_of_pickle(python_2(held), 100, COUNT, PATH).tobytes() == BINARY_100


def test_a_pickle_that_python_3_saved_again_is_read_too():
    assert rows_of_pickle(pickle.dumps(of_cifar_10(), 4), 10, COUNT, PATH).tobytes() == BINARY_10


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (BINARY_10[:-1], "12,291 bytes, and 4 images are 12,292"),
        (BINARY_10 + b"x", "12,293 bytes"),
        (b"", "0 bytes"),
        (b"\x0a" + BINARY_10[1:], "label 10 among its labels, of 0 to 9"),
    ],
)
def test_a_binary_file_of_another_size_or_with_labels_out_of_range_is_refused(content, found):
    with pytest.raises(DataError, match=found):
        rows_of_binary(content, 10, COUNT, PATH)


@pytest.mark.parametrize(("at", "key"), [(0, "coarse_labels, of 0 to 19"), (1, "fine_labels, of 0 to 99")])
def test_both_labels_of_cifar_100_are_checked(at, key):
    content = bytearray(BINARY_100)
    content[at] = 100
    with pytest.raises(DataError, match=f"label 100 among its {key}"):
        rows_of_binary(bytes(content), 100, COUNT, PATH)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"labels": [0, 9, 3]}, "no 4 labels"),
        ({"labels": [0, 9, 3, 10]}, "not all of 0 to 9"),
        ({"labels": b"0933"}, "no 4 labels"),
        ({"labels": [b"0", b"1", b"2", b"3"]}, "no 4 labels"),
        ({"data": PIXEL_ROWS[:3]}, "no data of shape"),
        ({"data": b"pixels"}, "no data of shape"),
    ],
)
def test_a_pickle_with_other_content_is_refused(changes, found):
    with pytest.raises(DataError, match=found):
        rows_of_pickle(python_2(of_cifar_10(**changes)), 10, COUNT, PATH)


def test_a_pickle_of_something_else_is_refused():
    with pytest.raises(DataError, match="no dictionary"):
        rows_of_pickle(pickle.dumps([1, 2], 2), 10, COUNT, PATH)


@settings(max_examples=60, deadline=None)
@given(content=st.binary(max_size=80), count=st.integers(0, 1), classes=st.sampled_from([10, 100]))
def test_no_bytes_cause_another_error(content, count, classes):
    for read in (rows_of_binary, rows_of_pickle):
        with contextlib.suppress(DataError):
            read(content, classes, count, PATH)


def test_a_key_that_is_no_unicode_is_another_key():
    content = pickle.dumps({"\ud800": 1}, 4)
    with pytest.raises(DataError, match="no data of shape"):
        rows_of_pickle(content, 10, COUNT, PATH)
