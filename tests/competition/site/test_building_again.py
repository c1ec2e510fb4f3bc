"""A site is rebuilt as a whole: only changes are written, and a killed build leaves no half-built site."""

import re
from datetime import date
from pathlib import Path

import pytest
from tests.competition.site.leaderboards import DAY, DIGEST, assert_whole, files, write

from levelbench.competition.entries import SubmittedCurve, SubmittedRun
from levelbench.competition.site import build as building
from levelbench.competition.site.build import CARRIED_BYTES, STAGING, build
from levelbench.errors import StoreError


def test_building_again_writes_nothing(folder, site):
    first = build(folder, site, today=DAY)
    built = build(folder, site, today=DAY)
    assert (built.read, built.written, built.removed, built.kept) == (3, [], [], len(first.written))


def test_another_day_is_the_day_of_the_boards_and_changes_no_page_of_an_entry(folder, site):
    build(folder, site, today=DAY)
    built = build(folder, site, today=date(2026, 11, 25))
    assert not any(name.startswith("entries/") for name in built.written)
    assert "2026-11-25" in (site / "cifar10_dawnbench-1.0.html").read_text()


def test_a_build_after_changes_and_a_fresh_one_are_the_same(folder, site, tmp_path):
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
    kinds = sorted(re.sub(DIGEST, ".", name) for name in built.written)
    assert kinds == [
        "cifar10_dawnbench-1.0.html", "data/cifar10_dawnbench-1.0.js", "data/search.js",
        "entries/cifar10-training-second.html",
        "index.html", "leaderboard.csv", "leaderboard.json", "leaderboard.md",
    ]  # fmt: skip


def test_a_page_that_somebody_changed_is_made_again(folder, site):
    build(folder, site, today=DAY)
    page = next((site / "entries").glob("*.html"))
    before = page.read_bytes()
    page.write_text("something else")
    built = build(folder, site, today=DAY)
    assert built.written == [f"entries/{page.name}"]
    assert page.read_bytes() == before


def test_a_file_too_large_for_a_page_lies_next_to_it_and_is_removed_with_it(folder, site):
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
    assert gone == ["data/cifar10_dawnbench-1.0.js", "data/search.js", "entries/cifar10-training-third.html"]
    assert_whole(site)


def test_the_same_entry_twice_is_shown_once_until_the_first_is_gone(folder, site):
    copy = folder / "cifar10/training/zz.json"
    copy.write_bytes((folder / "cifar10/training/first.json").read_bytes())
    built = build(folder, site, today=DAY)
    assert [each.file for each in built.not_shown] == ["cifar10/training/zz.json"]
    assert not any("-zz-" in name for name in files(site))
    (folder / "cifar10/training/first.json").unlink()
    assert build(folder, site, today=DAY).not_shown == []
    assert_whole(site)


def test_curves_that_are_nearly_copies_are_reported_next_to_their_rank(folder, site):
    times, qualities = [1.0, 2.1, 3.3, 4.2, 5.9, 7.0], [0.5, 0.7, 0.81, 0.9, 0.945, 0.95]
    write(folder, "whole", runs=[SubmittedRun(SubmittedCurve(times, qualities))])
    write(folder, "young", runs=[SubmittedRun(SubmittedCurve([0.5 * each for each in times], qualities))])
    built = build(folder, site, today=DAY)
    assert (built.entries, built.not_shown) == (5, [])
    assert [each.file for each in built.near] == ["cifar10/training/whole.json", "cifar10/training/young.json"]
    for near in built.near:
        assert near.reasons[0].startswith("B242 runs[0].curve: 6 of 6 points as in runs[0] of cifar10/training/")
        assert near.file in (site / "index.html").read_text()
    assert "two curves are nearly the same: 6 of 6 points" in (site / "cifar10_dawnbench-1.0.html").read_text()
    (folder / "cifar10/training/whole.json").unlink()
    assert build(folder, site, today=DAY).near == []


class Killed(BaseException):
    """As a signal that cannot be caught."""


def kill_after(monkeypatch, calls, owner, name):
    real, left = getattr(owner, name), [calls]

    def killing(*given):
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return real(*given)

    monkeypatch.setattr(owner, name, killing)


@pytest.mark.parametrize("after", range(0, 18, 5))
@pytest.mark.parametrize("stage", ["making", "publishing"])
def test_a_build_that_is_killed_leaves_a_whole_site_and_the_next_one_completes_it(
    folder, site, tmp_path, monkeypatch, after, stage
):
    build(folder, site, today=DAY)
    before = files(site)
    write(folder, "second", 5.0)
    write(folder, "fourth", 7.0)
    (folder / "cifar10/training/third.json").unlink()
    with monkeypatch.context() as patch:
        patch.setattr("levelbench.competition.site.build.shutil.rmtree", lambda *given, **options: None)
        if stage == "making":
            kill_after(patch, after // 6, building, "stage")
        else:
            kill_after(patch, after, Path, "replace")
        try:
            build(folder, site, today=DAY)
        except Killed:
            assert_whole(site)
            assert (site / STAGING).exists()
            if stage == "making":
                assert files(site) == before
    build(folder, site, today=DAY)
    build(folder, tmp_path / "fresh", today=DAY)
    assert files(site) == files(tmp_path / "fresh")


def test_an_entry_that_changes_while_the_site_is_built_is_an_error_and_leaves_it_as_it_was(folder, site, monkeypatch):
    build(folder, site, today=DAY)
    before = files(site)
    monkeypatch.setattr(building, "_decide", changing(building._decide, lambda: write(folder, "second", 5.0)))
    with pytest.raises(StoreError, match="it changed during the build"):
        build(folder, site, today=DAY)
    assert files(site) == before


def changing(real, change):
    def decided(*given):
        change()
        return real(*given)

    return decided


@pytest.mark.parametrize("where", ["leaderboard/stray.bin", "site/entries/stray.html", "site/leaderboard.csv"])
def test_a_file_that_was_added_is_seen_by_the_next_build(folder, site, where):
    before = build(folder, site, today=DAY)
    whole = files(site)
    (site.parent / where).write_text("stray")
    after = build(folder, site, today=DAY)
    assert after.warnings == before.warnings + where.startswith("leaderboard")
    assert files(site) == whole
