"""What a leaderboard says of itself: board.toml and rules of its own are looked at as entries are."""

from __future__ import annotations

from importlib import resources

import pytest

from levelbench.records.submissions.board import board_findings, own_rulesets

OURS = resources.files("levelbench.records.rulesets").joinpath("data/levelbench-1.0.toml").read_text()


@pytest.fixture
def said(tmp_path):
    """The findings about a ``board.toml`` of that text."""

    def find(text):
        (tmp_path / "board.toml").write_text(text)
        return [(each.code, each.severity, each.field) for each in board_findings(tmp_path, own_rulesets(tmp_path)[0])]

    return find


@pytest.mark.parametrize(
    "text",
    ["", 'title = "Ours"\nrulesets = ["levelbench-1.0"]\nurl = "https://example.org/board"\n', 'url = ""\n'],
)
def test_a_board_file_that_is_right_is_no_finding(said, text):
    assert said(text) == []


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ('titel = "x"', ("B255", "warning", "titel")),
        ('url = "javascript:alert(1)"', ("B172", "error", "url")),
        ('url = "example.org"', ("B172", "error", "url")),
        ('rulesets = ["levelbench-1.0", "club-1.0"]', ("B110", "error", "rulesets[1]")),
        ("rulesets = [1]", ("B110", "error", "rulesets[0]")),
        ('rulesets = "levelbench-1.0"', ("B252", "error", "rulesets")),
        ("title = ", ("B252", "error", "")),
    ],
)
def test_what_is_wrong_in_a_board_file_is_found_with_its_key(said, text, finding):
    assert said(text) == [finding]


def test_a_misspelt_key_is_told_which_one_is_meant(tmp_path):
    (tmp_path / "board.toml").write_text('rulests = ["levelbench-1.0"]')
    (found,) = board_findings(tmp_path, {})
    assert found.do == "write rulesets"


def test_a_board_without_a_file_is_no_finding(tmp_path):
    assert board_findings(tmp_path, {}) == []


def test_a_broken_ruleset_is_named_by_its_file_and_the_others_are_known(tmp_path):
    place = tmp_path / "rulesets"
    place.mkdir()
    (place / "broken.toml").write_text("id = ")
    (place / "club.toml").write_text(
        OURS.replace('"levelbench-1.0"', '"club-1.0"').replace('name = "levelbench"', 'name = "club"')
    )
    known, (found,) = own_rulesets(tmp_path)
    assert (found.code, found.file) == ("B252", "rulesets/broken.toml")
    assert {"club-1.0", "levelbench-1.0"} <= set(known)
