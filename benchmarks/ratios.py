"""What benchmarks of two sides have in common: the ratio of neighbours, its interval over processes, a goal, a file.

The replicate is the process; inside one the sides take turns A B B A, so that drift hits both.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from levelbench.measure.clocks import HOST, Clock
from levelbench.measure.statistics import estimate

__all__ = ["clock_of", "compared", "of_neighbours", "verdict", "write_json"]


class _Processor:
    now_ns = staticmethod(time.process_time_ns)


def clock_of(processor: bool) -> Clock:
    """The host's clock, or the processor time of this process: for a machine that does other things, too."""
    return _Processor() if processor else HOST


def of_neighbours(first: Sequence[float], second: Sequence[float]) -> float:
    """The median ratio second / first of times that were taken in turns A B B A."""
    n = min(len(first), len(second)) // 2 * 2
    # A pair of turns has seen each order once, so drift inside it cancels.
    logarithms = np.log(np.asarray(second[:n])) - np.log(np.asarray(first[:n]))
    return float(np.median(np.exp(logarithms.reshape(-1, 2).mean(axis=1))))


def verdict(low: float, high: float, most: float) -> str:
    """Whether the whole interval is on one side of the goal."""
    return "met" if high <= most else "missed" if low > most else "open"


def compared(ratios: Sequence[float], most: float) -> dict[str, Any]:
    """The median over processes, its interval and what that says of the goal."""
    estimated = estimate(list(ratios))
    interval = estimated.interval
    low, high = (interval.low, interval.high) if interval else (0.0, float("inf"))
    return {
        "ratio": estimated.value,
        "low": low,
        "high": high,
        "processes": len(ratios),
        "goal": most,
        "verdict": verdict(low, high, most),
    }


def write_json(path: Path, found: Any) -> None:
    """Whole or not at all."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(json.dumps(found, indent=2))
    Path(file.name).replace(path)
