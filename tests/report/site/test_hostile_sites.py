"""What lies in a site's folder may have come with a checkout: none of it is believed, followed or published."""

import fcntl
import json
import os
import shutil
from datetime import date

import msgspec
import pytest
from tests.report.site.leaderboards import DAY, write

from levelbench.errors import DefinitionError, StoreError, UsageError
from levelbench.records.submissions.schema import (
    Author,
    Curve,
    Price,
    SubmittedRun,
)
from levelbench.report.site import entries, intake, outputs, state
from levelbench.report.site.build import build
from levelbench.report.site.place import LOCK
from levelbench.report.site.seal import seal, unseal
from levelbench.report.site.state import MARKER, STATE, State

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
    (site / MARKER).write_text(FORGED_MARKER)
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


def test_a_link_where_a_file_is_written_beside_its_place_is_not_written_through(folder, site, elsewhere):
    build(folder, site, today=DAY)
    (site / "entries" / outputs._BESIDE).symlink_to(elsewhere / "thesis.txt")
    with pytest.raises(UsageError, match="no plain file"):
        build(folder, site, today=DAY, force=True)
    (site / "entries" / outputs._BESIDE).unlink()
    os.link(elsewhere / "thesis.txt", site / "entries" / outputs._BESIDE)
    write(folder, "two", 30.0)
    build(folder, site, today=DAY)
    assert (elsewhere / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["evil.html", "x/evil.html", "entries/x/evil.html"])
def test_a_page_that_no_build_made_is_refused(folder, site, name):
    build(folder, site, today=DAY)
    (site / name).parent.mkdir(exist_ok=True)
    (site / name).write_text("<script>alert(1)</script>")
    with pytest.raises(UsageError, match=r"evil\.html|: x\.|entries/x is no plain file"):
        build(folder, site, today=DAY)


def test_a_page_among_the_entries_that_no_build_made_is_removed(folder, site):
    build(folder, site, today=DAY)
    (site / "entries" / "evil.html").write_text("<script>alert(1)</script>")
    assert build(folder, site, today=DAY).removed == ["entries/evil.html"]


def test_what_somebody_else_says_that_a_build_remembers_is_not_believed(folder, site):
    build(folder, site, today=DAY)
    remembered = msgspec.msgpack.decode((site / STATE).read_bytes()[32:], type=State)
    remembered.entries["cifar10/training/one"].payload = None
    remembered.entries["cifar10/training/one"].reasons = ["withdrawn by its author"]
    shutil.rmtree(site)
    site.mkdir()
    (site / MARKER).write_text(FORGED_MARKER)
    forged = msgspec.msgpack.encode(remembered)
    for raw in (forged, bytes(32) + forged):
        (site / STATE).write_bytes(raw)
        built = build(folder, site, today=DAY)
        assert (built.entries, built.read, built.not_shown) == (2, 2, [])
    assert build(folder, site, today=DAY).read == 0


def test_what_was_remembered_of_another_site_is_not_believed(folder, site, tmp_path):
    build(folder, site, today=DAY)
    shutil.copytree(site, tmp_path / "copy")
    assert build(folder, tmp_path / "copy", today=DAY).read == 2


def test_without_a_place_for_a_key_nothing_is_remembered(folder, site, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LEVELBENCH_CACHE", str(tmp_path / "file"))
    build(folder, site, today=DAY)
    assert not (site / STATE).exists()
    assert build(folder, site, today=DAY).read == 2


def test_a_key_that_others_may_read_is_no_secret_and_another_is_made(site, cache):
    sealed = seal(site, b"text") + b"text"
    assert unseal(site, sealed) == b"text"
    key = next(cache.iterdir())
    assert key.stat().st_mode & 0o777 == 0o600
    key.chmod(0o644)
    assert unseal(site, sealed) is None
    assert unseal(site, seal(site, b"text") + b"text") == b"text"
    assert unseal(site, sealed) is None


def test_while_one_build_writes_a_second_says_so_and_changes_nothing(folder, site):
    build(folder, site, today=DAY)
    write(folder, "two", 5.0)
    before = (site / "leaderboard.csv").read_bytes()
    with (site / LOCK).open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="another build is writing it"):
            build(folder, site, today=DAY)
    assert (site / "leaderboard.csv").read_bytes() == before
    assert build(folder, site, today=DAY).read == 1


def test_two_entries_with_one_page_are_an_error(folder, site, monkeypatch):
    monkeypatch.setattr(entries, "slug_of", lambda text: "the-same")
    with pytest.raises(DefinitionError, match="two of its pages are named"):
        build(folder, site, today=DAY)


@pytest.mark.parametrize("day", ["submitted", "price"])
def test_a_date_that_lies_ahead_is_judged_again_when_it_has_come(folder, site, day):
    parts = {"submitted": "2026-11-25"} if day == "submitted" else {"price": Price(3.06, read_on="2026-11-25")}
    write(folder, "ahead", 30.0, **parts)
    shown = [build(folder, site, today=date(2026, 11, number)).entries for number in (21, 23, 24, 26, 21)]
    assert shown == [2, 2, 3, 3, 2]


def test_an_entry_whose_dates_have_come_is_not_read_again(folder, site):
    build(folder, site, today=DAY)
    assert build(folder, site, today=date(2027, 11, 21)).read == 0


def test_where_signatures_can_be_verified_now_every_entry_is_read_again(folder, site, monkeypatch):
    monkeypatch.setattr(intake, "available", lambda: False)
    build(folder, site, today=DAY)
    monkeypatch.setattr(intake, "available", lambda: True)
    assert build(folder, site, today=DAY).read == 2


@pytest.mark.parametrize(
    "source", ["measure/statistics/medians.py", "report/numbers.py", "claims/hardware/table.py", "tasks/digits.py"]
)
def test_a_source_that_figures_are_made_with_is_part_of_what_made_a_site(source, tmp_path, monkeypatch):
    for room in ("measure", "report", "records", "claims", "networks", "tasks", "runner"):
        (tmp_path / room).mkdir()
    monkeypatch.setattr(state.resources, "files", lambda package: tmp_path)
    monkeypatch.setattr(state, "_sources", state._sources.__wrapped__)
    before = state.made_by("1")
    (tmp_path / source).parent.mkdir(exist_ok=True)
    (tmp_path / source).write_text("changed")
    assert state.made_by("1") != before


def runs_of(record, seconds=10.0):
    """One run made from that record; the copies differ in what nobody looks at."""
    return [SubmittedRun(Curve([seconds / 2, seconds], [0.9, 0.941]), record_digest=record * 64)]


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
    assert (again.read, again.written, again.errors) == (0, [], built.errors)
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


def test_an_entry_that_is_not_shown_takes_nobodys_place(folder, site):
    write(folder, "original", runs=runs_of("a"))
    write(folder, "a-thief", runs=runs_of("a"), submitted="2017-01-01", author=Author(" "))
    built = build(folder, site, today=DAY)
    assert "original" in names_shown(site)
    assert [each.file for each in built.not_shown] == ["cifar10/training/a-thief.json"]
