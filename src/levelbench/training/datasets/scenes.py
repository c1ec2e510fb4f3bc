"""Made scenes: Fashion-MNIST's images as objects on larger canvases, with the boxes around them or each pixel's class.

No free photographs with boxes come in a package, so these are composed, and records say that they are synthetic.
Objects of a split of Fashion-MNIST are only on canvases of that split, so that no held-out object was ever trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from levelbench.training.datasets.base import Dataset, Split
from levelbench.training.datasets.idx import FashionMnist
from levelbench.training.datasets.places import FileLocation, cache_folder
from levelbench.training.pixels import Seeds, example_seeds, uniform, words

SIDE: Final = 64
"""Height and width of a canvas."""
MOST: Final = 5
"""Objects on a canvas, at most."""
_SIZES = {"train": 4_000, "validation": 500, "test": 500}
_VISIBLE = 32  # grey levels from which on a pixel belongs to its object
_TRIES = 8
_OVERLAP = 0.25

Pixels = NDArray[np.uint8]
Numbers = NDArray[np.int64]


class Scenes(FashionMnist):
    """Columns: canvases (n, 1, 64, 64) uint8, boxes (n, 5, 4) float32 and their classes (n, 5) int64.

    A box is left, top, right, bottom in pixels from the upper left corner. Classes are Fashion-MNIST's plus 1; rows of
    fewer than five objects are filled up with boxes of zeros of class 0. About one canvas in six is empty.
    """

    name = "fashion-scenes"
    mirror = "LEVELBENCH_FASHION_MNIST_URL"
    split_rule = (
        "objects on test canvases are from the official test set, those on validation canvases from the validation "
        "split of fashion-mnist, those on training canvases from the rest, drawn by SplitMix64: 0 to 5 a canvas, at "
        "their own size or at half of it, each at the first of eight places where no two boxes share more than a "
        "quarter of the smaller one, else left out"
    )

    def load(self, folder: Path | None = None) -> Dataset:
        """The canvases, painted anew each time from the images and a fixed seed."""
        clothes = super().load(folder)
        splits = [
            self.columns(*compose(part.inputs[:, 0], part.labels, _SIZES[name], at))
            for at, (name, part) in enumerate(clothes.splits().items())
        ]
        where = f"composed of images of {clothes.source.partition(';')[0]}"
        return self.assembled(splits, 0, clothes.checksums, where, normalisation=clothes.normalisation, synthetic=True)

    def columns(self, canvases: Pixels, masks: Pixels, boxes: NDArray[np.float32], classes: Numbers) -> Split:
        """What a split has of what :func:`compose` returns."""
        return Split((canvases, boxes, classes), 2)

    def packaged(self) -> Sequence[FileLocation]:
        """Also where fashion-mnist is kept, which has the same files."""
        return [FileLocation("the cache of fashion-mnist", cache_folder() / FashionMnist.name), *super().packaged()]


class Masks(Scenes):
    """Columns: the same canvases, and the class of each pixel (n, 64, 64) int64, 0 where no object is."""

    name = "fashion-masks"

    def columns(self, canvases: Pixels, masks: Pixels, boxes: NDArray[np.float32], classes: Numbers) -> Split:
        return Split((canvases, masks.astype(np.int64)), 1)


def padded_boxes(
    boxes: NDArray[np.float32], classes: Numbers, counts: Numbers, width: int
) -> tuple[NDArray[np.float32], Numbers]:
    """Objects of all images, one after another, as (n, width, 4) and (n, width): rows of zeros follow the last one.

    ``boxes`` are (objects, 4), ``classes`` (objects,) from 1, ``counts`` (n,) the objects of each image.
    """
    places = np.arange(width) < counts[:, None]
    filled, kinds = np.zeros((len(counts), width, 4), np.float32), np.zeros((len(counts), width), np.int64)
    filled[places], kinds[places] = boxes, classes
    return filled, kinds


def compose(
    images: Pixels, labels: Numbers, count: int, seed: int
) -> tuple[Pixels, Pixels, NDArray[np.float32], Numbers]:
    """``count`` canvases with some of the ``images`` (m, 28, 28) of classes ``labels`` (m,) on each.

    Also the class of each pixel plus 1, (count, 64, 64), 0 where no object is, and the boxes and their classes.
    """
    seeds = example_seeds(seed, 0, np.arange(count))
    wanted = uniform(seeds, 0, 0, MOST)
    boxes, which = np.zeros((count, MOST, 4), np.int64), np.full((count, MOST), -1)
    canvases, masks = np.zeros((count, 1, SIDE, SIDE), np.uint8), np.zeros((count, SIDE, SIDE), np.uint8)
    for at in range(MOST):
        chosen = (words(seeds, 3 * at + 1) % np.uint64(len(images))).astype(np.int64)
        small = uniform(seeds, 3 * at + 2, 0, 1) == 1
        shown = images[chosen]
        shown[small] = _halved(shown[small])
        inside = _extents(shown >= _VISIBLE)
        places = _places(words(seeds, 3 * at + 3), inside, boxes[:, :at])
        for row in np.flatnonzero((wanted > at) & (places[:, 0] >= 0)).tolist():
            left, top, right, bottom = inside[row].tolist()
            x, y = places[row].tolist()
            cut, place = shown[row, top:bottom, left:right], (slice(y, y + bottom - top), slice(x, x + right - left))
            canvases[row, 0][place][cut >= _VISIBLE] = cut[cut >= _VISIBLE]
            masks[row][place][cut >= _VISIBLE] = labels[chosen[row]] + 1
            boxes[row, at], which[row, at] = (x, y, x + right - left, y + bottom - top), labels[chosen[row]]
    placed = which >= 0
    found = padded_boxes(boxes[placed].astype(np.float32), which[placed] + 1, placed.sum(axis=1), MOST)
    return canvases, masks, *found


def _halved(images: Pixels) -> Pixels:
    """Each mean of two by two pixels, rounded down, in the upper left quarter of an image of zeros."""
    half = np.zeros_like(images)
    half[:, :14, :14] = images.reshape(-1, 14, 2, 14, 2).sum(axis=(2, 4), dtype=np.uint16) // 4
    return half


def _extents(solid: NDArray[np.bool_]) -> Numbers:
    """Left, top, right and bottom of what is true in each of (n, height, width), the last two exclusive."""
    ends = []
    for axis in (1, 2):
        line: NDArray[np.bool_] = np.asarray(solid.any(axis=axis))
        ends.append((line.argmax(axis=1), line.shape[1] - line[:, ::-1].argmax(axis=1)))
    return np.stack([ends[0][0], ends[1][0], ends[0][1], ends[1][1]], axis=1)


def _places(seeds: Seeds, inside: Numbers, earlier: Numbers) -> Numbers:
    """(n, 2): left and top of each object, clear of the ``earlier`` boxes (n, k, 4); -1 without a place."""
    sizes, found = inside[:, 2:] - inside[:, :2], np.full((len(seeds), 2), -1)
    room = np.uint64(SIDE + 1) - sizes.astype(np.uint64)
    for at in range(_TRIES):
        tried = np.stack([words(seeds, 2 * at + each) % room[:, each] for each in (0, 1)], axis=1).astype(np.int64)
        low = np.maximum(tried[:, None], earlier[..., :2])
        high = np.minimum((tried + sizes)[:, None], earlier[..., 2:])
        shared = (high - low).clip(0).prod(axis=2)
        smaller = np.minimum(sizes.prod(axis=1)[:, None], (earlier[..., 2:] - earlier[..., :2]).prod(axis=2))
        free = (shared <= _OVERLAP * smaller).all(axis=1) & (found[:, 0] < 0)
        found[free] = tried[free]
    return found
