"""The simulator: how fast it is, and how far its predictions are from measurements.

    python benchmarks/simulation.py [--quick]                 how long simulations of many ranks take
    python benchmarks/simulation.py --predict [--quick]       processor time of predictions with their draws
    python benchmarks/simulation.py --published                against DAWNBench's ImageNet entries of two teams
    python benchmarks/simulation.py --measure [--ranks 2,4] [--rate 200mbit] [--network wide] [--seconds 20]
        [--json FILE]

``--measure`` starts ranks over gloo, one thread each, which measure three things one after another: forward, backward
and update while the other ranks do the same and nobody talks; all-reduces of several sizes; and steps under schemes.
The first two calibrate the simulator, the third is what it predicts: alpha and beta are fitted on the smallest number
of ranks alone, and what a step computes on each number, as cores that are shared are nothing that it knows of. A
prediction is printed beside the measurement with its interval and its error; ranks beyond the number of cores are
marked.

With ``--rate`` each rank is on a host of its own, a network namespace, with links of that rate (root, ``ip``).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from levelbench.distributed.communicator import Communicator
from levelbench.distributed.finding import named_scheme, open_communicator
from levelbench.distributed.launching import ENGINES, place_of
from levelbench.distributed.scheme import Scheme, Worker
from levelbench.distributed.schemes.all_reduce import AllReduce
from levelbench.distributed.schemes.gossip import Gossip
from levelbench.distributed.schemes.parameter_server import AsynchronousParameterServer
from levelbench.distributed.schemes.periodic import LocalSGD, ModelAveraging
from levelbench.distributed.simulation.model import Calibrated, Compute, ModelShape, Uncertain, link_of, of_samples
from levelbench.distributed.simulation.networks import Interconnect, collective_s, parse
from levelbench.distributed.simulation.predict import predict, simulate
from levelbench.distributed.sweep import Timed, fit, rounds_of
from levelbench.measure.clocks import HOST
from levelbench.measure.timeline import Timeline
from levelbench.networks import Network
from levelbench.networks.builder import Builder
from levelbench.operators.frameworks import load_framework
from levelbench.training import Momentum
from published_scaling import ALIBABA, FAST_AI, Team, calibrate, compare
from ratios import write_json

SCHEMES: dict[str, Scheme] = {
    "all-reduce, no overlap": AllReduce(overlap=False),
    "all-reduce": AllReduce(bucket_mb=1.0),
    "model-averaging": ModelAveraging(),
    "local-sgd, period 4": LocalSGD(period=4),
}
SIZES = (1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 22, 1 << 23)
BATCH = 64
"""Of a rank."""


def speed(quick: bool) -> None:
    """Seconds of simulations of a ResNet-50's parameters."""
    model = ModelShape({f"layer {at}": (160_000,) for at in range(160)})
    network = parse("alpha=2us,beta=25GB/s,topology=fat-tree")
    many, some, steps = (256, 64, 5) if quick else (4096, 512, 20)
    cases: list[tuple[Scheme, int]] = [
        (AllReduce(), many),
        (AsynchronousParameterServer(servers=8), some),
        (Gossip(), some),
        (LocalSGD(period=4), some),
    ]
    for scheme, ranks in cases:
        began = HOST.now_ns()
        run = simulate(scheme, ranks, model, Compute(0.1, 0.01), network, steps=steps)
        took = (HOST.now_ns() - began) / 1e9
        print(f"{scheme.name:24}{ranks:6} ranks, {steps} steps: {took:7.1f} s, a step of {run.step_s * 1e3:.1f} ms")


def predictions(quick: bool) -> None:
    """Processor seconds of predictions for more and more ranks, of a model of 17,000 parameters."""
    model = ModelShape({"1": (128, 64), "1b": (128,), "2": (64, 128), "2b": (64,), "3": (10, 64), "3b": (10,)})
    known = Uncertain(Calibrated(2e-3, 1.8e-3, 2.2e-3), Calibrated(2e-6, 1e-6, 3e-6), Calibrated(25e9, 2e10, 27e9))
    network = parse("alpha=2us,beta=25GB/s,topology=fat-tree")
    for name in ("all-reduce", "top-k", "async-parameter-server", "stale-synchronous", "gossip"):
        for ranks in (8, 64) if quick else (8, 64, 512, 4096):
            began = time.process_time()
            own = Compute(2e-3, 3e-4, batch=BATCH)
            told = predict(named_scheme(name), ranks, model, own, network, batch=BATCH, scaling="weak", uncertain=known)
            took, step_ms = time.process_time() - began, told.step_s.value * 1e3
            print(f"{name:24}{ranks:6} ranks: {took:7.2f} s, a step of {step_ms:.2f} ms", flush=True)


def published() -> None:
    """Tables of published epochs and predicted ones."""
    shown: list[tuple[str, Team, dict[str, Any], dict[str, Any]]] = [
        ("fitted on 4 machines", FAST_AI, {"machines": (4,)}, {}),
        ("fitted on 4 and 8 machines, with a time per epoch", FAST_AI, {"machines": (4, 8), "each_epoch": True}, {}),
    ]
    for title, itemsize, overlap in (("2 bytes", 2, False), ("4 bytes", 4, False), ("2 bytes, overlap", 2, True)):
        settings = {"itemsize": itemsize, "algorithm": "ring"}
        shown.append(
            (
                f"fitted on 1 machine, gradients of {title}",
                ALIBABA,
                {"machines": (1,), "each_step": False, **settings},
                {"overlap": overlap, **settings},
            )
        )
    for title, team, settings, others in shown:
        known = calibrate(team, **settings)
        print(f"\n{team.name}: {title}\n\n| machines | pixels | batch | published | predicted | error |")
        print("|---:|---:|---:|---:|---:|---:|")
        rows = compare(team, known, **others)
        for each in rows:
            at = each.stretch
            error = "fitted" if each.calibrated else f"{each.error:+.1%}"
            times = f"{at.epoch_s:.2f} s | {each.predicted_s:.2f} s"
            print(f"| {at.machines} | {at.pixels} | {at.batch:,} | {times} | {error} |")
        for machines in sorted({each.stretch.machines for each in rows}):
            own = [each for each in rows if each.stretch.machines == machines]
            told = sum(each.stretch.epochs * each.predicted_s for each in own)
            was = sum(each.stretch.epochs * each.stretch.epoch_s for each in own)
            count = sum(each.stretch.epochs for each in own)
            found = f"{was:.0f} s, predicted {told:.0f} s ({told / was - 1:+.1%})"
            print(f"\nmachines: {machines}, such epochs: {count}: {found}")


def made(name: str) -> Network:
    """``wide`` (two layers of 1,024, 7.4 MB), or one of ``benchmarks/executor.py``; for training."""
    from executor import network

    if name == "wide":
        found = Builder("wide", (784,)).gemm(1024).relu().gemm(1024).relu().gemm(10, gain=1.0).build()
    else:
        found = network(name)
    return found.with_loss().training()


def together(communicator: Communicator, work: Any, count: int) -> list[float]:
    """Seconds of ``count`` calls, each begun by all ranks and over with the slowest."""
    times = np.empty(count)
    for at in range(count):
        communicator.barrier()
        began = HOST.now_ns()
        work()
        times[at] = (HOST.now_ns() - began) / 1e9
    return [float(each) for each in np.max(communicator.all_gather(times), axis=0)]


def rank(name: str, seconds: float) -> None:
    """Measure with the other ranks; rank 0 prints what was found, as JSON."""
    place = place_of(os.environ)
    communicator = open_communicator("gloo", place)
    backend = load_framework("torch").open()
    network = made(name)
    executor = backend.executor(network, network.initialise(0))
    inputs = [backend.array(each) for each in network.make_inputs(BATCH, seed=place.rank).values()]
    alone = Momentum(1e-4, 0.9).start(backend, executor.parameters)

    def passes() -> Any:
        executor.forward(*inputs)
        return executor.backward()

    gradients = passes()
    once = max(together(communicator, passes, 5))
    count = int(communicator.broadcast(np.array([max(20, int(seconds / 6 / once))], np.int64))[0])
    own = np.array([_timed(passes) for _ in range(count)])
    found: dict[str, Any] = {
        "compute_s": np.concatenate(communicator.all_gather(own)).tolist(),
        "update_s": float(np.median(together(communicator, lambda: alone.step(gradients, 1, 1.0), 20))),
        "parameters": {each: list(array.shape) for each, array in executor.parameters.items()},
        "reduce": {},
        "steps": {},
    }
    for nbytes in SIZES:
        array = np.zeros(nbytes // 4, np.float32)
        times = together(communicator, lambda array=array: communicator.all_reduce(array), 30)
        found["reduce"][nbytes] = times[5:]
    for title, scheme in SCHEMES.items():
        worker = Worker(communicator, backend, executor, Momentum(1e-4, 0.9), switch=Timeline().switch)
        stepper = scheme.start(worker)
        stepper.share = 1 / place.size
        communicator.barrier()
        ends = np.empty(count + 1)
        ends[0] = HOST.now_ns() / 1e9
        for step in range(1, count + 1):
            executor.forward(*inputs)
            stepper.step(executor.backward(), step, 1.0)
            ends[step] = HOST.now_ns() / 1e9
        stepper.meet()
        stepper.close()
        # The clock is the same on all ranks of one machine, so the last of each step is its end.
        last = np.max(communicator.all_gather(ends), axis=0)
        found["steps"][title] = np.diff(last)[count // 8 :].tolist()
    communicator.close()
    if place.rank == 0:
        print(json.dumps(found), flush=True)


def _timed(work: Any) -> float:
    began = HOST.now_ns()
    work()
    return (HOST.now_ns() - began) / 1e9


def measured(options: argparse.Namespace, ranks: int) -> dict[str, Any]:
    """What a team of processes found."""
    seconds = options.seconds
    command = [sys.executable, __file__, "--rank", "--network", options.network, "--seconds", str(seconds)]
    engine, links = ("hosts", {"rate": options.rate}) if options.rate else ("process", {})
    with tempfile.TemporaryDirectory() as folder:
        environment = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        with ENGINES[engine].start(command, ranks, Path(folder), environment, **links) as running:
            if not running.wait(120 + 20 * seconds):
                raise SystemExit("it took too long")
            if failure := running.failure():
                raise SystemExit("\n".join((failure.reason, *failure.lines)))
            lines = running.log(0).read_text().splitlines()
    found: dict[str, Any] = json.loads(next(line for line in reversed(lines) if line.startswith("{")))
    return found


def measure(options: argparse.Namespace) -> None:
    """Calibrate on the smallest number of ranks, predict all, compare."""
    counts = sorted(int(each) for each in options.ranks.split(","))
    found = {ranks: measured(options, ranks) for ranks in counts}
    first, small = found[counts[0]], counts[0]
    points = [
        Timed(float(nbytes), float(np.median(times)), float(np.std(times) / len(times) ** 0.5))
        for nbytes, times in first["reduce"].items()
    ]
    line = fit(points)
    alpha, beta = link_of(line, rounds_of("all-reduce", small))
    model = ModelShape({name: tuple(shape) for name, shape in first["parameters"].items()})
    network = Interconnect(alpha.value, beta.value)
    print(f"{options.network}: {model.nbytes:,} bytes of parameters, {options.rate or 'loopback'}")
    print(f"alpha {alpha.value * 1e6:.1f} us, beta {beta.value / 1e9:.2f} GB/s, misfit {line.misfit:.1f}\n")
    print("| all-reduce alone | ranks | measured | ring | error |\n|---:|---:|---:|---:|---:|")
    for ranks in counts:
        for nbytes in (SIZES[0], SIZES[-1]):
            got = float(np.median(found[ranks]["reduce"][str(nbytes)]))
            ring = collective_s(network, "all_reduce", float(nbytes), ranks, "ring")
            print(f"| {nbytes:,} B | {ranks} | {got * 1e3:.2f} ms | {ring * 1e3:.2f} ms | {ring / got - 1:+.1%} |")
    print("\n| scheme | ranks | measured step | predicted | 95 % | error |\n|---|---:|---:|---:|---:|---:|")
    rows = []
    for ranks in counts:
        own = tuple(found[ranks]["compute_s"])
        compute = Compute.measured(own, BATCH, update_s=found[ranks]["update_s"])
        uncertain = Uncertain(of_samples(own), alpha, beta)
        for title, scheme in SCHEMES.items():
            steps = np.array(found[ranks]["steps"][title])
            told = predict(
                scheme, ranks, model, compute, network, batch=BATCH, scaling="weak", uncertain=uncertain,
                steps=40, algorithm="ring",
            )  # fmt: skip
            ends, got = told.step_s.interval, float(steps.mean())
            rows.append({"scheme": title, "ranks": ranks, "measured_s": got, "predicted_s": told.step_s.value})
            mark = "" if ranks <= (os.cpu_count() or 1) else " (more than cores)"
            low, high = (ends.low, ends.high) if ends else (told.step_s.value,) * 2
            print(
                f"| {title} | {ranks}{mark} | {got * 1e3:.2f} ms | {told.step_s.value * 1e3:.2f} ms "
                f"| {low * 1e3:.2f} to {high * 1e3:.2f} | {told.step_s.value / got - 1:+.1%} |"
            )
    if options.json:
        write_json(options.json, {"rows": rows, "found": found})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("--quick", "--predict", "--published", "--measure", "--rank"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--network", default="wide")
    parser.add_argument("--rate")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.rank:
        rank(options.network, options.seconds)
    elif options.predict:
        predictions(options.quick)
    elif options.published:
        published()
    elif options.measure:
        measure(options)
    else:
        speed(options.quick)


if __name__ == "__main__":
    main()
