"""Checkpoints: a file from which training goes on as if it had never been interrupted.

Whatever decides about the next step is kept, the state of the framework's random draws included. So
training that goes on from one is, on the CPU, bitwise what it would have been, and keeping one changes nothing.
"""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DataError, StoreError
from levelbench.records import locks
from levelbench.records.schema import Evaluation
from levelbench.training.stopping import Evaluate

_FACTS = "facts.json"
_SUFFIX = ".checkpoint.npz"


class RunPosition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a run was: its key and seed, steps and samples done, nanoseconds by phase, and what it had measured."""

    key: str
    seed: int
    step: int
    samples: int
    totals_ns: dict[str, int]
    evaluations: list[Evaluation]
    losses: list[float]
    step_times_ns: list[int]


@dataclass(frozen=True)
class Snapshot:
    """Where a run was, and arrays by ``parameter/NAME``, ``buffer/...``, ``optimizer/...``, ``draws/``."""

    facts: RunPosition
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def of(self, kind: str) -> dict[str, NDArray[Any]]:
        """The arrays of one kind by their names."""
        prefix = f"{kind}/"
        return {name.removeprefix(prefix): value for name, value in self.arrays.items() if name.startswith(prefix)}


def checkpoint_of(record: Path) -> Path:
    """The checkpoint that belongs to a record's file."""
    return record.with_suffix(_SUFFIX)


def part_of(checkpoint: Path, step: int, rank: int) -> Path:
    """What another rank than the first kept at the same step as ``checkpoint``, which is the first's own."""
    return checkpoint.with_name(f"{checkpoint.name.removesuffix(_SUFFIX)}.step-{step}-of-{rank}{_SUFFIX}")


def record_of(checkpoint: Path) -> Path:
    """The record that a checkpoint belongs to."""
    return checkpoint.with_name(f"{checkpoint.name.removesuffix(_SUFFIX)}.jsonl")


def remove_all(record: Path, key: str, seed: int) -> None:
    """Remove the checkpoints of all runs of this key and seed in the store that ``record`` is in: one is done.

    Drafts that a killed process left are removed as well.
    """
    for each in record.parent.parent.glob(f"*/{key[:8]}-s{seed}-*{_SUFFIX}"):
        each.unlink(missing_ok=True)
    for draft in record.parent.parent.glob(f"*/.{key[:8]}-s{seed}-*{_SUFFIX}.new"):
        if not _is_being_written(draft):
            draft.unlink(missing_ok=True)


def _is_being_written(draft: Path) -> bool:
    """Whether the run that a draft belongs to still goes on; of a rank's part it is the run's."""
    whole = draft.name.removeprefix(".").removesuffix(".new").removesuffix(_SUFFIX)
    record = draft.with_name(f"{re.sub(r'[.]step-[0-9]+-of-[0-9]+$', '', whole)}.jsonl")
    try:
        with record.open("rb") as file:
            return locks.is_held(file.fileno())
    except OSError:
        return False


def save(path: Path, snapshot: Snapshot) -> None:
    """Write a checkpoint: whole, or not at all; an earlier one of that name stays until this one is on the disk."""
    draft = path.with_name(f".{path.name}.new")
    facts = np.frombuffer(msgspec.json.encode(snapshot.facts), np.uint8)
    try:
        with draft.open("wb") as file:
            np.savez(file, allow_pickle=False, **{_FACTS: facts}, **_plain(snapshot.arrays))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise StoreError(
            f"a checkpoint in {path}", str(error), "make room on its disk, or train without --checkpoint"
        ) from error


@dataclass(frozen=True)
class Saving:
    """Where and how often checkpoints are kept, of which run; the newest replaces the one before.

    ``write`` puts one there.
    """

    path: Path
    every: Evaluate
    key: str
    write: Callable[[Path, Snapshot], None] = save


def load(path: Path) -> Snapshot:
    """Read a checkpoint; executes nothing.

    :raises DataError: when the file is damaged or no checkpoint.
    """
    try:
        # Opened here: NumPy leaves a file open whose archive it cannot read.
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        facts = msgspec.json.decode(arrays.pop(_FACTS).tobytes(), type=RunPosition)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error, msgspec.MsgspecError) as error:
        raise DataError(
            f"the checkpoint {path}", f"it cannot be read ({_why(error)})", "remove it: the run then starts anew"
        ) from error
    return Snapshot(facts, arrays)


def _why(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    # NumPy's own words for whatever is no archive are the advice to unpickle it.
    return "it is no archive of arrays" if isinstance(error, ValueError) else str(error)


def _plain(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    for name, value in arrays.items():
        if value.dtype.kind not in "biufc":
            raise DataError(f"a checkpoint of {name!r}", f"its dtype is {value.dtype}", "keep it in a dtype of NumPy's")
    return dict(arrays)
