"""Which prices, times and rates could be true at all: for the check, for scoring and for whoever writes an entry.

The one idea: one pair of bounds each, so wide that nothing that exists is beyond them; what lies outside is a slip,
such as another unit, or no honest figure, and would otherwise take the first rank.
"""

from __future__ import annotations

__all__ = ["ANSWER_USD", "LATENCY_S", "PRICE_USD", "PRICE_WORDS", "RATE_PER_S", "RUN_S", "Bounds", "is_within"]

Bounds = tuple[float, float]

PRICE_USD: Bounds = (1e-6, 1e7)
"""US dollars an hour: below a millionth, a year costs less than a cent; ten million rent millions of accelerators."""
PRICE_WORDS = "0.000001 to 10,000,000 US dollars an hour"
RUN_S: Bounds = (1e-6, 3.2e8)
"""A microsecond and ten years: no run takes less, or more."""
LATENCY_S: Bounds = (1e-9, 3.2e8)
"""A nanosecond, which is a few cycles of a processor's clock, and ten years."""
RATE_PER_S: Bounds = (1e-9, 1e15)
"""Answers a second: one in thirty years; what no machine's operations a second are enough for."""
ANSWER_USD: Bounds = (1e-18, 1e9)
"""US dollars an answer: of the cheapest machine at a thousand million answers a second; more than anybody pays."""


def is_within(value: float, bounds: Bounds) -> bool:
    """Whether ``value`` lies within ``bounds``; what is no number does not.

    >>> is_within(1e-300, PRICE_USD), is_within(3.06, PRICE_USD), is_within(1e300, PRICE_USD)
    (False, True, False)
    """
    return bounds[0] <= value <= bounds[1]
