"""Reads the tables of a page that somebody published (Markdown, HTML, CSV) as claims, with the place of each figure.

Only what stands there is read: a time needs its unit, in the heading of its column or beside the number; a ratio needs
the one row that it is relative to; a spread that is not called an interval is none. Of several columns of times, only
the one to a target is read. Everything else is not stated.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from levelbench.claims.hardware import lookup
from levelbench.claims.reading import NothingStatedError, vocabulary, write_down
from levelbench.claims.reading.tables import MOST_ROWS, PublishedTable, QuotedCell, tables_of, with_points, words_of
from levelbench.claims.view import Claim
from levelbench.errors import UsageError

__all__ = ["ProposedClaim", "propose", "read_published"]

_MOST_BYTES = 8 << 20
_Fields = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class ProposedClaim:
    """A claim as plain data, and for each field, by its path, the words and the line that it was read from."""

    data: dict[str, Any]
    quoted: Mapping[str, QuotedCell]
    file: str
    left_out: tuple[str, ...] = ()
    """What stands in the table and is not read, as it could be meant in several ways."""

    def toml(self) -> str:
        """A claim file to complete: each field with its quotation."""
        lines = [
            f"# Read from {self.file}. What is missing here is not stated there, or not in a form that is sure.",
            *(f"# Left out: {each}." for each in self.left_out),
            "",
        ]
        lines += self._fields(self.data, "")
        return "\n".join(lines) + "\n"

    def _fields(self, table: Mapping[str, Any], path: str) -> Iterator[str]:
        for name, value in table.items():
            at = f"{path}.{name}" if path else name
            if not isinstance(value, dict) and not (isinstance(value, list) and value and isinstance(value[0], dict)):
                cell = self.quoted.get(at)
                seen = "" if cell is None else f"  # line {cell.line}: {json.dumps(cell.text, ensure_ascii=False)}"
                yield f"{name} = {json.dumps(value, ensure_ascii=False)}{seen}"
        plain = re.sub(r"\[\d+\]", "", path)
        for name, value in table.items():
            at, written = (f"{path}.{name}", f"{plain}.{name}") if path else (name, name)
            if isinstance(value, dict):
                yield from ("", f"[{written}]", *self._fields(value, at))
            elif isinstance(value, list) and value and isinstance(value[0], dict):
                for number, each in enumerate(value):
                    yield from ("", f"[[{written}]]", *self._fields(each, f"{at}[{number}]"))


def read_published(path: Path) -> list[Claim]:
    """The claims in the tables of a page; ``NothingStatedError`` if no table states a figure."""
    found = []
    for each in propose(path):
        data = _placed(each)
        caveats = [f"left out: {why}" for why in each.left_out]
        found.append(msgspec.convert({**data, "read_from": "page", "where": str(path), "caveats": caveats}, Claim))
    return found


def _placed(proposal: ProposedClaim) -> dict[str, Any]:
    """The data with the place of each side and comparison: the line of its first field."""
    lines: dict[str, int] = {}
    for path, cell in proposal.quoted.items():
        lines.setdefault(path.split(".")[0], cell.line)
    data = dict(proposal.data)
    for kind in ("sides", "comparisons"):
        places = [f"{proposal.file}:{lines.get(f'{kind}[{at}]', 1)}" for at in range(len(data.get(kind, ())))]
        if places:
            data[kind] = [{**each, "where": place} for each, place in zip(data[kind], places, strict=True)]
    return data


_SAY_SO = "say so in a heading above the table, such as # Benchmark, or in the name of the file"


def propose(path: Path) -> list[ProposedClaim]:
    """A proposal for each table of the page that states a time, a cost, a quality or a ratio of something."""
    if path.stat().st_size > _MOST_BYTES:
        raise UsageError(f"levelbench lint {path}", "it is larger than 8 MiB", "give the page with the results")
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    tables = [_with_units(each) for each in tables_of(path, text)]
    results = [table for table in tables if not _is_of_settings(table)]
    near = [table for table in results if _is_of_programs(table, path, text)]
    found = [made for table in near if (made := _of_table(table, path))]
    if not found:
        asked = f"levelbench lint {path}"
        if any(_of_table(table, path) for table in results):
            seen = "nothing near its figures says that programs were measured: recipes and races take their time, too"
            raise NothingStatedError(asked, seen, _SAY_SO)
        seen = "no table of it states a time with its unit, a rate, a cost, a quality or a ratio, or not of what"
        raise NothingStatedError(asked, seen if tables else "it has no table", write_down("" if tables else text))
    return found


def _of_table(table: PublishedTable, path: Path) -> ProposedClaim | None:
    return _proposal(_crossed(table) or table, str(path)) or _of_columns(table, str(path))


def _is_of_programs(table: PublishedTable, path: Path, page: str) -> bool:
    """Whether a word of programs or of their data is near: recipes, races and journeys take their time, too."""
    if any(re.search(r"[a-z]_[a-z]", each.text) for each in table.header):
        return True
    cells = [*table.header, *(cell for row in table.rows for cell in row)]
    near = " ".join([path.stem, table.under, table.title, *(words_of(each.text) for each in cells)])
    if vocabulary.OF_COMPUTING.search(near) or vocabulary.SHORTER.search(near):
        return True
    heads = " ".join(words_of(each.text).lower() for each in table.header)
    if len(set(vocabulary.OF_COMPUTING_HERE.findall(heads))) > 1:
        return True
    return bool(vocabulary.OF_COMPUTING_HERE.search(near) and vocabulary.OF_COMPUTING.search(page))


def _with_units(table: PublishedTable) -> PublishedTable:
    """The table with the units of a column of these beside the numbers of the only other column of plain numbers."""
    heads = [words_of(each.text) for each in table.header]
    units = [at for at, head in enumerate(heads) if vocabulary.UNIT_COLUMN.fullmatch(head)]
    rows = [row for row in table.rows if len(row) == len(heads)]
    numbers = [
        at
        for at, head in enumerate(heads)
        if not vocabulary.RUNS.match(head) and rows and all(re.fullmatch(r"[\d.,]+", row[at].text) for row in rows)
    ]
    if len(units) != 1 or len(numbers) != 1:
        return table
    (unit,), (number,) = units, numbers
    for row in rows:
        row[number] = replace(row[number], text=f"{row[number].text} {row[unit].text}".strip())
    for row in (table.header, *rows):
        del row[unit]
    return table


def _turned(table: PublishedTable) -> PublishedTable:
    """The table with a row for each column: the systems side by side, and their figures below one another."""
    rows = [table.header, *(row for row in table.rows if len(row) == len(table.header))]
    header, *columns = [list(column) for column in zip(*rows, strict=True)]
    return PublishedTable(table.title, header, columns, table.commas)


def _is_of_speed(table: PublishedTable, columns: Mapping[int, tuple[str, str]]) -> bool:
    """Whether its times are as short as programs are, or something says so: plans and timetables are in minutes."""
    said = " ".join([table.title, *(words_of(each.text) for each in table.header)])
    short = any(vocabulary.SHORT.search(row[at].text) for row in table.rows for at in columns if at < len(row))
    return (
        short or all(figure != "time" for figure, _ in columns.values()) or vocabulary.OF_SPEED.search(said) is not None
    )


_OF_CALLS = frozenset(("latency", "inference", "throughput"))


def _side_by_side(table: PublishedTable, named: int) -> dict[int, tuple[str, str]]:
    """The columns of several systems with one kind of figure: what to call it, with its unit, and each system's name.

    A name is what a heading has beside its unit and, as in ``PyTorch latency (ms)``, the words that all of them share.
    Empty unless all are times, or all rates, and each has a name of its own, and none of a phase.
    """
    silent = _timed_columns(table, named)
    figures = {at: "time" if at in silent else _figure_of(table, named, at) for at in range(len(table.header))}
    names = {at: _without_unit(table.header[at].text) for at, figure in figures.items() if figure}
    shared = set.intersection(*({*name.lower().split()} for name in names.values())) if names else set()
    said = any(vocabulary.TIMES.search(word) or vocabulary.SAYS_RATE.search(word) for word in shared)
    columns = {}
    for at, name in names.items():
        words = [word for word in name.split() if not said or word.lower() not in shared]
        system = " ".join(words).strip(" ,:-–")
        of_phase = (
            said
            and (vocabulary.OF_PHASE.search(system) or vocabulary.TIMED.search(system))
            and not re.search(vocabulary.METHOD, system, re.IGNORECASE)
            and not (vocabulary.PROCESSOR.fullmatch(system) and shared & _OF_CALLS)
        )
        if (at in silent and not vocabulary.QUANTILE.search(system)) or (
            any(map(str.isalpha, system)) and not of_phase and not vocabulary.NO_SYSTEM.search(words_of(system))
        ):
            columns[at] = (figures[at], system)
    kinds = {figure.split()[0] for figure, _ in columns.values()}
    alike = len({system for _, system in columns.values()}) < len(columns)
    return columns if len(kinds) == 1 and not alike else {}


def _figure_of(table: PublishedTable, named: int, at: int) -> str:
    """What a heading would be called without the name of a system: ``time (ms)``, ``throughput (images/s)``."""
    head = table.header[at]
    words, unit = words_of(head.text), _unit_of(head.text).lower()
    if at == named or any(each.search(words) for each in vocabulary.NO_FIGURES):
        return ""
    cells = [row[at].text for row in table.rows if max(at, named) < len(row)]
    beside = [rate for cell in cells if (rate := vocabulary.RATE.fullmatch(cell)) and rate["unit"]]
    above = vocabulary.RATE_OF.search(words)
    rates = [above, *(vocabulary.RATE_OF.fullmatch(rate["unit"]) for rate in beside)]
    heads = [words_of(each.text) for each in table.header]
    of_programs = any(
        (
            vocabulary.TIMES.search(_without_unit(words)),
            vocabulary.OF_SPEED.search(table.title),
            *map(vocabulary.OF_METHODS.search, heads),
        )
    )
    if any(rates):
        of_bytes = any(rate and rate["bytes"] for rate in rates) and not of_programs
        if (
            _is_of_part(words, above)
            or of_bytes
            or (unit and not above)
            or vocabulary.OF_MACHINE.search(_without_unit(words))
        ):
            return ""
        return f"throughput ({above[0]})" if above else "throughput"
    if unit:
        of_work = vocabulary.OF_PROGRAMS.search(heads[named]) or any(map(vocabulary.HARDWARE.search, heads))
        longest_s = math.inf if of_programs else 3600 if of_work else 60 if vocabulary.PROPER.search(head.text) else 1
        return f"time ({unit})" if vocabulary.UNITS.get(unit, math.inf) < longest_s else ""
    return "time" if at in _timed_columns(table, named, silent=False) else ""


def _without_unit(head: str) -> str:
    """The name of a system in a heading such as ``Ours (ms)`` or ``images/s (A100)``."""
    rate = vocabulary.RATE_OF.search(head)
    rest = vocabulary.EMPTY.sub("", head.replace(rate[0], "") if rate else vocabulary.IN_HEADING.sub("", head)).strip(
        " ,:-"
    )
    return rest[1:-1].strip() if rest[:1] in ("(", "[") and rest[-1:] in (")", "]") else rest


def _timed_columns(table: PublishedTable, named: int, *, silent: bool = True) -> list[int]:
    """The columns of times with their unit beside the number, below headings that do not say what they are of."""
    found = []
    for at, head in enumerate(table.header):
        words = words_of(head.text)
        told = (
            _unit_of(head.text) or vocabulary.OTHER_TIMES.search(words) or (silent and vocabulary.TIMES.search(words))
        )
        told = told or vocabulary.KEPT.search(words)
        rows = [
            row for row in table.rows if max(at, named) < len(row) and not vocabulary.ALLOWED.search(row[named].text)
        ]
        if at != named and words and not told and any(vocabulary.BEGINS_TIMED.match(row[at].text) for row in rows):
            found.append(at)
    return found


def _is_of_settings(table: PublishedTable) -> bool:
    """Whether it lists settings, offers or the steps of one run, of which none is a side of a comparison."""
    heads = [words_of(each.text) for each in table.header]
    named = _name_column(table)
    cells = [row[named].text for row in table.rows if named < len(row)]
    defaults = [head for head in heads if vocabulary.DEFAULT.fullmatch(_without_unit(head))]
    if defaults and not any(map(_unit_of, defaults)) and not any(map(vocabulary.IMPROVED.search, heads)):
        return True
    if cells and all(map(vocabulary.OF_TIME.fullmatch, cells)):
        return True
    kinds = [row[at].text for row in table.rows for at, head in enumerate(heads) if head == "Type" and at < len(row)]
    typed = bool(kinds) and all(map(vocabulary.KINDS.fullmatch, kinds))
    if vocabulary.SETTINGS.fullmatch(heads[0]) and (typed or not any(map(_says_measured, heads[1:]))):
        return True
    if vocabulary.TIMETABLE.fullmatch(heads[0]) or vocabulary.LIMITED.search(table.title):
        return True
    if vocabulary.OFFERS.fullmatch(heads[0]) and any(map(vocabulary.OFFERED.search, heads[1:])):
        return True
    if vocabulary.CURVE.fullmatch(heads[0]) and not (any(map(_is_words, cells)) and _crossed(table)):
        return True
    # Where times or qualities are in the place of names, its rows are those of a curve.
    firsts = (next(iter(_fields_of(heads[named], cell)), ("", None)) for cell in cells if not _is_words(cell))
    return any(figure in ("time_s", "quality.metric") for figure, _ in firsts)


def _says_measured(head: str) -> bool:
    """Whether a heading is of what settings led to: a quality, a rate, or a time with its unit or what took it."""
    if (
        vocabulary.OTHER_TIMES.search(head)
        or vocabulary.OTHER_QUALITIES.search(head)
        or vocabulary.LENGTH.fullmatch(head)
    ):
        return False
    timed = vocabulary.TIMES.search(head) and (_unit_of(head) or vocabulary.TIMED.search(head))
    return bool(timed or vocabulary.QUALITY.search(head) or vocabulary.RATE_OF.search(head))


def _crossed(table: PublishedTable) -> PublishedTable | None:
    """The table with a row for each of its times, where the systems stand side by side and the tasks below one another.

    ``None`` unless these are systems, such as before and after, and nothing but hardware or data is stated beside them.
    """
    named = _name_column(table)
    columns = _side_by_side(table, named)
    rows = {
        at: row
        for at, row in enumerate(table.rows)
        if named < len(row) <= len(table.header) and row[named].text and not vocabulary.ALLOWED.search(row[named].text)
    }
    said = [
        row[named].text
        for row in rows.values()
        if any(
            at < len(row) and (vocabulary.BEGINS_TIMED.match(row[at].text) or _is_rate(row[at].text)) for at in columns
        )
    ]
    kinds = [
        "time"
        if vocabulary.TIMES.search(each)
        else vocabulary.SAYS_RATE.search(each) or vocabulary.RATE_OF.search(each)
        for each in said
    ]
    of_one_each = said and all(kinds) and kinds.count("time") <= 1 and len(kinds) - kinds.count("time") <= 1
    if len(columns) < 2 or of_one_each or not _is_of_speed(table, columns):
        return None
    beside = {
        at: fields[0][0] for row in rows.values() for at, fields in _stated(table, named, row) if at not in columns
    }
    if not {*beside.values()} <= {"ratio", *vocabulary.NAMES}:
        return None
    more = [at for at, figure in beside.items() if figure != "ratio"]
    names = _names(table, named)
    heads = list(dict.fromkeys(head for head, _ in columns.values()))
    crossed = []
    for number, row in rows.items():
        task = names[number] if _is_words(names[number]) else f"{table.header[named].text} {names[number]}"
        for at, (head, system) in columns.items():
            text = row[at].text if at < len(row) else ""
            if head.startswith("throughput") and vocabulary.PART_OF_RATE.search(task):
                continue
            if text and _fields_of(head, with_points(text, table.commas) or ""):
                name = QuotedCell(f"{system}, {task.strip()}", row[at].line)
                cells = [row[at] if each == head else QuotedCell("", 1) for each in heads]
                crossed.append([name, *cells, *(row[each] for each in more if each < len(row))])
    header = [*(QuotedCell(each, 1) for each in ("", *heads)), *(table.header[at] for at in more)]
    return PublishedTable(table.title, header, crossed[:MOST_ROWS], table.commas, crossed=True)


def _proposal(table: PublishedTable, file: str) -> ProposedClaim | None:
    """What the table states of each of its rows; ``None`` if no row has a figure, not even one that is left out."""
    named = _name_column(table)
    names = _names(table, named)
    unclear, left_out = _unclear_columns(table, named)
    quoted: dict[str, QuotedCell] = {}
    sides: list[dict[str, Any]] = []
    ratios: dict[int, tuple[float, QuotedCell]] = {}
    stated = False
    known: set[str] = set()
    for name, row in zip(names, table.rows, strict=True):
        if not name:
            continue
        line = row[named].line
        # A total of tasks is how long all of them take, a mean of them is no time of anything.
        summed = vocabulary.AVERAGED if table.crossed else vocabulary.SUMMED
        sums = summed.fullmatch(row[named].text.rpartition(", ")[2] if table.crossed else row[named].text) is not None
        if why := _passed_over(sums, name in known, len(row) > len(table.header)):
            left_out.append(f"line {line} {why}")
            continue
        known.add(name)
        side: dict[str, Any] = {"name": name}
        path = f"sides[{len(sides)}]"
        if not table.crossed and name == row[named].text:
            quoted[f"{path}.name"] = row[named]
        for at, fields in _stated(table, named, row):
            figure = fields[0][0]
            if (at, figure) in unclear:
                continue
            if figure == "ratio":
                ratios[len(sides)] = (fields[0][1], row[at])
            elif not _holds(side, figure):
                for field_name, value in fields:
                    _put(side, field_name, value)
                    quoted[f"{path}.{field_name}"] = (
                        table.header[at] if field_name in vocabulary.OF_HEADING else row[at]
                    )
                stated |= figure in ("time_s", "throughput", "cost_usd", "quality.metric")
        _put_interval(side, path, quoted, [*zip(table.header, row, strict=False)])
        quality = side.get("quality", {})
        if quality.get("value", 0.0) > 1:
            # It may be in per cent, and nothing says so: not on the scale of the target.
            quality.pop("target", None)
        sides.append(side)
    compared, said = _comparisons(sides, ratios)
    if not stated and not compared and all(figure == "runs_made" for _, figure in unclear):
        return None
    title = table.title or Path(file).name
    data: dict[str, Any] = {"title": title, "sides": sides, **({"comparisons": compared} if compared else {})}
    return ProposedClaim(data, {**quoted, **said}, file, tuple(dict.fromkeys(left_out)))


def _names(table: PublishedTable, named: int) -> list[str]:
    """The name of each row; where names repeat, with the words of other columns that tell these rows apart."""
    first = [row[named].text if named < len(row) else "" for row in table.rows]
    if table.header[named].text and not any(map(_is_words, first)):
        first = [f"{table.header[named].text} {name}" if name else "" for name in first]
    names = first
    for at in range(len(table.header)):
        several = {name for name in names if name and names.count(name) > 1}
        cells = [row[at].text if at < len(row) else "" for row in table.rows]
        if vocabulary.SIZE.fullmatch(table.header[at].text):
            cells = [f"{table.header[at].text} {cell}" if cell else "" for cell in cells]
        words = [cell for cell in cells if _is_words(cell) and len(cell) <= vocabulary.LONGEST]
        unlike = {(name, cell) for name, cell in zip(names, cells, strict=True) if name in several}
        if several and at != named and len(words) == len(cells) and len(unlike) > len(several):
            names = [f"{name}, {cell}" if name else "" for name, cell in zip(names, cells, strict=True)]
    given = [name for name in names if name]
    return names if len(set(given)) == len(given) else first


def _put_interval(
    side: dict[str, Any], path: str, quoted: dict[str, QuotedCell], row: list[tuple[QuotedCell, QuotedCell]]
) -> None:
    """Set the interval that has a column of its own, if the row has one figure and it lies inside."""
    given = [(name, quoted[f"{path}.{name}"]) for name in ("time_s", "quality.value") if f"{path}.{name}" in quoted]
    found = [
        (cell, match)
        for head, cell in row
        if vocabulary.INTERVAL.fullmatch(words_of(head.text)) and (match := vocabulary.BOUNDS.fullmatch(cell.text))
    ]
    if len(given) != 1 or len(found) != 1 or "interval" in side or "low" in side.get("quality", {}):
        return
    (name, figure), (cell, match) = given[0], found[0]
    shown = vocabulary.VALUE.match(figure.text)
    low, high = _number(match["low"]), _number(match["high"])
    if shown is None or not 0 < low <= _number(shown["value"]) <= high:
        return
    value = side["time_s"] if name == "time_s" else side["quality"]["value"]
    ends = [_scaled(end, value / _number(shown["value"])) for end in (low, high)]
    fields = {"interval": ends} if name == "time_s" else {"quality.low": ends[0], "quality.high": ends[1]}
    for field_name, end in fields.items():
        _put(side, field_name, end)
        quoted[f"{path}.{field_name}"] = cell


def _of_columns(table: PublishedTable, file: str) -> ProposedClaim | None:
    """What the table states of each of its columns; ``None`` if that is nothing but their names."""
    bounded = any(vocabulary.LIMIT.search(head.text) for head in table.header)
    made = None if bounded else _proposal(_turned(table), file)
    return made if made and any(len(side) > 1 for side in made.data["sides"]) else None


def _passed_over(sums: bool, known: bool, longer: bool) -> str:
    """Why a row is not read: what is said of a row that is left out; empty if it is read."""
    if sums:
        return "sums up other rows"
    if known:
        return "has the name of a row before it"
    return "has more cells than the heading" if longer else ""


def _stated(table: PublishedTable, named: int, row: list[QuotedCell]) -> Iterator[tuple[int, _Fields]]:
    """The columns of a row that state something, and the fields; a row of times below another heading states none."""
    name = row[named].text if named < len(row) else ""
    turned = vocabulary.TIMES.search(name) is not None or vocabulary.ALLOWED.search(name) is not None
    for at, (head, cell) in enumerate(zip(table.header, row, strict=False)):
        if at == named or not cell.text or (turned and not vocabulary.TIMES.search(head.text)):
            continue
        text = with_points(cell.text, table.commas)
        said = f"{head.text} [{head.unit}]" if head.unit else head.text
        fields = () if text is None else _fields_of(said, text)
        figure = fields[0][0] if fields else ""
        # A row of prices is none of what runs cost.
        costs = vocabulary.COST.search(name) and not vocabulary.COST.search(head.text)
        priced = figure == "cost_usd" and (costs or vocabulary.PER.search(name) or vocabulary.PRICE.search(name))
        if fields and not priced and not _is_recorded(table, named, head.text, figure):
            yield at, fields


def _is_recorded(table: PublishedTable, named: int, head: str, figure: str) -> bool:
    """Whether a rate or length is that of the recordings that the rows name, and nothing of a system stands beside."""
    others = [words_of(each.text) for at, each in enumerate(table.header) if at != named]
    of_model = any(map(vocabulary.OF_MODEL.search, (*others, table.header[named].text)))
    if figure == "throughput" and any(map(vocabulary.FORMATS.fullmatch, others)) and not of_model:
        at = next(at for at, each in enumerate(table.header) if each.text == head)
        return vocabulary.FORMAT_RATES.issuperset(row[at].text for row in table.rows if at < len(row))
    recorded, length = vocabulary.RECORDED.search(table.header[named].text), vocabulary.LENGTH.fullmatch(words_of(head))
    if recorded is None or not (figure == "throughput" or (figure == "time_s" and length)):
        return False
    if figure == "time_s" and (recorded["data"] is None or any(map(vocabulary.OF_SPEECH.search, others))):
        return True
    quality = recorded["data"] and any(map(vocabulary.QUALITY.search, others)) and "hours" not in head.lower()
    return not quality and not any(map(vocabulary.OF_MODEL.search, others))


def _unclear_columns(table: PublishedTable, named: int) -> tuple[set[tuple[int, str]], list[str]]:
    """Columns of times, costs or ratios of which none is surely the claim's: each with its field, and why.

    A time to a target is the one that is meant where it is the only one, else a mean or median beside extremes.
    """
    unclear: set[tuple[int, str]] = set()
    said: list[str] = []
    if table.crossed:
        return unclear, said
    for figure, what in (("time_s", "times"), ("throughput", "rates"), ("cost_usd", "costs"), ("ratio", "ratios")):
        columns: dict[int, bool] = {}
        for row in table.rows:
            for at, fields in _stated(table, named, row):
                if fields[0][0] == figure:
                    columns[at] = columns.get(at, False) or ("time_of", "target") in fields
        timed = _timed_columns(table, named) if figure == "time_s" else []
        by_rows = any(vocabulary.TIMES.search(row[named].text) for row in table.rows if named < len(row))
        if set(columns) <= set(timed) and (columns or not by_rows):
            # Where one of them cannot be read, the others are no less of several systems or parts.
            columns |= dict.fromkeys(set(timed) - set(columns), False)
        meant = [at for at, is_target in columns.items() if is_target] or _central(table, list(columns))
        if len(columns) > 1:
            apart = sorted(columns if len(meant) != 1 else set(columns) - set(meant))
            unclear |= {(at, figure) for at in apart}
            heads = ", ".join(json.dumps(table.header[at].text, ensure_ascii=False) for at in apart)
            said.append(f"{heads}, as several columns have {what}")
    if not any(vocabulary.SPREAD.search(cell.text) for row in table.rows for cell in row):
        sizes = [at for at, head in enumerate(table.header) if head.text == "n"]
        unclear |= {(at, "runs_made") for at in sizes}
        said += ['"n", which may be a size'] if sizes else []
    qualities = {
        at for row in table.rows for at, fields in _stated(table, named, row) if fields[0][0] == "quality.metric"
    }
    for words, why in ((vocabulary.TRAINED, "not of the training data"), (vocabulary.OF_ANOTHER, "of the row itself")):
        found = sorted(at for at in qualities if words.search(words_of(table.header[at].text)))
        if found and len(found) < len(qualities):
            unclear |= {(at, "quality.metric") for at in found}
            heads = ", ".join(json.dumps(table.header[at].text, ensure_ascii=False) for at in found)
            said.append(f"{heads}, as others are {why}")
            qualities -= set(found)
    return unclear, said


def _central(table: PublishedTable, columns: list[int]) -> list[int]:
    """The column of a mean or median, if all others are extremes or parts of it; of a mean and a median the first."""
    heads = {at: words_of(table.header[at].text) for at in columns}
    centres = [word for word, kind in vocabulary.REPORTED if kind != "best"]
    found = [at for at, head in heads.items() if any(word.search(head) for word in centres)]
    if not all(vocabulary.END.search(head) for at, head in heads.items() if at not in found):
        return []
    of = {re.sub("|".join(word.pattern for word in centres), "", heads[at], flags=re.IGNORECASE) for at in found}
    return found[:1] if len(of) == 1 else found


def _holds(side: Mapping[str, Any], name: str) -> bool:
    """Whether the side has the field, ``quality.metric`` in its table; the first column with it counts."""
    first, _, inner = name.partition(".")
    return first in side and (not inner or inner in side[first])


def _put(side: dict[str, Any], name: str, value: Any) -> None:
    """Set a field of the side, ``quality.value`` in its table."""
    *tables, last = name.split(".")
    for each in tables:
        side = side.setdefault(each, {})
    side[last] = value


def _name_column(table: PublishedTable) -> int:
    """The first column whose cells are mostly words; amounts, such as ``8.1 MB``, are the names of models alone.

    Identifiers are the names of runs that have no other one.
    """
    found = []
    for at, head in enumerate(table.header):
        cells = [row[at].text for row in table.rows if at < len(row) and row[at].text]
        names = [
            cell for cell in cells if vocabulary.OF_MODEL.search(head.text) or not vocabulary.AMOUNT.fullmatch(cell)
        ]
        if cells and sum(map(_is_words, names)) * 2 > len(cells):
            found.append(at)
    heads = [words_of(each.text) for each in table.header]
    if found and vocabulary.IDENTIFIER.fullmatch(heads[found[0]]):
        found.sort(key=lambda at: vocabulary.NAMED.fullmatch(heads[at]) is None)
    return found[0] if found else 0


def _is_words(text: str) -> bool:
    figure = vocabulary.VALUE.fullmatch(text) is not None or _seconds_of(text) is not None or _is_rate(text)
    return not figure and any(each.isalpha() for each in text)


def _is_rate(text: str) -> bool:
    """Whether it is a number with a unit of rates, such as ``938 img/s``."""
    rate = vocabulary.RATE.fullmatch(text)
    return rate is not None and vocabulary.RATE_OF.fullmatch(rate["unit"] or "") is not None


def _comparisons(
    sides: Sequence[dict[str, Any]], ratios: Mapping[int, tuple[float, QuotedCell]]
) -> tuple[list[dict[str, Any]], dict[str, QuotedCell]]:
    """Each ratio with the one row that has a ratio of 1; none where no row or several have."""
    bases = [at for at, (ratio, _) in ratios.items() if ratio == 1]
    if len(bases) != 1:
        return [], {}
    found: list[dict[str, Any]] = []
    quoted: dict[str, QuotedCell] = {}
    for at, (ratio, cell) in ratios.items():
        if at != bases[0]:
            quoted[f"comparisons[{len(found)}].ratio"] = cell
            found.append({"new": sides[at]["name"], "base": sides[bases[0]]["name"], "ratio": ratio})
    return found, quoted


@lru_cache(maxsize=1 << 16)
def _fields_of(head: str, text: str) -> _Fields:
    """The fields of a side that a cell states below its heading."""
    return tuple(_figures_of(head, text))


def _figures_of(head: str, text: str) -> Iterator[tuple[str, Any]]:
    text = vocabulary.ASIDE.sub("", vocabulary.EMOJI.sub("", text).strip())
    match, written, head = vocabulary.VALUE.fullmatch(text), head, words_of(head)
    of_time = (
        vocabulary.TIMES.search(head)
        and not vocabulary.OTHER_TIMES.search(head)
        and not vocabulary.RATES.search(written)
    )
    if vocabulary.SCALED.search(head):
        return
    other = vocabulary.OTHER_TIMES.search(head) or vocabulary.OTHER_QUALITIES.search(head)
    if (
        not other
        and any(
            (vocabulary.RATE_OF.search(head), vocabulary.SAYS_RATE.search(head), vocabulary.SAYS_FIGURE.fullmatch(head))
        )
        and (rate := vocabulary.RATE.fullmatch(text))
    ):
        if (per_s := _per_second(head, rate)) is not None:
            yield "throughput", per_s
        if vocabulary.RATE_OF.search(head) or vocabulary.RATE_OF.fullmatch(rate["unit"] or ""):
            return
    if vocabulary.CLOCK.fullmatch(text) and vocabulary.OF_DAY.search(head):
        return
    if match is None and of_time and (several_s := _seconds_of(text)) is not None:
        yield from _time(head, several_s, (math.nan, math.nan))
        return
    if match is None:
        if not vocabulary.NOTHING.fullmatch(text):
            # A system is a database as often as a machine.
            unsure = {"hardware.description"} if head.lower().rstrip("s") == "system" and not lookup(text) else set()
            yield from (
                (name, text) for name, words in vocabulary.NAMES.items() if name not in unsure and words.search(head)
            )
        return
    value, own = _number(match["value"]), match["unit"] or match["after"] or ""
    # With a sign it is a change, except a loss, which may be below 0.
    if not math.isfinite(value) or text.startswith("+") or (value < 0 and "loss" not in head.lower()):
        return
    unit = own or _unit_of(written)
    if vocabulary.RUNS.match(head.strip()) and not unit and value.is_integer() and value > 0:
        yield "runs_made", int(value)
    elif head.lower() == "year" and re.fullmatch(r"(?:19|20)\d\d", text):
        yield "year", int(text)
    elif unit in ("x", "×", "") and vocabulary.RATIO.search(head):
        if not vocabulary.OTHER_TIMES.search(head):
            yield "ratio", value
    elif text.startswith("$") or (vocabulary.COST.search(head) and unit.lower() in ("$", "usd")):
        if not any(words.search(head) for words in (vocabulary.PER, vocabulary.PRICE, vocabulary.OTHER_TIMES)):
            yield "cost_usd", value
    elif vocabulary.OTHER_QUALITIES.search(head) and vocabulary.QUALITY.search(head):
        return
    elif (
        vocabulary.QUALITY.search(head)
        and not vocabulary.TIMES.search(head)
        and len(head) <= vocabulary.LONGEST
        and own not in vocabulary.UNITS
    ):
        scale = 0.01 if unit == "%" else 1.0
        yield "quality.metric", written
        yield "quality.value", _scaled(value, scale)
        low, high = _ends(head, match, scale)
        if low <= high:
            yield "quality.low", low
            yield "quality.high", high
    elif vocabulary.OTHER_TIMES.search(head) or vocabulary.RATES.search(written):
        return
    elif unit.lower() in vocabulary.UNITS and (of_time or (own in vocabulary.UNITS and _says_timed(head, own))):
        unit_s = vocabulary.UNITS[unit.lower()]
        yield from _time(head, _scaled(value, unit_s), _ends(head, match, unit_s))


def _says_timed(head: str, unit: str) -> bool:
    """Whether a figure with its unit below a heading without a word of time is how long something took.

    Programs take milliseconds; of longer times, the heading must say what took them: others are ages and lengths.
    """
    return not vocabulary.OF_INPUT.search(head) and (
        vocabulary.UNITS[unit] < 1 or vocabulary.TIMED.search(head) is not None
    )


_FACTORS = {"thousand": "k", "million": "M"}


def _per_second(head: str, rate: re.Match[str]) -> float | None:
    """A rate with the thousands and the unit of its cell and of its heading; ``None`` unless they agree on one unit."""
    factor = vocabulary.IN_THOUSANDS.search(head)
    head = head[: factor.start()] if factor else head
    above, beside = vocabulary.RATE_OF.search(head), vocabulary.RATE_OF.fullmatch(rate["unit"] or "")
    if (rate["unit"] and beside is None) or not (above or beside) or _is_of_part(head, above):
        return None
    units = [each for each in (above, beside) if each is not None]
    kilo = [each for each in (rate["kilo"], *(one["kilo"] or one["thousand"] for one in units)) if each]
    kilo += [_FACTORS[factor["kilo"].lower()]] if factor else []
    # Bytes per second are of a machine or a cable unless something says that they are a speed.
    of_machine = vocabulary.OF_MACHINE.search(head) or (
        any(each["bytes"] for each in units) and not vocabulary.SAYS_RATE.search(head)
    )
    if len(kilo) > 1 or of_machine:
        return None
    value = _scaled(_number(rate["value"]), vocabulary.KILO["".join(kilo)])
    return value if 0 < value < math.inf else None


def _is_of_part(head: str, unit: re.Match[str] | None) -> bool:
    """Whether a heading of rates says that a figure is to be multiplied, by a factor or by the parts of a side."""
    rest = head if unit is None else f"{head[: unit.start()]} {head[unit.end() :]}"
    return (
        any(each.search(head) for each in (vocabulary.FACTOR, vocabulary.PART_OF_RATE))
        or vocabulary.LETTER.search(rest) is not None
    )


def _unit_of(head: str) -> str:
    """The unit in a heading, or that it is; none where it names several."""
    if vocabulary.TIMES.search(head) and head.strip().lower() in vocabulary.UNITS:
        return head.strip().lower()
    units = {
        (match["unit"] or match["last"] or match["named"] or match["first"] or "%").lower()
        for match in vocabulary.IN_HEADING.finditer(words_of(head.replace("_", ", ")))
    }
    return units.pop() if len(units) == 1 else ""


def _seconds_of(text: str) -> float | None:
    """A time of several units, each smaller than the one before; ``None`` for anything else."""
    if clock := vocabulary.CLOCK.fullmatch(text):
        return 3600.0 * int(clock["h"]) + 60.0 * int(clock["min"]) + float(clock["s"])
    if not vocabulary.PARTS.fullmatch(text):
        return None
    parts = [
        (float(each["value"]), 60.0 if each["unit"] == "m" else vocabulary.UNITS[each["unit"]])
        for each in vocabulary.PART.finditer(text)
    ]
    sizes = [unit_s for _, unit_s in parts]
    falling = all(before > after for before, after in pairwise(sizes))
    return float(f"{sum(value * unit_s for value, unit_s in parts):.12g}") if falling else None


def _time(head: str, value_s: float, ends_s: tuple[float, float]) -> Iterator[tuple[str, Any]]:
    yield "time_s", value_s
    low, high = ends_s
    if low <= high:
        yield "interval", [low, high]
    for kind, words in vocabulary.TIME_OF:
        if words.search(head):
            yield "time_of", kind
            if kind == "target" and (share := vocabulary.TARGET.search(head)):
                yield "quality.target", _scaled(float(share["percent"]), 0.01)
            break
    for word, reported in vocabulary.REPORTED:
        if word.search(head):
            yield "reported", reported
            break
    if runs := vocabulary.OF_RUNS.search(head):
        yield "runs_made", int(runs["of"] or runs["n"])


def _ends(head: str, match: re.Match[str], scale: float) -> tuple[float, float]:
    """The interval beside a number; not a number where there is none, or where it may be something else."""
    if vocabulary.NO_INTERVAL.search(head) or (match["unit"] and match["after"] and match["unit"] != match["after"]):
        return math.nan, math.nan
    low, high = (math.nan if match[end] is None else _scaled(_number(match[end]), scale) for end in ("low", "high"))
    return low, high


def _scaled(value: float, scale: float) -> float:
    """Without the digits that only a product in binary has."""
    return float(f"{value * scale:.12g}")


def _number(text: str) -> float:
    return float(re.sub(r"[,\s]", "", text))
