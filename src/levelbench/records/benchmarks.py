"""What a benchmark of operators leaves behind: one file a process, with raw times and errors of every problem.

The process is the replicate, so one process is one record: what was asked, the environment, then for
each problem the raw times and what was found right or wrong, then the end. The files lie in the store's folder
``operators`` under another ending than runs have, so neither kind is taken for the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from levelbench.records import locks
from levelbench.records.digest import key_of
from levelbench.records.processes import (
    ProcessRecord,
    ProcessWriter,
    decoded_header,
    decoded_lines,
    find_records,
    open_record,
)
from levelbench.records.schema import Count, Samples

__all__ = ["BENCHMARK_SCHEMA", "FOLDER", "BenchmarkEnd", "BenchmarkHeader", "BenchmarkRecord", "BenchmarkSpecification"]
__all__ += ["BenchmarkWriter", "Case", "Problem", "Tensor", "benchmark_key", "find_benchmarks", "read_benchmark"]

BENCHMARK_SCHEMA = 2
FOLDER = "operators"
"""The folder in a store that holds benchmarks of operators."""

Fill = Literal["normal", "positive", "unit", "index", "boolean", "sparse", "given"]


class Tensor(Struct, frozen=True, forbid_unknown_fields=True):
    """An input of a problem and how it is made: from a seed, or from ``values`` (then ``fill`` is ``given``).

    ``scale`` is the standard deviation of ``normal`` and ``sparse`` values and the number of values that an ``index``
    chooses from; ``density`` the share of ``sparse`` values that are not zero.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    fill: Fill = "normal"
    scale: float = 1.0
    density: float = 1.0
    values: tuple[int | float | bool, ...] | None = None


class Problem(Struct, frozen=True, forbid_unknown_fields=True):
    """An ONNX node with its inputs. ``inputs`` names them in order, the empty name for one that is left out."""

    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    opset: int
    attributes: dict[str, Any] = {}
    domain: str = ""
    note: str = ""


class BenchmarkSpecification(Struct, frozen=True, forbid_unknown_fields=True):
    """What a benchmark is to be on one framework; its key is the digest of this alone.

    ``budget_s`` is for one problem in one process, ``precision`` the half width of the interval of a process's median
    at which its sampling ends.
    """

    title: str
    framework: str
    device: str
    cache: Literal["hot", "cold"]
    direction: Literal["forward", "backward"]
    budget_s: float
    precision: float
    problems: tuple[Problem, ...]


class BenchmarkHeader(Struct, frozen=True, tag="benchmark", tag_field="kind"):
    """The first line. ``seed`` is the number of the process; ``ceilings`` as ``Ceilings.to_dict`` gives them.

    ``planned_effect`` and ``planned_runs`` as for runs.
    """

    schema: int
    id: str
    key: str
    seed: Count
    started: str
    specification: BenchmarkSpecification
    environment: dict[str, Any]
    ceilings: dict[str, Any]
    version: str
    planned_effect: float | None = None
    planned_runs: Count = 0


class Case(Struct, frozen=True, tag="case", tag_field="kind"):
    """What came of the problem at ``index``; its raw times are the samples of that name.

    ``status``: ``measured`` (and found right); ``wrong`` (measured, but its result is not the reference's), ``skipped``
    (does not fit), ``unsupported`` (refused by the framework) and ``failed`` (it raised), each with a ``reason``.
    ``errors`` are those of ``levelbench.checks.arrays`` against the reference; ``checked`` says which
    part of the results was compared, and against which tolerance.
    """

    index: Count
    status: Literal["measured", "wrong", "skipped", "unsupported", "failed"]
    reason: str = ""
    flops: float | None = None
    bytes: float | None = None
    errors: dict[str, float | None] = {}
    checked: str = ""
    inner: int = 0
    stopped_by: str = ""
    warmup_reason: str = ""
    first_s: float | None = None


class BenchmarkEnd(Struct, frozen=True, tag="end", tag_field="kind"):
    """The last line: every problem has its case. ``suspect`` lists reasons to doubt the times."""

    suspect: list[str] = field(default_factory=list)
    environment_after: dict[str, Any] = field(default_factory=dict)


_HEADER = msgspec.json.Decoder(BenchmarkHeader)
# Lax, so that "nan" and "inf", which stand for what JSON has not, are figures again.
_EVENT: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Case | Samples | BenchmarkEnd, strict=False)


@dataclass(frozen=True)
class BenchmarkRecord(ProcessRecord):
    """What one process left behind: cases by index, and its raw times in seconds a call."""

    path: Path
    header: BenchmarkHeader
    cases: dict[int, Case]
    samples: dict[int, Sequence[float]]
    end: BenchmarkEnd | None
    running: bool = False


def benchmark_key(specification: BenchmarkSpecification) -> str:
    """The digest of a specification, as for runs: 64 hexadecimal digits of the canonical JSON's SHA-256."""
    return key_of(specification)


class BenchmarkWriter(ProcessWriter[BenchmarkHeader, Case | Samples | BenchmarkEnd]):
    """An open record of a benchmark."""

    folder = FOLDER
    kind = "benchmark's record"


def read_benchmark(path: Path) -> BenchmarkRecord:
    """The record at ``path``; a torn last line is passed over. ``RecordError`` for what is none, or is damaged."""
    asked = f"reading the benchmark's record {path}"
    with open_record(path, asked) as file:
        running = locks.is_held(file.fileno())
        header, chain = decoded_header(file, _HEADER, BENCHMARK_SCHEMA, "benchmark", asked)
        cases: dict[int, Case] = {}
        samples: dict[int, Sequence[float]] = {}
        end = None
        for event in decoded_lines(file, _EVENT, chain, asked):
            if isinstance(event, Case):
                cases[event.index] = event
            elif isinstance(event, Samples):
                samples[int(event.name)] = event.values
            else:
                end = event
    return BenchmarkRecord(path, header, cases, samples, end, running)


def find_benchmarks(store: Path, key: str) -> list[BenchmarkRecord]:
    """The records in ``store`` of the specification with that key, oldest first; those damaged are passed over."""
    return find_records(store, FOLDER, key, read_benchmark)
