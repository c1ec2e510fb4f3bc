"""All-reduce, top-k and local SGD on four hosts as the bandwidth between them falls, beside what theory says.

Hosts are network namespaces, so that one machine has a slow network whenever it is wished. One job runs
through all rates: between them rank 0 asks for the next in a file, and the links change under the ranks.

The theory is the alpha-beta model: a step takes what it took on unlimited links (computing, and the latency of its
messages) plus the bytes that a host sends, counted at the communicator, over the rate. With 1448 of them go 66 bytes
of headers, and 33 for what comes the other way: an acknowledgement for two packets. Data are random: what they are
does not change how long a step takes.

    python benchmarks/bandwidth.py --out docs/evidence/bandwidth.csv --plot docs/evidence/bandwidth.svg
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from levelbench.distributed.communicators.wrapping import CountingCommunicator
from levelbench.distributed.finding import open_communicator
from levelbench.distributed.launching import ENGINES, RunningJob, place_of
from levelbench.distributed.launching.namespaces import Hosts, Link
from levelbench.distributed.scheme import Worker
from levelbench.distributed.schemes.all_reduce import AllReduce
from levelbench.distributed.schemes.compressed import SparseTopK
from levelbench.distributed.schemes.periodic import LocalSGD
from levelbench.networks import zoo
from levelbench.operators.frameworks import load_framework
from levelbench.training.optimizers.rules import SGD

PERIOD = 8
SCHEMES = {"all-reduce": AllReduce(), "top-k": SparseTopK(ratio=0.01), "local-sgd": LocalSGD(period=PERIOD)}
NETWORKS = {"digits": (64, 128, 10), "fashion-mnist": (784, 256, 10)}
BITS = {rate: Link(rate).bits_per_s for rate in ("", "1gbit", "100mbit", "10mbit", "1mbit")}
HEADERS = 1 + (66 + 33) / 1448
FIELDS = ("scheme", "rate", "step_s", "least_s", "most_s", "blocks", "sent_bytes", "wire_bytes", "messages", "theory_s")


def wire_bytes() -> int:
    """What this host has sent so far, frames whole, by the kernel's count."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == "eth0":
            return int(counts.split()[8])
    raise SystemExit("this host has no eth0")


def be_rank(folder: Path, network: str, framework: str, batch: int, blocks: int) -> None:
    """Run through all rates and schemes; rank 0 prints a line for each."""
    communicator = CountingCommunicator(open_communicator("gloo", place_of(os.environ), 120))
    for rate in BITS:
        if communicator.rank == 0:
            (folder / f"want-{rate}").touch()
            while not (folder / f"set-{rate}").exists():
                time.sleep(0.02)
        communicator.barrier()
        for name in SCHEMES:
            found = run_scheme(communicator, name, network, framework, batch, blocks)
            if communicator.rank == 0:
                print(json.dumps({"scheme": name, "rate": rate, **found}), flush=True)
    communicator.barrier()
    communicator.close()


def run_scheme(
    communicator: CountingCommunicator, name: str, network: str, framework: str, batch: int, blocks: int
) -> dict[str, Any]:
    """Seconds a step, by block of ``PERIOD`` steps after one to warm up, and what the busiest host sent a step."""
    backend = load_framework(framework).open()
    made = zoo.mlp(*NETWORKS[network]).with_loss().training()
    executor = backend.executor(made, made.initialise(0))
    stepper = SCHEMES[name].start(Worker(communicator, backend, executor, SGD(lr=0.01)))
    stepper.share = 1 / communicator.size
    draw = np.random.default_rng(communicator.rank)
    images = backend.array(draw.standard_normal((batch, *made.inputs[0].shape[1:])).astype(np.float32))
    labels = backend.array(draw.integers(0, NETWORKS[network][-1], batch))

    def block(first: int) -> None:
        for step in range(first, first + PERIOD):
            stepper.executor.forward(images, labels)
            stepper.step(stepper.executor.backward(), step, 1.0)

    block(1)
    communicator.barrier()
    communicator.take()
    times, wire = [], wire_bytes()
    sent = messages = 0
    for at in range(1, blocks + 1):
        began = time.perf_counter()
        block(1 + at * PERIOD)
        times.append((time.perf_counter() - began) / PERIOD)
    totals = communicator.take()
    wire = wire_bytes() - wire
    steps = blocks * PERIOD
    own = np.array([totals.sent_bytes / steps, wire / steps, totals.messages / steps])
    sent, wire, messages = np.max(communicator.all_gather(own), axis=0).tolist()
    stepper.meet()
    stepper.close()
    return {"times": times, "sent_bytes": sent, "wire_bytes": wire, "messages": messages}


def watch(running: RunningJob, hosts: Hosts, folder: Path, timeout_s: float) -> Iterator[dict[str, Any]]:
    """Change the links as rank 0 asks, and answer with what it prints."""
    until, told, shown = time.monotonic() + timeout_s, set(), 0
    over = False
    while not over:
        over = running.wait(0.1)
        for rate in BITS:
            if rate not in told and (folder / f"want-{rate}").exists():
                for host in range(hosts.count):
                    hosts.set_link(host, Link(rate))
                (folder / f"set-{rate}").touch()
                told.add(rate)
        lines = running.log(0).read_text().splitlines() if running.log(0).exists() else []
        for line in lines[shown:]:
            if line.startswith("{"):
                yield json.loads(line)
        shown = len(lines)
        if time.monotonic() > until:
            raise SystemExit(f"it did not end within {timeout_s:g} s")
    failure = running.failure()
    if failure is not None:
        raise failure.error("the benchmark on four hosts")


def rows_of(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With theory's step for each, from the step on unlimited links."""
    free = {each["scheme"]: statistics.median(each["times"]) for each in found if not each["rate"]}
    rows = []
    for each in found:
        bits = BITS[each["rate"]]
        on_the_wire = 0.0 if bits is None else each["sent_bytes"] * HEADERS * 8 / bits
        times = each.pop("times")
        row = {**each, "step_s": statistics.median(times), "least_s": min(times), "most_s": max(times)}
        rows.append({**row, "blocks": len(times), "theory_s": free[each["scheme"]] + on_the_wire})
    return rows


def plot(rows: list[dict[str, Any]], path: Path, title: str) -> None:
    """Seconds a step against the rate: measured as points with their range, theory as lines."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "bandwidth"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4))
    for name, colour, mark in zip(SCHEMES, ("#0072B2", "#D55E00", "#009E73"), "os^", strict=True):
        mine = [row for row in rows if row["scheme"] == name and row["rate"]]
        if not mine:
            continue
        free = next(row["step_s"] for row in rows if row["scheme"] == name and not row["rate"])
        bits = np.geomspace(1e6, 1e9, 100)
        axes.plot(bits / 1e6, free + mine[0]["sent_bytes"] * HEADERS * 8 / bits, color=colour, lw=1)
        middle = np.array([row["step_s"] for row in mine])
        ends = [middle - [row["least_s"] for row in mine], [row["most_s"] for row in mine] - middle]
        rates = [BITS[row["rate"]] / 1e6 for row in mine]
        axes.errorbar(rates, middle, yerr=ends, fmt=mark, color=colour, capsize=3, label=name)
    axes.set(xscale="log", yscale="log", xlabel="rate of each host's link (Mbit/s)", ylabel="time of a step (s)")
    axes.invert_xaxis()
    axes.set_title(title, fontsize=10)
    axes.legend(frameon=False, title="points measured, lines theory")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def measure(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """All points, in one job."""
    command = [sys.executable, __file__, "--rank", str(folder), "--network", options.network]
    command += ["--framework", options.framework, "--batch", str(options.batch), "--blocks", str(options.blocks)]
    found = []
    with Hosts(options.hosts, method="kernel") as hosts:
        logs = folder / "logs"
        with ENGINES["hosts"].start(command, options.hosts, logs, {"OMP_NUM_THREADS": "1"}, hosts=hosts) as running:
            for each in watch(running, hosts, folder, options.timeout):
                found.append(each)
                times = ", ".join(f"{value * 1e3:.3g}" for value in each["times"])
                print(f"{each['scheme']:10} {each['rate'] or 'unlimited':9} {times} ms a step", flush=True)
    return rows_of(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=NETWORKS, default="digits")
    parser.add_argument("--framework", default="torch")
    parser.add_argument("--batch", type=int, default=16, help="examples of a rank")
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--blocks", type=int, default=3, help=f"of {PERIOD} steps, at each point")
    parser.add_argument("--timeout", type=float, default=900, help="seconds for all")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--rank", type=Path, help="be a rank, with what all share in this folder")
    options = parser.parse_args()
    if options.rank is not None:
        be_rank(options.rank, options.network, options.framework, options.batch, options.blocks)
        return
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(options, Path(folder))
    if options.out:
        with options.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    if options.plot:
        plot(rows, options.plot, f"{options.hosts} hosts, {options.network} mlp, {options.framework}")
    for row in rows:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
