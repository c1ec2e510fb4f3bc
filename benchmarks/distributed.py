"""Our synchronous all-reduce beside PyTorch's DDP, MPI beside gloo, and what the trainer's loop adds to a step.

    python benchmarks/distributed.py [--quick] [--cases step,reduce,harness] [--networks mlp,cnn,resnet18]
        [--processes 8] [--seconds 10] [--json FILE]

Two ranks, one thread each.

``step``: a training step (forward, backward, all-reduce, SGD with momentum) of an ``nn.Module`` in DDP, and of the same
network under the scheme ``all-reduce``. Both have the same parameters in the same memory, the same communicator (gloo)
and PyTorch's own optimizer; what they compute is compared before it is timed. DDP is measured as its documentation
shows it (``plain``) and with all that makes it faster here (``tuned``: ``gradient_as_bucket_view``, ``static_graph``,
no broadcast of buffers). Goal: 1.05, against the tuned one.

``reduce``: the blocking all-reduce of a PyTorch tensor over MPI and over gloo, between the same two processes. Goal:
1.10.

``harness``: the trainer's loop with all that a distributed run has on (timeline, counted communicator, ledger), and a
loop written by hand with the same calls of executor, communicator and optimizer, in one process whose all-reduce does
nothing: what the network would hide, or spread, is not there. Goal: 1.001. What it adds does not grow with the step, so
last it is said for which steps the goal holds, and what share of the ``step`` of the same network it is: of ResNet-18
(images of 32x32, 32 a rank; ``harness`` itself has it with one channel for 64) the step takes hundreds of milliseconds.

The two sides take turns A B B A in the same processes, in step on both ranks; a turn counts with the slower rank. A
pair of processes is one replicate, with the median of the ratios of neighbours. The figure is the median over
replicates with its exact order-statistic interval (Student's t on logarithms below six).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from levelbench.distributed.launching import ENGINES
from levelbench.measure.statistics import t_quantile
from ratios import compared, write_json

RANK = Path(__file__).with_name("distributed_rank.py")
MOST = {"step": 1.05, "reduce": 1.10, "harness": 1.001}
SIDES = {"step": ("DDP", "all-reduce"), "reduce": ("gloo", "MPI"), "harness": ("by hand", "trainer")}
NETWORKS = ("mlp", "cnn", "resnet18")
BYTES = (4, 4 << 10, 64 << 10, 1 << 20, 16 << 20)


def replicate(words: list[str], engine: str, ranks: int, seconds: float) -> dict[str, float] | str:
    """What one team of processes found; the reason as text where it could not."""
    command = [sys.executable, str(RANK), *words, "--seconds", str(seconds)]
    with tempfile.TemporaryDirectory() as folder:
        environment = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        with ENGINES[engine].start(command, ranks, Path(folder), environment) as running:
            if not running.wait(300 + 20 * seconds):
                return "it took too long"
            if failure := running.failure():
                return f"{failure.reason}: {next((line for line in reversed(failure.lines) if line.strip()), '')}"
            lines = running.log(0).read_text().splitlines()
    found: dict[str, float] = json.loads(next(line for line in reversed(lines) if line.startswith("{")))
    return found


def rows(cases: list[str], networks: list[str]) -> list[tuple[str, str, list[str], str, int]]:
    """Case, title, words for the ranks, engine and number of ranks."""
    found = []
    if "step" in cases:
        for name in networks:
            found += [
                ("step", f"{name}, {ddp} DDP", ["step", "--network", name, "--ddp", ddp], "process", 2)
                for ddp in ("plain", "tuned")
            ]
    if "reduce" in cases:
        found += [("reduce", f"{size:,} B", ["reduce", "--bytes", str(size)], "mpi", 2) for size in BYTES]
    if "harness" in cases:
        found += [("harness", name, ["harness", "--network", name], "process", 1) for name in networks]
    return found


def case(row: tuple[str, str, list[str], str, int], processes: int, seconds: float) -> dict[str, Any] | str:
    """The replicates of a row together; the reason as text where it cannot be measured."""
    kind, title, words, engine, ranks = row
    if lacking := ENGINES[engine].lacks():
        return lacking
    found = []
    for _ in range(processes):
        each = replicate(words, engine, ranks, seconds)
        if isinstance(each, str):
            return each
        found.append(each)
    medians = {key: float(np.median([each[key] for each in found])) for key in found[0] if key != "ratio"}
    result = {"case": kind, "title": title, **medians, **compared([each["ratio"] for each in found], MOST[kind])}
    if kind == "harness" and len(found) > 1:
        added = np.array([each["added_s"] for each in found])
        # Of a difference, which may be below zero: no logarithms.
        half = t_quantile(0.975, len(added) - 1) * float(added.std(ddof=1)) / len(added) ** 0.5
        mean = float(added.mean())
        result |= {"added_s": mean, "added_low_s": mean - half, "added_high_s": mean + half}
    return result


def shares(results: Sequence[dict[str, Any]]) -> list[str]:
    """For each network of ``harness``: for which steps the goal holds, and the share of its own ``step``."""
    steps = {each["title"].partition(",")[0]: each["second_s"] for each in results if each["case"] == "step"}
    told = []
    for each in results:
        if each["case"] != "harness" or "added_high_s" not in each:
            continue
        added, low, high = each["added_s"], each["added_low_s"], each["added_high_s"]
        text = f"harness, {each['title']}: {added * 1e6:.0f} µs a step [{low * 1e6:.0f}, {high * 1e6:.0f}]"
        if high > 0:
            text += f"; under 0.1 % of steps of {high * 1e6:.0f} ms and more"
        if whole := steps.get(each["title"]):
            text += (
                f"; of its own step of {whole * 1e3:.1f} ms {added / whole:.3%} [{low / whole:.3%}, {high / whole:.3%}]"
            )
        told.append(text)
    return told


def line(found: dict[str, Any]) -> str:
    overlap = f"{found['overlap']:.0%}" if "overlap" in found else ""
    return (
        f"| {found['case']} | {found['title']} | {found['first_s'] * 1e3:.3f} | {found['second_s'] * 1e3:.3f} "
        f"| {(found['second_s'] - found['first_s']) * 1e6:+.1f} | {found['ratio']:.4f} "
        f"| {found['low']:.4f} to {found['high']:.4f} | {found['processes']} | {overlap} | {found['verdict']} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each pair of processes")
    parser.add_argument(
        "--processes", type=int, default=8, help="pairs of them for each case; six give an exact interval"
    )
    parser.add_argument("--quick", action="store_true", help="two pairs of half a second: does it work at all")
    parser.add_argument("--cases", default=",".join(MOST), help="which, with commas between them")
    parser.add_argument("--networks", default=",".join(NETWORKS), help="which, with commas between them")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.processes = 0.5, 2
    for kind, (first, second) in SIDES.items():
        print(f"{kind}: the first is {first}, the second {second}; goal {MOST[kind]}")
    print("\n| case | | first, ms | second, ms | difference, µs | ratio | 95 % | replicates | overlap | goal |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    results = []
    for row in rows(options.cases.split(","), options.networks.split(",")):
        found = case(row, options.processes, options.seconds)
        if isinstance(found, str):
            print(f"| {row[0]} | {row[1]} | left out: {found} |", flush=True)
            continue
        results.append(found)
        print(line(found), flush=True)
    print("\n" + "\n".join(shares(results)))
    if options.json:
        write_json(options.json, {"cases": results})


if __name__ == "__main__":
    main()
