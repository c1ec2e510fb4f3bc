"""A site is whole at every instant, and made again only where it must be."""

import os
import re
from datetime import date, timedelta

import msgspec
import pytest
from tests.report.site.leaderboards import DAY, DIGEST, assert_whole, files, write

from levelbench.records.submissions.rules import rivals
from levelbench.records.submissions.schema import Curve, Origin, SubmittedRun
from levelbench.report.site import build as building
from levelbench.report.site.build import build
from levelbench.report.site.outputs import Outputs
from levelbench.report.site.state import STATE
from levelbench.report.site.workshop import CARRIED_BYTES


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

    def killing(self, name, *contents):
        left[0] -= 1
        if left[0] < 0:
            # Killed while the file beside was written, before it got its name.
            (self._site / name).with_name(".levelbench.part").write_bytes(contents[0][:7])
            raise Killed
        return real(self, name, *contents)

    with monkeypatch.context() as patch:
        patch.setattr(Outputs, "_write", killing)
        try:
            build(folder, site, today=DAY)
        except Killed:
            assert_whole(site)
    build(folder, site, today=DAY)
    build(folder, tmp_path / "fresh", today=DAY)
    assert files(site) == files(tmp_path / "fresh")


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
