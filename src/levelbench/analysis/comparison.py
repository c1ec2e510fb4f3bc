"""Compares two groups of runs: whether they can be compared, the verdict, the reason, the difference of machines.

The one idea: a comparison that would mean nothing is refused before it is computed. Another task or target is an
error; another machine gives no verdict on time unless it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from levelbench.analysis.attribution import Attribution, attribute
from levelbench.errors import IncomparableError
from levelbench.measure.environment import Difference, difference, same_machine
from levelbench.measure.verdict import Verdict, verdict
from levelbench.records import RunGroup, RunSummary

__all__ = ["Comparison", "check_comparable", "compare"]


@dataclass(frozen=True)
class Comparison:
    """``b`` against ``a``. ``verdict`` is ``None`` where the machines differ and nobody asked for one all the same."""

    a: RunGroup
    b: RunGroup
    verdict: Verdict | None
    attribution: Attribution | None
    differences: tuple[Difference, ...]
    machines_differ: bool


def check_comparable(a: RunGroup, b: RunGroup) -> None:
    """``IncomparableError`` with everything that differs, if task, target, crossing rule or clock do."""
    first, second = a.runs[0], b.runs[0]
    fixed = {
        "task": (first.task, second.task),
        "target": (_target(first), _target(second)),
        "crossing rule": (first.crossing, second.crossing),
        "clock": (first.clock, second.clock),
    }
    unlike = [f"{what} {x} and {y}" for what, (x, y) in fixed.items() if x != y]
    # A schedule of fixed length is judged at its end by nature; its time may still be set beside a confirmed one.
    if {first.crossing, second.crossing} == {"final", "confirmed"}:
        unlike = [line for line in unlike if not line.startswith("crossing")]
    if unlike:
        raise IncomparableError(
            f"comparing {a.label} with {b.label}",
            f"they differ in {'; '.join(unlike)}",
            "choose runs of one task with one target; a clock, crossing rule or target for both can be given as "
            "--clock, --crossing, --target",
        )


def compare(
    a: RunGroup, b: RunGroup, *, margin: float = 0.02, level: float = 0.95, across_machines: bool = False
) -> Comparison:
    """Compare time to accuracy. Runs that failed or were interrupted are left out; those that missed count.

    Arms with the same seeds are compared in pairs, which takes the luck of the seed out of the ratio.
    """
    check_comparable(a, b)
    runs_a, runs_b = _by_seed(_finished(a)), _by_seed(_finished(b))
    machines_differ = not _one_machine([*runs_a, *runs_b])
    differences = tuple(difference(runs_a[0].environment, runs_b[0].environment))
    outcome = None
    if across_machines or not machines_differ:
        outcome = verdict(
            [run.time_to_accuracy_s for run in runs_a],
            [run.time_to_accuracy_s for run in runs_b],
            margin=margin,
            level=level,
            paired=[run.seed for run in runs_a] == [run.seed for run in runs_b],
            censored_at_a=_given_up(runs_a),
            censored_at_b=_given_up(runs_b),
        )
    return Comparison(a, b, outcome, attribute(a, b), differences, machines_differ)


def _finished(group: RunGroup) -> list[RunSummary]:
    runs = [run for run in group.runs if run.status == "done"]
    if not runs:
        raise IncomparableError(
            f"comparing with {group.label}", f"none of its {len(group.runs)} runs is done", "run it: levelbench run"
        )
    return runs


def _by_seed(runs: Sequence[RunSummary]) -> list[RunSummary]:
    """By seed, so that arms with the same seeds are in pairs: equal weights, equal batches, neighbours in time."""
    return sorted(runs, key=lambda run: (run.seed, run.started))


def _given_up(runs: Sequence[RunSummary]) -> list[float]:
    return [run.given_up_s for run in runs if run.time_to_accuracy_s is None and run.given_up_s is not None]


def _one_machine(runs: Sequence[RunSummary]) -> bool:
    return all(same_machine(runs[0].environment, run.environment) for run in runs[1:])


def _target(run: RunSummary) -> str:
    sign = ">=" if run.target.direction == "higher" else "<="
    return f"{run.target.split} {run.target.metric} {sign} {run.target.threshold:g}"
