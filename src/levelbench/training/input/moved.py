"""Gathers the images of a split moved and mirrored already: crop and flip cost hardly more than the gather.

The one idea: each image is kept with a border around it, and its mirror image too; a crop with a flip is then one
indexed copy. An image gets there when it is first wanted, so that this work is the input's, and on its clock.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from levelbench.training.augmentation import Augmentation, Flip, RandomCrop, Translate
from levelbench.training.augmentation.borders import Bordered
from levelbench.training.augmentation.draws import words
from levelbench.training.augmentation.pixels import images_of, mirror, parts
from levelbench.training.datasets.base import Column
from levelbench.training.input.residence import is_resident

__all__ = ["Moved", "make_moved"]

_MOST_BYTES = 512 * 2**20
_Moves = tuple[RandomCrop | Translate | Flip, ...]


def make_moved(column: NDArray[Any] | Column, augment: tuple[Augmentation, ...]) -> Moved | None:
    """What does as many of the first augmentations as it can in 512 MiB; ``None`` if that is not one."""
    if not is_resident(column) or column.ndim != 4 or column.dtype not in (np.uint8, np.float32):
        return None
    for count in (2, 1):
        first = tuple(each for each in augment[:count] if isinstance(each, RandomCrop | Translate | Flip))
        flips = sum(isinstance(each, Flip) for each in first)
        # A second one of a kind would find images that are not the dataset's.
        if len(first) == count and flips <= 1 and count - flips <= 1:
            places, most, reflect = _border(column, first)
            if Bordered.bytes_of(places, column.shape[1:], column.dtype, most, reflect=reflect) <= _MOST_BYTES:
                return Moved(column, first)
    return None


@final
class Moved:
    """The rows of ``images`` (n, c, h, w) after ``augment``: a move, a flip, or one of each in any order.

    Threads may share it: two that want the same image put the same bytes in its place.
    """

    def __init__(self, images: NDArray[Any], augment: _Moves) -> None:
        self.augment = augment
        self._images, self._shape = images, images.shape[1:]
        places, most, reflect = _border(images, augment)
        self._store = Bordered(places, self._shape, images.dtype, most, reflect=reflect)
        self._there = np.zeros(places, np.bool_)

    def take(self, indices: NDArray[np.int64], seeds: NDArray[np.uint64]) -> NDArray[Any]:
        """The images at ``indices``, each changed as its seed says: a new array."""
        places, down, right = indices, np.zeros_like(indices), np.zeros_like(indices)
        for position, each in enumerate(self.augment):
            draws = words(seeds, position)
            if isinstance(each, Flip):
                chosen = each.chosen(draws)
                places = indices + len(self._images) * chosen
                # What moves and is mirrored then is a mirror image that moves the other way.
                right = np.where(chosen, -right, right)
            else:
                down, right = each.distances(draws, self._shape)
        missing = places[~self._there[places]]
        if len(missing):
            self._bring(missing)
        return self._store.read(places, down, right)

    def _bring(self, places: NDArray[np.int64]) -> None:
        """Put images in these places, and mirror images in those of the second half."""
        turned, rows = np.divmod(places, len(self._images))
        images = images_of(self._images.take(rows, axis=0), "a move")
        mirror(images, np.flatnonzero(turned))
        pieces = parts(images)
        room = self._store.alike(pieces[0].stop)
        for some in pieces:
            room.write(images[some])
            self._store.copy(places[some], room)
        self._there[places] = True


def _border(images: NDArray[Any], augment: _Moves) -> tuple[int, int, bool]:
    """Places, the most that an image moves, and whether its border reflects it."""
    places, most, reflect = len(images), 0, False
    for each in augment:
        if isinstance(each, Flip):
            places *= 2
        else:
            most, reflect = each.most(images.shape[1:]), each.reflects
    return places, most, reflect
