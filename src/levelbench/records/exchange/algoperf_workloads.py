"""AlgoPerf's workloads: which validation metric is to reach which value within how many seconds.

The one idea: a log's own meta data say it for the version that ran; the ruleset of version 0.6 stands in where there
are none. Source: the rules of mlcommons/algorithmic-efficiency, version 0.6.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from levelbench.errors import RecordError
from levelbench.records.rulesets.registry import ruleset
from levelbench.records.schema import Target

__all__ = ["PREFIX", "RULES", "SELF_TUNING", "Workload", "workload_called", "workloads"]

RULES, SELF_TUNING = "algoperf-0.6", "algoperf-self-tuning-0.6"
"""The rulesets of entries, with trials to tune and without."""
PREFIX = "algoperf-"
"""What a workload's name begins with where it is a task."""

_LOWER = frozenset({"ce_loss", "error_rate", "ctc_loss", "wer", "l1_loss", "loss", "ppl"})
_HIGHER = frozenset({"mean_average_precision", "ssim", "accuracy", "bleu"})
_WITHOUT_END = frozenset({"ce_loss", "ctc_loss", "wer", "l1_loss", "loss", "ppl"})


@dataclass(frozen=True)
class Workload:
    """What is to be reached on the validation split, and how long that may take (``None`` where it is not stated)."""

    target: Target
    budget_s: float | None = None


def _workload(metric: str, threshold: float, budget_s: float | None = None) -> Workload:
    high = None if metric in _WITHOUT_END else 100.0 if metric == "bleu" else 1.0
    direction = "lower" if metric in _LOWER else "higher"
    return Workload(Target(metric, threshold, direction, 0.0, high, "validation"), budget_s)  # type: ignore[arg-type]


_BUDGETS_S: Mapping[str, float] = {
    "criteo1tb": 7703,
    "fastmri": 4430,
    "imagenet_resnet": 66159,
    "imagenet_vit": 69768,
    "librispeech_conformer": 58015,
    "librispeech_deepspeech": 44405,
    "ogbg": 12011,
    "wmt": 43336,
}
"""Seconds at most in version 0.6."""


@cache
def workloads() -> Mapping[str, Workload]:
    """Those of version 0.6 by name. ImageNet's error rates are given as the accuracies that its logs hold."""
    tasks = {each.task.removeprefix(PREFIX): each.target for each in ruleset(RULES).tasks}
    return {name: Workload(target, _BUDGETS_S.get(name)) for name, target in tasks.items()}


def workload_called(name: str, meta: Mapping[str, Any]) -> Workload:
    """The workload by what ``meta`` (a log's meta data) say of it, else by the ruleset. ``RecordError`` for neither."""
    metric, value = meta.get("workload.target_metric_name"), meta.get("workload.validation_target_value")
    budget = meta.get("workload.max_allowed_runtime_sec")
    threshold = _finite(value)
    if isinstance(metric, str) and metric in _LOWER | _HIGHER and threshold is not None:
        return _workload(metric, threshold, _finite(budget))
    if name in workloads():
        return workloads()[name]
    do = f"keep its meta_data file, or give one of {', '.join(workloads())}"
    raise RecordError(f"reading the workload {name}", "no meta data say its target, and no table has it", do)


def _finite(value: Any) -> float | None:
    """The number, if it is one and finite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e300 and math.isfinite(value) else None
