"""Tables of runs and groups of runs: the main table of a report, single runs, phases, curves.

A row of the main table is a group, the replicate is the run. A run that never reached the target is neither imputed nor
dropped: it shows in ``reached`` and, as censored, in the time to accuracy. The statistic depends on the data, so each
cell comes with a sentence about its method.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from levelbench.measure.policies import policy
from levelbench.records.reader import Record
from levelbench.records.same_conditions import preparation_words
from levelbench.records.schema import Distribution, Specification
from levelbench.records.selection import format_item, format_name, format_value, parse_item
from levelbench.records.store import Row
from levelbench.records.summary import COUNTED, RunSummary, counts_steps, labels_of
from levelbench.report.markup import PHASES
from levelbench.report.numbers import BYTES, estimate_text, number
from levelbench.report.remarks import Remarks, lint_words
from levelbench.report.tables import Absent, Cell, Column, ColumnKind, Number, Reached, Table, Text, estimate_cell

if TYPE_CHECKING:
    from levelbench.measure.statistics import Estimate
    from levelbench.records.operations import OperationsUse
    from levelbench.records.schema import Evaluation, Target
    from levelbench.records.summary import RunGroup, RunSummary

__all__ = ["Spread", "curve_table", "groups_table", "mean_and_range", "phase_seconds", "phases_by_group"]
__all__ += ["phases_table", "rows_table", "run_facts", "runs_table", "spread_of_reached", "spread_of_restarts"]
__all__ += ["spread_of_times", "spread_of_values", "target_text", "work_table"]


@dataclass(frozen=True)
class Spread:
    """A cell, and the sentence about its statistic and interval (empty if there is none)."""

    cell: Cell
    method: str = ""


def spread_of_reached(group: RunGroup) -> Spread:
    """``k/n``, with Wilson's interval of the share if k < n."""
    from levelbench.measure.statistics import wilson

    if group.reached == group.n:
        return Spread(Reached(group.reached, group.n))
    interval = wilson(group.reached, group.n)
    return Spread(
        Reached(group.reached, group.n, interval.low, interval.high), _level(interval.level, "Wilson interval")
    )


def spread_of_values(values: Sequence[float | None]) -> Spread:
    """The estimate over the available values, with their number if some are missing."""
    from levelbench.measure.statistics import estimate

    known = [float(value) for value in values if value is not None and math.isfinite(value)]
    if not known or min(known) <= 0.0:
        return mean_and_range(values)
    return _spread(estimate(known), _remark(known, values))


def _spread_to_target(values: Sequence[float | None], runs: Sequence[RunSummary]) -> Spread:
    """As :func:`spread_of_values`, for what each of ``runs`` took to the target: up to an evaluation."""
    from levelbench.analysis.ties import estimate_to_target

    known = [value for value in values if value is not None and value > 0.0]
    return _spread(estimate_to_target(known, runs)) if 0 < len(known) == len(values) else spread_of_values(values)


def spread_of_times(group: RunGroup, beside: Sequence[RunGroup] = ()) -> Spread:
    """Time to accuracy: its estimate, or why there is none."""
    from levelbench.analysis.ties import time_estimate

    found = time_estimate(group, beside)
    if found is None:
        return Spread(
            Absent("no median: too few runs reached the target" if group.reached else "no run reached the target")
        )
    return _spread(found)


def spread_of_restarts(group: RunGroup) -> Spread:
    """The mean time until a run succeeds if runs that miss are started again, at the cost that they had."""
    from levelbench.measure.statistics import expected_time_with_restarts

    times = _times(group)
    if not times:
        return Spread(Absent("no run reached the target"))
    costs = [run.given_up_s or 0.0 for run in group.runs if not run.reached]
    return Spread(
        Number(expected_time_with_restarts(times, costs)),
        "mean time until a run succeeds if runs that miss are started again, no interval",
    )


def _times(group: RunGroup) -> list[float]:
    """The times of the runs that reached the target."""
    return [run.time_to_accuracy_s for run in _reached(group) if run.time_to_accuracy_s is not None]


def _reached(group: RunGroup) -> list[RunSummary]:
    return [run for run in group.runs if run.time_to_accuracy_s is not None]


def mean_and_range(values: Sequence[float | None]) -> Spread:
    """The arithmetic mean with the lowest and highest value, for qualities and values that may be zero.

    Values that are not finite, as of a diverged run, are left out; the remark then says how many are counted.
    """
    known = [float(value) for value in values if value is not None and math.isfinite(value)]
    if not known:
        lost = any(value is not None for value in values)
        return Spread(Absent("not a finite number in any run" if lost else ""))
    # Divided first, because the sum of very large values would overflow.
    mean = math.fsum(value / len(known) for value in known)
    if len(known) == 1:
        return Spread(Number(mean, remark=_remark(known, values)), "one run")
    cell = Number(mean, min(known), max(known), _remark(known, values), observed=True)
    return Spread(cell, "mean [lowest, highest]")


def _remark(known: Sequence[float], values: Sequence[float | None]) -> str:
    """The number of available values, if some are missing."""
    return "" if len(known) == len(values) else f"({len(known)} of {len(values)})"


def _spread(found: Estimate, remark: str = "") -> Spread:
    """An estimate as a cell with its method."""
    cell = estimate_cell(found, remark=remark)
    if found.interval is None:
        return Spread(cell, f"{found.statistic} of n = {found.n}, no interval")
    if found.interval.is_range:
        return Spread(cell, f"{found.statistic} [lowest, highest], n = {found.n}: too few for an interval")
    return Spread(cell, f"{found.statistic} with {_level(found.interval.level, found.interval.method)}, n = {found.n}")


def _level(level: float, method: str) -> str:
    """``95 % interval``."""
    return f"{number(level * 100)} % {method}"


def target_text(target: Target, scored_by: str | None = None) -> str:
    """The target in words: ``validation accuracy at least 0.97``, without its split if a program reports it."""
    bound = "at least" if target.direction == "higher" else "at most"
    return f"{target.name(scored_by)} {bound} {target.threshold:.6g}"


def groups_table(groups: Sequence[RunGroup], linted: Sequence[Remarks] = ()) -> Table:
    """The main table: one row per group, every figure with its interval over the group's runs.

    Columns: reached k/n, time to accuracy on the groups' clock, the expected time with restarts if some runs missed,
    the cost of both for groups with a price, seconds that the clock leaves out, epochs and samples to the target,
    median step, final test quality, peak memory and energy (or why there is none); with ``linted``, the linter's codes
    for the row.
    """
    clock = _common({group.specification.clock for group in groups})
    metric = _common({group.specification.target.metric for group in groups}) or "quality"
    missed = any(group.reached < group.n for group in groups)
    unpriced = _NO_PRICE if any(group.usd_per_hour is not None for group in groups) else ""

    def restarts_cost(group: RunGroup) -> Spread:
        return _cost(group, spread_of_restarts(group), unpriced)

    columns: tuple[tuple[Column, Callable[[RunGroup], Spread]], ...] = (
        (Column("reached", "reached"), spread_of_reached),
        (
            Column("time_to_accuracy_s", f"time to accuracy{clock and f' ({clock})'}", ColumnKind.TIME_S),
            lambda group: spread_of_times(group, groups),
        ),
        *(((Column("restarts_s", "expected with restarts", ColumnKind.TIME_S), spread_of_restarts),) if missed else ()),
        (
            Column("cost_usd", "cost to accuracy", ColumnKind.COST_USD),
            lambda group: _cost(group, spread_of_times(group, groups), unpriced),
        ),
        *(((Column("restarts_usd", "with restarts", ColumnKind.COST_USD), restarts_cost),) if missed else ()),
        (Column("left_out_s", "left out by the clock", ColumnKind.TIME_S), _left_out),
        (Column("epochs_to_target", "epochs to target", ColumnKind.NUMBER), _of_reached("epochs_to_target")),
        (Column("samples_to_target", "samples to target", ColumnKind.NUMBER), _of_reached("samples_to_target")),
        (Column("time_per_step_s", "median step", ColumnKind.TIME_S), _of_all("time_per_step_s")),
        (Column("test_quality", f"test {metric}", ColumnKind.NUMBER, digits=4), _test_quality),
        (Column("peak_memory_bytes", "peak memory", ColumnKind.BYTES), _of_all("peak_memory_bytes")),
        (Column("energy_j", "energy", ColumnKind.ENERGY_J), _energy),
    )
    head = [Column("group", "runs of"), *([] if clock else [Column("clock", "clock")])]
    rows: list[tuple[Cell, ...]] = []
    methods: dict[str, dict[str, None]] = {}
    for group in groups:
        spreads = [make(group) for _, make in columns]
        lint = [Text(lint_words(linted, group.label, group.specification.task))] if linted else []
        names = [Text(group.label), *([] if clock else [Text(group.specification.clock)])]
        rows.append((*names, *(spread.cell for spread in spreads), *lint))
        for (column, _), spread in zip(columns, spreads, strict=True):
            if spread.method:
                methods.setdefault(spread.method, {})[column.title] = None
    # The sentence for most columns comes last, so that it need not list them.
    *few, most = sorted(methods.items(), key=lambda item: len(item[1])) or [("", {})]
    notes = [*_conditions(groups), *(f"{', '.join(titles)}: {method}." for method, titles in few)]
    if most[0]:
        notes.append(f"{'all others' if few else 'all'}: {most[0]}.")
    shown = (*head, *(column for column, _ in columns), *([Column("lint", "lint")] if linted else []))
    return Table("groups", "Time to accuracy", shown, tuple(rows), tuple(notes)).without_empty()


def _common(names: set[str]) -> str:
    """The only name in ``names``, or nothing."""
    return next(iter(names)) if len(names) == 1 else ""


def _judged(own: Specification) -> str:
    """When its quality counts: of a program that is judged at its end, not each time that it reports one."""
    if own.crossing == "final" and own.scored_by is not None:
        return "final, evaluated at the end of its program"
    return f"{own.crossing}, evaluated every {own.evaluate_every.removeprefix('1 ')}"


def _conditions(groups: Sequence[RunGroup]) -> list[str]:
    """What a reader must know about the times: target, crossing rule, and whether the data is synthetic."""
    notes = [
        f"{group.specification.task}: target {target_text(group.specification.target, group.specification.scored_by)}, "
        f"{_judged(group.specification)}."
        for group in groups
    ]
    notes += [
        f"{group.label}: synthetic data, so the time says nothing about a real task."
        for group in groups
        if any(run.synthetic for run in group.runs)
    ]
    if len(groups) == 1 and (words := preparation_words(groups[0].label, groups[0].runs)):
        # Of several the comparisons say it.
        notes.append(f"{words}.")
    prices = {group.label: group.usd_per_hour for group in groups if group.usd_per_hour is not None}
    if prices:
        each = ", ".join(f"{usd:g} USD an hour for {label}" for label, usd in prices.items())
        common = len(set(prices.values())) == 1 and len(prices) == len(groups)
        price = f"{next(iter(prices.values())):g} USD an hour" if common else each
        notes.append(f"cost: time to accuracy alone at {price}, without set-up, tuning and idle hours.")
    return list(dict.fromkeys(notes))


def _of_all(name: str) -> Callable[[RunGroup], Spread]:
    """The spread of a figure over all runs that have it."""
    return lambda group: spread_of_values([getattr(run, name) for run in group.runs])


def _of_reached(name: str) -> Callable[[RunGroup], Spread]:
    """The spread of a figure over the runs that reached the target; says so if some did not."""

    def make(group: RunGroup) -> Spread:
        spread = _spread_to_target([getattr(run, name) for run in _reached(group)], _reached(group))
        if group.reached == group.n or not spread.method:
            return spread
        return Spread(spread.cell, f"{spread.method}, of the runs that reached the target")

    return make


_NO_PRICE = "no price of its system was given (--price RUNS=PRICE)"


def _cost(group: RunGroup, seconds: Spread, unpriced: str) -> Spread:
    """What ``seconds`` of the group's system cost; without its price, the reason ``unpriced``."""
    if group.usd_per_hour is None:
        return Spread(Absent(unpriced))
    if not isinstance(seconds.cell, Number):
        return seconds
    usd, cell = group.usd_per_hour / 3600.0, seconds.cell
    low, high = (None if bound is None else usd * bound for bound in (cell.low, cell.high))
    return Spread(replace(cell, value=usd * cell.value, low=low, high=high), seconds.method)


def _left_out(group: RunGroup) -> Spread:
    """Seconds that the clock policy left out, if any."""
    seconds = [sum(run.excluded_s.values()) for run in group.runs]
    if not any(seconds):
        return Spread(Absent())
    return mean_and_range(seconds)


def _test_quality(group: RunGroup) -> Spread:
    """Final quality on the test split: mean and range over the runs that have one."""
    return mean_and_range([run.quality["test"] for run in group.runs if "test" in run.quality])


def _energy(group: RunGroup) -> Spread:
    """Energy with its method, or the reason why there is none."""
    methods = sorted({run.energy_method for run in group.runs if run.energy_j is not None and run.energy_method})
    if not methods:
        reasons = [run.energy_reason for run in group.runs if run.energy_reason]
        return Spread(Absent(f"energy: {reasons[0]}" if reasons else ""))
    spread = spread_of_values([run.energy_j for run in group.runs])
    return Spread(spread.cell, f"{spread.method}; read by {', '.join(methods)}")


def work_table(groups: Sequence[RunGroup]) -> Table | None:
    """Operations to the target, their precision and share of a measured peak, and what was read, by group.

    ``None`` if no record has any of it, as in earlier versions.
    """
    from levelbench.records.operations import peaks_of, use_of_operations

    runs = [run for group in groups for run in group.runs]
    if not any(run.operations_per_example or run.operations_reason or _read(run) is not None for run in runs):
        return None
    rows: list[tuple[Cell, ...]] = []
    for group in groups:
        peaks = peaks_of(group.runs[0])
        used = [run for run in group.runs if use_of_operations(run, peaks) is not None]
        found = [use for run in used if (use := use_of_operations(run, peaks)) is not None]
        counted = next((run for run in group.runs if run.operations_per_example), None)
        why = next((run.operations_reason for run in group.runs if run.operations_reason), "")
        missed = "" if found else why or ("no run reached the target" if counted else "")
        lacking = missed or next((use.reason for use in found if use.reason), "")
        reasons = next((run.read_reason for run in group.runs if run.read_reason), "")
        rows.append((
            Text(group.label),
            _spread_to_target([use.to_target * 1e-9 for use in found], used).cell if found else Absent(missed),
            Text(_shares(found[0])) if found else Absent(missed),
            spread_of_values([use.flop_s * 1e-9 for use in found]).cell if found else Absent(missed),
            spread_of_values([use.utilisation for use in found]).cell if found and not lacking else Absent(lacking),
            *(
                spread_of_values([getattr(run, name) for run in group.runs]).cell if not reasons else Absent(reasons)
                for name in ("read_from_disk_bytes", "read_from_cache_bytes")
            ),
        ))  # fmt: skip
    columns = (
        Column("group", "runs of"),
        Column("gflop_to_target", "GFLOP to target", ColumnKind.NUMBER),
        Column("precisions", "of them in"),
        Column("gflop_s", "GFLOP/s", ColumnKind.NUMBER),
        Column("utilisation", "of the measured peak", ColumnKind.SHARE),
        Column("read_from_disk_bytes", "read from disk", ColumnKind.BYTES),
        Column("read_from_cache_bytes", "from page cache", ColumnKind.BYTES),
    )
    note = f"Operations: {COUNTED}; of examples trained on until the target. Rates are over the whole time to accuracy."
    return Table("work", "Operations and input", columns, tuple(rows), (note,)).without_empty()


def _shares(use: OperationsUse) -> str:
    return ", ".join(f"{name} {share * 100:.3g} %" for name, share in use.shares.items())


def _read(run: RunSummary) -> float | None:
    known = [each for each in (run.read_from_disk_bytes, run.read_from_cache_bytes) if each is not None]
    return sum(known) if known else None


def runs_table(runs: Sequence[RunSummary]) -> Table:
    """One row per run, for the run list of a report."""
    return Table.of(
        "runs",
        "Runs",
        runs,
        (Column("id", "run"), lambda run: run.id[:8]),
        (Column("recipe", "recipe"), lambda run: f"{run.task}/{run.recipe}"),
        (Column("framework", "framework"), lambda run: run.framework),
        (Column("seed", "seed", ColumnKind.NUMBER), lambda run: run.seed),
        (Column("status", "status"), lambda run: run.status),
        (Column("reached", "reached"), lambda run: run.reached),
        (Column("time_to_accuracy_s", "time to accuracy", ColumnKind.TIME_S), lambda run: run.time_to_accuracy_s),
        (
            Column("given_up_s", "given up after", ColumnKind.TIME_S),
            lambda run: None if run.reached else run.given_up_s,
        ),
        (Column("epochs_to_target", "epochs", ColumnKind.NUMBER), lambda run: run.epochs_to_target),
        (Column("test_quality", "test quality", ColumnKind.NUMBER, digits=4), lambda run: run.quality.get("test")),
        (Column("doubts", "doubts", ColumnKind.NUMBER), lambda run: len(run.suspect) or None),
        (Column("started", "started"), lambda run: _moment(run.started)),
    ).without_empty()


def _moment(started: str) -> str:
    return started[:19].replace("T", " ")


def phases_by_group(groups: Sequence[RunGroup]) -> Table:
    """Seconds per phase for each group, the mean over its runs, and the sum."""
    phases = [[phase_seconds(run.phases_s) for run in group.runs] for group in groups]
    names = list(dict.fromkeys(name for runs in phases for run in runs for name in run))
    columns = (Column("group", "runs of"), *(Column(f"{name}_s", name, ColumnKind.TIME_S) for name in [*names, "all"]))
    rows: list[tuple[Cell, ...]] = []
    for group, runs in zip(groups, phases, strict=True):
        means = [sum(run.get(name, 0.0) for run in runs) / group.n for name in names]
        rows.append((Text(group.label), *(Number(mean) for mean in [*means, sum(means)])))
    note = "Mean over the runs, up to the evaluation at which the target counts as reached, or to the last one."
    return Table("phases", "Seconds by phase", columns, tuple(rows), (note,))


def phase_seconds(phases_s: Mapping[str, float]) -> dict[str, float]:
    """Seconds by phase; unknown names count as ``other``."""
    found: dict[str, float] = {}
    for name, seconds in phases_s.items():
        phase = name if name in PHASES else "other"
        found[phase] = found.get(phase, 0.0) + seconds
    return found


def run_facts(run: RunSummary) -> Table:
    """What a run was and how it ended, one fact per row."""
    settings = ", ".join(f"{format_name(name)}={value}" for name, value in run.settings.items())
    outcome = {
        "run": f"{run.id}, seed {run.seed}, {run.status}, started {_moment(run.started)}",
        "recipe": f"{run.recipe} on {run.framework} ({run.device})",
        "settings": settings,
        "ranks": _team(run.distribution),
        "target": f"{target_text(run.target, run.scored_by)}, {run.crossing}",
        "outcome": _outcome(run),
        "whole run": _time(run.wall_s) + (f", median step {_time(run.time_per_step_s)}" if run.time_per_step_s else ""),
        "data": "synthetic data: the time says nothing about a real task" if run.synthetic else "",
        "quality": ", ".join(f"{_of(run, split)} {value:.4f}" for split, value in run.quality.items()) + _scored(run)
        if run.quality
        else "",
        "memory": f"{run.peak_memory_bytes / 2**20:.0f} MiB at the peak" if run.peak_memory_bytes else "",
        "operations": _work(run),
        "read": _read_words(run),
        "energy": f"{run.energy_j:.4g} J ({run.energy_method})" if run.energy_j is not None else f"{run.energy_reason}",
    }
    return Table.of(
        "run",
        run.task,
        [item for item in outcome.items() if item[1]],
        (Column("fact", ""), lambda item: item[0]),
        (Column("value", ""), lambda item: item[1]),
    )


_LR = {"none": "unchanged", "linear": "times the workers", "sqrt": "times the root of the workers"}


def _of(run: RunSummary, name: str) -> str:
    """What a quality is called: that of the target's split by its metric if a program reported it."""
    split, _, metric = name.partition(".")
    return metric or run.target.metric if run.scored_by and split == run.target.split else name


def _work(run: RunSummary) -> str:
    """Operations to the target, and their share of the peak that the store knows."""
    from levelbench.records.operations import peaks_of, use_of_operations

    use = use_of_operations(run, peaks_of(run)) if run.operations_per_example else None
    if use is None:
        each = ", ".join(f"{count:.4g} per example in {name}" for name, count in run.operations_per_example.items())
        return each or (f"not known: {run.operations_reason}" if run.operations_reason else "")
    peak = use.reason or "" if use.utilisation is None else f"{use.utilisation * 100:.2g} % of the measured peak"
    if use.utilisation is not None and use.utilisation > 1:
        peak += ", which was measured too low, on a busy machine: measure it again (operator --fresh)"
    return f"{use.to_target:.4g} to the target ({_shares(use)}), {use.flop_s:.3g} FLOP/s; {peak}"


def _read_words(run: RunSummary) -> str:
    if run.read_from_disk_bytes is None or run.read_from_cache_bytes is None:
        return f"not known: {run.read_reason}" if run.read_reason not in (None, "not measured") else ""
    return " and ".join(
        estimate_text(count, None, None, BYTES) + f" from {source}"
        for count, source in ((run.read_from_disk_bytes, "disk"), (run.read_from_cache_bytes, "the page cache"))
    )


def _scored(run: RunSummary) -> str:
    if run.quality_from == "held-out":
        return f", the last scored by levelbench on {run.held_out}"
    unscored = "; its predictions were not scored" if run.scored_by == "held-out" else ""
    return f", as reported by its program{unscored}" if run.scored_by else ""


def _team(distribution: Distribution | None) -> str:
    if distribution is None:
        return ""
    if distribution.scheme == "own":
        return f"{distribution.ranks}, as its program divides the work"
    scheme = format_item(distribution.scheme, distribution.settings)
    scaling = "" if distribution.scaling == "strong" else f", weak scaling, learning rate {_LR[distribution.lr_scale]}"
    return f"{distribution.ranks} by {scheme}, {distribution.engine} over {distribution.communicator}{scaling}"


def _outcome(run: RunSummary) -> str:
    excluded = ", ".join(f"{phase} {_time(seconds)}" for phase, seconds in run.excluded_s.items())
    left_out = f"; left out: {excluded}" if excluded else ""
    if run.status in ("failed", "interrupted"):
        return f"{run.status} after {_time(run.given_up_s or 0.0)} on the {run.clock} clock{left_out}"
    if run.status == "running":
        return "not known yet: it is still running"
    if run.time_to_accuracy_s is None:
        why = f" ({run.stopped_by})" if run.stopped_by else ""
        return f"missed after {_time(run.given_up_s or 0.0)} on the {run.clock} clock{why}{left_out}"
    samples = f", {run.samples_to_target:,} samples" if run.samples_to_target else ""
    epochs = f", {run.epochs_to_target:.4g} epochs" if run.epochs_to_target is not None else ""
    return f"reached in {_time(run.time_to_accuracy_s)} on the {run.clock} clock{epochs}{samples}{left_out}"


def _time(seconds: float) -> str:
    return estimate_text(seconds, None, None)


def phases_table(run: RunSummary) -> Table:
    """Seconds and share of each phase, up to the evaluation that counts."""
    phases = phase_seconds(run.phases_s)
    whole = sum(phases.values()) or 1.0
    return Table.of(
        "phases",
        "Phases",
        phases.items(),
        (Column("phase", "phase"), lambda item: item[0]),
        (Column("time_s", "time", ColumnKind.TIME_S), lambda item: item[1]),
        (Column("share", "share", ColumnKind.SHARE), lambda item: item[1] / whole),
    )


def curve_table(record: Record, run: RunSummary) -> Table:
    """The evaluations: time, progress and quality; the one that counts is marked."""
    clock, target = policy(run.clock), run.target
    told = counts_steps(record)
    # A program that tells no epochs is always in epoch 0; one that does may begin with 0.
    epochs = any(each.epoch for each in record.evaluations)

    def counts(each: Evaluation) -> bool:
        return run.time_to_accuracy_s is not None and clock.score(each.phases_ns).seconds >= run.time_to_accuracy_s

    counted = next(filter(counts, record.evaluations), None)
    return Table.of(
        "curve",
        "Curve",
        record.evaluations,
        (Column("epoch", "epoch", ColumnKind.NUMBER), lambda each: each.epoch if epochs else None),
        (Column("samples", "samples", ColumnKind.NUMBER), lambda each: each.samples or None if told else None),
        (
            Column("time_s", f"time ({run.clock})", ColumnKind.TIME_S),
            lambda each: clock.score(each.phases_ns).seconds,
        ),
        (Column("loss", "training loss", ColumnKind.NUMBER, digits=4), lambda each: each.loss),
        (
            Column("quality", target.name(record.header.specification.scored_by), ColumnKind.NUMBER, digits=4),
            lambda each: each.quality.get(target.split),
        ),
        (
            Column("mark", ""),
            lambda each: "target reached" if each is counted else "",
        ),
    ).without_empty()


def rows_table(rows: Sequence[Row]) -> Table:
    """One row per run of an index, for ``list runs``, with the settings that distinguish it from the others."""

    def ranks(row: Row) -> str:
        team = row.specification.distribution
        return f"{team.ranks}, {team.scheme}" if team else "1"

    columns = ("recipe", "framework", "ranks", "scheme")
    labels = labels_of([row.specification for row in rows], [row.source_digest for row in rows])
    told = {
        row.path: [
            f"{format_name(name)}={format_value(value)}"
            for name, value in parse_item(label)[1].items()
            if name not in columns
        ]
        for row, label in zip(rows, labels, strict=True)
    }
    settings = (Column("settings", "settings"), lambda row: ", ".join(told[row.path]))
    return Table.of(
        "runs",
        "Runs",
        rows,
        (Column("id", "run"), lambda row: row.id),
        (Column("task", "task"), lambda row: row.task),
        (Column("recipe", "recipe"), lambda row: row.recipe),
        (Column("framework", "framework"), lambda row: row.framework),
        (Column("ranks", "ranks"), ranks),
        *([settings] if any(told.values()) else []),
        (Column("seed", "seed", ColumnKind.NUMBER), lambda row: row.seed),
        (Column("status", "status"), lambda row: row.status),
        (Column("time_to_accuracy_s", "time to accuracy", ColumnKind.TIME_S), lambda row: row.time_to_accuracy_s),
        (Column("test", "test quality", ColumnKind.NUMBER, digits=4), lambda row: row.test),
        (Column("started", "started"), lambda row: _moment(row.started)),
    )
