"""What a store knows of searches for settings: which runs were trials, what they cost, and whose settings they chose.

A record says what a run did, never why. So that a claim can state its tuning, ``levelbench tune`` and ``levelbench
analyze batch-size --tune`` leave one file a search in the store's folder ``searches``; it names records by id and holds
no measurement that they do not have.
``Store.searches`` finds these files wherever a store was copied to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from glob import escape
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct, field

from levelbench.errors import RecordError

__all__ = ["Search", "SearchedSide", "TuningEffortFound", "effort_behind", "find_searches", "trial_ids"]
__all__ += ["SEARCHES", "TRIAL", "is_trial", "searches_behind", "without_trials"]

SEARCHES = "searches"
"""The name of the folder of a store that holds them."""
TRIAL = "trial"
"""In the environment of a run that a search made as a trial, so that one that was killed knows it again."""


class SearchedSide(Struct, frozen=True, forbid_unknown_fields=True):
    """One side of a search: its space, the ids of the records of its trials, and the key of the winning settings.

    ``spent_s`` are the seconds of all trials; ``winner`` is empty until the search is over. ``interrupted`` are the ids
    of attempts that were made again as one of the trials.
    """

    label: str
    space: list[str]
    trials: list[str]
    spent_s: float
    winner: str = ""
    interrupted: list[str] = field(default_factory=list)


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
        return store / SEARCHES / f"{self.task.replace('/', '-')}-{name}.json"

    def as_text(self) -> bytes:
        """The file's content."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"


def find_searches(folder: Path, task: str = "*") -> Iterator[Search]:
    """The searches for ``task``, or all of a store; ``RecordError`` for a file that is none and so may hide trials."""
    for path in sorted((folder / SEARCHES).glob("*.json" if task == "*" else f"{escape(task)}-*.json")):
        try:
            yield msgspec.json.decode(path.read_bytes(), type=Search)
        except (OSError, msgspec.MsgspecError) as error:
            do = "restore the file, or remove it and repeat the command that tuned, which writes it again"
            raise RecordError(f"the search {path}", str(error), do) from error


def trial_ids(searches: Sequence[Search]) -> frozenset[str]:
    """The ids of the records that were trials, or interrupted attempts at one."""
    return frozenset(each for search in searches for side in search.sides for each in (*side.trials, *side.interrupted))


class _Headed(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def environment(self) -> Mapping[str, Any]: ...


class _Kept(Protocol):
    @property
    def header(self) -> _Headed: ...


R = TypeVar("R", bound=_Kept)


def is_trial(record: _Kept, tried: Collection[str]) -> bool:
    """Whether a search names the record as a trial (``tried``), or made it as one and was killed before it did."""
    return record.header.id in tried or bool(record.header.environment.get(TRIAL))


def without_trials(
    records: Iterable[R], tried: Collection[str], left_out: set[str], named: Callable[[str], bool]
) -> Iterator[R]:
    """The records that are no trials (``tried``) or whose ids are ``named``; the trials, if all are.

    The ids of trials that are left out are added to ``left_out``. The trial that won was chosen for its time, and is no
    measurement of it; neither are those that lost to it.
    """
    trials: list[R] = []
    counted = False
    for record in records:
        if named(record.header.id) or not is_trial(record, tried):
            counted = True
            yield record
        else:
            trials.append(record)
    if counted:
        left_out.update(trial.header.id for trial in trials)
    else:
        yield from trials


class TuningEffortFound(Struct, frozen=True):
    """What chose the settings of a specification: the ids of the trials, and their seconds.

    ``equal`` says whether all sides had the same budget; ``None`` for a search of one side.
    """

    ids: frozenset[str]
    spent_s: float
    equal: bool | None

    @property
    def trials(self) -> int:
        """The number of trials."""
        return len(self.ids)


def searches_behind(keys: Collection[str], searches: Iterable[Search]) -> list[Search]:
    """The searches of which a side ended in one of the specifications ``keys``."""
    return [search for search in searches if any(side.winner in keys for side in search.sides)]


def effort_behind(key: str, searches: Sequence[Search]) -> TuningEffortFound | None:
    """The effort of all searches that ended in the specification ``key``; ``None`` if no search did.

    Sides had the same budget if each had as many trials, or if a budget in seconds ended the search.
    """
    ids: set[str] = set()
    spent_s, equal = 0.0, []
    behind = searches_behind({key}, searches)
    own = [side for search in behind for side in search.sides if side.winner == key]
    for side in sorted(own, key=lambda side: -len(side.trials)):
        # Another search, or a copy of the file, may have the same trials.
        if not ids.issuperset(side.trials):
            ids.update(side.trials)
            spent_s += side.spent_s
    for search in behind:
        if len(search.sides) > 1:
            counts = {len(side.trials) for side in search.sides}
            ended = search.budget_s is not None and all(
                side.spent_s >= search.budget_s or len(side.trials) == search.planned_trials for side in search.sides
            )
            equal.append(len(counts) == 1 or ended)
    return TuningEffortFound(frozenset(ids), spent_s, all(equal) if equal else None) if ids else None
