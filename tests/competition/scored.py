"""Small entries to score, and rules to score them by."""

from __future__ import annotations

import msgspec

from levelbench.competition.entries import Author, Hardware, Submission, SubmittedCurve, SubmittedRun
from levelbench.competition.rulesets import Aggregation, ruleset
from levelbench.records.schema import Target

DAWNBENCH, MLPERF, OURS = ruleset("dawnbench-1.0"), ruleset("mlperf-training-like-1.0"), ruleset("levelbench-1.0")
TARGET = Target("top1", 0.94)


def a_run(arrives_s, *, status="done", given_up_s=100.0):
    """A run that is at the target in two evaluations, the first ``arrives_s`` seconds in; ``None``: never."""
    if arrives_s is None:
        return SubmittedRun(SubmittedCurve([1.0, given_up_s], [0.5, 0.9]), status=status)
    return SubmittedRun(SubmittedCurve([arrives_s / 2, arrives_s, arrives_s * 2], [0.9, 0.94, 0.95]), status=status)


def submission(runs=(), *, mode="training", **parts):
    base = Submission(
        schema=1, ruleset="levelbench-1.0", task="cifar10", mode=mode, author=Author("A"), submitted="2026-01-02",
        model="net", framework="torch", hardware=Hardware("a machine"), target=TARGET, runs=list(runs),
    )  # fmt: skip
    return msgspec.structs.replace(base, **parts)


def under(rules, **aggregation):
    """``rules`` with the crossing rule ``first`` and another aggregation."""
    return msgspec.structs.replace(rules, crossing="first", aggregation=Aggregation(**aggregation))


MEDIAN = under(OURS, rule="median", runs=1)
