"""Small programs for ranks, which only use the standard library so that they start quickly, and what starts them."""

import subprocess
import sys

import pytest

from levelbench.distributed.launching import ENGINES, namespaces
from levelbench.distributed.launching.environment import marked

PYTHON = [sys.executable, "-I", "-S", "-c"]

# Ranks that depend on each other like those of a training: each has a connection to rank 0, which regularly sends a
# byte. Silence or an end of file means a lost rank, after which a rank ends with code 75, like ranks of levelbench.
# They print their environment first. Arguments: the folder where rank 0 writes its port, the rank that fails, how, and
# after how many rounds.
TEAM = r"""
import json, os, pathlib, select, signal, socket, subprocess, sys, time
print(json.dumps(dict(os.environ)), flush=True)
folder, victim, how, rounds = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
rank, size = int(os.environ["LEVELBENCH_RANK"]), int(os.environ["LEVELBENCH_SIZE"])
if rank == victim:  # a child in a session of its own, which no signal to a process group would reach
    subprocess.Popen(["sleep", "300"], start_new_session=True)
place = folder / "port"
if rank == 0:
    listener = socket.create_server(("", 0))
    (folder / "part").write_text(str(listener.getsockname()[1]))
    (folder / "part").rename(place)
    peers = [listener.accept()[0] for _ in range(size - 1)]
else:
    while not place.exists():
        time.sleep(0.01)
    peers = [socket.create_connection((os.environ["MASTER_ADDR"], int(place.read_text())))]
print(f"rank {rank} is in", flush=True)
for step in range(10_000):
    if rank == victim and step == rounds:
        print(f"rank {rank} fails by {how}", flush=True)
        if how == "exit":
            sys.exit(3)
        if how == "exception":
            raise RuntimeError("planted")
        os.kill(os.getpid(), getattr(signal, how))
    try:
        for peer in peers:
            peer.sendall(b".")
        for peer in peers:
            if not select.select([peer], [], [], 0.5)[0] or not peer.recv(1):
                raise ConnectionError("silence")
    except ConnectionError as error:
        print(f"rank {rank} lost another: {error}", flush=True)
        sys.exit(75)
    time.sleep(0.002)
"""


@pytest.fixture
def start(tmp_path):
    """Start a command with an engine; nothing of it is left at the end of the test."""
    jobs = []

    def begin(engine, command, ranks, environment=None, folder=tmp_path, **options):
        lacking = ENGINES[engine].lacks(options)
        if lacking:
            pytest.skip(lacking)
        jobs.append(ENGINES[engine].start(command, ranks, folder, environment or {}, **options))
        return jobs[-1]

    yield begin
    for job in jobs:
        job.kill()
        assert marked(job.job) == []


@pytest.fixture
def python():
    """The command line before a program."""
    return PYTHON


@pytest.fixture(scope="session")
def team():
    """The command of ranks that depend on each other until ``victim`` fails; they meet through a folder."""

    def words(folder, victim, how, rounds):
        return [*PYTHON, TEAM, str(folder), str(victim), how, str(rounds)]

    return words


# Echoes 25 single bytes, then receives bytes and answers with their digest.
SERVER = """
import hashlib, socket, sys
listener = socket.create_server(("", 5000))
print("in", flush=True)
talk, _ = listener.accept()
talk.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for _ in range(25):
    talk.sendall(talk.recv(1))
size, digest = int(sys.argv[1]), hashlib.sha256()
while size:
    part = talk.recv(1 << 20)
    size -= len(part)
    digest.update(part)
talk.sendall(digest.digest())
"""

# Prints the shortest round trip and the time of the transfer in seconds, and whether it arrived intact.
CLIENT = """
import hashlib, random, socket, sys, time
talk = socket.create_connection((sys.argv[1], 5000), 20)
talk.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
trips = []
for _ in range(25):
    began = time.perf_counter()
    talk.sendall(b"."); talk.recv(1)
    trips.append(time.perf_counter() - began)
data = random.Random(0).randbytes(int(sys.argv[2]))
began = time.perf_counter()
talk.sendall(data)
answer = talk.recv(32)
print(min(trips), time.perf_counter() - began, answer == hashlib.sha256(data).digest())
"""


@pytest.fixture
def namespaces_here():
    lacking = namespaces.lacks()
    if lacking:
        pytest.skip(lacking)


@pytest.fixture
def talk():
    """Round trip and transfer time between two hosts in seconds, and whether the bytes arrived intact."""

    def measure(hosts, source, target, nbytes):
        server = subprocess.Popen(hosts.command(target, [*PYTHON, SERVER, str(nbytes)]), stdout=subprocess.PIPE)
        try:
            assert server.stdout.readline() == b"in\n"
            words = hosts.command(source, [*PYTHON, CLIENT, hosts.addresses[target], str(nbytes)])
            done = subprocess.run(words, capture_output=True, text=True, timeout=200, check=True)
        finally:
            server.kill()
            server.wait()
            server.stdout.close()
        trip, seconds, whole = done.stdout.split()
        return float(trip), float(seconds), whole == "True"

    return measure
