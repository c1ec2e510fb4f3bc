"""Processes of inference as a store has them: what ``levelbench list inference`` prints, one a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from levelbench.measure.statistics.early_stopping import nearest_rank
from levelbench.records.inference.files import InferenceRecord
from levelbench.report.tables import Absent, Cell, Column, Kind, Number, Table, Text

__all__ = ["inference_row", "inference_rows_table"]

_QUANTILES = {"p50_s": 0.5, "p90_s": 0.9, "p99_s": 0.99}


def inference_row(record: InferenceRecord) -> dict[str, Any]:
    """One process in short. Percentiles are LoadGen's, in seconds; ``None`` is what was not measured."""
    specification, driven, accuracy = record.header.specification, record.driven, record.accuracy
    latencies = np.sort(record.latencies_s)
    one_query = specification.scenario.name == "offline" or not len(latencies)
    outcome = record.outcome
    bad = outcome.status if outcome is not None and outcome.status != "measured" else ""
    return {
        "id": record.header.id,
        "model": specification.title,
        "scenario": specification.scenario.name,
        "framework": specification.arm.title,
        "process": record.header.seed,
        "status": bad if bad and record.status == "done" else record.status,
        "started": record.header.started,
        "queries": None if driven is None else driven.queries,
        **{name: None if one_query else nearest_rank(latencies, q) for name, q in _QUANTILES.items()},
        "samples_per_s": None if driven is None else driven.throughput_per_s,
        "quality": None if accuracy is None else accuracy.value,
        "valid": None if driven is None else driven.valid,
        "path": str(record.path),
    }


def inference_rows_table(rows: Sequence[dict[str, Any]]) -> Table:
    """The rows of :func:`inference_row` as a table."""
    columns = (
        *(Column(each, each) for each in ("id", "model", "scenario", "framework")),
        Column("process", "process", Kind.NUMBER),
        Column("status", "status"),
        Column("started", "begun"),
        Column("queries", "queries", Kind.NUMBER),
        *(Column(name, name.removesuffix("_s"), Kind.TIME_S) for name in _QUANTILES),
        Column("samples_per_s", "samples/s", Kind.NUMBER),
        Column("quality", "quality", Kind.NUMBER, digits=4),
        Column("valid", "valid"),
    )
    cells = tuple(tuple(_cell(row[each.key], each.key) for each in columns) for row in rows)
    return Table("inference", "Inference", columns, cells).without_empty()


def _cell(value: Any, name: str) -> Cell:
    if value is None:
        return Absent()
    if name == "started":
        return Text(value[:19].replace("T", " "))
    if name == "valid":
        return Text("yes" if value else "no")
    return Text(value) if isinstance(value, str) else Number(value)
