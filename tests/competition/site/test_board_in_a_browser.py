"""A board's page in headless Chromium: a reader uses its columns, filters, target and curves."""

import html
import re

import msgspec
import pytest
from tests.competition.site.browsing import names, write_site

from levelbench.competition.figures import BoardFigure, aggregate, median_figure
from levelbench.competition.rulesets import Aggregation
from levelbench.competition.site import brief, figure_text
from levelbench.competition.site.boards import filled
from levelbench.competition.site.pages import task_page

pytest.importorskip("playwright.sync_api")


def test_the_board_opens_sorted_by_rank_with_what_has_none_last(board):
    assert names(board()) == ["alpha", "beta", "gamma"]


def test_a_column_is_chosen_with_the_arrow_keys(board):
    page = board()
    page.locator("input[value=time]").focus()
    page.keyboard.press("ArrowRight")
    assert names(page) == ["gamma", "alpha", "beta"]
    assert page.locator("#ranking caption").inner_text() == "Ranking by cost of training"
    page.keyboard.press("ArrowRight")
    assert names(page) == ["delta"]
    assert page.locator("#slider").is_hidden()


def test_a_heading_sorts_both_ways_and_says_so(board):
    page = board()
    heading = page.get_by_role("button", name="Date")
    heading.click()
    assert names(page) == ["beta", "gamma", "alpha"] or names(page) == ["beta", "alpha", "gamma"]
    assert page.locator("th.date").get_attribute("aria-sort") == "ascending"
    page.keyboard.press("Enter")
    assert names(page)[2] == "beta"
    assert page.locator("th.date").get_attribute("aria-sort") == "descending"


def test_what_has_no_figure_is_last_whichever_way_it_is_sorted(board):
    assert names(board("#sort=figure")) == ["alpha", "beta", "gamma"]
    assert names(board("#sort=figure%3Adesc")) == ["beta", "alpha", "gamma"]


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ("q=tpu", ["beta"]),
        ("q=alpha+pytorch", ["alpha"]),
        ("framework=JAX", ["beta"]),
        ("hardware=gpu", ["alpha", "gamma"]),
        ("division=open", ["alpha", "beta", "gamma"]),
        ("division=closed", []),
        ("division=closed&column=latency", ["delta"]),
        ("signed=wrong", ["gamma"]),
        ("runs=3", ["alpha"]),
        ("from=2024-01-01", ["alpha", "gamma"]),
        ("to=2023-12-31", ["beta"]),
        ("q=nothing+like+it", []),
    ],
)
def test_a_link_shows_what_its_filter_lets_through(board, filters, left):
    assert names(board(f"#{filters}")) == left


def test_typing_filters_and_says_how_many_are_left_and_changes_the_link(board):
    page = board()
    page.get_by_label("Search").fill("beta")
    assert names(page) == ["beta"]
    assert page.locator("#found").inner_text() == "1 of 3 entries by time to accuracy."
    page.get_by_label("Framework").select_option("PyTorch")
    assert names(page) == []
    assert page.evaluate("location.hash") == "#q=beta&framework=PyTorch"
    page.get_by_role("button", name="Reset").click()
    assert len(names(page)) == 3
    assert page.evaluate("location.hash") == ""
    assert page.get_by_label("Search").input_value() == ""


def test_at_another_target_the_ranking_is_computed_again_and_says_what_moved(board):
    page = board("#target=0.8")
    assert names(page) == ["beta", "gamma", "alpha"]
    assert page.locator("td.figure b").all_inner_texts() == ["2.00 s", "5.00 s", "8.00 s"]
    moves = page.locator("#ranking tbody .rank").all_inner_texts()
    assert "up 1 from rank 2" in moves[0]
    assert "in" in moves[1]
    assert "down 2 from rank 1" in moves[2]
    assert "as if the target were 80.00 %" in page.locator("#found").inner_text()
    page.get_by_role("button", name="Back to the rules' target").click()
    assert names(page) == ["alpha", "beta", "gamma"]


def test_the_slider_moves_with_the_keyboard_and_says_its_value_in_words(board):
    page = board()
    slider = page.get_by_role("slider")
    assert slider.get_attribute("aria-valuetext") == "90.00 %"
    slider.focus()
    page.keyboard.press("End")
    assert slider.get_attribute("aria-valuetext") == "95.00 %"
    assert page.locator("td.figure b").all_inner_texts() == ["19.0 s", "never", "never"]
    assert page.evaluate("location.hash") == "#target=0.95"


def test_the_median_counts_runs_that_do_not_arrive_behind_all_others(board):
    page = board()
    at = """([times, threshold]) => { const lb = window.levelbench;
      const shown = lb.timeAt(times.map((t) => t === null ? [] : [0.9, t]), threshold, false,
        {aggregation_rule: "median", drop: 0}); return shown === Infinity ? "never" : shown; }"""
    assert page.evaluate(at, [[1, 2, 3, 4], 0.9]) == 2.5
    assert page.evaluate(at, [[1, 2, 3, None], 0.9]) == 2.5
    assert page.evaluate(at, [[1, 2, None, None], 0.9]) == "never"
    assert page.evaluate(at, [[1, None, None], 0.9]) == "never"
    assert page.evaluate(at, [[5, None, 1], 0.9]) == 5
    # The build computes the same figure for the same runs.
    for times in ([1.0, 2.0, 3.0, None], [1.0, 2.0, None, None], [5.0, None, 1.0], [1.0, 2.0, 3.0, 4.0, None, None]):
        figure = aggregate(times, Aggregation("median", 1))
        assert page.evaluate(at, [times, 0.9]) == ("never" if figure.value is None else figure.value)


def test_an_olympic_mean_drops_the_ends_and_lets_one_failure_be_the_slowest(board):
    page = board()
    at = """(times) => { const steps = times.map((t) => t === null ? [] : [0.9, t]);
      const found = window.levelbench.timeAt(steps, 0.9, false, {aggregation_rule: "olympic", drop: 1});
      return found === Infinity ? "never" : found; }"""
    assert page.evaluate(at, [1, 2, 4, 100]) == 3
    assert page.evaluate(at, [1, 2, 4, None]) == 3
    assert page.evaluate(at, [1, 2, None, None]) == "never"


@pytest.mark.parametrize(
    ("rules", "times"),
    [
        *((Aggregation("olympic", 3, 1, windows=even), [5.0, 9.0, 6.0, 1.0]) for even in ("lower", "upper", "mean")),
        (Aggregation("olympic", 3, 1, windows="upper"), [5.0, 9.0, 6.0, 7.0, None, 4.0]),
        (Aggregation("olympic", 3, 1, windows="upper"), [1.0, 2.0, 9.0]),
        (Aggregation("median", 6, best_of=2), [9.0, 5.0, None, 7.0, 6.0, 8.0]),
    ],
)
def test_windows_and_studies_have_the_same_figure_as_in_the_build(board, rules, times):
    at = """([times, rules]) => window.levelbench.timeAt(
      times.map((t) => t === null ? [] : [0.9, t]), 0.9, false, rules)"""
    facts = {each: getattr(rules, each) for each in ("runs", "drop", "best_of", "windows")}
    assert board().evaluate(at, [times, {**facts, "aggregation_rule": rules.rule}]) == aggregate(times, rules).value


def test_curves_are_chosen_by_checkbox_and_kept_in_the_link(board):
    page = board()
    page.get_by_role("checkbox", name="Curve of alpha, alpha author").check()
    page.get_by_role("checkbox", name="Curve of beta, beta author").check()
    assert page.locator("#curves path.line:not([d='M0 3H30'])").count() == 4
    assert page.evaluate("location.hash") == "#curves=alpha%2Cbeta"
    page.get_by_role("button", name="Remove beta, beta author").press("Enter")
    assert page.locator("#curves path.line:not([d='M0 3H30'])").count() == 3


ABOUT = (
    "[...document.querySelectorAll('[data-about]')].filter((each) => !each.hidden).map((each) => each.dataset.about)"
)


@pytest.mark.parametrize(
    ("fragment", "about"),
    [
        ("#column=", ["rules", "training"]),
        ("#target=0.8", ["asked", "training"]),
        ("#column=latency", ["rules", "inference"]),
        ("#column=latency&target=0.8", ["rules", "inference"]),
    ],
)
def test_the_note_tells_how_this_column_is_ranked_at_this_target(board, fragment, about):
    assert board(fragment).evaluate(ABOUT) == about


def test_a_column_of_inference_has_no_curves_and_names_its_latency(board):
    page = board("#column=latency&runs=3")
    assert page.locator("#found").inner_text() == "1 of 1 entries by latency (multi-stream, 99th percentile)."
    assert page.locator("#ranking thead").inner_text().split() == [
        "Rank", "▲", "Entry", "Latency", "Interval", "Division", "Hardware", "Framework", "Date", "Code", "Notes",
    ]  # fmt: skip
    # No entry has three measurements, and a filter without matches is not offered.
    hidden = [page.locator(where).is_hidden() for where in ("#overlaid", ".field.runs", "#ranking input")]
    assert hidden == [True, True, True]


def test_one_curve_too_many_is_refused_and_reported(board):
    page = board()
    page.evaluate("window.levelbench.SERIES = 2")
    for name in ("alpha", "beta", "gamma"):
        page.get_by_role("checkbox", name=f"Curve of {name}").press("Space")
    page.evaluate("window.levelbench.SERIES = 8")
    assert page.evaluate("location.hash") == "#curves=alpha%2Cbeta"
    assert page.locator("#ranking input:checked").count() == 2
    assert "untick one first" in page.locator("#found").inner_text()
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Curve of gamma, gamma author"


@pytest.mark.parametrize(
    "fragment",
    [
        "#page=999",
        "#column=toString&sort=__proto__&from=never",
        "#target=abc&page=-1",
        "#curves=,,nothing",
        "#%E0%A4%A",
    ],
)
def test_a_link_that_makes_no_sense_shows_the_whole_ranking(board, fragment):
    assert names(board(fragment)) == ["alpha", "beta", "gamma"]


def test_every_record_over_time_is_reached_by_the_keyboard(board):
    page = board()
    points = page.locator("[data-progress=time] a")
    points.first.focus()
    assert points.first.get_attribute("aria-label") == "2023-02-03: 20 s, beta, beta author"
    assert page.evaluate("document.activeElement.getAttribute('href')") == "entries/beta.html"


PRINTED = """[
  ["filters", "slider", "tools"].every((id) => ![...document.getElementById(id).querySelectorAll("button,input,select")]
    .some((each) => each.checkVisibility())),
  document.querySelector("td.code").checkVisibility(),
  getComputedStyle(document.querySelector("td.hardware")).overflowWrap,
  document.querySelector("#rules").innerText.includes("https://example.org/rules"),
]"""


def test_on_paper_there_are_no_controls_and_no_addresses_in_the_table(board):
    page = board()
    page.emulate_media(media="print")
    hidden, code, wrap, source = page.evaluate(PRINTED)
    page.emulate_media(media="screen")
    assert (hidden, code, wrap, source) == (True, False, "break-word", True)


def test_a_long_board_is_shown_in_pages(board):
    page = board()
    page.evaluate("window.levelbench.PAGE = 2")
    assert names(board()) == ["alpha", "beta"]
    page.get_by_role("button", name="Last page").click()
    assert names(page) == ["gamma"]
    assert page.locator("#pager span").inner_text() == "3–3 of 3"
    page.get_by_label("Search").fill("a")
    assert names(page) == ["alpha", "beta"]
    page.evaluate("window.levelbench.PAGE = 200")


def test_on_paper_all_rows_are_there(board):
    page = board()
    page.evaluate("window.levelbench.PAGE = 2")
    assert names(board()) == ["alpha", "beta"]
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert names(page) == ["alpha", "beta", "gamma"]
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert names(page) == ["alpha", "beta"]
    page.evaluate("window.levelbench.PAGE = 200")


def test_the_script_writes_what_is_small_or_large_as_the_build_does(board):
    values = [1e-300, 2.078e-7, 0.0042, 12.5, 123.4, 1e18]
    texts = "(values) => values.map((value) => [value * 1e-9, value].map((each) => board.dollars(each)))"
    shown = board().evaluate(texts.replace("board", "window.levelbench"), values)
    assert shown == [[f"${brief(value * 1e-9)}", f"${brief(value, 5 if value >= 100 else 3)}"] for value in values]
    cents = board().evaluate("(values) => values.map((value) => window.levelbench.dollars(value, true))", values[:4])
    assert cents == [figure_text("cost", BoardFigure(value), "ceil-seconds") for value in values[:4]]


def test_the_script_shows_the_same_ranks_as_the_page_without_it(visit, tmp_path, by_hand):
    def entry(name, *times):
        figure = median_figure(times, "run")
        payload = by_hand.figure(figure.value, f"{figure.value} s", low=figure.low, high=figure.high)
        figures = {"time": msgspec.structs.replace(payload, sample=figure.sample)}
        return by_hand.entry(name, n=len(times), machine="9c5d1b", figures=figures, steps=[[(0.9, t)] for t in times])

    rules = msgspec.structs.replace(by_hand.board([]).ruleset, by_test=True)
    made = [entry("a", 1.0, 1.01, 1.02), entry("b", 1.005, 1.02, 1.03), entry("c", 2.0, 2.1, 2.2), entry("lucky", 0.1)]
    board = filled(by_hand.board([], ruleset=rules), made)
    page = visit(write_site(tmp_path, board, []) / "task.html")
    ranks = "[...document.querySelectorAll('#ranking tbody td.rank')].map((each) => each.textContent)"
    assert names(page) == ["a", "b", "c", "lucky"]
    assert page.evaluate(ranks) == [text_of(row) for row in static_ranks(task_page(board))]
    assert "no rank: a test needs 3 runs, it has 1" in page.locator("#ranking tbody tr").last.inner_text()
    assert page.locator(".badge", has_text="machine 9c5d1b").count() == 4


def static_ranks(page):
    return re.findall(r'<td role="cell" class="rank">(.*?)</td>', page)


def text_of(cell):
    return html.unescape(re.sub(r"<[^>]*>", "", cell))
