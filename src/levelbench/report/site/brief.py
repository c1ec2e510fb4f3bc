"""Numbers that stay short however small or large they are: whoever sends an entry chooses them.

The one idea: what would be a long row of digits is written with an exponent, so no figure pushes another off the page.
"""

from __future__ import annotations

import math

from levelbench.report.numbers import TIME, choose_unit, number, with_interval

__all__ = ["brief", "brief_interval", "time_estimate", "time_text"]

_LEAST, _MOST = 1e-6, 1e15


def brief(value: float, digits: int = 3) -> str:
    """``number``, with an exponent below a millionth and from a thousand million millions on.

    >>> brief(1234.5), brief(1e-300), brief(2.078e-7), brief(1e300)
    ('1,234', '1e-300', '2.08e-7', '1e300')
    """
    return _scientific(value, digits) if _is_long(value) else number(value, digits)


def brief_interval(value: float, low: float | None, high: float | None) -> str:
    """``value [low, high]`` by the same rule; ``brief`` without an interval.

    >>> brief_interval(2.5e-9, 2e-9, 3e-9), brief_interval(0.9123, 0.8513, 0.9812)
    ('2.5e-9 [2e-9, 3e-9]', '0.91 [0.85, 0.98]')
    """
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return brief(value)
    if not any(map(_is_long, (value, low, high))):
        return with_interval(value, low, high)
    return f"{_end(value)} [{_end(low)}, {_end(high)}]"


def time_estimate(value: float, low: float | None, high: float | None) -> str:
    """Seconds in the unit that suits the value, with the interval in the same."""
    unit = choose_unit([value], TIME)
    low, high = (None if each is None else each / unit.size for each in (low, high))
    head, bracket, tail = brief_interval(value / unit.size, low, high).partition(" [")
    return f"{head} {unit.symbol}{bracket}{tail}"


def time_text(seconds: float) -> str:
    """Seconds in their unit, three significant digits.

    >>> time_text(0.0123), time_text(1e-300)
    ('12.3 ms', '1e-291 ns')
    """
    return time_estimate(seconds, None, None)


def _is_long(value: float) -> bool:
    return math.isfinite(value) and value != 0.0 and not _LEAST <= abs(value) < _MOST


def _end(value: float) -> str:
    return _scientific(value, 3) if _is_long(value) else number(value)


def _scientific(value: float, digits: int) -> str:
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    short = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{short}e{int(exponent)}"
