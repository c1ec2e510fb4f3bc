"""Runs of several ranks: for real, two processes and one record; and what becomes of their errors."""

import os
import types
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from levelbench.distributed.launching import Failure
from levelbench.errors import CommunicationError, LevelbenchError, UsageError
from levelbench.measure.environment import capture
from levelbench.records import Store, new_id, read_record
from levelbench.records.schema import Distribution, Specification, Target
from levelbench.records.store import read_folder
from levelbench.records.teamwork import teamwork
from levelbench.runner.campaign import carry_out
from levelbench.runner.distribution import TeamOptions
from levelbench.runner.jobfolder import Inbox, job_folder, messages_of, only_one, paths_told
from levelbench.runner.jobs import Job, Message
from levelbench.runner.launch import launch
from levelbench.runner.plan import make_plan
from levelbench.runner.rank import RankMember
from levelbench.runner.request import Options, resolve
from levelbench.runner.teams import _error, run_team

pytest.importorskip("torch")

BROKEN = '''
"""A task whose second rank fails."""
import os

from levelbench.networks import zoo
from levelbench.training import Momentum, Recipe, Shuffled, Task, Top1, datasets

task = Task("broken", data=datasets.digits, quality=Top1(target=0.9))


@task.recipe
def small(hidden: int = 16) -> Recipe:
    """Small."""
    if os.environ.get("LEVELBENCH_RANK") == "1":
        {what}
    return Recipe(zoo.mlp(64, hidden, 10), Shuffled(64), Momentum(0.05), epochs=2)
'''


class Quiet:
    def started(self, step, arm): ...
    def progress(self, events, elapsed_s, phase): ...
    def finished(self, step, arm, finished, record): ...


@pytest.fixture(autouse=True)
def one_thread_a_rank(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def run(reference, store, **team):
    arm = resolve(str(reference), {}, Options(framework="numpy", budget_epochs=2, team=TeamOptions(**team)))
    plan = make_plan([arm], [0], store, capture())
    return plan, carry_out(plan, store, None, Quiet())


@pytest.mark.slow
def test_two_ranks_leave_one_record_with_both_in_it(task_file, store):
    _, records = run(task_file, store, ranks=2)
    (record,) = records.values()
    assert record.status == "done"
    assert sorted(record.ranks) == [0, 1]
    steps = record.evaluations[-1].step
    for rank in record.ranks.values():
        assert len(rank["step_time"].values) == len(rank["sent"].values) == steps
    found = teamwork(record)
    assert found.sent_bytes == found.predicted_bytes > 0
    assert 0 < found.communicate_share < 1
    assert [each.name for each in record.path.parent.iterdir()] == [record.path.name]
    team = record.end.environment_after["team"]
    assert (team["hosts"], team["ranks_by_host"]) == (1, [2])
    assert len(team["threads_by_rank"]) == 2
    (peak,) = (each for each in record.measurements if each.name == "peak_memory")
    assert peak.value == max(team["peak_memory_bytes_by_rank"])
    assert "the largest of 2 ranks" in peak.method
    again, _ = run(task_file, store, ranks=2)
    assert not again.steps


def left_of(store):
    """Statuses of the records in a store, and what else is in it."""
    records = Store(store.path).records()
    others = [path for path in store.path.rglob("*") if path.is_file() and path.suffix != ".jsonl"]
    return records, [path.name for path in others if not path.name.startswith(".")], list(store.path.glob(".jobs/*"))


@pytest.mark.slow
def test_a_rank_that_raises_ends_the_run_with_its_error_and_not_with_that_of_those_who_waited(tmp_path, store):
    pytest.importorskip("mpi4py")
    path = tmp_path / "broken.py"
    path.write_text(BROKEN.replace("{what}", "raise RuntimeError('no such thing')"))
    with pytest.raises(LevelbenchError, match="no such thing"):
        run(path, store, ranks=2, engine="mpi")
    (record,), others, jobs = left_of(store)
    assert record.status == "failed"
    assert record.end.error.startswith("rank 1: ")
    assert "no such thing" in record.end.error
    assert not others
    assert not jobs


@pytest.mark.slow
def test_a_rank_that_is_killed_is_named_and_the_run_is_interrupted_and_made_again(tmp_path, store):
    pytest.importorskip("mpi4py")
    path = tmp_path / "broken.py"
    path.write_text(BROKEN.replace("{what}", "os.kill(os.getpid(), 9)"))
    with pytest.raises(LevelbenchError, match="rank 1 was killed by SIGKILL"):
        run(path, store, ranks=2, engine="mpi")
    (record,), others, jobs = left_of(store)
    assert record.status == "interrupted"
    assert not others
    assert not jobs


def job(store, **changed):
    specification = changed.pop("specification", None) or Specification(
        task="digits",
        recipe="mlp",
        framework="numpy",
        device="cpu",
        settings={},
        target=Target("top1", 0.9),
        crossing="confirmed",
        clock="data,forward,backward,update",
        evaluate_every="1 epoch",
        budget_epochs=1.0,
        distribution=Distribution(3, "all-reduce", {}, "process", "gloo"),
    )
    return Job("digits", specification, key="k", seed=0, id="id", store=str(store), **changed)


def said(rank, found, lost=False):
    return Message(error=(f"what rank {rank} did", found, "see"), exit_code=3, rank=rank, lost=lost)


def failed(rank, code, number=None, lines=()):
    return Failure(rank, code, number, lines, Path("log"))


CLOSED = said(0, "a rank was lost: Connection closed by peer", lost=True)


@pytest.mark.parametrize(
    ("failure", "told", "found"),
    [
        (failed(1, 3), [CLOSED, said(1, "the scheme gave up")], "the scheme gave up"),
        (failed(1, None, 9), [said(0, "it raised RuntimeError")], "rank 1 was killed by SIGKILL (nothing printed)"),
        (failed(0, 75), [CLOSED], "rank 0 ended with code 75 (a rank was lost: Connection closed by peer)"),
        (failed(2, None), [CLOSED], "rank 2 did not answer (rank 0: a rank was lost: Connection closed by peer)"),
        (failed(1, 1, lines=("out of memory",)), [CLOSED], "rank 1 ended with code 1 (out of memory)"),
        (failed(None, 1), [CLOSED, said(2, "no such file")], "no such file"),
        (failed(0, 75), [CLOSED, said(5, "of another node")], "of another node"),
        (None, [CLOSED], "without a word"),
    ],
)
def test_the_cause_that_is_told_is_that_of_the_rank_that_failed_first(tmp_path, failure, told, found):
    assert found in _error(job(tmp_path), failure, told).found


def test_a_run_whose_ranks_all_ended_well_has_no_error(tmp_path):
    assert _error(job(tmp_path), None, [Message(phase="done")]) is None


def test_messages_are_read_line_by_line_however_their_writes_are_torn(tmp_path):
    line = msgspec.json.encode(said(1, "a long story \n" * 1000)) + b"\n"
    inbox = Inbox(tmp_path, 2)
    assert inbox.take() == []
    seen = []
    for part in (line[:10], line[10:5000], line[5000:] + line[:1], line[1:]):
        with messages_of(tmp_path, 1).open("ab") as file:
            file.write(part)
        seen.append(len(inbox.take()))
    assert seen == [0, 0, 1, 1]


def test_the_folder_of_a_run_is_in_its_store_and_hidden_while_it_goes(tmp_path):
    with job_folder(job(tmp_path, data="data")) as folder:
        assert tmp_path in folder.parents
        messages_of(folder, 0).write_bytes(msgspec.json.encode(said(0, "x")) + b"\n")
        store = Store(tmp_path)
        assert (store.records(), store.problems, read_folder(tmp_path)) == ([], [], ([], []))
        kept = msgspec.json.decode((folder / "job.json").read_bytes(), type=Job)
        assert all(Path(each).is_absolute() for each in (kept.store, kept.data))
    assert not folder.exists()


def test_a_folder_whose_process_is_gone_is_removed_and_that_of_one_that_lives_stays(tmp_path):
    with job_folder(job(tmp_path)) as folder:
        host, pid, start, _ = folder.name.split("+")
        left = folder.with_name(f"{host}+{pid}+{int(start) - 1}+other")
        elsewhere = folder.with_name(f"elsewhere+{pid}+1+other")
        for each in (left, elsewhere):
            each.mkdir()
        with job_folder(msgspec.structs.replace(job(tmp_path), id="next")):
            assert [each.exists() for each in (folder, left, elsewhere)] == [True, False, True]


def member(size=2):
    team = SimpleNamespace(communicator=SimpleNamespace(rank=1, size=size))
    return RankMember(team, 1, __name__)


@pytest.mark.parametrize(("asked", "opened"), [("cuda", "cuda:1"), ("cpu", "cpu")])
def test_each_rank_of_a_machine_opens_an_accelerator_of_its_own(asked, opened):
    assert member().device(asked) == opened


def test_one_accelerator_for_all_ranks_is_refused():
    with pytest.raises(UsageError, match="share one accelerator"):
        member().device("cuda:1")


def test_a_rank_is_lost_where_the_communicator_says_so_and_not_where_a_scheme_does():
    def raised(raising):
        with pytest.raises(LevelbenchError) as caught:
            raising()
        return caught.value

    def communicator():
        raise CommunicationError("an all-reduce", "a rank was lost", "see")

    scheme = types.ModuleType("scheme")
    exec("def step(raising):\n    raise raising", scheme.__dict__)  # a function of another module
    assert member().lost(raised(communicator))
    assert not member().lost(raised(lambda: scheme.step(CommunicationError("a step", "it gave up", "see"))))
    assert not member().lost(raised(lambda: member().device("cuda:0")))


DYING = '''
"""A task whose first rank is killed as it evaluates, as often as a file beside it counts down."""
import os
from pathlib import Path

from levelbench.networks import zoo
from levelbench.training import Momentum, Recipe, Shuffled, Task, Top1, datasets


class Dying(Top1):
    def measure(self, executor, held):
        left = Path(__file__).with_suffix(".left")
        if left.exists():
            left.write_text(str(int(left.read_text()) - 1))
            if left.read_text() == "0":
                left.unlink()
                os.kill(os.getpid(), 9)
        return super().measure(executor, held)


task = Task("dying", data=datasets.digits, quality=Dying(target=0.999))


@task.recipe
def small(hidden: int = 16) -> Recipe:
    """Small."""
    return Recipe(zoo.mlp(64, hidden, 10), Shuffled(64), Momentum(0.05), epochs=3)
'''


def launched(path, store, engine):
    """A run that keeps checkpoints: its record and its error."""
    arm = resolve(str(path), {}, Options(framework="numpy", team=TeamOptions(ranks=2, engine=engine)))
    found = launch(
        Job(
            str(path), arm.specification, key=arm.key, seed=0, id=new_id(), store=str(store.path),
            checkpoint="10 steps", source=arm.source.digest
        )
    )  # fmt: skip
    return read_record(found.path), found.error


def alike(record, expected):
    assert [(each.step, each.loss, each.quality) for each in record.evaluations] == [
        (each.step, each.loss, each.quality) for each in expected.evaluations
    ]
    assert record.end.quality == expected.end.quality
    for rank, observed in expected.ranks.items():
        assert len(record.ranks[rank]["step_time"].values) == len(observed["step_time"].values)
        assert list(record.ranks[rank]["sent"].values) == list(observed["sent"].values)


def test_a_run_that_another_command_is_making_is_not_made_twice(tmp_path):
    pytest.importorskip("mpi4py")
    given = job(tmp_path, specification=of_engine("mpi"))
    with only_one(given), pytest.raises(UsageError, match=f"process {os.getpid()} on .* is at this run"):
        run_team(given)
    with only_one(given):
        pass
    assert not list(tmp_path.glob(".jobs/*"))


def test_other_seeds_are_other_runs(tmp_path):
    given = job(tmp_path)
    with only_one(given), only_one(msgspec.structs.replace(given, seed=1)):
        assert len(list(tmp_path.glob(".jobs/*"))) == 2


def test_a_lock_that_a_killed_command_left_is_nobodys(tmp_path):
    given = job(tmp_path)
    with only_one(given):
        (path,) = tmp_path.glob(".jobs/*")
        text = path.read_text()
    path.write_text("process 1 on elsewhere")
    with only_one(given):
        assert path.read_text() == text


def of_engine(engine):
    return msgspec.structs.replace(
        job("store").specification, distribution=Distribution(2, "all-reduce", {}, engine, "gloo")
    )


def test_ranks_are_not_started_again_where_they_keep_no_checkpoint(tmp_path):
    with pytest.raises(UsageError, match="no checkpoint from which"):
        run_team(job(tmp_path, specification=of_engine("torchrun[max_restarts=2]")))


def test_what_ranks_told_before_they_were_started_again_is_no_cause(tmp_path):
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
    # Of a node without the first rank another one is the first to tell.
    tell(1, 2, Message(path="third.jsonl"))
    assert [each.path for each in inbox.take()] == ["third.jsonl"]
    assert inbox.restarts == 2
    assert paths_told(tmp_path) == [Path("first.jsonl"), Path("second.jsonl"), Path("third.jsonl")]
