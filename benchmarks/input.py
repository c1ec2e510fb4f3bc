"""Samples a second of shuffled minibatches: ours, PyTorch's DataLoader, tf.data, and the bare gather as the limit.

    python benchmarks/input.py [--quick] [--json input.json] [--kinds plain,raw] [--shapes cifar] [--batches 256]

Kinds: ``plain`` has float32 examples ready; ``raw`` has bytes that become normalised float32; ``crop+flip`` and
``crop+flip+cutout`` change them on the way. ``DataLoader`` has a dataset with transforms an example, as people write
it. The limit is one batched gather in the framework itself, and the same arithmetic as ours where bytes become float32;
it changes no image. Contenders take turns, forwards and backwards; a figure is the median over turns with its exact
order-statistic interval, and a ratio is that of two figures of one turn. Batches that a worker made before the turn
began are drawn first and do not count. Data are made up: what a pixel holds makes no difference here.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from levelbench import plugins
from levelbench.measure.clocks import HOST
from levelbench.measure.statistics import median_interval
from levelbench.training.augmentation import Augmentation, Cutout, Flip, RandomCrop
from levelbench.training.datasets.base import Dataset, Normalisation, Split
from levelbench.training.input import make_loader
from levelbench.training.samplers import Shuffled

SHAPES = {"fashion-mnist": (60_000, 1, 28, 28), "cifar": (50_000, 3, 32, 32)}
AUGMENT: dict[str, tuple[Augmentation, ...]] = {
    "plain": (),
    "raw": (),
    "crop+flip": (RandomCrop(4), Flip()),
    "crop+flip+cutout": (RandomCrop(4), Flip(), Cutout(8)),
}
MEAN, STD = 0.4734, 0.2516


@dataclass
class Contender:
    """An endless stream of batches; ``ahead`` of them may be there before anyone asks."""

    name: str
    stream: Iterator[object]
    close: Callable[[], None] = lambda: None
    ahead: int = 0


class PerExample(torch.utils.data.Dataset):
    """Bytes, and transforms an example, as people write them."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor, kind: str) -> None:
        self.images, self.labels, self.kind = images, labels, kind
        self.mean, self.std = (torch.full((images.shape[1], 1, 1), each) for each in (MEAN, STD))

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        image = self.images[index].float() / 255
        height, width = image.shape[1:]
        if "crop" in self.kind:
            padded = torch.nn.functional.pad(image, (4, 4, 4, 4))
            top, left = torch.randint(9, (2,)).tolist()
            image = padded[:, top : top + height, left : left + width]
        if "flip" in self.kind and torch.rand(()) < 0.5:
            image = image.flip(-1)
        image = (image - self.mean) / self.std
        if "cutout" in self.kind:
            y, x = int(torch.randint(height, ())), int(torch.randint(width, ()))
            image[:, max(y - 4, 0) : y + 4, max(x - 4, 0) : x + 4] = 0
        return image, self.labels[index]


def epochs(make: Callable[[int], Iterator[object]]) -> Iterator[object]:
    """One epoch after another."""
    epoch = 0
    while True:
        yield from make(epoch)
        epoch += 1


def data_loader(images: np.ndarray, labels: np.ndarray, kind: str, batch: int, workers: int) -> Contender:
    """PyTorch's own."""
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    data = TensorDataset(x, y) if kind == "plain" else PerExample(x, y, kind)
    # Not forked: JAX has threads in this process.
    given = {"multiprocessing_context": "forkserver", "persistent_workers": True} if workers else {}
    loader = DataLoader(data, batch_size=batch, shuffle=True, num_workers=workers, **given)
    return Contender(f"DataLoader, {workers} workers", epochs(lambda _: iter(loader)), ahead=2 * workers)


def tf_data(images: np.ndarray, labels: np.ndarray, kind: str, batch: int) -> Contender:
    """TensorFlow's own, its map an example too, in parallel."""
    import tensorflow as tf

    n, c, h, w = images.shape

    def change(image, label):
        if kind != "plain":
            image = tf.cast(image, tf.float32) / 255
        if "crop" in kind:
            image = tf.image.random_crop(tf.pad(image, [[0, 0], [4, 4], [4, 4]]), (c, h, w))
        if "flip" in kind:
            image = tf.cond(tf.random.uniform(()) < 0.5, lambda: tf.reverse(image, [2]), lambda: image)
        if kind != "plain":
            image = (image - MEAN) / STD
        if "cutout" in kind:
            y = tf.abs(tf.range(h) - tf.random.uniform((), 0, h, tf.int32)) < 4
            x = tf.abs(tf.range(w) - tf.random.uniform((), 0, w, tf.int32)) < 4
            image = tf.where(y[:, None] & x[None], 0.0, image)
        return image, label

    data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(n)
    if kind != "plain":
        data = data.map(change, num_parallel_calls=tf.data.AUTOTUNE)
    data = data.batch(batch).prefetch(2)
    return Contender("tf.data", epochs(lambda _: iter(data)), ahead=2)


def limit(framework: str, images: np.ndarray, labels: np.ndarray, kind: str, batch: int) -> Contender:
    """One gather, and one conversion where there are bytes."""
    generator = np.random.default_rng(0)
    raw = kind != "plain"
    # One of each a channel, as real data have it.
    shift, scale = (np.full((1, images.shape[1], 1, 1), each, np.float32) for each in (MEAN * 255, 1 / (STD * 255)))

    def in_numpy(_: int) -> Iterator[object]:
        order = generator.permutation(len(images))
        for start in range(0, len(order), batch):
            rows = order[start : start + batch]
            x = images.take(rows, axis=0)
            if raw:
                x = x - shift
                x *= scale
            yield x, labels.take(rows)

    all_x, all_y, less, times = (torch.from_numpy(each) for each in (images, labels, shift, scale))

    def in_torch(_: int) -> Iterator[object]:
        for rows in torch.randperm(len(images)).split(batch):
            x = all_x.index_select(0, rows)
            if raw:
                x = x.float().sub_(less).mul_(times)
            yield x, all_y.index_select(0, rows)

    return Contender(f"limit, {framework}", epochs({"numpy": in_numpy, "torch": in_torch}[framework]))


def ours(framework: str, images: np.ndarray, labels: np.ndarray, kind: str, batch: int, workers: int) -> Contender:
    """Our loader as the trainer uses it."""
    backend = plugins.load("framework", framework).open()
    split, channels = Split.of(images, labels), images.shape[1]
    made = Normalisation((MEAN,) * channels, (STD,) * channels)
    dataset = Dataset("made", split, split, split, 10, {}, "", "", "", synthetic=True, normalisation=made)
    loader = make_loader(backend, dataset, split, Shuffled(batch), seed=0, augment=AUGMENT[kind], workers=workers)

    def batches(epoch: int) -> Iterator[object]:
        for columns in loader.batches(epoch):
            backend.finish(columns)
            yield columns

    name = f"levelbench, {framework}" + (f", {workers} workers" if workers else "")
    # What is left of a block that was made before, and the blocks behind it.
    return Contender(name, epochs(batches), loader.close, ahead=-(-4096 * (workers + 1) // batch) if workers else 0)


def contenders(kind: str, shape: str, batch: int, frameworks: list[str]) -> list[Contender]:
    generator = np.random.default_rng(0)
    size = SHAPES[shape]
    images = generator.integers(0, 256, size, np.uint8)
    if kind == "plain":
        images = (images / np.float32(255)).astype(np.float32)
    labels = generator.integers(0, 10, size[0])
    result = [data_loader(images, labels, kind, batch, workers) for workers in (0, 1, 2)]
    if importlib.util.find_spec("tensorflow"):
        result.append(tf_data(images, labels, kind, batch))
    result += [limit(framework, images, labels, kind, batch) for framework in ("numpy", "torch")]
    result += [ours(framework, images, labels, kind, batch, 0) for framework in frameworks]
    if AUGMENT[kind]:
        result += [ours("torch", images, labels, kind, batch, workers) for workers in (1, 2)]
    return result


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


def measure(kind: str, shape: str, batch: int, turns: int, seconds: float, frameworks: list[str]) -> dict[str, list]:
    taking_part = contenders(kind, shape, batch, frameworks)
    rates: dict[str, list] = {each.name: [] for each in taking_part}
    try:
        for each in taking_part:
            # Workers start, programs compile, memory is touched for the first time.
            next(each.stream)
            rate(each, seconds / 2)
        for turn in range(turns):
            for each in taking_part[:: 1 if turn % 2 == 0 else -1]:
                rates[each.name].append(rate(each, seconds))
    finally:
        for each in taking_part:
            each.close()
    return rates


def ratio(rates: dict[str, list], ours_name: str, other: str) -> tuple[float, float, float]:
    """The median ratio of two of one turn, with its interval."""
    values = np.array(rates[ours_name]) / np.array(rates[other])
    interval = median_interval(values)
    return float(np.median(values)), interval.low, interval.high


def goals(kind: str, rates: dict[str, list]) -> list[tuple[str, float, tuple[float, float, float]]]:
    """What was promised: which ratio, at least how much, and what it is."""
    best = max((name for name in rates if name.startswith("DataLoader")), key=lambda name: np.median(rates[name]))
    if kind in ("plain", "raw"):
        return [
            (f"torch / best {best}", 10.0, ratio(rates, "levelbench, torch", best)),
            ("torch / limit, torch", 0.8, ratio(rates, "levelbench, torch", "limit, torch")),
            ("numpy / limit, numpy", 0.8, ratio(rates, "levelbench, numpy", "limit, numpy")),
        ]
    mine = max(
        (name for name in rates if name.startswith("levelbench, torch")), key=lambda name: np.median(rates[name])
    )
    return [(f"{mine.removeprefix('levelbench, ')} / best {best}", 20.0, ratio(rates, mine, best))]


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
                rates = measure(kind, shape, batch, turns, seconds, frameworks)
                found.append({"shape": shape, "kind": kind, "batch": batch, "samples_per_s": rates})
                print(f"\n{shape}, {kind}, batch {batch}, {turns} turns of {seconds:g} s\n")
                print("| contender | thousand samples/s | 95 % interval |\n|---|---|---|")
                for name, values in rates.items():
                    interval = median_interval(values)
                    low, high = interval.low / 1e3, interval.high / 1e3
                    print(f"| {name} | {np.median(values) / 1e3:.4g} | {low:.4g} to {high:.4g} |")
                for what, least, (value, low, high) in goals(kind, rates):
                    verdict = "met" if low >= least else "missed" if high < least else "open"
                    print(f"goal >= {least:g}: {what} = {value:.3g} [{low:.3g}, {high:.3g}]: {verdict}", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"turns": turns, "seconds": seconds, "cases": found}, indent=1))


if __name__ == "__main__":
    main()
