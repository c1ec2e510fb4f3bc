"""Checks the content of a loaded dataset, and describes what it consists of.

A checksum says that the bytes are the expected ones, not that they make sense. Labels in range, no empty class, no NaN,
every image decodable: this is checked example by example, in blocks, so that a dataset that does not fit into memory
can be checked too.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
import numpy.typing as npt

from levelbench.errors import DataError
from levelbench.measure.statistics.distributions import ChiSquared, chi_squared_test
from levelbench.training.datasets.base import Column, Dataset, Normalisation, Split

_BLOCK = 512
Report = Callable[[int, int], None]


def _report(report: Report, before: int, total: int, rows: int) -> None:
    report(before + rows, total)


def _splits(dataset: Dataset) -> dict[str, Split]:
    """Splits by name; if validation and test are the same split, only under the latter name."""
    named = dataset.splits()
    if dataset.validation is dataset.test:
        del named["validation"]
    return named


def class_counts(split: Split, classes: int) -> npt.NDArray[np.int64] | None:
    """Examples per class, (classes,), of the labels in range; ``None`` if labels are not classes, (n,)."""
    labels = split.labels
    if (
        classes < 2
        or split.targets != 1
        or not isinstance(labels, np.ndarray)
        or labels.ndim != 1
        or labels.dtype.kind not in "iu"
    ):
        return None
    # Only labels in range: a single label of 10^12 would make a table of that length.
    return np.bincount(labels[(labels >= 0) & (labels < classes)], minlength=classes)


def evenness(counts: npt.NDArray[np.int64]) -> ChiSquared:
    """Pearson's test of whether equally likely classes give such ``counts``."""
    return chi_squared_test(counts.tolist(), [counts.sum() / len(counts)] * len(counts))


def faults(dataset: Dataset, report: Report = lambda done, total: None) -> list[str]:
    """What is wrong with the content, a sentence each. ``report`` is called with the rows done and the total."""
    found: list[str] = []
    splits = _splits(dataset)
    total = sum(map(len, splits.values()))
    done = 0
    for name, split in splits.items():
        found += [f"the {name} split {each}" for each in _label_faults(split, dataset.classes)]
        counted = class_counts(split, dataset.classes) is not None
        for number, column in enumerate(split.columns):
            holds_labels = number >= len(split.columns) - split.targets and not counted and dataset.classes >= 2
            wrong = _column_fault(
                column, partial(_report, report, done, total), dataset.classes if holds_labels else None
            )
            if wrong:
                found.append(f"the {name} split's column {number} {wrong}")
        done += len(split)
    return found + _shape_faults(dataset, splits)


def _label_faults(split: Split, classes: int) -> list[str]:
    if not len(split):
        return ["has no examples"]
    counts = class_counts(split, classes)
    if counts is None:
        return []
    labels = split.labels
    wrong = int(np.count_nonzero((labels < 0) | (labels >= classes)))
    empty = np.flatnonzero(counts == 0).tolist()
    return [
        *([f"has labels outside 0 to {classes - 1}: {wrong:,}"] if wrong else []),
        *([f"has no example of {_listed(empty)}"] if empty else []),
    ]


def _listed(classes: list[int]) -> str:
    if len(classes) == 1:
        return f"class {classes[0]}"
    return f"{len(classes):,} classes: {', '.join(map(str, classes[:5]))}{', ...' if len(classes) > 5 else ''}"


def _column_fault(column: Column, report: Callable[[int], None], classes: int | None = None) -> str | None:
    """Read all rows and return the first fault. ``classes`` is given for columns of integer labels of any width."""
    held = isinstance(column, np.ndarray) and not isinstance(column, np.memmap)
    if held and column.dtype.kind != "f" and classes is None:
        return None
    done = 0
    try:
        for rows in _blocks(column):
            flat = rows.reshape(len(rows), -1)
            if rows.dtype.kind == "f" and not np.isfinite(rows).all():
                bad = np.flatnonzero(~np.isfinite(flat).all(axis=1))
                return f"has values that are not finite, first in row {done + int(bad[0])}"
            if classes is not None and rows.dtype.kind in "iu":
                bad = np.flatnonzero(((flat < 0) | (flat >= classes)).any(axis=1))
                if len(bad):
                    return f"has labels outside 0 to {classes - 1}, first in row {done + int(bad[0])}"
            done += len(rows)
            report(done)
    except DataError as error:
        return f"cannot be read: {error.asked}: {error.found}"
    return None


def _blocks(column: Column) -> Iterator[npt.NDArray[Any]]:
    for first in range(0, len(column), _BLOCK):
        indices = np.arange(first, min(first + _BLOCK, len(column)), dtype=np.int64)
        if isinstance(column, np.ndarray):
            yield np.asarray(column[first : first + _BLOCK])
        else:
            yield column.take(indices, None)


def _shape_faults(dataset: Dataset, splits: dict[str, Split]) -> list[str]:
    found = []
    first, *others = ([(tuple(each.shape[1:]), str(each.dtype)) for each in split.columns] for split in splits.values())
    if any(first != other for other in others):
        found.append("the splits have columns of different shapes or types")
    return found + _constant_faults(dataset.normalisation, tuple(dataset.train.inputs.shape[1:]))


def _constant_faults(constants: Normalisation | None, shape: tuple[int, ...]) -> list[str]:
    if constants is None:
        return []
    found, means, deviations = [], len(constants.mean), len(constants.std)
    if means not in (1, *shape[:1]) or deviations != means:
        found.append(f"the normalisation has {means} means and {deviations} deviations for rows of shape {shape}")
    if not all(math.isfinite(each) for each in constants.mean):
        found.append("the normalisation has a mean that is not finite")
    if not all(math.isfinite(each) and each > 0 for each in (*constants.std, constants.highest)):
        found.append("the normalisation divides by a number that is not finite and above 0")
    return found


@final
@dataclass(frozen=True)
class Moments:
    """Mean and population standard deviation of the first column's raw values, by channel if there are any."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


def moments(split: Split, report: Callable[[int], None] = lambda rows: None) -> Moments | None:
    """Of a split's first column, in float64; ``None`` if it is empty or its values are not quantities."""
    column = split.inputs
    if column.dtype.kind not in "fu" or 0 in column.shape:
        return None
    channels = len(column.shape) > 2
    count, total, squares = 0, np.zeros(1), np.zeros(1)
    done = 0
    for rows in _blocks(column):
        values = rows.astype(np.float64)
        axes = (0, *range(2, values.ndim)) if channels else None
        count += values.size // (values.shape[1] if channels else 1)
        total = total + values.sum(axis=axes)
        squares = squares + np.square(values).sum(axis=axes)
        done += len(rows)
        report(done)
    mean = total / count
    std = np.sqrt(np.maximum(squares / count - mean**2, 0.0))
    return Moments(tuple(np.atleast_1d(mean).tolist()), tuple(np.atleast_1d(std).tolist()))


@final
@dataclass(frozen=True)
class Duplicates:
    """Examples whose first columns are equal byte for byte: ``within`` a split, the surplus; ``across``, by pair."""

    within: dict[str, int]
    across: dict[str, int]


def duplicates(dataset: Dataset) -> Duplicates | None:
    """Equal inputs, by SHA-256; ``None`` for columns whose rows are made on demand."""
    splits = _splits(dataset)
    if not all(isinstance(split.inputs, np.ndarray) for split in splits.values()):
        return None
    digests = {
        name: [hashlib.sha256(np.ascontiguousarray(row).data).digest() for row in split.inputs]
        for name, split in splits.items()
    }
    kinds = {name: set(each) for name, each in digests.items()}
    pairs = [(a, b) for at, a in enumerate(kinds) for b in list(kinds)[at + 1 :]]
    return Duplicates(
        {name: len(digests[name]) - len(each) for name, each in kinds.items()},
        {f"{a} and {b}": sum(digest in kinds[a] for digest in digests[b]) for a, b in pairs},
    )
