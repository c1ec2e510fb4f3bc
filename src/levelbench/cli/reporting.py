"""What several verbs share about groups and comparisons: lines, JSON, exit codes, and the report."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from levelbench.errors import UsageError

if TYPE_CHECKING:
    from levelbench.analysis.comparison import Comparison
    from levelbench.analysis.scaling import Scaling
    from levelbench.experiments.request import Arm
    from levelbench.experiments.training import RunPlan
    from levelbench.measure.statistics import Estimate
    from levelbench.measure.verdict import Verdict
    from levelbench.records import Record, RunGroup
    from levelbench.records.searches import Search
    from levelbench.records.store import Row

__all__ = [
    "attribution_lines",
    "comparison_json",
    "doubt_lines",
    "exit_code",
    "final_lines",
    "gate_lines",
    "group_json",
    "groups_of_plan",
    "label_apart",
    "report_name",
    "require_sound",
    "scaling_json",
    "scaling_lines",
    "scalings_of",
    "write",
    "write_folder",
]


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """All figures of a comparison."""
    from levelbench.analysis.ties import time_estimate

    cost, sides = comparison.cost, (comparison.a, comparison.b)
    return {
        "a": comparison.a.label,
        "b": comparison.b.label,
        "verdict": comparison.verdict,
        "usd_per_hour": [each.usd_per_hour for each in sides],
        "cost_to_accuracy_usd": [_cost(time_estimate(each), each.usd_per_hour) for each in sides],
        "cost": None if cost is None else {"ratio": cost.ratio, "low": cost.low, "high": cost.high},
        "attribution": comparison.attribution,
        "caveats": list(comparison.caveats),
        "machines_differ": comparison.machines_differ,
        "differences": list(comparison.differences),
    }


def doubt_lines(groups: Sequence[RunGroup], comparisons: Sequence[Comparison] = ()) -> list[str]:
    """What speaks against runs, once, with the number of runs that it concerns.

    Doubts about groups in ``comparisons`` are left out: they are shown with the verdicts.
    """
    from levelbench.records.replicates import against

    judged = {id(group) for each in comparisons for group in (each.a, each.b)}
    return [str(each) for each in against([group for group in groups if id(group) not in judged])]


def final_lines(groups: Sequence[RunGroup]) -> list[str]:
    """For each schedule of fixed length, whether its mean final quality reaches the target."""
    from levelbench.analysis.targets import final_line

    return [line for group in groups if (line := final_line(group)) is not None]


def group_json(group: RunGroup) -> dict[str, Any]:
    """A group's counts and its estimate of time to accuracy (Kaplan-Meier's if some runs missed).

    For schedules of fixed length, also the test of whether the mean final quality reaches the target.
    """
    from levelbench.analysis.targets import final_test
    from levelbench.analysis.ties import time_estimate
    from levelbench.measure.statistics import wilson
    from levelbench.records.operations import peaks_of, use_of_operations

    found, final = time_estimate(group), final_test(group)
    peaks = peaks_of(group.runs[0]) if group.runs else {}
    return {
        "label": group.label,
        "key": group.key,
        "n": group.n,
        "reached": group.reached,
        "reached_interval": wilson(group.reached, group.n),
        "time_to_accuracy_s": found,
        "usd_per_hour": group.usd_per_hour,
        "cost_to_accuracy_usd": _cost(found, group.usd_per_hour),
        "final_test": final,
        "specification": group.specification,
        "operations": [use for run in group.runs if (use := use_of_operations(run, peaks)) is not None],
    }


def _cost(time_s: Estimate | None, usd_per_hour: float | None) -> Estimate | None:
    """What ``time_s`` costs, with its interval."""
    if time_s is None or usd_per_hour is None:
        return None
    usd, inside = usd_per_hour / 3600.0, time_s.interval
    scaled = None if inside is None else dataclasses.replace(inside, low=usd * inside.low, high=usd * inside.high)
    return dataclasses.replace(time_s, value=usd * time_s.value, interval=scaled)


def groups_of_plan(plan: RunPlan, records: Mapping[tuple[int, int], Record], asked: int) -> list[RunGroup]:
    """The groups of a plan's records, on the clock that it asks for.

    All ``asked`` runs of each arm are there, and none was left out by its result, whatever others have asked for.
    """
    from msgspec import structs

    from levelbench.records import group_runs, summarise

    clocks = [arm.specification.clock for arm in plan.arms]
    runs = [summarise(record, clock=clocks[arm]) for (arm, _), record in sorted(records.items())]
    return group_runs([structs.replace(run, planned_runs=min(run.planned_runs, asked), whole=True) for run in runs])


def exit_code(
    groups: Sequence[RunGroup], comparisons: Sequence[Comparison], wrong: frozenset[str], *, refused: int = 0
) -> int:
    """1 for a worse verdict or a missed target, 4 if nothing can be concluded; only outcomes in ``wrong`` count.

    Both together give 1: a known failure outweighs an unknown. A ``refused`` comparison counts as unclear.
    """
    kinds = {each.verdict.kind.value.lower() if each.verdict else "unclear" for each in comparisons}
    kinds |= {"unclear"} if refused else set()
    kinds |= {"missed"} if any(group.reached < group.n for group in groups) else set()
    if kinds & wrong & {"slower", "missed"}:
        return 1
    return 4 if "unclear" in kinds & wrong else 0


def gate_lines(comparisons: Sequence[Comparison], refusals: Sequence[str] = ()) -> list[str]:
    """What the gate found about all comparisons, each sentence once; then what it refused.

    Of several comparisons, a sentence that names no side says which comparison it is about.
    """
    said: set[str] = set()
    lines = []
    for each in comparisons:
        if each.verdict is None:
            lines.append(f"no verdict on {each.b.label} against {each.a.label}")
        for caveat in each.new_caveats(said):
            about = (each.a.label, each.b.label, f"comparisons of {each.a.specification.task}")
            named = len(comparisons) < 2 or caveat.subject == "doubts" or any(name in caveat.sentence for name in about)
            lines.append(str(caveat) if named else f"{caveat} ({each.b.label} against {each.a.label})")
    return [*lines, *refusals]


def attribution_lines(comparisons: Sequence[Comparison]) -> list[str]:
    """The attribution of each comparison of times, as a report shows it."""
    return [
        f"{each.b.label} against {each.a.label}: {line}"
        for each in comparisons
        if each.attribution is not None and each.verdict is not None
        for line in each.attribution.lines()
    ]


def report_name(arms: Sequence[Arm | RunGroup]) -> str:
    """``report-digits-mlp-1a2b3c4d.html``: the same for the same comparison, another one for any other.

    Long names are cut so that a terminal shows the usual path in one line.
    """
    import hashlib

    from levelbench.records.writer import path_part

    told = (*(arm.specification.task for arm in arms), *(arm.specification.recipe for arm in arms))
    digest = hashlib.sha256(" ".join(arm.key for arm in arms).encode()).hexdigest()
    name = path_part("-".join(dict.fromkeys(told)))[:30].rstrip(".-")
    return f"report-{name}-{digest[:8]}.html"


def write(
    groups: Sequence[RunGroup],
    records: Sequence[Record],
    comparisons: Sequence[Comparison],
    page: Path,
    *,
    markdown: Path | None = None,
    csv_folder: Path | None = None,
    rows: Sequence[Row] = (),
    searches: Sequence[Search] = (),
    refusals: Sequence[str] = (),
    left_out: Sequence[str] = (),
) -> list[Path]:
    """Write the HTML report and, if requested, its tables as Markdown and CSV; returns the files, ``page`` first.

    ``rows`` are all runs in the store: the linter looks at those that the report leaves out, unless ``searches`` state
    them. ``refusals`` say which groups could not be compared, ``left_out`` what has no run that ended.
    """
    from levelbench.claims.remarks import remarks_on_runs
    from levelbench.report.page import write_csv, write_markdown, write_report

    pairs = _with_records(groups, records)
    verdicts = _verdicts(comparisons)
    lines = [*final_lines(groups), *attribution_lines(comparisons)]
    against = [*gate_lines(comparisons, refusals), *left_out, *doubt_lines(groups, comparisons)]
    linted = remarks_on_runs(records, rows, searches)
    scalings = scalings_of(groups, records)
    written = [
        write_report(pairs, verdicts, page, attributions=lines, caveats=against, scalings=scalings, linted=linted)
    ]
    if markdown is not None:
        written.append(write_markdown(pairs, verdicts, markdown, attributions=lines, caveats=against, linted=linted))
    if csv_folder is not None:
        written += write_csv(pairs, csv_folder, linted=linted)
    return written


def write_folder(
    groups: Sequence[RunGroup],
    records: Sequence[Record],
    comparisons: Sequence[Comparison],
    folder: Path,
    *,
    refusals: Sequence[str] = (),
    left_out: Sequence[str] = (),
    markdown: Path | None = None,
    csv_folder: Path | None = None,
    **rest: Any,
) -> list[Path]:
    """Write a page for each task, as :func:`write` does, and ``index.html`` with the verdicts of all; the index first.

    Markdown and CSV have all tasks, as those of a single page. The index lists what is ``left_out``.
    """
    from levelbench.analysis.comparison import with_common_doubts
    from levelbench.report.page import by_task, page_names, write_csv, write_index, write_markdown

    pairs = _with_records(groups, records)
    parts = by_task(pairs)
    names = page_names([task for task, _ in parts])
    pages, doubts = list[Path](), list[int]()
    for (task, members), name in zip(parts, names, strict=True):
        refused = [
            line for line in refusals if any(line.startswith(f"no verdict on {group.label}:") for group, _ in members)
        ]
        # A page speaks of the sides that it shows.
        judged = with_common_doubts([each for each in comparisons if each.b.specification.task == task])
        only = [group for group, _ in members]
        doubts.append(sum(line.startswith("doubt: ") for line in (*gate_lines(judged), *doubt_lines(only, judged))))
        pages += write(
            only,
            [record for _, own in members for record in own],
            judged,
            folder / name,
            refusals=refused,
            **rest,
        )
    verdicts = _verdicts(comparisons)
    against = [*gate_lines(comparisons, refusals), *left_out, *doubt_lines(groups, comparisons)]
    written = [write_index(pairs, verdicts, folder / "index.html", names, left_out, doubts), *pages]
    if markdown is not None:
        written.append(write_markdown(pairs, verdicts, markdown, caveats=against))
    if csv_folder is not None:
        written += write_csv(pairs, csv_folder)
    return written


def _with_records(groups: Sequence[RunGroup], records: Sequence[Record]) -> list[tuple[RunGroup, list[Record]]]:
    by_key: dict[str, list[Record]] = {}
    for record in records:
        by_key.setdefault(record.header.key, []).append(record)
    return [(group, by_key[group.key]) for group in groups]


def _verdicts(comparisons: Sequence[Comparison]) -> list[tuple[str, str, Verdict]]:
    return [(each.a.label, each.b.label, each.verdict) for each in comparisons if each.verdict is not None]


def refuse_copies(groups: Sequence[RunGroup], asked: str) -> None:
    """``RecordError`` for runs that are copies of one run under other names, within a group."""
    from levelbench.errors import RecordError
    from levelbench.records.replicates import against

    wrong = [each.sentence for each in against(groups) if each.weight == "refuse"]
    if wrong:
        raise RecordError(asked, "; ".join(wrong), "remove the copies: levelbench rm ID")


def require_sound(groups: list[RunGroup], asked: str, store: Path) -> list[str]:
    """Refuse an analysis without runs, and runs that cannot be replicates; returns what else speaks against them."""
    from levelbench.errors import RecordError
    from levelbench.records.comparable import one_kind
    from levelbench.records.replicates import of_one_group

    if not groups:
        raise UsageError(f"{asked} of runs in {store}", "none has ended", "run something first: levelbench run digits")
    found = []
    for group in groups:
        against = [*one_kind(group.runs), *of_one_group(group)]
        wrong = [each.sentence for each in against if each.weight == "refuse"]
        if wrong:
            raise RecordError(f"{asked} of {group.label}", "; ".join(wrong), "remove these runs, or select the others")
        found += [str(each) for each in against]
    return found


def label_apart(a: RunGroup, b: RunGroup, word_a: str, word_b: str) -> tuple[RunGroup, RunGroup]:
    """The two groups with labels that distinguish them: what differs, and settings in which the user's words do.

    If nothing differs, the labels are the words.
    """
    from levelbench.records.summary import labels_of

    sides = ((a, word_a), (b, word_b))
    labels = labels_of([a.specification, b.specification], chosen=[a.chosen, b.chosen])
    if labels[0] == labels[1]:
        labels = [word_a, word_b]
    elif a.specification.recipe != b.specification.recipe:
        chosen = [_named(word, group) for group, word in sides]
        labels = [
            _with_settings(label, {name: value for name, value in own.items() if (name, value) not in other.items()})
            for label, own, other in zip(labels, chosen, reversed(chosen), strict=True)
        ]
    return dataclasses.replace(a, label=labels[0]), dataclasses.replace(b, label=labels[1])


def _named(word: str, group: RunGroup) -> dict[str, Any]:
    """The settings of ``group`` that the user's ``word`` names."""
    from levelbench.records.selection import parse_item

    try:
        named = parse_item(word)[1]
    except UsageError:
        return {}
    return {name: value for name, value in group.specification.settings.items() if name in named}


def _with_settings(label: str, more: dict[str, Any]) -> str:
    from levelbench.records.selection import format_item, parse_item

    name, shown = parse_item(label)
    return format_item(name, shown | more)


def scalings_of(groups: Sequence[RunGroup], records: Sequence[Record], level: float = 0.95) -> list[Scaling]:
    """One for each task, recipe and settings with runs on several numbers of ranks."""
    import msgspec

    from levelbench.analysis.scaling import scaling
    from levelbench.records.summary import labels_of

    alike: dict[bytes, list[RunGroup]] = {}
    for group in groups:
        if group.n:
            alone = msgspec.structs.replace(group.specification, distribution=None)
            alike.setdefault(msgspec.json.encode(alone, order="sorted"), []).append(group)
    several = [
        members
        for members in alike.values()
        if len({each.specification.distribution and each.specification.distribution.ranks for each in members}) > 1
    ]
    if len(several) == 1:
        # Runs that were selected with these, but are not shown, make no label longer.
        labels = labels_of([each.specification for each in several[0]], chosen=[each.chosen for each in several[0]])
        several = [[dataclasses.replace(each, label=own) for each, own in zip(several[0], labels, strict=True)]]
    return [scaling(f"Scaling of {members[0].specification.task}", members, records, level) for members in several]


_OF_TEAMS = ("sent_bytes", "messages", "communicate_share", "waiting_share", "overlap", "imbalance")
_OF_TIMES = ("time_to_accuracy_s", "epoch_s", "samples_to_target")
_OF_POINTS = ("label", "ranks", "scheme", "n", "crowded", "reached", *_OF_TIMES, "teamwork")


def scaling_lines(found: Scaling) -> list[str]:
    """The absolute base, what the laws lack, what speaks against the efficiencies, and doubts about the runs."""
    groups = [point.group for point in found.points if point.group is not None]
    base = [found.base] if found.base else []
    lacks = [line for each in found.laws for line in each.lacks]
    return [*base, *dict.fromkeys(lacks), *found.warnings, *doubt_lines(groups)]


def scaling_json(found: Scaling) -> dict[str, Any]:
    """Points, laws and sentences."""
    points = []
    for point in found.points:
        shown = {name: getattr(point, name) for name in _OF_POINTS}
        shown["group"] = None if point.group is None else group_json(point.group)
        shown["efficiency_per_epoch"] = dataclasses.asdict(point.per_epoch)
        shown["efficiency_to_accuracy"] = dataclasses.asdict(point.to_accuracy)
        shown["team"] = {name: point.team(name) for name in _OF_TEAMS}
        points.append(shown)
    return {
        "title": found.title,
        "level": found.level,
        "base": found.base,
        "answers": list(found.answers),
        "warnings": list(found.warnings),
        "doubts": doubt_lines([point.group for point in found.points if point.group is not None]),
        "laws": [{**dataclasses.asdict(each), "most": each.most} for each in found.laws],
        "points": points,
    }
