"""The report: one self-contained HTML file without network access, and its tables as Markdown and CSV.

Everything can be read without scripts; with them, figures can be pointed at, curves zoomed, and runs hidden. The page's
policy allows exactly the script that is in it, by its digest.

From top to bottom: the verdict, the numbers behind it, the curves, the single runs, what went wrong, the machine, and
how to read the report.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from levelbench.records.replicates import against
from levelbench.records.selection import short_name
from levelbench.report.distributed import (
    draw_efficiencies,
    rank_tables,
    scaling_table,
    teamwork_table,
    typical,
)
from levelbench.report.drawing import write_whole
from levelbench.report.markup import (
    DASHES,
    PHASES,
    SERIES,
    Html,
    breakable,
    csv_link,
    join,
    style_sheet,
    tag,
    to_html,
)
from levelbench.report.numbers import number, plural
from levelbench.report.remarks import Remarks, lint_lines, lint_section, missing_line
from levelbench.report.run_figures import Group, Plot, can_draw, figures_of
from levelbench.report.runs import groups_table, phases_by_group, runs_table, target_text, work_table
from levelbench.report.tables import Table, listing, markdown_text, to_csv, to_markdown

if TYPE_CHECKING:
    from levelbench.analysis.scaling import Scaling
    from levelbench.measure.verdict import Verdict
    from levelbench.records.reader import Record
    from levelbench.records.summary import RunSummary

__all__ = ["all_runs", "by_task", "environment_section", "figure_html", "guide_section", "html_page", "ranks_section"]
__all__ += [
    "report_page",
    "report_tables",
    "scaling_figure",
    "settings_text",
    "versions_section",
    "write_csv",
    "write_markdown",
]
__all__ += ["page_names", "write_index", "write_report"]

_MOST_FACTS = 300
_MOST_OF_A_FACT = 300

_CROSSING = {
    "confirmed": "the target counts as reached at the second of two evaluations in a row that meet it",
    "first": "the target counts as reached at the first evaluation that meets it (DAWNBench's rule)",
    "sustained": "the target counts as reached at the first evaluation from which all later ones meet it",
    "final": "only the last evaluation counts",
    "interpolated": "the target counts as reached on the straight line between the evaluations around it",
}


def environment_section(groups: Sequence[Group]) -> Html:
    """What differs between the arms, if anything, then what they have in common."""
    arms = [(group.label, _distinct(run.environment for run in group.runs)) for group, _ in groups if group.runs]
    parts = [tag("h2", "Environment")]
    for at, arm in enumerate(arms):
        if at:
            parts += _differences(arms[0], arm, f"Differs: {arms[0][0]} and {arm[0]}")
        parts += _differences((f"first run of {arm[0]}", arm[1][:1]), (f"others of {arm[0]}", arm[1][1:]),
                              f"Differs between the runs of {arm[0]}")  # fmt: skip
    if len(arms) > 1 and len(parts) == 1:
        parts.append(tag("p", "No difference between the groups that would matter for timing."))
    flat = [dict(_flattened(environment)) for _, environments in arms for environment in environments]
    shared = [
        (path, shown) for path, shown in (flat[0].items() if flat else ()) if all(x.get(path) == shown for x in flat)
    ]
    if shared:
        title = "Common to all groups" if len(arms) > 1 else "Common to all runs"
        parts += [tag("h3", title), to_html(listing("environment", title, ("what", "value"), shared), _MOST_FACTS)]
    return tag("section", *parts)


_Arm = tuple[str, Sequence[Mapping[str, object]]]


def _distinct(environments: Iterable[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """Each environment once, in order."""
    return list({json.dumps(each, sort_keys=True, default=str): each for each in environments}.values())


def _differences(one: _Arm, other: _Arm, title: str) -> list[Html]:
    """A table of the differences between the runs of two arms, most important first; none without differences.

    Every run is compared with the first one of ``one``; differences between the runs of ``one`` have their own table.
    """
    from levelbench.measure.environment import difference

    found = dict.fromkeys(
        (each.path, _shown(each.a), _shown(each.b), each.matters)
        for environment in other[1]
        for each in difference(dict(one[1][0]), dict(environment))
    )
    if not found:
        return []
    rows = list(found)
    table = listing("differences", title, ("what", one[0], other[0], "why it matters"), rows)
    return [tag("h3", title), to_html(table, _MOST_FACTS)]


def _flattened(tree: Mapping[str, object], path: str = "") -> Iterator[tuple[str, str]]:
    """The leaves of nested dictionaries as ``(path, text)``, without empty ones."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flattened(value, f"{path}{key}.")
        elif value not in (None, [], ""):
            yield f"{path}{key}", _shown(value)


def _shown(value: object) -> str:
    """A leaf as text: strings unchanged, other values as JSON; very long ones are cut."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _MOST_OF_A_FACT else f"{text[: _MOST_OF_A_FACT - 1]}…"


def guide_section(groups: Sequence[Group], verdicts: Sequence[tuple[str, str, Verdict]]) -> Html:
    """How to read the page: the clocks, crossing rules, targets, intervals and margins that it uses."""
    from levelbench.measure.policies import policy

    specifications = [group.specification for group, _ in groups]
    items = ["The replicate is the run: every interval is over runs, never over the steps of a run."]
    items += [
        f"Clock {name}: {policy(name).source}. Time that it leaves out is shown next to the score."
        for name in dict.fromkeys(each.clock for each in specifications)
    ]
    items += [
        f"Crossing rule {name}: {_CROSSING.get(name, 'see the documentation')}."
        for name in dict.fromkeys(each.crossing for each in specifications)
    ]
    items += dict.fromkeys(
        f"Target of {each.task}: {target_text(each.target, each.scored_by)}." for each in specifications
    )
    items += [
        "Typical values: the geometric mean, which is what verdicts compare, with a t interval on the logarithms from "
        "six runs on and the lowest and highest of fewer; "
        "where runs missed the target, the Kaplan-Meier median.",
        "A run that missed the target or failed counts as one that never reached it: in “reached”, in the typical time "
        "and in the verdict. A run that was given up at its budget might have arrived later; one that failed, "
        "diverged or reached the end of its schedule never would have. Interrupted and unfinished runs do not count.",
    ]
    items += dict.fromkeys(
        f"FASTER and SLOWER: the {number(each.level * 100)} % interval of the ratio excludes 1. SAME: the whole "
        f"interval lies within ±{number(each.margin * 100)} % of 1. UNCLEAR: neither; it says how many more "
        "runs would settle it."
        for _, _, each in verdicts
    )
    return tag("section", tag("h2", "How to read this"), tag("ul", *(tag("li", item) for item in items)))


def versions_section(groups: Sequence[Group]) -> Html:
    """What was run: recipe, framework, device and settings of each group, its source's digest, levelbench's version."""
    rows = []
    for group, everything in groups:
        each, records = group.specification, group.own(everything)
        sources = sorted({f"{record.header.source.name} {record.header.source.digest[:12]}" for record in records})
        versions = sorted({record.header.version for record in records})
        place = f"{each.framework} on {each.device}"
        rows.append(
            (
                group.label,
                each.recipe,
                place,
                settings_text(each.settings),
                group.key[:12],
                *map(", ".join, (sources, versions)),
            )
        )
    headers = ("runs of", "recipe", "framework", "settings", "key", "task source (SHA-256)", "levelbench")
    table = listing("versions", "Settings and versions", headers, rows)
    return tag("section", tag("h2", "Settings and versions"), to_html(table))


def settings_text(settings: Mapping[str, object]) -> str:
    """``hidden=128, lr=0.1``: sorted by name."""
    return ", ".join(f"{name}={value}" for name, value in sorted(settings.items())) or "none"


def ranks_section(groups: Sequence[Group], scalings: Sequence[Scaling], figures: Sequence[Html]) -> Html:
    """Empty if no run has several ranks. ``figures`` are those of ``scalings``, in the same order."""
    parts: list[Html] = []
    for scaled, figure in zip(scalings, figures, strict=True):
        team = teamwork_table(scaled.points)
        parts += [tag("h3", scaled.title), *(tag("p", each, class_="note") for each in scaled.warnings), figure]
        parts += [to_html(team)] if team is not None else []
    for group, records in groups:
        record = typical(records)
        if record is not None:
            parts += _of_run(group.label, record, sum(bool(each.ranks) for each in records))
    return tag("section", tag("h2", "Ranks"), *parts) if parts else Html("")


def _of_run(label: str, record: Record, runs: int) -> list[Html]:
    which = f"Run {record.header.id[:8]}, seed {record.header.seed}"
    which += f", the run with the median time of {runs}" if runs > 1 else ""
    ranks, *more = rank_tables(record)
    parts = [tag("h3", label), tag("p", f"{which}.", class_="note")]
    parts.append(to_html(ranks))
    if more:
        titled = (part for each in more for part in (tag("p", each.title), to_html(each, 120)))
        parts.append(tag("details", tag("summary", "Operations, staleness, divergence"), *titled))
    return parts


def scaling_figure(scaled: Scaling, name: str) -> Plot:
    """Both efficiencies over the number of ranks, with their table."""
    table = scaling_table(scaled.title, scaled.points)
    said = [
        f"{point.ranks} rank{'s' * (point.ranks > 1)} {point.per_epoch.value:.2f}"
        for point in scaled.points
        if point.per_epoch.value is not None
    ]
    return Plot(
        name=name,
        title="Parallel efficiency",
        alt=f"Parallel efficiency per epoch: {', '.join(said) or 'none is claimed'}.",
        caption="Speed-up over the smallest point, divided by the increase in cores. Solid: time per epoch, training "
        "alone. Dashed: time to accuracy. 1 is perfect.",
        svg=_drawn(scaled, name) if can_draw() else "",
        table=table,
        data=table,
    )


def _drawn(scaled: Scaling, name: str) -> str:
    from levelbench.report.canvas import INK_PLACEHOLDER, page_canvas, page_svg, series_colour
    from levelbench.report.markup import SERIES

    with page_canvas(name, 3.5) as (canvas, axes):
        colours = [series_colour(at) for at in range(len(SERIES))]
        draw_efficiencies(axes, scaled.points, (), colours, INK_PLACEHOLDER)
        return page_svg(canvas, name)


def by_task(groups: Sequence[Group]) -> list[tuple[str, list[Group]]]:
    """The groups of each task, in order of appearance: curves of different tasks do not share an axis."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(group[0].specification.task, []).append(group)
    return list(found.items())


def all_runs(groups: Sequence[Group]) -> list[RunSummary]:
    """Every run of the groups; unfinished runs come after the others of their group."""
    return [run for group, _ in groups for run in (*group.runs, *group.unfinished)]


def report_tables(groups: Sequence[Group], linted: Sequence[Remarks] = ()) -> list[tuple[str, Table]]:
    """Every table of a report with a name for its file: groups, phases, evaluations and ranks by task, then all runs.

    Tables of ranks show each group's run with the median time. ``linted`` has the linter's remarks about the groups.
    """
    from levelbench.report.run_figures import evaluations_table

    found = []
    for task, members in by_task(groups):
        only = [group for group, _ in members]
        made = (groups_table(only, linted), work_table(only), phases_by_group(only), evaluations_table(members))
        found += [(f"{_safe(task)}-{table.name}", table) for table in made if table is not None]
        for _, records in members:
            found += [(f"{_safe(task)}-{table.name}", table) for table in rank_tables(typical(records))]
    return [*found, ("runs", runs_table(all_runs(groups)))]


def _safe(name: str) -> str:
    """``name`` as part of a file's name."""
    kept = "".join(each if each.isascii() and (each.isalnum() or each in "-_") else "-" for each in name)
    return kept.strip("-")[:60] or "task"


def write_csv(groups: Sequence[Group], folder: Path, *, linted: Sequence[Remarks] = ()) -> list[Path]:
    """Every table of the report as a CSV file in ``folder``; numbers in base units at full precision.

    With ``linted``, the table of groups has a column with the rules that fired.
    """
    used: dict[str, int] = {}
    paths = []
    for name, table in report_tables(groups, linted):
        used[name] = used.get(name, 0) + 1
        suffix = f"-{used[name]}" if used[name] > 1 else ""
        paths.append(write_whole(folder / f"{name}{suffix}.csv", to_csv(table)))
    return paths


def _ranks(label: str, record: Record | None) -> list[str]:
    tables = rank_tables(record)
    if record is None or not tables:
        return []
    which = f"Run {record.header.id[:8]}, seed {record.header.seed}, the run with the median time."
    return [f"### Ranks of {markdown_text(label)}\n\n{which}\n", *(to_markdown(table, 4) for table in tables)]


def write_markdown(
    groups: Sequence[Group],
    verdicts: Sequence[tuple[str, str, Verdict]],
    path: Path,
    *,
    attributions: Iterable[str] = (),
    caveats: Iterable[str] = (),
    linted: Sequence[Remarks] = (),
) -> Path:
    """The verdicts and every table except the single evaluations as one Markdown file.

    With ``linted``, every group has the rules that fired next to its figures, and the findings come first.
    """
    from levelbench.measure.verdict import format_verdict

    lines = ["# Time to accuracy", ""]
    for name_a, name_b, verdict in verdicts:
        lines.append(f"- {markdown_text(format_verdict(verdict, name_a, name_b))}")
        lines.append(f"  (same means: the whole interval within ±{number(verdict.margin * 100)} %)")
    missing = missing_line(linted)
    said = [*caveats, *attributions, *lint_lines(linted), *([missing] if missing else [])]
    lines += [f"- {markdown_text(line)}" for line in said]
    parts = ["\n".join(lines) + "\n"]
    for task, members in by_task(groups):
        parts.append(f"## {markdown_text(task)}\n")
        only = [group for group, _ in members]
        tables = (groups_table(only, linted), work_table(only), phases_by_group(only))
        parts += [to_markdown(table, 3) for table in tables if table is not None]
        for group, records in members:
            parts += _ranks(group.label, typical(records))
    parts.append(to_markdown(runs_table(all_runs(groups))))
    return write_whole(path, "\n".join(parts))


_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_SHOWN_DOUBTS = 3
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
    scalings: Sequence[Scaling] = (),
    linted: Sequence[Remarks] = (),
) -> Path:
    """Write the report of ``groups`` (each with its records) and ``verdicts`` (name a, name b, verdict) to ``path``.

    ``attributions`` are lines that explain the differences, ``caveats`` say what speaks against the comparisons (by
    default the doubts of the runs), ``scalings`` how tasks scale with ranks, ``linted`` the linter's remarks, shown
    next to each group. The file is written completely or not at all; ``StoreError`` if it cannot be written.
    """
    text = report_page(groups, verdicts, attributions=attributions, caveats=caveats, scalings=scalings, linted=linted)
    return write_whole(path, text)


def report_page(
    groups: Sequence[Group],
    verdicts: Sequence[tuple[str, str, Verdict]],
    *,
    attributions: Iterable[str] = (),
    caveats: Iterable[str] | None = None,
    scalings: Sequence[Scaling] = (),
    linted: Sequence[Remarks] = (),
) -> str:
    """The report as the text of an HTML document."""
    only = [group for group, _ in groups]
    said = [str(each) for each in against(only)] if caveats is None else list(caveats)
    title = f"Time to accuracy: {', '.join(task for task, _ in by_task(groups)) or 'no runs'}"
    runs = all_runs(groups)
    days = sorted({run.started[:10] for run in runs})
    when = f", {days[0]}" + (f" to {days[-1]}" if len(days) > 1 else "") if days else ""
    lead = f"{plural(len(groups), 'group')}, {plural(len(runs), 'run')}{when}"
    main = tag(
        "main",
        _verdict_section(verdicts, said, list(attributions)),
        *(_task_section(task, members, at, len(groups), linted) for at, (task, members) in enumerate(by_task(groups))),
        ranks_section(groups, scalings, [_scaling(each, at) for at, each in enumerate(scalings)]),
        tag("section", tag("h2", "Runs"), to_html(runs_table(runs))),
        _failures_section(groups),
        lint_section(linted) if linted else Html(""),
        environment_section(groups),
        guide_section(groups, verdicts),
        versions_section(groups),
    )
    return html_page(title, lead, main, live=any(each in main for each in (' data-curves="', ' data-run="')))


def html_page(title: str, lead: str, main: Html, *, live: bool = False) -> str:
    """A self-contained HTML document: its style sheet is inside, and it cannot load anything.

    A ``live`` page holds the script of its figures, the only one that it can run; any other page runs none.
    """
    script, allowed = (_script(), f"; script-src 'sha256-{_digest(_script())}'") if live else ("", "")
    style = f"{style_sheet()}\n{_UPLOT.with_suffix('.css').read_text(encoding='utf-8')}" if live else style_sheet()
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}{allowed}">'),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name_="referrer", content="no-referrer"),
        tag("title", title),
        tag("style", Html(style)),
    )
    top = tag("header", tag("h1", title), tag("p", lead, class_="lead"))
    run = tag("script", Html(script)) if script else ""
    return f'<!DOCTYPE html>\n<html lang="en">{head}\n<body>{join([top, main])}{run}</body></html>\n'


_UPLOT = Path(__file__).with_name("uplot") / "uPlot.min.js"


@cache
def _script() -> str:
    """uPlot, with its licence, and what makes the page's figures readable at the pointer."""
    licence = _UPLOT.with_name("LICENSE").read_text(encoding="utf-8")
    parts = (_UPLOT, Path(__file__).with_name("figures.js"))
    return "\n".join([f"/*!\n{licence}\n*/", *(each.read_text(encoding="utf-8") for each in parts)])


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")


def page_names(tasks: Sequence[str]) -> list[str]:
    """A file's name for the page of each task, all different."""
    names: list[str] = []
    for task in tasks:
        name = f"task-{_safe(task)}"
        names.append(name if name not in names else f"{name}-{len(names)}")
    return [f"{name}.html" for name in names]


def write_index(
    groups: Sequence[Group],
    verdicts: Sequence[tuple[str, str, Verdict]],
    path: Path,
    names: Sequence[str],
    left_out: Sequence[str] = (),
    doubts: Sequence[int] = (),
) -> Path:
    """Write a page that has the verdicts and the main table of each task, and leads to its page in ``names``.

    Below them it lists the lines of ``left_out``, about runs that no page shows. ``doubts`` is how many each page has.
    """
    parts = []
    for at, ((task, members), name) in enumerate(zip(by_task(groups), names, strict=True)):
        only = [group for group, _ in members]
        labels = {group.label for group in only}
        count = doubts[at] if doubts else 0
        more = f"The report on {task}" + (f", with {plural(count, 'doubt')}" if count else "")
        parts.append(
            tag(
                "section",
                tag("h2", task),
                *_verdict_boxes([each for each in verdicts if each[1] in labels]),
                tag("p", tag("a", more, href=name)),
                to_html(groups_table(only)),
            )
        )
    lead = f"{plural(len(parts), 'task')}, {plural(len(all_runs(groups)), 'run')}"
    if left_out:
        items = (tag("li", line) for line in left_out)
        parts.append(tag("section", tag("h2", "Without a run that ended"), tag("ul", *items, class_="doubts")))
    return write_whole(path, html_page("Time to accuracy of all tasks", lead, tag("main", *parts)))


def _verdict_boxes(verdicts: Sequence[tuple[str, str, Verdict]]) -> list[Html]:
    """Each verdict with its ratio, interval and reason; of several against one side, what they share comes first."""
    from levelbench.measure.verdict import format_verdict, format_verdicts

    boxes: list[Html] = []
    texts = [format_verdict(verdict, a, b) for a, b, verdict in verdicts]
    if len(verdicts) > 1 and len({a for a, _, _ in verdicts}) == 1:
        head, texts = format_verdicts(verdicts[0][0], [(short_name(b), verdict) for _, b, verdict in verdicts])
        boxes.append(tag("p", breakable(f"{head[:1].upper()}{head[1:]}:")))
    for (_, _, verdict), sentence in zip(verdicts, texts, strict=True):
        kind = verdict.kind.value
        text = sentence.removeprefix(f"{kind}: ")
        boxes.append(tag("div", tag("b", kind), tag("span", breakable(text)), class_=f"verdict {kind}"))
    return boxes


def _verdict_section(verdicts: Sequence[tuple[str, str, Verdict]], caveats: list[str], attributions: list[str]) -> Html:
    """The verdicts first, each with its reason; then what speaks against them, and what explains the differences."""
    lines = _verdict_boxes(verdicts)
    if not lines:
        lines.append(tag("p", "No comparison: a verdict needs two groups of at least three runs each."))
    if caveats:
        said = [tag("li", line[:_MOST_CHARACTERS]) for line in caveats[:_MOST_DOUBTS]]
        lines += [tag("h3", "What to know before believing it"), tag("ul", *said[:_SHOWN_DOUBTS], class_="doubts")]
        # The first ones and the verdict fit on a phone's first screen.
        if rest := said[_SHOWN_DOUBTS:]:
            summary = tag("summary", f"{len(rest)} more")
            lines.append(tag("details", summary, tag("ul", *rest, class_="doubts"), class_="more"))
    if attributions:
        # A browser would break the line within "->".
        items = (tag("li", line.replace("->", "→")) for line in attributions)
        lines += [tag("h3", "Where the difference comes from"), tag("ul", *items)]
    return tag("section", tag("h2", "Verdict" if len(verdicts) == 1 else "Verdicts"), *lines)


def _task_section(task: str, members: Sequence[Group], at: int, whole: int, linted: Sequence[Remarks]) -> Html:
    """One task: its main table and its figures, with one legend for all."""
    figures = figures_of(members, f"t{at}-" if at else "")
    budget = _DATA_BYTES // (4 * max(1, min(whole, 8)))
    legend = tag("ul", *(_entry(group.label, row) for row, (group, _) in enumerate(members)), class_="legend")
    return tag(
        "section",
        tag("h2", task),
        to_html(groups_table([group for group, _ in members], linted)),
        *map(to_html, filter(None, [work_table([group for group, _ in members])])),
        legend,
        tag("div", *(figure_html(figure, budget) for figure in figures), class_="figures"),
    )


def _scaling(scaled: Scaling, at: int) -> Html:
    return tag("div", figure_html(scaling_figure(scaled, f"scaling-{at}"), _DATA_BYTES // 8), class_="figures")


def _entry(label: str, row: int) -> Html:
    """One series in the legend: its colour and dashes, then its label."""
    dashes = " ".join(f"{3 * length:g}" for length in DASHES[row % len(DASHES)][1])
    style = f"stroke:var(--series-{row % len(SERIES)});stroke-width:3;stroke-dasharray:{dashes or 'none'}"
    line = Html(f'<svg viewBox="0 0 30 6" aria-hidden="true"><path d="M0 3H30" style="{style}"/></svg>')
    return tag("li", line, label)


def figure_html(figure: Plot, budget: int = _DATA_BYTES) -> Html:
    """A figure with its caption, and its data as CSV of at most ``budget`` bytes, folded away below."""
    live = {"data_curves": figure.live} if figure.live else {}
    if figure.svg:
        drawing = tag("div", Html(figure.svg), class_="drawing", role="img", aria_label=figure.alt, **live)
    else:
        how = join(["Not drawn: matplotlib is not installed. ", tag("code", 'pip install "levelbench[plot]"')])
        drawing = tag("div", how, class_="missing", role="img", aria_label=figure.alt, **live)
    keys = [_key(column.title) for column in figure.table.columns if column.title in PHASES and figure.svg]
    data = tag(
        "details",
        tag("summary", "Data"),
        tag("p", csv_link(figure.data, budget), class_="note"),
        to_html(figure.table, 120),
    )
    legend = (tag("ul", *keys, class_="legend"),) if keys else ()
    return tag("figure", tag("h3", figure.title), drawing, *legend, tag("figcaption", figure.caption), data)


def _key(phase: str) -> Html:
    """One phase in the legend of the bars."""
    style = f"fill:var(--phase-{phase})"
    box = Html(f'<svg viewBox="0 0 30 11" aria-hidden="true"><path d="M0 0H30V11H0Z" style="{style}"/></svg>')
    return tag("li", box, phase)


def _failures_section(groups: Sequence[Group]) -> Html:
    """Failures with their errors, and runs that missed the target. Doubts are shown with the verdict."""
    items = []
    for group, _ in groups:
        for run in (*group.runs, *group.unfinished):
            name = f"{group.label} seed {run.seed}, run {run.id[:8]}: "
            if run.status != "done":
                items.append(tag("li", f"{name}{run.status}. ", tag("code", (run.error or "")[:_MOST_CHARACTERS])))
            elif not run.reached:
                items.append(tag("li", f"{name}did not reach the target; it counts as censored, not as slow."))
    if not items:
        none = "None: every run reached the target." if groups else "No run has ended."
        return tag("section", tag("h2", "Failures"), tag("p", none))
    rest = len(items) - _MOST_DOUBTS
    more = (tag("p", f"{rest} more; the run list has every run.", class_="note"),) if rest > 0 else ()
    return tag("section", tag("h2", "Failures"), tag("ul", *items[:_MOST_DOUBTS]), *more)
