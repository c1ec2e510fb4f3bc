"""How near the shares of operators by our clock are to those of another witness: a profiler, or our own clock.

    python benchmarks/shares.py [--attempts 10] [--repeats 15] [--batch 16] [--network resnet20]

On torch the witness is ``torch.profiler``; on ONNX Runtime, whose operator times are its profiler's already, it is our
clock around sessions of single operators. For each attempt the largest difference of any type's share is taken; printed
is the median over attempts with its exact order-statistic interval. The goal is ten points.
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np

from levelbench.measure.statistics import median_interval
from levelbench.networks import zoo
from levelbench.operators.frameworks import load_framework

MODES = {"torch": "eager", "onnxruntime": "unoptimised"}
GOAL = 0.10


def shares(seconds):
    """Parts of the whole."""
    whole = sum(seconds.values())
    return {name: value / whole for name, value in seconds.items()}


def furthest(backend, executor, inputs, repeats):
    """The largest difference of a type's shares in one attempt."""
    ours: Counter = Counter()
    for each in executor.operator_times(*inputs, repeats=repeats):
        ours[each.title] += float(np.median(each.times_s))
    _, seconds = backend.profile(executor, inputs, repeats)
    mine, theirs = shares(ours), shares(seconds)
    return max(abs(mine.get(name, 0.0) - theirs.get(name, 0.0)) for name in {*mine, *theirs})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=15, help="inferences an attempt")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--network", default="resnet20", help="of the zoo")
    options = parser.parse_args()
    network = zoo.build(options.network)
    for name, mode in MODES.items():
        framework = load_framework(name)
        if lacking := framework.lacks():
            print(f"{name}: {lacking}")
            continue
        backend = framework.open()
        executor = backend.executor(network, mode=mode, trains=False)
        inputs = [backend.array(each) for each in network.make_inputs(options.batch).values()]
        found = [furthest(backend, executor, inputs, options.repeats) for _ in range(options.attempts)]
        interval = median_interval(np.asarray(found))
        spread = f"[{100 * interval.low:.1f}, {100 * interval.high:.1f}]" if interval else "(six attempts are needed)"
        verdict = (
            "met" if interval and interval.high < GOAL else "missed" if interval and interval.low > GOAL else "open"
        )
        print(f"{name} {mode}: furthest share {100 * np.median(found):.1f} {spread} points: {verdict}")


if __name__ == "__main__":
    main()
