from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys

import pytest

from levelbench.errors import RecordError, StoreError, UnknownNameError, UsageError
from levelbench.records import RecordWriter, Store, read_folder, read_record, survey
from levelbench.records.index import Index
from levelbench.records.survey import Survey

LISTS = (
    "import sys; from pathlib import Path; from levelbench.records import Store; print(len(Store(sys.argv[1]).rows()))"
)


@pytest.fixture
def fill(tmp_path, make_header, make_events, make_run):
    """A store of ``n`` runs, seed i started in minute i and taking (n - i) seconds an epoch."""

    def make(n=3, task="digits", **parts):
        for i in range(n):
            head = make_header(seed=i, started=f"2026-03-{1 + i // 2:02d}T12:{i:02d}:00+00:00", task=task, **parts)
            make_run(tmp_path / "store", head, make_events(epoch_s=float(n - i)))
        return Store(tmp_path / "store")

    return make


@pytest.fixture
def reads(monkeypatch):
    """Which record files the index opens."""
    opened = []

    def read(path):
        opened.append(str(path))
        return read_record(path)

    monkeypatch.setattr(survey, "read_record", read)
    return opened


@pytest.fixture
def settled(monkeypatch):
    """Let every folder count as long unchanged, as it is in a store that nobody has just written to."""
    monkeypatch.setattr(survey, "_UNSETTLED_NS", -(1 << 62))


def seeds(runs):
    return [run.header.seed if hasattr(run, "header") else run.seed for run in runs]


def test_a_store_that_does_not_exist_yet_holds_nothing_and_is_not_made(tmp_path):
    store = Store(tmp_path / "none")
    assert store.rows() == []
    assert store.records() == []
    assert not store.path.exists()


def test_a_store_that_is_a_file_is_a_clear_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="is a file, not a folder"):
        Store(tmp_path / "file")


def test_records_come_oldest_first_over_folders(fill):
    assert seeds(fill(5).records()) == [0, 1, 2, 3, 4]


def test_summaries_agree_with_rows(fill):
    store = fill(3)
    for summary, row in zip(store.summaries(), store.rows(), strict=True):
        for name in (
            "path",
            "id",
            "key",
            "seed",
            "status",
            "reached",
            "task",
            "settings",
            "target",
            "started",
            "wall_s",
        ):
            assert getattr(summary, name) == getattr(row, name), name
        assert summary.time_to_accuracy_s == row.time_to_accuracy_s
        assert summary.quality == {"validation": row.validation, "test": row.test}


def test_rows_are_selected_ordered_and_limited(fill):
    fill(3, task="other")
    store = fill(6)
    assert seeds(store.rows("digits", order_by="time_to_accuracy_s", limit=2)) == [5, 4]
    assert seeds(store.rows("digits[seed=2]")) == [2]
    assert seeds(store.rows("latest:2")) == [5, 4]
    assert seeds(store.records("latest:2")) == [4, 5]
    assert seeds(store.rows("digits", order_by="seed", descending=True, limit=1)) == [5]
    with pytest.raises(UnknownNameError, match="time_to_accuracy_s"):
        store.rows(order_by="time_to_accuracy")


def test_runs_without_the_figure_ordered_by_come_last(fill, make_header, make_events, make_run):
    store = fill(2)
    make_run(store.path, make_header(seed=9), make_events((0.1,)))
    assert seeds(store.rows(order_by="time_to_accuracy_s")) == [1, 0, 9]
    assert seeds(store.rows(order_by="time_to_accuracy_s", descending=True)) == [0, 1, 9]


def test_an_unreadable_record_never_hides_the_others(fill):
    store = fill(3)
    broken = store.path / "digits" / "2026-03-01" / "broken.jsonl"
    broken.write_text("nonsense\n")
    later = store.path / "later.jsonl"
    later.write_text('{"kind":"header","schema":99}\n')
    assert len(store.records()) == 3
    assert len(store.problems) == 2
    assert all(isinstance(problem, RecordError) for problem in store.problems)
    assert len(store.summaries()) == len(store.rows()) == 3
    records, problems = read_folder(store.path)
    assert (len(records), len(problems)) == (3, 2)
    broken.unlink()
    later.unlink()
    assert store.rows()
    assert store.problems == []


def test_a_record_that_makes_no_sense_is_a_problem_and_not_a_crash(fill):
    store = fill(2)
    (path, *_) = [record.path for record in store.records()]
    raw = path.read_text()
    path.with_name("clock.jsonl").write_text(raw.replace('"clock":"wall"', '"clock":"moon"', 1))
    path.with_name("large.jsonl").write_text(raw.replace('"seed":0', '"seed":' + "9" * 40, 1))
    path.with_name("huge.jsonl").write_text(raw.replace('"forward":', '"forward":' + "9" * 400, 1))
    os.mkfifo(path.with_name("pipe.jsonl"))
    (path.parent / os.fsdecode(b"caf\xe9.jsonl")).write_text(raw)
    assert len(store.rows()) == 3
    assert len(store.problems) == 3


def test_the_one_run_meant(fill):
    store = fill(3)
    newest = store.one("latest")
    assert newest.header.seed == 2
    assert store.one(newest.header.id).path == newest.path
    with pytest.raises(UsageError, match="means 3 runs"):
        store.one("digits")
    assert store.one(str(newest.path)).header == newest.header


def test_a_path_is_read_as_it_is_in_or_out_of_the_store(fill, tmp_path):
    inside = fill(2)
    elsewhere = Store(tmp_path / "elsewhere")
    assert len(elsewhere.find(str(inside.path))) == 2
    assert len(elsewhere.find(f"{inside.path}/digits[seed=1]")) == 1
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(RecordError, match="no such file"):
        elsewhere.find("./absent.jsonl")


def test_what_is_not_found_answers_with_what_is_near(fill, tmp_path):
    store = fill(1)
    with pytest.raises(UnknownNameError, match="close: digits"):
        store.find("digist")
    with pytest.raises(UnknownNameError, match="close: framework"):
        store.find("digits[framewrk=torch]")
    with pytest.raises(UsageError, match="none of 1 runs matches"):
        store.find("digits[framework=torch]")
    with pytest.raises(UsageError, match="there is no run"):
        Store(tmp_path / "none").find("latest")


def test_merging_two_stores_is_copying(fill, make_header, make_run, tmp_path):
    store = fill(2)
    assert len(store.rows()) == 2
    make_run(tmp_path / "other", make_header(seed=8))
    shutil.copytree(tmp_path / "other", store.path, dirs_exist_ok=True)
    assert len(store.rows()) == 3


def test_finished_records_in_unchanged_folders_are_read_once(fill, reads, settled, make_header, make_run):
    store = fill(4)
    assert len(store.rows()) == len(reads) == 4
    reads.clear()
    assert len(store.rows()) == 4
    assert reads == []
    path = make_run(store.path, make_header(seed=9))
    assert len(store.rows()) == 5
    assert reads == [str(path)]


def test_a_folder_that_has_just_changed_is_listed_again_for_a_time_that_does_not_move(fill, make_header, make_run):
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
    with writer.path.open("ab") as file:
        file.write(b'{"kind":"end","status":"done","t_ns":3000000000,"phases_ns":{"data":3000000000}}\n')
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


def test_where_no_index_can_be_written_it_is_made_in_memory(fill, tmp_path):
    store = fill(3)
    with Index(store.path, where=tmp_path / "no such folder" / "index") as index:
        assert len(index.query()) == 3
        assert index.problems() == []


def test_an_index_that_another_process_locks_is_made_in_memory(fill, monkeypatch):
    store = fill(2)
    assert len(store.rows()) == 2
    monkeypatch.setattr("levelbench.records.index._WAIT_S", 0.01)
    locking = sqlite3.connect(store.path / ".index.sqlite", isolation_level=None)
    locking.execute("BEGIN EXCLUSIVE")
    assert len(store.rows()) == 2
    locking.close()


def test_two_processes_may_make_one_index_at_once(fill):
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
def test_a_survey_that_is_stopped_half_way_is_completed_by_the_next(fill, settled, monkeypatch, stop_at):
    store = fill(6)
    whole_flush = Survey._flush
    flushes = []

    def stop(self):
        flushes.append(self)
        if len(flushes) == stop_at:
            raise KeyboardInterrupt
        whole_flush(self)

    monkeypatch.setattr(survey, "_BATCH", 1)
    monkeypatch.setattr(Survey, "_flush", stop)
    with pytest.raises(KeyboardInterrupt):
        store.rows()
    assert len(store.rows()) == 6


def test_reading_a_store_imports_neither_numpy_nor_sqlite_until_it_is_asked():
    program = "import sys, levelbench.records; print(sorted({'numpy', 'sqlite3'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_listing_looks_at_the_store_once(fill, monkeypatch):
    store, looks = fill(2), []

    def look(survey):
        looks.append(survey)

    monkeypatch.setattr(Survey, "refresh", look)
    store.rows()
    assert len(looks) == 1


def test_a_folder_that_cannot_be_listed_is_a_problem_without_an_index_too(fill, monkeypatch):
    store = fill(3)

    def closed(folder):
        if str(folder).endswith("2026-03-02"):
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(folder)

    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", closed)
    records, problems = read_folder(store.path)
    assert seeds(records) == [0, 1]
    assert ["permission is denied" in str(each) for each in problems] == [True]


def test_a_filter_by_a_setting_that_no_run_has_names_the_nearest_and_a_known_one_is_let_through(fill):
    store = fill(settings={"lr": 0.1, "hidden": 128})
    with pytest.raises(UnknownNameError, match="hidden"):
        store.require_known("digits[hiden=128]")
    store.require_known("digits[hidden=7]")
    store.require_known("unheard[hiden=7]")
