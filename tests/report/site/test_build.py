"""A site is whole at every instant, and made again only where it must be."""

import os
import re
from base64 import b64decode
from datetime import date, timedelta

import msgspec
import pytest

from levelbench.errors import DefinitionError, UnknownNameError, UsageError
from levelbench.records.rulesets.registry import ruleset, task_rules
from levelbench.records.submissions.digests import encode
from levelbench.records.submissions.rules import rivals
from levelbench.records.submissions.schema import (
    Author,
    Curve,
    Hardware,
    Origin,
    Price,
    Submission,
    SubmittedRun,
)
from levelbench.report.site import build as building
from levelbench.report.site import pages
from levelbench.report.site.build import build
from levelbench.report.site.outputs import Outputs
from levelbench.report.site.place import LOCK
from levelbench.report.site.state import MARKER, STATE
from levelbench.report.site.workshop import CARRIED_BYTES

DAY = date(2026, 11, 21)
TARGET = task_rules(ruleset("dawnbench-1.0"), "cifar10").target
DATA = "data:application/json;base64,"
CARRIED = rf'<a download="([^"]*)" href="{DATA}([^"]*)">'
DIGEST = r"-(?:[0-9a-f]{10}|[a-z2-7]{26})\."


def write(folder, name, seconds=10.0, **parts):
    """An entry of one run, as an import of DAWNBench leaves it."""
    base = Submission(
        schema=1, ruleset="dawnbench-1.0", task="cifar10", mode="training", author=Author("An author"),
        submitted="2018-07-01", model=name, framework="torch", hardware=Hardware("a machine"), target=TARGET,
        clock="dawnbench", crossing="first", price=Price(3.06), origin=Origin("dawnbench", f"{name}.json"),
        runs=[SubmittedRun(Curve([seconds / 2, seconds, 2 * seconds], [0.9, 0.941, 0.95]))],
    )  # fmt: skip
    submission = msgspec.structs.replace(base, **parts)
    path = folder / submission.task / submission.mode / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode(submission))
    return path


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "leaderboard"
    for at, name in enumerate(("first", "second", "third")):
        write(place, name, 10.0 * (at + 1))
    return place


@pytest.fixture
def site(tmp_path):
    return tmp_path / "site"


def files(site):
    """Every file but what a build remembers, with its content."""
    found = {path.relative_to(site).as_posix(): path.read_bytes() for path in site.rglob("*") if path.is_file()}
    return {name: content for name, content in found.items() if name not in (STATE, MARKER, LOCK)}


def assert_whole(site):
    """Every link and script of every page leads to a file that is there."""
    for page in site.rglob("*.html"):
        for link in re.findall(r'(?:href|src)="([^"#]*)"', page.read_text()):
            assert link.startswith(("https://", DATA)) or (page.parent / link).is_file(), f"{page.name}: {link}"


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


def test_building_again_writes_nothing(folder, site):
    build(folder, site, today=DAY)
    built = build(folder, site, today=date(2026, 11, 25))
    assert (built.read, built.written, built.removed) == (0, [], [])


def test_a_whole_build_and_one_after_changes_are_the_same(folder, site, tmp_path):
    build(folder, site, today=DAY)
    write(folder, "second", 5.0)
    write(folder, "fourth", 7.0)
    (folder / "cifar10/training/third.json").unlink()
    build(folder, site, today=DAY)
    build(folder, tmp_path / "fresh", today=DAY)
    assert files(site) == files(tmp_path / "fresh")


def test_one_changed_entry_makes_its_page_and_the_board_again_and_nothing_else(folder, site):
    build(folder, site, today=DAY)
    write(folder, "second", 5.0)
    built = build(folder, site, today=DAY)
    assert built.read == 1
    kinds = sorted(re.sub(DIGEST, ".", name) for name in built.written)
    assert kinds == [
        "cifar10_dawnbench-1.0.html", "data/cifar10_dawnbench-1.0.js", "entries/cifar10-training-second.html",
        "index.html", "leaderboard.csv", "leaderboard.json",
    ]  # fmt: skip


def test_a_file_that_was_only_touched_is_not_read_again(folder, site):
    build(folder, site, today=DAY)
    os.utime(folder / "cifar10/training/first.json", ns=(1, 1))
    assert build(folder, site, today=DAY).read == 0


def test_a_page_that_somebody_changed_is_made_again(folder, site):
    build(folder, site, today=DAY)
    page = next((site / "entries").glob("*.html"))
    before = page.read_bytes()
    page.write_text("something else")
    built = build(folder, site, today=DAY)
    assert built.written == [f"entries/{page.name}"]
    assert page.read_bytes() == before


def test_the_page_of_an_entry_carries_its_file_byte_for_byte(folder, site):
    build(folder, site, today=DAY)
    links = [re.findall(CARRIED, page.read_text()) for page in (site / "entries").glob("*.html")]
    assert {b64decode(content) for ((_, content),) in links} == {path.read_bytes() for path in folder.rglob("*.json")}
    assert sorted(re.sub(DIGEST, ".", name) for ((name, _),) in links) == [
        "cifar10-training-first.json", "cifar10-training-second.json", "cifar10-training-third.json"
    ]  # fmt: skip


def test_a_file_too_large_for_a_page_lies_beside_it_and_goes_with_it(folder, site):
    first = folder / "cifar10/training/first.json"
    first.write_bytes(first.read_bytes() + b" " * CARRIED_BYTES)
    build(folder, site, today=DAY)
    (copy,) = (site / "entries").glob("*.json")
    assert copy.read_bytes() == first.read_bytes()
    assert f'href="../entries/{copy.name}"' in copy.with_suffix(".html").read_text()
    copy.unlink()
    assert build(folder, site, today=DAY).written == [f"entries/{copy.name}"]
    first.unlink()
    assert {f"entries/{copy.name}", f"entries/{copy.stem}.html"} <= set(build(folder, site, today=DAY).removed)


def test_the_page_of_an_entry_that_is_gone_goes_too(folder, site):
    build(folder, site, today=DAY)
    (folder / "cifar10/training/third.json").unlink()
    built = build(folder, site, today=DAY)
    gone = sorted(re.sub(DIGEST, ".", name) for name in built.removed)
    assert gone == ["data/cifar10_dawnbench-1.0.js", "entries/cifar10-training-third.html"]
    assert_whole(site)


def test_another_version_of_the_tool_makes_everything_again(folder, site, monkeypatch):
    build(folder, site, today=DAY)
    monkeypatch.setattr(building, "__version__", "99")
    assert build(folder, site, today=DAY).read == 3


def test_force_reads_everything_again(folder, site):
    build(folder, site, today=DAY)
    assert build(folder, site, today=DAY, force=True).read == 3


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
        "B118 submitted: it is 2031-01-01 and today is 2026-11-21. Write the day of submission."
    ]
    assert build(folder, site, today=date(2031, 1, 1)).entries == 4


def test_the_same_entry_twice_is_shown_once_until_the_first_is_gone(folder, site):
    copy = folder / "cifar10/training/zz.json"
    copy.write_bytes((folder / "cifar10/training/first.json").read_bytes())
    built = build(folder, site, today=DAY)
    assert [each.file for each in built.not_shown] == ["cifar10/training/zz.json"]
    assert not any("-zz-" in name for name in files(site))
    assert build(folder, site, today=DAY).read == 0
    (folder / "cifar10/training/first.json").unlink()
    assert build(folder, site, today=DAY).not_shown == []
    assert_whole(site)


def test_curves_that_are_nearly_copies_are_told_and_compared_once(folder, site, monkeypatch):
    times, qualities = [1.0, 2.1, 3.3, 4.2, 5.9, 7.0], [0.5, 0.7, 0.81, 0.9, 0.945, 0.95]
    write(folder, "whole", runs=[SubmittedRun(Curve(times, qualities))])
    write(folder, "young", runs=[SubmittedRun(Curve([0.5 * each for each in times], qualities))])
    built = build(folder, site, today=DAY)
    assert (built.entries, built.not_shown) == (5, [])
    (near,) = built.near
    assert near.file == "cifar10/training/young.json"
    assert near.reasons[0].startswith("B242 runs[0].curve: 6 of 6 points as in runs[0] of cifar10/training/")
    assert near.file in (site / "index.html").read_text()
    monkeypatch.setattr(rivals, "match", lambda *given: pytest.fail("it was compared before"))
    assert build(folder, site, today=DAY).near == built.near
    (folder / "cifar10/training/whole.json").unlink()
    assert build(folder, site, today=DAY).near == []


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
    with pytest.raises(UsageError, match=r"something else than a site of ours: thesis\.txt"):
        build(folder, site, today=DAY)
    assert [path.name for path in site.iterdir()] == ["thesis.txt"]


def test_what_a_repositorys_pages_need_may_lie_beside_and_stays(folder, site):
    site.mkdir()
    (site / "CNAME").write_text("example.org")
    (site / ".nojekyll").write_text("")
    build(folder, site, today=DAY)
    build(folder, site, today=DAY, force=True)
    assert (site / "CNAME").read_text() == "example.org"
    assert (site / ".nojekyll").exists()


def test_the_site_may_lie_in_the_leaderboards_own_folder(folder):
    build(folder, folder / "site", today=DAY)
    built = build(folder, folder / "site", today=DAY)
    assert (built.entries, built.read, built.not_shown, built.written) == (3, 0, [], [])


def test_no_name_in_an_entry_leads_out_of_the_site(folder, site):
    for at, name in enumerate(("../../../etc/passwd", "CON", "a" * 190, "<script>")):
        write(folder, f"entry{at}", 50.0 + at, model=name)
    build(folder, site, today=DAY)
    assert {path.parent.name for path in site.rglob("*.html")} <= {"site", "entries"}
    assert all(re.fullmatch(r"[a-z0-9-]+\.(html|json)", path.name) for path in (site / "entries").iterdir())


class Killed(BaseException):
    """As a signal that cannot be caught: nothing of ours runs after it but what a test needs."""


@pytest.mark.parametrize("after", range(0, 18, 5))
def test_a_build_that_is_killed_leaves_a_whole_site_and_the_next_one_completes_it(
    folder, site, tmp_path, monkeypatch, after
):
    build(folder, site, today=DAY)
    write(folder, "second", 5.0)
    write(folder, "fourth", 7.0)
    (folder / "cifar10/training/third.json").unlink()
    real, left = Outputs._write, [after]

    def killing(self, name, content):
        left[0] -= 1
        if left[0] < 0:
            # Killed while the file beside was written, before it got its name.
            (self._site / name).with_name(".levelbench.part").write_bytes(content[:7])
            raise Killed
        return real(self, name, content)

    with monkeypatch.context() as patch:
        patch.setattr(Outputs, "_write", killing)
        try:
            build(folder, site, today=DAY)
        except Killed:
            assert_whole(site)
    build(folder, site, today=DAY)
    build(folder, tmp_path / "fresh", today=DAY)
    assert files(site) == files(tmp_path / "fresh")


def test_a_page_that_cannot_be_rendered_leaves_the_site_as_it_was(folder, site, monkeypatch):
    build(folder, site, today=DAY)
    before = files(site)
    monkeypatch.setattr(pages, "index_page", lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        build(folder, site, today=DAY, force=True)
    assert files(site) == before


def test_where_nothing_changed_nothing_is_made_and_the_same_is_told(folder, site, monkeypatch):
    (folder / "cifar10/training/broken.json").write_text("[]")
    write(folder, "twin", 10.0, model="first", origin=Origin("dawnbench", "first.json"))
    build(folder, site, today=DAY)
    told = build(folder, site, today=DAY, force=True)
    before, remembered = files(site), (site / STATE).read_bytes()
    monkeypatch.setattr(building, "filled", None)
    again = build(folder, site, today=DAY + timedelta(days=1))
    assert (files(site), (site / STATE).read_bytes()) == (before, remembered)
    assert again == msgspec.structs.replace(told, read=0, written=[], removed=[], kept=len(told.written))
    assert len(again.not_shown) == 2


@pytest.mark.parametrize("where", ["leaderboard/stray.bin", "site/entries/stray.html", "site/leaderboard.csv"])
def test_a_file_that_came_beside_the_others_is_seen_by_the_next_build(folder, site, where):
    before = build(folder, site, today=DAY)
    whole = files(site)
    (site.parent / where).write_text("stray")
    after = build(folder, site, today=DAY)
    assert after.warnings == before.warnings + where.startswith("leaderboard")
    assert files(site) == whole


def test_several_processes_build_the_same_site(folder, site, tmp_path, monkeypatch):
    monkeypatch.setattr("levelbench.report.site.workshop.FEW", 1)
    build(folder, site, today=DAY, processes=2)
    build(folder, tmp_path / "one", today=DAY)
    assert files(site) == files(tmp_path / "one")
