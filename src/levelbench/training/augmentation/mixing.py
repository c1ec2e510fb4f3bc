"""Mixes the examples of a batch with each other, and their labels alike.

The one idea: a batch has one permutation and one share, drawn from the seed, the epoch and the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from levelbench.errors import DataError, DefinitionError
from levelbench.training.augmentation.base import Mixing

__all__ = ["CutMix", "Mixup", "shares_of"]

Columns = tuple[NDArray[Any], ...]


def shares_of(labels: NDArray[Any], classes: int) -> NDArray[np.float32]:
    """1 at each label and 0 elsewhere, (n, classes); ``DataError`` where a label is none of the classes."""
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        found = f"labels from {labels.min()} to {labels.max()}"
        raise DataError(f"mixing examples of {classes} classes", found, "correct the labels, or the number of classes")
    result = np.zeros((len(labels), classes), np.float32)
    result[np.arange(len(labels)), labels] = 1.0
    return result


def _blended(values: NDArray[Any], others: NDArray[Any], share: float) -> NDArray[np.float32]:
    kept = np.float32(share)
    result: NDArray[np.float32] = values * kept
    result += others * (np.float32(1) - kept)
    return result


@dataclass(frozen=True)
class _BetaMixing(Mixing):
    """A mixture by a share from Beta(alpha, alpha), of a batch with this probability."""

    alpha: float
    probability: float = 1.0

    def __post_init__(self) -> None:
        if self.alpha <= 0 or not 0 <= self.probability <= 1:
            raise DefinitionError(repr(self), "there is no such draw", "choose alpha > 0 and 0 <= probability <= 1")

    def _drawn(self, n: int, generator: Generator) -> tuple[float, NDArray[np.int64]]:
        """The share that an example keeps, and the partner of each."""
        mixes = generator.random() < self.probability
        share = float(generator.beta(self.alpha, self.alpha))
        return (share if mixes else 1.0), generator.permutation(n)


@final
@dataclass(frozen=True)
class Mixup(_BetaMixing):
    """Weighted sums of two examples and of their labels (Zhang et al. 2018); the first column becomes float32."""

    def apply(self, columns: Columns, classes: int, generator: Generator) -> Columns:
        """The other columns stay as they are."""
        values, *others, labels = columns
        share, partner = self._drawn(len(values), generator)
        shares = shares_of(labels, classes)
        return _blended(values, values[partner], share), *others, _blended(shares, shares[partner], share)


@final
@dataclass(frozen=True)
class CutMix(_BetaMixing):
    """A box of each image is its partner's, and labels are shared by area (Yun et al. 2019)."""

    def apply(self, columns: Columns, classes: int, generator: Generator) -> Columns:
        """The other columns stay as they are. ``DefinitionError`` where the first one has no images."""
        images, *others, labels = columns
        if images.ndim != 4:
            raise DefinitionError(
                f"CutMix of examples of shape {images.shape[1:]}", "it cuts images", "use Mixup, or leave it out"
            )
        share, partner = self._drawn(len(images), generator)
        height, width = images.shape[2:]
        (top, bottom), (left, right) = (_side(length, share, generator) for length in (height, width))
        mixed = images.copy()
        mixed[:, :, top:bottom, left:right] = images[partner, :, top:bottom, left:right]
        # The box may stick out: what counts is what is seen.
        kept = 1 - (bottom - top) * (right - left) / (height * width)
        shares = shares_of(labels, classes)
        return mixed, *others, _blended(shares, shares[partner], kept)


def _side(length: int, share: float, generator: Generator) -> tuple[int, int]:
    """One side of a box that takes 1 - share of the area, its middle uniform over the image, cut at the border."""
    half = int(length * float(np.sqrt(1 - share))) // 2
    middle = int(generator.integers(length))
    return max(middle - half, 0), min(middle + half, length)
