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
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from levelbench.claims.hardware import lookup
from levelbench.claims.reading import NothingStatedError, write_down
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


def propose(path: Path) -> list[ProposedClaim]:
    """A proposal for each table of the page that states a time, a cost, a quality or a ratio of something."""
    if path.stat().st_size > _MOST_BYTES:
        raise UsageError(f"levelbench lint {path}", "it is larger than 8 MiB", "give the page with the results")
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    tables = list(tables_of(path, text))
    forms = ((_crossed(table) or table, table) for table in tables if not _is_of_settings(table))
    found = [made for form, table in forms if (made := _proposal(form, str(path)) or _of_columns(table, str(path)))]
    if not found:
        seen = "no table of it states a time with its unit, a rate, a cost, a quality or a ratio, or not of what"
        seen = seen if tables else "it has no table"
        raise NothingStatedError(f"levelbench lint {path}", seen, write_down("" if tables else text))
    return found


def _turned(table: PublishedTable) -> PublishedTable:
    """The table with a row for each column: the systems side by side, and their figures below one another."""
    rows = [table.header, *(row for row in table.rows if len(row) == len(table.header))]
    header, *columns = [list(column) for column in zip(*rows, strict=True)]
    return PublishedTable(table.title, header, columns, table.commas)


def _is_of_speed(table: PublishedTable, columns: Mapping[int, tuple[str, str]]) -> bool:
    """Whether its times are as short as programs are, or something says so: plans and timetables are in minutes."""
    said = " ".join([table.title, *(words_of(each.text) for each in table.header)])
    short = any(_SHORT.search(row[at].text) for row in table.rows for at in columns if at < len(row))
    return short or all(figure != "time" for figure, _ in columns.values()) or _OF_SPEED.search(said) is not None


def _side_by_side(table: PublishedTable, named: int) -> dict[int, tuple[str, str]]:
    """The columns of several systems with one kind of figure: what to call it, with its unit, and each system's name.

    A name is what a heading has beside its unit and, as in ``PyTorch latency (ms)``, the words that all of them share.
    Empty unless all are times, or all rates, and each has a name of its own, and none of a phase.
    """
    silent = _timed_columns(table, named)
    figures = {at: "time" if at in silent else _figure_of(table, named, at) for at in range(len(table.header))}
    names = {at: _without_unit(table.header[at].text) for at, figure in figures.items() if figure}
    shared = set.intersection(*({*name.lower().split()} for name in names.values())) if names else set()
    said = any(_TIMES.search(word) or _SAYS_RATE.search(word) for word in shared)
    columns = {}
    for at, name in names.items():
        words = [word for word in name.split() if not said or word.lower() not in shared]
        system = " ".join(words).strip(" ,:-–")
        of_phase = (
            said
            and (_OF_PHASE.search(system) or _TIMED.search(system))
            and not re.search(_METHOD, system, re.IGNORECASE)
        )
        if (at in silent and not _QUANTILE.search(system)) or (
            any(map(str.isalpha, system)) and not of_phase and not _NO_SYSTEM.search(words_of(system))
        ):
            columns[at] = (figures[at], system)
    kinds = {figure.split()[0] for figure, _ in columns.values()}
    alike = len({system for _, system in columns.values()}) < len(columns)
    return columns if len(kinds) == 1 and not alike else {}


def _figure_of(table: PublishedTable, named: int, at: int) -> str:
    """What a heading would be called without the name of a system: ``time (ms)``, ``throughput (images/s)``."""
    head = table.header[at]
    words, unit = words_of(head.text), _unit_of(head.text).lower()
    if at == named or any(each.search(words) for each in _NO_FIGURES):
        return ""
    cells = [row[at].text for row in table.rows if max(at, named) < len(row)]
    beside = [rate for cell in cells if (rate := _RATE.fullmatch(cell)) and rate["unit"]]
    above = _RATE_OF.search(words)
    rates = [above, *(_RATE_OF.fullmatch(rate["unit"]) for rate in beside)]
    heads = [words_of(each.text) for each in table.header]
    of_programs = any(
        (_TIMES.search(_without_unit(words)), _OF_SPEED.search(table.title), *map(_OF_METHODS.search, heads))
    )
    if any(rates):
        of_bytes = any(rate and rate["bytes"] for rate in rates) and not of_programs
        if _is_of_part(words, above) or of_bytes or (unit and not above) or _OF_MACHINE.search(_without_unit(words)):
            return ""
        return f"throughput ({above[0]})" if above else "throughput"
    if unit:
        of_work = _OF_PROGRAMS.search(heads[named]) or any(map(_HARDWARE.search, heads))
        longest_s = math.inf if of_programs else 3600 if of_work else 60 if _PROPER.search(head.text) else 1
        return f"time ({unit})" if _UNITS.get(unit, math.inf) < longest_s else ""
    return "time" if at in _timed_columns(table, named, silent=False) else ""


def _without_unit(head: str) -> str:
    """The name of a system in a heading such as ``Ours (ms)`` or ``images/s (A100)``."""
    rate = _RATE_OF.search(head)
    rest = _EMPTY.sub("", head.replace(rate[0], "") if rate else _IN_HEADING.sub("", head)).strip(" ,:-")
    return rest[1:-1].strip() if rest[:1] in ("(", "[") and rest[-1:] in (")", "]") else rest


def _timed_columns(table: PublishedTable, named: int, *, silent: bool = True) -> list[int]:
    """The columns of times with their unit beside the number, below headings that do not say what they are of."""
    found = []
    for at, head in enumerate(table.header):
        words = words_of(head.text)
        told = _unit_of(head.text) or _OTHER_TIMES.search(words) or (silent and _TIMES.search(words))
        told = told or _KEPT.search(words)
        rows = [row for row in table.rows if max(at, named) < len(row) and not _ALLOWED.search(row[named].text)]
        if at != named and words and not told and any(_BEGINS_TIMED.match(row[at].text) for row in rows):
            found.append(at)
    return found


def _is_of_settings(table: PublishedTable) -> bool:
    """Whether it lists settings, offers or the steps of one run, of which none is a side of a comparison."""
    heads = [words_of(each.text) for each in table.header]
    named = _name_column(table)
    cells = [row[named].text for row in table.rows if named < len(row)]
    defaults = [head for head in heads if _DEFAULT.fullmatch(_without_unit(head))]
    if defaults and not any(map(_unit_of, defaults)) and not any(map(_IMPROVED.search, heads)):
        return True
    if cells and all(map(_OF_TIME.fullmatch, cells)):
        return True
    kinds = [row[at].text for row in table.rows for at, head in enumerate(heads) if head == "Type" and at < len(row)]
    typed = bool(kinds) and all(map(_KINDS.fullmatch, kinds))
    if _SETTINGS.fullmatch(heads[0]) and (typed or not any(map(_says_measured, heads[1:]))):
        return True
    if _OFFERS.fullmatch(heads[0]) and any(map(_OFFERED.search, heads[1:])):
        return True
    if _CURVE.fullmatch(heads[0]) and not (any(map(_is_words, cells)) and _crossed(table)):
        return True
    # Where times or qualities are in the place of names, its rows are those of a curve.
    firsts = (next(iter(_fields_of(heads[named], cell)), ("", None)) for cell in cells if not _is_words(cell))
    return any(figure in ("time_s", "quality.metric") for figure, _ in firsts)


def _says_measured(head: str) -> bool:
    """Whether a heading is of what settings led to: a quality, a rate, or a time with its unit or what took it."""
    if _OTHER_TIMES.search(head) or _OTHER_QUALITIES.search(head) or _LENGTH.fullmatch(head):
        return False
    timed = _TIMES.search(head) and (_unit_of(head) or _TIMED.search(head))
    return bool(timed or _QUALITY.search(head) or _RATE_OF.search(head))


def _crossed(table: PublishedTable) -> PublishedTable | None:
    """The table with a row for each of its times, where the systems stand side by side and the tasks below one another.

    ``None`` unless these are systems, such as before and after, and nothing but hardware or data is stated beside them.
    """
    named = _name_column(table)
    columns = _side_by_side(table, named)
    rows = {
        at: row
        for at, row in enumerate(table.rows)
        if named < len(row) <= len(table.header) and row[named].text and not _ALLOWED.search(row[named].text)
    }
    said = [
        row[named].text
        for row in rows.values()
        if any(at < len(row) and (_BEGINS_TIMED.match(row[at].text) or _is_rate(row[at].text)) for at in columns)
    ]
    kinds = ["time" if _TIMES.search(each) else _SAYS_RATE.search(each) or _RATE_OF.search(each) for each in said]
    of_one_each = said and all(kinds) and kinds.count("time") <= 1 and len(kinds) - kinds.count("time") <= 1
    if len(columns) < 2 or of_one_each or not _is_of_speed(table, columns):
        return None
    beside = {
        at: fields[0][0] for row in rows.values() for at, fields in _stated(table, named, row) if at not in columns
    }
    if not {*beside.values()} <= {"ratio", *_NAMES}:
        return None
    more = [at for at, figure in beside.items() if figure != "ratio"]
    names = _names(table, named)
    heads = list(dict.fromkeys(head for head, _ in columns.values()))
    crossed = []
    for number, row in rows.items():
        task = names[number] if _is_words(names[number]) else f"{table.header[named].text} {names[number]}"
        for at, (head, system) in columns.items():
            text = row[at].text if at < len(row) else ""
            if head.startswith("throughput") and _PART_OF_RATE.search(task):
                continue
            if text and _fields_of(head, with_points(text, table.commas) or ""):
                name = QuotedCell(f"{system}, {task.strip()}", row[at].line)
                cells = [row[at] if each == head else QuotedCell("", 1) for each in heads]
                crossed.append([name, *cells, *(row[each] for each in more if each < len(row))])
    header = [*(QuotedCell(each, 1) for each in ("", *heads)), *(table.header[at] for at in more)]
    return PublishedTable(table.title, header, crossed[:MOST_ROWS], table.commas, crossed=True)


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_UNITS = {
    **dict.fromkeys(("ns", "nanoseconds"), 1e-9),
    **dict.fromkeys(("us", "µs", "μs", "microseconds"), 1e-6),
    **dict.fromkeys(("ms", "msec", "milliseconds"), 1e-3),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
    **dict.fromkeys(("day", "days"), 86400.0),
}
_UNIT = "|".join(sorted(_UNITS, key=len, reverse=True))
_EMPTY = re.compile(r"[(\[]\W*[)\]]")
_NUMBER = r"[-+]?(?:[1-9]\d{0,2}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?"
_VALUE = re.compile(
    rf"(?:~|≈|\$)?\s*(?P<value>{_NUMBER})\s*(?P<unit>%|[x×]|{_UNIT})?"
    rf"(?:\s*(?:±|\+/-)\s*(?P<spread>{_NUMBER})|\s*(?:\[|\(95 ?% CI:?)\s*(?P<low>{_NUMBER})\s*(?:,|–|-|to)\s*"
    rf"(?P<high>{_NUMBER})\s*[\])])?\s*(?P<after>%|[x×]|{_UNIT})?",
)
_ASIDE = _words(
    rf"\s*\(\s*[-+−]?\s*{_NUMBER}\s*(?:%|[x×])(?: (?:faster|slower|speed-?up))?\s*\)$|"
    rf":\s*{_NUMBER}\s?[x×] (?:faster|slower)$"
)
"""What is said beside a figure about another row: ``3.2 s (1.4x)``, ``31 min (-30 %)``, ``221 ms: 1.03x faster``."""
_BEGINS_TIMED = re.compile(rf"\W*\d[\d.,]*\s*(?:(?:±|\+/-)\s*[\d.,]+\s*)?(?:{_UNIT})\b")
_SHORT = re.compile(r"\d\s*(?:ns|us|µs|μs|ms|msec|s|secs?|seconds?)\b")
_OF_SPEED = _words(
    r"\bbench|perform|speed|\bfast|\bslow|\btim(?:e|ing)|latency|runtime|train|\bresults?\b|\bratio\b|\bbefore\b"
)
_METHOD = r"\b(?:ours|baseline|old|new|main|pr|before|after)\b"
_IMPROVED = _words(r"optimi[sz]ed|\btuned|compiled|\bours\b|\bfast|speed-?up")
_OF_METHODS = _words(rf"{_METHOD}|improvement|bench|perform|speed|runtime|latency|compress")
"""Headings of a table that compares programs, and not of one that lists lengths."""
_OF_PROGRAMS = _words(
    r"\b(?:library|framework|engine|compiler|backend|database|implementation|query|solver|model|method|rows|size|"
    r"function|operation|algorithm)\b|^n$"
)
"""The heading of the names of programs or of their work, whose figures may be minutes; longer ones may be plans."""
_PROPER = re.compile(r"[a-z][A-Z]|[A-Z]{2}|\w\d|\d\.\d|^[a-z]")
"""A name that is spelt as no word of a sentence is, such as ``polars`` or ``Python 3.11``."""
_OF_PHASE = _words(r"(?:ing|tion|ence)\b|\b(?:first|next|setup|kernel|host|transfer|queue|network|client|server)\b")
"""The name of a part of a program, as of an action: parts follow one another."""
_LIMIT = _words(r"\b(?:lower|upper) (?:bound|limit|end|ci)\b")
"""The heading of a column that bounds a figure of its row, and is no system."""
_SIZE = _words(
    r"(?:(?:batch|input|image|hidden|seq(?:uence)?|context)[- ]?)?(?:batch|size|length|len)|resolution|concurrency|"
    r"(?:# ?|num )?(?:threads|gpus|nodes|workers|cores|ranks|processes|clients|users|rows)"
)
"""The heading of a size that tells rows of one name apart, and is no number of a repetition."""
_EMOJI = re.compile("[\u2020\u2021\u2705\u2728\u26a1\u2b50\ufe0f\U0001f300-\U0001faff]")
_CLOCK = re.compile(r"(?P<h>\d{1,4}):(?P<min>[0-5]\d):(?P<s>[0-5]\d(?:\.\d+)?)")
_OF_DAY = _words(
    r"(?<!-)(?<!to )\b(?:start|end|finish|begin|submit|submission|creation|arrival|departure|release)(?:ed|ing)?"
    r"(?: ?time| at)?$"
)
"""Headings of a time of day."""
_PARTS = re.compile(rf"(?:\d{{1,9}}(?:\.\d+)?\s*(?:{_UNIT}|m)\s*){{2,}}")
_PART = re.compile(rf"(?P<value>\d+(?:\.\d+)?)\s*(?P<unit>{_UNIT}|m)(?![a-z])")
"""A time of several units: ``1 h 23 min``, ``3m 20s``; ``0:10:28`` is of hours, minutes and seconds."""
_OF_EACH = rf"(?P<first>{_UNIT})\s?(?:/|per )\s?(?!(?:{_UNIT}|max|week|month|year|user)\b)[a-z]{{2,}}"
"""A heading such as ``ms/step``."""
_IN_HEADING = _words(
    rf"[(\[]\s*(?P<unit>{_UNIT}|%|\$|usd)\.?\s*(?:per \w+|/\s*\w+)?\s*(?:[)\]]|(?<!min),(?! ?(?:{_UNIT})\b))|"
    rf"[,/_]\s*(?P<last>{_UNIT}|%|\$|usd)\s*(?:$|[(\[])|"
    rf"\b(?:in|train(?:ing)?|wall[- ]?clock) (?P<named>{_UNIT})\s*$|^{_OF_EACH}\b|"
    r"(?<!\d)(?<!\d )(?P<sign>%|\bpercentage\b)"
)
"""A unit in brackets, or at the end (``time, s``, ``time_s``); a percent sign anywhere, except that of a number."""
_SET = (
    r"\bdeadlines?\b|\bconstraints?\b|\bsl[oa]s?\b|\ballow(?:ed|able|ance)\b|\b(?:permitted|permissible|acceptable)\b|"
    r"\btolerances?\b|\brequirements?\b|\brequired (?!for\b|to\b|by\b)[a-z]|\blimits?\b|\bbudget(?:ed|s)?\b|"
    r"\b(?:throughput|rate|speed|latency|accuracy|quality|fps|qps|/s) required\b|\bprojected\b|\bextrapolat|"
    r"(?<!to )(?<!to the )\b(?:targets?|goals?)\b|(?<!to )(?<!to the )(?<!at )(?<!at the )(?<!best )(?<!@)"
    r"\bthresholds?\b(?! ?(?:=|of\b|\d))|\bplanned\b|\brequested\b|\ballotted\b|\bcaps?\b(?! ?\d)|\bceiling\b|"
    r"\broofline\b|(?<!-)(?<!cpu )(?<!gpu )(?<!memory )(?<!compute )(?<!i/o )(?<!io )\bbounds?\b|\bbest possible\b|"
    r"\bideal\b|\beta\b|\brated\b|\badvertised\b|\bdata[- ]?sheet\b|"
    r"\bspec(?:ified|[- ]?sheet)\b"
)
"""Words of limits, goals, plans and promises, which nobody has measured."""
_DEVIATION = (
    r"\bjitter\b|uncertaint|variance|σ|\bst(?:an)?d?(?:ard)?\.? ?(?:err|dev)|\bstd\b|deviation|"
    r"\b(?:se|sem|sd|mad|iqr)\b ?(?:[(\[,)]|$)"
)
_RATES = _words(
    r"^(?!.*time ?/ ?s$|latency ?/ ?s$).*(?:/\s*s\b|per second|throughput|fps|it/s|samples/|images/|tokens/)"
)
"""Headings of rates; ``runtime / s`` is a time with its unit."""
_TIMES = _words(
    r"\b(?:time|latency|duration|elapsed|(?<!onnx )(?<!lite )runtime|wall(?:[- ]?clock)?|seconds|minutes|hours|ms)\b|"
    rf"\b(?:\w*zeit|dauer|temps|durée|tiempo|duración)\b|^(?:mean|median|average|min|max)\s*[(\[]|"
    rf"^(?:mean|median|average) (?:{_UNIT})$|^{_OF_EACH}\b"
)
_OTHER_TIMES = _words(
    r"time[- ]?out(?!p)|\bsav(?:ed|ings?)\b|reduc(?:ed|tion)|overhead|differ|delta|Δ|predicted|"
    r"\bestimat(?:ed?|es|ion(?! (?:time|latency)))\b|"
    r"expected|theor|ideal|\bnominal\b|\bclaimed\b|\bclaims?\s*(?:[(\[,]|$)|"
    rf"{_LIMIT.pattern}|\berror\b(?! rate)|^±|\bci\b(?! time)|confidence|\bmargin\b|"
    r"\bdefault (?:time|duration)|\bmin ?/ ?max\b|latency.*\(min\)|\bsimulated\b(?! ann)|"
    r"(?:shortest|longest|sampling|polling|update) interval|\bperiod\b|\bdelay\b|\bwindow\b|resolution|granularity|"
    r"(?<!per )(?<!/)(?<!/ )\btime[- ]?steps? ?(?:[(\[,]|size|$)|\btime constant|\bthink(?:ing)? time|"
    r"\b(?:time|hours|days) since\b|\b(?:to|between) failures?\b|\btime to live\b|\bttl\b|"
    r"\b(?:ttft|tpot|itl)\b|"
    r"\bback-?off\b|\bsleep\b|\bcut-?off\b|\bup-?time\b|\btime left\b|\bremaining\b|\blead[- ]time\b|^warm-?up\b|"
    r"\b(?:data ?sets?|test|frame|chunk)[- ](?:duration|length)\b|\bhop\b|\bstride\b|look-?ahead|"
    r"\bduration of (?:the |an? )?(?:\w+ )?test\b|^(?!time (?:to|for|per) ).*(?:\b(?:hours|minutes|seconds) of\b|"
    r"\bof (?:the )?(?:inputs?|audio|speech|recordings?|clips?|videos?)\s*(?:[(\[,]|$))|"
    r"\b(?:audio|video|speech|clip|song|track|recording|episode)s?[- ](?:time|duration|length)\b|"
    r"\b(?:gpu|cpu|tpu|core|node|device|accelerator)s?[- ]?(?:time|hours?|minutes?|seconds?|h)\b|"
    rf"{_SET}|{_DEVIATION}"
)
"""Headings of times that are none from start to end: how much is saved, a spread, a limit, a sum over processors."""
_OF_INPUT = _words(
    r"\b(?:audio|video|speech|data(?: ?sets?)?$|corpus|clips?$|songs?|tracks?|segments?|recordings?|inputs?|length|"
    r"ages?|dates?|last|updated?|retention|lifetime|ttl|warm-?up|ramp|pause|lag|interval)\b"
)
"""Headings of how long an input or an interval is, or how old something."""
_KEPT = _words(r"\b(?:retention|lifetime|ages?|interval)\b")
"""Headings of how long something is kept."""
_TIMED = _words(
    r"\b(?:latency|mean|median|average|avg|best|worst|fastest|slowest|p\d+|elapsed|wall|real|user|total|overall|cold|warm|"
    r"before|after|ours|baseline|old|new|main|cpu|gpu|end-to-end|step|epoch|iter\w*|query|request|response|run|result|"
    r"value|measure\w*|record|speed|perf\w*|bench\w*|"
    r"(?:train|infer|forward|backward|compil|build|start|load|pars|encod|decod|prefill|generat|synth|search|sort|solv|"
    r"render|simulat|transcri|convert|comput|execut|process|scan|index|fit|predict|import|serial|deserial|read|writ|"
    r"cop[iy]|download|upload)\w*(?<![^s]s))\b"
)
"""Headings of what a program did or of how its runs are summed up, without a word of time."""
_QUANTILE = _words(r"\bp\d+\b|percentile|\d+th\b")
_END = _words(r"\b(?:min|max|minimum|maximum|best|worst|fastest|slowest|p\d+|\d+th|user|system)\b|percentile")
"""Headings of times that stand beside a mean or median, and are not meant instead of it."""
_NO_INTERVAL = _words(r"\bmin\b.*\bmax\b|\brange\b|\biqr\b|quartile|percentile|\bstd\b|\bsd\b|deviation")
_COUNTED = (
    r"(?:im(?:g|age)?|tok(?:en)?|sample|step|req(?:uest)?|seq(?:uence)?|it(?:eration)?|op(?:eration)?|sentence|row|record|"
    r"event|frame|call|message|msg|transaction|word|document|inference|prediction|querie)s?|query"
)
_RATE_OF = _words(
    rf"(?<![A-Za-z-])(?:(?:(?P<kilo>(?-i:[kKMG]))? ?(?:throughput|(?P<bytes>(?-i:B)|bytes)|t(?=/s)|{_COUNTED})|"
    r"(?<!(?-i:[kKMGT]) )(?!\w*(?:flop|tops|bit)|joules|met(?:er|re)s|hours|minutes)[a-z]{2,}s(?= ?/))\W*"
    r"(?:/ ?|per )(?:s|sec|second)\b(?! ?/| per\b| of\b)|(?P<thousand>(?-i:[kKM]))?(?:fps|qps|tps|rps)\b)"
)
"""Headings of rates of anything in the plural: ``images/s``, ``throughput (k tokens/sec)``, ``FPS``; ``1.2 GB/s``."""
_SAYS_RATE = _words(r"throughput|\bspeed\b|\brates?\b|performance")
_OF_MACHINE = _words(
    r"bandwidth|memory|\b(?:disk|network|link|bus|quota|limit|load)\b|"
    r"\b(?:request|arrival|offered|input|sampl(?:e|ing)|frame|refresh) ?rate\b|\b(?:sent|offered|demand)\b|"
    r"\b(?:input|source|camera|sensor|display|video|playback|recording) fps\b"
)
"""Headings of rates that a machine could reach, or that were asked of a program, and no speed of one."""
_FACTOR = _words(
    r"(?<!\d)(?<!\d )(?<!one )(?<!per )(?<!/)\b(?:hundred|thousand|million|billion|mln|mio)s?\b|"
    r"\b(?:thousand|million|billion)s? (?:of )?\w+ ?(?:/|per )|\b(?:kilo|mega|giga)(?:\b|-)|"
    r"['’]000s?\b|(?<!\d)(?<!\d )[x×*] ?1[0,]*0\b|\b1(?:[ ,]?000)+s\b|"
    r"(?:^|[(\[,]|\bin) ?1(?:[ ,]?0{2,3})+ ?(?:[)\]]|$|[a-z]+ ?(?:/ ?|per )s)|\b1e\+?\d\b"
)
_LETTER = re.compile(r"(?<![\w.@'’-])(?<!\d )[kKMG](?![\w.'’-]| ?[=:])")
"""A factor in a heading, in words or digits anywhere and as a letter apart from the unit: ``tok/s (k)``."""
_PART_OF_RATE = _words(
    r"\bper\b(?![- ]?(?:s|sec|seconds?)\b)|\b(?:each|every)\b|"
    r"[/·*⋅] ?(?:[cgt]pu|chip|device|core|accelerator|node|card|worker|thread|rank|socket|machine|user|client|watt)\b"
)
"""Headings of a rate of a part of the side: ``images/s (per GPU)``, ``throughput/chip``, ``tokens/s (each)``."""
_RECORDED = _words(r"\b(?:(?P<data>data ?set|corpus|split)|video|clip|recording|camera|sensor|stream)s?\b")
_LENGTH = _words(rf"(?:total )?(?:hours|minutes|seconds|duration|length)(?:\s*[(\[]\s*(?:{_UNIT})\s*[)\]])?")
_OF_SPEECH = _words(r"\b(?:wer|cer|speakers?|utterances?)\b")
_RATE = re.compile(
    rf"(?:~|≈)?\s*(?P<value>{_NUMBER})\s?(?P<kilo>[kKMG])?(?:\s*(?:±|\+/-)\s*{_NUMBER}\s?[kKMG%]?)?(?:\s*(?P<unit>[A-Za-z].*))?"
)
_KILO = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}
_PER = _words(r"/|\bper\b|\bhourly\b")
_PRICE = _words(
    r"^(?!.*\b(?:train|run|job|total)).*\b(?:price|msrp|budget)\b|"
    r"\b(?:sav(?:ed|ings?)|monthly|annual|yearly|hardware|machine|device|card|inference|serving|query|token|request|prize)|"
    r"\b(?:gpu|list|max(?:imum)?) cost\b"
)
"""What something may be bought for or save, and no run to a target has cost."""
_EACH, _STEP = r"(?:\b(?:per|an?|each|one) |/ ?)(?:training )?", r"(?:step|iteration|iter)\b"
_TIME_OF = (
    ("epoch", _words(rf"{_EACH}epoch\b|\bepoch (?:time|duration)|^epoch\b")),
    ("step", _words(rf"{_EACH}{_STEP}|\b{_STEP} (?:time|duration|latency)|^{_STEP}")),
    ("call", _words(r"latency|inference|\bcall\b")),
    ("target", _words(r"\bto\b.*(?:\d ?%|accuracy|target|loss|quality)")),
)
_TARGET = _words(r"\bto (?P<percent>\d{1,2}(?:\.\d{1,4})?) ?%")
_QUALITY = _words(
    r"percentage correct|\b(?:acc(?:uracy)?|top[- ]?[15]|f1|bleu|rouge|map|m?iou|auc|auroc|perplexity|ppl|"
    r"wer|cer|r?mse|mae|error rate|(?:test|val(?:idation)?) err(?:or)?|loss|dice|psnr|ssim|fid|bpc|bits per byte|"
    r"(?-i:AP(?:50|75)?|EM|R2)|exact match|(?:pass|recall|r|ndcg)@\d+|mrr)\b|\bR²|^error ?[(\[] ?%"
)
_LONGEST = 60
"""Characters of the name of a quality; a longer one is a sentence that mentions it."""
_OTHER_QUALITIES = _words(
    r"Δ|delta|differ|\bdrop|degrad|improve|\bgain|\b(?:in|de)crease|\brelative|\bratio\b|"
    r"\bgap\b|\bvs\b|versus|compared|\bchange|reduc|retain|retention|recover|#|\bnumber of\b|\bcounts?\b|"
    r"\bevaluations?\b|\b(?:acc|accuracy|f1|bleu|map|top[- ]?[15])[- ]loss\b|\bloss of\b|\blost\b|"
    r"\b(?:epochs|steps|iterations) to\b|\btarget\b|^% of\b|\bpackets?\b|"
    r"\b(?:expected|predicted|estimated)\b|\b(?:loss|accuracy|f1) weight\b|\brequired\b|"
    r"\bloss[- ](?:scal|func|type\b|coef)|\branks?\b(?![- ]?\d)|\b(?:accuracy|quality|error) (?:range|margin)\b|"
    r"^(?:min|max)(?:imum)? (?:\w+ )?(?:acc|accuracy|top|f1|bleu|map|auc|error|loss|perplexity|wer)\b|"
    rf"{_SET}|{_DEVIATION}"
)
"""Headings of what is not the quality itself: a difference, a share of another one, a spread, a limit, a count."""
_SCALED = _words(
    r"[×x*] ?10\b|10\^|10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]|[×*] ?\d{3}|\blog\b(?![ -]loss)|normali[sz]ed|\brelative (?:time|latency)"
)
"""Headings of figures that are not in the unit that is given."""
_TRAINED = _words(r"\btrain(?:ing)?\b")
_OF_ANOTHER = _words(r"\b(?:baseline|teacher|reference|original|paper|reported|published|before)\b(?! data)")
"""Headings of a quality that another system had, or this one elsewhere, where a second column has the row's own."""
_COST = _words(r"\b(?:cost|price)\b|\$|\busd\b")
_SETTINGS = _words(
    r"\W*(?:command[- ]line |environment |config(?:uration)? |hyper-?)?"
    r"(?:options?|param(?:eter)?s?|arg(?:ument)?s?|flags?|settings?|variables?|keys?|columns?|fields?|properties|property)\W*"
)
_CURVE = _words(r"\W*(?:epoch|step|iteration|phase|stage)\W*")
"""The heading of the names in a table of settings, whose times nobody has measured, or in a curve of one system."""
_KINDS = _words(
    r"(?:u?int(?:eger)?|float|double|number|str(?:ing)?|bool(?:ean)?|duration|seconds|enum|list|path|any)s?"
)
"""What a setting may be, below ``Type``."""
_OF_TIME = _words(r"(?:\d+ )?(?:second|minute|hour|day|week|month|year)s?")
"""The name of a unit of time, whose length nobody has measured."""
_OFFERS, _OFFERED = (
    _words(r"(?:\w+ )?(?:plans?|tiers?|packages?|subscriptions?|editions?)"),
    _words(r"price|cost|\$|up-?time"),
)
"""The heading of the names of what somebody sells, and of what is said of these."""
_ALLOWED = _words(
    r"time-?outs?\b|\b(?:quotas?|delays?|period|retention|uptime)\b|\b(?:ramp|warm)[- ]?(?:up|down)$|"
    rf"\b(?:test|clip|audio|video|recording|frame|chunk|window) (?:length|duration)\b|{_SET}"
)
"""The name of a row of times that are set, not measured."""
_AVERAGED = _words(r"(?:average|avg\.?|mean|median|(?:geo|geometric) ?mean)\W*")
_SUMMED = _words(
    rf"(?:total|sum|overall|n|st(?:an)?d(?:ard)?\.? ?(?:dev(?:iation)?|err(?:or)?)?|variance)\W*|{_AVERAGED.pattern}"
)
"""The name of a row that sums up others."""
_DEFAULT = _words(r"defaults?(?: values?)?")
_RATIO = _words(r"(?<!linear )speed[- ]?up|\bfaster\b|^(?:relative )?speed$")
_RUNS = _words(r"^(?:(?-i:n)|(?:# |n |num |number of |no\. of )?(?:runs|seeds|repeats|repetitions))$")
_INTERVAL = _words(
    rf"(?:9\d(?:\.\d+)? ?% ?)?(?:ci|confidence intervals?|interval)(?: ?9\d ?%)?(?:\s*[(\[]\s*(?:{_UNIT}|%)\s*[)\]])?"
)
_BOUNDS = re.compile(rf"[(\[]?\s*(?P<low>{_NUMBER})\s*(?:,|–|-|to)\s*(?P<high>{_NUMBER})\s*[)\]]?\s*(?:{_UNIT}|%)?")
"""The heading of a column of intervals, and a cell of it."""
_SPREAD = re.compile(r"±|\+/-|\[\s*\d")
"""What stands beside a figure of several runs; without it, ``n`` may be the size of a problem."""
_OF_RUNS = _words(
    r"\b(?:of|over) (?P<of>[1-9]\d{0,5}) (?:runs|seeds|repeats|repetitions)\b|\bn ?= ?(?P<n>[1-9]\d{0,5})\b"
)
_HARDWARE = _words(
    r"^(?!.*\b(?:memory|ram|vram|cost|price|power|util|usage|hours?|burden)).*"
    r"\b(?:hardware|machine|system|device|gpus?|accelerator|instance)\b"
)
_NAMES = {
    "hardware.description": _HARDWARE,
    "framework": _words(r"\bframework\b"),
    "data.name": _words(r"^(?:data ?set|data|task)$"),
}
"""The fields that are names, and the headings of these."""
_AMOUNT = re.compile(r"[~≈]?\s*[\d.,]+ ?(?:[kKMGT]i?B?|B|k?W|[GM]?Hz|%)")
_OF_MODEL = _words(r"model|\bname\b|network|method|config")
_IDENTIFIER, _NAMED = (
    _words(r"(?:run |experiment )?(?:id|uuid)"),
    _words(r"(?:run |model |tags\.mlflow\.run)?name|model"),
)
_NOTHING = _words(
    r"\W*(?:(?:n/?a|none|unknown|same(?: as above)?|ditto|idem|tb[ad]|various|yes|no|"
    r"[\d.,]+ ?(?:[kMGT]i?B|k?W|[GM]Hz))\W*)?"
)
"""What a cell of words says that names nothing, or an amount."""
_REPORTED = tuple(
    (_words(rf"(?<!to )(?<!to the )\b{words}\b"), reported)
    for words, reported in (("median", "median"), ("(?:mean|average)", "mean"), ("(?:best|fastest)", "best"))
)


_NO_FIGURES = (_OTHER_TIMES, _QUALITY, _RATIO, _COST, _RECORDED, _OF_INPUT)
_NO_SYSTEM = _words(
    "|".join(rf"(?:{each.pattern})" for each in (_TIMES, _END, _SAYS_RATE))
    + r"|\b(?:mean|median|average|avg|peak|jitter|total|sum|tokens?|ttft|tpot|itl|tottime|cumtime)\b"
)
"""What a heading says that is no time or rate of one of several systems, and what is no name of one."""
_OF_HEADING = ("quality.metric", "quality.target", "time_of", "reported")
"""Fields that a heading states, and not the cell below it."""


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
        summed = _AVERAGED if table.crossed else _SUMMED
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
                    quoted[f"{path}.{field_name}"] = table.header[at] if field_name in _OF_HEADING else row[at]
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
        if _SIZE.fullmatch(table.header[at].text):
            cells = [f"{table.header[at].text} {cell}" if cell else "" for cell in cells]
        words = [cell for cell in cells if _is_words(cell) and len(cell) <= _LONGEST]
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
        if _INTERVAL.fullmatch(words_of(head.text)) and (match := _BOUNDS.fullmatch(cell.text))
    ]
    if len(given) != 1 or len(found) != 1 or "interval" in side or "low" in side.get("quality", {}):
        return
    (name, figure), (cell, match) = given[0], found[0]
    shown = _VALUE.match(figure.text)
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
    bounded = any(_LIMIT.search(head.text) for head in table.header)
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
    turned = _TIMES.search(name) is not None or _ALLOWED.search(name) is not None
    for at, (head, cell) in enumerate(zip(table.header, row, strict=False)):
        if at == named or not cell.text or (turned and not _TIMES.search(head.text)):
            continue
        text = with_points(cell.text, table.commas)
        said = f"{head.text} [{head.unit}]" if head.unit else head.text
        fields = () if text is None else _fields_of(said, text)
        figure = fields[0][0] if fields else ""
        # A row of prices is none of what runs cost.
        costs = _COST.search(name) and not _COST.search(head.text)
        priced = figure == "cost_usd" and (costs or _PER.search(name) or _PRICE.search(name))
        if fields and not priced and not _is_recorded(table, named, head.text, figure):
            yield at, fields


def _is_recorded(table: PublishedTable, named: int, head: str, figure: str) -> bool:
    """Whether a rate or length is that of the recordings that the rows name, and nothing of a system stands beside."""
    recorded, length = _RECORDED.search(table.header[named].text), _LENGTH.fullmatch(words_of(head))
    if recorded is None or not (figure == "throughput" or (figure == "time_s" and length)):
        return False
    others = [words_of(each.text) for at, each in enumerate(table.header) if at != named]
    if figure == "time_s" and (recorded["data"] is None or any(map(_OF_SPEECH.search, others))):
        return True
    quality = recorded["data"] and any(map(_QUALITY.search, others)) and "hours" not in head.lower()
    return not quality and not any(map(_OF_MODEL.search, others))


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
        by_rows = any(_TIMES.search(row[named].text) for row in table.rows if named < len(row))
        if set(columns) <= set(timed) and (columns or not by_rows):
            # Where one of them cannot be read, the others are no less of several systems or parts.
            columns |= dict.fromkeys(set(timed) - set(columns), False)
        meant = [at for at, is_target in columns.items() if is_target] or _central(table, list(columns))
        if len(columns) > 1:
            apart = sorted(columns if len(meant) != 1 else set(columns) - set(meant))
            unclear |= {(at, figure) for at in apart}
            heads = ", ".join(json.dumps(table.header[at].text, ensure_ascii=False) for at in apart)
            said.append(f"{heads}, as several columns have {what}")
    if not any(_SPREAD.search(cell.text) for row in table.rows for cell in row):
        sizes = [at for at, head in enumerate(table.header) if head.text == "n"]
        unclear |= {(at, "runs_made") for at in sizes}
        said += ['"n", which may be a size'] if sizes else []
    qualities = {
        at for row in table.rows for at, fields in _stated(table, named, row) if fields[0][0] == "quality.metric"
    }
    for words, why in ((_TRAINED, "not of the training data"), (_OF_ANOTHER, "of the row itself")):
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
    centres = [word for word, kind in _REPORTED if kind != "best"]
    found = [at for at, head in heads.items() if any(word.search(head) for word in centres)]
    if not all(_END.search(head) for at, head in heads.items() if at not in found):
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
        names = [cell for cell in cells if _OF_MODEL.search(head.text) or not _AMOUNT.fullmatch(cell)]
        if cells and sum(map(_is_words, names)) * 2 > len(cells):
            found.append(at)
    heads = [words_of(each.text) for each in table.header]
    if found and _IDENTIFIER.fullmatch(heads[found[0]]):
        found.sort(key=lambda at: _NAMED.fullmatch(heads[at]) is None)
    return found[0] if found else 0


def _is_words(text: str) -> bool:
    figure = _VALUE.fullmatch(text) is not None or _seconds_of(text) is not None or _is_rate(text)
    return not figure and any(each.isalpha() for each in text)


def _is_rate(text: str) -> bool:
    """Whether it is a number with a unit of rates, such as ``938 img/s``."""
    rate = _RATE.fullmatch(text)
    return rate is not None and _RATE_OF.fullmatch(rate["unit"] or "") is not None


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
    text = _ASIDE.sub("", _EMOJI.sub("", text).strip())
    match, written, head = _VALUE.fullmatch(text), head, words_of(head)
    of_time = _TIMES.search(head) and not _OTHER_TIMES.search(head) and not _RATES.search(written)
    if _SCALED.search(head):
        return
    other = _OTHER_TIMES.search(head) or _OTHER_QUALITIES.search(head)
    if not other and (_RATE_OF.search(head) or _SAYS_RATE.search(head)) and (rate := _RATE.fullmatch(text)):
        if (per_s := _per_second(head, rate)) is not None:
            yield "throughput", per_s
        if _RATE_OF.search(head) or _RATE_OF.fullmatch(rate["unit"] or ""):
            return
    if _CLOCK.fullmatch(text) and _OF_DAY.search(head):
        return
    if match is None and of_time and (several_s := _seconds_of(text)) is not None:
        yield from _time(head, several_s, (math.nan, math.nan))
        return
    if match is None:
        if not _NOTHING.fullmatch(text):
            # A system is a database as often as a machine.
            unsure = {"hardware.description"} if head.lower().rstrip("s") == "system" and not lookup(text) else set()
            yield from ((name, text) for name, words in _NAMES.items() if name not in unsure and words.search(head))
        return
    value, own = _number(match["value"]), match["unit"] or match["after"] or ""
    # With a sign it is a change, except a loss, which may be below 0.
    if not math.isfinite(value) or text.startswith("+") or (value < 0 and "loss" not in head.lower()):
        return
    unit = own or _unit_of(written)
    if _RUNS.match(head.strip()) and not unit and value.is_integer() and value > 0:
        yield "runs_made", int(value)
    elif head.lower() == "year" and re.fullmatch(r"(?:19|20)\d\d", text):
        yield "year", int(text)
    elif unit in ("x", "×", "") and _RATIO.search(head):
        if not _OTHER_TIMES.search(head):
            yield "ratio", value
    elif text.startswith("$") or (_COST.search(head) and unit.lower() in ("$", "usd")):
        if not any(words.search(head) for words in (_PER, _PRICE, _OTHER_TIMES)):
            yield "cost_usd", value
    elif _OTHER_QUALITIES.search(head) and _QUALITY.search(head):
        return
    elif _QUALITY.search(head) and not _TIMES.search(head) and len(head) <= _LONGEST and own not in _UNITS:
        scale = 0.01 if unit == "%" else 1.0
        yield "quality.metric", written
        yield "quality.value", _scaled(value, scale)
        low, high = _ends(head, match, scale)
        if low <= high:
            yield "quality.low", low
            yield "quality.high", high
    elif _OTHER_TIMES.search(head) or _RATES.search(written):
        return
    elif unit.lower() in _UNITS and (of_time or (own in _UNITS and _says_timed(head, own))):
        unit_s = _UNITS[unit.lower()]
        yield from _time(head, _scaled(value, unit_s), _ends(head, match, unit_s))


def _says_timed(head: str, unit: str) -> bool:
    """Whether a figure with its unit below a heading without a word of time is how long something took.

    Programs take milliseconds; of longer times, the heading must say what took them: others are ages and lengths.
    """
    return not _OF_INPUT.search(head) and (_UNITS[unit] < 1 or _TIMED.search(head) is not None)


def _per_second(head: str, rate: re.Match[str]) -> float | None:
    """A rate with the thousands and the unit of its cell and of its heading; ``None`` unless they agree on one unit."""
    above, beside = _RATE_OF.search(head), _RATE_OF.fullmatch(rate["unit"] or "")
    if (rate["unit"] and beside is None) or not (above or beside) or _is_of_part(head, above):
        return None
    units = [each for each in (above, beside) if each is not None]
    kilo = [each for each in (rate["kilo"], *(one["kilo"] or one["thousand"] for one in units)) if each]
    # Bytes per second are of a machine or a cable unless something says that they are a speed.
    of_machine = _OF_MACHINE.search(head) or (any(each["bytes"] for each in units) and not _SAYS_RATE.search(head))
    if len(kilo) > 1 or of_machine:
        return None
    value = _scaled(_number(rate["value"]), _KILO["".join(kilo)])
    return value if 0 < value < math.inf else None


def _is_of_part(head: str, unit: re.Match[str] | None) -> bool:
    """Whether a heading of rates says that a figure is to be multiplied, by a factor or by the parts of a side."""
    rest = head if unit is None else f"{head[: unit.start()]} {head[unit.end() :]}"
    return any(each.search(head) for each in (_FACTOR, _PART_OF_RATE)) or _LETTER.search(rest) is not None


def _unit_of(head: str) -> str:
    """The unit in a heading, or that it is; none where it names several."""
    if _TIMES.search(head) and head.strip().lower() in _UNITS:
        return head.strip().lower()
    units = {
        (match["unit"] or match["last"] or match["named"] or match["first"] or "%").lower()
        for match in _IN_HEADING.finditer(words_of(head.replace("_", ", ")))
    }
    return units.pop() if len(units) == 1 else ""


def _seconds_of(text: str) -> float | None:
    """A time of several units, each smaller than the one before; ``None`` for anything else."""
    if clock := _CLOCK.fullmatch(text):
        return 3600.0 * int(clock["h"]) + 60.0 * int(clock["min"]) + float(clock["s"])
    if not _PARTS.fullmatch(text):
        return None
    parts = [
        (float(each["value"]), 60.0 if each["unit"] == "m" else _UNITS[each["unit"]]) for each in _PART.finditer(text)
    ]
    sizes = [unit_s for _, unit_s in parts]
    falling = all(before > after for before, after in pairwise(sizes))
    return float(f"{sum(value * unit_s for value, unit_s in parts):.12g}") if falling else None


def _time(head: str, value_s: float, ends_s: tuple[float, float]) -> Iterator[tuple[str, Any]]:
    yield "time_s", value_s
    low, high = ends_s
    if low <= high:
        yield "interval", [low, high]
    for kind, words in _TIME_OF:
        if words.search(head):
            yield "time_of", kind
            if kind == "target" and (share := _TARGET.search(head)):
                yield "quality.target", _scaled(float(share["percent"]), 0.01)
            break
    for word, reported in _REPORTED:
        if word.search(head):
            yield "reported", reported
            break
    if runs := _OF_RUNS.search(head):
        yield "runs_made", int(runs["of"] or runs["n"])


def _ends(head: str, match: re.Match[str], scale: float) -> tuple[float, float]:
    """The interval beside a number; not a number where there is none, or where it may be something else."""
    if _NO_INTERVAL.search(head) or (match["unit"] and match["after"] and match["unit"] != match["after"]):
        return math.nan, math.nan
    low, high = (math.nan if match[end] is None else _scaled(_number(match[end]), scale) for end in ("low", "high"))
    return low, high


def _scaled(value: float, scale: float) -> float:
    """Without the digits that only a product in binary has."""
    return float(f"{value * scale:.12g}")


def _number(text: str) -> float:
    return float(text.replace(",", ""))
