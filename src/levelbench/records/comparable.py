"""The one gate of every comparison: what speaks against comparing two groups of runs.

``comparable(a, b)`` checks everything that has to be equal, and says of each difference how serious it is. Whatever
compares runs (``compare``, ``report``, ``run``, ``lint``) calls it first and prints what it found once, near the
verdict. A check is a function of both sides: ``same_work`` has those of what was run, ``same_conditions`` those of how
it was measured, ``replicates`` those of whether the runs are independent and complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from levelbench.errors import IncomparableError, RecordError
from levelbench.records import replicates, same_conditions, same_work
from levelbench.records.caveats import SHOWN, Caveat, Sides, Weight
from levelbench.records.summary import RunGroup, RunSummary

__all__ = ["Comparability", "comparable", "one_kind"]

_ORDER: tuple[Weight, ...] = ("refuse", "no verdict", "doubt", "note")


@dataclass(frozen=True)
class Comparability:
    """What the gate found, the most serious first."""

    sides: Sides
    caveats: tuple[Caveat, ...]

    @property
    def refusals(self) -> tuple[Caveat, ...]:
        """Why there is no comparison; empty if there is one."""
        return tuple(each for each in self.caveats if each.weight == "refuse")

    @property
    def verdict_withheld(self) -> bool:
        """Whether there is no verdict, with or without figures."""
        return any(each.weight in ("refuse", "no verdict") for each in self.caveats)

    def require(self) -> None:
        """Raise if the sides cannot be compared.

        ``RecordError`` names records that contradict themselves, ``IncomparableError`` all other reasons at once.
        """
        asked = f"comparing {self.sides.a.label} with {self.sides.b.label}"
        wrong = [each.sentence for each in self.refusals if each.subject == "contradictions"]
        if wrong:
            raise RecordError(asked, _some_of(wrong), "restore these records from a copy, or remove the runs")
        if self.refusals:
            # A reason that applies to many runs must not hide the others.
            by_subject: dict[str, list[str]] = {}
            for each in self.refusals:
                by_subject.setdefault(each.subject, []).append(each.sentence)
            raise IncomparableError(asked, "; ".join(map(_some_of, by_subject.values())), _remedy({*by_subject}))


def comparable(a: RunGroup, b: RunGroup, *, across_machines: bool = False) -> Comparability:
    """What speaks against comparing ``b`` with ``a``; with ``across_machines`` another machine is only a doubt."""
    sides = Sides(a, b, across_machines)
    empty = [_no_run(group) for group, runs in sides.each if not runs]
    if empty:
        return Comparability(sides, tuple(empty))
    found = [each for check in _CHECKS for each in check(sides)]
    return Comparability(sides, tuple(sorted(found, key=lambda each: _ORDER.index(each.weight))))


def one_kind(runs: Sequence[RunSummary]) -> list[Caveat]:
    """What speaks against treating ``runs`` as replicates of one another."""
    return [*same_work.contradictions_of(runs), *same_work.data_of(runs)] if runs else []


def _some_of(sentences: Sequence[str]) -> str:
    more = f"; and so for {len(sentences) - SHOWN} more" if len(sentences) > SHOWN else ""
    return "; ".join(sentences[:SHOWN]) + more


def _no_run(group: RunGroup) -> Caveat:
    count = len(group.runs) + len(group.unfinished)
    return Caveat("runs", "refuse", f"none of the {count} runs of {group.label} has ended")


def _remedy(subjects: set[str]) -> str:
    if "runs" in subjects:
        return "make runs of it first"
    if "copies" in subjects:
        return "remove the copies: levelbench rm ID"
    if "shared runs" in subjects:
        return "select other runs for one of the sides; levelbench doctor compares this machine with itself"
    return (
        "choose runs of one task, one target and the same data; --clock, --crossing and --target set a clock, crossing "
        "rule or target for both"
    )


_CHECKS: tuple[Callable[[Sides], Iterator[Caveat]], ...] = (
    same_work.contradictions,
    replicates.shared_runs,
    replicates.copies,
    same_work.rules,
    same_work.view,
    same_work.data,
    same_work.definition,
    same_work.signatures,
    same_work.data_files,
    same_work.settings_read,
    same_work.arguments,
    same_work.settings_without_effect,
    same_conditions.machine,
    same_conditions.start_of_processes,
    same_conditions.start_up,
    same_conditions.preparations,
    same_conditions.budgets,
    same_conditions.counted_epochs,
    same_conditions.rounding,
    same_conditions.examples_scored,
    same_conditions.best_so_far,
    same_conditions.excluded_time,
    replicates.pairing,
    replicates.unfinished,
    replicates.removed_runs,
    replicates.looks,
    replicates.trained_on,
    replicates.after_others,
    same_conditions.environment,
    same_work.checksums_of_records,
    replicates.doubts,
)
"""All checks, in the order in which findings of one weight are printed."""
