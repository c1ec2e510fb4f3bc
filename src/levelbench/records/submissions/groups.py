"""Which runs an entry is made of: whole groups, as the store holds them, and nobody's choice of seeds.

The one idea: a group is all runs of one specification and source on one machine. Whoever selects only some of them is
told which are missing, and may leave them out only with a reason, which the entry then carries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from levelbench.errors import UsageError
from levelbench.records.inference.trained import runs_for_inference
from levelbench.records.reader import Record
from levelbench.records.store import Store
from levelbench.records.submissions.schema import Tuning
from levelbench.records.submissions.terms import machine_of

__all__ = ["Chosen", "choose", "records_named", "refuse_incomplete", "tried"]

_ENDED = ("done", "failed")
_SHOWN = 5


@dataclass(frozen=True)
class Chosen:
    """The runs of one entry, and those of its group in the store that are not among them (or never ended)."""

    records: list[Record] = field(default_factory=list)
    missing: list[Record] = field(default_factory=list)

    @property
    def key(self) -> str:
        """The key of their specification."""
        return self.records[0].header.key


def choose(selected: Iterable[Record], store: Store) -> list[Chosen]:
    """The groups among ``selected``, each with the runs that the store has of it beside them.

    Runs that were made only to train a network to infer with are left out, unless nothing else is selected.
    """
    groups: dict[tuple[str, str, str], dict[str, Record]] = {}
    for record in selected:
        groups.setdefault(_group(record), {})[_id(record)] = record
    aside = runs_for_inference(store.path)
    if all(record.header.id in aside for members in groups.values() for record in members.values()):
        aside = frozenset()
    found = []
    for group, members in groups.items():
        all_of_it = _without({**_in_store(store, group), **members}, aside)
        if not members.keys() & all_of_it.keys():
            continue
        ended = [record for path, record in all_of_it.items() if path in members and record.status in _ENDED]
        chosen = {_id(record) for record in ended}
        found.append(Chosen(ended, [record for path, record in all_of_it.items() if path not in chosen]))
    return found


def _without(group: dict[str, Record], aside: frozenset[str]) -> dict[str, Record]:
    """A group without the runs ``aside``; one of them counts where it took the place of its seed among others."""
    seeds = {record.header.seed for record in group.values() if record.header.id not in aside}
    return {
        path: record
        for path, record in group.items()
        if record.header.id not in aside or (seeds and record.header.seed not in seeds)
    }


def _group(record: Record) -> tuple[str, str, str]:
    return record.header.key, record.header.source.whole, machine_of(record.header.environment)


def _id(record: Record) -> str:
    """Copies of one record in two folders are one run."""
    return f"{record.header.id}-{record.header.seed}-{record.header.started}"


def _in_store(store: Store, group: tuple[str, str, str]) -> dict[str, Record]:
    found = store.records(f"[key={group[0]}]")
    return {_id(record): record for record in found if _group(record) == group}


def refuse_incomplete(chosen: Chosen, because: str | None) -> None:
    """``UsageError`` if runs of the group are left out, or never ended, without a reason."""
    if not chosen.records:
        found = f"none of its {len(chosen.missing)} {_runs(len(chosen.missing))} came to an end"
        do = "give the command that made them again: it finishes them"
        raise UsageError("an entry of a leaderboard", found, do)
    if because is not None or not chosen.missing:
        return
    names = [f"{each.header.id} (seed {each.header.seed}, {each.status})" for each in chosen.missing]
    more = "" if len(names) <= _SHOWN else f" and {len(names) - _SHOWN} more"
    are = "1 run of the same group is" if len(names) == 1 else f"{len(names)} runs of the same group are"
    found = f"{are} left out: {', '.join(names[:_SHOWN])}{more}"
    task = chosen.records[0].header.specification.task
    do = f"submit all ({task}[key={chosen.key[:8]}]), finish what was interrupted, or say --only-these --because TEXT"
    raise UsageError(f"an entry of {len(chosen.records)} {_runs(len(chosen.records))}", found, do)


def _runs(count: int) -> str:
    return "run" if count == 1 else "runs"


def tried(store: Store, records: Sequence[Record]) -> Tuning:
    """How much of the same task and recipe the store holds in other settings: specifications, hours, and that in words.

    Runs elsewhere are unknown, so this is the least that was tried.
    """
    specification, key = records[0].header.specification, records[0].header.key
    aside = runs_for_inference(store.path)
    rows = [
        row
        for row in store.rows(f"{specification.task}[recipe={specification.recipe}]")
        if row.key != key and row.specification.task == specification.task and row.id not in aside
    ]
    others = {row.key for row in rows}
    hours = sum(row.wall_s for row in rows) / 3600
    what = f"{specification.task}[recipe={specification.recipe}]"
    specifications = "other specification" if len(others) == 1 else "other specifications"
    counted = f"{len(others)} {specifications} of {what}, {len(rows)} {_runs(len(rows))}"
    notes = f"counted in the store of the records: {counted}"
    return Tuning(trials=len(others), hours=hours, notes=notes)


def records_named(store: Store, words: Sequence[str]) -> list[Record]:
    """The records that the words select, each once; an error if a word selects none, or one may be unreadable."""
    found: dict[Path, Record] = {}
    for word in words:
        for record in store.find(word):
            found[record.path.resolve()] = record
        store.require_readable(word)
    return list(found.values())
