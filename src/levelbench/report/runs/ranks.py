"""The ranks of one distributed run as tables: what each did, how old its gradients were, how far replicas drifted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from levelbench.records.reader import Record
from levelbench.records.schema import Samples
from levelbench.records.teamwork import teamwork
from levelbench.report.tables import Absent, Cell, Column, Kind, Number, Table, Text

__all__ = ["divergence_table", "operations_table", "rank_tables", "ranks_table", "staleness_table", "typical"]

_MOST_BINS = 12
_NOTHING = "it noted none"


def typical(records: Sequence[Record]) -> Record | None:
    """The run of the median time among those that are done and have ranks; the earlier one of two."""
    done = [(each.end.t_ns, at, each) for at, each in enumerate(records) if each.ranks and each.end is not None]
    found = [each for *_, each in sorted(done, key=lambda each: each[:2]) if each.status == "done"]
    return found[(len(found) - 1) // 2] if found else None


def rank_tables(record: Record | None) -> list[Table]:
    """What the ranks of a run did; none for a run of one process."""
    if record is None:
        return []
    makers = (ranks_table, operations_table, staleness_table, divergence_table)
    return [table for make in makers if (table := make(record)) is not None]


def ranks_table(record: Record) -> Table | None:
    """A row a rank; ``None`` for a run of one process."""
    if not record.ranks:
        return None
    columns = (
        Column("rank", "rank", Kind.NUMBER),
        Column("role", ""),
        Column("step_s", "time per step", Kind.TIME_S),
        Column("communicate_share", "communication", Kind.SHARE),
        Column("sent_bytes", "sent a step", Kind.BYTES),
        Column("messages", "messages", Kind.NUMBER),
        Column("sent_start_bytes", "sent at the start", Kind.BYTES),
        Column("sent_between_bytes", "sent around evaluations", Kind.BYTES),
    )
    steps = max((len(each["step_time"].values) for each in record.ranks.values() if "step_time" in each), default=0)
    rows = tuple(_row(rank, found, steps) for rank, found in record.ranks.items())
    notes = (
        "Time per step: median. A server sends while it serves: per step that the workers made.",
        "Each rank has a clock of its own; times of two ranks are never subtracted.",
    )
    return Table("ranks", "Ranks", columns, rows, notes)


def _row(rank: int, found: Mapping[str, Samples], made: int) -> tuple[Cell, ...]:
    steps = np.asarray(found["step_time"].values, np.float64) if "step_time" in found else np.zeros(0)
    talk = np.asarray(found["communicate_time"].values, np.float64) if "communicate_time" in found else np.zeros(0)
    trains = len(steps) > 0
    return (
        Number(rank),
        Text("worker" if trains else "server"),
        Number(float(np.median(steps)) * 1e-9) if trains else Absent("it trains no batch"),
        Number(float(talk.sum() / steps.sum())) if trains and len(talk) == len(steps) else Absent("it trains no batch"),
        _per_step(found, "sent", len(steps) or made),
        _per_step(found, "messages", len(steps) or made),
        _sum(found, "sent_at_start"),
        _sum(found, "sent_between"),
    )


def _per_step(found: Mapping[str, Samples], name: str, steps: int) -> Cell:
    values = next((found[each].values for each in (name, f"{name}_serving") if each in found), None)
    if values is None or not steps:
        return Absent(_NOTHING)
    if "counted" in found and not found["counted"].values[0]:
        return Absent("not counted: the framework sends by itself")
    return Number(float(np.sum(values)) / steps)


def _sum(found: Mapping[str, Samples], name: str) -> Cell:
    return Number(float(np.sum(found[name].values))) if name in found else Absent(_NOTHING)


def operations_table(record: Record) -> Table | None:
    """What all ranks together called and sent, by operation and phase; ``None`` where nobody noted it."""
    sums: dict[tuple[str, str], dict[str, float]] = {}
    for found in record.ranks.values():
        for name, samples in found.items():
            what, _, place = name.partition(":")
            if place:
                operation, _, phase = place.partition(":")
                of = sums.setdefault((operation, phase), {})
                of[what] = of.get(what, 0.0) + float(np.sum(samples.values))
    if not sums:
        return None
    columns = (
        Column("operation", "operation"),
        Column("phase", "phase"),
        Column("calls", "calls", Kind.NUMBER),
        Column("sent_bytes", "sent", Kind.BYTES),
        Column("messages", "messages", Kind.NUMBER),
        Column("time_s", "time in it", Kind.TIME_S),
    )
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            Text(operation.replace("_", "-")),
            Text(phase),
            *(Number(of.get(name, 0.0)) for name in ("calls", "sent", "messages")),
            Number(of.get("time", 0.0) * 1e-9),
        )
        for (operation, phase), of in sorted(sums.items(), key=lambda each: -each[1].get("sent", 0.0))
    )
    return Table("operations", "What the ranks called, all together", columns, rows)


def staleness_table(record: Record) -> Table | None:
    """How many gradients were how many updates old when they were applied; ``None`` where nobody noted it."""
    found = teamwork(record)
    if found is None or not found.staleness:
        return None
    counts = Counter(int(each) for each in found.staleness)
    width = -(-(max(counts) + 1) // _MOST_BINS)
    binned = Counter(dict.fromkeys(range(max(counts) // width + 1), 0))
    for value, count in counts.items():
        binned[value // width] += count
    rows = tuple(
        (
            Text(str(at * width) if width == 1 else f"{at * width} to {at * width + width - 1}"),
            Number(count),
            Number(count / len(found.staleness)),
        )
        for at, count in sorted(binned.items())
    )
    columns = (
        Column("staleness", "updates"),
        Column("count", "gradients", Kind.NUMBER),
        Column("share", "share", Kind.SHARE),
    )
    return Table("staleness", "Staleness: updates between the reading of the weights and their gradient", columns, rows)


def divergence_table(record: Record) -> Table | None:
    """How far replicas were from their mean at each evaluation; ``None`` where they are equal, or nobody noted it."""
    found = teamwork(record)
    if found is None or not found.divergence:
        return None
    columns = (Column("epoch", "epoch", Kind.NUMBER), Column("divergence", "largest relative distance", Kind.NUMBER))
    rows = tuple(
        (Number(each.epoch), Number(value)) for each, value in zip(record.evaluations, found.divergence, strict=False)
    )
    return Table("divergence", "Divergence of the replicas from their mean", columns, rows)
