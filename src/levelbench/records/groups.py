"""Runs of one specification, together: what a row of a comparison is made of.

The one idea: a group is named by what tells it from the others that are shown (``digits[framework=torch]``), so a
label is short in a short comparison and never ambiguous.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from levelbench.records.reader import Record
from levelbench.records.schema import Specification
from levelbench.records.selection import Value, format_item
from levelbench.records.summary import RunSummary, summarise

__all__ = ["RunGroup", "group_runs", "labels_of"]

_PARTS = ("recipe", "framework", "device")
_RULES = ("crossing", "clock", "evaluate_every", "budget_epochs", "budget_s")


@dataclass(frozen=True)
class RunGroup:
    """Runs of one specification that came to an end (done or failed), in the order in which they were given.

    ``unfinished`` holds those that were interrupted or still run: an interruption says nothing about the recipe, so
    they are no replicates, and they are kept so that nobody overlooks them.
    """

    label: str
    key: str
    specification: Specification
    runs: tuple[RunSummary, ...]
    unfinished: tuple[RunSummary, ...] = ()

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
        """For how many seconds each run that never reached the target had tried, in the order of its ``None``."""
        return [run.given_up_s or 0.0 for run in self.runs if not run.reached]


def group_runs(runs: Iterable[RunSummary | Record]) -> list[RunGroup]:
    """The groups of ``runs`` (records are summarised under their own rules), by key, in the order of first meeting.

    A specification of which no run has come to an end makes no group.
    """
    members: dict[str, list[RunSummary]] = {}
    for run in runs:
        summary = summarise(run) if isinstance(run, Record) else run
        members.setdefault(summary.key, []).append(summary)
    members = {key: group for key, group in members.items() if any(map(_ended, group))}
    specifications = [group[0].specification for group in members.values()]
    return [
        RunGroup(
            label,
            key,
            specification,
            tuple(filter(_ended, group)),
            tuple(run for run in group if not _ended(run)),
        )
        for (key, group), specification, label in zip(
            members.items(), specifications, labels_of(specifications), strict=True
        )
    ]


def _ended(run: RunSummary) -> bool:
    return run.status in ("done", "failed")


def labels_of(specifications: Sequence[Specification]) -> list[str]:
    """The shortest ``task[name=value,...]`` for each: the values that differ among those of the same task."""
    views = [_view(each) for each in specifications]
    labels = []
    for specification, view in zip(specifications, views, strict=True):
        rivals = [v for s, v in zip(specifications, views, strict=True) if s.task == specification.task]
        differing = {name for rival in rivals for name in {*rival, *view} if rival.get(name) != view.get(name)}
        differing |= {name for a in rivals for name in a if any(name not in b or b[name] != a[name] for b in rivals)}
        told = {name: value for name, value in view.items() if name in differing}
        labels.append(format_item(specification.task, told))
    return labels


def _view(specification: Specification) -> dict[str, Value]:
    """All that can tell a specification from another of its task, in the order in which labels show it."""
    view: dict[str, Value] = {name: getattr(specification, name) for name in _PARTS}
    view |= dict(sorted(specification.settings.items()))
    view["target"] = specification.target.threshold
    view["metric"] = specification.target.metric
    view |= {name: "none" if (value := getattr(specification, name)) is None else value for name in _RULES}
    return view
