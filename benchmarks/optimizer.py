"""What an optimizer written once costs: ours and the framework's own, each in a whole training step, side by side.

    python benchmarks/optimizer.py [--quick] [--processes 8] [--seconds 5] [--frameworks torch,jax] [--case fused]
    OMP_NUM_THREADS=1 python benchmarks/optimizer.py --alone [--networks resnet18-32px] [--seconds 5]

Each case is a network at a batch size, a rule, and one of the framework's own implementations of it: PyTorch's
``fused`` and ``foreach``, optax under ``jax.jit``. Both sides take whole training steps (loss, gradients, update) with
executors of their own that start from the same parameters and get the same batch; one updates by our rule, the other by
:class:`levelbench.training.Native`. First both take three updates by the same gradients, after which
their parameters have to agree. Time is also taken for the update alone, which is told and not judged.
``resnet18-32px`` sees images of CIFAR's size: nearly as many parameters for a fiftieth of the work on each.

The replicate is the process: in each the two sides take turns A B B A, and the process counts with the median of the
ratios of neighbours. The figure is the median over processes with its exact order-statistic interval (Student's t on
logarithms below six). Goal: within 10 % of the whole step; ``met`` or ``missed`` if the whole interval says so, else
``open``. ``OMP_NUM_THREADS`` applies to both sides; let nothing else run.

``--alone`` has the update alone by CPU time instead, of ours and of all of the framework's own in turn in one process:
the median of each. With one thread that stands something else running, though not a busy cache.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from levelbench.errors import LevelbenchError
from levelbench.measure.sampling import sample_interleaved
from levelbench.measure.statistics import estimate
from levelbench.measure.stopping import Budget, FixedCount
from levelbench.networks import Network, zoo
from levelbench.operators.frameworks import load_framework
from levelbench.training.optimizers import AdamW, Momentum, Optimizer
from levelbench.training.optimizers.wrappers import Native

MOST = 1.10
BATCHES = {"mlp": 64, "cnn": 32, "resnet18": 8, "resnet18-32px": 128}
TOLERANCE = 1e-5
"""Of how far parameters are apart after three updates by the same gradients, to how far they have come; in float32."""
LEAST = 4
"""Turns forth and back of updates alone, whatever they take."""
_RATE = 1e-4

Sides = tuple[Optimizer, Optimizer]


def pairs() -> dict[str, Sides]:
    """(native, ours) by the name of a case, which begins with its framework."""
    adamw, momentum = AdamW(_RATE), Momentum(_RATE)
    torch: dict[str, Sides] = {}
    for way in ("fused", "foreach"):
        torch[f"torch adamw {way}"] = (Native("torch.optim.AdamW", _RATE, **{way: True}), adamw)
        torch[f"torch momentum {way}"] = (Native("torch.optim.SGD", _RATE, momentum=0.9, **{way: True}), momentum)
    return {
        **torch,
        "jax adamw optax": (Native("optax.adamw", _RATE, weight_decay=adamw.weight_decay), adamw),
        "jax momentum optax": (Native("optax.sgd", _RATE, momentum=0.9), momentum),
    }


def network(name: str) -> Network:
    """The networks of the digits and fashion-mnist tasks, and ResNet-18."""
    if name == "mlp":
        return zoo.mlp(64, 128, 10)
    if name == "cnn":
        return zoo.cnn((1, 28, 28), 16, 64, 10)
    return zoo.build("resnet18", size=32, classes=10) if name == "resnet18-32px" else zoo.build(name)


class Side:
    """A network that is trained on one batch by one optimizer."""

    def __init__(self, backend: Any, made: Network, optimizer: Optimizer, inputs: Sequence[Any]) -> None:
        self.backend, self.inputs = backend, inputs
        self.executor = backend.executor(made, made.initialise(0))
        self.stepper = optimizer.start(backend, self.executor.parameters)
        self.steps = 0

    def step(self) -> None:
        """A whole training step, waited for."""
        loss, gradients = self.executor.infer_and_backprop(*self.inputs)
        self.steps += 1
        self.stepper.step(gradients, self.steps, 1.0)
        self.backend.finish([loss, *self.executor.parameters.values()])

    def gradients(self) -> dict[str, Any]:
        """Those of the batch, in arrays of their own. With zeros moments would shrink to numbers that are slow."""
        _, found = self.executor.infer_and_backprop(*self.inputs)
        return {key: self.backend.array(np.array(self.backend.host(each))) for key, each in found.items()}

    def update(self, gradients: dict[str, Any]) -> Callable[[], None]:
        """The update alone, with gradients that stay as they are, or nearly so."""

        def call() -> None:
            self.steps += 1
            self.stepper.step(gradients, self.steps, 1.0)
            self.backend.finish(list(self.executor.parameters.values()))

        return call


def agree(what: str, native: Side, ours: Side) -> None:
    """Three updates of both by the same gradients; ends the process where the parameters part.

    With gradients of their own, networks with batch normalisation would part by rounding alone: AdamW makes a whole
    step of a gradient that is nearly zero, whatever its sign.
    """
    host = native.backend.host
    before = {key: np.array(host(each)) for key, each in native.executor.parameters.items()}
    for _ in range(3):
        _, found = native.executor.infer_and_backprop(*native.inputs)
        gradients = {key: np.array(host(each)) for key, each in found.items()}
        for side in (native, ours):
            side.update({key: side.backend.array(each.copy()) for key, each in gradients.items()})()
    for key, start in before.items():
        a, b = (host(side.executor.parameters[key]) for side in (native, ours))
        # Half a unit in the last place of each of three sums is rounding.
        rounding = 3 * np.finfo(np.float32).eps * np.linalg.norm(a.ravel())
        if np.linalg.norm((a - b).ravel()) > TOLERANCE * np.linalg.norm((a - start).ravel()) + rounding:
            raise SystemExit(f"{what}: the two sides part in {key}")


def replicate(case: str, name: str, seconds: float) -> dict[str, float]:
    """One process's measurement."""
    backend = load_framework(case.split()[0]).open("cpu")
    made = network(name).with_loss().training()
    inputs = [backend.array(each) for each in made.make_inputs(BATCHES[name]).values()]
    native, ours = (Side(backend, made, optimizer, inputs) for optimizer in pairs()[case])
    agree(f"{case} on {name}", native, ours)
    for side in (native, ours):
        # Programs compile.
        side.step()
    until, clock = Budget(seconds=seconds) & FixedCount(8), backend.clock()
    a, b = sample_interleaved(native.step, ours.step, until=until, clock=clock)
    gradients = ours.gradients()
    alone = Budget(seconds=min(1.0, seconds)) & FixedCount(8)
    c, d = sample_interleaved(native.update(gradients), ours.update(dict(gradients)), until=alone, clock=clock)
    n = min(len(a.values), len(b.values)) // 2 * 2
    # Neighbours in A B B A: a pair of turns has seen each order once, so drift inside it cancels.
    logarithms = np.log(b.values[:n]) - np.log(a.values[:n])
    found = {"native_s": a, "ours_s": b, "native_update_s": c, "ours_update_s": d}
    return {
        "ratio": float(np.median(np.exp(logarithms.reshape(-1, 2).mean(axis=1)))),
        **{key: float(np.median(each.values)) for key, each in found.items()},
    }


def alone(framework: str, rule: str, name: str, seconds: float) -> dict[str, list[float]]:
    """CPU time in s of updates in turn, forth and back: ours, and each of the framework's own by its name."""
    backend = load_framework(framework).open("cpu")
    made = network(name).with_loss().training()
    inputs = [backend.array(each) for each in made.make_inputs(BATCHES[name]).values()]
    cases = {case.split()[2]: sides for case, sides in pairs().items() if case.startswith(f"{framework} {rule} ")}
    optimizers = {way: native for way, (native, _) in cases.items()}
    optimizers["ours"] = next(iter(cases.values()))[1]
    calls = {}
    for way, optimizer in optimizers.items():
        side = Side(backend, made, optimizer, inputs)
        calls[way] = side.update(side.gradients())
        # State is made and programs compile.
        calls[way]()
    found: dict[str, list[float]] = {way: [] for way in calls}
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends or len(found["ours"]) < 2 * LEAST:
        for way in (*calls, *reversed(calls)):
            began = time.process_time()
            calls[way]()
            found[way].append(time.process_time() - began)
    return found


def print_alone(frameworks: Sequence[str], networks: Sequence[str], seconds: float) -> None:
    print("| rule | network | way | CPU time of an update, ms | of ours | updates |\n|---|---|---|---|---|---|")
    for framework, rule in dict.fromkeys((case.split()[0], case.split()[1]) for case in pairs()):
        for name in networks if framework in frameworks else ():
            found = alone(framework, rule, name, seconds)
            ours = np.median(found["ours"])
            for way, times in found.items():
                middle = np.median(times)
                figures = f"{middle * 1e3:.3f} | {middle / ours:.2f} | {len(times)}"
                print(f"| {framework} {rule} | {name} | {way} | {figures} |", flush=True)


def measured(case: str, name: str, options: argparse.Namespace) -> dict[str, Any] | str:
    """The processes of a case together; the reason as text where it cannot be measured."""
    found = []
    for _ in range(options.processes):
        words = [sys.executable, __file__, "--child", case, name, str(options.seconds)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no reason given"]
            return lines[-1]
        found.append(json.loads(done.stdout.splitlines()[-1]))
    estimated = estimate([each["ratio"] for each in found])
    interval = estimated.interval
    low, high = (interval.low, interval.high) if interval else (0.0, float("inf"))
    return {
        "case": case,
        "network": name,
        "batch": BATCHES[name],
        **{key: float(np.median([each[key] for each in found])) for key in found[0] if key != "ratio"},
        "ratio": estimated.value,
        "low": low,
        "high": high,
        "processes": len(found),
        "verdict": "met" if high <= MOST else "missed" if low > MOST else "open",
    }


def row(found: dict[str, Any]) -> str:
    times = " | ".join(f"{found[key] * 1e3:.3f}" for key in ("native_s", "ours_s", "native_update_s", "ours_update_s"))
    return (
        f"| {found['case']} | {found['network']} | {found['batch']} | {times} | {found['ratio']:.4f} "
        f"| {found['low']:.4f} to {found['high']:.4f} | {found['processes']} | {found['verdict']} |"
    )


def child(words: Sequence[str]) -> None:
    """One process: prints its measurement as JSON, or its reason and ends with 3."""
    case, name, seconds = words
    try:
        print(json.dumps(replicate(case, name, float(seconds))))
    except LevelbenchError as error:
        print(error, file=sys.stderr)
        raise SystemExit(3) from None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each process")
    parser.add_argument("--processes", type=int, default=8, help="for each case; six give an exact interval")
    parser.add_argument("--quick", action="store_true", help="two processes of half a second: does it work at all")
    parser.add_argument("--frameworks", default="torch,jax", help="which, with commas between them")
    parser.add_argument("--case", default="", help="only those with this in their names: 'adamw fused'")
    parser.add_argument("--networks", default=",".join(BATCHES), help="which, with commas between them")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--alone", action="store_true", help="the update alone, by CPU time")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return
    if options.quick:
        options.seconds, options.processes = 0.5, 2
    if options.alone:
        print_alone(options.frameworks.split(","), options.networks.split(","), options.seconds)
        return
    chosen = [each for each in pairs() if each.split()[0] in options.frameworks.split(",") and options.case in each]
    if not chosen:
        parser.error(
            f"no case of {options.frameworks} has {options.case!r} in its name; there are {', '.join(pairs())}"
        )
    results = []
    print(
        "| case | network | batch | step: native, ms | ours, ms | update alone: native, ms | ours, ms | ratio | 95 % ",
        end="",
    )
    print("| processes | goal |\n|---|---|---|---|---|---|---|---|---|---|---|")
    for case in chosen:
        for name in options.networks.split(","):
            found = measured(case, name, options)
            if isinstance(found, str):
                print(f"| {case} | {name} | {BATCHES[name]} | left out: {found} |", flush=True)
                continue
            results.append(found)
            print(row(found), flush=True)
    counts = {name: sum(each["verdict"] == name for each in results) for name in ("met", "missed", "open")}
    print(f"\nThe goal is met by {counts['met']}, missed by {counts['missed']}, open for {counts['open']} of them.")
    if options.json:
        with tempfile.NamedTemporaryFile("w", dir=options.json.parent, delete=False) as file:
            file.write(json.dumps({"cases": results}, indent=2))
        Path(file.name).replace(options.json)


if __name__ == "__main__":
    main()
