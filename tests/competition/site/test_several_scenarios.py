"""An entry that measured several scenarios is ranked in each of them, but has only one page."""

import csv
import io
import json
import re
from xml.etree import ElementTree

import msgspec
import pytest
from tests.browsing import violations
from tests.competition.site.leaderboards import DAY, DIGEST, assert_whole, files, inference, measure, thrice

from levelbench.competition.entries import Author
from levelbench.competition.site.build import TOO_MANY, build
from levelbench.report.numbers import ABSENT


def stream(seconds=0.011):
    figures = {"quantiles_s": {"0.9": seconds, "0.99": 0.013}, "estimate_s": seconds}
    return inference("single-stream", mean_latency_s=0.0101, **figures)


def server(bound_s=0.015, rate=100.0):
    figures = {"throughput_per_s": rate, "duration_s": 2000 / rate}
    return inference("server", latency_bound_s=bound_s, target_per_s=rate, **figures)


def batch(rate=98.0):
    return inference("offline", queries=1, throughput_per_s=rate, duration_s=2000 / rate)


ALL = (*thrice(stream()), *thrice(server()), batch(), batch(98.5), batch(99.0))
BOARDS = [f"digits_levelbench-1.0{name}.html" for name in ("", "_offline", "_server-15ms")]


@pytest.fixture
def folder(tmp_path):
    """Ada's entry of three scenarios, and Bob's of one, in which he is the better."""
    measure(tmp_path / "leaderboard", "ada", *ALL, author=Author("Ada"))
    measure(tmp_path / "leaderboard", "bob", *thrice(server(rate=101.0)), author=Author("Bob"))
    return tmp_path / "leaderboard"


def rankings(site):
    """Board by board its entries with their rank and the figure of its scenario."""
    found = {}
    for board in json.loads((site / "leaderboard.json").read_text())["boards"]:
        figures = [(each["model"], each["figures"]) for each in board["entries"]]
        (column,) = {name for _, known in figures for name in known} - {"inference_cost"}
        found[board["page"]] = [
            (name, known[column]["rank"], known[column]["text"].partition(" [")[0]) for name, known in figures
        ]
    return found


def page_of(site, name):
    (path,) = (site / "entries").glob(f"*{name}*.html")
    return path


def test_it_is_ranked_in_each_scenario_with_that_ones_own_figure(folder, site):
    built = build(folder, site, today=DAY)
    assert (built.boards, built.not_shown) == (BOARDS, [])
    assert rankings(site) == {
        BOARDS[0]: [("ada", 1, "11 ms")],
        BOARDS[1]: [("ada", 1, "98.5/s")],
        BOARDS[2]: [("bob", 1, "101/s"), ("ada", 2, "100/s")],
    }


def test_bounds_and_sizes_of_queries_are_scenarios_of_their_own(folder, site):
    wide = inference(
        "multi-stream", quantiles_s={"0.99": 0.02}, estimate_s=0.02, samples=16_000, throughput_per_s=784.0
    )
    measured = (*thrice(server()), *thrice(server(0.1, 97.0)), *thrice(wide))
    measure(folder, "ada", *measured, author=Author("Ada"))
    build(folder, site, today=DAY)
    assert {page: board[-1] for page, board in rankings(site).items()} == {
        "digits_levelbench-1.0_multi-stream-8.html": ("ada", 1, "20 ms"),
        "digits_levelbench-1.0_server-100ms.html": ("ada", 1, "97/s"),
        "digits_levelbench-1.0_server-15ms.html": ("ada", 2, "100/s"),
    }


def test_it_counts_as_one_entry_with_one_page_that_leads_to_each_of_its_boards(folder, site):
    built = build(folder, site, today=DAY)
    assert (built.entries, len(list((site / "entries").iterdir()))) == (2, 2)
    assert "2 entries on 3 boards" in (site / "index.html").read_text()
    page = page_of(site, "ada").read_text()
    assert set(re.findall(r'href="\.\./(digits_[^"]*)"', page)) == set(BOARDS)
    assert re.findall(r"<b>([^<]*)</b>", page)[::2] == ["11 ms", "100/s", "98.5/s"]
    assert_whole(site)


def test_a_doubt_about_one_scenario_is_reported_for_that_one_only(folder, site):
    measure(folder, "ada", stream(), server(), batch(), batch(99.0), author=Author("Ada"))
    build(folder, site, today=DAY)
    (doubts,) = re.findall(r"<h2>To keep in mind</h2><ul>(.*?)</ul>", page_of(site, "ada").read_text())
    single, few = "single run: nothing is known", "fewer than three processes"
    assert [text for text in re.findall(r"<li>(.*?)</li>", doubts) if single in text or few in text] == [
        "Digits: single run: nothing is known about its spread",
        "Digits, server within 15 ms: single run: nothing is known about its spread",
        "Digits, offline: fewer than three processes: little is known about its spread",
    ]


def test_a_measurement_that_does_not_count_leaves_the_other_scenarios_their_figures(folder, site):
    missed = msgspec.structs.replace(server(), target_per_s=150.0)
    measure(folder, "ada", *thrice(stream()), missed, *thrice(batch()), author=Author("Ada"))
    build(folder, site, today=DAY)
    assert [board[-1] for board in rankings(site).values()] == [
        ("ada", 1, "11 ms"), ("ada", 1, "98/s"), ("ada", None, ABSENT),
    ]  # fmt: skip


def test_programs_get_it_once_a_board_and_readers_of_the_feed_once(folder, site):
    build(folder, site, today=DAY, base_url="https://example.org/board")
    rows = list(csv.DictReader(io.StringIO((site / "leaderboard.csv").read_text())))
    assert [(row["scenario"], row["model"], row["throughput_value"], row["latency_value"]) for row in rows] == [
        ("", "ada", "", "0.011"),
        ("offline", "ada", "98.5", ""),
        ("server", "bob", "101.0", ""),
        ("server", "ada", "100.0", ""),
    ]
    assert len({row["page"] for row in rows if row["model"] == "ada"}) == 1
    atom = "{http://www.w3.org/2005/Atom}"
    items = ElementTree.parse(site / "feed.xml").findall(f"{atom}entry")
    assert [each.findtext(f"{atom}title") for each in items] == [
        "Digits, server within 15 ms: bob, Bob", "Digits: ada, Ada",
    ]  # fmt: skip
    summary = items[1].findtext(f"{atom}summary")
    assert [part.partition(",")[0].partition(" [")[0] for part in summary.split("; ")] == [
        "latency 11 ms", "Digits", "Digits",
    ]  # fmt: skip
    assert "Digits, offline: throughput 98.5/s [98.0, 99.0]" in summary


def test_a_change_of_it_makes_its_page_and_all_of_its_boards_again(folder, site, tmp_path):
    build(folder, site, today=DAY)
    measure(folder, "ada", *ALL[3:], *thrice(stream(0.012)), author=Author("Ada"), price=None)
    built = build(folder, site, today=DAY)
    names = [name.removesuffix(".html") for name in BOARDS]
    assert sorted(re.sub(DIGEST, ".", name) for name in built.written if "leaderboard" not in name) == sorted(
        [
            *(f"data/{name}.js" for name in names),
            "data/search.js",
            *BOARDS,
            "entries/digits-inference-ada.html",
            "index.html",
        ]
    )
    assert build(folder, site, today=DAY).written == []
    build(folder, tmp_path / "fresh", today=DAY)
    assert files(site) == files(tmp_path / "fresh")


def test_a_scenario_that_is_taken_out_takes_its_board_with_it(folder, site, tmp_path):
    build(folder, site, today=DAY)
    measure(folder, "ada", *ALL[:6], author=Author("Ada"))
    build(folder, site, today=DAY)
    assert list(rankings(site)) == [BOARDS[0], BOARDS[2]]
    assert not (site / BOARDS[1]).exists()
    assert_whole(site)
    build(folder, tmp_path / "fresh", today=DAY)
    assert files(site) == files(tmp_path / "fresh")


@pytest.fixture
def crowd(tmp_path, monkeypatch):
    """A task that may have two boards of scenarios, and has three: each of one entry alone, two of them Ada's."""
    monkeypatch.setattr("levelbench.competition.site.build.MOST_APART", 2)
    folder = tmp_path / "crowd"
    measure(folder, "ada", server(0.02), server(0.03, 98.0), author=Author("Ada"))
    measure(folder, "bob", server(0.04, 99.0), author=Author("Bob"))
    return folder


def test_of_too_many_boards_the_one_goes_that_leaves_no_entry_without_any(crowd, site):
    built = build(crowd, site, today=DAY)
    assert (built.entries, built.not_shown) == (2, [])
    assert built.boards == [f"digits_levelbench-1.0_server-{bound}ms.html" for bound in (20, 40)]
    page = page_of(site, "ada").read_text()
    assert "Too many boards: the task has none of Digits, server within 30 ms." in page
    assert "server-30ms.html" not in page
    assert_whole(site)
    assert build(crowd, site, today=DAY).written == []


def test_its_page_leads_to_a_board_as_soon_as_there_is_room_for_it(crowd, site, tmp_path):
    build(crowd, site, today=DAY)
    bob = crowd / "digits/inference/bob.json"
    text = bob.read_bytes()
    bob.unlink()
    build(crowd, site, today=DAY)
    assert "server-30ms.html" in page_of(site, "ada").read_text()
    assert_whole(site)
    bob.write_bytes(text)
    build(crowd, site, today=DAY)
    build(crowd, tmp_path / "fresh", today=DAY)
    assert files(site) == files(tmp_path / "fresh")


def test_it_is_not_shown_where_none_of_its_boards_is(crowd, site):
    for at, bound_s in enumerate((0.05, 0.06)):
        for twin in "xy":
            measured = server(bound_s, 90.0 + at + (twin == "x"))
            measure(crowd, f"{twin}{at}", measured, author=Author(f"Author {twin}{at}"))
    built = build(crowd, site, today=DAY)
    assert [(each.file, each.reasons) for each in built.not_shown] == [
        ("digits/inference/ada.json", [TOO_MANY]),
        ("digits/inference/bob.json", [TOO_MANY]),
    ]
    assert built.entries == len(list((site / "entries").iterdir())) == 4
    assert_whole(site)


def test_a_browser_finds_it_on_each_board_that_its_page_leads_to(folder, site, visit):
    build(folder, site, today=DAY)
    entry = page_of(site, "ada")
    found = {}
    for name in BOARDS:
        page = visit(entry)
        page.locator(f"main a[href='../{name}']").first.click()
        page.locator("html[data-ready]").wait_for(state="attached")
        found[name] = page.locator("#ranking tbody tr", has_text="Ada").locator("td.figure b").inner_text()
    assert found == dict(zip(BOARDS, ["11 ms", "98.5/s", "100/s"], strict=True))
    page.locator("#ranking tbody tr", has_text="Ada").locator(".entry a").click()
    assert page.url == entry.as_uri()


def test_the_page_of_several_scenarios_fits_a_phone_and_axe_finds_nothing_serious(folder, site, visit):
    build(folder, site, today=DAY)
    page = visit(page_of(site, "ada"))
    page.set_viewport_size({"width": 320, "height": 600})
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    page.set_viewport_size({"width": 1280, "height": 800})
    assert violations(page) == []
