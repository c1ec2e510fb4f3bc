"""From options about ranks to a distribution: every error is found before a process starts."""

import pytest

from levelbench.distributed.launching import ENGINES
from levelbench.distributed.schemes.all_reduce import AllReduce
from levelbench.errors import (
    MissingError,
    UnknownNameError,
    UnsupportedError,
    UsageError,
)
from levelbench.experiments.request import Options, TeamOptions, resolve, resolve_distribution
from levelbench.records import Distribution

MINE = """
from dataclasses import dataclass
from typing import ClassVar

from levelbench.distributed.schemes.all_reduce import AllReduce


@dataclass(frozen=True)
class Mine(AllReduce):
    name: ClassVar[str] = "mine"
    patience: int = 3
"""


@pytest.fixture(autouse=True)
def something_to_talk_through(monkeypatch):
    """Everything counts as installed; other tests cover what is missing."""
    kinds = {"gloo": None, "mpi": None, "nccl": None}
    monkeypatch.setattr("levelbench.distributed.finding.communicator_kinds", lambda: kinds)
    # So do engines: MPI may be missing, and namespaces need root.
    for engine in ENGINES.values():
        monkeypatch.setattr(type(engine), "lacks", lambda self, options=None: None)


def resolved(given=None, framework="numpy", **options):
    return resolve_distribution(TeamOptions(**options), dict(given or {}), framework, "cpu")


def test_without_options_a_run_is_one_process():
    assert resolved() is None


def test_one_rank_is_one_process_without_a_scheme():
    assert resolved(ranks=1, scheme="top-k") is None


def test_all_settings_of_the_scheme_are_in_the_distribution():
    found = resolved(ranks=4, scheme="top-k[ratio=0.1]")
    assert (found.ranks, found.scheme, found.engine, found.communicator) == (4, "top-k", "process", "gloo")
    assert found.settings["ratio"] == 0.1
    assert found.settings["error_feedback"] is True


def test_an_engines_options_are_part_of_the_run():
    found = resolved(ranks=2, engine="hosts[rate=10mbit,delay=5ms]")
    assert (found.engine, found.communicator) == ("hosts[delay=5ms,rate=10mbit]", "gloo")
    assert resolved(ranks=2, engine="hosts[delay=5ms,rate=10mbit]") == found


@pytest.mark.parametrize(
    "scheme",
    [
        *("gossip", "neighbours", "parameter-server", "async-parameter-server", "stale-synchronous"),
        *("all-reduce[algorithm=ring]", "top-k[exchange_by=doubling]"),
    ],
)
def test_schemes_whose_messages_cross_are_refused_over_nccl(scheme):
    assert resolved(ranks=4, scheme=scheme).communicator == "gloo"
    with pytest.raises(UnsupportedError, match="over nccl"):
        resolved(ranks=4, scheme=scheme, communicator="nccl")


def test_schemes_of_collectives_run_over_nccl():
    for scheme in ("all-reduce", "top-k", "local-sgd", "fp16", "qsgd", "power-sgd", "model-averaging"):
        assert resolved(ranks=4, scheme=scheme, communicator="nccl").communicator == "nccl"


def test_an_alias_is_resolved_to_the_scheme():
    assert resolved(ranks=2, scheme="dsgd") == resolved(ranks=2, scheme="all-reduce") == resolved(ranks=2)


def test_a_tasks_brackets_override_the_options():
    given = {"ranks": 3, "scheme": "local-sgd[period=4]", "lr": 0.1}
    found = resolve_distribution(TeamOptions(ranks=2), given, "numpy", "cpu")
    assert (found.ranks, found.scheme, found.settings["period"]) == (3, "local-sgd", 4)
    assert given == {"lr": 0.1}


def test_the_distribution_is_part_of_the_specification_and_of_its_key():
    alone = resolve("digits", {}, Options(framework="numpy"))
    pair = resolve("digits", {"ranks": 2}, Options(framework="numpy"))
    assert alone.specification.distribution is None
    assert isinstance(pair.specification.distribution, Distribution)
    assert alone.key != pair.key


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"ranks": 0}, UsageError, "at least 1"),
        ({"ranks": True}, UsageError, "number of processes"),
        ({"scheme": "top-k"}, UsageError, "--ranks"),
        ({"ranks": 2, "scheme": "topk"}, UnknownNameError, "top-k"),
        ({"ranks": 2, "scheme": "top-k[raito=1]"}, UnknownNameError, "ratio"),
        ({"ranks": 2, "scheme": "top-k[ratio=much]"}, UsageError, "must be a number"),
        ({"ranks": 2, "engine": "torchrn"}, UnknownNameError, "torchrun"),
        ({"ranks": 2, "communicator": "mpi"}, UsageError, "engine mpi"),
        ({"ranks": 2, "communicator": "gllo"}, UnknownNameError, "gloo"),
        ({"ranks": 2, "scheme": "ddp", "engine": "mpi", "framework": "torch"}, UnsupportedError, "--communicator gloo"),
        ({"ranks": 2, "engine": "process[x=1]"}, UsageError, "process"),
        ({"ranks": 3, "engine": "torchrun[nodes=2,rendezvous=a:1]"}, UsageError, "nodes"),
        ({"ranks": 2, "engine": "hosts[rate=slow]"}, UsageError, "slow"),
        ({"ranks": 2, "scheme": "ddp"}, UnsupportedError, "--framework torch"),
        ({"ranks": 2, "scaling": "strng"}, UnknownNameError, "strong"),
        ({"ranks": 2, "lr_scale": "linear"}, UsageError, "weak scaling"),
        ({"ranks": 2, "scaling": "weak", "lr_scale": "cubic"}, UnknownNameError, "linear"),
        ({"ranks": 2, "scheme": "parameter-server[servers=2]"}, UsageError, "server"),
    ],
)
def test_impossible_distributions_are_refused_with_the_reason(given, error, words):
    with pytest.raises(error, match=words):
        resolved(**given)


def test_a_scheme_of_one_framework_is_refused_on_another(monkeypatch):
    monkeypatch.setattr(AllReduce, "frameworks", ("torch",))
    with pytest.raises(UnsupportedError, match="torch"):
        resolved(ranks=2)


def test_a_communicator_that_is_not_installed_is_missing(monkeypatch):
    kinds = {"gloo": "PyTorch is not installed", "mpi": None}
    monkeypatch.setattr("levelbench.distributed.finding.communicator_kinds", lambda: kinds)
    with pytest.raises(MissingError, match="PyTorch is not installed"):
        resolved(ranks=2)


def test_a_scheme_from_a_file_is_named_by_its_path(tmp_path):
    path = tmp_path / "my_scheme.py"
    path.write_text(MINE)
    found = resolved(ranks=2, scheme=f"{path}[patience=5]")
    assert (found.scheme, found.settings["patience"]) == (str(path), 5)


def test_editing_a_scheme_file_changes_the_run_and_writing_its_path_differently_does_not(tmp_path, monkeypatch):
    path = tmp_path / "my_scheme.py"
    path.write_text(MINE)
    monkeypatch.chdir(tmp_path)
    before = resolved(ranks=2, scheme=str(path))
    assert resolved(ranks=2, scheme="my_scheme.py") == before
    path.write_text(f"{MINE}# edited")
    assert resolved(ranks=2, scheme=str(path)).digest != before.digest
