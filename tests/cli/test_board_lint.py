"""``levelbench board check`` asks the linter: what it calls an error is a warning of the check."""

from __future__ import annotations

import json

import pytest

from levelbench.cli import board_check as check
from levelbench.competition.checks import warning
from levelbench.errors import RecordError

WHO = ("--author", "Ada", "--email", "ada@example.org", "--code-url", "https://example.org/a/tree/0a1b2c3d")
PRICE = ("--price-per-hour", "3.06", "--price-source", "https://example.org/prices")
SYNTHETIC = [("LB126", "warning")]
_made: dict[str, bytes] = {}


@pytest.fixture
def board(request, call, tmp_path):
    """A leaderboard of one entry, which is made once."""
    folder = tmp_path / "board"
    if not _made:
        made = "digits[framework=numpy]", *WHO, *PRICE, "--store", request.getfixturevalue("store"), "-o", folder
        code, _, err = call("board", "submit", *made)
        assert (code, err) == (0, "")
        (path,) = folder.rglob("*.json")
        _made[path.relative_to(folder).as_posix()] = path.read_bytes()
    for name, content in _made.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


@pytest.fixture
def misleading(board):
    """The same, after its entry says that its data were made up."""
    return of_data(board, synthetic=True)


def of_data(board, **stated):
    """The leaderboard, after its entry says so of its data."""
    (path,) = board.rglob("*.json")
    told = json.loads(path.read_text())
    told["provenance"] |= stated
    path.write_text(json.dumps(told))
    return board


def of_linter(call, *words):
    """What ``board check`` tells of the linter, and of how many entries."""
    _, out, _ = call("board", "check", *words, "--json")
    told = json.loads(out)
    found = [each for each in told["findings"] if each["code"].startswith("LB")]
    return [(each["code"], each["severity"]) for each in found], told["linted"]


def test_an_error_of_the_linter_is_a_warning(call, misleading):
    assert of_linter(call, misleading) == (SYNTHETIC, 1)


def test_its_warnings_are_notes_and_reported_only_on_request(call, board):
    of_data(board, dataset="synthetic digits", synthetic=None)
    assert of_linter(call, board) == ([], 0)
    assert of_linter(call, board, "--lint") == ([("LB126", "note")], 1)


def test_with_no_lint_it_is_not_asked_and_the_summary_says_so(call, misleading):
    assert of_linter(call, misleading, "--no-lint") == ([], None)
    _, out, _ = call("board", "check", misleading, "--no-lint")
    assert out.splitlines()[-1].endswith("; the linter was not run")


def test_a_clean_entry_has_nothing_more(call, board):
    assert of_linter(call, board, "--lint") == ([], 0)
    _, out, _ = call("board", "check", board)
    assert "linter" not in out


def test_what_misleads_keeps_no_entry_off_the_board_but_is_a_warning_for_strict(call, board, monkeypatch):
    found = []
    monkeypatch.setattr(check, "_checked", lambda *_: (1, found))
    assert call("board", "check", board, "--strict")[0] == 0
    found += [warning("LB126", "digits/training/ada.json", "", "synthetic-data: made up", "measure again")]
    assert call("board", "check", board)[0] == 0
    assert call("board", "check", board, "--strict")[0] == 1


def test_the_summary_says_of_how_many_entries_it_found_something(call, misleading):
    (path,) = misleading.rglob("*.json")
    path.with_name("other.json").write_text(path.read_text())
    _, out, _ = call("board", "check", misleading)
    assert out.splitlines()[-1].endswith("; the linter found something in 2 entries")


def test_where_codes_are_counted_a_rule_has_its_name(call, misleading):
    (path,) = misleading.rglob("*.json")
    for number in range(6):
        path.with_name(f"other{number}.json").write_text(path.read_text())
    _, out, _ = call("board", "check", misleading)
    assert "LB126  7 x synthetic-data" in out


def test_findings_on_a_file_alone_stand_under_one_name(call, misleading):
    (path,) = misleading.rglob("*.json")
    _, out, _ = call("board", "check", path)
    assert "error B177" in out
    assert "warning LB126" in out
    assert out.count(".json\n") == 1


def test_a_file_that_cannot_be_read_is_the_checks_own_to_say(call, board):
    (path,) = board.rglob("*.json")
    path.write_text("{")
    assert of_linter(call, board) == ([], 0)


def test_an_entry_of_which_no_claim_can_be_made_is_the_checks_own_to_say(monkeypatch):
    def none(*_):
        raise RecordError("making a claim", "it has no figure", "see the check")

    monkeypatch.setattr("levelbench.competition.claims.remarks_on_entry", none)
    assert check.all_of_linter(None, "ada.json", {}) == []
