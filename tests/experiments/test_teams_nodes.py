"""A run whose launchers restart its ranks, on two nodes that are network namespaces."""

import os
import subprocess
import sys
from contextlib import nullcontext

import pytest
from tests.experiments.team_jobs import DYING, alike, launched

from levelbench.distributed.launching import ENGINES
from levelbench.distributed.launching.namespaces import Hosts
from levelbench.records import Store

VICTIM = '''
def victim():
    """The process of the last rank, which is on the other node; network namespaces share all processes."""
    for each in Path("/proc").iterdir():
        try:
            environment = (each / "environ").read_bytes().split(b"\\0")
            words = (each / "cmdline").read_bytes().split(b"\\0")
        except OSError:
            continue
        task = str(Path(__file__)).encode()
        if b"LEVELBENCH_RANK=1" not in environment or words[1:3] != [b"-m", b"levelbench.experiments.rank"]:
            continue
        if task in (Path(words[3].decode()) / "job.json").read_bytes():
            return int(each.name)


'''


def commands(task, store, hosts):
    """The same command on each node; two nodes if there are hosts."""
    words = ["run", str(task), "--framework", "numpy", "--ranks", "2", "-n", "1", "--store", str(store)]
    words = [sys.executable, "-m", "levelbench", *words, "--checkpoint", "10 steps", "--timeout", "60", "--engine"]
    if hosts is None:
        return [[*words, "torchrun[max_restarts=1]"]]
    meet = f"nodes=2,rendezvous={hosts.addresses[0]}:29411,max_restarts=1"
    return [hosts.command(at, [*words, f"torchrun[{meet},address={hosts.addresses[at]}]"]) for at in range(2)]


@pytest.mark.slow
def test_torchrun_restarts_ranks_on_all_nodes_and_lost_time_is_on_the_clock(tmp_path, monkeypatch):
    pytest.importorskip("mpi4py")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    task, store = tmp_path / "dying.py", Store(tmp_path / "store")
    text = DYING.replace("class Dying", VICTIM.lstrip() + "class Dying", 1)
    task.write_text(text.replace("os.kill(os.getpid(), 9)", "os.kill(victim(), 9)"))
    task.with_suffix(".left").write_text("2")
    with nullcontext() if ENGINES["hosts"].lacks() else Hosts(2) as hosts:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        nodes = [subprocess.Popen(each, env=dict(os.environ), **pipes) for each in commands(task, store.path, hosts)]
        said = [node.communicate(timeout=150)[0] for node in nodes]
    # Every command reports that the target was missed, because it is out of reach.
    assert {node.returncode for node in nodes} == {1}, said
    records = store.records()
    assert sorted(each.status for each in records) == ["done", "interrupted"]
    record = next(each for each in records if each.status == "done")
    assert record.end.environment_after["team"]["restarts"] == 1
    assert any("restarted (times: 1), last from the checkpoint at step 30" in each for each in record.end.suspect)
    # Starting two processes that import PyTorch takes longer than the whole training.
    assert record.end.phases_ns["other"] > sum(ns for name, ns in record.end.phases_ns.items() if name != "other")
    # The sum of two numbers has the same bits over any communicator.
    alike(record, launched(task, Store(tmp_path / "whole"), "mpi")[0])
