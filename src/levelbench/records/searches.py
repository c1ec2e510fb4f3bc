"""What a store knows of searches for settings: which runs were trials, what they cost, and whose settings they chose.

A record says what a run did, never why. So that a claim can state its tuning, ``levelbench tune`` leaves one file a
search in the store's folder ``searches``; it names records by id and holds no measurement that they do not have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
from msgspec import Struct, field

from levelbench.errors import RecordError

__all__ = ["Search", "SearchedSide", "TuningEffortFound", "effort_behind", "find_searches", "trial_ids"]
__all__ += ["without_trials"]

_FOLDER = "searches"


class SearchedSide(Struct, frozen=True, forbid_unknown_fields=True):
    """One side of a search: its space, the ids of the records of its trials, and the key of the winning settings.

    ``spent_s`` are the seconds of all trials; ``winner`` is empty until the search is over.
    """

    label: str
    space: list[str]
    trials: list[str]
    spent_s: float
    winner: str = ""


class Search(Struct, frozen=True, forbid_unknown_fields=True):
    """A search: the task, how settings were proposed, the budget of each side, and its sides.

    ``planned_trials`` and ``budget_s`` (``None`` without one) hold for each side. ``seed`` is that of all trials, and
    ``fresh`` are the seeds on which the winners are measured.
    """

    task: str
    sampler: str
    seed: int
    planned_trials: int
    budget_s: float | None
    fresh: list[int]
    sides: list[SearchedSide] = field(default_factory=list)

    def path_in(self, store: Path, name: str) -> Path:
        """Where the file of the search ``name`` is in ``store``."""
        return store / _FOLDER / f"{self.task.replace('/', '-')}-{name}.json"

    def as_text(self) -> bytes:
        """The file's content."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"


def find_searches(folder: Path) -> Iterator[Search]:
    """All searches in a store; ``RecordError`` for a file that is none, since leaving it out would hide trials."""
    for path in sorted((folder / _FOLDER).glob("*.json")):
        try:
            yield msgspec.json.decode(path.read_bytes(), type=Search)
        except (OSError, msgspec.MsgspecError) as error:
            do = "restore the file, or remove it and repeat the command levelbench tune, which writes it again"
            raise RecordError(f"the search {path}", str(error), do) from error


def trial_ids(searches: Sequence[Search]) -> frozenset[str]:
    """The ids of the records that were trials."""
    return frozenset(each for search in searches for side in search.sides for each in side.trials)


class _Headed(Protocol):
    @property
    def id(self) -> str: ...


class _Kept(Protocol):
    @property
    def header(self) -> _Headed: ...


R = TypeVar("R", bound=_Kept)


def without_trials(records: Iterable[R], tried: Collection[str], left_out: set[str]) -> Iterator[R]:
    """The records that are no trials (``tried``), whose ids are added to ``left_out``; the trials, if all are.

    The trial that won was chosen for its time, and is no measurement of it; neither are those that lost to it.
    """
    trials: list[R] = []
    counted = False
    for record in records:
        if record.header.id not in tried:
            counted = True
            yield record
        else:
            trials.append(record)
    if counted:
        left_out.update(trial.header.id for trial in trials)
    else:
        yield from trials


class TuningEffortFound(Struct, frozen=True):
    """What chose the settings of a specification: the number of trials, and their seconds.

    ``equal`` says whether all sides had the same budget; ``None`` for a search of one side.
    """

    trials: int
    spent_s: float
    equal: bool | None


def effort_behind(key: str, searches: Sequence[Search]) -> TuningEffortFound | None:
    """The effort of all searches that ended in the specification ``key``; ``None`` if no search did.

    Sides had the same budget if each had as many trials, or if a budget in seconds ended the search.
    """
    trials, spent_s, equal = 0, 0.0, []
    for search in searches:
        own = [side for side in search.sides if side.winner == key]
        if not own:
            continue
        trials += sum(len(side.trials) for side in own)
        spent_s += sum(side.spent_s for side in own)
        if len(search.sides) > 1:
            counts = {len(side.trials) for side in search.sides}
            ended = search.budget_s is not None and all(
                side.spent_s >= search.budget_s or len(side.trials) == search.planned_trials for side in search.sides
            )
            equal.append(len(counts) == 1 or ended)
    return TuningEffortFound(trials, spent_s, all(equal) if equal else None) if trials else None
