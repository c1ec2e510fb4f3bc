"""A rank of a run: its device, and which errors mean a lost rank."""

import types
from types import SimpleNamespace

import pytest
from tests.experiments.team_jobs import job

from levelbench.distributed.launching.environment import RankPlace
from levelbench.errors import CommunicationError, LevelbenchError, UsageError
from levelbench.experiments.jobs import AloneMember
from levelbench.experiments.rank import RankMember, _take_part
from levelbench.operators.frameworks import open_framework


def member(size=2):
    team = SimpleNamespace(communicator=SimpleNamespace(rank=1, size=size))
    return RankMember(team, 1, __name__)


@pytest.mark.parametrize(("asked", "opened"), [("cuda", "cuda:1"), ("cpu", "cpu")])
def test_each_rank_of_a_machine_opens_its_own_accelerator(asked, opened):
    assert member().device(asked) == opened


def test_one_accelerator_for_all_ranks_is_refused():
    with pytest.raises(UsageError, match="share one accelerator"):
        member().device("cuda:1")


def test_only_errors_of_the_communicator_mean_a_lost_rank():
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


def test_a_wrong_number_of_ranks_does_not_train(tmp_path):
    told = []
    code = _take_part(job(tmp_path), RankPlace(0, 2, 0, "127.0.0.1", 29500, "torchrun"), told.append, tmp_path, 0)
    (message,) = told
    assert (code, message.error[:2]) == (2, ("a run on 3 ranks", "its launcher started 2"))


def test_the_phases_of_a_rank_do_not_wait_for_messages_on_other_streams(monkeypatch):
    torch = pytest.importorskip("torch")
    waited = []
    stream = SimpleNamespace(synchronize=lambda: waited.append("stream"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: waited.append("device"))
    backend = open_framework("torch", "cpu")
    backend._device = torch.device("cuda", 1)
    member().clock(backend).now_ns()
    AloneMember().clock(backend).now_ns()
    assert waited == ["stream", "device"]
