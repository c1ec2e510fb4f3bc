"""The augmentations: moved, mirrored, covered, recoloured, resized and mixed images.

Bilinear interpolation is a weighted sum of few rows, then of few columns. Summed in a fixed order, tap by tap, it gives
each image the same bits whatever it shares a block with, which a matrix product would not. A mixture has one
permutation and one share a batch, drawn from the seed, the epoch and the step.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import ceil, log
from typing import Any, Literal, final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from levelbench.errors import DataError, DefinitionError
from levelbench.training.augmentation.base import (
    Augmentation,
    InPlace,
    Mixing,
    frames,
    images_of,
    keep,
    mirror,
    move,
    parts,
    random,
    uniform,
)

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
        return self.mode == "reflect"

    def most(self, shape: tuple[int, ...]) -> int:
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
        mirror(images, np.flatnonzero(self.chosen(seeds)))


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
