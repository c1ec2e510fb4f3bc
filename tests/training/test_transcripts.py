"""Transcripts and their error rates, against edit distances by the textbook's recurrence."""

import sys
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from levelbench.errors import DataError, DefinitionError, MissingError
from levelbench.training.transcripts import CharacterErrorRate, WordErrorRate, spoken


@pytest.fixture
def jiwer():
    return pytest.importorskip("jiwer", reason='jiwer is not installed: pip install "levelbench[speech]"')


def distance(left, right):
    """Levenshtein's, by its definition."""

    @cache
    def between(a, b):
        if not a or not b:
            return a + b
        same = left[a - 1] == right[b - 1]
        return min(between(a - 1, b) + 1, between(a, b - 1) + 1, between(a - 1, b - 1) + (not same))

    return between(len(left), len(right))


def logits_of(rows, symbols=4):
    return np.eye(symbols, dtype=np.float32)[np.array(rows)]


def measured(quality, logits, labels):
    """The quality of a network that answers with these logits whatever it is given."""
    backend = SimpleNamespace(host=lambda array: array)
    held = SimpleNamespace(backend=backend, batches=lambda rows: [(logits, np.array(labels))])
    return quality.measure(SimpleNamespace(infer=lambda given: (given,)), held)


def test_equal_symbols_in_a_row_are_one_and_blanks_separate_them():
    assert spoken(logits_of([[1, 1, 0, 1, 2, 2], [0, 0, 3, 3, 0, 0]])) == [[1, 1, 2], [3]]


def test_a_frame_that_is_not_finite_says_nothing():
    logits = logits_of([[1, 2, 3]])
    logits[0, 1, 0] = np.nan
    assert spoken(logits) == [[1, 3]]


def test_errors_of_all_examples_are_divided_by_the_length_of_all_references(jiwer):
    logits = logits_of([[1, 0, 2, 3], [0, 0, 0, 0], [1, 2, 1, 2]])
    # Of "02" one is missing and of "3" and "01" nothing and two characters are too much.
    labels = [[1, 3, 0], [3, 0, 0], [1, 2, 0]]
    assert measured(CharacterErrorRate(0.1), logits, labels) == pytest.approx((1 + 1 + 2) / 5)


@pytest.mark.parametrize("seed", range(5))
def test_the_rates_are_those_of_edit_distances(jiwer, seed):
    random = np.random.default_rng(seed)
    said, wanted = (["".join(random.choice(list("ab c"), 12)) for _ in range(6)] for _ in range(2))
    said, wanted = ([" ".join(each.split()) for each in texts] for texts in (said, wanted))
    pairs = list(zip(said, wanted, strict=True))
    characters = sum(distance(a, b) for a, b in pairs) / sum(map(len, wanted))
    words = sum(distance(a.split(), b.split()) for a, b in pairs) / sum(len(each.split()) for each in wanted)
    assert CharacterErrorRate(0.1).rate(wanted, said) == pytest.approx(characters)
    assert WordErrorRate(0.1).rate(wanted, said) == pytest.approx(words)


def test_symbols_are_characters_of_the_alphabet_and_words_end_at_spaces(jiwer):
    logits = logits_of([[1, 3, 2, 0], [1, 3, 1, 0]])
    assert measured(WordErrorRate(0.1, alphabet="ab "), logits, [[1, 3, 2], [1, 3, 2]]) == pytest.approx(1 / 4)


def test_a_split_without_labels_is_refused(jiwer):
    with pytest.raises(DataError, match="no example has a label"):
        measured(CharacterErrorRate(0.1), logits_of([[1]]), [[0]])


def test_an_alphabet_has_each_character_once():
    with pytest.raises(DefinitionError, match="each once"):
        CharacterErrorRate(0.1, alphabet="aba")


def test_without_jiwer_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "jiwer", None)
    with pytest.raises(MissingError, match=r"levelbench\[speech\]"):
        CharacterErrorRate(0.1).rate(["1"], ["1"])
