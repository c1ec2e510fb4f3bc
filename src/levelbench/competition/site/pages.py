"""The site's pages but those of entries: the index with a card for each board, and the page of a board.

A board's page is complete without a script: it shows the first column's ranking and every record. The script then takes
the same table over and adds what needs one: the other columns, sorting, filters, another target, curves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product

from levelbench.competition.figures import COLUMNS, Column
from levelbench.competition.site import (
    DIVISIONS,
    BoardPayload,
    EntryPayload,
    FigurePayload,
    Leader,
    NotShown,
    RulesetFacts,
    SiteFacts,
)
from levelbench.competition.site.boards import goodness, inference_facts, inference_note, standing
from levelbench.competition.site.drawings import Scale, interval_bar, log_scale, progress_drawing
from levelbench.competition.site.parts import (
    TITLES,
    asset,
    badges,
    entries_words,
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
from levelbench.report.numbers import ABSENT

_MOST_REASONS = 12


def index_page(site: SiteFacts, boards: Sequence[tuple[BoardPayload, Sequence[Leader]]]) -> str:
    """The index of ``site`` with a card for each board and its leaders, as the text of an HTML document."""
    cards = many(_card(*each) for each in boards)
    count = f"{len(boards)} board{'s' * (len(boards) != 1)}"
    lead = f"{entries_words(site.entries)} on {count}, as of {site.generated or ABSENT}."
    programs = [("leaderboard.json", "JSON"), ("leaderboard.csv", "CSV")]
    programs += [(site.feed, "feed of new entries")] if site.feed else []
    links = many(fill("<li>{link}</li>", link=inside("", name, words)) for name, words in programs)
    main = fill(
        '<div class="intro"><h1>{title}</h1><p class="lead">{lead} {what}</p></div>\n'
        '<section aria-label="Boards"><div class="cards">{cards}</div></section>\n{rules}{near}{missing}{machines}',
        title=site.title,
        lead=lead,
        what="Deep learning, measured end to end: how long and how many dollars until a model is good enough, "
        "and what one answer of it takes.",
        cards=cards or Html('<p class="note">No entry yet.</p>'),
        rules=_rulesets({board.ruleset.id: board.ruleset for board, _ in boards}),
        near=_listed(
            "Doubtful",
            site.near,
            "These entries share runs or curves with others, or nearly, or cannot be compared with most others.",
        ),
        missing=_listed(
            "Not shown", site.not_shown, "These files are in the folder but on no board, for these reasons."
        ),
        machines=section("For programs", fill('<ul class="inline">{links}</ul>', links=links)),
    )
    return page(site.title, "index", "index.html", main, site=site.title)


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
        count=entries_words(len(board.entries)),
        newest=max((entry.date for entry in board.entries), default="") or ABSENT,
        rules=board.ruleset.id,
    )


def _rulesets(known: Mapping[str, RulesetFacts]) -> Html:
    """Each version of rules once."""
    rows = [
        (
            f"{each.name} {each.version}",
            many(
                [
                    each.aggregation,
                    Html("<br>"),
                    f"Clock {each.clock}, crossing {each.crossing}, of {each.date or ABSENT}. ",
                    outside(each.source),
                ]
            ),
        )
        for _, each in sorted(known.items())
    ]
    return section("Rules", facts(rows))


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
    main = render(
        "task-page",
        title=payload.task_title,
        target=_sentence(payload.about or target_text(payload.target)),
        rules=payload.ruleset.id,
        count=entries_words(len(payload.entries)),
        day=payload.generated or ABSENT,
        others=_others(others, root),
        tiles=many(_tile(payload, column, root) for column in columns),
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


def _others(others: Sequence[tuple[str, str]], root: str) -> Html:
    """Links to the boards of the task's other scenarios; where somebody made very many, to the index for the rest."""
    if not others:
        return Html("")
    shown = [*others[:MOST_OTHERS], *([("more", "index.html")] if len(others) > MOST_OTHERS else [])]
    links = many(fill("<li>{link}</li>", link=inside(root, page, title)) for title, page in shown)
    return fill(
        '<nav aria-label="Other rankings of this task"><ul class="inline"><li>Also ranked:</li>{links}</ul></nav>',
        links=links,
    )


def _title(payload: BoardPayload, column: Column) -> str:
    """The column's title; of latency and throughput also which one."""
    said = column in _OF_SCENARIO and payload.compared
    return f"{TITLES[column]} ({payload.compared})" if said else TITLES[column]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _tile(payload: BoardPayload, column: Column, root: str) -> Html:
    """The record of one column, of each division that there is; the script makes it a choice."""
    firsts = [entry for entry in payload.entries if column in entry.figures and entry.figures[column].rank == 1]
    divisions = payload.divisions()
    records, standings = [], []
    for division in divisions:
        leaders = [entry for entry in firsts if entry.division == division]
        leader = min(leaders, key=lambda entry: _worth(entry.figures[column], column), default=None)
        if leader is not None:
            where = f", {division} division" if len(divisions) > 1 else ""
            who = fill("{model}, {author}{where}", model=leader.model, author=leader.author, where=where)
            rests = standing(leader, column, payload.ruleset.aggregation_rule, len(leaders) - 1)
            standings.append(f"{division}: {rests}" if len(divisions) > 1 else rests)
            records.append((leader.figures[column].text.partition(" [")[0], who))
    value, who = records[0] if records else (ABSENT, many([_NOT_YET]))
    who = many([who, *(fill("; {value}: {who}", value=each, who=by) for each, by in records[1:])])
    return fill(
        '<li data-column="{column}"><span class="title">{title}</span><b>{value}</b><span class="by">{who}</span>'
        "{rests}</li>",
        column=column, title=_title(payload, column), value=value, who=who,
        rests=fill('<span class="by">{rests}</span>', rests="; ".join(standings)) if standings else "",
    )  # fmt: skip


def _ranking(payload: BoardPayload, first: Column, root: str) -> Html:
    """The controls' places and the static table."""
    ranked = [entry for entry in payload.entries if first in entry.figures]
    ranked.sort(key=lambda entry: _order(entry, first))
    training, divided = first in _OF_TRAINING, len(payload.divisions()) > 1
    scale = _scale([entry.figures[first] for entry in ranked])
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
    more = f"The first {_MOST_ROWS} of {len(ranked):,} entries. " if len(ranked) > _MOST_ROWS else ""
    return render("ranking",
        column=first, title=title[:1].lower() + title[1:], head=head, rows=rows, more=more,
        note=_note(payload, first),
    )  # fmt: skip


def _note(payload: BoardPayload, first: Column) -> Html:
    """How the entries are ranked and how the figures are made; the script shows what its column and target want."""
    shown = "training" if first in _OF_TRAINING else "inference"
    said = {"training": _sentence(payload.ruleset.aggregation), "inference": inference_note(payload)}
    divided = len(payload.divisions()) > 1
    return render("note",
        divisions="Each division has ranks of its own. " if divided else "",
        figures=many(
            fill('<span data-about="{name}"{hidden}>{text}</span>', name=name, text=text,
                 hidden="" if name == shown else Html(" hidden"))
            for name, text in said.items()
        ),
    )  # fmt: skip


def _order(entry: EntryPayload, column: Column) -> tuple[bool, int, int, float]:
    """By division and rank, then by value; what has none is last."""
    figure = entry.figures[column]
    return figure.rank is None, DIVISIONS.index(entry.division), figure.rank or 0, _worth(figure, column)


def _worth(figure: FigurePayload, column: Column) -> float:
    """Smaller is better; what has no value is last."""
    return math.inf if figure.value is None else goodness(column) * figure.value


def _scale(figures: list[FigurePayload]) -> Scale:
    """The axis of all intervals of a column."""
    known = [each for figure in figures for each in (figure.value, figure.low, figure.high) if each is not None]
    finite = [value for value in known if 0 < value < math.inf]
    return log_scale(min(finite), max(finite), 4, 96) if finite else (lambda _: 50.0)


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
            figures.append(
                render(
                    "progress",
                    column=column,
                    title=title,
                    drawing=drawing,
                )
            )
    # The script shows what is of its column.
    for column in columns or [first]:
        if column not in drawn:
            text = f"{TITLES[column]}: {_NOT_YET}."
            figures.append(fill('<p class="note" data-progress="{column}">{text}</p>', column=column, text=text))
    return section("The record over time", *figures)
