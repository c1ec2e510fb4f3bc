"""A rank of test_mpi.py, started by MPI: does what its first argument says and writes the result."""

import json
import os
import sys
import time
from pathlib import Path

import ml_dtypes
import numpy as np

from levelbench.distributed.finding import open_communicator
from levelbench.distributed.launching.environment import RankPlace, place_of
from levelbench.distributed.probes.communicators import check_communicator
from levelbench.distributed.sweep import DTYPES, OPERATIONS, require_right
from levelbench.errors import LevelbenchError
from levelbench.frameworks.numpy.backend import NumpyBackend


def check(communicator):
    bad = [str(each) for each in check_communicator(communicator) if each.status != "passed"]
    halves = {}
    for dtype in (np.float16, ml_dtypes.bfloat16):
        array = (np.arange(5) + communicator.rank).astype(dtype)
        assert communicator.all_reduce(array) is array
        halves[np.dtype(dtype).name] = array.astype(float).tolist()
    for dtype in DTYPES:
        for each in OPERATIONS.values():
            if each.op and not ("int" in dtype and each.op == "mean"):
                require_right(each, communicator, NumpyBackend(), 1000, dtype)
    return {"bad": bad, "halves": halves, "threads": communicator.threads, "late": late(communicator)}


def late(communicator):
    """The error of a rank that waits in vain."""
    if communicator.rank == 0:
        communicator._timeout_s = 0.2
        try:
            communicator.receive(np.empty(1), 1, tag=5)
        except LevelbenchError as error:
            communicator._timeout_s = 60.0
            communicator.send(np.ones(1), 1, tag=6)
            # MPI must not end with an unanswered receive.
            communicator.send(np.ones(1), 1, tag=7)
            return str(error)
    if communicator.rank == 1:
        communicator.receive(np.empty(1), 0, tag=6)
        communicator.send(np.ones(1), 0, tag=5)
        communicator.receive(np.empty(1), 0, tag=7)
    return ""


def count(communicator):
    """Twelve all-reduces and three broadcasts, for a profiler to see."""
    for _ in range(12):
        communicator.all_reduce(np.ones(3, np.float32))
    for _ in range(3):
        communicator.broadcast(np.ones(3, np.float32))
    return {}


def die(communicator):
    if communicator.rank == 1:
        os._exit(3)
    communicator.receive(np.empty(1), 1)
    return {}


def abort(communicator):
    if communicator.rank == 1:
        communicator.start_all_reduce(np.ones(1))
        communicator.abort()
        sys.exit(1)
    time.sleep(0.1)
    communicator.receive(np.empty(1), 1)
    return {}


def misplaced(place):
    """The error of a rank whose place differs from MPI's."""
    wrong = RankPlace(place.rank, place.size + 1, place.local_rank, place.address, place.port, place.engine)
    try:
        open_communicator("mpi", wrong)
    except LevelbenchError as error:
        return str(error)
    return ""


def main(what, folder):
    place = place_of(os.environ)
    message = misplaced(place) if what == "check" else ""
    communicator = open_communicator("mpi", place, 60.0)
    found = {"check": check, "count": count, "die": die, "abort": abort}[what](communicator)
    (Path(folder) / f"result-{place.rank}.json").write_text(json.dumps({**found, "misplaced": message}))
    communicator.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
