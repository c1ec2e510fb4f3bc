"""Augmentations that keep an image's size, and can so work where the images are."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.training.augmentation.base import Augmentation
from levelbench.training.augmentation.pixels import images_of

__all__ = ["InPlace"]


@dataclass(frozen=True)
class InPlace(Augmentation):
    """Changes images of its own without making others; ``apply`` gives it copies."""

    @abstractmethod
    def change(self, images: NDArray[Any], seeds: NDArray[np.uint64]) -> None:
        """Change the images themselves: (n, c, h, w) uint8 or float32, contiguous, nobody else's."""

    def apply(self, images: NDArray[Any], seeds: NDArray[np.uint64]) -> NDArray[Any]:
        """A new array of the changed images."""
        result = images_of(images, type(self).__name__).copy()
        self.change(result, seeds)
        return result
