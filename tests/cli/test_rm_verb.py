"""levelbench rm: what is removed, what is refused, and that the store knows it."""

import io
import json
import shutil

import pytest
from tests.records.stores import edit

from levelbench.records import Store


def ids(store):
    return sorted(row.id for row in Store(store).rows())


def test_runs_are_removed_and_named_and_the_index_follows(call, store):
    assert len(ids(store)) == 10
    code, out, _ = call("rm", "digits[framework=torch]", "aaaa0000", "--yes", "--store", store)
    assert code == 0
    assert out.count("removed /") == 6
    assert "6 runs, 6 files removed" in out
    assert ids(store) == [f"aaaa000{seed}" for seed in range(1, 5)]


def test_checkpoints_and_copies_in_the_store_go_too(call, store):
    shutil.copytree(store, store / "copy")
    (copy, record) = sorted(store.rglob("*aaaa0000.jsonl"))
    checkpoint = record.with_suffix(".checkpoint.npz")
    checkpoint.write_bytes(b"")
    found = json.loads(call("rm", "aaaa0000", "--yes", "--json", "--store", store)[1])
    assert found["runs"] == ["aaaa0000"]
    assert sorted(found["removed"]) == sorted(str(path) for path in (record, checkpoint, copy))
    assert not record.exists()
    assert not copy.exists()


def test_a_path_removes_what_lies_there_and_so_settles_two_files_that_differ(call, store):
    shutil.copytree(store, store / "copy")
    (kept, edited) = sorted(store.rglob("*aaaa0000.jsonl"))
    edit(edited, '"version":"0.1.0"', '"version":"0.1.1"')
    assert call("rm", edited, "--yes", "--store", store)[0] == 0
    assert kept.exists()
    assert call("show", "aaaa0000", "--store", store)[0] == 0


def test_without_a_terminal_and_without_yes_nothing_is_removed(call, store, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    code, _, err = call("rm", "digits", "--store", store)
    assert code == 2
    assert "add --yes" in err
    assert len(ids(store)) == 10


@pytest.mark.parametrize(("answer", "left"), [("y\n", 0), ("n\n", 10), ("\n", 10)])
def test_on_a_terminal_it_asks_first(call, store, monkeypatch, answer, left):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr("sys.stdin", Terminal(answer))
    assert call("rm", "digits", "--store", store)[0] == 0
    assert len(ids(store)) == left


def test_a_run_that_is_running_is_refused_and_nothing_is_removed(call, store, write):
    path = write(7, "cccc0007", status="interrupted")
    from levelbench.records.locks import hold

    with path.open("rb") as file:
        hold(file.fileno())
        code, _, err = call("rm", "digits", "--yes", "--store", store)
    assert code == 2
    assert "1 of them is running: cccc0007 (digits, seed 7)" in err
    assert len(ids(store)) == 11


def test_superseded_runs_are_listed_when_asked_and_removed_by_name(call, store):
    Store(store).supersede([next(store.rglob("*aaaa0000.jsonl"))])
    assert "aaaa0000" not in ids(store)
    words = ("list", "runs", "--store", store, "--json")
    assert "aaaa0000" not in call(*words)[1]
    assert "aaaa0000" in call(*words, "--all")[1]
    assert call("rm", "--superseded", "--yes", "--store", store)[0] == 0
    assert Store(store).superseded() == []
    assert len(ids(store)) == 9


def test_copies_of_superseded_runs_go_with_them(call, store):
    path = next(store.rglob("*aaaa0000.jsonl"))
    (store / "backup").mkdir()
    (store / "backup" / path.name).write_bytes(path.read_bytes())
    Store(store).supersede([path])
    assert call("rm", "--superseded", "--yes", "--store", store)[0] == 0
    assert "aaaa0000" not in ids(store)
    assert not list(store.rglob("*aaaa0000.jsonl"))


def test_a_superseded_run_is_shown_by_its_id_or_path(call, store):
    Store(store).supersede([next(store.rglob("*aaaa0000.jsonl"))])
    (aside,) = store.rglob(".superseded/*.jsonl")
    for words in (("aaaa0000",), (aside,), ("aaaa0001", "aaaa0000")):
        code, out, _ = call("show", *words, "--store", store)
        assert (code, out.count("superseded: a fresh run has replaced it")) == (0, 1)
    assert call("show", "ffff0000", "--store", store)[0] == 2


def test_to_name_nothing_is_an_error_that_says_what_to_give(call, store):
    code, _, err = call("rm", "--yes", "--store", store)
    assert code == 2
    assert "it names no run" in err


def test_a_damaged_record_of_the_store_can_be_removed_by_its_path(call, store):
    damaged = sorted(store.rglob("*.jsonl"))[0]
    damaged.write_bytes(damaged.read_bytes().replace(b"digits", b"digitz", 1))
    assert call("compare", "digits[framework=numpy]", "digits[framework=torch]", "--store", store)[0] == 2
    assert call("rm", damaged, "--yes", "--store", store)[0] == 0
    assert not damaged.exists()


def test_a_file_that_is_no_record_of_the_store_is_not_removed(call, store, tmp_path):
    stranger = tmp_path / "stranger.jsonl"
    stranger.write_text("not a record\n")
    assert call("rm", stranger, "--yes", "--store", store)[0] != 0
    assert stranger.exists()


def test_a_file_of_the_store_that_is_no_record_is_not_removed(call, store):
    notes = store / "notes.jsonl"
    notes.write_text("a word to myself\n")
    code, _, err = call("rm", notes, "--yes", "--store", store)
    assert (code, notes.exists()) == (2, True)
    assert "it is not the record of a run" in err


def test_records_of_a_folder_beside_the_store_are_not_removed(call, store, tmp_path, monkeypatch):
    monkeypatch.chdir(store.parent)
    code, _, err = call("rm", store.name, "--yes", "--store", tmp_path / "other")
    assert code == 2
    assert "it is outside the store" in err
    assert list(store.rglob("*.jsonl"))


def test_records_of_another_store_are_not_removed(call, store, tmp_path):
    code, _, err = call("rm", store / "digits", "--yes", "--store", tmp_path / "other")
    assert code == 2
    assert "it is outside the store" in err
    assert list(store.rglob("*.jsonl"))
