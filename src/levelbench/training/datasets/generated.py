"""Synthetic images of any shape, whose classes can be learnt to a known accuracy and no further.

Each class is a mean image under Gaussian noise, and all means are equally far from each other. That distance determines
the Bayes error, an integral over the normal distribution: no classifier of these values can be better. The dataset is
marked synthetic, and so is each record of a run on it.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Final, final

import numpy as np
import numpy.typing as npt

from levelbench.errors import UsageError
from levelbench.training.datasets.base import Dataset, DatasetSource, Normalisation, Progress, Split, silent
from levelbench.training.datasets.places import refuse_folder

# Noise of 24 steps around 128 leaves the range of a byte only beyond 5.3 standard deviations.
_MIDDLE: Final = 128.0
_NOISE: Final = 24.0
_GRID: Final = np.linspace(-9.0, 9.0, 2001)
_PARTS = {"train": 1, "validation": 2, "test": 3}


def bayes_error(distance: float, classes: int) -> float:
    """The smallest error of classifying ``classes`` orthogonal means, each ``distance`` noise deviations from zero.

    1 - ∫ φ(z - distance) Φ(z)^(classes - 1) dz: the right mean's projection is the largest.
    """
    z = _GRID + distance / 2
    spread = np.exp(-0.5 * (z - distance) ** 2) / math.sqrt(2 * math.pi)
    below = np.array([0.5 * math.erfc(-each / math.sqrt(2)) for each in z.tolist()])
    return float(1 - np.trapezoid(spread * below ** (classes - 1), z))


def distance_for(error: float, classes: int) -> float:
    """The distance at which the Bayes error is ``error``, by bisection."""
    low, high = 0.0, 12.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if bayes_error(middle, classes) > error else (low, middle)
    return (low + high) / 2


@final
class Synthetic(DatasetSource):
    """Class-conditional images, uint8 (n, channels, height, width): a smooth pattern per class under Gaussian noise.

    ``error`` is the Bayes error before values are rounded to bytes (steps of 1/24 of the noise, which cost less than
    0.1 %). The same arguments give the same bytes.

    :raises UsageError: when there are more classes than values in an image, or the error is impossible.
    """

    name = "synthetic"
    licence = "none: made by levelbench"
    attribution = "class means under Gaussian noise, made from a seed"
    split_rule = "three draws from one distribution, of seeds of their own"

    def __init__(
        self,
        shape: tuple[int, int, int] = (3, 32, 32),
        classes: int = 10,
        sizes: tuple[int, int, int] = (10_000, 2_000, 2_000),
        error: float = 0.05,
        seed: int = 0,
    ) -> None:
        if not 2 <= classes < math.prod(shape) or not 1e-6 < error < 1 - 1 / classes or min(sizes) < classes:
            raise UsageError(
                f"synthetic images of shape {shape} in {classes} classes with a Bayes error of {error:g}",
                "impossible data",
                "give 2 or more classes, more values than classes, and an error below that of guessing",
            )
        self.shape, self.classes, self.sizes, self.error, self.seed = shape, classes, sizes, error, seed

    def load(self, folder: Path | None = None) -> Dataset:
        """The three splits; ``UsageError`` for a named ``folder``, as there are no files."""
        refuse_folder(self.name, folder)
        means = self._means()
        parts = dict(zip(_PARTS, self.sizes, strict=True))
        splits = {name: self._split(means, count, _PARTS[name]) for name, count in parts.items()}
        return self.assembled(
            splits.values(),
            self.classes,
            {name: _digest(split) for name, split in splits.items()},
            f"synthetic, Bayes error {self.error:g}, seed {self.seed}",
            synthetic=True,
            normalisation=Normalisation(
                (_MIDDLE / 255,) * self.shape[0],
                (_NOISE / 255,) * self.shape[0],
                source="the noise's mean and deviation, by construction",
            ),
        )

    def fetch(self, folder: Path | None = None, progress: Progress = silent) -> None:
        """Nothing to do; ``UsageError`` as in ``load``."""
        refuse_folder(self.name, folder)

    def lacks(self, folder: Path | None = None) -> str | None:
        return None

    def _means(self) -> npt.NDArray[np.float64]:
        """(classes, values): orthogonal low-frequency patterns, each ``distance`` long in noise deviations."""
        channels, height, width = self.shape
        waves = [_cosines(size) for size in (channels, height, width)]
        order = sorted(np.ndindex(channels, height, width), key=lambda at: (at[1] + at[2] + at[0], at))
        # Without the first, the constant image, which a change of brightness would imitate.
        chosen = order[1 : self.classes + 1]
        patterns = [np.einsum("c,h,w->chw", waves[0][c], waves[1][h], waves[2][w]).ravel() for c, h, w in chosen]
        return np.stack(patterns) * distance_for(self.error, self.classes)

    def _split(self, means: npt.NDArray[np.float64], count: int, part: int) -> Split:
        generator = np.random.Generator(np.random.PCG64([self.seed, part, 0x5E7]))
        labels = generator.permutation(np.arange(count, dtype=np.int64) % self.classes)
        images = np.empty((count, *self.shape), np.uint8)
        for first in range(0, count, 4096):
            rows = slice(first, min(first + 4096, count))
            noise = generator.standard_normal((rows.stop - first, means.shape[1]))
            values = np.rint(_MIDDLE + _NOISE * (means[labels[rows]] + noise))
            images[rows] = np.clip(values, 0, 255).astype(np.uint8).reshape(-1, *self.shape)
        return Split.of(images, labels)


def _cosines(size: int) -> npt.NDArray[np.float64]:
    """The orthonormal cosine transform: (size, size), one wave per row."""
    at = np.arange(size)
    waves = np.cos(np.pi * np.outer(at, 2 * at + 1) / (2 * size)) * math.sqrt(2 / size)
    waves[0] /= math.sqrt(2)
    return np.asarray(waves)


def _digest(split: Split) -> str:
    hashed = hashlib.sha256()
    for column in split.columns:
        hashed.update(np.ascontiguousarray(column).data)
    return hashed.hexdigest()
