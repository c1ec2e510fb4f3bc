"""Models on other data: verdicts by hand and by SciPy, published ratios of errors, coverage, and what is answered to
designs that tell nothing."""

import numpy as np
import pytest

from levelbench.analysis.generalization import QualityKind, ScoredArm, ScoredSet, generalization
from levelbench.errors import UsageError
from levelbench.report.generalization import generalization_lines, generalization_tables, scores_table
from levelbench.report.tables import to_text

TEST = ScoredSet("test", "test", "test split", 1000)
NOISE = [ScoredSet(f"noise{at}", "made", "made", 1000, "noise") for at in (1, 2)]
BLUR = ScoredSet("blur", "made", "made", 1000, "blur")
OTHER = ScoredSet("other", "transfer", "last layer", 500)
SEEDS = (0, 1, 2, 3, 4)
PLAIN = (0.910, 0.912, 0.908, 0.911, 0.909)


def arm(label, *rows, seeds=SEEDS):
    return ScoredArm(label, seeds, tuple(map(tuple, rows)))


def moved(by, spread=0.0005):
    """As PLAIN, moved by so many points, with a little spread of the differences."""
    return [each + by / 100 + spread * (-1) ** at for at, each in enumerate(PLAIN)]


def kinds(found):
    return [each.against.kind for each in found.scores if each.against is not None]


@pytest.mark.parametrize(("by", "kind"), [(3.0, "BETTER"), (-3.0, "WORSE"), (0.0, "SAME")])
def test_a_difference_beyond_the_margin_or_inside_it_has_a_verdict(by, kind):
    found = generalization("top1", [TEST], [arm("plain", PLAIN), arm("fast", moved(by))])
    (against,) = [each.against for each in found.scores if each.against]
    assert (against.kind, against.paired, against.runs_to_settle) == (QualityKind(kind), True, None)
    assert against.points.value == pytest.approx(by + 0.01, abs=1e-9)


def test_paired_intervals_are_scipys_at_the_joint_level():
    stats = pytest.importorskip("scipy.stats")
    found = generalization("top1", [TEST, BLUR], [arm("plain", PLAIN, PLAIN), arm("fast", moved(1), moved(-1))])
    assert found.joint_level == pytest.approx(0.975)
    wanted = stats.ttest_rel(np.array(moved(-1)) * 100, np.array(PLAIN) * 100).confidence_interval(0.975)
    inside = found.of("blur")[1].against.points.interval
    assert (inside.low, inside.high) == pytest.approx((wanted.low, wanted.high))


def test_other_seeds_are_compared_by_welch_and_the_order_of_the_same_seeds_does_not_matter():
    stats = pytest.importorskip("scipy.stats")
    other = arm("fast", moved(-1), seeds=(5, 6, 7, 8, 9))
    (against,) = [each.against for each in generalization("top1", [TEST], [arm("a", PLAIN), other]).scores[1:]]
    wanted = stats.ttest_ind(np.array(moved(-1)) * 100, np.array(PLAIN) * 100, equal_var=False).confidence_interval()
    assert not against.paired
    assert (against.points.interval.low, against.points.interval.high) == pytest.approx((wanted.low, wanted.high))
    turned = arm("fast", moved(-1)[::-1], seeds=SEEDS[::-1])
    plain, straight = arm("a", PLAIN), arm("fast", moved(-1))
    assert generalization("top1", [TEST], [plain, turned]).scores[1].against == (
        generalization("top1", [TEST], [plain, straight]).scores[1].against
    )


def test_a_metric_of_which_less_is_better_turns_the_verdict():
    arms = [arm("a", PLAIN), arm("b", moved(-3))]
    assert kinds(generalization("error", [TEST], arms, direction="lower")) == [QualityKind.BETTER]


def test_falls_are_counted_from_the_test_split_and_compared():
    rows = PLAIN, [each - 0.10 for each in PLAIN]
    worse = moved(0), [each - 0.15 + 0.001 * (-1) ** at for at, each in enumerate(moved(0))]
    found = generalization("top1", [TEST, BLUR], [arm("plain", *rows), arm("fast", *worse)])
    base, other = found.of("blur")
    assert base.fall.value == pytest.approx(10)
    assert other.fall.value == pytest.approx(15, abs=0.05)
    assert other.falls_more.value == pytest.approx(5, abs=0.05)
    assert other.falls_more.interval.low > 4
    assert found.of("test")[1].fall is None


def test_transfer_has_no_fall_because_its_classes_are_others():
    found = generalization("top1", [TEST, OTHER], [arm("plain", PLAIN, PLAIN), arm("fast", moved(0), moved(0))])
    assert found.of("other")[1].fall is None
    assert found.of("other")[1].against.kind is QualityKind.SAME


def test_mean_corruption_error_is_that_of_hendrycks_and_dietterich():
    # Errors of the baseline: noise 0.10 + 0.30, blur 0.20; of the other: 0.20 + 0.40, blur 0.10.
    base = arm("a", [0.95] * 3, [0.9] * 3, [0.7] * 3, [0.8] * 3, seeds=(0, 1, 2))
    other = arm("b", [0.95] * 3, [0.8] * 3, [0.6] * 3, [0.9] * 3, seeds=(0, 1, 2))
    (found,) = generalization("top1", [TEST, *NOISE, BLUR], [base, other]).corruption_errors
    assert found.relative.value == pytest.approx((0.6 / 0.4 + 0.1 / 0.2) / 2)
    assert (found.kinds, found.relative.interval) == (2, None)


@pytest.mark.parametrize("spreads", [(0.01, 0.01), (0.02, 0.005)])
def test_the_interval_of_the_mean_corruption_error_counts_what_is_not_known_of_the_baseline(spreads):
    rng, held = np.random.default_rng(0), 0
    for _ in range(300):
        base, other = (arm(n, [0.9] * 5, 0.8 + s * rng.standard_normal(5)) for n, s in zip("ab", spreads, strict=True))
        (found,) = generalization("top1", [TEST, BLUR], [base, other]).corruption_errors
        held += found.relative.interval.low <= 1 <= found.relative.interval.high
    assert held >= 0.91 * 300


def test_the_mean_corruption_error_against_one_model_has_no_interval():
    base, other = arm("a", [0.9], [0.8], seeds=(0,)), arm("b", [0.9] * 3, [0.75, 0.76, 0.77], seeds=(0, 1, 2))
    (found,) = generalization("top1", [TEST, BLUR], [base, other]).corruption_errors
    assert found.relative.interval is None


def test_unclear_says_how_many_more_models_would_settle_it():
    rng = np.random.default_rng(1)
    noisy = [arm(name, 0.9 + 0.01 * rng.standard_normal(5)) for name in ("a", "b")]
    found = generalization("top1", [TEST], noisy)
    (against,) = [each.against for each in found.scores if each.against]
    assert against.kind is QualityKind.UNCLEAR
    assert against.runs_to_settle > 5
    assert "more models each" in to_text(generalization_tables(found)[0], 200)


def test_one_model_gives_a_number_and_no_verdict_and_says_how_to_make_more():
    found = generalization("top1", [TEST], [arm("a", [0.9], seeds=(0,)), arm("b", [0.8], seeds=(0,))])
    (against,) = [each.against for each in found.scores if each.against]
    assert (against.kind, against.points) == (None, None)
    assert "one model is no sample" in against.reason
    assert any("--keep-model" in line for line in found.lacks)


def test_two_models_give_a_difference_and_no_verdict():
    found = generalization("top1", [TEST], [arm("a", [0.9, 0.91], seeds=(0, 1)), arm("b", [0.8, 0.82], seeds=(0, 1))])
    (against,) = [each.against for each in found.scores if each.against]
    assert against.points.value == pytest.approx(-9.5)
    assert against.kind is None
    assert "3 models" in against.reason


def test_differences_that_are_all_the_same_have_no_interval_and_no_verdict():
    found = generalization("top1", [TEST], [arm("a", PLAIN), arm("b", moved(-1, spread=0.0))])
    (against,) = [each.against for each in found.scores if each.against]
    assert (against.kind, against.points.interval) == (None, None)
    assert "no spread" in against.reason


def test_models_alone_have_qualities_and_the_advice_to_name_a_baseline():
    found = generalization("top1", [TEST, BLUR], [arm("a", PLAIN, PLAIN)])
    assert kinds(found) == []
    assert "name the runs" in generalization_lines(found)[-1]
    assert "fall_points" in {column.key for column in generalization_tables(found)[0].columns}


@pytest.mark.parametrize(
    ("sets", "arms", "margin", "words"),
    [
        ([BLUR], [arm("a", PLAIN)], 0.5, "test split"),
        ([TEST], [], 0.5, "no models"),
        ([TEST, BLUR], [arm("a", PLAIN)], 0.5, "one score"),
        ([TEST], [arm("a", [1.5] * 5)], 0.5, "shares"),
        ([TEST], [arm("a", PLAIN)], 0.0, "margin"),
    ],
)
def test_what_is_no_comparison_is_refused(sets, arms, margin, words):
    with pytest.raises(UsageError, match=words):
        generalization("top1", sets, arms, margin=margin)


@pytest.mark.slow
def test_equal_arms_are_never_called_different_more_often_than_stated():
    rng, wrong = np.random.default_rng(7), 0
    for _ in range(400):
        rows = [[0.9 + 0.004 * rng.standard_normal(5) for _ in range(4)] for _ in range(2)]
        arms = [arm("a", *rows[0]), arm("b", *rows[1], seeds=(5, 6, 7, 8, 9))]
        wrong += bool(
            {QualityKind.BETTER, QualityKind.WORSE} & {*kinds(generalization("top1", [TEST, *NOISE, BLUR], arms))}
        )
    # 5 % of 400 with a normal bound of three deviations.
    assert wrong <= 20 + 3 * 4.4


def test_the_long_table_has_every_arm_on_every_set():
    found = generalization("top1", [TEST, BLUR], [arm("a", PLAIN, PLAIN), arm("b", moved(1), moved(1))])
    assert len(scores_table(found).rows) == 4


def test_it_shows_itself_in_a_notebook():
    from levelbench.report.notebook import SHOWN

    found = generalization("top1", [TEST], [arm("a", PLAIN), arm("b", moved(-3))])
    html = SHOWN["levelbench.analysis.generalization", "Generalization"](found)
    assert "WORSE on test" in html
    assert "<table" in html


def test_the_interval_of_a_quality_stays_within_all_and_none():
    found = generalization("top1", [TEST], [arm("perfect", (1.0, 0.99, 1.0), seeds=(0, 1, 2)),
                                            arm("worst", (0.0, 0.01, 0.0), seeds=(0, 1, 2))])  # fmt: skip
    best, worst = (each.quality.interval for each in found.scores)
    assert (best.high, worst.low) == (1.0, 0.0)
    assert best.low < 0.99 < worst.high + 0.99
