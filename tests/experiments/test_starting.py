"""All processes of a command start in the same way: forked if every framework allows it."""

import os
import tempfile

import pytest
from tests.experiments.campaigns import NUMPY, Quiet, carry_out, plan_of

from levelbench.experiments.processes import ROUNDS, Starter
from levelbench.experiments.request import resolve
from levelbench.experiments.training import Extras
from levelbench.measure.forking import can_fork
from levelbench.operators.frameworks import load_framework

needs_fork = pytest.mark.skipif(not can_fork(), reason="this system cannot fork from a server")


@pytest.mark.slow
@needs_fork
@pytest.mark.usefixtures("cold")
def test_a_record_says_how_its_process_was_started(task_file, store):
    arm = resolve(str(task_file), {}, NUMPY)
    forked = carry_out(plan_of([arm], [0], store), store, None, Quiet())[0, 0]
    spawned = carry_out(plan_of([arm], [1], store), store, None, Quiet(), Extras(fork=False))[0, 1]
    assert [each.header.environment["started"] for each in (forked, spawned)] == ["fork", "spawn"]


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
def test_importing_a_framework_leaves_no_threads(framework):
    found = load_framework(framework)
    if found.lacks():
        pytest.skip(found.lacks())
    with Starter("levelbench.experiments.child", [(framework, "cpu")]) as starter:
        starter.begin(0)
        assert starter.how == ("fork" if can_fork() else "spawn")


@pytest.fixture
def echo(tmp_path, monkeypatch):
    """Starts a process on NumPy with a starter; returns its parent's process group and its hashes."""
    text = "from levelbench.measure.forking import how_started\nprint(how_started(), hash('levelbench'))\n"
    (tmp_path / "echo.py").write_text(text)
    # Nothing is imported from the working folder.
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)

    def start(starter):
        with tempfile.TemporaryFile("w+") as output:
            child = starter.start("numpy", [], output.fileno(), [])
            child.stdin.close()
            assert child.wait() == 0
            output.seek(0)
            return output.read().split()

    return start


@pytest.mark.slow
@needs_fork
@pytest.mark.usefixtures("cold")
def test_processes_of_a_round_share_a_server_and_the_next_round_has_a_new_one(echo):
    with Starter("echo", [("numpy", "cpu")]) as starter:
        found = []
        for number in (0, ROUNDS - 1, ROUNDS):
            starter.begin(number)
            found.append(echo(starter))
    assert [how for how, _ in found] == ["fork"] * 3
    assert found[0] == found[1] != found[2]


@needs_fork
def test_if_one_framework_cannot_be_forked_no_process_is(echo, tmp_path, monkeypatch):
    (tmp_path / "threaded.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    )
    monkeypatch.setattr(type(load_framework("numpy")), "imports", ("threaded",))
    with Starter("echo", [("numpy", "cpu")]) as starter:
        starter.begin(0)
        assert starter.how == "spawn"
        assert echo(starter)[0] == "spawn"


def test_on_an_accelerator_or_on_request_all_processes_are_new_interpreters(echo):
    for starter in (
        Starter("echo", [("numpy", "cpu"), ("torch", "cuda")]),
        Starter("echo", [("numpy", "cpu")], fork=False),
    ):
        with starter:
            starter.begin(0)
            assert echo(starter)[0] == "spawn"


@needs_fork
@pytest.mark.usefixtures("cold")
def test_without_its_server_the_next_process_is_a_new_interpreter(echo):
    with Starter("echo", [("numpy", "cpu")]) as starter:
        starter.begin(0)
        os.kill(starter._servers["numpy"]._process.pid, 9)
        starter._servers["numpy"]._process.wait()
        assert echo(starter)[0] == "spawn"
        assert starter.how == "spawn"
