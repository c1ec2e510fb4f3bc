"""What an executor adds to a network: the framework's own hand-written program and ours, measured side by side.

    python benchmarks/executor.py [--quick] [--processes 8] [--seconds 5] [--frameworks torch,jax] [--json FILE]

Each case is a network at a batch size on one framework, for inference or for a training step (loss and gradients,
without an optimizer). One side is what a careful user writes: an ``nn.Module`` under ``inference_mode`` or with
``loss.backward()``, a function under ``jax.jit`` (``jax.value_and_grad`` for a step) or ``tf.function`` (with a tape),
Keras's layers under ``tf.function``, a bare session of ONNX Runtime with everything bound (``run_with_iobinding``). The
other is ``Executor.infer`` or ``Executor.infer_and_backprop``. Both use the same parameters in the same memory, where
the framework allows it, and end with the same wait for the device; what they compute is compared before it is timed.

The replicate is the process: in each the two sides take turns A B B A, and the process counts with the median of the
ratios of neighbours. The figure is the median over processes with its exact order-statistic interval (Student's t on
logarithms below six). Goals: 1 % for ONNX Runtime, 2 % for the others; ``met`` or ``missed`` if the whole interval
says so, else ``open``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from levelbench.errors import UnknownNameError, UnsupportedError
from levelbench.measure.sampling import sample_interleaved
from levelbench.measure.statistics import estimate
from levelbench.measure.stopping import Budget, FixedCount
from levelbench.networks import Network, zoo
from levelbench.operators.frameworks import load_framework

FRAMEWORKS = ("torch", "jax", "onnxruntime", "tensorflow", "keras")
MOST = {"torch": 1.02, "jax": 1.02, "onnxruntime": 1.01, "tensorflow": 1.02, "keras": 1.02}
RUN_BY = {"keras": "tensorflow"}
"""Programs by hand of a framework of layers, beside the executor of the framework that computes them."""
BATCHES = {"mlp": 64, "cnn": 32, "resnet18": 8}
WORKS = ("inference", "step")
TOLERANCE = {"inference": 1e-4, "step": 2e-2}
"""Of a difference's norm, as a share of the array's own. Where a deep network's ReLU is at zero but for rounding, it
falls to either side, which a gradient feels and an output does not."""

Work = Callable[[], Any]


def network(name: str) -> Network:
    """The networks of the digits and fashion-mnist tasks, and ResNet-18."""
    if name == "mlp":
        return zoo.mlp(64, 128, 10)
    return zoo.cnn((1, 28, 28), 16, 64, 10) if name == "cnn" else zoo.build(name)


def sides(framework: str, name: str, work: str, batch: int) -> tuple[Work, Work, Callable[[Any], Any], Any]:
    """The call by hand, ours, what waits for an answer, and the backend."""
    backend = load_framework(RUN_BY.get(framework, framework)).open()
    made = network(name)
    if work == "step":
        made = made.with_loss().training()
    inputs = [backend.array(each) for each in made.make_inputs(batch).values()]
    executor = backend.executor(made, made.initialise(0), trains=work == "step")
    both = {**executor.parameters, **executor.buffers}
    arrays = {each.name: both[each.name] for each in made.parameters}
    if framework == "onnxruntime":
        return bound(executor.session, inputs), lambda: executor.infer(*inputs), lambda _: None, backend
    peer = importlib.import_module(f"peers.handwritten_{framework}")
    if name not in getattr(peer, "MODELS", BATCHES):
        raise UnsupportedError(f"{name} by hand on {framework}", "no program", f"take {', '.join(peer.MODELS)}")
    if work == "inference":
        hand = peer.inference(name, arrays, inputs)
        return hand, lambda: executor.infer(*inputs), lambda found: backend.finish(flat(found)), backend
    trained = () if framework == "torch" else (list(executor.parameters),)
    hand = peer.step(name, arrays, inputs, *trained)
    return hand, lambda: executor.infer_and_backprop(*inputs), lambda found: backend.finish(flat(found)), backend


def bound(session: Any, inputs: Sequence[Any]) -> Work:
    """ONNX Runtime's own session, called by hand with inputs and outputs bound once."""
    binding = session.io_binding()
    for info, value in zip(session.get_inputs(), inputs, strict=True):
        binding.bind_ortvalue_input(info.name, value)
    for info in session.get_outputs():
        binding.bind_output(info.name, "cpu")

    def call() -> Any:
        session.run_with_iobinding(binding)
        return binding.get_outputs()

    return call


def flat(found: Any) -> list[Any]:
    """All arrays of an answer, in order."""
    if isinstance(found, dict):
        return flat(list(found.values()))
    return [each for part in found for each in flat(part)] if isinstance(found, list | tuple) else [found]


def same(backend: Any, hand: Any, ours: Any, tolerance: float) -> bool:
    """Whether both sides computed the same arrays, in the same order."""
    left, right = [backend.host(each) for each in flat(hand)], [backend.host(each) for each in flat(ours)]
    return len(left) == len(right) and all(
        a.shape == b.shape and np.linalg.norm((a - b).ravel()) <= tolerance * np.linalg.norm(a.ravel())
        for a, b in zip(left, right, strict=True)
    )


def replicate(framework: str, name: str, work: str, batch: int, seconds: float) -> dict[str, float]:
    """One process's measurement."""
    hand, ours, wait, backend = sides(framework, name, work, batch)
    arranged = getattr(hand, "arranged", flat)
    if not same(backend, arranged(hand()), ours(), TOLERANCE[work]):
        raise SystemExit(f"{work} of {name} on {framework}: the two sides do not compute the same")
    a, b = sample_interleaved(
        lambda: wait(hand()), lambda: wait(ours()), until=Budget(seconds=seconds) & FixedCount(8), clock=backend.clock()
    )
    n = min(len(a.values), len(b.values)) // 2 * 2
    # Neighbours in A B B A: a pair of turns has seen each order once, so drift inside it cancels.
    logarithms = np.log(b.values[:n]) - np.log(a.values[:n])
    ratio = float(np.median(np.exp(logarithms.reshape(-1, 2).mean(axis=1))))
    return {"ratio": ratio, "hand_s": float(np.median(a.values)), "ours_s": float(np.median(b.values))}


def case(framework: str, name: str, work: str, options: argparse.Namespace) -> dict[str, Any] | str:
    """The processes of a case together; the reason as text where it cannot be measured."""
    words = [framework, name, work, str(BATCHES[name]), str(options.seconds)]
    found = []
    for _ in range(options.processes):
        done = subprocess.run(
            [sys.executable, __file__, "--child", *words], capture_output=True, text=True, check=False
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no reason given"]
            return next((line for line in reversed(lines) if "Error: " in line), lines[-1])
        found.append(json.loads(done.stdout.splitlines()[-1]))
    estimated = estimate([each["ratio"] for each in found])
    interval, most = estimated.interval, MOST[framework]
    low, high = (interval.low, interval.high) if interval else (0.0, float("inf"))
    return {
        "framework": framework,
        "network": name,
        "work": work,
        "batch": BATCHES[name],
        "hand_s": float(np.median([each["hand_s"] for each in found])),
        "ours_s": float(np.median([each["ours_s"] for each in found])),
        "ratio": estimated.value,
        "low": low,
        "high": high,
        "processes": len(found),
        "verdict": "met" if high <= most else "missed" if low > most else "open",
    }


def row(found: dict[str, Any]) -> str:
    return (
        f"| {found['framework']} | {found['network']} | {found['batch']} | {found['work']} "
        f"| {found['hand_s'] * 1e3:.3f} | {found['ours_s'] * 1e3:.3f} | {found['ratio']:.4f} "
        f"| {found['low']:.4f} to {found['high']:.4f} | {found['processes']} | {found['verdict']} |"
    )


def child(words: Sequence[str]) -> None:
    """One process: prints its measurement as JSON, or its reason and ends with 3."""
    framework, name, work, batch, seconds = words
    try:
        print(json.dumps(replicate(framework, name, work, int(batch), float(seconds))))
    except (UnsupportedError, UnknownNameError) as error:
        print(error, file=sys.stderr)
        raise SystemExit(3) from None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each process")
    parser.add_argument("--processes", type=int, default=8, help="for each case; six give an exact interval")
    parser.add_argument("--quick", action="store_true", help="two processes of half a second: does it work at all")
    parser.add_argument("--frameworks", default=",".join(FRAMEWORKS), help="which, with commas between them")
    parser.add_argument("--networks", default=",".join(BATCHES), help="which, with commas between them")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return
    if options.quick:
        options.seconds, options.processes = 0.5, 2
    results = []
    print("| framework | network | batch | work | by hand, ms | ours, ms | ratio | 95 % | processes | goal |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for framework in options.frameworks.split(","):
        if lacking := load_framework(RUN_BY.get(framework, framework)).lacks():
            print(f"{framework} is left out: {lacking}")
            continue
        for name in options.networks.split(","):
            for work in WORKS[: 1 if framework == "onnxruntime" else 2]:
                found = case(framework, name, work, options)
                if isinstance(found, str):
                    print(f"| {framework} | {name} | {BATCHES[name]} | {work} | left out: {found} |", flush=True)
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
