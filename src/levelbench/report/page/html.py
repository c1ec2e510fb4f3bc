"""The report: one HTML file that needs nothing else, neither network nor script nor the records it was made from.

The one idea: it reads from the top: the verdict, the numbers it rests on, the curves, the runs one by one, what went
wrong, the machine, and how to read it all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from levelbench.records.comparable import doubts_of
from levelbench.report.figures.figure import Figure, Group, figures_of
from levelbench.report.markup import Html, breakable, csv_link, join, table_markup, tag
from levelbench.report.page.beside import Linted, lint_section
from levelbench.report.page.files import all_runs, by_task, write_whole
from levelbench.report.page.sections import environment_section, guide_section, versions_section
from levelbench.report.page.teams import Scaled, ranks_section, scaling_figure
from levelbench.report.runs.summaries import groups_table, runs_table
from levelbench.report.style import DASHES, PHASES, SERIES, style_sheet

if TYPE_CHECKING:
    from levelbench.measure.verdict import Verdict

__all__ = ["report_page", "write_report"]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_DATA_BYTES = 400_000
_MOST_DOUBTS = 60
_MOST_CHARACTERS = 2000


def write_report(
    groups: Sequence[Group],
    verdicts: Sequence[tuple[str, str, Verdict]],
    path: Path,
    *,
    attributions: Iterable[str] = (),
    caveats: Iterable[str] | None = None,
    scalings: Sequence[Scaled] = (),
    linted: Sequence[Linted] = (),
) -> Path:
    """Write the report of ``groups`` (each with its records) and ``verdicts`` (name a, name b, verdict) to ``path``.

    ``attributions`` are lines on where the difference comes from, ``caveats`` what speaks against the comparisons (by
    default the doubts of the runs), ``scalings`` how tasks scale with ranks, ``linted`` what the linter says of the
    groups, shown beside each of them. The file appears whole or not at all; ``StoreError`` where it cannot be written.
    """
    text = report_page(groups, verdicts, attributions=attributions, caveats=caveats, scalings=scalings, linted=linted)
    return write_whole(path, text)


def report_page(
    groups: Sequence[Group],
    verdicts: Sequence[tuple[str, str, Verdict]],
    *,
    attributions: Iterable[str] = (),
    caveats: Iterable[str] | None = None,
    scalings: Sequence[Scaled] = (),
    linted: Sequence[Linted] = (),
) -> str:
    """The report as the text of an HTML document."""
    only = [group for group, _ in groups]
    against = [str(each) for each in doubts_of(only)] if caveats is None else list(caveats)
    title = f"Time to accuracy: {', '.join(task for task, _ in by_task(groups)) or 'no runs'}"
    runs = all_runs(groups)
    days = sorted({run.started[:10] for run in runs})
    when = f", {days[0]}" + (f" to {days[-1]}" if len(days) > 1 else "") if days else ""
    lead = f"{len(groups)} group{'s' * (len(groups) != 1)}, {len(runs)} run{'s' * (len(runs) != 1)}{when}"
    main = tag(
        "main",
        _verdict_section(verdicts, against, list(attributions)),
        *(_task_section(task, members, at, len(groups), linted) for at, (task, members) in enumerate(by_task(groups))),
        ranks_section(groups, scalings, [_scaling(each, at) for at, each in enumerate(scalings)]),
        tag("section", tag("h2", "Runs"), table_markup(runs_table(runs))),
        _failures_section(groups),
        lint_section(linted) if linted else Html(""),
        environment_section(groups),
        guide_section(groups, verdicts),
        versions_section(groups),
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name_="referrer", content="no-referrer"),
        tag("title", title),
        tag("style", Html(style_sheet())),
    )
    top = tag("header", tag("h1", title), tag("p", lead, class_="lead"))
    return f'<!DOCTYPE html>\n<html lang="en">{head}\n<body>{join([top, main])}</body></html>\n'


def _verdict_section(verdicts: Sequence[tuple[str, str, Verdict]], caveats: list[str], attributions: list[str]) -> Html:
    """The verdicts first, each with its reason; then what speaks against them, and what the difference comes from."""
    from levelbench.measure.verdict import format_verdict

    lines = []
    for name_a, name_b, verdict in verdicts:
        kind = verdict.kind.value
        text = format_verdict(verdict, name_a, name_b).removeprefix(kind).strip()
        reason = (tag("small", verdict.reason),) if verdict.reason and verdict.reason not in text else ()
        lines.append(tag("div", tag("b", kind), tag("span", breakable(text)), *reason, class_=f"verdict {kind}"))
    if not lines:
        lines.append(tag("p", "No comparison: a verdict needs two groups of at least two runs each."))
    if caveats:
        said = (tag("li", line[:_MOST_CHARACTERS]) for line in caveats[:_MOST_DOUBTS])
        lines += [tag("h3", "What to know before believing it"), tag("ul", *said)]
    if attributions:
        items = (tag("li", line) for line in attributions)
        lines += [tag("h3", "Where the difference comes from"), tag("ul", *items)]
    return tag("section", tag("h2", "Verdict" if len(verdicts) == 1 else "Verdicts"), *lines)


def _task_section(task: str, members: Sequence[Group], at: int, whole: int, linted: Sequence[Linted]) -> Html:
    """One task: its main table and its figures, with one legend for all."""
    figures = figures_of(members, f"t{at}-" if at else "")
    budget = _DATA_BYTES // (4 * max(1, min(whole, 8)))
    legend = tag("ul", *(_entry(group.label, row) for row, (group, _) in enumerate(members)), class_="legend")
    return tag(
        "section",
        tag("h2", task),
        table_markup(groups_table([group for group, _ in members], linted)),
        legend,
        tag("div", *(_figure(figure, budget) for figure in figures), class_="figures"),
    )


def _scaling(scaled: Scaled, at: int) -> Html:
    return tag("div", _figure(scaling_figure(scaled, f"scaling-{at}"), _DATA_BYTES // 8), class_="figures")


def _entry(label: str, row: int) -> Html:
    """One series of the legend: its colour and its dashes, then its label."""
    dashes = " ".join(f"{3 * length:g}" for length in DASHES[row % len(DASHES)][1])
    style = f"stroke:var(--series-{row % len(SERIES)});stroke-width:3;stroke-dasharray:{dashes or 'none'}"
    line = Html(f'<svg viewBox="0 0 30 6" aria-hidden="true"><path d="M0 3H30" style="{style}"/></svg>')
    return tag("li", line, label)


def _figure(figure: Figure, budget: int) -> Html:
    """A figure with its caption, and its data folded away below."""
    if figure.svg:
        drawing = tag("div", Html(figure.svg), class_="drawing", role="img", aria_label=figure.alt)
    else:
        how = join(["Not drawn: matplotlib is not installed. ", tag("code", 'pip install "levelbench[plot]"')])
        drawing = tag("div", how, class_="missing", role="img", aria_label=figure.alt)
    keys = [_key(column.title) for column in figure.table.columns if column.title in PHASES and figure.svg]
    data = tag(
        "details",
        tag("summary", "Data"),
        tag("p", csv_link(figure.data, budget), class_="note"),
        table_markup(figure.table, 120),
    )
    legend = (tag("ul", *keys, class_="legend"),) if keys else ()
    return tag("figure", tag("h3", figure.title), drawing, *legend, tag("figcaption", figure.caption), data)


def _key(phase: str) -> Html:
    """One phase of the bars' legend."""
    style = f"fill:var(--phase-{phase})"
    box = Html(f'<svg viewBox="0 0 30 11" aria-hidden="true"><path d="M0 0H30V11H0Z" style="{style}"/></svg>')
    return tag("li", box, phase)


def _failures_section(groups: Sequence[Group]) -> Html:
    """Failures with their errors, and runs that missed the target. Doubts stand beside the verdict."""
    items = []
    for group, _ in groups:
        for run in (*group.runs, *group.unfinished):
            name = f"{group.label} seed {run.seed}, run {run.id[:8]}: "
            if run.status != "done":
                items.append(tag("li", f"{name}{run.status}. ", tag("code", (run.error or "")[:_MOST_CHARACTERS])))
            elif not run.reached:
                items.append(tag("li", f"{name}did not reach the target; it counts as censored, not as slow."))
    if not items:
        return tag("section", tag("h2", "Failures"), tag("p", "None: every run reached the target."))
    rest = len(items) - _MOST_DOUBTS
    more = (tag("p", f"{rest} more; the run list has every run.", class_="note"),) if rest > 0 else ()
    return tag("section", tag("h2", "Failures"), tag("ul", *items[:_MOST_DOUBTS]), *more)
