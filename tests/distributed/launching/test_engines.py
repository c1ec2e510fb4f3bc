import json
import random
import select
import signal
import subprocess
import sys
import time

import pytest

from levelbench.distributed.launching import ENGINES
from levelbench.distributed.launching.environment import marked
from levelbench.distributed.launching.launchers import launcher_words
from levelbench.errors import MissingError, UsageError

CLUSTER = {"slurm": {"cluster": "local"}}
ALL = ["process", pytest.param("torchrun", marks=pytest.mark.slow), "mpi", "slurm", "hosts"]


@pytest.fixture(params=ALL, scope="module")
def job(request, team, tmp_path_factory):
    """The name of an engine, and a job of two ranks that it started, of which rank 1 was killed."""
    engine, folder = request.param, tmp_path_factory.mktemp(request.param)
    if lacking := ENGINES[engine].lacks(CLUSTER.get(engine)):
        pytest.skip(lacking)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("RANK", "9"), ("WORLD_SIZE", "10"), ("LEVELBENCH_RANK", "9"), ("PMI_FOREIGN", "1")):
            patch.setenv(name, value)
        words = team(folder, 1, "SIGKILL", 20)
        running = ENGINES[engine].start(words, 2, folder, {"OMP_NUM_THREADS": "7"}, **CLUSTER.get(engine, {}))
        with running:
            assert running.wait(120), "it did not end in time"
    return engine, running


def test_each_rank_gets_its_own_place_and_not_its_launchers(job):
    engine, running = job
    seen = [json.loads(running.log(rank).read_text().splitlines()[0]) for rank in range(2)]
    assert [each["LEVELBENCH_RANK"] for each in seen] == [each["RANK"] for each in seen] == ["0", "1"]
    assert {each["LEVELBENCH_SIZE"] for each in seen} == {each["WORLD_SIZE"] for each in seen} == {"2"}
    assert [each["LEVELBENCH_LOCAL_RANK"] for each in seen] == (["0", "0"] if engine == "hosts" else ["0", "1"])
    assert {each["LEVELBENCH_ENGINE"] for each in seen} == {engine}
    assert {each["OMP_NUM_THREADS"] for each in seen} == {"7"}
    assert not any("PMI_FOREIGN" in each for each in seen)


def test_all_ranks_get_the_same_rendezvous(job):
    seen = [json.loads(job[1].log(rank).read_text().splitlines()[0]) for rank in range(2)]
    assert len({(each["MASTER_ADDR"], each["MASTER_PORT"]) for each in seen}) == 1
    assert int(seen[0]["MASTER_PORT"]) > 0


def test_a_killed_rank_is_named_with_its_last_output(job):
    failure = job[1].failure()
    assert failure.reason == "rank 1 was killed by SIGKILL"
    assert failure.lines[-1] == "rank 1 fails by SIGKILL"


def test_nothing_is_left_of_a_job_with_a_killed_rank(job):
    assert marked(job[1].job) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_an_unknown_option_is_refused(engine, tmp_path):
    with pytest.raises(UsageError, match="option 'nodez' of the engine"):
        ENGINES[engine].start(["true"], 1, tmp_path, {}, nodez=2)


@pytest.mark.parametrize(
    ("engine", "option"), [("torchrun", "nodes"), ("slurm", "timeout_min"), ("hosts", "hosts"), ("slurm", "nodes")]
)
@pytest.mark.parametrize("value", ["two", -1, 1.5])
def test_an_option_that_is_not_a_number_is_refused(engine, option, value, tmp_path):
    with pytest.raises(UsageError, match=f"{option}={value} of the engine {engine!r}"):
        ENGINES[engine].check(2, {option: value})


@pytest.mark.parametrize(
    ("engine", "ranks", "options", "found"),
    [
        ("process", 0, {}, "at least one"),
        ("process", 2, {"nodes": 1}, "it has none"),
        ("torchrun", 2, {"nodes": 3}, "2 ranks on 3 nodes"),
        ("torchrun", 2, {"nodes": 2}, "no rendezvous for their launchers"),
        ("torchrun", 2, {"max_restarts": -1}, "not a whole number of at least 0"),
        ("torchrun", 2, {"restarts": 1}, "option 'restarts'"),
        ("torchrun", 2, {"numa": "cpu"}, "it is node, socket, exclusive, core-complex"),
        ("slurm", 2, {"nodes": 3}, "2 ranks on 3 nodes"),
        ("slurm", 2, {"cluster": "lokal"}, "slurm or local"),
        ("hosts", 2, {"rate": "abc"}, "its unit must be"),
        ("hosts", 2, {"hosts": 201}, "1 to 200"),
        ("mpi", 2, {"machines": "m1,,m2"}, "has no name"),
    ],
)
def test_an_impossible_job_is_refused_before_anything_starts(engine, ranks, options, found):
    with pytest.raises(UsageError, match=found):
        ENGINES[engine].check(ranks, options)


@pytest.mark.parametrize(
    ("engine", "options"),
    [
        ("process", {}),
        ("torchrun", {"nodes": 2, "rendezvous": "node1:29400", "job": "run-17"}),
        ("slurm", {"nodes": 2, "partition": "gpu", "mem_gb": 4}),
        ("hosts", {"rate": "100mbit", "delay": "5ms", "loss": "1%"}),
        ("mpi", {"machines": "m1,m2"}),
    ],
)
def test_a_possible_job_passes_the_check(engine, options):
    ENGINES[engine].check(4, options)


@pytest.mark.parametrize(("command", "ranks"), [([], 2), (["true"], 0)])
def test_a_job_without_a_command_or_a_rank_is_refused(command, ranks, tmp_path):
    with pytest.raises(UsageError, match="at least one"):
        ENGINES["process"].start(command, ranks, tmp_path, {})


def test_a_missing_program_fails_and_is_named(start):
    running = start("process", ["/nowhere/at-all"], 2)
    assert running.wait(120)
    assert running.failure().code == 127
    assert "/nowhere/at-all cannot be started" in running.failure().lines[-1]


def test_a_missing_mpi_launcher_is_reported(tmp_path):
    with pytest.raises(MissingError, match="there is no program '/nowhere/mpiexec'"):
        ENGINES["mpi"].start(["true"], 1, tmp_path, {}, launcher="/nowhere/mpiexec")


def test_slurm_without_srun_is_missing_unless_the_job_is_to_run_on_this_machine(tmp_path, monkeypatch):
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingError, match=r"srun is not on PATH. slurm\[cluster=local\] runs"):
        ENGINES["slurm"].start(["true"], 1, tmp_path, {})
    assert ENGINES["slurm"].lacks({"cluster": "local"}) is None
    (tmp_path / "srun").touch(0o755)
    assert ENGINES["slurm"].lacks() is None


@pytest.mark.parametrize(
    ("launcher", "version", "words"),
    [
        ("/a/mpiexec", "HYDRA build details:", ["/a/mpiexec", "-n", "4", "-hosts", "m1,m2"]),
        ("/a/srun", "slurm 24", ["/a/srun", "--ntasks", "4", "--kill-on-bad-exit=1", "--nodelist", "m1,m2"]),
    ],
)
def test_each_mpi_launcher_gets_its_own_arguments(launcher, version, words):
    assert launcher_words(launcher, version, 4, "m1,m2", {}) == words


def test_open_mpi_accepts_root_and_few_cores_and_passes_variables_on(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    words = launcher_words("/a/mpirun", "mpirun (Open MPI) 4.1.4", 4, "m1", {"LEVELBENCH_JOB": "x", "HOME": "/"})
    assert words[1] == "--allow-run-as-root"
    assert "--oversubscribe" in words
    assert words[-2:] == ["-x", "LEVELBENCH_JOB"]


def test_a_job_that_is_killed_has_not_failed_by_itself(start):
    running = start("process", ["sleep", "100"], 2)
    assert not running.wait(0.2)
    running.kill()
    assert running.poll()
    assert running.failure() is None


@pytest.mark.slow
def test_a_rank_that_ignores_sigterm_is_killed(start, python):
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('in', flush=True)"
    running = start("process", [*python, f"{stubborn}; time.sleep(100)"], 1)
    while not running.log(0).exists() or "in" not in running.log(0).read_text():
        running.wait(0.02)
    running.kill()
    assert marked(running.job) == []


LAUNCHING = """
import sys
import time
from levelbench.distributed.launching import ENGINES
from pathlib import Path
running = ENGINES[sys.argv[1]].start(["sh", "-c", "setsid sleep 300 & echo in; wait"], 2, Path(sys.argv[2]), {})
print(running.job, flush=True)
running.wait(100)
"""


@pytest.mark.parametrize("engine", ["process", "mpi"])
def test_a_killed_launching_process_leaves_nothing_behind(engine, tmp_path):
    if ENGINES[engine].lacks():
        pytest.skip(ENGINES[engine].lacks())
    words = [sys.executable, "-c", LAUNCHING, engine, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as launching:
        job = launching.stdout.readline().strip()
        logs = [tmp_path / f"rank-{rank}.log" for rank in range(2)]
        wait_until(lambda: all(log.exists() and log.read_text() for log in logs))
        assert len(marked(job)) >= 6
        launching.kill()
    wait_until(lambda: marked(job) == [])


def wait_until(true, timeout_s=120.0):

    until = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < until, "it did not come true in time"
        select.select([], [], [], 0.02)


RANKS = 3
WAYS = ["SIGKILL", "SIGKILL", "SIGSEGV", "SIGSTOP", "exit", "exception"]
# Together with those above, they are 20.
STARTED_BY = ["process"] * 10 + ["hosts"] * 2 + ["mpi"] * 3


def draw(number):
    """A way to die for each number, reproducibly."""
    source = random.Random(number)
    return source.randrange(RANKS), WAYS[number % len(WAYS)], source.randrange(1, 40)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(STARTED_BY)), ids=lambda n: f"{STARTED_BY[n]}-{draw(n)[1]}-{n}")
def test_a_rank_that_dies_is_named_and_nothing_is_left(start, team, tmp_path, number):
    engine, (victim, how, rounds) = STARTED_BY[number], draw(number)
    running = start(engine, team(tmp_path, victim, how, rounds), RANKS)
    assert running.wait(120), "it did not end in time"
    failure = running.failure()
    assert failure.rank == victim, failure
    assert failure.lines[-1 if how != "exception" else 2] == f"rank {victim} fails by {how}"
    if how == "SIGSTOP":
        assert failure.reason.startswith(f"rank {victim} did not answer")
    elif how.startswith("SIG"):
        assert failure.signal == getattr(signal, how)
    else:
        assert failure.code == {"exit": 3, "exception": 1}[how]
    assert marked(running.job) == []


def test_a_killed_supervisor_takes_its_rank_along_and_is_reported(start):
    running = start("process", ["sleep", "100"], 3)
    running._processes[1].kill()
    assert running.wait(120)
    failure = running.failure()
    assert (failure.rank, failure.signal) == (1, signal.SIGKILL)
    assert marked(running.job) == []


WATCHDOG = "[PG ID 0 PG GUID 0(default_pg) Rank 0] Process group watchdog thread terminated with exception: "
LATE = WATCHDOG + "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=ALLREDUCE)"
GONE = WATCHDOG + "NCCL error: remote process exited or there was a network error, NCCL version 2.27"
OWN = WATCHDOG + "CUDA error: an illegal memory access was encountered"


@pytest.mark.parametrize(("said", "named"), [(LATE, 1), (GONE, 1), (OWN, 0)])
def test_a_rank_that_nccls_watchdog_ends_is_named_only_for_an_error_of_its_own(start, tmp_path, said, named):
    program = """
import os, pathlib, sys, time
if os.environ["RANK"] == "0":
    print(sys.argv[2], "frame #0: c10::Error::Error", sep=chr(10), flush=True)
    pathlib.Path(sys.argv[1]).touch()
    os.abort()
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.01)
time.sleep(0.5)
sys.exit(3)
"""
    running = start("process", [sys.executable, "-I", "-S", "-c", program, str(tmp_path / "ended"), said], 2)
    assert running.wait(60)
    assert running.failure().rank == named
