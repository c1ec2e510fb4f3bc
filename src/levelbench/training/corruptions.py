"""Corruptions and shifts of images, to see what a network does on data that nobody tuned it on.

Kinds and severities (1 to 5) of noise, blur, brightness and contrast are those of CIFAR-10-C (Hendrycks & Dietterich
2019, "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations", and the script that made it,
``make_cifar_c.py``); their constants are for images of 32x32. Shifts and rotations are ours, because that benchmark has
none. Everything is made here from a seed, in NumPy alone: results are the same on every machine, and are not those of
the published files of CIFAR-10-C, whose random draws are other ones.

Images are (n, channels, height, width) float32 from 0 (black) to 1, and so are results.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DefinitionError, UnknownNameError

__all__ = ["CORRUPTIONS", "SEVERITIES", "Corruption", "corrupted", "shifted_pixels"]

Images = NDArray[np.float32]
SEVERITIES = (1, 2, 3, 4, 5)
_AT_ONCE = 1000
"""Images that are corrupted together; each such part has its own generator, so that memory stays bounded."""


@dataclass(frozen=True)
class Corruption:
    """One kind: its ``strengths`` by severity, what a strength is, and the function that makes it.

    ``make`` gets images, a strength and a generator. The result is clipped to 0 to 1 afterwards.
    """

    name: str
    strengths: tuple[float, ...]
    meaning: str
    make: Callable[[Images, float, np.random.Generator], NDArray[Any]]

    def words(self, severity: int, shape: tuple[int, ...]) -> str:
        """What was made of images of this shape, in words: "Gaussian noise of deviation 0.08"."""
        by = shifted_pixels(self.strengths[severity - 1], shape)
        pixels = " by ".join(str(each) for each in dict.fromkeys(by))
        # Whole pixels are another share of the side than the one that was asked for.
        shares = dict.fromkeys(f"{100 * each / side:.3g}" for each, side in zip(by, shape[-2:], strict=True))
        words = {"pixels": f"{pixels} pixel{'s' * (pixels != '1')}", "share": f"{' by '.join(shares)} %"}
        return self.meaning.format(self.strengths[severity - 1], **words)

    def same_as(self, severity: int, shape: tuple[int, ...]) -> int:
        """The lowest severity that makes the same of images of this shape: shifts are by whole pixels."""
        if self.make is not _shift:
            return severity
        by = [shifted_pixels(each, shape) for each in self.strengths]
        return by.index(by[severity - 1]) + 1


def _noise(images: Images, deviation: float, generator: np.random.Generator) -> NDArray[Any]:
    return images + np.float32(deviation) * generator.standard_normal(images.shape, np.float32)


def _shot(images: Images, photons: float, generator: np.random.Generator) -> NDArray[Any]:
    return generator.poisson(images * photons) / photons


def _impulse(images: Images, share: float, generator: np.random.Generator) -> NDArray[Any]:
    """Salt and pepper: this share of the values becomes 0 or 1 with equal chance."""
    drawn = generator.random(images.shape, np.float32)
    return np.where(drawn < share / 2, 0.0, np.where(drawn < share, 1.0, images))


def _blur(images: Images, sigma: float, generator: np.random.Generator) -> NDArray[Any]:
    """A Gaussian kernel, cut at four deviations; the outermost pixels are repeated beyond the border."""
    reach = int(4.0 * sigma + 0.5)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    kernel /= kernel.sum()
    for axis in (2, 3):
        width = [(0, 0)] * 4
        width[axis] = (reach, reach)
        padded, size = np.pad(images, width, mode="edge"), images.shape[axis]
        blurred = np.zeros_like(images)
        for at, weight in enumerate(kernel):
            blurred += np.float32(weight) * padded.take(range(at, at + size), axis=axis)
        images = blurred
    return images


def _contrast(images: Images, factor: float, generator: np.random.Generator) -> NDArray[Any]:
    """Each channel of each image is drawn towards its own mean."""
    means = images.mean(axis=(2, 3), keepdims=True)
    return np.asarray((images - means) * np.float32(factor) + means)


def _brightness(images: Images, added: float, generator: np.random.Generator) -> NDArray[Any]:
    """The value of HSV grows by ``added``, up to 1, with hue and saturation kept: the pixel is scaled."""
    value = images.max(axis=1, keepdims=True)
    brighter = np.minimum(value + np.float32(added), 1.0)
    return np.asarray(np.where(value > 0, images * (brighter / np.where(value > 0, value, 1.0)), brighter))


def _shift(images: Images, share: float, generator: np.random.Generator) -> NDArray[Any]:
    """Moved by this share of the side, at least a pixel, in one of eight directions; black comes in."""
    directions = [(y, x) for y in (-1, 0, 1) for x in (-1, 0, 1) if y or x]
    height, width = images.shape[2:]
    down, right = shifted_pixels(share, images.shape)
    chosen = generator.integers(len(directions), size=len(images))
    found = np.zeros_like(images)
    for at, (y, x) in enumerate(directions):
        some = np.flatnonzero(chosen == at)
        to_y, from_y = _overlap(y * down, height)
        to_x, from_x = _overlap(x * right, width)
        found[some, :, to_y, to_x] = images[some, :, from_y, from_x]
    return found


def shifted_pixels(share: float, shape: tuple[int, ...]) -> tuple[int, int]:
    """By how many pixels down and right a shift by ``share`` of the side moves images of this shape."""
    height, width = shape[-2:]
    return max(1, round(share * height)), max(1, round(share * width))


def _overlap(by: int, size: int) -> tuple[slice, slice]:
    """Where an axis that moves ``by`` lands, and where that comes from."""
    return slice(max(0, by), min(size, size + by)), slice(max(0, -by), min(size, size - by))


def _rotation(images: Images, degrees: float, generator: np.random.Generator) -> NDArray[Any]:
    """Turned about the middle, to either side with equal chance; bilinear, with black beyond the border."""
    signs = generator.integers(2, size=len(images)) * 2 - 1
    found = np.empty_like(images)
    for sign in (-1, 1):
        some = signs == sign
        found[some] = rotated(images[some], sign * degrees)
    return found


def rotated(images: Images, degrees: float) -> NDArray[Any]:
    """Images turned about their middle by ``degrees`` from the second axis of a picture towards the first."""
    height, width = images.shape[2:]
    middle_y, middle_x = (height - 1) / 2, (width - 1) / 2
    y, x = np.mgrid[:height, :width]
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    from_y = cosine * (y - middle_y) + sine * (x - middle_x) + middle_y
    from_x = -sine * (y - middle_y) + cosine * (x - middle_x) + middle_x
    top, left = np.floor(from_y).astype(np.int64), np.floor(from_x).astype(np.int64)
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    found = np.zeros_like(images)
    for down in (0, 1):
        for right in (0, 1):
            weight = (1 - np.abs(from_y - top - down)) * (1 - np.abs(from_x - left - right))
            rows, columns = np.clip(top + down + 1, 0, height + 1), np.clip(left + right + 1, 0, width + 1)
            found += padded[:, :, rows, columns] * weight.astype(np.float32)
    return found


_PUBLISHED = (
    Corruption("noise", (0.04, 0.06, 0.08, 0.09, 0.10), "Gaussian noise of deviation {:g}", _noise),
    Corruption("shot", (500, 250, 100, 75, 50), "Poisson noise of {:g} photons at full brightness", _shot),
    Corruption("impulse", (0.01, 0.02, 0.03, 0.05, 0.07), "{:.0%} of the values black or white", _impulse),
    Corruption("blur", (0.4, 0.6, 0.7, 0.8, 1.0), "Gaussian blur of {:g} pixels", _blur),
    Corruption("contrast", (0.75, 0.5, 0.4, 0.3, 0.15), "contrast times {:g}", _contrast),
    Corruption("brightness", (0.05, 0.1, 0.15, 0.2, 0.3), "{:g} brighter", _brightness),
)
_OURS = (
    Corruption("shift", (0.04, 0.07, 0.11, 0.14, 0.18), "shifted by {pixels} ({share} of the side)", _shift),
    Corruption("rotation", (5, 10, 15, 20, 30), "rotated by {:g} degrees to either side", _rotation),
)
CORRUPTIONS = {each.name: each for each in (*_PUBLISHED, *_OURS)}
"""All kinds by name."""


def corrupted(images: Images, name: str, severity: int, seed: int = 0) -> Images:
    """Corrupted copies, of the same shape; each kind and severity has its own random numbers from ``seed``.

    :raises UnknownNameError: for an unknown kind.
    :raises DefinitionError: for another severity than 1 to 5, or values that are not from 0 to 1.
    """
    if name not in CORRUPTIONS:
        raise UnknownNameError("corruption", name, CORRUPTIONS)
    if severity not in SEVERITIES:
        raise DefinitionError(f"{name} of severity {severity}", "severities are 1 to 5", "choose one of them")
    if images.ndim != 4 or not (len(images) and images.min() >= 0 and images.max() <= 1):
        wrong = f"an array of shape {images.shape}, or values beyond 0 to 1"
        raise DefinitionError(f"corrupted images ({name})", wrong, "give (n, channels, height, width) from 0 to 1")
    kind, found = CORRUPTIONS[name], np.empty(images.shape, np.float32)
    for part, start in enumerate(range(0, len(images), _AT_ONCE)):
        generator = np.random.default_rng([seed, zlib.crc32(name.encode()), severity, part])
        made = kind.make(images[start : start + _AT_ONCE], kind.strengths[severity - 1], generator)
        found[start : start + _AT_ONCE] = np.clip(made, 0.0, 1.0)
    return found
