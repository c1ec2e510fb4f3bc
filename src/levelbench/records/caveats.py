"""What a comparison has to mention (``Caveat``), and the two groups of runs that its checks look at (``Sides``)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal

from levelbench.records.summary import RunGroup, RunSummary

if TYPE_CHECKING:
    from levelbench.measure.environment import Difference

__all__ = [
    "SHOWN",
    "Caveat",
    "Sides",
    "Weight",
    "canonical",
    "distinct_texts",
    "ended",
    "fact",
    "is_tracked",
    "kind_of",
]
__all__ += ["is_watched", "listed", "other_texts", "read_by_few", "shortened", "versions_of"]

Weight = Literal["refuse", "no verdict", "doubt", "note"]
SHOWN = 4
"""How many things of one kind a sentence names; the rest are counted."""


@dataclass(frozen=True)
class Caveat:
    """One thing that a comparison must mention: what it is about, how serious it is, and a sentence.

    ``refuse``: no comparison at all. ``no verdict``: figures without a verdict. ``doubt``: a reason to distrust the
    verdict, printed with it. ``note``: what a reader should know. The sentence has no final full stop.
    """

    subject: str
    weight: Weight
    sentence: str

    def __str__(self) -> str:
        return f"{self.weight}: {self.sentence}"


@dataclass(frozen=True)
class Sides:
    """Two groups and their runs that count, ordered by seed.

    ``across_machines`` asks for a verdict even if the machines differ.
    """

    a: RunGroup
    b: RunGroup
    across_machines: bool = False

    @cached_property
    def runs_a(self) -> list[RunSummary]:
        """The runs of ``a`` that ended."""
        return ended(self.a)

    @cached_property
    def runs_b(self) -> list[RunSummary]:
        """The runs of ``b`` that ended."""
        return ended(self.b)

    @cached_property
    def runs(self) -> list[RunSummary]:
        """The runs of both, those of ``a`` first."""
        return [*self.runs_a, *self.runs_b]

    @property
    def each(self) -> tuple[tuple[RunGroup, list[RunSummary]], ...]:
        """Each group with its runs that ended."""
        return (self.a, self.runs_a), (self.b, self.runs_b)

    @cached_property
    def one_machine(self) -> bool:
        """Whether all runs were made on the same kind of hardware."""
        from levelbench.measure.environment import same_machine

        return all(same_machine(self.runs[0].environment, run.environment) for run in self.runs[1:])

    @cached_property
    def differences(self) -> tuple[Difference, ...]:
        """The distinct differences of any run's environment from that of the first run."""
        from levelbench.measure.environment import differences

        return tuple(differences([run.environment for run in self.runs]))

    @property
    def paired(self) -> bool:
        """Whether the runs form pairs: the same seeds on both sides, each as often."""
        return [run.seed for run in self.runs_a] == [run.seed for run in self.runs_b]


def ended(group: RunGroup) -> list[RunSummary]:
    """The runs that count, by seed: a failure says something about a recipe, an interruption does not."""
    runs = [run for run in group.runs if run.status in ("done", "failed")]
    return sorted(runs, key=lambda run: (run.seed, run.started))


def versions_of(names: Sequence[str]) -> str:
    """What differs of the files and variables with these ``names``, as the end of a sentence."""
    values = all(name.startswith("$") for name in names)
    return f"different {'values' if values else 'versions'} of {listed(names)}"


def is_watched(run: RunSummary) -> bool:
    """Whether what was read is known from the files, which do not tell who reads them, and not from the process."""
    return run.environment.get("started") in ("in place", "from outside")


def is_tracked(run: RunSummary) -> bool:
    """Whether a program measured itself, with ``levelbench.track``."""
    return run.environment.get("started") == "in place"


def distinct_texts(values: Iterable[str]) -> list[str]:
    """``values`` without repetitions, in order."""
    return list(dict.fromkeys(values))


def shortened(text: str, most: int = 90) -> str:
    """``text`` cut to ``most`` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def listed(values: Sequence[str]) -> str:
    """The first ``SHOWN`` of ``values`` with commas, and how many more there are."""
    more = f" and {len(values) - SHOWN} more" if len(values) > SHOWN else ""
    return ", ".join(shortened(each, 40) for each in values[:SHOWN]) + more


def other_texts(read: Iterable[Mapping[str, str]]) -> list[str]:
    """The files that several have read, not all with the same digest."""
    digests: dict[str, set[str]] = {}
    for name, digest in (item for each in read for item in each.items()):
        digests.setdefault(name, set()).add(digest)
    return sorted(name for name, found in digests.items() if len(found) > 1)


def read_by_few(read: Sequence[Mapping[str, str]]) -> set[str]:
    """The files of whose kind fewer than half have read one: nothing tells who reads a file, so others may have."""
    kinds = Counter(kind for each in read for kind in set(map(kind_of, each)))
    return {name for each in read for name in each if 2 * kinds[kind_of(name)] < len(read)}


def canonical(text: str) -> str:
    """``text``, in one form for all spellings of a number."""
    try:
        return f"{float(text):.15g}"
    except ValueError:
        return text


def kind_of(path: PurePath | str) -> str:
    """The same for paths that differ in numbers alone, as ``checkpoint-500/model.pt``, and for names by digests."""
    return re.sub(r"[0-9a-f]{8,}|\d+", "#", str(path))


def fact(tree: object, *path: str) -> object:
    """The value at ``path`` in nested mappings; ``None`` if there is none."""
    for name in path:
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree
