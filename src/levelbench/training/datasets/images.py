"""imagenet, and what it consists of: images in class folders or tar shards, decoded on demand.

A column of images is an index and a ``View``, which selects the visible part of each image: in training at random by
the example's own seed, in evaluation the centre. So the same rows result whatever the batch or the number of threads.
Folders are listed and shards are read once for their headers; no image is opened for that. Shards have WebDataset's
layout (https://github.com/webdataset/webdataset): members that share a name up to its first dot are one example.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol, final

import numpy as np
import numpy.typing as npt

from levelbench.errors import DataError, MissingError, UsageError
from levelbench.training.datasets.base import Dataset, Normalisation, SomeRows, Split
from levelbench.training.datasets.places import FileSource
from levelbench.training.datasets.reading import GZIP_MAGIC, BoundedFile, members, unpacked
from levelbench.training.pixels import random

_MOST_FILE_BYTES = 1 << 26
_MOST_PIXELS = 1 << 26
_DEEP_MODES = ("I", "F")
_PNG = b"\x89PNG\r\n\x1a\n"
_FEW = 8
_TRIES = 10
_DRAWS = 2 * _TRIES + 2
Box = tuple[float, float, float, float]


class EncodedImages(Protocol):
    """Image files that are still encoded, by number."""

    def __len__(self) -> int:
        """The number of images."""

    def name(self, index: int) -> str:
        """The name of an image, for messages."""

    def read(self, index: int, most_bytes: int) -> bytes:
        """The file's bytes; one byte more than ``most_bytes`` if it is larger."""


@final
@dataclass(frozen=True)
class View:
    """The visible part of an image: ``size`` pixels square.

    Without seeds (evaluation): the shorter side is scaled to ``shorter``, and the centre is cut out. With seeds
    (training), if ``scale`` is given: a part whose share of the area is uniform in ``scale`` and whose ratio of width
    to height is log-uniform in ``ratio``, scaled to ``size`` (Szegedy et al. 2015, arXiv:1409.4842, section 6).
    ``upright`` rotates an image according to its EXIF orientation.
    """

    size: int
    shorter: int | None = None
    scale: tuple[float, float] | None = None
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    upright: bool = True

    def __post_init__(self) -> None:
        shares = self.scale is None or 0 < self.scale[0] <= self.scale[1] <= 1
        if self.size < 1 or (self.shorter or self.size) < self.size or not shares or min(self.ratio) <= 0:
            raise UsageError(
                f"a view {self}",
                "impossible sizes or shares",
                "give size <= shorter, and shares above 0 and at most 1",
            )

    def middle(self, width: int, height: int) -> Box:
        """The part used in evaluation, in pixels of the image: left, top, right, bottom."""
        edge = min(width, height) * self.size / (self.shorter or self.size)
        left, top = (width - edge) / 2, (height - edge) / 2
        return left, top, left + edge, top + edge

    def drawn(self, width: int, height: int, draws: list[float]) -> tuple[int, int, int, int]:
        """The part used in training; ``draws`` are uniform in [0, 1). After ten that do not fit, the centre."""
        least, most = self.scale or (1.0, 1.0)
        low, high = (math.log(each) for each in self.ratio)
        for area, shape in zip(draws[:_TRIES], draws[_TRIES : 2 * _TRIES], strict=True):
            piece = width * height * (least + (most - least) * area)
            ratio = math.exp(low + (high - low) * shape)
            across, down = round(math.sqrt(piece * ratio)), round(math.sqrt(piece / ratio))
            if 0 < across <= width and 0 < down <= height:
                left = int((width - across + 1) * draws[-2])
                top = int((height - down + 1) * draws[-1])
                return left, top, left + across, top + down
        across = max(1, min(width, round(height * self.ratio[1])))
        down = max(1, min(height, round(width / self.ratio[0])))
        left, top = (width - across) // 2, (height - down) // 2
        return left, top, left + across, top + down


@final
class ImageColumn:
    """Images (n, 3, size, size) uint8, RGB, decoded when they are taken.

    Without a view all images must have the size of the first. Grey images get three equal channels, an alpha channel is
    dropped. ``threads`` decode in parallel.

    :raises MissingError: when Pillow is not installed.
    """

    def __init__(self, images: EncodedImages, view: View | None = None, threads: int = 1) -> None:
        _require_pillow()
        self._images = images
        self._view = view
        self._threads = threads
        side = (view.size, view.size) if view else self._decode(0, None, None).shape[1:]
        self.shape = (len(images), 3, *side)
        self.dtype: np.dtype[Any] = np.dtype(np.uint8)

    def __len__(self) -> int:
        return len(self._images)

    def take(self, indices: npt.NDArray[np.int64], seeds: npt.NDArray[np.uint64] | None) -> npt.NDArray[np.uint8]:
        """The rows at ``indices``, (m, 3, size, size).

        :raises DataError: when one is damaged, has another size, or has more than 67 million pixels or bytes.
        """
        rows = np.empty((len(indices), *self.shape[1:]), np.uint8)
        draws = None
        if seeds is not None and self._view and self._view.scale:
            draws = np.stack([random(seeds, 0xC0B0 + salt) for salt in range(_DRAWS)], axis=1)

        def fill(row: int) -> None:
            drawn = None if draws is None else draws[row].tolist()
            rows[row] = self._decode(int(indices[row]), drawn, self.shape[1:])

        if self._threads < 2 or len(indices) < _FEW:
            for row in range(len(indices)):
                fill(row)
        else:
            with ThreadPoolExecutor(self._threads) as pool:
                # The first error stops it; leaving the block waits for the others.
                for _ in pool.map(fill, range(len(indices))):
                    pass
        return rows

    def _decode(self, index: int, draws: list[float] | None, shape: tuple[int, ...] | None) -> npt.NDArray[np.uint8]:
        """One image, (3, h, w)."""
        try:
            content = self._images.read(index, _MOST_FILE_BYTES)
        except OSError as error:
            raise self._bad(index, f"it cannot be read ({error})") from error
        if len(content) > _MOST_FILE_BYTES:
            raise self._bad(index, f"it has more than {_MOST_FILE_BYTES:,} bytes")
        try:
            pixels = self._seen(content, draws)
        except DataError as error:
            raise self._bad(index, error.found) from None
        except MemoryError:
            raise
        except Exception as error:  # Pillow's decoders raise many kinds of errors
            # Pillow names unidentified content by its buffer's address, which says nothing.
            why = "" if "BytesIO" in str(error) else f" ({error})"
            raise self._bad(index, f"it is damaged, or not a JPEG or PNG{why}") from error
        if shape is not None and pixels.shape != shape:
            found = f"it is {pixels.shape[2]}x{pixels.shape[1]}, and {shape[2]}x{shape[1]} is expected"
            raise self._bad(index, found, "Give a view, which scales all images to the same size")
        return pixels

    def _seen(self, content: bytes, draws: list[float] | None) -> npt.NDArray[np.uint8]:
        from PIL import Image, ImageOps

        _require_shallow(content)
        with Image.open(io.BytesIO(content), formats=("JPEG", "PNG")) as opened:
            if opened.width * opened.height > _MOST_PIXELS:
                raise DataError("", f"it claims {opened.width:,} x {opened.height:,} pixels", "")
            if opened.mode.startswith(_DEEP_MODES):
                raise DataError("", f"its values have more than 8 bits (mode {opened.mode})", "")
            view = self._view
            upright = ImageOps.exif_transpose(opened) if view is None or view.upright else opened
            # In two steps, as Pillow warns about a palette with transparency otherwise.
            image = (upright.convert("RGBA") if "transparency" in upright.info else upright).convert("RGB")
        if view is not None:
            # A random part is cropped; the centre is taken from the whole image, scaled.
            width, height = image.size
            box = view.middle(width, height) if draws is None else None
            image = image if draws is None else image.crop(view.drawn(width, height, draws))
            image = image.resize((view.size, view.size), Image.Resampling.BILINEAR, box=box)
        return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))

    def _bad(self, index: int, found: str, do: str = "Replace or remove the image") -> DataError:
        return DataError(f"decoding {self._images.name(index)}", found, do)


def _require_shallow(content: bytes) -> None:
    """Refuse a PNG of 16 bits per channel, of which Pillow would keep 8 (W3C PNG: the header is the first chunk)."""
    if not content.startswith(_PNG):
        return
    if content[12:16] != b"IHDR":
        raise DataError("", "it is damaged: a PNG that does not start with its header", "")
    if content[24:25] > b"\x08":
        raise DataError("", f"its values have more than 8 bits: {content[24]}", "")


def _require_pillow() -> None:
    try:
        import PIL.Image  # noqa: F401
    except ImportError:
        raise MissingError("decoding images", "Pillow is not installed", 'pip install "levelbench[images]"') from None


SUFFIXES = (".jpeg", ".jpg", ".png")
_MOST_DEPTH = 8


@final
@dataclass(frozen=True, eq=False)
class FolderIndex(EncodedImages):
    """The images of a folder: ``names`` relative to ``root``, ``labels`` (n,) int64 in the order of ``classes``."""

    root: Path
    classes: tuple[str, ...]
    names: Sequence[str]
    labels: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.names)

    def name(self, index: int) -> str:
        return str(self.root / self.names[index])

    def read(self, index: int, most_bytes: int) -> bytes:
        with (self.root / self.names[index]).open("rb") as file:
            return file.read(most_bytes + 1)

    def digest(self) -> str:
        """SHA-256 of the listing: a line per file, with its name and size, in order. No image is read."""
        return _listing_digest((name, (self.root / name).stat().st_size) for name in self.names)


def _listing_digest(files: Iterable[tuple[str, int]]) -> str:
    hashed = hashlib.sha256()
    for name, size in files:
        hashed.update(f"{name} {size}\n".encode("utf-8", "surrogateescape"))
    return hashed.hexdigest()


def index_folder(root: Path) -> FolderIndex:
    """List ``root``, without hidden files.

    Links are followed if a class folder or an image is one, even out of ``root``, because a part of a larger set often
    consists of links. Do not use a folder of links made by somebody else. Links to folders further down are ignored.

    :raises MissingError: when there is no such folder.
    :raises DataError: when it has no class folder, or one of them has no image.
    """
    try:
        classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith("."))
        images = {name: sorted(_images(root / name, name, 0)) for name in classes}
    except FileNotFoundError:
        raise MissingError(f"reading {root}", "there is no such folder", "Name a folder that exists") from None
    except OSError as error:
        raise DataError(f"reading the image folder {root}", str(error), "Make it readable") from error
    if not classes:
        raise _bad(root, "it has no class folders")
    for name, listed in images.items():
        if not listed:
            raise _bad(root, f"its class {name!r} has no image ({', '.join(SUFFIXES)})")
    labels = np.repeat(np.arange(len(classes), dtype=np.int64), [len(listed) for listed in images.values()])
    return FolderIndex(root, tuple(classes), [each for listed in images.values() for each in listed], labels)


def _images(folder: Path, below: str, depth: int) -> Iterator[str]:
    """Files that are images by name, relative to the root. Depth is limited, as a link may lead back up."""
    for entry in os.scandir(folder):
        if entry.name.startswith("."):
            continue
        if entry.is_file():
            if entry.name.lower().endswith(SUFFIXES):
                yield f"{below}/{entry.name}"
        elif entry.is_dir(follow_symlinks=False) and depth < _MOST_DEPTH:
            yield from _images(folder / entry.name, f"{below}/{entry.name}", depth + 1)


def _bad(root: Path, found: str) -> DataError:
    return DataError(f"reading the image folder {root}", found, "Give it one folder per class, with images in it")


_IMAGES = ("jpeg", "jpg", "png")
_IMAGE = "/image"  # no suffix has a slash
_LABEL = "cls"
_KIND = "a tar shard"
_MOST_LABEL_BYTES = 20
_MOST_SHARD_BYTES = 1 << 40


@final
@dataclass(frozen=True, eq=False)
class ShardIndex(EncodedImages):
    """The images of some shards: their locations and classes."""

    paths: Sequence[Path]
    keys: Sequence[str]
    labels: npt.NDArray[np.int64]
    shards: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.keys)

    def name(self, index: int) -> str:
        return f"{self.paths[self.shards[index]]}:{self.keys[index]}"

    def read(self, index: int, most_bytes: int) -> bytes:
        """The image's bytes; one byte more than ``most_bytes`` if it is larger. Thread-safe."""
        size = min(int(self.sizes[index]), most_bytes + 1)
        with self.paths[self.shards[index]].open("rb") as file:
            return os.pread(file.fileno(), size, int(self.offsets[index]))

    def digest(self) -> str:
        """SHA-256 of the listing: a line per image, with its key and size, in order. No image is read."""
        return _listing_digest(zip(self.keys, self.sizes.tolist(), strict=True))


def index_shards(paths: Sequence[Path]) -> ShardIndex:
    """Read the headers and the labels of ``paths``, in order.

    An example is an image (``key.jpg``, ``.jpeg`` or ``.png``) and its class (``key.cls``, decimal digits).

    :raises DataError: when a shard is truncated, damaged, compressed or has anything but files under plain names, an
        example lacks its image or class, or a key occurs twice.
    """
    keys: list[str] = []
    rows: list[tuple[int, int, int, int]] = []
    seen: set[str] = set()
    for number, path in enumerate(paths):
        for key, parts in _examples(path):
            if key in seen:
                raise _bad_shard(path, f"the key {key!r} occurs twice")
            seen.add(key)
            keys.append(key)
            rows.append((number, *parts))
    table = np.array(rows, np.int64).reshape(len(rows), 4)
    return ShardIndex(list(paths), keys, table[:, 3], table[:, 0].astype(np.int32), table[:, 1], table[:, 2])


def _examples(path: Path) -> list[tuple[str, tuple[int, int, int]]]:
    """The key of each example, with its image's offset and size, and its class."""
    grouped: dict[str, dict[str, tuple[int, int]]] = {}
    with unpacked(path, _KIND, _MOST_SHARD_BYTES) as stream:
        _require_plain(path)
        for member in members(stream):
            folder, _, base = member.name.rpartition("/")
            stem, _, suffix = base.partition(".")
            kind = _IMAGE if suffix.lower() in _IMAGES else suffix.lower()
            parts = grouped.setdefault(f"{folder}/{stem}" if folder else stem, {})
            if kind in parts:
                stream.fail(f"its member {member.name!r} is the second {kind.lstrip('/')} of its example")
            value = _label(stream, member.size) if kind == _LABEL else member.size
            parts[kind] = (member.offset, value)
    for key, parts in grouped.items():
        if _IMAGE not in parts or _LABEL not in parts:
            kinds = ", ".join(sorted("an image" if kind == _IMAGE else f".{kind}" for kind in parts))
            raise _bad_shard(path, f"its example {key!r} has {kinds}, and needs an image and a .{_LABEL}")
    return [(key, (*parts[_IMAGE], parts[_LABEL][1])) for key, parts in grouped.items()]


def _label(stream: BoundedFile, size: int) -> int:
    if size > _MOST_LABEL_BYTES:
        stream.fail(f"it has a class of {size:,} bytes")
    text = stream.exactly(size, "a class").strip()
    if not text.isdigit() or len(text) > 9:
        stream.fail(f"it has a class {text!r}, which is not a number")
    return int(text)


def _require_plain(path: Path) -> None:
    with path.open("rb") as file:
        if file.read(2) == GZIP_MAGIC:
            raise _bad_shard(path, "it is compressed, and random access to its images needs a plain tar")


def _bad_shard(path: Path, found: str) -> DataError:
    return DataError(f"reading {path} as {_KIND}", found, "Write the shard again, as plain tar in WebDataset's layout")


CONSTANTS: Final = Normalisation(
    (0.485, 0.456, 0.406),
    (0.229, 0.224, 0.225),
    source="mean and deviation as in torchvision's reference recipes",
)
Index = FolderIndex | ShardIndex


Part = Path | tuple[Path, ...]
"""A folder of class folders, or shards."""


@final
class Imagenet(FileSource):
    """ImageNet (ILSVRC 2012): images (n, 3, size, size) uint8, decoded when they are taken.

    Training sees a random part of 8 to 100 % of each image; evaluation sees the centre after scaling the shorter side
    to ``size`` * 256 / 224. ``validation="test"`` holds nothing out, as in DAWNBench's rules; otherwise the 50 images
    of each training class that come first by the SHA-256 of their names are the validation split. ``threads`` decode in
    parallel.
    """

    name = "imagenet"
    licence = "ImageNet terms of access"
    attribution = "O. Russakovsky et al. (2015), ImageNet Large Scale Visual Recognition Challenge, arXiv:1409.0575"
    size = "1,331,167 files, 147 GB"
    home = "https://image-net.org, after registration"
    downloads = False
    ways = (
        "Accept the terms (for research and education, not to be passed on) at image-net.org, unpack "
        "ILSVRC2012_img_train.tar and ILSVRC2012_img_val.tar into a folder that has "
        "train/ and val/ with one folder a class (or train-*.tar and val-*.tar shards in WebDataset's layout), and "
        "name that folder with --data or LEVELBENCH_DATA"
    )

    def __init__(
        self,
        size: int = 224,
        validation: Literal["held-out", "test"] = "held-out",
        classes: int = 1000,
        held_out: int = 50,
        threads: int | None = None,
    ) -> None:
        if validation not in {"held-out", "test"}:
            raise UsageError(f"validation={validation!r}", "unknown split", "give held-out or test")
        # ImageNet's few EXIF orientations are ignored, as in all published figures.
        self._seen = View(size, round(size * 256 / 224), (0.08, 1.0), upright=False)
        self._classes = classes
        self._held_out = held_out if validation == "held-out" else 0
        self._threads = threads or min(8, os.cpu_count() or 1)
        self.split_rule = (
            f"test is the official validation set; of the official training images, the {held_out} of each class that "
            "come first by the SHA-256 of their names are the validation split, the rest the training split"
            if self._held_out
            else "training is the official training set; the official validation set is both validation and test split"
        )

    def load(self, folder: Path | None = None) -> Dataset:
        """The three splits. Lists the images without reading any; ``MissingError`` also if Pillow is not installed."""
        found = self.located(folder)
        train, test = map(self._index, found.held)
        if isinstance(train, FolderIndex) and isinstance(test, FolderIndex) and train.classes != test.classes:
            other = ", ".join(sorted(set(train.classes) ^ set(test.classes))[:3])
            raise _unfit(found.held[1], f"its classes differ from those of the training images ({other}, ...)")
        kept, held = _parts(train, self._held_out)
        tested = self._split(test, np.arange(len(test), dtype=np.int64))
        splits = (self._split(train, kept), self._split(train, held) if self._held_out else tested, tested)
        # Of names and sizes, as a digest of 147 GB would take longer than many a training run.
        checksums = {"listing of train": train.digest(), "listing of val": test.digest()}
        return self.assembled(splits, self._classes, checksums, found.label, normalisation=CONSTANTS)

    def held(self, folder: Path) -> tuple[Part, Part] | None:
        """The training and test parts of ``folder`` or ``imagenet`` in it: class folders before shards."""
        for each in (folder, folder / "imagenet"):
            if os.access(each / "train", os.R_OK) and os.access(each / "val", os.R_OK):
                return each / "train", each / "val"
            if os.access(each, os.R_OK) and each.is_dir():
                train, test = (tuple(sorted(each.glob(f"{part}-*.tar"))) for part in ("train", "val"))
                if train and test:
                    return train, test
        return None

    def _index(self, part: Part) -> Index:
        index: Index = index_folder(part) if isinstance(part, Path) else index_shards(part)
        highest = int(index.labels.max(initial=0))
        if highest >= self._classes:
            raise _unfit(part, f"it has a class {highest}, and there are {self._classes}, starting at 0")
        counts = np.bincount(index.labels, minlength=self._classes)
        if not counts.all():
            raise _unfit(part, f"its class {int(counts.argmin())} has no image; there are {self._classes} classes")
        return index

    def _split(self, index: Index, rows: npt.NDArray[np.int64]) -> Split:
        return Split.of(SomeRows(ImageColumn(index, self._seen, self._threads), rows), index.labels[rows])


def _parts(index: Index, held_out: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Row numbers of the training and held-out images, ascending."""
    names = index.names if isinstance(index, FolderIndex) else index.keys
    # By file names without suffixes, which are the same in a folder and in a shard.
    own = (name.rpartition("/")[2].partition(".")[0].encode("utf-8", "surrogateescape") for name in names)
    digests = np.frombuffer(b"".join(hashlib.sha256(each).digest() for each in own), dtype="S32")
    order = np.lexsort((digests, index.labels))
    starts = np.searchsorted(index.labels[order], np.arange(index.labels.max() + 1))
    rank = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    return np.sort(order[rank >= held_out]), np.sort(order[rank < held_out])


def _unfit(part: Part, found: str) -> DataError:
    where = part if isinstance(part, Path) else part[0].parent
    return DataError(
        f"reading imagenet in {where}", found, "Give it the official images, one folder per class in train and val"
    )
