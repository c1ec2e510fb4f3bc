"""How often a verdict is false, and how often it answers: simulated comparisons with a known ratio.

    python benchmarks/belief.py                         # about 60 rows of 4,000 trials, on all cores
    python benchmarks/belief.py --trials 500 --rows bimodal
    python benchmarks/evidence.py measure docs/evidence/belief.md verdicts      # and keep the table

Every trial draws the times of two arms whose true ratio is known, lays them out in time as they would have been
measured, and asks `levelbench.measure.verdict`, or, where runs are copied, the comparison of whole runs. False are
FASTER or SLOWER at a ratio of 1, the wrong direction, and SAME outside of the margin of 2 %. `best` is how often the
best of the standard tests finds the right direction at 5 % on the same times: Welch's t, Mann-Whitney's, where the arms
share seeds paired t and Wilcoxon's signed ranks, where runs were given up the log-rank test. It ends with 1 if a row is
false more often than 5 % (at a simultaneous binomial bound) or answers less than 0.9 times as often as the best test
where arms took turns.
"""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
from scipy import signal, stats

from levelbench.measure.design import turns
from levelbench.measure.sequential import FIRST_LOOK, Looks, deviation_of, looks_at
from levelbench.measure.statistics import CensoredTimes, log_rank_p
from levelbench.measure.verdict import CLOCK_STEP_S, Verdict, VerdictKind, verdict

CV = 0.05
MARGIN = 0.02
LUCK = 0.15
"""Spread of the luck of a seed, which both arms share: how many steps digits needs varies by as much."""
STEP = 0.02
"""What quantised times are read in, where a run takes about 1."""


@dataclass(frozen=True)
class Row:
    """One kind of comparison.

    ``order``: interleaved, blocked, sessions (three stretches of each arm in turn), days (two runs of an arm a day, the
    arms on alternate days) or later (the second half of b's runs a day later). Runs with one seed share its luck.
    ``late``: the share of b's runs that need an eleventh evaluation; a cheaper step makes up for them on average.
    """

    ratio: float
    n: int
    noise: str = "log-normal"
    order: str = "interleaved"
    rho: float = 0.0
    budgets: str = "equal"
    copies: int = 1
    until_clear: bool = False
    paired: bool = True
    n_b: int = 0
    late: float = 0.0

    @property
    def name(self) -> str:
        """All that tells the row from others."""
        extra = [f"{self.copies} copies"] * (self.copies > 1) + ["until clear"] * self.until_clear
        extra += [f"against {self.n_b}"] * bool(self.n_b)
        extra += [f"{self.late:g} late"] * bool(self.late)
        extra += ["other seeds"] * (not self.paired) + [f"{self.budgets} budgets"] * (self.budgets != "equal")
        return ", ".join([self.order, f"rho {self.rho:g}", self.noise, f"n {self.n}", *extra, f"ratio {self.ratio:g}"])


def rows() -> list[Row]:
    """The table."""
    found = [Row(r, n) for n in (3, 5, 10, 30) for r in (1.0, 1.05, 1.2)]
    found += [Row(0.95, 10), Row(1.03, 30), Row(1.03, 100), Row(1.0, 200)]
    for noise in ("student", "bimodal", "outliers", "quantised"):
        found += [
            Row(r, n, noise) for n, r in ((3, 1.0), (5, 1.0), (10, 1.0), (30, 1.0), (5, 1.2), (10, 1.2), (24, 1.05))
        ]
    found += [
        Row(r, n, noise) for noise in ("gamma", "pareto") for n, r in ((10, 1.0), (30, 1.0), (100, 1.0), (60, 1.5))
    ]
    found += [Row(r, n, rho=rho) for rho in (0.5, 0.9, 0.98) for n, r in ((10, 1.0), (10, 1.05))]
    found += [Row(r, n, order="blocked", rho=rho) for rho, n, r in ((0.0, 10, 1.0), (0.9, 5, 1.0), (0.98, 30, 1.0))]
    found += [Row(r, 30, order="sessions", rho=rho) for rho, r in ((0.0, 1.0), (0.9, 1.0), (0.98, 1.0), (0.98, 1.2))]
    found += [Row(1.0, n, order=order) for order in ("days", "later") for n in (4, 10)]
    found += [Row(r, n, paired=False) for n, r in ((3, 1.0), (10, 1.0), (10, 1.2))]
    found += [Row(1.0, 10, noise, paired=False) for noise in ("student", "bimodal", "outliers")]
    found += [
        Row(1.0, n, noise, n_b=m, paired=False) for n, m in ((3, 10), (5, 20)) for noise in ("log-normal", "bimodal")
    ]
    found += [Row(r, n, budgets="unequal", paired=False) for n, r in ((5, 1.0), (10, 1.0), (10, 0.95), (10, 1.2))]
    found += [Row(r, n, budgets="short", paired=False) for n, r in ((5, 1.0), (10, 1.0), (10, 1.2))]
    found += [Row(1.0, 3, copies=6), Row(1.05, 3, copies=6)]
    found += [Row(1.0, n, "small", late=late) for n in (5, 12, 24) for late in (0.15, 0.3)]
    found += [Row(r, 100, until_clear=True) for r in (1.0, 1.05, 1.1025)]
    found += [Row(r, 100, noise, until_clear=True) for noise in ("student", "bimodal", "outliers") for r in (1.0,)]
    return found


def noise_of(kind: str, random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Logarithms of the noise: one kind for both arms."""
    normal = CV * random.standard_normal(shape)
    if kind == "student":
        return CV * random.standard_t(2.5, shape)
    if kind == "small":
        return 0.16 * normal
    if kind == "bimodal":
        return 0.2 * normal + math.log(1.3) * (random.random(shape) < 0.3)
    if kind == "outliers":
        return normal + math.log(4.0) * (random.random(shape) < 0.05)
    # Times whose spread is as large as they are, with a tail and no outliers.
    if kind == "gamma":
        return np.log(random.gamma(2.0, 1.0, shape))
    if kind == "pareto":
        return np.log1p(random.pareto(1.5, shape))
    return normal


def order_of(row: Row, random: np.random.Generator) -> np.ndarray:
    """The arm (0 or 1) that is measured at each place in time."""
    if row.order == "blocked":
        return np.repeat([0, 1], row.n)
    if row.order == "sessions":
        return np.repeat([0, 1] * 3, row.n // 3)
    if row.order == "days":
        return np.tile([0, 0, 1, 1], row.n // 2)
    if row.n_b:
        return np.random.default_rng(1).permutation(np.repeat([0, 1], [row.n, row.n_b]))
    if row.order == "later":
        return np.concatenate([in_turns(row.n, random), np.ones(row.n, dtype=np.int64)])
    return in_turns(row.n, random)


def in_turns(n: int, random: np.random.Generator) -> np.ndarray:
    """The arm at each place in time, in turns as `levelbench run` takes them."""
    return np.array([[1, 0] if reverse else [0, 1] for reverse in turns(n, str(random.integers(2**32)))]).reshape(-1)


def day_of(row: Row, order: np.ndarray) -> np.ndarray:
    """The day of each run: they share what the machine was like on it."""
    if row.order == "days":
        return np.arange(len(order)) // 2
    return (np.arange(len(order)) >= 2 * row.n).astype(np.int64) * (row.order == "later")


def draw(row: Row, random: np.random.Generator) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """The times of one trial, arm by arm in the order of measurement, when they ran (s), and their evaluations."""
    order = order_of(row, random)
    days = day_of(row, order)
    logs = noise_of(row.noise, random, (len(order),)) + (CV * random.standard_normal(days.max() + 1))[days]
    if row.rho:
        steps = random.standard_normal(len(order)) * math.sqrt(1.0 - row.rho**2)
        steps[0] = random.standard_normal()
        logs = 0.5 * logs + CV * signal.lfilter([1.0], [1.0, -row.rho], steps)
    if row.paired:
        luck = LUCK * random.standard_normal(len(order))
        for arm in (0, 1):
            logs[order == arm] += luck[: int((order == arm).sum())]
    late = (order == 1) & (random.random(len(order)) < row.late if row.late else False)
    logs += math.log(1.1) * (late - row.late * (order == 1))
    times = np.exp(logs) * np.where(order == 1, row.ratio, 1.0)
    if row.noise == "quantised":
        times = np.maximum(np.round(times / STEP), 1.0) * STEP
    starts = np.arange(len(order)) + 86400.0 * days
    times_of, starts_of, late_of = ([each[order == arm] for arm in (0, 1)] for each in (times, starts, late))
    return times_of, starts_of, [10 + each for each in late_of]


def spans_of(places: np.ndarray) -> list[tuple[float, float]]:
    """Runs that follow each other without a pause."""
    return [(float(at), at + 0.9) for at in places]


def judge(
    row: Row, times: list[np.ndarray], places: list[np.ndarray], evaluations: list[np.ndarray]
) -> tuple[Verdict, int]:
    """The verdict and the runs of each arm that it took."""
    spans = [spans_of(each) for each in places]
    resolution = None if row.noise == "quantised" else CLOCK_STEP_S

    def ask(n: int, level: float) -> Verdict:
        a, b = times[0][:n].tolist(), times[1][:n].tolist()
        left, right = spans[0][:n], spans[1][:n]
        return verdict(
            a,
            b,
            margin=MARGIN,
            level=level,
            paired=row.paired and len(a) == len(b),
            spans_a=left,
            spans_b=right,
            resolution=resolution,
        )

    if row.copies > 1 or row.late:
        return compared(row, times, places, evaluations), row.n
    if row.budgets != "equal":
        return given_up(row, times, spans), row.n
    if not row.until_clear:
        return ask(max(map(len, times)), 0.95), row.n
    looks = Looks(0.05, deviation=deviation_of(ask(FIRST_LOOK, 0.95)))
    for n in takewhile(lambda n: n <= row.n, looks_at()):
        found = ask(n, looks.level_at(n))
        if found.kind is not VerdictKind.UNCLEAR:
            break
    return found, n


def budgets_of(row: Row) -> tuple[float, float]:
    """When each arm gives up: one long before the other, or both while a third of the runs have not arrived."""
    return (math.inf, 1.02) if row.budgets == "unequal" else (1.02, 1.02)


def given_up(row: Row, times: list[np.ndarray], spans: list[list[tuple[float, float]]]) -> Verdict:
    """Of runs some of which were given up."""
    arms = [
        [t if t <= budget else None for t in arm.tolist()] for arm, budget in zip(times, budgets_of(row), strict=True)
    ]
    left = [[budget] * arm.count(None) for arm, budget in zip(arms, budgets_of(row), strict=True)]
    return verdict(
        arms[0],
        arms[1],
        margin=MARGIN,
        paired=row.paired,
        censored_at_a=left[0],
        censored_at_b=left[1],
        spans_a=spans[0],
        spans_b=spans[1],
        resolution=CLOCK_STEP_S,
    )


def compared(row: Row, times: list[np.ndarray], places: list[np.ndarray], evaluations: list[np.ndarray]) -> Verdict:
    """Of records, which know their evaluations and may lie in the store several times."""
    from levelbench.analysis.comparison import compare

    found = compare(*(group_of(row, arm, times[arm], places[arm], evaluations[arm]) for arm in (0, 1))).verdict
    assert found is not None
    return found


def group_of(row: Row, arm: int, times: np.ndarray, places: np.ndarray, evaluations: np.ndarray):
    """Runs as the store has them, each found ``copies`` times."""
    from levelbench.records import RunSummary, Specification, group_runs
    from levelbench.records.schema import Target

    target = Target("top1", 0.9)
    what = Specification("digits", "mlp", f"framework{arm}", "cpu", {}, target, "confirmed", "wall", "1 epoch", 9.0)
    runs = []
    drawn = zip(times.tolist(), places.tolist(), evaluations.tolist(), strict=True)
    for seed, (time_s, place, needed) in enumerate(drawn):
        runs += [
            RunSummary(
                id=f"{arm}{seed:07d}", key=f"k{arm}", seed=seed, status="done", reached=True, task="digits",
                recipe="mlp", framework=what.framework, device="cpu", settings={}, target=target, crossing="confirmed",
                clock="wall", time_to_accuracy_s=time_s, given_up_s=None, excluded_s={},
                epochs_to_target=needed / 10, samples_to_target=10 * needed,
                steps_to_target=needed, evaluations=needed if row.late else 0, time_per_step_s=0.1,
                phases_s={"forward": time_s}, quality={"validation": 0.95},
                peak_memory_bytes=None, energy_j=None, energy_method=None, energy_reason="none",
                environment={"machine": {"id": "m"}}, wall_s=0.9, error=None, suspect=[],
                path=f"{copy}/{arm}{seed}",
                started=f"2026-01-01T00:{int(place) // 60:02d}:{int(place) % 60:02d}+00:00", synthetic=False,
                evaluate_every="1 epoch", budget_epochs=9.0,
            )
            for copy in range(row.copies)
        ]  # fmt: skip
    return group_runs(runs)[0]


def best_test(row: Row, times: list[np.ndarray]) -> list[bool]:
    """Whether each standard test finds the right direction on ``times`` (2, n) at 5 %."""
    if row.budgets != "equal":
        arms = []
        for arm, budget in zip(times, budgets_of(row), strict=True):
            arms.append(CensoredTimes(tuple(arm[arm <= budget].tolist()), (budget,) * int((arm > budget).sum())))
        return [log_rank_p(*arms) <= 0.05]
    logs = [np.log(arm) for arm in times]
    right = np.sign(logs[1].mean() - logs[0].mean()) == np.sign(math.log(row.ratio))
    found = [stats.ttest_ind(*logs, equal_var=False).pvalue <= 0.05 and right]
    found.append(stats.mannwhitneyu(*logs).pvalue <= 0.05 and right)
    if row.paired:
        middle = np.sign(np.median(logs[1] - logs[0])) == np.sign(math.log(row.ratio))
        found.append(stats.ttest_rel(*logs).pvalue <= 0.05 and right)
        found.append(stats.wilcoxon(*logs).pvalue <= 0.05 and middle)
    return [bool(each) for each in found]


@dataclass(frozen=True)
class Outcome:
    """Shares of a row's trials; ``best`` is ``None`` where no power is asked for."""

    row: Row
    trials: int
    false: int
    right: float
    unclear: float
    best: float | None
    coverage: float | None
    runs: float

    @property
    def answers(self) -> bool:
        """Whether power is at least 0.9 of the best test's, allowing for two standard errors of both."""
        if self.best is None or self.best == 0.0:
            return True
        error = math.sqrt(self.best * (1 - self.best) / self.trials)
        return self.right >= 0.9 * self.best - 2.0 * error


def is_false(row: Row, kind: VerdictKind) -> bool:
    """Whether a verdict is not true of the row's ratio."""
    if kind is VerdictKind.SAME:
        return abs(math.log(row.ratio)) > math.log1p(MARGIN)
    if kind is VerdictKind.UNCLEAR:
        return False
    return kind is not (VerdictKind.FASTER if row.ratio < 1 else VerdictKind.SLOWER) or row.ratio == 1.0


def simulate(row: Row, trials: int, seed: int = 20) -> Outcome:
    """All trials of a row."""
    warnings.simplefilter("ignore")
    random = np.random.default_rng([seed, *row.name.encode()])
    false = right = unclear = covered = intervals = taken = 0
    tests: list[list[bool]] = []
    wants_power = row.ratio != 1.0 and row.order == "interleaved" and not row.until_clear and row.copies == 1
    for _ in range(trials):
        times, places, evaluations = draw(row, random)
        found, n = judge(row, times, places, evaluations)
        false += is_false(row, found.kind)
        right += found.kind in (VerdictKind.FASTER, VerdictKind.SLOWER) and not is_false(row, found.kind)
        unclear += found.kind is VerdictKind.UNCLEAR
        taken += n
        if found.low is not None or found.high is not None:
            intervals += 1
            covered += (found.low or 0.0) <= row.ratio <= (math.inf if found.high is None else found.high)
        if wants_power:
            tests.append(best_test(row, times))
    best = None
    if tests:
        best = max(float(np.mean([each[at] for each in tests if at < len(each)])) for at in range(max(map(len, tests))))
    coverage = covered / intervals if intervals else None
    return Outcome(row, trials, false, right / trials, unclear / trials, best, coverage, taken / trials)


def bound(trials: int, count: int) -> int:
    """The most false verdicts of ``trials`` that 5 % explain, in ``count`` rows at once, at 95 %."""
    return int(stats.binom.ppf(1.0 - 0.05 / count, trials, 0.05))


def fixed_runs(effect: float, power: float) -> int:
    """Runs of each arm that a paired t test needs for ``effect`` at noise of 5 % an arm."""
    deviation, n = CV * math.sqrt(2.0), 3
    while True:
        at = math.log1p(effect) / deviation * math.sqrt(n)
        if stats.nct.sf(stats.t.ppf(0.975, n - 1), n - 1, at) >= power:
            return n
        n += 1


HEAD = ("row", "false, %", "right, %", "best test, %", "unclear, %", "coverage, %", "runs")


def cells(found: Outcome) -> tuple[str, ...]:
    """A row of the table."""

    def percent(value: float | None) -> str:
        return "–" if value is None else f"{100 * value:.1f}"

    shares = (found.false / found.trials, found.right, found.best, found.unclear, found.coverage)
    return (found.row.name, *map(percent, shares), f"{found.runs:.1f}")


def closing(found: list[Outcome], trials: int) -> list[str]:
    """What the table comes to."""
    most = bound(trials, len(found))
    worst = max(found, key=lambda each: each.false)
    wrong = [each.row.name for each in found if each.false > most]
    weak = [each.row.name for each in found if not each.answers]
    lines = [
        f"{len(found)} rows of {trials} trials; most false: {100 * worst.false / trials:.1f} % ({worst.row.name})",
        f"above 5 % (more than {most} of {trials}): {'; '.join(wrong) or 'none'}",
        f"below 0.9 of the best test: {'; '.join(weak) or 'none'}",
    ]
    for each in found:
        if each.row.until_clear and each.row.ratio != 1.0:
            power = min(each.right, 0.99)
            fixed, planned = fixed_runs(0.05, power), fixed_runs(0.05, 0.9)
            shares = (
                f"{each.runs / fixed:.2f} of the {fixed} that a fixed design for 5 % needs at a power of {power:.2f}"
            )
            shares += f", {each.runs / planned:.2f} of the {planned} at 0.90"
            lines.append(f"until clear at ratio {each.row.ratio:g}: {each.runs:.1f} runs, {shares}")
    return lines


def main(argv: list[str] | None = None) -> int:
    """Run the rows and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=4000)
    parser.add_argument("--rows", default="", help="only rows with this text in their name")
    parser.add_argument("--jobs", type=int, default=None)
    given = parser.parse_args(argv)
    wanted = [row for row in rows() if given.rows in row.name]
    if not wanted or given.trials < 1:
        parser.error(f"no row has {given.rows!r} in its name" if not wanted else "--trials must be above zero")
    run: Callable[[Row], Outcome] = Simulation(given.trials)
    print(f"| {' | '.join(HEAD)} |\n{'|---' * len(HEAD)}|")
    found = []
    with ProcessPoolExecutor(given.jobs) as pool:
        for each in pool.map(run, wanted):
            found.append(each)
            print(f"| {' | '.join(cells(each))} |", flush=True)
    print("\n" + "\n".join(f"- {line}" for line in closing(found, given.trials)))
    most = bound(given.trials, len(found))
    return int(any(each.false > most or not each.answers for each in found))


@dataclass(frozen=True)
class Simulation:
    """``simulate`` with its number of trials, for a pool of processes."""

    trials: int

    def __call__(self, row: Row) -> Outcome:
        """All trials of a row."""
        return simulate(row, self.trials)


if __name__ == "__main__":
    sys.exit(main())
