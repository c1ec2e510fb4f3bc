"""The index of a store may be missing, damaged, locked or incomplete: listings are right all the same."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys

import pytest
from tests.records.stores import edit, seeds

from levelbench.records import RecordWriter, Selector, Store, index, read_record
from levelbench.records.index import Index, Survey
from levelbench.records.lines import sealed

LISTS = (
    "import sys; from pathlib import Path; from levelbench.records import Store; print(len(Store(sys.argv[1]).rows()))"
)


@pytest.fixture
def reads(monkeypatch):
    """Which record files the index opens."""
    opened = []

    def read(path):
        opened.append(str(path))
        return read_record(path)

    monkeypatch.setattr(index, "read_record", read)
    return opened


@pytest.fixture
def settled(monkeypatch):
    """Let every folder and file count as unchanged for a long time."""
    monkeypatch.setattr(index, "_UNSETTLED_NS", -(1 << 62))
    monkeypatch.setattr(index, "_SETTLED_NS", -(1 << 62))


def test_finished_records_in_unchanged_folders_are_read_once(fill, reads, settled, make_header, make_run):
    store = fill(4)
    assert len(store.rows()) == len(reads) == 4
    reads.clear()
    assert len(store.rows()) == 4
    assert reads == []
    path = make_run(store.path, make_header(seed=9))
    assert len(store.rows()) == 5
    assert reads == [str(path)]


def test_an_edit_in_place_that_keeps_size_and_time_is_noticed(fill, settled):
    store = fill(2)
    first, second = store.rows()
    path = store.path / first.path
    facts = path.stat()
    edit(path, '"test":0.89', '"test":0.99')
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (facts.st_size, facts.st_mtime_ns)
    assert [row.test for row in store.rows()] == [0.99, second.test]


def test_a_file_that_has_just_changed_is_read_again_even_with_the_same_time(fill, reads, monkeypatch):
    monkeypatch.setattr(index, "_SETTLED_NS", 1 << 62)
    store = fill(1)
    assert len(store.rows()) == len(reads) == 1
    monkeypatch.setattr(index, "_SETTLED_NS", -(1 << 62))
    assert len(store.rows()) == 1
    assert len(reads) == 2


def test_a_folder_that_has_just_changed_is_listed_again_even_with_the_same_time(fill, make_header, make_run):
    store = fill(1)
    (path,) = [record.path for record in store.records()]
    before = path.parent.stat().st_mtime_ns
    make_run(store.path, make_header(seed=9))
    os.utime(path.parent, ns=(before, before))
    assert len(store.rows()) == 2


def test_an_unfinished_record_is_followed_to_its_end(tmp_path, settled, make_header, make_events):
    store = Store(tmp_path)
    with RecordWriter.create(tmp_path, make_header()) as writer:
        assert [row.status for row in store.rows()] == ["running"]
        for event in make_events()[:-1]:
            writer.append(event)
        assert [row.status for row in store.rows()] == ["running"]
        assert len(store.records("digits[status=running]")) == 1
    assert [row.status for row in store.rows()] == ["interrupted"]
    end = b'{"kind":"end","status":"done","t_ns":3000000000,"phases_ns":{"data":3000000000}}\n'
    with writer.path.open("ab") as file:
        file.write(sealed(end, read_record(writer.path).checksum))
    assert [row.status for row in store.rows()] == ["done"]


def test_deleted_records_and_folders_are_forgotten(fill, settled):
    store = fill(6)
    paths = [record.path for record in store.records()]
    paths[0].unlink()
    assert seeds(store.rows()) == [1, 2, 3, 4, 5]
    shutil.rmtree(paths[2].parent)
    assert seeds(store.rows()) == [1, 4, 5]
    shutil.rmtree(store.path)
    assert store.rows() == []


def test_the_index_may_be_deleted_damaged_or_of_another_version_at_any_time(fill):
    store = fill(3)
    file = store.path / ".index.sqlite"
    assert len(store.rows()) == 3
    file.unlink()
    assert len(store.rows()) == 3
    file.write_bytes(b"no database at all, but long enough to be taken for one" * 100)
    assert len(store.rows()) == 3
    raw = bytearray(file.read_bytes())
    raw[4096:] = b"\xff" * (len(raw) - 4096)
    file.write_bytes(bytes(raw))
    assert len(store.rows()) == 3
    with sqlite3.connect(file) as connection:
        connection.execute("DROP TABLE runs")
        connection.execute("CREATE TABLE runs (other TEXT)")
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    assert len(store.rows()) == 3
    file.unlink()
    file.mkdir()
    assert len(store.rows()) == 3


def test_an_index_that_cannot_be_written_is_made_in_memory(fill, tmp_path):
    store = fill(3)
    with Index(store.path, where=tmp_path / "no such folder" / "index") as index:
        rows, problems = index.listing(Selector(""))
        assert (len(rows), problems) == (3, [])


def test_an_index_that_another_process_locks_is_made_in_memory(fill, monkeypatch):
    store = fill(2)
    assert len(store.rows()) == 2
    monkeypatch.setattr("levelbench.records.index._WAIT_S", 0.01)
    locking = sqlite3.connect(store.path / ".index.sqlite", isolation_level=None)
    locking.execute("BEGIN EXCLUSIVE")
    assert len(store.rows()) == 2
    locking.close()


def test_several_processes_may_make_one_index_at_once(fill):
    store = fill(12)
    command = [sys.executable, "-c", LISTS, str(store.path)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [int(each.communicate()[0]) for each in both] == [12] * 3
    assert len(store.rows()) == 12
    with sqlite3.connect(store.path / ".index.sqlite") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (12,)
    connection.close()


@pytest.mark.parametrize("stop_at", [1, 2, 4, 7, 12, 20])
def test_an_update_that_is_stopped_is_completed_by_the_next(fill, settled, monkeypatch, stop_at):
    store = fill(6)
    whole_flush = Survey._flush
    flushes = []

    def stop(self):
        flushes.append(self)
        if len(flushes) == stop_at:
            raise KeyboardInterrupt
        whole_flush(self)

    monkeypatch.setattr(index, "_BATCH", 1)
    monkeypatch.setattr(Survey, "_flush", stop)
    with pytest.raises(KeyboardInterrupt):
        store.rows()
    assert len(store.rows()) == 6


def test_a_listing_updates_the_index_once(fill, monkeypatch):
    store, looks = fill(2), []

    def look(survey):
        looks.append(survey)

    monkeypatch.setattr(Survey, "refresh", look)
    store.rows()
    assert len(looks) == 1


@pytest.mark.parametrize("selector", [None, "path"])
def test_two_different_files_of_one_run_are_reported_even_if_no_listed_figure_differs(fill, selector):
    """No listed column has the loss, but the checksum of the last line covers it."""
    store = fill(1)
    (record,) = store.records()
    other = store.path / "copied" / record.path.name
    other.parent.mkdir()
    other.write_bytes(record.path.read_bytes())
    chosen = str(store.path) if selector else None
    assert (len(store.rows(chosen)), store.problems) == (1, [])
    edit(other, '"loss":1.0,', '"loss":1.5,')
    rows = store.rows(chosen)
    assert len(rows) == 1
    assert ["two files of it differ" in problem.found for problem in store.problems] == [True]
