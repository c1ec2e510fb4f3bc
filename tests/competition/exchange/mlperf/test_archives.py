"""Results in archives: the content is read, but nothing outside or too large."""

import gzip
import io
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelbench.competition.exchange.mlperf import logs, read_results
from levelbench.errors import RecordError


def the_only(path):
    (submission,), problems = read_results(path)
    assert problems == []
    return submission


def packed(root, path, mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        archive.add(root, arcname="round")
    return path


@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_an_archive_says_what_its_folder_says(tree, tmp_path, mode):
    root = tree(runs=11)
    inside = the_only(packed(root, tmp_path / ("a.tar.gz" if mode == "w:gz" else "a.tar"), mode))
    assert [run.record_id for run in inside.runs] == [f"result_{i}.txt" for i in range(11)]
    assert inside.runs == the_only(root).runs


def test_an_archive_cannot_name_what_lies_outside_of_it(tmp_path, make_lines, text_of):
    content = text_of(make_lines(benchmark="resnet")).encode()
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        for name in ("../result_0.txt", "/etc/result_1.txt", "a/../../result_2.txt", "good/result_3.txt"):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
            member = tarfile.TarInfo("good/result_4.txt")
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    assert [run.record_id for run in the_only(tmp_path / "a.tar.gz").runs] == ["result_3.txt"]


def test_a_small_archive_cannot_unpack_to_a_large_one(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "_ARCHIVE_LIMIT", 1 << 20)
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("zeros")
        member.size = 1 << 22
        archive.addfile(member, io.BytesIO(bytes(1 << 22)))
    with pytest.raises(RecordError, match="unpacks to more than"):
        read_results(tmp_path / "a.tar.gz")


def test_a_member_beyond_the_limit_is_refused(tree, tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "FILE_LIMIT", 100)
    monkeypatch.setattr(logs, "FILE_LIMIT", 100)
    with pytest.raises(RecordError, match="larger than 100 bytes"):
        read_results(packed(tree(runs=1), tmp_path / "a.tar"))


def test_more_files_than_anybody_has_are_refused(tree, monkeypatch):
    monkeypatch.setattr(logs, "FILES_LIMIT", 3)
    with pytest.raises(RecordError, match="more than 3 files"):
        read_results(tree())


@given(at=st.floats(0, 0.999), bit=st.integers(0, 7), cut=st.booleans(), whole=st.booleans())
@settings(max_examples=25, deadline=None)
def test_a_damaged_archive_is_read_or_refused(tmp_path_factory, archived, at, bit, cut, whole):
    content = bytearray(archived if whole else gzip.decompress(archived))
    place = int(at * len(content))
    content = content[:place] if cut else content
    if not cut:
        content[place] ^= 1 << bit
    path = tmp_path_factory.getbasetemp() / ("damaged.tar.gz" if whole else "damaged.tar")
    path.write_bytes(content)
    try:
        found, problems = read_results(path)
    except RecordError:
        return
    assert found or problems


@pytest.fixture(scope="module")
def archived(tmp_path_factory, make_lines, text_of):
    root = tmp_path_factory.mktemp("archived")
    (root / "result_0.txt").write_text(text_of(make_lines(benchmark="resnet")))
    return packed(root, root / "a.tar.gz").read_bytes()


def test_two_files_of_one_name_are_refused_and_a_repeated_one_is_not(tmp_path, make_lines, text_of):
    def archive(*texts):
        with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as made:
            for name, text in zip(("round/result_0.txt", "./round//result_0.txt"), texts, strict=True):
                member = tarfile.TarInfo(name)
                member.size = len(text)
                made.addfile(member, io.BytesIO(text.encode()))
        return tmp_path / "a.tar.gz"

    slow, quick = (text_of(make_lines(benchmark="resnet", values=values)) for values in ((0.5, 0.76), (0.76,)))
    assert len(the_only(archive(slow, slow)).runs) == 1
    with pytest.raises(RecordError, match=r"two files called round/result_0\.txt"):
        read_results(archive(slow, quick))
