"""torchrun on several nodes: one job, started once on each, and the loss of a whole node."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from levelbench.distributed.launching import ENGINES, launchers
from levelbench.distributed.launching.environment import JOB, marked
from levelbench.distributed.launching.launchers import OnNode
from levelbench.distributed.launching.local import (
    SupervisedJob,
    environment_of_ranks,
    free_port,
    start_supervisor,
    supervisor_words,
)
from levelbench.distributed.launching.namespaces import Hosts
from levelbench.errors import UsageError

# Arguments: the folder, the node's address, and the command of a rank.
NODE = """
import sys
from pathlib import Path
from levelbench.distributed.launching import ENGINES, launchers
launchers._MEET_S = 1.0
options = {"nodes": 2, "rendezvous": "10.77.0.1:29400", "address": sys.argv[2], "max_restarts": 1}
with ENGINES["torchrun"].start(sys.argv[3:], 4, Path(sys.argv[1]), {}, **options) as running:
    assert running.wait(200), "it did not end in time"
    print(running.failure().reason)
"""


def there(hosts, at):
    """Ids of the processes on a host."""
    found = subprocess.run(["ip", "netns", "pids", hosts.names[at]], capture_output=True, text=True, check=True)
    return [int(each) for each in found.stdout.split()]


def kill_host(hosts, at):
    """Everything that runs there, as in a power failure, except that packets are still answered."""
    while left := there(hosts, at):
        for each in left:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        time.sleep(0.05)


def once(ready, seconds=200):
    until = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.1)


@pytest.mark.slow
def test_torchrun_joins_two_nodes_and_one_ends_soon_after_the_loss_of_the_other(tmp_path, team):
    for engine in ("torchrun", "hosts"):
        if ENGINES[engine].lacks():
            pytest.skip(ENGINES[engine].lacks())
    logs = [tmp_path / str(rank // 2) / f"rank-{rank}.log" for rank in range(4)]
    with Hosts(2) as hosts:
        words = [[sys.executable, "-c", NODE, str(tmp_path / str(at)), hosts.addresses[at]] for at in range(2)]
        nodes = []
        for at, each in enumerate(words):
            with (tmp_path / f"output-{at}").open("wb") as output:
                nodes.append(subprocess.Popen(hosts.command(at, [*each, *team(tmp_path, -1, "", 0)]), stdout=output))
        try:
            once(lambda: all(log.exists() and "is in" in log.read_text() for log in logs))
            kill_host(hosts, 1)
            assert [nodes[at].wait(120) for at in (1, 0)] == [-signal.SIGKILL, 0]
            assert there(hosts, 0) == []
        finally:
            for each in nodes:
                each.kill()
                each.wait()
    # torchrun's launcher would wait ten minutes for the other node.
    assert (
        "ended with code 75, and its launcher waited 1 s in vain for other nodes" in (tmp_path / "output-0").read_text()
    )
    seen = [json.loads(log.read_text().splitlines()[0]) for log in logs]
    assert [(each["LEVELBENCH_RANK"], each["LEVELBENCH_LOCAL_RANK"]) for each in seen] == [
        ("0", "0"), ("1", "1"), ("2", "0"), ("3", "1"),
    ]  # fmt: skip
    assert {each["LEVELBENCH_SIZE"] for each in seen} == {"4"}
    assert {each["MASTER_ADDR"] for each in seen} == {"10.77.0.1"}


@pytest.mark.slow
def test_nodes_meet_where_a_clusters_variables_say(tmp_path, python):
    """As the pods of Kubeflow's trainer, which have torchrun's variables and no rendezvous."""
    if lacking := ENGINES["torchrun"].lacks():
        pytest.skip(lacking)
    place = {"PET_NNODES": "2", "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(free_port())}
    command = [*python, "import os; print(os.environ['RANK'], os.environ['WORLD_SIZE'])"]
    nodes = [
        ENGINES["torchrun"].start(command, 4, tmp_path / str(at), {**place, "PET_NODE_RANK": str(at)})
        for at in range(2)
    ]
    with nodes[0], nodes[1]:
        assert all(each.wait(200) for each in nodes), "they did not meet"
        assert [each.failure() for each in nodes] == [None, None]
    assert [nodes[rank // 2].log(rank).read_text() for rank in range(4)] == [f"{rank} 4\n" for rank in range(4)]


# A launcher of two ranks on two nodes, the other of which never appears: each argument is a start of the rank here,
# with the seconds after which it ends and its exit code; then it waits for ever.
LAUNCHER = """
import json, os, subprocess, sys, time
supervisor, starts = json.loads(sys.argv[1]), json.loads(sys.argv[2])
for seconds, code in starts:
    program = f"import time; time.sleep({seconds}); raise SystemExit({code})"
    words = [*supervisor, sys.executable, "-I", "-S", "-c", program]
    subprocess.run(words, env={**os.environ, "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"})
time.sleep(60)
"""


@pytest.fixture
def node(tmp_path, python):
    """A node whose launcher starts its rank several times."""
    jobs = []

    def begin(*starts, restarts=True):
        environment = environment_of_ranks({}, "torchrun", 1)
        kept = SupervisedJob(tmp_path, 2, environment[JOB], launcher=True, whole=False)
        supervisor = supervisor_words(tmp_path, [], child=False)
        command = [*python, LAUNCHER, json.dumps(supervisor), json.dumps(starts)]
        kept.add(start_supervisor(supervisor_words(tmp_path, command, launcher=True), environment))
        jobs.append(OnNode(kept, 2, "node1:29400", restarts))
        return jobs[-1]

    yield begin
    for each in jobs:
        each.kill()
        assert marked(each.job) == []


@pytest.mark.slow
@pytest.mark.parametrize(("restarts", "seconds"), [(True, "0.2"), (False, "0.1")])
def test_a_launcher_that_waits_for_lost_nodes_is_ended(node, monkeypatch, restarts, seconds):
    monkeypatch.setattr(launchers, "_MEET_S", 0.2)
    monkeypatch.setattr(launchers, "_ALONE_S", 0.1)
    running = node((0, 3), restarts=restarts)
    assert running.wait(120)
    reason = f"rank 0 ended with code 3, and its launcher waited {seconds} s in vain for other nodes"
    assert running.failure().reason == reason


@pytest.mark.slow
def test_a_launcher_whose_ranks_run_again_is_left_alone(node, monkeypatch):
    monkeypatch.setattr(launchers, "_MEET_S", 2.0)
    monkeypatch.setattr(launchers, "_SETTLED_S", 0.1)
    running = node((0, 3), (60, 0))
    assert not running.wait(4.0)


@pytest.mark.slow
def test_a_node_whose_ranks_ended_well_may_wait_for_the_others(node, monkeypatch):
    monkeypatch.setattr(launchers, "_MEET_S", 0.1)
    assert not node((0, 0)).wait(1.0)


@pytest.mark.slow
def test_a_lost_peer_is_attributed_to_another_node(tmp_path, python):
    environment = environment_of_ranks({}, "torchrun", 1)
    kept = SupervisedJob(tmp_path, 2, environment[JOB], launcher=True, whole=False)
    program = "import subprocess, sys; subprocess.run(sys.argv[1:]); raise SystemExit(1)"
    rank = ["env", "RANK=0", "WORLD_SIZE=2", *supervisor_words(tmp_path, ["sh", "-c", "exit 75"], child=False)]
    kept.add(start_supervisor(supervisor_words(tmp_path, [*python, program, *rank], launcher=True), environment))
    running = OnNode(kept, 2, "node1:29400", restarts=False)
    assert running.wait(120)
    assert running.failure().reason == "rank 0 ended with code 75, what it lost is on another node"


def test_a_variable_number_of_nodes_is_refused(monkeypatch):
    monkeypatch.setenv("PET_NNODES", "1:2")
    monkeypatch.setenv("PET_RDZV_ENDPOINT", "node1:29400")
    with pytest.raises(UsageError, match="there would be fewer ranks"):
        ENGINES["torchrun"].check(4, {})
    ENGINES["torchrun"].check(4, {"nodes": 2})


def test_ranks_can_be_bound_to_the_cores_near_their_accelerators():
    for options, binding in (({}, []), ({"numa": "node"}, ["--numa-binding=node"])):
        _, words = ENGINES["torchrun"]._command(2, options, {})
        assert [each for each in words if "numa" in each] == binding
