from __future__ import annotations

import os

import pytest

from levelbench.errors import DataError, MissingError
from levelbench.training.datasets.images import index_folder


@pytest.fixture
def put(tmp_path):
    def files(*names):
        for name in names:
            path = tmp_path / "images" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(name.encode())
        return tmp_path / "images"

    return files


def test_a_class_is_a_folder_and_both_come_in_the_order_of_their_names(put):
    index = index_folder(put("dog/b.jpg", "dog/a.JPEG", "cat/z.png", "cat/below/y.jpg"))
    assert index.classes == ("cat", "dog")
    assert index.names == ["cat/below/y.jpg", "cat/z.png", "dog/a.JPEG", "dog/b.jpg"]
    assert index.labels.tolist() == [0, 0, 1, 1]
    assert index.read(1, 100) == b"cat/z.png"
    assert len(index.read(1, 3)) == 4


def test_other_files_are_counted_and_hidden_ones_are_not_looked_at(put):
    index = index_folder(put("a/x.jpg", "a/notes.txt", "a/.hidden.jpg", ".git/x.jpg", "readme.md"))
    assert (index.names, index.others) == (["a/x.jpg"], 1)


def test_the_digest_is_of_names_and_sizes(put, tmp_path):
    before = index_folder(put("a/x.jpg", "b/y.jpg")).digest()
    assert index_folder(put("a/x.jpg")).digest() == before
    (tmp_path / "images" / "a" / "x.jpg").write_bytes(b"longer than before")
    assert index_folder(tmp_path / "images").digest() != before


@pytest.mark.parametrize(
    ("names", "found"),
    [(["x.jpg"], "each class is one"), (["a/x.jpg", "b/notes.txt"], "its class 'b' has no image")],
)
def test_a_folder_without_classes_or_with_an_empty_one_is_refused(put, names, found):
    with pytest.raises(DataError, match=found):
        index_folder(put(*names))


def test_a_folder_that_is_not_there_is_missing(tmp_path):
    with pytest.raises(MissingError):
        index_folder(tmp_path / "none")


def test_a_pipe_or_a_link_back_up_hangs_nobody(put):
    root = put("a/x.jpg")
    os.mkfifo(root / "a" / "pipe.jpg")
    (root / "a" / "up").symlink_to(root)
    assert index_folder(root).names == ["a/x.jpg"]


def test_a_set_that_is_made_of_links_is_read(put, tmp_path):
    whole = put("a/x.jpg", "b/y.jpg")
    part = tmp_path / "part"
    (part / "b").mkdir(parents=True)
    (part / "a").symlink_to(whole / "a")
    (part / "b" / "z.jpg").symlink_to(whole / "b" / "y.jpg")
    index = index_folder(part)
    assert index.names == ["a/x.jpg", "b/z.jpg"]
    assert index.read(1, 100) == b"b/y.jpg"
