"""The front page: tasks of several systems side by side, the records over the years, search, published scores."""

import json
import re

import msgspec
import pytest
from tests.competition.site.browsing import watched
from tests.competition.site.leaderboards import DAY, TARGET, write

from levelbench.competition.entries import SubmittedCurve, SubmittedRun
from levelbench.competition.rulesets import ruleset, task_rules
from levelbench.competition.site.build import build
from levelbench.competition.site.index import PublishedScore, compared, published_words, read_published
from levelbench.errors import UsageError

HEAD = "entry,column,published,why\n"


def five_runs(folder, name, *seconds, **parts):
    """An entry of MLPerf's rules that reaches the target after these times."""
    target = task_rules(ruleset("mlperf-training-like-1.0"), "cifar10").target
    runs = [
        SubmittedRun(SubmittedCurve([time / 2, time], [0.5, target.threshold]), energy_j=100.0, energy_method="rapl")
        for time in seconds
    ]
    changes = {"ruleset": "mlperf-training-like-1.0", "clock": "mlperf", "target": target, "origin": None}
    write(folder, name, **{**changes, "submitted": "2026-11-21", "runs": runs, **parts})


def rows_of(page, title):
    """The cells of each row of the table with that caption, as text."""
    (body,) = re.findall(rf"<caption class=\"hidden\">{title}</caption>.*?<tbody>(.*?)</tbody>", page)
    cells = (re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in body.split("</tr>") if row)
    return [[re.sub("<[^>]*>", "", cell) for cell in row] for row in cells]


def test_boards_of_the_same_data_stand_side_by_side_with_record_cost_and_energy(folder, site):
    write(folder, "older", 100.0, submitted="2017-10-10")
    five_runs(folder, "several", 20.0, 21.0, 22.0, 23.0, 24.0)
    build(folder, site, today=DAY)
    ours, dawnbench = sorted(rows_of((site / "index.html").read_text(), "Tasks across systems"), key=lambda row: row[3])
    assert ours[:4] == ["CIFAR-10", "CIFAR-10, training", "mlperf-training-like-1.0", "1"]
    assert ours[8:] == ["1", "$0.019", "$0.019", "100 J"]
    assert dawnbench[2:8] == ["dawnbench-1.0", "4", "2017–2018", "0:01:40", "0:00:10", "10×"]
    assert dawnbench[8] == "not tested"


def test_a_published_order_says_which_ranks_tests_of_several_runs_leave_open(folder, site):
    five_runs(folder, "quick", 10.0, 10.1, 10.2, 10.3, 10.4)
    five_runs(folder, "close", 10.05, 10.15, 10.25, 10.35, 10.45)
    five_runs(folder, "slow", 20.0, 20.1, 20.2, 20.3, 20.4)
    build(folder, site, today=DAY)
    (board,) = [
        each for each in json.loads((site / "leaderboard.json").read_text())["boards"] if "mlperf" in each["ruleset"]
    ]
    times = {each["model"]: each["figures"]["time"] for each in board["entries"]}
    assert {name: (each["rank"], each["best"], each["worst"]) for name, each in times.items()} == {
        "quick": (1, 1, 2), "close": (2, 1, 2), "slow": (3, 3, 3),
    }  # fmt: skip


def test_a_record_that_fell_is_drawn_over_the_years(folder, site):
    assert "Records over the years" not in built_index(folder, site)
    write(folder, "newer", 5.0, submitted="2020-01-01")
    page = built_index(folder, site)
    assert page.count('class="plot progress"') == 1
    assert "2020-01-01: 0:00:05" in page


def built_index(folder, site, **given):
    build(folder, site, today=DAY, **given)
    return (site / "index.html").read_text()


@pytest.mark.parametrize(
    ("column", "text", "ours", "agrees"),
    [
        ("time", "0:00:10", "0:00:10", True),
        ("time", "00:00:11", "0:00:10", False),
        ("time", "10.00 s", "10.00 s", True),
        ("time", "0.17 min", "0.17 min", True),
        ("time", "0.167 min", "0.167 min", True),
        ("time", "0.16 min", "0.17 min", False),
        ("time", "10,000 ms", "10000 ms", True),
        ("cost", "$0.01", "$0.01", True),
        ("cost", "8.5e-3 USD", "0.0085 USD", True),
        ("cost", "$0.02", "$0.01", False),
    ],
)
def test_a_published_score_is_compared_to_its_last_printed_digit(folder, site, column, text, ours, agrees):
    built = build(folder, site, today=DAY, published=[PublishedScore("first", column, text)])
    assert [(each.ours, each.agrees) for each in built.published] == [(ours, agrees)]


def test_every_deviation_stands_on_the_page_with_its_reason_or_without_one(folder, site):
    scores = [
        PublishedScore("first.json", "time", "0:00:10"),
        PublishedScore("second", "time", "0:00:19", "rounded down"),
        PublishedScore("third", "time", "0:00:29"),
        PublishedScore("gone", "time", "0:00:29"),
        PublishedScore("first", "latency", "1 ms"),
    ]
    built = build(folder, site, today=DAY, published=scores)
    words = (
        "1 of 3 published scores reproduced to the printed digit (33.33 %); 2 deviations, 1 without an explanation; "
        "2 more of entries or figures that are not here: gone (time) and 1 more"
    )
    assert published_words(built.published) == words
    page = (site / "index.html").read_text()
    assert words in page
    assert rows_of(page, "Deviations") == [
        ["second", "Time to accuracy", "0:00:19", "0:00:20", "rounded down"],
        ["third", "Time to accuracy", "0:00:29", "0:00:30", "not explained"],
    ]


def test_a_name_that_two_entries_have_is_compared_with_neither(by_hand):
    board = by_hand.board([by_hand.entry("a"), by_hand.entry("b")])
    twice = [msgspec.structs.replace(each, id=each.id[:-1] + "same") for each in board.entries]
    apart = [msgspec.structs.replace(each, id=f"{at}") for at, each in enumerate(twice)]
    score = PublishedScore("0", "time", "10 s")
    assert compared([msgspec.structs.replace(board, entries=apart)], [score])[0].agrees
    both = [msgspec.structs.replace(each, origin=by_hand.entry("c", origin=None).origin) for each in apart]
    assert not compared([msgspec.structs.replace(board, entries=both)], [PublishedScore("x", "time", "10 s")])[0].page


@pytest.mark.parametrize(
    ("line", "said"),
    [("a,speed,1 s,", "column 'speed'"), (",time,1 s,", "entry is ''"), ("a,time,soon,", "'soon' is no figure")],
)
def test_a_line_that_is_no_published_score_is_named(tmp_path, line, said):
    path = tmp_path / "printed.csv"
    path.write_text(f"{HEAD}a,time,1 s,\n{line}\n")
    with pytest.raises(UsageError, match=rf"line 3: .*{re.escape(said)}"):
        read_published(path)


def test_the_search_finds_entries_of_all_boards_and_loads_them_only_when_asked(folder, site, shared):
    five_runs(folder, "several", 20.0, 21.0, 22.0, 23.0, 24.0)
    build(folder, site, today=DAY)
    wrong = []
    page = watched(shared, wrong)
    page.goto((site / "index.html").as_uri())
    assert page.locator("script[src^='data/']").count() == 0
    page.fill("#f-q", "mlperf several")
    page.wait_for_function("document.getElementById('found').textContent.startsWith('1 of 4')")
    assert page.inner_text("#search tbody tr").split("\t")[0].split()[0] == "1"
    assert [page.inner_text(f"#search td[data-label={name}]") for name in ("Cost", "Energy")] == ["$0.019", "100 J"]
    page.fill("#f-q", "first")
    assert page.get_attribute("#search tbody a", "href").startswith("entries/cifar10-training-first-")
    assert wrong == []
    assert TARGET.metric == "top1"


@pytest.mark.parametrize("how", ["a move", "a link into it"])
def test_the_data_of_a_large_board_is_loaded_at_the_first_move_or_for_a_link_into_it(
    folder, site, shared, monkeypatch, how
):
    monkeypatch.setattr("levelbench.competition.site.build.LATER_BYTES", 0)
    build(folder, site, today=DAY)
    wrong = []
    page = watched(shared, wrong)
    page.goto((site / "cifar10_dawnbench-1.0.html").as_uri() + ("" if how == "a move" else "#sort=date"))
    if how == "a move":
        assert page.locator("script[src^='data/']").count() == 0
        assert page.locator("#ranking tbody tr").count() == 3
        page.mouse.move(50, 50)
    page.wait_for_selector("html[data-ready=yes]")
    assert page.locator("script[src^='data/']").count() == 1
    page.fill("#filters input[type=search]", "second")
    page.wait_for_function("document.querySelectorAll('#ranking tbody tr').length === 1")
    assert wrong == []
