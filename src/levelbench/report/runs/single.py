"""Tables of one run, and of runs as an index lists them: what ``show`` and ``list runs`` print."""

from __future__ import annotations

from collections.abc import Sequence

from levelbench.measure.policies import policy
from levelbench.records.reader import Record
from levelbench.records.rows import Row
from levelbench.records.schema import Distribution
from levelbench.records.selection import format_item
from levelbench.records.summary import RunSummary
from levelbench.report.numbers import estimate_text
from levelbench.report.runs.summaries import optional, phase_seconds, target_text
from levelbench.report.tables import Absent, Cell, Column, Kind, Number, Table, Text

__all__ = ["curve_table", "phases_table", "rows_table", "run_facts"]


def run_facts(run: RunSummary) -> Table:
    """What a run was and what came of it, a fact a row."""
    settings = ", ".join(f"{name}={value}" for name, value in run.settings.items())
    outcome = {
        "run": f"{run.id}, seed {run.seed}, {run.status}, begun {run.started[:19].replace('T', ' ')}",
        "recipe": f"{run.recipe} on {run.framework} ({run.device})",
        "settings": settings,
        "ranks": _team(run.distribution),
        "target": f"{target_text(run.target)}, {run.crossing}",
        "outcome": _outcome(run),
        "whole run": _time(run.wall_s) + (f", {_time(run.time_per_step_s)} a step" if run.time_per_step_s else ""),
        "data": "synthetic data: the time says nothing about a real task" if run.synthetic else "",
        "quality": ", ".join(f"{split} {value:.4f}" for split, value in run.quality.items()),
        "memory": f"{run.peak_memory_bytes / 2**20:.0f} MiB at the peak" if run.peak_memory_bytes else "",
        "energy": f"{run.energy_j:.4g} J ({run.energy_method})" if run.energy_j is not None else f"{run.energy_reason}",
    }
    rows = tuple((Text(name), Text(text)) for name, text in outcome.items() if text)
    return Table("run", run.task, (Column("fact", ""), Column("value", "")), rows)


_LR = {"none": "as it was", "linear": "times the workers", "sqrt": "times the root of the workers"}


def _team(distribution: Distribution | None) -> str:
    if distribution is None:
        return ""
    scheme = format_item(distribution.scheme, distribution.settings)
    scaling = "" if distribution.scaling == "strong" else f", weak scaling, learning rate {_LR[distribution.lr_scale]}"
    return f"{distribution.ranks} by {scheme}, {distribution.engine} over {distribution.communicator}{scaling}"


def _outcome(run: RunSummary) -> str:
    excluded = ", ".join(f"{phase} {_time(seconds)}" for phase, seconds in run.excluded_s.items())
    left_out = f"; left out: {excluded}" if excluded else ""
    if run.status in ("failed", "interrupted"):
        return f"{run.status} after {_time(run.given_up_s or 0.0)} on the {run.clock} clock{left_out}"
    if run.time_to_accuracy_s is None:
        return f"missed after {_time(run.given_up_s or 0.0)} on the {run.clock} clock{left_out}"
    return (
        f"reached in {_time(run.time_to_accuracy_s)} on the {run.clock} clock, {run.epochs_to_target:.4g} epochs, "
        f"{run.samples_to_target:,} samples{left_out}"
    )


def _time(seconds: float) -> str:
    return estimate_text(seconds, None, None)


def phases_table(run: RunSummary) -> Table:
    """Seconds and share of each phase, up to the evaluation that counts."""
    phases = phase_seconds(run.phases_s)
    whole = sum(phases.values()) or 1.0
    columns = (Column("phase", "phase"), Column("time_s", "time", Kind.TIME_S), Column("share", "share", Kind.SHARE))
    rows = tuple((Text(name), Number(seconds), Number(seconds / whole)) for name, seconds in phases.items())
    return Table("phases", "Phases", columns, rows)


def curve_table(record: Record, run: RunSummary) -> Table:
    """The evaluations: when, after how much, how good; the one that counts is marked."""
    clock = policy(run.clock)
    columns = (
        Column("epoch", "epoch", Kind.NUMBER),
        Column("samples", "samples", Kind.NUMBER),
        Column("time_s", f"time ({run.clock})", Kind.TIME_S),
        Column("loss", "training loss", Kind.NUMBER, digits=4),
        Column("quality", f"{run.target.split} {run.target.metric}", Kind.NUMBER, digits=4),
        Column("mark", ""),
    )
    rows: list[tuple[Cell, ...]] = []
    for each in record.evaluations:
        quality = each.quality.get(run.target.split)
        counts = run.reached and each.step == run.steps_to_target
        rows.append(
            (
                Number(each.epoch),
                Number(each.samples),
                Number(clock.score(each.phases_ns).seconds),
                optional(each.loss),
                optional(quality),
                Text("target reached" if counts else ""),
            )
        )
    return Table("curve", "Curve", columns, tuple(rows))


def _ranks(distribution: Distribution | None) -> str:
    return f"{distribution.ranks}, {distribution.scheme}" if distribution else "1"


def rows_table(rows: Sequence[Row]) -> Table:
    """One row a run of an index."""
    columns = (
        Column("id", "run"),
        Column("task", "task"),
        Column("recipe", "recipe"),
        Column("framework", "framework"),
        Column("ranks", "ranks"),
        Column("seed", "seed", Kind.NUMBER),
        Column("status", "status"),
        Column("time_to_accuracy_s", "time to accuracy", Kind.TIME_S),
        Column("test", "test quality", Kind.NUMBER, digits=4),
        Column("started", "started"),
    )
    cells: tuple[tuple[Cell, ...], ...] = tuple(
        (
            Text(row.id),
            Text(row.task),
            Text(row.recipe),
            Text(row.framework),
            Text(_ranks(row.specification.distribution)),
            Number(row.seed),
            Text(row.status),
            Absent() if row.time_to_accuracy_s is None else Number(row.time_to_accuracy_s),
            optional(row.test),
            Text(row.started[:19].replace("T", " ")),
        )
        for row in rows
    )
    return Table("runs", "Runs", columns, cells)
