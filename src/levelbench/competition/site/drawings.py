"""The site's static figures as SVG: axes, curves of runs, the record's progress, phases, an interval's bar.

No colour and no style is written into a drawing, only classes, since the page's policy allows no inline style; the
style sheet knows the colours of light and dark. A point that leads somewhere is a link with a title, which keyboard and
screen reader reach.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import date

from levelbench.competition.entries import day_of
from levelbench.competition.site import brief, time_text
from levelbench.competition.site.parts import escaped, fill, many, quality_text, render
from levelbench.records.schema import Target
from levelbench.report.markup import DASHES, PHASES, SERIES, Html
from levelbench.report.numbers import TIME, choose_unit, number, plural

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 104, 16, 14, 40
OF_TIME = frozenset({"time", "latency"})
"""The columns in seconds."""
_WIDE = 12.0
"""Between values so many times apart there are always three of 1, 2 and 5 times powers of ten."""

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
    """From ``low``..``high`` to ``start``..``end`` by logarithms; held at the ends; the middle where both are one."""
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
    """Times people count in, from the coarsest set that has three of them inside."""
    for name in ("coarse", "middle", "fine"):
        found = [value for value in _TIMES[name] if low <= value <= high]
        if len(found) > 2:
            return found
    return log_ticks(low, high)


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten; powers alone, or every few of them, where the range is wide."""
    decades = math.log10(high / low)
    every = max(1, math.ceil(decades / 7))
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if decades < 2.2 else (1,)
    found = [factor * 10.0**power for power in powers if power % every == 0 for factor in factors]
    inside = [value for value in found if low <= value <= high]
    return inside if len(inside) > 1 else [low, high]


def widened(low: float, high: float) -> tuple[float, float]:
    """At least so wide a range around the middle of the two, by logarithms, that round values lie in it."""
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
    """A thin line at ``y`` with its value beside it."""
    at = f"{y:.1f}"
    return Html(_HORIZONTAL.format(at, at, f"{y + 4:.1f}", escaped(text)))


def axis_text(value: float, column: str) -> str:
    """A round value of a column's axis."""
    if column in OF_TIME:
        # A round time in the largest unit that it has one of.
        unit = next((unit for unit in reversed(TIME) if value >= unit.size * (1 - 1e-9)), TIME[0])
        return f"{value / unit.size:g} {unit.symbol}"
    # A round value has one digit before its zeros.
    text = brief(value, 1)
    return f"{text}/s" if column == "throughput" else f"${text}"


def years(begin: int, end: int) -> list[tuple[int, str]]:
    """First days of years, or of months where there are fewer than two years' worth, at most eight.

    Where no two are in between, the first and the last day themselves.
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
# Beyond these nobody measures; an axis of them would have no round values to mark.
_LEAST, _MOST = 1e-12, 1e15

_SMALL, _LARGE = 1e-18, 1e21
"""Within these is every figure that is made of possible prices, times and rates."""

_DAY_WIDTH = 110
"""How wide the words of a day are on a phone, where they are largest."""

Record = tuple[str, float, str, str, str]
"""One record: ISO date, value, its text, who and what, and the page it leads to."""


def interval_bar(value: float, low: float | None, high: float | None, scale: Scale) -> Html:
    """A row's value and its interval on the axis that all rows share (100 wide); a hollow point has no interval."""
    reach, kind = Html(""), "point alone"
    if low is not None and high is not None and low > 0:
        kind = "point"
        reach = Html(f'<line class="range" x1="{scale(low):.1f}" x2="{scale(high):.1f}" y1="6" y2="6"/>')
    return render("interval-bar", reach=reach, kind=kind, at=f"{scale(value):.1f}")


def curve_drawing(runs: Sequence[tuple[str, Sequence[float], Sequence[float]]], target: Target) -> Html:
    """Quality over time of each run (title, seconds, qualities), with the target; nothing where there is no point."""
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
    """From the first values to the best, but not so far from the target that the approach to it is lost."""
    low, high = min(least, target.threshold), max(most, target.threshold)
    if target.direction == "lower":
        room = max(target.threshold - min(low, target.low), 0.05 * abs(target.threshold), 1e-9)
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
    # Of two days that are close the words would lie over one another.
    days = days if x(days[-1][0]) - x(days[0][0]) > 2 * _DAY_WIDTH else days[:1]
    # So that a day's words stay in the box.
    frame += [vertical(x(day), text, "end" if x(day) + _DAY_WIDTH / 2 > WIDTH else "middle") for day, text in days]
    return render("progress-drawing",
        width=str(WIDTH), height=str(HEIGHT), first=points[0][2][0], best=newest[2][0], frame=many(frame), way=way,
        end=f"{x(last):.1f}", dots=many(dots), at=f"{x(newest[0]) + (-12 if far else 2):.1f}",
        beside=f"{y(newest[1]) + (5 if far else -12):.1f}",
        anchor="end" if far else "start",
    )  # fmt: skip


def phases_drawing(phases_s: dict[str, float]) -> Html:
    """One stacked bar with its legend; phases that the timeline does not know are drawn as "other"."""
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
