"""Signatures: signed, unsigned and wrongly signed differ; keys are made once and kept private."""

from __future__ import annotations

import stat

import pytest

from levelbench.competition import signatures
from levelbench.competition.entries import encode
from levelbench.competition.leaderboard import check_file, checked_folder
from levelbench.errors import DefinitionError, MissingError, UsageError

ADA = "Ada Lovelace"


@pytest.fixture
def board(clean, tmp_path):
    """A leaderboard of one entry by Ada, and the keys of two authors."""
    pytest.importorskip("cryptography")
    folder = tmp_path / "board"
    path = folder / "digits" / "training" / "a.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(encode(clean.make()))
    keys = {name: signatures.new_key(tmp_path / f"{name}.pem") for name in ("ada", "bob")}
    return folder, path, tmp_path / "ada.pem", tmp_path / "bob.pem", keys


def list_authors(folder, **authors):
    lines = [f'"{name.replace("_", " ")}" = ["{key}"]' for name, key in authors.items()]
    (folder / signatures.AUTHORS).write_text("\n".join(lines))


def codes(folder, clean):
    return {each.code for each in checked_folder(folder, today=clean.today)[1]}


def test_a_key_can_be_read_by_its_owner_alone_and_is_never_written_over(board, tmp_path):
    ada = board[2]
    assert stat.S_IMODE(ada.stat().st_mode) == 0o600
    with pytest.raises(UsageError, match="never overwritten"):
        signatures.new_key(ada)
    assert signatures.public_text(signatures.read_key(ada).public_key()) == board[4]["ada"]


def test_a_fingerprint_is_the_digest_that_other_tools_print():
    # The 32 bytes 0 .. 31; SHA-256 of them in base64, without padding.
    public = "ed25519:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
    assert signatures.fingerprint(public) == "SHA256:Yw3NKWbEM2aRElRIu7JbT/QSpJxzLbLIq8G4WBvXEN0"


def signer(path, *keys):
    """Which of the keys has signed the file at ``path``."""
    return signatures.signature_of(path.read_bytes(), path.with_name("a.json.sig").read_bytes(), keys)


def test_what_the_author_signed_is_signed(board, clean):
    folder, path, ada, _, keys = board
    list_authors(folder, Ada_Lovelace=keys["ada"])
    assert signatures.sign(path, ada) == path.with_name("a.json.sig")
    assert signer(path, keys["bob"], keys["ada"]) == keys["ada"]
    assert codes(folder, clean) == set()
    assert check_file(path, today=clean.today) == []


def test_a_changed_file_is_wrongly_signed(board, clean):
    folder, path, ada, _, keys = board
    list_authors(folder, Ada_Lovelace=keys["ada"])
    signatures.sign(path, ada)
    path.write_bytes(path.read_bytes() + b"\n")
    assert signer(path, keys["ada"]) is None
    assert codes(folder, clean) == {"B230"}


def test_another_authors_key_is_reported(board, clean):
    folder, path, _, bob, keys = board
    list_authors(folder, Ada_Lovelace=keys["ada"], Bob=keys["bob"])
    signatures.sign(path, bob)
    assert signer(path, keys["ada"]) is None
    (found,) = checked_folder(folder, today=clean.today)[1]
    assert (found.code, found.severity) == ("B233", "error")
    assert "'Bob'" in found.found


def test_an_unknown_author_cannot_be_verified(board, clean):
    folder, path, ada, _, _ = board
    signatures.sign(path, ada)
    assert codes(folder, clean) == {"B232"}


def test_an_entry_in_the_name_of_an_author_with_a_key_should_be_signed(board, clean):
    folder, _, _, _, keys = board
    assert codes(folder, clean) == set()
    list_authors(folder, Ada_Lovelace=keys["ada"])
    assert codes(folder, clean) == {"B234"}


def test_the_key_that_an_entry_names_is_the_one_that_signed(board, clean):
    folder, path, ada, _, keys = board
    list_authors(folder, Ada_Lovelace=keys["ada"])
    for key, expected in ((keys["bob"], {"B235"}), (keys["ada"], set())):
        path.write_bytes(encode(clean.make("training", {"author.key": signatures.fingerprint(key)})))
        signatures.sign(path, ada)
        assert codes(folder, clean) == expected


@pytest.mark.parametrize("raw", [b"", b"not base64!", b"AAAA", b"\xff" * 70, b"A" * 5000])
def test_anything_but_a_signature_is_wrong(board, clean, raw):
    folder, path, _, _, keys = board
    list_authors(folder, Ada_Lovelace=keys["ada"])
    path.with_name("a.json.sig").write_bytes(raw)
    assert codes(folder, clean) == {"B230"}


def test_a_signature_alone_is_reported(board, clean):
    folder, path, ada, _, _ = board
    signatures.sign(path, ada)
    path.unlink()
    assert codes(folder, clean) == {"B236", "B254"}


@pytest.mark.parametrize("text", ["Ada = 3", 'Ada = ["x"]', 'Ada = ["ed25519:AAAA"]', "Ada =", "\ud800"])
def test_a_broken_list_of_authors_is_refused(tmp_path, text):
    path = tmp_path / signatures.AUTHORS
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(DefinitionError):
        signatures.read_authors(path)


def test_a_file_that_is_not_a_key_is_refused(tmp_path):
    pytest.importorskip("cryptography")
    (tmp_path / "a.pem").write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    with pytest.raises(UsageError, match="not a PEM file"):
        signatures.read_key(tmp_path / "a.pem")


def test_without_the_extra_a_signature_cannot_be_checked_and_says_so(board, clean, monkeypatch):
    folder, path, ada, _, keys = board
    list_authors(folder, Ada_Lovelace=keys["ada"])
    signatures.sign(path, ada)
    monkeypatch.setattr(signatures, "find_spec", lambda name: None)
    assert codes(folder, clean) == {"B231"}
    with pytest.raises(MissingError, match=r"levelbench\[sign\]"):
        signer(path, keys["ada"])


def test_one_key_of_two_authors_is_refused(board):
    folder, *_, keys = board
    list_authors(folder, Ada_Lovelace=keys["ada"], Bob=keys["ada"])
    with pytest.raises(DefinitionError, match="have the same key"):
        signatures.read_authors(folder / signatures.AUTHORS)


@pytest.mark.parametrize("name", [
    "ada lovelace", "Ada  Lovelace ", "\uff21da Lovelace", "Ada\u00a0Lovelace", "Lovelace, Ada", "Lovelace Ada",
    "Ada Lov\u00e9lace", "Ada-Lovelace", "AdaLovelace", "Ada M. Lovelace",
])  # fmt: skip
def test_a_name_that_looks_like_a_signed_authors_is_an_error(board, clean, name):
    folder, path, _, _, keys = board
    list_authors(folder, Ada_Lovelace=keys["ada"])
    path.write_bytes(encode(clean.make("training", {"author.name": name})))
    assert codes(folder, clean) == {"B237"}
    path.write_bytes(encode(clean.make("training", {"author.name": "Ada Lovelass"})))
    assert codes(folder, clean) == set()


def test_a_name_in_letters_that_look_alike_is_an_error(board, clean):
    folder, path, _, _, keys = board
    list_authors(folder, Ada_Lovelace=keys["ada"])
    path.write_bytes(encode(clean.make("training", {"author.name": "\u0410d\u0430 Lovel\u0430ce"})))
    assert codes(folder, clean) == {"B222", "B237"}


@pytest.mark.parametrize(
    "name", ["Ada Love1ace", "Ada LoveIace", "Ada L0velace", "Ada Love\u04cface", "\u1d00da Lovelace"]
)
def test_letters_and_digits_that_look_alike_are_alike(board, clean, name):
    folder, path, _, _, keys = board
    list_authors(folder, Ada_Lovelace=keys["ada"])
    path.write_bytes(encode(clean.make("training", {"author.name": name})))
    assert "B237" in codes(folder, clean)


def test_a_key_that_is_named_and_did_not_sign_is_reported(board, clean):
    folder, path, _, _, keys = board
    path.write_bytes(encode(clean.make("training", {"author.key": signatures.fingerprint(keys["ada"])})))
    assert codes(folder, clean) == {"B238"}


def test_a_signed_entry_goes_before_an_unsigned_copy_of_an_earlier_day(board, clean):
    folder, path, ada, _, keys = board
    list_authors(folder, Ada_Lovelace=keys["ada"])
    signatures.sign(path, ada)
    copy = clean.make("training", {"author.name": "Eve", "submitted": "2026-11-29"})
    path.with_name("0.json").write_bytes(encode(copy))
    found = {(each.severity, each.file) for each in checked_folder(folder, today=clean.today)[1] if each.code == "B241"}
    assert found == {("warning", "digits/training/a.json"), ("error", "digits/training/0.json")}


def test_the_bytes_that_were_looked_at_are_those_that_are_signed(board):
    _, path, ada, _, keys = board
    seen = path.read_bytes()
    path.write_bytes(seen + b"\n")
    signature = signatures.sign(path, ada, seen).read_bytes()
    assert signatures.signature_of(seen, signature, [keys["ada"]]) == keys["ada"]
    assert signatures.signature_of(path.read_bytes(), signature, [keys["ada"]]) is None


def test_the_signed_one_of_two_that_are_alike_is_not_in_doubt(board, clean):
    folder, path, ada, _, keys = board
    list_authors(folder, Ada_Lovelace=keys["ada"])
    signatures.sign(path, ada)
    changes = {"author.name": "Eve", "submitted": "2026-11-29"}
    for at in range(5):
        changes[f"runs[{at}].curve.time_s"] = lambda t: [0.5 * each for each in t]
        changes[f"runs[{at}].time_to_target_s"] = lambda t: 0.5 * t
        changes |= {f"runs[{at}].record_digest": f"{at}e" * 32, f"runs[{at}].record_id": f"b{at}"}
    path.with_name("0.json").write_bytes(encode(clean.make("training", changes)))
    found = {each.file for each in checked_folder(folder, today=clean.today)[1] if each.code == "B242"}
    assert found == {"digits/training/0.json"}
