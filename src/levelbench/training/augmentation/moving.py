"""Moves and mirrors images: the usual augmentations of small ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DefinitionError
from levelbench.training.augmentation.draws import random, uniform
from levelbench.training.augmentation.inplace import InPlace
from levelbench.training.augmentation.pixels import mirrored, parts, shift, shift_reflected

__all__ = ["Flip", "RandomCrop", "Translate"]

_DOWN, _RIGHT, _CHOSEN = 1, 2, 3


@final
@dataclass(frozen=True)
class RandomCrop(InPlace):
    """Pad by ``padding`` pixels on each side, then cut the image's size out at a uniform place (He et al. 2016, 4.2).

    ``mode`` is ``zero`` (black, where pixels are raw) or ``reflect``.
    """

    padding: int
    mode: Literal["zero", "reflect"] = "zero"

    def __post_init__(self) -> None:
        if self.padding < 1 or self.mode not in ("zero", "reflect"):
            raise DefinitionError(repr(self), "there is no such crop", "choose padding >= 1, zero or reflect")

    def change(self, images: NDArray[Any], seeds: NDArray[np.uint64]) -> None:
        """Images of the same size."""
        most = self.padding
        move = shift if self.mode == "zero" else shift_reflected
        move(images, uniform(seeds, _DOWN, -most, most), uniform(seeds, _RIGHT, -most, most), most)


@final
@dataclass(frozen=True)
class Translate(InPlace):
    """Shift by up to ``share`` of the longer side in each direction; what comes in is zero."""

    share: float

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise DefinitionError(repr(self), "it is no share of a side", "choose 0 < share <= 1")

    def change(self, images: NDArray[Any], seeds: NDArray[np.uint64]) -> None:
        """Images of the same size."""
        most = round(self.share * max(images.shape[2:]))
        shift(images, uniform(seeds, _DOWN, -most, most), uniform(seeds, _RIGHT, -most, most), most)


@final
@dataclass(frozen=True)
class Flip(InPlace):
    """Exchange left and right, with this probability."""

    probability: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise DefinitionError(repr(self), "it is no probability", "choose one from 0 to 1")

    def change(self, images: NDArray[Any], seeds: NDArray[np.uint64]) -> None:
        """Images of the same size."""
        chosen = np.flatnonzero(random(seeds, _CHOSEN) < self.probability)
        for some in parts(images):
            rows = chosen[some]
            images[rows] = mirrored(images.take(rows, axis=0))
