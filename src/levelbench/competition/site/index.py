"""The front page: a card for each board, the tasks of all systems side by side, records, search, published scores.

Published scores are what other sites printed. They are compared digit by digit with what is computed here from the
entries' own curves, so that a reader sees whether the boards can be believed.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Sequence
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from itertools import product
from pathlib import Path, PurePosixPath

from msgspec import Struct

from levelbench.competition.entries import read_bytes
from levelbench.competition.figures import COLUMNS, Column
from levelbench.competition.site import BoardPayload, EntryPayload, Leader, NotShown
from levelbench.competition.site.boards import goodness, safe_json
from levelbench.competition.site.parts import (
    TITLES,
    asset,
    facts,
    fill,
    inside,
    many,
    outside,
    page,
    progress_drawing,
    render,
    section,
    table,
    target_text,
)
from levelbench.errors import UsageError
from levelbench.report.markup import Html
from levelbench.report.numbers import ABSENT, number, plural

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
    search: str = "",
    published: Sequence[ComparedScore] = (),
) -> str:
    """The index of a site with a card for each board and its leaders, as an HTML document.

    ``entries`` is their number on all boards; ``feed`` and ``search`` are the paths of the feed of new entries and of
    the script with all of them, relative to the root.
    """
    cards = many(_card(*each) for each in boards)
    lead = f"{plural(entries, 'entry', 'entries')} on {plural(len(boards), 'board')}, as of {generated or ABSENT}."
    programs = [("leaderboard.json", "JSON"), ("leaderboard.csv", "CSV"), ("leaderboard.md", "Markdown")]
    programs += [(feed, "feed of new entries")] if feed else []
    links = many(fill("<li>{link}</li>", link=inside("", name, words)) for name, words in programs)
    versions = []
    for _, each in sorted({board.ruleset.id: board.ruleset for board, _ in boards}.items()):
        timed = f"Clock {each.clock}, crossing {each.crossing}, of {each.date or ABSENT}. "
        words = many([each.aggregation, Html("<br>"), timed, outside(each.source)])
        versions.append((f"{each.name} {each.version}", words))
    main = fill(
        '<div class="intro"><h1>{title}</h1><p class="lead">{lead} {what}</p></div>\n'
        '<section aria-label="Boards"><div class="cards">{cards}</div></section>\n'
        "{across}{search}{records}{published}{rules}{near}{missing}{machines}",
        title=title,
        lead=lead,
        what="Deep learning, measured end to end: the time and money until a model is good enough, "
        "and what each of its answers costs.",
        cards=cards or Html('<p class="note">No entries yet.</p>'),
        across=_across([board for board, _ in boards]),
        search=render("search", source=search) if search else "",
        records=_records([board for board, _ in boards]),
        published=_published(published),
        rules=section("Rules", facts(versions)),
        near=_listed(
            "Doubts",
            near,
            "These entries share runs or (nearly) curves with others, or are not comparable with most others.",
        ),
        missing=_listed("Not shown", not_shown, "These files are in the folder but on no board, for these reasons."),
        machines=section("For programs", fill('<ul class="inline">{links}</ul>', links=links)),
    )
    scripts = fill('<script src="{script}" defer></script>', script=asset("search.js")) if search else Html("")
    return page(title, "index", "index.html", main, site=title, scripts=scripts)


def _card(board: BoardPayload, leaders: Sequence[Leader]) -> Html:
    """One board: its target, or what it compares instead, and the leader of each column."""
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
        target=board.about or target_text(board.target, board.unit),
        leaders=firsts or Html('<div class="leader"><dt>No figure yet</dt></div>'),
        count=plural(len(board.entries), "entry", "entries"),
        newest=max((entry.date for entry in board.entries), default="") or ABSENT,
        rules=board.ruleset.id,
    )


def _listed(title: str, files: Sequence[NotShown], note: str) -> Html:
    """Files, each with its findings and remedies."""
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


DATA = {
    "cifar10": "CIFAR-10",
    **dict.fromkeys(["imagenet", "resnet", "algoperf-imagenet_resnet", "algoperf-imagenet_vit"], "ImageNet"),
    **dict.fromkeys(["ssd", "maskrcnn"], "COCO"),
    **dict.fromkeys(["dlrm", "dlrm_dcnv2", "algoperf-criteo1tb"], "Criteo"),
    **dict.fromkeys(["rnnt", "algoperf-librispeech_conformer", "algoperf-librispeech_deepspeech"], "LibriSpeech"),
    **dict.fromkeys(["gnmt", "transformer", "algoperf-wmt"], "WMT"),
    **dict.fromkeys(["nanogpt-speedrun", "nanogpt-speedrun-medium"], "FineWeb"),
    "squad": "SQuAD",
    "retinanet": "Open Images",
}
"""The data of tasks that several systems measure, each under a name and rules of its own."""


def _across(boards: Sequence[BoardPayload]) -> Html:
    """Each board's first and best record with cost and energy, boards of the same data next to one another."""
    rows = [row for board in boards for mode in board.modes if (row := _row(board, mode))]
    heads = [("Data", "t"), ("Task", "t"), ("Rules", "t"), ("Entries", "n"), ("Years", "t"), ("First record", "n")]
    heads += [("Record", "n"), ("Ratio", "n"), ("Its ranks by test", "n"), ("Its cost", "n"), ("Least cost", "n")]
    heads += [("Its energy", "n")]
    note = Html(
        '<p class="note">Times under different rules are not comparable: clocks, targets and machines differ. '
        "Only three runs or more can be tested, and few entries state their energy.</p>"
    )
    rows.sort(key=lambda row: row[0].lower())
    return section("Tasks across systems", table("Tasks across systems", heads, rows), note) if rows else Html("")


def _row(board: BoardPayload, mode: str) -> list[str]:
    having = [entry for entry in board.entries if entry.mode == mode]
    column = next((each for each in board.columns() if any(each in entry.figures for entry in having)), None)
    records = [] if column is None else board.progress.get(column, [])
    if column is None or not records:
        return []
    cost: Column = "cost" if mode == "training" else "inference_cost"
    (_, first, at), (_, best, to) = records[0], min(records, key=lambda record: goodness(column) * record[1])
    holder, ratio = board.entries[to], (first / best) ** goodness(column) if first > 0 and best > 0 else math.nan
    years = sorted(entry.date[:4] for entry in having if entry.date)
    costs = [(figure.value, figure.text) for each in having if (figure := each.figures.get(cost)) and figure.value]
    return [
        DATA.get(board.task, board.task_title.partition(",")[0]),
        many([inside("", board.page, board.task_title), f", {mode}"]),
        board.ruleset.id,
        f"{len(having):,}",
        "–".join(dict.fromkeys([*years[:1], *years[-1:]])),
        _text(board.entries[at], column),
        inside("", holder.page, _text(holder, column)),
        f"{number(ratio)}×" if math.isfinite(ratio) else ABSENT,
        holder.figures[column].ranks.replace(" to ", "–") or "not tested",
        _text(holder, cost),
        min(costs, default=(0.0, ABSENT))[1].partition(" [")[0],
        _text(holder, "energy"),
    ]


def _text(entry: EntryPayload, column: Column) -> str:
    """The figure without its interval."""
    figure = entry.figures.get(column)
    return ABSENT if figure is None else figure.text.partition(" [")[0]


_MOST_DRAWN = 24


def _records(boards: Sequence[BoardPayload]) -> Html:
    """The record over the years of each time, latency and throughput that was ever improved."""
    figures = []
    columns: tuple[Column, ...] = ("time", "latency", "throughput")
    for board in boards:
        for column, division in product(columns, board.divisions()):
            found = [each for each in board.progress.get(column, []) if board.entries[each[2]].division == division]
            if len(found) < 2:
                continue
            own = [board.entries[at] for _, _, at in found]
            told = [(_text(entry, column), f"{entry.model}, {entry.author}", entry.page) for entry in own]
            drawing = progress_drawing(
                [(day, value, *words) for (day, value, _), words in zip(found, told, strict=True)],
                board.generated,
                column,
            )
            where = f", {division} division" if len(board.divisions()) > 1 else ""
            title = many([inside("", board.page, board.task_title), f": {TITLES[column].lower()}{where}"])
            figures.append(
                fill("<figure><figcaption>{title}</figcaption>{drawing}</figure>", title=title, drawing=drawing)
            )
    if not figures:
        return Html("")
    return section(
        "Records over the years", fill('<div class="pair">{figures}</div>', figures=many(figures[:_MOST_DRAWN]))
    )


def search_script(boards: Sequence[BoardPayload]) -> bytes:
    """All entries for the search: time (or latency), cost and energy side by side, in the order of the boards."""
    rows = []
    for at, board in enumerate(boards):
        for entry in board.entries:
            first = next((each for each in board.columns() if each in entry.figures), None)
            figure = None if first is None else entry.figures[first]
            cost = entry.figures.get("cost") or entry.figures.get("inference_cost")
            rows.append([
                at, entry.page, entry.model, entry.author, entry.hardware, entry.framework, entry.date[:10],
                *([None, "", ABSENT] if figure is None else [figure.rank, figure.ranks, figure.text]),
                ABSENT if cost is None else cost.text, _text(entry, "energy"),
                entry.division if len(board.divisions()) > 1 else "",
            ])  # fmt: skip
    titles = [[board.task_title, board.page, board.ruleset.id] for board in boards]
    return b"window.levelbench.found(" + safe_json([titles, rows]) + b");\n"


class PublishedScore(Struct, frozen=True):
    """What a site printed for an entry: its file (or id, or the file's stem), the column, the text; why it differs."""

    entry: str
    column: Column
    text: str
    why: str = ""


class ComparedScore(Struct, frozen=True):
    """A published score beside ours; ``ours`` and ``page`` are empty if the entry, or its figure, is not here."""

    published: PublishedScore
    ours: str = ""
    page: str = ""
    agrees: bool = False


_UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "min": 60.0, "minutes": 60.0, "h": 3600.0}
_UNITS |= {"hours": 3600.0, "usd": 1.0, "j": 1.0, "kj": 1e3, "mj": 1e6, "steps": 1.0, "samples": 1.0, "/s": 1.0}
_CLOCK = re.compile(r"(\d{1,6}):(\d\d):(\d\d)", re.ASCII)
_NUMBER = re.compile(
    r"\$?\s*(\d[\d,]*(?:\.\d+)?(?:e-?\d{1,2})?)\s*([a-zµ/]*)(?:\s+per\s+(\d[\d,]*))?", re.ASCII | re.IGNORECASE
)
_MILLION = 1e6
_LARGEST_BYTES = 1 << 24


def read_published(path: Path) -> list[PublishedScore]:
    """The scores in a CSV file with the columns entry, column, published and, if some are known to differ, why.

    ``published`` is the text as printed: ``0:00:10``, ``$0.11``, ``1.28 min``, ``28.69 ms``, ``$0.02 per 10000``.
    Raises ``UsageError`` for another file.
    """
    asked, do = f"reading the published scores in {path}", "write entry,column,published,why in the first line"
    try:
        rows = list(csv.DictReader(io.StringIO(read_bytes(path, limit=_LARGEST_BYTES).decode("utf-8-sig"), newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(asked, str(error), do) from error
    found = []
    for at, row in enumerate(rows, 2):
        entry, column, text = (str(row.get(name) or "").strip() for name in ("entry", "column", "published"))
        known: Column | None = next((each for each in COLUMNS if each == column), None)
        if not entry or known is None:
            raise UsageError(asked, f"line {at}: entry is {entry!r}, column {column!r}", f"{do}; {', '.join(COLUMNS)}")
        score = PublishedScore(entry, known, text, str(row.get("why") or "").strip())
        if _printed(score, 1.0) is None:
            raise UsageError(asked, f"line {at}: {text!r} is no figure", "write it as printed, with its unit")
        found.append(score)
    return found


def _printed(score: PublishedScore, value: float) -> tuple[str, bool] | None:
    """``value`` as the published text is printed, and whether both are equal; ``None`` if it is no figure."""
    clock = _CLOCK.fullmatch(score.text)
    if clock is not None:
        hours, minutes, seconds = map(int, clock.groups())
        # DAWNBench rounded seconds up; less than a microsecond is noise.
        own = math.ceil(round(value, 6))
        text = f"{own // 3600}:{own // 60 % 60:02d}:{own % 60:02d}"
        return text, own == (hours * 60 + minutes) * 60 + seconds
    match = _NUMBER.fullmatch(score.text)
    size = _UNITS.get(match[2].lower()) if match is not None else None
    if match is None or size is None or not math.isfinite(value):
        return None
    # A cost of answers is that of a million.
    scale = int(match[3].replace(",", "")) / _MILLION if match[3] else 1.0
    stated, own_value = Decimal(match[1].replace(",", "")), Decimal(repr(value / size * scale))
    step = Decimal((0, (1,), int(stated.as_tuple().exponent)))
    rounded = [own_value.quantize(step, how) for how in (ROUND_HALF_UP, ROUND_HALF_EVEN)]
    return score.text.replace(match[1], str(rounded[0])), stated in rounded


def compared(boards: Sequence[BoardPayload], published: Sequence[PublishedScore]) -> list[ComparedScore]:
    """Each published score beside the figure of its entry on the first board that has one."""
    named: dict[str, list[EntryPayload]] = {}
    for board in boards:
        for entry in board.entries:
            for name in _names(entry):
                named.setdefault(name, []).append(entry)
    found = []
    for score in published:
        known = [each for each in named.get(score.entry, ()) if score.column in each.figures]
        # The stem of a file may be that of two entries: then nobody knows which one is meant.
        value = known[0].figures[score.column].value if len({each.id for each in known}) == 1 else None
        told = None if value is None else _printed(score, value)
        found.append(ComparedScore(score) if told is None else ComparedScore(score, told[0], known[0].page, told[1]))
    return found


def _names(entry: EntryPayload) -> Iterator[str]:
    file = entry.origin.file if entry.origin is not None else ""
    yield from dict.fromkeys(name for name in (entry.id, file, PurePosixPath(file).stem) if name)


def published_words(scores: Sequence[ComparedScore]) -> str:
    """How many published scores are reproduced, as a sentence."""
    here = [each for each in scores if each.page]
    same = sum(each.agrees for each in here)
    differ = [each for each in here if not each.agrees]
    bare = sum(not each.published.why for each in differ)
    share = f" ({100 * same / len(here):.4g} %)" if here else ""
    words = f"{same} of {plural(len(here), 'published score')} reproduced to the printed digit{share}"
    if differ:
        words += f"; {plural(len(differ), 'deviation')}, {bare or 'none'} without an explanation"
    gone = [f"{each.published.entry} ({each.published.column})" for each in scores if not each.page]
    if not gone:
        return words
    others = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
    return f"{words}; {len(gone)} more of entries or figures that are not here: {gone[0]}{others}"


_MOST_COMPARED = 1000


def _published(scores: Sequence[ComparedScore]) -> Html:
    """How many scores are reproduced, every deviation with its reason, then all of them, folded."""
    if not scores:
        return Html("")

    def rows(chosen: Sequence[ComparedScore]) -> list[list[str]]:
        return [
            [
                inside("", each.page, each.published.entry) if each.page else each.published.entry,
                TITLES[each.published.column],
                each.published.text,
                each.ours or "not here",
                each.published.why or ("" if each.agrees or not each.page else "not explained"),
            ]
            for each in chosen
        ]

    heads = [("Entry", "w"), ("Figure", "t"), ("Published", "n"), ("Computed here", "n"), ("Why they differ", "w")]
    differ = [each for each in scores if each.page and not each.agrees]
    return section(
        "Published scores",
        fill("<p>{words}.</p>", words=published_words(scores)),
        table("Deviations", heads, rows(differ), _MOST_COMPARED),
        fill(
            "<details><summary>All published scores</summary>{all}</details>",
            all=table("All published scores", heads, rows(scores), _MOST_COMPARED),
        ),
    )
