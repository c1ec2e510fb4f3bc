from __future__ import annotations

import gzip
import io
import tarfile

import pytest

from levelbench.errors import DataError
from levelbench.training.datasets.images import index_shards


@pytest.fixture
def shard(tmp_path):
    def write(name, *files):
        with tarfile.open(tmp_path / name, "w") as tar:
            for member, content in files:
                info = tarfile.TarInfo(member)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        return tmp_path / name

    return write


FIRST = (("a.jpg", b"one"), ("a.cls", b"3"), ("b.c.json", b"{}"), ("b.cls", b"0\n"), ("b.png", b"two"))


def test_members_with_one_stem_are_an_example_and_images_are_read_at_random(shard):
    paths = [shard("0.tar", *FIRST), shard("1.tar", ("x/a.cls", b"12"), ("x/a.jpeg", b"three"))]
    index = index_shards(paths)
    assert list(index.keys) == ["a", "b", "x/a"]
    assert index.labels.tolist() == [3, 0, 12]
    assert [index.read(at, 100) for at in (2, 0, 1)] == [b"three", b"one", b"two"]
    assert index.read(2, 2) == b"thr"
    assert index.name(2) == f"{paths[1]}:x/a"


def test_the_digest_is_of_keys_and_sizes_and_not_of_where_they_are(shard):
    together = index_shards([shard("0.tar", *FIRST)])
    apart = index_shards([shard("1.tar", *FIRST[:2]), shard("2.tar", *FIRST[2:])])
    assert together.digest() == apart.digest()
    assert together.digest() != index_shards([shard("3.tar", ("a.jpg", b"other"), *FIRST[1:])]).digest()


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ((("a.jpg", b"x"),), "an image and a .cls are needed"),
        ((("a.cls", b"1"),), "an image and a .cls are needed"),
        ((("a.jpg", b"x"), ("a.png", b"x"), ("a.cls", b"1")), "second image"),
        ((("a.jpg", b"x"), ("a.cls", b"one")), "no number"),
        ((("a.jpg", b"x"), ("a.cls", b"-1")), "no number"),
        ((("a.jpg", b"x"), ("a.cls", b"")), "no number"),
        ((("a.jpg", b"x"), ("a.cls", b"1" * 21)), "a class of 21 bytes"),
        ((("../a.jpg", b"x"), ("../a.cls", b"1")), "may lead out of its folder"),
    ],
)
def test_a_shard_with_other_content_is_refused(shard, files, found):
    with pytest.raises(DataError, match=found):
        index_shards([shard("0.tar", *files)])


def test_a_key_that_comes_again_in_another_shard_is_refused(shard):
    with pytest.raises(DataError, match="'a' comes a second time"):
        index_shards([shard("0.tar", *FIRST), shard("1.tar", *FIRST[:2])])


@pytest.mark.parametrize("keep", [100, 512, 1000, 1024, 2600])
def test_a_truncated_shard_is_refused(shard, keep):
    path = shard("0.tar", *FIRST)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match="truncated"):
        index_shards([path])


def test_a_compressed_shard_is_refused(shard):
    path = shard("0.tar", *FIRST)
    path.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(DataError, match="compressed"):
        index_shards([path])


def test_a_member_that_is_called_image_is_none(shard):
    with pytest.raises(DataError, match=r"has \.cls, \.image, and an image and a \.cls are needed"):
        index_shards([shard("0.tar", ("a.image", b"x"), ("a.cls", b"1"))])
    assert len(index_shards([shard("1.tar", ("a.image", b"x"), ("a.jpg", b"x"), ("a.cls", b"1"))])) == 1
