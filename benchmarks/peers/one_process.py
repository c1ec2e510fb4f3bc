"""Measures one workload with each one-process tool in this process and prints the raw values as JSON.

The tools meet the same callable in the same process, in an order that the caller rotates, each with its
own defaults; what they claim is computed from their raw values by one rule, the exact interval of the median.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from levelbench.measure.sampling import sample
from levelbench.measure.worker import load

Work = Callable[[], object]
Found = tuple[list[float], float]

WORK: Work
FOUND: Found = ([], 0.0)


def levelbench(work: Work) -> Found:
    taken = sample(work)
    return taken.values.tolist(), taken.wall_s


def blocked_autorange(work: Work) -> Found:
    from torch.utils.benchmark import Timer

    start = time.perf_counter()
    measurement = Timer("work()", globals={"work": work}).blocked_autorange()
    return list(measurement.times), time.perf_counter() - start


def pytest_benchmark(work: Work) -> Found:
    import pytest

    case = str(Path(__file__).with_name("pytest_case.py"))
    options = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--benchmark-quiet", case]
    with contextlib.redirect_stdout(io.StringIO()):
        status = pytest.main(options)
    if status:
        raise SystemExit(f"pytest-benchmark ended with {status}")
    return FOUND


TOOLS: dict[str, Callable[[Work], Found]] = {
    "levelbench": levelbench,
    "blocked_autorange": blocked_autorange,
    "pytest-benchmark": pytest_benchmark,
}

if __name__ == "__main__":
    WORK = load(sys.argv[1])
    answers = {}
    for tool in sys.argv[2].split(","):
        values, wall_s = TOOLS[tool](WORK)
        answers[tool] = {"values": values, "wall_s": wall_s}
    print(json.dumps(answers))
