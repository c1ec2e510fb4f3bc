"""From the entries of one task under one ruleset to its board: ranks, the record over the years, its card, its rows.

The one idea: everything here depends on all entries of a board together and on nothing else of them than what the site
keeps of each; so it is made again when one entry changes, and no submission is read for it.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import product, repeat
from operator import attrgetter
from typing import Any, Literal

import msgspec
from msgspec import Struct

from levelbench.records.rulesets.schema import Ruleset, TaskRules
from levelbench.records.submissions.figures import Column, Figure
from levelbench.records.submissions.ranking import Ranked, order, progress, rank
from levelbench.records.submissions.scoring import aggregation_words
from levelbench.report.site.entries import slug_of, with_rank
from levelbench.report.site.inference_rules import compared
from levelbench.report.site.payload import (
    BOARD_SCHEMA,
    COLUMNS,
    DIVISIONS,
    BoardPayload,
    EntryPayload,
    FigurePayload,
    Leader,
    RulesetFacts,
    TaskCard,
)
from levelbench.report.tables import clean

__all__ = [
    "board_slug",
    "card",
    "empty_board",
    "filled",
    "leaderboard_csv",
    "leaderboard_json",
    "ruleset_facts",
    "task_title",
]

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_BEGUN = [f"|{character}" for character in _FORMULA]
_BOUNDS = ("value", "low", "high", "rank")
_OF_FIGURE = attrgetter(*_BOUNDS)
_NO_FIGURE = (None,) * len(_BOUNDS)


def board_slug(task: str, ruleset: str) -> str:
    """The name of a board's files: ``cifar10_dawnbench-1.0``; with a digest where that would need escapes.

    No other pair has it: what lies between the two is in neither, nor in a name with a digest.
    """
    plain = f"{task}_{ruleset}"
    safe = re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,59}_[a-z0-9.-]{1,59}", plain) is not None and ".." not in plain
    return plain if safe else slug_of(repr((task, ruleset)))


_TITLES = {
    "charlm": "Character language model",
    "cifar10": "CIFAR-10",
    "digits": "Digits",
    "fashion-mnist": "Fashion-MNIST",
    "imagenet": "ImageNet",
    "maskrcnn": "Mask R-CNN",
    "resnet": "ResNet",
    "spam": "Spam",
    "squad": "SQuAD",
    "ssd": "SSD",
    "translation-en-es": "Translation, English to Spanish",
}


def task_title(task: str) -> str:
    """What people call the task; one that is not known by its own name."""
    return _TITLES.get(task, task)


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
        best_of=rules.aggregation.best_of,
        windows=rules.aggregation.windows,
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
        data="",
        ruleset=ruleset_facts(rules),
        task=task.task,
        task_title=task_title(task.task),
        target=task.target,
        modes=[],
        entries=[],
        progress={},
        inference=task.inference,
        compared=compared(task.inference),
    )


def filled(board: BoardPayload, entries: Sequence[EntryPayload]) -> BoardPayload:
    """The board with ``entries`` ranked in every column, in the order of the first, then of those that follow.

    The closed division comes before the open one, each with ranks of its own.
    """
    figures: list[dict[str, FigurePayload]] = [{} for _ in entries]
    ordered: dict[int, None] = {}
    for column in COLUMNS:
        for at, place in _placed(entries, column):
            figures[at][column] = with_rank(entries[at].figures[column], place)
            ordered.setdefault(at)
    ranked = [msgspec.structs.replace(entries[at], figures=figures[at]) for at in ordered]
    modes: list[Literal["training", "inference"]] = ["training", "inference"]
    return msgspec.structs.replace(
        board,
        modes=[mode for mode in modes if any(entry.mode == mode for entry in ranked)],
        entries=ranked,
        progress={column: _records(ranked, column) for column in COLUMNS},
    )


def _placed(entries: Sequence[EntryPayload], column: Column) -> Iterator[tuple[int, Ranked]]:
    """The entries that have a figure in the column, by number and in order, each with its place in its division."""
    for having in _divided(entries, column):
        figures = [_figure(entries[at].figures[column]) for at in having]
        ranks = rank(figures)
        for index in order(figures, ranks, [entries[at].id for at in having]):
            yield having[index], ranks[index]


def _divided(entries: Sequence[EntryPayload], column: Column) -> list[list[int]]:
    """The numbers of the entries that have a figure in the column, those of each division apart."""
    having = [at for at, entry in enumerate(entries) if column in entry.figures]
    divided: dict[str, list[int]] = {division: [] for division in DIVISIONS}
    for at in having:
        divided[entries[at].division].append(at)
    return [each for each in divided.values() if each]


def _records(entries: Sequence[EntryPayload], column: Column) -> list[tuple[str, float, int]]:
    """The records of each division, oldest first."""
    found = []
    for having in _divided(entries, column):
        values = [(entries[at].date, entries[at].figures[column].value) for at in having]
        found += [(day, value, having[at]) for day, value, at in progress(values)]
    return sorted(found)


def card(board: BoardPayload) -> TaskCard:
    """The board as the index shows it, with the first of each column in each division."""
    leaders, divisions = [], board.divisions()
    for column, division in product(COLUMNS, divisions):
        having = ((entry, entry.figures.get(column)) for entry in board.entries if entry.division == division)
        first = [entry for entry, figure in having if figure is not None and figure.rank == 1]
        if first:
            best = min(first, key=lambda entry: (_value(entry, column) or 0.0, entry.id))
            said = division if len(divisions) > 1 else ""
            leaders.append(Leader(column, best.model, best.author, best.figures[column].text, best.page, said))
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


class _Board(Struct):
    task: str
    ruleset: str
    target: msgspec.Raw
    page: str
    data: str
    steps: str
    generated: str
    entries: list[EntryPayload]


class _Leaderboard(Struct):
    schema: int
    title: str
    version: str
    boards: list[_Board]


def leaderboard_json(title: str, version: str, boards: Iterable[BoardPayload]) -> bytes:
    """All boards for programs: seconds and US dollars, an interval's open end as ``null``.

    The scripts ``data`` and ``steps`` of a board have the steps of its runs.
    """
    found = [
        _Board(
            board.task,
            board.ruleset.id,
            msgspec.Raw(msgspec.json.encode(board.target)),
            board.page,
            board.data,
            board.steps,
            board.generated,
            [msgspec.structs.replace(entry, steps=[]) if entry.steps else entry for entry in board.entries],
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
        of_entries = board.entries
        shown = [list(map(attrgetter(name), of_entries)) for name in texts]
        shown.append([entry.code_url or "" for entry in of_entries])
        prices = [entry.price.usd_per_hour if entry.price else None for entry in of_entries]
        columns: list[Iterable[Any]] = [repeat(_cell(board.task)), repeat(_cell(board.ruleset.id)), *map(_safe, shown)]
        columns += [prices, [entry.signed for entry in of_entries], *_figures(of_entries)]
        columns += [map(attrgetter(name), of_entries) for name in counts]
        writer.writerows(zip(*columns, strict=False))
    return out.getvalue().encode("utf-8", "replace")


def _figures(entries: Sequence[EntryPayload]) -> Iterator[Iterable[Any]]:
    """Value, bounds and rank of each of the four figures, a column each."""
    for column in COLUMNS:
        having = [_NO_FIGURE if (each := entry.figures.get(column)) is None else _OF_FIGURE(each) for entry in entries]
        yield from zip(*having, strict=True)


def _safe(texts: list[str]) -> list[str]:
    """A column's texts as cells. Nearly all are plain: one look at all of them."""
    joined = "|" + "|".join(texts)
    plain = joined.isprintable() and not any(begun in joined for begun in _BEGUN)
    return texts if plain else [_cell(text) for text in texts]


def _cell(text: str) -> str:
    shown = text if text.isprintable() else clean(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown
