"""Measures one workload with pyperf and its defaults: the workload's name is in ``LEVELBENCH_WORKLOAD``."""

from __future__ import annotations

import os

import pyperf

from levelbench.measure.worker import load

if __name__ == "__main__":
    runner = pyperf.Runner()
    runner.bench_func("work", load(os.environ["LEVELBENCH_WORKLOAD"]))
