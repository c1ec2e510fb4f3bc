"""What several verbs say of groups and comparisons: lines, JSON, exit codes, and the report."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from levelbench.analysis.comparison import Comparison
    from levelbench.records import Record, RunGroup

__all__ = [
    "compare_with_first",
    "comparison_json",
    "comparison_lines",
    "group_json",
    "label_apart",
    "verdict_code",
    "write",
]


def compare_with_first(
    groups: Sequence[RunGroup], margin: float, level: float, *, across_machines: bool = False
) -> list[Comparison]:
    """Each group against the first of its task. Several comparisons share the error: the level is Bonferroni's, and
    each verdict states it. What cannot be compared is said and left out.
    """
    from levelbench.analysis.comparison import check_comparable, compare
    from levelbench.errors import IncomparableError

    first: dict[str, RunGroup] = {}
    pairs = []
    for group in groups:
        base = first.setdefault(group.specification.task, group)
        if base is group:
            continue
        try:
            check_comparable(base, group)
        except IncomparableError as error:
            click.echo(f"no verdict on {group.label}: {error.found}", err=True)
            continue
        pairs.append((base, group))
    shared = 1 - (1 - level) / max(1, len(pairs))
    return [compare(a, b, margin=margin, level=shared, across_machines=across_machines) for a, b in pairs]


def comparison_lines(comparison: Comparison) -> list[str]:
    """The verdict, then why, then what differs about the machines."""
    from levelbench.measure.verdict import format_verdict

    a, b = comparison.a.label, comparison.b.label
    lines = []
    if comparison.machines_differ:
        lines.append(f"{a} and {b} ran on different machines:")
        lines += [f"  {each.path}: {each.a} | {each.b}" for each in comparison.differences]
    if comparison.verdict is None:
        lines.append("no verdict on time across machines; --across-machines gives one all the same")
    else:
        lines.append(format_verdict(comparison.verdict, a, b))
    if comparison.attribution is not None:
        lines += [f"  why: {line}" for line in comparison.attribution.lines()]
    return lines


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """All figures of a comparison."""
    return {
        "a": comparison.a.label,
        "b": comparison.b.label,
        "verdict": dataclasses.asdict(comparison.verdict) if comparison.verdict else None,
        "attribution": dataclasses.asdict(comparison.attribution) if comparison.attribution else None,
        "machines_differ": comparison.machines_differ,
        "differences": [dataclasses.asdict(each) for each in comparison.differences],
    }


def group_json(group: RunGroup) -> dict[str, Any]:
    """A group's counts and its estimate of time to accuracy, over the runs that reached it."""
    from levelbench.measure.statistics import estimate, wilson

    times = [time for time in group.times() if time is not None]
    return {
        "label": group.label,
        "key": group.key,
        "n": group.n,
        "reached": group.reached,
        "reached_interval": dataclasses.asdict(wilson(group.reached, group.n)),
        "time_to_accuracy_s": dataclasses.asdict(estimate(times)) if times else None,
        "specification": group.specification,
    }


def verdict_code(comparison: Comparison, wrong: frozenset[str]) -> int:
    """1 for a worse verdict, 4 where nothing can be told, among the outcomes that are ``wrong``; else 0."""
    kind = comparison.verdict.kind.value.lower() if comparison.verdict else "unclear"
    if kind == "slower" and "slower" in wrong:
        return 1
    return 4 if kind == "unclear" and "unclear" in wrong else 0


def write(groups: Sequence[RunGroup], records: Sequence[Record], comparisons: Sequence[Comparison], path: Path) -> Path:
    """Write the HTML report."""
    from levelbench.report import write_report

    by_key: dict[str, list[Record]] = {}
    for record in records:
        by_key.setdefault(record.header.key, []).append(record)
    verdicts = [(each.a.label, each.b.label, each.verdict) for each in comparisons if each.verdict is not None]
    lines = [
        f"{each.b.label} against {each.a.label}: {line}"
        for each in comparisons
        if each.attribution is not None
        for line in each.attribution.lines()
    ]
    return write_report([(group, by_key[group.key]) for group in groups], verdicts, path, attributions=lines)


def label_apart(a: RunGroup, b: RunGroup, word_a: str, word_b: str) -> tuple[RunGroup, RunGroup]:
    """The two groups with labels that tell them apart: what differs in their settings, else the user's words."""
    from levelbench.records.groups import labels_of

    labels = labels_of([a.specification, b.specification])
    if labels[0] == labels[1]:
        labels = [word_a, word_b]
    return dataclasses.replace(a, label=labels[0]), dataclasses.replace(b, label=labels[1])
