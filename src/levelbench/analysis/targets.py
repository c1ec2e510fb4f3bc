"""What a task should fix: target, evaluation interval, number of runs; and whether fixed schedules reach the target.

A target is good if its crossing is well-conditioned. On the steep part before the knee, the crossing depends on which
evaluation comes first. On the flat tail, a tiny gain in quality costs a large part of the schedule, so time to accuracy
measures luck (MLPerf Training's advice to benchmark owners, CONTRIBUTING.md). The knee is Kneedle's (Satopää et al.
2011): the point furthest above the chord, where the slope is 1 with both ranges scaled to 1. It moves with the length
of the curves, so they should end where a user would stop.

A run with a schedule of fixed length cannot stop at its target, so a single final quality at or beyond it is partly
luck. What a recipe promises is the mean, and that is tested.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from levelbench.errors import UsageError
from levelbench.measure.crossing import find_crossing, sign_of
from levelbench.measure.statistics import MeanTest, p_text, reaches_on_average
from levelbench.measure.statistics.distributions import t_quantile
from levelbench.measure.statistics.values import coefficient_of_variation
from levelbench.records import RunGroup
from levelbench.records.integrity import TRAINING_PHASES
from levelbench.records.reader import Record

__all__ = ["Cadence", "Candidate", "Proposal", "Runs", "TaskProposal", "check_evaluations", "check_shares"]
__all__ += [
    "final_line",
    "final_test",
    "kneedle",
    "nice_step",
    "propose_cadence",
    "propose_runs",
    "propose_target",
    "tune",
]

LEAST_SEEDS = 10
LEAST_EVALUATIONS = 8
FLAT = 3.0
# With more, five runs per arm miss a factor of 1.5 between two recipes: 2.31 x 0.25 x sqrt(2 / 5) > ln 1.44.
LARGEST_CV = 0.25
LEAST_BEND = 0.1
SHOWN_BEFORE_KNEE = 5
_TOO_COARSE = "no knee: it lies before the second evaluation; evaluate more often"
_FINER = 4
"""How many times as often to evaluate then."""

_Curve = np.ndarray[tuple[int], np.dtype[np.float64]]
_Curves = np.ndarray[tuple[int, int], np.dtype[np.float64]]


@dataclass(frozen=True)
class Candidate:
    """One round value as a candidate for the target.

    ``reached`` of the seeds confirmed it, at ``crossing`` (median, in the unit of x; ``None`` if none did) with the
    coefficient of variation ``cv``. ``slope`` is d(x) / d(threshold) on the median curve. ``conditioning`` is the same
    as a share of the schedule over a share of the quality range (1 at the knee, flat above 3); both are infinite at the
    top. ``quantisation`` is the evaluation interval there over the crossing: the cost of one more evaluation.
    ``finding`` is ``good``, ``steep``, ``flat``, ``unreached`` or ``scattered`` (``cv`` above 0.25).
    """

    threshold: float
    reached: int
    crossing: float | None
    cv: float | None
    slope: float
    conditioning: float
    quantisation: float | None
    finding: str


@dataclass(frozen=True)
class Proposal:
    """The proposed ``target`` (``None`` if there is no good one) with its ``reason``, and the table of candidates."""

    target: float | None
    knee_x: float | None
    knee_quality: float | None
    seeds: int
    candidates: tuple[Candidate, ...]
    reason: str


@dataclass(frozen=True)
class _Study:
    """The original curves, and the median curve with its running best, on a scale where higher is better."""

    curves: _Curves
    x: _Curve
    best: _Curve
    sign: float
    step: float

    @property
    def direction(self) -> str:
        return "higher" if self.sign > 0 else "lower"

    @property
    def ranges(self) -> tuple[float, float]:
        return float(self.x[-1] - self.x[0]), float(self.best[-1] - self.best[0])

    def arrival(self, quality: float) -> float:
        """The x at which the median curve reaches ``quality`` (higher is better), infinite if it does not."""
        if quality > self.best[-1]:
            return math.inf
        after = int(np.searchsorted(self.best, quality))
        if after == 0:
            return float(self.x[0])
        q0, q1, x0, x1 = (float(v) for v in (*self.best[after - 1 : after + 1], *self.x[after - 1 : after + 1]))
        return x0 + (quality - q0) / (q1 - q0) * (x1 - x0)


def propose_target(
    curves: ArrayLike, x: Sequence[float] | None = None, *, direction: str = "higher", step: float | None = None
) -> Proposal:
    """Propose the target of a task from its learning curves.

    ``curves`` has qualities, evaluations x seeds (at least 8 evaluations and 10 seeds; NaN where a seed diverged),
    ``x`` the position of each evaluation (epochs, steps or seconds; 1, 2, 3, ... if omitted). Candidates are multiples
    of ``step``, by default the largest of 1, 2 or 5 times a power of ten that divides the range in 50.

    The proposal is the hardest candidate (the highest, if higher is better) after the knee that *all* seeds reach
    (confirmed by two evaluations in a row), with a conditioning of at most 3 and crossings that vary by at most 25 %.
    If there is none, it is the hardest candidate *before* the knee that all seeds reach with as little variation, and
    the reason says so. Raises ``UsageError`` for fewer curves or a malformed ``x``.
    """
    study = _study(curves, x, direction, step)
    seeds = study.curves.shape[1]
    knee = _knee(study)
    if isinstance(knee, str):
        return Proposal(None, None, None, seeds, (), knee)
    lowest = float(study.best[knee]) - SHOWN_BEFORE_KNEE * study.step
    values = _round_values(max(lowest, float(study.best[0])), float(np.nanmax(study.sign * study.curves)), study.step)
    table = [_candidate(study, value, float(study.best[knee])) for value in values]
    # One value that no seed reaches shows where the table ends.
    candidates = tuple(table[: 1 + next((i for i, c in enumerate(table) if not c.reached), len(table))])
    good = [candidate for candidate in candidates if candidate.finding == "good"]
    before = [each for each in candidates if each.finding == "steep" and each.reached == seeds and _narrow(each.cv)]
    chosen = next(iter([*reversed(good), *reversed(before)]), None)
    return Proposal(
        None if chosen is None else chosen.threshold,
        float(study.x[knee]),
        study.sign * float(study.best[knee]),
        seeds,
        candidates,
        _reason(chosen, candidates, study),
    )


def _study(curves: ArrayLike, x: Sequence[float] | None, direction: str, step: float | None) -> _Study:
    sign = sign_of(direction)
    asked, table = "a target from learning curves", np.asarray(curves, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] < LEAST_EVALUATIONS or table.shape[1] < LEAST_SEEDS:
        needed = f"give at least {LEAST_EVALUATIONS} evaluations of at least {LEAST_SEEDS} seeds"
        raise UsageError(asked, f"curves of shape {table.shape} (evaluations x seeds)", needed)
    at = np.arange(1.0, len(table) + 1.0) if x is None else np.asarray(x, dtype=np.float64)
    if at.shape != (len(table),) or not np.isfinite(at).all() or not (np.diff(at) > 0).all() or at[0] < 0:
        raise UsageError(
            asked, "the positions do not increase from evaluation to evaluation", "give one x per evaluation"
        )
    # A seed that diverged is worse than any other, not missing.
    median = np.median(np.where(np.isfinite(table), sign * table, -np.inf), axis=1)
    if not np.isfinite(median).all():
        raise UsageError(asked, "at least half of the seeds have no finite quality", "fix the recipe first")
    best = np.maximum.accumulate(median)
    if step is not None and not step > 0:
        raise UsageError(asked, f"a step of {step} between candidates", "give a step above zero")
    return _Study(table, at, best, sign, step or nice_step(float(best[-1] - best[0]) / 50.0))


def nice_step(value: float) -> float:
    """The largest of 1, 2 or 5 times a power of ten that is not above ``value``; 1 for a curve without a range."""
    if value <= 0.0:
        return 1.0
    power = math.floor(math.log10(value))
    digit = max(d for d in (1, 2, 5) if d <= value / 10.0**power + 1e-9)
    return float(f"{digit}e{power}")


def _knee(study: _Study) -> int | str:
    """The evaluation at the knee, or the reason why there is none."""
    return kneedle(study.x, study.best)


def kneedle(x: _Curve, best: _Curve) -> int | str:
    """The index of the knee of a rising curve, or the reason why there is none (Satopää et al. 2011).

    ``x`` increases, ``best`` never falls; both have the same length, two or more.
    """
    x_range, q_range = float(x[-1] - x[0]), float(best[-1] - best[0])
    if q_range <= 0.0:
        return "no knee: the quality does not improve after the first evaluation"
    bend = (best - best[0]) / q_range - (x - x[0]) / x_range
    knee = int(np.argmax(bend))
    if bend[knee] < LEAST_BEND:
        return "no knee: the curves are still climbing at their end; train longer"
    if knee == 1:
        return _TOO_COARSE
    return knee


def _round_values(low: float, high: float, step: float) -> list[float]:
    digits = max(0, 1 - math.floor(math.log10(step))) + 1
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, digits) for i in range(first, last + 1)]


def _candidate(study: _Study, value: float, knee_quality: float) -> Candidate:
    """The table's line for ``value`` (higher is better)."""
    threshold = study.sign * value
    found = (find_crossing(c, threshold, direction=study.direction, x=list(study.x)) for c in study.curves.T.tolist())
    crossings = [c.position for c in found if c is not None and c.position is not None]
    crossing = float(np.median(crossings)) if crossings else None
    cv = coefficient_of_variation(crossings) if len(crossings) > 1 else None
    x_range, q_range = study.ranges
    after = study.arrival(value + study.step)
    slope = math.inf if math.isinf(after) else (after - study.arrival(value - study.step)) / (2.0 * study.step)
    conditioning = slope * q_range / x_range
    if value < knee_quality:
        finding = "steep"
    elif len(crossings) < study.curves.shape[1]:
        finding = "unreached"
    elif conditioning > FLAT:
        finding = "flat"
    else:
        finding = "good" if _narrow(cv) else "scattered"
    quantisation = None if crossing is None else _quantisation(study.x, crossing)
    return Candidate(threshold, len(crossings), crossing, cv, study.sign * slope, conditioning, quantisation, finding)


def _quantisation(x: _Curve, crossing: float) -> float:
    index = max(1, int(np.searchsorted(x, crossing)))
    return float(x[index] - x[index - 1]) / crossing


def _narrow(cv: float | None) -> bool:
    return cv is not None and cv <= LARGEST_CV


def _reason(chosen: Candidate | None, candidates: Sequence[Candidate], study: _Study) -> str:
    seeds, hardest = study.curves.shape[1], "highest" if study.sign > 0 else "lowest"
    if chosen is not None and chosen.finding == "good":
        return (
            f"the {hardest} round value after the knee that all {seeds} seeds reach, confirmed, on a slope of "
            f"{chosen.conditioning:.2g} (1 at the knee, {FLAT:g} flat)"
        )
    found = sorted({candidate.finding for candidate in candidates} - {"steep"})
    none = f"no round value after the knee is suitable: {', '.join(found) or 'the step between them is too wide'}"
    if chosen is None:
        return none
    return f"{none}; this is the {hardest} before it that all {seeds} seeds reach, confirmed, without scattering"


COST = 0.05
"""The share of a run that evaluations may take (MLPerf Training's advice to benchmark owners)."""
_MOST_RUNS = 1000
_COARSE = 1 / 3
"""The share of the way to the target that one interval may be."""


@dataclass(frozen=True)
class Cadence:
    """How often to evaluate.

    ``every`` is written as in a task file, ``steps`` is the same in steps. ``cost`` is the resulting share of a run
    that evaluations take, ``quantisation`` is one interval over the crossing. ``now`` and ``now_cost`` are the values
    of the recorded runs. ``shown`` is how many evaluations of the curves are one of this cadence: the curves are
    evaluated at the cadence by reading only every so many. ``crossing`` is the median crossing then (in epochs, as
    confirmed by two evaluations of the cadence; ``None`` if no run has one), and ``reached`` the number of runs.
    ``reason`` says which cadence the curves cannot show; empty if the proposed one is as wanted. ``coarse`` says what
    to do where one interval is more than a third of the median crossing of the curves as recorded; else it is empty.
    """

    every: str
    steps: int
    cost: float
    quantisation: float | None
    now: str
    now_cost: float
    evaluation_s: float
    step_s: float
    shown: int = 1
    crossing: float | None = None
    reached: int = 0
    reason: str = ""
    coarse: str = ""


@dataclass(frozen=True)
class Runs:
    """The number of runs ``needed`` for a 95 % interval of +- ``width`` around the time to accuracy.

    ``None`` if a thousand are too few, or fewer than two runs reached the target. ``deviation`` is the deviation of the
    logs of the ``times`` to the target, ``width_now`` the half-width from the recorded runs.
    """

    needed: int | None
    width: float
    deviation: float | None
    width_now: float | None
    reached: int
    n: int


@dataclass(frozen=True)
class TaskProposal:
    """All three proposals for one recipe; without a target, ``cadence`` and ``runs`` are ``None``."""

    target: Proposal
    cadence: Cadence | None
    runs: Runs | None
    metric: str
    split: str
    final: float
    """The median quality at the end."""


def check_shares(cost: float, width: float) -> None:
    """Raise ``UsageError`` for an impossible share, before any run is made."""
    for name, value in (("cost", cost), ("width", width)):
        if not 0 < value < 1:
            raise UsageError(
                f"a {name} of {value:g}", "it is not a share", "give one between 0 and 1: 0.05 is 5 per cent"
            )


def check_evaluations(count: int, every: str, epochs: float) -> None:
    """Raise ``UsageError`` for curves with too few evaluations, before any run is made."""
    if count < LEAST_EVALUATIONS:
        raise UsageError(
            f"a target from curves of {epochs:g} epochs, evaluated every {every}",
            f"that is {count} evaluation{'s' * (count != 1)}, but finding a knee takes at least {LEAST_EVALUATIONS}",
            "train longer (--epochs, or [epochs=...] for a schedule of fixed length) or evaluate more often (--every), "
            f"at least once in {epochs / LEAST_EVALUATIONS:.3g} epochs",
        )


def tune(
    records: Sequence[Record], *, step: float | None = None, cost: float = COST, width: float = 0.05
) -> TaskProposal:
    """Propose target, cadence and number of runs from finished runs of one specification.

    ``step`` rounds the target, ``cost`` is the share that evaluations may take, ``width`` the desired half-width of the
    interval, as a share of the time. Raises ``UsageError`` for too few runs or evaluations.
    """
    if not records:
        raise UsageError("a proposal for a task", "there is no finished run", "finish some runs first")
    check_shares(cost, width)
    target = records[0].header.specification.target
    length = min(len(record.evaluations) for record in records)
    curves = np.array([[each.quality[target.split] for each in record.evaluations[:length]] for record in records]).T
    epochs = [each.epoch for each in records[0].evaluations[:length]]
    proposal = propose_target(curves, epochs, direction=target.direction, step=step)
    final = float(np.median(curves[-1]))
    if proposal.reason == _TOO_COARSE and (shorter := _steps_between(records[0]) // _FINER):
        every = _interval_text(shorter, _costs(records)[2])
        proposal = replace(proposal, reason=f'{_TOO_COARSE} (--every "{every}")')
    if proposal.target is None:
        return TaskProposal(proposal, None, None, target.metric, target.split, final)
    cadence = propose_cadence(records, cost, proposal.target)
    arrivals = [_arrival(record, proposal.target, cadence.shown) for record in records]
    reached = [arrival[1] for arrival in arrivals if arrival is not None]
    runs = propose_runs(reached, len(records), width)
    return TaskProposal(proposal, cadence, runs, target.metric, target.split, final)


def propose_cadence(records: Sequence[Record], cost: float = COST, threshold: float | None = None) -> Cadence:
    """The shortest interval that the curves can show whose evaluations take at most the share ``cost`` of a run.

    Curves show the interval at which they were evaluated, and its multiples, by leaving evaluations out. An interval at
    which fewer runs confirm ``threshold`` (by default the runs' own target) than at the recorded one is not proposed:
    then it is the longest that all of them show. With e seconds per evaluation and s per step, k steps cost
    e / (e + k s).
    """
    evaluation_s, step_s, per_epoch = _costs(records)
    now = _steps_between(records[0])
    target = records[0].header.specification.target
    aim = target.threshold if threshold is None else threshold
    length = min(len(record.evaluations) for record in records)

    def at(multiple: int, reason: str = "") -> Cadence:
        arrivals = [_arrival(record, aim, multiple) for record in records]
        epochs = [each[0] for each in arrivals if each is not None]
        steps, crossing = multiple * now, float(np.median(epochs)) if epochs else None
        return Cadence(
            every=_interval_text(steps, per_epoch),
            steps=steps,
            cost=evaluation_s / (evaluation_s + steps * step_s),
            quantisation=steps / per_epoch / crossing if crossing else None,
            now=records[0].header.specification.evaluate_every,
            now_cost=evaluation_s / (evaluation_s + now * step_s),
            evaluation_s=evaluation_s,
            step_s=step_s,
            shown=multiple,
            crossing=crossing,
            reached=len(epochs),
            reason=reason,
        )

    shown = [at(1)]
    for multiple in _multiples(now, per_epoch, length // 2):
        if shown[-1].cost <= cost:
            break
        found = at(multiple)
        if found.reached < shown[0].reached:
            why = f"at {found.every} only {found.reached} of the {shown[0].reached} runs that reach it would confirm it"
            why = f"{why}, before the curves end: train longer (--epochs)"
            return replace(shown[-1], reason=why, coarse=_coarse(shown, per_epoch))
        shown.append(found)
    if shown[-1].cost > cost:
        why = f"a longer interval leaves fewer than two evaluations of the curves ({length} each)"
        why = f"{why}: train longer (--epochs)"
        return replace(shown[-1], reason=why, coarse=_coarse(shown, per_epoch))
    if len(shown) == 1 and shown[0].cost < cost / 2 and now > 1:
        # As short as its cost allows, e / (e + k s).
        least = min(now - 1, max(1, math.ceil(evaluation_s * (1 - cost) / (cost * step_s)))) if step_s > 0 else 1
        every = _interval_text(least, per_epoch)
        why = "the curves cannot show a shorter interval: evaluate them more often"
        return replace(shown[0], reason=f'{why} (--every "{every}")')
    return replace(shown[-1], coarse=_coarse(shown, per_epoch))


def _coarse(shown: Sequence[Cadence], per_epoch: float) -> str:
    """What to do if the last interval is a large part of the way to the target; ``shown`` begins with the recorded."""
    found, recorded = shown[-1], shown[0].crossing
    if recorded is None or found.steps / per_epoch <= _COARSE * recorded:
        return ""
    finer = [each for each in shown if each.steps / per_epoch <= _COARSE * recorded]
    # Rounded up, so that this share is enough.
    percent = math.ceil(100 * finer[-1].cost) if finer else 100
    option = f"--cost {percent / 100:g}" if percent < 100 else "--cost, and curves with a shorter --every"
    # Nothing is finer than a step.
    more = f"allow evaluations a larger share ({option}), make them cheaper or " * bool(finer or shown[0].steps > 1)
    return (
        f"{found.every} is {found.steps / per_epoch / recorded:.0%} of the {recorded:.3g} epochs (median) after which "
        f"the curves confirm the target, so the crossing will be coarse: {more}choose a higher target"
    )


def _steps_between(record: Record) -> int:
    first = record.evaluations
    return first[1].step - first[0].step if len(first) > 1 else first[0].step


def _multiples(now: int, per_epoch: float, most: int) -> list[int]:
    """The multiples of ``now`` steps up to ``most`` that are round (2, 5, 10, 20, 25, 50, ...) or whole epochs."""
    found = []
    for multiple in range(2, most + 1):
        steps = multiple * now
        whole = abs(steps / per_epoch - round(steps / per_epoch)) < 1e-9
        round_number = multiple / 10 ** math.floor(math.log10(multiple)) in (1, 2, 2.5, 5)
        if whole or round_number:
            found.append(multiple)
    return found


def _interval_text(steps: int, per_epoch: float) -> str:
    """An interval as it is written in a task file."""
    epochs = steps / per_epoch
    number, unit = (round(epochs), "epoch") if abs(epochs - round(epochs)) < 1e-9 and round(epochs) else (steps, "step")
    return f"{number} {unit}{'s' * (number > 1)}"


def propose_runs(times_s: Sequence[float], n: int, width: float) -> Runs:
    """The smallest number of runs whose 95 % interval of the mean of the logs is within +- ``width``.

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


def _arrival(record: Record, threshold: float, multiple: int) -> tuple[float, float] | None:
    """Epochs and seconds to the confirmed target if only every ``multiple``-th evaluation is made; ``None`` for a miss.

    The evaluations that are left out take no time.
    """
    target, kept = record.header.specification.target, record.evaluations[multiple - 1 :: multiple]
    qualities = [each.quality[target.split] for each in kept]
    numbers = [float(at) for at in range(1, len(kept) + 1)]
    found = find_crossing(qualities, threshold, direction=target.direction, rule="confirmed", x=numbers)
    if found is None or found.position is None:
        return None
    number = round(found.position)
    at, last = kept[number - 1], record.evaluations[-1]
    evaluation_s = last.phases_ns.get("evaluate", 0) * 1e-9 / len(record.evaluations)
    return at.epoch, at.t_ns * 1e-9 - number * (multiple - 1) * evaluation_s


def _costs(records: Sequence[Record]) -> tuple[float, float, float]:
    """Seconds per evaluation and per step, medians over the runs, and steps per epoch."""
    evaluations, steps, per_epoch = [], [], []
    for record in records:
        last = record.evaluations[-1]
        evaluations.append(last.phases_ns.get("evaluate", 0) * 1e-9 / len(record.evaluations))
        steps.append(sum(last.phases_ns.get(phase, 0) for phase in TRAINING_PHASES) * 1e-9 / last.step)
        per_epoch.append(last.step / last.epoch)
    found = [float(np.median(values)) for values in (evaluations, steps, per_epoch)]
    if not found[1] > 0:
        raise UsageError("how often to evaluate", "the records have no training time", "give runs that trained")
    return found[0], found[1], found[2]


def final_test(group: RunGroup) -> MeanTest | None:
    """The one-sided test that the mean final quality reaches the target; ``None`` for another crossing rule.

    If the final quality of a run is not finite (it diverged), there is no mean, so nothing is shown: p = 1.
    """
    runs = [run for run in group.runs if run.status == "done" and run.crossing == "final"]
    target = group.specification.target
    qualities = [run.quality[target.split] for run in runs if target.split in run.quality]
    if not qualities:
        return None
    if not all(map(math.isfinite, qualities)):
        return MeanTest(math.nan, 1.0 if len(qualities) > 1 else None, False, len(qualities))
    return reaches_on_average(qualities, target.threshold, target.direction)


def final_line(group: RunGroup, *, brief: bool = False) -> str | None:
    """The test in words, or in a few if it is to be ``brief``."""
    found = final_test(group)
    if found is None:
        return None
    target = group.specification.target
    sign = ">=" if target.direction == "higher" else "<="
    name = f"{group.label}: {target.name(group.specification.scored_by)}"
    if math.isnan(found.mean):
        what = f"{name} at the end is not a number in at least one of {found.n}"
        return f"{what}; {sign} {target.threshold:g} is not shown"
    mean = f"{name} at the end is {found.mean:.4f} on average over {found.n} runs"
    if found.p_value is None:
        return f"{mean}; testing whether that is {sign} {target.threshold:g} takes at least two runs"
    outcome = "shown" if found.reached else "not shown"
    if brief:
        return f"{group.label}: {found.mean:.4f} at the end; {sign} {target.threshold:g} is {outcome}"
    return f"{mean}; {sign} {target.threshold:g} is {outcome} (one-sided t test, {p_text(found.p_value)})"
