"""MLPerf Training's score of several runs: the Olympic mean, with failed runs, and with more runs than are needed.

The one idea: a run that did not converge is slower than any other, so it is among the slowest that are dropped, or the
result is invalid; and whoever ran more than was asked submits the set in the middle and never the best one
(training rules, section on results).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from levelbench.errors import RecordError
from levelbench.measure.statistics.means import olympic_mean
from levelbench.records.reader import open_record

__all__ = ["Even", "OlympicScore", "WindowScore", "olympic_score", "read_scaling", "scaling_of", "window_median"]

Even = Literal["lower", "upper", "mean"]

_SCALING_LIMIT = 64 * 1024


class OlympicScore(Struct, frozen=True):
    """The score of a result in seconds, ``None`` if it is invalid; which runs it is the mean of, by their index.

    ``failed`` runs did not converge. ``scaling`` is the factor that the score was multiplied by.
    """

    score_s: float | None
    kept: tuple[int, ...]
    fastest: tuple[int, ...]
    slowest: tuple[int, ...]
    failed: int
    scaling: float = 1.0


class WindowScore(Struct, frozen=True):
    """The score over all windows of consecutive runs: the median's, ``None`` if the median window is invalid.

    ``scores_s`` are those of the windows by their first run, ``None`` for an invalid one. ``middle`` are the first runs
    of the one or two windows in the middle, the faster one first. ``window`` is the first run of the window that the
    median is, ``None`` where it lies between two.
    """

    score_s: float | None
    scores_s: tuple[float | None, ...]
    window: int | None
    even: Even
    middle: tuple[int, int]


def olympic_score(times_s: Sequence[float | None], *, drop: int = 1, scaling: float = 1.0) -> OlympicScore:
    """The score of one result: ``drop`` fastest and slowest runs left out, the others averaged, times ``scaling``.

    ``None`` is a run that did not converge; with d of them and the sorted times x of the others this is the mean of
    ``x[drop : len(x) - (drop - d)]``. More than ``drop``, or nothing left, is invalid. ``drop`` is 1, and 4 for unet3d.
    """
    if not (math.isfinite(scaling) and scaling >= 1.0):
        raise ValueError(f"a scaling factor of {scaling}: it is at least 1")
    mean = olympic_mean(times_s, drop)
    order = sorted(
        range(len(times_s)), key=lambda run: math.inf if times_s[run] is None else float(times_s[run] or 0.0)
    )
    return OlympicScore(
        score_s=None if mean is None else mean * scaling,
        kept=tuple(order[drop : max(len(order) - drop, drop)]),
        fastest=tuple(order[:drop]),
        slowest=tuple(order[max(len(order) - drop, 0) :]),
        failed=sum(time is None for time in times_s),
        scaling=scaling,
    )


def window_median(times_s: Sequence[float | None], runs: int, *, drop: int = 1, even: Even = "upper") -> WindowScore:
    """The score of more runs than ``runs``, in an order that their result cannot have chosen (launch time).

    Every window of ``runs`` consecutive runs is scored, an invalid one counts as slower than any, and the median
    window's score is the result. The rules do not say which of the two middle windows is meant when their number is
    even: ``upper`` (the default) is the slower one, since it is a set of runs that was measured, and one run more than
    asked can then not better a score that stands (two more can: 9, 8, 7 s score 8 s, and 9, 8, 7, 1, 1 s score 7 s);
    ``lower`` is the faster one; ``mean`` their mean, which no set of runs scored.
    """
    if not 1 <= runs <= len(times_s):
        raise ValueError(f"windows of {runs} runs among {len(times_s)}")
    scores = tuple(olympic_mean(times_s[first : first + runs], drop) for first in range(len(times_s) - runs + 1))
    ranked = sorted(range(len(scores)), key=lambda first: _rank(scores[first]))
    low, high = ranked[(len(scores) - 1) // 2], ranked[len(scores) // 2]
    if even == "mean" and low != high:
        both = (scores[low], scores[high])
        mean = None if both[0] is None or both[1] is None else (both[0] + both[1]) / 2
        return WindowScore(mean, scores, None, even, (low, high))
    chosen = low if even == "lower" else high
    return WindowScore(scores[chosen], scores, chosen, even, (low, high))


def _rank(score: float | None) -> float:
    return math.inf if score is None else score


def read_scaling(path: str | Path) -> float:
    """The factor in a ``scaling.json``, which multiplies the score; ``RecordError`` for a file that has none."""
    asked = f"reading {path}"
    with open_record(Path(path), asked) as file:
        return scaling_of(file.read(_SCALING_LIMIT + 1), asked)


def scaling_of(content: bytes, asked: str) -> float:
    """The factor in the text of a ``scaling.json``: at least 1."""
    do = 'write {"scaling_factor": F} with F at least 1'
    if len(content) > _SCALING_LIMIT:
        raise RecordError(asked, f"it is larger than {_SCALING_LIMIT} bytes", do)
    try:
        said = json.loads(content)
    except (ValueError, RecursionError):
        raise RecordError(asked, "it is not JSON", do) from None
    factor = said.get("scaling_factor") if isinstance(said, dict) else None
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1.0 <= factor < 1e6:
        raise RecordError(asked, f"its scaling factor is {str(factor)[:50]}", do)
    return float(factor)
