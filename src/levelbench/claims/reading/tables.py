"""The tables of a page in Markdown, HTML or CSV as text, with the line of each cell."""

from __future__ import annotations

import csv
import html
import html.parser
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

__all__ = ["MOST_ROWS", "PublishedTable", "QuotedCell", "tables_of", "with_points", "words_of"]

MOST_ROWS, _MOST_SPANNED = 200, 50


@dataclass(frozen=True)
class QuotedCell:
    """The text of a cell, and the line of the file that it stands in, from 1."""

    text: str
    line: int
    unit: str = ""
    """Of a heading, its unit where the documentation of the program that wrote it has it."""


@dataclass
class PublishedTable:
    """A table with what was said right above it."""

    title: str
    header: list[QuotedCell]
    rows: list[list[QuotedCell]] = field(default_factory=list)
    commas: Literal["thousands", "unclear", "decimals"] = "thousands"
    """What a comma in a number parts; unclear where it may stand before the decimals."""
    crossed: bool = False
    """Whether each row is made of one cell: its name is of the headings of its column and of its row."""
    under: str = ""
    """The headings of the page that it stands under."""


def tables_of(path: Path, text: str) -> Iterator[PublishedTable]:
    """The tables of a page with this text, in Markdown unless the ending of the path says otherwise."""
    if path.suffix.lower() in (".html", ".htm"):
        yield from _html(text)
    elif path.suffix.lower() in (".csv", ".tsv"):
        yield from _csv(path, text)
    else:
        yield from _markdown(text)


def _csv(path: Path, text: str) -> Iterator[PublishedTable]:
    try:
        dialect: Any = csv.Sniffer().sniff(text[:4096], ",;\t")
    except csv.Error:
        dialect = csv.excel
    reader = csv.reader(text.splitlines(), dialect)
    rows: list[list[QuotedCell]] = []
    line = 1
    for row in reader:
        rows += [[QuotedCell(each.strip(), line) for each in row]] if row else []
        # A record may have several lines.
        line = reader.line_num + 1
    if rows:
        if {each.text for each in rows[0]} >= _HYPERFINE:
            rows[0] = [replace(each, unit="s" if each.text in _HYPERFINE - {"command"} else "") for each in rows[0]]
        table = PublishedTable(path.stem, rows[0], rows[1 : MOST_ROWS + 1])
        table.commas = _commas(table, semicolons=dialect.delimiter == ";")
        yield from _widened(table)


_HYPERFINE = frozenset(("command", "mean", "stddev", "median", "user", "system", "min", "max"))
"""The columns of hyperfine's ``--export-csv``, all but the first in seconds."""
_DECIMAL_COMMA = re.compile(r"[~≈$]?\s*[-+]?(?:\d{1,3}(?:\.\d{3})+,\d+|0,\d+|\d+,(?:\d{1,2}|\d{4,}))(?![\d,])")
_DECIMAL_POINT = re.compile(r"[~≈$]?\s*[-+]?\d+\.(?:\d{1,2}|\d{4,})(?!\d)")
"""Numbers that can be read in one way only: ``10,25`` and ``1.234,5``, or ``10.25``."""


def _commas(table: PublishedTable, semicolons: bool = False) -> Literal["thousands", "unclear", "decimals"]:
    """What commas in numbers part, by those that can be read in one way only, and by what parts the cells."""
    texts = [cell.text for row in table.rows for cell in row]
    before_decimals = any(map(_DECIMAL_COMMA.match, texts))
    if semicolons and before_decimals and not any(map(_DECIMAL_POINT.match, texts)):
        return "decimals"
    return "unclear" if semicolons or before_decimals else "thousands"


def with_points(text: str, commas: str) -> str | None:
    """The text of a figure with a point before its decimals; ``None`` where nobody knows what parts its digits."""
    if commas == "thousands" or not re.match(r"[~≈$]?\s*[-+]?\d", text):
        return text
    if commas == "unclear":
        return None if re.search(r"\d,\d", text) else text
    plain = re.sub(r"(?<![\d.,])\d{1,3}(?:\.\d{3})+(?=,\d)", lambda found: found[0].replace(".", ""), text)
    return None if re.search(r"\d\.\d", plain) else re.sub(r"(?<=\d),(?=\d)", ".", plain)


def _widened(table: PublishedTable) -> Iterator[PublishedTable]:
    """A table with a metric and its value in each row, as leaderboards export them: one for each dataset."""
    heads = [words_of(each.text).lower() for each in table.header]

    def column(*names: str) -> int | None:
        return next((heads.index(name) for name in names if name in heads), None)

    metric, value = column("metric name", "metric"), column("metric value", "value")
    name = column("model", "model name", "method", "system", "name")
    if metric is None or value is None or name is None:
        yield table
        return
    of = [at for at in (column("task", "task name"), column("dataset", "dataset name")) if at is not None]
    wide: dict[str, dict[str, dict[str, QuotedCell]]] = {}
    named: dict[tuple[str, str], QuotedCell] = {}
    first_named: dict[str, QuotedCell] = {}
    for row in table.rows:
        if len(row) == len(heads):
            title = ", ".join(row[at].text for at in of) or table.title
            named.setdefault((title, row[name].text), row[name])
            first_named.setdefault(row[metric].text, row[metric])
            wide.setdefault(title, {}).setdefault(row[name].text, {}).setdefault(row[metric].text, row[value])
    for title, models in wide.items():
        metrics = dict.fromkeys(each for cells in models.values() for each in cells)
        header = [QuotedCell("model", 1), *(first_named[each] for each in metrics)]
        found = []
        for model, cells in models.items():
            first = named[title, model]
            found.append([first, *(cells.get(each, QuotedCell("", first.line)) for each in metrics)])
        yield PublishedTable(title, header, found, table.commas)


_RULE = re.compile(r"\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*")
_TABLE = re.compile(r"\s*<table\b", re.IGNORECASE)
"""A table in HTML on a page in Markdown, where it begins a line."""
_PIPE = re.compile(r"(?<!\\)\|")
_MARKS = re.compile(
    r"\[\^[^\]]+\]|"
    r"(?P<ticks>`+)(?P<code>.+?)(?P=ticks)(?!`)|\\(?P<kept>[\\`*_\[\]#|<>~])|!?\[(?P<text>[^\]]*)\]\([^)]*\)|[*`]{1,3}|(?<![A-Za-z0-9_])_{1,3}(?!_)|(?<!_)_{1,3}(?![A-Za-z0-9_])|"
    r"</?(?P<tag>\w*)(?:[^\w<>][^<>]*)?>"
)
"""What is not shown; an underscore within a word is (``time_s``)."""
_WITHIN_WORDS = frozenset(("a", "b", "code", "em", "font", "i", "mark", "small", "span", "strong", "u"))
"""Tags that leave the words around them together; a footnote or a break in a cell does not."""
_QUOTED = re.compile(r"\s*(?:>\s?)+")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_HEADING = re.compile(r" {0,3}(?P<level>#{1,6})\s")


class _Sections:
    """The headings that a place of a page stands under, by their levels."""

    def __init__(self) -> None:
        self._open: dict[int, str] = {}

    def enter(self, level: int, name: str) -> None:
        self._open = {each: above for each, above in self._open.items() if each < level} | {level: name}

    def names(self) -> str:
        return " ".join(self._open.values())


def _markdown(text: str) -> Iterator[PublishedTable]:
    # Nobody sees what is in a comment; its line breaks stay, so that places are those of the page.
    shown = _COMMENT.sub(lambda match: "\n" * match[0].count("\n"), text)
    lines = [_QUOTED.sub("", line, count=1) if line.lstrip().startswith(">") else line for line in shown.splitlines()]
    said, fenced, at = "", False, 0
    sections = _Sections()
    while at < len(lines):
        line = lines[at]
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        starts = not fenced and "|" in line and at + 1 < len(lines) and "|" in lines[at + 1]
        if starts and _RULE.fullmatch(lines[at + 1]):
            table, at = PublishedTable(said, _cells(line, at), under=sections.names()), at + 2
            while at < len(lines) and "|" in lines[at] and len(table.rows) < MOST_ROWS:
                table.rows.append(_cells(lines[at], at))
                at += 1
            table.commas = _commas(table)
            yield table
            continue
        if not fenced and _TABLE.match(line):
            end = next((last for last in range(at, len(lines)) if "</table" in lines[last].lower()), len(lines) - 1)
            # The lines before it are left empty, so that places are those of the page.
            for table in _html("\n" * at + "\n".join(lines[at : end + 1]), said):
                yield replace(table, under=f"{sections.names()} {table.under}")
            at = end + 1
            continue
        if not fenced:
            if heading := _HEADING.match(line):
                sections.enter(len(heading["level"]), _plain(line[heading.end() :]))
            said = _plain(line).lstrip("# -+").rstrip(" :") or said
        at += 1


def _html(text: str, said: str = "") -> Iterator[PublishedTable]:
    """The tables of HTML; ``said`` is what was said before it."""
    parser = _Html(said)
    parser.feed(text)
    parser.close()
    for table in parser.tables:
        table.commas = _commas(table)
    yield from (each for each in parser.tables if each.header and each.rows)


def _cells(line: str, at: int) -> list[QuotedCell]:
    inside = line.strip().removeprefix("|")
    inside = inside[:-1] if inside.endswith("|") and not inside.endswith("\\|") else inside
    return [QuotedCell(_plain(each).replace("\\|", "|").strip(), at + 1) for each in _PIPE.split(inside)]


def _plain(text: str) -> str:
    shown = _MARKS.sub(lambda at: " " if _parts(at["tag"]) else at["code"] or at["kept"] or at["text"] or "", text)
    return html.unescape(shown).strip()


def _parts(tag: str | None) -> bool:
    return bool(tag) and str(tag).lower() not in _WITHIN_WORDS


class _Html(html.parser.HTMLParser):
    """The tables of a page; a table in a table counts to the outer one's cell."""

    def __init__(self, said: str = "") -> None:
        super().__init__()
        self.tables: list[PublishedTable] = []
        self._said, self._depth, self._open, self._line = said, 0, "", 1
        self._text: list[str] = []
        self._row: list[QuotedCell] = []
        self._tags: set[str] = set()
        self._hidden = False
        self._span = (1, 1)
        self._sections = _Sections()
        self._below: dict[int, tuple[int, QuotedCell]] = {}
        """Cells that reach into the rows below, by column, with the number of these rows."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden = tag in ("script", "style")
        if tag == "table":
            self._depth += 1
            if self._depth == 1:
                self.tables.append(PublishedTable(self._said, [], under=self._sections.names()))
                self._below = {}
        elif self._depth == 1 and tag == "tr":
            self._end_row()
        elif self._depth == 1 and tag in ("td", "th", "caption"):
            self._end_cell()
            self._open, self._text, self._line = tag, [], self.getpos()[0]
            named = dict(attrs)
            self._span = (_span(named.get("colspan")), _span(named.get("rowspan")))
        elif not self._depth and tag in ("title", "h1", "h2", "h3", "h4", "p"):
            self._open, self._text = tag, []
        elif self._open and _parts(tag):
            self._text.append(" ")

    def handle_data(self, data: str) -> None:
        if self._open and not self._hidden:
            self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._hidden = False
        if tag == "table" and self._depth:
            if self._depth == 1:
                self._end_row()
            self._depth -= 1
        elif tag == self._open and self._depth <= 1:
            self._end_cell()
        elif tag == "tr" and self._depth == 1:
            self._end_row()

    def _end_cell(self) -> None:
        text, tag = " ".join("".join(self._text).split()), self._open
        self._open, self._text = "", []
        if tag in ("td", "th"):
            self._fill_from_above()
            self._tags.add(tag)
            columns, rows = self._span
            for _ in range(columns):
                cell = QuotedCell(text, self._line)
                if rows > 1:
                    self._below[len(self._row)] = (rows - 1, cell)
                self._row.append(cell)
        elif tag == "caption":
            self.tables[-1].title = text
        elif tag and text:
            if tag != "p":
                self._sections.enter(0 if tag == "title" else int(tag[1]), text)
            self._said = text

    def _fill_from_above(self) -> None:
        while (at := len(self._row)) in self._below:
            rows, cell = self._below.pop(at)
            if rows > 1:
                self._below[at] = (rows - 1, cell)
            self._row.append(cell)

    def _end_row(self) -> None:
        if self._open in ("td", "th"):
            self._end_cell()
        if self._row:
            self._fill_from_above()
        table, row, self._row = self.tables[-1], self._row, []
        heads, self._tags = self._tags == {"th"}, set()
        if row and not table.header:
            table.header = row
        elif row and heads and not table.rows and len(row) == len(table.header):
            table.header = [a if a.text == b.text else _below(a, b) for a, b in zip(table.header, row, strict=True)]
        elif row and len(table.rows) < MOST_ROWS:
            table.rows.append(row)


def _below(head: QuotedCell, under: QuotedCell) -> QuotedCell:
    """A heading with the one under it; before its unit, which stays at the end."""
    words, unit, end = head.text.rpartition("(")
    text = f"{words}{under.text} ({end}" if unit else f"{head.text} {under.text}"
    return QuotedCell(text, under.line)


def _span(text: str | None) -> int:
    """How many columns or rows a cell takes."""
    return min(max(int(text), 1), _MOST_SPANNED) if text and re.fullmatch("[0-9]{1,9}", text) else 1


def words_of(head: str) -> str:
    """A heading such as ``wall_time_s`` in words, without the spread beside its figure (``± SD``, ``[95 % CI]``)."""
    return _BESIDE.sub("", head.replace("_", " ")).strip()


_BESIDE = re.compile(
    r"(?<=[^\s(\[])\s*(?:(?:±|\+/-)\s*(?:(?:9\d ?% ?)?(?:ci|confidence interval)|st(?:an)?d(?:ard)?\.? ?"
    r"(?:dev(?:iation)?|err(?:or)?)?\.?|s\.?d\.?|sem?|mad|iqr|σ)(?!\w)|[(\[]9\d ?% ?(?:ci|confidence intervals?)[)\]])",
    re.IGNORECASE,
)
