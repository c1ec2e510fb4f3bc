import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.training.datasets.text import (
    END,
    PADDING,
    SPECIALS,
    UNKNOWN,
    BytePairs,
    Padded,
    RaggedRows,
    frequent,
    padded,
    spans,
)

TEXTS = ["low lower lowest", "new newer newest", "wide wider widest"]


def test_the_most_frequent_pair_is_merged_first():
    pairs = BytePairs.learn(["aab aab aab", "ab"], size=100)
    assert pairs.merges[0] == ("a", "b")  # four times; " a" is there twice


def test_of_pairs_that_are_equally_frequent_the_first_in_the_alphabet_is_merged():
    assert BytePairs.learn(["cd", "cd", "ab", "ab"], size=100).merges == (("a", "b"), ("c", "d"))


def test_a_pair_that_comes_once_is_not_merged():
    assert BytePairs.learn(["xyz"], size=100).merges == ()


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


def test_a_character_that_training_never_saw_is_unknown_and_drops_out():
    pairs = BytePairs.learn(TEXTS, 40)
    ids = pairs.encode("lowß")
    assert UNKNOWN in ids
    assert pairs.decode(ids) == "low"


def test_decoding_ends_at_the_end_and_skips_what_is_no_text():
    pairs = BytePairs.learn(TEXTS, 40)
    low = pairs.encode("low")
    assert pairs.decode([1, *low, END, *low]) == "low"


def test_words_and_signs_have_their_places():
    text = "Don't stop, 2nd."
    assert [text[first:last] for first, last in spans(text)] == ["Don", "'", "t", "stop", ",", "2nd", "."]


def test_the_most_frequent_words_have_ids_and_ties_are_those_of_the_alphabet():
    assert frequent({"b": 2, "a": 2, "c": 3, "d": 1}, SPECIALS + 3) == {"c": 4, "a": 5, "b": 6}


def test_rows_are_padded_and_cut():
    assert padded([[5, 6], [7, 8, 9, 10]], 3).tolist() == [[5, 6, PADDING], [7, 8, 9]]


@given(st.lists(st.lists(st.integers(1, 9), max_size=6), min_size=1, max_size=8), st.integers(1, 5), st.data())
def test_rows_of_any_length_come_out_as_they_went_in(rows, width, data):
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
