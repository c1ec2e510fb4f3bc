"""Checkpoints: files from which training resumes as if it had never been interrupted.

A checkpoint holds everything that the next step depends on, including the state of the framework's random generators.
On the CPU, resumed training is bitwise identical to uninterrupted training, and saving a checkpoint changes nothing.
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
    """A run's progress: key and seed, steps and samples done, nanoseconds by phase, and its measurements so far."""

    key: str
    seed: int
    step: int
    samples: int
    totals_ns: dict[str, int]
    evaluations: list[Evaluation]
    losses: list[float]
    step_times_ns: list[int]
    settings: dict[str, str] = {}
    """The files of settings that the recipe had read, by their paths from the task's folder with their SHA-256."""


@dataclass(frozen=True)
class Snapshot:
    """A run's progress, and arrays named ``parameter/NAME``, ``buffer/...``, ``optimizer/...`` and ``draws/``."""

    facts: RunPosition
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def of(self, kind: str) -> dict[str, NDArray[Any]]:
        """The arrays of one kind, by name."""
        prefix = f"{kind}/"
        return {name.removeprefix(prefix): value for name, value in self.arrays.items() if name.startswith(prefix)}


def checkpoint_of(record: Path) -> Path:
    """The checkpoint of a record file."""
    return record.with_suffix(_SUFFIX)


def part_of(checkpoint: Path, step: int, rank: int) -> Path:
    """The file for another rank's part of ``checkpoint``, which is the first rank's own, at the same step."""
    return checkpoint.with_name(f"{checkpoint.name.removesuffix(_SUFFIX)}.step-{step}-of-{rank}{_SUFFIX}")


def record_of(checkpoint: Path) -> Path:
    """The record that a checkpoint belongs to."""
    return checkpoint.with_name(f"{checkpoint.name.removesuffix(_SUFFIX)}.jsonl")


def remove_all(record: Path, key: str, seed: int) -> None:
    """Remove all checkpoints with this key and seed from the store of ``record``, because one of the runs is done.

    Drafts left behind by a killed process are removed as well.
    """
    for each in record.parent.parent.glob(f"*/{key[:8]}-s{seed}-*{_SUFFIX}"):
        each.unlink(missing_ok=True)
    for draft in record.parent.parent.glob(f"*/.{key[:8]}-s{seed}-*{_SUFFIX}.new"):
        if not _is_being_written(draft):
            draft.unlink(missing_ok=True)


def _is_being_written(draft: Path) -> bool:
    """Whether the run that a draft belongs to is still going on. A rank's part belongs to the run as a whole."""
    whole = draft.name.removeprefix(".").removesuffix(".new").removesuffix(_SUFFIX)
    record = draft.with_name(f"{re.sub(r'[.]step-[0-9]+-of-[0-9]+$', '', whole)}.jsonl")
    try:
        with record.open("rb") as file:
            return locks.is_held(file.fileno())
    except OSError:
        return False


def save(path: Path, snapshot: Snapshot) -> None:
    """Write a checkpoint atomically; an earlier file of that name stays until the new one is on disk."""
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
            f"a checkpoint in {path}", str(error), "free some disk space, or train without --checkpoint"
        ) from error


@dataclass(frozen=True)
class Saving:
    """Where and how often a run's checkpoints are saved; each replaces the one before. ``write`` writes one."""

    path: Path
    every: Evaluate
    key: str
    write: Callable[[Path, Snapshot], None] = save
    settings: Mapping[str, str] = field(default_factory=dict)


def load(path: Path) -> Snapshot:
    """Read a checkpoint without executing anything in it.

    :raises DataError: when the file is damaged or not a checkpoint.
    """
    try:
        # Opened here because NumPy leaves a file open if it cannot read the archive.
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        facts = msgspec.json.decode(arrays.pop(_FACTS).tobytes(), type=RunPosition)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error, msgspec.MsgspecError) as error:
        raise DataError(
            f"the checkpoint {path}", f"it cannot be read ({_why(error)})", "remove it; the run then starts again"
        ) from error
    return Snapshot(facts, arrays)


def settings_of(path: Path) -> dict[str, str]:
    """The files of settings of the run that wrote a checkpoint; :func:`load` says what is wrong with a damaged one."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            return msgspec.json.decode(file[_FACTS].tobytes(), type=RunPosition).settings
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error, msgspec.MsgspecError):
        return {}


def _why(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    # NumPy's own message for a file that is not an archive is the advice to unpickle it.
    return "it is not an archive of arrays" if isinstance(error, ValueError) else str(error)


def _plain(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    for name, value in arrays.items():
        if value.dtype.kind not in "biufc":
            raise DataError(f"a checkpoint of {name!r}", f"its dtype is {value.dtype}", "use a NumPy dtype")
    return dict(arrays)
