import dataclasses
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from levelbench.errors import DataError, MissingError
from levelbench.training.datasets.bibles import (
    ENGLISH,
    SPANISH,
    Bible,
    Characters,
    VersePairs,
    cut,
    paired,
    parts,
    plain,
    read_bible,
    read_testament,
    words_digest,
)
from levelbench.training.datasets.text import BEGIN, END, PADDING, prepared

pytestmark = pytest.mark.usefixtures("own_cache")

needs_debian = pytest.mark.skipif(
    ENGLISH.folder(None) is None or SPANISH.folder(None) is None,
    reason="the packages sword-text-web and sword-text-sparv are not installed",
)


# The format


def test_verses_are_read_by_chapter_from_both_testaments(tmp_path, sword):
    chapters = {"Gen.1": ["In the beginning", "And the earth"], "Gen.2": ["Thus"], "Matt.1": ["The book"]}
    sword.bible(tmp_path, chapters)
    read = read_bible(tmp_path)
    assert {name: [plain(verse) for verse in verses] for name, verses in read.items()} == chapters


def test_an_entry_that_begins_several_chapters_is_ignored(tmp_path, sword):
    several = '<chapter osisID="Dan.13"/>x<chapter eID="Dan.13"/><chapter osisID="Dan.14"/>y<chapter eID="Dan.14"/>'
    sword.testament(tmp_path, "ot", [[*sword.chapter("Dan.1", ["a", "b"]), several]])
    assert list(read_testament(tmp_path, "ot")) == ["Dan.1"]


def test_a_chapter_that_is_never_ended_is_left_out(tmp_path, sword):
    entries = ['<chapter osisID="Esth.1"/>', "a", *sword.chapter("Esth.2", ["b"]), '<chapter osisID="Esth.3"/>', "c"]
    sword.testament(tmp_path, "ot", [entries])
    assert list(read_testament(tmp_path, "ot")) == ["Esth.2"]


def test_empty_entries_after_a_chapter_are_not_verses(tmp_path, sword):
    sword.testament(tmp_path, "ot", [[*sword.chapter("Gen.1", ["a", "b"]), "", "", *sword.chapter("Gen.2", ["c"])]])
    assert {name: len(verses) for name, verses in read_testament(tmp_path, "ot").items()} == {"Gen.1": 2, "Gen.2": 1}


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ('<w lemma="strong:H1">In</w> <w>the</w> beginning,', "In the beginning,"),
        ("God<note placement='foot'>Hebrew: <rdg>El</rdg></note><w>created</w>", "God created"),
        ("Behold<note>see</note>, it", "Behold, it"),
        ("<title>A Psalm.</title>Yahweh is", "Yahweh is"),
        ('first line.<l eID="a"/><l sID="b"/>second', "first line. second"),
        ("salt &amp; light", "salt & light"),
        ('<div sID="x"/> a  b\n c ', "a b c"),
    ],
)
def test_markup_notes_and_headings_are_not_words(markup, text):
    assert plain(markup) == text


def damaged(folder, suffix, change):
    path = folder / f"ot{suffix}"
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize(
    ("suffix", "change", "said"),
    [
        (".bzv", lambda old: old[:-3], "not a multiple"),
        (".bzs", lambda old: b"", "not a multiple"),
        (".bzz", lambda old: old[:-5], "claims bytes"),
        (".bzz", lambda old: b"\0" * len(old), "cannot be unpacked"),
        (".bzs", lambda old: old[:8] + struct.pack("<I", 7), "are claimed"),
        (".bzs", lambda old: old[:8] + struct.pack("<I", 1 << 31), "blocks claim 2,147,483,648 bytes of text"),
        (".bzv", lambda old: old[:-10] + struct.pack("<IIH", 5, 0, 1), "outside the text"),
        (".bzv", lambda old: old[:-10] + struct.pack("<IIH", 0, 0, 60000), "outside the text"),
    ],
)
def test_damaged_files_are_errors_with_the_reason(tmp_path, sword, suffix, change, said):
    sword.testament(tmp_path, "ot", [sword.chapter("Gen.1", ["In the beginning"])])
    damaged(tmp_path, suffix, change)
    with pytest.raises(DataError, match=said):
        read_testament(tmp_path, "ot")


def test_blocks_that_share_compressed_bytes_are_limited(tmp_path, sword):
    sword.testament(tmp_path, "ot", [["x"]])
    damaged(tmp_path, ".bzs", lambda old: (old[:8] + struct.pack("<I", 1 << 25)) * 5)
    with pytest.raises(DataError, match="its blocks claim 167,772,160 bytes of text, and 134,217,728 is the limit"):
        read_testament(tmp_path, "ot")


def test_entries_that_share_text_are_limited(tmp_path, sword):
    sword.testament(tmp_path, "ot", [["x"]])
    damaged(tmp_path, ".bzv", lambda _: struct.pack("<IIH", 0, 0, 65535) * 2049)
    with pytest.raises(DataError, match="its entries claim"):
        read_testament(tmp_path, "ot")


def test_a_folder_in_place_of_a_file_is_an_error(tmp_path, sword):
    english, _ = small(tmp_path, sword)
    (tmp_path / "english" / "ot.bzz").unlink()
    (tmp_path / "english" / "ot.bzz").mkdir()
    assert english.folder(tmp_path) is None


def test_text_in_another_encoding_is_an_error(tmp_path, sword):
    sword.testament(tmp_path, "ot", [sword.chapter("Gen.1", ["creo"])])
    wrong = "".join(sword.chapter("Gen.1", ["creó"])).encode("latin-1")
    squeezed = zlib.compress(wrong)
    (tmp_path / "ot.bzz").write_bytes(squeezed)
    (tmp_path / "ot.bzs").write_bytes(struct.pack("<III", 0, len(squeezed), len(wrong)))
    with pytest.raises(DataError, match="not UTF-8: byte 0xf3"):
        read_testament(tmp_path, "ot")


# Pairs


def test_unequal_chapters_and_empty_verses_are_not_paired():
    english = {"Gen.1": ["a", "b"], "Rom.16": ["c", "d"], "Gen.3": ["e", ""]}
    spanish = {"Gen.1": ["A", "B"], "Rom.16": ["C"], "Gen.3": ["E", "F"], "Gen.9": ["G"]}
    assert paired(english, spanish) == [("a", "A"), ("b", "B"), ("e", "E")]


def test_repeated_verses_are_for_training():
    verses = [(f"v{at}", f"V{at}") for at in range(20)] + [("v0", "other"), ("other", "V1")]
    training, validation, test = parts(verses, (5, 5))
    assert len(validation) == len(test) == 5
    assert sorted([*training, *validation, *test]) == list(range(22))
    assert {0, 1, 20, 21} <= set(training)


def small(tmp_path, sword):
    """Two Bibles of 60 verses as modules in ``tmp_path``."""
    bibles = []
    for module, word in (("english", "word"), ("spanish", "palabra")):
        chapters = {f"Gen.{at}": [f"{word} {at} {verse} goes on" for verse in range(6)] for at in range(1, 10)}
        chapters["Matt.1"] = [f"{word} of the end {verse}" for verse in range(6)]
        sword.bible(tmp_path / module, chapters)
        bibles.append(Bible(module, f"sword-text-{module}", f"{module} Bible", words_digest(chapters)))
    return bibles


def test_pairs_are_tokens_shifted_by_one_with_a_mask(tmp_path, sword):
    data = VersePairs(*small(tmp_path, sword), length=24, tokens=64, held_out=(6, 8)).load(tmp_path)
    assert data.sizes() == {"train": 46, "validation": 6, "test": 8}
    source, mask, shifted, labels = (np.asarray(each) for each in data.train.columns)
    assert np.array_equal(mask, source != PADDING)
    assert (shifted[:, 0] == BEGIN).all()
    assert np.array_equal(np.where(labels == END, 0, labels)[:, :-1], shifted[:, 1:])
    assert ((labels == END).sum(axis=1) == 1).all()
    reference = data.train.reference
    assert [reference.decode(row) for row in labels.tolist()] == list(reference)
    assert all(text.startswith("palabra") for text in reference)


def test_pairs_are_made_once_and_cached(tmp_path, sword, monkeypatch):
    source = VersePairs(*small(tmp_path, sword), length=24, tokens=64, held_out=(6, 8))
    first = source.load(tmp_path)
    monkeypatch.setattr(VersePairs, "_made", None)
    again = source.load(tmp_path)
    assert all(np.array_equal(*pair) for pair in zip(first.test.columns, again.test.columns, strict=True))
    assert list(first.test.reference) == list(again.test.reference)


def test_a_damaged_cache_is_made_again(tmp_path, sword):
    source = VersePairs(*small(tmp_path, sword), length=24, tokens=64, held_out=(6, 8))
    first = source.load(tmp_path)
    (kept,) = (Path(os.environ["LEVELBENCH_CACHE"]) / source.name).iterdir()
    kept.write_bytes(kept.read_bytes()[:-100])
    assert np.array_equal(first.train.labels, source.load(tmp_path).train.labels)


def test_a_modified_cache_is_detected_and_checks_ignore_it(tmp_path, sword):
    source = VersePairs(*small(tmp_path, sword), length=24, tokens=64, held_out=(6, 8))
    right = source.load(tmp_path).train.labels
    (kept,) = (Path(os.environ["LEVELBENCH_CACHE"]) / source.name).iterdir()
    with np.load(kept) as file:
        arrays = {name: file[name] for name in file.files}
    arrays["target.0"] = arrays["target.0"][::-1]
    np.savez(kept, **arrays)
    assert np.array_equal(source.load(tmp_path).train.labels, right)
    marks = {name: arrays.pop(name) for name in ("made-of", "sha256")}
    prepared(kept, str(marks["made-of"]), lambda: arrays, fresh=True)
    assert not np.array_equal(source.load(tmp_path).train.labels, right)  # written by the test itself
    assert np.array_equal(source.checked(tmp_path).train.labels, right)
    assert np.array_equal(source.load(tmp_path).train.labels, right)


def test_words_that_do_not_match_the_checksum_are_an_error(tmp_path, sword):
    english, spanish = small(tmp_path, sword)
    with pytest.raises(DataError, match=r"its words have SHA-256 .* Install sword-text-english"):
        VersePairs(dataclasses.replace(english, sha256="0" * 64), spanish).load(tmp_path)


def test_missing_bibles_are_named_by_their_packages(tmp_path, sword):
    english, spanish = small(tmp_path / "here", sword)
    source = VersePairs(english, dataclasses.replace(spanish, shared=tmp_path))
    assert source.lacks(tmp_path / "here") is None
    assert source.lacks() == ("its text is not on this machine: apt-get install sword-text-english sword-text-spanish")
    with pytest.raises(MissingError, match="Install the package sword-text-english"):
        source.fetch()


def test_a_named_folder_is_the_only_place_searched_for_bibles(tmp_path, sword):
    english, spanish = small(tmp_path / "here", sword)
    here = [dataclasses.replace(each, shared=tmp_path / "here") for each in (english, spanish)]
    for source in (VersePairs(*here), Characters(here[0])):
        assert source.lacks() is None
        assert str(tmp_path / "here" / english.module) in source.where()
        assert source.where(tmp_path) is None
        assert source.lacks(tmp_path).startswith(f"its text is not in {tmp_path}: apt-get install sword-text-english")
        for ask in (source.load, source.fetch, source.checked):
            with pytest.raises(MissingError, match=r"six files are in none of .* without --data"):
                ask(tmp_path)


# Characters


def test_each_character_is_to_be_followed_by_the_next():
    inputs, labels = cut(np.arange(10, dtype=np.uint8), 3)
    assert inputs.tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert labels.tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]


def test_splits_have_whole_chapters_and_rare_characters_share_an_id(tmp_path, sword):
    english, _ = small(tmp_path, sword)
    data = Characters(english, length=16, held_out=(2, 2)).load(tmp_path)
    assert len(data.train) > len(data.test) > 0
    assert data.train.columns[0].max() == data.classes - 1
    assert (data.train.columns[0] == 0).any()  # "M" and others occur less than ten times
    assert np.array_equal(data.train.inputs[:, 1:], data.train.labels[:, :-1])


# Debian's packages


@needs_debian
@pytest.mark.slow
def test_debians_bibles_match_their_checksums():
    english, spanish = (bible.read(bible.located(None)) for bible in (ENGLISH, SPANISH))
    assert (len(english), len(spanish)) == (1386, 1189)
    assert [name for name in spanish if len(english[name]) != len(spanish[name])] == ["Rom.16"]
    pairs = paired(english, spanish)
    assert len(pairs) == 31053
    assert not any(sign in text for pair in pairs for text in pair for sign in "<>")
    assert english["Ps.23"][0] == "Yahweh is my shepherd; I shall lack nothing."
    assert spanish["Gen.1"][0] == "EN el principio crió Dios los cielos y la tierra."


@needs_debian
def test_a_testament_agrees_with_pysword():
    bible = pytest.importorskip("pysword.bible")
    folder = SPANISH.located(None)
    theirs = bible.SwordBible(str(folder), "ztext", "kjv", "utf8", "OSIS")
    ours = read_testament(folder, "nt")
    for book, name in (("Jude", "Jude.1"), ("Matthew", "Matt.5"), ("Revelation of John", "Rev.22")):
        number = int(name.split(".")[1])
        for at, verse in enumerate(ours[name], 1):
            (said,) = theirs.get_iter([book], [number], [at], clean=False)
            assert said.strip() == verse.strip()
