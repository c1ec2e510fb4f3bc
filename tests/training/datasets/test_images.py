"""Images in class folders and tar shards."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import struct
import tarfile
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from levelbench.errors import DataError, MissingError, UsageError
from levelbench.training.datasets.images import ImageColumn, View, index_folder, index_shards
from levelbench.training.pixels import random


@pytest.fixture
def put(tmp_path):
    def files(*names):
        for name in names:
            path = tmp_path / "images" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(name.encode())
        return tmp_path / "images"

    return files


def test_classes_are_folders_and_everything_is_sorted_by_name(put):
    index = index_folder(put("dog/b.jpg", "dog/a.JPEG", "cat/z.png", "cat/below/y.jpg"))
    assert index.classes == ("cat", "dog")
    assert index.names == ["cat/below/y.jpg", "cat/z.png", "dog/a.JPEG", "dog/b.jpg"]
    assert index.labels.tolist() == [0, 0, 1, 1]
    assert index.read(1, 100) == b"cat/z.png"
    assert len(index.read(1, 3)) == 4


def test_other_files_and_hidden_ones_are_left_out(put):
    index = index_folder(put("a/x.jpg", "a/notes.txt", "a/.hidden.jpg", ".git/x.jpg", "readme.md"))
    assert index.names == ["a/x.jpg"]


def test_the_digest_is_of_names_and_sizes(put, tmp_path):
    before = index_folder(put("a/x.jpg", "b/y.jpg")).digest()
    assert index_folder(put("a/x.jpg")).digest() == before
    (tmp_path / "images" / "a" / "x.jpg").write_bytes(b"longer than before")
    assert index_folder(tmp_path / "images").digest() != before


@pytest.mark.parametrize(
    ("names", "found"),
    [(["x.jpg"], "has no class folders"), (["a/x.jpg", "b/notes.txt"], "its class 'b' has no image")],
)
def test_a_folder_without_classes_or_with_an_empty_one_is_refused(put, names, found):
    with pytest.raises(DataError, match=found):
        index_folder(put(*names))


def test_a_nonexistent_folder_is_missing(tmp_path):
    with pytest.raises(MissingError):
        index_folder(tmp_path / "none")


def test_pipes_and_circular_links_do_not_hang(put):
    root = put("a/x.jpg")
    os.mkfifo(root / "a" / "pipe.jpg")
    (root / "a" / "up").symlink_to(root)
    assert index_folder(root).names == ["a/x.jpg"]


def test_a_set_of_links_is_read(put, tmp_path):
    whole = put("a/x.jpg", "b/y.jpg")
    part = tmp_path / "part"
    (part / "b").mkdir(parents=True)
    (part / "a").symlink_to(whole / "a")
    (part / "b" / "z.jpg").symlink_to(whole / "b" / "y.jpg")
    index = index_folder(part)
    assert index.names == ["a/x.jpg", "b/z.jpg"]
    assert index.read(1, 100) == b"b/y.jpg"


Image = pytest.importorskip("PIL.Image")
SEEDS = np.arange(1, 9, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)


class Encoded:
    """Image files in memory."""

    def __init__(self, *files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def name(self, index):
        return f"image {index}"

    def read(self, index, most_bytes):
        return self.files[index][: most_bytes + 1]


def rows(*files, view=None, threads=1, seeds=None):
    column = ImageColumn(Encoded(*files), view, threads)
    return column.take(np.arange(len(files)), seeds)


def test_a_png_comes_back_as_its_pixels_channels_first(encode, noise):
    pixels = noise(5, 7)
    column = ImageColumn(Encoded(encode(pixels), encode(noise(5, 7, 1))))
    assert (column.shape, column.dtype, len(column)) == ((2, 3, 5, 7), np.uint8, 2)
    np.testing.assert_array_equal(column.take(np.array([1, 0, 0]), None)[2], pixels.transpose(2, 0, 1))


def test_grey_and_palette_images_get_three_channels_and_an_alpha_channel_is_dropped(encode, noise):
    grey = noise(4, 4)[:, :, 0]
    alpha = np.dstack([noise(4, 4), np.arange(16, dtype=np.uint8).reshape(4, 4)])
    found = rows(encode(grey), encode(grey, mode="P"), encode(alpha))
    np.testing.assert_array_equal(found[0], [grey] * 3)
    np.testing.assert_array_equal(found[1], [grey] * 3)
    np.testing.assert_array_equal(found[2], alpha[:, :, :3].transpose(2, 0, 1))


def test_a_palette_with_transparency_is_read_without_it(encode, noise):
    grey = noise(4, 4)[:, :, 0]
    np.testing.assert_array_equal(rows(encode(grey, mode="P", transparency=bytes(range(9))))[0], [grey] * 3)


def test_a_jpeg_of_cmyk_is_read_as_rgb(encode, noise):
    assert rows(encode(np.full((8, 8, 3), 200, np.uint8), "JPEG", mode="CMYK")).shape == (1, 3, 8, 8)


def test_exif_rotation_is_obeyed_unless_the_view_says_otherwise(encode):
    exif = Image.Exif()
    exif[0x0112] = 6
    file = encode(np.arange(6, dtype=np.uint8).reshape(2, 3).repeat(3).reshape(2, 3, 3), exif=exif)
    assert rows(file).shape == (1, 3, 3, 2)
    upright, lying = (rows(file, view=View(2, upright=upright))[0, 0] for upright in (True, False))
    assert not np.array_equal(upright, lying)


def test_images_of_mixed_sizes_need_a_view(encode, noise):
    files = [encode(noise(5, 7)), encode(noise(6, 7))]
    with pytest.raises(DataError, match=r"image 1: it is 7x6, and 7x5 is expected\. Give a view"):
        rows(*files)
    assert rows(*files, view=View(4)).shape == (2, 3, 4, 4)


def test_evaluation_sees_the_middle_of_the_scaled_image(encode, noise):
    pixels = noise(20, 40)
    scaled = Image.fromarray(pixels).resize((32, 16), Image.Resampling.BILINEAR).crop((12, 4, 20, 12))
    found = rows(encode(pixels), view=View(8, shorter=16))[0]
    np.testing.assert_allclose(found, np.asarray(scaled, np.float64).transpose(2, 0, 1), atol=1)


def test_training_sees_a_random_part_scaled(encode, noise):
    pixels = noise(20, 30)
    view = View(8, scale=(0.3, 0.9))
    draws = [float(random(SEEDS[:1], salt)[0]) for salt in range(0xC0B0, 0xC0B0 + 22)]
    piece = Image.fromarray(pixels).crop(view.drawn(30, 20, draws)).resize((8, 8), Image.Resampling.BILINEAR)
    found = rows(encode(pixels), view=view, seeds=SEEDS[:1])[0]
    np.testing.assert_array_equal(found, np.asarray(piece).transpose(2, 0, 1))


@pytest.mark.parametrize("threads", [2, 5])
def test_rows_depend_on_the_example_s_seed_and_not_on_threads_or_batches(encode, noise, threads):
    files = [encode(noise(20, 30, seed)) for seed in range(8)] * 1
    view = View(8, scale=(0.2, 1.0))
    together = rows(*files, view=view, seeds=SEEDS, threads=threads)
    column = ImageColumn(Encoded(*files), view)
    for at in range(8):
        np.testing.assert_array_equal(column.take(np.array([at]), SEEDS[at : at + 1])[0], together[at])
    assert not np.array_equal(together, rows(*files, view=view, seeds=SEEDS[::-1].copy()))


@settings(max_examples=60, deadline=None)
@given(
    width=st.integers(1, 500),
    height=st.integers(1, 500),
    draws=st.lists(st.floats(0, 1, exclude_max=True), min_size=22, max_size=22),
)
def test_a_part_is_inside_the_image(width, height, draws):
    left, top, right, bottom = View(8, scale=(0.08, 1.0)).drawn(width, height, draws)
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height


def test_parts_have_the_requested_shares_and_ratios():
    generator = np.random.default_rng(0)
    view = View(8, scale=(0.25, 0.5))
    boxes = np.array([view.drawn(1000, 1000, generator.random(22).tolist()) for _ in range(2000)])
    across, down = (boxes[:, 2] - boxes[:, 0]) / 1000, (boxes[:, 3] - boxes[:, 1]) / 1000
    assert 0.25 - 2e-3 < (across * down).min() < 0.26
    assert 0.49 < (across * down).max() < 0.5 + 2e-3
    # Uniform, so the mean of 2,000 is within 5 standard errors (0.25 / sqrt(12 * 2000)) of the middle.
    assert abs((across * down).mean() - 0.375) < 5 * 0.25 / np.sqrt(12 * 2000)
    assert abs(np.log(across / down).mean()) < 5 * np.log(16 / 9) / np.sqrt(12 * 2000)


def bomb(width, height):
    """A PNG header that claims this many pixels."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("side", [9_000, 12_000, 60_000, 2**31 - 1])
def test_an_image_that_claims_too_many_pixels_is_not_decoded(side):
    with pytest.raises(DataError, match=r"pixels|damaged"):
        rows(bomb(side, side), view=View(4))


@pytest.mark.parametrize("form", ["JPEG", "PNG"])
@pytest.mark.parametrize("keep", [0, 10, 60, -30])
def test_a_truncated_image_is_refused_and_named(encode, noise, form, keep):
    with pytest.raises(DataError, match="image 0: it is damaged"):
        rows(encode(noise(16, 16), form)[:keep], view=View(4))


def test_another_format_is_refused(encode, noise):
    with pytest.raises(DataError, match="not a JPEG or PNG"):
        rows(encode(noise(4, 4), "BMP"))


def test_values_of_16_bits_are_refused(encode):
    with pytest.raises(DataError, match="more than 8 bits"):
        rows(encode(np.zeros((4, 4), np.uint16)))


def test_an_error_in_a_thread_reaches_the_caller(encode, noise):
    files = [encode(noise(4, 4))] * 20
    files[13] = b"broken"
    with pytest.raises(DataError, match="image 13"):
        rows(*files, threads=3)


@pytest.mark.parametrize(
    "wrong", [{"size": 0}, {"size": 8, "shorter": 7}, {"size": 8, "scale": (0, 1)}, {"size": 8, "scale": (0.5, 2)}]
)
def test_an_impossible_view_is_refused(wrong):
    with pytest.raises(UsageError):
        View(**wrong)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(place=st.integers(0, 10**6), value=st.integers(0, 255), form=st.sampled_from(["JPEG", "PNG"]))
@pytest.mark.filterwarnings("ignore")
def test_no_changed_byte_causes_an_unexpected_error(encode, noise, place, value, form):
    stored = bytearray(encode(noise(8, 8), form))
    stored[place % len(stored)] = value
    with contextlib.suppress(DataError):
        rows(bytes(stored), view=View(4))


def png_of_16_bits(pixels):
    """An RGB PNG of 16 bits per channel, as in W3C's specification."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    height, width, _ = pixels.shape
    lines = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def test_16_bit_colours_are_not_truncated_to_8(noise):
    deep = noise(4, 4).astype(np.uint16) * 257
    with pytest.raises(DataError, match="more than 8 bits"):
        rows(png_of_16_bits(deep))


def test_messages_do_not_contain_memory_addresses():
    with pytest.raises(DataError, match="not a JPEG or PNG") as caught:
        rows(b"no image at all")
    assert "0x" not in str(caught.value)


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


def test_the_digest_covers_keys_and_sizes_not_locations(shard):
    together = index_shards([shard("0.tar", *FIRST)])
    apart = index_shards([shard("1.tar", *FIRST[:2]), shard("2.tar", *FIRST[2:])])
    assert together.digest() == apart.digest()
    assert together.digest() != index_shards([shard("3.tar", ("a.jpg", b"other"), *FIRST[1:])]).digest()


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ((("a.jpg", b"x"),), "needs an image and a .cls"),
        ((("a.cls", b"1"),), "needs an image and a .cls"),
        ((("a.jpg", b"x"), ("a.png", b"x"), ("a.cls", b"1")), "second image"),
        ((("a.jpg", b"x"), ("a.cls", b"one")), "not a number"),
        ((("a.jpg", b"x"), ("a.cls", b"-1")), "not a number"),
        ((("a.jpg", b"x"), ("a.cls", b"")), "not a number"),
        ((("a.jpg", b"x"), ("a.cls", b"1" * 21)), "a class of 21 bytes"),
        ((("../a.jpg", b"x"), ("../a.cls", b"1")), "may lead out of its folder"),
    ],
)
def test_a_shard_with_other_content_is_refused(shard, files, found):
    with pytest.raises(DataError, match=found):
        index_shards([shard("0.tar", *files)])


def test_a_key_repeated_in_another_shard_is_refused(shard):
    with pytest.raises(DataError, match="'a' occurs twice"):
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


def test_a_member_called_image_is_not_an_image(shard):
    with pytest.raises(DataError, match=r"has \.cls, \.image, and needs an image and a \.cls"):
        index_shards([shard("0.tar", ("a.image", b"x"), ("a.cls", b"1"))])
    assert len(index_shards([shard("1.tar", ("a.image", b"x"), ("a.jpg", b"x"), ("a.cls", b"1"))])) == 1
