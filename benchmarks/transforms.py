"""Micro-batching under a memory limit: planned against measured peak memory, and the time that it costs.

Every point is a process of its own. Its peak is that of its resident memory (VmHWM of /proc, reset just
before) above what was resident before the executor was made, so it holds parameters, inputs, activations and the
framework's workspaces, and neither an import nor code that comes in as it is first run. Limits go from what the network
takes unsplit to the smallest that can be met.

    python benchmarks/transforms.py --out docs/evidence/microbatch.csv --plot docs/evidence/microbatch.svg

Whether limits hold as ``levelbench network`` plans for them, with trials, is seen from outside: a process forked for
each trial waits while its resident memory is read, and its mark reset, by the process that started it.

    OMP_NUM_THREADS=1 python benchmarks/transforms.py --outside 5
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
import tempfile
import time
from collections.abc import Iterator, Sequence
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

from levelbench.cli.network_words import make_cases, name_network
from levelbench.errors import LevelbenchError, UsageError
from levelbench.experiments.networks import NetworkJob, NetworkNote, find_room
from levelbench.networks import save, zoo
from levelbench.networks.benchmark.measuring import peak_of
from levelbench.networks.transforms.microbatch import RESERVE, Microbatch
from levelbench.operators.frameworks import open_framework
from levelbench.records.networks import NetworkArm, NetworkSpecification

HERE = Path(__file__).resolve().parent
# Freed memory goes back at once, so that the peak is that of what is held, not of what the allocator keeps for later.
RETURNED = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
FIELDS = (
    "network", "batch", "framework", "limit", "predicted", "measured", "inside", "segments", "nodes", "time_s", "cpu_s",
    "predicted_time", "worst_difference",
)  # fmt: skip
CASES = (
    "alexnet:4:size=128,width=256", "alexnet-owt:8:size=96,width=256", "vgg16:2:size=64,width=256",
    "squeezenet:8:size=96", "inceptionv1:8:size=64", "mobilenetv2:8:size=96", "densenet121:8:size=64",
    "resnet18:8:size=96", "resnet34:8:size=64", "resnet50:8:size=64", "resnet50-v1:8:size=96", "preresnet18:8:size=96",
    "preresnet50:8:size=64", "resnet101:8:size=64",
    "resnet20:128", "resnet32:64", "resnet44:64", "resnet56:128", "resnet110:64", "lenet5:1024", "lenet5-dense:2048",
    "dqn:128", "a3c:256", "alphago-zero-tiny:512", "autoencoder:2048", "vae:4096", "unet-tiny:64", "bert-tiny:16",
    "transformer-tiny:64", "gpt2-tiny:64",
)  # fmt: skip
"""Networks of the zoo, as ``name:batch:options``, small enough to be measured many times."""


def resident(what: str, pid: object = "self") -> int:
    """Bytes of ``VmRSS``, ``VmHWM`` or ``RssFile`` of a process."""
    found = re.search(rf"{what}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
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


def written(folder: Path) -> list[str]:
    """Cases of files: networks built here, and modules of PyTorch that it exports itself."""
    import torch
    from torch import nn

    cases = []
    for at, (batch, widths) in enumerate([(8192, (64, 256, 10)), (4096, (784, 512, 100)), (2048, (32, 2048, 8))]):
        network = zoo.mlp(*widths)
        save(network, folder / f"mlp-{at}.onnx", network.initialise(at))
        cases.append(f"{folder}/mlp-{at}.onnx:{batch}")
    for at, (batch, shape, widths) in enumerate(
        [(256, (3, 32, 32), (16, 64, 10)), (64, (1, 96, 96), (8, 32, 5)), (16, (3, 128, 128), (24, 64, 100)),
         (512, (1, 28, 28), (8, 32, 10)), (32, (12, 64, 48), (32, 64, 20))]
    ):  # fmt: skip
        network = zoo.cnn(shape, *widths)
        save(network, folder / f"cnn-{at}.onnx", network.initialise(at))
        cases.append(f"{folder}/cnn-{at}.onnx:{batch}")
    relu, conv = nn.ReLU(), nn.Conv2d
    modules: dict[str, tuple[int, tuple[int, ...], Sequence[nn.Module]]] = {
        "plain": (64, (3, 48, 48), [conv(3, 32, 3), relu, conv(32, 16, 3), relu]),
        "pooled": (64, (3, 64, 64), [conv(3, 24, 5), relu, nn.MaxPool2d(2), conv(24, 48, 3)]),
        "strided": (64, (3, 96, 96), [conv(3, 32, 3, 2), relu, conv(32, 64, 3, 2), relu]),
        "normed": (64, (8, 40, 40), [conv(8, 32, 3), nn.BatchNorm2d(32), relu, conv(32, 8, 1)]),
        "depthwise": (64, (32, 48, 48), [conv(32, 32, 3, groups=32), relu, conv(32, 16, 1)]),
        "upward": (64, (16, 20, 20), [nn.ConvTranspose2d(16, 24, 4, 2), relu, conv(24, 3, 3)]),
        "one-dimensional": (256, (8, 512), [nn.Conv1d(8, 32, 5), relu, nn.Conv1d(32, 16, 5), relu]),
        "three-dimensional": (16, (2, 16, 24, 24), [nn.Conv3d(2, 16, 3), relu, nn.Conv3d(16, 8, 3)]),
        "dense": (4096, (256,), [nn.Linear(256, 768), nn.GELU(), nn.Linear(768, 256), nn.LayerNorm(256)]),
        "sigmoids": (8192, (96,), [nn.Linear(96, 384), nn.Sigmoid(), nn.Linear(384, 384), nn.Tanh()]),
        "averaged": (64, (3, 64, 64), [conv(3, 32, 3), nn.ELU(), nn.AvgPool2d(2), nn.Flatten()]),
        "leaky": (128, (4, 40, 40), [conv(4, 32, 3), nn.LeakyReLU(), nn.AdaptiveAvgPool2d(1)]),
    }
    for name, (batch, shape, layers) in modules.items():
        path = folder / f"torch-{name}.onnx"
        torch.onnx.export(
            nn.Sequential(*layers).eval(), (torch.zeros(2, *shape),), str(path), dynamo=False, input_names=["x"],
            output_names=["y"], dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}},
        )  # fmt: skip
        cases.append(f"{path}:{batch}")
    return cases


class Outside:
    """Carries out trials in forked processes, and reads their resident memory from here."""

    def __init__(self) -> None:
        self.peak = 0

    def __call__(self, job: NetworkJob) -> list[NetworkNote]:
        """The note of a trial; ``peak`` is what its process took, from before its executor was made to its end."""
        here, there = Pipe()
        child = get_context("fork").Process(target=_trial, args=(job, there))
        child.start()
        there.close()
        base, peak, answer = 0, 0, None
        try:
            while answer is None:
                said = here.recv()
                if said == "prepare":
                    base = resident("VmRSS", child.pid)
                    Path(f"/proc/{child.pid}/clear_refs").write_text("5")
                peak = max(peak, resident("VmHWM", child.pid))
                if said == "prepare":
                    peak = base
                answer = said if not isinstance(said, str) else None
                here.send("go on")
        except EOFError:
            raise SystemExit(f"the process of {job.specification.case.title} died") from None
        finally:
            child.join()
        if isinstance(answer, Exception):
            raise answer
        self.peak = peak - base
        return [answer]


def _trial(job: NetworkJob, there: Connection) -> None:
    def say(what: object) -> None:
        there.send(what)
        there.recv()

    try:
        found, tensors = peak_of(job.specification, job.room.spare, say)
        say(NetworkNote(peak_b=found.value, tensors_b=tensors))
    except LevelbenchError as error:
        say(error)


def of_case(case: str, points: int) -> Iterator[dict[str, Any]]:
    """A case under ``points`` limits: from what it takes unsplit to the smallest that can be met."""
    word, batch, options = (*case.split(":"), "")[:3]
    named = name_network(word, [each for each in options.split(",") if each])
    [found] = make_cases(named, batch, [], [])
    outside = Outside()

    def job(limit: int) -> NetworkJob:
        arm = NetworkArm("torch", transforms=(f"microbatch;memory={limit}",))
        return NetworkJob(NetworkSpecification(named.name, found, arm), "", "memory")

    [whole] = outside(job(1 << 40))
    most, smallest = outside.peak, 0
    try:
        outside(job(1))
    except UsageError as error:
        smallest = int(re.search(r"possible limit is (\d+) bytes", error.found)[1])
    least = smallest + max(0, round(whole.peak_b) - whole.tensors_b)
    for limit in np.geomspace(1.02 * most, min(max(1.1 * least, 0.5 * most), 0.95 * most), points).round():
        lines: list[str] = []
        wanted = job(int(limit))
        room = find_room(wanted, lines.append, outside)
        [note] = outside(structs.replace(wanted, room=room))
        planned = note.tensors_b + room.beside
        yield {
            "network": f"{named.name}, {batch}", "limit": int(limit), "planned": planned, "outside": outside.peak,
            "inside": round(note.peak_b), "trials": sum(line.startswith("looking") for line in lines),
            "said": "BEYOND" if note.peak_b > limit else "within",
        }  # fmt: skip


def outside_table(rows: Sequence[dict[str, Any]]) -> str:
    """A row a network: its limits, the most that was taken of one, how far plans were off, and what was said."""
    lines = [
        "| network, batch | limits, MiB | taken / limit | planned / taken | beyond | said to be |",
        "|---|---|---|---|--:|--:|",
    ]
    for name in dict.fromkeys(row["network"] for row in rows):
        mine = [row for row in rows if row["network"] == name]
        limits = [row["limit"] / (1 << 20) for row in mine]
        held = [row["outside"] / row["limit"] for row in mine]
        plans = [row["planned"] / row["outside"] for row in mine]
        beyond = sum(each > 1 for each in held)
        lines.append(
            f"| {name} | {min(limits):.1f} to {max(limits):.1f} | {min(held):.3f} to {max(held):.3f} | "
            f"{min(plans):.3f} to {max(plans):.3f} | {beyond} | {sum(row['said'] == 'BEYOND' for row in mine)} |"
        )
    return "\n".join(lines)


def see_from_outside(only: Sequence[str], points: int, out: Path | None) -> None:
    """Measure and print; ``out`` gets every point."""
    rows: list[dict[str, Any]] = []
    open_framework("torch")
    with tempfile.TemporaryDirectory() as folder:
        for case in only or (*written(Path(folder)), *CASES):
            for row in of_case(case, points):
                rows.append(row)
                print(row, file=sys.stderr, flush=True)
            if out:
                out.write_text(json.dumps(rows, indent=1) + "\n")
    print(outside_table(rows))
    off = [abs(row["planned"] / row["outside"] - 1) for row in rows]
    beyond = [row for row in rows if row["outside"] > row["limit"]]
    silent = [row for row in beyond if row["said"] == "within"]
    print(
        f"\n{len(rows)} points: {len(beyond)} beyond their limit, {len(silent)} of them in silence; plans off by "
        f"{100 * max(off):.1f} % at most, by over 5 % in {sum(each > 0.05 for each in off)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs="+", help="network:batch; with --outside also :options")
    parser.add_argument(
        "--outside", type=int, metavar="N", help="N limits a network, planned with trials, from outside"
    )
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
    if options.outside:
        see_from_outside(options.case or (), options.outside, options.out)
        return
    rows = []
    for case in options.case or ("alexnet:64", "vgg16:16"):
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
