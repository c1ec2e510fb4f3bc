"""Ranks on hosts: an all-reduce among four, one of which is lost."""

import json
import sys

import pytest

from levelbench.distributed.launching import ENGINES
from levelbench.distributed.launching.namespaces import Hosts, Link

pytestmark = pytest.mark.usefixtures("namespaces_here")

pytest.importorskip("torch")

TIMEOUT_S = 3

# Compares what large all-reduces send with the kernel's count; then all-reduces different numbers until one fails, and
# reports wrong sums.
RANK = f"""
import json, os, sys
from pathlib import Path
import torch
from levelbench.distributed.communicators.wrapping import CountingCommunicator
from levelbench.distributed.finding import open_communicator
from levelbench.distributed.launching import PEER_LOST, place_of
from levelbench.errors import CommunicationError
communicator = CountingCommunicator(open_communicator("gloo", place_of(os.environ), timeout_s={TIMEOUT_S}))
def on_the_wire():
    line = next(line for line in Path("/proc/net/dev").read_text().splitlines() if "eth0:" in line)
    return int(line.partition(":")[2].split()[8])
communicator.barrier()
communicator.take()
before = on_the_wire()
for _ in range(3):
    communicator.all_reduce(torch.ones(200_000, dtype=torch.float64))
counted = communicator.take().sent_bytes
communicator.barrier()
print("counted", json.dumps([counted, on_the_wire() - before]), flush=True)
total = sum(range(1, communicator.size + 1))
for step in range(100_000):
    numbers = torch.arange(20_000.0, dtype=torch.float64) + step
    try:
        summed = communicator.all_reduce(numbers * (communicator.rank + 1))
    except CommunicationError as error:
        print(f"lost: {{error}}", flush=True)
        os._exit(PEER_LOST)
    if not torch.equal(summed, numbers * total):
        print("wrong", flush=True)
        os._exit(1)
    print(f"step {{step}}", flush=True)
"""


class Job:
    """Four ranks on four hosts while their network gets worse."""

    def __init__(self, folder):
        with Hosts(4, Link(delay="500us")) as hosts:
            command = [sys.executable, "-c", RANK]
            with ENGINES["hosts"].start(command, 4, folder, {}, hosts=hosts) as self.running:
                self.clean = self.steps(3)
                self.counted = [self.count(self.running.log(rank).read_text()) for rank in range(4)]
                hosts.set_link(1, Link(delay="500us", loss="5%"))
                self.lossy = self.steps(self.clean + 5)
                hosts.down(2)
                self.ended = self.running.wait(3 * TIMEOUT_S + 10)
                self.failure = self.running.failure()

    @staticmethod
    def count(log):
        """A rank's bytes according to its communicator and the kernel."""
        return json.loads(next(line for line in log.splitlines() if line.startswith("counted")).removeprefix("counted"))

    def steps(self, least):
        """Wait until all ranks have made this many steps; returns fewer if they stop."""
        for _ in range(600):
            logs = [self.running.log(rank) for rank in range(4)]
            made = [log.read_text().count("step") if log.exists() else 0 for log in logs]
            if min(made) >= least or self.running.wait(0.05):
                break
        return min(made)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    if ENGINES["hosts"].lacks():
        pytest.skip(ENGINES["hosts"].lacks())
    return Job(tmp_path_factory.mktemp("hosts"))


@pytest.mark.slow
def test_four_hosts_sum_over_gloo(job):
    assert job.clean >= 3


@pytest.mark.slow
def test_counted_bytes_agree_with_the_kernel_up_to_headers(job):
    for counted, wire in job.counted:
        # A ring's 2 (p - 1) / p of three arrays.
        assert counted == 3 * 2 * 3 / 4 * 1_600_000
        # Received bytes are acknowledged: full packets with full headers would be 4.6 %, and as much again.
        assert counted < wire < 1.1 * counted


@pytest.mark.slow
def test_lost_packets_do_not_corrupt_a_sum(job):
    assert job.lossy >= job.clean + 5


@pytest.mark.slow
def test_a_lost_host_ends_the_job_within_the_timeout_and_is_named(job):
    assert job.ended
    reason = "rank 2 did not answer, host 2 (10.77.0.3, rank 2) cannot be reached"
    assert reason in str(job.failure.error("an all-reduce on 4 hosts"))
