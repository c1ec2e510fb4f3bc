"""The predicted peak is what the operating system measures."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "transforms.py"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peaks are read from Linux's /proc")
def test_the_measured_peak_of_alexnet_stays_within_the_limit(tmp_path):
    pytest.importorskip("torch")
    table = tmp_path / "points.csv"
    words = ["--case", "alexnet:8", "--points", "2", "--repeats", "1", "--out", str(table)]
    done = subprocess.run([sys.executable, str(SCRIPT), *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    whole, smallest = csv.DictReader(table.read_text().splitlines())
    for row in (whole, smallest):
        assert row["inside"] == "True"
        assert int(row["measured"]) <= int(row["limit"])
        assert float(row["worst_difference"]) < 1e-4
    assert int(smallest["measured"]) < int(whole["measured"])
