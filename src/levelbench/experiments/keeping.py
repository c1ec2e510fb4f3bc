"""Checkpoints of a team of ranks: each keeps its own state, and one counts only where all have written theirs.

The first rank's file is the checkpoint. It is put there last, once the others' parts of that step are on
the disk, and the parts of the step before go away after it; so whenever all are killed, the file that is there has all
its parts beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.distributed.ranks import Ranks
from levelbench.errors import DataError
from levelbench.training.checkpoints import Snapshot, load, part_of, save

__all__ = ["Keeper"]

_OBSERVED = "observed"
Observed = Mapping[str, tuple[str, Sequence[float]]]


class Keeper:
    """Writes and reads the checkpoints of one rank."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks, self._rank = ranks, ranks.communicator.rank
        self._observed: dict[str, tuple[str, list[float]]] = {}
        self._last: Path | None = None
        """This rank's newest part; the first rank has none."""

    def observed(self, taken: Observed) -> None:
        """Remember what this rank has observed: a checkpoint holds all of it, as a new process begins its file anew."""
        for name, (unit, values) in taken.items():
            self._observed.setdefault(name, (unit, []))[1].extend(values)

    def write(self, path: Path, snapshot: Snapshot) -> None:
        """Put the checkpoint of all ranks at ``path``. Collective; ``StoreError`` where a rank cannot write its part.

        What the ranks observed up to now must have been given to :meth:`observed`.
        """
        whole = replace(snapshot, arrays={**snapshot.arrays, **self._arrays()})
        part = part_of(path, snapshot.facts.step, self._rank)
        if self._rank:
            save(part, whole)
        self._ranks.communicator.barrier()
        self._ranks.decide(lambda: save(path, whole))
        if self._last not in (None, part):
            self._last.unlink(missing_ok=True)
        self._last = part if self._rank else None

    def read(self, path: Path | None) -> tuple[Path | None, Snapshot | None]:
        """The checkpoint at the first rank's ``path``, and this rank's part of it. Collective.

        ``DataError`` where it cannot be read, or is of another step.
        """
        read: list[Snapshot] = []

        def look() -> tuple[str, int] | None:
            if path is None:
                return None
            read.append(load(path))
            return str(path), read[0].facts.step

        found = self._ranks.decide(look)
        if found is None:
            return None, None
        name, step = found
        if self._rank:
            read.append(self._part(Path(name), step))
        return Path(name), read[0]

    def _part(self, path: Path, step: int) -> Snapshot:
        part, do = part_of(path, step, self._rank), f"remove {path}: the run then starts anew"
        try:
            found = load(part)
        except DataError as error:
            # Without its part the first rank's file would still be gone on from.
            raise DataError(error.asked, error.found, do) from error
        if found.facts.step != step:
            raise DataError(f"the checkpoint {part}", "it is of another step", do)
        return found

    def went_on(self, snapshot: Snapshot) -> None:
        """Go on with what this rank had observed."""
        self._observed = {}
        self._ranks.go_on(_observed_in(snapshot.of(_OBSERVED)))

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {
            f"{_OBSERVED}/{unit}|{name}": np.array(values, np.float64)
            for name, (unit, values) in self._observed.items()
        }


def _observed_in(arrays: Mapping[str, NDArray[Any]]) -> dict[str, tuple[str, list[float]]]:
    found = {}
    for key, values in arrays.items():
        unit, _, name = key.partition("|")
        found[name] = unit, values.tolist()
    return found
