"""From the entries of one task under one ruleset to its board: ranks, the record over the years, its card, its rows.

The one idea: everything here depends on all entries of a board together and on nothing else of them than what the site
keeps of each; so it is made again when one entry changes, and no submission is read for it.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from levelbench.records.rulesets.schema import Ruleset, TaskRules
from levelbench.records.submissions.figures import Column, Figure
from levelbench.records.submissions.ranking import order, progress, rank
from levelbench.records.submissions.scoring import aggregation_words
from levelbench.report.site.entries import slug_of, with_rank
from levelbench.report.site.payload import (
    BOARD_SCHEMA,
    COLUMNS,
    BoardPayload,
    EntryPayload,
    FigurePayload,
    Leader,
    RulesetFacts,
    TaskCard,
)
from levelbench.report.tables import clean

__all__ = ["board_slug", "card", "empty_board", "filled", "leaderboard_csv", "leaderboard_json", "ruleset_facts"]

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_BOUNDS = ("value", "low", "high", "rank")


def board_slug(task: str, ruleset: str) -> str:
    """The name of a board's files: ``cifar10-dawnbench-1.0``; with a digest where that would need escapes."""
    plain = f"{task}-{ruleset}"
    return plain if re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,79}", plain) and ".." not in plain else slug_of(plain)


def ruleset_facts(rules: Ruleset) -> RulesetFacts:
    """What a page says of the rules."""
    return RulesetFacts(
        id=rules.id,
        name=rules.name,
        version=rules.version,
        date=rules.date,
        source=rules.source,
        clock=rules.clock,
        crossing=rules.crossing,
        aggregation=aggregation_words(rules.aggregation),
        aggregation_rule=rules.aggregation.rule,
        runs=rules.aggregation.runs,
        drop=rules.aggregation.drop,
        rounding=rules.cost.rounding,
    )


def empty_board(title: str, rules: Ruleset, task: TaskRules) -> BoardPayload:
    """The board without entries: what an entry's own page gets."""
    slug = board_slug(task.task, rules.id)
    return BoardPayload(
        schema=BOARD_SCHEMA,
        title=title,
        generated="",
        slug=slug,
        page=f"{slug}.html",
        data=f"data/{slug}.js",
        ruleset=ruleset_facts(rules),
        task=task.task,
        task_title=task.task,
        target=task.target,
        modes=[],
        entries=[],
        progress={},
    )


def filled(board: BoardPayload, entries: Sequence[EntryPayload]) -> BoardPayload:
    """The board with ``entries`` ranked in every column, in the order of the first, then of those that follow."""
    places: dict[str, dict[Column, FigurePayload]] = {entry.id: {} for entry in entries}
    position: dict[str, tuple[int, int]] = {}
    for number, column in enumerate(COLUMNS):
        having = [entry for entry in entries if column in entry.figures]
        figures = [_figure(entry.figures[column]) for entry in having]
        ranks = rank(figures)
        for entry, place in zip(having, ranks, strict=True):
            places[entry.id][column] = with_rank(entry.figures[column], place)
        for at, index in enumerate(order(figures, ranks, [entry.id for entry in having])):
            position.setdefault(having[index].id, (number, at))
    ranked = [
        msgspec.structs.replace(entry, figures=places[entry.id])
        for entry in sorted(entries, key=lambda entry: position[entry.id])
    ]
    modes: list[Literal["training", "inference"]] = ["training", "inference"]
    return msgspec.structs.replace(
        board,
        modes=[mode for mode in modes if any(entry.mode == mode for entry in ranked)],
        entries=ranked,
        progress={column: progress([(entry.date, _value(entry, column)) for entry in ranked]) for column in COLUMNS},
    )


def card(board: BoardPayload) -> TaskCard:
    """The board as the index shows it, with the first of each column."""
    leaders = []
    for column in COLUMNS:
        best = min(
            (entry for entry in board.entries if _rank(entry, column) == 1),
            key=lambda entry: (_value(entry, column) or 0.0, entry.id),
            default=None,
        )
        if best is not None:
            leaders.append(Leader(column, best.model, best.author, best.figures[column].text, best.page))
    return TaskCard(
        slug=board.slug,
        page=board.page,
        task=board.task,
        title=board.task_title,
        target=board.target,
        ruleset=board.ruleset,
        modes=board.modes,
        entries=len(board.entries),
        newest=max((entry.date for entry in board.entries), default=""),
        leaders=leaders,
    )


def _figure(figure: FigurePayload) -> Figure:
    return Figure(figure.value, figure.low, figure.high, figure.note)


def _value(entry: EntryPayload, column: Column) -> float | None:
    figure = entry.figures.get(column)
    return None if figure is None else figure.value


def _rank(entry: EntryPayload, column: Column) -> int | None:
    figure = entry.figures.get(column)
    return None if figure is None else figure.rank


class _Board(Struct):
    task: str
    ruleset: str
    target: msgspec.Raw
    page: str
    generated: str
    entries: list[EntryPayload]


class _Leaderboard(Struct):
    schema: int
    title: str
    version: str
    boards: list[_Board]


def leaderboard_json(title: str, version: str, boards: Iterable[BoardPayload]) -> bytes:
    """All boards for programs: seconds and US dollars, an interval's open end as ``null``; ``data/`` has the steps."""
    found = [
        _Board(
            board.task,
            board.ruleset.id,
            msgspec.Raw(msgspec.json.encode(board.target)),
            board.page,
            board.generated,
            [msgspec.structs.replace(entry, steps=[]) for entry in board.entries],
        )
        for board in boards
    ]
    return msgspec.json.encode(_Leaderboard(BOARD_SCHEMA, title, version, found)) + b"\n"


def leaderboard_csv(boards: Iterable[BoardPayload]) -> bytes:
    """All entries as one table (RFC 4180): a column each for value, bounds and rank of the four figures.

    Text that a spreadsheet would run as a formula gets a leading apostrophe.
    """
    texts = ["id", "page", "model", "author", "organisation", "framework", "hardware", "date", "division", "mode"]
    counts = ["n", "reached", "expected_with_restarts_s", "best_s"]
    out = io.StringIO()
    writer = csv.writer(out)
    figures = [f"{column}_{name}" for column in COLUMNS for name in _BOUNDS]
    writer.writerow(["task", "ruleset", *texts, "code_url", "usd_per_hour", "signed", *figures, *counts])
    for board in boards:
        for entry in board.entries:
            price = entry.price.usd_per_hour if entry.price else None
            shown = [board.task, board.ruleset.id, *(getattr(entry, name) for name in texts), entry.code_url or ""]
            values = [getattr(entry.figures.get(column), name, None) for column in COLUMNS for name in _BOUNDS]
            numbers = [getattr(entry, name) for name in counts]
            writer.writerow([*map(_cell, shown), price, entry.signed, *values, *numbers])
    return out.getvalue().encode("utf-8", "replace")


def _cell(text: str) -> str:
    shown = text if text.isprintable() else clean(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown
