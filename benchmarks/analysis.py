"""How long the analyses of many runs take, and that this is linear in their number.

    python benchmarks/analysis.py --runs 1000,10000,100000

The runs are made up in memory, so that reading records is not in the times: benchmarks/records.py measures that.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from levelbench.analysis.stability import by_machine, stability
from levelbench.analysis.threshold import TimedArm, TimedCurve, sweep
from levelbench.records import RunGroup, RunSummary, Specification
from levelbench.records.schema import Target

TARGETS = (0.9, 0.92, 0.94, 0.95, 0.96)
EVALUATIONS = 50


def made_up_group(count: int) -> RunGroup:
    """A group of ``count`` runs, of which one in ten missed its target."""
    rng, target = np.random.default_rng(count), Target("top1", 0.94)
    specification = Specification("made-up", "r", "numpy", "cpu", {}, target, "confirmed", "wall", "1 epoch", 9.0)
    environment = {"machine": {"id": "m1"}}
    times = np.exp(0.1 * rng.standard_normal(count))
    shared = {name: getattr(specification, name) for name in ("task", "recipe", "framework", "device", "settings")}
    shared |= {"key": "k", "status": "done", "target": target, "crossing": "confirmed", "clock": "wall"}
    shared |= {"excluded_s": {}, "steps_to_target": None, "time_per_step_s": None, "phases_s": {}, "quality": {}}
    shared |= {"peak_memory_bytes": None, "energy_j": None, "energy_method": None, "energy_reason": None}
    shared |= {"environment": environment, "started": "2026-01-01T00:00:00+00:00", "wall_s": 1.0, "error": None}
    shared |= {"suspect": [], "path": "p", "synthetic": False}
    runs = []
    for seed, seconds in enumerate(times.tolist()):
        reached = seed % 10 > 0
        runs.append(
            RunSummary(
                id=f"{seed:016x}",
                seed=seed,
                reached=reached,
                time_to_accuracy_s=seconds if reached else None,
                given_up_s=None if reached else 2.0,
                epochs_to_target=3.0 if reached else None,
                samples_to_target=1000 + seed % 7 if reached else None,
                **shared,
            )
        )
    return RunGroup("made-up", "k", specification, tuple(runs))


def made_up_arm(count: int) -> TimedArm:
    """An arm of ``count`` runs, each with a curve of its own."""
    rng = np.random.default_rng(count)
    times = tuple(float(each) for each in range(1, EVALUATIONS + 1))
    rise = 0.97 * (1 - np.exp(-np.arange(1, EVALUATIONS + 1) / 8))
    curves = (tuple((rise + 0.005 * rng.standard_normal(EVALUATIONS)).tolist()) for _ in range(count))
    return TimedArm("made-up", tuple(TimedCurve(times, curve, "end") for curve in curves), "confirmed")


def seconds(work: Callable[[], object]) -> float:
    """Processor seconds of one call, which other programs do not change much."""
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    """Print the time of each analysis for each number of runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", default="1000,10000,100000")
    counts = [int(word) for word in parser.parse_args().runs.split(",")]
    print(f"{'runs':>8}  {'stability, s':>12}  {'threshold, s':>12}")
    for count in counts:
        group, arm = made_up_group(count), made_up_arm(count)
        stable_s = seconds(lambda group=group: [stability(each) for each in by_machine([group])])
        swept_s = seconds(lambda arm=arm: sweep([arm], TARGETS, 0.94))
        print(f"{count:>8}  {stable_s:>12.3f}  {swept_s:>12.3f}")


if __name__ == "__main__":
    main()
