"""A site has the content of a leaderboard: its boards, its entries, and why some are not shown."""

import re
from base64 import b64decode
from datetime import date

import pytest
from tests.competition.site.leaderboards import DATA, DAY, DIGEST, assert_whole, files, write

from levelbench.competition.site.build import build
from levelbench.errors import DefinitionError, UnknownNameError, UsageError

CARRIED = rf'<a download="([^"]*)" href="{DATA}([^"]*)">'


def test_a_site_has_an_index_a_board_its_data_and_a_page_an_entry(folder, site):
    built = build(folder, site, today=DAY)
    assert (built.entries, built.read, built.errors, built.not_shown) == (3, 3, 0, [])
    names = sorted(files(site))
    assert {"index.html", "cifar10_dawnbench-1.0.html", "leaderboard.csv"} <= set(names)
    assert sum(re.fullmatch(r"data/cifar10_dawnbench-1\.0-[0-9a-f]{10}\.js", name) is not None for name in names) == 1
    entries = [name for name in names if name.startswith("entries/cifar10-training-")]
    assert [name.rpartition(".")[2] for name in entries] == ["html"] * 3
    assert_whole(site)
    assert "first" in (site / "index.html").read_text()


def test_the_page_of_an_entry_carries_its_file_byte_for_byte(folder, site):
    build(folder, site, today=DAY)
    links = [re.findall(CARRIED, page.read_text()) for page in (site / "entries").glob("*.html")]
    assert {b64decode(content) for ((_, content),) in links} == {path.read_bytes() for path in folder.rglob("*.json")}
    assert sorted(re.sub(DIGEST, ".", name) for ((name, _),) in links) == [
        "cifar10-training-first.json", "cifar10-training-second.json", "cifar10-training-third.json"
    ]  # fmt: skip


def test_a_broken_file_is_listed_with_its_reason_and_stops_no_other(folder, site):
    (folder / "cifar10/training/broken.json").write_text("{")
    built = build(folder, site, today=DAY)
    assert built.entries == 3
    assert [each.file for each in built.not_shown] == ["cifar10/training/broken.json"]
    assert built.not_shown[0].reasons[0].startswith("B101")
    assert "broken.json" in (site / "index.html").read_text()


def test_an_entry_with_errors_is_not_shown_with_what_to_do(folder, site):
    write(folder, "future", submitted="2031-01-01")
    built = build(folder, site, today=DAY)
    assert built.entries == 3
    assert built.not_shown[0].reasons == [
        "B118 submitted: it is 2031-01-01, but today is 2026-11-21. Write the day of submission."
    ]
    assert build(folder, site, today=date(2031, 1, 1)).entries == 4


def test_all_entries_can_be_scored_under_one_ruleset(folder, site):
    write(folder, "ours", ruleset="levelbench-1.0", crossing="confirmed")
    built = build(folder, site, ruleset="dawnbench-1.0", today=DAY)
    assert built.boards == ["cifar10_dawnbench-1.0.html"]


def test_a_ruleset_that_is_not_there_is_refused_with_the_nearest(folder, site):
    with pytest.raises(UnknownNameError, match=r"dawnbench-1\.0"):
        build(folder, site, ruleset="dawnbench-1.1", today=DAY)
    assert not site.exists()


def test_board_toml_gives_title_and_address_and_the_address_a_feed(folder, site):
    (folder / "board.toml").write_text('title = "Fast & few"\nurl = "https://example.org/board"')
    build(folder, site, today=DAY)
    assert "Fast &amp; few" in (site / "index.html").read_text()
    assert b"https://example.org/board/entries/" in (site / "feed.xml").read_bytes()
    assert_whole(site)


def test_a_board_toml_that_cannot_be_read_is_an_error(folder, site):
    (folder / "board.toml").write_text("title = 3")
    with pytest.raises(DefinitionError, match="title"):
        build(folder, site, today=DAY)


def test_a_folder_with_something_else_in_it_is_left_alone(folder, site):
    site.mkdir()
    (site / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"files that are not from a levelbench site: thesis\.txt"):
        build(folder, site, today=DAY)
    assert [path.name for path in site.iterdir()] == ["thesis.txt"]


def test_what_a_repositorys_pages_need_may_lie_there_and_stays(folder, site):
    site.mkdir()
    (site / "CNAME").write_text("example.org")
    (site / ".nojekyll").write_text("")
    build(folder, site, today=DAY)
    build(folder, site, today=DAY)
    assert (site / "CNAME").read_text() == "example.org"
    assert (site / ".nojekyll").exists()


def test_the_site_may_lie_in_the_leaderboards_own_folder(folder):
    build(folder, folder / "site", today=DAY)
    built = build(folder, folder / "site", today=DAY)
    assert (built.entries, built.read, built.not_shown, built.written) == (3, 3, [], [])


def test_no_name_in_an_entry_leads_out_of_the_site(folder, site):
    for at, name in enumerate(("../../../etc/passwd", "CON", "a" * 190, "<script>")):
        write(folder, f"entry{at}", 50.0 + at, model=name)
    build(folder, site, today=DAY)
    assert {path.parent.name for path in site.rglob("*.html")} <= {"site", "entries"}
    assert all(re.fullmatch(r"[a-z0-9-]+\.(html|json)", path.name) for path in (site / "entries").iterdir())


def test_a_page_that_cannot_be_rendered_leaves_the_site_as_it_was(folder, site, monkeypatch):
    build(folder, site, today=DAY)
    before = files(site)
    monkeypatch.setattr("levelbench.competition.site.build.index_page", lambda *given, **named: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        build(folder, site, today=DAY)
    assert files(site) == before


def test_several_processes_build_the_same_site(folder, site, tmp_path, monkeypatch):
    monkeypatch.setattr("levelbench.competition.leaderboard.FEW", 1)
    build(folder, site, today=DAY, processes=2)
    build(folder, tmp_path / "one", today=DAY)
    assert files(site) == files(tmp_path / "one")


@pytest.mark.parametrize("address", ["javascript:alert(1)", "example.org/board", "file:///etc", 'https://a.org/"x'])
def test_a_site_is_at_an_address_of_the_web_or_nowhere(folder, site, address):
    with pytest.raises(UsageError, match="--base-url"):
        build(folder, site, base_url=address, today=DAY)
    (folder / "board.toml").write_text(f"url = '{address}'")
    with pytest.raises(DefinitionError, match="url: it is"):
        build(folder, site, today=DAY)
    assert not site.exists()
