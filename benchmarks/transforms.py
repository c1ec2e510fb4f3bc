"""Micro-batching under a memory limit: planned against measured peak memory, and the time that it costs.

Every point is a process of its own. Its peak is that of its resident memory (VmHWM of /proc, reset just
before) above what was resident before the executor was made, so it holds parameters, inputs, activations and the
framework's workspaces, and neither an import nor code that comes in as it is first run. Limits go from what the network
takes unsplit to the smallest that can be met.

    python benchmarks/transforms.py --out docs/evidence/microbatch.csv --plot docs/evidence/microbatch.svg
"""

from __future__ import annotations

import argparse
import csv
import gc
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from levelbench.errors import UsageError
from levelbench.networks import zoo
from levelbench.networks.transforms.microbatch import RESERVE, Microbatch
from levelbench.operators.frameworks import open_framework

HERE = Path(__file__).resolve().parent
# Freed memory goes back at once, so that the peak is that of what is held, not of what the allocator keeps for later.
RETURNED = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
FIELDS = (
    "network", "batch", "framework", "limit", "predicted", "measured", "inside", "segments", "nodes", "time_s", "cpu_s",
    "predicted_time", "worst_difference",
)  # fmt: skip


def resident(what: str) -> int:
    """Bytes of ``VmRSS``, ``VmHWM`` or ``RssFile``."""
    found = re.search(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def measure(name: str, batch: int, limit: int, framework: str, workspace: str, repeats: int) -> dict[str, Any]:
    """One point, in this process."""
    network, backend = zoo.build(name), open_framework(framework)
    values = network.initialise()
    done = Microbatch(memory=limit, batch=batch, workspace=workspace).apply(network, values)
    given = done.network.make_inputs(batch)
    _warm_up(backend)
    gc.collect()
    before, mapped = resident("VmRSS"), resident("RssFile")
    Path("/proc/self/clear_refs").write_text("5")
    executor = backend.executor(done.network, values, trains=False)
    native = [backend.array(given[each.name]) for each in done.network.inputs]
    backend.finish(executor.infer(*native))
    # Pages of code come in as they are first run, in PyTorch's build for GPUs more than twice as many.
    code = max(0, resident("RssFile") - mapped)
    measured = resident("VmHWM") - before - code
    times, busy = [], []
    for _ in range(repeats):
        start, started = time.perf_counter(), time.process_time()
        outputs = executor.infer(*native)
        backend.finish(outputs)
        times.append(time.perf_counter() - start)
        busy.append(time.process_time() - started)
    found = backend.host(outputs[0])
    del outputs
    whole = backend.executor(network, values, trains=False)
    expected = backend.host(whole.infer(*native)[0])
    plan = done.details
    return {
        "network": name,
        "batch": batch,
        "framework": framework,
        "limit": limit,
        "predicted": plan.memory,
        "measured": measured,
        "inside": measured <= limit,
        "segments": len(plan.segments),
        "nodes": len(done.network.nodes),
        "time_s": statistics.median(times),
        "cpu_s": statistics.median(busy),
        "predicted_time": plan.time_s / plan.whole_time_s,
        "worst_difference": float(np.abs(found - expected).max() / np.abs(expected).max()),
    }


def _warm_up(backend: Any) -> None:
    """One small convolution and product: what libraries allocate at their first call is not the network's."""
    small = zoo.cnn((3, 16, 16), 8, 16, 10)
    executor = backend.executor(small, None, trains=False)
    backend.finish(executor.infer(backend.array(small.make_inputs(2)["input"])))


def limits(name: str, batch: int, workspace: str, points: int) -> list[int]:
    """From what the network takes unsplit to the smallest that can be met."""
    network = zoo.build(name)
    whole = int(Microbatch(memory=1 << 50, batch=batch, workspace=workspace).plan(network).memory / (1 - RESERVE)) + 1
    try:
        Microbatch(memory=1, batch=batch, workspace=workspace).plan(network)
    except UsageError as error:
        found = re.search(r"possible limit is (\d+) bytes", error.found)
        assert found is not None
        smallest = int(found[1])
    return [int(each) for each in np.geomspace(whole, smallest, points).round()[:-1]] + [smallest]


def fresh(words: list[str], threads: int) -> dict[str, Any]:
    """The same script in a process of its own."""
    environment = {**os.environ, **RETURNED, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    command = [sys.executable, __file__, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def plot(rows: list[dict[str, Any]], path: Path, clock: str) -> None:
    """Time against measured peak, a line a network, with the limit of each point.

    ``clock`` is the wall's, or the processor's: the latter says more on a machine that does other things too.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys((row["network"], row["batch"]) for row in rows))
    figure, axes = pyplot.subplots(1, len(names), figsize=(5.2 * len(names), 3.8), squeeze=False)
    for axis, (name, batch) in zip(axes[0], names, strict=True):
        mine = [row for row in rows if (row["network"], row["batch"]) == (name, batch)]
        mib = 1 << 20
        whole = mine[0][clock]
        axis.plot([r["limit"] / mib for r in mine], [r[clock] / whole for r in mine], "|", color="0.4", ms=14)
        axis.plot([r["measured"] / mib for r in mine], [r[clock] / whole for r in mine], "o-", color="#0072B2")
        axis.set_title(f"{name}, batch {batch}, {mine[0]['framework']}")
        axis.set_xlabel("peak memory of an inference (MiB)")
        axis.set_ylabel(f"{'processor' if clock == 'cpu_s' else 'wall'} time, relative to unsplit")
        axis.set_ylim(0, 1.3 * max(r[clock] / whole for r in mine))
        axis.set_xlim(left=0)
        axis.legend(["limit", "measured"], frameon=False, loc="lower left")
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs="+", default=["alexnet:64", "vgg16:16"], help="network:batch")
    parser.add_argument("--framework", default="torch")
    parser.add_argument("--workspace", default="reorder")
    parser.add_argument("--points", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--clock", choices=("time_s", "cpu_s"), default="time_s", help="of the figure")
    parser.add_argument("--one", type=int, help="measure one limit in this process, in bytes; prints JSON")
    options = parser.parse_args()
    rows = []
    for case in options.case:
        name, _, batch = case.partition(":")
        if options.one is not None:
            settings = (options.framework, options.workspace, options.repeats)
            print(json.dumps(measure(name, int(batch), options.one, *settings)))
            return
        for limit in limits(name, int(batch), options.workspace, options.points):
            words = ["--case", case, "--one", str(limit), "--framework", options.framework]
            words += ["--workspace", options.workspace, "--repeats", str(options.repeats)]
            rows.append(fresh(words, options.threads))
            print({key: rows[-1][key] for key in FIELDS}, flush=True)
    if options.out:
        with options.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    if options.plot:
        plot(rows, options.plot, options.clock)


if __name__ == "__main__":
    main()
