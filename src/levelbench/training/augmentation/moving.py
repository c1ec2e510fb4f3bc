"""Moves and mirrors images: the usual augmentations of small ones."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DefinitionError
from levelbench.training.augmentation.borders import move
from levelbench.training.augmentation.draws import random, uniform
from levelbench.training.augmentation.inplace import InPlace
from levelbench.training.augmentation.pixels import mirror

__all__ = ["Flip", "Move", "RandomCrop", "Translate"]

_DOWN, _RIGHT, _CHOSEN = 1, 2, 3


@dataclass(frozen=True)
class Move(InPlace):
    """Shifts each image by a distance of its own; what comes into view is zero, unless it reflects."""

    @property
    def reflects(self) -> bool:
        """Whether what comes into view is the image mirrored at its border."""
        return False

    @abstractmethod
    def most(self, shape: tuple[int, ...]) -> int:
        """Pixels by which an image (c, h, w) is shifted at most, each way."""

    @final
    def distances(
        self, seeds: NDArray[np.uint64], shape: tuple[int, ...]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Pixels up and to the left for images (c, h, w), shape (n,) each."""
        most = self.most(shape)
        return uniform(seeds, _DOWN, -most, most), uniform(seeds, _RIGHT, -most, most)

    @final
    def change(self, images: NDArray[Any], seeds: NDArray[np.uint64]) -> None:
        """Images of the same size."""
        shape = images.shape[1:]
        move(images, *self.distances(seeds, shape), self.most(shape), reflect=self.reflects)


@final
@dataclass(frozen=True)
class RandomCrop(Move):
    """Pad by ``padding`` pixels on each side, then cut the image's size out at a uniform place (He et al. 2016, 4.2).

    ``mode`` is ``zero`` (black, where pixels are raw) or ``reflect``.
    """

    padding: int
    mode: Literal["zero", "reflect"] = "zero"

    def __post_init__(self) -> None:
        if self.padding < 1 or self.mode not in ("zero", "reflect"):
            raise DefinitionError(repr(self), "there is no such crop", "choose padding >= 1, zero or reflect")

    @property
    def reflects(self) -> bool:
        """As the mode says."""
        return self.mode == "reflect"

    def most(self, shape: tuple[int, ...]) -> int:
        """The padding."""
        return self.padding


@final
@dataclass(frozen=True)
class Translate(Move):
    """Shift by up to ``share`` of the longer side in each direction; what comes in is zero."""

    share: float

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise DefinitionError(repr(self), "it is no share of a side", "choose 0 < share <= 1")

    def most(self, shape: tuple[int, ...]) -> int:
        """The share in whole pixels."""
        return round(self.share * max(shape[1:]))


@final
@dataclass(frozen=True)
class Flip(InPlace):
    """Exchange left and right, with this probability."""

    probability: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise DefinitionError(repr(self), "it is no probability", "choose one from 0 to 1")

    def chosen(self, seeds: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Whether each image is exchanged, shape (n,)."""
        result: NDArray[np.bool_] = random(seeds, _CHOSEN) < self.probability
        return result

    def change(self, images: NDArray[Any], seeds: NDArray[np.uint64]) -> None:
        """Images of the same size."""
        mirror(images, np.flatnonzero(self.chosen(seeds)))
