"""What lies in a site's folder may have come with a checkout: none of it is believed, followed or published."""

import fcntl
import json
import os
from datetime import date

import pytest
from tests.competition.site.leaderboards import DAY, write

from levelbench.competition import site as payloads
from levelbench.competition.entries import (
    Author,
    SubmittedCurve,
    SubmittedRun,
    SystemPrice,
)
from levelbench.competition.leaderboard import SITE_MARKER
from levelbench.competition.site.build import LOCK, STAGING, build
from levelbench.errors import DefinitionError, StoreError, UsageError

FORGED_MARKER = '{"made_by":"levelbench board build","files":[]}'


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "leaderboard"
    write(place, "one")
    write(place, "two", 20.0)
    return place


@pytest.fixture
def elsewhere(tmp_path):
    """A folder of somebody's own, which a link could lead to."""
    place = tmp_path / "elsewhere"
    place.mkdir()
    (place / "thesis.txt").write_text("mine")
    return place


@pytest.mark.parametrize("name", ["assets", "data", "entries"])
def test_a_folder_of_the_site_that_is_a_link_is_refused(folder, site, elsewhere, name):
    site.mkdir()
    (site / SITE_MARKER).write_text(FORGED_MARKER)
    (site / name).symlink_to(elsewhere)
    with pytest.raises(UsageError, match="link"):
        build(folder, site, today=DAY)
    assert [path.name for path in elsewhere.iterdir()] == ["thesis.txt"]


def test_a_site_that_is_a_link_is_refused(folder, site, elsewhere):
    site.symlink_to(elsewhere)
    with pytest.raises(UsageError, match="is a link"):
        build(folder, site, today=DAY)
    assert [path.name for path in elsewhere.iterdir()] == ["thesis.txt"]


def test_a_link_on_the_way_to_a_site_in_the_leaderboards_folder_is_refused(folder, elsewhere):
    (folder / "public").symlink_to(elsewhere)
    with pytest.raises(UsageError, match="public is a link"):
        build(folder, folder / "public" / "site", today=DAY)
    assert [path.name for path in elsewhere.iterdir()] == ["thesis.txt"]


def test_a_leaderboard_that_is_reached_through_a_link_of_ones_own_is_none_of_them(folder, tmp_path):
    (tmp_path / "mine").symlink_to(folder)
    assert build(tmp_path / "mine", tmp_path / "mine" / "site", today=DAY).entries == 2


def test_a_link_where_files_are_written_first_is_not_written_through(folder, site, elsewhere):
    build(folder, site, today=DAY)
    (site / STAGING).symlink_to(elsewhere)
    with pytest.raises(UsageError, match="link"):
        build(folder, site, today=DAY)
    (site / STAGING).unlink()
    (site / STAGING / "entries").mkdir(parents=True)
    (site / STAGING / "entries" / "a.html").symlink_to(elsewhere / "thesis.txt")
    page = next((site / "entries").iterdir())
    page.unlink()
    os.link(elsewhere / "thesis.txt", page)
    build(folder, site, today=DAY)
    assert (elsewhere / "thesis.txt").read_text() == "mine"
    assert page.read_bytes() != b"mine"


@pytest.mark.parametrize("name", ["evil.html", "x/evil.html", "entries/x/evil.html"])
def test_a_page_that_no_build_made_is_refused(folder, site, name):
    build(folder, site, today=DAY)
    (site / name).parent.mkdir(exist_ok=True)
    (site / name).write_text("<script>alert(1)</script>")
    with pytest.raises(UsageError, match=r"evil\.html|: x\.|entries/x is not a plain file"):
        build(folder, site, today=DAY)


def test_a_page_among_the_entries_that_no_build_made_is_removed(folder, site):
    build(folder, site, today=DAY)
    (site / "entries" / "evil.html").write_text("<script>alert(1)</script>")
    assert build(folder, site, today=DAY).removed == ["entries/evil.html"]


def test_while_one_build_writes_a_second_says_so_and_changes_nothing(folder, site):
    build(folder, site, today=DAY)
    write(folder, "two", 5.0)
    before = (site / "leaderboard.csv").read_bytes()
    with (site / LOCK).open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="another build is writing it"):
            build(folder, site, today=DAY)
    assert (site / "leaderboard.csv").read_bytes() == before
    assert "leaderboard.csv" in build(folder, site, today=DAY).written


def test_two_entries_with_one_page_are_an_error(folder, site, monkeypatch):
    monkeypatch.setattr(payloads, "slug_of", lambda text: "the-same")
    with pytest.raises(DefinitionError, match="two of its pages are named"):
        build(folder, site, today=DAY)


@pytest.mark.parametrize("day", ["submitted", "price"])
def test_a_date_that_lies_ahead_is_judged_again_when_it_has_come(folder, site, day):
    parts = {"submitted": "2026-11-25"} if day == "submitted" else {"price": SystemPrice(3.06, read_on="2026-11-25")}
    write(folder, "ahead", 30.0, **parts)
    shown = [build(folder, site, today=date(2026, 11, number)).entries for number in (21, 23, 24, 26, 21)]
    assert shown == [2, 2, 3, 3, 2]


def runs_of(record, seconds=10.0):
    """One run made from that record; the copies differ in what nobody looks at."""
    return [SubmittedRun(SubmittedCurve([seconds / 2, seconds], [0.9, 0.941]), record_digest=record * 64)]


def names_shown(site):
    rows = json.loads((site / "leaderboard.json").read_text())["boards"][0]["entries"]
    return {row["model"]: row["findings"]["warnings"] for row in rows}


def test_a_copy_whose_file_comes_first_does_not_throw_the_earlier_entry_off_the_board(folder, site, tmp_path):
    write(folder, "original", runs=runs_of("a"), submitted="2018-01-01")
    build(folder, site, today=DAY)
    write(folder, "a-copy", runs=runs_of("a"), submitted="2018-01-02")
    built = build(folder, site, today=DAY)
    assert {"original", "a-copy"} & set(names_shown(site)) == {"original"}
    assert [(each.file, each.reasons[0][:4]) for each in built.not_shown] == [("cifar10/training/a-copy.json", "B241")]
    assert not list((site / "entries").glob("*a-copy*"))
    again = build(folder, site, today=DAY)
    assert (again.written, again.errors) == ([], built.errors)
    build(folder, tmp_path / "fresh", today=DAY)
    assert (site / "leaderboard.csv").read_bytes() == (tmp_path / "fresh" / "leaderboard.csv").read_bytes()
    (folder / "cifar10/training/original.json").unlink()
    assert build(folder, site, today=DAY).not_shown == []
    assert "a-copy" in names_shown(site)


def test_two_entries_of_one_day_with_one_record_are_both_shown_and_both_marked(folder, site):
    write(folder, "left", runs=runs_of("a"))
    before = (build(folder, site, today=DAY), names_shown(site))[1]
    write(folder, "right", runs=runs_of("a"))
    built = build(folder, site, today=DAY)
    shown = names_shown(site)
    assert (shown["left"], shown["right"]) == (before["left"] + 1, before["left"] + 1)
    assert [each.file for each in built.near] == [f"cifar10/training/{name}.json" for name in ("left", "right")]


def test_an_entry_that_is_not_shown_takes_no_place(folder, site):
    write(folder, "original", runs=runs_of("a"))
    write(folder, "a-thief", runs=runs_of("a"), submitted="2017-01-01", author=Author(" "))
    built = build(folder, site, today=DAY)
    assert "original" in names_shown(site)
    assert [each.file for each in built.not_shown] == ["cifar10/training/a-thief.json"]
