"""A record states what it rests on: one run or several, their interval, and who shares the rank."""

import re

import msgspec
import pytest
from tests.competition.site.leaderboards import DAY, inference, measure

from levelbench.competition.site.boards import (
    TWIN,
    filled,
    leaderboard_csv,
    leaders_of,
    ranking_table,
    rankings,
    standing,
)
from levelbench.competition.site.build import build
from levelbench.competition.site.index import index_page
from levelbench.competition.site.pages import task_page
from levelbench.report.tables import to_markdown


@pytest.mark.parametrize(
    ("changes", "text", "rule", "more", "said"),
    [
        ({"n": 1}, "10 s", "median", 0, "single run"),
        ({"n": 1}, "10 s", "median", 2, "single run, shared with 2 more"),
        ({"n": 5, "reached": 5}, "10 s [9, 11]", "median", 1, "reached 5/5, [9, 11], shared with 1 more"),
        ({"n": 5, "reached": 3}, "10 s [9, \u221e]", "median", 0, "reached 3/5, [9, \u221e]"),
        ({"n": 5, "reached": 5}, "10 s", "olympic", 0, "reached 5/5, no interval"),
        ({"n": 2, "reached": 2}, "0:00:10", "first-run", 0, "first of 2 runs, no interval"),
        ({"n": 3, "reached": 2, "mode": "inference"}, "1 ms [1, 2]", "median", 0, "2/3 measurements, [1, 2]"),
    ],
)
def test_a_record_says_what_it_rests_on(by_hand, changes, text, rule, more, said):
    entry = by_hand.entry("a", figures={"time": by_hand.figure(10.0, text)}, **changes)
    assert standing(entry, "time", rule, more) == said


def test_the_index_and_the_board_say_it_of_each_record(by_hand):
    figures = {"time": by_hand.figure(10.0, "10 s [9, 11]", shared=True), "cost": by_hand.figure(0.01, "$0.01")}
    several = by_hand.entry("several", n=5, reached=5, single_run=False, figures=figures)
    alone = by_hand.entry("alone", figures={"time": by_hand.figure(10.5, "10.5 s", shared=True)})
    board = by_hand.board([several, alone])
    said = ["reached 5/5, [9, 11], shared with 1 more", "reached 5/5, no interval"]
    index = index_page("A", "2026-11-21", 2, [(board, leaders_of(board))])
    assert re.findall(r'<dd class="by">([^<]*)</dd>', index) == said
    assert re.findall(r'<span class="by">([^<]*)</span></li>', task_page(board)) == said


def test_each_division_says_it_of_its_own_record(by_hand):
    divided = [by_hand.entry("a", division="closed", n=5, reached=5), by_hand.entry("b")]
    page = task_page(by_hand.board(divided))
    assert "closed: reached 5/5, no interval; open: single run" in page


def test_the_feed_says_it_of_each_entry(tmp_path, site):
    measure(tmp_path / "board", "one", inference("offline", queries=1))
    build(tmp_path / "board", site, base_url="https://example.org", today=DAY)
    assert "98/s, inference cost $8.67 (single run) on a machine" in (site / "feed.xml").read_text()


def placed(by_hand, name, rank, best, worst, p_above, **changes):
    figures = {"time": by_hand.figure(10.0 * rank, f"{10 * rank} s", rank)}
    figures["time"] = msgspec.structs.replace(figures["time"], best=best, worst=worst, p_above=p_above)
    return by_hand.entry(name, n=5, reached=5, single_run=False, figures=figures, **changes)


def test_a_row_has_the_open_ranks_and_whether_it_differs_from_the_one_above(by_hand):
    entries = [
        placed(by_hand, "a", 1, 1, 2, None),
        placed(by_hand, "b", 2, 1, 2, 0.3),
        placed(by_hand, "c", 3, 3, 3, 0.0002),
    ]
    page = task_page(by_hand.board(entries))
    assert re.findall(r'<span aria-hidden="true">([^<]*)</span><span class="hidden">([^<]*)</span></small>', page) == [
        ("1\u20132", "rank 1 to 2 by the tests"),
        ("\u2248 1\u20132", "rank 1 to 2 by the tests; not distinguishable from the one above, p = 0.3"),
        ("3", "rank 3 by the tests; distinguishable from the one above, p &lt; 0.001"),
    ]
    assert "not distinguishable from 1 more" in page


def test_the_signature_and_the_mark_of_the_machine_stand_side_by_side(by_hand):
    page = task_page(by_hand.board([by_hand.entry("a", machine="9c5d1b"), by_hand.entry("b")]))
    badge = '<li class="badge plain">unsigned</li><li class="badge plain">machine 9c5d1b</li>'
    assert page.count(badge) == page.count("unsigned") == 1


def test_how_a_re_run_ended_is_beside_the_mark_of_the_machine(by_hand):
    words = "re-run: inconsistent, samples 2.01 times [1.80, 2.20], 2026-11-28, A CPU"
    page = task_page(by_hand.board([by_hand.entry("a", rerun=words), by_hand.entry("b")]))
    assert page.count(f'<li class="badge bad long">{words}</li>') == page.count("re-run:") == 1


def test_the_head_of_a_page_does_not_hide_that_its_record_is_in_doubt(by_hand):
    doubted, trusted = (by_hand.board([placed(by_hand, "a", 1, 1, 1, None, doubts=each)]) for each in (["d"], []))
    assert [leaders_of(board)[0].standing.endswith("with doubts") for board in (doubted, trusted)] == [True, False]


def test_how_a_re_run_ended_is_in_the_row_of_every_table(by_hand):
    words = "re-run: inconsistent, samples 2.01 times [1.80, 2.20], 2026-11-28, A CPU"
    board = by_hand.board([placed(by_hand, "a", 1, 1, 1, None, rerun=words, doubts=["d"])])
    assert rankings(board, 5)[0].rows[0].said == [words, "d"]
    assert words in leaderboard_csv([board]).decode()


def test_entries_of_one_author_and_model_say_what_differs(by_hand):
    def entry(name, author, **traits):
        return by_hand.entry(name, model="mlp", author=author, differs={"batch": "64", **traits})

    several = [entry("a", "Ada", lr="0.1"), entry("b", "Ada", lr="0.2"), entry("c", "Ada"), entry("d", "Bob", lr="0.3")]
    board = filled(by_hand.board([]), several)
    assert {each.slug: each.differs for each in board.entries} == {
        "a": {"lr": "0.1"}, "b": {"lr": "0.2"}, "c": {"lr": "not stated"}, "d": {},
    }  # fmt: skip
    assert "differs in lr 0.2" in task_page(board)


def test_a_board_in_the_order_of_values_says_by_which_rules(by_hand):
    assert "Entries are in the order of their values, as the rules rules-1.0 say" in task_page(by_hand.board([]))


def test_a_ranking_as_a_table_has_what_the_page_has(by_hand):
    entries = [placed(by_hand, "a", 1, 1, 2, None, machine="9c5d1b"), placed(by_hand, "b", 2, 1, 2, 0.3, doubts=["d"])]
    ranking = rankings(by_hand.board(entries), 5)[0]
    assert [(each.rank, each.ranks, each.against, each.said) for each in ranking.rows] == [
        (1, "1 to 2", "", []), (2, "1 to 2", "not distinguishable from the one above, p = 0.3", ["d"]),
    ]  # fmt: skip
    text = to_markdown(ranking_table(ranking))
    assert "| 2 | 1 to 2 | b, b author | 20 s | no, p = 0.3 |  |  | d |" in text


@pytest.mark.parametrize("by_test", [True, False])
def test_entries_of_one_author_that_state_the_same_are_doubted_where_a_test_decides(by_hand, by_test):
    rules = msgspec.structs.replace(by_hand.board([]).ruleset, by_test=by_test)
    stated = [("a", "0.1"), ("b", "0.1"), ("c", "0.2")]
    entries = [by_hand.entry(name, model="mlp", author="Ada", differs={"lr": lr}) for name, lr in stated]
    board = filled(by_hand.board([], ruleset=rules), entries)
    assert {each.slug: each.doubts == [TWIN] for each in board.entries} == {"a": by_test, "b": by_test, "c": False}
