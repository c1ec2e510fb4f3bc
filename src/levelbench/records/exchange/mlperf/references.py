"""Reads reference convergence points: the JSON files of MLPerf's, and those that somebody measured for a task of ours.

The one idea: the file is a dictionary of records, each one batch size of one benchmark with the epochs or samples of
every reference run; which of the two it counts in is in the name of the field.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from levelbench.errors import RecordError
from levelbench.records.exchange.mlperf.benchmarks import benchmark
from levelbench.records.exchange.mlperf.dialects import json_value, number_of
from levelbench.records.exchange.mlperf.sources import read_bytes
from levelbench.records.rulesets.convergence import ReferencePoint

__all__ = ["read_points"]

_LIMIT = 16 * 1024 * 1024
_FIELDS = ("epochs to converge", "samples to converge")


def read_points(path: str | Path) -> dict[str, list[ReferencePoint]]:
    """The points of a file by benchmark, in the file's order; as many runs are dropped as the benchmark's score drops.

    Raises ``RecordError`` for a file that is none, or a record without benchmark, batch size or values.
    """
    path = Path(path)
    asked = f"reading the reference points in {path}"
    do = 'give {"<name>": {"Benchmark": ..., "BS": ..., "Epochs to converge": [...]}, ...}'
    try:
        said = json_value(read_bytes(path, asked, _LIMIT).decode("utf-8-sig"))
    except ValueError as error:
        raise RecordError(asked, str(error), do) from error
    if not isinstance(said, dict):
        raise RecordError(asked, "it is not an object", do)
    found: dict[str, list[ReferencePoint]] = {}
    for name, record in said.items():
        try:
            which, point = _point(record)
        except ValueError as error:
            raise RecordError(asked, f"{name[:80]}: {error}", do) from error
        found.setdefault(which, []).append(point)
    return found


def _point(record: Any) -> tuple[str, ReferencePoint]:
    if not isinstance(record, dict):
        raise ValueError("it is not an object")
    name, batch_size = record.get("Benchmark"), record.get("BS")
    if not isinstance(name, str) or isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise ValueError("it has no Benchmark, or no BS above zero")
    values = next((each for field, each in record.items() if field.lower() in _FIELDS), None)
    if not isinstance(values, list) or not values:
        raise ValueError("it has no values to converge")
    numbers = [number_of(value) for value in values]
    known = benchmark(name)
    point = ReferencePoint(batch_size, tuple(n for n in numbers if n is not None), known.drop if known else 1)
    if len(point.values) < len(numbers):
        raise ValueError("a value is not a number")
    return name, point
