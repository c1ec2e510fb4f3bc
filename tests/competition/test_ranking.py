"""Ranks by intervals: worked examples, then properties that hold for every board."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelbench.competition.figures import BoardFigure, absent, order, progress, rank


def ranks(figures):
    return [f"{each.rank}{'=' * each.shared}" for each in rank(figures)]


def is_clearly_better(a, b):
    return a.value is not None and b.value is not None and (a.high or a.value) < (b.low or b.value)


def test_points_rank_by_their_value():
    assert ranks([BoardFigure(3.0), BoardFigure(1.0), BoardFigure(2.0)]) == ["3", "1", "2"]


def test_equal_points_share_a_rank_and_the_next_is_behind_all_of_them():
    assert ranks([BoardFigure(1.0), BoardFigure(1.0), BoardFigure(2.0)]) == ["1=", "1=", "3"]


def test_intervals_that_overlap_share_a_rank():
    assert ranks([BoardFigure(10, 9, 11), BoardFigure(10.5, 9.5, 11.5), BoardFigure(20, 18, 22)]) == ["1=", "1=", "3"]


def test_a_new_rank_begins_behind_a_clearly_better_entry():
    # The third overlaps the second and is clearly behind the first.
    assert ranks([BoardFigure(1.5, 1, 2), BoardFigure(2.25, 1.5, 3), BoardFigure(3.25, 2.5, 4)]) == ["1=", "1=", "3"]


def test_a_wide_interval_gains_no_rank_before_a_better_value():
    tight, close, wide = (
        BoardFigure(10.0, 9.9, 10.1),
        BoardFigure(11.0, 10.98, 11.02),
        BoardFigure(100.0, 5.0, math.inf),
    )
    assert ranks([wide, close, tight]) == ["2=", "2=", "1"]


def test_a_single_run_is_compared_as_a_point():
    assert ranks([BoardFigure(10.0), BoardFigure(9, 8, 11), BoardFigure(12.0)]) == ["1=", "1=", "3"]


@pytest.mark.parametrize("unknown", [absent("no price is stated"), BoardFigure(math.nan)])
def test_what_has_no_value_is_unranked(unknown):
    assert ranks([unknown, BoardFigure(1.0)]) == ["None", "1"]


def test_an_interval_that_does_not_hold_its_value_reaches_to_it():
    assert ranks([BoardFigure(10.0, 11.0, 12.0), BoardFigure(10.5, 10.5, 10.5)]) == ["1=", "1="]
    assert ranks([BoardFigure(10.0, 8.0, 9.0), BoardFigure(9.5, 9.5, 9.5)]) == ["1=", "1="]


def test_an_open_interval_is_never_clearly_better():
    assert ranks([BoardFigure(1.0, 0.5, math.inf), BoardFigure(100.0)]) == ["1=", "1="]


def test_the_order_of_a_board_is_by_rank_then_value_then_name():
    figures = [BoardFigure(2.0, 1, 3), absent(""), BoardFigure(1.5, 1, 3), BoardFigure(1.5, 1, 3)]
    assert order(figures, rank(figures), ["a", "b", "d", "c"]) == [3, 2, 0, 1]


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
    value = draw(st.integers(1, 20))
    if draw(st.booleans()):
        return BoardFigure(float(value))
    return BoardFigure(float(value), float(value - draw(st.integers(0, 4))), float(value + draw(st.integers(0, 4))))


boards = st.lists(figure(), max_size=12)


@given(boards)
@settings(max_examples=40, deadline=None)
def test_no_worse_value_has_a_smaller_rank_and_each_is_one_more_than_those_before(figures):
    placed = [(each.value, place.rank) for each, place in zip(figures, rank(figures), strict=True)]
    known = [(value, place) for value, place in placed if value is not None]
    assert all(a <= b for value, a in known for other, b in known if value < other)
    assert all(place == 1 + sum(other < place for _, other in known) for _, place in known)
    assert all(place is None for value, place in placed if value is None)


@given(boards)
@settings(max_examples=40, deadline=None)
def test_clearly_better_holds_in_one_direction_and_means_a_smaller_rank(figures):
    found = rank(figures)
    for a, of_a in zip(figures, found, strict=True):
        for b, of_b in zip(figures, found, strict=True):
            if is_clearly_better(a, b):
                assert not is_clearly_better(b, a)
                assert of_a.rank < of_b.rank


@given(boards, st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_ranks_do_not_depend_on_the_order_of_the_entries(figures, random):
    shuffled = list(range(len(figures)))
    random.shuffle(shuffled)
    found = rank(figures)
    assert [found[at] for at in shuffled] == rank([figures[at] for at in shuffled])


def test_ten_thousand_entries_are_ranked_without_comparing_each_with_each():
    class Counted(float):
        compared = 0

        def __lt__(self, other):
            Counted.compared += 1
            return float.__lt__(self, other)

    figures = [BoardFigure(Counted(at * 7919 % 10_007)) for at in range(10_000)]
    found = rank(figures)
    assert sorted(each.rank for each in found) == list(range(1, 10_001))
    assert Counted.compared < 1_000_000
