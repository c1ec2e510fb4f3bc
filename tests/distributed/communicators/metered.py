"""Prints, as JSON, the counted bytes and those sent by the loopback device of a private network, by operation."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from levelbench.distributed.communicators.algorithmic import Algorithmic
from levelbench.distributed.communicators.wrapping import CountingCommunicator

sys.path.insert(0, str(Path(__file__).parent))
from test_torch import gloo_ranks

ELEMENTS, REPEATS, SIZE = 250_001, 4, 3
CALLS = {
    "all_reduce": (lambda each: each, lambda talk, array: talk.all_reduce(array)),
    "broadcast": (lambda each: each, lambda talk, array: talk.broadcast(array, 1)),
    "all_gather": (lambda each: each, lambda talk, array: talk.all_gather(array)),
    "reduce_scatter": (lambda each: each, lambda talk, array: talk.reduce_scatter(array)),
    "all_to_all": (lambda each: each, lambda talk, array: talk.all_to_all([array] * SIZE)),
    "our ring": (Algorithmic, lambda talk, array: talk.all_reduce(array)),
    "our halving-doubling": (
        lambda each: Algorithmic(each, "halving-doubling"),
        lambda talk, array: talk.all_reduce(array),
    ),
}


HEADERS_BYTES = 14 + 20 + 32
"""Of Ethernet, IP version 4 and TCP with timestamps, in each packet. Busy machines send more and smaller packets."""


def sent_by_loopback():
    (line,) = [line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:")]
    sent, packets = (int(each) for each in line.split()[9:11])
    return sent - HEADERS_BYTES * packets


def measured(wrap, call):
    readings = []

    def read(communicator):
        communicator.barrier()
        if communicator.rank == 0:
            readings.append(sent_by_loopback())
        communicator.barrier()

    def work(communicator):
        talk = CountingCommunicator(wrap(communicator))
        array = np.ones(ELEMENTS, np.float32)
        call(talk, array)  # opens the connections
        talk.take()
        read(communicator)
        for _ in range(REPEATS):
            call(talk, array)
        read(communicator)
        return talk.take().sent_bytes

    counted = sum(gloo_ranks(SIZE, work))
    return {"counted": counted, "metered": readings[1] - readings[0]}


def least(wrap, call):
    """The least of three: a packet that a busy machine acknowledges late is sent again."""
    return min((measured(wrap, call) for _ in range(3)), key=lambda each: each["metered"])


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    print(json.dumps({name: least(*parts) for name, parts in CALLS.items()}))  # noqa: T201
