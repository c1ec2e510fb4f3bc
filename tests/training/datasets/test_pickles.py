from __future__ import annotations

import contextlib
import os
import pickle
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelbench.errors import DataError
from levelbench.training.datasets import pickles
from levelbench.training.datasets.pickles import read_pickle

PATH = Path("data_batch_1")


class Runs:
    """Its pickle would call ``function`` when read."""

    def __init__(self, function, *given):
        self.function, self.given = function, given

    def __reduce__(self):
        return self.function, self.given


def read(content):
    return read_pickle(content, PATH)


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("array", [np.arange(12, dtype=np.uint8).reshape(3, 4), np.array([[1.5, -2.0]], ">f8")])
def test_plain_data_and_arrays_are_read(protocol, array):
    held = {"data": array, "labels": [3, 300, 70_000, -1], b"name": b"train", "share": 0.5, "none": None, "big": 2**70}
    found = read(pickle.dumps(held, protocol))
    np.testing.assert_array_equal(found.pop("data"), array)
    held.pop("data")
    assert found == held


def test_an_array_by_itself_and_in_fortran_order_is_read():
    array = np.asfortranarray(np.arange(6, dtype=np.int32).reshape(2, 3))
    np.testing.assert_array_equal(read(pickle.dumps(array, 4)), array)


@pytest.mark.parametrize("function", [os.system, eval, exec, print, open, getattr])
@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_a_pickle_with_code_in_it_is_refused_and_nothing_runs(tmp_path, capfd, function, protocol):
    marker = tmp_path / "ran"
    with pytest.raises(DataError, match="it would execute something") as caught:
        read(pickle.dumps({"data": Runs(function, f"touch {marker}")}, protocol))
    assert "Nothing was executed" in str(caught.value)
    assert not marker.exists()
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    "names",
    [b"numpy\nload\n", b"numpy.core.multiarray\nscalar\n", b"numpy\nndarray.tofile\n", b"builtins\neval\n"],
)
def test_only_names_that_build_an_array_are_allowed(names):
    with pytest.raises(DataError, match="would execute"):
        read(b"\x80\x02c" + names + b")R.")


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "damaged"),
        (b"\x80\x02", "damaged"),
        (b"\x80\x02.", "damaged"),
        (b"\x80\x02T\xff\xff\xff\x7fabc.", "expected 2147483647 bytes"),
        (b"\x80\x04\x8e" + b"\xff" * 8 + b".", "expected 18446744073709551615 bytes|damaged"),
        (b"\x80\x02h\x07.", "damaged"),
        (b"\x80\x02q\x00.", "damaged"),
        (b"\x80\x02t.", "damaged"),
        (b"\x80\x02}K\x01a.", "damaged"),
        (b"\x80\x02](K\x01K\x02u.", "damaged"),
        (b"\x80\x02}(K\x01u.", "damaged"),
        (b"\x80\x02}]K\x01s.", "damaged"),
        (b"\x80\x02K\x01)R.", "damaged"),
        (b"\x80\x02K\x01)b.", "damaged"),
        (b"\x80\x02cnumpy\nndarray\n)b.", "sets the state of something that is not an array"),
        (b"\x80\x02cnumpy\nndarray\n)R.", "does not build an array"),
        (b"\x80\x02Nr\xff\xff\xff\x7f.", "stores something at index 2,147,483,647"),
        (b"\x80\x02I1\n.", "operation INT"),
        (b"\x80\x02X\x01\x00\x00\x00\xff.", "damaged"),
        (b"\x80\x02cnumpy\n" + b"x" * 300, "damaged"),
        (b"\x80\x02cnumpy\nndarray\n.", "neither an array nor plain data"),
    ],
)
def test_damage_is_described(content, found):
    with pytest.raises(DataError, match=found):
        read(content)


def array_pickle(shape: bytes, dtype: bytes, content: bytes) -> bytes:
    """NumPy's array in protocol 2, with any claims."""
    name = b"U" + bytes([len(dtype)]) + dtype
    described = b"cnumpy\ndtype\n" + name + b"K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    built = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    return (
        b"\x80\x02"
        + built
        + b"(K\x01"
        + shape
        + described
        + b"\x89T"
        + struct.pack("<I", len(content))
        + content
        + b"tb."
    )


def test_an_array_of_protocol_2_is_read():
    found = read(array_pickle(b"K\x02K\x03\x86", b"u1", bytes(range(6))))
    assert found.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("shape", "dtype", "found"),
    [
        (b"K\x02K\x04\x86", b"u1", "with 6 bytes of values"),
        (b"J\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x86", b"u1", "with 6 bytes"),
        (b"J\xff\xff\xff\xffK\x06\x86", b"u1", "impossible shape"),
        (b"K\x06", b"u1", "impossible shape"),
        (b"K\x06\x85", b"O8", "not a plain number"),
        (b"K\x06\x85", b"V1", "not a plain number"),
        (b"K\x06\x85", b"b8", "not a plain number"),
    ],
)
def test_an_array_that_claims_too_much_or_holds_objects_is_refused(shape, dtype, found):
    with pytest.raises(DataError, match=found):
        read(array_pickle(shape, dtype, bytes(6)))


def test_nested_recalls_cost_neither_time_nor_memory():
    """Each level holds the one below it ten times: 10^50 leaves to walk."""
    content = b"\x80\x02]q\x00" + b"".join(b"](" + b"h\x00" * 10 + b"eq\x00" for _ in range(50))
    tracemalloc.start()
    try:
        assert len(read(content + b".")) == 10
        with pytest.raises(DataError, match="it recalls a tuple"):
            read(content.replace(b"]", b"(").replace(b"e", b"t") + b"}" + b"h\x00K\x01s.")
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_a_text_that_is_copied_repeatedly_is_refused():
    text = "a" * 100_000
    start = b"\x80\x02X" + struct.pack("<I", len(text)) + text.encode() + b"q\x00"
    again = b"c_codecs\nencode\nh\x00X\x06\x00\x00\x00latin1\x86R"
    with pytest.raises(DataError, match="builds more bytes than it holds"):
        read(start + again * 50 + b".")


def test_a_pickle_without_an_end_of_operations_is_refused(monkeypatch):
    monkeypatch.setattr(pickles, "_MOST_OPERATIONS", 1000)
    with pytest.raises(DataError, match="more than 1,000 operations"):
        read(b"\x80\x02" + b"N" * 1001 + b".")


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_no_bytes_cause_an_unexpected_error(content):
    with contextlib.suppress(DataError):
        read(b"\x80\x02" + content + b".")


@settings(max_examples=100, deadline=None)
@given(place=st.integers(0, 10**6), value=st.integers(0, 255))
def test_no_changed_byte_causes_an_unexpected_error(place, value):
    held = {b"data": np.arange(12, dtype=np.uint8).reshape(3, 4), b"labels": [1, 2, 3], "text": ("ä", 1.5, True)}
    content = bytearray(pickle.dumps(held, 2 + place % 3))
    content[place % len(content)] = value
    with contextlib.suppress(DataError):
        read(bytes(content))


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=50, deadline=None)
@given(value=PLAIN, protocol=st.integers(2, 4))
def test_plain_data_comes_back(value, protocol):
    assert read(pickle.dumps(value, protocol)) == value


def test_a_huge_shape_with_a_zero_is_refused():
    huge = b"\x8a\x05" + (2**32 - 1).to_bytes(5, "little")
    with pytest.raises(DataError, match="with 0 bytes of values"):
        read(array_pickle(huge + huge + b"K\x00\x87", b"u1", b""))


def test_as_many_operations_as_the_largest_published_file_has_are_read():
    names = [f"{number:06d}.png".encode() for number in range(50_000)]
    held = {b"filenames": names, b"fine_labels": [99] * 50_000, b"coarse_labels": [19] * 50_000}
    assert read(pickle.dumps(held, 4)) == held
