"""``levelbench board check --lint``: the linter's findings beside the check's own."""

from __future__ import annotations

import json

import pytest

WHO = ("--author", "Ada", "--email", "ada@example.org", "--code-url", "https://example.org/a/tree/0a1b2c3d")
PRICE = ("--price-per-hour", "3.06", "--price-source", "https://example.org/prices")


@pytest.fixture
def board(store, call, tmp_path):
    """A leaderboard of one entry."""
    folder = tmp_path / "board"
    code, _, err = call("board", "submit", "digits[framework=numpy]", *WHO, *PRICE, "--store", store, "-o", folder)
    assert (code, err) == (0, "")
    return folder


def lint_codes(call, *words):
    code, out, _ = call("board", "check", *words, "--json")
    found = json.loads(out)["findings"]
    return code, [(each["code"], each["severity"]) for each in found if each["code"].startswith("LB")]


def change(board, **fields):
    (path,) = board.rglob("*.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    return path


def test_a_clean_entry_has_nothing_more_with_lint(call, board):
    assert lint_codes(call, board, "--lint") == (0, [])


def test_synthetic_data_is_a_warning_of_the_linter_only_where_it_is_asked(call, board):
    (path,) = board.rglob("*.json")
    provenance = json.loads(path.read_text())["provenance"] | {"synthetic": True}
    change(board, provenance=provenance)
    assert lint_codes(call, board)[1] == []
    assert lint_codes(call, board, "--lint")[1] == [("LB126", "warning")]


def test_a_file_alone_is_held_to_the_linter_too(call, board):
    (path,) = board.rglob("*.json")
    provenance = json.loads(path.read_text())["provenance"] | {"synthetic": True}
    assert lint_codes(call, change(board, provenance=provenance), "--lint")[1] == [("LB126", "warning")]


def test_a_file_that_cannot_be_read_is_the_checks_own_to_say(call, board):
    (path,) = board.rglob("*.json")
    path.write_text("{")
    code, found = lint_codes(call, board, "--lint")
    assert (code, found) == (1, [])
