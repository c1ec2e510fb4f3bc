"""Why one side takes less time, down to its operators: factors that multiply back to the ratio, with intervals.

For each run, time to target = fixed costs + samples to target x time per sample. Fixed costs do not grow with the
samples: preparation, compilation, and what the first steps and the first evaluation took beyond the usual ones, in
which frameworks compile. Time per sample is a sum of parts: the phases of the run and, where a
profile was made, the operators within forward and backward. A sum does not factor by itself. The logarithmic mean
makes it do so exactly (LMDI: Ang 2004, Energy Policy 32:1131; 2015, Energy Policy 86:233): with L(x, y) = (y - x) /
ln(y / x), the part p of a pair of runs contributes (b_p - a_p) / L(a, b) to the logarithm of the ratio, and these
contributions sum to ln(b / a), whichever parts are zero or negative. What is not fixed, R, so contributes w ln(R_b /
R_a) with w = L(R_a, R_b) / L(a, b), which is a sum of logarithms of samples and of time per sample.

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

from levelbench.analysis.attribution import WARM_UP, WarmUp, counted_phases
from levelbench.analysis.ties import Jumps, jumps_of, widened
from levelbench.analysis.trajectory import Trajectories
from levelbench.errors import UsageError
from levelbench.measure.statistics import Interval, geometric_mean, t_quantile
from levelbench.measure.verdict import Verdict
from levelbench.records import RunGroup, RunSummary

__all__ = ["FIXED", "SAMPLES", "Factor", "OperatorShares", "Why", "explain", "log_mean_of"]

Matrix = NDArray[np.float64]

SAMPLES, PER_SAMPLE, FIXED = "samples to target", "time per sample", "fixed costs"
OVERHEAD, OTHERS = "framework overhead", "other operators"
_PARTS = {
    "prepare": "preparation",
    "compile": WARM_UP,
    "data": "data",
    "forward": "forward",
    "backward": "backward",
    "communicate": "communication",
    "update": "optimizer",
    "evaluate": "evaluation",
    "checkpoint": "checkpoints",
    "other": "other",
    "train": "training step",
    "environment": "environment",
}
"""What the phases of a timeline are called as parts of a step; an unknown phase keeps its name."""
_ONCE = ("prepare", "compile")
"""Phases that do not grow with the samples."""
_UNSAID = 0.005
"""Fixed costs with a smaller contribution are not in the sentence."""
_APART = 0.01
"""A ratio of samples that is further from its factor of the time, in logarithms, is in the sentence, too."""
_LEAST = 3
_MOST_RUNS = 2000
"""The earliest runs are split where there are more: all pairs of both sides are looked at."""
_SHOWN_GROUPS = 5
_NO_SPREAD = 1e-12
_NOT_ALONE = ("not interleaved", "not run by run", "widened by")
"""What a verdict says whose interval allows for more than the spread of the runs, which is all that factors see."""


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

    ``ratio`` is what it makes of the whole time: twice the samples, where fixed costs take most of it, are a factor
    far below 2. The factors with the same ``within`` multiply to that factor, exactly. ``a`` and ``b`` are what each
    side needs, and ``of_sides`` is b / a, ``None`` where a side has none: samples and seconds a sample as geometric
    means over the runs, as in a verdict. A part of the time per sample is its share of that, where each run has the
    weight that it has in the factors, so parts sum to the whole. Fixed costs, which may be zero, are arithmetic means.
    ``interval`` is ``None`` where the runs allow none.
    """

    name: str
    within: str
    ratio: float
    interval: Interval | None
    a: float
    b: float
    of_sides: float | None = None

    @property
    def differs(self) -> bool:
        """Whether it is not 1 within its interval, if it has one."""
        return self.interval is None or not self.interval.low <= 1.0 <= self.interval.high

    @property
    def log_ratio(self) -> float:
        """The contribution to the logarithm of the whole ratio; contributions add up."""
        return math.log(self.ratio)


@dataclass(frozen=True)
class Why:
    """Why ``b`` takes ``ratio`` times as long as ``a``, for the runs that reached the target.

    ``missed`` counts those that did not. ``factors`` stand level by level, the biggest first within each. ``hidden`` is
    the share of the communication that was hidden behind computation on each side, where it was recorded. ``lacks``
    says what could not be split, why, and how to get it; without a ``ratio`` nothing could.
    """

    a: str
    b: str
    n: tuple[int, int]
    missed: tuple[int, int]
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
            return f"why {self.b} differs from {self.a} {self.reasons()}"
        takes = f"{self.b} takes {self._size()} times as long as {self.a}{self.condition}"
        return f"{takes}: {factors}" if (factors := self._factors()) else takes

    def reasons(self) -> str:
        """The factors alone; empty if there is only one, with no part that says most."""
        if self.ratio is None:
            return "cannot be said"
        factors = self._factors()
        return f"{factors}{self.condition}" if factors else ""

    def _factors(self) -> str:
        """What the sentence says of them: those that are 1 within their intervals only that they are."""
        factors = [each for each in self.within("") if each.name != FIXED or abs(each.log_ratio) > _UNSAID]
        if len(factors) == 1:
            most = self._mostly(factors[0])
            return f"mostly {most.name}" if most and factors[0].differs else ""
        alike = [each.name for each in factors if not _equal(each) and not each.differs]
        shown = [each for each in factors if each.name not in alike]
        words = [_effect(each) for each in shown]
        for at, each in enumerate(shown):
            if most := self._mostly(each):
                words[at] += f", mostly {most.name}" if at == len(words) - 1 else f" (mostly {most.name})"
        said = ", ".join(words)
        return f"{said}{'; ' * bool(said)}no clear difference in {' and '.join(alike)}" if alike else said

    def _mostly(self, factor: Factor) -> Factor | None:
        """The part that a factor is mostly made by, if it differs; fixed costs of one part are that part."""
        parts = self.within(factor.name)
        most = _most(parts)
        return most if most is not None and most.differs and (factor.name != FIXED or len(parts) > 1) else None

    @property
    def condition(self) -> str:
        """Which runs the ratio is of, where the verdict counts others as well, and whether it lacks an interval."""
        said = ["of the runs that reached the target"] * any(self.missed) + ["no interval"] * (self.interval is None)
        return f" ({', '.join(said)})" if said else ""

    def _size(self) -> str:
        assert self.ratio is not None
        if any(self.missed) and self.interval is not None:
            return _with_ends(self.ratio, self.interval)
        return _bounded(self.ratio, self.interval)


def _short(ratio: float) -> str:
    return f"{ratio:.3g}" if ratio >= 10 or ratio < 0.1 else f"{ratio:.2g}"


def _bounded(ratio: float, known: Interval | None) -> str:
    """A figure that may be on either side of 1 does not stand without its interval, which the table has for all."""
    return _with_ends(ratio, known) if known and known.low <= 1.0 <= known.high else _short(ratio)


def _with_ends(ratio: float, known: Interval) -> str:
    return f"{_short(ratio)} [{_short(known.low)}, {_short(known.high)}]"


def _equal(factor: Factor) -> bool:
    """Whether all runs took exactly as many samples, and others would, too."""
    return factor.name == SAMPLES and abs(factor.log_ratio) < _NO_SPREAD and factor.interval is None


def _effect(factor: Factor) -> str:
    size = _bounded(factor.ratio, factor.interval)
    own = factor.of_sides
    if own is not None and factor.name in (SAMPLES, PER_SAMPLE) and abs(math.log(own / factor.ratio)) > _APART:
        return f"{size} from {own:.3g} times the {factor.name}"
    if factor.name == FIXED:
        return f"{size} from costs that do not grow with samples"
    if factor.name != SAMPLES:
        return f"{size} from {factor.name}"
    if _equal(factor):
        return "as many samples to the target"
    return f"{size} from {'fewer' if factor.ratio < 1 else 'more'} samples to the target"


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
    outcome: Verdict | None = None,
    level: float = 0.95,
) -> Why:
    """Split the ratio of the times of ``b`` and ``a`` that reached the target.

    ``profiles`` split forward and backward further. ``lacks`` are what the caller knows to be missing. Where the
    verdict (``outcome``) cannot have an interval of the runs alone, since the sides did not take turns, no factor has
    one. Raises ``UsageError`` for a level that is none. The gate (``records.comparable``) is the caller's, as in
    ``compare``.
    """
    if not 0 < level < 1:
        raise UsageError(f"a level of {level:g}", "it is no probability", "give one such as 0.95")
    runs_a, runs_b, paired = _chosen(a, b)
    missing = [*_missing(a, b, runs_a, runs_b), *lacks]
    counts, missed = (len(runs_a), len(runs_b)), (a.n - a.reached, b.n - b.reached)
    empty = Why(a.label, b.label, counts, missed, paired, None, None, (), hidden, trajectories, (), level)
    if not runs_a or not runs_b:
        return replace(empty, lacks=tuple(missing))
    times = [np.array([run.time_to_accuracy_s or 0.0 for run in runs]) for runs in (runs_a, runs_b)]
    counted = all(run.samples_to_target for run in (*runs_a, *runs_b))
    if not counted:
        do = "say how many it has seen"
        missing.append(f"the runs do not count samples, so the whole time is split by phase alone: {do}")
    samples = [np.array([float(run.samples_to_target or 1) if counted else 1.0 for run in r]) for r in (runs_a, runs_b)]
    warm_up = WarmUp(runs_a, runs_b)
    missing += warm_up.lacks(a.label, b.label) if counted else ()
    apart = warm_up.phases_apart if counted else counted_phases
    phases_of = [[apart(run) for run in runs] for runs in (runs_a, runs_b)]
    names = list(dict.fromkeys(name for side in phases_of for each in side for name in each))
    parts = [np.array([[each.get(name, 0.0) for name in names] for each in side]) for side in phases_of]
    # The phases sum to the score by construction, up to rounding, and the identity shall hold exactly.
    parts = [part * (time / part.sum(axis=1))[:, None] for part, time in zip(parts, times, strict=True)]
    whole, jumps = _logs(times[0], times[1], paired, level), jumps_of(runs_a, runs_b)
    once = np.array([counted and name in _ONCE for name in names], bool)
    if any((part[:, ~once].sum(axis=1) <= 0).any() for part in parts):
        once[:] = False
    rest = [part[:, ~once] for part in parts]
    per_sample = [part / count[:, None] for part, count in zip(rest, samples, strict=True)]
    means = _log_means(per_sample, paired)
    weights = _log_means(rest, paired) / _log_means(parts, paired) if once.any() else np.ones_like(means)
    split = _Split(per_sample, weights / means, paired, level, geometric=True)
    growing = [name for name, fixed in zip(names, once, strict=True) if not fixed]
    head = PER_SAMPLE if counted else "time"
    factors = [split.factor(head, "", np.ones(len(growing)))]
    phases = [split.factor(_PARTS.get(name, name), head, np.eye(len(growing))[at]) for at, name in enumerate(growing)]
    if not counted:
        phases = [_with_room(each, jumps, factors[0]) for each in phases]
        factors = [_with_room(factors[0], jumps, factors[0])]
    if counted:
        of_samples = _Split([np.log(each)[:, None] for each in samples], weights, paired, level)
        drawn = of_samples.factor(SAMPLES, "", np.ones(1))
        known = drawn.interval
        if known is None and jumps is not None and min(counts) >= _LEAST:
            # All tie at an evaluation, which says that few are late, not that none is.
            known = Interval(drawn.ratio, drawn.ratio, level, "room for late evaluations")
        known = known and widened(drawn.ratio, known, jumps, float(weights.mean()))
        a_samples, b_samples = (geometric_mean(each.tolist()) for each in samples)
        factors.append(replace(drawn, interval=known, a=a_samples, b=b_samples, of_sides=b_samples / a_samples))
    if once.any():
        fixed = _Split([part[:, once] for part in parts], 1.0 / _log_means(parts, paired), paired, level)
        places = [_PARTS[name] for name, is_fixed in zip(names, once, strict=True) if is_fixed]
        factors.append(fixed.factor(FIXED, "", np.ones(len(places))))
        phases += [fixed.factor(name, FIXED, np.eye(len(places))[at]) for at, name in enumerate(places)]
    inner = _operators(split, growing, profiles) if profiles is not None else []
    missing += _spread_lacks(runs_a, runs_b, whole, paired, level)
    missing += [
        f"the operators of {each.within} take longer one by one than the pass in the runs, so {OVERHEAD} there is "
        "below zero: its parts are only as good as the profile"
        for each in inner
        if min(each.a, each.b) < 0
    ]
    found = (*_biggest_first(factors), *_biggest_first(phases), *inner)
    known = whole.interval and widened(whole.ratio, whole.interval, jumps)
    split_up = replace(empty, ratio=whole.ratio, interval=known, factors=found, lacks=tuple(missing))
    return _as_sure_as(outcome, split_up)


def _with_room(factor: Factor, jumps: Jumps | None, whole: Factor) -> Factor:
    """With room for late evaluations, of which each part has its share of the time."""
    share = (factor.a + factor.b) / (whole.a + whole.b)
    return replace(factor, interval=factor.interval and widened(factor.ratio, factor.interval, jumps, share))


def _as_sure_as(outcome: Verdict | None, found: Why) -> Why:
    """``found``, without intervals where the verdict has none of the runs alone."""
    if outcome is None or found.interval is None or not any(each in outcome.reason for each in _NOT_ALONE):
        return found
    lack = f"factors have no interval, for they see the spread of the runs alone ({outcome.reason})"
    factors = tuple(replace(each, interval=None) for each in found.factors)
    return replace(found, interval=None, factors=factors, lacks=(*found.lacks, lack))


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


def _missing(a: RunGroup, b: RunGroup, runs_a: Sequence[RunSummary], runs_b: Sequence[RunSummary]) -> list[str]:
    """What censored runs forbid."""
    found = []
    for group, runs in ((a, _reached(a)), (b, _reached(b))):
        if not group.n:
            found.append(f"no run of {group.label} has ended: make some")
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
        found.append(f"fewer than three runs of a side reached the target: factors have no interval ({a.to_repeat})")
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
    """Contributions of the parts of two sides to the logarithm of the ratio; rows are runs, columns are parts.

    Each side has shape (runs, parts). A part of a pair of runs contributes (b - a) times the pair's ``weights``, of
    shape (pairs,), or (runs of a, runs of b) where all pairs count. With ``geometric``, what a side needs is the
    geometric mean of its runs' totals, which then are positive, and a part has its share of the runs weighted so;
    else both are arithmetic means.
    """

    def __init__(
        self, sides: Sequence[Matrix], weights: Matrix, paired: bool, level: float, *, geometric: bool = False
    ) -> None:
        a, b = sides
        self._paired, self._level = paired, level
        if paired:
            self.from_a, self.from_b = a * weights[:, None], b * weights[:, None]
        else:
            # The mean over all pairs, seen from each run of a and from each run of b.
            self._rows = (weights @ b) / len(b), a * weights.mean(axis=1)[:, None]
            self._columns = b * weights.mean(axis=0)[:, None], (weights.T @ a) / len(a)
            self.from_a, self.from_b = self._rows[1], self._columns[0]
        self._needs = [side.mean(axis=0) for side in sides]
        if geometric:
            parts = [each.mean(axis=0) for each in (self.from_a, self.from_b)]
            totals = [geometric_mean(side.sum(axis=1).tolist()) for side in sides]
            self._needs = [total * part / part.sum() for total, part in zip(totals, parts, strict=True)]

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
            errors,
            float(self._needs[0] @ of_a),
            float(self._needs[1] @ of_b),
            self._level,
            "Student's t on LMDI contributions of pairs" if self._paired else "Welch's t on LMDI contributions",
            spread,
        )


def log_mean_of(x: Matrix, y: Matrix) -> Matrix:
    """The logarithmic mean of two positive arrays; their value where they are equal."""
    log = np.log(y / x)
    near = np.abs(log) < 1e-6
    safe = np.where(near, 1.0, log)
    found: Matrix = np.where(near, x * (1.0 + log / 2.0 + log * log / 6.0), x * np.expm1(safe) / safe)
    return found


def _log_means(sides: Sequence[Matrix], paired: bool) -> Matrix:
    """The logarithmic mean of the totals of each pair of runs; shaped as the weights of ``_Split``."""
    a, b = (side.sum(axis=1) for side in sides)
    return log_mean_of(a, b) if paired else log_mean_of(a[:, None], b[None, :])


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
    spread: Sequence[tuple[float, int]] = (),
) -> Factor:
    """A factor with the squared ``errors`` of its runs, and those of its profile (``spread``), if it has one."""
    variance = sum(each for each, _ in errors)
    interval = None
    known = all(dof >= _LEAST - 1 for _, dof in (*errors, *spread))
    if known and variance > _NO_SPREAD**2:
        # Three runs are close by chance so often that shared degrees of freedom, which then are the profile's, make an
        # interval too narrow (93 %). With a quantile for each source it covers at least at its level (Banerjee 1961,
        # Sankhya A 23:359).
        own = min(dof for _, dof in errors) < _LEAST
        sources = [errors, *([each] for each in spread)] if own else [[*errors, *spread]]
        reach = math.sqrt(sum(_squared_reach(each, level) for each in sources))
        interval = Interval(math.exp(log - reach), math.exp(log + reach), level, method)
    return Factor(name, within, math.exp(log), interval, a, b, b / a if min(a, b) > 0 else None)


def _squared_reach(errors: Sequence[tuple[float, int]], level: float) -> float:
    """The square of how far an interval reaches by Student's t, with the degrees of freedom of Satterthwaite (1946).

    For two errors these are Welch's.
    """
    variance = sum(each for each, _ in errors)
    if variance <= 0.0:
        return 0.0
    dof = 1.0 / sum((each / variance) ** 2 / dof for each, dof in errors)
    return variance * t_quantile(0.5 + 0.5 * level, dof) ** 2


def _logs(a: Matrix, b: Matrix, paired: bool, level: float) -> Factor:
    """The ratio of the whole times, from their logarithms."""
    first, second = np.log(a), np.log(b)
    errors = [_error(second - first)] if paired else [_error(first), _error(second)]
    method = "Student's t on logarithms of paired ratios" if paired else "Welch's t on logarithms"
    log = float(second.mean() - first.mean())
    return _factor("the time", "", log, errors, float(a.mean()), float(b.mean()), level, method)


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
