"""The site's entries for programs: all boards as one file of JSON, and as one table (CSV).

The one idea: the figures of the pages with their bounds and ranks, in seconds, US dollars and answers a second.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from operator import attrgetter

import msgspec
from msgspec import Struct

from levelbench.records.submissions.scenarios import RankedScenario
from levelbench.report.site.payload import BOARD_SCHEMA, COLUMNS, BoardPayload, EntryPayload
from levelbench.report.tables import clean

__all__ = ["leaderboard_csv", "leaderboard_json"]

_SCENARIO = ("scenario", "latency_bound_s", "samples_per_query")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_BEGUN = [f"|{character}" for character in _FORMULA]
_QUOTED = re.compile(r'[",\r\n]')
_BOUNDS = ("value", "low", "high", "rank")
_OF_FIGURE = attrgetter(*_BOUNDS)
_TEXTS = ("id", "page", "model", "author", "organisation", "framework", "hardware", "date", "division", "mode")
_OF_ENTRY = attrgetter(*_TEXTS, "code_url", "price", "signed")
_COUNTS = ("n", "reached", "expected_with_restarts_s", "best_s")
_OF_COUNTS = attrgetter(*_COUNTS)
_NO_FIGURE = (None,) * len(_BOUNDS)


class _Board(Struct):
    task: str
    ruleset: str
    scenario: RankedScenario | None
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

    ``scenario`` is that of a board apart, ``null`` on the task's own. The scripts ``data`` and ``steps`` of a board
    have the steps of its runs.
    """
    found = [
        _Board(
            board.task,
            board.ruleset.id,
            board.scenario,
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
    """All entries as one table (RFC 4180): a column each for value, bounds and rank of the five figures.

    One that is on several boards has a row of each. ``scenario`` and its condition are those of a board apart, empty on
    the task's own. Text that a spreadsheet would run as a formula gets a leading apostrophe. A figure that is not
    finite is empty.
    """
    figures = [f"{column}_{name}" for column in COLUMNS for name in _BOUNDS]
    rows = [
        ",".join(["task", "ruleset", *_SCENARIO, *_TEXTS, "code_url", "usd_per_hour", "signed", *figures, *_COUNTS])
    ]
    for board in boards:
        of_entries = board.entries
        of_all = [*_texts([board.task, board.ruleset.id]), *_of_scenario(board.scenario)]
        columns: list[Iterable[str]] = [repeat(each, len(of_entries)) for each in of_all]
        *said, urls, prices, signed = zip(*map(_OF_ENTRY, of_entries), strict=True)
        columns += map(_texts, said)
        columns.append(_texts([url or "" for url in urls]))
        columns.append(_numbers([price and price.usd_per_hour for price in prices]))
        columns.append(signed)
        columns += _figures(of_entries)
        columns += map(_numbers, zip(*map(_OF_COUNTS, of_entries), strict=True))
        rows += map(",".join, zip(*columns, strict=True))
    return ("\r\n".join(rows) + "\r\n").encode("utf-8", "replace")


def _of_scenario(scenario: RankedScenario | None) -> list[str]:
    if scenario is None:
        return [""] * len(_SCENARIO)
    return [*_texts([scenario.name]), *_numbers([scenario.bound_s, scenario.samples])]


def _figures(entries: Sequence[EntryPayload]) -> Iterator[Iterable[str]]:
    """Value, bounds and rank of each figure, a column each."""
    for column in COLUMNS:
        having = [entry.figures.get(column) for entry in entries]
        if any(having):
            bounds = (_NO_FIGURE if each is None else _OF_FIGURE(each) for each in having)
            yield from map(_numbers, zip(*bounds, strict=True))
        else:
            yield from repeat([""] * len(entries), len(_BOUNDS))


def _numbers(values: Sequence[float | None]) -> list[str]:
    """A column's numbers as cells, empty where there is none. As JSON has them, which is made of all at once."""
    return msgspec.json.encode(values).decode()[1:-1].replace("null", "").split(",")


def _texts(texts: Sequence[str]) -> Sequence[str]:
    """A column's texts as cells. Nearly all are plain: one look at all of them."""
    joined = "|" + "|".join(texts)
    plain = joined.isprintable() and not _QUOTED.search(joined) and not any(begun in joined for begun in _BEGUN)
    return texts if plain else list(map(_cell, texts))


def _cell(text: str) -> str:
    shown = text if text.isprintable() else clean(text)
    shown = f"'{shown}" if shown.startswith(_FORMULA) else shown
    return '"{}"'.format(shown.replace('"', '""')) if _QUOTED.search(shown) else shown
