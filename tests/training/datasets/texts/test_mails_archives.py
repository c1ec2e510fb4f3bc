"""Folders and archives of mails hold the same, within limits and without a way out of them."""

import io
import os
import tarfile

import pytest
from tests.training.datasets.texts.corpus import corpus, named

from levelbench.errors import DataError, MissingError
from levelbench.training.datasets import mails as formats
from levelbench.training.datasets.mails import FILES, mail_files
from levelbench.training.datasets.reading import read_bytes


def archive(path, members):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def test_a_folder_and_an_archive_of_it_hold_the_same_mails(tmp_path):
    mails = {f"package/data/{named('spam-1', at)}": b"%d" % at for at in (2, 1)}
    other = {"package/package.json": b"{}", "package/data/spam-1/notes.txt": b"no"}
    packed = archive(tmp_path / "a.tgz", {**other, **mails})
    with tarfile.open(packed) as tar:
        tar.extractall(tmp_path / "folder", filter="data")
    expected = [(named("spam-1", at), b"%d" % at) for at in (1, 2)]
    assert list(mail_files(packed, FILES)) == list(mail_files(tmp_path / "folder", FILES)) == expected


@pytest.mark.parametrize(
    "name", [f"../{named('spam-1', 1)}", f"/{named('spam-1', 1)}", f"a/../../{named('spam-1', 1)}"]
)
def test_a_path_that_leads_out_of_the_archive_is_an_error(tmp_path, name):
    packed = archive(tmp_path / "a.tgz", {name: b"x"})
    with pytest.raises(DataError, match="may lead out of its folder"):
        list(mail_files(packed, FILES))


def test_a_link_in_an_archive_is_an_error(tmp_path):
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as tar:
        info = tarfile.TarInfo(named("spam-1", 1))
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(info)
    with pytest.raises(DataError, match="is a symbolic link"):
        list(mail_files(tmp_path / "a.tgz", FILES))


def test_a_header_that_claims_a_gibibyte_is_an_error_before_it_is_read(tmp_path):
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, 1 << 30
    (tmp_path / "a.tar").write_bytes(info.tobuf() + b"\0" * 1024)
    with pytest.raises(DataError, match="a header claims 1,073,741,824 bytes"):
        list(mail_files(tmp_path / "a.tar", FILES))


def test_another_packing_than_gzip_is_an_error(tmp_path):
    with tarfile.open(tmp_path / "a.tgz", "w:xz") as tar:
        info = tarfile.TarInfo(named("spam-1", 1))
        info.size = 2000
        tar.addfile(info, io.BytesIO(os.urandom(2000)))
    with pytest.raises(DataError, match="no tar archive"):
        list(mail_files(tmp_path / "a.tgz", FILES))


def test_mails_have_so_many_bytes_in_all(tmp_path, monkeypatch):
    packed = archive(tmp_path / "a.tgz", {f"data/{named('spam-1', at)}": b"x" * 400 for at in range(10)})
    with tarfile.open(packed) as tar:
        tar.extractall(tmp_path / "folder", filter="data")
    monkeypatch.setattr(formats, "MOST_IN_ALL", 3000)
    with pytest.raises(DataError, match="more than the 3,000 bytes"):
        list(mail_files(packed, FILES))
    with pytest.raises(DataError, match="more than 3,000 bytes"):
        list(mail_files(tmp_path / "folder", FILES))


def test_a_folder_holds_so_many_mails(tmp_path, monkeypatch):
    corpus(tmp_path)
    monkeypatch.setattr(formats, "MOST_FILES", 99)
    with pytest.raises(DataError, match="more than 99 mails"):
        list(mail_files(tmp_path, FILES))


def test_a_pipe_is_no_mail(tmp_path):
    (tmp_path / "spam-1").mkdir()
    os.mkfifo(tmp_path / named("spam-1", 1))
    assert list(mail_files(tmp_path, FILES)) == []
    with pytest.raises(DataError, match="no regular file"):
        read_bytes(tmp_path / named("spam-1", 1))


@pytest.mark.parametrize(
    ("keep", "said"), [(0, "truncated"), (20, "cannot be read to its end"), (200, "cannot be read to its end")]
)
def test_a_truncated_archive_is_an_error(tmp_path, keep, said):
    packed = archive(tmp_path / "a.tgz", {named("spam-1", 1): os.urandom(2000)})
    packed.write_bytes(packed.read_bytes()[:keep])
    with pytest.raises(DataError, match=said):
        list(mail_files(packed, FILES))


def test_no_such_place_is_an_error_that_says_so(tmp_path):
    with pytest.raises(MissingError, match="no such folder"):
        list(mail_files(tmp_path / "none", FILES))
