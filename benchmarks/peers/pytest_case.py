"""The one test that ``one_process.py`` lets pytest-benchmark run; it finds the work and leaves the statistics there."""

from __future__ import annotations

import sys
import time
from typing import Any


def test_work(benchmark: Any) -> None:
    shared = sys.modules["__main__"]
    start = time.perf_counter()
    benchmark(shared.WORK)
    shared.FOUND = (list(benchmark.stats.stats.data), time.perf_counter() - start)
