"""Changes the size of images: to a fixed one, to one that grows with training, of a random part of the image.

The one idea: bilinear interpolation is a weighted sum of few rows, then of few columns. Summed in a fixed order, tap by
tap, it gives each image the same bits whatever it is in a block with, which a matrix product would not.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DefinitionError
from levelbench.training.augmentation.base import Augmentation
from levelbench.training.augmentation.draws import random
from levelbench.training.augmentation.pixels import images_of, parts

__all__ = ["ProgressiveResize", "RandomResizedCrop", "Resize", "resized"]

_ATTEMPTS = 10
_AREA, _RATIO, _TOP, _LEFT = 100, 200, 6, 7


def _taps(source: int, target: int, antialias: bool) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Which places a new place is made of, and their weights: both (taps, target); weights add up to one.

    Places are middles of pixels (PyTorch's ``align_corners=False``). With ``antialias`` the triangle widens to the
    scale when an image shrinks, so that every pixel counts.
    """
    scale = source / target
    reach = max(scale, 1.0) if antialias else 1.0
    middle = (np.arange(target) + 0.5) * scale
    if not antialias:
        # At the border the first and last pixels go on outwards.
        middle = np.clip(middle, 0.5, source - 0.5)
    first = np.floor(middle - reach + 0.5).astype(np.int64)
    places = first[None] + np.arange(ceil(2 * reach) + 1)[:, None]
    weights = np.maximum(0.0, 1.0 - np.abs((places + 0.5 - middle) / reach))
    weights[(places < 0) | (places >= source)] = 0.0
    weights /= weights.sum(axis=0)
    used = weights.any(axis=1)
    return np.clip(places, 0, source - 1)[used], weights[used].astype(np.float32)


def _along(images: NDArray[Any], target: int, axis: int, antialias: bool) -> NDArray[np.float32]:
    """Interpolated along one axis."""
    places, weights = _taps(images.shape[axis], target, antialias)
    shape = [1] * 4
    shape[axis] = target
    result = np.zeros((*images.shape[:axis], target, *images.shape[axis + 1 :]), np.float32)
    for place, weight in zip(places, weights, strict=True):
        result += images.take(place, axis=axis) * weight.reshape(shape)
    return result


def _as(values: NDArray[np.float32], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Of the type that the images had: whole numbers are rounded."""
    return np.clip(np.rint(values), 0, 255).astype(np.uint8) if dtype == np.uint8 else values


def resized(images: NDArray[Any], height: int, width: int, antialias: bool = True) -> NDArray[Any]:
    """Images (n, c, h, w) as (n, c, height, width), bilinear, of the same type; a new array."""
    if images.shape[2:] == (height, width):
        return images.copy()
    result = np.empty((*images.shape[:2], height, width), images.dtype)
    for some in parts(images):
        result[some] = _as(_along(_along(images[some], height, 2, antialias), width, 3, antialias), images.dtype)
    return result


@final
@dataclass(frozen=True)
class Resize(Augmentation):
    """Every image to ``height`` x ``width``, bilinear (``torch.nn.functional.interpolate``'s, antialiased or not)."""

    height: int
    width: int
    antialias: bool = True

    def __post_init__(self) -> None:
        if min(self.height, self.width) < 1:
            raise DefinitionError(repr(self), "it leaves no pixel", "choose a height and a width >= 1")

    def apply(self, images: NDArray[Any], seeds: NDArray[np.uint64]) -> NDArray[Any]:
        """Draws nothing."""
        return resized(images_of(images, "Resize"), self.height, self.width, self.antialias)


@final
@dataclass(frozen=True)
class ProgressiveResize(Augmentation):
    """Square images that grow from ``start`` to ``end`` pixels a side, between two shares of training.

    Sizes are multiples of ``step``, and change between epochs. The network must take images of any size.
    """

    start: int
    end: int
    begins: float = 0.0
    ends: float = 1.0
    step: int = 4

    def __post_init__(self) -> None:
        if min(self.start, self.end, self.step) < 1 or not 0 <= self.begins < self.ends <= 1:
            raise DefinitionError(
                repr(self), "it is no growth", "choose sizes >= 1 and shares of training, begins < ends, from 0 to 1"
            )

    def size(self, progress: float) -> int:
        """Pixels a side at this share of training."""
        done = min(max((progress - self.begins) / (self.ends - self.begins), 0.0), 1.0)
        if done in (0.0, 1.0):
            return self.end if done else self.start
        return max(self.step, round((self.start + (self.end - self.start) * done) / self.step) * self.step)

    def at(self, progress: float) -> Augmentation:
        """To the size of that share of training."""
        size = self.size(progress)
        return Resize(size, size)

    def apply(self, images: NDArray[Any], seeds: NDArray[np.uint64]) -> NDArray[Any]:
        """To the last size."""
        return Resize(self.end, self.end).apply(images, seeds)


@final
@dataclass(frozen=True)
class RandomResizedCrop(Augmentation):
    """A random part of each image, resized to ``size`` x ``size`` (Szegedy et al. 2015, section 6; torchvision's rule).

    Its area is a uniform share of the image between the two of ``scale``, the logarithm of width / height uniform
    between those of ``ratio``; of ten draws the first that fits is taken, else the largest part in the middle whose
    ratio is allowed. Bilinear without antialiasing.
    """

    size: int
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        if self.size < 1 or not 0 < self.scale[0] <= self.scale[1] <= 1 or not 0 < self.ratio[0] <= self.ratio[1]:
            raise DefinitionError(repr(self), "there is no such part", "choose 0 < low <= high, and areas up to 1")

    def boxes(self, height: int, width: int, seeds: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Top, left, height and width of each example's part, shape (n, 4)."""
        parts = np.empty((len(seeds), 2), np.int64)
        low, high = self.ratio
        # What is left where nothing fits: the whole of the side that is too short.
        parts[:] = min(height, round(width / low)), min(width, round(height * high))
        missing = np.ones(len(seeds), bool)
        for attempt in range(_ATTEMPTS):
            area = self.scale[0] + random(seeds, _AREA + attempt) * (self.scale[1] - self.scale[0])
            ratio = np.exp(log(low) + random(seeds, _RATIO + attempt) * (log(high) - log(low)))
            wide = np.rint(np.sqrt(area * height * width * ratio)).astype(np.int64)
            tall = np.rint(np.sqrt(area * height * width / ratio)).astype(np.int64)
            fits = missing & (wide > 0) & (wide <= width) & (tall > 0) & (tall <= height)
            parts[fits] = np.stack([tall, wide], axis=1)[fits]
            missing &= ~fits
            if not missing.any():
                break
        room = np.array([height, width]) - parts
        draws = np.stack([random(seeds, _TOP), random(seeds, _LEFT)], axis=1)
        corner = np.where(missing[:, None], room // 2, np.floor(draws * (room + 1)).astype(np.int64))
        return np.concatenate([corner, parts], axis=1)

    def apply(self, images: NDArray[Any], seeds: NDArray[np.uint64]) -> NDArray[Any]:
        """Images (n, c, size, size)."""
        images = images_of(images, "RandomResizedCrop")
        boxes = self.boxes(images.shape[2], images.shape[3], seeds)
        result = np.empty((*images.shape[:2], self.size, self.size), images.dtype)
        for some in parts(images):
            top, left, tall, wide = boxes[some].T
            rows = _lerp(images[some], top, tall, self.size, 2)
            result[some] = _as(_lerp(rows, left, wide, self.size, 3), images.dtype)
        return result


def _lerp(
    images: NDArray[Any], start: NDArray[np.int64], length: NDArray[np.int64], target: int, axis: int
) -> NDArray[np.float32]:
    """``length`` places from ``start`` on of each image, (n,) both, as ``target`` places between them."""
    middle = (np.arange(target) + 0.5) * (length[:, None] / target)
    place = np.clip(middle - 0.5, 0.0, length[:, None] - 1.0)
    low = np.minimum(place.astype(np.int64), np.maximum(length[:, None] - 2, 0))
    share = (place - low).astype(np.float32)
    high = np.minimum(low + 1, length[:, None] - 1) + start[:, None]
    low += start[:, None]
    shape = [len(images), 1, 1, 1]
    shape[axis] = target
    left = np.take_along_axis(images, low.reshape(shape), axis).astype(np.float32)
    right = np.take_along_axis(images, high.reshape(shape), axis)
    left += (right - left) * share.reshape(shape)
    return left
