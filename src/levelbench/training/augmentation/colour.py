"""Changes the colours of raw images: brightness, contrast and saturation, each by a random factor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DefinitionError
from levelbench.training.augmentation.draws import random
from levelbench.training.augmentation.inplace import InPlace
from levelbench.training.augmentation.pixels import parts

__all__ = ["ColourJitter"]

_BRIGHTNESS, _CONTRAST, _SATURATION = 8, 9, 10
# ITU-R BT.601's luma, as PIL and torchvision have it.
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)


@final
@dataclass(frozen=True)
class ColourJitter(InPlace):
    """Brightness, contrast and saturation, in this order, each by a factor uniform in [1 - x, 1 + x].

    A factor blends the image with another: black for brightness, its mean grey for contrast, its greys for saturation
    (torchvision's definitions; hue is left alone). Values are rounded once, at the end.
    """

    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0

    def __post_init__(self) -> None:
        if not all(0 <= each <= 1 for each in (self.brightness, self.contrast, self.saturation)):
            raise DefinitionError(repr(self), "a factor would be negative", "choose values from 0 to 1")

    def change(self, images: NDArray[Any], seeds: NDArray[np.uint64]) -> None:
        """Images uint8 of one channel or three; ``DefinitionError`` for others."""
        if images.dtype != np.uint8 or images.shape[1] not in (1, 3):
            raise DefinitionError(
                f"ColourJitter of {images.dtype} images of {images.shape[1]} channels",
                "it knows raw grey and RGB images, uint8",
                "put it before what normalises, or leave it out",
            )
        for some in parts(images):
            images[some] = self._changed(images[some].astype(np.float32), seeds[some])

    def _changed(self, images: NDArray[np.float32], seeds: NDArray[np.uint64]) -> NDArray[np.float32]:
        """The same, rounded."""
        if self.brightness:
            images *= _factors(seeds, _BRIGHTNESS, self.brightness)
            np.clip(images, 0, 255, out=images)
        if self.contrast:
            _blend(images, _grey(images).mean(axis=(2, 3), keepdims=True), _factors(seeds, _CONTRAST, self.contrast))
        if self.saturation:
            _blend(images, _grey(images), _factors(seeds, _SATURATION, self.saturation))
        return np.rint(images, out=images)


def _factors(seeds: NDArray[np.uint64], salt: int, spread: float) -> NDArray[np.float32]:
    """Uniform in [1 - spread, 1 + spread], shape (n, 1, 1, 1)."""
    factors = (1 - spread + 2 * spread * random(seeds, salt)).astype(np.float32)
    return factors.reshape(-1, 1, 1, 1)


def _grey(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Luma, (n, 1, h, w)."""
    if images.shape[1] == 1:
        return images
    red, green, blue = (images[:, at : at + 1] * _LUMA[at] for at in range(3))
    grey: NDArray[np.float32] = red + green + blue
    return grey


def _blend(images: NDArray[np.float32], other: NDArray[np.float32], factor: NDArray[np.float32]) -> None:
    """``factor`` times the images and the rest of the other, in place."""
    mixed = images * factor + other * (1 - factor)
    np.clip(mixed, 0, 255, out=images)
