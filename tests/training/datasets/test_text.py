"""Text as numbers, and its cache."""

import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.training.datasets.text import (
    END,
    PADDING,
    SPECIALS,
    UNKNOWN,
    BytePairs,
    ByteTokens,
    Padded,
    RaggedRows,
    frequent,
    padded,
    prepared,
    spans,
)

pytestmark = pytest.mark.usefixtures("own_cache")

TEXTS = ["low lower lowest", "new newer newest", "wide wider widest"]


def test_the_most_frequent_pair_is_merged_first():
    pairs = BytePairs.learn(["aab aab aab", "ab"], size=100)
    assert pairs.merges[0] == ("a", "b")  # four times; " a" is there twice


def test_equally_frequent_pairs_are_merged_in_alphabetical_order():
    assert BytePairs.learn(["cd", "cd", "ab", "ab"], size=100).merges == (("a", "b"), ("c", "d"))


def test_a_pair_that_occurs_once_is_not_merged():
    assert BytePairs.learn(["xyz"], size=100).merges == ()


def spelled(tokens, ids):
    return [tokens.spelled[each] for each in ids.tolist()]


def test_the_most_frequent_pair_of_bytes_is_merged_first_and_the_lowest_of_equals():
    assert ByteTokens.learn([b"cd cd aab aab", b"ab ab"], 259).merges == ((97, 98), (32, 97))
    assert ByteTokens.learn([b"cd", b"cd", b"ab", b"ab"], 300).merges == ((97, 98), (99, 100))


def test_bytes_are_merged_within_words_numbers_signs_and_indentations():
    tokens = ByteTokens.learn([b"x1 = f(a)\n        return x1;\n" * 3], 400)
    parts = spelled(tokens, tokens.encode([b"x1 = f(a)\n        return x1;\n"]))
    assert parts == [
        b"x",
        b"1",
        b" =",
        b" f",
        b"(",
        b"a",
        b")",
        b"\n        ",
        b"return",
        b" x",
        b"1",
        b";",
        b"\n",
        b"",
    ]


def test_a_run_of_equal_bytes_is_merged_from_the_left():
    tokens = ByteTokens.learn([b"aaaaa aaaaa"], 258)
    assert spelled(tokens, tokens.encode([b"aaaaa"])) == [b"aa", b"aa", b"a", b""]


def test_each_text_ends_with_the_token_for_it():
    tokens = ByteTokens.learn([b"ab ab"], 300)
    assert tokens.encode([b"ab", b"", b"b"]).tolist() == [257, 256, 256, 98, 256]


@given(st.lists(st.binary(max_size=40), max_size=4), st.lists(st.binary(max_size=40), max_size=4))
def test_any_bytes_are_restored_from_their_tokens(learned, texts):
    tokens = ByteTokens.learn(learned, 300)
    assert tokens.decode(tokens.encode(texts).tolist()) == b"".join(texts)


@given(st.lists(st.text("ab", max_size=12), min_size=1, max_size=4))
def test_byte_tokens_are_those_of_byte_pairs_for_the_same_merges(words):
    ours = ByteTokens.learn([word.encode() for word in words], 300)
    merges = [tuple(ours.spelled[each].decode() for each in merge) for merge in ours.merges]
    other = BytePairs("ab", merges)
    if len(set(merges)) == len({left + right for left, right in merges}):
        for word in words:
            assert spelled(ours, ours.encode([word.encode()]))[:-1] == [part.encode() for part in other._cut(word)]


def test_learning_stops_at_the_size():
    pairs = BytePairs.learn(TEXTS, size=SPECIALS + 16)
    assert len(pairs) == SPECIALS + 16
    assert len(set(pairs.parts)) == len(pairs.parts)


def test_learning_does_not_depend_on_the_order_of_the_texts():
    assert BytePairs.learn(TEXTS, 40).merges == BytePairs.learn(TEXTS[::-1], 40).merges


@given(st.lists(st.text(st.characters(categories=["L", "P"]), min_size=1, max_size=8), min_size=1, max_size=20))
def test_what_was_encoded_is_decoded_to_the_same_words(words):
    text = " ".join(words)
    pairs = BytePairs.learn([text, *words], 60)
    assert pairs.decode(pairs.encode(text)) == text


def test_an_unseen_character_is_unknown_and_is_dropped():
    pairs = BytePairs.learn(TEXTS, 40)
    ids = pairs.encode("lowß")
    assert UNKNOWN in ids
    assert pairs.decode(ids) == "low"


def test_decoding_stops_at_the_end_and_skips_special_ids():
    pairs = BytePairs.learn(TEXTS, 40)
    low = pairs.encode("low")
    assert pairs.decode([1, *low, END, *low]) == "low"


def test_words_and_punctuation_have_positions():
    text = "Don't stop, 2nd."
    assert [text[first:last] for first, last in spans(text)] == ["Don", "'", "t", "stop", ",", "2nd", "."]


def test_the_most_frequent_words_have_ids_with_ties_in_alphabetical_order():
    assert frequent({"b": 2, "a": 2, "c": 3, "d": 1}, SPECIALS + 3) == {"c": 4, "a": 5, "b": 6}


def test_rows_are_padded_and_cut():
    assert padded([[5, 6], [7, 8, 9, 10]], 3).tolist() == [[5, 6, PADDING], [7, 8, 9]]


@given(st.lists(st.lists(st.integers(1, 9), max_size=6), min_size=1, max_size=8), st.integers(1, 5), st.data())
def test_rows_of_any_length_are_stored(rows, width, data):
    import numpy as np

    indices = np.array(data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=9)), np.int64)
    assert RaggedRows(rows).padded(indices, width).tolist() == padded([rows[at] for at in indices], width).tolist()


@pytest.mark.parametrize("shape", [(4,), (4, 3)])
def test_a_padded_column_looks_its_values_up(shape):
    import numpy as np

    table = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    column = Padded(RaggedRows([[1, 3], [2]]), np.array([1, 0, 1]), 2, table)
    assert column.shape == (3, 2, *shape[1:])
    taken = column.take(np.array([1, 2]), None)
    assert taken.dtype == np.int64
    assert taken.tolist() == [table[[1, 3]].tolist(), table[[2, 0]].tolist()]


def made():
    return {"a": np.arange(6).reshape(2, 3), "b": np.array([], np.uint8)}


def kept(folder):
    """A file of ``made()`` under the key "k"."""
    path = folder / "kept.npz"
    prepared(path, "k", made)
    return path


def fail():
    raise AssertionError("made again")


def same(arrays):
    return arrays.keys() == made().keys() and all(np.array_equal(arrays[each], made()[each]) for each in arrays)


def test_cached_arrays_are_not_made_again(tmp_path):
    assert same(prepared(kept(tmp_path), "k", fail))


def test_another_key_is_made_again(tmp_path):
    with pytest.raises(AssertionError, match="made again"):
        prepared(kept(tmp_path), "other", fail)


def test_fresh_reads_no_file(tmp_path):
    with pytest.raises(AssertionError, match="made again"):
        prepared(kept(tmp_path), "k", fail, fresh=True)


def without(path, name):
    with np.load(path) as file:
        arrays = {each: file[each] for each in file.files if each != name}
    np.savez(path, **arrays)


@pytest.mark.parametrize("name", ["a", "b", "sha256", "made-of"])
def test_a_file_that_lacks_an_array_is_made_again(tmp_path, name):
    path = kept(tmp_path)
    without(path, name)
    assert same(prepared(path, "k", made))
    assert same(prepared(path, "k", fail))


def patched(path, at, value):
    """Sets another value in the local and the central header of each member."""
    content = bytearray(path.read_bytes())
    for mark, further in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
        place = content.find(mark)
        while place >= 0:
            content[place + at + further] = value
            place = content.find(mark, place + 4)
    path.write_bytes(content)


@pytest.mark.parametrize(("at", "value"), [(6, 1), (8, 99)], ids=["encrypted", "unknown compression"])
def test_unreadable_members_are_made_again(tmp_path, at, value):
    path = kept(tmp_path)
    patched(path, at, value)
    assert same(prepared(path, "k", made))


@pytest.mark.parametrize("content", [b"", b"PK", b"no zip"])
def test_a_file_that_is_not_an_archive_is_made_again(tmp_path, content):
    path = tmp_path / "kept.npz"
    path.write_bytes(content)
    assert same(prepared(path, "k", made))


@pytest.mark.parametrize(
    "shape",
    [b"(2, 3333333333333)", b"(2, 33333333333),}", b"(-1, 3),}         ", b"(2, 1),}          ", b"[2, 3],}          "],
)
def test_a_file_with_a_wrong_header_is_made_again(tmp_path, shape):
    path = kept(tmp_path)
    with zipfile.ZipFile(path) as file:
        members = {each: file.read(each) for each in file.namelist()}
    members["a.npy"] = members["a.npy"].replace(b"(2, 3), }         ", shape)
    assert shape in members["a.npy"]
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    assert same(prepared(path, "k", made))
