"""What a plan promises is what the operating system measures."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
# The benchmark, but each point is a fork of a process that has imported PyTorch, not one that imports it again.
FORKING = """
import os, sys

from levelbench.operators.frameworks import open_framework
import transforms


def forked(words, threads):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(write, 1)
        sys.argv[1:] = words
        transforms.main()
        sys.stdout.flush()
        os._exit(0)
    os.close(write)
    with open(read) as pipe:
        told = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return transforms.json.loads(told)


open_framework("torch")
transforms.fresh = forked
transforms.main()
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peaks are read from Linux's /proc")
def test_the_measured_peak_of_alexnet_stays_inside_the_limit(tmp_path):
    pytest.importorskip("torch")
    table = tmp_path / "points.csv"
    words = ["--case", "alexnet:8", "--points", "2", "--repeats", "1", "--out", str(table)]
    returned = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
    environment = {**os.environ, **returned, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, "-c", FORKING, *words]
    done = subprocess.run(command, cwd=BENCHMARKS, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    whole, smallest = csv.DictReader(table.read_text().splitlines())
    for row in (whole, smallest):
        assert row["inside"] == "True"
        assert int(row["measured"]) <= int(row["limit"])
        assert float(row["worst_difference"]) < 1e-4
    assert int(smallest["measured"]) < int(whole["measured"])
