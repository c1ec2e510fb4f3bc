import subprocess
import sys

import pytest

from levelbench.distributed.launching import namespaces

PYTHON = [sys.executable, "-I", "-S", "-c"]

# Answers 25 single bytes, then takes a stretch of bytes and answers with their digest.
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

# Prints the shortest round trip in seconds, the seconds that the stretch took, and whether it came over whole.
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


@pytest.fixture(autouse=True)
def _namespaces():
    lacking = namespaces.lacks()
    if lacking:
        pytest.skip(lacking)


@pytest.fixture
def talk():
    """Round trip in s, seconds for so many bytes from one host to another, and whether they came over whole."""

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
