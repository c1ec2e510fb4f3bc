"""Qualities against one another: which of two is better, and by more than their intervals.

The one idea: a rule may not guess whether more is better, so everything answers ``None`` where that is unknown.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from levelbench.claims.rules._common import number
from levelbench.claims.view import QualityView, RunView, ScalingPoint, Side

__all__ = ["TRAINING_TIMES", "Level", "beyond", "direction_of", "is_training", "level_of", "misses", "run_qualities"]

TRAINING_TIMES = ("target", "epoch", "step", "run")
"""What the time of a side is of where the side trains; ``call`` is inference or an operator alone."""

_LOWER = re.compile(r"\b(loss|error|perplexity|ppl|wer|cer|fid|mse|rmse|mae|nll)\b")
_HIGHER = re.compile(r"\b(accuracy|acc|top ?[15]|f1|bleu|m?ap|auc|iou|dice|hr|recall|precision|exact match)\b")


class Level(NamedTuple):
    """A quality with its interval, turned so that higher is better; without one, all three are the same."""

    value: float
    low: float
    high: float
    has_interval: bool
    text: str


def direction_of(quality: QualityView) -> float | None:
    """1 where higher is better, -1 where lower is; ``None`` where neither a direction nor the metric's name says."""
    if quality.direction is not None:
        return 1.0 if quality.direction == "higher" else -1.0
    name = re.sub(r"[-_@ ]+", " ", (quality.metric or "").lower())
    if _LOWER.search(name):
        return -1.0
    return 1.0 if _HIGHER.search(name) else None


def level_of(quality: QualityView, point: ScalingPoint | None = None) -> Level | None:
    """The quality of a point of scaling, or else of the side itself, on the side's metric."""
    sign = direction_of(quality)
    if point is None:
        value, low, high = quality.value, quality.low, quality.high
    else:
        value, low, high = point.quality, point.quality_low, point.quality_high
    if sign is None or value is None:
        return None
    if low is None or high is None:
        return Level(sign * value, sign * value, sign * value, False, number(value, 4))
    text = f"{number(value, 4)} [{number(low, 4)}, {number(high, 4)}]"
    return Level(sign * value, min(sign * low, sign * high), max(sign * low, sign * high), True, text)


def beyond(first: Level, later: Level) -> bool | None:
    """Whether ``later`` is worse by more than the intervals; ``None`` where it is worse and neither has one."""
    if later.value >= first.value:
        return False
    if not first.has_interval and not later.has_interval:
        return None
    return later.high < first.low


def misses(quality: QualityView, level: Level | None) -> bool:
    """Whether even the better end of the interval is worse than the side's target."""
    sign = direction_of(quality)
    if sign is None or level is None or quality.target is None:
        return False
    return level.high < sign * quality.target


def is_training(side: Side) -> bool:
    """Whether the time of a side is a time of training: of a run, an epoch, a step, or to a target."""
    return side.time_of in TRAINING_TIMES


def run_qualities(runs: list[RunView]) -> list[float]:
    """What each run reached, where it is stated and the run did not fail."""
    return [run.quality for run in runs if run.quality is not None and not run.failed]
