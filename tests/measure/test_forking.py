"""What is forked from a server is as a new interpreter would be."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

from levelbench.errors import UnsupportedError
from levelbench.measure.forking import ForkServer, can_fork, ending_leftovers

pytestmark = [
    pytest.mark.skipif(not can_fork(), reason="this system cannot fork from a server"),
    pytest.mark.usefixtures("cold"),
]

LOOK = """
import json, os, random, signal, sys
import numpy as np
from levelbench.measure.forking import how_started
def status(name):
    return int(next(line for line in open("/proc/self/status") if line.startswith(name + ":")).split()[1])
threads = status("Threads")
open("/proc/self/clear_refs", "w").write("5")
# As large as a small training is: kernels count pages in batches of each core, which is 1 MiB and more on many cores.
a = np.ones((6000, 6000), np.float32)
a[:300, :300] @ a[:300, :300]
print(json.dumps({
    "how": how_started(), "parent": os.getppid(), "session": os.getsid(0) == os.getpid(), "folder": os.getcwd(),
    "variable": os.environ.get("LEVELBENCH_TEST"), "arguments": sys.argv[1:], "read": sys.stdin.read(),
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), "threads": threads,
    "files": sorted(map(int, os.listdir("/proc/self/fd"))),
    "random": [random.random(), np.random.rand()], "hash": hash("levelbench"), "peak": status("VmHWM"),
}))
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "look.py").write_text(LOOK)
    return tmp_path


@pytest.fixture
def server(folder):
    with ForkServer(["numpy", "levelbench.measure.environment"]) as server:
        server.wait_ready()
        yield server


def looked(child, output):
    child.stdin.write(b"a job")
    child.stdin.close()
    code = child.wait()
    output.seek(0)
    return code, json.loads(output.read())


def forked(server, code="0", **options):
    with tempfile.TemporaryFile() as output:
        number = output.fileno()
        return looked(server.start("look", [code, "b"], stdout=number, stderr=number, **options), output)


def test_a_forked_process_is_a_child_of_ours_with_what_it_was_given(server, folder):
    (folder / "other").mkdir()
    (folder / "other" / "look.py").write_text(LOOK)
    environment = {**os.environ, "LEVELBENCH_TEST": "given"}
    read, write = os.pipe()
    code, found = forked(server, "3", environment=environment, folder=folder / "other", session=True, pass_fds=[write])
    os.close(read)
    os.close(write)
    assert code == 3
    assert found["how"] == "fork"
    assert found["parent"] == os.getpid()
    assert (found["session"], found["folder"], found["variable"]) == (True, str(folder / "other"), "given")
    assert (found["arguments"], found["read"], found["blocked"]) == (["3", "b"], "a job", [])
    assert set(found["files"]) >= {0, 1, 2, write}


def test_it_has_the_threads_and_the_memory_of_a_new_interpreter_and_random_numbers_of_its_own(server):
    code = "import numpy, levelbench.measure.environment, runpy; runpy.run_module('look', run_name='__main__')"
    with tempfile.TemporaryFile() as output:
        words = [sys.executable, "-c", code, "0", "b"]
        _, fresh = looked(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=output), output)
    one, other = (forked(server)[1] for _ in range(2))
    assert (fresh["how"], fresh["session"]) == ("spawn", False)
    assert one["threads"] == other["threads"] == fresh["threads"]
    assert one["files"] == fresh["files"]
    for found in (one, other):
        assert found["peak"] == pytest.approx(fresh["peak"], rel=0.02)
    assert all(a != b for a, b in zip(one["random"], other["random"], strict=True))
    # What the children of one server share, and a new server is made for.
    assert one["hash"] == other["hash"] != fresh["hash"]


def test_a_killed_one_says_so_and_an_interrupt_ends_it_and_not_the_server(server, folder):
    text = "import signal, time\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    text += "from levelbench.measure.forking import end_on_interrupt\nend_on_interrupt()\n"
    (folder / "sleeper.py").write_text(text + "print('up', flush=True)\ntime.sleep(60)\n")
    for number in (signal.SIGKILL, signal.SIGINT):
        read, write = os.pipe()
        child = server.start("sleeper", [], stdout=write, stderr=write)
        os.close(write)
        assert os.read(read, 2) == b"up"
        os.close(read)
        assert child.poll() is None
        if number == signal.SIGINT:
            for pid in (server._process.pid, child.pid):
                os.kill(pid, signal.SIGINT)
        else:
            child.kill()
        assert child.wait() == -number
        child.stdin.close()
    assert forked(server)[0] == 0


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()", "1 thread of"),
        ("raise KeyError('gone')", "importing wrong raised KeyError: 'gone'"),
        ("import os\nos._exit(3)", "ended while importing"),
    ],
)
def test_a_server_that_cannot_serve_says_why(folder, source, reason):
    (folder / "wrong.py").write_text(source)
    with ForkServer(["wrong"]) as server, pytest.raises(UnsupportedError, match=reason):
        server.wait_ready()


def test_a_server_that_has_gone_is_an_error(server):
    server._process.kill()
    server._process.wait()
    with tempfile.TemporaryFile() as output, pytest.raises(UnsupportedError, match="their server has ended"):
        server.start("look", ["0"], stdout=output.fileno(), stderr=output.fileno())


def test_a_process_that_cannot_begin_is_an_error_and_not_waited_for(server, folder):
    with Path(os.devnull).open("wb") as nowhere, pytest.raises(UnsupportedError, match="could not begin"):
        server.start("look", ["0"], stdout=nowhere.fileno(), stderr=nowhere.fileno(), folder=folder / "not there")


def test_nothing_outlives_a_command_that_is_killed(folder):
    (folder / "sleeper.py").write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)\n")
    (folder / "command.py").write_text(
        textwrap.dedent("""
        import time
        from levelbench.measure.forking import ForkServer
        with ForkServer(["json"]) as server:
            server.wait_ready()
            print(server._process.pid, flush=True)
            child = server.start("sleeper", [], stdout=1, stderr=2)
            time.sleep(60)
        """)
    )
    command = subprocess.Popen([sys.executable, "command.py"], stdout=subprocess.PIPE)
    pids = [int(command.stdout.readline()) for _ in range(2)]
    command.kill()
    command.wait()
    command.stdout.close()
    until = time.monotonic() + 20
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.02)
    assert [pid for pid in pids if alive(pid)] == []


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


DAEMON = """
import os, time
if not os.fork():
    os.setsid()
    if not os.fork():
        time.sleep({seconds})
    os._exit(0)
"""


def test_a_process_that_was_left_behind_is_ended_and_named():
    with ending_leftovers(0.1) as left:
        subprocess.run([sys.executable, "-c", DAEMON.format(seconds=60)], check=True)
    (pid,) = left
    assert not alive(pid)


def test_a_process_that_ends_by_itself_was_not_left_behind():
    with ending_leftovers(20.0) as left:
        subprocess.run([sys.executable, "-c", DAEMON.format(seconds=0.1)], check=True)
    assert left == []
