from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from levelbench.errors import DataError, MissingError
from levelbench.training.datasets.reading import map_npy

ARRAY = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def npy(array, **how):
    stored = io.BytesIO()
    np.save(stored, array, **how)
    return stored.getvalue()


@pytest.fixture
def file(tmp_path):
    def write(content):
        path = tmp_path / "rows.npy"
        path.write_bytes(content)
        return path

    return write


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    array=st_numpy.arrays(
        st.sampled_from(["u1", "<i4", ">i8", "<f4", ">f8", "?"]), st_numpy.array_shapes(max_dims=4, max_side=4)
    ),
    fortran=st.booleans(),
)
def test_saved_numpy_arrays_are_mapped(file, array, fortran):
    stored = np.asfortranarray(array) if fortran else array
    np.testing.assert_array_equal(map_npy(file(npy(stored))), array)


def test_values_stay_on_disk_and_are_read_only(file):
    found = map_npy(file(npy(ARRAY)))
    assert isinstance(found, np.memmap)
    assert not found.flags.writeable


def test_objects_are_never_read(file):
    with pytest.raises(DataError, match="objects are never loaded"):
        map_npy(file(npy(np.array([{"a": 1}], object), allow_pickle=True)))


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lambda content: b"", "does not start"),
        (lambda content: b"PK\3\4" + content, "does not start"),
        (lambda content: content[:-1], "96 bytes|bytes with the header"),
        (lambda content: content + b"x", "bytes with the header"),
        (lambda content: content.replace(b"(2, 3, 4)", b"(9, 3, 4)"), "bytes with the header"),
        (lambda content: content.replace(b"(2, 3, 4)", b"(2, 3,-4)"), "its header is not"),
        (lambda content: content.replace(b"'<f4'", b"'|f4'"), "bytes with the header|plain number"),
        (lambda content: content.replace(b"False", b"f(1) "), "its header is not"),
        (lambda content: content[:8] + b"\xff\xff" + content[10:], "its header is not"),
        (lambda content: content[:6] + b"\2\0" + b"\xff\xff\xff\xff" + content[12:], "claims a header"),
        (lambda content: content[:6] + b"\4\0" + content[8:], "does not start"),
    ],
)
def test_a_damaged_file_is_described(file, damage, found):
    content = damage(npy(ARRAY))
    if b"'|f4'" in content:
        np.testing.assert_array_equal(map_npy(file(content)), ARRAY)
        return
    with pytest.raises(DataError, match=found):
        map_npy(file(content))


def test_an_absurd_shape_allocates_nothing(file):
    with pytest.raises(DataError, match="bytes with the header"):
        map_npy(file(npy(ARRAY).replace(b"(2, 3, 4), }         ", b"(999999999999999,), }")))


def test_a_nonexistent_file_is_missing(tmp_path):
    with pytest.raises(MissingError):
        map_npy(tmp_path / "none")


def test_a_folder_is_not_data(tmp_path):
    with pytest.raises(DataError):
        map_npy(tmp_path)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(place=st.integers(0, 10**6), value=st.integers(0, 255), junk=st.binary(max_size=40))
def test_no_file_causes_an_unexpected_error(file, place, value, junk):
    stored = bytearray(npy(ARRAY))
    stored[place % len(stored)] = value
    for content in (bytes(stored), junk, b"\x93NUMPY\1\0" + junk):
        with contextlib.suppress(DataError):
            map_npy(file(content))
