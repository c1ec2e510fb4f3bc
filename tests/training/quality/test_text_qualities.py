import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.errors import MissingError, UsageError
from levelbench.training.datasets.base import Split
from levelbench.training.datasets.text import BEGIN, END, Passage
from levelbench.training.quality import (
    BitsPerCharacter,
    Bleu,
    Perplexity,
    SpanExactMatch,
    SpanF1,
    best_spans,
    exact_match,
    f1,
    greedy,
    normalised,
)


class Held:
    """A split on NumPy, in batches of three rows whatever is asked for."""

    def __init__(self, split):
        self.split = split
        self.backend = SimpleNamespace(array=lambda array: array, host=np.asarray)

    def batches(self, size=1000):
        assert size > 0
        for start in range(0, len(self.split), 3):
            yield tuple(column[start : start + 3] for column in self.split.columns)

    def __len__(self):
        return len(self.split)


def executor(infer):
    return SimpleNamespace(infer=infer)


# SQuAD's comparison: cases of the official script's normalisation and scores


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("The Cat!", "cat"),
        ("  a  an the  ", ""),
        ("Theatre, another", "theatre another"),
        ("U.S.A.", "usa"),
        ("an-other", "another"),
        ("the\u00a0cat", "cat"),
        ("10,000 (ten)", "10000 ten"),
    ],
)
def test_an_answer_loses_case_punctuation_articles_and_space(answer, text):
    assert normalised(answer) == text


@pytest.mark.parametrize(
    ("prediction", "answers", "score"),
    [
        ("Denver Broncos", ["Denver Broncos", "Denver Broncos", "Denver Broncos"], 1.0),
        ("the Denver Broncos", ["Denver Broncos"], 1.0),
        ("Broncos", ["Denver Broncos"], 2 / 3),
        ("Denver Denver", ["Denver Broncos"], 0.5),
        ("Carolina", ["Denver Broncos"], 0.0),
        ("Santa Clara, California", ["Levi's Stadium", "Santa Clara"], 0.8),
        ("", ["Denver Broncos"], 0.0),
        ("the", ["a"], 0.0),
    ],
)
def test_f1_is_of_the_words_with_the_best_answer(prediction, answers, score):
    assert f1(prediction, answers) == pytest.approx(score, abs=1e-15)


def test_an_exact_match_is_with_any_answer():
    assert exact_match("The Broncos.", ["Denver", "broncos"]) == 1.0
    assert exact_match("Denver Broncos", ["Denver", "broncos"]) == 0.0
    assert exact_match("the", ["a"]) == 1.0  # both are empty, and the official script says so


words = st.lists(st.sampled_from(["red", "blue", "old", "new"]), min_size=1, max_size=5).map(" ".join)


@given(words, words)
def test_f1_is_symmetric_in_one_answer_and_one_where_words_are_equal(left, right):
    assert f1(left, [right]) == pytest.approx(f1(right, [left]))
    assert (f1(left, [right]) == 1.0) == (sorted(left.split()) == sorted(right.split()))
    assert exact_match(left, [right]) <= f1(left, [right])


logits = st.integers(1, 7).flatmap(
    lambda length: st.lists(st.lists(st.integers(-9, 9), min_size=length, max_size=length), min_size=2, max_size=2)
)


@given(logits, st.integers(1, 8))
def test_the_best_span_is_that_of_a_search_through_all(pair, longest):
    starts, ends = np.array(pair, np.float32)[:, None]
    ((first, last),) = best_spans(starts, ends, longest).tolist()
    assert first <= last < first + longest
    spans = [(a, b) for a in range(starts.shape[1]) for b in range(a, min(a + longest, starts.shape[1]))]
    assert starts[0, first] + ends[0, last] == max(starts[0, a] + ends[0, b] for a, b in spans)


def reading():
    """Five questions on one paragraph, and a network that points at the second word for all of them."""
    passage = "The red door is old"
    places = [(0, 3), (4, 7), (8, 12), (13, 15), (16, 19)]
    answers = [("red",), ("red door",), ("old",), ("the red", "old"), ("door", "red")]
    reference = [Passage(passage, places, each) for each in answers]
    texts, labels = np.zeros((5, 5), np.int64), np.zeros(5, np.int64)
    split = Split((texts, labels, labels), targets=2, reference=reference)

    def infer(texts):
        made = np.zeros(texts.shape, np.float32)
        made[:, 1] = 5.0
        return made, made

    return executor(infer), Held(split)


def test_f1_and_exact_match_are_means_over_questions():
    network, held = reading()
    assert SpanF1(0.75).measure(network, held) == pytest.approx((1 + 2 / 3 + 0 + 1 + 1) / 5)
    assert SpanExactMatch(0.65).measure(network, held) == pytest.approx(3 / 5)


def test_a_span_in_the_padding_is_no_answer():
    assert Passage("one", [(0, 3)], ("one",)).text(4, 6) == ""
    assert Passage("one two", [(0, 3), (4, 7)], ("two",)).text(1, 9) == "two"


# Perplexity


def guesses(probabilities, labels):
    """A network that gives each place the same probabilities, and a split with these labels."""
    labels = np.array(labels, np.int64)
    made = np.log(np.array(probabilities, np.float64)) + 3.0

    def infer(inputs):
        return (np.broadcast_to(made, (*inputs.shape, len(made))),)

    return executor(infer), Held(Split((np.zeros_like(labels), labels)))


def test_a_network_that_guesses_among_n_has_perplexity_n():
    network, held = guesses([0.25] * 4, [[0, 1], [2, 3], [1, 1], [0, 0]])
    assert Perplexity(2.0).measure(network, held) == pytest.approx(4.0)
    assert BitsPerCharacter(2.0).measure(network, held) == pytest.approx(2.0)


def test_surprise_is_the_mean_over_labels_not_over_batches():
    network, held = guesses([0.5, 0.25, 0.25], [[0, 0], [0, 0], [0, 0], [1, 2]])
    assert BitsPerCharacter(2.0).measure(network, held) == pytest.approx((6 * 1 + 2 * 2) / 8)


def test_ignored_labels_do_not_count():
    network, held = guesses([0.5, 0.25, 0.25], [[1, 0], [2, 0], [1, 1], [0, 0]])
    assert BitsPerCharacter(2.0, ignored=0).measure(network, held) == pytest.approx(2.0)


def test_large_logits_do_not_overflow():
    labels = np.array([[0, 1]])
    network = executor(lambda inputs: (np.tile(np.array([1000.0, -1000.0], np.float32), (1, 2, 1)),))
    held = Held(Split((labels, labels)))
    assert BitsPerCharacter(2.0).measure(network, held) == pytest.approx(1000 / math.log(2))
    assert Perplexity(2.0).measure(network, held) == math.inf


def test_lower_is_better_and_perplexity_starts_at_one():
    target = Perplexity(3.0).as_target()
    assert (target.direction, target.low) == ("lower", 1.0)
    assert target.high in (None, math.inf)
    with pytest.raises(UsageError, match="its scale goes from 1"):
        Perplexity(0.5).as_target()
    assert BitsPerCharacter(2.0).as_target().low == 0.0


# BLEU


def counting(longest):
    """Each row counts on from its source, one token a step, to its end; and the widths that were asked for."""
    widths = []

    def infer(source, prefix):
        widths.append(prefix.shape[1])
        following = np.where(prefix == BEGIN, source[:, :1], prefix + 1)
        following = np.where(following >= source[:, :1] + source[:, 1:2], END, following)
        return (np.eye(40)[following],)

    return infer, widths


def test_greedy_goes_on_until_each_row_has_its_end():
    infer, widths = counting(12)
    source = np.array([[4, 2], [10, 9], [20, 0]])
    found = greedy(lambda prefix: infer(source, prefix), np.asarray, np.asarray, 3, 12)
    assert found[0].tolist() == [4, 5, END, *[0] * 9]
    assert found[1].tolist() == [*range(10, 19), END, 0, 0]
    assert found[2].tolist() == [END, *[0] * 11]
    assert widths == [8] * 8 + [12] * 2  # few lengths, and no more steps than the longest row needs


def test_greedy_ends_at_the_longest():
    infer, _ = counting(5)
    source = np.array([[4, 30]])
    found = greedy(lambda prefix: infer(source, prefix), np.asarray, np.asarray, 1, 5)
    assert found.tolist() == [[4, 5, 6, 7, 8]]


class Reference(list):
    def decode(self, ids):
        return " ".join(f"w{each}" for each in ids[: ids.index(END)])


def translating(texts):
    source = np.array([[4, 5], [10, 6], [20, 5], [5, 4]])
    targets = np.zeros((4, 12), np.int64)
    infer, _ = counting(12)
    return executor(infer), Held(Split((source, targets, targets), reference=Reference(texts)))


def counted(start, count):
    return " ".join(f"w{start + at}" for at in range(count))


def test_the_references_themselves_have_bleu_100():
    pytest.importorskip("sacrebleu")
    texts = [counted(4, 5), counted(10, 6), counted(20, 5), counted(5, 4)]
    assert Bleu(10.0).measure(*translating(texts)) == pytest.approx(100.0)


def test_bleu_is_sacrebleus_of_the_whole_corpus():
    sacrebleu = pytest.importorskip("sacrebleu")
    texts = [counted(4, 5), counted(11, 6), counted(20, 7), "other words stand here"]
    network, held = translating(texts)
    said = Bleu(10.0).translations(network, held)
    assert said == [counted(4, 5), counted(10, 6), counted(20, 5), counted(5, 4)]
    assert 0 < Bleu(10.0).measure(network, held) < 100
    assert Bleu(10.0).measure(network, held) == pytest.approx(sacrebleu.corpus_bleu(said, [texts]).score)


def test_the_signature_says_options_and_version():
    sacrebleu = pytest.importorskip("sacrebleu")
    assert Bleu(10.0).signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"


def test_without_sacrebleu_what_to_install_is_said(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sacrebleu.metrics.bleu", None)
    with pytest.raises(MissingError, match=r"(?i)pip install \"levelbench\[text\]\""):
        _ = Bleu(10.0).signature
