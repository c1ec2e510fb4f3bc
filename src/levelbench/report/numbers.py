"""Numbers as text: one unit per column, and only the digits that the interval supports.

The width of the interval decides how many decimals a value and its bounds have. The rule is the Particle
Data Group's (Review of Particle Physics, introduction, 5.3 "Rounding"), applied to the width: of its first three
digits, 100 to 354 keep two and 355 to 949 keep one, so that rounding moves a bound by at most 15 % of the width.
The lowest and the highest of a few values were observed, not estimated: the largest keeps at least three digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from levelbench.measure.statistics import Estimate

__all__ = ["ABSENT", "BYTES", "ENERGY", "ONE", "PERCENT", "TIME", "USD", "Unit", "choose_unit"]
__all__ += ["decimals_for", "duration", "duration_range", "estimate_text", "number", "plural", "text_of"]
__all__ += ["with_interval"]

ABSENT = "–"
_MOST_DIGITS = 6
_FACTOR = 3.0
_WIDE = 1000.0
_EXACT_INTEGERS = 2.0**53


@dataclass(frozen=True)
class Unit:
    """A unit: ``symbol``, its ``size``, and the ``least`` magnitude to use it for, both in the base unit."""

    symbol: str
    size: float = 1.0
    least: float = 0.0


ONE = (Unit(""),)
PERCENT = (Unit("%", 0.01),)
TIME = (
    Unit("ns", 1e-9),
    Unit("µs", 1e-6, 0.5e-6),
    Unit("ms", 1e-3, 0.5e-3),
    Unit("s", 1.0, 0.5),
    Unit("min", 60.0, 180.0),
    Unit("h", 3600.0, 10800.0),
)
BYTES = (
    Unit("B"),
    Unit("KiB", 2.0**10, 2.0**10),
    Unit("MiB", 2.0**20, 2.0**20),
    Unit("GiB", 2.0**30, 2.0**30),
    Unit("TiB", 2.0**40, 2.0**40),
)
USD = (Unit("µUSD", 1e-6), Unit("mUSD", 1e-3, 0.5e-3), Unit("USD", 1.0, 0.1))
ENERGY = (Unit("mJ", 1e-3), Unit("J", 1.0, 0.5), Unit("kJ", 1e3, 1e3), Unit("MJ", 1e6, 1e6))


def choose_unit(values: Iterable[float], units: tuple[Unit, ...]) -> Unit:
    """The unit of ``units`` (ascending) for a column of ``values`` (base unit), by its largest finite magnitude."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    if largest == 0.0:
        return next((unit for unit in units if unit.size == 1.0), units[0])
    return [unit for unit in units if largest >= unit.least][-1]


def decimals_for(width: float) -> int:
    """Decimals (negative: tens, hundreds) that an interval of ``width`` > 0 supports, by the rule stated above."""
    exponent = math.floor(math.log10(width))
    mantissa = width / 10.0**exponent
    return 1 - exponent if mantissa < 3.55 else -exponent


def _decimals_of_digits(value: float, digits: int) -> int:
    """Decimals that show ``value`` with ``digits`` significant digits."""
    if value == 0.0:
        return 0
    return digits - 1 - math.floor(math.log10(abs(value)))


def _fixed(value: float, decimals: int) -> str:
    """``value`` rounded to ``decimals``, thousands separated by commas, never ``-0``."""
    if not math.isfinite(value):
        return {math.inf: "∞", -math.inf: "-∞"}.get(value, "not a number")
    rounded = round(value, decimals)
    return f"{rounded + 0.0 if rounded else 0.0:,.{max(decimals, 0)}f}"


def _in_digits(value: float, digits: int) -> str:
    """``value`` with so many significant digits, as plain digits."""
    return _fixed(value, _decimals_of_digits(value, digits))


def _in_short(value: float, digits: int) -> str:
    """``value`` with so many significant digits; as ``4.9e-5`` if plain digits would be long."""
    if value == 0.0 or 1e-3 <= abs(value) < 1e6:
        return _in_digits(value, digits)
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def number(value: float, digits: int = 3) -> str:
    """A value without a known spread: ``digits`` significant digits; whole numbers in full.

    >>> number(0.91234), number(1797), number(107820.0), number(1234.5)
    ('0.912', '1,797', '107,820', '1,234')
    """
    if not math.isfinite(value) or (float(value).is_integer() and abs(value) < _EXACT_INTEGERS):
        return _fixed(value, 0)
    return _fixed(value, max(0, _decimals_of_digits(value, digits)))


def with_interval(
    value: float, low: float | None, high: float | None, digits: int = 3, *, observed: bool = False
) -> str:
    """``value [low, high]``, all three with the decimals that the interval supports; ``number`` without one.

    At most six digits of the largest bound are shown. An infinite bound is shown as ``∞``. An interval that spans more
    than a factor of three comes from few runs on a log scale: each of its numbers keeps two digits, and beyond a factor
    of a thousand, long bounds get an exponent. If the bounds are the lowest and the highest of the values ``observed``,
    each keeps three digits at a factor above three, the largest does below it, and whole ones are shown in full.

    >>> with_interval(0.9123, 0.8513, 0.9812), with_interval(17.1, 0.4523, 647.0)
    ('0.91 [0.85, 0.98]', '17 [0.45, 650]')
    >>> with_interval(42.6, 25.58, 61.53, observed=True), with_interval(6905.3, 5395, 9711, observed=True)
    ('42.6 [25.6, 61.5]', '6,905 [5,395, 9,711]')
    """
    if low is None or high is None or not math.isfinite(value) or math.isnan(low) or math.isnan(high):
        return number(value, digits)
    # Values that differ only by rounding are one value: the mean of equal times has no long row of zeros.
    value, low, high = shown = tuple(float(f"{each:.12g}") for each in (value, low, high))
    if all(float(each).is_integer() for each in shown if math.isfinite(each)) and high - low < 1000:
        decimals = 0
    elif observed and low.is_integer() and high.is_integer():
        return f"{number(value)} [{number(low)}, {number(high)}]"
    elif _FACTOR * low < high < math.inf and (low > 0.0 or (low == 0.0 and 0.0 < _FACTOR * value < high)):
        text, kept = _in_short if high > _WIDE * low else _in_digits, 3 if observed else 2
        return f"{text(value, kept)} [{text(low, kept)}, {text(high, kept)}]"
    elif not (math.isfinite(high - low) and high > low):
        decimals = max(0, _decimals_of_digits(value, digits)) if math.isfinite(value) else 0
    else:
        largest = max(abs(low), abs(high))
        decimals = decimals_for(high - low)
        if observed:
            decimals = max(decimals, _decimals_of_digits(largest, 3))
        decimals = min(decimals, _decimals_of_digits(largest, _MOST_DIGITS))
    return f"{_fixed(value, decimals)} [{_fixed(low, decimals)}, {_fixed(high, decimals)}]"


def text_of(found: Estimate, units: tuple[Unit, ...] = TIME) -> str:
    """An estimate outside a table, with its interval or the extremes of its few values."""
    inside = found.interval
    if inside is None:
        return estimate_text(found.value, None, None, units)
    return estimate_text(found.value, inside.low, inside.high, units, observed=inside.is_range)


def estimate_text(
    value: float,
    low: float | None,
    high: float | None,
    units: tuple[Unit, ...] = TIME,
    *,
    observed: bool = False,
) -> str:
    """A single value outside a table, with its interval and a unit that fits the value.

    >>> estimate_text(0.9123, 0.8513, 0.9812), estimate_text(0.107, 4.9e-5, 240.0)
    ('0.91 s [0.85, 0.98]', '110 ms [0.049, 240,000]')
    """
    unit = choose_unit([value], units)
    low, high = (None if each is None else each / unit.size for each in (low, high))
    head, bracket, tail = with_interval(value / unit.size, low, high, observed=observed).partition(" [")
    return f"{head} {unit.symbol}".rstrip() + bracket + tail


def plural(count: int, one: str, several: str = "") -> str:
    """``"1 run"``, ``"3 runs"``; ``several`` is an irregular plural."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def duration(seconds: float) -> str:
    """A time without much precision: ``4.2 s``, ``3 min 05 s``, ``2 h 07 min``; ``–`` below zero."""
    if not math.isfinite(seconds) or seconds < 0:
        return ABSENT
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def duration_range(low_s: float, high_s: float) -> str:
    """A range of times without much precision, in the unit of its larger end: ``3 to 5 min``; ``under 10 s``."""
    unit, size = ("h", 3600.0) if high_s >= 5400 else ("min", 60.0) if high_s >= 90 else ("s", 1.0)
    if unit == "s" and high_s < 10:
        return "under 10 s"
    digits = 1 if unit == "h" and high_s < 10 * size else 0
    low, high = (f"{each / size:.{digits}f}" for each in (low_s, high_s))
    return f"about {high} {unit}" if low == high else f"{low} to {high} {unit}"
