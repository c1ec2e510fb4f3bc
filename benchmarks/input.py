"""Samples a second of shuffled minibatches: ours, PyTorch's DataLoader, tf.data, and the bare gather as the limit.

    python benchmarks/input.py [--quick] [--json input.json] [--kinds plain,raw] [--shapes cifar] [--batches 256]

Kinds: ``plain`` has float32 examples ready; ``raw`` has bytes that become normalised float32; ``crop+flip`` and
``crop+flip+cutout`` change them on the way. ``DataLoader`` has a dataset with transforms an example, as people write
it. The limit is one batched gather in the framework itself, and the same arithmetic as ours where bytes become float32;
it changes no image. Contenders take turns, forwards and backwards; a figure is the median over turns with its exact
order-statistic interval, and a ratio is that of two figures of one turn. With augmentation the first epoch of ours, in
which it puts a border around the images, is a figure of its own. Batches that a worker made before the turn began are
drawn first and do not count. Nobody holds a batch while the next one is made. Data are made up: what a pixel holds
makes no difference here.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from pathlib import Path

import numpy as np

from input_contenders import AUGMENT, SHAPES, Contender, contenders
from levelbench.measure.clocks import HOST
from levelbench.measure.statistics import median_interval

Rates = dict[str, list[float]]
"""Samples a second by turn, by contender."""


def rate(contender: Contender, seconds: float) -> float:
    """Samples a second over one turn."""
    stream = contender.stream
    for _ in range(contender.ahead):
        next(stream)
    samples, began = 0, HOST.now_ns()
    until = now = began
    until += int(seconds * 1e9)
    while now < until:
        samples += len(next(stream)[1])
        now = HOST.now_ns()
    return samples / (now - began) * 1e9


def first_epoch(contender: Contender) -> float:
    """Samples a second of the first epoch, but for the batch that starts workers and compiles programs."""
    left, done, began = contender.epoch - len(next(contender.stream)[1]), 0, HOST.now_ns()
    while done < left:
        done += len(next(contender.stream)[1])
    return done / (HOST.now_ns() - began) * 1e9


def measure(
    kind: str, shape: str, batch: int, turns: int, seconds: float, frameworks: list[str]
) -> tuple[Rates, dict[str, float]]:
    """The rates by turn, and that of the first epoch where it differs."""
    taking_part = contenders(kind, shape, batch, frameworks)
    rates: Rates = {each.name: [] for each in taking_part}
    first = {}
    try:
        for each in taking_part:
            # Workers start, programs compile, memory is touched for the first time.
            if each.epoch:
                first[each.name] = first_epoch(each)
            else:
                next(each.stream)
            rate(each, seconds / 2)
        for turn in range(turns):
            for each in taking_part[:: 1 if turn % 2 == 0 else -1]:
                rates[each.name].append(rate(each, seconds))
    finally:
        for each in taking_part:
            each.close()
    return rates, first


def ratio(rates: Rates, ours_name: str, other: str) -> tuple[float, float, float]:
    """The median ratio of two of one turn, with its interval."""
    values = np.array(rates[ours_name]) / np.array(rates[other])
    interval = median_interval(values)
    return float(np.median(values)), interval.low, interval.high


def best(rates: Rates, beginning: str) -> str:
    """The fastest contender whose name begins so."""
    return max((name for name in rates if name.startswith(beginning)), key=lambda name: np.median(rates[name]))


def goals(kind: str, rates: Rates) -> list[tuple[str, float | None, tuple[float, float, float]]]:
    """What was promised: which ratio, at least how much (``None``: only told), and what it is."""
    theirs = best(rates, "DataLoader")
    if kind in ("plain", "raw"):
        return [
            (f"torch / best {theirs}", 10.0, ratio(rates, "levelbench, torch", theirs)),
            ("torch / limit, torch", 0.8, ratio(rates, "levelbench, torch", "limit, torch")),
            ("numpy / limit, numpy", 0.8, ratio(rates, "levelbench, numpy", "limit, numpy")),
            (f"limit, torch / best {theirs}", None, ratio(rates, "limit, torch", theirs)),
        ]
    mine = best(rates, "levelbench, torch")
    return [(f"{mine.removeprefix('levelbench, ')} / best {theirs}", 20.0, ratio(rates, mine, theirs))]


def told(rates: Rates, first: dict[str, float], kind: str) -> None:
    """A table of a case, and its goals."""
    print("| contender | thousand samples/s | 95 % interval | first epoch |\n|---|---|---|---|")
    for name, values in rates.items():
        interval = median_interval(values)
        low, high = interval.low / 1e3, interval.high / 1e3
        began = f"{first[name] / 1e3:.4g}" if name in first else ""
        print(f"| {name} | {np.median(values) / 1e3:.4g} | {low:.4g} to {high:.4g} | {began} |")
    for what, least, (value, low, high) in goals(kind, rates):
        found = f"{what} = {value:.3g} [{low:.3g}, {high:.3g}]"
        if least is None:
            print(f"for comparison: {found}", flush=True)
            continue
        verdict = "met" if low >= least else "missed" if high < least else "open"
        print(f"goal >= {least:g}: {found}: {verdict}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one batch, short turns")
    parser.add_argument("--seconds", type=float, help="for each turn of each contender")
    parser.add_argument("--turns", type=int, help="six at least, for an interval")
    parser.add_argument("--kinds", default=",".join(AUGMENT))
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--batches", help="with commas between them")
    parser.add_argument("--frameworks", default="numpy,torch,jax", help="numpy and torch are always among them")
    parser.add_argument("--json", type=Path, help="write all turns here too")
    options = parser.parse_args()
    turns = options.turns or (6 if options.quick else 12)
    seconds = options.seconds or (0.1 if options.quick else 0.5)
    batches = options.batches or ("256" if options.quick else "32,256,1024")
    frameworks = list(dict.fromkeys(["numpy", "torch", *options.frameworks.split(",")]))
    if not importlib.util.find_spec("tensorflow"):
        print("tf.data: TensorFlow is not installed, so it is not measured.")
    found = []
    for shape in options.shapes.split(","):
        for kind in options.kinds.split(","):
            for batch in map(int, batches.split(",")):
                rates, first = measure(kind, shape, batch, turns, seconds, frameworks)
                case = {"shape": shape, "kind": kind, "batch": batch}
                found.append({**case, "samples_per_s": rates, "first_epoch_samples_per_s": first})
                print(f"\n{shape}, {kind}, batch {batch}, {turns} turns of {seconds:g} s\n")
                told(rates, first, kind)
    if options.json:
        options.json.write_text(json.dumps({"turns": turns, "seconds": seconds, "cases": found}, indent=1))


if __name__ == "__main__":
    main()
