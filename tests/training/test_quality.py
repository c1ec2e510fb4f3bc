"""Qualities of classifiers compared with scikit-learn; ties, NaN and missing classes."""

import math
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto
from sklearn import metrics

from levelbench.errors import DataError, DefinitionError, MissingError, UnsupportedError, UsageError
from levelbench.frameworks.numpy import framework
from levelbench.networks import Builder, Draw, GraphBuilder
from levelbench.records.schema import Target
from levelbench.training.datasets.base import Dataset, Split
from levelbench.training.datasets.text import BEGIN, END, Passage
from levelbench.training.input import Held
from levelbench.training.quality import (
    AUROC,
    MAE,
    NDCG,
    RMSE,
    BalancedAccuracy,
    BitsPerByte,
    BitsPerCharacter,
    Bleu,
    HitRate,
    MeanIoU,
    Perplexity,
    Reconstruction,
    SpanExactMatch,
    SpanF1,
    Top1,
    Top5,
    TopK,
    area_under_roc,
    best_spans,
    exact_match,
    f1,
    greedy,
    narrowest,
    normalised,
)

NUMPY = framework.open()


class Answers:
    """An executor whose outputs are its inputs."""

    def infer(self, *inputs):
        return inputs[:1]


def held_of(scores, labels, backend=NUMPY):
    split = Split.of(np.asarray(scores, np.float32), np.asarray(labels, np.int64))
    data = Dataset("toy", split, split, split, int(np.max(labels)) + 1, {}, "none", "none", "made here", True)
    return Held(backend, data, split)


def measured(quality, scores, labels, backend=NUMPY):
    return quality.measure(Answers(), held_of(scores, labels, backend))


@pytest.fixture(scope="module")
def sample():
    random = np.random.default_rng(3)
    labels = random.choice(8, 1500, p=[0.3, 0.2, 0.15, 0.1, 0.1, 0.05, 0.05, 0.05])
    return random.standard_normal((1500, 8)) + 1.5 * np.eye(8)[labels], labels


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8, 20])
def test_top_k_equals_scikit_learns(sample, k):
    scores, labels = sample
    expected = 1.0 if k >= 8 else metrics.top_k_accuracy_score(labels, scores.astype(np.float32), k=k)
    assert measured(TopK(0.5, k), scores, labels) == pytest.approx(expected, abs=1e-12)


def test_top_1_is_the_accuracy_and_top_k_of_one(sample):
    scores, labels = sample
    expected = metrics.accuracy_score(labels, scores.astype(np.float32).argmax(1))
    assert measured(Top1(0.5), scores, labels) == measured(TopK(0.5, 1), scores, labels) == expected


def test_top_5_names_itself_and_counts_five(sample):
    assert (Top5(0.93).metric, Top5(0.93).k, TopK(0.9, 3).metric) == ("top5", 5, "top3")
    assert Top5(0.93).as_target().metric == "top5"
    assert measured(Top5(0.93), *sample) == measured(TopK(0.93, 5), *sample)


def test_among_equal_logits_the_lower_class_comes_first():
    scores = [[1.0, 1.0, 1.0]] * 3
    assert measured(TopK(0.5, 1), scores, [0, 1, 2]) == pytest.approx(1 / 3)
    assert measured(TopK(0.5, 2), scores, [0, 1, 2]) == pytest.approx(2 / 3)


def test_an_infinite_logit_of_another_class_does_no_harm():
    assert measured(TopK(0.5, 2), [[math.inf, 1.0, 0.0], [-math.inf, 1.0, 2.0]], [1, 0]) == 0.5


def test_a_label_whose_logit_is_nan_is_never_right():
    assert measured(TopK(0.5, 3), [[math.nan, 1.0, 0.0]], [0]) == 0.0


def test_top_0_counts_nothing_and_is_refused():
    with pytest.raises(DefinitionError, match="k >= 1"):
        TopK(0.5, 0)


@pytest.mark.parametrize("name", ["torch", "jax", "tensorflow"])
def test_frameworks_count_the_same(sample, name):
    pytest.importorskip(name)
    from levelbench.operators.frameworks import open_framework

    scores, labels = sample
    other = open_framework(name)
    for quality in (Top1(0.5), TopK(0.5, 3), BalancedAccuracy(0.5)):
        assert measured(quality, scores, labels, other) == measured(quality, scores, labels)


def test_balanced_accuracy_equals_scikit_learns(sample):
    scores, labels = sample
    expected = metrics.balanced_accuracy_score(labels, scores.astype(np.float32).argmax(1))
    assert measured(BalancedAccuracy(0.5), scores, labels) == pytest.approx(expected, abs=1e-12)


def test_classes_without_an_example_are_left_out_of_balanced_accuracy():
    scores, labels = np.eye(4)[[0, 3, 3, 1]], [0, 3, 0, 3]
    assert measured(BalancedAccuracy(0.5), scores, labels) == pytest.approx(0.5)


def test_predicting_the_frequent_class_has_balanced_accuracy_of_chance():
    scores, labels = np.tile([1.0, 0.0], (100, 1)), [0] * 90 + [1] * 10
    assert measured(Top1(0.5), scores, labels) == 0.9
    assert measured(BalancedAccuracy(0.5), scores, labels) == 0.5


@pytest.fixture(scope="module")
def pixels():
    """Logits (40, 6, 8, 8) and classes (40, 8, 8), of which 5 never is."""
    random = np.random.default_rng(4)
    labels = random.integers(0, 5, (40, 8, 8))
    return random.standard_normal((40, 6, 8, 8)) + 1.5 * np.moveaxis(np.eye(6)[labels], 3, 1), labels


def test_mean_iou_equals_scikit_learns_over_all_pixels(pixels):
    scores, labels = pixels
    found = scores.astype(np.float32).argmax(1).ravel()
    expected = metrics.jaccard_score(labels.ravel(), found, average="macro")
    assert measured(MeanIoU(0.5), scores, labels) == pytest.approx(expected, abs=1e-12)


def test_pixels_to_ignore_count_nowhere(pixels):
    scores, labels = pixels
    void = np.where(np.random.default_rng(5).random(labels.shape) < 0.2, 255, labels)
    kept = (void != 255).ravel()
    found = scores.astype(np.float32).argmax(1).ravel()
    expected = metrics.jaccard_score(labels.ravel()[kept], found[kept], average="macro")
    assert measured(MeanIoU(0.5, ignored=255), scores, void) == pytest.approx(expected, abs=1e-12)
    assert measured(MeanIoU(0.5), scores, void) < expected


def test_a_class_that_is_neither_there_nor_predicted_is_left_out_of_mean_iou():
    scores = np.moveaxis(np.eye(4)[[[[0, 0, 2, 2]]]], 3, 1)
    assert measured(MeanIoU(0.5), scores, [[[0, 0, 2, 2]]]) == 1.0
    assert measured(MeanIoU(0.5), scores, [[[0, 0, 2, 0]]]) == pytest.approx((2 / 3 + 1 / 2) / 2)


def test_a_pixel_with_a_nan_logit_is_of_no_class():
    scores = np.zeros((1, 2, 1, 2))
    scores[0, 0, 0] = math.nan, 1.0
    assert measured(MeanIoU(0.5), scores, [[[0, 0]]]) == 0.5


def test_masks_of_another_size_are_refused_by_mean_iou():
    with pytest.raises(DataError, match=r"Give outputs \(n, classes, \.\.\.\)"):
        measured(MeanIoU(0.5), np.zeros((2, 3, 4, 4)), np.zeros((2, 8, 8)))


def test_the_area_under_the_roc_equals_scikit_learns(sample):
    scores, labels = sample[0][:, :2], np.minimum(sample[1], 1)
    given = scores.astype(np.float32).astype(np.float64)
    expected = metrics.roc_auc_score(labels, given[:, 1] - given[:, 0])
    assert measured(AUROC(0.9), scores, labels) == pytest.approx(expected, abs=1e-12)


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=40))
def test_the_area_counts_pairs_and_half_of_the_ties(pairs):
    scores = np.array([score for score, _ in pairs], np.float64)
    labels = np.array([label for _, label in pairs])
    ones, zeros = scores[labels], scores[~labels]
    if not (len(ones) and len(zeros)):
        assert math.isnan(area_under_roc(scores, labels))
        return
    apart = ones[:, None] - zeros[None]
    assert area_under_roc(scores, labels) == pytest.approx((apart > 0).mean() + 0.5 * (apart == 0).mean())


def test_a_single_output_is_the_score():
    assert measured(AUROC(0.9), [[0.1], [0.9], [0.8]], [0, 1, 0]) == 1.0


def test_the_area_of_three_classes_is_refused():
    with pytest.raises(UnsupportedError, match="3 classes"):
        measured(AUROC(0.9), np.eye(3), [0, 1, 2])


@pytest.mark.parametrize("quality", [Top5, BalancedAccuracy, AUROC])
def test_a_target_in_percent_suggests_the_fraction(quality):
    with pytest.raises(UsageError, match=r"did you mean 0\.93\?"):
        quality(target=0.9).as_target(93)


@pytest.mark.parametrize("nan", [[0], [1], [2], [0, 1, 2]])
def test_top_1_and_top_k_of_one_agree_that_a_sample_with_a_nan_is_wrong(nan):
    scores = np.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    scores[0, nan] = math.nan
    for quality in (Top1(0.5), TopK(0.5, 1)):
        assert measured(quality, scores, [0, 0]) == 0.5


def test_a_nan_does_not_predict_class_0():
    assert measured(BalancedAccuracy(0.5), [[math.nan] * 2, [0.0, 1.0]], [0, 1]) == 0.5


@pytest.mark.parametrize("label", [-1, 3, 7])
@pytest.mark.parametrize("quality", [Top1(0.5), TopK(0.5, 2), Top5(0.5)])
def test_a_label_outside_the_classes_is_never_right(quality, label):
    assert measured(quality, [[-1.0, -2.0, -3.0], [1.0, 0.0, 0.0]], [label, 0]) == 0.5


class Outputs:
    def infer(self, *inputs):
        return inputs[:1]


def error_of(quality, outputs, targets, backend=NUMPY):
    split = Split((np.asarray(outputs, np.float32), np.asarray(targets, np.float32)))
    data = Dataset("toy", split, split, split, 0, {}, "none", "none", "made here", True)
    return quality.measure(Outputs(), Held(backend, data, split))


@pytest.fixture(scope="module")
def pair():
    random = np.random.default_rng(5)
    return random.standard_normal((2300, 3)).astype(np.float32), random.standard_normal((2300, 3)).astype(np.float32)


def test_rmse_and_mae_equal_scikit_learns(pair):
    outputs, targets = (each.astype(np.float64).ravel() for each in pair)
    assert error_of(RMSE(1.0), *pair) == pytest.approx(metrics.root_mean_squared_error(targets, outputs), rel=1e-12)
    assert error_of(MAE(1.0), *pair) == pytest.approx(metrics.mean_absolute_error(targets, outputs), rel=1e-12)


def test_a_small_error_on_large_values_is_not_lost():
    assert error_of(RMSE(1.0), np.full((3000, 1), 8193.0), np.full((3000, 1), 8192.0)) == 1.0


def test_a_column_of_one_is_not_broadcast_against_a_flat_one():
    assert error_of(MAE(1.0), [[1.0], [2.0], [3.0]], [1.0, 2.0, 4.0]) == pytest.approx(1 / 3)


def test_outputs_of_another_shape_are_refused():
    with pytest.raises(DataError, match=r"shape \(2, 3\)"):
        error_of(RMSE(1.0), np.zeros((2, 3)), np.zeros((2, 4)))


@pytest.fixture(scope="module")
def ranked():
    """Scores of 20 items in 300 rows, and 1 at the relevant one of each."""
    random = np.random.default_rng(8)
    relevant = np.eye(20, dtype=np.float32)[random.integers(0, 20, 300)]
    return (random.standard_normal((300, 20)) + relevant).astype(np.float32), relevant


@pytest.mark.parametrize("k", [1, 3, 10])
def test_the_hit_rate_and_ndcg_equal_scikit_learns(ranked, k):
    scores, relevant = ranked
    hits = metrics.top_k_accuracy_score(relevant.argmax(axis=1), scores, k=k)
    assert error_of(HitRate(0.5, k), *ranked) == pytest.approx(hits, abs=1e-12)
    assert error_of(NDCG(0.5, k), *ranked) == pytest.approx(metrics.ndcg_score(relevant, scores, k=k), abs=1e-12)


@pytest.mark.parametrize("quality", [HitRate(0.5), NDCG(0.5)])
@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_scores_that_tell_nothing_hit_nothing(quality, value):
    assert error_of(quality, np.full((5, 11), value), np.eye(11)[:5]) == 0


def test_a_relevant_item_whose_score_is_nan_is_no_hit_and_one_of_another_ranks_before_it():
    scores = np.arange(11.0)[None].repeat(3, 0)
    scores[1, 10], scores[2, 0] = np.nan, np.nan
    assert error_of(HitRate(0.5, 1), scores, np.eye(11)[[10, 10, 10]]) == pytest.approx(1 / 3)


@pytest.mark.parametrize("quality", [HitRate(0.5), NDCG(0.5)])
def test_one_score_for_a_whole_row_is_refused_and_not_the_best_rank(quality):
    with pytest.raises(DataError, match=r"shape \(5, 1\)"):
        error_of(quality, np.zeros((5, 1)), np.eye(11)[:5])


@pytest.mark.parametrize("count", [0, 2])
def test_a_row_with_no_relevant_item_or_two_has_no_rank(ranked, count):
    scores, relevant = ranked[0], ranked[1].copy()
    relevant[7] = np.arange(20) < count
    with pytest.raises(DataError, match="1 of 300 rows"):
        error_of(HitRate(0.5), scores, relevant)


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_frameworks_rank_alike(ranked, name):
    pytest.importorskip(name)
    from levelbench.operators.frameworks import open_framework

    for quality in (HitRate(0.5), NDCG(0.5)):
        assert error_of(quality, *ranked, open_framework(name)) == error_of(quality, *ranked)


def test_a_hit_among_0_is_refused():
    with pytest.raises(DefinitionError, match="k is below 1"):
        NDCG(0.5, 0)


def chain(*widths):
    made = Builder("chain", (6,))
    for width in widths:
        made = made.gemm(width).relu()
    return made.gemm(6).build()


def with_shortcut():
    graph = GraphBuilder("shortcut")
    x = graph.input("input", ("batch", 6))
    code = graph.node("MatMul", x, graph.parameter("down", (6, 2), Draw("normal", 1.0)))
    graph.output(graph.node("Add", x, graph.node("MatMul", code, graph.parameter("up", (2, 6), Draw("normal", 1.0)))))
    return graph.build()


def doubles():
    """What could hold four numbers of float32 in its two."""
    graph = GraphBuilder("doubles")
    x = graph.node("Cast", graph.input("input", ("batch", 6)), to=TensorProto.DOUBLE)
    code = graph.node("MatMul", x, graph.constant(np.ones((6, 2))))
    graph.output(graph.node("Cast", graph.node("MatMul", code, graph.constant(np.ones((2, 6)))), to=TensorProto.FLOAT))
    return graph.build()


def test_a_number_of_eight_bytes_counts_as_two():
    assert narrowest(doubles()) == 4


@pytest.mark.parametrize(
    ("network", "width"), [(chain(4, 2, 5), 2), (chain(3), 3), (chain(8), 6), (with_shortcut(), 6)]
)
def test_the_narrowest_value_is_the_one_without_which_nothing_gets_through(network, width):
    assert narrowest(network) == width


def test_a_reconstruction_from_a_larger_code_or_past_it_is_refused():
    rows = np.random.default_rng(0).standard_normal((20, 6)).astype(np.float32)
    split = Split((rows, rows))
    held = Held(framework.open(), Dataset("toy", split, split, split, 0, {}, "none", "none", "made here", True), split)
    small, large, past = (framework.open().executor(each) for each in (chain(2), chain(3), with_shortcut()))
    assert Reconstruction(1.0, code=2).measure(small, held) == RMSE(1.0).measure(small, held)
    for executor, said in ((large, "its code has 3"), (past, "its code has 6")):
        with pytest.raises(UnsupportedError, match=said):
            Reconstruction(1.0, code=2).measure(executor, held)


@pytest.mark.parametrize("quality", [RMSE, MAE])
def test_lower_is_better_from_zero_without_an_end(quality):
    target = quality(target=120.0).as_target()
    assert (target.direction, target.low, target.high, quality.high) == ("lower", 0.0, None, math.inf)
    with pytest.raises(UsageError, match="scale goes from 0 to infinity"):
        quality(target=1.0).as_target(-0.1)


def test_the_target_of_an_unbounded_metric_survives_a_round_trip():
    target = RMSE(target=0.5).as_target()
    assert msgspec.json.decode(msgspec.json.encode(target), type=Target) == target
    assert (target.direction, target.low, target.high) == ("lower", 0.0, None)


def test_only_qualities_with_options_have_a_signature():
    assert Top1(target=0.9).signature == ""
    pytest.importorskip("sacrebleu", reason="sacrebleu is not installed")
    assert "tok:13a" in Bleu(target=8.0).signature


def test_a_target_beyond_the_scale_is_refused():
    with pytest.raises(UsageError, match="its scale goes from 0 to 1"):
        Top1(target=0.9).as_target(1.5)


class TextHeld:
    """A split on NumPy, in batches of three rows whatever is requested."""

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
def test_f1_compares_words_with_the_best_answer(prediction, answers, score):
    assert f1(prediction, answers) == pytest.approx(score, abs=1e-15)


def test_an_exact_match_may_be_with_any_answer():
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
def test_the_best_span_equals_exhaustive_search(pair, longest):
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

    return executor(infer), TextHeld(split)


def test_f1_and_exact_match_are_means_over_questions():
    network, held = reading()
    assert SpanF1(0.75).measure(network, held) == pytest.approx((1 + 2 / 3 + 0 + 1 + 1) / 5)
    assert SpanExactMatch(0.65).measure(network, held) == pytest.approx(3 / 5)


def test_a_span_in_the_padding_is_not_an_answer():
    assert Passage("one", [(0, 3)], ("one",)).text(4, 6) == ""
    assert Passage("one two", [(0, 3), (4, 7)], ("two",)).text(1, 9) == "two"


# Perplexity


def guesses(probabilities, labels):
    """A network that gives each position the same probabilities, and a split with these labels."""
    labels = np.array(labels, np.int64)
    made = np.log(np.array(probabilities, np.float64)) + 3.0

    def infer(inputs):
        return (np.broadcast_to(made, (*inputs.shape, len(made))),)

    return executor(infer), TextHeld(Split((np.zeros_like(labels), labels)))


def test_a_network_that_guesses_among_n_has_perplexity_n():
    network, held = guesses([0.25] * 4, [[0, 1], [2, 3], [1, 1], [0, 0]])
    assert Perplexity(2.0).measure(network, held) == pytest.approx(4.0)
    assert BitsPerCharacter(2.0).measure(network, held) == pytest.approx(2.0)


def test_surprisal_is_averaged_over_labels_not_batches():
    network, held = guesses([0.5, 0.25, 0.25], [[0, 0], [0, 0], [0, 0], [1, 2]])
    assert BitsPerCharacter(2.0).measure(network, held) == pytest.approx((6 * 1 + 2 * 2) / 8)


def test_ignored_labels_do_not_count():
    network, held = guesses([0.5, 0.25, 0.25], [[1, 0], [2, 0], [1, 1], [0, 0]])
    assert BitsPerCharacter(2.0, ignored=0).measure(network, held) == pytest.approx(2.0)


def test_bits_per_byte_divides_by_the_bytes_that_the_labels_stand_for():
    network, held = guesses([0.5, 0.25, 0.25], [[0, 0], [0, 1]])
    held.split = Split(held.split.columns, reference=[3, 7])
    assert BitsPerByte(2.0).measure(network, held) == pytest.approx((1 + 1 + 1 + 2) / (3 + 7))


def test_bits_per_byte_of_rows_of_unknown_bytes_are_refused():
    network, held = guesses([0.5, 0.5], [[0, 1]])
    with pytest.raises(DataError, match="no bytes in its reference"):
        BitsPerByte(2.0).measure(network, held)


def test_large_logits_do_not_overflow():
    labels = np.array([[0, 1]])
    network = executor(lambda inputs: (np.tile(np.array([1000.0, -1000.0], np.float32), (1, 2, 1)),))
    held = TextHeld(Split((labels, labels)))
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
    """Each row counts up from its source, one token per step, to its end; also returns the requested widths."""
    widths = []

    def infer(source, prefix):
        widths.append(prefix.shape[1])
        following = np.where(prefix == BEGIN, source[:, :1], prefix + 1)
        following = np.where(following >= source[:, :1] + source[:, 1:2], END, following)
        return (np.eye(40)[following],)

    return infer, widths


def test_greedy_continues_until_each_row_has_its_end():
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
    return executor(infer), TextHeld(Split((source, targets, targets), reference=Reference(texts)))


def counted(start, count):
    return " ".join(f"w{start + at}" for at in range(count))


def test_the_references_themselves_have_bleu_100():
    pytest.importorskip("sacrebleu")
    texts = [counted(4, 5), counted(10, 6), counted(20, 5), counted(5, 4)]
    assert Bleu(10.0).measure(*translating(texts)) == pytest.approx(100.0)


def test_bleu_equals_sacrebleus_of_the_whole_corpus():
    sacrebleu = pytest.importorskip("sacrebleu")
    texts = [counted(4, 5), counted(11, 6), counted(20, 7), "other words stand here"]
    network, held = translating(texts)
    said = Bleu(10.0).translations(network, held)
    assert said == [counted(4, 5), counted(10, 6), counted(20, 5), counted(5, 4)]
    assert 0 < Bleu(10.0).measure(network, held) < 100
    assert Bleu(10.0).measure(network, held) == pytest.approx(sacrebleu.corpus_bleu(said, [texts]).score)


def test_the_signature_states_options_and_version():
    sacrebleu = pytest.importorskip("sacrebleu")
    assert Bleu(10.0).signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"


def test_without_sacrebleu_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sacrebleu.metrics.bleu", None)
    with pytest.raises(MissingError, match=r"(?i)pip install \"levelbench\[text\]\""):
        _ = Bleu(10.0).signature


def test_a_scale_without_a_lower_end_is_refused_by_its_name():
    class Explained(Top1):
        metric, low = "r2", -math.inf

    with pytest.raises(DefinitionError, match="low, is -inf"):
        Explained(0.9).as_target()
