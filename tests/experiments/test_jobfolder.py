"""The folder of a run on several ranks: messages, locks, and what killed processes left."""

import os
from pathlib import Path

import msgspec
import pytest
from tests.experiments.team_jobs import job, of_engine, said

from levelbench.errors import UsageError
from levelbench.experiments.jobfolder import Inbox, job_folder, messages_of, only_one, record_paths
from levelbench.experiments.jobs import Job, Message
from levelbench.experiments.teams import run_team
from levelbench.records import Store
from levelbench.records.store import read_folder


def test_messages_are_read_line_by_line_even_if_writes_are_split(tmp_path):
    line = msgspec.json.encode(said(1, "a long story \n" * 1000)) + b"\n"
    inbox = Inbox(tmp_path, 2)
    assert inbox.take() == []
    seen = []
    for part in (line[:10], line[10:5000], line[5000:] + line[:1], line[1:]):
        with messages_of(tmp_path, 1).open("ab") as file:
            file.write(part)
        seen.append(len(inbox.take()))
    assert seen == [0, 0, 1, 1]


def test_the_folder_of_a_run_is_hidden_in_its_store_while_the_run_lasts(tmp_path):
    with job_folder(job(tmp_path, data="data")) as folder:
        assert tmp_path in folder.parents
        messages_of(folder, 0).write_bytes(msgspec.json.encode(said(0, "x")) + b"\n")
        store = Store(tmp_path)
        assert (store.records(), store.problems, read_folder(tmp_path)) == ([], [], ([], []))
        kept = msgspec.json.decode((folder / "job.json").read_bytes(), type=Job)
        assert all(Path(each).is_absolute() for each in (kept.store, kept.data))
    assert not folder.exists()


def test_folders_of_dead_processes_are_removed_and_those_of_live_ones_stay(tmp_path):
    with job_folder(job(tmp_path)) as folder:
        host, pid, start, _ = folder.name.split("+")
        left = folder.with_name(f"{host}+{pid}+{int(start) - 1}+other")
        elsewhere = folder.with_name(f"elsewhere+{pid}+1+other")
        for each in (left, elsewhere):
            each.mkdir()
        with job_folder(msgspec.structs.replace(job(tmp_path), id="next")):
            assert [each.exists() for each in (folder, left, elsewhere)] == [True, False, True]


def test_a_run_in_progress_in_another_command_is_refused(tmp_path):
    pytest.importorskip("mpi4py")
    given = job(tmp_path, specification=of_engine("mpi"))
    with only_one(given), pytest.raises(UsageError, match=f"process {os.getpid()} on .* is already running this"):
        run_team(given)
    with only_one(given):
        pass
    assert not list(tmp_path.glob(".jobs/*"))


def test_other_seeds_have_other_locks(tmp_path):
    given = job(tmp_path)
    with only_one(given), only_one(msgspec.structs.replace(given, seed=1)):
        assert len(list(tmp_path.glob(".jobs/*"))) == 2


def test_the_lock_of_a_killed_command_is_free(tmp_path):
    given = job(tmp_path)
    with only_one(given):
        (path,) = tmp_path.glob(".jobs/*")
        text = path.read_text()
    path.write_text("process 1 on elsewhere")
    with only_one(given):
        assert path.read_text() == text


def test_messages_from_before_a_restart_are_ignored(tmp_path):
    def tell(rank, restarts, message):
        with messages_of(tmp_path, rank, restarts).open("ab") as file:
            file.write(msgspec.json.encode(message) + b"\n")

    inbox = Inbox(tmp_path, 2)
    tell(0, 0, Message(path="first.jsonl"))
    assert [each.path for each in inbox.take()] == ["first.jsonl"]
    tell(1, 0, said(1, "it broke"))
    tell(0, 1, Message(path="second.jsonl"))
    assert [each.path for each in inbox.take()] == ["second.jsonl"]
    assert inbox.restarts == 1
    # On a node without the first rank, another one writes the first message.
    tell(1, 2, Message(path="third.jsonl"))
    assert [each.path for each in inbox.take()] == ["third.jsonl"]
    assert inbox.restarts == 2
    assert record_paths(tmp_path) == [Path("first.jsonl"), Path("second.jsonl"), Path("third.jsonl")]
