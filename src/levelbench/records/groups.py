"""Runs of one specification, together: what a row of a comparison is made of.

A group is named by what tells it from the others that are shown (``digits[framework=torch]``), so a
label is short in a short comparison and never ambiguous.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from levelbench.records.reader import Record
from levelbench.records.schema import Specification
from levelbench.records.selection import Value, format_item
from levelbench.records.summary import RunSummary, summarise

__all__ = ["RunGroup", "group_runs", "labels_of"]

_PARTS = ("recipe", "framework", "device")
_TARGET = ("metric", "split", "direction", "low", "high")
_RULES = ("crossing", "clock", "evaluate_every", "budget_epochs", "budget_s", "budget_samples", "budget_j", "plateau")
_TEAM = frozenset({"scheme", "engine", "communicator", "scaling", "lr_scale"})
"""What a run of one process has not: no reason to show it beside one. Nor a scheme's own settings beside another."""


@dataclass(frozen=True)
class RunGroup:
    """Runs of one specification and source that came to an end (done or failed), in the order of their giving.

    ``unfinished`` holds those that were interrupted or still run: an interruption says nothing about the recipe, so
    they are no replicates, and they are kept so that nobody overlooks them. ``repeats`` holds those of a seed of which
    another run counts: they share its luck and its batches, and tell how the machine varies, not how the recipe does.
    """

    label: str
    key: str
    specification: Specification
    runs: tuple[RunSummary, ...]
    unfinished: tuple[RunSummary, ...] = ()
    source_digest: str = ""
    repeats: tuple[RunSummary, ...] = ()

    @property
    def n(self) -> int:
        """How many runs came to an end."""
        return len(self.runs)

    @property
    def reached(self) -> int:
        """How many of them reached the target."""
        return sum(run.reached for run in self.runs)

    def times(self) -> list[float | None]:
        """Seconds to accuracy, one a run; ``None`` for a run that never reached the target."""
        return [run.time_to_accuracy_s for run in self.runs]

    def given_up(self) -> list[float]:
        """For how many seconds each run that never reached the target had tried, in the order of its ``None``.

        ``math.inf`` for a run that is hopeless: had one waited for ever, it would not have arrived.
        """
        return [math.inf if run.hopeless else run.given_up_s or 0.0 for run in self.runs if not run.reached]

    def own(self, records: Iterable[Record]) -> list[Record]:
        """Those of ``records`` that are this group's runs, its unfinished ones among them."""
        paths = {run.path for run in (*self.runs, *self.unfinished, *self.repeats)}
        return [record for record in records if record.header.key == self.key and str(record.path) in paths]


def group_runs(runs: Iterable[RunSummary | Record]) -> list[RunGroup]:
    """The groups of ``runs`` (records are summarised under their own rules), in the order of first meeting.

    Runs are of one group if they have one key, one source (what an edited task does is another thing) and are read on
    one clock (which is no part of a key). A group of which no run has come to an end is none. A run counts once: of
    several of one id the first does, and of several of one seed that are done the earliest.
    """
    once: dict[tuple[str, str, str], RunSummary] = {}
    for run in runs:
        summary = summarise(run) if isinstance(run, Record) else run
        once.setdefault((summary.id, summary.key, summary.clock), summary)
    members: dict[tuple[str, str, str], list[RunSummary]] = {}
    for summary in once.values():
        members.setdefault((summary.key, summary.source_digest, summary.clock), []).append(summary)
    members = {key: group for key, group in members.items() if any(map(_ended, group))}
    specifications = [group[0].specification for group in members.values()]
    labels = labels_of(specifications, [source for _, source, _ in members])
    found = []
    for ((key, source, _), group), specification, label in zip(members.items(), specifications, labels, strict=True):
        finished, unfinished = filter(_ended, group), tuple(run for run in group if not _ended(run))
        counted, repeats = _one_a_seed(tuple(finished))
        found.append(RunGroup(label, key, specification, counted, unfinished, source, repeats))
    return found


def _one_a_seed(runs: Sequence[RunSummary]) -> tuple[tuple[RunSummary, ...], tuple[RunSummary, ...]]:
    """The runs that count, and those that repeat the seed of an earlier one. A failure counts, whatever came of it."""
    first: dict[int, RunSummary] = {}
    for run in sorted((run for run in runs if run.status == "done"), key=lambda run: (run.started, run.id)):
        first.setdefault(run.seed, run)
    repeats = tuple(run for run in runs if run.status == "done" and first[run.seed] is not run)
    return tuple(run for run in runs if run not in repeats), repeats


def _ended(run: RunSummary) -> bool:
    return run.status in ("done", "failed")


def labels_of(specifications: Sequence[Specification], sources: Sequence[str] = ()) -> list[str]:
    """The shortest ``task[name=value,...]`` for each: the values that differ among those of the same task.

    ``sources`` are the digests of the tasks' texts, one a specification (or none at all).
    """
    views = [
        _view(each, source) for each, source in zip(specifications, sources or [""] * len(specifications), strict=True)
    ]
    kinds: dict[str, dict[str, set[tuple[bool, Value]]]] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for specification, view in zip(specifications, views, strict=True):
        for name, value in view.items():
            # A switch is no number, though True == 1.
            kinds.setdefault(specification.task, {}).setdefault(name, set()).add((isinstance(value, bool), value))
            counts[specification.task, name] += 1
    rivals = Counter(each.task for each in specifications)
    labels = []
    for specification, view in zip(specifications, views, strict=True):
        task = specification.task
        told = {
            n: v
            for n, v in view.items()
            if len(kinds[task][n]) > 1 or (counts[task, n] < rivals[task] and n not in _TEAM and "." not in n)
        }
        same_task = [v for each, v in zip(specifications, views, strict=True) if each.task == task]
        implied = _implied(same_task) if "recipe" in told else set()
        labels.append(format_item(task, {name: value for name, value in told.items() if name not in implied}))
    return labels


def _implied(views: Sequence[Mapping[str, Value]]) -> set[str]:
    """What the recipe's name says already: settings that other recipes have not, and the rules that came with it.

    A value that differs between runs of one recipe is never among them.
    """
    names = {name for view in views for name in view}
    own = {name for name in names if sum(name in view for view in views) < len(views)} | {"crossing", "budget_epochs"}
    return {
        name
        for name in own
        if all(len({view.get(name) for view in group}) == 1 for group in _by_recipe(views).values())
    }


def _by_recipe(views: Sequence[Mapping[str, Value]]) -> dict[Value, list[Mapping[str, Value]]]:
    groups: dict[Value, list[Mapping[str, Value]]] = {}
    for view in views:
        groups.setdefault(view["recipe"], []).append(view)
    return groups


def _view(specification: Specification, source: str) -> dict[str, Value]:
    """All that can tell a specification from another of its task, in the order in which labels show it."""
    view: dict[str, Value] = {name: getattr(specification, name) for name in _PARTS}
    view |= dict(sorted(specification.settings.items()))
    view |= specification.team()
    view["target"] = specification.target.threshold
    view |= {name: getattr(specification.target, name) for name in _TARGET}
    view |= {name: "none" if (value := getattr(specification, name)) is None else value for name in _RULES}
    return view | {"source": source[:8]} if source else view
