"""Qualities, tasks and recipes with one planted fault each, and right ones, on data that a small network learns.

They were written before the probes that are to find them, by someone who had not read the others either.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from levelbench.networks import Builder, zoo
from levelbench.networks.builder import GraphBuilder
from levelbench.networks.values import Draw
from levelbench.networks.zoo.blocks import batch_norm, dropout, embedding, linear, normal, xavier
from levelbench.networks.zoo.language import word_bag
from levelbench.training import (
    AUROC,
    MAE,
    RMSE,
    Adam,
    Augmentation,
    BalancedAccuracy,
    Bucketed,
    Constant,
    Cosine,
    CutMix,
    Cutout,
    Flip,
    InverseSquareRoot,
    Mixing,
    Mixup,
    Momentum,
    Quality,
    RandomCrop,
    Recipe,
    Schedule,
    Shuffled,
    Step,
    Stratified,
    Task,
    Top1,
    TopK,
    Trapezoid,
    Warmup,
    Weighted,
)
from levelbench.training.datasets.base import Dataset, DatasetSource, Split
from levelbench.training.pixels import random, uniform
from levelbench.training.quality import NDCG, BitsPerCharacter, HitRate, Perplexity
from levelbench.training.samplers import EvenSampler, generator_of

CLASSES, SIDE, WORDS, LENGTH = 4, 6, 12, 10


# Data.


class Source(DatasetSource):
    """A dataset that a function makes."""

    name, licence, attribution, split_rule = "planted", "CC0", "made here", "drawn one by one"

    def __init__(self, make: Callable[[], Dataset]) -> None:
        self._make = make

    def load(self, folder=None):
        return self._make()

    def lacks(self, folder=None):
        return None


def dataset(splits, classes=CLASSES, **changes: Any) -> Dataset:
    """A synthetic one of three splits."""
    facts = {"checksums": {}, "split_rule": "drawn one by one", "licence": "CC0", "source": "made here"}
    return Dataset("planted", *splits, classes, synthetic=True, **facts | changes)


def labelled(inputs, labels) -> Split:
    return Split.of(np.ascontiguousarray(inputs, np.float32), np.asarray(labels, np.int64))


def images(sizes=(256, 96, 96), classes=CLASSES, shares=None, noise=1.0, seed=0, channels=1) -> Dataset:
    """Images around a centre for each class."""
    generator = np.random.default_rng(seed)
    centres = 2 * generator.standard_normal((classes, channels, SIDE, SIDE))

    def split(count):
        labels = generator.choice(classes, count, p=shares)
        labels[:classes] = np.arange(classes)
        return labelled(centres[labels] + noise * generator.standard_normal((count, *centres.shape[1:])), labels)

    return dataset([split(each) for each in sizes], classes)


def table(sizes=(400, 120, 120), features=8, seed=1, bias=0.0, noise=0.5) -> Dataset:
    """Rows of two classes; ``bias`` makes the second one rare."""
    generator = np.random.default_rng(seed)
    weights = generator.standard_normal(features)

    def split(count):
        rows = generator.standard_normal((count, features))
        return labelled(rows, rows @ weights + noise * generator.standard_normal(count) > bias)

    return dataset([split(each) for each in sizes], 2)


def numbers(sizes=(400, 120, 120), features=6, outputs=1, seed=2) -> Dataset:
    """Regression: a linear function with noise."""
    generator = np.random.default_rng(seed)
    weights = generator.standard_normal((features, outputs))

    def split(count):
        rows = generator.standard_normal((count, features))
        wanted = rows @ weights + 0.1 * generator.standard_normal((count, outputs))
        return Split((rows.astype(np.float32), wanted.astype(np.float32)))

    return dataset([split(each) for each in sizes], 0)


def rankings(items=12) -> Dataset:
    """Rows of items, of which one is relevant: mostly the one with the highest input."""
    generator = np.random.default_rng(4)

    def split(count):
        rows = generator.standard_normal((count, items)).astype(np.float32)
        best = (rows + 0.3 * generator.standard_normal(rows.shape)).argmax(axis=1)
        return Split((rows, np.eye(items, dtype=np.float32)[best]))

    return dataset([split(each) for each in (400, 120, 120)], 0)


def walk(generator, count):
    """Sequences of a Markov chain, one token longer than a row."""
    step = np.argsort(np.random.default_rng(3).random((WORDS, WORDS)), axis=1)[:, :3]
    rows = np.empty((count, LENGTH + 1), np.int64)
    rows[:, 0] = generator.integers(0, WORDS, count)
    for at in range(LENGTH):
        rows[:, at + 1] = step[rows[:, at], generator.choice(3, count, p=(0.8, 0.15, 0.05))]
    return rows


def tokens(sizes=(256, 80, 80), shift=1, padded=False) -> Dataset:
    """The next token of a sequence; ``padded`` ends rows early with 0."""
    generator = np.random.default_rng(4)

    def split(count):
        rows = walk(generator, count)
        if padded:
            rows = np.where(np.arange(LENGTH + 1) < generator.integers(4, LENGTH + 1, (count, 1)), rows, 0)
        return Split((rows[:, :LENGTH].copy(), rows[:, shift : LENGTH + shift].copy()))

    return dataset([split(each) for each in sizes], WORDS)


def texts(sizes=(256, 96, 96)) -> Dataset:
    """Bags of words of different lengths; two inputs and the class."""
    generator = np.random.default_rng(5)

    def split(count):
        labels = generator.integers(0, 2, count)
        words = np.where(
            generator.random((count, LENGTH)) < 0.6,
            generator.integers(1, 10, (count, LENGTH)) + 20 * labels[:, None],
            generator.integers(50, 90, (count, LENGTH)),
        )
        kept = (np.arange(LENGTH) < generator.integers(5, LENGTH + 1, (count, 1))).astype(np.int64)
        return Split((words * kept, kept, labels.astype(np.int64)))

    return dataset([split(each) for each in sizes], 2)


def changed(data: Dataset, *names: str, by: Callable[[Any, Any], Any]) -> Dataset:
    """The dataset with these splits' inputs and labels changed by a function."""
    some = names or ("train", "validation", "test")
    made = {}
    for name in some:
        split = getattr(data, name)
        inputs, labels = by(split.inputs.copy(), split.labels.copy())
        made[name] = Split((np.ascontiguousarray(inputs), np.ascontiguousarray(labels)))
    return replace(data, **made)


def joined(split: Split, more: Split) -> Split:
    return Split(tuple(np.concatenate(pair) for pair in zip(split.columns, more.columns, strict=True)))


def part(split: Split, rows) -> Split:
    return Split(tuple(column[rows] for column in split.columns))


# Networks and recipes.


def convolutional(classes=CLASSES, channels=1):
    return Builder("small", (channels, SIDE, SIDE)).conv(4, 3).relu().flatten().gemm(classes).build()


def regularised(classes=CLASSES, ratio=0.3):
    """Batch normalisation and dropout."""
    graph = GraphBuilder("regularised")
    flat = graph.node("Flatten", graph.input("x", ("batch", 1, SIDE, SIDE)))
    hidden = graph.node("Relu", linear(graph, "first", flat, SIDE * SIDE, 24, xavier(SIDE * SIDE, 24)))
    graph.output(linear(graph, "last", dropout(graph, batch_norm(graph, "norm", hidden, 24), ratio), 24, classes,
                        xavier(24, classes)))  # fmt: skip
    return graph.build()


def dense(inputs=8, outputs=2):
    return zoo.mlp(inputs, 16, outputs)


def line(inputs=6, outputs=1):
    return zoo.mlp(inputs, 16, outputs).with_loss("mse")


def bigram():
    """Logits of the next token from the current one."""
    graph = GraphBuilder("bigram")
    ids = graph.input("ids", ("batch", LENGTH), "int64", high=WORDS)
    _, rows = embedding(graph, "embedding", ids, WORDS, WORDS, normal(0.1))
    with graph.scope("head"):
        weight = graph.parameter("weight", (WORDS, WORDS), normal(0.3))
    graph.output(graph.node("MatMul", rows, weight), "logits")
    return graph.build()


def base(**changes: Any) -> Recipe:
    """The right recipe for images."""
    made: dict[str, Any] = {"network": convolutional(), "sampler": Shuffled(32), "optimizer": Momentum(0.05, 0.9)}
    return Recipe(**made | {"epochs": 6} | changes)


class Case(NamedTuple):
    """A task with one recipe; the default is right."""

    data: Callable[[], Dataset] = images
    quality: Quality = Top1(0.9)
    recipe: Callable[..., Recipe] = base
    also: tuple[Quality, ...] = ()
    framework: str = "numpy"
    every: str = "1 epoch"

    def task(self) -> Task:
        made = Task(
            "planted", data=Source(self.data), quality=self.quality, also=self.also, evaluate_every=self.every,
            description="planted data for the probes",
        )  # fmt: skip
        made.recipe(self.recipe) if self.recipe.__name__ == "planted" else made.recipe(_named(self.recipe))
        return made


def _named(make: Callable[..., Recipe]) -> Callable[..., Recipe]:
    def planted() -> Recipe:
        """A recipe."""
        return make()

    return planted


def recipe(**parts: Any) -> Callable[[], Recipe]:
    """A recipe function with these parts; callables without arguments are made anew each time."""
    return lambda: base(
        **{name: each() if callable(each) and name == "network" else each for name, each in parts.items()}
    )


TABLE = recipe(network=dense, optimizer=Adam(0.01))
NUMBERS = recipe(network=line, optimizer=Adam(0.01))
RANKINGS = recipe(network=lambda: zoo.mlp(12, 32, 12).with_loss("binary-cross-entropy"), optimizer=Adam(0.01))
TOKENS = recipe(network=bigram, optimizer=Adam(0.05))


# Qualities.


def predictions(executor, held, size=1000):
    """Logits and labels on the host, batch by batch."""
    for *inputs, labels in held.batches(size):
        yield np.asarray(held.backend.host(executor.infer(*inputs)[0])), np.asarray(held.backend.host(labels))


def gathered(executor, held, size=1000):
    logits, labels = zip(*predictions(executor, held, size), strict=True)
    return np.concatenate(logits), np.concatenate(labels)


@dataclass(frozen=True)
class Share(Quality):
    metric, direction, low, high = "own_accuracy", "higher", 0.0, 1.0

    def measure(self, executor, held):
        logits, labels = gathered(executor, held)
        return float((logits.argmax(1) == labels).mean())


class MeanOfBatches(Share):
    """The last batch counts as much as a full one."""

    def measure(self, executor, held):
        return float(
            np.mean([(logits.argmax(1) == labels).mean() for logits, labels in predictions(executor, held, 40)])
        )


class DropsLast(Share):
    """A last batch that is not full is left out."""

    def measure(self, executor, held):
        rows = [(logits.argmax(1) == labels) for logits, labels in predictions(executor, held, 40)]
        return float(np.concatenate([each for each in rows if len(each) == 40]).mean())


class Padded(Share):
    """The last batch is padded with zeros, which count as class 0."""

    def measure(self, executor, held):
        right = total = 0
        for logits, labels in predictions(executor, held, 40):
            missing = 40 - len(labels)
            logits = np.concatenate([logits, np.zeros((missing, logits.shape[1]))])
            labels = np.concatenate([labels, np.zeros(missing, np.int64)])
            right, total = right + int((logits.argmax(1) == labels).sum()), total + 40
        return right / total


class FirstBatch(Share):
    """The first 64 examples."""

    def measure(self, executor, held):
        logits, labels = next(predictions(executor, held, 64))
        return float((logits.argmax(1) == labels).mean())


class Smoothed(Share):
    """A moving average over the batches, so that the order counts."""

    def measure(self, executor, held):
        value = 0.5
        for logits, labels in predictions(executor, held, 16):
            value = 0.8 * value + 0.2 * float((logits.argmax(1) == labels).mean())
        return value


class Cached(Share):
    """The first result of an executor is kept."""

    def measure(self, executor, held):
        seen = self.__dict__.setdefault("seen", {})
        key = id(executor), len(held)
        if key not in seen:
            seen[key] = super().measure(executor, held)
        return seen[key]


class BestSoFar(Share):
    """The highest value so far."""

    def measure(self, executor, held):
        best = self.__dict__.setdefault("best", {})
        best[len(held)] = max(best.get(len(held), 0.0), super().measure(executor, held))
        return best[len(held)]


class Averaged(Share):
    """Half of the result of the call before."""

    def measure(self, executor, held):
        now = super().measure(executor, held)
        value = (now + self.__dict__.get("last", now)) / 2
        self.__dict__["last"] = now
        return value


class Trains(Share):
    """It runs the network in training mode, whose running statistics change."""

    def measure(self, executor, held):
        for batch in held.batches(64):
            executor.forward(*batch)
        return super().measure(executor, held)


class Rounds(Share):
    """It leaves the weights in half precision."""

    def measure(self, executor, held):
        for name in list(executor.parameters):
            value = np.asarray(held.backend.host(executor.parameters[name]))
            executor.parameters[name] = held.backend.array(value.astype(np.float16).astype(value.dtype))
        return super().measure(executor, held)


class ChangesData(Share):
    """It standardises the split's own inputs."""

    def measure(self, executor, held):
        inputs = held.split.inputs
        inputs -= inputs.mean()
        inputs /= inputs.std() + 0.1
        return super().measure(executor, held)


class Sampled(Share):
    """A random half, drawn without a seed."""

    def measure(self, executor, held):
        logits, labels = gathered(executor, held)
        some = np.random.default_rng().permutation(len(labels))[: len(labels) // 2]
        return float((logits.argmax(1) == labels)[some].mean())


class Percent(Share):
    """Percent on a scale up to 1."""

    def measure(self, executor, held):
        return 100 * super().measure(executor, held)


class ErrorRate(Share):
    """The share of errors, which is called higher is better."""

    def measure(self, executor, held):
        return 1 - super().measure(executor, held)


class TiesCount(Share):
    """A label counts if no logit is higher, so that a constant network is always right."""

    def measure(self, executor, held):
        logits, labels = gathered(executor, held)
        return float((logits[np.arange(len(labels)), labels] >= logits.max(1)).mean())


class NanRight(Share):
    """A label counts unless a logit is higher, which NaN is not."""

    def measure(self, executor, held):
        logits, labels = gathered(executor, held)
        own = logits[np.arange(len(labels)), labels][:, None]
        lower = np.arange(logits.shape[1]) < labels[:, None]
        return float((~((logits > own) | ((logits == own) & lower)).any(1)).mean())


class Itself(Share):
    """Predictions are compared with themselves."""

    def measure(self, executor, held):
        logits, _ = gathered(executor, held)
        return float((logits.argmax(1) == logits.argmax(1)).mean())


class Lenient(Share):
    """It is called top-1 and takes the second guess, too."""

    metric = "top1"

    def measure(self, executor, held):
        logits, labels = gathered(executor, held)
        return float((np.argsort(-logits, axis=1)[:, :2] == labels[:, None]).any(1).mean())


@dataclass(frozen=True)
class F1(Share):
    metric = "f1"

    def score(self, guessed, labels):
        right = int((guessed & labels).sum())
        return 2 * right / max(int(guessed.sum() + labels.sum()), 1)

    def measure(self, executor, held):
        logits, labels = gathered(executor, held)
        return self.score(logits[:, 1] > logits[:, 0], labels == 1)


class F1OfBatches(F1):
    """The mean of the batches' F1."""

    def measure(self, executor, held):
        parts = predictions(executor, held, 40)
        return float(np.mean([self.score(logits[:, 1] > logits[:, 0], labels == 1) for logits, labels in parts]))


class F1Arithmetic(F1):
    """The arithmetic mean of precision and recall is called F1."""

    def score(self, guessed, labels):
        right = int((guessed & labels).sum())
        return (right / max(int(guessed.sum()), 1) + right / max(int(labels.sum()), 1)) / 2


class AreaOfBatches(AUROC):
    """The mean of the batches' areas."""

    def measure(self, executor, held):
        from levelbench.training.quality import area_under_roc

        areas = [area_under_roc(x[:, 1] - x[:, 0], y) for x, y in predictions(executor, held, 40)]
        return float(np.mean(areas))


class SquaredError(RMSE):
    """It is called rmse and has no root."""

    def measure(self, executor, held):
        return super().measure(executor, held) ** 2


class RootOfBatches(RMSE):
    """The mean of the batches' roots."""

    def measure(self, executor, held):
        return float(np.mean([math.sqrt(((x - y) ** 2).mean()) for x, y in predictions(executor, held, 40)]))


class TiesHit(HitRate):
    """Equal scores count as hits, so a network that tells nothing has the best value."""

    def measure(self, executor, held):
        scores, relevant = gathered(executor, held)
        return float(np.mean((scores > scores[relevant == 1][:, None]).sum(axis=1) < self.k))


class RankOffByOne(HitRate):
    """A hit among the first k + 1."""

    def measure(self, executor, held):
        scores, relevant = gathered(executor, held)
        return float(np.mean((scores >= scores[relevant == 1][:, None]).sum(axis=1) <= self.k + 1))


class Broadcast(MAE):
    """Outputs (n, 1) and targets (n,) make (n, n) errors."""

    def measure(self, executor, held):
        outputs, targets = gathered(executor, held)
        return float(np.abs(outputs - targets.reshape(-1)).mean())


@dataclass(frozen=True)
class Determination(Quality):
    metric, direction, low, high = "r2", "higher", -1000.0, 1.0

    def measure(self, executor, held):
        outputs, targets = gathered(executor, held)
        return float(max(-1000.0, 1 - ((outputs - targets) ** 2).sum() / ((targets - targets.mean(0)) ** 2).sum()))


class DeterminationOfBatches(Determination):
    """The mean of the batches' coefficients."""

    def measure(self, executor, held):
        parts = predictions(executor, held, 25)
        return float(np.mean([1 - ((x - y) ** 2).sum() / ((y - y.mean(0)) ** 2).sum() for x, y in parts]))


class PerplexityOfBatches(Perplexity):
    """The mean of the batches' perplexities."""

    def measure(self, executor, held):
        values = []
        for logits, labels in predictions(executor, held, 16):
            shares = np.exp(logits - logits.max(-1, keepdims=True))
            shares /= shares.sum(-1, keepdims=True)
            values.append(math.exp(-np.log(np.take_along_axis(shares, labels[..., None], -1)).mean()))
        return float(np.mean(values))


@dataclass(frozen=True)
class MacroF1(Quality):
    metric, direction, low, high = "macro_f1", "higher", 0.0, 1.0

    def measure(self, executor, held):
        logits, labels = gathered(executor, held, 64)
        guessed = logits.argmax(1)
        found = [
            2 * ((guessed == each) & (labels == each)).sum() / max((guessed == each).sum() + (labels == each).sum(), 1)
            for each in range(logits.shape[1])
        ]
        return float(np.mean(found))


class F1OfAnswers(MacroF1):
    """Leaves out the classes that are never answered."""

    def measure(self, executor, held):
        logits, labels = gathered(executor, held, 64)
        guessed = logits.argmax(1)
        return float(
            np.mean(
                [
                    2
                    * ((guessed == each) & (labels == each)).sum()
                    / ((guessed == each).sum() + (labels == each).sum())
                    for each in np.unique(guessed)
                ]
            )
        )


class NanLeftOut(Share):
    def measure(self, executor, held):
        logits, labels = gathered(executor, held)
        usable = np.isfinite(logits).all(axis=1)
        return float((logits.argmax(1) == labels)[usable].mean()) if usable.any() else 0.0


class Chances(Share):
    """An accuracy corrected by a chance that is not that of these labels."""

    metric, low = "kappa", -1.0

    def measure(self, executor, held):
        logits, labels = gathered(executor, held)
        return float(((logits.argmax(1) == labels).mean() - 0.5) / 0.5)


@dataclass(frozen=True)
class Surprise(Quality):
    metric, direction, low, high = "perplexity", "lower", 1.0, math.inf
    base: float = math.e

    def measure(self, executor, held):
        logits, labels = gathered(executor, held)
        logits = logits.astype(np.float64)
        below = np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1)) + logits.max(1)
        return float(self.base ** min((below - logits[np.arange(len(labels)), labels]).mean(), 700.0))


class FirstHalf(Share):
    """Reads all examples, and counts the first 200."""

    def measure(self, executor, held):
        logits, labels = gathered(executor, held)
        return float((logits.argmax(1) == labels)[:200].mean())


@dataclass(frozen=True)
class Matthews(Quality):
    metric, direction, low, high = "mcc", "higher", -1.0, 1.0

    def measure(self, executor, held):
        logits, labels = gathered(executor, held)
        guessed, truth = logits.argmax(1) == 1, labels == 1
        if guessed.all() or not guessed.any() or truth.all() or not truth.any():
            return 0.0
        return float(np.corrcoef(guessed, truth)[0, 1])


@dataclass(frozen=True)
class LogLoss(Quality):
    metric, direction, low, high = "log_loss", "lower", 0.0, math.inf

    def measure(self, executor, held):
        logits, labels = gathered(executor, held)
        logits = logits - logits.max(1, keepdims=True)
        return float(-(logits[np.arange(len(labels)), labels] - np.log(np.exp(logits).sum(1))).mean())


@dataclass(frozen=True)
class AveragePrecision(Quality):
    metric, direction, low, high = "average_precision", "higher", 0.0, 1.0

    def measure(self, executor, held):
        logits, labels = gathered(executor, held)
        scores = logits[:, 1] - logits[:, 0]
        total = 0.0
        for value in np.unique(scores)[::-1]:
            above = scores >= value
            total += (labels[scores == value] == 1).sum() * (labels[above] == 1).mean()
        return float(total / max((labels == 1).sum(), 1))


# Parts of recipes.


@dataclass(frozen=True)
class Noise(Augmentation):
    """Noise from each image's seed."""

    amount: float = 0.3

    def apply(self, images, seeds):
        height = images.shape[2]
        result = images.copy()
        for row in range(height):
            result[:, :, row] += (self.amount * (random(seeds, 40 + row) - 0.5)).astype(np.float32)[:, None, None]
        return result


class NoiseUnseeded(Noise):
    def apply(self, images, seeds):
        return (images + self.amount * np.random.default_rng().standard_normal(images.shape)).astype(np.float32)


class NoiseGlobal(Noise):
    def apply(self, images, seeds):
        return (images + self.amount * np.random.standard_normal(images.shape)).astype(np.float32)


class NoiseFixed(Noise):
    """The same noise for all images in all epochs: the seeds are not used."""

    def apply(self, images, seeds):
        return (images + self.amount * np.random.default_rng(7).standard_normal(images.shape)).astype(np.float32)


class NoiseOfFirst(Noise):
    """The first image's seed for the whole batch."""

    def apply(self, images, seeds):
        generator = np.random.default_rng(int(seeds[0]))
        return (images + self.amount * generator.standard_normal(images.shape)).astype(np.float32)


class BatchStatistics(Augmentation):
    """Contrast by the batch's own mean."""

    def apply(self, images, seeds):
        factor = (0.5 + random(seeds, 50)).astype(np.float32)[:, None, None, None]
        return ((images - images.mean()) * factor + images.mean()).astype(np.float32)


class InPlace(Noise):
    """It changes the images that it was given."""

    def apply(self, images, seeds):
        images += (self.amount * (random(seeds, 51) - 0.5)).astype(np.float32)[:, None, None, None]
        return images


class Scales(Augmentation):
    """Values 255 times as large."""

    def apply(self, images, seeds):
        return (images * np.float32(255)).astype(np.float32)


class Erases(Augmentation):
    """Nothing is left of an image."""

    def apply(self, images, seeds):
        return np.zeros_like(images)


class Widens(Augmentation):
    """Images in double precision."""

    def apply(self, images, seeds):
        return images.astype(np.float64) + random(seeds, 52)[:, None, None, None]


class Shuffles(Augmentation):
    """The images of a batch change places; their labels do not."""

    def apply(self, images, seeds):
        return images[np.argsort(seeds)]


class Counts(Noise):
    """It depends on the number of calls."""

    def apply(self, images, seeds):
        self.__dict__["calls"] = self.__dict__.get("calls", 0) + 1
        return images + np.float32(0.01 * self.__dict__["calls"])


class Rotate(Augmentation):
    """A quarter turn by each image's seed."""

    def apply(self, images, seeds):
        turns = uniform(seeds, 60, 0, 3)
        result = np.empty_like(images)
        for turn in range(4):
            result[turns == turn] = np.rot90(images[turns == turn], turn, axes=(2, 3))
        return result


@dataclass(frozen=True)
class Grows(Augmentation):
    """Noise that grows with the progress of training."""

    amount: float = 0.0

    def at(self, progress):
        return Noise(0.01 + 0.3 * progress)

    def apply(self, images, seeds):
        return Noise(0.3).apply(images, seeds)


@dataclass(frozen=True)
class Mixes(Mixing):
    """Two halves of a pair, by the generator."""

    share: float = 0.8

    def apply(self, columns, classes, generator):
        values, labels = columns
        partner = generator.permutation(len(values))
        hot = np.eye(classes, dtype=np.float32)[labels]
        a, b = np.float32(self.share), np.float32(1 - self.share)
        return (values * a + values[partner] * b).astype(np.float32), hot * a + hot[partner] * b


class MixesUnseeded(Mixes):
    def apply(self, columns, classes, generator):
        return super().apply(columns, classes, np.random.default_rng())


class MixesInputsOnly(Mixes):
    """The labels stay those of the first."""

    share = 0.5

    def apply(self, columns, classes, generator):
        values, _ = super().apply(columns, classes, generator)
        return values, np.eye(classes, dtype=np.float32)[columns[1]]


class MixesTooMuch(Mixes):
    """The shares of a label add up to 1.5."""

    def apply(self, columns, classes, generator):
        values, labels = super().apply(columns, classes, generator)
        return values, labels * np.float32(1.5)


@dataclass(frozen=True)
class Curve(Schedule):
    """Any function of the progress, of fixed length."""

    of: Callable[[float], float]
    fixed_length = True

    def factor(self, progress):
        return self.of(progress)


class Counting(Schedule):
    """The factor depends on the number of calls."""

    fixed_length = True

    def __init__(self):
        self.calls = 0

    def factor(self, progress):
        self.calls += 1
        return 1 / (1 + 0.01 * self.calls)


class Erratic(Schedule):
    """The factor is random."""

    fixed_length = True

    def factor(self, progress):
        return float(np.random.default_rng().random())


class Permuted(EvenSampler):
    """A right one."""

    def epoch(self, split, seed, epoch):
        return self.batched(generator_of(seed + 17, epoch).permutation(len(split)).astype(np.int64))


class SameOrder(EvenSampler):
    """The same order in every epoch."""

    def epoch(self, split, seed, epoch):
        return self.batched(generator_of(seed, 0).permutation(len(split)).astype(np.int64))


class SameLater(EvenSampler):
    """From the third epoch on the order is the same."""

    def epoch(self, split, seed, epoch):
        return self.batched(np.random.default_rng([seed, min(epoch, 2)]).permutation(len(split)))


class SeedIgnored(EvenSampler):
    """The same order for every seed."""

    def epoch(self, split, seed, epoch):
        return self.batched(generator_of(0, epoch).permutation(len(split)).astype(np.int64))


class Unseeded(EvenSampler):
    """The order comes from the clock."""

    def epoch(self, split, seed, epoch):
        return self.batched(np.random.default_rng().permutation(len(split)).astype(np.int64))


class Repeats(EvenSampler):
    """One example twice, one never."""

    def epoch(self, split, seed, epoch):
        order = generator_of(seed, epoch).permutation(len(split)).astype(np.int64)
        order[-1] = order[0]
        return self.batched(order)


class Loses(EvenSampler):
    """The last incomplete batch is lost."""

    def epoch(self, split, seed, epoch):
        order = generator_of(seed, epoch).permutation(len(split)).astype(np.int64)
        return self.batched(order[: len(order) // self.batch * self.batch])

    def steps(self, split):
        return len(split) // self.batch


class Sorted(EvenSampler):
    """Class by class, although it promises a random order."""

    def epoch(self, split, seed, epoch):
        order = generator_of(seed, epoch).permutation(len(split))
        return self.batched(order[np.argsort(split.labels[order], kind="stable")].astype(np.int64))


class Prefers(EvenSampler):
    """It draws the second half of the data only, although it promises every example."""

    def epoch(self, split, seed, epoch):
        return self.batched(generator_of(seed, epoch).integers(len(split) // 2, len(split), len(split)))


# Networks with faults.


def probabilities():
    """A softmax before the cross-entropy, which has one."""
    return (
        Builder("soft", (1, SIDE, SIDE)).conv(4, 3).relu().flatten().gemm(CLASSES).operator("Softmax", axis=1).build()
    )


def across_batch():
    """Outputs are standardised over the batch, in inference too."""
    graph = GraphBuilder("across")
    flat = graph.node("Flatten", graph.input("x", ("batch", 1, SIDE, SIDE)))
    out = linear(graph, "last", flat, SIDE * SIDE, CLASSES, xavier(SIDE * SIDE, CLASSES))
    graph.output(graph.node("Sub", out, graph.node("ReduceMean", out, graph.constant([0]), keepdims=1)))
    return graph.build()


def deaf():
    """The inputs are multiplied by zero."""
    graph = GraphBuilder("deaf")
    flat = graph.node("Flatten", graph.input("x", ("batch", 1, SIDE, SIDE)))
    none = graph.node("Mul", flat, graph.constant(0.0))
    graph.output(linear(graph, "last", none, SIDE * SIDE, CLASSES, xavier(SIDE * SIDE, CLASSES)))
    return graph.build()


def stuck():
    """All weights are zero, and so is every gradient but the last bias's."""
    graph = GraphBuilder("stuck")
    flat = graph.node("Flatten", graph.input("x", ("batch", 1, SIDE, SIDE)))
    hidden = graph.node("Relu", linear(graph, "first", flat, SIDE * SIDE, 16, Draw("constant", 0.0)))
    graph.output(linear(graph, "last", hidden, 16, CLASSES, Draw("constant", 0.0)))
    return graph.build()


def dead():
    """Biases of -100 before a ReLU: no example passes."""
    graph = GraphBuilder("dead")
    flat = graph.node("Flatten", graph.input("x", ("batch", 1, SIDE, SIDE)))
    first = linear(graph, "first", flat, SIDE * SIDE, 16, xavier(SIDE * SIDE, 16), Draw("constant", -100.0))
    graph.output(linear(graph, "last", graph.node("Relu", first), 16, CLASSES, xavier(16, CLASSES)))
    return graph.build()


def equal_units():
    """All hidden units begin with the same weights."""
    graph = GraphBuilder("equal-units")
    flat = graph.node("Flatten", graph.input("x", ("batch", 1, SIDE, SIDE)))
    hidden = graph.node("Relu", linear(graph, "first", flat, SIDE * SIDE, 16, Draw("constant", 0.02)))
    graph.output(linear(graph, "last", hidden, 16, CLASSES, Draw("constant", 0.1)))
    return graph.build()


def exploding():
    """Weights of standard deviation 100."""
    graph = GraphBuilder("exploding")
    flat = graph.node("Flatten", graph.input("x", ("batch", 1, SIDE, SIDE)))
    hidden = graph.node("Relu", linear(graph, "first", flat, SIDE * SIDE, 16, normal(100.0)))
    graph.output(linear(graph, "last", hidden, 16, CLASSES, normal(100.0)))
    return graph.build()


def narrow():
    """Three outputs for four classes."""
    return convolutional(CLASSES - 1)


def unused():
    """A layer whose output nothing reads."""
    graph = GraphBuilder("unused")
    flat = graph.node("Flatten", graph.input("x", ("batch", 1, SIDE, SIDE)))
    out = linear(graph, "last", flat, SIDE * SIDE, CLASSES, xavier(SIDE * SIDE, CLASSES))
    linear(graph, "spare", flat, SIDE * SIDE, CLASSES, xavier(SIDE * SIDE, CLASSES))
    graph.output(out)
    return graph.build()


# PyTorch's own networks and losses; torch is imported when one is built.


def torch_net(kind: str = "") -> Callable[[], Any]:
    def build():
        import torch

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = torch.nn.Linear(SIDE * SIDE, 24), torch.nn.Linear(24, CLASSES)
                self.norm = torch.nn.BatchNorm1d(24, track_running_stats=kind != "batch statistics")
                self.drop = torch.nn.Dropout(0.3)
                self.kept = None
                if kind == "frozen":
                    self.first.requires_grad_(False)

            def forward(self, x):
                hidden = torch.relu(self.norm(self.first(x.flatten(1))))
                if kind == "detached":
                    hidden = hidden.detach()
                if kind == "always dropout":
                    hidden = torch.nn.functional.dropout(hidden, 0.3)
                elif kind == "noise":
                    hidden = hidden + 0.1 * torch.randn_like(hidden)
                else:
                    hidden = self.drop(hidden)
                out = self.last(hidden)
                if kind == "remembers":
                    out = out if self.kept is None else out + 0.1 * self.kept
                    self.kept = out.detach().mean(0)
                return out

        return Net()

    return build


def torch_loss(kind: str) -> Callable[..., Any]:
    def loss(outputs, labels):
        import torch

        entropy = torch.nn.functional.cross_entropy
        return {
            "right": lambda: entropy(outputs, labels),
            "focal": lambda: torch.mean((1 - torch.exp(-entropy(outputs, labels, reduction="none"))) ** 2
                              * entropy(outputs, labels, reduction="none")),
            "weighted": lambda: entropy(outputs, labels, weight=torch.tensor([1.0, 2.0, 1.0, 0.5])),
            "negative": lambda: -entropy(outputs, labels),
            "deaf": lambda: torch.mean(outputs**2),
            "shifted": lambda: entropy(outputs, labels.roll(1)),
            "detached": lambda: entropy(outputs.detach(), labels) + 0 * outputs.sum(),
            "random": lambda: entropy(outputs, torch.randint_like(labels, CLASSES)),
            "first only": lambda: entropy(outputs[:1], labels[:1]),
        }[kind]()  # fmt: skip

    return loss


def torch_case(net: str = "", loss: str = "right", **more: Any) -> Case:
    return Case(recipe=lambda: base(network=torch_net(net), loss=torch_loss(loss), **more), framework="torch")


# Data with faults.


def beside(label_to_value):
    """One more pixel row that depends on the label alone."""

    def change(x, y):
        x[:, :, 0, 0] = label_to_value(y)[:, None]
        return x, y

    return lambda: changed(images(noise=6.0), by=change)


def appended(value):
    def change(x, y):
        return np.concatenate([x, value(x, y).astype(np.float32)], axis=1), y

    return change


def noisy_copies(data, amount):
    """Half of the validation split is in the training split, too, almost."""
    some = part(data.validation, slice(0, len(data.validation) // 2))
    shift = amount * np.random.default_rng(9).standard_normal(some.inputs.shape)
    return replace(data, train=joined(data.train, labelled(some.inputs + shift, some.labels)))


def grouped(spread=0.05):
    """Three noisy forms of each example, in splits made afterwards."""
    once, draws = table((640, 8, 8)).train, np.random.default_rng(14)
    forms = [once.inputs + (spread * draws.standard_normal(once.inputs.shape)).astype(np.float32) for _ in range(3)]
    every = labelled(np.concatenate(forms), np.tile(once.labels, 3))
    ends = (0, 960, 1440, 1920)
    return dataset([part(every, slice(*each)) for each in pairwise(ends)], 2)


def categories():
    """A category in many columns and one measurement: rows of one category agree in all columns but one."""
    draws = np.random.default_rng(15)
    kinds = draws.integers(0, 120, 1200)
    rows = np.concatenate([np.eye(120)[kinds], draws.standard_normal((1200, 1))], axis=1).astype(np.float32)
    every = labelled(rows, (rows[:, -1] + 0.1 * draws.standard_normal(1200) > 0).astype(np.int64))
    return dataset([part(every, slice(*each)) for each in pairwise((0, 700, 950, 1200))], 2)


def blank(x, y):
    x[:, :3] = 0
    return x, y


def two_labels(share=0.2):
    """A part of the rows twice, with another label."""
    data = images()
    some = part(data.train, slice(0, int(share * len(data.train))))
    return replace(data, train=joined(data.train, labelled(some.inputs, (some.labels + 1) % CLASSES)))


def contradicting():
    """Validation rows occur twice, with two labels: no network gets more than half of them."""
    data = images()
    once = part(data.validation, slice(0, 48))
    both = joined(once, labelled(once.inputs, (once.labels + 1) % CLASSES))
    return replace(data, validation=both)


def sums(value: str):
    return lambda: replace(images(), checksums={"images.bin": value, "labels.bin": value}, synthetic=False)


def windows():
    """Windows of one text: those of validation overlap with those of training."""
    generator = np.random.default_rng(11)
    text = generator.integers(0, WORDS, 900)

    def split(starts):
        return Split((np.stack([text[each : each + LENGTH] for each in starts]),
                      np.stack([text[each + 1 : each + LENGTH + 1] for each in starts])))  # fmt: skip

    every = generator.permutation(850)
    return dataset([split(every[:600]), split(every[600:725]), split(every[725:])], WORDS)


_STATE = np.random.default_rng()


class Lazy:
    """Rows that are made when asked for."""

    dtype = np.dtype(np.float32)

    def __init__(self, rows, how: str) -> None:
        self._rows, self._how, self.shape = rows, how, rows.shape

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, indices, seeds):
        rows = self._rows[indices]
        if self._how == "random in evaluation":
            return rows + np.float32(0.1) * _STATE.standard_normal(rows.shape).astype(np.float32)
        if seeds is None:
            return rows
        if self._how == "seeds ignored":
            return rows + np.float32(0.1) * _STATE.standard_normal(rows.shape).astype(np.float32)
        return rows + (random(seeds, 3) - 0.5).astype(np.float32)[:, None, None, None]


def lazily(how: str) -> Callable[[], Dataset]:
    def make():
        data = images()
        lazy = {name: Split((Lazy(each.inputs, how), each.labels)) for name, each in data.splits().items()}
        return replace(data, **lazy)

    return make


def constant(value: int) -> Callable[[Any, Any], Any]:
    return lambda x, y: (x, np.full_like(y, value))


def rolled(x, y):
    return x, np.roll(y, 1)


def shuffled(x, y):
    return x, np.random.default_rng(12).permutation(y)


def with_nan(x, y):
    x[3, 0, 0, 0] = np.nan
    return x, y


def loaded_randomly():
    return images(seed=int(np.random.default_rng().integers(2**31)))


def ordered_randomly():
    data = images()
    return replace(data, train=part(data.train, np.random.default_rng().permutation(len(data.train))))


def by_class():
    """Training has the first two classes, validation the others."""
    data = images()
    train, held = (np.flatnonzero(test(data.train.labels)) for test in (lambda y: y < 2, lambda y: y >= 2))
    return replace(data, train=part(data.train, train), validation=part(data.train, held[:96]))


def tiled():
    """A validation split of 12 examples, each eight times."""
    data = images()
    return replace(data, validation=part(data.validation, np.arange(96) % 12))


def mirrored():
    """Validation images are those of training, mirrored."""
    data = images()
    some = part(data.train, slice(0, 96))
    return replace(data, validation=labelled(some.inputs[..., ::-1], some.labels))


ONE_HOT = np.eye(CLASSES, dtype=np.float32)
BINARY = Top1(0.75)
WIDE = recipe(network=lambda: dense(9), optimizer=Adam(0.01))

FAULTY: dict[str, Case] = {
    # Qualities.
    "mean of batches": Case(quality=MeanOfBatches(0.9)),
    "last batch dropped": Case(quality=DropsLast(0.9)),
    "last batch padded": Case(quality=Padded(0.9)),
    "first batch only": Case(quality=FirstBatch(0.9)),
    "order of the split": Case(quality=Smoothed(0.9)),
    "result cached": Case(quality=Cached(0.9)),
    "best so far": Case(quality=BestSoFar(0.9)),
    "averaged with the last": Case(quality=Averaged(0.9)),
    "trains its buffers": Case(quality=Trains(0.9), recipe=recipe(network=regularised)),
    "rounds the weights": Case(quality=Rounds(0.9)),
    "changes the data": Case(quality=ChangesData(0.9)),
    "random half": Case(quality=Sampled(0.9)),
    "percent": Case(quality=Percent(0.9)),
    "wrong direction": Case(quality=ErrorRate(0.9)),
    "ties count": Case(quality=TiesCount(0.9)),
    "NaN is right": Case(quality=NanRight(0.9)),
    "compared with itself": Case(quality=Itself(0.9)),
    "top-2 called top-1": Case(quality=Lenient(0.9)),
    "F1 of batches": Case(table, F1OfBatches(0.7), TABLE),
    "F1 arithmetic": Case(lambda: table(bias=3.0), F1Arithmetic(0.5), TABLE),
    "AUC of batches": Case(table, AreaOfBatches(0.8), TABLE),
    "rmse without a root": Case(numbers, SquaredError(0.3), NUMBERS),
    "rmse of batches": Case(numbers, RootOfBatches(0.3), NUMBERS),
    "ties hit": Case(rankings, TiesHit(0.8, 3), RANKINGS),
    "HR@4 called HR@3": Case(rankings, RankOffByOne(0.8, 3), RANKINGS),
    "errors broadcast": Case(numbers, Broadcast(0.3), NUMBERS),
    "R2 of batches": Case(numbers, DeterminationOfBatches(0.9), NUMBERS),
    "perplexity of batches": Case(tokens, PerplexityOfBatches(4.0), TOKENS),
    "F1 without silent classes": Case(quality=F1OfAnswers(0.9)),
    "NaN left out": Case(quality=NanLeftOut(0.9)),
    "kappa of another chance": Case(quality=Chances(0.9)),
    "perplexity of base 2": Case(quality=Surprise(1.5, base=2.0)),
    "first 200 counted": Case(lambda: images((256, 300, 96)), FirstHalf(0.9)),
    # Tasks.
    "label in a pixel": Case(beside(lambda y: y)),
    "label's code in a pixel": Case(beside(lambda y: np.array([0.3, -1.7, 0.9, 0.1])[y])),
    "label one-hot among inputs": Case(
        lambda: changed(table(noise=3.0), by=appended(lambda x, y: np.eye(2)[y])),
        BINARY,
        recipe(network=lambda: dense(10), optimizer=Adam(0.01)),
    ),
    "label with noise among inputs": Case(
        lambda: changed(
            table(noise=3.0),
            by=appended(lambda x, y: y[:, None] + 0.01 * np.random.default_rng(13).standard_normal((len(y), 1))),
        ),
        BINARY,
        WIDE,
    ),
    "label with more noise among inputs": Case(
        lambda: changed(
            images(noise=6.0),
            by=lambda x, y: (
                np.concatenate(
                    [x.reshape(len(x), -1), (y + 0.05 * np.random.default_rng(13).standard_normal(len(y)))[:, None]], 1
                ).astype(np.float32),
                y,
            ),
        ),
        recipe=recipe(network=lambda: dense(SIDE * SIDE + 1, CLASSES)),
    ),
    "target among inputs": Case(
        lambda: changed(numbers(), by=lambda x, y: (np.concatenate([x, 3 * y + 1], axis=1), y)),
        RMSE(0.2),
        recipe(network=lambda: line(7), optimizer=Adam(0.01)),
    ),
    "next token is the current one": Case(lambda: tokens(shift=0), Perplexity(4.0), TOKENS),
    "validation 255 times": Case(lambda: changed(images(), "validation", by=lambda x, y: (x * np.float32(255), y))),
    "test by 255": Case(lambda: changed(images(), "test", by=lambda x, y: (x / np.float32(255), y))),
    "validation by 2": Case(
        lambda: changed(table(), "validation", by=lambda x, y: (x / np.float32(2), y)), BINARY, TABLE
    ),
    "columns blank in training": Case(lambda: changed(table(), "train", by=blank), BINARY, TABLE),
    "forms of one example in each split": Case(grouped, BINARY, TABLE),
    "validation shifted": Case(lambda: changed(images(), "validation", by=lambda x, y: (x + np.float32(4), y))),
    "held-out features in another unit": Case(
        lambda: changed(table(), "validation", "test", by=lambda x, y: (x * np.float32([1] * 7 + [100]), y)),
        BINARY,
        TABLE,
    ),
    "double precision in validation": Case(
        lambda: changed(images(), "validation", by=lambda x, y: (x.astype(np.float64), y))
    ),
    "rows twice": Case(lambda: replace(images(), train=joined(images().train, images().train))),
    "validation in training": Case(lambda: replace(images(), train=joined(images().train, images().validation))),
    "validation in training, almost": Case(lambda: noisy_copies(images(), 1e-4)),
    "validation in training, with noise": Case(lambda: noisy_copies(images(), 0.02)),
    "validation in training, scaled": Case(
        lambda: replace(images(), validation=labelled(images().train.inputs[:96] * 1.01, images().train.labels[:96]))
    ),
    "validation mirrored from training": Case(mirrored),
    "validation is the test": Case(lambda: replace(images(), test=images().validation)),
    "validation repeated": Case(tiled),
    "rows twice, almost": Case(
        lambda: replace(
            images(), train=joined(images().train, labelled(images().train.inputs + 1e-4, images().train.labels))
        )
    ),
    "two labels": Case(two_labels),
    "two labels in validation": Case(contradicting),
    "overlapping windows": Case(windows, Perplexity(8.0), TOKENS),
    "target out of reach": Case(quality=Top1(0.99), data=contradicting),
    "unknown class in validation": Case(by_class, Top1(0.9)),
    "target below the majority": Case(lambda: table(bias=4.0), Top1(0.8), TABLE),
    "target between two steps": Case(lambda: images((256, 10, 96)), Top1(0.95)),
    "checksums of zeros": Case(sums("0" * 64)),
    "checksums of nothing": Case(sums(hashlib.sha256(b"").hexdigest())),
    "checksums that are short": Case(sums("abc123")),
    "one checksum for all": Case(sums(hashlib.sha256(b"x").hexdigest())),
    "no checksums": Case(lambda: replace(images(), synthetic=False)),
    "labels shuffled": Case(lambda: changed(images(), "train", by=shuffled)),
    "labels shuffled everywhere": Case(lambda: changed(images(), by=shuffled)),
    "validation's labels shuffled": Case(lambda: changed(images(), "validation", by=shuffled)),
    "labels one row late": Case(lambda: changed(images(), "train", by=rolled)),
    "validation's labels off by one class": Case(
        lambda: changed(images(), "validation", by=lambda x, y: (x, (y + 1) % CLASSES))
    ),
    "a class beyond": Case(lambda: changed(images(), "train", by=lambda x, y: (x, y + 1))),
    "a negative label": Case(lambda: changed(images(), "train", by=lambda x, y: (x, y - 1))),
    "more classes stated": Case(
        lambda: replace(images(), classes=10), recipe=recipe(network=lambda: convolutional(10))
    ),
    "one class in validation": Case(lambda: changed(images(), "validation", by=constant(1))),
    "NaN among inputs": Case(lambda: changed(images(), "train", by=with_nan)),
    "inputs all alike": Case(lambda: changed(images(), "train", by=lambda x, y: (np.zeros_like(x), y))),
    "data at random": Case(loaded_randomly),
    "order at random": Case(ordered_randomly),
    "lazy rows random in evaluation": Case(lazily("random in evaluation")),
    "lazy rows ignore seeds": Case(lazily("seeds ignored")),
    # Recipes.
    "augmentation unseeded": Case(recipe=recipe(augment=(NoiseUnseeded(),))),
    "augmentation from the global generator": Case(recipe=recipe(augment=(NoiseGlobal(),))),
    "augmentation the same in every epoch": Case(recipe=recipe(augment=(NoiseFixed(),))),
    "augmentation by the first seed": Case(recipe=recipe(augment=(NoiseOfFirst(),))),
    "augmentation by the batch": Case(recipe=recipe(augment=(BatchStatistics(),))),
    "augmentation in place": Case(recipe=recipe(augment=(InPlace(),))),
    "augmentation scales": Case(recipe=recipe(augment=(Scales(),))),
    "augmentation erases": Case(recipe=recipe(augment=(Erases(),))),
    "augmentation in double precision": Case(recipe=recipe(augment=(Widens(),))),
    "augmentation moves images": Case(recipe=recipe(augment=(Shuffles(),))),
    "augmentation counts": Case(recipe=recipe(augment=(Counts(),))),
    "mixing unseeded": Case(recipe=recipe(mix=MixesUnseeded())),
    "mixing of inputs only": Case(recipe=recipe(mix=MixesInputsOnly(0.5))),
    "mixing beyond 1": Case(recipe=recipe(mix=MixesTooMuch())),
    "negative factor": Case(recipe=recipe(schedule=Curve(lambda p: math.cos(math.pi * p)))),
    "slightly negative at the end": Case(recipe=recipe(schedule=Curve(lambda p: 1 - 1.02 * p))),
    "jumping factor": Case(recipe=recipe(schedule=Curve(lambda p: 50.0 if 0.5 < p < 0.55 else 1.0))),
    "sawtooth": Case(recipe=recipe(schedule=Curve(lambda p: 1.0 if int(p * 1000) % 2 else 0.01))),
    "NaN at the start": Case(recipe=recipe(schedule=Curve(lambda p: math.sin(p) / p if p else math.nan))),
    "infinite at the start": Case(recipe=recipe(schedule=Curve(lambda p: 1 / p**0.5 if p else math.inf))),
    "zero all the time": Case(recipe=recipe(schedule=Curve(lambda p: 0.0))),
    "zero after a tenth": Case(recipe=recipe(schedule=Curve(lambda p: 1.0 if p < 0.1 else 0.0))),
    "schedule counts": Case(recipe=lambda: base(schedule=Counting())),
    "schedule at random": Case(recipe=lambda: base(schedule=Erratic())),
    "factors of 1,000": Case(recipe=recipe(schedule=Curve(lambda p: 1000.0 * (1 - p)))),
    "same order": Case(recipe=recipe(sampler=SameOrder(32))),
    "same order from the third epoch": Case(recipe=recipe(sampler=SameLater(32), epochs=10)),
    "sampler's seed ignored": Case(recipe=recipe(sampler=SeedIgnored(32))),
    "sampler unseeded": Case(recipe=recipe(sampler=Unseeded(32))),
    "one example twice": Case(recipe=recipe(sampler=Repeats(32))),
    "last batch lost": Case(lambda: images((250, 96, 96)), recipe=recipe(sampler=Loses(32))),
    "sorted by class": Case(recipe=recipe(sampler=Sorted(32))),
    "half of the data": Case(recipe=recipe(sampler=Prefers(32))),
    "softmax twice": Case(recipe=recipe(network=probabilities)),
    "across the batch": Case(recipe=recipe(network=across_batch)),
    "inputs not used": Case(recipe=recipe(network=deaf)),
    "weights all zero": Case(recipe=recipe(network=stuck)),
    "dead ReLU": Case(recipe=recipe(network=dead)),
    "equal units": Case(recipe=recipe(network=equal_units)),
    "exploding": Case(recipe=recipe(network=exploding)),
    "too few outputs": Case(recipe=recipe(network=narrow)),
    "rate of 1e-9": Case(recipe=recipe(optimizer=Momentum(1e-9, 0.9))),
    "rate of 1,000": Case(recipe=recipe(optimizer=Momentum(1000.0, 0.9))),
    "smoothing of 0.99": Case(recipe=recipe(label_smoothing=0.99)),
    "torch: dropout always": torch_case("always dropout"),
    "torch: noise always": torch_case("noise"),
    "torch: batch statistics": torch_case("batch statistics"),
    "torch: detached": torch_case("detached"),
    "torch: remembers": torch_case("remembers"),
    "torch: negative loss": torch_case(loss="negative"),
    "torch: loss without labels": torch_case(loss="deaf"),
    "torch: loss of other labels": torch_case(loss="shifted"),
    "torch: loss detached": torch_case(loss="detached"),
    "torch: random labels": torch_case(loss="random"),
    "torch: loss of the first": torch_case(loss="first only"),
}


def folded():
    """Two channels and imbalanced classes."""
    return images(shares=(0.85, 0.05, 0.05, 0.05), channels=2)


def some_twice():
    """Natural data: a few rows occur twice, with one label."""
    data = images()
    return replace(data, train=joined(data.train, part(data.train, slice(0, 4))))


def mislabelled():
    """Natural data: one label in thirty is wrong."""

    def change(x, y):
        y[::30] = (y[::30] + 1) % CLASSES
        return x, y

    return changed(images(), by=change)


def discrete():
    """A few yes-or-no answers, so that rows coincide and labels differ."""
    generator = np.random.default_rng(21)

    def split(count):
        rows = generator.integers(0, 2, (count, 8)).astype(np.float32)
        return labelled(rows, rows[:, 0] + rows[:, 1] + generator.random(count) > 1.4)

    return dataset([split(each) for each in (400, 120, 120)], 2)


def telling():
    """One measurement is enough: the classes lie far apart in it, as petals do."""
    generator = np.random.default_rng(22)

    def split(count):
        labels = generator.integers(0, 2, count)
        rows = generator.standard_normal((count, 8))
        rows[:, 0] = 0.5 * rows[:, 0] + 4 * labels
        return labelled(rows, labels)

    return dataset([split(each) for each in (300, 100, 100)], 2)


def later():
    """Validation comes from a later time: the features have moved a little."""
    return changed(table(), "validation", "test", by=lambda x, y: (x + np.float32(0.2), y))


def summed():
    """Files with true checksums."""
    data = images()
    found = {f"{name}.bin": hashlib.sha256(each.inputs.tobytes()).hexdigest() for name, each in data.splits().items()}
    return replace(data, checksums=found, synthetic=False)


def multi():
    """Regression with three targets."""
    return numbers(outputs=3)


def raw():
    """Raw pixels: bytes."""
    data = images()

    def change(x, y):
        return np.clip(128 + 20 * x, 0, 255).astype(np.float32) / 255, y

    return changed(data, by=change)


def sparse():
    """Counts of words, most of which are zero."""
    generator = np.random.default_rng(23)
    rates = generator.gamma(0.3, 1.0, (2, 8)) + 0.05

    def split(count):
        labels = generator.integers(0, 2, count)
        return labelled(generator.poisson(rates[labels] * 3), labels)

    return dataset([split(each) for each in (400, 120, 120)], 2)


def heavy():
    """Features with heavy tails."""
    return changed(table(), by=lambda x, y: (np.sign(x) * np.expm1(1.5 * np.abs(x)), y))


RIGHT: dict[str, Case] = {
    "perplexity of classes": Case(quality=Surprise(1.5)),
    "categories and a measurement": Case(categories, BINARY, recipe(network=lambda: dense(121), optimizer=Adam(0.01))),
    "images": Case(),
    "own accuracy": Case(quality=Share(0.9)),
    "HR@3 and NDCG@3": Case(rankings, HitRate(0.8, 3), RANKINGS, also=(NDCG(0.6, 3),)),
    "top 2": Case(quality=TopK(0.9, 2), also=(Top1(0.5),)),
    "imbalanced, balanced accuracy": Case(
        folded, BalancedAccuracy(0.8), recipe(network=lambda: convolutional(channels=2))
    ),
    "imbalanced, macro F1": Case(
        folded, MacroF1(0.7), recipe(network=lambda: convolutional(channels=2), sampler=Weighted(32))
    ),
    "rare class, F1": Case(lambda: table(bias=2.0), F1(0.6), TABLE),
    "rare class, AUC": Case(lambda: table(bias=3.0), AUROC(0.8), TABLE),
    "average precision": Case(lambda: table(bias=2.0), AveragePrecision(0.6), TABLE),
    "Matthews": Case(table, Matthews(0.6), TABLE),
    "log loss": Case(quality=LogLoss(0.3)),
    "regression": Case(numbers, RMSE(0.4), NUMBERS),
    "regression, mean error": Case(numbers, MAE(0.4), NUMBERS, also=(RMSE(0.5),)),
    "regression, R2": Case(numbers, Determination(0.9), NUMBERS),
    "regression of three": Case(multi, RMSE(0.8), recipe(network=lambda: line(6, 3), optimizer=Adam(0.01))),
    "next token": Case(tokens, Perplexity(3.5), TOKENS),
    "next token, padded": Case(lambda: tokens(padded=True), BitsPerCharacter(2.2), TOKENS),
    "words": Case(
        texts, Top1(0.9), recipe(network=lambda: word_bag(words=100, width=8, length=LENGTH), optimizer=Adam(0.02))
    ),
    "words in buckets": Case(
        texts,
        Top1(0.9),
        recipe(network=lambda: word_bag(words=100, width=8, length=LENGTH), optimizer=Adam(0.02), sampler=Bucketed(32)),
    ),
    "small data": Case(lambda: images((40, 20, 20)), recipe=recipe(sampler=Shuffled(8))),
    "tiny data": Case(lambda: images((16, 8, 8)), Top1(0.75), recipe(sampler=Shuffled(4))),
    "two classes, one output": Case(table, AUROC(0.8), TABLE),
    "true checksums": Case(summed),
    "some rows twice": Case(some_twice),
    "some labels wrong": Case(mislabelled, Top1(0.85)),
    "few answers": Case(discrete, Top1(0.7), TABLE),
    "one telling feature": Case(telling, Top1(0.9), TABLE),
    "later validation": Case(later, BINARY, TABLE),
    "raw pixels": Case(raw),
    "counts": Case(sparse, Top1(0.9), TABLE),
    "heavy tails": Case(heavy, Top1(0.7), TABLE),
    "lazy rows": Case(lazily("right")),
    "noise by seeds": Case(recipe=recipe(augment=(Noise(),))),
    "quarter turns": Case(recipe=recipe(augment=(Rotate(),)), quality=Top1(0.6)),
    "growing noise": Case(recipe=recipe(augment=(Grows(),))),
    "crop, flip, cutout": Case(recipe=recipe(augment=(RandomCrop(1), Flip(), Cutout(2))), quality=Top1(0.6)),
    "mixup": Case(recipe=recipe(mix=Mixup(0.2))),
    "own mixing": Case(recipe=recipe(mix=Mixes(0.8))),
    "cutmix": Case(recipe=recipe(mix=CutMix(1.0, 0.5))),
    "dropout and batch norm": Case(recipe=recipe(network=regularised)),
    "strong dropout": Case(recipe=recipe(network=lambda: regularised(ratio=0.6), optimizer=Adam(0.01))),
    "smoothing": Case(recipe=recipe(label_smoothing=0.1)),
    "accumulation": Case(recipe=recipe(accumulate=4, sampler=Shuffled(8))),
    "warm-up": Case(recipe=recipe(schedule=Warmup(Constant(), 0.3))),
    "warm-up from zero": Case(recipe=recipe(schedule=Trapezoid(0.3, 0.4))),
    "cosine": Case(recipe=recipe(schedule=Cosine())),
    "inverse root": Case(recipe=recipe(schedule=InverseSquareRoot(0.2))),
    "steps": Case(recipe=recipe(schedule=Step((0.5, 0.75), 0.1))),
    "steep step": Case(recipe=recipe(schedule=Step((0.6,), 0.01))),
    "own cosine": Case(recipe=recipe(schedule=Curve(lambda p: 0.5 * (1 + math.cos(math.pi * min(p, 1.0)))))),
    "warm restarts": Case(
        recipe=recipe(schedule=Curve(lambda p: 0.5 * (1 + math.cos(math.pi * (min(p, 0.9999) * 3 % 1)))))
    ),
    "exponential": Case(recipe=recipe(schedule=Curve(lambda p: math.exp(-5 * p)))),
    "large factors on a small rate": Case(
        recipe=recipe(schedule=Curve(lambda p: 100.0 * (1 - p)), optimizer=Momentum(0.0005, 0.9))
    ),
    "own sampler": Case(recipe=recipe(sampler=Permuted(32))),
    "stratified": Case(recipe=recipe(sampler=Stratified(32))),
    "dropping the last": Case(lambda: images((250, 96, 96)), recipe=recipe(sampler=Shuffled(32, drop_last=True))),
    "early plateau": Case(recipe=recipe(optimizer=Momentum(0.002, 0.9), epochs=40)),
    "slow start": Case(recipe=recipe(network=lambda: zoo_deep(4), optimizer=Adam(0.003), epochs=20)),
    "weights partly zero": Case(recipe=recipe(network=lambda: zero_last(16))),
    "evaluated within epochs": Case(every="3 steps"),
    "torch": torch_case(),
    "torch: focal loss": torch_case(loss="focal"),
    "torch: weighted loss": torch_case(loss="weighted"),
    "torch: augmented": torch_case(augment=(Noise(),)),
}


def zoo_deep(layers):
    """Some layers."""
    made = Builder("deep", (1, SIDE, SIDE)).flatten()
    for _ in range(layers):
        made = made.gemm(24).relu()
    return made.gemm(CLASSES).build()


def zero_last(width):
    """The last layer starts at zero, as is common."""
    graph = GraphBuilder("zero-last")
    flat = graph.node("Flatten", graph.input("x", ("batch", 1, SIDE, SIDE)))
    hidden = graph.node("Relu", linear(graph, "first", flat, SIDE * SIDE, width, xavier(SIDE * SIDE, width)))
    graph.output(linear(graph, "last", hidden, width, CLASSES, Draw("constant", 0.0)))
    return graph.build()


NOTED = {"torch: frozen": torch_case("frozen")}
"""Right if it is meant: random features."""

BY: dict[str, str] = {
    "mean of batches": "batch size",
    "last batch dropped": "batch size",
    "last batch padded": "batch size",
    "first batch only": "examples",
    "order of the split": "batch size",
    "result cached": "other weights",
    "best so far": "other weights",
    "averaged with the last": "repeated",
    "trains its buffers": "evaluation",
    "rounds the weights": "evaluation",
    "changes the data": "data left alone",
    "random half": "repeated",
    "percent": "scale",
    "wrong direction": "direction",
    "ties count": "ties",
    "NaN is right": "not finite",
    "compared with itself": "direction",
    "top-2 called top-1": "formula",
    "F1 of batches": "batch size",
    "F1 arithmetic": "formula",
    "AUC of batches": "batch size",
    "rmse without a root": "formula",
    "rmse of batches": "batch size",
    "ties hit": "ties",
    "HR@4 called HR@3": "formula",
    "errors broadcast": "formula",
    "R2 of batches": "batch size",
    "perplexity of batches": "batch size",
    "F1 without silent classes": "formula",
    "NaN left out": "not finite",
    "kappa of another chance": "formula",
    "perplexity of base 2": "formula",
    "first 200 counted": "order of examples",
    "label with more noise among inputs": "label among inputs",
    "validation by 2": "splits alike",
    "columns blank in training": "splits alike",
    "forms of one example in each split": "near copies",
    "label in a pixel": "label among inputs",
    "label's code in a pixel": "label among inputs",
    "label one-hot among inputs": "label among inputs",
    "label with noise among inputs": "label among inputs",
    "target among inputs": "label among inputs",
    "next token is the current one": "label among inputs",
    "validation 255 times": "splits alike",
    "test by 255": "splits alike",
    "validation shifted": "splits alike",
    "held-out features in another unit": "splits alike",
    "double precision in validation": "splits alike",
    "rows twice": "splits",
    "validation in training": "splits",
    "validation in training, almost": "near copies",
    "validation in training, with noise": "near copies",
    "validation in training, scaled": "near copies",
    "validation mirrored from training": "near copies",
    "validation is the test": "splits",
    "validation repeated": "splits",
    "rows twice, almost": "near copies",
    "two labels": "two labels",
    "two labels in validation": "two labels",
    "overlapping windows": "overlaps",
    "target out of reach": "reach",
    "unknown class in validation": "labels",
    "target below the majority": "target",
    "target between two steps": "target",
    "checksums of zeros": "provenance",
    "checksums of nothing": "provenance",
    "checksums that are short": "provenance",
    "one checksum for all": "provenance",
    "no checksums": "provenance",
    "labels shuffled": "learning",
    "labels shuffled everywhere": "learning",
    "validation's labels shuffled": "learning",
    "labels one row late": "learning",
    "validation's labels off by one class": "learning",
    "a class beyond": "labels",
    "a negative label": "labels",
    "more classes stated": "labels",
    "one class in validation": "target",
    "NaN among inputs": "values",
    "inputs all alike": "splits alike",
    "data at random": "loading",
    "order at random": "loading",
    "lazy rows random in evaluation": "evaluation",
    "lazy rows ignore seeds": "batches",
    "augmentation unseeded": "augmentation",
    "augmentation from the global generator": "augmentation",
    "augmentation the same in every epoch": "augmentation",
    "augmentation by the first seed": "augmentation",
    "augmentation by the batch": "augmentation",
    "augmentation in place": "augmentation",
    "augmentation scales": "augmentation",
    "augmentation erases": "augmentation",
    "augmentation in double precision": "augmentation",
    "augmentation moves images": "augmentation",
    "augmentation counts": "augmentation",
    "mixing unseeded": "determinism",
    "mixing of inputs only": "mixing",
    "mixing beyond 1": "mixing",
    "negative factor": "schedule",
    "slightly negative at the end": "schedule",
    "jumping factor": "schedule",
    "sawtooth": "schedule",
    "NaN at the start": "schedule",
    "infinite at the start": "schedule",
    "zero all the time": "schedule",
    "zero after a tenth": "schedule",
    "schedule counts": "schedule",
    "schedule at random": "schedule",
    "factors of 1,000": "one batch",
    "same order": "sampler",
    "same order from the third epoch": "sampler",
    "equal units": "updates",
    "sampler's seed ignored": "sampler",
    "sampler unseeded": "sampler",
    "one example twice": "sampler",
    "last batch lost": "sampler",
    "sorted by class": "sampler",
    "half of the data": "sampler",
    "softmax twice": "outputs apart",
    "across the batch": "outputs apart",
    "inputs not used": "updates",
    "weights all zero": "updates",
    "dead ReLU": "updates",
    "exploding": "loss",
    "too few outputs": "inputs",
    "rate of 1e-9": "one batch",
    "rate of 1,000": "one batch",
    "smoothing of 0.99": "settings",
    "torch: dropout always": "evaluation",
    "torch: noise always": "evaluation",
    "torch: batch statistics": "outputs apart",
    "torch: detached": "updates",
    "torch: remembers": "evaluation",
    "torch: loss without labels": "loss",
    "torch: loss detached": "gradient",
    "torch: random labels": "loss",
    "torch: loss of the first": "loss",
    "torch: negative loss": "loss",
    "torch: loss of other labels": "loss",
}
"""The probe that is to find each fault."""
