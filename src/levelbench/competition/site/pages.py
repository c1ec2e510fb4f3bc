"""The site's pages but those of entries: the index with a card for each board, and the page of a board.

A board's page is complete without a script: it shows the first column's ranking and every record. The script then takes
the same table over and adds what needs one: the other columns, sorting, filters, another target, curves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

from levelbench.competition.figures import COLUMNS, Column
from levelbench.competition.site import DIVISIONS, BoardPayload, EntryPayload, Leader, NotShown
from levelbench.competition.site.boards import goodness, inference_facts, inference_note, leaders_of
from levelbench.competition.site.drawings import Scale, interval_bar, log_scale, progress_drawing
from levelbench.competition.site.parts import (
    TITLES,
    asset,
    badges,
    facts,
    fill,
    inside,
    many,
    outside,
    page,
    render,
    root_of,
    rules,
    section,
    target_text,
)
from levelbench.report.markup import Html
from levelbench.report.numbers import ABSENT, plural

_MOST_REASONS = 12


def index_page(
    title: str,
    generated: str,
    entries: int,
    boards: Sequence[tuple[BoardPayload, Sequence[Leader]]],
    near: Sequence[NotShown] = (),
    not_shown: Sequence[NotShown] = (),
    *,
    feed: str = "",
) -> str:
    """The index of a site with a card for each board and its leaders, as the text of an HTML document.

    ``entries`` are so many on all boards; ``feed`` is where the feed of new ones is, relative to the root.
    """
    cards = many(_card(*each) for each in boards)
    lead = f"{plural(entries, 'entry', 'entries')} on {plural(len(boards), 'board')}, as of {generated or ABSENT}."
    programs = [("leaderboard.json", "JSON"), ("leaderboard.csv", "CSV")]
    programs += [(feed, "feed of new entries")] if feed else []
    links = many(fill("<li>{link}</li>", link=inside("", name, words)) for name, words in programs)
    versions = []
    for _, each in sorted({board.ruleset.id: board.ruleset for board, _ in boards}.items()):
        timed = f"Clock {each.clock}, crossing {each.crossing}, of {each.date or ABSENT}. "
        words = many([each.aggregation, Html("<br>"), timed, outside(each.source)])
        versions.append((f"{each.name} {each.version}", words))
    main = fill(
        '<div class="intro"><h1>{title}</h1><p class="lead">{lead} {what}</p></div>\n'
        '<section aria-label="Boards"><div class="cards">{cards}</div></section>\n{rules}{near}{missing}{machines}',
        title=title,
        lead=lead,
        what="Deep learning, measured end to end: how long and how many dollars until a model is good enough, "
        "and what one answer of it takes.",
        cards=cards or Html('<p class="note">No entry yet.</p>'),
        rules=section("Rules", facts(versions)),
        near=_listed(
            "Doubtful",
            near,
            "These entries share runs or curves with others, or nearly, or cannot be compared with most others.",
        ),
        missing=_listed("Not shown", not_shown, "These files are in the folder but on no board, for these reasons."),
        machines=section("For programs", fill('<ul class="inline">{links}</ul>', links=links)),
    )
    return page(title, "index", "index.html", main, site=title)


def _card(board: BoardPayload, leaders: Sequence[Leader]) -> Html:
    """One board: its target, or what it compares in place of it, and the first of each column."""
    firsts = many(
        fill(
            '<div class="leader"><dt>{column}{division}</dt><dd class="value">{text}</dd><dd class="by">{model}, '
            '{author}</dd><dd class="by">{standing}</dd></div>',
            column=TITLES[leader.column],
            division=f", {leader.division}" if leader.division else "",
            text=leader.text.partition(" [")[0],
            model=inside("", leader.page, leader.model),
            author=leader.author,
            standing=leader.standing,
        )
        for leader in leaders
    )
    return fill(
        '<article class="card"><h2>{link}</h2><p class="target-line">{target}</p><dl class="leaders">{leaders}</dl>'
        '<p class="foot"><span>{count}</span><span>newest {newest}</span><span>rules {rules}</span></p></article>',
        link=inside("", board.page, board.task_title),
        target=board.about or target_text(board.target),
        leaders=firsts or Html('<div class="leader"><dt>No figure yet</dt></div>'),
        count=plural(len(board.entries), "entry", "entries"),
        newest=max((entry.date for entry in board.entries), default="") or ABSENT,
        rules=board.ruleset.id,
    )


def _listed(title: str, files: Sequence[NotShown], note: str) -> Html:
    """Files, each with what was found and what to do."""
    items = []
    for each in files:
        reasons = each.reasons[:_MOST_REASONS]
        rest = len(each.reasons) - len(reasons)
        more = [f"{rest} more"] if rest > 0 else []
        lines = many(fill("<li>{text}</li>", text=text) for text in [*reasons, *more])
        items.append(fill("<li><code>{file}</code><ul>{lines}</ul></li>", file=each.file, lines=lines))
    if not items:
        return Html("")
    return section(
        title,
        fill('<p class="note">{note}</p>', note=note),
        fill('<ul class="missing-files">{items}</ul>', items=many(items)),
    )


_MOST_ROWS = 100

_NOT_YET = "no entry yet"
_OF_TRAINING = ("time", "cost")
_OF_SCENARIO = ("latency", "throughput")
MOST_OTHERS = 24
_CURVES = Html(
    '<section class="script" id="overlaid" aria-labelledby="h-curves" hidden><h2 id="h-curves">Curves</h2>'
    '<div id="curves"></div></section>\n'
)
"""The place of the curves that the script lays over one another."""


def task_page(payload: BoardPayload, others: Sequence[tuple[str, str]] = ()) -> str:
    """The page of one board, as the text of an HTML document; its script reads ``payload.data``.

    ``others`` are titles and pages of the same task's boards of other scenarios.
    """
    root = root_of(payload.page)
    columns = [column for column in COLUMNS if any(column in entry.figures for entry in payload.entries)]
    first: Column = columns[0] if columns else "time"
    training = "training" in payload.modes
    # Where somebody made boards of very many scenarios, the index has the rest.
    shown = [*others[:MOST_OTHERS], *([("more", "index.html")] if len(others) > MOST_OTHERS else [])]
    main = render(
        "task-page",
        title=payload.task_title,
        target=_sentence(payload.about or target_text(payload.target)),
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
        '<script src="{root}{script}" defer></script><script src="{root}{data}" defer></script>',
        root=root,
        script=asset("board.js"),
        data=payload.data,
    )
    back = fill('<span aria-current="page">{title}</span>', title=payload.task_title)
    title = f"{payload.task_title}: {payload.title}"
    return page(title, "task", payload.page, main, site=payload.title, back=back, scripts=scripts)


def _title(payload: BoardPayload, column: Column) -> str:
    """The column's title; of latency and throughput also which one."""
    said = column in _OF_SCENARIO and payload.compared
    return f"{TITLES[column]} ({payload.compared})" if said else TITLES[column]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _tile(payload: BoardPayload, column: Column) -> Html:
    """The record of one column, of each division that there is; the script makes it a choice."""
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
    """The controls' places and the static table."""
    ranked = [entry for entry in payload.entries if first in entry.figures]
    ranked.sort(key=lambda entry: _place(entry, first))
    training, divided = first in _OF_TRAINING, len(payload.divisions()) > 1
    figures = [entry.figures[first] for entry in ranked]
    known = [each for figure in figures for each in (figure.value, figure.low, figure.high) if each is not None]
    finite = [value for value in known if 0 < value < math.inf]
    # The axis of all intervals of the column.
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
    # How the entries are ranked and how the figures are made; the script shows what its column and target want.
    said = {"training": _sentence(payload.ruleset.aggregation), "inference": inference_note(payload)}
    more = f"The first {_MOST_ROWS} of {len(ranked):,} entries. " if len(ranked) > _MOST_ROWS else ""
    return render("ranking",
        column=first, title=title[:1].lower() + title[1:], head=head, rows=rows, more=more,
        note=render("note",
            divisions="Each division has ranks of its own. " if divided else "",
            figures=many(
                fill('<span data-about="{name}"{hidden}>{text}</span>', name=name, text=text,
                     hidden="" if (name == "training") == training else Html(" hidden"))
                for name, text in said.items()
            ),
        ),
    )  # fmt: skip


def _place(entry: EntryPayload, column: Column) -> tuple[bool, int, int, float]:
    """By division and rank, then by value; what has none is last."""
    figure = entry.figures[column]
    worth = math.inf if figure.value is None else goodness(column) * figure.value
    return figure.rank is None, DIVISIONS.index(entry.division), figure.rank or 0, worth


def _row(entry: EntryPayload, column: Column, scale: Scale, root: str, training: bool, divided: bool) -> Html:
    """One entry of the static table; the script makes the same cells (``assets/table.js``)."""
    figure = entry.figures[column]
    value, bracket, interval = figure.text.partition(" [")
    why = figure.note if figure.value is None else ""
    reached = f"{entry.reached}/{entry.n}" if entry.mode == "training" and entry.n else ""
    by = ", ".join(dict.fromkeys(each for each in (entry.author, entry.organisation) if each))
    has_bar = figure.value is not None and 0 < figure.value < math.inf
    return render(
        "row",
        rank=ABSENT if figure.rank is None else f"{figure.rank}{'=' if figure.shared else ''}",
        link=inside(root, entry.page, entry.model),
        by=by,
        value=value or ABSENT,
        why=many(fill('<small class="why">{why}</small>', why=each) for each in filter(None, [why, *entry.doubts])),
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


def _progress(payload: BoardPayload, columns: list[Column], first: Column, root: str) -> Html:
    """The record over the years, a drawing a column and division; without a script all are shown."""
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
    # The script shows what is of its column.
    for column in columns or [first]:
        if column not in drawn:
            text = f"{TITLES[column]}: {_NOT_YET}."
            figures.append(fill('<p class="note" data-progress="{column}">{text}</p>', column=column, text=text))
    return section("The record over time", *figures)
