"""``levelbench board check``: findings by file with what to do, a summary, and exit codes that a workflow can use."""

from __future__ import annotations

import json

import pytest

from levelbench.cli import main
from levelbench.cli.board_verb import WORDS

WHO = ("--author", "Ada", "--email", "ada@example.org", "--code-url", "https://example.org/a/tree/0a1b2c3d")
PRICE = ("--price-per-hour", "3.06", "--price-source", "https://example.org/prices")


@pytest.fixture
def board(store, call, tmp_path):
    """A leaderboard of one entry."""
    folder = tmp_path / "board"
    code, _, err = call("board", "submit", "digits[framework=numpy]", *WHO, *PRICE, "--store", store, "-o", folder)
    assert (code, err) == (0, "")
    return folder


def entry_of(board):
    (path,) = board.rglob("*.json")
    return path


def change(board, **fields):
    path = entry_of(board)
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    return path


def test_a_good_leaderboard_ends_in_0(call, board):
    code, out, _ = call("board", "check", board)
    assert code == 0
    assert out.splitlines()[-1].startswith("1 entry checked: 0 errors, ")


def test_an_error_ends_in_1_with_file_field_and_what_to_do(call, board):
    path = change(board, submitted="2026-02-30")
    code, out, _ = call("board", "check", board)
    assert code == 1
    lines = out.splitlines()
    at = lines.index(str(path.relative_to(board)))
    assert lines[at + 1 : at + 3] == [
        "  error B117 submitted: it is '2026-02-30'",
        "      do: write the day as in 2026-01-31",
    ]


def test_a_file_alone_is_judged_where_it_lies(call, board):
    code, out, _ = call("board", "check", change(board, task="cifar10"))
    assert code == 1
    assert "B114" in out
    assert "B112" in out


def test_strict_ends_in_1_for_a_warning(call, board):
    change(board, tuning={})
    assert call("board", "check", board)[0] == 0
    code, out, _ = call("board", "check", board, "--strict")
    assert code == 1
    assert "warning B181 tuning: it is not stated" in out


def test_json_has_every_finding_and_the_counts(call, board):
    path = change(board, submitted="x")
    code, out, _ = call("board", "check", board, "--json")
    told = json.loads(out)
    assert (code, told["exit_code"], told["errors"], told["entries"]) == (1, 1, 1, 1)
    (found,) = [each for each in told["findings"] if each["severity"] == "error"]
    assert found["code"] == "B117"
    assert found["file"] == path.relative_to(board).as_posix()
    assert set(found) == {"code", "severity", "file", "field", "found", "do"}


def test_a_workflow_gets_annotations_that_nothing_in_a_file_can_forge(call, board):
    change(board, submitted="x\n::error::forged 100%")
    _, out, _ = call("board", "check", board, "--format", "github")
    annotations = [line for line in out.splitlines() if line.startswith("::")]
    assert annotations[0].startswith(f"::error file={entry_of(board).as_posix()},title=B117::submitted: it is ")
    assert not any(line.startswith("::error::") for line in out.splitlines())
    assert "100%25" in annotations[0]


def test_records_are_compared_by_digest(call, board, store):
    assert call("board", "check", board, "--records", store)[0] == 0
    next(store.rglob("*aaaa0002.jsonl")).unlink()
    code, out, _ = call("board", "check", board, "--records", store)
    assert code == 1
    assert "B179" in out


def test_what_steers_a_terminal_is_shown_and_not_obeyed(call, board):
    change(board, model="\x1b[31mred")
    code, out, _ = call("board", "check", board)
    assert code == 1
    assert "\x1b" not in out


def test_codes_are_listed(call):
    assert call("board", "check")[0] == 2
    code, out, _ = call("board", "check", "--codes")
    assert code == 0
    assert "B131  the time of a curve does not increase, or is negative" in out


@pytest.mark.parametrize(("words", "code"), [(("absent",), 2), ((".", "--records", "absent"), 3)])
def test_what_is_not_there_is_reported(call, tmp_path, monkeypatch, words, code):
    monkeypatch.chdir(tmp_path)
    found, _, err = call("board", "check", *words)
    assert found == code
    assert "there is no such" in err


def test_every_word_has_help(capsys):
    for word in WORDS:
        with pytest.raises(SystemExit) as ended:
            main(["board", word, "--help"])
        assert ended.value.code == 0
        assert f"Usage: levelbench board {word}" in capsys.readouterr().out


def test_an_unknown_word_names_the_nearest(call):
    code, _, err = call("board", "chek")
    assert code == 2
    assert "close: check" in err


def test_quiet_leaves_the_notes_out_and_counts_them(call, board):
    change(board, price=None)
    _, out, _ = call("board", "check", board)
    assert "note B160" in out
    code, quiet, _ = call("board", "check", board, "--quiet")
    assert code == 0
    assert "note B160" not in quiet
    assert quiet.splitlines()[-1] == out.splitlines()[-1]


def test_many_findings_are_counted_by_code_at_the_end(call, board):
    path = entry_of(board)
    assert "by code:" not in call("board", "check", board)[1]
    for at in range(12):
        (path.parent / f"bad{at}.json").write_text("{")
    _, out, _ = call("board", "check", board, "--quiet")
    assert "  B101 12 x the file cannot be read, or is not JSON" in out.splitlines()


def test_a_frozen_round_accepts_no_change(call, board):
    code, out, _ = call("board", "freeze", board, "levelbench-1.0")
    assert (code, "froze levelbench-1.0: 1 entry" in out) == (0, True)
    assert call("board", "check", board)[0] == 0
    change(board, notes="changed")
    code, out, _ = call("board", "check", board)
    assert (code, "it was changed after the freeze of levelbench-1.0" in out) == (1, True)


def test_an_entry_without_a_private_test_set_cannot_be_scored(call, board, tmp_path):
    given = ("--labels", tmp_path / "a", "--predictions", tmp_path / "b", "--key", tmp_path / "c")
    code, _, err = call("board", "score", entry_of(board), *given)
    assert (code, "levelbench-1.0 has no private test set for digits" in err) == (2, True)


def test_board_lists_its_commands_as_commands(call):
    out = call("board", "--help")[1]
    assert "Commands:" in out
    assert "Words:" not in out


def test_what_an_author_writes_never_begins_a_line(call, board):
    odd = "a\n::add-mask::b ##[add-mask]c"
    change(board, model=odd)
    (board / "::add-mask::d.json").write_text("{}")
    for layout in ("text", "github"):
        out = call("board", "check", board, "--format", layout)[1]
        commands = [line for line in out.splitlines() if line.lstrip().startswith("::")]
        assert all(line.startswith(("::error ", "::warning ", "::notice ")) for line in commands)
        assert "##[" not in out
        assert len(commands) == (0 if layout == "text" else len(commands))
