"""Jobs in SLURM's queue, with a stand-in for its commands: no cluster is needed."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from levelbench.distributed.launching import ENGINES
from levelbench.distributed.launching.launchers import threads_of_a_task
from levelbench.errors import CommunicationError, UsageError

pytest.importorskip("submitit", reason="submitit is not installed")

PRINTS = "import json, os; print(json.dumps(dict(os.environ)))"


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A folder with the stand-in's files; its commands come first on PATH."""
    commands = tmp_path / "commands"
    commands.mkdir()
    text = (Path(__file__).parent / "slurm_stand_in.py").read_text()
    for name in ("sbatch", "srun", "sacct", "scancel"):
        (commands / name).write_text(text.replace("/usr/bin/env python3", sys.executable))
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_STAND_IN", str(tmp_path))
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def call(cluster):
    """The program's exit code and output in that folder."""

    def run(*words):
        done = subprocess.run(
            [sys.executable, "-m", "levelbench", *map(str, words)],
            check=False,
            cwd=cluster,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        return done.returncode, done.stdout

    return run


@pytest.fixture
def seen(cluster, start):
    """What sbatch was asked for, and the environment of the first of two ranks."""

    def submit(**options):
        running = start("slurm", [sys.executable, "-c", PRINTS], 2, folder=cluster / "job", **options)
        assert running.wait(120), "it did not end in time"
        assert running.failure() is None
        asked = (cluster / "options-1").read_text().splitlines()
        return asked, json.loads(running.log(0).read_text().splitlines()[0])

    return submit


def test_options_of_sbatch_reach_it(seen):
    given = {
        "exclusive": True,
        "gres": "gpu:2",
        "nodelist": "node[1-2]",
        "sbatch.mail-type": "END",
        "sbatch.hold": True,
    }
    asked, _ = seen(**given)
    assert {"exclusive", "gres=gpu:2", "nodelist='node[1-2]'", "mail-type=END", "hold"} <= set(asked)


def test_a_line_of_shell_runs_before_the_ranks(seen):
    assert seen(setup="export LOADED=cuda")[1]["LOADED"] == "cuda"


def test_ranks_divide_the_nodes_cores_and_not_those_of_the_machine_that_submits(seen, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64))
    assert seen()[1]["OMP_NUM_THREADS"] == str(max(1, (os.cpu_count() or 1) // 2))


def test_ranks_get_the_cores_that_the_job_asks_for(seen):
    asked, environment = seen(cpus_per_task=3)
    assert "cpus-per-task=3" in asked
    assert environment["OMP_NUM_THREADS"] == environment["MKL_NUM_THREADS"] == "3"


@pytest.mark.parametrize(("allowed", "threads"), [(8, "4"), (2, "2")], ids=["whole-node", "bound-to-its-cores"])
def test_a_task_that_is_bound_to_its_cores_does_not_divide_them(allowed, threads, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(allowed))
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert threads_of_a_task({}, 2)["OMP_NUM_THREADS"] == threads
    assert threads_of_a_task({"OMP_NUM_THREADS": "1"}, 2)["MKL_NUM_THREADS"] == "1"


@pytest.mark.parametrize(
    ("name", "do"),
    [("sbatch.time", "timeout_min"), ("sbatch.ntasks-per-node", "--ranks"), ("sbatch.output", "Leave it out")],
)
def test_what_levelbench_asks_for_itself_cannot_be_asked_for_twice(name, do):
    with pytest.raises(UsageError, match=f"{name}=4 of the engine 'slurm'.*{do}"):
        ENGINES["slurm"].check(2, {name: 4})


def test_a_login_node_without_accelerators_can_submit_and_the_ranks_say_what_they_lack(cluster, call):
    code, out = call("run", "digits", "--framework", "torch", "--device", "cuda", "--ranks", 2, "--engine", "slurm")
    assert (cluster / "options-1").is_file()
    assert code != 0
    assert re.search("cuda|nccl", out)


def test_a_run_of_ranks_in_the_queue_is_recorded(cluster, call):
    code, out = call("run", "digits", "--framework", "torch", "--ranks", 2, "--engine", "slurm[exclusive=true]")
    assert code == 0, out
    assert "exclusive" in (cluster / "options-1").read_text()


def test_what_sbatch_refuses_is_said(cluster):
    with pytest.raises(CommunicationError, match=r"a job of 2 ranks.*sbatch refused it.*Invalid partition name"):
        ENGINES["slurm"].start(["true"], 2, cluster / "job", {}, partition="none")


def test_one_rank_is_not_run_on_the_login_node(cluster, call):
    code, out = call("run", "digits", "--framework", "numpy", "--ranks", 1, "--engine", "slurm")
    assert code == 2
    assert "one rank runs in the process that you start, here" in out
