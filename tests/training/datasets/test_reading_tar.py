from __future__ import annotations

import contextlib
import gzip
import io
import tarfile
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from levelbench.errors import DataError, MissingError
from levelbench.training.datasets.reading import members, unpacked


def archive(*files, form=tarfile.GNU_FORMAT, **special):
    """A tar of ``files``, (name, content) each; ``special`` are attributes of one more member, added last."""
    stored = io.BytesIO()
    with tarfile.open(fileobj=stored, mode="w", format=form) as tar:
        for name, content in files:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        if special:
            info = tarfile.TarInfo("special")
            for key, value in special.items():
                setattr(info, key, value)
            tar.addfile(info)
    return stored.getvalue()


def contents(path, most_bytes=1 << 24):
    with unpacked(path, "a tar archive", most_bytes) as stream:
        return {member.name: stream.exactly(member.size, "it") for member in members(stream)}


@pytest.fixture
def file(tmp_path):
    def write(content):
        path = tmp_path / "some.tar"
        path.write_bytes(content)
        return path

    return write


LONG = "folder/" * 20 + "ä" * 60 + ".jpg"


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gz"])
def test_every_form_of_tar_is_read_plain_or_gzipped(file, form, pack):
    files = {"a.jpg": b"abc", "sub/b.cls": b"", "c": bytes(1024), "./d": b"x" * 513}
    if form != tarfile.USTAR_FORMAT:
        files[LONG] = b"long"
    found = contents(file(pack(archive(*files.items(), form=form))))
    assert found == {name.removeprefix("./"): content for name, content in files.items()}


def test_a_member_that_is_not_read_is_skipped_and_its_offset_is_known(file):
    path = file(archive(("a", b"x" * 700), ("b", b"wanted")))
    with unpacked(path, "tar", 1 << 20) as stream:
        found = {member.name: member for member in members(stream)}
    with path.open("rb") as plain:
        plain.seek(found["b"].offset)
        assert plain.read(found["b"].size) == b"wanted"


def test_folders_are_skipped(file):
    assert contents(file(archive(("a/x", b"1"), type=tarfile.DIRTYPE, name="folder"))) == {"a/x": b"1"}


@pytest.mark.parametrize(
    "name", ["../a", "/etc/passwd", "a/../../b", "..", "a\\b", "a\nb", "./../x", "folder/..", "\x1b[2Ja"]
)
def test_a_name_that_may_lead_out_of_its_folder_is_refused(file, name):
    with pytest.raises(DataError, match="may lead out of its folder"):
        contents(file(archive((name, b"x"))))


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (tarfile.SYMTYPE, "a symbolic link"),
        (tarfile.LNKTYPE, "a hard link"),
        (tarfile.CHRTYPE, "a character device"),
        (tarfile.BLKTYPE, "a block device"),
        (tarfile.FIFOTYPE, "a pipe"),
        (tarfile.GNUTYPE_SPARSE, "a sparse file"),
        (b"Z", "unknown kind"),
    ],
)
def test_links_devices_and_unknown_kinds_are_refused(file, kind, found):
    with pytest.raises(DataError, match=found):
        contents(file(archive(("a", b"x"), type=kind, linkname="/etc/passwd")))


WHOLE = archive(("a", b"x" * 700), ("b", b"y" * 10))


@pytest.mark.parametrize("keep", [0, 100, 512, 900, 1024, 1536, 2048, 2100, 2560])
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gz"])
def test_a_truncated_archive_is_refused_wherever_it_is_cut(file, keep, pack):
    with pytest.raises(DataError, match="truncated"):
        contents(file(pack(WHOLE[:keep])))


def test_a_truncated_gzip_stream_is_refused(file):
    with pytest.raises(DataError, match="cannot be read to its end"):
        contents(file(gzip.compress(WHOLE)[:-20]))


def test_a_header_with_a_flipped_bit_is_refused(file):
    damaged = bytearray(WHOLE)
    damaged[0] ^= 1
    with pytest.raises(DataError, match="checksum"):
        contents(file(bytes(damaged)))


def test_a_bomb_is_not_unpacked(file):
    path = file(gzip.compress(archive(("a", bytes(30_000_000))), 1))
    tracemalloc.start()
    try:
        with (
            pytest.raises(DataError, match="unpacks to more than the 4,000,000 bytes"),
            unpacked(path, "tar", 4_000_000) as it,
        ):
            list(members(it))
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()


def test_a_header_that_claims_a_huge_description_allocates_nothing(file):
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1 << 40
    with pytest.raises(DataError, match="is the limit"):
        contents(file(info.tobuf(tarfile.GNU_FORMAT) + bytes(4096)))


def test_a_name_that_is_not_utf_8_is_refused(file):
    stored = io.BytesIO()
    with tarfile.open(fileobj=stored, mode="w", format=tarfile.GNU_FORMAT, encoding="latin-1") as tar:
        tar.addfile(tarfile.TarInfo("ä"), io.BytesIO())
    with pytest.raises(DataError, match="not in UTF-8"):
        contents(file(stored.getvalue()))


@pytest.mark.parametrize("record", [b"9 path", b"x path=a\n", b"0 a=b\n", b"99 path=a\n", b"12 GNU.sparse.major=1\n"])
def test_a_damaged_pax_header_is_refused(file, record):
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, len(record)
    content = info.tobuf(tarfile.USTAR_FORMAT) + record.ljust(512, b"\0") + archive(("a", b"x"))
    with pytest.raises(DataError, match="pax header"):
        contents(file(content))


def test_a_nonexistent_archive_is_missing(tmp_path):
    with pytest.raises(MissingError):
        contents(tmp_path / "none")


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(place=st.integers(0, 10**6), value=st.integers(0, 255), junk=st.binary(max_size=40))
def test_no_file_causes_an_unexpected_error(file, place, value, junk):
    stored = bytearray(archive((LONG, b"abc"), form=tarfile.PAX_FORMAT if place % 2 else tarfile.GNU_FORMAT))
    stored[place % len(stored)] = value
    for content in (bytes(stored), junk, gzip.compress(junk)):
        with contextlib.suppress(DataError):
            contents(file(content))


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.dictionaries(st.text("abc./", min_size=1, max_size=150), st.binary(max_size=600), max_size=4))
def test_what_is_written_is_read_back_or_refused(file, files):
    path = file(archive(*files.items(), form=tarfile.PAX_FORMAT))
    try:
        found = contents(path)
    except DataError:
        assert any(".." in name.split("/") or name.startswith("/") or name.endswith("/") for name in files)
        return
    assert list(found.values()) == list(files.values()) or len(found) < len(files)
