"""A leaderboard's own files: board.toml and rulesets are checked like entries."""

from __future__ import annotations

from importlib import resources

import pytest

from levelbench.competition.leaderboard import add_ruleset, board_settings, own_rulesets
from levelbench.competition.rulesets import read_ruleset
from levelbench.errors import UsageError

OURS = resources.files("levelbench.competition.rulesets").joinpath("data/levelbench-1.0.toml").read_text()


@pytest.fixture
def said(tmp_path):
    """The findings about a ``board.toml`` of that text."""

    def find(text):
        (tmp_path / "board.toml").write_text(text)
        return [
            (each.code, each.severity, each.field) for each in board_settings(tmp_path, own_rulesets(tmp_path)[0])[1]
        ]

    return find


@pytest.mark.parametrize(
    "text",
    ["", 'title = "Ours"\nrulesets = ["levelbench-1.0"]\nurl = "https://example.org/board"\n', 'url = ""\n'],
)
def test_a_board_file_that_is_right_has_no_finding(said, text):
    assert said(text) == []


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ('titel = "x"', ("B255", "warning", "titel")),
        ('url = "javascript:alert(1)"', ("B172", "error", "url")),
        ('url = "https://example.org/ \\" onload=x"', ("B172", "error", "url")),
        ('url = "example.org"', ("B172", "error", "url")),
        ('rulesets = ["levelbench-1.0", "club-1.0"]', ("B110", "error", "rulesets[1]")),
        ("rulesets = [1]", ("B110", "error", "rulesets[0]")),
        ('rulesets = "levelbench-1.0"', ("B252", "error", "rulesets")),
        ("title = ", ("B252", "error", "")),
    ],
)
def test_what_is_wrong_in_a_board_file_is_found_with_its_key(said, text, finding):
    assert said(text) == [finding]


def test_a_misspelt_key_is_reported_with_the_intended_one(tmp_path):
    (tmp_path / "board.toml").write_text('rulests = ["levelbench-1.0"]')
    (found,) = board_settings(tmp_path, {})[1]
    assert found.do == "write rulesets"


def test_a_board_without_a_file_has_no_finding(tmp_path):
    assert board_settings(tmp_path, {})[1] == []


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


def club():
    return OURS.replace('"levelbench-1.0"', '"club-1.0"').replace('name = "levelbench"', 'name = "club"').encode()


def rules_of(tmp_path, raw):
    (tmp_path / "some.toml").write_bytes(raw)
    return read_ruleset(tmp_path / "some.toml"), raw


def test_rules_of_a_file_are_put_where_entries_find_them_and_once(tmp_path):
    rules, raw = rules_of(tmp_path, club())
    path = add_ruleset(tmp_path / "board", rules, raw)
    assert (path, path.read_bytes()) == (tmp_path / "board/rulesets/club-1.0.toml", raw)
    assert own_rulesets(tmp_path / "board")[0]["club-1.0"] == rules
    assert add_ruleset(tmp_path / "board", rules, raw) is None


def test_rules_that_ship_are_not_copied(tmp_path):
    assert add_ruleset(tmp_path / "board", *rules_of(tmp_path, OURS.encode())) is None
    assert not (tmp_path / "board").exists()


def test_other_rules_of_the_same_id_or_place_are_never_written_over(tmp_path):
    place = tmp_path / "board" / "rulesets"
    place.mkdir(parents=True)
    (place / "club-1.0.toml").write_text("id = ")
    with pytest.raises(UsageError, match="something else is already there"):
        add_ruleset(tmp_path / "board", *rules_of(tmp_path, club()))
    (place / "club-1.0.toml").write_bytes(club().replace(b"runs = 5", b"runs = 3"))
    with pytest.raises(UsageError, match="another ruleset with that id"):
        add_ruleset(tmp_path / "board", *rules_of(tmp_path, club()))
    assert b"runs = 3" in (place / "club-1.0.toml").read_bytes()


def test_no_rules_are_written_through_a_link(tmp_path):
    (tmp_path / "board").mkdir()
    (tmp_path / "board/rulesets").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="its folder is a link"):
        add_ruleset(tmp_path / "board", *rules_of(tmp_path, club()))
