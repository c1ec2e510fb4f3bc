"""The contenders of ``benchmarks/input.py``: endless streams of batches of ours, PyTorch, TensorFlow and the limit."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from levelbench import plugins
from levelbench.training.augmentation import Augmentation, Cutout, Flip, RandomCrop
from levelbench.training.datasets.base import Dataset, Normalisation, Split
from levelbench.training.input import make_loader
from levelbench.training.samplers import Shuffled

__all__ = ["AUGMENT", "SHAPES", "Contender", "contenders"]

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
    epoch: int = 0
    """Examples that it does more for when they first come."""


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

    # As in ours, no name is given to a batch, so that the next one is made where it was.
    def of_numpy(x: np.ndarray) -> np.ndarray:
        if raw:
            x = x - shift
            x *= scale
        return x

    def in_numpy(_: int) -> Iterator[object]:
        order = generator.permutation(len(images))
        for start in range(0, len(order), batch):
            rows = order[start : start + batch]
            yield of_numpy(images.take(rows, axis=0)), labels.take(rows)

    all_x, all_y, less, times = (torch.from_numpy(each) for each in (images, labels, shift, scale))

    def of_torch(x: torch.Tensor) -> torch.Tensor:
        return x.float().sub_(less).mul_(times) if raw else x

    def in_torch(_: int) -> Iterator[object]:
        for rows in torch.randperm(len(images)).split(batch):
            yield of_torch(all_x.index_select(0, rows)), all_y.index_select(0, rows)

    return Contender(f"limit, {framework}", epochs({"numpy": in_numpy, "torch": in_torch}[framework]))


def ours(framework: str, images: np.ndarray, labels: np.ndarray, kind: str, batch: int, workers: int) -> Contender:
    """Our loader as the trainer uses it."""
    backend = plugins.load("framework", framework).open()
    split, channels = Split.of(images, labels), images.shape[1]
    made = Normalisation((MEAN,) * channels, (STD,) * channels)
    dataset = Dataset("made", split, split, split, 10, {}, "", "", "", synthetic=True, normalisation=made)
    loader = make_loader(backend, dataset, split, Shuffled(batch), seed=0, augment=AUGMENT[kind], workers=workers)

    def finished(columns: tuple[object, ...]) -> tuple[object, ...]:
        backend.finish(columns)
        return columns

    def batches(epoch: int) -> Iterator[object]:
        # By map, which keeps none: one that has a name here would live until the next one is made, which is then made
        # elsewhere. The trainer lets go of its batches too, and so does the limit.
        return map(finished, loader.batches(epoch))

    name = f"levelbench, {framework}" + (f", {workers} workers" if workers else "")
    # What is left of a block that was made before, and the blocks behind it, of the most examples that a block has.
    ahead = -(-16384 * (workers + 1) // batch) if workers else 0
    return Contender(name, epochs(batches), loader.close, ahead, len(images) if AUGMENT[kind] else 0)


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
