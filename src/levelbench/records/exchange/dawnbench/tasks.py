"""What DAWNBench calls its tasks, columns and keys, and on which scale it gives a quality.

The one idea: a threshold belongs to a version of the rules (``records.rulesets``); here is only how a file says it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from levelbench.records.rulesets.registry import ruleset, task_rules
from levelbench.records.rulesets.schema import TaskRules
from levelbench.records.schema import Target

__all__ = ["MODES", "RULESET", "TASKS", "DawnTask", "rules_of", "target_of", "task_called", "task_in_folder"]

RULESET = "dawnbench-1.0"
MODES = ("train", "inference")


@dataclass(frozen=True)
class DawnTask:
    """One task: its folder, our name, the key of its quality, decimal places from its scale to ours, its columns."""

    folder: str
    task: str
    key: str
    places: int
    columns: tuple[str, ...]


TASKS = (
    DawnTask("CIFAR10", "cifar10", "top1Accuracy", 2, ("epoch", "hours", "top1Accuracy")),
    DawnTask("ImageNet", "imagenet", "top5Accuracy", 2, ("epoch", "hours", "top1Accuracy", "top5Accuracy")),
    DawnTask("SQuAD", "squad", "f1Score", 0, ("epoch", "hours", "f1Score")),
)


def task_in_folder(folder: str) -> DawnTask | None:
    """The task whose entries lie in a folder of that name."""
    return next((each for each in TASKS if each.folder == folder), None)


def task_called(task: str) -> DawnTask | None:
    """The task that we call ``task``; ``None`` where DAWNBench has none such."""
    return next((each for each in TASKS if each.task == task), None)


@cache
def rules_of(task: str) -> TaskRules:
    """What the competition's own rules say of the task that we call ``task``."""
    found = task_rules(ruleset(RULESET), task)
    assert found is not None
    return found


def target_of(task: DawnTask) -> Target:
    """The quality to reach under the competition's own rules."""
    return rules_of(task.task).target
