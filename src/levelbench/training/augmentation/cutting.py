"""Cutout: a square of each image is covered (DeVries & Taylor 2017, "Improved regularization ... with cutout")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DefinitionError
from levelbench.training.augmentation.draws import uniform
from levelbench.training.augmentation.inplace import InPlace
from levelbench.training.augmentation.pixels import frames, keep, parts

__all__ = ["Cutout"]

_ROW, _COLUMN = 4, 5


@final
@dataclass(frozen=True)
class Cutout(InPlace):
    """Cover a square of ``size`` pixels with ``fill``; its middle is uniform over the image, so part may lie outside.

    ``fill`` is a pixel's value where the augmentation stands: 0 is black in raw pixels, 125 about their mean.
    """

    size: int
    fill: float = 0.0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise DefinitionError(repr(self), "it covers nothing", "choose size >= 1")

    def change(self, images: NDArray[Any], seeds: NDArray[np.uint64]) -> None:
        """Images of the same size."""
        height, width = images.shape[2:]
        rows = self._outside(uniform(seeds, _ROW, 0, height - 1), height)
        columns = self._outside(uniform(seeds, _COLUMN, 0, width - 1), width)
        for some in parts(images):
            keep(images[some], frames(rows[some], columns[some], images.itemsize, np.bitwise_or), self.fill)

    def _outside(self, middle: NDArray[np.int64], length: int) -> NDArray[np.uint8]:
        """255 where a row (or column) is outside the square, 0 inside, shape (n, length)."""
        # One line for each place the middle may have.
        places = np.arange(length)
        from_start = places[None, :] - (places[:, None] - self.size // 2)
        lines = np.where((from_start >= 0) & (from_start < self.size), 0, 255).astype(np.uint8)
        return lines.take(middle, axis=0)
