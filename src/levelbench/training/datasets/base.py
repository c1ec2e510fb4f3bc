"""What a dataset is: three splits of inputs and labels, with the facts that a record keeps about them.

A ``DatasetSource`` is cheap to create and can say whether its files are missing; the arrays exist only in the
``Dataset`` that ``load`` returns. Splits depend on the rows alone: those of each class are ordered by the SHA-256 of
their bytes and the first are held out, which looks random and is the same for every version of every library.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, final

import numpy as np
import numpy.typing as npt

from levelbench.errors import DataError, DefinitionError

if TYPE_CHECKING:
    from levelbench.training.datasets.episodes import Environment

Progress = Callable[[int, int | None], None]
"""Called with the bytes received and the total (``None`` if unknown)."""


def silent(done_bytes: int, total_bytes: int | None) -> None:
    """Show no progress."""


class LazyColumn(Protocol):
    """Rows made on demand: decoded images, or parts of a file that is larger than memory."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, ...), as for an array."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The rows' dtype."""

    def __len__(self) -> int:
        """The number of rows."""

    def take(self, indices: npt.NDArray[np.int64], seeds: npt.NDArray[np.uint64] | None) -> npt.NDArray[Any]:
        """The rows at ``indices``. ``seeds`` has one per example in training, where crops are random; else ``None``."""


Column = npt.NDArray[Any] | LazyColumn


def rows_of(
    column: Column, indices: npt.NDArray[np.int64], seeds: npt.NDArray[np.uint64] | None = None
) -> npt.NDArray[Any]:
    """Rows of either kind of column, shape (len(indices), ...), as a new array."""
    if isinstance(column, np.ndarray):
        return np.asarray(column.take(indices, axis=0))
    return column.take(indices, seeds)


@final
class SomeRows:
    """Some rows of a column in any order; nothing is copied until they are taken."""

    def __init__(self, column: Column, chosen: npt.NDArray[np.int64]) -> None:
        self._column, self._chosen = column, chosen
        self.shape = (len(chosen), *column.shape[1:])
        self.dtype = column.dtype

    def __len__(self) -> int:
        return len(self._chosen)

    def take(self, indices: npt.NDArray[np.int64], seeds: npt.NDArray[np.uint64] | None) -> npt.NDArray[Any]:
        """The rows at ``indices`` among the chosen ones."""
        return rows_of(self._column, self._chosen[indices], seeds)


@final
@dataclass(frozen=True, eq=False)
class Split:
    """Examples as columns: arrays with a row per example, in the order of the trained network's inputs.

    First come the columns that the outputs depend on, then the last ``targets`` columns, which only the loss reads:
    labels (n,) int64 in classification. ``reference`` has one object per example for the quality alone, such as a
    sentence.

    :raises DataError: when the columns differ in length, or none is left for the outputs.
    """

    columns: tuple[Column, ...]
    targets: int = 1
    reference: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        lengths = [len(column) for column in self.columns]
        if self.reference is not None:
            lengths.append(len(self.reference))
        if len(set(lengths)) != 1 or not 0 < self.targets < len(self.columns):
            raise DataError(
                "a split of a dataset",
                f"columns of {lengths} rows, the last {self.targets} of them for the loss",
                "Give columns of one length, inputs first",
            )

    @classmethod
    def of(cls, inputs: Column, labels: npt.NDArray[np.int64]) -> Split:
        """One column of inputs and one of labels."""
        return cls((inputs, labels))

    @property
    def inputs(self) -> Any:
        """The first column."""
        return self.columns[0]

    @property
    def labels(self) -> Any:
        """The last column."""
        return self.columns[-1]

    def __len__(self) -> int:
        return len(self.columns[0])


@final
@dataclass(frozen=True)
class Normalisation:
    """(x / highest - mean) / std of a first column of uint8, by channel (axis 1); ``source`` is their origin."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    highest: float = 255.0
    source: str = ""


@final
@dataclass(frozen=True, eq=False)
class Dataset:
    """Data in its three splits, and what a record states about it.

    ``checksums`` are SHA-256 in hexadecimal by file name, of the uncompressed content; ``split_rule`` describes how the
    splits were made; ``source`` says where the bytes were read from; ``synthetic`` is true for generated data;
    ``normalisation`` is applied to a first column of raw uint8 when its rows are taken.
    """

    name: str
    train: Split
    validation: Split
    test: Split
    classes: int
    checksums: dict[str, str]
    split_rule: str
    licence: str
    source: str
    synthetic: bool = False
    normalisation: Normalisation | None = None
    environment: Environment | None = None
    """What examples come from that a network makes itself; held-out ones are then states in which episodes begin."""

    def held_out(self, name: str, seed: int, evaluation: int) -> Split:
        """A split as evaluation number ``evaluation`` of a run measures it: with an environment, drawn anew each time.

        Such a draw depends on the two numbers and the split's name, and on nothing that a run trains on.
        """
        split = self.splits()[name]
        if self.environment is None:
            return split
        return self.environment.fresh(split, (seed, list(self.splits()).index(name), evaluation))

    def splits(self) -> dict[str, Split]:
        """The splits by name."""
        return {"train": self.train, "validation": self.validation, "test": self.test}

    def sizes(self) -> dict[str, int]:
        """The number of examples in each split."""
        return {name: len(split) for name, split in self.splits().items()}

    def label_digests(self) -> dict[str, str]:
        """SHA-256 of the labels by split, in order: they differ for a score on another split.

        If there are very many labels, or they are made on demand, rows at equal distances are used.
        """
        return {name: _label_digest(split) for name, split in self.splits().items()}

    def input_digests(self, *, whole: bool = False) -> dict[str, str]:
        """SHA-256 of some inputs by split, at equal distances, or of all of them where ``whole``.

        A split whose rows are made when asked for has none, nor has one of more than 256 MiB where ``whole``.
        """
        found = {}
        for name in ("train", "validation", "test"):
            split = getattr(self, name)
            columns = _inputs(split)
            if columns is None or not len(split):
                continue
            if whole and sum(column.nbytes for column in columns) > _HASHED_BYTES:
                continue
            digest = hashlib.sha256()
            step = 1 if whole else max(1, -(-len(split) // _HASHED_INPUTS))
            for column in columns:
                digest.update(np.ascontiguousarray(column[::step]).tobytes())
            found[name] = digest.hexdigest()
        return found

    def share_trained_on(self) -> float | None:
        """The share of some validation examples whose inputs occur in the training split.

        ``None`` if rows are made on demand, or are too many to search.
        """
        trained, held = (_inputs(each) for each in (self.train, self.validation))
        if trained is None or held is None or not len(self.validation) or len(self.train) > _LOOKED_THROUGH:
            return None
        step = max(1, len(self.validation) // _HASHED_ROWS)
        looked_at = [_row(held, at) for at in range(0, len(self.validation), step)]
        seen = set(looked_at) & {_row(trained, at) for at in range(len(self.train))}
        return sum(each in seen for each in looked_at) / len(looked_at)


_LOOKED_THROUGH = 200_000
_HASHED_INPUTS = 512
_HASHED_BYTES = 256 * 2**20
"""A processor hashes so many in 0.2 to 0.6 s, after the run's clock has stopped."""


def _inputs(split: Split) -> list[npt.NDArray[Any]] | None:
    columns = [column for column in split.columns[: -split.targets] if isinstance(column, np.ndarray)]
    return columns if len(columns) == len(split.columns) - split.targets else None


def _row(columns: list[npt.NDArray[Any]], at: int) -> int:
    return hash(tuple(column[at].tobytes() for column in columns))


_HASHED_VALUES = 1 << 22
_HASHED_ROWS = 256


def _label_digest(split: Split) -> str:
    digest = hashlib.sha256(str(len(split)).encode())
    for column in split.columns[-split.targets :]:
        if isinstance(column, np.ndarray):
            step = max(1, -(-column.size // _HASHED_VALUES))
            values = column[::step]
        else:
            step = max(1, -(-len(column) // _HASHED_ROWS))
            values = column.take(np.arange(0, len(column), step, dtype=np.int64), None)
        # Equal numbers are equal labels, whatever their width.
        plain = values.astype("<i8") if values.dtype.kind in "biu" else values.astype("<f8")
        digest.update(str(plain.shape).encode() + np.ascontiguousarray(plain).tobytes())
    return digest.hexdigest()


class DatasetSource(ABC):
    """A dataset by name, wherever its files are."""

    name: str
    licence: str
    attribution: str
    split_rule: str

    @abstractmethod
    def load(self, folder: Path | None = None) -> Dataset:
        """The data, as float32 or as raw uint8 with its normalisation; ``folder`` is the user's.

        :raises MissingError: when the files are not found and cannot be fetched.
        :raises DataError: when a file is damaged or does not match its checksum.
        :raises StoreError: when files must be fetched and the cache cannot be written.
        """

    def assembled(
        self,
        splits: Iterable[Split],
        classes: int,
        checksums: Mapping[str, str],
        found: str,
        *,
        normalisation: Normalisation | None = None,
        synthetic: bool = False,
        environment: Environment | None = None,
    ) -> Dataset:
        """The dataset of a training, a validation and a test split; ``found`` says where the bytes were read from.

        :raises DefinitionError: when the class does not state its ``split_rule``.
        """
        if not hasattr(self, "split_rule"):
            do = "state it, as in split_rule = 'as published'"
            raise DefinitionError(f"the dataset {self.name!r}", f"{type(self).__name__} has no split_rule", do)
        train, validation, test = splits
        return Dataset(
            name=self.name,
            train=train,
            validation=validation,
            test=test,
            classes=classes,
            checksums=dict(checksums),
            split_rule=self.split_rule,
            licence=self.licence,
            source=f"{found}; {self.attribution}",
            synthetic=synthetic,
            normalisation=normalisation,
            environment=environment,
        )

    def checked(self, folder: Path | None = None) -> Dataset:
        """As ``load``, but reads all files again and ignores what an earlier ``load`` cached."""
        return self.load(folder)

    @abstractmethod
    def lacks(self, folder: Path | None = None) -> str | None:
        """``None`` if ``load`` has all it needs, else the reason in one line. Reads no data and uses no network."""

    def awaits(self, folder: Path | None = None) -> str | None:
        """How much ``load`` would have to download first, in words; ``None`` if nothing."""
        return None

    def where(self, folder: Path | None = None) -> str | None:
        """The place that ``load`` would read from now, in words; ``None`` if there is none. Reads no data."""
        return None

    def fetch(self, folder: Path | None = None, progress: Progress = silent) -> None:  # noqa: B027
        """Fetch the files to this machine, so that ``load`` needs no network. Nothing to do for bundled data.

        Call it before starting a clock.
        """


Pair = tuple[npt.ArrayLike, npt.ArrayLike]
"""Inputs (n, ...) and labels (n,)."""


def from_arrays(
    name: str,
    read: Callable[[], Pair | Sequence[Pair]],
    *,
    held_out: float = 0.2,
    licence: str = "not stated",
    attribution: str = "not stated",
) -> DatasetSource:
    """Arrays of your own for classification, from ``read()``, which is called on the clock of each run.

    ``read`` gives inputs (n, ...) and labels (n,), or three such pairs: training, validation and test. A single pair is
    split: of each class, the shares ``held_out`` are for validation and for the test. Inputs become float32, unscaled;
    labels may be of any type that can be sorted, and become 0, 1, ... in that order.

    :raises DefinitionError: for a share that is not above 0 and below 0.5.
    """
    if not 0 < held_out < 0.5:
        found = f"{held_out:g} would be held out twice, for validation and for the test"
        raise DefinitionError(f"the dataset {name!r}", found, "give a share above 0 and below 0.5")
    return _Arrays(name, read, held_out, licence, attribution)


@final
class _Arrays(DatasetSource):
    def __init__(
        self, name: str, read: Callable[[], Pair | Sequence[Pair]], held_out: float, licence: str, attribution: str
    ) -> None:
        self.name, self.licence, self.attribution = name, licence, attribution
        self._read, self._held_out = read, held_out
        self.split_rule = (
            f"as read() gives them, or of each class the first {held_out:g} of the rows in order of their SHA-256 for "
            "validation and the next for the test"
        )

    def load(self, folder: Path | None = None) -> Dataset:
        read = self._read()
        whole = len(read) == 2
        parts = [self._pair(part) for part in ([read] if whole else read)]
        if len(parts) not in (1, 3):
            raise self._wrong(f"{len(parts)} parts")
        classes = np.unique(np.concatenate([labels for _, labels in parts]))
        splits = [
            Split.of(inputs.astype(np.float32, copy=False), np.searchsorted(classes, labels).astype(np.int64))
            for inputs, labels in parts
        ]
        checksums = {
            f"{part}/{column}": hashlib.sha256(np.ascontiguousarray(rows).tobytes()).hexdigest()
            for part, split in zip(("all",) if whole else ("train", "validation", "test"), splits, strict=True)
            for column, rows in zip(("inputs", "labels"), split.columns, strict=True)
        }
        if whole:
            (all_,) = splits
            rows = np.ascontiguousarray(all_.inputs).reshape(len(all_), -1).view(np.uint8)
            order = stratified_split(rows, all_.labels, lambda size: (round(size * self._held_out),) * 2)
            splits = [Split.of(all_.inputs[each], all_.labels[each]) for each in order]
            if not all(len(each) for each in splits):
                raise self._wrong(f"{len(all_)} rows in {len(classes)} classes, too few to hold some of them out")
        return self.assembled(splits, len(classes), checksums, "arrays of the task file")

    def lacks(self, folder: Path | None = None) -> None:
        return None

    def _pair(self, given: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        try:
            inputs, labels = (np.asarray(each) for each in given)
        except (TypeError, ValueError) as error:
            raise self._wrong(f"{type(given).__name__} that is no pair of arrays ({error})") from error
        if inputs.ndim < 1 or labels.shape != inputs.shape[:1] or inputs.dtype.kind not in "fiub":
            shapes = f"inputs of shape {inputs.shape} in {inputs.dtype} and labels of shape {labels.shape}"
            raise self._wrong(shapes)
        if labels.dtype.kind == "f":
            raise self._wrong("labels that are fractions, and classes are expected")
        if not np.isfinite(inputs).all():
            raise self._wrong("inputs that are not finite")
        return inputs, labels

    def _wrong(self, found: str) -> DataError:
        do = "Return inputs (n, ...) and labels (n,), or three such pairs: training, validation, test"
        return DataError(f"what read() of the dataset {self.name!r} gave", found, do)


Indices = npt.NDArray[np.int64]


def stratified_split(
    rows: npt.NDArray[np.uint8], labels: npt.NDArray[Any], held_out: Callable[[int], tuple[int, ...]]
) -> tuple[Indices, ...]:
    """Row numbers of the rest, then of each held-out part; each ascending, so that file order is kept.

    ``rows`` is (n, ...) raw bytes, ``labels`` (n,). ``held_out`` maps the size of a class to the sizes of its held-out
    parts: the first rows in SHA-256 order go to the first part, the next to the second. Equal rows keep their file
    order.
    """
    digests = b"".join(hashlib.sha256(row).digest() for row in np.ascontiguousarray(rows))
    order = np.argsort(np.frombuffer(digests, dtype="S32"), kind="stable")
    ordered_labels = labels[order]
    parts: list[list[Indices]] = []
    # Not np.unique: it imports numpy.ma, and this is timed.
    for label in sorted(set(labels.tolist())):
        members = order[ordered_labels == label]
        *held, rest = np.split(members, np.cumsum(held_out(len(members))))
        parts.append([rest, *held])
    return tuple(np.sort(np.concatenate(part)) for part in zip(*parts, strict=True))


def split_by_digest(
    contents: Iterable[bytes], labels: npt.NDArray[Any] | None, held_out: Callable[[int], tuple[int, ...]]
) -> tuple[Indices, ...]:
    """As :func:`stratified_split` on the SHA-256 of each content; without labels all are of one class."""
    rows = np.frombuffer(b"".join(hashlib.sha256(each).digest() for each in contents), np.uint8).reshape(-1, 32)
    return stratified_split(rows, np.zeros(len(rows), np.int64) if labels is None else labels, held_out)


def standardise(rows: npt.NDArray[np.uint8], highest: int, mean: float, std: float) -> npt.NDArray[np.float32]:
    """``(rows / highest - mean) / std`` in float32, same shape; with two roundings, in two passes over memory."""
    inputs = np.subtract(rows, np.float32(mean * highest), dtype=np.float32)
    inputs /= np.float32(std * highest)
    return inputs
