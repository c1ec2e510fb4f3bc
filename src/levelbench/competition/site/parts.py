"""What the site's pages share: frame, badges, lists, tables, links, drawings, style sheet and scripts.

``fill`` puts values into one of our templates and escapes each that is not :class:`Html`, in text and attributes alike,
so that nothing in an entry becomes markup by oversight. Shared files are named after their content, so a page never
loads a script of another version.

Drawings are SVG: axes, curves of runs, the record's progress, phases, an interval's bar. They have classes instead of
colours and styles, since the page's policy forbids inline styles; the style sheet defines the colours for light and
dark. A point with a target is a link with a title, for keyboards and screen readers.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from functools import cache
from html import escape
from importlib.resources import files
from typing import LiteralString

from levelbench.competition.entries import day_of
from levelbench.competition.site import EntryPayload, OriginFacts, RulesetFacts, brief, safe_url, time_text
from levelbench.records.schema import Target
from levelbench.report.markup import DARK, DASHES, LIGHT, PHASES, SERIES, Html, style_sheet, variables
from levelbench.report.numbers import ABSENT, ENERGY, TIME, choose_unit, number, plural
from levelbench.report.tables import clean

_SCRIPTS = ("dom.js", "ranking.js", "data.js", "view.js", "table.js", "controls.js", "curves.js", "main.js")


@cache
def _named() -> dict[str, tuple[str, bytes]]:
    """The published name and the content of each file, by its own name."""
    folder = files("levelbench.competition.site") / "assets"
    own = (folder / "board.css").read_text("utf-8")
    # The two schemes again, for users who chose one that differs from their system's; never on paper.
    chosen = "".join(
        f":root[data-theme={name}]{{color-scheme:{name};{variables(base, which)}}}"
        for name, base, which in (("light", LIGHT, 0), ("dark", DARK, 1))
    )
    # A class for each series and phase: the page's policy forbids style attributes.
    series = "".join(f".s{at}{{stroke:var(--series-{at})}}" for at in range(len(SERIES)))
    series += "".join(f".p-{name}{{fill:var(--phase-{name})}}" for name in PHASES)
    contents = {
        "board.css": f"{style_sheet()}\n@media screen{{{chosen}}}\n{series}\n{own}".encode(),
        "board.js": b"".join((folder / name).read_bytes() for name in _SCRIPTS),
        "search.js": b"".join((folder / name).read_bytes() for name in ("dom.js", "search.js")),
        "theme.js": (folder / "theme.js").read_bytes(),
        "icon.svg": (folder / "icon.svg").read_bytes(),
    }
    named = {}
    for name, content in contents.items():
        stem, _, ending = name.partition(".")
        named[name] = (f"{stem}-{hashlib.sha256(content).hexdigest()[:10]}.{ending}", content)
    return named


def assets() -> dict[str, bytes]:
    """The files of ``assets/`` by their published names."""
    return dict(_named().values())


def asset(name: str) -> str:
    """The path of a file, relative to the site's root: ``board.js`` is in ``assets/board-3f2a91c45e.js``."""
    return f"assets/{_named()[name][0]}"


TITLES = {
    "time": "Time to accuracy",
    "cost": "Cost of training",
    "samples": "Samples to the target",
    "steps": "Steps to the target",
    "energy": "Energy of training",
    "latency": "Latency",
    "throughput": "Throughput",
    "inference_cost": "Cost of a million answers",
}
_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'"
_METRICS = {"top1": "top-1 accuracy", "top5": "top-5 accuracy", "f1": "F1", "bleu": "BLEU"}
_NONE = Html("")
_MOST_SHOWN = 4000
_SPECIAL = re.compile(r"""[^ !#-%(-;=?-~]""")
_INSIDE = re.compile(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_./-]*\.(html|json|csv|md|xml|js)")


def escaped(value: str) -> str:
    """``value`` for text or a quoted attribute; plain ASCII, nearly always, needs only one scan."""
    if value.__class__ is Html or _SPECIAL.search(value) is None:
        return value
    return escape(value if value.isprintable() else clean(value))


def fill(template: LiteralString, /, **values: str) -> Html:
    """``template`` with ``{name}`` replaced by each value, escaped unless it is :class:`Html`.

    >>> fill('<a title="{why}">{what}</a>', why='"', what="<b>")
    '<a title="&quot;">&lt;b&gt;</a>'
    """
    for name, value in values.items():
        if value.__class__ is not Html and _SPECIAL.search(value) is not None:
            values[name] = escaped(value)
    return Html(template.format_map(values))


@cache
def _templates() -> dict[str, LiteralString]:
    """The templates in ``assets/pages.html`` by name: lines are joined, and an empty line stands for a line break."""
    text = (files("levelbench.competition.site") / "assets" / "pages.html").read_text("utf-8")
    parts = (part.partition(" -->\n") for part in text.split("<!-- ")[1:])
    return {name: "".join(line or "\n" for line in body.split("\n")[:-1]) for name, _, body in parts}


def render(name: str, /, **values: str) -> Html:
    """The template ``name`` of ``assets/pages.html``, filled."""
    return fill(_templates()[name], **values)


def many(parts: Iterable[str]) -> Html:
    """The parts joined, escaped unless they are :class:`Html`."""
    return Html("".join(map(escaped, parts)))


def root_of(name: str) -> str:
    """The relative path from a page back to the site's root: ``""``, ``"../"``, ..."""
    return "../" * name.count("/")


def page(title: str, kind: str, name: str, main: Html, *, site: str, back: Html = _NONE, scripts: Html = _NONE) -> str:
    """A whole page: ``name`` is its path relative to the root; ``back`` are the links at the top besides home."""
    return render("page",
        root=root_of(name), kind=kind, policy=_POLICY, title=title, site=site, back=back, main=main, scripts=scripts,
        icon=asset("icon.svg"), style=asset("board.css"), theme=asset("theme.js"),
    )  # fmt: skip


def inside(root: str, name: str, text: str) -> Html:
    """A link to a file of the site; only the text if the name could lead out of it."""
    if not _INSIDE.fullmatch(name):
        return many([text])
    return fill('<a href="{root}{name}">{text}</a>', root=root, name=name, text=text)


def outside(address: str, text: str = "") -> Html:
    """A link to another site if the address is safe (``safe_url``); otherwise the address as text."""
    if safe_url(address) is None:
        return many([address[:_MOST_SHOWN]])
    return fill('<a href="{url}" rel="noopener nofollow noreferrer">{text}</a>', url=address, text=text or address)


def section(title: str, *parts: Html, identity: str = "") -> Html:
    """A section with its heading; empty without content."""
    content = many(parts)
    if not content:
        return Html("")
    where = f' id="{escaped(identity)}"' if identity else ""
    return Html(f"<section{where}><h2>{escaped(title)}</h2>{content}</section>\n")


def facts(pairs: Iterable[tuple[str, str | None]]) -> Html:
    """A list of names and values without those that are not stated; empty if none is."""
    rows = [f"<div><dt>{escaped(name)}</dt><dd>{escaped(value)}</dd></div>" for name, value in pairs if value]
    return Html(f'<dl class="facts">{"".join(rows)}</dl>') if rows else _NONE


def table(caption: str, heads: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]], most: int = 200) -> Html:
    """A plain table in a scrolling box; ``heads`` are titles with a class (``n``: numbers, ``t``: short text).

    The first cell of each row is its heading. At most ``most`` rows are shown; a note gives the total.
    """
    if not rows:
        return Html("")
    head = "".join(f'<th scope="col" class="{escaped(kind)}">{escaped(text)}</th>' for text, kind in heads)
    first, *rest = (escaped(kind).replace("{", "{{").replace("}", "}}") for _, kind in heads)
    cells = "".join(f'<td class="{kind}">{{}}</td>' for kind in rest)
    row = f'<tr><th scope="row" class="{first}">{{}}</th>{cells}</tr>'.format
    body = "".join(row(*map(escaped, texts)) for texts in rows[:most])
    note = Html(f'<p class="note">The first {most} of {len(rows):,} rows.</p>') if len(rows) > most else _NONE
    return fill(
        '<div class="scroll" role="region" tabindex="0" aria-label="{caption}"><table><caption class="hidden">{caption}'
        "</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{note}",
        caption=caption, head=Html(head), body=Html(body), note=note,
    )  # fmt: skip


def origin_words(origin: OriginFacts) -> str:
    """The format that an entry was read from, and its number of doubts."""
    return origin.format + (f", {plural(len(origin.doubts), 'doubt')}" if origin.doubts else "")


def badges(entry: EntryPayload, *, always: bool = False) -> Html:
    """What a reader should know about an entry before its figures; with ``always`` also that it is not signed."""
    found: list[tuple[str, str]] = []
    errors, warnings = entry.findings.errors, entry.findings.warnings
    if errors:
        found.append(("bad", plural(errors, "error")))
    if entry.signed != "unsigned" or entry.machine or always:
        kind = {"signed": "good", "wrong": "bad", "unsigned": "plain"}[entry.signed]
        found.append((kind, "wrong signature" if entry.signed == "wrong" else entry.signed))
    if entry.machine:
        found.append(("plain", f"machine {entry.machine}"))
    if entry.rerun:
        ended = {"re-run: consistent": "good", "re-run: inconsistent": "bad"}
        found.append((f"{ended.get(entry.rerun.partition(',')[0], 'open')} long", entry.rerun))
    if entry.private and always:
        found.append(("plain long", entry.private))
    if entry.single_run:
        found.append(("open", "single run"))
    if warnings:
        found.append(("open", plural(warnings, "warning")))
    if entry.lint:
        found.append(("plain", f"lint: {entry.lint}"))
    if entry.origin is not None:
        found.append(("plain", origin_words(entry.origin)))
    items = "".join(f'<li class="badge {escaped(kind)}">{escaped(text)}</li>' for kind, text in found)
    return Html(f'<ul class="badges">{items}</ul>') if items else _NONE


def quality_text(value: float, target: Target) -> str:
    """A quality on its own scale; as per cent if it is an accuracy from 0 to 1.

    >>> quality_text(0.94, Target("top1", 0.94)), quality_text(0.75, Target("f1", 0.75))
    ('94 %', '0.75')
    """
    accuracy = any(each in target.metric.lower() for each in ("acc", "top"))
    share = target.low == 0.0 and target.high == 1.0 and accuracy
    return f"{100 * value:.4g} %" if share else f"{value:.4g}"


def target_text(target: Target, unit: str = "") -> str:
    """The target in words: metric (or what the rules call it, its ``unit``), bound and split."""
    bound = "at least" if target.direction == "higher" else "at most"
    metric = unit or _METRICS.get(target.metric.lower(), target.metric)
    return f"{metric} {bound} {quality_text(target.threshold, target)} on the {target.split} split"


def rules(ruleset: RulesetFacts, further: Iterable[tuple[str, str]] = ()) -> Html:
    """The rules of a board as facts, then ``further`` ones."""
    crossing = {
        "first": "the first evaluation at or beyond the target",
        "confirmed": "two evaluations in a row at or beyond the target",
        "sustained": "the evaluation from which on all are at or beyond the target",
        "final": "the last evaluation",
    }
    return facts(
        [
            ("Rules", f"{ruleset.name} {ruleset.version} ({ruleset.id}), of {ruleset.date or ABSENT}"),
            ("Source", outside(ruleset.source)),
            ("Training is ranked by", ruleset.ranked_by if ruleset.ranked_by != "time" else None),
            ("Machine", ruleset.machine),
            ("Deadline", ruleset.deadline),
            ("Frozen on", ruleset.frozen),
            ("Clock", ruleset.clock),
            ("Target counts as reached at", crossing.get(ruleset.crossing, ruleset.crossing)),
            ("Runs become one figure by", ruleset.aggregation),
            ("Runs an entry of training needs", str(ruleset.runs)),
            *further,
        ]
    )


WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 104, 16, 14, 40
OF_TIME = frozenset({"time", "latency"})
"""The columns in seconds."""
_WIDE = 12.0
"""A range this wide always contains three of 1, 2 and 5 times powers of ten."""

_LONG = [3.6 * 10.0**power for power in range(5, 12)]
_SHORT = [10.0**power for power in range(-9, 0)]
_TIMES = {
    "coarse": [*_SHORT[::3], 1, 60, 3600, *_LONG],
    "middle": [*_SHORT, 1, 10, 60, 600, 3600, 36000, *_LONG],
    "fine": [
        *(factor * value for value in _SHORT for factor in (1, 2, 5)),
        *(1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 18000, 36000),
        *_LONG,
    ],
}

Scale = Callable[[float], float]


def log_scale(low: float, high: float, start: float, end: float) -> Scale:
    """A logarithmic map of ``low``..``high`` to ``start``..``end``, clamped; the middle if both are equal."""
    width = math.log(high) - math.log(low)
    if not width > 0:
        return lambda _: (start + end) / 2
    return lambda value: start + (end - start) * (math.log(min(max(value, low), high)) - math.log(low)) / width


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round values from ``low`` to ``high``, 1, 2 or 5 times a power of ten apart, in at most ``most`` steps."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-12))
    first = math.ceil(low / step - 1e-9)
    return [at * step for at in range(first, math.floor(high / step + 1e-9) + 1)]


def time_ticks(low: float, high: float) -> list[float]:
    """Times in customary units, from the coarsest set with three of them in range."""
    for name in ("coarse", "middle", "fine"):
        found = [value for value in _TIMES[name] if low <= value <= high]
        if len(found) > 2:
            return found
    return log_ticks(low, high)


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten; only powers, or every few of them, if the range is wide."""
    decades = math.log10(high / low)
    every = max(1, math.ceil(decades / 7))
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if decades < 2.2 else (1,)
    found = [factor * 10.0**power for power in powers if power % every == 0 for factor in factors]
    inside = [value for value in found if low <= value <= high]
    return inside if len(inside) > 1 else [low, high]


def widened(low: float, high: float) -> tuple[float, float]:
    """The range, widened around its logarithmic middle so that round values lie in it."""
    if high / low >= _WIDE:
        return low, high
    middle = math.sqrt(low) * math.sqrt(high)
    return middle / math.sqrt(_WIDE), middle * math.sqrt(_WIDE)


def vertical(x: float, text: str, anchor: str = "middle") -> Html:
    """A thin line at ``x`` with its value below."""
    at = f"{x:.1f}"
    return Html(_VERTICAL.format(at, at, at, anchor, escaped(text)))


_VERTICAL = (
    f'<line class="grid" x1="{{}}" x2="{{}}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
    f'<text x="{{}}" y="{HEIGHT - BOTTOM + 17}" text-anchor="{{}}">{{}}</text>'
)
_HORIZONTAL = (
    f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{{}}" y2="{{}}"/>'
    f'<text x="{LEFT - 7}" y="{{}}" text-anchor="end">{{}}</text>'
)


def horizontal(y: float, text: str) -> Html:
    """A thin line at ``y`` with its value next to it."""
    at = f"{y:.1f}"
    return Html(_HORIZONTAL.format(at, at, f"{y + 4:.1f}", escaped(text)))


def axis_text(value: float, column: str) -> str:
    """A round value of a column's axis."""
    if column in OF_TIME:
        # In the largest unit that is not larger than the time.
        unit = next((unit for unit in reversed(TIME) if value >= unit.size * (1 - 1e-9)), TIME[0])
        return f"{value / unit.size:g} {unit.symbol}"
    # Round values have one digit before their zeros.
    if column == "energy":
        unit = choose_unit([value], ENERGY)
        return f"{value / unit.size:g} {unit.symbol}"
    text = brief(value, 1)
    return text if column in ("samples", "steps") else f"{text}/s" if column == "throughput" else f"${text}"


def years(begin: int, end: int) -> list[tuple[int, str]]:
    """First days of years, or of months in less than two years, at most eight.

    If there are fewer than two, the first and the last day themselves.
    """
    first, last = date.fromordinal(begin), date.fromordinal(end)
    found = []
    if end - begin > 700:
        step = max(1, math.ceil((last.year - first.year) / 8))
        found = [(date(year, 1, 1).toordinal(), str(year)) for year in range(first.year + 1, last.year + 1, step)]
    else:
        months = (last.year - first.year) * 12 + last.month - first.month
        for at in range(0, months + 1, max(1, math.ceil(months / 6))):
            year, month = divmod(first.year * 12 + first.month - 1 + at, 12)
            day = date(year, month + 1, 1).toordinal() if 1 <= year <= 9999 else 0
            if begin <= day <= end:
                found.append((day, f"{year}-{month + 1:02d}"))
    if len(found) > 1:
        return found
    return [(day, date.fromordinal(day).isoformat()) for day in dict.fromkeys((begin, end))]


_MOST_POINTS = 200
_MOST_RUNS = 24
# No measurement is outside; an axis there would have no round values to mark.
_LEAST, _MOST = 1e-12, 1e15

_SMALL, _LARGE = 1e-18, 1e21
"""All figures from possible prices, times and rates are between these."""

_DAY_WIDTH = 110
"""The width of a day's label on a phone, where it is largest."""

Record = tuple[str, float, str, str, str]
"""One record: ISO date, value, its text, model and author, and the page it links to."""


def interval_bar(value: float, low: float | None, high: float | None, scale: Scale) -> Html:
    """A row's value and interval on the axis that all rows share (100 wide); a hollow point has no interval."""
    reach, kind = Html(""), "point alone"
    if low is not None and high is not None and low > 0:
        kind = "point"
        reach = Html(f'<line class="range" x1="{scale(low):.1f}" x2="{scale(high):.1f}" y1="6" y2="6"/>')
    return render("interval-bar", reach=reach, kind=kind, at=f"{scale(value):.1f}")


def curve_drawing(runs: Sequence[tuple[str, Sequence[float], Sequence[float]]], target: Target) -> Html:
    """Quality over time of each run (title, seconds, qualities), with the target; empty without points."""
    known = []
    for title, times, qualities in runs:
        points = [(x, y) for x, y in zip(times, qualities, strict=False) if math.isfinite(x) and math.isfinite(y)]
        if points:
            known.append((title, points))
    end = max((x for _, points in known for x, _ in points), default=0.0)
    reached = [y for _, points in known for _, y in points] or [target.threshold]
    least, most = min(reached), max(reached)
    low, high = _quality_range(least, most, target)
    if not (_LEAST < end < _MOST and _LEAST < high - low < _MOST):
        return Html("")
    unit = choose_unit([end], TIME)
    right, foot = WIDTH - RIGHT, HEIGHT - BOTTOM
    across, down = (right - LEFT) / end, (foot - TOP) / (high - low)

    def y(value: float) -> float:
        return foot - down * (value - low)

    lines = []
    for at, (title, points) in enumerate(known[:_MOST_RUNS]):
        step = -(-len(points) // _MOST_POINTS)
        kept = points if step == 1 else [*points[::step], points[-1]]
        way = "L".join([f"{LEFT + across * x:.1f} {y(quality):.1f}" for x, quality in kept])
        lines.append(
            fill(
                '<path class="line s{series}" d="M{way}" stroke-dasharray="{dashes}"><title>{title}</title></path>',
                series=str(at % len(SERIES)),
                way=way,
                dashes=_DASHED[at % len(DASHES)],
                title=title,
            )
        )
    frame = [vertical(LEFT + across * tick * unit.size, number(tick)) for tick in ticks(0, end / unit.size, 6)]
    frame += [horizontal(y(tick), quality_text(tick, target)) for tick in ticks(low, high, 5)]
    best = quality_text(least if target.direction == "lower" else most, target)
    return fill(
        _CURVES,
        metric=target.metric,
        ends=f"{plural(len(known), 'run')}; the best quality is {best}",
        frame=many(frame),
        at=f"{y(target.threshold):.1f}",
        above=f"{y(target.threshold) - 5:.1f}",
        target=quality_text(target.threshold, target),
        lines=many(lines),
        unit=unit.symbol,
    )


_CURVES = (
    f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" class="plot" role="img" aria-label="{{metric}} over time, {{ends}}">{{frame}}'
    f'<line class="target" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{{at}}" y2="{{at}}"/>'
    f'<text class="target" x="{LEFT + 6}" y="{{above}}">target {{target}}</text><clipPath id="plot">'
    f'<rect x="{LEFT}" y="{TOP}" width="{WIDTH - RIGHT - LEFT}" height="{HEIGHT - BOTTOM - TOP}"/></clipPath>'
    f'<g clip-path="url(#plot)">{{lines}}</g>'
    f'<text x="{(LEFT + WIDTH - RIGHT) // 2}" y="{HEIGHT - 6}" text-anchor="middle">time, {{unit}}</text></svg>'
)


_DASHED = [" ".join(f"{2 * length:g}" for length in lengths) or "none" for _, lengths in DASHES]


def _quality_range(least: float, most: float, target: Target) -> tuple[float, float]:
    """From the first values to the best, but close enough to the target to show how it is approached."""
    low, high = min(least, target.threshold), max(most, target.threshold)
    if target.direction == "lower":
        best = low if target.best is None else min(low, target.best)
        room = max(target.threshold - best, 0.05 * abs(target.threshold), 1e-9)
        high = min(high, target.threshold + 6 * room)
    else:
        room = max((high if target.high is None else target.high) - target.threshold, 1e-9)
        low = max(low, target.threshold - 6 * room)
    margin = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    return low - margin, high + margin


def progress_drawing(records: Sequence[Record], until: str, name: str) -> Html:
    """The record over the years: a step line on a logarithmic axis, each record a link with a title."""
    points = []
    for day, value, *words in records:
        known = day_of(day[:10])
        if known is not None and _SMALL < value < _LARGE:
            points.append((known.toordinal(), value, words))
    if not points:
        return Html("")
    today = day_of(until)
    last = max(points[-1][0], today.toordinal() if today is not None else 0)
    begin, end = points[0][0], max(last, points[0][0] + 30)
    values = [value for _, value, _ in points]
    low, high = widened(min(values) / 1.4, max(values) * 1.4)
    right, foot = WIDTH - RIGHT, HEIGHT - BOTTOM
    y = log_scale(low, high, foot, TOP)

    def x(when: float) -> float:
        return LEFT + 8 + (right - LEFT - 16) * (when - begin) / (end - begin)

    way = f"M{x(points[0][0]):.1f} {y(points[0][1]):.1f}"
    way += "".join(f"H{x(when):.1f}V{y(value):.1f}" for when, value, _ in points[1:])
    dots = []
    for when, value, (text, who, page) in points:
        day = date.fromordinal(when).isoformat()
        shape = fill(
            '<circle class="hit" cx="{x}" cy="{y}" r="11"/><circle class="dot" cx="{x}" cy="{y}" r="4.5"/>'
            "<title>{day}: {text}, {who}</title>",
            x=f"{x(when):.1f}",
            y=f"{y(value):.1f}",
            day=day,
            text=text,
            who=who,
        )
        label = f"{day}: {text}, {who}"
        dots.append(fill('<a href="{page}" aria-label="{label}">{shape}</a>', page=page, label=label, shape=shape))
    newest = points[-1]
    marks = time_ticks if name in OF_TIME else log_ticks
    far = x(newest[0]) > LEFT + 120
    frame = [horizontal(y(tick), axis_text(tick, name)) for tick in marks(low, high)]
    days = years(begin, last)
    # The labels of two close days would overlap.
    days = days if x(days[-1][0]) - x(days[0][0]) > 2 * _DAY_WIDTH else days[:1]
    # Keeps a day's label inside the box.
    frame += [vertical(x(day), text, "end" if x(day) + _DAY_WIDTH / 2 > WIDTH else "middle") for day, text in days]
    return render("progress-drawing",
        width=str(WIDTH), height=str(HEIGHT), first=points[0][2][0], best=newest[2][0], frame=many(frame), way=way,
        end=f"{x(last):.1f}", dots=many(dots), at=f"{x(newest[0]) + (-12 if far else 2):.1f}",
        label_y=f"{y(newest[1]) + (5 if far else -12):.1f}",
        anchor="end" if far else "start",
    )  # fmt: skip


def phases_drawing(phases_s: dict[str, float]) -> Html:
    """One stacked bar with its legend; phases unknown to the timeline are drawn as "other"."""
    phases_s = {name: seconds for name, seconds in phases_s.items() if seconds > 0}
    total = sum(phases_s.values())
    if not 0 < total < math.inf:
        return Html("")
    at, parts, keys = 0.0, [], []
    for name, seconds in sorted(phases_s.items(), key=lambda item: -item[1]):
        width, known = 640 * seconds / total, name if name in PHASES else "other"
        parts.append(
            fill(
                '<rect class="p-{kind}" x="{x}" y="0" width="{width}" height="22"><title>{name}: {text}</title></rect>',
                kind=known,
                x=f"{at:.2f}",
                width=f"{width:.2f}",
                name=name,
                text=time_text(seconds),
            )
        )
        keys.append(
            fill(
                '<li><svg viewBox="0 0 12 12" aria-hidden="true" focusable="false"><rect class="p-{kind}" width="12" '
                'height="12"/></svg>{name} {text} ({share} %)</li>',
                kind=known,
                name=name,
                text=time_text(seconds),
                share=f"{100 * seconds / total:.0f}",
            )
        )
        at += width
    return fill(
        '<svg viewBox="0 0 640 22" class="phases" aria-hidden="true" focusable="false">{parts}</svg>'
        '<ul class="legend">{keys}</ul>',
        parts=many(parts), keys=many(keys),
    )  # fmt: skip
