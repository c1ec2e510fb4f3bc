"""A record states what it rests on: one run or several, their interval, and who shares the rank."""

import re

import pytest
from tests.competition.site.leaderboards import DAY, inference, measure

from levelbench.competition.site.boards import leaders_of, standing
from levelbench.competition.site.build import build
from levelbench.competition.site.pages import index_page, task_page


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
