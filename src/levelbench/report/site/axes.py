"""The axes of the site's figures: the box, scales, round values to mark, and the lines that mark them."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date

from levelbench.report.markup import Html
from levelbench.report.numbers import TIME
from levelbench.report.site.brief import brief
from levelbench.report.site.parts import escaped

__all__ = [
    "BOTTOM", "HEIGHT", "LEFT", "OF_TIME", "RIGHT", "TOP", "WIDTH", "Scale", "axis_text", "horizontal", "log_scale",
    "log_ticks", "ticks", "time_ticks", "vertical", "widened", "years",
]  # fmt: skip

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


def _tick_text(seconds: float) -> str:
    """A round time in the largest unit that it has one of."""
    unit = next((unit for unit in reversed(TIME) if seconds >= unit.size * (1 - 1e-9)), TIME[0])
    return f"{seconds / unit.size:g} {unit.symbol}"


def log_scale(low: float, high: float, start: float, end: float) -> Scale:
    """From ``low``..``high`` to ``start``..``end`` by logarithms; held at the ends; the middle where both are one."""
    width = math.log(high) - math.log(low)
    if not width > 0:
        return lambda _: (start + end) / 2
    return lambda value: start + (end - start) * (math.log(min(max(value, low), high)) - math.log(low)) / width


def _nice_step(span: float, most: int) -> float:
    """A step of 1, 2 or 5 times a power of ten that makes at most ``most`` steps of ``span``."""
    rough = span / most
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-12))


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round values from ``low`` to ``high``."""
    step = _nice_step(high - low, most)
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
        return _tick_text(value)
    # A round value has one digit before its zeros.
    text = brief(value, 1)
    return f"{text}/s" if column == "throughput" else f"${text}"


def years(begin: int, end: int) -> list[tuple[int, str]]:
    """First days of years, or of months where there are fewer than two years' worth, at most eight.

    Where no two are in between, the first and the last day themselves.
    """
    found = _years(begin, end)
    if len(found) > 1:
        return found
    return [(day, date.fromordinal(day).isoformat()) for day in dict.fromkeys((begin, end))]


def _years(begin: int, end: int) -> list[tuple[int, str]]:
    first, last = date.fromordinal(begin), date.fromordinal(end)
    if end - begin > 700:
        step = max(1, math.ceil((last.year - first.year) / 8))
        years = range(first.year + 1, last.year + 1, step)
        return [(date(year, 1, 1).toordinal(), str(year)) for year in years]
    months = (last.year - first.year) * 12 + last.month - first.month
    step = max(1, math.ceil(months / 6))
    found = []
    for at in range(0, months + 1, step):
        year, month = divmod(first.year * 12 + first.month - 1 + at, 12)
        day = date(year, month + 1, 1).toordinal() if 1 <= year <= 9999 else 0
        if begin <= day <= end:
            found.append((day, f"{year}-{month + 1:02d}"))
    return found
