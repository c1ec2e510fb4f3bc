"""Why one side takes less time, down to its operators: factors that multiply back to the ratio, with intervals.

For each run, time to target = samples to target x time per sample, and time per sample is a sum of parts: the phases of
the run and, where a profile was made, the operators within forward and backward. A sum does not factor by itself. The
logarithmic mean makes it do so exactly (LMDI: Ang 2004, Energy Policy 32:1131; 2015, Energy Policy 86:233): with
L(x, y) = (y - x) / ln(y / x), the part p of a pair of runs contributes (b_p - a_p) / L(a, b) to the logarithm of the
ratio, and these contributions sum to ln(b / a), whichever parts are zero or negative.

Runs with the same seeds are taken in pairs, and a factor is the mean contribution over the pairs, with Student's
interval. Otherwise it is the mean over all pairs of a run of a and a run of b, a two-sample U statistic, with Welch's
interval on the means by run (Hoeffding 1948). For the whole time this is exactly the test that a verdict uses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from levelbench.analysis.trajectory import Trajectories
from levelbench.errors import UsageError
from levelbench.measure.statistics import Interval, t_quantile
from levelbench.records import RunGroup, RunSummary

__all__ = ["SAMPLES", "Factor", "OperatorShares", "Why", "explain", "log_mean_of"]

Matrix = NDArray[np.float64]

SAMPLES, PER_SAMPLE = "samples to target", "time per sample"
OVERHEAD, OTHERS = "framework overhead", "other operators"
_PARTS = {
    "prepare": "preparation",
    "compile": "compilation",
    "data": "data",
    "forward": "forward",
    "backward": "backward",
    "communicate": "communication",
    "update": "optimizer",
    "evaluate": "evaluation",
    "checkpoint": "checkpoints",
    "other": "other",
    "train": "training step",
}
"""What the phases of a timeline are called as parts of a step; an unknown phase keeps its name."""
_LEAST = 3
_MOST_RUNS = 2000
"""The earliest runs are split where there are more: all pairs of both sides are looked at."""
_SHOWN_GROUPS = 5
_NO_SPREAD = 1e-12


@dataclass(frozen=True)
class OperatorShares:
    """What operators take of the forward and the backward pass on one side: one share a process, by type.

    Shape of each: (processes,). The rest of a pass is the framework's overhead, negative where the framework runs the
    whole faster than its parts.
    """

    forward: Mapping[str, Sequence[float]]
    backward: Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Factor:
    """One factor of the ratio b / a. ``within`` names the factor that it is a part of; empty for the whole time's.

    The factors with the same ``within`` multiply to that factor, exactly. ``a`` and ``b`` are what each side needs:
    samples, or seconds a sample (means over the runs). ``interval`` is ``None`` where the runs allow none.
    """

    name: str
    within: str
    ratio: float
    interval: Interval | None
    a: float
    b: float

    @property
    def log_ratio(self) -> float:
        """The contribution to the logarithm of the whole ratio; contributions add up."""
        return math.log(self.ratio)


@dataclass(frozen=True)
class Why:
    """Why ``b`` takes ``ratio`` times as long as ``a``, for the runs that reached the target.

    ``factors`` stand level by level, the biggest first within each. ``hidden`` is the share of the communication that
    was hidden behind computation on each side, where it was recorded. ``lacks`` says what could not be split, why, and
    how to get it; without a ``ratio`` nothing could.
    """

    a: str
    b: str
    n: tuple[int, int]
    paired: bool
    ratio: float | None
    interval: Interval | None
    factors: tuple[Factor, ...]
    hidden: tuple[float | None, float | None]
    trajectories: Trajectories | None
    lacks: tuple[str, ...]
    level: float

    def within(self, name: str) -> tuple[Factor, ...]:
        """The factors that multiply to the factor called ``name``; those of the whole time for an empty name."""
        return tuple(each for each in self.factors if each.within == name)

    def line(self) -> str:
        """The answer in one sentence."""
        if self.ratio is None:
            return f"why {self.b} differs from {self.a} cannot be said"
        known = self.interval
        # The verdict has the interval; a figure that may be on either side of 1 must not stand here without it.
        open_ = known is not None and known.low <= 1.0 <= known.high
        bounds = f" [{_short(known.low)}, {_short(known.high)}]" if known is not None and open_ else ""
        takes = f"{self.b} takes {_short(self.ratio)}{bounds} times as long as {self.a}"
        factors = self.within("")
        most = _most(self.within(factors[-1].name if len(factors) == 1 else PER_SAMPLE))
        words = [_effect(each) for each in factors] if len(factors) > 1 else []
        if most is not None and words:
            at = next(at for at, each in enumerate(factors) if each.name == PER_SAMPLE)
            words[at] += f", mostly {most.name}" if at == len(words) - 1 else f" (mostly {most.name})"
        return f"{takes}: {', '.join(words)}" if words else f"{takes}{f', mostly {most.name}' if most else ''}"


def _short(ratio: float) -> str:
    return f"{ratio:.3g}" if ratio >= 10 or ratio < 0.1 else f"{ratio:.2g}"


def _effect(factor: Factor) -> str:
    if factor.name != SAMPLES:
        return f"{_short(factor.ratio)} from {factor.name}"
    if abs(factor.log_ratio) < _NO_SPREAD:
        return "as many samples to the target"
    return f"{_short(factor.ratio)} from {'fewer' if factor.ratio < 1 else 'more'} samples to the target"


def _most(parts: Sequence[Factor]) -> Factor | None:
    """The part that pulls in the direction of the whole by more than all others that do together, if there is one."""
    whole = sum(each.log_ratio for each in parts)
    same = [abs(each.log_ratio) if each.log_ratio * whole > 0 else 0.0 for each in parts]
    return next((each for each, pull in zip(parts, same, strict=True) if pull > 0.5 * sum(same)), None)


def explain(
    a: RunGroup,
    b: RunGroup,
    *,
    profiles: tuple[OperatorShares, OperatorShares] | None = None,
    hidden: tuple[float | None, float | None] = (None, None),
    trajectories: Trajectories | None = None,
    lacks: Sequence[str] = (),
    level: float = 0.95,
) -> Why:
    """Split the ratio of the times of ``b`` and ``a`` that reached the target.

    ``profiles`` split forward and backward further. ``lacks`` are what the caller knows to be missing. Raises
    ``UsageError`` for a level that is none. The gate (``records.comparable``) is the caller's, as in ``compare``.
    """
    if not 0 < level < 1:
        raise UsageError(f"a level of {level:g}", "it is no probability", "give one such as 0.95")
    runs_a, runs_b, paired = _chosen(a, b)
    missing = [*_missing(a, b, runs_a, runs_b), *lacks]
    empty = Why(a.label, b.label, (len(runs_a), len(runs_b)), paired, None, None, (), hidden, trajectories, (), level)
    if not runs_a or not runs_b:
        return replace(empty, lacks=tuple(missing))
    times = [np.array([run.time_to_accuracy_s or 0.0 for run in runs]) for runs in (runs_a, runs_b)]
    counted = all(run.samples_to_target for run in (*runs_a, *runs_b))
    if not counted:
        do = "say how many it has seen"
        missing.append(f"the runs do not count samples, so the whole time is split by phase alone: {do}")
    samples = [np.array([float(run.samples_to_target or 1) if counted else 1.0 for run in r]) for r in (runs_a, runs_b)]
    names = list(dict.fromkeys(name for run in (*runs_a, *runs_b) for name in _counted_phases(run)))
    parts = [
        np.array([[_counted_phases(run).get(name, 0.0) for name in names] for run in runs]) / count[:, None]
        for runs, count in zip((runs_a, runs_b), samples, strict=True)
    ]
    # The phases sum to the score by construction, up to rounding, and the identity shall hold exactly.
    parts = [
        part * (time / count / part.sum(axis=1))[:, None]
        for part, time, count in zip(parts, times, samples, strict=True)
    ]
    split = _Split(parts[0], parts[1], paired, level)
    per_sample = split.factor(PER_SAMPLE, "", np.ones(len(names)))
    whole = _logs(times[0], times[1], paired, level, "the time", "")
    factors = [_logs(samples[0], samples[1], paired, level, SAMPLES, ""), per_sample] if counted else [per_sample]
    if not counted:
        factors = [replace(per_sample, name="time")]
    head = factors[-1].name
    phases = [split.factor(_PARTS.get(name, name), head, np.eye(len(names))[at]) for at, name in enumerate(names)]
    inner = _operators(split, names, profiles) if profiles is not None else []
    missing += _spread_lacks(runs_a, runs_b, whole, paired, level)
    missing += [
        f"the operators of {each.within} take longer one by one than the pass in the runs, so {OVERHEAD} there is "
        "below zero: its parts are only as good as the profile"
        for each in inner
        if min(each.a, each.b) < 0
    ]
    return replace(
        empty,
        ratio=whole.ratio,
        interval=whole.interval,
        factors=(*_biggest_first(factors), *_biggest_first(phases), *inner),
        lacks=tuple(missing),
    )


def _biggest_first(factors: Sequence[Factor]) -> list[Factor]:
    return sorted(factors, key=lambda each: -abs(each.log_ratio))


def _reached(group: RunGroup) -> list[RunSummary]:
    found = [run for run in group.runs if run.reached and run.time_to_accuracy_s]
    return sorted(found, key=lambda run: (run.seed, run.started))


def _chosen(a: RunGroup, b: RunGroup) -> tuple[list[RunSummary], list[RunSummary], bool]:
    """The runs to split, and whether they are pairs: arms with the same seeds, as a verdict takes them."""
    runs_a, runs_b = _reached(a), _reached(b)
    seeds_a, seeds_b = ([run.seed for run in group.runs] for group in (a, b))
    paired = sorted(seeds_a) == sorted(seeds_b) and len(set(seeds_a)) == len(seeds_a)
    if paired:
        both = {run.seed for run in runs_a} & {run.seed for run in runs_b}
        paired = bool(both)
    if paired:
        runs_a, runs_b = ([run for run in runs if run.seed in both] for runs in (runs_a, runs_b))
    return runs_a[:_MOST_RUNS], runs_b[:_MOST_RUNS], paired


def _counted_phases(run: RunSummary) -> dict[str, float]:
    """Seconds by phase, without what the clock policy leaves out."""
    found = {name: seconds - run.excluded_s.get(name, 0.0) for name, seconds in run.phases_s.items()}
    return {name: seconds for name, seconds in found.items() if seconds > 0}


def _missing(a: RunGroup, b: RunGroup, runs_a: Sequence[RunSummary], runs_b: Sequence[RunSummary]) -> list[str]:
    """What censored runs forbid."""
    found = []
    for group, runs in ((a, _reached(a)), (b, _reached(b))):
        if not group.n:
            found.append(f"no run of {group.label} has ended: make some (levelbench run)")
        elif not runs:
            found.append(
                f"no run of {group.label} reached the target ({group.n} tried): its samples to target are unknown, and "
                "so is their share; give it more time (--epochs, --budget) or read all runs at a lower --target"
            )
        elif len(runs) < group.n:
            found.append(
                f"{group.n - len(runs)} of {group.n} runs of {group.label} missed the target: what that costs is in "
                "the verdict and in no factor, for how many samples they would have needed is unknown"
            )
    most = max(len(_reached(a)), len(_reached(b)))
    if most > _MOST_RUNS:
        found.append(f"of {most} runs a side the first {_MOST_RUNS} by seed are split")
    if runs_a and runs_b and min(len(runs_a), len(runs_b)) < _LEAST:
        found.append(
            "fewer than three runs of a side reached the target: factors have no interval (levelbench run -n 5)"
        )
    return found


def _spread_lacks(
    runs_a: Sequence[RunSummary], runs_b: Sequence[RunSummary], whole: Factor, paired: bool, level: float
) -> list[str]:
    if min(len(runs_a), len(runs_b)) < _LEAST or whole.interval is not None:
        return []
    return [
        "the times do not vary at all, which measured times do: they are copies or rounded, and no interval is given "
        "(make runs of your own)"
    ]


class _Split:
    """Contributions of the parts of two sides; rows are runs, columns are parts that sum to the time of a run.

    ``a`` has shape (runs of a, parts), ``b`` (runs of b, parts), in seconds a sample.
    """

    def __init__(self, a: Matrix, b: Matrix, paired: bool, level: float) -> None:
        self.a, self.b, self._paired, self._level = a, b, paired, level
        total_a, total_b = a.sum(axis=1), b.sum(axis=1)
        if paired:
            weights = 1.0 / log_mean_of(total_a, total_b)
            self.from_a, self.from_b = a * weights[:, None], b * weights[:, None]
            return
        weights = 1.0 / log_mean_of(total_a[:, None], total_b[None, :])
        # The mean over all pairs, seen from each run of a and from each run of b.
        self._rows = (weights @ b) / len(b), a * weights.mean(axis=1)[:, None]
        self._columns = b * weights.mean(axis=0)[:, None], (weights.T @ a) / len(a)
        self.from_a, self.from_b = self._rows[1], self._columns[0]

    def mean_contributions(self) -> Matrix:
        """The contribution of each part to the logarithm of the ratio, shape (parts,)."""
        found: Matrix = self.from_b.mean(axis=0) - self.from_a.mean(axis=0)
        return found

    def factor(
        self,
        name: str,
        within: str,
        of_a: Matrix,
        of_b: Matrix | None = None,
        spread: tuple[tuple[float, int], ...] = (),
    ) -> Factor:
        """The factor of a part that is ``of_a`` of the columns of a and ``of_b`` of those of b (shapes (parts,)).

        ``spread`` has further squared errors of the contribution with their degrees of freedom, independent of the
        runs': those of a profile.
        """
        of_b = of_a if of_b is None else of_b
        log = float(self.from_b.mean(axis=0) @ of_b - self.from_a.mean(axis=0) @ of_a)
        if self._paired:
            errors = [_error(self.from_b @ of_b - self.from_a @ of_a)]
        else:
            first = self._rows[0] @ of_b - self._rows[1] @ of_a
            second = self._columns[0] @ of_b - self._columns[1] @ of_a
            errors = [_error(first), _error(second)]
        return _factor(
            name,
            within,
            log,
            [*errors, *spread],
            float((self.a @ of_a).mean()),
            float((self.b @ of_b).mean()),
            self._level,
            "Student's t on LMDI contributions of pairs" if self._paired else "Welch's t on LMDI contributions",
        )


def log_mean_of(x: Matrix, y: Matrix) -> Matrix:
    """The logarithmic mean of two positive arrays; their value where they are equal."""
    log = np.log(y / x)
    near = np.abs(log) < 1e-6
    safe = np.where(near, 1.0, log)
    found: Matrix = np.where(near, x * (1.0 + log / 2.0 + log * log / 6.0), x * np.expm1(safe) / safe)
    return found


def _error(values: Matrix) -> tuple[float, int]:
    """The squared standard error of the mean, and its degrees of freedom; infinite for a single value."""
    if len(values) < 2:
        return math.inf, 0
    return float(values.var(ddof=1)) / len(values), len(values) - 1


def _factor(
    name: str,
    within: str,
    log: float,
    errors: Sequence[tuple[float, int]],
    a: float,
    b: float,
    level: float,
    method: str,
) -> Factor:
    variance = sum(each for each, _ in errors)
    interval = None
    known = all(dof >= _LEAST - 1 for _, dof in errors)
    if known and variance > _NO_SPREAD**2:
        # Satterthwaite 1946; for two errors Welch's degrees of freedom.
        dof = 1.0 / sum((each / variance) ** 2 / dof for each, dof in errors)
        reach = t_quantile(0.5 + 0.5 * level, dof) * math.sqrt(variance)
        interval = Interval(math.exp(log - reach), math.exp(log + reach), level, method)
    return Factor(name, within, math.exp(log), interval, a, b)


def _logs(a: Matrix, b: Matrix, paired: bool, level: float, name: str, within: str) -> Factor:
    """The ratio of two quantities that multiply, from their logarithms."""
    first, second = np.log(a), np.log(b)
    errors = [_error(second - first)] if paired else [_error(first), _error(second)]
    method = "Student's t on logarithms of paired ratios" if paired else "Welch's t on logarithms"
    log = float(second.mean() - first.mean())
    return _factor(name, within, log, errors, float(a.mean()), float(b.mean()), level, method)


def _operators(split: _Split, names: Sequence[str], profiles: tuple[OperatorShares, OperatorShares]) -> list[Factor]:
    """The factors within forward and backward: the biggest types of operators, the others, and the overhead."""
    found: list[Factor] = []
    for phase in ("forward", "backward"):
        if phase not in names:
            continue
        place = np.eye(len(names))[names.index(phase)]
        shares = [getattr(each, phase) for each in profiles]
        titles = list(dict.fromkeys((*shares[0], *shares[1])))
        counts = [max((len(v) for v in side.values()), default=0) for side in shares]
        if not all(counts):
            continue
        # One row a process: its share of each type, then what is left.
        tables = [
            np.array([side.get(title, np.zeros(count)) for title in titles]).T
            for side, count in zip(shares, counts, strict=True)
        ]
        tables = [np.column_stack([table, 1.0 - table.sum(axis=1)]) for table in tables]
        weights = float(split.from_a.mean(axis=0) @ place), float(split.from_b.mean(axis=0) @ place)
        logs = weights[1] * tables[1].mean(axis=0) - weights[0] * tables[0].mean(axis=0)
        order = sorted(range(len(titles)), key=lambda at: -abs(logs[at]))
        groups = [([at], titles[at]) for at in order[:_SHOWN_GROUPS]]
        if rest := order[_SHOWN_GROUPS:]:
            groups.append((rest, OTHERS))
        groups.append(([len(titles)], OVERHEAD))
        own = []
        for places, name in groups:
            side_a, side_b = (table[:, places].sum(axis=1) for table in tables)
            spread = tuple(
                (weight**2 * error, dof)
                for weight, (error, dof) in zip(weights, map(_error, (side_a, side_b)), strict=True)
            )
            own.append(split.factor(name, phase, place * side_a.mean(), place * side_b.mean(), spread))
        found += _biggest_first(own)
    return found
