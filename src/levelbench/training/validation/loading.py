"""Whether a dataset is the same whenever it is loaded: each run of a task loads it anew, in a process of its own.

The one idea: what is drawn without a seed while data is loaded makes another test split of each run, and no figure of
any of them shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from levelbench.training.datasets.base import Dataset
from levelbench.training.validation.probes import Finding, failed, not_tried, passed

__all__ = ["MOST_BYTES", "loading"]

MOST_BYTES = 4 * 2**30
"""The size of a split, or of a dataset, up to which a check compares what is in it."""
_TITLE = "loading"
_SPLITS = ("train", "validation", "test")


def loading(dataset: Dataset, again: Callable[[], Dataset]) -> Iterator[Finding]:
    """Loaded a second time, every split has the same examples in the same order."""
    arrays = [column for name in _SPLITS for column in getattr(dataset, name).columns if isinstance(column, np.ndarray)]
    size = sum(column.nbytes for column in arrays)
    if size > MOST_BYTES:
        yield not_tried(_TITLE, f"{size / 2**30:.1f} GiB are too much to load twice in a check")
        return
    other = again()
    for name in _SPLITS:
        wrong = _parted(name, dataset, other)
        if wrong:
            do = "let load() depend on the files alone: split by a rule, or draw from a generator with a fixed seed"
            yield failed(_TITLE, f"loaded twice, {wrong}", do)
            return
    yield passed(_TITLE, "loaded twice, it is the same")


def _parted(name: str, dataset: Dataset, other: Dataset) -> str:
    """In what a split differs from the same one of another load; of rows made when asked for, by their number alone."""
    first, second = getattr(dataset, name), getattr(other, name)
    if len(first) != len(second):
        return f"the {name} split has {len(first)} and {len(second)} examples"
    if len(first.columns) != len(second.columns):
        return f"the {name} split has {len(first.columns)} and {len(second.columns)} columns"
    for at, (mine, its) in enumerate(zip(first.columns, second.columns, strict=True)):
        if not (isinstance(mine, np.ndarray) and isinstance(its, np.ndarray)):
            continue
        if mine.dtype != its.dtype or mine.shape != its.shape or not np.array_equal(_bits(mine), _bits(its)):
            return f"column {at} of the {name} split is another"
    return ""


def _bits(column: np.ndarray) -> np.ndarray:
    """The column's bytes, so that a NaN equals itself."""
    return np.ascontiguousarray(column).view(np.uint8)
