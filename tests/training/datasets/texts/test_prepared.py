import zipfile

import numpy as np
import pytest

from levelbench.training.datasets.text import prepared


def made():
    return {"a": np.arange(6).reshape(2, 3), "b": np.array([], np.uint8)}


def kept(folder):
    """A file of ``made()`` under the key "k"."""
    path = folder / "kept.npz"
    prepared(path, "k", made)
    return path


def fail():
    raise AssertionError("made anew")


def same(arrays):
    return arrays.keys() == made().keys() and all(np.array_equal(arrays[each], made()[each]) for each in arrays)


def test_what_was_kept_is_not_made_again(tmp_path):
    assert same(prepared(kept(tmp_path), "k", fail))


def test_another_key_is_made_anew(tmp_path):
    with pytest.raises(AssertionError, match="made anew"):
        prepared(kept(tmp_path), "other", fail)


def test_anew_looks_at_no_file(tmp_path):
    with pytest.raises(AssertionError, match="made anew"):
        prepared(kept(tmp_path), "k", fail, anew=True)


def without(path, name):
    with np.load(path) as file:
        arrays = {each: file[each] for each in file.files if each != name}
    np.savez(path, **arrays)


@pytest.mark.parametrize("name", ["a", "b", "sha256", "made-of"])
def test_a_file_that_lacks_an_array_is_made_anew(tmp_path, name):
    path = kept(tmp_path)
    without(path, name)
    assert same(prepared(path, "k", made))
    assert same(prepared(path, "k", fail))


def patched(path, at, value):
    """Another value in the local and the central header of each member."""
    content = bytearray(path.read_bytes())
    for mark, further in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
        place = content.find(mark)
        while place >= 0:
            content[place + at + further] = value
            place = content.find(mark, place + 4)
    path.write_bytes(content)


@pytest.mark.parametrize(("at", "value"), [(6, 1), (8, 99)], ids=["encrypted", "unknown compression"])
def test_members_that_cannot_be_read_are_made_anew(tmp_path, at, value):
    path = kept(tmp_path)
    patched(path, at, value)
    assert same(prepared(path, "k", made))


@pytest.mark.parametrize("content", [b"", b"PK", b"no zip"])
def test_what_is_no_archive_is_made_anew(tmp_path, content):
    path = tmp_path / "kept.npz"
    path.write_bytes(content)
    assert same(prepared(path, "k", made))


@pytest.mark.parametrize(
    "shape",
    [b"(2, 3333333333333)", b"(2, 33333333333),}", b"(-1, 3),}         ", b"(2, 1),}          ", b"[2, 3],}          "],
)
def test_a_header_that_is_wrong_is_made_anew(tmp_path, shape):
    path = kept(tmp_path)
    with zipfile.ZipFile(path) as file:
        members = {each: file.read(each) for each in file.namelist()}
    members["a.npy"] = members["a.npy"].replace(b"(2, 3), }         ", shape)
    assert shape in members["a.npy"]
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    assert same(prepared(path, "k", made))
