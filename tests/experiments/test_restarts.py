"""Restarted ranks: where they resume, and which time is lost."""

import msgspec
import pytest

from levelbench.errors import DataError
from levelbench.experiments import rank
from levelbench.experiments.jobfolder import messages_of
from levelbench.experiments.jobs import Message
from levelbench.experiments.rank import began, count_start, last_checkpoint, lost_ns, restarts_of
from levelbench.training.checkpoints import checkpoint_of


@pytest.fixture
def at(monkeypatch):
    """Sets the machine's clock."""
    clock = type("Clock", (), {"now_ns": lambda self: self.ns})()
    monkeypatch.setattr(rank, "HOST", clock)

    def set_to(ns):
        clock.ns = ns

    return set_to


@pytest.mark.parametrize(("environment", "times"), [({}, 0), ({"TORCHELASTIC_RESTART_COUNT": "2"}, 2)])
def test_the_number_of_restarts_is_torchruns(environment, times):
    assert restarts_of(environment) == times


def test_each_node_counts_the_starts_of_its_ranks(tmp_path):
    told = [{"TORCHELASTIC_RESTART_COUNT": "0"} for _ in range(3)]
    assert [count_start(tmp_path, 1, each) for each in told] == [0, 1, 2]
    assert [restarts_of(each) for each in told] == [0, 1, 2]
    assert count_start(tmp_path, 0, {"TORCHELASTIC_RESTART_COUNT": "2"}) == 2


def test_lost_time_is_the_time_since_the_first_start_that_is_not_on_the_runs_clock(tmp_path, at):
    at(1000)
    began(tmp_path, before_ns=50)
    at(1400)
    began(tmp_path, before_ns=70)
    # Of 400 ns, 120 - 50 are training that the checkpoint contains.
    assert lost_ns(tmp_path, before_ns=120) == 400 - 70


def test_no_time_is_lost_if_the_ranks_were_never_ready(tmp_path):
    assert lost_ns(tmp_path, 0) == 0


def test_the_clock_of_another_machine_is_refused(tmp_path, at, monkeypatch):
    at(1000)
    began(tmp_path, 0)
    monkeypatch.setattr(rank, "machine", lambda: "elsewhere")
    with pytest.raises(DataError, match="another machine"):
        lost_ns(tmp_path, 0)


def test_ranks_resume_from_the_newest_existing_checkpoint(tmp_path):
    given = tmp_path / "given.checkpoint.npz"
    assert last_checkpoint(tmp_path, given) == given
    records = [tmp_path / name for name in ("first.jsonl", "second.jsonl", "third.jsonl")]
    for at, record in enumerate(records):
        messages_of(tmp_path, 0, at).write_bytes(msgspec.json.encode(Message(path=str(record))) + b"\n")
    for record in records[:2]:
        checkpoint_of(record).touch()
    assert last_checkpoint(tmp_path, given) == checkpoint_of(records[1])
