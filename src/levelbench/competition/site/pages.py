"""The site's pages: the page of a board, and the page of an entry (``index`` has the front page).

All pages are complete without a script. A board's page then shows the first column's ranking and all records; its
script takes over the same table and adds other columns, sorting, filters, another target, curves. An entry's page has
its figures and how they were made, every run, the price, the environment and the doubts.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from levelbench.competition.checks import EntryFinding
from levelbench.competition.entries import Inference, Submission, SubmittedRun
from levelbench.competition.figures import COLUMNS, FLAGS, OF_TRAINING, Column
from levelbench.competition.site import (
    BoardPayload,
    EntryPayload,
    FigurePayload,
    brief,
    time_text,
)
from levelbench.competition.site.boards import (
    goodness,
    inference_facts,
    inference_note,
    leaders_of,
    ranking_words,
    said_of,
)
from levelbench.competition.site.parts import (
    TITLES,
    Scale,
    asset,
    badges,
    curve_drawing,
    facts,
    fill,
    inside,
    interval_bar,
    log_scale,
    many,
    outside,
    page,
    phases_drawing,
    progress_drawing,
    quality_text,
    render,
    root_of,
    rules,
    section,
    table,
    target_text,
)
from levelbench.records.schema import Target
from levelbench.report.markup import Html
from levelbench.report.numbers import ABSENT, BYTES, ENERGY, TIME, Unit, choose_unit, plural
from levelbench.report.remarks import Remark, Remarks, missing_line

_MOST_SHOWN = 200
"""The most runs, measurements or lines of a list on an entry's page."""


_MOST_ROWS = 100

_NOT_YET = "no entries yet"
_OF_SCENARIO = ("latency", "throughput")
MOST_OTHERS = 24
_CURVES = Html(
    '<section class="script" id="overlaid" aria-labelledby="h-curves" hidden><h2 id="h-curves">Curves</h2>'
    '<div id="curves"></div></section>\n'
)
"""The container for the curves that the script draws."""


def task_page(payload: BoardPayload, others: Sequence[tuple[str, str]] = (), *, later: bool = False) -> str:
    """The page of one board, as an HTML document; its script reads ``payload.data``.

    ``others`` are titles and pages of the task's boards of other scenarios. ``later``: the script reads the data when
    the reader first moves, for a board so large that it would make the page slow to open.
    """
    root = root_of(payload.page)
    columns = [column for column in payload.columns() if any(column in entry.figures for entry in payload.entries)]
    first: Column = columns[0] if columns else "time"
    training = "training" in payload.modes
    # If authors created boards for very many scenarios, the index has the rest.
    shown = [*others[:MOST_OTHERS], *([("more", "index.html")] if len(others) > MOST_OTHERS else [])]
    main = render(
        "task-page",
        title=payload.task_title,
        target=_sentence(payload.about or target_text(payload.target, payload.unit)),
        rules=payload.ruleset.id,
        count=plural(len(payload.entries), "entry", "entries"),
        day=payload.generated or ABSENT,
        others=fill(
            '<nav aria-label="Other rankings of this task"><ul class="inline"><li>Also ranked:</li>{links}</ul></nav>',
            links=many(fill("<li>{link}</li>", link=inside(root, page, title)) for title, page in shown),
        )
        if shown
        else "",
        tiles=many(_tile(payload, column) for column in columns),
        ranking=_ranking(payload, first, root),
        progress=_progress(payload, columns, first, root),
        curves=_CURVES if training else "",
        facts=section(
            "Rules of this board",
            rules(payload.ruleset, inference_facts(payload.inference, payload.target)),
            identity="rules",
        ),
    )
    scripts = fill(
        '<script src="{root}{script}" data-later="{root}{data}" defer></script>'
        if later
        else '<script src="{root}{script}" defer></script><script src="{root}{data}" defer></script>',
        root=root,
        script=asset("board.js"),
        data=payload.data,
    )
    back = fill('<span aria-current="page">{title}</span>', title=payload.task_title)
    title = f"{payload.task_title}: {payload.title}"
    return page(title, "task", payload.page, main, site=payload.title, back=back, scripts=scripts)


def _title(payload: BoardPayload, column: Column) -> str:
    """The column's title; for latency and throughput also which one."""
    said = column in _OF_SCENARIO and payload.compared
    return f"{TITLES[column]} ({payload.compared})" if said else TITLES[column]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _tile(payload: BoardPayload, column: Column) -> Html:
    """The record of one column in each division with entries; the script makes it a button."""
    records, standings = [], []
    for leader in leaders_of(payload, [column]):
        where = f", {leader.division} division" if leader.division else ""
        standings.append(f"{leader.division}: {leader.standing}" if leader.division else leader.standing)
        records.append((leader.text.partition(" [")[0], f"{leader.model}, {leader.author}{where}"))
    value, who = records[0] if records else (ABSENT, _NOT_YET)
    who = "".join([who, *(f"; {each}: {by}" for each, by in records[1:])])
    return fill(
        '<li data-column="{column}"><span class="title">{title}</span><b>{value}</b><span class="by">{who}</span>'
        "{rests}</li>",
        column=column, title=_title(payload, column), value=value, who=who,
        rests=fill('<span class="by">{rests}</span>', rests="; ".join(standings)) if standings else "",
    )  # fmt: skip


def _ranking(payload: BoardPayload, first: Column, root: str) -> Html:
    """The containers of the controls, and the static table."""
    ranked = [entry for entry in payload.entries if first in entry.figures]
    divisions = payload.divisions()
    ranked.sort(key=lambda entry: _place(entry, first, divisions))
    training, divided = first in OF_TRAINING, len(divisions) > 1
    figures = [entry.figures[first] for entry in ranked]
    known = [each for figure in figures for each in (figure.value, figure.low, figure.high) if each is not None]
    finite = [value for value in known if 0 < value < math.inf]
    # The axis of all intervals in the column.
    scale = log_scale(min(finite), max(finite), 4, 96) if finite else (lambda _: 50.0)
    rows = many(_row(entry, first, scale, root, training, divided) for entry in ranked[:_MOST_ROWS])
    heads = [
        ("rank", "Rank"), ("entry", "Entry"), ("figure n", "Figure"), ("bar", "Interval"), ("reached n", "Reached"),
        ("division", "Division"), ("hardware", "Hardware"), ("framework", "Framework"), ("date", "Date"),
        ("code", "Code"), ("notes", "Notes"),
    ]  # fmt: skip
    left_out = {*([] if training else ["reached n"]), *([] if divided else ["division"])}
    shown = [each for each in heads if each[0] not in left_out]
    head = many(
        fill('<th scope="col" role="columnheader" class="{kind}">{text}</th>', kind=kind, text=text)
        for kind, text in shown
    )
    title = _title(payload, first)
    # How entries are ranked and figures are made; the script shows the part for its column and target.
    said = {"training": _sentence(payload.ruleset.aggregation), "inference": inference_note(payload)}
    more = f"The first {_MOST_ROWS} of {len(ranked):,} entries. " if len(ranked) > _MOST_ROWS else ""
    return render("ranking",
        column=first, title=title[:1].lower() + title[1:], head=head, rows=rows, more=more,
        note=render("note",
            ranked=ranking_words(payload.ruleset),
            divisions="Each division is ranked separately. " if divided else "",
            figures=many(
                fill('<span data-about="{name}"{hidden}>{text}</span>', name=name, text=text,
                     hidden="" if (name == "training") == training else Html(" hidden"))
                for name, text in said.items()
            ),
        ),
    )  # fmt: skip


def _place(entry: EntryPayload, column: Column, divisions: Sequence[str]) -> tuple[bool, int, int, float]:
    """Sort key: by division and rank, then by value; entries without a value are last."""
    figure = entry.figures[column]
    worth = math.inf if figure.value is None else goodness(column) * figure.value
    return figure.rank is None, divisions.index(entry.division), figure.rank or 0, worth


def _row(entry: EntryPayload, column: Column, scale: Scale, root: str, training: bool, divided: bool) -> Html:
    """One entry of the static table; the script makes the same cells (``assets/table.js``)."""
    figure = entry.figures[column]
    value, bracket, interval = figure.text.partition(" [")
    reached = f"{entry.reached}/{entry.n}" if entry.mode == "training" and entry.n else ""
    by = ", ".join(dict.fromkeys(each for each in (entry.author, entry.organisation) if each))
    has_bar = figure.value is not None and 0 < figure.value < math.inf
    return render(
        "row",
        rank=ABSENT if figure.rank is None else f"{figure.rank}{'=' if figure.shared else ''}",
        tested=_tested(figure),
        link=inside(root, entry.page, entry.model),
        by=by,
        value=value or ABSENT,
        why=many(fill('<small class="why">{why}</small>', why=each) for each in said_of(entry, figure)),
        interval=fill('<small class="range">[{interval}</small>', interval=interval) if bracket else "",
        bar=interval_bar(figure.value or 1.0, figure.low, figure.high, scale) if has_bar else "",
        reached=fill(
            '<td role="cell" class="reached n" data-label="Reached" title="{whole}">{short}</td>',
            short=reached,
            whole=entry.reached_text,
        )
        if training
        else "",
        division=fill('<td role="cell" class="division" data-label="Division">{name}</td>', name=entry.division)
        if divided
        else "",
        hardware=entry.hardware,
        framework=entry.framework,
        date=entry.date[:10],
        code=outside(entry.code_url, "code") if entry.code_url else "",
        badges=badges(entry),
    )


def _tested(figure: FigurePayload) -> Html:
    """The ranks that the tests leave open, and whether the figure can be told from the one above it (``≈``: no)."""
    ranks, against = figure.ranks, figure.against
    if not ranks and not against:
        return Html("")
    mark = "≈ " if against.startswith("not ") else ""
    said = "; ".join(filter(None, [f"rank {ranks} by the tests" if ranks else "", against]))
    return fill(
        '<small class="tested" title="{said}"><span aria-hidden="true">{mark}{ranks}</span>'
        '<span class="hidden">{said}</span></small>',
        said=said,
        mark=mark,
        ranks=ranks.replace(" to ", "–"),
    )


def _progress(payload: BoardPayload, columns: list[Column], first: Column, root: str) -> Html:
    """The record over the years, one drawing per column and division; without a script all are shown."""
    figures, divisions, drawn = [], payload.divisions(), set()
    for column, division in product(columns, divisions):
        records = []
        for day, value, at in payload.progress.get(column, []):
            entry = payload.entries[at]
            if entry.division != division:
                continue
            text = entry.figures[column].text.partition(" [")[0]
            records.append((day, value, text, f"{entry.model}, {entry.author}", f"{root}{entry.page}"))
        drawing = progress_drawing(records, payload.generated, column)
        if drawing:
            drawn.add(column)
            title = TITLES[column] + (f", {division} division" if len(divisions) > 1 else "")
            figures.append(render("progress", column=column, title=title, drawing=drawing))
    # The script shows the parts of its column.
    for column in columns or [first]:
        if column not in drawn:
            text = f"{TITLES[column]}: {_NOT_YET}."
            figures.append(fill('<p class="note" data-progress="{column}">{text}</p>', column=column, text=text))
    return section("The record over time", *figures)


def curve_section(submission: Submission) -> Html:
    """The curves of all runs in one drawing."""
    runs = [
        (f"run {at}{f', seed {run.seed}' * (run.seed is not None)}, {run.status}", run.curve.time_s, run.curve.quality)
        for at, run in enumerate(submission.runs[:_MOST_SHOWN], 1)
    ]
    drawing = curve_drawing(runs, submission.target)
    caption = fill("<figcaption>{target}. One line per run.</figcaption>", target=target_text(submission.target))
    if not drawing:
        return drawing
    return section("Curve", fill("<figure>{caption}{drawing}</figure>", caption=caption, drawing=drawing))


def runs_section(entry: EntryPayload, submission: Submission, target: Target) -> Html:
    """Every run, whether or not it arrived; columns that no run states are left out.

    For an entry that was not scored, it is unknown whether its runs arrived.
    """
    lower = target.direction == "lower"
    rows: list[tuple[str, ...]] = []
    doubts: dict[str, int] = {}
    for at, run in enumerate(submission.runs[:_MOST_SHOWN]):
        time_s = entry.times_s[at] if at < len(entry.times_s) else None
        qualities = run.curve.quality
        if not math.isfinite(sum(qualities)):
            qualities = [value for value in qualities if math.isfinite(value)]
        best = (min(qualities) if lower else max(qualities)) if qualities else None
        digest = run.record_digest or run.curve_digest
        rows.append(
            (
                str(at + 1),
                "" if run.seed is None else str(run.seed),
                ("" if not entry.times_s else "no") if time_s is None else "yes",
                "" if time_s is None else time_text(time_s),
                "" if best is None else quality_text(best, target),
                str(len(run.curve.time_s)),
                in_unit(run.peak_memory_bytes, BYTES),
                in_unit(run.energy_j, ENERGY),
                ", ".join(f"{name} {brief(value, 4)}" for name, value in list(run.test_quality.items())[:8]),
                run.status if run.error is None else f"{run.status}: {run.error}",
                ", ".join(str(doubts.setdefault(doubt, len(doubts) + 1)) for doubt in run.suspect[:_MOST_SHOWN]),
                fill('<code title="{whole}">{head}</code>', whole=digest, head=digest[:12]) if digest else "",
            )
        )
    heads = [
        ("Run", "n"), ("Seed", "n"), ("Reached", "t"), ("Time", "n"), ("Best", "n"), ("Evaluations", "n"),
        ("Peak memory", "n"), ("Energy", "n"), ("On the test split", "w"), ("Status", "w"), ("Doubts", "t"),
        ("Digest", "t"),
    ]  # fmt: skip
    kept = [at for at in range(len(heads)) if at == 0 or any(row[at] for row in rows)]
    shown = [[row[at] for at in kept] for row in rows]
    of = len(submission.runs)
    note = fill('<p class="note">The first {most} of {of} runs.</p>', most=str(_MOST_SHOWN), of=str(of))
    # Doubts are numbered: a long sentence in every row would make a phone's table very high.
    runs = table("Every run of this entry", [heads[at] for at in kept], shown, _MOST_SHOWN)
    items = many(fill("<li>{doubt}</li>", doubt=doubt) for doubt in list(doubts)[:_MOST_SHOWN])
    numbered = fill('<p class="note">Doubts, by number:</p><ol class="note">{items}</ol>', items=items)
    return section("Runs", runs, note if of > _MOST_SHOWN else Html(""), numbered if doubts else Html(""))


def in_unit(value: float | None, units: tuple[Unit, ...]) -> str:
    """``value`` in the unit that suits it; empty for ``None``."""
    if value is None:
        return ""
    unit = choose_unit([value], units)
    return f"{brief(value / unit.size)} {unit.symbol}"


def _of_a_million(usd: float) -> str:
    return f"${brief(1e6 * usd)}"


def inference_section(measured: Sequence[Inference], target: Target) -> Html:
    """Each measurement as a list of facts."""
    blocks = []
    for each in measured[:_MOST_SHOWN]:
        quantiles = ", ".join(f"{name}: {time_text(value)}" for name, value in sorted(each.quantiles_s.items())[:20])
        found = facts(
            [
                ("Mean latency", in_unit(each.mean_latency_s, TIME)),
                ("Quantiles", quantiles),
                (f"Early-stopping estimate of {each.estimate_quantile or ABSENT}", in_unit(each.estimate_s, TIME)),
                ("Throughput", None if each.throughput_per_s is None else f"{brief(each.throughput_per_s)} a second"),
                ("Load", None if each.target_per_s is None else f"{brief(each.target_per_s)} queries a second"),
                ("Latency bound", in_unit(each.latency_bound_s, TIME)),
                ("Quality", None if each.quality is None else quality_text(each.quality, target)),
                ("Queries", f"{each.queries:,} of {each.samples:,} samples in {time_text(each.duration_s)}"),
                ("Batch", None if each.batch is None else str(each.batch)),
                ("On the clock besides the network", ", ".join(each.includes) or "not stated"),
                ("Valid", {None: None, True: "yes", False: "no"}[each.valid]),
                (
                    "Cost of a million answers, as stated",
                    None if each.cost_usd is None else _of_a_million(each.cost_usd),
                ),
            ]
        )
        blocks.append(fill("<h3>{scenario}</h3>{found}", scenario=each.scenario, found=found))
    return section("Inference", *blocks)


def phases_section(runs: Sequence[SubmittedRun]) -> Html:
    """Mean seconds of each phase over the runs that state them, then what the clock left out."""
    stated = [run.phases_s for run in runs if run.phases_s]
    names = dict.fromkeys(name for phases in stated for name in list(phases)[:_MOST_SHOWN])
    means = {name: sum(phases.get(name, 0.0) for phases in stated) / len(stated) for name in list(names)[:_MOST_SHOWN]}
    excluded = [run.excluded_s for run in runs if run.excluded_s]
    left = dict.fromkeys(name for each in excluded for name in list(each)[:_MOST_SHOWN])
    out = ", ".join(
        f"{name} {time_text(sum(each.get(name, 0.0) for each in excluded) / len(excluded))}"
        for name in list(left)[:_MOST_SHOWN]
    )
    note = fill('<p class="note">Left out by the clock: {out}.</p>', out=out) if out else Html("")
    return section("Where the time went", phases_drawing(means), note)


Side = tuple[BoardPayload, EntryPayload]
"""A board without entries, and the entry as shown there."""

_IMPLIED_FLAGS = {
    "single-run": ("single-run",),
    "threshold": ("not-reached", "quality-too-low"),
    "flapping": ("falls-back",),
    "censored": ("stops-at-target",),
    "price": ("price-missing",),
    "quality": ("quality-missing",),
}
"""Kinds of an import's doubts (``kind: sentence``), and the flags that say no more than they."""
_SEVERITIES = {"error": "bad", "warning": "open", "note": "plain"}


def entry_page(
    payload: BoardPayload,
    entry: EntryPayload,
    submission: Submission,
    findings: Sequence[EntryFinding],
    *,
    source: str | bytes = "",
    linted: Remarks | None = None,
    further: Sequence[Side] = (),
    off: Sequence[str] = (),
) -> str:
    """The page of ``entry``, as an HTML document.

    ``source`` is the submission's file content, to embed in the page, or the path of the site's copy of it, relative to
    the root; empty: no copy. ``linted`` are the linter's remarks. ``further`` are its other boards, without entries,
    each with the entry as shown there; ``off`` are the titles of boards that it would be on if they were built.
    """
    root = root_of(entry.page)
    # Line by line, which keeps line ends and shows other control characters.
    lines = submission.notes.splitlines()[:_MOST_SHOWN]
    notes = many(fill("<p>{line}</p>", line=line) for line in lines if line.strip())
    found = ((_SEVERITIES.get(one.severity, "plain"), one.field, one) for one in findings[:_MOST_SHOWN])
    listed = _finding_list(found)
    main = render(
        "entry-page",
        model=entry.model,
        by=", ".join(dict.fromkeys(each for each in (entry.author, entry.organisation) if each)),
        date=entry.date,
        task=inside(root, payload.page, payload.task_title),
        division=entry.division,
        badges=badges(entry, always=True),
        tiles=_tiles(entry),
        further=_further(further, off, root),
        doubts=_doubts([(payload, entry), *further]),
        curve=curve_section(submission),
        runs=runs_section(entry, submission, payload.target),
        inference=inference_section(submission.inference, payload.target),
        phases=phases_section(submission.runs),
        facts=_facts(submission, _file(source, root, entry.slug)),
        findings=section("Findings", listed or Html('<p class="note">None: the check found nothing wrong.</p>')),
        lint=_lint(linted) if linted is not None else Html(""),
        notes=section("Notes", notes) if submission.notes else Html(""),
    )
    back = many(
        [
            inside(root, payload.page, payload.task_title),
            fill('<span aria-current="page">{name}</span>', name=entry.model),
        ]
    )
    title = f"{entry.model}, {entry.author}: {payload.task_title}"
    return page(title, "entry", entry.page, main, site=payload.title, back=back)


def _tiles(entry: EntryPayload) -> Html:
    """Each figure with how it was made, then how many runs arrived."""
    tiles = []
    for column in COLUMNS:
        figure = entry.figures.get(column)
        if figure is None:
            continue
        value, bracket, interval = figure.text.partition(" [")
        tiles.append((TITLES[column], value or ABSENT, f"[{interval}" if bracket else "", figure.note))
    if entry.mode == "training":
        share, bracket, interval = entry.reached_text.partition(" [")
        tiles.append(("Runs that reached the target", share or ABSENT, f"[{interval}" if bracket else "", ""))
        if entry.expected_with_restarts_s is not None:
            note = "with a restart after each run that misses the target"
            tiles.append(("Expected with restarts", time_text(entry.expected_with_restarts_s), "", note))
        if entry.best_s is not None and entry.n > 1:
            tiles.append(("Best run", time_text(entry.best_s), "", "never a result by itself"))
    return many(
        render("tiles",
            title=title, value=value, note=note,
            interval=fill('<small class="interval-text">{text}</small>', text=interval) if interval else "",
        )
        for title, value, interval, note in tiles
    )  # fmt: skip


def _further(further: Sequence[Side], off: Sequence[str], root: str) -> Html:
    """Its figures in each other scenario, under the link to that board."""
    ranked = many(
        fill(
            '<section><h2>{link}</h2><ul class="columns" role="list">{tiles}</ul></section>\n',
            link=inside(root, board.page, board.task_title),
            tiles=_tiles(entry),
        )
        for board, entry in further
    )
    note = fill('<p class="note">Too many boards: the task has none of {titles}.</p>', titles="; ".join(off))
    return many([ranked, note if off else Html("")])


def _doubts(sides: Sequence[Side]) -> Html:
    """Doubts from an import and flags from scoring; if a flag is not on every board, with the board."""
    entry = sides[0][1]
    doubts = entry.origin.doubts if entry.origin else []
    # An import's doubt about this entry is more specific than the general flag.
    said = {FLAGS[flag] for doubt in doubts for flag in _IMPLIED_FLAGS.get(doubt.partition(":")[0], ())}
    if FLAGS["cost-stated"] in entry.flags:
        said.add(FLAGS["price-missing"])
    everywhere = [flag for flag in entry.flags if all(flag in each.flags for _, each in sides)]
    lines = [flag for flag in everywhere if flag not in said]
    for board, each in sides:
        lines += [f"{board.task_title}: {flag}" for flag in each.flags if flag not in (*everywhere, *said)]
    lines += doubts
    items = many(fill("<li>{line}</li>", line=line) for line in lines[:_MOST_SHOWN])
    return section("To keep in mind", fill("<ul>{items}</ul>", items=items)) if items else Html("")


def _file(source: str | bytes, root: str, name: str) -> Html | None:
    """The link to the submission's file: embedded in the page as a data address, or a file next to it."""
    if isinstance(source, str):
        return inside(root, source, "JSON") if source else None
    # No base64 character ends an attribute.
    content = Html(b64encode(source).decode("ascii"))
    return fill(
        '<a download="{name}.json" href="data:application/json;base64,{content}">JSON</a>', name=name, content=content
    )


def _facts(submission: Submission, file: Html | None) -> Html:
    """Hardware, price, code, software, data, tuning, settings and the entry's origin."""
    hardware, price, origin, tuning = submission.hardware, submission.price, submission.origin, submission.tuning
    made = submission.provenance
    accelerators = "" if hardware.accelerators is None else f"{hardware.accelerators:,}"
    cores = "" if hardware.cores is None else plural(hardware.cores, "core")
    commit = submission.code.commit
    dirty = " (with uncommitted changes)" if submission.code.dirty else ""
    paid = "not stated"
    if price is not None:
        kind = {True: ", on demand", False: ", not on demand", None: ""}[price.on_demand]
        day = f", read on {price.read_on}" if price.read_on else ""
        paid = f"${brief(price.usd_per_hour)} an hour{kind}{day}"
    tried = [
        None if tuning.trials is None else f"{tuning.trials:,} trials",
        None if tuning.hours is None else f"{brief(tuning.hours)} hours",
        None if tuning.usd is None else f"${brief(tuning.usd)}",
    ]
    parts = [
        facts(
            [
                ("Hardware", hardware.description),
                ("Nodes", None if hardware.nodes is None else f"{hardware.nodes:,}"),
                ("Accelerators", " × ".join(filter(None, [accelerators, hardware.accelerator]))),
                ("Processor", ", ".join(filter(None, [hardware.processor, cores]))),
                ("Memory", in_unit(hardware.memory_bytes, BYTES)),
                ("Framework", submission.framework),
                ("Price", paid),
                ("Price from", outside(price.source) if price and price.source else None),
                ("Code", outside(submission.code.url) if submission.code.url else "not stated"),
                ("Commit", fill("<code>{commit}</code>{dirty}", commit=commit, dirty=dirty) if commit else None),
                ("Tuning effort", ", ".join(filter(None, tried)) or "not stated"),
                ("Tuning notes", tuning.notes),
                ("Clock", submission.clock),
                ("Read from", f"{origin.format}: {origin.file}" if origin else None),
                ("This entry's file", file),
            ]
        ),
        _folded("Settings", submission.settings),
        _folded("Software", made.software),
        _folded("Environment", made.environment),
        _folded(f"Data: {made.dataset or 'checksums'}", made.checksums),
        _folded(f"As {origin.format} has it", origin.fields) if origin else Html(""),
    ]
    return section("What it ran on", *parts)


def _folded(title: str, values: Mapping[str, object]) -> Html:
    """Names and values, folded; empty if there are none."""
    pairs = list(values.items())
    if not pairs:
        return Html("")
    listed = facts(
        (name, "not stated" if value is None else str(value) or ABSENT) for name, value in pairs[:_MOST_SHOWN]
    )
    return fill("<details><summary>{title}</summary>{listed}</details>", title=title, listed=listed)


def _finding_list(findings: Iterable[tuple[str, str, EntryFinding | Remark]]) -> Html:
    """Findings, each with its class, its place and the remedy; empty if there are none."""
    items = many(
        fill(
            '<li><span class="badge {kind}">{badge}</span> <code>{field}</code> {found}. <em>{do}.</em></li>',
            kind=kind,
            badge=f"{one.severity} {one.code}",
            field=field,
            found=one.found.rstrip("."),
            do=one.do.rstrip("."),
        )
        for kind, field, one in findings
    )
    return fill('<ul class="findings">{items}</ul>', items=items) if items else Html("")


def _lint(linted: Remarks) -> Html:
    """The linter's remarks on the entry's claim: its errors are for the reader to judge, not faults of the entry."""
    listed = _finding_list(("open", one.name, one) for one in linted.lines[:_MOST_SHOWN])
    none = Html("") if listed else Html("<p>No error and no warning.</p>")
    missing = missing_line([linted])
    note = fill('<p class="note">{missing}</p>', missing=missing) if missing else Html("")
    return section("The linter on its claim", listed, none, note)
