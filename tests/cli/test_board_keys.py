"""``levelbench board keys``: a key is made once, shown without its private half, and signs entries."""

from __future__ import annotations

import json
import stat
import tomllib

import pytest

pytest.importorskip("cryptography")

WHO = ("--author", "Ada", "--email", "ada@example.org", "--code-url", "https://example.org/a/tree/0a1b2c3d")
PRICE = ("--price-per-hour", "3.06", "--price-source", "https://example.org/prices")


@pytest.fixture
def key(call, tmp_path):
    assert call("board", "keys", "new", "Ada", "-o", tmp_path / "ada.pem")[0] == 0
    return tmp_path / "ada.pem"


def test_a_new_key_is_private_and_never_written_over(call, key):
    before = key.read_bytes()
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    code, _, err = call("board", "keys", "new", "Ada", "-o", key)
    assert code == 2
    assert "never overwritten" in err
    assert key.read_bytes() == before


def test_show_gives_the_line_for_the_authors_and_nothing_private(call, key):
    code, out, _ = call("board", "keys", "show", key, "--name", 'A "da" é', "--json")
    told = json.loads(out)
    assert code == 0
    assert tomllib.loads(told["line"]) == {'A "da" é': [told["public"]]}
    private = key.read_text().splitlines()[1]
    assert private not in out


def test_an_entry_is_signed_checked_and_found_changed(call, key, store, tmp_path):
    board = tmp_path / "board"
    call("board", "submit", "digits[framework=numpy]", *WHO, *PRICE, "--store", store, "-o", board)
    (path,) = board.rglob("*.json")
    line = json.loads(call("board", "keys", "show", key, "--name", "Ada", "--json")[1])["line"]
    (board / "authors.toml").write_text(line)
    assert "B234" in call("board", "check", board)[1]
    code, out, _ = call("board", "keys", "sign", path, "--key", key)
    assert (code, out) == (0, f"signature: {path}.sig\n")
    checked = call("board", "check", board)[1]
    assert "0 errors" in checked
    assert "B23" not in checked
    path.write_bytes(path.read_bytes() + b" ")
    assert "error B230" in call("board", "check", board)[1]


def test_anything_but_a_submission_is_not_signed(call, key, tmp_path):
    (tmp_path / "a.json").write_text("{}")
    code, _, err = call("board", "keys", "sign", tmp_path / "a.json", "--key", key)
    assert code == 2
    assert "it is not a submission" in err
    assert not (tmp_path / "a.json.sig").exists()


def test_show_prints_nothing_but_the_line_on_stdout(call, key):
    code, out, err = call("board", "keys", "show", key, "--name", "Ada")
    assert code == 0
    assert list(tomllib.loads(out)) == ["Ada"]
    assert "fingerprint: SHA256:" in err


@pytest.mark.parametrize(
    ("authors", "warned"),
    [
        ("Eve", "this is the key of 'Eve'"),
        ("Ada", ""),
        ("", "has no key for 'Ada'"),
    ],
)
def test_signing_with_a_key_that_is_not_the_authors_is_warned_of(call, key, store, tmp_path, authors, warned):
    board = tmp_path / "board"
    call("board", "submit", "digits[framework=numpy]", *WHO, *PRICE, "--store", store, "-o", board)
    (path,) = board.rglob("*.json")
    line = json.loads(call("board", "keys", "show", key, "--name", authors, "--json")[1])["line"]
    (board / "authors.toml").write_text(line if authors else "")
    code, _, err = call("board", "keys", "sign", path, "--key", key)
    assert code == 0
    assert (warned in err) if warned else (err == "")


def test_a_check_says_who_may_sign_an_entry_that_another_signed(call, key, store, tmp_path):
    board = tmp_path / "board"
    call("board", "submit", "digits[framework=numpy]", *WHO, *PRICE, "--store", store, "-o", board)
    (path,) = board.rglob("*.json")
    (board / "authors.toml").write_text(
        json.loads(call("board", "keys", "show", key, "--name", "Eve", "--json")[1])["line"]
    )
    call("board", "keys", "sign", path, "--key", key)
    assert "do: sign with a key of 'Ada', or name 'Eve' as the author" in call("board", "check", board)[1]
