"""Augmentations: images are moved, mirrored, covered, recoloured, resized and mixed, with the same bits everywhere.

An augmentation depends only on each image and its own seed. Bilinear interpolation is a weighted sum of a few rows,
then of a few columns. Summing in a fixed order, tap by tap, gives each image the same bits whatever shares its block,
unlike a matrix product. A mixture has one permutation and one share per batch, drawn from the seed, the epoch and the
step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import ceil, log
from typing import Any, Literal, final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from levelbench.errors import DataError, DefinitionError
from levelbench.training.pixels import frames, images_of, keep, mirror, move, parts
from levelbench.training.pixels import random as random
from levelbench.training.pixels import uniform as uniform


@dataclass(frozen=True)
class Augmentation(ABC):
    """A change of each image by itself, in NumPy on the host."""

    @abstractmethod
    def apply(self, images: NDArray[Any], seeds: NDArray[np.uint64]) -> NDArray[Any]:
        """A new array of changed images: ``images`` (n, c, h, w) uint8 or float32, ``seeds`` (n,)."""

    def at(self, progress: float) -> Augmentation:
        """The augmentation at this share of training, from 0 to 1: itself, unless it changes over time."""
        return self


@dataclass(frozen=True)
class Mixing(ABC):
    """A mixture of a batch's rows with each other, after which labels are shares of classes."""

    @abstractmethod
    def apply(self, columns: tuple[NDArray[Any], ...], classes: int, generator: Generator) -> tuple[NDArray[Any], ...]:
        """New columns: the first mixed, the last float32 (n, classes) instead of int64 (n,)."""


@dataclass(frozen=True)
class InPlace(Augmentation):
    """Changes images in place; ``apply`` gives it copies."""

    @abstractmethod
    def change(self, images: NDArray[Any], seeds: NDArray[np.uint64]) -> None:
        """Change the images in place: (n, c, h, w) uint8 or float32, contiguous, not used by anything else."""

    def apply(self, images: NDArray[Any], seeds: NDArray[np.uint64]) -> NDArray[Any]:
        result = images_of(images, type(self).__name__).copy()
        self.change(result, seeds)
        return result


_DOWN, _RIGHT, _CHOSEN = 1, 2, 3


@dataclass(frozen=True)
class Move(InPlace):
    """Shifts each image by its own distance; zeros come into view, or the image reflected."""

    @property
    def reflects(self) -> bool:
        """Whether the image is mirrored at its border."""
        return False

    @abstractmethod
    def most(self, shape: tuple[int, ...]) -> int:
        """The largest shift of an image (c, h, w) in pixels, each way."""

    @final
    def distances(
        self, seeds: NDArray[np.uint64], shape: tuple[int, ...]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Shifts up and to the left in pixels for images (c, h, w), shape (n,) each."""
        most = self.most(shape)
        return uniform(seeds, _DOWN, -most, most), uniform(seeds, _RIGHT, -most, most)

    @final
    def change(self, images: NDArray[Any], seeds: NDArray[np.uint64]) -> None:
        shape = images.shape[1:]
        move(images, *self.distances(seeds, shape), self.most(shape), reflect=self.reflects)


@final
@dataclass(frozen=True)
class RandomCrop(Move):
    """Pad by ``padding`` pixels on each side, then cut out the image's size at a uniform place (He et al. 2016, 4.2).

    ``mode`` is ``zero`` (black, if pixels are raw) or ``reflect``.
    """

    padding: int
    mode: Literal["zero", "reflect"] = "zero"

    def __post_init__(self) -> None:
        if self.padding < 1 or self.mode not in ("zero", "reflect"):
            raise DefinitionError(repr(self), "impossible crop", "choose padding >= 1, and zero or reflect")

    @property
    def reflects(self) -> bool:
        return self.mode == "reflect"

    def most(self, shape: tuple[int, ...]) -> int:
        return self.padding


@final
@dataclass(frozen=True)
class Translate(Move):
    """Shift by up to ``share`` of the longer side in each direction; zeros come into view."""

    share: float

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise DefinitionError(repr(self), "impossible share", "choose 0 < share <= 1")

    def most(self, shape: tuple[int, ...]) -> int:
        return round(self.share * max(shape[1:]))


@final
@dataclass(frozen=True)
class Flip(InPlace):
    """Mirror left to right with this probability."""

    probability: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise DefinitionError(repr(self), "impossible probability", "choose one from 0 to 1")

    def chosen(self, seeds: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Whether each image is mirrored, shape (n,)."""
        result: NDArray[np.bool_] = random(seeds, _CHOSEN) < self.probability
        return result

    def change(self, images: NDArray[Any], seeds: NDArray[np.uint64]) -> None:
        mirror(images, np.flatnonzero(self.chosen(seeds)))


_ROW, _COLUMN = 4, 5


@final
@dataclass(frozen=True)
class Cutout(InPlace):
    """Cover a square of ``size`` pixels with ``fill``; its centre is uniform over the image, so part may lie outside.

    ``fill`` is a pixel value at this point of the pipeline: in raw pixels 0 is black, and 125 about their mean.
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
        # One line for each possible position of the centre.
        places = np.arange(length)
        from_start = places[None, :] - (places[:, None] - self.size // 2)
        lines = np.where((from_start >= 0) & (from_start < self.size), 0, 255).astype(np.uint8)
        return lines.take(middle, axis=0)


_BRIGHTNESS, _CONTRAST, _SATURATION = 8, 9, 10
# ITU-R BT.601's luma, as in PIL and torchvision.
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)


@final
@dataclass(frozen=True)
class ColourJitter(InPlace):
    """Brightness, contrast and saturation, in this order, each by a factor uniform in [1 - x, 1 + x].

    A factor blends the image with another: black for brightness, its mean grey for contrast, its greys for saturation
    (torchvision's definitions; hue is unchanged). Values are rounded once, at the end.
    """

    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0

    def __post_init__(self) -> None:
        if not all(0 <= each <= 1 for each in (self.brightness, self.contrast, self.saturation)):
            raise DefinitionError(repr(self), "a factor would be negative", "choose values from 0 to 1")

    def change(self, images: NDArray[Any], seeds: NDArray[np.uint64]) -> None:
        """Change uint8 images of 1 or 3 channels; ``DefinitionError`` for others."""
        if images.dtype != np.uint8 or images.shape[1] not in (1, 3):
            raise DefinitionError(
                f"ColourJitter of {images.dtype} images of {images.shape[1]} channels",
                "it needs raw grey or RGB images, uint8",
                "put it before normalisation, or leave it out",
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
    """``factor`` of the images plus 1 - ``factor`` of the other, in place."""
    mixed = images * factor + other * (1 - factor)
    np.clip(mixed, 0, 255, out=images)


_ATTEMPTS = 10
_AREA, _RATIO, _TOP, _LEFT = 100, 200, 6, 7


def _taps(source: int, target: int, antialias: bool) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The source positions and weights of each target position: both (taps, target); weights add up to one.

    Positions are pixel centres (PyTorch's ``align_corners=False``). With ``antialias`` the triangle widens to the scale
    if an image shrinks, so that every pixel counts.
    """
    scale = source / target
    reach = max(scale, 1.0) if antialias else 1.0
    middle = (np.arange(target) + 0.5) * scale
    if not antialias:
        # Beyond the border the outermost pixels are repeated.
        middle = np.clip(middle, 0.5, source - 0.5)
    first = np.floor(middle - reach + 0.5).astype(np.int64)
    places = first[None] + np.arange(ceil(2 * reach) + 1)[:, None]
    weights = np.maximum(0.0, 1.0 - np.abs((places + 0.5 - middle) / reach))
    weights[(places < 0) | (places >= source)] = 0.0
    weights /= weights.sum(axis=0)
    used = weights.any(axis=1)
    return np.clip(places, 0, source - 1)[used], weights[used].astype(np.float32)


def _resize_axis(images: NDArray[Any], target: int, axis: int, antialias: bool) -> NDArray[np.float32]:
    places, weights = _taps(images.shape[axis], target, antialias)
    shape = [1] * 4
    shape[axis] = target
    result = np.zeros((*images.shape[:axis], target, *images.shape[axis + 1 :]), np.float32)
    for place, weight in zip(places, weights, strict=True):
        result += images.take(place, axis=axis) * weight.reshape(shape)
    return result


def _to_dtype(values: NDArray[np.float32], dtype: np.dtype[Any]) -> NDArray[Any]:
    """In the images' dtype: integers are rounded."""
    return np.clip(np.rint(values), 0, 255).astype(np.uint8) if dtype == np.uint8 else values


def resized(images: NDArray[Any], height: int, width: int, antialias: bool = True) -> NDArray[Any]:
    """Images (n, c, h, w) resized to (n, c, height, width), bilinear, in the same dtype; a new array."""
    if images.shape[2:] == (height, width):
        return images.copy()
    result = np.empty((*images.shape[:2], height, width), images.dtype)
    for some in parts(images):
        result[some] = _to_dtype(
            _resize_axis(_resize_axis(images[some], height, 2, antialias), width, 3, antialias), images.dtype
        )
    return result


@final
@dataclass(frozen=True)
class Resize(Augmentation):
    """Resize to ``height`` x ``width``, bilinear (as ``torch.nn.functional.interpolate``, antialiased or not)."""

    height: int
    width: int
    antialias: bool = True

    def __post_init__(self) -> None:
        if min(self.height, self.width) < 1:
            raise DefinitionError(repr(self), "no pixels are left", "choose a height and a width >= 1")

    def apply(self, images: NDArray[Any], seeds: NDArray[np.uint64]) -> NDArray[Any]:
        return resized(images_of(images, "Resize"), self.height, self.width, self.antialias)


@final
@dataclass(frozen=True)
class ProgressiveResize(Augmentation):
    """Square images that grow from ``start`` to ``end`` pixels per side between two shares of training.

    Sizes are multiples of ``step`` and change between epochs. The network must accept images of any size.
    """

    start: int
    end: int
    begins: float = 0.0
    ends: float = 1.0
    step: int = 4

    def __post_init__(self) -> None:
        if min(self.start, self.end, self.step) < 1 or not 0 <= self.begins < self.ends <= 1:
            raise DefinitionError(
                repr(self),
                "impossible sizes or shares",
                "choose sizes >= 1 and shares of training, begins < ends, from 0 to 1",
            )

    def size(self, progress: float) -> int:
        """Pixels per side at this share of training."""
        done = min(max((progress - self.begins) / (self.ends - self.begins), 0.0), 1.0)
        if done in (0.0, 1.0):
            return self.end if done else self.start
        return max(self.step, round((self.start + (self.end - self.start) * done) / self.step) * self.step)

    def at(self, progress: float) -> Augmentation:
        """A resize to the size at this share of training."""
        size = self.size(progress)
        return Resize(size, size)

    def apply(self, images: NDArray[Any], seeds: NDArray[np.uint64]) -> NDArray[Any]:
        return Resize(self.end, self.end).apply(images, seeds)


@final
@dataclass(frozen=True)
class RandomResizedCrop(Augmentation):
    """A random part of each image, resized to ``size`` x ``size`` (Szegedy et al. 2015, section 6; torchvision's rule).

    The area is a uniform share of the image between the two of ``scale``, and the logarithm of width / height is
    uniform between those of ``ratio``. The first of ten draws that fits is used, else the largest central part with an
    allowed ratio. Bilinear without antialiasing.
    """

    size: int
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        if self.size < 1 or not 0 < self.scale[0] <= self.scale[1] <= 1 or not 0 < self.ratio[0] <= self.ratio[1]:
            raise DefinitionError(repr(self), "impossible part", "choose 0 < low <= high, and areas up to 1")

    def boxes(self, height: int, width: int, seeds: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Top, left, height and width of each example's part, shape (n, 4)."""
        parts = np.empty((len(seeds), 2), np.int64)
        low, high = self.ratio
        # The fallback if nothing fits: the whole of the side that is too short.
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
            rows = _interpolate(images[some], top, tall, self.size, 2)
            result[some] = _to_dtype(_interpolate(rows, left, wide, self.size, 3), images.dtype)
        return result


def _interpolate(
    images: NDArray[Any], start: NDArray[np.int64], length: NDArray[np.int64], target: int, axis: int
) -> NDArray[np.float32]:
    """Interpolate the ``length`` positions from ``start`` (both (n,)) of each image at ``target`` positions."""
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


def one_hot(labels: NDArray[Any], classes: int) -> NDArray[np.float32]:
    """1 at each label and 0 elsewhere, (n, classes); ``DataError`` for a label that is not a class."""
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        found = f"labels from {labels.min()} to {labels.max()}"
        raise DataError(f"mixing examples of {classes} classes", found, "correct the labels, or the number of classes")
    result = np.zeros((len(labels), classes), np.float32)
    result[np.arange(len(labels)), labels] = 1.0
    return result


def _mix_arrays(values: NDArray[Any], others: NDArray[Any], share: float) -> NDArray[np.float32]:
    kept = np.float32(share)
    result: NDArray[np.float32] = values * kept
    result += others * (np.float32(1) - kept)
    return result


@dataclass(frozen=True)
class _BetaMixing(Mixing):
    """Mixes by a share from Beta(alpha, alpha); each batch is mixed with this probability."""

    alpha: float
    probability: float = 1.0

    def __post_init__(self) -> None:
        if self.alpha <= 0 or not 0 <= self.probability <= 1:
            raise DefinitionError(repr(self), "impossible draw", "choose alpha > 0 and 0 <= probability <= 1")

    def _drawn(self, n: int, generator: Generator) -> tuple[float, NDArray[np.int64]]:
        """The share that an example keeps, and each one's partner."""
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
        shares = one_hot(labels, classes)
        return _mix_arrays(values, values[partner], share), *others, _mix_arrays(shares, shares[partner], share)


@final
@dataclass(frozen=True)
class CutMix(_BetaMixing):
    """A box in each image is replaced by its partner's, and labels are weighted by area (Yun et al. 2019)."""

    def apply(self, columns: Columns, classes: int, generator: Generator) -> Columns:
        """The other columns are unchanged. ``DefinitionError`` if the first one does not hold images."""
        images, *others, labels = columns
        if images.ndim != 4:
            raise DefinitionError(
                f"CutMix of examples of shape {images.shape[1:]}", "it needs images", "use Mixup, or leave it out"
            )
        share, partner = self._drawn(len(images), generator)
        height, width = images.shape[2:]
        (top, bottom), (left, right) = (_box_side(length, share, generator) for length in (height, width))
        mixed = images.copy()
        mixed[:, :, top:bottom, left:right] = images[partner, :, top:bottom, left:right]
        # The box may extend past the border: only the visible part counts.
        kept = 1 - (bottom - top) * (right - left) / (height * width)
        shares = one_hot(labels, classes)
        return mixed, *others, _mix_arrays(shares, shares[partner], kept)


def _box_side(length: int, share: float, generator: Generator) -> tuple[int, int]:
    """One side of a box with 1 - share of the area, its centre uniform over the image, clipped at the border."""
    half = int(length * float(np.sqrt(1 - share))) // 2
    middle = int(generator.integers(length))
    return max(middle - half, 0), min(middle + half, length)
