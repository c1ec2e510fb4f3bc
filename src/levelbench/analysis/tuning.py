"""What a task should fix: its target by the knee rule, how often to evaluate, and how many runs a figure needs.

The one idea: each is a trade that can be computed from the same recorded curves, so nobody has to guess. A higher
target is harder, and past the knee it measures luck; evaluating more often finds the crossing sooner and costs more;
more runs narrow the interval with the square root of their number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from levelbench.analysis.threshold import LEAST_EVALUATIONS, Proposal, propose_target
from levelbench.errors import UsageError
from levelbench.measure.crossing import find_crossing
from levelbench.measure.statistics.distributions import t_quantile
from levelbench.records.reader import Record

__all__ = [
    "Cadence",
    "Runs",
    "TaskProposal",
    "check_evaluations",
    "check_shares",
    "propose_cadence",
    "propose_runs",
    "tune",
]

COST = 0.05
"""The share of a run that evaluations may take (MLPerf Training's advice to the owners of benchmarks)."""
_TRAINING = ("data", "forward", "backward", "communicate", "update")
_MOST_RUNS = 1000


@dataclass(frozen=True)
class Cadence:
    """How often to evaluate.

    ``every`` is in the words of a task file, ``steps`` the same in steps; ``cost`` the share of a run that evaluations
    then take, and ``quantisation`` one interval by the crossing, both in shares. ``now`` and ``now_cost`` are those of
    the recorded runs.
    """

    every: str
    steps: int
    cost: float
    quantisation: float | None
    now: str
    now_cost: float
    evaluation_s: float
    step_s: float


@dataclass(frozen=True)
class Runs:
    """How many runs: ``needed`` for an interval of +- ``width`` around the time to accuracy, at 95 %.

    ``None`` if a thousand are too few, or less than two runs reached the target. ``deviation`` is that of the logs of
    the ``times`` to the target, ``width_now`` the half-width that the recorded runs give.
    """

    needed: int | None
    width: float
    deviation: float | None
    width_now: float | None
    reached: int
    n: int


@dataclass(frozen=True)
class TaskProposal:
    """All three, of one recipe's recorded curves; where there is no target, ``cadence`` and ``runs`` are ``None``."""

    target: Proposal
    cadence: Cadence | None
    runs: Runs | None
    metric: str
    split: str
    final: float
    """The median quality at the end."""


def check_shares(cost: float, width: float) -> None:
    """Raise ``UsageError`` for a share that is none, so that nobody makes runs first."""
    for name, value in (("cost", cost), ("width", width)):
        if not 0 < value < 1:
            raise UsageError(f"a {name} of {value:g}", "it is no share", "give one between 0 and 1: 0.05 is 5 per cent")


def check_evaluations(count: int, every: str, epochs: float) -> None:
    """Raise ``UsageError`` for curves of too few evaluations, so that nobody makes runs first."""
    if count < LEAST_EVALUATIONS:
        raise UsageError(
            f"a target from curves of {epochs:g} epochs, evaluated every {every}",
            f"that is {count} evaluation{'s' * (count != 1)}, and a knee takes {LEAST_EVALUATIONS} or more",
            "train longer (--epochs; of a schedule of fixed length [epochs=...]) or evaluate more often (--every)",
        )


def tune(
    records: Sequence[Record], *, step: float | None = None, cost: float = COST, width: float = 0.05
) -> TaskProposal:
    """Propose target, cadence and number of runs from finished runs of one specification.

    ``step`` rounds the target, ``cost`` is the share that evaluations may take, ``width`` the wanted half-width of the
    interval, as a share of the time. Raises ``UsageError`` for too few runs or evaluations.
    """
    if not records:
        raise UsageError("what a task should fix", "there is no finished run", "make some")
    check_shares(cost, width)
    target = records[0].header.specification.target
    length = min(len(record.evaluations) for record in records)
    curves = np.array([[each.quality[target.split] for each in record.evaluations[:length]] for record in records]).T
    epochs = [each.epoch for each in records[0].evaluations[:length]]
    proposal = propose_target(curves, epochs, direction=target.direction, step=step)
    final = float(np.median(curves[-1]))
    if proposal.target is None:
        return TaskProposal(proposal, None, None, target.metric, target.split, final)
    times = [_time_to(record, proposal.target) for record in records]
    reached = [time for time in times if time is not None]
    crossings = [each.crossing for each in proposal.candidates if each.threshold == proposal.target]
    cadence = propose_cadence(records, cost, next(iter(crossings), None))
    runs = propose_runs(reached, len(records), width)
    return TaskProposal(proposal, cadence, runs, target.metric, target.split, final)


def propose_cadence(records: Sequence[Record], cost: float = COST, crossing_epochs: float | None = None) -> Cadence:
    """The shortest round interval whose evaluations take at most the share ``cost`` of a run.

    With e seconds an evaluation and s seconds a step, an interval of k steps costs e / (e + k s).
    """
    evaluation_s, step_s, steps_per_epoch = _costs(records)
    least = evaluation_s * (1 - cost) / (cost * step_s)
    steps, every = _round_interval(least, steps_per_epoch)
    first = records[0].evaluations
    now_steps = first[1].step - first[0].step if len(first) > 1 else first[0].step
    quantisation = None if not crossing_epochs else steps / steps_per_epoch / crossing_epochs
    return Cadence(
        every,
        steps,
        evaluation_s / (evaluation_s + steps * step_s),
        quantisation,
        records[0].header.specification.evaluate_every,
        evaluation_s / (evaluation_s + now_steps * step_s),
        evaluation_s,
        step_s,
    )


def propose_runs(times_s: Sequence[float], n: int, width: float) -> Runs:
    """The least number of runs whose 95 % interval of the mean of the logs is within +- ``width``.

    exp(t_(0.975, n - 1) s / sqrt(n)) - 1 <= width, with s the deviation of the logs of the times (ddof 1).
    """
    if len(times_s) < 2:
        return Runs(None, width, None, None, len(times_s), n)
    deviation = float(np.std(np.log(times_s), ddof=1))
    needed = next((k for k in range(2, _MOST_RUNS + 1) if _half_width(deviation, k) <= width), None)
    return Runs(needed, width, deviation, _half_width(deviation, len(times_s)), len(times_s), n)


def _half_width(deviation: float, n: int) -> float:
    exponent = t_quantile(0.975, n - 1) * deviation / math.sqrt(n)
    return math.expm1(min(exponent, 700.0))


def _time_to(record: Record, threshold: float) -> float | None:
    """Seconds to the confirmed target; ``None`` if the run never reaches it."""
    target = record.header.specification.target
    qualities = [each.quality[target.split] for each in record.evaluations]
    at = [each.t_ns * 1e-9 for each in record.evaluations]
    found = find_crossing(qualities, threshold, direction=target.direction, rule="confirmed", x=at)
    return None if found is None else found.position


def _costs(records: Sequence[Record]) -> tuple[float, float, float]:
    """Seconds an evaluation and a step, medians over the runs, and steps an epoch."""
    evaluations, steps, per_epoch = [], [], []
    for record in records:
        last = record.evaluations[-1]
        evaluations.append(last.phases_ns.get("evaluate", 0) * 1e-9 / len(record.evaluations))
        steps.append(sum(last.phases_ns.get(phase, 0) for phase in _TRAINING) * 1e-9 / last.step)
        per_epoch.append(last.step / last.epoch)
    found = [float(np.median(values)) for values in (evaluations, steps, per_epoch)]
    if not found[1] > 0:
        raise UsageError("how often to evaluate", "the records hold no time of training", "give runs that trained")
    return found[0], found[1], found[2]


def _round_interval(least: float, steps_per_epoch: float) -> tuple[int, str]:
    """A round number of steps from ``least`` on, in epochs where it is at least half of one."""
    if least > 0.5 * steps_per_epoch:
        epochs = max(1, math.ceil(least / steps_per_epoch - 1e-9))
        return round(epochs * steps_per_epoch), f"{epochs} epoch{'s' * (epochs > 1)}"
    power = 10 ** math.floor(math.log10(max(least, 1.0)))
    steps = next(digit * power for digit in (1, 2, 5, 10) if digit * power >= least)
    if steps > 0.5 * steps_per_epoch:
        return round(steps_per_epoch), "1 epoch"
    return steps, f"{steps} step{'s' * (steps > 1)}"
