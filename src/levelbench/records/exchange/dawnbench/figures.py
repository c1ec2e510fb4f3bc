"""Figures of DAWNBench's files to our units and back, digit by digit.

The one idea: 94.09 % is 0.9409 exactly as a decimal and not in binary, so figures are read as decimals, brought to the
other unit, and only then rounded to a double; what is written back reads as the same double.
"""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation

from levelbench.errors import RecordError

__all__ = ["figure", "from_hours", "shifted", "to_hours", "to_text"]

_LONGEST = 80
_HOUR = 3600


def figure(text: str, asked: str, where: str) -> Decimal:
    """The number that ``text`` says; ``RecordError`` for another thing, one not finite or beyond a double's range."""
    try:
        value = Decimal(text) if len(text) <= _LONGEST and "_" not in text else None
    except InvalidOperation:
        value = None
    if value is None or not value.is_finite() or not _within(value):
        found = f"{where} is {text[:40]!r}, which is no finite number"
        raise RecordError(asked, found, "correct or remove the figure")
    return value


def _within(value: Decimal) -> bool:
    """Whether a double holds it without becoming infinite or zero; so no exponent makes arithmetic slow either."""
    return not value or -300 < value.adjusted() < 300


def shifted(value: Decimal, places: int) -> float:
    """``value`` with its decimal point moved ``places`` to the right, as a double."""
    return float(value.scaleb(places))


def from_hours(value: Decimal) -> float:
    """Hours to seconds."""
    return float(value * _HOUR)


def to_hours(seconds: float) -> str:
    """The shortest text of hours, of 15 digits or more, that reads as exactly these seconds."""
    if not seconds:
        return "0.0"
    hours = Decimal(repr(seconds)) / _HOUR
    for digits in range(15, 28):
        short = Decimal(f"{hours:.{digits - 1}e}")
        if from_hours(short) == seconds:
            return to_text(short)
    return to_text(hours)


def to_text(value: Decimal | float, places: int = 0) -> str:
    """``value`` in plain digits, its point moved ``places`` to the right, with a point if it is no whole number."""
    exact = value if isinstance(value, Decimal) else Decimal(repr(value))
    if not math.isfinite(exact):
        raise RecordError("writing a figure", f"it is {value}", "leave out what is not finite")
    moved = exact.scaleb(places).normalize()
    text = f"{moved:f}" if -20 < moved.adjusted() < 20 else f"{moved:e}"
    return text if any(each in text for each in ".e") else f"{text}.0"
