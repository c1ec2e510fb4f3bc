"""torchrun on two nodes, which are network namespaces: one job, started once on each."""

import json
import subprocess
import sys

import pytest

from levelbench.distributed.hosts import Hosts
from levelbench.distributed.launching import ENGINES

NODE = """
import sys
from pathlib import Path
from levelbench.distributed.launching import ENGINES
program = "import json, os; print(json.dumps(dict(os.environ)))"
command = [sys.executable, "-I", "-S", "-c", program]
options = {"nodes": 2, "rendezvous": "10.77.0.1:29400", "address": sys.argv[2]}
with ENGINES["torchrun"].start(command, 4, Path(sys.argv[1]), {}, **options) as running:
    assert running.wait(60), "it did not end in time"
    assert running.failure() is None, running.failure()
"""


@pytest.mark.slow
def test_torchrun_joins_the_ranks_of_two_nodes(tmp_path):
    for engine in ("torchrun", "hosts"):
        if ENGINES[engine].lacks():
            pytest.skip(ENGINES[engine].lacks())
    with Hosts(2) as hosts:
        words = [[sys.executable, "-c", NODE, str(tmp_path / str(at)), hosts.addresses[at]] for at in range(2)]
        nodes = [subprocess.Popen(hosts.command(at, words[at])) for at in range(2)]
        assert [node.wait(90) for node in nodes] == [0, 0]
    logs = [tmp_path / str(rank // 2) / f"rank-{rank}.log" for rank in range(4)]
    seen = [json.loads(log.read_text().splitlines()[0]) for log in logs]
    assert [(each["LEVELBENCH_RANK"], each["LEVELBENCH_LOCAL_RANK"]) for each in seen] == [
        ("0", "0"), ("1", "1"), ("2", "0"), ("3", "1"),
    ]  # fmt: skip
    assert {each["LEVELBENCH_SIZE"] for each in seen} == {"4"}
    assert {each["MASTER_ADDR"] for each in seen} == {"10.77.0.1"}
