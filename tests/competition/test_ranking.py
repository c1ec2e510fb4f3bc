"""Ranks by value, and what the tests of the runs say of them: worked examples, properties, and a simulation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelbench.competition.figures import MOST_PAIRED, BoardFigure, absent, median_figure, order, progress, rank


def ranks(figures, *, by_test=False):
    return [f"{each.rank}{'=' * each.shared}" for each in rank(figures, by_test=by_test)]


def open_ranks(*samples):
    """The ranks that the tests leave open, for entries with these runs."""
    found = rank([median_figure(each, "run") for each in samples], by_test=True)
    return [(each.rank, each.best, each.worst) for each in found]


def test_points_rank_by_their_value():
    assert ranks([BoardFigure(3.0), BoardFigure(1.0), BoardFigure(2.0)]) == ["3", "1", "2"]


def test_equal_points_share_a_rank_and_the_next_is_behind_all_of_them():
    assert ranks([BoardFigure(1.0), BoardFigure(1.0), BoardFigure(2.0)]) == ["1=", "1=", "3"]


@pytest.mark.parametrize("by_test", [True, False])
def test_a_wide_interval_shares_no_rank_with_a_better_value(by_test):
    lucky = median_figure([0.26, 70.0, 75.0, 77.0, 100.0, 130.0], "run")
    quick = median_figure([0.19, 0.2, 0.2, 0.2, 0.205, 0.21], "run")
    assert ranks([lucky, quick], by_test=by_test) == ["2", "1"]


def test_runs_that_differ_clearly_leave_one_rank_open_and_alike_runs_several():
    quick, close, slow = [1.0, 1.02, 0.98, 1.01, 0.99], [1.01, 1.03, 0.99, 1.02, 1.0], [2.0, 2.02, 1.98, 2.01, 1.99]
    assert open_ranks(slow, quick, close) == [(3, 3, 3), (1, 1, 2), (2, 1, 2)]


def test_the_p_value_is_of_the_figure_above_and_corrected_for_all_pairs():
    quick, close, slow = [1.0, 1.02, 0.98, 1.01], [1.05, 1.06, 1.02, 1.04], [1.1, 1.3, 1.0, 1.2]
    two = rank([median_figure(each, "run") for each in (quick, close)], by_test=True)
    three = rank([median_figure(each, "run") for each in (quick, close, slow)], by_test=True)
    assert two[0].p_above is None
    assert 0.0 < two[1].p_above < three[1].p_above


@pytest.mark.parametrize("n", [1, 2])
def test_fewer_than_three_runs_have_no_rank_however_quick_they_are(n):
    lucky, plain = rank(
        [median_figure([0.1] * n, "run"), median_figure([1.0, 1.1, 1.2], "run")],
        by_test=True,
    )
    assert (lucky.rank, lucky.best, lucky.why) == (None, None, f"no rank: a test needs 3 runs, it has {n}")
    assert (plain.rank, plain.best, plain.worst) == (1, 1, 1)


def test_where_values_decide_a_single_run_has_a_rank_and_nothing_is_tested():
    (only,) = rank([BoardFigure(0.1)], by_test=False)
    assert (only.rank, only.best, only.p_above, only.why) == (1, None, None, "")


def test_runs_that_never_arrive_are_part_of_the_test():
    some = median_figure([1.0, 1.1, 1.2, 1.3, 1.4], "run")
    many = BoardFigure(9.0, sample=(9.0, 9.1, 9.2, None, None))
    one = BoardFigure(1.2, sample=(1.0, 1.1, 1.2, 1.3, None))
    assert [(each.best, each.worst) for each in rank([some, many], by_test=True)] == [(1, 1), (2, 2)]
    assert [(each.best, each.worst) for each in rank([some, one], by_test=True)] == [(1, 2), (1, 2)]


def test_values_and_means_that_disagree_are_not_called_different():
    # By the median the first is quicker, by the geometric mean clearly the second.
    odd = BoardFigure(1.0, sample=(5.0, 5.1, 5.2, 5.3, 5.4))
    plain = BoardFigure(2.0, sample=(1.9, 2.0, 2.1, 2.0, 1.95))
    assert [each.p_above for each in rank([odd, plain], by_test=True)] == [None, 1.0]


@pytest.mark.parametrize("by_test", [True, False])
@pytest.mark.parametrize("unknown", [absent("no price is stated"), BoardFigure(math.nan)])
def test_what_has_no_value_is_unranked(unknown, by_test):
    assert ranks([unknown, median_figure([1.0, 1.1, 1.2], "run")], by_test=by_test) == ["None", "1"]


def test_in_a_large_table_only_neighbours_are_tested():
    noise = np.random.default_rng(0).lognormal(0.0, 0.01, (MOST_PAIRED + 1, 3))
    found = rank(
        [median_figure((1.1**at * each).tolist(), "run") for at, each in enumerate(noise)],
        by_test=True,
    )
    assert {(each.best, each.worst) for each in found} == {(None, None)}
    assert [each.p_above is None for each in found] == [True] + [False] * MOST_PAIRED


@pytest.mark.slow
@pytest.mark.parametrize(("n", "missed"), [(3, 0.0), (5, 0.0), (8, 0.0), (6, 0.2)])
def test_of_tables_of_equal_entries_at_most_one_in_twenty_calls_any_two_different(n, missed):
    random = np.random.default_rng(26)
    tables, wrong = 300, 0
    for _ in range(tables):
        times = random.lognormal(0.0, 0.15, (8, n)).tolist()
        samples = [[None if random.random() < missed else time for time in entry] for entry in times]
        figures = [
            BoardFigure(sorted(time for time in [*each, 9.0] if time is not None)[n // 2], sample=tuple(each))
            for each in samples
            if sum(time is not None for time in each) > n / 2
        ]
        found = rank(figures, by_test=True)
        wrong += any((each.best, each.worst) != (1, len(figures)) for each in found)
    # The 97.5 % quantile of a binomial with a share of 5 %.
    assert wrong <= 0.05 * tables + 1.96 * math.sqrt(tables * 0.05 * 0.95)


@pytest.mark.slow
def test_open_ranks_hold_the_true_rank_of_every_entry_in_nineteen_tables_of_twenty():
    random = np.random.default_rng(26)
    true, tables, wrong = np.array([1.0, 1.02, 1.1, 1.1, 1.5]), 200, 0
    for _ in range(tables):
        runs = true[:, None] * random.lognormal(0.0, 0.05, (5, 6))
        found = rank([median_figure(each.tolist(), "run") for each in runs], by_test=True)
        lowest = [1 + int((true < each).sum()) for each in true]
        highest = [int((true <= each).sum()) for each in true]
        wrong += any(
            place.best > high or place.worst < low for place, low, high in zip(found, lowest, highest, strict=True)
        )
    assert wrong <= 0.05 * tables + 1.96 * math.sqrt(tables * 0.05 * 0.95)


def test_the_order_of_a_board_is_by_rank_then_value_then_name():
    few = BoardFigure(0.1, sample=(0.1,))
    plain = [median_figure([value, value, value], "run") for value in (2.0, 1.5, 1.5)]
    figures = [plain[0], absent(""), plain[1], plain[2], few]
    assert order(figures, rank(figures, by_test=True), ["a", "b", "d", "c", "e"]) == [3, 2, 0, 4, 1]


def test_progress_is_each_entry_that_was_better_than_all_before():
    entries = [("2018-01-03", 5.0), ("2018-01-01", 9.0), ("2018-01-02", 9.5), ("2018-01-04", None), ("2018-01-05", 4.0)]
    assert progress(entries) == [("2018-01-01", 9.0, 1), ("2018-01-03", 5.0, 0), ("2018-01-05", 4.0, 4)]


@pytest.mark.parametrize("day", ["2019-6-27", "", "tomorrow", "20180101"])
def test_an_entry_without_a_day_holds_no_record(day):
    assert progress([(day, 1.0)]) == []


def test_of_one_day_only_the_best_is_a_record():
    assert progress([("2018-01-01", 9.0), ("2018-01-01", 8.0)]) == [("2018-01-01", 8.0, 1)]


@st.composite
def figure(draw):
    if draw(st.integers(0, 5)) == 0:
        return absent("none")
    n = draw(st.integers(1, 5))
    return median_figure([float(draw(st.integers(1, 20))) for _ in range(n)], "run")


boards = st.lists(figure(), max_size=8)


@given(boards, st.booleans())
@settings(max_examples=40, deadline=None)
def test_no_worse_value_has_a_smaller_rank_and_each_is_one_more_than_those_before(figures, by_test):
    placed = [
        (each.value, place.rank)
        for each, place in zip(figures, rank(figures, by_test=by_test), strict=True)
        if place.rank is not None
    ]
    assert all(a <= b for value, a in placed for other, b in placed if value < other)
    assert all(place == 1 + sum(other < place for _, other in placed) for _, place in placed)


@given(boards)
@settings(max_examples=40, deadline=None)
def test_the_open_ranks_hold_the_rank_by_value(figures):
    for each in rank(figures, by_test=True):
        assert each.rank is None or each.best <= each.rank <= each.worst


@given(boards, st.booleans(), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_ranks_do_not_depend_on_the_order_of_the_entries(figures, by_test, random):
    shuffled = list(range(len(figures)))
    random.shuffle(shuffled)
    found = rank(figures, by_test=by_test)
    again = rank([figures[at] for at in shuffled], by_test=by_test)
    assert [(found[at].rank, found[at].why) for at in shuffled] == [(each.rank, each.why) for each in again]


def test_ten_thousand_entries_are_ranked_without_comparing_each_with_each():
    class Counted(float):
        compared = 0

        def __lt__(self, other):
            Counted.compared += 1
            return float.__lt__(self, other)

    figures = [BoardFigure(Counted(at * 7919 % 10_007)) for at in range(10_000)]
    found = rank(figures, by_test=False)
    assert sorted(each.rank for each in found) == list(range(1, 10_001))
    assert Counted.compared < 1_000_000
